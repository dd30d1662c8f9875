# --- where in shared memory something lies

_IN_SHARED = re.compile(r"!cute\.(memref|ptr)<[^,]*,\s*smem\b|!cute_nvgpu\.smem_desc|!llvm\.ptr<3>")
_STAYS = (*_SAME_START, "cute.recast_iter", "cute.group_modes", "cute.mma.make_fragment")
"""Operations whose result begins where the shared memory begins that they are handed."""
_ONE_NUMBER = ("cute.make_int_tuple", "cute.make_coord", "arith.extsi", "arith.extui", "arith.index_cast",
               "arith.trunci")  # fmt: skip
_WRITES_SHARED = re.compile(
    r"nvvm\.(stmatrix|cp\.async\.(bulk\.)?(tensor\.)?shared|atomicrmw|red\b|st\b|store\b)|llvm\.(atomicrmw|cmpxchg)"
)
_ASM_WRITES_SHARED = re.compile(r"\b(st|stmatrix|cp\.async|cp\.reduce|red|atom)\b(?![^;]*\.global[.\s])")


@dataclasses.dataclass(frozen=True)
class _Spot:
    """A place in shared memory: `start` bytes behind what `root` allocates, and if it `moves` further by what no number
    says."""

    root: ir.Value
    start: int
    moves: bool

    def field(self) -> tuple[ir.Value, int]:
        """What of the allocated memory has a name of its own."""
        op = _owner(self.root)
        named = str(op.attributes["smem.struct_fields"]) if "smem.struct_fields" in op.attributes else ""
        fields = [(int(begin), int(size)) for size, begin in re.findall(r':(\d+):(\d+)"', named)]
        return self.root, next((b for b, size in fields if b <= self.start < b + size), 0)


def _spot(value: ir.Value, through: frozenset = frozenset()) -> _Spot | None:
    """Where a view or a pointer of shared memory begins, if it is the same by all ways `through` control flow; None if
    nobody knows."""
    start, moves = 0, False
    while (op := _owner(value)) is None or op.name != "cute.memref.alloca":
        if op is None or len(op.regions):
            spots = _handed_on(value, through)
            if len(spots) != 1 or None in spots:
                return None
            (spot,) = spots
            return _Spot(spot.root, spot.start + start, spot.moves or moves)
        made_of = [v for v in _operands(op) if _IN_SHARED.match(str(v.type))]
        if len(made_of) != 1:
            return None
        if op.name == "cute.add_offset":
            unit = _unit(value)
            if unit is None:
                return None
            number, further = _further(_operands(op)[1])
            start, moves = start + number * unit, moves or further
        elif op.name not in _STAYS:
            moves = True
        value = made_of[0]
    return _Spot(value, start, moves)


def _handed_on(value: ir.Value, through: frozenset) -> set[_Spot | None]:
    """The places of what control flow makes a value of."""
    op = value.owner.owner.operation if isinstance(value.owner, ir.Block) else _owner(value)
    if op.name == "cuda.kernel" or value in through:
        return {None} if value not in through else set()
    return {_spot(other, through | {value}) for v, other in _edges(op) if v == value and other not in through | {value}}


def _further(value: ir.Value) -> tuple[int, bool]:
    """What of a sum is a number, and whether anything else is in it."""
    number, op = _number(value), _owner(value)
    if number is not None or op is None:
        return number or 0, number is None
    operands = _operands(op)
    if op.name in ("arith.addi", "cute.tuple_add") or (op.name in _ONE_NUMBER and len(operands) == 1):
        parts = [_further(v) for v in operands]
        return sum(n for n, _ in parts), any(more for _, more in parts)
    return 0, True


def _may_be(one: _Spot | None, other: _Spot | None) -> bool:
    """Whether two mbarriers may be the same; one of an array is no farther than its array goes."""
    return one is None or other is None or (one.root, one.start) == (other.root, other.start)


def _number(value: ir.Value) -> int | None:
    """The number that a value is in every run."""
    op = _owner(value)
    if op is not None and op.name == "arith.constant":
        return _constant(op)
    if op is not None and op.name == "arith.muli" and 0 in map(_number, _operands(op)):
        return 0
    found = re.fullmatch(r"\d+", _text(value)) if str(value.type).startswith("!cute.") else None
    return None if found is None else int(found[0])


def _space(value: ir.Value) -> str:
    """The memory that a tensor or a pointer is in; nothing for other values."""
    kind = str(value.type)
    found = re.match(r"!cute\.(?:memref|ptr)<[^,]*,\s*(\w+)", kind)
    if found is not None:
        return found[1]
    space = re.match(r"!llvm\.ptr(?:<(\d+)>)?$", kind)
    return "" if space is None else {"3": "smem", "5": "rmem", "1": "gmem"}.get(space[1], "generic")


def _barrier_of(copy: ir.Operation) -> ir.Value | None:
    """The mbarrier that the bytes of a copy count on."""
    found, atom = None, _owner(_operands(copy)[0])
    while atom is not None and atom.name == "cute_nvgpu.atom.set_value":
        if "tma_bar" in str(atom.attributes["field"]):
            found = _operands(atom)[1]
        atom = _owner(_operands(atom)[0])
    return found


def _written_there(op: ir.Operation) -> list[ir.Value | None]:
    """The shared memory that an operation writes to; None for some that nobody knows."""
    name = op.name
    if name == "llvm.inline_asm":
        return [None] if _ASM_WRITES_SHARED.search(str(op.attributes["asm_string"])) else []
    if name == "cute.copy":
        return [v for v in _operands(op)[2:3] if _IN_SHARED.match(str(v.type))]
    if name in (*_REGISTER_STORES, "cute.ptr.store"):
        return [v for v in _operands(op) if _IN_SHARED.match(str(v.type))]
    if name == "llvm.store" or _WRITES_SHARED.match(name):
        places = [v for v in _operands(op) if _space(v) in ("smem", "generic")]
        return [v if _space(v) == "smem" else None for v in places]
    return [None] if name in ("func.call", "llvm.call") else []
