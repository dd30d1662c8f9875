# SPDX-License-Identifier: Apache-2.0
"""Blocks that share an SM share its 512 columns of Tensor Memory (PTX ISA 9.7.16.7.1): a block that waits for columns
which others hold, who wait for it in turn, is named; one that gets them in time is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from porter.ptx.occupancy import Taken
from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate
from porter.sim.results import Mode, Schedule

KERNEL = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
{{
.reg .b32 %r<30>; .reg .b64 %d<10>; .reg .pred %p<10>; .shared .align 4 .b8 slot[8];
ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0;
mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x; mov.u32 %r9, slot;
mul.wide.u32 %d1, %r2, 4; add.u64 %d1, %d1, %d0; add.u64 %d1, %d1, 256;
@!%p1 bra HELD; {alloc}
HELD: bar.sync 0; ld.shared.u32 %r10, [%r9];
{wait}
@!%p1 bra FREED; {free}
FREED: @%p0 st.global.u32 [%d1], %r10; ret;
}}
"""
ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], {}; "
GIVEN_UP = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
FREE = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, {};"
ARRIVE = "@!%p0 bra MET; fence.acq_rel.gpu; atom.global.add.u32 %r11, [%d0], 1; "
MET = " @%p5 bra W; fence.acq_rel.gpu; MET: bar.sync 0;\n"
# How the blocks of a grid wait for all of them.
GRID_WAITS = {
    "a volatile load": ARRIVE + "W: ld.volatile.global.u32 %r12, [%d0]; setp.lt.u32 %p5, %r12, %r3;" + MET,
    "an acquire": ARRIVE + "W: ld.acquire.gpu.global.u32 %r12, [%d0]; setp.lt.u32 %p5, %r12, %r3;" + MET,
    "a relaxed load": ARRIVE + "W: ld.relaxed.gpu.global.u32 %r12, [%d0]; setp.lt.u32 %p5, %r12, %r3;" + MET,
    "a generic address": ARRIVE + "W: ld.volatile.u32 %r12, [%d0]; setp.lt.u32 %p5, %r12, %r3;" + MET,
    "a weak load past L1": ARRIVE + "W: ld.global.cv.u32 %r12, [%d0]; setp.lt.u32 %p5, %r12, %r3;" + MET,
    "an atomic that adds 0": ARRIVE + "W: atom.global.add.u32 %r12, [%d0], 0; setp.lt.u32 %p5, %r12, %r3;" + MET,
    "an atomic or": ARRIVE + "W: atom.global.or.b32 %r12, [%d0], 0; setp.lt.u32 %p5, %r12, %r3;" + MET,
    "a compare and swap": ARRIVE + "W: atom.global.cas.b32 %r12, [%d0], 0, 0; setp.lt.u32 %p5, %r12, %r3;" + MET,
    "with pauses": ARRIVE
    + "W: nanosleep.u32 64; ld.volatile.global.u32 %r12, [%d0]; setp.lt.u32 %p5, %r12, %r3;"
    + MET,
    "all threads look": "@%p0 atom.global.add.u32 %r11, [%d0], 1;\n"
    "W: ld.volatile.global.u32 %r12, [%d0]; setp.lt.u32 %p5, %r12, %r3; @%p5 bra W; bar.sync 0;\n",
    "a flag of the last block": "@!%p0 bra MET; mov.u32 %r11, 1; st.release.gpu.global.u32 [%d1+256], %r11;\n"
    "sub.u32 %r13, %r3, 1; mul.wide.u32 %d2, %r13, 4; add.u64 %d2, %d2, %d0;\n"
    "W: ld.acquire.gpu.global.u32 %r12, [%d2+512]; setp.eq.u32 %p5, %r12, 0;" + MET,
}
NO_WAIT = "bar.sync 0;"
LAST = GRID_WAITS["an acquire"]


def run(
    columns: int, wait: str, blocks: int, sms: int | None = 2, *, alloc: str = ALLOC + GIVEN_UP, free: str = FREE,
    cooperative: bool = True, registers: int | None = 24, cluster: int = 1, schedule: Schedule = "late",
    mode: Mode = "functional",
) -> Outcome:  # fmt: skip
    memory = GlobalMemory()
    out = memory.alloc(2048, fill=0)
    text = KERNEL.format(alloc=alloc.format(columns), wait=wait, free=free.format(columns))
    module = parse_module(text)
    options = Options(
        mode=mode, schedule=schedule, multiprocessors=sms,
        taken=lambda: None if registers is None else Taken(registers=registers),
        max_warp_instructions=2_000_000,
    )  # fmt: skip
    launch = Launch((blocks, 1, 1), (64, 1, 1), (cluster, 1, 1), cooperative=cooperative)
    return simulate(module, "k", launch, pack_params(module.function("k"), [out]), memory, options)


