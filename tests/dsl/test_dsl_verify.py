# SPDX-License-Identifier: Apache-2.0
"""Corpus kernels in CuTe DSL: compiled for both architectures, launched by their own host code, compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from porter.build.port_plan import PortPlan
from porter.diagnostics import Code, PorterError
from porter.passes.dsl.port import port_python
from porter.verify import dsl
from porter.verify.backends import SimBackend
from porter.verify.builder import PORT_ARCH, BuiltKernel, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.case_program import Program
from porter.verify.outcome import Verdict
from porter.verify.problem import bind
from porter.verify.results import VerifyResult
from porter.verify.runner import VerifyOptions, verify

pytestmark = pytest.mark.external

CORPUS = Path(__file__).parents[2] / "corpus"
CASES = sorted(p for pattern in ("case.yaml", "*.case.yaml", "dynamic.yaml") for p in CORPUS.glob(f"dsl_*/{pattern}"))
SLOW = [p for p in CASES if "causal" in p.name or p.name == "dynamic.yaml"]
PLAIN = CORPUS / "dsl_gemm" / "case.yaml"
PERSISTENT = CORPUS / "dsl_gemm_persistent" / "case.yaml"


def compare(path: Path, edit: Callable[[str], str] = lambda text: text) -> VerifyResult:
    case = load_case(path)
    files = dict(port_python(case.kernel).files)
    files[str(case.kernel)] = edit(files[str(case.kernel)].decode()).encode()
    plan = PortPlan(files=files)
    family = "integers" if not case.families or "integers" in case.families else "normal"
    return verify(case, plan, ToolkitBuilder(), SimBackend(), VerifyOptions(families=(family,)))


@pytest.mark.spread(6)
@pytest.mark.parametrize("path", [
    pytest.param(p, id=f"{p.parent.name}-{p.name.split('.')[0]}", marks=pytest.mark.slow if p in SLOW else ())
    for p in CASES
])  # fmt: skip
def test_original_port_and_reference_agree(path: Path) -> None:
    rows = compare(path).rows
    assert rows
    for row in rows:
        assert row.verdict is Verdict.CLEAN, [(d.message, d.detail) for d in row.diagnostics]


def test_the_contiguous_mode_is_one_for_all_sizes() -> None:
    """Where another mode has one element, its neighbour's stride is 1 as well."""
    case = load_case(CORPUS / "dsl_gemm_fp8_scaled" / "dynamic.yaml")
    for k in (128, 256):
        problem = bind(case, {"K": k})
        of_each = {n: dsl._argument(problem, "", n, dict.fromkeys(problem.tensors, 0))["leading"] for n in ("sa", "sb")}
        assert of_each == {"sa": 0, "sb": 1}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dsl_gemm_fp8", "dsl_gemm_gated"])
def test_a_port_whose_shapes_are_known_at_run_time_is_proved_for_all_k(name: str) -> None:
    case = load_case(CORPUS / name / "dynamic.yaml")
    plan = PortPlan(files=dict(port_python(case.kernel).files))
    proof = Program(case, ToolkitBuilder(), plan).prove([{}, *case.other_sizes], 300)
    assert proof.status == "proved"
    (count,) = proof.counts
    assert count.is_all, count.why
    assert count.lasso is not None
    # rings of mbarriers that take longer than the stages
    assert count.lasso.reach


def built(path: Path, arch: str = PORT_ARCH) -> BuiltKernel:
    case = load_case(path)
    source = case.kernel
    if arch == PORT_ARCH:
        from porter.build.port_plan import materialize

        source = materialize(PortPlan(files=dict(port_python(case.kernel).files)), case.kernel)
    return ToolkitBuilder().build(bind(case), source, arch)


def test_the_port_multiplies_with_tcgen05() -> None:
    ptx = built(PLAIN).ptx
    assert "tcgen05.mma.cta_group::1.kind::f16" in ptx
    assert "wgmma" not in ptx
    assert "tcgen05.wait::ld" in ptx
    assert ptx.count("tcgen05.dealloc") == 1


