# SPDX-License-Identifier: Apache-2.0
"""multimem: one address for memory of several devices (PTX ISA 8.2.3, 9.7.9.14).

All that it stands for is memory of this machine. What the ISA leaves open, the order of a reduction, is that of the
places.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.table import Decoded, items
from porter.sim.codegen import Context, emits, runtime
from porter.sim.exec_atomic import AtomicForm, atomic
from porter.sim.exec_memory import shape_of
from porter.sim.global_access import ld_global, st_global
from porter.sim.machine import Machine
from porter.sim.memory import Multicast
from porter.sim.reduction import combine
from porter.sim.results import Stop
from porter.sim.rounding import bf16_to_f32, f32_to_bf16

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class MultimemForm:
    """`count` elements of `item` bytes and type `type_name`, reduced by `op`; `wide`: sums of 16-bit floats are kept in
    f32."""

    op: str
    type_name: str
    item: int
    count: int
    wide: bool = False


def _places(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any) -> list[Array]:
    """The address of every thread [n, 32] in each of the places that its multimem address stands for."""
    lanes = np.broadcast_to(True if mask is None else mask, (n, 32))
    full = np.broadcast_to(np.asarray(addr, np.uint64), (n, 32))
    found: Multicast | None = None
    for row, lane in np.argwhere(lanes).tolist():
        address = int(full[row, lane])
        if found is not None and found.start <= address < found.end:
            continue
        where = int(M.warps(idx)[row]), lane
        other = M.memory.find_multicast(address)
        if other is None:
            raise Stop(Code.SIM_OUT_OF_BOUNDS, f"{address:#x} is no multimem address", at, *where)
        if found is not None:
            what = "one instruction on several multimem objects"
            raise Stop(Code.SIM_UNKNOWN_INSTRUCTION, what, at, *where)
        found = other
    if found is None:
        return []
    return [full - np.uint64(found.start) + np.uint64(target) for target in found.targets]


@runtime
def multimem_load(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, form: MultimemForm) -> Array:
    """The reduction [n, 32, count] of what all the places hold, as unsigned bits."""
    places = _places(M, at, idx, n, mask, addr)
    shape = (n, 32, form.count)
    if not places:
        return np.zeros(shape, f"u{form.item}")
    held = []
    for a in places:
        values = ld_global(M, at, idx, n, mask, a, form.item, form.count)
        values = np.broadcast_to(values.reshape(*values.shape[:2], form.count), shape)
        held.append(np.ascontiguousarray(values))
    if form.wide:
        total = reduce(np.add, [_halves(x, form.type_name) for x in held])
        rounded = total.astype(np.float16).view(np.uint16) if form.type_name == "f16x2" else f32_to_bf16(total)
        return np.ascontiguousarray(rounded).view(np.uint32)
    return reduce(lambda x, y: combine(x, y, None, form.op, form.type_name), held)


def _halves(words: Array, type_name: str) -> Array:
    """Pairs of 16-bit floats as f32, twice as many along the last axis."""
    bits = words.view(np.uint16)
    return bits.view(np.float16).astype(np.float32) if type_name == "f16x2" else bf16_to_f32(bits)


@runtime
def multimem_store(M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, form: MultimemForm, value: Any) -> None:
    for a in _places(M, at, idx, n, mask, addr):
        st_global(M, at, idx, n, mask, a, form.item, form.count, value)


@runtime
def multimem_reduce(
    M: Machine, at: int, idx: Any, n: int, mask: Any, addr: Any, form: MultimemForm, values: tuple[Any, ...]
) -> None:
    one = AtomicForm("global", form.op, form.type_name, form.item)
    for a in _places(M, at, idx, n, mask, addr):
        for i, value in enumerate(values):
            atomic(M, at, idx, n, mask, a + np.uint64(i * form.item), one, value, None)


def _form(cg: Context, ins: Decoded, name: str) -> tuple[str, str, MultimemForm]:
    """(address, kind, form)"""
    kind, item, count = shape_of(ins, name)
    form = MultimemForm(ins.modifiers.get("op", ""), ins.type(name), item, count, "acc_f32" in ins.modifiers)
    return cg.addr(ins["a"], "u64"), kind, form


@emits("multimem.ld_reduce")
def _load(cg: Context, ins: Decoded) -> None:
    address, kind, form = _form(cg, ins, "d")
    value = cg.let(cg.call("multimem_load", address, cg.constant("form", form)))
    view = "" if kind[0] == "u" else f".view(t_{kind})"
    for i, one in enumerate(items(ins["d"])):
        if one != ast.Sym("_"):
            cg.set(one, kind, f"{value}[..., {i}]{view}")


@emits("multimem.st")
def _store(cg: Context, ins: Decoded) -> None:
    address, kind, form = _form(cg, ins, "b")
    value = ", ".join(cg.bits(source, kind.replace("s", "u")) for source in items(ins["b"]))
    if form.count > 1:
        value = f"stack_values(n, {value})"
    cg.line(cg.call("multimem_store", address, cg.constant("form", form), value))


@emits("multimem.red")
def _reduce(cg: Context, ins: Decoded) -> None:
    address, kind, form = _form(cg, ins, "b")
    values = "".join(f"{cg.bits(source, kind.replace('s', 'u'))}, " for source in items(ins["b"]))
    cg.line(cg.call("multimem_reduce", address, cg.constant("form", form), f"({values})"))
