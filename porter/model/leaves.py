# SPDX-License-Identifier: Apache-2.0
"""Calls that a rule speaks for and whose body is at hand: the body is not read for the port, and the rule is held to
it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from porter.model.facts import TENSOR_CORE, Commit, Fact, Fence, Mma, Wait
from porter.model.functions import Call, Function, Style
from porter.model.names.resolver import Names
from porter.model.recognition import Answer, Recognizer
from porter.model.scopes import LOOPS, PREPROCESSOR_BLOCKS
from porter.model.tensor_core import MmaStep, Step, SyncStep, Unsupported, tensor_core_steps, without_cast

_DEPTH = 8
_STEPS: Mapping[type[Fact], Step] = {Mma: Step.MMA, Fence: Step.FENCE, Commit: Step.COMMIT, Wait: Step.WAIT}
_WORD = re.compile(r"(?<![\w.>:])[A-Za-z_]\w*")


@dataclass(frozen=True)
class Reading:
    """What reading bodies takes: what names mean, and what constant expressions in a function come to."""

    names: Names
    value: Callable[[Function, str], int | None]


class _Unclear(Exception):
    """A body that nobody can hold a rule to. The text says why."""


def disagreement(reading: Reading, call: Call, answer: Answer) -> str:
    """In what the body of a called function is not what a rule says of the call; empty if it is the same."""
    assert answer.recognizer is not None
    fact = answer.fact
    targets = reading.names.resolve(call).targets
    if len(targets) != 1:
        return "the call may reach several functions"
    try:
        found = list(_steps(reading, targets[0], _arguments(call, targets[0]), 0))
    except (Unsupported, _Unclear) as reason:
        return f"the body cannot be compared: {reason}"
    kinds = " and ".join(_shown(step) for step, _ in found) or "no instruction of the tensor core"
    if len(found) != 1 or not isinstance(fact, TENSOR_CORE) or found[0][0].kind is not _STEPS[type(fact)]:
        return f"the body has {kinds}"
    step, given = found[0]
    if isinstance(step, MmaStep) and isinstance(fact, Mma):
        return _other_mma(reading, call, fact, step, given)
    if (
        isinstance(step, SyncStep)
        and isinstance(fact, Wait)
        and not _same(reading, call, fact.pending, step.pending, given)
    ):
        return f"the body waits for `{_put_in(step.pending, given)}`, the rule says `{fact.pending}`"
    return ""


def _shown(step: MmaStep | SyncStep) -> str:
    return f"an m64n{step.op.n}k{step.op.k} MMA" if isinstance(step, MmaStep) else f"a {step.kind.value}"


def _other_mma(reading: Reading, call: Call, fact: Mma, step: MmaStep, given: Mapping[str, str]) -> str:
    if fact.op != step.op:
        types = ".".join(t.value for t in (step.op.d_type, step.op.a_type, step.op.b_type))
        return f"the body issues m64n{step.op.n}k{step.op.k} of {types}, the rule says {fact.shape} of {fact.types}"
    if step.a_registers:
        return "the body has A in registers"
    d = "".join([step.d.name, *(f"[{s}]" for s in step.d.prefix)])
    pairs = [("d", fact.d, d), ("a", fact.a, step.a), ("b", fact.b, step.b), ("scale_d", fact.scale_d, step.scale_d)]
    defaults = {"negate_a": "1", "negate_b": "1", "transpose_a": "0", "transpose_b": "0"}
    pairs += [(name, getattr(fact, name), getattr(step, name) or default) for name, default in defaults.items()]
    for name, said, does in pairs:
        if not _same(reading, call, said, does, given):
            return f"`{name}` of the body is `{_put_in(does, given)}`, the rule says `{said}`"
    return ""


def _same(reading: Reading, call: Call, said: str, does: str, given: Mapping[str, str]) -> bool:
    """Whether a text of a rule is what a text of the body comes to."""
    body = _put_in(without_cast(does), given)
    if _plain(without_cast(said)) == _plain(body):
        return True
    values = [reading.value(call.caller, t) for t in (said, body)]
    return values[0] is not None and values[0] == values[1]


def _plain(text: str) -> str:
    bare = "".join(text.split())
    while bare.startswith("(") and bare.endswith(")") and bare.count("(") == 1:
        bare = bare[1:-1]
    return bare


def _put_in(text: str, given: Mapping[str, str]) -> str:
    """A text of a body with the caller's arguments for its parameters."""

    def one(match: re.Match[str]) -> str:
        value = given.get(match[0], match[0])
        return value if re.fullmatch(r"[\w.]+", value) else f"({value})"

    return _WORD.sub(one, text)


