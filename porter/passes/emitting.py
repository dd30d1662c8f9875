# SPDX-License-Identifier: Apache-2.0
"""The text that stands for an instruction: that of the emitter which fits best."""

from __future__ import annotations

from collections.abc import Mapping

from porter.diagnostics import Code
from porter.model.facts import Fact, kind_name
from porter.model.program import TensorCoreStatement
from porter.model.recognition import Emitter
from porter.passes.context import PortContext
from porter.rules.emit import Unbound, filled

Bindings = Mapping[str, str | None]


def emitted(
    context: PortContext, statement: TensorCoreStatement, kind: type[Fact], bound: Bindings, facets: Mapping[str, str]
) -> tuple[Emitter | None, str]:
    """The emitter for a fact and its text. `bound` has what passes bind and the fields of the fact, `facets` what
    emitters may ask for. Where no text can be written the context says why."""
    emitter = _chosen(context, statement, kind, facets)
    if emitter is None:
        return None, ""
    captured = {}
    if statement.answer is not None and emitter.is_own:
        captured = {name: text for name, (text, _) in statement.answer.captures.items()}
    values = {**bound, "state": _state(context, statement), **captured}
    try:
        for name in emitter.needs:
            filled(f"${{{name}}}", values, _WHY)
        text = filled(emitter.text, values, _WHY)
    except Unbound as missing:
        said = {"rule": f"{emitter.rule} ({emitter.where})", "name": missing.name, "why": str(missing)}
        context.report(Code.RULE_BINDING, statement.function, statement.statement.span, **said)
        return emitter, ""
    if emitter.include:
        context.includes.setdefault(emitter.include)
    return emitter, text


_WHY = {"state": "no state of the warpgroup is handed to this function: it neither commits nor waits"}


def _state(context: PortContext, statement: TensorCoreStatement) -> str | None:
    return context.names.warpgroup if context.needs_context(statement.function) else None


def _chosen(
    context: PortContext, statement: TensorCoreStatement, kind: type[Fact], facets: Mapping[str, str]
) -> Emitter | None:
    recognizer = statement.answer.recognizer if statement.answer is not None else None
    fitting = [
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
    if not fitting:
        what = f"no emitter writes a {kind_name(kind)} of this form"
        context.report(Code.WGMMA_FORM, statement.function, statement.statement.span, what=what)
        return None
    best = max(e.rank for e in fitting)
    first = sorted((e for e in fitting if e.rank == best), key=lambda e: e.rule)
    if len({e.text for e in first}) > 1:
        file = statement.function.file
        names = " and ".join(f"{e.rule} ({e.where})" for e in first[:2])
        span = statement.statement.span
        said = {"what": f"{names} are both for it", "place": str(file.location(span))}
        context.report(Code.RULE_CONFLICT, statement.function, span, **said)
        return None
    return first[0]
