# SPDX-License-Identifier: Apache-2.0
"""Accumulators whose registers are kept true: outside of batches in flight they hold the tile, whatever the code does
with them. Where that is so needs no knowledge of the accesses: registers go to Tensor Memory in front of each statement
that issues an MMA, and come back behind each wait. A move leaves a loop only if nothing in the loop can name them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.accumulators import Accumulator, AccumulatorParam
from porter.model.coherence import STATEMENT_LISTS, Problem
from porter.model.events import Kind, events_of
from porter.model.flow import FlowBuilder
from porter.model.functions import Function, declared_name
from porter.model.mentions import Mention, Mentions
from porter.model.scopes import LOOPS, resolve
from porter.model.uses import Use

_SIMPLE = ("expression_statement", "declaration", "return_statement")
_PLAIN_TYPES = ("primitive_type", "sized_type_specifier")


@dataclass(frozen=True, eq=False)
class Holder:
    """What holds the registers in a function: an accumulator that it declares, or a parameter that carries one and
    whose registers the function uses itself."""

    accumulator: Accumulator
    param: AccumulatorParam | None = None

    @property
    def function(self) -> Function:
        return self.param.function if self.param is not None else self.accumulator.function

    @property
    def names(self) -> tuple[str, ...]:
        return self.param.names if self.param is not None else self.accumulator.home.names


@dataclass(frozen=True, eq=False)
class Move:
    """Registers go to Tensor Memory in front of `statement`, or come from there behind it. `braceless`: it is the
    whole body of a branch or loop."""

    holder: Holder
    function: Function = field(repr=False)
    statement: Node = field(repr=False)
    to_registers: bool
    braceless: bool


@dataclass(eq=False)
class Tracked:
    """One holder, why its accesses are not followed one by one, and where it moves."""

    holder: Holder
    why: str
    moves: list[Move] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def track(builder: FlowBuilder, mentions: Mentions, holder: Holder, why: str, kept: set[int]) -> Tracked:
    """Where the registers of a holder move. `kept`: ids of the parameters that carry registers beside the tile."""
    return _Tracker(builder, mentions, holder, why, kept).run()


class _Tracker:
    def __init__(self, builder: FlowBuilder, mentions: Mentions, holder: Holder, why: str, kept: set[int]) -> None:
        self.builder = builder
        self.kept = kept
        self.holder = holder
        self.function = holder.function
        self.result = Tracked(holder, why)
        if holder.param is None:
            flow = builder.flow(self.function)
            named = mentions.of(holder.accumulator, [])
        else:
            flow = builder.flow_in(self.function, dict.fromkeys(holder.names, holder.accumulator))
            named = mentions.of_param(holder.param)
        events = events_of(flow)
        self.multiplies = _distinct(
            [e.node for e in events if e.kind is Kind.MMA and e.accumulator is holder.accumulator]
        )
        declaration = holder.accumulator.variable.declaration if holder.param is None else None
        scope = declaration.parent if declaration is not None else self.function.body
        start = declaration.end_byte if declaration is not None else self.function.body.start_byte
        end = scope.end_byte if scope is not None else self.function.body.end_byte
        self.waits = _distinct([e.node for e in events if e.kind is Kind.WAIT and start <= e.node.start_byte < end])
        self.named = sorted({m.offset - self.function.shift for m in named} | set(self._carried(named)))
        self._meetings = [e.node for e in events if e.kind in (Kind.MMA, Kind.FENCE, Kind.COMMIT, Kind.WAIT)]

    def run(self) -> Tracked:
        for node in self.multiplies:
            self._place(node, to_registers=False)
        for node in self.waits:
            self._place(node, to_registers=True)
        if self.result.moves and self.holder.param is not None and not self.holder.param.is_whole:
            what = "the function is handed a pointer, which does not say how many registers move; make it a reference"
            self._problem(self.result.moves[0].statement, what)
        return self.result

    # --- where

    def _place(self, node: Node, to_registers: bool) -> None:
        home = self._home(node)
        if self._moves_inside(home, node):
            return
        found = _statement(node, home)
        if found is None:
            self._problem(node, "a wait or MMA stands in the head of a loop")
            return
        statement, braceless, in_head = found
        if self._hidden(node) and self._is_named_in(statement):
            self._problem(node, "a function that waits or multiplies may use its registers")
            return
        if to_registers and in_head:
            self._problem(node, "a wait stands in the head of a branch")
            return
        if to_registers and statement.type == "return_statement":
            if home is not self.function or self.holder.param is not None:
                self._problem(node, "a wait stands in a return statement")
            return
        while (loop := self._clean_loop(statement, home)) is not None:
            statement = loop
            braceless = _is_braceless(statement)
        move = Move(self.holder, home, statement, to_registers, braceless)
        if not any(m.statement.id == statement.id and m.to_registers is to_registers for m in self.result.moves):
            self.result.moves.append(move)

    def _moves_inside(self, home: Function, node: Node) -> bool:
        """Whether a node calls a function that is handed the registers and moves them itself."""
        call = self.builder.call_at(home, node)
        return call is not None and any(
            id(a.param) in self.kept and a.registers.name in self.holder.names
            for a in self.builder.accumulators.arguments_of(call)
        )

    def _clean_loop(self, statement: Node, home: Function) -> Node | None:
        """The loop around a statement, if nothing in it names the registers and all of a warp comes out of it."""
        current = statement.parent
        while current is not None and current.type not in LOOPS and current.id != home.body.id:
            if current.type in ("lambda_expression", "switch_statement", "labeled_statement"):
                return None
            current = current.parent
        if current is None or current.type not in LOOPS or self._is_named_in(current):
            return None
        if next(find(current, "goto_statement", "lambda_expression"), None) is not None:
            return None
        found = _statement(current, home)
        if found is None or found[0].id != current.id:
            return None
        if self.builder.threads.apart(home, current, current.end_byte, self._meetings):
            return None
        return current

    def _is_named_in(self, node: Node) -> bool:
        return any(node.start_byte <= at < node.end_byte for at in self.named)

    def _hidden(self, node: Node) -> bool:
        """Whether what happens at a node happens inside a function that is called there."""
        return node.type in ("call_expression", "identifier") and self.builder.is_inlined_call(self._home(node), node)

    def _home(self, node: Node) -> Function:
        """The function or lambda whose text holds the node."""
        current: Node | None = node
        while current is not None and current.id != self.function.body.id:
            if current.type == "lambda_expression":
                found = next((f for f in self.builder.program.functions if f.node.id == current.id), None)
                if found is not None:
                    return found
            current = current.parent
        return self.function

    # --- what may name the registers

    def _carried(self, named: list[Mention]) -> Iterator[int]:
        """Byte offsets at which something is named that the address of the registers, or a reference to them, may
        have gone to."""
        function = self.function
        tainted: set[str] = set()
        asked: set[str] = set()
        read: set[int] = set()
        mentions = [m.offset for m in named if m.use is Use.UNKNOWN or self._in_lambda(m)]
        found = [function.file.root.descendant_for_byte_range(at, at + 1) for at in mentions]
        nodes = [n for n in found if n is not None]
        while nodes:
            statements = {s.id: s for s in map(self._outermost, nodes)}
            for key in statements.keys() - read:
                tainted |= self._receivers(statements[key])
            read |= statements.keys()
            nodes = [n for name in tainted - asked for n in self._identifiers.get(name, ())]
            asked |= tainted
        for name in tainted:
            yield from (n.start_byte for n in self._identifiers.get(name, ()))

    def _in_lambda(self, mention: Mention) -> bool:
        node = self.function.file.root.descendant_for_byte_range(mention.offset, mention.offset + 1)
        return node is not None and self._home(node) is not self.function

    @cached_property
    def _identifiers(self) -> dict[str, list[Node]]:
        """The nodes of the body that name something, by name."""
        found: dict[str, list[Node]] = {}
        for node in find(self.function.body, "identifier", "type_identifier"):
            found.setdefault(self.function.text(node), []).append(node)
        return found

    def _outermost(self, node: Node) -> Node:
        """The simple statement around a node, that of the function rather than one of a lambda."""
        found, current = node, node.parent
        while current is not None and current.id != self.function.body.id:
            if current.type in _SIMPLE:
                found = current
            current = current.parent
        return found

    def _receivers(self, statement: Node) -> set[str]:
        """Variables of a statement that can hold an address or a reference."""
        function = self.function
        found = set()
        for node in walk(statement):
            if node.type != "identifier" or function.text(node) in self.holder.names:
                continue
            if _is_called(node) and resolve(function, node, function.text(node)) is None:
                continue
            if not self._holds_number(node) and not self._is_element(node):
                found.add(function.text(node))
        if statement.type == "declaration":
            for child in statement.children_by_field_name("declarator"):
                name = declared_name(child)
                if name is not None and not _plain(statement, child):
                    found.add(function.text(name))
        return found

    def _is_element(self, node: Node) -> bool:
        """Whether a number in memory is meant, rather than the pointer or array that is named."""
        parent = node.parent
        if parent is None or parent.type not in ("subscript_expression", "pointer_expression"):
            return False
        argument = parent.child_by_field_name("argument")
        if argument is None or argument.id != node.id or self.function.text(parent).startswith("&"):
            return False
        variable = resolve(self._home(node), node, self.function.text(node))
        if variable is None:
            return False
        declared = variable.param.node if variable.param is not None else variable.declaration
        kind = declared.child_by_field_name("type") if declared is not None else None
        return kind is not None and kind.type in _PLAIN_TYPES

    def _holds_number(self, node: Node) -> bool:
        variable = resolve(self._home(node), node, self.function.text(node))
        if variable is None:
            name = self.function.text(node)
            if node.parent is not None and node.parent.child_by_field_name("declarator") == node:
                # the name that is declared there
                inner = node.parent if node.parent.type == "init_declarator" else node
                holder = inner.parent
                return holder is not None and holder.type == "declaration" and _plain(holder, inner)
            known = self.builder.program.constants_in(self.function).text(name) is not None
            return known or name in ("threadIdx", "blockIdx", "blockDim", "gridDim")
        if variable.param is not None:
            declarator = variable.param.node.child_by_field_name("declarator") if variable.param.node else None
            kind = variable.param.node.child_by_field_name("type") if variable.param.node else None
            return (
                declarator is not None
                and declarator.type == "identifier"
                and kind is not None
                and kind.type in _PLAIN_TYPES
            )
        declaration, declarator = variable.declaration, variable.declarator
        return declaration is not None and declarator is not None and _plain(declaration, declarator)

    def _problem(self, node: Node, what: str) -> None:
        self.result.problems.append(Problem(self.holder.accumulator, node, what))


def _is_called(node: Node) -> bool:
    """Whether a name is that of what is called, with or without parentheses around it, or of a function template."""
    current = node
    while (parent := current.parent) is not None and parent.type in (
        "parenthesized_expression",
        "qualified_identifier",
    ):
        if parent.type == "qualified_identifier" and parent.child_by_field_name("name") != current:
            return False
        current = parent
    if parent is None or parent.type not in ("call_expression", "template_function"):
        return False
    return current in (parent.child_by_field_name("function"), parent.child_by_field_name("name"))


def _plain(declaration: Node, declarator: Node) -> bool:
    """Whether a declaration makes a number, or an array of numbers."""
    kind = declaration.child_by_field_name("type")
    inner = declarator
    if inner.type == "init_declarator":
        inner = inner.child_by_field_name("declarator") or inner
    while inner.type == "array_declarator":
        inner = inner.child_by_field_name("declarator") or inner
    return kind is not None and kind.type in _PLAIN_TYPES and inner.type == "identifier"


def _distinct(nodes: list[Node]) -> list[Node]:
    return sorted({n.id: n for n in nodes}.values(), key=lambda n: n.start_byte)


def _is_braceless(node: Node) -> bool:
    return node.parent is not None and node.parent.type not in (*STATEMENT_LISTS, "labeled_statement")


def _statement(node: Node, home: Function) -> tuple[Node, bool, bool] | None:
    """(the statement of a node, whether it is a body without braces, whether the node stands in the head of a branch);
    None in the head of a loop."""
    current, in_head = node, False
    while current.parent is not None and current.id != home.body.id:
        parent = current.parent
        if parent.type in STATEMENT_LISTS or parent.type == "labeled_statement":
            return current, False, in_head
        if parent.type == "else_clause" or parent.type in ("if_statement", *LOOPS):
            is_body = parent.type == "else_clause" or any(
                c.id == current.id
                for name in ("body", "consequence", "alternative")
                for c in parent.children_by_field_name(name)
            )
            if is_body and current.type not in ("else_clause", "compound_statement"):
                return current, True, in_head
            if not is_body and parent.type in LOOPS:
                return None
            in_head = in_head or not is_body
        elif parent.type == "switch_statement" and current.type != "compound_statement":
            in_head = True
        current = parent
    return None
