# SPDX-License-Identifier: Apache-2.0
"""The support module of ports by itself: its analyses on small programs, and what it makes of small kernels."""

from __future__ import annotations

import ast
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "variants"))
pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from dsl_variant_template import source
from dsl_variant_types import KINDS, TILES, Mma, Variant
from dsl_variants_accumulators import ADDS, FRAGMENT, PARTS, STORE, ZERO, loop, step

from porter.build.dsl import DslRequest, compile_dsl
from porter.diagnostics import Code, PorterError
from porter.passes.dsl.outputs import support_module

pytestmark = pytest.mark.external


@pytest.fixture(scope="module")
def dsl(tmp_path_factory: pytest.TempPathFactory) -> types.ModuleType:
    path = tmp_path_factory.mktemp("whole") / "porter_dsl.py"
    path.write_bytes(support_module())
    spec = spec_from_file_location("porter_dsl_by_itself", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    with warnings.catch_warnings():
        # The DSL moves its own modules from version to version.
        warnings.simplefilter("ignore", DeprecationWarning)
        spec.loader.exec_module(module)
    return module


# --- what it takes of the DSL


def private_names() -> set[str]:
    """Names of the DSL without a promise, as the module imports or reaches them."""
    found = set[str]()
    for node in ast.walk(ast.parse(support_module())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cutlass"):
            found |= {f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr.startswith("_"):
            found |= {f"{node.value.id}.{node.attr}"} if node.value.id not in ("self", "sys") else set()
    return {name for name in found if any(re.match("_[^_]", part) for part in name.split("."))}


def test_private_names_of_the_dsl_are_listed(dsl: types.ModuleType) -> None:
    used = private_names()
    assert {name for name in used if not name.startswith(tuple(dsl.PRIVATE))} == set()
    assert all(any(name.startswith(listed) for name in used) for listed in dsl.PRIVATE)


def test_nothing_stands_in_for_the_dsl(dsl: types.ModuleType) -> None:
    """Its own answer is back behind a constructor that asked, whether that raised or not."""
    from cutlass.cutlass_dsl import BaseDSL

    assert b"mock" not in support_module()
    made = []
    dsl._on_hopper(lambda: made.append(BaseDSL._get_dsl().get_arch_enum()))()
    assert made == [dsl.get_arch_enum()]
    with pytest.raises(ZeroDivisionError):
        dsl._on_hopper(lambda: 1 // 0)()
    assert "get_arch_enum" not in vars(BaseDSL._get_dsl())


# --- views of registers


@pytest.fixture
def code() -> Iterator[Any]:
    """A place for operations, outside of any kernel."""
    from cutlass._mlir import ir

    with ir.Context(), ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            yield ir


ALL = ((2, 2, 8), 1, 4)
VIEWS: dict[str, tuple[Callable[[Any, Any], Any], int | None]] = {
    "all": (lambda cute, t: t[None, None, None], 0),
    "a tile": (lambda cute, t: t[None, 0, 2], 64 * 32),
    "a tile, its modes kept": (lambda cute, t: t[None, None, 3], 96 * 32),
    "some of a fragment": (lambda cute, t: t[(None, 1, None), 0, 1], 34 * 32),
    "one number for a mode of several": (lambda cute, t: t[5, 0, None], 5 * 32),
    "at run time": (lambda cute, t: t[None, 0, number(cute)], None),
    "grouped": (lambda cute, t: cute.group_modes(t, 1, 3), 0),
    "flat": (lambda cute, t: cute.flatten(t), 0),
    "another layout": (lambda cute, t: cute.make_tensor(t.iterator, cute.make_layout((16, 8), stride=(8, 1))), 0),
    "fewer": (lambda cute, t: cute.make_tensor(t.iterator, cute.make_layout((4, 4))), 0),
    "from the middle": (lambda cute, t: cute.make_tensor(t.iterator + 40, cute.make_layout(8)), 40 * 32),
    "from somewhere": (lambda cute, t: cute.make_tensor(t.iterator + number(cute), cute.make_layout(8)), None),
    "as other numbers": (lambda cute, t: recast(cute, t, "Float16"), 0),
    "a tile as other numbers": (lambda cute, t: recast(cute, t[None, 0, 1], "Float16"), 32 * 32),
    "a tile of that": (lambda cute, t: recast(cute, t, "Float16")[None, 0, 1], 64 * 16),
}


def number(cute: Any) -> Any:
    """A number that is known at run time only."""
    import cutlass

    return cute.make_rmem_tensor(1, cutlass.Int32)[0]


def recast(cute: Any, tensor: Any, dtype: str) -> Any:
    import cutlass

    return cute.recast_tensor(tensor, getattr(cutlass, dtype))


@pytest.mark.parametrize("name", VIEWS)
def test_where_views_begin(dsl: Any, code: Any, name: str) -> None:
    import cutlass
    import cutlass.cute as cute

    make, wanted = VIEWS[name]
    registers = cute.make_rmem_tensor(cute.make_layout(ALL), cutlass.Float32)
    # Copies between views make chains of operations: each one adds to what its operand stands for.
    value, step = dsl._raw(make(cute, registers)), 0
    while step is not None and value != dsl._raw(registers):
        op = value.owner.operation
        (source,) = [v for v in dsl._operands(op) if dsl._bits(v)]
        more = dsl._step(op, value, source)
        step, value = None if more is None else step + more, source
    assert step == wanted


@pytest.mark.parametrize(
    ("layout", "wanted"),
    [
        ((ALL, None), {(0, 0): 0, (0, 1): 32, (0, 2): 64, (0, 3): 96}),
        ((((2, 2, 8), 2, 2), None), {(0, 0): 0, (1, 0): 32, (0, 1): 64, (1, 1): 96}),
        ((((2, 2, 8), 2, 2), ((1, 2, 4), 64, 32)), {(0, 0): 0, (1, 0): 64, (0, 1): 32, (1, 1): 96}),
        ((((2, 2, 8), 2, (1, 2)), None), {(0, 0): 0, (1, 0): 32, (0, 1): 64, (1, 1): 96}),
        ((((2, 2, 8), 2, 1), ((1, 2, 4), 0, 0)), {(0, 0): 0, (1, 0): 0}),
        (((2, 2, 8), None), {(0, 0): 0, **{(i, j): 2 * i + 4 * j for i in range(2) for j in range(8)}}),
        ((((2, 2, 8),), None), {(0, 0): 0}),
        ((8, None), {(0, 0): 0}),
    ],
)
def test_distances_of_tiles(dsl: Any, code: Any, layout: tuple[Any, Any], wanted: dict) -> None:
    import cutlass
    import cutlass.cute as cute

    shape, stride = layout
    made = cute.make_layout(shape) if stride is None else cute.make_layout(shape, stride=stride)
    assert dsl._rest(cute.make_rmem_tensor(made, cutlass.Float32)) == wanted


@pytest.mark.parametrize("step", [1, -1])
def test_views_that_take_turns_begin_anywhere(dsl: Any, code: Any, step: int) -> None:
    """What a loop hands on is followed until nothing changes, however many turns that takes."""
    import cutlass
    import cutlass.cute as cute
    from cutlass._mlir.dialects import arith, scf

    registers = cute.make_rmem_tensor(cute.make_layout(ALL), cutlass.Float32)
    first, other = (dsl._raw(registers[None, 0, i]) for i in (0, 1))
    index = code.IndexType.get()
    bounds = [arith.ConstantOp(index, code.IntegerAttr.get(index, n)) for n in (0, 4, 1)]
    loop = scf.ForOp(*(b.result for b in bounds), [first] * 8)
    block = loop.operation.regions[0].blocks[0]
    handed = [*list(block.arguments)[1:], other][step:][:8] if step > 0 else [other, *list(block.arguments)[1:8]]
    with code.InsertionPoint(block):
        shown = [dsl._raw(cute.recast_tensor(block.arguments[i], cutlass.Int32)) for i in range(1, 9)]
        scf.YieldOp([dsl._raw(v) for v in handed])
    function = loop.operation.block.owner.operation
    with dsl._scratch():
        program = dsl._Program(types.SimpleNamespace(events=[]), function)
    assert [list(program.aliases[v].values()) for v in shown] == [[None]] * 8


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ('!cute.memref<f32, rmem, "((2,2,8),1,1):((1,2,4),0,0)">', 32),
        ('!cute.memref<f16, rmem, align<32>, "(4):(1)">', 16),
        ('!cute.memref<i1, rmem, "4:1">', 8),
        ("!cute.ptr<bf16, rmem, align<4>>", 16),
        ('!cute.memref<f32, gmem, "(4,4):(4,1)">', None),
        ('!cute.memref<f32, smem, "(4,4):(4,1)">', None),
        ("i32", None),
    ],
)
def test_types_of_registers(dsl: Any, text: str, bits: int | None) -> None:
    assert dsl._bits(types.SimpleNamespace(type=text)) == bits


# --- states


@pytest.mark.parametrize(
    ("before", "committed", "waited_0", "waited_1"),
    [
        ({0}, {1}, {1000}, {1}),
        ({1}, {2}, {1000}, {1000}),
        ({"zero", 0}, {"zero", 1}, {"zero", 1000}, {"zero", 1}),
        ({1000}, {1000}, {1000}, {1000}),
        ({-1}, {-1}, {-1}, {-1}),
        ({0, 1, 2}, {1, 2, 3}, {1000}, {1, 1000}),
    ],
)
def test_groups_grow_older_and_are_waited_for(
    dsl: Any, before: set, committed: set, waited_0: set, waited_1: set
) -> None:
    after = dsl._older(frozenset(before))
    assert after == committed
    assert dsl._waited(after, 0) == waited_0
    assert dsl._waited(after, 1) == waited_1


def test_what_no_commit_covers_stays_in_flight(dsl: Any) -> None:
    assert dsl._waited(frozenset([0]), 0) == {0}


def test_ages_end(dsl: Any) -> None:
    states = frozenset([0])
    for _ in range(100):
        states = dsl._older(states)
    assert dsl._older(states) == states


def test_paths_join(dsl: Any) -> None:
    one = dsl._State({"p": frozenset(["zero"]), "commits": frozenset([1])})
    two = dsl._State({"p": frozenset([0]), "commits": frozenset([dsl.RING - 2])})
    both = one.join(two)
    assert both == two.join(one) == {"p": {"zero", 0}, "commits": {1, dsl.RING - 2}}
    assert one.join(None) is one
    assert one["p"] == {"zero"}
    assert both.join(both) == both
    assert both.far()
    assert not one.far()


# --- which threads reach a place

THREADS = """
module {{ "t.func"() ({{
    %x = nvvm.read.ptx.sreg.tid.x : i32
    %y = nvvm.read.ptx.sreg.tid.y : i32
    {constants}
    {body}
    scf.if %c {{ "t.here"() : () -> () }}
}}) {attributes} : () -> () }}
"""
CONDITIONS = {
    "at least": ("%w = arith.divsi %x, %n32 : i32\n%c = arith.cmpi sge, %w, %n4 : i32", [1, 2]),
    "unsigned": ("%w = arith.shrui %x, %n7 : i32\n%c = arith.cmpi ugt, %w, %n1 : i32", [2]),
    "equal": ("%w = arith.divsi %x, %n128 : i32\n%c = arith.cmpi eq, %w, %n1 : i32", [1]),
    "not equal": ("%w = arith.divsi %x, %n128 : i32\n%c = arith.cmpi ne, %w, %n1 : i32", [0, 2]),
    "half of the threads": ("%w = arith.remsi %x, %n2 : i32\n%c = arith.cmpi eq, %w, %n1 : i32", [0, 1, 2]),
    "a bit": ("%w = arith.andi %x, %n128 : i32\n%c = arith.cmpi ne, %w, %n0 : i32", [1]),
    "both": (
        "%a = arith.cmpi sge, %x, %n128 : i32\n%b = arith.cmpi slt, %x, %n256 : i32\n%c = arith.andi %a, %b : i1", [1]
    ),
    "one of both": (
        "%a = arith.cmpi slt, %x, %n128 : i32\n%b = arith.cmpi sge, %x, %n256 : i32\n%c = arith.ori %a, %b : i1", [0, 2]
    ),
    "not": ("%t = arith.constant true\n%a = arith.cmpi slt, %x, %n128 : i32\n%c = arith.xori %a, %t : i1", [1, 2]),
    "chosen": (
        "%a = arith.cmpi slt, %x, %n128 : i32\n%w = arith.select %a, %n7, %n4 : i32\n"
        "%c = arith.cmpi eq, %w, %n7 : i32", [0]
    ),
    "of a branch": (
        "%a = arith.cmpi slt, %x, %n128 : i32\n"
        "%w = scf.if %a -> (i32) { scf.yield %n7 : i32 } else { scf.yield %n4 : i32 }\n"
        "%c = arith.cmpi eq, %w, %n4 : i32", [1, 2]
    ),
    "unknown": ('%w = "t.number"() : () -> i32\n%c = arith.cmpi eq, %w, %n4 : i32', [0, 1, 2]),
    "unknown and known": (
        '%u = "t.flag"() : () -> i1\n%a = arith.cmpi sge, %x, %n256 : i32\n%c = arith.andi %u, %a : i1', [2]
    ),
    "unknown or known": (
        '%u = "t.flag"() : () -> i1\n%a = arith.cmpi sge, %x, %n256 : i32\n%c = arith.ori %u, %a : i1', [0, 1, 2]
    ),
    "nobody": ("%c = arith.cmpi sge, %x, %n384 : i32", []),
    "negative": ("%w = arith.subi %x, %n256 : i32\n%c = arith.cmpi sge, %w, %n0 : i32", [2]),
}  # fmt: skip
CONSTANTS = "\n".join(f"%n{n} = arith.constant {n} : i32" for n in (0, 1, 2, 4, 7, 32, 128, 256, 384))


def reached(dsl: Any, body: str, block: tuple[int, ...] | None) -> list[int]:
    from cutlass._mlir import ir

    attributes = f"{{nvvm.reqntid = array<i32: {', '.join(map(str, block))}>}}" if block else ""
    with ir.Context() as context, ir.Location.unknown():
        context.allow_unregistered_dialects = True
        text = THREADS.format(constants=CONSTANTS, body=body, attributes=attributes)
        module = ir.Module.parse(text)
        function = next(iter(module.body.operations)).operation
        inner = [o.operation for o in function.regions[0].blocks[0].operations]
        here = next(iter(inner[-1].regions[0].blocks[0].operations)).operation
        with dsl._scratch():
            threads = dsl._Threads(function)
            return sorted(threads.reach(here, function))


@pytest.mark.parametrize("name", CONDITIONS)
def test_warpgroups_that_a_condition_lets_in(dsl: Any, name: str) -> None:
    body, wanted = CONDITIONS[name]
    assert reached(dsl, body, (384, 1, 1)) == wanted


def test_blocks_of_two_dimensions_and_of_unknown_size(dsl: Any) -> None:
    row = "%c = arith.cmpi eq, %y, %n1 : i32"
    assert reached(dsl, row, (128, 3, 1)) == [1]
    assert reached(dsl, row, (32, 12, 1)) == [0]
    assert reached(dsl, CONDITIONS["at least"][0], None) == [1, 2, 3, 4, 5, 6, 7]
    assert reached(dsl, CONDITIONS["unknown"][0], (160, 1, 1)) == [0, 1]


# --- kernels


def framed(variant: Variant) -> str:
    """The text of a variant with the calls of a port."""
    text = source(variant)
    head, _, kernel = text.partition("@cute.kernel\n")
    declaration, _, body = kernel.partition("):\n")
    body, _, host = body.partition("\n@cute.jit\n")
    text = f"{head}@cute.kernel\n{declaration}):\n    warpgroup.begin()\n{body}    warpgroup.end()\n\n@cute.jit\n{host}"
    text = text.replace("import warp, warpgroup\n", "import warp\nimport porter_dsl as warpgroup\n")
    return text.replace("sm90_utils.make_trivial", "warpgroup.make_trivial").replace("cute.gemm(", "warpgroup.gemm(")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("module")
    (folder / "porter_dsl.py").write_bytes(support_module())
    known: dict[str, str] = {}

    def ptx(*texts: str, **values: Any) -> str:
        variant = Variant("kernel", "", "\n".join(texts), **values)
        text = framed(variant)
        if text not in known:
            path = folder / "kernel.py"
            path.write_text(text)
            kind = KINDS[variant.kind]
            k = kind.depth * TILES
            tensors = [
                {"kind": "tensor", "dtype": d, "shape": list(s), "strides": [s[1], 1], "align": 16, "address": 1 << 32}
                for d, s in ((kind.operand, (variant.m, k)), (kind.operand, (variant.n, k)),
                             ("Float32", (variant.m, variant.n)))
            ]  # fmt: skip
            call = [*tensors, {"kind": "runtime", "dtype": "Int32", "value": TILES}, {"kind": "stream"}]
            known[text] = compile_dsl(DslRequest(path, "gemm", "sm_100a", call)).ptx
        return known[text]

    return ptx


def main_loop(ptx: str) -> str:
    """The smallest loop around an MMA."""
    lines = ptx.split("\n")
    labels = {line[:-1]: i for i, line in enumerate(lines) if re.fullmatch(r"\$\w+:", line)}
    spans = []
    for i, line in enumerate(lines):
        found = re.search(r"\bbra(?:\.uni)?\s+(\$\w+);", line)
        if found is not None and labels.get(found[1], i) < i:
            spans.append("\n".join(lines[labels[found[1]] : i + 1]))
    return min((s for s in spans if "tcgen05.mma" in s), key=len)


def columns(ptx: str) -> int:
    """How many columns the kernel allocates."""
    found = re.search(r"tcgen05\.alloc\S+\s+\[\S+\], (%r\d+|\d+);", ptx)
    assert found is not None
    value = re.search(rf"mov\.b32\s+{found[1]}, (\d+);", ptx) if found[1].startswith("%") else found
    assert value is not None
    return int(value[1])


def plain(*more: str) -> str:
    return ZERO + loop(step(), *more) + STORE


def test_nothing_moves_in_a_loop_where_nobody_reads(compiled: Any) -> None:
    ptx = compiled(plain())
    body = main_loop(ptx)
    assert body.count("tcgen05.mma") == 4
    assert "tcgen05.ld" not in body
    assert ptx.count("tcgen05.ld") == 1
    assert ptx.count("tcgen05.dealloc") == 1
    assert "wgmma" not in ptx


def test_zeros_are_not_stored(compiled: Any) -> None:
    assert "tcgen05.st" not in compiled(plain())


def test_values_are_stored(compiled: Any) -> None:
    ptx = compiled(ZERO + "acc.fill(3)\n" + loop(step()) + STORE)
    assert "tcgen05.st" in ptx
    assert "tcgen05.ld" not in main_loop(ptx)


def test_scaled_registers_are_loaded_and_stored(compiled: Any) -> None:
    body = main_loop(compiled(plain("acc.store(acc.load() * 2)\n")))
    assert body.count("tcgen05.ld") == body.count("tcgen05.st") == 1
    assert body.count("tcgen05.wait::ld") == body.count("tcgen05.wait::st") == 1


def test_reading_does_not_store(compiled: Any) -> None:
    ptx = compiled(ZERO + "total = cute.make_rmem_tensor(acc.shape, ACC)\ntotal.fill(0)\n"
                   + loop(step(),
                   "total.store(total.load() + acc.load())\n") + "store(mma, total, mC, tidx)\n")  # fmt: skip
    assert main_loop(ptx).count("tcgen05.ld") == 1
    assert "tcgen05.st" not in ptx


def test_only_the_tile_that_was_changed_moves(compiled: Any) -> None:
    halves = {"mma": Mma((1, 1), 32)}
    both = main_loop(compiled(plain("acc.store(acc.load() * 2)\n"), mmas=halves))
    assert both.count("tcgen05.ld") == both.count("tcgen05.st") == 2


REGISTERS = """
thr = mma.get_slice(tidx)
tCsA = thr.partition_A(sA)
tCrB = mma.make_fragment_B(thr.partition_B(sB))
rA = mma.make_fragment_A(tCsA[None, None, None, 0])
acc = mma.make_fragment_C(mma.partition_shape_C((M, N)))
acc.fill(0)
mma.set(warpgroup.Field.ACCUMULATE, True)
"""
RS_STEP = """
cute.autovec_copy(tCsA[None, None, None, t], rA)
warpgroup.fence()
cute.gemm(mma, acc, rA, tCrB[None, None, None, t], acc)
cute.gemm(mma, acc, rA, tCrB[None, None, None, t], acc)
warpgroup.commit_group()
warpgroup.wait_group(0)
"""


def test_operands_in_registers_are_staged_once(compiled: Any) -> None:
    body = main_loop(compiled(REGISTERS, loop(RS_STEP), STORE, mmas={"mma": Mma(registers=True)}))
    assert body.count("tcgen05.mma") == 8
    assert body.count("tcgen05.st") == 4


TWO = f"""
first = {FRAGMENT}
first.fill(0)
{loop(step("first"))}
store(mma, first, mC, tidx)
second = {FRAGMENT}
second.fill(0)
{loop(step("second"))}
store(mma, second, mC, tidx)
"""
TOGETHER = f"""
first, second = {FRAGMENT}, {FRAGMENT}
first.fill(0)
second.fill(0)
{loop(step("first"), step("second"))}
first.store(first.load() + second.load())
store(mma, first, mC, tidx)
"""
SIZES = {
    "one": (plain(), {}, 64),
    "narrow": (plain(), {"n": 8}, 32),
    "between": (plain(), {"n": 72}, 128),
    "one after the other": (PARTS + ADDS + TWO, {"n": 96}, 128),
    "together": (PARTS + ADDS + TOGETHER, {}, 128),
    "tiles of M": (plain(), {"m": 128}, 128),
    "halves of lanes": (plain(), {"m": 128, "block": (256, 1, 1), "mmas": {"mma": Mma((2, 1))}}, 64),
    "three warpgroups": (plain(), {"m": 192, "block": (384, 1, 1), "mmas": {"mma": Mma((3, 1))}}, 128),
    "a producer": ("if warp_idx >= 4:\n    product(mma, sA, sB, mC, tiles, tidx - 128)\n", {"block": (256, 1, 1)}, 64),
    "registers and slots": (REGISTERS + loop(RS_STEP) + STORE, {"mmas": {"mma": Mma(registers=True)}}, 128),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if i > 3 else []) for i,
n in enumerate(SIZES)])  # fmt: skip
def test_columns(compiled: Any, name: str) -> None:
    text, values, wanted = SIZES[name]
    assert columns(compiled(text, **values)) == wanted


