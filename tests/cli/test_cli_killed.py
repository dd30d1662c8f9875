# SPDX-License-Identifier: Apache-2.0
"""A run that is killed leaves all of its files or none, once the next command has begun, and nothing beside them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes_cli import fake_port_sources, porter

from porter.build import files
from porter.build.files import write_all
from porter.cli.main import main
from porter.diagnostics import Code, PorterError

HEADERS = 8


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("porter.passes.embedded.port_sources", fake_port_sources)
    monkeypatch.setattr("porter.cli.port.compile_ports", lambda *args: [])
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))


def project(folder: Path) -> dict[str, bytes]:
    """The files of a kernel with headers in directories of their own, all to be ported."""
    texts = {f"part{i}/h{i}.cuh": b"#define H%d HOPPER\n" % i * 2000 for i in range(HEADERS)}
    texts["gemm.cu"] = b"".join(b'#include "part%d/h%d.cuh"\n' % (i, i) for i in range(HEADERS)) + b"// HOPPER\n"
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text)
    return texts


def child(work: Callable[[], None]) -> int:
    """The process that does the work and nothing else."""
    pid = os.fork()
    if pid:
        return pid
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        with contextlib.suppress(SystemExit):
            work()
    finally:
        os._exit(0)


def killed_at_rename(number: int, work: Callable[[], None]) -> Callable[[], None]:
    """The same work, which kills itself in front of a rename."""

    def run() -> None:
        real, count = Path.replace, 0

        def replace(self: Path, target: Path) -> Path:
            nonlocal count
            count += self.name.startswith(".porter-")
            if count == number + 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(self, target)

        Path.replace = replace  # type: ignore[method-assign,assignment]
        work()

    return run


def below(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def trials(folder: Path, count: int, seed: int) -> Iterator[str]:
    """What each killed `port --apply` left, once another command has begun."""
    chosen = random.Random(seed)
    old = project(folder)
    new = {name: text.replace(b"HOPPER", b"BLACKWELL") for name, text in old.items()}
    began = time.monotonic()

    def apply() -> None:
        main(["port", str(folder / "gemm.cu"), "--apply", "--allow-dirty"])

    os.waitpid(child(apply), 0)
    length = time.monotonic() - began
    assert below(folder) == new
    for number in range(count):
        project(folder)
        if number % 3 == 0:
            os.waitpid(child(killed_at_rename(chosen.randrange(HEADERS + 1), apply)), 0)
            phase = "rename"
        else:
            # the last part of a run is that which writes
            pid = child(apply)
            time.sleep(length * chosen.uniform(0.5, 1.1))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            phase = "any"
        porter("explain", "PT0001")
        found = below(folder)
        assert set(found) == set(old), f"stray files after {phase} {number}: {set(found) ^ set(old)}"
        assert found in (old, new), f"a mixed set after {phase} {number}"
        assert not list((folder.parent / "cache" / "journal").glob("*.json*"))
        yield "new" if found == new else "old"


def test_kills_leave_all_files_or_none(tmp_path: Path) -> None:
    assert len(list(trials(tmp_path / "project", 9, 1))) == 9


@pytest.mark.slow
def test_two_hundred_kills(tmp_path: Path) -> None:
    left = list(trials(tmp_path / "project", 200, 2))
    assert len(left) == 200
    assert {"old", "new"} <= set(left)


def test_a_killed_first_write_leaves_no_directory(tmp_path: Path) -> None:
    out = tmp_path / "out"
    project(tmp_path / "project")

    def work() -> None:
        write_like = files._write_like

        def dies(target: Path, temporary: Path, data: bytes) -> None:
            write_like(target, temporary, data)
            os.kill(os.getpid(), signal.SIGKILL)

        files._write_like = dies
        main(["port", str(tmp_path / "project" / "gemm.cu"), "-o", str(out)])

    os.waitpid(child(work), 0)
    assert out.exists()
    porter("explain", "PT0001")
    assert not out.exists()


def test_what_was_changed_since_is_not_overwritten(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("1")
    two.write_text("2")
    os.waitpid(child(killed_at_rename(1, lambda: write_all({one: b"new 1", two: b"new 2"}))), 0)
    assert (one.read_text(), two.read_text()) == ("new 1", "2")
    two.write_text("edited")
    files.recover()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "one", "two"]
    assert two.read_text() == "edited"


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept"
    kept.write_text("before")
    real = os.fsync
    calls = []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 3:  # the journal, the first file, the second
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PorterError) as caught:
        write_all({kept: b"after", tmp_path / "made" / "deep" / "new": b"data"})
    assert caught.value.diagnostic.code is Code.WRITE_FAILED
    assert kept.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "kept"]
    assert not list((tmp_path / "cache" / "journal").glob("*.json*"))


def test_an_interrupt_between_renames_writes_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = [tmp_path / name for name in ("one", "two", "three")]
    real, count = Path.replace, 0

    def replace(self: Path, target: Path) -> Path:
        nonlocal count
        count += self.name.startswith(".porter-")
        if count == 2:
            count = 100
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        write_all({target: target.name.encode() for target in targets})
    assert [t.read_text() for t in targets] == ["one", "two", "three"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cache", "one", "three", "two"]


def test_two_runs_at_once_take_turns(tmp_path: Path) -> None:
    targets = [tmp_path / f"f{i}" for i in range(10)]

    def work(text: bytes) -> Callable[[], None]:
        return lambda: [write_all(dict.fromkeys(targets, text)) for _ in range(5)] and sys.exit()  # type: ignore[func-returns-value]

    for pid in [child(work(b"%d" % i)) for i in range(3)]:
        os.waitpid(pid, 0)
    assert len({t.read_bytes() for t in targets}) == 1
    assert len(list(tmp_path.iterdir())) == len(targets) + 1
