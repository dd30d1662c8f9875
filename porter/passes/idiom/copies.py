# SPDX-License-Identifier: Apache-2.0
"""Copies that are tiled as the accumulator: those of results to shared memory by stmatrix. They are tiled as the copy
from Tensor Memory is, whose threads then have their rows and columns as stmatrix wants them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.functions import Call, Function, declared_name
from porter.model.scopes import resolve
from porter.passes.idiom.mainloop import Mainloop
from porter.passes.idiom.site import Site, inside
from porter.passes.idiom.text import cpp

RULE = "PTR765"
_MADE = "make_tiled_copy_C"
_OWN = re.compile(r"(?:partition_(?:fragment|shape)_[ABC]|size|tile_size|tile_shape)\Z")


@dataclass(eq=False)
class Copies:
    """The functions that a kernel hands its tiled MMA to for such copies, with the name that each has for it."""

    site: Site
    loop: Mainloop
    holders: dict[int, tuple[Function, str]] = field(default_factory=dict)
    made: list[tuple[Function, Node]] = field(default_factory=list)
    handed: list[Node] = field(default_factory=list)

    def find(self) -> None:
        """Raises Left if anything else is done with the tiled MMA."""
        self._uses(self.site.kernel, self.site.mma)
        if self.made and self.site.types.bytes == 2:
            raise self.site.left(self.made[0][1], "sums of 32 bits for stmatrix", self.made[0][0])

    def _uses(self, function: Function, name: str) -> None:
        if id(function) in self.holders:
            return
        self.holders[id(function)] = function, name
        for node in find(function.body, "identifier"):
            if function.text(node) == name and not self._is_plain(function, node):
                self._handed(function, node)

    def _is_plain(self, function: Function, node: Node) -> bool:
        """Whether a tiled MMA is declared, asked for its part or size, told to add, or handed to what multiplies."""
        above = node.parent
        if above is None or above.type in ("declaration", "init_declarator"):
            return above is not None and above.child_by_field_name("value") != node
        if above.type == "field_expression":
            return True
        call = self._call(function, above)
        if call is None:
            return above.type != "argument_list"
        if any(m.call.node.id == call.node.id and m.call.caller.file is function.file for m in self.site.multiplies):
            return True
        if self.loop.call is not None and inside(self.loop.call, node) and function is self.site.kernel:
            return True
        return _OWN.match(call.name) is not None

    def _call(self, function: Function, arguments: Node) -> Call | None:
        if arguments.type != "argument_list" or arguments.parent is None:
            return None
        return self.site.tiled.tensors.call(function, arguments.parent)

    def _handed(self, function: Function, node: Node) -> None:
        assert node.parent is not None
        call = self._call(function, node.parent)
        if call is not None and call.name == _MADE and len(call.args) == 2 and call.args[1] == node:
            self.made.append((function, call.node))
            return
        targets = self.site.program.targets(call) if call is not None else []
        if call is None or not targets or function is not self.site.kernel:
            what = call.name if call is not None else function.text(node.parent)[:40]
            raise self.site.left(node, f"what is done with the tiled MMA in `{what}`", function)
        index = next(i for i, a in enumerate(call.args) if a == node)
        for target in targets:
            self._uses(target, target.params[index].name)
        self.handed.append(node)

    @property
    def by_matrix(self) -> bool:
        return bool(self.made)

    # --- edits

    def take(self, by_rows: bool) -> None:
        """Raises Left."""
        site, kernel = self.site, self.site.kernel
        t2r = site.name("t2r") if self.made else ""
        for node in self.handed:
            site.draft.replace(RULE, kernel, kernel.span(node), t2r)
        for function, name in self.holders.values():
            if function is not kernel:
                self._rename(function, name, t2r)
        for function, call in self.made:
            callee, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
            assert callee is not None
            assert arguments is not None
            end = function.span(callee).end
            site.draft.replace(RULE, function, Span(end - 1, end), "D")
            if function is kernel:
                site.draft.replace(RULE, function, function.span(arguments.named_children[-1]), t2r)
            self._slices(function, call, by_rows)

    def _rename(self, function: Function, name: str, t2r: str) -> None:
        for node in find(function.node, "identifier"):
            if function.text(node) == name:
                self.site.draft.replace(RULE, function, function.span(node), t2r)
        param = function.param(name)
        kinds = find(param.node, "type_identifier") if param is not None and param.node is not None else ()
        around = function.node.parent
        for kind in kinds:
            text = function.text(kind)
            if text in function.template_params and around is not None:
                for node in find(around, "type_identifier"):
                    if function.text(node) == text:
                        self.site.draft.replace(RULE, function, function.span(node), self.site.name("T2R"))

    def _slices(self, function: Function, call: Node, by_rows: bool) -> None:
        """A thread's part of the copy is that of its warpgroup's part of results."""
        site, warpgroups = self.site, self.site.types.warpgroups
        copy = _declared(function, call)
        slices = (
            [(n, _declared(function, n)) for n in _methods(function, copy, "get_(?:thread_)?slice")] if copy else []
        )
        if len(slices) != 1 or not slices[0][1]:
            raise site.left(call, "one part of the copy that is tiled as the accumulator", function)
        sliced, name = slices[0]
        arguments = sliced.child_by_field_name("arguments")
        assert arguments is not None
        thread = function.file.text(Span(function.span(arguments).start + 1, function.span(arguments).end - 1))
        thread = thread if thread.isidentifier() else f"({thread})"
        site.draft.replace(RULE, function, function.span(arguments), f"({thread} % 128)")
        for node in _methods(function, name, "partition_D") if warpgroups > 1 else ():
            inner = node.child_by_field_name("arguments")
            if inner is None or len(inner.named_children) != 1:
                raise site.left(node, "a tensor of results in shared memory", function)
            tensor = inner.named_children[0]
            text = cpp("share", c=site.c, by_rows=by_rows, tensor=function.text(tensor), count=warpgroups,
                       index=f"{thread} / 128")  # fmt: skip
            self._share(function, call, tensor, text)

    def _share(self, function: Function, call: Node, tensor: Node, text: str) -> None:
        """A warpgroup's part of a tensor, by a name of its own where the tensor is known in front of the copy."""
        site, statement = self.site, call
        while statement.type != "declaration" and statement.parent is not None:
            statement = statement.parent
        variable = resolve(function, call, function.text(tensor)) if tensor.type == "identifier" else None
        if variable is not None and statement.type == "declaration":
            name = site.name(f"{variable.name}_part")
            site.draft.before(RULE, function, statement, f"{site.c}Tensor {name} = {text};")
            text = name
        site.draft.replace(RULE, function, function.span(tensor), text)


def _declared(function: Function, value: Node) -> str:
    """The variable that is declared with a value."""
    above = value.parent
    name = declared_name(above) if above is not None and above.type == "init_declarator" else None
    return function.text(name) if name is not None else ""


def _methods(function: Function, name: str, method: str) -> Iterator[Node]:
    """Calls of a method of a variable."""
    for node in find(function.body, "call_expression"):
        callee = node.child_by_field_name("function")
        if callee is not None and re.fullmatch(rf"{re.escape(name)}\s*\.\s*{method}", function.text(callee)):
            yield node
