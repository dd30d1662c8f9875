# SPDX-License-Identifier: Apache-2.0
"""Wrappers named after wgmma are renamed after what they now issue."""

from __future__ import annotations

import re

from porter.lang.text import Span, as_bytes
from porter.model.functions import Function, Style
from porter.passes import overloads
from porter.passes.context import PortContext

RULE = "PTR150"

_OLD = re.compile(r"wgmma|WGMMA|Wgmma")
_NEW = {"wgmma": "umma", "WGMMA": "UMMA", "Wgmma": "Umma"}


def rename_wrappers(context: PortContext) -> None:
    """Device functions and macros that held wgmma, or were handed its accumulators; kernels keep their names."""
    program = context.program
    touched = {id(s.function) for s in program.statements} | set(context.accumulators.params)
    by_name: dict[str, list[Function]] = {}
    for function in program.functions:
        if function.name:
            by_name.setdefault(function.name, []).append(function)
    _separate_clashing(context)
    _separate_types(context)
    for name, functions in by_name.items():
        if any(f in context.renamed for f in functions):
            continue
        if not _OLD.search(name) or not all(id(f) in touched for f in functions):
            continue
        if any(f.style in (Style.KERNEL, Style.HOST) for f in functions):
            continue
        new = _OLD.sub(lambda m: _NEW[m.group()], name)
        places = _places(context, name, functions)
        if new in context.names.taken or places is None:
            continue
        context.names.taken.add(new)
        for function, span in places:
            context.edit(RULE, function, span, new)


def _separate_clashing(context: PortContext) -> None:
    """Give the function with the asm a name of its own where its new signature is that of its forwarder."""
    owners: dict[str, set[str]] = {}
    for function in overloads.clashing(context):
        if function.name_span is None:
            continue
        wanted = _OLD.sub(lambda m: _NEW[m.group()], function.name) + "_tile"
        # one name serves the classes of a family
        free = (n for n, taken in owners.items() if n.startswith(wanted) and not taken & {"", function.owner})
        new = next(free, "")
        if not new or not function.owner:
            new = context.names.fresh(wanted)
        owners.setdefault(new, set()).add(function.owner)
        context.renamed.append(function)
        context.edit(RULE, function, function.name_span, new)
        for call in context.program.callers(function):
            context.edit(RULE, call.caller, call.name_span, new)


def _separate_types(context: PortContext) -> None:
    """Give a name of its own to an overload that the type of its registers set apart: tiles have none."""
    for function, kind in overloads.alike_but_for_type(context):
        if function.name_span is None or function in context.renamed:
            continue
        new = context.names.fresh(_OLD.sub(lambda m: _NEW[m.group()], function.name) + f"_{kind}")
        context.renamed.append(function)
        context.edit(RULE, function, function.name_span, new)
        for declaration in context.program.declarations(function):
            if declaration.name_span is not None:
                context.edit_once(RULE, declaration, declaration.name_span, new)
        for call in context.program.callers(function):
            context.edit(RULE, call.caller, call.name_span, new)


def _places(context: PortContext, name: str, functions: list[Function]) -> list[tuple[Function, Span]] | None:
    """Every mention of the name: definitions and calls. None if it is mentioned in any other way."""
    places: dict[tuple[str, int], tuple[Function, Span]] = {}
    for function in functions:
        span = function.name_span if function.style is not Style.MACRO else _macro_name(function)
        if span is None:
            return None
        places[(function.file.path, span.start)] = (function, span)
    for forward in context.program.forward:
        if forward.name == name and forward.name_span is not None:
            places[(forward.file.path, forward.name_span.start)] = (forward, forward.name_span)
    for function in context.program.functions:
        for call in function.calls:
            if call.name == name:
                places[(function.file.path, call.name_span.start)] = (function, call.name_span)
    mentions = 0
    for path, file in context.program.sources.files.items():
        for match in re.finditer(rb"\b" + as_bytes(name) + rb"\b", file.lexed.code):
            mentions += 1
            if (path, match.start()) not in places:
                return None
    return list(places.values()) if mentions == len(places) else None


def _macro_name(function: Function) -> Span | None:
    macro = function.asm[0].macro if function.asm else None
    if macro is None:
        return None
    at = function.file.source.index(as_bytes(macro.name), macro.span.start)
    return Span(at, at + len(macro.name))
