# SPDX-License-Identifier: Apache-2.0
"""What a step of CuTe DSL gets: a kernel that is about to be written in Blackwell's own words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.text import Draft
from porter.passes.idiom_dsl.words import Words

Placed = Callable[[Draft, Words], None]
"""Edits of a step, as one that puts the main loop where it is executed."""


@dataclass
class Site:
    """`slice`: the thread among those that read the accumulator. `by_tiles`: they load it tile by tile of the
    epilogue. A step writes nothing: it sets words of the sections, `placed`, which the rule of the main loop calls
    in place of its own, and edits that are made `also`. It raises Left where it is not for this kernel."""

    kernel: Kernel
    words: Words
    slice: str
    by_tiles: bool
    placed: Placed | None = field(default=None)
    also: Placed | None = field(default=None)
