# SPDX-License-Identifier: Apache-2.0
"""Lanes of one warp: what one stores the others may use only after a synchronization of the warp."""

from __future__ import annotations

import pytest
from check_ptx import check, found

# Lane i stores word i and uses the word of lane i ^ 1.
EXCHANGE = """mad.lo.u32 %r3, %r0, 4, %r2; xor.b32 %r20, %r0, 1; mad.lo.u32 %r21, %r20, 4, %r2;
{first} [{one}]{value};
{between}
{second} [{other}]{value};
ret;
"""


def exchange(between: str, kind: str = "RAW", volatile: str = "", level: str = "strict"):
    store, load = f"st{volatile}.shared.u32", f"ld{volatile}.shared.u32 %r4,"
    body = EXCHANGE.replace("{value}", "")
    if kind == "RAW":
        body = body.replace("{first} [{one}]", f"{store} [%r3], %r0").replace("{second} [{other}]", f"{load} [%r21]")
    elif kind == "WAR":
        body = body.replace("{first} [{one}]", f"{store} [%r3], %r0; bar.sync 0; {load} [%r21]")
        body = body.replace("{second} [{other}]", f"{store} [%r3], %r0")
    else:
        body = body.replace("{first} [{one}]", f"{store} [%r3], %r0")
        body = body.replace("{second} [{other}]", f"{store} [%r21], %r0")
    outcome = check(body.replace("{between}", between), "sm_90a", threads=64, level=level)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return outcome


@pytest.mark.parametrize("kind", ["RAW", "WAR", "WAW"])
def test_lanes_need_a_synchronization_of_their_warp(kind: str) -> None:
    outcome = exchange("", kind)
    assert found(outcome) == {"G8"}
    (hazard,) = outcome.hazards
    assert hazard.race == kind
    assert hazard.first is not None
    assert hazard.first.warp == hazard.second.warp == 0
    assert (hazard.first.lane, hazard.second.lane) == (1, 0)
    assert hazard.remedy == "bar.warp.sync"


@pytest.mark.parametrize("kind", ["RAW", "WAR", "WAW"])
@pytest.mark.parametrize(
    ("between", "ordered"),
    [
        ("bar.warp.sync 0xffffffff;", True),
        ("bar.sync 0;", True),
        ("membar.cta;", True),
        ("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", True),
        ("shfl.sync.bfly.b32 %r30, %r0, 1, 31, 0xffffffff;", False),
        ("vote.sync.any.pred %p7, %p0, 0xffffffff;", False),
        ("elect.sync %r30|%p7, 0xffffffff;", False),
        ("fence.proxy.async;", False),
    ],
)
def test_what_orders_lanes(kind: str, between: str, ordered: bool) -> None:
    assert found(exchange(between, kind)) == (set() if ordered else {"G8"})


def test_an_mbarrier_orders_lanes_that_arrive_and_wait() -> None:
    init = "@%p0 mbarrier.init.shared.b64 [%r8], 64; bar.sync 0; "
    arrive = "mbarrier.arrive.shared.b64 %d9, [%r8]; "
    wait = "W: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra W;"
    body = init + EXCHANGE.format(
        first="st.shared.u32", one="%r3", between=arrive + wait, second="ld.shared.u32 %r4,", other="%r21", value=""
    ).replace("st.shared.u32 [%r3];", "st.shared.u32 [%r3], %r0;")
    assert not found(check(body, "sm_90a", threads=64))


def test_lockstep_code_is_for_review_in_practice() -> None:
    outcome = exchange("", level="practice")
    assert not found(outcome)
    assert found(outcome, "review") == {"G8"}


def test_volatile_accesses_do_not_race() -> None:
    assert not found(exchange("", volatile=".volatile"))


def test_a_lanes_own_data_and_neighbouring_bytes_need_nothing() -> None:
    own = "mad.lo.u32 %r3, %r0, 4, %r2; st.shared.u32 [%r3], %r0; ld.shared.u32 %r4, [%r3]; st.shared.u32 [%r3], %r4;"
    assert not found(check(own + "ret;", "sm_90a"))
    small = ".reg .b16 h; add.u32 %r3, %r0, %r2; cvt.u16.u32 h, %r0; st.shared.u8 [%r3], h; ld.shared.u8 h, [%r3];"
    assert not found(check(small + "ret;", "sm_90a"))


