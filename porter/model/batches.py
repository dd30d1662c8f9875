# SPDX-License-Identifier: Apache-2.0
"""How many MMA batches a kernel has in flight: what the ring of completion mbarriers must hold."""

from __future__ import annotations

from dataclasses import dataclass

from porter.model.events import Event, Item, Kind
from porter.model.interpret import Interpreter

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


class _Counter(Interpreter[_State]):
    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self.fenced = True

    def event(self, event: Event, state: _State) -> _State:
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
