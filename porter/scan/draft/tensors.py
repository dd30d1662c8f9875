# SPDX-License-Identifier: Apache-2.0
"""Tensors and tensor maps of a draft: number formats, shapes, strides, which of them a kernel writes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from porter.scan.draft import numbers as nums
from porter.scan.draft.numbers import Num
from porter.scan.draft.values import MapValue, Offset, Pointer, Word

DTYPES = {
    "float": "f32", "double": "f64", "half": "f16", "__half": "f16", "half_t": "f16", "float16_t": "f16",
    "__nv_bfloat16": "bf16", "nv_bfloat16": "bf16", "bfloat16_t": "bf16", "bf16": "bf16", "__nv_fp8_e4m3": "f8e4m3",
    "__nv_fp8_e5m2": "f8e5m2", "float_e4m3_t": "f8e4m3", "float_e5m2_t": "f8e5m2", "int8_t": "s8", "char": "s8",
    "signed char": "s8", "uint8_t": "u8", "unsigned char": "u8", "int16_t": "s16", "short": "s16", "uint16_t": "u16",
    "int": "s32", "int32_t": "s32", "unsigned": "u32", "uint32_t": "u32", "int64_t": "s64", "long": "s64",
    "uint64_t": "u64", "size_t": "u64", "half2": "f16", "__half2": "f16", "__nv_bfloat162": "bf16", "tfloat32_t": "f32",
    "BFloat16": "bf16", "Half": "f16", "Float8_e4m3fn": "f8e4m3", "Float8_e5m2": "f8e5m2",
}  # fmt: skip
"""Number formats by the names that C++ has for them."""
MAP_TYPES = {
    "UINT8": "u8", "UINT16": "u16", "UINT32": "u32", "INT32": "s32", "UINT64": "u64", "INT64": "s64", "FLOAT16": "f16",
    "FLOAT32": "f32", "FLOAT64": "f64", "BFLOAT16": "bf16", "FLOAT32_FTZ": "f32", "TFLOAT32": "f32",
    "TFLOAT32_FTZ": "f32",
}  # fmt: skip
"""What a tensor of an element type of tensor maps is (CUDA driver API, CUtensorMapDataType)."""
_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}


def item_size(dtype: str) -> int:
    """Bytes of an element."""
    if dtype.startswith("f8"):
        return 1
    return _BYTES[re.sub(r"\D", "", dtype)]


def dtype_of(element: str) -> str | None:
    return DTYPES.get(element.split("::")[-1].strip())


@dataclass
class Tensor:
    """A tensor as far as it is known; `shape` is empty where nothing tells it."""

    name: str
    dtype: str | None
    shape: tuple[Num, ...] = ()
    strides: tuple[Num, ...] = ()
    const: bool = False
    zeroed: bool = False
    maps: list[str] = field(default_factory=list)
    role: str = ""
    is_stored: bool = False
    """Whether a tensor map of it is stored through."""
    nbytes: Num | None = None
    """What the host allocates for it."""

    def fills(self, shape: tuple[Num, ...]) -> bool:
        """Whether a dense tensor of this shape takes all that is allocated, and no more."""
        if self.nbytes is None or self.dtype is None:
            return False
        found = nums.const(item_size(self.dtype))
        for extent in shape:
            found = nums.apply("*", found, extent)
        return same((self.nbytes,), (found,))


def map_shape(value: MapValue) -> tuple[Num, ...] | None:
    """The extents of a tensor map, outermost first; None if some are not known."""
    rank, dims = value.fields.get("rank"), value.fields.get("dims")
    if not isinstance(rank, Num) or not isinstance(rank.known, int) or not isinstance(dims, list):
        return None
    found = dims[: rank.known]
    return tuple(reversed(found)) if all(isinstance(d, Num) for d in found) and len(found) == rank.known else None


def in_whole_tiles(value: MapValue) -> list[Num]:
    """Make `x // 64 * 64` of a tensor map's extents `x`, and say what that asks of the sizes."""
    found, conditions = value.fields.get("dims"), []
    dims = found if isinstance(found, list) else []
    for at, extent in enumerate(dims):
        parts = extent.args if isinstance(extent, Num) and extent.op == "*" else ()
        for part, other in (parts, parts[::-1]) if len(parts) == 2 else ():
            if part.op == "//" and part.args[1] == other and other.known:
                dims[at] = part.args[0]
                conditions.append(nums.apply("==", nums.apply("%", *part.args), nums.const(0)))
    return conditions


