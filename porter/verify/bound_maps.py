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
    dtype = _map_type(scope, where, spec, tensor)
    bits = dtype.element_bits
    dims = scope.integers(f"{where}.dims", spec.dims, 1) if spec.dims else tensor.shape
    rank = len(dims)
    if spec.strides is not None:
        strides = scope.integers(f"{where}.strides", spec.strides)
    elif rank == len(tensor.shape) and bits == 8 * tensor.dtype.itemsize:
        strides = tensor.strides
    else:
        raise scope.error(f"{where}.dims", f"{rank} dimensions need {rank} strides of their own")
    box = scope.integers(f"{where}.box", spec.box, 1)
    steps = scope.integers(f"{where}.element_strides", spec.element_strides or (1,) * rank, 1)
    for name, values, wanted in (("box", box, 2 if spec.im2col else rank), ("strides", strides, rank),
                                 ("element_strides", steps, rank)):  # fmt: skip
        if len(values) != wanted:
            raise scope.error(f"{where}.{name}", f"{len(values)} values for {wanted} dimensions")
    if strides[-1] != 1:
        raise scope.error(where, f"the innermost stride is {strides[-1]} elements; a tensor map needs 1")
    offset = scope.integer(f"{where}.offset", spec.offset)
    reach = offset + sum((n - 1) * s for n, s in zip(dims, strides, strict=True))
    elements = tensor.nbytes * 8 // bits
    if reach >= elements:
        raise scope.error(where, f"reaches element {reach} of {tensor.name}, which has {elements}")
    if any(n * bits % 8 for n in (offset, *strides[:-1])):
        raise scope.error(where, f"elements of {bits} bits: the offset or a stride is no whole number of bytes")
    corners = {k: scope.integers(f"{where}.im2col.{k}", v, -128) for k, v in (spec.im2col or {}).items()}
    bound = TensorMap(
        dtype=dtype,
        address=offset * bits // 8,
        sizes=dims[::-1],
        strides=tuple(s * bits // 8 for s in strides[:-1])[::-1],
        box=box[::-1],
        element_strides=steps[::-1],
        swizzle=_member(TensorMapSwizzle, spec.swizzle),
        interleave=_member(TensorMapInterleave, spec.interleave),
        oob_nan=spec.oob == "nan",
        l2_promotion=_member(TensorMapL2Promotion, spec.l2_promotion),
        lower=corners.get("lower", ())[::-1],
        upper=corners.get("upper", ())[::-1],
    )
    if problems := bound.problems():
        raise scope.error(where, "; ".join(problems))
    return BoundMap(spec.name, spec.tensor, bound)


MAP_TYPES = {
    "f64": TensorMapType.FLOAT64, "f32": TensorMapType.FLOAT32, "tf32": TensorMapType.TFLOAT32,
    "f16": TensorMapType.FLOAT16, "bf16": TensorMapType.BFLOAT16, "u8": TensorMapType.UINT8,
    "u16": TensorMapType.UINT16, "u32": TensorMapType.UINT32, "s32": TensorMapType.INT32,
    "u64": TensorMapType.UINT64, "s64": TensorMapType.INT64, "f32_ftz": TensorMapType.FLOAT32_FTZ,
    "tf32_ftz": TensorMapType.TFLOAT32_FTZ, "b4x16": TensorMapType.U4_ALIGN8B,
    "b4x16_p64": TensorMapType.U4_ALIGN16B, "b6x16_p32": TensorMapType.U6_ALIGN16B,
}  # fmt: skip
"""Element types of maps by their names in cases, one name each; those with padding as PTX has them."""

_TRAVEL_AS = {"f8e4m3": "u8", "f8e5m2": "u8", "s8": "u8", "s16": "u16"}


def _map_type(scope: Scope, where: str, spec: TensorMapSpec, tensor: Tensor) -> TensorMapType:
    name = spec.dtype or tensor.dtype.name
    found = MAP_TYPES.get(_TRAVEL_AS.get(name, name))
    if found is None:
        raise scope.error(f"{where}.dtype", f"{name} is no element type of tensor maps")
    if spec.dtype and found.element_bits != 8 * tensor.dtype.itemsize and tensor.dtype.name != "u8":
        raise scope.error(f"{where}.dtype", f"{name} is not as wide as {tensor.dtype.name}")
    return found
