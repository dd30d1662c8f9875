# SPDX-License-Identifier: Apache-2.0
"""Warpgroup MMAs of Hopper on the tensor cores of Blackwell, under the names that kernels use.

A kernel keeps its tiled MMAs, its fragments and its pipelines: they say how operands lie in shared memory and which
elements of an accumulator a thread holds. What changes is where a product is made: in Tensor Memory, by MMAs of 64
rows that one thread issues. `tcgen05.ld.16x256b` hands a warp the elements of the `wgmma` fragment in their order.

    porter_dsl.begin()                      first statement of a kernel
    porter_dsl.gemm(mma, d, a, b, c)        cute.gemm; other atoms than warpgroup MMAs go on to it
    porter_dsl.fence(), commit_group(), wait_group(n)
    porter_dsl.end()                        last statement, of all threads

Tracing a kernel only marks these places. `end` knows the whole program, and then decides: which warpgroups multiply
(from the conditions around the MMAs), where an accumulator is newer in Tensor Memory than in registers (a flow
analysis over loops and branches; a flag at run time where paths differ), and which columns each one has. Registers are
loaded before something reads them, stored before an MMA adds to what was written to them, and left alone otherwise.
What cannot be ported is collected and raised at `end` as `Unportable`, with the lines of the kernel.

References: PTX ISA 9.7.16 (tcgen05), 9.7.15 (wgmma); CUTLASS include/cute/arch/mma_sm100_desc.hpp.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import operator
import os
import re
import sys
import traceback
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass import base_dsl
from cutlass._mlir import ir
from cutlass._mlir.dialects import arith, llvm, nvvm, scf
from cutlass.cute.core import _unpack_x_tuple
from cutlass.cute.nvgpu import tcgen05, warpgroup
from cutlass.cute.tensor import _Tensor
from cutlass.cutlass_dsl import BaseDSL, T

RING = 8
"""Groups of MMAs in flight, a power of two: each has an mbarrier of its own."""

CHUNK = 8
"""Blocks of 8 columns that one tcgen05.ld or tcgen05.st moves at most: 32 registers."""

COLUMNS = 512
"""Columns of Tensor Memory (PTX ISA 9.7.16.1)."""

MAX_SHARED = 232448
"""Bytes of shared memory that a block may have (CUDA C++ Programming Guide, technical specifications of 9.0, 10.0)."""

BEFORE, AFTER = nvvm.Tcgen05FenceKind.BEFORE_THREAD_SYNC, nvvm.Tcgen05FenceKind.AFTER_THREAD_SYNC


class Unportable(RuntimeError):
    """What of a kernel Tensor Memory cannot do. `obstacles`: (file, line, text)."""

    def __init__(self, obstacles: list[tuple[str, int, str]]) -> None:
        self.obstacles = obstacles
        super().__init__("; ".join(f"{os.path.basename(f)}:{n}: {text}" for f, n, text in obstacles))


# --- the host's side: tiled MMAs of Hopper as partitioners


def get_arch_enum():
    """The architecture that the kernel was written for: it chooses its own way by it."""
    return (getattr(base_dsl, "Arch", None) or base_dsl.arch.Arch).sm_90a


def _on_hopper(function):
    """Constructors of warpgroup MMAs ask for sm_90a; what they make is valid in a module for sm_100a too."""

    def made(*args, **kwargs):
        with unittest.mock.patch.object(BaseDSL._get_dsl(), "get_arch_enum", get_arch_enum):
            return function(*args, **kwargs)

    return made


make_trivial_tiled_mma = _on_hopper(sm90_utils.make_trivial_tiled_mma)


def __getattr__(name):
    """Everything else of cute.nvgpu.warpgroup: MMAs, layouts of shared memory, major modes."""
    found = getattr(warpgroup, name)
    return _on_hopper(found) if re.fullmatch(r"Mma\w+Op", name) else found


# --- what a kernel calls


class _Event:
    """One call in a kernel: an operation marks its place until `end` puts code there."""

    def __init__(self, kind: str, **values: Any) -> None:
        self.kind, self.where = kind, _user_line()
        if _now is None:
            raise Unportable([(*self.where, f"{kind} outside of a kernel that porter_dsl.begin() opens")])
        self.array = self.operand = None
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
    left, _now = _now, _Kernel()
    _Event("begin")
    if left is not None and left.module == _now.module:
        where, _now = left.events[0].where, None
        raise Unportable([(*where, "this kernel is left before porter_dsl.end()")])


def end() -> None:
    """Last statement of a kernel, which all threads reach."""
    global _now
    _Event("end")
    kernel, _now = _now, None
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


def gemm(atom, d, a, b, c, **kwargs) -> None:
    """`cute.gemm`. D and C have to be the same accumulator, in registers."""
    _multiply(cute.gemm, atom, d, a, b, c, kwargs)


def mma_atom_call(atom, d, a, b, c, **kwargs) -> None:
    """`cute.mma_atom_call`: one MMA, under the same conditions."""
    _multiply(cute.mma_atom_call, atom, d, a, b, c, kwargs)


def _multiply(plain, atom, d, a, b, c, options) -> None:
    if not isinstance(getattr(atom, "op", None), warpgroup.mma.WarpGroupMmaOp):
        plain(atom, d, a, b, c, **options)
        return
    operands = [x if isinstance(x, (list, tuple)) else [x] for x in (a, b)]
    values = {"accumulate": atom.get(warpgroup.Field.ACCUMULATE), "slots": [], "places": {}, "before": {}}
    event = _Event("mma", mma=atom, d=d, a=operands[0][0], b=operands[1][0], c=c, **values)
    if max(map(len, operands)) > 1:
        _now.refuse(event.where, "an MMA with auxiliary operands")


# --- values and layouts


def _raw(value: Any) -> ir.Value:
    """A value itself: the bindings hand out objects of the DSL for it."""
    while not isinstance(value, ir.Value):
        value = value.value
    return ir.Value(value) if type(value) is not ir.Value else value


@contextlib.contextmanager
def _scratch():
    """Where the bindings may put the operations that they make whenever a value is looked at."""
    module = ir.Module.create(ir.Location.unknown())
    _operands.cache_clear()
    with ir.InsertionPoint(module.body):
        yield
    _operands.cache_clear()
    for op in reversed(list(module.body.operations)):
        op.operation.erase()


@functools.cache
def _operands(op: ir.Operation) -> list[ir.Value]:
    return [_raw(v) for v in op.operands]


def _owner(value: ir.Value) -> ir.Operation | None:
    """The operation that makes a value; None for an argument of a block."""
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def _bits(value: ir.Value) -> int | None:
    """Bits of an element, if a value is a tensor or a pointer in registers."""
    found = re.match(r'!cute\.(?:memref|ptr)<"?([A-Za-z]+)(\d+)[^,]*,\s*rmem\b', str(value.type))
    return None if found is None else 8 if found[1] + found[2] == "i1" else int(found[2])


def _registers(value: ir.Value) -> Any:
    """The tensor in registers that a value is; None for other values."""
    return _Tensor(value) if _bits(value) and str(value.type).startswith("!cute.memref") else None


def _static(number: Any) -> int | None:
    return number if isinstance(number, int) else None


def _rest(tensor: Any) -> dict[tuple[int, int], int | None]:
    """The coordinates of an operand's modes behind the first, each with its distance in elements."""
    rank = cute.rank(tensor.layout)
    rows, columns = (_static(cute.size(tensor.layout, mode=[m])) or 0 if m < rank else 1 for m in (1, 2))
    coordinates = [(0, i, j) for j in range(columns) for i in range(rows)]
    return {c[1:]: _static(cute.crd2idx(c[:rank] if rank > 1 else 0, tensor.layout)) for c in coordinates}


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
    of its own that holds none of these). `before`: what the flow found."""

    def __init__(self, kind: str, op: ir.Operation, **values: Any) -> None:
        self.kind, self.op = kind, op
        self.before: _State | None = None
        self.event: Any = None
        self.__dict__.update(values)

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


# --- which warpgroups multiply

_UNIFORM = "cute_nvgpu.arch.make_warp_uniform"


class _Threads:
    """Values that follow from a thread's number alone, for warpgroups of a block."""

    def __init__(self, function: ir.Operation) -> None:
        known = [n for n in ("nvvm.reqntid", "nvvm.maxntid") if n in function.attributes]
        text = str(function.attributes[known[0]]) if known else ""
        self.block = [int(n) for n in re.findall(r"\d+", text.partition(":")[2])][:3]
        self.count = (math.prod(self.block) + 127) // 128 if self.block else 8
        self.block += [1] * (3 - len(self.block)) if self.block else []
        self._memo: dict[tuple[ir.Value, int], int | None] = {}
        self._assumed: dict[Any, int] = {}
        self._reached: dict[ir.Block, frozenset] = {}

    def reach(self, op: ir.Operation, stop: ir.Operation) -> frozenset:
        """The warpgroups that the conditions around a place let in, as far as those follow from a thread's number."""
        conditions, block = [], op.block
        while op != stop:
            parent = op.block.owner.operation
            if parent.name == "scf.if":
                conditions.append((_operands(parent)[0], int(parent.regions[0].blocks[0] == op.block)))
            op = parent
        if block not in self._reached:
            self._reached[block] = frozenset(w for w in range(self.count) if self._enters(conditions, w))
        return self._reached[block]

    def _enters(self, conditions: list[tuple[ir.Value, int]], warpgroup: int) -> bool:
        threads = [warpgroup * 128 + t for w in range(4) for t in (32 * w, 32 * w + 31)]
        for i, (condition, wanted) in enumerate(conditions):
            # Inside, all other conditions are known too.
            self._assumed = {self._key(c): n for j, (c, n) in enumerate(conditions) if j != i}
            self._memo.clear()
            threads = [t for t in threads if self.value(condition, t) in (None, wanted)]
        return bool(threads)

    def _key(self, value: ir.Value) -> Any:
        """The same for values that are computed alike."""
        op = _owner(value)
        if op is None or not op.name.startswith(("arith.", "nvvm.read.ptx.sreg", _UNIFORM)):
            return value
        attributes = tuple(str(op.attributes[i]) for i in range(len(op.attributes)))
        return (op.name, attributes, *(self._key(v) for v in _operands(op)))

    def value(self, value: ir.Value, thread: int) -> int | None:
        if (value, thread) not in self._memo:
            assumed = self._assumed.get(self._key(value)) if self._assumed else None
            self._memo[value, thread] = self._value(value, thread) if assumed is None else assumed
        return self._memo[value, thread]

    def _value(self, value: ir.Value, thread: int) -> int | None:
        op = _owner(value)
        if op is None:
            return None
        name, operands = op.name, _operands(op)
        special = re.match(r"nvvm\.read\.ptx\.sreg\.(n?tid)\.([xyz])$", name)
        if special is not None:
            i = "xyz".index(special[2])
            if special[1] == "ntid":
                return self.block[i] if self.block else None
            x, y = self.block[:2] if self.block else (sys.maxsize, 1)
            return (thread % x, thread // x % y, thread // (x * y))[i]
        if name == "arith.constant":
            return _constant(op)
        if name == "scf.if":
            taken = self.value(operands[0], thread)
            handed = [] if taken is None else _operands(list(_blocks(op)[1 - taken].operations)[-1].operation)
            return self.value(handed[ir.OpResult(value).result_number], thread) if handed else None
        if name in ("arith.extsi", "arith.extui", "arith.index_cast", "arith.trunci", _UNIFORM):
            return self.value(operands[0], thread - thread % 32 if name == _UNIFORM else thread)
        if name == "nvvm.shfl.sync" and len(operands) >= 4:
            lane = self.value(operands[2], thread)
            return None if lane is None else self.value(operands[1], thread - thread % 32 + lane % 32)
        if not name.startswith("arith."):
            return None
        parts = [self.value(v, thread) for v in operands]
        if name == "arith.andi" and 0 in parts:
            return 0
        if name == "arith.ori" and 1 in parts and str(value.type) == "i1":
            return 1
        if name == "arith.select":
            return None if parts[0] is None else parts[2 - parts[0]]
        return _arithmetic(op, *parts) if len(parts) == 2 and None not in parts else None


def _constant(op: ir.Operation) -> int | None:
    """The value of an arith.constant that is an integer."""
    found = re.match(r"(-?\d+|true|false)\b(?!\.)", str(op.attributes["value"]))
    return None if found is None else {"true": 1, "false": 0}.get(found[1]) if found[1].isalpha() else int(found[1])


_ORDER = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_ARITHMETIC = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "max": max, "min": min, "div": operator.floordiv, "floordiv": operator.floordiv,
    "rem": operator.mod, "shl": operator.lshift, "shr": operator.rshift,
}  # fmt: skip


