# SPDX-License-Identifier: Apache-2.0
"""Sizes of a case as symbols: what is said of all of them, and sizes that show that both programs differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from porter.equal import touched
from porter.equal.contents import Stored
from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.ptx.parser import parse_module
from porter.verify import equality
from porter.verify.all_sizes import AllSizes
from porter.verify.budget import Budget
from porter.verify.builder import BuiltKernel
from porter.verify.case import load_case
from porter.verify.case_program import Program
from porter.verify.equality import Comparison, SizeCompared
from porter.verify.proving import Count

CASE = """version: 1
kernel: kernel.cu
entry: k
sizes: {N: 128}
tensors:
  source: {dtype: f32, shape: [N], role: input}
  out: {dtype: f32, shape: [N], role: output}
launch: {grid: ["ceil_div(N, 32)", 1, 1], block: [32, 1, 1]}
params: [source, out, N]
reference: "source"
"""
HEAD = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 out, .param .u32 size)
.reqntid 32
{
.reg .pred %p<9>;
.reg .b32 %r<9>;
.reg .f32 %f<9>;
.reg .b64 %d<9>;
ld.param.u64 %d0, [source];
ld.param.u64 %d1, [out];
ld.param.u32 %r3, [size];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mad.lo.u32 %r2, %r1, 32, %r0;
mul.wide.u32 %d2, %r2, 4;
add.s64 %d0, %d0, %d2;
add.s64 %d1, %d1, %d2;
setp.lt.u32 %p1, %r2, %r3;
"""
STORE = "@%p1 ld.global.f32 %f0, [%d0];\n@%p1 st.global.f32 [%d1], %f0;\n"
ABOVE = "setp.gt.u32 %p2, %r3, {};\n@%p2 add.f32 %f0, %f0, %f0;\n"


PROOF: Any = SimpleNamespace(counts=(Count("N"),))


@dataclass
class Given:
    """Gives a kernel that is built."""

    body: str
    head: str = HEAD

    def build(self, problem: Any, source: Path, arch: str) -> BuiltKernel:
        text = f"{self.head}{self.body}ret;\n}}\n"
        return BuiltKernel(arch, "k", parse_module(text), text)


def said_of(original: Program, port: Program | None = None) -> list[SizeCompared]:
    return all_sizes(original, port or original).of_symbols(PROOF, PROOF)


def all_sizes(original: Program, port: Program) -> AllSizes:
    return AllSizes(original, port, lambda kernel: Flow(Code(kernel.module, kernel.function)), {}, Budget(None))


@pytest.fixture
def compared(tmp_path: Path):
    (tmp_path / "kernel.cu").write_text("")
    (tmp_path / "case.yaml").write_text(CASE)
    case = load_case(tmp_path / "case.yaml")

    def of(original: str, port: str) -> tuple[AllSizes, list[SizeCompared]]:
        programs = [Program(case, Given(body)) for body in (original, port)]
        sizes = all_sizes(*programs)
        return sizes, sizes.of_symbols(PROOF, PROOF)

    return of


def test_all_of_a_size_in_all_blocks(compared) -> None:
    other = STORE.replace("@%p1 ld", "setp.gt.u32 %p1, %r3, %r2;\n@%p1 ld", 1)
    _, (found,) = compared(STORE, other)
    assert (found.is_all, found.name, found.upto) == (True, "N", "")


def test_a_larger_size_shows_what_symbols_tell_apart(compared) -> None:
    port = STORE.replace("@%p1 st", ABOVE.format(1000) + "@%p1 st")
    sizes, (found,) = compared(STORE, port)
    assert not found.is_all
    comparison = Comparison("k", sizes.original, sizes.port, Budget())
    assert comparison.run([{"N": 128}]).status == "equal"
    larger = max(sizes.telling, key=lambda chosen: chosen["N"])
    assert larger["N"] > 1000
    assert replace(comparison, budget=Budget()).run([larger]).status == "differs"


