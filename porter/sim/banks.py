# SPDX-License-Identifier: Apache-2.0
"""Storage of registers that outlive a block of code."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Banks:
    """`regs[slot]` [W, 32] are rows of the `banks` of their widths, at `bank_index[slot]`."""

    def __init__(self) -> None:
        self.regs: list[Array] = []
        self.banks: dict[int, Array] = {}
        self.bank_index: list[int] = []

    def make_registers(self, widths: list[int], warps: int) -> None:
        """Storage for registers of these widths."""
        kinds = {1: np.bool_, 16: np.uint16, 32: np.uint32, 64: np.uint64}
        counts = dict.fromkeys(kinds, 0)
        for w in widths:
            self.bank_index.append(counts[w])
            counts[w] += 1
        for w, kind in kinds.items():
            self.banks[w] = np.zeros((counts[w], warps, 32), kind)
        self.regs = [self.banks[w][i] for w, i in zip(widths, self.bank_index, strict=True)]
