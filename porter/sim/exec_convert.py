# SPDX-License-Identifier: Apache-2.0
"""cvt: conversion between number formats (PTX ISA 9.7.9.21)."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from porter.ptx import nan
from porter.ptx.float_words import BF16_INFINITY, BF16_LARGEST, BF16_MAGNITUDE, BF16_SIGN, F32_FRACTION, F32_INFINITY
from porter.ptx.table import Decoded
from porter.sim.codegen import Context, emits, runtime
from porter.sim.exact_f64 import integer_to_f64
from porter.sim.exec_float import load_float, store_float
from porter.sim.exec_integer import is_integer
from porter.sim.float_arithmetic import odd_to_f32, relu
from porter.sim.kinds import DTYPES, Unsupported, kind_of
from porter.sim.rounding import f32_to_bf16, odd_add, quantize, round_to_f32

Array = npt.NDArray[Any]
runtime(integer_to_f64)
INTEGRAL = {"rni": "np.rint", "rzi": "np.trunc", "rmi": "np.floor", "rpi": "np.ceil"}

# name: (ml_dtypes type, precision, least exponent, largest finite value, code of NaN or None)
SMALL: dict[str, tuple[Any, int, int, float, int | None]] = {
    "e4m3": (ml_dtypes.float8_e4m3fn, 4, -6, 448.0, nan.CANONICAL["e4m3"]),
    "e5m2": (ml_dtypes.float8_e5m2, 3, -14, 57344.0, nan.CANONICAL["e5m2"]),
    "e2m1": (ml_dtypes.float4_e2m1fn, 2, 0, 6.0, None),
    "e2m3": (ml_dtypes.float6_e2m3fn, 4, 0, 7.5, None),
    "e3m2": (ml_dtypes.float6_e3m2fn, 3, -2, 28.0, None),
}


@runtime
def float_to_int(x: Array, kind: str, how: str) -> Array:
    """Round to an integral value and clamp to the integer type's range; NaN as PTX ISA 9.7.9.21 says."""
    dtype = np.dtype(DTYPES[kind])
    wide = dtype.itemsize == 8 or np.asarray(x).dtype == np.float64
    v = np.asarray(x, np.float64)
    v = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[how](v)
    info = np.iinfo(dtype)
    low, high = float(info.min), float(info.max)
    inside = (v >= low) & (v < high)
    r = np.where(inside, v, 0.0).astype(dtype)
    r = np.where(v >= high, dtype.type(info.max), np.where(v < low, dtype.type(info.min), r))
    if np.isnan(v).any():
        code = np.array(1 << (8 * dtype.itemsize - 1) if wide else 0, f"u{dtype.itemsize}").view(dtype)
        r = np.where(np.isnan(v), code, r)
    return r


@runtime
def int_sat(x: Array, kind: str) -> Array:
    """Clamp an integer to the range of a type."""
    info = np.iinfo(DTYPES[kind])
    have = np.iinfo(x.dtype)
    return np.clip(x, max(info.min, have.min), min(info.max, have.max)).astype(DTYPES[kind])


@runtime
def int_to_f64_odd(x: Array) -> Array:
    """Integers to float64, rounded to odd where they need more than 53 bits."""
    if x.dtype.itemsize < 8:
        return x.astype(np.float64)
    bits = x.dtype.type(32)
    return odd_add((x >> bits).astype(np.float64) * 2.0**32, (x & x.dtype.type(0xFFFFFFFF)).astype(np.float64))


@runtime
def int_to_f32(x: Array, mode: str) -> Array:
    return x.astype(np.float32) if mode == "rn" else round_to_f32(int_to_f64_odd(x), mode)


@runtime
def to_f32(x: Array, mode: str) -> Array:
    return round_to_f32(np.asarray(x, np.float64), mode)


@runtime
def to_f16(x: Array, mode: str, satfinite: bool) -> Array:
    """float64/float32 to float16."""
    v = np.asarray(x)
    if mode == "rn" and not satfinite:
        return v.astype(np.float16)
    q = quantize(v, 11, -14, 65504.0, mode)
    if satfinite:
        q = np.where(np.isinf(q), np.copysign(65504.0, q), q)
    return q.astype(np.float16)


@runtime
def to_bf16(x: Array, mode: str, satfinite: bool) -> Array:
    """float32/float64 to bf16 bits."""
    v = np.asarray(x)
    if v.dtype == np.float64:
        v = odd_to_f32(v)
    r = f32_to_bf16(v.astype(np.float32), mode)
    if satfinite:
        r = np.where((r & BF16_MAGNITUDE) == BF16_INFINITY, (r & np.uint16(BF16_SIGN)) | np.uint16(BF16_LARGEST), r)
    return r


