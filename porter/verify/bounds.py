# SPDX-License-Identifier: Apache-2.0
"""How far a right result may be from the float64 reference, element by element.

A sum of K products taken L at a time loses at most K/L times one step's loss, relative to the largest
magnitude
in it, which the sum of absolute values S bounds. Then the result is rounded once to the output format. No
part
of the bound is a bare absolute tolerance except the last subnormal step of each format.
"""

from __future__ import annotations

import numpy as np

from porter.ptx.mma_numerics import Architecture
from porter.verify.arithmetic import step_loss
from porter.verify.dtypes import DTYPES, Float64
from porter.verify.problem import Problem
from porter.verify.tensor import Tensor

# The epilogue may scale and add a few times in f32 after the sum.
_EPILOGUE_ROUNDINGS = 4


def bound(problem: Problem, tensor: Tensor, expected: Float64, terms: Float64, arch: str, arithmetic: str) -> Float64:
    """The largest legal |result - expected| of each element of an output.

    `terms` is the sum of the absolute values of all terms of the element (`oracle.magnitude`), `arch` starts
    with sm_90 or sm_100, `arithmetic` is the backend's (`arithmetic.step_loss`).
    """
    accumulate = problem.case.accumulate
    result = DTYPES[accumulate]
    which: Architecture = "sm_90" if arch.startswith("sm_90") else "sm_100"
    loss = step_loss(problem.operand, accumulate, which, arithmetic)
    steps = -(-problem.reduction // loss.length) if loss.length else 0
    with np.errstate(all="ignore"):
        allowed = steps * loss.relative * terms
        if result.is_float:
            allowed += _EPILOGUE_ROUNDINGS * 2.0**-24 * terms
            allowed += (steps + 1) * (loss.length + 1) * result.min_subnormal
        return allowed + tensor.dtype.half_ulp(np.abs(expected) + allowed)
