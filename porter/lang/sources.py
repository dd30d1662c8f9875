# SPDX-License-Identifier: Apache-2.0
"""A source file and the local headers it includes, read as bytes and parsed once each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from porter.diagnostics import Code, Location, PorterError
from porter.lang.asm import string_macros
from porter.lang.cuda import CudaFile, parse_cuda
from porter.lang.lexical import lexed
from porter.lang.masking import learn_macros
from porter.lang.text import Span

CUDA_ENDINGS = frozenset({".cu", ".cuh", ".h", ".hpp", ".hh", ".cpp", ".cc", ".cxx", ".inl"})
PYTHON_ENDINGS = frozenset({".py"})


@dataclass(frozen=True)
class Include:
    """An `#include` line: `resolved` is the key of the file in the set, None if it was not followed."""

    path: str
    name: str
    quoted: bool
    span: Span
    resolved: str | None


@dataclass(frozen=True, eq=False)
class SourceSet:
    """`root` is the key of the file asked for, `files` holds it first and then its local headers in the order
    of their first inclusion. Keys are paths as the user would write them: relative to the working directory
    where the root was given so. `includes` has every include line of every file."""

    root: str
    files: dict[str, CudaFile]
    includes: tuple[Include, ...] = field(default=(), repr=False)
    string_macros: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def main(self) -> CudaFile:
        return self.files[self.root]

    @property
    def unresolved(self) -> tuple[Include, ...]:
        """Quoted includes that no local file answers."""
        return tuple(i for i in self.includes if i.quoted and i.resolved is None)

    def sources(self) -> dict[str, bytes]:
        return {path: file.source for path, file in self.files.items()}


def read_source(path: Path) -> bytes:
    """The bytes of a source file, unchanged.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT (NUL bytes; other encodings than UTF-8 are kept as they are).
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise PorterError(Code.FILE_NOT_FOUND, path=str(path)) from None
    except IsADirectoryError:
        raise PorterError(Code.UNKNOWN_SOURCE_KIND, path=str(path)) from None
    except OSError as error:
        raise PorterError(
            Code.UNREADABLE_SOURCE, path=str(path), reason=error.strerror or str(error)
        ) from None
    if b"\0" in data:
        raise PorterError(Code.NOT_TEXT, path=str(path))
    return data


def is_python(path: Path) -> bool:
    return path.suffix.lower() in PYTHON_ENDINGS


def load_sources(path: Path, include_dirs: Sequence[Path] = ()) -> SourceSet:
    """The file and every local header that it includes, directly or not.

    A quoted include is followed if it names a file next to the including one or in `include_dirs`; an angle
    include only if it is in `include_dirs`. System and toolkit headers are never read.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT, UNKNOWN_SOURCE_KIND (also for Python files: those have another
            front end), UNREADABLE_SOURCE.
    """
    if not path.exists():
        raise PorterError(Code.FILE_NOT_FOUND, path=str(path))
    if path.is_dir() or path.suffix.lower() not in CUDA_ENDINGS:
        raise PorterError(Code.UNKNOWN_SOURCE_KIND, path=str(path))
    collector = _Collector(include_dirs)
    root = collector.add(path)
    macros = [macro for source in collector.sources.values() for macro in lexed(source).macros()]
    uses = learn_macros(macros)
    files = {key: parse_cuda(key, source, uses) for key, source in collector.sources.items()}
    return SourceSet(root, files, tuple(collector.includes), string_macros(macros))


class _Collector:
    def __init__(self, include_dirs: Sequence[Path]) -> None:
        self.include_dirs = tuple(include_dirs)
        self.sources: dict[str, bytes] = {}
        self.includes: list[Include] = []
        self._keys: dict[Path, str] = {}

    def add(self, path: Path) -> str:
        real = path.resolve()
        if real in self._keys:
            return self._keys[real]
        key = _tidy(path)
        source = read_source(path)
        self._keys[real] = key
        self.sources[key] = source
        for name, quoted, where in lexed(source).includes():
            target = self._find(path.parent, name, quoted)
            slot = len(self.includes)
            self.includes.append(Include(key, name, quoted, where, None))
            if target is not None:
                self.includes[slot] = Include(key, name, quoted, where, self.add(target))
        return key

    def _find(self, beside: Path, name: str, quoted: bool) -> Path | None:
        places = [beside, *self.include_dirs] if quoted else list(self.include_dirs)
        for place in places:
            candidate = place / name
            if candidate.is_file():
                return candidate
        return None


def _tidy(path: Path) -> str:
    """The path without `.` and `..` steps, still relative if it was."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] not in ("..", path.anchor):
            parts.pop()
        elif part != ".":
            parts.append(part)
    return Path(*parts).as_posix() if parts else "."


def include_location(file: CudaFile, include: Include) -> Location:
    return file.location(include.span)
