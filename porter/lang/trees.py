# SPDX-License-Identifier: Apache-2.0
"""Which files of a tree are sources, and which of the Python files hold CuTe DSL."""

from __future__ import annotations

import os
import re
from pathlib import Path

from porter.diagnostics import Code, Location, PorterError
from porter.lang.cute_dsl import JIT, DslFile, parse_dsl
from porter.lang.sources import CUDA_ENDINGS, PYTHON_ENDINGS, read_source

_TRITON = re.compile(rb"^[ \t]*(?:import|from)[ \t]+triton\b", re.MULTILINE)
_TRITON_KERNEL = re.compile(rb"^[ \t]*@(?:triton\.)?jit\b", re.MULTILINE)


def source_files(path: Path, python: bool = True) -> list[Path]:
    """The path itself, or every source below a directory, sorted; hidden directories are left out.

    Raises:
        PorterError: FILE_NOT_FOUND, NO_SOURCES.
    """
    if not path.exists():
        raise PorterError(Code.FILE_NOT_FOUND, path=path)
    if not path.is_dir():
        return [path]
    endings = CUDA_ENDINGS | PYTHON_ENDINGS if python else CUDA_ENDINGS
    found = [p for p in files_below(path) if p.suffix.lower() in endings]
    if not found:
        raise PorterError(Code.NO_SOURCES, path=path)
    return found


def files_below(path: Path) -> list[Path]:
    """All files below a directory but hidden ones, sorted."""
    found = []
    for folder, folders, names in os.walk(path):
        folders[:] = [f for f in folders if not f.startswith(".")]
        found += [Path(folder, name) for name in names if not name.startswith(".")]
    return sorted(p for p in found if p.is_file())


def python_kernels(path: Path) -> tuple[str, ...]:
    """Names of the CuTe DSL kernels (functions marked `@cute.kernel`) of a Python file.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT.
    """
    return tuple(k.name for k in _python(path).kernels)


def python_drivers(path: Path) -> tuple[str, ...]:
    """Names of the CuTe DSL host functions (marked `@cute.jit`) of a Python file: they may launch kernels of modules
    that the file imports.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TEXT.
    """
    return tuple(f.name for f in _python(path).decorated(JIT))


def _python(path: Path) -> DslFile:
    try:
        return parse_dsl(str(path), read_source(path))
    except PorterError as error:
        if error.diagnostic.code is not Code.DSL_UNREADABLE:
            raise
        raise PorterError(Code.NOT_TEXT, Location(str(path)), path=path) from None


def refuse_python(path: Path) -> PorterError:
    """Why a Python file without kernels is not read."""
    source = read_source(path)
    if _TRITON.search(source) and _TRITON_KERNEL.search(source) and b"gluon" not in source:
        return PorterError(Code.RECOMPILED_KERNEL, Location(str(path)), path=path)
    return PorterError(Code.NO_KERNEL, Location(str(path)), path=path)
