# SPDX-License-Identifier: Apache-2.0
"""The modules that a file imports, found without running anything.

A file's own project is the package that it lies in, or the files beside it; those modules keep their names. Modules
that the interpreter would find elsewhere are installed: they can only be copied.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst

from porter.diagnostics import PorterError
from porter.lang.cute_dsl import SUPPORT, Dialect, DslFile, Function, listed, parse_dsl, read_dsl, within
from porter.lang.python import ImportStatement, dotted

_NOT_FOLLOWED = frozenset({SUPPORT}) | sys.stdlib_module_names
_DEPTH = 16
"""How many modules may hand a name on."""


@dataclass(eq=False)
class Module:
    """One module of a closure. `own`: of the root's project."""

    name: str
    file: DslFile
    own: bool
    imported: set[str] = field(default_factory=set)
    """Names of the modules of the closure that it imports."""
    absent: set[str] = field(default_factory=set)
    """Names of modules that it imports and that are nowhere."""

    @property
    def path(self) -> str:
        return self.file.path

    @property
    def is_package(self) -> bool:
        return Path(self.path).name == "__init__.py"

    @functools.cached_property
    def ported(self) -> bool:
        """Whether it is part of a port already."""
        return any(
            dotted(s.module) == SUPPORT if isinstance(s, cst.ImportFrom) else (SUPPORT, "") in listed(s)
            for s in self.file.import_statements
        )

    def mentions(self, *words: bytes) -> bool:
        return any(word in self.file.source for word in words)


@dataclass(eq=False)
class Closure:
    """A root and everything that it imports."""

    root: Module
    modules: dict[str, Module]

    @property
    def open(self) -> list[Module]:
        """The modules that are no part of a port already."""
        return [m for m in self.modules.values() if not m.ported]

    @property
    def top(self) -> Path:
        """The directory that the project's imports start from, as the user would name it."""
        directory = Path(self.root.path).parent
        for _ in range(self.root.name.count(".") + self.root.is_package):
            directory = directory.parent if directory.name not in ("", "..") else directory / ".."
        return directory

    @functools.cached_property
    def functions(self) -> dict[str, list[tuple[Module, Function]]]:
        """By name the functions of all modules."""
        found: dict[str, list[tuple[Module, Function]]] = defaultdict(list)
        for module in self.modules.values():
            for function in module.file.functions() if module.mentions(b"def ") else ():
                found[function.name.value].append((module, function))
        return dict(found)

    def spread(self, names: set[str]) -> set[str]:
        """The modules that import one of these, directly or not, and these."""
        found, grown = set(names), True
        while grown:
            new = {m.name for m in self.modules.values() if m.imported & found} - found
            found |= new
            grown = bool(new)
        return found

    def hands_on(self, module: Module, local: str) -> bool:
        """Whether another module takes the name `local` from this one."""
        name = f"{module.name}.{local}"
        for taker in self.open:
            if module.name in taker.imported:
                listed = {full for full, _ in taker.file.imported()}
                if listed & {name, f"{module.name}.*"} or any(within(r.name, name) for r in taker.file.all_references):
                    return True
        return False

    def home(self, name: str) -> Module | None:
        """The module that a full name is, or lies in."""
        while name and name not in self.modules:
            name = name.rpartition(".")[0]
        return self.modules.get(name)

    def canonical(self, name: str, depth: int = _DEPTH) -> str:
        """The name that a qualified name has where it was made: modules hand on what they import."""
        parts = name.split(".")
        for i in range(len(parts) - 1, 0, -1):
            module = self.modules.get(".".join(parts[:i]))
            if module is None:
                continue
            for target in _exports(module.file, parts[i]) if depth else ():
                found = self.canonical(".".join([target, *parts[i + 1 :]]), depth - 1)
                if target.partition(".")[0] in self.root.file.dialect.packages or found != name:
                    return found
            return name
        return name


def _exports(file: DslFile, name: str) -> list[str]:
    bound = file.bound(name)
    found = [b.target for b in bound if b is not None and b.value is None]
    return found or ([] if bound else [f"{star}.{name}" for star in file.stars])


