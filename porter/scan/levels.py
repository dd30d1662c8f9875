# SPDX-License-Identifier: Apache-2.0
"""How much work there can be."""

from __future__ import annotations

from dataclasses import dataclass

LEVELS = ("unknown", "none", "low", "medium", "high")


@dataclass(frozen=True)
class Effort:
    """`none`: nothing is Hopper-only. `low`: ported, every edit keeps the meaning by construction. `medium`:
    ported, but something is to be looked at. `high`: something is left for the user. `unknown`: not asked, or its
    headers were not found."""

    level: str = "none"
    why: tuple[str, ...] = ()
