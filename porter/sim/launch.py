# SPDX-License-Identifier: Apache-2.0
"""Runs a kernel: parameters, module variables, waves of blocks, outcome."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from porter.diagnostics import Code
from porter.ptx import ast
from porter.ptx.arch import LOCAL_LIMIT, SHARED_LIMIT, WARP, Limits, limits
from porter.ptx.initial import initial_bytes
from porter.ptx.shared_window import SYSTEM_SHARED
from porter.sim.check.hazard import Hazard, collect
from porter.sim.comparisons import Comparisons
from porter.sim.executor import Executor, instruction_at
from porter.sim.loader import load_program
from porter.sim.memories import INTERNAL_BASE, PARAM_WINDOW
from porter.sim.memory import MOST_BYTES, GlobalMemory
from porter.sim.observer import Observer, Observers
from porter.sim.pending import Pending
from porter.sim.placement import placement
from porter.sim.program import Program
from porter.sim.results import Finding, Launch, Options, Outcome, Stats, Status, Stop
from porter.sim.special_registers import GRID_WORKSPACE
from porter.sim.trace.recorder import Launched

_FORMATS = {
    "u8": "<B", "s8": "<b", "b8": "<B", "u16": "<H", "s16": "<h", "b16": "<H", "u32": "<I", "s32": "<i",
    "b32": "<I", "u64": "<Q", "s64": "<q", "b64": "<Q", "f16": "<e", "f32": "<f", "f64": "<d",
}  # fmt: skip
_WAVE_BYTES = 1 << 30
_GRID_WORKSPACE_BYTES = 8


def pack_params(function: ast.Function, values: Sequence[int | float | bytes]) -> bytes:
    """The parameter space of a launch: each value at its parameter's alignment, little endian.

    `bytes` are copied; numbers take the parameter's type (a float for a `.b32` or `.b64` parameter gives the
    bits of that width). Raises ValueError for a wrong number of values or a value that does not fit.
    """
    if len(values) != len(function.params):
        raise ValueError(f"{function.name} has {len(function.params)} parameters, {len(values)} values given")
    image = bytearray()
    for p, value in zip(function.params, values, strict=True):
        image += bytes(-len(image) % p.align)
        if isinstance(value, (bytes, bytearray)):
            if len(value) != p.size:
                raise ValueError(f"parameter {p.name} has {p.size} bytes, {len(value)} given")
            image += value
            continue
        fmt = _FORMATS.get(p.type, "<Q")
        if isinstance(value, float) and fmt[1] not in "efd":
            fmt = {2: "<e", 4: "<f", 8: "<d"}[p.size]
        if fmt[1] in "efd":
            image += struct.pack(fmt, float(value))
        else:
            bits = int(value)
            if not -(1 << (8 * p.size - 1)) <= bits < 1 << (8 * p.size):
                raise ValueError(f"parameter {p.name}: {value} does not fit {p.size} bytes")
            image += (bits & ((1 << 8 * p.size) - 1)).to_bytes(p.size, "little")
    return bytes(image)


def _module_variables(
    program: Program, internal: GlobalMemory, kept: Mapping[str, int], state: Mapping[str, bytes]
) -> dict[str, int]:
    """Place .global and .const variables but for those `kept` by the caller, with their initial contents or those of
    `state`; returns the addresses of all."""
    placed = [v for v in program.variables.values() if v.space in ("global", "const") and v.name not in kept]
    addresses = dict(kept)
    for v in placed:
        addresses[v.name] = internal.alloc(max(v.size, 1), align=max(v.align, 16), fill=0, name=v.name)
    for v in placed:
        if v.name in state:
            internal.write(addresses[v.name], state[v.name])
        elif v.decl is not None and v.decl.initial:
            internal.write(addresses[v.name], initial_bytes(v.decl, addresses)[: v.size])
    return addresses


_MOST_WARPS = 1 << 26
"""Warps of a launch, which take hours."""


def _check_launch(module: ast.Module, entry: str, launch: Launch, params: bytes) -> str | None:
    """Why a GPU would refuse the launch, or None."""
    try:
        function = module.function(entry)
    except KeyError:
        names = ", ".join(f.name for f in module.entries()) or "none"
        return f"the module has no kernel {entry} (it has: {names})"
    if not function.is_entry:
        return f"{entry} is a device function, not a kernel"
    extents = (*launch.grid, *launch.block, *launch.cluster)
    if any(x < 1 for x in extents):
        return "an extent of grid, block or cluster is less than 1"
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if threads > Limits.threads_per_block or launch.block[2] > Limits.threads_in_z:
        return f"a block of {threads} threads: at most {Limits.threads_per_block} ({Limits.threads_in_z} in z)"
    for g, c, axis in zip(launch.grid, launch.cluster, "xyz", strict=True):
        if g % c:
            return f"grid {axis} of {g} is no multiple of the cluster's {c}"
    if launch.cluster[0] * launch.cluster[1] * launch.cluster[2] > Limits.cluster_max:
        return f"a cluster of more than {Limits.cluster_max} blocks"
    required = function.directives.get("reqnctapercluster")
    if required and launch.cluster != (1, 1, 1) and (*required, 1, 1)[:3] != launch.cluster:
        return f"the kernel requires clusters of {required}, not {launch.cluster}"
    required = function.directives.get("reqntid")
    if required:
        required = (*required, 1, 1)[:3]
        if tuple(required) != launch.block:
            return f"the kernel requires blocks of {required}, not {launch.block}"
    largest = function.directives.get("maxntid")
    if largest:
        product = 1
        for x in largest:
            product *= x
        if threads > product:
            return f"a block of {threads} threads; the kernel's launch bounds allow {product}"
    need = 0
    for p in function.params:
        need = -(-need // p.align) * p.align + p.size
    if len(params) != need:
        return f"{len(params)} bytes of parameters; the kernel takes {need}"
    return None


class _Refused(Exception):
    """A launch that does not begin: a GPU would refuse it, or it is not modelled."""

    def __init__(self, code: Code, message: str, status: Status = "error") -> None:
        super().__init__(message)
        self.code = code
        self.status = status


@dataclass(frozen=True)
class _Prepared:
    """A launch with its code and the memory of its own. `resident`: how many blocks run at a time, on so many
    `multiprocessors` (0: each has one to itself)."""

    program: Program
    launch: Launch
    internal: GlobalMemory
    addresses: dict[str, int]
    resident: int
    multiprocessors: int
    total: int
    held: dict[str, bytes]
    """What the variables of the module that lie in `internal`, and may be written, hold before the launch."""


def _held(program: Program, internal: GlobalMemory, addresses: Mapping[str, int]) -> dict[str, bytes]:
    owned = [v for v in program.variables.values() if v.space == "global" and addresses[v.name] >= INTERNAL_BASE]
    return {v.name: internal.read(addresses[v.name], v.size).tobytes() for v in owned if v.size}


def simulate(
    module: ast.Module,
    entry: str,
    launch: Launch,
    params: bytes,
    memory: GlobalMemory,
    options: Options | None = None,
    variables: Mapping[str, int] | None = None,
    prerequisite: Outcome | None = None,
    state: Mapping[str, bytes] | None = None,
) -> Outcome:
    """Run a kernel on the simulator. What goes wrong is in the outcome's findings; nothing is raised.

    `variables` are addresses in `memory` of module variables that outlive the launch; the others begin with
    their initial values, or with what `state` has of them. `prerequisite` is the launch before this one, if this one
    need not wait for its end (programmatic dependent launch); both are checked then.
    """
    options = options or Options()
    started = time.perf_counter()
    stats = Stats()
    try:
        prepared = _prepare(module, entry, launch, params, options, variables or {}, state or {})
    except _Refused as refused:
        outcome = Outcome(refused.status, [Finding(refused.code, str(refused), entry)], stats)
    else:
        outcome = _run(prepared, params, memory, options, prerequisite, stats)
    stats.seconds = time.perf_counter() - started
    return outcome


def _prepare(
    module: ast.Module,
    entry: str,
    launch: Launch,
    params: bytes,
    options: Options,
    variables: Mapping[str, int],
    state: Mapping[str, bytes],
) -> _Prepared:
    """Raises _Refused for a launch that cannot be run."""
    launch = _accepted(module, entry, launch, params)
    try:
        program = load_program(module, entry)
    except ValueError as error:
        raise _Refused(Code.SIM_UNKNOWN_INSTRUCTION, str(error), "incomplete") from error
    try:
        most = limits(module.target).shared_per_block
    except (KeyError, ValueError):
        most = SHARED_LIMIT
    shared = program.dynamic_offset + launch.dynamic_smem
    if shared > most:
        raise _Refused(Code.SIM_LAUNCH, f"{shared} bytes of shared memory per block; at most {most}")
    if program.local_size > LOCAL_LIMIT:
        told = f"{program.local_size} bytes of local memory per thread; at most {LOCAL_LIMIT}"
        raise _Refused(Code.SIM_LAUNCH, told)
    internal = GlobalMemory(INTERNAL_BASE)
    addresses = _module_variables(program, internal, variables, state)
    held = _held(program, internal, addresses)
    image = np.zeros(-(-max(len(params), 1) // 64) * 64, np.uint8)
    image[: len(params)] = np.frombuffer(params, np.uint8)
    internal.map(PARAM_WINDOW, image, "kernel parameters")

    total, threads, cluster = (math.prod(extents) for extents in (launch.grid, launch.block, launch.cluster))
    warps = -(-threads // WARP)
    if total * warps > min(options.max_warp_instructions, _MOST_WARPS):
        # each warp executes one instruction at least
        raise _Refused(Code.SIM_BUDGET, f"{total:,} blocks of {warps} warps, more than can be run", "incomplete")
    per_block = shared + SYSTEM_SHARED + threads * (program.local_size + 8 * 400)
    placed = placement(program, launch, options, shared)
    if placed.refused:
        raise _Refused(Code.SIM_LAUNCH, placed.refused)
    resident = max(1, min(placed.at_once, _WAVE_BYTES // per_block))
    if launch.cooperative:
        # All blocks are there at a time, and share a workspace of two words: its size, and a barrier.
        resident = total
        if total * (shared + SYSTEM_SHARED) > MOST_BYTES:
            raise _Refused(Code.SIM_LAUNCH, f"{total:,} blocks of a cooperative launch cannot be there at one time")
        addresses[GRID_WORKSPACE] = internal.alloc(_GRID_WORKSPACE_BYTES, fill=0, name="grid workspace")
        internal.write(addresses[GRID_WORKSPACE], struct.pack("<I", _GRID_WORKSPACE_BYTES))
    resident = max(resident // cluster * cluster, cluster)
    return _Prepared(program, launch, internal, addresses, resident, placed.multiprocessors, total, held)


def _accepted(module: ast.Module, entry: str, launch: Launch, params: bytes) -> Launch:
    """A launch with the clusters that its kernel requires. Raises _Refused for one that a GPU would refuse."""
    problem = _check_launch(module, entry, launch, params)
    required = module.function(entry).directives.get("reqnctapercluster") if problem is None else None
    if required and launch.cluster == (1, 1, 1):
        x, y, z = (*required, 1, 1)[:3]
        launch = replace(launch, cluster=(x, y, z))
        problem = _check_launch(module, entry, launch, params)
    if problem is not None:
        raise _Refused(Code.SIM_LAUNCH, problem)
    return launch


def _run(
    prepared: _Prepared,
    params: bytes,
    memory: GlobalMemory,
    options: Options,
    prerequisite: Outcome | None,
    stats: Stats,
) -> Outcome:
    """Run a launch, as many blocks at a time as fit, up to the first that does not end as it should."""
    status: Status = "ok"
    findings: list[Finding] = []
    hazards: list[Hazard] = []
    program, checked = prepared.program, None
    machine: Executor | None = None
    if options.trace is not None:
        options.trace.launches.append(Launched(program.entry.name, prepared.total))
    pending = Pending(0, prepared.total)
    while not findings and (ctas := pending.take(prepared.resident)):
        before, seed = machine, options.seed + ctas.start
        internal, addresses = prepared.internal, prepared.addresses
        spread = prepared.multiprocessors
        machine = Executor(program, prepared.launch, params, memory, internal, addresses, options, ctas, seed, spread)
        machine.pending = pending
        machine.instructions = stats.warp_instructions
        machine.follow(before)
        observers: list[Observer] = []
        if options.mode == "checking":
            from porter.sim.check.run import CheckedWave

            checked = CheckedWave(machine, options.level, checked, None if prerequisite is None else prerequisite.grid)
            observers += [*checked.observers, Comparisons(machine, stats.compared)]
        if options.trace is not None:
            from porter.sim.trace.tracer import Tracer

            observers.append(Tracer(machine, options.trace))
        machine.observer = Observers(observers) if observers else None
        try:
            machine.run()
        except Stop as stop:
            findings.append(_finding(machine, stop))
            incomplete = stop.code in (Code.SIM_UNKNOWN_INSTRUCTION, Code.SIM_BUDGET)
            status = "incomplete" if incomplete else "error"
        if machine.observer is not None:
            machine.observer.finish()
        if checked is not None:
            collect(hazards, checked.check.hazards.values())
            stats.waits |= {program.code[at].line for at in checked.check.waits}
        _count(stats, machine)
    after = _held(program, prepared.internal, prepared.addresses)
    changed = {name: data for name, data in after.items() if data != prepared.held[name]}
    grid = None if checked is None else checked.check.global_memory.state
    return Outcome(status, findings, stats, hazards, grid, changed)


def _count(stats: Stats, machine: Executor) -> None:
    """Add what the blocks of one machine did."""
    stats.lines |= machine.lines_reached()
    stats.warp_instructions = machine.instructions
    stats.steps += machine.steps
    for opcode, times in machine.opcode_counts().items():
        stats.opcodes[opcode] = stats.opcodes.get(opcode, 0) + times
    for slot, phases in enumerate(machine.mbar.phase):
        name = machine.mbar.name(slot)
        stats.phases[name] = max(stats.phases.get(name, 0), int(phases.max()))


def _finding(machine: Executor, stop: Stop) -> Finding:
    ins = instruction_at(machine.program, stop.at)
    block = warp = None
    if stop.warp is not None:
        block = machine.block_position(int(machine.warp_cta[stop.warp]))
        warp = int(machine.warp_rank[stop.warp])
    message = stop.code.value.title.format(what=stop.message)
    return Finding(
        stop.code,
        message,
        machine.program.entry.name,
        block,
        warp,
        stop.lane,
        ins.line if ins else 0,
        ins.loc if ins else None,
    )
