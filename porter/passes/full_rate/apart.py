# SPDX-License-Identifier: Apache-2.0
"""Whether the turns of a loop over tiles may be taken by other warps: none waits for another, none reads what another
writes, and each writes to places of its own rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.functions import ARRAY_DECLARATORS, Call, Function, declared_name
from porter.model.program import Program
from porter.model.registers import CASTS
from porter.model.scopes import Variable, resolve
from porter.passes.full_rate.joining import Missing
from porter.passes.full_rate.leading import is_callee, own_declarator

_WAITS = re.compile(r"\b(?:bar|barrier|mbarrier)\b|\bcp\.async|\bcp\.reduce|\bld(?:matrix)?\.(?!param)")
"""Instructions that wait for other threads, or read what those may have written."""
_STORES = re.compile(r"\bst(?:matrix)?\.|\bred\.")
_SAFE = ("+", "-", "*", "<<")
_MEMORY = ("subscript_expression", "pointer_expression", "field_expression")
_MOST = 8
_SHARED_ROWS = "turns for other tiles may write to the same place, or wait for each other"

_Key = tuple[int, int, str]


@dataclass(eq=False)
class _Names:
    """What is known in a function: corrected sums by the id of their nodes, names that tell a row, names that tell
    less (its last bits, say), and what pointers that it is handed lead to."""

    function: Function
    sums: frozenset[int] = frozenset()
    full: set[str] = field(default_factory=set)
    less: set[str] = field(default_factory=set)
    leads: dict[str, _Key] = field(default_factory=dict)

    def told(self, node: Node) -> tuple[bool, bool]:
        """Whether an expression tells a row, and whether it tells something of one."""
        full = some = False
        for inner in walk(node):
            name = self.function.text(inner) if inner.type == "identifier" else ""
            if inner.id not in self.sums and name not in self.full | self.less:
                continue
            some = True
            full = full or (name not in self.less and self._kept(inner, node))
        return full, some

    def _kept(self, inner: Node, outer: Node) -> bool:
        """Whether what stands around a row, inside an expression, keeps all of it."""
        while inner.id != outer.id and inner.parent is not None:
            above = inner.parent
            if above.type == "binary_expression" and self.function.text(above.children[1]) not in _SAFE:
                return False
            if above.type in ("conditional_expression", "unary_expression"):
                return False
            if above.type == "call_expression" and not _is_cast(self.function, above):
                return False
            index = above.type == "subscript_expression" and above.children[0].id != inner.id and above.id != outer.id
            if index and above.parent is not None and self.function.text(above.parent).startswith("&"):
                # its address
                above = above.parent
            elif index and not _is_part(above, outer):
                # an element of a table, not its place
                return False
            inner = above
        return True


@dataclass(eq=False)
class Turns:
    """Asks about one loop; `tiles` are the names of the registers."""

    program: Program
    tiles: set[str]
    _written: list[tuple[_Key, str]] = field(default_factory=list)
    _read: list[tuple[_Key, str, Function, Node]] = field(default_factory=list)

    def missing(self, function: Function, body: Node, sums: list[int]) -> Iterator[Missing]:
        yield from self._in(_Names(function, frozenset(sums)), body, 0)
        for key, text, owner, node in self._read:
            found = [t for k, t in self._written if k == key]
            if found and text not in found:
                yield Missing(owner, owner.span(node), _SHARED_ROWS)

    def _in(self, names: _Names, body: Node, depth: int) -> Iterator[Missing]:
        function = names.function
        self._declared(names, body)
        targets: set[int] = set()
        for node in find(body, "assignment_expression", "update_expression"):
            target = node.child_by_field_name("left") or node.child_by_field_name("argument")
            if target is not None and target.type in _MEMORY and (key := self._place(names, target, body)) is not None:
                targets.add(target.id)
                yield from self._writes(names, target, key)
        for statement in function.asm:
            if body.start_byte <= statement.node.start_byte < body.end_byte:
                told = [names.told(o.expr_node) for o in statement.operands if o.expr_node is not None]
                shared = any(some for _, some in told) and not any(full for full, _ in told)
                if _WAITS.search(statement.template) or (_STORES.search(statement.template) and shared):
                    yield Missing(function, statement.span, _SHARED_ROWS)
        for node in find(body, *_MEMORY):
            above = node.parent
            inside = above is not None and above.type in _MEMORY and above.children[0].id == node.id
            taken = node.type == "pointer_expression" and function.text(node).startswith("&")
            of_address = above is not None and above.type == "pointer_expression" and function.text(above)[:1] == "&"
            if not (inside or taken or of_address) and node.id not in targets:
                key = self._place(names, node, body)
                if key is not None:
                    self._read.append((key, _text(function, node), function, node))
        for node in find(body, "call_expression"):
            yield from self._called(names, node, body, depth)

    def _writes(self, names: _Names, target: Node, key: _Key) -> Iterator[Missing]:
        full, some = names.told(target)
        if some and not full:
            yield Missing(names.function, names.function.span(target), _SHARED_ROWS)
        self._written.append((key, _text(names.function, target)))

    def _declared(self, names: _Names, body: Node) -> None:
        """Variables that are made of rows."""
        function = names.function
        for node in find(body, "init_declarator", "assignment_expression"):
            if node.type == "init_declarator":
                named, value = declared_name(node), node.child_by_field_name("value")
                sign = "="
            else:
                named, value = node.child_by_field_name("left"), node.child_by_field_name("right")
                sign = function.text(node.children[1])
            if named is None or value is None or named.type != "identifier":
                continue
            name, (full, some) = function.text(named), names.told(value)
            if sign not in ("=", "+=", "-="):
                some, full = some or name in names.full, False
            if some:
                names.less.add(name) if not full else names.full.add(name)

    def _called(self, names: _Names, node: Node, body: Node, depth: int) -> Iterator[Missing]:
        function = names.function
        callee = node.child_by_field_name("function")
        name = function.text(callee).rsplit("::", 1)[-1] if callee is not None else ""
        calls: list[Call] = [c for c in self.program.calls_by_node.get(node.id, ()) if c.caller.file is function.file]
        targets = [(c, t) for c in calls for t in self.program.targets(c)]
        if name.startswith("__sync") or depth > _MOST:
            yield Missing(function, function.span(node), _SHARED_ROWS)
            return
        for call, target in targets:
            inner = _Names(target)
            if target.parent is not None:
                inner.leads = dict(names.leads)
            for param, argument in zip(target.params, call.args, strict=False):
                full, some = names.told(argument)
                if some:
                    (inner.full if full else inner.less).add(param.name)
                key = self._base(names, argument, body)
                if key is not None:
                    inner.leads[param.name] = key
            yield from self._in(inner, target.body, depth + 1)
        listed = node.child_by_field_name("arguments")
        for argument in listed.named_children if listed is not None and not targets else ():
            if argument.type in ("binary_expression", "identifier") and not _is_cast(function, node):
                pointer = self._base(names, argument, body)
                if pointer is not None:
                    # what it reads or writes there is not known
                    self._read.append((pointer, "", function, argument))
            if argument.type == "pointer_expression" and function.text(argument).startswith("&"):
                place = argument.named_children[0]
                key = self._place(names, place, body)
                if key is None:
                    continue
                if name.startswith("__ld"):
                    self._read.append((key, _text(function, place), function, place))
                elif name.startswith("atomic"):
                    self._written.append((key, _text(function, place)))
                else:
                    yield from self._writes(names, place, key)

    def _place(self, names: _Names, node: Node, body: Node) -> _Key | None:
        """What a place in memory that threads share is a part of; None for what is each thread's own."""
        if node.type == "field_expression" and "->" not in names.function.text(node):
            inner = node.child_by_field_name("argument")
            return self._place(names, inner, body) if inner is not None and inner.type in _MEMORY else None
        return self._base(names, node, body)

    def _base(self, names: _Names, node: Node, body: Node) -> _Key | None:
        function = names.function
        name = next((n for n in walk(node) if n.type == "identifier" and not is_callee(n)), None)
        if name is None or function.text(name) in self.tiles:
            return None
        text = function.text(name)
        if text in names.leads:
            return names.leads[text]
        variable = resolve(function, name, text)
        if variable is None:
            return (0, 0, text)
        value = variable.declarator.child_by_field_name("value") if variable.declarator is not None else None
        if _is_own(variable):
            return None
        if value is not None and variable.declaration is not None and value.start_byte < node.start_byte:
            inner = _Names(variable.function, leads=names.leads) if variable.function is not function else names
            return self._base(inner, value, body) or variable.key
        return variable.key


def _is_part(node: Node, place: Node) -> bool:
    """Whether a subscript is the place itself, or chooses what it is a part of."""
    while node.id != place.id:
        above = node.parent
        if above is None or above.children[0].id != node.id or above.type not in _MEMORY:
            return False
        node = above
    return True


def _is_own(variable: Variable) -> bool:
    """Whether a variable is an array that each thread has for itself."""
    named = own_declarator(variable)
    if named is None or named.type not in ARRAY_DECLARATORS:
        return False
    return not any(n.type in ("pointer_declarator", "reference_declarator") for n in walk(named))


def _is_cast(function: Function, node: Node) -> bool:
    callee = node.child_by_field_name("function")
    text = function.text(callee).split("<")[0].strip() if callee is not None else ""
    return text in CASTS or text in ("int", "size_t", "unsigned", "long") or text.endswith("_t")


def _text(function: Function, node: Node) -> str:
    return "".join(function.text(node).split())
