# --- what the two CTAs of a pair have in common

EVEN, SAME, OTHER, DIFFERS = "even", "same", "one more", "differs"
"""What threads of the same number have in both CTAs: the same even number, not below zero; the same; an even number
and, in the second CTA, one more; nobody knows what."""

_OF_BLOCK = re.compile(r"nvvm\.read\.ptx\.sreg\.(n?ctaid|n?clusterid|cluster\.\w+)(?:\.([xyz]))?$")
_ALIKE = re.compile(r"nvvm\.read\.ptx\.sreg\.(n?tid\.[xyz]|laneid|warpid)$|nvvm\.elect\.sync$")
_PASSED_ON = ("arith.extsi", "arith.extui", "arith.index_cast", "arith.trunci", "cute.make_int_tuple",
              "cute.make_coord", "cute.get_leaves", "cute.get_scalars", "cute.fast_divmod.create_divisor",
              _UNIFORM)  # fmt: skip
_QUOTIENTS = ("arith.floordivsi", "arith.divsi", "arith.divui", "cute.tuple_div")
_REMAINDERS = ("arith.remsi", "arith.remui", "cute.tuple_mod")
_OF_NUMBERS = re.compile(r"!cute\.(layout|shape|stride|coord|int_tuple|tile|swizzle|composed_layout)<")
_TUPLES = ("cute.make_int_tuple", "cute.make_shape")
_BELOW, _NOT_BELOW = (2, 6), (5, 9)
"""Predicates of arith.cmpi: slt, ult; sge, uge."""


