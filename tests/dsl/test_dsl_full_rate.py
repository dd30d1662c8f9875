# SPDX-License-Identifier: Apache-2.0
"""M=128 MMAs of CuTe DSL ports: which kernels have them and which facts the others lack, that ports are right, and that
mistakes in the support module are found by the runs that verify a port."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "variants"))
pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from dsl_variant_catalog import VARIANTS
from dsl_variant_run import Outcome, run
from dsl_variant_types import Mma, Variant
from dsl_variants_warpgroups import IN_TURN

from porter.build.port_plan import PortPlan, materialize
from porter.passes.dsl.outputs import support_module
from porter.passes.dsl.port import port_python
from porter.verify.builder import PORT_ARCH, BuiltKernel, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.outcome import Verdict
from porter.verify.problem import bind
from porter.verify.proof import Claim, prove
from porter.verify.settings import SimOptions
from porter.verify.sweep import Wanted, verify_cases

pytestmark = pytest.mark.external

CORPUS = Path(__file__).parents[2] / "corpus"
TWO, ONE = VARIANTS["all_of_two"], replace(VARIANTS["all_of_one"], m=128)

SHARED = {
    "two warpgroups": TWO,
    "two in the middle": VARIANTS["two_in_the_middle"],
    "two warpgroups, two tiles each": replace(TWO, m=256),
    "two warpgroups, f16 sums": replace(TWO, kind="f16acc"),
    "two warpgroups, f8": replace(TWO, kind="f8"),
    "two tiles": ONE,
    "four tiles": replace(ONE, m=256),
    "two tiles, f16 sums": replace(ONE, kind="f16acc"),
    "two tiles, whole numbers": replace(ONE, kind="s8"),
    "two tiles, N = 48": replace(ONE, n=48),
    "two tiles twice in N": replace(ONE, n=128, mmas={"mma": Mma((1, 1), 64)}),
    "two tiles of two warpgroups": replace(VARIANTS["beside_each_other"], m=128),
    "tiles by turns of a loop": VARIANTS["tiles_by_turns_of_a_loop"],
    "turns at mbarriers": VARIANTS["turns_at_mbarriers"],
    "sums that are scaled": replace(VARIANTS["added_to_values"], m=128, block=(256, 1, 1), mmas={"mma": Mma((2, 1))}),
}
"""Kernels whose tiles can be one."""
LEFT = {
    "three warpgroups": (VARIANTS["all_of_three"], "warpgroups 0, 1, 2 may run its MMAs"),
    "first and third": (VARIANTS["first_and_third"], "warpgroups 0, 2 may run its MMAs"),
    "halves of N": (VARIANTS["beside_each_other"], "operand B may be another one"),
    "rows of threads": (VARIANTS["rows_of_threads"], "more than one dimension"),
    "one tile": (VARIANTS["first_of_two"], "a tile of 64 rows without another one"),
    "read in the loop": (replace(VARIANTS["promoted"], m=128), "read in the loop that makes them"),
    "N = 24": (replace(TWO, n=24), "N is 24"),
    "turns": (VARIANTS["ping_pong"], "wait for each other at a named barrier"),
    "turns with more than MMAs": (
        replace(
            VARIANTS["turns_at_mbarriers"],
            body=IN_TURN.format(ahead="cute.arch.fence_proxy('async.shared', space='cta')", behind=""),
        ),
        "do more than to multiply",
    ),
    "turns that wait": (
        replace(VARIANTS["turns_at_mbarriers"], body=IN_TURN.format(ahead="", behind="warpgroup.wait_group(0)")),
        "do more than to multiply",
    ),
    "both branches": (VARIANTS["both_branches"], "may part here"),
    "one after the other": (VARIANTS["one_after_the_other"], "may part here"),
    "known at run time": (VARIANTS["known_at_run_time"], "may part here"),
}
"""Kernels whose tiles stay two."""
QUICK = ("two warpgroups", "two tiles", "halves of N", "turns")


def some(table: dict[str, Any]) -> list[Any]:
    return [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in table]


@pytest.mark.parametrize("name", some(SHARED))
def test_tiles_that_become_one(name: str) -> None:
    result = run(SHARED[name], full_rate=True)
    assert result.outcome is Outcome.RIGHT, result.detail
    assert result.why.startswith("128")


@pytest.mark.parametrize("name", some(LEFT))
def test_tiles_that_stay_two(name: str) -> None:
    variant, why = LEFT[name]
    result = run(variant, full_rate=True)
    assert result.outcome is Outcome.RIGHT, result.detail
    assert result.why.startswith("64")
    assert why in result.why


# --- mistakes in the support module

RELABELLED = "            op.results[0].replace_all_uses_with(number)\n"
COUNT = """\
each = RING + {} + ((self, "drain_phase") in self.needed)
        self.holder, barriers = self._shared_memory(each)
