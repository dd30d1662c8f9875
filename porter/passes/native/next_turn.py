# SPDX-License-Identifier: Apache-2.0
"""What statements of a loop read that the loop changes, and how it comes to have its values of the next turn: from
variables that threads have for themselves, by statements that compute nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.functions import Call, Function, Style
from porter.model.kernels import SHARED
from porter.model.program import Program
from porter.model.scopes import LOOPS, PREPROCESSOR_BLOCKS, Variable, declared_names, resolve
from porter.passes.native.sites import Left, Place
from porter.passes.native.writes import Writes

Key = tuple[int, int, str]
_LEAVING = ("break_statement", "continue_statement", "return_statement", "goto_statement", "co_return_statement")
_PARTS = ("field_expression", "parenthesized_expression", "subscript_expression", "pointer_expression")
_DEEPEST = 8
_ACTS = re.compile(
    r"__(?:sync|shfl|ballot|any|all|match|reduce|activemask|nanosleep|trap|brkpt|threadfence|barrier|cluster|st)\w*"
    r"|atomic\w+|printf|clock\w*|assert"
)
"""Functions of the toolkit that do not only compute from what they are handed."""
_NO_STATEMENT = ("comment", "preproc_call")


@dataclass(eq=False)
class NextTurn:
    """Of a loop: what the statements `moved`, which begin a turn, need for the next one once `done`, the statements
    behind them, have run for this one; `rest` are the others of its body. `sums` are names of accumulators.

    Raises:
        Left: a value is not known, or what computes it does something else as well.
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
        self._changed: dict[Key, bool] = {}
        self._shared: dict[Key, bool] = {}
        self._plain_loop()
        self.condition = self._condition()
        self._close()
        for variable in self.carried.values():
            self._copies(variable)

    def _left(self, node: Node, what: str) -> Left:
        return Place(self.function, node).left(what)

    def _text(self, node: Node) -> str:
        return " ".join(self.function.text(node).split())[:80]

    # --- The loop

    @property
    def body(self) -> Node:
        body = self.loop.child_by_field_name("body")
        assert body is not None
        return body

    def _plain_loop(self) -> None:
        if self.loop.type not in ("for_statement", "while_statement"):
            raise self._left(self.loop, "a loop that asks ahead of each turn if there is one")
        for node in find(self.body, *_LEAVING):
            if self._leaves(node):
                raise self._left(node, "that the loop ends, and goes on, where its condition says so alone")
        for child in self.body.named_children:
            if child.type in PREPROCESSOR_BLOCKS:
                raise self._left(child, "statements of a loop that no conditional of the preprocessor chooses")

    def _leaves(self, node: Node) -> bool:
        stays = ("lambda_expression",)
        if node.type in ("break_statement", "continue_statement"):
            stays = (*stays, *LOOPS, *(("switch_statement",) if node.type == "break_statement" else ()))
        above = node.parent
        while above is not None and above.id != self.loop.id:
            if above.type in stays:
                return False
            above = above.parent
        return True

    def _condition(self) -> Node:
        found = self.loop.child_by_field_name("condition")
        if found is not None and found.type == "condition_clause" and len(found.named_children) == 1:
            found = found.named_children[0]
        if found is None or found.type in ("declaration", "init_statement", "condition_clause"):
            raise self._left(self.loop, "a condition by which the loop goes on")
        return found

    # --- Names

    def _mentions(self, node: Node) -> Iterator[tuple[Node, str]]:
        """Names in a statement, and in the texts of macros that it uses."""
        for name in (node, *find(node, "identifier")):
            if name.type != "identifier":
                continue
            text = self.function.text(name)
            yield name, text
            if text in self.program.macros.by_name:
                yield from ((name, word) for word in self.program.macros.words(text))

    def _variables(self, node: Node) -> Iterator[tuple[Node, Variable]]:
        for name, text in self._mentions(node):
            variable = resolve(self.function, name, text)
            if variable is not None and text not in self.sums:
                if variable.ambiguous:
                    raise self._left(name, f"which `{text}` is meant")
                yield name, variable

    def _given_in(self, node: Node) -> Iterator[tuple[Node, Variable]]:
        """Mentions that may give a variable another value."""
        for name in find(node, "identifier"):
            variable = resolve(self.function, name, self.function.text(name))
            if variable is None or self._declares(variable, name) or self._is_shared(variable):
                continue
            if self._writes.gives(self.function, name, variable):
                yield name, variable

    @staticmethod
    def _declares(variable: Variable, name: Node) -> bool:
        declarator = variable.declarator
        return declarator is not None and any(n.id == name.id for n in declared_names(declarator))

    def _changes(self, variable: Variable) -> bool:
        """Whether a turn of the loop gives a variable another value."""
        known = self._changed.get(variable.key)
        if known is None:
            known = self._changed[variable.key] = any(
                _holds(self.loop, name)
                and (found := resolve(self.function, name, variable.name)) is not None
                and found.key == variable.key
                and not self._declares(variable, name)
                and self._writes.gives(self.function, name, variable)
                for name in self.function.named(variable.name)
            )
        return known

    # --- What is needed

    def _is_moved(self, node: Node) -> bool:
        return any(_holds(m, node) for m in self.moved)

    def _close(self) -> None:
        todo = [*self.moved, self.condition]
        while todo:
            for statement in todo:
                for name, variable in self._variables(statement):
                    self._need(name, variable)
            todo = []
            for statement in self._later():
                if statement.id in {u.id for u in self.updates} or not self._makes(statement):
                    continue
                self._update(statement)
                self.updates.append(statement)
                todo.append(statement)
        self.updates.sort(key=lambda n: (n.id == self._own_id, n.start_byte))

    @property
    def _own_id(self) -> int:
        update = self.loop.child_by_field_name("update")
        return update.id if update is not None else -1

    def _later(self) -> Iterator[Node]:
        """What is still to be done in this turn."""
        yield from (s for s in self.rest if s.type not in _NO_STATEMENT)
        update = self.loop.child_by_field_name("update")
        if update is not None:
            yield update

    def _need(self, name: Node, variable: Variable) -> None:
        declared = variable.declaration
        if variable.function is not self.function:
            raise self._left(name, f"what `{variable.name}` is ahead of the loop")
        if declared is not None and self._is_moved(declared):
            return
        if self._is_shared(variable):
            return
        if declared is not None and variable.is_reference:
            return
        if variable.key in self.carried:
            return
        begin = self.loop.child_by_field_name("initializer")
        if not self._changes(variable) and (begin is None or declared is None or declared.id != begin.id):
            return
        if declared is not None and any(_holds(s, declared) for s in self.done):
            # it has its value by then, unless it changes later
            if any(v.key == variable.key for s in self._later() for _, v in self._given_in(s)):
                raise self._left(name, f"what `{variable.name}` is in the next turn")
            return
        if declared is not None and _holds(self.body, declared):
            raise self._left(name, f"that `{variable.name}` has one value in a turn")
        self.carried[variable.key] = variable

    def _is_shared(self, variable: Variable) -> bool:
        """Whether a variable stands for shared memory, or for where it lies: who names it takes an address."""
        known = self._shared.get(variable.key)
        if known is None:
            known = self._shared[variable.key] = self._is_of_block(variable, 0)
        return known

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
            for _, v in self._variables(update)
        )

    def _update(self, statement: Node) -> None:
        """That a statement does nothing else."""
        given = {v.key for _, v in self._given_in(statement)}
        for name, variable in self._given_in(statement):
            inside = variable.declaration is not None and _holds(statement, variable.declaration)
            if inside or variable.key in self.carried:
                continue
            if variable.name in self.sums or variable.is_reference:
                raise self._left(name, f"that `{self._text(statement)}` only computes what comes next")
            # it changes beside what is needed: it is a copy as well
            self.carried[variable.key] = variable
        self._only_computes(statement, frozenset(given))

    # --- Pure statements

    def _only_computes(self, node: Node, given: frozenset[Key]) -> None:
        what = f"that `{self._text(node)}` only computes what comes next"
        for inner in walk(node):
            if inner.type in ("gnu_asm_expression", "lambda_expression", "new_expression", "delete_expression"):
                raise self._left(inner, what)
            if inner.type in ("assignment_expression", "update_expression"):
                held = inner.child_by_field_name("left") or inner.child_by_field_name("argument")
                variable = self._assigned(held)
                local = variable is not None and (
                    variable.key in given or (variable.declaration is not None and _holds(node, variable.declaration))
                )
                if not local:
                    raise self._left(inner, what)
            if inner.type == "call_expression":
                for call in self.program.calls_by_node.get(inner.id, ()):
                    self._computes(inner, call, what, ())
        for name in find(node, "identifier"):
            if self.function.text(name) in self.sums:
                raise self._left(name, what)

    def _assigned(self, node: Node | None) -> Variable | None:
        while node is not None and node.type in ("field_expression", "parenthesized_expression"):
            if any(c.type == "->" for c in node.children):
                return None
            node = node.child_by_field_name("argument") or (node.named_children[0] if node.named_children else None)
        if node is None or node.type != "identifier":
            return None
        return resolve(self.function, node, self.function.text(node))

    def _computes(self, node: Node, call: Call, what: str, seen: tuple[int, ...]) -> None:
        targets = self.program.targets(call)
        if not targets and not self._writes.is_known(call):
            raise self._left(node, what)
        if not targets and _ACTS.fullmatch(call.name) is not None:
            raise self._left(node, what)
        for target in targets:
            if id(target) in seen:
                continue
            if target.style in (Style.MACRO, Style.LAMBDA) or target.asm:
                raise self._left(node, what)
            for inner in find(target.body, "assignment_expression", "update_expression"):
                held = inner.child_by_field_name("left") or inner.child_by_field_name("argument")
                if held is None or not _is_plain(held):
                    raise self._left(node, what)
            for inner_call in target.calls:
                self._computes(node, inner_call, what, (*seen, id(target)))

    # --- What the step asks beside

    def reads(self, node: Node) -> Iterator[tuple[Node, Variable]]:
        """Variables that a statement names."""
        yield from self._variables(node)

    def computes(self, statement: Node) -> bool:
        """Whether a statement does nothing but give variables of the thread's own another value."""
        try:
            self._only_computes(statement, frozenset(v.key for _, v in self._given_in(statement)))
        except Left:
            return False
        return True

    def varies(self, variable: Variable) -> bool:
        """Whether a variable may have another value in another turn."""
        if variable.key in self.carried or self._changes(variable):
            return not (variable.is_reference or self._is_shared(variable))
        declared = variable.declaration
        return declared is not None and _holds(self.loop, declared)

    def copies(self, variable: Variable) -> None:
        """
        Raises:
            Left: a variable cannot be copied.
        """
        self._copies(variable)

    # --- Copies

    def _copies(self, variable: Variable) -> None:
        """That a variable can be copied, and that its copy is a value of its own."""
        at = variable.declaration or (variable.param.node if variable.param is not None else None) or self.loop
        what = f"that `{variable.name}` is a number, or an object of numbers"
        kind = self.program.names.expressions.variable(variable)
        deduced = variable.declaration is not None and _deduced(variable.declaration)
        if kind.is_array or (
            variable.declarator is not None and any(True for _ in find(variable.declarator, "array_declarator"))
        ):
            raise self._left(at, what)
        if kind.kind in ("arithmetic", "enum", "toolkit") or kind.is_pointer:
            return
        if deduced and kind.is_unknown:
            return
        classes = (
            self.program.names.class_of(self.function, variable.declaration, variable.declarator)
            if variable.declaration is not None
            else ()
        )
        if not classes:
            raise self._left(at, what)
        for scope in classes:
            if scope.node is None or scope.bases or scope.file is None:
                raise self._left(at, what)
            text = scope.file.text(scope.node)
            if re.search(rf"~\s*{scope.name}\b|\b{scope.name}\s*\(\s*(?:const\s+)?{scope.name}\b", text) is not None:
                raise self._left(at, what)
            for member in find(scope.node, "field_declaration", "friend_declaration"):
                inner = [member.child_by_field_name("declarator")]
                if any(n is not None and n.type in ("reference_declarator", "pointer_declarator") for n in inner):
                    raise self._left(at, what)

    # --- Texts

    def firsts(self) -> list[tuple[str, str, str]]:
        """Of each variable: its type as a parameter, its name, and what it is in the first turn."""
        found = []
        begin = self.loop.child_by_field_name("initializer")
        if begin is not None and begin.type != "declaration":
            raise self._left(begin, "a loop that begins with what it declares")
        for variable in self.carried.values():
            declared = variable.declaration
            if begin is None or declared is None or declared.id != begin.id:
                found.append(("auto", variable.name, variable.name))
                continue
            declarator = variable.declarator
            value = declarator.child_by_field_name("value") if declarator is not None else None
            kind = declared.child_by_field_name("type")
            if value is None or kind is None or declarator is None:
                raise self._left(declared, f"what `{variable.name}` begins with")
            held = declarator.child_by_field_name("declarator")
            if held is None or held.type != "identifier" or value.type in ("argument_list", "initializer_list"):
                raise self._left(declared, f"what `{variable.name}` begins with")
            self._only_computes(value, frozenset())
            if any(v.declaration is not None and v.declaration.id == declared.id for _, v in self._variables(value)):
                raise self._left(declared, f"what `{variable.name}` begins with")
            found.append((self.function.text(kind), variable.name, self.function.text(value)))
        return found


def _around(node: Node, body: Node) -> Iterator[Node]:
    above = node.parent
    while above is not None and above.id != body.id:
        yield above
        above = above.parent


def _root(node: Node | None) -> Node | None:
    """The name that an expression is, or is a part or the address of."""
    while node is not None and node.type in _PARTS:
        node = node.child_by_field_name("argument") or (node.named_children[0] if node.named_children else None)
    return node if node is not None and node.type == "identifier" else None


def _deduced(declaration: Node) -> bool:
    kind = declaration.child_by_field_name("type")
    return kind is not None and kind.type == "placeholder_type_specifier"


def _is_plain(node: Node) -> bool:
    """Whether what is assigned to is a variable or a member, not memory that something points to."""
    while node.type in ("field_expression", "parenthesized_expression"):
        if any(c.type == "->" for c in node.children):
            argument = node.child_by_field_name("argument")
            return argument is not None and argument.type == "this"
        inner = node.child_by_field_name("argument") or (node.named_children[0] if node.named_children else None)
        if inner is None:
            return False
        node = inner
    return node.type in ("identifier", "field_identifier", "this")


def _holds(outer: Node, inner: Node) -> bool:
    return outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte
