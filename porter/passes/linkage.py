# SPDX-License-Identifier: Apache-2.0
"""Device functions that other translation units may call, and whose parameters a port changes.

With relocatable device code a function without `static`, `inline` or an unnamed namespace is called from translation
units that know its declaration alone. The port hands it a tile where the original has registers, so that those would
not link; they are not read with this file, so the function is named.

Sources: C++20 [basic.link], [dcl.inline]; CUDA C++ Programming Guide, separate compilation (nvcc -rdc=true).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from tree_sitter import Node

from porter.diagnostics import Code, Diagnostic, PorterError
from porter.lang.cuda import CudaFile, enclosing, find, function_specifiers, location
from porter.lang.neighbours import units_around
from porter.lang.sources import SourceSet, is_header, load_sources
from porter.lang.text import Edit, as_bytes
from porter.model.function_reader import declarations_of
from porter.model.functions import Function, Style
from porter.model.program import Program

_OF_ONE_UNIT = frozenset({"static", "inline", "__inline__", "__inline", "__forceinline__", "constexpr", "consteval"})


def called_from_elsewhere(program: Program, edits: Mapping[str, Sequence[Edit]]) -> list[Diagnostic]:
    """Functions whose names or parameters are edited and that another translation unit calls, or that nothing but one
    can call."""
    root = program.sources.root
    places = _starts(edits)
    changed = [f for f in program.functions if f.style in (Style.DEVICE, Style.METHOD) and _is_edited(f, places)]
    if not changed:
        return []
    instances, pointers = _instances(program), _pointers(program, {f.name for f in changed})
    found: list[Diagnostic] = []
    told: set[int] = set()
    for function in changed:
        names = {function.name, function.owner.rpartition("::")[2]} if function.template_params else ()
        where = next((instances[n] for n in names if n in instances), None)
        if where is not None:
            found.append(_said(function, f"{where} instantiates it for other translation units"))
        elif function.name in pointers:
            found.append(_said(function, f"{pointers[function.name]} takes its address"))
        else:
            continue
        told.add(id(function))
    exported = [f for f in changed if id(f) not in told and not is_header(Path(root)) and _has_external_linkage(f)]
    if not exported:
        return found
    reached = program.reached(program.kernels, program.functions)
    users = _Users(program.sources)
    for function in exported:
        if (where := users.of(function)) is not None:
            found.append(_said(function, f"{where} calls it"))
        elif id(function) not in reached and function.file.path == root:
            declared = any(d.name == function.name for d in program.forward)
            if declared or not (program.kernels or users.include_root()):
                found.append(_said(function, "no kernel of this file comes to it, so another translation unit does"))
    return found


def _said(function: Function, why: str) -> Diagnostic:
    assert function.name_span is not None
    values = {"name": function.name, "why": why}
    return Diagnostic(Code.EXTERNAL_FUNCTION, location(function.file, function.name_span), values)


def _starts(edits: Mapping[str, Iterable[Edit]]) -> dict[str, list[int]]:
    """Where edits begin, in order, by file."""
    found: dict[str, list[int]] = defaultdict(list)
    for edit in (e for of_rule in edits.values() for e in of_rule):
        found[edit.path].append(edit.span.start)
    return {path: sorted(starts) for path, starts in found.items()}


def _is_edited(function: Function, places: Mapping[str, list[int]]) -> bool:
    """Whether the name or the parameters of a function become others."""
    starts = places.get(function.file.path, [])
    spans = [s for s in (function.name_span, function.params_span) if s is not None]
    return any(bisect_left(starts, s.start) < bisect_right(starts, s.end) for s in spans)


def _has_external_linkage(function: Function) -> bool:
    """Whether other translation units can call a function that is defined in one of them."""
    node = function.node
    if function.template_params or function_specifiers(function.file, node) & _OF_ONE_UNIT:
        return False
    if enclosing(node, "class_specifier", "struct_specifier", "union_specifier", "lambda_expression") is not None:
        # what is defined in its class is inline
        return False
    around = enclosing(node, "namespace_definition")
    while around is not None:
        if around.child_by_field_name("name") is None:
            return False
        around = enclosing(around, "namespace_definition")
    return True


def _instances(program: Program) -> dict[str, str]:
    """Names in the heads of explicit instantiations, with their places."""
    found: dict[str, str] = {}
    for file in program.sources.files.values():
        for node in find(file.root, "template_instantiation"):
            head = file.text(node).partition("(")[0]
            if not head.lstrip().startswith("extern"):
                found |= {word: str(file.location(node)) for word in re.findall(r"[A-Za-z_]\w*", head)}
    return found


def _pointers(program: Program, names: Collection[str]) -> dict[str, str]:
    """Functions of these names that are put into pointers, and where."""
    found: dict[str, str] = {}
    for file in program.sources.files.values():
        for holder in find(file.root, *_HOLDERS):
            declared = holder.child_by_field_name("declarator")
            for node in holder.named_children:
                name = file.text(node) if node.type == "identifier" and node != declared else ""
                if name in names and name not in found:
                    inside = enclosing(node, "function_definition")
                    if inside is None or not _is_declared(file, inside, name):
                        found[name] = str(file.location(node))
    return found


_HOLDERS = ("initializer_list", "init_declarator", "pointer_expression")


def _is_declared(file: CudaFile, inside: Node, name: str) -> bool:
    """Whether a function has a variable or parameter of a name."""
    kinds = ("parameter_declaration", "declaration")
    return any(
        file.text(n) == name
        for d in find(inside, *kinds)
        for c in d.children_by_field_name("declarator")
        for n in find(c, "identifier")
    )


class _Users:
    """Other translation units around a source set that call functions which they do not define."""

    def __init__(self, sources: SourceSet) -> None:
        self._sources = sources
        self._units: dict[Path, SourceSet | None] = {}

    @cached_property
    def _around(self) -> dict[Path, bytes]:
        return dict(units_around(Path(self._sources.root), {Path(path).resolve() for path in self._sources.files}))

    def of(self, function: Function) -> str | None:
        """The first place of such a call."""
        call = re.compile(rb"\b" + re.escape(as_bytes(function.name)) + rb"\s*(?:<[^<>;{}]*>\s*)?\(")
        for path, text in self._around.items():
            if call.search(text) and (place := self._calls(path, function)) is not None:
                return place
        return None

    def include_root(self) -> bool:
        """Whether another translation unit includes the set's root: then that one has its functions."""
        name = re.escape(Path(self._sources.root).name.encode())
        line = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*["<](?:[^"<>\n]*/)?' + name + rb'[">]', re.MULTILINE)
        return any(line.search(text) for text in self._around.values())

    def _calls(self, path: Path, function: Function) -> str | None:
        unit = self._unit(path)
        if unit is None or not _declares(unit, function):
            return None
        for node in find(unit.main.root, "call_expression"):
            called = node.child_by_field_name("function")
            if called is not None and _last_word(unit.main.text(called)) == function.name:
                return str(unit.main.location(node))
        return None

    def _unit(self, path: Path) -> SourceSet | None:
        if path not in self._units:
            try:
                self._units[path] = load_sources(path, self._sources.include_dirs)
            except PorterError:
                self._units[path] = None
        return self._units[path]


def _declares(unit: SourceSet, function: Function) -> bool:
    """Whether a unit knows a device function by its declaration alone."""
    for file in unit.files.values():
        for node in find(file.root, "function_definition"):
            head = file.text(node.child_by_field_name("declarator") or node).partition("(")[0]
            if _last_word(head) == function.name:
                return False
    return any(
        d.name == function.name
        and len(d.params) == len(function.params)
        and "__device__" in function_specifiers(d.file, d.node)
        for file in unit.files.values()
        for d in declarations_of(file)
    )


def _last_word(text: str) -> str:
    words = re.findall(r"[A-Za-z_]\w*", re.sub(r"<.*", "", text))
    return words[-1] if words else ""
