# SPDX-License-Identifier: Apache-2.0
"""Columns of accumulators as constant expressions at another place than their declaration: names that mean something
else there, or nothing, are written as what they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import as_bytes
from porter.model.accumulators import Accumulator
from porter.model.constants import enumerator_texts, variable_text
from porter.model.functions import Function, outermost
from porter.model.program import Program
from porter.model.scopes import resolve

_NAME = re.compile(r"(?<![\w.])(?<!::)(?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*")
_WORDS = frozenset(
    ("sizeof", "typename", "template", "decltype", "const", "unsigned", "signed", "int", "long", "short", "float")
)
"""Words that mean the same everywhere."""
_DEEPEST = 8
"""Definitions of definitions that are followed."""


@dataclass(frozen=True)
class Spot:
    """A place in a function: in front of `node`."""

    function: Function
    node: Node


def declared_at(accumulator: Accumulator) -> Spot:
    """Where an accumulator's declaration begins."""
    assert accumulator.variable.declaration is not None
    return Spot(accumulator.function, accumulator.variable.declaration)


def behind(accumulator: Accumulator) -> Spot:
    """The place behind an accumulator's declaration."""
    end = accumulator.home.end_of_declaration()
    return Spot(accumulator.function, end.next_sibling or end)


def may_be_given(program: Program, function: Function, text: str) -> bool:
    """Whether an expression rests on a macro for which the compiler's command line may give another value than the
    sources do: its definition holds where it has none."""
    work, seen = [(program.constants_in(function), text)], set[str]()
    while work:
        constants, text = work.pop()
        for name in set(re.findall(r"[A-Za-z_][\w:]*", text)) - seen:
            seen.add(name)
            asked = re.compile(rb"#[ \t]*(?:ifn?def[ \t]+|(?:el)?if\b.*\bdefined\b.*\b)%b\b" % as_bytes(name))
            files = program.sources.files.values() if name in program.macros.by_name else ()
            if any(asked.search(f.lexed.code) for f in files):
                return True
            meant = constants.meant(name)
            if meant is not None and meant.text:
                work.append((meant.where or constants, meant.text))
    return False


def columns_at(program: Program, accumulator: Accumulator, spot: Spot) -> str | None:
    """Columns of all tiles of an accumulator as an expression at a place; None if nothing there says it."""
    home, size = accumulator.home, accumulator.size
    by_class = home.class_columns(size)
    origin = declared_at(accumulator)
    if by_class:
        return visible(program, by_class, origin, spot)
    factors: list[str] = []
    for factor in home.column_factors(size) or [""]:
        found = visible(program, factor, origin, spot)
        if not found:
            return None
        factors.append(_in_brackets(found))
    return _simplified(factors)


def names_it(accumulator: Accumulator, spot: Spot) -> bool:
    """Whether the name of an accumulator means it at a place."""
    variable = resolve(spot.function, spot.node, accumulator.name)
    return variable is not None and not variable.ambiguous and variable.key == accumulator.variable.key


def greatest(texts: Sequence[str]) -> str:
    """The greatest of some expressions."""
    numbers = [int(t) for t in texts if t.isdigit()]
    text, *others = dict.fromkeys([*(t for t in texts if not t.isdigit()), *([str(max(numbers))] if numbers else [])])
    for other in others:
        text = f"(({text}) > ({other}) ? ({text}) : ({other}))"
    return text


def _simplified(factors: list[str]) -> str:
    """The product with its plain numbers multiplied out; `2 * (N / 16) * 8` is `N`."""
    number = 1
    rest = []
    for factor in factors:
        if factor.isdigit():
            number *= int(factor)
        else:
            rest.append(factor)
    for i, factor in enumerate(rest):
        match = re.fullmatch(r"\(([\w:]+) / (\d+)\)", factor)
        if match and number == int(match.group(2)):
            # an m64nN tile has whole groups of N, so the division leaves no remainder
            rest[i], number = match.group(1), 1
            break
    if number != 1 or not rest:
        rest.insert(0, str(number))
    return " * ".join(rest)


