# SPDX-License-Identifier: Apache-2.0
"""`porter map`: what becomes of a construct."""

from __future__ import annotations

from rich.text import Text

from porter.cli.context import Session, command
from porter.diagnostics import ExitCode
from porter.report.mapping import map_document, map_lines, name_lines
from porter.rules.load import load_rules
from porter.rules.mapping import Answer, look_up, table


@command
def map(session: Session, word: str | None) -> ExitCode:
    rules = load_rules(tuple(str(path) for path in session.rules))
    answer = Answer("", *table(), is_family=True) if word is None else look_up(word, rules)
    titles = {rule.id: rule.title for rule in rules}
    lines = name_lines(answer) if answer.is_family else map_lines(answer, titles)
    session.show(*(Text.assemble((label, style), text) for label, style, text in lines))
    session.write_json(map_document(answer, titles))
    return ExitCode.OK
