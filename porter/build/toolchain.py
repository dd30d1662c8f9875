# SPDX-License-Identifier: Apache-2.0
"""Where the CUDA compiler, the assembler and the host compiler are."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from porter.diagnostics import Code, PorterError

MINIMUM_VERSION = (12, 8)
"""First toolkit whose compiler knows sm_100a (CUDA 12.8 release notes)."""

_HOST_COMPILERS = ("g++", "clang++", "c++")


@dataclass(frozen=True)
class Toolkit:
    """One CUDA toolkit. `origin` says how it was found: `--toolkit`, `CUDA_HOME`, `CUDA_PATH`, `PATH` or
    `PyPI`."""

    root: Path
    nvcc: Path
    ptxas: Path
    include_dir: Path
    lib_dir: Path
    version: tuple[int, int]
    build: str
    origin: str
    cuobjdump: Path | None = None
    nvdisasm: Path | None = None
    tmem_check: bool = False
    """Whether ptxas adds checks of Tensor Memory accesses to modules that have any."""

    @property
    def name(self) -> str:
        return f"CUDA {self.version[0]}.{self.version[1]} from {self.origin} ({self.root})"

    def runtime_library(self) -> Path:
        """The shared CUDA runtime.

        Raises:
            PorterError: TOOL_MISSING if the toolkit has none.
        """
        found = sorted(self.lib_dir.glob("libcudart.so*"), key=lambda p: (len(p.name), p.name))
        if not found:
            raise PorterError(Code.TOOL_MISSING, tool="libcudart.so", place=str(self.lib_dir))
        return found[0]


@dataclass(frozen=True)
class Attempt:
    """One place that was looked at: a toolkit, or the reason why it was passed over."""

    origin: str
    place: str
    toolkit: Toolkit | None
    reason: str = ""


def search_toolkits(explicit: Path | None = None) -> Iterator[Attempt]:
    """Every place where a toolkit may be, in order of preference, looked at one by one.

    With `explicit` nothing else is tried.
    """
    if explicit is not None:
        yield _attempt("--toolkit", explicit)
        return
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            yield _attempt(variable, Path(value))
    on_path = shutil.which("nvcc")
    if on_path:
        yield _attempt("PATH", Path(on_path))
    else:
        yield Attempt("PATH", "", None, "no nvcc")
    packages = list(_pypi_roots())
    for root in packages:
        yield _attempt("PyPI", root)
    if not packages:
        yield Attempt("PyPI", "", None, "no CUDA compiler package is installed")


def find_toolkit(explicit: Path | None = None) -> Toolkit:
    """The first usable toolkit of `search_toolkits`.

    Raises:
        PorterError: BAD_TOOLKIT if `explicit` is no usable toolkit, NO_TOOLKIT if there is none anywhere.
    """
    tried: list[str] = []
    for attempt in search_toolkits(explicit):
        if attempt.toolkit is not None:
            return attempt.toolkit
        if explicit is not None:
            raise PorterError(Code.BAD_TOOLKIT, path=str(explicit), reason=attempt.reason)
        tried.append(f"{attempt.origin}: {attempt.reason}{f' ({attempt.place})' if attempt.place else ''}")
    raise PorterError(Code.NO_TOOLKIT, detail="\n".join(tried))


def _pypi_roots() -> Iterator[Path]:
    """Directories of the `nvidia-cuda-nvcc` package family, newest major version first."""
    spec = importlib.util.find_spec("nvidia")
    if spec is None or spec.submodule_search_locations is None:
        return
    found: list[tuple[int, Path]] = []
    for place in spec.submodule_search_locations:
        for root in Path(place).glob("cu[0-9]*"):
            major = re.fullmatch(r"cu(\d+)", root.name)
            if major and (root / "bin" / "nvcc").is_file():
                found.append((int(major.group(1)), root))
    yield from (root for _, root in sorted(found, reverse=True))


def _attempt(origin: str, place: Path) -> Attempt:
    """Look at a toolkit root, its `bin` directory, or an `nvcc`."""
    nvcc = place
    if place.is_dir():
        nvcc = next((p for p in (place / "bin" / "nvcc", place / "nvcc") if p.is_file()), place / "bin" / "nvcc")
    if not nvcc.is_file():
        return Attempt(origin, str(place), None, "no nvcc" if place.exists() else "no such directory")
    try:
        version = _version(nvcc, nvcc.stat().st_mtime_ns)
    except (OSError, subprocess.SubprocessError) as error:
        return Attempt(origin, str(nvcc), None, f"nvcc does not run: {error}")
    if version is None:
        return Attempt(origin, str(nvcc), None, "nvcc does not tell its version")
    number, build, root = version
    if number < MINIMUM_VERSION:
        wanted = ".".join(map(str, MINIMUM_VERSION))
        return Attempt(origin, str(nvcc), None, f"CUDA {number[0]}.{number[1]} is older than {wanted}")
    # A PATH entry may be a script in another directory; the tools are where the compiler itself says.
    binaries = root / "bin" if (root / "bin" / "nvcc").is_file() else nvcc.parent
    ptxas = binaries / "ptxas"
    if not ptxas.is_file():
        return Attempt(origin, str(nvcc), None, f"no ptxas in {binaries}")
    include = _first_with(root, ("include", "targets/x86_64-linux/include"), "cuda_runtime.h")
    if include is None:
        return Attempt(origin, str(nvcc), None, f"no cuda_runtime.h under {root}")
    lib = _first_with(root, ("lib64", "lib", "targets/x86_64-linux/lib"), "libcudart*") or root / "lib"
    return Attempt(
        origin,
        str(root),
        Toolkit(
            root=root,
            nvcc=binaries / "nvcc",
            ptxas=ptxas,
            include_dir=include,
            lib_dir=lib,
            version=number,
            build=build,
            origin=origin,
            cuobjdump=_optional(binaries / "cuobjdump"),
            nvdisasm=_optional(binaries / "nvdisasm"),
        ),
    )


def _optional(path: Path) -> Path | None:
    return path if path.is_file() else None


def _first_with(root: Path, places: tuple[str, ...], pattern: str) -> Path | None:
    return next((root / p for p in places if any((root / p).glob(pattern))), None)


@functools.cache
def _version(nvcc: Path, modified: int) -> tuple[tuple[int, int], str, Path] | None:
    """(version, build string, toolkit root) of an nvcc; None if it prints neither."""
    told = subprocess.run([nvcc, "--version"], capture_output=True, text=True, timeout=60)
    release = re.search(r"release (\d+)\.(\d+), (V[\d.]+)", told.stdout)
    if release is None:
        return None
    dry = subprocess.run([nvcc, "--dryrun", "-E", "-x", "cu", os.devnull], capture_output=True, text=True, timeout=60)
    top = re.search(r"^#\$ TOP=(.*)$", dry.stderr, re.MULTILINE)
    root = Path(os.path.normpath(top.group(1).strip())) if top else nvcc.resolve().parent.parent
    return (int(release.group(1)), int(release.group(2))), release.group(3), root


@dataclass(frozen=True)
class HostCompiler:
    path: Path
    version: str


def find_host_compiler() -> HostCompiler:
    """The C++ compiler that nvcc is to use: `NVCC_CCBIN`, `CXX`, then g++, clang++, c++ on PATH.

    Raises:
        PorterError: NO_HOST_COMPILER.
    """
    for name in (os.environ.get("NVCC_CCBIN"), os.environ.get("CXX"), *_HOST_COMPILERS):
        path = shutil.which(name) if name else None
        if path:
            return HostCompiler(Path(path), _host_version(path))
    raise PorterError(Code.NO_HOST_COMPILER)


@functools.cache
def _host_version(path: str) -> str:
    told = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
    return told.stdout.splitlines()[0] if told.stdout else ""
