# --- two tiles of one warpgroup, one MMA of 128 rows

_REGISTERS = 16
"""Registers of a tile that a thread hands on at a time, at most."""


class _Stacking:
    """Two tiles of a warpgroup that one MMA can make. `registers`: how many of a tile are handed on at a time.

    Raises:
        _Left: what they lack, or what nobody knows of them.
    """

    def __init__(self, program: _Program, flow: _Flow) -> None:
        self.program, self.kernel = program, program.kernel
        self.numbers = _Numbers(program.function)
        self.events = [e for e in self.kernel.events if e.kind == "mma"]
        for event in self.events:
            self._operands(event)
        for array in {e.array: None for e in self.events}:
            self._tiles([e for e in self.events if e.array is array])
        reach = frozenset().union(*(self.numbers.reach(e.marker, program.function) for e in self.events))
        self.warpgroups = sorted(reach)
        same = [_Same(program, self.numbers, [w]) for w in self.warpgroups]
        for item in _items(program.blocks):
            if item.kind == "access" and item.before is not None:
                self._access(item, same)
        self.registers = self._room(len(reach))

    def _operands(self, event: _Event) -> None:
        n, where = event.mma.op.shape_mnk[1], event.where
        places = [place for _, place in event.tiles]
        if not all((m ^ 1, j) in places for m, j in places):
            raise _Left(where, "a warpgroup has a tile of 64 rows without another one below it")
        if n % 16:
            raise _Left(where, f"N is {n}, and an M=128 MMA takes multiples of 16")
        if event.operand is not None:
            raise _Left(where, "two tiles of a warpgroup whose operand A is in registers")
        wanted, layout = _rows_apart(event), _layout(_raw(event.a))
        if wanted is None or layout is None:
            raise _Left(where, UNKNOWN_ROWS)
        shape, stride = layout
        rows = [_index(m, shape[1], stride[1]) for m in range(1 + max(m for m, _ in places))]
        found = {16 * (b - a) for a, b in zip(rows[::2], rows[1::2], strict=True)}
        if found != {wanted}:
            far = ", ".join(map(str, sorted(found)))
            text = f"the second tile of operand A lies {far} bytes behind the first, not {wanted}, as row 64 would"
            raise _Left(where, text)

    def _tiles(self, events: list[_Event]) -> None:
        if any((e.tiles, e.n) != (events[0].tiles, events[0].n) for e in events):
            raise _Left(events[-1].where, "MMAs that write different parts of an accumulator")
        for event in events:
            if any(_stored(event, part) for part in event.parts):
                raise _Left(event.where, "an MMA of two tiles adds to registers that were written")

    def _access(self, item: _Item, same: list[_Same]) -> None:
        """Registers are handed from warp to warp where something reads them."""
        if not any(_in_memory(item.before[p]) for p in item.array.parts) or item.full:
            return
        events = [e for e in self.events if e.array is item.array]
        where = _line(item.op, events[0].where)
        states = [item.before[p] for p in item.array.parts]
        if any(s != states[0] for s in states):
            raise _Left(where, "tiles of an accumulator that are read at different times")
        around = _loops(item.op)
        makers = [_loops(e.marker) for e in events]
        deepest = [loops for loops in makers if len(loops) == max(map(len, makers))]
        if any(loops and set(loops) <= set(around) for loops in deepest):
            raise _Left(where, "the sums of two tiles are read in the loop that makes them")
        for one in same:
            one.together(item.op, where)

    def _room(self, warpgroups: int) -> int:
        """Shared memory that is left decides how many registers are handed on at a time."""
        used = _own_shared(self.program.function)
        barriers = 16 + 8 * warpgroups * (RING + 2)
        registers = _REGISTERS
        while used + barriers + warpgroups * 1024 * registers + 2048 > MAX_SHARED:
            registers //= 2
            if registers < 4 * 2:
                raise _Left(self.events[0].where, "no shared memory is left to hand sums from warp to warp")
        return registers


def _own_shared(function: ir.Operation) -> int:
    """Bytes of shared memory that a kernel allocates, and what their alignment may take."""
    used = 0
    for op in _all_operations(function):
        for result in map(_raw, op.results) if "alloc" in op.name else ():
            kind = re.match(r"!cute\.memref<\"?[A-Za-z]+(\d+)[^,]*,\s*smem\b", str(result.type))
            layout = _layout(result)
            if kind is not None and layout is not None:
                used += _size(layout[0]) * int(kind[1]) // 8 + 128
    return used


def _items(blocks: list[list[_Item]]) -> Iterator[_Item]:
    for items in blocks:
        for item in items:
            yield item
            if item.kind == "region":
                yield from _items(item.blocks)


def _around(op: ir.Operation, function: ir.Operation) -> list[ir.Operation]:
    """The operations whose regions an operation stands in, the innermost first."""
    found = []
    while (op := op.block.owner.operation) != function:
        found.append(op)
    return found


def _loops(op: ir.Operation) -> list[ir.Operation]:
    """The loops around an operation."""
    found = []
    while (op := op.block.owner.operation).parent is not None and op.name != "cuda.kernel":
        found += [op] if op.name in _LOOPS else []
    return found


