# SPDX-License-Identifier: Apache-2.0
"""Where each accumulator moves between its registers and Tensor Memory: at the accesses, where all of them are
understood and one load or store serves them; else at every wait and MMA, which is right whatever the accesses do."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.text import Span
from porter.model.accumulators import Accumulator, AccumulatorParam
from porter.model.coherence import Problem, check, place_loads, place_stores
from porter.model.events import Kind, events_of
from porter.model.functions import Function, Style
from porter.model.mentions import Mention, Mentions
from porter.model.scopes import LOOPS, resolve
from porter.model.tracking import Holder, Tracked, track
from porter.model.uses import Use
from porter.passes.context import PortContext
from porter.passes.overloads import asks_type


@dataclass(eq=False)
class Moves:
    """By accumulator the statements in front of which it is loaded, and behind which it is stored; and
    those whose registers are kept true."""

    loads: dict[Accumulator, list[Node]] = field(default_factory=dict)
    stores: dict[Accumulator, list[Node]] = field(default_factory=dict)
    tracked: list[Tracked] = field(default_factory=list)
    problems: dict[Accumulator, list[Problem]] = field(default_factory=dict)
    """What is wrong with loads and stores at the accesses."""


def place_moves(context: PortContext) -> Moves:
    """Decide for every accumulator; what cannot be ported either way is reported."""
    mentions = Mentions(context.program, context.accumulators)
    kept = _kept_params(context, mentions)
    context.kept_params = {id(p) for p in kept}
    moves = Moves()
    for accumulator in context.accumulators.accumulators:
        if (misfit := _misfit(context, accumulator)) is not None:
            _report(context, accumulator, misfit)
            continue
        carried = [p for p in kept if p in _carriers(context, accumulator)]
        why = _not_followed(context, mentions, accumulator, moves)
        if carried:
            names = ", ".join(f"`{p.function.qualified_name or 'a lambda'}`" for p in carried)
            why = [f"its registers are used in {names}", *why]
        if not why:
            continue
        original = [p.what for p in moves.problems[accumulator] if p.of_original]
        if original:
            _refuse(context, accumulator, moves, original, Code.ACCUMULATOR_IN_FLIGHT)
            continue
        moves.loads[accumulator] = []
        moves.stores[accumulator] = []
        context.flow.keep_registers_true(accumulator)
        if accumulator.home.field_name:
            # the waits of an object's methods do not see the object
            _refuse(context, accumulator, moves, why, Code.OBJECT_NOT_FOLLOWED)
            continue
        _track(context, mentions, moves, [Holder(accumulator), *(Holder(accumulator, p) for p in carried)], why[0])
    return moves


def _misfit(context: PortContext, accumulator: Accumulator) -> Problem | None:
    """What is wrong if MMAs are known to have fewer registers than there are, or more: moves are of all of them."""
    events = events_of(context.flow.flow(accumulator.function))
    multiplies = [e for e in events if e.kind is Kind.MMA and e.accumulator is accumulator]
    known = context.program.constants_in(accumulator.function)
    for event in sorted(multiplies, key=lambda e: e.registers):
        if not accumulator.home.may_hold(event.registers, known):
            what = (
                f"an MMA has {event.registers} of its registers, and there are others; give a tile an array of its own"
            )
            return Problem(accumulator, event.node, what, code=Code.ACCUMULATOR_SHAPE)
    return None


def _track(context: PortContext, mentions: Mentions, moves: Moves, holders: list[Holder], why: str) -> None:
    for holder in holders:
        if holder.param is not None and any(t.holder.param is holder.param for t in moves.tracked):
            continue
        tracked = track(context.flow, mentions, holder, why, context.kept_params)
        for problem in tracked.problems:
            _report(context, holder.accumulator, problem)
        moves.tracked.append(tracked)
    context.helpers.tracked = True
    owner = holders[0].accumulator
    context.report(
        Code.REGISTERS_KEPT_TRUE,
        owner.function,
        owner.function.span(owner.variable.declaration or owner.function.body),
        name=owner.name,
        why=why,
    )


def _not_followed(context: PortContext, mentions: Mentions, accumulator: Accumulator, moves: Moves) -> list[str]:
    """Why loads and stores cannot be placed at the accesses; places them if they can."""
    flow = context.flow
    moves.loads[accumulator] = place_loads(flow, accumulator)
    moves.stores[accumulator] = place_stores(flow, accumulator)
    why = [f"`{name}` names it in a way that is not understood" for name, _ in flow.unseen_macros(accumulator)]
    moves.problems[accumulator] = check(flow, accumulator)
    why += [p.what for p in moves.problems[accumulator]]
    if flow.jumps(accumulator.function.body):
        why.append("jumps of `goto` are not followed")
    events = events_of(flow.flow(accumulator.function))
    multiplies = [e.node for e in events if e.kind is Kind.MMA and e.accumulator is accumulator]
    named = mentions.of(accumulator, flow.zeroing_of(accumulator))
    if accumulator.home.field_name:
        return why + [_what(m) for m in named if not _in_object(context, accumulator, m, multiplies)]
    for mention in named:
        if _is_late(mention, multiplies):
            followed = flow.has_visited(accumulator.function, mention.offset, change=False)
        else:
            changes = mention.use in (Use.WRITE, Use.UPDATE)
            followed = flow.has_visited(accumulator.function, mention.offset, change=changes)
            followed = followed and mention.use is not Use.UNKNOWN
        if followed:
            continue
        why.append(_what(mention))
    return why


def _in_object(context: PortContext, accumulator: Accumulator, mention: Mention, multiplies: list[Node]) -> bool:
    """Whether what is done to an object, or in one of its methods, is followed, or comes behind all MMAs."""
    seen = context.flow.has_visited(mention.function, mention.offset, change=False)
    if mention.function is accumulator.function:
        return seen and (mention.use is not Use.UNKNOWN or _is_late(mention, multiplies))
    if mention.use is not Use.UNKNOWN and mention.function.style is Style.METHOD:
        # a call of a method is an access to its object
        return True
    if mention.use is not Use.UNKNOWN:
        return seen
    calls = context.program.callers(mention.function)
    places = [Mention(c.caller, c.caller.span(c.node).start, "", Use.UNKNOWN) for c in calls]
    return bool(places) and all(p.function is accumulator.function and _is_late(p, multiplies) for p in places)


def _what(mention: Mention) -> str:
    line = mention.function.file.lines.line_column(mention.offset)[0]
    return f"what line {line} does with `{mention.text}` is not understood"


def _is_late(mention: Mention, multiplies: list[Node]) -> bool:
    """Whether no MMA can follow: what then becomes of the registers is nobody's business."""
    if any(m.end_byte > mention.offset for m in multiplies):
        return False
    node: Node | None = mention.function.file.root.descendant_for_byte_range(mention.offset, mention.offset + 1)
    while node is not None and node.id != mention.function.body.id:
        if node.type == "lambda_expression":
            return False
        if node.type in LOOPS and any(node.start_byte <= m.start_byte < node.end_byte for m in multiplies):
            return False
        node = node.parent
    return True


