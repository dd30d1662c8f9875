# SPDX-License-Identifier: Apache-2.0
"""Which steps towards a native kernel its facts allow."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from corpus_kernels import CORPUS

from porter.lang.sources import load_sources
from porter.model.pipeline.facts import KernelPipeline, Number
from porter.passes.native.promotion import SCALED
from porter.passes.native.step import steps_for
from porter.passes.port import port_sources
from porter.rules.load import load_rules
from porter.scan.native import Step, native_steps
from porter.scan.pipeline import pipelines

RULES = load_rules()


def kernel(name: str) -> KernelPipeline:
    (found,) = pipelines(CORPUS / name / f"{name}.cu", RULES)
    return found


@pytest.fixture(scope="module")
def persistent() -> KernelPipeline:
    return kernel("gemm_persistent")


def steps(one: KernelPipeline) -> dict[str, Step]:
    return {s.name: s for s in native_steps(one)}


def said(one: KernelPipeline, name: str) -> str:
    return "; ".join(steps(one)[name].why)


@pytest.mark.parametrize(
    ("name", "yes", "no", "unknown"),
    [
        ("gemm_persistent", "raster m128 release mma-thread double-buffer stages registers pair wide blocks",
         "tiles ahead wide-t2r bulk-store promotion", ""),
        ("gemm_ws", "raster m128 release mma-thread tiles double-buffer stages registers pair wide blocks bulk-store",
         "ahead wide-t2r promotion", ""),
        ("gemm_cluster", "m128 release mma-thread stages registers wide blocks bulk-store",
         "raster tiles double-buffer pair ahead wide-t2r promotion", ""),
        ("gemm_fp8_scaled",
         "raster m128 release mma-thread tiles double-buffer stages registers pair wide blocks bulk-store",
         "ahead wide-t2r", "promotion"),
        ("attention_fwd", "m128 registers blocks ahead bulk-store",
         "double-buffer wide-t2r promotion", "raster release mma-thread tiles stages pair wide"),
        ("gemm_lambda", "blocks bulk-store",
         "release mma-thread tiles double-buffer stages registers ahead wide-t2r promotion", "raster m128 pair wide"),
        ("gemm_pipelined", "raster m128 release mma-thread tiles double-buffer pair wide blocks bulk-store",
         "registers ahead wide-t2r promotion", "stages"),
        ("gemm_int8", "raster wide blocks bulk-store",
         "release mma-thread tiles double-buffer registers ahead wide-t2r promotion", "m128 stages pair"),
    ],
)  # fmt: skip
def test_steps_of_the_corpus(name, yes, no, unknown):
    found = steps(kernel(name))
    by = {answer: {s.name for s in found.values() if s.applies is answer} for answer in (True, False, None)}
    assert by == {True: set(yes.split()), False: set(no.split()), None: set(unknown.split())}
    assert all(s.why and s.reference for s in found.values())


@pytest.mark.parametrize(
    ("promoted", "applies", "because"),
    [
        ("", True, "on request: --drop-promotion"),
        (None, False, "stay in the accumulator until"),
        (SCALED, False, "finds powers of two"),
        ("which sum is added to", None, "which sum is added to"),
    ],
)
def test_sums_that_are_promoted(promoted, applies, because):
    """What a plan of the port knows of them; of other types nothing is promoted, whatever it says."""
    step = next(s for s in native_steps(kernel("gemm_fp8_scaled"), (), promoted) if s.name == "promotion")
    assert step.applies is applies
    assert because in "; ".join(step.why)
    assert step.port == ("porter port --style native --drop-promotion" if applies else "")
    other = next(s for s in native_steps(kernel("gemm_ws"), (), promoted) if s.name == "promotion")
    assert (other.applies, other.why) == (False, ("only FP8 sums are promoted",))


@pytest.mark.parametrize(("scaled", "applies", "because"), [
    ("", True, "on request: --block-scale"), ("that scales are powers of two", None, "scales are powers of two"),
])  # fmt: skip
def test_scales_of_sums(scaled, applies, because):
    """Where sums have none, a plan says nothing of such a step."""
    (step,) = (s for s in native_steps(kernel("gemm_fp8_ue8m0"), (), SCALED, scaled) if s.name == "scales")
    assert step.applies is applies
    assert because in "; ".join(step.why)
    assert step.port == ("porter port --style native --block-scale" if applies else "")
    assert not any(s.name == "scales" for s in native_steps(kernel("gemm_ws")))


@pytest.mark.parametrize(
    ("name", "because"),
    [
        ("gemm_ws", "the 128 of a thread, for N = 256, in 4 loads with one wait"),
        ("gemm_f16acc", "registers at a time already"),
    ],
)
def test_loads_are_wide_already(name, because):
    """Nothing is left to do of what NVIDIA's first tutorials lack; the text of a port says the same."""
    step = steps(kernel(name))["wide-t2r"]
    assert step.applies is False
    assert because in step.why[0]
    result = port_sources(load_sources(CORPUS / name / f"{name}.cu"))
    header = next(t for p, t in result.files.items() if p.endswith("tcgen05.cuh")).decode()
    counts = re.findall(r"tcgen05\.ld\.sync\.aligned\.\w+\.x(\d+)", header)
    assert counts
    assert "1" not in counts


