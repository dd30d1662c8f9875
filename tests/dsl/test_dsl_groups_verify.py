# SPDX-License-Identifier: Apache-2.0
"""Attention in CuTe DSL: compiled for both architectures and compared, with mistakes planted in the port."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.passes.dsl.port import port_python
from porter.verify.backends import SimBackend
from porter.verify.builder import PortPlan, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.results import Verdict
from porter.verify.runner import VerifyOptions, verify

pytestmark = pytest.mark.external

CASE = Path(__file__).parents[2] / "corpus" / "dsl_attention" / "case.yaml"

MISTAKES = {
    "the accumulator is not put back": ("                pv_mma.stage(acc_o)\n", ""),
    "the result stays behind": ("                pv_mma.fetch(acc_o)\n", ""),
    "warpgroups share lanes": ("(rank % 2) * (16 << 16)", "0"),
    "nobody waits for the MMAs": ("        cute.arch.mbarrier_wait(self.owner.done, phase[0])\n", ""),
    "registers in another order": ("tcgen05.Ld16x256bOp(", "tcgen05.Ld16x128bOp("),
    "the operand over the accumulator": ("        return self.base + self.used\n", "        return self.base\n"),
}


def verdicts(old: str, new: str) -> set[Verdict]:
    case = load_case(CASE)
    text = port_python(case.kernel).files[str(case.kernel)].decode()
    assert old in text
    plan = PortPlan(files={str(case.kernel): text.replace(old, new).encode()})
    sizes = {**case.sizes, "S": 128}
    options = VerifyOptions(families=("normal",), sizes=(sizes,))
    return {row.verdict for row in verify(case, plan, ToolkitBuilder(), SimBackend(), options).rows}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name: str) -> None:
    assert Verdict.CLEAN not in verdicts(*MISTAKES[name])
