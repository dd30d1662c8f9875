# SPDX-License-Identifier: Apache-2.0
"""CuTe DSL with an operand A from registers, in Blackwell's own words: forms of one kernel that are understood, and
those that keep the support module. What the traces say is stated, so that nothing is compiled here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import libcst as cst
import pytest
import yaml

from porter.lang.text import EditGroup, Safety, apply_groups
from porter.passes.idiom_dsl.facts import Facts, Trace
from porter.passes.idiom_dsl.kernel import kernels
from porter.passes.idiom_dsl.port import Idiomatic, idiomatic
from porter.passes.idiom_dsl.stated import stated
from porter.passes.idiom_dsl.text import Draft, found_in, read
from porter.passes.idiom_dsl.threads import Threads
from porter.rules.load import load_rules

KERNEL = next(r for r in load_rules() if r.id == "PTR593").examples[0].before
PATH = Path("/work/gemm.py")
FORMS = yaml.safe_load(Path(__file__).with_name("registers_forms.yaml").read_text())


def changed(changes: Iterable[dict[str, str]]) -> str:
    text = KERNEL
    for one in changes:
        assert one["from"] in text, one["from"]
        text = text.replace(one["from"], one["to"])
    return text


def ported(text: str, *traces: Trace, threads: int = 128, blocks: int = 1) -> Idiomatic:
    """`blocks` of K are multiplied in one call."""
    trace = replace(stated(PATH, text.encode(), 64, 128), threads=threads)
    for call in trace.calls:
        if call["name"].endswith(".gemm") and blocks > 1:
            call["values"]["2"] = {"shape": [[2, 2, 2], 1, blocks]}
    return idiomatic(str(PATH), text.encode(), traces or [trace])


def text_of(text: str, threads: int = 128, blocks: int = 1) -> str:
    found = ported(text, threads=threads, blocks=blocks)
    assert not found.what, found.what
    groups = [EditGroup(rule, "", Safety.REVIEW, (edit,)) for rule, edit in found.edits]
    result = apply_groups({str(PATH): text.encode()}, groups)[str(PATH)].decode()
    compile(result, "gemm.py", "exec")
    return result


def forms(name: str, quick: int) -> list[object]:
    return [pytest.param(f, marks=pytest.mark.slow if i >= quick else ()) for i, f in enumerate(FORMS[name])]


ORDER = ("mbarrier_init(", "PipelineTmaAsync.create(", "NamedBarrier(", "TmemAllocator(", "St16x128bOp(",
         "Ld16x256bOp(", "tmem.allocate(", "tmem.wait_for_alloc()", "loads.consumer_wait(",
         "fence_view_async_tmem_store()", "team_ready.arrive_and_wait()", "if is_mma_warp:", "cute.gemm(",
         "tcgen05.commit(", "mbarrier_wait(", "fence_view_async_tmem_load()", "tmem_barrier.arrive_and_wait()",
         "tmem.free(")  # fmt: skip
"""What each port has, in this order."""


@pytest.mark.parametrize("form", forms("same", 4))
def test_forms_of_one_kernel(form: str) -> None:
    told = FORMS["same"][form]
    result = text_of(changed(told["changes"]), told.get("threads", 128), told.get("blocks", 1))
    for expected in told.get("expect", ()):
        assert expected in result
    for gone in (*told.get("absent", ()), "warpgroup.", "PipelineTmaUmma", "partition_C(self", "porter"):
        assert gone not in result
    kernel = result[result.index("def kernel") :]
    at = 0
    for part in ORDER:
        at = kernel.index(part, at)


@pytest.mark.parametrize("form", forms("left", 4))
def test_forms_that_are_not_followed(form: str) -> None:
    told = FORMS["left"][form]
    found = ported(changed(told["changes"]))
    assert told["what"] in found.what
    assert not found.edits


def with_calls(change: Callable[[dict[str, Any]], None], last: str) -> Idiomatic:
    trace = stated(PATH, KERNEL.encode(), 64, 128)
    for call in trace.calls:
        if call["name"].endswith(last):
            change(call)  # type: ignore[arg-type]
    return ported(KERNEL, trace)


def of_op(**values: object) -> Callable[[dict[str, Any]], None]:
    return lambda call: call["values"]["0"]["op"].update(values)


EIGHT = {"type": "Float8E4M3FN"}
SAID = {
    "8 bits": (".gemm", of_op(a_dtype=EIGHT, b_dtype=EIGHT), "MMAs of Float8E4M3FN and Float8E4M3FN beside A"),
    "two types": (".gemm", of_op(b_dtype=EIGHT), "MMAs of Float16 and Float8E4M3FN beside A"),
    "short sums": (".gemm", of_op(acc_dtype={"type": "Float16"}), "sums of Float16 beside A from registers"),
    "sparse": (".gemm", of_op(kind="MmaF16BF16SparseOp"), "a sparse MMA"),
    "another order of registers": (".make_rmem_tensor", lambda c: c["result"].update(stride=[[4, 2, 1], 0, 8]),
                                   "registers `weights` of A in another order than the operand's"),
    "registers of two tiles": (".make_rmem_tensor", lambda c: c["result"].update(shape=[[2, 2, 2], 2, 4]),
                               "registers `weights` of A in another order than the operand's"),
    "registers of another type": (".make_rmem_tensor", lambda c: c["result"].update(element_type={"type": "Int8"}),
                                  "registers `weights` of A in another order than the operand's"),
    "warpgroups that share a tile": (".make_trivial_tiled_mma", lambda c: c["values"].update({"5": [2, 1, 1]}),
                                     "A from registers of several warpgroups that share a tile"),
    "another tiled MMA": (".make_trivial_tiled_mma",
                          lambda c: c.update(result={"op": {**c["result"]["op"], "number": 9}}),
                          "a tiled MMA that is made elsewhere"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_traces_that_say_otherwise(case: str) -> None:
    last, change, what = SAID[case]
    assert what in with_calls(change, last).what


@pytest.mark.parametrize(("rows", "columns", "what"), [
    (128, 128, "a tile of 128 rows"),
    (64, 96, "an accumulator of 96 columns"),
])  # fmt: skip
def test_tiles_whose_registers_are_not_those_of_one_load(rows: int, columns: int, what: str) -> None:
    assert what in ported(KERNEL, stated(PATH, KERNEL.encode(), rows, columns)).what


def test_clusters_and_blocks_that_do_not_agree() -> None:
    trace = stated(PATH, KERNEL.encode(), 64, 128)
    assert "in a cluster" in ported(KERNEL, replace(trace, cluster=2)).what
    assert "threads of a block: " in ported(KERNEL, trace, replace(trace, threads=256)).what
    thirds = ported(changed([{"from": "get_slice(thread)", "to": "get_slice(thread % 128)"}]), threads=512).what
    assert "Tensor Memory has not enough columns" in thirds


def test_a_statement_that_makes_more_than_an_accumulator() -> None:
    made = "mma.make_fragment_C(mma.partition_shape_C((64, self.tile[1])))"
    both = f"sums, more = {made}, cute.make_rmem_tensor(4, cutlass.Float32)"
    text = changed([{"from": f"sums = {made}", "to": both}])
    trace = stated(PATH, text.encode(), 64, 128)
    for call in trace.calls:
        if call["name"].endswith(".make_rmem_tensor") and call["result"]["number"] == 2:
            call["result"].update(number=7)
    assert "made in one statement with others" in ported(text, trace).what


def test_texts_that_two_edits_change_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Draft.finished
    monkeypatch.setattr(Draft, "finished", lambda draft: [*(edits := inner(draft)), edits[0]])
    found = ported(KERNEL)
    assert (found.what, found.rule) == ("a text that PTR593 and PTR593 both change", "PTR593")
    assert not found.edits


def test_what_threads_come_to_a_place_and_what_they_say() -> None:
    body = """
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    thread, _, _ = cute.arch.thread_idx()
    group = warp // 4
    if group == 0:
        for part in cutlass.range_constexpr(2):
            load(part)
    if group > 0 and not warp >= 12:
        part = group - 1
        for k in range(4):
            at(part * 2, thread % 128, warp % part, k, -thread + cute.arch.thread_idx()[0], other)
            part_of = part
    else:
        at(1)
