# --- what the two CTAs of a pair have in common

EVEN, SAME, OTHER, DIFFERS = "even", "same", "one more", "differs"
"""What threads of the same number have in both CTAs: the same even number, not below zero; the same; an even number and,
in the second CTA, one more; nobody knows what."""

_OF_BLOCK = re.compile(r"nvvm\.read\.ptx\.sreg\.(n?ctaid|n?clusterid|cluster\.\w+)(?:\.([xyz]))?$")
_ALIKE = re.compile(r"nvvm\.read\.ptx\.sreg\.(n?tid\.[xyz]|laneid|warpid)$|nvvm\.elect\.sync$")
_PASSED_ON = ("arith.extsi", "arith.extui", "arith.index_cast", "arith.trunci", "cute.make_int_tuple", "cute.make_coord",
              "cute.get_leaves", "cute.get_scalars", "nvvm.shfl.sync", _UNIFORM)  # fmt: skip
_BELOW, _NOT_BELOW = (2, 6), (5, 9)
"""Predicates of arith.cmpi: slt, ult; sge, uge."""


def _either(one: str | None, other: str | None) -> str | None:
    """What a value is that may be one or the other of two."""
    if one == other or other is None:
        return one
    if one is None:
        return other
    return SAME if {one, other} == {EVEN, SAME} else DIFFERS