def _arithmetic(op: ir.Operation, a: int, b: int) -> int | None:
    """Two operands that are small, not negative in what is unsigned."""
    name = re.sub("[su]?i$", "", op.name.removeprefix("arith."))
    if name == "cmp":
        number = int(re.match(r"\d+", str(op.attributes["predicate"]))[0])
        unsigned = number >= len(_ORDER)
        return None if unsigned and min(a, b) < 0 else int(_ORDER[number - 4 * unsigned](a, b))
    natural = op.name.endswith("ui") or name in ("div", "floordiv", "rem", "shl", "shr")
    if name not in _ARITHMETIC or (natural and (a < 0 or not (0 <= b < 32 if name.startswith("sh") else b > 0))):
        return None
    return _ARITHMETIC[name](a, b)


# --- the flow: where is an accumulator newest


NONE, ZERO, NEW, BOTH = "none", "zero", "registers", "both"
"""Nothing was written yet; registers hold zeros; they are newer than Tensor Memory; both hold the same. Where Tensor
Memory is newer, the state is the number of commits since the MMA, or DONE once a wait covered it."""
DONE = 1000
NEVER = -1
"""Of an operand A: no MMA reads its slots."""


class _State(dict):
    """What may hold before a place, as sets. Of each part of an accumulator its states; of each operand A `(array,
    "stale")`, slots that do not hold what the registers do, and `(array, "read")`, commits since the last MMA that
    reads them. `loose`: loads or stores of Tensor Memory since the warpgroup's threads met; `commits` since then,
    `flying` groups not waited for; `issued`: MMAs at all."""

    def join(self, other: _State | None) -> _State:
        return self if other is None else _State({key: states | other[key] for key, states in self.items()})

    def meet(self) -> None:
        self["loose"], self["commits"] = frozenset([False]), frozenset([0])

    def far(self) -> bool:
        """Whether threads of a warpgroup may be apart by as many groups as there are mbarriers."""
        return max(self["commits"]) >= RING - 2


