# SPDX-License-Identifier: Apache-2.0
"""What `porter check` finds in files and trees: Hopper's own code that is left, and faults of code for SM100."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, PorterError
from porter.diagnostics.reading import read_file
from porter.lang.keeps import Keeps
from porter.lang.sources import CUDA_ENDINGS, PYTHON_ENDINGS
from porter.lang.trees import files_below
from porter.passes.port import PortOptions
from porter.passes.ported import Look
from porter.passes.sm100.check import PTX_ENDING, sm100_findings
from porter.passes.sm100.conditions import given_macros
from porter.project.root import BUILD_FILES, project_root
from porter.ptx.arch import SM100A, PortTarget
from porter.rules.load import load_rules
from porter.scan.inventory import Tell, files_of, take_inventory

_BUILD_ENDINGS = frozenset({".mk", ".cmake"})
_TELLS_TARGETS = frozenset({"CMakePresets.json", "CMakeUserPresets.json", "Dockerfile"})
"""Files that name architectures and need not be all that a build is made by; scripts and Dockerfiles too, by ending."""
_TELLING_ENDINGS = frozenset({".sh", ".dockerfile"})


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
    keeps = Keeps(_text)
    findings = []
    for file in found.files:
        for construct in file.constructs:
            ids = (Code.HOPPER_LEFT.value.id, construct.rule)
            left = [at for at in construct.places if not keeps.covers(at.path, range(at.line, at.line + 1), ids)]
            if construct.status == "hopper" and left:
                times = f" ({len(left)} times)" if len(left) > 1 else ""
                findings.append(Diagnostic(Code.HOPPER_LEFT, left[0], {"name": construct.name, "times": times}))
    known = {rule.id for rule in load_rules(options.rule_directories)}
    unused = _unused(keeps, [f.path for f in found.files], lambda id: id not in known and not _is_of_sm100(id))
    return Checked(len(found.files), (*findings, *unused), found.diagnostics)


def _text(path: str) -> bytes:
    try:
        return read_file(Path(path))
    except PorterError:
        return b""


def _is_of_sm100(id: str) -> bool:
    """Whether an ID is one of those that are found in code for SM100 only."""
    return id.startswith("PT7") and id not in (Code.HOPPER_LEFT.value.id, Code.KEEP_UNUSED.value.id)


def _unused(keeps: Keeps, paths: Iterable[str], is_ours: Callable[[str], bool]) -> list[Diagnostic]:
    """Comments that kept nothing, among those whose ID this check would have used."""
    return [
        Diagnostic(Code.KEEP_UNUSED, keep.where, {"id": keep.id or "(no ID)"})
        for keep in keeps.unused(paths)
        if is_ours(keep.id)
    ]


def faults_on_sm100(
    paths: Sequence[Path],
    include_dirs: Sequence[Path],
    rules: tuple[str, ...],
    tell: Tell | None = None,
    target: PortTarget = SM100A,
    defines: Sequence[str] = (),
) -> Checked:
    """Findings in sources, PTX and build files. `defines` are macros, as `NAME` or `NAME=VALUE`. A named file that
    cannot be read is raised; one that was met in a directory becomes a problem.

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
    keeps, macros = Keeps(_text), given_macros(defines)
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
            for finding in sm100_findings(path, include_dirs, rules, builds[root], target, macros):
                at = finding.where
                if at is None or not keeps.covers(at.path, range(at.line, at.line + 1), (finding.code.value.id,)):
                    findings.setdefault((finding.code.id, at), finding)
        except PorterError as error:
            if is_named:
                raise
            problems += error.diagnostics
    unused = _unused(keeps, map(str, chosen), _is_of_sm100)
    return Checked(len(chosen), (*findings.values(), *unused), tuple(problems))


_NOTHING_HERE = (Code.NO_KERNEL, Code.RECOMPILED_KERNEL, Code.UNKNOWN_SOURCE_KIND, Code.NO_SOURCES)


def for_porter(paths: Iterable[Path], include_dirs: Sequence[Path], rules: tuple[str, ...]) -> tuple[Path, ...]:
    """Files and directories without those that hold nothing for Porter. What cannot be read stays, to be named."""

    def holds_nothing(path: Path) -> bool:
        if path.is_dir() or _is_build(path) or path.suffix == PTX_ENDING:
            return False
        try:
            files_of(path, include_dirs, rules)
        except PorterError as error:
            return error.diagnostic.code in _NOTHING_HERE
        return False

    return tuple(path for path in paths if not holds_nothing(path))


def _is_build(path: Path) -> bool:
    return path.name in BUILD_FILES or path.suffix in _BUILD_ENDINGS


def _is_read(path: Path) -> bool:
    endings = {*CUDA_ENDINGS, *PYTHON_ENDINGS, PTX_ENDING, *_TELLING_ENDINGS}
    return path.suffix.lower() in endings or path.name in _TELLS_TARGETS or _is_build(path)
