# --- two warpgroups, one MMA of 128 rows


TURNS = "its consumers may wait for each other at a named barrier"


class _Joining:
    """What two warpgroups have to have in common so that one MMA makes the tiles of both.

    Raises:
        _Left: what they lack, or what nobody knows of them.
    """

    def __init__(self, program: _Program) -> None:
        self.program, self.kernel = program, program.kernel
        self.events = self.kernel.events[1:-1]
        self.where = next(e.where for e in self.events if e.kind == "mma")
        self.numbers = _Numbers(program.function)
        reach = frozenset().union(*(self.numbers.reach(e.marker, program.function) for e in self.events))
        self.first = min(reach)
        if not self.numbers.block or self.numbers.block[1:] != [1, 1]:
            raise _Left(self.where, "its blocks have more than one dimension, or a size that is not known")
        if sorted(reach) != [self.first, self.first + 1]:
            who = f"warpgroup{'s' * (len(reach) > 1)} {', '.join(map(str, sorted(reach)))}"
            raise _Left(self.where, f"{who} may run its MMAs, not two that follow each other", len(reach) == 1)
        self.same = _Same(program, self.numbers, [self.first, self.first + 1])
        for op in _all_operations(program.function):
            self._operation(op)
        for event in self.events:
            self.same.together(event.marker, event.where)
            if event.kind == "mma":
                self._operands(event)
        self.turns = _turns_at_mbarriers(program, self.same)

    def _operation(self, op: ir.Operation) -> None:
        """Operations that other threads than before come to."""
        name = op.name
        where = _line(op, self.where)
        if name == "llvm.inline_asm" and re.search(r"%(n?tid|n?warpid|envreg)\b", str(op.attributes["asm_string"])):
            raise _Left(where, "inline PTX reads the number of a thread or warp")
        if name.startswith(("nvvm.read.ptx.sreg.warpid", "gpu.thread_id", "func.call", "llvm.call")):
            raise _Left(where, f"{name} may give the number of a thread or warp")
        if name == "nvvm.setmaxregister":
            self.same.together(op, where)
        if name.startswith("nvvm.barrier") and len(_operands(op)) > 1:
            self._barrier(op, where)

    def _barrier(self, op: ir.Operation, where: tuple[str, int]) -> None:
        """Consumers that wait for each other at a named barrier would wait for good. One warpgroup of them may meet."""
        number, count = _operands(op)[:2]
        both = {self.first, self.first + 1}
        if self.numbers.value(count, 0) == 128 or not both & self.numbers.reach(op, self.program.function):
            return
        try:
            self.same.together(op, where)
        except _Left:
            raise _Left(where, TURNS) from None
        if not self.same.holds(number):
            raise _Left(where, TURNS)

    def _operands(self, event: _Event) -> None:
        n, where = event.mma.op.shape_mnk[1], event.where
        if n % 16:
            raise _Left(where, f"N is {n}, and an M=128 MMA takes multiples of 16")
        if not self.same.holds(event.accumulate):
            raise _Left(where, "whether an MMA adds to its accumulator may differ between the consumers")
        if _apart(self.same, _raw(event.b)) != 0:
            raise _Left(where, "operand B may be another one in the other consumer")
        if event.operand is None:
            found, wanted = _apart(self.same, _raw(event.a)), _rows_apart(event)
            if wanted is None:
                raise _Left(where, UNKNOWN_ROWS)
            if found is None:
                raise _Left(where, "where operand A of the second consumer lies is not known")
            if found != wanted:
                text = f"operand A of the second consumer lies {found} bytes behind that of the first, not {wanted}"
                raise _Left(where, f"{text}, as row 64 would")


def _all_operations(op: ir.Operation) -> Iterator[ir.Operation]:
    for block in _blocks(op):
        for view in block.operations:
            yield view.operation
            yield from _all_operations(view.operation)


class _JoinedFlow(_Flow):
    """Both warpgroups meet ahead of all MMAs."""

    def _mma(self, item: _Item, state: _State) -> None:
        state["loose"] = frozenset([True])
        item.before = _State(item.before, loose=frozenset([True]))
        super()._mma(item, state)

    def _access(self, item: _Item, state: _State) -> None:
        super()._access(item, state)
        if _pieces_of(item):
            state.update({part: frozenset([DONE]) for part in item.array.parts})
        if _at_once(item):
            state[item.array, "stale"] = frozenset()


class _Joined(_Wide):
    """One warp issues for two warpgroups, which meet ahead of all MMAs. Warp w of warpgroup h takes the part of warp
    2w + h of the eight: a warp reaches only its own quarter of the lanes, and there lie the rows of that one."""

    def __init__(self, program: _Program) -> None:
        super().__init__(program, _JoinedFlow(program))

    def run(self) -> None:
        block = self.program.function.regions[0].blocks[0]
        places = [op for op in _all_operations(self.program.function) if op.name == "nvvm.read.ptx.sreg.tid.x"]
        with ir.InsertionPoint.at_block_begin(block), self.kernel.events[0].marker.location:
            thread = cute.arch.thread_idx()[0]
            place = thread - 128 * self.warpgroups[0]
            other = (place & 31) | ((place & 96) << 1) | ((place & 128) >> 2)
            inside = (place >= 0) & (place < 256)
            number = arith.select(cutlass.Boolean(inside).ir_value(), (thread - place + other).ir_value(),
                                  thread.ir_value())  # fmt: skip
        for op in places:
            op.results[0].replace_all_uses_with(number)
        super().run()

    def _access(self, item: _Item) -> None:
        if _pieces_of(item):
            _in_pieces(self, item)
            return
        super()._access(item)
        if _at_once(item):
            _to_slots(self, item)

    def _place(self) -> None:
        super()._place()
        first, second = self.warpgroups
        self.places = {first: 0, second: 16 << 16}

    def _prologue(self) -> None:
        each = RING + 1 + ((self, "drain_phase") in self.needed)
        self.holder, barriers = self._shared_memory(each)
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        with _if(warp == 0):
            self._allocate()
            with cute.arch.elect_one():
                for i in range(each):
                    _here(cute.arch.mbarrier_init, barriers + i, 1 if i else 256)
                _here(cute.arch.mbarrier_init_fence)
        self._all()
        nvvm.tcgen05_fence(AFTER)
        self.base = cute.make_tensor(self.holder, cute.make_layout(1))[0]
        self.warp = warp - 4 * self.warpgroups[0]
        lanes = _chosen(warp // 4, self.places)
        self.quarter = self.base + lanes + (warp % 4 << 21)
        self.met, self.done, self.drained = barriers, barriers + 1, barriers + 1 + RING
        self.phase, self.committed = _variable(), _variable()
        for thing, name in self.needed:
            setattr(thing, name, _variable())
