# SPDX-License-Identifier: Apache-2.0
"""A thread of its own issues the MMAs only if it has all that changes what these are made of, and if nobody misses what
the loop of MMAs changes besides: in whatever way something is written to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import native_kernels
import pytest
from _pytest.mark.structures import ParameterSet
from native_kernels import BATCH, missing

STEPS = ("release", "mma-thread")
AT = "int at = 0; "
OF_AT, OF_STATE = (BATCH.replace(", b)", f", b + {what})") for what in ("at", "s.at"))
STATE = "struct State {{ int at = 0; __device__ {} }};\n"
OF_TILES = BATCH.replace(", b)", ", b + shared(p))")
POINTER = "const char* p = tiles[k % 2];"
METHOD = STATE.format("void next() { at += 8; }")
AHEAD = {
    "a pointer": ("", AT + "int* p = &at; *p += 8;"),
    "a pointer to a pointer": ("", AT + "int* p = &at; int** pp = &p; **pp += 8;"),
    "a reference": ("", AT + "int& p = at; p += 8;"),
    "a reference in parentheses": ("", AT + "int& p(at); p += 8;"),
    "a lambda with a capture of its own": ("", AT + "auto next = [&m = at] { m += 8; }; next();"),
    "a macro": ("#define NEXT at += 8\n", AT + "NEXT;"),
    "a macro with an argument": ("#define NEXT(n) at += n\n", AT + "NEXT(8);"),
    "a cast": ("", AT + "reinterpret_cast<unsigned&>(at) += 8;"),
    "a constructor": ("struct Next { __device__ Next(int& at) { at += 8; } };\n", AT + "Next n(at);"),
    "an object without a name": ("struct Next { __device__ Next(int& at) { at += 8; } };\n", AT + "Next{at};"),
    "a member that is a reference": (
        "struct Next { int& at; __device__ void go() { at += 8; } };\n",
        AT + "Next n{at}; n.go();",
    ),
}
OF_OBJECTS = {
    "a call operator": (STATE.format("void operator()() { at += 8; }"), "State s; s();"),
    "an operator": (STATE.format("State& operator<<(int n) { at += n; return *this; }"), "State s; s << 8;"),
    "a method of a pointer": (METHOD, "State s; State* q = &s; q->next();"),
    "a method of a reference": (METHOD, "State s; State& q = s; q.next();"),
    "names for members": ("struct State { int at, n; };\n", "State s{0, 0}; auto& [x, y] = s; x += 8;"),
}
NOT_THERE = {
    **{how: {"HEAD": head, "AHEAD": ahead, "BATCH": OF_AT} for how, (head, ahead) in AHEAD.items()},
    **{how: {"HEAD": head, "AHEAD": ahead, "BATCH": OF_STATE} for how, (head, ahead) in OF_OBJECTS.items()},
}


QUICK = (
    "a pointer",
    "a reference",
    "a macro",
    "a constructor",
    "a call operator",
    "a method of a reference",
    "a pointer of each",
    "a method",
    "an instruction",
)


def each(names: Iterable[str]) -> list[ParameterSet]:
    """The ways by name; those that are much like others take their time in `make test-all`."""
    return [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in names]


@pytest.mark.parametrize("how", each(NOT_THERE))
def test_what_mmas_are_made_of_is_changed_ahead_of_them_by(tmp_path: Path, how: str) -> None:
    result = native_kernels.ported(tmp_path, STEPS, **NOT_THERE[how])
    assert "mma-thread" not in result.plans[0].native
    assert any("writes to" in what for what in missing(result)), missing(result)


BEHIND = {
    "a reference": ("", AT + "int& p = at;", "p += 8;", "out[at] = 1;"),
    "a call operator": (STATE.format("void operator()() { at += 8; }"), AT + "State s;", "s();", "out[s.at] = 1;"),
    "a macro": ("#define NEXT at += 8\n", AT, "NEXT;", "out[at] = 1;"),
    "a macro, of what MMAs do not read": ("#define COUNT ++n\n", AT + "int n = 0;", "COUNT;", "out[n] = 1;"),
    "its name in a macro": ("#define PLACE at\n", AT, "at += 8;", "out[PLACE] = 1;"),
    "a reference to it": ("", AT + "const int& p = at;", "at += 8;", "out[p] = 1;"),
}


@pytest.mark.parametrize("how", each(BEHIND))
def test_consumers_would_miss_what_the_loop_changes_by(tmp_path: Path, how: str) -> None:
    head, ahead, change, after = BEHIND[how]
    parts = {"HEAD": head, "AHEAD": ahead, "BATCH": f"{OF_AT} {change}", "AFTER": after}
    result = native_kernels.ported(tmp_path, STEPS, **parts)
    assert "mma-thread" not in result.plans[0].native
    assert any("consumers do without" in what for what in missing(result)), missing(result)


NOTES = "struct Notes { float* to; __device__ void note(int k) { to[k] = 1; } };\n"
ALL_WRITE = {
    "a pointer of each": ("", "float* mine = out + threadIdx.x;", "*mine = 1;"),
    "a pointer that moves": ("", "float* mine = out;", "*mine++ = 1;"),
    "a pointer of all threads that moves": ("", "__shared__ float* mine;", "mine += 1;"),
    "a reference to a pointer of all threads": ("", "__shared__ float* mine; float*& p = mine;", "p += 1;"),
    "a pointer that stays": ("", "static float* mine;", "mine += 1;"),
    "a pointer to a pointer of all threads": ("", "__shared__ float* mine; float** p = &mine;", "*p += 1;"),
    "a helper with a pointer that moves": (
        "__device__ void note(float* to) { to += 8; *to = 1; }\n",
        "",
        "note(out);",
    ),
    "an atomic": ("__device__ int turns;\n", "", "atomicAdd(&turns, 1);"),
    "an element": ("__device__ int last[4];\n", "", "last[k % 4] = k;"),
    "a helper": ("__device__ int last; __device__ void note(int k) { last = k; }\n", "", "note(k);"),
    "a method": (
        "struct Notes { float* to; __device__ void note(int k) { to[k] = 1; } };\n",
        "Notes n{out};",
        "n.note(k);",
    ),
    "a lambda": ("", "auto note = [&](int k) { out[k] = 1; };", "note(k);"),
    "a macro": ("#define NOTE(k) out[k] = 1\n", "", "NOTE(k);"),
    "a line of text": ("#include <cstdio>\n", "", 'if (k == 0) printf("x");'),
    "an instruction": ("", "", 'asm volatile("red.global.add.u32 [%0], 1;" ::"l"(out) : "memory");'),
}


@pytest.mark.parametrize("how", each(ALL_WRITE))
def test_all_consumers_write_to_memory_among_their_mmas_by(tmp_path: Path, how: str) -> None:
    head, ahead, write = ALL_WRITE[how]
    result = native_kernels.ported(tmp_path, STEPS, HEAD=head, AHEAD=ahead, BATCH=f"{BATCH} {write}")
    assert "mma-thread" not in result.plans[0].native
    assert missing(result)


KEPT = {
    "a state that is advanced": (METHOD, "State s;", OF_STATE + " s.next();"),
    "a helper": ("__device__ void next(int& n) { n += 8; }\n", AT, OF_AT + " next(at);"),
    "a helper with a pointer": ("__device__ void next(int* n) { *n += 8; }\n", AT, OF_AT + " next(&at);"),
    "a helper with an array": ("__device__ void next(int* n) { n[0] += 8; }\n", "int all[1] = {0};",
                               BATCH.replace(", b)", ", b + all[0])") + " next(all);"),
    "a lambda": ("", AT + "auto next = [&] { at += 8; };", OF_AT + " next();"),
    "a pointer that moves": ("", "", f"{POINTER} {OF_TILES} p += 8;"),
    "a pointer that moves in a loop": ("", "", f"{POINTER} for (int i = 0; i < 2; ++i) ++p; {OF_TILES}"),
    "a helper that moves its own": ("__device__ const char* past(const char* p) { p += 8; return p; }\n", "",
                                    BATCH.replace(", b)", ", b + shared(past(tiles[k % 2])))")),
}  # fmt: skip


@pytest.mark.parametrize("how", KEPT)
def test_the_thread_changes_variables_of_its_own_by(tmp_path: Path, how: str) -> None:
    head, ahead, batch = KEPT[how]
    result = native_kernels.ported(tmp_path, STEPS, HEAD=head, AHEAD=ahead, BATCH=batch)
    assert missing(result) == []
    assert "mma-thread" in result.plans[0].native
