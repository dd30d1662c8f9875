# --- what two warpgroups have in common

_SPECIAL = re.compile(r"nvvm\.read\.ptx\.sreg\.(n?tid|n?ctaid|n?clusterid|cluster\.\w+|gridid)\b")
_PURE = ("arith.", "math.", "vector.", "cute.", "cute_nvgpu.atom.", "builtin.unrealized", "llvm.extractvalue",
         "llvm.insertvalue", "llvm.bitcast", "llvm.ptrtoint", "llvm.inttoptr", "llvm.getelementptr", "llvm.mlir.",
         "llvm.trunc", "llvm.zext", "llvm.sext", "nvvm.shfl", "nvvm.vote", _UNIFORM)  # fmt: skip
_LOADS = (*_READS, "cute.load", "cute.ptr.load", "llvm.load")


class _Numbers(_Threads):
    """The same with tuples of numbers, as coordinates are made of, and through branches and loops."""

    def __init__(self, function: ir.Operation) -> None:
        super().__init__(function)
        self._function = function
        self._paths: dict[int, _Followed] = {}
        self._values: dict[Any, list[ir.Value]] = {}

    def reach(self, op: ir.Operation, stop: ir.Operation) -> frozenset:
        found = super().reach(op, stop)
        # What was assumed inside of conditions does not hold elsewhere.
        self._assumed = {}
        self._memo.clear()
        return found

    def _value(self, value: ir.Value, thread: int) -> int | None:
        op = _owner(value)
        if op is not None and op.name == "cute.get_scalars":
            found = self.tuple(_operands(op)[0], thread)
            return None if found is None or len(found) != len(op.results) else found[ir.OpResult(value).result_number]
        if op is None or op.name in _LOOPS:
            return self._path(thread).always.get(value)
        found = super()._value(value, thread)
        return self._path(thread).always.get(value) if found is None and op.name == "scf.if" else found

    def _path(self, thread: int) -> _Followed:
        if thread not in self._paths:
            self._paths[thread] = _Followed(self._function, thread, self._values)
        return self._paths[thread]

    def tuple(self, value: ir.Value, thread: int) -> list[int] | None:
        """The numbers of a tuple that its type does not have."""
        wanted = _holes(value)
        if not wanted:
            return []
        if not str(value.type).startswith("!"):
            number = self.value(value, thread)
            return None if number is None else [number]
        op = _owner(value)
        if op is None:
            return None
        parts = [self.tuple(v, thread) for v in _operands(op)]
        if None in parts:
            return None
        if op.name in ("cute.make_coord", "cute.make_int_tuple", "cute.make_shape", "cute.make_stride"):
            found = list(itertools.chain(*parts))
        elif op.name == "cute.get_leaves":
            before = [_holes(_raw(r)) for r in list(op.results)[: ir.OpResult(value).result_number]]
            found = parts[0][sum(before) :][:wanted]
        elif op.name == "cute.crd2idx":
            coordinate, (shape, stride) = _filled(_operands(op)[0], parts[0]), _layout(_operands(op)[1]) or ((), ())
            found = [_index(coordinate, shape, stride)] if shape != () and not parts[1] else []
        else:
            return None
        return found if len(found) == wanted else None


