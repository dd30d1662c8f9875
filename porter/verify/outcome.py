# SPDX-License-Identifier: Apache-2.0
"""What one run of a program gave, and the verdicts there are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from porter.diagnostics import Code


class Verdict(StrEnum):
    """`review` is for results that are right under a stated assumption; `incomplete` is never `clean`."""

    CLEAN = "clean"
    REVIEW = "review"
    INCOMPLETE = "incomplete"
    ERROR = "error"


@dataclass(frozen=True)
class RunFinding:
    """Something that a backend found while running, already worded; `where` is for people."""

    code: Code
    message: str
    where: str = ""
    kernel: str = ""
    block: tuple[int, int, int] | None = None
    warp: int | None = None
    lane: int | None = None
    ptx_line: int = 0
    source: str = ""
    line: int = 0


@dataclass(frozen=True)
class RunSummary:
    """One program run: `original` or `port`, on which architecture, by which backend."""

    program: str
    arch: str
    backend: str
    status: str
    findings: tuple[RunFinding, ...] = ()
    warp_instructions: int = 0
    seconds: float = 0.0
