# SPDX-License-Identifier: Apache-2.0
"""Accumulators of tiled MMAs: found as what a multiply adds to, and followed to the declaration of their registers and
through the functions that are handed them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.cuda import walk
from porter.lang.text import Span
from porter.model.facts import Commit, Fence, Layout, Wait
from porter.model.functions import Call, Function, Style
from porter.model.program import PACK, Program, Refusal
from porter.model.scopes import Variable, resolve
from porter.model.tiled.tensors import Key, Tensors, initializer

_CALLED = re.compile(r"([A-Za-z_][\w:]*\s*<[^<>();]*>)\s*\Z")
_LONGEST_NAME = 200


@dataclass(eq=False)
class Multiply:
    """A call that issues the MMAs of a tiled MMA. The operands are nodes of the caller."""

    call: Call
    mma: Node = field(repr=False)
    a: Node = field(repr=False)
    b: Node = field(repr=False)
    d: Node = field(repr=False)


@dataclass(eq=False)
class Synchronization:
    """A call that opens a batch, closes one, or waits."""

    call: Call
    fact: Fence | Commit | Wait


class Origin(Enum):
    FRAGMENT = "has the registers"
    VIEW = "names registers of another"
    PARAM = "is handed to the function"


@dataclass(eq=False)
class Atom:
    """One MMA by its atom. `op` is the class in front of `::`, `d` the expression that names its tile, in whose place
    the arguments `registers` stand."""

    call: Call
    op: Span
    d: Node = field(repr=False)
    registers: Span
    a_in_registers: bool


@dataclass(frozen=True, eq=False)
class Array:
    """Registers that are an array, or a pointer into one: the type of a register, and whether it has two elements."""

    element: str
    extents: tuple[Node, ...] = field(repr=False)
    half: bool
    is_reference: bool = False
    """Whether it is a parameter that refers to a whole array."""


@dataclass(eq=False)
class Handle:
    """A variable that names an accumulator. `mma` is the tiled MMA of a fragment: an expression, and the function that
    it stands in."""

    variable: Variable
    origin: Origin
    mma: tuple[Function, Node] | None = None
    array: Array | None = None

    @property
    def name(self) -> str:
        return self.variable.name

    @property
    def function(self) -> Function:
        return self.variable.function

    @property
    def declaration(self) -> Node:
        """The statement that declares it; of a parameter the function's body."""
        return self.variable.declaration or self.function.body

    @property
    def value(self) -> Node | None:
        """What it is declared with."""
        return initializer(self.variable)


@dataclass(eq=False)
class HandedIn:
    """An operand in a function, the tiled MMA that it is for, and the expression or call there that leads to the
    multiply."""

    function: Function
    node: Node = field(repr=False)
    mma: tuple[Function, Node] = field(repr=False)
    place: Node = field(repr=False)


