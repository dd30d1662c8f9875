# SPDX-License-Identifier: Apache-2.0
"""Builds the stand-ins for the CUDA runtime, driver and cuBLAS with the host's C++ compiler, once per toolkit.

The structures and enumerations come from the toolkit's own headers, so the libraries fit programs built with
that toolkit. Every function that the headers declare and no source answers gets a weak definition that says its
name and stops; error names come from the headers as well.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from porter.build import cublas
from porter.build.cache import default_directory, digest
from porter.build.driver import SONAME, driver_functions
from porter.build.toolchain import Toolkit, find_host_compiler, find_toolkit
from porter.diagnostics import Code, PorterError

_HERE = Path(__file__).parent
SOURCES = tuple(_HERE / name for name in ("cudart.cpp", "cudart_memory.cpp", "cudart_device.cpp"))
DRIVER_SOURCE = _HERE / "libcuda.cpp"
_PRODUCTS = _HERE / "gemm.cpp"
_CUBLAS_SOURCES = {"cublasLt": _HERE / "cublas_lt.cpp", "cublas": _HERE / "cublas.cpp"}
CONNECTION = _HERE / "connection.hpp"

_FUNCTION = re.compile(r"\bCUDARTAPI\s+(\w+)\s*\(")
_PER_THREAD_DEFAULT_STREAM = re.compile(r"#define\s+(cuda\w+)\s+__CUDART_API_(PTSZ|PTDS)\(\1\)")
_VERSION = re.compile(r"_v\d+$")
_ERROR_NAME = re.compile(r"^\s*(cudaError\w+|cudaSuccess)\s*=\s*(\d+)", re.MULTILINE)


def build_runtime(toolkit: Toolkit | None = None, cache: Path | None = None) -> Path:
    """The stand-in for a toolkit's runtime, built into the cache directory unless it is there.

    `toolkit` is by default the one that `find_toolkit` finds, `cache` the default cache directory. Raises
    PorterError: PT5901 if the headers are missing or the compiler fails, and what the search raises.
    """
    toolkit = toolkit or find_toolkit()
    include = toolkit.include_dir
    compiler = str(find_host_compiler().path)
    try:
        declarations = (include / "cuda_runtime_api.h").read_text("utf-8", "replace")
        types = (include / "driver_types.h").read_text("utf-8", "replace")
        driver = (include / "cuda.h").read_text("utf-8", "replace")
    except OSError as error:
        raise PorterError(Code.RUNTIME_NOT_BUILT, reason=f"cannot read the CUDA headers: {error}") from error
    soname = f"libcudart.so.{toolkit.version[0]}"
    generated = _generated_source(declarations, types)
    driver_functions = _driver_source(driver)
    products = sorted(cublas.functions_of(cublas.installed([include])))
    ours = [p.read_bytes() for p in sorted([*_HERE.glob("*.cpp"), *_HERE.glob("*.hpp"), cublas.HEADER])]
    key = digest([*ours, generated, driver_functions, *products, declarations, types, driver, compiler, str(include)])
    directory = (cache or default_directory()) / "cudart" / key
    library = directory / soname
    if not library.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            place = Path(scratch)
            built = _compile(compiler, include, generated, soname, declarations, place)
            os.replace(_compile_driver(compiler, include, driver_functions, built, place), directory / SONAME)
            for made in _compile_cublas(compiler, toolkit, products, built, place):
                os.replace(made, directory / made.name)
            os.replace(built, library)
    return library


def preloaded(runtime: Path) -> str:
    """What the loader is to take in place of a program's libraries, beside a stand-in that `build_runtime` made."""
    others = [runtime.with_name(SONAME), *sorted(runtime.parent.glob("libcublas*"), reverse=True)]
    return ":".join(map(str, [runtime, *others]))


def _generated_source(declarations: str, types: str) -> str:
    """C text: weak definitions of all declared functions, and the table of error names."""
    functions = sorted({*_FUNCTION.findall(declarations), *_internal_functions()})
    lines = [_unanswered_source(functions)]
    errors = [f'    {{{number}, "{name}"}},' for name, number in _ERROR_NAME.findall(types)]
    lines += [
        "struct porter_error_name { int code; const char *name; };",
        "const struct porter_error_name porter_error_names[] = {",
        *errors,
        "};",
        f"const int porter_error_count = {len(errors)};",
    ]
    return "\n".join(lines) + "\n"


def _driver_source(declarations: str) -> str:
    """C text: weak definitions of all functions of the driver."""
    return _unanswered_source(driver_functions(declarations))