"""
    head = "import cutlass.cute as cute\nimport cutlass\n\n@cute.kernel\ndef kernel(mma, sums, a):\n"
    text = head + body.replace("at(part", "cute.gemm(mma, sums, a, a, sums)\n            at(part")
    file = read("/work/threads.py", text.encode())
    gemm = {"name": "cutlass.cute.gemm", "file": "/work/threads.py", "values": {}, "result": None}
    call = next(c for c in found_in(file.module, cst.Call) if "gemm" in file.code(c.func))
    line = file.line(call)
    span = file.span(call)
    column = span.start - file.line_start(span.start)
    place = [line, column, line, column + len(span)]
    facts = Facts(file, [Trace([{**gemm, "place": place}], 416, 1)])
    (kernel,) = kernels(file, facts)
    threads = Threads(kernel, 416)
    asked = [c for c in found_in(file.module, cst.Call) if file.code(c.func) == "at"]
    assert threads.where(asked[0]) == list(range(128, 384))
    assert threads.where(asked[1]) == [*range(128), *range(384, 416)]
    values = [a.value for a in asked[0].args]
    assert [threads.value(v, 300) for v in values[:3]] == [2, 300 % 128, 0]
    assert [threads.value(v, 130) for v in values[:3]] == [0, 2, None]
    assert [threads.value(v, 300) for v in values[3:]] == [None, 0, None]


def test_a_port_has_nothing_to_port_and_no_line_that_is_long() -> None:
    result = text_of(KERNEL)
    added = set(result.splitlines()) - set(KERNEL.splitlines())
    assert not re.search(r"warpgroup\.|, warpgroup|sm90_utils\.make_trivial", result)
    assert max(map(len, added)) <= 130
