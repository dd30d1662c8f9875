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
import itertools
import os
import re
import sys
from typing import Any

import cutlass
import cutlass.cute as cute
import cutlass.utils.hopper_helpers as sm90_utils
from cutlass import base_dsl
from cutlass._mlir import ir
from cutlass._mlir.dialects import arith, llvm, nvvm, scf
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

Field, OperandSource = warpgroup.Field, warpgroup.OperandSource


class Unportable(RuntimeError):
    """What of a kernel Tensor Memory cannot do. `obstacles`: (file, line, text)."""

    def __init__(self, obstacles: list[tuple[str, int, str]]) -> None:
        self.obstacles = obstacles
        super().__init__("; ".join(f"{os.path.basename(f)}:{n}: {text}" for f, n, text in obstacles))


# --- the host's side: tiled MMAs of Hopper as partitioners


@contextlib.contextmanager
def _as_hopper():
    """Constructors of warpgroup MMAs ask for sm_90a; what they make is valid in a module for sm_100a too."""
    dsl = BaseDSL._get_dsl()
    kept = dsl.__dict__.get("get_arch_enum")
    dsl.get_arch_enum = get_arch_enum
    try:
        yield
    finally:
        if kept is None:
            del dsl.__dict__["get_arch_enum"]
        else:
            dsl.get_arch_enum = kept


def get_arch_enum():
    """The architecture that the kernel was written for: it chooses its own way by it."""
    return (getattr(base_dsl, "Arch", None) or base_dsl.arch.Arch).sm_90a


def _on_hopper(function):
    def made(*args, **kwargs):
        with _as_hopper():
            return function(*args, **kwargs)

    return made


make_trivial_tiled_mma = _on_hopper(sm90_utils.make_trivial_tiled_mma)
MmaF16BF16Op = _on_hopper(warpgroup.MmaF16BF16Op)
MmaF8Op = _on_hopper(warpgroup.MmaF8Op)
if hasattr(warpgroup, "MmaI8Op"):
    MmaI8Op = _on_hopper(warpgroup.MmaI8Op)


def __getattr__(name):
    """Everything else of cute.nvgpu.warpgroup: layouts of shared memory, major modes."""
    return getattr(warpgroup, name)


# --- what a kernel calls


class _Event:
    """One call in a kernel: an operation marks its place until `end` puts code there."""

    def __init__(self, kind: str, **values: Any) -> None:
        self.kind = kind
        self.where = _user_line()
        place = ir.Location.file(*self.where, 1)
        self.marker = arith.ConstantOp(T.i32(), ir.IntegerAttr.get(T.i32(), 0), loc=place).operation
        self.__dict__.update(values)
        _now.events.append(self)


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
    frame, package = sys._getframe(1), os.path.dirname(os.path.abspath(cutlass.__file__))
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and not name.startswith(package) and os.path.isabs(name):
            return name, frame.f_lineno
        frame = frame.f_back
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
    kernel = _running("end")
    _Event("end")
    _now = None
    _finish(kernel)


def _running(name: str) -> _Kernel:
    if _now is None:
        raise Unportable([(*_user_line(), f"{name} outside of a kernel that porter_dsl.begin() opens")])
    return _now


def fence() -> None:
    """`wgmma.fence`: what the warpgroup did before comes before the MMAs that follow."""
    _running("fence")
    _Event("fence")


def commit_group() -> None:
    """`wgmma.commit_group`."""
    _running("commit_group")
    _Event("commit")


def wait_group(group: int) -> None:
    """`wgmma.wait_group`: at most `group` groups stay in flight."""
    _running("wait_group")
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
    kernel = _running("gemm")
    first = [x[0] if isinstance(x, (list, tuple)) else x for x in (a, b)]
    if any(isinstance(x, (list, tuple)) and len(x) > 1 for x in (a, b)):
        kernel.refuse(_user_line(), "an MMA with auxiliary operands")
    accumulate = atom.get(Field.ACCUMULATE)
    _Event("mma", mma=atom, d=d, a=first[0], b=first[1], c=c, accumulate=accumulate)


# --- values and layouts


def _raw(value: Any) -> ir.Value:
    """A value itself: the bindings hand out objects of the DSL for it."""
    while not isinstance(value, ir.Value):
        value = value.value
    return ir.Value(value) if type(value) is not ir.Value else value


class _Scratch:
    """Where the bindings may put the operations that they make for the objects of the DSL, whenever a value is
    looked at."""

    def __enter__(self) -> None:
        self._module = ir.Module.create(ir.Location.unknown())
        self._point = ir.InsertionPoint(self._module.body)
        self._point.__enter__()
        _operands.seen.clear()

    def __exit__(self, *error: Any) -> None:
        self._point.__exit__(*error)
        _operands.seen.clear()
        for op in reversed(list(self._module.body.operations)):
            op.operation.erase()


def _operands(op: ir.Operation) -> list[ir.Value]:
    if op not in _operands.seen:
        _operands.seen[op] = [_raw(v) for v in op.operands]
    return _operands.seen[op]


_operands.seen = {}


def _results(op: ir.Operation) -> list[ir.Value]:
    return [_raw(v) for v in op.results]


def _arguments(block: ir.Block) -> list[ir.Value]:
    return [_raw(v) for v in block.arguments]


def _tuple(text: str) -> Any:
    """`((2,2,8),1)` as nested tuples; `_` is None, what is known at run time only is `...`."""
    text = re.sub(r"\{[^}]*\}", "", text)
    tokens = re.findall(r"[(),]|_|\?|-?\d+|[^(),\s]+", text)
    at = 0

    def item() -> Any:
        nonlocal at
        token = tokens[at]
        at += 1
        if token != "(":
            return None if token == "_" else int(token) if token.lstrip("-").isdigit() else ...
        found = []
        while tokens[at] != ")":
            found.append(item())
            if tokens[at] == ",":
                at += 1
        at += 1
        return tuple(found)

    return item()


def _offset(coord: Any, shape: Any, stride: Any) -> int | None:
    """The index of a coordinate, whose free modes count as 0; None if it is known at run time only."""
    if coord is None:
        return 0
    if coord is ... or shape is ... or stride is ...:
        return None
    if isinstance(shape, tuple):
        if not isinstance(coord, tuple):
            parts: list[int] = []
            for s in shape[:-1]:
                size = _size(s)
                if size is None:
                    return None
                parts.append(coord % size)
                coord //= size
            parts.append(coord)
            coord = tuple(parts)
        found = [_offset(c, s, d) for c, s, d in zip(coord, shape, stride, strict=True)]
        return None if None in found else sum(f for f in found if f is not None)
    if isinstance(coord, tuple):
        coord = coord[0]
        return _offset(coord, shape, stride)
    return int(coord * stride)


def _size(shape: Any) -> int | None:
    if isinstance(shape, tuple):
        total = 1
        for s in shape:
            size = _size(s)
            if size is None:
                return None
            total *= size
        return total
    return None if shape is ... or shape is None else shape


def _cosize(shape: Any, stride: Any) -> int | None:
    if isinstance(shape, tuple):
        parts = [_cosize(s, d) for s, d in zip(shape, stride, strict=True)]
        return None if None in parts else 1 + sum(p - 1 for p in parts if p is not None)
    return None if shape is ... or stride is ... else (shape - 1) * stride + 1


class _Registers:
    """A type of registers: bits of an element, shape and strides in elements."""

    pattern = re.compile(r'!cute\.(memref|ptr)<"?([A-Za-z]+)(\d+)[^,]*,\s*rmem\b(?:.*?"([^"]*)")?')

    def __init__(self, text: str) -> None:
        found = self.pattern.match(text)
        assert found is not None
        self.bits = 8 if found[2] == "i" and found[3] == "1" else int(found[3])
        layout = found[4] if found[1] == "memref" else None
        self.shape: Any = None
        self.stride: Any = None
        if layout is not None and ":" in layout:
            shape, _, stride = layout.partition(":")
            self.shape, self.stride = _tuple(shape), _tuple(stride)

    @classmethod
    def of(cls, value: ir.Value) -> _Registers | None:
        text = str(value.type)
        return cls(text) if cls.pattern.match(text) else None


# --- the program: which registers are where touched


class _Array:
    """Registers that one operation allocates. As an accumulator they have columns; as an operand A they have slots of
    8 columns. `mmas` and `reads` are the places that use them so."""

    def __init__(self, value: ir.Value) -> None:
        self.value = value
        self.bits = 0  # extent
        self.parts: list[_Part] = []
        self.slots: dict[Any, int] = {}
        self.column = 0
        self.first = self.last = -1
        self.warpgroups: frozenset = frozenset()
        self.where = ("", 0)
        self.words: Any = None

    @property
    def width(self) -> int:
        """Columns as an accumulator: an element has one, whatever its width."""
        return max((p.stop for p in self.parts), default=0)

    @property
    def total(self) -> int:
        return self.width + 8 * len(self.slots)


class _Part:
    """Registers of an array that MMAs write together: columns `start` to `stop`."""

    def __init__(self, array: _Array, start: int, stop: int, bits: int) -> None:
        self.array, self.start, self.stop, self.bits = array, start, stop, bits
        # at run time: Tensor Memory is newer; it holds the value; the group that wrote it
        self.newer = self.holds = self.group = None

    def note(self, newer: int, holds: int) -> None:
        for flag, value in ((self.newer, newer), (self.holds, holds)):
            if flag is not None:
                flag.set(value)


class _Item:
    """A place in a block. `kind`: `event`, `access`, `array` (its allocation), `region`, `other` (code with regions
    of its own that holds none of these)."""

    def __init__(self, kind: str, op: ir.Operation, **values: Any) -> None:
        self.kind, self.op = kind, op
        self.before: _State | None = None
        self.number = -1
        self.__dict__.update(values)


_LOOPS = ("scf.for", "scf.while")
_MEMORY_READS = ("cute.memref.load", "cute.memref.load_vec")
_MEMORY_WRITES = {"cute.memref.store": 0, "cute.memref.store_vec": 1}
_LAYOUT_ONLY = re.compile(r"!cute\.(layout|shape|stride|coord|int_tuple|tile|swizzle|composed_layout)")


class _Program:
    """The blocks of a kernel as trees of items; which values stand for which registers."""

    def __init__(self, kernel: _Kernel, function: ir.Operation) -> None:
        self.kernel, self.function = kernel, function
        self.markers = {e.marker: e for e in kernel.events}
        self.arrays: dict[ir.Value, _Array] = {}
        # value -> {array's value: offset in bits, None if unknown}
        self.aliases: dict[ir.Value, dict[ir.Value, int | None]] = {}
        self.placed: set[_Event] = set()
        size = -1
        while size != self._known():
            size = self._known()
            self.placed.clear()
            self.blocks = [self._block(b) for r in function.regions for b in r.blocks]

    def _known(self) -> int:
        return sum(len(a) for a in self.aliases.values())

    def _join(self, value: ir.Value, other: ir.Value) -> None:
        """`value` may stand for what `other` does."""
        found = self.aliases.get(other)
        if found:
            mine = self.aliases.setdefault(value, {})
            for array, offset in found.items():
                mine[array] = offset if mine.get(array, offset) == offset else None

    def _block(self, block: ir.Block) -> list[_Item]:
        items: list[_Item] = []
        for view in block.operations:
            op = view.operation
            event = self.markers.get(op)
            if event is not None:
                self.placed.add(event)
                items.append(_Item("event", op, event=event))
            elif len(op.regions):
                items += self._region(op)
            else:
                self._operation(op, items)
        return items

    def _region(self, op: ir.Operation) -> list[_Item]:
        self._carry_in(op)
        blocks = [[self._block(b) for b in r.blocks] for r in op.regions]
        inner = [items[0] if items else [] for items in blocks]
        self._carry_out(op)
        if any(i.kind in ("event", "region") for items in inner for i in items):
            return [_Item("region", op, blocks=inner)]
        # Threads of a warp may be apart in here: what it touches is loaded in front of it.
        touched: dict[_Array, list[_Item]] = {}
        for item in itertools.chain(*inner):
            if item.kind == "access":
                touched.setdefault(item.array, []).append(item)
        return [_Item("other", op)] + [
            _Item("access", op, array=array, reads=True, writes=any(i.writes for i in items), full=False, zero=False)
            for array, items in touched.items()
        ]

    def _carry_in(self, op: ir.Operation) -> None:
        if op.name == "scf.for":
            for argument, value in zip(_arguments(op.regions[0].blocks[0])[1:], _operands(op)[3:], strict=True):
                self._join(argument, value)
        elif op.name == "scf.while":
            for argument, value in zip(_arguments(op.regions[0].blocks[0]), _operands(op), strict=True):
                self._join(argument, value)

    def _carry_out(self, op: ir.Operation) -> None:
        for region in op.regions:
            for block in region.blocks:
                operations = list(block.operations)
                if not operations:
                    continue
                last = operations[-1].operation
                if last.name == "scf.yield" and op.name == "scf.for":
                    for i, value in enumerate(_operands(last)):
                        self._join(_arguments(block)[i + 1], value)
                        self._join(_results(op)[i], value)
                elif last.name == "scf.yield" and op.name == "scf.while":
                    for i, value in enumerate(_operands(last)):
                        self._join(_arguments(op.regions[0].blocks[0])[i], value)
                elif last.name == "scf.condition":
                    for i, value in enumerate(_operands(last)[1:]):
                        self._join(_arguments(op.regions[1].blocks[0])[i], value)
                        self._join(_results(op)[i], value)
                elif last.name == "scf.yield":
                    for i, value in enumerate(_operands(last)):
                        self._join(_results(op)[i], value)

    def _operation(self, op: ir.Operation, items: list[_Item]) -> None:
        used = [(i, v) for i, v in enumerate(_operands(op)) if self.aliases.get(v)]
        if not used:
            for result in _results(op):
                registers = _Registers.of(result)
                if registers is not None and registers.shape is not None:
                    array = self.arrays.setdefault(result, _Array(result))
                    array.bits = registers.bits * (_cosize(registers.shape, registers.stride) or 0)
                    self.aliases.setdefault(result, {result: 0})
                    items.append(_Item("array", op, array=array))
            return
        if op.name in ("scf.yield", "scf.condition"):
            return
        views = [r for r in _results(op) if _Registers.of(r) is not None]
        for result in views:
            for _, value in used:
                self._view(op, result, value)
        if views or (len(_results(op)) and all(_LAYOUT_ONLY.match(str(r.type)) for r in _results(op))):
            return
        for i, value in used:
            reads = op.name in _MEMORY_READS or op.name not in _MEMORY_WRITES
            writes = op.name not in _MEMORY_READS
            if op.name == "cute.copy":
                reads, writes = i == 1, i == 2
            for array in self.aliases[value]:
                full = writes and not reads and self._whole(op, value, array)
                zero = full and self._zero(_operands(op)[0]) if op.name == "cute.memref.store_vec" else False
                items.append(_Item("access", op, array=self.arrays[array], reads=reads, writes=writes, full=full,
                                   zero=zero))  # fmt: skip

    def _whole(self, op: ir.Operation, value: ir.Value, array: ir.Value) -> bool:
        """Whether a store takes all registers of an array."""
        registers = _Registers.of(value)
        if op.name != "cute.memref.store_vec" or registers is None or len(self.aliases[value]) > 1:
            return False
        size = _size(registers.shape)
        return size is not None and size * registers.bits == self.arrays[array].bits

    def _zero(self, value: ir.Value) -> bool:
        owner = value.owner
        while isinstance(owner, (ir.Operation, ir.OpView)):
            op = owner.operation
            if op.name == "arith.constant":
                text = str(op.attributes["value"])
                return bool(re.match(r"(dense<)?[0.]+(e[+-]?0+)?(>|\s*:)", text))
            if op.name not in ("vector.broadcast", "vector.splat"):
                return False
            owner = _operands(op)[0].owner
        return False

    def _view(self, op: ir.Operation, result: ir.Value, value: ir.Value) -> None:
        """What part of the registers a view of them shows."""
        step: int | None = None
        source = _Registers.of(value)
        name = op.name
        if name in ("cute.get_iter", "cute.make_view", "cute.recast_iter", "builtin.unrealized_conversion_cast"):
            step = 0
        elif name == "cute.add_offset" and source is not None:
            found = re.search(r'int_tuple<"(-?\d+)">', str(_operands(op)[1].type))
            step = int(found[1]) * source.bits if found else None
        elif name == "cute.slice" and source is not None and source.shape is not None:
            found = re.search(r'coord<"(.*)">', str(_operands(op)[1].type))
            moved = _offset(_tuple(found[1]), source.shape, source.stride) if found else None
            step = moved * source.bits if moved is not None else None
        elif _same_registers(source, _Registers.of(result)):
            step = 0
        mine = self.aliases.setdefault(result, {})
        for array, offset in self.aliases[value].items():
            now = offset + step if offset is not None and step is not None else None
            mine[array] = now if mine.get(array, now) == now else None


