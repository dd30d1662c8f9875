# SPDX-License-Identifier: Apache-2.0
"""How long a verification may take, and what of it was done before."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from porter.diagnostics.reading import read_file
from porter.verify.builder import BuiltKernel
from porter.verify.case import Case

SETTLED = ("clean", "review")
"""Verdicts of what need not be run again."""


def processor_time() -> float:
    """Seconds that processors have worked for this process and for those that it has waited for, such as compilers:
    what is done in so many of them does not follow from what else the machine does."""
    return sum(os.times()[:4])


def wall_time() -> float:
    return time.monotonic()


@dataclass(frozen=True)
class Budget:
    """`seconds` by a `clock` after `began` no new row is begun; None: no end. `done`: settled rows of an earlier run's
    document, by their digest."""

    seconds: float | None = None
    done: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    clock: Callable[[], float] = wall_time
    began: float = -1.0

    def __post_init__(self) -> None:
        if self.began < 0:
            object.__setattr__(self, "began", self.clock())

    @staticmethod
    def of_work(seconds: float | None) -> Budget:
        """One of processor time: for what decides which port is given."""
        return Budget(seconds, clock=processor_time)

    def part(self, of: int) -> Budget:
        """One of as many equal parts of what is left, which begins now."""
        left = None if self.left is None else max(0.0, self.left) / of
        return replace(self, seconds=left, began=self.clock())

    @property
    def is_spent(self) -> bool:
        return self.left is not None and self.left <= 0

    @property
    def left(self) -> float | None:
        """Seconds until its end; None where there is none."""
        return None if self.seconds is None else self.seconds - (self.clock() - self.began)


def settled(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The rows of a document of `porter verify` that need not be made again, by their digest."""
    return {row["digest"]: row for row in document["rows"] if row.get("digest") and row["verdict"] in SETTLED}


def digest_of(case: Case, kernels: Sequence[BuiltKernel], words: Iterable[str]) -> str:
    """Of a case with the Python files beside it, of compiled programs, and of more words."""
    found = hashlib.sha256()
    python = sorted(case.path.parent.glob("*.py"))
    for part in [*(read_file(path) for path in (case.path, *python)), *(k.cubin or k.ptx.encode() for k in kernels),
                 *(word.encode() for word in words)]:  # fmt: skip
        found.update(f"{len(part)}:".encode() + part)
    return found.hexdigest()
