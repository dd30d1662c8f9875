# SPDX-License-Identifier: Apache-2.0
"""What the preprocessor leaves of host code: which arm of a conditional is compiled, and what macros stand for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tree_sitter import Node

from porter.lang.asm import macro_definitions
from porter.lang.cuda import CudaFile, find
from porter.lang.lexical import MacroText
from porter.model.constant_expressions import evaluate
from porter.model.scopes import PREPROCESSOR_BLOCKS
from porter.scan.draft import classes as cls

_DEFINED = re.compile(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))")
_OF_COMPILERS = re.compile(r"__\w+|CUDA_VERSION|CUDART_VERSION|CUDNN_\w+|NDEBUG")
"""Macros that no source need define."""
_BLOCKS = (*PREPROCESSOR_BLOCKS, "declaration_list", "namespace_definition", "linkage_specification")


class Branches:
    """The macros of files: those that stand in a conditional may not be there, and are not known."""

    def __init__(self, files: Iterable[CudaFile]) -> None:
        self._files = tuple(files)
        self._macros: dict[str, list[MacroText]] = {}
        self._open: set[str] = set()
        for file in self._files:
            for macro in macro_definitions(file):
                self._macros.setdefault(macro.name, []).append(macro)
            for node in find(file.root, "preproc_if", "preproc_ifdef"):
                inside = [cls.text_of(n) for d in find(node, "preproc_def") if (n := d.child_by_field_name("name"))]
                name = node.child_by_field_name("name")
                guarded = cls.text_of(name) if name is not None and _is_without(node) else None
                self._open |= {n for n in inside if n != guarded}

    def macro(self, name: str, arguments: list[str]) -> str | None:
        """The expression that a macro with parameters stands for; None for what is none, or has several bodies."""
        found = self._macros.get(name, [])
        if len(found) != 1 or found[0].params is None or len(found[0].params) != len(arguments):
            return None
        body = found[0].joined.decode("utf-8", "replace")
        if re.search(r"[{};#]", body) or found[0].params[-1:] == ("...",):
            return None
        given = dict(zip(found[0].params, arguments, strict=True))
        return re.sub(r"\b[A-Za-z_]\w*\b", lambda m: given.get(m.group(), m.group()), body)

    def arm(self, node: Node) -> list[Node] | None:
        """What is compiled of a conditional, None if that is not known."""
        holds = self._holds(node)
        if holds is None:
            return None
        other = node.child_by_field_name("alternative")
        if holds:
            heads = [node.child_by_field_name(n) for n in ("name", "condition", "alternative")]
            return [c for c in node.named_children if all(h is None or h.id != c.id for h in heads)]
        if other is None:
            return []
        return list(other.named_children) if other.type == "preproc_else" else self.arm(other)

    def constants(self, name: str) -> list[Node]:
        """What constants of files' scope begin with that are called so, in what is compiled."""
        return [v for file in self._files for n, v in self._constants(file.root.named_children) if n == name]

    def _constants(self, nodes: Iterable[Node]) -> Iterator[tuple[str, Node]]:
        for node in nodes:
            if node.type in _BLOCKS:
                arm = self.arm(node) if node.type.startswith("preproc_") else None
                yield from self._constants(node.named_children if arm is None else arm)
            elif node.type == "declaration" and re.match(r"(?:\w+\s+)*const(?:expr)?\b", cls.text_of(node)):
                for declarator in node.children_by_field_name("declarator"):
                    named, value = (declarator.child_by_field_name(n) for n in ("declarator", "value"))
                    if named is not None and named.type == "identifier" and value is not None:
                        yield cls.text_of(named), value

    def _holds(self, node: Node) -> bool | None:
        name, condition = node.child_by_field_name("name"), node.child_by_field_name("condition")
        if name is not None:
            known = self._is_defined(cls.text_of(name))
            return known if known is None or not _is_without(node) else not known
        if condition is None:
            return None
        text, unknown = cls.text_of(condition), False

        def stated(match: re.Match[str]) -> str:
            nonlocal unknown
            known = self._is_defined(match[1] or match[2])
            unknown |= known is None
            return str(int(bool(known)))

        value = evaluate(_DEFINED.sub(stated, text), self._value, lambda name, arguments: None)
        return None if value is None or unknown else bool(value)

    def _is_defined(self, name: str) -> bool | None:
        if name in self._open or (name not in self._macros and _OF_COMPILERS.fullmatch(name)):
            return None
        return name in self._macros

    def _value(self, name: str) -> int | None:
        known, found = self._is_defined(name), self._macros.get(name, [])
        if known is None or len(found) > 1:
            return None
        text = found[0].joined.decode("utf-8", "replace") if found else "0"
        return evaluate(text, lambda inner: None, lambda inner, arguments: None)


def _is_without(node: Node) -> bool:
    """Whether a conditional asks that a name is not defined."""
    return bool(re.match(r"#\s*(?:ifndef|elifndef)\b", cls.text_of(node)))
