# SPDX-License-Identifier: Apache-2.0
"""Whole CUDA programs: an executable with plain PTX in it and the CUDA runtime in a shared library."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.build import cublas
from porter.build.cache import Cache, digest
from porter.build.driver import driver_stub
from porter.build.host_headers import generator_digest, host_headers
from porter.build.nvcc import common_flags, compilers, dependencies, shadowing
from porter.build.run import failure, instructions_of_another_chip, run
from porter.build.toolchain import HostCompiler, Toolkit, find_host_compiler, find_toolkit
from porter.diagnostics import Code, Location, PorterError


@dataclass(frozen=True)
class Program:
    """`executable` names its CUDA runtime by soname only (`libcudart.so.N`, no run path), so that the
    loader's search path decides which library answers. `runtime` is the toolkit's own. `stood_in` are the headers of
    host libraries that are not installed."""

    executable: Path
    arch: str
    log: str
    runtime: Path
    stood_in: tuple[str, ...] = ()


def build_program(
    source: Path | Sequence[Path],
    arch: str,
    out: Path,
    include_dirs: Sequence[Path] = (),
    *,
    defines: Sequence[str] = (),
    flags: Sequence[str] = (),
    libraries: Sequence[str] = (),
    std: str = "c++17",
    lineinfo: bool = True,
    toolkit: Toolkit | None = None,
    cache: Cache | None = None,
) -> Program:
    """Compile and link a program for `arch` (`sm_90a`, `sm_100a`) as PTX only, uncompressed in the binary.

    `libraries` are linker names as after `-l`. The driver library `cuda` and cuBLAS need not be there; where cuBLAS's
    headers are stood in for, its libraries need not be named either.

    Raises:
        PorterError: FILE_NOT_FOUND; NO_TOOLKIT, NO_HOST_COMPILER, TOOL_MISSING; NVCC_ERROR, OTHER_CHIP; LINK_ERROR.
    """
    sources = [source] if isinstance(source, Path) else list(source)
    for path in sources:
        if not path.is_file():
            raise PorterError(Code.FILE_NOT_FOUND, path=str(path))
    toolkit = toolkit or find_toolkit()
    cache = cache or Cache.default()
    host = find_host_compiler()
    runtime = toolkit.runtime_library()
    target = arch.replace("sm_", "compute_", 1)
    options = common_flags(std, include_dirs, defines, flags, lineinfo)
    options = ["-gencode", f"arch={target},code={target}", "-no-compress", *options]
    identity = ["program 3", generator_digest(), *compilers(toolkit, host)]
    with tempfile.TemporaryDirectory(prefix="porter-") as name:
        directory = Path(name)
        objects: list[Path] = []
        logs: list[str] = []
        keys: list[str] = []
        stood_in: list[str] = []
        for number, path in enumerate(sources):
            made = directory / f"{number}_{path.stem}.o"
            key, log, absent = _object(path, made, include_dirs, options, identity, toolkit, host, cache, arch)
            objects.append(made)
            logs.append(log)
            keys.append(key)
            stood_in += absent
        if not set(stood_in).isdisjoint(cublas.INCLUDES):
            libraries = [*libraries, *(library for library in cublas.LIBRARIES if library not in libraries)]
        key = digest([*identity, "link", *keys, *(f"-l{library}" for library in libraries), str(runtime)])
        built = directory / "program"
        if (hit := cache.get(key)) is not None:
            built.write_bytes(hit)
            built.chmod(0o755)
        else:
            logs.append(_link(objects, built, libraries, include_dirs, toolkit, host, str(out)))
            cache.put_file(key, built)
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(built, out)
    return Program(out, arch, "\n".join(log for log in logs if log), runtime, tuple(dict.fromkeys(stood_in)))


def _link(
    objects: list[Path],
    built: Path,
    libraries: Sequence[str],
    include_dirs: Sequence[Path],
    toolkit: Toolkit,
    host: HostCompiler,
    path: str,
) -> str:
    """Link the objects to `built`, which is called `path`. Returns nvcc's log."""
    link: list[str | Path] = [f"-l{library}" for library in libraries]
    if "cuda" in libraries:
        link += ["-L", driver_stub(toolkit, host, built.parent)]
    if not set(cublas.LIBRARIES).isdisjoint(libraries):
        link += ["-L", cublas.cublas_stubs(toolkit, host, built.parent, include_dirs)]
    # PyPI has the library under its soname only, which -lcudart does not find.
    link += ["-L", toolkit.lib_dir, "-Xlinker", "--no-as-needed", "-Xlinker", f"-l:{toolkit.runtime_library().name}"]
    command: list[str | Path] = [toolkit.nvcc, "-ccbin", host.path, "-cudart", "none", "-o", built]
    done = run([*command, *objects, *link], cwd=built.parent)
    if done.status != 0:
        raise failure(Code.LINK_ERROR, done.log, path=path)
    return done.log


def _object(
    source: Path,
    made: Path,
    include_dirs: Sequence[Path],
    options: list[str],
    identity: list[str],
    toolkit: Toolkit,
    host: HostCompiler,
    cache: Cache,
    arch: str,
) -> tuple[str, str, tuple[str, ...]]:
    """Compile one source into `made`, through the cache. Returns the object's key, nvcc's log and the headers that
    were stood in for."""
    absolute = source.absolute()
    command = digest([*identity, "object", str(absolute), *options])
    key = cache.lookup(command)
    if key is not None and (hit := cache.get(key)) is not None:
        made.write_bytes(hit)
        log = (cache.get(digest([key, "log"])) or b"").decode("utf-8", "replace")
        return key, log, tuple((cache.get(digest([key, "stood in"])) or b"").decode().split())
    absent = host_headers(source, include_dirs)
    options = [*options, *absent.flags]
    rule = made.with_suffix(".d")
    absent.write(made.parent)
    done = run(
        [toolkit.nvcc, *options, "-ccbin", host.path, "-MD", "-MF", rule, "-c", "-o", made, absolute],
        cwd=made.parent,
    )
    log = done.log.replace(str(absolute), str(source))
    if done.status != 0:
        if names := instructions_of_another_chip(log):
            of = {"path": str(source), "arch": arch, "text": ", ".join(names)}
            raise PorterError(Code.OTHER_CHIP, Location(str(source)), **of)
        raise failure(Code.NVCC_ERROR, log, path=str(source), arch=arch)
    files = dependencies(rule.read_text(encoding="utf-8", errors="surrogateescape"))
    stood_in = absent.used(files)
    files = [f for f in files if absent.FOLDER not in f.parts]
    searched = [absolute.parent, *(d.absolute() for d in include_dirs), toolkit.include_dir]
    key = cache.remember(command, files, absent=shadowing(files, searched, stood_in))
    cache.put_file(key, made)
    cache.put(digest([key, "log"]), log.encode("utf-8", "replace"))
    cache.put(digest([key, "stood in"]), "\n".join(stood_in).encode())
    return key, log, stood_in
