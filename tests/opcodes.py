# SPDX-License-Identifier: Apache-2.0
"""What the table says of opcodes."""

from __future__ import annotations

from porter.ptx.forms.grammar import Modifiers
from porter.ptx.table import opcode_modifiers


def given(opcode: str) -> Modifiers:
    """The modifiers of an opcode. Raises ValueError if no row has it."""
    found = opcode_modifiers(opcode)
    if found is None:
        raise ValueError(f"{opcode} is in no row")
    return found
