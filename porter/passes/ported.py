# SPDX-License-Identifier: Apache-2.0
"""Files and trees ported: every root with the engine for its language, and all results together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, ExitCode, Location, PorterError, Severity, unforeseen, worst_exit
from porter.diagnostics.spread import Tell, spread
from porter.lang.closures import not_included, with_headers
from porter.lang.embedded import device_sources, embedded_in_python
from porter.lang.lexical import Lexed
from porter.lang.sources import Include, SourceSet, is_header, is_python, load_sources, read_source
from porter.lang.text import EditGroup
from porter.lang.trees import source_files
from porter.model.dsl.names import Names
from porter.model.dsl.reach import marked, mentions, uses_kernels
from porter.passes.alike import Kinds, of_alike, ported_alike, shares
from porter.passes.build_archs import several_architectures
from porter.passes.build_files import build_files_below, build_files_beside, port_build_files
from porter.passes.build_kinds import kind_of
from porter.passes.chip_checks import said_once
from porter.passes.chip_text import Ask, PortOfRoot, check_chip_text
from porter.passes.dsl.port import DslPortResult, DslSources, port_python
from porter.passes.embedded import EmbeddedPortResult, EmbeddingFile, port_cuda_file, port_python_strings
from porter.passes.joint import RootPort, port_together
from porter.passes.kept import kept_port, rule_texts
from porter.passes.partial import LeftKernel
from porter.passes.port import PortOptions, PortResult, port_beside
from porter.passes.store import Store, kept
from porter.passes.store_ready import Unready
from porter.rules.engine import Selection
from porter.rules.load import load_rules, names_of, own_names

Result = PortResult | DslPortResult | EmbeddedPortResult


@dataclass(frozen=True)
class Beside:
    """What lies beside a file: directories where cases look for what it imports, whether one calls it as a CuTe DSL
    kernel, and the directories of its project `above` its own."""

    search: tuple[Path, ...] = ()
    dsl: bool = False
    above: tuple[Path, ...] = ()


Look = Callable[[Path], Beside]
Latent = Callable[[Sequence[Path]], tuple[frozenset[tuple[str, str]], Unready]]
"""The kernels of files whose blocks may end too early, as (file, links followed, name)."""


@dataclass(frozen=True)
class PortedRoot:
    """One file that was ported with its headers: `files` are the keys of its set."""

    path: str
    files: tuple[str, ...]
    added: tuple[str, ...] = ()
    """Files of the port that no original stands for."""
    dsl: bool = False
    include_dirs: tuple[Path, ...] = ()
    full_rate: tuple[str, ...] = ()
    """Kernels whose MMAs have M=128, or that are in SM100's own words."""
    kernels: tuple[str, ...] = ()
    """Kernels that use the tensor core."""
    native: tuple[str, ...] = ()
    """Steps of the native style that its kernels have."""
    stages: int = 0
    """Stages of their ring where a step changed it, else 0."""
    registers: int = 0
    """Registers that warps keep which give some back, where a step changed it, else 0."""
    permuted: tuple[str, ...] = ()
    """Kernels of which rows of A change places in shared memory, by other tensor maps."""
    halved: int | None = None
    """The dimension of the grid that has half the blocks, where a step made tiles twice as wide."""
    joined: bool = False
    """Whether M=128 MMAs are those of two warpgroups."""
    idiomatic: bool = False
    """Whether its kernels are in SM100's own words of CuTe."""
    modes: tuple[str, ...] = ()
    """How results are partitioned then, in kernels of CuTe C++."""
    absent: tuple[str, ...] = ()
    """Names of that which the installed CuTe DSL lacks."""
    alike: tuple[str, ...] = ()
    """Kernels of CuTe C++ whose instantiations have the same types, as the compiler says."""
    pair_axis: int = 0
    """The dimension of the grid that the two blocks of a pair lie in, where a step made pairs."""


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
    includes: set[Include] = field(default_factory=set)
    """What files include of each other."""
    keeps_hopper: bool = False
    """Whether what changed has its original form too."""
    named: frozenset[str] = frozenset()
    """Roots that were given by name, not met in a directory."""
    left_over: list[Diagnostic] = field(default_factory=list)
    """Places in build files that are for Hopper and were not understood, and includes that lead to originals."""

    def elsewhere(self) -> dict[str, bytes]:
        """The files for a place away from the originals."""
        return {**self.scaffold, **self.new}

    def to_write(self) -> dict[str, bytes]:
        """The same without files that stay as they are and include none that changes: what includes them finds them
        beside the originals. Python modules stay together, and what was named is there."""
        kept = set(self.changed)
        for root in self.roots:
            if root.path in self.named or (root.dsl and kept & set(root.files)):
                kept |= set(root.files if root.dsl else (root.path,))
            kept |= set(root.added)
        while more := {i.path for i in self.includes if i.resolved in kept} - kept:
            kept |= more
        return self.scaffold | {path: text for path, text in self.new.items() if path in kept}

    @property
    def changed(self) -> list[str]:
        return [path for path in sorted(self.new) if self.new[path] != self.old.get(path)]

    def of_root(self, root: PortedRoot) -> dict[str, bytes]:
        """All that a root is compiled with: its files, and what they and ports that share some of them added."""
        near = [r for r in self.roots if r is root or (not root.dsl and set(r.files) & set(root.files))]
        files = {path: self.new[path] for path in (*root.files, *(path for r in near for path in r.added))}
        return {**self.scaffold, **files} if root.dsl else files

    def at(self, path: str) -> dict[str, bytes]:
        """All that the root of a path is compiled with; nothing if there is no such root."""
        return next((self.of_root(r) for r in self.roots if r.path == path), {})

    @property
    def changed_roots(self) -> list[PortedRoot]:
        return [r for r in self.roots if set(r.files) & set(self.changed)]

    def leaves(self, entry: str) -> bool:
        """Whether constructs were left unported that a kernel needs: kernels that were left do not matter to others."""
        names = {left.kernel for left in self.left}
        return self.exit_code is not ExitCode.OK and (not names or entry.rsplit("::", 1)[-1] in names)

    def strings(self, path: str) -> tuple[list[bytes], list[bytes]]:
        """The device code of sources in the strings of a file, before and after.

        Raises:
            PorterError: EMBEDDED_SOURCE.
        """
        old, new = self.old[path], self.new[path]
        if old == new or not (is_python(Path(path)) or b'R"' in old):
            return [], []
        return device_sources(path, old), device_sources(path, new)

    def rewritten(self, root: PortedRoot) -> list[str]:
        """The plain text of the CUDA files of a root that are changed, as they were."""
        changed = [name for name in root.files if name in set(self.changed) and not is_python(Path(name))]
        return [Lexed(self.old[name]).plain.decode("utf-8", "replace") for name in changed]

    def add(self, root: str, sources: SourceSet | DslSources | EmbeddingFile, result: Result) -> None:
        """Take in one port. A file that two roots share has to come out the same for both.

        Raises:
            PorterError: SHARED_HEADER if it does not.
        """
        old = dict(sources.sources())
        new = {**old, **result.files}
        for path, data in new.items():
            if path in self.new and self.new[path] != data and self.new[path] != self.old.get(path):
                if data == old.get(path):
                    new[path] = self.new[path]
                    continue
                other = next(r.path for r in self.roots if path in (*r.files, *r.added))
                raise PorterError(Code.SHARED_HEADER, Location(path), path=path, one=other, other=root)
        added = tuple(path for path in result.files if path not in old)
        # what is there already, byte for byte, is no change
        there = {path for path in added if Path(path).is_file() and Path(path).read_bytes() == new[path]}
        self.old.update(old | {path: new[path] for path in there})
        dirs = sources.include_dirs if isinstance(sources, SourceSet) else ()
        rows = result.plans if isinstance(result, PortResult) else ()
        native, stages, registers = (rows[0].native, rows[0].stages, rows[0].registers) if rows else ((), 0, 0)
        kernels = tuple(p.kernel for p in rows)
        full_rate = tuple(p.kernel for p in rows if p.has_full_rate or p.mode)
        if isinstance(result, DslPortResult):
            kernels = tuple(result.kernels)
            full_rate, native = kernels if result.idiomatic else (), result.native
        permuted = tuple(p.kernel for p in rows if p.permuted)
        halved, joined = rows[0].halved if rows else None, any(p.joined for p in rows)
        modes = tuple(dict.fromkeys(p.mode for p in rows if p.mode))
        own_words = bool(modes) or (isinstance(result, DslPortResult) and result.idiomatic)
        absent = result.absent if isinstance(result, DslPortResult) else ()
        alike = tuple(p.kernel for p in rows if p.alike)
        of_plans = (
            full_rate, kernels, native, stages, registers, permuted, halved, joined, own_words, modes, absent, alike,
            rows[0].pair_axis if rows else 0,
        )  # fmt: skip
        paths, is_dsl = tuple(sources.sources()), isinstance(sources, DslSources)
        self.roots.append(PortedRoot(root, paths, added, is_dsl, dirs, *of_plans))
        self.scaffold.update(getattr(result, "scaffold", {}))
        if isinstance(sources, SourceSet):
            self.includes |= {i for i in sources.includes if i.resolved is not None}
        self.new.update(new)
        there_already = {edit for group in self.groups for edit in group.edits}
        for group in result.groups:
            edits = tuple(e for e in group.edits if e not in there_already)
            if edits and not any(e.path in result.build_files for e in group.edits):
                self.groups.append(replace(group, edits=edits))
        self.diagnostics += [d for d in result.diagnostics if d not in self.diagnostics]
        self.left += [k for k in getattr(result, "left", ()) if k not in self.left]
        self.left_over += [d for d in getattr(result, "left_over", ()) if d not in self.left_over]
        self.exit_code = worst_exit([self.exit_code, ExitCode(result.exit_code)])
        if not result.groups and ExitCode(result.exit_code) is ExitCode.OK:
            self.diagnostics.append(Diagnostic(Code.NOTHING_TO_PORT, None, {"path": root}))


