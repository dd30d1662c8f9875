# --- the tensor core gives stages back

_WAITS = "nvvm.mbarrier.try_wait.parity"
_REGISTER_STORES = ("cute.memref.store", "cute.memref.store_vec")


def _computes(op: ir.Operation) -> bool:
    """Whether an operation does nothing but to give a value, or to keep one in registers."""
    if op.name in ("scf.yield", "scf.condition"):
        return True
    if op.name in _REGISTER_STORES:
        return any("rmem" in str(v.type) for v in _operands(op))
    return bool(len(op.results)) and op.name.startswith(_PURE)


@dataclasses.dataclass(eq=False)
class _Turn:
    """What follows each other in a stretch without a loop around it, or in a turn of `loop`: batches of MMAs, some of
    them in loops of that turn (`nested`), and arrivals, in place of which one commit ahead of the batches (`early`) or
    behind them gives stages back."""

    loop: ir.Operation | None
    batches: list[_Item] = dataclasses.field(default_factory=list)
    arrivals: list[ir.Operation] = dataclasses.field(default_factory=list)
    early: bool = False
    nested: bool = False

    def only_behind(self, other: _Turn) -> bool:
        """Whether another one has been gone through whenever this one is."""
        if other.loop is None or (_turns_of(other.loop) or 0) > 0:
            return True
        return self.loop is not None and _begins_where(other.loop, self.loop)


