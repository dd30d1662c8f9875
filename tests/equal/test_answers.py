# SPDX-License-Identifier: Apache-2.0
"""What is said of small kernels with a case: equal, different and shown by a run, or not known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.facts.launched import Launched
from porter.ptx.parser import parse_module
from porter.verify import shown
from porter.verify.budget import Budget
from porter.verify.builder import BuiltKernel
from porter.verify.case import load_case
from porter.verify.case_program import Program
from porter.verify.equality import Answer, Comparison, left_by_clusters
from porter.verify.problem import bind
from porter.verify.proving import launched_case
from porter.verify.shown import Built, shown_by

CASE = """version: 1
kernel: kernel.cu
entry: k
sizes: {N: 128}
tensors:
  source: {dtype: f32, shape: [N], role: input}
  out: {dtype: f32, shape: [N], role: output}
launch: {grid: [2, 1, 1], block: [32, 1, 1]}
params: [source, out]
reference: "source"
"""
HEAD = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 out)
.reqntid 32
{
.reg .pred %p<9>;
.reg .b32 %r<9>;
.reg .f32 %f<9>;
.reg .b64 %d<9>;
.shared .align 8 .b8 room[64];
ld.param.u64 %d0, [source];
ld.param.u64 %d1, [out];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mad.lo.u32 %r2, %r1, 32, %r0;
mul.wide.u32 %d2, %r2, 4;
add.s64 %d0, %d0, %d2;
add.s64 %d1, %d1, %d2;
ld.global.f32 %f0, [%d0];
"""
STORE = "st.global.f32 [%d1], %f0;\n"
ARRIVALS = (
    "mov.u32 %r3, room;\nsetp.eq.u32 %p1, %r0, 0;\n@%p1 mbarrier.init.shared.b64 [%r3], {};\nbar.sync 0;\n"
    "@%p1 mbarrier.arrive.shared.b64 _, [%r3];\n"
    "LOOK:\nmbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0;\n@!%p2 bra LOOK;\n"
)
ONE_PLACE = "ld.param.u64 %d1, [out];\n"


@pytest.fixture
def built(tmp_path: Path):
    (tmp_path / "kernel.cu").write_text("")
    (tmp_path / "case.yaml").write_text(CASE)
    problem = bind(load_case(tmp_path / "case.yaml"), {})

    def make(body: str) -> Built:
        text = f"{HEAD}{body}ret;\n}}\n"
        return BuiltKernel("sm_100a", "k", parse_module(text), text), problem

    return make


def answer(original: Built, port: Built) -> Answer:
    program = Program(original[1].case, None)
    return Comparison("k", program, program, Budget(None)).answer(original, port)


def test_a_deadlock_of_the_port_is_told_by_its_cause(built) -> None:
    found = answer(built(ARRIVALS.format(1) + STORE), built(ARRIVALS.format(2) + STORE))
    assert found.status == "differs"
    assert "initialized for 2 arrivals, and 1 come" in found.why
    assert "does not come to its end" in found.why
    (place,) = found.places
    assert place.flow.code.code[place.at].parts[:2] == ("mbarrier", "try_wait")


def test_a_deadlock_of_the_original_is_not_the_ports(built) -> None:
    found = answer(built(ARRIVALS.format(2) + STORE), built(ARRIVALS.format(1) + STORE))
    assert (found.status, found.places[0].program) == ("unknown", "original")


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("add.s64 %d1, %d1, %d3;\n", "two blocks write different things to one place; a run"),
        ("", "threads store different things to one place of global memory in no order; a run"),
    ],
)
def test_what_the_port_writes_over_is_shown_by_a_run(built, target: str, why: str) -> None:
    found = answer(built(STORE), built(f"mul.wide.u32 %d3, %r0, 4;\n{ONE_PLACE}{target}{STORE}"))
    assert (found.status, found.places[0].program) == ("differs", "port")
    assert why in found.why


def test_what_blocks_write_over_each_other_may_be_the_same_number(built) -> None:
    """Each element is written by both blocks, by one of them times one."""
    source = (
        "ld.param.u64 %d0, [source];\nmul.wide.u32 %d3, %r0, 4;\nadd.s64 %d0, %d0, %d3;\nld.global.f32 %f0, [%d0];\n"
    )
    target = ONE_PLACE + "add.s64 %d1, %d1, %d3;\n"
    times_one = "setp.eq.u32 %p3, %r1, 0;\n@%p3 mul.f32 %f0, %f0, 0f3F800000;\n"
    found = answer(built(source + target + STORE), built(source + times_one + target + STORE))
    assert found.status == "unknown"
    assert "no run of the case leaves other bits" in found.why


def test_a_port_that_stops_with_an_error_differs_although_it_is_not_understood(built) -> None:
    bad = built("mov.u32 %r3, room;\nmbarrier.arrive.shared.b64 _, [%r3];\n" + STORE)
    found = answer(built(STORE), bad)
    assert (found.status, "is not initialized" in found.why) == ("differs", True)


def test_a_port_that_is_not_understood_and_ends_is_not_known(built) -> None:
    """Whatever its run leaves."""
    found = answer(built(STORE), built("atom.global.add.f32 %f0, [%d0], 0f3F800000;\n" + STORE))
    assert (found.status, found.why) == ("unknown", "the result of atom.global.add.f32")


def test_runs_end_in_time_and_say_so(built, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = "mov.u32 %r4, 0;\nAGAIN:\nadd.u32 %r4, %r4, 1;\nsetp.lt.u32 %p4, %r4, 5000;\n@%p4 bra AGAIN;\n"
    ours, theirs = (
        built(STORE),
        built(loop + STORE.replace("%f0", "%f1").replace("st.", "mov.f32 %f1, 0f00000000;\nst.")),
    )
    assert shown_by(ours, theirs).how == "bits"
    looked = iter(range(1000))
    monkeypatch.setattr(shown, "processor_time", lambda: float(next(looked)))
    # the beginning, ahead of each of two runs, and in the second one
    found = shown_by(ours, theirs, 2.5)
    assert found.how == "out of time"
    assert "given up after" in str(found)
    program = Program(ours[1].case, None)
    said = Comparison("k", program, program, Budget(None), lambda one, other: found).answer(ours, theirs)
    assert (said.status, "given up after" in said.why) == ("unknown", True)


@pytest.mark.parametrize(("blocks", "looked_at"), [(2, 2), (16, 16), (20, 16)])
def test_clusters_that_are_not_looked_at_are_named(built, blocks: int, looked_at: int) -> None:
    kernel, problem = built(STORE)
    flow = Flow(Code(kernel.module, kernel.function))
    assumed: set[str] = set()

    def launched_at(first: tuple[int, int, int]) -> Launched:
        found = launched_case(problem, flow, first)
        return replace(found, geometry=replace(found.geometry, grid=(blocks, 1, 1)), allocated=())

    left_by_clusters("port", flow, launched_at, [(n, 0, 0) for n in range(looked_at)], assumed)
    told = {text for text in assumed if "clusters" in text}
    assert told == ({"of 20 clusters those do alike that are not looked at, as 16 do"} if blocks == 20 else set())