def sharing_modules(roots: Sequence[PortedRoot], these: AbstractSet[str]) -> set[str]:
    """Other roots of CuTe DSL that modules lead to from these paths: the support module is one for all."""
    dsl = {r.path: {*r.files, *r.added} for r in roots if r.dsl}
    met = {path for path in dsl if path in these}
    while more := {path for path in dsl if path not in met and any(dsl[path] & dsl[one] for one in met)}:
        met |= more
    return met - these


def roots(
    paths: Iterable[Path],
    rule_directories: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
    store: Store | None = None,
) -> list[Path]:
    """The files to port: named ones, and in directories those that are no headers (headers follow from them), with
    headers of device code that none of these leads to."""
    found: list[Path] = []
    names = names_of(load_rules(rule_directories))
    for path in paths:
        files = source_files(path)
        if path.is_dir():
            files = [f for f in files if not is_python(f) or _is_for_porter(f, names, rule_directories, store)]
            compiled = [f for f in files if not is_header(f)]
            files = [*compiled, *_headers_alone(files, compiled, include_dirs)] if compiled else files
        found += files
    return list(dict.fromkeys(found))


_DEVICE_CODE = re.compile(rb"__global__|\bwgmma\.")


def _headers_alone(files: Iterable[Path], compiled: Sequence[Path], include_dirs: Sequence[Path]) -> list[Path]:
    headers = [f for f in files if is_header(f) and _has_device_code(f)]
    if not headers:
        return []
    _, closures = with_headers([*compiled, *headers], include_dirs)
    alone = set(not_included((h.as_posix() for h in headers), (f.as_posix() for f in compiled), closures))
    return [h for h in headers if h.as_posix() in alone]


