# SPDX-License-Identifier: Apache-2.0
"""An input that shows that a port leaves something else than its original: both run on the simulator."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from porter.diagnostics import PorterError
from porter.verify.backends import SimBackend
from porter.verify.builder import BuiltKernel
from porter.verify.images import Image, make_image
from porter.verify.inputs import choose, generate
from porter.verify.problem import Problem
from porter.verify.settings import SimOptions

_GUARD = 0
Built = tuple[BuiltKernel, Problem]


def shown_by(original: Built, port: Built) -> str | None:
    """The family of inputs whose run leaves other bits in an output of the case, or that the port does not end with;
    None if there is none, or nobody can run them."""
    problem = original[1]
    try:
        for family in choose(None, problem):
            inputs = generate(problem, family, 0)
            ours, theirs = (_left(built, inputs) for built in (original, port))
            if ours is None:
                return None
            if theirs is None or any(not np.array_equal(ours[t.name], theirs[t.name]) for t in problem.outputs):
                return family.name
    except PorterError:
        return None
    return None


def _left(built: Built, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray] | None:
    """The bits of all tensors behind a run; None if it did not come to its end."""
    kernel, problem = built
    images: dict[str, Image] = {n: make_image(t, inputs.get(n), _GUARD) for n, t in problem.tensors.items()}
    result = SimBackend(SimOptions()).run(kernel, problem, kernel.launch(problem), images)
    return {name: image.data for name, image in result.after.items()} if result.status == "ok" else None
