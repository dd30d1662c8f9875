# SPDX-License-Identifier: Apache-2.0
"""CuTe DSL in Blackwell's own words: forms of one kernel that are understood, and those that keep the support module.
What the traces say is stated, as examples of rules state it, so that nothing is compiled here."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from porter.lang.text import EditGroup, Safety, apply_groups
from porter.passes.idiom_dsl.facts import Trace
from porter.passes.idiom_dsl.port import Idiomatic, idiomatic
from porter.passes.idiom_dsl.stated import stated
from porter.rules.load import load_rules

GEMM = next(r for r in load_rules() if r.id == "PTR580").examples[0].before
PATH = Path("/work/gemm.py")

Change = tuple[str, str]


def changed(*changes: Change, text: str = GEMM) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def ported(text: str, traces: Sequence[Trace] = (), **tile: int) -> Idiomatic:
    shape = {"rows": 128, "columns": 128, **tile}
    return idiomatic(str(PATH), text.encode(), traces or [stated(PATH, text.encode(), **shape)])


def text_of(text: str, **tile: int) -> str:
    found = ported(text, **tile)
    assert not found.what, found.what
    groups = [EditGroup(rule, "", Safety.REVIEW, (edit,)) for rule, edit in found.edits]
    result = apply_groups({str(PATH): text.encode()}, groups)[str(PATH)].decode()
    compile(result, "gemm.py", "exec")
    return result


BASE = text_of(GEMM)


def test_nothing_of_hopper_but_layouts_is_left() -> None:
    left = {name for name in re.findall(r"sm90_utils\.(\w+)", BASE)}
    assert left == {
        "make_smem_layout_a",
        "make_smem_layout_b",
        "make_smem_layout_epi",
        "compute_tile_shape_or_override",
    }
    assert "warpgroup" not in BASE
    assert "porter" not in BASE


def test_lines_that_no_rule_is_for_stay() -> None:
    kept = [line.strip() for line in GEMM.splitlines()]
    for line in (
        "# One warp loads.",
        "self.load(filling)",
        "self.finish(tile, store, t)",
        "gC = cute.zipped_divide(self.gC, self.epi_tile)",
    ):
        assert line in kept
        assert BASE.count(line) == GEMM.count(line)


PRODUCER = """            if warp == 0 and filling.count < self.tiles:
                loads.producer_acquire(filling)
                self.load(filling)
                filling.advance()
