# SPDX-License-Identifier: Apache-2.0
"""What is in sources: kernels, constructs, what each becomes, how much could be read, how much work a port is.

`porter.scan.constructs` reads one file, `porter.scan.effort` asks the port engine; this module walks trees.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, Location, PorterError, unforeseen
from porter.diagnostics.spread import spread
from porter.lang.closures import not_included, with_headers
from porter.lang.embedded import embedded_in_python
from porter.lang.lexical import MacroText, lexed
from porter.lang.masking import NO_MACROS, MacroUses, learn_macros
from porter.lang.sources import is_header, is_python, load_sources, read_source
from porter.lang.trees import source_files
from porter.model.dsl.reach import marked, uses_kernels
from porter.passes.dsl.unread import not_found_from
from porter.passes.port import PortOptions, PortResult
from porter.passes.ported import Beside, Look, PortedFile, port_each, refused_python
from porter.rules.load import load_rules, names_of
from porter.scan.builds import build_files, build_inventories, judge_builds
from porter.scan.constructs import (
    TARGET,
    FileInventory,
    cuda_inventory,
    dsl_inventory,
    embedded_inventory,
    without_own,
)
from porter.scan.effort import library_effort, port_effort
from porter.scan.headers import headers_not_found
from porter.scan.kernels import KernelSummary, kernel_summaries
from porter.scan.levels import LEVELS, Effort

_AS_IT_IS = PortOptions()
Tell = Callable[[str, int, int], None]
"""Takes what is being done, to how many files it is done, and of how many."""


def _nothing_beside(path: Path) -> Beside:
    return Beside()


@dataclass(frozen=True)
class Total:
    """One kind of construct over all files. `files` is how many hold it."""

    name: str
    kind: str
    status: str
    count: int
    files: int
    becomes: str


@dataclass(frozen=True)
class Inventory:
    """All files, and what could not be read at all."""

    target: str
    files: tuple[FileInventory, ...]
    diagnostics: tuple[Diagnostic, ...] = field(default=())
    headers_not_found: tuple[Diagnostic, ...] = field(default=())
    """One for each header of the project that some file includes and that was not read."""

    @property
    def hopper_only(self) -> int:
        return sum(f.hopper_only for f in self.files)

    @property
    def coverage(self) -> float:
        """Share of all bytes, weighted by file length."""
        total = sum(f.nbytes for f in self.files)
        return sum(f.coverage * f.nbytes for f in self.files) / total if total else 1.0

    @property
    def totals(self) -> tuple[Total, ...]:
        """Every kind of construct, what has to be ported first, most frequent first."""
        counts: Counter[tuple[str, str, str, str]] = Counter()
        files: Counter[tuple[str, str, str, str]] = Counter()
        for file in self.files:
            for c in file.constructs:
                key = (c.name, c.kind, c.status, c.becomes)
                counts[key] += c.count
                files[key] += 1
        order = {"hopper": 0, "beside": 1, "unknown": 2, "both": 3}
        keys = sorted(counts, key=lambda k: (order[k[2]], -counts[k], k))
        return tuple(Total(k[0], k[1], k[2], counts[k], files[k], k[3]) for k in keys)

    @property
    def efforts(self) -> dict[str, int]:
        """How many files each level of effort has, easiest first; levels that no file has are left out."""
        found = Counter(f.effort.level for f in self.files)
        return {level: found[level] for level in LEVELS if found[level]}


def take_inventory(
    paths: Sequence[Path],
    target: str = TARGET,
    jobs: int = 1,
    effort: bool = True,
    include_dirs: Sequence[Path] = (),
    options: PortOptions = _AS_IT_IS,
    look: Look = _nothing_beside,
    tell: Tell | None = None,
) -> Inventory:
    """The inventory of files and directories with their local headers, each file once, read in `jobs` processes.
    Headers are looked for where `load_sources` does.

    A named file that cannot be read is raised; one met in a directory becomes a diagnostic. Without `effort`
    the port engine is not run; `options` are those that it gets, and whose rules are looked for.

    Raises:
        PorterError: FILE_NOT_FOUND, NO_SOURCES, NOT_TEXT, UNKNOWN_SOURCE_KIND.
    """
    chosen: dict[Path, bool] = {}
    problems: list[Diagnostic] = []
    for path in paths:
        if path.is_dir():
            for source in source_files(path):
                chosen.setdefault(source, False)
        else:
            for source in files_of(path, include_dirs, options.rule_directories):
                chosen[source] = True
    sources, closures = with_headers(list(chosen), include_dirs)
    macros = _macros(s for s in sources if not is_python(s))
    rules, named = options.rule_directories, frozenset(s for s in sources if chosen.get(s))
    read = partial(_read_one, target=target, macros=macros, named=named, rules=rules)
    files: dict[str, FileInventory] = {}
    for file, found in spread(read, sources, jobs, tell and partial(tell, "reading")):
        problems += found
        if file is not None:
            files[file.path] = file
    _drop_own(files, closures)
    builds = build_files([path for path in paths if path.is_dir()], files.keys())
    files |= build_inventories(builds, rules)
    if effort:
        one = partial(port_each, options=options, include_dirs=include_dirs, look=look, jobs=jobs, keep_going=True)
        known = {p: found & files.keys() for p, found in closures.items() if p in files}
        _judge(files, known, partial(one, tell=tell and partial(tell, "porting")), rules)
        judge_builds(files, builds, options)
    else:
        files = {p: replace(f, effort=Effort("unknown")) for p, f in files.items()}
    cuda = [s for s in sources if not is_python(s)]
    missing = headers_not_found(cuda, [s.resolve().as_posix() for s in cuda], include_dirs)
    for module in (Path(p) for p, f in sorted(files.items()) if f.kind == "dsl"):
        absent = not_found_from(module, names_of(load_rules(rules)), (*include_dirs, *look(module).search))
        missing += [d for d in absent if d not in missing]
    return Inventory(target, tuple(files[k] for k in sorted(files)), tuple(problems), tuple(missing))


def files_of(path: Path, include_dirs: Sequence[Path], rules: Sequence[str]) -> list[Path]:
    """A file that was named, with its local headers."""
    if not path.exists():
        raise PorterError(Code.FILE_NOT_FOUND, path=path)
    if is_python(path):
        names = names_of(load_rules(rules))
        is_dsl = marked(path, names, "kernel") or embedded_in_python(path)[1] or uses_kernels(path, names, include_dirs)
        if not is_dsl:
            raise refused_python(path, names)
        return [path]
    return [Path(key) for key in load_sources(path, include_dirs).files]


def _drop_own(files: dict[str, FileInventory], closures: dict[str, set[str]]) -> None:
    """A function that a file's headers define, or those that are read with it, is none of a library."""
    defined: dict[str, set[str]] = {p: set(f.defines) for p, f in files.items() if f.kind == "cuda"}
    for found in closures.values():
        names = {name for p in found if p in files for name in files[p].defines}
        if names:
            for path in found & defined.keys():
                defined[path] |= names
    for path, names in defined.items():
        if names:
            files[path] = without_own(files[path], names)


