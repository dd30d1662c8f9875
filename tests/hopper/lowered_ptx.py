# SPDX-License-Identifier: Apache-2.0
"""Runs SM100 PTX in the simulator twice: as it is, and lowered, with the library that the GPU would run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.build.toolchain import find_toolkit
from porter.hopper import TRAPS, HostBlock, Layout, TrapReport, lower
from porter.hopper.library import HOST_VARIABLE, read_states
from porter.ptx import ast
from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate
from porter.verify.gpu.emulation import library_ptx

Array = npt.NDArray[Any]
PATIENCE_NS = 4_000_000
"""Of simulated time, which is 32 ns a step."""


@functools.cache
def library() -> str:
    return library_ptx(find_toolkit())


@functools.cache
def parsed_library(old: str = "", new: str = "") -> ast.Module:
    text = library()
    if old:
        assert old in text, f"nothing to replace: {old}"
        text = text.replace(old, new)
    return parse_module(text)


@functools.cache
def lowered_module(text: str) -> ast.Module:
    """The lowered module with its library, as `paste` would give it."""
    own, shared = lower(parse_module(text)).module, parsed_library()
    known = {f.name for f in own.functions}
    functions = (*(f for f in shared.functions if f.name not in known), *own.functions)
    return replace(own, variables=(*shared.variables, *own.variables), functions=functions)


@dataclass
class Ran:
    """How a run ended: its `outcome`, the contents of the output buffer, what a trap reported, and the names of the
    traps' numbers that were left over."""

    outcome: Outcome
    output: Array
    report: TrapReport | None = None
    allocated: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.outcome.status == "ok"

    @property
    def why(self) -> str:
        found = [str(f) for f in self.outcome.findings]
        if self.report is not None:
            trap = TRAPS[self.report.code]
            found.insert(0, f"{trap.code.id}: {trap.text.format(*self.report.values)} (site {self.report.site})")
        return "; ".join(found)


def run(
    module: ast.Module,
    launch: Launch,
    inputs: Sequence[Array],
    out_bytes: int,
    *,
    mode: str = "",
    arithmetic: str = "exact",
    schedule: str = "late",
    tensor_map: Callable[[int], bytes] | None = None,
    patience: int = PATIENCE_NS,
) -> Ran:
    """One kernel whose parameters are pointers to the inputs and to the output. `mode` of a lowered module.

    With `tensor_map` the only input is passed as the map made of its address.
    """
    memory = GlobalMemory()
    values: list[int | float | bytes] = []
    for array in inputs:
        address = memory.alloc(max(array.nbytes, 16))
        memory.write(address, np.ascontiguousarray(array).view(np.uint8).reshape(-1))
        values.append(tensor_map(address) if tensor_map else address)
    out = memory.alloc(out_bytes, fill=0xEE)
    values.append(out)
    ctas = launch.grid[0] * launch.grid[1] * launch.grid[2]
    report = states = 0
    if mode:
        layout = Layout(ctas)
        tmem = memory.alloc(layout.tmem, fill=0xFF)
        states = memory.alloc(layout.states, fill=0)
        queue = memory.alloc(layout.queue, fill=0)
        sms = memory.alloc(layout.sms, fill=0)
        report = memory.alloc(4096, fill=0)
        block = HostBlock(tmem, states, queue, sms, report, patience, ctas, mode, arithmetic).encode()
        variables = tuple(replace(v, initial=tuple(block)) if v.name == HOST_VARIABLE else v for v in module.variables)
        assert variables != module.variables
        module = replace(module, variables=variables)
    entry = module.entries()[0]
    options = Options(arithmetic="exact", schedule=schedule, seed=5, max_warp_instructions=20_000_000)  # type: ignore[arg-type]
    outcome = simulate(module, entry.name, launch, pack_params(entry, values), memory, options)
    ran = Ran(outcome, memory.read(out, out_bytes))
    if mode:
        ran.report = TrapReport.decode(bytes(memory.read(report, TrapReport.size())))
        left = read_states(bytes(memory.read(states, Layout(ctas).states)))
        ran.allocated = [s.allocated for s in left]
        ran.pending = [s.issued - s.executed for s in left]
    return ran
