# --- kernels that do the same in a grid of another size

ANY, NUMBER, OF_NUMBER, COUNT = "any", "number", "of the number", "count"
BOUND = "bound to the grid"
TURN, OF_TURN, NEXT, OF_NEXT = "turn", "of a turn", "next turn", "of the next turn"
"""Not of the grid; the CTA's number, and what follows from that alone; how many CTAs there are; what depends on the
size of the grid in another way. The number, and one further for each turn by as many as there are, and what follows
from that alone; the same of the turn behind this one."""
_PUTS = (*_REGISTER_STORES, "cute.copy", "cute.ptr.store")
_FIRST, _NOW, _THEN = {NUMBER, OF_NUMBER}, {TURN, OF_TURN}, {NEXT, OF_NEXT}


class _Strides(_Flowing):
    """Whether CTAs take their share of some work, the number of which is a CTA's own and then as many further as there
    are CTAs: each part of it is done once in a grid of any size, if threads agree on nothing else."""

    differs = BOUND

    def __init__(self, function: ir.Operation, axis: str) -> None:
        self.axis = axis
        super().__init__(function)
        every = list(_all_operations(function))
        self.fits = not _writes_global(function) and all(map(self._does_same, every))

    def _does_same(self, op: ir.Operation) -> bool:
        found = [self._known.get(v) for v in _operands(op)]
        if len(op.regions):
            return self._goes_same(op, found)
        if op.name.startswith("scf."):
            return BOUND not in found
        # What each CTA does once, for its own number, or with that for a turn, others do in another grid.
        once = op.name in _PUTS or not op.name.startswith(_PURE)
        return not _mixed(found) and not (once and {COUNT, *_FIRST} & set(found))

    def _goes_same(self, op: ir.Operation, found: list[str | None]) -> bool:
        steps = found[:3:2] if op.name == "scf.for" else []
        by_number = steps != [NUMBER, COUNT] and bool(_FIRST & {self._known.get(v) for v in _parting(op)})
        results = [[self._known.get(o) for v, o in _edges(op) if v == _raw(r)] for r in op.results]
        return BOUND not in found and not by_number and (op.name in _LOOPS or not any(map(_mixed, results)))

    def _argument(self, number: int) -> str:
        return ANY

    def _either(self, found: set[str]) -> str:
        if found <= {NUMBER, TURN}:
            return TURN
        if found <= {ANY, *_FIRST}:
            return OF_NUMBER
        return OF_TURN if found <= {ANY, *_FIRST, *_NOW} else OF_NEXT if found <= {ANY, *_THEN} else BOUND

    def _constant(self, number: int | None) -> str:
        return ANY

    def _enters(self, op: ir.Operation, known: list[str]) -> bool:
        if op.name == "scf.for" and (known[:1], known[2:]) == ([NUMBER], [COUNT]):
            return known[1] != BOUND
        return BOUND not in known and COUNT not in known

    def _counter(self, first: str, last: str, step: str) -> str:
        if (first, step) == (NUMBER, COUNT):
            return TURN
        return ANY if {first, last, step} == {ANY} else OF_TURN if COUNT not in (first, last, step) else BOUND

    def _handed(self, op: ir.Operation, value: ir.Value, other: ir.Value, known: str) -> str:
        """A turn hands on what is of the next one; what is behind all turns depends on how many there were."""
        if op.name not in _LOOPS:
            return known
        if known in (ANY, COUNT, BOUND, OF_NUMBER):
            return known
        if not isinstance(value.owner, ir.Block):
            return BOUND
        first, *second = _blocks(op)
        stays = _operands(_terminator(first))[1:] if second else []
        if second and value.owner == second[0]:
            return known
        if (
            other in _operands(op)
            or value == other
            or (value, other) in zip(stays, map(_raw, second[0].arguments if second else ()), strict=False)
        ):
            return known
        return {NEXT: TURN, OF_NEXT: OF_TURN}.get(known, BOUND)

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
        several = len(op.results) > 1 or (name == "cute.size" and not _is_one(operands[0]))
        if len(found) == 1 and name in (*_PASSED_ON, "cute.size") and not several:
            return found[0]
        if COUNT in found:
            return self._counts(name, operands, found)
        unit = {i for i, v in enumerate(operands) if _number(v) == 1}
        if name in ("arith.addi", "cute.tuple_add") and 0 in (numbers := [_number(v) for v in operands]):
            return found[1 - numbers.index(0)]
        if len(found) == 2 and unit == {1} and name in ("arith.muli", "cute.tuple_mul", "cute.tuple_div"):
            return found[0]
        sides = set(found) - {ANY}
        alike = (_FIRST, OF_NUMBER), (_FIRST | _NOW, OF_TURN), (_THEN, OF_NEXT)
        return next((made for of, made in alike if sides <= of), BOUND) if name.startswith(_PURE) else BOUND

    def _counts(self, name: str, operands: list[ir.Value], found: list[str]) -> str:
        others = [i for i, f in enumerate(found) if f != COUNT]
        if name in ("arith.muli", "cute.tuple_mul") and 0 in map(_number, operands):
            return ANY
        if (
            name in ("arith.addi", "cute.tuple_add")
            and len(found) == 2
            and [found[i] for i in others] in ([TURN], [NUMBER])
        ):
            return NEXT
        if (
            name in ("arith.muli", "cute.tuple_mul", "cute.tuple_div")
            and len(others) == 1
            and _number(operands[others[0]]) == 1
        ):
            return COUNT if name != "cute.tuple_div" or others == [1] else BOUND
        of_grid = name == "cute.make_int_tuple" and len(found) == 3 and found.count(ANY) == 2
        return COUNT if of_grid and all(_of_grid(v) for v in operands) else BOUND


def _mixed(found: list[str | None]) -> bool:
    """Whether something follows from the CTA's number and from a turn, or from the grid."""
    return BOUND in found or bool(_FIRST & set(found) and _NOW & set(found))


class _OfCluster(_Flowing):
    """Values that follow from where a CTA is in a cluster: other ones in pairs than without a cluster. `places` are
    those where threads go by them."""

    differs = "of the cluster"

    def __init__(self, function: ir.Operation) -> None:
        super().__init__(function)
        self.places = [op for op in _all_operations(function) if self._heeds(op)]

    def _heeds(self, op: ir.Operation) -> bool:
        if len(op.regions):
            return self.differs in [self._known.get(v) for v in _parting(op)]
        found = [self._known.get(v) for v in _operands(op)]
        return self.differs in found and (op.name in _LOADS or not op.name.startswith((*_PURE, "scf.")))

    def _argument(self, number: int) -> str:
        return ANY

    def _either(self, found: set[str]) -> str:
        return self.differs

    def _constant(self, number: int | None) -> str:
        return ANY

    def _enters(self, op: ir.Operation, known: list[str]) -> bool:
        return True

    def _counter(self, first: str, last: str, step: str) -> str:
        return ANY

    def _of_block(self, what: str, axis: str | None) -> str:
        return ANY if what in ("ctaid", "nctaid") else self.differs

    def _made(self, op: ir.Operation, result: ir.Value, found: list[str]) -> str:
        return self.differs if self.differs in found else ANY


def _of_grid(value: ir.Value) -> bool:
    op = _owner(value)
    return op is not None and ".nctaid." in op.name