def test_only_warpgroups_that_multiply_have_mbarriers(compiled: Any, dsl: Any) -> None:
    text, values, _ = SIZES["a producer"]
    assert compiled(text, **values).count("mbarrier.init.shared") == dsl.RING + 1
    text, values, _ = SIZES["halves of lanes"]
    assert compiled(text, **values).count("mbarrier.init.shared") == 2 * (dsl.RING + 1)


FLYING = """
warpgroup.fence()
cute.gemm(mma, acc, tCrA[None, None, None, t % 3], tCrB[None, None, None, t % 3], acc)
warpgroup.commit_group()
"""


def test_groups_in_flight_are_bounded(compiled: Any) -> None:
    waited = main_loop(compiled(ZERO, loop(FLYING, "warpgroup.wait_group(1)\n"), "warpgroup.wait_group(0)\n", STORE))
    free = main_loop(compiled(ZERO, loop(FLYING), "warpgroup.wait_group(0)\n", STORE))
    # The threads meet, and wait for a group: the oldest of the ring, or the one before.
    assert free.count("mbarrier.try_wait") == waited.count("mbarrier.try_wait") == 2


NESTED = """
warpgroup.fence()
for k in cutlass.range(tiles, unroll=1):
    cute.gemm(mma, acc, tCrA[None, None, 0, t], tCrB[None, None, 0, t], acc)
warpgroup.commit_group()
warpgroup.wait_group(0)
"""


