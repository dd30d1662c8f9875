# SPDX-License-Identifier: Apache-2.0
"""setmaxnreg: registers of a block are given back and taken, and who asks for more than there are waits."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from core_ptx import module_text, upload

from porter.diagnostics import Code
from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate
from porter.sim.check.rulings import Ruling
from porter.sim.results import Mode, Schedule

BOUNDS = ".maxntid 384 .minnctapersm 1"
# Three warpgroups, of which the first one gives registers to the others: 168 each, then 40 and 232.
HEAD = """.reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<9>; ld.param.u64 %d1, [out]; mov.u32 %r0, %tid.x;
mov.u32 %r1, %warpid; setp.lt.u32 %p1, %r0, 128; setp.lt.u32 %p2, %r0, 64; mov.u32 %r3, 7;
mad.wide.u32 %d2, %r0, 4, %d1;"""
OUT = "st.global.u32 [%d2], %r3;"
PRODUCER, CONSUMER = "{dec} bra JOIN;", "CONSUMER: {inc} bra JOIN;"
DEC, INC = "setmaxnreg.dec.sync.aligned.u32 40;", "setmaxnreg.inc.sync.aligned.u32 232;"
SCHEDULES = pytest.mark.parametrize("schedule", ["eager", "late", "random"])


def launch(
    body: str,
    schedule: Schedule = "late",
    mode: Mode = "functional",
    target: str = "sm_100a",
    threads: int = 384,
    bounds: str = BOUNDS,
    registers: int | None = None,
    grid: int = 1,
    level: Literal["strict", "practice"] = "strict",
) -> tuple[Outcome, list[int]]:
    memory = GlobalMemory()
    out = upload(memory, np.zeros(1024, np.uint32))
    text = module_text(["out"], HEAD + body, target).replace("(.param .u64 out)", f"(.param .u64 out) {bounds}")
    module = parse_module(text)
    params = pack_params(module.function("k"), [out])
    at = Launch((grid, 1, 1), (threads, 1, 1), registers=registers)
    outcome = simulate(module, "k", at, params, memory, Options(mode=mode, level=level, schedule=schedule, seed=5))
    return outcome, memory.read(out, 4096).view(np.uint32)[:threads].tolist()


def roles(dec: str = DEC, inc: str = INC, end: str = "JOIN: " + OUT + "ret;") -> str:
    """The first warpgroup comes to `dec`, the others to `inc`."""
    return "@!%p1 bra CONSUMER;" + PRODUCER.format(dec=dec) + CONSUMER.format(inc=inc) + end


@SCHEDULES
@pytest.mark.parametrize("mode", ["functional", "checking"])
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_registers_go_from_one_warpgroup_to_the_others(schedule: Schedule, mode: Mode, target: str) -> None:
    outcome, got = launch(roles(), schedule, mode, target, grid=3)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert got == [7] * 384


def assert_waits(outcome: Outcome, *words: str) -> str:
    assert outcome.status == "error"
    found = outcome.findings[0]
    assert found.code is Code.SIM_DEADLOCK, str(found)
    for word in ("setmaxnreg.inc", "registers", *words):
        assert word in found.message, found.message
    return found.message


@SCHEDULES
@pytest.mark.parametrize("mode", ["functional", "checking"])
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_a_dropped_dec_is_a_deadlock(schedule: Schedule, mode: Mode, target: str) -> None:
    outcome, _ = launch(roles(dec=""), schedule, mode, target)
    text = assert_waits(outcome, "no warp has executed setmaxnreg.dec", "the block's pool has 0")
    # Eight warps want 64 more for each of their threads.
    assert f"{8 * 32 * 64} more are asked for" in text
    assert f"{8 * 32 * 64} are missing" in text
    assert "warps 4 to 11 of block 0,0,0" in text
    assert outcome.findings[0].warp in range(4, 12)


def test_the_deadlock_is_told_before_what_waits_for_its_victims() -> None:
    """The producer waits for consumers that never come."""
    end = "JOIN: bar.sync 1, 384; ret;"
    outcome, _ = launch(roles(dec="", end=end))
    text = assert_waits(outcome)
    assert text.index("setmaxnreg.inc 232") < text.index("barrier 1")
    assert "Add the setmaxnreg.dec" in text.partition(";")[0]


def test_a_dec_of_too_little() -> None:
    text = assert_waits(launch(roles(dec=DEC.replace("40", "48")))[0], "4 warps have given some back")
    # What 48 in place of 40 leaves short: eight each for 128 threads.
    assert "1024 are missing" in text
    assert "lower its count" in text


def test_asking_for_more_than_there_can_be() -> None:
    """240 for 256 threads, with 24 for the other 128, are the 64512 that 168 for each of 384 are."""
    high, low = INC.replace("232", "240"), DEC.replace("40", "24")
    assert launch(roles(low, high))[0].status == "ok"
    text = assert_waits(launch(roles(low, INC.replace("232", "248")))[0])
    assert "can be had by who waits" in text
    assert "ask for less" in text


def test_the_dec_may_come_later() -> None:
    """Consumers that are there first wait."""
    body = roles(dec="mov.u32 %r4, 0; L: add.u32 %r4, %r4, 1; setp.lt.u32 %p3, %r4, 200; @%p3 bra L;" + DEC)
    outcome, got = launch(body)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert got == [7] * 384


def test_a_dec_behind_what_the_consumers_do_is_a_deadlock() -> None:
    body = roles(dec="bar.sync 1, 384;" + DEC, inc=INC + "bar.sync 1, 384;")
    assert_waits(launch(body)[0], "barrier 1")


def test_registers_can_be_had_again() -> None:
    """One warpgroup gives back what it took; another one takes it."""
    first = "setmaxnreg.dec.sync.aligned.u32 40; bar.sync 1, 256; setmaxnreg.inc.sync.aligned.u32 104;"
    second = "setmaxnreg.inc.sync.aligned.u32 168; setmaxnreg.dec.sync.aligned.u32 104; bar.sync 1, 256;"
    body = "@!%p1 bra CONSUMER;" + first + "bra JOIN; CONSUMER: " + second + "JOIN: " + OUT + "ret;"
    # 104 each: the first one's 64 let the other one have 168, which then gives them back.
    outcome, _ = launch(body, threads=256, bounds=".maxnreg 104")
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert_waits(launch(body.replace("u32 104; bar", "u32 112; bar"), threads=256, bounds=".maxnreg 104")[0])


def test_ended_warps_give_nothing_back() -> None:
    """The ISA lets registers come to the pool by setmaxnreg.dec alone."""
    assert_waits(launch(roles(dec="ret;"))[0])


@pytest.mark.parametrize("bounds", ["", ".maxntid 384", ".minnctapersm 1"])
def test_without_bounds_ptxas_ignores_it(bounds: str) -> None:
    """Nothing says how many registers the threads start with: no warp waits."""
    outcome, got = launch(roles(dec=""), bounds=bounds)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert got == [7] * 384


def test_the_launch_may_say_how_many_there_are() -> None:
    assert_waits(launch(roles(dec=""), bounds="", registers=168)[0])
    assert launch(roles(), bounds="", registers=168)[0].status == "ok"
    assert launch(roles(dec=""), registers=0)[0].status == "ok"


def assert_undefined(outcome: Outcome, *words: str) -> None:
    assert outcome.status == "error"
    assert outcome.findings[0].code is Code.SIM_REGISTERS, str(outcome.findings[0])
    for word in words:
        assert word in outcome.findings[0].message, outcome.findings[0].message


HALF = "@!%p2 bra SKIP;" + DEC + "SKIP:"
OTHERS = "@!%p2 bra OTHER;" + DEC + "bra SAME; OTHER: " + DEC.replace("40", "56") + "SAME:"


@SCHEDULES
@pytest.mark.parametrize("dec", [HALF, OTHERS], ids=["some warps do not", "another count"])
def test_all_warps_of_a_warpgroup_execute_the_same(schedule: Schedule, dec: str) -> None:
    """Shipped kernels have roles of single warps that give back different counts: strict level alone refuses it."""
    assert launch(roles(dec=dec, inc=""), schedule)[0].status == "ok"
    for level, severity in (("strict", "error"), ("practice", "review")):
        outcome, _ = launch(roles(dec=dec, inc=""), schedule, "checking", level=level)
        assert outcome.status == "ok"
        assert [(h.kind.id, h.severity, h.ruling) for h in outcome.hazards] == [("R1", severity, Ruling.REGISTER_MOVES)]


def test_the_same_at_two_places_is_the_same() -> None:
    twice = "@!%p2 bra OTHER;" + DEC + "bra SAME; OTHER: " + DEC + "SAME:"
    assert not launch(roles(dec=twice), mode="checking", level="strict")[0].hazards


def test_registers_are_counted_by_warps() -> None:
    """Two warps that give back less leave the others short."""
    assert_waits(launch(roles(dec=OTHERS))[0], f"{2 * 32 * 16} are missing")


def test_a_predicate_that_fails_moves_nothing() -> None:
    """Predicates that hold for whole warpgroups stand for a branch."""
    body = "@%p1 " + DEC + " @!%p1 " + INC + OUT + "ret;"
    outcome, got = launch(body)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert got == [7] * 384
    assert_waits(launch(body.replace("@%p1 " + DEC, ""))[0])


def test_diverged_warps_are_gathered() -> None:
    """Lanes that come one after another execute it together, once."""
    lanes = "and.b32 %r5, %r0, 1; setp.eq.u32 %p4, %r5, 0; @%p4 bra EVEN; add.u32 %r3, %r3, 0; EVEN:"
    outcome, got = launch(lanes + roles())
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert got == [7] * 384


@pytest.mark.parametrize(("body", "words"), [
    (roles(dec="setmaxnreg.dec.sync.aligned.u32 200;", inc=""), ("200", "more than the 168")),
    (roles(dec="setmaxnreg.inc.sync.aligned.u32 160;", inc=INC), ("160", "fewer than the 168")),
    (roles(dec="setmaxnreg.dec.sync.aligned.u32 20;"), ("24 to 256",)),
    (roles(dec="setmaxnreg.dec.sync.aligned.u32 44;"), ("multiple of 8",)),
])  # fmt: skip
def test_counts_that_the_isa_leaves_undefined(body: str, words: tuple[str, ...]) -> None:
    assert_undefined(launch(body)[0], *words)


def test_a_last_warpgroup_of_fewer_warps() -> None:
    """A block of nine warps: the ninth is a warpgroup by itself."""
    body = roles(dec=DEC, inc="").replace("setp.lt.u32 %p1, %r0, 128", "setp.ge.u32 %p1, %r0, 256")
    assert launch(body, threads=288)[0].status == "ok"


MORE = DEC.replace("40", "24")


@SCHEDULES
@pytest.mark.parametrize(
    ("between", "met"),
    [("bar.sync 1, 128;", True), ("", False), ("bar.warp.sync 0xffffffff;", False), ("@%p2 bar.sync 1, 32;", False)],
    ids=["a barrier", "nothing", "a barrier of each warp", "a barrier of one warp"],
)
def test_a_warpgroup_meets_before_the_next(schedule: Schedule, between: str, met: bool) -> None:
    for level, severity in (("strict", "error"), ("practice", "review")):
        outcome, _ = launch(roles(dec=f"{DEC} {between} {MORE}", inc=""), schedule, "checking", level=level)
        assert outcome.status == "ok", [str(f) for f in outcome.findings]
        found = {(h.kind.id, h.severity, h.ruling) for h in outcome.hazards}
        assert found == (set() if met else {("R1", severity, Ruling.REGISTER_MOVES)})
