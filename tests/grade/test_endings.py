# SPDX-License-Identifier: Apache-2.0
"""Blocks that may end while others of their cluster still need them, read from PTX."""

from __future__ import annotations

import pytest

from porter.grade.endings import endings, readings

HEAD = """.version 9.0
.target sm_100a
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry k(.param .u64 k_out) .maxntid 256
{
.reg .pred %p<9>;
.reg .b32 %r<40>;
.reg .b64 %rd<20>;
.local .align 8 .b8 kept[16];
mov.u32 %r1, smem;
mov.u32 %r2, %tid.x;
mov.u32 %r3, %cluster_ctarank;
setp.gt.u32 %p1, %r2, 127;
tcgen05.mma.cta_group::1.kind::f16 [%r4], %rd1, %rd2, %r5, %p2;
"""
ARRIVE = "mapa.shared::cluster.u32 %r6, %r1, %r3;\nmbarrier.arrive.shared::cluster.b64 _, [%r6];\n"
MULTICAST = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
    " [%r1], [%rd3, {%r7, %r8}], [%r1], %rs1;\n"
)
GENERIC = "mapa.u64 %rd4, %rd5, %r3;\nadd.s64 %rd6, %rd4, 16;\nst.u32 [%rd6], %r2;\n"
SPILLED = (
    "mapa.u64 %rd4, %rd5, %r3;\nst.local.u64 [kept], %rd4;\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\n"
    "ld.local.u64 %rd7, [kept];\nst.u32 [%rd7], %r2;\n"
)
MEET = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
ALIGNED = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
LOAD = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1+{}], 128;\n"
WAIT = "WAIT{0}:\nmbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1+{1}], %r9;\n@!%p3 bra WAIT{0};\n"
GIVEN = (
    "add.s32 %r10, %r1, 8;\nmapa.shared::cluster.u32 %r6, %r10, %r3;\nmbarrier.arrive.shared::cluster.b64 _, [%r6];\n"
)


def read(body: str) -> list[str]:
    """What is remote and bare, with what stands in the way of a barrier."""
    return [
        f"{e.what.split('.')[0]}{': ' + e.obstacle if e.obstacle else ''}" for e in endings(HEAD + body + "ret;\n}\n")
    ]


def roles(one: str, other: str, behind: str = "") -> str:
    return f"@%p1 bra OTHER;\n{one}bra.uni DONE;\nOTHER:\n{other}DONE:\n{behind}"


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (ARRIVE, ["mbarrier"]),
        (MULTICAST, ["cp"]),
        (GENERIC, ["st"]),
        (GENERIC.replace("st.u32 [%rd6], %r2", "ld.u32 %r11, [%rd6]"), ["ld"]),
        (SPILLED, ["st"]),
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r6], %r2, [%r1];\n", ["st"]),
        ("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.inc.u32 [%r6], %r2, [%r1];\n",
         ["red"]),
        ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r1], %rs1;\n",
         ["tcgen05"]),
        (MEET + ARRIVE, ["mbarrier"]),
        ("barrier.cluster.arrive;\n" + ARRIVE + "barrier.cluster.wait;\n", ["mbarrier"]),
        (ARRIVE + "@%p1 bra PAST;\n" + MEET + "PAST:\n", ["mbarrier"]),
        (ARRIVE + "@%p1 ret;\n" + MEET, ["mbarrier"]),
        (roles(MULTICAST, ARRIVE + MEET), ["cp"]),
        # a stage is given back through %r1+8: the loader waits there, and once more behind its last load
        (roles("LOOP:\n" + WAIT.format(1, 8) + LOAD.format(0) + "@%p4 bra LOOP;\n", GIVEN), ["mbarrier"]),
        (roles("LOOP:\n" + LOAD.format(0) + WAIT.format(1, 0) + "@%p4 bra LOOP;\n", GIVEN), ["mbarrier"]),
    ],
)  # fmt: skip
def test_what_nothing_keeps_blocks_alive_for(body: str, found: list[str]) -> None:
    assert read(body) == found


@pytest.mark.parametrize(
    "body",
    [
        ARRIVE + MEET,
        ARRIVE + ALIGNED,
        roles(MULTICAST, ARRIVE, MEET),
        roles(MULTICAST + MEET, ARRIVE + MEET),
        "@%p1 ret;\n" + ARRIVE + MEET,
        ARRIVE + "@%p1 bra PAST;\ntrap;\nPAST:\n" + MEET,
        # the form of every load of a tile, to the block's own memory
        MULTICAST.replace(".multicast::cluster", "").replace(", %rs1", ""),
        "mbarrier.arrive.shared::cta.b64 _, [%r1];\n",
        GENERIC + MEET,
        roles("LOOP:\n" + WAIT.format(1, 8) + LOAD.format(0) + "@%p4 bra LOOP;\n" + WAIT.format(2, 8), GIVEN),
    ],
)
def test_what_ends_as_it_should(body: str) -> None:
    assert read(body) == []


@pytest.mark.parametrize(
    ("body", "obstacle"),
    [
        (ARRIVE + "barrier.cluster.arrive;\n", "an arrival"),
        (ARRIVE + "barrier.cluster.arrive;\n@%p1 ret;\nbarrier.cluster.wait;\n", "an arrival"),
        (roles(ARRIVE, "bar.sync 0;\n"), "counts all threads"),
        (roles(ARRIVE, "barrier.sync.aligned 0;\n"), "counts all threads"),
        ("@%p1 ret;\n" + ARRIVE + "bar.sync 0;\n", "counts all threads"),
    ],
)
def test_what_a_barrier_at_the_end_could_hang_by(body: str, obstacle: str) -> None:
    (found,) = read(body)
    assert obstacle in found


@pytest.mark.parametrize(
    "body",
    [ARRIVE + "bar.sync 0;\n", roles("bar.sync 1, 128;\n", ARRIVE), "LOOP:\nbar.sync 0;\n@%p4 bra LOOP;\n" + ARRIVE],
)
def test_barriers_that_count_no_ended_threads_are_none(body: str) -> None:
    assert read(body) == ["mbarrier"]


@pytest.mark.parametrize(
    ("head", "body", "found"),
    [
        # a block of unknown size: all warps come to the barrier, or only those of a role
        (("maxntid 256", 'pragma "x";'), "LOOP:\nbar.sync 0;\n@%p4 bra LOOP;\n" + ARRIVE, ""),
        (("maxntid 256", 'pragma "x";'), roles("bar.sync 0;\n", ARRIVE), "counts all threads"),
        # of which only x is known
        (("%tid.x", "%tid.y"), "@%p5 bra PAST;\nbar.sync 0;\nPAST:\n" + ARRIVE, "counts all threads"),
        (("maxntid 256", "maxntid 64, 4, 1"), "bar.sync 0;\n" + ARRIVE, ""),
    ],
)
def test_blocks_of_unknown_sizes(head: tuple[str, str], body: str, found: str) -> None:
    text = HEAD.replace(*head).replace('.pragma "x";', "")
    (end,) = endings(text + body + "ret;\n}\n")
    assert found in end.obstacle
    assert bool(found) is bool(end.obstacle)


def test_what_could_hang_in_a_kernel_without_remote_accesses_is_known() -> None:
    (one,) = readings(HEAD + roles("bar.sync 0;\n", "") + "ret;\n}\n")
    assert not one.what
    assert "counts all threads" in one.obstacle


def test_kernels_without_mmas_are_not_ports() -> None:
    assert endings(HEAD.replace("tcgen05.mma", "// tcgen05.mma") + ARRIVE + "ret;\n}\n") == []
