# SPDX-License-Identifier: Apache-2.0
"""Integer arithmetic (PTX ISA 9.7.1, 9.7.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.table import Decoded
from porter.sim.codegen import Context, Value, emits, runtime
from porter.sim.kinds import WIDTH_OF

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


def _sum(cg: Context, ins: Decoded, a: str, b: str, op: str) -> None:
    """d = a op b in unsigned words, with the carry flag."""
    u = "u" + ins.type("d")[1:]
    carry = f"{_carry(cg)}.astype(t_{u})" if _takes_carry(ins) else cg.const(u, 0)
    first = cg.let(f"{a} {op} {b}")
    total = cg.let(f"{first} {op} {carry}")
    if "cc" in ins.modifiers:
        over = f"({first} < {a}) | ({total} < {first})" if op == "+" else f"({a} < {b}) | ({first} < {carry})"
        _set_carry(cg, over)
    cg.put("d", total, u)


def _uses_carry(ins: Decoded) -> bool:
    return "cc" in ins.modifiers or _takes_carry(ins)


def _takes_carry(ins: Decoded) -> bool:
    return ins.parts[0] in ("addc", "subc", "madc")


def integer_add(cg: Context, ins: Decoded, op: str) -> None:
    t = ins.type("d")
    if t in PACKED_INTEGERS:
        cg.put("d", f"packed(lanes16({cg.get('a')}, 'u2') {op} lanes16({cg.get('b')}, 'u2'))")
    elif "sat" in ins.modifiers:
        cg.put("d", f"sat_s32({cg.get('a')}.astype(t_s64) {op} {cg.get('b')}.astype(t_s64))")
    elif _uses_carry(ins):
        _sum(cg, ins, cg.get("a", "u" + t[1:]), cg.get("b", "u" + t[1:]), op)
    else:
        cg.put("d", f"{cg.get('a')} {op} {cg.get('b')}")


@emits("addc", "subc")
def _with_carry(cg: Context, ins: Decoded) -> None:
    integer_add(cg, ins, "+" if ins.parts[0] == "addc" else "-")


@emits("mul24", "mad24", "madc")
def integer_mul(cg: Context, ins: Decoded) -> None:
    given, kind = ins.modifiers, ins.type("a")
    bits = WIDTH_OF[kind]
    a, b = cg.get("a"), cg.get("b")
    short = ins.parts[0].endswith("24")
    if short:
        sh = cg.const(kind, 8)
        a, b = f"(({a} << {sh}) >> {sh})", f"(({b} << {sh}) >> {sh})"
    wide = f"{kind[0]}{bits * 2}"
    if "wide" in given:
        product = f"{a}.astype(t_{wide}) * {b}.astype(t_{wide})"
    elif given.get("mode", "hi") == "lo":
        product = cg.let(f"{a} * {b}")
    elif bits == 64:
        product = cg.let(f"mul_hi_{kind}({a}, {b})")
    else:
        # The upper half of the product; of 24-bit factors its bits 16 to 47.
        shift = cg.const(wide, 16 if short else bits)
        product = cg.let(f"(({a}.astype(t_{wide}) * {b}.astype(t_{wide})) >> {shift}).astype(t_{kind})")
    if "c" not in ins:
        cg.put("d", product)
    elif "sat" in given:
        cg.put("d", f"sat_s32({product}.astype(t_s64) + {cg.get('c')}.astype(t_s64))")
    elif _uses_carry(ins):
        x = cg.let(f"{product}.view(t_u{bits})")
        _sum(cg, ins, x, cg.get("c", f"u{bits}"), "+")
    else:
        cg.put("d", f"{product} + {cg.get('c')}")


def integer_div(cg: Context, ins: Decoded) -> None:
    cg.put("d", f"int_{ins.parts[0]}({cg.get('a')}, {cg.get('b')})")


def integer_minmax(cg: Context, ins: Decoded) -> None:
    t, relu = ins.type("d"), "relu" in ins.modifiers
    fn = "np.minimum" if ins.modifiers["op"] == "min" else "np.maximum"
    if t in PACKED_INTEGERS:
        k = f"'{t[0].replace('s', 'i')}2'"
        r = f"{fn}(lanes16({cg.get('a')}, {k}), lanes16({cg.get('b')}, {k}))"
        cg.put("d", f"packed(np.maximum({r}, 0))" if relu else f"packed({r})")
        return
    r = f"{fn}({cg.get('a')}, {cg.get('b')})"
    cg.put("d", f"np.maximum({r}, {cg.const(t, 0)})" if relu else r)


@emits("sad")
def _sad(cg: Context, ins: Decoded) -> None:
    a, b, c = map(cg.get, "abc")
    cg.put("d", f"{c} + where({a} < {b}, {b} - {a}, {a} - {b})")


@emits("dp4a", "dp2a")
def _dp(cg: Context, ins: Decoded) -> None:
    given = ins.modifiers
    signs = f"{given['atype'][0] == 's'}, {given['btype'][0] == 's'}"
    cg.put("d", f"dp({', '.join(map(cg.get, 'abc'))}, {signs}, {given.get('mode', '')!r})")


def integer_sign(cg: Context, ins: Decoded) -> None:
    cg.put("d", f"np.abs({cg.get('a')})" if ins.parts[0] == "abs" else f"-{cg.get('a')}")
