# SPDX-License-Identifier: Apache-2.0
"""A GPU process without a GPU: what it does on a launch is its first argument."""

from __future__ import annotations

import struct
import sys
import time
from typing import Any

from porter.verify.gpu.child import serve
from porter.verify.gpu.driver import DriverError, Unavailable

BEHAVIOUR = sys.argv[1]


class FakeDriver:
    """Memory is a bytearray; a launch writes 7 over the tensor named by the first parameter."""

    def __init__(self) -> None:
        if BEHAVIOUR == "unavailable":
            raise Unavailable("there is no NVIDIA GPU")
        if BEHAVIOUR == "noise":
            sys.stdout.write("not a frame at all, and long enough to hold two lengths")
            sys.stdout.flush()
            sys.exit(0)
        self.memory = bytearray(1 << 21)
        self.used = 256
        self.text = b"\0" * 64

    def info(self) -> dict[str, Any]:
        capability = [10, 0] if BEHAVIOUR == "blackwell" else [9, 0]
        return {"name": "Fake", "capability": capability, "driver": 13000, "multiprocessors": 1, "memory": 1 << 21,
                "report": 64}  # fmt: skip

    def allocate(self, size: int) -> int:
        if self.used + size > len(self.memory):
            raise DriverError("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory", False)
        address, self.used = self.used, self.used + (size + 255) // 256 * 256
        return address

    def release_all(self) -> None:
        self.used = 256

    def write(self, address: int, data: bytes) -> None:
        self.memory[address : address + len(data)] = data

    def read(self, address: int, size: int) -> bytes:
        return bytes(self.memory[address : address + size])

    def fill(self, address: int, value: int, size: int) -> None:
        self.memory[address : address + size] = bytes([value]) * size

    def load(self, image: bytes) -> bytes:
        return image

    def unload(self, module: bytes) -> None:
        pass

    def variable(self, module: bytes, name: str) -> tuple[int, int]:
        return 0, 56

    def tensor_map(self, spec: dict[str, Any]) -> bytes:
        return spec["address"].to_bytes(8, "little") + bytes(120)

    def clear_report(self) -> None:
        self.text = b"\0" * 64

    def report(self) -> bytes:
        return self.text

    def launch(self, module: bytes, entry: str, *launch: Any) -> float:
        if BEHAVIOUR == "hang":
            time.sleep(600)
        if BEHAVIOUR == "die":
            print("segmentation fault, so to speak", file=sys.stderr, flush=True)
            sys.exit(41)
        if BEHAVIOUR == "fault":
            raise DriverError("cuCtxSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal address", True)
        if BEHAVIOUR == "refuse":
            raise DriverError("cuLaunchKernelEx", "CUDA_ERROR_INVALID_VALUE", "invalid argument", False)
        if BEHAVIOUR == "trap":
            self.text = struct.pack("<10I", 6, 0, 1, 2, 0, 37, 96, 32, 1, 0)
            raise DriverError("cuCtxSynchronize", "CUDA_ERROR_ILLEGAL_INSTRUCTION", "", True)
        address = int.from_bytes(launch[-1][0], "little")
        if BEHAVIOUR == "stray":
            address -= 16
        self.memory[address : address + 16] = bytes([7]) * 16
        if BEHAVIOUR == "leak":
            self.memory[self.leak_at()] = 0b1111
        return 1.25

    def leak_at(self) -> int:
        """The first CTA's state: the second array of the host block, which was written to address 0."""
        return int.from_bytes(self.memory[8:16], "little")


if __name__ == "__main__":
    sys.exit(serve(sys.stdin.buffer, sys.stdout.buffer, FakeDriver))  # type: ignore[arg-type]
