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