def _older(states: frozenset) -> frozenset:
    return frozenset(s if isinstance(s, str) or s in (DONE, NEVER) else min(s + 1, RING + 2) for s in states)


def _waited(states: frozenset, pending: int) -> frozenset:
    return frozenset(DONE if isinstance(s, int) and s not in (DONE, NEVER) and s > pending else s for s in states)


def _in_memory(states: frozenset) -> list[int]:
    return [s for s in states if isinstance(s, int)]


class _Flow:
    """Runs the states through a program; every item keeps the join of what came before it."""

    def __init__(self, program: _Program) -> None:
        parts = [p for a in program.arrays.values() for p in a.parts]
        operands = [a for a in program.arrays.values() if a.slots]
        self.aging = [*parts, *((a, "read") for a in operands)]
        state = _State({p: frozenset([NONE]) for p in parts}, loose=frozenset([False]), commits=frozenset([0]),
                       flying=frozenset([0]), issued=frozenset([False]))  # fmt: skip
        for array in operands:
            state[array, "stale"], state[array, "read"] = frozenset(array.slots.values()), frozenset([NEVER])
        for items in program.blocks:
            self.final = self._items(items, state)

    def _items(self, items: list[_Item], state: _State) -> _State:
        for item in items:
            if item.kind == "other":
                continue
            item.before = state.join(item.before)
            if item.kind == "region":
                state = self._region(item, state)
            else:
                state = _State(state)
                step = getattr(self, "_" + (item.kind if item.event is None else item.event.kind), None)
                if step is not None:
                    step(item, state)
        return state

    def _region(self, item: _Item, state: _State) -> _State:
        name = item.op.name
        if name not in _LOOPS:
            ends = [self._items(items, state) for items in item.blocks]
            if name != "scf.if" or len(ends) < 2 or not len(item.op.regions[1].blocks):
                ends.append(state)
            return functools.reduce(_State.join, ends)
        while True:
            after = out = self._items(item.blocks[0], state)
            if name == "scf.while":
                out = self._items(item.blocks[1], after)
            else:
                after = state.join(out)
            again = state.join(out)
            if again == state:
                return after
            state = again

    def _array(self, item: _Item, state: _State) -> None:
        state.update({p: frozenset([NONE]) for p in item.array.parts})
        self._changed(item.array, state)

    def _changed(self, array: _Array, state: _State) -> None:
        if array.slots:
            state[array, "stale"] = frozenset(array.slots.values())

    def _access(self, item: _Item, state: _State) -> None:
        for part in item.array.parts:
            states = state[part]
            loaded = bool(_in_memory(states)) and not item.full
            if loaded:
                state["loose"] = frozenset([True])
            if item.writes:
                state[part] = frozenset([ZERO if item.zero else NEW])
            elif loaded:
                state[part] = frozenset([s for s in states if isinstance(s, str)] + [BOTH])
        if item.writes:
            self._changed(item.array, state)

    def _fence(self, item: _Item, state: _State) -> None:
        if item.event.joins:
            state["loose"] = frozenset([True])
        else:
            state.meet()

    def _commit(self, item: _Item, state: _State) -> None:
        if state.far():
            state.meet()
        for key in self.aging:
            state[key] = _older(state[key])
        for key in ("commits", "flying"):
            state[key] = frozenset(min(n + 1, RING) for n in state[key])

    def _wait(self, item: _Item, state: _State) -> None:
        pending = item.event.pending
        for key in self.aging:
            state[key] = _waited(state[key], pending)
        state["flying"] = frozenset(min(n, pending) for n in state["flying"])

    def _mma(self, item: _Item, state: _State) -> None:
        loose = True in state["loose"]
        for event in item.batch:
            if event.operand is not None:
                array, slots = event.operand, frozenset(event.slots)
                loose = loose or bool(slots & state[array, "stale"]) or len(slots) < len(event.places)
                state[array, "stale"] -= slots
                state[array, "read"] = frozenset([0])
            for part in event.parts:
                event.before[part] = state[part] | event.before.get(part, frozenset())
            for part in event.parts:
                loose = loose or _stored(event, part)
                state[part] = frozenset([0])
        if loose:
            state.meet()
        state["issued"] = frozenset([True])


