# SPDX-License-Identifier: Apache-2.0
"""Tensor maps that kernels copy, change and use: what runs refuse a proof refuses by the same ID, and the bytes of a
changed box are those that are counted."""

from __future__ import annotations

import pytest
from beside_runs import put_beside
from check_ptx import found
from test_check_global import ACQUIRE, AGAIN, KEPT, LANDED, MAPPED, REPLACED, mapped, replaced

from porter.sim import Outcome
from porter.sync.checked import Checked, Verdict

SYNC = "bar.warp.sync 0xffffffff;"
RELEASE = "fence.proxy.tensormap::generic.release.cta;"
RIGHT = MAPPED.replace("BARRIER", "bar.sync 0;").replace("ACQUIRE", ACQUIRE)
CHANGED = REPLACED.replace("BEFORE", SYNC).replace("ACQUIRE", ACQUIRE)
# A load may be out of the tensor: only what it brings is looked at here.
ROW = "tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r20], 1, {rows};\n"
RANK = "tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r20], 0;\n"
BYTES = "tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r20], {kind};\n"
WIDTH = "tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r20], 0, 32;\n"


def again(before: str) -> str:
    body = CHANGED.replace("@!%p0 bra JOIN;\nmbarrier", "@!%p0 bra L2;\nmbarrier").replace("JOIN:\nW1", AGAIN)
    return body.replace("{before}", before)


def kept(wait: str) -> str:
    return KEPT.replace("{wait}", wait).replace("{{", "{").replace("}}", "}")


WRITTEN = {
    "acquired": RIGHT,
    "not acquired": RIGHT.replace(ACQUIRE, ""),
    "another one acquired": RIGHT.replace(ACQUIRE, "add.u64 %d6, %d5, 128; " + ACQUIRE.replace("%d5", "%d6")),
    "not released": RIGHT.replace(RELEASE, ""),
    "kept until a store is over": kept("cp.async.bulk.wait_group.read 0;"),
    "changed ahead of that": kept(""),
    "changed behind another group": kept("cp.async.bulk.wait_group.read 1;"),
}
COPIED = {
    "changed and published": CHANGED,
    "published and not acquired": CHANGED.replace(ACQUIRE, ""),
    "changed again behind the copy": again(LANDED),
    "changed again in flight": again(""),
    "a group does not wait for a load": again("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"),
}


def beside(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Checked, Outcome]:
    told: list[tuple[Checked, Outcome]] = []
    put_beside(monkeypatch, lambda checked, outcome, options: told.append((checked, outcome)))
    if name in WRITTEN:
        mapped(WRITTEN[name])
    else:
        replaced(COPIED[name])
    (one,) = told
    return one


@pytest.mark.parametrize("name", [*WRITTEN, *COPIED])
def test_maps_are_judged_as_in_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    checked, outcome = beside(name, monkeypatch)
    assert not checked.unknown
    assert {f.kind for f in checked.findings if f.level != "review"} == found(outcome) - {"U1"}


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ("", Verdict.CLEAN),
        (ROW.format(rows=16), Verdict.CLEAN),
        (ROW.format(rows=8), Verdict.ERROR),
        (RANK, Verdict.ERROR),
        (BYTES.format(kind=7), Verdict.CLEAN),
        (BYTES.format(kind=6), Verdict.ERROR),
        ("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r20], %d7;\n", Verdict.CLEAN),
        ("ld.global.u32 %r21, [%d1]; " + ROW.format(rows="%r21"), Verdict.UNKNOWN),
    ],
)
def test_the_bytes_of_a_copy_are_those_of_the_changed_box(
    change: str, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = CHANGED.replace(WIDTH, WIDTH + change)
    assert body != CHANGED or not change
    told: list[Checked] = []
    put_beside(monkeypatch, lambda checked, outcome, options: told.append(checked))
    replaced(body)
    assert [c.verdict for c in told] == [verdict]
