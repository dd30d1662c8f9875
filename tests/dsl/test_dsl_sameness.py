# SPDX-License-Identifier: Apache-2.0
"""What the support module of full-rate ports knows of values in two warpgroups, and of where coordinates lead."""

from __future__ import annotations

import sys
import types
import warnings
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from porter.passes.dsl.outputs import support_module

pytestmark = pytest.mark.external


@pytest.fixture(scope="module")
def dsl(tmp_path_factory: pytest.TempPathFactory) -> types.ModuleType:
    path = tmp_path_factory.mktemp("whole") / "porter_dsl.py"
    path.write_bytes(support_module(full_rate=True, steps=("release",)))
    spec = spec_from_file_location("porter_dsl_full_rate", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    with warnings.catch_warnings():
        # The DSL moves its own modules from version to version.
        warnings.simplefilter("ignore", DeprecationWarning)
        spec.loader.exec_module(module)
    return module


PROGRAM = """
module {{ "t.func"() ({{
    %x = nvvm.read.ptx.sreg.tid.x : i32
    %b = nvvm.read.ptx.sreg.ctaid.x : i32
    %n0 = arith.constant 0 : i32
    %n1 = arith.constant 1 : i32
    %n128 = arith.constant 128 : i32
    {body}
    "t.here"(%v) : (i32) -> ()
}}) {{nvvm.reqntid = array<i32: 384, 1, 1>}} : () -> () }}
"""
VALUES = {
    "a constant": ("%v = arith.addi %n1, %n128 : i32", True),
    "the block": ("%v = arith.addi %b, %n1 : i32", True),
    "the thread": ("%v = arith.addi %x, %n1 : i32", False),
    "the warpgroup": ("%v = arith.divsi %x, %n128 : i32", False),
    "a role": ("%c = arith.cmpi sge, %x, %n128 : i32\n%v = arith.extui %c : i1 to i32", True),
    "half of them": ("%h = arith.constant 256 : i32\n%c = arith.cmpi sge, %x, %h : i32\n"
                     "%v = arith.extui %c : i1 to i32", False),
    "a thread's value shared out": ("%w = arith.divsi %x, %n128 : i32\n%z = arith.muli %w, %n0 : i32\n"
                                    "%v = arith.addi %z, %b : i32", True),
    "a lane": ("%v = nvvm.read.ptx.sreg.laneid : i32", False),
    "a clock": ("%v = nvvm.read.ptx.sreg.clock : i32", False),
    "an operation that nobody knows": ('%v = "t.number"(%b) : (i32) -> i32', False),
    "of a branch by the block": ("%c = arith.cmpi eq, %b, %n0 : i32\n"
                                 "%v = scf.if %c -> (i32) { scf.yield %n1 : i32 } else { scf.yield %b : i32 }", True),
    "of a branch by the thread": ("%t = arith.constant 200 : i32\n%c = arith.cmpi slt, %x, %t : i32\n"
                                  "%v = scf.if %c -> (i32) { scf.yield %n1 : i32 } else { scf.yield %n0 : i32 }",
                                  False),
    "of a branch with the thread": ("%c = arith.cmpi eq, %b, %n0 : i32\n"
                                    "%v = scf.if %c -> (i32) { scf.yield %x : i32 } else { scf.yield %n0 : i32 }",
                                    False),
    "of a loop": ("%v = scf.for %i = %n0 to %b step %n1 iter_args(%s = %n0) -> (i32) : i32 {\n"
                  "%a = arith.addi %s, %i : i32\nscf.yield %a : i32 }", True),
    "of a loop as often as the thread says": (
        "%v = scf.for %i = %n0 to %x step %n1 iter_args(%s = %n0) -> (i32) : i32 {\n"
        "%a = arith.addi %s, %n1 : i32\nscf.yield %a : i32 }", False),
    "of a loop that starts with the thread": (
        "%v = scf.for %i = %n0 to %b step %n1 iter_args(%s = %x) -> (i32) : i32 {\n"
        "%a = arith.addi %s, %n1 : i32\nscf.yield %a : i32 }", False),
    "of a loop while the thread says so": (
        "%v = scf.while (%s = %n0) : (i32) -> i32 {\n%c = arith.cmpi slt, %s, %x : i32\n"
        "scf.condition(%c) %s : i32 } do {\n^bb0(%t: i32):\n%a = arith.addi %t, %n1 : i32\nscf.yield %a : i32 }",
        False),
}  # fmt: skip


def parsed(ir: Any, body: str) -> tuple[Any, Any]:
    """The function around a body, and the operation behind it."""
    module = ir.Module.parse(PROGRAM.format(body=body))
    function = next(iter(module.body.operations)).operation
    parsed.module = module  # type: ignore[attr-defined]
    return function, [o.operation for o in function.regions[0].blocks[0].operations][-1]


@pytest.mark.parametrize("name", VALUES)
def test_values_that_are_the_same_in_two_warpgroups(dsl: Any, name: str) -> None:
    from cutlass._mlir import ir

    body, wanted = VALUES[name]
    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        function, here = parsed(ir, body)
        with dsl._scratch():
            same = dsl._Same(types.SimpleNamespace(function=function), dsl._Numbers(function), [1, 2])
            assert same.holds(dsl._operands(here)[0]) is wanted


GROUP = "%g = arith.divsi %x, %n128 : i32\n"
ADVANCED = """%v = scf.for %i = %n1 to %g step %n1 iter_args(%s = {first}) -> (i32) : i32 {{
%a = arith.addi %s, %n1 : i32
scf.yield %a : i32 }}"""
# The state of a pipeline, of which each tile uses two stages: one of both is that of a warpgroup.
TILES = """
%two = arith.constant 2 : i32
%all:2 = scf.while (%s = {first}, %t = %n0) : (i32, i32) -> (i32, i32) {{
%c = arith.cmpi slt, %t, %b : i32
scf.condition(%c) %s, %t : i32, i32 }} do {{
^bb0(%s: i32, %t: i32):
%mine = scf.for %i = %n1 to %g step %n1 iter_args(%u = %s) -> (i32) : i32 {{
%a = arith.addi %u, %n1 : i32
%full = arith.cmpi eq, %a, %two : i32
%w = scf.if %full -> (i32) {{ scf.yield %n0 : i32 }} else {{ scf.yield %a : i32 }}
scf.yield %w : i32 }}
"t.inside"(%mine) : (i32) -> ()
%first = arith.cmpi eq, %g, %n1 : i32
%left = scf.if %first -> (i32) {{ scf.yield {left} : i32 }} else {{ scf.yield %n1 : i32 }}
%end = arith.addi %mine, %left : i32
%next = arith.remsi %end, %two : i32
%turn = arith.addi %t, %n1 : i32
scf.yield %next, %turn : i32, i32 }}
%v = arith.addi %all#0, %n0 : i32
"""
IN_EACH = {
    "as often as the warpgroup says": (GROUP + ADVANCED.format(first="%n0"), [[0], [1]]),
    "from the block on": (GROUP + ADVANCED.format(first="%b"), None),
    "of a branch": (GROUP + "%c = arith.cmpi eq, %g, %n1 : i32\n%w = scf.if %c -> (i32) { scf.yield %n128 : i32 } "
                    "else { scf.yield %n0 : i32 }\n%v = arith.addi %w, %n1 : i32", [[129], [1]]),
    "of a branch by the block": ("%c = arith.cmpi eq, %b, %n1 : i32\n%v = scf.if %c -> (i32) { scf.yield %n128 : i32 "
                                 "} else { scf.yield %n0 : i32 }", None),
    "of both branches": ("%c = arith.cmpi eq, %b, %n1 : i32\n%v = scf.if %c -> (i32) { scf.yield %n1 : i32 "
                         "} else { scf.yield %n1 : i32 }", [[1], [1]]),
    "of a loop that may have no turn": ("%v = scf.for %i = %n0 to %b step %n1 iter_args(%s = %n0) -> (i32) : i32 {\n"
                                        "scf.yield %n1 : i32 }", None),
    "of a loop that keeps it": ("%v = scf.for %i = %n0 to %b step %n1 iter_args(%s = %n1) -> (i32) : i32 {\n"
                                "scf.yield %s : i32 }", [[1], [1]]),
    "of a loop by the lane": ("%v = scf.for %i = %n0 to %x step %n1 iter_args(%s = %n0) -> (i32) : i32 {\n"
                              "%a = arith.addi %s, %n1 : i32\nscf.yield %a : i32 }", None),
    "of a counter without an end": ("%v = scf.while (%s = %n0) : (i32) -> i32 {\n%c = arith.cmpi ne, %s, %b : i32\n"
                                    "scf.condition(%c) %s : i32 } do {\n^bb0(%t: i32):\n"
                                    "%a = arith.addi %t, %n1 : i32\nscf.yield %a : i32 }", None),
    "behind tiles": (GROUP + TILES.format(first="%n0", left="%two"), [[0], [0]]),
    "inside of tiles": (GROUP + TILES.format(first="%n0", left="%two") + "// inside", [[0], [1]]),
    "inside of tiles that go on elsewhere": (GROUP + TILES.format(first="%n0", left="%n1") + "// inside", None),
    "inside of tiles from the block on": (GROUP + TILES.format(first="%b", left="%two") + "// inside", None),
}  # fmt: skip
"""Values, and what each of two warpgroups has for them; `inside`: what an operation in a loop is handed."""


@pytest.mark.parametrize("name", IN_EACH)
def test_numbers_of_each_warpgroup_through_branches_and_loops(dsl: Any, name: str) -> None:
    from cutlass._mlir import ir

    body, wanted = IN_EACH[name]
    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        function, here = parsed(ir, body)
        with dsl._scratch():
            if body.endswith("inside"):
                here = next(o for o in dsl._all_operations(function) if o.name == "t.inside")
            same = dsl._Same(types.SimpleNamespace(function=function), dsl._Numbers(function), [1, 2])
            assert same.in_each(dsl._operands(here)[0]) == wanted


def test_what_holds_inside_of_conditions_is_forgotten_outside(dsl: Any) -> None:
    from cutlass._mlir import ir

    body = """
    %one = arith.cmpi eq, %x, %n1 : i32
    %two = arith.cmpi eq, %b, %n1 : i32
    scf.if %one { scf.if %two { "t.inside"() : () -> () } }
    %v = arith.extui %two : i1 to i32
    """
    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        function, here = parsed(ir, body)
        with dsl._scratch():
            numbers = dsl._Numbers(function)
            inside = next(o for o in dsl._all_operations(function) if o.name == "t.inside")
            numbers.reach(inside, function)
            value = dsl._operands(here)[0]
            assert numbers.value(value, 0) is None


LOCATED = """
%c = arith.cmpi eq, %b, %n1 : i32
scf.if %c {{ "t.made"() : () -> () loc("{package}/core.py":7:1)
"t.inside"() : () -> () loc("/k/kernel.py":12:5)
}} loc("/k/kernel.py":3:0)
%v = arith.addi %b, %n1 : i32 loc("/k/kernel.py":14:5)
"""


def test_a_branch_stands_where_what_is_in_it_does(dsl: Any) -> None:
    from cutlass._mlir import ir

    body = LOCATED.format(package=Path(dsl.cutlass.__file__).parent)
    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        function, here = parsed(ir, body)
        with dsl._scratch():
            branch = next(o for o in dsl._all_operations(function) if o.name == "scf.if")
            assert dsl._line(branch, ("", 0)) == ("/k/kernel.py", 12)
            assert dsl._line(dsl._owner(dsl._operands(here)[0]), ("", 0)) == ("/k/kernel.py", 14)
            assert dsl._line(here, ("otherwise", 1)) == ("otherwise", 1)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("4", 4), ("(1,2)", (1, 2)), ("((8,16),(64,1))", ((8, 16), (64, 1))), ("(_,_,3)", (None, None, 3)), ("-1", -1)],
)
def test_tuples_in_types(dsl: Any, text: str, wanted: Any) -> None:
    assert dsl._python(text) == wanted


@pytest.mark.parametrize(
    ("coordinate", "shape", "stride", "wanted"),
    [
        (64, (8, 16), (64, 512), 4096),
        (9, (8, 16), (64, 512), 576),
        ((None, None, 1, 2), (1, 1, 4, (1, 4)), (0, 0, 2, (0, 1024)), 2050),
        (200, (8, 16), (64, 512), 25 * 512),
        ((3, (1, 2)), (4, (2, 3)), (1, (10, 100)), 213),
    ],
)
def test_where_coordinates_lead(dsl: Any, coordinate: Any, shape: Any, stride: Any, wanted: int) -> None:
    assert dsl._index(coordinate, shape, stride) == wanted
