# SPDX-License-Identifier: Apache-2.0
"""What one thread needs of the consumers' statements to come to their MMAs: loops around these, and what computes the
values that the loops and the MMAs read. Each thread has these variables for itself, so another one may compute them
again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find, inside
from porter.model.functions import Function, Style
from porter.model.kernels import SHARED
from porter.model.pipeline.frames import Frame
from porter.model.scopes import LOOPS, Variable, names_declared, resolve
from porter.model.threads import target_of
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import Place
from porter.passes.native.writes import Writes

_LEAVING = ("break_statement", "continue_statement", "return_statement", "goto_statement")
_MEETING = re.compile(r"\b__syncwarp\s*\([^()]*\)\s*;")
"""Lanes that meet beside MMAs do so ahead of an arrival: a single thread has nobody to wait for."""
BLOCKS = ("compound_statement", "preproc_if", "preproc_ifdef")
"""What statements stand in, one beside the other: also what one build alone sees."""
_SKIPPED = ("comment", "preproc_call", ";", "{", "}", "preproc_else", "preproc_elif", "preproc_elifdef")
"""What is no statement of this build."""


@dataclass(eq=False)
class Level:
    """What MMAs stand in: a loop, a condition that all threads answer alike, or a block. `statements` are
    those beside the next level that stand in the slice; `taken` says that a condition always holds."""

    node: Node
    inner: Node
    statements: list[Node] = field(default_factory=list)
    taken: bool = False


@dataclass(eq=False)
class Slice:
    """The part of a kernel around the statements `range` that one thread, which has the values of thread `issuer`, has
    to run at another place, in front of `at`. That it does nothing else, and has the same values, is for PTX to say.

    Raises:
        Left: nothing is around both places.
    """

    kernel: Pipelined
    range: list[Node]
    at: Node
    issuer: int
    levels: list[Level] = field(default_factory=list)
    constants: dict[str, str] = field(default_factory=dict)
    """Variables that tell threads apart, with their declarations for this thread."""

    def __post_init__(self) -> None:
        self.function: Function = self.kernel.function
        self.frame = Frame(self.function)
        self.threads = self.kernel.context.flow.threads
        self.writes = Writes(self.kernel.program)
        self._needed: dict[tuple[int, int, str], Variable] = {}
        self._roots: list[Node] = []
        self._sums = {a.variable.key for a in self.kernel.accumulators}
        self._chain()
        self._close()

    # --- What is around the range

    def _chain(self) -> None:
        block = self.range[0].parent
        assert block is not None
        around: list[Node] = [block]
        while not inside(around[0], self.at):
            above = around[0].parent
            if above is None or (above.id == self.function.body.id and not inside(above, self.at)):
                raise Place(self.function, self.at).left("that producer and consumers are branches of one block")
            around.insert(0, above)
        while around[0].type not in BLOCKS:
            above = around[0].parent
            assert above is not None
            around.insert(0, above)
        for outer, inner in zip(around, [*around[1:], self.range[0]], strict=True):
            taken = outer.type == "if_statement" and self._always(outer, inner)
            self.levels.append(Level(outer, inner, taken=taken))

    def _always(self, node: Node, inner: Node) -> bool:
        """Whether all consumers come to an arm by what they know of themselves."""
        condition, taken = node.child_by_field_name("condition"), node.child_by_field_name("consequence")
        assert condition is not None
        truth = self.kernel.who.truth(self.frame, condition)
        wanted = taken is not None and taken.id == inner.id
        answers = (truth[t] for t in self.kernel.consumers) if truth is not None else (None,)
        return all(a is not None and bool(a) is wanted for a in answers)

    @property
    def loops(self) -> list[Node]:
        return [level.node for level in self.levels if level.node.type in LOOPS]

    # --- What it needs

    def _close(self) -> None:
        """Add statements until every variable that is read has its value."""
        for index, level in enumerate(self.levels):
            if level.node.type in LOOPS or (level.node.type == "if_statement" and not level.taken):
                self._roots += [c for c in level.node.children if c.id != level.inner.id]
            level.statements = [s for s in self._beside(index) if self._leaves(s)]
        self._roots += self.range
        todo = [*self._roots, *(s for level in self.levels for s in level.statements)]
        while todo:
            self._read(todo)
            todo = []
            for index, level in enumerate(self.levels):
                for statement in self._beside(index):
                    if statement not in level.statements and self._writes_needed(statement):
                        level.statements.append(statement)
                        todo.append(statement)
        for level in self.levels:
            level.statements.sort(key=lambda n: n.start_byte)

    def _beside(self, index: int) -> Iterator[Node]:
        """Statements of a level that are not the next one; of the outermost those between the place and the range."""
        level = self.levels[index]
        if level.node.type not in BLOCKS:
            return
        mine = {n.id for n in self.range} if index == len(self.levels) - 1 else set()
        for child in level.node.named_children:
            if child.id in (level.inner.id, *mine) or child.type in _SKIPPED or inside(child, self.at):
                continue
            if index > 0 or child.start_byte >= self.at.start_byte:
                yield child

    def _leaves(self, statement: Node) -> bool:
        """Whether a statement may leave one of the loops."""
        return any(not inside(statement, target_of(n, self.function)) for n in find(statement, *_LEAVING))

    def _read(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            for name, function in self._mentions(node):
                variable = resolve(function, name, function.text(name))
                if variable is None or variable.function is not self.function or variable.param is not None:
                    continue
                if variable.key in self._sums:
                    continue
                declared = variable.declaration
                if declared is not None and SHARED in self.function.text(declared):
                    continue
                new = declared is not None and not inside(declared, name) and variable.key not in self._needed
                if new and self._is_here(function) and self._constant(variable, name):
                    continue
                self._needed.setdefault(variable.key, variable)

    def _is_here(self, function: Function) -> bool:
        """Whether a function is the kernel's own, or a lambda that the thread gets a copy of."""
        return function is self.function or (
            function.parent is self.function and function.node.start_byte > self.at.start_byte
        )

    def _mentions(self, node: Node) -> Iterator[tuple[Node, Function]]:
        """Names in a statement, and in the lambdas that it calls."""
        for function, body in ((self.function, node), *((f, f.body) for f in self._lambdas(node))):
            yield from ((name, function) for name in find(body, "identifier"))

    def meetings(self) -> Iterator[Place]:
        """Statements beside MMAs at which lanes of a warp meet."""
        for node in self.range:
            for function, body in ((self.function, node), *((f, f.body) for f in self._lambdas(node))):
                for statement in find(body, "expression_statement") if self._is_here(function) else ():
                    if _MEETING.fullmatch(function.text(statement)):
                        yield Place(function, statement)

    def _lambdas(self, node: Node) -> Iterator[Function]:
        program = self.kernel.program
        calls = [c for n in find(node, "call_expression") for c in program.calls_by_node.get(n.id, ())]
        yield from (t for c in calls for t in program.targets(c) if t.style is Style.LAMBDA)

    def _writes_needed(self, statement: Node) -> bool:
        if any(inside(statement, node) for v in self._needed.values() for node in self.writes.of(v)):
            return True
        if statement.type != "declaration":
            return any(self._writes_needed(d) for d in find(statement, "declaration") if d.id != statement.id)
        places = {v.declaration.id for v in self._needed.values() if v.declaration is not None}
        return statement.id in places and bool(names_declared(self.function, statement))

    def _constant(self, variable: Variable, name: Node) -> bool:
        """Whether a variable tells threads apart; it gets its value in the thread that issues."""
        declared = variable.declaration
        if declared is None or variable.name not in self.threads.names(self.function):
            return False
        around = [loop.child_by_field_name("body") for loop in self.loops if inside(loop, declared)]
        if any(body is None or not inside(body, declared) for body in around):
            return False
        values = self.kernel.who.values(self.frame, name)
        value = values[self.issuer] if values is not None and self.issuer < len(values) else None
        if value is None:
            # it is made again of what it is made of
            return False
        kind = declared.child_by_field_name("type")
        text = self.function.text(kind) if kind is not None else "auto"
        text = "int" if text == "auto" else text
        literal = str(bool(value)).lower() if text.split()[-1] == "bool" else str(value)
        self.constants.setdefault(variable.name, f"const {text} {variable.name} = {literal};")
        return True

    def _is_constant(self, node: Node) -> bool:
        """Whether a statement only declares what has a constant here."""
        declared = names_declared(self.function, node) if node.type == "declaration" else set()
        return bool(declared) and declared <= set(self.constants)

    def shows(self, level: Level) -> list[Node]:
        """Statements of a level that the thread runs: without declarations of constants."""
        return [s for s in level.statements if not self._is_constant(s)]
