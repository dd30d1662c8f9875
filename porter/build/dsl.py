# SPDX-License-Identifier: Apache-2.0
"""Compiling CuTe DSL kernels to PTX, with the launches that their own host code makes. Needs no GPU."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from porter.build.cache import Cache, digest, file_digest
from porter.build.run import run
from porter.build.toolchain import find_host_compiler
from porter.diagnostics import Code, Location, PorterError

PACKAGE = "nvidia-cutlass-dsl"
_VERSION = "dsl 4"


@dataclass(frozen=True)
class DslRequest:
    """How a kernel is constructed and called.

    `entry` is a class, a function or a dotted path to one. `init` are the constructor's keyword arguments,
    `call` the arguments of the call, as JSON: `{"kind": "tensor", "dtype", "shape", "strides", "align",
    "address", "dynamic"}` (elements; a made-up device address; whether shape and strides are known at run time
    only), `{"kind": "stream"}`, `{"kind": "runtime", "dtype",
    "value"}` or `{"kind": "value", "value"}` for a compile-time value. `{"cutlass": NAME}` in a value is a
    name of the cutlass package. `search` are further directories that modules are imported from.
    """

    source: Path
    entry: str
    arch: str
    call: Sequence[Mapping[str, Any]]
    init: Mapping[str, Any] = field(default_factory=dict)
    search: Sequence[Path] = ()


@dataclass(frozen=True)
class DslLaunch:
    """One launch as the runtime was asked for it. `params` hold tensor maps in the hardware's format."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_smem: int
    params: tuple[bytes, ...]


@dataclass(frozen=True)
class DslCompiled:
    ptx: str
    launches: tuple[DslLaunch, ...]


def dsl_version() -> str:
    """The installed version.

    Raises:
        PorterError: NO_DSL.
    """
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise PorterError(Code.NO_DSL, problem=f"no package {PACKAGE}") from None


def compile_dsl(request: DslRequest, cache: Cache | None = None) -> DslCompiled:
    """Compile and record; results are cached by the contents of the file and of its sibling modules.

    Raises:
        PorterError: FILE_NOT_FOUND, NO_DSL, NO_HOST_COMPILER, DSL_ERROR.
    """
    source = request.source.resolve()
    if not source.is_file():
        raise PorterError(Code.FILE_NOT_FOUND, path=str(request.source))
    cache = cache or Cache.default()
    host = find_host_compiler()
    body = {
        "source": str(source),
        "entry": request.entry,
        "init": dict(request.init),
        "call": [dict(item) for item in request.call],
        "compiler": str(host.path),
        "search": [str(p.resolve()) for p in request.search],
    }
    siblings = [p for d in (source.parent, *request.search) for p in sorted(d.glob("*.py"))]
    contents = [f"{p.name} {file_digest(p)}" for p in siblings]
    identity = {**body, "source": source.name, "search": []}
    key = digest([_VERSION, dsl_version(), request.arch, json.dumps(identity, sort_keys=True), *contents])
    text = cache.get(key)
    if text is None:
        text = _run(request, body)
        cache.put(key, text)
    return _compiled(json.loads(text))


def _run(request: DslRequest, body: Mapping[str, Any]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="porter-") as name:
        directory = Path(name)
        asked, answer = directory / "request.json", directory / "result.json"
        asked.write_text(json.dumps(body))
        command = [sys.executable, "-m", "porter.build.dsl_worker", str(asked), str(answer)]
        environment = {
            "CUTE_DSL_ARCH": request.arch,
            "CUTE_DSL_KEEP_PTX": "1",
            "CUTE_DSL_DUMP_DIR": str(directory),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        words = ["env", *[f"{k}={v}" for k, v in environment.items()], *command]
        done = run(words, cwd=directory)
        try:
            text = answer.read_bytes()
            result = json.loads(text)
        except (OSError, ValueError):
            raise _refused(request, f"the compiler process ended with {done.status}", done.log) from None
        if "error" in result:
            raise _refused(request, _first_line(result), f"{result['error']}\n{result['trace']}")
        return text


def _first_line(result: Mapping[str, str]) -> str:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result["error"])
    lines = [line.strip() for line in plain.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"(?:error|[A-Za-z]*Error)\b[^:]*:", line)]
    return f"{result['kind']}: {(named or lines or ['no message'])[0][:300]}"


def _refused(request: DslRequest, problem: str, detail: str) -> PorterError:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", detail)
    return PorterError(
        Code.DSL_ERROR,
        Location(str(request.source)),
        detail=plain,
        path=os.fspath(request.source),
        arch=request.arch,
        problem=problem,
    )


def _triple(values: Sequence[int]) -> tuple[int, int, int]:
    return values[0], values[1], values[2]


def _compiled(result: Mapping[str, Any]) -> DslCompiled:
    return DslCompiled(
        ptx=result["ptx"],
        launches=tuple(
            DslLaunch(
                kernel=item["kernel"],
                grid=_triple(item["grid"]),
                block=_triple(item["block"]),
                cluster=_triple(item["cluster"]),
                dynamic_smem=item["dynamic_smem"],
                params=tuple(bytes.fromhex(p) for p in item["params"]),
            )
            for item in result["launches"]
        ),
    )
