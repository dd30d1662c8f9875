# --- two blocks share an SM

BLOCKS = 2
"""Blocks that share an SM."""

REGISTERS, GRANULARITY, LEAST, MOST = 65536, 8, 24, 256
"""Registers of an SM, which warps get so many a thread at a time (CUDA C++ Programming Guide, technical specifications
of 10.0); the counts that setmaxnreg takes (PTX ISA 9.7.19.5)."""

SM_SHARED, SYSTEM_SHARED = 233472, 1024
"""Bytes of shared memory of an SM, and those of each block that the system takes (CUDA C++ Programming Guide)."""


class _Sharing:
    """What a kernel takes so that two blocks of it share an SM, one of which multiplies while threads of the other
    compute. `counts`: the registers that each setmaxregister asks for.

    Raises:
        _Left: what is missing.
    """

    def __init__(self, emitter: _Emitter) -> None:
        self.emitter, self.program = emitter, emitter.program
        self.function = self.program.function
        self.where = next(e.where for e in self.program.kernel.events if e.kind == "mma")
        self.numbers = _Numbers(self.function)
        self.threads = math.prod(self.numbers.block)
        self._bounds()
        self._room()
        self.each = REGISTERS // (BLOCKS * self.threads) // GRANULARITY * GRANULARITY
        self.has: dict[int, int] = {}
        self.counts = self._moves()
        self._sums()

    def take(self) -> None:
        """Launch bounds, and what setmaxregister asks for."""
        number = ir.IntegerType.get_signless(32)
        self.function.attributes[_BOUND] = ir.IntegerAttr.get(number, BLOCKS)
        for op, count in self.counts.items():
            op.attributes["regCount"] = ir.IntegerAttr.get(number, count)

    def _bounds(self) -> None:
        attributes = self.function.attributes
        if not self.numbers.block or self.threads % 128:
            raise _Left(self.where, "how many threads a block has, in whole warpgroups")
        if _BOUND in attributes and ir.IntegerAttr(attributes[_BOUND]).value != 1:
            raise _Left(self.where, "launch bounds that ask for one block on an SM, or for none")
        if "nvvm.maxnreg" in attributes:
            raise _Left(self.where, "a launch that does not say how many registers a thread has")

    def _room(self) -> None:
        """Tensor Memory and shared memory for both."""
        columns = COLUMNS // BLOCKS
        if self.emitter.columns > columns:
            text = f"room in Tensor Memory: a block takes {self.emitter.columns} columns, and each of {BLOCKS} may have"
            raise _Left(self.where, f"{text} {columns}")
        most = SM_SHARED // BLOCKS - SYSTEM_SHARED
        used = _own_shared(self.function) + self.emitter.taken_shared()
        if used > most:
            text = f"room in shared memory: a block takes {used} bytes, and each of {BLOCKS} may have {most}"
            raise _Left(self.where, text)

    def _moves(self) -> dict[ir.Operation, int]:
        """Registers of a block whose threads start with `each`, dealt out by warpgroup: `has`."""
        self.has = dict.fromkeys(range(self.threads // 128), self.each)
        groups: dict[ir.Operation, list[int]] = {}
        moved: set[int] = set()
        for op in _all_operations(self.function):
            if op.name != "nvvm.setmaxregister":
                continue
            groups[op] = self._coming(op)
            if moved.intersection(groups[op]):
                raise _Left(_line(op, self.where), "one setmaxregister for each warpgroup")
            moved.update(groups[op])
        rising = [op for op in groups if "increase" in str(op.attributes["action"])]
        asked = {op: ir.IntegerAttr(op.attributes["regCount"]).value for op in groups}
        for op in (op for op in groups if op not in rising):
            if asked[op] > self.each:
                text = f"fewer registers than the {self.each} that threads of {BLOCKS} blocks have"
                raise _Left(_line(op, self.where), text)
            self.has |= dict.fromkeys(groups[op], asked[op])
        takes = [w for op in rising for w in groups[op]]
        kept = sum(count for w, count in self.has.items() if w not in takes)
        counts: dict[ir.Operation, int] = {}
        for op in rising:
            most = (self.each * len(self.has) - kept) // len(takes) // GRANULARITY * GRANULARITY
            if len({asked[o] for o in rising}) > 1:
                raise _Left(_line(op, self.where), "the same number of registers for all warpgroups that take more")
            counts[op] = min(most, MOST, asked[op])
            if counts[op] < max(self.each, LEAST):
                text = f"registers to take: {BLOCKS} blocks have {self.each} a thread"
                raise _Left(_line(op, self.where), text)
            self.has |= dict.fromkeys(groups[op], counts[op])
        return counts

    def _coming(self, op: ir.Operation) -> list[int]:
        """The warpgroups that come to a place, once, with all their threads."""
        where, conditions = _line(op, self.where), []
        for parent, inner in itertools.pairwise([*_around(op, self.function)[::-1], op]):
            if parent.name != "scf.if":
                raise _Left(where, "which warpgroups come to this setmaxregister")
            conditions.append((_operands(parent)[0], int(parent.regions[0].blocks[0] == inner.block)))
        threads = []
        for thread in range(self.threads):
            found = [(self.numbers.value(condition, thread), wanted) for condition, wanted in conditions]
            if any(value is None for value, _ in found) and all(v in (None, w) for v, w in found):
                raise _Left(where, "which warpgroups come to this setmaxregister")
            if all(value == wanted for value, wanted in found):
                threads.append(thread)
        groups = sorted({t // 128 for t in threads})
        if len(threads) != 128 * len(groups):
            raise _Left(where, "which warpgroups come to this setmaxregister")
        return groups

    def _sums(self) -> None:
        """Registers for sums and operands, all of which a thread may hold at a time."""
        for w in self.emitter.warpgroups:
            arrays = [a for a in self.emitter.arrays if w in a.warpgroups]
            together = (sum(b.bits for b in arrays if b.first <= a.first <= b.last) // 32 for a in arrays)
            held = max(together, default=0)
            if held > self.has[w]:
                text = f"registers for its sums and operands: they take {held}, and threads of {BLOCKS} blocks have"
                raise _Left(self.where, f"{text} {self.has[w]}")


_BOUND = "nvvm.minctasm"


def _ahead(kernel: _Kernel, function: ir.Operation) -> None:
    """Sums are changed as late as that can be: behind what threads do with other sums and operands, so that registers
    for all of them are not needed at a time."""
    program = _Program(kernel, function)
    events = [e for e in kernel.events if e.kind == "mma" and e.placed]
    touched: dict[ir.Operation, set[ir.Value]] = {}
    for item in _items(program.blocks):
        if item.kind == "access":
            touched.setdefault(item.op, set()).add(item.array.value)
    registers = {value for e in events for part in (e.d, e.a) for value in program.aliases.get(_raw(part), {})}
    touched = {op: found & registers for op, found in touched.items() if found & registers}
    for event in events:
        sums = program.aliases.get(_raw(event.d), {})
        if len(sums) == 1:
            _later(event, next(iter(sums)), touched, [e.marker for e in events])


def _later(event: _Event, sums: ir.Value, touched: dict[ir.Operation, set[ir.Value]],
           markers: list[ir.Operation]) -> None:  # fmt: skip
    """What changes the sums of an MMA, since the one in front of it in the same block."""
    operations = [view.operation for view in event.marker.block.operations]
    at = operations.index(event.marker)
    start = max((i for i in range(at) if operations[i] in markers), default=-1)
    between = operations[start + 1 : at]
    changes = [op for op in between if sums in touched.get(op, ())]
    last = max((i for i, op in enumerate(between) if touched.get(op, {sums}) != {sums}), default=-1)
    moved = _with_what_follows(changes, between, touched, sums)
    for op in reversed([op for op in between[:last] if op in moved]):
        op.move_after(between[last])


def _with_what_follows(changes: list[ir.Operation], between: list[ir.Operation],
                       touched: dict[ir.Operation, set[ir.Value]], sums: ir.Value) -> set[ir.Operation]:  # fmt: skip
    """Operations on sums, and what is computed between them of what these read; nothing if that is used elsewhere."""
    moved, left = set(changes), list(changes)
    while left:
        op = left.pop()
        if len(op.regions) or touched.get(op, {sums}) != {sums}:
            return set()
        for user in (use.owner.operation for result in op.results for use in result.uses):
            if user in moved:
                continue
            if user not in between or not user.name.startswith(("arith.", "math.", "vector.")):
                return set()
            moved.add(user)
            left.append(user)
    return moved


def _share(emitter: _Emitter, told: dict[str, Any]) -> None:
    """Let two blocks share an SM, or say what that lacks."""
    try:
        sharing = _Sharing(emitter)
    except _Left as left:
        _without(told, "blocks", left)
        return
    sharing.take()
    told.setdefault("steps", []).append("blocks")
