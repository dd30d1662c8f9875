# SPDX-License-Identifier: Apache-2.0
"""How many stages the rings of a kernel have whose MMAs are tiled MMAs of a library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from porter.lang.sources import load_sources
from porter.model.program import build_program
from porter.model.tiled.find import find_tiled
from porter.passes.idiom.stages import held
from porter.passes.native.sites import Left
from porter.passes.obstacles import SHARED_BYTES
from porter.ptx.arch import SM100A, limits
from porter.rules.recognize import vocabulary
from porter.rules.rule import Rule


def held_stages(path: Path, kernel: str, rules: Sequence[Rule], include_dirs: Sequence[Path] = ()) -> int | str | None:
    """The stages that a kernel has, or what is not known of them; None of one whose MMAs are none of a library.

    Raises:
        PorterError: what reading the sources raises.
    """
    program = build_program(load_sources(path, include_dirs), vocabulary(rules))
    function = next((k for k in program.kernels if k.name == kernel), None)
    if function is None or find_tiled(program) is None:
        return None
    try:
        return held(program, function)
    except Left as left:
        return left.what


def most_stages(held: int, asks: Callable[[int], int]) -> int:
    """The most stages that shared memory of a block holds; `held` where there is room for no more. `asks` gives the
    bytes that a launch asks for with a number of them."""
    room = limits(SM100A.name).shared_per_block - SHARED_BYTES
    used = asks(held)
    each = asks(held + 1) - used
    if each <= 0:
        return held
    count = held + max(room - used, 0) // each
    # what lies behind the stages may begin at multiples of its own
    while count > held and asks(count) > room:
        count -= 1
    return count