def _has_device_code(path: Path) -> bool:
    try:
        return _DEVICE_CODE.search(read_source(path)) is not None
    except PorterError:
        return False


def _is_for_porter(path: Path, names: Names, rule_directories: Sequence[str], store: Store | None) -> bool:
    """Whether a Python file holds kernels, or CUDA source."""
    try:
        text = read_source(path)
    except PorterError:
        return False
    parts = ("python", text, *rule_texts(rule_directories))
    return kept(store, parts, lambda: _has_kernel(path, names) or _has_source(path))


def _has_kernel(path: Path, names: Names) -> bool:
    try:
        return bool(marked(path, names, "kernel"))
    except PorterError:
        return False


def _has_source(path: Path) -> bool:
    """Whether a Python file holds CUDA source; one in a form that is refused counts."""
    try:
        return bool(embedded_in_python(path)[1])
    except PorterError as error:
        return error.diagnostic.code is Code.EMBEDDED_SOURCE


def refused_python(path: Path, names: Names | None = None) -> PorterError:
    """Why a Python file without kernels is not read."""
    names = names or own_names()
    recompiled = marked(path, names, "recompiled") and not mentions(path, names, "by_hand")
    return PorterError(Code.RECOMPILED_KERNEL if recompiled else Code.NO_KERNEL, Location(str(path)), path=path)


