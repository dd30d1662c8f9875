# SPDX-License-Identifier: Apache-2.0
"""Writing results: all files or none, each in one step, never over work that git does not have."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from porter.diagnostics import Code, Location, PorterError


def common_root(paths: Iterable[str]) -> Path:
    """The directory that all files lie below."""
    return Path(os.path.commonpath([Path(p).resolve().parent for p in paths]))


def placed_below(files: Mapping[str, bytes], directory: Path, originals: Iterable[str]) -> dict[Path, bytes]:
    """The files at the same places to each other below `directory` as the originals, of which they may be some.

    Raises:
        PorterError: WOULD_OVERWRITE if one would land on a file that was read, or outside of the directory.
    """
    sources = {Path(p).resolve() for p in (*files, *originals)}
    root = common_root(map(str, sources))
    within = directory.resolve()
    placed: dict[Path, bytes] = {}
    for path, data in files.items():
        target = directory / Path(path).resolve().relative_to(root)
        if target.resolve() in sources:
            reason = "it is the original; use --apply to port in place"
            raise PorterError(Code.WOULD_OVERWRITE, path=target, reason=reason)
        if not target.parent.resolve().is_relative_to(within):
            raise PorterError(Code.WOULD_OVERWRITE, path=target, reason=f"a link leads out of {directory}")
        placed[target] = data
    return placed


def write_all(files: Mapping[Path, bytes]) -> None:
    """Write every file or none: all are written beside their targets first, then renamed into place; if a
    rename fails, those done before are taken back.

    Raises:
        PorterError: WRITE_FAILED.
    """
    ready: list[tuple[Path, Path]] = []
    done: list[tuple[Path, bytes | None]] = []
    target = Path()
    try:
        for target, data in files.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            ready.append((_beside(target, data), target))
        for temporary, target in ready:
            before = target.read_bytes() if target.is_file() else None
            temporary.replace(target)
            done.append((target, before))
    except OSError as error:
        for written, before in reversed(done):
            if before is None:
                written.unlink(missing_ok=True)
            else:
                written.write_bytes(before)
        raise PorterError(Code.WRITE_FAILED, path=target, reason=error.strerror or str(error)) from None
    finally:
        for temporary, _ in ready:
            temporary.unlink(missing_ok=True)


def _beside(target: Path, data: bytes) -> Path:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    if target.exists():
        shutil.copymode(target, name)
    else:
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
    return Path(name)


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
