# SPDX-License-Identifier: Apache-2.0
"""`porter cc`: a compiler launcher that ports what is compiled for Hopper on its way to the compiler."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from porter.build.port_plan import PortPlan, materialize
from porter.cli.context import Session, command, install
from porter.cli.porting import port_paths
from porter.diagnostics import Code, ExitCode, PorterError
from porter.tune.layouts import layout_of
from porter.tune.styles import COMPAT

_SOURCES = (".cu", ".cuh")
_HOPPER = re.compile(r"\b(sm|compute|lto)_90a\b")
_WITH_VALUE = frozenset(
    {
        "-o",
        "--output-file",
        "-MF",
        "-MT",
        "-MQ",
        "-I",
        "-isystem",
        "-D",
        "-include",
        "-arch",
        "-gencode",
        "-x",
        "-ccbin",
    }
)
_INCLUDE = re.compile(r"-I(.+)|--include-path=(.+)")


@command
def cc(session: Session, arguments: tuple[str, ...]) -> ExitCode | int:
    if not arguments:
        raise PorterError(Code.BAD_OPTION, option="cc", problem="needs a compiler and its arguments")
    compiler, *words = arguments
    try:
        found = shutil.which(compiler)
    except OSError:
        found = None
    if found is None:
        raise PorterError(Code.FILE_NOT_FOUND, path=compiler[:200])
    source = source_of(words)
    if source is None or not any(_HOPPER.search(word) for word in words):
        return subprocess.call([found, *words])
    return subprocess.call([found, *for_port(words, source, _ported(session, source, words))])


def source_of(words: Sequence[str]) -> Path | None:
    """The one CUDA source of a call; None where there is none or several."""
    found = [
        Path(word)
        for before, word in zip(["", *words], words, strict=False)
        if word.endswith(_SOURCES) and not word.startswith("-") and before not in _WITH_VALUE
    ]
    return found[0] if len(found) == 1 and found[0].is_file() else None


def include_dirs(words: Sequence[str]) -> tuple[Path, ...]:
    """Directories of headers of a call, those that are there."""
    found = [match[1] or match[2] for word in words if (match := _INCLUDE.fullmatch(word))]
    found += [word for before, word in pairwise(words) if before in ("-I", "--include-path")]
    return tuple(path for path in map(Path, found) if path.is_dir())


def for_port(words: Sequence[str], source: Path, ported: Path) -> list[str]:
    """The call for a port: its file, sm_100a, and headers that the port left where they are."""
    changed = [str(ported) if word == str(source) else _HOPPER.sub(r"\1_100a", word) for word in words]
    return [*changed, f"-I{source.parent}"] if ported != source else changed


def _ported(session: Session, source: Path, words: Sequence[str]) -> Path:
    """Where the port of a source lies; the source itself where nothing of it changes.

    Raises:
        PorterError: what cannot be ported, with exit code 3.
    """
    install(replace(session, style=COMPAT, keep_hopper=False))
    made = port_paths([source], include_dirs(words))
    if made.exit_code is not ExitCode.OK:
        raise PorterError.of([*made.diagnostics, *made.left_over])
    if not made.changed:
        return source
    plan = PortPlan(files=made.elsewhere(), keeps_hopper=made.keeps_hopper, layout=layout_of(made))
    return materialize(plan, source)
