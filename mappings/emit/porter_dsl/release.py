# --- the tensor core gives stages back

_REGISTER_STORES = ("cute.memref.store", "cute.memref.store_vec")


def _computes(op: ir.Operation) -> bool:
    """Whether an operation does nothing but to give a value, or to keep one in registers."""
    if op.name in ("scf.yield", "scf.condition"):
        return True
    if op.name in _REGISTER_STORES:
        return any("rmem" in str(v.type) for v in _operands(op))
    return bool(len(op.results)) and op.name.startswith(_PURE)


class _Release:
    """A loop that only waits for stages, multiplies and gives stages back: one warp can run it, whose commits give them
    back. `arrivals` are the arrivals in it, `later` those behind it; `inits` make their mbarriers.

    Raises:
        _Left: what the loop does besides, or what nobody knows of it.
    """

    def __init__(self, program: _Program, numbers: _Numbers, warpgroups: list[int]) -> None:
        self.program, self.numbers, self.warpgroups = program, numbers, warpgroups
        self.same = _Same(program, numbers, warpgroups)
        events = [e for e in program.kernel.events if e.kind == "mma"]
        self.where = events[0].where
        loops = {_loops(e.marker)[0] if _loops(e.marker) else None for e in events}
        self.loop = loops.pop()
        if loops or self.loop is None or self.loop.name != "scf.for":
            raise _Left(self.where, "its MMAs do not stand in one loop with a known number of turns")
        if any(e.operand is not None for e in events):
            raise _Left(self.where, "its operand A is in registers")
        batches = [i for i in _items(program.blocks) if i.multiplies()]
        if any(b.op.block.owner.operation != self.loop for b in batches):
            raise _Left(self.where, "its loop has MMAs under a condition")
        self.batches = batches
        inside = list(_all_operations(self.loop))
        self.arrivals = [op for op in inside if op.name == "nvvm.mbarrier.arrive"]
        markers = {e.marker: e for e in program.kernel.events}
        for op in inside:
            known = op in markers or op in self.arrivals or len(op.regions) or _computes(op)
            if not known and not op.name.startswith("nvvm.mbarrier.try_wait.parity"):
                raise _Left(
                    _line(op, self.where), f"its loop does more than to wait for stages and to multiply ({op.name})"
                )
        for item in _items(program.blocks):
            if item.kind == "access" and self.loop in _loops(item.op) and (item.array.parts or item.array.slots):
                raise _Left(_line(item.op, self.where), "its loop uses the registers of sums")
        _Flow(program)
        if any(_stored(e, part) for e in events for part in e.parts):
            raise _Left(self.where, "an MMA adds to registers that were written")
        if not self.arrivals:
            raise _Left(self.where, "no stage is given back in its loop")
        waits = [e.pending for e in program.kernel.events if e.kind == "wait" and self.loop in _loops(e.marker)]
        self.early = bool(waits) and min(waits) > 0
        self._mbarriers()

    def _mbarriers(self) -> None:
        function = self.program.function
        bases = {_base(_operands(op)[0]) for op in self.arrivals}
        every = list(_all_operations(function))
        self.inits = [o for o in every if o.name == "nvvm.mbarrier.init" and _base(_operands(o)[0]) in bases]
        self.later = [o for o in every if o.name == "nvvm.mbarrier.arrive" and _base(_operands(o)[0]) in bases]
        self.later = [o for o in self.later if o not in self.arrivals]
        counts = {self.numbers.value(_operands(o)[1], 0) for o in self.inits}
        if len(bases) != 1 or len(counts) != 1 or None in counts:
            raise _Left(self.where, "the mbarriers that give stages back, or their count, are not known")
        for op in [*self.arrivals, *self.later]:
            threads = self._arriving(op)
            if len(_operands(op)) > 1 and self.numbers.value(_operands(op)[1], 0) != 1:
                raise _Left(_line(op, self.where), "threads that give a stage back arrive more than once")
            if len(threads) != next(iter(counts)):
                raise _Left(_line(op, self.where), "who gives stages back is not known")
            if sum(t // 32 == 4 * self.warpgroups[0] for t in threads) != 1:
                raise _Left(_line(op, self.where), "the first warp does not give each stage back by one thread")

    def _arriving(self, op: ir.Operation) -> list[int]:
        """The threads of those that multiply which come to an arrival, where nothing else keeps them from it."""
        threads = [128 * w + t for w in self.warpgroups for t in range(128)]
        for condition, wanted in self._conditions(op, self.program.function):
            if not self.same.holds(condition):
                threads = [t for t in threads if self.numbers.value(condition, t) == wanted]
        return threads

    def _conditions(self, op: ir.Operation, stop: ir.Operation) -> list[tuple[ir.Value, int]]:
        found = []
        while op != stop:
            parent = op.block.owner.operation
            if parent.name == "scf.if":
                found.append((_operands(parent)[0], int(parent.regions[0].blocks[0] == op.block)))
            op = parent
        return found[::-1]

    def same_conditions(self, op: ir.Operation) -> list[tuple[ir.Value, int]]:
        """The conditions in the loop around an arrival that do not choose among threads."""
        return [c for c in self._conditions(op, self.loop) if self.same.holds(c[0])]


def _base(pointer: ir.Value) -> ir.Value:
    """What a pointer to an mbarrier is counted from."""
    op = _owner(pointer)
    while op is not None and op.name == "builtin.unrealized_conversion_cast":
        pointer = _operands(op)[0]
        op = _owner(pointer)
    return _operands(op)[0] if op is not None and op.name == "cute.add_offset" else pointer


def _again(value: ir.Value, loop: ir.Operation, known: dict[ir.Value, ir.Value]) -> ir.Value:
    """A value of a loop's turn, computed once more at the insertion point."""
    op = _owner(value)
    if value in known or op is None or loop not in _loops(op):
        return known.get(value, value)
    if len(op.regions) or not op.name.startswith(_PURE):
        raise _Left(("", 0), f"what {op.name} gives is not known ahead of the MMAs")
    for operand in _operands(op):
        _again(operand, loop, known)
    copy = op.clone(ir.InsertionPoint.current)
    for i, operand in enumerate(_operands(op)):
        copy.operands[i] = known.get(operand, operand)
    for old, new in zip(op.results, copy.results, strict=True):
        known[_raw(old)] = _raw(new)
    return known[value]


class _Alone:
    """Emits the loop of a `_Release` for one warp. Part of an emitter that issues for all that multiply."""

    release: _Release

    def _prologue(self) -> None:
        super()._prologue()
        self.sent = _variable()

    def _event(self, item: _Item) -> None:
        if self.release.loop not in item.loops:
            super()._event(item)
        elif item.event.kind == "mma":
            self._multiply_alone(item)

    def _multiply_alone(self, item: _Item) -> None:
        """One warp waits for stages and multiplies. What it gives back is what MMAs before these read, or these."""
        if self.release.early and item is self.release.batches[0]:
            self._give_back()
        for event in item.batch:
            event.enabled = [self._enable(event, start) for start, _ in event.tiles]
        with cute.arch.elect_one():
            for event in item.batch:
                self._issue(event)
        if self.issued is not None:
            self.issued[0] = 1
        self.sent[0] = 1
        for event in item.batch:
            for part in event.parts:
                part.note(1, 1)
                if part.group is not None:
                    part.group[0] = self.committed[0]
        if not self.release.early and item is self.release.batches[-1]:
            self._give_back()

    def _give_back(self) -> None:
        """Commits in place of arrivals."""
        for op in self.release.arrivals:
            known: dict[ir.Value, ir.Value] = {}
            loop = self.release.loop
            allowed = cutlass.Boolean(True).ir_value()
            for condition, wanted in self.release.same_conditions(op):
                value = _again(condition, loop, known)
                refused = cutlass.Boolean(not wanted).ir_value()
                allowed = arith.andi(allowed, arith.xori(value, refused))
            pointer = _again(_operands(op)[0], loop, known)
            choice = scf.IfOp(allowed)
            with ir.InsertionPoint(choice.then_block):
                with cute.arch.elect_one():
                    self._commit_to(pointer)
                scf.YieldOp([])

    def _commit_to(self, pointer: ir.Value) -> None:
        """An mbarrier has one arrival more once the MMAs so far are over."""
        nvvm.tcgen05_commit(pointer)

    def run(self) -> None:
        first = self.kernel.events[0].marker
        with ir.InsertionPoint.at_block_begin(self.program.function.regions[0].blocks[0]), first.location:
            one = _raw(cutlass.Int32(1).ir_value())
        for op in self.release.inits:
            op.operands[1] = one
        super().run()
        self._split()

    def _split(self) -> None:
        """The loop for the first warp; what it computes for all others."""
        release, loop = self.release, self.release.loop
        for op in release.arrivals:
            op.erase()
        for op in release.later:
            with ir.InsertionPoint(op), op.location, _if(self.warp == 0):
                op.clone(ir.InsertionPoint.current)
            op.erase()
        with ir.InsertionPoint(loop), loop.location:
            self._meet()
            choice = scf.IfOp(cutlass.Boolean(self.warp == 0).ir_value(), [r.type for r in loop.results], has_else=True)
        for old, new in zip(loop.results, choice.results, strict=True):
            old.replace_all_uses_with(new)
        with ir.InsertionPoint(choice.else_block), loop.location:
            copy = loop.clone(ir.InsertionPoint.current)
            scf.YieldOp(list(copy.results))
        with ir.InsertionPoint(choice.then_block), loop.location:
            last = scf.YieldOp(list(loop.results))
        loop.move_before(last.operation)
        _strip(copy)
        with ir.InsertionPoint.after(choice.operation), loop.location:
            number = self.committed[0]
            with _if(self.warp == 0), cute.arch.elect_one():
                with _if(self.sent[0] != 0):
                    _here(tcgen05.commit, self.done + number % RING)
                with _if(self.sent[0] == 0):
                    _here(cute.arch.mbarrier_arrive, self.done + number % RING)
            self.committed[0] = number + 1
            self._wait_for(number)


def _strip(op: ir.Operation) -> None:
    """Leave of an operation what it computes."""
    for block in _blocks(op):
        for view in reversed(list(block.operations)):
            inner = view.operation
            _strip(inner)
            if len(inner.regions):
                keeps = len(inner.results) or any(len(b.operations) > 1 for b in _blocks(inner))
            else:
                keeps = _computes(inner) or any(len(list(r.uses)) for r in inner.results)
            if not keeps:
                inner.erase()


class _JoinedAlone(_Alone, _Joined):
    """Two warpgroups, for which one warp multiplies."""


class _StackedAlone(_Alone, _Stacked):
    """Two tiles of a warpgroup, one warp of which multiplies."""


def _release_of(kind: type[_Wide], program: _Program, warpgroups: list[int]) -> _Release:
    """The loop of MMAs that one warp can run.

    Raises:
        _Left: there is none.
    """
    if len(warpgroups) != (2 if kind is _Joined else 1):
        raise _Left(program.kernel.events[0].where, "several warpgroups multiply, each for itself")
    return _Release(program, _Numbers(program.function), warpgroups)


def _released(kind: type[_Wide], release: _Release, program: _Program, *more: Any) -> _Wide:
    """The emitter of a kind, in which one of the warps that multiply does so for all."""
    emitter = {_Joined: _JoinedAlone, _Stacked: _StackedAlone}[kind](program, *more)
    emitter.release = release
    return emitter