class _Release:
    """Loops that only wait for stages, multiply and give stages back, and statements between them that do the same: one
    warp can run this `stretch`, whose commits give stages back. `arrivals` are the arrivals in it, `later` those behind
    it; `inits` make their mbarriers.

    Raises:
        _Left: what the stretch does besides, or what nobody knows of it.
    """

    def __init__(self, program: _Program, numbers: _Numbers, warpgroups: list[int]) -> None:
        self.program, self.numbers, self.warpgroups = program, numbers, warpgroups
        self.same = _Same(program, numbers, warpgroups)
        events = [e for e in program.kernel.events if e.kind == "mma"]
        self.where = events[0].where
        self.stretch = _stretch_of(events, self.where)
        if any(e.operand is not None for e in events):
            raise _Left(self.where, "its operand A is in registers")
        batches = [i for i in _items(program.blocks) if i.multiplies()]
        self.markers = {e.marker for e in program.kernel.events}
        self._widen()
        if any(p.name != "scf.for" for b in batches for p in _around_to(b.op, self.stretch.top(b.op))):
            raise _Left(self.where, "its loop has MMAs under a condition")
        inside = list(self.stretch.all())
        self.arrivals = [op for op in inside if op.name == "nvvm.mbarrier.arrive"]
        for op in inside:
            if not self._is_known(op):
                raise _Left(
                    _line(op, self.where), f"its loop does more than to wait for stages and to multiply ({op.name})"
                )
        for item in _items(program.blocks):
            if item.kind == "access" and self._is_of_sums(item) and self.stretch.holds(item.op):
                raise _Left(_line(item.op, self.where), "its loop uses the registers of sums")
        _Flow(program)
        if any(_stored(e, part) for e in events for part in e.parts):
            raise _Left(self.where, "an MMA adds to registers that were written")
        if not self.arrivals:
            raise _Left(self.where, "no stage is given back in its loop")
        self._turns(batches)
        self._mbarriers()

    def _is_known(self, op: ir.Operation) -> bool:
        known = op in self.markers or op.name == "nvvm.mbarrier.arrive" or len(op.regions) or _computes(op)
        return bool(known) or op.name.startswith(_WAITS)

    def _is_of_sums(self, item: _Item) -> bool:
        return bool(item.array.parts or item.array.slots)

    def _widen(self) -> None:
        """Statements that multiply wait for stages ahead of their MMAs, and commit them behind these. A loop of them
        may do nothing else."""
        sums = {i.op for i in _items(self.program.blocks) if i.kind == "access" and self._is_of_sums(i)}
        commits = {e.marker for e in self.program.kernel.events if e.kind == "commit"}
        while (outer := self.stretch.block.owner.operation).name == "scf.for":
            looped = [o for op in self.stretch.ops if op.name == "scf.for" for o in _all_operations(op)]
            if any(o.name == "nvvm.mbarrier.arrive" for o in looped):
                break
            if not all(self._is_known(o) and o not in sums for o in _all_operations(outer)):
                break
            self.stretch = _Stretch(outer, outer)
        stretch = self.stretch
        operations = [view.operation for view in stretch.block.operations]
        first, last = operations.index(stretch.first), operations.index(stretch.last)
        stages = _waited_at(list(stretch.all()))
        for op in operations[:first][::-1] if stretch.first.name != "scf.for" else ():
            found = _waited_at([op, *_all_operations(op)])
            # Those for something else stay those of all threads.
            if not self._goes_along(op, sums) or (stages and not found <= stages):
                break
            stages |= found
            if any(o.name.startswith(_WAITS) and not len(o.results) for o in (op, *_all_operations(op))):
                stretch.widen(op, stretch.last)
        for op in operations[last + 1 : -1] if stretch.last.name != "scf.for" else ():
            if not self._goes_along(op, sums):
                break
            if op in commits:
                stretch.widen(stretch.first, op)

    def _goes_along(self, op: ir.Operation, sums: set[ir.Operation]) -> bool:
        """Whether a statement beside MMAs may belong to them."""
        every = [op, *_all_operations(op)]
        apart = any(o.name == "nvvm.mbarrier.arrive" or o.name in _LOOPS for o in every)
        return op not in sums and not apart and all(map(self._is_known, every))

    def _turns(self, batches: list[_Item]) -> None:
        """Who multiplies with whom. `in_place` are arrivals where no MMAs stand in the same loop."""
        events = self.program.kernel.events
        self.turns: list[_Turn] = []
        self.in_place: list[ir.Operation] = []
        for batch in batches:
            top = self.stretch.top(batch.op)
            loop = None if top == batch.op else top
            last = self.turns[-1].loop if self.turns else None
            if loop is None or last is None or last != loop:
                self.turns.append(_Turn(loop))
            self.turns[-1].batches.append(batch)
        for turn in self.turns:
            inner = [e for e in events if turn.loop is not None and turn.loop in _loops(e.marker)]
            groups = sum(e.kind == "commit" for e in inner)
            waits = [e.pending for e in inner if e.kind == "wait"]
            counted = all(_loops(e.marker)[0] == turn.loop for e in inner if e.kind in ("commit", "wait"))
            # Groups of this turn may be among those that a wait leaves in flight.
            turn.early = counted and bool(waits) and min(waits) >= max(1, groups)
            turn.nested = any(b.op != self.stretch.top(b.op) and _loops(b.op)[0] != turn.loop for b in turn.batches)
        for op in self.arrivals:
            top = self.stretch.top(op)
            turn = next((t for t in self.turns if t.loop is not None and t.loop == top), None)
            if turn is not None:
                turn.arrivals.append(op)
            else:
                self.in_place.append(op)
            loops = [p for p in _loops(op) if self.stretch.holds(p)]
            if any(p != top or p.name != "scf.for" for p in loops):
                raise _Left(_line(op, self.where), "a loop in a turn of its loop gives stages back")
            values = [_operands(op)[0], *(c for c, _ in self.same_conditions(op))]
            if not all(_is_known_ahead(v, top) for v in values):
                raise _Left(_line(op, self.where), "which stage is given back is not known where its MMAs are")

    def turn_of(self, item: _Item) -> _Turn:
        return next(t for t in self.turns if item in t.batches)

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
        """The conditions in the stretch around an arrival that do not choose among threads."""
        return [c for c in self._conditions(op, self.stretch.top(op)) if self.same.holds(c[0])]


