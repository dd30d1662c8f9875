# SPDX-License-Identifier: Apache-2.0
"""Which conditions single threads of a warp may answer differently.

What a warp does together (`tcgen05.ld`, `st`, and one state of a tile for all threads) must not stand behind one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from porter.lang.asm import AsmStatement
from porter.lang.cuda import CudaFile, find, inside, walk
from porter.model.facts import Doubt, Index
from porter.model.functions import Call, Function, Style, declared_name
from porter.model.program import Program
from porter.model.pure import is_pure, is_toolkit
from porter.model.registers import CASTS
from porter.model.scopes import LOOPS
from porter.ptx.special import PER_THREAD

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_END = r"(?:exit|ret(?:\.uni)?)"
_ENDS = re.compile(rf"(?:^|[;:{{}}]|@!?\s*[\w%$]+\s)\s*{_END}\s*(?:;|\}}|$)")
_ONLY_ENDS = re.compile(rf"\s*{_END}\s*;?\s*")

_WORD = re.compile(rb"[A-Za-z_]\w*")
_LEAVING = frozenset({"return", "goto", "exit", "ret"})
_ASKING = re.compile(r"\b(?:if|while|for|switch)\b|\?|&&|\|\||@")
TO_A_LOOP = ("break_statement", "continue_statement")
BRANCHES = ("if_statement", "switch_statement", *LOOPS)


def ends_thread(statement: AsmStatement) -> bool:
    """Whether an asm statement has an `exit`, or a `ret`, which ends a kernel (PTX ISA 9.7.12.6, 9.7.12.7)."""
    return _ENDS.search(_COMMENT.sub(" ", statement.template)) is not None


def only_ends_thread(statement: AsmStatement) -> bool:
    """Whether that is all that it does."""
    return _ONLY_ENDS.fullmatch(_COMMENT.sub(" ", statement.template)) is not None


class Threads:
    """Asks about one program. A value counts as a thread's own where it may be: the index of a warp is one, too."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._names: dict[int, set[str]] = {}
        self._varying: dict[int, bool] = {}
        self._calls: dict[CudaFile, dict[int, Call]] = {}
        self._macros = program.macros
        self._leaving: dict[int, list[Node]] = {}
        self._asking: set[int] = set()
        """ids of uses of macros that leave on a condition of their own."""

    def differ(self, function: Function, node: Node) -> bool:
        """Whether an expression may have another value in another thread."""
        names = self.names(function)
        return any(self._differs(function, n, names) for n in walk(node))

    def _differs(self, function: Function, node: Node, names: set[str]) -> bool:
        """Whether a node of an expression itself makes it another value, whatever stands in it."""
        if node.type == "call_expression":
            call = self._call(function, node)
            return call is not None and self.call_differs(call)
        return (node.type == "identifier" and function.text(node) in names) or self.tells(function, node)

    def tells(self, function: Function, node: Node) -> bool:
        """Whether a name is what tells threads apart, or a macro whose text names it."""
        if node.type not in ("identifier", "qualified_identifier", "field_expression"):
            return False
        if node.type == "identifier" and self.macro_differs(function.text(node)):
            return True
        fact = self.program.facts.of_name(function, node)
        return isinstance(fact, Index) or (isinstance(fact, Doubt) and fact.kind is Index)

    def _call(self, function: Function, node: Node) -> Call | None:
        if function.file not in self._calls:
            owners = (f for f in self.program.functions if f.file is function.file)
            self._calls[function.file] = {c.node.id: c for f in owners for c in f.calls}
        return self._calls[function.file].get(node.id)

    def call_differs(self, call: Call) -> bool:
        """Whether a call may give another value in another thread that hands it the same."""
        if call.name in CASTS:
            return False
        fact = self.program.facts.of_call(call)
        if fact is not None:
            return isinstance(fact, Index | Doubt)
        found = self.program.names.resolve(call)
        if found.targets:
            return any(self.varies(f) for f in found.targets)
        if self.program.macro_bodies(call.name):
            return self.macro_differs(call.name)
        # of a function whose text is not at hand nothing is known; one that is handed nothing may read a register
        known = bool(call.args) and is_pure(call.name) and is_toolkit(self.program, call)
        return bool(found.symbols) or not known

    def varies(self, function: Function) -> bool:
        """Whether a function may return another value to another thread that hands it the same."""
        known = self._varying.get(id(function))
        if known is None:
            # a recursive call tells nothing new
            self._varying[id(function)] = False
            asm = any(self.asm_differs(s) for s in function.asm)
            known = asm or any(self._differs(function, n, set()) for n in walk(function.body))
            self._varying[id(function)] = known
        return known

    def asm_differs(self, statement: AsmStatement) -> bool:
        """Whether an asm statement may give another value in another thread that hands it the same."""
        return PER_THREAD.search(statement.template) is not None

    def macro_differs(self, name: str) -> bool:
        """Whether the text of a macro names what tells threads apart."""
        if name not in self._macros.by_name:
            return False
        vocabulary = self.program.vocabulary
        words = self._macros.words(name)
        return any(r.kind is Index for word in words for r in vocabulary.of(word)) or bool(
            PER_THREAD.search(self._macros.text(name).replace("%%", "%"))
        )

    def names(self, function: Function) -> set[str]:
        """Variables and parameters that may hold another value in another thread."""
        known = self._names.get(id(function))
        if known is not None:
            return known
        found = self._names[id(function)] = set(self.names(function.parent)) if function.parent is not None else set()
        # a launch hands all threads of a kernel the same
        for param in function.params if function.style is not Style.KERNEL else ():
            calls = [c for c in self.program.callers(function) if param.index < len(c.args)]
            if any(self.differ(c.caller, c.args[param.index]) for c in calls):
                found.add(param.name)
        found.update(self._written_apart(function))
        while True:
            before = len(found)
            for node in find(function.body, "init_declarator", "assignment_expression"):
                target = node.child_by_field_name("declarator") or node.child_by_field_name("left")
                name = declared_name(target) if target is not None else None
                if name is not None and function.text(name) not in found and self.differ(function, node):
                    found.add(function.text(name))
            if len(found) == before:
                return found

    def _written_apart(self, function: Function) -> Iterator[str]:
        """Variables that asm statements and callees write what may be another value in another thread."""
        for statement in function.asm:
            if self.asm_differs(statement):
                yield from (o.expr.strip() for o in statement.operands if o.is_output)
        for call in function.calls:
            for index, argument in enumerate(call.args):
                inner = argument.named_children[0] if argument.type == "pointer_expression" else argument
                if inner.type != "identifier":
                    continue
                handed = inner.id != argument.id or self._by_reference(call, index)
                if handed and self.call_differs(call):
                    yield function.text(inner)

    def _by_reference(self, call: Call, index: int) -> bool:
        """Whether a function of the sources may write to an argument."""
        for target in self.program.targets(call):
            if index < len(target.params):
                kind = self.program.names.type_of_param(target, target.params[index])
                if kind.reference and not kind.const:
                    return True
        return False

    def splits(self, function: Function, node: Node, outer: Node) -> bool:
        """Whether `node` stands in a branch or loop, inside `outer`, that only some threads may enter."""
        inner, current = node, node.parent
        while current is not None and inner.id != outer.id:
            if current.type in BRANCHES and self._asks(function, current):
                return True
            inner, current = current, current.parent
        return False

    def _asks(self, function: Function, branch: Node) -> bool:
        condition = branch.child_by_field_name("condition")
        return condition is not None and self.differ(function, condition)

    def apart(self, function: Function, node: Node, at: int, meetings: list[Node], returns: bool = True) -> bool:
        """Whether some threads of a warp may have left on the way to the offset `at`, in statement `node`, and the
        warp has not met since. `meetings` are the statements that need all of it. Without `returns` only those
        count that come back to the others behind the loop or in its next turn.
        """
        for leaving in self._exits(function):
            target = target_of(leaving, function)
            if leaving.start_byte >= at or not inside(target, node):
                continue
            if leaving.type not in TO_A_LOOP:
                # who returns has no part in what the warp does later
                met = not returns or any(
                    m.start_byte > leaving.start_byte and not _other_arm(m, leaving) for m in meetings
                )
            else:
                met = any(leaving.start_byte < m.start_byte < at and not _other_arm(m, leaving) for m in meetings)
            if not met and self.may_part(function, leaving, _common(leaving, node)):
                return True
        return False

    def may_part(self, function: Function, leaving: Node, outer: Node) -> bool:
        """Whether only some threads may leave at one of `leaving`, of those that come to `outer`."""
        return self.asks(leaving) or self.splits(function, leaving, outer)

    def asks(self, leaving: Node) -> bool:
        """Whether one of `leaving` is a macro with a condition of its own."""
        return leaving.id in self._asking

    def leaving(self, function: Function) -> list[Node]:
        """Where threads may leave a function: its returns, asm that ends them, and uses of macros that may do so."""
        found = [*function.own_nodes("return_statement"), *(s.node for s in function.asm if ends_thread(s))]
        start, end = function.body.start_byte + function.shift, function.body.end_byte + function.shift
        for match in _WORD.finditer(function.file.lexed.plain, start, end) if self._macros.by_name else ():
            name = match.group().decode()
            if name not in self._macros.by_name or _LEAVING.isdisjoint(self._macros.words(name)):
                continue
            at = match.start() - function.shift, match.end() - function.shift
            node = function.body.descendant_for_byte_range(*at)
            if node is not None:
                found.append(node)
                if _ASKING.search(self._macros.text(name)):
                    self._asking.add(node.id)
        return found

    def _exits(self, function: Function) -> list[Node]:
        found = self._leaving.get(id(function))
        if found is None:
            exits = [*find(function.body, "return_statement", *TO_A_LOOP), *self.leaving(function)]
            exits = list({e.id: e for e in exits}.values())
            found = self._leaving[id(function)] = [e for e in exits if self.may_part(function, e, function.body)]
        return found


def target_of(leaving: Node, function: Function) -> Node:
    """What an exit leaves, or goes to the next turn of: a loop, a switch, a lambda or the function."""
    kinds: tuple[str, ...] = ("lambda_expression",)
    if leaving.type in TO_A_LOOP:
        kinds += (*LOOPS, "switch_statement") if leaving.type == "break_statement" else LOOPS
    current = leaving
    while current.parent is not None and current.id != function.body.id and current.type not in kinds:
        current = current.parent
    return current


def _common(one: Node, other: Node) -> Node:
    """The innermost node around both."""
    while one.parent is not None and not inside(one, other):
        one = one.parent
    return one


def _other_arm(one: Node, other: Node) -> bool:
    """Whether of two nodes only one can be passed: they stand in different arms of a branch."""
    return _common(one, other).type == "if_statement"
