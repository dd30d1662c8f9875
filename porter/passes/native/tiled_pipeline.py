# SPDX-License-Identifier: Apache-2.0
"""Pipelines of a library whose stages the tensor core gives back: the class is the one that the library has for that,
and its mbarriers have one arrival a phase."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import CudaFile, find
from porter.lang.text import Span
from porter.model.functions import Function
from porter.model.program import Program
from porter.passes.native.sites import Changes, Left
from porter.passes.tiled.text import cpp

_SCOPE = re.compile(rb"(?:::\s*)?(?:\w+\s*::\s*)+\Z")
"""Namespaces in front of a name."""
_NAMES = ("identifier", "type_identifier", "field_identifier")


@dataclass(eq=False)
class PipelineObject:
    """The pipeline of a kernel, by the name that the kernel has for it."""

    program: Program
    kernel: Function
    name: str

    def __post_init__(self) -> None:
        self.declaration = self._declaration()

    def _declaration(self) -> Node:
        found = [
            d for d in find(self.kernel.body, "init_declarator", "declaration")
            for n in [d.child_by_field_name("declarator")]
            if n is not None and n.type == "identifier" and self.kernel.text(n) == self.name
            and d.child_by_field_name("value") is not None
        ]  # fmt: skip
        if len(found) != 1:
            what = f"where pipeline `{self.name}` is made"
            raise Left(self.kernel, self.kernel.span(self.kernel.body), what)
        return found[0]

    @property
    def arguments(self) -> list[Node]:
        """What its constructor is handed."""
        value = self.declaration.child_by_field_name("value")
        return [n for n in (value.named_children if value is not None else ()) if n.type != "comment"]


def change_class(program: Program, changes: Changes, kernel: Function, pairs: bool = False) -> None:
    """Name the class of pipelines that the tensor core gives stages of back, wherever the sources name the other;
    `pairs`: to two CTAs that fill them together.

    Raises:
        Left: it is named in a header, or not as a type with its stages.
    """
    for file in program.sources.files.values():
        for name in find(file.root, *_NAMES):
            if not program.vocabulary.spellings.are("pipeline_of_threads", file.text(name)):
                continue
            whole = name.parent
            own = next((f for f in program.functions if f.file is file), None)
            if whole is None or whole.type != "template_type" or own is None or file.path != program.sources.root:
                raise _at(file, name, own or kernel)
            arguments = whole.child_by_field_name("arguments")
            if arguments is None or len(arguments.named_children) != 1:
                raise _at(file, name, own)
            stages = file.text(arguments.named_children[0])
            scope = _SCOPE.search(file.source, 0, whole.start_byte)
            text = cpp("pipeline_type", stages=stages, pairs=pairs)
            changes.replace(own, Span(scope.start() if scope is not None else whole.start_byte, whole.end_byte), text)


def _at(file: CudaFile, node: Node, function: Function) -> Left:
    span = Span(node.start_byte, node.end_byte) if function.file is file else function.span(function.body)
    return Left(function, span, f"`{file.text(node)}` as a type of the file itself, with its stages alone")
