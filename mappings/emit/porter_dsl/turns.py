# --- consumers that take turns at the tensor core

_MBARRIER_WAITS = ("nvvm.mbarrier.try_wait", "nvvm.mbarrier.wait")
_SEEN = ("nvvm.", "cute.copy", "cute.prefetch", "cute.gemm", "llvm.")
"""Operations of which some wait for threads, or use memory that others see."""


@dataclasses.dataclass(eq=False)
class _TurnOfOne:
    """Statements by which a consumer waits until the other one has issued its MMAs, up to the `arrival` behind its own
    MMAs that lets the other one go on. `made` are their values; `multiplies`: MMAs stand between, `seen`: and something
    else that other threads can see."""

    waits: list[ir.Operation]
    made: set[ir.Value]
    arrival: ir.Operation | None = None
    multiplies: bool = False
    seen: bool = False

    def give_way(self) -> None:
        """Wait behind the MMAs: both consumers meet ahead of them, so that one would wait for the other for good."""
        for op in self.waits:
            op.move_before(self.arrival)


def _turns_at_mbarriers(program: _Program, same: _Same) -> list[_TurnOfOne]:
    """The turns that two consumers take for their MMAs. Each waits on an mbarrier of its own and arrives on that of the
    other one, and between both it issues MMAs and does nothing else that another thread could see.

    Raises:
        _Left: in a turn they do more.
    """
    markers = {e.marker: e for e in program.kernel.events}
    blocks: dict[ir.Block, None] = {}
    where: tuple[str, int] = ("", 0)
    for event in program.kernel.events:
        if event.kind == "mma":
            block, where = event.marker.block, event.where
            blocks[block] = None
            while (op := block.owner.operation) != program.function:
                block = op.block
                blocks[block] = None
    found = [t for block in blocks for t in _turns_in(block, markers, same)]
    for turn in found:
        if turn.seen:
            text = "its consumers take turns at mbarriers, in which they do more than to multiply"
            raise _Left(_line(turn.waits[0], where), text)
    return found


def _turns_in(block: ir.Block, markers: dict[ir.Operation, _Event], same: _Same) -> Iterator[_TurnOfOne]:
    """Turns with MMAs whose wait and arrival are statements of a block."""
    begun: list[_TurnOfOne] = []
    for op in [view.operation for view in block.operations]:
        every = [op, *_all_operations(op)]
        of = next((t for t in begun if any(v in t.made for o in every for v in _operands(o))), None)
        if of is not None and all(map(_only_waits, every)):
            of.waits.append(op)
            of.made.update(map(_raw, op.results))
            continue
        if op.name == "nvvm.mbarrier.arrive":
            for turn in [t for t in begun if _each_for_the_other(t.waits[0], op, same)]:
                begun.remove(turn)
                turn.arrival = op
                if turn.multiplies:
                    yield turn
        for turn in begun:
            turn.multiplies = turn.multiplies or any(o in markers and markers[o].kind == "mma" for o in every)
            turn.seen = turn.seen or turn is of or not all(_is_unseen(o, markers) for o in every)
        if op.name.startswith(_MBARRIER_WAITS):
            begun.append(_TurnOfOne([op], set(map(_raw, op.results))))


def _only_waits(op: ir.Operation) -> bool:
    return op.name.startswith((*_MBARRIER_WAITS, "scf.", "arith."))


def _is_unseen(op: ir.Operation, markers: dict[ir.Operation, _Event]) -> bool:
    """Whether an operation neither waits for other threads nor changes or reads what they may change."""
    if op in markers:
        return markers[op].kind in ("fence", "mma", "commit")
    if op.name in _LOADS or op.name.startswith(("cute.memref.store", "cute.ptr.store")):
        return any("rmem" in str(v.type) for v in _operands(op))
    return op.name.startswith(("scf.", *_PURE)) and not op.name.startswith(_SEEN)


def _each_for_the_other(wait: ir.Operation, arrival: ir.Operation, same: _Same) -> bool:
    """Whether a consumer waits where the other one arrives."""
    (array, own), (other_array, others) = (_mbarrier_of(_operands(op)[0], same) for op in (wait, arrival))
    return array == other_array and own is not None and own[0] != own[1] and own[::-1] == others


def _mbarrier_of(pointer: ir.Value, same: _Same) -> tuple[ir.Value, list[int] | None]:
    """A pointer of which all others are made by adding, and how far behind it each consumer's mbarrier lies."""
    far = [0 for _ in same.threads]
    while (op := _owner(pointer)) is not None and op.name in ("cute.add_offset", "builtin.unrealized_conversion_cast"):
        pointer, *moved = _operands(op)
        for value in moved:
            numbers = [_filled(value, n) for n in same.in_each(value) or ()]
            if not numbers or not all(isinstance(n, int) for n in numbers):
                return pointer, None
            far = [a + b for a, b in zip(far, numbers, strict=True)]
    return pointer, far if same.holds(pointer) else None