@dataclass(eq=False)
class Tiled:
    """What a program does with tiled MMAs."""

    program: Program
    tensors: Tensors
    multiplies: list[Multiply] = field(default_factory=list)
    atoms: list[Atom] = field(default_factory=list)
    names_of_atoms: set[str] = field(default_factory=set)
    """Regular expressions that the classes of atoms are named by."""
    emptied: list[Function] = field(default_factory=list)
    """Functions that only synchronized, whose calls do it themselves."""
    synchronizations: list[Synchronization] = field(default_factory=list)
    copy_waits: list[Call] = field(default_factory=list)
    """Calls that wait for asynchronous copies of a function without a fence behind them."""
    unread: set[tuple[int, int]] = field(default_factory=set)
    """Calls, by file and node, that do not read the accumulator they are given: they clear it or pin its registers."""
    handles: dict[Key, Handle] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    active: set[int] = field(default_factory=set)
    """ids of the functions that issue or wait for MMAs, themselves or through others."""
    libraries: set[str] = field(default_factory=set)
    """Whose rules recognized the multiplies."""

    def handle_of(self, function: Function, node: Node) -> Handle | None:
        """The accumulator that an expression names."""
        variable = self.tensors.root(function, node)
        return self.handles.get(variable.key) if variable is not None else None

    def only_asked(self, function: Function, name: Node) -> bool:
        """Whether a name is an argument of a call that clears it, pins it, or asks for its layout; or the receiver of
        one."""
        name = _with_const_cast(function, name)
        parent = name.parent
        while parent is not None and parent.type == "subscript_expression":
            name, parent = parent, parent.parent
        above = parent.parent if parent is not None else None
        if parent is None or above is None:
            return False
        facts = self.program.facts
        if parent.type == "field_expression":
            arguments, method = above.child_by_field_name("arguments"), parent.child_by_field_name("field")
            if above.type != "call_expression" or arguments is None or method is None:
                return False
            return isinstance(facts.of_member(function.text(method), function.text(arguments)), Layout)
        if parent.type not in ("argument_list", "parenthesized_expression"):
            return False
        # the grammar may read `k < size<2>(x)` as a call of k, or as comparisons
        before = function.file.source[: parent.start_byte + function.shift][-_LONGEST_NAME:].decode("utf-8", "replace")
        called = _CALLED.search(before)
        if called is not None:
            text = called[1] + function.text(parent)
            if isinstance(facts.in_text(text, (function, parent)), Layout):
                return True
        if (id(function.file), above.id) in self.unread:
            return True
        call = self.tensors.call(function, above)
        return call is not None and isinstance(facts.of_call(call), Layout)

    def handed_in(self, function: Function, node: Node) -> list[tuple[Function, Node]]:
        """An expression, and what stands for it in the callers of its function where it is, or is a part of, a
        parameter; as far out as that goes."""
        return [(o.function, o.node) for o in self.handed_out(function, node, (function, node))]

    def operands(self, multiply: Multiply) -> list[HandedIn]:
        """The first operand of a multiply, as far out as it is handed in."""
        caller = multiply.call.caller
        return self.handed_out(caller, multiply.a, (caller, multiply.mma))

    def handed_out(self, function: Function, node: Node, mma: tuple[Function, Node]) -> list[HandedIn]:
        """An operand of a tiled MMA as far out as it is handed in."""
        found: list[HandedIn] = []
        work, seen = [HandedIn(function, node, mma, node)], set[tuple[int, int, int]]()
        while work:
            one = work.pop()
            key = (id(one.function), one.node.start_byte, one.mma[1].start_byte)
            if key in seen:
                continue
            seen.add(key)
            variable = self.viewed(one.function, one.node)
            if variable is None or variable.param is None or variable.function.style is Style.KERNEL:
                found.append(one)
                continue
            index = variable.param.index
            for call in self.program.callers(variable.function):
                if index < len(call.args):
                    handed = outwards(one.mma, variable.function, call)
                    work.append(HandedIn(call.caller, call.args[index], handed, call.node))
        return found

    def viewed(self, function: Function, node: Node) -> Variable | None:
        """The variable that an expression names, or that one is a view of which it names."""
        variable = self.tensors.root(function, node)
        while variable is not None and variable.param is None:
            value = initializer(variable)
            further = self.tensors.root(variable.function, value) if value is not None else None
            if further is None:
                break
            variable = further
        return variable

    @property
    def calls(self) -> list[Call]:
        """Calls that issue MMAs, or open, close or wait for a batch."""
        issued = [*(m.call for m in self.multiplies), *(a.call for a in self.atoms)]
        return [*issued, *(s.call for s in self.synchronizations)]

    @property
    def fragments(self) -> list[Handle]:
        return [h for h in self.handles.values() if h.origin is Origin.FRAGMENT]

    def refuse(self, function: Function, node: Node, what: str, code: Code) -> None:
        at = function.span(node) if node != function.body else function.head
        refusal = Refusal(function, function.file.path, at.start, at.end, what, code)
        if not any((r.path, r.start, r.what) == (refusal.path, refusal.start, what) for r in self.refusals):
            self.refusals.append(refusal)


