# SPDX-License-Identifier: Apache-2.0
"""Compiling CuTe DSL kernels to PTX, with the launches that their own host code makes. Needs no GPU."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from porter.build.cache import Cache, digest, file_digest
from porter.build.dsl_server import ask
from porter.build.toolchain import find_host_compiler
from porter.build.trust import require_trust
from porter.diagnostics import Code, Diagnostic, Location, PorterError

PACKAGE = "nvidia-cutlass-dsl"
OLDEST, NEWEST = "4.6.2", "4.8.1"
"""Versions of the package that Porter is tested with."""
_FORMAT = "dsl 10"
IMPORTED = "to compile a CuTe DSL kernel its file is imported and its host code is called"


@dataclass(frozen=True)
class DslRequest:
    """How a kernel is constructed and called.

    `entry` is a class, a function or a dotted path to one. `init` are the constructor's keyword arguments,
    `call` and `keywords` the arguments of the call, as JSON: `{"kind": "tensor", "dtype", "shape", "strides", "align",
    "address", "dynamic", "leading"}` (elements; a made-up device address; whether shape and strides are known at run
    time only, but for the mode whose stride is 1), `{"kind": "stream"}`, `{"kind": "tuple", "items"}`,
    `{"kind": "runtime", "dtype", "value"}` or `{"kind": "value", "value"}` for a compile-time value.
    `{"cutlass": NAME}` in a value is a name of the cutlass package. `search` are further directories that modules are
    imported from. `observe` are functions of the package whose calls in the user's files are told.
    """

    source: Path
    entry: str
    arch: str
    call: Sequence[Mapping[str, Any]]
    keywords: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    init: Mapping[str, Any] = field(default_factory=dict)
    search: Sequence[Path] = ()
    observe: Sequence[str] = ()


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
    calls: tuple[Mapping[str, Any], ...] = ()
    """Of what was observed, in the order in which it was traced (`porter.build.dsl_observe`)."""
    absent: tuple[str, ...] = ()
    """Names that were to be observed and that the DSL does not have."""

    @property
    def dynamic_smem(self) -> dict[str, int]:
        """The most that a launch of each kernel asks for."""
        found: dict[str, int] = {}
        for launch in self.launches:
            found[launch.kernel] = max(launch.dynamic_smem, found.get(launch.kernel, 0))
        return found


def dsl_version() -> str:
    """The installed version.

    Raises:
        PorterError: NO_DSL.
    """
    import importlib.metadata  # It loads a reader of mail.

    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise PorterError(Code.NO_DSL, problem=f"no package {PACKAGE}") from None


def dsl_untested() -> Diagnostic | None:
    """A note where the installed version is outside of what is tested.

    Raises:
        PorterError: NO_DSL.
    """
    version = dsl_version()
    if _number(OLDEST) <= _number(version) <= _number(NEWEST):
        return None
    return Diagnostic(Code.DSL_UNTESTED, None, {"version": version, "oldest": OLDEST, "newest": NEWEST})


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def compile_dsl(request: DslRequest, cache: Cache | None = None) -> DslCompiled:
    """Compile and record. Results are cached by the contents of all files that are imported outside of the standard
    library and the DSL, as long as nothing new lies in the way of these imports. Other files that a module opens, and
    the environment apart from PYTHONPATH and the DSL's own variables, are taken to stay as they are. What is compiled
    for shapes and strides that are known at run time only is compiled once, and its host function called for each.

    Raises:
        PorterError: FILE_NOT_FOUND, NOT_TRUSTED, NO_DSL, NO_HOST_COMPILER, DSL_ERROR; DSL_OBSTACLE, with the other
            obstacles in `more`, where the support module of a port cannot do what the kernel asks for.
    """
    source = request.source.resolve()
    if not source.is_file():
        raise PorterError(Code.FILE_NOT_FOUND, path=str(request.source))
    require_trust(request.source, IMPORTED)
    cache = cache or Cache.default()
    host = find_host_compiler()
    body = {
        "source": str(source),
        "entry": request.entry,
        "init": dict(request.init),
        "call": [dict(item) for item in request.call],
        "keywords": {name: dict(item) for name, item in request.keywords.items()},
        "compiler": str(host.path),
        "search": [str(p.resolve()) for p in request.search],
        "observe": list(request.observe),
    }
    places = _Places((_package_root(source), source.parent, *(p.resolve() for p in request.search)))
    identity = {**body, "source": places.short(source), "search": [places.short(p.resolve()) for p in request.search],
                "call": _compiled_for(body["call"]), "keywords": _compiled_for(body["keywords"])}  # fmt: skip

    def command(observe: Sequence[str]) -> str:
        return digest([_version(), request.arch, json.dumps({**identity, "observe": [*observe]}, sort_keys=True)])

    def called(key: str) -> str:
        return digest([key, json.dumps([body["call"], body["keywords"]], sort_keys=True)])

    asked = command(request.observe)
    with _alone(asked):
        key = cache.lookup(asked, places.full)
        text = cache.get(key) if key is not None else None
        if key is None or text is None:
            key, text = _made(request, body, cache, places, command, called)
        result = json.loads(text)
        known = cache.get(called(key))
        if known is None:
            again = _run(request, {**body, "host": result["host"]})["launches"]
            cache.put(called(key), known := json.dumps(again).encode())
    result["launches"] = json.loads(known)
    result["ptx"] = _with_files(result["ptx"], lambda name: str(places.full(name)))
    result["calls"] = _with_places(result["calls"], lambda name: str(places.full(name)))
    return _compiled(result)


_guard = threading.Lock()
_making: dict[str, threading.Lock] = {}


@contextmanager
def _alone(command: str) -> Iterator[None]:
    """Who asks for what another thread has the compiler make waits for it, and finds it."""
    with _guard:
        lock = _making.setdefault(command, threading.Lock())
    with lock:
        yield


def _made(
    request: DslRequest, body: Mapping[str, Any], cache: Cache, places: _Places,
    command: Callable[[Sequence[str]], str], called: Callable[[str], str],
) -> tuple[str, bytes]:  # fmt: skip
    """A result that is not known yet, and its key. What is observed is compiled as it is when nobody looks, so that it
    is known for that as well."""
    result = _run(request, body)
    launches = json.dumps(result.pop("launches")).encode()
    files, directories = [Path(p) for p in result.pop("files")], result.pop("directories")
    result["ptx"] = _with_files(result["ptx"], lambda name: places.short(Path(name)))
    result["calls"] = _with_places(result["calls"], lambda name: places.short(Path(name)))
    key, text = "", b""
    for observe, kept in {(): {**result, "calls": [], "absent": []}, tuple(request.observe): result}.items():
        key, text = cache.remember(command(observe), files, directories, places.short), json.dumps(kept).encode()
        cache.put(key, text)
        cache.put(called(key), launches)
    return key, text


def _compiled_for(argument: Any) -> Any:
    """Arguments without the numbers that are known at run time only."""
    if isinstance(argument, list):
        return [_compiled_for(one) for one in argument]
    if not isinstance(argument, dict):
        return argument
    if argument.get("kind") == "tensor" and argument.get("dynamic"):
        return {**argument, "shape": len(argument["shape"]), "strides": None}
    return {name: _compiled_for(one) for name, one in argument.items()}


def _version() -> str:
    """Everything that makes the same request another compilation: the DSL, Python, where packages come from, what
    the DSL reads from the environment, and the worker's own text."""
    parts = ("worker", "absent", "tries", "imports", "observe")
    own = [file_digest(Path(__file__).with_name(f"dsl_{name}.py")) or "" for name in parts]
    told = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("CUTE_DSL_"))
    return "\n".join([_FORMAT, dsl_version(), sys.version, *sys.path, *told, *own])


