# SPDX-License-Identifier: Apache-2.0
"""Kinds of instructions, for what a stage of threads consists of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from porter.ptx import ast
from porter.ptx.arch import MUFU

_FLOATS = frozenset(("f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64", "tf32"))
_CHOICES = frozenset(("setp", "selp", "set", "slct", "bra", "brx", "call", "ret", "exit", "vote", "elect"))
_WAITS = frozenset(("mbarrier", "bar", "barrier", "fence", "membar", "nanosleep"))
_MEMORY = frozenset(("ld", "ldu", "st", "red", "atom", "cp", "ldmatrix", "stmatrix", "prefetch"))
_PAIRS = {"b64": 2, "b128": 4}
"""Moves of so many 32-bit registers at most."""
_TENSOR_MEMORY = ("ld", "st", "wait", "cp", "shift")


def is_issued(ins: ast.Instruction) -> bool:
    """Whether an instruction of PTX is one of the chip. `mov.b64 d, {a, b}` and `mov.b64 {a, b}, d` say that two
    registers are a pair: ptxas gives them places beside each other, and SASS has no such instruction
    (`scripts/sass_attention.py` counts 4 moves in a loop of 141 of these)."""
    if ins.parts[0] != "mov":
        return True
    parts = [len(o.items) for o in ins.operands if isinstance(o, ast.Vec)]
    return not parts or max(parts) > _PAIRS.get(ins.parts[-1], 0)


def kind_of(ins: ast.Instruction) -> str:
    """What a profile calls an instruction."""
    first, kinds = ins.parts[0], _FLOATS & set(ins.parts)
    if first == "tcgen05":
        return "Tensor Memory" if ins.parts[1] in _TENSOR_MEMORY else "MMAs, commits, fences"
    if first == "wgmma":
        return "MMAs, commits, fences"
    if first in MUFU:
        return "MUFU"
    if first in _CHOICES or ins.parts[-1] == "pred":
        return "choices and branches"
    if first in _WAITS:
        return "waiting"
    if first in _MEMORY:
        return "memory"
    if first == "shfl":
        return "exchange in a warp"
    if first == "cvt":
        return "conversions"
    if first == "mov":
        return "copies"
    return f"{first} of floats" if kinds else "integers and addresses"


def counted(instructions: Iterable[ast.Instruction]) -> tuple[tuple[str, int], ...]:
    """How many there are of each kind, the most first."""
    found = Counter(kind_of(ins) for ins in instructions)
    return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0])))
