# --- kernels that do the same in a grid of another size

ANY, NUMBER, COUNT, TURN, OF_TURN, BOUND = "any", "number", "count", "turn", "of a turn", "bound to the grid"
"""Not of the grid; the CTA's number; how many CTAs there are; the number, and one further for each turn by as many as
there are; what follows from that alone; what follows from the size of the grid in another way."""


class _Strides(_Flowing):
    """Whether CTAs take their share of some work, the number of which is a CTA's own and then as many further as there
    are CTAs: each part of it is done once in a grid of any size, if threads agree on nothing else."""

    differs = BOUND

    def __init__(self, function: ir.Operation, axis: str) -> None:
        self.axis = axis
        super().__init__(function)
        self.fits = not _writes_global(function) and all(
            BOUND not in [self._known.get(v) for v in _parting(op)]
            for op in _all_operations(function)
            if len(op.regions)
        )
        for op in _all_operations(function):
            if op.name == "cute.copy" and any(self._known.get(v) in (BOUND, COUNT) for v in _operands(op)[1:]):
                self.fits = False

    def _argument(self, number: int) -> str:
        return ANY

    def _either(self, found: set[str]) -> str:
        if found <= {NUMBER, TURN}:
            return TURN
        return OF_TURN if found <= {ANY, NUMBER, TURN, OF_TURN} else BOUND

    def _constant(self, number: int | None) -> str:
        return ANY

    def _enters(self, op: ir.Operation, known: list[str]) -> bool:
        return BOUND not in known and (COUNT not in known or (known[:1], known[2:]) == ([NUMBER], [COUNT]))

    def _counter(self, first: str, last: str, step: str) -> str:
        return TURN if (first, step) == (NUMBER, COUNT) else ANY if {first, step} == {ANY} else OF_TURN

    def _of_block(self, what: str, axis: str | None) -> str:
        if axis == self.axis:
            return {"ctaid": NUMBER, "nctaid": COUNT}.get(what, BOUND)
        # the grid has one CTA along other axes
        return ANY

    def _made(self, op: ir.Operation, result: ir.Value, found: list[str]) -> str:
        name, operands = op.name, _operands(op)
        if set(found) <= {ANY}:
            return ANY
        if BOUND in found:
            return BOUND
        if len(found) == 1 and name in (*_PASSED_ON, "cute.size"):
            return found[0]
        if COUNT in found:
            return self._counts(name, operands, found)
        unit = {i for i, v in enumerate(operands) if _number(v) == 1}
        if name in ("arith.addi", "cute.tuple_add") and 0 in (numbers := [_number(v) for v in operands]):
            return found[1 - numbers.index(0)]
        if len(found) == 2 and unit == {1} and name in ("arith.muli", "cute.tuple_mul", "cute.tuple_div"):
            return found[0]
        return OF_TURN if name.startswith(_PURE) else BOUND

    def _counts(self, name: str, operands: list[ir.Value], found: list[str]) -> str:
        others = [i for i, f in enumerate(found) if f != COUNT]
        if name in ("arith.muli", "cute.tuple_mul") and 0 in map(_number, operands):
            return ANY
        if (
            name in ("arith.addi", "cute.tuple_add")
            and len(found) == 2
            and [found[i] for i in others] in ([TURN], [NUMBER])
        ):
            return TURN
        if (
            name in ("arith.muli", "cute.tuple_mul", "cute.tuple_div")
            and len(others) == 1
            and _number(operands[others[0]]) == 1
        ):
            return COUNT if name != "cute.tuple_div" or others == [1] else BOUND
        of_grid = name == "cute.make_int_tuple" and len(found) == 3 and found.count(ANY) == 2
        return COUNT if of_grid and all(_of_grid(v) for v in operands) else BOUND


def _of_grid(value: ir.Value) -> bool:
    op = _owner(value)
    return op is not None and ".nctaid." in op.name