class _Ranks:
    """Values of a kernel whose CTAs are pairs along x, in a grid that is even there. A value is what flows to it, from
    nothing on until that changes no more."""

    def __init__(self, program: _Program) -> None:
        self.function = program.function
        self._written = _writes_global(program.function)
        self._known: dict[ir.Value, str] = {}
        self._seen: dict[ir.Operation, list[str | None]] = {}
        before: dict[ir.Value, str] | None = None
        while before != self._known:
            before = dict(self._known)
            for block in _blocks(self.function):
                for argument in block.arguments:
                    self._note(_raw(argument), SAME)
                self._block(block)

    def of(self, value: Any) -> str:
        value = getattr(value, "value", value)
        if isinstance(value, (bool, int)):
            return SAME
        return self._known.get(_raw(value), DIFFERS)

    def same(self, value: Any) -> bool:
        return self.of(value) in (EVEN, SAME)

    def together(self, op: ir.Operation, where: tuple[str, int], what: str) -> None:
        """Both CTAs come to a place, and equally often.

        Raises:
            _Left: nobody knows whether they do.
        """
        for parent in _around(op, self.function):
            if not _parting(parent) or not all(map(self.same, _parting(parent))) and not self._counts(parent):
                raise _Left(_line(parent, where), f"the two CTAs of a pair may come to {what} at different times")

    def _counts(self, op: ir.Operation) -> bool:
        """Whether a loop has as many turns where it begins with one more."""
        found = [self.of(v) for v in _parting(op)]
        return op.name == "scf.for" and found == [OTHER, EVEN, EVEN]

    def _note(self, value: ir.Value, found: str | None) -> None:
        joined = _either(self._known.get(value), found)
        if joined is not None:
            self._known[value] = joined

    def _block(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            if len(op.regions):
                self._region(op)
            elif (found := [self._known.get(v) for v in _operands(op)]) != self._seen.get(op):
                self._seen[op] = found
                for result in map(_raw, op.results):
                    self._note(result, self._result(op, result, found))

    def _region(self, op: ir.Operation) -> None:
        parting = _parting(op)
        for inner in _blocks(op):
            self._block(inner)
        known = [self._known.get(v) for v in parting]
        if not parting or (DIFFERS in known or OTHER in known) and not (op.name == "scf.for" and self._counts(op)):
            for value in (*(v for b in _blocks(op) for v in b.arguments), *op.results):
                self._note(_raw(value), DIFFERS)
            return
        if op.name == "scf.for" and None not in known:
            first, _, step = known
            self._note(_raw(_blocks(op)[0].arguments[0]), SAME if first == EVEN and step != EVEN else first)
        for value, other in _edges(op):
            self._note(value, self._known.get(other))

    def _result(self, op: ir.Operation, result: ir.Value, found: list[str | None]) -> str | None:
        name = op.name
        if name == "arith.constant":
            number = _constant(op)
            return EVEN if number is not None and number >= 0 and number % 2 == 0 else SAME
        if str(result.type).startswith("!cute.") and _is_number(result) and not _holes(result):
            # a number in its type
            numbers = re.fullmatch(r"\d+", _text(result))
            return EVEN if numbers and int(numbers[0]) % 2 == 0 else SAME
        if (of_block := _OF_BLOCK.match(name)) is not None:
            return self._of_block(*of_block.groups())
        if _ALIKE.match(name):
            return SAME
        if None in found:
            return None
        if DIFFERS in found:
            return DIFFERS
        if name in _LOADS:
            return self._loaded(op, found)
        if name in _PASSED_ON and len(set(found) - {SAME, EVEN}) <= 1:
            return found[0] if len(found) == 1 or name == "nvvm.shfl.sync" and OTHER not in found[2:] else _mixed(found)
        if len(found) == 2 and (known := self._arithmetic(op, *found)):
            return known
        if OTHER in found or not (name.startswith(_PURE) or name == "llvm.inline_asm" and _is_pure(op)):
            return DIFFERS
        return SAME

    def _of_block(self, what: str, axis: str | None) -> str:
        if what == "ctaid" and axis == "x" or what.startswith("cluster.ctarank") or what == "cluster.ctaid" and axis == "x":
            return OTHER
        if what in ("ctaid", "nctaid", "clusterid", "nclusterid") or what.startswith("cluster.n"):
            return EVEN if what == "nctaid" and axis == "x" else SAME
        return DIFFERS

    def _loaded(self, op: ir.Operation, found: list[str | None]) -> str:
        """Global memory that the kernel does not write is the same for both."""
        named = {a.name: str(a.attr) for a in (op.attributes[i] for i in range(len(op.attributes)))}
        plain = not any("volatile" in n or ("ordering" in n and not a.startswith("0")) for n, a in named.items())
        known = plain and not self._written and _space(_operands(op)[0]) == "gmem"
        return SAME if known and OTHER not in found else DIFFERS

    def _arithmetic(self, op: ir.Operation, one: str, other: str) -> str:
        """Of numbers that are no more than positions, what keeps an even one and the one behind it apart or brings them
        together; nothing where that is not known."""
        name = op.name
        if name in ("arith.addi", "cute.tuple_add"):
            if OTHER in (one, other):
                return OTHER if EVEN in (one, other) else DIFFERS
            return EVEN if one == other == EVEN else SAME
        if name in ("arith.muli", "cute.tuple_mul"):
            sizes = {one, other}
            if OTHER in sizes:
                number = _number(_operands(op)[0 if other == OTHER else 1])
                return OTHER if number == 1 else DIFFERS
            positive = one == other == EVEN or any(e == EVEN and (_number(v) or -1) >= 0 for e, v in
                                                   zip((other, one), _operands(op), strict=True))  # fmt: skip
            return EVEN if positive else SAME
        if name in ("arith.floordivsi", "arith.divsi", "arith.divui", "cute.tuple_div") and one == OTHER:
            if _number(_operands(op)[1]) == 1:
                return OTHER
            return SAME if other == EVEN else DIFFERS
        if name in ("arith.remsi", "arith.remui", "cute.tuple_mod"):
            if _number(_operands(op)[1]) == 1:
                return EVEN
            if other == EVEN:
                return one
        if name == "arith.cmpi" and (one, other) == (OTHER, EVEN):
            number = int(re.match(r"\d+", str(op.attributes["predicate"]))[0])
            return SAME if number in (*_BELOW, *_NOT_BELOW) else DIFFERS
        return ""


def _mixed(found: list[str | None]) -> str:
    return DIFFERS if OTHER in found else SAME


def _is_number(value: ir.Value) -> bool:
    return bool(_LAYOUT_ONLY.match(str(value.type)))


def _number(value: ir.Value) -> int | None:
    """The number that a value is in every run."""
    op = _owner(value)
    if op is not None and op.name == "arith.constant":
        return _constant(op)
    found = re.fullmatch(r"\d+", _text(value)) if str(value.type).startswith("!cute.") else None
    return None if found is None else int(found[0])


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
