# SPDX-License-Identifier: Apache-2.0
"""Grouped GEMM: tensor maps changed on the device stay, and a tile without any k tile stores zero."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.diagnostics import ExitCode
from porter.passes.dsl.port import port_python
from porter.verify.backends import SimBackend
from porter.verify.builder import PortPlan, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.results import Verdict
from porter.verify.runner import VerifyOptions, verify

CORPUS = Path(__file__).parents[2] / "corpus"
GROUPED = CORPUS / "dsl_gemm_grouped" / "dsl_gemm_grouped.py"
MAY_BE_EMPTY = """                    if k_tiles > 0:
                        cute.copy(tiled_copy_t2r, tTR_tAcc[(None, None, None, epi_idx)], tTR_rAcc)
                        cute.arch.fence_view_async_tmem_load()
                    else:
                        tTR_rAcc.fill(0)
"""


def ported(path: Path = GROUPED) -> str:
    result = port_python(path)
    assert result.exit_code is ExitCode.OK, [d.message for d in result.diagnostics]
    return result.files[str(path)].decode()


def test_tensor_maps_and_the_search_for_groups_stay() -> None:
    before, after = GROUPED.read_text(), ported()
    for line in before.splitlines():
        if any(word in line for word in ("updates.", "self.find(", "self.rows(", "table[")):
            assert line in after.splitlines(), line
    assert before.split("    @cute.jit\n    def find(")[1] == after.split("    @cute.jit\n    def find(")[1]


def test_all_threads_know_whether_there_is_a_k_tile() -> None:
    text = ported()
    assert MAY_BE_EMPTY in text
    issue = text.index("acc_pipeline.producer_acquire(")
    assert text.index("                k_tiles = cute.ceil_div(table[(group, 2)]") < issue


def test_a_kernel_that_does_not_ask_is_taken_to_have_k_tiles(tmp_path: Path) -> None:
    text = GROUPED.read_text()
    asks = "                if k_tiles > 0:\n                    loads.consumer_release(done_state)\n"
    asks += "                    done_state.advance()\n"
    assert asks in text
    copy = tmp_path / GROUPED.name
    copy.write_text(text.replace(asks, asks.split("\n", 1)[1].replace("    " * 5, "    " * 4)))
    assert "tTR_rAcc.fill" not in ported(copy)


MISTAKES = {
    "an empty group reads what the group before left": (MAY_BE_EMPTY, MAY_BE_EMPTY.replace("> 0", ">= 0")),
    "the map of C stays at the first group": ("if group != last_group and warp_idx", "if executed == 0 and warp_idx"),
    "the map of A stays at the first group": ("if group != last_group and k > 0", "if last_group < 0 and k > 0"),
}


@pytest.mark.external
@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name: str) -> None:
    case = load_case(GROUPED.with_name("case.yaml"))
    old, new = MISTAKES[name]
    text = ported()
    assert text.count(old) == 1
    plan = PortPlan(files={str(case.kernel): text.replace(old, new).encode()})
    rows = verify(case, plan, ToolkitBuilder(), SimBackend(), VerifyOptions(families=("integers",))).rows
    assert Verdict.CLEAN not in {row.verdict for row in rows}
