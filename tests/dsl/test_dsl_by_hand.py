# SPDX-License-Identifier: Apache-2.0
"""CuTe DSL kernels that use their mbarriers by hand, in Blackwell's own words: forms of those of the corpus that are
understood, and those that are not. What the traces say is stated, so that nothing is compiled here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import libcst as cst
import pytest
import yaml

from porter.lang.text import EditGroup, Safety, apply_groups
from porter.passes.idiom_dsl.facts import Trace
from porter.passes.idiom_dsl.port import Idiomatic, idiomatic
from porter.passes.idiom_dsl.stated import stated
from porter.passes.idiom_dsl.text import found_in, read

KERNEL = Path(__file__).resolve().parents[2] / "corpus" / "dsl_gemm_plain" / "dsl_gemm_plain.py"
PATH = Path("/work/plain.py")
TEXT = KERNEL.read_text()
FORMS = yaml.safe_load(Path(__file__).with_name("by_hand_forms.yaml").read_text())
PARTS = [[2, 2, 8], 1, 2]
"""The shape of an accumulator of two MMAs of 64 columns beside each other."""


def trace_of(text: str, kernel: str, rows: int, parts: bool) -> Trace:
    """What a case does that launches one of the kernels. `parts`: its accumulator is a part of another tensor."""
    source = text.encode()
    file = read(str(PATH), source)
    others = [f for f in found_in(file.module, cst.FunctionDef) if f.name.value.endswith("_kernel")]
    skipped = [(file.line(f), file.line(f) + file.code(f).count("\n")) for f in others if f.name.value != kernel]
    calls = []
    for call in stated(PATH, source, rows, 64).calls:
        told: dict[str, Any] = {**call, "values": dict(call["values"])}
        line = told["place"][0]
        if any(first <= line <= last for first, last in skipped):
            continue
        if told["name"].endswith("make_trivial_tiled_mma"):
            told["values"]["tiler_mn"] = [64, 64]
        if parts and told["name"].endswith("make_fragment_C"):
            told["result"] = {"number": 3, "shape": PARTS}
        if parts and told["name"].endswith("make_tensor"):
            told["result"] = {"number": 2, "shape": [[2, 2, 8], 1, 1]}
        calls.append(told)
    return replace(stated(PATH, source, rows, 64), calls=calls)


def ported(changes: Iterable[dict[str, str]] = (), cluster: int = 1) -> tuple[str, Idiomatic]:
    text = TEXT
    for one in changes:
        assert one["from"] in text, one["from"]
        text = text.replace(one["from"], one["to"])
    traces = [trace_of(text, "gemm_kernel", 128, False), trace_of(text, "halves_kernel", 64, True)]
    return text, idiomatic(str(PATH), text.encode(), [replace(t, cluster=cluster) for t in traces])


def text_of(changes: Iterable[dict[str, str]] = ()) -> str:
    text, found = ported(changes)
    assert not found.what, found.what
    groups = [EditGroup(rule, "", Safety.REVIEW, (edit,)) for rule, edit in found.edits]
    result = apply_groups({str(PATH): text.encode()}, groups)[str(PATH)].decode()
    compile(result, "plain.py", "exec")
    return result


def forms(name: str, quick: int) -> list[object]:
    return [pytest.param(f, marks=pytest.mark.slow if i >= quick else ()) for i, f in enumerate(FORMS[name])]


@pytest.mark.parametrize("form", forms("same", 2))
def test_forms_of_kernels_with_mbarriers_by_hand(form: str) -> None:
    result = text_of(FORMS["same"][form]["changes"])
    for expected in FORMS["same"][form].get("expect", ()):
        assert expected in result
    for gone in ("warpgroup.", "PipelineTma", "partition_C(c", "sm90_utils.make_trivial"):
        assert gone not in result
    for kernel in re.split("@cute.kernel", result)[1:3]:
        order = ("allocate_tensor(", "allocate_array(cutlass.Int32", "PipelineUmmaAsync.create(", "tmem.allocate(",
                 "tiled_load = ", "is_mma_warp = ", "if is_mma_warp:", "producer_acquire(", "cute.gemm(",
                 "producer_commit(", "consumer_wait(", "consumer_release(", "store(tiled_load",
                 "tmem.free(")  # fmt: skip
        places = [kernel.index(line) for line in order]
        assert places == sorted(places)


@pytest.mark.parametrize("form", forms("left", 3))
def test_forms_that_are_not_followed(form: str) -> None:
    _, found = ported(FORMS["left"][form]["changes"])
    assert FORMS["left"][form]["what"] in found.what
    assert not found.edits


def test_clusters_need_a_pipeline() -> None:
    assert "none found, which a kernel with clusters needs" in ported(cluster=2)[1].what


def test_a_pipeline_that_the_text_does_not_name_is_none_by_hand() -> None:
    traces = [trace_of(TEXT, "gemm_kernel", 128, False), trace_of(TEXT, "halves_kernel", 64, True)]
    pipeline = {**traces[0].calls[0], "name": "cutlass.pipeline.PipelineTmaAsync.create"}
    found = idiomatic(str(PATH), TEXT.encode(), [replace(traces[0], calls=[*traces[0].calls, pipeline]), traces[1]])
    assert found.what == "pipelines of loads: none found, one is needed"
