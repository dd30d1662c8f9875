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


def blocks_of_cluster(directives: Directives) -> int:
    """Blocks of a cluster, one where the directives ask for none."""
    return math.prod(directives.get("reqnctapercluster", ()))
