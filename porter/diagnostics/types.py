# SPDX-License-Identifier: Apache-2.0
"""What a diagnostic is made of: exit codes, severities, and the texts of one ID."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


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
    ExitCode.UNPORTED: "something is left that Porter cannot port, or could not find; the rest may be ported",
    ExitCode.BUILD_FAILED: "a compiler refused the original or the port",
    ExitCode.DIFFERENT: "results differ, or a hazard was found that is not the original's own",
    ExitCode.INCONCLUSIVE: "no verdict: an unmodelled instruction, or an exhausted budget",
}


class Severity(StrEnum):
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


def error(id: str, exit_code: ExitCode, title: str, detail: str, next_step: str) -> CodeInfo:
    return CodeInfo(id, Severity.ERROR, exit_code, title, detail, next_step)


def warning(id: str, title: str, detail: str, next_step: str) -> CodeInfo:
    return CodeInfo(id, Severity.WARNING, ExitCode.OK, title, detail, next_step)


def note(id: str, title: str, detail: str, next_step: str) -> CodeInfo:
    return CodeInfo(id, Severity.NOTE, ExitCode.OK, title, detail, next_step)
