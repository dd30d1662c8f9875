# SPDX-License-Identifier: Apache-2.0
"""Recorded cases: tensors from files, and outputs held against what was recorded.

Without a tolerance every bit has to agree, which the simulator's exact arithmetic and another GPU are able to. A
case may state a tolerance, relative to the largest magnitude of the output; `porter capture` does where the kernel
has approximate instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from porter.diagnostics import Code, Diagnostic, Location
from porter.verify import compare
from porter.verify.compare import Comparison
from porter.verify.dtypes import Array
from porter.verify.inputs import Family, recorded_elements
from porter.verify.problem import Problem
from porter.verify.tensor import Tensor


@dataclass(frozen=True)
class RecordedExpectation:
    """What outputs were when the case was recorded, and what they were before."""

    problem: Problem
    family: Family
    before: Mapping[str, Array]
    expected: Mapping[str, Array]

    def against_reference(self, tensor: Tensor, actual: Array, arch: str) -> Comparison:
        return self.between(tensor, self.expected[tensor.name], actual)

    def between(self, tensor: Tensor, original: Array, port: Array) -> Comparison:
        tolerance = self.problem.case.tolerance
        if not tolerance:
            return compare.same_bits(tensor.name, tensor.dtype, original, port)
        values = tensor.dtype.decode(original)
        finite = np.abs(values[np.isfinite(values)])
        terms = np.full(tensor.shape, finite.max(initial=0.0))
        return compare.within(tensor.name, tensor.dtype, values, port, tolerance * terms, terms, classes=True)

    def failed_controls(self) -> tuple[int, list[Diagnostic]]:
        """The outputs as they were before the run must not pass."""
        failed = []
        for tensor in self.problem.outputs:
            if self.against_reference(tensor, self.before[tensor.name], "").ok:
                values = {"tensor": tensor.name, "control": "unwritten"}
                failed.append(Diagnostic(Code.CONTROL_PASSED, Location(str(self.problem.case.path)), values))
        return len(self.problem.outputs), failed


def recorded_expectation(problem: Problem, family: Family, inputs: Mapping[str, Array]) -> RecordedExpectation:
    """Raises what `recorded_elements` raises."""
    expected = {
        t.name: inputs[t.name] if t.after is None else recorded_elements(problem, t, t.after) for t in problem.outputs
    }
    return RecordedExpectation(problem, family, inputs, expected)
