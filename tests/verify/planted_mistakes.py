# SPDX-License-Identifier: Apache-2.0
"""Mistakes that people make when they port by hand: (name, pattern in the text of a right port, replacement).

Read by test_verify_planted.py, for the simulator, and by scripts/gpu_mutants.py, for a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

KERNEL = "gemm_ws"
"""The corpus kernel whose port they are planted in."""

MISTAKES = [
    ("sbo-halved", r"(matrix_descriptor_encode\(\(uint64_t\))1024(\) << 32)", r"\g<1>512\2"),
    ("k-advance-missing", r"&wgmma_sA\[k_it \* WGMMA_K\]", "&wgmma_sA[0]"),
    ("first-mma-accumulates", r"bool accumulate = false;", "bool accumulate = true;"),
    ("wrong-n", r"n >> 3 << 17", "n >> 4 << 17"),
    ("wrong-type", r"(kOperandBF16 = )1;", r"\g<1>0;"),
    ("wrong-lane-quarter", r"threadIdx\.x / 32 % 4 << 21", "(threadIdx.x / 32 + 1) % 4 << 21"),
    ("commit-missing", r'asm volatile\("tcgen05\.commit[^;]*;[^;]*;', ""),
    ("wait-missing", r"if \(committed <= pending\) {", "if (committed) {"),
    ("constant-parity", r"wait_phase\(done, batch % 2\)", "wait_phase(done, 0)"),
    ("alloc-missing", r'asm volatile\("tcgen05\.alloc[^;]*;[^;]*;', ""),
    ("dealloc-missing", r'asm volatile\("tcgen05\.dealloc[^;]*;[^;]*;', ""),
    ("second-tile-in-the-same-lanes", r"index % 2 << 20", "index % 2 << 25"),
    ("version-bits-missing", r"kDescriptorVersion = 1ull << 46", "kDescriptorVersion = 0"),
]


def planted(files: Mapping[str, bytes], pattern: str, replacement: str) -> dict[str, bytes]:
    """The files of a port with a mistake in them.

    Raises:
        ValueError: nothing in them is like the pattern.
    """
    wrong = {path: re.sub(pattern.encode(), replacement.encode(), text) for path, text in files.items()}
    if wrong == dict(files):
        raise ValueError(f"the port holds nothing like {pattern}")
    return wrong
