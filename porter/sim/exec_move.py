# SPDX-License-Identifier: Apache-2.0
"""Moves, address conversion, selection and comparison (PTX ISA 9.7.6, 9.7.7, 9.7.9)."""

from __future__ import annotations

from porter.ptx import ast
from porter.sim.codegen import Context, emits
from porter.sim.exec_float import load_float
from porter.sim.exec_integer import is_integer
from porter.sim.kinds import Unsupported, kind_of, plain

# Moving -----------------------------------------------------------------------------------------------


def _mov_b128(cg: Context, to: ast.Operand, source: ast.Operand) -> None:
    """Both sides are vectors, of two 64-bit or of four 32-bit registers."""
    assert isinstance(to, ast.Vec)
    assert isinstance(source, ast.Vec)
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
        if not (isinstance(item, ast.Sym) and item.name == "_"):
            cg.set(item, kind, value)


@emits("mov")
def _mov(cg: Context, ins: ast.Instruction) -> None:
    d, s = ins.operands
    if ins.parts[-1] == "b128":
        _mov_b128(cg, d, s)
        return
    if isinstance(d, ast.Vec):
        items = d.items
        if isinstance(s, ast.Vec):
            for to, source in zip(items, s.items, strict=True):
                if not cg.move(to, source):
                    kind = kind_of(ins.parts[-1])
                    cg.set(to, kind, cg.src(source, kind))
            return
        total = kind_of(ins.parts[-1])
        each = int(total[1:]) // len(items)
        x = cg.src(s, total)
        narrow = "u8" if each == 8 else f"u{each}"
        for i, item in enumerate(items):
            if isinstance(item, ast.Sym) and item.name == "_":
                continue
            cg.set(item, narrow, f"({x} >> {cg.const(total, each * i)}).astype(t_{narrow})")
        return
    if isinstance(s, ast.Vec):
        total = kind_of(ins.parts[-1])
        each = int(total[1:]) // len(s.items)
        narrow = "u8" if each == 8 else f"u{each}"
        terms = []
        for i, item in enumerate(s.items):
            x = f"{cg.src(item, narrow)}.astype(t_{total})"
            terms.append(f"({x} << {cg.const(total, each * i)})" if i else x)
        cg.set(d, total, " | ".join(terms))
        return
    if cg.move(d, s):
        return
    kind = kind_of(ins.parts[-1])
    cg.set(d, plain(kind), cg.bits(s, kind))


@emits("cvta")
def _cvta(cg: Context, ins: ast.Instruction) -> None:
    p = ins.parts
    to_space = p[1] == "to"
    space = p[2 if to_space else 1].partition("::")[0]
    kind = kind_of(p[-1])
    window = cg.machine.window(space)
    d, s = ins.operands[0], ins.operands[1]
    if isinstance(s, ast.Sym):
        # A kernel parameter's address is already generic.
        variable = cg.program.variables.get(s.name)
        if variable is not None and variable.space in ("kernelparam", "global", "const"):
            window = 0
    if kind == "u32":
        raise Unsupported("32-bit generic addresses")
    if window == 0:
        if not cg.move(d, s):
            cg.set(d, kind, cg.src(s, kind))
        return
    op = "-" if to_space else "+"
    cg.set(d, kind, f"{cg.src(s, kind)} {op} {cg.const(kind, window)}")


@emits("isspacep")
def _isspacep(cg: Context, ins: ast.Instruction) -> None:
    x = cg.src(ins.operands[1], "u64")
    cg.set(ins.operands[0], "p", cg.call("isspace", x, repr(ins.parts[1])))


@emits("selp")
def _selp(cg: Context, ins: ast.Instruction) -> None:
    kind = kind_of(ins.parts[-1])
    a, b = cg.bits(ins.operands[1], kind), cg.bits(ins.operands[2], kind)
    cg.set(ins.operands[0], plain(kind), f"where({cg.src(ins.operands[3], 'p')}, {a}, {b})")


@emits("slct")
def _slct(cg: Context, ins: ast.Instruction) -> None:
    kind = kind_of(ins.parts[-2])
    a, b = cg.bits(ins.operands[1], kind), cg.bits(ins.operands[2], kind)
    c = cg.src(ins.operands[3], kind_of(ins.parts[-1]))
    c = f"flush_f32({c})" if "ftz" in ins.parts else c
    cg.set(ins.operands[0], plain(kind), f"where({c} >= 0, {a}, {b})")


