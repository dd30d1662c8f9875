# SPDX-License-Identifier: Apache-2.0
"""Tensor Memory that is not allocated: whatever touches it ends the run, in every mode and under every schedule.

One block of 128 threads. Warp 0 allocates 32 columns at column 0; `%r10` is the address, `%r13` that of the warp's
own lanes, `%p0` holds in thread 0, `%p1` in warp 0, `%p2` in thread 32, `%p3` in warp 1.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from core_ptx import module_text, run, upload

from porter.diagnostics import Code
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind
from porter.sim import GlobalMemory, Options, Outcome
from porter.sim.results import Mode, Schedule

MODES: list[tuple[Mode, Schedule]] = [
    *itertools.product(("functional", "checking"), ("eager", "late", "random")),
]
LATE: list[tuple[Mode, Schedule]] = [("functional", "late"), ("checking", "late")]

HEAD = """.reg .b32 %r<99>; .reg .b64 %d<20>; .reg .pred %p<10>; mov.u32 %r0, %tid.x; mov.u32 %r1, %warpid;
.shared .align 8 .b8 bar[8]; .shared .align 4 .b8 slot[8]; mov.u32 %r2, dyn; mov.u32 %r8, bar; mov.u32 %r9, slot;
ld.param.u64 %d1, [out]; setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r0, 32;
setp.eq.u32 %p3, %r1, 1;
mov.u32 %r3, 0; mad.lo.u32 %r4, %r0, 64, %r2; st.shared.v4.u32 [%r4], {{%r3, %r3, %r3, %r3}};
st.shared.v4.u32 [%r4+16], {{%r3, %r3, %r3, %r3}}; st.shared.v4.u32 [%r4+32], {{%r3, %r3, %r3, %r3}};
st.shared.v4.u32 [%r4+48], {{%r3, %r3, %r3, %r3}};
@%p0 mbarrier.init.shared.b64 [%r8], 1; fence.proxy.async; @!%p1 bra NOALLOC;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], {columns};
NOALLOC: bar.sync 0; tcgen05.fence::after_thread_sync; ld.shared.u32 %r10, [%r9];
shl.b32 %r13, %r1, 21; add.u32 %r13, %r13, %r10; shr.u32 %r5, %r2, 4; cvt.u64.u32 %d2, %r5; or.b64 %d2, %d2, {desc};
mov.u32 %r12, {idesc}; setp.ne.u32 %p4, 1, 0; setp.ne.u32 %p5, 0, 0;
"""
FREE = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, {columns};"
SYNC = "tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;"
# All warps meet, and warp 0 frees the columns.
END = SYNC + " @!%p1 bra END; {free} END: ret;"
COMMIT = """@%p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r8];
WAIT: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra WAIT; tcgen05.fence::after_thread_sync;"""
ST = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r13+{column}], {{%r0}};"
WAIT_ST = "tcgen05.wait::st.sync.aligned;"
LD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r21}}, [%r13+{column}];"
WAIT_LD = "tcgen05.wait::ld.sync.aligned;"
OUT = "mad.wide.u32 %d4, %r0, 4, %d1; st.global.u32 [%d4], %r21;"

# No swizzle: K-major core matrices 128 bytes apart.
DESC = 128 >> 4 << 16 | 128 >> 4 << 32 | 1 << 46
IDESC = InstructionDescriptor(Kind.F16, 64, 8, ElementType.F32, ElementType.F16, ElementType.F16).encode()
MMA = "@%p0 tcgen05.mma.cta_group::1.kind::f16 [{d}], {a}, %d2, %r12, %p5;"
CP = "@%p0 tcgen05.cp.cta_group::1.128x128b [{to}], %d2;"
SHIFT = "@%p0 tcgen05.shift.cta_group::1.down [{at}];"


def kernel(*parts: str, columns: int = 32, end: str = END, column: int = 3) -> str:
    free = FREE.format(columns=columns)
    names = {"columns": columns, "idesc": IDESC, "desc": DESC, "free": free, "column": column}
    text = HEAD + "\n".join(parts) + "\n" + end
    for name in ("d", "a", "to", "at"):
        names.setdefault(name, "%r10")
    return module_text(["out"], text.format(**names), "sm_100a", ".extern .shared .align 1024 .b8 dyn[];")


def launch(text: str, mode: Mode, schedule: Schedule, seed: int = 0, **options: int) -> Outcome:
    memory = GlobalMemory()
    out = upload(memory, np.zeros(4096, np.uint8))
    chosen = Options(mode=mode, schedule=schedule, seed=seed, level="practice")
    return run(text, [out], memory, block=128, smem=8192, options=chosen, **options)


def assert_refused(outcome: Outcome, *words: str) -> None:
    assert outcome.status == "error"
    assert outcome.findings[0].code is Code.SIM_TMEM_UNALLOCATED, str(outcome.findings[0])
    for word in words:
        assert word in outcome.findings[0].message, outcome.findings[0].message


def mma(d: str = "%r10", a: str = "%d2") -> str:
    return MMA.replace("{d}", d).replace("{a}", a)


def cp(to: str = "%r10") -> str:
    return CP.replace("{to}", to)


def shift(at: str = "%r10") -> str:
    return SHIFT.replace("{at}", at)


ALL_RIGHT = {
    "store and load": (ST, WAIT_ST, LD, WAIT_LD, OUT),
    "mma": (ST, WAIT_ST, SYNC, mma(), COMMIT, LD, WAIT_LD, OUT),
    "mma with A in Tensor Memory": (ST, WAIT_ST, SYNC, mma(a="[%r10+8]"), COMMIT),
    "copy": (cp(), COMMIT, LD, WAIT_LD, OUT),
    "shift": (ST, WAIT_ST, SYNC, shift(), COMMIT),
}


@pytest.mark.parametrize(("mode", "schedule"), MODES)
@pytest.mark.parametrize("parts", ALL_RIGHT.values(), ids=ALL_RIGHT)
def test_allocated_columns_are_used(parts: tuple[str, ...], mode: Mode, schedule: Schedule) -> None:
    outcome = launch(kernel(*parts), mode, schedule)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]


BEYOND = {
    "ld": (LD.replace("{column}", "32"), WAIT_LD),
    "st": (ST.replace("{column}", "32"), WAIT_ST),
    "mma, accumulator": (mma(d="%r10+28"), COMMIT),
    "mma, A": (mma(a="[%r10+28]"), COMMIT),
    "cp": (cp("%r10+30"), COMMIT),
    "shift": (shift("%r10+28"), COMMIT),
}


@pytest.mark.parametrize(("mode", "schedule"), MODES)
@pytest.mark.parametrize("parts", BEYOND.values(), ids=BEYOND)
def test_columns_past_the_allocation(parts: tuple[str, ...], mode: Mode, schedule: Schedule) -> None:
    assert_refused(launch(kernel(*parts), mode, schedule), "column 32")


FREED_FIRST = SYNC + " @!%p1 bra FREED; {free} FREED: " + SYNC


@pytest.mark.parametrize(("mode", "schedule"), MODES)
@pytest.mark.parametrize("parts", ALL_RIGHT.values(), ids=ALL_RIGHT)
def test_use_after_dealloc(parts: tuple[str, ...], mode: Mode, schedule: Schedule) -> None:
    assert_refused(launch(kernel(FREED_FIRST, *parts, end="ret;"), mode, schedule), "not allocated")


IN_FLIGHT = {
    "ld": (ST, WAIT_ST, LD),
    "st": (ST,),
    "mma": (mma(),),
    "cp": (cp(),),
    "shift": (ST, WAIT_ST, SYNC, shift()),
    "commit not waited for": (cp(), COMMIT.partition("WAIT:")[0]),
}


@pytest.mark.parametrize(("mode", "schedule"), LATE)
@pytest.mark.parametrize("parts", IN_FLIGHT.values(), ids=IN_FLIGHT)
def test_in_flight_when_the_columns_are_freed(parts: tuple[str, ...], mode: Mode, schedule: Schedule) -> None:
    assert_refused(launch(kernel(*parts), mode, schedule), "when it completes")


@pytest.mark.parametrize("parts", IN_FLIGHT.values(), ids=IN_FLIGHT)
def test_a_random_schedule_finds_what_is_in_flight(parts: tuple[str, ...]) -> None:
    found = [launch(kernel(*parts), "functional", "random", seed) for seed in range(12)]
    assert any(outcome.status == "error" for outcome in found)
    for outcome in found:
        if outcome.status == "error":
            assert_refused(outcome, "when it completes")


# The columns go to another allocation before the operation lands: they are allocated, but no longer the same.
AGAIN = (
    SYNC
    + """ @!%p1 bra END; {free} tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], {columns};
{again} {free} END: ret;"""
)


@pytest.mark.parametrize(("mode", "schedule"), LATE)
@pytest.mark.parametrize("parts", IN_FLIGHT.values(), ids=IN_FLIGHT)
def test_in_flight_when_the_columns_go_to_another_allocation(
    parts: tuple[str, ...], mode: Mode, schedule: Schedule
) -> None:
    again = COMMIT.replace("WAIT", "AGAIN") + WAIT_ST + WAIT_LD
    if "commit" in parts[-1]:
        again = again[again.index("AGAIN:") :]
    outcome = launch(kernel(*parts, end=AGAIN.replace("{again}", again)), mode, schedule)
    assert_refused(outcome, "when it completes")


@pytest.mark.parametrize(("mode", "schedule"), MODES)
def test_an_operation_that_no_thread_of_the_warp_executes_touches_nothing(mode: Mode, schedule: Schedule) -> None:
    """A predicate that fails, with addresses that would not do."""
    skipped = "".join(f"@%p5 {x.replace('{column}', '99')}" for x in (LD, ST))
    skipped += "@%p5 " + FREE.replace("%r10", "%r12")
    outcome = launch(kernel(skipped, ST, WAIT_ST, LD, WAIT_LD, OUT), mode, schedule)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]


@pytest.mark.parametrize(("mode", "schedule"), MODES[:2] + MODES[3:5])
@pytest.mark.parametrize("ahead", [False, True], ids=["freed behind the loads", "freed ahead of the loads"])
def test_freed_by_a_warp_that_waits_for_nobody(mode: Mode, schedule: Schedule, ahead: bool) -> None:
    """Warp 0 frees the columns where it has met the others, who then still read them: wherever in the code the two
    stand, it may come first."""
    free = "FREE: {free} ret;"
    use = "USE: " + LD + WAIT_LD + OUT + "ret;"
    split = "@%p1 bra FREE;" if not ahead else "@!%p1 bra USE;"
    order = (free, use) if ahead else (use, free)
    assert_refused(launch(kernel(ST, WAIT_ST, SYNC, split, *order, end=""), mode, schedule), "tcgen05.ld")


@pytest.mark.parametrize(("mode", "schedule"), MODES[:2] + MODES[3:5])
def test_freed_by_a_warp_that_looks_at_something_first(mode: Mode, schedule: Schedule) -> None:
    """Between the barrier and the dealloc lie branches and loads, but nothing that has to wait."""
    free = """FREE: ld.shared.u32 %r30, [%r9]; mov.u32 %r31, 0;
    AGAIN: add.u32 %r31, %r31, 1; setp.lt.u32 %p7, %r31, 5; @%p7 bra AGAIN;
    setp.gt.u32 %p7, %r30, 511; @%p7 bra GONE; {free} GONE: ret;"""
    use = "@%p1 bra FREE;" + LD + WAIT_LD + OUT + "ret;"
    assert_refused(launch(kernel(ST, WAIT_ST, SYNC, use, free, end=""), mode, schedule), "tcgen05.ld")


@pytest.mark.parametrize(("mode", "schedule"), MODES)
def test_freed_by_the_last_of_several_users(mode: Mode, schedule: Schedule) -> None:
    """A warp that does wait for the others frees nothing too early, whoever runs first."""
    use = "@%p1 bra FREE;" + LD + WAIT_LD + OUT + "bar.arrive 1, 128; ret;"
    free = "FREE: bar.sync 1, 128; {free} ret;"
    outcome = launch(kernel(ST, WAIT_ST, SYNC, use, free, end=""), mode, schedule)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]


@pytest.mark.parametrize(("mode", "schedule"), MODES)
def test_never_allocated(mode: Mode, schedule: Schedule) -> None:
    text = kernel(LD, WAIT_LD, end="ret;").replace("tcgen05.alloc", "//")
    assert_refused(launch(text, mode, schedule), "tcgen05.ld")


@pytest.mark.parametrize(("mode", "schedule"), MODES[:2] + MODES[3:5])
def test_freed_behind_a_barrier_that_pairs_with_the_users(mode: Mode, schedule: Schedule) -> None:
    """Warp 0 arrives at its teardown's barrier while the others wait at one of their own, before their loads."""
    use = "@%p1 bra FREE; bar.sync 0;" + LD + WAIT_LD + OUT + "ret;"
    free = "FREE: bar.sync 0; {free} ret;"
    assert_refused(launch(kernel(ST, WAIT_ST, use, free, end=""), mode, schedule), "tcgen05.ld")


@pytest.mark.parametrize("schedule", ["eager", "late", "random"])
def test_a_load_whose_result_was_used_is_over(schedule: Schedule) -> None:
    """Without tcgen05.wait::ld: hardware waits where the register is used, and shipped code relies on that."""
    outcome = launch(kernel(ST, WAIT_ST, LD, OUT), "functional", schedule)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]


@pytest.mark.parametrize("parts", [
    (LD, "mov.b32 %r22, %r21;", SYNC),
    (LD, "@%p4 bra ON; tcgen05.wait::ld.sync.aligned; ON:", SYNC),
    (WAIT_LD, LD, SYNC, LD.replace("%r21", "%r23"), OUT.replace("%r21", "%r23")),
], ids=["copied", "not waited for on this path", "another one was used"])  # fmt: skip
def test_a_load_that_is_not_over(parts: tuple[str, ...]) -> None:
    use = OUT.replace("%r21", "%r22") if "mov" in parts[1] else OUT
    free = "@!%p1 bra GONE; {free} GONE: bar.sync 0;"
    text = kernel(ST, WAIT_ST, *parts, free, use, end="ret;")
    assert_refused(launch(text, "functional", "late"), "tcgen05.ld, when it completes")
