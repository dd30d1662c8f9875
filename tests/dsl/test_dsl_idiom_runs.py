# SPDX-License-Identifier: Apache-2.0
"""Ports of CuTe DSL in Blackwell's own words, as the command gives them: traced, compiled, run, compared."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from porter.build.port_plan import PortPlan
from porter.cli.porting import traces_of
from porter.diagnostics import Code
from porter.passes.dsl.port import port_python
from porter.passes.native.step import steps_for
from porter.verify.builder import ToolkitBuilder
from porter.verify.proof import Claim, prove

CORPUS = Path(__file__).resolve().parent.parent.parent / "corpus"
IN_OWN_WORDS = ("dsl_attention", "dsl_gemm", "dsl_gemm_act", "dsl_gemm_bytes", "dsl_gemm_cluster", "dsl_gemm_fp8",
                "dsl_gemm_fp8_scaled", "dsl_gemm_gated", "dsl_gemm_grouped", "dsl_gemm_narrow",
                "dsl_gemm_persistent", "dsl_gemm_plain")  # fmt: skip
WITH_A_WARP = ("dsl_gemm_grouped", "dsl_gemm_persistent")
"""Kernels that have the step for MMAs."""
LEFT = {
    "dsl_attention_bwd": "MMAs that a function of the kernel issues (PTR585)",
    "dsl_attention_wide": "MMAs that a function of the kernel issues (PTR585)",
    "dsl_gemm_helpers": "mma_helpers.py (PTR580)",
    "dsl_gemm_sparse": "MMAs that a function of the kernel issues (PTR585)",
}

pytestmark = [pytest.mark.slow, pytest.mark.spread(4)]


def port(kernel: str, out: Path, *options: str) -> dict[str, object]:
    path, porter = CORPUS / kernel / f"{kernel}.py", [sys.executable, "-m", "porter"]
    command = [*porter, "port", "--trust", "--format", "json", *options, "-o", str(out), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


def said(document: dict[str, object], code: Code) -> list[str]:
    diagnostics = document["diagnostics"]
    assert isinstance(diagnostics, list)
    return [d["message"] for d in diagnostics if d["id"] == code.id]


@pytest.mark.parametrize("kernel", IN_OWN_WORDS)
def test_ports_have_nothing_beside_them(kernel: str, tmp_path: Path) -> None:
    document = port(kernel, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [f"{kernel}.py"]
    assert "porter" not in (tmp_path / f"{kernel}.py").read_text()
    # the oldest release lacks a public name, so that what it gives is held to practice
    proved = Code.IDIOM_PROVED if find_spec("cutlass.experimental") else Code.IDIOM_AT_PRACTICE
    assert said(document, proved)
    assert not said(document, Code.IDIOM_LEFT)
    assert bool(said(document, Code.NATIVE_PROVED)) is (kernel in WITH_A_WARP)
    assert not said(document, Code.NATIVE_LEFT)


@pytest.mark.parametrize("kernel", ["dsl_gemm", "dsl_gemm_fp8_scaled", "dsl_gemm_grouped"])
def test_operands_are_laid_out_by_sm100_s_helpers_on_request(kernel: str, tmp_path: Path) -> None:
    document = port(kernel, tmp_path, "--style", "idiomatic", "--layouts", "sm100")
    text = (tmp_path / f"{kernel}.py").read_text()
    assert "sm100-layouts" in said(document, Code.NATIVE_PROVED)[0]
    assert not re.search(r"sm90_utils\.make_smem_layout_[ab]\b", text)
    assert text.count("make_tiled_tma_atom_") == 2


RELEASE = "                loads.consumer_release(mma_state)\n"
PLANTS: dict[str, tuple[tuple[str, str], ...]] = {
    "a buffer that is given back ahead of its MMAs": (
        (RELEASE, ""), ("                for k_block in", RELEASE + "                for k_block in")
    ),
    "sums that nobody waits for": (("        acc_full.consumer_wait(acc_state)\n", ""),),
    "a tile of the epilogue that is another": (("0, epi_idx)], tTR_rAcc)", "0, 3 - epi_idx)], tTR_rAcc)"),),
}  # fmt: skip
GIVEN_BACK = "                    acc_full.consumer_release(acc_state)\n"
LOADED = "                    cute.copy(tiled_load, tTR_tAcc, tTR_rAcc)\n"
IN_SHARES: dict[str, tuple[tuple[str, str], ...]] = {
    "sums that are given back ahead of their load": ((GIVEN_BACK, ""), (LOADED, GIVEN_BACK + LOADED)),
    "a share that is the other warpgroup's": (
        ("(None, None, 0, (tidx - 128) // 128, None)]", "(None, None, 0, 1 - (tidx - 128) // 128, None)]"),
    ),
}  # fmt: skip
ACQUIRED = """                acc_read = acc_full.sync_object_empty.get_barrier(acc_fill_state.index)
                while not mbarrier_try_wait_parity(acc_read, acc_fill_state.phase, scope=MBarrierScope.CLUSTER):
                    pass
