# SPDX-License-Identifier: Apache-2.0
"""What a datapath raises."""

from __future__ import annotations


class DatapathError(ValueError):
    """The operands are such that the hardware would fault, or the PTX ISA leaves the result undefined."""


class UnsupportedDatapathError(DatapathError):
    """The operands are legal, but this datapath does not model them."""
