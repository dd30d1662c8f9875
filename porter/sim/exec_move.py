# SPDX-License-Identifier: Apache-2.0
"""Moves, address conversion, selection and comparison (PTX ISA 9.7.6, 9.7.7, 9.7.9)."""

from __future__ import annotations

from porter.ptx import ast
from porter.ptx.table import Decoded
from porter.sim.codegen import Context, emits
from porter.sim.exec_bits import LOGIC
from porter.sim.exec_float import load_float
from porter.sim.exec_integer import is_integer
from porter.sim.kinds import WIDTH_OF, Unsupported, kind_of, plain
from porter.sim.memories import PARAM_WINDOW

# Moving -----------------------------------------------------------------------------------------------


def _mov_b128(cg: Context, to: ast.Operand, source: ast.Operand) -> None:
    """Both sides are vectors, of two 64-bit or of four 32-bit registers."""
    if not isinstance(to, ast.Vec) or not isinstance(source, ast.Vec):
        raise Unsupported("mov.b128 of what is no vector")
    if len(source.items) == 4:
        words = [cg.src(i, "u32") for i in source.items]
        halves = [f"{a}.astype(t_u64) | ({b}.astype(t_u64) << {cg.const('u64', 32)})" for a, b in
                  (words[:2], words[2:])]  # fmt: skip
    else:
        halves = [cg.src(i, "u64") for i in source.items]
    halves = [cg.let(half) for half in halves]
    if len(to.items) == 2:
        values, kind = halves, "u64"
    else:
        shift = cg.const("u64", 32)
        values = [f"({h}{part}).astype(t_u32)" for h in halves for part in ("", f" >> {shift}")]
        kind = "u32"
    for item, value in zip(to.items, values, strict=True):
        if item != ast.Sym("_"):
            cg.set(item, kind, value)


@emits("mov")
def _mov(cg: Context, ins: Decoded) -> None:
    to, source = ins["d"], ins["a"]
    if ins.parts[-1] == "b128":
        _mov_b128(cg, to, source)
    elif isinstance(to, ast.Vec):
        total, kind = kind_of(ins.type("a")), kind_of(ins.type("d"))
        x = cg.get("a")
        for i, item in enumerate(to.items):
            if item != ast.Sym("_"):
                cg.set(item, kind, f"({x} >> {cg.const(total, WIDTH_OF[kind] * i)}).astype(t_{kind})")
    elif isinstance(source, ast.Vec):
        total, kind = kind_of(ins.type("d")), kind_of(ins.type("a"))
        terms = []
        for i, item in enumerate(source.items):
            x = f"{cg.src(item, kind)}.astype(t_{total})"
            terms.append(f"({x} << {cg.const(total, WIDTH_OF[kind] * i)})" if i else x)
        cg.put("d", " | ".join(terms))
    elif not cg.move(to, source):
        cg.put("d", cg.copied("a"), plain(kind_of(ins.type("d"))))


@emits("cvta")
def _cvta(cg: Context, ins: Decoded) -> None:
    window = cg.machine.window(ins.modifiers["space"].partition("::")[0])
    d, s, kind = ins["d"], ins["a"], kind_of(ins.type("a"))
    if isinstance(s, ast.Sym):
        # A kernel parameter's address is already generic.
        variable = cg.program.variables.get(s.name)
        if variable is not None and variable.space in ("kernelparam", "global", "const"):
            window = 0
    if window == PARAM_WINDOW:
        # What `mov` gives is generic already; of 32 bits the window is lost.
        cg.put("d", cg.get("a") if "to" in ins.modifiers else f"{cg.get('a')} | {cg.const(kind, window)}")
    elif window:
        cg.put("d", f"{cg.get('a')} {'-' if 'to' in ins.modifiers else '+'} {cg.const(kind, window)}")
    elif not cg.move(d, s):
        cg.put("d", cg.get("a"))


@emits("isspacep")
def _isspacep(cg: Context, ins: Decoded) -> None:
    cg.put("p", cg.call("isspace", cg.get("a"), repr(ins.modifiers["space"])))


