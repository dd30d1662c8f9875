# SPDX-License-Identifier: Apache-2.0
"""What the two CTAs of a pair have in common in a program of CuTe DSL, and which programs do the same in a grid of
another size: of values, loops and branches, by what flows to them."""

from __future__ import annotations

import sys
import types
import warnings
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from porter.passes.dsl.outputs import DSL_STEPS, support_module

pytestmark = pytest.mark.external

PROGRAM = """
module {{ "t.func"() ({{
  ^entry(%arg: i32, %even: i32):
    %x = nvvm.read.ptx.sreg.ctaid.x : i32
    %y = nvvm.read.ptx.sreg.ctaid.y : i32
    %g = nvvm.read.ptx.sreg.nctaid.x : i32
    %t = nvvm.read.ptx.sreg.tid.x : i32
    %n0 = arith.constant 0 : i32
    %n1 = arith.constant 1 : i32
    %n3 = arith.constant 3 : i32
    %n8 = arith.constant 8 : i32
    %n12 = arith.constant 12 : i32
    %inside = llvm.mlir.zero : !llvm.ptr<3>
    %global = llvm.mlir.zero : !llvm.ptr<1>
    {body}
    "t.use"(%v) : ({kind}) -> ()
}}) : () -> () }}
"""
RANKS = {
    "the number of the CTA": ("%v = arith.addi %x, %n0 : i32", "one more"),
    "the number of a thread": ("%v = arith.addi %t, %n3 : i32", "same"),
    "the number along another axis": ("%v = arith.addi %y, %n3 : i32", "same"),
    "how many CTAs": ("%v = arith.addi %g, %n8 : i32", "even"),
    "an argument": ("%v = arith.muli %arg, %n3 : i32", "same"),
    "an even argument": ("%v = arith.addi %even, %n8 : i32", "even"),
    "a row of an even number of rows": ("%v = arith.remui %x, %n8 : i32", "one more"),
    "a column behind an even number of rows": ("%v = arith.divui %x, %n8 : i32", "same"),
    "rows of an even argument": ("%v = arith.floordivsi %x, %even : i32", "same"),
    "a row of an odd number of rows": ("%v = arith.remui %x, %n3 : i32", "differs"),
    "a column behind an odd number of rows": ("%v = arith.divui %x, %n3 : i32", "differs"),
    "rows of an argument": ("%v = arith.floordivsi %x, %arg : i32", "differs"),
    "a tile further on": ("%v = arith.addi %x, %g : i32", "one more"),
    "an odd number further on": ("%v = arith.addi %x, %n3 : i32", "differs"),
    "twice the number": ("%v = arith.addi %x, %x : i32", "differs"),
    "three times the number": ("%v = arith.muli %x, %n3 : i32", "differs"),
    "once the number": ("%v = arith.muli %n1, %x : i32", "one more"),
    "a number of it": ("%v = arith.muli %x, %n0 : i32", "even"),
    "a bit of it": ("%v = arith.andi %x, %n1 : i32", "differs"),
    "below an even number": ("%v = arith.cmpi slt, %x, %n8 : i32", "same"),
    "not below an even number": ("%v = arith.cmpi uge, %x, %n8 : i32", "same"),
    "below an odd number": ("%v = arith.cmpi slt, %x, %n3 : i32", "differs"),
    "up to an even number": ("%v = arith.cmpi sle, %x, %n8 : i32", "differs"),
    "an even number itself": ("%v = arith.cmpi eq, %x, %n8 : i32", "differs"),
    "a table": ("%v = llvm.load %global : !llvm.ptr<1> -> i32", "same"),
    "a table by the number": (
        "%p = llvm.getelementptr %global[%x] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32\n"
        "%v = llvm.load %p : !llvm.ptr<1> -> i32", "differs"),
    "a table that is written": (
        "llvm.store %n3, %global : i32, !llvm.ptr<1>\n%v = llvm.load %global : !llvm.ptr<1> -> i32", "differs"),
    "shared memory": ("%v = llvm.load %inside : !llvm.ptr<3> -> i32", "differs"),
    "memory that changes": ("%v = llvm.load volatile %global : !llvm.ptr<1> -> i32", "differs"),
    "the SM": ("%v = nvvm.read.ptx.sreg.smid : i32", "differs"),
    "the rank in the cluster": ("%v = nvvm.read.ptx.sreg.cluster.ctarank : i32", "one more"),
    "asm": ('%v = llvm.inline_asm has_side_effects "mov.u32 $0, 1;", "=r" : () -> i32', "differs"),
    "tiles by a loop": (
        "%v = scf.for %i = %x to %n12 step %g iter_args(%r = %n0) -> (i32) : i32 {\n"
        "%q = arith.divui %i, %n8 : i32\nscf.yield %q : i32 }", "same"),
    "tiles by a loop up to an odd number": (
        "%v = scf.for %i = %x to %n3 step %g iter_args(%r = %n0) -> (i32) : i32 { scf.yield %r : i32 }", "differs"),
    "tiles by a loop in odd steps": (
        "%v = scf.for %i = %x to %n12 step %n3 iter_args(%r = %n0) -> (i32) : i32 { scf.yield %r : i32 }", "differs"),
    "a count of turns": (
        "%v = scf.for %i = %n0 to %arg step %n1 iter_args(%r = %n0) -> (i32) : i32 {\n"
        "%q = arith.addi %r, %i : i32\nscf.yield %q : i32 }", "same"),
    "turns by the number": (
        "%v = scf.for %i = %n0 to %x step %n1 iter_args(%r = %n0) -> (i32) : i32 { scf.yield %r : i32 }", "differs"),
    "tiles by a condition": (
        "%v, %u = scf.while (%a = %x, %b = %n0) : (i32, i32) -> (i32, i32) {\n"
        "%go = arith.cmpi slt, %a, %n8 : i32\nscf.condition(%go) %a, %b : i32, i32\n} do {\n^bb0(%a: i32, %b: i32):\n"
        "%a1 = arith.addi %a, %g : i32\n%b1 = arith.addi %b, %n1 : i32\nscf.yield %a1, %b1 : i32, i32 }", "one more"),
    "tiles by a condition that differs": (
        "%v, %u = scf.while (%a = %x, %b = %n0) : (i32, i32) -> (i32, i32) {\n"
        "%go = arith.cmpi slt, %a, %n3 : i32\nscf.condition(%go) %a, %b : i32, i32\n} do {\n^bb0(%a: i32, %b: i32):\n"
        "%a1 = arith.addi %a, %g : i32\n%b1 = arith.addi %b, %n1 : i32\nscf.yield %a1, %b1 : i32, i32 }", "differs"),
    "a branch of the same": (
        "%c = arith.cmpi eq, %arg, %n3 : i32\n"
        "%v = scf.if %c -> (i32) { scf.yield %n8 : i32 } else { scf.yield %n3 : i32 }", "same"),
    "a branch by the number": (
        "%c = arith.cmpi eq, %x, %n0 : i32\n"
        "%v = scf.if %c -> (i32) { scf.yield %n8 : i32 } else { scf.yield %n8 : i32 }", "differs"),
    "a branch that is not taken": (
        "%c = arith.cmpi slt, %g, %n0 : i32\n"
        "%v = scf.if %c -> (i32) { scf.yield %n8 : i32 } else { scf.yield %x : i32 }", "one more"),
}  # fmt: skip
"""Values, each with what is known of it where CTAs are pairs along x."""

