# SPDX-License-Identifier: Apache-2.0
"""Floating-point arithmetic (PTX ISA 9.7.3 to 9.7.5) and the arithmetic instructions' dispatch by type.

f32 and f64 are NumPy's; f16 too; bf16 is computed in f32 and rounded. Fused operations and directed
roundings go through float64 with round-to-odd, which makes the final rounding exact; directed roundings of f64
are in `exact_f64`. A NaN result is the one that `porter.ptx.nan` names: where a result's bits are first taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx import ast
from porter.sim.codegen import Context, emits, runtime
from porter.sim.datapath.ex2 import ex2_f32
from porter.sim.exact_f64 import directed
from porter.sim.exec_integer import integer_add, integer_minmax, integer_mul, is_integer
from porter.sim.kinds import Unsupported
from porter.sim.rounding import (
    bf16_to_f32,
    canonical_nan,
    f32_to_bf16,
    float_max,
    float_min,
    flush_f16,
    flush_f32,
    kept_nan,
    odd_add,
    odd_fma_f64,
    round_to_f16,
    round_to_f32,
)

Array = npt.NDArray[Any]
FLOAT_TYPES = frozenset(("f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"))
MODES = ("rn", "rz", "rm", "rp")

runtime(bf16_to_f32)
runtime(f32_to_bf16)
runtime(flush_f16)
runtime(flush_f32)
runtime(canonical_nan)
runtime(kept_nan)
runtime(float_max)
runtime(float_min)
runtime(directed)


@runtime
def pair32(x: Array, kind: str) -> Array:
    """A 64-bit value as [..., 2] 32-bit values."""
    return np.ascontiguousarray(np.asarray(x)[..., None]).view(kind)


@runtime
def fma_f32(a: Array, b: Array, c: Array) -> Array:
    """Fused multiply-add of f32, rounded to nearest even."""
    p = np.multiply(a, b, dtype=np.float64)
    s = p + c
    r = s.astype(np.float32)
    # The sum was rounded once to 53 bits; that matters only if it now sits on a midpoint of f32, or if the
    # result is subnormal, where midpoints lie elsewhere.
    low = np.asarray(s).view(np.uint64) & np.uint64(0x1FFFFFFF)
    risky = (low == np.uint64(0x10000000)) | (np.abs(r) < np.float32(1.2e-38))
    if risky.any():
        return round_to_f32(odd_add(p, np.asarray(c, np.float64)), "rn")
    return r


@runtime
def add_f32_mode(a: Array, b: Array, mode: str) -> Array:
    return _round_sum(np.asarray(a, np.float64), np.asarray(b, np.float64), mode)


def _round_sum(x: Array, y: Array, mode: str) -> Array:
    """x + y rounded to f32; downwards a sum of zero is -0 unless both terms are +0."""
    r = round_to_f32(odd_add(x, y), mode)
    if mode == "rm":
        cancelled = (r == 0) & (x == -y) & (np.signbit(x) | np.signbit(y))
        r = np.where(cancelled, np.float32(-0.0), r)
    return r


@runtime
def mul_f32_mode(a: Array, b: Array, mode: str) -> Array:
    return round_to_f32(np.multiply(a, b, dtype=np.float64), mode)


@runtime
def fma_f32_mode(a: Array, b: Array, c: Array, mode: str) -> Array:
    p = np.multiply(a, b, dtype=np.float64)
    return _round_sum(p, np.asarray(c, np.float64), mode)


def _nudge(q: Array, residual: Array) -> Array:
    """Make an inexact float64 quotient odd, so that rounding it again is exact. `residual` has the sign of
    (true value - q) when q is representable in few bits, anything otherwise."""
    bits = q.view(np.int64)
    up = np.where((residual > 0) == (q > 0), 1, -1)
    few = (bits & 0x1FFFFFFF) == 0
    return np.where(few & (residual != 0) & np.isfinite(q), bits + up, bits).view(np.float64)


@runtime
def div_f32_mode(a: Array, b: Array, mode: str) -> Array:
    x, y = (np.asarray(v, np.float64) for v in np.broadcast_arrays(a, b))
    q = np.asarray(x / y)
    residual = np.where(np.isfinite(y), (x - q * y) * np.sign(y), 0.0)
    return round_to_f32(_nudge(q, residual), mode)


@runtime
def sqrt_f32_mode(a: Array, mode: str) -> Array:
    x = np.asarray(a, np.float64)
    q = np.asarray(np.sqrt(x))
    return round_to_f32(_nudge(q, x - q * q), mode)


@runtime
def fma_f64(a: Array, b: Array, c: Array) -> Array:
    return odd_fma_f64(np.asarray(a), np.asarray(b), np.asarray(c))


@runtime
def fma_f16(a: Array, b: Array, c: Array) -> Array:
    p = np.multiply(a, b, dtype=np.float64)
    return round_to_f16(odd_add(p, np.asarray(c, np.float64)))


@runtime
def fma_bf16(a: Array, b: Array, c: Array) -> Array:
    """bf16 operands as f32; the result as bf16 bits."""
    p = np.multiply(a, b, dtype=np.float64)
    odd = odd_add(p, np.asarray(c, np.float64))
    return f32_to_bf16(odd_to_f32(odd), "rn")


def odd_to_f32(x: Array) -> Array:
    """Round float64 to f32 by round-to-odd: enough for a later rounding to 22 bits or fewer."""
    near = round_to_f32(x, "rz")
    inexact = near.astype(np.float64) != x
    return np.where(inexact & np.isfinite(near), near.view(np.uint32) | np.uint32(1), near.view(np.uint32)).view(
        np.float32
    )


@runtime
def saturate(x: Array) -> Array:
    """.sat: clamp to [0, 1]; NaN becomes +0."""
    one = x.dtype.type(1)
    return np.where(x > 0, np.minimum(x, one), x.dtype.type(0))


@runtime
def xorsign(r: Array, a: Array, b: Array) -> Array:
    """`r` with the product's sign; NaN has none."""
    return np.copysign(np.abs(r), np.where(np.signbit(a) != np.signbit(b), -1.0, 1.0).astype(r.dtype))


