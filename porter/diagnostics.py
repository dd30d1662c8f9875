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
======  =====================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any


class ExitCode(IntEnum):
    """What a command's exit status says (`porter explain exit-codes`)."""

    OK = 0
    FINDINGS = 1
    USAGE = 2
    UNPORTED = 3
    BUILD_FAILED = 4
    DIFFERENT = 5
    INCONCLUSIVE = 6


EXIT_CODE_TEXT: dict[ExitCode, str] = {
    ExitCode.OK: "nothing to do, or all good",
    ExitCode.FINDINGS: "findings, or a non-empty diff under `port --check`",
    ExitCode.USAGE: "bad input, bad usage, or an internal error",
    ExitCode.UNPORTED: "ported, but constructs were left that Porter cannot port yet",
    ExitCode.BUILD_FAILED: "a compiler refused the original or the port",
    ExitCode.DIFFERENT: "results differ, or a hazard was found",
    ExitCode.INCONCLUSIVE: "no verdict: an unmodelled instruction, or an exhausted budget",
}


class Severity(str, Enum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class CodeInfo:
    """One diagnostic: `title` is a `str.format` template, `detail` and `next_step` are plain text."""

    id: str
    severity: Severity
    exit_code: ExitCode
    title: str
    detail: str
    next_step: str


def _e(id: str, exit_code: ExitCode, title: str, detail: str, next_step: str) -> CodeInfo:
    return CodeInfo(id, Severity.ERROR, exit_code, title, detail, next_step)


def _w(id: str, title: str, detail: str, next_step: str) -> CodeInfo:
    return CodeInfo(id, Severity.WARNING, ExitCode.OK, title, detail, next_step)


def _n(id: str, title: str, detail: str, next_step: str) -> CodeInfo:
    return CodeInfo(id, Severity.NOTE, ExitCode.OK, title, detail, next_step)


class Code(Enum):
    """All diagnostics. Add new ones at the end of their block."""

    # --- PT0xxx: command line, files, configuration
    FILE_NOT_FOUND = _e(
        "PT0001",
        ExitCode.USAGE,
        "no such file or directory: {path}",
        "The path given on the command line, or named by a case file, does not exist.",
        "Check the spelling and the working directory.",
    )
    NOT_TEXT = _e(
        "PT0002",
        ExitCode.USAGE,
        "{path} is not a text file",
        "The file holds NUL bytes or cannot be decoded as UTF-8, so it is no source that Porter can read.",
        "Pass CUDA C++ (.cu, .cuh, .h, .hpp) or CuTe DSL Python (.py) source.",
    )
    UNKNOWN_SOURCE_KIND = _e(
        "PT0003",
        ExitCode.USAGE,
        "{path}: not a kind of source that Porter reads",
        "Porter tells source kinds apart by their file name ending.",
        "Rename the file, or pass one of .cu, .cuh, .h, .hpp, .cpp, .inl, .py.",
    )
    WOULD_OVERWRITE = _e(
        "PT0004",
        ExitCode.USAGE,
        "refusing to write {path}: {reason}",
        "Porter writes whole files atomically and never over work that is not committed.",
        "Commit or stash the file, choose another -o directory, or pass --allow-dirty.",
    )
    INTERNAL = _e(
        "PT0099",
        ExitCode.USAGE,
        "internal error: {what}",
        "Porter met a state that its authors did not foresee. Nothing was written.",
        "Re-run with -v for the traceback and report it with the input file.",
    )

    # --- PT1xxx: front ends

    # --- PT2xxx: porting

    # --- PT3xxx: build

    # --- PT4xxx: simulator

    # --- PT5xxx: verification

    # --- PT6xxx: rules

    @property
    def id(self) -> str:
        return self.value.id

    @classmethod
    def by_id(cls, id: str) -> Code | None:
        """The code with this ID (case-insensitive), or None."""
        return next((code for code in cls if code.value.id == id.upper()), None)


@dataclass(frozen=True)
class Location:
    """A place in a file: 1-based line and column of the first character, 0-based byte offsets."""

    path: str
    line: int = 0
    column: int = 0
    start: int = 0
    end: int = 0

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


class PorterError(Exception):
    """A diagnostic that ends what was being done. The command line turns it into its exit code."""

    def __init__(self, code: Code, where: Location | None = None, detail: str = "", **values: Any) -> None:
        self.diagnostic = Diagnostic(code, where, values, detail)
        super().__init__(str(self.diagnostic))

    @property
    def exit_code(self) -> ExitCode:
        return self.diagnostic.code.value.exit_code
