# --- a warp of its own multiplies

_HARMLESS = ("cute_nvgpu.prefetch_tma_desc", "nvvm.prefetch")
_MEETING = re.compile(r"nvvm\.(barrier|mbarrier\.(try_wait|test_wait|wait)|cluster\.wait|cp\.async\.wait)")


class _Apart:
    """What loops of MMAs that one warp can run (`release`) takes so that a warp beside those that multiply runs it,
    for one tile after another. `warp` is that warp; its statements go in front of `before`. `scopes` are places
    behind the loops where stages are given back, each with the arrivals in it. Behind `read` the sums of a tile have
    been read, ahead of it if `in_front`.

    Raises:
        _Left: what is missing.
    """

    def __init__(self, emitter: _Wide, release: _Release) -> None:
        self.emitter, self.release, self.program = emitter, release, emitter.program
        self.stretch, self.where = release.stretch, release.where
        self.function = self.program.function
        self.tile = self.stretch.block.owner.operation
        if self.tile.name not in _LOOPS:
            raise _Left(self.where, "no loop takes one tile after another, with its MMAs under no condition")
        self.outer = _around(self.stretch.ops[0], self.function)[-1]
        self._events()
        self._sums_begin()
        self._sums_are_read()
        self._meetings()
        self._operands_are_loaded()
        self.scopes = self._scopes()
        self.warp, self.before = self._idle()
        self.slice([v for e in self.program.kernel.events if e.kind == "mma" for v in _of_event(e)], self._flags(), [])

    def slice(self, values: list[ir.Value], places: list[ir.Operation], own: list[ir.Value]) -> _Slice:
        reads = {scope: [_operands(op)[0] for op in ops] for scope, ops in self.scopes.items()}
        for scope, ops in self.scopes.items():
            for op in ops:
                reads[scope] += [c for c, _ in self.agreed(op, scope)]
        return _Slice(self.program, self.stretch, self.outer, self.where, values, places, reads, own)

    def _events(self) -> None:
        for event in self.program.kernel.events[1:-1]:
            if event.kind == "commit" and not self.stretch.holds(event.marker):
                raise _Left(event.where, "a group is committed outside of the loop of MMAs")

    def _sums_begin(self) -> None:
        """The first MMA of a tile adds to nothing: what is in Tensor Memory is of another tile."""
        before = next(i.before for i in self.emitter.items if i.before is not None and self.stretch.holds(i.op))
        begun: dict[_Part, list[_Turn]] = {}
        for turn in self.release.turns:
            for event in (e for batch in turn.batches for e in batch.batch):
                for part in event.parts:
                    if any(t is turn or turn.only_behind(t) for t in begun.get(part, ())):
                        continue
                    loops = [p for p in _loops(event.marker) if self.stretch.holds(p)]
                    if all(_turns_of(p) for p in loops if turn.loop is None or p != turn.loop):
                        begun.setdefault(part, []).append(turn)
                    cleared = set(before[part]) == {ZERO} and _cleared(event)
                    if not cleared and _at_first(event.accumulate, loops, self.release.numbers) != 0:
                        raise _Left(event.where, "the first MMA of a tile may add to the sums of the last one")

    def _sums_are_read(self) -> None:
        items = self.emitter.items
        last = max(i.number for i in items if self.stretch.holds(i.op))
        reads = [i for i in items if i.kind == "access" and not i.full and i.before is not None
                 and any(_in_memory(i.before[p]) for p in i.array.parts)]  # fmt: skip
        for item in reads:
            if self.tile not in _loops(item.op) or item.number < last:
                text = "sums are read where MMAs of the next tile may be under way"
                raise _Left(_line(item.op, self.where), text)
        if not reads:
            raise _Left(self.where, "nothing reads the sums of a tile behind its MMAs")
        op = reads[-1].op
        self.in_front = op.block.owner.operation == self.tile
        self.read = op if self.in_front else _around(op, self.tile)[-1]

    def _meetings(self) -> None:
        """What threads that multiply wait for ahead of their MMAs another warp would not have waited for."""
        place = self.stretch.ops[0]
        while place != self.function:
            for view in place.block.operations:
                op = view.operation
                if op == place:
                    break
                for inner in (op, *_all_operations(op)) if place != self.outer else ():
                    # One that asks once waits for nothing.
                    asks = inner.name.startswith("nvvm.mbarrier.") and len(inner.results)
                    again = any(p.name == "scf.while" for p in _around_to(inner, op))
                    if _MEETING.match(inner.name) and (not asks or again):
                        raise _Left(
                            _line(inner, self.where), "threads that multiply wait for something ahead of a tile"
                        )
            place = place.block.owner.operation

    def _operands_are_loaded(self) -> None:
        """What MMAs read, loads bring that their loops wait for, or all warps have met behind: threads that multiply
        know of nothing else that the warp would not."""
        events = [e for e in self.program.kernel.events if e.kind == "mma"]
        read = {self._field(_raw(v)) for e in events for v in (e.a, e.b)}
        waited = _waited_at(list(self.stretch.all()))
        for op in _all_operations(self.function):
            fields = {None if v is None else self._field(v) for v in _written_there(op)}
            if not fields or (None not in fields and None not in read and not fields & read):
                continue
            barrier = _barrier_of(op) if op.name == "cute.copy" else None
            if not (self._is_met_behind(op, None) if barrier is None else
                    _base(barrier) in waited or self._is_met_behind(op, _base(barrier))):  # fmt: skip
                text = "operands of MMAs may be written where another warp does not wait for it"
                raise _Left(_line(op, self.where), text)

    def _field(self, value: ir.Value) -> Any:
        spot = _spot(value)
        return None if spot is None else spot.field()

    def _is_met_behind(self, op: ir.Operation, base: ir.Value | None) -> bool:
        """Whether all threads of the block meet behind an operation and ahead of the tiles, or wait at the mbarrier
        `base`, under no condition."""
        tops = [view.operation for view in self.function.regions[0].blocks[0].operations]
        for later in tops[tops.index(_places(op)[-1]) + 1 : tops.index(self.outer)]:
            if base is not None and later.name.startswith(_WAITS) and not len(later.results):
                if _base(_operands(later)[0]) == base:
                    return True
            elif base is None and later.name == "nvvm.barrier" and not len(_operands(later)):
                return True
        return False

    def _scopes(self) -> dict[ir.Operation, list[ir.Operation]]:
        """Arrivals behind the loops by the outermost condition around them that chooses among threads."""
        found: dict[ir.Operation, list[ir.Operation]] = {}
        for op in self.release.later:
            around = _around(op, self.function)
            if self.outer not in around:
                raise _Left(_line(op, self.where), "a stage is given back outside of what leads to the MMAs")
            chosen = [p for p in around if p.name == "scf.if" and not self.release.same.holds(_operands(p)[0])]
            scope = chosen[-1] if chosen else op
            if any(p.name != "scf.if" for p in around[: around.index(scope) if chosen else 0]):
                raise _Left(_line(op, self.where), "a loop under a condition gives stages back")
            self._directly_behind(op, around)
            found.setdefault(scope, []).append(op)
        return found

    def _directly_behind(self, op: ir.Operation, around: list[ir.Operation]) -> None:
        """A stage that is given back later may be one that threads have read or written behind their MMAs."""
        where = _line(op, self.where)
        text = "a stage is given back behind what threads do with the sums"
        if self.tile not in around:
            raise _Left(where, text)
        last = around[around.index(self.tile) - 1] if around[0] != self.tile else op
        operations = [view.operation for view in self.stretch.block.operations]
        first = operations.index(self.stretch.ops[-1]) + 1
        if last not in operations[first:]:
            raise _Left(where, text)
        markers = {e.marker for e in self.program.kernel.events}
        for behind in operations[first : operations.index(last) + 1]:
            for inner in (behind, *_all_operations(behind)):
                known = inner in markers or inner in self.release.later or len(inner.regions) or _computes(inner)
                if not known:
                    raise _Left(where, text)

    def agreed(self, op: ir.Operation, scope: ir.Operation) -> list[tuple[ir.Value, int]]:
        """Conditions within a scope around an arrival that do not choose among threads."""
        if op == scope:
            return []
        return [c for c in self.release._conditions(op, scope) if self.release.same.holds(c[0])]

    def _flags(self) -> list[ir.Operation]:
        """Where flags change that say whether Tensor Memory holds a sum, if an MMA asks for them."""
        if not any(name == "holds" for _, name in self.emitter.needed):
            return []
        arrays = {p.array for e in self.program.kernel.events if e.kind == "mma" for p in e.parts}
        items = [i for i in self.emitter.items if i.kind == "access" and i.array in arrays]
        return [i.op for i in items if self.outer in _around(i.op, self.function)]

    # --- which warp

    def _idle(self) -> tuple[int, ir.Operation]:
        numbers = self.release.numbers
        for warp in range(math.prod(numbers.block) // 32)[::-1]:
            if warp // 4 in self.release.warpgroups:
                continue
            does: list[tuple[ir.Operation, bool]] = []
            lanes = [32 * warp + t for t in range(32)]
            for view in self.function.regions[0].blocks[0].operations:
                for block, sure in self._entered(view.operation, lanes, True):
                    does += self._does(block, lanes, sure)
            shares = [(op, sure) for op, sure in does if op.name == "nvvm.setmaxregister"]
            if len(shares) < len(does):
                continue
            top = list(self.function.regions[0].blocks[0].operations)
            tops = [view.operation for view in top]
            at = tops.index(self.outer)
            late = [(op, sure) for op, sure in shares if tops.index(_around(op, self.function)[-1]) >= at]
            if not late:
                return warp, self.outer
            # Others may wait for the registers that its warpgroup gives back.
            op, sure = late[-1]
            if sure and not any(n in _LOOPS for n in (p.name for p in _around(op, self.function))):
                operations = [view.operation for view in op.block.operations]
                return warp, operations[operations.index(op) + 1]
        raise _Left(self.where, "no warp of a block has nothing to do")

    def _entered(self, op: ir.Operation, lanes: list[int], sure: bool) -> Iterator[tuple[ir.Block, bool]]:
        """The blocks of an operation that lanes may enter, and whether all of them do."""
        if op.name != "scf.if":
            yield from ((b, False) for b in _blocks(op))
            return
        found = {self.release.numbers.value(_operands(op)[0], t) for t in lanes}
        for number, region in enumerate(op.regions):
            if len(region.blocks) and found & {None, 1 - number}:
                yield region.blocks[0], sure and found == {1 - number}

    def _does(self, block: ir.Block, lanes: list[int], sure: bool) -> Iterator[tuple[ir.Operation, bool]]:
        """What lanes do in a block besides to compute."""
        for view in block.operations:
            op = view.operation
            if len(op.regions):
                for inner, certain in self._entered(op, lanes, sure):
                    yield from self._does(inner, lanes, certain)
            elif not (_computes(op) or _SPECIAL.match(op.name) or op.name in _HARMLESS or op.name.startswith("arith.")):
                yield op, sure


def _of_event(event: _Event) -> Iterator[ir.Value]:
    """What an MMA is issued with."""
    yield from (_raw(v) for v in (event.a, event.b))
    flag = getattr(event.accumulate, "value", event.accumulate)
    if not isinstance(flag, (bool, int)):
        yield _raw(flag)


def _at_first(value: Any, loops: list[ir.Operation], numbers: _Numbers) -> int | None:
    """What a number, or the accumulate flag of an atom, is in the first turn of loops; None if nobody knows."""
    value = getattr(value, "value", value)
    if isinstance(value, (bool, int)):
        return int(value)
    value = _raw(value)
    op = _owner(value)
    if op is None:
        loop = value.owner.owner.operation
        if loop not in loops:
            return None
        number = ir.BlockArgument(value).arg_number
        return _at_first(_operands(loop)[2 + number if number else 0], loops, numbers)
    name, operands = op.name, _operands(op)
    if name == "arith.constant":
        return _constant(op)
    if name == "cute_nvgpu.atom.get_value":
        return _at_first(operands[0], loops, numbers)
    if name == "cute_nvgpu.atom.set_value":
        return _at_first(operands["accum_c" in str(op.attributes["field"])], loops, numbers)
    if not name.startswith("arith."):
        return None
    parts = [_at_first(v, loops, numbers) for v in operands]
    if None in parts or not parts:
        return None
    if name == "arith.select":
        return parts[2 - parts[0]]
    return parts[0] if len(parts) == 1 and "ext" in name else _arithmetic(op, *parts) if len(parts) == 2 else None


class _Detached:
    """Emits the loops of MMAs for a warp of its own, which goes ahead of those that read the sums by as many tiles as
    there are accumulators. Part of an emitter in which one warp multiplies."""

    apart: _Apart
    buffers: int
    more = 0
    """Further mbarriers."""

    def _place(self) -> None:
        super()._place()
        self.width = self.columns
        self.columns *= self.buffers

    def _shared_memory(self, barriers: int) -> tuple[Any, Any]:
        holder, made = super()._shared_memory(barriers + self.buffers + self.more)
        self.free = made + barriers
        with _if(cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0), cute.arch.elect_one():
            for i in range(self.buffers):
                _here(cute.arch.mbarrier_init, self.free + i, self._readers())
        return holder, made

    def _prologue(self) -> None:
        super()._prologue()
        self.begun = _variable()

    def _columns(self, tile: Any) -> Any:
        """Where the accumulator of a tile begins."""
        return tile % self.buffers * self.width

    def _issue(self, event: _Event) -> None:
        base = self.base
        self.base = base + self._columns(self.begun[0])
        super()._issue(event)
        self.base = base

    def _load(self, parts: list[_Part], item: _Item) -> None:
        quarter = self.quarter
        self.quarter = quarter + self._columns(self.committed[0] - 1)
        super()._load(parts, item)
        self.quarter = quarter

    def _split(self) -> None:
        apart, stretch = self.apart, self.release.stretch
        where = stretch.ops[-1].location
        with _scratch():
            aside = ir.InsertionPoint.current
            found = apart.slice([], [], [_raw(self.begun), _raw(self.sent)])
            with ir.InsertionPoint(apart.before), where:
                warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
                with _if(self._multiplies(warp)):
                    _Copying(found, 128 * self.warpgroups[0], aside, self._tile, self._given_back).run()
                self._last(warp)
        for op in self.release.later:
            op.erase()
        _strip_all(stretch.ops)
        with ir.InsertionPoint.after(stretch.last), where:
            number = self.committed[0]
            self.committed[0] = number + 1
            self._wait_for(number)
            self._rejoin()
        place = ir.InsertionPoint(apart.read) if apart.in_front else ir.InsertionPoint.after(apart.read)
        with place, apart.read.location:
            nvvm.tcgen05_fence(BEFORE)
            self._read(self.free + (self.committed[0] - 1) % self.buffers)

    def _last(self, warp: Any) -> None:
        """Behind the last tile of the warp that multiplies."""

    def _multiplies(self, warp: Any) -> Any:
        """Whether a warp is the one that runs the loops."""
        return warp == self.apart.warp

    def _readers(self) -> int:
        """Threads that read the sums of a tile."""
        return 128 * len(self.warpgroups)

    def _read(self, barrier: Any) -> None:
        """A thread has read its sums of a tile."""
        _here(cute.arch.mbarrier_arrive, barrier)

    def _complete(self, barrier: Any) -> None:
        """The sums of a tile are complete once the MMAs so far are over, if there are any."""
        with _if(self.sent[0] != 0):
            _here(tcgen05.commit, barrier)
        with _if(self.sent[0] == 0):
            _here(cute.arch.mbarrier_arrive, barrier)

    def _tile(self, copying: _Copying) -> None:
        """One tile: when its accumulator has been read, the loops; a commit says that the sums are complete."""
        number = self.begun[0]
        use = number // self.buffers
        self._wait(self.free + number % self.buffers, (use % 2) ^ 1)
        for op in self.release.stretch.ops:
            copying.clone(op)
        with cute.arch.elect_one():
            self._complete(self.done + number % RING)
        self.begun[0] = number + 1

    def _given_back(self, scope: ir.Operation, copying: _Copying) -> None:
        """Commits in place of arrivals behind the loops."""
        for op in self.apart.scopes[scope]:
            allowed = cutlass.Boolean(True).ir_value()
            for condition, wanted in self.apart.agreed(op, scope):
                value = copying.in_scope(condition, scope)
                allowed = arith.andi(allowed, arith.xori(value, cutlass.Boolean(not wanted).ir_value()))
            pointer = copying.in_scope(_operands(op)[0], scope)
            with _if(cutlass.Boolean(allowed)), cute.arch.elect_one():
                self._commit_to(pointer)


class _JoinedApart(_Detached, _JoinedAlone):
    """Two warpgroups, for which another warp multiplies."""


class _StackedApart(_Detached, _StackedAlone):
    """Two tiles of a warpgroup, for which another warp multiplies."""


def _of(kind: type[_Wide], told: dict[str, Any], program: _Program, warpgroups: list[int], *more: Any) -> _Wide:
    """The emitter of a kind, in which a warp of its own multiplies where that can be, else one of those that do."""
    try:
        release = _release_of(kind, program, warpgroups)
    except _Left as left:
        _without(told, "release", left)
        return kind(program, *more)
    told["steps"] = ["release"]
    emitter = _released(kind, release, program, *more)
    try:
        apart = _Apart(emitter, release)
    except _Left as left:
        _without(told, "mma-thread", left)
        return emitter
    told["steps"].append("mma-thread")
    buffers = BUFFERS
    if emitter.columns * buffers > COLUMNS:
        text = f"{buffers} accumulators take {emitter.columns * buffers} columns of Tensor Memory; there are {COLUMNS}"
        _without(told, "double-buffer", _Left(release.where, text))
        buffers = 1
    elif buffers > 1:
        told["steps"].append("double-buffer")
    return _detached(told, kind, {"buffers": buffers, "apart": apart, "release": release}, program, *more)


def _with_parts(made: type[_Wide], parts: dict[str, Any], program: _Program, *more: Any) -> _Wide:
    """An emitter that has to know `parts` when it is made."""
    emitter = made.__new__(made)
    emitter.__dict__.update(parts)
    emitter.__init__(program, *more)
    return emitter
