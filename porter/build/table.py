# SPDX-License-Identifier: Apache-2.0
"""What each kernel takes before and after a port, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from porter.build.cache import Cache
from porter.build.entry import demangle
from porter.build.nvcc import CompiledPtx, CompileRequest, compile_ptx
from porter.build.ptxas import Resources, assemble
from porter.build.toolchain import Toolkit
from porter.diagnostics import Code, Location, PorterError
from porter.ptx.arch import SHARED_LIMIT
from porter.ptx.occupancy import Resident

COLUMNS: tuple[tuple[str, str], ...] = (
    ("registers", "registers"),
    ("spill_stores", "spill stores (bytes)"),
    ("spill_loads", "spill loads (bytes)"),
    ("stack", "stack (bytes)"),
    ("static_smem", "static smem (bytes)"),
    ("barriers", "barriers"),
)
"""Fields of `Resources` that a table shows, with their headings."""


@dataclass(frozen=True)
class Metric:
    """One number of a kernel on both sides; None where that side has no such kernel."""

    name: str
    heading: str
    before: int | None
    after: int | None

    @property
    def delta(self) -> int | None:
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True)
class Room:
    """How many blocks of a kernel share an SM, original and port. `at_most`: its dynamic shared memory or its
    columns are not known, which may allow fewer. `why` it matters that the port's are fewer; empty if it does not."""

    before: Resident
    after: Resident
    at_most: bool = False
    why: str = ""

    def as_json(self) -> dict[str, object]:
        sides = {"before": self.before, "after": self.after}
        return {**{name: {"blocks": r.blocks, "by": r.by} for name, r in sides.items()}, "at_most": self.at_most}


@dataclass(frozen=True)
class ResourceRow:
    """One kernel: its C++ name, its architectures, and its numbers in the order of `COLUMNS`; the mangled names of its
    `entries` on both sides."""

    kernel: str
    before_arch: str
    after_arch: str
    metrics: tuple[Metric, ...]
    before_warnings: tuple[str, ...] = ()
    after_warnings: tuple[str, ...] = ()
    entries: tuple[str, str | None] = ("", None)
    room: Room | None = None

    def metric(self, name: str) -> Metric:
        """Raises KeyError if there is no metric of this name."""
        for metric in self.metrics:
            if metric.name == name:
                return metric
        raise KeyError(name)

    def as_json(self) -> dict[str, object]:
        return {
            "kernel": self.kernel,
            "before": {"arch": self.before_arch, "warnings": list(self.before_warnings)},
            "after": {"arch": self.after_arch, "warnings": list(self.after_warnings)},
            "metrics": {m.name: {"before": m.before, "after": m.after, "delta": m.delta} for m in self.metrics},
            "blocks_per_sm": None if self.room is None else self.room.as_json(),
        }


def row(kernel: str, before: CompiledPtx, after: CompiledPtx) -> ResourceRow:
    """Side by side: two compilations of one kernel that were assembled."""
    return ResourceRow(
        kernel=kernel,
        before_arch=before.arch,
        after_arch=after.arch,
        metrics=metrics(before.resources, after.resources),
        before_warnings=before.ptxas_warnings,
        after_warnings=after.ptxas_warnings,
        entries=(before.entry or "", after.entry),
    )


def metrics(before: Resources | None, after: Resources | None) -> tuple[Metric, ...]:
    """The numbers of `COLUMNS` on both sides."""
    return tuple(
        Metric(
            name,
            heading,
            getattr(before, name) if before is not None else None,
            getattr(after, name) if after is not None else None,
        )
        for name, heading in COLUMNS
    )


def compare(
    before: CompileRequest,
    after: CompileRequest,
    toolkit: Toolkit | None = None,
    cache: Cache | None = None,
) -> ResourceRow:
    """Compile and assemble a kernel and its port.

    Raises:
        PorterError: as `compile_ptx` for either side.
    """
    old = compile_assembled(before, toolkit, cache)
    new = compile_assembled(after, toolkit, cache)
    return row(old.display_name or before.entry or before.source.name, old, new)


def compile_assembled(
    request: CompileRequest, toolkit: Toolkit | None = None, cache: Cache | None = None
) -> CompiledPtx:
    """`compile_ptx` with `assemble` set."""
    return compile_ptx(replace(request, assemble=True), toolkit, cache)


def compare_modules(
    before: tuple[str, str],
    after: tuple[str, str],
    toolkit: Toolkit,
    cache: Cache | None = None,
    dynamic: tuple[Mapping[str, int], Mapping[str, int]] | None = None,
) -> list[ResourceRow]:
    """A row for every kernel of two PTX modules, each given as (text, arch), matched by mangled name, else by place.
    `dynamic` is the dynamic shared memory of launches on both sides, by kernel."""
    old = assemble(toolkit, before[0], before[1], cache=cache)
    new = assemble(toolkit, after[0], after[1], cache=cache)
    return [
        ResourceRow(
            kernel=demangle(name),
            before_arch=before[1],
            after_arch=after[1],
            metrics=(*metrics(old.resources.get(name), new.resources.get(other)), *_dynamic(dynamic, name, other)),
            before_warnings=old.warnings,
            after_warnings=new.warnings,
            entries=(name, other),
        )
        for name, other in _pairs(list(old.resources), list(new.resources))
    ]


def _pairs(before: list[str], after: list[str]) -> list[tuple[str, str]]:
    """Names of the same kernel on both sides. Where each side has one kernel, it is the same: a name may hold types
    that a port changes."""
    if len(before) == len(after) == 1:
        return [(before[0], after[0])]
    return [(name, name) for name in dict.fromkeys([*before, *after])]


def _dynamic(given: tuple[Mapping[str, int], Mapping[str, int]] | None, before: str, after: str) -> tuple[Metric, ...]:
    if given is None:
        return ()
    return (Metric("dynamic_smem", "dynamic smem (bytes)", given[0].get(before), given[1].get(after)),)


def require_shared_memory(
    assembled: Mapping[str, Resources], dynamic: Mapping[str, int], arch: str, path: Path
) -> None:
    """Whether each kernel's launch is one that a block can have.

    Raises:
        PorterError: SHARED_MEMORY_EXCEEDED.
    """
    for name, resources in assembled.items():
        total = resources.static_smem + dynamic.get(name, 0)
        if total > SHARED_LIMIT:
            raise PorterError(
                Code.SHARED_MEMORY_EXCEEDED, Location(str(path)),
                kernel=demangle(name), bytes=total, arch=arch, limit=SHARED_LIMIT,
            )  # fmt: skip
