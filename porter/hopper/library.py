# SPDX-License-Identifier: Apache-2.0
"""The device functions that lowered code calls, and what the host prepares for them."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

from porter.ptx.tmem import COLUMNS, LANES

LIBRARY_SOURCE = Path(__file__).parent / "device" / "library.cu"
"""CUDA C++; compiled for `sm_90a` as relocatable code (`-rdc=true -ptx`), its PTX is pasted into modules."""

HOST_VARIABLE = "porter_host"
"""The module variable that holds a `HostBlock`."""

TMEM_BYTES = LANES * COLUMNS * 4
CTA_BYTES = 128 + 16 * 64
QUEUE_BYTES = 256 * 256
"""Sizes per CTA of the three arrays: sizeof(Cta), kQueue * sizeof(Item) of device/state.cuh."""

SMS_BYTES = 512 * 16
"""Size of the array of SMs: kSms * sizeof(Sm)."""

MODES = {"eager": 0, "deferred": 1}
ARITHMETIC = {"exact": 0, "fast": 1}

_HOST = struct.Struct("<QQQQQQIIII")
_CTA = struct.Struct(f"<II16BQQII{CTA_BYTES - 48}x")


@dataclass(frozen=True)
class HostBlock:
    """`struct Host` of device/state.cuh: addresses of the arrays, and how to run."""

    tmem: int
    ctas: int
    queue: int
    sms: int
    report: int
    patience_ns: int
    capacity: int
    mode: str
    arithmetic: str

    def encode(self) -> bytes:
        return _HOST.pack(
            self.tmem, self.ctas, self.queue, self.sms, self.report, self.patience_ns, self.capacity,
            MODES[self.mode], ARITHMETIC[self.arithmetic], 0,
        )  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Bytes that a launch of `ctas` CTAs needs."""

    ctas: int

    @property
    def tmem(self) -> int:
        return self.ctas * TMEM_BYTES

    @property
    def states(self) -> int:
        return self.ctas * CTA_BYTES

    @property
    def queue(self) -> int:
        return self.ctas * QUEUE_BYTES

    @property
    def sms(self) -> int:
        return SMS_BYTES


@dataclass(frozen=True)
class CtaState:
    """What a CTA left: `allocated` units of 32 columns as a mask, operations issued and executed."""

    allocated: int
    issued: int
    executed: int


def read_states(data: bytes) -> list[CtaState]:
    """The `Cta` structures after a launch."""
    states = []
    for words in _CTA.iter_unpack(data):
        states.append(CtaState(allocated=words[0], issued=words[20], executed=words[21]))
    return states


def library_body(ptx: str) -> str:
    """The functions and variables of the compiled library, without the head of the module."""
    at = re.search(r"^\.address_size\s+\d+\s*$", ptx, re.MULTILINE)
    if at is None:
        raise ValueError("not a PTX module: no .address_size")
    body = ptx[at.end() :]
    # A library made with line information brings a file table that would clash with the module's own.
    return re.sub(r"^\s*\.(?:file|loc)\b.*$", "", body, flags=re.MULTILINE)


def paste(module: str, library: str) -> str:
    """The module with the library in front of its own functions."""
    at = re.search(r"^\.address_size\s+\d+\s*$", module, re.MULTILINE)
    if at is None:
        raise ValueError("not a PTX module: no .address_size")
    return module[: at.end()] + "\n" + library_body(library) + module[at.end() :]
