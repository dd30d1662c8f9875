# SPDX-License-Identifier: Apache-2.0
"""A source file and the local headers it includes, read as bytes and parsed once each."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from porter.diagnostics import Code, Location, PorterError
from porter.diagnostics.reading import is_file, read_file
from porter.lang.asm import string_macros
from porter.lang.cuda import CudaFile, parse_cuda
from porter.lang.known_headers import is_known, is_library
from porter.lang.lexical import lexed
from porter.lang.masking import learn_macros
from porter.lang.preprocessor import conditionals
from porter.lang.text import Span, as_text
from porter.project.include_dirs import stated_directories
from porter.project.root import project_root

CUDA_ENDINGS = frozenset({".cu", ".cuh", ".h", ".hpp", ".hh", ".cpp", ".cc", ".cxx", ".inl"})
MOST_INCLUDES = 2_000
"""`#include` lines of one file. Each header is looked for in many directories."""
_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include\b", re.MULTILINE)
HEADER_ENDINGS = frozenset({".cuh", ".h", ".hpp", ".hh", ".inl"})
PYTHON_ENDINGS = frozenset({".py"})


@dataclass(frozen=True)
class Include:
    """An `#include` line: `resolved` is the key of the file in the set, None if it was not followed. `name` is what
    stands in quotes or angles, `text` the whole operand, which may be a macro. `through` is the include directory that
    the file was found in, None if it was found from the directory of the file that includes it."""

    path: str
    name: str
    quoted: bool
    span: Span
    resolved: str | None
    text: str = ""
    through: Path | None = None


@dataclass(frozen=True)
class Missing:
    """An include of a header of the project that was not read. `searched` are the directories that were looked into,
    `hint` one that holds it, if some directory above the file does."""

    include: Include
    searched: tuple[str, ...]
    hint: str | None


@dataclass(frozen=True, eq=False)
class SourceSet:
    """`root` is the key of the file asked for, `files` holds it first and then its local headers in the order
    of their first inclusion. Keys are paths as the user would write them: relative to the working directory
    where the root was given so. `includes` has every include line of every file."""

    root: str
    files: dict[str, CudaFile]
    includes: tuple[Include, ...] = field(default=(), repr=False)
    string_macros: dict[str, str] = field(default_factory=dict, repr=False)
    include_dirs: tuple[Path, ...] = ()

    @property
    def main(self) -> CudaFile:
        return self.files[self.root]

    @property
    def unresolved(self) -> tuple[Include, ...]:
        """Includes of headers that are the project's, by their names, and that no file answers."""
        return tuple(i for i in self.includes if i.resolved is None and not (i.name and is_known(i.name)))

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The unresolved includes that a compiler would need, as far as conditions tell."""
        return tuple(self._missing(i) for i in self.unresolved if not _optional(self.files[i.path], i))

    def _missing(self, include: Include) -> Missing:
        beside = Path(include.path).parent
        searched = (*((beside,) if include.quoted else ()), *self.include_dirs)
        return Missing(include, tuple(dict.fromkeys(map(str, searched))), _holder(beside, include.name))

    def sources(self) -> dict[str, bytes]:
        return {path: file.source for path, file in self.files.items()}


def read_source(path: Path) -> bytes:
    """The bytes of a source file, unchanged.

    Raises:
        PorterError: what `read_file` raises; NOT_TEXT (NUL bytes; other encodings than UTF-8 are kept as they are);
            TOO_LARGE: more than `MOST_INCLUDES` includes.
    """
    if path.is_dir():
        raise PorterError(Code.UNKNOWN_SOURCE_KIND, path=str(path))
    data = read_file(path)
    if b"\0" in data:
        raise PorterError(Code.NOT_TEXT, path=str(path))
    if data.count(b"include") > MOST_INCLUDES and (count := len(_INCLUDE.findall(data))) > MOST_INCLUDES:
        raise PorterError(Code.TOO_LARGE, Location(str(path)), what=f"{count} #include lines; at most {MOST_INCLUDES}")
    return data


def is_python(path: Path) -> bool:
    return path.suffix.lower() in PYTHON_ENDINGS


def is_header(path: Path) -> bool:
    return path.suffix.lower() in HEADER_ENDINGS


def load_sources(path: Path, include_dirs: Sequence[Path] = ()) -> SourceSet:
    """The file and every local header that it includes, directly or not.

    A quoted include is followed if it names a file next to the including one or in `include_dirs`; an angle
    include only if it is in `include_dirs`. Behind those come the directories that build files state. It has to lead to
    a file of the project (`project_root`) or below one of `include_dirs`, links followed. Headers of the system, the
    toolkit, CUTLASS and other known libraries are not read. One that names a macro is followed if the set says what it
    stands for.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, UNKNOWN_SOURCE_KIND (also for Python files: those have another
            front end), UNREADABLE_SOURCE.
    """
    if not path.exists():
        raise PorterError(Code.FILE_NOT_FOUND, path=str(path))
    if path.is_dir() or path.suffix.lower() not in CUDA_ENDINGS:
        raise PorterError(Code.UNKNOWN_SOURCE_KIND, path=str(path))
    collector = _Collector(Headers(path, include_dirs))
    root = collector.add(path)
    collector.follow_macros()
    macros = [macro for source in collector.sources.values() for macro in lexed(source).macros()]
    uses = learn_macros(macros)
    files = {key: parse_cuda(key, source, uses) for key, source in collector.sources.items()}
    return SourceSet(root, files, tuple(collector.includes), string_macros(macros), collector.headers.include_dirs)


def with_text(sources: SourceSet, path: str, text: bytes) -> SourceSet:
    """The set with another text of one file, which includes the same headers in the same order."""
    texts = {**sources.sources(), path: text}
    macros = [macro for source in texts.values() for macro in lexed(source).macros()]
    uses = learn_macros(macros)
    files = {key: parse_cuda(key, source, uses) for key, source in texts.items()}
    named = (where for _, _, where in lexed(text).includes())
    computed = (where for _, where in lexed(text).computed_includes())
    # a set has those of a file by name first, and then those that a macro names
    own = [replace(i, span=where) for i, where in zip(_own(sources, path), [*named, *computed], strict=True)]
    there = iter(own)
    includes = tuple(next(there) if i.path == path else i for i in sources.includes)
    return replace(sources, files=files, includes=includes, string_macros=string_macros(macros))


def _own(sources: SourceSet, path: str) -> list[Include]:
    return [i for i in sources.includes if i.path == path]


class Headers:
    """The headers that includes of one source file lead to, `include_dirs` and what build files state looked into."""

    def __init__(self, path: Path, include_dirs: Sequence[Path]) -> None:
        self.include_dirs = tuple(dict.fromkeys([*include_dirs, *stated_directories(path)]))
        self._root, self._path = project_root(path), path.resolve()
        self._within = (self._root, *(directory.resolve() for directory in self.include_dirs))

    def find(self, beside: Path, name: str, quoted: bool) -> Path | None:
        """The file of the project that an include in a file in `beside` means, if there is one."""
        place = self.place(beside, name, quoted)
        return place / name if place is not None else None

    def place(self, beside: Path, name: str, quoted: bool) -> Path | None:
        """The directory that the include's name starts from, `beside` or one of `include_dirs`."""
        places = [beside, *self.include_dirs] if quoted else list(self.include_dirs)
        for place in places:
            candidate = place / name
            try:
                real = candidate.resolve(strict=True)
            except (OSError, RuntimeError, ValueError):  # not there, a loop of links, or no name that a file has
                continue
            if place is not beside and self._is_library(place, name, real):
                return None
            if real.is_file() and any(real.is_relative_to(directory) for directory in self._within):
                return place
        return None

    def _is_library(self, place: Path, name: str, real: Path) -> bool:
        """Whether a header is of a library that is not what is ported."""
        return is_library(name, real.is_relative_to(self._root)) and not self._path.is_relative_to(place.resolve())


