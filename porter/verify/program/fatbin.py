# SPDX-License-Identifier: Apache-2.0
"""The fat binary that nvcc's host code registers: which images it holds, and the text of its PTX.

Layout, little-endian, as nvcc 12 and 13 write it (read off the output of `fatbinary` for known inputs):

* head: magic 0xBA55ED50 (u32), version (u16), bytes of this head (u16), bytes that follow (u64);
* then images one after another, each an image head and its payload. Image head: kind (u16; 1 PTX, 2 cubin),
  version (u16), bytes of the image head (u32), bytes of payload with padding (u64), bytes of the compressed
  payload (u32), …, minor and major version of the PTX (u16 each, at 24), number of the architecture (u32, at
  28), …, flags (u64, at 40; 0x2000 LZ4, 0x8000 zstd), …, bytes once unpacked (u64, at 56).

The letter of the architecture (`a`, `f`) stands only in the PTX text.
"""

from __future__ import annotations

import contextlib
import functools
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from porter.build.packages import require_package

MAGIC = 0xBA55ED50
KIND_PTX = 1
KIND_CUBIN = 2

_HEAD = struct.Struct("<IHHQ")
_IMAGE = struct.Struct("<HHIQI4xHHI8xQ8xQ")
_TARGET = re.compile(rb"^\.target\s+(sm_\w+)", re.MULTILINE)
_LZ4, _ZSTD = 0x2000, 0x8000


class FatbinError(ValueError):
    """These bytes are no fat binary, or not of the form that is known."""


@dataclass(frozen=True)
class Image:
    """One image: `arch` is 90, 100, …; `payload` as it stands there, `compression` (0 none) how it was made
    smaller, `unpacked` how long it is without."""

    kind: int
    arch: int
    compression: int
    payload: bytes
    unpacked: int = 0

    @functools.cached_property
    def data(self) -> bytes:
        """The image itself.

        Raises:
            FatbinError: it cannot be unpacked.
            PorterError: PACKAGE_MISSING: nothing is installed that could.
        """
        if self.compression == _LZ4:
            lz4 = require_package("lz4.block", "binaries", "a compressed image")
            try:
                return bytes(lz4.decompress(self.payload, uncompressed_size=self.unpacked))
            except lz4.LZ4BlockError as error:
                raise self._damaged(error) from None
        if self.compression == _ZSTD:
            zstandard = require_package("zstandard", "binaries", "a compressed image")
            try:
                return bytes(zstandard.ZstdDecompressor().decompress(self.payload, max_output_size=self.unpacked))
            except zstandard.ZstdError as error:
                raise self._damaged(error) from None
        return self.payload

    def _damaged(self, error: Exception) -> FatbinError:
        return FatbinError(f"the image for sm_{self.arch} cannot be unpacked: {error}")

    @property
    def ptx(self) -> str:
        """The PTX text. Raises FatbinError if it cannot be unpacked or is no PTX."""
        if self.kind != KIND_PTX:
            raise FatbinError(f"the image for sm_{self.arch} is no PTX")
        return self.data.rstrip(b"\0").decode("utf-8", "replace")

    @property
    def target(self) -> str:
        """`sm_90a`: from the PTX text if that can be read, else without its letter."""
        if self.kind == KIND_PTX:
            with contextlib.suppress(FatbinError):
                stated = _TARGET.search(self.data)
                if stated:
                    return stated[1].decode()
        return f"sm_{self.arch}"


def packed(ptx: str) -> bytes:
    """A fat binary with one image, this PTX. Raises FatbinError if it states no target."""
    payload = ptx.encode("utf-8", "surrogateescape") + b"\0"
    stated = _TARGET.search(payload)
    if stated is None:
        raise FatbinError("PTX without a .target")
    number = int(re.sub(rb"\D", b"", stated[1]))
    image = _IMAGE.pack(KIND_PTX, 0x101, _IMAGE.size, len(payload), 0, 0, 0, number, 0, 0)
    return _HEAD.pack(MAGIC, 1, _HEAD.size, len(image) + len(payload)) + image + payload


def images(data: bytes) -> list[Image]:
    """All images of a fat binary. Raises FatbinError if `data` is none."""
    if len(data) < _HEAD.size:
        raise FatbinError(f"{len(data)} bytes are too short for a fat binary")
    magic, _, head, size = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise FatbinError(f"a fat binary begins with {MAGIC:#x}, not {magic:#x}")
    if head + size > len(data):
        raise FatbinError(f"a fat binary of {head + size} bytes ends after {len(data)}")
    return list(_images(data, head, head + size))


def _images(data: bytes, at: int, end: int) -> Iterator[Image]:
    while at + _IMAGE.size <= end:
        kind, _, head, size, packed, _, _, arch, flags, unpacked = _IMAGE.unpack_from(data, at)
        if head < _IMAGE.size or at + head + size > end:
            raise FatbinError(f"image at byte {at} runs past the end of the fat binary")
        compression = flags & (_LZ4 | _ZSTD)
        length = packed if compression else size
        yield Image(kind, arch, compression, data[at + head : at + head + length], unpacked)
        at += head + size
