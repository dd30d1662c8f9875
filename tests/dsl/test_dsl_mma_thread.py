# SPDX-License-Identifier: Apache-2.0
"""The steps `mma-thread` and `double-buffer` of CuTe DSL ports: which kernels have them and which facts others lack,
that ports are right where both accumulators come round, and that mistakes are found by the runs that verify a port."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from porter.build.dsl import DslTraced
from porter.build.port_plan import PortPlan, materialize
from porter.passes.dsl.outputs import DSL_STEPS, support_module
from porter.passes.dsl.port import port_python
from porter.verify.builder import PORT_ARCH, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.further import ALONE, many_tiles
from porter.verify.launching import build_port
from porter.verify.outcome import Verdict
from porter.verify.problem import Problem, bind
from porter.verify.settings import SimOptions
from porter.verify.sweep import Wanted, verify_cases

pytestmark = pytest.mark.external

CORPUS = Path(__file__).parents[2] / "corpus"
HELPERS = CORPUS / "dsl_gemm_helpers" / "case.yaml"
PERSISTENT = CORPUS / "dsl_gemm_persistent" / "case.yaml"
TAKEN = DSL_STEPS[:3]
"""Those of a CTA by itself."""


def plan(case: Path, steps: tuple[str, ...] = TAKEN, edit: Callable[[str], str] = lambda text: text) -> PortPlan:
    kernel = load_case(case).kernel
    files = dict(port_python(kernel, full_rate=True, native=steps).files)
    support = str(kernel.with_name("porter_dsl.py"))
    files[support] = edit(files[support].decode()).encode()
    return PortPlan(files=files)


def traced(path: Path, steps: tuple[str, ...] = TAKEN) -> DslTraced:
    case = load_case(path)
    (told,) = ToolkitBuilder().build(bind(case), materialize(plan(path, steps), case.kernel), PORT_ARCH).traced
    return told


STEPS = {
    "dsl_gemm_persistent/case.yaml": "",
    "dsl_gemm_persistent/wide.case.yaml": "",
    "dsl_gemm_helpers/case.yaml": "",
    "dsl_gemm_grouped/case.yaml": "",
    "dsl_gemm_gated/case.yaml": "no loop takes one tile after another",
}
"""What keeps kernels of the corpus from a warp of its own: `while` and `for` over tiles, zeros by a flag and by
registers, two warpgroups and two tiles of one, tiles without MMAs."""


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_kernels_of_the_corpus(name: str) -> None:
    told = traced(CORPUS / name)
    assert told.rows == 128
    assert told.steps == (("release",) if STEPS[name] else TAKEN)
    assert [(one.step, STEPS[name] in one.why) for one in told.without] == [("mma-thread", True)] * bool(STEPS[name])


def test_the_modules_without_the_steps_know_nothing_of_them() -> None:
    for module in (support_module(), support_module(full_rate=True), support_module(True, ("release",))):
        assert b"_Apart" not in module
    assert b"BUFFERS = 1" in support_module(True, TAKEN[:2])


# --- what a kernel may not do

SET = "                tiled_mma.set(warpgroup.Field.ACCUMULATE, False)\n"
WHILE = "            while work.is_valid_tile:\n" + SET
TAIL = "            stores.producer_tail()\n"
LOOP = "                for k_tile in cutlass.range(k_tiles, unroll=1):\n                    loads.consumer_wait"
GIVEN = "                loads.consumer_release(done_state)\n                done_state.advance()\n\n"
NEXT = "                mma_tiles.advance_to_next_work()\n                work = mma_tiles"
WORK = "                work = mma_tiles.get_current_work()\n"
SHARED = (
    WORK
    + """\
                if sC[(0, 0, 0)] == 77.0:
                    mma_tiles.advance_to_next_work()
                    work = mma_tiles.get_current_work()
"""
)
READ_BEHIND = (
    TAIL
    + """\
            accumulators[0] += 1.0
            if accumulators[0] == -5.0:
                cute.printf("%d", tidx)
