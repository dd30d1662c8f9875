# SPDX-License-Identifier: Apache-2.0
"""What the preprocessor makes of a translation unit for one chip: the lines that come from some files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from porter.build.cache import Cache
from porter.build.nvcc import CompileRequest, translate
from porter.build.toolchain import Toolkit
from porter.ptx.arch import target

_ALIKE = ("__LINE__", "__COUNTER__", "__TIME__", "__DATE__", "__TIMESTAMP__")
"""Macros that say nothing about a chip and may differ all the same: each is 0."""
_ARCH_LIST = re.compile(r"^#\s*(?:define|undef)\s+__CUDA_ARCH_LIST__\b", re.MULTILINE)
_MARKER = re.compile(r'^# (\d+) "((?:[^"\\]|\\.)*)"((?: \d)*)$')
_SYSTEM = " 3"
_DIRECTIVES = ("#pragma", "#ident", "#define", "#undef")

Line = tuple[str, int, str]
"""A file, a line of it, from 1, and what stands there when its macros are expanded. Includes that are not followed are
lines too."""


def preprocess(
    request: CompileRequest, within: Sequence[Path], host: bool, toolkit: Toolkit, cache: Cache | None = None
) -> tuple[Line, ...]:
    """What the pass for device code leaves of a file, or that for the `host`. Files of directories that the compiler
    takes for the system's are left out, and those that are not below one of `within`.

    Raises:
        PorterError: NVCC_ERROR: something that is included is not there, or a directive is an error; what `translate`
            raises.
    """
    places = [f"{directory.absolute()}/" for directory in within]

    def keep(text: str) -> str:
        return json.dumps(_lines(text, places))

    options = ["-dI", *(f"-D{name}=0" for name in _ALIKE)]
    made = _translated(request, options, host, toolkit, cache, keep, ("lines 1", *places))
    return tuple((path, line, text) for path, line, text in json.loads(made))


def host_asks(request: CompileRequest, toolkit: Toolkit, cache: Cache | None = None) -> bool:
    """Whether the list of architectures is asked for anywhere, which is all that host code knows of a chip.

    Raises:
        PorterError: as `preprocess`.
    """
    # -dU shows each macro that is asked for
    made = _translated(request, ["-dU"], True, toolkit, cache, lambda t: "1" if _ARCH_LIST.search(t) else "", ("asks",))
    return bool(made)


def _translated(
    request: CompileRequest,
    options: Sequence[str],
    host: bool,
    toolkit: Toolkit,
    cache: Cache | None,
    keep: Callable[[str], str],
    kept: Sequence[str],
) -> str:
    chip = target(request.arch)
    if host:
        # nvcc --dryrun shows what both passes are given
        options = [*options, *(f"-U{name}" for name in (*chip.macros, "CUDA_DOUBLE_MATH_FUNCTIONS"))]
    # with -arch alone, -E leaves the macros of features out
    how = [f"-gencode=arch={chip.compute},code={request.arch}", "-E", *(f"-Xcompiler={o}" for o in ("-w", *options))]
    return translate(request, how, "unit.i", toolkit, cache or Cache.default(), keep=keep, kept=kept).text


def _lines(text: str, places: Sequence[str]) -> list[Line]:
    found: list[Line] = []
    system: dict[str, bool] = {}
    path, line, wanted = "", 0, False
    for row in text.split("\n"):
        marker = _MARKER.match(row)
        if marker is not None:
            line, path = int(marker[1]), marker[2]
            if path not in system or " 1" in marker[3]:
                # inside of a file, this flag says that the text is of a macro of the system's
                system[path] = _SYSTEM in marker[3]
            wanted = not system[path] and path.startswith(tuple(places))
            continue
        if wanted and row.strip() and not row.startswith(_DIRECTIVES):
            found.append((path, line, row))
        line += 1
    # a macro of the system's parts a line in several
    joined = ((key, " ".join(row for _, _, row in rows)) for key, rows in groupby(found, key=lambda one: one[:2]))
    return [(file, at, row) for (file, at), row in joined]
