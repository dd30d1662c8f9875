# SPDX-License-Identifier: Apache-2.0
"""A refused kernel does not hold back the others: it keeps its text for sm_90a and traps elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from kernels import LOOP, STORE, SYNC, compiles, port_files, wrapper
from object_kernels import CASE, KERNELS

from porter.build.nvcc import CompileRequest, compile_ptx
from porter.cli.context import current
from porter.cli.main import main
from porter.cli.making import Ports
from porter.diagnostics import Code, ExitCode
from porter.lang.sources import load_sources
from porter.passes.embedded import port_cuda_file
from porter.passes.header import NAME
from porter.passes.port import PortResult

HEAD = "#include <cstdint>\n"
SIGNATURE = "__global__ void __launch_bounds__(128) {}(float* out, uint64_t a, uint64_t b, int steps) {{\n"
GUARD = "#if defined(__CUDA_ARCH_FEAT_SM90_ALL)\n"


def kernel(name: str, body: str) -> str:
    return "\n" + SIGNATURE.format(name) + body + "}\n"


def calling(mma: str, body: str = "") -> str:
    return (body or GOOD).replace("mma(acc", f"{mma}(acc")


GOOD = "    float acc[8] = {0};\n" + LOOP + STORE
# read while in flight
BAD = "    float acc[8] = {0};\n" + LOOP.replace("wait<0>", "wait<1>") + STORE
OPS = SYNC + wrapper(16)
# refused wherever it is called
ODD = wrapper(16, name="odd_mma").replace("(d[0])", "(d[9])").replace("(d[1])", "(d[0])").replace("(d[9])", "(d[1])")
ODD_BODY = calling("odd_mma")
LARGE = "    float acc[128][8] = {0};\n    mma(acc[0], a, b); commit(); wait<0>();\n    out[0] = acc[0][0];\n"
LAUNCH = "\nvoid launch(float* out) {{\n    {0}<<<1, 128>>>(out, 0, 0, 4);\n}}\n"
STEP = """
__device__ int step(float (&d)[8], uint64_t a, uint64_t b) {
    odd_mma(d, a, b);
    mma(d, a, b);
    return 1;
}
"""
METHODS = """
struct Ops {{
    __device__ static void mma(float (&d)[8], uint64_t a, uint64_t b) {{
        {}
    }}
}};
"""
ASM = wrapper(16)[wrapper(16).index("asm volatile") : wrapper(16).rindex("}")].strip()
MACRO = "#define NAME(d, a, b) " + ASM.replace("\n", " \\\n") + "\n"
BITS = wrapper(8, "s32.b1.b1.and.popc", "int (&d)[4]", "bits", "1").replace("k32", "k256").replace('"+f"', '"+r"')
NO_WRITE = '__device__ void odd() { asm volatile("@p wgmma.fence.sync.aligned;" ::: "memory"); }\n'

SETS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "helpers that both need": ({"kernel.cu": HEAD + OPS + kernel("good", GOOD) + kernel("bad", BAD)}, ("bad",)),
    "the refused one first": ({"kernel.cu": HEAD + OPS + kernel("bad", BAD) + kernel("good", GOOD)}, ("bad",)),
    "a wrapper of its own": (
        {"kernel.cu": HEAD + OPS + ODD + kernel("good", GOOD) + kernel("bad", ODD_BODY)},
        ("bad",),
    ),
    "a function between": (
        {"kernel.cu": HEAD + OPS + ODD + STEP + kernel("good", GOOD) + kernel("bad", calling("step"))},
        ("bad",),
    ),
    "too large": (
        {
            "kernel.cu": HEAD
            + OPS
            + kernel("good", GOOD)
            + kernel("bad", LARGE)
        },
        ("bad",),
    ),
    "a construct of a library": (
        {"kernel.cu": HEAD + OPS + kernel("good", GOOD) + kernel("bad", "    warpgroup::mma_AB(1, 2, 3);\n")},
        ("bad",),
    ),
    "two of three": (
        {"kernel.cu": HEAD + OPS + ODD + kernel("bad", BAD) + kernel("good", GOOD) + kernel("worse", ODD_BODY)},
        ("bad", "worse"),
    ),
    "headers": (
        {
            "kernel.cu": '#include "good.cuh"\n#include "bad.cuh"\n' + LAUNCH.format("bad"),
            "ops.cuh": "#pragma once\n" + HEAD + OPS,
            "good.cuh": '#pragma once\n#include "ops.cuh"\n' + kernel("good", GOOD),
            "bad.cuh": '#pragma once\n#include "ops.cuh"\n' + kernel("bad", BAD),
        },
        ("bad",),
    ),
    "templates and namespaces": (
        {
            "kernel.cu": HEAD
            + "namespace ops {\n" + OPS + "}\nnamespace a {\nusing namespace ops;\n"
            + "template <int N>" + kernel("bad", BAD)
            + "template __global__ void bad<1>(float*, uint64_t, uint64_t, int);\n" + kernel("good", GOOD) + "}\n"
        },
        ("bad",),
    ),
    "a method that both need": (
        {
            "kernel.cu": HEAD + SYNC + METHODS.format(ASM)
            + kernel("good", calling("Ops::mma")) + kernel("bad", calling("Ops::mma", BAD))
        },
        ("bad",),
    ),
    "a macro that both need": (
        {
            "kernel.cu": HEAD + SYNC + MACRO.replace("NAME", "MMA")
            + kernel("good", calling("MMA")) + kernel("bad", calling("MMA", BAD))
        },
        ("bad",),
    ),
    "a macro of its own": (
        {
            "kernel.cu": HEAD + OPS + MACRO.replace("NAME", "ODD").replace('"wgmma.mma', '"@p wgmma.mma')
            + kernel("good", GOOD) + kernel("bad", calling("ODD"))
        },
        ("bad",),
    ),
    "a helper for both sides": (
        {
            "kernel.cu": HEAD + OPS + NO_WRITE.replace("__device__", "__host__ __device__")
            + kernel("good", GOOD) + kernel("bad", "    odd();\n")
        },
        ("bad",),
    ),
    "declared before": (
        {
            "kernel.cu": HEAD + "__device__ void arrive();\n"
            + "__device__ void mma(float (&d)[8], uint64_t a, uint64_t b);\n" + OPS.replace("__forceinline__ ", "")
            + kernel("good", GOOD) + kernel("bad", BAD)
        },
        ("bad",),
    ),
    "a lambda": (
        {
            "kernel.cu": HEAD + OPS + kernel("good", GOOD)
            + kernel("bad", "    auto f = [&]() { asm volatile(\"@p wgmma.fence.sync.aligned;\"); };\n    f();\n")
        },
        ("bad",),
    ),
    "one line": (
        {"kernel.cu": HEAD + OPS + NO_WRITE + kernel("good", GOOD) + "__global__ void bad() { odd(); }\n"},
        ("bad",),
    ),
}  # fmt: skip
QUICK = ("helpers that both need", "a wrapper of its own", "headers")


def bodies(text: str, name: str) -> str:
    """Between the braces of a kernel."""
    start = text.index(f" {name}(") + 1
    opening = text.index("{", text.index(")", start))
    depth = 0
    for at in range(opening, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[opening + 1 : at]
    raise AssertionError(name)


def check(result: PortResult, files: dict[str, str], left: tuple[str, ...], directory: Path) -> None:
    found = [str(d) for d in result.diagnostics]
    assert result.exit_code == ExitCode.UNPORTED, found
    assert result.kernels == ["good"], found
    assert [k.kernel for k in result.left] == list(left)
    for name in left:
        assert any("[PT2013]" in d and f"`{name}`" in d for d in found), found
        path, original = next((p, t) for p, t in files.items() if f" {name}(float" in t or f" {name}()" in t)
        text = result.files[str(directory / path)].decode().replace("\r\n", "\n")
        body = bodies(original.replace("\r\n", "\n"), name)
        assert f"{GUARD.rstrip()}{body.rstrip(' ') if body.startswith(chr(10)) else chr(10) + body}" in text
        assert "__trap();" in text
    assert all(k.why for k in result.left)


@pytest.mark.parametrize("changed", ["", pytest.param("CRLF", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SETS])
def test_the_others_are_ported(tmp_path: Path, name: str, changed: str) -> None:
    files, left = SETS[name]
    if changed:
        files = {p: t.replace("\n", "\r\n") for p, t in files.items()}
    result = port_files(tmp_path / "in", files)
    check(result, files, left, tmp_path / "in")
    ptx = compiles(result, tmp_path / "in", tmp_path / "out")
    assert "wgmma" not in ptx
    assert "tcgen05.mma" in ptx
    assert ptx.count("\ttrap;") == len(left)


@pytest.mark.parametrize("name", ["helpers that both need", "a macro that both need", "declared before"])
def test_what_both_need_is_there_as_it_was(tmp_path: Path, name: str) -> None:
    files, _ = SETS[name]
    result = port_files(tmp_path, files)
    text = result.files[result.sources.root].decode()
    for function in ("arrive", "commit", "wait"):
        line = next(t for t in files["kernel.cu"].splitlines() if f" {function}() {{" in t)
        assert f"{GUARD}{line}\n#else\n" in text


def without(text: str, name: str) -> str:
    """The text without the definition of a kernel."""
    body = bodies(text, name)
    at = text.index(body)
    return text[: text.rindex("__global__", 0, at)] + text[at + len(body) + 1 :]


IN_BOTH_FORMS = (
    "helpers that both need",
    "a function between",
    "templates and namespaces",
    "a method that both need",
    "a macro that both need",
    "declared before",
)


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in IN_BOTH_FORMS])
def test_what_is_left_compiles_for_hopper(tmp_path: Path, name: str, renamed: bool) -> None:
    files, _ = SETS[name]
    text = files["kernel.cu"]
    if renamed:
        # wrappers with wgmma in their names get others
        for function in ("arrive", "commit", "wait"):
            text = text.replace(f"{function}()", f"wgmma_{function}()").replace(f"{function}<", f"wgmma_{function}<")
    result = port_files(tmp_path / "in", {"kernel.cu": text})
    assert result.kernels == ["good"], [str(d) for d in result.diagnostics]
    alone = without(result.files[result.sources.root].decode(), "good")
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "kernel.cu").write_text(alone)
    (tmp_path / "alone" / NAME).write_bytes(result.files[str(tmp_path / "in" / NAME)])
    for arch, instruction in (("sm_90a", "wgmma."), ("sm_100a", "\ttrap;")):
        request = CompileRequest(tmp_path / "alone" / "kernel.cu", arch, lineinfo=False, assemble=arch == "sm_100a")
        assert instruction in compile_ptx(request).ptx


def test_its_launches_are_listed(tmp_path: Path) -> None:
    files, _ = SETS["headers"]
    result = port_files(tmp_path, files)
    line = files["kernel.cu"].splitlines().index("    bad<<<1, 128>>>(out, 0, 0, 4);") + 1
    assert result.left[0].launches == (f"{tmp_path / 'kernel.cu'}:{line}",)
    assert any(f"kernel.cu:{line}" in str(d) for d in result.diagnostics)


NOT_APART = {
    "all are refused": HEAD + OPS + kernel("bad", BAD) + kernel("worse", BAD),
    "a shared function is refused": HEAD + OPS + ODD + kernel("bad", ODD_BODY) + kernel("good", ODD_BODY),
    "outside of functions": HEAD + OPS + 'const char* s = "wgmma.fence";\n' + kernel("good", GOOD),
    "in a function that no kernel reaches": HEAD + OPS + NO_WRITE + kernel("good", GOOD),
    "named in a way that is not understood": HEAD
    + OPS
    + NO_WRITE
    + "#define CALL(f) f()\n"
    + kernel("good", "    CALL(odd);\n" + GOOD)
    + kernel("bad", "    odd();\n"),
    "its address is taken": HEAD
    + OPS
    + NO_WRITE
    + "__device__ void (*table[])() = {odd};\n"
    + kernel("good", GOOD)
    + kernel("bad", "    odd();\n"),
}


@pytest.mark.parametrize("name", NOT_APART)
def test_nothing_is_written_where_they_cannot_be_told_apart(tmp_path: Path, name: str) -> None:
    result = port_files(tmp_path, {"kernel.cu": NOT_APART[name]})
    assert result.exit_code == ExitCode.UNPORTED
    assert not result.changed
    assert not result.left
    assert not result.groups


def beside(directory: Path) -> Path:
    """A kernel with a case, and one that is refused."""
    path = directory / "kernel.cu"
    path.write_text(KERNELS["passed by reference"] + BITS + kernel("bad", "    int d[4];\n    bits(d, a, b);\n"))
    (directory / "case.yaml").write_text(CASE)
    return path


@pytest.mark.slow
def test_what_was_ported_verifies(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(main, ["verify", str(beside(tmp_path)), "--families", "integers"])
    assert outcome.exit_code == ExitCode.OK, outcome.output
    assert "same bits" in outcome.output


def test_what_was_left_has_no_verdict(tmp_path: Path) -> None:
    path = beside(tmp_path)
    plan, said = Ports(current()).of_file(path, entry="ns::bad")
    assert plan is None
    assert said[0].code is Code.PORT_INCOMPLETE
    plan, said = Ports(current()).of_file(path, entry="kernel")
    assert plan is not None
    assert any(d.code is Code.KERNEL_LEFT for d in said)


def test_commands_say_it(tmp_path: Path) -> None:
    path = beside(tmp_path)
    outcome = CliRunner().invoke(main, ["port", str(path), "-o", str(tmp_path / "out")])
    assert outcome.exit_code == ExitCode.UNPORTED, outcome.output
    assert "PT2013" in outcome.output
    assert (tmp_path / "out").is_dir()
    for command in ("port", "plan"):
        outcome = CliRunner().invoke(main, ["--format", "json", command, str(path)])
        assert outcome.exit_code == ExitCode.UNPORTED, outcome.output
        document = json.loads(outcome.output[outcome.output.index("{") :])
        assert [k["kernel"] for k in document["left"]] == ["bad"]
        assert "b1" in document["left"][0]["why"][0]


@pytest.mark.parametrize("name", ["a wrapper of its own", "helpers that both need", "a macro that both need"])
def test_another_port_leaves_it_alone(tmp_path: Path, name: str) -> None:
    files, _ = SETS[name]
    once = port_files(tmp_path / "in", files).files[str(tmp_path / "in" / "kernel.cu")].decode()
    again = port_files(tmp_path / "again", {"kernel.cu": once})
    assert again.exit_code == ExitCode.UNPORTED
    assert not again.changed


def test_strings_of_a_host_program(tmp_path: Path) -> None:
    files, _ = SETS["helpers that both need"]
    path = tmp_path / "host.cpp"
    path.write_text(f'const char* kSource = R"src({files["kernel.cu"]})src";\n')
    result = port_cuda_file(load_sources(path))
    assert result.exit_code == ExitCode.UNPORTED
    assert [k.kernel for k in result.left] == ["bad"]
    assert b"__trap();" in result.files[str(path)]


@pytest.mark.spread(2)
@pytest.mark.parametrize("mixed", [False, True])
def test_a_refused_file_does_not_hold_back_its_neighbours(tmp_path: Path, mixed: bool) -> None:
    (tmp_path / "ops.cuh").write_text("#pragma once\n" + HEAD + OPS)
    one = kernel("good", GOOD) + (kernel("odd", BAD) if mixed else "")
    (tmp_path / "one.cu").write_text('#include "ops.cuh"\n' + one)
    step = STEP.replace("odd_mma(d, a, b);", "arrive();")
    (tmp_path / "two.cu").write_text('#include "ops.cuh"\n' + step + kernel("bad", calling("step", BAD)))
    outcome = CliRunner().invoke(main, ["port", str(tmp_path), "-o", str(tmp_path / "out")])
    assert outcome.exit_code == ExitCode.UNPORTED, outcome.output
    assert "PT2013" in outcome.output
    written = {p.name: p for p in (tmp_path / "out").rglob("*.cu*")}
    for name, arch, instruction in (
        ("one.cu", "sm_100a", "tcgen05.mma"),
        ("two.cu", "sm_100a", "\ttrap;"),
        ("two.cu", "sm_90a", "wgmma.mma_async"),
    ):
        assert instruction in compile_ptx(CompileRequest(written[name], arch, lineinfo=False)).ptx
