# SPDX-License-Identifier: Apache-2.0
"""Build files of trees: what in them is for Hopper, and how much of it a port leaves to do by hand."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from porter.diagnostics import Diagnostic, PorterError
from porter.diagnostics.reading import read_file
from porter.lang.text import EditGroup
from porter.passes.build_archs import several_architectures
from porter.passes.build_files import build_files_below, port_build_files
from porter.passes.port import PortOptions
from porter.rules.engine import Selection
from porter.rules.load import load_rules
from porter.scan.constructs import FileInventory, build_file, build_inventory
from porter.scan.effort import judged

_PORTED = frozenset({"low", "medium", "high"})


def build_files(trees: Iterable[Path], sources: Collection[str]) -> dict[str, bytes]:
    """The build files of trees that `porter port` reads, without those that are read as sources."""
    paths = {path.as_posix(): path for tree in trees for path in build_files_below(tree)}
    return {name: _text(path) for name, path in paths.items() if name not in sources}


def build_inventories(texts: Mapping[str, bytes], rules: tuple[str, ...]) -> dict[str, FileInventory]:
    """The build files that have something of Hopper that a rule knows."""
    found = ((path, build_inventory(Path(path), rules)) for path in texts)
    return {path: file for path, file in found if file is not None}


def judge_builds(files: dict[str, FileInventory], texts: Mapping[str, bytes], options: PortOptions) -> None:
    """Set the effort of build files: what a port makes of them beside sources of which it changes some. Files of which
    a port leaves something, and in which no rule finds anything, come to the others."""
    if not any(f.effort.level in _PORTED for f in files.values()):
        return
    both = several_architectures(texts) is not None if options.keep_hopper is None else options.keep_hopper
    ported = port_build_files(texts, load_rules(options.rule_directories), Selection(), both, options.target)
    left: dict[str, list[Diagnostic]] = defaultdict(list)
    for diagnostic in ported.left:
        if diagnostic.where is not None:
            left[diagnostic.where.path].append(diagnostic)
    groups: dict[str, list[EditGroup]] = defaultdict(list)
    for group in ported.groups:
        for path in dict.fromkeys(edit.path for edit in group.edits):
            groups[path].append(group)
    for path in sorted(left.keys() | groups.keys()):
        file = files.get(path) or build_file(path, texts[path])
        files[path] = replace(file, effort=judged(left[path], groups[path]))


def _text(path: Path) -> bytes:
    try:
        return read_file(path)
    except PorterError:
        return b""
