# SPDX-License-Identifier: Apache-2.0
"""What each tcgen05 instruction becomes: a call of the library, and for transfers plain loads and stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from porter.hopper.emit import Sequel
from porter.ptx.ast import Imm, Instruction, Mem, Operand, Reg
from porter.ptx.block_scale import scale_count
from porter.ptx.packing import SOURCE_BITS
from porter.ptx.table import Decoded, decode, items
from porter.ptx.tmem import COLUMNS
from porter.ptx.tmem_access import Shape, TmemAccess, cell, unpacked_columns
from porter.ptx.tmem_copy import TmemCopy
from porter.ptx.umma import Kind, UmmaOp

Bits = Callable[[Reg], int]


@dataclass(frozen=True)
class Setting:
    """What the lowering of an instruction depends on besides itself: `bits` gives the width of a register;
    `pair` says that CTAs of the module work in pairs, so that other SMs write Tensor Memory too."""

    bits: Bits
    pair: bool

    @property
    def scope(self) -> str:
        return "gpu" if self.pair else "cta"


KINDS = {
    Kind.F16: 0, Kind.TF32: 1, Kind.F8F6F4: 2, Kind.I8: 3, Kind.MXF8F6F4: 4, Kind.MXF4: 5, Kind.MXF4NVF4: 6,
}  # fmt: skip
SHAPES = {
    Shape.S32X32B: 0, Shape.S16X64B: 1, Shape.S16X128B: 2, Shape.S16X256B: 3, Shape.S16X32BX2: 4,
}  # fmt: skip
"""Numbers of `enum Kind` and `enum Shape` of the device code."""

PAIR = 1 << 4
WS = 1 << 5
TMEM_A = 1 << 6
SPARSE = 1 << 7
SHIFT_AT = 8
FACTORS_AT = 12
"""Bits of the `flags` of `porter_mma`: .cta_group::2, .ws, A in Tensor Memory, .sp, and where scale-input-d and the
number of scale factors along K stand."""

_EVERYWHERE = 0xFFFFFFFF


class NotEmulated(Exception):
    """A form of an instruction that the library has no function for."""


def lower(found: Instruction, sequel: Sequel, site: Imm, setting: Setting) -> None:
    """Append what takes the place of a tcgen05 instruction other than a fence or `wait::ld`.

    Raises:
        NotEmulated, UnknownInstruction, ValueError: names what is not emulated.
    """
    what = found.parts[1].partition("::")[0]
    if what not in _FORMS:
        raise NotEmulated(f"tcgen05.{found.parts[1]} is not emulated")
    _FORMS[what](decode(found, any_value=True), sequel, site, setting)


def _register_bits(memory: Operand, bits: Bits) -> int:
    base = memory.base if isinstance(memory, Mem) else memory
    # The name of a variable in shared memory stands for a 32-bit address.
    return bits(base) if isinstance(base, Reg) else 32


def _group(found: Decoded) -> tuple[str, Operand]:
    """The argument that says how many CTAs an instruction works on."""
    return "b32", Imm(int(found.modifiers["cta_group"][-1]))


def _shared_address(found: Decoded, name: str, sequel: Sequel, setting: Setting) -> Operand:
    width = _register_bits(found[name], setting.bits)
    return sequel.shared_address(found[name], bool(found.space(name)) or width == 32, width)


def _alloc(found: Decoded, sequel: Sequel, site: Imm, setting: Setting) -> None:
    address = _shared_address(found, "dst", sequel, setting)
    columns = sequel.value(found["columns"], "b32")
    sequel.call("porter_alloc", [("b32", address), ("b32", columns), _group(found), ("b32", site)])


def _dealloc(found: Decoded, sequel: Sequel, site: Imm, setting: Setting) -> None:
    values = [("b32", sequel.value(found[name], "b32")) for name in ("taddr", "columns")]
    sequel.call("porter_dealloc", [*values, _group(found), ("b32", site)])


def _relinquish(found: Decoded, sequel: Sequel, site: Imm, setting: Setting) -> None:
    sequel.call("porter_relinquish", [_group(found), ("b32", site)])


def _wait(found: Decoded, sequel: Sequel, site: Imm, setting: Setting) -> None:
    """`wait::st`: what was stored is there for every thread that synchronizes with this one."""
    sequel.add(f"fence.acq_rel.{setting.scope}")


def _cells(found: Decoded, access: TmemAccess, sequel: Sequel, site: Imm) -> Reg:
    split = found.get("split")
    arguments: list[tuple[str, Operand]] = [
        ("b32", sequel.address(found["taddr"], "b32")),
        ("b32", Imm(SHAPES[access.shape])),
        ("b32", Imm(int(access.packed))),
        ("b32", Imm(access.columns)),
        ("b32", split if isinstance(split, Imm) else Imm(0)),
        ("b32", site),
    ]
    base = sequel.call("porter_cells", arguments, "b64")
    assert base is not None
    return base


def _distance(access: TmemAccess, register: int) -> int:
    """Columns (and lanes times `COLUMNS`) from a thread's first cell to that of `register`."""
    lane, column = cell(access.shape, 0, register)
    if access.packed:
        column = unpacked_columns(column)[0]
    return int(lane) * COLUMNS + int(column)