BEHIND = "\n%v = arith.addi %n1, %n3 : i32"
TAKES = '%q = arith.divui %i, %n3 : i32\n"t.tile"(%q) : (i32) -> ()\nscf.yield'
FITS = {
    "tiles by a loop": (f"scf.for %i = %x to %arg step %g : i32 {{ {TAKES} }}" + BEHIND, True),
    "tiles by a condition": (
        "%w = scf.while (%a = %x) : (i32) -> i32 {\n%go = arith.cmpi slt, %a, %arg : i32\nscf.condition(%go) %a : i32\n"
        "} do {\n^bb0(%a: i32):\n%a1 = arith.addi %a, %g : i32\nscf.yield %a1 : i32 }" + BEHIND, True),
    "the tile behind all others": (
        "%v = scf.while (%a = %x) : (i32) -> i32 {\n%go = arith.cmpi slt, %a, %arg : i32\nscf.condition(%go) %a : i32\n"
        "} do {\n^bb0(%a: i32):\n%a1 = arith.addi %a, %g : i32\nscf.yield %a1 : i32 }", False),
    "a number that leads to numbers alone": ("%w = arith.addi %x, %n3 : i32" + BEHIND, True),
    "a place of its own for each CTA": ("%v = arith.addi %x, %n3 : i32", False),
    "a place by how many there are": ('"t.tile"(%g) : (i32) -> ()' + BEHIND, False),
    "a place by the tile and the CTA that takes it": (
        "scf.for %i = %x to %arg step %g : i32 {\n%q = arith.addi %i, %x : i32\n"
        '"t.tile"(%q) : (i32) -> ()\nscf.yield }' + BEHIND, False),
    "a place by the tile or the CTA": (
        "%c = arith.cmpi eq, %arg, %n3 : i32\nscf.for %i = %x to %arg step %g : i32 {\n"
        "%q = scf.if %c -> (i32) { scf.yield %i : i32 } else { scf.yield %x : i32 }\n"
        '"t.tile"(%q) : (i32) -> ()\nscf.yield }' + BEHIND, False),
    "something that only some CTAs do": (
        '%c = arith.cmpi slt, %x, %n8 : i32\nscf.if %c { "t.tile"(%n3) : (i32) -> () }' + BEHIND, False),
    "steps of a number of its own": (
        f"scf.for %i = %x to %arg step %n3 : i32 {{ {TAKES} }}" + BEHIND, False),
    "a number of its own further on": (
        "%w = scf.while (%a = %x) : (i32) -> i32 {\n%go = arith.cmpi slt, %a, %arg : i32\nscf.condition(%go) %a : i32\n"
        "} do {\n^bb0(%a: i32):\n%a1 = arith.addi %a, %n3 : i32\nscf.yield %a1 : i32 }" + BEHIND, False),
    "tiles and what is next": (
        "%w, %u = scf.while (%a = %x, %b = %x) : (i32, i32) -> (i32, i32) {\n"
        "%go = arith.cmpi slt, %a, %arg : i32\nscf.condition(%go) %a, %b : i32, i32\n} do {\n^bb0(%a: i32, %b: i32):\n"
        "%a1 = arith.addi %a, %g : i32\n%b1 = arith.muli %a1, %n3 : i32\nscf.yield %a1, %b1 : i32, i32 }" + BEHIND,
        True),
    "the tile ahead of this one": (
        "%w, %u = scf.while (%a = %x, %b = %n0) : (i32, i32) -> (i32, i32) {\n"
        "%go = arith.cmpi slt, %a, %arg : i32\nscf.condition(%go) %a, %b : i32, i32\n} do {\n^bb0(%a: i32, %b: i32):\n"
        "%c = arith.cmpi eq, %b, %n3 : i32\nscf.if %c { \"t.tile\"(%b) : (i32) -> () }\n"
        "%a1 = arith.addi %a, %g : i32\nscf.yield %a1, %a : i32, i32 }" + BEHIND, False),
    "a loop in a tile": (
        "scf.for %i = %x to %arg step %g : i32 {\n"
        "%w = scf.for %k = %n0 to %n8 step %n1 iter_args(%r = %i) -> (i32) : i32 { scf.yield %r : i32 }\n"
        "scf.yield }" + BEHIND, True),
    "a share of the whole": (
        "%s = arith.divui %arg, %g : i32\n"
        "%v = scf.for %i = %n0 to %s step %n1 iter_args(%r = %n0) -> (i32) : i32 { scf.yield %i : i32 }", False),
    "steps of twice as many": (
        f"%s = arith.muli %g, %n8 : i32\nscf.for %i = %x to %arg step %s : i32 {{ {TAKES} }}" + BEHIND,
        False),
    "the last CTA": (
        "%c = arith.cmpi eq, %x, %g : i32\n"
        "%v = scf.if %c -> (i32) { scf.yield %n8 : i32 } else { scf.yield %n3 : i32 }", False),
    "memory that CTAs share": (
        f"scf.for %i = %x to %arg step %g : i32 {{ {TAKES} }}\n"
        "llvm.store %n3, %global : i32, !llvm.ptr<1>" + BEHIND, False),
}  # fmt: skip
"""Programs, each with whether CTAs of a smaller grid do the same."""

