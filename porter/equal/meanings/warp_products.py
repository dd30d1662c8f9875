# SPDX-License-Identifier: Apache-2.0
"""What a warp makes of matrices in its registers: mma.sync (PTX ISA 9.7.14.5, 9.7.14.6), and movmatrix."""

from __future__ import annotations

import numpy as np

from porter.equal.contents import Contents, Taken
from porter.equal.meaning import Means, Then, meaning, read, refused, require_together
from porter.equal.rows import Read
from porter.equal.words import Words, joined, mixed, spread, word
from porter.facts.instructions.registry import Step
from porter.facts.state import Group, Warp
from porter.facts.values import ALL
from porter.ptx import table
from porter.ptx.arch import WARP
from porter.ptx.matrix_rows import ROWS, Indices, element_places
from porter.ptx.mma import MmaOp, N, a_position, b_position, d_position

_LANE: Indices = np.arange(WARP)[:, None]
_FIRST: Indices = np.zeros((1, 1), np.int64)


@meaning("mma")
def mma(step: Step) -> Means:
    try:
        op = MmaOp.of(step.ins.modifiers)
    except ValueError as error:
        return refused(step, str(error))
    given = {name: _registers(step, name, op.register_bits // 8) for name in "ab"}
    c = _registers(step, "c", op.register_bits // 8)
    more = [read(step, step.ins[name], 4) for name in "ef"] if op.sparse else []
    names, key = step.registers("d"), word(".".join(step.ins.parts))
    size = op.d_type.bits // 8

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        _require_all(step, taken)
        a, b = (np.stack([r(contents, warp, group) for r in given[name]], axis=1) for name in "ab")
        old = np.concatenate([r(contents, warp, group) for r in c], axis=1).reshape(WARP, -1, size)
        of_rows, of_columns = _matrix_rows(op, a), _matrix_columns(op, b)
        if more:
            # which threads have the metadata is a matter of the selector: here they are those of all
            of_rows = mixed(of_rows, joined(joined(np.concatenate([r(contents, warp, group) for r in more], axis=1))))

        def then() -> None:
            rows, columns = d_position(_LANE, np.arange(old.shape[1])[None, :])
            found = spread(mixed(key, of_rows[rows], of_columns[columns], joined(old)), size).reshape(
                WARP, len(names), -1
            )
            for index, name in enumerate(names):
                if name is not None:
                    contents.put(warp, name, taken, found[:, index])

        return then

    return means


def _registers(step: Step, name: str, size: int) -> list[Read]:
    return [read(step, o, size) for o in table.items(step.ins[name])]


def _require_all(step: Step, taken: Taken) -> None:
    """Raises NotUnderstood: not all lanes take part, or data say which do."""
    if taken.mask != ALL:
        raise step.not_understood("lanes that come apart, which is not followed,")
    require_together(step, taken)


def _matrix_rows(op: MmaOp, registers: Words) -> Words:
    """The words of the rows of A, from registers [32, number, bytes]."""
    place = a_position(_LANE, np.arange(registers.shape[1])[None, :], _FIRST, op.a_type.bits, op.m)
    return _rows(op.m, place, op.a_type.bits, registers)


def _matrix_columns(op: MmaOp, registers: Words) -> Words:
    place = b_position(_LANE, np.arange(registers.shape[1])[None, :], _FIRST, op.b_type.bits)
    return _rows(N, place, op.b_type.bits, registers)


def _rows(count: int, place: tuple[Indices, Indices], bits: int, registers: Words) -> Words:
    """The words of rows of which registers have some bytes; `place`: the row, and the element that they begin with."""
    whole = np.zeros((count, registers.size // count), np.uint64)
    row, k = np.broadcast_arrays(*place)
    first = k * bits // 8
    whole[row[..., None], first[..., None] + np.arange(registers.shape[2])] = registers
    return joined(whole)


@meaning("movmatrix")
def movmatrix(step: Step) -> Means:
    data, name = read(step, step.ins["a"], 4), step.register("d")
    row, column = element_places(False)
    other_row, other_column = element_places(True)

    def means(contents: Contents, warp: Warp, group: Group, taken: Taken) -> Then:
        _require_all(step, taken)
        matrix = np.zeros((ROWS, ROWS, 2), np.uint64)
        matrix[row, column] = data(contents, warp, group).reshape(WARP, 2, 2)
        found = matrix[other_row, other_column].reshape(WARP, 4)

        def then() -> None:
            if name is not None:
                contents.put(warp, name, taken, found)

        return then

    return means
