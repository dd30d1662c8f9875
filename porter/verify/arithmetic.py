# SPDX-License-Identifier: Apache-2.0
"""What the hardware's sums lose, per operand and accumulator type: from the one table in `porter.ptx`.

Both architectures are asked, and the one that keeps fewer bits decides what inputs are exact everywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from porter.ptx.mma_numerics import Architecture, DotRule, Rounding, Unit, dot_rule
from porter.ptx.types import ElementType
from porter.verify.dtypes import DTYPES, DType

_ELEMENT_NAMES = {"f8e4m3": "e4m3", "f8e5m2": "e5m2"}
_FRACTION = {Rounding.RZ23: 23, Rounding.RZ13: 13, Rounding.RNE10: 10}
_UNITS: dict[Architecture, Unit] = {"sm_90": "wgmma", "sm_100": "tcgen05"}

APPROXIMATE = re.compile(r"^\s*(?:@!?%\w+\s+)?(?:ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh|div)\.approx", re.MULTILINE)
"""PTX instructions whose last bits are documented as a bound only (PTX ISA 9.0 §9.7.3)."""

ARCHITECTURES: tuple[Architecture, ...] = ("sm_90", "sm_100")


def element_type(dtype: DType) -> ElementType | None:
    """The operand type of the instruction set, or None for what no tensor core multiplies."""
    try:
        return ElementType(_ELEMENT_NAMES.get(dtype.name, dtype.name))
    except ValueError:
        return None


def rule_of(operand: DType, accumulate: str, arch: Architecture) -> DotRule | None:
    """How the tensor cores of `arch` add, or None where ordinary arithmetic is meant (f32, f64 operands)."""
    kind = element_type(operand)
    if kind is None:
        return None
    try:
        return dot_rule(arch, _UNITS[arch], kind, kind, ElementType(accumulate))
    except (KeyError, ValueError):
        return None


@dataclass(frozen=True)
class StepLoss:
    """What one accumulation step may lose, relative to the largest magnitude it sees: the sum of `length`
    products loses at most `relative` times that magnitude. `length` is 0 for exact integers."""

    length: int
    relative: float


def step_loss(operand: DType, accumulate: str, arch: Architecture, arithmetic: str) -> StepLoss:
    """The loss of one instruction; `arithmetic` is `exact` (the hardware's truncated sum, also for GPUs) or
    `float64` (the simulator's fast mode: a float64 sum, rounded once to the accumulator's format).

    The exact rule aligns length + 1 terms and truncates each at 2^-F, then truncates the sum.
    """
    rule = rule_of(operand, accumulate, arch)
    result = DTYPES[accumulate]
    if not result.is_float:
        return StepLoss(0, 0.0)
    if rule is None:
        return StepLoss(1, 2.0 ** -(result.significand - 1))
    if arithmetic == "float64":
        return StepLoss(rule.length, 2.0 ** -(result.significand - 1) + rule.length * 2.0**-52)
    final = 2.0 ** -_FRACTION[rule.rounding]
    return StepLoss(rule.length, (rule.length + 1) * 2.0**-rule.fraction_bits + final)


def exact_integer_limit(operand: DType, accumulate: str) -> int:
    """Sums of integers whose partial sums stay below this are exact on both architectures, in every mode."""
    result = DTYPES[accumulate]
    bits = 31 if not result.is_float else result.significand
    for arch in ARCHITECTURES:
        rule = rule_of(operand, accumulate, arch)
        if rule is not None and result.is_float:
            bits = min(bits, rule.fraction_bits, _FRACTION[rule.rounding] + 1)
    return int(2**bits)
