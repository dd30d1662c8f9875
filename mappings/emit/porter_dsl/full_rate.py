# --- M=128 where that can be

TRACED: list[dict[str, Any]] = []
"""Of each kernel with MMAs: its name, the rows of its MMAs, and where and why they are 64 (`file`, `line`, `why`)."""


def _finish(kernel: _Kernel) -> None:
    """Put code at all marks of a kernel: MMAs of 128 rows where what two warpgroups do is known to be one, of 64 else.

    Raises:
        Unportable: something of it cannot be ported.
    """
    function = kernel.events[0].marker.block.owner.operation
    if len(kernel.events) > 2:
        with _scratch():
            program = _Program(kernel, function)
            _accumulators(program)
            if not kernel.obstacles:
                _ahead(program)
                _batches(program)
                emitter = _chosen_emitter(program)
        if not kernel.obstacles:
            emitter.run()
    if kernel.obstacles:
        raise Unportable(kernel.obstacles)
    for event in kernel.events:
        event.marker.erase()


def _chosen_emitter(program: _Program) -> _Emitter:
    if not any(e.kind == "mma" for e in program.kernel.events):
        return _Emitter(program, _Flow(program))
    told: dict[str, Any] = {"kernel": str(program.function.attributes["sym_name"]).strip('"'), "rows": 128}
    TRACED.append(told)
    emitter = _of_rows(program, told)
    if not program.kernel.obstacles:
        _share(emitter, told)
    return emitter


def _of_rows(program: _Program, told: dict[str, Any]) -> _Emitter:
    """The emitter of a kernel's MMAs, of 128 rows where that can be."""
    events = [e for e in program.kernel.events if e.kind == "mma"]
    program.turns = []
    try:
        joining = _Joining(program)
        first, program.turns = joining.first, joining.turns
        for turn in program.turns:
            turn.give_way()
        return _of(_Joined, told, program, [first, first + 1])
    except _Left as left:
        why = left
    flow = _Flow(program)
    try:
        stacking = _Stacking(program, flow)
        return _of(_Stacked, told, program, stacking.warpgroups, flow, stacking.registers)
    except _Left as left:
        # What keeps two tiles of a warpgroup from it matters where there are two, or no other warpgroup.
        why = left if why.alone or all(len(e.tiles) % 2 == 0 for e in events) else why
    told |= {"rows": 64, "file": why.where[0], "line": why.where[1], "why": why.text}
    return _Emitter(program, flow)


def _without(told: dict[str, Any], step: str, left: _Left) -> None:
    """Say which step a kernel lacks, and why."""
    told.setdefault("without", []).append(
        {"step": step, "file": left.where[0], "line": left.where[1], "why": left.text}
    )
