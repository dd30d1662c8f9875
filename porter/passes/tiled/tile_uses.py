# SPDX-License-Identifier: Apache-2.0
"""Which of its tiles a kernel takes a register of an accumulator from. Rows of a tile are others where one MMA makes
two of them. So elements may be taken in loops over all of them alike; what else a turn of such a loop depends on, or
another way to pick elements, is named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Function
from porter.model.kernels import SHARED
from porter.model.scopes import Variable, resolve
from porter.model.tiled.accumulators import Origin
from porter.model.tiled.tensors import Key, holder
from porter.passes.full_rate.library import LibraryCalls
from porter.passes.full_rate.missing import Missing
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.derived import base_of
from porter.passes.tiled.names import Names

ALL = "_"
_DEEPEST = 6
_OF_A_TILE = 8
"""Elements that follow each other are of one tile in groups of as many."""
_LEAVING = ("break_statement", "return_statement", "goto_statement")
_SUMS = ("float", "double")
_CONDITION = re.compile(r"(\w+) ?(?:<|!=) ?(.+)")
_EXTENT = re.compile(
    r"(?:int|unsigned|size_t|static_cast<int>) ?\((?P<cast>.+)\)"
    r"|(?P<name>[\w:.]+) ?(?:<[\d, ]+>)? ?\([\w.:]*(?:\.\w+\(\))?\)(?:\{\})?(?: ?/ ?(?P<by>\d+))?"
)
"""How often a loop turns: `size<1>(acc)`, `size(acc) / 2`."""
_ZEROS = re.compile(r"\{(?:0(?:\.0?)?f?)?\}")
_STEPS = (1, 2, 4, _OF_A_TILE)


@dataclass(frozen=True)
class _Pick:
    """`acc(i, m)`, `sums[i]`: elements of a variable, by coordinates."""

    function: Function
    node: Node
    variable: Variable
    coordinates: list[Node]
    whole_atoms: bool = False
    """Whether the one coordinate that is left counts tiles."""


@dataclass(frozen=True)
class _Linear:
    """`factor * variable + offset`."""

    name: Node
    factor: int = 1
    offset: int = 0


@dataclass(eq=False)
class TileUses:
    """Asks about functions that kernels come to."""

    context: TiledContext
    functions: list[Function]
    names: Names
    library: LibraryCalls
    _held: set[Key] = field(default_factory=set)
    """Variables with elements of several tiles."""
    _loops: dict[int, tuple[Function, Node, Variable]] = field(default_factory=dict)

    def missing(self) -> Iterator[Missing]:
        picks = [p for f in self.functions for p in self._picks(f)]
        found: dict[int, Missing] = {}
        before = -1
        while before != len(self._held) + len(self._loops):
            before = len(self._held) + len(self._loops)
            for pick in picks:
                if self.has_tiles(pick.function, pick.variable):
                    found |= {m.span.start: m for m in self._of_pick(pick)}
            for function, loop, variable in list(self._loops.values()):
                found |= {m.span.start: m for m in self._of_loop(function, loop, variable, picks)}
        yield from found.values()

    def _at(self, function: Function, node: Node, what: str) -> Missing:
        text = " ".join(function.text(node).split())
        return Missing(function, function.span(node), f"`{text}` {what}")

    # --- what has elements of several tiles

    def variable(self, function: Function, name: Node) -> Variable | None:
        inside = holder(self.context.activity.lambdas, name, function)
        found = resolve(inside, name, function.text(name))
        return found if found is not None and not found.ambiguous else None

    def own_nodes(self, function: Function, *types: str) -> Iterator[Node]:
        """Those of a function, but not of its lambdas that are looked at on their own, nor what issues MMAs."""
        issued = [m.call.node for m in self.context.tiled.multiplies if m.call.caller.file is function.file]
        for node in find(function.body, *types):
            if any(c.start_byte <= node.start_byte and node.end_byte <= c.end_byte for c in issued):
                continue
            if holder(self.context.activity.lambdas, node, function) is function:
                yield node

    def has_tiles(self, function: Function, variable: Variable) -> bool:
        return variable.key in self._held or self.names.reaches(variable) or self._is_made_of(function, variable, 0)

    def _is_made_of(self, function: Function, variable: Variable, depth: int) -> bool:
        """Whether registers are made with the extents of an accumulator, or of a part of results."""
        if depth > _DEEPEST:
            return False
        value = initial(variable)
        if value is None or not self._is_own(variable, 0):
            return variable.param is not None and self._is_handed(variable, depth)
        spellings = self.context.tiled.program.vocabulary.spellings
        for name in find(value, "identifier", "field_identifier"):
            if spellings.are("rows_by_object", variable.function.text(name)):
                return True
            inner = self.variable(variable.function, name) if name.type == "identifier" else None
            if inner is None or inner.key == variable.key:
                continue
            if self.names.reaches(inner) or self._is_made_of(inner.function, inner, depth + 1):
                return True
        return False

    def _is_handed(self, variable: Variable, depth: int) -> bool:
        """Whether a caller hands such registers to a function."""
        assert variable.param is not None
        for call in self.context.tiled.program.callers(variable.function):
            index = variable.param.index
            for name in find(call.args[index], "identifier") if index < len(call.args) else ():
                inner = self.variable(call.caller, name)
                if inner is not None and (
                    inner.key in self._held
                    or self.names.reaches(inner)
                    or self._is_made_of(call.caller, inner, depth + 1)
                ):
                    return True
            if index < len(call.args) and call.args[index].type == "identifier":
                continue
        return False

    def _is_own(self, variable: Variable, depth: int) -> bool:
        """Whether a variable has registers of its thread, or a part of results that is asked for by its rows."""
        if depth > _DEEPEST:
            return False
        if variable.param is not None:
            index, calls = variable.param.index, self.context.tiled.program.callers(variable.function)
            return bool(calls) and all(
                index < len(c.args)
                and (base := base_of(c.args[index])) is not None
                and (inner := self.variable(c.caller, base)) is not None
                and self._is_own(inner, depth + 1)
                for c in calls
            )
        declaration, value = variable.declaration, initial(variable)
        if declaration is None or SHARED in variable.function.text(declaration):
            return False
        if self.names.reaches(variable):
            return True
        if value is None or value.type == "initializer_list":
            declarator = variable.declarator
            return declarator is not None and next(find(declarator, "array_declarator"), None) is not None
        function = variable.function
        if value.type == "call_expression" and self.context.tiled.tensors.makes_registers(function, value):
            return True
        return value.type == "call_expression" and self._is_part(function, value)

    def _is_part(self, function: Function, value: Node) -> bool:
        """Whether a call gives a thread's part of a tensor."""
        named = self.library.named(function, value)
        are = self.context.tiled.program.vocabulary.spellings.are
        return named is not None and named[1] and are("part_of_a_thread", named[0])

    # --- elements

    def _picks(self, function: Function) -> Iterator[_Pick]:
        for node in self.own_nodes(function, "call_expression", "subscript_expression"):
            of = node.child_by_field_name("function" if node.type == "call_expression" else "argument")
            given = node.child_by_field_name("arguments" if node.type == "call_expression" else "indices")
            if of is None or given is None or (node.type == "call_expression" and of.type == "field_expression"):
                continue
            for base in self._bases(function, of):
                variable = self.variable(function, base)
                if variable is not None:
                    yield self._pick(function, node, of, variable, list(self._flat(function, given)))
                    break

    def _bases(self, function: Function, of: Node) -> Iterator[Node]:
        """The name whose elements are picked: of `retile(acc)(i)` that of the argument."""
        if of.type == "identifier":
            yield of
        elif of.type in ("call_expression", "subscript_expression"):
            given = of.child_by_field_name("arguments")
            inside = list(find(given, "identifier")) if given is not None else []
            base = base_of(of)
            for name in [*inside, *([base] if base is not None else [])]:
                variable = self.variable(function, name)
                if variable is not None and self.has_tiles(function, variable):
                    yield name
            if base is not None:
                yield base

    def _pick(self, function: Function, node: Node, of: Node, variable: Variable, given: list[Node]) -> _Pick:
        handle = self.context.tiled.handles.get(variable.key)
        plain = of.type == "identifier" and handle is not None and handle.origin is Origin.FRAGMENT
        arguments = node.child_by_field_name("arguments")
        count = len([n for n in arguments.named_children if n.type != "comment"]) if arguments is not None else 0
        if plain and handle is not None and not handle.array and count == 3:
            second = [n for n in arguments.named_children if n.type != "comment"][1] if arguments is not None else None
            return _Pick(function, node, variable, [second] if second is not None else given, True)
        return _Pick(function, node, variable, given)

    def _flat(self, function: Function, given: Node) -> Iterator[Node]:
        for node in given.named_children:
            if node.type == "comment":
                continue
            inner = node.child_by_field_name("arguments") if node.type == "call_expression" else None
            if inner is not None and self.library.computes(function, node) and self._element(function, node) is None:
                yield from self._flat(function, inner)
            else:
                yield node

    def _element(self, function: Function, node: Node) -> Node | None:
        return self.library.element_of(function, node)

    def _of_pick(self, pick: _Pick) -> Iterator[Missing]:
        function = pick.function
        if self._of_part(pick.variable):
            return
        listed = initial(pick.variable)
        if (
            listed is not None
            and listed.type == "initializer_list"
            and not _ZEROS.fullmatch(_text(pick.variable, listed))
        ):
            what = "has other values for the tiles of an accumulator, and what that means for rows is not known"
            yield self._at(pick.variable.function, listed, what)
        for coordinate in pick.coordinates:
            if function.text(coordinate) == ALL:
                continue
            linear = self._linear(function, coordinate)
            variable = self.variable(function, linear.name) if linear is not None else None
            loop = _loop(variable) if variable is not None else None
            if linear is None or variable is None or loop is None:
                what = "picks elements of an accumulator, and what it means for rows of two tiles is not known"
                yield self._at(function, pick.node, what)
            elif not self._covers(function, loop, variable, linear, pick):
                what = "picks elements in a loop of which it is not known that it comes to both tiles alike"
                yield self._at(function, pick.node, what)
            else:
                self._loops[loop.id] = (function, loop, variable)

    def _of_part(self, variable: Variable) -> bool:
        value = initial(variable)
        given = value.child_by_field_name("arguments") if value is not None else None
        if value is None or given is None or not self._is_part(variable.function, value):
            return False
        # a part of an accumulator's own elements is one of registers
        names = (self.variable(variable.function, n) for n in find(given, "identifier"))
        return not any(n is not None and self.names.reaches(n) for n in names)

    def _linear(self, function: Function, node: Node) -> _Linear | None:
        while node.type == "parenthesized_expression" and node.named_children:
            node = node.named_children[0]
        if node.type == "identifier":
            return _Linear(node)
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if node.type != "binary_expression" or left is None or right is None:
            return None
        sign, value = function.text(node.children[1]), self.context.tiled.program.value
        first, second = value(function, function.text(left)), value(function, function.text(right))
        if first is not None and sign in ("+", "*"):
            left, second = right, first
        inner = self._linear(function, left)
        if inner is None or second is None:
            return None
        if sign == "+":
            return _Linear(inner.name, inner.factor, inner.offset + second)
        if sign == "*" and inner.factor == 1 and not inner.offset:
            return _Linear(inner.name, second)
        return None

    # --- loops

    def _covers(self, function: Function, loop: Node, variable: Variable, linear: _Linear, pick: _Pick) -> bool:
        """Whether a loop comes to all elements, those that are picked together being of one tile."""
        condition, update = loop.child_by_field_name("condition"), loop.child_by_field_name("update")
        begin = initial(variable)
        program = self.context.tiled.program
        if condition is None or update is None or begin is None or program.value(function, function.text(begin)) != 0:
            return False
        match = _CONDITION.fullmatch(" ".join(function.text(condition).split()))
        if match is None or match[1] != variable.name:
            return False
        step = self._step(function, update, variable)
        many = step * linear.factor
        if step < 1 or many not in _STEPS or not 0 <= linear.offset < many or (pick.whole_atoms and many != 1):
            return False
        bound = self._named(function, condition, match[2])
        extents = self._extents(bound, 0)
        if extents is not None:
            return extents == linear.factor
        number = program.value(function, bound)
        if number is None:
            return False
        return number % 2 == 0 if pick.whole_atoms else number * linear.factor == self._extent(pick.variable)

    def _step(self, function: Function, update: Node, variable: Variable) -> int:
        changed = update.child_by_field_name("left") or update.child_by_field_name("argument")
        if changed is None or function.text(changed) != variable.name:
            return 0
        if update.type == "update_expression":
            return 1 if "++" in function.text(update) else 0
        right = update.child_by_field_name("right")
        if update.type != "assignment_expression" or right is None or "+=" not in function.text(update):
            return 0
        return self.context.tiled.program.value(function, function.text(right)) or 0

    def _named(self, function: Function, condition: Node, text: str) -> str:
        """What a variable that is a bound begins with, where nothing else can be in it."""
        name = next((n for n in find(condition, "identifier") if function.text(n) == text), None)
        variable = self.variable(function, name) if name is not None else None
        value = initial(variable) if variable is not None else None
        at = variable.declaration if variable is not None else None
        if variable is None or value is None or at is None or not at.parent:
            return text
        fixed = at.parent.type == "for_statement" or re.match(
            r"(?:static )?const(?:expr)?\b", variable.function.text(at)
        )
        return " ".join(variable.function.text(value).split()) if fixed else text

    def _extents(self, text: str, depth: int) -> int | None:
        """What a tensor's number of elements is divided by, where a bound is that."""
        match = _EXTENT.fullmatch(text)
        if match is None or depth > _DEEPEST:
            return None
        if match["cast"] is not None:
            return self._extents(match["cast"], depth + 1)
        spellings = self.context.tiled.program.vocabulary.spellings
        asks = spellings.are("asking_for_shape", re.split(r"::|\.", match["name"])[-1])
        known = any(f.name == match["name"] for f in self.context.tiled.program.functions)
        return int(match["by"] or 1) if asks and not known else None

    def _extent(self, variable: Variable) -> int | None:
        """Elements of an array of one extent."""
        arrays = list(find(variable.declarator, "array_declarator")) if variable.declarator is not None else []
        size = arrays[0].child_by_field_name("size") if len(arrays) == 1 else None
        return self.context.tiled.program.value(variable.function, variable.function.text(size)) if size else None

    def _of_loop(self, function: Function, loop: Node, variable: Variable, picks: list[_Pick]) -> Iterator[Missing]:
        """What a turn does with its number, and what it hands to the next one."""
        body = loop.child_by_field_name("body")
        if body is None:
            return
        for name in find(body, "identifier"):
            if function.text(name) != variable.name:
                continue
            found = self.variable(function, name)
            if found is None or found.key != variable.key:
                continue
            around = [p for p in picks if p.function.file is function.file and _is_coordinate(p, name)]
            pick = min(around, key=lambda p: p.node.end_byte - p.node.start_byte, default=None)
            if pick is None or not self._is_own(pick.variable, 0):
                what = "depends on a tile of an accumulator, and which rows that means is not known"
                yield self._at(function, pick.node if pick is not None else _around(name), what)
            elif not self._of_part(pick.variable):
                self._held.add(pick.variable.key)
        for leaving in find(body, *_LEAVING):
            yield self._at(function, leaving, "leaves out elements of other tiles of an accumulator")
        for pick in picks:
            inside = pick.function.file is function.file and body.start_byte <= pick.node.start_byte < body.end_byte
            if inside and self._of_part(pick.variable) and not self._goes_with(pick, variable):
                yield self._at(pick.function, pick.node, "is of the same rows for all tiles of an accumulator")
        for changed in find(body, "assignment_expression", "update_expression"):
            left = changed.child_by_field_name("left") or changed.child_by_field_name("argument")
            if left is not None and left.type == "identifier" and not self._is_sum(function, loop, changed, left):
                yield self._at(function, changed, "is another value for the next tile of an accumulator")

    def _goes_with(self, pick: _Pick, variable: Variable) -> bool:
        """Whether an element of a part is chosen by the number of a turn."""
        given = pick.node.child_by_field_name("arguments") or pick.node.child_by_field_name("indices")
        names = list(find(given, "identifier")) if given is not None else []
        found = (self.variable(pick.function, n) for n in names if pick.function.text(n) == variable.name)
        return any(f is not None and f.key == variable.key for f in found)

    def _is_sum(self, function: Function, loop: Node, changed: Node, left: Node) -> bool:
        """Whether a change is of a variable of one turn, or adds elements up."""
        variable = self.variable(function, left)
        at = variable.declaration if variable is not None else None
        if at is not None and loop.start_byte <= at.start_byte and at.end_byte <= loop.end_byte:
            return True
        right, body = changed.child_by_field_name("right"), loop.child_by_field_name("body")
        if right is None or variable is None or body is None:
            return False
        names = [n for n in find(body, "identifier") if function.text(n) == variable.name]
        outside = [n for n in names if not changed.start_byte <= n.start_byte < changed.end_byte]
        again = function.text(changed.children[1]) != "=" or len(names) - len(outside) > 1
        if outside or not again:
            return False
        kind = at.child_by_field_name("type") if at is not None else None
        if kind is not None and variable.function.text(kind) in _SUMS:
            return True
        others = (self.variable(function, n) for n in find(right, "identifier"))
        return any(n is not None and self.has_tiles(function, n) for n in others)


def _text(variable: Variable, node: Node) -> str:
    return "".join(variable.function.text(node).split())


def initial(variable: Variable) -> Node | None:
    return variable.declarator.child_by_field_name("value") if variable.declarator is not None else None


def _loop(variable: Variable) -> Node | None:
    """The loop that declares a variable."""
    above = variable.declaration.parent if variable.declaration is not None else None
    return above if above is not None and above.type == "for_statement" else None


def _is_coordinate(pick: _Pick, name: Node) -> bool:
    given = pick.node.child_by_field_name("arguments") or pick.node.child_by_field_name("indices")
    return given is not None and given.start_byte <= name.start_byte < given.end_byte


def _around(name: Node) -> Node:
    while name.parent is not None and not name.parent.type.endswith(("statement", "declaration")):
        name = name.parent
    return name
