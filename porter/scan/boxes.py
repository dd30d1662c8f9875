# SPDX-License-Identifier: Apache-2.0
"""The boxes of tensor maps as host code encodes them, and where it says how many rows one has.

A map is known by the calls that it was encoded by. From the box of that encoding, the number of its rows is followed
through parameters to a place that says it of this map, and of no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tree_sitter import Node

from porter.lang.cuda import arguments, find
from porter.lang.sources import load_sources
from porter.lang.text import Span
from porter.model.block_size import LAUNCHERS, kernel_named
from porter.model.functions import Function, declared_name
from porter.model.pipeline.facts import KernelBoxes, RowBox
from porter.model.program import Program, build_program
from porter.model.scopes import Variable, resolve
from porter.ptx.tensormap import TensorMapType
from porter.rules.recognize import vocabulary
from porter.rules.rule import Rule
from porter.scan.draft.host import HOPPER
from porter.scan.draft.launches import all_launches
from porter.scan.draft.numbers import Num
from porter.scan.draft.values import ENCODED, MADE, CallSite, LaunchFacts, MapValue, Record, Word

__all__ = ["KernelBoxes", "boxes_of"]

_BOX = 1 + ENCODED.index("box")
"""Which argument of cuTensorMapEncodeTiled the box is."""
_ROWS = 1
"""Dimensions are innermost first."""
_DEEPEST = 12
_NAMED = ("identifier", "type_identifier", "template_function", "qualified_identifier")
_CASTS = re.compile(r"(?:static_cast|u?int(?:8|16|32|64)?(?:_t)?|cuuint(?:32|64)_t|unsigned|size_t)\b")


def boxes_of(
    path: Path, rules: Sequence[Rule], include_dirs: Sequence[Path] = (), major: int = HOPPER
) -> list[KernelBoxes]:
    """Those of all kernels of a file and its headers that host code of these launches on a device of compute capability
    `major`.

    Raises:
        PorterError: what reading the sources raises.
    """
    program = build_program(load_sources(path, include_dirs), vocabulary(rules))
    launches = {id(k): all_launches(program, k, major) for k in program.kernels}
    return [_Boxes(program, k, launches).boxes() for k in program.kernels if launches[id(k)]]


class _Unknown(Exception):
    """What is not known of a box."""


_Place = tuple[str, int]
"""Path and offset of a call."""


@dataclass(eq=False)
class _Boxes:
    """Asks about the maps of one kernel; `launches` are those of all kernels, by their ids."""

    program: Program
    kernel: Function
    launches: dict[int, list[LaunchFacts]]
    _mine: set[_Place] = field(default_factory=set)
    _others: set[_Place] = field(default_factory=set)

    def boxes(self) -> KernelBoxes:
        found, unknown, sizes = [], [], []
        for index, param in enumerate(self.kernel.params):
            maps = [facts.arguments[index] for facts in self.launches[id(self.kernel)]]
            if not any(isinstance(m, MapValue) for m in maps):
                continue
            known = {_size(m.fields) if isinstance(m, MapValue) else None for m in maps}
            size = known.pop() if len(known) == 1 else None
            sizes += [(index, *size)] if size is not None else []
            try:
                found.append(self._box(param.name, index, maps))
            except _Unknown as what:
                unknown.append((param.name, str(what)))
        given = {facts.kernel.template for facts in self.launches[id(self.kernel)]}
        template = zip(self.kernel.template_params, given.pop() if len(given) == 1 else (), strict=False)
        return KernelBoxes(self.kernel.name, tuple(found), tuple(unknown), tuple(template), tuple(sizes))

    def _box(self, param: str, index: int, maps: list[Any]) -> RowBox:
        launching = self._launching()
        made = [m.fields for m in maps if isinstance(m, MapValue) and m.fields.get(MADE)]
        if len(made) != len(maps):
            raise _Unknown("how its tensor map is made is not known")
        sizes = {_size(fields) for fields in made}
        if len(sizes) != 1 or None in sizes:
            raise _Unknown("the box of its tensor map is no known number of rows and bytes")
        self._mine = {_at(site) for fields in made for site in fields[MADE]}
        foreign = list(self._foreign(index))
        self._others = {_at(site) for chain in foreign for site in chain}
        self._are_all([*(fields[MADE] for fields in made), *foreign])
        places = {self._written(fields[MADE], launching) for fields in made}
        if len(places) != 1:
            raise _Unknown("the box of its tensor map is written in several places")
        rows, row_bytes = next(s for s in sizes if s is not None)
        at = places.pop()
        text = self.program.sources.files[at[0]].text(Span(*at[1:]))
        return RowBox(param, rows, row_bytes, at, text)

    def _launching(self) -> Function:
        """The function that launches the kernel, in one place."""
        found = []
        for caller in self.program.functions:
            for syntax in find(caller.body, "kernel_call_syntax"):
                called = syntax.parent.child_by_field_name("function") if syntax.parent is not None else None
                if called is not None and kernel_named(self.program, self.kernel, caller, called, 0) is not None:
                    found.append(caller)
            for call in caller.calls:
                at = LAUNCHERS.get(call.name)
                if at is not None and at < len(call.args):
                    named = kernel_named(self.program, self.kernel, caller, call.args[at], 0)
                    found += [caller] if named is not None else []
        if len(found) != 1:
            raise _Unknown("the kernel is launched in several places" if found else "who launches it is not known")
        return found[0]

    def _foreign(self, index: int) -> Iterator[tuple[CallSite, ...]]:
        """The calls by which all other maps are made."""
        for kernel in self.program.kernels:
            launches = self.launches[id(kernel)]
            takes = any(p.node is not None and "CUtensorMap" in kernel.text(p.node) for p in kernel.params)
            if not launches and takes:
                raise _Unknown(f"whether the launch of `{kernel.name}` has the same tensor map is not known")
            for facts in launches:
                for i, argument in enumerate(facts.arguments):
                    if kernel is not self.kernel or i != index:
                        yield from (m.fields[MADE] for m in _maps_in(argument) if m.fields.get(MADE))

    def _are_all(self, chains: Sequence[tuple[CallSite, ...]]) -> None:
        """That no map is encoded by another call: it may be this one, where host code has a choice."""
        seen = self._mine | self._others
        for function in self.program.functions:
            for call in find(function.body, "call_expression"):
                if _encodes(function, call) and (function.file.path, function.span(call).start) not in seen:
                    raise _Unknown("a tensor map is encoded that no launch is known to have")
        for chain in chains:
            for above, site in pairwise(chain):
                if self._launches(site.owner):
                    continue
                if not self._calls_of(above, site) <= seen:
                    raise _Unknown("a tensor map is encoded that no launch is known to have")

    def _launches(self, function: Function) -> bool:
        return any(True for _ in find(function.body, "kernel_call_syntax")) or any(
            c.name in LAUNCHERS for c in function.calls
        )

    def _calls_of(self, above: CallSite, site: CallSite) -> set[_Place]:
        """The places of all calls of the function, or lambda, that a call stands in; `above` is one of them."""
        owner: Function = site.owner
        inner = _lambda_around(owner, site.node)
        if inner is None or above.owner is not owner:
            return {(c.caller.file.path, c.caller.span(c.node).start) for c in self.program.callers(owner)}
        name = _name_of_lambda(owner, inner)
        calls = [n for n in find(owner.body, "call_expression") if name and owner.text(n).startswith(f"{name}(")]
        mentions = [n for n in find(owner.body, "identifier") if owner.text(n) == name]
        if not calls or len(mentions) != len(calls) + 1:
            raise _Unknown("a lambda that encodes its tensor map is used for something else")
        return {(owner.file.path, owner.span(n).start) for n in calls}

    # --- Where the rows are written

    def _written(self, chain: tuple[CallSite, ...], launching: Function) -> tuple[str, int, int]:
        level = len(chain) - 1
        first = next((i for i, site in enumerate(chain) if site.owner is launching), None)
        if first is None:
            raise _Unknown("its tensor map is not made by the function that launches the kernel")
        given = arguments(chain[level].node)
        if len(given) <= _BOX:
            raise _Unknown("the box of its tensor map is not one of the arguments that encode it")
        level, node = self._element(chain, level, given[_BOX], 0)
        for _ in range(_DEEPEST):
            if level < first:
                break
            if self._is_for_this_alone(chain, level, first):
                owner = chain[level].owner
                at = owner.span(node)
                return owner.file.path, at.start, at.end
            level, node = self._outward(chain, level, node)
        raise _Unknown("how many rows the box of its tensor map has is not written for this map alone")

    def _is_for_this_alone(self, chain: tuple[CallSite, ...], level: int, first: int) -> bool:
        """Whether what is written at a level of the calls is for no other map."""
        if _at(chain[level]) in self._others:
            return False
        for above, site in pairwise(chain[first : level + 1]):
            calls = self._calls_of(above, site)
            if not calls or not calls <= self._mine:
                return False
        return True

    def _element(self, chain: tuple[CallSite, ...], level: int, node: Node, depth: int) -> tuple[int, Node]:
        """The expression of the rows in an array, and the level of the calls that it stands at."""
        owner = chain[level].owner
        node = _bare(owner, node)
        if depth > _DEEPEST:
            raise _Unknown("what the box of its tensor map is")
        if node.type == "initializer_list":
            return level, self._in_list(node)
        name = owner.text(node)
        if node.type != "identifier":
            raise _Unknown(f"what `{name}` is, the box of its tensor map")
        variable = self._variable(owner, node, name)
        if variable is None or variable.declarator is None:
            return self._element(chain, *self._handed(chain, level, node), depth + 1)
        mentions = [n for n in find(owner.body, "identifier") if owner.text(n) == name]
        elements = [n for n in mentions if n.parent is not None and n.parent.type == "subscript_expression"]
        if len(mentions) - len(elements) != 2:
            raise _Unknown(f"`{name}`, the box of its tensor map, is used for something else")
        values = [v for n in elements if (v := _assigned(owner, n)) is not None]
        if len(values) != len(elements):
            raise _Unknown(f"`{name}`, the box of its tensor map, is used for something else")
        rows = [value for index, value in values if index == str(_ROWS)]
        first = _first_value(variable)
        if first is None and len(rows) == 1 and {i for i, _ in values} == {"0", str(_ROWS)}:
            return level, rows[0]
        if first is None or first.type != "initializer_list" or values:
            raise _Unknown(f"what `{name}` is, the box of its tensor map")
        return level, self._in_list(first)

    @staticmethod
    def _in_list(node: Node) -> Node:
        inner = [c for c in node.named_children if c.type != "comment"]
        while len(inner) == 1 and inner[0].type == "initializer_list":
            inner = [c for c in inner[0].named_children if c.type != "comment"]
        if len(inner) <= _ROWS or inner[_ROWS].type == "initializer_pair":
            raise _Unknown("the box of its tensor map is no list of its extents")
        return inner[_ROWS]

    @staticmethod
    def _variable(owner: Function, node: Node, name: str) -> Variable | None:
        inner = _lambda_around(owner, node)
        if inner is not None and name in _lambda_params(owner, inner):
            return None
        return resolve(owner, node, name)

    def _outward(self, chain: tuple[CallSite, ...], level: int, node: Node) -> tuple[int, Node]:
        """What a name stands for: the value of a variable, or what the function is handed."""
        owner = chain[level].owner
        node = _bare(owner, node)
        name = owner.text(node)
        if node.type not in _NAMED:
            raise _Unknown(f"`{name}`, the rows of its tensor map's box, is for other maps, too")
        inner = _lambda_around(owner, node)
        around = owner.node if inner is None else inner
        if owner.node.parent is not None and owner.node.parent.type == "template_declaration" and inner is None:
            around = owner.node.parent
        mentions = [n for n in find(around, *_NAMED) if owner.text(n) == name]
        if len(mentions) != 2:
            raise _Unknown(f"`{name}`, the rows of its tensor map's box, is used for something else")
        variable = self._variable(owner, node, name)
        if variable is not None and variable.declarator is not None:
            value = _first_value(variable)
            if value is None:
                raise _Unknown(f"what `{name}` is, the rows of its tensor map's box")
            return level, value
        return self._handed(chain, level, node)

    def _handed(self, chain: tuple[CallSite, ...], level: int, node: Node) -> tuple[int, Node]:
        """The argument of the call that a function's parameter stands for."""
        owner = chain[level].owner
        name, inner = owner.text(node), _lambda_around(owner, node)
        if level == 0:
            raise _Unknown(f"what `{name}` is, the box of its tensor map")
        call = chain[level - 1].node
        if inner is not None and name in _lambda_params(owner, inner):
            given, index = arguments(call), _lambda_params(owner, inner).index(name)
        elif name in owner.template_params:
            given, index = _template_arguments(call), owner.template_params.index(name)
        elif (param := owner.param(name)) is not None:
            given, index = arguments(call), param.index
        else:
            raise _Unknown(f"`{name}`, the rows of its tensor map's box, is for other maps, too")
        if index >= len(given):
            raise _Unknown(f"`{name}`, the rows of its tensor map's box, is not said by the call")
        return level - 1, given[index]


