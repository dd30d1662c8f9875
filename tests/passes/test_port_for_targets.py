# SPDX-License-Identifier: Apache-2.0
"""Ports for the other chips with tcgen05: their names and numbers stand wherever those of sm_100a would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from corpus_kernels import CASES, is_cute
from kernels import GEMM, SYNC, wrapper
from test_port_build_files import REWRITTEN as BUILD_FILES

from porter.cli.main import main
from porter.diagnostics import Code, ExitCode, Severity
from porter.lang.sources import load_sources
from porter.passes.build_files import port_build_files
from porter.passes.dsl.port import port_python
from porter.passes.embedded import port_cuda_file
from porter.passes.port import PortOptions, PortResult
from porter.passes.targets import named
from porter.ptx.arch import PORT_TARGETS, PortTarget
from porter.rules.engine import Selection
from porter.rules.load import load_rules

OTHERS = PORT_TARGETS[1:]
SM103A, SM110A = OTHERS
MARK = "// host\n"


def port_for(text: str, target: PortTarget, tmp_path: Path, keep: bool = False) -> PortResult:
    path = tmp_path / "k.cu"
    path.write_text(text)
    return port_cuda_file(load_sources(path), PortOptions(keep_hopper=keep, target=target))


def host(text: str, target: PortTarget, tmp_path: Path, keep: bool = False) -> tuple[str, PortResult]:
    """What stands for a piece of code behind a kernel."""
    result = port_for(f"{GEMM}\n{MARK}{text}\n", target, tmp_path, keep)
    return result.files[str(tmp_path / "k.cu")].decode().split(MARK)[1].removesuffix("\n"), result


CONDITIONS = [
    ("p.major == 9", "p.major == 10", "p.major == 11"),
    ("p.major != 9", "p.major != 10", "p.major != 11"),
    ("p.major >= 9 && p.major < 10", "p.major >= 10 && p.major < 11", "p.major >= 11 && p.major < 12"),
    ("p.major * 10 + p.minor == 90", "p.major * 10 + p.minor == 103", "p.major * 10 + p.minor == 110"),
    ("sm == 90", "sm == 103", "sm == 110"),
    ("sm < 100", "sm < 110", "sm < 120"),
    ("sm >= 90 && sm < 100", "sm >= 90 && sm < 110", "sm >= 90 && sm < 120"),
]


@pytest.mark.parametrize(("before", "on_103", "on_110"), CONDITIONS, ids=[c[0] for c in CONDITIONS])
def test_comparisons_admit_the_chip(before: str, on_103: str, on_110: str, tmp_path: Path) -> None:
    for target, after in ((SM103A, on_103), (SM110A, on_110)):
        made, result = host(f"bool fits() {{ return {before}; }}", target, tmp_path)
        assert made == f"bool fits() {{ return {after}; }}"
        assert result.left_over == []


def test_a_minor_number_that_the_chip_has_not_is_left_over(tmp_path: Path) -> None:
    text = "bool fits(P p) { return p.major == 9 && p.minor == 0; }"
    _, on_103 = host(text, SM103A, tmp_path)
    made, on_110 = host(text, SM110A, tmp_path)
    assert [d.code for d in on_103.left_over] == [Code.CHIP_CHECK_LEFT]
    assert on_110.left_over == []
    assert "p.major == 11 && p.minor == 0" in made


GUARDS = [
    ("#if defined(__CUDA_ARCH_FEAT_SM90_ALL)", "#if defined(__CUDA_ARCH_FEAT_SM{sm}_ALL)"),
    ("#ifdef __CUDA_ARCH_FEAT_SM90_ALL", "#ifdef __CUDA_ARCH_FEAT_SM{sm}_ALL"),
    ("#if __CUDA_ARCH__ >= 900", "#if __CUDA_ARCH__ >= {sm}0"),
    ("#if __CUDA_ARCH__ == 900", "#if __CUDA_ARCH__ == {sm}0"),
    ("#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000", "#if __CUDA_ARCH__ >= {sm}0 && __CUDA_ARCH__ < {after}"),
    ("#if __CUDA_ARCH_SPECIFIC__ == 900", "#if __CUDA_ARCH_SPECIFIC__ == {sm}0"),
    ("#ifdef CUTLASS_ARCH_MMA_SM90A_ENABLED", "#ifdef CUTLASS_ARCH_MMA_SM{sm}A_ENABLED"),
    ("#if defined(CUTLASS_ARCH_MMA_SM90_SUPPORTED)", "#if defined(CUTLASS_ARCH_MMA_SM{sm}_SUPPORTED)"),
]


@pytest.mark.parametrize("target", OTHERS, ids=lambda t: t.name)
@pytest.mark.parametrize(("before", "after"), GUARDS, ids=[g[0] for g in GUARDS])
def test_guards_are_the_chips(before: str, after: str, target: PortTarget, tmp_path: Path) -> None:
    result = port_for(f"{before}\n{GEMM}#endif\n", target, tmp_path)
    lines = result.files[str(tmp_path / "k.cu")].decode().splitlines()
    first = next(line for line in lines if line.startswith("#if"))
    assert first == after.format(sm=target.sm, after=100 * target.following)
    assert result.left_over == []


def test_both_forms_are_told_apart_by_the_chip(tmp_path: Path) -> None:
    made = port_for(GEMM, SM103A, tmp_path, keep=True).files[str(tmp_path / "k.cu")].decode()
    assert "#if defined(__CUDA_ARCH_FEAT_SM103_ALL)" in made
    assert "SM100" not in made
    again = port_for(made, SM103A, tmp_path, keep=True)
    assert again.groups == []


@pytest.mark.parametrize("target", OTHERS, ids=lambda t: t.name)
def test_build_files_are_for_the_chip(target: PortTarget) -> None:
    """What is made for sm_100a, with the chip's names; capabilities in Python are another test's."""
    rules = load_rules()
    compared = 0
    for name, before, after, _ in BUILD_FILES:
        if not re.search("100a|10[.]0a", after) or re.search("100a|10[.]0a", before) or "capability" in before:
            continue
        found = port_build_files({name: before.encode()}, rules, Selection(), target=target)
        assert found.files[name] == named(after.encode(), target)
        assert b"100a" not in found.files[name]
        compared += 1
    assert compared > 20


PYTHON = [
    ("torch.cuda.get_device_capability() == (9, 0)", "(10, 3)", "(11, 0)"),
    ("torch.cuda.get_device_capability()[0] == 9", "== 10", "== 11"),
    ("torch.cuda.get_device_capability()[0] != 9", "!= 10", "!= 11"),
    ("torch.cuda.get_device_capability() in ((9, 0),)", "((10, 3),)", "((11, 0),)"),
]


@pytest.mark.parametrize(("before", "on_103", "on_110"), PYTHON, ids=[p[0] for p in PYTHON])
def test_build_code_asks_for_the_chip(before: str, on_103: str, on_110: str) -> None:
    text = f"import torch\nflags = ['-gencode=arch=compute_90a,code=sm_90a']\nif {before}:\n    build(flags)\n"
    for target, after in ((SM103A, on_103), (SM110A, on_110)):
        found = port_build_files({"setup.py": text.encode()}, load_rules(), Selection(), target=target)
        made = found.files["setup.py"].decode()
        assert after in made
        assert f"arch=compute_{target.chip},code=sm_{target.chip}" in made
        assert found.left == []


def test_a_build_that_names_sm_100a_by_itself_is_listed() -> None:
    text = "ARCHS = 90a\nOTHER = -gencode arch=compute_100a,code=sm_100a\n"
    found = port_build_files({"Makefile": text.encode()}, load_rules(), Selection(), target=SM103A)
    assert [d.where.line for d in found.left if d.where is not None] == [2]
    assert "sm_103a" in found.left[0].detail
    assert b"compute_100a" in found.files.get("Makefile", text.encode())


INTEGERS = wrapper(16, "s32.s8.s8", "int (&d)[8]", tail="1").replace("+f", "+r").replace("m64n16k16", "m64n16k32")
INTEGER_GEMM = f"""#include <cstdint>
{SYNC}{INTEGERS}
__global__ void __launch_bounds__(128) kernel(int* out, uint64_t a, uint64_t b, int steps) {{
    int acc[8] = {{0}};
    for (int k = 0; k < steps; ++k) {{
        arrive();
        mma(acc, a + k * 2, b + k * 2);
        commit();
        wait<0>();
    }}
    for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = acc[i];
}}
"""


def test_integer_mmas_are_not_for_every_chip(tmp_path: Path) -> None:
    refused = port_for(INTEGER_GEMM, SM103A, tmp_path)
    assert refused.exit_code is ExitCode.UNPORTED
    assert not refused.changed
    (said,) = [d for d in refused.diagnostics if d.code is Code.TARGET_LACKS]
    assert "kind::i8 needs" in str(said)
    taken = port_for(INTEGER_GEMM, SM110A, tmp_path)
    assert taken.exit_code is ExitCode.OK
    assert taken.kernels == ["kernel"]


OWN = """#include <cstdint>
__device__ void mine(uint32_t d, uint64_t a, uint64_t b, uint32_t i) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; tcgen05.mma.cta_group::1.kind::$kind [%0], %1, %2, %3, p; }"
               :: "r"(d), "l"(a), "l"(b), "r"(i));
}
"""


@pytest.mark.parametrize(("kind", "is_taken"), [("f16", True), ("tf32", True), ("f8f6f4", True), ("i8", False)])
def test_instructions_are_looked_up_whoever_wrote_them(kind: str, is_taken: bool, tmp_path: Path) -> None:
    result = port_for(OWN.replace("$kind", kind) + GEMM.split("\n", 1)[1], SM103A, tmp_path)
    assert (Code.TARGET_LACKS not in [d.code for d in result.diagnostics]) == is_taken


def test_the_option_is_taken_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(f"#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n{GEMM}#endif\n")
    made = CliRunner().invoke(main, ["port", str(path), "--no-compile", "--to", "103a"])
    assert made.exit_code == 0
    assert "+#ifdef __CUDA_ARCH_FEAT_SM103_ALL" in made.output
    refused = CliRunner().invoke(main, ["port", str(path), "--no-compile", "--to", "sm_120a"])
    assert refused.exit_code == int(ExitCode.USAGE)
    assert "neither tcgen05 nor Tensor Memory" in refused.output


CHECKED = """
#if defined(__CUDA_ARCH_FEAT_SM100_ALL)
__device__ void f(uint32_t d, uint64_t a, uint64_t b, uint32_t i) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0; tcgen05.mma.cta_group::1.kind::i8 [%0], %1, %2, %3, p; }"
               :: "r"(d), "l"(a), "l"(b), "r"(i));
}
#endif
"""


def test_code_for_sm100_is_held_against_the_chip(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_text(CHECKED)
    runs = [
        CliRunner().invoke(main, ["check", "--sm100", "--to", t, str(path)]) for t in ("sm_100a", "sm_103a", "sm_110a")
    ]
    assert [r.exit_code for r in runs] == [0, 1, 1]
    assert "does not hold on sm_103a" in runs[1].output
    assert "kind::i8 needs" in runs[1].output
    assert "kind::i8" not in runs[2].output


def test_cute_dsl_is_ported_where_it_hands_out_ptx() -> None:
    kernel = CASES[0].parents[1] / "dsl_gemm" / "dsl_gemm.py"
    assert port_python(kernel, target=SM103A).groups
    refused = port_python(kernel, target=SM110A)
    assert [d.code for d in refused.diagnostics if d.severity is Severity.ERROR] == [Code.TARGET_LACKS]
    assert not refused.groups
    assert refused.files == refused.sources.sources()


COMPILED = [
    pytest.param(path, target, id=f"{path.parent.name} for {target.name}", marks=[pytest.mark.slow])
    for path in CASES
    for target in OTHERS
]


@pytest.mark.parametrize(("case", "target"), COMPILED)
def test_ports_of_the_corpus_compile_for_every_chip(case: Path, target: PortTarget, tmp_path: Path) -> None:
    """Those that are refused say which instruction is not there; nothing else is left."""
    kernels = [p for p in case.parent.iterdir() if p.suffix in (".cu", ".py") and p.stem == case.parent.name]
    args = ["port", str(kernels[0]), "--to", target.name, "-o", str(tmp_path / "out"), "--trust", "--format", "json"]
    if is_cute(case):
        pytest.importorskip("cutlass_library")
    result = CliRunner().invoke(main, args)
    if case.parent.name == "dsl_gemm_bytes" and target == SM103A:
        # its operands are of the tensors that it is compiled for: the compiler refuses those of 8-bit integers
        assert result.exit_code == ExitCode.BUILD_FAILED
        assert not (tmp_path / "out").exists()
        return
    lacks = f'"{Code.TARGET_LACKS.id}"' in result.output
    # a host that asks for the minor number 0 is told of (B300 is 10.3)
    asks = f'"{Code.CHIP_CHECK_LEFT.id}"' in result.output
    assert asks == (case.parent.name == "gemm_pipelined" and target == SM103A)
    assert result.exit_code == (int(ExitCode.UNPORTED) if lacks or asks else 0), result.output[-2000:]
    name = case.parent.name
    assert lacks == ((name == "gemm_int8" and target == SM103A) or (name.startswith("dsl_") and target == SM110A))
    if not lacks:
        assert '"status": "compiled"' in result.output
