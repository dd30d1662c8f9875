# SPDX-License-Identifier: Apache-2.0
"""Which registers are where touched."""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
from collections.abc import Iterator
from typing import Any

import cutlass.cute as cute
from cutlass._mlir import ir
from cutlass.cute.core import _unpack_x_tuple

from .calls import _Event, _Kernel
from .flow import _State
from .values import _bits, _operands, _owner, _raw, _registers, _static

# --- the program: which registers are where touched


@dataclasses.dataclass(eq=False)
class _Array:
    """Registers that one operation allocates. As an accumulator they have columns, in `parts`; as an operand A they
    have `slots` of 8 columns. In use from item `first` to `last`."""

    value: ir.Value
    bits: int
    parts: list[_Part] = dataclasses.field(default_factory=list)
    slots: dict[Any, int] = dataclasses.field(default_factory=dict)
    column: int = 0
    first: int = sys.maxsize
    last: int = -1
    warpgroups: frozenset = frozenset()
    where: tuple[str, int] = ("", 0)
    words: Any = None
    group: Any = None

    @property
    def width(self) -> int:
        """Columns as an accumulator: an element has one, whatever its width."""
        return max((p.stop for p in self.parts), default=0)

    @property
    def total(self) -> int:
        return self.width + 8 * len(self.slots)


@dataclasses.dataclass(eq=False)
class _Part:
    """Registers of an array that MMAs write together: columns `start` to `stop`. At run time, where that depends on
    the path: Tensor Memory is `newer`; it `holds` the value; the `group` that wrote it."""

    array: _Array
    start: int
    stop: int
    bits: int
    newer: Any = None
    holds: Any = None
    group: Any = None

    def note(self, newer: int, holds: int) -> None:
        for flag, value in ((self.newer, newer), (self.holds, holds)):
            if flag is not None:
                flag[0] = value


class _Item:
    """A place in a block. `kind`: `event`, `access`, `array` (its allocation), `region`, `other` (code with regions
    of its own that holds none of these). `state`: what the flow found ahead of it, where that came `before`. Of an
    access: whether it `writes`, sees the `full` array, stores `zero`s. Of MMAs: the `batch` that is issued here."""

    array: _Array
    writes: bool
    full: bool
    zero: bool
    blocks: list[list[_Item]]
    batch: list[_Event]
    number: int
    loops: list[ir.Operation]

    def __init__(self, kind: str, op: ir.Operation, **values: Any) -> None:
        self.kind, self.op = kind, op
        self.before: _State | None = None
        self.event: Any = None
        self.__dict__.update(values)

    @property
    def state(self) -> _State:
        assert self.before is not None
        return self.before

    def multiplies(self) -> bool:
        return self.kind == "event" and self.event.kind == "mma"


_LOOPS = ("scf.for", "scf.while")
_READS = ("cute.memref.load", "cute.memref.load_vec")
_SAME_START = ("cute.get_iter", "cute.make_view", "cute.recast_iter", "builtin.unrealized_conversion_cast")
_LAYOUT_ONLY = re.compile(r"!cute\.(layout|shape|stride|coord|int_tuple|tile|swizzle|composed_layout)")


def _blocks(op: ir.Operation) -> list[ir.Block]:
    return [b for r in op.regions for b in r.blocks if len(b.operations)]


