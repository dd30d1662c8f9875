# SPDX-License-Identifier: Apache-2.0
"""How shared addresses of the blocks of a cluster are made, and whose the first bytes are (PTX ISA 10.31)."""

RANK_SHIFT = 24
"""A shared address is `rank << RANK_SHIFT | offset`, the rank that of the block within its cluster."""
OFFSET_MASK = (1 << RANK_SHIFT) - 1
RANK_MASK = 0xFF

SYSTEM_SHARED = 1024
"""Bytes of shared memory, the first ones, that are the system's."""
