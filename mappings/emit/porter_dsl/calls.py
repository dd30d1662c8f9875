# SPDX-License-Identifier: Apache-2.0
"""What a kernel calls."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass._mlir import ir
from cutlass._mlir.dialects import arith
from cutlass.cute.nvgpu import warpgroup
from cutlass.cutlass_dsl import T

from .finish import _finish
from .head import Unportable
from .program import _Array, _Part

# --- what a kernel calls


class _Event:
    """One call in a kernel: an operation marks its place until `end` puts code there. Of an MMA: its operands as they
    were handed over, whether it `accumulate`s, and what is found of them."""

    pending: int
    mma: Any
    d: Any
    a: Any
    b: Any
    c: Any
    accumulate: Any
    adds: bool | None
    n: int
    tiles: list[tuple[int, tuple[int, int]]]
    slots: list[int]
    places: dict[tuple[int, int], int]
    before: dict[_Part, frozenset[Any]]
    enabled: list[Any]

    def __init__(self, kind: str, **values: Any) -> None:
        self.kind, self.where = kind, _user_line()
        if _now is None:
            raise Unportable([(*self.where, f"{kind} outside of a kernel that porter_dsl.begin() opens")])
        self.array: _Array | None = None
        self.operand: _Array | None = None
        self.parts: list[_Part] = []
        self.joins = self.placed = False
        place = ir.Location.file(*self.where, 1)
        self.marker = arith.ConstantOp(T.i32(), ir.IntegerAttr.get(T.i32(), 0), loc=place).operation
        self.__dict__.update(values)
        _now.events.append(self)

    def arrays(self) -> list[_Array]:
        """The registers of an MMA: its accumulator, its operand A."""
        return [a for a in (self.array, self.operand) if a is not None]


class _Kernel:
    """The kernel that is being traced."""

    def __init__(self) -> None:
        self.events: list[_Event] = []
        self.obstacles: list[tuple[str, int, str]] = []
        self.module = ir.InsertionPoint.current.block.owner.operation
        while self.module.parent is not None:
            self.module = self.module.parent.operation

    def refuse(self, where: tuple[str, int], text: str) -> None:
        if (*where, text) not in self.obstacles:
            self.obstacles.append((*where, text))


_now: _Kernel | None = None


def _user_line() -> tuple[str, int]:
    """The nearest line that neither this module nor the DSL's package wrote."""
    package = os.path.dirname(os.path.abspath(cutlass.__file__))
    for frame, line in traceback.walk_stack(sys._getframe()):
        name = frame.f_code.co_filename
        if name != __file__ and not name.startswith(package) and os.path.isabs(name):
            return name, line
    return "", 0


def begin() -> None:
    """First statement of a kernel."""
    global _now
    left, _now = _now, (kernel := _Kernel())
    _Event("begin")
    if left is not None and left.module == kernel.module:
        where, _now = left.events[0].where, None
        raise Unportable([(*where, "this kernel is left before porter_dsl.end()")])


def end() -> None:
    """Last statement of a kernel, which all threads reach."""
    global _now
    _Event("end")
    kernel, _now = _now, None
    assert kernel is not None
    _finish(kernel)


def fence() -> None:
    """`wgmma.fence`: what the warpgroup did before comes before the MMAs that follow."""
    _Event("fence")


def commit_group() -> None:
    """`wgmma.commit_group`."""
    _Event("commit")


def wait_group(group: int) -> None:
    """`wgmma.wait_group`: at most `group` groups stay in flight."""
    _Event("wait", pending=int(group))


def gemm(atom: Any, d: Any, a: Any, b: Any, c: Any, **kwargs: Any) -> None:
    """`cute.gemm`. D and C have to be the same accumulator, in registers."""
    _multiply(cute.gemm, atom, d, a, b, c, kwargs)


def mma_atom_call(atom: Any, d: Any, a: Any, b: Any, c: Any, **kwargs: Any) -> None:
    """`cute.mma_atom_call`: one MMA, under the same conditions."""
    _multiply(cute.mma_atom_call, atom, d, a, b, c, kwargs)


def _multiply(plain: Callable[..., Any], atom: Any, d: Any, a: Any, b: Any, c: Any, options: dict[str, Any]) -> None:
    if not isinstance(getattr(atom, "op", None), warpgroup.mma.WarpGroupMmaOp):
        plain(atom, d, a, b, c, **options)
        return
    operands = [x if isinstance(x, (list, tuple)) else [x] for x in (a, b)]
    values = {"accumulate": atom.get(warpgroup.Field.ACCUMULATE), "slots": [], "places": {}, "before": {}}
    event = _Event("mma", mma=atom, d=d, a=operands[0][0], b=operands[1][0], c=c, **values)
    if max(map(len, operands)) > 1 and _now is not None:
        _now.refuse(event.where, "an MMA with auxiliary operands")
