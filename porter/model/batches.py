# SPDX-License-Identifier: Apache-2.0
"""How many MMA batches a kernel has in flight: what the ring of completion mbarriers must hold."""

from __future__ import annotations

from dataclasses import dataclass

from porter.model.flow import Branch, Event, Item, Kind, Loop

MOST_IN_FLIGHT = 8
"""wgmma.wait_group leaves at most 7 groups pending (CUTLASS include/cute/arch/mma_sm90_gmma.hpp), one more
is being issued."""


@dataclass(frozen=True)
class Batches:
    """`ring` batches can be in flight. `bounded` is false if a path commits without end and never waits, so
    that a commit has to wait for room itself. `fenced` is false if some batch starts without a wgmma.fence
    since the last one, so that the warps of a warpgroup have to meet elsewhere."""

    ring: int
    bounded: bool
    fenced: bool


@dataclass(frozen=True)
class _State:
    in_flight: int
    fenced: bool


class _Counter:
    def __init__(self) -> None:
        self.most = 0
        self.fenced = True
        self._breaks: list[set[_State]] = []
        self._continues: list[set[_State]] = []

    def run(self, items: list[Item], states: set[_State]) -> set[_State]:
        for item in items:
            if isinstance(item, Event):
                states = {self._event(item, s) for s in states}
            elif isinstance(item, Branch):
                states = set().union(*(self.run(arm, set(states)) for arm in item.arms)) if item.arms else states
            elif isinstance(item, Loop):
                states = self._loop(item, states)
            else:
                stack = {"break": self._breaks, "continue": self._continues}.get(item.kind)
                if stack:
                    stack[-1] |= states
                states = set()
        return states

    def _loop(self, loop: Loop, states: set[_State]) -> set[_State]:
        entry, out = set(states), set() if loop.at_least_once else set(states)
        self._breaks.append(set())
        while True:
            self._continues.append(set())
            end = self.run(loop.body, set(entry)) | self._continues.pop()
            out |= end
            if end <= entry:
                return out | self._breaks.pop()
            entry |= end

    def _event(self, event: Event, state: _State) -> _State:
        if event.kind is Kind.FENCE:
            return _State(state.in_flight, True)
        if event.kind is Kind.MMA and not state.fenced:
            self.fenced = False
        if event.kind is Kind.COMMIT:
            self.most = max(self.most, state.in_flight + 1)
            return _State(min(state.in_flight + 1, MOST_IN_FLIGHT + 1), False)
        if event.kind is Kind.WAIT:
            pending = MOST_IN_FLIGHT - 1 if event.pending is None else event.pending
            return _State(min(state.in_flight, pending), state.fenced)
        return state


def count_batches(flow: list[Item]) -> Batches:
    """Read off a kernel's flow."""
    counter = _Counter()
    counter.run(flow, {_State(0, False)})
    return Batches(max(1, min(counter.most, MOST_IN_FLIGHT)), counter.most <= MOST_IN_FLIGHT, counter.fenced)