@pytest.mark.parametrize(("size", "is_all"), [("u32", True), ("u64", False)])
def test_what_is_computed_of_a_size_has_room(tmp_path: Path, size: str, is_all: bool) -> None:
    """The upper half of a product of 64 bits is no zero for all."""
    (tmp_path / "kernel.cu").write_text("")
    (tmp_path / "case.yaml").write_text(CASE.replace("out, N]", "out, N * N]").replace("N: 128", "N: 8"))
    program = Program(load_case(tmp_path / "case.yaml"), Given(STORE, HEAD.replace(".param .u32", f".param .{size}")))
    assert said_of(program)[0].is_all is is_all


@pytest.mark.parametrize("launch", ['block: ["ceil_div(N, 4)", 1, 1]', "dynamic_smem: N"])
def test_a_launch_of_other_blocks_is_not_for_all(compared, tmp_path: Path, launch: str) -> None:
    text = CASE.replace("block: [32, 1, 1]", launch if launch[0] == "b" else f"block: [32, 1, 1], {launch}")
    (tmp_path / "case.yaml").write_text(text)
    assert "other blocks are launched" in said_of(Program(load_case(tmp_path / "case.yaml"), Given(STORE)))[0].why


BY_ROW = """mov.u32 %r4, %ctaid.y;
setp.eq.u32 %p3, %r4, 0;
@%p3 bra $L;
bar.sync 0;
$L:
"""
"""Whether threads meet follows the block's other index."""


@pytest.mark.parametrize(
    ("added", "is_all"),
    [
        ("", True),
        ("setp.eq.u32 %p4, %r4, 0;\n@%p4 add.f32 %f0, %f0, %f0;\n", False),
        ("setp.eq.u32 %p4, %r4, 1;\n@%p4 add.f32 %f0, %f0, %f0;\n", False),
        ("setp.eq.u32 %p4, %r4, 2;\n@%p4 add.f32 %f0, %f0, %f0;\n", False),
        ("setp.eq.u32 %p4, %r4, 3;\n@%p4 add.f32 %f0, %f0, %f0;\n", True),
    ],
)
def test_each_index_that_follows_no_size(tmp_path: Path, added: str, is_all: bool) -> None:
    """Three rows of blocks, whatever the size: each is looked at, and there is no fourth one."""
    original = BY_ROW + STORE
    port = original.replace("@%p1 st", f"{added}@%p1 st")
    programs = _programs(tmp_path, CASE.replace('32)", 1, 1]', '32)", ROWS, 1]').replace("N: 128", "N: 128, ROWS: 3"),
                         [original, port])  # fmt: skip
    assert said_of(*programs)[0].is_all == is_all


def test_a_grid_of_one_block_for_small_sizes_has_more_for_others(tmp_path: Path) -> None:
    """A port that leaves out the index of the block, which is 0 at all sizes that are run."""
    port = STORE.replace("@%p1 st", "sub.s64 %d1, %d1, %d3;\n@%p1 st")
    of_index = "mul.wide.u32 %d3, %r1, 128;\n"
    programs = _programs(tmp_path, CASE.replace("N: 128", "N: 8"), [of_index + STORE, of_index + port])
    assert not said_of(*programs)[0].is_all


def test_a_count_of_one_for_small_sizes_is_another_for_others(tmp_path: Path) -> None:
    """A port that takes 1 in place of the number of tiles, which it is at all sizes that are run."""
    port = STORE.replace("@%p1 ld", "setp.lt.u32 %p1, %r2, 1;\n@%p1 ld", 1)
    case = CASE.replace("N: 128", "N: 8").replace("out, N]", 'out, "ceil_div(N, 32)"]')
    assert not said_of(*_programs(tmp_path, case, [STORE, port]))[0].is_all


def _programs(folder: Path, case: str, bodies: list[str], head: str = HEAD) -> list[Program]:
    (folder / "kernel.cu").write_text("")
    (folder / "case.yaml").write_text(case)
    loaded = load_case(folder / "case.yaml")
    return [Program(loaded, Given(body, head)) for body in bodies]


