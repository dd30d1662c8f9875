# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic (PTX ISA 9.7.1, 9.7.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx import ast
from porter.sim.codegen import Context, Value, emits, runtime
from porter.sim.kinds import kind_of

Array = npt.NDArray[Any]
INTEGER_TYPES = frozenset(("u16", "u32", "u64", "s16", "s32", "s64", "b16", "b32", "b64", "u8", "s8", "b8"))
PACKED_INTEGERS = frozenset(("u16x2", "s16x2"))
CARRY = "%carry"


@runtime
def int_div(a: Array, b: Array) -> Array:
    """Quotient rounded toward zero; all ones for a zero divisor (unspecified by PTX, as hardware gives)."""
    a, b = np.broadcast_arrays(a, b)
    zero = b == 0
    d = np.where(zero, b.dtype.type(1), b)
    q = a // d
    if a.dtype.kind == "i":
        q = q + ((a % d != 0) & ((a < 0) != (d < 0))).astype(a.dtype)
    return np.where(zero, np.array(-1).astype(a.dtype), q)


@runtime
def int_rem(a: Array, b: Array) -> Array:
    """Remainder with the sign of the dividend; all ones for a zero divisor (unspecified, as hardware gives)."""
    a, b = np.broadcast_arrays(a, b)
    d = np.where(b == 0, b.dtype.type(1), b)
    r = np.fmod(a, d)
    return np.where(b == 0, np.array(-1).astype(a.dtype), r)


@runtime
def mul_hi_u64(a: Array, b: Array) -> Array:
    low = np.uint64(0xFFFFFFFF)
    s = np.uint64(32)
    al, ah, bl, bh = a & low, a >> s, b & low, b >> s
    mid = ah * bl + ((al * bl) >> s)
    mid2 = al * bh + (mid & low)
    return ah * bh + (mid >> s) + (mid2 >> s)


@runtime
def mul_hi_s64(a: Array, b: Array) -> Array:
    ua, ub = a.view(np.uint64), b.view(np.uint64)
    high = mul_hi_u64(ua, ub)
    high = high - np.where(a < 0, ub, np.uint64(0)) - np.where(b < 0, ua, np.uint64(0))
    return high.view(np.int64)


@runtime
def sat_s32(x: Array) -> Array:
    """64-bit integers clamped to the range of s32."""
    return np.clip(x, -(2**31), 2**31 - 1).astype(np.int32)


@runtime
def dp(a: Array, b: Array, c: Array, a_signed: bool, b_signed: bool, half: str) -> Array:
    """dp4a (half "") and dp2a ("lo"/"hi"): dot product of bytes added to c."""
    total = c.astype(np.int64)

    def byte(x: Array, i: int, signed: bool) -> Array:
        v = ((x >> np.uint32(8 * i)) & np.uint32(0xFF)).astype(np.int64)
        return np.where(v >= 128, v - 256, v) if signed else v

    def word(x: Array, i: int, signed: bool) -> Array:
        v = ((x >> np.uint32(16 * i)) & np.uint32(0xFFFF)).astype(np.int64)
        return np.where(v >= 32768, v - 65536, v) if signed else v

    if half == "":
        for i in range(4):
            total = total + byte(a, i, a_signed) * byte(b, i, b_signed)
    else:
        for i in range(2):
            total = total + word(a, i, a_signed) * byte(b, i + (2 if half == "hi" else 0), b_signed)
    return (total & 0xFFFFFFFF).astype(np.uint32)


@runtime
def lanes16(x: Array, kind: str) -> Array:
    """A packed 32-bit value as [..., 2] 16-bit values."""
    return np.ascontiguousarray(np.asarray(x)[..., None]).view(kind)


@runtime
def packed(x: Array, kind: str = "u4") -> Array:
    """The inverse of `lanes16` and `pair32`."""
    return np.ascontiguousarray(x).view(kind)[..., 0]


# Code generation --------------------------------------------------------------------------------------


def is_integer(type_name: str) -> bool:
    return type_name in INTEGER_TYPES or type_name in PACKED_INTEGERS


def _carry(cg: Context) -> str:
    found = cg.env.get(CARRY)
    if found is None:
        return cg.const("u32", 0)
    return found.forms["u32"]


def _set_carry(cg: Context, expr: str) -> None:
    cg.env[CARRY] = Value(32, {"u32": cg.let(f"({expr}).astype(t_u32)")})


def integer_add(cg: Context, ins: ast.Instruction, op: str) -> None:
    p, t = ins.parts, ins.parts[-1]
    d, x, y = ins.operands[0], ins.operands[1], ins.operands[2]
    if t in PACKED_INTEGERS:
        k = "'u2'"
        a, b = cg.src(x, "u32"), cg.src(y, "u32")
        cg.set(d, "u32", f"packed(lanes16({a}, {k}) {op} lanes16({b}, {k}))")
        return
    kind = kind_of(t)
    if "sat" in p:
        a, b = cg.src(x, "s32"), cg.src(y, "s32")
        cg.set(d, "s32", f"sat_s32({a}.astype(t_s64) {op} {b}.astype(t_s64))")
        return
    with_carry = p[0] in ("addc", "subc")
    if with_carry or "cc" in p:
        u = "u" + kind[1:]
        a, b = cg.src(x, u), cg.src(y, u)
        carry = f"{_carry(cg)}.astype(t_{u})" if with_carry else cg.const(u, 0)
        first = cg.let(f"{a} {op} {b}")
        total = cg.let(f"{first} {op} {carry}")
        if "cc" in p:
            over = f"({first} < {a}) | ({total} < {first})" if op == "+" else f"({a} < {b}) | ({first} < {carry})"
            _set_carry(cg, over)
        cg.set(d, u, total)
        return
    cg.set(d, kind, f"{cg.src(x, kind)} {op} {cg.src(y, kind)}")