def test_all_lanes_may_read_what_one_of_them_reads() -> None:
    body = "mad.lo.u32 %r3, %r0, 4, %r2; st.shared.u32 [%r3], %r0; bar.sync 0; ld.shared.u32 %r4, [%r2]; ret;"
    assert not found(check(body, "sm_90a", threads=32))
    then = body.replace("ret;", "@%p0 st.shared.u32 [%r2], 1; ret;")
    assert found(check(then, "sm_90a", threads=32)) == {"G8"}


MATRIX = """mad.lo.u32 %r3, %r0, 16, %r2; st.shared.v4.u32 [%r3], {{%r0, %r0, %r0, %r0}};
{between}
ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r4, %r5, %r6, %r7}}, [%r3]; ret;
"""


def test_ldmatrix_reads_for_the_whole_warp() -> None:
    assert found(check(MATRIX.format(between=""), "sm_90a", threads=32)) == {"G8"}
    assert not found(check(MATRIX.format(between="bar.warp.sync 0xffffffff;"), "sm_90a", threads=32))


BULK = """mad.lo.u32 %r3, %r0, 16, %r2; st.shared.v4.u32 [%r3], {{%r0, %r0, %r0, %r0}};
fence.proxy.async;
{between}
@!%p0 bra END;
cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], {size};
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
END: ret;
"""


def test_a_lane_that_copies_what_the_others_stored() -> None:
    assert found(check(BULK.format(between="", size=512), "sm_90a", threads=32)) == {"G8"}
    assert not found(check(BULK.format(between="bar.warp.sync 0xffffffff;", size=512), "sm_90a", threads=32))
    # Its own 16 bytes it may copy at once.
    assert not found(check(BULK.format(between="", size=16), "sm_90a", threads=32))


def test_races_of_warps_name_their_lanes() -> None:
    body = """mad.lo.u32 %r3, %r0, 4, %r2; st.shared.u32 [%r3], %r0; bar.warp.sync 0xffffffff;
xor.b32 %r20, %r0, 33; mad.lo.u32 %r21, %r20, 4, %r2; ld.shared.u32 %r4, [%r21]; ret;"""
    outcome = check(body, "sm_90a", threads=64)
    (hazard,) = outcome.hazards
    assert hazard.kind.id == "G1"
    assert hazard.first is not None
    assert hazard.first.lane is not None
    assert hazard.second.lane is not None
    assert hazard.first.lane ^ hazard.second.lane == 1


# Warp 1 reads words that warp 0 stores anew when lane 0 of warp 1 has said that it is done.
RELEASE = """@%p0 mbarrier.init.shared.b64 [%r8], {count};
mad.lo.u32 %r3, %r0, 4, %r2; st.shared.u32 [%r3], %r0; bar.sync 0;
and.b32 %r30, %r0, 31; setp.eq.u32 %p8, %r30, 0; sub.u32 %r21, %r3, 128;
@%p1 bra STORER;
{read} ld.shared.u32 %r4, [%r21];
{between}
{arrive} mbarrier.arrive.shared.b64 %d9, [%r8];
ret;
STORER: mbarrier.try_wait.parity.shared.b64 %p6, [%r8], 0; @!%p6 bra STORER;
st.shared.u32 [%r3], %r0; ret;
"""


@pytest.mark.parametrize(
    ("count", "read", "between", "arrive", "wanted"),
    [
        (32, "", "", "", set()),
        (1, "", "bar.warp.sync 0xffffffff;", "@%p8", set()),
        (1, "", "", "@%p8", {"G1"}),
        # What only the arriving lane has read, it is done with.
        (1, "@%p8", "", "@%p8", set()),
        (31, "@!%p8", "", "@!%p8", set()),
        (1, "@!%p8", "", "@%p8", {"G1"}),
    ],
)
def test_one_lane_that_arrives_for_its_warp(count: int, read: str, between: str, arrive: str, wanted: set[str]) -> None:
    body = RELEASE.format(count=count, read=read, between=between, arrive=arrive)
    assert found(check(body, "sm_90a", threads=64)) == wanted
    outcome = check(body, "sm_90a", threads=64, level="practice")
    assert not found(outcome)
    assert found(outcome, "review") == wanted
