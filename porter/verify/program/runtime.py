# SPDX-License-Identifier: Apache-2.0
"""Builds the stand-in for the CUDA runtime library with the host's C++ compiler, once per toolkit.

The structures and enumerations come from the toolkit's own headers, so the library fits programs built with
that toolkit. Every function that the headers declare and `cudart.cpp` does not answer gets a weak definition
that says its name and stops; error names come from the headers as well.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from porter.diagnostics import Code, PorterError

SOURCE = Path(__file__).with_name("cudart.cpp")

_FUNCTION = re.compile(r"\bCUDARTAPI\s+(\w+)\s*\(")
_PER_THREAD_DEFAULT_STREAM = re.compile(r"#define\s+(cuda\w+)\s+__CUDART_API_(PTSZ|PTDS)\(\1\)")
_ERROR_NAME = re.compile(r"^\s*(cudaError\w+|cudaSuccess)\s*=\s*(\d+)", re.MULTILINE)
_VERSION = re.compile(r"#define\s+CUDART_VERSION\s+(\d+)")


def build_runtime(include: Path, cache: Path, compiler: str | None = None) -> Path:
    """The stand-in for the toolkit whose headers are in `include`, built into `cache` unless it is there.

    `compiler` is the C++ compiler (default: `$CXX`, else `c++`, `g++` or `clang++` on PATH). Raises PorterError
    PT5904 if there is none, the headers are missing, or it fails.
    """
    compiler = compiler or _find_compiler()
    header = include / "cuda_runtime_api.h"
    try:
        declarations = header.read_text("utf-8", "replace")
        types = (include / "driver_types.h").read_text("utf-8", "replace")
    except OSError as error:
        raise PorterError(Code.RUNTIME_NOT_BUILT, reason=f"cannot read the CUDA headers: {error}") from error
    version = _VERSION.search(declarations)
    if version is None:
        raise PorterError(Code.RUNTIME_NOT_BUILT, reason=f"{header} states no CUDART_VERSION")
    soname = f"libcudart.so.{int(version[1]) // 1000}"

    generated = _generated_source(declarations, types)
    key = hashlib.sha256()
    for part in (SOURCE.read_text("utf-8"), generated, declarations, types, compiler, str(include)):
        key.update(part.encode() + b"\0")
    directory = cache / "cudart" / key.hexdigest()[:24]
    library = directory / soname
    if not library.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            built = _compile(compiler, include, generated, soname, declarations, Path(scratch))
            os.replace(built, library)
    return library


def _find_compiler() -> str:
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name):
            return name
    raise PorterError(Code.RUNTIME_NOT_BUILT, reason="no C++ compiler on PATH")


def _generated_source(declarations: str, types: str) -> str:
    """C text: weak definitions of all declared functions, and the table of error names."""
    functions = sorted({*_FUNCTION.findall(declarations), *_internal_functions()})
    lines = ["extern void porter_unanswered(const char *);"]
    lines += [
        f'__attribute__((weak)) void {name}(void) {{ porter_unanswered("{name}"); }}' for name in functions
    ]
    errors = [f'    {{{number}, "{name}"}},' for name, number in _ERROR_NAME.findall(types)]
    lines += [
        "struct porter_error_name { int code; const char *name; };",
        "const struct porter_error_name porter_error_names[] = {",
        *errors,
        "};",
        f"const int porter_error_count = {len(errors)};",
    ]
    return "\n".join(lines) + "\n"


def _internal_functions() -> list[str]:
    """Functions of nvcc's host code that `crt/host_runtime.h` declares and few programs call."""
    return [
        "__cudaRegisterManagedVar",
        "__cudaRegisterHostVar",
        "__cudaRegisterUnifiedTable",
        "__cudaRegisterTexture",
        "__cudaRegisterSurface",
    ]


def _compile(
    compiler: str, include: Path, generated: str, soname: str, declarations: str, scratch: Path
) -> Path:
    unanswered = scratch / "unanswered.c"
    unanswered.write_text(generated, "utf-8")
    # The program's references carry the version name of the real library.
    versions = scratch / "versions.map"
    versions.write_text(f"{soname} {{ global: cuda*; __cuda*; local: *; }};\n", "utf-8")
    built = scratch / soname
    aliases = [
        f"-Wl,--defsym={name}_{suffix.lower()}={name}"
        for name, suffix in _PER_THREAD_DEFAULT_STREAM.findall(declarations)
        if re.search(rf"\bCUDARTAPI\s+{name}\s*\(", declarations)
    ]
    flags = ["-O1", "-fPIC", f"-I{include}"]
    run = [compiler, *flags]
    _run([*run, "-x", "c", "-w", "-c", str(unanswered), "-o", str(scratch / "unanswered.o")])
    _run([*run, "-std=c++17", "-c", str(SOURCE), "-o", str(scratch / "cudart.o")])
    _run(
        [
            compiler,
            "-shared",
            f"-Wl,-soname,{soname}",
            f"-Wl,--version-script={versions}",
            *aliases,
            str(scratch / "cudart.o"),
            str(scratch / "unanswered.o"),
            "-o",
            str(built),
        ]
    )
    return built


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = f"{command[0]} failed with exit status {done.returncode}"
        raise PorterError(Code.RUNTIME_NOT_BUILT, detail=done.stderr, reason=reason)
