# SPDX-License-Identifier: Apache-2.0
"""Member masks of collective instructions: who executes one has to be in its mask, and waits until all threads of the
mask that have not ended execute it with the same mask (PTX ISA 9.7.9.6, 9.7.13.2, 9.7.13.9 to 14)."""

from __future__ import annotations

from porter.ptx import ast
from porter.ptx.table import Decoded

EVERYONE = 0xFFFFFFFF


def member_mask(ins: Decoded) -> ast.Operand | None:
    """The operand that is one; None where the instruction has none."""
    return ins.get("mask") if "sync" in ins.parts else None