"""
SAME: dict[str, tuple[Change, ...]] = {
    "helpers by a from import": (("import cutlass.utils.hopper_helpers as sm90_utils", "from cutlass.utils import hopper_helpers as sm90_utils"),),
    "helpers by another name": (("sm90_utils", "hopper"),),
    "other names of variables": (("sums", "accumulated"), ("loads", "ring"), ("warp ", "w "), ("read.", "here."), ("(read", "(here"), ("read =", "here =")),
    "operands by keyword": (("cute.gemm(mma, sums, rA[(None, None, block, read.index)], rB[(None, None, block, read.index)], sums)", "cute.gemm(mma, d=sums, a=rA[(None, None, block, read.index)], b=rB[(None, None, block, read.index)], c=sums)"),),
    "the layout of atoms by keyword": (("cutlass.Float32, (1, 1, 1), tiler_mn=(64, self.tile[1])", "cutlass.Float32, atom_layout_mnk=(1, 1, 1), tiler_mn=(64, self.tile[1])"),),
    "the tiler by its place": (("tiler_mn=(64, self.tile[1])", "(64, self.tile[1])"),),
    "consumers by a name": (("        loads = pipeline.PipelineTmaAsync.create(", "        group = pipeline.CooperativeGroup(pipeline.Agent.Thread, warps)\n        loads = pipeline.PipelineTmaAsync.create("), ("consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, warps)", "consumer_group=group")),
    "mbarriers by a name": (("        loads = pipeline", "        at = storage.loaded.data_ptr()\n        loads = pipeline"), ("barrier_storage=storage.loaded.data_ptr()", "barrier_storage=at")),
    "loads under a second condition": ((PRODUCER, PRODUCER.replace("warp == 0 and filling", "warp == 0 and self.more and filling")),),
    "loads under a condition in another": ((PRODUCER, "            if warp == 0:\n                if filling.count < self.tiles:\n" + PRODUCER.split("\n", 1)[1].replace("                ", "                    ")),),
    "a peeled first turn": (("        for k in cutlass.range(self.tiles):\n", "        for _ in cutlass.range_constexpr(1):\n            loads.consumer_wait(read)\n            warpgroup.fence()\n            cute.gemm(mma, sums, rA[(None, None, 0, read.index)], rB[(None, None, 0, read.index)], sums)\n            warpgroup.commit_group()\n            read.advance()\n        for k in cutlass.range(1, self.tiles):\n"),),
    "a buffer that is given back at once": (("            if k > 0:\n                loads.consumer_release(done)\n                done.advance()\n", "            loads.consumer_release(read)\n"), ("wait_group(1)", "wait_group(0)")),
    "releases behind the loop": (("        warpgroup.wait_group(0)\n", "        warpgroup.wait_group(0)\n        loads.consumer_release(done)\n        done.advance()\n"),),
    "sums as a fragment": (("cute.make_rmem_tensor(part.partition_C(self.gC).shape, cutlass.Float32)", "mma.make_fragment_C(part.partition_C(self.gC).shape)"),),
    "an element counted from the tile": (("all_sums[t * cute.size(tile) + i]", "all_sums[i + cute.size(tile) * t]"),),
    "an atom in the call": (("        base = cute.make_tiled_copy_C_atom(store_atom, mma)\n", ""), ("make_tiled_copy_S(store_atom, base)", "make_tiled_copy_S(store_atom, cute.make_tiled_copy_C_atom(store_atom, mma))")),
    "an annotated name": (("        sums = cute.make_rmem", "        sums: cute.Tensor = cute.make_rmem"),),
    "a kernel that returns at its end": (("            self.finish(tile, store, t)\n", "            self.finish(tile, store, t)\n        return\n"),),
    "sums that are cleared": (("        mma.set(warpgroup.Field.ACCUMULATE, False)\n", "        sums.fill(0.0)\n        mma.set(warpgroup.Field.ACCUMULATE, True)\n"),),
}  # fmt: skip
"""Changes of the kernel that leave it one that is understood."""


@pytest.mark.parametrize("form", SAME)
def test_forms_of_one_kernel(form: str) -> None:
    result = text_of(changed(*SAME[form]))
    for gone in ("warpgroup", "wait_group", "commit_group", "PipelineTmaAsync", ".retile(sums)", "make_tiled_copy_S"):
        assert gone not in result, gone
    once = (
        "get_tmem_load_op(",
        "PipelineUmmaAsync.create(",
        "TmemAllocator(",
        ".producer_commit(acc_state)",
        ".free(tmem_ptr)",
    )
    assert [result.count(line) for line in once] == [1] * len(once)
    assert result.count(".consumer_release(") == result.count(".consumer_wait(") - 1, "each buffer is given back once"


def test_a_module_by_another_name() -> None:
    result = text_of(re.sub(r"(?<![\w.])cute\b", "ct", GEMM))
    assert result == re.sub(r"(?<![\w.])cute\b", "ct", BASE)


def test_a_release_stands_behind_the_mmas_of_its_buffer() -> None:
    turn = BASE[BASE.index("loads.consumer_wait(read)") : BASE.index("read.advance()")]
    assert turn.index("cute.gemm(") < turn.index("loads.consumer_release(read)")


def test_cleared_sums_of_a_loop_that_may_be_empty_are_zeros() -> None:
    result = text_of(changed(*SAME["sums that are cleared"]))
    assert "multiplies = self.tiles > 0\n" in result
    assert "            else:\n                tTR_rAcc.fill(0)\n" in result
    assert "mma.set(tcgen05.Field.ACCUMULATE, False)" in result


def test_two_warpgroups_become_one() -> None:
    text = changed(
        ("(1, 1, 1), tiler_mn", "self.atoms, tiler_mn"),
        ("class Gemm:\n", "class Gemm:\n    def __init__(self):\n        self.atoms = (2, 1, 1)\n\n"),
    )
    assert "        self.atoms = (1, 1, 1)\n" in text_of(text, warpgroups=2)


def test_a_taken_name_gets_another() -> None:
    assert "tmem_2 = utils.TmemAllocator(" in text_of(
        changed(("warps", "tmem")).replace("tmem = self", "tmem = other = self")
    )


def test_a_barrier_that_the_kernel_has_is_not_taken() -> None:
    text = changed(
        (
            "            self.finish(tile, store, t)\n",
            "            self.finish(tile, store, t)\n            pipeline.sync(barrier_id=1)\n",
        )
    )
    assert "barrier_id=2, num_threads" in text_of(text)


LEFT: dict[str, tuple[tuple[Change, ...], str]] = {
    "sums that begin with 1": ((("        mma.set(warpgroup.Field.ACCUMULATE, False)\n", "        sums.fill(1.0)\n        mma.set(warpgroup.Field.ACCUMULATE, True)\n"),), "begins with something else than zero"),
    "sums that are read in the loop": ((("            warpgroup.commit_group()\n", "            warpgroup.commit_group()\n            self.look(sums)\n"),), "registers of the accumulator that are used in the main loop"),
    "sums that are read behind it, too": ((("        warpgroup.wait_group(0)\n", "        warpgroup.wait_group(0)\n        self.look(sums)\n"),), "is not said by the MMA"),
    "a barrier in the loop": ((("            warpgroup.fence()\n", "            warpgroup.fence()\n            cute.arch.sync_threads()\n"),), "a barrier of all threads"),
    "a loop that is left": ((("            warpgroup.fence()\n", "            if k == 9:\n                break\n            warpgroup.fence()\n"),), "may be left"),
    "a return in the middle": ((("        sums = cute", "        if self.empty:\n            return\n        sums = cute"),), "ends at several places"),
    "elements in another order": ((("t * cute.size(tile) + i", "i * cute.size(tile) + t"),), "registers in another order"),
    "elements taken backwards": ((("tile[i] = ", "tile[7 - i] = "),), "registers in another order"),
    "a second pipeline of loads": ((("        part = mma", "        more = pipeline.PipelineTmaAsync.create(num_stages=1)\n        part = mma"),), "pipelines of loads: 2 found"),
    "mbarriers of no struct": ((("storage.loaded.data_ptr()", "self.pointer"),), "no member of a struct"),
    "two MMAs of other sums": ((("                mma.set(warp", "                cute.gemm(mma, other, rA, rB, other)\n                mma.set(warp"),), "another name at its MMAs"),
    "a sum that is no sum of its own": ((("read.index)], sums)", "read.index)], other)"),), "another tensor than what it adds to"),
    "a state that is used behind": ((("        warpgroup.wait_group(0)\n", "        warpgroup.wait_group(0)\n        self.look(read)\n"),), "`read` of the main loop is used behind it"),
    "loads of all warps": ((("            if warp == 0 and filling.count < self.tiles:\n", "            if True:\n"),), "loads under several conditions"),
    "two texts in one line": (("        warpgroup.wait_group(0)\n", "        warpgroup.wait_group(0); x = 1\n"),) and ((("            warpgroup.commit_group()\n", "            warpgroup.commit_group(); x = 1\n"),), "a call among others in one statement"),
    "an atom whose types are not said": ((("sm90_utils.get_smem_store_op(self.layout_c, cutlass.Float16, cutlass.Float32)", "self.atom()"),), "layout and types are not said"),
    "an epilogue tile without a name": ((("cute.zipped_divide(self.gC, self.epi_tile)", "self.divided()"),), "no name in the kernel"),
}  # fmt: skip
"""Changes with which the port would be another one, and what is said."""


@pytest.mark.parametrize("form", LEFT)
def test_what_keeps_the_support_module(form: str) -> None:
    changes, what = LEFT[form]
    found = ported(changed(*changes))
    assert what in found.what
    assert not found.edits


@pytest.mark.parametrize(
    ("tile", "what"),
    [({"rows": 256}, "256 x 128"), ({"columns": 264}, "128 x 264"), ({"rows": 192}, "192 x 128")],
)
def test_tiles_that_one_mma_does_not_have(tile: dict[str, int], what: str) -> None:
    assert what in ported(GEMM, **tile).what


def with_op(change: Callable[[dict[str, object]], None]) -> Idiomatic:
    trace = stated(PATH, GEMM.encode(), 128, 128)
    for call in trace.calls:
        if call["name"].endswith(".gemm"):
            change(call["values"]["0"]["op"])
    return ported(GEMM, [trace])


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"a_src": {"text": "OperandSource.RMEM"}}, "A from registers"),
        ({"kind": "MmaF16BF16SparseOp"}, "a sparse MMA"),
        ({"a_dtype": {"type": "Uint8"}, "b_dtype": {"type": "Int8"}}, "operands of Uint8 and Int8"),
    ],
)
def test_mmas_without_a_sister(changes: dict[str, object], what: str) -> None:
    assert with_op(lambda op: op.update(changes)).what == what


def test_text_and_trace_have_to_agree() -> None:
    trace = stated(PATH, GEMM.encode(), 128, 128)
    without = replace(trace, calls=[c for c in trace.calls if not c["name"].endswith(".gemm")])
    assert ported(GEMM, [without]).what == "no case comes to this MMA"
    moved = [{**c, "file": "/work/other.py"} if c["name"].endswith(".gemm") else c for c in trace.calls]
    assert ported(GEMM, [replace(trace, calls=moved)]).what == "`gemm` is called in other.py"


def test_cases_that_launch_other_blocks_do_not_agree() -> None:
    trace = stated(PATH, GEMM.encode(), 128, 128)
    found = ported(GEMM, [trace, replace(trace, threads=256)])
    assert found.what.startswith("threads of a block: ")
