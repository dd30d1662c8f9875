# SPDX-License-Identifier: Apache-2.0
"""What `porter check` finds in files and trees: Hopper's own code that is left, and faults of code for SM100."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, PorterError
from porter.lang.sources import CUDA_ENDINGS, PYTHON_ENDINGS
from porter.lang.trees import files_below
from porter.passes.port import PortOptions
from porter.passes.ported import Look
from porter.passes.sm100.check import PTX_ENDING, sm100_findings
from porter.project.root import project_root
from porter.scan.constructs import BUILD_FILES
from porter.scan.inventory import Tell, take_inventory

_BUILD_ENDINGS = frozenset({".mk", ".cmake"})


@dataclass(frozen=True)
class Checked:
    """What was found in how many files; `problems` are what kept a file from being read."""

    files: int
    findings: tuple[Diagnostic, ...]
    problems: tuple[Diagnostic, ...] = ()


def hopper_left(
    paths: Sequence[Path], include_dirs: Sequence[Path], options: PortOptions, look: Look, tell: Tell | None = None
) -> Checked:
    """Constructs that only Hopper has, each kind once in a file.

    Raises:
        PorterError: what `take_inventory` raises.
    """
    found = take_inventory(paths, effort=False, include_dirs=include_dirs, options=options, look=look, tell=tell)
    findings = []
    for file in found.files:
        for construct in (c for c in file.constructs if c.status == "hopper"):
            times = f" ({construct.count} times)" if construct.count > 1 else ""
            values = {"name": construct.name, "times": times}
            findings.append(Diagnostic(Code.HOPPER_LEFT, construct.first, values))
    return Checked(len(found.files), tuple(findings), found.diagnostics)


def faults_on_sm100(
    paths: Sequence[Path], include_dirs: Sequence[Path], rules: tuple[str, ...], tell: Tell | None = None
) -> Checked:
    """Findings in sources, PTX and build files. A named file that cannot be read is raised; one that was met in a
    directory becomes a problem.

    Raises:
        PorterError: FILE_NOT_FOUND, NO_SOURCES, NOT_TEXT, UNKNOWN_SOURCE_KIND; what reading sources and PTX raises.
    """
    chosen: dict[Path, bool] = {}
    for path in paths:
        if not path.exists():
            raise PorterError(Code.FILE_NOT_FOUND, path=path)
        below = [p for p in files_below(path) if _is_read(p)] if path.is_dir() else [path]
        if not below:
            raise PorterError(Code.NO_SOURCES, path=path)
        for found in below:
            chosen[found] = chosen.get(found, False) or found == path
    findings: dict[tuple[str, object], Diagnostic] = {}
    problems: list[Diagnostic] = []
    builds: dict[Path, list[Path]] = {}
    for i, (path, is_named) in enumerate(chosen.items()):
        if tell is not None:
            tell("checking", i + 1, len(chosen))
        root = project_root(path)
        if root not in builds:
            builds[root] = [p for p in files_below(root) if _is_build(p)]
        try:
            for finding in sm100_findings(path, include_dirs, rules, builds[root]):
                findings.setdefault((finding.code.id, finding.where), finding)
        except PorterError as error:
            if is_named:
                raise
            problems += error.diagnostics
    return Checked(len(chosen), tuple(findings.values()), tuple(problems))


def _is_build(path: Path) -> bool:
    return path.name in BUILD_FILES or path.suffix in _BUILD_ENDINGS


def _is_read(path: Path) -> bool:
    return path.suffix.lower() in {*CUDA_ENDINGS, *PYTHON_ENDINGS, PTX_ENDING} or _is_build(path)
