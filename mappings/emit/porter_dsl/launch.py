# --- launches of kernels whose CTAs can be pairs

_TILED_LOAD = cute.nvgpu.cpasync.CopyBulkTensorTileG2SOp
_LAUNCHER = cutlass.cutlass_dsl.cutlass.KernelLauncher


class _Trace:
    """What a launch adds to the program that is being traced, so that it can be taken back."""

    def __init__(self, launcher: Any) -> None:
        self.launcher, self.told = launcher, len(TRACED)
        block = ir.InsertionPoint.current.block
        self.module = block.owner.operation
        while self.module.parent is not None:
            self.module = self.module.parent.operation
        self.mark = arith.ConstantOp(T.i32(), ir.IntegerAttr.get(T.i32(), 0)).operation
        self.kernels, self.end = self._kernels(), ir.InsertionPoint.current.ref_operation

    def _kernels(self) -> list[ir.Operation]:
        found = [v.operation for v in self.module.regions[0].blocks[0].operations if v.operation.name == "gpu.module"]
        return [view.operation for one in found for b in _blocks(one) for view in b.operations]

    def behind(self) -> list[ir.Operation]:
        """The operations of the host's code that were added."""
        every = [view.operation for view in self.mark.block.operations]
        last = len(every) if self.end is None else every.index(self.end.operation)
        return every[every.index(self.mark) + 1 : last]

    def undo(self) -> None:
        _operands.cache_clear()
        for op in reversed(self.behind()):
            op.erase()
        for op in [k for k in self._kernels() if k not in self.kernels]:
            self.launcher.dsl.kernel_info.pop(str(op.attributes["sym_name"]).strip('"'), None)
            op.erase()
        del TRACED[self.told :]


