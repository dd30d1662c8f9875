# SPDX-License-Identifier: Apache-2.0
"""Ports of source sets kept by content: a second run over a tree, or one behind a small edit, ports what changed.

A port for which other translation units were read is not kept, as these are no part of what it is found by; nor is one
for which something beside texts was asked.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path

from porter.diagnostics import PorterError
from porter.diagnostics.reading import read_file
from porter.lang.neighbours import asking_for_neighbours
from porter.lang.sources import SourceSet
from porter.passes.port import PortOptions, PortResult
from porter.passes.store import key_of

_HELPERS = re.compile(r"sm100|tcgen05|mirror", re.IGNORECASE)
"""What files are called that ports add; whether one is there decides what another is called."""


def kept_port(
    sources: SourceSet, options: PortOptions, port: Callable[[SourceSet, PortOptions], PortResult]
) -> PortResult:
    """The port of a source set, made once for the same texts and options."""
    store = options.store
    if store is None or options.types is not None or options.launches is not None or options.boxes is not None:
        return port(sources, options)
    key = key_of(_parts(sources, options))
    if key is None:
        return port(sources, options)
    known = store.get(key)
    if known is not None:
        found: PortResult = pickle.loads(known)
        return replace(found, sources=sources, files={**sources.sources(), **found.files})
    with asking_for_neighbours() as asked:
        made = port(sources, options)
    if not asked:
        alone = SourceSet(sources.root, {})
        store.put(key, pickle.dumps(replace(made, sources=alone, files=made.changed)))
    return made


def _parts(sources: SourceSet, options: PortOptions) -> Iterator[object]:
    yield "port"
    for one in fields(options):
        if one.compare:
            yield one.name, getattr(options, one.name)
    yield from rule_texts(options.rule_directories)
    yield sources.root, sources.include_dirs, sorted(sources.string_macros.items())
    yield tuple(sources.includes)
    for path, file in sources.files.items():
        yield path
        yield file.source
    for directory in sorted({Path(path).parent for path in sources.files}):
        yield from _helpers_in(directory, sources)
    if options.beside:
        yield from _texts_in(Path(sources.root).parent)


def _helpers_in(directory: Path, sources: SourceSet) -> Iterator[object]:
    with suppress(OSError):
        for name in sorted(os.listdir(directory)):
            if _HELPERS.search(name) and (directory / name).as_posix() not in sources.files:
                yield name, _text(directory / name)


def _texts_in(directory: Path) -> Iterator[object]:
    """What may be a build file."""
    with suppress(OSError):
        for entry in sorted(os.scandir(directory), key=lambda e: e.name):
            if entry.is_file():
                yield entry.name, _text(Path(entry.path))


def rule_texts(directories: Iterable[str]) -> Iterator[object]:
    """The texts of a user's rules."""
    for directory in directories:
        path = Path(directory)
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            yield str(file), _text(file)


def _text(path: Path) -> bytes:
    try:
        return read_file(path) if path.is_file() else b""
    except PorterError:
        return b""