def integer_mul(cg: Context, ins: ast.Instruction) -> None:
    p, t = ins.parts, ins.parts[-1]
    d, ops = ins.operands[0], ins.operands
    kind = kind_of(t)
    bits = int(kind[1:])
    kind = "u" + kind[1:] if kind[0] == "b" else kind
    addend = p[0] in ("mad", "madc")
    a, b = cg.src(ops[1], kind), cg.src(ops[2], kind)
    if p[0] in ("mul24", "mad24"):
        sh = cg.const(kind, 8)
        a, b = f"(({a} << {sh}) >> {sh})", f"(({b} << {sh}) >> {sh})"
        addend = p[0] == "mad24"
        if "hi" in p:
            # Bits 16 to 47 of the product.
            w = f"{kind[0]}64"
            wide = f"({a}.astype(t_{w}) * {b}.astype(t_{w})) >> {cg.const(w, 16)}"
            product = cg.let(f"({wide}).astype(t_{kind})")
            _add_product(cg, ins, kind, product, addend)
            return
    if "wide" in p:
        wide = f"{kind[0]}{bits * 2}"
        product = f"{a}.astype(t_{wide}) * {b}.astype(t_{wide})"
        cg.set(d, wide, f"{product} + {cg.src(ops[3], wide)}" if addend else product)
        return
    if "hi" in p:
        if bits == 64:
            product = cg.let(f"mul_hi_{kind}({a}, {b})")
        else:
            w = f"{kind[0]}{bits * 2}"
            product = cg.let(f"(({a}.astype(t_{w}) * {b}.astype(t_{w})) >> {cg.const(w, bits)}).astype(t_{kind})")
    else:
        product = cg.let(f"{a} * {b}")
    if not addend or "sat" in p:
        _add_product(cg, ins, kind, product, addend)
        return
    if "cc" in p or p[0] == "madc":
        u = f"u{bits}"
        x = cg.let(f"{product}.view(t_{u})")
        c = cg.src(ops[3], u)
        carry = f"{_carry(cg)}.astype(t_{u})" if p[0] == "madc" else cg.const(u, 0)
        first = cg.let(f"{x} + {c}")
        total = cg.let(f"{first} + {carry}")
        if "cc" in p:
            _set_carry(cg, f"({first} < {x}) | ({total} < {first})")
        cg.set(d, u, total)
        return
    cg.set(d, kind, f"{product} + {cg.src(ops[3], kind)}")


def _add_product(cg: Context, ins: ast.Instruction, kind: str, product: str, addend: bool) -> None:
    """d = product, plus the third operand of a `mad`."""
    d, ops = ins.operands[0], ins.operands
    if not addend:
        cg.set(d, kind, product)
    elif "sat" in ins.parts:
        cg.set(d, "s32", f"sat_s32({product}.astype(t_s64) + {cg.src(ops[3], 's32')}.astype(t_s64))")
    else:
        cg.set(d, kind, f"{product} + {cg.src(ops[3], kind)}")


@emits("mul24", "mad24", "madc")
def _mul24(cg: Context, ins: ast.Instruction) -> None:
    integer_mul(cg, ins)


@emits("addc", "subc")
def _with_carry(cg: Context, ins: ast.Instruction) -> None:
    integer_add(cg, ins, "+" if ins.parts[0] == "addc" else "-")


def integer_div(cg: Context, ins: ast.Instruction) -> None:
    kind = kind_of(ins.parts[-1])
    a, b = cg.src(ins.operands[1], kind), cg.src(ins.operands[2], kind)
    cg.set(ins.operands[0], kind, f"int_{ins.parts[0]}({a}, {b})")


def integer_minmax(cg: Context, ins: ast.Instruction) -> None:
    t = ins.parts[-1]
    fn = "np.minimum" if ins.parts[0] == "min" else "np.maximum"
    relu = "relu" in ins.parts
    if t in PACKED_INTEGERS:
        k = f"'{t[0].replace('s', 'i')}2'"
        a, b = cg.src(ins.operands[1], "u32"), cg.src(ins.operands[2], "u32")
        r = f"{fn}(lanes16({a}, {k}), lanes16({b}, {k}))"
        cg.set(ins.operands[0], "u32", f"packed(np.maximum({r}, 0))" if relu else f"packed({r})")
        return
    kind = kind_of(t)
    r = f"{fn}({cg.src(ins.operands[1], kind)}, {cg.src(ins.operands[2], kind)})"
    cg.set(ins.operands[0], kind, f"np.maximum({r}, {cg.const(kind, 0)})" if relu else r)


@emits("sad")
def _sad(cg: Context, ins: ast.Instruction) -> None:
    kind = kind_of(ins.parts[-1])
    a, b, c = (cg.src(o, kind) for o in ins.operands[1:4])
    cg.set(ins.operands[0], kind, f"{c} + where({a} < {b}, {b} - {a}, {a} - {b})")


@emits("dp4a", "dp2a")
def _dp(cg: Context, ins: ast.Instruction) -> None:
    at, bt = ins.parts[-2], ins.parts[-1]
    half = next((h for h in ("lo", "hi") if h in ins.parts), "")
    a, b, c = (cg.src(o, "u32") for o in ins.operands[1:4])
    cg.set(ins.operands[0], "u32", f"dp({a}, {b}, {c}, {at[0] == 's'}, {bt[0] == 's'}, {half!r})")


def integer_sign(cg: Context, ins: ast.Instruction) -> None:
    kind = kind_of(ins.parts[-1])
    x = cg.src(ins.operands[1], kind)
    cg.set(ins.operands[0], kind, f"np.abs({x})" if ins.parts[0] == "abs" else f"-{x}")
