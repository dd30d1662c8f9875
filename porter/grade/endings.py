# SPDX-License-Identifier: Apache-2.0
"""Kernels whose blocks may end while others of their cluster still arrive on their mbarriers or access their shared
memory, as their PTX says it.

A remote access is behind nothing if a thread can end after it without having arrived at a cluster barrier, and waited
there. A drain counts, too: whoever is given stages back by other blocks waits for that once more after its last load.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from porter.facts.code import Code
from porter.facts.warps import Warps
from porter.ptx import ast
from porter.ptx.arch import Limits
from porter.ptx.parser import PtxSyntaxError, parse_module

_MAY = re.compile(
    r"\bmapa\b|multicast::cluster|\b(?:st|red)\.async\b|\b(?:mbarrier|st|ld|atom|red)\.[\w.:]*shared::cluster"
)
_MEMORY = ("ld", "st", "atom", "red", "mbarrier", "cp", "multimem")
_REMOTE = ("st", "red", "ld", "atom", "mbarrier")
_CLUSTER = "shared::cluster"
_DEEPEST = 24
_Address = tuple[str, int]
"""A symbol, or a register whose value is not followed, and what is added to it as a number."""


@dataclass(frozen=True)
class Ending:
    """A kernel, whose own text is in `file`: `what` is its first remote access that nothing keeps its blocks alive for,
    and where that comes from; empty if there is none. `obstacle`: why a cluster barrier on every way out would not be
    safe; empty if it would be."""

    entry: str
    file: str
    what: str
    loc: ast.SourceLoc | None
    obstacle: str = ""


@lru_cache(maxsize=16)
def readings(ptx: str) -> tuple[Ending, ...]:
    """The kernels of a module that use the tensor core; none of a text that is not PTX."""
    try:
        module = parse_module(ptx)
    except PtxSyntaxError:
        return ()
    codes = (Code(module, entry) for entry in module.entries())
    return tuple(_Reader(code).read() for code in codes if code.multiplies)


def endings(ptx: str) -> list[Ending]:
    """Those that may end too early."""
    return [found for found in readings(ptx) if found.what] if _MAY.search(ptx) else []


class _Reader:
    def __init__(self, code: Code) -> None:
        self.code = code
        self.rows = code.code

    def read(self) -> Ending:
        events = [at for at in range(len(self.rows)) if self._is_remote(at)]
        unarrived, unwaited = (self._ends_without(word) for word in ("arrive", "wait"))
        bare = [at for at in events if any(t in unarrived or t in unwaited for t in self._after(at))]
        first = self.rows[bare[0]] if bare and not self._is_drained(bare) else None
        own = next((list(i.loc.outwards())[-1].file for i in self.rows if i.loc is not None), "")
        what, loc = (first.opcode, first.loc) if first is not None else ("", None)
        return Ending(self.code.entry.name, own, what, loc, self._obstacle())

    # Remote accesses ----------------------------------------------------------------------------------

    def _is_remote(self, at: int) -> bool:
        ins = self.rows[at]
        if "multicast::cluster" in ins.parts:
            return True
        if ins.parts[0] not in _MEMORY:
            return False
        places = (o for o in ins.operands if isinstance(o, ast.Mem))
        if any(name in self._mapped for o in places for name in self._registers(at, o)):
            return True
        return ins.parts[0] in _REMOTE and _CLUSTER in ins.parts and not self._is_wait(ins)

    @cached_property
    def _mapped(self) -> frozenset[str]:
        """Registers that an address of another block of the cluster may be in."""
        found: set[str] = set()
        kept = False
        while True:
            before = len(found), kept
            for at, ins in enumerate(self.rows):
                taints = ins.parts[0] == "mapa" or any(
                    name in found for o in ins.operands[1:] for name in self._registers(at, o)
                )
                if ins.parts[0] == "st":
                    # what is spilled, or handed to a function, is loaded again
                    kept = kept or (taints and bool({"local", "param"} & set(ins.parts)))
                elif ins.parts[0] == "ld":
                    if kept and {"local", "param"} & set(ins.parts):
                        found.update(self.code.writes(at))
                elif taints and ins.parts[0] not in ("mbarrier", "atom", "setp"):
                    found.update(self.code.writes(at))
            if (len(found), kept) == before:
                return frozenset(found)

    def _registers(self, at: int, operand: ast.Operand) -> Iterator[str]:
        inner = operand.base if isinstance(operand, ast.Mem) else operand
        if isinstance(inner, ast.Vec):
            for item in inner.items:
                yield from self._registers(at, item)
        elif (name := self.code.register(at, inner)) is not None:
            yield name

    @staticmethod
    def _is_wait(ins: ast.Instruction) -> bool:
        return ins.parts[0] == "mbarrier" and ins.parts[1] in ("try_wait", "test_wait", "init", "inval")

    # Ways to the end ----------------------------------------------------------------------------------

    def _after(self, at: int) -> tuple[int, ...]:
        return self.code.successors[at] or (len(self.rows),)

    def _ends_without(self, word: str) -> frozenset[int]:
        """From where a thread can end without an instruction `barrier.cluster.WORD`; the end is one of them."""
        return self._backwards(lambda at: _is_cluster(self.rows[at], word))

    def _backwards(self, stops: Callable[[int], bool]) -> frozenset[int]:
        """From where a thread can end without an instruction that `stops`."""
        found = {len(self.rows)}
        todo = []
        for at, ins in enumerate(self.rows):
            ends = (self.code.ends(at) and ins.parts[0] != "trap") or at + 1 == len(self.rows)
            if ends and not stops(at):
                found.add(at)
                todo.append(at)
        while todo:
            for before in self.code.predecessors[todo.pop()]:
                if before not in found and not stops(before):
                    found.add(before)
                    todo.append(before)
        return frozenset(found)

    # Drains -------------------------------------------------------------------------------------------

    def _is_drained(self, bare: list[int]) -> bool:
        """Whether all that is remote are arrivals and copies to all, and whoever loads stages waits behind its last
        load for a barrier that others arrive on."""
        rows = self.rows
        arrivals = [at for at in bare if rows[at].parts[0] == "mbarrier"]
        others = [at for at in bare if at not in arrivals and rows[at].parts[:2] != ("cp", "async")]
        given = {place for at in arrivals for place in self._places(at)}
        tests = {at for at in self.code.waits if given & self._places(at)}
        loads = [at for at, ins in enumerate(rows) if "expect_tx" in ins.parts]
        if others or not given or not tests or not loads:
            return False
        bare_ends = self._backwards(lambda at: at in tests)
        return not any(target in bare_ends for at in loads for target in self._after(at))

    def _places(self, at: int) -> set[_Address]:
        """Where the mbarrier of an instruction may lie in a block, but for what is computed."""
        where = next((o for o in self.rows[at].operands if isinstance(o, ast.Mem)), None)
        if where is None:
            return set()
        return {(root, offset + where.offset) for root, offset in self._roots(at, where.base, 0)}

    def _roots(self, at: int, operand: ast.Operand, depth: int) -> set[_Address]:
        if isinstance(operand, ast.Sym):
            return {(operand.name, operand.offset)}
        name = self.code.register(at, operand)
        if name is None:
            return set()
        places = self.code.definitions(at, operand)
        if depth > _DEEPEST or not places or len(places) > 2:
            return {(name, 0)}
        found: set[_Address] = set()
        for place in places:
            found |= self._rooted(place, depth + 1)
        return found

    def _rooted(self, at: int, depth: int) -> set[_Address]:
        ins = self.rows[at]
        given = ins.operands[1:]
        if ins.parts[0] in ("mov", "cvta", "cvt", "mapa"):
            return self._roots(at, given[0], depth)
        if ins.parts[0] in ("add", "mad"):
            addends = given if ins.parts[0] == "add" else given[2:]
            numbers = [self._facts.number(at, o) for o in addends]
            total = sum(n for n in numbers if n is not None)
            found = [self._roots(at, o, depth) for o, n in zip(addends, numbers, strict=True) if n is None]
            return {(root, offset + total) for one in found for root, offset in one}
        return set()

    # What stands in the way ---------------------------------------------------------------------------

    def _obstacle(self) -> str:
        if self._is_pending():
            return "a thread may end with an arrival at a cluster barrier that it has not waited for"
        counted = next((at for at in range(len(self.rows)) if self._counts_ended(at)), None)
        if counted is not None:
            ins = self.rows[counted]
            line = f" (line {list(ins.loc.outwards())[-1].line})" if ins.loc is not None else ""
            return f"`{ins.opcode}`{line} counts all threads of the block, and some may have ended by then"
        return ""

    def _is_pending(self) -> bool:
        """Whether a thread may end between its arrival at a cluster barrier and its wait there."""
        unwaited = self._ends_without("wait")
        return any(
            any(target in unwaited for target in self._after(at))
            for at, ins in enumerate(self.rows)
            if _is_cluster(ins, "arrive")
        )

    def _counts_ended(self, at: int) -> bool:
        """Whether an instruction is a barrier of all threads that have not ended, to which not all may come."""
        ins = self.rows[at]
        if ins.parts[0] not in ("bar", "barrier") or "cluster" in ins.parts or "warp" in ins.parts:
            return False
        if "arrive" in ins.parts or len(ins.operands) > (3 if "red" in ins.parts else 1):
            return False
        if self._warps is not None and len(self._warps.to(frozenset((at,)))) == self._warps.count:
            return False
        # threads that end without it
        return 0 in self._backwards(lambda other: other == at)

    @cached_property
    def _facts(self) -> Warps:
        return self._warps or Warps(self.code, None)

    @cached_property
    def _warps(self) -> Warps | None:
        """The warps of the largest block that there may be; None where only some of its axes are known."""
        directives = self.code.entry.directives
        block = directives.get("reqntid") or directives.get("maxntid") or (Limits.threads_per_block,)
        named = {o.name for ins in self.rows for o in ins.operands if isinstance(o, ast.SpecialReg)}
        return None if len(block) == 1 and named & {"tid.y", "tid.z"} else Warps(self.code, block)


def _is_cluster(ins: ast.Instruction, word: str) -> bool:
    return ins.parts[:3] == ("barrier", "cluster", word) and ins.guard is None
