# SPDX-License-Identifier: Apache-2.0
"""Mutants: every synchronizing instruction once, as PTX that still parses and differs."""

from __future__ import annotations

import dataclasses

from check_ptx import BULK, HEADER, TENSOR, WGMMA

from porter.ptx.parser import parse_module
from porter.ptx.printer import to_text
from porter.verify.mutants import mutants


def module_of(body: str, target: str):
    return parse_module(HEADER.format(target=target) + body + "\n}\n")


def test_every_mutant_is_another_program_that_parses() -> None:
    for body, target in ((TENSOR, "sm_100a"), (BULK, "sm_90a"), (WGMMA, "sm_90a")):
        module = module_of(body, target)
        texts = [to_text(m.module) for m in mutants(module, "kernel")]
        assert len(set(texts)) == len(texts) > 3
        assert to_text(module) not in texts
        for text in texts:
            assert to_text(parse_module(text)) == text


def test_each_kind_of_synchronization_is_mutated() -> None:
    names = {m.name for m in mutants(module_of(TENSOR, "sm_100a"), "kernel")}
    for opcode in ("tcgen05.wait::ld.sync.aligned", "tcgen05.wait::st.sync.aligned", "fence.proxy.async.shared::cta",
                   "tcgen05.fence::before_thread_sync", "tcgen05.fence::after_thread_sync", "bar.sync",
                   "fence.mbarrier_init.release.cluster"):  # fmt: skip
        assert f"drop {opcode}" in names
    assert {"pass at once mbarrier.try_wait.parity.shared.b64", "flip parity of mbarrier.try_wait.parity.shared.b64",
            "one arrival more for mbarrier.init.shared.b64"} <= names  # fmt: skip
    assert any(n.startswith("drop tcgen05.commit") for n in names)
    bulk = {m.name for m in mutants(module_of(BULK, "sm_90a"), "kernel")}
    assert "no bytes for mbarrier.arrive.expect_tx.shared.b64" in bulk
    assert "drop cp.async.bulk.wait_group.read" in bulk


def test_other_kernels_of_the_module_are_left_alone() -> None:
    module = module_of(TENSOR, "sm_100a")
    other = dataclasses.replace(module.functions[0], name="other")
    both = dataclasses.replace(module, functions=(*module.functions, other))
    assert len(mutants(both, "kernel")) == len(mutants(module, "kernel"))