class _Collector:
    def __init__(self, headers: Headers) -> None:
        self.headers = headers
        self.sources: dict[str, bytes] = {}
        self.includes: list[Include] = []
        self._keys: dict[Path, str] = {}

    def add(self, path: Path) -> str:
        real = path.resolve()
        if real in self._keys:
            return self._keys[real]
        key = tidy(path).as_posix()
        # sets of one header hold its bytes once
        source = lexed(read_source(path)).source
        self._keys[real] = key
        self.sources[key] = source
        for name, quoted, where in lexed(source).includes():
            slot = len(self.includes)
            text = f'"{name}"' if quoted else f"<{name}>"
            self.includes.append(Include(key, name, quoted, where, None, text))
            self._resolve(slot, path.parent)
        for expression, where in lexed(source).computed_includes():
            self.includes.append(Include(key, "", True, where, None, expression))
        return key

    def _resolve(self, slot: int, beside: Path) -> bool:
        """Follow an include of a file in `beside`, if it leads to a file of the project."""
        include = self.includes[slot]
        place = self.headers.place(beside, include.name, include.quoted)
        if place is None:
            return False
        through = None if include.quoted and place == beside else place
        self.includes[slot] = replace(include, resolved=self.add(place / include.name), through=through)
        return True

    def follow_macros(self) -> None:
        """Includes that name a macro whose definitions all say the same header."""
        while True:
            bodies: dict[str, set[str]] = {}
            for source in self.sources.values():
                for macro in lexed(source).macros():
                    bodies.setdefault(macro.name, set()).add(as_text(macro.joined))
            for slot, include in enumerate(self.includes):
                stated = bodies.get(include.text, set()) if not include.name else set()
                match = re.fullmatch(r'"([^"]+)"|<([^>]+)>', next(iter(stated))) if len(stated) == 1 else None
                if match is None:
                    continue
                quoted, name = match.group(1) is not None, match.group(1) or match.group(2)
                self.includes[slot] = replace(include, name=name, quoted=quoted)
                if self._resolve(slot, Path(include.path).parent):
                    break
            else:
                return


