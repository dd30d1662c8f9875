# SPDX-License-Identifier: Apache-2.0
"""Calling the port engine for the commands that need a port."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from porter.build.port_plan import PortPlan
from porter.cli.context import Session, current
from porter.cli.inputs import case_directories, is_dsl_source
from porter.cli.options import split_list
from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError, worst_exit
from porter.lang.embedded import embedded_in_python
from porter.lang.sources import SourceSet, is_python, load_sources
from porter.lang.text import EditGroup
from porter.model.dsl.reach import uses_kernels
from porter.passes.dsl.port import DslSources, port_python
from porter.passes.embedded import EmbeddingFile, port_cuda_file, port_python_strings
from porter.passes.partial import LeftKernel
from porter.passes.port import PortOptions
from porter.scan.inventory import python_kernels, refuse_python, source_files


@dataclass(frozen=True)
class PortedRoot:
    """One file that was ported with its headers: `files` are the keys of its set."""

    path: str
    files: tuple[str, ...]
    added: tuple[str, ...] = ()
    """Files of the port that no original stands for."""
    dsl: bool = False


@dataclass
class Ported:
    """All files of one or more source sets before and after, by path."""

    old: dict[str, bytes] = field(default_factory=dict)
    new: dict[str, bytes] = field(default_factory=dict)
    groups: list[EditGroup] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    exit_code: ExitCode = ExitCode.OK
    roots: list[PortedRoot] = field(default_factory=list)
    scaffold: dict[str, bytes] = field(default_factory=dict)
    """Files that a port needs wherever it does not lie among the originals."""
    left: list[LeftKernel] = field(default_factory=list)
    """Kernels that were refused while others of their file were ported."""

    def elsewhere(self, paths: Iterable[str] | None = None) -> dict[str, bytes]:
        """The files (of these paths) for a place away from the originals."""
        new = self.new if paths is None else {path: self.new[path] for path in paths}
        return {**self.scaffold, **new}

    @property
    def changed(self) -> list[str]:
        return [path for path in sorted(self.new) if self.new[path] != self.old.get(path)]

    def add(self, root: str, sources: SourceSet | DslSources | EmbeddingFile, result: Any) -> None:
        """Take in one port. A header that two roots share has to come out the same for both.

        Raises:
            PorterError: WOULD_OVERWRITE if it does not.
        """
        old = {**sources.sources(), **{path: Path(path).read_bytes() for path in result.build_files}}
        new = {**old, **result.files, **result.build_files}
        for path, data in new.items():
            if path in self.new and self.new[path] != data and self.new[path] != self.old.get(path):
                if data == old.get(path):
                    new[path] = self.new[path]
                    continue
                reason = f"its port for {root} is not the one for another file"
                raise PorterError(Code.WOULD_OVERWRITE, Location(path), path=path, reason=reason)
        self.old.update(old)
        added = tuple(path for path in result.files if path not in old)
        self.roots.append(PortedRoot(root, tuple(sources.sources()), added, isinstance(sources, DslSources)))
        self.scaffold.update(getattr(result, "scaffold", {}))
        self.new.update(new)
        self.groups += [g for g in result.groups if g not in self.groups]
        self.diagnostics += [d for d in result.diagnostics if d not in self.diagnostics]
        self.left += [k for k in getattr(result, "left", ()) if k not in self.left]
        self.exit_code = worst_exit([self.exit_code, ExitCode(result.exit_code)])
        if not result.groups and ExitCode(result.exit_code) is ExitCode.OK:
            self.diagnostics.append(Diagnostic(Code.NOTHING_TO_PORT, None, {"path": root}))


def roots(paths: Iterable[Path]) -> list[Path]:
    """The files to port: named ones, and in directories those that are no headers (headers follow from
    them)."""
    found: list[Path] = []
    for path in paths:
        files = source_files(path)
        if path.is_dir():
            headers = {".cuh", ".h", ".hpp", ".hh", ".inl"}
            files = [f for f in files if not is_python(f) or _has_kernel(f) or _has_source(f)]
            files = [f for f in files if f.suffix.lower() not in headers] or files
        found += files
    return list(dict.fromkeys(found))


def _has_kernel(path: Path) -> bool:
    try:
        return bool(python_kernels(path))
    except PorterError:
        return False


def _has_source(path: Path) -> bool:
    """Whether a Python file holds CUDA source; one in a form that is refused counts."""
    try:
        return bool(embedded_in_python(path)[1])
    except PorterError as error:
        return error.diagnostic.code is Code.EMBEDDED_SOURCE


def port_options(session: Session) -> PortOptions:
    """What a session says of every port that it makes."""
    return PortOptions(
        tuple(split_list(session.select)), tuple(split_list(session.ignore)), tuple(map(str, session.rules))
    )


def port_paths(
    paths: Iterable[Path],
    include_dirs: Sequence[Path] = (),
    select: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
) -> Ported:
    """Port files and trees with the session's rules; quoted includes are also looked for in `include_dirs`.

    Raises:
        PorterError: what the front end and the engine raise.
    """
    options = port_options(current())
    if select is not None and ignore is not None:
        options = replace(options, select=tuple(select), ignore=tuple(ignore))
    found = roots(paths)
    try:
        return _port_roots(found, options, include_dirs)
    except PorterError as error:
        if error.diagnostic.code is not Code.WOULD_OVERWRITE:
            raise
    # kernels that share a header may need helpers that differ
    return _port_roots(found, replace(options, helpers_in_root=True), include_dirs)


def _port_roots(found: Iterable[Path], options: PortOptions, include_dirs: Sequence[Path]) -> Ported:
    ported = Ported()
    done: list[tuple[Path, SourceSet | DslSources | EmbeddingFile, Any]] = []
    for root in found:
        if not is_python(root):
            sources = load_sources(root, include_dirs)
            done.append((root, sources, port_cuda_file(sources, options)))
        elif python_kernels(root) or (strings := port_python_strings(root, options)) is None:
            search = (*include_dirs, *case_directories(root))
            if not uses_kernels(root, search) and not is_dsl_source(root):
                raise refuse_python(root)
            result = port_python(root, options.select, options.ignore, options.rule_directories, search)
            done.append((root, result.sources, result))
        else:
            done.append((root, strings.sources, strings))
    for root, files, port in _beside_refused(done, options):
        ported.add(str(root), files, port)
    return ported


def _beside_refused(
    done: list[tuple[Path, SourceSet | DslSources | EmbeddingFile, Any]], options: PortOptions
) -> list[tuple[Path, SourceSet | DslSources | EmbeddingFile, Any]]:
    """The same ports where no header of a refused root is changed for another root. Where one is, the kernels of the
    refused root are left in it, and the header's functions are there in both forms."""
    cuda = [(sources, port) for _, sources, port in done if isinstance(sources, SourceSet)]
    pairs = [(p, port.files[p], f.source) for sources, port in cuda for p, f in sources.files.items()]
    changed = {path for path, new, old in pairs if new != old}
    refused = [s for s, port in cuda if ExitCode(port.exit_code) is not ExitCode.OK and not port.groups]
    shared = frozenset(path for sources in refused for path in sources.files if path in changed)
    if not shared:
        return done
    again = []
    for root, sources, port in done:
        if isinstance(sources, SourceSet) and shared & set(sources.files):
            leave = any(sources is s for s in refused)
            port = port_cuda_file(sources, replace(options, leave=leave, both_forms=shared))
        again.append((root, sources, port))
    return again


def plan_of(
    kernel: Path, port: Path | None = None, include_dirs: Sequence[Path] = (), entry: str = ""
) -> tuple[PortPlan | None, list[Diagnostic]]:
    """The port of a kernel file: `port` if it is given, else one made now. None if constructs were left unported; the
    diagnostics then say which. Kernels that were left do not matter where `entry` is another one."""
    if port is not None:
        return PortPlan(source=port), []
    ported = port_paths([kernel], (*include_dirs, *current().include_dirs))
    names = {left.kernel for left in ported.left}
    if ported.exit_code is not ExitCode.OK and (not names or entry.rsplit("::", 1)[-1] in names):
        left = Diagnostic(Code.PORT_INCOMPLETE, None, {"path": str(kernel)})
        return None, [left, *ported.diagnostics]
    kept = [d for d in ported.diagnostics if d.code is not Code.NOTHING_TO_PORT]
    return PortPlan(files=ported.elsewhere()), kept
