# SPDX-License-Identifier: Apache-2.0
"""CuTe layouts for tests: written as nested tuples, or read from the text of a CuTe header."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

# Lane stride of Tensor Memory in bits, for the header's TMEM::DP_b: lanes are 2^16 columns of 32 bits apart.
DP_BITS = 32 << 16


class CuteLayout:
    """shape:stride with modes that may nest; an index runs through a nested mode from the left."""

    def __init__(self, shape, stride=None) -> None:
        self.shape = shape if isinstance(shape, tuple) else (shape,)
        if stride is None:
            stride, total = [], 1
            for mode in self.shape:
                stride.append(total)
                total *= mode
        self.stride = tuple(stride) if isinstance(stride, (tuple, list)) else (stride,)

    def __call__(self, *index):
        """Offset of one index per mode; indices may be arrays."""
        assert len(index) == len(self.shape)
        total = 0
        for i, shape, stride in zip(index, self.shape, self.stride, strict=True):
            total = total + _mode(np.asarray(i), shape, stride)
        return total

    def flat(self, index):
        """Offset of a single index over all modes."""
        return _mode(np.asarray(index), self.shape, self.stride)


def size(shape) -> int:
    return int(np.prod([size(s) for s in shape])) if isinstance(shape, tuple) else shape


def _mode(index, shape, stride):
    if not isinstance(shape, tuple):
        return index * stride
    total = 0
    for sub_shape, sub_stride in zip(shape[:-1], stride[:-1], strict=True):
        total = total + _mode(index % size(sub_shape), sub_shape, sub_stride)
        index = index // size(sub_shape)
    return total + _mode(index, shape[-1], stride[-1])


def cute_header(name: str) -> str:
    """Text of include/cute/<name>; skips the test if CUTLASS is not installed."""
    spec = importlib.util.find_spec("cutlass_library")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("nvidia-cutlass is not installed")
    return (Path(next(iter(spec.submodule_search_locations))) / "source/include/cute" / name).read_text()


def parse_layout(text: str, **names: int) -> CuteLayout:
    """`Layout<Shape<...>,Stride<...>>` with `_4`, `Int<expr>` and the given names."""
    text = re.sub(r"\s+", "", text.replace("TMEM::DP_b", "DP_b").replace("_DP{}", "_DP"))
    expression = re.sub(r"Int<([^<>]*)>", r"(\1)", text)
    expression = re.sub(r"\b_(\d+)\b", r"\1", expression)
    while True:
        replaced = re.sub(r"(?:Shape|Stride)<([^<>]*)>", r"(\1,)", expression)
        if replaced == expression:
            break
        expression = replaced
    match = re.fullmatch(r"Layout<(.*)>", expression)
    assert match, text
    known = {"DP_b": DP_BITS, "_DP": DP_BITS, **names}
    value = eval(match[1].replace("/", "//"), {"__builtins__": {}}, known)
    pair = isinstance(value, tuple) and isinstance(value[0], tuple)
    shape, stride = value if pair else (value, None)
    return CuteLayout(shape, stride)


def find_alias(text: str, name: str) -> str:
    """The right-hand side of `using <name> = ...;`."""
    match = re.search(rf"using\s+{re.escape(name)}\s*=\s*([^;]*);", text)
    assert match, name
    return match[1]
