# SPDX-License-Identifier: Apache-2.0
"""Where the headers of a project are, by what its build files say: `compile_commands.json`, CMake, `setup.py`."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from porter.diagnostics import PorterError
from porter.diagnostics.reading import read_file
from porter.project.root import project_root

_DATABASE = "compile_commands.json"
_DATABASE_IN = ("", "build", "out", "_build")
_JOINED = re.compile(
    r"-I(?P<same>.+)|(?:-isystem|-iquote|--include-path|--system-include|-isystem-after)=?(?P<other>.+)"
)
_APART = frozenset({"-I", "-isystem", "-iquote", "--include-path", "-isystem-after", "--system-include"})


def stated_directories(path: Path) -> tuple[Path, ...]:
    """The directories for a source file's headers that the build files above it name, nearest first. Only directories
    of the file's project are given, written as the file's path is: relative if it is."""
    root = project_root(path)
    inside = [place for place in _stated(path, root) if place.is_relative_to(root)]
    return tuple(place if path.is_absolute() else Path(os.path.relpath(place)) for place in inside)


def outside_directories(path: Path) -> tuple[Path, ...]:
    """The others that the compilation database names for a source: headers there are somebody else's. They are not
    ported; compilers find them there."""
    root, own = project_root(path), path.resolve()
    found: list[Path] = []
    for directory in _between(own.parent, root):
        for name in _DATABASE_IN:
            found += _database(_state(directory / name / _DATABASE)).get(own, ())
    return tuple(place for place in dict.fromkeys(found) if not place.is_relative_to(root))


def _stated(path: Path, root: Path) -> list[Path]:
    own = path.resolve()
    found: list[Path] = []
    for directory in _between(own.parent, root):
        found += _of_directory(directory, own)
    return list(dict.fromkeys(found))


def _between(directory: Path, root: Path) -> Iterator[Path]:
    """The directory and those above it, up to the project's."""
    while True:
        yield directory
        if directory == root or directory == directory.parent or not directory.is_relative_to(root):
            return
        directory = directory.parent


def _of_directory(directory: Path, source: Path) -> list[Path]:
    found: list[Path] = []
    for name in _DATABASE_IN:
        found += _database(_state(directory / name / _DATABASE)).get(source, ())
    found += _cmake(_state(directory / "CMakeLists.txt"))
    found += _setup(_state(directory / "setup.py"))
    return found


_State = tuple[Path, int, int]


def _state(path: Path) -> _State:
    """A file with what changes when it does."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return path, -1, -1
    return path, found.st_mtime_ns, found.st_size


def _text(state: _State) -> str | None:
    if state[1] < 0:
        return None
    try:
        return read_file(state[0]).decode("utf-8", "replace")
    except PorterError:
        return None


def _directories(base: Path, names: Iterable[str]) -> tuple[Path, ...]:
    """Those of some paths that are directories, without links."""
    found = []
    for name in names:
        try:
            place = (base / name).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            continue
        if place.is_dir():
            found.append(place)
    return tuple(dict.fromkeys(found))


# --- compile_commands.json


@lru_cache(64)
def _database(state: _State) -> dict[Path, tuple[Path, ...]]:
    """The directories of each source of a compilation database."""
    text = _text(state)
    try:
        entries = json.loads(text) if text is not None else []
    except (ValueError, RecursionError):
        return {}
    found: dict[Path, tuple[Path, ...]] = {}
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
            continue
        base = state[0].parent / str(entry.get("directory", ""))
        words = entry.get("arguments")
        if not isinstance(words, list):
            try:
                words = shlex.split(str(entry.get("command", "")))
            except ValueError:
                continue
        try:
            source = (base / entry["file"]).resolve()
        except (OSError, RuntimeError, ValueError):
            continue
        found.setdefault(source, _directories(base, _of_command([str(w) for w in words])))
    return found


def _of_command(words: list[str]) -> Iterator[str]:
    for at, word in enumerate(words):
        if word in _APART:
            yield from words[at + 1 : at + 2]
        elif match := _JOINED.fullmatch(word):
            yield from (match["same"] or match["other"]).split(",")


# --- CMake

_COMMENT = re.compile(r"#\[(=*)\[.*?\]\1\]|#[^\n]*", re.DOTALL)
_COMMAND = re.compile(
    r"\b(?P<name>include_directories|target_include_directories|set)\s*\((?P<rest>[^()]*(?:\([^()]*\)[^()]*)*)\)", re.I
)
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)', re.DOTALL)
_KEYWORDS = frozenset({"AFTER", "BEFORE", "SYSTEM", "PUBLIC", "PRIVATE", "INTERFACE"})
_INTERFACE = re.compile(r"\$<BUILD_INTERFACE:([^<>]*)>")
_OWN_DIRECTORY = ("CMAKE_CURRENT_SOURCE_DIR", "CMAKE_CURRENT_LIST_DIR")
_TOP = ("CMAKE_SOURCE_DIR", "PROJECT_SOURCE_DIR")


@lru_cache(1024)
def _cmake(state: _State) -> tuple[Path, ...]:
    """What `include_directories` and `target_include_directories` of a list file name, of any target."""
    text = _text(state)
    if text is None:
        return ()
    base = state[0].parent
    tops = [a for a in (base, *base.parents) if (a / "CMakeLists.txt").is_file()]
    values = {**{name: str(base) for name in _OWN_DIRECTORY}, **{name: str(tops[-1]) for name in _TOP}}
    names: list[str] = []
    for match in _COMMAND.finditer(_COMMENT.sub("", text)):
        words = [_expanded(quoted or bare, values) for quoted, bare in _WORD.findall(match["rest"])]
        if match["name"].lower() == "set":
            if words:
                values[words[0]] = ";".join(words[1:])
            continue
        words = words[1:] if match["name"].lower() == "target_include_directories" else words
        names += [item for word in words if word not in _KEYWORDS for item in word.split(";") if item]
    return _directories(base, (_INTERFACE.sub(r"\1", name) for name in names))


def _expanded(word: str, values: dict[str, str]) -> str:
    for _ in range(8):
        made = re.sub(r"\$\{(\w+)\}", lambda m: values.get(m[1], m[0]), word)
        if made == word:
            break
        word = made
    return word


# --- setup.py


@lru_cache(1024)
def _setup(state: _State) -> tuple[Path, ...]:
    """What `include_dirs=` of a setup script names, as far as its text tells."""
    text = _text(state)
    if text is None or "include_dirs" not in text:
        return ()
    # what reads Python takes long to load, and few projects have such a script
    from porter.project.setup_script import stated_names

    return _directories(state[0].parent, stated_names(state[0], text))
