# SPDX-License-Identifier: Apache-2.0
"""What comes from registers is stored in Tensor Memory where a batch opens: an A operand that is used between there and
the batch's end, other than in its MMAs, may be another one by then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tree_sitter import Node

from porter.diagnostics import Code
from porter.model.facts import Commit, Zero
from porter.model.functions import Function, Style, outermost
from porter.model.scopes import Variable, resolve
from porter.model.tiled.accumulators import Multiply, Synchronization
from porter.model.tiled.operands import in_shared_memory, may_leave_registers
from porter.model.tiled.tensors import Key, initializer, names_in
from porter.passes.tiled.context import TiledContext

_WHAT = "operand `{name}` is used between the call that opens a batch and the batch's end"


def refuse_touched(context: TiledContext, opened: Synchronization) -> None:
    """In the function that opens a batch, and lambdas that stand there."""
    issues = context.batches.issues(opened)
    for issue in issues:
        holder = issue.holder
        variable = context.tiled.tensors.root(holder, issue.a)
        if variable is None or outermost(holder) is not outermost(opened.call.caller):
            continue
        if in_shared_memory(context.tiled, issue.multiply):
            continue
        start, end = opened.call.node.end_byte, _closed(context, opened.call.caller, issue.at.end_byte)
        touched = _touched(context, holder, variable, [i.at for i in issues], (start, end))
        if touched is not None:
            context.tiled.refuse(holder, touched, _WHAT.format(name=holder.text(touched)), Code.BATCH_NOT_FOLLOWED)


def refuse_touched_inside(context: TiledContext) -> None:
    """In functions that are called inside a batch."""
    for multiply in context.tiled.multiplies:
        if id(multiply.call.caller) not in context.reached or not may_leave_registers(context.tiled, multiply):
            continue
        for function, variable, calls in _inside(context, multiply):
            body = function.body
            touched = _touched(context, function, variable, calls, (body.start_byte, body.end_byte))
            if touched is not None:
                context.tiled.refuse(
                    function, touched, _WHAT.format(name=function.text(touched)), Code.BATCH_NOT_FOLLOWED
                )


def _inside(context: TiledContext, multiply: Multiply) -> Iterator[tuple[Function, Variable, list[Node]]]:
    """The functions between a multiply and those that open its batch, each with what it calls the first operand, and
    the calls that lead to the multiply."""
    tiled, caller = context.tiled, multiply.call.caller
    work = [(caller, tiled.viewed(caller, multiply.a), multiply.call.node)]
    found: dict[tuple[int, Key], tuple[Function, Variable, list[Node]]] = {}
    while work:
        function, variable, at = work.pop()
        while function.style is Style.LAMBDA and function.parent is not None and not tiled.program.callers(function):
            # it is run where it stands
            function = function.parent
        if variable is None or context.batches.opens(function):
            continue
        _, _, calls = found.setdefault((id(function), variable.key), (function, variable, []))
        calls.append(at)
        for call in tiled.program.callers(function) if len(calls) == 1 else ():
            handed: Variable | None = variable
            if variable.function is function:
                index = variable.param.index if variable.param is not None else len(call.args)
                handed = tiled.viewed(call.caller, call.args[index]) if index < len(call.args) else None
            work.append((call.caller, handed, call.node))
    yield from found.values()


def _closed(context: TiledContext, function: Function, start: int) -> int:
    """Where a batch ends that is open at an offset of a function."""
    ends = [
        s.call.node.start_byte
        for s in context.tiled.synchronizations
        if s.call.caller is function and s.call.node.start_byte > start and isinstance(s.fact, Commit)
    ]
    return min(ends, default=function.body.end_byte)


def _touched(
    context: TiledContext, function: Function, variable: Variable, issued: Sequence[Node], between: tuple[int, int]
) -> Node | None:
    """A mention of an operand or of a view of it between two offsets, other than in what issues MMAs."""
    nodes = [*issued, *(m.call.node for m in context.tiled.multiplies)]
    work, keys = [variable], {variable.key}
    while work:
        one = work.pop()
        for name in names_in(function, function.body):
            if not between[0] <= name.start_byte < between[1] or function.text(name) != one.name:
                continue
            if any(n.start_byte <= name.start_byte < n.end_byte for n in nodes):
                continue
            found = resolve(function, name, one.name)
            if found is None or found.key != one.key or _is_asked(context, function, name):
                continue
            view = _view(context, function, name, one)
            if view is None:
                return name
            if view.key not in keys:
                keys.add(view.key)
                work.append(view)
    return None


def _is_asked(context: TiledContext, function: Function, name: Node) -> bool:
    """Whether a name is only asked for its layout, or pinned."""
    above = name.parent.parent if name.parent is not None else None
    call = context.tiled.tensors.call(function, above) if above is not None else None
    if call is not None and isinstance(context.tiled.program.facts.of_call(call), Zero):
        return False
    return context.tiled.only_asked(function, name)


def _view(context: TiledContext, function: Function, name: Node, of: Variable) -> Variable | None:
    """The variable that a name is the declaration of, or that is declared there as a view of it."""
    declarator = name
    while declarator.type != "init_declarator":
        if declarator.parent is None or declarator.id == function.body.id:
            return None
        declarator = declarator.parent
    declared = declarator.child_by_field_name("declarator")
    while declared is not None and declared.type == "reference_declarator":
        declared = declared.named_children[0]
    if declared is None or declared.type != "identifier":
        return None
    if declared.id == name.id:
        return of
    view = Variable(function, function.text(declared), None, declarator.parent, declarator)
    value = initializer(view)
    root = context.tiled.tensors.root(function, value) if value is not None else None
    return view if root is not None and root.key == of.key else None
