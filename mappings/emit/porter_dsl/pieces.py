# --- sums and operands of two warpgroups that take few registers at a time


_Piece = tuple[_Part, int, int, list[ir.Operation]]
"""Columns of a sum, and what is done with their registers."""


def _pieces_of(item: _Item) -> list[_Piece]:
    """Those of an access that goes through few registers at a time."""
    return getattr(item, "pieces", [])


def _at_once(item: _Item) -> bool:
    """Whether an access puts an operand A into its slots, which no MMA reads then."""
    return getattr(item, "staged", False) and item.before[item.array, "read"] <= {DONE, NEVER}


def _to_slots(emitter: _Emitter, item: _Item) -> None:
    """An operand A from its registers to Tensor Memory, behind what writes it."""
    array = item.array
    with ir.InsertionPoint.after(item.op), item.op.location:
        words = cute.recast_ptr(_Tensor(array.value).iterator, dtype=cutlass.Int32)
        for at, slot in array.slots.items():
            four = cute.make_tensor(words + at // 32, cute.make_layout(4))
            where = _tensor_memory(emitter.quarter + array.column + array.width + 8 * slot)
            nvvm.tcgen05_st(nvvm.Tcgen05LdStShape.SHAPE_16X128B, where, four.load().ir_value())
        _here(cute.arch.fence_view_async_tmem_store)


def _in_pieces(emitter: _Emitter, item: _Item) -> None:
    """Each piece is loaded, where Tensor Memory has it, changed, and stored ahead of the next."""
    for number, (part, start, stop, operations) in enumerate(_pieces_of(item)):
        states, piece = item.before[part], _Part(part.array, start, stop, part.bits)
        memory = _in_memory(states)
        with ir.InsertionPoint(operations[0]), operations[0].location:
            if any(s != DONE for s in memory):
                emitter._wait_for_last(part.group[0])
            if memory:
                with _if(part.newer[0] != 0 if states != set(memory) else True):
                    moved = emitter._move(piece, False)
                    _here(cute.arch.fence_view_async_tmem_load)
                    for words, got in moved:
                        words.store(cute.TensorSSA(got, (cute.size(words),), cutlass.Int32))
        with ir.InsertionPoint.after(operations[-1]), operations[-1].location:
            emitter._move(piece, True)
            if number == len(_pieces_of(item)) - 1:
                _here(cute.arch.fence_view_async_tmem_store)
                for one in item.array.parts:
                    one.note(1, 1)