def _kept_params(context: PortContext, mentions: Mentions) -> list[AccumulatorParam]:
    """Parameters whose registers, or their type, a function uses itself, or hands to one that does."""
    params = [p for found in context.accumulators.params.values() for p in found]
    used = (p for p in params if p.function.style is not Style.MACRO)
    kept = [p for p in used if mentions.of_param(p) or asks_type(context, p)]
    while True:
        more = [
            p
            for p in params
            if p not in kept
            and p.function.style is not Style.MACRO
            and any(a.param in kept and _source(context, a.call.caller, a.registers.root, a.registers.name) is p
                    for found in context.accumulators.arguments.values() for a in found)
        ]  # fmt: skip
        if not more:
            return kept
        kept += more


def _source(context: PortContext, caller: Function, root: Node, name: str) -> AccumulatorParam | None:
    variable = resolve(caller, root, name)
    if variable is None or variable.param is None:
        return None
    found = context.accumulators.params_of(variable.function)
    return next((p for p in found if any(q.name == name for q in p.params)), None)


def _carriers(context: PortContext, accumulator: Accumulator) -> list[AccumulatorParam]:
    """Every parameter that may carry the accumulator."""
    found = [a.param for a in accumulator.arguments]
    for param in found:
        for arguments in context.accumulators.arguments.values():
            for a in arguments:
                inner = _source(context, a.call.caller, a.registers.root, a.registers.name)
                if inner is param and a.param not in found:
                    found.append(a.param)
    return found


def _refuse(context: PortContext, accumulator: Accumulator, moves: Moves, why: list[str], code: Code) -> None:
    """Report at the places that the checks name, and what these say; else at the declaration as `code`."""
    at = accumulator.variable.declaration or accumulator.function.body
    known = {p.what: p for p in reversed(moves.problems.get(accumulator, ()))}
    for what in dict.fromkeys(why):
        _report(context, accumulator, known.get(what) or Problem(accumulator, at, what, code=code))


def _report(context: PortContext, accumulator: Accumulator, problem: Problem) -> None:
    function = accumulator.function
    context.report(
        problem.code,
        function,
        Span(problem.node.start_byte + function.shift, problem.node.end_byte + function.shift),
        what=f"`{accumulator.name}`: {problem.what}",
    )
