# SPDX-License-Identifier: Apache-2.0
"""Accumulators move to Tensor Memory: parameters, arguments, declarations and zeroing follow."""

from __future__ import annotations

from dataclasses import replace

from tree_sitter import Node

from porter.lang.text import Span
from porter.model.accumulators import Accumulator, AccumulatorArgument, AccumulatorParam
from porter.model.empty_calls import is_register_fence_call
from porter.model.functions import Call, Function, Style
from porter.model.homes import TilePlace
from porter.model.scopes import LOOPS, resolve
from porter.model.zeroing import Zeroing
from porter.passes import emit, overloads
from porter.passes.columns import Columns
from porter.passes.context import PortContext, qualified
from porter.ptx.types import ElementType

RULE = "PTR100"
RULE_ZERO = "PTR101"
RULE_REGISTER_FENCE = "PTR102"


def rewrite_params(context: PortContext) -> None:
    """Functions that were handed registers are handed the tile."""
    for params in context.accumulators.params.values():
        for param in params:
            _rewrite_param(context, param)
            for declaration in context.program.declarations(param.function):
                declared = _in_declaration(param, declaration)
                if id(param) in context.kept_params:
                    _add_tile(context, replace(param, params=declared.params), declaration)
                else:
                    _rewrite_param(context, declared)
    for arguments in context.accumulators.arguments.values():
        for argument in arguments:
            _rewrite_argument(context, argument)


def _in_declaration(param: AccumulatorParam, declaration: Function) -> AccumulatorParam:
    """The same parameter where the function is declared without a body."""
    params = [declaration.params[p.index] for p in param.params]
    own = [declaration.text(n) if n is not None else "" for n in params[0].extents]
    extents = param.extents if param.path else own
    return AccumulatorParam(declaration, params, param.depth, param.path, extents)


def _rewrite_param(context: PortContext, param: AccumulatorParam) -> None:
    function = param.function
    if function.style is Style.MACRO:
        return
    if id(param) in context.kept_params:
        _add_tile(context, param, function)
        return
    if overloads.keeps_declaration(param):
        return
    tile = _tile_type(context, param)
    if param.is_scalars:
        text = f"{tile}& {context.names.scalar_param(param.name)}"
    elif param.depth == 0:
        text = f"{tile}& {param.name}"
    else:
        extents = "".join(f"[{e}]" for e in param.extents[: param.depth])
        # an array whose first extent is left out is passed as a pointer
        text = f"{tile} {param.name}{extents}" if extents.startswith("[]") else f"{tile} (&{param.name}){extents}"
    if not param.name:
        text = text.replace("& ", "&")
    span = Span(param.params[0].span.start, param.params[-1].span.end)
    context.edit_once(RULE, function, span, text)


def _add_tile(context: PortContext, param: AccumulatorParam, function: Function) -> None:
    """A parameter for the tile behind the registers, which stay."""
    name = context.names.kept_tile(param)
    tile = _tile_type(context, param)
    extents = "".join(f"[{e}]" for e in param.extents[: param.depth])
    text = f", {tile} (&{name}){extents}" if extents else f", {tile}& {name}"
    at = param.params[-1].span.end
    context.edit_once(RULE, function, Span(at, at), text)


def _tile_type(context: PortContext, param: AccumulatorParam) -> str:
    """`Accumulator`, or `Tile<registers>` where the number of registers has to show in the type."""
    text = overloads.class_text(param) if context.helpers.class_tiles else ""
    if text and param.function not in overloads.clashing(context):
        return f"{qualified('TileOf')}<{text}>"
    if not context.helpers.count_type:
        return qualified("Accumulator")
    if param.is_scalars:
        return f"{qualified('Tile')}<{len(param.params)}>"
    function = param.function
    extents = [function.text(n) for n in param.params[0].extents[param.depth :] if n is not None]
    if not extents:
        return qualified("Accumulator")
    product = " * ".join(e if len(extents) == 1 or e.isidentifier() or e.isdigit() else f"({e})" for e in extents)
    return f"{qualified('Tile')}<{product}>"


