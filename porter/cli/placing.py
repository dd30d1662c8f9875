# SPDX-License-Identifier: Apache-2.0
"""Where the files of a port lie when they lie elsewhere than their originals, and how they are compiled there."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from porter.build.closure import Named, left_beside
from porter.build.layout import Layout, completed
from porter.diagnostics import Code, Diagnostic, Location
from porter.passes.ported import Ported
from porter.tune.layouts import named_by

ASTRAY = "away from its original it includes headers of the original, by absolute paths"
"""Why a port is not compiled in another place."""


@dataclass(frozen=True)
class Placed:
    """What is written of a port, by the originals' paths, and how it lies. `include_dirs`: where headers of the
    originals are found. `astray`: includes that would lead to an original although the port has it."""

    files: Mapping[str, bytes] = field(repr=False)
    layout: Layout
    include_dirs: tuple[Path, ...] = ()
    astray: tuple[Diagnostic, ...] = ()


def placed(ported: Ported, whole: bool, include_dirs: Sequence[Path] = (), given: Iterable[Path] = ()) -> Placed:
    """A port away from its originals: what changes, or all of it where `whole`. The files of a directory that was
    `given` lie as they lie there."""
    there, changed = ported.elsewhere(), ported.to_write()
    chosen = completed(
        map(Path, there if whole else changed),
        map(Path, there),
        named_by(ported),
        searched := tuple(dict.fromkeys([*include_dirs, *(d for root in ported.roots for d in root.include_dirs)])),
    )
    inside = [n for n in named_by(ported) if {n.by.resolve(), n.found.resolve()} <= chosen.written]
    holding = [d for d in given if d.is_dir()]
    named = {
        *map(os.path.realpath, include_dirs),
        *(os.path.realpath(n.through) for n in named_by(ported) if n.through),
    }
    return Placed(
        {path: data for path, data in there.items() if Path(path).resolve() in chosen.written},
        Layout.of(map(Path, there), holding, inside),
        tuple(d for d in searched if os.path.realpath(d) in named),
        tuple(_astray(include) for include in chosen.astray if str(include.found) in changed),
    )


def _astray(include: Named) -> Diagnostic:
    values = {"path": str(include.by), "header": str(include.found), "name": include.name}
    return Diagnostic(Code.ORIGINAL_INCLUDED, Location(str(include.by)), values)


def how_to_compile(ported: Ported, port: Placed, output: Path | None) -> list[Diagnostic]:
    """The options with which a compiler finds what files below `output` include, where it needs some of them."""
    if output is None:
        return []
    written = {Path(path).resolve() for path in port.files}
    beside = [
        directory
        for root in ported.changed_roots
        if not root.dsl
        for directory in left_beside(Path(root.path), port.include_dirs, lambda path: path.resolve() in written)
    ]
    dirs = port.layout.include_dirs(port.include_dirs, output)
    if not beside and dirs == port.include_dirs:
        return []
    words: list[str] = []
    for directory in dict.fromkeys(beside):
        words += ["-Xcompiler", "-iquote", "-Xcompiler", os.path.relpath(directory)]
    for directory in dirs:
        words += ["-I", str(directory)]
    return [Diagnostic(Code.INCLUDE_OPTIONS, None, {"path": str(output), "options": shlex.join(words)})]
