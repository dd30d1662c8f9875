# SPDX-License-Identifier: Apache-2.0
"""Logic, shifts and bit fields (PTX ISA 9.7.1, 9.7.8, 9.7.9)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx import ast
from porter.ptx.table import Decoded
from porter.sim.codegen import Context, emits, runtime
from porter.sim.kinds import WIDTH_OF, kind_of

Array = npt.NDArray[Any]


@runtime
def smear(x: Array) -> Array:
    """All bits below the highest set bit set too."""
    bits = x.dtype.itemsize * 8
    step = 1
    while step < bits:
        x = x | (x >> x.dtype.type(step))
        step *= 2
    return x


@runtime
def popc(x: Array) -> Array:
    return np.bitwise_count(x).astype(np.uint32)


@runtime
def clz(x: Array) -> Array:
    return np.uint32(x.dtype.itemsize * 8) - popc(smear(x))


@runtime
def bfind(x: Array, shift_amount: bool) -> Array:
    """Position of the highest bit that differs from the sign (unsigned: highest set bit), or all ones."""
    bits = x.dtype.itemsize * 8
    if x.dtype.kind == "i":
        x = np.where(x < 0, ~x, x).view(f"u{bits // 8}")
    position = popc(smear(x)) - np.uint32(1)
    if shift_amount:
        return np.where(position == np.uint32(0xFFFFFFFF), position, np.uint32(bits - 1) - position)
    return position


@runtime
def brev(x: Array) -> Array:
    kind = x.dtype.type
    bits = x.dtype.itemsize * 8
    full = (1 << bits) - 1
    s = 1
    while s < bits:
        m = full // ((1 << s) + 1)
        x = ((x >> kind(s)) & kind(m)) | ((x & kind(m)) << kind(s))
        s *= 2
    return x


@runtime
def bfe(a: Array, pos: Array, length: Array) -> Array:
    """Bit field extract; the field's sign bit fills up signed results (PTX ISA 9.7.1.17)."""
    bits = a.dtype.itemsize * 8
    unsigned = np.dtype(f"u{bits // 8}").type
    pos = (pos & np.uint32(0xFF)).astype(unsigned)
    length = (length & np.uint32(0xFF)).astype(unsigned)
    u = a.view(unsigned)
    wide = length >= unsigned(bits)
    mask = np.where(wide, ~unsigned(0), (unsigned(1) << length) - unsigned(1))
    field = (u >> pos) & mask
    if a.dtype.kind == "i":
        top = np.minimum(pos.astype(np.int64) + length.astype(np.int64) - 1, bits - 1).astype(unsigned)
        sign = np.where(length == 0, unsigned(0), (u >> top) & unsigned(1))
        # Bits of the field that lie beyond the operand are copies of the sign, as are those above the field.
        have = np.maximum(np.minimum(length.astype(np.int64), bits - pos.astype(np.int64)), 0).astype(unsigned)
        above = np.where(have >= unsigned(bits), unsigned(0), ~unsigned(0) << have)
        field = np.where(sign != 0, (field & ~above) | above, field)
        return field.view(a.dtype)
    return field


@runtime
def bfi(a: Array, b: Array, pos: Array, length: Array) -> Array:
    kind = b.dtype.type
    bits = b.dtype.itemsize * 8
    p = (pos & np.uint32(0xFF)).astype(b.dtype)
    n = (length & np.uint32(0xFF)).astype(b.dtype)
    mask = np.where(n >= kind(bits), ~kind(0), (kind(1) << n) - kind(1)) << p
    return (b & ~mask) | ((a << p) & mask)


@runtime
def prmt(a: Array, b: Array, c: Array, mode: str) -> Array:
    """Byte permute (PTX ISA 9.7.9.7)."""
    data = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    result: Any = np.uint32(0)
    low2 = (c & np.uint32(3)).astype(np.int64)
    for i in range(4):
        if mode == "":
            selector = ((c >> np.uint32(4 * i)) & np.uint32(0xF)).astype(np.uint64)
        else:
            table = {
                "f4e": [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]],
                "b4e": [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]],
                "rc8": [[0] * 4, [1] * 4, [2] * 4, [3] * 4],
                "ecl": [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]],
                "ecr": [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]],
                "rc16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
            }[mode]
            selector = np.array(table, np.uint64)[low2, i]
        byte = (data >> ((selector & np.uint64(7)) * np.uint64(8))) & np.uint64(0xFF)
        if mode == "":
            sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
            byte = np.where(selector & np.uint64(8), sign, byte)
        result = result | (byte.astype(np.uint32) << np.uint32(8 * i))
    return result


