# SPDX-License-Identifier: Apache-2.0
"""The code that ports bring along: each section of it compiles, with and without what it may hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from porter.build.nvcc import CompileRequest, compile_ptx
from porter.passes.emit import Block, parsed, sections
from porter.passes.helpers import Helpers, type_constant
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind
from porter.verify.builder import PORT_ARCH

PASSES = Path(__file__).resolve().parents[2] / "porter" / "passes"
F16, F8, BF16, F32 = ElementType.F16, ElementType.E4M3, ElementType.BF16, ElementType.F32
FLOATS, HALVES, WORDS = ("f", False), ("r", True), ("r", False)


def helpers(
    kinds: dict[Kind, ElementType],
    moves: dict[tuple[str, bool], tuple[int, ...]],
    *,
    operations: tuple[str, ...] = ("load", "store"),
    scalars: bool = False,
    updates: bool = False,
    **options: Any,
) -> Helpers:
    made = Helpers(kinds=set(kinds), operands=set(kinds.items()), accumulators={F32, F16}, **options)
    for kept, sizes in moves.items():
        mirror = made.mirror(*kept)
        mirror.sizes.update(sizes)
        mirror.updates = updates
        for operation in operations:
            mirror.request(operation, scalars=scalars)
        if made.tracked:
            mirror.request_tracking(scalars=scalars)
    return made


ALL, FEW = (248, 8), (64,)
COMBINATIONS = {
    "plain": helpers({Kind.F16: BF16}, {FLOATS: FEW}, operations=("load",)),
    "halves": helpers({Kind.F16: F16, Kind.F8F6F4: F8}, {HALVES: ALL}, ring=3, scalars=True, uses_clear=True),
    "words": helpers(
        {Kind.I8: ElementType.S8},
        {WORDS: ALL, FLOATS: ALL},
        float_registers=True,
        tile_arrays=True,
        padded_shared=True,
        uses_clear=True,
        count_type="int",
        guarded_commit=True,
        masked_descriptors=True,
        saturate=True,
        ring=2,
    ),
    "tracked": helpers(
        {Kind.TF32: ElementType.TF32},
        {FLOATS: ALL},
        tracked=True,
        tile_arrays=True,
        scalars=True,
        sync_in_wait=True,
        class_tiles=True,
        linear_thread=True,
    ),
    "tracked, no arrays": helpers({Kind.F16: F16}, {HALVES: FEW}, tracked=True),
    "registers": helpers(
        {Kind.F16: F16},
        {FLOATS: (8,)},
        operations=("store",),
        register_kinds={Kind.F16},
        guarded_commit=True,
        ring=8,
        masked_descriptors=True,
    ),
    "volatile registers": helpers({Kind.F16: F16}, {FLOATS: FEW}, volatile_registers=True),
    "a thread of its own": helpers(
        {Kind.F16: BF16},
        {FLOATS: FEW},
        operations=("load",),
        joined=True,
        releases=True,
        own_thread=True,
        mma_warp=1,
        buffers=2,
    ),
    "one of its own for arrays": helpers(
        {Kind.F16: BF16},
        {FLOATS: FEW},
        operations=("load",),
        stacked=True,
        releases=True,
        own_thread=True,
        tile_arrays=True,
        may_be_empty=True,
    ),
    "pairs": helpers(
        {Kind.F16: BF16},
        {FLOATS: FEW},
        operations=("load",),
        joined=True,
        releases=True,
        own_thread=True,
        buffers=2,
        may_be_empty=True,
        paired=True,
    ),
    "tiles taken over": helpers(
        {Kind.F16: BF16},
        {FLOATS: FEW},
        operations=("load",),
        joined=True,
        releases=True,
        own_thread=True,
        buffers=2,
        tiles=True,
        tile_storing=256,
        tile_meets=True,
    ),
    "tiles taken over by a warp, in another order": helpers(
        {Kind.F16: BF16},
        {FLOATS: FEW},
        operations=("load",),
        joined=True,
        releases=True,
        own_thread=True,
        tiles=True,
        tile_asker=32,
        tile_loaders=32,
        tile_storing=256,
        raster=8,
        raster_grid=True,
    ),
    "numbered tiles in another order": helpers({Kind.F16: BF16}, {FLOATS: FEW}, raster=8, raster_numbers=True),
    "joined": helpers(
        {Kind.F16: BF16}, {FLOATS: FEW}, operations=("load",), joined=True, releases=True, row_stores=True
    ),
    "scales": helpers(
        {Kind.F8F6F4: F8, Kind.F16: F16},
        {FLOATS: FEW},
        operations=("load",),
        joined=True,
        releases=True,
        uses_clear=True,
        scaled=True,
    ),
    "scales of columns": helpers(
        {Kind.F8F6F4: F8},
        {FLOATS: FEW},
        operations=("load",),
        joined=True,
        uses_clear=True,
        padded_shared=True,
        scaled=True,
        column_factors=True,
    ),
    "joined behind a producer": helpers(
        {Kind.F16: F16}, {FLOATS: (8,)}, register_kinds={Kind.F16}, joined=True, issuer=4
    ),
    "joined, rows of A in other places": helpers(
        {Kind.F16: BF16}, {FLOATS: FEW}, operations=("load",), joined=True, permuted=True
    ),
    "joined in a cluster": helpers(
        {Kind.F16: BF16}, {FLOATS: FEW}, operations=("load",), joined=True, releases=True, shares=True
    ),
    "a cluster that calls its stages empty, a thread of its own": helpers(
        {Kind.F16: BF16},
        {FLOATS: FEW},
        operations=("load",),
        joined=True,
        releases=True,
        shares=True,
        called_empty=True,
        own_thread=True,
    ),
    "stacked": helpers(
        {Kind.F16: BF16}, {FLOATS: FEW}, operations=("load",), stacked=True, tile_arrays=True, uses_clear=True
    ),
    "pieces": helpers({Kind.F16: F16}, {FLOATS: ALL, HALVES: (*ALL, *FEW)}, updates=True, blocks=2),
    "pieces, blocks of several dimensions": helpers({Kind.F16: F16}, {FLOATS: FEW}, updates=True, linear_thread=True),
    "registers, tracked": helpers({Kind.F16: F16}, {FLOATS: (16, 32)}, register_kinds={Kind.F16}, tracked=True),
}


def uses(made: Helpers) -> Iterator[str]:
    """Statements that call all that there is."""
    element = type_constant("Operand", next(iter(made.operands))[1])
    flags = ", false, false, false, false, true" if made.saturate else ""
    count = 2 if made.joined else 3
    thread = "tcgen05::thread_index()" if made.joined and not made.permuted else "threadIdx.x"
    yield f"__shared__ tcgen05::Shared<{count}> shared;"
    yield f"const tcgen05::Tmem<96, {count}> tmem(shared);"
    yield f"tcgen05::Warpgroup tc = tmem.warpgroup({thread} / 128);"
    yield "tcgen05::Accumulator d{tc.tmem}, several[2];"
    if made.permuted:
        yield "out = tcgen05::rows_of_a<128>(out, 1);"
    if made.stacked:
        yield "tc.place(several, 0, 32); *out++ = tcgen05::tile_row(1) + tcgen05::tile_row(steps);"
    elif made.tile_arrays or made.tracked:
        yield "tc.place(d, 0, 32); tc.place(several, 32, 32);"
    if made.count_type:
        yield "tcgen05::Tile<8> counted; counted.clear();"
    if made.class_tiles:
        yield "tcgen05::TileOf<float[8]> of_class; tc.place(of_class, 64, 32);"
    if made.uses_clear:
        yield "d.clear();" + (" tcgen05::clear(several);" if made.tile_arrays else "")
    yield "tcgen05::sync_warpgroup();"
    if made.releases:
        yield "struct Barrier { uint64_t bits; __device__ uint64_t arrive() { return bits; } };"
        yield "__shared__ Barrier object; tcgen05::release(object);"
        yield "__shared__ uint64_t empty; tcgen05::release(&empty);"
    if made.shares:
        yield "tc.release(&empty, 0x3); tc.release(empty, 0x3);"
        yield "tc.drain(&empty, 1);" if made.called_empty else "tc.drain();"
    yield f"constexpr uint32_t idesc = tcgen05::instruction_descriptor(1, tcgen05::{element}, 1, 64{flags});"
    yield from (f"tcgen05::mma_{kind.value}(d, a, b, idesc);" for kind in made.kinds)
    yield from (f"tcgen05::mma_{kind.value}(tc, d, 1, 2, 3, 4, b, idesc, false);" for kind in made.register_kinds)
    if made.own_thread:
        tiles = "several" if made.tile_arrays else "d"
        yield "if (tcgen05::elect_mma_thread()) { tcgen05::Warpgroup own = tmem.mma_thread();"
        yield f"own.begin({tiles}); own.end({tiles}); }}"
        yield f"tc.take({tiles}); tc.give_back();"
    else:
        yield "tc.commit(); tc.wait(0);"
    if made.tiles:
        yield "tcgen05::Tiles tiles = tmem.tiles();"
        yield "while (tiles.next()) { tiles.ask(); *out++ = tiles.index.x + tiles.index.y + tiles.index.z;"
        yield "tcgen05::end_tile(); }" if made.tile_meets else "}"
    if made.raster_numbers:
        yield "*out++ = tcgen05::tile_quotient(steps, 3, gridDim.x) + tcgen05::tile_remainder(steps, 3, gridDim.x);"
    if made.raster_grid:
        yield "*out++ = tcgen05::block_index().x;"
    if made.paired:
        yield "tcgen05::PairLoads loads; loads.expect(&empty, &empty, 16); loads.drain();"
        yield "tcgen05::wait_of_pair(&empty, tcgen05::pair_index() + tcgen05::pair_count() & 1);"
        yield "tcgen05::load_of_pair(&empty, out, &empty, tcgen05::pair_rank(), tcgen05::half_of(steps, 128));"
    for (constraint, packed), mirror in made.mirrors.items():
        called = [name for name, there in (("load", mirror.loads), ("store", mirror.stores)) if there]
        called += ["to_registers", "to_tensor_memory"] if mirror.tracks else []
        each = {"load": mirror.scalar_loads, "store": mirror.scalar_stores}
        for size in sorted(mirror.sizes):
            name, count = f"r{constraint}{int(packed)}{size}", size // (4 if packed else 2)
            yield f"{'float' if constraint == 'f' else 'uint32_t'} {name}[{count}], {name}s[2][{count}];"
            yield f"for (int i = 0; i < {count}; ++i) {name}[i] = {name}s[0][i] = {name}s[1][i] = i * steps;"
            registers = ", ".join(f"{name}[{i}]" for i in range(count))
            for call in called:
                tile_first = f"tcgen05::{call}{mirror.suffix}_each(d, {registers});"
                yield f"tcgen05::{call}{mirror.suffix}({name}, d);"
                if made.tile_arrays:
                    yield f"tcgen05::{call}{mirror.suffix}({name}s, several);"
                if each.get(call, mirror.scalar_tracks):
                    yield tile_first
            if mirror.updates:
                yield f"tcgen05::update{mirror.suffix}({name}, d, [&](int i) {{ {name}[i] += i * steps; }});"
            yield f"for (int i = 0; i < {count}; ++i) *out++ = {name}[i] + {name}s[1][i];"


def program() -> str:
    """Every combination in a namespace of its own, with a kernel that uses all of it."""
    parts = ["#include <cstdint>\n"]
    for number, made in enumerate(COMBINATIONS.values()):
        body = "\n    ".join(uses(made))
        head = "__global__ void __launch_bounds__(384) kernel(float* out, uint64_t a, uint64_t b, int steps)"
        parts.append(f"namespace combination{number} {{\n{made.text()}\n{head} {{\n    {body}\n}}\n}}\n")
    return "\n".join(parts)


def test_every_section_compiles(tmp_path: Path) -> None:
    (tmp_path / "all.cu").write_text(program())
    ptx = compile_ptx(CompileRequest(tmp_path / "all.cu", PORT_ARCH, lineinfo=False, assemble=True)).ptx
    assert ptx.count(".entry ") == len(COMBINATIONS)
    kinds = [
        f"tcgen05.mma.cta_group::{2 if made.paired else 1}.kind::{k.value} "
        for made in COMBINATIONS.values()
        for k in made.kinds
    ]
    accesses = [f"{op}.sync.aligned.16x256b.x{n}.b32 " for op in ("ld", "st") for n in (1, 2, 4, 8)]
    accesses += [f"ld.sync.aligned.16x128b.x{n}.pack::16b.b32 " for n in (1, 2, 4, 8, 16)]
    accesses += [f"st.sync.aligned.16x128b.x{n}.unpack::16b.b32 " for n in (1, 2, 4, 8, 16)]
    assert not [text for text in [*kinds, *(f"tcgen05.{a}" for a in accesses)] if text not in ptx]


def blocks(block: Block) -> Iterator[Block]:
    yield block
    for line in [*block.lines, *block.otherwise]:
        if isinstance(line, Block):
            yield from blocks(line)


@pytest.mark.parametrize("file", ["tcgen05.cuh", "mirror.cuh"])
def test_the_combinations_have_every_block_with_and_without_it(file: str) -> None:
    placed = [{"file": False, "integers": False}, {"file": True, "integers": False}, {"file": False, "integers": True}]
    given: list[dict[str, Any]] = [{**made.values(), **p} for made in COMBINATIONS.values() for p in placed]
    if file == "mirror.cuh":
        given = [{**made.values(), **m.values()} for made in COMBINATIONS.values() for m in made.mirrors.values()]
    for name, section in sections(file).items():
        for block in blocks(section):
            if block.how == "if":
                alone = Block("if", block.what, ["x"], ["y"])  # type: ignore[list-item]
                assert {bool(alone.holds(values)) for values in given} == {True, False}, (name, block.what)
            elif block.how == "for":
                assert any(values[block.what] for values in given), (name, block.what)


BROKEN = {
    "//@ section one\n//@ section one\n": 2,
    "//@ section one when two\n": 1,
    "//@ section one\n//@ if two\n//@ section three\n": 3,
    "//@ section one\n//@ end\n": 2,
    "//@ section one\n//@ fi\n": 2,
    "//@ section one\n//@ else\n": 2,
    "text\n": 1,
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_mark_that_does_not_fit_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=f"^file.cuh:{BROKEN[text]}: "):
        parsed(text, "file.cuh")


def test_a_block_without_an_end_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^file\.cuh: the last block"):
        parsed("//@ section one\n//@ if two\nx\n", "file.cuh")


def written(text: str, **values: Any) -> str:
    return "".join(part for block in parsed(text, "file.cuh").values() for part in block.written(values))


def test_conditions_lists_and_values() -> None:
    condition = "//@ section one\n//@ if not a and b or c\nyes\n//@ else\nno\n//@ end\n"
    given = ((0, 1, 0, "yes\n"), (1, 1, 0, "no\n"), (1, 0, 1, "yes\n"))
    assert [written(condition, a=a, b=b, c=c) for a, b, c, _ in given] == [text for *_, text in given]
    with pytest.raises(KeyError):
        written(condition, a=1, b=1)
    text = "//@ section one for these\n//@ if loud\n${word}_$end\n//@ end\n//@ section two if not loud\nquiet\n"
    assert written(text, loud=True, end="!", these=[{"word": "a"}, {"word": "b"}]) == "a_!\nb_!\n"
    assert written(text, loud=False, end="!", these=[]) == "quiet\n"


CPLUSPLUS = re.compile(
    r"__shared__|__forceinline__ |__trap\(\)|__builtin_unreachable|\[&\] ?\{|asm volatile"
    r"|porter::\w|decltype\(\w*$|constexpr \w+ \w|template <|struct \w"
)


def test_passes_hold_no_lines_of_kernels() -> None:
    """What stands among the lines of a kernel is a section of a file."""
    found = []
    for path in sorted(PASSES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if path.name != "rule_examples.py" and CPLUSPLUS.search(text):
                found.append(f"{path.name}:{node.lineno}: {text.strip()[:60]}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("file", "callers"),
    [
        ("kernel.cuh", ["**/*.py"]),
        ("tiled.cuh", ["tiled/*.py", "native/tiled_*.py"]),
        ("cutlass_lines.hpp", ["builders.py"]),
    ],
    ids=["kernel.cuh", "tiled.cuh", "cutlass_lines.hpp"],
)
def test_every_section_is_written_by_a_pass(file: str, callers: list[str]) -> None:
    asked = re.compile(r'(?:\blines|cpp|partial\(_cpp,|cpp\(.* else) ?\(?\s*"(\w+)"(?: if \w+ else "(\w+)")?')
    texts = [path.read_text("utf-8") for pattern in callers for path in PASSES.glob(pattern)]
    written = {name for text in texts for found in asked.findall(text.replace("'", '"')) for name in found if name}
    assert set(sections(file)) <= written