def test_a_fence_ahead_of_a_loop_is_met_once(compiled: Any) -> None:
    ptx = compiled(ZERO + loop(NESTED) + STORE)
    assert "mbarrier" not in main_loop(ptx)
    assert ptx.count("mbarrier.arrive") == 1


@pytest.mark.parametrize("between", ["", "warpgroup.fence()\n", "total.store(total.load() + 1)\n"])
def test_a_fence_right_before_an_mma_is_met_with_it(compiled: Any, between: str) -> None:
    total = "total = cute.make_rmem_tensor(acc.shape, ACC)\ntotal.fill(0)\n"
    text = ZERO + total + loop(step().replace("cute.gemm(", between + "cute.gemm(")) + STORE
    assert compiled(text).count("mbarrier.arrive") == 1


def test_single_mmas_of_an_atom(compiled: Any) -> None:
    text = ZERO + loop(step()) + STORE
    ptx = compiled(text.replace("cute.gemm(", "warpgroup.mma_atom_call("))
    assert ptx.count("tcgen05.mma") == compiled(text).count("tcgen05.mma") > 0


def test_a_kernel_without_mmas_is_left_alone(compiled: Any) -> None:
    ptx = compiled("mC[tidx % M, tidx // M] = 1.0\n")
    assert "tcgen05" not in ptx
    assert "mbarrier" not in ptx