def _waited_at(operations: list[ir.Operation]) -> set[ir.Value]:
    """What the mbarriers that operations wait at are counted from."""
    return {_base(_operands(op)[0]) for op in operations if op.name.startswith(_WAITS)}


def _base(pointer: ir.Value) -> ir.Value:
    """What a pointer to an mbarrier is counted from."""
    op = _owner(pointer)
    while op is not None and op.name == "builtin.unrealized_conversion_cast":
        pointer = _operands(op)[0]
        op = _owner(pointer)
    return _operands(op)[0] if op is not None and op.name == "cute.add_offset" else pointer


def _again(value: ir.Value, top: ir.Operation, known: dict[ir.Value, ir.Value]) -> ir.Value:
    """A value of a loop's turn, or of another operation's regions, computed once more at the insertion point."""
    op = _owner(value)
    if value in known or op is None or top not in _places(op)[1:]:
        return known.get(value, value)
    for operand in _made_of(op):
        _again(operand, top, known)
    copy = op.clone(ir.InsertionPoint.current)
    for one, other in zip([op, *_all_operations(op)], [copy, *_all_operations(copy)], strict=True):
        for i, operand in enumerate(_operands(one)):
            if operand in known:
                other.operands[i] = known[operand]
    for old, new in zip(op.results, copy.results, strict=True):
        known[_raw(old)] = _raw(new)
    return known[value]


def _made_of(op: ir.Operation) -> list[ir.Value]:
    """What an operation and those in its regions read of others."""
    inside = [v for o in _all_operations(op) for v in _operands(o)]
    owners = [(v, _owner(v)) for v in inside]
    return [*_operands(op), *(v for v, owner in owners if owner is None or op not in _places(owner)[1:])]


def _is_known_ahead(value: ir.Value, top: ir.Operation) -> bool:
    """Whether a value of a loop's turn, or of another operation's regions, can be computed elsewhere in it."""
    op = _owner(value)
    place = value.owner.owner.operation if op is None else op
    if top not in _places(place)[op is not None :]:
        return True
    if op is None:
        return place == top
    inside = [o for o in _all_operations(op) if o.name != "scf.yield"]
    if len(op.regions):
        pure = op.name == "scf.if" and all(_is_pure_value(o) and not len(o.regions) for o in inside)
    else:
        pure = op.name.startswith(_PURE)
    return pure and all(_is_known_ahead(v, top) for v in _made_of(op))


def _is_pure_value(op: ir.Operation) -> bool:
    return op.name.startswith(_PURE) and len(op.results) > 0 and op.name not in _LOADS


