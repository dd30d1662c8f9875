# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from porter.build.cache import Cache, default_directory, digest, file_digest


def test_digest_knows_the_borders() -> None:
    assert digest(["ab", "c"]) != digest(["a", "bc"])
    assert digest(["ab"]) == digest([b"ab"])


def test_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "mine"))
    assert default_directory() == tmp_path / "mine"
    monkeypatch.delenv("PORTER_CACHE")
    assert default_directory() == tmp_path / "porter"


def test_values(cache: Cache) -> None:
    assert cache.get(digest(["k"])) is None
    cache.put(digest(["k"]), b"\0value")
    assert cache.get(digest(["k"])) == b"\0value"


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: b"", lambda d: d[:40], lambda d: b"x" + d[1:], lambda d: d + b"x"]
)
def test_damaged_values_are_misses(cache: Cache, damage: Callable[[bytes], bytes]) -> None:
    key = digest(["k"])
    cache.put(key, b"value" * 100)
    assert cache.get(key) == b"value" * 100
    cache.path(key).write_bytes(damage(cache.path(key).read_bytes()))
    assert cache.get(key) is None
    cache.put(key, b"value")
    assert cache.get(key) == b"value"


def test_a_value_under_another_name_is_a_miss(cache: Cache) -> None:
    cache.put("aa11", b"value")
    cache.path("aa22").write_bytes(cache.path("aa11").read_bytes())
    assert cache.get("aa22") is None


def test_a_full_disk_leaves_nothing(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    cache.put("aa11", b"value")
    assert cache.get("aa11") is None
    assert not [p for p in cache.root.rglob("*") if p.is_file()]


def test_files_keep_their_mode(cache: Cache, tmp_path: Path) -> None:
    program = tmp_path / "p"
    program.write_bytes(b"#!/bin/sh\n")
    program.chmod(0o755)
    cache.put_file("ff00", program)
    assert os.access(cache.path("ff00"), os.X_OK)


def test_manifest_follows_contents_back_and_forth(cache: Cache, tmp_path: Path) -> None:
    header = tmp_path / "h.cuh"
    header.write_bytes(b"1")
    command = digest(["nvcc", "x"])
    assert cache.lookup(command) is None
    first = cache.remember(command, [header])
    assert cache.lookup(command) == first
    header.write_bytes(b"2")
    assert cache.lookup(command) is None
    second = cache.remember(command, [header])
    assert second != first
    header.write_bytes(b"1")
    assert cache.lookup(command) == first
    header.unlink()
    assert cache.lookup(command) is None


def test_damaged_manifest_is_a_miss(cache: Cache, tmp_path: Path) -> None:
    command = digest(["c"])
    cache.remember(command, [])
    cache._manifest_path(command).write_bytes(b"{ not json")
    assert cache.lookup(command) is None
    assert cache.lookup(command) != cache.remember(command, [])


def test_unwritable_cache_never_hits_and_never_fails() -> None:
    cache = Cache.none()
    cache.put("abcd", b"x")
    assert cache.get("abcd") is None


def test_parallel_writers_leave_whole_files(cache: Cache) -> None:
    values = [bytes([n]) * 200_000 for n in range(8)]

    def work(value: bytes) -> bool:
        cache.put("aa11", value)
        return cache.get("aa11") in values

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, values * 4))
    assert [p.name for p in cache.path("aa11").parent.iterdir()] == ["aa11"]


def test_digests_follow_files_that_are_written_again(tmp_path: Path) -> None:
    path = tmp_path / "header.h"
    told = set()
    for text in (b"one", b"two"):
        path.write_bytes(text)
        told.add(file_digest(path))
    for seconds in (100, 50):
        path.write_bytes(b"old" if seconds == 100 else b"new")
        before = time.time() - seconds
        os.utime(path, (before, before))
        told |= {file_digest(path), file_digest(path)}
    assert len(told) == 4
    path.unlink()
    assert file_digest(path) is None
