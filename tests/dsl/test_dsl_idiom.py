# SPDX-License-Identifier: Apache-2.0
"""CuTe DSL in Blackwell's own words: forms of one kernel that are understood, and those that keep the support module.
What the traces say is stated, as examples of rules state it, so that nothing is compiled here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import libcst as cst
import pytest
import yaml

from porter.lang.text import EditGroup, Safety, apply_groups
from porter.passes.dsl.port import port_python
from porter.passes.idiom_dsl.facts import Trace
from porter.passes.idiom_dsl.names import OPTIONAL
from porter.passes.idiom_dsl.port import Idiomatic, idiomatic
from porter.passes.idiom_dsl.stated import stated
from porter.passes.idiom_dsl.text import found_in
from porter.rules.load import load_rules

GEMM = next(r for r in load_rules() if r.id == "PTR580").examples[0].before
PATH = Path("/work/gemm.py")

Change = tuple[str, str]


def changed(*changes: Change, text: str = GEMM) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def changes_of(told: Sequence[dict[str, str]]) -> list[Change]:
    return [(one["from"], one["to"]) for one in told]


def ported(text: str, *traces: Trace, **tile: int) -> Idiomatic:
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


def mostly_slow(forms: Iterable[str], quick: int = 5) -> list[object]:
    """A form takes a quarter of a second, most of it libcst's."""
    return [pytest.param(form, marks=pytest.mark.slow if i >= quick else ()) for i, form in enumerate(forms)]


