# SPDX-License-Identifier: Apache-2.0
"""Lanes that wait for MMAs one by one go on together: behind the wait some of them give stages back to other blocks."""

from __future__ import annotations

import cluster_gemm
import pytest
from kept_sources import kept

from porter.cli.context import current
from porter.cli.making import Ports
from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.ptx.parser import parse_module
from porter.sync.checked import check
from porter.verify.builder import ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.launching import build_port
from porter.verify.problem import bind
from porter.verify.proving import clusters_looked_at

SIZES = {"M": 256, "N": 64, "K": 256}


@pytest.mark.external
def test_no_stage_is_given_back_ahead_of_lanes_that_still_wait_for_it() -> None:
    case = load_case(kept({"case.yaml": cluster_gemm.CASE, "cluster_gemm.cu": cluster_gemm.KERNEL}) / "case.yaml")
    plan, notes = Ports(current()).of_case(case, None)
    assert plan is not None, notes
    port = build_port(bind(case, SIZES), plan, ToolkitBuilder())

    def found(ptx: str) -> set[str]:
        flow = Flow(Code(module := parse_module(ptx), module.function(port.kernel.entry)))
        of = (check(cluster) for cluster in clusters_looked_at(port.problem, flow))
        return {finding.kind for checked in of for finding in checked.findings if finding.level == "error"}

    assert found(port.kernel.ptx) == set()
    apart = port.kernel.ptx.replace("bar.warp.sync", "// bar.warp.sync")
    assert "phase" in found(apart)
