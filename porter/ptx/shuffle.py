# SPDX-License-Identifier: Apache-2.0
"""Which lane another one hands its value in shfl.sync (PTX ISA 9.7.9.6). Numbers, or arrays of them."""

from __future__ import annotations

from typing import Any

from porter.ptx.arch import WARP

_LANES = WARP - 1
_SEGMENT = 8
"""Where the mask of the segment begins in the operand c; its clamp stands below."""


def source_lane(mode: str, lane: Any, by: Any, within: Any) -> tuple[Any, Any]:
    """The lane that a lane reads from, and whether that is in its segment: else it reads from itself. `by` and `within`
    are the operands b and c."""
    segment, clamp, by = within >> _SEGMENT & _LANES, within & _LANES, by & _LANES
    low = lane & segment
    bound = low | clamp & ~segment
    match mode:
        case "up":
            return lane - by, lane - by >= bound
        case "down":
            return lane + by, lane + by <= bound
        case "bfly":
            return lane ^ by, (lane ^ by) <= bound
    return low | by & ~segment, (low | by & ~segment) <= bound
