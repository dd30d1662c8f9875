# SPDX-License-Identifier: Apache-2.0
"""Writing into rule files: values of examples change, every other byte stays."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_LITERAL = re.compile(r"(?!\s)(?:[\t -~\x80-\U0010ffff]*\S\n|\n)+")
"""What a literal block can hold as it is: lines without space behind them."""


@dataclass(frozen=True)
class Change:
    """New values of one example, counted from 0, by key."""

    rule: str
    example: int
    values: Mapping[str, object]


def example_lines(path: Path) -> dict[tuple[str, int], int]:
    """Where the examples of a rule file stand: lines by ID and number."""
    return {key: node.start_mark.line + 1 for key, node in _examples(path.read_text("utf-8"))}


def accepted(text: str, changes: Sequence[Change]) -> str:
    """A rule file with these values: those that are there are replaced, others added behind the key `before`."""
    examples = dict(_examples(text))
    edits: list[tuple[int, int, str]] = []
    for change in changes:
        node = examples[change.rule, change.example]
        for key, value in change.values.items():
            edits.append(_edit(text, node, key, value))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _examples(text: str) -> Iterator[tuple[tuple[str, int], yaml.MappingNode]]:
    rules = _value(yaml.compose(text, yaml.SafeLoader), "rules")
    for rule in rules.value if isinstance(rules, yaml.SequenceNode) else ():
        name, examples = _value(rule, "id"), _value(rule, "examples")
        if isinstance(name, yaml.ScalarNode) and isinstance(examples, yaml.SequenceNode):
            for number, example in enumerate(examples.value):
                yield (name.value, number), example


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    pairs: list[Any] = node.value if isinstance(node, yaml.MappingNode) else []
    return next((value for name, value in pairs if name.value == key), None)


def _edit(text: str, example: yaml.MappingNode, key: str, value: object) -> tuple[int, int, str]:
    """The bytes from one place to another, and what stands there afterwards. A value that is there keeps its style."""
    old, before = _value(example, key), _value(example, "before")
    indent, flow = example.start_mark.column, bool(example.flow_style)
    assert before is not None
    if old is not None:
        start = old.start_mark.index
        if isinstance(old, yaml.CollectionNode) and not _is_flow(old):
            # a block list may begin on the line behind its key
            start = text.rindex(":", 0, start) + 1
            return start, _end(text, old), " " + _shown(value, indent, False)
        return start, _end(text, old), _shown(value, indent, _is_block(old))
    at = _end(text, before)
    if flow:
        return at, at, f", {key}: {_shown(value, indent, False)}"
    if not _is_block(before):
        at = text.find("\n", at) if "\n" in text[at:] else len(text)
    return at, at, f"\n{' ' * indent}{key}: {_shown(value, indent, _is_block(before))}"


def _is_flow(node: yaml.Node) -> bool:
    return bool(getattr(node, "flow_style", True))


def _is_block(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")


def _end(text: str, node: yaml.Node) -> int:
    """Where a value ends, without line breaks, and comments on lines of their own, behind it."""
    if isinstance(node, yaml.CollectionNode) and not _is_flow(node) and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(last, tuple) else last)
    start, end = node.start_mark.index, node.end_mark.index
    return start + len(text[start:end].rstrip())


def _shown(value: object, indent: int, block: bool) -> str:
    """A value as YAML, on one line or, if it can be, as a literal block below a key at `indent`."""
    if isinstance(value, str):
        if not block or not _LITERAL.fullmatch(value) or value.endswith("\n\n"):
            return json.dumps(value, ensure_ascii=False)
        lines = [f"{' ' * (indent + 2)}{line}".rstrip() for line in value.splitlines()]
        return "\n".join(["|", *lines])
    dumped: str = yaml.safe_dump(value, default_flow_style=True, width=10**9, sort_keys=False, allow_unicode=True)
    return dumped.strip()
