# SPDX-License-Identifier: Apache-2.0
"""Every message Porter can give a user: one enum of stable IDs, each with what, why and the next step.

IDs are never reused. The first digit names the part that speaks:

======  =====================================================
PT0xxx  command line, files, configuration
PT1xxx  front ends: reading and parsing source
PT2xxx  porting: constructs left alone, stated assumptions
PT25xx  downgrades: the port does more work or less at a time
PT3xxx  build: toolchains and compilers
PT4xxx  simulator
PT5xxx  verification
PT6xxx  rules
PT7xxx  what `porter check` finds
======  =====================================================
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from porter.diagnostics.codes import Code
from porter.diagnostics.types import EXIT_CODE_TEXT, CodeInfo, ExitCode, Severity

__all__ = [
    "EXIT_CODE_TEXT",
    "Code",
    "CodeInfo",
    "Diagnostic",
    "ExitCode",
    "Location",
    "PorterError",
    "Severity",
    "exit_code_of",
    "has_errors",
    "unforeseen",
    "worst_exit",
]


@dataclass(frozen=True)
class Location:
    """A place in a file: 1-based line and column of the first byte, and of the one behind the last; 0-based byte
    offsets of the two. 0 stands for what is not known."""

    path: str
    line: int = 0
    column: int = 0
    start: int = 0
    end: int = 0
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.path
        return f"{self.path}:{self.line}:{self.column}" if self.column else f"{self.path}:{self.line}"


@dataclass(frozen=True)
class Diagnostic:
    """One message to the user: a code, where it applies, and the values its title names."""

    code: Code
    where: Location | None = None
    values: dict[str, Any] = field(default_factory=dict)
    detail: str = ""

    @property
    def severity(self) -> Severity:
        return self.code.value.severity

    @property
    def message(self) -> str:
        return self.code.value.title.format(**self.values)

    def __str__(self) -> str:
        head = f"{self.where}: " if self.where else ""
        return f"{head}{self.severity.value}[{self.code.id}]: {self.message}"


_NAME_SHOWN = 80
"""Characters of a name that is too long for a file."""


def unforeseen(error: Exception, where: Location | None = None) -> Diagnostic:
    """What is said of an exception that is no `PorterError`: too much was asked for, or Porter is at fault."""
    if isinstance(error, (MemoryError, RecursionError)):
        kind = "nesting" if isinstance(error, RecursionError) else "memory"
        return Diagnostic(Code.TOO_LARGE, where, {"what": f"{kind} ({error})" if str(error) else kind})
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        # no file has such a name
        named = str(error.filename or "")
        return Diagnostic(Code.FILE_NOT_FOUND, where, {"path": f"{named[:_NAME_SHOWN]}... ({len(named)} characters)"})
    return Diagnostic(Code.INTERNAL, where, {"what": f"{type(error).__name__}: {error}"})


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    return any(d.severity is Severity.ERROR for d in diagnostics)


def exit_code_of(diagnostics: Iterable[Diagnostic]) -> ExitCode:
    """That of the first error, `ExitCode.OK` where there is none."""
    return next((d.code.value.exit_code for d in diagnostics if d.severity is Severity.ERROR), ExitCode.OK)


_EXIT_RANK = (
    ExitCode.DIFFERENT,
    ExitCode.BUILD_FAILED,
    ExitCode.UNPORTED,
    ExitCode.USAGE,
    ExitCode.INCONCLUSIVE,
    ExitCode.FINDINGS,
    ExitCode.OK,
)


def worst_exit(codes: Iterable[ExitCode]) -> ExitCode:
    """The exit code of several results: a proven difference first, then what kept others from a verdict."""
    return min(codes, key=_EXIT_RANK.index, default=ExitCode.OK)


class PorterError(Exception):
    """A diagnostic that ends what was being done. The command line turns it into its exit code. `more` are further
    ones that are to be said with it."""

    def __init__(self, code: Code, where: Location | None = None, detail: str = "", **values: Any) -> None:
        self.diagnostic = Diagnostic(code, where, values, detail)
        self.more: tuple[Diagnostic, ...] = ()
        super().__init__(str(self.diagnostic))

    @classmethod
    def of(cls, diagnostics: Sequence[Diagnostic]) -> PorterError:
        """All of these at once; the first one gives the exit code."""
        first = diagnostics[0]
        error = cls(first.code, first.where, first.detail, **first.values)
        error.more = tuple(diagnostics[1:])
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        return PorterError.of, (self.diagnostics,)

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return self.diagnostic, *self.more

    @property
    def exit_code(self) -> ExitCode:
        return self.diagnostic.code.value.exit_code
