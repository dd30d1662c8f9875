# SPDX-License-Identifier: Apache-2.0
"""Rows of an operand that an m64 wgmma reads beyond the tile: to review at practice level (ruling `padding-rows`)."""

from __future__ import annotations

import pytest
from check_ptx import WGMMA, check, found

from porter.sim.check.rulings import Ruling

# A is K-major without swizzle: 8 rows of 16 bytes make 128 bytes, so that row r lies at 128 * (r / 8) + 16 * (r % 8)
# and again 1024 bytes on; B lies at 2048. One thread copies `nbytes` to `place` while the wgmma runs.
LANDED = "W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W;"
KERNEL = """@%p0 mbarrier.init.shared.b64 [%r8], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
add.u32 %r20, %r2, PLACE;
""" + WGMMA.replace("setp.ne.u32 %p3, 0, 0;", "setp.ne.u32 %p3, 0, 0; EARLY").replace(
    "wgmma.wait_group", "LATE wgmma.wait_group"
).replace("add.u32 %r50", LANDED + "add.u32 %r50")  # fmt: skip


def kernel(place: int, early: str = "", late: str = "") -> str:
    return KERNEL.replace("PLACE", str(place)).replace("EARLY", early).replace("LATE", late)


COPY = """@!%p0 bra COPIED; mbarrier.arrive.expect_tx.shared.b64 %d9, [%r8], {nbytes};
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%d0], {nbytes}, [%r8]; COPIED:"""
WAIT = "V: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra V;"

PLACES = [
    # What is copied, in bytes from A on; whether all rows hit are ones beyond the first.
    (128, 128, True),
    (16, 16, True),
    (512, 512, True),
    (896, 128, True),
    (1152, 896, True),
    (0, 16, False),
    (0, 1024, False),
    (0, 128, False),
    (1024, 128, False),
    (512, 1024, False),
    (2048, 128, False),
    (1920, 256, False),
]


def body(place: int, nbytes: int, when: str, wait: str = "") -> str:
    copy = COPY.format(nbytes=nbytes) + wait
    return kernel(place, copy * (when == "early"), copy * (when == "late"))


@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.parametrize(("place", "nbytes", "padding"), PLACES)
def test_a_copy_to_some_rows(place: int, nbytes: int, padding: bool, when: str) -> None:
    """Ahead of the wgmma, which does not wait for it, or behind, while it reads."""
    kind = "H17" if when == "early" else "H18"
    strict = check(body(place, nbytes, when), "sm_90a")
    assert strict.status == "ok", strict.findings
    assert found(strict) - {"H20"} == {kind}
    mild = [h for h in check(body(place, nbytes, when), "sm_90a", level="practice").hazards if h.kind.id == kind]
    if padding:
        assert {(h.severity, h.ruling) for h in mild} == {("review", Ruling.PADDING_ROWS)}
    else:
        assert "error" in {h.severity for h in mild}


@pytest.mark.parametrize(("place", "nbytes"), [(0, 1024), (128, 128), (2048, 128)])
def test_one_that_is_waited_for_is_none(place: int, nbytes: int) -> None:
    for level in ("strict", "practice"):
        hazards = check(body(place, nbytes, "early", WAIT), "sm_90a", level=level).hazards
        assert not [h for h in hazards if h.kind.id in ("H17", "H18")]


def test_two_copies_of_a_tile_that_nobody_waits_for_are_an_error() -> None:
    """Of the first rows one, of the others the other: the first is no padding."""
    first = COPY.format(nbytes=512).replace("[%r8], 512;\ncp", "[%r8], 1024;\ncp").replace("[%r20]", "[%r2]")
    second = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r20], [%d0], 512, [%r8]; COPIED:"
    text = kernel(512, first.replace("COPIED:", second))
    outcome = check(text, "sm_90a", level="practice")
    assert outcome.status == "ok", outcome.findings
    assert {h.severity for h in outcome.hazards if h.kind.id == "H17"} == {"error", "review"}


STORE = "@%p0 st.shared.u32 [%r20], 0;"


@pytest.mark.parametrize(
    ("place", "padding"), [(16, True), (128, True), (1008, True), (1040, True), (0, False), (12, False), (1024, False)]
)
def test_a_store_to_some_rows(place: int, padding: bool) -> None:
    """By a thread while the wgmma reads: 1024 begins the second half of K, with row 0."""
    text = kernel(place, late=STORE).replace(LANDED, "")
    assert found(check(text, "sm_90a")) == {"H19"}
    mild = check(text, "sm_90a", level="practice")
    assert mild.status == "ok", mild.findings
    wanted = ("review", Ruling.PADDING_ROWS) if padding else ("error", None)
    assert {(h.severity, h.ruling) for h in mild.hazards} == {wanted}