@runtime
def narrow_nan(narrow: Array, x: Array, fraction_bits: int) -> Array:
    """16-bit results of an f64 conversion, whose NaN keeps sign and the top of its payload, made quiet."""
    bits = np.asarray(narrow).view(np.uint16)
    bad = x != x
    if not bad.any():
        return bits
    source = np.asarray(x, np.float64).view(np.uint64) >> np.uint64(52 - fraction_bits)
    payload = source & np.uint64((1 << fraction_bits) - 1) | np.uint64(1 << (fraction_bits - 1))
    sign = np.where(np.signbit(x), np.uint64(0x8000), np.uint64(0))
    exponent = np.uint64(0x7FFF >> fraction_bits << fraction_bits)
    return np.where(bad, (sign | exponent | payload).astype(np.uint16), bits)


@runtime
def to_tf32(x: Array, mode: str, satfinite: bool) -> Array:
    """float32 to tf32 in a 32-bit register: 10 fraction bits, the low 13 bits zero."""
    v = np.asarray(x, np.float32)
    if mode == "rna":
        return _to_tf32_away(v.view(np.uint32), satfinite)
    largest = float(np.uint32(0x7F7FE000).view(np.float32))
    q = quantize(v, 11, -126, largest, mode)
    if satfinite:
        q = np.where(np.isinf(q), np.copysign(largest, q), q)
    bits = q.astype(np.float32).view(np.uint32)
    return np.where(np.isnan(v), np.uint32(nan.CANONICAL["tf32"]), bits)