class _Stacked(_Wide):
    """An MMA makes two tiles of a warpgroup. Their rows lie in other lanes than before: half h of the lanes of warp w
    has what warp 2 (w % 2) + h of the warpgroup takes for its part of tile w / 2. It goes there through shared memory,
    in the order of the fragment, lane for lane."""

    def __init__(self, program: _Program, flow: _Flow, registers: int) -> None:
        self.registers = registers
        super().__init__(program, flow)

    def _pairs(self, array: _Array) -> list[tuple[_Part, _Part]]:
        """The parts of both tiles of each MMA."""
        event = next(e for e in self.kernel.events if e.array is array)
        parts = {place: next(p for p in array.parts if p.start == start) for start, place in event.tiles}
        return [(part, parts[m + 1, n]) for (m, n), part in parts.items() if m % 2 == 0]

    def _column(self, part: _Part) -> int:
        """The first column of both tiles, behind those of the array."""
        pairs = self._pairs(part.array)
        index = next(i for i, pair in enumerate(pairs) if part in pair)
        return sum(one.stop - one.start for one, _ in pairs[:index])

    def _issued(self, event: _Event) -> Iterator[tuple[int, tuple[int, int], Any]]:
        for start, place, enable in super()._issued(event):
            if place[0] % 2 == 0:
                yield self._column(next(p for p in event.parts if p.start == start)), place, enable

    def _place(self) -> None:
        """As of 64 rows, but for tiles that share columns, and warpgroups that do not."""
        for i, array in enumerate(self.arrays):
            array.column = 0
            beside = [o for o in self.arrays[:i] if o.first <= array.last and array.first <= o.last]
            beside = [o for o in beside if o.warpgroups & array.warpgroups]
            for other in sorted(beside, key=lambda o: o.column):
                if other.column < array.column + array.width // 2 and array.column < other.column + other.width // 2:
                    array.column = other.column + other.width // 2
        self.places, used = {}, 0
        for w in self.warpgroups:
            self.places[w] = used
            used += max([a.column + a.width // 2 for a in self.arrays if w in a.warpgroups], default=0)
        self.columns = max(32, 1 << (used - 1).bit_length())
        if self.columns > COLUMNS:
            self.kernel.refuse(self.arrays[0].where, f"{used} columns of Tensor Memory; there are {COLUMNS}")

    def _prologue(self) -> None:
        super()._prologue()
        count = len(self.warpgroups)
        words = 256 * self.registers
        number = cute.arch.make_warp_uniform(cute.arch.warp_idx()) // 4
        rank = _chosen(number, {w: i for i, w in enumerate(self.warpgroups)}) if count > 1 else 0
        space = cute.arch.alloc_smem(cutlass.Int32, words * count, 128)
        self.exchange = space.toint() + rank * (4 * words) + cute.arch.lane_idx() * 16

    def _load(self, parts: list[_Part], item: _Item) -> None:
        chosen = [p for p in self._pairs(item.array) if p[0] in parts]
        for pair in chosen:
            if any(s != DONE for s in _in_memory(item.before[pair[0]])):
                self._wait_for_last(pair[0].group[0])
        for pair in chosen:
            self._hand_on(*pair)
            for part in pair:
                part.note(0, 1)

    def _hand_on(self, one: _Part, other: _Part) -> None:
        """Both tiles of an MMA, some registers of each at a time."""
        half = one.bits == 16
        shape = nvvm.Tcgen05LdStShape.SHAPE_16X128B if half else nvvm.Tcgen05LdStShape.SHAPE_16X256B
        per, width = 2 if half else 4, one.stop - one.start
        address = self.quarter + one.array.column + self._column(one)
        at = 0
        while at < width:
            blocks = min(self.registers // per, 1 << ((width - at) // 8).bit_length() - 1)
            count, found = blocks * per, []
            for lanes in (0, 16 << 16):
                kind = ir.VectorType.get([count], T.i32())
                where = _tensor_memory(address + lanes + at)
                found.append(nvvm.tcgen05_ld(kind, shape, where, **({"pack": True} if half else {})))
            _here(cute.arch.fence_view_async_tmem_load)
            for h, got in enumerate(found):
                words = _variables(count)
                words.store(cute.TensorSSA(got, (count,), cutlass.Int32))
                for i in range(0, count, 4):
                    four = cute.make_tensor(words.iterator + i, cute.make_layout(4)).load().ir_value()
                    llvm.store(four, self._place_of(self.warp, h, i), alignment=16)
            self._meet()
            for m, part in enumerate((one, other)):
                words = part.array.words + (part.start + at) // 8 * per
                for i in range(0, count, 4):
                    source = self._place_of(2 * m + self.warp // 2, self.warp % 2, i)
                    four = llvm.load(ir.VectorType.get([4], T.i32()), source, alignment=16)
                    to = cute.make_tensor(words + i, cute.make_layout(4))
                    to.store(cute.TensorSSA(four, (4,), cutlass.Int32))
            self._meet()
            at += blocks * 8

    def _place_of(self, warp: Any, h: Any, i: int) -> ir.Value:
        """Where registers `i` to `i + 3` of half `h` of a warp's lanes are handed on."""
        number = (warp * 2 + h) * (self.registers // 4) + i // 4
        return llvm.inttoptr(ir.Type.parse("!llvm.ptr<3>"), cutlass.Int32(self.exchange + number * 512).ir_value())


def _variables(count: int) -> Any:
    return cute.make_rmem_tensor(count, cutlass.Int32)
