# SPDX-License-Identifier: Apache-2.0
"""A content-addressed store for what compilers made, safe with several processes at once."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SEAL = hashlib.sha256().digest_size
_VARIANTS = 8
"""How many sets of header contents one manifest remembers."""


def default_directory() -> Path:
    """`$PORTER_CACHE`, else `porter` in the platform's cache directory."""
    if explicit := os.environ.get("PORTER_CACHE"):
        return Path(explicit)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "porter"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "porter"
    return Path.home() / ".cache" / "porter"


def digest(parts: Iterable[str | bytes]) -> str:
    """SHA-256 over the parts and their borders, in hexadecimal."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


_SETTLED = 2 * 10**9
"""Nanoseconds after which a file that is written again has another time of change, on any file system."""


def file_digest(path: Path) -> str | None:
    """SHA-256 of a file's contents, None if it cannot be read."""
    try:
        found = path.stat()
        if time.time_ns() - found.st_mtime_ns > _SETTLED:
            return _settled_digest(path, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
        return _digest(path)
    except OSError:
        return None


@functools.lru_cache(maxsize=20_000)
def _settled_digest(path: Path, *_: int) -> str:
    """Of a file that is as it was: each compilation reads the same few hundred headers."""
    return _digest(path)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def modules_in(directory: Path, names: Iterable[str]) -> list[str]:
    """What a directory has that `import` of one of the names may find, sorted."""
    wanted = set(names)
    try:
        entries = [e for e in os.scandir(directory) if e.name.partition(".")[0] in wanted]
    except OSError:
        return []
    return sorted(e.name for e in entries if e.name.endswith((".py", ".so", ".pyc")) or e.is_dir())


@dataclass(frozen=True)
class Cache:
    """Results under `root`, each a file named after its key, with a digest of both at its end: what is damaged, or
    lies under another name, was never there.

    What a compilation read is known only after it ran. So a *manifest*, found by the command alone, lists for
    some sets of file contents the key of the result; it holds if every listed file still has its digest.
    A cache that cannot be written is one that never hits.
    """

    root: Path

    @classmethod
    def none(cls) -> Cache:
        """A cache that keeps nothing."""
        return cls(Path(os.devnull) / "porter")

    @classmethod
    def default(cls) -> Cache:
        return cls(default_directory())

    def path(self, key: str) -> Path:
        return self.root / key[:2] / key

    def get(self, key: str) -> bytes | None:
        return _read_sealed(self.path(key))

    def put(self, key: str, value: bytes) -> None:
        self._write(self.path(key), value)

    def put_file(self, key: str, source: Path) -> None:
        """Store a file with its mode."""
        with contextlib.suppress(OSError):
            self._write(self.path(key), source.read_bytes(), source.stat().st_mode & 0o777)

    def lookup(self, command: str, place: Callable[[str], Path] = Path) -> str | None:
        """Key of the result of `command` for the files as they are now. `place` says where a remembered name is."""
        known: dict[str, str | None] = {}
        for variant in self._manifest(command):
            for name, wanted in variant["files"].items():
                if name not in known:
                    known[name] = file_digest(place(name))
                if known[name] != wanted:
                    break
            else:
                looked = variant.get("directories", {})
                if any(place(name).exists() for name in variant.get("absent", ())):
                    continue
                if all(modules_in(place(d), one["names"]) == one["found"] for d, one in looked.items()):
                    key: str = variant["key"]
                    return key
        return None

    def remember(
        self,
        command: str,
        files: Sequence[Path],
        directories: Mapping[str, Sequence[str]] | None = None,
        name_of: Callable[[Path], str] = str,
        absent: Sequence[Path] = (),
    ) -> str:
        """Key for the result of `command`, which read `files` and looked in `directories` for modules of the names
        given with each; from now on `lookup` finds it, as long as none of `absent` is there. `name_of` is how a path is
        remembered."""
        digests = {name_of(p): d for p in sorted(set(files)) if (d := file_digest(p)) is not None}
        variant: dict[str, Any] = {"files": digests}
        if directories:
            variant["directories"] = {
                name_of(Path(d)): {"names": list(names), "found": modules_in(Path(d), names)}
                for d, names in directories.items()
            }
        key = digest([command, json.dumps(variant if directories else digests, sort_keys=True)])
        if absent:
            variant["absent"] = [name_of(p) for p in absent]
        variants = [v for v in self._manifest(command) if v["key"] != key]
        variants = [{"key": key, **variant}, *variants][:_VARIANTS]
        self._write(self._manifest_path(command), json.dumps(variants).encode())
        return key

    def _manifest_path(self, command: str) -> Path:
        return self.root / "manifest" / command[:2] / command

    def _manifest(self, command: str) -> list[dict[str, Any]]:
        stored = _read_sealed(self._manifest_path(command))
        loaded: list[dict[str, Any]] = json.loads(stored) if stored is not None else []
        return loaded

    def _write(self, path: Path, value: bytes, mode: int = 0o644) -> None:
        with contextlib.suppress(OSError), _replacing(path) as temporary:
            temporary.write_bytes(value + _seal(path.name, value))
            temporary.chmod(mode)


def _seal(name: str, value: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + value).digest()


def _read_sealed(path: Path) -> bytes | None:
    """What a file holds in front of its seal; None if it is not there or the seal does not fit."""
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    value, seal = stored[:-_SEAL], stored[-_SEAL:]
    return value if seal == _seal(path.name, value) else None


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary file that becomes `path` in one step, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
