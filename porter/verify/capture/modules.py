# SPDX-License-Identifier: Apache-2.0
"""Finds the code of a kernel among the modules that a program loaded."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from porter.build.entry import entries
from porter.verify.program.fatbin import KIND_PTX, MAGIC, FatbinError, Image, images
from porter.verify.program.kernel_facts import runs_on

_ELF = b"\x7fELF"
_TARGET = re.compile(r"^\.target\s+(sm_\w+)", re.MULTILINE)


@dataclass(frozen=True)
class KernelCode:
    """A kernel's module: PTX text, or a cubin if there is none. `arch` like `sm_90a`."""

    arch: str
    ptx: str | None
    cubin: bytes | None = None


class Modules:
    """The modules of a program, in the order they were loaded: PTX texts, cubins and fat binaries."""

    def __init__(self, loaded: Iterable[bytes]) -> None:
        self._loaded = list(dict.fromkeys(loaded))

    def find(self, kernel: str, chip: int) -> KernelCode | None:
        """The newest PTX with this kernel that runs on `sm_<chip>`, else the cubin for that chip."""
        fitting = [ptx for ptx in self._texts if kernel in _entries(ptx) and runs_on(_arch(ptx), chip)]
        if fitting:
            best = max(fitting, key=lambda ptx: (len(_arch(ptx)), _arch(ptx)))
            return KernelCode(_arch(best), best)
        section = b".text." + kernel.encode() + b"\0"
        for cubin in self._cubins(chip):
            if section in cubin:
                # A cubin says no letter; code for this chip with its letter is the most that it can be.
                return KernelCode(f"sm_{chip}a" if chip >= 90 else f"sm_{chip}", None, cubin)
        return None

    @functools.cached_property
    def _images(self) -> list[Image]:
        found: list[Image] = []
        for data in self._loaded:
            if data[:4] == MAGIC.to_bytes(4, "little"):
                try:
                    found += images(data)
                except FatbinError:
                    continue
        return found

    @functools.cached_property
    def _texts(self) -> list[str]:
        found = [_text(data) for data in self._loaded if b".version" in data[:4096] and not data.startswith(_ELF)]
        for image in self._images:
            if image.kind == KIND_PTX:
                try:
                    found.append(image.ptx)
                except FatbinError:
                    continue
        return [ptx for ptx in dict.fromkeys(found) if _TARGET.search(ptx)]

    def _cubins(self, chip: int) -> Iterable[bytes]:
        yield from (data for data in self._loaded if data.startswith(_ELF))
        for image in self._images:
            if image.kind != KIND_PTX and image.arch == chip:
                try:
                    yield image.data
                except FatbinError:
                    continue


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode("utf-8", "replace")


@functools.lru_cache(maxsize=256)
def _entries(ptx: str) -> frozenset[str]:
    return frozenset(entries(ptx))


def _arch(ptx: str) -> str:
    found = _TARGET.search(ptx)
    return found[1] if found else ""