class _Search:
    """Where modules are: the project first, then `directories`, then what the interpreter has."""

    def __init__(self, root: Path, first: DslFile, directories: Sequence[Path]):
        self.root, self.packages = root, first.dialect.packages
        self.closed = _NOT_FOLLOWED | first.dialect.closed
        self.anchor = _anchor(root, first.import_statements, self.closed)
        self.name = ".".join(root.relative_to(self.anchor).with_suffix("").parts)
        self.name = self.name.removesuffix(".__init__")
        self.elsewhere = [d.resolve() for d in directories]
        self.elsewhere += [Path(p) for p in sys.path if p and os.path.isdir(p)]

    def find(self, name: str) -> tuple[Path, bool] | None:
        """The file of a module, and whether it is of the project; None for what is not followed."""
        top = name.partition(".")[0]
        if top in self.closed:
            return None
        if top == self.name.partition(".")[0] and self.root.parent != self.anchor:
            return self._own(_file_in(self.anchor, name))
        found = _file_in(self.root.parent, name)
        if found is not None or _is_directory(self.root.parent, top):
            return self._own(found)
        for directory in self.elsewhere:
            found = _file_in(directory, name)
            if found is not None:
                return (found, False) if _mentions(directory, top, self.packages) else None
        return None

    def is_absent(self, name: str) -> bool:
        """Whether a module is neither in the project nor where the interpreter looks."""
        top = name.partition(".")[0]
        if not top:
            # above everything that the file lies in
            return True
        if top in self.closed or self.find(name) is not None:
            return False
        if top == self.name.partition(".")[0] and self.root.parent != self.anchor:
            return not _is_there(self.anchor, name)
        if _is_directory(self.root.parent, top) or _file_in(self.root.parent, top) is not None:
            return not _is_there(self.root.parent, name)
        holders = [d for d in self.elsewhere if _is_there(d, top)]
        if not holders:
            return not _is_installed(top)
        # what names no kernels is not read
        return any(_mentions(d, top, self.packages) for d in holders) and not any(_is_there(d, name) for d in holders)

    @staticmethod
    def _own(found: Path | None) -> tuple[Path, bool] | None:
        return (found, True) if found is not None else None


def _anchor(root: Path, statements: Sequence[ImportStatement], closed: frozenset[str]) -> Path:
    """The directory that holds the root's top package: packages may have no `__init__.py`, their imports tell then."""
    anchors = [root.parent]
    while (anchors[-1] / "__init__.py").is_file():
        anchors.append(anchors[-1].parent)
    for statement in statements:
        if isinstance(statement, cst.ImportFrom) and statement.relative:
            anchors.append(root.parents[min(len(statement.relative), len(root.parents) - 1)])
            continue
        for alias, _ in listed(statement):
            name = dotted(statement.module) if isinstance(statement, cst.ImportFrom) else alias
            top = name.partition(".")[0]
            above = [p.parent for p in root.parents if p.name == top and name != top]
            anchors += [p for p in above if top not in closed and _file_in(p, name) is not None]
    return min(anchors, key=lambda p: len(p.parts))


@functools.lru_cache(maxsize=65536)
def _file_in(directory: Path, name: str) -> Path | None:
    return next((path for path in module_paths(directory, name) if path.is_file()), None)


def module_paths(directory: Path, name: str) -> tuple[Path, Path]:
    """Where a module lies below the directory that its name starts from: as a package, and as a single file."""
    base = directory.joinpath(*name.split("."))
    return base / "__init__.py", base.with_name(base.name + ".py")


@functools.lru_cache(maxsize=65536)
def _is_there(directory: Path, name: str) -> bool:
    """Whether a module lies below a directory in any form: also as a package without `__init__.py`, or compiled."""
    base = directory.joinpath(*name.split("."))
    compiled = base.parent.glob(f"{base.name}.*") if base.parent.is_dir() else ()
    return base.is_dir() or any(p.suffix in (".py", ".pyi", ".pyc", ".so", ".pyd") for p in compiled)


@functools.lru_cache(maxsize=1024)
def _is_installed(top: str) -> bool:
    """Whether the interpreter finds a package by other means than its directories."""
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError, AttributeError):
        return False


