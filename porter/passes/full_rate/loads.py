# SPDX-License-Identifier: Apache-2.0
"""The loads that bring A from global memory, and what else a kernel does with the shared memory that they fill."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from porter.model.functions import Function
from porter.model.kernels import Kernel
from porter.model.pipeline.facts import KernelBoxes, RowBox
from porter.model.pipeline.frames import Wording, first_value
from porter.model.pipeline.operations import UNKNOWN, Operation, Walk, operations_of
from porter.model.program import Program
from porter.model.scopes import resolve
from porter.passes.native.feeding import descriptors
from porter.passes.native.sites import Left, path_of

_PLAIN = frozenset({"cp", "async", "bulk", "tensor", "2d", "shared::cluster", "shared::cta", "global", "tile",
                    "mbarrier::complete_tx::bytes", "multicast::cluster", "L2::cache_hint"})  # fmt: skip
_BASE = re.compile(r"[A-Za-z_][\w.]*")


@dataclass(eq=False)
class Loads:
    """Asks about the loads of one kernel, whose tensor maps have `boxes`.

    Raises:
        Left: where something about them is not known, of every method.
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
            raise Left(call.caller, call.name_span, f"what `{call.name}` does, calls nest too deep")
        for operation in self.walk.operations:
            if operation.kind == "unread":
                raise self.left(operation, "what is loaded here is not understood")
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
        return mine

    def box(self, copy: Operation) -> RowBox:
        """The box of the tensor map of a load."""
        param = self.function.param(copy.map)
        found = self.known.of(copy.map) if param is not None else f"`{copy.map}` is no parameter of the kernel"
        if isinstance(found, str):
            raise self.left(copy, found)
        return found

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
        frame = operation.sites[-1].frame
        for text, node in descriptors(self.program, operation, operand):
            if node is None:
                raise self.left(operation, f"what `{text}` is")
            yield self._with_beginnings(operation, Wording(self.program, objects=True).words(frame, node))

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

    def _is_plain(self, copy: Operation) -> None:
        site = copy.sites[-1]
        if len(copy.coords) != 2 or UNKNOWN in "".join((copy.to, copy.map, *copy.coords)):
            raise self.left(copy, "A is not loaded by tensor maps of two dimensions alone")
        found = site.only("cp")
        if site.asm is not None and (found is None or set(found.parts) - _PLAIN):
            raise self.left(copy, "A is not loaded by tensor maps of two dimensions alone")

    def left(self, operation: Operation, what: str) -> Left:
        return path_of(operation)[-1].left(what)

    def of_kernel(self, what: str) -> Left:
        return Left(self.function, self.function.head, what)


def _flat(text: str) -> str:
    """An expression without what is in brackets, and what elements are members of as if it were one."""
    before = ""
    while before != text:
        before, text = text, re.sub(r"\[[^\[\]]*\]", "", text).replace("->", ".")
        text = re.sub(r"(?<![\w>])\(([\w.]+)\)(?=\.)", r"\1", text)
    return text
