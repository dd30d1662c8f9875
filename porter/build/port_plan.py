# SPDX-License-Identifier: Apache-2.0
"""A port as files: what a builder compiles, and where it is put for that."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from porter.build.cache import default_directory
from porter.build.layout import Layout
from porter.diagnostics import Code, PorterError

Maps = Sequence["tuple[str, Sequence[object]] | None"]
"""For each parameter of a kernel, the name and the box, outermost first, of the tensor map that it is handed; None of
another one."""


@dataclass(frozen=True)
class Relaunch:
    """What the host code of a port changes of a launch: bytes of dynamic shared memory, None where they stay, and
    arguments of the kernel's template by their index. `pairs`: clusters of two along the dimension `axis` of the grid.
    `rows`: of the boxes of tensor maps, by the index of the kernel's parameter. `halved`: the dimension of the grid
    that has half the blocks, rounded up."""

    dynamic_smem: int | None
    template: tuple[tuple[int, str], ...] = ()
    pairs: bool = False
    rows: tuple[tuple[int, int], ...] = ()
    halved: int | None = None
    axis: int = 0

    @property
    def changes_turns(self) -> bool:
        """Whether stages or CTAs take other turns than in the original."""
        return self.dynamic_smem is not None or self.pairs

    def section(self, template: Sequence[object], grid: Sequence[object] = (), maps: Maps = ()) -> dict[str, Any]:
        """As the section `port` of a case whose kernel has these template arguments, this grid and these maps."""
        launch: dict[str, Any] = {}
        if self.halved is not None and self.halved < len(grid):
            grid = [_half(blocks) if i == self.halved else blocks for i, blocks in enumerate(grid)]
            launch = {"grid": list(grid)}
        if self.pairs:
            *front, first = (grid or (1,))[: self.axis + 1]
            others = list(grid[self.axis + 1 :])
            even = first + first % 2 if isinstance(first, int) else f"({first} + 1) // 2 * 2"
            launch = {"grid": [*front, even, *others], "cluster": [2 if i == self.axis else 1 for i in range(3)]}
        if self.dynamic_smem is not None:
            launch["dynamic_smem"] = self.dynamic_smem
        found: dict[str, Any] = {"launch": launch} if launch else {}
        given_maps = {index: maps[index] for index, _ in self.rows if index < len(maps)}
        boxes = {m[0]: {"box": [rows, *m[1][1:]]} for i, rows in self.rows if (m := given_maps.get(i)) is not None}
        if boxes:
            found["tensor_maps"] = boxes
        if self.template and template:
            given = dict(self.template)
            found["template"] = [given.get(index, value) for index, value in enumerate(template)]
        return found


def _half(blocks: object) -> object:
    return (blocks + 1) // 2 if isinstance(blocks, int) else f"({blocks} + 1) // 2"


@dataclass(frozen=True)
class PortPlan:
    """A port: `files` by path of the original (all files of the source set, changed or not), or
    `source`, a finished file. `keeps_hopper`: it has the original's form too. `section` is what the port changes of
    the launch, in the form of the section `port` of a case; None is as in the case. `relaunch` is what the port's own
    host code says of it, for cases of every template. `reorders`: sums are made in another order than the original's;
    where a case does not say how results are compared, their bound counts."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    source: Path | None = None
    keeps_hopper: bool = False
    section: Mapping[str, Any] | None = None
    relaunch: Relaunch | None = None
    reorders: bool = False
    layout: Layout | None = None
    """How the files lie to each other, where includes say more of that than their paths."""
    at_practice: bool = False
    """Whether it lacks fences of the letter, as its library has no name for them, so that hazards are looked for at
    practice level."""

    @property
    def changes_turns(self) -> bool:
        return self.relaunch is not None and self.relaunch.changes_turns

    def on(self, template: Sequence[object], grid: Sequence[object], maps: Maps = ()) -> PortPlan:
        """The port in a case whose kernel has these template arguments, this grid and these maps."""
        return self if self.relaunch is None else replace(self, section=self.relaunch.section(template, grid, maps))


def materialize(plan: PortPlan, kernel: Path, root: Path | None = None) -> Path:
    """Write the port's files below a directory named by their content, and return the kernel's place there.

    The layout of the original files to each other is kept, so that quoted includes find the ported headers.

    Raises:
        PorterError: WRITE_FAILED.
    """
    if plan.source is not None:
        return plan.source
    paths = {Path(p).resolve(): data for p, data in plan.files.items()}
    if kernel.resolve() not in paths:
        raise ValueError(f"the port has no file {kernel}")
    layout = plan.layout or Layout.of(paths)
    placed = {path.relative_to(layout.root): data for path, data in paths.items()}
    digest = hashlib.sha256()
    for path in sorted(placed):
        digest.update(os.fsencode(path) + b"\0" + placed[path] + b"\0")
    for part in layout.key:
        digest.update(part + b"\0")
    base = (root or default_directory() / "ports") / digest.hexdigest()[:24]
    try:
        layout.make(base)
    except OSError as error:
        raise PorterError(Code.WRITE_FAILED, path=base, reason=error.strerror) from None
    for path, data in placed.items():
        write_whole(base / path, data, base)
    return layout.place(kernel, base)


def write_whole(target: Path, data: bytes, base: Path) -> Path:
    """`target`, which holds `data`; it is replaced as a whole."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file() or target.read_bytes() != data:
            temporary = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}")
            temporary.write_bytes(data)
            temporary.replace(target)
    except OSError as error:
        raise PorterError(Code.WRITE_FAILED, path=base, reason=error.strerror) from None
    return target