def test_sizes_that_follow_from_what_is_known_for_all(compared) -> None:
    sizes, counts = compared(STORE, STORE)
    assert sizes.covers(counts, {"N": 100})
    assert not sizes.covers(counts, {"N": counts[0].largest + 1})
    assert not sizes.covers([replace(counts[0], why="a sum")], {"N": 100})
    assert not sizes.covers([replace(counts[0], upto="N < 99")], {"N": 100})
    of_turns = replace(counts[0], step=32, beside=())
    assert [sizes.covers([of_turns], {"N": size}) for size in (96, 100)] == [True, False]
    sizes, counts = compared(STORE, STORE.replace("@%p1 st", ABOVE.format(1000) + "@%p1 st"))
    assert not sizes.covers(counts, {"N": 100})


def _stores_alike(contents: touched._Places, addresses: Any, data: Any, user: Any) -> None:
    """What does not tell one store from another."""
    contents.stored.append(Stored(addresses.reshape(-1), np.zeros(addresses.size, np.uint64), user.at))


OTHER = STORE.replace("@%p1 ld", "add.f32 %f1, %f1, %f1;\n@%p1 ld", 1)
ONTO_OTHERS = "ld.param.u64 %d3, [out];\nmov.b32 %f0, %r1;\nst.global.f32 [%d3], %f0;\n" + STORE


UNWRITTEN = STORE.replace("ld.global.f32 %f0", "ld.global.f32 %f1")


@pytest.mark.parametrize(("original", "port", "executed"), [(STORE, OTHER, 1), (ONTO_OTHERS, ONTO_OTHERS, 2)])
def test_of_sizes_that_follow_the_original_is_executed(compared, monkeypatch, original, port, executed) -> None:
    """What its blocks do to each other counts, which nothing tells of all sizes."""
    sizes, _ = compared(original, port)
    programs: list[str] = []
    outcome = Comparison._outcome
    monkeypatch.setattr(
        Comparison, "_outcome", lambda one, *of, **how: programs.append(of[0]) or outcome(one, *of, **how)
    )
    comparison = Comparison("k", sizes.original, sizes.port, Budget(), follows=lambda sizes: True)
    assert comparison.run([{"N": 128}]).status == ("equal" if executed == 1 else "unknown")
    assert programs == ["original"] * executed


@pytest.mark.parametrize(("original", "port", "lacks"), [
    (STORE, ONTO_OTHERS, (touched._Places, "put_global", _stores_alike)),
    (UNWRITTEN, UNWRITTEN, (equality, "difference", lambda *of: None)),
])  # fmt: skip
def test_at_the_first_sizes_the_port_is_executed_as_well(compared, monkeypatch, original, port, lacks) -> None:
    """Blocks of it that meet, and what nobody has written: each is told by one condition alone."""
    sizes, _ = compared(original, port)

    def said() -> str:
        asked = Comparison("k", sizes.original, sizes.port, Budget(), follows=lambda sizes: True, asks_port=True)
        return asked.run([{"N": 128}]).status

    assert said() != "equal"
    monkeypatch.setattr(*lacks)
    assert said() == "equal"


THROUGH_SHARED = (
    "mov.u32 %r4, more;\nshl.b32 %r5, %r0, 2;\n{} %r4, %r4, %r5;\nld.global.f32 %f0, [%d0];\n"
    "st.shared.f32 [%r4], %f0;\nld.shared.f32 %f1, [%r4];\nst.global.f32 [%d1], %f1;\n"
)


@pytest.mark.parametrize(("step", "stays"), [("add.u32", True), ("or.b32", False)])
def test_a_port_that_takes_for_granted_where_shared_memory_begins(tmp_path: Path, step: str, stays: bool) -> None:
    head = HEAD.replace(".visible", ".extern .shared .align 16 .b8 more[];\n.visible")
    of_case = CASE.replace("block: [32, 1, 1]", "block: [32, 1, 1], dynamic_smem: 512")
    programs = _programs(tmp_path, of_case, [THROUGH_SHARED.format("add.u32"), THROUGH_SHARED.format(step)], head)
    asked = Comparison("k", *programs, Budget(), follows=lambda sizes: True, asks_port=True)
    found = asked.run([{"N": 128}])
    assert found.status == "equal", found.why
    assert bool(asked.stays - {0}) is stays
