# SPDX-License-Identifier: Apache-2.0
"""Sources with very many of one thing: the work grows with their number, and beyond a limit they are refused."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from porter.diagnostics import Code, PorterError
from porter.lang.cuda import parse_cuda
from porter.lang.sources import load_sources
from porter.passes.port import port_sources

FENCE = r'asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");'
KERNEL = f"__global__ void k(int x, int y) {{ {FENCE}\n%s}}\n"
MMA = (
    r'{ asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;\n" '
    r': "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b)); }'
)
LINES = {
    "fences": KERNEL % "%s",
    "plain asm": KERNEL % "%s",
    "MMAs": "__global__ void k(float* d, uint64_t a, uint64_t b) {\n%s}\n",
    "branches of the preprocessor": f"%s{KERNEL % ''}",
    "branches of the preprocessor alone": "%s#ifndef LAST\n" + KERNEL % "" + "#endif\n",
    "macros": f"%s{KERNEL % ''}",
}
LINE = {
    "fences": FENCE,
    "plain asm": 'asm volatile("mov.u32 %0, {i};" : "=r"(x));',
    "MMAs": MMA,
    "branches of the preprocessor": "#ifdef A{i}\nint b{i};\n#else\nint c{i};\n#endif",
    "branches of the preprocessor alone": "#ifdef A{i}\nint b{i};\n#else\nint c{i};\n#endif",
    "macros": "#define NAME{i}(x) do { (x) += {i}; } while (0)",
}


def work(kind: str, count: int, folder: Path) -> int:
    """Calls of Python functions, generators' steps among them, that the port of so many lines takes."""
    lines = "".join(LINE[kind].replace("{i}", str(i)) + "\n" for i in range(count))
    path = folder / f"k{count}.cu"
    path.write_text(LINES[kind].replace("%s", lines, 1))
    sources, calls = load_sources(path), 0

    def told(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(told)
    try:
        port_sources(sources)
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("kind", LINE)
def test_work_grows_with_the_number_of_lines(kind: str, tmp_path: Path) -> None:
    work(kind, 2, tmp_path)
    few, more, most = (work(kind, n, tmp_path) for n in (30, 90, 150))
    assert most - more < 1.2 * (more - few)


@pytest.mark.parametrize(
    ("line", "count", "what"),
    [
        ("#define NAME%d 1\n", 60_000, "60000 #define lines; at most 50000"),
        ("#ifdef A%d\n#endif\n", 30_000, "30000 #if lines; at most 20000"),
        ("void f%d() { asm volatile (\"nop;\"); }\n", 30_000, "30000 asm statements; at most 20000"),
        ("int f%d(int a);\n", 90_000, "90000 semicolons; at most 80000"),
        ("int f%d(int a) { return a; }\n", 30_000, "30000 bodies behind parentheses; at most 20000"),
        ("int f%d(int a)\n{\n    return a;\n}\n", 30_000, "30000 bodies behind parentheses; at most 20000"),
        ("if (x == %d) y(); else\n", 2_000, "branches nested 2001 deep"),
        ("if (x == %d) { y(); } else\n", 2_000, "branches nested 2001 deep"),
        ("if (x == %d)\n", 2_000, "branches nested 2000 deep"),
    ],
)  # fmt: skip
def test_more_than_is_read_is_refused_with_its_number(line: str, count: int, what: str) -> None:
    with pytest.raises(PorterError) as caught:
        parse_cuda("k.cu", "".join(line % i for i in range(count)).encode())
    assert caught.value.diagnostic.code is Code.TOO_LARGE
    assert what in str(caught.value)


@pytest.mark.parametrize(
    "line",
    ["if (x == %d) y();\n", "if (x == %d) { y(); }\n", "if (x == %d) { y(); } else { z(); }\n", "// if asm(%d) for\n"],
)
def test_branches_beside_each_other_are_not_deep(line: str) -> None:
    parse_cuda("k.cu", b"void f(int x) {\n" + "".join(line % i for i in range(3_000)).encode() + b"}\n")
