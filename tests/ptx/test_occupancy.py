# SPDX-License-Identifier: Apache-2.0
"""How many blocks share an SM, held against what cuda_occupancy.h of CUDA 13.0 answers (compiled for each chip, over
24,000 combinations; a part of them stands here), and Tensor Memory, which it does not know of."""

from __future__ import annotations

import pytest

from porter.ptx.arch import limits
from porter.ptx.occupancy import Resident, Taken, resident

# Chip, threads, registers of each, named barriers, bytes of shared memory; blocks.
CUDA = [
    ("sm_90a", 128, 168, 1, 40960, 3), ("sm_100a", 128, 142, 16, 40976, 3), ("sm_100a", 128, 90, 16, 0, 4),
    ("sm_100a", 64, 128, 1, 0, 8), ("sm_90a", 96, 40, 1, 1000, 16), ("sm_90a", 32, 24, 1, 0, 32),
    ("sm_103a", 384, 168, 1, 0, 1), ("sm_100a", 1024, 64, 1, 0, 1), ("sm_100a", 1024, 90, 1, 0, 0),
    ("sm_90a", 160, 128, 1, 0, 3), ("sm_90a", 160, 200, 5, 0, 1), ("sm_100a", 256, 255, 1, 100000, 1),
    ("sm_100a", 256, 40, 2, 20000, 6), ("sm_90a", 512, 32, 1, 65536, 3), ("sm_100a", 128, 24, 1, 232448, 1),
    ("sm_110a", 32, 24, 1, 0, 24), ("sm_110a", 32, 24, 2, 0, 12),
]  # fmt: skip


@pytest.mark.parametrize(("chip", "threads", "registers", "barriers", "shared", "blocks"), CUDA)
def test_as_cuda_counts(chip: str, threads: int, registers: int, barriers: int, shared: int, blocks: int) -> None:
    assert resident(Taken(threads, registers, shared, barriers), limits(chip)).blocks == blocks


@pytest.mark.parametrize(
    ("taken", "blocks", "by"),
    [
        (Taken(128, 142, 40976, 16, 256), 2, "Tensor Memory"),
        (Taken(128, 142, 40976, 16, 128), 3, "registers"),
        (Taken(128, 142, 40976, 16), 3, "registers"),
        (Taken(128, 64, 0, 16, 64), 4, "named barriers"),
        (Taken(128, 64, 100000, 1, 128), 2, "shared memory"),
        (Taken(1024, 24, 0, 1, 32), 2, "threads"),
        (Taken(32, 24, 0, 1), 32, "blocks"),
        (Taken(columns=512), 1, "Tensor Memory"),
        (Taken(columns=32), 16, "Tensor Memory"),
        (Taken(), 32, "blocks"),
        # Registers are those of threads: without these they bound nothing.
        (Taken(registers=255), 32, "blocks"),
    ],
)
def test_what_bounds_it(taken: Taken, blocks: int, by: str) -> None:
    assert resident(taken, limits("sm_100a")) == Resident(blocks, by)
