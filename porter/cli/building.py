# SPDX-License-Identifier: Apache-2.0
"""The compiler as commands use it: sources of every kind that Porter reads become files that nvcc reads."""

from __future__ import annotations

import hashlib
from pathlib import Path

from porter.build.cache import default_directory
from porter.build.port_plan import write_whole
from porter.build.toolchain import Toolkit
from porter.cli.context import current
from porter.diagnostics import Code, Location, PorterError
from porter.lang.embedded import kernel_in_python
from porter.lang.sources import is_python
from porter.verify.builder import ToolkitBuilder


def make_builder(toolkit: Toolkit | None, target: str | None = None) -> ToolkitBuilder:
    """Without a toolkit the first one is found on first use; without a target ports are for the session's."""
    return ToolkitBuilder(toolkit, compilable, target or current().target)


def compilable(source: Path, entry: str) -> Path:
    """A source as nvcc reads it. A kernel in a string of a Python file gets a file of its own, line for line.

    Raises:
        PorterError: NO_KERNEL if no string of a Python file has it; WRITE_FAILED.
    """
    if not is_python(source):
        return source
    text = kernel_in_python(source, entry)
    if text is None:
        raise PorterError(Code.NO_KERNEL, Location(str(source)), path=source)
    base = default_directory() / "strings" / hashlib.sha256(text).hexdigest()[:24]
    return write_whole(base / f"{source.stem}.cu", text, base)
