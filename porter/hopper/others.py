# SPDX-License-Identifier: Apache-2.0
"""Instructions outside tcgen05 that Hopper lacks: 256-bit accesses, minima and maxima of three values, redux of
floats, cluster launch control.

Sources: PTX ISA 9.0 §9.7.3.11 and §9.7.3.12 (min and max of three values), §9.7.9.8 and §9.7.9.11 (256-bit ld and st),
§9.7.13.10 (redux.sync), §9.7.13.16 (clusterlaunchcontrol).
"""

from __future__ import annotations

from porter.hopper.emit import Sequel, instruction
from porter.ptx.ast import Imm, Instruction, Mem, Operand, Reg, Vec

_NARROW = frozenset({"b32", "u32", "s32", "f32"})
_WIDE = frozenset({"b64", "u64", "s64", "f64"})

REDUX_MAX, REDUX_ABS, REDUX_NAN = 1, 2, 4
"""Bits of the `how` of `porter_redux`."""


def is_wide_access(found: Instruction) -> bool:
    """Whether it is an ld or st of 256 bits."""
    if found.parts[0] not in ("ld", "st"):
        return False
    kind = found.parts[-1]
    return ("v8" in found.parts and kind in _NARROW) or ("v4" in found.parts and kind in _WIDE)


def wide_access(found: Instruction, sequel: Sequel) -> None:
    """Append two accesses of 128 bits."""
    half = "v4" if "v8" in found.parts else "v2"
    opcode = ".".join(half if p in ("v8", "v4") else p for p in found.parts)
    load = found.parts[0] == "ld"
    first, second, *rest = found.operands
    values, memory = (first, second) if load else (second, first)
    assert isinstance(memory, Mem)
    assert isinstance(values, Vec)
    # The first half of a load may overwrite the address.
    base = sequel.temporary("b64")
    sequel.add("mov.b64", base, memory.base)
    count = len(values.items) // 2
    for side in range(2):
        part = Vec(values.items[side * count : (side + 1) * count])
        place = Mem(base, memory.offset + 16 * side)
        operands: tuple[Operand, ...] = (part, place, *rest) if load else (place, part, *rest)
        sequel.body.append(instruction(opcode, *operands))


def is_of_three(found: Instruction) -> bool:
    """Whether it is a min or max of three floats."""
    return found.parts[0] in ("min", "max") and len(found.operands) == 4


def of_three(found: Instruction, sequel: Sequel) -> None:
    """Append the extremum of two, and of that and the third."""
    to, *values = found.operands
    if "abs" in found.parts:
        # Of two values there is `.abs` only with `.xorsign`.
        magnitudes = [sequel.temporary("b32") for _ in values]
        for magnitude, value in zip(magnitudes, values, strict=True):
            sequel.add("abs.f32", magnitude, value)
        values = list(magnitudes)
    opcode = ".".join(p for p in found.parts if p != "abs")
    of_two = sequel.temporary("b32")
    sequel.add(opcode, of_two, values[0], values[1])
    sequel.add(opcode, to, of_two, values[2])


def redux(found: Instruction, sequel: Sequel) -> None:
    """Append a call that reduces over the lanes of the mask."""
    how = REDUX_MAX if "max" in found.parts else 0
    how |= REDUX_ABS if "abs" in found.parts else 0
    how |= REDUX_NAN if "NaN" in found.parts else 0
    to, value, mask = found.operands
    arguments = [("b32", sequel.value(value, "b32")), ("b32", sequel.value(mask, "b32")), ("b32", Imm(how))]
    result = sequel.call("porter_redux", arguments, "b32")
    assert result is not None
    sequel.add("mov.b32", to, result)


def cancel(found: Instruction, sequel: Sequel) -> None:
    """Append what stands for cluster launch control on a GPU that launches every cluster itself: each request is
    answered that there is nothing to cancel."""
    if found.parts[1] == "try_cancel":
        shared = any(p.startswith("shared") for p in found.parts)
        place, barrier = (sequel.shared_address(o, shared, 32 if shared else 64) for o in found.operands)
        everywhere = Imm(int("multicast::cluster::all" in found.parts))
        sequel.call("porter_no_cancel", [("b32", place), ("b32", barrier), ("b32", everywhere)])
    elif "is_canceled" in found.parts:
        zero = sequel.temporary("b32")
        sequel.add("mov.u32", zero, Imm(0))
        sequel.add("setp.ne.u32", found.operands[0], zero, Imm(0))
    else:
        to = found.operands[0]
        for item in to.items if isinstance(to, Vec) else (to,):
            if isinstance(item, Reg) and item.name != "_":
                sequel.add("mov.u32", item, Imm(0))
