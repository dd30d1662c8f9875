# SPDX-License-Identifier: Apache-2.0
"""The library that is loaded into a program to record its launches, and NVIDIA's that it needs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from porter.build.cache import default_directory, digest
from porter.build.toolchain import Toolkit, find_host_compiler, find_toolkit
from porter.diagnostics import Code, PorterError

SOURCES = Path(__file__).parent / "inject"
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")


def build_library(toolkit: Toolkit | None = None, cache: Path | None = None) -> Path:
    """The library, built into the cache directory unless it is there.

    `toolkit` is by default the one that `find_toolkit` finds, `cache` the default cache directory.

    Raises:
        PorterError: CAPTURE_NOT_BUILT; NO_TOOLKIT, NO_HOST_COMPILER.
    """
    toolkit = toolkit or find_toolkit()
    compiler = str(find_host_compiler().path)
    header = toolkit.include_dir / "cuda.h"
    if not header.is_file():
        raise PorterError(Code.CAPTURE_NOT_BUILT, reason=f"there is no {header}")
    sources = sorted(p for p in SOURCES.iterdir() if p.suffix in (".cpp", ".hpp"))
    key = digest([*(p.read_bytes() for p in sources), header.read_bytes(), compiler, *_FLAGS])
    library = (cache or default_directory()) / "capture" / key / "libporter_capture.so"
    if not library.is_file():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
            built = Path(scratch) / library.name
            files = [str(SOURCES / "inject.cpp"), "-o", str(built), "-ldl"]
            command = [compiler, *_FLAGS, f"-I{toolkit.include_dir}", *files]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = f"{compiler} failed with exit status {done.returncode}"
                raise PorterError(Code.CAPTURE_NOT_BUILT, detail=done.stderr, reason=reason)
            os.replace(built, library)
    return library


def find_cupti(toolkit: Toolkit | None = None) -> Path:
    """NVIDIA's library: in `CUPTI_LIBRARY_DIR`, the toolkit, or the packages of this Python.

    Raises:
        PorterError: CAPTURE_NO_CUPTI.
    """
    for folder in _cupti_folders(toolkit):
        found = sorted(folder.glob("libcupti.so*"), key=lambda p: (len(p.name), p.name))
        if found:
            return found[0]
    raise PorterError(Code.CAPTURE_NO_CUPTI)


def _cupti_folders(toolkit: Toolkit | None) -> Iterator[Path]:
    if named := os.environ.get("CUPTI_LIBRARY_DIR"):
        yield Path(named)
    if toolkit is not None:
        yield from (toolkit.root / "extras" / "CUPTI" / "lib64", toolkit.lib_dir)
    for folder in sys.path:
        yield from sorted(Path(folder).glob("nvidia/cu[0-9]*/lib"), reverse=True)
        yield Path(folder) / "nvidia" / "cuda_cupti" / "lib"