@runtime
def funnel(a: Array, b: Array, c: Array, left: bool, clamp: bool) -> Array:
    """shf: shift the 64-bit value b:a left or right and take 32 bits."""
    n = np.minimum(c, np.uint32(32)) if clamp else c & np.uint32(31)
    wide = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
    if left:
        return ((wide << n.astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)
    return (wide >> n.astype(np.uint64)).astype(np.uint32)


LOGIC = {"and": "&", "or": "|", "xor": "^"}


@emits("and", "or", "xor")
def _logic(cg: Context, ins: Decoded) -> None:
    cg.put("d", f"{cg.get('a')} {LOGIC[ins.modifiers['op']]} {cg.get('b')}")


@emits("not")
def _not(cg: Context, ins: Decoded) -> None:
    cg.put("d", f"~{cg.get('a')}")


@emits("cnot")
def _cnot(cg: Context, ins: Decoded) -> None:
    cg.put("d", f"({cg.get('a')} == 0).astype(t_{kind_of(ins.type('d'))})")


@emits("lop3")
def _lop3(cg: Context, ins: Decoded) -> None:
    a, b, c = map(cg.get, "abc")
    lut = cg.integer(ins["lut"]) & 0xFF
    simple = {0xC0: "{a} & {b}", 0x3C: "{a} ^ {b}", 0xFC: "{a} | {b}", 0x96: "{a} ^ {b} ^ {c}",
              0xEA: "({a} & {b}) | {c}", 0xFE: "{a} | {b} | {c}", 0x80: "{a} & {b} & {c}",
              0xF8: "{a} | ({b} & {c})", 0x78: "{a} ^ ({b} & {c})", 0x6A: "({a} & {b}) ^ {c}",
              0xCA: "({a} & {b}) | (~{a} & {c})"}  # fmt: skip
    if lut in simple and "q" not in ins:
        cg.put("d", simple[lut].format(a=a, b=b, c=c))
        return
    terms = []
    for i in range(8):
        if lut >> i & 1:
            picks = [x if i >> s & 1 else f"~{x}" for x, s in ((a, 2), (b, 1), (c, 0))]
            terms.append("(" + " & ".join(picks) + ")")
    value = " | ".join(terms) if terms else cg.const("u32", 0)
    if "q" not in ins:
        cg.put("d", value)
        return
    # The predicate says whether any bit is set, joined with another predicate.
    value, q = cg.let(value), cg.get("q")
    if ins.registers("d"):
        cg.put("d", value)
    cg.put("p", f"({value} != 0) {LOGIC[ins.modifiers['bool']]} {q}")


@emits("shl", "shr")
def _shift(cg: Context, ins: Decoded) -> None:
    kind = kind_of(ins.type("d"))
    amount, bits = ins["b"], WIDTH_OF[kind]
    if isinstance(amount, ast.Imm):
        count = cg.const(kind, min(int(amount.value) & 0xFFFFFFFF, bits))
    elif bits == 32:
        count = cg.get("b", kind)
    elif bits == 64:
        count = f"{cg.get('b')}.astype(t_{kind})"
    else:
        count = f"np.minimum({cg.get('b')}, {cg.const('u32', bits)}).astype(t_{kind})"
    cg.put("d", f"{cg.get('a')} {'<<' if 'shl' in ins.modifiers else '>>'} {count}")


@emits("shf")
def _shf(cg: Context, ins: Decoded) -> None:
    left, clamp = ins.modifiers["dir"] == "l", ins.modifiers["mode"] == "clamp"
    cg.put("d", f"funnel({', '.join(map(cg.get, 'abc'))}, {left}, {clamp})")


@emits("bfe")
def _bfe(cg: Context, ins: Decoded) -> None:
    b, c = cg.get("b"), cg.get("c")
    cg.put("d", f"bfe({cg.get('a')}, {b}, {c})")


@emits("bfi")
def _bfi(cg: Context, ins: Decoded) -> None:
    cg.put("f", f"bfi({', '.join(map(cg.get, 'abcd'))})")


@emits("bmsk")
def _bmsk(cg: Context, ins: Decoded) -> None:
    a, b = cg.get("a"), cg.get("b")
    if ins.modifiers["mode"] == "wrap":
        a, b = f"({a} & {cg.const('u32', 31)})", f"({b} & {cg.const('u32', 31)})"
    one, ones = cg.const("u32", 1), cg.const("u32", 0xFFFFFFFF)
    width = cg.let(b)
    mask = f"where({width} >= 32, {ones}, ({one} << {width}) - {one})"
    cg.put("d", f"{mask} << {a}")


@emits("szext")
def _szext(cg: Context, ins: Decoded) -> None:
    b = cg.get("b")
    if ins.modifiers["mode"] == "wrap":
        b = f"({b} & {cg.const('u32', 31)})"
    cg.put("d", f"bfe({cg.get('a')}, {cg.const('u32', 0)}, np.minimum({b}, 32))")


@emits("prmt")
def _prmt(cg: Context, ins: Decoded) -> None:
    cg.put("d", f"prmt({', '.join(map(cg.get, 'abc'))}, {ins.modifiers.get('mode', '')!r})")


@emits("popc", "clz", "brev")
def _of_one(cg: Context, ins: Decoded) -> None:
    cg.put("d", f"{ins.parts[0]}({cg.get('a')})")


@emits("bfind")
def _bfind(cg: Context, ins: Decoded) -> None:
    cg.put("d", f"bfind({cg.get('a')}, {'shiftamt' in ins.modifiers})")


@runtime
def find_nth(mask: Array, base: Array, offset: Array) -> Array:
    """fns: the position of the set bit that is |offset|-th from `base` on, upwards or downwards; ones if none."""
    mask, base, offset = np.broadcast_arrays(mask, base, offset)
    bits = (mask[..., None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    position = np.arange(32)
    start = base.astype(np.int64)[..., None]
    up = offset[..., None] > 0
    within = np.where(offset[..., None] == 0, position == start, np.where(up, position >= start, position <= start))
    hit = (bits != 0) & within
    rank = np.where(up, np.cumsum(hit, axis=-1), np.cumsum(hit[..., ::-1], axis=-1)[..., ::-1])
    wanted = np.maximum(np.abs(offset.astype(np.int64)), 1)[..., None]
    found = hit & (rank == wanted)
    return np.where(found.any(axis=-1), found.argmax(axis=-1), 0xFFFFFFFF).astype(np.uint32)


@emits("fns")
def _fns(cg: Context, ins: Decoded) -> None:
    cg.put("d", f"find_nth({', '.join(map(cg.get, ('mask', 'base', 'offset')))})")