def _arguments(call: Call, target: Function, outer: Mapping[str, str] | None = None) -> dict[str, str]:
    """What parameters of a function and its template stand for at a call, in names of the outermost caller."""
    texts = [call.caller.text(a) for a in call.args]
    found = dict(zip((p.name for p in target.params), texts, strict=False))
    found |= dict(zip(target.template_params, call.template_args, strict=False))
    return {name: _put_in(text, outer) if outer else text for name, text in found.items() if name}


def _steps(
    reading: Reading, function: Function, given: Mapping[str, str], depth: int
) -> Iterator[tuple[MmaStep | SyncStep, Mapping[str, str]]]:
    """What a function does on the tensor core, with what its names stand for.

    Raises:
        _Unclear: something in it is done more than once, or not always.
    """
    if depth > _DEPTH:
        raise _Unclear("calls nest too deep")
    for statement in function.asm:
        steps = tensor_core_steps(function, statement)
        if steps and _is_reached(reading, function, statement.node, given):
            yield from ((step, given) for step in steps)
    for call in function.calls:
        for target in reading.names.resolve(call).targets:
            inner = list(_steps(reading, target, _arguments(call, target, given), depth + 1))
            if inner and _is_reached(reading, function, call.node, given):
                yield from inner


def _is_reached(reading: Reading, function: Function, node: Node, given: Mapping[str, str]) -> bool:
    """Whether a function comes by a statement exactly once; False in an arm of `if constexpr` that is not taken."""
    while node.parent is not None and node.id != function.body.id:
        inner, node = node, node.parent
        if node.type in (
            *LOOPS,
            "switch_statement",
            "conditional_expression",
            "lambda_expression",
            *PREPROCESSOR_BLOCKS,
        ):
            raise _Unclear("it stands in a loop or behind a condition")
        if node.type != "if_statement":
            continue
        condition = node.child_by_field_name("condition")
        constant = any(c.type == "constexpr" for c in node.children)
        named = [c for c in condition.named_children if c.type != "comment"] if condition is not None else []
        known = constant and len(named) == 1
        value = reading.value(function, _put_in(function.text(named[0]), given)) if known else None
        if value is None:
            raise _Unclear("it stands behind a condition that is not known")
        alternative = node.child_by_field_name("alternative")
        is_alternative = alternative is not None and alternative.id == inner.id
        if is_alternative == bool(value):
            return False
    return True


def emptied(
    functions: Sequence[Function],
    callers: Callable[[Function], Sequence[Call]],
    leaves: Mapping[int, Recognizer | None],
) -> dict[int, Recognizer | None]:
    """The functions that nothing calls but calls that rules speak for, and what only they call, by id with what
    recognized them. `leaves` are those that such calls reach."""
    found = {id(f): leaves[id(f)] for f in functions if id(f) in leaves and not callers(f)}
    for _ in range(_DEPTH):
        more = dict(found)
        for function in functions:
            calls = callers(function)
            if id(function) in found or function.style in (Style.KERNEL, Style.HOST) or not calls:
                continue
            if all(id(c.caller) in found for c in calls):
                more[id(function)] = found[id(calls[0].caller)]
        if more == found:
            break
        found = more
    return found
