# SPDX-License-Identifier: Apache-2.0
"""What a kernel does with mbarriers and operands in shared memory by other names than those of its loop of MMAs."""

from __future__ import annotations

import shutil
import sys
import types
import warnings
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from porter.build.dsl import DslTraced
from porter.build.port_plan import PortPlan, materialize
from porter.passes.dsl.outputs import DSL_STEPS, support_module
from porter.passes.dsl.port import port_python
from porter.verify.builder import PORT_ARCH, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.problem import bind

pytestmark = pytest.mark.external

PERSISTENT = Path(__file__).parents[2] / "corpus" / "dsl_gemm_persistent"

# --- places

POINTER, MOVED = "!cute.ptr<i64, smem, align<64>>", "!cute.ptr<i64, smem>"
PROGRAM = """
module {{ "t.func"() ({{
    %a = "cute.memref.alloca"() {{smem.struct_fields = ["first:64:0", "second:64:64", "a:1024:1024"]}}
        : () -> !cute.memref<i8, smem, align<1024>, "2048:1">
    %n = nvvm.read.ptx.sreg.ctaid.x : i32
    %n4 = arith.constant 4 : i32
    %i = "cute.get_iter"(%a) : (!cute.memref<i8, smem, align<1024>, "2048:1">) -> !cute.ptr<i8, smem, align<1024>>
    %o = "cute.static"() : () -> !cute.int_tuple<"64">
    %j = "cute.add_offset"(%i, %o) : (!cute.ptr<i8, smem, align<1024>>, !cute.int_tuple<"64">)
        -> !cute.ptr<i8, smem, align<64>>
    %p = "cute.recast_iter"(%j) : (!cute.ptr<i8, smem, align<64>>) -> !cute.ptr<i64, smem, align<64>>
    {body}
    "t.here"(%v) : ({kind}) -> ()
}}) : () -> () }}
"""
NEXT = (
    '%t = "cute.make_int_tuple"(%m) : (i32) -> !cute.int_tuple<"?">\n'
    f'%v = "cute.add_offset"(%p, %t) : ({POINTER}, !cute.int_tuple<"?">) -> {MOVED}'
)
PLACES: dict[str, tuple[str, str, tuple[int, bool, int] | None]] = {
    "an array": (
        f"%v = builtin.unrealized_conversion_cast %p : {POINTER} to !llvm.ptr<3>", "!llvm.ptr<3>", (64, False, 64)),
    "one of it": (
        f'%s = "cute.static"() : () -> !cute.int_tuple<"3">\n%v = "cute.add_offset"(%p, %s) : '
        f'({POINTER}, !cute.int_tuple<"3">) -> {MOVED}', MOVED, (88, False, 64)),
    "one by its index": ("%m = arith.addi %n, %n : i32\n" + NEXT, MOVED, (64, True, 64)),
    "one behind four": ("%m = arith.addi %n4, %n : i32\n" + NEXT, MOVED, (96, True, 64)),
    "one behind four, by a tuple": (
        '%s = "cute.static"() : () -> !cute.int_tuple<"4">\n'
        '%u = "cute.make_int_tuple"(%n) : (i32) -> !cute.int_tuple<"?">\n'
        '%t = "cute.tuple_add"(%s, %u) : (!cute.int_tuple<"4">, !cute.int_tuple<"?">) -> !cute.int_tuple<"?">\n'
        f'%v = "cute.add_offset"(%p, %t) : ({POINTER}, !cute.int_tuple<"?">) -> {MOVED}', MOVED, (96, True, 64)),
    "the same by both ways": (
        "%c = arith.cmpi slt, %n, %n4 : i32\n"
        f'%v = "scf.if"(%c) ({{ "scf.yield"(%p) : ({POINTER}) -> () }}, {{ "scf.yield"(%p) : ({POINTER}) -> () }})'
        f" : (i1) -> {POINTER}", POINTER, (64, False, 64)),
    "one or another one": (
        "%c = arith.cmpi slt, %n, %n4 : i32\n"
        '%s = "cute.static"() : () -> !cute.int_tuple<"3">\n%w = "cute.add_offset"(%p, %s) : '
        f'({POINTER}, !cute.int_tuple<"3">) -> {MOVED}\n'
        '%d = "cute.static"() : () -> !cute.int_tuple<"5">\n%x = "cute.add_offset"(%p, %d) : '
        f'({POINTER}, !cute.int_tuple<"5">) -> {MOVED}\n'
        f'%v = "scf.if"(%c) ({{ "scf.yield"(%x) : ({MOVED}) -> () }}, {{ "scf.yield"(%w) : ({MOVED}) -> () }})'
        f" : (i1) -> {MOVED}", MOVED, None),
    "an address": ("%v = llvm.inttoptr %n : i32 to !llvm.ptr<3>", "!llvm.ptr<3>", None),
}  # fmt: skip