class _Host:
    """The launch of a kernel in pairs: the arguments of kernel and launch, and the `grid`. Each CTA does what it did.

    Raises:
        _Left: what keeps the host's side from it.
    """

    def __init__(self, launcher: Any, trace: _Trace, pairing: _Pairing, config: dict[str, Any]) -> None:
        self.where = pairing.where
        self.arguments, self.keywords = list(launcher.func_args), dict(launcher.func_kwargs)
        self.config = dict(config)
        axis, fewer = self._ctas()
        handed = self._handed(trace, pairing)
        self.grid = _Grid(axis, frozenset(i for i, value in enumerate(handed) if _is_even(value)), fewer)
        for load in pairing.loads:
            self._atom(load, handed[load.argument], load is pairing.b)

    def _ctas(self) -> tuple[str, bool]:
        """The axis of the grid, and whether it has one CTA less in pairs."""
        cluster = self.config.get("cluster")
        if self.config.get("fallback_cluster") or (cluster is not None and tuple(cluster) != (1, 1, 1)):
            raise _Left(self.where, "it is launched in clusters already")
        if self.config.get("cooperative") or self.config.get("use_pdl"):
            raise _Left(self.where, "its CTAs wait for each other, or for another kernel")
        given = self.config.get("grid", 1)
        grid = [*given] if isinstance(given, (list, tuple)) else [given]
        along = [i for i, n in enumerate(grid) if n != 1]
        if len(along) != 1 or not isinstance(grid[along[0]], int):
            text = "a grid of another form than so many CTAs along one axis, whose number is known when it is compiled"
            raise _Left(self.where, text)
        axis, count = along[0], grid[along[0]]
        grid[axis] = count // 2 * 2
        self.config |= {"grid": grid, "cluster": [2 if i == axis else 1 for i in range(3)]}
        return "xyz"[axis], count % 2 == 1

    def _handed(self, trace: _Trace, pairing: _Pairing) -> list[ir.Value]:
        """What the kernel is launched with."""
        with _scratch():
            kinds = [_raw(v).type for v in pairing.function.regions[0].blocks[0].arguments]
            every = [_operands(op)[-len(kinds) :] for op in trace.behind() if op.name.startswith("cuda.launch")]
            handed = next((values for values in every if [v.type for v in values] == kinds), None)
        if handed is None:
            raise _Left(self.where, "what the kernel is launched with is not known")
        return handed

    def _atom(self, load: _Load, value: ir.Value, halved: bool) -> None:
        """Copies that count on the first CTA's mbarriers, of half of the rows of B."""
        op = _owner(value)
        places = [
            (at, i) for at in (self.arguments, self.keywords) for i in (at if at is self.keywords else range(len(at)))
        ]
        places = [(at, i) for at, i in places if isinstance(at[i], cute.CopyAtom) and _raw(at[i]._trait.value) == value]
        if len(places) != 1 or op is None or op.name != "cute_nvgpu.atom.make_non_exec_tiled_tma_load":
            raise _Left(load.where, "the tensor map of a copy is no argument of the kernel by itself")
        (at, i), (tensor, layout, tile) = places[0], op.operands
        shape = _python(_text(_raw(tile)).partition(":")[0])
        if type(at[i].op) is not _TILED_LOAD or not isinstance(shape, tuple) or shape[0] % 2:
            raise _Left(load.where, "a copy to more than one CTA, or one of another kind")
        if halved:
            half = (shape[0] // 2, *shape[1:])
            layout, tile = cute.composition(layout, half), cute.composition(tile, half)
        kind = _TILED_LOAD(tcgen05.CtaGroup.TWO)
        more = {"tma_format": op.attributes["tma_format"]} if "tma_format" in op.attributes else {}
        values = map(_raw, (tensor, layout, tile))
        made = cutlass._mlir.dialects.cute_nvgpu.atom_make_non_exec_tiled_tma_load(
            *values, kind._to_ir(), num_multicast=1, **more
        )
        at[i] = cute.CopyAtom(kind, type(at[i]._trait)(made[0]))


def _is_even(value: ir.Value) -> bool:
    """Whether a number, or what divides by it, is even."""
    op = _owner(value)
    while op is not None and op.name in ("cute.fast_divmod.create_divisor", "arith.extsi", "arith.index_cast"):
        value = _operands(op)[0]
        op = _owner(value)
    number = _number(value)
    return number is not None and number >= 0 and number % 2 == 0


def _twice(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel is traced as it is launched; then once more, for pairs, if what was traced shows that it can be."""

    @functools.wraps(plain)
    def launch(launcher: Any, *arguments: Any, **keywords: Any) -> Any:
        global _pairing
        trace, _pairing = _Trace(launcher), None
        try:
            found = plain(launcher, *arguments, **keywords)
            if not isinstance(_pairing, _Pairing):
                return found
            names = [field.name for field in dataclasses.fields(launcher.dsl.LaunchConfig)]
            try:
                with ir.InsertionPoint(trace.mark):
                    host = _Host(launcher, trace, _pairing, dict(zip(names, arguments, strict=False)) | keywords)
            except _Left as left:
                _without(TRACED[-1], "pair", left)
                return found
            trace.undo()
            found = _paired(plain, launcher, host)
            if isinstance(_pairing, _Left):
                left = _pairing
                trace.undo()
                found = plain(launcher, *arguments, **keywords)
                _without(TRACED[-1], "pair", left)
            return found
        finally:
            _pairing = None
            trace.mark.erase()

    return launch


def _paired(plain: Callable[..., Any], launcher: Any, host: _Host) -> Any:
    """The launch with the arguments of pairs."""
    global _grid
    given = launcher.func_args, launcher.func_kwargs
    try:
        _grid = host.grid
        launcher.func_args, launcher.func_kwargs = tuple(host.arguments), host.keywords
        return plain(launcher, **host.config)
    finally:
        _grid = None
        launcher.func_args, launcher.func_kwargs = given


_LAUNCHER.launch = _twice(_LAUNCHER.launch)
