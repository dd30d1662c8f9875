# SPDX-License-Identifier: Apache-2.0
"""Qualified names of the cutlass package that ports of CuTe DSL ask for."""

from __future__ import annotations

from porter.lang.cute_dsl import within

WARPGROUP = "cutlass.cute.nvgpu.warpgroup"
TCGEN05 = "cutlass.cute.nvgpu.tcgen05"

HOPPER_ONLY = (
    WARPGROUP,
    *(f"cutlass.utils.{module}make_trivial_tiled_mma" for module in ("hopper_helpers.", "sm90.", "sm90_")),
)
"""Names that work for sm_90a only, with everything below them, but for those of `SHARED`."""

SHARED = tuple(
    f"{WARPGROUP}{module}.{name}"
    for module in ("", ".mma", ".helpers")
    for name in ("OperandMajorMode", "OperandSource", "SmemLayoutAtomKind", "make_smem_layout_atom")
)
"""Names that say how tiles lie in shared memory, and which operand lies there. Both tensor cores read the same layouts
(PTX ISA 9.7.15.5.1 and 9.7.16.3), so a module that uses no others stays as it is."""


def hopper_only(name: str) -> bool:
    """Whether a qualified name has to be gone from a port."""
    return any(within(name, n) for n in HOPPER_ONLY) and not any(within(name, n) for n in SHARED)
