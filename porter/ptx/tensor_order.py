# SPDX-License-Identifier: Apache-2.0
"""Which tcgen05 operations of one thread stay in order without a completion (PTX ISA 9.0 §9.7.16.6.2), and what it is
called where two of them on the same cells of Tensor Memory are not in order."""

from __future__ import annotations

PIPELINED = frozenset((("cp", "mma"), ("shift", "mma"), ("mma", "shift"), ("shift", "cp")))
"""(first, second) that the text lists, besides two `mma` on one accumulator of one shape."""

PIPELINED_IN_PRACTICE = frozenset((("mma", "cp"), ("cp", "cp"), ("cp", "shift"), ("shift", "shift")))
"""Those that shipped code relies on besides, or that an `mma` in between orders (docs/rulings.md, tensor-pipeline)."""

HAZARDS = {
    ("mma", "ld"): "H1", ("mma", "st"): "H2", ("ld", "mma"): "H3", ("st", "mma"): "H4", ("st", "ld"): "H5",
    ("st", "st"): "H5", ("ld", "st"): "H6", ("mma", "mma"): "H7", ("cp", "mma"): "H9", ("mma", "cp"): "H10",
    ("ld", "cp"): "H10", ("st", "cp"): "H12", ("cp", "ld"): "H11", ("cp", "st"): "H11", ("cp", "cp"): "H12",
    ("shift", "ld"): "H13", ("shift", "st"): "H13", ("shift", "mma"): "H9", ("shift", "cp"): "H10",
    ("shift", "shift"): "H13", ("ld", "shift"): "H3", ("st", "shift"): "H4", ("mma", "shift"): "H9",
    ("cp", "shift"): "H12",
}  # fmt: skip
"""IDs of the catalog of hazards by the (first, second) of two operations, one of which writes."""
