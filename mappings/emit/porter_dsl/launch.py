# --- launches of kernels whose CTAs can be pairs

import cutlass._mlir.dialects.cute_nvgpu as _cute_nvgpu_ir
from cutlass import utils
from cutlass.cute.nvgpu import cpasync
from cutlass.cutlass_dsl.cutlass import KernelLauncher



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
    """The launch of a kernel in pairs: the arguments of kernel and launch.

    Raises:
        _Left: what keeps the host's side from it.
    """

    def __init__(self, launcher: Any, trace: _Trace, pairing: _Pairing, config: dict[str, Any]) -> None:
        self.where = pairing.where
        self.arguments, self.keywords = list(launcher.func_args), dict(launcher.func_kwargs)
        self._tiles()
        self._atoms(trace, pairing)
        self.config = self._grid(config)

    def _each(self, kind: Any) -> list[tuple[Any, Any, Any]]:
        places = [*((self.arguments, i) for i in range(len(self.arguments))), *((self.keywords, k) for k in self.keywords)]
        return [(at, i, at[i]) for at, i in places if isinstance(at[i], kind)]

    def _tiles(self) -> None:
        """Both CTAs of a pair have a tile of the product, one below the other."""
        found = self._each(utils.PersistentTileSchedulerParams)
        if len(found) != 1:
            text = "its tiles are not those of one PersistentTileSchedulerParams among the kernel's arguments"
            raise _Left(self.where, text)
        at, i, params = found[0]
        if tuple(params._cluster_shape_mnk) != (1, 1, 1) or params._has_distinct_fallback:
            raise _Left(self.where, "it is launched in clusters already")
        rows = params.problem_shape_ntile_mnl[0]
        if not isinstance(rows, int):
            raise _Left(self.where, "how many rows of tiles the product has is known at run time only")
        if rows % 2:
            raise _Left(self.where, f"{rows} rows of tiles, and a pair takes two")
        at[i] = utils.PersistentTileSchedulerParams(
            params.problem_shape_ntile_mnl, (2, 1, 1), params.swizzle_size, params.raster_along_m
        )

    def _atoms(self, trace: _Trace, pairing: _Pairing) -> None:
        """Copies that count on the first CTA's mbarriers, of half of the rows of B."""
        with _scratch():
            kinds = [_raw(v).type for v in pairing.function.regions[0].blocks[0].arguments]
            every = [_operands(op)[-len(kinds) :] for op in trace.behind() if op.name.startswith("cuda.launch")]
            handed = next((values for values in every if [v.type for v in values] == kinds), None)
        if handed is None:
            raise _Left(self.where, "what the kernel is launched with is not known")
        for load in pairing.loads:
            value = handed[load.argument]
            found = [(at, i, a) for at, i, a in self._each(cute.CopyAtom) if _raw(a._trait.value) == value]
            if len(found) != 1:
                raise _Left(load.where, "the tensor map of a copy is no argument of the kernel by itself")
            at, i, atom = found[0]
            at[i] = self._atom(load, atom, value, load is pairing.b)

    def _atom(self, load: _Load, atom: Any, value: ir.Value, halved: bool) -> Any:
        op = _owner(value)
        if op is None or op.name != "cute_nvgpu.atom.make_non_exec_tiled_tma_load" or type(atom.op) is not cpasync.CopyBulkTensorTileG2SOp:
            raise _Left(load.where, "a copy whose tensor map is not made by make_tiled_tma_atom ahead of the launch")
        tensor, layout, tile = op.operands
        shape = _python(_text(_raw(tile)).partition(":")[0])
        if str(op.attributes["num_multicast"]).split()[0] != "1" or not isinstance(shape, tuple):
            raise _Left(load.where, "a copy to more than one CTA")
        if halved:
            half = (shape[0] // 2, *shape[1:])
            layout, tile = cute.composition(layout, half), cute.composition(tile, half)
        kind = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.TWO)
        more = {"tma_format": op.attributes["tma_format"]} if "tma_format" in op.attributes else {}
        values = map(_raw, (tensor, layout, tile))
        made = _cute_nvgpu_ir.atom_make_non_exec_tiled_tma_load(*values, kind._to_ir(), num_multicast=1, **more)
        return cute.CopyAtom(kind, type(atom._trait)(made[0]))

    def _grid(self, config: dict[str, Any]) -> dict[str, Any]:
        """As many CTAs, an even number."""
        cluster = config.get("cluster")
        if cluster is not None and tuple(cluster) != (1, 1, 1) or config.get("fallback_cluster") is not None:
            raise _Left(self.where, "it is launched in clusters already")
        if config.get("cooperative") or config.get("use_pdl"):
            raise _Left(self.where, "it is launched with other kernels in mind")
        ctas = math.prod(config["grid"]) if isinstance(config["grid"], (list, tuple)) else config["grid"]
        pairs = max(1, ctas // 2) if isinstance(ctas, int) else cutlass.max(ctas // 2, 1)
        return {**config, "grid": [2, 1, pairs], "cluster": [2, 1, 1]}


def _twice(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel is traced as it is launched; then once more, for pairs, if what was traced shows that it can be."""

    @functools.wraps(plain)
    def launch(launcher: Any, *arguments: Any, **keywords: Any) -> Any:
        global _in_pairs, _pairing
        trace, _pairing = _Trace(launcher), None
        found = plain(launcher, *arguments, **keywords)
        if not isinstance(_pairing, _Pairing):
            return found
        given = launcher.func_args, launcher.func_kwargs
        names = [field.name for field in dataclasses.fields(launcher.dsl.LaunchConfig)]
        try:
            with ir.InsertionPoint(trace.mark):
                host = _Host(launcher, trace, _pairing, dict(zip(names, arguments, strict=False)) | keywords)
        except _Left as left:
            _without(TRACED[-1], "pair", left)
            return found
        trace.undo()
        try:
            _in_pairs = True
            launcher.func_args, launcher.func_kwargs = tuple(host.arguments), host.keywords
            found = plain(launcher, **host.config)
        finally:
            _in_pairs = False
            launcher.func_args, launcher.func_kwargs = given
        if isinstance(_pairing, _Left):
            left = _pairing
            trace.undo()
            found = plain(launcher, *arguments, **keywords)
            _without(TRACED[-1], "pair", left)
        return found

    return launch


KernelLauncher.launch = _twice(KernelLauncher.launch)
