# SPDX-License-Identifier: Apache-2.0
"""What one kind of threads does for a tile: which of its variables go on from tile to tile, and which begin anew."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find, inside
from porter.lang.text import Span
from porter.model.functions import Function
from porter.model.kernels import SHARED
from porter.model.pipeline.operations import Operation
from porter.model.pipeline.rings import names_in
from porter.model.scopes import LOOPS, Variable, names_declared, resolve
from porter.passes.native.alone import INDEX as BLOCK
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import OWN_LINES, Changes, OfFunction
from porter.passes.native.slicing import Slice

_ROUNDS = ("%", "/", "&", ">>")


@dataclass(eq=False)
class Places:
    """Declarations of a kernel that follow from where its block is in the grid, in the order of the text."""

    kernel: Pipelined
    slice: Slice
    declarations: list[Node] = field(default_factory=list)
    names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.function: Function = self.kernel.function
        text = self.function.text
        while True:
            before = len(self.declarations)
            for node in find(self.function.body, "declaration"):
                words = {text(n) for n in find(node, "identifier")}
                if node in self.declarations or not words & {BLOCK, *self.names}:
                    continue
                self.declarations.append(node)
                self.names |= names_declared(self.function, node)
            if len(self.declarations) == before:
                break
        self.declarations.sort(key=lambda n: n.start_byte)

    def outside(self, nodes: Sequence[Node]) -> list[Node]:
        """The declarations that are no part of these statements."""
        return [d for d in self.declarations if not any(inside(n, d) for n in nodes)]


@dataclass(frozen=True)
class Counter:
    """A loop that counts stages anew for each tile, by `name`, of type `kind`."""

    loop: Node
    name: str
    kind: str


@dataclass(eq=False)
class Part(OfFunction):
    """Statements for a tile by some threads, which stand where the node `at` is, and what they do with mbarriers.
    `carried` are declarations among them of what goes on from tile to tile; `counter` counts stages, which do."""

    places: Places
    nodes: list[Node]
    at: Node
    operations: list[Operation]
    carried: list[Node] = field(default_factory=list)
    counter: Counter | None = None
    _keys: dict[tuple[int, int, str], Variable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.function = self.places.function
        self.slice = self.places.slice
        self.program = self.places.kernel.program

    def _mine(self, node: Node) -> bool:
        return any(inside(n, node) for n in self.nodes)

    def follow(self) -> None:
        """Find what goes on from tile to tile.

        Raises:
            Left: it has no place to begin ahead of all tiles.
        """
        for operation in self.operations:
            self._follow(operation)

    # --- Stages go on

    def _follow(self, operation: Operation) -> None:
        """What the mbarrier, its phase and its stage are made of goes on from tile to tile."""
        site = next(s for s in operation.sites if s.frame.function is self.function)
        phase = operation.phase if operation.kind == "wait" and operation.by_parity else ""
        for word in (w for text in (operation.barrier, operation.to, phase) for w in names_in(text)):
            variable = resolve(self.function, site.node, re.split(r"\.|->", word)[0])
            if variable is not None:
                self._goes_on(variable, site.node)

    def _goes_on(self, variable: Variable, at: Node, seen: tuple[tuple[int, int, str], ...] = ()) -> bool:
        """Whether a variable changes as stages do; it then goes on from tile to tile."""
        if variable.key in seen or variable.function is not self.function:
            return variable.key in self._keys
        declared, given = variable.declaration, [n for n in self.slice.writes.of(variable) if self._mine(n)]
        mine = declared is not None and self._mine(declared)
        if declared is None or SHARED in self.function.text(declared):
            return False
        if mine and declared.parent is not None and declared.parent.type == "for_statement":
            self._counts(variable, declared.parent, at)
            return True
        made = [*given, *([variable.declarator] if mine and variable.declarator else ())]
        if not given and not mine:
            return False
        moving = bool(given)
        looping = mine and any(inside(loop, declared) for n in self.nodes for loop in find(n, *LOOPS))
        if given:
            self._keys[variable.key] = variable
        for node in made:
            for name in self._sources(node):
                other = resolve(self.function, name, self.function.text(name))
                if other is not None and other.key != variable.key:
                    moving |= self._goes_on(other, name, (*seen, variable.key))
        if not looping and given and mine:
            self._carry(declared, variable)
        if moving:
            self._keys[variable.key] = variable
        return moving

    def _sources(self, node: Node) -> Iterator[Node]:
        """Names that what is given comes from, and those in conditions around it."""
        around: Node | None = node
        while around is not None and around.type not in ("expression_statement", "declaration", "condition_clause"):
            if around.type in ("assignment_expression", "init_declarator", "call_expression"):
                yield from find(around, "identifier")
            around = around.parent
        while around is not None and self._mine(around):
            condition = around.child_by_field_name("condition") if around.type == "if_statement" else None
            if condition is not None:
                yield from find(condition, "identifier")
            around = around.parent

    def _carry(self, declared: Node, variable: Variable) -> None:
        """A declaration among the statements of a tile stands in front of them."""
        if declared.id not in {n.id for n in self.nodes}:
            raise self.left(declared, f"that `{variable.name}` goes on from tile to tile")
        if declared.id not in {n.id for n in self.carried}:
            self.carried.append(declared)

    # --- Stages that are counted from 0

    def _counts(self, variable: Variable, loop: Node, at: Node) -> None:
        if self.counter is not None:
            if self.counter.loop.id != loop.id or self.counter.name != variable.name:
                raise self.left(at, "one loop that counts the stages of a tile")
            return
        declared, body = variable.declaration, loop.child_by_field_name("body")
        kind = declared.child_by_field_name("type") if declared is not None else None
        if kind is None or body is None or body.type != "compound_statement":
            raise self.left(at, f"a loop in braces that `{variable.name}` counts stages in")
        self.counter = Counter(loop, variable.name, self.function.text(kind))

    def counted(self, line: str, passed: str) -> str:
        """A line with what counts stages across tiles, in place of the count of which a round is taken."""
        if self.counter is None:
            return line
        name = re.escape(self.counter.name)
        return re.sub(rf"(?<![\w.>])(?<!->){name}\b(?=\s*(?:%|/(?![/*])|&(?!&)|>>))", passed, line)

    def count(self, changes: Changes, passed: str) -> None:
        """Count the stages of all tiles: what follows from those of one follows from that."""
        if self.counter is None:
            return
        body = self.counter.loop.child_by_field_name("body")
        assert body is not None
        end = self.function.span(body).end - 1
        source = self.function.file.source
        start = source.rfind(b"\n", 0, end) + 1
        last = body.named_children[-1]
        pad = self.places.kernel.context.indent(self.function, self.function.span(last))
        if source[start:end].strip():
            raise self.left(last, OWN_LINES)
        changes.replace(self.function, Span(start, start), f"{pad}++{passed};\n")

    def turned(self) -> Iterator[Node]:
        """Mentions of the count that say which stage it is."""
        if self.counter is not None:
            body = self.counter.loop.child_by_field_name("body")
            assert body is not None
            named = (n for n in find(body, "identifier") if self.function.text(n) == self.counter.name)
            yield from filter(_is_turn, named)

    # --- What follows from the place

    def placed(self) -> list[Node]:
        """Declarations ahead of the part that follow from the place of the tile and are asked for in it."""
        ahead = (d for d in self.places.outside(self.nodes) if d.start_byte < self.at.start_byte)
        outside = [d for d in ahead if d.parent is not None and inside(d.parent, self.at)]
        wanted = self._words(self.function.text(n) for n in self.nodes)
        found: list[Node] = []
        for declaration in reversed(outside):
            if names_declared(self.function, declaration) & wanted:
                found.insert(0, declaration)
                wanted |= self._words([self.function.text(declaration)])
        return found

    def _words(self, texts: Iterable[str]) -> set[str]:
        """Words of some texts, and of macros in them."""
        found = {w for text in texts for w in re.findall(r"[A-Za-z_]\w*", text)}
        for word in sorted(found & set(self.program.macros.by_name)):
            found |= set(self.program.macros.words(word))
        return found


def _is_turn(node: Node) -> bool:
    above = node.parent
    left = above.child_by_field_name("left") if above is not None and above.type == "binary_expression" else None
    operator = above.child_by_field_name("operator") if above is not None else None
    return left is not None and left.id == node.id and operator is not None and operator.type in _ROUNDS
