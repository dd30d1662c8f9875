# SPDX-License-Identifier: Apache-2.0
"""Long texts: diagnostics and hazards by ID, and the exit codes. The same functions make the reference pages."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from porter.diagnostics import EXIT_CODE_TEXT, Code, PorterError
from porter.lang.text import Safety
from porter.rules.load import load_rules
from porter.rules.rule import Rule
from porter.sim.check.catalog import KINDS, HazardKind

SAFETY_TEXT = {
    Safety.SAFE: "the meaning is kept by construction",
    Safety.REVIEW: "the meaning is kept under a stated assumption",
    Safety.SKETCH: "shown only; does not claim to work",
}


@dataclass(frozen=True)
class Explanation:
    """`fields` are label and text, in the order they are shown."""

    name: str
    title: str
    fields: tuple[tuple[str, str], ...]


def explain(name: str, rules_of_ones_own: Sequence[Path] = ()) -> Explanation:
    """The explanation of a diagnostic, hazard or rule ID (any case), or of the word `exit-codes`.

    Raises:
        PorterError: UNKNOWN_ID, with close names in the detail; what reading rules raises.
    """
    if name.lower() == "exit-codes":
        fields = tuple((str(int(code)), text) for code, text in EXIT_CODE_TEXT.items())
        return Explanation("exit-codes", "what the exit status of a command says", fields)
    code = Code.by_id(name)
    if code is not None:
        return explain_code(code)
    if name.upper() in KINDS:
        return explain_hazard(KINDS[name.upper()])
    rules = {rule.id: rule for rule in load_rules(tuple(map(str, rules_of_ones_own)))}
    if name.upper() in rules:
        return explain_rule(rules[name.upper()])
    near = get_close_matches(name.upper(), [*(c.id for c in Code), *KINDS, *rules], n=3)
    raise PorterError(Code.UNKNOWN_ID, name=name, detail=f"close: {', '.join(near)}" if near else "")


def explain_rule(rule: Rule) -> Explanation:
    """What a mapping rule does, why, and how much a reviewer has to trust it."""
    how = f"the pass {rule.implemented_by}" if rule.implemented_by else "a pattern"
    return Explanation(
        rule.id,
        rule.title,
        (
            ("library", rule.library),
            ("safety", f"{rule.safety.value} ({SAFETY_TEXT[rule.safety]})"),
            ("done by", how),
            ("becomes", rule.becomes or "-"),
            ("why", rule.reason),
            ("references", "; ".join(rule.references) or "-"),
        ),
    )


def explain_code(code: Code) -> Explanation:
    info = code.value
    return Explanation(
        info.id,
        readable_title(info.title),
        (
            ("severity", info.severity.value),
            ("exit code", f"{int(info.exit_code)} ({EXIT_CODE_TEXT[info.exit_code]})"),
            ("what", info.detail),
            ("next step", info.next_step),
        ),
    )


def explain_hazard(kind: HazardKind) -> Explanation:
    """What two accesses of a kind of hazard lack, and where the ISA asks for it."""
    return Explanation(
        kind.id,
        kind.title,
        (
            ("needs", kind.rule),
            ("source", kind.source),
            ("reported as", f"{kind.code.id}: {readable_title(kind.code.value.title)}"),
            ("read on", "docs/hazards.md: what is seen, and what only a reader of the code can say"),
        ),
    )


def readable_title(template: str) -> str:
    """A title with its placeholders as `<name>`."""
    pieces = []
    for text, field, _, _ in string.Formatter().parse(template):
        pieces.append(text + (f"<{field}>" if field else ""))
    return "".join(pieces)


def all_codes() -> list[Explanation]:
    """Every diagnostic, by ID."""
    return [explain_code(code) for code in sorted(Code, key=lambda c: c.id)]


def all_hazards() -> list[Explanation]:
    """Every kind of hazard, in the order of the catalog."""
    return [explain_hazard(kind) for kind in KINDS.values()]