@pytest.fixture(scope="module")
def dsl(tmp_path_factory: pytest.TempPathFactory) -> types.ModuleType:
    path = tmp_path_factory.mktemp("whole") / "porter_dsl.py"
    path.write_bytes(support_module(full_rate=True, steps=DSL_STEPS))
    spec = spec_from_file_location("porter_dsl_in_shared", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    with warnings.catch_warnings():
        # The DSL moves its own modules from version to version.
        warnings.simplefilter("ignore", DeprecationWarning)
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", PLACES)
def test_where_something_lies(dsl: Any, name: str) -> None:
    from cutlass._mlir import ir

    body, kind, wanted = PLACES[name]
    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        module = ir.Module.parse(PROGRAM.format(body=body, kind=kind))
        here = next(op for op in dsl._all_operations(module.operation) if op.name == "t.here")
        spot = dsl._spot(dsl._operands(here)[0])
        found = spot and (spot.start, spot.moves, spot.field()[1])
    assert found == wanted


# --- kernels

BARRIERS = "            load_barriers: cute.struct.MemRange[cutlass.Int64, self.stages * 2]\n"
OTHERS = BARRIERS + "            others: cute.struct.MemRange[cutlass.Int64, self.stages]\n"
CLASS = "class PersistentGemm:"
BY_HAND = """@cute.jit
def by_hand(text: cutlass.Constexpr, where: cute.Pointer):
    from cutlass._mlir.dialects import llvm

    llvm.inline_asm(None, [where.toint().ir_value()], text, "r", has_side_effects=True)


"""
ARRIVE = '"mbarrier.arrive.shared::cta.b64 _, [$0];"'
MOVE = '"{ .reg .b32 x; mov.b32 x, $0; }"'
READ = '"{ .reg .b32 x; ld.volatile.shared.b32 x, [$0]; }"'
GIVEN = "                warpgroup.wait_group(0)\n                loads.consumer_release(done_state)\n"


def otherwise(statement: str) -> list[tuple[str, str]]:
    """The last stage of a tile goes back by another statement where there are many k tiles."""
    text = (
        "                warpgroup.wait_group(0)\n                if k_tiles < 5:\n"
        "                    loads.consumer_release(done_state)\n                else:\n"
        f"                    if tidx % 32 == 0:\n                        {statement}\n"
    )
    return [(GIVEN, text), (CLASS, BY_HAND + CLASS)]


ARRIVES = "who else arrives at the mbarriers"
SHARED = "threads use shared memory before they give a stage back"
FIRST = "storage.load_barriers.data_ptr()"
BEHIND = (
    "                warpgroup.wait_group(0)\n                {}\n                loads.consumer_release(done_state)\n"
)
HELPER = (CLASS, BY_HAND + CLASS)
GIVES_BACK: dict[str, tuple[list[tuple[str, str]], str]] = {
    "as it is": ([], ""),
    "an mbarrier counted from the first one": (
        otherwise(f"cute.arch.mbarrier_arrive({FIRST} + self.stages + done_state.index)"),
        ARRIVES,
    ),
    "an index that is a sum": (
        otherwise(f"cute.arch.mbarrier_arrive({FIRST} + (done_state.index + self.stages))"),
        ARRIVES,
    ),
    "a number": (otherwise(f"cute.arch.mbarrier_arrive({FIRST} + self.stages + 1)"), ARRIVES),
    "inline PTX": (otherwise(f"by_hand({ARRIVE}, {FIRST} + self.stages + done_state.index)"), ARRIVES),
    "mbarriers of another array": (
        [
            (BARRIERS, OTHERS),
            (GIVEN, BEHIND.format("cute.arch.mbarrier_arrive(storage.others.data_ptr() + done_state.index)")),
        ],
        "",
    ),
    "what inline PTX reads of a stage": (
        [HELPER, (GIVEN, BEHIND.format(f"by_hand({READ}, storage.a.data_ptr())"))],
        SHARED,
    ),
    "inline PTX without memory": ([HELPER, (GIVEN, BEHIND.format(f"by_hand({MOVE}, storage.a.data_ptr())"))], ""),
}

FIELD = "            c: cute.struct.Align"
WEIGHTS = "            w: cute.struct.Align[cute.struct.MemRange[self.b_dtype, cute.cosize(b_smem_layout)], 1024]\n"
VIEW = "        sC = storage.c.get_tensor(c_smem_layout.outer, swizzle=c_smem_layout.inner)\n"
NAMED = VIEW + "        sW = storage.w.get_tensor(b_smem_layout.outer, swizzle=b_smem_layout.inner)\n"
FENCE = '        cute.arch.fence_proxy("async.shared", space="cta")\n'
FILL = """        if {who}:
            for i in cutlass.range(tidx % 32, 128 * 64, 32, unroll=1):
                sW[(i % 128, i // 128, 0)] = self.b_dtype(1.0)
"""
FILLED = FILL.format(who="warp_idx == 0") + FENCE + "        cute.arch.sync_threads()\n"
BY_CONSUMERS = (
    FILL.format(who="warp_idx > 3")
    + FENCE
    + "        if warp_idx > 3:\n            self.epilogue_barrier.arrive_and_wait()\n"
)
STEPS = "        k_tiles = cute.size(gA, mode=[3])\n"
FRAGMENT = "        tCrB = tiled_mma.make_fragment_B(thr_mma.partition_B(sB))\n"
PRODUCT = "                        cute.gemm(tiled_mma, accumulators, tCrA[part], tCrB[part], accumulators)\n"
SECOND = (
    "                        tiled_mma.set(warpgroup.Field.ACCUMULATE, True)\n                        "
    "cute.gemm(tiled_mma, accumulators, tCrA[part], tCrW[(None, None, k_block, 0)], accumulators)\n"
)
NEXT_TILE = "                mma_tiles.advance_to_next_work()\n"
STEP = """                for i in cutlass.range(tidx - 128, 128 * 64, self.mma_threads, unroll=1):
                    sW[(i % 128, i // 128, 0)] = self.b_dtype({value})
                cute.arch.fence_proxy("async.shared", space="cta")
                self.epilogue_barrier.arrive_and_wait()
"""
WRITTEN = "operands of MMAs may be written where another warp does not wait"
HAS = [(FIELD, WEIGHTS + FIELD)]
READS = [(FRAGMENT, FRAGMENT + FRAGMENT.replace("tCrB", "tCrW").replace("sB", "sW")), (PRODUCT, PRODUCT + SECOND)]
BY_PTX = '                by_hand("st.shared.b32 [$0], 0;", storage.b.data_ptr())\n'
KEEPS: dict[str, tuple[list[tuple[str, str]], str]] = {
    "an operand that stays": ([*HAS, *READS, (VIEW, NAMED + FILLED)], ""),
    "an operand that a tile makes of the last one": (
        [*HAS, *READS, (VIEW, NAMED + FILLED), (NEXT_TILE, STEP.format(value="sW[(0, 0, 0)] + 1.0") + NEXT_TILE)],
        WRITTEN,
    ),
    "an operand for which consumers alone meet": (
        [*HAS, *READS, (VIEW, NAMED), (STEPS, STEPS + BY_CONSUMERS)],
        WRITTEN,
    ),
    "shared memory that no MMA reads": (
        [*HAS, (VIEW, NAMED + FILLED), (NEXT_TILE, STEP.format(value="1.0") + NEXT_TILE)],
        "",
    ),
    "inline PTX that writes anywhere": ([HELPER, (NEXT_TILE, BY_PTX + NEXT_TILE)], WRITTEN),
}


def traced(folder: Path, edits: list[tuple[str, str]], steps: tuple[str, ...], dynamic: bool) -> DslTraced:
    shutil.copytree(PERSISTENT, folder)
    kernel, path = folder / "dsl_gemm_persistent.py", folder / "case.yaml"
    text = kernel.read_text()
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    kernel.write_text(text)
    if dynamic:
        path.write_text(path.read_text().replace("dsl:\n", "dsl:\n  dynamic: true\n"))
    case = load_case(path)
    files = dict(port_python(kernel, full_rate=True, native=steps).files)
    built = ToolkitBuilder().build(bind(case), materialize(PortPlan(files=files), kernel), PORT_ARCH)
    (told,) = built.traced
    return told


@pytest.mark.slow
@pytest.mark.parametrize("name", GIVES_BACK)
def test_who_gives_stages_back(name: str, tmp_path: Path) -> None:
    edits, why = GIVES_BACK[name]
    told = traced(tmp_path / "kernel", edits, DSL_STEPS[:1], dynamic=True)
    assert told.steps == (() if why else DSL_STEPS[:1])
    assert [why in one.why and one.line > 0 for one in told.without] == [True] * bool(why)


@pytest.mark.slow
@pytest.mark.parametrize("name", KEEPS)
def test_who_writes_operands(name: str, tmp_path: Path) -> None:
    edits, why = KEEPS[name]
    told = traced(tmp_path / "kernel", edits, DSL_STEPS[:2], dynamic=False)
    assert told.steps == DSL_STEPS[: 1 if why else 2]
    assert [why in one.why and one.line > 0 for one in told.without] == [True] * bool(why)
