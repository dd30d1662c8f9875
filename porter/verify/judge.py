# SPDX-License-Identifier: Apache-2.0
"""The verdict on one case, size and input family: what is compared with what, and how strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from porter.diagnostics import Code, Diagnostic, Location
from porter.verify import compare, oracle
from porter.verify.bounds import bound
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH
from porter.verify.compare import Comparison
from porter.verify.controls import wrong_outputs
from porter.verify.dtypes import Array, Float64
from porter.verify.inputs import Family, decoded
from porter.verify.problem import Problem
from porter.verify.recorded import RecordedExpectation, recorded_expectation
from porter.verify.tensor import Tensor


@dataclass(frozen=True)
class Expectation:
    """What the outputs should be for given inputs, and how to judge outputs against that."""

    problem: Problem
    family: Family
    arithmetic: str
    inputs: Mapping[str, Float64]
    expected: Mapping[str, Float64]
    terms: Mapping[str, Float64]

    @property
    def exact(self) -> bool:
        return self.family.exact and self.problem.case.exact

    def allowed(self, tensor: Tensor, arch: str) -> Float64:
        return bound(self.problem, tensor, self.expected[tensor.name], self.terms[tensor.name], arch, self.arithmetic)

    def against_reference(self, tensor: Tensor, actual: Array, arch: str) -> Comparison:
        expected = self.expected[tensor.name]
        if self.exact:
            return compare.same_values(tensor.name, tensor.dtype, expected, actual)
        return compare.within(
            tensor.name,
            tensor.dtype,
            expected,
            actual,
            self.allowed(tensor, arch),
            self.terms[tensor.name],
            self.family.classes,
        )

    @property
    def bits_expected(self) -> bool:
        """Whether port and original have to agree in every bit. Both architectures add f16, bf16, tf32 and
        integer products alike; Hopper keeps fewer bits of 8-bit floats. The simulator's float64 mode has one
        rule for both."""
        stated = self.problem.case.compare
        if stated is not None:
            return stated == "bits"
        if self.exact or self.arithmetic == "float64":
            return True
        return not self.problem.operand.name.startswith("f8")

    def between(self, tensor: Tensor, original: Array, port: Array) -> Comparison:
        if self.bits_expected:
            return compare.same_bits(tensor.name, tensor.dtype, original, port)
        both = self.allowed(tensor, ORIGINAL_ARCH) + self.allowed(tensor, PORT_ARCH)
        terms = self.terms[tensor.name]
        return compare.both_within(tensor.name, tensor.dtype, original, port, both, terms, self.family.classes)


def expectation(
    problem: Problem, family: Family, inputs: Mapping[str, Array], arithmetic: str
) -> Expectation | RecordedExpectation:
    """The reference and its magnitudes for these inputs, or what was recorded.

    Raises:
        PorterError: CASE_REFERENCE.
    """
    if problem.case.recorded is not None:
        return recorded_expectation(problem, family, inputs)
    values = decoded(problem, inputs)
    return Expectation(
        problem=problem,
        family=family,
        arithmetic=arithmetic,
        inputs=values,
        expected=oracle.reference(problem, values),
        terms=oracle.magnitude(problem, values),
    )


def failed_controls(wanted: Expectation | RecordedExpectation) -> tuple[int, list[Diagnostic]]:
    """How many wrong outputs were tried, and a diagnostic for each that would have passed."""
    if isinstance(wanted, RecordedExpectation):
        return wanted.failed_controls()
    tried, passed = 0, []
    for name, tensor, wrong in wrong_outputs(wanted.problem, wanted.family, wanted.inputs, wanted.expected):
        tried += 1
        found = wanted.against_reference(tensor, tensor.dtype.encode(wrong), ORIGINAL_ARCH)
        if found.ok:
            where = Location(str(wanted.problem.case.path))
            passed.append(Diagnostic(Code.CONTROL_PASSED, where, {"tensor": tensor.name, "control": name}))
    return tried, passed
