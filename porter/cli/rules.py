# SPDX-License-Identifier: Apache-2.0
"""`porter rules`: list rules, run their examples, begin a new one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.text import Text

from porter.build.files import write_all
from porter.cli.commands.shared import Place
from porter.cli.context import Session, command
from porter.cli.inputs import require_directories, require_file
from porter.cli.porting import boxes_of, launches_of, port_paths
from porter.cli.proving import prover
from porter.diagnostics import Code, ExitCode, PorterError, exit_code_of
from porter.lang.sources import load_sources
from porter.passes.rule_examples import Tried, completed, try_examples
from porter.report import json as report_json
from porter.report import rules as report_rules
from porter.report.rules import as_written
from porter.report.tables import plain_table
from porter.rules.accept import Change, accepted
from porter.rules.explain import sites_at
from porter.rules.load import load_rules, read_rule_file, schema
from porter.rules.recognize import vocabulary
from porter.rules.rule import Rule
from porter.rules.skeleton import SCHEMA_FILE, appended, begun


@command
def rules_list(session: Session) -> ExitCode:
    rules = load_rules(tuple(map(str, session.rules)))
    table = plain_table("rule", "kind", "safety", "library", "title", "file", overflow="fold")
    for rule in rules:
        table.add_row(rule.id, rule.kind, rule.safety.value, rule.library, rule.title, as_written(rule.source))
    session.show(table, Text(f"{len(rules)} rules"))
    session.write_json(report_rules.list_document(rules))
    return ExitCode.OK


@command
def rules_explain(session: Session, place: Place, include_dirs: tuple[Path, ...]) -> ExitCode:
    require_file(place.path, "rules explain")
    require_directories("-I", include_dirs)
    rules = load_rules(tuple(map(str, session.rules)))
    ported = port_paths([place.path], include_dirs)
    sites = sites_at(place.path, place.line, rules, ported.groups, include_dirs)
    sites = [s for s in sites if not place.column or s.column == place.column]
    said = [d for d in ported.diagnostics if d.where and (Path(d.where.path), d.where.line) == (place.path, place.line)]
    session.show(*(Text.assemble(*parts) for parts in report_rules.site_lines(sites, rules)))
    session.report(said)
    session.write_json(report_rules.explain_document(place.path, place.line, sites, said))
    return ExitCode.OK


@command
def rules_test(session: Session, places: tuple[Path, ...], accept: bool) -> ExitCode:
    given = (*session.rules, *places)
    directories = tuple(map(str, given))
    rules = load_rules(directories)
    wanted = [r for r in rules if not places or any(_is_below(r, place) for place in places)]
    if not places:
        own = set(map(id, load_rules()))
        wanted = [r for r in wanted if not given or id(r) not in own]
    if not wanted:
        raise PorterError(Code.FILE_NOT_FOUND, path=f"{', '.join(map(str, places))}: a rule file")
    with session.progress() as tell:
        tried = []
        launches, boxes = partial(launches_of, tuple(directories)), partial(boxes_of, tuple(directories))
        for one in try_examples(wanted, directories, prover(session.toolkit), launches, boxes):
            if tell is not None:
                tell(f"{one.rule.id}: example {one.number + 1}")
            tried.append(one)
    written = _accept(tried) if accept else []
    diagnostics = report_rules.problems(tried, written, accept)
    code = exit_code_of(diagnostics)
    session.report(diagnostics)
    session.show(*(Text(f"wrote {path}") for path in sorted({as_written(t.rule.source) for t in written})))
    session.show(Text(report_rules.summary(tried, written)))
    session.write_json(report_rules.test_document(tried, written, diagnostics, code))
    return code


def _is_below(rule: Rule, place: Path) -> bool:
    return Path(rule.source).resolve().is_relative_to(place.resolve())


def _accept(tried: Sequence[Tried]) -> list[Tried]:
    """Write what was found; the examples that it is written for."""
    taken = [t for t in tried if t.problems and t.accepted()]
    files = {}
    for source in {t.rule.source for t in taken}:
        changes = [Change(t.rule.id, t.number, t.accepted()) for t in taken if t.rule.source == source]
        files[Path(source)] = accepted(Path(source).read_text("utf-8"), changes).encode()
    write_all(files)
    return taken


@command
def rules_new(session: Session, name: str, place: Place, output: Path, include_dirs: tuple[Path, ...]) -> ExitCode:
    if not re.fullmatch(r"[A-Za-z][\w-]*", name):
        raise PorterError(Code.BAD_OPTION, option="NAME", problem=f"`{name}` is no name that a file can have")
    require_directories("-I", include_dirs)
    require_file(place.path, "rules new")
    target = output / f"{name}.yaml"
    _require_rules(target)
    # IDs of files beside it are not free either
    beside = [output] if output.is_dir() and any(output.glob("*.yaml")) else []
    known = load_rules(tuple(map(str, [*session.rules, *(d for d in beside if d not in session.rules)])))
    sources = load_sources(place.path, include_dirs)
    skeleton = begun(sources, vocabulary(load_rules(tuple(map(str, session.rules)))), place.path.as_posix(), place.line,
                     place.column, name, [rule.id for rule in known])  # fmt: skip
    text, recognized = completed(skeleton.text)
    files = {target: (appended(target.read_text("utf-8"), text) if target.exists() else text).encode()}
    if not (output / SCHEMA_FILE).exists():
        files[output / SCHEMA_FILE] = _schema_text().encode()
    write_all(files)
    session.show(*(Text(f"wrote {written}") for written in files))
    if not recognized:
        session.remark(Text(f"the call is not recognized by `{skeleton.pattern}`: mend the pattern or the example"))
    body = {"written": list(map(str, files)), "rule": skeleton.rule, "pattern": skeleton.pattern,
            "fact": skeleton.kind, "guessed": skeleton.guessed, "recognized": recognized}  # fmt: skip
    session.write_json(report_json.document("rules-new", ExitCode.OK, body))
    return ExitCode.OK


def _require_rules(path: Path) -> None:
    """A file that is added to is a rule file. Raises WOULD_OVERWRITE."""
    if path.exists():
        try:
            read_rule_file(path)
        except PorterError:
            raise PorterError(Code.WOULD_OVERWRITE, path=path, reason="it is no rule file") from None


@command
def rules_schema(session: Session) -> ExitCode:
    session.write(_schema_text().encode())
    return ExitCode.OK


def _schema_text() -> str:
    return json.dumps(schema(), indent=2) + "\n"