def _edges(op: ir.Operation) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Values that control flow makes of others: arguments of its blocks and results, each with what it may be."""
    blocks = _blocks(op)
    arguments = [[_raw(v) for v in b.arguments] for b in blocks]
    handed = [_operands(list(b.operations)[-1].operation) for b in blocks]
    results = [_raw(v) for v in op.results]
    if op.name == "scf.for":
        start = _operands(op)[3:]
        pairs = [(arguments[0][1:], start), (arguments[0][1:], handed[0]), (results, handed[0]), (results, start)]
    elif op.name == "scf.while":
        on = handed[0][1:]
        pairs = [(arguments[0], _operands(op)), (arguments[0], handed[1]), (arguments[1], on), (results, on)]
    else:
        pairs = [(results, values) for values in handed] if op.name.startswith("scf.") else []
    for values, others in pairs:
        yield from zip(values, others, strict=True)


class _Program:
    """The blocks of a kernel as trees of items; which values stand for which registers."""

    def __init__(self, kernel: _Kernel, function: ir.Operation) -> None:
        self.kernel, self.function = kernel, function
        self.markers = {e.marker: e for e in kernel.events}
        self.arrays: dict[ir.Value, _Array] = {}
        # value -> {array's value: offset in bits, None if unknown}
        self.aliases: dict[ir.Value, dict[ir.Value, int | None]] = {}
        self.sources: dict[ir.Value, dict[ir.Value, None]] = {}
        before = None
        while before != self.aliases:
            before = {value: dict(found) for value, found in self.aliases.items()}
            self.blocks = [self._block(b) for b in _blocks(function)]

    def _join(self, value: ir.Value, other: ir.Value, step: int | None = 0) -> None:
        """`value` may stand for what `other` does, `step` bits behind it."""
        for array, offset in self.aliases.get(other, {}).items():
            now = None if offset is None or step is None else offset + step
            mine = self.aliases.setdefault(value, {})
            mine[array] = now if mine.get(array, now) == now else None

    def _block(self, block: ir.Block) -> list[_Item]:
        items: list[_Item] = []
        for view in block.operations:
            op = view.operation
            event = self.markers.get(op)
            if event is not None:
                event.placed = True
                items.append(_Item("event", op, event=event))
            elif len(op.regions):
                items += self._region(op)
            else:
                items += self._operation(op)
        return items

    def _follow(self, op: ir.Operation) -> None:
        for value, other in _edges(op):
            self._join(value, other)
            self.sources.setdefault(value, {})[other] = None

    def _region(self, op: ir.Operation) -> list[_Item]:
        self._follow(op)
        inner = [self._block(r.blocks[0]) if len(r.blocks) else [] for r in op.regions]
        self._follow(op)
        if any(i.kind in ("event", "region") for items in inner for i in items):
            return [_Item("region", op, blocks=inner)]
        # Threads of a warp may be apart in here: what it touches is loaded in front of it.
        touched: dict[_Array, bool] = {}
        for item in itertools.chain(*inner):
            if item.kind == "access":
                touched[item.array] = touched.get(item.array, False) or item.writes
        found = [_Item("access", op, array=a, writes=w, full=False, zero=False) for a, w in touched.items()]
        return [_Item("other", op), *found]

    def _operation(self, op: ir.Operation) -> list[_Item]:
        used = [v for v in _operands(op) if self.aliases.get(v)]
        results = [_raw(v) for v in op.results]
        if not used:
            made = [(r, _registers(r)) for r in results]
            for result, tensor in made:
                if tensor is not None and result not in self.arrays:
                    self.arrays[result] = _Array(result, (_bits(result) or 0) * (_static(cute.cosize(tensor)) or 0))
                    self.aliases[result] = {result: 0}
            return [_Item("array", op, array=self.arrays[r]) for r, tensor in made if tensor is not None]
        if op.name in ("scf.yield", "scf.condition"):
            return []
        views = [r for r in results if _bits(r)]
        for result, value in itertools.product(views, used):
            self._join(result, value, _step(op, result, value))
        if views or (results and all(_LAYOUT_ONLY.match(str(r.type)) for r in results)):
            return []
        items = []
        for value in used:
            writes = op.name not in _READS and not (op.name == "cute.copy" and value == _operands(op)[1])
            for array in self.aliases[value]:
                full = op.name == "cute.memref.store_vec" and self._whole(value, array)
                zero = full and _zero(_operands(op)[0])
                items.append(_Item("access", op, array=self.arrays[array], writes=writes, full=full, zero=zero))
        return items

    def _whole(self, value: ir.Value, array: ir.Value) -> bool:
        """Whether a view shows all registers of an array."""
        tensor, bits = _registers(value), self.arrays[array].bits
        extent = () if tensor is None else (cute.size(tensor) * _bits(value), cute.cosize(tensor) * _bits(value))
        return len(self.aliases[value]) == 1 and extent == (bits, bits)


def _zero(value: ir.Value) -> bool:
    """Whether a vector is all zeros."""
    op = _owner(value)
    while op is not None and op.name in ("vector.broadcast", "vector.splat"):
        op = _owner(_operands(op)[0])
    constant = str(op.attributes["value"]) if op is not None and op.name == "arith.constant" else ""
    return bool(re.match(r"(dense<)?[0.]+(e[+-]?0+)?(>|\s*:)", constant))


def _step(op: ir.Operation, result: ir.Value, value: ir.Value) -> int | None:
    """How many bits a view of registers begins behind them."""
    bits, tensor, view = _bits(value), _registers(value), _registers(result)
    if op.name in _SAME_START:
        return 0
    step = None
    if op.name == "cute.add_offset":
        step = _static(_unpack_x_tuple(_operands(op)[1]))
    elif op.name == "cute.slice" and tensor is not None:
        step = _static(cute.slice_and_offset(_unpack_x_tuple(_operands(op)[1]), tensor.layout)[1])
    elif tensor is not None and view is not None and bits == _bits(result):
        # Equally many elements are the same ones in another order.
        step = 0 if _static(cute.size(tensor)) == cute.size(view) else None
    return None if step is None or bits is None else step * bits