# --- what cannot be ported

RUN_TIME = ZERO + loop("""
warpgroup.fence()
part = acc[None, None, t % 2]  # here
cute.gemm(mma, part, tCrA[None, None, 0, t], tCrB[None, 0, 0, t], part)  # obstacle
warpgroup.commit_group()
warpgroup.wait_group(0)
""") + STORE  # fmt: skip
OTHER_RESULT = f"""
other = {FRAGMENT}
warpgroup.fence()
cute.gemm(mma, acc, tCrA[None, None, None, 0], tCrB[None, None, None, 0], other)  # obstacle
warpgroup.commit_group()
warpgroup.wait_group(0)
"""
SCATTERED = """
view = cute.make_tensor(acc.iterator, cute.make_layout(((2, 2, N // 8), 1, 1), stride=((2, 1, 4), 0, 0)))
warpgroup.fence()
cute.gemm(mma, view, tCrA[None, None, None, 0], tCrB[None, None, None, 0], view)  # obstacle
warpgroup.commit_group()
warpgroup.wait_group(0)
"""
EARLY = """
warpgroup.fence()
cute.gemm(mma, acc, tCrA[None, None, None, 0], tCrB[None, None, None, 0], acc)  # obstacle
acc.store(acc.load() * 2)
warpgroup.commit_group()
warpgroup.wait_group(0)
"""
MANY = f"accs = [{FRAGMENT} for _ in range(9)]\n" + "\n".join(
    f"accs[{i}].fill(0)\n{step(f'accs[{i}]', 0).replace(', accs', ', accs')}" for i in range(9)
).replace("], accs[0])", "], accs[0])  # obstacle") + "\nfor x in accs:\n    store(mma, x, mC, tidx)\n"  # fmt: skip
OBSTACLES = {
    "an accumulator chosen at run time": (RUN_TIME, {"mmas": {"mma": Mma((1, 1), 32)}}, "only at run time"),
    "another result": (ZERO + OTHER_RESULT + STORE, {}, "goes to other registers"),
    "registers in another order": (ZERO + SCATTERED + STORE, {}, "not in the order"),
    "used before the commit": (ZERO + EARLY + STORE, {}, "before its group is waited for"),
    "too many columns": (PARTS + ADDS + MANY, {}, "576 columns"),
    "two at a time": (ZERO + OTHER_RESULT + SCATTERED + STORE, {}, "registers"),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if i > 1 else []) for i,
n in enumerate(OBSTACLES)])  # fmt: skip
def test_obstacles_are_named_with_their_lines(compiled: Any, name: str) -> None:
    text, values, reason = OBSTACLES[name]
    with pytest.raises(PorterError) as caught:
        compiled(text, **values)
    lines = framed(Variant("kernel", "", text, **values)).split("\n")
    marked = [i for i, line in enumerate(lines, 1) if line.endswith("# obstacle")]
    found = caught.value.diagnostics
    assert {d.code for d in found} == {Code.DSL_OBSTACLE}
    assert all(d.where is not None and d.where.path.endswith("kernel.py") and reason in d.message for d in found)
    assert sorted(d.where.line for d in found if d.where is not None) == marked


def test_all_columns_are_named(compiled: Any) -> None:
    text, values, _ = OBSTACLES["too many columns"]
    with pytest.raises(PorterError) as caught:
        compiled(text, **values)
    assert caught.value.diagnostic.message.count("64 from kernel.py:") == 9
