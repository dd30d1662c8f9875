# SPDX-License-Identifier: Apache-2.0
"""The loads that bring A from global memory, and what else a kernel does with the shared memory that they fill."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from porter.model.functions import Function
from porter.model.kernels import Kernel
from porter.model.pipeline.facts import KernelBoxes, RowBox
from porter.model.pipeline.operations import UNKNOWN, Operation, Walk, operations_of
from porter.model.program import Program
from porter.passes.native.feeding import fills, read
from porter.passes.native.sites import Left, path_of

_PLAIN = frozenset({"cp", "async", "bulk", "tensor", "2d", "shared::cluster", "shared::cta", "global", "tile",
                    "mbarrier::complete_tx::bytes", "multicast::cluster", "L2::cache_hint"})  # fmt: skip


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

    def of_a(self) -> list[Operation]:
        """The loads that fill what MMAs read as A."""
        for call in self.walk.too_deep:
            raise Left(call.caller, call.name_span, f"what `{call.name}` does, calls nest too deep")
        for operation in self.walk.operations:
            if operation.kind == "unread":
                raise self.left(operation, "what is loaded here is not understood")
        multiplies = [o for o in self.walk.operations if o.kind == "mma"]
        of_a, of_b = ([read(self.program, o, operand) for o in multiplies] for operand in "ab")
        copies = [o for o in self.walk.operations if o.kind == "copy"]
        mine = [o for o in copies if any(fills(o, text) for texts in of_a for text in texts)]
        if not mine or any(fills(o, text) for o in mine for texts in of_b for text in texts):
            raise self.of_kernel("no loads by tensor maps are known to bring A, and A alone")
        for operation, texts in zip(multiplies, of_a, strict=True):
            if not all(any(fills(o, text) for o in mine) for text in texts):
                raise self.left(operation, "A of this MMA is not what tensor maps load")
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