CLUSTERS = {
    "nothing": ("%v = arith.addi %x, %n3 : i32", False),
    "a place by the cluster": ("%v = nvvm.read.ptx.sreg.clusterid.x : i32", True),
    "a place by the rank": ("%r = nvvm.read.ptx.sreg.cluster.ctarank : i32\n%v = arith.addi %r, %n3 : i32", True),
    "a rank that nobody asks for": (
        "%r = nvvm.read.ptx.sreg.cluster.ctarank : i32\n%u = arith.addi %r, %n3 : i32" + BEHIND, False),
    "a branch by the rank": (
        "%r = nvvm.read.ptx.sreg.cluster.ctarank : i32\n%c = arith.cmpi eq, %r, %n0 : i32\n"
        'scf.if %c { "t.tile"(%n3) : (i32) -> () }' + BEHIND, True),
    "through a loop": (
        "%r = nvvm.read.ptx.sreg.nclusterid.x : i32\n"
        "%v = scf.for %i = %n0 to %n8 step %n1 iter_args(%s = %r) -> (i32) : i32 { scf.yield %s : i32 }", True),
}  # fmt: skip
"""Programs, each with whether its threads go by where a CTA is in a cluster."""


@pytest.fixture(scope="module")
def dsl(tmp_path_factory: pytest.TempPathFactory) -> types.ModuleType:
    path = tmp_path_factory.mktemp("whole") / "porter_dsl.py"
    path.write_bytes(support_module(full_rate=True, steps=DSL_STEPS))
    spec = spec_from_file_location("porter_dsl_ranks", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    with warnings.catch_warnings():
        # The DSL moves its own modules from version to version.
        warnings.simplefilter("ignore", DeprecationWarning)
        spec.loader.exec_module(module)
    return module


def flowing(dsl: Any, body: str, ask: Any) -> Any:
    """What is asked of the program's function and the value `%v`."""
    from cutlass._mlir import ir

    kind = "i1" if body.startswith("%v = arith.cmpi") else "i32"
    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(PROGRAM.format(body=body, kind=kind))
        function = next(iter(module.body.operations)).operation
        with dsl._scratch():
            use = next(op for op in dsl._all_operations(function) if op.name == "t.use")
            return ask(function, dsl._operands(use)[0])


@pytest.mark.parametrize("name", RANKS)
def test_what_both_ctas_have(dsl: Any, name: str) -> None:
    body, wanted = RANKS[name]
    found = flowing(dsl, body, lambda function, value: dsl._Ranks(function, "x", frozenset([1])).of(value))
    assert found == wanted


@pytest.mark.parametrize("name", FITS)
def test_what_fewer_ctas_do(dsl: Any, name: str) -> None:
    body, wanted = FITS[name]
    assert flowing(dsl, body, lambda function, value: dsl._Strides(function, "x").fits) is wanted


@pytest.mark.parametrize("name", CLUSTERS)
def test_who_asks_for_the_cluster(dsl: Any, name: str) -> None:
    body, wanted = CLUSTERS[name]
    assert bool(flowing(dsl, body, lambda function, value: dsl._OfCluster(function).places)) is wanted
