# SPDX-License-Identifier: Apache-2.0
"""What PTX says of a port without a case: instantiations that no launch is known of leave it unknown, but where the
compiler says the same of the types of all, and one of them is equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from porter.build.port_plan import PortPlan
from porter.cli import judging
from porter.cli.comparing import Told, untold
from porter.cli.context import Session
from porter.diagnostics import Code
from porter.passes.full_rate.given import RIGHT, equal
from porter.verify.gate import GateOptions

ONE, TWO, OTHER = "_Z6kernelILi1EEvv", "_Z6kernelILi2EEvv", "_Z5otherILi1EEvv"
PATH = Path("program.cu")


def told(entry: str, equality: str = "equal") -> Told:
    return replace(untold("program-main", "why"), entries=(entry,), equality=equality, extent="at M=128")


@pytest.mark.parametrize(
    ("entries", "found", "alike", "status"),
    [
        ([ONE, TWO], [told(ONE), untold("program.cu", "no launch")], ["kernel"], "equal"),
        ([ONE, TWO], [told(ONE), untold("program.cu", "no launch")], [], "unknown"),
        ([ONE, TWO], [told(ONE, "unknown"), untold("program.cu", "no launch")], ["kernel"], "unknown"),
        ([ONE, TWO], [told(ONE, "different"), untold("program.cu", "no launch")], ["kernel"], "unknown"),
        ([ONE, OTHER], [told(ONE), untold("program.cu", "no launch")], ["kernel", "other"], "unknown"),
        ([ONE, TWO, OTHER], [told(ONE), untold("program.cu", "no launch")], ["kernel", "other"], "unknown"),
        ([ONE, TWO], [untold("program.cu", "no launch")], ["kernel"], "unknown"),
        (
            [ONE, TWO],
            [told(ONE), untold("a-case", "it fails"), untold("program.cu", "no launch")],
            ["kernel"],
            "unknown",
        ),
        ([ONE], [told(ONE)], ["kernel"], "equal"),
    ],
)
def test_an_instantiation_stands_for_those_that_are_alike(
    entries: list[str], found: list[Told], alike: list[str], status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Comparing:
        def __init__(self, *_: object, **__: object) -> None: ...

        def compare(self, _: object) -> list[Told]:
            return found

    monkeypatch.setattr(judging, "_entries", lambda *_: entries)
    monkeypatch.setattr(judging, "printed", lambda *_: "")
    monkeypatch.setattr(judging, "Comparing", Comparing)
    plan = PortPlan()
    judgement = judging.judged(Session(), PATH, plan, (), None, GateOptions(), 1, alike=alike)
    assert judgement.status == status
    assert ("no launch is known of 1 more" in judgement.what) is (status == "equal" and len(entries) > 1)


@pytest.mark.parametrize(("own_words", "code"), [(True, Code.IDIOM_EQUAL), (False, Code.FULL_RATE_EQUAL)])
def test_what_is_said_of_ports_that_are_equal(own_words: bool, code: Code) -> None:
    said = equal("program.cu", "kernel at M=128", own_words)
    assert said.code is code
    assert said.code in RIGHT