_DEFINES_SPECIFIER = re.compile(
    rb"^[ \t]*#[ \t]*define[ \t]+\w+[^\n]*(?:__\w+__|\binline\b|\bstatic\b|\bconstexpr\b|_Pragma)", re.MULTILINE
)


def _macros(sources: Iterable[Path]) -> MacroUses:
    """What the files' macros stand for, learnt from those that define specifiers or pragmas."""
    found: list[MacroText] = []
    for path in sources:
        try:
            text = read_source(path)
        except PorterError:
            continue
        if b"define" in text and _DEFINES_SPECIFIER.search(text):
            found += lexed(text).macros()
    return learn_macros(found) if found else NO_MACROS


def _read_one(
    path: Path, target: str, macros: MacroUses, named: frozenset[Path], rules: tuple[str, ...]
) -> tuple[FileInventory | None, list[Diagnostic]]:
    """One file, and what has to be said about it; nothing for Python files in a tree that hold no kernels."""
    try:
        if is_python(path):
            if marked(path, names_of(load_rules(rules)), "kernel"):
                return dsl_inventory(path, rules), []
            source, strings = embedded_in_python(path)
            if strings:
                return embedded_inventory(path, source, strings, target, rules)
            return (dsl_inventory(path, rules), []) if path in named else (None, [])
        return cuda_inventory(path.as_posix(), read_source(path), target, macros, rules)
    except PorterError as error:
        if path in named:
            raise
        if is_python(path):
            return None, []
        where = error.diagnostic.where or Location(str(path))
        return None, [replace(error.diagnostic, where=where)]
    except Exception as error:
        if path in named:
            raise
        return None, [unforeseen(error, Location(str(path)))]


def _judge(
    files: dict[str, FileInventory],
    closures: dict[str, set[str]],
    ported: Callable[[list[Path]], list[PortedFile]],
    rules: tuple[str, ...],
) -> None:
    """Set the effort of every file that holds something Hopper-only, itself or in a header: what the engine makes of
    it; of a header, what it makes of the files that include it."""
    todo = {p: f for p, f in files.items() if f.needs_port and f.kind != "build"}
    wanted = {p for p, f in todo.items() if f.kind == "dsl" or f.kernels or (f.has_wgmma and not f.library)}
    if rules:
        # what a rule recognizes may have no word of Hopper in it
        wanted |= {p for p, f in files.items() if f.kind == "cuda" and f.kernels}
    roots = {p for p, found in closures.items() if not is_header(Path(p)) and found & wanted}
    # A header that some file includes is judged with that file.
    kernels = {p for p, found in closures.items() if files[p].kernels and found & wanted}
    roots |= set(not_included(wanted | kernels, roots, closures))
    ordered = sorted(roots)
    made = ported([Path(p) for p in ordered])
    # a header without a word of Hopper changes with what it calls
    touched = {p for one in made if isinstance(one.result, PortResult) for p in one.result.changed} & files.keys()
    judging = dict.fromkeys((*todo, *sorted(touched), *ordered))
    reached = {p: {r for r in roots if p in closures.get(r, ()) and r != p} for p in judging}
    judged = {path: port_effort(one) for path, one in zip(ordered, made, strict=True)}
    for one in made:
        for summary in _summaries(one, rules):
            if summary.path in files:
                held = files[summary.path]
                files[summary.path] = replace(held, summaries=tuple(dict.fromkeys((*held.summaries, summary))))
    for path in judging:
        file = files[path]
        found = judged.get(path)
        if found is None and reached.get(path):
            root = max(sorted(reached[path]), key=lambda r: LEVELS.index(judged[r].level))
            found = Effort(judged[root].level, (f"with {root}", *judged[root].why))
        if found is None:
            found = library_effort(path, rules)
        files[path] = replace(file, effort=found)


def _summaries(one: PortedFile, rules: tuple[str, ...]) -> list[KernelSummary]:
    return kernel_summaries(one.result, load_rules(rules)) if isinstance(one.result, PortResult) else []
