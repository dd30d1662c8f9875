# --- two tiles of 64 rows below each other


class _Left(Exception):
    """Why the MMAs of a kernel stay at 64 rows, and where. `alone`: because one warpgroup runs them."""

    def __init__(self, where: tuple[str, int], text: str, alone: bool = False) -> None:
        super().__init__(text)
        self.where, self.text, self.alone = where, text, alone


UNKNOWN_ROWS = "how the rows of operand A lie in shared memory is not known, or they are not K-major"


def _unit(value: ir.Value) -> int | None:
    """Bytes of what a view or a pointer of shared memory counts in."""
    kind = str(value.type)
    if kind.startswith("!cute_nvgpu.smem_desc"):
        return 16
    found = re.match(r"!cute\.(?:memref|ptr)<\"?[A-Za-z]+(\d+)", kind)
    return None if found is None else max(int(found[1]), 8) // 8


def _apart(same: _Same, value: ir.Value) -> int | None:
    """Bytes from an operand in shared memory of the first warpgroup to that of the second; None if nobody knows."""
    if same.holds(value):
        return 0
    op = _owner(value)
    if op is None:
        return None
    operands = _operands(op)
    if op.name in (*_SAME_START, "cute.mma.make_fragment", "cute.group_modes"):
        number = 1 if op.name == "cute.mma.make_fragment" else 0
        others = operands[:number] + operands[number + 1 :]
        return _apart(same, operands[number]) if all(map(same.holds, others)) else None
    if op.name not in ("cute.slice", "cute.add_offset", "cute.tiled.mma.partition", "cute.local_tile"):
        return None
    view = operands[0 if op.name == "cute.local_tile" else -2]
    before, step, unit = _apart(same, view), _moved(same, op), _unit(view)
    return None if before is None or step is None or unit is None else before + step * unit


def _moved(same: _Same, op: ir.Operation) -> int | None:
    """By how much further a view of the second warpgroup begins than that of the first, of one and the same."""
    *_, view, moved = _operands(op)
    if op.name == "cute.tiled.mma.partition":
        return _row_of_slice(same, op)
    if same.holds(moved):
        return 0
    numbers = same.in_each(moved)
    if numbers is None:
        return None
    one, other = (_filled(moved, n) for n in numbers)
    if op.name == "cute.add_offset":
        return other - one if isinstance(one, int) else None
    if op.name == "cute.local_tile":
        tile, view = view, _operands(op)[0]
        one, other = (_begin_of_tile(tile, view, n) for n in (one, other))
        if one is None or other is None:
            return None
    layout = _layout(view)
    return None if layout is None else _index(other, *layout) - _index(one, *layout)


def _begin_of_tile(tile: ir.Value, view: ir.Value, place: Any) -> Any:
    """Where in a view the tile begins that has a place among its tiles; None if nobody knows."""
    found = re.fullmatch(r"\[((?:\d+:1;?)+)\]", _text(tile))
    sizes = [int(n.partition(":")[0]) for n in found[1].split(";")] if found is not None else []
    shape = (_layout(view) or (None,))[0]
    if not sizes or not isinstance(place, tuple) or not isinstance(shape, tuple) or len(place) != len(shape):
        return None
    if not all(n is None or isinstance(n, int) for n in place):
        return None
    return tuple(n if n is None else n * size for n, size in zip(place, sizes + [1] * len(place), strict=False))


def _row_of_slice(same: _Same, op: ir.Operation) -> int | None:
    """Elements between the slices of an operand that two warpgroups have of a tiled MMA."""
    mma, tensor, moved = _operands(op)
    layout = re.search(r'atom_layout_MNK = <"\((\d+),(\d+),(\d+)\):\((\d+),', str(mma.type))
    permutation = re.search(r'permutation_MNK = <"\[([^;]*);', str(mma.type))
    if layout is None or permutation is None or permutation[1] != "_" or not same.holds(mma):
        return None
    rows, *others = (int(n) for n in layout.groups()[:3])
    number = int(re.match(r"\d+", str(op.attributes["operand_id"]))[0])
    if others != [1, 1]:
        return None
    if number == 1 or rows == 1:
        return 0
    found = [same.warpgroup_of(moved, threads) for threads in same.threads]
    within = _layout(tensor)
    if None in found or within is None or number != 0:
        return None
    (shape, *_), (stride, *_) = within
    one, other = (_index(64 * (n % rows), shape, stride) for n in found)
    return other - one


def _rows_apart(event: _Event) -> int | None:
    """Bytes from the first row of an operand A of 64 rows to the one behind its last, for the strides that its
    descriptor has; None if nobody knows."""
    partition = _raw(event.a)
    while (op := _owner(partition)) is not None and op.name != "cute.tiled.mma.partition":
        name = op.name
        if name not in ("cute.slice", "cute.mma.make_fragment", *_SAME_START):
            return None
        partition = _operands(op)[1 if name == "cute.mma.make_fragment" else 0]
    layout, unit = (None, None) if op is None else (_layout(partition), _unit(partition))
    if layout is None or unit is None or str(event.mma.op.a_major_mode).endswith("MN"):
        return None
    ((rows, _), *_), ((stride, _), *_) = layout
    return 8 * _index(8, rows, stride) * unit if _size(rows) == 64 else None


def _line(op: ir.Operation, otherwise: tuple[str, int]) -> tuple[str, int]:
    """The line of the kernel that an operation is from. Branches and loops have that of the function that launches the
    kernel, so theirs is that of the first operation in them."""
    package = os.path.dirname(os.path.abspath(cutlass.__file__))
    inside = (o for o in _all_operations(op) if not o.name.startswith("scf."))
    for place in inside if len(op.regions) else [op]:
        for name, number in re.findall(r'"([^"]+)":(\d+):', str(place.location)):
            if os.path.isabs(name) and name != __file__ and not name.startswith(package):
                return name, int(number)
    return otherwise
