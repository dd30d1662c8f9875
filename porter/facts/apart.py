# SPDX-License-Identifier: Apache-2.0
"""What a launch may change of how threads or MMAs are apart: executions at some sizes say nothing of it at others.

Each register is followed by what its value goes by: the thread, the launch (parameters, the grid, a block's index), or
both in a way that how far apart two threads' values are goes by the launch. A sum keeps them apart by a constant; a
product of both does not, nor does a comparison. What a branch chooses goes by its condition, too, where its ways meet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Flag, auto
from functools import cached_property

from porter.facts.flow import Flow
from porter.ptx import ast
from porter.ptx.smem_desc import START_MASK, UNIT_BITS


class By(Flag):
    """What a value goes by. `TURNS`: how many turns loops have, which goes by the launch; `MIXED`: both together."""

    NOTHING = 0
    THREAD = auto()
    LAUNCH = auto()
    TURNS = auto()
    MIXED = auto()


_OF_THREAD = ("tid.", "laneid", "warpid", "lanemask")
_OF_LAUNCH = ("ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_ctarank")
_OPERANDS = ("a", "b", "scale_d")
_SUMS = ("add", "sub", "mov", "cvt", "cvta", "neg", "shfl", "elect", "mapa")
_SCALES = ("mul", "shl", "mad", "bfi", "prmt")
_LOADS = ("ld", "ldmatrix", "atom", "call")
_TOGETHER = ("wgmma", "setmaxnreg")
"""What the warps of a warpgroup come to together."""


@dataclass(eq=False)
class Apart:
    """Asks about one kernel for Hopper."""

    flow: Flow
    _by: dict[str, By] = field(default_factory=dict)

    def found(self) -> Iterator[tuple[int, str]]:
        """Instructions of which a launch tells what two warpgroups, or two tiles, have apart, with what that is."""
        by = self._followed
        for at, ins in enumerate(self.flow.code.code):
            decoded = self.flow.decoded[at] if ins.parts[:2] == ("wgmma", "mma_async") else None
            for name in _OPERANDS if decoded is not None else ():
                of = self._of(at, decoded[name]) if decoded is not None and name in decoded.rows else By.NOTHING
                if By.MIXED in of:
                    yield at, f"which {name} an MMA takes"
        for at, meet in self._branches:
            if By.MIXED in by.get(self._guard(at) or "", By.NOTHING):
                inside = self.flow.between(at, meet)
                if any(self.flow.code.code[i].parts[0] in _TOGETHER for i in inside):
                    yield at, "which MMAs a warpgroup comes to"

    @cached_property
    def _branches(self) -> list[tuple[int, int]]:
        """Branches under a predicate, each with where its ways meet."""
        code, end = self.flow.code, len(self.flow.decoded)
        ends = [at for at, ins in enumerate(code.code) if ins.guard is not None and ins.parts[0] in ("ret", "exit")]
        several = [at for at, after in enumerate(code.successors) if len(after) > 1]
        return [(at, self.flow.meets.get(at, end)) for at in (*several, *ends) if at not in self.flow.lost]

    @cached_property
    def _followed(self) -> dict[str, By]:
        chosen = list(self._chosen())
        grows = True
        while grows:
            grows = False
            for at in range(len(self.flow.decoded)):
                value = self._value(at) if self.flow.writes[at] else By.NOTHING
                for name in self.flow.writes[at]:
                    grows |= self._add(name, value)
            for guard, name, is_loop in chosen:
                grows |= self._add(name, _chosen_by(self._by.get(guard, By.NOTHING), self._by.get(name), is_loop))
        return self._by

    def _add(self, name: str, value: By) -> bool:
        known = self._by.get(name, By.NOTHING)
        self._by[name] = known | value
        return self._by[name] != known

    def _chosen(self) -> Iterator[tuple[str, str, bool]]:
        """Registers that are something else behind a branch by the way that was taken, with its predicate, and whether
        a loop ends there."""
        for at, meet in self._branches:
            guard = self._guard(at)
            if guard is None or meet >= len(self.flow.live):
                continue
            inside = self.flow.between(at, meet)
            written = frozenset[str]().union(*(self.flow.writes[i] for i in inside))
            yield from ((guard, name, at in inside) for name in written & self.flow.live[meet])

    def _guard(self, at: int) -> str | None:
        guard = self.flow.code.code[at].guard
        return None if guard is None else self.flow.code.register(at, guard.operand)

    def _of(self, at: int, operand: ast.Operand) -> By:
        if isinstance(operand, ast.Mem):
            return self._of(at, operand.base)
        name = self.flow.code.register(at, operand)
        return self._by.get(name, By.NOTHING) if name is not None else By.NOTHING

    def _value(self, at: int) -> By:
        """What an instruction's result goes by."""
        ins = self.flow.code.code[at]
        head = ins.parts[0]
        if ins.parts[:2] == ("ld", "param"):
            return By.LAUNCH
        found = By.NOTHING
        for name in self.flow.uses[at]:
            found |= self._by.get(name, By.NOTHING)
        special = [o.name for o in ins.operands if isinstance(o, ast.SpecialReg)]
        if any(n.startswith(_OF_THREAD) for n in special) or head == "elect":
            found |= By.THREAD
        if any(n.startswith(_OF_LAUNCH) for n in special):
            found |= By.LAUNCH
        if head in _LOADS or self.flow.decoded[at] is None:
            return found | By.LAUNCH | (By.MIXED if By.THREAD in found else By.NOTHING)
        if head == "mbarrier" or head == "wgmma":
            return By.NOTHING
        own = found & By.THREAD and found & (By.LAUNCH | By.TURNS)
        return found | By.MIXED if own and not self._keeps(at, ins) else found

    def _keeps(self, at: int, ins: ast.Instruction) -> bool:
        """Whether an instruction keeps a sum of what goes by the thread and by the launch as one."""
        head, numbers = ins.parts[0], [o.value for o in ins.operands if isinstance(o, ast.Imm)]
        if head in _SUMS:
            return ins.guard is None
        if head == "or":
            # of bits that are zero in one of both, as of a descriptor's fields
            return True
        if head in _SCALES:
            factors = [self._of(at, o) for o in ins.operands[1 : 2 if head == "shl" else 3]]
            return sum(bool(f) for f in factors) < 2
        if head == "and":
            return any(isinstance(n, int) and n.bit_length() >= START_MASK.bit_length() for n in numbers)
        return head == "shr" and any(n <= UNIT_BITS for n in numbers)


def _chosen_by(guard: By, value: By | None, is_loop: bool) -> By:
    """What a register goes by that a branch decides about, besides."""
    value = value or By.NOTHING
    launch = By.TURNS if is_loop else By.LAUNCH
    found = guard & (By.THREAD | By.MIXED) | (launch if guard & (By.LAUNCH | By.TURNS) else By.NOTHING)
    mixed = (By.THREAD in found and value & (By.LAUNCH | By.TURNS)) or (launch in found and By.THREAD in value)
    return found | By.MIXED if mixed else found
