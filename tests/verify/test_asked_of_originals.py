# SPDX-License-Identifier: Apache-2.0
"""What is not known of a port is asked of its original only to tell whose a mistake is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from porter.build.port_plan import PortPlan
from porter.ptx.parser import parse_module
from porter.sync.checked import Checked
from porter.sync.findings import Finding
from porter.verify import proved
from porter.verify.all_sizes import AllSizes
from porter.verify.budget import Budget
from porter.verify.builder import BuiltKernel
from porter.verify.case import load_case
from porter.verify.case_program import Program
from porter.verify.proving import NOT_ASKED, Count

CASE = """version: 1
kernel: kernel.cu
entry: k
sizes: {N: 32}
tensors:
  out: {dtype: f32, shape: [N], role: output}
launch: {grid: [1, 1, 1], block: [32, 1, 1]}
params: [out]
reference: "out"
"""
TEXT = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out)
.reqntid 32
{
ret;
}
"""


class _Builder:
    def build(self, problem: Any, source: Path, arch: str) -> BuiltKernel:
        return BuiltKernel(arch, "k", parse_module(TEXT), TEXT)


@pytest.mark.parametrize("has_it", [True, False])
def test_an_original_is_asked_for_all_where_a_mistake_may_be_the_ports(tmp_path, monkeypatch, has_it: bool) -> None:
    (tmp_path / "kernel.cu").write_text("")
    (tmp_path / "case.yaml").write_text(CASE)
    prove, asked = Program.prove, list[set[frozenset[str]]]()

    def proving(self: Program, chosen: Any, seconds: float, rulings: Any, turns: bool, but: Any = ()) -> Any:
        found = prove(self, chosen, seconds, rulings, turns, but)
        if self.plan is None:
            asked.append(set(but))
            return found
        wrong = Finding("H1", "error", "a mistake", 0, 0)
        return replace(found, counts=(Count("N", 1, why="no time"),), checked=Checked((wrong,)))

    monkeypatch.setattr(Program, "prove", proving)
    monkeypatch.setattr(proved, "_inherited", lambda wrong, *of: tuple(wrong) if has_it else ())
    plan = PortPlan(files={str(tmp_path / "kernel.cu"): b""})
    proved.proofs_of(load_case(tmp_path / "case.yaml"), plan, _Builder(), [{}], 9, for_all=Budget.of_work(9))
    assert asked == ([{frozenset("N")}] if has_it else [{frozenset("N")}, set()])


def test_what_was_not_asked_of_the_original_is_told_of_the_port() -> None:
    original, port = (SimpleNamespace(counts=(count,)) for count in (Count("N", why=NOT_ASKED), Count("N", 1, why="?")))
    assert AllSizes.names(original, port) == ["N"]
    assert AllSizes.names(SimpleNamespace(counts=(Count("N", why="another"),)), port) == []
    assert "of the port" in AllSizes._compared(SimpleNamespace(), original.counts[0], port.counts[0]).why
