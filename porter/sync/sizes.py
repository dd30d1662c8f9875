# SPDX-License-Identifier: Apache-2.0
"""What a launch gives a kernel for each number of turns, and whether what follows from it does the same for all of
them: instructions ahead of loops and behind them, and numbers in loops that do not change there.

The executions for 1, 2, … turns stand for the turns of one loop, whose body is the whole kernel: what a parameter or an
index of a block gives is a counter of it, and so, outside of a loop, is a counter of that loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

from porter.facts.code import Loop
from porter.facts.deciding import deciding
from porter.facts.events import WarpName
from porter.facts.flow import Flow
from porter.facts.launched import Launched
from porter.facts.machine import Machine
from porter.facts.operands import reader
from porter.facts.values import Value
from porter.ptx import ast, table
from porter.sync.following import Followed, Following, Shape, kept_in, reached, that_must_repeat
from porter.sync.repeating import Repeating, Seen
from porter.sync.sequences import (
    ANYWHERE,
    LARGEST_SIZE,
    Counted,
    Key,
    evenly,
    whole,
)

Given = Mapping[tuple[int, str], object]
"""By instruction and register, or special register, what the launch gives it there; equal where it gives the same."""

_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}


def given_by(machine: Machine) -> list[Given]:
    """What a launch gives each block of a machine that has not run."""
    of_warps = given_to_warps(machine)
    parameters, _ = _places(machine.flow)
    of_all = {key: taken for at in parameters for key, taken in _loaded(machine.launched, at)}
    return [of_all | of_warps[block.warps[0].name] for block in machine.blocks]


def given_to_warps(machine: Machine) -> dict[WarpName, dict[tuple[int, str], Value]]:
    """What special registers, and loads of one parameter, give each warp of a machine that has not run."""
    parameters, special = _places(machine.flow)
    of_all: dict[tuple[int, str], Value] = {
        key: taken for at in parameters for key, taken in _loaded(machine.launched, at) if isinstance(taken, int)
    }  # fmt: skip
    return {
        warp.name: of_all | {
            (at, name): reader(machine.code, at, ast.SpecialReg(name))(machine, warp, warp.groups[0])
            for at, name in special
        }
        for block in machine.blocks for warp in block.warps
    }  # fmt: skip


@lru_cache(maxsize=64)
def _places(flow: Flow) -> tuple[list[int], list[tuple[int, str]]]:
    """Loads of parameters, and special registers that are read."""
    code = flow.code.code
    loads = [at for at, ins in enumerate(code) if ins.parts[0] == "ld" and ins.parts[1].startswith("param")]
    special = [(at, o.name) for at, ins in enumerate(code) for o in ins.operands if isinstance(o, ast.SpecialReg)]
    return loads, special


def _loaded(launched: Launched, at: int) -> Iterator[tuple[tuple[int, str], object]]:
    """What each register gets that a load of a parameter writes; all parameters, where its address is not plain."""
    ins = launched.flow.code.code[at]
    size, source = _BYTES[ins.parts[-1][1:]], ins.operands[1]
    for index, target in enumerate(table.items(ins.operands[0])):
        name = launched.flow.code.register(at, target)
        if name is None:
            continue
        found: object = tuple(launched.parameters.items())
        if isinstance(source, ast.Mem) and isinstance(source.base, ast.Sym):
            start = launched.parameter_addresses.get(source.base.name)
            where = source.base.offset + source.offset + index * size
            found = None if start is None else launched.parameter(start + where, size)
        yield (at, name), found


@dataclass(frozen=True)
class End:
    """What a loop leaves in a counter: it was `last`, and is `step` more for a period more of turns."""

    step: int
    last: int


class Followers(NamedTuple):
    """What follows from the counters of a loop, of whose `heads` some were `asked` for: what is `wrong` with it,
    by register how far `others` than at its head move behind the loop with each period, registers that are `uneven`
    there, and instructions that leave it in memory."""

    heads: Mapping[Key, Counted]
    asked: Collection[Key]
    wrong: Sequence[tuple[str, int]]
    others: Mapping[str, int]
    uneven: Collection[str]
    stored: Collection[int]

    def is_of(self, heads: Mapping[Key, Counted]) -> bool:
        """Whether it is the same for other heads: what was asked for is the same."""
        return all(heads.get(key) == self.heads.get(key) for key in self.asked)


@dataclass(frozen=True)
class Sizes:
    """Executions for 1, 2, … turns as a loop over them. `given`: what each launch gives its blocks. `unit`: what a size
    grows by with each turn, `period`: that of the turns. All up to the last one were looked at: what is behind it has
    to be as what is a period ahead of it."""

    flow: Flow
    given: Sequence[Sequence[Given]]
    symbols: Mapping[str, int]
    unit: int
    period: int
    seen: Seen
    times: int = 1
    """Periods after which operands that are no sides of comparisons repeat."""
    followed: dict[object, list[Followers]] = field(default_factory=lambda: defaultdict(list))
    """What follows from the counters of loops."""
    _behind: set[object] = field(default_factory=set)
    stored: set[int] = field(default_factory=set)
    """Instructions that leave in memory what follows the size or a counter."""

    @property
    def _most(self) -> int:
        """Numbers of turns, from the first of the last two periods on, that have one a period later."""
        return (LARGEST_SIZE - 1) // self.unit - len(self.given) + self.period

    def uneven(self) -> Iterator[tuple[str, int]]:
        """What follows the size otherwise than evenly, or synchronizes by it."""
        seen: list[dict[Key, Counted]] = []
        for rank in range(len(self.given[-1])):
            numbers, kinds = self._of_block(rank)
            if kinds and numbers not in seen:
                seen.append(numbers)
                yield from self._checked(numbers, kinds)

    def behind(
        self, loop: Loop, counters: Mapping[str, End | None], others: Mapping[str, int], uneven: Collection[str]
    ) -> Iterator[tuple[str, int]]:
        """The same of what a loop leaves in its counters, as far as it is known, and in registers that follow them: in
        `others` evenly, by so much with each period."""
        exits = {to for at in loop.body for to in self.flow.code.successors[at] if to not in loop.members}
        left = {name for to in exits for name in self.flow.live[to] & {*counters, *others, *uneven}}
        key = loop.head, frozenset(left), frozenset(counters.items()), frozenset(others.items())
        if not left or key in self._behind:
            return
        self._behind.add(key)
        body = [at for at in whole(self.flow).body if at not in loop.members]
        ends = {name: end for name, end in counters.items() if name in left}
        kinds = {name: self.moved(end.step if end is not None else 0) for name, end in ends.items()}
        kinds |= {name: self.moved(step) for name, step in others.items() if name in left}
        kinds |= dict.fromkeys(left.difference(kinds), _UNKNOWN)
        sources = {name: [at for at in loop.body if name in self.flow.writes[at]] for name in left}
        following = Following(self.flow, body, kinds, sources=sources)
        self.stored.update(following.stored(body))
        seen = [self._any_value(name, end, following.kinds) for name, end in ends.items() if end is not None]
        of_operands = [values.after(self.times) for values in seen]
        for at in body:
            name = self.flow.code.code[at].parts[0]
            for operand in that_must_repeat(self.flow, at, following):
                if not any(values(at, operand) for values in (seen if name == "setp" else of_operands)):
                    yield f"an operand of {name} follows a counter of a loop ahead of it", at
                    return

    def loaded(self) -> Iterator[tuple[str, int]]:
        """What synchronizes by numbers of memory, where some follow a counter, or atomics count."""
        code, body = self.flow.code.code, whole(self.flow).body
        kept = {at: kept_in(self.flow, at) for at in body if code[at].parts[0] in ("ld", "atom", "red")}
        counting = [
            at for at, where in kept.items() if where and code[at].parts[0] != "ld" and at in self.flow.innermost
        ]
        moving = {kept_in(self.flow, at) for at in self.stored} | {
            kept[at] for at in counting if code[at].parts[0] == "red"
        }
        sources: dict[str, list[int]] = {}
        for at in (at for at, where in kept.items() if where and (where in moving or at in counting)):
            for name in self.flow.writes[at]:
                sources.setdefault(name, []).append(at)
        following = Following(self.flow, body, dict.fromkeys(sources, _UNKNOWN), sources=sources)
        for at in body if sources else ():
            if any(True for _ in that_must_repeat(self.flow, at, following)):
                yield f"an operand of {code[at].parts[0]} is loaded from where a counter is stored", at
                return

    def _any_value(self, name: str, end: End, follows: Collection[str]) -> Repeating:
        """What follows from a register, for all numbers up to what a loop leaves in it in the end."""
        step = abs(end.step)
        heads: dict[Key, Counted] = {(ANYWHERE, name): Counted((0,), 1)}
        most = end.last + step * (self._most // self.period + 1)
        return self._repeating(follows, heads, step, most)

    def _of_block(self, rank: int) -> tuple[dict[Key, Counted], dict[str, Followed]]:
        """What is known of what a launch gives a block for any number of turns, and the registers that follow it."""
        numbers: dict[Key, Counted] = {}
        kinds: dict[str, Followed] = {}
        needed = deciding(self.flow)
        for at, name in self.given[-1][rank]:
            values = [of_run[rank].get((at, name)) for of_run in self.given[-2 * self.period :]]
            known = [v for v in values if isinstance(v, int)]
            steps = {known[i + self.period] - known[i] for i in range(len(known) - self.period)}
            if len(known) == len(values) and len(steps) == 1:
                numbers[at, name] = evenly(known, self.period)
            if values.count(values[0]) == len(values):
                continue
            for written in self.flow.writes[at] & needed[at + 1]:
                kinds[written] = self.moved(steps.pop()) if (at, name) in numbers else _UNKNOWN
        return numbers, kinds

    def moved(self, step: int) -> Followed:
        """What moves evenly by a number in each period."""
        return Followed(Shape.EVEN, reached(step, len(self.given) // self.period))

    def _checked(self, numbers: Mapping[Key, Counted], kinds: Mapping[str, Followed]) -> Iterator[tuple[str, int]]:
        moving = self._repeating(kinds.keys(), numbers, self.period, self._most)

        def settled(at: int, kind: Followed, follow: Mapping[str, Followed]) -> Followed | None:
            step = moving.moved_by(at, follow.keys())
            return kind if step is None else self.moved(step) if step else None

        sources = {name: [at for at, written in self.given[-1][0] if name in self.flow.writes[at]] for name in kinds}
        following = Following(self.flow, whole(self.flow).body, kinds, settled, sources)
        self.stored.update(following.stored(whole(self.flow).body))
        repeating = self._repeating(following.kinds.keys(), numbers, self.period, self._most)
        of_operands = repeating.after(self.times)
        for at in whole(self.flow).body:
            name = self.flow.code.code[at].parts[0]
            repeats = repeating if name == "setp" else of_operands
            if not all(repeats(at, operand) for operand in that_must_repeat(self.flow, at, following)):
                yield f"{'a comparison' if name == 'setp' else f'an operand of {name}'} follows the size", at

    def _repeating(self, follows: Collection[str], heads: Mapping[Key, Counted], period: int, most: int) -> Repeating:
        return Repeating(
            self.flow, whole(self.flow), follows, heads, self.symbols, period, most, self.seen, self._uneven
        )

    @cached_property
    def _uneven(self) -> frozenset[tuple[int, str]]:
        """What launches give blocks that is not the same for all of them."""
        blocks = [of_block for of_run in self.given for of_block in of_run]
        return frozenset(key for key in blocks[-1] if any(of_block.get(key) != blocks[-1][key] for of_block in blocks))


_UNKNOWN = Followed(Shape.OTHER, 0, None)
