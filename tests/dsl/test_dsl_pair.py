# SPDX-License-Identifier: Apache-2.0
"""The step `pair` of CuTe DSL ports: which kernels have it and which facts others lack, that their ports are right, and
that mistakes are found by the runs that verify a port."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from porter.build.dsl import DslTraced
from porter.build.port_plan import PortPlan, materialize
from porter.passes.dsl.outputs import DSL_STEPS, support_module
from porter.passes.dsl.port import port_python
from porter.passes.native.pair import NAME as PAIR
from porter.verify.builder import PORT_ARCH, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.launching import BuiltPort, build_port
from porter.verify.outcome import Verdict
from porter.verify.problem import bind
from porter.verify.settings import SimOptions
from porter.verify.sweep import Wanted, verify_cases

pytestmark = pytest.mark.external

CORPUS = Path(__file__).parents[2] / "corpus"
HELPERS = CORPUS / "dsl_gemm_helpers" / "case.yaml"
PERSISTENT = CORPUS / "dsl_gemm_persistent" / "case.yaml"
Sizes = Mapping[str, int]
SMALL: Sizes = {"M": 256, "N": 256, "K": 128}


def plan(case: Path, steps: tuple[str, ...] = DSL_STEPS, edit: Callable[[str], str] = lambda text: text) -> PortPlan:
    kernel = load_case(case).kernel
    files = dict(port_python(kernel, full_rate=True, native=steps).files)
    support = str(kernel.with_name("porter_dsl.py"))
    files[support] = edit(files[support].decode()).encode()
    return PortPlan(files=files)


def built(path: Path, sizes: Sizes) -> BuiltPort:
    case = load_case(path)
    return build_port(bind(case, {**case.sizes, **sizes}), plan(path), ToolkitBuilder())


def traced(path: Path, sizes: Sizes) -> DslTraced:
    case = load_case(path)
    problem = bind(case, {**case.sizes, **sizes})
    (told,) = ToolkitBuilder().build(problem, materialize(plan(path), case.kernel), PORT_ARCH).traced
    return told


def missing(told: DslTraced) -> str:
    """What keeps a kernel from pairs; empty if nothing does. It is named with a line of the kernel."""
    left = {one.step: one for one in told.without}
    assert (PAIR in told.steps) is (PAIR not in left and not {"release", "mma-thread"} & left.keys())
    assert all(one.line > 0 and one.file for one in told.without)
    found = left.get("release", left.get("mma-thread", left.get(PAIR)))
    return "" if found is None else found.why


def test_a_kernel_that_numbers_its_tiles_itself() -> None:
    port = built(HELPERS, SMALL)
    (told,) = port.kernel.traced
    assert told.steps == DSL_STEPS
    assert told.without == ()
    assert (port.launch.grid, port.launch.cluster) == ((2, 1, 1), (2, 1, 1))


ROWS = "the two CTAs of a pair may come to a load at different times"
COLUMNS = "the two CTAs of a pair may multiply by different columns"
KERNELS: dict[str, tuple[str, Sizes, str]] = {
    "a tile scheduler": ("dsl_gemm_persistent/case.yaml", {"M": 256}, ""),
    "two warpgroups, an odd number of columns": (
        "dsl_gemm_persistent/wide.case.yaml", {"M": 512, "N": 768, "K": 64}, ""),
    "one row of tiles": ("dsl_gemm_persistent/case.yaml", {"M": 128, "N": 256, "K": 64}, COLUMNS),
    "three rows of tiles": ("dsl_gemm_persistent/wide.case.yaml", {"M": 384, "N": 512, "K": 64}, COLUMNS),
    "a tile of one block": ("dsl_gemm_persistent/case.yaml", {"M": 128, "N": 128, "K": 64}, "along one axis"),
    "an odd number of tiles": ("dsl_gemm_helpers/case.yaml", {"M": 384, "N": 128, "K": 64}, ROWS),
    "tiles of groups": ("dsl_gemm_grouped/case.yaml", {}, "an odd number of CTAs, and nobody knows"),
    "turns": ("dsl_gemm_helpers/pingpong.case.yaml", SMALL, "may wait for each other at a named barrier"),
    "A from registers": ("dsl_gemm_helpers/registers.case.yaml", SMALL, "operand A is in registers"),
    "a block for each tile": ("dsl_gemm_gated/case.yaml", {}, "no loop takes one tile after another"),
    "multicast": ("dsl_gemm_cluster/case.yaml", {}, "its loop does more than"),
}  # fmt: skip
"""Kernels of the corpus at a size, with what keeps them from pairs."""


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_the_corpus(name: str) -> None:
    path, sizes, why = KERNELS[name]
    told = traced(CORPUS / path, sizes)
    found = missing(told) if told.rows == 128 else told.why
    assert why in found
    assert bool(found) is bool(why)


def test_the_modules_without_the_step_know_nothing_of_it() -> None:
    for module in (support_module(), support_module(full_rate=True), support_module(True, DSL_STEPS[:3])):
        assert b"cluster" not in module.replace(b"cluster\\.", b"").replace(b"clusterid", b"")
        assert b"CTA_2" not in module
        assert b"KernelLauncher" not in module
    assert b"_LAUNCHER.launch = " in support_module(True, DSL_STEPS)


# --- what a kernel may not do

TILES = "utils.PersistentTileSchedulerParams(tiles, (1, 1, 1))"
GRID = "grid=utils.StaticPersistentTileScheduler.get_grid_shape(tile_params, self.blocks),\n"
THREADS = "            block=[self.threads_per_cta, 1, 1],\n"
K_TILES = "                for k_tile in cutlass.range(k_tiles, unroll=1):\n"
ACQUIRE = "                    loads.producer_acquire(load_state)\n"
LOAD_B = "cute.copy(tma_b, tBgB[(None, n, k_tile, batch)], tBsB[(None, index)], tma_bar_ptr=barrier)"
BLOCK = "cute.arch.block_idx(), cute.arch.grid_dim()"
OWN = "cute.arch.block_idx(), (1, 1, self.blocks + cute.arch.block_idx()[0])"
CHANGES: dict[str, tuple[list[tuple[str, str]], str]] = {
    "tiles along columns": ([(TILES, TILES.replace("1))", "1), raster_along_m=False)"))], COLUMNS),
    "tiles in groups of columns": ([(TILES, TILES.replace("1))", "1), 2)"))], COLUMNS),
    "tiles in groups of rows": ([(TILES, TILES.replace("1))", "1), 2, False)"))], "the two CTAs of a pair may"),
    "a cluster of one": ([(THREADS, THREADS + "            cluster=[1, 1, 1],\n")], ""),
    "a cluster": ([(THREADS, THREADS + "            cluster=[1, 1, 2],\n")], "launched in clusters already"),
    "CTAs at once": ([(THREADS, THREADS + "            cooperative=True,\n")], "wait for each other"),
    "a grid of two axes": ([(GRID, "grid=[2, 1, 2],\n")], "along one axis"),
    "columns that begin elsewhere": (
        [(LOAD_B, LOAD_B.replace("n, k_tile", "n, k_tile + m"))], COLUMNS),
    "fewer steps for some rows": (
        [(K_TILES + ACQUIRE, K_TILES.replace("k_tiles,", "k_tiles - m,") + ACQUIRE)], ROWS),
    "columns in two copies": (
        [(LOAD_B, LOAD_B + "\n                    " + LOAD_B)],
        "3 copies by TMA fill a stage"),
    "a step of its own for an odd number of CTAs": (
        [(BLOCK, OWN)], "an odd number of CTAs"),
    "a place of its own for each of an odd number of CTAs": (
        [("*work.tile_idx)], self.epi", "*work.tile_idx[:2], cute.arch.block_idx()[2])], self.epi")],
        "an odd number of CTAs"),
    "an even number of CTAs in steps of its own": (
        [(BLOCK, OWN), ("self.blocks = blocks", "self.blocks = 2")], ROWS),
}  # fmt: skip


def changed(folder: Path, edits: list[tuple[str, str]]) -> Path:
    """The persistent kernel with other statements."""
    shutil.copytree(PERSISTENT.parent, folder)
    kernel = folder / "dsl_gemm_persistent.py"
    text = kernel.read_text()
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    kernel.write_text(text)
    return folder / "case.yaml"


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_what_keeps_a_kernel_from_it_is_named(name: str, tmp_path: Path) -> None:
    edits, why = CHANGES[name]
    found = missing(traced(changed(tmp_path / "kernel", edits), {"K": 64}))
    assert why in found
    assert bool(found) is bool(why)


# --- runs

MEETING = "        self._all()\n        nvvm.tcgen05_fence(AFTER)\n        with _if(cute.arch.make_warp_uniform("
AHEAD = "        with ir.InsertionPoint(self.pairing.first), self.pairing.first.location:\n            self._all()\n"
HALVES = "b.op.operands[1], b.op.operands[2] = _raw(source), _raw(target)"
EXPECTED = "with ir.InsertionPoint(expected), expected.location, _if(self.rank == 0):"
MISTAKES: dict[str, tuple[str, str] | None] = {
    "": None,
    "both load the same half": ("_piece(b.source, self.rank)", "_piece(b.source, 0)"),
    "the halves in the other order": ("_piece(b.source, self.rank)", "_piece(b.source, 1 - self.rank)"),
    "each loads all columns": (HALVES, "pass"),
    "halves where they lay": ("_piece(b.target, 0)", "_piece(b.target, self.rank)"),
    "bytes of one CTA": ("2 * a.bytes + b.bytes", "a.bytes + b.bytes // 2"),
    "both say how many bytes": (EXPECTED, EXPECTED.replace("self.rank == 0", "self.rank >= 0")),
    "commits to one CTA": ("_BOTH = 3\n", "_BOTH = 1\n"),
    "both multiply": ("super()._multiplies(warp) & (self.rank == 0)", "super()._multiplies(warp)"),
    "reads of one CTA alone": ("return 2 * super()._readers()", "return super()._readers()"),
    "reads that are told to the own CTA": (
        "    def _read(self, barrier: Any) -> None:\n        _arrive(barrier, 0)\n",
        "    def _read(self, barrier: Any) -> None:\n        _arrive(barrier, self.rank)\n"),
    "no meeting at the end": (MEETING, MEETING.replace("self._all()", "_here(cute.arch.sync_threads)")),
    "no meeting ahead of the loads": (AHEAD, ""),
}  # fmt: skip


def verdicts(path: Path, made: PortPlan, sizes: Sizes, schedule: str = "late") -> set[Verdict]:
    wanted = Wanted(SimOptions(schedule=schedule, seed=1), families=("index",), sizes=lambda c: ({**c.sizes, **sizes},),
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

    found = verdicts(HELPERS, plan(HELPERS, edit=edit), {"M": 512, "N": 384, "K": 192})
    assert found
    assert (found <= {Verdict.CLEAN, Verdict.REVIEW}) is (mistake is None)


RIGHT: dict[str, tuple[str, Sizes]] = {
    "many tiles": ("dsl_gemm_persistent/case.yaml", {"M": 1024, "N": 384, "K": 64, "L": 1}),
    "a batch": ("dsl_gemm_persistent/case.yaml", {"M": 256, "N": 128, "K": 320, "L": 3}),
    "a ragged product": ("dsl_gemm_persistent/case.yaml", {"M": 200, "N": 264, "K": 200, "L": 1}),
    "one step": ("dsl_gemm_persistent/wide.case.yaml", {"M": 512, "N": 768, "K": 64, "L": 1}),
    "tiles of its own": ("dsl_gemm_helpers/case.yaml", {"M": 1000, "N": 520, "K": 136}),
}


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["late", "random"])
@pytest.mark.parametrize("steps", [DSL_STEPS, (*DSL_STEPS[:2], PAIR)], ids=["two accumulators", "one"])
@pytest.mark.parametrize("name", RIGHT)
def test_ports_are_right(name: str, steps: tuple[str, ...], schedule: str) -> None:
    path, sizes = RIGHT[name]
    made = plan(CORPUS / path, steps)
    case = load_case(CORPUS / path)
    told = build_port(bind(case, {**case.sizes, **sizes}), made, ToolkitBuilder()).kernel.traced
    assert [PAIR in one.steps for one in told] == [True]
    assert verdicts(CORPUS / path, made, sizes, schedule) <= {Verdict.CLEAN, Verdict.REVIEW}