"""
FREED = """        tcgen05_fence(Tcgen05Fence.AFTER_THREAD_SYNC)
        if warp_idx == 0:
            cute.arch.dealloc"""
IN_TURNS: dict[str, tuple[tuple[str, str], ...]] = {
    "an accumulator that is filled before it was read": ((ACQUIRED, ""),),
    "an accumulator that is the other one's": (("0, epi_idx, acc_state.index)", "0, epi_idx, 1 - acc_state.index)"),),
    "one accumulator with barriers of two": (("(None, None, None, acc_fill_state.index)", "(None, None, None, 0)"),),
    "a half of B that is the other CTA's": (("2 * n + cta_rank", "2 * n + 1 - cta_rank"),),
    "the bytes of one CTA": (("tx_count=2 * (", "tx_count=1 * ("),),
    "an accumulator that the second CTA gives back to itself": (
        ("mbarrier_arrive(mapa(acc_full.sync_object_empty.get_barrier(acc_state.index), 0))",
         "mbarrier_arrive(acc_full.sync_object_empty.get_barrier(acc_state.index))"),
    ),
    "columns that are freed while the second CTA reads": (
        (f"        cute.arch.cluster_arrive()\n        cute.arch.cluster_wait()\n{FREED}",
         f"        cute.arch.sync_threads()\n{FREED}"),
    ),
}  # fmt: skip
WRONG = {(kernel, name): plants[name] for kernel, plants in (("dsl_gemm", PLANTS), ("dsl_gemm_fp8_scaled", IN_SHARES),
         ("dsl_gemm_persistent", IN_TURNS)) for name in plants}  # fmt: skip


@pytest.mark.parametrize(("name", "plant"), WRONG)
def test_runs_refuse_what_is_wrong(name: str, plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTER_TRUST", "1")
    kernel = CORPUS / name / f"{name}.py"
    ported = port_python(kernel, traces=traces_of, steps=[s.name for s in steps_for("dsl") if not s.on_request])
    assert ported.idiomatic
    text = ported.files[str(kernel)].decode()
    if name in WITH_A_WARP and "cta_rank" not in text and not find_spec("cutlass.experimental"):
        pytest.skip("no pair is made with this release of CuTe DSL")
    for right, wrong in WRONG[name, plant]:
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    plan = PortPlan(files={str(kernel): text.encode()})
    claim = Claim(kernel, ported.kernels, plan, dsl=True, takes_turns=bool(ported.native))
    assert re.search(r"hazard|differs|did not finish", prove(claim, ToolkitBuilder()).missing)


@pytest.mark.parametrize("kernel", LEFT)
def test_others_keep_the_support_module_and_say_why(kernel: str, tmp_path: Path) -> None:
    document = port(kernel, tmp_path)
    assert (tmp_path / "porter_dsl.py").is_file()
    assert LEFT[kernel] in said(document, Code.IDIOM_LEFT)[0]
