# SPDX-License-Identifier: Apache-2.0
"""Behind its loops a program does the same for many sizes. Where each warp has left behind whatever follows the number
of turns a cluster stands still; executions that hold the same numbers there go on alike, and what both programs leave
from there on follows from what they hold.

Which phases mbarriers are in may differ: waits decide about order alone, which is proved by itself. So an instruction
that makes something else of them is not followed by others for another size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

from porter.equal.contents import Contents
from porter.equal.periods import Growing
from porter.facts.code import is_test
from porter.facts.events import WarpName
from porter.facts.flow import Flow
from porter.facts.instructions.registry import computes
from porter.facts.machine import Machine
from porter.facts.state import Group
from porter.facts.values import Value, bits, of_lane
from porter.ptx import ast
from porter.sync.sizes import given_by

_OF_NUMBERS = frozenset(("elect", "shfl", "vote", "match", "redux", "activemask", "bar", "barrier"))
"""What they make of numbers follows from these."""
_OF_DATA = frozenset(("tcgen05", "wgmma", "mma", "ldmatrix", "movmatrix"))
_KNOWN = frozenset(("shared", "local", "param", "global"))
"""Spaces that loads name whose numbers are compared; in global memory are data, unless it is seen that they are not."""
_TIMERS = ("clock", "globaltimer", "pm")


@dataclass(frozen=True)
class Marks:
    """The `places` behind the loops of some `lanes` at which nothing counts that follows the number of turns, as far
    as is seen, and those that `ask` for more than is compared there, or come to one that does."""

    flow: Flow
    lanes: Mapping[WarpName, int]
    places: frozenset[int]
    ask: frozenset[int]

    def control(self, machine: Machine, contents: Contents) -> object:
        """All numbers that what follows takes, and where warps are; None where it may ask for more."""
        groups = [(warp, group) for block in machine.blocks for warp in block.warps for group in warp.groups]
        if machine.counters or contents.stored or any(group.pc in self.ask for _, group in groups):
            return None
        return (
            sorted((warp.name, self._of_group(group)) for warp, group in groups),
            [(warp.name, warp.live, dict(warp.local.pieces), warp in contents.waited)
             for block in machine.blocks for warp in block.warps],
            [(dict(block.memory), dict(block.columns), dict(block.pairs), block.handed_out)
             for block in machine.blocks],
        )  # fmt: skip

    def _of_group(self, group: Group) -> object:
        lanes, live = bits(group.lanes), sorted(_counting(self.flow)[group.pc])
        numbers = [(name, _in_lanes(group.registers.get(name), lanes)) for name in live]
        undefined = [(name, group.undefined[name].lanes & group.lanes) for name in live if name in group.undefined]
        return group.pc, group.lanes, str(numbers), str(undefined), str(group.barrier), str(group.fails)

    def given(self, machine: Machine, maps: Collection[int]) -> object:
        """What the launch of a machine that has not run gives to instructions behind the marks, and these maps."""
        to_blocks = [
            {key: value for key, value in given.items() if key[0] in self._behind} for given in given_by(machine)
        ]
        return machine.launched.geometry, [machine.maps.at(address) for address in sorted(maps)], to_blocks

    @cached_property
    def _behind(self) -> set[int]:
        found, todo = set(self.places), list(self.places)
        while todo:
            more = [to for to in self.flow.code.successors[todo.pop()] if to not in found]
            found.update(more)
            todo += more
        return found


def _in_lanes(value: Value, lanes: Iterable[int]) -> object:
    return tuple(of_lane(value, lane) for lane in lanes) if isinstance(value, tuple) else value


def marks_of(found: Growing, of_size: Collection[int]) -> Marks:
    """Those of a program, whose loops are `found`; `of_size`: the instructions that take from the launch what moves
    with the size."""
    flow = found.flow
    follow = _following(found, of_size)
    heads = {head for _, head, *_ in found.turns}
    turning, ask = _leading_to(flow, {*heads, *of_size}), _leading_to(flow, heads | _asking(flow))
    counting = _counting(flow)
    settled = [at not in turning and counting[at].isdisjoint(follow) for at in range(len(flow.code.code))]
    places = frozenset(
        _led_to(flow, at) for at, is_settled in enumerate(settled)
        if is_settled and not all(settled[before] for before in flow.code.predecessors.get(at, ()))
    )  # fmt: skip
    lanes: dict[WarpName, int] = defaultdict(int)
    for (warp, *_), turns in found.turns.items():
        lanes[warp] |= turns[0].lanes
    return Marks(flow, lanes, places, frozenset(ask))


def _led_to(flow: Flow, at: int) -> int:
    """Where a branch leads that is taken always."""
    seen = {at}
    while flow.code.code[at].parts[0] == "bra" and len(after := flow.code.successors[at]) == 1 and after[0] not in seen:
        at = after[0]
        seen.add(at)
    return at


def _following(found: Growing, of_size: Collection[int]) -> set[str]:
    """Registers whose numbers are made of those that are not the same in all turns, or that follow the size."""
    flow, log = found.flow, found.log
    follow = {name for at in of_size for name in flow.writes[at]}
    for turns in found.turns.values():
        for one, other in pairwise(turns):
            follow |= {name for name, value in one.numbers.items() if other.numbers.get(name) != value}
    places = [
        at for at in range(len(flow.writes))
        if flow.writes[at] and not flow.code.code[at].parts[-1].startswith(("f", "bf"))
        and (at not in log.on_data or at in log.gives_numbers)
    ]  # fmt: skip
    while more := {
        name for at in places if not flow.uses[at].isdisjoint(follow) for name in flow.writes[at]
    } - follow:  # fmt: skip
        follow |= more
    return follow


def _leading_to(flow: Flow, places: Collection[int]) -> set[int]:
    """The instructions behind which some others may be come to, and these."""
    found, todo = set(places), list(places)
    while todo:
        more = [before for before in flow.code.predecessors.get(todo.pop(), ()) if before not in found]
        found.update(more)
        todo += more
    return found


@lru_cache(maxsize=64)
def _counting(flow: Flow) -> list[frozenset[str]]:
    """By instruction the registers that count there or behind it for more than for which phase is waited for."""

    def taken(at: int, behind: frozenset[str]) -> frozenset[str]:
        ins, written = flow.decoded[at], flow.code.code[at]
        if is_test(written):
            guard = None if written.guard is None else flow.code.register(at, written.guard.operand)
            return frozenset() if guard is None else frozenset((guard,))
        is_dead = ins is not None and computes(ins) and flow.writes[at].isdisjoint(behind)
        return frozenset() if is_dead else flow.uses[at]

    return flow.backwards(taken)


@lru_cache(maxsize=64)
def _asking(flow: Flow) -> frozenset[int]:
    """Instructions that make numbers of more than registers, memory that is near, and the launch."""
    return frozenset(at for at in range(len(flow.code.code)) if not _is_plain(flow, at))


def _is_plain(flow: Flow, at: int) -> bool:
    ins = flow.decoded[at]
    if ins is None or any(isinstance(o, ast.SpecialReg) and o.name.startswith(_TIMERS) for o in ins.operands):
        return False
    if is_test(flow.code.code[at]):
        return not flow.ways.is_unheeded(at)
    if flow.writes[at].isdisjoint(flow.live[at + 1]) or computes(ins) or ins.parts[0] in _OF_NUMBERS | _OF_DATA:
        return True
    if ins.parts[0] == "atom":
        return any(part.startswith("shared") for part in ins.parts)
    return ins.parts[0] == "ld" and not _KNOWN.isdisjoint(part.partition("::")[0] for part in ins.parts)