def _unanswered_source(functions: Sequence[str]) -> str:
    """C text: weak definitions of functions, which say their names without the version and stop."""
    lines = ["extern void porter_unanswered(const char *);"]
    for name in functions:
        called = _VERSION.sub("", name)
        lines.append(f'__attribute__((weak)) void {name}(void) {{ porter_unanswered("{called}"); }}')
    return "\n".join(lines) + "\n"


def _internal_functions() -> list[str]:
    """Functions of nvcc's host code that `crt/host_runtime.h` declares and few programs call."""
    return [
        "__cudaRegisterHostVar",
        "__cudaRegisterUnifiedTable",
        "__cudaRegisterTexture",
        "__cudaRegisterSurface",
    ]


def _compile(compiler: str, include: Path, generated: str, soname: str, declarations: str, scratch: Path) -> Path:
    unanswered = scratch / "unanswered.c"
    unanswered.write_text(generated, "utf-8")
    # The program's references carry the version name of the real library.
    versions = scratch / "versions.map"
    versions.write_text(f"{soname} {{ global: cuda*; __cuda*; porter_*; local: *; }};\n", "utf-8")
    built = scratch / soname
    aliases = [
        f"-Wl,--defsym={name}_{suffix.lower()}={name}"
        for name, suffix in _PER_THREAD_DEFAULT_STREAM.findall(declarations)
        if re.search(rf"\bCUDARTAPI\s+{name}\s*\(", declarations)
    ]
    flags = ["-O1", "-fPIC", f"-I{include}"]
    run = [compiler, *flags]
    _run([*run, "-x", "c", "-w", "-c", str(unanswered), "-o", str(scratch / "unanswered.o")])
    objects = [scratch / f"{source.stem}.o" for source in SOURCES]
    for source, made in zip(SOURCES, objects, strict=True):
        _run([*run, "-std=c++17", "-c", str(source), "-o", str(made)])
    _run(
        [
            compiler,
            "-shared",
            f"-Wl,-soname,{soname}",
            f"-Wl,--version-script={versions}",
            *aliases,
            *map(str, objects),
            str(scratch / "unanswered.o"),
            "-ldl",
            "-o",
            str(built),
        ]
    )
    return built


def _compile_driver(compiler: str, include: Path, generated: str, runtime: Path, scratch: Path) -> Path:
    unanswered = scratch / "driver.c"
    unanswered.write_text(generated, "utf-8")
    objects = [str(scratch / "driver.o"), str(scratch / "libcuda.o")]
    built = scratch / SONAME
    flags = ["-O1", "-fPIC", f"-I{include}"]
    _run([compiler, *flags, "-x", "c", "-w", "-c", str(unanswered), "-o", objects[0]])
    _run([compiler, *flags, "-std=c++17", "-c", str(DRIVER_SOURCE), "-o", objects[1]])
    link = [compiler, "-shared", f"-Wl,-soname,{SONAME}", *objects, str(runtime), "-o", str(built)]
    _run(link)
    return built


def _compile_cublas(
    compiler: str, toolkit: Toolkit, functions: Sequence[str], runtime: Path, scratch: Path
) -> list[Path]:
    """libcublasLt and libcublas, which asks the other for texts; both ask the runtime's stand-in for memory. Of the
    library's `functions` those that are not answered say so."""
    run = [compiler, "-O2", "-fPIC", f"-I{toolkit.include_dir}", f"-I{cublas.HEADER.parent}"]
    objects = {source: scratch / f"{source.stem}.o" for source in (_PRODUCTS, *_CUBLAS_SOURCES.values())}
    for source, made in objects.items():
        _run([*run, "-std=c++17", "-c", str(source), "-o", str(made)])
    built: list[Path] = []
    for library, source in _CUBLAS_SOURCES.items():
        soname = cublas.soname(library, toolkit)
        unanswered, others = scratch / f"{library}_others.c", scratch / f"{library}_others.o"
        mine = [name for name in functions if name.startswith("cublasLt") == (library == "cublasLt")]
        unanswered.write_text(_unanswered_source(mine), "utf-8")
        _run([*run, "-x", "c", "-w", "-c", str(unanswered), "-o", str(others)])
        # As with the runtime: a program that was linked with the real library names its version.
        versions = scratch / f"{library}.map"
        versions.write_text(f"{soname} {{ global: cublas*; local: *; }};\n", "utf-8")
        link = [compiler, "-shared", f"-Wl,-soname,{soname}", f"-Wl,--version-script={versions}"]
        parts = [objects[source], objects[_PRODUCTS], others, *built, runtime]
        _run([*link, *map(str, parts), "-o", str(scratch / soname)])
        built.append(scratch / soname)
    return built


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = f"{command[0]} failed with exit status {done.returncode}"
        raise PorterError(Code.RUNTIME_NOT_BUILT, detail=done.stderr, reason=reason)
