# --- CTAs that multiply in pairs

_OF_CLUSTER = re.compile(
    r"nvvm\.(cluster\.|mapa|griddepcontrol|clusterlaunchcontrol|st\.async|red\.async)|(llvm|func)\.call$"
)
_FULL = "nvvm.mbarrier.arrive.expect_tx"


@dataclasses.dataclass(frozen=True)
class _Grid:
    """CTAs along one axis, in pairs: two that follow each other. `even` are the numbers of those arguments of the
    kernel that are even; `fewer`: there is one CTA less than the kernel would have had."""

    axis: str
    even: frozenset[int]
    fewer: bool


_grid: _Grid | None = None
"""That of the kernel that is being traced, if it is launched in pairs."""


class _Load:
    """A copy by TMA that fills a part of a stage; `argument` is the number of the kernel's argument that its atom
    is."""

    def __init__(self, op: ir.Operation, where: tuple[str, int]) -> None:
        self.op, self.where = op, _line(op, where)
        self.atom, self.source, self.target = _operands(op)[:3]
        self.barrier = _barrier_of(op)
        atom = _owner(self.atom)
        while atom is not None and atom.name == "cute_nvgpu.atom.set_value":
            atom = _owner(_operands(atom)[0])
        made = _operands(atom)[0] if atom is not None and atom.name == "cute_nvgpu.atom.make_exec_tma" else None
        is_argument = (
            made is not None and isinstance(made.owner, ir.Block) and made.owner.owner.operation.name == "cuda.kernel"
        )
        self.argument = ir.BlockArgument(made).arg_number if is_argument else None

    @property
    def bytes(self) -> int:
        layout, unit = _layout(self.target), _unit(self.target)
        if layout is None or unit is None:
            raise _Left(self.where, "how many bytes a copy fills a stage with is not known")
        return _size(layout[0]) * unit


class _Pairing:
    """What a kernel with a warp of its own for its MMAs takes so that two CTAs multiply together: one copy of A and one
    of B fill each stage, of which threads know by one mbarrier.

    Raises:
        _Left: what is missing.
    """

    def __init__(self, program: _Program, release: _Release, apart: _Apart) -> None:
        self.program, self.release, self.apart = program, release, apart
        self.function, self.where = program.function, release.where
        self.events = [e for e in program.kernel.events if e.kind == "mma"]
        every = list(_all_operations(self.function))
        for op in every:
            if _OF_CLUSTER.match(op.name) or (
                op.name == "llvm.inline_asm" and re.search("cluster|mbarrier", str(op.attributes["asm_string"]))
            ):
                raise _Left(_line(op, self.where), f"it knows of clusters, or of more than a CTA ({op.name})")
        polls = [o for o in release.stretch.all() if o.name.startswith(_POLLS)]
        bases = {_base(_operands(o)[0]) for o in polls}
        if len(bases) != 1:
            raise _Left(self.where, "the mbarrier that says that a stage is full is not known")
        self.full = bases.pop()
        inits = [o for o in every if o.name == "nvvm.mbarrier.init" and _base(_operands(o)[0]) == self.full]
        self.spots = {_spot(_operands(o)[0]) for o in inits}
        self._waiters(every)
        self.loads = self._loads(every)
        self.a, self.b = self._operands()
        self.expected = self._expected(every)

    def _is_full(self, op: ir.Operation) -> bool:
        """Whether an operation at an mbarrier is at one that says that a stage is full, by whatever name."""
        pointers = _operands(op)[:1]
        return any(_base(v) == self.full or any(_may_be(_spot(v), s) for s in self.spots) for v in pointers)

    def _waiters(self, every: list[ir.Operation]) -> None:
        """Nobody but those that multiply waits for a stage: in the second CTA it does not become full."""
        for op in (o for o in every if o.name.startswith("nvvm.mbarrier.") and len(_operands(o))):
            waits = op.name != "nvvm.mbarrier.init" and not op.name.startswith(("nvvm.mbarrier.arrive", *_POLLS))
            asks = op.name.startswith(_POLLS) and (not len(op.results) or _spins(op))
            ours = not self._is_full(op) or self.release.stretch.holds(op)
            if (waits or asks) and not ours:
                raise _Left(_line(op, self.where), "others than those that multiply wait for a stage")

    def _loads(self, every: list[ir.Operation]) -> list[_Load]:
        found = [
            _Load(o, self.where) for o in every if o.name == "cute.copy" and "tma_load" in str(_operands(o)[0].type)
        ]
        ours = [load for load in found if load.barrier is not None and _base(load.barrier) == self.full]
        for load in ours:
            if load.argument is None:
                raise _Left(load.where, "the tensor map of a copy is no argument of the kernel by itself")
        if len(ours) != 2:
            raise _Left(self.where, f"{len(ours)} copies by TMA fill a stage, not one of A and one of B")
        return ours

    def _operands(self) -> tuple[_Load, _Load]:
        """The copies of A and of B."""
        places = [
            {_buffer(_raw(x)) for x in operands}
            for operands in ([e.a for e in self.events], [e.b for e in self.events])
        ]
        found = [[load for load in self.loads if {_buffer(load.target)} == place] for place in places]
        if [len(f) for f in found] != [1, 1] or found[0] == found[1]:
            raise _Left(self.where, "which copy fills operand A, and which one B, is not known")
        return found[0][0], found[1][0]

    def _expected(self, every: list[ir.Operation]) -> ir.Operation:
        """The arrival that says how many bytes a stage gets."""
        arrivals = [o for o in every if o.name.startswith("nvvm.mbarrier.arrive") and self._is_full(o)]
        counts = {
            self.release.numbers.value(_operands(o)[1], 0)
            for o in every
            if o.name == "nvvm.mbarrier.init" and self._is_full(o)
        }
        if len(arrivals) != 1 or arrivals[0].name != _FULL or counts != {1}:
            raise _Left(self.where, "more than one arrival, or another one, makes a stage full")
        op = arrivals[0]
        bytes_ = self.release.numbers.value(_operands(op)[1], 0)
        if bytes_ != self.a.bytes + self.b.bytes or any(len(list(r.uses)) for r in op.results):
            raise _Left(_line(op, self.where), f"a stage gets {bytes_} bytes, not those of its copies of A and B")
        return op


def _spins(op: ir.Operation) -> bool:
    """Whether one that asks an mbarrier does so until it is told."""
    loop = next(iter(_loops(op)), None)
    if loop is None or loop.name != "scf.while":
        return False
    return all(len(o.regions) or o.name.startswith((*_POLLS, "nvvm.nanosleep")) or _computes(o)
               for o in _all_operations(loop))  # fmt: skip


def _buffer(value: ir.Value) -> Any:
    """Which shared memory a view shows, whatever part of it: what allocates it, and where in that its buffer begins."""
    start = 0
    while (op := _owner(value)) is not None and op.name != "cute.memref.alloca":
        operands = _operands(op)
        if op.name == "cute.add_offset" and re.match(r"!cute\.ptr<i8, smem", str(value.type)):
            number = _number(operands[1])
            if number is None:
                break
            start += number
        if op.name not in _VIEWS and op.name not in _SAME_START:
            break
        value = operands[_VIEWS.get(op.name, 0)]
    return value, start


_VIEWS = {
    "cute.mma.make_fragment": 1, "cute.tiled.mma.partition": 1, "cute_nvgpu.atom.tma_partition": 3, "cute.slice": 0,
    "cute.group_modes": 0, "cute.add_offset": 0,
}  # fmt: skip
"""Operations that make a view of another one, and which operand that is."""