def _settled(array: _Array, state: _State) -> bool:
    """Whether no MMA that is in flight reads or writes an array's columns."""
    states = frozenset().union(*(state[p] for p in array.parts), state.get((array, "read"), ()))
    return all(s in (DONE, NEVER) for s in _in_memory(states))


def _cleared(event: _Event) -> bool:
    """Whether zeros in registers are left out of an MMA by its flag: then nothing is stored."""
    states = frozenset().union(*event.before.values())
    return ZERO in states and NEW not in states and len(event.parts) == len(event.tiles)


def _stored(event: _Event, part: _Part) -> bool:
    """Whether registers may have to go to Tensor Memory before an MMA."""
    states = event.before[part]
    return event.adds is not False and (NEW in states or (ZERO in states and not _cleared(event)))


# --- from marks to code


def _finish(kernel: _Kernel) -> None:
    """Put code at all marks of a kernel.

    Raises:
        Unportable: something of it cannot be ported.
    """
    function = kernel.events[0].marker.block.owner.operation
    if len(kernel.events) > 2:
        with _scratch():
            program = _Program(kernel, function)
            _accumulators(program)
            if not kernel.obstacles:
                _batches(program)
                emitter = _Emitter(program, _Flow(program))
        if not kernel.obstacles:
            emitter.run()
    if kernel.obstacles:
        raise Unportable(kernel.obstacles)
    for event in kernel.events:
        event.marker.erase()


def _accumulators(program: _Program) -> None:
    """Find the registers of each MMA: the parts of its accumulator, the slots of its operand A."""
    users: dict[_Array, list[_Event]] = {}
    for event in program.kernel.events:
        if event.kind == "mma":
            obstacle = _find(program, event)
            if obstacle:
                program.kernel.refuse(event.where, obstacle)
            else:
                users.setdefault(event.array, []).append(event)
    for array, events in users.items():
        widths = {e.mma.op.acc_dtype.width for e in events}
        if len(widths) > 1:
            program.kernel.refuse(events[-1].where, "registers that hold accumulators of 16 and of 32 bits")
        tiles = {e: [(start, start + e.n) for start, _ in e.tiles] for e in events}
        for start, stop in itertools.pairwise(sorted({n for spans in tiles.values() for span in spans for n in span})):
            part = _Part(array, start, stop, min(widths))
            writers = [e for e, spans in tiles.items() if any(s <= start and stop <= t for s, t in spans)]
            array.parts += [part] if writers else []
            for event in writers:
                event.parts.append(part)


