# SPDX-License-Identifier: Apache-2.0
"""A grid that is launched before its prerequisite ends, and what it may touch before griddepcontrol.wait (PTX ISA
9.7.13.13)."""

from __future__ import annotations

import numpy as np
import pytest
from check_ptx import HEADER, found

from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate
from porter.sim.check.hazard import Level

TRIGGER, WAIT = "griddepcontrol.launch_dependents;", "griddepcontrol.wait;"
MINE = "mov.u32 %r20, %ctaid.x; mad.lo.u32 %r20, %r20, 128, %r0; mul.wide.u32 %d2, %r20, 4; add.u64 %d3, %d0, %d2;"
# The first grid stores its thread numbers to `in`; the second copies what it finds to `out`.
FIRST = f"{MINE} {TRIGGER} st.global.u32 [%d3], %r20; ret;"
COPY = f"{MINE} {{before}} ld.global.u32 %r21, [%d3]; {{after}} add.u64 %d4, %d1, %d2; st.global.u32 [%d4], %r21; ret;"


class Stream:
    """Launches one after the other, each of which may begin before the one before it ends."""

    def __init__(self, level: Level = "strict", mode: str = "checking") -> None:
        self.memory = GlobalMemory()
        self.places = [self.memory.alloc(4096, fill=0, name="in"), self.memory.alloc(4096, fill=0, name="out")]
        self.options = Options(mode=mode, level=level)
        self.last: Outcome | None = None

    def launch(self, body: str, grid: int = 2, cluster: int = 1, dependent: bool = True) -> Outcome:
        module = parse_module(HEADER.format(target="sm_100a") + body + "\n}\n")
        launch = Launch((grid, 1, 1), (128, 1, 1), (cluster, 1, 1), dynamic_smem=8192)
        params = pack_params(module.function("kernel"), self.places)
        before = self.last if dependent else None
        self.last = simulate(module, "kernel", launch, params, self.memory, self.options, prerequisite=before)
        assert self.last.status == "ok", [str(f) for f in self.last.findings]
        return self.last


def copied(before: str = "", after: str = "") -> str:
    return COPY.format(before=before, after=after)


BULK = """@%p0 mbarrier.init.shared.b64 [%r8], 1; @%p0 fence.mbarrier_init.release.cluster; bar.sync 0; {before}
@!%p0 bra LOADED; mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], 512;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d0], 512, [%r8];
LOADED: W1: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W1; ret;"""
RIGHT = {
    "every_thread_waits": copied(WAIT),
    "one_warp_waits": copied(f"@!%p1 bra THERE; {WAIT} THERE: bar.sync 0;"),
    "one_thread_waits": copied(f"@!%p0 bra THERE; {WAIT} THERE: bar.sync 0;"),
    "other_memory_before": f"{MINE} add.u64 %d4, %d1, %d2; ld.global.u32 %r21, [%d4+2048]; {WAIT} "
                           "ld.global.u32 %r22, [%d3]; st.global.u32 [%d4], %r22; ret;",
    "triggers_too": copied(TRIGGER + WAIT),
    "bulk_copy": BULK.format(before=WAIT),
    "atomics_of_both": f"{MINE} atom.global.add.u32 %r21, [%d3+3072], 1; {WAIT} ld.global.u32 %r22, [%d3]; ret;",
}  # fmt: skip
WRONG = {
    "no_wait": copied(),
    "wait_behind": copied(after=WAIT),
    "one_warp_waits_for_itself": copied(f"@!%p1 bra THERE; {WAIT} THERE:"),
    "barrier_before_the_wait": copied(f"bar.sync 0; @!%p1 bra THERE; {WAIT} THERE:"),
    "some_blocks_wait": copied(f"mov.u32 %r22, %ctaid.x; setp.ne.u32 %p5, %r22, 0; @%p5 bra THERE; {WAIT} THERE:"),
    "trigger_is_no_wait": copied(TRIGGER),
    "store_over_what_the_other_stores": f"{MINE} st.global.u32 [%d3], %r20; {WAIT} ret;",
    "non_coherent": copied().replace("ld.global.u32", "ld.global.nc.u32"),
    "bulk_copy": BULK.format(before=""),
    "bulk_copy_of_a_warp_that_does_not_wait": BULK.format(before=f"@%p1 bra THERE; {WAIT} THERE:"),
    "an_acquire_is_no_wait": copied().replace("ld.global.u32", "ld.acquire.gpu.global.u32"),
}


