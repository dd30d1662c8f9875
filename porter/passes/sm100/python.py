# SPDX-License-Identifier: Apache-2.0
"""Checks of CuTe DSL sources for SM100."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import libcst as cst

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.cute_dsl import DslFile, Function
from porter.lang.python import walk
from porter.model.dsl.names import Names
from porter.passes.sm100.findings import Load, load_findings
from porter.passes.sm100.signs import Sign, load_shape, signs_in
from porter.rules.match import Match
from porter.rules.rule import Region, Rule


def python_findings(file: DslFile, rules: Sequence[Rule], known: Names) -> list[Diagnostic]:
    """Everything that is found in one file. `known`: what names are, as rules say."""
    names = list(file.references())
    nodes: dict[tuple[str, int], cst.BaseExpression] = {}

    def matches(rule: Rule) -> Iterator[Match]:
        for node, name in names:
            if rule.region is Region.NAME and rule.pattern is not None and rule.pattern.fullmatch(name):
                where = file.span(node)
                nodes[rule.id, where.start] = node
                yield Match(rule, file.path, where, name, None)

    signs = signs_in(rules, matches)
    node_of = {id(s): nodes[s.rule.id, s.start] for same in signs.values() for s in same}

    def call_of(sign: Sign) -> cst.Call | None:
        return file.calls.get(node_of[id(sign)])

    found = list(_hopper(file, names, known))
    repetitions = {node_of[id(s)]: s for s in signs.get("repetition", ())}
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


def _hopper(file: DslFile, names: Sequence[tuple[cst.BaseExpression, str]], known: Names) -> Iterator[Diagnostic]:
    first: dict[str, tuple[cst.BaseExpression, int]] = {}
    for node, name in names:
        if known.hopper_only(name):
            earliest, times = first.get(name, (node, 0))
            first[name] = earliest, times + 1
    for name, (node, times) in first.items():
        counted = f" ({times} times)" if times > 1 else ""
        yield Diagnostic(Code.HOPPER_LEFT, file.location(file.span(node)), {"name": name, "times": counted})


def _repetition(call: cst.Call, known: Mapping[cst.BaseExpression, Sign]) -> int | None:
    """The repetition that a call is given as a member of its class, or as a number."""
    for argument in (a.value for a in call.args):
        named = argument.func if isinstance(argument, cst.Call) else argument
        sign = known.get(named)
        if sign is None:
            continue
        if sign.given["count"]:
            return int(sign.given["count"])
        match argument:
            case cst.Call(args=[cst.Arg(value=cst.Integer() as number)]):
                return number.evaluated_value
    return None


def _unwaited(
    file: DslFile, copies: Sequence[cst.Call], uses: Sequence[cst.Call], waits: Sequence[cst.Call]
) -> Iterator[Diagnostic]:
    """In one function: a copy is made, called, and what it wrote is named with no wait between."""
    for function in file.functions():
        inside = set(walk(function))
        made = {name for c in copies if c in inside and (name := _assigned(function, c))}
        there = sorted(file.line(w) for w in waits if w in inside)
        for use in (u for u in uses if u in inside):
            match [a.value for a in use.args if a.keyword is None]:
                case [cst.Name(value=copy), _, written, *_] if copy in made:
                    later = _named_later(file, function, written, use)
                    if later is not None and not any(file.line(use) <= at <= file.line(later) for at in there):
                        yield Diagnostic(Code.T2R_UNWAITED, file.location(file.span(later)), {"name": copy})
                        break


def _assigned(function: Function, call: cst.Call) -> str | None:
    """The variable that the result of a call is kept in."""
    for node in walk(function):
        match node:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value) if value is call:
                return name
    return None


def _named_later(file: DslFile, function: Function, written: cst.CSTNode, use: cst.Call) -> cst.Name | None:
    """The first place behind a call that names the variable that it wrote."""
    base = written
    while isinstance(base, (cst.Subscript, cst.Attribute)):
        base = base.value
    if not isinstance(base, cst.Name):
        return None
    end = file.lines.line_column(file.span(use).end)[0]
    later = [n for n in walk(function) if isinstance(n, cst.Name) and n.value == base.value and file.line(n) > end]
    return min(later, key=lambda n: file.span(n).start, default=None)