def is_dsl_source(path: Path, beside: Beside, names: Names | None = None) -> bool:
    """Whether a Python file has a CuTe DSL kernel; or, having no CUDA source in its strings, launches imported ones or
    is called by a case beside it.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, EMBEDDED_SOURCE.
    """
    names = names or own_names()
    if marked(path, names, "kernel"):
        return True
    return not embedded_in_python(path)[1] and (bool(marked(path, names, "host")) or beside.dsl)


def port_paths(
    paths: Iterable[Path],
    options: PortOptions,
    include_dirs: Sequence[Path],
    look: Look,
    jobs: int = 1,
    tell: Tell | None = None,
    latent: Latent | None = None,
) -> Ported:
    """Port files and trees in `jobs` processes; quoted includes are also looked for in `include_dirs`. `latent` says
    of the files what `PortOptions.ending` and `unready` are.

    Raises:
        PorterError: what the front end and the engine raise.
    """
    given = list(paths)
    files = _build_files(given, options)
    several = several_architectures(files | _builds_above(given, look)) if options.keep_hopper is None else None
    wanted = replace(options, keep_hopper=options.keep_hopper or several is not None)
    found = roots(given, options.rule_directories, include_dirs, options.store)
    ending, unready = latent(found) if latent is not None else (frozenset(), frozenset())
    # build files are ported once, with all that lies around them
    wanted = replace(wanted, ending=ending, unready=unready, beside=False)
    named = frozenset(str(p) for p in given)
    try:
        ported = _port_files(found, wanted, include_dirs, look, jobs, tell, named, several is not None)
    except PorterError as error:
        if error.diagnostic.code is not Code.NOT_FOR_BOTH_CHIPS or several is None:
            raise
        # nobody asked for what CuTe DSL cannot have
        several, wanted = None, replace(options, keep_hopper=False, beside=False)
        ported = _port_files(found, wanted, include_dirs, look, jobs, tell, named)
    if ported.changed_roots:
        _port_build_files(ported, files, wanted)
        ported.keeps_hopper = bool(wanted.keep_hopper)
        if several is not None:
            ported.diagnostics.append(Diagnostic(Code.HOPPER_KEPT, several))
    ported.diagnostics = said_once(ported.diagnostics)
    return ported


def _build_files(paths: Iterable[Path], options: PortOptions) -> dict[str, bytes]:
    """The build files of the directories that were given, and those beside single files."""
    rules = load_rules(options.rule_directories)
    found: list[Path] = []
    for path in paths:
        if path.exists():
            found += build_files_below(path) if path.is_dir() else build_files_beside(path, rules)
    return {str(p): p.read_bytes() for p in found}


def _builds_above(paths: Iterable[Path], look: Look) -> dict[str, bytes]:
    """The build files of the project in the directories above single files, which their port leaves alone. Scripts of
    any name in such a directory are other people's as often as not."""
    found: dict[str, bytes] = {}
    for path in paths:
        if path.is_file():
            above = look(path).above
            named = [p for d in above for p in sorted(d.iterdir()) if kind_of(str(p)) not in (None, "shell")]
            found |= {str(p): p.read_bytes() for p in named if p.is_file()}
    return found


def _port_build_files(ported: Ported, files: Mapping[str, bytes], options: PortOptions) -> None:
    rules, selection = load_rules(options.rule_directories), Selection(options.select or None, options.ignore)
    own = {path: source for path, source in files.items() if path not in ported.old}
    parts = ("build files", sorted(own.items()), options.select, options.ignore, bool(options.keep_hopper),
             options.target, *rule_texts(options.rule_directories))  # fmt: skip
    make = partial(port_build_files, own, rules, selection, bool(options.keep_hopper), options.target)
    built = kept(options.store, parts, make)
    ported.old |= {path: own[path] for path in built.files}
    ported.new |= built.files
    ported.groups += built.groups
    ported.left_over += [] if options.select else built.left
    ported.diagnostics += [] if options.select else built.notes