def _rewrite_argument(context: PortContext, argument: AccumulatorArgument) -> None:
    caller = argument.call.caller
    registers = argument.registers
    first = argument.call.args[argument.args.start]
    last = argument.call.args[argument.args.stop - 1]
    span = Span(caller.span(first).start, caller.span(last).end)
    variable = resolve(caller, registers.root, registers.name)
    accumulator = context.accumulators.held_by(variable)
    if accumulator is not None:
        depth = accumulator.home.depth - argument.param.depth
        text = context.names.tile(accumulator) + "".join(f"[{s}]" for s in registers.prefix[:depth])
    elif variable is not None and variable.param is not None:
        name = context.names.scalar_param(registers.name) if registers.is_scalars else registers.name
        carried = next((p for p in context.accumulators.params_of(variable.function) if p.name == registers.name), None)
        if carried is not None and id(carried) in context.kept_params:
            name = context.names.kept_tile(carried)
        depth = (carried.depth if carried is not None else 0) - argument.param.depth
        text = name + "".join(f"[{s}]" for s in registers.prefix[: max(depth, 0)])
    else:
        return
    if argument.param.path and id(argument.param) not in context.kept_params:
        _qualify(context, argument)
    if id(argument.param) in context.kept_params:
        context.edit(RULE, caller, Span(span.end, span.end), f", {text}")
    elif caller.file.source[span.start : span.end].decode("utf-8", "replace") != text:
        context.edit(RULE, caller, span, text)


def _qualify(context: PortContext, argument: AccumulatorArgument) -> None:
    """A function that was found by the namespace of its argument's class is named with it: the tile is of another."""
    call, target = argument.call, argument.param.function
    callee = call.node.child_by_field_name("function")
    names = context.program.names
    symbol = names.index.symbols.get(id(target))
    if callee is None or callee.type not in ("identifier", "template_function") or symbol is None:
        return
    if target not in names.functions_named(call.caller, callee) and not symbol.scope.is_class:
        at = call.name_span.start
        context.edit_once(RULE, call.caller, Span(at, at), f"{symbol.scope.qualified}::")


def declare_tiles(context: PortContext, columns: Columns) -> None:
    """Declare all tiles."""
    for accumulator in context.accumulators.accumulators:
        _declare(context, accumulator, columns.first[accumulator])


def _declare(context: PortContext, accumulator: Accumulator, first_column: str) -> None:
    """Declare the tile beside its registers, or give the one that the class declares its columns."""
    function, home = accumulator.function, accumulator.home
    assert accumulator.variable.declaration is not None
    type_name, braces = qualified("Accumulator"), ("{", "}")
    if context.helpers.class_tiles and home.holder_type:
        type_name, braces = f"{qualified('TileOf')}<{home.holder_type}>", ("{{", "}}")
    elif context.helpers.count_type:
        type_name, braces = f"{qualified('Tile')}<{home.register_count(accumulator.registers)}>", ("{{", "}}")
    name, warpgroup = context.names.tile(accumulator), context.names.warpgroup
    tracked = context.helpers.tracked
    place = TilePlace(name, type_name, braces, warpgroup, first_column, accumulator.size, tracked)
    context.helpers.tile_arrays |= home.has_tile_array
    pad = context.indent(function, function.span(accumulator.variable.declaration))
    at = function.span(home.end_of_declaration()).end
    context.edit(RULE, function, Span(at, at), "".join(f"\n{pad}{line}" for line in home.declaration(place)))


def declare_members(context: PortContext) -> None:
    """Give classes that hold registers their tile, and the moves between the two that the port uses."""
    done: set[tuple[str, str]] = set()
    for member, step in context.accumulators.member_steps:
        if member.key in done:
            continue
        done.add(member.key)
        body = member.class_node.child_by_field_name("body")
        assert body is not None
        mirror = context.helpers.mirror(step.element, step.op.d_type is ElementType.F16)
        tile = context.names.member(member)
        pad = context.indent(member.method, member.method.span(member.declaration))
        moves = [
            {"move": move, "call": qualified(move + mirror.suffix)}
            for move in sorted(context.member_moves.get(member.owner, ()))
        ]
        own = {"member": member.name, "stem": member.stem, "tile": tile, "tile_type": qualified("Accumulator")}
        lines = emit.lines("member", moves=moves, **own).splitlines()
        text = "\n" + "".join(f"\n{pad}{line}" for line in lines)
        if not _ends_open(member.method, member.class_node, body):
            outer = context.indent(member.method, member.method.span(member.class_node))
            text = f"\n\n{outer}  public:{text[1:]}"
        # values that are listed for the members keep their places
        at = member.method.span(body.named_children[-1]).end
        source = member.method.file.source
        if source[at : at + 1] == b";":
            at += 1
        context.edit(RULE, member.method, Span(at, at), text + ("" if source[at : at + 1] == b"\n" else f"\n{pad}"))


