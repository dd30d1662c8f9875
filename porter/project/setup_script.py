# SPDX-License-Identifier: Apache-2.0
"""What `include_dirs=` of a setup script names, as far as its text tells. Nothing is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import libcst as cst
import libcst.matchers as m

from porter.diagnostics.python_text import at_work, parse_python

NAME = "include_dirs"


def stated_names(path: Path, text: str) -> list[str]:
    """The paths that the script names in all of its calls and lists; none where it does not parse."""
    try:
        tree = parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    with at_work():
        named = [a for a in m.findall(tree, m.Assign([m.AssignTarget(m.Name())])) if isinstance(a, cst.Assign)]
        given = m.findall(tree, m.Arg() | m.Assign() | m.AugAssign() | m.Call())
    reader = _Script(path)
    for node in named:
        reader.names.setdefault(_name(node.targets[0].target), node.value)
    return [text for node in given for value in _given(node) for text in reader.texts(value)]


def _given(node: cst.CSTNode) -> list[cst.BaseExpression]:
    """What a node of a script gives or adds to `include_dirs`."""
    if isinstance(node, cst.Arg):
        return [node.value] if _name(node.keyword) == NAME else []
    if isinstance(node, cst.Assign):
        return [node.value] if NAME in (_name(t.target) for t in node.targets) else []
    if isinstance(node, cst.AugAssign):
        return [node.value] if _name(node.target) == NAME else []
    if isinstance(node, cst.Call) and _name(node.func) in (f"{NAME}.append", f"{NAME}.extend"):
        return _arguments(node)
    return []


def _name(node: cst.CSTNode | None) -> str:
    """A name with the attributes behind it; empty for all else."""
    if isinstance(node, cst.Attribute):
        return f"{_name(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""


def _arguments(call: cst.Call) -> list[cst.BaseExpression]:
    return [a.value for a in call.args if a.keyword is None and a.star != "**"]


_WRAPPERS = frozenset(
    {"str", "os.path.abspath", "os.path.realpath", "abspath", "realpath", "os.path.normpath", "os.fspath"}
)
"""Functions that give the path that they are given."""


class _Script:
    """Paths that expressions of a script stand for; nothing is run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: dict[str, cst.BaseExpression] = {}

    def texts(self, node: cst.BaseExpression, depth: int = 0) -> list[str]:
        """The texts of a list, or the one of an expression."""
        if depth > 20:
            return []
        if isinstance(node, (cst.List, cst.Tuple)):
            return [text for item in node.elements for text in self.texts(item.value, depth + 1)]
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
            whole = self.text(node, depth + 1)
            joined = self.texts(node.left, depth + 1) + self.texts(node.right, depth + 1)
            return [whole] if whole is not None else joined
        if isinstance(node, cst.Name) and node.value in self.names:
            return self.texts(self.names[node.value], depth + 1)
        text = self.text(node, depth + 1)
        return [text] if text is not None else []

    def text(self, node: cst.BaseExpression, depth: int = 0) -> str | None:
        if depth > 20:
            return None
        match node:
            case cst.SimpleString():
                value = node.evaluated_value
                return value if isinstance(value, str) else None
            case cst.ConcatenatedString(left=left, right=right):
                return self._joined("", [left, right], depth)
            case cst.Name(value=name):
                if name == "__file__":
                    return str(self.path)
                return self.text(self.names[name], depth + 1) if name in self.names else None
            case cst.FormattedString(parts=parts):
                inside = cst.FormattedStringExpression
                pieces = [p.expression if isinstance(p, inside) else getattr(p, "value", "") for p in parts]
                return self._joined("", pieces, depth)
            case cst.BinaryOperation(left=left, operator=cst.Add() | cst.Divide() as operator, right=right):
                return self._joined("/" if isinstance(operator, cst.Divide) else "", [left, right], depth)
            case cst.Attribute(value=value, attr=cst.Name("parent")):
                inner = self.text(value, depth + 1)
                return str(Path(inner).parent) if inner is not None else None
        return self._call(node, depth) if isinstance(node, cst.Call) else None

    def _joined(self, between: str, pieces: Sequence[cst.BaseExpression | str], depth: int) -> str | None:
        texts = [p if isinstance(p, str) else self.text(p, depth + 1) for p in pieces]
        return None if None in texts else between.join(t for t in texts if t is not None)

    def _call(self, node: cst.Call, depth: int) -> str | None:
        name, arguments, on = _name(node.func), _arguments(node), getattr(node.func, "value", None)
        method = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
        if method in ("resolve", "absolute", "as_posix") and isinstance(on, cst.BaseExpression):
            return self.text(on, depth + 1)
        if name in ("os.getcwd", "Path.cwd", "pathlib.Path.cwd"):
            return str(self.path.parent)
        if (method or name).endswith("dirname") and arguments:
            inner = self.text(arguments[0], depth + 1)
            return str(Path(inner).parent) if inner is not None else None
        if name in _WRAPPERS:
            return self.text(arguments[0], depth + 1) if arguments else None
        if name in ("os.path.join", "join", "Path", "pathlib.Path"):
            return self._joined("/", arguments, depth)
        if method == "joinpath" and isinstance(on, cst.BaseExpression):
            return self._joined("/", [on, *arguments], depth)
        return None
