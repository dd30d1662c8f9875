# SPDX-License-Identifier: Apache-2.0
"""Floating-point arithmetic (PTX ISA 9.7.3 to 9.7.5) and the arithmetic instructions' dispatch by type.

f32 and f64 are NumPy's; f16 too; bf16 is computed in f32 and rounded. Fused operations and directed
roundings go through float64 with round-to-odd, which makes the final rounding exact; directed roundings of f64
are in `exact_f64`. A NaN result is the one that `porter.ptx.nan` names: where a result's bits are first taken.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from porter.ptx import ast
from porter.sim.codegen import Context, emits, runtime
from porter.sim.datapath.ex2 import ex2_f32
from porter.sim.exact_f64 import directed
from porter.sim.exec_integer import integer_add, integer_div, integer_minmax, integer_mul, integer_sign, is_integer
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


runtime(ex2_f32)


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


@emits("div", "rem")
def _div(cg: Context, ins: ast.Instruction) -> None:
    if is_integer(ins.parts[-1]):
        integer_div(cg, ins)
        return
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


@emits("abs", "neg")
def _sign(cg: Context, ins: ast.Instruction) -> None:
    t = ins.parts[-1]
    if is_integer(t):
        integer_sign(cg, ins)
        return
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
