# SPDX-License-Identifier: Apache-2.0
"""The frames between a program under the stand-in runtime (`connection.hpp`) and the simulator.

A request is two little-endian 32-bit words, the length of its body and an `Op`, then the body; a reply is the
length of its body and a `cudaError_t`, then the body. Bodies are words and bytes without padding.
"""

from __future__ import annotations

import socket
import struct
from enum import IntEnum


class Op(IntEnum):
    """What the program asks for; the numbers stand in `connection.hpp` too (a test compares them)."""

    DEVICE = 1
    REGISTER_BINARY = 2
    REGISTER_FUNCTION = 3
    REGISTER_VARIABLE = 4
    FUNCTION = 5
    SET_ATTRIBUTE = 6
    ALLOCATE = 7
    RELEASE = 8
    CHECK_RANGE = 9
    LAUNCH = 10
    TENSOR_MAP = 11
    SYMBOL = 12
    MEMORY_INFO = 13
    UNANSWERED = 14
    FUNCTION_NAME = 15
    ALIAS = 16
    OCCUPANCY = 17


MAX_DYNAMIC_SHARED = 8
"""cudaFuncAttributeMaxDynamicSharedMemorySize (CUDA runtime API, driver_types.h), of `Op.SET_ATTRIBUTE`."""


class Status(IntEnum):
    """The `cudaError_t` values that the simulator answers with (CUDA runtime API, driver_types.h)."""

    SUCCESS = 0
    INVALID_VALUE = 1
    MEMORY_ALLOCATION = 2
    INVALID_CONFIGURATION = 9
    INVALID_SYMBOL = 13
    INVALID_DEVICE_FUNCTION = 98
    NO_KERNEL_IMAGE = 209
    INVALID_PTX = 218
    LAUNCH_OUT_OF_RESOURCES = 701
    LAUNCH_FAILURE = 719
    INVALID_CLUSTER_SIZE = 912


class Reader:
    """Takes values off the front of a request's body. Raises ValueError if it is too short."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def take(self, count: int) -> bytes:
        taken = self._body[self._at : self._at + count]
        if len(taken) != count:
            raise ValueError(f"request ends after {len(self._body)} bytes")
        self._at += count
        return taken

    def rest(self) -> bytes:
        return self.take(len(self._body) - self._at)

    def text(self) -> str:
        return self.rest().decode("utf-8", "replace")

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def i32(self) -> int:
        return int.from_bytes(self.take(4), "little", signed=True)

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def dim(self) -> tuple[int, int, int]:
        return self.u32(), self.u32(), self.u32()


def words(*values: int) -> bytes:
    """A reply's body of 64-bit words."""
    return struct.pack(f"<{len(values)}Q", *values)


def receive(connection: socket.socket) -> tuple[Op, Reader] | None:
    """The next request, or None when the program has ended. Raises TimeoutError as the socket is set."""
    head = _receive_all(connection, 8)
    if head is None:
        return None
    length, op = struct.unpack("<II", head)
    body = _receive_all(connection, length)
    return None if body is None else (Op(op), Reader(body))


def reply(connection: socket.socket, status: Status, body: bytes = b"") -> None:
    connection.sendall(struct.pack("<II", len(body), status) + body)


def ask(connection: socket.socket, op: Op, body: bytes = b"") -> tuple[Status, bytes] | None:
    """The other end's reply to a request, or None when that has ended."""
    connection.sendall(struct.pack("<II", len(body), op) + body)
    head = _receive_all(connection, 8)
    if head is None:
        return None
    length, status = struct.unpack("<II", head)
    answer = _receive_all(connection, length)
    return None if answer is None else (Status(status), answer)


def _receive_all(connection: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        try:
            part = connection.recv(count - len(parts))
        except ConnectionResetError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)
