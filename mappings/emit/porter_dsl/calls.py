# --- the host's side: tiled MMAs of Hopper as partitioners


def get_arch_enum():
    """The architecture that the kernel was written for: it chooses its own way by it."""
    return (getattr(base_dsl, "Arch", None) or base_dsl.arch.Arch).sm_90a


def _on_hopper(function):
    """Constructors of warpgroup MMAs ask for sm_90a; what they make is valid in a module for sm_100a too."""

    def made(*args, **kwargs):
        with unittest.mock.patch.object(BaseDSL._get_dsl(), "get_arch_enum", get_arch_enum):
            return function(*args, **kwargs)

    return made


make_trivial_tiled_mma = _on_hopper(sm90_utils.make_trivial_tiled_mma)


def __getattr__(name):
    """Everything else of cute.nvgpu.warpgroup: MMAs, layouts of shared memory, major modes."""
    found = getattr(warpgroup, name)
    return _on_hopper(found) if re.fullmatch(r"Mma\w+Op", name) else found


# --- what a kernel calls


class _Event:
    """One call in a kernel: an operation marks its place until `end` puts code there."""

    def __init__(self, kind: str, **values: Any) -> None:
        self.kind, self.where = kind, _user_line()
        if _now is None:
            raise Unportable([(*self.where, f"{kind} outside of a kernel that porter_dsl.begin() opens")])
        self.array = self.operand = None
        self.parts: list[_Part] = []
        self.joins = self.placed = False
        place = ir.Location.file(*self.where, 1)
        self.marker = arith.ConstantOp(T.i32(), ir.IntegerAttr.get(T.i32(), 0), loc=place).operation
        self.__dict__.update(values)
        _now.events.append(self)

    def arrays(self) -> list[_Array]:
        """The registers of an MMA: its accumulator, its operand A."""
        return [a for a in (self.array, self.operand) if a is not None]


class _Kernel:
    """The kernel that is being traced."""

    def __init__(self) -> None:
        self.events: list[_Event] = []
        self.obstacles: list[tuple[str, int, str]] = []
        self.module = ir.InsertionPoint.current.block.owner.operation
        while self.module.parent is not None:
            self.module = self.module.parent.operation

    def refuse(self, where: tuple[str, int], text: str) -> None:
        if (*where, text) not in self.obstacles:
            self.obstacles.append((*where, text))


_now: _Kernel | None = None


def _user_line() -> tuple[str, int]:
    """The nearest line that neither this module nor the DSL's package wrote."""
    package = os.path.dirname(os.path.abspath(cutlass.__file__))
    for frame, line in traceback.walk_stack(sys._getframe()):
        name = frame.f_code.co_filename
        if name != __file__ and not name.startswith(package) and os.path.isabs(name):
            return name, line
    return "", 0


def begin() -> None:
    """First statement of a kernel."""
    global _now
    left, _now = _now, _Kernel()
    _Event("begin")
    if left is not None and left.module == _now.module:
        where, _now = left.events[0].where, None
        raise Unportable([(*where, "this kernel is left before porter_dsl.end()")])


def end() -> None:
    """Last statement of a kernel, which all threads reach."""
    global _now
    _Event("end")
    kernel, _now = _now, None
    _finish(kernel)


def fence() -> None:
    """`wgmma.fence`: what the warpgroup did before comes before the MMAs that follow."""
    _Event("fence")


def commit_group() -> None:
    """`wgmma.commit_group`."""
    _Event("commit")


def wait_group(group: int) -> None:
    """`wgmma.wait_group`: at most `group` groups stay in flight."""
    _Event("wait", pending=int(group))


def gemm(atom, d, a, b, c, **kwargs) -> None:
    """`cute.gemm`. D and C have to be the same accumulator, in registers."""
    _multiply(cute.gemm, atom, d, a, b, c, kwargs)


def mma_atom_call(atom, d, a, b, c, **kwargs) -> None:
    """`cute.mma_atom_call`: one MMA, under the same conditions."""
    _multiply(cute.mma_atom_call, atom, d, a, b, c, kwargs)


def _multiply(plain, atom, d, a, b, c, options) -> None:
    if not isinstance(getattr(atom, "op", None), warpgroup.mma.WarpGroupMmaOp):
        plain(atom, d, a, b, c, **options)
        return
    operands = [x if isinstance(x, (list, tuple)) else [x] for x in (a, b)]
    values = {"accumulate": atom.get(warpgroup.Field.ACCUMULATE), "slots": [], "places": {}, "before": {}}
    event = _Event("mma", mma=atom, d=d, a=operands[0][0], b=operands[1][0], c=c, **values)
    if max(map(len, operands)) > 1:
        _now.refuse(event.where, "an MMA with auxiliary operands")
