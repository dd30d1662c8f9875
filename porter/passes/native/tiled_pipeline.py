# SPDX-License-Identifier: Apache-2.0
"""Pipelines of a library whose stages the tensor core gives back: the class is the one that the library has for that,
and its mbarriers have one arrival a phase."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import CudaFile, find
from porter.lang.text import Span
from porter.model.facts import Pipeline
from porter.model.functions import Function, Style
from porter.model.program import Program
from porter.model.scopes import resolve
from porter.passes.native.sites import Changes, Left, Place
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

    def _left(self, what: str) -> Left:
        return Left(self.kernel, self.kernel.span(self.declaration), what)

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

    def count(self) -> int | None:
        """How many threads arrive at the mbarrier of a stage before it is empty.

        Raises:
            Left: it is not known that the stages are those of one CTA, or where the count is written.
        """
        given = self.arguments
        if len(given) != 3:
            raise self._left(f"how pipeline `{self.name}` begins: with its storage, parameters and cluster")
        shape, are = " ".join(self.kernel.text(given[2]).split()), self.program.vocabulary.spellings.are
        if not are("cluster_of_one", shape):
            raise self._left(f"that the stages of `{self.name}` are for one CTA: its cluster is `{shape}`")
        params = self.kernel.text(given[1])
        variable = resolve(self.kernel, given[1], params) if given[1].type == "identifier" else None
        if variable is None:
            raise self._left(f"the parameters of pipeline `{self.name}`, as a variable")
        counts: list[Node] = []
        for name in find(self.kernel.body, "identifier"):
            if self.kernel.text(name) != params or name.id == given[1].id:
                continue
            member, assigned = name.parent, name.parent.parent if name.parent is not None else None
            if member is None or member.type != "field_expression":
                if variable.declaration is not None and inside_of(variable.declaration, name):
                    continue
                raise Left(self.kernel, self.kernel.span(name), f"what is done with `{params}`")
            field = member.child_by_field_name("field")
            text = self.kernel.text(field) if field is not None else ""
            right = assigned.child_by_field_name("right") if assigned is not None else None
            if are("count_of_producers", text):
                raise Left(self.kernel, self.kernel.span(member), "one producer, as the class on sm_100a has")
            if are("count_of_consumers", text):
                if assigned is None or assigned.type != "assignment_expression" or right is None:
                    raise Left(self.kernel, self.kernel.span(member), f"the count of pipeline `{self.name}`")
                counts.append(right)
        if len(counts) != 1:
            raise self._left(f"the count of pipeline `{self.name}`")
        return self.program.constants_in(self.kernel).evaluate(self.kernel.text(counts[0]))

    def check_uses(self) -> None:
        """That nothing is done with the object, or with its mbarriers, but what is known.

        Raises:
            Left: something is.
        """
        field = self.kernel.text(self.arguments[0]).rpartition(".")[2]
        for function in (f for f in self.program.functions if f.style is not Style.HOST):
            for name in find(function.body, "field_identifier"):
                of_member = name.parent is not None and name.parent.type == "field_expression"
                its = function is self.kernel and inside_of(self.arguments[0], name)
                if function.text(name) == field and of_member and not its:
                    raise Place(function, name).left(f"what is done with the mbarriers of `{self.name}`")
        self._check(self.kernel, self.name, set())

    def _check(self, function: Function, name: str, seen: set[tuple[int, str]]) -> None:
        """The same of a function that knows the object by a name."""
        if (id(function), name) in seen:
            return
        seen.add((id(function), name))
        for node in find(function.body, "identifier"):
            if function.text(node) == name and not (function is self.kernel and inside_of(self.declaration, node)):
                self._check_use(function, node, seen)

    def _check_use(self, function: Function, node: Node, seen: set[tuple[int, str]]) -> None:
        above = node.parent
        call = above.parent if above is not None and above.type in ("field_expression", "argument_list") else None
        known = [c for c in self.program.calls_by_node.get(call.id, ()) if call is not None] if call is not None else []
        if above is not None and above.type == "field_expression" and known:
            asked = [r for c in known for r in self.program.vocabulary.of(c.name)]
            if any(r.kind is Pipeline for r in asked):
                return
        elif known and above is not None:
            targets = [(t, next(i for i, a in enumerate(c.args) if inside_of(a, node)))
                       for c in known for t in self.program.targets(c)]  # fmt: skip
            if targets and all(i < len(t.params) for t, i in targets):
                for target, index in targets:
                    self._check(target, target.params[index].name, seen)
                return
        elif above is not None and above.type in ("decltype", "sizeof_expression"):
            return
        raise Place(function, node).left(f"what is done with pipeline `{self.name}` here")


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


def inside_of(outer: Node, inner: Node) -> bool:
    """Whether a node is a part of another."""
    return outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte
