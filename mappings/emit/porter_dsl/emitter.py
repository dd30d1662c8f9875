# SPDX-License-Identifier: Apache-2.0
"""Code at the marks."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass._mlir import ir
from cutlass._mlir.dialects import arith, llvm, nvvm, scf
from cutlass.cute.nvgpu import tcgen05
from cutlass.cute.tensor import _Tensor
from cutlass.cutlass_dsl import T

from .calls import _Event
from .flow import BOTH, DONE, NEVER, NEW, ZERO, _cleared, _Flow, _in_memory, _settled, _State, _stored
from .head import AFTER, BEFORE, CHUNK, COLUMNS, MAX_SHARED, RING
from .private import _INTEGERS
from .program import _LOOPS, _Item, _Part, _Program
from .threads import _Threads

# --- code at the marks


class _Emitter:
    """Puts code at the marks, with what the flow found: which warpgroups there are, which columns arrays have, what has
    to be known at run time."""

    drain_phase: Any

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
            array.last = next((n for n in later if _settled(array, self.items[n + 1].state)), len(self.items))

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
        self.places: dict[int, int] = {}
        used = 0
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
                states = item.state[part]
                if _in_memory(states) and any(isinstance(s, str) for s in states):
                    self.needed[part, "newer"] = None
                if not item.full and any(s != DONE for s in _in_memory(states)):
                    self.needed[part, "group"] = None
                    if states == {0}:
                        where = next(e.where for e in reversed(self.kernel.events) if part in e.parts)
                        self.kernel.refuse(where, "the accumulator of this MMA is used before its group is waited for")
            if item.kind == "event" and len(item.state["issued"]) > 1:
                self.needed[self, "issued"] = None
            for event in item.batch if item.multiplies() else ():
                for part, states in event.before.items():
                    held = _in_memory(states) or BOTH in states
                    if held and states & {NEW, ZERO} and event.adds is not False:
                        self.needed[part, "holds"] = None
                if event.operand is not None and self._restaged(item, event):
                    read = item.state[event.operand, "read"]
                    if 0 in read:
                        self.needed[self, "drain_phase"] = None
                    if not read <= {DONE, NEVER}:
                        self.needed[event.operand, "group"] = None

    def _restaged(self, item: _Item, event: _Event) -> list[tuple[int, int]]:
        """(m, k) of the blocks of an operand A whose slots do not hold what its registers do."""
        earlier = [e for e in item.batch[: item.batch.index(event)] if e.operand is event.operand]
        stale = item.state[event.operand, "stale"].difference(*(e.slots for e in earlier))
        return [place for place, slot in event.places.items() if slot not in event.slots or slot in stale]

    # --- code

    def _prologue(self) -> None:
        """Tensor Memory, mbarriers, addresses of the thread's warpgroup."""
        count, first = len(self.warpgroups), self.warpgroups[0]
        each = RING + 1 + ((self, "drain_phase") in self.needed)
        self.holder, barriers = self._shared_memory(count * each)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        with _if(warp == 0):
            self._allocate()
            with cute.arch.elect_one():
                for i in range(count * each):
                    _here(cute.arch.mbarrier_init, barriers + i, 1 if i % each else 128)
                _here(cute.arch.mbarrier_init_fence)
        self._all()
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
        self._all()
        nvvm.tcgen05_fence(AFTER)
        with _if(cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0):
            self._free()

    def _allocate(self) -> None:
        _here(cute.arch.alloc_tmem, self.columns, self.holder)
        _here(cute.arch.relinquish_tmem_alloc_permit)

    def _free(self) -> None:
        pointer = _here(cute.arch.retrieve_tmem_ptr, cutlass.Float32, 16, self.holder)
        _here(cute.arch.dealloc_tmem, pointer, self.columns)

    def _all(self) -> None:
        """All threads that share Tensor Memory are here."""
        _here(cute.arch.sync_threads)

    def _event(self, item: _Item) -> None:
        event, state = item.event, item.state
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
        self._wait(barrier, phase[0])
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
        self._wait(self.done + group % RING, group // RING % 2)

    def _wait(self, barrier: Any, phase: Any) -> None:
        _here(cute.arch.mbarrier_wait, barrier, phase)
        nvvm.tcgen05_fence(AFTER)

    def _wait_for_last(self, group: Any) -> None:
        """Wait for a group that may be in flight: one that is committed, and whose mbarrier is not used again."""
        age = self.committed[0] - group
        with _if((age > 0) & (age < RING)):
            self._wait_for(group)

    def _access(self, item: _Item) -> None:
        """Load what is newer in Tensor Memory."""
        parts = [(p, item.state[p]) for p in item.array.parts if _in_memory(item.state[p])]
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
            if any(s != DONE for s in _in_memory(item.state[part])):
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
        if stored or True in item.state["loose"]:
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
        array = event.operand
        assert array is not None
        states = item.state[array, "read"]
        if 0 in states:
            # No group that could be waited for has all MMAs that read the slots.
            self._signal(lambda: self.drained, item.state)
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
                if (array := event.operand) is None:
                    a = _descriptor(event.a, i, k)
                else:
                    a = _tensor_memory(self.base + array.column + array.width + 8 * event.places[i, k])
                assert event.array is not None
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
def _if(condition: Any) -> Iterator[None]:
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
        kind = _INTEGERS
    else:
        kind = {16: nvvm.Tcgen05MMAKind.F16, 8: nvvm.Tcgen05MMAKind.F8F6F4, 32: nvvm.Tcgen05MMAKind.TF32}[a.width]
    result = {cutlass.Float16: 0, cutlass.Float32: 1, cutlass.Int32: 2}[d]
    columns_first = [int(str(m).endswith("MN")) for m in (op.a_major_mode, op.b_major_mode)]
    n = op.shape_mnk[1]
    # the DSL's wgmma of integers is .satfinite
    saturate = int(d is cutlass.Int32)
    return kind, (
        saturate << 3 | result << 4 | codes[a] << 7 | codes[b] << 10 | columns_first[0] << 15 | columns_first[1] << 16
        | (n >> 3) << 17 | (64 >> 4) << 24
    )  # fmt: skip
