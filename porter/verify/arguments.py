# SPDX-License-Identifier: Apache-2.0
"""What a kernel is called with."""

from __future__ import annotations

from dataclasses import dataclass

from porter.verify.expr import Number


@dataclass(frozen=True)
class Pointer:
    """A kernel argument: the address of a tensor, `offset` bytes on."""

    tensor: str
    offset: int = 0


@dataclass(frozen=True)
class MapValue:
    """A kernel argument: a tensor map, 128 bytes by value."""

    tensor_map: str


@dataclass(frozen=True)
class MapAddress:
    """A kernel argument: the address of a tensor map in global memory."""

    tensor_map: str


@dataclass(frozen=True)
class Scalar:
    """A kernel argument: a number; `type` None means that the compiled parameter's type decides."""

    value: Number
    type: str | None = None


@dataclass(frozen=True)
class Struct:
    """A kernel argument: members with natural alignment, by value."""

    members: tuple[Argument, ...]


@dataclass(frozen=True)
class Raw:
    """A kernel argument: recorded bytes, with the addresses and tensor maps among them."""

    data: bytes
    contains: tuple[Inside, ...] = ()


Inside = tuple[int, Pointer | MapValue]
"""Something among recorded bytes, and its offset there."""


Argument = Pointer | MapValue | MapAddress | Scalar | Struct | Raw
