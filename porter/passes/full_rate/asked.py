# SPDX-License-Identifier: Apache-2.0
"""What the text of a kernel does not tell of M=128 MMAs and of steps, so that a run of the port has to show it."""

from __future__ import annotations

from collections.abc import Sequence

from porter.model.functions import Function
from porter.passes.helpers import Helpers
from porter.passes.native.promotion import NAME as PROMOTION
from porter.passes.native.scales import NAME as SCALES
from porter.ptx.wgmma import M

_ROWS = f"its second A tile lies {M} rows behind the first, for the stride of the descriptor"
_PERMUTED = "rows of A stand in shared memory where their sums arrive in the lanes that threads look in"
_WAITS = "its consumers do not wait for each other in front of MMAs in a way that the text does not show"
_ORDER = "nobody waits for good, under any of the schedules"
_INSTANCES = "each instantiation that the file compiles is one that a case runs"
SAME = "outputs have the original's bits for all sizes and inputs, and no hazard is new"
_NEAR = "outputs are within their bound for all sizes and inputs, though the order of sums is new, and no hazard is"

OF_RUNS = (_ORDER, _INSTANCES, SAME, _NEAR)
"""What runs alone show."""


def asked_of_runs(helpers: Helpers, kernel: Function, native: Sequence[str]) -> tuple[str, ...]:
    """What has to be shown of a kernel by running it; nothing at M=64 without `native` steps."""
    if helpers.mma_rows == M and not native:
        return ()
    asked = [
        (_ROWS, helpers.mma_rows > M),
        (_PERMUTED, helpers.permuted),
        (_WAITS, helpers.joined),
        (_ORDER, bool(native)),
        (_INSTANCES, bool(kernel.template_params)),
    ]
    reorders = {PROMOTION, SCALES} & set(native)
    return (*(what for what, is_open in asked if is_open), _NEAR if reorders else SAME)
