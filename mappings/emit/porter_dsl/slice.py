# --- what leads one warp to the MMAs

_NUMBER_OF_A_THREAD = re.compile(r"nvvm\.read\.ptx\.sreg\.(tid\.[xyz]|laneid)$")
_OTHER_NUMBER = re.compile(r"nvvm\.(read\.ptx\.sreg\.(warpid|smid|clock|globaltimer)|elect\.sync|atomic|vote|match)")
_WRITES = re.compile(r"\b(st|red|atom|multimem)\.")
_POLLS = _WAITS


def _terminator(block: ir.Block) -> ir.Operation:
    return list(block.operations)[-1].operation


class _Slice:
    """The statements of a kernel that lead to a stretch and compute what it reads, for a warp of its own: those that
    stand in `outer`, and others that depend on the thread and can be computed once more. `values` are needed in the
    stretch besides what its operations name, and what decides about `places`; `scopes` are operations in the place of
    which something else is done with values; `own` are registers that the warp keeps by itself.

    Raises:
        _Left: what the stretch needs cannot be computed by another warp.
    """

    def __init__(self, program: _Program, stretch: _Stretch, outer: ir.Operation, where: tuple[str, int],
                 values: list[ir.Value], places: list[ir.Operation], scopes: dict[ir.Operation, list[ir.Value]],
                 own: list[ir.Value]) -> None:  # fmt: skip
        self.program, self.function, self.outer, self.where = program, program.function, outer, where
        self.stretch = stretch
        self.scopes = scopes
        self.own = set().union(*map(self._arrays, own))
        self.values: set[ir.Value] = set()
        self.ops: set[ir.Operation] = set()
        self._differ: set[ir.Value] = set()
        before = -1
        while before != len(self._differ):
            before = len(self._differ)
            for block in _blocks(self.function):
                self._depends(block)
        self._stores: dict[ir.Value, list[ir.Operation]] = {}
        self._globals: list[ir.Operation] = []
        for op in _all_operations(self.function):
            if op.name in (*_REGISTER_STORES, "llvm.store", "cute.copy", "cute.ptr.store"):
                self._store(op)
            elif "atomic" in op.name or self._waits_for_another_kernel(op) or (
                op.name == "llvm.inline_asm" and _WRITES.search(str(op.attributes["asm_string"]))
            ):  # fmt: skip
                self._globals.append(op)
        self._left: list[ir.Value] = []
        for place in (stretch.ops[0], *places):
            self._lead(place)
        for op in stretch.all():
            self._left += [v for v in _operands(op) if not stretch.makes(v)]
            self._memory(op)
        for scope, reads in scopes.items():
            self._lead(scope)
            for read in reads:
                self._outside(read, scope)
        self._left += [v for v in values if not stretch.makes(v)]
        while self._left:
            self._need(self._left.pop())

    def _waits_for_another_kernel(self, op: ir.Operation) -> bool:
        """Whether some threads wait until a kernel ahead of this one has written its results: others may not have."""
        by_hand = op.name == "llvm.inline_asm" and "griddepcontrol.wait" in str(op.attributes["asm_string"])
        return (by_hand or op.name.startswith("nvvm.griddepcontrol")) and bool(_around(op, self.function))

    def _within(self, value: ir.Value, region: ir.Operation) -> bool:
        """Whether a value is made in the regions of an operation."""
        owner = value.owner
        block = owner if isinstance(owner, ir.Block) else owner.operation.block
        op = block.owner.operation
        return op == region or (op != self.function and region in [op, *_around(op, self.function)])

    def _outside(self, value: ir.Value, scope: ir.Operation) -> None:
        """What a value that is made in a scope is made of."""
        op = _owner(value)
        if not self._within(value, scope):
            self._left.append(value)
        elif op is None or len(op.regions) or not op.name.startswith(_PURE):
            raise _Left(_line(scope, self.where), "which stage is given back there is not known ahead of it")
        else:
            for operand in _operands(op):
                self._outside(operand, scope)

    # --- what differs between warps

    def _depends(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            found = any(v in self._differ for v in _operands(op))
            if _NUMBER_OF_A_THREAD.match(op.name) or _OTHER_NUMBER.match(op.name):
                found = True
            if len(op.regions):
                for inner in _blocks(op):
                    self._depends(inner)
                parts = [v for v in _parting(op) if v in self._differ]
                if parts or not _parting(op):
                    for inner in _blocks(op):
                        self._differ |= {_raw(v) for v in inner.arguments}
                    found = True
                else:
                    found = False
                    self._differ |= {value for value, other in _edges(op) if other in self._differ}
            if found:
                self._differ |= {_raw(v) for v in op.results}

    # --- what is needed

    def _lead(self, op: ir.Operation) -> None:
        """What decides whether a place is come to."""
        for parent in _around(op, self.function):
            if parent in self.ops:
                return
            if not _parting(parent):
                raise _Left(
                    _line(parent, self.where), f"it is not known how often the MMAs are come to ({parent.name})"
                )
            self.ops.add(parent)
            self._left += _parting(parent)

    def _need(self, value: ir.Value) -> None:
        if value in self.values:
            return
        owner = value.owner
        block = owner if isinstance(owner, ir.Block) else owner.operation.block
        if block.owner.operation == self.function and value not in self._differ:
            return
        self.values.add(value)
        op = _owner(value)
        if op is None:
            self._argument(value)
        elif self.stretch.holds(op):
            return
        elif len(op.regions):
            self._result(op, value)
        else:
            self._computed(op)

    def _argument(self, value: ir.Value) -> None:
        block = value.owner
        op = block.owner.operation
        number = ir.BlockArgument(value).arg_number
        blocks = _blocks(op)
        if op.name == "scf.for":
            self._left += [_operands(op)[2 + number], _operands(_terminator(block))[number - 1]] if number else []
        elif op.name == "scf.while" and block == blocks[0]:
            self._left += [_operands(op)[number], _operands(_terminator(blocks[1]))[number]]
        elif op.name == "scf.while":
            self._left.append(_operands(_terminator(blocks[0]))[1 + number])
        else:
            raise _Left(_line(op, self.where), f"a value of {op.name} leads to the MMAs")
        self._region(op)

    def _region(self, op: ir.Operation) -> None:
        if op not in self.ops:
            self.ops.add(op)
            self._left += _parting(op)
            self._lead(op)

    def _result(self, op: ir.Operation, value: ir.Value) -> None:
        number = ir.OpResult(value).result_number
        if not _parting(op):
            raise _Left(_line(op, self.where), f"a value of {op.name} leads to the MMAs")
        blocks = _blocks(op)
        if op.name == "scf.while":
            self._left.append(_operands(_terminator(blocks[0]))[1 + number])
        else:
            self._left += [_operands(_terminator(b))[number] for b in blocks]
            self._left += [_operands(op)[3 + number]] if op.name == "scf.for" else []
        self._region(op)

    def _computed(self, op: ir.Operation) -> None:
        """An operation without regions, whose results are needed."""
        if not self._allowed(op):
            raise _Left(_line(op, self.where), f"what leads to the MMAs takes what {op.name} gives")
        self.ops.add(op)
        if not _NUMBER_OF_A_THREAD.match(op.name):
            self._left += _operands(op)
        self._lead(op)
        self._memory(op)

    def _allowed(self, op: ir.Operation) -> bool:
        """Whether one warp may compute it, in the place of another one."""
        name = op.name
        if _NUMBER_OF_A_THREAD.match(name) or name == _UNIFORM:
            # All lanes of the warp have the same number.
            return True
        if _OTHER_NUMBER.match(name):
            return False
        if name.startswith("nvvm.shfl"):
            return not any(v in self._differ for v in _operands(op))
        if name == "llvm.inline_asm":
            return "has_side_effects" not in op.attributes and "%" not in str(op.attributes["asm_string"])
        if name in _LOADS:
            return self._plain(op)
        if name.startswith(_POLLS):
            return len(op.results) > 0
        return bool(_SPECIAL.match(name)) or (name.startswith(_PURE) and len(op.results) > 0)

    def _plain(self, op: ir.Operation) -> bool:
        """Whether another warp reads the same: its own registers, or global memory that the kernel does not write."""
        named = {a.name: str(a.attr) for a in (op.attributes[i] for i in range(len(op.attributes)))}
        if any("volatile" in n or ("ordering" in n and not a.startswith("0")) for n, a in named.items()):
            return False
        space = _space(_operands(op)[0])
        return space == "rmem" or (space == "gmem" and not self._globals)

    def _store(self, op: ir.Operation) -> None:
        for value in _operands(op):
            if _space(value) == "rmem":
                for array in self._arrays(value):
                    self._stores.setdefault(array, []).append(op)
        written = _operands(op)[2:] if op.name == "cute.copy" else _operands(op)
        if any(_space(v) in ("gmem", "generic") for v in written):
            self._globals.append(op)

    def _arrays(self, value: ir.Value) -> set[ir.Value]:
        """The registers that a view shows, by what allocates them."""
        found: set[ir.Value] = set()
        seen, left = set(), [value]
        while left:
            one = left.pop()
            if one in seen:
                continue
            seen.add(one)
            op = _owner(one)
            sources = list(self.program.sources.get(one, ()))
            if op is not None and not len(op.regions):
                sources += [v for v in _operands(op) if _space(v) == "rmem"]
            found |= set() if sources else {one}
            left += sources
        return found

    def _memory(self, op: ir.Operation) -> None:
        """What is read of registers has been written to them."""
        if op.name not in _LOADS or _space(_operands(op)[0]) != "rmem":
            return
        for array in self._arrays(_operands(op)[0]) - self.own:
            for store in self._stores.get(array, ()):
                if self.stretch.holds(store) or store in self.ops:
                    continue
                if self.outer in _around(store, self.function):
                    if store.name not in _REGISTER_STORES:
                        text = f"what leads to the MMAs reads registers that {store.name} writes"
                        raise _Left(_line(store, self.where), text)
                    self.ops.add(store)
                    self._left += _operands(store)
                    self._lead(store)
                elif _around(store, self.function) or any(v in self._differ for v in _operands(store)):
                    text = "what leads to the MMAs reads registers that each thread writes for itself"
                    raise _Left(_line(store, self.where), text)


class _Copying:
    """Emits a slice at the insertion point. `thread` is the number that the warp has; `in_place` is called for the
    stretch, `instead` for each scope. Values are looked at `aside`, where the bindings may put operations of theirs."""

    def __init__(self, slice_: _Slice, thread: int, aside: ir.InsertionPoint,
                 in_place: Callable[[_Copying], None],
                 instead: Callable[[ir.Operation, _Copying], None]) -> None:  # fmt: skip
        self.slice, self.thread, self.aside = slice_, thread, aside
        self.in_place, self.instead = in_place, instead
        self.known: dict[ir.Value, ir.Value] = {}

    def run(self) -> None:
        function = self.slice.function
        for view in list(function.regions[0].blocks[0].operations):
            op = view.operation
            if op in self.slice.ops:
                with op.location:
                    self._copy(op)
            if op == self.slice.outer:
                return

    def value(self, value: ir.Value) -> ir.Value:
        return self.known.get(value, value)

    def clone(self, op: ir.Operation) -> ir.Operation:
        """An operation at the insertion point, of what its operands have become there."""
        return _clones([op], self.known, self.aside)[0]

    def in_scope(self, value: ir.Value, scope: ir.Operation) -> ir.Value:
        """A value of a scope, computed at the insertion point."""
        op = _owner(value)
        if value not in self.known and op is not None and scope in _around(op, self.slice.function):
            for operand in _operands(op):
                self.in_scope(operand, scope)
            self.clone(op)
        return self.value(value)

    def _raws(self, values: Any) -> list[ir.Value]:
        with self.aside:
            return [_raw(v) for v in values]

    def _note(self, old: Any, new: Any) -> None:
        self.known.update(zip(self._raws(old), self._raws(new), strict=True))

    def _block(self, block: ir.Block) -> None:
        for view in list(block.operations)[:-1]:
            op = view.operation
            with op.location:
                if op in self.slice.scopes:
                    self.instead(op, self)
                if op == self.slice.stretch.ops[0]:
                    self.in_place(self)
                elif op in self.slice.ops:
                    self._copy(op)

    def _copy(self, op: ir.Operation) -> None:
        if _NUMBER_OF_A_THREAD.match(op.name):
            number = cutlass.Int32(self.thread if op.name.endswith("tid.x") else 0).ir_value()
            self._note(op.results, [number])
        elif len(op.regions):
            self._regions(op)
        else:
            self.clone(op)

    def _regions(self, op: ir.Operation) -> None:
        """The same with the values alone that are needed."""
        needed, blocks, operands = self.slice.values, _blocks(op), _operands(op)
        results, arguments = self._raws(op.results), [self._raws(b.arguments) for b in blocks]
        kept = [i for i, r in enumerate(results) if r in needed]
        before: list[int] = []
        if op.name == "scf.for":
            kept = [i for i, r in enumerate(results) if {r, arguments[0][1 + i]} & needed]
            operands = operands[:3] + [operands[3 + i] for i in kept]
            arguments = [[arguments[0][0], *(arguments[0][1 + i] for i in kept)]]
        elif op.name == "scf.while":
            kept = [i for i, r in enumerate(results) if {r, arguments[1][i]} & needed]
            before = [i for i, v in enumerate(arguments[0]) if v in needed]
            operands = [operands[i] for i in before]
            arguments = [[arguments[0][i] for i in before], [arguments[1][i] for i in kept]]
        named = (op.attributes[i] for i in range(len(op.attributes)))
        made = ir.Operation.create(
            op.name,
            results=[results[i].type for i in kept],
            operands=[self.value(v) for v in operands],
            attributes={a.name: a.attr for a in named},
            regions=len(op.regions),
        )
        for block, values, region in zip(blocks, arguments, list(made.regions)[: len(blocks)], strict=True):
            copy = region.blocks.append(*(v.type for v in values), arg_locs=[op.location] * len(values))
            self._note(values, copy.arguments)
            with ir.InsertionPoint(copy):
                self._block(block)
                last = _terminator(block)
                handed = _operands(last)
                if last.name == "scf.condition":
                    handed = [handed[0], *(handed[1 + i] for i in kept)]
                else:
                    handed = [handed[i] for i in (before if op.name == "scf.while" else kept)]
                ir.Operation.create(last.name, operands=[self.value(v) for v in handed])
        self._note([results[i] for i in kept], made.results)
