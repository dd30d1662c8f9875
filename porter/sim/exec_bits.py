# SPDX-License-Identifier: Apache-2.0
"""Logic, shifts and bit fields (PTX ISA 9.7.1, 9.7.8, 9.7.9)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx import ast
from porter.sim.codegen import Context, emits, runtime
from porter.sim.kinds import kind_of

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


@emits("and", "or", "xor")
def _logic(cg: Context, ins: ast.Instruction) -> None:
    op = {"and": "&", "or": "|", "xor": "^"}[ins.parts[0]]
    kind = kind_of(ins.parts[-1])
    cg.set(ins.operands[0], kind, f"{cg.src(ins.operands[1], kind)} {op} {cg.src(ins.operands[2], kind)}")


@emits("not")
def _not(cg: Context, ins: ast.Instruction) -> None:
    kind = kind_of(ins.parts[-1])
    cg.set(ins.operands[0], kind, f"~{cg.src(ins.operands[1], kind)}")


@emits("cnot")
def _cnot(cg: Context, ins: ast.Instruction) -> None:
    kind = kind_of(ins.parts[-1])
    cg.set(ins.operands[0], kind, f"({cg.src(ins.operands[1], kind)} == 0).astype(t_{kind})")


@emits("lop3")
def _lop3(cg: Context, ins: ast.Instruction) -> None:
    d = ins.operands[0]
    joined = ins.parts[1] if ins.parts[1] in ("and", "or") else None
    a, b, c = (cg.src(o, "u32") for o in ins.operands[1:4])
    table = ins.operands[4]
    assert isinstance(table, ast.Imm)
    lut = int(table.value) & 0xFF
    simple = {0xC0: "{a} & {b}", 0x3C: "{a} ^ {b}", 0xFC: "{a} | {b}", 0x96: "{a} ^ {b} ^ {c}",
              0xEA: "({a} & {b}) | {c}", 0xFE: "{a} | {b} | {c}", 0x80: "{a} & {b} & {c}",
              0xF8: "{a} | ({b} & {c})", 0x78: "{a} ^ ({b} & {c})", 0x6A: "({a} & {b}) ^ {c}",
              0xCA: "({a} & {b}) | (~{a} & {c})"}  # fmt: skip
    if lut in simple and joined is None:
        cg.set(d, "u32", simple[lut].format(a=a, b=b, c=c))
        return
    terms = []
    for i in range(8):
        if lut >> i & 1:
            picks = [x if i >> s & 1 else f"~{x}" for x, s in ((a, 2), (b, 1), (c, 0))]
            terms.append("(" + " & ".join(picks) + ")")
    value = " | ".join(terms) if terms else cg.const("u32", 0)
    if joined is None:
        cg.set(d, "u32", value)
        return
    # The predicate says whether any bit is set, joined with another predicate.
    assert isinstance(d, ast.Pair)
    value, q = cg.let(value), cg.src(ins.operands[5], "p")
    if not (isinstance(d.first, ast.Sym) and d.first.name == "_"):
        cg.set(d.first, "u32", value)
    cg.set(d.second, "p", f"({value} != 0) {'&' if joined == 'and' else '|'} {q}")


@emits("shl", "shr")
def _shift(cg: Context, ins: ast.Instruction) -> None:
    kind = kind_of(ins.parts[-1])
    op = "<<" if ins.parts[0] == "shl" else ">>"
    amount = ins.operands[2]
    bits = int(kind[1:])
    if isinstance(amount, ast.Imm):
        n = int(amount.value) & 0xFFFFFFFF
        count = cg.const(kind, min(n, bits))
    elif bits == 32:
        count = cg.src(amount, kind)
    elif bits == 64:
        count = f"{cg.src(amount, 'u32')}.astype(t_{kind})"
    else:
        count = f"np.minimum({cg.src(amount, 'u32')}, {cg.const('u32', bits)}).astype(t_{kind})"
    cg.set(ins.operands[0], kind, f"{cg.src(ins.operands[1], kind)} {op} {count}")


@emits("shf")
def _shf(cg: Context, ins: ast.Instruction) -> None:
    a, b, c = (cg.src(o, "u32") for o in ins.operands[1:4])
    cg.set(ins.operands[0], "u32", f"funnel({a}, {b}, {c}, {'l' in ins.parts}, {'clamp' in ins.parts})")


@emits("bfe")
def _bfe(cg: Context, ins: ast.Instruction) -> None:
    kind = kind_of(ins.parts[-1])
    b, c = cg.src(ins.operands[2], "u32"), cg.src(ins.operands[3], "u32")
    cg.set(ins.operands[0], kind, f"bfe({cg.src(ins.operands[1], kind)}, {b}, {c})")


@emits("bfi")
def _bfi(cg: Context, ins: ast.Instruction) -> None:
    kind = kind_of(ins.parts[-1])
    a, b = cg.src(ins.operands[1], kind), cg.src(ins.operands[2], kind)
    c, d = cg.src(ins.operands[3], "u32"), cg.src(ins.operands[4], "u32")
    cg.set(ins.operands[0], kind, f"bfi({a}, {b}, {c}, {d})")


@emits("bmsk")
def _bmsk(cg: Context, ins: ast.Instruction) -> None:
    a, b = cg.src(ins.operands[1], "u32"), cg.src(ins.operands[2], "u32")
    if "wrap" in ins.parts:
        a, b = f"({a} & {cg.const('u32', 31)})", f"({b} & {cg.const('u32', 31)})"
    one, ones = cg.const("u32", 1), cg.const("u32", 0xFFFFFFFF)
    width = cg.let(b)
    mask = f"where({width} >= 32, {ones}, ({one} << {width}) - {one})"
    cg.set(ins.operands[0], "u32", f"{mask} << {a}")


@emits("szext")
def _szext(cg: Context, ins: ast.Instruction) -> None:
    kind = kind_of(ins.parts[-1])
    b = cg.src(ins.operands[2], "u32")
    if "wrap" in ins.parts:
        b = f"({b} & {cg.const('u32', 31)})"
    cg.set(
        ins.operands[0],
        kind,
        f"bfe({cg.src(ins.operands[1], kind)}, {cg.const('u32', 0)}, np.minimum({b}, 32))",
    )


@emits("prmt")
def _prmt(cg: Context, ins: ast.Instruction) -> None:
    mode = ins.parts[2] if len(ins.parts) > 2 else ""
    a, b, c = (cg.src(o, "u32") for o in ins.operands[1:4])
    cg.set(ins.operands[0], "u32", f"prmt({a}, {b}, {c}, {mode!r})")


@emits("popc", "clz")
def _count(cg: Context, ins: ast.Instruction) -> None:
    kind = kind_of(ins.parts[-1])
    cg.set(ins.operands[0], "u32", f"{ins.parts[0]}({cg.src(ins.operands[1], kind)})")


@emits("bfind")
def _bfind(cg: Context, ins: ast.Instruction) -> None:
    kind = kind_of(ins.parts[-1])
    cg.set(ins.operands[0], "u32", f"bfind({cg.src(ins.operands[1], kind)}, {'shiftamt' in ins.parts})")


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
def _fns(cg: Context, ins: ast.Instruction) -> None:
    mask, base = (cg.src(o, "u32") for o in ins.operands[1:3])
    cg.set(ins.operands[0], "u32", f"find_nth({mask}, {base}, {cg.src(ins.operands[3], 's32')})")


@emits("brev")
def _brev(cg: Context, ins: ast.Instruction) -> None:
    kind = kind_of(ins.parts[-1])
    cg.set(ins.operands[0], kind, f"brev({cg.src(ins.operands[1], kind)})")