@emits("selp")
def _selp(cg: Context, ins: Decoded) -> None:
    a, b = cg.copied("a"), cg.copied("b")
    cg.put("d", f"where({cg.get('c')}, {a}, {b})", plain(kind_of(ins.type("d"))))


@emits("slct")
def _slct(cg: Context, ins: Decoded) -> None:
    a, b, c = cg.copied("a"), cg.copied("b"), cg.get("c")
    c = f"flush_f32({c})" if "ftz" in ins.modifiers else c
    cg.put("d", f"where({c} >= 0, {a}, {b})", plain(kind_of(ins.type("d"))))


# Comparison -------------------------------------------------------------------------------------------

_ORDERED = {"eq": "({a} == {b})", "ne": "({a} != {b})", "lt": "({a} < {b})", "le": "({a} <= {b})",
            "gt": "({a} > {b})", "ge": "({a} >= {b})", "lo": "({a} < {b})", "ls": "({a} <= {b})",
            "hi": "({a} > {b})", "hs": "({a} >= {b})"}  # fmt: skip
_FLOAT = {**_ORDERED, "ne": "(({a} < {b}) | ({a} > {b}))", "equ": "~(({a} < {b}) | ({a} > {b}))",
          "neu": "({a} != {b})", "ltu": "~({a} >= {b})", "leu": "~({a} > {b})", "gtu": "~({a} <= {b})",
          "geu": "~({a} < {b})", "num": "(({a} == {a}) & ({b} == {b}))",
          "nan": "(({a} != {a}) | ({b} != {b}))"}  # fmt: skip


def _compare(cg: Context, ins: Decoded) -> str:
    """An expression of the comparison; for packed types of shape [..., 2]."""
    operator, type_name = ins.modifiers["cmp"], ins.type("a")
    if is_integer(type_name):
        kind = kind_of(type_name)
        if operator in ("lo", "ls", "hi", "hs"):
            kind = "u" + kind[1:]
        return _ORDERED[operator].format(a=cg.get("a", kind), b=cg.get("b", kind))
    a, b = (cg.let(load_float(cg, ins[name], type_name, "ftz" in ins.modifiers)) for name in "ab")
    return _FLOAT[operator].format(a=a, b=b)


def _joined(ins: Decoded, result: str, third: str) -> str:
    """The comparison joined with a predicate, if there is one."""
    return f"({result} {LOGIC[ins.modifiers['bool']]} {third})" if third else result


@emits("setp")
def _setp(cg: Context, ins: Decoded) -> None:
    result = cg.let(_compare(cg, ins))
    third = cg.get("c") if "c" in ins else ""
    first, second = result, f"~{result}"
    if ins.type("a").endswith("x2"):
        first, second = f"{result}[..., 0]", f"{result}[..., 1]"
    cg.put("p", _joined(ins, first, third))
    if ins.registers("q"):
        cg.put("q", _joined(ins, second, third))


@emits("set")
def _set(cg: Context, ins: Decoded) -> None:
    dtype = ins.type("d")
    result = _compare(cg, ins)
    third = cg.get("c") if "c" in ins else ""
    packed = ins.type("a").endswith("x2")
    if third and packed:
        third = f"np.asarray({third})[..., None]"
    r = cg.let(_joined(ins, result, third))
    one = {"f16": 0x3C00, "bf16": 0x3F80}.get(dtype.removesuffix("x2"))
    if packed:
        zero, yes = cg.const("u16", 0), cg.const("u16", one or 0xFFFF)
        cg.put("d", f"packed(where({r}, {yes}, {zero}))", "u32")
    elif dtype == "bf16":
        cg.put("d", f"where({r}, {cg.const('u16', one or 0)}, {cg.const('u16', 0)})")
    elif dtype[0] == "f":
        cg.put("d", f"where({r}, {cg.const(dtype, 1.0)}, {cg.const(dtype, 0.0)})")
    else:
        u = "u" + dtype[1:]
        cg.put("d", f"where({r}, {cg.const(u, -1)}, {cg.const(u, 0)})", u)
