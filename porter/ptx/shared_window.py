# SPDX-License-Identifier: Apache-2.0
"""How shared addresses of the blocks of a cluster are made, whose the first bytes are (PTX ISA 10.31), and
which block's mbarrier counts bytes that a copy brings."""

RANK_SHIFT = 24
"""A shared address is `rank << RANK_SHIFT | offset`, the rank that of the block within its cluster."""
OFFSET_MASK = (1 << RANK_SHIFT) - 1
RANK_MASK = 0xFF

SYSTEM_SHARED = 1024
"""Bytes of shared memory, the first ones, that are the system's."""


def signal_rank(target: int, mbarrier: int, of_pair: bool) -> int:
    """The rank of the block whose mbarrier counts bytes that land in the block `target`: the same, and for a copy with
    .cta_group::2 that of the target's pair whose rank has the parity of `mbarrier`, the rank in the mbarrier's address
    (PTX ISA 9.7.9.25.5.2)."""
    return target & ~1 | mbarrier & 1 if of_pair else target
