# SPDX-License-Identifier: Apache-2.0
"""--keep-hopper: the port stands beside the original, and the compiler's target chooses."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from corpus_kernels import CUDA, sampled
from kernels import GEMM, LOOP, STORE, SYNC, kernel, wrapper

from porter.build.gate import same_code
from porter.build.nvcc import compile_ptx
from porter.build.port_plan import PortPlan, materialize
from porter.cli.main import main
from porter.diagnostics import Code, ExitCode
from porter.lang.sources import load_sources
from porter.lang.text import Edit
from porter.passes import both as both_chips
from porter.passes.embedded import port_cuda_file
from porter.passes.port import PortOptions
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, compile_request
from porter.verify.case import load_case
from porter.verify.problem import bind

CORPUS = Path(__file__).parents[2] / "corpus"
QUICK = ("gemm_ws", "gemm_macro", "attention_fwd")
NAMES = re.compile(r"\b(?:sm|compute)_(?:90|100)a\b|//.*")
MACRO = "__CUDA_ARCH_FEAT_SM100_ALL"
HOST = re.compile(r"\(([\w.>-]*major) != 9 && \1 != 10\)")
ADMITS = f"(defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined({MACRO}))"
DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b(.*)")


def chosen(text: str, blackwell: bool) -> str:
    """The text with the choices between the chips made."""
    kept, open_ = [], []
    for line in text.splitlines(keepends=True):
        match = DIRECTIVE.match(line.rstrip("\n"))
        word = match[1] if match else ""
        if word in ("if", "ifdef", "ifndef"):
            ours = match is not None and match[2].strip() == f"defined({MACRO})"
            open_.append([ours, blackwell])
            if ours:
                continue
        elif open_ and open_[-1][0] and word in ("else", "endif"):
            open_[-1][1] = not open_[-1][1]
            if word == "endif":
                open_.pop()
            continue
        if open_ and word == "endif":
            open_.pop()
        if all(taken for ours, taken in open_ if ours):
            kept.append(line)
    return "".join(kept)


def ported(tmp_path: Path, text: str, **options: bool) -> tuple[str, list[Code], str]:
    path = tmp_path / "kernel.cu"
    path.write_text(text)
    result = port_cuda_file(load_sources(path), PortOptions(**options))
    for added in result.files.keys() - {str(path)}:
        Path(added).write_bytes(result.files[added])
    return result.files[str(path)].decode(), [d.code for d in result.diagnostics], str(path)


def both(tmp_path: Path, text: str) -> str:
    """The port for both chips, of which each half is right: Hopper's is the original, Blackwell's the plain port."""
    made, codes, _ = ported(tmp_path, text, keep_hopper=True)
    plain, without, _ = ported(tmp_path, text)
    assert made != text
    assert plain != text
    assert codes == without
    # a choice ends its last line
    assert chosen(made, False).removesuffix("\n") == text.removesuffix("\n")
    assert chosen(made, True).removesuffix("\n") == plain.removesuffix("\n")
    return made


HEAD = "#include <cstdint>\n" + SYNC + wrapper(16)
SIGNATURE = "__global__ void __launch_bounds__(128) kernel(float* out, uint64_t a, uint64_t b, int steps)"
BODY = "    float acc[8] = {0};\n" + LOOP + STORE

VARIANTS = {
    "plain": GEMM,
    "crlf": GEMM.replace("\n", "\r\n"),
    "no final newline": GEMM.rstrip("\n"),
    "template": kernel(BODY).replace("__global__", "template <int kStages>\n__global__"),
    "namespace": HEAD + "namespace mine {\n" + SIGNATURE + " {\n" + BODY + "}\n}  // namespace mine\n",
    "one line": HEAD + SIGNATURE + " { " + " ".join(BODY.split("\n")) + " } int after;\n",
    "function behind it on its last line": kernel(BODY).rstrip("\n") + " __device__ int next() { return 1; }\n",
    "conditional in the kernel": kernel(BODY.replace("wait<0>();", "wait<0>();\n#ifdef TRACE\n  ++out[0];\n#endif\n")),
    "conditional around the kernel": HEAD + "#if !defined(NO_KERNEL)\n" + SIGNATURE + " {\n" + BODY + "}\n#endif\n",
    "conditional over the head": HEAD
    + "#ifdef SMALL\n" + SIGNATURE + " {\n#else\n"
    + SIGNATURE.replace("128)", "128, 1)") + " {\n#endif\n" + BODY + "}\n",
    "struct": "#include <cstdint>\nstruct Ops {\n    int unused;\n"
    + re.sub(r"__device__", "static __device__", SYNC + wrapper(16)) + "};\n" + SIGNATURE + " {\n"
    + re.sub(r"\b(arrive|commit|mma|wait)(?=[(<])", r"Ops::\1", BODY) + "}\n",
    "two kernels": kernel(BODY) + "\n" + SIGNATURE.replace(" kernel(", " second(") + " {\n" + BODY + "}\n",
    "host code between": HEAD + "int host();\n" + SIGNATURE + " {\n" + BODY + "}\nint more() { return 1; }\n",
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_each_half_is_right(name: str, tmp_path: Path) -> None:
    both(tmp_path, VARIANTS[name])


@pytest.mark.spread(3)
@pytest.mark.parametrize("path", sampled(CUDA))
def test_halves_of_the_corpus(path: Path) -> None:
    sources = load_sources(load_case(path).kernel)
    plain = port_cuda_file(sources, PortOptions())
    made = port_cuda_file(sources, PortOptions(keep_hopper=True))
    assert made.groups
    for name, text in sources.sources().items():
        hopper, blackwell = (chosen(made.files[name].decode(), half) for half in (False, True))
        assert HOST.sub(r"\1 != 9", hopper).replace(ADMITS, "defined(__CUDA_ARCH_FEAT_SM90_ALL)") == text.decode()
        ours = chosen(HOST.sub(r"\1 != 10", blackwell).replace(ADMITS, f"defined({MACRO})"), True)
        wanted = chosen(plain.files[name].decode(), True)
        # outside of functions' second forms, texts may name the chip that they were written for
        assert NAMES.sub("", ours) == NAMES.sub("", wanted)


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[] if p.stem in QUICK else pytest.mark.slow, id=p.parent.name) for p in CUDA],
)
def test_each_half_compiles_to_the_same_ptx(path: Path, tmp_path: Path) -> None:
    case = load_case(path)
    sources, text = load_sources(case.kernel), {}
    for name, options in (("port", PortOptions()), ("both", PortOptions(keep_hopper=True))):
        files = port_cuda_file(sources, options).files
        source = materialize(PortPlan(files=files), case.kernel, tmp_path / name)
        for arch in (ORIGINAL_ARCH, PORT_ARCH) if name == "both" else (PORT_ARCH,):
            request = compile_request(bind(case), source, arch)
            text[name, arch] = re.sub(r"//.*", "", compile_ptx(dataclasses.replace(request, lineinfo=False)).ptx)
    original = compile_ptx(dataclasses.replace(compile_request(bind(case), case.kernel, ORIGINAL_ARCH), lineinfo=False))
    assert same_code(text["both", ORIGINAL_ARCH], original.ptx)
    assert "wgmma" in text["both", ORIGINAL_ARCH]
    assert same_code(text["both", PORT_ARCH], text["port", PORT_ARCH])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("p.major == 9", "(p.major == 9 || p.major == 10)"),
        ("p->major != 9", "(p->major != 9 && p->major != 10)"),
        ("major(p) == 9", "major(p) == 9"),
        ("!(p.major == 9) && p.minor == 0", "!((p.major == 9 || p.major == 10)) && p.minor == 0"),
        ("get()->major == 9", "(get()->major == 9 || get()->major == 10)"),
        ("p.major >= 9", "p.major >= 9"),
        ("p.major < 9", "p.major < 9"),
        ("p.major >= 9 && p.major < 10", "p.major >= 9 && p.major < 11"),
        ("p.major * 10 + p.minor == 90", "(p.major * 10 + p.minor == 90 || p.major * 10 + p.minor == 100)"),
        ("sm_version != 90", "(sm_version != 90 && sm_version != 100)"),
        ("getSMVersion() == 90", "(getSMVersion() == 90 || getSMVersion() == 100)"),
        ("p.arch == 90", "(p.arch == 90 || p.arch == 100)"),
        ("(cc == 90 && ok)", "((cc == 90 || cc == 100) && ok)"),
        ("num_sms == 90", "num_sms == 90"),
        ("size == 90", "size == 90"),
        ("sm == 900", "sm == 900"),
    ],
)
def test_host_checks_admit_both(before: str, after: str, tmp_path: Path) -> None:
    made, *_ = ported(tmp_path, GEMM + f"\nbool fits() {{ return {before}; }}\n", keep_hopper=True)
    assert f"{{ return {after}; }}" in made


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("#ifdef __CUDA_ARCH_FEAT_SM90_ALL",
         "#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FEAT_SM100_ALL)"),
        (
            "#ifndef __CUDA_ARCH_FEAT_SM90_ALL",
            "#if !defined(__CUDA_ARCH_FEAT_SM90_ALL) && !defined(__CUDA_ARCH_FEAT_SM100_ALL)",
        ),
        (
            "#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && X",
            "#if (defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FEAT_SM100_ALL)) && X",
        ),
        (
            "#if !defined __CUDA_ARCH_FEAT_SM90_ALL",
            "#if !(defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FEAT_SM100_ALL))",
        ),
        ("#if __CUDA_ARCH__ >= 900", "#if __CUDA_ARCH__ >= 900"),
        ("#if __CUDA_ARCH__ == 900", "#if (__CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000)"),
        ("#elif __CUDA_ARCH_SPECIFIC__ == 900",
         "#elif (__CUDA_ARCH_SPECIFIC__ == 900 || __CUDA_ARCH_SPECIFIC__ == 1000)"),
    ],
)  # fmt: skip
def test_conditions_admit_both(before: str, after: str, tmp_path: Path) -> None:
    opened = "#if 1 == X\n" if before.startswith("#elif") else ""
    made, *_ = ported(tmp_path, GEMM + f"\n{opened}{before}\nint here;\n#endif\n", keep_hopper=True)
    assert f"\n{after}\nint here;\n#endif\n" in made


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("p.major >= 9 && p.major < 10", "p.major >= 10 && p.major < 11"),
        ("p.major * 10 + p.minor == 90", "p.major * 10 + p.minor == 100"),
        ("sm_version != 90", "sm_version != 100"),
        ("getSMVersion() == 90", "getSMVersion() == 100"),
        ("num_sms == 90", "num_sms == 90"),
        ("p.minor < 10", "p.minor < 10"),
    ],
)
def test_host_checks_of_the_port_alone(before: str, after: str, tmp_path: Path) -> None:
    made, *_ = ported(tmp_path, GEMM + f"\nbool fits() {{ return {before}; }}\n")
    assert f"{{ return {after}; }}" in made


def test_an_option_for_one_chip_is_reported(tmp_path: Path) -> None:
    text = GEMM + '\nconst char* how = "-arch=sm_90a";\nconst char* said = "needs sm_90a";\n'
    made, codes, _ = ported(tmp_path, text, keep_hopper=True)
    assert made.endswith('const char* how = "-arch=sm_90a";\nconst char* said = "needs sm_90a";\n')
    assert codes.count(Code.LEFT_FOR_ONE_CHIP) == 1


def test_a_port_for_both_is_ported_already(tmp_path: Path) -> None:
    made = both(tmp_path, GEMM)
    again, codes, path = ported(tmp_path, made)
    assert again == made
    assert codes == []
    for command in (["port", "--keep-hopper", path, "--no-compile"], ["port", path, "--no-compile"]):
        outcome = CliRunner().invoke(main, command)
        assert outcome.exit_code == ExitCode.OK
        assert "PT0007" in outcome.output


def test_what_is_new_beside_a_port_for_both_is_ported(tmp_path: Path) -> None:
    made = both(tmp_path, GEMM) + "\n" + SIGNATURE.replace(" kernel(", " second(") + " {\n    out[0] = 1;\n}\n"
    own = (
        wrapper(32, name="other")
        + SIGNATURE.replace(" kernel(", " third(")
        + " {\n"
        + (BODY.replace("[8]", "[16]").replace("mma(", "other("))
        + "}\n"
    )
    path = tmp_path / "more.cu"
    path.write_text(made + own.replace("arrive();", 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'))
    result = port_cuda_file(load_sources(path), PortOptions(keep_hopper=True))
    assert chosen(result.files[str(path)].decode(), False).count("SM100") == 0
    assert result.files[str(path)] == path.read_bytes() or result.groups


@pytest.mark.spread(2)
@pytest.mark.parametrize("raw", [True, False])
def test_source_in_a_string_has_both_forms(raw: bool, tmp_path: Path) -> None:
    option = "-gencode=arch=compute_90a,code=sm_90a"
    if raw:
        path, text = tmp_path / "host.cpp", 'const char* source = R"(\n' + GEMM + ')";\n'
    else:
        path = tmp_path / "jit.py"
        text = f'flags = ["{option}"]\nsource = r"""\n{GEMM}"""\n'
    path.write_text(text)
    outcome = CliRunner().invoke(main, ["port", str(path), "--keep-hopper", "-o", str(tmp_path / "port")])
    assert outcome.exit_code == ExitCode.OK, outcome.output
    assert "compiled for sm_90a" in outcome.output
    made = (tmp_path / "port" / path.name).read_text()
    assert MACRO in made
    assert chosen(made, False).replace(f', "{option.replace("90", "100")}"', "") == text
    assert "tcgen05.mma" in chosen(made, True)


def test_an_option_for_nvrtc_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "jit.py"
    path.write_text(f'import cupy\nmodule = cupy.RawModule(code=r"""\n{GEMM}""", options=("-arch=sm_90a",))\n')
    outcome = CliRunner().invoke(main, ["port", str(path), "--keep-hopper", "--no-compile", "-o", str(tmp_path / "p")])
    assert outcome.exit_code == ExitCode.UNPORTED
    assert "PT2058" in outcome.output
    path = tmp_path / "host.cpp"
    path.write_text(f'const char* source = R"(\n{GEMM})";\nconst char* option = "--gpu-architecture=sm_90a";\n')
    made, codes, _ = ported(tmp_path, path.read_text(), keep_hopper=True)
    assert codes.count(Code.LEFT_FOR_ONE_CHIP) == 1
    assert made.endswith('"--gpu-architecture=sm_90a";\n')


def test_a_dsl_kernel_is_refused() -> None:
    path = str(CORPUS / "dsl_gemm_plain" / "dsl_gemm_plain.py")
    outcome = CliRunner().invoke(main, ["port", path, "--keep-hopper", "--no-compile"])
    assert outcome.exit_code == ExitCode.UNPORTED
    assert "PT2057" in outcome.output


def test_verify_with_both_forms() -> None:
    outcome = CliRunner().invoke(main, ["verify", str(CORPUS / "gemm_macro"), "--keep-hopper"])
    assert outcome.exit_code == ExitCode.OK, outcome.output


@pytest.mark.spread(2)
@pytest.mark.parametrize("command", ["port", "verify"])
def test_a_changed_hopper_form_is_refused(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of what is compiled for Hopper sees a branch that is not the original."""
    whole = both_chips._beside

    def changed(*arguments: Any) -> list[Edit]:
        front, back = whole(*arguments)
        return [front, dataclasses.replace(back, replacement=b"#error not the original\n" + back.replacement)]

    monkeypatch.setattr(both_chips, "_beside", changed)
    folder = shutil.copytree(CORPUS / "gemm_macro", tmp_path / "gemm_macro")
    outcome = CliRunner().invoke(main, [command, str(folder / "gemm_macro.cu"), "--keep-hopper"])
    assert outcome.exit_code == ExitCode.BUILD_FAILED, outcome.output


def test_the_gate_compiles_both_forms() -> None:
    path = str(CORPUS / "gemm_macro" / "gemm_macro.cu")
    outcome = CliRunner().invoke(main, ["port", path, "--keep-hopper", "--check"])
    assert outcome.exit_code == ExitCode.FINDINGS, outcome.output


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("mov.u32 %r1, 1;", "mov.u32 %r1, 2;", False),
        ("mov.u32 %r1, 1;", "mov.u32 %r1, 1;\nbar.sync 0;", False),
        ("mov.u32 %r1, 1; // a", "  mov.u32 %r1, 1; // b\n\n", True),
        (".loc 1 2 3\nret;", ".loc 1 9 3\nret;", True),
        ("_ZN3_INTERNAL_00c0ffee_4_k_cu_89abcdef_793fooEv", "_ZN3_INTERNAL_de_4_k_cu_01234567_793fooEv", True),
        ("_ZN3_INTERNAL_00c0ffee_4_k_cu_89abcdef_793fooEv", "_ZN3_INTERNAL_de_4_k_cu_01234567_793barEv", False),
    ],
)  # fmt: skip
def test_code_is_compared_without_places(one: str, other: str, same: bool) -> None:
    assert same_code(one, other) is same
