# SPDX-License-Identifier: Apache-2.0
"""The kinds in which generated code computes: a NumPy type for each PTX type."""

from __future__ import annotations

from typing import Any

import numpy as np

DTYPES: dict[str, Any] = {
    "p": np.bool_,
    "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "s8": np.int8, "s16": np.int16, "s32": np.int32, "s64": np.int64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
WIDTH_OF = {"p": 1, **{k: np.dtype(t).itemsize * 8 for k, t in DTYPES.items() if k != "p"}}

# Kinds in which the value of a PTX type is computed. bf16 has no NumPy type: its bits are taken.
_KINDS = {
    "pred": "p", "b8": "u8", "b16": "u16", "b32": "u32", "b64": "u64", "bf16": "u16", "f16x2": "u32",
    "bf16x2": "u32", "tf32": "u32", "u16x2": "u32", "s16x2": "u32", "f32x2": "u64", "e4m3x2": "u16",
    "e5m2x2": "u16", "e2m1x2": "u8", "e2m3x2": "u16", "e3m2x2": "u16", "ue8m0x2": "u16", "e4m3x4": "u32",
    "e5m2x4": "u32",
}  # fmt: skip

WIDTHS = (1, 16, 32, 64)


class Unsupported(Exception):
    """An instruction form that the simulator does not execute."""


def kind_of(type_name: str) -> str:
    """The kind (key of DTYPES) for a PTX type such as `b32` or `bf16x2`."""
    kind = _KINDS.get(type_name, type_name)
    if kind not in DTYPES:
        raise Unsupported(type_name)
    return kind


def plain(kind: str) -> str:
    """The kind in which a value is copied: floats as bits, which keeps the payload of NaN."""
    return f"u{WIDTH_OF[kind]}" if kind[0] == "f" else kind