STEPS = tuple(s.name for s in steps_for("cuda") if not s.on_request)


def test_what_is_rewritten_names_the_command(persistent):
    assert not any(s.port for s in native_steps(persistent))
    ported = {s.name: s.port for s in native_steps(persistent, ("m128", *STEPS)) if s.port}
    assert ported.pop("m128") == "porter port --style full-rate"
    assert ported == dict.fromkeys(STEPS, "porter port --style native")


def test_stages_are_as_many_as_shared_memory_holds(persistent):
    step = steps(persistent)["stages"]
    assert step.what_if == "stages=6"
    assert persistent.launch is not None
    full = replace(persistent, launch=replace(persistent.launch, dynamic_smem="230000"))
    assert steps(full)["stages"].applies is False
    assert "fill shared memory" in said(full, "stages")


def test_room_beside_stages_in_static_shared_memory_is_not_known(persistent):
    assert persistent.launch is not None
    static = replace(persistent, launch=replace(persistent.launch, dynamic_smem="0"))
    assert steps(static)["stages"].applies is None
    assert "static shared memory" in said(static, "stages")


@pytest.mark.parametrize(
    ("change", "step", "missing"),
    [
        (
            lambda p: {"barriers": tuple(replace(b, arriving=None) for b in p.barriers)},
            "mma-thread",
            "as many arrive at",
        ),
        (
            lambda p: {"barriers": tuple(replace(b, arriving=7) for b in p.barriers)},
            "mma-thread",
            "who else arrives",
        ),
        (lambda p: {"roles": tuple(replace(r, warps=None) for r in p.roles)}, "pair", "which warps"),
        (lambda p: {"roles": tuple(replace(r, registers=Number("R", None)) for r in p.roles)}, "registers", "`R`"),
        (lambda p: {"rings": tuple(replace(r, stages=None) for r in p.rings)}, "stages", "the stages of s.full[]"),
        (lambda p: {"products": ()}, "m128", "the shape of the MMAs"),
        (lambda p: {"products": tuple(replace(x, a_registers=True) for x in p.products)}, "pair", "A is in registers"),
    ],
)
def test_a_step_without_one_of_its_facts_names_it(persistent, change, step, missing):
    assert steps(persistent)[step].applies is True
    less = replace(persistent, pipeline=replace(persistent.pipeline, **change(persistent.pipeline)))
    assert steps(less)[step].applies is None
    assert missing in said(less, step)


def test_a_kernel_that_nothing_launches_has_no_pairs(persistent):
    alone = replace(persistent, launch=None)
    assert steps(alone)["pair"].applies is None
    assert "no host code" in said(alone, "pair")


def test_rows_in_steps_of_eight_are_no_full_rate(persistent):
    narrow = tuple(replace(p, n=40) for p in persistent.pipeline.products)
    changed = replace(persistent, pipeline=replace(persistent.pipeline, products=narrow))
    assert steps(changed)["m128"].applies is False
