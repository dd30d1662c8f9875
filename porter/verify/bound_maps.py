# SPDX-License-Identifier: Apache-2.0
"""The tensor maps of a case at one problem size.

They are kept in the driver's order of dimensions, innermost first, because that is what the hardware's rules speak
about; the case says them outermost first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TypeVar

from porter.ptx.tensormap import (
    TensorMap,
    TensorMapInterleave,
    TensorMapL2Promotion,
    TensorMapSwizzle,
    TensorMapType,
)
from porter.verify.case import TensorMapSpec
from porter.verify.dtypes import DTYPES
from porter.verify.scope import Scope
from porter.verify.tensor import Tensor

_Enum = TypeVar("_Enum", bound=IntEnum)


@dataclass(frozen=True)
class BoundMap:
    """A tensor map without its address: `map.address` counts bytes from the start of the tensor."""

    name: str
    tensor: str
    map: TensorMap = field(repr=False)


def _member(values: type[_Enum], text: str) -> _Enum:
    """`128B` is the member B128, `128B_ATOM_32B` B128_ATOM_32B, `none` NONE."""
    return values["NONE" if text == "none" else "B" + text.replace("B", "", 1)]


def bound_map(scope: Scope, spec: TensorMapSpec, tensor: Tensor) -> BoundMap:
    """A tensor map of the tensor that it names.

    Raises:
        PorterError: CASE_EXPRESSION, CASE_DOES_NOT_FIT.
    """
    where = f"tensor_maps.{spec.name}"
    item = DTYPES[spec.dtype].itemsize if spec.dtype in DTYPES else tensor.dtype.itemsize
    dims = scope.integers(f"{where}.dims", spec.dims, 1) if spec.dims else tensor.shape
    rank = len(dims)
    if spec.strides is not None:
        strides = scope.integers(f"{where}.strides", spec.strides)
    elif rank == len(tensor.shape) and item == tensor.dtype.itemsize:
        strides = tensor.strides
    else:
        raise scope.error(f"{where}.dims", f"{rank} dimensions need {rank} strides of their own")
    box = scope.integers(f"{where}.box", spec.box, 1)
    steps = scope.integers(f"{where}.element_strides", spec.element_strides or (1,) * rank, 1)
    for name, values in (("box", box), ("strides", strides), ("element_strides", steps)):
        if len(values) != rank:
            raise scope.error(f"{where}.{name}", f"{len(values)} values for {rank} dimensions")
    if strides[-1] != 1:
        raise scope.error(where, f"the innermost stride is {strides[-1]} elements; a tensor map needs 1")
    offset = scope.integer(f"{where}.offset", spec.offset)
    reach = offset + sum((n - 1) * s for n, s in zip(dims, strides, strict=True))
    if reach >= tensor.nbytes // item:
        raise scope.error(where, f"reaches element {reach} of {tensor.name}, which has {tensor.nbytes // item}")
    bound = TensorMap(
        dtype=_map_type(scope, where, spec, tensor),
        address=offset * item,
        sizes=dims[::-1],
        strides=tuple(s * item for s in strides[:-1])[::-1],
        box=box[::-1],
        element_strides=steps[::-1],
        swizzle=_member(TensorMapSwizzle, spec.swizzle),
        interleave=_member(TensorMapInterleave, spec.interleave),
        oob_nan=spec.oob == "nan",
        l2_promotion=_member(TensorMapL2Promotion, spec.l2_promotion),
    )
    if problems := bound.problems():
        raise scope.error(where, "; ".join(problems))
    return BoundMap(spec.name, spec.tensor, bound)


# Names as in CUtensorMapDataType; 8-bit formats travel as bytes.
_MAP_TYPES = {
    "f64": "FLOAT64", "f32": "FLOAT32", "tf32": "TFLOAT32", "f16": "FLOAT16", "bf16": "BFLOAT16",
    "f8e4m3": "UINT8", "f8e5m2": "UINT8", "u8": "UINT8", "s8": "UINT8", "u16": "UINT16", "s16": "UINT16",
    "u32": "UINT32", "s32": "INT32", "u64": "UINT64", "s64": "INT64",
}  # fmt: skip


def _map_type(scope: Scope, where: str, spec: TensorMapSpec, tensor: Tensor) -> TensorMapType:
    name = spec.dtype or tensor.dtype.name
    if name not in _MAP_TYPES:
        raise scope.error(f"{where}.dtype", f"{name} is no element type of tensor maps")
    if spec.dtype and DTYPES[name].itemsize != tensor.dtype.itemsize and tensor.dtype.name != "u8":
        raise scope.error(f"{where}.dtype", f"{name} is not as wide as {tensor.dtype.name}")
    return TensorMapType[_MAP_TYPES[name]]