@runtime
def approx(name: str, x: Array, coarse: bool = False) -> Array:
    """The approximate functions, computed in float64 and rounded: closer than hardware's, never worse."""
    v = np.asarray(x, np.float64)
    fn: dict[str, Callable[[Array], Array]] = {
        "ex2": np.exp2,
        "lg2": np.log2,
        "sin": np.sin,
        "cos": np.cos,
        "tanh": np.tanh,
        "rsqrt": lambda z: 1.0 / np.sqrt(z),
        "rcp": lambda z: 1.0 / z,
        "sqrt": np.sqrt,
    }
    r = np.asarray(fn[name](v)).astype(np.asarray(x).dtype)
    # The approximations of f64 have the low 32 bits zero (PTX ISA 9.7.3.14, 9.7.3.17).
    return (r.view(np.uint64) & np.uint64(0xFFFFFFFF << 32)).view(np.float64) if coarse else r


runtime(ex2_f32)


@runtime
def testp(x: Array, what: str) -> Array:
    info = np.finfo(x.dtype)
    finite = np.isfinite(x)
    return {
        "finite": finite,
        "infinite": np.isinf(x),
        "number": ~np.isnan(x),
        "notanumber": np.isnan(x),
        # Zeros count as normal (PTX ISA 9.7.3.1).
        "normal": finite & ((np.abs(x) >= info.smallest_normal) | (x == 0)),
        "subnormal": (x != 0) & (np.abs(x) < info.smallest_normal),
    }[what]


# Loading and storing by type --------------------------------------------------------------------------


def load_float(cg: Context, op: ast.Operand, type_name: str, ftz: bool = False) -> str:
    """An expression of an operand's values: f16, f32 or f64 arrays; bf16 as f32; packed types [..., 2]."""
    if type_name == "f32":
        x = cg.src(op, "f32")
        return f"flush_f32({x})" if ftz else x
    if type_name == "f64":
        return cg.src(op, type_name)
    if type_name == "bf16":
        return f"bf16_to_f32({cg.src(op, 'u16')})"
    if type_name in ("f16", "f16x2"):
        x = cg.src(op, "f16") if type_name == "f16" else f"lanes16({cg.src(op, 'u32')}, 'f2')"
        return f"flush_f16({x})" if ftz else x
    if type_name == "bf16x2":
        return f"bf16_to_f32(lanes16({cg.src(op, 'u32')}, 'u2'))"
    if type_name == "f32x2":
        x = f"pair32({_pair(cg, op)}, 'f4')"
        return f"flush_f32({x})" if ftz else x
    raise Unsupported(f"type .{type_name}")


def _pair(cg: Context, op: ast.Operand) -> str:
    if isinstance(op, ast.Vec):
        lo, hi = (cg.src(i, "u32") for i in op.items)
        return f"({lo}.astype(t_u64) | ({hi}.astype(t_u64) << {cg.const('u64', 32)}))"
    return cg.src(op, "u64")


