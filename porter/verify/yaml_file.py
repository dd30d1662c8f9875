# SPDX-License-Identifier: Apache-2.0
"""YAML files of Porter: values with their places, held against a JSON Schema."""

from __future__ import annotations

import functools
import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from porter.diagnostics import Code, Location, PorterError, yaml_text
from porter.diagnostics.reading import read_text

if TYPE_CHECKING:
    import jsonschema

_LARGEST = 2 << 20
"""Bytes of a file."""


@functools.cache
def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of case files (`case`) or of launches (`launch`)."""
    text = resources.files("porter.verify").joinpath(f"{name}.schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def _validator(name: str) -> jsonschema.Draft202012Validator:
    import jsonschema  # As below: loading it takes longer than most commands that read no such file.
    from referencing import Registry, Resource

    # The schema of launches refers to that of cases, which lies beside it.
    beside: Registry[Any] = Registry().with_resource("case.schema.json", Resource.from_contents(schema("case")))
    return jsonschema.Draft202012Validator(schema(name), registry=beside)


def load_yaml(path: Path, schema_name: str) -> dict[str, Any]:
    """The fields of a file, as the schema has them.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, CASE_NOT_YAML, CASE_FIELD.
    """
    node, data = read_yaml(path)
    if not isinstance(data, dict):
        raise PorterError(Code.CASE_NOT_YAML, Location(str(path)), path=path, problem="not a mapping of fields")
    _validate(path, data, node, _validator(schema_name))
    return data


def read_yaml(path: Path) -> tuple[yaml.Node | None, Any]:
    """The text of a file as nodes with their places, and as values."""
    text = read_text(path, _LARGEST)
    try:
        return yaml_text.read_yaml(text)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = Location(str(path), mark.line + 1, mark.column + 1) if mark else Location(str(path))
        problem = getattr(error, "problem", None) or str(error)
        raise PorterError(Code.CASE_NOT_YAML, where, path=path, problem=problem) from None
    except RecursionError:
        raise PorterError(Code.CASE_NOT_YAML, Location(str(path)), path=path, problem="nested too deep") from None


def _validate(
    path: Path, data: dict[str, Any], node: yaml.Node | None, validator: jsonschema.Draft202012Validator
) -> None:
    import jsonschema

    errors = list(validator.iter_errors(data))
    error = jsonschema.exceptions.best_match(iter(errors))
    if error is None:
        return
    if error.validator == "required":
        # A field that is missing because its name is misspelt: the misspelling is what to correct.
        misspelt = [e for e in errors if e.validator == "additionalProperties" and e.path == error.path]
        error = misspelt[0] if misspelt else error
    keys = list(error.absolute_path)
    where = place_of(path, node, keys)
    problem = error.message
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
        extra = [str(key) for key in error.instance if key not in known]
        if extra:
            keys, problem = [*keys, extra[0]], f"unknown field (known: {', '.join(sorted(known))})"
            where = place_of(path, node, keys)
    elif error.validator == "required":
        problem = f"missing field {problem.split(' is a required')[0]}"
    raise PorterError(Code.CASE_FIELD, where, field=field_name(keys), problem=problem)


def field_name(keys: list[Any]) -> str:
    """`tensors.A.shape[1]` from the keys on the way there."""
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text or "(top level)"


def place_of(path: Path, node: yaml.Node | None, keys: list[Any]) -> Location:
    """Where in the file the keys lead, as far as they lead: the key of a mapping, the item of a list."""
    mark = node.start_mark if node is not None else None
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(key)), None)
            if found is None:
                break
            mark, node = found[0].start_mark, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            mark = node.start_mark
        else:
            break
    return Location(str(path)) if mark is None else Location(str(path), mark.line + 1, mark.column + 1)