"""
JOINED = [
    (COUNT.format(1), COUNT.format(2)),
    ("1 if i else 256)", "128 if i in (0, each - 1) else 1)"),
    ("self.met, self.done, self.drained = barriers, barriers + 1, barriers + 1 + RING",
     "self.met = barriers + (warp // 4 - self.warpgroups[0]) * (each - 1)\n"
     "        self.done, self.drained = barriers + 1, barriers + 1 + RING"),
]  # fmt: skip
HANDED_ON = (
    "                    llvm.store(four, self._place_of(self.warp, h, i), alignment=16)\n            self._meet()\n"
)
MISTAKES: dict[str, tuple[Variant, list[tuple[str, str]], str]] = {
    "threads keep their numbers": (TWO, [(RELABELLED, "            pass\n")], "differ"),
    "each warpgroup meets alone": (SHARED["sums that are scaled"], JOINED, ""),
    "64 rows": (TWO, [("description += (self.rows - 64) >> 4 << 24", "description += 0")], "differ"),
    "other lanes": (TWO, [("{first: 0, second: 16 << 16}", "{first: 16 << 16, second: 0}")], ""),
    "tiles change places": (ONE, [("(2 * m + self.warp // 2,", "(2 * (1 - m) + self.warp // 2,")], "differ"),
    "halves change places": (ONE, [("// 2, self.warp % 2, i)", "// 2, 1 - self.warp % 2, i)")], "differ"),
    "turns are not given up": (SHARED["turns at mbarriers"], [("op.move_before(self.arrival)", "pass")], "deadlock"),
    "read before all have written": (ONE, [(HANDED_ON, HANDED_ON.replace("            self._meet()\n", ""))], ""),
}


@pytest.mark.parametrize("name", [
    pytest.param(n, marks=[] if i < 2 else [pytest.mark.slow]) for i, n in enumerate(MISTAKES)
])  # fmt: skip
def test_a_mistake_is_found(name: str) -> None:
    variant, edits, how = MISTAKES[name]

    def edit(module: bytes) -> bytes:
        text = module.decode()
        for old, new in edits:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        return text.encode()

    result = run(variant, full_rate=True, edit=edit)
    assert result.outcome is Outcome.WRONG, result.why
    assert how in result.why


@pytest.mark.slow
def test_the_gate_finds_tiles_that_are_apart() -> None:
    """With a head of 128 columns the second A tile lies 128 rows behind the first. Runs find what the module finds."""
    case = CORPUS / "dsl_attention" / "case.yaml"
    kernel = load_case(case).kernel
    files = dict(port_python(kernel, full_rate=True).files)
    support = str(kernel.with_name("porter_dsl.py"))
    old = b"            if found != wanted:\n"
    assert files[support].count(old) == 1
    files[support] = files[support].replace(old, b"            if found is None:\n")
    found = prove(Claim(kernel, (), PortPlan(files=files), dsl=True), ToolkitBuilder())
    assert "differ" in found.missing


# --- the corpus

ROWS = {
    "dsl_attention/case.yaml": "",
    "dsl_attention/causal.case.yaml": "16384 bytes behind that of the first, not 8192",
    "dsl_attention_bwd/case.yaml": "operand B may be another one",
    "dsl_attention_wide/case.yaml": "warpgroups 1, 2, 3 may run its MMAs",
    "dsl_gemm/case.yaml": "",
    "dsl_gemm_act/case.yaml": "",
    "dsl_gemm_cluster/case.yaml": "",
    "dsl_gemm_fp8/case.yaml": "",
    "dsl_gemm_fp8_scaled/case.yaml": "",
    "dsl_gemm_gated/case.yaml": "",
    "dsl_gemm_gated/half.case.yaml": "",
    "dsl_gemm_grouped/case.yaml": "",
    "dsl_gemm_helpers/case.yaml": "",
    "dsl_gemm_narrow/case.yaml": "a tile of 64 rows without another one",
    "dsl_gemm_persistent/case.yaml": "",
    "dsl_gemm_persistent/wide.case.yaml": "",
    "dsl_gemm_plain/case.yaml": "",
}
"""What keeps kernels of the corpus at M=64; nothing where they have M=128."""
LONG = ("dsl_gemm", "dsl_gemm_fp8_scaled")
"""Those that take long to compile and are like others."""


def built(path: Path) -> BuiltKernel:
    case = load_case(path)
    source = materialize(PortPlan(files=dict(port_python(case.kernel, full_rate=True).files)), case.kernel)
    return ToolkitBuilder().build(bind(case), source, PORT_ARCH)


@pytest.mark.spread(6)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n.partition("/")[0] in LONG else n for n in ROWS]
)
def test_rows_of_the_corpus(name: str) -> None:
    (told,) = built(CORPUS / name).traced
    assert told.rows == (64 if ROWS[name] else 128)
    assert ROWS[name] in told.why
    assert bool(told.file and told.line) == bool(ROWS[name])


def test_the_compat_module_knows_nothing_of_it() -> None:
    assert b"TRACED" not in support_module()
    assert b"128 rows" not in support_module()


# --- the step `release`

WIDE = CORPUS / "dsl_gemm_persistent" / "wide.case.yaml"
RELEASES = {
    "dsl_gemm_persistent/case.yaml": "",
    "dsl_gemm_persistent/wide.case.yaml": "",
    "dsl_gemm_gated/case.yaml": "",
    "dsl_gemm_grouped/case.yaml": "",
    "dsl_gemm_helpers/case.yaml": "",
    "dsl_gemm/case.yaml": "no stage is given back in its loop",
    "dsl_gemm_fp8_scaled/case.yaml": "uses the registers of sums",
    "dsl_gemm_act/case.yaml": "no stage is given back in its loop",
}
"""What keeps kernels of the corpus from it."""


def with_release(path: Path, edit: Callable[[str], str] = lambda text: text) -> PortPlan:
    kernel = load_case(path).kernel
    files = dict(port_python(kernel, full_rate=True, native=("release",)).files)
    support = str(kernel.with_name("porter_dsl.py"))
    files[support] = edit(files[support].decode()).encode()
    return PortPlan(files=files)


@pytest.mark.spread(4)
@pytest.mark.parametrize("name", RELEASES)
def test_kernels_that_give_stages_back_by_commits(name: str) -> None:
    case = load_case(CORPUS / name)
    source = materialize(with_release(CORPUS / name), case.kernel)
    (told,) = ToolkitBuilder().build(bind(case), source, PORT_ARCH).traced
    why = [one.why for one in told.without]
    assert told.rows == 128
    assert told.steps == (() if RELEASES[name] else ("release",))
    assert [RELEASES[name] in one for one in why] == [True] * bool(RELEASES[name])


WAIT = "                    loads.consumer_wait(mma_state)\n"
TURN = "                tiled_mma.set(warpgroup.Field.ACCUMULATE, False)\n"
GIVEN_BACK = "                loads.consumer_release(done_state)\n                done_state.advance()\n\n"
SUM = "                own = cutlass.Float32(0.0)\n"
READ = "own = own + sA[(tidx % 128, 0, {}.index)].to(cutlass.Float32)\n"
ADDED = ("tRS_rC[v] = tRS_rAcc[epi_idx * per_tile + v]", "tRS_rC[v] = tRS_rAcc[epi_idx * per_tile + v] + own")
IN_THE_LOOP, BEHIND_IT = " " * 20 + READ.format("mma_state"), " " * 16 + READ.format("done_state")
READERS = {
    "in the loop": ([(TURN, SUM + TURN), (WAIT, WAIT + IN_THE_LOOP), ADDED], "cute.memref.load"),
    "behind the loop": ([(TURN, SUM + TURN), (GIVEN_BACK, BEHIND_IT + GIVEN_BACK), ADDED],
                        "before they give a stage back"),
}  # fmt: skip
"""Threads that read the stage that their MMAs read."""


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_commits_do_not_give_back_what_threads_read(name: str, tmp_path: Path) -> None:
    edits, why = READERS[name]
    kernel = tmp_path / "dsl_gemm_persistent.py"
    text = (CORPUS / "dsl_gemm_persistent" / kernel.name).read_text()
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    kernel.write_text(text)
    case = tmp_path / "case.yaml"
    case.write_text((CORPUS / "dsl_gemm_persistent" / "case.yaml").read_text())
    source = materialize(with_release(case), kernel)
    (told,) = ToolkitBuilder().build(bind(load_case(case)), source, PORT_ARCH).traced
    assert told.steps == ()
    assert why in told.without[0].why


RELEASE_MISTAKES = {
    "": None,
    "the count stays": ("            op.operands[1] = one\n", "            pass\n"),
    "given back as soon as it is issued": ("nvvm.tcgen05_commit(pointer)", "nvvm.mbarrier_arrive(pointer)"),
    "nobody meets ahead of the loop": ("self._meet()\n                choice =", "choice ="),
    "all threads arrive behind the loop": ("op.location, _if(self.warp == 0)", "op.location, _if(True)"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", RELEASE_MISTAKES)
def test_a_mistake_of_the_step_is_found(name: str) -> None:
    mistake = RELEASE_MISTAKES[name]

    def edit(text: str) -> str:
        if mistake is None:
            return text
        assert text.count(mistake[0]) == 1
        return text.replace(*mistake)

    plan = with_release(WIDE, edit)
    wanted = Wanted(SimOptions(), families=("integers",), sizes=lambda c: (c.sizes,), hazards=True,
                    port_of=lambda case: (plan, []))  # fmt: skip
    verdicts = {row.verdict for row in verify_cases([WIDE], wanted, ToolkitBuilder()).rows}
    assert (verdicts <= {Verdict.CLEAN, Verdict.REVIEW}) is (mistake is None)