def waits(outcome: Outcome, block: int, columns: int, held: int) -> None:
    (found,) = outcome.findings
    assert (outcome.status, found.code.id, found.block) == ("error", "PT4020", (block, 0, 0)), found
    assert f"block {block},0,0 waits for {columns} columns of 512, and other blocks of its SM hold {held}" in str(found)


@pytest.mark.parametrize("name", GRID_WAITS)
def test_a_grid_that_waits_for_a_block_without_columns(name: str) -> None:
    """Three blocks of 256 columns an SM of which two have room."""
    waits(run(256, GRID_WAITS[name], 5), 4, 256, 512)


@pytest.mark.parametrize("schedule", ["late", "eager", "random"])
@pytest.mark.parametrize("mode", ["functional", "checking"])
def test_it_is_found_under_every_schedule(schedule: Schedule, mode: Mode) -> None:
    waits(run(256, LAST, 5, schedule=schedule, mode=mode), 4, 256, 512)


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", GRID_WAITS)
def test_a_grid_that_waits_with_room_for_all(name: str) -> None:
    outcome = run(256, GRID_WAITS[name], 4)
    assert outcome.status == "ok", outcome.findings


def test_columns_of_blocks_that_share_an_sm_are_no_hazard() -> None:
    outcome = run(128, LAST, 8, mode="checking")
    assert outcome.status == "ok", outcome.findings
    assert not outcome.hazards


@pytest.mark.parametrize(
    ("columns", "blocks", "sms", "held"),
    [
        (512, 3, 2, 512), (512, 2, 1, 512), (128, 5, 1, 512), (256, 7, 3, 512), (64, 17, 2, 512), (32, 17, 1, 512),
        (512, 4, 4, None), (128, 8, 2, None), (64, 8, 1, None), (256, 6, 3, None), (32, 16, 1, None),
    ],
)  # fmt: skip
def test_how_many_blocks_have_room(columns: int, blocks: int, sms: int, held: int | None) -> None:
    outcome = run(columns, LAST, blocks, sms)
    if held is None:
        assert outcome.status == "ok", outcome.findings
    else:
        waits(outcome, blocks - 1, columns, held)


def test_blocks_take_turns_where_nobody_waits_for_them() -> None:
    assert run(512, NO_WAIT, 9).status == "ok"
    assert run(512, NO_WAIT, 9, cooperative=False).status == "ok"


def test_columns_that_are_freed_ahead_of_the_wait() -> None:
    outcome = run(512, "@!%p1 bra F; " + FREE.format(512) + " F: " + LAST, 6, free="")
    assert outcome.status == "ok", outcome.findings


def test_blocks_that_keep_the_right_to_allocate() -> None:
    """There are columns for both, and the second one may not have them (ruling `alloc-permit`)."""
    (found,) = run(128, LAST, 3, alloc=ALLOC).findings
    assert (found.code.id, found.block) == ("PT4020", (2, 0, 0))
    assert "block 0,0,0 of its SM has not given up the right to allocate" in str(found)
    assert run(128, LAST, 2, alloc=ALLOC).status == "ok"
    assert run(128, NO_WAIT, 8, alloc=ALLOC).status == "ok"
    given_up = "@!%p1 bra G; " + GIVEN_UP + " G: " + LAST
    assert run(128, given_up, 3, alloc=ALLOC).status == "ok"


def test_a_block_that_waits_for_its_own_columns() -> None:
    second = ALLOC.format(256) + ALLOC.replace("%r9", "%r9+4").format(512)
    (found,) = run(256, NO_WAIT, 1, alloc=second).findings
    assert found.code.id == "PT4020"
    assert "block 0,0,0 waits for 512 columns of 512, and holds 256 itself" in str(found)
    (found,) = run(256, NO_WAIT, 1, alloc=ALLOC.format(256) * 3).findings
    assert "waits for 256 columns of 512, and holds 512 itself" in str(found)
    (found,) = run(256, LAST, 3, alloc=ALLOC.format(256) * 2 + GIVEN_UP).findings
    assert "block 2,0,0 waits for 256 columns of 512, and other blocks of its SM hold 512" in str(found)


