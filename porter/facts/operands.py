# SPDX-License-Identifier: Apache-2.0
"""Operands as functions of an execution's state."""

from __future__ import annotations

from collections.abc import Callable

from porter.facts import floats
from porter.facts.code import Code
from porter.facts.events import NotUnderstood
from porter.facts.machine import Machine
from porter.facts.state import Group, Warp
from porter.facts.values import Value, shifted, squeezed
from porter.ptx import ast
from porter.ptx.arch import WARP
from porter.ptx.bits import unsigned

OF_GRID = frozenset(("ctaid", "nctaid", "clusterid", "nclusterid"))
"""Special registers, by axis, that follow the grid and the index of the block."""
Reader = Callable[["Machine", Warp, Group], Value]


def reader(code: Code, at: int, operand: ast.Operand) -> Reader:
    """What gives the value of an operand of the instruction at `at`; of a memory operand its address.

    Raises:
        NotUnderstood: it is of a kind that has no value.
    """
    match operand:
        case ast.Imm(value, is_float=False):
            number = unsigned(int(value), 64)
            return lambda machine, warp, group: number
        case ast.Imm(value):
            pattern = floats.bits_of(float(value), code.code[at].parts[-1])
            return lambda machine, warp, group: pattern
        case ast.Reg(name):
            register = code.renamed(at, name)
            return lambda machine, warp, group: group.registers.get(register)
        case ast.SpecialReg(name):
            return _special(name)
        case ast.Neg(_, inner):
            return _negated(reader(code, at, inner))
        case ast.Sym(name, offset):
            return _symbol(name, offset)
        case ast.Mem(base, offset):
            of_base = reader(code, at, base)
            return (
                of_base if not offset else lambda machine, warp, group: shifted(of_base(machine, warp, group), offset)
            )
    raise NotUnderstood(f"an operand {operand}", at)


def _negated(inner: Reader) -> Reader:
    """Of a predicate."""

    def value(machine: Machine, warp: Warp, group: Group) -> Value:
        found = inner(machine, warp, group)
        if isinstance(found, tuple):
            return tuple(None if v is None else v & 1 ^ 1 for v in found)
        return None if found is None else found & 1 ^ 1

    return value


def _symbol(name: str, offset: int) -> Reader:
    def value(machine: Machine, warp: Warp, group: Group) -> Value:
        launched = machine.launched
        if name in launched.shared_offsets:
            return warp.block.base + launched.shared_offsets[name] + offset
        if name in launched.local_addresses:
            return launched.local_addresses[name] + offset
        if name in launched.parameter_addresses:
            return launched.parameter_addresses[name] + offset
        address = launched.variable_addresses.get(name)
        return None if address is None else address + offset

    return value


def _special(name: str) -> Reader:
    if name.startswith("tid."):
        axis = "xyz".index(name[-1])
        return lambda machine, warp, group: squeezed(_thread(machine, warp)[axis], group.lanes)
    if name == "laneid":
        return lambda machine, warp, group: squeezed(tuple(range(WARP)), group.lanes)
    if name == "warpid":
        return lambda machine, warp, group: warp.number
    if name == "dynamic_smem_size":
        return lambda machine, warp, group: machine.launched.geometry.dynamic_smem
    if name == "is_explicit_cluster":
        return lambda machine, warp, group: int(machine.launched.geometry.ranks > 1)
    return lambda machine, warp, group: _of_block(name, machine, warp)


def _thread(machine: Machine, warp: Warp) -> tuple[tuple[int, ...], ...]:
    """Index of the thread by axis, for each lane."""
    wide, high, _ = machine.launched.geometry.block
    ranks = [warp.number * WARP + lane for lane in range(WARP)]
    return (
        tuple(r % wide for r in ranks), tuple(r // wide % high for r in ranks), tuple(r // wide // high for r in ranks)
    )  # fmt: skip


def _of_block(name: str, machine: Machine, warp: Warp) -> int | None:
    geometry, block = machine.launched.geometry, warp.block
    if name == "cluster_ctarank":
        return block.rank
    if name == "cluster_nctarank":
        return geometry.ranks
    if not name.endswith((".x", ".y", ".z")):
        return None
    axis = "xyz".index(name[-1])
    cluster = geometry.cluster
    if name[:-2] in OF_GRID and (symbols := machine.launched.symbols) is not None and name[-1] in symbols.axes:
        return None
    inside = (block.rank % cluster[0], block.rank // cluster[0] % cluster[1], block.rank // cluster[0] // cluster[1])
    match name[:-2]:
        case "ntid":
            return geometry.block[axis]
        case "ctaid":
            return block.coordinates[axis]
        case "nctaid":
            return geometry.grid[axis]
        case "cluster_ctaid":
            return inside[axis]
        case "cluster_nctaid":
            return cluster[axis]
        case "clusterid":
            return block.coordinates[axis] // cluster[axis]
        case "nclusterid":
            return geometry.grid[axis] // cluster[axis]
    return None