def visible(program: Program, text: str, origin: Spot, spot: Spot, depth: int = 0) -> str | None:
    """An expression at `origin` as one that means the same at `spot`."""
    if depth > _DEEPEST:
        return None
    result, cursor = "", 0
    for match in _NAME.finditer(text):
        name = match.group()
        replacement: str | None = name
        if name not in _WORDS and not name.startswith("::"):
            replacement = _spelled(program, name, origin, spot, depth)
        if replacement is None:
            return None
        result += text[cursor : match.start()] + replacement
        cursor = match.end()
    return result + text[cursor:]


def _spelled(program: Program, name: str, origin: Spot, spot: Spot, depth: int) -> str | None:
    """A name, or what stands for it at `spot`."""
    first = name.partition("::")[0]
    if first in program.macros.by_name:
        return _of_macro(program, name, origin, spot, depth)
    here, there = _local(origin, first), _local(spot, first)
    owner = outermost(origin.function)
    if here is not None:
        if there is not None and there.key == here.key:
            return name
        value = _value(program, origin, name) if owner is not outermost(spot.function) else None
        text = visible(program, here.text, here.spot, spot, depth + 1) if here.text and "::" not in name else None
        return value or (f"({text})" if text else None)
    if there is None and owner is outermost(spot.function):
        inner = origin.function is not owner and first in origin.function.template_params
        if not inner and _means_the_same(program, first, origin, spot):
            return name
        return _value(program, origin, name) or _of_alias(program, name, origin, spot, depth)
    constants = program.constants_in
    if there is None and constants(spot.function).agrees(constants(origin.function), name):
        return name
    return _value(program, origin, name) or _given(program, origin.function, name, spot, depth)


def _in_brackets(text: str) -> str:
    """An expression as part of another one."""
    return text if re.fullmatch(r"[\w:]+|\([^()]*\)", text) else f"({text})"


def _value(program: Program, origin: Spot, name: str) -> str | None:
    inside = _local(origin, name) is not None or origin.function is not outermost(origin.function)
    constants = program.constants_in if inside else program.constants_around
    value = constants(origin.function).evaluate(name)
    given = value is None or value < 0 or may_be_given(program, origin.function, name)
    return None if given else str(value)


@dataclass(frozen=True)
class _Local:
    """What a function declares under a name: equal keys are the same thing. `text` is the constant's, and what it
    means at `spot`; empty for what is none."""

    key: object
    text: str
    spot: Spot


def _local(spot: Spot, name: str) -> _Local | None:
    """The variable or enumerator of a function that a name means at a place."""
    variable = resolve(spot.function, spot.node, name)
    at = variable.declaration if variable is not None else None
    for node in _enumerations(spot.node):
        texts = enumerator_texts(node, spot.function.text)
        if name in texts and (at is None or at.start_byte < node.start_byte):
            return _Local(node.id, texts[name], Spot(spot.function, node))
    if variable is None:
        return None
    if at is None or variable.declarator is None or variable.ambiguous:
        return _Local(object() if variable.ambiguous else variable.key, "", spot)
    text = variable_text(at, variable.declarator, variable.function.text)
    return _Local(variable.key, text, Spot(variable.function, at))


def _enumerations(node: Node) -> Iterator[Node]:
    """Enumerations of a function whose names are seen at a place, innermost first."""
    current = node.parent
    while current is not None and current.type != "translation_unit":
        if current.type == "compound_statement":
            in_front = [c for c in current.named_children if c.start_byte < node.start_byte]
            for child in reversed(in_front):
                kind = child.child_by_field_name("type") if child.type == "declaration" else child
                scoped = kind is None or any(c.type in ("class", "struct") for c in kind.children)
                if kind is not None and kind.type == "enum_specifier" and not scoped:
                    yield kind
        current = current.parent


