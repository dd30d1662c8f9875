# SPDX-License-Identifier: Apache-2.0
"""What operands of the tensor cores are refused with."""

from __future__ import annotations


class OperandError(ValueError):
    """The operands are such that the hardware would fault, or the PTX ISA leaves the result undefined."""


class UnsupportedOperandError(OperandError):
    """The operands are legal, but nothing here models them."""
