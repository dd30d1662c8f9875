# SPDX-License-Identifier: Apache-2.0
"""From marks to code."""

from __future__ import annotations

from .calls import _Kernel
from .code import _accumulators, _batches
from .emitter import _Emitter
from .flow import _Flow
from .head import Unportable
from .program import _Program
from .values import _scratch

# --- from marks to code


def _finish(kernel: _Kernel) -> None:
    """Put code at all marks of a kernel.

    Raises:
        Unportable: something of it cannot be ported.
    """
    function = kernel.events[0].marker.block.owner.operation
    if len(kernel.events) > 2:
        with _scratch():
            program = _Program(kernel, function)
            _accumulators(program)
            if not kernel.obstacles:
                _batches(program)
                emitter = _Emitter(program, _Flow(program))
        if not kernel.obstacles:
            emitter.run()
    if kernel.obstacles:
        raise Unportable(kernel.obstacles)
    for event in kernel.events:
        event.marker.erase()
