# --- one warp runs a stretch of MMAs


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
            self._rejoin()

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