"""
)
LOADER = "        if warp_idx == self.load_warp:\n"
MEETING = "                self.epilogue_barrier.arrive_and_wait()\n"
CHANGES: dict[str, tuple[list[tuple[str, str]], str]] = {
    "sums of all tiles": ([(WHILE, SET.replace("    ", "", 1) + WHILE.replace(SET, ""))], "may add to the sums"),
    "consumers meet ahead of a tile": ([(LOOP, MEETING + LOOP)], "wait for something ahead of a tile"),
    "sums behind the last tile": (
        [(TAIL, READ_BEHIND), ("tRS_rAcc[epi_idx * per_tile + v]", "cutlass.Float32(1.0)")],
        "MMAs of the next tile may be under way",
    ),
    "a stage that goes back behind the epilogue": (
        [(GIVEN, ""), (NEXT, GIVEN + NEXT)],
        "use shared memory before they give a stage back",
    ),
    "all warps do something": (
        [(LOADER, "        if warpgroup_idx == 0:\n            cute.arch.sync_warp()\n" + LOADER)],
        "no warp of a block has nothing to do",
    ),
    "a next tile that shared memory says": (
        [(WORK + TAIL, SHARED + TAIL)],
        "what leads to the MMAs takes what cute.",
    ),
}


RELEASE_TOO = ("a stage that goes back behind the epilogue",)
"""Those that keep a kernel from the step ahead of it as well."""


def changed(folder: Path, edits: list[tuple[str, str]]) -> Path:
    """The persistent kernel with other statements."""
    shutil.copytree(PERSISTENT.parent, folder)
    kernel = folder / "dsl_gemm_persistent.py"
    text = kernel.read_text()
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    kernel.write_text(text)
    return folder / "case.yaml"


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_what_keeps_a_kernel_from_it_is_named(name: str, tmp_path: Path) -> None:
    edits, why = CHANGES[name]
    told = traced(changed(tmp_path / "kernel", edits))
    assert told.rows == 128
    assert told.steps == (TAKEN if not why else () if name in RELEASE_TOO else ("release",))
    assert [why in one.why and one.line > 0 for one in told.without] == [True] * bool(why)


@pytest.mark.slow
def test_two_accumulators_that_are_too_wide(tmp_path: Path) -> None:
    case = changed(tmp_path / "kernel", [("        self.stages = 4\n", "        self.stages = 2\n")])
    text = case.read_text().replace("{BM: 128, BN: 128}", "{BM: 256, BN: 256}")
    case.write_text(text.replace("M: 256, N: 512, K: 256, L: 1", "M: 256, N: 512, K: 64, L: 1"))
    told = traced(case)
    assert told.steps == TAKEN[:2]
    assert [(one.step, one.why) for one in told.without] == [
        ("double-buffer", "2 accumulators take 1024 columns of Tensor Memory; there are 512")
    ]


# --- runs

WAIT = "self._wait(self.free + number % self.buffers, (use % 2) ^ 1)\n"
READ = "            nvvm.tcgen05_fence(BEFORE)\n            self._read(self.free"
COUNTED = (
    "        with ir.InsertionPoint.after(stretch.last), where:\n            number = self.committed[0]\n"
    "            self.committed[0] = number + 1\n            self._wait_for(number)\n"
)
SENT = "        with _if(self.sent[0] != 0):\n            _here(tcgen05.commit, barrier)\n"
MISTAKES: dict[str, tuple[str, str] | None] = {
    "": None,
    "nobody waits until sums are read": (WAIT, "pass\n"),
    "nobody waits until sums are complete": (COUNTED, COUNTED.replace("self._wait_for(number)", "pass")),
    "no fence behind the reads": (READ, READ.partition("\n")[2]),
    "no fence ahead of the MMAs": (WAIT, WAIT.replace("self._wait(", "_here(cute.arch.mbarrier_wait, ")),
    "one buffer for both": ("return tile % self.buffers * self.width", "return 0 * tile"),
    "sums are read elsewhere": ("self._columns(self.committed[0] - 1)", "self._columns(self.committed[0])"),
    "the phase of the other accumulator": ("use = number // self.buffers\n", "use = number\n"),
    "sums that are said to be complete": (SENT, SENT.replace("tcgen05.commit", "cute.arch.mbarrier_arrive")),
}  # fmt: skip


def many(path: Path) -> dict[str, int]:
    """A size with many tiles for each block."""
    made = plan(path)
    builder = ToolkitBuilder()

    def blocks(problem: Problem) -> int:
        return int(build_port(problem, made, builder).launch.grid[0])

    found = many_tiles(load_case(path), ALONE, blocks)
    assert found is not None
    return dict(found)


def verdicts(path: Path, made: PortPlan, schedule: str = "late") -> set[Verdict]:
    sizes = many(path)
    wanted = Wanted(SimOptions(schedule=schedule, seed=1), families=("integers",), sizes=lambda c: (sizes,),
                    hazards=True, port_of=lambda case: (made, []))  # fmt: skip
    return {row.verdict for row in verify_cases([path], wanted, ToolkitBuilder()).rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str) -> None:
    mistake = MISTAKES[name]

    def edit(text: str) -> str:
        if mistake is None:
            return text
        assert text.count(mistake[0]) == 1
        return text.replace(*mistake)

    found = verdicts(HELPERS, plan(HELPERS, edit=edit))
    assert (found <= {Verdict.CLEAN, Verdict.REVIEW}) is (mistake is None)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [TAKEN[:2], TAKEN], ids=["one", "two"])
@pytest.mark.parametrize("name", [n for n in STEPS if not STEPS[n] and "grouped" not in n])
def test_ports_whose_accumulators_come_round(name: str, steps: tuple[str, ...]) -> None:
    path = CORPUS / name
    assert verdicts(path, plan(path, steps), "random") <= {Verdict.CLEAN, Verdict.REVIEW}


@pytest.mark.slow
def test_stages_that_are_given_back_at_once_are_found() -> None:
    """The last stage of each tile goes back by a commit behind the loop, in kernels that keep a group in flight."""

    def edit(text: str) -> str:
        old = "            with _if(cutlass.Boolean(allowed)), cute.arch.elect_one():\n"
        assert text.count(old + "                self._commit_to(pointer)\n") == 1
        return text.replace(old + "                self._commit_to(pointer)\n",
                            old + "                nvvm.mbarrier_arrive(pointer)\n")  # fmt: skip

    assert not verdicts(PERSISTENT, plan(PERSISTENT, edit=edit)) <= {Verdict.CLEAN, Verdict.REVIEW}
