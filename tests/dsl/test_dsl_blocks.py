# SPDX-License-Identifier: Apache-2.0
"""The step `blocks` of CuTe DSL ports: which kernels have it and which facts others lack, what becomes of launch
bounds, setmaxregister and sums, that ports are right, and that mistakes are found by the runs that verify a port."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from porter.build.port_plan import PortPlan, materialize
from porter.passes.dsl.outputs import support_module
from porter.passes.dsl.port import port_python
from porter.verify.builder import PORT_ARCH, BuiltKernel, ToolkitBuilder
from porter.verify.case import Case, load_case
from porter.verify.outcome import Verdict
from porter.verify.problem import bind
from porter.verify.settings import SimOptions
from porter.verify.sweep import Wanted, verify_cases

pytestmark = pytest.mark.external

CORPUS = Path(__file__).parents[2] / "corpus"
NARROW = CORPUS / "dsl_attention" / "case.yaml"
TWO = CORPUS / "dsl_attention_wide" / "two.case.yaml"
STEPS = ("blocks",)
Edits = Sequence[tuple[str, str]]


def plan(case: Path, edit: Callable[[str], str] = lambda text: text, steps: tuple[str, ...] = STEPS) -> PortPlan:
    kernel = load_case(case).kernel
    files = dict(port_python(kernel, full_rate=True, native=steps).files)
    support = str(kernel.with_name("porter_dsl.py"))
    files[support] = edit(files[support].decode()).encode()
    return PortPlan(files=files)


def built(path: Path, steps: tuple[str, ...] = STEPS) -> BuiltKernel:
    case = load_case(path)
    return ToolkitBuilder().build(bind(case), materialize(plan(path, steps=steps), case.kernel), PORT_ARCH)


def changed(folder: Path, case: Path, edits: Edits, said: Edits = ()) -> Path:
    """A case whose kernel has other statements; `said`: what the case says otherwise."""
    shutil.copytree(case.parent, folder)
    for path, wanted in ((load_case(case).kernel, edits), (case, said)):
        text = path.read_text()
        for old, new in wanted:
            assert text.count(old) >= 1, old
            text = text.replace(old, new)
        (folder / path.name).write_text(text)
    return folder / case.name


def bounds(ptx: str) -> list[str]:
    return re.findall(r"\.minnctapersm (\d+)|setmaxnreg\.(?:inc|dec)\S+\s+(\d+)", ptx)


@pytest.mark.slow
def test_two_blocks_of_the_corpus_kernel() -> None:
    found = built(NARROW)
    (told,) = found.traced
    assert (told.rows, told.steps, told.without) == (128, STEPS, ())
    assert bounds(found.ptx) == [("2", ""), ("", "40"), ("", "96")]
    # none is given that threads of a block have not
    assert 40 * 128 + 96 * 256 <= 65536 // (2 * 384) // 8 * 8 * 384
    # the sum is stored in the loop, before the stage that it is multiplied by is waited for
    loop = found.ptx[found.ptx.index("setmaxnreg.inc") :]
    assert re.search(r"tcgen05\.st\S+16x256b\.x8(.|\n)*?mbarrier\.try_wait(.|\n)*?tcgen05\.mma", loop)


def test_the_modules_without_the_step_know_nothing_of_it() -> None:
    for module in (support_module(), support_module(full_rate=True), support_module(True, ("release",))):
        assert b"minctasm" not in module
    assert support_module(True, STEPS).count(b"minctasm") == 1


# --- which kernels

LOWER = "            cute.arch.setmaxregister_decrease(self.load_registers)\n"
RAISE = "            cute.arch.setmaxregister_increase(self.mma_registers)\n"
LAUNCH = "            block=[self.threads_per_cta, 1, 1],\n"
RESCALE = "                        tOrO[i, j] = tOrO[i, j] * rescale\n"
HALVES = """\
            if warpgroup_idx == 1:
                cute.arch.setmaxregister_increase({})
            if warpgroup_idx == 2:
                cute.arch.setmaxregister_increase({})
