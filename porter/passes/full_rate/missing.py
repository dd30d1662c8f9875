# SPDX-License-Identifier: Apache-2.0
"""What a step lacks."""

from __future__ import annotations

from dataclasses import dataclass

from porter.lang.text import Span
from porter.model.functions import Function


@dataclass(frozen=True, eq=False)
class Missing:
    """A fact that is not known, and where."""

    function: Function
    span: Span
    what: str
