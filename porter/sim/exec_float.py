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
from porter.ptx.table import Decoded
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


def _mode(ins: Decoded) -> str:
    """The rounding mode; divisions that round otherwise give the nearest."""
    mode = ins.modifiers.get("rnd", "rn")
    return mode if mode in MODES else "rn"


def _load(cg: Context, ins: Decoded, names: str) -> list[str]:
    """Operands of those names, each in its own type."""
    return [load_float(cg, ins[name], ins.type(name), "ftz" in ins.modifiers) for name in names]


def _store(cg: Context, ins: Decoded, expr: str) -> None:
    store_float(cg, ins["d"], ins.type("d"), expr, "ftz" in ins.modifiers, "sat" in ins.modifiers)


@emits("add", "sub")
def _add(cg: Context, ins: Decoded) -> None:
    op = "+" if ins.modifiers.get("op", ins.parts[0]) == "add" else "-"
    if is_integer(ins.type("d")):
        integer_add(cg, ins, op)
        return
    mode = _mode(ins)
    if "c" in ins or (mode != "rn" and ins.type("d") != "f64"):
        # One of them may be narrower.
        a, b = _load(cg, ins, "ac" if "c" in ins else "ab")
        _store(cg, ins, f"add_f32_mode({a}, {b if op == '+' else f'(-{b})'}, {mode!r})")
        return
    a, b = _load(cg, ins, "ab")
    if ins.type("d") == "f64":
        _f64(cg, ins, op, mode, a, b)
    else:
        _store(cg, ins, f"{a} {op} {b}")


def _f64(cg: Context, ins: Decoded, op: str, mode: str, a: str, b: str) -> None:
    """d = a op b in double precision."""
    a, b = cg.let(a), cg.let(b)
    expr = f"{a} {op} {b}" if mode == "rn" else f"directed({op!r}, {mode!r}, {a}, {b})"
    order = f"{a}, {b}" if op == "/" else f"{b}, {a}"
    _store(cg, ins, f"kept_nan({expr}, {order})")


@emits("mul", "div", "rem")
def _mul(cg: Context, ins: Decoded) -> None:
    name, t = ins.parts[0], ins.type("d")
    if is_integer(ins.type("a")):
        (integer_mul if name == "mul" else integer_div)(cg, ins)
        return
    op, mode = "*" if name == "mul" else "/", _mode(ins)
    a, b = _load(cg, ins, "ab")
    if t == "f64":
        _f64(cg, ins, op, mode, a, b)
    elif mode == "rn":
        _store(cg, ins, f"{a} {op} {b}")
    else:
        _store(cg, ins, f"{name}_f32_mode({a}, {b}, {mode!r})")


@emits("mad", "fma")
def _fma(cg: Context, ins: Decoded) -> None:
    t, mode = ins.type("d"), _mode(ins)
    if is_integer(t):
        integer_mul(cg, ins)
        return
    a, b, c = _load(cg, ins, "abc")
    if t in ("f32", "f32x2"):
        expr = f"fma_f32({a}, {b}, {c})" if mode == "rn" else f"fma_f32_mode({a}, {b}, {c}, {mode!r})"
    elif t == "f64":
        a, b, c = cg.let(a), cg.let(b), cg.let(c)
        expr = f"fma_f64({a}, {b}, {c})" if mode == "rn" else f"directed('fma', {mode!r}, {a}, {b}, {c})"
        expr = f"kept_nan({expr}, {b}, {c}, {a})"
    elif t in ("f16", "f16x2"):
        expr = f"fma_f16({a}, {b}, {c})"
    else:
        expr = f"bf16_to_f32(fma_bf16({a}, {b}, {c}))"
    _store(cg, ins, f"relu({expr})" if "relu" in ins.modifiers else expr)


@emits("min", "max")
def _minmax(cg: Context, ins: Decoded) -> None:
    if is_integer(ins.type("d")):
        integer_minmax(cg, ins)
        return
    name, nan = f"float_{ins.modifiers['op']}", "NaN" in ins.modifiers
    values = [cg.let(x) for x in _load(cg, ins, "abc" if "c" in ins else "ab")]
    if "c" in ins and "abs" in ins.modifiers:
        values = [f"np.abs({v})" for v in values]
    expr = values[0]
    for v in values[1:]:
        expr = f"{name}({expr}, {v}, {nan})"
    if "xorsign" in ins.modifiers:
        a, b = values
        expr = f"xorsign({name}(np.abs({a}), np.abs({b}), {nan}), {a}, {b})"
    _store(cg, ins, expr)


@emits("abs", "neg")
def _sign(cg: Context, ins: Decoded) -> None:
    t = ins.type("d")
    if is_integer(t):
        integer_sign(cg, ins)
        return
    x = cg.let(load_float(cg, ins["a"], t, "ftz" in ins.modifiers))
    expr = f"-{x}" if ins.parts[0] == "neg" else f"np.abs({x})"
    if t == "f64":
        expr = f"kept_nan({expr}, {x})"
    store_float(cg, ins["d"], t, expr)


@emits("sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def _function(cg: Context, ins: Decoded) -> None:
    name, t, ftz = ins.parts[0], ins.type("d"), "ftz" in ins.modifiers
    mode = ins.modifiers.get("rnd", "approx")
    [x] = _load(cg, ins, "a")
    if name == "ex2" and t == "f32":
        _store(cg, ins, f"ex2_f32({x}, {ftz})")
    elif mode == "approx":
        _store(cg, ins, f"approx({name!r}, {x}, {t == 'f64' and ftz})")
    elif t == "f64":
        x = cg.let(x)
        rounded = f"directed({name!r}, {mode!r}, {x})"
        nearest = f"np.sqrt({x})" if name == "sqrt" else f"{cg.const('f64', 1.0)} / {x}"
        _store(cg, ins, f"kept_nan({nearest if mode == 'rn' else rounded}, {x})")
    elif name == "sqrt":
        _store(cg, ins, f"np.sqrt({x})" if mode == "rn" else f"sqrt_f32_mode({x}, {mode!r})")
    else:
        one = cg.const(t, 1.0)
        _store(cg, ins, f"{one} / {x}" if mode == "rn" else f"div_f32_mode({one}, {x}, {mode!r})")


@emits("copysign")
def _copysign(cg: Context, ins: Decoded) -> None:
    bits = ins.type("d")[1:]
    kind = f"u{bits}"
    top = cg.const(kind, 1 << (int(bits) - 1))
    a, b = cg.copied("a"), cg.copied("b")
    cg.put("d", f"({b} & ~{top}) | ({a} & {top})", kind)


@emits("testp")
def _testp(cg: Context, ins: Decoded) -> None:
    x = load_float(cg, ins["a"], ins.type("a"))
    cg.put("p", f"testp({x}, {ins.modifiers['op']!r})")
