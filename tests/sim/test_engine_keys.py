# SPDX-License-Identifier: Apache-2.0
"""Operations that help several waiters, or one waiter several times over."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

from porter.sim.engine import Engine
from porter.sim.operation import Operation


def test_an_operation_may_signal_one_place_twice() -> None:
    """The copies of a pair of blocks all complete on the mbarrier of one."""
    landed: list[str] = []
    machine = SimpleNamespace(late=True, activity=0, observer=None, parked={"bar": ()}, waking_together=nullcontext)
    engine = Engine(machine)
    engine.issue(Operation(0, 0, lambda: landed.append("pair"), [], ["bar", "bar"]))
    engine.issue(Operation(1, 0, lambda: landed.append("other"), [], ["bar", "elsewhere"]))
    assert engine.land_for_waiters()
    assert landed == ["pair", "other"]
    assert not engine.pending
    assert not engine.by_key
