# --- what a thread's number decides in branches and loops

_TURNS = 16
"""Turns of a loop that are followed one by one."""
_VISITS = 4096
"""Blocks that are followed so, in all; then loops are taken as a whole."""


class _Followed(_Threads):
    """The path of one thread through a kernel, as far as its number decides it. `always`: values of control flow
    (results, arguments of blocks) by the number that they have whenever the thread comes to them; None where that may
    change, or follows from something else. `values` are those of operations and blocks, which the bindings take long
    to hand out."""

    def __init__(self, function: ir.Operation, thread: int, values: dict[Any, list[ir.Value]]) -> None:
        super().__init__(function)
        self.thread, self.left, self._values = thread, _VISITS, values
        self.always: dict[ir.Value, int | None] = {}
        self._now: dict[ir.Value, int | None] = {}
        for block in _blocks(function):
            self._run(block)

    def _value(self, value: ir.Value, thread: int) -> int | None:
        op = _owner(value)
        return self._now.get(value) if op is None or len(op.regions) else super()._value(value, thread)

    def _numbers(self, values: list[ir.Value]) -> list[int | None]:
        return [self.value(v, self.thread) for v in values]

    def _set(self, of: ir.Operation | ir.Block, numbers: list[int | None]) -> None:
        """Give numbers to the results of an operation, or the arguments of a block."""
        if of not in self._values:
            self._values[of] = [_raw(v) for v in (of.arguments if isinstance(of, ir.Block) else of.results)]
        self._memo.clear()
        for value, number in zip(self._values[of], numbers, strict=True):
            self._now[value] = number
            self.always[value] = _alike(self.always.get(value, number), number)

    def _run(self, block: ir.Block) -> None:
        self.left -= 1
        for view in block.operations:
            op = view.operation
            if len(op.regions):
                step = {"scf.if": self._if, "scf.for": self._for, "scf.while": self._while}.get(op.name, self._any)
                step(op)

    def _yields(self, block: ir.Block, arguments: list[int | None]) -> list[int | None]:
        """What the operation at the end of a block hands on."""
        self._set(block, arguments)
        self._run(block)
        return self._numbers(_operands(list(block.operations)[-1].operation))

    def _any(self, op: ir.Operation) -> None:
        for block in _blocks(op):
            self._yields(block, [None] * len(block.arguments))
        self._set(op, [None] * len(op.results))

    def _if(self, op: ir.Operation) -> None:
        taken = self.value(_operands(op)[0], self.thread)
        ends = [self._yields(b, []) for i, r in enumerate(op.regions) for b in r.blocks
                if len(b.operations) and taken in (None, 1 - i)]  # fmt: skip
        if len(op.results):
            self._set(op, functools.reduce(_all_alike, ends))

    def _for(self, op: ir.Operation) -> None:
        (block,) = _blocks(op)
        (first, last, step), carried = self._numbers(_operands(op)[:3]), self._numbers(_operands(op)[3:])
        known = None not in (first, last, step) and step > 0 and "unsignedCmp" not in op.attributes
        turns = range(first, last, step) if known else None
        if turns is not None and len(turns) <= _TURNS and self.left > 0:
            for i in turns:
                carried = self._yields(block, [i, *carried])
        elif turns is None or len(turns):
            carried = self._until_settled(lambda c: self._yields(block, [None, *c]), carried)
        self._set(op, carried)

    def _while(self, op: ir.Operation) -> None:
        before, after = _blocks(op)
        carried, turns = self._numbers(_operands(op)), 0
        while turns < _TURNS and self.left > 0:
            enters, *handed = self._yields(before, carried)
            if enters == 0:
                self._set(op, handed)
                return
            if enters is None:
                break
            carried, turns = self._yields(after, handed), turns + 1
        ends: list[list[int | None]] = []

        def turn(numbers: list[int | None]) -> list[int | None]:
            enters, *handed = self._yields(before, numbers)
            if enters != 1:
                ends.append(handed)
            return numbers if enters == 0 else self._yields(after, handed)

        self._until_settled(turn, carried)
        # A loop without an end has no results.
        self._set(op, functools.reduce(_all_alike, ends) if ends else [None] * len(op.results))

    def _until_settled(self, turn: Callable[[list], list], carried: list[int | None]) -> list[int | None]:
        """What a loop carries at the begin of any turn, and behind its last."""
        while True:
            found = _all_alike(carried, turn(carried))
            if found == carried:
                return carried
            carried = found


def _alike(one: int | None, other: int | None) -> int | None:
    return one if one == other else None


def _all_alike(one: list[int | None], other: list[int | None]) -> list[int | None]:
    return [_alike(a, b) for a, b in zip(one, other, strict=True)]