def store_float(cg: Context, op: ast.Operand, type_name: str, expr: str, ftz: bool = False, sat: bool = False) -> None:
    """Write values as `load_float` gives them; bf16 values are f32 that get rounded to nearest even."""
    x = cg.let(expr)
    if sat:
        x = cg.let(f"saturate({x})")
    if ftz and type_name in ("f32", "f32x2", "f16", "f16x2"):
        x = cg.let(f"flush_{type_name[:3]}({x})")
    if type_name in ("f16", "f32", "f64"):
        cg.set(op, type_name, x, computed=True)
    elif type_name == "bf16":
        cg.set(op, "u16", f"f32_to_bf16({x})")
    elif type_name == "f16x2":
        cg.set(op, "u32", f"packed(canonical_nan({x}))")
    elif type_name == "bf16x2":
        cg.set(op, "u32", f"packed(f32_to_bf16({x}))")
    elif type_name == "f32x2":
        cg.set(op, "u64", f"packed(canonical_nan({x}), 'u8')")
    else:
        raise Unsupported(f"type .{type_name}")


def _mode(ins: ast.Instruction) -> str:
    return next((p for p in ins.parts[1:] if p in MODES), "rn")


def _types(ins: ast.Instruction) -> tuple[str, str]:
    """(result type, type of the inputs): they differ in mixed-precision add/sub/fma (`.f32.bf16`)."""
    t = ins.parts[-1]
    if len(ins.parts) > 2 and ins.parts[-2] in FLOAT_TYPES:
        return ins.parts[-2], t
    return t, t


@emits("add", "sub")
def _add(cg: Context, ins: ast.Instruction) -> None:
    op = "+" if ins.parts[0] == "add" else "-"
    if is_integer(ins.parts[-1]):
        integer_add(cg, ins, op)
        return
    p, mode, ftz, sat = ins.parts, _mode(ins), "ftz" in ins.parts, "sat" in ins.parts
    t, source = _types(ins)
    if t != source:
        a = load_float(cg, ins.operands[1], source)
        b = load_float(cg, ins.operands[2], "f32")
        b = b if op == "+" else f"(-{b})"
        store_float(cg, ins.operands[0], t, f"add_f32_mode({a}, {b}, {mode!r})", ftz, sat)
        return
    a = load_float(cg, ins.operands[1], t, ftz)
    b = load_float(cg, ins.operands[2], t, ftz)
    if t == "f64":
        _f64(cg, ins, op, mode, a, b)
    elif mode == "rn":
        store_float(cg, ins.operands[0], t, f"{a} {op} {b}", ftz, sat)
    elif t in ("f32", "f32x2"):
        b = b if op == "+" else f"(-{b})"
        store_float(cg, ins.operands[0], t, f"add_f32_mode({a}, {b}, {mode!r})", ftz, sat)
    else:
        raise Unsupported(f"{'.'.join(p)}: rounding .{mode}")


def _f64(cg: Context, ins: ast.Instruction, op: str, mode: str, a: str, b: str) -> None:
    """d = a op b in double precision."""
    a, b = cg.let(a), cg.let(b)
    expr = f"{a} {op} {b}" if mode == "rn" else f"directed({op!r}, {mode!r}, {a}, {b})"
    order = f"{a}, {b}" if op == "/" else f"{b}, {a}"
    store_float(cg, ins.operands[0], "f64", f"kept_nan({expr}, {order})")


@emits("mul")
def _mul(cg: Context, ins: ast.Instruction) -> None:
    t = ins.parts[-1]
    if is_integer(t):
        integer_mul(cg, ins)
        return
    mode, ftz, sat = _mode(ins), "ftz" in ins.parts, "sat" in ins.parts
    a, b = load_float(cg, ins.operands[1], t, ftz), load_float(cg, ins.operands[2], t, ftz)
    if t == "f64":
        _f64(cg, ins, "*", mode, a, b)
    elif mode == "rn":
        store_float(cg, ins.operands[0], t, f"{a} * {b}", ftz, sat)
    elif t in ("f32", "f32x2"):
        store_float(cg, ins.operands[0], t, f"mul_f32_mode({a}, {b}, {mode!r})", ftz, sat)
    else:
        raise Unsupported(f"rounding .{mode}")


@emits("mad", "fma")
def _fma(cg: Context, ins: ast.Instruction) -> None:
    if is_integer(ins.parts[-1]):
        integer_mul(cg, ins)
        return
    mode, ftz, sat = _mode(ins), "ftz" in ins.parts, "sat" in ins.parts
    relu = "relu" in ins.parts
    t, source = _types(ins)
    a, b = (load_float(cg, o, source, ftz) for o in ins.operands[1:3])
    c = load_float(cg, ins.operands[3], t, ftz)
    if t in ("f32", "f32x2"):
        expr = f"fma_f32({a}, {b}, {c})" if mode == "rn" else f"fma_f32_mode({a}, {b}, {c}, {mode!r})"
    elif t == "f64":
        a, b, c = cg.let(a), cg.let(b), cg.let(c)
        expr = f"fma_f64({a}, {b}, {c})" if mode == "rn" else f"directed('fma', {mode!r}, {a}, {b}, {c})"
        expr = f"kept_nan({expr}, {b}, {c}, {a})"
    elif mode != "rn":
        raise Unsupported(f"rounding .{mode}")
    elif t in ("f16", "f16x2"):
        expr = f"fma_f16({a}, {b}, {c})"
    else:
        expr = f"bf16_to_f32(fma_bf16({a}, {b}, {c}))"
    if relu:
        expr = f"relu({expr})"
    store_float(cg, ins.operands[0], t, expr, ftz, sat)