def _ends_open(method: Function, class_node: Node, body: Node) -> bool:
    """Whether what stands last in a class is public."""
    named = [method.text(c).strip(": ") for c in body.children if c.type == "access_specifier"]
    return named[-1] == "public" if named else class_node.type != "class_specifier"


def rewrite_zeroing(context: PortContext) -> None:
    """Zeroing the registers becomes an overwrite by the next MMA."""
    for zeroing in context.flow.zeroing.values():
        _rewrite_zeroing(context, zeroing)


def _rewrite_zeroing(context: PortContext, zeroing: Zeroing) -> None:
    function = zeroing.function
    if zeroing.is_declaration:
        for accumulator in zeroing.accumulators:
            _drop_initializer(context, accumulator)
        return
    span = Span(context.before(function, zeroing.node).start, function.span(zeroing.node).end)
    fresh = [a for a in zeroing.accumulators if _follows_declaration(a, zeroing.node)]
    cleared = [a for a in zeroing.accumulators if a not in fresh]
    pad = context.indent(function, function.span(zeroing.node))
    source = function.file.source
    if not cleared:
        # a new tile starts out cleared
        start = source.rfind(b"\n", 0, span.start) + 1
        end = source.find(b"\n", span.end)
        whole = source[start : span.start].strip() == b"" and source[span.end : end].strip() == b""
        context.edit(RULE_ZERO, function, Span(start, end + 1) if whole else span, "")
        return
    context.helpers.uses_clear = True
    lines = []
    for accumulator in cleared:
        tile = accumulator.home.tile_in(function, context.names.beside)
        lines.append(accumulator.home.cleared(tile, zeroing.tile, qualified("clear")))
    # a method clears the tile of whichever object it is called on
    lines = list(dict.fromkeys(lines))
    lead = pad if span.start == source.rfind(b"\n", 0, span.start) + 1 else ""
    context.edit(RULE_ZERO, function, span, lead + f"\n{pad}".join(lines))


def _follows_declaration(accumulator: Accumulator, node: Node) -> bool:
    """Whether the statement runs exactly once after each declaration, before any MMA can."""
    declaration = accumulator.variable.declaration
    if declaration is None or declaration.parent is None or node.parent is None:
        return False
    if declaration.parent.id != node.parent.id:
        return False
    between = [
        c
        for c in node.parent.named_children
        if declaration.end_byte <= c.start_byte < node.start_byte and c.type not in ("comment", "preproc_call")
    ]
    return all(c.type == "declaration" for c in between)


def _drop_initializer(context: PortContext, accumulator: Accumulator) -> None:
    """The registers are written by the load before anything reads them."""
    function, found = accumulator.function, accumulator.home.initializer()
    if found is not None:
        declarator, value = found
        context.edit(RULE_ZERO, function, Span(function.span(declarator).end, function.span(value).end), "")


def remove_register_fences(context: PortContext) -> None:
    """Calls that only pinned accumulator registers have nothing to pin any more."""
    for function in context.program.functions:
        for call in function.calls:
            if not is_register_fence_call(context.program, call) or len(call.args) != 1:
                continue
            root = call.args[0]
            while root.named_children and root.type != "identifier":
                root = root.named_children[0]
            if root.type != "identifier":
                continue
            if context.accumulators.held_by(resolve(function, root, function.text(root))) is None:
                continue
            drop_fence(context, function, call)


def drop_fence(context: PortContext, function: Function, call: Call) -> None:
    """Take out a call that only pinned registers, with the loop that holds nothing else."""
    statement = call.node.parent
    if statement is None or statement.type != "expression_statement":
        return
    statement = _only_content_of(statement)
    span = Span(context.before(function, statement).start, function.span(statement).end)
    source = function.file.source
    start, end = source.rfind(b"\n", 0, span.start) + 1, source.find(b"\n", span.end)
    whole = source[start : span.start].strip() == b"" and source[span.end : end].strip() == b""
    context.edit(RULE_REGISTER_FENCE, function, Span(start, end + 1) if whole else span, "" if whole else ";")


def _only_content_of(statement: Node) -> Node:
    """The outermost loop or block that holds nothing but the statement."""
    while statement.parent is not None:
        parent = statement.parent
        if parent.type in ("for_statement", "for_range_loop", "while_statement"):
            statement = parent
        elif parent.type == "compound_statement" and parent.parent is not None and parent.parent.type in LOOPS:
            inner = [c for c in parent.named_children if c.type not in ("comment", "preproc_call")]
            if len(inner) != 1:
                break
            statement = parent
        else:
            break
    return statement
