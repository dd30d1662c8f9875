# SPDX-License-Identifier: Apache-2.0
"""A tensor of a case at one problem size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from porter.verify.arguments import Inside
from porter.verify.case import Expr
from porter.verify.dtypes import DType


@dataclass(frozen=True)
class Tensor:
    """A tensor with its concrete shape and strides (elements, outermost first). In a recorded case `before` and
    `after` are files of its bytes, `contains` the addresses and tensor maps among them, `init` as in `TensorSpec`."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    role: str
    fill: float | tuple[float, ...] | None
    align: int
    symbolic: tuple[Expr, ...]
    before: Path | None = None
    after: Path | None = None
    init: str | None = None
    contains: tuple[Inside, ...] = ()

    @property
    def is_input(self) -> bool:
        return self.role in ("input", "inout")

    @property
    def is_output(self) -> bool:
        return self.role in ("output", "inout")

    @property
    def span(self) -> int:
        """Elements from the first to the last one, gaps included."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    @property
    def nbytes(self) -> int:
        return self.span * self.dtype.itemsize