def _package_root(source: Path) -> Path:
    """The directory that the source's package, if it is in one, is imported from."""
    root = source.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    return root


class _Places:
    """Paths below the directories that a request names are remembered by their place in them, so that a copy of a
    tree is the same request."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots

    def short(self, path: Path) -> str:
        found = [(len(root.parts), i) for i, root in enumerate(self._roots) if path.is_relative_to(root)]
        if not found:
            return str(path)
        _, i = max(found, key=lambda one: (one[0], -one[1]))
        return f"<{i}>/{path.relative_to(self._roots[i])}"

    def full(self, name: str) -> Path:
        if match := re.match(r"<(\d+)>/", name):
            return self._roots[int(match[1])] / name[match.end() :]
        return Path(name)


def _with_files(ptx: str, renamed: Callable[[str], str]) -> str:
    """PTX whose `.file` directives name other paths."""
    return re.sub(r'^(\s*\.file\s+\d+\s+")([^"]*)"', lambda m: f'{m[1]}{renamed(m[2])}"', ptx, flags=re.MULTILINE)


def _with_places(calls: Sequence[Mapping[str, Any]], renamed: Callable[[str], str]) -> list[dict[str, Any]]:
    """Calls in files with other paths."""
    return [{**told, "file": renamed(told["file"])} for told in calls]


def _run(request: DslRequest, body: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="porter-") as name:
        directory = Path(name)
        asked, answer = directory / "request.json", directory / "result.json"
        asked.write_text(json.dumps(body))
        environment = {
            "CUTE_DSL_ARCH": request.arch,
            "CUTE_DSL_KEEP_PTX": "1",
            "CUTE_DSL_LINEINFO": "1",
            "CUTE_DSL_DUMP_DIR": ".",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = ask(asked, answer, environment)
        try:
            result: dict[str, Any] = json.loads(answer.read_bytes())
        except (OSError, ValueError):
            raise _refused(request, f"the compiler process ended with {done.status}", done.log) from None
        if result.get("obstacles"):
            raise _unportable(request, result["obstacles"])
        if "error" in result:
            raise _refused(request, _first_line(result), f"{result['error']}\n{result['trace']}")
        return result


def _unportable(request: DslRequest, obstacles: Sequence[tuple[str, int, str]]) -> PorterError:
    found = dict.fromkeys((file, line, text) for file, line, text in obstacles)
    return PorterError.of(
        [
            Diagnostic(Code.DSL_OBSTACLE, Location(file, line), {"kernel": request.entry, "what": text})
            for file, line, text in found
        ]
    )


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
        calls=tuple(result["calls"]),
        absent=tuple(result["absent"]),
    )
