# SPDX-License-Identifier: Apache-2.0
"""Functions of the sources that only open, close or wait for a batch, by asm statements: their calls do it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from porter.model.facts import Commit, Fence, Wait
from porter.model.functions import Call, Function, Style
from porter.model.program import Program, TensorCoreStatement
from porter.model.tensor_core import Step, SyncStep
from porter.model.tiled.accumulators import Synchronization

_ASSERTION = re.compile(r"[A-Z][A-Z0-9_]*ASSERT\w*\s*\(.*\)\s*;?", re.DOTALL)
_IGNORED = ("comment", "static_assert_declaration", "preproc_call")


def take_own(program: Program) -> tuple[list[Synchronization], list[Function]]:
    """Places that synchronize by asm of the sources' own, and the functions whose bodies are of no use any more. Their
    statements leave the program. What a wait leaves pending is empty if a call does not say it."""
    found: list[Synchronization] = []
    emptied: list[Function] = []
    kept: list[TensorCoreStatement] = []
    for statement in program.statements:
        function, step = statement.function, statement.steps[0]
        whole = len(statement.steps) == 1 and statement.answer is None and isinstance(step, SyncStep)
        if not whole or not isinstance(step, SyncStep) or function.style is Style.MACRO:
            kept.append(statement)
        elif _is_wrapper(function):
            emptied.append(function)
            found += _calls(program, function, _fact(step), emptied)
        else:
            node, span = statement.statement.node, statement.statement.span
            call = Call(function, node, "asm", span, (), (), span)
            found.append(Synchronization(call, _fact(step)))
    program.statements = kept
    return found, emptied


def _fact(step: SyncStep) -> Fence | Commit | Wait:
    if step.kind is Step.WAIT:
        return Wait(step.pending)
    return Fence() if step.kind is Step.FENCE else Commit()


def _is_wrapper(function: Function) -> bool:
    """Whether a function has nothing in it but one asm statement, checks of constants aside."""
    if function.style not in (Style.DEVICE, Style.METHOD) or len(function.asm) != 1:
        return False
    return _does_one_thing(function)


def _does_one_thing(function: Function) -> bool:
    """Whether a function is one statement, which everybody comes to."""
    inner = [n for n in function.body.named_children if n.type not in _IGNORED]
    # an assertion about constants by a macro
    left = [n for n in inner if not _ASSERTION.fullmatch(function.text(n))]
    return len(left) == 1 and left[0].type == "expression_statement"


def _calls(
    program: Program, function: Function, fact: Fence | Commit | Wait, emptied: list[Function]
) -> Iterator[Synchronization]:
    """Calls of a function that is nothing but this fact; of one that does nothing but call it, those of that."""
    for call in program.callers(function):
        meant = Wait(_given(function, call, fact.pending)) if isinstance(fact, Wait) else fact
        outer = call.caller
        alone = outer.style in (Style.DEVICE, Style.METHOD) and len(outer.calls) == 1 and _does_one_thing(outer)
        if alone and outer not in emptied:
            emptied.append(outer)
            yield from _calls(program, outer, meant, emptied)
        else:
            yield Synchronization(call, meant)


def _given(function: Function, call: Call, text: str) -> str:
    """What a parameter of a function, or of its template, is in a call."""
    if text in function.template_params:
        index = function.template_params.index(text)
        return call.template_args[index] if index < len(call.template_args) else ""
    param = function.param(text)
    if param is not None:
        return call.caller.text(call.args[param.index]) if param.index < len(call.args) else ""
    return text
