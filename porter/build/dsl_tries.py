# SPDX-License-Identifier: Apache-2.0
"""Imports that a file says itself what to do without: those in a `try` that handles their failure."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider

from porter.diagnostics.python_text import at_work, parse_python


def prepared_lines(path: Path) -> tuple[tuple[int, int], ...]:
    """First and last lines of what such statements try; none where the file cannot be read."""
    try:
        wrapper = MetadataWrapper(parse_python(path.read_text("utf-8-sig")), unsafe_skip_copy=True)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    with at_work():
        places = wrapper.resolve(PositionProvider)
        tries = [t for t in m.findall(wrapper.module, m.Try()) if isinstance(t, cst.Try)]
    caught = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
    prepared = [t for t in tries if any(h.type is None or caught & set(_names(h.type)) for h in t.handlers)]
    return tuple((places[t.body].start.line, places[t.body].end.line) for t in prepared)


def _names(node: cst.BaseExpression) -> list[str]:
    if isinstance(node, cst.Tuple):
        return [name for item in node.elements for name in _names(item.value)]
    return [node.value] if isinstance(node, cst.Name) else []
