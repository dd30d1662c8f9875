# SPDX-License-Identifier: Apache-2.0
"""Whether a port keeps arrays in local memory that its original keeps in registers.

A compiler puts an array there that is indexed at run time or whose address is taken (its *depot*, in the stack frame of
a thread). Spilled registers lie in the same frame; they are told apart by what ptxas says of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from porter.build.entry import demangle, kernel_place
from porter.build.table import Metric, ResourceRow, metrics
from porter.diagnostics import Code, Diagnostic, PorterError
from porter.verify.builder import BuiltKernel

_ALIGNMENT = 16
"""Bytes of which a stack frame is a multiple of at most."""
_LOCAL = re.compile(r"^\s*\.local\b[^;]*\[(\d+)\]\s*;", re.MULTILINE)


def depots(rows: Iterable[ResourceRow], path: Path | str) -> list[Diagnostic]:
    """A warning for each kernel of the file `path` whose port has more bytes of arrays in local memory."""
    found = ((row, _depot(row, "before"), _depot(row, "after")) for row in rows)
    return [_warning(row, path, before, after) for row, before, after in found if after > before]


def depot_of_port(original: BuiltKernel, port: BuiltKernel, path: Path) -> list[Diagnostic]:
    """The same for two kernels of which only PTX is known so far. ptxas is asked where the port's declares more."""
    if _declared(port.ptx) <= _declared(original.ptx) or original.assembled is None or port.assembled is None:
        return []
    try:
        sides = [k.assembled().resources.get(k.entry) for k in (original, port) if k.assembled is not None]
    except PorterError:
        return []  # what ptxas refuses is told by `porter build`
    return depots([ResourceRow(demangle(original.entry), original.arch, port.arch, metrics(*sides))], path)


def _declared(ptx: str) -> int:
    return sum(map(int, _LOCAL.findall(ptx)))


def _depot(row: ResourceRow, side: str) -> int:
    """Bytes of a frame that cannot be spilled registers: each of those is stored once at least."""
    stack, spilled = (_value(row.metric(name), side) for name in ("stack", "spill_stores"))
    return max(stack - -(-spilled // _ALIGNMENT) * _ALIGNMENT, 0)


def _value(metric: Metric, side: str) -> int:
    return (metric.before if side == "before" else metric.after) or 0


def _warning(row: ResourceRow, path: Path | str, before: int, after: int) -> Diagnostic:
    values = {"kernel": row.kernel, "before": before, "after": after}
    return Diagnostic(Code.PORT_LOCAL_MEMORY, kernel_place(str(path), row.kernel), values)
