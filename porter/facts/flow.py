# SPDX-License-Identifier: Apache-2.0
"""Control flow of an entry: which registers are live where, where ways meet again, and which ways never return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from porter.facts.code import Code, Loop
from porter.ptx import ast, table
from porter.ptx.arch import limits
from porter.ptx.layout import named_in
from porter.ptx.register_file import entry_registers
from porter.ptx.unheeded_waits import Ways


def called(ins: ast.Instruction) -> str | None:
    """The function that an instruction calls by its name."""
    if ins.parts[0] != "call":
        return None
    return next((operand.name for operand in ins.operands if isinstance(operand, ast.Sym)), None)


class Flow:
    """The instructions of `code` as the table decodes them, None for those that it does not know. `initialized`: what
    the source calls the mbarrier that a place of it initializes, if somebody can tell."""

    def __init__(self, code: Code, initialized: Callable[[ast.SourceLoc], str | None] = lambda loc: None) -> None:
        self.code = code
        self.initialized = initialized
        self.decoded = [table.find(ins) for ins in code.code]
        self.runs: list[Any] = [None] * len(code.code)
        """What executes each instruction, as `porter.facts.instructions` makes it when it is come to."""
        self.uses: list[frozenset[str]] = []
        self.writes: list[frozenset[str]] = []
        for at, ins in enumerate(self.decoded):
            read = table.sources(ins) if ins is not None else ()
            written = table.destinations(ins) if ins is not None else ()
            self.uses.append(self._names(at, read))
            self.writes.append(self._names(at, written))

    def _names(self, at: int, registers: tuple[ast.Reg | ast.Placeholder, ...]) -> frozenset[str]:
        return frozenset(self.code.renamed(at, r.name) for r in registers if isinstance(r, ast.Reg))

    @cached_property
    def named(self) -> list[frozenset[str]]:
        """The registers that each instruction uses or writes."""
        return [used | written for used, written in zip(self.uses, self.writes, strict=True)]

    @cached_property
    def sorted_uses(self) -> list[tuple[str, ...]]:
        """The registers that each instruction uses, by name."""
        return [tuple(sorted(used)) for used in self.uses]

    @cached_property
    def live(self) -> list[frozenset[str]]:
        """The registers that something behind each instruction, or itself, may read."""
        return self.backwards(lambda at, behind: self.uses[at])

    def backwards(self, taken: Callable[[int, frozenset[str]], frozenset[str]]) -> list[frozenset[str]]:
        """The registers that are asked for ahead of each instruction. `taken`: those that one asks for itself, given
        what is asked for behind it."""
        count = len(self.decoded)
        live: list[frozenset[str]] = [frozenset()] * (count + 1)
        before: list[list[int]] = [[] for _ in range(count + 1)]
        for at, after in enumerate(self.code.successors):
            for target in after:
                before[target].append(at)
        todo, queued = list(range(count)), set(range(count))
        while todo:
            at = todo.pop()
            queued.discard(at)
            behind = frozenset().union(*(live[t] for t in self.code.successors[at]))
            kills = self.writes[at] if self.code.code[at].guard is None else frozenset()
            found = taken(at, behind) | (behind - kills)
            if found != live[at]:
                live[at] = found
                todo += [b for b in before[at] if b not in queued]
                queued.update(before[at])
        return live

    @cached_property
    def ways(self) -> Ways:
        """What `porter.ptx.unheeded_waits` asks for."""
        code, end = self.code, (len(self.code.code),)

        def following(at: int) -> tuple[int, ...]:
            after = code.successors[at]
            ends = code.code[at].parts[0] in ("ret", "exit")
            return (*end, *after) if ends else after or end

        return Ways(code.code, following, self.uses.__getitem__, self.writes.__getitem__, self.live.__getitem__,
                    code.renamed, self.lost.__contains__)  # fmt: skip

    @cached_property
    def declared(self) -> list[ast.VarDecl]:
        """The variables of the module, and the kernel's own."""
        return [*self.code.module.variables, *declared_in(self.code.entry.body or ())]

    @cached_property
    def registers_at_start(self) -> int | None:
        """Those of each thread; None where setmaxnreg moves none."""
        code = self.code
        try:
            chip = limits(code.module.target)
        except (KeyError, ValueError):
            return None
        return entry_registers(code.entry.directives, code.code, chip.registers_per_sm, chip.registers_per_thread)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Variables and labels that instructions name."""
        return frozenset(named_in(self.code.code))

    @cached_property
    def innermost(self) -> dict[int, int]:
        """By instruction in loops the head of the innermost one."""
        found: dict[int, int] = {}
        for head, loop in sorted(self.heads.items(), key=lambda item: -len(item[1].body)):
            found.update(dict.fromkeys(loop.body, head))
        return found

    @cached_property
    def inside(self) -> dict[int, tuple[int, ...]]:
        """By head of a loop the heads of those inside of it."""
        return {
            head: tuple(h for h in self.heads if h != head and h in loop.members) for head, loop in self.heads.items()
        }

    @cached_property
    def branches(self) -> list[bool]:
        """Whether each instruction is a branch, and behind the last one."""
        return [*(ins.parts[0] == "bra" for ins in self.code.code), False]

    @cached_property
    def changes_maps(self) -> bool:
        """Whether threads write tensor maps to global memory."""
        parts = (ins.parts for ins in self.code.code)
        return any(p[0] == "tensormap" or any(m.startswith("tensormap::") for m in p) for p in parts)

    @cached_property
    def asks_for_work(self) -> bool:
        """Whether blocks take over work of others by clusterlaunchcontrol."""
        return any(ins.parts[:2] == ("clusterlaunchcontrol", "try_cancel") for ins in self.code.code)

    @cached_property
    def _inlined_into(self) -> dict[ast.SourceLoc, set[ast.SourceLoc | None]]:
        """By place without what it was inlined into the places that it was inlined into."""
        found: dict[ast.SourceLoc, set[ast.SourceLoc | None]] = {}
        for ins in self.code.code:
            for place in ins.loc.outwards() if ins.loc is not None else ():
                found.setdefault(replace(place, inlined_at=None), set()).add(place.inlined_at)
        return found

    def places(self, at: int) -> list[ast.SourceLoc]:
        """The place of an instruction and those that it was inlined into, as far as they are known: `.loc` tells one
        step outwards, and of a function that is inlined twice at two places not which of them comes behind that."""
        loc = self.code.code[at].loc
        found: list[ast.SourceLoc] = []
        for place in loc.outwards() if loc is not None else ():
            found.append(place)
            if len(found) > 1 and len(self._inlined_into[replace(place, inlined_at=None)]) > 1:
                break
        return found

    def copied(self, at: int) -> str | None:
        """The register that an instruction copies to another one, if it does nothing else."""
        ins = self.code.code[at]
        is_copy = ins.parts[0] == "mov" and ins.guard is None and all(isinstance(o, ast.Reg) for o in ins.operands)
        return next(iter(self.uses[at])) if is_copy and len(self.uses[at]) == 1 else None

    @cached_property
    def wgmma_operands(self) -> list[frozenset[str]]:
        """By instruction that is no wgmma the registers that it writes and that wgmma takes, itself or by copies."""
        products = [at for at, ins in enumerate(self.code.code) if ins.parts[:2] == ("wgmma", "mma_async")]
        names: set[str] = set()
        for at in products:
            ins = self.decoded[at]
            inputs = [o for o in table.items(ins["a"]) if isinstance(o, ast.Reg)] if ins is not None else []
            names |= self.writes[at] | self._names(at, tuple(inputs))
        grows = True
        while grows:
            sources = {s for at, w in enumerate(self.writes) if w & names and (s := self.copied(at)) is not None}
            grows = not sources <= names
            names |= sources
        inside = frozenset(products)
        return [frozenset() if at in inside else w & names for at, w in enumerate(self.writes)]

    @cached_property
    def touches_flight(self) -> list[bool]:
        """By instruction whether it has to do with registers that tcgen05.ld or wgmma may have in flight, themselves or
        by copies."""
        asynchronous = (("tcgen05", "ld"), ("wgmma", "mma_async"))
        names: set[str] = set()
        for at, ins in enumerate(self.code.code):
            if ins.parts[:2] in asynchronous:
                names |= self.writes[at] | self.uses[at]
        moves = [at for at, ins in enumerate(self.code.code) if ins.parts[0] == "mov"]
        grows = True
        while grows:
            copies = frozenset().union(*(self.writes[at] for at in moves if self.uses[at] & names))
            grows = not copies <= names
            names |= copies
        return [bool((w | u) & names) for w, u in zip(self.writes, self.uses, strict=True)]

    @cached_property
    def lost(self) -> frozenset[int]:
        """Instructions from which every way leads to a trap."""
        found = {
            at for at, ins in enumerate(self.code.code)
            if ins.guard is None and (ins.parts[0] == "trap" or called(ins) == "__assertfail")
        }  # fmt: skip
        while True:
            more = {
                at for at, after in enumerate(self.code.successors)
                if at not in found and after and all(t in found for t in after)
                and (self.code.code[at].parts[0] not in ("st", "mbarrier") or "param" in self.code.code[at].parts)
            }  # fmt: skip
            if not more:
                return frozenset(found)
            found |= more

    @cached_property
    def meets(self) -> dict[int, int]:
        """Where all ways from a branch come together: its immediate postdominator, if there is one before the end.

        The algorithm is that of Cooper, Harvey and Kennedy, A Simple, Fast Dominance Algorithm, on the reversed graph.
        """
        end = len(self.decoded)
        after = [tuple(t for t in found if t not in self.lost) or (end,) for found in self.code.successors]
        rank = {at: number for number, at in enumerate(_last_first(after, end))}
        rank[end] = -1
        above = {end: end}
        changed = True
        while changed:
            changed = False
            for at in sorted((a for a in rank if a != end), key=rank.__getitem__):
                known = [t for t in after[at] if t in above]
                if not known:
                    continue
                common = known[0]
                for other in known[1:]:
                    common = _common(above, rank, common, other)
                if above.get(at) != common:
                    above[at], changed = common, True
        return {at: to for at, to in above.items() if at != end and to != end and len(self.code.successors[at]) > 1}

    @cached_property
    def heads(self) -> dict[int, Loop]:
        """Loops that do more than wait for an mbarrier, by their first instruction."""
        return {loop.head: loop for loop in self.code.loops if not self.code.is_wait(loop)}

    def between(self, branch: int, meet: int, stop: Callable[[int], bool] = lambda at: False) -> set[int]:
        """The instructions behind a branch and ahead of where its ways meet."""
        found: set[int] = set()
        todo = list(self.code.successors[branch])
        while todo:
            at = todo.pop()
            if at != meet and at not in found and at not in self.lost and not stop(at):
                found.add(at)
                todo += self.code.successors[at]
        return found


def _last_first(after: list[tuple[int, ...]], end: int) -> list[int]:
    """Instructions that can be come to, each behind those that follow it."""
    if not after:
        return []
    found: list[int] = []
    seen = {0}
    stack = [(0, iter(after[0]))]
    while stack:
        at, rest = stack[-1]
        target = next(rest, None)
        if target is None:
            found.append(at)
            stack.pop()
        elif target != end and target not in seen:
            seen.add(target)
            stack.append((target, iter(after[target])))
    return found


def _common(above: dict[int, int], rank: dict[int, int], one: int, other: int) -> int:
    while one != other:
        while rank[one] > rank[other]:
            one = above[one]
        while rank[other] > rank[one]:
            other = above[other]
    return one


def declared_in(body: Sequence[ast.Statement]) -> Iterator[ast.VarDecl]:
    """What stands in a body, and in blocks of it."""
    for statement in body:
        if isinstance(statement, ast.VarDecl):
            yield statement
        elif isinstance(statement, ast.Block):
            yield from declared_in(statement.body)
