# SPDX-License-Identifier: Apache-2.0
"""Operands that the PTX ISA does not allow and GPUs take: at practice level to review, at strict the end of the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from check_ptx import COMMIT, HEADER, TENSOR, check
from test_check_cta_pairs import ALLOC, KERNEL

from porter.ptx.parser import parse_module
from porter.ptx.smem_desc import SmemDescriptor
from porter.ptx.swizzle import SwizzleMode
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate
from porter.sim.check.rulings import Ruling

GENERIC = "cvt.u64.u32 %d19, %r8; {cvta} {guard}tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [%d19];"


def committed(cvta: str = "", level: str = "practice", more: str = "") -> Outcome:
    return check(TENSOR.replace(COMMIT, GENERIC.format(cvta=cvta, guard="") + more), level=level)


def test_a_generic_address_is_clean() -> None:
    for level in ("strict", "practice"):
        assert not committed("cvta.shared.u64 %d19, %d19;", level).hazards


def test_a_shared_address_in_a_commit() -> None:
    outcome = committed()
    assert outcome.status == "ok", outcome.findings
    assert {(h.kind.id, h.severity, h.ruling) for h in outcome.hazards} == {("A1", "review", Ruling.SHARED_OFFSET)}
    assert [f.code.id for f in committed(level="strict").findings] == ["PT4004"]


@pytest.mark.parametrize("wrong", ["add.u64 %d19, %d19, 1048576;", "shl.b64 %d19, %d19, 33;", "mov.u64 %d19, %d1;"])
def test_an_address_of_something_else_is_refused(wrong: str) -> None:
    for level in ("strict", "practice"):
        assert {f.code.id for f in committed(wrong, level).findings} & {"PT4004", "PT4010"}


@pytest.mark.parametrize(
    "use",
    [
        "mbarrier.arrive.b64 %d18, [%d19];",
        "mbarrier.arrive.expect_tx.b64 %d18, [%d19], 16;",
        "mbarrier.inval.b64 [%d19];",
        "ld.u32 %r50, [%d19];",
    ],
)
def test_other_instructions_take_no_shared_address(use: str) -> None:
    assert [
        f.code.id for f in committed("cvta.shared.u64 %d19, %d19;", more=f"cvt.u64.u32 %d19, %r8; {use}").findings
    ] == ["PT4004"]


def test_without_the_checker_too() -> None:
    """A program that is run: at practice level values alone."""
    levels: Any = (("practice", "ok"), ("strict", "error"))
    for level, status in levels:
        memory = GlobalMemory()
        source, out = memory.alloc(4096, fill=0), memory.alloc(65536, fill=0)
        body = TENSOR.replace(COMMIT, GENERIC.format(cvta="", guard=""))
        module = parse_module(HEADER.format(target="sm_100a") + body + "\n}\n")
        params = pack_params(module.function("kernel"), [source, out])
        launch = Launch((1, 1, 1), (128, 1, 1), (1, 1, 1), 8192)
        options = Options(level=level)
        assert simulate(module, "kernel", launch, params, memory, options).status == status


def loaded(lane: str, level: Any) -> tuple[Outcome, np.ndarray]:
    """Blocks of a pair read the ranks that a tcgen05.cp has put into their Tensor Memory, from a lane of their own."""
    memory = GlobalMemory()
    out = memory.alloc(1024)
    descriptor = SmemDescriptor(0, 16, 128, SwizzleMode.NONE).encode("sm_100")
    before = f"barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; {ALLOC}"
    text = KERNEL.format(before=before, after="", descriptor=descriptor)
    text = text.replace("add.u32 %r12, %r12, %r10;", f"add.u32 %r12, %r12, %r10; {lane}")
    module = parse_module(text)
    params = pack_params(module.function("kernel"), [out])
    options = Options(mode="checking", level=level)
    outcome = simulate(module, "kernel", Launch((2, 1, 1), (128, 1, 1), (2, 1, 1), 2048), params, memory, options)
    return outcome, memory.read(out, 1024).view(np.uint32)


OF_PAIR = "shl.b32 %r30, %r5, 23; add.u32 %r12, %r12, %r30;"


def test_lanes_of_the_pair() -> None:
    outcome, got = loaded(OF_PAIR, "practice")
    assert outcome.status == "ok", outcome.findings
    assert {(h.kind.id, h.severity, h.ruling) for h in outcome.hazards} == {("A2", "review", Ruling.LANE_FIELD)}
    np.testing.assert_array_equal(got, np.repeat([0, 1], 128))
    assert [f.code.id for f in loaded(OF_PAIR, "strict")[0].findings] == ["PT4009"]


@pytest.mark.parametrize("level", ["strict", "practice"])
def test_lanes_of_the_block_are_clean(level: str) -> None:
    outcome, got = loaded("", level)
    assert not outcome.hazards
    np.testing.assert_array_equal(got, np.repeat([0, 1], 128))


@pytest.mark.parametrize("lane", [128, 160, 256, 384, 1024])
def test_any_other_lane_is_refused(lane: int) -> None:
    """Block 0 has no lane beyond 127, and block 1 none of another warp."""
    for level in ("strict", "practice"):
        found = loaded(f"add.u32 %r12, %r12, {lane << 16};", level)[0].findings
        assert [f.code.id for f in found] == ["PT4009"]


# The warp's own quarter -------------------------------------------------------------------------------------------

WITH_QUARTER = "shl.b32 %r13, %r1, 21; add.u32 %r13, %r13, %r10;"
ACCESS = """@!%p1 bra NOALLOC;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 32;
NOALLOC: tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
ld.shared.u32 %r10, [%r9]; and.b32 %r14, %r1, 3;
mov.u32 %r50, 7; mov.u32 %r51, 7; mov.u32 %r52, 7; mov.u32 %r53, 7;
shl.b32 %r13, %r14, 21; add.u32 %r13, %r13, %r10; setp.lt.u32 %p2, %r1, 4;
@!%p2 bra READ; {store} tcgen05.wait::st.sync.aligned;
READ: tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
{load} tcgen05.wait::ld.sync.aligned;
tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync; @!%p1 bra END;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32;
END: ret;"""
STORE = "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r13], {%r50, %r51, %r52, %r53, %r50, %r51, %r52, %r53};"
LOAD = "tcgen05.ld.sync.aligned.{shape}.b32 {{%r40{more}}}, [{at}];"
LEFT_OUT = {
    "32x32b": LOAD.format(shape="32x32b.x1", more="", at="%r10"),
    "16x64b": LOAD.format(shape="16x64b.x1", more="", at="%r10"),
    "16x128b": LOAD.format(shape="16x128b.x1", more=", %r41", at="%r10"),
    "16x256b": LOAD.format(shape="16x256b.x1", more=", %r41, %r42, %r43", at="%r10"),
    "upper half": "add.u32 %r12, %r10, 1048576;" + LOAD.format(shape="16x64b.x1", more="", at="%r12"),
    "packed": LOAD.format(shape="16x64b.x1.pack::16b", more="", at="%r10"),
    "halves": "tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r40}, [%r10], 2;",
    "reduced": "tcgen05.ld.red.sync.aligned.32x32b.x2.max.u32 {%r40, %r41}, %r42, [%r10];",
    "one warp": "mov.u32 %r12, %r13; setp.eq.u32 %p5, %r1, 2; @%p5 mov.u32 %r12, %r10;"
    + LOAD.format(shape="32x32b.x1", more="", at="%r12"),
}


def accessed(store: str = STORE, load: str = LEFT_OUT["32x32b"], level: str = "strict", threads: int = 128) -> Outcome:
    return check(ACCESS.format(store=store, load=load), threads=threads, level=level)


@pytest.mark.parametrize("load", LEFT_OUT.values(), ids=LEFT_OUT)
def test_a_load_that_names_lanes_of_the_first_warp(load: str) -> None:
    for level, severity in (("strict", "error"), ("practice", "review")):
        outcome = accessed(load=load, level=level)
        assert outcome.status == "ok", outcome.findings
        (hazard,) = outcome.hazards
        assert (hazard.kind.id, hazard.severity, hazard.ruling) == ("A4", severity, Ruling.LANE_FIELD)
        assert "(warp % 4 * 32) << 16" in hazard.remedy
        named = load.replace("%r10", "%r13")
        assert not accessed(load=named, level=level).hazards


def test_a_store_that_names_lanes_of_the_first_warp() -> None:
    own = LEFT_OUT["32x32b"].replace("%r10", "%r13")
    for level, severity in (("strict", "error"), ("practice", "review")):
        outcome = accessed(STORE.replace("%r13", "%r10"), own, level)
        assert {(h.kind.id, h.severity, h.ruling) for h in outcome.hazards} == {("A4", severity, Ruling.LANE_FIELD)}
        assert not accessed(load=own, level=level).hazards


def test_the_first_warp_of_each_warpgroup_names_its_own_lanes() -> None:
    """Warps 0 and 4 reach lanes 0 to 31; the others keep to their own."""
    first = "mov.u32 %r12, %r13; setp.eq.u32 %p5, %r14, 0; @%p5 mov.u32 %r12, %r10;"
    load = first + LOAD.format(shape="32x32b.x1", more="", at="%r12")
    assert not accessed(load=load, threads=256).hazards
    second = load.replace("%p5, %r14, 0", "%p5, %r1, 5")
    assert {h.kind.id for h in accessed(load=second, threads=256).hazards} == {"A4"}


def test_lanes_of_the_first_warp_for_the_accumulator_of_an_mma() -> None:
    """The whole kernel is else as it should be: the field alone is to find."""
    assert WITH_QUARTER in TENSOR
    body = TENSOR.replace(WITH_QUARTER, "mov.u32 %r13, %r10;")
    assert {h.kind.id for h in check(body).hazards} == {"A4"}
    assert {(h.kind.id, h.severity) for h in check(body, level="practice").hazards} == {("A4", "review")}