@functools.lru_cache(maxsize=1024)
def _is_directory(directory: Path, name: str) -> bool:
    return any((directory / name).glob("**/*.py")) if (directory / name).is_dir() else False


@functools.lru_cache(maxsize=1024)
def _mentions(directory: Path, top: str, packages: frozenset[str]) -> bool:
    """Whether any file of an installed package names one of `packages`: one that does not holds no kernels."""
    files = [directory / f"{top}.py", *(directory / top).rglob("*.py")]
    texts = (path.read_bytes() for path in files if path.is_file())
    return any(package.encode() in text for text in texts for package in packages)


@functools.lru_cache(maxsize=8192)
def _parsed(path: str, package: str, changed: int, size: int, dialect: Dialect) -> DslFile | None:
    try:
        file = parse_dsl(path, Path(path).read_bytes(), package, dialect, excerpt=True)
    except (PorterError, OSError):
        return None
    assert file.import_statements is not None
    if not any(step in file.source for step in dialect.steps):
        file.forget()
    return file


def _package(name: str, path: Path) -> str:
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


def close(root: Path, dialect: Dialect, directories: Sequence[Path] = ()) -> Closure:
    """The root with all modules that it imports, directly or not.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, DSL_UNREADABLE for the root; modules that cannot be read are left out.
    """
    search = _Search(Path(os.path.abspath(root)), read_dsl(root, dialect=dialect), directories)
    file = read_dsl(root, _package(search.name, root), dialect)
    closure = Closure(Module(search.name, file, True), {})
    closure.modules[search.name] = closure.root
    pending = [closure.root]
    here = Path(os.path.abspath(root))
    while pending:
        module = pending.pop()
        if module.ported and module is not closure.root:
            continue
        module.absent |= set(filter(search.is_absent, _imports(module.file, search) if module.own else ()))
        for name in dict.fromkeys(_named(module.file, search)):
            found = search.find(name)
            if found is None or found[0] == here:
                continue
            if name not in closure.modules:
                stat = found[0].stat()
                own_path = _shown(found[0], root) if found[1] else str(found[0])
                read = _parsed(own_path, _package(name, found[0]), stat.st_mtime_ns, stat.st_size, dialect)
                if read is None:
                    continue
                closure.modules[name] = Module(name, read, found[1])
                pending.append(closure.modules[name])
            module.imported.add(name)
    return closure


def _shown(path: Path, root: Path) -> str:
    """A file of the project as the user would name it: relative if the root was."""
    return str(path) if root.is_absolute() else os.path.relpath(path)


def _imports(file: DslFile, search: _Search) -> Iterator[str]:
    """Names of all modules that import statements name; what is taken from a package that is no file is one."""
    for statement in file.import_statements:
        if isinstance(statement, cst.ImportFrom):
            origin = file.origin(statement)
            yield origin
            if search.find(origin) is None:
                yield from (f"{origin}.{name}" for name, _ in listed(statement) if name != "*")
        else:
            yield from (name for name, _ in listed(statement))


def _named(file: DslFile, search: _Search) -> Iterator[str]:
    """Names of the modules that a module imports. An `__init__` counts where a name is taken from it."""
    for statement in file.import_statements:
        if isinstance(statement, cst.ImportFrom):
            origin = file.origin(statement)
            if origin.partition(".")[0] in search.closed:
                continue
            for name, _ in listed(statement):
                below = f"{origin}.{name}"
                yield below if name != "*" and search.find(below) is not None else origin
            continue
        for name, local in listed(statement):
            if name.partition(".")[0] in search.closed or search.find(name) is None:
                continue
            yield name
            if not local:
                # `import a.b` binds `a`: the chains say what else of it is used
                yield from _chained(file, name.partition(".")[0], search)


def _chained(file: DslFile, top: str, search: _Search) -> Iterator[str]:
    for reference in file.all_references:
        parts = reference.name.split(".")
        if parts[0] == top:
            found = [".".join(parts[:i]) for i in range(len(parts), 0, -1)]
            yield from (name for name in found[:-1] if search.find(name) is not None)