def test_the_launch_is_the_one_of_the_host_code() -> None:
    recorded = built(CORPUS / "dsl_gemm_cluster" / "case.yaml").recorded
    assert recorded is not None
    assert recorded.launch.grid == (2, 2, 1)
    assert recorded.launch.block == (128, 1, 1)
    assert recorded.launch.cluster == (2, 1, 1)
    assert recorded.launch.dynamic_smem > 3 * 2 * 128 * 64 * 2
    assert len(recorded.tensor_maps) == 3
    assert sorted(m.tensor for m in recorded.tensor_maps.values()) == ["A", "B", "C"]


@pytest.mark.slow
def test_the_block_keeps_its_warpgroups() -> None:
    wide = CORPUS / "dsl_gemm_persistent" / "wide.case.yaml"
    original, port = built(wide, "sm_90a").recorded, built(wide).recorded
    assert original is not None
    assert port is not None
    assert original.launch.block == port.launch.block == (384, 1, 1)


ATTENTION = CORPUS / "dsl_attention" / "case.yaml"
SCALED = CORPUS / "dsl_gemm_fp8_scaled" / "case.yaml"
MISTAKES = {
    "nobody waits for the MMAs": (PLAIN, ("            warpgroup.wait_group(0)\n", "")),
    "first MMA accumulates": (SCALED, ("Field.ACCUMULATE, False", "Field.ACCUMULATE, True")),
    "no MMA accumulates": (PLAIN, ("Field.ACCUMULATE, True", "Field.ACCUMULATE, False")),
    "no group is ended": (PLAIN, ("            warpgroup.commit_group()\n", "")),
    "an accumulator forgets": (ATTENTION, ("pv_mma.set(warpgroup.Field.ACCUMULATE, True)",
                                           "pv_mma.set(warpgroup.Field.ACCUMULATE, False)")),
    "no end": (PLAIN, ("        porter_dsl.end()\n", "")),
    "the MMA of Hopper": (PLAIN, ("porter_dsl.gemm(", "cute.gemm(")),
}  # fmt: skip


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name: str) -> None:
    path, (old, new) = MISTAKES[name]

    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    rows = compare(path, edit).rows
    assert rows
    assert Verdict.CLEAN not in {row.verdict for row in rows}


def test_a_kernel_without_its_frame_is_refused() -> None:
    with pytest.raises(PorterError) as caught:
        compare(PLAIN, lambda text: text.replace("        porter_dsl.begin()\n", ""))
    assert caught.value.diagnostic.code is Code.DSL_OBSTACLE


def test_an_entry_that_is_not_there_is_an_error_of_the_build() -> None:
    case = dataclasses.replace(load_case(PLAIN), entry="Gemn")
    with pytest.raises(PorterError) as caught:
        ToolkitBuilder().build(bind(case), case.kernel, "sm_90a")
    assert caught.value.diagnostic.code is Code.DSL_ERROR
    assert "Gemn" in caught.value.diagnostic.message


def test_arguments_that_do_not_fit_are_named() -> None:
    case = load_case(PLAIN)
    assert case.dsl is not None
    wrong = dataclasses.replace(case, dsl=dataclasses.replace(case.dsl, call=("A", {"what": 1})))
    with pytest.raises(PorterError) as caught:
        ToolkitBuilder().build(bind(wrong), case.kernel, "sm_90a")
    assert caught.value.diagnostic.code is Code.CASE_FIELD
    assert "dsl.call[1]" in caught.value.diagnostic.message


@pytest.mark.skipif(find_spec("torch") is not None, reason="PyTorch is installed")
def test_a_file_that_imports_pytorch_compiles_without_it(tmp_path: Path) -> None:
    case = load_case(PLAIN)
    path = tmp_path / "with_torch.py"
    head = "import torch\nimport torch.nn.functional as F\nfrom torch import Tensor\n\nTYPE = torch.float16\n"
    path.write_text(head + case.kernel.read_text())
    assert "wgmma.mma_async" in ToolkitBuilder().build(bind(case), path, "sm_90a").ptx