def _of_alias(program: Program, name: str, origin: Spot, spot: Spot, depth: int) -> str | None:
    """A name that begins with an alias which a function declares, with what that stands for."""
    lookup, (first, colons, rest) = program.names.lookup, name.partition("::")
    found = lookup.unqualified(lookup.site(origin.function, origin.node), first)
    if len(found.aliases) != 1 or found.classes or (holder := found.aliases[0].holder) is None:
        return None
    node = found.aliases[0].type_node
    meant = visible(program, holder.text(node), Spot(holder, node), spot, depth + 1)
    return f"{meant}{colons}{rest}" if meant else None


def _means_the_same(program: Program, name: str, origin: Spot, spot: Spot) -> bool:
    """Whether a name that no variable has means the same at two places of a function."""
    lookup = program.names.lookup
    one, other = (lookup.unqualified(lookup.site(s.function, s.node), name) for s in (origin, spot))
    for classes, place in ((one.classes, spot), (other.classes, origin)):
        if any(c.file is place.function.file and c.node is not None and _inside(place, c.node) for c in classes):
            return False
    same = one.functions == other.functions and one.classes == other.classes and one.constants == other.constants
    same &= one.aliases == other.aliases and one.namespaces == other.namespaces
    return same and not any(_brings(outermost(spot.function), n, name) for n in _between(origin, spot))


def _inside(spot: Spot, node: Node) -> bool:
    """Whether a class is declared in the function of a place, and further down."""
    body = outermost(spot.function).body
    return body.start_byte <= node.start_byte < body.end_byte and node.start_byte >= spot.node.start_byte


def _between(origin: Spot, spot: Spot) -> list[Node]:
    """Declarations that bring names into a function and of which one of two places may not have what they bring."""
    found = find(outermost(origin.function).body, "using_declaration", "namespace_alias_definition")
    low, high = sorted((origin.node.start_byte, spot.node.start_byte))
    return [n for n in found if n.start_byte < high and (n.start_byte >= low or not _around(n, low))]


def _around(node: Node, at: int) -> bool:
    """Whether the block of a declaration holds a place."""
    block = node.parent
    return block is not None and block.start_byte <= at < block.end_byte


def _brings(function: Function, node: Node, name: str) -> bool:
    """Whether a declaration may give a name a meaning: a directive may give it to any."""
    text = function.text(node)
    return re.search(rf"\busing\s+namespace\b|\b{re.escape(name)}\b", text) is not None


def _of_macro(program: Program, name: str, origin: Spot, spot: Spot, depth: int) -> str | None:
    """A macro's name where it is the same at two places, and so is what its text names; else what it stands for."""
    definitions = program.macros.by_name.get(name, [])
    plain = len(definitions) == 1 and definitions[0].params is None
    text = definitions[0].joined.decode("utf-8", "replace") if plain else ""
    meant = visible(program, text, origin, spot, depth + 1) if text else None
    if meant == text and macro_holds(program, name, spot):
        return name
    return _value(program, origin, name) or (f"({meant})" if meant else None)


def macro_holds(program: Program, name: str, spot: Spot) -> bool:
    """Whether a macro is defined at a place, and the same behind it."""
    undone = re.compile(rb"#[ \t]*undef[ \t]+%b\b" % re.escape(as_bytes(name)))
    if len(program.macros.by_name.get(name, ())) != 1:
        return False
    at = spot.node.start_byte + spot.function.shift
    later = any(m.name == name and m.span.end > at for m in spot.function.file.lexed.macros())
    return not later and not any(undone.search(f.source) for f in program.sources.files.values())


def _given(program: Program, function: Function, name: str, spot: Spot, depth: int) -> str | None:
    """What the callers of a function pass for a parameter of its template, if all pass the same."""
    if name not in function.template_params:
        return None
    index = function.template_params.index(name)
    found = {
        (id(c.caller), c.template_args[index]): (Spot(c.caller, c.node), c.template_args[index])
        for c in program.callers(function)
        if index < len(c.template_args)
    }
    if len(found) != 1:
        return None
    where, text = next(iter(found.values()))
    inner = visible(program, text, where, spot, depth + 1)
    return _in_brackets(inner) if inner else None
