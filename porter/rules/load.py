# SPDX-License-Identifier: Apache-2.0
"""Read and validate rule files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from porter.diagnostics import Code, Location, PorterError
from porter.lang.text import Safety
from porter.rules.rule import Example, Region, Rule, When

CUDA_FILES = ("*.cu", "*.cuh", "*.h", "*.hpp", "*.hh", "*.cpp", "*.cc", "*.cxx", "*.inl")


def mappings_directory() -> Path:
    """The rules that come with Porter: inside the installed package, or beside it in a checkout."""
    installed = Path(str(resources.files("porter"))) / "_mappings"
    return installed if installed.is_dir() else Path(__file__).resolve().parents[2] / "mappings"


def load_rules(extra_directories: Sequence[str] = ()) -> list[Rule]:
    """All rules, Porter's own first, ordered by ID within each directory.

    Raises:
        PorterError: RULE_FILE (unreadable or invalid file), RULE_DUPLICATE (an ID defined twice),
            FILE_NOT_FOUND (a directory that does not exist).
    """
    rules = list(_own_rules())
    seen = {r.id: r for r in rules}
    for directory in extra_directories:
        path = Path(directory)
        if not path.is_dir():
            raise PorterError(Code.FILE_NOT_FOUND, path=directory)
        for rule in _read_directory(path):
            if rule.id in seen:
                raise PorterError(Code.RULE_DUPLICATE, Location(rule.source), rule=rule.id, other=seen[rule.id].source)
            seen[rule.id] = rule
            rules.append(rule)
    return rules


@cache
def _own_rules() -> tuple[Rule, ...]:
    rules = _read_directory(mappings_directory())
    ids = [r.id for r in rules]
    for rule in rules:
        if ids.count(rule.id) > 1:
            raise PorterError(Code.RULE_DUPLICATE, Location(rule.source), rule=rule.id, other=rule.source)
    return tuple(rules)


def _read_directory(directory: Path) -> list[Rule]:
    files = sorted([*directory.glob("*.yaml"), *directory.glob("*.yml")])
    return sorted((r for f in files for r in read_rule_file(f)), key=lambda r: r.id)


@cache
def _schema() -> dict[str, Any]:
    text = resources.files("porter.rules").joinpath("rule.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def read_rule_file(path: Path) -> list[Rule]:
    """The rules of one file. Raises PorterError RULE_FILE with the place of the first problem."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PorterError(Code.RULE_FILE, Location(str(path)), problem=str(error)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = Location(str(path), mark.line + 1, mark.column + 1) if mark else Location(str(path))
        raise PorterError(Code.RULE_FILE, where, problem=str(getattr(error, "problem", error))) from error
    validator = jsonschema.Draft202012Validator(_schema())
    problems = sorted(validator.iter_errors(data), key=lambda e: list(map(str, e.absolute_path)))
    if problems:
        first = problems[0]
        at = "/".join(map(str, first.absolute_path)) or "the file"
        raise PorterError(Code.RULE_FILE, Location(str(path)), problem=f"{at}: {first.message}")
    return [_rule(entry, data, path) for entry in data["rules"]]


def _rule(entry: dict[str, Any], data: dict[str, Any], path: Path) -> Rule:
    match = entry.get("match")
    pattern = None
    if match is not None:
        try:
            pattern = re.compile(match["pattern"], re.MULTILINE)
            if "replace" in entry:
                re.sub(pattern, entry["replace"], "")
                _check_template(pattern, entry["replace"])
        except (re.error, IndexError) as error:
            raise PorterError(Code.RULE_FILE, Location(str(path)), problem=f"{entry['id']}: {error}") from error
    files = tuple((match or {}).get("files") or data.get("files") or CUDA_FILES)
    return Rule(
        id=entry["id"],
        title=entry["title"],
        family=data["family"],
        safety=Safety(entry["safety"]),
        reason=" ".join(entry["reason"].split()),
        references=tuple(entry.get("references", ())),
        examples=tuple(_examples(entry["examples"])),
        pattern=pattern,
        region=Region((match or {}).get("in", "code")),
        files=files,
        when=When(entry.get("when", "always")),
        replace=entry.get("replace"),
        report=entry.get("report"),
        becomes=entry.get("becomes", ""),
        implemented_by=entry.get("pass"),
        source=str(path),
    )


def _check_template(pattern: re.Pattern[str], template: str) -> None:
    """Raises re.error for a reference to a group that the pattern does not have."""
    for number in re.findall(r"\\(?:g<)?(\d+)>?", template):
        if int(number) > pattern.groups:
            raise re.error(f"invalid group reference {number}")


def _examples(entries: Iterable[dict[str, Any]]) -> Iterable[Example]:
    for entry in entries:
        yield Example(
            before=entry["before"],
            after=entry.get("after"),
            expect=tuple(entry.get("expect", ())),
            absent=tuple(entry.get("absent", ())),
            file=entry.get("file", "kernel.cu"),
            diagnostics=tuple(entry.get("diagnostics", ())),
        )
