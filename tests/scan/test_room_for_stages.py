# SPDX-License-Identifier: Apache-2.0
"""How many stages shared memory holds of the ring that TMA fills, or what is not known of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from corpus_kernels import CORPUS

from porter.model.pipeline.facts import KernelPipeline
from porter.rules.load import load_rules
from porter.scan.pipeline import pipelines
from porter.scan.staging import most_stages_of


@pytest.fixture(scope="module")
def persistent() -> KernelPipeline:
    (found,) = pipelines(CORPUS / "gemm_persistent/gemm_persistent.cu", load_rules())
    return found


def launched(one: KernelPipeline, smem: str) -> KernelPipeline:
    assert one.launch is not None
    return replace(one, launch=replace(one.launch, dynamic_smem=smem))


def test_stages_are_as_many_as_shared_memory_holds(persistent: KernelPipeline) -> None:
    assert most_stages_of(persistent) == 6
    assert most_stages_of(launched(persistent, "230000")) == "3 stages of 32768 bytes fill shared memory"


def test_what_is_missing_is_named(persistent: KernelPipeline) -> None:
    static = "what else lies in the static shared memory that the stages are in"
    assert most_stages_of(launched(persistent, "0")) == static
    assert most_stages_of(replace(persistent, launch=None)) == "the dynamic shared memory of the launch"
    known = persistent.pipeline
    less = replace(known, rings=tuple(replace(r, stages=None) for r in known.rings))
    assert most_stages_of(replace(persistent, pipeline=less)) == "the stages of s.full[]"
    assert most_stages_of(replace(persistent, pipeline=replace(known, rings=()))) == "no ring of stages that TMA fills"
