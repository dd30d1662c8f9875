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
        used = _own_shared(self.function) + _taken_shared(self.emitter)
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
            beside = {a: [b for b in arrays if b.first <= a.first <= b.last] for a in arrays}
            together = [sum(_held(b) for b in beside[a]) for a in arrays]
            held = max([*together, *(a.bits // 32 for a in arrays)], default=0)
            if held > self.has[w]:
                text = f"registers for its sums and operands: they take {held}, and threads of {BLOCKS} blocks have"
                raise _Left(self.where, f"{text} {self.has[w]}")


_BOUND = "nvvm.minctasm"


def _held(array: _Array) -> int:
    """Registers that an array takes beside others."""
    return min(array.bits // 32, 4 * CHUNK if getattr(array, "in_pieces", False) else array.bits)


def _taken_shared(emitter: _Emitter) -> int:
    """The most bytes of shared memory that are taken beside those of the kernel."""
    exchanged = 1024 * emitter.registers * len(emitter.warpgroups) + 128 if isinstance(emitter, _Stacked) else 0
    return 16 + 8 * (len(emitter.warpgroups) * (RING + 2) + 2) + 128 + exchanged


def _ahead(program: _Program) -> None:
    """Sums are changed as late as that can be, behind what threads do with others and with operands, so that registers
    for all of them are not needed at a time; between MMAs of two warpgroups in pieces."""
    events = [e for e in program.kernel.events if e.kind == "mma"]
    touched: dict[ir.Operation, set[_Array]] = {}
    registers = {a for e in events for a in e.arrays()}
    for item in _items(program.blocks):
        if item.kind == "access":
            touched.setdefault(item.op, set()).add(item.array)
    parted: list[_Changes] = []
    try:
        _Joining(program)
    except _Left:
        joined = False
    else:
        joined = True
    for array in dict.fromkeys(e.array for e in events):
        markers = [e.marker for e in events if e.array is array]
        for block in dict.fromkeys(op.block for op in touched if array in touched[op]):
            inner = _loops(block.operations[0].operation)[:1]
            looped = any(loop in _loops(m) for loop in inner for m in markers)
            for changes in _Changes.of(program, block, array, touched, markers):
                changes.move(registers)
                if joined and looped:
                    changes.part()
                parted += [changes] if changes.item is not None else []
    program.blocks = [program._block(b) for b in _blocks(program.function)]
    for changes in parted:
        for items in program.blocks:
            changes.replace(items)
    operands = {e.operand for e in events if e.operand is not None and not e.operand.parts}
    for items in program.blocks if joined else ():
        _stage_at_once(items, {a for a in operands if all(_is_packed(e) for e in events if e.operand is a)})


def _stage_at_once(items: list[_Item], operands: set[_Array]) -> None:
    """Operands that are read in a later turn of a loop do not wait for it in registers."""
    for i, item in enumerate(items):
        if item.kind == "region":
            for inner in item.blocks:
                _stage_at_once(inner, operands)
        elif item.kind == "access" and item.array in operands and item.writes and not len(item.op.regions):
            item.staged = _is_for_later(item.array, items[i + 1 :])


def _is_packed(event: _Event) -> bool:
    """Whether the 16 bytes of a slot follow each other in the registers of an operand A."""
    layout, bits = _layout(_raw(event.a)), _bits(_raw(event.a))
    known = all(isinstance(at, int) and at % 32 == 0 for at in event.operand.slots)
    if layout is None or bits is None or not known:
        return False
    first = (layout[0][0], layout[1][0]) if isinstance(layout[0], tuple) else layout
    return [_index(i, *first) for i in range(_size(first[0]))] == list(range(128 // bits))


def _is_for_later(array: _Array, items: list[_Item]) -> bool:
    """Whether a loop, or the next turn of one, is what uses an operand first."""
    for item in items:
        if item.kind == "access" and item.array is array and item.writes:
            return False
        if item.kind == "event" and item.event.operand is array:
            return False
        if item.kind == "region" and any(_uses(one, array) for one in _items(item.blocks)):
            return item.op.name in _LOOPS
    return True


def _uses(item: _Item, array: _Array) -> bool:
    return (item.kind == "access" and item.array is array) or (item.kind == "event" and item.event.operand is array)


_PLAIN = ("cute.memref.load", "cute.memref.store", "cute.memref.load_vec", "cute.memref.store_vec")
_COMPUTES = re.compile(r"(arith|math|vector)\.(?!.*(load|store|transfer|gather|print))")
"""What reads and writes registers alone; what does nothing but compute."""


class _Changes:
    """What a block does with the registers of a sum and nothing else, between two MMAs that add to it. `moved` are its
    operations, with what is computed between them."""

    def __init__(self, program: _Program, array: _Array, between: list[ir.Operation],
                 touched: dict[ir.Operation, set[_Array]]) -> None:  # fmt: skip
        self.program, self.array, self.between, self.touched = program, array, between, touched
        found = self._with_what_follows([op for op in between if array in touched.get(op, ())])
        self.moved = [op for op in between if op in found]
        self.item: _Item | None = None
        self.together: set[ir.Operation] = set()

    @classmethod
    def of(cls, program: _Program, block: ir.Block, array: _Array, touched: dict[ir.Operation, set[_Array]],
           markers: list[ir.Operation]) -> Iterator[_Changes]:  # fmt: skip
        """Those of a block, but for what touches the sum in other ways."""

        def ends_at(op: ir.Operation) -> bool:
            inside = _all_operations(op) if len(op.regions) else ()
            return op in markers or any(o in markers or array in touched.get(o, ()) for o in inside)

        operations = [view.operation for view in block.operations][:-1]
        ends = [-1, *(i for i, op in enumerate(operations) if ends_at(op)), len(operations)]
        for start, stop in itertools.pairwise(ends):
            changes = cls(program, array, operations[start + 1 : stop], touched)
            if changes.moved:
                yield changes

    def _with_what_follows(self, changes: list[ir.Operation]) -> set[ir.Operation]:
        """Operations on a sum, and what is computed of what they read; nothing if that is used elsewhere."""
        found, left, between = set(changes), list(changes), set(self.between)
        while left:
            op = left.pop()
            if op in self.touched and (op.name not in _PLAIN or self.touched[op] != {self.array}):
                return set()
            for user in (use.owner.operation for result in op.results for use in result.uses):
                if user in found:
                    continue
                if user not in between or not _COMPUTES.match(user.name) or len(user.regions):
                    return set()
                found.add(user)
                left.append(user)
        return found

    def move(self, registers: set[_Array]) -> None:
        """Behind what the block does with other registers of MMAs."""
        others = [i for i, op in enumerate(self.between) if self.touched.get(op, set()) & registers - {self.array}]
        if others:
            early = set(self.between[: others[-1]])
            self._put(self.between[others[-1]], [op for op in self.moved if op in early])

    def _put(self, behind: ir.Operation, moved: list[ir.Operation]) -> None:
        operations = [view.operation for view in behind.block.operations]
        for op in moved:
            op.move_before(operations[operations.index(behind) + 1])

    def part(self) -> None:
        """Change the sum piece by piece, if each register of it is changed by itself or with others of its piece."""
        if self.array.slots:
            return
        pieces = [(part, at, min(at + 8 * CHUNK, part.stop)) for part in self.array.parts
                  for at in range(part.start, part.stop, 8 * CHUNK)]  # fmt: skip
        number: dict[ir.Operation, int] = {}
        seen: set[int] = set()
        for op in self.moved:
            words = self._words(op) if op in self.touched else set()
            if words is None:
                return
            seen |= words
            of_words = {i for i, (_, start, stop) in enumerate(pieces) for w in words if start <= 2 * w < stop}
            of_values = {number[made] for v in _operands(op) if (made := _owner(v)) in number}
            if len(of_words | of_values) != 1:
                return
            number[op] = (of_words | of_values).pop()
        if seen != set(range(self.array.bits // 32)) or any(p.bits != 32 for p in self.array.parts):
            return
        order = sorted(self.moved, key=lambda op: number[op])
        self._put(self.moved[-1], order)
        found = [(*piece, [op for op in order if number[op] == i]) for i, piece in enumerate(pieces)]
        item = _Item("access", order[0], array=self.array, writes=True, full=False, zero=False)
        item.pieces, self.array.in_pieces = found, True
        self.item, self.together = item, set(order)

    def replace(self, items: list[_Item]) -> None:
        """One access in the place of all those of the pieces."""
        for item in items:
            if item.kind == "region":
                for inner in item.blocks:
                    self.replace(inner)
        at = [i for i, item in enumerate(items) if item.kind == "access" and item.op in self.together]
        if at:
            items[at[0]] = self.item
            for i in at[:0:-1]:
                del items[i]

    def _words(self, op: ir.Operation) -> set[int] | None:
        """Which registers of the sum an operation reads or writes; None if that is not known."""
        (view,) = [v for v in _operands(op) if self.program.aliases.get(v)]
        offset, layout = self.program.aliases[view].get(self.array.value), _layout(view)
        if offset is None or layout is None or _bits(view) != 32:
            return None
        if op.name in ("cute.memref.load", "cute.memref.store"):
            coordinate = _operands(op)[1]
            at = [] if _holes(coordinate) else [_index(_filled(coordinate, []), *layout)]
        elif op.name in ("cute.memref.load_vec", "cute.memref.store_vec"):
            at = [_index(i, *layout) for i in range(_size(layout[0]))]
        else:
            return None
        return {offset // 32 + i for i in at} or None


def _share(emitter: _Emitter, told: dict[str, Any]) -> None:
    """Let two blocks share an SM, or say what that lacks."""
    try:
        sharing = _Sharing(emitter)
    except _Left as left:
        _without(told, "blocks", left)
        return
    sharing.take()
    told.setdefault("steps", []).append("blocks")
