# SPDX-License-Identifier: Apache-2.0
"""Sums that are added to others in registers, which the epilogue stores tile by tile: both are held as the load of one
tile of the epilogue after the other gives them. Warpgroups share the columns of each such tile, of which each has all
rows, so that all still store to one buffer at a time.

CUTLASS: python/CuTeDSL/cutlass/utils/blackwell_helpers.py, get_tmem_load_op, get_smem_store_op.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from porter.passes.idiom_dsl import epilogue
from porter.passes.idiom_dsl.epilogue import ByTiles
from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.mma import warpgroups_said
from porter.passes.idiom_dsl.registers import alike, partitions, rename
from porter.passes.idiom_dsl.text import Draft, Left, Statement, assigned, found_in, method, one, operand
from porter.passes.idiom_dsl.words import Words
from porter.ptx.wgmma import THREADS

RULE = "PTR586"


@dataclass(frozen=True)
class Promoted:
    """`tiles`: how the registers are copied that sums are added to, which are one of `alike`; `partitions`: calls that
    say which element of C is in which register; `number` of the `warpgroups`, as the kernel says it."""

    tiles: ByTiles
    alike: tuple[cst.Call, ...]
    partitions: tuple[cst.Call, ...]
    warpgroups: int
    number: str

    @property
    def tile(self) -> str:
        return self.tiles.tile

    @property
    def slice(self) -> str:
        return self.tiles.slice


def promoted(kernel: Kernel) -> Promoted:
    """Raises Left: no registers beside the accumulator are stored tile by tile, or they are not followed."""
    text, others = kernel.text, tuple(alike(kernel))
    named = {a[0]: c for c in others if (a := assigned(text.statement(c))) is not None and a[1] is c}
    stored = [n for n in named if _is_retiled(kernel, n)]
    if len(stored) != 1 or len(named) != len(others):
        raise Left(f"registers like the accumulator that are stored: {', '.join(stored) or 'none'}")
    tiles = epilogue.by_tiles(kernel, stored[0])
    warpgroups, number = warpgroups_said(kernel)
    threads, parts = partitions(kernel)
    if threads - {tiles.slice}:
        raise Left("a thread that holds other elements of C than it stores", tiles.atom)
    atom = text.statement(tiles.atom)
    for node in found_in(kernel.function, cst.Name):
        is_used = node.value in named or (node.value in kernel.aliases and node in kernel.uses(kernel.aliases))
        if not is_used or any(text.span(text.statement(c)).contains(text.span(node)) for c in others):
            continue
        if text.span(node).start < text.span(atom).start or text.in_block(node, text.block(atom)) is None:
            raise Left(f"`{node.value}` that is used ahead of what says who stores it", node)
    return Promoted(tiles, others, parts, warpgroups, number)


def _is_retiled(kernel: Kernel, name: str) -> bool:
    return any(epilogue.method_arg(kernel, c, "retile") == name for c in found_in(kernel.function, cst.Call))


def edit(kernel: Kernel, how: Promoted, draft: Draft, words: Words) -> None:
    text, tiles = kernel.text, how.tiles
    atom, thread = text.statement(tiles.atom), operand(tiles.slice)
    words.update(epilogue.values(tiles))
    words["shared"] = f" // {how.number}" if how.number != "1" else ""
    words["team"] = f"{thread} // {THREADS}"
    words["slice"] = f"{thread} % {THREADS}" if words["shared"] else tiles.slice
    if not words["shared"]:
        words["part"] = tiles.tile
    words["tile_sums"] = _parts(words, f"{words['acc']}[((None, None), 0, 0)]")
    words["tile_places"] = _parts(words, f"{words['cute']}.make_identity_tensor({words['mma']}.shape_mnk[:2])")
    draft.above(RULE, atom, "\n".join([words.text("part_load"), *_moved(kernel, how, draft, words)]))
    epilogue.store_as_loaded(kernel, tiles, draft, words)
    draft.remove(RULE, tiles.retiled)
    stored = epilogue.method_arg(kernel, epilogue.value_of(tiles.retiled), "retile")
    held = f"{stored}[(None, None, None, 0, {tiles.index})]"
    held = f"{tiles.store_name}.retile({held})"
    new = f"{tiles.fragment} = {held}" if tiles.is_view else f"{tiles.fragment}.store({held}.load())"
    draft.instead(RULE, tiles.copy, new)
    for call in how.partitions:
        margin = text.margin(text.statement(call))
        part = _parts(words, text.code(call.args[0].value))
        new = f"{words['thread']}.partition_D(\n{margin}    {part}\n{margin})"
        draft.replace(RULE, call, new, [call.args[0]])
    if words["shared"]:
        _in_shares(kernel, how, draft, words)
    rename(kernel, draft, words)


def _parts(words: Words, tensor: str) -> str:
    """A thread's warpgroup's part of each epilogue tile of a tensor of the block's rows and columns."""
    tiles = f"{words['cute']}.flat_divide({tensor}, {words['tile']})"
    if not words["shared"]:
        return tiles
    return f"{words['cute']}.flat_divide({tiles}, {words['part']})[{words['place']}]"


def _moved(kernel: Kernel, how: Promoted, draft: Draft, words: Words) -> list[str]:
    """Statements that make registers as the load has them, behind it."""
    text, lines = kernel.text, list[str]()
    for call in how.alike:
        statement, shape = text.statement(call), one(list(call.args[:1]), "shapes of registers").value
        new = f"{words['registers']}.shape"
        if text.span(statement).start > text.span(how.tiles.atom).start:
            draft.replace(RULE, shape, new)
            continue
        whole, inner = text.span(statement), text.span(shape)
        code = text.source
        lines.append((code[whole.start : inner.start] + new.encode() + code[inner.end : whole.end]).decode())
        draft.remove(RULE, statement)
    return lines


def _in_shares(kernel: Kernel, how: Promoted, draft: Draft, words: Words) -> None:
    """A thread's slice of the copy to shared memory is one of its warpgroup's part of a buffer."""
    text, made, places = kernel.text, set[str](), list[Statement]()
    for call in found_in(kernel.function, cst.Call):
        if method(call, "get_slice") == how.tiles.store_name:
            draft.replace(RULE, call.args[0].value, words["slice"])
            bound = assigned(text.statement(call))
            if bound is None or bound[1] is not call:
                raise Left("a thread's part of the copy to shared memory without a name", call)
            made.add(bound[0])
            places.append(text.statement(call))
    buffers = [c for c in found_in(kernel.function, cst.Call) if method(c, "partition_S", "partition_D") in made]
    names = {text.code(c.args[0].value) for c in buffers if c.args}
    if len(names) != 1 or not next(iter(names)).isidentifier() or len(places) != 1:
        raise Left("a copy to several buffers in shared memory, or to one without a name", how.tiles.store)
    buffer = names.pop()
    draft.below(RULE, places[0], words.text("part_buffer", buffer=buffer, share=kernel.fresh(f"{buffer}_part")))
    for call in buffers:
        draft.replace(RULE, call.args[0].value, words["share"])
