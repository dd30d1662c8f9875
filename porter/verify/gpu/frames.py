# SPDX-License-Identifier: Apache-2.0
"""The frames between Porter and the process that talks to the GPU.

A frame is two little-endian 32-bit lengths, a JSON object of the first, and raw bytes of the second.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import IO, Any, Protocol

_LENGTHS = struct.Struct("<II")


class FrameError(Exception):
    """The stream ended, or holds no frame."""


def write_frame(stream: IO[bytes], head: Mapping[str, Any], payload: bytes | memoryview = b"") -> None:
    text = json.dumps(head).encode()
    stream.write(_LENGTHS.pack(len(text), len(payload)))
    stream.write(text)
    stream.write(payload)
    stream.flush()


class Source(Protocol):
    """Where frames come from: at most `count` bytes at a time, none at the end."""

    def read(self, count: int, /) -> bytes: ...


def read_frame(stream: Source) -> tuple[dict[str, Any], bytes]:
    """Raises FrameError at the end of the stream or for anything that is no frame."""
    head_length, payload_length = _LENGTHS.unpack(_exactly(stream, _LENGTHS.size))
    try:
        head = json.loads(_exactly(stream, head_length))
    except ValueError:
        raise FrameError("not a frame") from None
    if not isinstance(head, dict):
        raise FrameError("not a frame")
    return head, _exactly(stream, payload_length)


def _exactly(stream: Source, count: int) -> bytes:
    parts = []
    while count:
        part = stream.read(count)
        if not part:
            raise FrameError("the stream ended")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
