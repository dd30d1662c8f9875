# SPDX-License-Identifier: Apache-2.0
"""PTX in files of all kinds: text, fat binaries, and objects, libraries and executables that hold some."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from porter.build.entry import entries
from porter.diagnostics import Code, PorterError
from porter.diagnostics.reading import read_file
from porter.ptx import ast
from porter.verify.bare import pick_entry
from porter.verify.builder import parse_ptx
from porter.verify.program.fatbin import KIND_PTX, MAGIC, FatbinError, images
from porter.verify.program.kernel_facts import runs_on

_LARGEST = 1 << 30
"""Bytes of a library with kernels for many chips."""

_TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)", re.MULTILINE)


@dataclass(frozen=True)
class PtxKernel:
    """A kernel of a PTX module, with the module's text."""

    text: str
    module: ast.Module
    function: ast.Function


def ptx_texts(path: Path) -> list[str]:
    """All PTX modules in a file, in their order.

    Raises:
        PorterError: FILE_NOT_FOUND, UNREADABLE_SOURCE; NO_PTX_IN_FILE.
    """
    data = read_file(path, _LARGEST)
    if b"\0" not in data.rstrip(b"\0"):
        return [data.rstrip(b"\0").decode("utf-8", "replace")]
    found: list[str] = []
    magic = MAGIC.to_bytes(4, "little")
    at = data.find(magic)
    while at >= 0:
        step = len(magic)
        try:
            for image in images(data[at:]):
                if image.kind == KIND_PTX:
                    found.append(image.ptx)
        except FatbinError:
            pass  # Bytes that only look like one, or an image that cannot be unpacked.
        at = data.find(magic, at + step)
    if not found:
        held = (
            "binaries for GPUs only"
            if magic in data or data.startswith(b"\x7fELF")
            else "neither text nor a fat binary"
        )
        raise PorterError(Code.NO_PTX_IN_FILE, path=path, reason=held)
    return list(dict.fromkeys(found))


def read_kernel(path: Path, name: str | None, arch: str | None = None) -> PtxKernel:
    """The kernel called `name` (mangled, or a part that only one kernel has; None: the only one) in a file. Of modules
    for several chips that hold it, the newest, with `arch` the newest that this chip takes.

    Raises:
        PorterError: what `ptx_texts` raises; NO_PTX_IN_FILE, ENTRY_NOT_FOUND, ENTRY_AMBIGUOUS, PTX_UNREADABLE.
    """
    texts = ptx_texts(path)
    if arch is not None:
        chip = int(re.sub(r"\D", "", arch) or 0)
        there = ", ".join(_target(text) for text in texts)
        texts = [text for text in texts if runs_on(_target(text), chip)]
        if not texts:
            raise PorterError(Code.NO_PTX_IN_FILE, path=path, reason=f"PTX for {there}, which {arch} cannot run")
    if len(texts) == 1:
        module = parse_ptx(texts[0], str(path))
        return PtxKernel(texts[0], module, pick_entry(module, name, str(path)))
    names = sorted({entry for text in texts for entry in entries(text)})
    fitting = [n for n in names if n == name] or [n for n in names if name is None or name in n]
    if len(fitting) != 1:
        code = Code.ENTRY_AMBIGUOUS if fitting else Code.ENTRY_NOT_FOUND
        raise PorterError(code, path=str(path), entry=name or "no name", detail="\n".join(fitting or names))
    holding = [text for text in texts if fitting[0] in entries(text)]
    text = max(holding, key=lambda t: (len(_target(t)), _target(t)))
    module = parse_ptx(text, str(path))
    return PtxKernel(text, module, pick_entry(module, fitting[0], str(path)))


def _target(text: str) -> str:
    found = _TARGET.search(text)
    return found[1] if found else ""