_NOT_FOR_CUDA = re.compile(
    r"(?:ifdef\s+|if\s+defined\s*\(?\s*)(?:_WIN32|_WIN64|WIN32|_MSC_VER|__HIP\w*|USE_ROCM|__APPLE__|__SYCL\w*)\b\W*"
    r"|if\s+0\b.*"
)
_HOLDERS = ("", "include", "src", "csrc", "inc")
_LEVELS = 6


def _optional(file: CudaFile, include: Include) -> bool:
    """Whether an include stands under a condition that is false here: one that asks for the header, that no CUDA
    compilation meets, or `#if 0`."""
    for conditional in conditionals(file):
        if not conditional.holds(include.span.start):
            continue
        head = conditional.head.decode("utf-8", "replace").strip()
        asks = "__has_include" in head and include.name in head
        if asks or (not conditional.branches and _NOT_FOR_CUDA.fullmatch(head)):
            return True
    return False


def _holder(beside: Path, name: str) -> str | None:
    """A directory at or above a file's, or a usual one in such, in which the header is."""
    if not name or Path(name).is_absolute():
        return None
    absolute = beside.resolve()
    for level, above in enumerate((absolute, *absolute.parents)):
        if level == _LEVELS or above == above.parent:
            break
        for inner in _HOLDERS:
            if is_file(above / inner / name):
                return _written(beside, above / inner)
    return None


def _written(beside: Path, found: Path) -> str:
    """The path as its user would write it: relative if the file's was."""
    if beside.is_absolute():
        return str(found)
    return Path(os.path.relpath(found)).as_posix()


def tidy(path: Path) -> Path:
    """The path without `.` and `..` steps, still relative if it was."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] not in ("..", path.anchor):
            parts.pop()
        elif part != ".":
            parts.append(part)
    return Path(*parts)
