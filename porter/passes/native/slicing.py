# SPDX-License-Identifier: Apache-2.0
"""What one thread needs of the consumers' statements to come to their MMAs: loops around these, and what computes the
values that the loops and the MMAs read. Each thread has these variables for itself, so another one may compute them
again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.functions import Call, Function, Style
from porter.model.kernels import SHARED
from porter.model.pipeline.frames import Frame
from porter.model.pipeline.operations import Site
from porter.model.scopes import LOOPS, Variable, declared_names, resolve
from porter.passes.full_rate.leading import Key, key_of
from porter.passes.full_rate.sameness import Sameness
from porter.passes.native.effects import Effects
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import Place
from porter.passes.native.writes import Writes

_NAMES = ("identifier",)
_LEAVING = ("break_statement", "continue_statement", "return_statement", "goto_statement")
_COLLECTIVE = re.compile(r"\b(?:__sync\w*|__shfl\w*|__ballot\w*|__any\w*|__all\w*|__match\w*|__reduce\w*)\b")
_MEETING = re.compile(r"\b__syncwarp\s*\([^()]*\)\s*;")
"""Lanes that meet beside MMAs do so ahead of an arrival: a single thread has nobody to wait for."""
_SYNCHRONOUS = re.compile(r"\.sync\b|\bbar(?:rier)?\.")
_ASM = re.compile(r"\basm\b|__asm")
_PARTS = ("compound_statement", "else_clause")
BLOCKS = ("compound_statement", "preproc_if", "preproc_ifdef")
"""What statements stand in, one beside the other: also what one build alone sees."""
_OF_OTHER_BUILDS = ("preproc_else", "preproc_elif", "preproc_elifdef")
_SKIPPED = ("comment", "preproc_call", ";", "{", "}")


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
    to run at another place, in front of `at`.

    Raises:
        Left: a value is not known, or what computes it does something else as well.
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
        self._writes = Writes(self.kernel.program, self._is_known)
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
        while not _holds(around[0], self.at):
            above = around[0].parent
            if above is None or (above.id == self.function.body.id and not _holds(above, self.at)):
                raise self._left(self.at, "that producer and consumers are branches of one block")
            around.insert(0, above)
        while around[0].type not in BLOCKS:
            above = around[0].parent
            assert above is not None
            around.insert(0, above)
        for outer, inner in zip(around, [*around[1:], self.range[0]], strict=True):
            self.levels.append(self._level(outer, inner))

    def _level(self, node: Node, inner: Node) -> Level:
        level = Level(node, inner)
        if node.type == "if_statement":
            level.taken = self._always(node, inner)
        elif node.type not in (*LOOPS, *_PARTS) and not (node.type in BLOCKS and not self.levels):
            raise self._left(node, f"what a {node.type.replace('_', ' ')} around the MMAs does")
        return level

    def _always(self, node: Node, inner: Node) -> bool:
        """Whether all consumers come to an arm, and no thread decides that by what it computes."""
        condition = node.child_by_field_name("condition")
        taken = node.child_by_field_name("consequence")
        assert condition is not None
        truth = self.kernel.who.truth(self.frame, condition)
        if truth is not None and all(truth[t] is not None for t in self.kernel.consumers):
            wanted = taken is not None and taken.id == inner.id
            if all(bool(truth[t]) is wanted for t in self.kernel.consumers):
                return True
            raise self._left(condition, "that all consumers come to the MMAs")
        if self.threads.differ(self.function, condition):
            raise self._left(condition, f"which threads `{self._text(condition)}` lets through")
        if taken is None or taken.id != inner.id:
            raise self._left(condition, "MMAs in the first arm of a condition")
        return False

    @property
    def loops(self) -> list[Node]:
        return [level.node for level in self.levels if level.node.type in LOOPS]

    def _left(self, node: Node, what: str) -> Exception:
        return Place(self.function, node).left(what)

    def _text(self, node: Node) -> str:
        return " ".join(self.function.text(node).split())[:80]

    # --- What it needs

    def _close(self) -> None:
        """Add statements until every variable that is read has its value."""
        for index, level in enumerate(self.levels):
            if level.node.type in LOOPS or (level.node.type == "if_statement" and not level.taken):
                self._roots += [c for c in level.node.children if c.id != level.inner.id]
            level.statements = [s for s in self._beside(index) if self._leaves(s)]
        self._roots += self.range
        todo = [*self._roots, *(s for level in self.levels for s in level.statements)]
        for statement in todo[len(self._roots) :]:
            self.pure(statement)
        while todo:
            self._read(todo)
            todo = []
            for index, level in enumerate(self.levels):
                for statement in self._beside(index):
                    if statement not in level.statements and self._writes_needed(statement):
                        self.pure(statement)
                        level.statements.append(statement)
                        todo.append(statement)
        for index, level in enumerate(self.levels):
            level.statements.sort(key=lambda n: n.start_byte)
            mine = {s.id for s in level.statements}
            for statement in self._beside(index):
                if statement.id not in mine and self._writes_otherwise(statement):
                    raise self._left(statement, f"what `{self._text(statement)}` writes to")
        self._ahead()
        self._single()
        for node in self.range:
            self._own_alone(node)

    def _beside(self, index: int) -> Iterator[Node]:
        """Statements of a level that are not the next one; of the outermost those between the place and the range."""
        level = self.levels[index]
        if level.node.type not in BLOCKS:
            return
        mine = {n.id for n in self.range} if index == len(self.levels) - 1 else set()
        for child in level.node.named_children:
            if child.id in (level.inner.id, *mine) or child.type in _SKIPPED or _holds(child, self.at):
                continue
            if child.type in _OF_OTHER_BUILDS:
                continue
            if index == 0 and child.start_byte < self.at.start_byte:
                continue
            yield child

    def _leaves(self, statement: Node) -> bool:
        """Whether a statement may leave one of the loops."""
        found = [n for n in find(statement, *_LEAVING) if not self._stays(n, statement)]
        for node in found:
            if node.type not in ("break_statement", "continue_statement"):
                raise self._left(node, "a way out of the kernel beside its MMAs")
            if node.type == "continue_statement" and statement.start_byte > self.range[-1].start_byte:
                raise self._left(node, "that all sums of a tile are stored before the next one begins")
        return bool(found)

    @staticmethod
    def _stays(node: Node, statement: Node) -> bool:
        inside = (*LOOPS, "switch_statement", "lambda_expression")
        above = node.parent
        while above is not None and _holds(statement, above):
            if above.type in inside:
                return node.type != "return_statement" or above.type == "lambda_expression"
            above = above.parent
        return False

    def _read(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            for name, function in self._mentions(node):
                variable = resolve(function, name, function.text(name))
                if variable is None or variable.function is not self.function or variable.param is not None:
                    continue
                if variable.key in self._sums:
                    continue
                if variable.ambiguous:
                    raise self._left(name, f"which `{variable.name}` is meant")
                declared = variable.declaration
                if declared is not None and SHARED in self.function.text(declared):
                    if declared.start_byte > self.at.start_byte:
                        raise self._left(declared, "shared memory that is declared in front of the loads")
                    continue
                new = declared is not None and not _holds(declared, name) and variable.key not in self._needed
                if new and self._is_here(function) and self._constant(variable, name):
                    continue
                self._needed.setdefault(variable.key, variable)

    def _is_here(self, function: Function) -> bool:
        """Whether a function is the kernel's own, or a lambda that the thread gets a copy of."""
        return function is self.function or (
            function.parent is self.function and function.node.start_byte > self.at.start_byte
        )

    def _mentions(self, node: Node, seen: tuple[int, ...] = ()) -> Iterator[tuple[Node, Function]]:
        """Names in a statement, and in the lambdas that it calls."""
        for name in find(node, *_NAMES):
            yield name, self.function
        for inner in self._lambdas(node):
            if id(inner) not in seen:
                for name in find(inner.body, *_NAMES):
                    yield name, inner

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

    @cached_property
    def _sameness(self) -> Sameness:
        return Sameness(self.kernel.program, self.threads, self.kernel.kernel.roles.first)

    @cached_property
    def _written(self) -> list[tuple[Key, Node]]:
        return self._hidden()

    def _hidden(self) -> list[tuple[Key, Node]]:
        """Variables that are written, whether a statement names them or not, with what writes."""
        return list(self._sameness.written_in(self.function))

    def _writes_otherwise(self, statement: Node) -> bool:
        """Whether a statement may write to what is needed by another name, an object, a macro or an operator."""
        return any(key in self._needed and _holds(statement, node) for key, node in self._written)

    def _writes_needed(self, statement: Node) -> bool:
        for name, function in self._mentions(statement):
            variable = resolve(function, name, function.text(name))
            if variable is not None and variable.key in self._needed and self.gives(function, name, variable):
                return True
        if statement.type != "declaration":
            return any(self._writes_needed(d) for d in find(statement, "declaration") if d.id != statement.id)
        declared = [n for d in statement.children_by_field_name("declarator") for n in declared_names(d)]
        places = {v.declaration.id for v in self._needed.values() if v.declaration is not None}
        return statement.id in places and bool(declared)

    def gives(self, function: Function, name: Node, variable: Variable) -> bool:
        """Whether a mention may give a variable another value."""
        return self._writes.gives(function, name, variable)

    def _is_known(self, call: Call) -> bool:
        """Whether a function that is not at hand only computes."""
        return Writes(self.kernel.program).is_known(call)

    # --- What a second thread may do

    def pure(self, statement: Node) -> None:
        """That a statement does nothing but give variables of the kernel their values, or says how to multiply."""
        kernel = self.kernel
        if self._is_of_range(statement):
            return
        names = {a.name for a in kernel.accumulators}
        for operation in kernel.walk.operations:
            for site in operation.sites:
                if site.frame.function is self.function and _holds(statement, site.node):
                    raise self._left(statement, f"that `{self._text(statement)}` only computes what comes next")
        for name, function in self._mentions(statement):
            if function.text(name) in names:
                raise self._left(statement, f"that `{self._text(statement)}` does nothing with sums")
            variable = resolve(function, name, function.text(name))
            if variable is not None and variable.param is None and variable.is_reference:
                above = name.parent
                if above is not None and self.gives(function, name, variable) and variable.declaration is not statement:
                    raise self._left(statement, f"what `{self._text(statement)}` writes to")
            if variable is None and self._assigns(name):
                raise self._left(statement, f"what `{self._text(statement)}` writes to")
        self._computes(statement)

    def _is_of_range(self, statement: Node) -> bool:
        """Whether a statement declares a lambda that the range alone calls."""
        if statement.type != "declaration":
            return False
        (declarator, *others) = statement.children_by_field_name("declarator")
        value = declarator.child_by_field_name("value")
        program = self.kernel.program
        inner = next((f for f in program.functions if value is not None and f.style is Style.LAMBDA
                      and f.parent is self.function and f.node.id == value.id), None)  # fmt: skip
        if others or inner is None:
            return False
        calls = program.callers(inner)
        return bool(calls) and all(
            c.caller is self.function and any(_holds(n, c.node) for n in self.range) for c in calls
        )

    @staticmethod
    def _assigns(name: Node) -> bool:
        above = name.parent
        while above is not None and above.type in ("field_expression", "subscript_expression", "pointer_expression"):
            above = above.parent
        left = above.child_by_field_name("left") if above is not None else None
        if above is None or left is None or above.type != "assignment_expression":
            return False
        return left.start_byte <= name.start_byte < left.end_byte

    def _computes(self, node: Node) -> None:
        """That a statement and what it calls compute from numbers alone."""
        program = self.kernel.program
        if any(True for _ in find(node, "gnu_asm_expression")):
            raise self._left(node, f"what asm does in `{self._text(node)}`")
        for pointer in find(node, "assignment_expression"):
            left = pointer.child_by_field_name("left")
            if left is not None and left.type == "pointer_expression":
                raise self._left(node, f"what `{self._text(node)}` writes to")
        for inner in find(node, "call_expression"):
            for call in program.calls_by_node.get(inner.id, ()):
                targets = program.targets(call)
                if not targets and not self._is_known(call):
                    raise self._left(node, f"what `{call.name}` does")
                for target in targets:
                    self._plain_function(node, target, ())

    def _plain_function(self, node: Node, function: Function, seen: tuple[int, ...]) -> None:
        if id(function) in seen:
            return
        if function.asm or _ASM.search(function.text(function.body)):
            raise self._left(node, f"what asm does in `{function.name}`")
        for call in function.calls:
            targets = self.kernel.program.targets(call)
            if not targets and not self._is_known(call):
                raise self._left(node, f"what `{call.name}` does")
            for target in targets:
                self._plain_function(node, target, (*seen, id(function)))

    def _own_alone(self, node: Node) -> None:
        """That what stands around MMAs writes to variables of a thread's own, not to memory, which all consumers
        would: one thread does it now."""
        effects = Effects(self.kernel.program, self._sameness)
        for function, body in [(self.function, node), *((f, f.body) for f in self._lambdas(node))]:
            for found in effects.of(function, body):
                raise self._left(node, f"what `{' '.join(function.text(found).split())[:80]}` writes to, by one thread")

    def _ahead(self) -> None:
        """That nothing in front of the place, in its own branch, changes what the thread begins with."""
        node: Node | None = self.at
        while node is not None and node.parent is not None and node.id != self.levels[0].node.id:
            above = node.parent
            for child in above.named_children if above.type == "compound_statement" else ():
                before = child.start_byte < node.start_byte and above.id != self.levels[0].node.id
                changes = before and child.type not in _SKIPPED
                if changes and (self._writes_needed(child) or self._writes_otherwise(child)):
                    raise self._left(child, "that nothing ahead of the loads changes what MMAs are made of")
            node = above

    def _constant(self, variable: Variable, name: Node) -> bool:
        """Whether a variable tells threads apart; it gets its value in the thread that issues."""
        declared = variable.declaration
        if declared is None or variable.name not in self.threads.names(self.function):
            return False
        if any(_holds(loop, declared) and not self._in_body(loop, declared) for loop in self.loops):
            return False
        values = self.kernel.who.values(self.frame, name)
        value = values[self.issuer] if values is not None and self.issuer < len(values) else None
        if value is None:
            # it is made again of what it is made of
            return False
        kind = declared.child_by_field_name("type")
        text = self.function.text(kind) if kind is not None else "auto"
        text = "int" if text == "auto" else text
        given = f"const {text} {variable.name} = {_literal(text, value)};"
        if self.constants.setdefault(variable.name, given) != given:
            raise self._left(name, f"one value of `{variable.name}` in the thread that issues")
        return True

    @staticmethod
    def _in_body(loop: Node, declaration: Node) -> bool:
        body = loop.child_by_field_name("body")
        return body is not None and _holds(body, declaration)

    def _single(self) -> None:
        """That no statement asks for the other threads of a warp, nor for which thread runs it."""
        for node in [*self._roots, *(s for level in self.levels for s in level.statements)]:
            if self._is_constant(node):
                continue
            functions = {id(f): f for f in self._reached(node)}
            texts = [(self.function.text(node), True)]
            texts += [(f.text(f.body), self._is_here(f)) for f in functions.values()]
            for text, is_here in texts:
                found = _COLLECTIVE.search(_MEETING.sub("", text) if is_here else text)
                if found is not None:
                    raise self._left(node, f"MMAs that one thread can issue: `{found[0]}` asks for others")
            for part in self._stays_of(node):
                if self.threads.differ(self.function, part) and not self._named_alone(part):
                    raise self._left(node, f"`{self._text(node)}` as it is in the thread that issues")
            for function in functions.values():
                for statement in function.asm:
                    mine = any(s.statement is statement for s in self.kernel.program.statements)
                    if not mine and _SYNCHRONOUS.search(statement.template):
                        raise self._left(node, f"MMAs that one thread can issue: `{function.name}` asks for others")
                if self.threads.varies(function) and function.style is not Style.LAMBDA:
                    raise self._left(node, f"what `{function.name}` gives in the thread that issues")

    def _stays_of(self, node: Node) -> Iterator[Node]:
        """The parts of a statement but for arrivals that became commits, with what chose their threads."""
        span = self.function.span(node)
        if any(gone.contains(span) for gone in self._gone):
            return
        if any(span.start < gone.end and gone.start < span.end for gone in self._gone):
            for child in node.named_children:
                yield from self._stays_of(child)
        else:
            yield node

    @cached_property
    def _gone(self) -> list[Span]:
        """Arrivals of consumers, with the conditions that choose who arrives."""
        found = []
        for operation in self.kernel.walk.operations:
            site = next((s for s in reversed(operation.sites) if self._is_here(s.frame.function)), None)
            threads = self.kernel.who.runs(operation.sites).threads if operation.kind == "arrive" else None
            if site is not None and threads is not None and threads <= self.kernel.consumers:
                found.append(self.function.span(_chosen(site.node)))
        return found

    def _named_alone(self, node: Node) -> bool:
        """Whether only names that have constants here, or are made again, make a statement another one in another
        thread."""
        own = self.threads.names(self.function)
        again = [*self._roots, *(s for level in self.levels for s in level.statements)]
        for name in find(node, "identifier"):
            text = self.function.text(name)
            if self.threads.tells(self.function, name):
                return False
            if text not in own or text in self.constants:
                continue
            variable = resolve(self.function, name, text)
            declared = variable.declaration if variable is not None else None
            made = declared is not None and any(_holds(n, declared) for n in again)
            if variable is None or not (made or variable.key in self._sums):
                return is_declared(name)
        return not any(self.threads.tells(self.function, n) for n in find(node, "field_expression"))

    def _is_constant(self, node: Node) -> bool:
        """Whether a statement only declares what has a constant here."""
        if node.type != "declaration":
            return False
        declared = [n for d in node.children_by_field_name("declarator") for n in declared_names(d)]
        return bool(declared) and all(self.function.text(n) in self.constants for n in declared)

    def _reached(self, node: Node) -> Iterator[Function]:
        program = self.kernel.program
        work = [t for n in find(node, "call_expression") for c in program.calls_by_node.get(n.id, ())
                for t in program.targets(c)]  # fmt: skip
        seen: set[int] = set()
        while work:
            function = work.pop()
            if id(function) in seen:
                continue
            seen.add(id(function))
            yield function
            work += [t for c in function.calls for t in program.targets(c)]

    def kept(self) -> Iterator[tuple[Node, str]]:
        """Names, behind or in front of the range, of variables that it gives a value to, where they are no part of the
        slice: consumers that do not run the range miss that value."""
        written = {v.key: v for node in self.range for name, f in self._mentions(node)
                   if (v := resolve(f, name, f.text(name))) is not None and v.key in self._needed
                   and v.declaration is not None and not any(_holds(n, v.declaration) for n in self.range)
                   and self.gives(f, name, v)}  # fmt: skip
        others = {key for key, node in self._written if key[0] == self.function.node.id
                  and any(_holds(n, node) for n in self.range)
                  and not any(n.start_byte <= key[1] < n.end_byte for n in self.range)}  # fmt: skip
        keys = (others | written.keys()) - self._sums
        mine = [*self.range, *(s for level in self.levels for s in level.statements)]
        outer = self.levels[min(1, len(self.levels) - 1)]
        branch = outer.inner if outer.node.type == "if_statement" else outer.node
        for name in find(branch, *_NAMES) if keys else ():
            if any(_holds(n, name) for n in mine):
                continue
            text = self.function.text(name)
            variable = resolve(self.function, name, text)
            meant = {key_of(self.function, name, word) for word in self._words(text)} - {(0, 0, text)}
            if meant.isdisjoint(keys) and keys.isdisjoint(self._sameness.leads_to(self.function, name)):
                continue
            declared = variable.declaration if variable is not None else None
            if declared is not None and _holds(declared, name):
                continue
            there = self.kernel.who.runs((Site(self.frame, name),)).threads
            if there is None or there & self.kernel.consumers:
                yield name, text

    def _words(self, name: str) -> frozenset[str]:
        """A name, or the words of the macro that it is."""
        macros = self.kernel.program.macros
        return macros.words(name) if name in macros.by_name else frozenset({name})

    def shows(self, level: Level) -> list[Node]:
        """Statements of a level that the thread runs: without declarations of constants."""
        return [s for s in level.statements if not self._is_constant(s)]