class _Flowing:
    """Of each value of a kernel what is known of it, from nothing on until what flows to it changes nothing more.
    `differs` is known where nobody knows anything."""

    differs: str

    def __init__(self, function: ir.Operation) -> None:
        self.function = function
        self._known: dict[ir.Value, str] = {}
        self._seen: dict[ir.Operation, list[str | None]] = {}
        for block in _blocks(function):
            for i, argument in enumerate(block.arguments):
                self._note(_raw(argument), self._argument(i))
        before: dict[ir.Value, str] | None = None
        while before != self._known:
            before = dict(self._known)
            for block in _blocks(function):
                self._block(block)

    def of(self, value: Any) -> str:
        """What is known of a value, or of a number that is no value."""
        value = getattr(value, "value", value)
        return (
            self._constant(int(value)) if isinstance(value, (bool, int)) else self._known.get(_raw(value), self.differs)
        )

    def _note(self, value: ir.Value, found: str | None) -> None:
        before = self._known.get(value)
        joined = found if before is None else before if found in (None, before) else self._either({before, found})
        if joined is not None:
            self._known[value] = joined

    def _block(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            if len(op.regions):
                self._region(op)
                continue
            found = [self._known.get(v) for v in _operands(op)]
            if found != self._seen.get(op):
                self._seen[op] = found
                for result in map(_raw, op.results):
                    self._note(result, self._result(op, result, found))

    def _region(self, op: ir.Operation) -> None:
        if op.name == "scf.if" and (taken := _decided(_operands(op)[0])) is not None:
            block = op.regions[not taken].blocks[0] if len(op.regions[not taken].blocks) else None
            if block is not None and len(block.operations):
                self._block(block)
                for result, value in zip(op.results, _operands(_terminator(block)), strict=True):
                    self._note(_raw(result), self._known.get(value))
            return
        for inner in _blocks(op):
            self._block(inner)
        known = [self._known.get(v) for v in _parting(op)]
        if not known or (None not in known and not self._enters(op, known)):
            for value in (*(v for b in _blocks(op) for v in b.arguments), *op.results):
                self._note(_raw(value), self.differs)
            return
        if op.name == "scf.for" and None not in known:
            self._note(_raw(_blocks(op)[0].arguments[0]), self._counter(*known))
        for value, other in _edges(op):
            known = self._known.get(other)
            self._note(value, None if known is None else self._handed(op, value, other, known))

    def _result(self, op: ir.Operation, result: ir.Value, found: list[str | None]) -> str | None:
        if op.name == "arith.constant":
            return self._constant(_constant(op))
        if op.name == "arith.cmpi" and (decided := _decided(result)) is not None:
            return self._constant(decided)
        if _OF_NUMBERS.match(str(result.type)) and not _holes(result):
            return self._constant(_number(result))
        if (of_block := _OF_BLOCK.match(op.name)) is not None:
            return self._of_block(*of_block.groups())
        return None if None in found else self._made(op, result, found)

    def _argument(self, number: int) -> str:
        raise NotImplementedError

    def _either(self, found: set[str]) -> str:
        raise NotImplementedError

    def _constant(self, number: int | None) -> str:
        raise NotImplementedError

    def _of_block(self, what: str, axis: str | None) -> str:
        raise NotImplementedError

    def _enters(self, op: ir.Operation, known: list[str]) -> bool:
        """Whether anything is known behind what decides about regions."""
        raise NotImplementedError

    def _counter(self, first: str, last: str, step: str) -> str:
        raise NotImplementedError

    def _handed(self, op: ir.Operation, value: ir.Value, other: ir.Value, known: str) -> str:
        """What is known of a value that control flow makes of another one."""
        return known

    def _made(self, op: ir.Operation, result: ir.Value, found: list[str]) -> str:
        raise NotImplementedError


class _Ranks(_Flowing):
    """Of a kernel whose CTAs are pairs along an axis of an even grid: its arguments are the same in both, those of the
    numbers `even` are even."""

    differs = DIFFERS

    def __init__(self, function: ir.Operation, axis: str, even: frozenset[int]) -> None:
        self.axis, self.even, self._written = axis, even, _writes_global(function)
        super().__init__(function)

    def same(self, value: Any) -> bool:
        return self.of(value) in (EVEN, SAME)

    def together(self, op: ir.Operation, where: tuple[str, int], what: str) -> None:
        """Both CTAs come to a place, and equally often.

        Raises:
            _Left: nobody knows whether they do.
        """
        for parent in _around(op, self.function):
            if not _parting(parent) or not self._enters(parent, [self.of(v) for v in _parting(parent)]):
                raise _Left(_line(parent, where), f"the two CTAs of a pair may come to {what} at different times")

    def _argument(self, number: int) -> str:
        return EVEN if number in self.even else SAME

    def _either(self, found: set[str]) -> str:
        return SAME if found == {EVEN, SAME} else DIFFERS

    def _constant(self, number: int | None) -> str:
        return EVEN if number is not None and number >= 0 and number % 2 == 0 else SAME

    def _enters(self, op: ir.Operation, known: list[str]) -> bool:
        # A loop that begins with one more has as many turns in steps of two.
        return {EVEN, SAME} >= set(known) or (op.name == "scf.for" and known == [OTHER, EVEN, EVEN])

    def _counter(self, first: str, last: str, step: str) -> str:
        return SAME if first == EVEN and step != EVEN else first

    def _of_block(self, what: str, axis: str | None) -> str:
        if what == "nctaid":
            return EVEN if axis == self.axis else SAME
        if what.startswith("cluster.ctarank") or (what in ("ctaid", "cluster.ctaid") and axis == self.axis):
            return OTHER
        return SAME if what in ("ctaid", "clusterid", "nclusterid") else DIFFERS

    def _made(self, op: ir.Operation, result: ir.Value, found: list[str]) -> str:
        name, operands = op.name, _operands(op)
        if _ALIKE.match(name):
            return SAME
        if DIFFERS in found:
            return DIFFERS
        if name in _LOADS:
            return self._loaded(op, found)
        if name in _PASSED_ON and len(found) == 1:
            return found[0]
        if name == "nvvm.shfl.sync" and OTHER not in (found[0], *found[2:]):
            return found[1]
        if name == "cute.size" and (tuple_ := _owner(operands[0])) is not None and tuple_.name in _TUPLES:
            # a product of sizes
            if OTHER in found:
                return OTHER if _is_one(operands[0]) else DIFFERS
            return EVEN if EVEN in [self.of(v) for v in _operands(tuple_)] else SAME
        if name == "cute.fast_divmod.compute" and found == [OTHER, EVEN]:
            return OTHER if ir.OpResult(result).result_number else SAME
        known = self._arithmetic(op, *found) if len(found) == 2 else ""
        pure = name.startswith(_PURE) or (name == "llvm.inline_asm" and _is_pure(op))
        return known or (SAME if pure and OTHER not in found else DIFFERS)

    def _loaded(self, op: ir.Operation, found: list[str]) -> str:
        """Global memory that the kernel does not write is the same for both."""
        named = {a.name: str(a.attr) for a in (op.attributes[i] for i in range(len(op.attributes)))}
        plain = not any("volatile" in n or ("ordering" in n and not a.startswith("0")) for n, a in named.items())
        known = plain and not self._written and _space(_operands(op)[0]) == "gmem"
        return SAME if known and OTHER not in found else DIFFERS

    def _arithmetic(self, op: ir.Operation, one: str, other: str) -> str:
        """What keeps an even number and the one behind it apart, or brings them together; nothing where that is not
        known. Positions are not below zero."""
        name = op.name
        numbers = [_number(v) for v in _operands(op)]
        if name in ("arith.addi", "cute.tuple_add"):
            if OTHER in (one, other):
                return OTHER if EVEN in (one, other) else DIFFERS
            return EVEN if one == other == EVEN else SAME
        if name in ("arith.muli", "cute.tuple_mul"):
            if 0 in numbers:
                return EVEN
            if 1 in numbers:
                return (one, other)[numbers.index(1) == 0]
            known = one == other == EVEN or any(n is not None and n >= 0 and EVEN in (one, other) for n in numbers)
            return DIFFERS if OTHER in (one, other) else EVEN if known else SAME
        if name in _QUOTIENTS:
            return one if numbers[1] == 1 else SAME if (one, other) == (OTHER, EVEN) else ""
        if name in _REMAINDERS:
            return EVEN if numbers[1] == 1 else one if other == EVEN else ""
        if name == "arith.cmpi" and (one, other) == (OTHER, EVEN):
            number = int(re.match(r"\d+", str(op.attributes["predicate"]))[0])
            return SAME if number in (*_BELOW, *_NOT_BELOW) else DIFFERS
        return ""


def _is_one(tuple_: ir.Value) -> bool:
    """Whether the product of a tuple is that of the numbers that its type does not say."""
    return all(leaf == "1" or leaf.startswith("?") for leaf in re.findall(r"[^(),\s]+", _text(tuple_)))


def _decided(condition: ir.Value) -> bool | None:
    """What a condition is in every run: sizes and indices of the launch are not below zero."""
    op = _owner(condition)
    if op is None or op.name != "arith.cmpi":
        return None if op is None or op.name != "arith.constant" else bool(_constant(op))
    one, other = _operands(op)
    below = str(op.attributes["predicate"]).startswith("2 ") and _number(other) == 0
    return False if below and _is_position(one) else None


def _is_position(value: ir.Value) -> bool:
    op = _owner(value)
    if op is not None and op.name in ("arith.addi", "arith.muli"):
        return all(map(_is_position, _operands(op)))
    return op is not None and (bool(_OF_BLOCK.match(op.name)) or (_number(value) or -1) >= 0)


def _is_pure(op: ir.Operation) -> bool:
    return "has_side_effects" not in op.attributes and "%" not in str(op.attributes["asm_string"])


def _writes_global(function: ir.Operation) -> bool:
    """Whether threads write to global memory by themselves."""
    for op in _all_operations(function):
        if op.name in (*_REGISTER_STORES, "llvm.store", "cute.copy", "cute.ptr.store"):
            written = _operands(op)[2:] if op.name == "cute.copy" else _operands(op)
            if any(_space(v) in ("gmem", "generic") for v in written):
                return True
        elif "atomic" in op.name or (op.name == "llvm.inline_asm" and _WRITES.search(str(op.attributes["asm_string"]))):
            return True
    return False
