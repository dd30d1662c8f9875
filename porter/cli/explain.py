# SPDX-License-Identifier: Apache-2.0
"""`porter explain`: what a diagnostic, a hazard, an exit code or the word of a descriptor means."""

from __future__ import annotations

from rich.text import Text

from porter.cli.context import Session, command
from porter.diagnostics import Code, ExitCode, PorterError
from porter.report import json as report_json
from porter.report.descriptors import explain_word
from porter.report.explain import Explanation, all_codes, all_hazards
from porter.report.explain import explain as explanation_of


@command
def explain(session: Session, name: str | None, every: bool, instruction: bool) -> ExitCode:
    if every == (name is not None):
        raise PorterError(Code.BAD_OPTION, option="explain", problem="give an ID, a descriptor, or --list")
    if name is None:
        found = [*all_codes(), *all_hazards()]
    elif instruction or name[:1].isdigit():
        found = [explain_word(name, instruction)]
    else:
        found = [explanation_of(name, session.rules)]
    for one in found:
        _show(session, one, short=every)
    entries = [{"name": e.name, "title": e.title, "fields": dict(e.fields)} for e in found]
    session.write_json(report_json.document("explain", ExitCode.OK, {"entries": entries}))
    return ExitCode.OK


def _show(session: Session, one: Explanation, short: bool) -> None:
    session.show(Text.assemble((one.name, "bold"), "  ", one.title))
    if short:
        return
    width = max(len(label) for label, _ in one.fields)
    for label, text in one.fields:
        session.show(Text.assemble("  ", (label.ljust(width), "cyan"), "  ", text))