def _same_registers(source: _Registers | None, result: _Registers | None) -> bool:
    """Whether two views have equally many elements: then the second is the first in another order."""
    if source is None or result is None or source.shape is None or result.shape is None:
        return False
    size = _size(source.shape)
    return size is not None and size == _size(result.shape) and source.bits == result.bits


# --- which warpgroups multiply


class _Threads:
    """Values that follow from a thread's number alone, for warpgroups of a block."""

    def __init__(self, function: ir.Operation) -> None:
        self.block = [1, 1, 1]
        known = [n for n in ("nvvm.reqntid", "nvvm.maxntid") if n in function.attributes]
        text = str(function.attributes[known[0]]) if known else ""
        numbers = [int(n) for n in re.findall(r"\d+", text.partition(":")[2])]
        self.known = bool(numbers)
        for i, n in enumerate(numbers[:3]):
            self.block[i] = n
        total = self.block[0] * self.block[1] * self.block[2]
        self.count = (total + 127) // 128 if self.known else 8
        self._memo: dict[tuple[ir.Value, int], int | None] = {}
        self._known: dict[Any, int] = {}
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
            self._known = {self._key(c): n for j, (c, n) in enumerate(conditions) if j != i}
            self._memo.clear()
            threads = [t for t in threads if self.value(condition, t) in (None, wanted)]
        return bool(threads)

    def _key(self, value: ir.Value) -> Any:
        """The same for values that are computed alike."""
        owner = value.owner
        op = None if isinstance(owner, ir.Block) else owner.operation
        if op is None or not op.name.startswith(("arith.", "nvvm.read.ptx.sreg", "cute_nvgpu.arch.make_warp_uniform")):
            return value
        attributes = tuple(str(op.attributes[i]) for i in range(len(op.attributes)))
        return (op.name, attributes, *(self._key(v) for v in _operands(op)))

    def value(self, value: ir.Value, thread: int) -> int | None:
        key = (value, thread)
        if key not in self._memo:
            self._memo[key] = self._known.get(self._key(value)) if self._known else None
            if self._memo[key] is None:
                self._memo[key] = self._value(value, thread)
        return self._memo[key]

    def _value(self, value: ir.Value, thread: int) -> int | None:
        owner = value.owner
        if isinstance(owner, ir.Block):
            return None
        op = owner.operation
        name = op.name
        if name == "arith.constant":
            return _constant(op)
        special = re.match(r"nvvm\.read\.ptx\.sreg\.(n?tid)\.([xyz])$", name)
        if special is not None:
            i = "xyz".index(special[2])
            if not self.known:
                return thread if special[1] == "tid" and i == 0 else 0 if special[1] == "tid" else None
            if special[1] == "ntid":
                return self.block[i]
            x, y, _ = self.block
            return [thread % x, thread // x % y, thread // (x * y)][i]
        if name == "scf.if":
            taken = self.value(_operands(op)[0], thread)
            if taken is None:
                return None
            block = op.regions[0 if taken else 1].blocks[0]
            last = list(block.operations)[-1].operation
            return self.value(_operands(last)[ir.OpResult(value).result_number], thread)
        if name == "cute_nvgpu.arch.make_warp_uniform":
            return self.value(_operands(op)[0], thread - thread % 32)
        if name in ("arith.extsi", "arith.extui", "arith.index_cast", "arith.trunci"):
            return self.value(_operands(op)[0], thread)
        if name == "nvvm.shfl.sync" and len(_operands(op)) >= 4:
            lane = self.value(_operands(op)[2], thread)
            return None if lane is None else self.value(_operands(op)[1], thread - thread % 32 + lane % 32)
        if not name.startswith("arith."):
            return None
        parts = [self.value(v, thread) for v in _operands(op)]
        if name == "arith.andi" and 0 in parts:
            return 0
        if name == "arith.select":
            return None if parts[0] is None else parts[1] if parts[0] else parts[2]
        if name == "arith.ori" and 1 in parts and str(value.type) == "i1":
            return 1
        if len(parts) != 2 or parts[0] is None or parts[1] is None:
            return None
        return _arithmetic(op, parts[0], parts[1])


def _constant(op: ir.Operation) -> int | None:
    """The value of an arith.constant that is an integer."""
    found = re.match(r"(-?\d+|true|false)\b(?!\.)", str(op.attributes["value"]))
    return None if found is None else {"true": 1, "false": 0}.get(found[1]) if found[1].isalpha() else int(found[1])


def _arithmetic(op: ir.Operation, a: int, b: int) -> int | None:
    """Two operands that are small, not negative in what is unsigned."""
    name = op.name.removeprefix("arith.")
    if name == "cmpi":
        number = int(re.match(r"\d+", str(op.attributes["predicate"]))[0])
        if number > 5 and (a < 0 or b < 0):
            return None
        return int([a == b, a != b, a < b, a <= b, a > b, a >= b, a < b, a <= b, a > b, a >= b][number])
    if name in ("divsi", "floordivsi", "divui", "remsi", "remui", "shrsi", "shrui") and (a < 0 or b <= 0):
        return a if b == 0 and name.startswith("shr") else None
    table = {
        "addi": a + b, "subi": a - b, "muli": a * b, "andi": a & b, "ori": a | b, "xori": a ^ b,
        "maxsi": max(a, b), "minsi": min(a, b),
    }  # fmt: skip
    if name in table:
        return table[name]
    if name in ("divsi", "floordivsi", "divui"):
        return a // b
    if name in ("remsi", "remui"):
        return a % b
    if name in ("shli", "shrsi", "shrui") and 0 <= b < 32:
        return a << b if name == "shli" else a >> b
    return None


# --- the flow: where is an accumulator newest


NONE, ZERO, NEW, BOTH = "none", "zero", "registers", "both"
"""Nothing was written yet; registers hold zeros; they are newer than Tensor Memory; both hold the same. Where Tensor
Memory is newer, the state is the number of commits since the MMA, or DONE once a wait covered it."""
DONE = 1000
NEVER = -1
"""Of an operand A: no MMA reads its slots."""


class _State:
    """What may hold before a place. `parts`: states of each accumulator; `staged`: of each operand A, whether its
    slots hold what the registers do; `readers`: commits since the last MMA that reads them; `loose`: loads or stores
    of Tensor Memory since the warpgroup's threads met; `commits` since then, `flying` groups not waited for; `issued`:
    MMAs at all, NEVER or DONE, 0 if that depends."""

    def __init__(self, parts, staged, readers, loose=False, commits=0, flying=0, issued=NEVER) -> None:
        self.parts, self.staged, self.readers = parts, staged, readers
        self.loose, self.commits, self.flying, self.issued = loose, commits, flying, issued

    def key(self) -> tuple:
        return tuple(self.__dict__.values())

    def copy(self) -> _State:
        return _State(dict(self.parts), dict(self.staged), dict(self.readers), *self.key()[3:])

    def join(self, other: _State | None) -> _State:
        if other is None:
            return self
        both = self.copy()
        for p, s in other.parts.items():
            both.parts[p] = both.parts[p] | s
        for a, slots in other.staged.items():
            both.staged[a] = both.staged[a] & slots
        for a, s in other.readers.items():
            both.readers[a] = both.readers[a] | s
        both.loose = self.loose or other.loose
        both.issued = self.issued if self.issued == other.issued else 0
        both.commits = max(self.commits, other.commits)
        both.flying = max(self.flying, other.flying)
        return both


def _older(states: frozenset) -> frozenset:
    return frozenset(s if isinstance(s, str) or s in (DONE, NEVER) else min(s + 1, RING + 2) for s in states)


def _waited(states: frozenset, pending: int) -> frozenset:
    return frozenset(DONE if isinstance(s, int) and s not in (DONE, NEVER) and s > pending else s for s in states)


def _in_memory(states: frozenset) -> list[int]:
    return [s for s in states if isinstance(s, int)]


class _Flow:
    """Runs the states through a program; every item keeps the join of what came before it."""

    def __init__(self, program: _Program) -> None:
        self.program = program
        accumulators = [a for a in program.arrays.values() if a.parts]
        operands = [a for a in program.arrays.values() if a.slots]
        parts = {p: frozenset([NONE]) for a in accumulators for p in a.parts}
        start = _State(parts, {a: frozenset() for a in operands}, {a: frozenset([NEVER]) for a in operands})
        self.final = start
        for items in program.blocks:
            self.final = self._items(items, start)

    def _items(self, items: list[_Item], state: _State) -> _State:
        for item in items:
            if item.kind == "other":
                continue
            item.before = state.join(item.before)
            state = self._region(item, state) if item.kind == "region" else self.step(item, state.copy())
        return state

    def _region(self, item: _Item, state: _State) -> _State:
        name = item.op.name
        if name not in _LOOPS:
            ends = [self._items(items, state) for items in item.blocks]
            if name != "scf.if" or len(ends) < 2 or not len(item.op.regions[1].blocks):
                ends.append(state)
            out = ends[0]
            for other in ends[1:]:
                out = out.join(other)
            return out
        while True:
            after = out = self._items(item.blocks[0], state)
            if name == "scf.while":
                out = self._items(item.blocks[1], after)
            else:
                after = state.join(out)
            again = state.join(out)
            if again.key() == state.key():
                return after
            state = again

    def step(self, item: _Item, state: _State) -> _State:
        if item.kind == "array":
            for part in item.array.parts:
                state.parts[part] = frozenset([NONE])
            if item.array.slots:
                state.staged[item.array] = frozenset()
            return state
        if item.kind == "access":
            return self._access(item, state)
        event = item.event
        if event.kind == "fence" and event.joins:
            state.loose = True
        elif event.kind == "fence":
            _met(state)
        elif event.kind == "commit":
            if _needs_meeting(state):
                _met(state)
            state.parts = {p: _older(s) for p, s in state.parts.items()}
            state.readers = {a: _older(s) for a, s in state.readers.items()}
            state.commits = min(state.commits + 1, RING)
            state.flying = min(state.flying + 1, RING)
        elif event.kind == "wait":
            state.parts = {p: _waited(s, event.pending) for p, s in state.parts.items()}
            state.readers = {a: _waited(s, event.pending) for a, s in state.readers.items()}
            state.flying = min(state.flying, event.pending)
        elif event.kind == "mma":
            self._mma(item, state)
        return state

    def _access(self, item: _Item, state: _State) -> _State:
        array = item.array
        for part in array.parts:
            states = state.parts[part]
            loaded = bool(_in_memory(states)) and not item.full
            state.loose = state.loose or loaded
            if item.writes:
                state.parts[part] = frozenset([ZERO if item.zero else NEW])
            elif loaded:
                state.parts[part] = frozenset([s for s in states if isinstance(s, str)] + [BOTH])
        if item.writes and array.slots:
            state.staged[array] = frozenset()
        return state

    def _mma(self, item: _Item, state: _State) -> None:
        for event in item.batch:
            if event.operand is not None:
                array, slots = event.operand, frozenset(event.slots)
                if not slots <= state.staged[array] or len(slots) < len(event.places):
                    state.loose = True
                    state.staged[array] = state.staged[array] | slots
                state.readers[array] = frozenset([0])
            event.before = {p: state.parts[p] | event.before.get(p, frozenset()) for p in event.parts}
            for part in event.parts:
                if _stored(event, part):
                    state.loose = True
                state.parts[part] = frozenset([0])
        if state.loose:
            _met(state)
        state.issued = DONE


def _settled(array: _Array, state: _State) -> bool:
    """Whether no MMA that is in flight reads or writes an array's columns."""
    states = frozenset().union(*(state.parts[p] for p in array.parts), state.readers.get(array, ()))
    return all(s in (DONE, NEVER) for s in _in_memory(states))


def _cleared(event: _Event) -> bool:
    """Whether zeros in registers are left out of an MMA by its flag: then nothing is stored."""
    states = frozenset().union(*event.before.values())
    return ZERO in states and NEW not in states and len(event.parts) == len(event.tiles)


def _stored(event: _Event, part: _Part) -> bool:
    """Whether registers may have to go to Tensor Memory before an MMA."""
    states = event.before[part]
    return event.adds is not False and (NEW in states or (ZERO in states and not _cleared(event)))


def _met(state: _State) -> None:
    state.loose, state.commits = False, 0


def _needs_meeting(state: _State) -> bool:
    """Threads of a warpgroup must not be apart by as many groups as there are mbarriers."""
    return state.commits >= RING - 2


# --- the accumulate flag, as far as it is known while tracing


class _Flags:
    def __init__(self) -> None:
        self._busy: set[ir.Value] = set()

    def adds(self, value: Any) -> bool | None:
        """Whether an MMA adds to its accumulator; None if that is known at run time only."""
        if isinstance(value, bool):
            return value
        value = getattr(value, "value", value)
        if isinstance(value, bool):
            return value
        return self._value(value) if isinstance(value, ir.Value) else None

    def _value(self, value: ir.Value) -> bool | None:
        owner = value.owner
        if isinstance(owner, ir.Block):
            return None
        op = owner.operation
        if op.name == "arith.constant":
            return bool(_constant(op))
        if op.name == "cute_nvgpu.atom.get_value":
            found = self._atom(_operands(op)[0])
            return found if isinstance(found, bool) else None
        return None

    def _atom(self, atom: ir.Value) -> Any:
        """True, False, None if unknown, `...` where a loop leads back to itself."""
        if atom in self._busy:
            return ...
        self._busy.add(atom)
        try:
            found = [self._atom(s) if isinstance(s, ir.Value) else s[0] for s in self._sources(atom)]
        finally:
            self._busy.discard(atom)
        known = {f for f in found if f is not ...}
        return ... if not known else known.pop() if len(known) == 1 else None

    def _sources(self, atom: ir.Value) -> list[Any]:
        """Values that an atom may be, and flags (in tuples) that it may have."""
        owner = atom.owner
        if isinstance(owner, ir.Block):
            parent, i = owner.owner.operation, ir.BlockArgument(atom).arg_number
            if parent.name == "scf.for" and i:
                return [_operands(parent)[i + 2], _operands(list(owner.operations)[-1].operation)[i - 1]]
            if parent.name == "scf.while":
                before, after = (r.blocks[0] for r in parent.regions)
                if owner == before:
                    return [_operands(parent)[i], _operands(list(after.operations)[-1].operation)[i]]
                return [_operands(list(before.operations)[-1].operation)[i + 1]]
            return [(None,)]
        op = owner.operation
        if op.name == "cute_nvgpu.atom.set_value":
            accumulate = "accum_c" in str(op.attributes["field"])
            return [(self._value(_operands(op)[1]),)] if accumulate else [_operands(op)[0]]
        if op.name in ("scf.if", "scf.for", "scf.while"):
            i = ir.OpResult(atom).result_number
            if op.name == "scf.while":
                return [_operands(list(op.regions[0].blocks[0].operations)[-1].operation)[i + 1]]
            lasts = [_operands(list(r.blocks[0].operations)[-1].operation)[i] for r in op.regions if len(r.blocks)]
            return lasts + ([_operands(op)[i + 3]] if op.name == "scf.for" else [])
        return [(None,)]


# --- from marks to code


def _finish(kernel: _Kernel) -> None:
    """Put code at all marks of a kernel.

    Raises:
        Unportable: something of it cannot be ported.
    """
    begin_event, end_event = kernel.events[0], kernel.events[-1]
    function = begin_event.marker.block.owner.operation
    if len(kernel.events) > 2:
        with _Scratch():
            program = _Program(kernel, function)
            _accumulators(program)
            emitter = None
            if not kernel.obstacles:
                _batches(program)
                emitter = _Emitter(program, _Flow(program), begin_event, end_event)
                emitter.prepare()
        if emitter is not None and not kernel.obstacles:
            emitter.run()
    if kernel.obstacles:
        raise Unportable(kernel.obstacles)
    for event in kernel.events:
        event.marker.erase()


def _accumulators(program: _Program) -> None:
    """Find the registers of each MMA: the parts of its accumulator, the slots of its operand A."""
    cuts: dict[_Array, set[int]] = {}
    flags = _Flags()
    for event in program.kernel.events:
        if event.kind != "mma":
            continue
        refuse = lambda text, e=event: program.kernel.refuse(e.where, text)  # noqa: E731
        if event not in program.placed:
            refuse("an MMA in a function that is not part of the kernel's own code")
            continue
        event.adds = flags.adds(event.accumulate)
        event.operand, event.slots, event.tiles, event.before = None, [], None, {}
        found = program.aliases.get(_raw(event.d), {})
        if len(found) != 1 or None in found.values():
            refuse("an accumulator that is chosen, or whose registers begin where, only at run time")
            continue
        if program.aliases.get(_raw(event.c), {}) != found:
            refuse("an MMA whose result goes to other registers than its accumulator's")
            continue
        ((value, offset),) = found.items()
        array = program.arrays[value]
        array.where = array.where if array.where[1] else event.where
        event.array, event.tiles = array, _tiles(event, offset or 0)
        if event.tiles is None:
            refuse("an accumulator whose registers are not in the order of the MMA's fragment")
            continue
        cuts.setdefault(array, set()).update(n for start, _ in event.tiles for n in (start, start + event.n))
        event.bits = event.mma.op.acc_dtype.width
        if event.mma.op.a_src is OperandSource.RMEM:
            _operand(program, event)
    for array, places in cuts.items():
        events = [e for e in program.kernel.events if getattr(e, "array", None) is array and e.tiles]
        if len({e.bits for e in events}) > 1:
            program.kernel.refuse(events[-1].where, "registers that hold accumulators of 16 and of 32 bits")
            continue
        used = [(s, s + e.n) for e in events for s, _ in e.tiles]
        for start, stop in itertools.pairwise(sorted(places)):
            if any(s <= start and stop <= t for s, t in used):
                array.parts.append(_Part(array, start, stop, events[0].bits))
        for event in events:
            spans = [(s, s + event.n) for s, _ in event.tiles]
            event.parts = [p for p in array.parts if any(s <= p.start and p.stop <= t for s, t in spans)]


def _tiles(event: _Event, offset: int) -> list[tuple[int, tuple[int, int]]] | None:
    """First column within the array, and (m, n), of each MMA of 64 rows; None if its registers are scattered."""
    registers = _Registers.of(_raw(event.d))
    assert registers is not None
    shape, stride = registers.shape, registers.stride
    event.n = event.mma.op.shape_mnk[1]
    if not isinstance(shape, tuple) or (_size(shape) == _size(shape[0]) and not isinstance(shape[0], tuple)):
        shape, stride = (shape,), (stride,)
    if _size(shape[0]) != event.n // 2 or not _compact(shape[0], stride[0]):
        return None
    modes = [_size(s) for s in shape[1:]] + [1, 1]
    event.modes = modes[:2]
    found = []
    for j in range(modes[1] or 0):
        for i in range(modes[0] or 0):
            at = _offset((0, i, j)[: len(shape)], shape, stride)
            if at is None:
                return None
            # An element of a fragment is half a column: 64 n elements are in n columns of 128 threads.
            found.append((2 * (at + offset // registers.bits), (i, j)))
    return found


def _compact(shape: Any, stride: Any) -> bool:
    """Whether elements lie one behind the other in the order of their coordinates."""
    at = 1
    flat = list(zip(_flat(shape), _flat(stride), strict=True))
    for s, d in flat:
        if s != 1 and d != at:
            return False
        at *= s
    return True


def _flat(item: Any) -> list[Any]:
    return [f for i in item for f in _flat(i)] if isinstance(item, tuple) else [item]


def _operand(program: _Program, event: _Event) -> None:
    """The slots of an operand A in registers: 16 bytes of each of 64 rows, 8 columns."""
    found = program.aliases.get(_raw(event.a), {})
    if len(found) != 1:
        program.kernel.refuse(event.where, "an operand A that is chosen at run time")
        return
    ((value, offset),) = found.items()
    array = event.operand = program.arrays[value]
    array.where = array.where if array.where[1] else event.where
    registers = _Registers.of(_raw(event.a))
    assert registers is not None
    shape, stride = registers.shape, registers.stride
    if not isinstance(shape, tuple):
        shape, stride = (shape,), (stride,)
    modes = [_size(s) or 1 for s in shape[1:]] + [1, 1]
    event.a_modes = modes[:2]
    event.places = {}
    for k in range(modes[1]):
        for i in range(modes[0]):
            at = _offset((0, i, k)[: len(shape)], shape, stride)
            known = at is not None and offset is not None
            key = offset + at * registers.bits if known else (event, i, k)
            event.places[i, k] = array.slots.setdefault(key, len(array.slots))
            if known:
                event.slots.append(event.places[i, k])


def _batches(program: _Program) -> None:
    """MMAs that follow each other in a block are issued together; a fence right before them is theirs."""

    def visit(items: list[_Item]) -> None:
        last: _Item | None = None
        items[:] = [i for i in items if i.kind not in ("access", "array") or i.array.parts or i.array.slots]
        for item in list(items):
            if item.kind == "region":
                for inner in item.blocks:
                    visit(inner)
            if item.kind == "event" and item.event.kind == "mma":
                item.batch = [item.event]
                if last is not None:
                    item.batch = last.batch + item.batch
                    items.remove(last)
                last = item
            elif item.kind != "array" and not (item.kind == "access" and _apart(item, last)):
                last = None
        joins = False
        for item in reversed(items):
            if item.kind == "event":
                if item.event.kind == "fence":
                    item.event.joins = joins
                joins = item.event.kind in ("fence", "mma") and (joins or item.event.kind == "mma")
            elif item.kind not in ("array", "access"):
                joins = False

    for items in program.blocks:
        visit(items)


def _apart(item: _Item, last: _Item | None) -> bool:
    """Whether an access has nothing to do with the MMAs before it."""
    if last is None:
        return True
    return all(item.array is not e.array and item.array is not e.operand for e in last.batch)


class _Emitter:
    """Puts code at the marks, with what the flow found."""

    def __init__(self, program: _Program, flow: _Flow, begin_event: _Event, end_event: _Event) -> None:
        self.program, self.flow, self.kernel = program, flow, program.kernel
        self.begin_event, self.end_event = begin_event, end_event
        self.items: list[_Item] = []
        self.chains: list[list[ir.Operation]] = []
        for items in program.blocks:
            self._number(items, [])
        self.arrays = [a for a in program.arrays.values() if a.parts or a.slots]

    def _number(self, items: list[_Item], loops: list[ir.Operation]) -> None:
        for item in items:
            item.number = len(self.items)
            self.items.append(item)
            self.chains.append(loops)
            if item.kind == "region":
                inner = [*loops, item.op] if item.op.name in _LOOPS else loops
                for block in item.blocks:
                    self._number(block, inner)

    def prepare(self) -> None:
        """Find warpgroups, columns, and what has to be known at run time."""
        self._who()
        self._place()
        self._check()

    def run(self) -> None:
        with _at(self.begin_event.marker):
            self._prologue()
        for array in self.arrays:
            if array.parts:
                with _behind(array.value.owner.operation):
                    array.words = cute.recast_ptr(_Tensor(array.value).iterator, dtype=cutlass.Int32)
        for item in self.items:
            if item.kind == "array":
                if item.array.parts:
                    with _behind(item.op):
                        for part in item.array.parts:
                            part.note(0, 0)
            elif item.before is not None and item.kind in ("access", "event"):
                with _at(item.op):
                    self._access(item) if item.kind == "access" else self._event(item)
        with _at(self.end_event.marker):
            self._epilogue()

    # --- who, where

    def _who(self) -> None:
        """The warpgroups that may multiply, or synchronize those that do; which of them use an array."""
        threads = _Threads(self.program.function)
        reach = {e: threads.reach(e.marker, self.program.function) for e in self.kernel.events[1:-1]}
        self.warpgroups = sorted(frozenset().union(*reach.values())) or list(range(threads.count))
        for event, found in reach.items():
            for array in (getattr(event, "array", None), getattr(event, "operand", None)):
                if array is not None:
                    array.warpgroups |= found

    def _place(self) -> None:
        """Columns for all arrays; two share theirs if they are never in use together."""
        extent: dict[ir.Operation, tuple[int, int]] = {}
        for number, loops in enumerate(self.chains):
            for loop in loops:
                extent[loop] = (extent.get(loop, (number,))[0], number)
        for item in self.items:
            for array in self._used(item):
                home = array.value.owner.operation.block.owner.operation
                first = last = item.number
                for loop in self.chains[item.number]:
                    if _inside(home, loop, self.program.function):
                        continue
                    first, last = min(first, extent[loop][0]), max(last, extent[loop][1])
                array.first = first if array.first < 0 else min(array.first, first)
                array.last = max(array.last, last)
        placed: list[_Array] = []
        for array in self.arrays:
            # What still runs then has to be over.
            later = (i.number - 1 for i in self.items[array.last + 1 :] if i.before is not None)
            array.last = next((n for n in later if _settled(array, self.items[n + 1].before)), len(self.items))
            beside = [o for o in placed if o.first <= array.last and array.first <= o.last]
            beside = [o for o in beside if o.warpgroups & array.warpgroups]
            for other in sorted(beside, key=lambda o: o.column):
                if other.column < array.column + array.total and array.column < other.column + other.total:
                    array.column = other.column + other.total
            placed.append(array)
        # Two warpgroups share columns: one has lanes 0-15 of each quarter, the other 16-31.
        width = {
            w: max((a.column + a.total for a in self.arrays if w in a.warpgroups), default=0) for w in self.warpgroups
        }
        widest = sorted(self.warpgroups, key=lambda w: -width[w])
        self.places, used = {}, 0
        for one, other in itertools.zip_longest(widest[::2], widest[1::2]):
            self.places |= {one: used, other: used + (16 << 16)}
            used += width[one]
        self.columns = 32
        while self.columns < used:
            self.columns *= 2
        if self.columns > COLUMNS:
            lines = [(os.path.basename(a.where[0]), a.where[1], a.total) for a in self.arrays]
            names = "; ".join(f"{n * lines.count((f, i, n))} from {f}:{i}" for f, i, n in dict.fromkeys(lines))
            text = f"{used} columns of Tensor Memory ({names}) for {len(self.warpgroups)} warpgroups, two of which"
            self.kernel.refuse(self.arrays[0].where, f"{text} share columns; there are {COLUMNS}")

    def _used(self, item: _Item) -> list[_Array]:
        if item.kind == "access":
            return [item.array] if item.array.parts else []
        if item.kind == "event" and item.event.kind == "mma":
            return [a for e in item.batch for a in (e.array, e.operand) if a is not None]
        return []

    def _check(self) -> None:
        """What the flow shows that no code can put right; which flags and groups are needed at run time."""
        self.newer: set[_Part] = set()
        self.holds: set[_Part] = set()
        self.groups: set[Any] = set()
        self.drains = False
        for item in self.items:
            if item.before is None:
                continue
            if item.kind == "access" and not item.full:
                for part in item.array.parts:
                    states = item.before.parts[part]
                    late = [s for s in _in_memory(states) if s != DONE]
                    if late and set(states) == {0}:
                        where = next(e.where for e in reversed(self.kernel.events) if part in getattr(e, "parts", ()))
                        self.kernel.refuse(where, "the accumulator of this MMA is used before its group is waited for")
                    if late:
                        self.groups.add(part)
            if item.kind == "access":
                for part in item.array.parts:
                    states = item.before.parts[part]
                    if _in_memory(states) and any(isinstance(s, str) for s in states):
                        self.newer.add(part)
            elif item.kind == "event" and item.event.kind == "mma":
                for event in item.batch:
                    for part, states in event.before.items():
                        held = _in_memory(states) or BOTH in states
                        if held and states & {NEW, ZERO} and event.adds is not False:
                            self.holds.add(part)
                    if event.operand is not None and self._restaged(item, event):
                        states = item.before.readers[event.operand]
                        self.drains = self.drains or 0 in states
                        if any(s not in (DONE, NEVER) for s in states):
                            self.groups.add(event.operand)

    def _restaged(self, item: _Item, event: _Event) -> list[tuple[int, int]]:
        """(m, k) of the blocks of an operand A whose slots do not hold what its registers do."""
        held = item.before.staged[event.operand]
        found = []
        for place, slot in event.places.items():
            earlier = [e for e in item.batch[: item.batch.index(event)] if e.operand is event.operand]
            if slot not in event.slots or (slot not in held and not any(slot in e.slots for e in earlier)):
                found.append(place)
        return found

    # --- code

    def _prologue(self) -> None:
        """Tensor Memory, mbarriers, addresses of the thread's warpgroup."""
        count, first = len(self.warpgroups), self.warpgroups[0]
        each = RING + 1 + self.drains
        self.holder, barriers = self._shared_memory(count * each)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        with _if(warp == 0):
            _here(cute.arch.alloc_tmem, self.columns, self.holder)
            _here(cute.arch.relinquish_tmem_alloc_permit)
            with cute.arch.elect_one():
                for i in range(count):
                    _here(cute.arch.mbarrier_init, barriers + i * each, 128)
                    for j in range(1, each):
                        _here(cute.arch.mbarrier_init, barriers + i * each + j, 1)
                _here(cute.arch.mbarrier_init_fence)
        _here(cute.arch.sync_threads)
        _after_sync()
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
        self.phase, self.committed = _Variable(), _Variable()
        self.drain_phase = _Variable() if self.drains else None
        commits = [i.before.issued for i in self.items if i.kind == "event" and i.event.kind == "commit" and i.before]
        self.issued = _Variable() if 0 in commits else None
        for part in self.newer:
            part.newer = _Variable()
        for part in self.holds:
            part.holds = _Variable()
        for owner in self.groups:
            owner.group = _Variable()

    def _shared_memory(self, barriers: int) -> tuple[Any, Any]:
        """Shared memory for the address of Tensor Memory and for mbarriers. Where the kernel's own leaves nothing, they
        stand between the fields of its structure."""
        need, total, gaps = 16 + 8 * barriers, 0, []
        for view in self.program.function.regions[0].blocks[0].operations:
            op = view.operation
            named = "smem.struct_fields" in op.attributes
            fields = list(op.attributes["smem.struct_fields"]) if named else []
            spans = sorted([int(n) for n in str(f).strip('"').split(":")[:0:-1]] for f in fields)
            total = max([total, *(start + size for start, size in spans)])
            for (start, size), (after, _) in itertools.pairwise(spans):
                at = (start + size + 15) // 16 * 16
                if after - at >= need:
                    gaps.append((op, at))
        if total + need + 1024 <= MAX_SHARED or not gaps:
            holder = cute.arch.alloc_smem(cutlass.Int32, 1, 16)
            return holder, cute.arch.alloc_smem(cutlass.Int64, barriers, 8)
        op, at = gaps[0]
        op.move_before(self.begin_event.marker)
        space = _Tensor(op.results[0]).iterator + at
        return cute.recast_ptr(space, dtype=cutlass.Int32), cute.recast_ptr(space + 16, dtype=cutlass.Int64)

    def _epilogue(self) -> None:
        if self.flow.final.flying:
            with _if(self.committed.get() > 0):
                self._wait_for(self.committed.get() - 1)
        _before_sync()
        _here(cute.arch.sync_threads)
        _after_sync()
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
            last = self.committed.get() - 1 - event.pending
            with _if(last >= 0):
                self._wait_for(last)
        elif event.kind == "mma":
            self._multiply(item)

    def _meet(self) -> None:
        """All threads of the warpgroup are here. Nobody goes on before: a thread that ran ahead would arrive for
        another one."""
        _before_sync()
        _here(cute.arch.mbarrier_arrive, self.met)
        _here(cute.arch.mbarrier_wait, self.met, self.phase.get())
        _after_sync()
        self.phase.set(self.phase.get() ^ 1)

    def _commit(self, state: _State) -> None:
        if _needs_meeting(state):
            self._meet()
        number = self.committed.get()
        if state.flying >= RING - 1:
            # The mbarrier of this group is free again when all threads saw the group before on it.
            with _if(number >= RING - 1):
                self._wait_for(number - (RING - 1))
        with _if(self.warp == 0), cute.arch.elect_one():
            # A thread that issued nothing has nothing to commit.
            if state.issued == DONE:
                _here(tcgen05.commit, self.done + number % RING)
            else:
                issued = self.issued.get() != 0 if self.issued is not None else cutlass.Boolean(False)
                with _if(issued):
                    _here(tcgen05.commit, self.done + number % RING)
                with _if(issued == cutlass.Boolean(False)):
                    _here(cute.arch.mbarrier_arrive, self.done + number % RING)
        self.committed.set(number + 1)

    def _wait_for(self, group: Any) -> None:
        _here(cute.arch.mbarrier_wait, self.done + group % RING, group // RING % 2)
        _after_sync()

    def _wait_for_last(self, group: Any) -> None:
        """Wait for a group that may be in flight: one that is committed, and whose mbarrier is not used again."""
        age = self.committed.get() - group
        with _if((age > 0) & (age < RING)):
            self._wait_for(group)

    def _drain(self) -> None:
        """Nothing is in flight any more, committed or not."""
        with _if(self.warp == 0), cute.arch.elect_one():
            _here(tcgen05.commit, self.drained)
        _here(cute.arch.mbarrier_wait, self.drained, self.drain_phase.get())
        _after_sync()
        self.drain_phase.set(self.drain_phase.get() ^ 1)

    def _access(self, item: _Item) -> None:
        """Load what is newer in Tensor Memory."""
        parts = [(p, item.before.parts[p]) for p in item.array.parts if _in_memory(item.before.parts[p])]
        if not item.full:
            plain = [p for p, states in parts if not any(isinstance(s, str) for s in states)]
            self._load(plain, item)
            for part, _ in parts:
                if part not in plain:
                    with _if(part.newer.get() != 0):
                        self._load([part], item)
        for part in item.array.parts if item.writes else ():
            part.note(0, 0)

    def _load(self, parts: list[_Part], item: _Item) -> None:
        if not parts:
            return
        for part in parts:
            if any(s != DONE for s in _in_memory(item.before.parts[part])):
                self._wait_for_last(part.group.get())
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
            blocks = CHUNK
            while blocks * 8 > part.stop - at:
                blocks //= 2
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
        enabled: dict[tuple[_Event, int], Any] = {}
        for event in item.batch:
            for part in event.parts:
                if _stored(event, part):
                    stored = True
                    self._store(event, part)
            if event.operand is not None:
                stored = self._stage(item, event) or stored
            for i, (start, _) in enumerate(event.tiles):
                enabled[event, i] = self._enable(event, start)
        if stored:
            _here(cute.arch.fence_view_async_tmem_store)
        if stored or item.before.loose:
            self._meet()
        with _if(self.warp == 0), cute.arch.elect_one():
            for event in item.batch:
                self._issue(event, [enabled[event, i] for i in range(len(event.tiles))])
        if self.issued is not None:
            self.issued.set(1)
        for event in item.batch:
            for part in event.parts:
                part.note(1, 1)
                if part.group is not None:
                    part.group.set(self.committed.get())
            if event.operand is not None and event.operand in self.groups:
                event.operand.group.set(self.committed.get())

    def _store(self, event: _Event, part: _Part) -> None:
        conditions = []
        if event.adds is None:
            conditions.append(cutlass.Boolean(event.accumulate))
        if part.holds is not None:
            conditions.append(part.holds.get() == 0)
        with contextlib.ExitStack() as stack:
            for condition in conditions:
                stack.enter_context(_if(condition))
            self._move(part, True)

    def _enable(self, event: _Event, start: int) -> Any:
        """enable-input-d of the first MMA on a tile."""
        adds = cutlass.Boolean(event.accumulate)
        if event.adds is False or not _cleared(event):
            return adds
        part = next(p for p in event.parts if p.start == start)
        if part.holds is None:
            return cutlass.Boolean(False)
        holds = part.holds.get() != 0
        return holds if event.adds else adds & holds

    def _stage(self, item: _Item, event: _Event) -> bool:
        """Blocks of an operand A from registers to its slots."""
        places = self._restaged(item, event)
        if not places:
            return False
        array, states = event.operand, item.before.readers[event.operand]
        if 0 in states:
            self._drain()
        elif any(s not in (DONE, NEVER) for s in states):
            self._wait_for_last(array.group.get())
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

    def _issue(self, event: _Event, enabled: list[Any]) -> None:
        kind, description = _instruction(event.mma.op)
        ranks = cute.rank(event.b)
        blocks = cute.size(event.b, mode=[2]) if ranks > 2 else 1
        for k in range(blocks):
            for (start, (i, j)), enable in zip(event.tiles, enabled, strict=True):
                if event.operand is None:
                    a = _descriptor(event.a, i, k)
                else:
                    array = event.operand
                    a = _tensor_memory(self.base + array.column + array.width + 8 * event.places[i, k])
                nvvm.tcgen05_mma(
                    kind,
                    nvvm.CTAGroupKind.CTA_1,
                    _tensor_memory(self.base + event.array.column + start),
                    a,
                    _descriptor(event.b, j, k),
                    cutlass.Int32(description).ir_value(),
                    (enable if k == 0 else cutlass.Boolean(True)).ir_value(),
                )


def _chosen(number: Any, table: dict[int, int]) -> Any:
    """What a table has for a number; the last entry for one that is not in it."""
    entries = list(table.items())
    found = cutlass.Int32(entries.pop()[1])
    for key, value in entries:
        chosen = arith.select((number == key).ir_value(), cutlass.Int32(value).ir_value(), found.ir_value())
        found = cutlass.Int32(chosen)
    return found


class _Variable:
    """A number that a thread keeps at run time."""

    def __init__(self) -> None:
        self.memory = cute.make_rmem_tensor(1, cutlass.Int32)
        self.set(0)

    def get(self) -> Any:
        return self.memory[0]

    def set(self, value: Any) -> None:
        self.memory[0] = cutlass.Int32(value)


@contextlib.contextmanager
def _at(op: ir.Operation):
    with ir.InsertionPoint(op), op.location:
        yield


@contextlib.contextmanager
def _behind(op: ir.Operation):
    operations = [o.operation for o in op.block.operations]
    with _at(operations[operations.index(op) + 1]):
        yield


@contextlib.contextmanager
def _if(condition: Any):
    op = scf.IfOp(cutlass.Boolean(condition).ir_value())
    with ir.InsertionPoint(op.then_block):
        yield
        scf.YieldOp([])


def _here(function: Any, *arguments: Any) -> Any:
    """A call of the DSL, whose operations else stand at the line of this module's caller."""
    return function(*arguments, loc=ir.Location.current)


def _inside(op: ir.Operation, outer: ir.Operation, function: ir.Operation) -> bool:
    """Whether an operation of a function is another one, or in its regions."""
    while op != outer and op != function:
        op = op.block.owner.operation
    return op == outer


def _before_sync() -> None:
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.BEFORE_THREAD_SYNC)


def _after_sync() -> None:
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.AFTER_THREAD_SYNC)


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
