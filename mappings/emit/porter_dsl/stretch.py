# --- operations that follow each other


class _Stretch:
    """Operations of a block from one to another: loops, and statements between them or ahead of them."""

    def __init__(self, first: ir.Operation, last: ir.Operation) -> None:
        self.first, self.last, self.block = first, last, first.block
        self.settle()

    def settle(self) -> None:
        """Find the operations again, where some were put between others."""
        operations = [view.operation for view in self.block.operations]
        self.ops = operations[operations.index(self.first) : operations.index(self.last) + 1]
        self._set = set(self.ops)

    def all(self) -> Iterator[ir.Operation]:
        """Its operations, and those in their regions."""
        for op in self.ops:
            yield op
            yield from _all_operations(op)

    def top(self, op: ir.Operation) -> ir.Operation | None:
        """The operation of the stretch that another one is, or stands in; None for those outside."""
        while op not in self._set:
            block = op.block
            if block == self.block or (op := block.owner.operation).parent is None or op.name == "cuda.kernel":
                return None
        return op

    def holds(self, op: ir.Operation) -> bool:
        return self.top(op) is not None

    def makes(self, value: ir.Value) -> bool:
        """Whether a value is made in it."""
        owner = value.owner
        return self.holds(owner.owner.operation if isinstance(owner, ir.Block) else owner.operation)

    def widen(self, first: ir.Operation, last: ir.Operation) -> None:
        """Let it begin with an earlier operation of its block, or end with a later one."""
        self.first, self.last = first, last
        self.settle()

    def is_a_loop(self) -> bool:
        return self.first == self.last and self.first.name == "scf.for"

    def handed(self) -> list[ir.Value]:
        """What others use of it; all results of a loop by itself."""
        results = [_raw(r) for op in self.ops for r in op.results]
        return [r for r in results if self.is_a_loop() or self.outside(r)]

    def outside(self, value: ir.Value) -> list[Any]:
        """The uses of one of its values elsewhere."""
        return [use for use in value.uses if not self.holds(use.owner.operation)]


def _stretch_of(events: list[_Event], where: tuple[str, int]) -> _Stretch:
    """From the first operation with MMAs to the last, in the innermost block that has all of them.

    Raises:
        _Left: some stand in something else than a loop with a known number of turns.
    """
    inner = {_loops(e.marker)[0] if _loops(e.marker) else None for e in events}
    loop = inner.pop() if len(inner) == 1 else None
    if loop is not None and loop.name == "scf.for":
        return _Stretch(loop, loop)
    places = [_places(e.marker) for e in events]
    common = next(op for op in places[0] if all(any(op.block == o.block for o in others) for others in places)).block
    tops = [next(op for op in others if op.block == common) for others in places]
    for top, event in zip(tops, events, strict=True):
        if any(op.name != "scf.for" for op in _around_to(event.marker, top)):
            text = "its MMAs do not stand in one loop with a known number of turns, nor in such loops behind each other"
            raise _Left(where, text)
    operations = [view.operation for view in common.operations]
    order = sorted(tops, key=operations.index)
    return _Stretch(order[0], order[-1])


def _around_to(op: ir.Operation, top: ir.Operation) -> list[ir.Operation]:
    """What an operation stands in up to another one; nothing for that itself."""
    places = _places(op)
    return places[1 : places.index(top) + 1]


def _places(op: ir.Operation) -> list[ir.Operation]:
    """An operation and those that it stands in, up to the kernel's own block."""
    found = [op]
    while (op := op.block.owner.operation).parent is not None and op.name != "cuda.kernel":
        found.append(op)
    return found


def _clones(ops: list[ir.Operation], known: dict[ir.Value, ir.Value], aside: ir.InsertionPoint) -> list[ir.Operation]:
    """Copies of operations at the insertion point, of what their operands have become there. Values are looked at
    `aside`, where the bindings may put operations of theirs."""
    copies = []
    for op in ops:
        made = op.clone(ir.InsertionPoint.current)
        with aside:
            for one, other in zip([op, *_all_operations(op)], [made, *_all_operations(made)], strict=True):
                for i, operand in enumerate(_operands(one)):
                    if operand in known:
                        other.operands[i] = known[operand]
            known.update(zip(map(_raw, op.results), map(_raw, made.results), strict=True))
        copies.append(made)
    return copies


def _turns_of(loop: ir.Operation) -> int | None:
    """How many turns a loop has, if that is known."""
    first, last, step = map(_literal, _operands(loop)[:3])
    return None if None in (first, last, step) or step < 1 else max(0, -(-(last - first) // step))


def _begins_where(one: ir.Operation, other: ir.Operation) -> bool:
    """Whether `other` has no turn where `one` has none: it goes on where that ends, at the least of a number and of its
    own end."""
    first, last = _operands(one)[:2]
    begin, end = _operands(other)[:2]
    start, least = _literal(first), _least(last)
    if start is None or least is None or begin != last:
        return False
    others = [_literal(least[1 - i]) for i, number in enumerate(least) if number == end]
    return any(number is not None and number > start for number in others)


def _literal(value: ir.Value) -> int | None:
    op = _owner(value)
    return _constant(op) if op is not None and op.name == "arith.constant" else None


def _least(value: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """The two values of which one is the least."""
    op = _owner(value)
    if op is not None and op.name in ("arith.minsi", "arith.minui"):
        return tuple(_operands(op))
    return None
