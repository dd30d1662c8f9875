# --- the tensor core gives stages back

_WAITS = ("nvvm.mbarrier.try_wait.parity", "nvvm.mbarrier.wait.parity")
"""Operations that wait at an mbarrier, or ask once whether a phase is complete: then they have a result."""
_SHARED = re.compile(r"!llvm\.ptr(<3>)?$")
"""Pointers to shared memory, and to nobody knows which."""
_OTHER_MEMORY = re.compile(r"nvvm\.(ld|load|st|atomicrmw|red)|llvm\.(atomicrmw|cmpxchg)|(func|llvm)\.call$")
_ASM_MEMORY = re.compile(r"\b(ld|st|ldmatrix|stmatrix|cp|red|atom)\.")
_ARRIVES = re.compile(r"nvvm\.(mbarrier\.(arrive|complete|init|inval|txn)|cp\.async\.mbarrier|tcgen05\.commit)")
_ASM_ARRIVES = re.compile(r"mbarrier\.(arrive|complete|init|inval|expect)|tcgen05\.commit")
_REGISTER_STORES = ("cute.memref.store", "cute.memref.store_vec")


def _uses_shared(op: ir.Operation) -> bool:
    """Whether threads read or write shared memory: that of a stage, which they have to have done with before it is
    given back, and a commit knows only of MMAs."""
    if op.name == "llvm.inline_asm":
        return bool(_ASM_MEMORY.search(str(op.attributes["asm_string"])))
    known = op.name in (*_LOADS, *_REGISTER_STORES, "cute.copy", "cute.ptr.store", "llvm.store")
    if not known and not _OTHER_MEMORY.match(op.name):
        return "matrix" in op.name
    return any("smem" in str(v.type) or _SHARED.search(str(v.type)) for v in _operands(op))


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
        if program.turns:
            raise _Left(_line(program.turns[0].arrival, self.where), "its consumers take turns at mbarriers")
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
        if _uses_shared(op):
            return False
        known = op in self.markers or op.name == "nvvm.mbarrier.arrive" or len(op.regions) or _computes(op)
        return bool(known) or (op.name.startswith(_WAITS) and not len(op.results))

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
        inside = set(self.stretch.all())
        behind = itertools.dropwhile(lambda o: o not in inside, every) if self.later else ()
        for op in itertools.takewhile(lambda o: o != self.later[-1], behind):
            if op not in inside and _uses_shared(op):
                raise _Left(_line(op, self.where), "threads use shared memory before they give a stage back")
        self._by_this_name(every)
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

    def _by_this_name(self, every: list[ir.Operation]) -> None:
        """Those that arrive at the mbarriers that give stages back are all known."""
        known = {*self.inits, *self.arrivals, *self.later}
        spots = {_spot(_operands(o)[0]) for o in self.inits}
        for op in every:
            if op.name == "llvm.inline_asm":
                other = bool(_ASM_ARRIVES.search(str(op.attributes["asm_string"])))
            else:
                other = op not in known and bool(_ARRIVES.match(op.name))
                other = other and any(_may_be(_spot(_operands(op)[0]), s) for s in spots)
            if other:
                text = "who else arrives at the mbarriers that give stages back is not known"
                raise _Left(_line(op, self.where), text)

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
