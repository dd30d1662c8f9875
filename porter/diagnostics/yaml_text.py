# SPDX-License-Identifier: Apache-2.0
"""Reading YAML of the user's: a short text can stand for more values than there is memory."""

from __future__ import annotations

from typing import Any

import yaml

MOST_NODES = 200_000
"""Values of a document, those that aliases repeat counted again."""


MOST_NESTED = 500
"""Lists and mappings in each other. What makes values of them does so on the stack, in C without a limit."""
FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of libyaml where PyYAML has it."""


def read_yaml(text: str, loader: Any = FAST) -> tuple[yaml.Node | None, Any]:
    """A document as nodes with their places, and as values; None for an empty one. `loader` says what plain words
    are.

    Raises:
        yaml.YAMLError: it is no YAML, or has a key twice.
        ValueError: it stands for too much, holds itself, or a value is none, such as a date.
        TypeError: a key is no scalar.
        RecursionError: it is nested too deep.
    """
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_NESTED:
            raise RecursionError(f"more than {MOST_NESTED} lists and mappings in each other")
    node = yaml.compose(text, Loader=loader)
    if node is None:
        return None, None
    if _nodes(node, {}) > MOST_NODES:
        raise ValueError(f"more than {MOST_NODES} values, those that aliases repeat counted again")
    return node, loader("").construct_document(node)


def _nodes(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node stands for. Raises ValueError for one that holds itself."""
    found = known.get(id(node))
    if found is None:
        known[id(node)] = -1
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
        inner = node.value if isinstance(node, yaml.SequenceNode | yaml.MappingNode) else ()
        parts = (part for item in inner for part in (item if isinstance(item, tuple) else (item,)))
        found = known[id(node)] = 1 + sum(_nodes(part, known) for part in parts)
    elif found < 0:
        raise ValueError("an alias stands for what it is a part of")
    return found


def _check_keys(node: yaml.MappingNode) -> None:
    """Raises yaml.MarkedYAMLError for a key that stands twice: one of its values would be lost."""
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key `{key.value}` stands twice", problem_mark=key.start_mark)
            seen.add(key.value)