def _chosen(node: Node) -> Node:
    """The statement that a node is, with the conditions that it alone stands under."""
    while (above := node.parent) is not None:
        alone = above.type == "compound_statement" and len(above.named_children) == 1
        arm = above.type == "if_statement" and _is(above.child_by_field_name("consequence"), node)
        if not (alone or above.type == "expression_statement" or arm):
            return node
        if arm and above.child_by_field_name("alternative") is not None:
            return node
        node = above
    return node


def _literal(kind: str, value: int) -> str:
    if kind.split()[-1] == "bool":
        return "true" if value else "false"
    return str(value)


def _holds(outer: Node, inner: Node) -> bool:
    return outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte


def _is(one: Node | None, other: Node) -> bool:
    return one is not None and one.id == other.id


def is_declared(name: Node) -> bool:
    """Whether a name is the one that a declaration declares."""
    above = name.parent
    while above is not None and above.type.endswith("declarator") and above.type != "init_declarator":
        name, above = above, above.parent
    return (
        above is not None
        and above.type in ("init_declarator", "declaration")
        and (above.type == "declaration" or _is(above.child_by_field_name("declarator"), name))
    )


def _is_array(variable: Variable) -> bool:
    node = variable.declarator
    return node is not None and any(True for _ in find(node, "array_declarator"))
