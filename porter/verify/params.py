# SPDX-License-Identifier: Apache-2.0
"""Kernel arguments as bytes, checked against the parameters that the compiled kernel declares."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np

from porter.diagnostics import Code, PorterError
from porter.ptx import ast
from porter.ptx.tensormap import ALIGNMENT, ENCODED_BYTES
from porter.verify.arguments import Argument, Inside, MapAddress, MapValue, Pointer, Raw, Scalar, Struct
from porter.verify.case import place
from porter.verify.dtypes import DTYPES
from porter.verify.problem import Problem

Address = Callable[[Pointer | MapAddress], int]
MapBytes = Callable[[MapValue], bytes]

_SIZES = {"s8": 1, "u8": 1, "bool": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4,
          "s64": 8, "u64": 8, "f64": 8}  # fmt: skip


def argument_bytes(
    problem: Problem, function: ast.Function | None, address: Address, map_bytes: MapBytes
) -> list[bytes]:
    """The value of each parameter, as many bytes as the kernel declares; without `function`, which a kernel has
    that is known as a binary only, as many as the argument has.

    `address` gives the device address of a tensor or tensor map, `map_bytes` the 128 bytes of a map.

    Raises:
        PorterError: CASE_PARAMETERS if number or sizes do not agree with the kernel.
    """
    wanted = problem.arguments
    if function is None:
        return [_packed(problem, f"params[{i}]", argument, address, map_bytes)[0] for i, argument in enumerate(wanted)]
    if len(wanted) != len(function.params):
        raise _error(problem, "params", f"{len(wanted)} arguments, but the kernel takes {len(function.params)}")
    return [
        _value(problem, f"params[{i}]", argument, param, address, map_bytes)
        for i, (argument, param) in enumerate(zip(wanted, function.params, strict=True))
    ]


def check_arguments(problem: Problem, function: ast.Function | None) -> None:
    """Raise what `argument_bytes` would raise, before anything is run."""
    argument_bytes(problem, function, lambda _: 0, lambda _: bytes(ENCODED_BYTES))


def _error(problem: Problem, where: str, what: str) -> PorterError:
    return PorterError(Code.CASE_PARAMETERS, place(problem.case, where), problem=what)


def _value(
    problem: Problem,
    where: str,
    argument: Argument,
    param: ast.Param,
    address: Address,
    map_bytes: MapBytes,
) -> bytes:
    if isinstance(argument, Scalar) and argument.type is None:
        try:
            return param_number_bytes(argument.value, param)
        except (ValueError, OverflowError) as failure:
            raise _error(problem, where, f"{where}: {failure}") from None
    data, _ = _packed(problem, where, argument, address, map_bytes)
    if len(data) != param.size:
        raise _error(
            problem,
            where,
            f"{where} is {len(data)} bytes ({_describe(argument)}), but the kernel's parameter {param.name} "
            f"has {param.size}",
        )
    return data


def param_number_bytes(value: int | float | bool, param: ast.Param) -> bytes:
    """A number as the parameter's type says: a float, or an integer that fits signed or unsigned.

    Raises:
        ValueError: the number is none of that type, or the parameter is no number.
    """
    if param.size > 8:
        raise ValueError(f"a parameter of {param.size} bytes is no number")
    kind = "f" if param.type.lstrip(".").startswith("f") else "x"
    return scalar_bytes(value, f"{kind}{param.size * 8}")


def _packed(
    problem: Problem, where: str, argument: Argument, address: Address, map_bytes: MapBytes
) -> tuple[bytes, int]:
    """An argument's bytes and alignment."""
    match argument:
        case Pointer() | MapAddress():
            return struct.pack("<Q", address(argument)), 8
        case MapValue():
            return map_bytes(argument), ALIGNMENT
        case Scalar(value=value, type=kind):
            if kind is None:
                raise _error(problem, where, f"{where}: a number inside a struct needs a type")
            try:
                return scalar_bytes(value, kind), _SIZES[kind]
            except (ValueError, OverflowError) as failure:
                raise _error(problem, where, f"{where}: {failure}") from None
        case Raw(data=recorded, contains=contains):
            return with_contents(recorded, contains, address, map_bytes), 1
        case Struct(members=members):
            data, widest = b"", 1
            for i, member in enumerate(members):
                piece, align = _packed(problem, f"{where}.struct[{i}]", member, address, map_bytes)
                data += bytes(-len(data) % align) + piece
                widest = max(widest, align)
            return data + bytes(-len(data) % widest), widest


def with_contents(data: bytes, contains: Sequence[Inside], address: Address, map_bytes: MapBytes) -> bytes:
    """Recorded bytes with the addresses and tensor maps of this run in their places."""
    result = bytearray(data)
    for at, what in contains:
        piece = struct.pack("<Q", address(what)) if isinstance(what, Pointer) else map_bytes(what)
        result[at : at + len(piece)] = piece
    return bytes(result)


def scalar_bytes(value: int | float | bool, kind: str) -> bytes:
    """A number in a parameter type: `s32`, `u64`, `f32`, `bf16`, ..., or `x32` for either signedness.

    Raises:
        ValueError: not an integer, or out of range.
    """
    if kind == "bool":
        return struct.pack("<?", bool(value))
    if kind in ("f16", "bf16", "f32", "f64"):
        return DTYPES[kind].encode(np.array([float(value)])).tobytes()
    bits = int(kind[1:])
    if float(value) != int(value):
        raise ValueError(f"{value} is no integer, but the parameter is one")
    low = 0 if kind[0] == "u" else -(1 << (bits - 1))
    high = (1 << (bits - 1)) - 1 if kind[0] == "s" else (1 << bits) - 1
    if bits > 64 or not low <= value <= high:
        raise ValueError(f"{value} does not fit in {bits} bits")
    return (int(value) & ((1 << bits) - 1)).to_bytes(bits // 8, "little")


def _describe(argument: Argument) -> str:
    match argument:
        case Pointer(tensor=name):
            return f"the address of {name}"
        case MapValue(tensor_map=name):
            return f"tensor map {name}"
        case MapAddress(tensor_map=name):
            return f"the address of tensor map {name}"
        case Scalar(value=value, type=kind):
            return f"{kind} {value}"
        case Struct():
            return "a struct"
        case Raw():
            return "recorded bytes"