def test_a_block_that_ends_with_its_columns() -> None:
    """Without a second block on the SM it is a leak; with one, that one waits for ever."""
    keep = "setp.eq.u32 %p7, %r2, 0; @%p7 bra FREED;" + FREE
    assert [f.code.id for f in run(512, NO_WAIT, 2, free=keep).findings] == ["PT4008"]
    (found,) = run(512, LAST.replace("%r3;", "2;"), 3, free=keep).findings
    assert (found.code.id, found.block) == ("PT4020", (2, 0, 0))
    assert "block 0,0,0 has ended without freeing them" in str(found)


def test_another_deadlock_is_not_told_as_a_wait_for_columns() -> None:
    """The block that holds the columns waits for an mbarrier that nobody arrives on."""
    stuck = (
        "setp.eq.u32 %p7, %r2, 0; @!%p7 bra MET; @%p0 mbarrier.init.shared.b64 [%r9], 1; bar.sync 0;\n"
        "W: mbarrier.try_wait.parity.shared.b64 %p6, [%r9], 0; @!%p6 bra W; MET: bar.sync 0;"
    )  # fmt: skip
    (found,) = run(512, stuck, 3).findings
    assert found.code.id == "PT4003"
    assert "Tensor Memory, block 2,0,0 waits for 512 columns of 512, and other blocks of its SM hold 512" in str(found)


PAIR = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
PAIRED = (ALLOC + GIVEN_UP).replace("cta_group::1", "cta_group::2")


def test_pairs_share_two_multiprocessors() -> None:
    fits = run(
        256, PAIR + LAST + PAIR, 8, 4, alloc=PAIRED, free=FREE.replace("cta_group::1", "cta_group::2"), cluster=2
    )
    assert fits.status == "ok", fits.findings
    outcome = run(256, PAIR + LAST + PAIR, 6, 2, alloc=PAIRED, cluster=2)
    (found,) = outcome.findings
    assert (found.code.id, found.block) == ("PT4020", (4, 0, 0)), found


def test_the_wait_of_a_cluster_for_a_block_without_columns() -> None:
    """Nobody looks at memory: the blocks of the cluster stand at its barrier."""
    (found,) = run(512, PAIR + NO_WAIT, 4, 1, cluster=4).findings
    assert (found.code.id, found.block) == ("PT4020", (1, 0, 0))


def test_a_launch_that_is_not_cooperative() -> None:
    """As many blocks run as the device takes by registers, shared memory and threads, if they wait for each other."""
    waits(run(256, LAST, 5, cooperative=False), 4, 256, 512)
    assert run(256, LAST, 4, cooperative=False).status == "ok"
    # 255 registers of 64 threads leave room for four blocks an SM, and columns for two.
    waits(run(256, LAST, 8, cooperative=False, registers=255), 4, 256, 512)
    # Nobody knows the registers: each block is taken to be alone.
    assert run(256, LAST, 5, cooperative=False, registers=None).status == "ok"


def test_more_blocks_than_a_chip_has_multiprocessors() -> None:
    """148 of sm_100a, with two blocks each that have columns."""
    outcome = run(256, LAST.replace("%r3;", "297;"), 297, None)
    waits(outcome, 296, 256, 512)


def test_a_cooperative_launch_that_a_chip_refuses() -> None:
    outcome = run(32, LAST, 17, 2, registers=128)
    (found,) = outcome.findings
    assert found.code.id == "PT4013"
    assert "17 blocks of a cooperative launch cannot be there at one time: 2 multiprocessors take 8 each" in str(found)
    assert run(32, LAST, 16, 2, registers=128).status == "ok"


def test_the_first_column_that_a_block_gets() -> None:
    memory = GlobalMemory()
    out = memory.alloc(2048, fill=0)
    module = parse_module(KERNEL.format(alloc=(ALLOC + GIVEN_UP).format(128), wait=LAST, free=FREE.format(128)))
    launch = replace(Launch((8, 1, 1), (64, 1, 1)), cooperative=True)
    params = pack_params(module.function("k"), [out])
    assert simulate(module, "k", launch, params, memory, Options(multiprocessors=2)).status == "ok"
    assert memory.read(out + 256, 32).view(np.uint32).tolist() == [0, 0, 128, 128, 256, 256, 384, 384]
