# SPDX-License-Identifier: Apache-2.0
"""The host's side."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import cutlass.utils.hopper_helpers as sm90_utils
from cutlass.cute.nvgpu import warpgroup

from .private import _for_hopper

# --- the host's side: tiled MMAs of Hopper as partitioners


def _on_hopper(function: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, **kwargs: Any) -> Any:
        with _for_hopper():
            return function(*args, **kwargs)

    return made


make_trivial_tiled_mma = _on_hopper(sm90_utils.make_trivial_tiled_mma)


def __getattr__(name: str) -> Any:
    """Everything else of cute.nvgpu.warpgroup: MMAs, layouts of shared memory, major modes."""
    found = getattr(warpgroup, name)
    return _on_hopper(found) if re.fullmatch(r"Mma\w+Op", name) else found