def _to_tf32_away(bits: Array, satfinite: bool) -> Array:
    """To nearest, ties away from zero, as an H200 does it: on the bits, so that no payload is set for NaN."""
    top = np.uint32(F32_INFINITY)
    special = (bits & top) == top
    rounded = np.where(special, bits, bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    if satfinite:
        rounded = rounded - np.where((rounded & top) == top, np.uint32(0x2000), np.uint32(0))
    return rounded


@runtime
def to_small(x: Array, name: str) -> Array:
    """float values to codes (uint8) of an 8-, 6- or 4-bit format, to nearest even, saturating to finite."""
    dtype, precision, e_min, largest, not_a_number = SMALL[name]
    v = np.asarray(x, np.float64)
    q = quantize(v, precision, e_min, np.inf, "rn")
    q = np.clip(q, -largest, largest)
    bad = np.isnan(v)
    codes = np.where(bad, 0.0, q).astype(dtype).view(np.uint8)
    return np.where(bad, np.uint8(encode_largest(name) if not_a_number is None else not_a_number), codes)


def encode_largest(name: str) -> int:
    dtype, _, _, largest, _ = SMALL[name]
    return int(np.array([largest]).astype(dtype).view(np.uint8)[0])


@cache
def _decode_table(name: str) -> Array:
    codes = np.arange(256, dtype=np.uint8)
    dtype = ml_dtypes.float8_e8m0fnu if name == "ue8m0" else SMALL[name][0]
    bits = {"e2m1": 4, "e2m3": 6, "e3m2": 6}.get(name, 8)
    return (codes & np.uint8((1 << bits) - 1)).view(dtype).astype(np.float32)


@runtime
def from_small(codes: Array, name: str) -> Array:
    """Codes (uint8) of a small format to float32."""
    return _decode_table(name)[codes]


@runtime
def to_ue8m0(x: Array, mode: str) -> Array:
    """float32 to ue8m0 codes: the exponent, rounded up (rp) or down (rz), saturating; NaN is 0xFF."""
    v = np.abs(np.asarray(x, np.float32))
    u = v.view(np.uint32)
    e = (u >> np.uint32(23)).astype(np.int64)
    fraction = u & np.uint32(F32_FRACTION)
    if mode == "rp":
        up = (fraction != 0) & ((e > 0) | (fraction > np.uint32(0x400000)))
        e = e + up
    e = np.minimum(e, 0xFE)
    return np.where(np.isnan(v), nan.CANONICAL["ue8m0"], e).astype(np.uint8)


@runtime
def join16(high: Array, low: Array) -> Array:
    """Two 16-bit values in one 32-bit register."""
    return (high.astype(np.uint32) << np.uint32(16)) | low.astype(np.uint32)


@runtime
def join8(high: Array, low: Array) -> Array:
    return (high.astype(np.uint16) << np.uint16(8)) | low.astype(np.uint16)


@runtime
def lanes8(x: Array) -> Array:
    """A 16-bit register as [..., 2] bytes."""
    return np.ascontiguousarray(np.asarray(x)[..., None]).view(np.uint8)


@runtime
def relu_if(x: Array, wanted: bool) -> Array:
    return relu(np.asarray(x)) if wanted else x


@emits("cvt.pack")
def _pack(cg: Context, ins: Decoded) -> None:
    """cvt.pack.sat.convertType.abType.cType: two saturated integers below the shifted third operand."""
    target = ins.modifiers["dtype"]
    bits = int(target[1:])
    a, b = cg.get("a"), cg.get("b")
    mask = cg.const("u32", (1 << bits) - 1)
    low = -(1 << (bits - 1)) if target[0] == "s" else 0
    high = (1 << (bits - (target[0] == "s"))) - 1
    low_name, high_name = cg.const("s32", low), cg.const("s32", high)
    parts = [f"(np.clip({x}, {low_name}, {high_name}).view(t_u32) & {mask})" for x in (a, b)]
    expr = f"({parts[0]} << {cg.const('u32', bits)}) | {parts[1]}"
    if "c" in ins:
        expr = f"({cg.get('c')} << {cg.const('u32', 2 * bits)}) | {expr}"
    cg.put("d", expr)


@emits("cvt")
def _cvt(cg: Context, ins: Decoded) -> None:
    given = ins.modifiers
    to, source = given.get("dtype", "tf32"), given.get("atype", "f32")
    mode = given.get("rnd", "rn")
    ftz, sat, satfinite, relu_ = ("ftz" in given, "sat" in given, "satfinite" in given, "relu" in given)
    if "rs" in given:
        _stochastic(cg, ins, to)
    elif is_integer(to) and is_integer(source):
        kind = kind_of(to)
        cg.put("d", f"int_sat({cg.get('a')}, {kind!r})" if sat else f"{cg.get('a')}.astype(t_{kind})")
    elif is_integer(to):
        x = load_float(cg, ins["a"], source, ftz and source == "f32")
        cg.put("d", f"float_to_int({x}, {kind_of(to)!r}, {given['irnd']!r})")
    elif is_integer(source):
        x = cg.get("a")
        if to == "bf16":
            cg.put("d", f"to_bf16(int_to_f64_odd({x}), {mode!r}, False)")
            return
        if to == "f32":
            expr = f"int_to_f32({x}, {mode!r})"
        elif to == "f64":
            wide = mode != "rn" and source[1:] == "64"
            expr = f"integer_to_f64({x}, {mode!r})" if wide else f"{x}.astype(t_f64)"
        else:
            expr = f"to_f16(int_to_f64_odd({x}), {mode!r}, False)"
        store_float(cg, ins["d"], to, expr, False, sat)
    elif to == "tf32":
        cg.put("d", f"to_tf32(relu_if({cg.get('a')}, {relu_}), {given.get('rnd', 'rna')!r}, {satfinite})")
    elif to in ("f16x2", "bf16x2") and source == "f32":
        fn = "to_f16" if to == "f16x2" else "to_bf16"
        values = [f"{fn}(relu_if({load_float(cg, ins[x], 'f32', ftz)}, {relu_}), {mode!r}, {satfinite})" for x in "ab"]
        halves = [f"float_bits({x})" if to == "f16x2" else x for x in values]
        cg.put("d", f"join16({halves[0]}, {halves[1]})")
    elif to == "ue8m0x2":
        high, low = _two(cg, ins, source)
        cg.put("d", f"join8(to_ue8m0({high}, {mode!r}), to_ue8m0({low}, {mode!r}))")
    elif source == "ue8m0x2":
        bytes_ = cg.let(f"lanes8({cg.get('a')})")
        cg.put("d", f"packed(to_bf16(from_small({bytes_}, 'ue8m0'), 'rn', False))")
    elif to[:-2] in SMALL:
        codes = [f"to_small(relu_if({x}, {relu_}), {to[:-2]!r})" for x in _two(cg, ins, source)]
        cg.put("d", f"({codes[0]} << t_u8(4)) | {codes[1]}" if to == "e2m1x2" else f"join8({codes[0]}, {codes[1]})")
    elif source[:-2] in SMALL:
        _from_small(cg, ins, source[:-2], relu_)
    else:
        _float_to_float(cg, ins, to, source)


@runtime
def round_stochastic(x: Array, bits: Array, to: str, satfinite: bool) -> Array:
    """f32 to f16 or bf16 bits: away from zero where the random bits carry out of the discarded ones."""
    precision, e_min, width = (11, -14, 13) if to == "f16" else (8, -126, 16)
    v = np.asarray(x, np.float64)
    finite = np.where(np.isfinite(v), v, 0.0)
    exponent = np.maximum(np.frexp(finite)[1] - 1, e_min)
    quantum = np.ldexp(1.0, exponent - (precision - 1))
    chance = (np.asarray(bits) & np.uint32((1 << width) - 1)).astype(np.float64) * 2.0**-width
    rounded = np.copysign(np.floor(np.abs(finite) / quantum + chance) * quantum, v)
    values = np.where(np.isfinite(v), rounded, v)
    return to_f16(values, "rn", satfinite) if to == "f16" else to_bf16(values.astype(np.float32), "rn", satfinite)


def _stochastic(cg: Context, ins: Decoded, to: str) -> None:
    """cvt.rs of two values; the random bits of the first are in the upper half."""
    if to not in ("f16x2", "bf16x2"):
        raise Unsupported("stochastic rounding to four values")
    bits = cg.get("rbits")
    satfinite, relu_ = "satfinite" in ins.modifiers, "relu" in ins.modifiers
    halves = []
    for name, random in (("a", f"({bits} >> {cg.const('u32', 16)})"), ("b", bits)):
        call = f"round_stochastic(relu_if({cg.get(name)}, {relu_}), {random}, {to[:-2]!r}, {satfinite})"
        halves.append(f"float_bits({call})" if to == "f16x2" else call)
    cg.put("d", f"join16({halves[0]}, {halves[1]})")


def _two(cg: Context, ins: Decoded, source: str) -> tuple[str, str]:
    """The two values of a conversion, that for the upper half first."""
    if "b" in ins:
        return cg.get("a"), cg.get("b")
    pair = cg.let(load_float(cg, ins["a"], source))
    return f"{pair}[..., 1]", f"{pair}[..., 0]"


def _from_small(cg: Context, ins: Decoded, name: str, relu_: bool) -> None:
    """To f16x2."""
    x = cg.get("a")
    codes = f"lanes8({x})"
    if name == "e2m1":
        codes = f"np.stack(np.broadcast_arrays({x} & t_u8(15), {x} >> t_u8(4)), axis=-1)"
    values = cg.let(f"relu_if(from_small({codes}, {name!r}), {relu_})")
    cg.put("d", f"packed(canonical_nan({values}.astype(t_f16)))")


def _float_to_float(cg: Context, ins: Decoded, to: str, source: str) -> None:
    given = ins.modifiers
    ftz, sat, satfinite = "ftz" in given, "sat" in given, "satfinite" in given
    mode, d = given.get("rnd", "rn"), ins["d"]
    x = load_float(cg, ins["a"], source, ftz and source == "f32" and to != "f16")
    if "irnd" in given:
        x = f"{INTEGRAL[given['irnd']]}({x})"
    if "relu" in given:
        x = f"relu_if({x}, True)"
    if to == source == "f32" and "irnd" not in given and not (ftz or sat):
        cg.put("d", cg.get("a", "u32"), "u32")
    elif to == source:
        store_float(cg, d, to, x, ftz, sat)
    elif to == "f64":
        x = cg.let(f"canonical_nan({x})" if ftz else x)
        store_float(cg, d, to, f"kept_nan({x}.astype(t_f64), {x}.astype(t_f64))", False, sat)
    elif to == "f32" and source in ("f64", "bf16"):
        # These two keep what they can of a NaN's payload.
        expr = cg.let(f"to_f32({x}, {mode!r})" if source == "f64" else x)
        expr = cg.let(f"saturate({expr})") if sat else expr
        if ftz and source == "bf16":
            store_float(cg, d, to, expr, ftz)
        else:
            cg.put("d", f"flush_f32({expr})" if ftz else expr)
    elif to == "f32":
        store_float(cg, d, to, f"np.asarray({x}).astype(t_f32)", ftz, sat)
    elif source == "f64":
        x = cg.let(x)
        narrow = cg.let(f"to_{to}({x}, {mode!r}, {satfinite})")
        narrow = f"saturate({narrow}).view(t_u16)" if sat else narrow
        cg.put("d", narrow if sat else f"narrow_nan({narrow}, {x}, {10 if to == 'f16' else 7})", "u16")
    elif to == "f16":
        store_float(cg, d, to, f"to_f16({x}, {mode!r}, {satfinite})", False, sat)
    else:
        cg.put("d", f"to_bf16({x}, {mode!r}, {satfinite})")