def _load(found: Decoded, sequel: Sequel, site: Imm, setting: Setting) -> None:
    access = TmemAccess.of(found.modifiers)
    base = _cells(found, access, sequel, site)
    for i, register in enumerate(items(found["r"])):
        at = 4 * _distance(access, i)
        if not access.packed:
            sequel.add(f"ld.relaxed.{setting.scope}.global.b32", register, Mem(base, at))
            continue
        low, high = sequel.temporary("b32"), sequel.temporary("b32")
        sequel.add(f"ld.relaxed.{setting.scope}.global.b32", low, Mem(base, at))
        sequel.add(f"ld.relaxed.{setting.scope}.global.b32", high, Mem(base, at + 4))
        sequel.add("prmt.b32", register, low, high, Imm(0x5410))


def _store(found: Decoded, sequel: Sequel, site: Imm, setting: Setting) -> None:
    access = TmemAccess.of(found.modifiers)
    base = _cells(found, access, sequel, site)
    for i, register in enumerate(items(found["r"])):
        at = 4 * _distance(access, i)
        value = sequel.value(register, "b32")
        if not access.packed:
            sequel.add(f"st.relaxed.{setting.scope}.global.b32", Mem(base, at), value)
            continue
        for half, selector in enumerate((0x4410, 0x4432)):
            part = sequel.temporary("b32")
            # The upper half of the cell is open: a NaN shows who relies on it.
            sequel.add("prmt.b32", part, value, Imm(0xFFFFFFFF), Imm(selector))
            sequel.add(f"st.relaxed.{setting.scope}.global.b32", Mem(base, at + 4 * half), part)


def _mma(found: Decoded, sequel: Sequel, site: Imm, setting: Setting) -> None:
    op = UmmaOp.of(found.modifiers)
    if op.ashift:
        raise NotEmulated("tcgen05.mma with .ashift is not emulated")
    if "zero_column_mask" in found:
        raise NotEmulated("a zero-column mask is not emulated")
    a = found["a"]
    metadata = sequel.address(found["meta"], "b32") if op.sparse else Imm(0)
    scales: list[Operand] = [Imm(0), Imm(0)]
    if op.block_scale:
        scales = [sequel.address(found[name], "b32") for name in ("scale_a", "scale_b")]
    masks = items(found["disable_output_lane"]) if "disable_output_lane" in found else ()
    scale = found.get("scale_input_d")
    shift = scale.value if isinstance(scale, Imm) else 0
    flags = KINDS[op.kind] | int(shift) << SHIFT_AT
    if op.cta_group == 2:
        flags |= PAIR
    if op.ws:
        flags |= WS
    if op.sparse:
        flags |= SPARSE
    if op.block_scale:
        flags |= scale_count(op.kind, op.scale_vector) << FACTORS_AT
    if isinstance(a, Mem):
        flags |= TMEM_A
        narrow = sequel.address(a, "b32")
        a = sequel.temporary("b64")
        sequel.add("cvt.u64.u32", a, narrow)
    arguments: list[tuple[str, Operand]] = [
        ("b32", sequel.address(found["d"], "b32")),
        ("b64", sequel.value(a, "b64")),
        ("b64", sequel.value(found["b"], "b64")),
        ("b32", sequel.value(found["idesc"], "b32")),
        ("b32", sequel.predicate(found["enable_input_d"])),
        ("b32", Imm(flags)),
    ]
    extended = op.sparse or op.block_scale
    if extended:
        arguments += [("b32", metadata), *(("b32", s) for s in scales)]
    if masks or extended:
        masks = (*masks, *[Imm(0)] * (8 - len(masks)))
        arguments += [("b32", sequel.value(m, "b32")) for m in masks]
    name = "porter_mma_extended" if extended else "porter_mma_masked" if masks else "porter_mma"
    sequel.call(name, [*arguments, ("b32", site)])


def _commit(found: Decoded, sequel: Sequel, site: Imm, setting: Setting) -> None:
    address = _shared_address(found, "mbar", sequel, setting)
    mask: Operand = Imm(_EVERYWHERE)
    if "mask" in found:
        mask = sequel.temporary("b32")
        sequel.add("cvt.u32.u16", mask, found["mask"])
    sequel.call("porter_commit", [("b32", address), ("b32", mask), _group(found), ("b32", site)])


def _copy(found: Decoded, sequel: Sequel, site: Imm, setting: Setting) -> None:
    op = TmemCopy.of(found.modifiers)
    blocks = [first | rows << 8 | lane << 16 for first, rows, lane in op.blocks]
    blocks += [0] * (4 - len(blocks))
    arguments: list[tuple[str, Operand]] = [
        ("b32", sequel.address(found["taddr"], "b32")),
        ("b64", sequel.value(found["source_desc"], "b64")),
        ("b32", Imm(op.row_bytes // 4)),
        ("b32", Imm(SOURCE_BITS[op.source_format] if op.source_format else 32)),
        _group(found),
        *(("b32", Imm(block)) for block in blocks),
        ("b32", site),
    ]
    sequel.call("porter_copy", arguments)


def _shift(found: Decoded, sequel: Sequel, site: Imm, setting: Setting) -> None:
    arguments = [("b32", sequel.address(found["taddr"], "b32")), _group(found), ("b32", site)]
    sequel.call("porter_shift", arguments)


_FORMS: dict[str, Callable[[Decoded, Sequel, Imm, Setting], None]] = {
    "alloc": _alloc,
    "dealloc": _dealloc,
    "relinquish_alloc_permit": _relinquish,
    "wait": _wait,
    "ld": _load,
    "st": _store,
    "mma": _mma,
    "commit": _commit,
    "cp": _copy,
    "shift": _shift,
}
