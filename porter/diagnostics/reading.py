# SPDX-License-Identifier: Apache-2.0
"""Reading a file of the user's: what is none, or more than Porter goes through, is said before it is read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from porter.diagnostics import Code, PorterError

LARGEST = 8 << 20
"""Bytes of a source. The largest headers in circulation have a quarter of it."""

LARGEST_PTX = 64 << 20
"""Bytes of a PTX module: a library of kernels."""


def read_file(path: Path, largest: int = LARGEST) -> bytes:
    """The bytes of a regular file.

    Raises:
        PorterError: FILE_NOT_FOUND (directories too); UNREADABLE_SOURCE, also for pipes, devices and what has more than
            `largest` bytes.
    """

    def unreadable(reason: str) -> PorterError:
        return PorterError(Code.UNREADABLE_SOURCE, path=str(path), reason=reason)

    try:
        # a pipe that nobody writes to is not waited for
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISDIR(status.st_mode):
                raise PorterError(Code.FILE_NOT_FOUND, path=path)
            if not stat.S_ISREG(status.st_mode):
                raise unreadable("it is no regular file")
            data = file.read(largest + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise PorterError(Code.FILE_NOT_FOUND, path=path) from None
    except (OSError, ValueError) as error:
        raise unreadable(getattr(error, "strerror", None) or str(error)) from None
    if len(data) > largest:
        raise unreadable(f"it has more than {largest >> 20} MiB")
    return data


def is_file(path: Path) -> bool:
    """Whether there is such a file; a text that cannot be a name is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def read_text(path: Path, largest: int = LARGEST) -> str:
    """The same for a file of UTF-8 text.

    Raises:
        PorterError: what `read_file` raises; NOT_TEXT.
    """
    try:
        return read_file(path, largest).decode("utf-8")
    except UnicodeDecodeError:
        raise PorterError(Code.NOT_TEXT, path=path) from None