# Comparison -------------------------------------------------------------------------------------------

_ORDERED = {"eq": "({a} == {b})", "ne": "({a} != {b})", "lt": "({a} < {b})", "le": "({a} <= {b})",
            "gt": "({a} > {b})", "ge": "({a} >= {b})", "lo": "({a} < {b})", "ls": "({a} <= {b})",
            "hi": "({a} > {b})", "hs": "({a} >= {b})"}  # fmt: skip
_FLOAT = {**_ORDERED, "ne": "(({a} < {b}) | ({a} > {b}))", "equ": "~(({a} < {b}) | ({a} > {b}))",
          "neu": "({a} != {b})", "ltu": "~({a} >= {b})", "leu": "~({a} > {b})", "gtu": "~({a} <= {b})",
          "geu": "~({a} < {b})", "num": "(({a} == {a}) & ({b} == {b}))",
          "nan": "(({a} != {a}) | ({b} != {b}))"}  # fmt: skip


def compare(cg: Context, operator: str, type_name: str, x: ast.Operand, y: ast.Operand, ftz: bool) -> str:
    """An expression of the comparison; for packed types of shape [..., 2]."""
    if is_integer(type_name):
        kind = kind_of(type_name)
        if operator in ("lo", "ls", "hi", "hs"):
            kind = "u" + kind[1:]
        if operator not in _ORDERED:
            raise Unsupported(f"comparison .{operator}")
        return _ORDERED[operator].format(a=cg.src(x, kind), b=cg.src(y, kind))
    a = cg.let(load_float(cg, x, type_name, ftz))
    b = cg.let(load_float(cg, y, type_name, ftz))
    if operator not in _FLOAT:
        raise Unsupported(f"comparison .{operator}")
    return _FLOAT[operator].format(a=a, b=b)


def _combine(result: str, how: str | None, third: str | None) -> str:
    if how is None or third is None:
        return result
    return f"({result} {({'and': '&', 'or': '|', 'xor': '^'})[how]} {third})"


@emits("setp")
def _setp(cg: Context, ins: ast.Instruction) -> None:
    p = ins.parts
    operator, type_name = p[1], p[-1]
    how = next((x for x in p[2:-1] if x in ("and", "or", "xor")), None)
    d = ins.operands[0]
    result = cg.let(compare(cg, operator, type_name, ins.operands[1], ins.operands[2], "ftz" in p))
    third = cg.src(ins.operands[3], "p") if len(ins.operands) > 3 else None
    first, second = (d.first, d.second) if isinstance(d, ast.Pair) else (d, None)
    if type_name in ("f16x2", "bf16x2"):
        cg.set(first, "p", _combine(f"{result}[..., 0]", how, third))
        if second is not None:
            cg.set(second, "p", _combine(f"{result}[..., 1]", how, third))
        return
    cg.set(first, "p", _combine(result, how, third))
    if second is not None and not (isinstance(second, ast.Sym) and second.name == "_"):
        cg.set(second, "p", _combine(f"~{result}", how, third))


@emits("set")
def _set(cg: Context, ins: ast.Instruction) -> None:
    p = ins.parts
    dtype, stype = p[-2], p[-1]
    how = next((x for x in p[2:-2] if x in ("and", "or", "xor")), None)
    result = compare(cg, p[1], stype, ins.operands[1], ins.operands[2], "ftz" in p)
    third = cg.src(ins.operands[3], "p") if len(ins.operands) > 3 else None
    if third is not None and stype in ("f16x2", "bf16x2"):
        third = f"np.asarray({third})[..., None]"
    r = cg.let(_combine(result, how, third))
    if stype in ("f16x2", "bf16x2"):
        one = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(dtype, 0xFFFF)
        zero, yes = cg.const("u16", 0), cg.const("u16", one)
        cg.set(ins.operands[0], "u32", f"packed(where({r}, {yes}, {zero}))")
        return
    kind = kind_of(dtype)
    if dtype == "bf16":
        cg.set(ins.operands[0], "u16", f"where({r}, {cg.const('u16', 0x3F80)}, {cg.const('u16', 0)})")
    elif kind[0] == "f":
        cg.set(ins.operands[0], kind, f"where({r}, {cg.const(kind, 1.0)}, {cg.const(kind, 0.0)})")
    else:
        u = "u" + kind[1:]
        cg.set(ins.operands[0], u, f"where({r}, {cg.const(u, -1)}, {cg.const(u, 0)})")