def _find(program: _Program, event: _Event) -> str:
    """The registers of one MMA; what is in the way of that, if something is. `tiles`: first column within the array of
    each MMA of 64 rows, with its (m, n)."""
    if not event.placed:
        return "an MMA in a function that is not part of the kernel's own code"
    flags = _flags(program, event.accumulate, set())
    event.adds = flags.pop() if len(flags) == 1 else None
    found = program.aliases.get(_raw(event.d), {})
    if len(found) != 1 or None in found.values():
        return "an accumulator that is chosen, or whose registers begin where, only at run time"
    if program.aliases.get(_raw(event.c), {}) != found:
        return "an MMA whose result goes to other registers than its accumulator's"
    ((value, offset),) = found.items()
    tensor, bits, event.n = _registers(_raw(event.d)), _bits(_raw(event.d)), event.mma.op.shape_mnk[1]
    fragment = cute.coalesce(tensor.layout[0] if cute.rank(tensor.layout) > 1 else tensor.layout)
    distances = _rest(tensor)
    if (fragment.shape, fragment.stride) != (event.n // 2, 1) or not distances or None in distances.values():
        return "an accumulator whose registers are not in the order of the MMA's fragment"
    event.array = program.arrays[value]
    # An element of a fragment is half a column: 64 n elements are in n columns of 128 threads.
    event.tiles = [(2 * (at + offset // bits), place) for place, at in distances.items()]
    if event.mma.op.a_src is warpgroup.OperandSource.RMEM:
        found = program.aliases.get(_raw(event.a), {})
        if len(found) != 1:
            return "an operand A that is chosen at run time"
        ((value, offset),) = found.items()
        array = event.operand = program.arrays[value]
        for place, at in _rest(_registers(_raw(event.a))).items():
            # 16 bytes of each of 64 rows, 8 columns.
            known = at is not None and offset is not None
            key = offset + at * _bits(_raw(event.a)) if known else (event, place)
            event.places[place] = array.slots.setdefault(key, len(array.slots))
            event.slots += [event.places[place]] if known else []
    for array in event.arrays():
        array.where = array.where if array.where[1] else event.where
    return ""


def _flags(program: _Program, value: Any, seen: set[ir.Value]) -> set[bool | None]:
    """What a flag, or the accumulate flag of an atom, may be; None where only run time tells."""
    value = getattr(value, "value", value)
    if isinstance(value, bool) or value in seen:
        return {value} if isinstance(value, bool) else set()
    seen.add(value)
    op = _owner(value)
    name = "" if op is None else op.name
    if name == "arith.constant":
        return {bool(_constant(op))}
    sources = list(program.sources.get(value, ()))
    if name == "cute_nvgpu.atom.get_value":
        sources = _operands(op)
    elif name == "cute_nvgpu.atom.set_value":
        sources = [_operands(op)["accum_c" in str(op.attributes["field"])]]
    return set().union(*(_flags(program, s, seen) for s in sources)) if sources else {None}


def _batches(program: _Program) -> None:
    """MMAs that follow each other in a block are issued together; a fence right before them is theirs."""

    def visit(items: list[_Item]) -> None:
        last: _Item | None = None
        fences: list[_Event] = []
        items[:] = [i for i in items if i.kind not in ("access", "array") or i.array.parts or i.array.slots]
        for item in list(items):
            if item.kind == "region":
                for inner in item.blocks:
                    visit(inner)
            if item.multiplies():
                item.batch = [item.event]
                if last is not None:
                    item.batch = last.batch + item.batch
                    items.remove(last)
                last = item
            elif item.kind == "access" and last is not None:
                last = None if any(item.array in e.arrays() for e in last.batch) else last
            elif item.kind != "array":
                last = None
            if item.kind == "event" and item.event.kind == "fence":
                fences.append(item.event)
            elif item.kind not in ("access", "array"):
                for fence in fences:
                    fence.joins = item.multiplies()
                fences.clear()

    for items in program.blocks:
        visit(items)


class _Emitter:
    """Puts code at the marks, with what the flow found: which warpgroups there are, which columns arrays have, what has
    to be known at run time."""

    def __init__(self, program: _Program, flow: _Flow) -> None:
        self.program, self.flow, self.kernel = program, flow, program.kernel
        self.items: list[_Item] = []
        for items in program.blocks:
            self._number(items, [])
        self.arrays = [a for a in program.arrays.values() if a.parts or a.slots]
        self._who()
        self._live()
        self._place()
        self._check()

    def _number(self, items: list[_Item], loops: list[ir.Operation]) -> None:
        for item in items:
            item.number, item.loops = len(self.items), loops
            self.items.append(item)
            if item.kind == "region":
                for block in item.blocks:
                    self._number(block, [*loops, item.op] if item.op.name in _LOOPS else loops)

    def run(self) -> None:
        first, last = self.kernel.events[0].marker, self.kernel.events[-1].marker
        with ir.InsertionPoint(first), first.location:
            self._prologue()
        for item in self.items:
            if item.kind == "array" and item.array.parts:
                with ir.InsertionPoint.after(item.op), item.op.location:
                    item.array.words = cute.recast_ptr(_Tensor(item.array.value).iterator, dtype=cutlass.Int32)
                    for part in item.array.parts:
                        part.note(0, 0)
            elif item.before is not None and item.kind in ("access", "event"):
                with ir.InsertionPoint(item.op), item.op.location:
                    self._access(item) if item.kind == "access" else self._event(item)
        with ir.InsertionPoint(last), last.location:
            self._epilogue()

    # --- who, where

    def _who(self) -> None:
        """The warpgroups that may multiply, or synchronize those that do; which of them use an array."""
        threads = _Threads(self.program.function)
        reach = {e: threads.reach(e.marker, self.program.function) for e in self.kernel.events[1:-1]}
        self.warpgroups = sorted(frozenset().union(*reach.values())) or list(range(threads.count))
        for event, found in reach.items():
            for array in event.arrays():
                array.warpgroups |= found

    def _live(self) -> None:
        """From where to where arrays are in use: all of a loop, unless they are made anew in it."""
        extent: dict[ir.Operation, list[int]] = {}
        made = {item.array: item.loops for item in self.items if item.kind == "array"}
        for item in self.items:
            for loop in item.loops:
                extent.setdefault(loop, []).append(item.number)
        for item in self.items:
            used = [a for e in item.batch for a in e.arrays()] if item.multiplies() else []
            for array in [item.array] if item.kind == "access" else used:
                outer = [n for n in item.loops if n not in made[array]]
                array.first = min([array.first, item.number, *(extent[n][0] for n in outer)])
                array.last = max([array.last, item.number, *(extent[n][-1] for n in outer)])
        for array in self.arrays:
            # What still runs then has to be over.
            later = (i.number - 1 for i in self.items[array.last + 1 :] if i.before is not None)
            array.last = next((n for n in later if _settled(array, self.items[n + 1].before)), len(self.items))

    def _place(self) -> None:
        """Columns for all arrays; two share theirs if they are never in use together."""
        for i, array in enumerate(self.arrays):
            beside = [o for o in self.arrays[:i] if o.first <= array.last and array.first <= o.last]
            beside = [o for o in beside if o.warpgroups & array.warpgroups]
            for other in sorted(beside, key=lambda o: o.column):
                if other.column < array.column + array.total and array.column < other.column + other.total:
                    array.column = other.column + other.total
        # Two warpgroups share columns: one has lanes 0-15 of each quarter, the other 16-31.
        ends = {w: [0, *(a.column + a.total for a in self.arrays if w in a.warpgroups)] for w in self.warpgroups}
        widest = sorted(self.warpgroups, key=lambda w: -max(ends[w]))
        self.places, used = {}, 0
        for one, other in itertools.zip_longest(widest[::2], widest[1::2]):
            self.places |= {one: used, other: used + (16 << 16)}
            used += max(ends[one])
        self.columns = max(32, 1 << (used - 1).bit_length())
        if self.columns > COLUMNS:
            lines = [(os.path.basename(a.where[0]), a.where[1], a.total) for a in self.arrays]
            names = "; ".join(f"{n * lines.count((f, i, n))} from {f}:{i}" for f, i, n in dict.fromkeys(lines))
            text = f"{used} columns of Tensor Memory ({names}) for {len(self.warpgroups)} warpgroups, two of which"
            self.kernel.refuse(self.arrays[0].where, f"{text} share columns; there are {COLUMNS}")

    def _check(self) -> None:
        """What the flow shows that no code can put right; which flags and groups are needed at run time."""
        self.needed: dict[tuple[Any, str], None] = {}
        self.issued = None
        for item in (i for i in self.items if i.before is not None):
            for part in item.array.parts if item.kind == "access" else ():
                states = item.before[part]
                if _in_memory(states) and any(isinstance(s, str) for s in states):
                    self.needed[part, "newer"] = None
                if not item.full and any(s != DONE for s in _in_memory(states)):
                    self.needed[part, "group"] = None
                    if states == {0}:
                        where = next(e.where for e in reversed(self.kernel.events) if part in e.parts)
                        self.kernel.refuse(where, "the accumulator of this MMA is used before its group is waited for")
            if item.kind == "event" and len(item.before["issued"]) > 1:
                self.needed[self, "issued"] = None
            for event in item.batch if item.multiplies() else ():
                for part, states in event.before.items():
                    held = _in_memory(states) or BOTH in states
                    if held and states & {NEW, ZERO} and event.adds is not False:
                        self.needed[part, "holds"] = None
                if event.operand is not None and self._restaged(item, event):
                    read = item.before[event.operand, "read"]
                    if 0 in read:
                        self.needed[self, "drain_phase"] = None
                    if not read <= {DONE, NEVER}:
                        self.needed[event.operand, "group"] = None

    def _restaged(self, item: _Item, event: _Event) -> list[tuple[int, int]]:
        """(m, k) of the blocks of an operand A whose slots do not hold what its registers do."""
        earlier = [e for e in item.batch[: item.batch.index(event)] if e.operand is event.operand]
        stale = item.before[event.operand, "stale"].difference(*(e.slots for e in earlier))
        return [place for place, slot in event.places.items() if slot not in event.slots or slot in stale]

    # --- code

    def _prologue(self) -> None:
        """Tensor Memory, mbarriers, addresses of the thread's warpgroup."""
        count, first = len(self.warpgroups), self.warpgroups[0]
        each = RING + 1 + ((self, "drain_phase") in self.needed)
        self.holder, barriers = self._shared_memory(count * each)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        with _if(warp == 0):
            _here(cute.arch.alloc_tmem, self.columns, self.holder)
            _here(cute.arch.relinquish_tmem_alloc_permit)
            with cute.arch.elect_one():
                for i in range(count * each):
                    _here(cute.arch.mbarrier_init, barriers + i, 1 if i % each else 128)
                _here(cute.arch.mbarrier_init_fence)
        _here(cute.arch.sync_threads)
        nvvm.tcgen05_fence(AFTER)
        base = cute.make_tensor(self.holder, cute.make_layout(1))[0]
        number = warp // 4
        rank = number - first
        if self.warpgroups[-1] != first + count - 1:
            rank = _chosen(number, {w: i for i, w in enumerate(self.warpgroups)})
        self.warp = warp % 4
        self.base = base + _chosen(number, {w: self.places[w] for w in self.warpgroups})
        self.quarter = self.base + (self.warp << 21)
        self.met = barriers + (rank * each if count > 1 else 0)
        self.done, self.drained = self.met + 1, self.met + 1 + RING
        self.phase, self.committed = _variable(), _variable()
        for thing, name in self.needed:
            setattr(thing, name, _variable())

    def _shared_memory(self, barriers: int) -> tuple[Any, Any]:
        """Shared memory for the address of Tensor Memory and for mbarriers. Where the kernel's own leaves nothing, they
        stand between the fields of its structure."""
        need, total, gaps = 16 + 8 * barriers, 0, []
        for view in self.program.function.regions[0].blocks[0].operations:
            op = view.operation
            named = "smem.struct_fields" in op.attributes
            fields = op.attributes["smem.struct_fields"] if named else ()
            spans = sorted([int(n) for n in str(f).strip('"').split(":")[:0:-1]] for f in fields)
            total = max([total, *map(sum, spans)])
            for (start, size), (after, _) in itertools.pairwise(spans):
                at = (start + size + 15) // 16 * 16
                gaps += [(op, at)] if after - at >= need else []
        if total + need + 1024 <= MAX_SHARED or not gaps:
            return cute.arch.alloc_smem(cutlass.Int32, 1, 16), cute.arch.alloc_smem(cutlass.Int64, barriers, 8)
        op, at = gaps[0]
        op.move_before(self.kernel.events[0].marker)
        space = _Tensor(op.results[0]).iterator + at
        return cute.recast_ptr(space, dtype=cutlass.Int32), cute.recast_ptr(space + 16, dtype=cutlass.Int64)

    def _epilogue(self) -> None:
        if max(self.flow.final["flying"]):
            with _if(self.committed[0] > 0):
                self._wait_for(self.committed[0] - 1)
        nvvm.tcgen05_fence(BEFORE)
        _here(cute.arch.sync_threads)
        nvvm.tcgen05_fence(AFTER)
        with _if(cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0):
            pointer = _here(cute.arch.retrieve_tmem_ptr, cutlass.Float32, 16, self.holder)
            _here(cute.arch.dealloc_tmem, pointer, self.columns)

    def _event(self, item: _Item) -> None:
        event, state = item.event, item.before
        if event.kind == "fence" and not event.joins:
            self._meet()
        elif event.kind == "commit":
            self._commit(state)
        elif event.kind == "wait" and event.pending < RING - 1:
            # A commit waits for older groups by itself.
            last = self.committed[0] - 1 - event.pending
            with _if(last >= 0):
                self._wait_for(last)
        elif event.kind == "mma":
            self._multiply(item)

    def _meet(self) -> None:
        """All threads of the warpgroup are here. Nobody goes on before: a thread that ran ahead would arrive for
        another one."""
        nvvm.tcgen05_fence(BEFORE)
        _here(cute.arch.mbarrier_arrive, self.met)
        self._pass(self.met, self.phase)

    def _pass(self, barrier: Any, phase: Any) -> None:
        _here(cute.arch.mbarrier_wait, barrier, phase[0])
        nvvm.tcgen05_fence(AFTER)
        phase[0] = phase[0] ^ 1

    def _commit(self, state: _State) -> None:
        if state.far():
            self._meet()
        number = self.committed[0]
        if max(state["flying"]) >= RING - 1:
            # The mbarrier of this group is free again when all threads saw the group before on it.
            with _if(number >= RING - 1):
                self._wait_for(number - (RING - 1))
        self._signal(lambda: self.done + number % RING, state)
        self.committed[0] = number + 1

    def _signal(self, barrier: Callable[[], Any], state: _State) -> None:
        """The mbarrier hears of it when all MMAs of this warpgroup are over."""
        with _if(self.warp == 0), cute.arch.elect_one():
            # A thread that issued nothing has nothing to commit.
            issued = cutlass.Boolean(True in state["issued"] if self.issued is None else self.issued[0] != 0)
            with _if(issued):
                _here(tcgen05.commit, barrier())
            with _if(issued == cutlass.Boolean(False)):
                _here(cute.arch.mbarrier_arrive, barrier())

    def _wait_for(self, group: Any) -> None:
        _here(cute.arch.mbarrier_wait, self.done + group % RING, group // RING % 2)
        nvvm.tcgen05_fence(AFTER)

    def _wait_for_last(self, group: Any) -> None:
        """Wait for a group that may be in flight: one that is committed, and whose mbarrier is not used again."""
        age = self.committed[0] - group
        with _if((age > 0) & (age < RING)):
            self._wait_for(group)

    def _access(self, item: _Item) -> None:
        """Load what is newer in Tensor Memory."""
        parts = [(p, item.before[p]) for p in item.array.parts if _in_memory(item.before[p])]
        if not item.full:
            self._load([p for p, states in parts if states == set(_in_memory(states))], item)
            for part, states in parts:
                if states != set(_in_memory(states)):
                    with _if(part.newer[0] != 0):
                        self._load([part], item)
        for part in item.array.parts if item.writes else ():
            part.note(0, 0)

    def _load(self, parts: list[_Part], item: _Item) -> None:
        if not parts:
            return
        for part in parts:
            if any(s != DONE for s in _in_memory(item.before[part])):
                self._wait_for_last(part.group[0])
        moved = [m for part in parts for m in self._move(part, False)]
        _here(cute.arch.fence_view_async_tmem_load)
        for words, got in moved:
            words.store(cute.TensorSSA(got, (cute.size(words),), cutlass.Int32))
        for part in parts:
            part.note(0, 1)

    def _move(self, part: _Part, store: bool) -> list[tuple[Any, Any]]:
        """Registers of a part to its columns; or those registers, each with what comes from its columns."""
        moved = []
        address = self.quarter + part.array.column
        half = part.bits == 16
        shape = nvvm.Tcgen05LdStShape.SHAPE_16X128B if half else nvvm.Tcgen05LdStShape.SHAPE_16X256B
        per = 2 if half else 4
        at = part.start
        while at < part.stop:
            blocks = min(CHUNK, 1 << ((part.stop - at) // 8).bit_length() - 1)
            words = cute.make_tensor(part.array.words + at // 8 * per, cute.make_layout(blocks * per))
            where = _tensor_memory(address + at)
            if store:
                nvvm.tcgen05_st(shape, where, words.load().ir_value(), **({"unpack": True} if half else {}))
            else:
                kind = ir.VectorType.get([blocks * per], T.i32())
                moved.append((words, nvvm.tcgen05_ld(kind, shape, where, **({"pack": True} if half else {}))))
            at += blocks * 8
        return moved

    def _multiply(self, item: _Item) -> None:
        """Stores, operands A, then the MMAs of a batch by one thread."""
        stored = False
        for event in item.batch:
            for part in event.parts:
                if _stored(event, part):
                    stored = True
                    self._store(event, part)
            if event.operand is not None:
                stored = self._stage(item, event) or stored
            event.enabled = [self._enable(event, start) for start, _ in event.tiles]
        if stored:
            _here(cute.arch.fence_view_async_tmem_store)
        if stored or True in item.before["loose"]:
            self._meet()
        with _if(self.warp == 0), cute.arch.elect_one():
            for event in item.batch:
                self._issue(event)
        if self.issued is not None:
            self.issued[0] = 1
        for event in item.batch:
            for part in event.parts:
                part.note(1, 1)
            for written in (*event.parts, event.operand):
                if written is not None and written.group is not None:
                    written.group[0] = self.committed[0]

    def _store(self, event: _Event, part: _Part) -> None:
        adds = cutlass.Boolean(event.accumulate if event.adds is None else True)
        with _if(adds), _if(part.holds[0] == 0 if part.holds is not None else True):
            self._move(part, True)

    def _enable(self, event: _Event, start: int) -> Any:
        """enable-input-d of the first MMA on a tile."""
        adds = cutlass.Boolean(event.accumulate)
        if event.adds is False or not _cleared(event):
            return adds
        part = next(p for p in event.parts if p.start == start)
        if part.holds is None:
            return cutlass.Boolean(False)
        holds = part.holds[0] != 0
        return holds if event.adds else adds & holds

    def _stage(self, item: _Item, event: _Event) -> bool:
        """Blocks of an operand A from registers to its slots."""
        places = self._restaged(item, event)
        if not places:
            return False
        array, states = event.operand, item.before[event.operand, "read"]
        if 0 in states:
            # No group that could be waited for has all MMAs that read the slots.
            self._signal(lambda: self.drained, item.before)
            self._pass(self.drained, self.drain_phase)
        elif any(s not in (DONE, NEVER) for s in states):
            self._wait_for_last(array.group[0])
        for i, k in places:
            at = (None, i, k)[: cute.rank(event.a)]
            words = cute.recast_tensor(event.a[at] if len(at) > 1 else event.a, cutlass.Int32)
            column = array.column + array.width + 8 * event.places[i, k]
            four = cute.make_rmem_tensor(4, cutlass.Int32)
            for n in range(4):
                four[n] = words[n]
            where = _tensor_memory(self.quarter + column)
            nvvm.tcgen05_st(nvvm.Tcgen05LdStShape.SHAPE_16X128B, where, four.load().ir_value())
        return True

    def _issue(self, event: _Event) -> None:
        kind, description = _instruction(event.mma.op)
        ranks = cute.rank(event.b)
        blocks = cute.size(event.b, mode=[2]) if ranks > 2 else 1
        for k in range(blocks):
            for (start, (i, j)), enable in zip(event.tiles, event.enabled, strict=True):
                if event.operand is None:
                    a = _descriptor(event.a, i, k)
                else:
                    array = event.operand
                    a = _tensor_memory(self.base + array.column + array.width + 8 * event.places[i, k])
                d, b = _tensor_memory(self.base + event.array.column + start), _descriptor(event.b, j, k)
                adds = (enable if k == 0 else cutlass.Boolean(True)).ir_value()
                nvvm.tcgen05_mma(kind, nvvm.CTAGroupKind.CTA_1, d, a, b, cutlass.Int32(description).ir_value(), adds)


def _chosen(number: Any, table: dict[int, int]) -> Any:
    """What a table has for a number; the last entry for one that is not in it."""
    *others, last = table.items()
    found = cutlass.Int32(last[1])
    for key, value in others:
        chosen = cutlass.Int32(value).ir_value()
        found = cutlass.Int32(arith.select((number == key).ir_value(), chosen, found.ir_value()))
    return found


def _variable() -> Any:
    """A number that a thread keeps at run time."""
    made = cute.make_rmem_tensor(1, cutlass.Int32)
    made[0] = 0
    return made


@contextlib.contextmanager
def _if(condition: Any):
    op = scf.IfOp(cutlass.Boolean(condition).ir_value())
    with ir.InsertionPoint(op.then_block):
        yield
        scf.YieldOp([])


def _here(function: Any, *arguments: Any) -> Any:
    """A call of the DSL, whose operations else stand at the line of this module's caller."""
    return function(*arguments, loc=ir.Location.current)


def _tensor_memory(address: Any) -> ir.Value:
    return llvm.inttoptr(ir.Type.parse("!llvm.ptr<6>"), cutlass.Int32(address).ir_value())


def _descriptor(fragment: Any, *at: int) -> ir.Value:
    """The shared memory descriptor of a block: that of wgmma and the version in bit 46 (PTX ISA 9.7.16.4.1)."""
    ranks = cute.rank(fragment)
    view = fragment[(None, *at)[:ranks]] if ranks > 1 else fragment
    return (tcgen05.smem_descriptor_to_int(view.iterator) | cutlass.Int64(1 << 46)).ir_value()


def _instruction(op: Any) -> tuple[Any, int]:
    """Kind and instruction descriptor of an MMA of 64 rows (PTX ISA 9.7.16.4.2)."""
    a, b, d = op.a_dtype, op.b_dtype, op.acc_dtype
    codes = {
        cutlass.Float16: 0, cutlass.BFloat16: 1, cutlass.TFloat32: 2, cutlass.Float8E4M3FN: 0, cutlass.Float8E5M2: 1,
        cutlass.Uint8: 0, cutlass.Int8: 1,
    }  # fmt: skip
    if d is cutlass.Int32:
        # its name differs between versions
        kind = nvvm.Tcgen05MMAKind["I8" if "I8" in nvvm.Tcgen05MMAKind.__members__ else "INT8"]
    else:
        kind = {16: nvvm.Tcgen05MMAKind.F16, 8: nvvm.Tcgen05MMAKind.F8F6F4, 32: nvvm.Tcgen05MMAKind.TF32}[a.width]
    result = {cutlass.Float16: 0, cutlass.Float32: 1, cutlass.Int32: 2}[d]
    columns_first = [int(str(m).endswith("MN")) for m in (op.a_major_mode, op.b_major_mode)]
    n = op.shape_mnk[1]
    return kind, (
        result << 4 | codes[a] << 7 | codes[b] << 10 | columns_first[0] << 15 | columns_first[1] << 16
        | (n >> 3) << 17 | (64 >> 4) << 24
    )  # fmt: skip
