# SPDX-License-Identifier: Apache-2.0
"""Warpgroups that run MMAs: read off random branches, against each thread's own way through them."""

from __future__ import annotations

import random

import pytest
from modelled import expanded, of_kernel

from porter.model.roles import WarpgroupRoles

THREADS = 512
HEAD = """
const int tid = threadIdx.x;
const int warp = __shfl_sync(0xffffffff, tid / 32, 0);
int group = threadIdx.x >> 7;
bool last = threadIdx.x / 128 == 3;
"""


class Branches:
    """Text and, for one thread and one outcome of what is known only at run time, whether it comes to the MMA."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def condition(self, depth: int) -> tuple[str, str]:
        """(C++, Python)."""
        if depth and self.random.random() < 0.4:
            left, right = self.condition(depth - 1), self.condition(depth - 1)
            sign, word = self.random.choice((("&&", "and"), ("||", "or")))
            return f"({left[0]} {sign} {right[0]})", f"({left[1]} {word} {right[1]})"
        if depth and self.random.random() < 0.2:
            inner = self.condition(depth - 1)
            return f"!({inner[0]})", f"(not {inner[1]})"
        kind = self.random.randrange(5)
        sign = self.random.choice(("==", "!=", "<", "<=", ">", ">="))
        if kind == 0:
            n = self.random.randrange(4)
            return self.random.choice((f"group {sign} {n}", f"threadIdx.x / 128 {sign} {n}")), f"t // 128 {sign} {n}"
        if kind == 1:
            n = self.random.randrange(17)
            return f"warp {sign} {n}", f"t // 32 {sign} {n}"
        if kind == 2:
            n = 16 * self.random.randrange(34)
            return f"tid {sign} {n}", f"t {sign} {n}"
        if kind == 3:
            return "last", "t // 128 == 3"
        return f"steps {sign} 3", "unknown"

    def block(self, depth: int) -> tuple[str, str]:
        """C++, and Python statements that return True at an MMA and False where a thread leaves."""
        kind = self.random.randrange(5) if depth else 0
        if kind == 0:
            return "MMA(acc);", "return True"
        c, py = self.condition(2)
        inner, body = self.block(depth - 1)
        indented = body.replace("\n", "\n    ")
        if kind == 1:
            return f"if ({c}) {{ out[0] = 1.f; return; }}\n{inner}", f"if {py}:\n    return False\n{body}"
        if kind == 4:
            return f"if ({c}) {{ out[0] = 1.f; }}\n{inner}", body
        if kind == 2:
            return f"if ({c}) {{ {inner} }}", f"if {py}:\n    {indented}\nreturn False"
        return f"if ({c}) {{ out[0] = 1.f; }} else {{ {inner} }}", f"if {py}:\n    return False\n{body}"


def runs(body: str, thread: int) -> bool:
    """Whether a thread may come to the MMA."""
    found: dict[str, object] = {}
    text = body.replace("\n", "\n    ")
    exec(f"def way(t, unknown):\n    {text}", found)
    return any(found["way"](thread, unknown) for unknown in (False, True))  # type: ignore[operator]


def roles(body: str) -> WarpgroupRoles:
    text = f"{HEAD}float acc[8] = {{0}};\n{expanded(body)}"
    return of_kernel(text, bounds=f"__launch_bounds__({THREADS})").kernel.roles


@pytest.mark.spread(2)
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_no_warpgroup_with_mmas_is_left_out(first: int) -> None:
    exact = seen = 0
    for seed in range(first, first + 50):
        text, python = Branches(seed).block(3)
        running = {t // 128 for t in range(THREADS) if runs(python, t)}
        whole = all(runs(python, t) for g in running for t in range(128 * g, 128 * g + 128))
        if not running or not whole or "unknown" in python:
            continue
        found = roles(text)
        assert found.value is not None
        covered = set(range(found.first, found.first + found.value))
        assert running <= covered, text
        seen += 1
        exact += running == covered
    assert seen >= 10
    assert exact >= seen / 2


def test_what_is_known_at_run_time_only_leaves_nobody_out() -> None:
    assert roles("if (steps > 3) return; MMA(acc);") == WarpgroupRoles(0, "4", 4)
    assert roles("if (steps > 3 || group == 0) return; MMA(acc);") == WarpgroupRoles(0, "4", 4)
    assert roles("if (group == 0 && steps > 3) return; MMA(acc);") == WarpgroupRoles(0, "4", 4)
    # a warp of which a part leaves
    assert roles("if (tid < 144) return; MMA(acc);") == WarpgroupRoles(0, "4", 4)
    assert roles("if (group == 0) return; MMA(acc);") == WarpgroupRoles(1, "3", 3)
