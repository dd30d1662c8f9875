# SPDX-License-Identifier: Apache-2.0
"""Writing results: all files or none, each in one step, never over work that git does not have."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from porter.build.cache import default_directory, file_digest
from porter.build.layout import Layout
from porter.diagnostics import Code, Location, PorterError


def placed_below(
    files: Mapping[str, bytes], directory: Path, originals: Iterable[str], layout: Layout
) -> dict[Path, bytes]:
    """The files below `directory`, as the layout of the originals has them.

    Raises:
        PorterError: WOULD_OVERWRITE if one would land on a file that was read, or outside of the directory.
    """
    sources = {Path(p).resolve() for p in (*files, *originals)}
    within = directory.resolve()
    placed: dict[Path, bytes] = {}
    for path, data in files.items():
        target = directory / Path(path).resolve().relative_to(layout.root)
        if target.resolve() in sources:
            reason = "it is the original; use --apply to port in place"
            raise PorterError(Code.WOULD_OVERWRITE, path=target, reason=reason)
        placed[target] = data
    for target in (*placed, *(directory / link.relative_to(layout.root) for link in layout.links)):
        if not target.parent.resolve().is_relative_to(within):
            raise PorterError(Code.WOULD_OVERWRITE, path=target, reason=f"a link leads out of {directory}")
    return placed


def write_below(files: Mapping[Path, bytes], directory: Path, layout: Layout) -> None:
    """Write what `placed_below` placed, and the links that its includes pass through.

    Raises:
        PorterError: WRITE_FAILED.
    """
    write_all(files)
    try:
        layout.make(directory)
    except OSError as error:
        raise PorterError(Code.WRITE_FAILED, path=directory, reason=error.strerror or str(error)) from None


def write_all(files: Mapping[Path, bytes]) -> None:
    """Write every file or none, whenever the process may end: all are written beside their targets first, then renamed
    into place. A journal among the user's caches says which; what a run leaves that was killed before the first rename
    is removed, and the renames of one that was killed later are finished, by the next command (`recover`). Runs take
    turns.

    Raises:
        PorterError: WRITE_FAILED.
    """
    with _journals() as folder:
        token = f"{os.getpid():x}{time.time_ns():x}"
        journal = folder / f"{token}.json" if folder is not None else None
        target = next(iter(files), Path())
        plan: _Plan | None = None
        done: list[tuple[Path, bytes | None]] = []
        complete = False
        try:
            plan = _Plan.of(files, token)
            plan.note(journal, "prepared")
            for made in plan.directories:
                made.mkdir(exist_ok=True)
            for target, temporary in plan.files.items():
                _write_like(target, temporary, files[target])
            plan.note(journal, "complete")
            complete = True
            for target, temporary in plan.files.items():
                before = target.read_bytes() if target.is_file() else None
                temporary.replace(target)
                done.append((target, before))
        except OSError as error:
            for written, before in reversed(done):
                if before is None:
                    written.unlink(missing_ok=True)
                else:
                    written.write_bytes(before)
            complete = False
            raise PorterError(Code.WRITE_FAILED, path=target, reason=error.strerror or str(error)) from None
        finally:
            # an interrupt between two renames, too
            if plan is not None and complete:
                plan.finish()
            if plan is not None:
                plan.discard()
            if journal is not None:
                journal.unlink(missing_ok=True)


def recover() -> None:
    """Bring to an end what killed runs have begun to write."""
    with suppress(OSError, RuntimeError):  # nobody without a home has begun anything
        if any(_folder().glob("*.json*")):
            with _journals():
                pass


@dataclass(frozen=True)
class _Plan:
    """What one call writes: the temporary file of each target with what the target held before, as a digest, and the
    directories that are made for them, outermost first."""

    files: Mapping[Path, Path]
    before: Mapping[Path, str | None]
    directories: tuple[Path, ...]

    @classmethod
    def of(cls, files: Mapping[Path, bytes], token: str) -> _Plan:
        absolute = {target: target.absolute() for target in files}
        above = {d for t in absolute.values() for d in t.parents if not d.exists()}
        return cls(
            {target: path.with_name(f".porter-{token}-{i}") for i, (target, path) in enumerate(absolute.items())},
            {target: file_digest(path) for target, path in absolute.items()},
            tuple(sorted(above, key=lambda d: len(d.parts))),
        )

    def note(self, journal: Path | None, state: str) -> None:
        """Keep the plan where the next run finds it; without a journal nobody does."""
        if journal is None:
            return
        rows = [[str(t.absolute()), str(temporary), self.before[t]] for t, temporary in self.files.items()]
        body = {"state": state, "files": rows, "directories": [str(d) for d in self.directories]}
        beside = journal.with_suffix(".json-new")
        try:
            with beside.open("w") as stream:
                json.dump(body, stream)
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(journal)
        except OSError:
            beside.unlink(missing_ok=True)
            raise

    @classmethod
    def noted(cls, journal: Path) -> tuple[str, _Plan]:
        body = json.loads(journal.read_bytes())
        rows = [(Path(target), Path(temporary), before) for target, temporary, before in body["files"]]
        files = {target: temporary for target, temporary, _ in rows}
        before = {target: digest for target, _, digest in rows}
        return body["state"], cls(files, before, tuple(map(Path, body["directories"])))

    def finish(self) -> None:
        """The renames that are left; a file that somebody has changed since stays."""
        for target, temporary in self.files.items():
            if temporary.exists() and file_digest(target) == self.before[target]:
                temporary.replace(target)

    def discard(self) -> None:
        """No temporary file is left, and no directory that was made for nothing."""
        for temporary in self.files.values():
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        for directory in reversed(self.directories):
            with suppress(OSError):
                directory.rmdir()


def _folder() -> Path:
    return default_directory() / "journal"


@contextmanager
def _journals() -> Iterator[Path | None]:
    """The folder of the journals, for one process at a time, in which no plan of a dead one is left; None if it cannot
    be written."""
    folder = _folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError:
        yield None
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for journal in folder.glob("*.json*"):
            # a plan that cannot be read was never begun, and one that cannot be finished is tried again
            with suppress(OSError):
                with suppress(ValueError, KeyError, TypeError):
                    state, plan = _Plan.noted(journal)
                    if state == "complete" and journal.suffix == ".json":
                        plan.finish()
                    if journal.suffix == ".json":
                        plan.discard()
                journal.unlink(missing_ok=True)
        yield folder


def _write_like(target: Path, temporary: Path, data: bytes) -> None:
    """A file beside its target, with the mode that the target has or a new file would have."""
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    with temporary.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if target.exists():
        shutil.copymode(target, temporary)


def require_clean(paths: Iterable[Path]) -> None:
    """Refuse files whose content git could not give back.

    Raises:
        PorterError: WOULD_OVERWRITE for the first file that is changed, untracked or in no repository.
    """
    for path in paths:
        reason = _not_committed(path)
        if reason is not None:
            raise PorterError(Code.WOULD_OVERWRITE, Location(str(path)), path=path, reason=reason)


def _not_committed(path: Path) -> str | None:
    git = shutil.which("git")
    if git is None:
        return "git is not here to tell whether it is committed"
    command = [
        git,
        "-C",
        str(path.resolve().parent),
        "status",
        "--porcelain=v1",
        "--ignored",
        "--",
        path.name,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return "it is in no git repository"
    state = done.stdout[:2]
    if not state.strip():
        return None
    return "git does not track it" if state in ("??", "!!") else "it has changes that are not committed"
