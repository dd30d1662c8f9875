# SPDX-License-Identifier: Apache-2.0
"""The text that stands for an instruction: that of the emitter which fits best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from porter.diagnostics import Code
from porter.lang.text import Span
from porter.model.facts import Fact, kind_name
from porter.model.functions import Function
from porter.model.program import TensorCoreStatement
from porter.model.recognition import Answer, Emitter
from porter.passes.context import PortContext, qualified
from porter.passes.helpers import NAMESPACE
from porter.rules.emit import Unbound, filled

Bindings = Mapping[str, str | None]


def emitted(
    context: PortContext, statement: TensorCoreStatement, kind: type[Fact], bound: Bindings, facets: Mapping[str, str]
) -> tuple[Emitter | None, str]:
    """The emitter for a fact and its text. `bound` has what passes bind and the fields of the fact, `facets` what
    emitters may ask for. Where no text can be written the context says why."""
    function, span = statement.function, statement.statement.span
    found = fitting(context, statement.answer, kind, facets)
    if not found:
        what = f"no emitter writes a {kind_name(kind)} of this form"
        context.report(Code.WGMMA_FORM, function, span, what=what)
        return None, ""
    state = context.names.warpgroup if context.needs_context(function) else None
    return written(context, function, span, statement.answer, found, {**bound, "state": state})


def written(
    context: PortContext,
    function: Function,
    span: Span,
    answer: Answer | None,
    fit: Sequence[Emitter],
    bound: Bindings,
) -> tuple[Emitter | None, str]:
    """Of emitters that fit a place the best, and its text."""
    best = max(e.rank for e in fit)
    first = sorted((e for e in fit if e.rank == best), key=lambda e: e.rule)
    emitter = first[0]
    if len({e.text for e in first}) > 1:
        names = " and ".join(f"{e.rule} ({e.where})" for e in first[:2])
        said = {"what": f"{names} are both for it", "place": str(function.file.location(span))}
        context.report(Code.RULE_CONFLICT, function, span, **said)
        return None, ""
    captured = {n: t for n, (t, _) in answer.captures.items()} if answer is not None and emitter.is_own else {}
    values = {**bound, **captured}
    try:
        for name in emitter.needs:
            filled(f"${{{name}}}", values, _WHY)
        text = filled(emitter.text.replace(f"{NAMESPACE}::", qualified("")), values, _WHY)
    except Unbound as missing:
        said = {"rule": f"{emitter.rule} ({emitter.where})", "name": missing.name, "why": str(missing)}
        context.report(Code.RULE_BINDING, function, span, **said)
        return emitter, ""
    if emitter.include:
        context.includes.setdefault(emitter.include)
    return emitter, text


_WHY = {"state": "no state of the warpgroup is handed to this function: it neither commits nor waits"}


def fitting(context: PortContext, answer: Answer | None, kind: type[Fact], facets: Mapping[str, str]) -> list[Emitter]:
    """The emitters for a fact of a place."""
    recognizer = answer.recognizer if answer is not None else None
    return [
        e
        for e in context.program.vocabulary.emitters
        if e.on is kind
        and all(facets.get(name) in wanted for name, wanted in e.asks)
        and (
            recognizer is not None and e.rule == recognizer.rule
            if e.is_own
            else e.via in ("", recognizer.library if recognizer is not None else "")
        )
    ]
