# SPDX-License-Identifier: Apache-2.0
"""Checks of CuTe DSL sources for SM100."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.cute_dsl import DslFile, Function
from porter.model.dsl.names import Names
from porter.passes.sm100.findings import Load, load_findings
from porter.passes.sm100.signs import Sign, load_shape, signs_in
from porter.rules.match import Match
from porter.rules.rule import Region, Rule


def python_findings(file: DslFile, rules: Sequence[Rule], known: Names) -> list[Diagnostic]:
    """Everything that is found in one file. `known`: what names are, as rules say."""
    names = list(file.references())
    nodes: dict[tuple[str, int], ast.expr] = {}

    def matches(rule: Rule) -> Iterator[Match]:
        for node, name in names:
            if rule.region is Region.NAME and rule.pattern is not None and rule.pattern.fullmatch(name):
                where = file.span(node)
                nodes[rule.id, where.start] = node
                yield Match(rule, file.path, where, name, None)

    signs = signs_in(rules, matches)
    node_of = {id(s): nodes[s.rule.id, s.start] for same in signs.values() for s in same}

    def call_of(sign: Sign) -> ast.Call | None:
        return file.calls.get(node_of[id(sign)])

    found = list(_hopper(file, names, known))
    repetitions = {id(node_of[id(s)]): s for s in signs.get("repetition", ())}
    for sign in signs.get("load", ()):
        call, shape = call_of(sign), load_shape(sign)
        count = _repetition(call, repetitions) if call is not None else None
        if shape is not None and count is not None:
            name = sign.match.text.rpartition(".")[2]
            found += load_findings(Load(f"{name} x{count}", shape, count, _place(file, sign)), None)
    copies = [c for s in signs.get("copy", ()) if (c := call_of(s)) is not None]
    uses = [c for s in signs.get("use", ()) if (c := call_of(s)) is not None]
    waits = [c for s in signs.get("wait", ()) if (c := call_of(s)) is not None]
    found += _unwaited(file, copies, uses, waits)
    allocated = signs.get("allocate", ())
    if allocated and not signs.get("release"):
        found.append(Diagnostic(Code.TMEM_KEPT, _place(file, allocated[0])))
    return found


def _place(file: DslFile, sign: Sign) -> Location:
    return file.location(sign.match.span)


def _hopper(file: DslFile, names: Sequence[tuple[ast.expr, str]], known: Names) -> Iterator[Diagnostic]:
    first: dict[str, tuple[ast.expr, int]] = {}
    for node, name in names:
        if known.hopper_only(name):
            earliest, times = first.get(name, (node, 0))
            first[name] = earliest, times + 1
    for name, (node, times) in first.items():
        counted = f" ({times} times)" if times > 1 else ""
        yield Diagnostic(Code.HOPPER_LEFT, file.location(file.span(node)), {"name": name, "times": counted})


def _repetition(call: ast.Call, known: dict[int, Sign]) -> int | None:
    """The repetition that a call is given as a member of its class, or as a number."""
    for argument in (*call.args, *(k.value for k in call.keywords)):
        named = argument.func if isinstance(argument, ast.Call) else argument
        sign = known.get(id(named))
        if sign is None:
            continue
        if sign.given["count"]:
            return int(sign.given["count"])
        match argument:
            case ast.Call(args=[ast.Constant(value=int() as number)]):
                return number
    return None


def _unwaited(
    file: DslFile, copies: Sequence[ast.Call], uses: Sequence[ast.Call], waits: Sequence[ast.Call]
) -> Iterator[Diagnostic]:
    """In one function: a copy is made, called, and what it wrote is named with no wait between."""
    for function in file.functions():
        inside = {id(n) for n in ast.walk(function)}
        made = {name for c in copies if id(c) in inside and (name := _assigned(function, c))}
        there = sorted(w.lineno for w in waits if id(w) in inside)
        for use in (u for u in uses if id(u) in inside):
            match use.args:
                case [ast.Name(id=copy), _, written, *_] if copy in made:
                    later = _named_later(function, written, use)
                    if later is not None and not any(use.lineno <= at <= later.lineno for at in there):
                        yield Diagnostic(Code.T2R_UNWAITED, file.location(file.span(later)), {"name": copy})
                        break


def _assigned(function: Function, call: ast.Call) -> str | None:
    """The variable that the result of a call is kept in."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is call:
                return name
    return None


def _named_later(function: Function, written: ast.expr, use: ast.Call) -> ast.Name | None:
    """The first place behind a call that names the variable that it wrote."""
    base = written
    while isinstance(base, (ast.Subscript, ast.Attribute)):
        base = base.value
    if not isinstance(base, ast.Name):
        return None
    end = use.end_lineno or use.lineno
    later = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == base.id and n.lineno > end]
    return min(later, key=lambda n: (n.lineno, n.col_offset), default=None)
