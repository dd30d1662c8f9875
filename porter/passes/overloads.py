# SPDX-License-Identifier: Apache-2.0
"""Where the extent of a register array took part in overload resolution or template argument deduction, the tile
that replaces the array carries that extent in its type."""

from __future__ import annotations

import re

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.accumulators import AccumulatorParam
from porter.model.functions import Function, Style
from porter.passes.context import PortContext

DEFAULT_COUNT_TYPE = "int"


def choose_tile_types(context: PortContext) -> None:
    """Decide what tiles carry in their types."""
    context.helpers.count_type = count_type(context) or context.helpers.count_type
    context.helpers.class_tiles |= class_tiles(context)


def count_type(context: PortContext) -> str:
    """Type of the extents that tiles must carry; empty if none has to."""
    found = ""
    for params in context.accumulators.params.values():
        for param in params:
            deduced = _deduced_extent(context, param)
            found = deduced or found
    if not found and _collisions(context):
        found = DEFAULT_COUNT_TYPE
    return found


def class_tiles(context: PortContext) -> bool:
    """Whether tiles must carry the class that held their registers: where overloads or template arguments go by it."""
    for params in context.accumulators.params.values():
        for param in params:
            words = set(re.findall(r"\w+", class_text(param)))
            function = param.function
            for index, name in enumerate(function.template_params):
                if name in words and any(index >= len(c.template_args) for c in context.program.callers(function)):
                    return True
    for group in _overloads(context).values():
        classes = {tuple(class_text(p) for p in context.accumulators.params_of(f)) for f in group}
        if len(classes) > 1 and any(any(c) for c in classes):
            return True
    return False


def class_text(param: AccumulatorParam) -> str:
    """The class of a parameter of class type as it is written there; empty for arrays and for a type that is deduced
    as a whole."""
    node = param.params[0].node
    kind = node.child_by_field_name("type") if node is not None else None
    if param.path.count(".") != 1 or kind is None:
        return ""
    text = param.function.text(kind)
    return "" if text == "auto" or text in param.function.template_params else text


def keeps_declaration(param: AccumulatorParam) -> bool:
    """Whether the parameter's type is deduced as a whole (`T& d`, `auto& d`) and so fits the tile as it stands."""
    node = param.params[0].node
    if node is None or param.is_scalars or param.depth or param.params[0].array_extents:
        return False
    kind, declarator = node.child_by_field_name("type"), node.child_by_field_name("declarator")
    if kind is None or declarator is None or declarator.type != "reference_declarator":
        return False
    text = param.function.text(kind)
    return text == "auto" or text in param.function.template_params


def asks_type(context: PortContext, param: AccumulatorParam) -> bool:
    """Whether something in a function goes by the type of the registers that it is handed, which is not the tile's:
    `sizeof(d)`, a constraint or trait of the `D` in `D& d`, the `T` that calls deduce from `T (&d)[N]`."""
    function = param.function
    node: Node = function.node
    while node.parent is not None and node.parent.type == "template_declaration":
        node = node.parent
    names = {n for n in param.names if n}
    if any(function.text(n) in names and _is_measured(n, node) for n in find(node, "identifier")):
        return True
    own = param.params[0].node
    kind = own.child_by_field_name("type") if own is not None else None
    if kind is None or own is None:
        return False
    for index, name in enumerate(function.template_params):
        word = re.compile(rf"\b{re.escape(name)}\b")
        if name == "" or word.search(function.text(kind)) is None:
            continue
        given = [index < len(c.template_args) for c in context.program.callers(function)]
        if not keeps_declaration(param):
            return bool(param.params[0].array_extents) and not all(given)
        head = next(n for n in find(node, "template_parameter_list"))
        plain = any(n.type in _PLAIN_PARAMETERS and function.text(n).split()[-1] == name for n in head.named_children)
        text = function.file.lexed.plain[node.start_byte : node.end_byte].decode("utf-8", "replace")
        # its own declaration, and that of the registers
        return any(given) or not plain or len(word.findall(text)) > 2
    return False


_PLAIN_PARAMETERS = ("type_parameter_declaration", "variadic_type_parameter_declaration")
_MEASURING = ("sizeof_expression", "alignof_expression", "decltype", "noexcept", "requires_expression")


def _is_measured(node: Node, outermost: Node) -> bool:
    """Whether only the type of what an identifier names is asked for."""
    while node.parent is not None and node.id != outermost.id:
        node = node.parent
        if node.type in _MEASURING:
            return True
    return False


def clashing(context: PortContext) -> list[Function]:
    """Functions that hold the asm and would get the signature of an overload that forwards to them."""
    return [f for group in _overloads(context).values() for f in clashing_in(context, group)]


