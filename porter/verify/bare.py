# SPDX-License-Identifier: Apache-2.0
"""Running a kernel of a PTX module with arguments given by hand, without a case.

An argument is a number, or a buffer `DTYPE[ELEMENTS]`, optionally `=FILL`: `zeros`, `ones`, `iota`, `normal`,
`uniform`, `integers` or `@file.npy`. A buffer without a fill holds 0xFF bytes, NaN in every floating-point format.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from porter.diagnostics import Code, PorterError
from porter.diagnostics.reading import LARGEST_PTX, read_text
from porter.ptx import ast
from porter.sim import GlobalMemory, Launch, pack_params, simulate
from porter.sim.check.hazard import Hazard
from porter.verify.backends import run_finding, simulator_options
from porter.verify.builder import parse_ptx
from porter.verify.dtypes import DTYPES, Array, DType
from porter.verify.fills import FILLS, fill_values
from porter.verify.outcome import RunFinding
from porter.verify.params import param_number_bytes
from porter.verify.problem import LaunchValues
from porter.verify.settings import SimOptions

_MOST_ELEMENTS = 1 << 28
"""Elements of one buffer."""
_BUFFER = re.compile(r"([a-z0-9]+)\[(\d+)\](?:=(.+))?")


@dataclass(frozen=True)
class Buffer:
    """Memory for one pointer argument; `fill` None is poison."""

    dtype: DType
    elements: int
    fill: str | None


Argument = int | float | Buffer


@dataclass(frozen=True)
class BareResult:
    """`buffers` holds each buffer argument after the run, by its position."""

    status: str
    findings: tuple[RunFinding, ...]
    buffers: dict[int, Array]
    warp_instructions: int
    seconds: float
    opcodes: dict[str, int]
    hazards: tuple[Hazard, ...] = ()


def read_argument(text: str) -> Argument:
    """An argument as written on the command line.

    Raises:
        PorterError: BAD_OPTION.
    """
    match = _BUFFER.fullmatch(text)
    if match is not None:
        name, count, fill = match.groups()
        if name not in DTYPES:
            raise _bad(f"no number format {name} in `{text}` (there are: {', '.join(DTYPES)})")
        if fill is not None and fill not in FILLS and not fill.startswith("@"):
            raise _bad(f"no fill {fill} in `{text}` (there are: {', '.join(FILLS)}, @file.npy)")
        if len(count) > len(str(_MOST_ELEMENTS)) or int(count) > _MOST_ELEMENTS:
            raise _bad(f"`{text[:80]}` has more than {_MOST_ELEMENTS} elements")
        return Buffer(DTYPES[name], int(count), fill)
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise _bad(f"`{text}` is no number and no buffer such as f32[1024]=zeros") from None


def _bad(problem: str) -> PorterError:
    return PorterError(Code.BAD_OPTION, option="--arg", problem=problem)


def _contents(buffer: Buffer, seed: int) -> Array | None:
    if buffer.fill is None:
        return None
    if not buffer.fill.startswith("@"):
        return buffer.dtype.encode(fill_values(buffer.fill, (buffer.elements,), seed))
    name = buffer.fill[1:]
    try:
        values = np.load(Path(name), allow_pickle=False).astype(np.float64).reshape(-1)
    except (OSError, ValueError) as error:
        raise _bad(f"{name}: {error}") from None
    if values.size != buffer.elements:
        raise _bad(f"{name} has {values.size} elements, not {buffer.elements}")
    return buffer.dtype.encode(values)


def read_module(path: Path, kernel: str | None) -> tuple[ast.Module, ast.Function]:
    """A PTX file and the entry that is meant.

    Raises:
        PorterError: NOT_TEXT; what `parse_ptx` and `pick_entry` raise.
    """
    module = parse_ptx(read_text(path, LARGEST_PTX), str(path))
    return module, pick_entry(module, kernel, str(path))


def pick_entry(module: ast.Module, name: str | None, path: str) -> ast.Function:
    """The kernel called `name` (mangled, or a part of it that only one kernel has); without a name the only
    one.

    Raises:
        PorterError: ENTRY_NOT_FOUND, ENTRY_AMBIGUOUS, with the candidates in the detail.
    """
    entries = module.entries()
    listed = "\n".join(f.name for f in entries)
    if name is not None:
        exact = [f for f in entries if f.name == name]
        entries = tuple(exact or [f for f in entries if name in f.name])
    if not entries:
        raise PorterError(Code.ENTRY_NOT_FOUND, path=path, entry=name or "", detail=listed)
    if len(entries) > 1:
        raise PorterError(Code.ENTRY_AMBIGUOUS, path=path, entry=name or "", detail=listed)
    return entries[0]


def run_bare(
    module: ast.Module,
    entry: ast.Function,
    launch: LaunchValues,
    arguments: Sequence[int | float | Buffer],
    options: SimOptions,
) -> BareResult:
    """Run a kernel on the simulator.

    Raises:
        PorterError: BAD_OPTION if the arguments are not those of the kernel.
    """
    if len(arguments) != len(entry.params):
        raise _bad(f"{len(arguments)} given, but {entry.name} takes {len(entry.params)}")
    memory = GlobalMemory()
    places: dict[int, tuple[int, Buffer]] = {}
    values: list[bytes] = []
    for i, (argument, param) in enumerate(zip(arguments, entry.params, strict=True)):
        number = argument
        if isinstance(argument, Buffer):
            address = memory.alloc(argument.elements * argument.dtype.itemsize, name=f"argument {i}")
            contents = _contents(argument, options.seed + i)
            if contents is not None:
                memory.write(address, contents.tobytes())
            places[i] = (address, argument)
            number = address
        assert not isinstance(number, Buffer)
        try:
            values.append(param_number_bytes(number, param))
        except (ValueError, OverflowError) as error:
            raise _bad(f"argument {i}: {error}") from None
    outcome = simulate(
        module,
        entry.name,
        Launch(launch.grid, launch.block, launch.cluster, launch.dynamic_smem),
        pack_params(entry, values),
        memory,
        simulator_options(options),
    )
    buffers = {
        i: memory.read(address, b.elements * b.dtype.itemsize).view(b.dtype.container)
        for i, (address, b) in places.items()
    }
    return BareResult(
        status=outcome.status,
        findings=tuple(run_finding(f) for f in outcome.findings),
        buffers=buffers,
        warp_instructions=outcome.stats.warp_instructions,
        seconds=outcome.stats.seconds,
        opcodes=dict(outcome.stats.opcodes),
        hazards=tuple(outcome.hazards),
    )
