# SPDX-License-Identifier: Apache-2.0
"""A tensor map that is changed while a copy may still use it: an error, unless the copy is known to be over; to review
behind the bulk groups that CUTLASS's grouped GEMMs wait for, of which a load is no part."""

from __future__ import annotations

import pytest
from beside_runs import put_beside
from test_check_global import ACQUIRE, AGAIN, KEPT, LANDED, REPLACED, mapped, replaced

from porter.sim.check.rulings import Ruling
from porter.sync.checked import Checked

COMMIT, READ = "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group.read 0;"
TOLERATED, ERROR = {Ruling.MAP_IN_FLIGHT}, {None}
LOADS = {
    "landed": (LANDED, set()),
    "landed, behind groups": (f"{COMMIT} {READ} {LANDED}", set()),
    "in flight": ("", ERROR),
    "groups waited for": (f"{COMMIT} {READ}", TOLERATED),
    "groups waited for, over": (f"{COMMIT} cp.async.bulk.wait_group 0;", TOLERATED),
    "groups waited for by one lane": (f"@%p0 {COMMIT} @%p0 {READ}", TOLERATED),
    "no group made": (READ, ERROR),
    "a group left": (f"{COMMIT} cp.async.bulk.wait_group.read 1;", ERROR),
    "a group made behind the wait": (f"{READ} {COMMIT}", ERROR),
    "a group that nobody waits for": (COMMIT, ERROR),
    "groups of copies that are not bulk": ("cp.async.commit_group; cp.async.wait_group 0;", ERROR),
    "a test of the mbarrier": ("mbarrier.test_wait.parity.shared.b64 %p6, [%r8], 0;", ERROR),
    "lanes that meet": ("bar.warp.sync 0xffffffff;", ERROR),
}


def again(before: str) -> str:
    """The map of a load is changed once more."""
    body = REPLACED.replace("BEFORE", "bar.warp.sync 0xffffffff;").replace("ACQUIRE", ACQUIRE)
    body = body.replace("@!%p0 bra JOIN;\nmbarrier", "@!%p0 bra L2;\nmbarrier").replace("JOIN:\nW1", AGAIN)
    return body.replace("{before}", before)


@pytest.mark.parametrize("name", LOADS)
def test_maps_of_loads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a run, and by the proof."""
    before, wanted = LOADS[name]
    proofs: list[Checked] = []
    put_beside(monkeypatch, lambda checked, outcome, options: proofs.append(checked))
    outcome, _ = replaced(again(before))
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert {h.ruling for h in outcome.hazards if h.kind.id == "G6"} == wanted
    (proof,) = proofs
    levels = {f.level for f in proof.findings if f.kind == "G6"}
    assert levels == {"strict" if ruling is not None else "error" for ruling in wanted}


@pytest.mark.parametrize(
    ("wait", "wanted"),
    [(READ, set()), ("", ERROR), ("cp.async.bulk.wait_group.read 1;", ERROR)],
)
def test_maps_of_stores(wait: str, wanted: set[Ruling | None]) -> None:
    outcome = mapped(KEPT.replace("{wait}", wait).replace("{{", "{").replace("}}", "}"))
    assert {h.ruling for h in outcome.hazards if h.kind.id == "G6"} == wanted