class _Same:
    """Values that are the same in all threads of some warpgroups. `threads`: of each, the first and last one of each
    warp."""

    def __init__(self, program: _Program, numbers: _Numbers, warpgroups: list[int]) -> None:
        self.program, self.numbers = program, numbers
        self.threads = [[128 * w + t + lane for t in range(0, 128, 32) for lane in (0, 31)] for w in warpgroups]
        self._differ: set[ir.Value] = set()
        # What the bindings take long to hand out, of each operation.
        self._results: dict[ir.Operation, list[ir.Value]] = {}
        self._handed: dict[ir.Operation, list[tuple[ir.Value, ir.Value]]] = {}
        before = -1
        while before != len(self._differ):
            before = len(self._differ)
            for block in _blocks(program.function):
                self._block(block)

    def holds(self, value: Any) -> bool:
        value = getattr(value, "value", value)
        return isinstance(value, (bool, int)) or _raw(value) not in self._differ

    def together(self, op: ir.Operation, where: tuple[str, int]) -> None:
        """All threads come to a place, and equally often.

        Raises:
            _Left: nobody knows whether they do.
        """
        while op != self.program.function:
            parent = op.block.owner.operation
            known = _parting(parent)
            if parent != self.program.function and not (known and all(map(self.holds, known))):
                raise _Left(_line(parent, where), "threads of those that multiply may part here")
            op = parent

    def in_each(self, value: ir.Value) -> list[list[int]] | None:
        """The numbers of a tuple in each warpgroup, if they are the same in all its threads."""
        found = []
        for threads in self.threads:
            values = [self.numbers.tuple(value, t) for t in threads]
            if values[0] is None or any(v != values[0] for v in values):
                return None
            found.append(values[0])
        return found

    def warpgroup_of(self, value: ir.Value, threads: list[int]) -> int | None:
        """Of the threads that numbers of these threads name, the warpgroup, if it is one for all."""
        found = [self.numbers.tuple(value, t) or [] for t in threads]
        numbers = {n[0] // 128 for n in found if len(n) == 1}
        return numbers.pop() if len(numbers) == 1 and all(len(n) == 1 for n in found) else None

    def _block(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            differs = any(v in self._differ for v in _operands(op))
            if len(op.regions):
                for inner in _blocks(op):
                    self._block(inner)
                parts = bool(_parting(op)) and any(v in self._differ for v in _parting(op))
                for inner in _blocks(op) if parts else ():
                    self._differ |= {_raw(v) for v in inner.arguments}
                if op not in self._handed:
                    self._handed[op] = list(_edges(op))
                self._differ |= {value for value, other in self._handed[op] if other in self._differ}
                if parts or not _parting(op):
                    self._differ.update(self._made(op))
            elif (differs or not self._known(op)) and not self._computed(op):
                self._differ.update(self._made(op))

    def _made(self, op: ir.Operation) -> list[ir.Value]:
        if op not in self._results:
            self._results[op] = [_raw(v) for v in op.results]
        return self._results[op]

    def _known(self, op: ir.Operation) -> bool:
        """Whether an operation makes the same of the same."""
        name = op.name
        if name.startswith("nvvm.read.ptx.sreg."):
            found = _SPECIAL.match(name)
            return found is not None and found[1] != "tid"
        if name == "llvm.inline_asm":
            return "has_side_effects" not in op.attributes and "%" not in str(op.attributes["asm_string"])
        if name in _LOADS:
            # What a volatile or ordered load gives depends on when a thread asks.
            named = {a.name: str(a.attr) for a in (op.attributes[i] for i in range(len(op.attributes)))}
            plain = not any("volatile" in n or ("ordering" in n and not a.startswith("0")) for n, a in named.items())
            return plain and not any("rmem" in str(v.type) for v in _operands(op))
        return name.startswith(_PURE)

    def _computed(self, op: ir.Operation) -> bool:
        """Whether a result follows from the thread's number, and is one for all."""
        if not op.name.startswith(("arith.", _UNIFORM)) or len(self._made(op)) != 1:
            return False
        (result,) = self._made(op)
        first = self.numbers.value(result, self.threads[0][0])
        return first is not None and all(self.numbers.value(result, t) == first for ts in self.threads for t in ts)


def _parting(op: ir.Operation) -> list[ir.Value]:
    """What decides which way through its regions an operation takes, and how often; nothing where that is not known."""
    if op.name == "scf.if":
        return _operands(op)[:1]
    if op.name == "scf.for":
        return _operands(op)[:3]
    if op.name == "scf.while":
        return _operands(list(_blocks(op)[0].operations)[-1].operation)[:1]
    return []


def _text(value: ir.Value) -> str:
    """The tuple or layout in the type of a value."""
    found = re.findall(r'"([^"]*)"', str(value.type))
    return found[-1] if found else ""


def _holes(value: ir.Value) -> int:
    """How many numbers a value has that its type does not say."""
    return _text(value).count("?") if str(value.type).startswith("!") else 1


def _python(text: str) -> Any:
    """A number or a tuple, in which None stands for what a coordinate leaves open."""
    levels: list[list[Any]] = [[]]
    for token in re.findall(r"[()]|[^(),\s]+", text):
        if token == "(":
            levels.append([])
        elif token == ")":
            inner = tuple(levels.pop())
            levels[-1].append(inner)
        else:
            levels[-1].append(None if token == "_" else int(token))
    return levels[0][0]


def _layout(value: ir.Value) -> tuple[Any, Any] | None:
    """Shape and stride of a layout, or of what has one, if they are known."""
    shape, _, stride = _text(value).partition(":")
    return (_python(shape), _python(stride)) if stride and not re.search(r"[^\d(),:]", shape + stride) else None


def _filled(value: ir.Value, numbers: list[int]) -> Any:
    """A coordinate with the numbers that its type does not say."""
    left = iter(numbers)
    return _python(re.sub(r"\?(\{[^}]*\})?", lambda _: str(next(left)), _text(value)))


def _index(coordinate: Any, shape: Any, stride: Any) -> int:
    """Where a coordinate leads in a layout; modes that are left open lead nowhere."""
    if coordinate is None:
        return 0
    if isinstance(coordinate, tuple):
        return sum(_index(c, s, d) for c, s, d in zip(coordinate, shape, stride, strict=True))
    if not isinstance(shape, tuple):
        return coordinate * stride
    total = 0
    for i, (s, d) in enumerate(zip(shape, stride, strict=True)):
        size = _size(s)
        total += _index(coordinate % size if i + 1 < len(shape) else coordinate, s, d)
        coordinate //= size
    return total


def _size(shape: Any) -> int:
    return math.prod(map(_size, shape)) if isinstance(shape, tuple) else shape