def _size(fields: dict[str, Any]) -> tuple[int, int] | None:
    """Rows of a box of two dimensions, and bytes of one; None for another one, or where they are not known."""

    def known(value: Any) -> int | None:
        number = value.known if isinstance(value, Num) else None
        return number if isinstance(number, int) else None

    def word(name: str) -> str:
        value = fields.get(name)
        return value.text.rpartition("::")[2] if isinstance(value, Word) else ""

    box, steps = fields.get("box"), fields.get("steps")
    kind = word("type").removeprefix("CU_TENSOR_MAP_DATA_TYPE_")
    plain = word("interleave") == "CU_TENSOR_MAP_INTERLEAVE_NONE" and kind in TensorMapType.__members__
    if not plain or known(fields.get("rank")) != 2 or not isinstance(box, list) or not isinstance(steps, list):
        return None
    if len(box) < 2 or [known(s) for s in steps[:2]] != [1, 1]:
        return None
    columns, rows = known(box[0]), known(box[_ROWS])
    bits = TensorMapType[kind].element_bits
    return (rows, columns * bits // 8) if columns and rows else None


def _encodes(function: Function, call: Node) -> bool:
    """Whether a call has the arguments of cuTensorMapEncodeTiled."""
    callee, given = call.child_by_field_name("function"), arguments(call)
    name = function.text(callee) if callee is not None else ""
    return len(given) > len(ENCODED) and ("ncode" in name or "CU_TENSOR_MAP" in function.text(call))


def _maps_in(value: Any) -> Iterator[MapValue]:
    if isinstance(value, MapValue):
        yield value
    elif isinstance(value, Record):
        for item in value.items.values():
            yield from _maps_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _maps_in(item)


def _at(site: CallSite) -> _Place:
    """Where a call stands; what a macro makes stands nowhere."""
    owner = site.owner
    node = owner.file.root.descendant_for_byte_range(site.node.start_byte, site.node.end_byte) if owner else None
    if node is None or owner.file.text(owner.span(site.node)) != (site.node.text or b"").decode("utf-8", "replace"):
        raise _Unknown("a macro makes its tensor map")
    return owner.file.path, owner.span(site.node).start


def _template_arguments(call: Node) -> list[Node]:
    callee = call.child_by_field_name("function")
    lists = list(find(callee, "template_argument_list")) if callee is not None else []
    if not lists:
        return []
    found = [c for c in lists[0].named_children if c.type != "comment"]
    return [c.named_children[0] if c.type == "type_descriptor" and len(c.named_children) == 1 else c for c in found]


def _bare(owner: Function, node: Node) -> Node:
    """An expression without parentheses, casts, and what makes a pointer of an array."""
    while True:
        inner: Node | None = None
        if node.type == "parenthesized_expression" and len(node.named_children) == 1:
            inner = node.named_children[0]
        elif node.type == "cast_expression" or node.type == "compound_literal_expression":
            inner = node.child_by_field_name("value")
        elif node.type == "pointer_expression" and owner.text(node).startswith("&"):
            held = node.child_by_field_name("argument")
            if held is not None and held.type == "subscript_expression" and owner.text(held).endswith("[0]"):
                inner = held.child_by_field_name("argument")
        elif node.type == "call_expression":
            callee, given = node.child_by_field_name("function"), arguments(node)
            text = owner.text(callee) if callee is not None else ""
            if callee is not None and text.endswith(".data") and not given:
                inner = callee.child_by_field_name("argument")
            elif len(given) == 1 and _CASTS.match(text):
                inner = given[0]
        if inner is None:
            return node
        node = inner


def _first_value(variable: Variable) -> Node | None:
    declarator = variable.declarator
    return declarator.child_by_field_name("value") if declarator is not None else None


def _assigned(owner: Function, name: Node) -> tuple[str, Node] | None:
    """The index and the value of an element that is assigned to."""
    subscript = name.parent
    above = subscript.parent if subscript is not None else None
    if above is None or subscript is None or above.type != "assignment_expression":
        return None
    left, right = above.child_by_field_name("left"), above.child_by_field_name("right")
    listed = subscript.child_by_field_name("indices") or subscript.child_by_field_name("index")
    if left is None or right is None or listed is None or left.id != subscript.id:
        return None
    return owner.text(listed).strip("[] "), right


def _lambda_around(owner: Function, node: Node) -> Node | None:
    """The innermost lambda inside a function that holds a node."""
    current = node.parent
    while current is not None and current.id != owner.node.id:
        if current.type == "lambda_expression":
            return current
        current = current.parent
    return None


def _lambda_params(owner: Function, node: Node) -> list[str]:
    declarator = node.child_by_field_name("declarator")
    found = [declared_name(p) for p in find(declarator, "parameter_declaration")] if declarator is not None else []
    return [owner.text(n) if n is not None else "" for n in found]


def _name_of_lambda(owner: Function, node: Node) -> str:
    above = node.parent
    named = above.child_by_field_name("declarator") if above is not None and above.type == "init_declarator" else None
    return owner.text(named) if named is not None else ""
