# SPDX-License-Identifier: Apache-2.0
"""Steps of CuTe DSL ports of kernels whose MMAs stand in several loops behind each other, or in statements: which of
them one warp runs, which facts others lack, that ports are right, and that mistakes are found by the runs that verify a
port."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from porter.build.dsl import DslTraced
from porter.build.port_plan import PortPlan, materialize
from porter.passes.dsl.outputs import DSL_STEPS
from porter.passes.dsl.port import port_python
from porter.passes.native.double_buffer import NAME as DOUBLE_BUFFER
from porter.passes.native.pair import NAME as PAIR
from porter.verify.builder import PORT_ARCH, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.outcome import Verdict
from porter.verify.problem import bind
from porter.verify.proof import Claim, prove
from porter.verify.settings import SimOptions
from porter.verify.sweep import Wanted, verify_cases

pytestmark = pytest.mark.external

PERSISTENT = Path(__file__).parents[2] / "corpus" / "dsl_gemm_persistent"
TAKEN = DSL_STEPS[:3]
"""Those of a CTA by itself."""
BEGIN = "                tiled_mma.set(warpgroup.Field.ACCUMULATE, False)\n"
END = "                gC_epi = cute.zipped_divide("

# --- forms of the loops over K, in place of that of the kernel

ADD = "tiled_mma.set(warpgroup.Field.ACCUMULATE, {})\n"
CLEAR = "accumulators.fill(0.0)\n" + ADD.format(True)
PRODUCT = """\
loads.consumer_wait(mma_state)
warpgroup.fence()
for k_block in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):
    part = (None, None, k_block, mma_state.index)
    cute.gemm(tiled_mma, accumulators, tCrA[part], tCrB[part], accumulators)
    tiled_mma.set(warpgroup.Field.ACCUMULATE, True)
warpgroup.commit_group()
mma_state.advance()
"""
"""One step: the batch stays in flight."""


def given_back(groups: int) -> str:
    return f"warpgroup.wait_group({groups})\nloads.consumer_release(done_state)\ndone_state.advance()\n"


def loop(bounds: str, *body: str) -> str:
    return f"for k_tile in cutlass.range({bounds}, unroll=1):\n" + textwrap.indent("".join(body), "    ")


def prologue(count: int, ahead: str = ADD.format(False), more: str = "", between: str = "") -> str:
    """So many batches are in flight, in a loop of as many turns."""
    return (
        ahead + f"first = cutlass.min({count}, k_tiles)\n" + loop("first", PRODUCT, more) + between
        + loop("first, k_tiles", PRODUCT, given_back(count)) + "warpgroup.wait_group(0)\n"
        + loop("first", "loads.consumer_release(done_state)\ndone_state.advance()\n")
    )  # fmt: skip


PEELED = ADD.format(False) + PRODUCT + loop("1, k_tiles", PRODUCT, given_back(1)) + given_back(0)
CONSTANT = "in cutlass.range_constexpr(cute.size(tCrA, mode=[2])):"
UNROLLED = "in cutlass.range(cute.size(tCrA, mode=[2]), unroll_full=True):"
ASK = "ready = loads.consumer_try_wait(mma_state)\n"
ASKED = PRODUCT.replace("consumer_wait(mma_state)", "consumer_wait(mma_state, ready)")
FORMS = {
    "one in flight": prologue(1),
    "two in flight": prologue(2),
    "sums that are filled": prologue(1, CLEAR),
    "a count that is known": ADD.format(False) + loop("1", PRODUCT) + loop("1, k_tiles", PRODUCT, given_back(1))
    + given_back(0),
    "the first step by itself": PEELED,
    "the first step gives its stage back": ADD.format(False) + PRODUCT + given_back(0)
    + loop("1, k_tiles", PRODUCT, given_back(0)),
    "the last step by itself": CLEAR + loop("k_tiles - 1", PRODUCT, given_back(0)) + PRODUCT + given_back(0),
    "two steps in a turn": ADD.format(False) + PRODUCT
    + loop("1, k_tiles, 2", PRODUCT, given_back(1), PRODUCT, given_back(1)) + given_back(0),
    "loops in both loops": prologue(1).replace(CONSTANT, UNROLLED),
    "a loop in the one loop": ADD.format(False)
    + loop("k_tiles", PRODUCT, given_back(0)).replace(CONSTANT, UNROLLED),
}  # fmt: skip
STRAIGHT = ("the first step by itself", "the first step gives its stage back", "two steps in a turn")
"""Forms whose sums are read in the loop, that over tiles, in which some of them are made."""


def kernel_of(folder: Path, form: str, wide: bool = False, dynamic: bool = True) -> Path:
    """The persistent kernel with another form of its loops over K, of one consumer warpgroup, or of two. The bounds of
    its loops are numbers unless sizes are `dynamic`."""
    shutil.copytree(PERSISTENT, folder)
    path = folder / "dsl_gemm_persistent.py"
    before, _, rest = path.read_text().partition(BEGIN)
    path.write_text(before + textwrap.indent(form, 16 * " ") + "\n" + END + rest.partition(END)[2])
    case = folder / ("wide.case.yaml" if wide else "case.yaml")
    if dynamic:
        case.write_text(case.read_text().replace("dsl:\n", "dsl:\n  dynamic: true\n"))
    return case


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


def some(names: dict[str, str], *quick: str) -> list[object]:
    return [pytest.param(n, marks=[] if n in quick else [pytest.mark.slow]) for n in names]


@pytest.mark.parametrize("wide", [
    pytest.param(False, id="one warpgroup"), pytest.param(True, id="two warpgroups", marks=pytest.mark.slow),
])  # fmt: skip
@pytest.mark.parametrize("name", some(FORMS, "one in flight"))
def test_forms_that_one_warp_runs(name: str, wide: bool, tmp_path: Path) -> None:
    told = traced(kernel_of(tmp_path / "kernel", FORMS[name], wide))
    assert told.rows == 128
    assert told.steps == TAKEN
    assert told.without == ()


# --- what a kernel may not do

POLLED = """\
there = cutlass.Boolean(False)
while not there:
    there = cute.arch.mbarrier_try_wait(storage.load_barriers.data_ptr(), 0)
