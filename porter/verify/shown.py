# SPDX-License-Identifier: Apache-2.0
"""An input that shows that a port leaves something else than its original: both run on the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np

from porter.diagnostics import PorterError
from porter.verify.backends import SimBackend
from porter.verify.budget import processor_time
from porter.verify.builder import BuiltKernel
from porter.verify.images import Image, make_image
from porter.verify.inputs import choose, generate
from porter.verify.problem import Problem
from porter.verify.settings import SimOptions

SECONDS = 60.0
"""For all runs that look for one difference."""
_GUARD = 0
Built = tuple[BuiltKernel, Problem]


class Shown(NamedTuple):
    """What runs show. `how`: other bits in an output of the case, a port that stops with an error, nothing, or, as far
    as there was time, nothing. `family`: the inputs that show it."""

    how: Literal["bits", "end", "nothing", "out of time"]
    family: str = ""

    def __str__(self) -> str:
        match self.how:
            case "bits":
                return f"a run with inputs of the family {self.family} shows it"
            case "end":
                return f"a run with inputs of the family {self.family} does not come to its end"
            case "out of time":
                return f"runs of the case were given up after {SECONDS:g} s without showing it"
        return "no run of the case leaves other bits"


Show = Callable[[Built, Built], Shown]


class _OutOfTimeError(Exception):
    pass


def shown_by(original: Built, port: Built, seconds: float = SECONDS) -> Shown:
    """The first family of inputs whose runs differ, where there are any and somebody can run them."""
    problem, end = original[1], processor_time() + seconds
    try:
        for family in choose(None, problem):
            inputs = generate(problem, family, 0)
            ours, theirs = (_left(built, inputs, end) for built in (original, port))
            if not isinstance(ours, dict) or theirs == "incomplete":
                break
            if not isinstance(theirs, dict):
                return Shown("end", family.name)
            if any(not np.array_equal(ours[t.name], theirs[t.name]) for t in problem.outputs):
                return Shown("bits", family.name)
    except _OutOfTimeError:
        return Shown("out of time")
    except PorterError:
        pass
    return Shown("nothing")


def _left(
    built: Built, inputs: Mapping[str, np.ndarray], end: float
) -> dict[str, np.ndarray] | Literal["incomplete", "error"]:
    """The bits of all tensors behind a run, or why it did not come to its end.

    Raises:
        _OutOfTimeError: it is later than `end`.
    """

    def look_at_the_clock(_: int) -> None:
        if processor_time() > end:
            raise _OutOfTimeError

    look_at_the_clock(0)
    kernel, problem = built
    images: dict[str, Image] = {n: make_image(t, inputs.get(n), _GUARD) for n, t in problem.tensors.items()}
    options = SimOptions(progress=look_at_the_clock)
    result = SimBackend(options).run(kernel, problem, kernel.launch(problem), images)
    return {name: image.data for name, image in result.after.items()} if result.status == "ok" else result.status
