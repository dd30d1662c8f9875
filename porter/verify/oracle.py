# SPDX-License-Identifier: Apache-2.0
"""The float64 reference of a case, and the magnitude of the sums in it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np

from porter.build.trust import require_trust
from porter.diagnostics import Code, PorterError
from porter.verify.case import Case, place
from porter.verify.dtypes import Float64
from porter.verify.expr import ExpressionError
from porter.verify.problem import Problem
from porter.verify.references import evaluate_reference


def require_trusted(case: Case) -> None:
    """Ask before a reference function runs.

    Raises:
        PorterError: NOT_TRUSTED.
    """
    if case.reference_function is not None:
        require_trust(case.reference_function[0], "the reference of the case is a function in it")


def reference(problem: Problem, inputs: Mapping[str, Float64]) -> dict[str, Float64]:
    """What each output tensor should hold, in float64, from inputs in float64.

    Raises:
        PorterError: CASE_REFERENCE, NOT_TRUSTED.
    """
    return _evaluate(problem, inputs, problem.case.reference, magnitude=False)


def magnitude(problem: Problem, inputs: Mapping[str, Float64]) -> dict[str, Float64]:
    """For each output element, the sum of the absolute values of the terms it is made of: what error bounds
    are
    relative to. The case's `magnitude` where it has one, else its reference over absolute values with every
    difference turned into a sum.
    """
    absolute = {name: np.abs(values) for name, values in inputs.items()}
    text = problem.case.magnitude
    if text is not None:
        found = _evaluate(problem, absolute, text, magnitude=False)
    else:
        found = _evaluate(problem, absolute, problem.case.reference, magnitude=True, signed=inputs)
    return {name: np.abs(values) for name, values in found.items()}


def _evaluate(
    problem: Problem,
    inputs: Mapping[str, Float64],
    text: str | None,
    magnitude: bool,
    signed: Mapping[str, Float64] | None = None,
) -> dict[str, Float64]:
    def error(what: str) -> PorterError:
        return PorterError(Code.CASE_REFERENCE, place(problem.case, "reference"), problem=what)

    with np.errstate(all="ignore"):
        try:
            if text is not None:
                found = evaluate_reference(text, {**problem.names, **inputs}, magnitude, signed)
            else:
                found = _call(problem, inputs, error)
        except ExpressionError as failure:
            raise error(str(failure)) from None
        except PorterError:
            raise
        except Exception as failure:
            raise error(f"{type(failure).__name__}: {failure}") from None
    names = [t.name for t in problem.outputs]
    if not isinstance(found, Mapping):
        if len(names) != 1:
            raise error(f"gives one array, but there are outputs {', '.join(names)}; give a dict")
        found = {names[0]: found}
    result: dict[str, Float64] = {}
    for tensor in problem.outputs:
        if tensor.name not in found:
            raise error(f"gives nothing for output {tensor.name}")
        try:
            values = np.asarray(found[tensor.name], dtype=np.float64)
        except (TypeError, ValueError):
            raise error(f"{tensor.name} is no array of numbers") from None
        if values.shape != tensor.shape:
            raise error(f"{tensor.name} has shape {values.shape}, but the tensor has {tensor.shape}")
        result[tensor.name] = values
    return result


def _call(problem: Problem, inputs: Mapping[str, Float64], error: Any) -> Any:
    if problem.case.reference_function is None:
        raise error("there is none")
    require_trusted(problem.case)
    path, name = problem.case.reference_function
    spec = importlib.util.spec_from_file_location(f"porter_reference_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise error(f"{path} is no Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise error(f"{path} has no function {name}")
    return function(dict(inputs), dict(problem.names))
