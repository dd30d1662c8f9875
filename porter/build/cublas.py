# SPDX-License-Identifier: Apache-2.0
"""Declarations of cuBLAS and cuBLASLt, and what programs that call them link against: neither has to be installed, for
their functions are answered where the program runs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from porter.build.driver import stub_library
from porter.build.run import failure, run
from porter.build.toolchain import HostCompiler, Toolkit
from porter.diagnostics import Code

HEADER = Path(__file__).parent / "headers" / "porter_cublas.h"
"""What stands in for `INCLUDES`."""
INCLUDES = ("cublas_v2.h", "cublas_api.h", "cublasLt.h")
LIBRARIES = ("cublas", "cublasLt")

UNANSWERED = "porter_unanswered"
"""The function that the CUDA runtime's stand-in has for calls that it does not know."""

_WORD = re.compile(r"\b\w+\b")
_WIDE = re.compile(r"\b(\w+)##suffix")
_FUNCTION = re.compile(r"\b(cublas\w+)\s*\(")


def declared() -> set[str]:
    """Every word of the header, with the functions of 64-bit sizes."""
    text = HEADER.read_text("utf-8")
    return {*_WORD.findall(text), *(f"{name}_64" for name in _WIDE.findall(text))}


def functions_of(text: str) -> set[str]:
    """Functions that a header of the library declares, or this one after preprocessing."""
    return set(_FUNCTION.findall(text))


def installed(include_dirs: Iterable[Path]) -> str:
    """The library's own headers in directories; empty if none has them."""
    found = [folder / name for folder in include_dirs for name in ("cublas_api.h", "cublasLt.h")]
    return "".join(path.read_text("utf-8", "replace") for path in found if path.is_file())


def soname(library: str, toolkit: Toolkit) -> str:
    """What programs know one of `LIBRARIES` as when they run."""
    return f"lib{library}.so.{toolkit.version[0]}"


def cublas_stubs(toolkit: Toolkit, host: HostCompiler, directory: Path, include_dirs: Iterable[Path]) -> Path:
    """The directory with libcublas.so and libcublasLt.so to link with, whose functions do nothing: those that
    this header declares, and those of the library's own in `include_dirs` or the toolkit.

    Raises:
        PorterError: LINK_ERROR.
    """
    done = run([host.path, "-E", "-P", "-x", "c++", "-I", toolkit.include_dir, HEADER], cwd=directory)
    if done.status != 0:
        raise failure(Code.LINK_ERROR, done.log, path="libcublas.so")
    names = functions_of(done.log) | functions_of(installed([*include_dirs, toolkit.include_dir])) | {UNANSWERED}
    for library in LIBRARIES:
        stub_library(sorted(names), soname(library, toolkit), directory / f"lib{library}.so", host)
    return directory
