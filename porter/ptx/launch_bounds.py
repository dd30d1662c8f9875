# SPDX-License-Identifier: Apache-2.0
"""What the directives of an entry say of its launches (PTX ISA 11.4, 11.5)."""

from __future__ import annotations

import math
from collections.abc import Mapping

Directives = Mapping[str, tuple[int, ...]]


def threads_at_most(directives: Directives) -> int | None:
    """Threads of a block; None where no bound is given."""
    bounds = directives.get("reqntid") or directives.get("maxntid")
    return math.prod(bounds) if bounds else None


def extents(directives: Directives, directive: str) -> tuple[int, int, int] | None:
    """`.maxntid 128` is (128, 1, 1); None without it."""
    values = directives.get(directive)
    if not values:
        return None
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z


def blocks_of_cluster(directives: Directives) -> int:
    """Blocks of a cluster, one where the directives ask for none."""
    return math.prod(directives.get("reqnctapercluster", ()))