class _Alone:
    """Emits the stretch of a `_Release` for one warp. Part of an emitter that issues for all that multiply."""

    release: _Release

    def _prologue(self) -> None:
        super()._prologue()
        self.sent = _variable()

    def _event(self, item: _Item) -> None:
        if not self.release.stretch.holds(item.op):
            super()._event(item)
        elif item.event.kind == "mma":
            self._multiply_alone(item)

    def _multiply_alone(self, item: _Item) -> None:
        """One warp waits for stages and multiplies. What it gives back is what MMAs before these read, or these."""
        turn = self.release.turn_of(item)
        if turn.early and not turn.nested and item is turn.batches[0]:
            self._give_back(turn.arrivals)
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
        if not turn.early and not turn.nested and item is turn.batches[-1]:
            self._give_back(turn.arrivals)

    def _give_back(self, arrivals: list[ir.Operation]) -> None:
        """Commits in place of arrivals."""
        for op in arrivals:
            known: dict[ir.Value, ir.Value] = {}
            top = self.release.stretch.top(op)
            allowed = cutlass.Boolean(True).ir_value()
            for condition, wanted in self.release.same_conditions(op):
                value = _again(condition, top, known)
                refused = cutlass.Boolean(not wanted).ir_value()
                allowed = arith.andi(allowed, arith.xori(value, refused))
            pointer = _again(_operands(op)[0], top, known)
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
        stretch = self.release.stretch
        if stretch.first.name != "scf.for":
            # What is put ahead of its first statement is a part of it.
            with ir.InsertionPoint(stretch.first), stretch.first.location:
                zero = arith.ConstantOp(T.i32(), ir.IntegerAttr.get(T.i32(), 0)).operation
            stretch.widen(zero, stretch.last)
        super().run()
        stretch.settle()
        for turn in (t for t in self.release.turns if t.nested):
            batch = turn.batches[0 if turn.early else -1].op
            place = _around_to(batch, turn.loop)[-2]
            with ir.InsertionPoint(place) if turn.early else ir.InsertionPoint.after(place), place.location:
                self._give_back(turn.arrivals)
        for op in self.release.in_place:
            place = next(p for p in _places(op) if p.block == stretch.block or p.block.owner.operation.name in _LOOPS)
            with ir.InsertionPoint(place), op.location:
                self._give_back([op])
        for op in self.release.arrivals:
            op.erase()
        stretch.settle()
        self._split()

    def _split(self) -> None:
        """The stretch for the first warp; what it computes for all others."""
        release, stretch = self.release, self.release.stretch
        for op in release.later:
            with ir.InsertionPoint(op), op.location, _if(self.warp == 0):
                op.clone(ir.InsertionPoint.current)
            op.erase()
        where = stretch.last.location
        with _scratch():
            aside = ir.InsertionPoint.current
            self._hoist()
            handed = stretch.handed()
            with ir.InsertionPoint(stretch.first), where:
                self._meet()
                choice = scf.IfOp(cutlass.Boolean(self.warp == 0).ir_value(), [v.type for v in handed], has_else=True)
            for old, result in zip(handed, map(_raw, choice.results), strict=True):
                for use in stretch.outside(old):
                    use.owner.operation.operands[use.operand_number] = result
            known: dict[ir.Value, ir.Value] = {}
            with ir.InsertionPoint(choice.else_block), where:
                copies = _clones(stretch.ops, known, aside)
                scf.YieldOp([known[v] for v in handed])
            with ir.InsertionPoint(choice.then_block), where:
                last = scf.YieldOp(handed)
            for op in stretch.ops:
                op.move_before(last.operation)
        _strip_all(copies)
        with ir.InsertionPoint.after(choice.operation), where:
            number = self.committed[0]
            with _if(self.warp == 0), cute.arch.elect_one():
                with _if(self.sent[0] != 0):
                    _here(tcgen05.commit, self.done + number % RING)
                with _if(self.sent[0] == 0):
                    _here(cute.arch.mbarrier_arrive, self.done + number % RING)
            self.committed[0] = number + 1
            self._wait_for(number)

    def _hoist(self) -> None:
        """Views that the stretch makes of what there is ahead of it are for all."""
        stretch = self.release.stretch
        for op in stretch.ops[:]:
            pure = op.name.startswith(("arith.", "cute.")) and len(op.results) and not len(op.regions)
            touches = op.name in _LOADS or "copy" in op.name
            if op == stretch.first or op in self.release.markers or not pure or touches:
                continue
            if not any(stretch.makes(v) for v in _operands(op)):
                op.move_before(stretch.first)
                stretch.settle()


def _strip(op: ir.Operation) -> None:
    """Leave of an operation what it computes."""
    for block in _blocks(op):
        operations = [view.operation for view in block.operations]
        for inner in operations:
            _strip(inner)
        _leave(operations)


def _strip_all(operations: list[ir.Operation]) -> None:
    """Leave of the operations of a stretch what they compute."""
    for op in operations:
        _strip(op)
    _leave([op for op in operations if op.name != "scf.for"])


def _leave(operations: list[ir.Operation]) -> None:
    """Leave of operations that have been stripped those that compute."""
    for op in reversed(operations):
        if len(op.regions):
            keeps = len(op.results) or any(len(b.operations) > 1 for b in _blocks(op))
        else:
            keeps = _computes(op) or any(len(list(r.uses)) for r in op.results)
        if not keeps:
            op.erase()


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