"""
SYNC = "cute.arch.sync_warp()\n"
SOME = "if tidx % 128 < 64:\n    loads.consumer_release(done_state)\n"
WHILE = "turn = cutlass.Int32(0)\nwhile turn < cutlass.min(1, k_tiles):\n"
WHILE += textwrap.indent(PRODUCT + "turn += 1\n", "    ")
REFUSED: dict[str, tuple[str, str, str]] = {
    "stages that are asked for ahead": (
        ADD.format(False) + ASK + loop("k_tiles", ASKED, given_back(0), ASK), "release",
        "does more than to wait for stages and to multiply (nvvm.mbarrier.wait.parity)"),
    "stages that are asked for": (
        ADD.format(False) + loop("k_tiles", ASK, ASKED, given_back(0)), "release",
        "does more than to wait for stages and to multiply (nvvm.mbarrier.wait.parity)"),
    "consumers ask until something is there": (
        POLLED + prologue(1), "mma-thread", "wait for something ahead of a tile"),
    "threads meet between the loops": (prologue(1, between=SYNC), "release", "does more than to wait for stages"),
    "sums are read between the loops": (
        prologue(1, between="first_sum = accumulators[0]\n"), "release", "uses the registers of sums"),
    "half of the threads give back": (prologue(1, more=SOME), "release", "who gives stages back is not known"),
    "a loop of unknown turns ahead": (
        ADD.format(False) + WHILE + loop("1, k_tiles", PRODUCT, given_back(1)) + given_back(0), "release",
        "nor in such loops behind each other"),
    "the first loop may have no turn": (
        prologue(1).replace("cutlass.min(1, k_tiles)", "cutlass.min(1, k_tiles - 1)"), "mma-thread",
        "may add to the sums of the last one"),
    "the second loop goes on elsewhere": (
        prologue(1).replace("first, k_tiles", "first, k_tiles + 0 * first"), "mma-thread",
        "may add to the sums of the last one"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_what_keeps_a_kernel_from_it_is_named(name: str, tmp_path: Path) -> None:
    form, step, why = REFUSED[name]
    told = traced(kernel_of(tmp_path / "kernel", form))
    assert told.rows == 128
    assert told.steps == TAKEN[: TAKEN.index(step)]
    assert [(one.step, why in one.why, one.line > 0) for one in told.without] == [(step, True, True)]


# --- runs


@pytest.mark.slow
def test_the_gate_verifies_all_steps_with_one_case(tmp_path: Path) -> None:
    path = kernel_of(tmp_path / "kernel", FORMS["one in flight"], dynamic=False)
    path.with_name("wide.case.yaml").unlink()
    path.write_text(path.read_text().replace("K: 256, L: 1", "K: 128, L: 1"))
    claim = Claim(load_case(path).kernel, (), plan(path, DSL_STEPS), takes_turns=True, dsl=True, steps=DSL_STEPS,
                  turning=DOUBLE_BUFFER, paired=PAIR)  # fmt: skip
    found = prove(claim, ToolkitBuilder())
    assert found.missing == ""
    assert found.lacking == ()
    assert found.cases == ("case.yaml",)


def verdicts(path: Path, made: PortPlan, k: int, schedule: str = "late") -> set[Verdict]:
    sizes = {"M": 256, "N": 1024, "K": k, "L": 1}
    wanted = Wanted(SimOptions(schedule=schedule, seed=1), families=("index",), sizes=lambda c: ({**c.sizes, **sizes},),
                    hazards=True, port_of=lambda case: (made, []))  # fmt: skip
    return {row.verdict for row in verify_cases([path], wanted, ToolkitBuilder()).rows}


RIGHT = [(name, k) for name in FORMS for k in ((320,) if name == "two steps in a turn" else (64, 320))]


@pytest.mark.slow
@pytest.mark.parametrize("steps", [TAKEN[:1], TAKEN, DSL_STEPS], ids=["one of them", "a warp", "pairs"])
@pytest.mark.parametrize(("name", "k"), RIGHT)
def test_ports_are_right(name: str, k: int, steps: tuple[str, ...], tmp_path: Path) -> None:
    path = kernel_of(tmp_path / "kernel", FORMS[name], wide=name in STRAIGHT, dynamic=steps != DSL_STEPS)
    assert verdicts(path, plan(path, steps), k, "random") <= {Verdict.CLEAN, Verdict.REVIEW}


COMMITS = (
    "            with _if(cutlass.Boolean(allowed)), cute.arch.elect_one():\n                self._commit_to(pointer)\n"
)
RUNS = "            copying.clone(op)\n"
AHEAD = RUNS.replace("copying", "made = copying")
AHEAD += "            _strip_all([made] if op == self.release.stretch.ops[0] else [])\n"
MISTAKES: dict[str, tuple[str, str, str] | None] = {
    "": None,
    "a stage goes back a turn early": ("two steps in a turn", "min(waits) >= max(1, groups)", "min(waits) >= 1"),
    "the last stages do not go back": ("one in flight", COMMITS, "            pass\n"),
    "the last stages go back at once": (
        "one in flight", COMMITS, COMMITS.replace("self._commit_to(", "nvvm.mbarrier_arrive(")),
    "the first loop is left out": ("one in flight", RUNS, AHEAD),
    "the first stage goes back at once": (
        "the first step gives its stage back", "            with ir.InsertionPoint(place), op.location:\n",
        "            with ir.InsertionPoint.after(stretch.first), op.location:\n"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str, tmp_path: Path) -> None:
    form, old, new = MISTAKES[name] or ("one in flight", "", "")

    def edit(text: str) -> str:
        assert not old or text.count(old) == 1
        return text.replace(old, new) if old else text

    path = kernel_of(tmp_path / "kernel", FORMS[form], wide=form in STRAIGHT)
    found = verdicts(path, plan(path, edit=edit), 320)
    assert found
    assert (found <= {Verdict.CLEAN, Verdict.REVIEW}) is (MISTAKES[name] is None)
