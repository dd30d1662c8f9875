# SPDX-License-Identifier: Apache-2.0
"""Survivors of mutation: which synchronization is shown to be redundant, and by what."""

from __future__ import annotations

from pathlib import Path

from check_ptx import BULK, TENSOR, try_wait
from mutation_kernels import row, run, setup

from porter.verify.mutant_runs import MutantRuns
from porter.verify.mutation import MutationResult, mutate
from porter.verify.settings import SimOptions

PUT = "shl.b32 %r3, %r0, 2; add.u32 %r3, %r3, %r2; st.shared.u32 [%r3], %r0;\n"
GET = "xor.b32 %r4, %r0, 64; shl.b32 %r4, %r4, 2; add.u32 %r4, %r4, %r2; ld.shared.u32 %r5, [%r4];\n"
OUT = "mul.wide.u32 %d2, %r0, 4; add.u64 %d4, %d1, %d2; st.global.u32 [%d4], %r5; ret;\n"


def names(result: MutationResult, by: tuple[int, ...]) -> list[str]:
    return [result.rows[n].mutant.name for n in by]


def test_a_needed_barrier_is_caught_and_a_second_one_covers_it(tmp_path: Path) -> None:
    assert row(run(tmp_path, PUT + "bar.sync 0;\n" + GET + OUT), "drop", "bar.sync").errors == ("G1",)
    result = run(tmp_path, PUT + "bar.sync 0; bar.sync 0;\n" + GET + OUT)
    for nth, other in ((1, 2), (2, 1)):
        found = row(result, "drop", "bar.sync", nth)
        assert found.reason is not None
        assert (found.reason.kind, found.reason.then) == ("covered", ("G1",))
        assert [result.rows[n].mutant.nth for n in found.reason.by] == [other]


def test_of_three_barriers_each_is_covered_by_both_others(tmp_path: Path) -> None:
    result = run(tmp_path, PUT + "bar.sync 0; bar.sync 0; bar.sync 0;\n" + GET + OUT)
    for nth in (1, 2, 3):
        reason = row(result, "drop", "bar.sync", nth).reason
        assert reason is not None
        assert sorted(result.rows[n].mutant.nth for n in reason.by) == sorted({1, 2, 3} - {nth})


def test_a_barrier_that_orders_nothing_has_no_reason(tmp_path: Path) -> None:
    """No run can show why it is there, so that somebody has to look at it."""
    found = row(run(tmp_path, "bar.sync 0; mov.u32 %r5, 1;\n" + OUT), "drop", "bar.sync")
    assert not found.caught
    assert found.reason is None


def test_a_caught_barrier_covers_one_before_it(tmp_path: Path) -> None:
    """The second barrier is needed for what lies between the two; only without it is the first one missed."""
    again = "xor.b32 %r6, %r0, 96; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r2; ld.shared.u32 %r7, [%r6+1024];\n"
    between = "st.shared.u32 [%r3+1024], %r0;\n"
    result = run(tmp_path, PUT + "bar.sync 0;\n" + between + "bar.sync 0;\n" + GET + again + OUT)
    assert row(result, "drop", "bar.sync", 2).caught
    reason = row(result, "drop", "bar.sync", 1).reason
    assert reason is not None
    assert [result.rows[n].mutant.nth for n in reason.by] == [2]


def test_reasons_without_another_instruction(tmp_path: Path) -> None:
    body = "@%p0 mbarrier.init.shared.b64 [%r8], 1;\nsetp.eq.u32 %p5, %r0, 999; @!%p5 bra ON;\nbar.sync 1, 32;\nON:\n"
    result = run(tmp_path, body + "mov.u32 %r5, 1;\n" + OUT)
    kinds = {r.mutant.name: r.reason.kind for r in result.rows if r.reason}
    assert kinds == {
        "drop mbarrier.init.shared.b64": "unused",
        "one arrival more for mbarrier.init.shared.b64": "unused",
        "drop bar.sync": "unreached",
        "no waiting at bar.sync": "unreached",
        "one warp more for bar.sync": "unreached",
    }


def test_a_wait_for_the_phase_before_the_first(tmp_path: Path) -> None:
    head = "@%p0 mbarrier.init.shared.b64 [%r8], 128; bar.sync 0;\n" + try_wait("V", 1, "before") + "\n"
    body = PUT + "mbarrier.arrive.shared.b64 _, [%r8];\n" + try_wait("W", 0, "wait") + "\n" + GET + OUT
    result = run(tmp_path, head + body)
    first, second = (row(result, "pass at once", "mbarrier.try_wait.parity.shared.b64", n) for n in (1, 2))
    assert first.reason is not None
    assert first.reason.kind == "idle"
    assert second.errors == ("G1",)
    weaker = row(result, "relaxed", "mbarrier.try_wait.parity.shared.b64", 2)
    assert weaker.errors == ("G1",)


def test_a_weaker_form_refers_to_the_stronger_one(tmp_path: Path) -> None:
    result = run(tmp_path, PUT + "bar.sync 1, 128; bar.sync 0;\n" + GET + OUT)
    found = row(result, "no waiting at", "bar.sync")
    assert found.reason is not None
    assert found.reason.kind == "weaker"
    assert names(result, found.reason.by) == ["drop bar.sync"]


def test_all_of_a_tensor_kernel(tmp_path: Path) -> None:
    result = run(tmp_path, TENSOR)
    left = {(r.mutant.name, r.mutant.nth) for r in result.survivors if r.reason is None}
    assert not left
    assert not any(r.by_value for r in result.survivors)
    assert row(result, "drop", "tcgen05.fence::after_thread_sync").reviews == ("H1",)
    assert not row(result, "drop", "tcgen05.fence::after_thread_sync").caught_in_practice


def test_a_relaxed_wait_orders_tensor_core_operations(tmp_path: Path) -> None:
    """So it goes unnoticed, and what it stands for does not."""
    result = run(tmp_path, TENSOR)
    for nth in (1, 2, 3):
        relaxed = row(result, "relaxed", "mbarrier.try_wait.parity.shared.b64", nth)
        assert relaxed.reason is not None
        assert relaxed.reason.kind == "execution"
        assert names(result, relaxed.reason.by) == ["pass at once mbarrier.try_wait.parity.shared.b64"]
        assert row(result, "pass at once", "mbarrier.try_wait.parity.shared.b64", nth).caught


def test_two_processes_find_the_same(tmp_path: Path) -> None:
    kernel = setup(tmp_path, BULK, target="sm_90a")
    one, two = (mutate([kernel], SimOptions(), jobs=jobs) for jobs in (1, 2))
    assert one.rows == two.rows


def test_what_the_simulator_cannot_execute_is_not_noticed(tmp_path: Path) -> None:
    """A mutant whose instruction is unknown must not count as caught."""
    kernel = setup(tmp_path, PUT + "bar.sync 0;\n" + GET + OUT)
    runs = MutantRuns(kernel, SimOptions())
    bad = runs.mutants[0]
    unknown = bad.instruction.__class__("nonsense.b32", ("nonsense", "b32"), ())
    runs.mutants = [bad.__class__(**{**vars(bad), "statements": (unknown,)})]
    assert not runs.run(0).ended
