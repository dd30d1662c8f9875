# SPDX-License-Identifier: Apache-2.0
"""wgmma's fence, commit_group and wait_group become a warpgroup barrier and commits on a ring of mbarriers."""

from __future__ import annotations

from collections import Counter

from porter.lang.text import Span
from porter.model.facts import Commit, Fact, Fence, Wait
from porter.model.functions import Function, Style
from porter.model.tensor_core import MmaStep, Step
from porter.passes import mma_issue
from porter.passes.context import PortContext, qualified
from porter.passes.emitting import emitted

RULE = "PTR120"
RULE_CONTEXT = "PTR121"


_FACTS: dict[Step, type[Fact]] = {Step.FENCE: Fence, Step.COMMIT: Commit, Step.WAIT: Wait}


def rewrite_statements(context: PortContext) -> None:
    """Replace every asm statement that holds wgmma."""
    blocks: dict[int, Counter[int]] = {}
    for statement in context.program.statements:
        function = statement.function
        lines: list[str] = []
        rule = RULE
        for step in statement.steps:
            if isinstance(step, MmaStep):
                rule = mma_issue.RULE
                if id(function) not in blocks:
                    blocks[id(function)] = mma_issue.mmas_in_blocks(function)
                named = mma_issue.can_name(statement, blocks[id(function)]) and "idesc" not in context.claimed
                emitter, written = mma_issue.rewrite(context, statement, step, named)
                lines += written
            else:
                emitter, text = emitted(context, statement, _FACTS[step.kind], {"pending": step.pending}, {})
                lines.append(text)
        recognizer = statement.answer.recognizer if statement.answer is not None else None
        if emitter is not None and emitter.is_user:
            rule = emitter.rule
        elif recognizer is not None and recognizer.is_user:
            # nothing but the rule says what the call is
            rule = recognizer.rule
        span = statement.statement.span
        text = ("\n" + context.indent(function, span)).join(lines)
        if not function.file.source[span.start : span.end].rstrip().endswith(b";"):
            text = text.rstrip(";")
        context.edit(rule, function, span, text)


def thread_context(context: PortContext) -> None:
    """Hand the warpgroup's state to every function that commits or waits, from the kernel down."""
    name = context.names.warpgroup
    declaration = f"{qualified('Warpgroup')}& {name}"
    for function in context.program.functions:
        if context.takes_context_param(function):
            add_first_parameter(context, RULE_CONTEXT, function, name, declaration)
            for forward in context.program.declarations(function):
                add_first_parameter(context, RULE_CONTEXT, forward, name, declaration)
        for call in function.calls:
            targets = context.program.targets(call)
            if any(context.takes_context_param(t) for t in targets):
                at = call.args_span.start
                separator = ", " if call.args else ""
                context.edit(RULE_CONTEXT, function, Span(at, at), name + separator)


def add_first_parameter(context: PortContext, rule: str, function: Function, name: str, declaration: str) -> None:
    """Put a parameter in front of those of a function, a lambda or a statement macro."""
    if function.style is Style.MACRO:
        at = _macro_params(function)
        text = name + (", " if function.params else "")
        context.edit(rule, function, Span(at, at), text)
        return
    if function.params_span is None:
        captures = function.node.child_by_field_name("captures")
        at = captures.end_byte if captures is not None else function.node.start_byte
        context.edit(rule, function, Span(at, at), f"({declaration})")
        return
    inside = function.file.source[function.params_span.start : function.params_span.end].strip()
    if inside == b"void":
        context.edit_once(rule, function, function.params_span, declaration)
        return
    at = function.params_span.start
    context.edit_once(rule, function, Span(at, at), declaration + (", " if function.params else ""))


def _macro_params(function: Function) -> int:
    """Offset just inside the parenthesis of a macro's parameter list."""
    macro = function.asm[0].macro
    assert macro is not None
    return function.file.source.index(b"(", macro.span.start) + 1
