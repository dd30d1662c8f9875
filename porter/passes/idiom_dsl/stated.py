# SPDX-License-Identifier: Apache-2.0
"""A trace as examples of rules state it: by the tile of a block and the warpgroups that multiply, without the DSL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.facts import Trace
from porter.passes.idiom_dsl.names import OBSERVED
from porter.passes.idiom_dsl.text import Text, argument, found_in, read
from porter.ptx.wgmma import THREADS

_OF_A: dict[str, Any] = {"number": 4, "shape": [[2, 2, 2], 1, 4], "stride": [[1, 2, 4], 0, 8],
                         "element_type": {"type": "Float16"}}  # fmt: skip
"""Registers of four blocks of K of an operand A."""


def stated(path: Path, source: bytes, rows: int, columns: int, warpgroups: int = 1, cluster: int = 1) -> Trace:
    """What a GEMM of f16 with this tile does, with one MMA in a k block; `warpgroups` share its rows."""
    text = read(str(path), source)
    op: dict[str, Any] = {"kind": "MmaF16BF16Op", "number": 1, "shape_mnk": [64, columns, 16],
          "a_src": {"text": f"OperandSource.{_source(text)}"}, "a_dtype": {"type": "Float16"},
          "b_dtype": {"type": "Float16"}, "acc_dtype": {"type": "Float32"}}  # fmt: skip
    sums: dict[str, Any] = {"number": 2, "shape": [[2, 2, columns // 8], rows // 64 // warpgroups, 1]}
    known: dict[str, tuple[Any, Any]] = {
        "make_mma": ({"5": [warpgroups, 1, 1]}, {"op": op}),
        "multiply": ({"0": {"op": op}, "1": sums, "2": {"shape": [1, 1]}}, None),
        "operand_layout": ({"1": [rows, columns, 64]}, None),
        "divide": ({"1": [rows, 32]}, None),
    }
    calls = list(_calls(text, known, sums))
    return Trace(calls, THREADS * warpgroups, cluster)


def _source(text: Text) -> str:
    """Where the file says that A comes from."""
    made = text.calls(text.module, *OBSERVED["make_mma"])
    given = [a for call in made if (a := argument(call, 7, "a_source")) is not None]
    return "RMEM" if any(text.code(a.value).endswith("RMEM") for a in given) else "SMEM"


def _calls(text: Text, known: Mapping[str, tuple[Any, Any]], sums: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    multiplied = {text.code(c.args[1].value) for c in text.calls(text.module, *OBSERVED["multiply"])}
    for loop in found_in(text.module, cst.For):
        if multiplied & {n.value for n in found_in(loop.target, cst.Name)}:
            multiplied |= {n.value for n in found_in(loop.iter, cst.Name)}
    registers = text.calls(text.module, *OBSERVED["registers"])
    own = [c for c in registers if multiplied & _bound(text.statement(c))]
    of_a = {text.code(c.args[2].value).partition("[")[0] for c in text.calls(text.module, *OBSERVED["multiply"])}
    shapes = {text.code(c.args[0].value) for c in own}
    file = str(Path(text.path).resolve())
    for role, names in OBSERVED.items():
        for call in text.calls(text.module, *names):
            values, result = known.get(role, ({}, None))
            if role in ("barrier", "wait"):
                number = argument(call, 0, "barrier_id" if role == "barrier" else "group")
                is_told = number is not None and m.matches(number.value, m.Integer())
                values = {"0": int(text.code(number.value)) if number is not None and is_told else None}
            if role == "registers":
                shape = sums["shape"] if text.code(call.args[0].value) in shapes else [1]
                result = {"number": sums["number"] if call in own else 3, "shape": shape}
                if of_a & _bound(text.statement(call)):
                    result = dict(_OF_A)
            yield {"name": names[0], "file": file, "place": _place(text, call), "values": values, "result": result}
    told = {"make_fragment_C": (OBSERVED["registers"][-1], sums)}
    if _source(text) == "RMEM":
        told["make_fragment_A"] = OBSERVED["fragment_a"][-1], dict(_OF_A)
        told["partition_A"] = OBSERVED["partition_a"][-1], dict(_OF_A)
    for called, (name, result) in told.items():
        for made in m.findall(text.module, m.Call(m.Attribute(attr=m.Name(called)))):
            yield {"name": name, "file": file, "place": _place(text, made), "values": {}, "result": result}


def _bound(statement: cst.CSTNode) -> set[str]:
    """Names that a statement assigns to."""
    targets = [t.target for t in found_in(statement, cst.AssignTarget)]
    targets += [t.target for t in found_in(statement, cst.AnnAssign)]
    return {n.value for target in targets for n in found_in(target, cst.Name)}


def _place(text: Text, call: cst.CSTNode) -> list[int]:
    span = text.span(call)
    first, last = text.source[: span.start], text.source[: span.end]
    return [first.count(b"\n") + 1, len(first) - text.line_start(span.start), last.count(b"\n") + 1,
            len(last) - text.line_start(span.end)]  # fmt: skip
