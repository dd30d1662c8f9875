# SPDX-License-Identifier: Apache-2.0
"""What programs link against in place of the driver library, which comes with a GPU and not with a toolkit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from porter.build.run import failure, run
from porter.build.toolchain import HostCompiler, Toolkit
from porter.diagnostics import Code

SONAME = "libcuda.so.1"
"""What programs know the driver library as when they run."""

_FUNCTION = re.compile(r"^CUresult\s+CUDAAPI\s+(\w+)\s*\(", re.MULTILINE)
_ALIAS = re.compile(r"^\s*#define\s+(cu[A-Z]\w*)\s+(?:__CUDA_API_\w+\()?(cu[A-Z]\w*)\)?\s*$", re.MULTILINE)


def driver_functions(declarations: str) -> list[str]:
    """Every function of the driver, under the names that `declarations`, the text of cuda.h, gives it and those
    that it defines for it (`cuMemAlloc` and `cuMemAlloc_v2`)."""
    return sorted({*_FUNCTION.findall(declarations), *(n for pair in _ALIAS.findall(declarations) for n in pair)})


def driver_stub(toolkit: Toolkit, host: HostCompiler, directory: Path) -> Path:
    """The directory of a libcuda.so to link with: the toolkit's, else one made in `directory`, whose functions
    do nothing.

    Raises:
        PorterError: LINK_ERROR.
    """
    theirs = toolkit.lib_dir / "stubs"
    if (theirs / "libcuda.so").is_file():
        return theirs
    names = driver_functions((toolkit.include_dir / "cuda.h").read_text("utf-8", "replace"))
    stub_library(names, SONAME, directory / "libcuda.so", host)
    return directory


def stub_library(names: Iterable[str], soname: str, made: Path, host: HostCompiler) -> None:
    """A shared library to link with, whose functions do nothing.

    Raises:
        PorterError: LINK_ERROR.
    """
    source = made.with_suffix(".c")
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names), "utf-8")
    command: list[str | Path] = [host.path, "-shared", "-fPIC", "-x", "c", source, f"-Wl,-soname,{soname}", "-o", made]
    done = run(command, cwd=made.parent)
    if done.status != 0:
        raise failure(Code.LINK_ERROR, done.log, path=made.name)