"""
WIDE_RESCALE = "                        tOrO[i, j] = tOrO[i, j] * rescale[i]\n"
READ = """\
                    if rescale != 1.0:
                        for j in cutlass.range_constexpr(cute.size(tOrO, mode=[1])):
                            tOrO[i, j] = tOrO[i, j] * rescale
"""
CHANGE = """\
                for i in cutlass.range_constexpr(rows):
                    for j in cutlass.range_constexpr(cute.size(tOrO, mode=[1])):
                        tOrO[i, j] = tOrO[i, j] * rescale[i]
"""
PROBABILITIES = "                tOrP_acc.store(acc_s.load().to(self.dtype))\n"
GUARDED = (
    """\
                if tile > 1000:
                    warpgroup.fence()
                    cute.gemm(pv_mma, acc_o, tOrP[(None, None, 0)], tOrV[(None, None, 0, 0)], acc_o)
                    warpgroup.commit_group()
                    warpgroup.wait_group(0)
"""
    + PROBABILITIES
)
COPIED = """\
                kept = cute.make_rmem_tensor(acc_o.layout, cutlass.Float32)
                cute.autovec_copy(acc_o, kept)
                if tidx == 1000:
                    cute.printf("%f", kept[0])
"""
PACKED = "                # The accumulator's registers are in the order of the operand's.\n"
LOOP = "                    for j in cutlass.range_constexpr(cute.size(tOrO, mode=[1])):\n" + RESCALE
WIDE_IF = WIDE_RESCALE.replace(
    "    tOrO[i, j] = ", "    if rescale[i] != 1.0:\n                            tOrO[i, j] = "
)
VARIANTS: dict[str, tuple[Path, Edits, Edits, list[tuple[str, str]], str]] = {
    "causal": (NARROW, [], [("head_dim: D", "head_dim: D, causal: true")], [("2", ""), ("", "40"), ("", "96")], ""),
    "one stage": (NARROW, [], [("head_dim: D", "head_dim: D, stages: 1")], [("2", ""), ("", "40"), ("", "96")], ""),
    "two warpgroups of one tiled MMA, 128 columns": (TWO, [], [], [("2", ""), ("", "32"), ("", "104")], ""),
    "no setmaxregister": (NARROW, [(LOWER, ""), (RAISE, "")], [], [("2", "")], ""),
    "one block as it was": (NARROW, [(LAUNCH, LAUNCH + "            min_blocks_per_mp=1,\n")], [],
                            [("2", ""), ("", "40"), ("", "96")], ""),
    "one for each consumer": (NARROW, [(RAISE, HALVES.format(232, 232))], [],
                              [("2", ""), ("", "40"), ("", "96"), ("", "96")], ""),
    "fewer than there are": (NARROW, [("self.mma_registers = 232", "self.mma_registers = 88")], [],
                             [("2", ""), ("", "40"), ("", "88")], ""),
    "sums under a condition": (NARROW, [(LOOP, READ)], [], [("2", ""), ("", "40"), ("", "96")], ""),
    "sums that are copied": (NARROW, [(PACKED, COPIED + PACKED)], [], [("2", ""), ("", "40"), ("", "96")], ""),
    "MMAs under a condition": (TWO, [(CHANGE + PROBABILITIES, CHANGE + GUARDED)], [],
                               [("2", ""), ("", "32"), ("", "104")], ""),
    "two blocks already": (NARROW, [(LAUNCH, LAUNCH + "            min_blocks_per_mp=2,\n")], [],
                           [("2", ""), ("", "40"), ("", "232")], "ask for one block on an SM"),
    "other numbers for consumers": (NARROW, [(RAISE, HALVES.format(232, 224))], [],
                                    [("", "40"), ("", "232"), ("", "224")], "the same number of registers"),
    "registers that are kept": (NARROW, [("self.load_registers = 40", "self.load_registers = 88")], [],
                                [("", "88"), ("", "232")], "fewer registers than the 80"),
    "part of a warpgroup": (NARROW, [(LOWER, "            if warp_idx < 3:\n    " + LOWER)], [],
                            [("", "40"), ("", "232")], "which warpgroups come to this setmaxregister"),
    "who comes only run time tells": (NARROW, [(RAISE, "            if block < 1000:\n    " + RAISE)], [],
                                      [("", "40"), ("", "232")], "which warpgroups come to this setmaxregister"),
    "shared memory": (CORPUS / "dsl_attention" / "causal.case.yaml", [], [], [("", "40"), ("", "232")],
                      "room in shared memory: a block takes"),
    "Tensor Memory": (CORPUS / "dsl_attention_wide" / "case.yaml", [], [], [("1", ""), ("", "32"), ("", "160")],
                      "room in Tensor Memory: a block takes 512 columns, and each of 2 may have 256"),
    "sums of 128 columns under a condition": (TWO, [(WIDE_RESCALE, WIDE_IF)], [], [("1", ""), ("", "32"), ("", "160")],
                                              "they take 112, and threads of 2 blocks have 104"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_a_kernel_has_it_or_the_fact_that_is_missing_is_named(name: str, tmp_path: Path) -> None:
    case, edits, said, expected, why = VARIANTS[name]
    found = built(changed(tmp_path / "kernel", case, edits, said))
    (told,) = found.traced
    assert bounds(found.ptx) == expected
    assert told.steps == (() if why else STEPS)
    assert [(left.step, why in left.why, left.line > 0) for left in told.without] == [("blocks", True, True)] * bool(
        why
    )


# --- runs


def verdicts(path: Path, made: PortPlan, schedule: str = "late", every: bool = False) -> set[Verdict]:
    sizes = Case.all_sizes if every else lambda c: (c.sizes,)
    wanted = Wanted(SimOptions(schedule=schedule, seed=1), families=("index",), sizes=sizes, hazards=True,
                    port_of=lambda case: (made, []))  # fmt: skip
    return {row.verdict for row in verify_cases([path], wanted, ToolkitBuilder()).rows}


RIGHT = [name for name, (*_, why) in VARIANTS.items() if not why]


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["late", "random"])
@pytest.mark.parametrize("name", RIGHT)
def test_ports_are_right(name: str, schedule: str, tmp_path: Path) -> None:
    case, edits, said, _, _ = VARIANTS[name]
    said = [*said, ("SCALE: \"0.125\"", "SCALE: \"0.125\", CAUSAL: 1")] if name == "causal" else said  # fmt: skip
    path = changed(tmp_path / "kernel", case, edits, said)
    assert verdicts(path, plan(path), schedule, every=True) <= {Verdict.CLEAN, Verdict.REVIEW}


LOAD = "moved = emitter._move(piece, False)\n                    _here(cute.arch.fence_view_async_tmem_load)\n"
STORED = "            emitter._move(piece, True)\n            if number == len(_pieces_of(item)) - 1:\n"
STORE = STORED + "                _here(cute.arch.fence_view_async_tmem_store)\n"
SLOTS = "where, four.load().ir_value())\n        _here(cute.arch.fence_view_async_tmem_store)\n\n\ndef _in_pieces"
PIECE = "_Part(part.array, start, stop, part.bits)"
MEET = '        if stored or True in item.before["loose"]:\n'
MISTAKES: dict[str, tuple[str, str]] = {
    "a piece that is not waited for": (LOAD, LOAD.partition("\n")[0] + "\n"),
    "pieces that are not stored": (STORED, STORED.replace("emitter._move(piece, True)", "pass")),
    "stores that are not waited for": (STORE, STORED + "                pass\n"),
    "other columns": (PIECE, PIECE.replace("start, stop", "part.start, part.start + stop - start")),
    "nobody meets behind the pieces": (MEET, "        if stored:\n"),
    "an operand that is not waited for": (SLOTS, SLOTS.replace("_here(cute.arch.fence_view_async_tmem_store)", "pass")),
    "more registers than there are": ("counts[op] = min(most, MOST, asked[op])", "counts[op] = asked[op]"),
}


def test_each_mistake_can_be_made() -> None:
    module = support_module(True, STEPS).decode()
    assert [name for name, (old, _) in MISTAKES.items() if module.count(old) != 1] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str) -> None:
    def edit(text: str) -> str:
        assert text.count(MISTAKES[name][0]) == 1
        return text.replace(*MISTAKES[name])

    assert not verdicts(TWO, plan(TWO, edit)) <= {Verdict.CLEAN, Verdict.REVIEW}
