# SPDX-License-Identifier: Apache-2.0
"""Copies of pairs of blocks, answers of clusterlaunchcontrol to a cluster, st.async of vectors, counts from memory."""

from __future__ import annotations

import pytest

from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.facts.launched import GLOBAL, Area, Geometry, Launched
from porter.ptx.parser import parse_module
from porter.ptx.tensormap import TensorMap, TensorMapType
from porter.sync.checked import Checked, Rulings, Verdict, check

HEAD = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 table)
.reqntid 32
{
.reg .pred %p<8>;
.reg .b32 %r<32>;
.reg .b64 %rd<8>;
.shared .align 128 .b8 room[1024];
.shared .align 8 .b64 full;
mov.u32 %r0, %tid.x;
setp.eq.u32 %p0, %r0, 0;
mov.u32 %r1, full;
mov.u32 %r2, room;
mov.u32 %r3, %cluster_ctarank;
@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;
@%p0 fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
"""
WAIT = """WAIT:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r1], 0;
@!%p1 bra WAIT;
"""
ROW = TensorMap(TensorMapType.UINT8, GLOBAL, (1024,), (), (256,)).encode()
"""A map with a box of 256 bytes."""
END = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\nret;\n}\n"


def checked(body: str, ranks: int = 2, contents: bytes = b"", rulings: Rulings = "strict", head: str = HEAD) -> Checked:
    module = parse_module(head + body + END)
    flow = Flow(Code(module, module.entries()[0]))
    areas = [Area(GLOBAL, len(contents), lambda: contents)] if contents else []
    geometry = Geometry((32, 1, 1), (ranks, 1, 1), (ranks, 1, 1))
    maps = {GLOBAL: ROW} if "tensor" in body else {}
    launched = Launched(flow, geometry, {"table": GLOBAL.to_bytes(8, "little")}, maps, areas)
    return check(launched, rulings=rulings)


# A copy to both blocks of a pair, each half counted by the mbarrier of the even block.
OF_PAIR = (
    "setp.eq.u32 %p2, %r3, 0;\nand.pred %p2, %p2, %p0;\nld.param.u64 %rd0, [table];\nmov.b16 %rs0, 3;\n"
    "@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], BYTES;\n"
    "@%p2 cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
    ".cta_group::2 [%r2], [%rd0, {%r0}], [%r1], %rs0;\n@%p2 bra WAIT;\nbra OUT;\n" + WAIT + "OUT:\n"
)


@pytest.mark.parametrize(("nbytes", "verdict"), [(512, Verdict.CLEAN), (256, Verdict.ERROR), (1024, Verdict.ERROR)])
def test_bytes_of_a_pair_are_counted_by_the_block_with_the_mbarriers_parity(nbytes: int, verdict: Verdict) -> None:
    body = ".reg .b16 %rs<2>;\n" + OF_PAIR.replace("BYTES", str(nbytes))
    assert checked(body).verdict is verdict


# One block asks, and both wait for the answer.
ASK = (
    "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;\nbarrier.cluster.arrive.aligned;\n"
    "barrier.cluster.wait.aligned;\nsetp.eq.u32 %p2, %r3, 0;\nand.pred %p2, %p2, %p0;\n"
    "@%p2 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytesEVERYONE.b128 [%r2], [%r1];\n"
    + WAIT
)


@pytest.mark.parametrize(("everyone", "verdict"), [(".multicast::cluster::all", Verdict.CLEAN), ("", Verdict.ERROR)])
def test_an_answer_comes_to_all_blocks_of_a_cluster(everyone: str, verdict: Verdict) -> None:
    assert checked(ASK.replace("EVERYONE", everyone)).verdict is verdict


# A vector register is stored to the other block, whose warp takes a count from it.
STORED = (
    "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;\nbarrier.cluster.arrive.aligned;\n"
    "barrier.cluster.wait.aligned;\nxor.b32 %r4, %r3, 1;\nmapa.shared::cluster.u32 %r5, %r2, %r4;\n"
    "mapa.shared::cluster.u32 %r6, %r1, %r4;\n"
    "{\n.reg .v4 .s32 abcd;\nmov.s32 abcd.x, 1;\nmov.s32 abcd.y, 2;\nmov.s32 abcd.z, 3;\nmov.s32 abcd.w, 4;\n"
    "@%p0 st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.s32 [%r5], abcd, [%r6];\n}\n" + WAIT
    + "ld.shared.u32 %r7, [%r2+4];\nsetp.eq.u32 %p3, %r7, WANTED;\n@%p3 bra DONE;\nbar.sync 1, 64;\nDONE:\n"
)  # fmt: skip


@pytest.mark.parametrize(("wanted", "verdict"), [(2, Verdict.CLEAN), (3, Verdict.ERROR)])
def test_numbers_that_come_by_st_async_are_known(wanted: int, verdict: Verdict) -> None:
    assert checked(STORED.replace("WANTED", str(wanted))).verdict is verdict


COUNTED = (
    "ld.param.u64 %rd0, [table];\nld.global.u32 %r7, [%rd0+4];\nsetp.eq.u32 %p3, %r7, 5;\n@%p3 bra DONE;\n"
    "bar.sync 1, 64;\nDONE:\n"
)
TABLE = (4).to_bytes(4, "little") + (5).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("contents", "verdict"),
    [(TABLE, Verdict.CLEAN), (TABLE[4:] + TABLE[:4], Verdict.ERROR), (b"", Verdict.UNKNOWN)],
)
def test_a_count_from_memory_holds_for_these_data(contents: bytes, verdict: Verdict) -> None:
    found = checked(COUNTED, 1, contents)
    assert found.verdict is verdict
    assert any(a.startswith("up to these data") for a in found.assumed) == bool(contents)


def test_data_that_the_kernel_writes_are_no_numbers() -> None:
    write = "ld.param.u64 %rd0, [table];\nst.global.u32 [%rd0], %r0;\n"
    assert checked(write + COUNTED, 1, TABLE).verdict is Verdict.UNKNOWN
    assert checked(COUNTED + "st.global.u32 [%rd0], %r0;\n", 1, TABLE).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("rulings", "verdict"), [("strict", Verdict.STRICT), ("practice", Verdict.REVIEW)])
def test_practice_needs_no_fence_behind_an_initialization(rulings: Rulings, verdict: Verdict) -> None:
    unfenced = HEAD.replace("@%p0 fence.mbarrier_init.release.cluster;\n", "")
    assert unfenced != HEAD
    body = ASK.replace("EVERYONE", ".multicast::cluster::all")
    assert checked(body, rulings=rulings, head=unfenced).verdict is verdict
    unordered = unfenced.replace("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n", "")
    late = body.replace("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n", "")
    assert checked(late, rulings=rulings, head=unordered).verdict is Verdict.ERROR


# The commit of block 0 arrives on the mbarriers of both.
COMMITTED = (
    ".reg .b16 %rs<2>;\nmov.b16 %rs0, 3;\nsetp.eq.u32 %p2, %r3, 0;\nand.pred %p2, %p2, %p0;\n"
    "@%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r1], %rs0;\n"
)


@pytest.mark.parametrize(("scope", "is_narrow"), [("cluster", False), ("cta", True)])
def test_a_commit_arrives_with_the_scope_of_the_cluster(scope: str, is_narrow: bool) -> None:
    found = checked(COMMITTED + WAIT.replace("acquire.cluster", f"acquire.{scope}"))
    assert any(f.kind == "M1" for f in found.findings) is is_narrow