def test_nodes_are_found_in_the_order_of_the_text_in_one_visit(monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[cst.CSTNode] = []
    inner = cst.Module.visit
    monkeypatch.setattr(cst.Module, "visit", lambda node, visitor: visited.append(node) or inner(node, visitor))
    module = cst.parse_module("def f(a, b=g(1)):\n    return h(a)(b) if k(a) else [x() for x in b]\n")
    calls = found_in(module, cst.Call)
    assert [cst.Module([]).code_for_node(c.func) for c in calls] == ["g", "h(a)", "h", "k", "x"]
    assert found_in(calls[1], cst.BaseExpression)[:3] == [calls[1], calls[2], calls[2].func]
    assert found_in(module, cst.Return)[0] in found_in(module, cst.CSTNode)
    assert visited == [module]


def test_nothing_of_hopper_but_layouts_is_left() -> None:
    left = set(re.findall(r"sm90_utils\.(\w+)", BASE))
    assert left == {
        "make_smem_layout_a",
        "make_smem_layout_b",
        "make_smem_layout_epi",
        "compute_tile_shape_or_override",
    }
    assert "warpgroup" not in BASE
    assert "porter" not in BASE


def test_names_that_the_dsl_lacks_are_left_out_and_told() -> None:
    """Without a name for fences the port is as NVIDIA's kernels of that version are."""
    (name,) = OPTIONAL.values()
    trace = stated(PATH, GEMM.encode(), 128, 128)
    found = ported(GEMM, replace(trace, absent=frozenset([name, "cutlass.another"])))
    assert (found.what, found.absent) == ("", [name])
    groups = [EditGroup(rule, "", Safety.REVIEW, (edit,)) for rule, edit in found.edits]
    text = apply_groups({str(PATH): GEMM.encode()}, groups)[str(PATH)].decode()
    fences = r" *tcgen05_fence\(.*\)\n|from cutlass.experimental.primitives import .*\n"
    assert text == re.sub(fences, "", BASE)
    assert len(re.findall(fences, BASE)) > 4
    assert not ported(GEMM).absent


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


FORMS = yaml.safe_load(Path(__file__).with_name("idiom_forms.yaml").read_text())
SAME: dict[str, list[Change]] = {form: changes_of(told) for form, told in FORMS["same"].items()}
LEFT: dict[str, tuple[list[Change], str]] = {
    form: (changes_of(told["changes"]), told["what"]) for form, told in FORMS["left"].items()
}


@pytest.mark.parametrize("form", mostly_slow(SAME))
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


PROMOTED = changed(*changes_of(FORMS["promoted"]["base"]))
SAME_PROMOTED = FORMS["promoted"]["same"]
LEFT_PROMOTED = FORMS["promoted"]["left"]


@pytest.mark.parametrize("form", mostly_slow(SAME_PROMOTED, 2))
def test_sums_that_are_added_to_others(form: str) -> None:
    result = text_of(changed(*changes_of(SAME_PROMOTED[form]), text=PROMOTED))
    turn = result[result.index("for k in cutlass.range") : result.index("cute.zipped_divide")]
    order = ("producer_acquire(acc_fill", "cute.gemm(", "consumer_release(read)", "producer_commit(acc_fill",
             "acc_full.consumer_wait(", "cute.copy(tiled_load, tTR_tAcc, tTR_rAcc)", "consumer_release(acc_state)",
             "* tTR_rAcc[i]")  # fmt: skip
    assert [turn.count(line) for line in order] == [1] * len(order)
    assert sorted(order, key=turn.index) == list(order)
    assert result.index("tTR_rAcc = cute.make_rmem_tensor(") < result.index("= cute.make_rmem_tensor(tTR_rAcc.shape")
    assert "store.retile(sums)" not in result
    assert "warpgroup" not in result


@pytest.mark.parametrize("form", mostly_slow(LEFT_PROMOTED, 2))
def test_sums_in_registers_that_are_not_followed(form: str) -> None:
    changes = changes_of(LEFT_PROMOTED[form]["changes"])
    assert LEFT_PROMOTED[form]["what"] in ported(changed(*changes, text=PROMOTED)).what


def test_warpgroups_share_the_columns_of_each_tile_of_the_epilogue() -> None:
    text = changed(("(1, 1, 1), tiler_mn", "(2, 1, 1), tiler_mn"), text=PROMOTED)
    result = text_of(text, warpgroups=2)
    assert "acc_part = (self.epi_tile[0], self.epi_tile[1] // 2)" in result
    assert "mine = store.get_slice(thread % 128)" in result
    assert "buffer = mine.partition_D(sC_part)" in result
    assert "(None, None, 0, thread // 128, None, None)" in result


TWO = changed(*changes_of(FORMS["two"]["base"]))
TURNS = changed(*changes_of(FORMS["turns"]["base"]), text=PROMOTED)


@pytest.mark.parametrize("form", mostly_slow(FORMS["two"]["same"], 1))
def test_two_accumulators(form: str) -> None:
    result = text_of(changed(*changes_of(FORMS["two"]["same"][form]), text=TWO))
    assert "sums = accumulators[(None, None, None, 0)]\n        more = accumulators[(None, None, None, 1)]\n" in result
    assert result.count("cute.copy(tiled_load, ") == 2
    assert "mine[i] = tTR_rAcc[i] * tTR_rAcc_more[i]" in result
    assert "make_fragment_C(cute.append(shape, 2))" in result
    assert "(tTR_rAcc, tTR_rAcc_more)" in result or "(sums, more)" not in result
    assert "warpgroup" not in result


@pytest.mark.parametrize("form", mostly_slow(FORMS["two"]["left"], 1))
def test_two_accumulators_that_are_not_followed(form: str) -> None:
    told = FORMS["two"]["left"][form]
    assert told["what"] in ported(changed(*changes_of(told["changes"]), text=TWO)).what


def test_two_accumulators_need_columns_for_both() -> None:
    assert not ported(TWO, columns=256).what
    three = changed(("sums, more = ", "sums, more, third = "), ("(more, rB)", "(more, rB), (third, rB)"), text=TWO)
    again = ", cute.make_rmem_tensor(shape, cutlass.Float32)"
    assert "not enough columns" in ported(three.replace(again, again * 2, 1), columns=256).what


def test_warpgroups_beside_each_other_share_the_columns() -> None:
    text = changed(("(1, 1, 1), tiler_mn", "(1, 2, 1), tiler_mn"), text=TWO)
    trace = stated(PATH, text.encode(), 128, 128)
    for call in trace.calls:
        if call["name"].endswith("make_trivial_tiled_mma"):
            call["values"]["5"] = [1, 2, 1]
            call["result"]["op"]["shape_mnk"] = [64, 64, 16]
    found = ported(text, replace(trace, threads=256))
    assert not found.what, found.what
    assert any(b"acc_part = (mma.shape_mnk[0], mma.shape_mnk[1] // 2)" in edit.replacement for _, edit in found.edits)


@pytest.mark.parametrize("form", mostly_slow(FORMS["turns"]["same"], 1))
def test_sums_that_are_used_in_some_turns(form: str) -> None:
    text = changed(*changes_of(FORMS["turns"]["same"][form]), text=TURNS)
    result = text_of(text)
    assert result.count("acc_full.producer_commit(acc_fill_state)") == text.count("wait_group(0)")
    assert result.count("cute.copy(tiled_load, tTR_tAcc, tTR_rAcc)") == text.count("wait_group(0)")
    assert result.count("loads.consumer_release(read)") == text.count("loads.consumer_wait(")
    turn = result[result.index("for k in cutlass.range") :]
    order = ("if is_mma_warp:", "loads.consumer_wait(read)", "cute.gemm(", "loads.consumer_release(read)", "if k ",
             "producer_commit(", "acc_full.consumer_wait(", "cute.copy(tiled_load", "acc_full.consumer_release(",
             "producer_acquire(", "+ tTR_rAcc[i]")  # fmt: skip
    assert sorted(order, key=turn.index) == list(order)
    assert "done" not in result


@pytest.mark.parametrize("form", mostly_slow(FORMS["turns"]["left"], 1))
def test_turns_that_are_not_followed(form: str) -> None:
    told = FORMS["turns"]["left"][form]
    assert told["what"] in ported(changed(*changes_of(told["changes"]), text=TURNS)).what


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
    result = text_of(changed(*SAME["cleared sums of turns that are counted behind that"]))
    assert "        turns = cutlass.min(self.tiles, 9)\n        multiplies = turns > 0\n" in result
    assert result.count("turns = ") == 1


def test_a_port_is_a_file_with_nothing_to_port(tmp_path: Path) -> None:
    path = tmp_path / "gemm.py"
    path.write_text(BASE)
    assert not port_python(path).groups


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


@pytest.mark.parametrize("form", mostly_slow(LEFT))
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
    return ported(GEMM, trace)


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
    assert ported(GEMM, without).what == "no case comes to this MMA"
    moved = [{**c, "file": "/work/other.py"} if c["name"].endswith(".gemm") else c for c in trace.calls]
    assert ported(GEMM, replace(trace, calls=moved)).what == "`gemm` is called in other.py"


def test_cases_that_launch_other_blocks_do_not_agree() -> None:
    trace = stated(PATH, GEMM.encode(), 128, 128)
    found = ported(GEMM, trace, replace(trace, threads=256))
    assert found.what.startswith("threads of a block: ")
