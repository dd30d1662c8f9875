# SPDX-License-Identifier: Apache-2.0
"""Where an accumulator is newest."""

from __future__ import annotations

import functools

from .calls import _Event
from .head import RING
from .program import _LOOPS, _Array, _Item, _Part, _Program

# --- the flow: where is an accumulator newest


NONE, ZERO, NEW, BOTH = "none", "zero", "registers", "both"
"""Nothing was written yet; registers hold zeros; they are newer than Tensor Memory; both hold the same. Where Tensor
Memory is newer, the state is the number of commits since the MMA, or DONE once a wait covered it."""
DONE = 1000
NEVER = -1
"""Of an operand A: no MMA reads its slots."""


class _State(dict):
    """What may hold before a place, as sets. Of each part of an accumulator its states; of each operand A `(array,
    "stale")`, slots that do not hold what the registers do, and `(array, "read")`, commits since the last MMA that
    reads them. `loose`: loads or stores of Tensor Memory since the warpgroup's threads met; `commits` since then,
    `flying` groups not waited for; `issued`: MMAs at all."""

    def join(self, other: _State | None) -> _State:
        return self if other is None else _State({key: states | other[key] for key, states in self.items()})

    def meet(self) -> None:
        self["loose"], self["commits"] = frozenset([False]), frozenset([0])

    def far(self) -> bool:
        """Whether threads of a warpgroup may be apart by as many groups as there are mbarriers."""
        return max(self["commits"]) >= RING - 2


def _older(states: frozenset) -> frozenset:
    return frozenset(s if isinstance(s, str) or s in (DONE, NEVER) else min(s + 1, RING + 2) for s in states)


def _waited(states: frozenset, pending: int) -> frozenset:
    return frozenset(DONE if isinstance(s, int) and s not in (DONE, NEVER) and s > pending else s for s in states)


def _in_memory(states: frozenset) -> list[int]:
    return [s for s in states if isinstance(s, int)]


class _Flow:
    """Runs the states through a program; every item keeps the join of what came before it."""

    def __init__(self, program: _Program) -> None:
        parts = [p for a in program.arrays.values() for p in a.parts]
        operands = [a for a in program.arrays.values() if a.slots]
        self.aging = [*parts, *((a, "read") for a in operands)]
        state = _State({p: frozenset([NONE]) for p in parts})
        state |= {"loose": frozenset([False]), "commits": frozenset([0])}
        state |= {"flying": frozenset([0]), "issued": frozenset([False])}
        for array in operands:
            state[array, "stale"], state[array, "read"] = frozenset(array.slots.values()), frozenset([NEVER])
        for items in program.blocks:
            self.final = self._items(items, state)

    def _items(self, items: list[_Item], state: _State) -> _State:
        for item in items:
            if item.kind == "other":
                continue
            item.before = state.join(item.before)
            if item.kind == "region":
                state = self._region(item, state)
            else:
                state = _State(state)
                step = getattr(self, "_" + (item.kind if item.event is None else item.event.kind), None)
                if step is not None:
                    step(item, state)
        return state

    def _region(self, item: _Item, state: _State) -> _State:
        name = item.op.name
        if name not in _LOOPS:
            ends = [self._items(items, state) for items in item.blocks]
            if name != "scf.if" or len(ends) < 2 or not len(item.op.regions[1].blocks):
                ends.append(state)
            return functools.reduce(_State.join, ends)
        while True:
            after = out = self._items(item.blocks[0], state)
            if name == "scf.while":
                out = self._items(item.blocks[1], after)
            else:
                after = state.join(out)
            again = state.join(out)
            if again == state:
                return after
            state = again

    def _array(self, item: _Item, state: _State) -> None:
        state.update({p: frozenset([NONE]) for p in item.array.parts})
        self._changed(item.array, state)

    def _changed(self, array: _Array, state: _State) -> None:
        if array.slots:
            state[array, "stale"] = frozenset(array.slots.values())

    def _access(self, item: _Item, state: _State) -> None:
        for part in item.array.parts:
            states = state[part]
            loaded = bool(_in_memory(states)) and not item.full
            if loaded:
                state["loose"] = frozenset([True])
            if item.writes:
                state[part] = frozenset([ZERO if item.zero else NEW])
            elif loaded:
                state[part] = frozenset([s for s in states if isinstance(s, str)] + [BOTH])
        if item.writes:
            self._changed(item.array, state)

    def _fence(self, item: _Item, state: _State) -> None:
        if item.event.joins:
            state["loose"] = frozenset([True])
        else:
            state.meet()

    def _commit(self, item: _Item, state: _State) -> None:
        if state.far():
            state.meet()
        for key in self.aging:
            state[key] = _older(state[key])
        for key in ("commits", "flying"):
            state[key] = frozenset(min(n + 1, RING) for n in state[key])

    def _wait(self, item: _Item, state: _State) -> None:
        pending = item.event.pending
        for key in self.aging:
            state[key] = _waited(state[key], pending)
        state["flying"] = frozenset(min(n, pending) for n in state["flying"])

    def _mma(self, item: _Item, state: _State) -> None:
        loose = True in state["loose"]
        for event in item.batch:
            if event.operand is not None:
                array, slots = event.operand, frozenset(event.slots)
                loose = loose or bool(slots & state[array, "stale"]) or len(slots) < len(event.places)
                state[array, "stale"] -= slots
                state[array, "read"] = frozenset([0])
            for part in event.parts:
                event.before[part] = state[part] | event.before.get(part, frozenset())
            for part in event.parts:
                loose = loose or _stored(event, part)
                state[part] = frozenset([0])
        if loose:
            state.meet()
        state["issued"] = frozenset([True])


def _settled(array: _Array, state: _State) -> bool:
    """Whether no MMA that is in flight reads or writes an array's columns."""
    states = frozenset().union(*(state[p] for p in array.parts), state.get((array, "read"), ()))
    return all(s in (DONE, NEVER) for s in _in_memory(states))


def _cleared(event: _Event) -> bool:
    """Whether zeros in registers are left out of an MMA by its flag: then nothing is stored."""
    states = frozenset().union(*event.before.values())
    return ZERO in states and NEW not in states and len(event.parts) == len(event.tiles)


def _stored(event: _Event, part: _Part) -> bool:
    """Whether registers may have to go to Tensor Memory before an MMA."""
    states = event.before[part]
    return event.adds is not False and (NEW in states or (ZERO in states and not _cleared(event)))
