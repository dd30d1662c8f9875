# SPDX-License-Identifier: Apache-2.0
"""What leads a warp of its own to the MMAs of a CuTe DSL kernel: what is copied for it, and what is refused."""

from __future__ import annotations

import re
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
    %x = nvvm.read.ptx.sreg.tid.x : i32
    %b = nvvm.read.ptx.sreg.ctaid.x : i32
    %n0 = arith.constant 0 : i32
    %n1 = arith.constant 1 : i32
    %n128 = arith.constant 128 : i32
    %inside = llvm.mlir.zero : !llvm.ptr<3>
    %global = llvm.mlir.zero : !llvm.ptr<1>
    {first}
    %c = arith.cmpi sge, %x, %n128 : i32
    scf.if %c {{
        %s:3 = scf.while (%t0 = %b, %p0 = %n0, %w0 = %n0) : (i32, i32, i32) -> (i32, i32, i32) {{
            %go = arith.cmpi slt, %t0, %n128 : i32
            scf.condition(%go) %t0, %p0, %w0 : i32, i32, i32
        }} do {{
        ^bb0(%t: i32, %p: i32, %w: i32):
            %q = scf.for %k = %n0 to %b step %n1 iter_args(%r = %p) -> (i32) : i32 {{
                "t.multiply"(%r) : (i32) -> ()
                %r1 = arith.addi %r, %n1 : i32
                scf.yield %r1 : i32
            }}
            %e = "t.epilogue"(%w) : (i32) -> i32
            {body}
            %w1 = arith.addi %w, %e : i32
            scf.yield %v, %q, %w1 : i32, i32, i32
        }}
    }}
}}) {{nvvm.reqntid = array<i32: 384, 1, 1>}} : () -> () }}
"""
COPIED = {
    "the next tile of a block": ("%v = arith.addi %t, %b : i32", 0),
    "what the ring has come to": ("%v = arith.addi %t, %q : i32", 0),
    "the number of a thread": ("%y = arith.remsi %x, %n128 : i32\n%v = arith.addi %t, %y : i32", 0),
    "a lane": ("%y = nvvm.read.ptx.sreg.laneid : i32\n%v = arith.addi %t, %y : i32", 0),
    "a table in global memory": ("%y = llvm.load %global : !llvm.ptr<1> -> i32\n%v = arith.addi %t, %y : i32", 1),
    "a branch": ("%a = arith.cmpi eq, %t, %b : i32\n"
                 "%v, %u = scf.if %a -> (i32, i32) { scf.yield %n1, %e : i32, i32 }"
                 " else { scf.yield %t, %n0 : i32, i32 }", 0),
    "a loop": ("%v, %u = scf.for %i = %n0 to %b step %n1 iter_args(%f = %t, %g = %e) -> (i32, i32) : i32 {\n"
               "%h = arith.addi %f, %i : i32\n%j = arith.addi %g, %g : i32\nscf.yield %h, %j : i32, i32 }", 0),
}  # fmt: skip
"""Ways to the next tile, each with how many loads the copy has."""
REFUSED = {
    "what the epilogue gives": ("%v = arith.addi %t, %e : i32", "takes what t.epilogue gives"),
    "shared memory": ("%v = llvm.load %inside : !llvm.ptr<3> -> i32", "takes what llvm.load gives"),
    "memory that changes": ("%v = llvm.load volatile %global : !llvm.ptr<1> -> i32", "takes what llvm.load gives"),
    "global memory that is written": (
        "llvm.store %e, %global : i32, !llvm.ptr<1>\n%v = llvm.load %global : !llvm.ptr<1> -> i32",
        "takes what llvm.load gives"),
    "a counter": ("%v = llvm.atomicrmw add %global, %n1 monotonic : !llvm.ptr<1>, i32", "llvm.atomicrmw gives"),
    "global memory that is counted in": (
        "%y = llvm.atomicrmw add %global, %n1 monotonic : !llvm.ptr<1>, i32\n"
        "%v = llvm.load %global : !llvm.ptr<1> -> i32", "takes what llvm.load gives"),
    "global memory that asm writes": (
        'llvm.inline_asm has_side_effects "st.global.u32 [$0], $1;", "l,r" %global, %n1 : (!llvm.ptr<1>, i32) -> ()\n'
        "%v = llvm.load %global : !llvm.ptr<1> -> i32", "takes what llvm.load gives"),
    "global memory of a kernel that consumers wait for": (
        '"nvvm.griddepcontrol.wait"() : () -> ()\n%v = llvm.load %global : !llvm.ptr<1> -> i32',
        "takes what llvm.load gives"),
    "global memory of a kernel that consumers wait for by asm": (
        'llvm.inline_asm has_side_effects "griddepcontrol.wait;", "" : () -> ()\n'
        "%v = llvm.load %global : !llvm.ptr<1> -> i32", "takes what llvm.load gives"),
    "a warp's number": ("%v = nvvm.read.ptx.sreg.warpid : i32", "sreg.warpid gives"),
    "a clock": ("%v = nvvm.read.ptx.sreg.clock : i32", "sreg.clock gives"),
    "a branch by what the epilogue gives": (
        "%a = arith.cmpi eq, %e, %b : i32\n"
        "%v = scf.if %a -> (i32) { scf.yield %n1 : i32 } else { scf.yield %t : i32 }", "takes what t.epilogue gives"),
}  # fmt: skip


@pytest.fixture(scope="module")
def dsl(tmp_path_factory: pytest.TempPathFactory) -> types.ModuleType:
    path = tmp_path_factory.mktemp("whole") / "porter_dsl.py"
    path.write_bytes(support_module(full_rate=True, steps=DSL_STEPS))
    spec = spec_from_file_location("porter_dsl_steps", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    with warnings.catch_warnings():
        # The DSL moves its own modules from version to version.
        warnings.simplefilter("ignore", DeprecationWarning)
        spec.loader.exec_module(module)
    return module


def copied(dsl: Any, body: str, first: str = "") -> str:
    """The program with a copy for a warp of its own ahead of it.

    Raises:
        dsl._Left: something is not to be had there.
    """
    from cutlass._mlir import ir

    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(PROGRAM.format(body=body, first=first))
        function = next(iter(module.body.operations)).operation
        every = list(dsl._all_operations(function))
        loop = next(op for op in every if "t.multiply" in [o.name for b in dsl._blocks(op) for o in b.operations])
        outer = next(op for op in every if op.name == "scf.if")
        program = types.SimpleNamespace(function=function, sources={})
        with dsl._scratch():
            aside = ir.InsertionPoint.current
            found = dsl._Slice(program, dsl._Stretch(loop, loop), outer, ("kernel.py", 7), [], [], {}, [])
            with ir.InsertionPoint(outer):
                dsl._Copying(found, 128, aside, lambda copying: copying.clone(loop), lambda scope, copying: None).run()
        assert module.operation.verify()
        return str(module)


@pytest.mark.parametrize("name", COPIED)
def test_what_leads_to_the_mmas_is_copied_alone(dsl: Any, name: str) -> None:
    body, loads = COPIED[name]
    text = copied(dsl, body)
    head, _, _ = text.partition('"t.epilogue"')
    assert text.count('"t.multiply"') == 2
    assert text.count('"t.epilogue"') == 1
    # the copy stands ahead of the kernel's own, asks for no thread's number, and carries two values of three
    ahead = head[: head.rindex("scf.while")]
    assert ahead.count("scf.while") == 1
    assert ahead.count("sreg.tid.x") == 1
    assert "sreg.laneid" not in ahead
    assert ahead.count("llvm.load") == loads
    assert "(i32, i32) -> (i32, i32)" in ahead


def test_a_table_is_read_behind_a_wait_of_all_threads_for_an_earlier_kernel(dsl: Any) -> None:
    body, loads = COPIED["a table in global memory"]
    text = copied(dsl, body, 'llvm.inline_asm has_side_effects "griddepcontrol.wait;", "" : () -> ()')
    assert text.count("llvm.load") == 1 + loads


def test_the_copy_has_the_number_of_the_first_thread(dsl: Any) -> None:
    text = copied(dsl, "%v = arith.addi %t, %x : i32")
    ahead = text[: text.index('"t.epilogue"')].rpartition("scf.while")[0]
    (number,) = re.findall(r"arith\.cmpi sge, (%c128\w+), %c128_i32 :", ahead)
    assert f"{number} = arith.constant 128" in ahead
    assert re.search(rf"arith\.addi %\w+, {number} :", ahead)


@pytest.mark.parametrize("name", REFUSED)
def test_what_another_warp_cannot_know_is_refused(dsl: Any, name: str) -> None:
    body, why = REFUSED[name]
    with pytest.raises(dsl._Left, match=why):
        copied(dsl, body)


def test_registers_that_each_thread_writes_for_itself_are_refused(dsl: Any) -> None:
    first = "%one = arith.constant 1 : i32\n%kept = llvm.alloca %one x i32 : (i32) -> !llvm.ptr<5>\n"
    body = "%v = llvm.load %kept : !llvm.ptr<5> -> i32"
    own = first + "llvm.store %x, %kept : i32, !llvm.ptr<5>"
    with pytest.raises(dsl._Left, match="registers that each thread writes for itself"):
        copied(dsl, body, own)
    text = copied(dsl, body, first + "llvm.store %n1, %kept : i32, !llvm.ptr<5>")
    assert text.count("llvm.load") == 2


LOOPS = """
module {{ "t.func"() ({{
^bb0(%k: i32, %n: i32):
    %n0 = arith.constant 0 : i32
    %n1 = arith.constant 1 : i32
    %n2 = arith.constant 2 : i32
    {first}
    scf.for %i = %n0 to %f step %n1 : i32 {{ "t.multiply"() : () -> () }}
    scf.for %i = {start} to %k step %n1 : i32 {{ "t.multiply"() : () -> () }}
}}) : () -> () }}
"""
BEHIND = {
    "the least of one and the end": ("%f = arith.minsi %n1, %k : i32", "%f", True),
    "the least of the end and two": ("%f = arith.minsi %k, %n2 : i32", "%f", True),
    "the least of none and the end": ("%f = arith.minsi %n0, %k : i32", "%f", False),
    "the least of two ends": ("%f = arith.minsi %k, %n : i32", "%f", False),
    "the least of one and another end": ("%f = arith.minsi %n1, %n : i32", "%f", False),
    "the most of one and the end": ("%f = arith.maxsi %n1, %k : i32", "%f", False),
    "another beginning": ("%f = arith.minsi %n1, %k : i32", "%n1", False),
}
"""How a first loop ends, where a second one begins, and whether that has no turn where the first has none."""


@pytest.mark.parametrize("name", BEHIND)
def test_a_loop_that_has_turns_only_behind_those_of_another(dsl: Any, name: str) -> None:
    from cutlass._mlir import ir

    first, start, known = BEHIND[name]
    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(LOOPS.format(first=first, start=start))
        function = next(iter(module.body.operations)).operation
        with dsl._scratch():
            one, other = (op for op in dsl._all_operations(function) if op.name == "scf.for")
            assert dsl._Turn(other).only_behind(dsl._Turn(one)) is known
            assert dsl._Turn(one).only_behind(dsl._Turn(other)) is False
            assert dsl._Turn(None).only_behind(dsl._Turn(one)) is False
            assert dsl._Turn(other).only_behind(dsl._Turn(None)) is True


def test_a_stretch_knows_what_it_makes_and_what_others_use(dsl: Any) -> None:
    from cutlass._mlir import ir

    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(PROGRAM.format(body="%v = arith.addi %t, %q : i32", first=""))
        function = next(iter(module.body.operations)).operation
        with dsl._scratch():
            every = list(dsl._all_operations(function))
            loop = next(op for op in every if op.name == "scf.for")
            epilogue, following = (next(op for op in every if op.name == n) for n in ("t.epilogue", "scf.yield"))
            stretch = dsl._Stretch(loop, epilogue)
            assert [op.name for op in stretch.ops] == ["scf.for", "t.epilogue"]
            assert stretch.top(following) == loop
            assert stretch.holds(epilogue)
            assert not stretch.holds(loop.block.owner.operation)
            assert [str(v.type) for v in stretch.handed()] == ["i32", "i32"]
            made = next(op for op in every if op.name == "arith.addi" and op.block == loop.block)
            stretch.widen(loop, made)
            assert [op.name for op in stretch.ops] == ["scf.for", "t.epilogue", "arith.addi"]
            assert len(stretch.handed()) == 3