def map_base(value: MapValue) -> tuple[Pointer | None, Num]:
    """The memory that a tensor map is over, and from which element on."""
    base = value.fields.get("base")
    if isinstance(base, Offset):
        return base.base, base.elements
    return (base, nums.const(0)) if isinstance(base, Pointer) else (None, nums.const(0))


def map_dtype(value: MapValue) -> str | None:
    kind = value.fields.get("type")
    return MAP_TYPES.get(kind.text.split("DATA_TYPE_")[-1]) if isinstance(kind, Word) else None


def map_strides(value: MapValue, itemsize: int) -> tuple[Num, ...] | None:
    """Strides in elements, outermost first; None if they are not known."""
    rank, strides = value.fields.get("rank"), value.fields.get("strides")
    strides = [strides] if isinstance(strides, Num) else strides
    if not isinstance(rank, Num) or not isinstance(rank.known, int) or not isinstance(strides, list):
        return None
    found = strides[: rank.known - 1]
    if len(found) != rank.known - 1 or not all(isinstance(s, Num) for s in found):
        return None
    inside = [_elements(s, itemsize) for s in found if isinstance(s, Num)]
    return (*reversed(inside), nums.const(1))


def folded(shape: tuple[Num, ...], strides: tuple[Num, ...]) -> tuple[tuple[Num, ...], tuple[Num, ...]]:
    """A matrix that a tensor map sees as columns of tiles (x / 64, rows, 64) is what it is in memory: (rows, x), dense.
    Else the shape and strides that are given."""
    if len(shape) == 3 and shape[0].op == "//" and shape[0].args[1] == shape[2] == strides[0] and strides[2].known == 1:
        whole = shape[0].args[0]
        if same((strides[1],), (whole,)):
            return (shape[1], whole), ()
    return shape, strides


def _elements(nbytes: Num, itemsize: int) -> Num:
    """Bytes as elements."""
    if nbytes.op == "*":
        for at, part in enumerate(nbytes.args):
            if isinstance(part.known, int) and part.known % itemsize == 0:
                other = nbytes.args[1 - at]
                return nums.apply("*", other, nums.const(part.known // itemsize))
    return nums.apply("//", nbytes, nums.const(itemsize))


def row_major(shape: tuple[Num, ...]) -> tuple[Num, ...]:
    """The strides of a dense tensor, in elements."""
    found = [nums.const(1)]
    for extent in reversed(shape[1:]):
        found.append(nums.apply("*", found[-1], extent))
    return tuple(reversed(found))


def same(a: tuple[Num, ...], b: tuple[Num, ...]) -> bool:
    """Whether two tuples of expressions agree for all sizes, as far as numbers show."""
    names = sorted(set[str]().union(*(x.names() for x in (*a, *b))))
    for step in (3, 7, 16):
        values = {n: 1920 * (i + step) for i, n in enumerate(names)}
        try:
            if [x.run(values) for x in a] != [x.run(values) for x in b]:
                return False
        except (ZeroDivisionError, TypeError):
            return False
    return True


def described(value: MapValue, tensor: Tensor, name: str) -> dict[str, Any]:
    """A tensor map as a case file has it."""
    found: dict[str, Any] = {"tensor": name}
    rank = value.fields["rank"].known
    shape = map_shape(value)
    if shape is not None and not (tensor.shape and len(tensor.shape) == len(shape) and same(tensor.shape, shape)):
        found["dims"] = [d.written() for d in shape]
        strides = map_strides(value, item_size(tensor.dtype or "f16"))
        if strides is not None:
            found["strides"] = [s.written() for s in strides]
    _, offset = map_base(value)
    if offset.known != 0:
        found["offset"] = offset.written()
    box = value.fields.get("box")
    if isinstance(box, list) and all(isinstance(b, Num) for b in box[:rank]):
        found["box"] = [b.written() for b in reversed(box[:rank])]
    steps = value.fields.get("steps")
    if isinstance(steps, list) and any(isinstance(s, Num) and s.known != 1 for s in steps[:rank]):
        found["element_strides"] = [s.written() if isinstance(s, Num) else 1 for s in reversed(steps[:rank])]
    for name_, key, prefix in (
        ("swizzle", "swizzle", "SWIZZLE_"), ("l2_promotion", "l2", "L2_PROMOTION_"),
        ("interleave", "interleave", "INTERLEAVE_"),
    ):  # fmt: skip
        word = value.fields.get(key)
        text = word.text.split(prefix)[-1].removeprefix("L2_") if isinstance(word, Word) else "NONE"
        if text != "NONE":
            found[name_] = text
    oob = value.fields.get("oob")
    if isinstance(oob, Word) and "NAN" in oob.text:
        found["oob"] = "nan"
    return found