@runtime
def relu(x: Array) -> Array:
    """Negative values become +0; NaN becomes canonical NaN."""
    return canonical_nan(np.where((x > 0) | (x != x), x, x.dtype.type(0)))


@emits("min", "max")
def _minmax(cg: Context, ins: ast.Instruction) -> None:
    t = ins.parts[-1]
    if is_integer(t):
        integer_minmax(cg, ins)
        return
    ftz = "ftz" in ins.parts
    name = f"float_{ins.parts[0]}"
    nan = "NaN" in ins.parts
    values = [cg.let(load_float(cg, o, t, ftz)) for o in ins.operands[1:]]
    expr = values[0]
    for v in values[1:]:
        expr = f"{name}({expr}, {v}, {nan})"
    if "xorsign" in ins.parts:
        a, b = values[0], values[1]
        expr = f"xorsign({name}(np.abs({a}), np.abs({b}), {nan}), {a}, {b})"
    store_float(cg, ins.operands[0], t, expr, ftz)


def float_div(cg: Context, ins: ast.Instruction) -> None:
    t, mode, ftz = ins.parts[-1], _mode(ins), "ftz" in ins.parts
    a, b = load_float(cg, ins.operands[1], t, ftz), load_float(cg, ins.operands[2], t, ftz)
    if t == "f64":
        _f64(cg, ins, "/", mode, a, b)
    elif mode == "rn":
        store_float(cg, ins.operands[0], t, f"{a} / {b}", ftz)
    elif t == "f32":
        store_float(cg, ins.operands[0], t, f"div_f32_mode({a}, {b}, {mode!r})", ftz)
    else:
        raise Unsupported(f"rounding .{mode}")


def float_sign(cg: Context, ins: ast.Instruction) -> None:
    t = ins.parts[-1]
    negate = ins.parts[0] == "neg"
    x = cg.let(load_float(cg, ins.operands[1], t, "ftz" in ins.parts))
    expr = f"-{x}" if negate else f"np.abs({x})"
    if t == "f64":
        expr = f"kept_nan({expr}, {x})"
    store_float(cg, ins.operands[0], t, expr)


@emits("sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def _function(cg: Context, ins: ast.Instruction) -> None:
    p, t, ftz = ins.parts, ins.parts[-1], "ftz" in ins.parts
    x = load_float(cg, ins.operands[1], t, ftz)
    mode = next((m for m in p if m in MODES), None)
    if p[0] == "ex2" and t == "f32":
        store_float(cg, ins.operands[0], t, f"ex2_f32({x}, {ftz})", ftz)
    elif mode is None or p[0] not in ("sqrt", "rcp"):
        store_float(cg, ins.operands[0], t, f"approx({p[0]!r}, {x}, {t == 'f64' and ftz})", ftz)
    elif t == "f64":
        x = cg.let(x)
        rounded = f"directed({p[0]!r}, {mode!r}, {x})"
        nearest = f"np.sqrt({x})" if p[0] == "sqrt" else f"{cg.const('f64', 1.0)} / {x}"
        store_float(cg, ins.operands[0], t, f"kept_nan({nearest if mode == 'rn' else rounded}, {x})")
    elif mode == "rn":
        one = cg.const(t, 1.0)
        store_float(cg, ins.operands[0], t, f"np.sqrt({x})" if p[0] == "sqrt" else f"{one} / {x}", ftz)
    elif t == "f32" and p[0] == "sqrt":
        store_float(cg, ins.operands[0], t, f"sqrt_f32_mode({x}, {mode!r})", ftz)
    elif t == "f32":
        store_float(cg, ins.operands[0], t, f"div_f32_mode({cg.const('f32', 1.0)}, {x}, {mode!r})", ftz)
    else:
        raise Unsupported(f"rounding .{mode}")


@emits("copysign")
def _copysign(cg: Context, ins: ast.Instruction) -> None:
    bits = ins.parts[-1][1:]
    kind = f"u{bits}"
    top = cg.const(kind, 1 << (int(bits) - 1))
    a, b = cg.bits(ins.operands[1], ins.parts[-1]), cg.bits(ins.operands[2], ins.parts[-1])
    cg.set(ins.operands[0], kind, f"({b} & ~{top}) | ({a} & {top})")


@emits("testp")
def _testp(cg: Context, ins: ast.Instruction) -> None:
    x = load_float(cg, ins.operands[1], ins.parts[-1])
    cg.set(ins.operands[0], "p", f"testp({x}, {ins.parts[1]!r})")
