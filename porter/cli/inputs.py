# SPDX-License-Identifier: Apache-2.0
"""Paths on the command line: what a command can do with them, said before any work is done."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from porter.cli.context import Session
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.diagnostics.reading import read_file
from porter.lang.lexical import Lexed
from porter.lang.sources import CUDA_ENDINGS, is_python, load_sources, read_source
from porter.report import json as report_json
from porter.verify.case import Case, cases_of, load_case

_MAIN = re.compile(rb"\bmain\s*\(")


def require_file(path: Path, command: str) -> None:
    """Raises FILE_NOT_FOUND, IS_DIRECTORY."""
    if path.is_dir():
        raise PorterError(Code.IS_DIRECTORY, path=path, command=command)
    if not path.is_file():
        raise PorterError(Code.FILE_NOT_FOUND, path=path)


def processes(jobs: int | None, paths: Iterable[Path]) -> int:
    """As many as were asked for; else one per CPU where there are directories."""
    return jobs or (os.cpu_count() or 1 if any(p.is_dir() for p in paths) else 1)


def require_source(path: Path) -> None:
    """Whether this is a source that can be built.

    Raises:
        PorterError: FILE_NOT_FOUND, UNKNOWN_SOURCE_KIND, NOT_TEXT, NO_KERNEL.
    """
    if is_python(path):
        # Only for Python is the engine needed, which takes longer to load than all else of a run.
        from porter.cli.porting import look
        from porter.lang.embedded import embedded_in_python
        from porter.passes.ported import is_dsl_source, refused_python

        if not is_dsl_source(path, look(path)) and not embedded_in_python(path)[1]:
            raise refused_python(path)
        return
    if path.suffix.lower() not in CUDA_ENDINGS:
        raise PorterError(Code.UNKNOWN_SOURCE_KIND, Location(str(path)), path=path)
    read_source(path)


def each_case(session: Session, path: Path, given: Path | None, work: Callable[[Case], None]) -> list[Diagnostic]:
    """Do `work` with each case of a path, or with the one that is `given` for it. Of a directory one that fails does
    not hide the others: what is wrong with it is given back.

    Raises:
        PorterError: FILE_NOT_FOUND, CASE_NOT_FOUND; of a path that is no directory what loading and `work` raise.
    """
    left: list[Diagnostic] = []
    with session.progress() as tell:
        for file in [given] if given is not None else cases_of(path):
            try:
                case = load_case(file) if given is None else load_case(file).on(path)
                if tell is not None:
                    tell(case.name)
                work(case)
            except PorterError as error:
                if not path.is_dir():
                    raise
                left += error.diagnostics
    return left


def require_directories(option: str, directories: Iterable[Path]) -> None:
    """Raises BAD_OPTION: a directory that is not there is a typing mistake, not an empty one."""
    for directory in directories:
        if not directory.is_dir():
            raise PorterError(Code.BAD_OPTION, option=option, problem=f"no such directory: {directory}")


def require_program(path: Path) -> None:
    """Whether this can be run as a program: an executable, or CUDA source with a main() somewhere.

    Raises:
        PorterError: UNKNOWN_SOURCE_KIND, NOT_TEXT, NO_KERNEL, NOTHING_TO_RUN.
    """
    if _is_executable(path):
        return
    require_source(path)
    if is_python(path):
        reason = "no case beside it describes the launch of its kernel"
        raise PorterError(Code.NOTHING_TO_RUN, Location(str(path)), path=path, reason=reason)
    files = load_sources(path).sources().values()
    if not any(_MAIN.search(Lexed(text).plain) for text in files):
        reason = "no case beside it names it, and it has no main()"
        raise PorterError(Code.NOTHING_TO_RUN, Location(str(path)), path=path, reason=reason)


def _is_executable(path: Path) -> bool:
    with path.open("rb") as file:
        elf = file.read(4) == b"\x7fELF"
    return elf and os.access(path, os.X_OK) and path.suffix.lower() not in CUDA_ENDINGS


def cases_beside(path: Path) -> list[Path]:
    """The cases of a path, as `porter.verify.case.cases_of`; where there is none because the path is no kernel at
    all, that is what is said.

    Raises:
        PorterError: also what `require_source` raises.
    """
    try:
        return cases_of(path)
    except PorterError as error:
        if error.diagnostic.code is Code.CASE_NOT_FOUND and path.is_file():
            require_source(path)
        raise


def read_document(path: Path, kind: str | None = None) -> dict[str, Any]:
    """A result that a command wrote with --format json.

    Raises:
        PorterError: FILE_NOT_FOUND, UNREADABLE_SOURCE; NOT_A_DOCUMENT, also for one that is not of this kind.
    """
    try:
        found = report_json.checked(path, json.loads(read_file(path)))
    except ValueError as error:
        raise PorterError(Code.NOT_A_DOCUMENT, path=path, problem=f"it is no JSON: {error}") from None
    if kind is not None and found["kind"] != kind:
        raise PorterError(Code.NOT_A_DOCUMENT, path=path, problem=f"it is of `porter {found['kind']}`")
    return found
