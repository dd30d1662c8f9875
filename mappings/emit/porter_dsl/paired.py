# --- one thread multiplies for both CTAs of a pair

_BOTH = 3
"""The ranks of a pair in its cluster, as a mask."""


class _Paired:
    """CTAs with tiles of the same columns are a pair: its first CTA issues MMAs of 256 rows, of which each has its own
    in its Tensor Memory. Each loads its rows of A and half of the rows of B, all of whose bytes count on the mbarriers
    of the first. Part of an emitter in which a warp of its own multiplies."""

    rows = 256
    group = nvvm.CTAGroupKind.CTA_2
    pairing: _Halves
    more = 1

    def run(self) -> None:
        first = self.kernel.events[0].marker
        with ir.InsertionPoint.at_block_begin(self.program.function.regions[0].blocks[0]), first.location:
            self.rank = _here(cute.arch.block_idx_in_cluster)
        super().run()
        self._load_halves()
        with ir.InsertionPoint(self.pairing.first), self.pairing.first.location:
            self._all()

    # --- Tensor Memory, and who is there

    def _prologue(self) -> None:
        self._all()
        super()._prologue()

    def _shared_memory(self, barriers: int) -> tuple[Any, Any]:
        found = super()._shared_memory(barriers)
        self.last = self.free + self.buffers
        with _if(cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0), cute.arch.elect_one():
            _here(cute.arch.mbarrier_init, self.last, 1)
        return found

    def _allocate(self) -> None:
        _here(cute.arch.alloc_tmem, self.columns, self.holder, True)
        _here(cute.arch.relinquish_tmem_alloc_permit, True)

    def _free(self) -> None:
        pointer = _here(cute.arch.retrieve_tmem_ptr, cutlass.Float32, 16, self.holder)
        _here(cute.arch.dealloc_tmem, pointer, self.columns, True)

    def _all(self) -> None:
        _here(cute.arch.cluster_arrive)
        _here(cute.arch.cluster_wait)

    def _wait(self, barrier: Any, phase: Any) -> None:
        _asm("{\n.reg .pred complete;\nWAIT:\n"
             "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 complete, [$0], $1;\n"
             "@!complete bra WAIT;\n}", barrier.toint(), phase)  # fmt: skip
        nvvm.tcgen05_fence(AFTER)

    # --- what each of both is told

    def _multiplies(self, warp: Any) -> Any:
        return super()._multiplies(warp) & (self.rank == 0)

    def _last(self, warp: Any) -> None:
        """Neither CTA ends while an arrival may be on its way to it: that of the last commit comes last."""
        with _if(self._multiplies(warp)), cute.arch.elect_one():
            self._complete(self.last)
        with _if(warp == self.apart.warp):
            self._wait(self.last, 0)

    def _commit_to(self, pointer: ir.Value) -> None:
        nvvm.tcgen05_commit(pointer, multicast_mask=cutlass.Int16(_BOTH).ir_value(), group=self.group)

    def _complete(self, barrier: Any) -> None:
        with _if(self.sent[0] != 0):
            _here(tcgen05.commit, barrier, _BOTH, tcgen05.CtaGroup.TWO)
        with _if(self.sent[0] == 0):
            for rank in range(2):
                _arrive(barrier, rank)

    def _readers(self) -> int:
        return 2 * super()._readers()

    def _read(self, barrier: Any) -> None:
        _arrive(barrier, 0)

    # --- loads

    def _load_halves(self) -> None:
        """The first CTA waits for the bytes of both. Each loads the piece of B of its rank, to where the first lies."""
        a, b, expected = self.pairing.a, self.pairing.b, self.pairing.expected
        with ir.InsertionPoint(expected), expected.location, _if(self.rank == 0):
            count = cutlass.Int32(2 * a.bytes + b.bytes).ir_value()
            made = expected.clone(ir.InsertionPoint.current)
            made.operands[1] = count
        expected.erase()
        with ir.InsertionPoint(b.op), b.op.location:
            source, target = _piece(b.source, self.rank), _piece(b.target, 0)
            b.op.operands[1], b.op.operands[2] = _raw(source), _raw(target)


def _piece(view: ir.Value, number: Any) -> Any:
    """One of the pieces that a view has behind each other, as a view of one."""
    whole = _Tensor(view)
    (box, _), others = _python(_text(view).partition(":")[0])
    layout = cute.composition(whole.layout, ((box, 1), others))
    return cute.make_tensor(whole[(None, number), None].iterator, layout)


def _arrive(barrier: Any, rank: int) -> None:
    """Arrives at this place in a CTA of the pair."""
    _asm("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, $0, $1;\n"
         "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}", barrier.toint(), rank)  # fmt: skip


def _asm(text: str, *operands: Any) -> None:
    values = [cutlass.Int32(o).ir_value() for o in operands]
    llvm.inline_asm(None, values, text, ",".join("r" for _ in values), has_side_effects=True)


class _JoinedPaired(_Paired, _JoinedApart):
    """Two warpgroups in each CTA."""


class _StackedPaired(_Paired, _StackedApart):
    """Two tiles of a warpgroup in each CTA."""


def _detached(told: dict[str, Any], kind: type[_Wide], parts: dict[str, Any], program: _Program, *more: Any) -> _Wide:
    """The emitter of a kind, in which a warp of its own multiplies, for both CTAs of a pair if the kernel is traced for
    that; `parts` are what it is made of."""
    global _pairing
    made = {_Joined: _JoinedApart, _Stacked: _StackedApart}[kind]
    try:
        if _grid is None:
            _pairing = _Pairing(program, parts["release"], parts["apart"])
        else:
            parts = {**parts, "pairing": _Halves(program, parts["release"], parts["apart"], _grid)}
            made = {_Joined: _JoinedPaired, _Stacked: _StackedPaired}[kind]
            told["steps"].append("pair")
    except _Left as left:
        _pairing = left
        _without(told, "pair", left)
    return _with_parts(made, parts, program, *more)


_pairing: _Pairing | _Left | None = None
"""Of the last kernel with a warp of its own for its MMAs: that, or what keeps its CTAs from being pairs."""