@pytest.mark.parametrize("grid", [2, 1])
@pytest.mark.parametrize("name", RIGHT)
def test_a_grid_that_waits_is_clean(name: str, grid: int) -> None:
    stream = Stream()
    first = FIRST if name != "atomics_of_both" else f"{MINE} {TRIGGER} atom.global.add.u32 %r21, [%d3+3072], 1; ret;"
    assert not stream.launch(first).hazards
    outcome = stream.launch(RIGHT[name], grid)
    assert not outcome.hazards, [h.message for h in outcome.hazards]


@pytest.mark.parametrize("level", ["strict", "practice"])
@pytest.mark.parametrize("name", WRONG)
def test_a_grid_that_does_not_is_found(name: str, level: Level) -> None:
    stream = Stream(level)
    stream.launch(FIRST)
    outcome = stream.launch(WRONG[name])
    assert found(outcome) == {"G9"}
    hazard = outcome.hazards[0]
    assert hazard.first is not None
    assert hazard.first.opcode == "st.global.u32"
    assert hazard.remedy == "griddepcontrol.wait"


def test_a_store_over_what_the_prerequisite_reads_is_found() -> None:
    stream = Stream()
    stream.launch(copied(TRIGGER))
    assert found(stream.launch(f"{MINE} st.global.u32 [%d3], %r20; ret;")) == {"G9"}


@pytest.mark.parametrize("name", WRONG)
def test_a_grid_that_does_not_trigger_has_ended(name: str) -> None:
    """Its dependents begin once all of its blocks have completed; that its memory is visible then the text does not say
    (ruling implicit-trigger)."""
    for level in ("practice", "strict"):
        stream = Stream(level)
        stream.launch(FIRST.replace(TRIGGER, ""))
        outcome = stream.launch(WRONG[name])
        assert found(outcome) == ({"G9"} if level == "strict" else set())
        assert {h.kind.id for h in outcome.hazards} == {"G9"}


@pytest.mark.parametrize("name", RIGHT)
def test_a_wait_is_enough_behind_a_grid_that_does_not_trigger(name: str) -> None:
    stream = Stream()
    first = FIRST if name != "atomics_of_both" else f"{MINE} atom.global.add.u32 %r21, [%d3+3072], 1; ret;"
    stream.launch(first.replace(TRIGGER, ""))
    assert not stream.launch(RIGHT[name]).hazards


def test_a_grid_further_back_was_over_before_the_one_between() -> None:
    stream = Stream()
    stream.launch(FIRST.replace(TRIGGER, ""))
    stream.launch(f"{WAIT} ret;")
    assert not stream.launch(copied()).hazards


def test_other_launches_come_after_the_end() -> None:
    stream = Stream()
    stream.launch(FIRST)
    assert not stream.launch(copied(), dependent=False).hazards


def test_a_grid_between_that_does_not_wait_hides_nothing() -> None:
    stream = Stream()
    stream.launch(FIRST)
    stream.launch(f"{TRIGGER} ret;")
    assert found(stream.launch(copied())) == {"G9"}


def test_the_prerequisite_is_done_with_its_bulk_stores() -> None:
    store = f"""{MINE} @%p0 st.shared.v4.u32 [%r2], {{%r0, %r0, %r0, %r0}}; fence.proxy.async.shared::cta; bar.sync 0;
{TRIGGER} @!%p0 ret; cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r2], 16; cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0; ret;"""
    stream = Stream("practice")
    stream.launch(store, 1)
    assert not found(stream.launch(copied(WAIT), 1))


@pytest.mark.parametrize("mode", ["checking", "functional"])
def test_values_are_those_of_launches_in_order(mode: str) -> None:
    stream = Stream(mode=mode)
    stream.launch(FIRST)
    stream.launch(copied(WAIT))
    got = stream.memory.read(stream.places[1], 1024).view(np.uint32)
    np.testing.assert_array_equal(got, np.arange(256))
