# SPDX-License-Identifier: Apache-2.0
"""A refused kernel does not hold back the others: it keeps its text for sm_90a and traps elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import LOOP, STORE, SYNC, compiles, port_files, wrapper

from porter.diagnostics import ExitCode
from porter.passes.port import PortResult

HEAD = "#include <cstdint>\n"
SIGNATURE = "__global__ void __launch_bounds__(128) {}(float* out, uint64_t a, uint64_t b, int steps) {{\n"
GUARD = "#if defined(__CUDA_ARCH_FEAT_SM90_ALL)\n"


def kernel(name: str, body: str) -> str:
    return "\n" + SIGNATURE.format(name) + body + "}\n"


GOOD = "    float acc[8] = {0};\n" + LOOP + STORE
# read while in flight
BAD = "    float acc[8] = {0};\n" + LOOP.replace("wait<0>", "wait<1>") + STORE
OPS = SYNC + wrapper(16)
# refused wherever it is called
ODD = wrapper(16, name="odd_mma").replace('"wgmma.mma', '"@p wgmma.mma')
ODD_BODY = GOOD.replace("mma(acc", "odd_mma(acc")
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
NO_WRITE = '__device__ void odd() { asm volatile("@p wgmma.fence.sync.aligned;" ::: "memory"); }\n'

SETS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "helpers that both need": ({"kernel.cu": HEAD + OPS + kernel("good", GOOD) + kernel("bad", BAD)}, ("bad",)),
    "the refused one first": ({"kernel.cu": HEAD + OPS + kernel("bad", BAD) + kernel("good", GOOD)}, ("bad",)),
    "a wrapper of its own": (
        {"kernel.cu": HEAD + OPS + ODD + kernel("good", GOOD) + kernel("bad", ODD_BODY)},
        ("bad",),
    ),
    "a function between": (
        {"kernel.cu": HEAD + OPS + ODD + STEP + kernel("good", GOOD) + kernel("bad", GOOD.replace("mma(acc", "step(acc"))},
        ("bad",),
    ),
    "too large": (
        {
            "kernel.cu": HEAD
            + OPS
            + kernel("good", GOOD)
            + kernel("bad", "    float acc[128][8] = {0};\n    mma(acc[0], a, b); commit(); wait<0>();\n    out[0] = acc[0][0];\n")
        },
        ("bad",),
    ),
    "a construct of a library": (
        {"kernel.cu": HEAD + OPS + kernel("good", GOOD) + kernel("bad", "    cute::warpgroup_arrive();\n")},
        ("bad",),
    ),
    "two of three": (
        {"kernel.cu": HEAD + OPS + ODD + kernel("bad", BAD) + kernel("good", GOOD) + kernel("worse", ODD_BODY)},
        ("bad", "worse"),
    ),
    "headers": (
        {
            "kernel.cu": '#include "good.cuh"\n#include "bad.cuh"\n' + LAUNCH.format("bad") + LAUNCH.format("good").replace("launch", "go"),
            "ops.cuh": "#pragma once\n" + HEAD + OPS,
            "good.cuh": '#pragma once\n#include "ops.cuh"\n' + kernel("good", GOOD),
            "bad.cuh": '#pragma once\n#include "ops.cuh"\n' + kernel("bad", BAD),
        },
        ("bad",),
    ),
    "templates and namespaces": (
        {
            "kernel.cu": HEAD
            + "namespace ops {\n" + OPS + "}\nnamespace a {\nusing namespace ops;\ntemplate <int N>" + kernel("bad", BAD)
            + "template __global__ void bad<1>(float*, uint64_t, uint64_t, int);\n" + kernel("good", GOOD) + "}\n"
        },
        ("bad",),
    ),
    "a method that both need": (
        {
            "kernel.cu": HEAD + SYNC + METHODS.format(ASM)
            + kernel("good", GOOD.replace("mma(acc", "Ops::mma(acc")) + kernel("bad", BAD.replace("mma(acc", "Ops::mma(acc"))
        },
        ("bad",),
    ),
    "a macro that both need": (
        {
            "kernel.cu": HEAD + SYNC + MACRO.replace("NAME", "MMA")
            + kernel("good", GOOD.replace("mma(acc", "MMA(acc")) + kernel("bad", BAD.replace("mma(acc", "MMA(acc"))
        },
        ("bad",),
    ),
    "a macro of its own": (
        {
            "kernel.cu": HEAD + OPS + MACRO.replace("NAME", "ODD").replace('"wgmma.mma', '"@p wgmma.mma')
            + kernel("good", GOOD) + kernel("bad", GOOD.replace("mma(acc", "ODD(acc"))
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
            "kernel.cu": HEAD + "__device__ void arrive();\n__device__ void mma(float (&d)[8], uint64_t a, uint64_t b);\n"
            + OPS.replace("__forceinline__ ", "") + kernel("good", GOOD) + kernel("bad", BAD)
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