def port_root(
    root: Path, options: PortOptions, include_dirs: Sequence[Path], look: Look
) -> tuple[SourceSet | DslSources | EmbeddingFile, Result]:
    """One file with its headers or modules.

    Raises:
        PorterError: NO_KERNEL for a Python file without any; NOT_FOR_BOTH_CHIPS; what the front end and the engine
            raise.
    """
    if not is_python(root):
        sources = load_sources(root, include_dirs)
        return sources, kept_port(sources, options, port_cuda_file)
    names = names_of(load_rules(options.rule_directories))
    if not marked(root, names, "kernel") and (strings := port_python_strings(root, options)) is not None:
        return strings.sources, strings
    beside = look(root)
    search = (*include_dirs, *beside.search)
    if not uses_kernels(root, names, search) and not is_dsl_source(root, beside, names):
        raise refused_python(root, names)
    traces = options.traces if str(root) not in options.half_rate else None
    result = port_python(
        root,
        options.select,
        options.ignore,
        options.rule_directories,
        search,
        options.target,
        traces,
        [name for name in options.native if options.asks(name, str(root))],
    )
    if options.keep_hopper and result.groups:
        raise PorterError(Code.NOT_FOR_BOTH_CHIPS, Location(str(root)), what="a CuTe DSL kernel")
    return result.sources, result


Sources = SourceSet | DslSources | EmbeddingFile


@dataclass(frozen=True, eq=False)
class PortedFile:
    """What became of one file: its sources and their port, or what kept it from being read."""

    root: Path
    sources: Sources | None = None
    result: Result | None = None
    error: PorterError | None = None


def _port_files(
    files: Sequence[Path],
    options: PortOptions,
    include_dirs: Sequence[Path],
    look: Look,
    jobs: int,
    tell: Tell | None,
    named: frozenset[str],
    may_choose: bool = False,
) -> Ported:
    """What keeps a file that was `named` from being read ends the port; so does, where both chips were not asked for
    and the caller `may_choose`, what has no form for both. Another file of a directory is left as it is."""
    ported = Ported(named=named)
    done: list[_Done] = []
    for file in port_each(files, options, include_dirs, look, jobs, tell):
        if file.error is not None:
            chooses = may_choose and file.error.diagnostic.code is Code.NOT_FOR_BOTH_CHIPS
            if str(file.root) in named or chooses or len(files) == 1:
                raise file.error
            ported.diagnostics += [d if d.where else replace(d, where=Location(str(file.root)))
                                   for d in file.error.diagnostics]  # fmt: skip
            ported.exit_code = ExitCode.UNPORTED
            continue
        assert file.sources is not None
        assert file.result is not None
        done.append((file.root, file.sources, file.result))
    for root, sources, result in _with_what_asks(done, options):
        ported.add(str(root), sources, result)
    return ported


def port_each(
    files: Sequence[Path],
    options: PortOptions,
    include_dirs: Sequence[Path],
    look: Look,
    jobs: int = 1,
    tell: Tell | None = None,
    keep_going: bool = False,
    together: bool = True,
) -> list[PortedFile]:
    """The ports of files, agreed on the headers that they share, in `jobs` processes. `keep_going`: a file on which the
    engine fails does not end the others. `together`: of files that differ in what they instantiate alone, one is
    ported."""
    # one file is ported sooner than it is looked up
    ask, options = options.ask, replace(options, ask=None, store=options.store if len(files) > 1 else None)
    one = partial(_port_one, options=options, include_dirs=include_dirs, look=look, keep_going=keep_going)
    families = _families(files, options, include_dirs) if together else {}
    done = _of_families(files, families, lambda these, told: spread(one, these, jobs, told), tell)
    # two of a kind share what they include, as all of them do
    two = {i for family in families.values() for i in family.members[1:]}
    cuda = {
        i: RootPort(f.sources, f.result, options)
        for i, f in enumerate(done)
        if i not in two and isinstance(f.sources, SourceSet) and isinstance(f.result, PortResult)
    }
    kinds = next((f.kinds for f in families.values()), None)

    def again(wanted: Sequence[tuple[SourceSet, PortOptions]]) -> list[PortResult]:
        return ported_alike(wanted, kinds, lambda these: spread(_port_again, these, jobs))

    agreed = port_together(list(cuda.values()), again)
    for i, port in zip(cuda, agreed, strict=True):
        done[i] = replace(done[i], result=port.result)
    for family in families.values():
        for i in family.members[1:]:
            made, sources = done[family.members[0]].result, done[i].sources
            assert isinstance(made, PortResult)
            assert isinstance(sources, SourceSet)
            like = of_alike(made, sources, family.kinds)
            if like is None:
                return port_each(files, replace(options, ask=ask), include_dirs, look, jobs, None, keep_going, False)
            done[i] = replace(done[i], result=like)
    if ask is not None and not options.select:
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            list(pool.map(partial(_ask, options=options, ask=ask), done))
    return done


