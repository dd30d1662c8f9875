# SPDX-License-Identifier: Apache-2.0
"""Which tcgen05 operations of one thread stay in order without a completion (PTX ISA 9.0 §9.7.16.6.2)."""

from __future__ import annotations

PIPELINED = frozenset((("cp", "mma"), ("shift", "mma"), ("mma", "shift"), ("shift", "cp")))
"""(first, second) that the text lists, besides two `mma` on one accumulator of one shape."""

PIPELINED_IN_PRACTICE = frozenset((("mma", "cp"), ("cp", "cp"), ("cp", "shift"), ("shift", "shift")))
"""Those that shipped code relies on besides, or that an `mma` in between orders (docs/rulings.md, tensor-pipeline)."""
