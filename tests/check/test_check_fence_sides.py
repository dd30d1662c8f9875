# SPDX-License-Identifier: Apache-2.0
"""Proxy fences of one side, and of one state space (PTX ISA 9.7.13.4)."""

from __future__ import annotations

import pytest
from check_ptx import BULK, TENSOR, check, found

from porter.ptx.memory_order import fenced_spaces
from porter.ptx.parser import parse_module

ACQUIRE = "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;"
RELEASE = "fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;"
STORED = "fence.proxy.async.shared::cta; //@store_fence\nbar.sync 0; //@store_barrier"
BY_ISSUER = "bar.sync 0; @%p0 {fence}"
SHARED = {
    "whole": ("fence.proxy.async; bar.sync 0;", True),
    "released": (f"{RELEASE} bar.sync 0;", True),
    "released and acquired": (f"{RELEASE} bar.sync 0; @%p0 {ACQUIRE}", True),
    "acquired by who issues": (BY_ISSUER.format(fence=ACQUIRE), True),
    "acquired by who stores": (f"{ACQUIRE} bar.sync 0;", False),
    "acquired ahead of the barrier by who issues": (f"@%p0 {ACQUIRE} bar.sync 0;", False),
    "global memory's": ("fence.proxy.async.global; bar.sync 0;", False),
    "of aliases": ("fence.proxy.alias; bar.sync 0;", False),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_fence_between_stores_and_a_bulk_store(name: str) -> None:
    assert STORED in BULK
    fence, enough = SHARED[name]
    for level in ("strict", "practice"):
        assert found(check(BULK.replace(STORED, fence), "sm_100a", level=level)) == (set() if enough else {"H27"})


@pytest.mark.parametrize(("fence", "enough"), [(ACQUIRE, False), (RELEASE, True)], ids=["acquire", "release"])
def test_a_fence_between_stores_and_an_mma(fence: str, enough: bool) -> None:
    whole = "fence.proxy.async.shared::cta; //@proxy_fence"
    assert whole in TENSOR
    assert found(check(TENSOR.replace(whole, fence))) == (set() if enough else {"H16"})


ZERO = "@%p0 st.global.u32 [%d1], 0; {fence} bar.sync 0;\n"
REDUCED = BULK.replace(
    "cp.async.bulk.global.shared::cta.bulk_group", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"
)


@pytest.mark.parametrize(
    ("fence", "enough"),
    [("fence.proxy.async.global;", True), ("fence.proxy.async;", True), ("fence.proxy.async.shared::cta;", False),
     (RELEASE, False), (ACQUIRE, False)],
)  # fmt: skip
def test_fences_of_shared_memory_are_none_of_global_memory(fence: str, enough: bool) -> None:
    assert "cp.reduce" in REDUCED
    assert found(check(ZERO.format(fence=fence) + REDUCED, "sm_100a", level="practice")) == (
        set() if enough else {"G4"}
    )


@pytest.mark.parametrize(
    ("fence", "spaces"),
    [("fence.proxy.async;", (True, True)), ("fence.proxy.async.shared::cluster;", (True, False)),
     ("fence.proxy.async.global;", (False, True)), (RELEASE, (True, False)), (ACQUIRE, (True, False))],
)  # fmt: skip
def test_the_state_spaces_of_a_fence(fence: str, spaces: tuple[bool, bool]) -> None:
    module = parse_module(
        f".version 8.7\n.target sm_100a\n.address_size 64\n.visible .entry k() {{\n{fence}\nret;\n}}\n"
    )
    ins = next(s for s in module.function("k").body if getattr(s, "opcode", "").startswith("fence"))
    assert fenced_spaces(ins) == spaces
