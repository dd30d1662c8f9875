# SPDX-License-Identifier: Apache-2.0
"""wgmma that macros put together is ported or refused by name, never left without a word."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import GEMM, compiles, port_files

from porter.diagnostics import ExitCode

STR = "#define STR_(x) #x\n#define STR(x) STR_(x)\n#define CAT(a, b) a##b\n"
STATEMENTS = {
    'asm volatile("wgmma.fence.sync.aligned;"': 'asm volatile({} ".fence.sync.aligned;"',
    'asm volatile("wgmma.commit_group.sync.aligned;"': 'asm volatile({} ".commit_group.sync.aligned;"',
    'asm volatile("wgmma.wait_group.sync.aligned %0;"': 'asm volatile({} ".wait_group.sync.aligned %0;"',
    'asm volatile("wgmma.mma_async.': 'asm volatile({} ".mma_async.',
}


def every(word: str, head: str = "", text: str = GEMM) -> str:
    """The kernel with `word` in place of `"wgmma"` in all of its statements."""
    for old, new in STATEMENTS.items():
        assert old in text
        text = text.replace(old, new.format(word))
    return text.replace("#include <cstdint>\n", "#include <cstdint>\n" + head)


def fence(statement: str, head: str) -> str:
    old = 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory");'
    return GEMM.replace(old, statement).replace("#include <cstdint>\n", "#include <cstdint>\n" + head)


PORTED = {
    "literals side by side": every('"wg" "mma"'),
    "split at the dot": every('"wgmma"'),
    "split and commented": every('"w" /* a */ "gmma"'),
    "a macro for the word": every("WG", '#define WG "wgmma"\n'),
    "a macro for a part": every('W "mma"', '#define W "wg"\n'),
    "macros of macros": every("OP", '#define W "wg"\n#define OP W "mma"\n'),
    "an alias": every("OP", '#define W "wgmma"\n#define OP W\n'),
    "an escape": every('"wg\\x6dma"'),
    "in a macro's statement": fence(
        "FENCE();", '#define FENCE() asm volatile("wg" "mma.fence.sync.aligned;" ::: "memory")\n'
    ),
}
REFUSED = {
    "stringized": every("STR(wgmma)", STR),
    "pasted and stringized": every("STR(CAT(wg, mma))", STR),
    "a macro of it": every("STR(WG)", STR + "#define WG CAT(wg, mma)\n"),
    "variadic": every("S(wg, mma)", "#define S_(a, ...) #a #__VA_ARGS__\n#define S(...) S_(__VA_ARGS__)\n"),
    "picked by a macro": every("PICK(wgmma)", STR + "#define PICK STR\n"),
    "one of two definitions": every("W", '#ifdef X\n#define W "bar"\n#else\n#define W "wgmma"\n#endif\n'),
    "opcode as parameter": fence(
        "OP(wgmma.fence);", '#define OP(op) asm volatile(#op ".sync.aligned;" ::: "memory")\n'
    ),
    "half of the opcode as parameter": fence(
        "OP(mma, fence);", '#define OP(a, b) asm volatile("wg" #a "." #b ".sync.aligned;" ::: "memory")\n'
    ),
    "a string as parameter": fence(
        "OP(W);", '#define W "wgmma.fence"\n#define OP(s) asm volatile(s ".sync.aligned;")\n'
    ),
    "asm as a macro": fence('ASM("wgmma.fence.sync.aligned;" ::: "memory");', "#define ASM asm volatile\n"),
    "asm as a parameter": fence(
        'RUN(asm, "wgmma.fence.sync.aligned;");', '#define RUN(a, s) a volatile(s ::: "memory")\n'
    ),
    "macros in macros": fence(
        "ALL();", STR + "#define RUN(k) asm volatile(STR(CAT(wg, k).fence.sync.aligned;))\n#define ALL() RUN(mma)\n"
    ),
}


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", PORTED)
def test_what_literals_and_object_macros_spell_is_ported(tmp_path: Path, name: str) -> None:
    result = port_files(tmp_path / "in", {"kernel.cu": PORTED[name]})
    assert result.exit_code == ExitCode.OK, [str(d) for d in result.diagnostics]
    assert "wgmma" not in compiles(result, tmp_path / "in", tmp_path / "out")


@pytest.mark.parametrize("name", REFUSED)
def test_what_macros_make_is_refused_by_name(tmp_path: Path, name: str) -> None:
    result = port_files(tmp_path / "in", {"kernel.cu": REFUSED[name]})
    found = [str(d) for d in result.diagnostics]
    assert result.exit_code == ExitCode.UNPORTED, found
    assert not result.changed
    assert any(("PT2006" in d or "PT1004" in d) and "kernel.cu:" in d for d in found), found


@pytest.mark.parametrize("name", REFUSED)
def test_alone_it_is_not_nothing(tmp_path: Path, name: str) -> None:
    """The fence alone, without anything else that looks like Hopper code."""
    text = REFUSED[name]
    head = text[: text.index("__device__ void arrive")]
    line = next(line for line in text.splitlines() if line.startswith("__device__ void arrive"))
    result = port_files(tmp_path / "in", {"kernel.cu": head + line + "\n"})
    assert result.exit_code == ExitCode.UNPORTED
    assert any(d.code.id in ("PT2006", "PT1004") for d in result.diagnostics)


def test_across_headers(tmp_path: Path) -> None:
    files = {
        "strings.cuh": "#pragma once\n" + STR,
        "kernel.cu": '#include "strings.cuh"\n__device__ void f() { asm volatile(STR(CAT(wg, mma)) ".fence;"); }\n',
    }
    result = port_files(tmp_path, files)
    assert result.exit_code == ExitCode.UNPORTED
    assert "kernel.cu:2:" in str(result.diagnostics[0])
    assert "`STR`" in str(result.diagnostics[0])


@pytest.mark.parametrize(
    "text",
    [
        STR + '__device__ void f() { asm volatile(STR(bar) ".sync 0;"); }\n',
        '__device__ void f() { asm volatile("mma" ".sync" ";"); }\n',
        '#define LOOP LOOP LOOP(LOOP)\n__device__ void f() { asm volatile("bar.sync 0;"); int w = LOOP; }\n',
        "#define A(x) B(x) B(x)\n#define B(x) C(x) C(x)\n#define C(x) D(x) D(x)\n#define D(x) A(x)A(x)\n"
        '__device__ void f() { A(A(A(A(w)))); asm volatile("bar.sync 0;"); }\n',
        '#define CAT(a, b) a##b\n__device__ void f() { int wgmma = CAT(, 1); asm volatile("bar.sync 0;"); }\n',
    ],
)
def test_other_macros_are_left_alone(tmp_path: Path, text: str) -> None:
    result = port_files(tmp_path, {"kernel.cu": text})
    assert result.exit_code == ExitCode.OK, [str(d) for d in result.diagnostics]
    assert not result.diagnostics
