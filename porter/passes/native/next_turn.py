# SPDX-License-Identifier: Apache-2.0
"""What statements of a loop read that the loop changes, and how it comes to have its values of the next turn: from
variables that threads have for themselves, by the statements that give them these. That those do nothing else, and that
a copy is a value of its own, is for the compiler and PTX to say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find, inside
from porter.model.functions import Function, Style
from porter.model.kernels import SHARED
from porter.model.program import Program
from porter.model.scopes import Variable, resolve
from porter.passes.native.sites import OfFunction
from porter.passes.native.writes import Writes

Key = tuple[int, int, str]
_PARTS = ("field_expression", "parenthesized_expression", "subscript_expression", "pointer_expression")
_DEEPEST = 8
_NO_STATEMENT = ("comment", "preproc_call")


@dataclass(eq=False)
class NextTurn(OfFunction):
    """Of a loop: what the statements `moved`, which begin a turn, need for the next one once `done`, the statements
    behind them, have run for this one; `rest` are the others of its body. `sums` are names of accumulators.

    Raises:
        Left: a value has no place to come from.
    """

    program: Program
    function: Function
    loop: Node
    moved: Sequence[Node]
    done: Sequence[Node]
    rest: Sequence[Node]
    sums: frozenset[str]
    carried: dict[Key, Variable] = field(default_factory=dict)
    """Variables with other values in the next turn."""
    updates: list[Node] = field(default_factory=list)
    """Statements of `rest`, and the loop's own, that make these of this turn's."""

    def __post_init__(self) -> None:
        self._writes = Writes(self.program)
        self._shared: dict[Key, bool] = {}
        self.condition = self._condition()
        self._close()

    # --- The loop

    @property
    def body(self) -> Node:
        body = self.loop.child_by_field_name("body")
        assert body is not None
        return body

    def _condition(self) -> Node:
        found = self.loop.child_by_field_name("condition")
        if found is not None and found.type == "condition_clause" and len(found.named_children) == 1:
            found = found.named_children[0]
        if found is None or self.loop.type == "do_statement":
            raise self.left(self.loop, "a loop that asks ahead of each turn if there is one")
        return found

    # --- Names

    def _mentions(self, node: Node) -> Iterator[tuple[Node, str]]:
        """Names in a statement, and in the texts of macros that it uses."""
        for name in find(node, "identifier"):
            text = self.function.text(name)
            yield name, text
            if text in self.program.macros.by_name:
                yield from ((name, word) for word in self.program.macros.words(text))

    def reads(self, node: Node) -> Iterator[tuple[Node, Variable]]:
        """Variables that a statement names."""
        for name, text in self._mentions(node):
            variable = resolve(self.function, name, text)
            if variable is not None and text not in self.sums:
                yield name, variable

    def _given_in(self, node: Node) -> Iterator[tuple[Node, Variable]]:
        """Variables that a statement may give another value."""
        seen: set[Key] = set()
        for name in find(node, "identifier"):
            variable = resolve(self.function, name, self.function.text(name))
            if variable is None or variable.key in seen or self._is_shared(variable):
                continue
            seen.add(variable.key)
            if any(inside(node, n) for n in self._writes.of(variable)):
                yield name, variable

    def _changes(self, variable: Variable) -> bool:
        """Whether a turn of the loop gives a variable another value."""
        return any(inside(self.loop, n) for n in self._writes.of(variable))

    # --- What is needed

    def _close(self) -> None:
        todo = [*self.moved, self.condition]
        while todo:
            for statement in todo:
                for _, variable in self.reads(statement):
                    self._need(variable)
            todo = []
            for statement in self._later():
                if statement.id in {u.id for u in self.updates} or not self._makes(statement):
                    continue
                self._update(statement)
                self.updates.append(statement)
                todo.append(statement)
        own = self.loop.child_by_field_name("update")
        self.updates.sort(key=lambda n: (own is not None and n.id == own.id, n.start_byte))

    def _later(self) -> Iterator[Node]:
        """What is still to be done in this turn."""
        yield from (s for s in self.rest if s.type not in _NO_STATEMENT)
        update = self.loop.child_by_field_name("update")
        if update is not None:
            yield update

    def _need(self, variable: Variable) -> None:
        declared = variable.declaration
        if declared is not None and any(inside(m, declared) for m in self.moved):
            return
        refers = declared is not None and variable.is_reference
        if self._is_shared(variable) or refers or variable.key in self.carried:
            return
        begin = self.loop.child_by_field_name("initializer")
        if not self._changes(variable) and (begin is None or declared is None or declared.id != begin.id):
            return
        if declared is not None and any(inside(s, declared) for s in self.done):
            # it has its value by then
            return
        self.carried[variable.key] = variable

    def _is_shared(self, variable: Variable) -> bool:
        """Whether a variable stands for shared memory, or for where it lies: who names it takes an address."""
        if variable.key not in self._shared:
            self._shared[variable.key] = self._is_of_block(variable, 0)
        return self._shared[variable.key]

    def _is_of_block(self, variable: Variable, depth: int) -> bool:
        if variable.declaration is not None:
            return SHARED in variable.function.text(variable.declaration)
        param, calls = variable.param, self.program.callers(variable.function)
        if param is None or not calls or depth > _DEEPEST or variable.function.style is not Style.DEVICE:
            return False
        kind = self.program.names.type_of_param(variable.function, param)
        if not (kind.is_pointer or kind.is_array or kind.reference):
            return False
        for call in calls:
            root = _root(call.args[param.index]) if param.index < len(call.args) else None
            outer = resolve(call.caller, root, call.caller.text(root)) if root is not None else None
            if outer is None or not (outer.is_reference or self._is_of_block(outer, depth + 1)):
                return False
        return True

    def _makes(self, statement: Node) -> bool:
        """Whether a statement gives a variable its value that is needed."""
        if any(v.key in self.carried for _, v in self._given_in(statement)):
            return True
        if statement.type != "declaration":
            return False
        return any(
            v.declaration is not None and v.declaration.id == statement.id
            for update in self.updates
            for _, v in self.reads(update)
        )

    def _update(self, statement: Node) -> None:
        """What a statement changes beside what is needed is a copy as well."""
        for _, variable in self._given_in(statement):
            own = variable.declaration is not None and inside(statement, variable.declaration)
            if not own and variable.name not in self.sums:
                self.carried.setdefault(variable.key, variable)

    # --- What the step asks beside

    def varies(self, variable: Variable) -> bool:
        """Whether a variable may have another value in another turn."""
        if variable.key in self.carried or self._changes(variable):
            return not (variable.is_reference or self._is_shared(variable))
        declared = variable.declaration
        return declared is not None and inside(self.loop, declared)

    # --- Texts

    def firsts(self) -> list[tuple[str, str, str]]:
        """Of each variable: its type as a parameter, its name, and what it is in the first turn."""
        found = []
        begin = self.loop.child_by_field_name("initializer")
        for variable in self.carried.values():
            declared = variable.declaration
            if begin is None or declared is None or declared.id != begin.id:
                found.append(("auto", variable.name, variable.name))
                continue
            declarator = variable.declarator
            value = declarator.child_by_field_name("value") if declarator is not None else None
            kind = declared.child_by_field_name("type")
            if value is None or kind is None:
                raise self.left(declared, f"what `{variable.name}` begins with")
            found.append((self.function.text(kind), variable.name, self.function.text(value)))
        return found


def _root(node: Node | None) -> Node | None:
    """The name that an expression is, or is a part or the address of."""
    while node is not None and node.type in _PARTS:
        node = node.child_by_field_name("argument") or (node.named_children[0] if node.named_children else None)
    return node if node is not None and node.type == "identifier" else None
