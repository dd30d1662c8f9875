# SPDX-License-Identifier: Apache-2.0
"""The loads that bring A from global memory, and what else a kernel does with the shared memory that they fill."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from porter.lang.asm import AsmStatement
from porter.lang.cuda import find
from porter.model.constants import Constants, visible
from porter.model.functions import Function
from porter.model.kernels import Kernel
from porter.model.pipeline.facts import KernelBoxes, RowBox
from porter.model.pipeline.frames import Frame, Wording, first_value
from porter.model.pipeline.operations import UNKNOWN, Operation, Site, Walk, operations_of
from porter.model.program import Program
from porter.model.scopes import resolve
from porter.model.tensor_core import MmaStep
from porter.passes.full_rate.joining import Missing
from porter.passes.full_rate.renaming import reached
from porter.passes.full_rate.residues import Residues
from porter.ptx.table import find as decode

_PLAIN = frozenset({"cp", "async", "bulk", "tensor", "2d", "shared::cluster", "shared::cta", "global", "tile",
                    "mbarrier::complete_tx::bytes", "multicast::cluster", "L2::cache_hint"})  # fmt: skip
_BUILT_IN = re.compile(r"(?:thread|block)Idx\b|(?:block|grid)Dim\b")
_BASE = re.compile(r"[A-Za-z_][\w.]*")


class Unsuited(Exception):
    """A fact that is not known of the loads of A, and where."""

    def __init__(self, missing: Missing) -> None:
        super().__init__(missing.what)
        self.missing = missing


@dataclass(eq=False)
class Loads:
    """Asks about the loads of one kernel, whose tensor maps have `boxes`.

    Raises:
        Unsuited: where something about them is not known, of every method.
    """

    program: Program
    kernel: Kernel
    known: KernelBoxes

    @property
    def function(self) -> Function:
        return self.kernel.function

    @cached_property
    def walk(self) -> Walk:
        return operations_of(self.program, self.function)

    @cached_property
    def multiplies(self) -> list[Operation]:
        return [o for o in self.walk.operations if o.kind == "mma"]

    def of_a(self) -> list[Operation]:
        """The loads that fill what MMAs read as A."""
        for call in self.walk.too_deep:
            raise Unsuited(Missing(call.caller, call.name_span, f"what `{call.name}` does, calls nest too deep"))
        for operation in self.walk.operations:
            if operation.kind == "unread":
                raise self.left(operation, "what is loaded here is not understood")
        for operation in self.multiplies:
            self._reads_rows(operation)
        copies = [o for o in self.walk.operations if o.kind == "copy"]
        mine = [o for o in copies if self._feeds(o, "a")]
        if not mine or any(self._feeds(o, "b") for o in mine):
            raise self.of_kernel("no loads by tensor maps are known to bring A, and A alone")
        for operation in self.multiplies:
            self._is_loaded(operation, mine)
        for copy in mine:
            self._is_plain(copy)
        maps = {o.map for o in mine}
        for other in self.walk.operations:
            if other.map in maps and not any(other is o for o in mine):
                raise self.left(other, f"`{other.map}` is for something else than loads of A, too")
        for base in {self.base(o) for o in mine}:
            for other in copies:
                if not any(other is o for o in mine) and self.base(other) == base:
                    raise self.left(other, f"what else is loaded to `{base}` is not known")
            self._is_only_multiplied(base, mine)
        return mine

    def box(self, copy: Operation) -> RowBox:
        """The box of the tensor map of a load."""
        param = self.function.param(copy.map)
        found = self.known.of(copy.map) if param is not None else f"`{copy.map}` is no parameter of the kernel"
        if isinstance(found, str):
            raise self.left(copy, found)
        return found

    def part_of_tile(self, copy: Operation, frame: Frame, row: Node, to: Node, rows: int, whole: int) -> None:
        """That a load of fewer rows than `whole` ones that follow each other says by its first `row` which they are:
        what chooses them chooses where they are written `to`, too."""
        found = Residues(self.program, whole, self._value).of(frame, row)
        place = Wording(self.program).words(frame, to)
        words = {n: re.compile(rf"(?<![\w.]){re.escape(n)}(?![\w.])") for n in found.factors}
        if found.constant % rows or any(by % rows or not words[n].search(place) for n, by in found.factors.items()):
            text = " ".join(frame.function.text(row).split())
            what = f"whether rows from `{text}` on are the part of a tile that `{place}` is for is not known"
            raise self.left(copy, what)

    # --- What A is

    def base(self, copy: Operation) -> str:
        """The name of what a load fills a part of."""
        match = _BASE.match(_flat(copy.to))
        if match is None or UNKNOWN in copy.to:
            raise self.left(copy, "where this load writes to is not known")
        return match[0]

    def _feeds(self, copy: Operation, operand: str) -> bool:
        """Whether MMAs read as A, or as B, what a copy fills."""
        word = re.compile(rf"(?<![\w.]){re.escape(self.base(copy))}(?![\w.])")
        return any(word.search(_flat(t)) for o in self.multiplies for t in self._operands(o, operand))

    def _is_loaded(self, operation: Operation, mine: list[Operation]) -> None:
        """That what an MMA reads as A is what loads fill."""
        bases = {self.base(o) for o in mine}
        words = [re.compile(rf"(?<![\w.]){re.escape(b)}(?![\w.])") for b in bases]
        if not all(any(w.search(_flat(t)) for w in words) for t in self._operands(operation, "a")):
            raise self.left(operation, "A of this MMA is not what tensor maps load")

    def _operands(self, operation: Operation, operand: str) -> Iterator[str]:
        """The descriptors of an operand, in the kernel's words."""
        site = operation.sites[-1]
        for statement, steps in self._steps(site):
            for step in steps:
                text = getattr(step, operand)
                node = next((o.expr_node for o in statement.operands if " ".join(o.expr.split()) == text), None)
                if node is None:
                    raise self.left(operation, f"what `{text}` is")
                yield self._with_beginnings(operation, Wording(self.program, objects=True).words(site.frame, node))

    def _with_beginnings(self, operation: Operation, text: str) -> str:
        """An operand with what variables in it begin with that go on from there, such as a descriptor."""
        wording = Wording(self.program, objects=True)
        found = [text]
        for name in dict.fromkeys(re.findall(r"(?<![\w.>])[A-Za-z_]\w*", text)):
            for site in operation.sites:
                function = site.frame.function
                variable = resolve(function, site.node, name)
                value = first_value(variable) if variable is not None and variable.param is None else None
                if value is not None and wording.changes(function, name):
                    found.append(wording.words(site.frame, value))
        return " ".join(found)

    def _steps(self, site: Site) -> Iterator[tuple[AsmStatement, list[MmaStep]]]:
        for found in self.program.steps_in(site.frame.function):
            if found.statement.node.id == site.node.id:
                yield found.statement, [s for s in found.steps if isinstance(s, MmaStep)]

    def _reads_rows(self, operation: Operation) -> None:
        """That an MMA reads A from shared memory, row by row."""
        site, found = operation.sites[-1], False
        for _, steps in self._steps(site):
            for step in steps:
                found = True
                if step.a_registers:
                    raise self.left(operation, "A comes from registers")
                if step.transpose_a is not None and self._value(site.frame, step.transpose_a) != 0:
                    raise self.left(operation, "A is MN-major, or which it is is not known")
        if not found:
            raise self.left(operation, "the operands of an MMA of a library are not known")

    def _value(self, frame: Frame, text: str) -> int | None:
        """What a constant of a function comes to where it is called on this way."""
        for name, given in frame.templates.items():
            text = re.sub(rf"\b{re.escape(name)}\b", f"({given})", text)
        text = re.sub(r"^(?:int|int32_t)\s*(?=\()", "", text.strip())
        found = self.program.constants_in(frame.function).evaluate(text)
        return found if found is not None else self._constants.evaluate(text)

    @cached_property
    def _constants(self) -> Constants:
        around = self.program.constants_around(self.function)
        return visible(around, self.function, dict(self.known.template))

    def _is_plain(self, copy: Operation) -> None:
        site = copy.sites[-1]
        if len(copy.coords) != 2 or UNKNOWN in "".join((copy.to, copy.map, *copy.coords)):
            raise self.left(copy, "A is not loaded by tensor maps of two dimensions alone")
        for statement in site.frame.function.asm:
            if statement.node.id != site.node.id or statement.ptx is None:
                continue
            found = [decode(i) for i in statement.ptx.instructions() if i.parts[0] == "cp"]
            if len(found) != 1 or found[0] is None or set(found[0].parts) - _PLAIN:
                raise self.left(copy, "A is not loaded by tensor maps of two dimensions alone")

    # --- Nothing else reads it

    def _is_only_multiplied(self, base: str, mine: list[Operation]) -> None:
        """That what loads fill is named by loads and MMAs only."""
        sites = [s for o in (*mine, *self.multiplies) for s in o.sites]
        frames = {id(s.frame.function): s.frame for s in sites}
        for frame in frames.values():
            self._names(frame, base, [s.node for s in sites if s.frame.function.file is frame.function.file])
        last = _last(base)
        inside = reached(self.program, [self.function])
        for function in self.program.functions if last != base else ():
            if id(function) not in inside or id(function) in frames:
                continue
            for node in find(function.body, "field_expression"):
                field = node.child_by_field_name("field")
                if field is not None and function.text(field) == last and not _BUILT_IN.match(function.text(node)):
                    raise self._otherwise(function, node, base)

    def _names(self, frame: Frame, base: str, sites: list[Node], above: str = "") -> None:
        """Look at all places of a function that name memory of A, by itself or by a variable made of it (`above`)."""
        function, wording = frame.function, Wording(self.program, objects=True)
        for node in find(function.body, "identifier", "field_expression"):
            if above:
                if node.type != "identifier" or function.text(node) != above:
                    continue
            elif not self._is(wording, frame, node, base):
                continue
            if any(s.start_byte <= node.start_byte and node.end_byte <= s.end_byte for s in sites):
                continue
            if above and _goes_on(function, node):
                continue
            declarator = _declarator_around(node)
            if declarator is None:
                raise self._otherwise(function, node, base)
            named = declarator.child_by_field_name("declarator")
            if named is not None and named.start_byte <= node.start_byte < named.end_byte:
                continue
            while named is not None and named.type != "identifier":
                named = next(iter(named.named_children), None)
            if named is None or function.text(named) == above:
                raise self._otherwise(function, node, base)
            self._names(frame, base, sites, function.text(named))

    @staticmethod
    def _is(wording: Wording, frame: Frame, node: Node, base: str) -> bool:
        """Whether a whole name is that of the memory, and not where it is declared."""
        function, above = frame.function, node.parent
        held = above.child_by_field_name("argument") if above is not None and above.type == "field_expression" else None
        if held is not None and held.id == node.id:
            return False
        same = _last(_flat(function.text(node))) == _last(base)
        if not same and (node.type != "identifier" or frame.outer is None):
            return False
        while above is not None and not above.type.endswith(("statement", "declaration")):
            named = above.child_by_field_name("declarator") if above.type.endswith("declarator") else None
            if above.type == "sizeof_expression" or (named is not None and named.id == node.id):
                return False
            above = above.parent
        return re.match(rf"{re.escape(base)}(?![\w.])", _flat(wording.object(frame, node))) is not None

    def _otherwise(self, function: Function, node: Node, base: str) -> Unsuited:
        what = f"`{base}`, where A is, is used for something else than loads and MMAs"
        return Unsuited(Missing(function, function.span(node), what))

    def left(self, operation: Operation, what: str) -> Unsuited:
        site = operation.sites[-1]
        return Unsuited(Missing(site.frame.function, site.frame.function.span(site.node), what))

    def of_kernel(self, what: str) -> Unsuited:
        function = self.function
        return Unsuited(Missing(function, function.name_span or function.span(function.body), what))


def _last(text: str) -> str:
    return text.rpartition(".")[2]


def _flat(text: str) -> str:
    """An expression without what is in brackets, and what elements are members of as if it were one."""
    before = ""
    while before != text:
        before, text = text, re.sub(r"\[[^\[\]]*\]", "", text).replace("->", ".")
        text = re.sub(r"(?<![\w>])\(([\w.]+)\)(?=\.)", r"\1", text)
    return text


def _goes_on(function: Function, name: Node) -> bool:
    """Whether a variable gets another value, and nothing else is done with it."""
    above = name.parent
    if above is None or above.type not in ("update_expression", "assignment_expression"):
        return False
    target = above.child_by_field_name("left") or above.child_by_field_name("argument")
    alone = above.parent is not None and above.parent.type == "expression_statement"
    return alone and target is not None and target.id == name.id


def _declarator_around(node: Node) -> Node | None:
    """The declarator of a variable that is made of an expression."""
    current: Node | None = node
    while current is not None and not current.type.endswith("statement"):
        if current.type == "init_declarator":
            return current
        current = current.parent
    return None
