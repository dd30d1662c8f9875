# --- what both CTAs of a pair do alike


class _Halves(_Pairing):
    """The same in a kernel that is traced for pairs, whose copy of B fills a stage in two pieces: each CTA loads the
    piece of its rank. Both load at the same time for the same columns, and come to as many tiles.

    Raises:
        _Left: nobody knows whether they do.
    """

    def __init__(self, program: _Program, release: _Release, apart: _Apart, grid: _Grid) -> None:
        super().__init__(program, release, apart)
        self.ranks = _Ranks(self.function, grid.axis, grid.even)
        for op in _OfCluster(self.function).places:
            raise _Left(_line(op, self.where), "it asks where in a cluster it is")
        if grid.fewer and not _Strides(self.function, grid.axis).fits:
            text = "an odd number of CTAs, and nobody knows whether one less does the same"
            raise _Left(self.where, text)
        for load in self.loads:
            self._same(load.op, load.where, "a load")
            if not self.ranks.same(load.barrier) or not self.ranks.same(load.target):
                raise _Left(load.where, "the two CTAs of a pair may fill different stages at a time")
        if not self.ranks.same(self.b.source):
            raise _Left(self.b.where, "the two CTAs of a pair may multiply by different columns")
        self._same(self.expected, self.where, "the arrival that says how many bytes a stage gets")
        self._same(release.stretch.ops[0], self.where, "the MMAs")
        self._same(apart.read, _line(apart.read, self.where), "the sums of a tile")
        for event in self.events:
            if not all(map(self.ranks.same, (event.accumulate, _raw(event.a), _raw(event.b)))):
                raise _Left(event.where, "the two CTAs of a pair may multiply differently")
            self._columns(event)
        self.first = self._first()

    def _same(self, op: ir.Operation, where: tuple[str, int], what: str) -> None:
        self.ranks.together(op, where, what)

    def _columns(self, event: _Event) -> None:
        """The first piece of a stage of B is half of its rows."""
        n, where = event.n, event.where
        if {j for _, (_, j) in event.tiles} != {0}:
            raise _Left(where, "an MMA has a part of the columns of its tile")
        partition = _raw(event.b)
        while (op := _owner(partition)) is not None and op.name != "cute.tiled.mma.partition":
            if op.name not in ("cute.slice", "cute.mma.make_fragment"):
                break
            partition = _operands(op)[_VIEWS[op.name]]
        known, pieces = _layout(partition), _layout(self.b.target)
        if known is None or pieces is None or str(event.mma.op.b_major_mode).endswith("MN"):
            raise _Left(where, "how the rows of operand B lie in shared memory is not known, or they are not K-major")
        ((rows, columns), tiles, blocks, *_), ((row, column), _, block, *_) = known
        shape, stride = pieces
        box, count = shape[0] if isinstance(shape[0], tuple) and len(shape[0]) == 2 else (0, 0)
        inside = max(_index(r, rows, row) for r in range(n // 2))
        inside += _index(_size(columns) - 1, columns, column) + _index(_size(blocks) - 1, blocks, block)
        found = re.findall(r"(\d+)@\d+", _text(self.b.source).partition(":")[2])
        halves = (_size(rows), _size(tiles), count, _size(shape)) == (n, 1, 2, 2 * box)
        if not halves or stride[0][1] != _index(n // 2, rows, row) or inside >= box or str(n // 2) not in found:
            raise _Left(where, "half of the rows of operand B is not what one copy fills")

    def _first(self) -> ir.Operation:
        """The outermost statement that loads or multiplies first: mbarriers are made ahead of it."""
        tops = [view.operation for view in self.function.regions[0].blocks[0].operations]

        def at(op: ir.Operation) -> int:
            return tops.index(([op, *_around(op, self.function)])[-1])

        first = min(at(op) for op in (self.apart.before, self.expected, *(load.op for load in self.loads)))
        for op in _all_operations(self.function):
            if op.name == "nvvm.mbarrier.init" and at(op) >= first:
                raise _Left(_line(op, self.where), "an mbarrier is made where loads may be under way")
        return tops[first]
