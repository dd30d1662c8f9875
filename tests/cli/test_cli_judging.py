# SPDX-License-Identifier: Apache-2.0
"""What PTX says of a port without a case: instantiations that no launch is known of leave it unknown, but where the
compiler says the same of the types of all, and one of them is equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from porter.build.port_plan import PortPlan
from porter.cli import judging
from porter.cli.comparing import Told, untold
from porter.cli.context import Session
from porter.diagnostics import Code
from porter.tune.full_rate import RIGHT, equal
from porter.verify import refusals
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

    monkeypatch.setattr(judging, "launchable", lambda *_: entries)
    monkeypatch.setattr(judging, "load_sources", lambda *_: SimpleNamespace(files={}))
    monkeypatch.setattr(judging, "printed", lambda *_: "")
    monkeypatch.setattr(judging, "Comparing", Comparing)
    plan = PortPlan()
    judgement = judging.judged(Session(), PATH, plan, (), None, GateOptions(), 1, alike=alike)
    assert judgement.status == status
    assert ("no launch is known of 1 more" in judgement.what) is (status == "equal" and len(entries) > 1)


@pytest.mark.parametrize("how", [(), ("is in SM100's own words (mode P)",)])
def test_what_is_said_of_ports_that_are_equal(how: tuple[str, ...]) -> None:
    said = equal("program.cu", "kernel at M=128", *how)
    assert said.code is Code.FULL_RATE_EQUAL
    assert said.code in RIGHT
    assert all(words in said.message for words in how)


PTX = """.version 8.8
.target sm_90a
.address_size 64
.visible .entry _ZN3cub11EmptyKernelIvEEvv()
{
  ret;
}
.visible .entry _Z6kernelPi(.param .u64 out)
{
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry _Z5emptyv()
{
  ret;
}
.visible .entry _Z4workPi(.param .u64 out)
{
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
"""


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("#include <cub.h>\n__global__ void kernel(int* out);\n", {"cub11EmptyKernel", "5empty"}),
        ("__global__ void empty() {}\n", {"cub11EmptyKernel"}),
        ("void f() { cub::EmptyKernel<void><<<1, 1>>>(); empty<<<1, 1>>>(); }\n", set()),
    ],
)
def test_what_does_nothing_and_no_source_names_needs_no_launch(
    tmp_path: Path, text: str, left: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(text)
    monkeypatch.setattr(refusals, "find_toolkit", lambda chosen: None)
    monkeypatch.setattr(refusals, "requests", lambda *_: [None])
    monkeypatch.setattr(refusals, "compile_ptx", lambda *_: SimpleNamespace(ptx=PTX))
    names = ("cub11EmptyKernel", "6kernel", "5empty", "4work")
    found = refusals.launchable(path, GateOptions(), [text.encode()])
    assert {n for n in names if not any(n in e for e in found)} == left
