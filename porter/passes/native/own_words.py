# SPDX-License-Identifier: Apache-2.0
"""What steps write with where kernels of CuTe are in SM100's own words: each asks something of the port, which is made
anew with that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from porter.diagnostics import Code, Diagnostic
from porter.model.functions import Function
from porter.passes.idiom.asked import Asked
from porter.passes.native.sites import Left
from porter.steps.step import Step, Trial

P = TypeVar("P")


@dataclass
class OwnWords(Generic[P]):
    """`make` makes the port with what is `asked`, and raises what keeps it from that."""

    make: Callable[[Asked], P]
    kernel: Function
    stages: int = 0
    """Stages that are asked for, 0 for those that there are."""
    asked: Asked = field(default_factory=Asked)
    said: list[Diagnostic] = field(default_factory=list)

    def ask(self, **what: Any) -> None:
        """Ask for something more."""
        self.asked = replace(self.asked, **what)

    def take(self, steps: Sequence[Step]) -> tuple[P, tuple[str, ...]]:
        """The port with the steps that it can have, and their names."""
        port, trial = self.make(self.asked), Trial[Asked]()
        for step in steps:
            before = self.asked
            try:
                if what := trial.lacks(step):
                    raise Left(self.kernel, self.kernel.head, what)
                assert step.write is not None
                step.write(self)
                port = self.make(self.asked)
            except Left as left:
                self.asked = before
                where = left.function.file.location(left.span)
                values = {"kernel": self.kernel.name, "step": step.name, "what": left.what}
                self.said.append(Diagnostic(Code.NATIVE_LEFT, where, values))
            else:
                trial = trial.on_top(step, before)
        return port, trial.names
