# SPDX-License-Identifier: Apache-2.0
"""Wrong outputs that every comparison has to refuse, made from the right one.

Which controls apply depends on the output's shape and the family alone, never on values: a control is not
dropped because it happens to pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from porter.ptx.umma import K_BYTES
from porter.verify import oracle
from porter.verify.dtypes import Float64
from porter.verify.inputs import Family
from porter.verify.problem import Problem
from porter.verify.tensor import Tensor


def wrong_outputs(
    problem: Problem, family: Family, inputs: Mapping[str, Float64], expected: Mapping[str, Float64]
) -> Iterator[tuple[str, Tensor, Float64]]:
    """(name of the control, output, wrong values) for every output of a problem."""
    for tensor in problem.outputs:
        right = expected[tensor.name]
        yield "zero", tensor, np.zeros_like(right)
        yield from ((name, tensor, wrong) for name, wrong in _moved(right, problem.tile))
    if family.name == "integers":
        missing = _last_step_missing(problem, inputs)
        if missing is not None:
            for name, values in oracle.reference(problem, missing).items():
                yield "last step of the sum missing", problem.tensors[name], values


def _moved(right: Float64, tile: tuple[int, int] | None) -> Iterator[tuple[str, Float64]]:
    """The right values in wrong places."""
    if right.ndim >= 2 and min(right.shape[-2:]) > 1:
        yield "transposed", np.swapaxes(right, -1, -2).reshape(right.shape)
        for name, axis in (("row-shifted", -2), ("column-shifted", -1)):
            yield name, np.roll(right, max(1, right.shape[axis] // 2), axis=axis)
        if tile is not None:
            wrong = right.copy()
            wrong[..., -tile[0] :, -tile[1] :] = 0
            yield "one-tile-zero", wrong
    elif right.size > 1:
        yield "reversed", right.reshape(-1)[::-1].reshape(right.shape)


def _last_step_missing(problem: Problem, inputs: Mapping[str, Float64]) -> dict[str, Float64] | None:
    """The inputs with zero for all that the last matrix instruction of the sum takes of every operand. All operands,
    because a launch may compute several products."""
    changed: dict[str, Float64] = {}
    for tensor in problem.inputs:
        axis = problem.reduction_axis(tensor)
        if axis is None:
            continue
        step = max(1, K_BYTES // tensor.dtype.itemsize)
        values = np.moveaxis(inputs[tensor.name].copy(), axis, -1)
        if values.shape[-1] <= step or not values[..., -step:].any():
            continue
        values[..., -step:] = 0
        changed[tensor.name] = np.moveaxis(values, -1, axis)
    return {**inputs, **changed} if changed else None
