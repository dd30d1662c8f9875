# SPDX-License-Identifier: Apache-2.0
"""A second launch on what the first one left in variables of the module and in scratch tensors.

A host program launches a kernel many times. What it sets anew between launches are tensors that its case fills; a
counter in a `__device__` variable, or a semaphore in a workspace, is as the launch before left it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from porter.diagnostics import Code, Diagnostic, Severity
from porter.verify.images import Image
from porter.verify.trial import Ran, Trial

SECOND = "second launch"
"""Why such a row was added."""


@dataclass(frozen=True)
class Left:
    """What is in variables of the module, and in scratch tensors, when a launch begins."""

    variables: Mapping[str, bytes]
    scratch: Mapping[str, Image]


@dataclass(frozen=True)
class First:
    """The first launch of original and port, on the same inputs."""

    trial: Trial
    runs: Sequence[Ran]

    @property
    def leaves(self) -> bool:
        """Whether one of them left something that outlives the launch."""
        return any(ran.result.variables or self.trial.left(ran) for ran in self.runs)

    def left(self, ran: Ran, scratch: bool) -> Left:
        """What one of them left; without `scratch` tensors are set anew."""
        return Left(ran.result.variables, self.trial.left(ran) if scratch else {})


def of_second(found: Diagnostic) -> Diagnostic:
    """An error of the port in the second launch, as such."""
    if found.severity is not Severity.ERROR or found.code is Code.RUN_INCOMPLETE:
        return found
    return Diagnostic(Code.SECOND_LAUNCH, found.where, {"reason": found.message}, found.detail)


def hazard_of_second(found: Diagnostic) -> Iterator[Diagnostic]:
    """A hazard that only the second launch has, and that it is one of the second launch."""
    yield found
    if found.severity is Severity.ERROR:
        yield Diagnostic(Code.SECOND_LAUNCH, found.where, {"reason": found.message})