@dataclass(frozen=True)
class _Family:
    """Files that are alike: one is ported, and the `members`, by their numbers, have the same."""

    kinds: Kinds
    members: list[int]
    sources: dict[int, SourceSet]


def _families(files: Sequence[Path], options: PortOptions, include_dirs: Sequence[Path]) -> dict[int, _Family]:
    """The files that are alike, by the number of the first."""
    if len(files) < 2 or not shares(options):
        return {}
    kinds = Kinds(options.rule_directories)
    first: dict[object, int] = {}
    families: dict[int, _Family] = {}
    for i, path in enumerate(files):
        if is_python(path) or is_header(path):
            continue
        try:
            sources = load_sources(path, include_dirs)
            kind = kinds.of(sources)
        except PorterError:
            continue
        if kind is not None and first.setdefault(kind, i) != i:
            family = families.setdefault(first[kind], _Family(kinds, [], {}))
            family.members.append(i)
            family.sources[i] = sources
    return families


def _of_families(
    files: Sequence[Path],
    families: dict[int, _Family],
    port: Callable[[Sequence[Path], Tell | None], list[PortedFile]],
    tell: Tell | None,
) -> list[PortedFile]:
    """The ports of all files. A family whose port names the file that it is of is ported file by file, and is none."""
    like = {i: first for first, family in families.items() for i in family.members}
    own = [i for i in range(len(files)) if i not in like]
    total = len(files)
    done = dict(zip(own, port([files[i] for i in own], tell and (lambda n, _: tell(n, total))), strict=True))
    alone = []
    for i, first in like.items():
        made, sources = done[first].result, families[first].sources[i]
        result = of_alike(made, sources, families[first].kinds) if isinstance(made, PortResult) else None
        if result is None:
            alone.append(i)
        else:
            done[i] = PortedFile(files[i], sources, result)
    for first in {like[i] for i in alone}:
        del families[first]
    for i, file in zip(alone, port([files[i] for i in alone], None) if alone else [], strict=True):
        done[i] = file
    return [done[i] for i in range(total)]


def _ask(file: PortedFile, options: PortOptions, ask: Ask) -> None:
    """Add what the preprocessor says of a port."""
    sources, result = file.sources, file.result
    if not isinstance(result, PortResult | EmbeddedPortResult) or not result.groups or not result.has_tensor_core:
        return
    assert isinstance(sources, SourceSet | EmbeddingFile)
    old = sources.sources()
    # without the original's form beside the port's, which both chips would come to
    groups = result.plain if isinstance(result, PortResult) and options.keep_hopper else result.groups
    added = {path: text for path, text in result.files.items() if path not in old}
    dirs = sources.include_dirs if isinstance(sources, SourceSet) else ()
    port = PortOfRoot(sources.root, old, groups, added, dirs)
    rules = load_rules(options.rule_directories)
    for found in check_chip_text(port, options.target, rules, ask, result.left_over):
        (result.left_over if found.severity is Severity.ERROR else result.diagnostics).append(found)


def _port_one(
    root: Path, options: PortOptions, include_dirs: Sequence[Path], look: Look, keep_going: bool
) -> PortedFile:
    try:
        sources, result = port_root(root, options, include_dirs, look)
        return PortedFile(root, sources, result)
    except PorterError as error:
        return PortedFile(root, error=error)
    except Exception as error:
        if not keep_going:
            raise
        return PortedFile(root, error=PorterError.of([unforeseen(error)]))


def _port_again(wanted: tuple[SourceSet, PortOptions]) -> PortResult:
    return kept_port(*wanted, port_cuda_file)


_Done = tuple[Path, Sources, Result]


def _with_what_asks(done: list[_Done], options: PortOptions) -> list[_Done]:
    """The same ports, with host code of other files that asks for Hopper, where a kernel is ported."""
    if not any(port.groups and getattr(port, "has_tensor_core", True) for _, _, port in done):
        return done
    changed = frozenset(e.path for _, _, port in done for g in port.groups for e in g.edits)
    return [
        (root, sources, port_beside(port, options, changed))
        if isinstance(port, PortResult) and not port.groups and port.exit_code is ExitCode.OK
        else (root, sources, port)
        for root, sources, port in done
    ]
