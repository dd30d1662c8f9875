# SPDX-License-Identifier: Apache-2.0
"""Where results are kept, and what they are found by: all that they were made of, and the code that makes them."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Protocol, TypeVar

from porter.rules.load import mappings_directory

_PACKAGE = Path(__file__).resolve().parents[1]
_PARTS = ("diagnostics", "lang", "model", "passes", "project", "ptx", "rules", "steps")
_GRAMMARS = ("tree-sitter", "tree-sitter-cuda", "libcst")
_Made = TypeVar("_Made")


class Store(Protocol):
    """Bytes by keys that are names of files."""

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, value: bytes) -> None: ...


def key_of(parts: Iterable[object]) -> str | None:
    """A key for what is made of some values; None where one of them is not told by its text."""
    total = hashlib.sha256(_own_digest())
    for part in parts:
        data = part if isinstance(part, bytes) else repr(_ordered(part)).encode("utf-8", "surrogateescape")
        if not isinstance(part, bytes) and b" at 0x" in data:
            return None
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


def kept(store: Store | None, parts: Iterable[object], make: Callable[[], _Made]) -> _Made:
    """What `make` makes of `parts`, or made of them before."""
    key = key_of(parts) if store is not None else None
    if store is None or key is None:
        return make()
    known = store.get(key)
    if known is not None:
        found: _Made = pickle.loads(known)
        return found
    made = make()
    store.put(key, pickle.dumps(made))
    return made


def _ordered(value: object) -> object:
    """A value whose text is the same in every process: sets and mappings in their order."""
    if isinstance(value, set | frozenset):
        return "set", sorted(repr(_ordered(one)) for one in value)
    if isinstance(value, dict):
        return "dict", sorted((repr(_ordered(k)), repr(_ordered(v))) for k, v in value.items())
    if isinstance(value, tuple | list):
        return tuple(map(_ordered, value))
    if hasattr(value, "__dataclass_fields__"):
        held = ((name, _ordered(getattr(value, name))) for name in value.__dataclass_fields__)
        return type(value).__name__, tuple(held)
    return value


@cache
def _own_digest() -> bytes:
    """Of the code that ports, its rules, and what reads the languages."""
    total = hashlib.sha256(repr([metadata.version(name) for name in _GRAMMARS]).encode())
    mappings = mappings_directory()
    files = [p for part in _PARTS for p in sorted((_PACKAGE / part).rglob("*.py"))]
    for path in [*files, *sorted(p for p in mappings.rglob("*") if p.is_file())]:
        total.update(path.read_bytes())
    return total.digest()
