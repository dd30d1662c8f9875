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
from porter.rules.pattern import PatternError
from porter.rules.recognize import fact_patterns
from porter.rules.rule import Example, Region, Rule, When

CUDA_FILES = ("*.cu", "*.cuh", "*.h", "*.hpp", "*.hh", "*.cpp", "*.cc", "*.cxx", "*.inl")


def mappings_directory() -> Path:
    """The rules that come with Porter: inside the installed package, or beside it in a checkout."""
    installed = Path(str(resources.files("porter"))) / "_mappings"
    return installed if installed.is_dir() else Path(__file__).resolve().parents[2] / "mappings"


def load_rules(extra_directories: Sequence[str] = ()) -> list[Rule]:
    """All rules, Porter's own first, ordered by ID within each directory; one file may stand for a directory.
    A file that is named more than once is read once.

    Raises:
        PorterError: RULE_FILE (unreadable or invalid file), RULE_DUPLICATE (an ID defined twice),
            FILE_NOT_FOUND (a file or directory that does not exist).
    """
    rules = list(_own_rules())
    seen, read = {r.id: r for r in rules}, {Path(r.source).resolve() for r in rules}
    for directory in extra_directories:
        path = Path(directory)
        if not path.exists():
            raise PorterError(Code.FILE_NOT_FOUND, path=directory)
        files = [f for f in (_files(path) if path.is_dir() else [path]) if f.resolve() not in read]
        read.update(f.resolve() for f in files)
        for rule in _read(files):
            if rule.id in seen:
                raise PorterError(Code.RULE_DUPLICATE, Location(rule.source), rule=rule.id, other=seen[rule.id].source)
            seen[rule.id] = rule
            rules.append(rule)
    return rules


@cache
def _own_rules() -> tuple[Rule, ...]:
    rules = _read(_files(mappings_directory()))
    ids = [r.id for r in rules]
    for rule in rules:
        if ids.count(rule.id) > 1:
            raise PorterError(Code.RULE_DUPLICATE, Location(rule.source), rule=rule.id, other=rule.source)
    return tuple(rules)


def _files(directory: Path) -> list[Path]:
    return sorted([*directory.glob("*.yaml"), *directory.glob("*.yml")])


def _read(files: Iterable[Path]) -> list[Rule]:
    return sorted((r for f in files for r in read_rule_file(f)), key=lambda r: r.id)


def schema() -> dict[str, Any]:
    """The JSON Schema of rule files, for editors."""
    return _schema("facts.schema.json")


@cache
def _schema(name: str) -> dict[str, Any]:
    text = resources.files("porter.rules").joinpath(name).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def read_rule_file(path: Path) -> list[Rule]:
    """The rules of one file. Raises PorterError RULE_FILE with the place of the first problem."""
    try:
        text = path.read_text(encoding="utf-8")
        data, root = yaml.safe_load(text), yaml.compose(text, yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise PorterError(Code.RULE_FILE, Location(str(path)), problem=str(error)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = Location(str(path), mark.line + 1, mark.column + 1) if mark else Location(str(path))
        raise PorterError(Code.RULE_FILE, where, problem=str(getattr(error, "problem", error))) from error
    except (ValueError, TypeError, RecursionError) as error:
        # a date that is none, a mapping as a key
        raise PorterError(Code.RULE_FILE, Location(str(path)), problem=str(error)) from error
    has_facts = isinstance(data, dict) and "schema" in data
    validator = jsonschema.Draft202012Validator(_schema("facts.schema.json" if has_facts else "rule.schema.json"))
    # a word that is not known is why another is missing
    problems = sorted(
        validator.iter_errors(data),
        key=lambda e: (list(map(str, e.absolute_path)), e.validator != "additionalProperties"),
    )
    if problems:
        first = problems[0]
        at = "/".join(map(str, first.absolute_path)) or "the file"
        where = _place(path, root, list(first.absolute_path))
        raise PorterError(Code.RULE_FILE, where, problem=f"{at}: {' '.join(first.message.split())}")
    make = _recognizer if has_facts else _rule
    return [make(entry, data, path, _place(path, root, ["rules", i])) for i, entry in enumerate(data["rules"])]


def _place(path: Path, node: yaml.Node | None, steps: Sequence[str | int]) -> Location:
    """Where a value stands in a file, as near as the file has it."""
    for step in steps:
        inner: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            inner = next((v for k, v in node.value if k.value == step), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            inner = node.value[step]
        if inner is None:
            break
        node = inner
    if node is None:
        return Location(str(path))
    return Location(str(path), node.start_mark.line + 1, node.start_mark.column + 1)


def _recognizer(entry: dict[str, Any], data: dict[str, Any], path: Path, where: Location) -> Rule:
    texts = entry["recognize"]
    texts = [texts] if isinstance(texts, str) else texts
    try:
        recognizers = fact_patterns(entry["id"], texts, entry["as"], entry.get("where", {}))
    except PatternError as error:
        raise PorterError(Code.RULE_FILE, where, problem=f"{entry['id']}: {error}") from error
    return Rule(
        id=entry["id"],
        title=entry["title"],
        family=data["library"],
        safety=Safety(entry["safety"]),
        reason=" ".join(entry["reason"].split()),
        references=tuple(entry.get("references", ())),
        examples=tuple(_fact_example(e) for e in entry["examples"]),
        becomes=_shown(entry["as"]),
        recognizers=recognizers,
        source=str(path),
    )


def _shown(stated: dict[str, dict[str, Any]]) -> str:
    ((kind, values),) = stated.items()
    return " ".join([kind, *(f"{name}={value}" for name, value in values.items())])


def _fact_example(entry: dict[str, Any]) -> Example:
    text = entry.get("before") or entry.get("near") or entry["absent"]
    if "__device__" not in text and "__global__" not in text:
        text = f"template <int N> __device__ void f(int x, float r) {{ {text}; }}\n"
    facts = tuple((k, tuple(v.items())) for fact in entry.get("facts", ()) for k, v in fact.items())
    return Example(before=text, facts=facts, is_near="near" in entry)


def _rule(entry: dict[str, Any], data: dict[str, Any], path: Path, where: Location) -> Rule:
    match = entry.get("match")
    pattern = None
    if match is not None:
        try:
            pattern = re.compile(match["pattern"], re.MULTILINE)
            if "replace" in entry:
                re.sub(pattern, entry["replace"], "")
                _check_template(pattern, entry["replace"])
        except (re.error, IndexError) as error:
            raise PorterError(Code.RULE_FILE, where, problem=f"{entry['id']}: {error}") from error
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