def clashing_in(context: PortContext, group: list[Function]) -> list[Function]:
    """Those of one name and scope."""
    signatures = [_signature(context, f) for f in group]
    called = _of_classes(context, group)
    if not any(_alike(s, t) for i, s in enumerate(signatures) for t in signatures[:i]):
        return called
    direct = [f for f in group if context.program.steps_in(f) or f in called]
    return direct if len(direct) < len(group) else []


def _of_classes(context: PortContext, group: list[Function]) -> list[Function]:
    """Functions that an overload calls with registers of a class, whose tile would lead back to the overload."""
    classes = [f for f in group if any(p.path for p in context.accumulators.params_of(f))]
    return [g for g in group if any(f is not g and g in context.program.targets(c) for f in classes for c in f.calls)]


def alike_but_for_type(context: PortContext) -> list[tuple[Function, str]]:
    """Overloads that only the type of their registers told apart, all but the first of each kind, and that type."""
    found: list[tuple[Function, str]] = []
    for group in _overloads(context).values():
        forwarding = clashing_in(context, group)
        kept: list[Function] = []
        for function in group:
            if function in forwarding:
                continue
            types = _register_types(context, function)
            alike = [k for k in kept if _alike(_signature(context, k), _signature(context, function))]
            if any(_register_types(context, k) != types for k in alike):
                found.append((function, "_".join(re.findall(r"\w+", types[0]))))
            else:
                kept.append(function)
    return found


def _register_types(context: PortContext, function: Function) -> tuple[str, ...]:
    """Types of registers, with what qualifies them."""
    found = []
    for param in context.accumulators.params_of(function):
        node = param.params[0].node
        kind = node.child_by_field_name("type") if node is not None else None
        parts = [c for c in node.children if c.type == "type_qualifier"] if node is not None else []
        found.append(" ".join(map(function.text, [*parts, *([kind] if kind is not None else [])])))
    return tuple(found)


_ANY = "tile of any count"
"""A parameter `float* d`, whose tile shows no count."""


def _alike(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether calls could not tell two signatures apart."""
    if len(one) != len(other):
        return False
    return all(
        a == b or (_ANY in (a, b) and a.startswith("tile ") and b.startswith("tile "))
        for a, b in zip(one, other, strict=True)
    )


def _overloads(context: PortContext) -> dict[tuple[str, str, str], list[Function]]:
    groups: dict[tuple[str, str, str], list[Function]] = {}
    for params in context.accumulators.params.values():
        function = params[0].function
        if function.name and function.style not in (Style.LAMBDA, Style.MACRO):
            groups.setdefault((function.file.path, function.owner, function.name), []).append(function)
    return {key: group for key, group in groups.items() if len(group) > 1}


def _signature(context: PortContext, function: Function) -> tuple[str, ...]:
    """Parameter types after the port, extents of tiles included."""
    carried = {p.index: a for a in context.accumulators.params_of(function) for p in a.params}
    texts: list[str] = []
    for param in function.params:
        accumulator = carried.get(param.index)
        if accumulator is None:
            text = function.file.text(param.span)
            texts.append(re.sub(rf"\b{re.escape(param.name)}\b", "", text).strip() if param.name else text)
        elif accumulator.params[0] is param:
            anything = not accumulator.is_scalars and not param.array_extents and not accumulator.path
            texts.append(_ANY if anything else f"tile {_count(context, accumulator)}")
    return tuple(texts)


def _count(context: PortContext, param: AccumulatorParam) -> int | str:
    if param.is_scalars:
        return len(param.params)
    product = "*".join(f"({param.function.text(n)})" for n in param.params[0].array_extents) or "1"
    value = context.program.value(param.function, product)
    return value if value is not None else product


def _collisions(context: PortContext) -> bool:
    """Whether overloads differ only by the extents of their accumulators."""
    for group in _overloads(context).values():
        renamed = clashing_in(context, group)
        signatures = [_signature(context, f) for f in group if f not in renamed]
        erased = [tuple("tile" if t.startswith("tile ") else t for t in s) for s in signatures]
        if len(set(erased)) < len(set(signatures)):
            return True
    return False


def _deduced_extent(context: PortContext, param: AccumulatorParam) -> str:
    """Type of a template parameter in the extents that some call leaves to deduction; empty if there is none."""
    function = param.function
    words = {w for n in param.params[0].array_extents for w in re.findall(r"\w+", function.text(n))}
    for index, name in enumerate(function.template_params):
        if name in words and any(index >= len(c.template_args) for c in context.program.callers(function)):
            return _template_parameter_type(function, index)
    return ""


def _template_parameter_type(function: Function, index: int) -> str:
    template = function.node.parent
    parameters = template.child_by_field_name("parameters") if template is not None else None
    if parameters is None or index >= len(parameters.named_children):
        return DEFAULT_COUNT_TYPE
    kind = parameters.named_children[index].child_by_field_name("type")
    return function.text(kind) if kind is not None else DEFAULT_COUNT_TYPE