class Search:
    """Follows accumulators from multiplies to their declarations, and from there to all who are handed them."""

    def __init__(self, tiled: Tiled) -> None:
        self.tiled = tiled
        self.program = tiled.program

    def run(self) -> None:
        for multiply in self.tiled.multiplies:
            function = multiply.call.caller
            self._add(function, multiply.d, (function, multiply.mma))
        while self._handed_on():
            pass

    def _add(self, function: Function, node: Node, mma: tuple[Function, Node]) -> None:
        variable = self.tiled.tensors.root(function, node)
        if variable is None or variable.ambiguous:
            what = f"`{function.text(node)}` is no tensor of registers that a function declares"
            self.tiled.refuse(function, node, what, Code.ACCUMULATOR_DECLARED)
            return
        if variable.key in self.tiled.handles:
            return
        if variable.param is not None:
            self._parameter(variable, mma)
        else:
            self._local(variable, mma, node)

    def _parameter(self, variable: Variable, mma: tuple[Function, Node]) -> None:
        function, param = variable.function, variable.param
        assert param is not None
        if not self._deduces(variable):
            return
        self.tiled.handles[variable.key] = Handle(variable, Origin.PARAM)
        self._refuse_macros(function)
        callers = self.program.callers(function)
        if function.style is Style.LAMBDA and not callers:
            what = f"accumulator `{param.name}` is handed to a lambda by code that is not followed: call it by its name"
            self.tiled.refuse(function, param.node or function.body, what, Code.CALL_NOT_FOLLOWED)
        for call in callers:
            if any(a.type == PACK for a in call.args[: param.index + 1]):
                what = f"accumulator `{param.name}` is handed to `{function.name}` in a pack: name it there"
                self.tiled.refuse(call.caller, call.node, what, Code.CALL_NOT_FOLLOWED)
            elif param.index < len(call.args):
                self._add(call.caller, call.args[param.index], outwards(mma, function, call))
        for call in self.program.calls_named(function.name) if not callers else ():
            if call.caller.style is not Style.HOST and self._is_meant(call, function):
                what = f"`{function.name}` is handed accumulators, and this call fits no function of that name"
                self.tiled.refuse(call.caller, call.node, what, Code.CALL_NOT_FOLLOWED)

    def _is_meant(self, call: Call, function: Function) -> bool:
        """Whether a call names a function and fits none; one of a library's functions of that name does not."""
        callee = call.node.child_by_field_name("function")
        if callee is None or call.node.id in self.program.leaf_calls or self.program.targets(call):
            return False
        return function in self.program.names.functions_named(call.caller, callee)

    def _refuse_macros(self, function: Function) -> None:
        """What macros hand to a function is not followed."""
        called = re.compile(rf"(?<![\w.>]){re.escape(function.name)}\s*(?:<[^;{{}}]*>)?\s*\(")
        for name, definitions in self.program.macros.by_name.items():
            if any(called.search(m.joined.decode("latin-1")) for m in definitions):
                what = f"macro `{name}` calls `{function.name}`, which is handed accumulators"
                self.tiled.refuse(function, function.body, what, Code.MACRO_NOT_FOLLOWED)

    def _deduces(self, variable: Variable) -> bool:
        """Whether a parameter takes an accumulator of any type; refused if it does not."""
        function, param = variable.function, variable.param
        assert param is not None
        if function.style is Style.KERNEL:
            what = f"`{param.name}` is a kernel's parameter"
            self.tiled.refuse(function, param.node or function.body, what, Code.ACCUMULATOR_DECLARED)
            return False
        words = {function.text(n) for n in walk(param.node) if n.type.endswith("identifier")} if param.node else set()
        if not words & set(function.template_params) and "auto" not in function.file.text(param.span):
            what = f"parameter `{param.name}` of `{function.name}` has a type that is not deduced: make it a template's"
            self.tiled.refuse(function, param.node or function.body, what, Code.CALL_NOT_FOLLOWED)
            return False
        return True

    def _local(self, variable: Variable, mma: tuple[Function, Node], node: Node) -> None:
        function, value, declaration = variable.function, initializer(variable), variable.declaration
        if declaration is None or len(declaration.children_by_field_name("declarator")) != 1:
            self.tiled.refuse(
                function, node, f"`{variable.name}` is declared together with others", Code.ACCUMULATOR_DECLARED
            )
            return
        declared = variable.declarator.child_by_field_name("declarator") if variable.declarator is not None else None
        while declared is not None and declared.type == "reference_declarator":
            declared = declared.named_children[0]
        if declared is not None and declared.type == "structured_binding_declarator":
            what = f"`{variable.name}` is one of several that a structured binding declares"
            self.tiled.refuse(function, node, what, Code.ACCUMULATOR_DECLARED)
            return
        viewed = self.tiled.tensors.root(function, value) if value is not None else None
        if viewed is not None and value is not None:
            if value.type == "identifier" and not variable.is_reference:
                what = f"`{variable.name}` is a copy of accumulator `{viewed.name}`"
                self.tiled.refuse(function, value, what, Code.ACCUMULATOR_COPIED)
                return
            self.tiled.handles[variable.key] = Handle(variable, Origin.VIEW)
            self._add(function, value, mma)
            return
        if variable.is_reference:
            what = f"`{variable.name}` refers to something that is no tensor's name"
            self.tiled.refuse(function, node, what, Code.ACCUMULATOR_REFERENCE)
            return
        own = self.tiled.tensors.mma_of(function, value) if value is not None else None
        if own is not None and mma[0] is not function:
            mma = (function, own)
        self.tiled.handles[variable.key] = Handle(variable, Origin.FRAGMENT, mma)

    def _handed_on(self) -> bool:
        """Parameters of functions that issue or wait for MMAs and are handed an accumulator."""
        found = False
        for call, argument, handle in list(self._arguments()):
            for target in self.program.targets(call):
                index = call.args.index(argument)
                is_called = id(target) in self.tiled.active and target.style is not Style.KERNEL
                if not is_called or index >= len(target.params) or handle.array is not None:
                    continue
                param = target.params[index]
                variable = Variable(target, param.name, param=param)
                if variable.key not in self.tiled.handles and self._deduces(variable):
                    self.tiled.handles[variable.key] = Handle(variable, Origin.PARAM)
                    found = True
        return found

    def _arguments(self) -> Iterator[tuple[Call, Node, Handle]]:
        for function in self.program.functions:
            for call in function.calls:
                for argument in call.args:
                    handle = self.tiled.handle_of(function, argument)
                    if handle is not None:
                        yield call, argument, handle


def _with_const_cast(function: Function, name: Node) -> Node:
    """A name, or the `const_cast` that it stands in."""
    above = name.parent.parent if name.parent is not None and name.parent.type == "argument_list" else None
    callee = above.child_by_field_name("function") if above is not None else None
    is_cast = callee is not None and function.text(callee).startswith("const_cast<")
    return above if is_cast and above is not None else name


def outwards(mma: tuple[Function, Node], function: Function, call: Call) -> tuple[Function, Node]:
    """What the caller hands in for a function's tiled MMA."""
    holder, node = mma
    if holder is function and node.type == "identifier":
        variable = resolve(function, node, function.text(node))
        if variable is not None and variable.param is not None and variable.function is function:
            index = variable.param.index
            if index < len(call.args):
                return call.caller, call.args[index]
    return mma
