# SPDX-License-Identifier: Apache-2.0
"""Compiles one CuTe DSL function in a process of its own and records what its host code launches.

Run as `python -m porter.build.dsl_worker` with CUTE_DSL_ARCH set: the DSL reads the architecture once per process.
`porter.build.dsl_server` says on standard input where requests of `porter.build.dsl` are; a copy of the process
answers each. The host function is exported, linked with stand-ins for the eight runtime functions that it needs, and
called with made-up device addresses; no driver and no GPU take part. Linked once, it can be called with other shapes
and strides of tensors for which these are known at run time only.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import importlib
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import tempfile
import traceback
import types
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from porter.build.dsl_absent import Absent
from porter.build.dsl_imports import imported
from porter.build.dsl_observe import Observer
from porter.ptx.arch import SHARED_LIMIT
from porter.ptx.parser import parse_module
from porter.ptx.shared_window import SYSTEM_SHARED

PREFIX = "porter_kernel"
SUPPORT = "porter_dsl"
"""The module that a port calls in place of Hopper's MMAs."""
UNPORTABLE = "Unportable"
"""What it raises where it cannot do what the kernel asks for."""
_DEVICE = {
    "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": SHARED_LIMIT + SYSTEM_SHARED,
    "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": SHARED_LIMIT,
}
"""What both have, by the driver's names."""

RUNTIME = f"""
#include <stddef.h>
typedef int (*launch_t)(const void *config, const void *kernel, void **arguments);
launch_t porter_on_launch;
int _cudaLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned n, void *c, void *d,
                         unsigned m) {{ *library = (void *)1; return 0; }}
int _cudaLibraryGetKernel(void **kernel, void *library, const char *name) {{
    static char names[64][4096]; static int used;
    char *to = names[used++ % 64]; size_t i = 0;
    for (; name[i] && i < 4095; i++) to[i] = name[i];
    to[i] = 0; *kernel = to; return 0; }}
int _cudaLaunchKernelEx(const void *config, const void *kernel, void **arguments) {{
    return porter_on_launch(config, kernel, arguments); }}
int _cudaFuncSetAttribute(const void *kernel, int attribute, int value) {{ return 0; }}
int _cudaKernelSetAttributeForDevice(void *kernel, int attribute, int value, int device) {{ return 0; }}
int _cuKernelGetAttribute(int *value, int attribute, void *kernel, int device) {{ *value = 0; return 0; }}
int _cudaDeviceGetAttribute(int *value, int attribute, int device) {{ *value = {SHARED_LIMIT}; return 0; }}
int _cudaGetDevice(int *device) {{ *device = 0; return 0; }}
"""

_CLUSTER_DIMENSION = 4
"""cudaLaunchAttributeClusterDimension."""


class _Attribute(ctypes.Structure):
    """cudaLaunchAttribute: an ID and a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    """cudaLaunchConfig_t."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic_smem", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint32),
    )


def load(path: Path) -> types.ModuleType:
    """The file as a module; its siblings can be imported from it, inside a package also relatively."""
    package = path.parent
    names = [path.stem]
    while (package / "__init__.py").is_file():
        names.insert(0, package.name)
        package = package.parent
    sys.path.insert(0, str(package))
    sys.path.insert(0, str(path.parent))
    name = ".".join(names)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python module")
    for i in range(1, len(names)):
        importlib.import_module(".".join(names[:i]))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _value(item: Any) -> Any:
    """`{"cutlass": "Float32"}` is the class, lists are tuples, everything else itself."""
    import cutlass

    if isinstance(item, dict) and set(item) == {"cutlass"}:
        found: Any = cutlass
        for part in item["cutlass"].split("."):
            found = getattr(found, part)
        return found
    if isinstance(item, list):
        return tuple(_value(i) for i in item)
    return item


class _Argument(NamedTuple):
    """What to compile with, and what to call the compiled host function with: one buffer per run-time value."""

    given: Any
    passed: list[Any]


def _argument(item: dict[str, Any]) -> _Argument:
    import cutlass
    from cutlass.cute.runtime import make_fake_stream, make_fake_tensor

    if item["kind"] == "tensor":
        kind = getattr(cutlass, item["dtype"])
        layout = _dynamic(item, kind.width) if item.get("dynamic") else (item["shape"], item["strides"])
        fake = make_fake_tensor(kind, tuple(layout[0]), tuple(layout[1]), assumed_align=item["align"])
        return _Argument(fake, [_tensor(item)])
    if item["kind"] == "stream":
        return _Argument(make_fake_stream(), [ctypes.c_uint64(0)])
    if item["kind"] == "runtime":
        return _Argument(getattr(cutlass, item["dtype"])(item["value"]), [_scalar(item["dtype"], item["value"])])
    if item["kind"] == "tuple":
        parts = [_argument(part) for part in item["items"]]
        return _Argument(tuple(p.given for p in parts), [buffer for p in parts for buffer in p.passed])
    value = _value(item["value"])
    return _Argument(value, _numbers(value))


def _numbers(value: Any) -> list[Any]:
    """The buffers of Python's numbers, which are run-time values where a parameter is not declared Constexpr."""
    if isinstance(value, tuple):
        return [buffer for part in value for buffer in _numbers(part)]
    if isinstance(value, float):
        return [ctypes.c_float(value)]
    return [ctypes.c_int64(value)] if isinstance(value, int) else []


_Place = tuple[str, Any]
"""`call` or `keywords` of a request, with the number or the name of an argument."""


def _run_time(target: Any, request: dict[str, Any]) -> list[_Place]:
    """The arguments that the host function is passed at run time, in the order of its parameters."""
    items: list[_Place] = [("call", i) for i in range(len(request["call"]))]
    named = {name: ("keywords", name) for name in request["keywords"]}
    signature = inspect.signature(target)
    bound = signature.bind(*items, **named).arguments
    flat = ((name, one) for name, value in bound.items() for one in _flat(value))
    return [one for name, one in flat if not _is_compile_time(signature.parameters[name].annotation)]


def _passed(places: Sequence[_Place], request: dict[str, Any]) -> list[Any]:
    """The buffers of run-time arguments."""
    return [buffer for of, which in places for buffer in _argument(request[of][which]).passed]


def _is_compile_time(annotation: Any) -> bool:
    cutlass: Any = importlib.import_module("cutlass")
    if isinstance(annotation, str):
        return "Constexpr" in annotation
    kind = typing.get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, cutlass.Constexpr)


def _flat(value: Any) -> list[_Place]:
    """What one parameter was given; `*args` and `**kwargs` hold several."""
    if isinstance(value, dict):
        return list(value.values())
    return [value] if value and isinstance(value[0], str) else list(value)


def _dynamic(item: dict[str, Any], width: int) -> tuple[list[Any], list[Any]]:
    """Shape and strides known at run time only, but for the 1 of the contiguous mode; rows are 16-byte
    aligned."""
    import cutlass.cute as cute

    whole = max(128 // width, 1)
    strides = [1 if i == item["leading"] else cute.sym_int64(divisibility=whole) for i in range(len(item["strides"]))]
    return [cute.sym_int() for _ in item["shape"]], strides


def _tensor(item: dict[str, Any]) -> Any:
    """A tensor as the host function takes it: its address; then shape (32 bits each) and strides (64 bits
    each) as far as they are dynamic."""
    data = item["address"].to_bytes(8, "little")
    if item.get("dynamic"):
        data += b"".join(n.to_bytes(4, "little") for n in item["shape"])
        data += bytes(-len(data) % 8)
        data += b"".join(s.to_bytes(8, "little") for i, s in enumerate(item["strides"]) if i != item["leading"])
    return (ctypes.c_ubyte * len(data)).from_buffer_copy(data)


def _scalar(dtype: str, value: float) -> Any:
    kinds: dict[str, Any] = {"Float32": ctypes.c_float, "Float64": ctypes.c_double, "Int64": ctypes.c_int64}
    kind = kinds.get(dtype, ctypes.c_int32)
    return kind(value if dtype.startswith("Float") else int(value))


def linked(compiled: Any, compiler: str) -> bytes:
    """The host function and the stand-ins as a shared library."""
    with tempfile.TemporaryDirectory(prefix="porter-") as name:
        directory = Path(name)
        # What `export_to_c` also writes, a C header, is not to be had for arguments that have no type in C.
        (directory / "host.o").write_bytes(compiled.dump_to_object(PREFIX))
        (directory / "runtime.c").write_text(RUNTIME)
        library = directory / "host.so"
        # -Bsymbolic: the DSL's own runtime exports the same names into this process.
        command = [compiler, "-shared", "-fPIC", "-w", "-x", "c", str(directory / "runtime.c"),
                   "-x", "none", str(directory / "host.o"), "-Wl,-Bsymbolic", "-o", str(library)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"linking the host function failed: {done.stderr}")
        return library.read_bytes()


def record(host: dict[str, Any], request: dict[str, Any]) -> list[dict[str, Any]]:
    """Every launch that a linked host function makes: kernel, grid, block, cluster, shared memory, parameters."""
    with tempfile.TemporaryDirectory(prefix="porter-") as name:
        library = Path(name) / "host.so"
        library.write_bytes(base64.b64decode(host["library"]))
        passed = _passed(host["passed"], request)
        return _call(ctypes.CDLL(str(library)), host["function"], passed, host["sizes"])


def _call(library: ctypes.CDLL, function: str, passed: list[Any], sizes: dict[str, list[int]]) -> list[dict[str, Any]]:
    launches: list[dict[str, Any]] = []
    problems: list[str] = []

    def on_launch(config: int, kernel: int, arguments: Any) -> int:
        try:
            launches.append(_launch(config, kernel, arguments, sizes))
        except Exception as error:  # an exception must not cross the C frames
            problems.append(repr(error))
            return 1
        return 0

    hook = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))(on_launch)
    ctypes.c_void_p.in_dll(library, "porter_on_launch").value = ctypes.cast(hook, ctypes.c_void_p).value
    handle = ctypes.pointer(ctypes.pointer(ctypes.c_void_p()))
    device = ctypes.pointer(ctypes.c_int32(0))
    status = ctypes.pointer(ctypes.pointer(ctypes.c_int32(0)))
    _invoke(getattr(library, f"_mlir_{PREFIX}_cuda_init"), [handle, status])
    _invoke(getattr(library, f"_mlir_{PREFIX}_cuda_load_to_device"), [handle, device, status])
    result = ctypes.c_int32(0)
    buffers = [*passed, result]
    _invoke(getattr(library, function), [ctypes.pointer(b) for b in buffers], len(buffers))
    if problems or result.value or not launches:
        raise RuntimeError(f"the host function launched nothing: {problems or result.value}")
    return launches


def _invoke(function: Callable[..., Any], pointers: Sequence[Any], *more: int) -> None:
    array = (ctypes.c_void_p * len(pointers))(*[ctypes.cast(p, ctypes.c_void_p) for p in pointers])
    function(array, *more)


def _launch(address: int, kernel: int, arguments: Any, sizes: dict[str, list[int]]) -> dict[str, Any]:
    config = _Config.from_address(address)
    name = ctypes.string_at(kernel).decode()
    cluster = [1, 1, 1]
    for i in range(config.count):
        if config.attributes[i].id == _CLUSTER_DIMENSION:
            cluster = [max(int(n), 1) for n in config.attributes[i].value[:3]]
    return {
        "kernel": name,
        "grid": list(config.grid),
        "block": list(config.block),
        "cluster": cluster,
        "dynamic_smem": int(config.dynamic_smem),
        "params": [ctypes.string_at(arguments[i], size).hex() for i, size in enumerate(sizes[name])],
    }


def compile_request(request: dict[str, Any], absent: Absent) -> dict[str, Any]:
    """The PTX, the launches of a request, its linked host function, and what its modules were imported from. Of a
    request that has a linked `host` the launches alone."""
    if "host" in request:
        return {"launches": record(request["host"], request)}
    import cutlass
    import cutlass.cute as cute

    _skip_frames_of_support()
    _ask_no_driver()
    package = Path(cutlass.__file__).parent
    # 4.6.2 has added a directory of its own, in which a `torch` lies that is not PyTorch
    sys.path[:] = [place for place in sys.path if package not in Path(place).parents]
    observer = Observer(package)
    observer.observe(request["observe"])
    sys.path[:0] = request["search"]
    module = load(Path(request["source"]))
    target: Any = module
    for part in request["entry"].split("."):
        target = getattr(target, part)
    if isinstance(target, type):
        target = target(**{name: _value(item) for name, item in request["init"].items()})
    given = [_argument(item).given for item in request["call"]]
    named = {name: _argument(item).given for name, item in request["keywords"].items()}
    compiled = cute.compile(target, *given, **named)
    ptx = _without_lines_of_asm(compiled.__ptx__.rstrip("\0"))
    host = {
        "library": base64.b64encode(linked(compiled, request["compiler"])).decode(),
        "function": f"_mlir_{PREFIX}__mlir_ciface_{compiled.function_name}",
        "passed": _run_time(target, request),
        "sizes": {f.name: [p.size for p in f.params] for f in parse_module(ptx).entries()},
    }
    launches = record(host, request)
    found = imported(absent.missed, Path(cutlass.__file__).parent.parent, Path.cwd())
    files = {"files": found.files, "directories": found.names}
    return {"ptx": ptx, "host": host, "launches": launches, "calls": observer.calls, "absent": observer.absent, **files}


def _skip_frames_of_support() -> None:
    """Line information then names the line of the user's file that called the support module of a port, or what is
    observed."""
    try:
        from cutlass._mlir_helpers import op
    except ImportError:
        return
    inner, observing = getattr(op, "_is_framework_stack_frame", None), vars(sys.modules[Observer.__module__])
    if inner is None:
        return

    def skipped(frame: types.FrameType) -> bool:
        return frame.f_globals is observing or _module_name(frame.f_globals) == SUPPORT or inner(frame)

    op._is_framework_stack_frame = skipped


def _ask_no_driver() -> None:
    """A launch that says how many blocks shall run on a multiprocessor makes the DSL ask how much memory that has."""
    try:
        from cutlass.base_dsl.runtime import cuda
    except ImportError:
        return
    asked = cuda.get_device_attribute

    def answered(attribute: Any, device_id: int = 0) -> Any:
        known = _DEVICE.get(getattr(attribute, "name", ""))
        return asked(attribute, device_id) if known is None else known

    cuda.get_device_attribute = answered


def _module_name(names: dict[str, Any]) -> str:
    return str(names.get("__name__", "")).rpartition(".")[2]


def _without_lines_of_asm(ptx: str) -> str:
    """Inside inline assembly the DSL's back end counts lines of the assembly on from the user's line."""
    kept, inside = [], False
    for line in ptx.split("\n"):
        if "// begin inline asm" in line or "// end inline asm" in line:
            inside = "begin" in line
        if not (inside and line.lstrip().startswith(".loc")):
            kept.append(line)
    return "\n".join(kept)


def _failure(error: BaseException) -> dict[str, Any]:
    """What a user's file raised; with the obstacles, if it is the support module's refusal."""
    told: dict[str, Any] = {"error": str(error) or repr(error), "kind": type(error).__name__,
                            "trace": traceback.format_exc()}  # fmt: skip
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if type(link).__name__ == UNPORTABLE and hasattr(link, "obstacles"):
            told["obstacles"] = [[str(file), int(line), str(text)] for file, line, text in link.obstacles]
            break
        link = link.__cause__ or link.__context__
    return told


def _answer(asked: dict[str, Any], absent: Absent) -> None:
    """Compile a request in the directory of its file and write the result; what it prints goes to a log."""
    for stream, name, mode in ((0, os.devnull, os.O_RDONLY), (1, asked["log"], os.O_WRONLY | os.O_CREAT)):
        os.dup2(os.open(name, mode), stream)
    os.dup2(1, 2)
    os.environ.clear()
    os.environ.update(asked["environment"])
    directory = Path(asked["request"]).parent
    os.chdir(directory)
    sys.path[0] = str(directory)
    importlib.invalidate_caches()
    try:
        result = compile_request(json.loads(Path(asked["request"]).read_text()), absent)
    except BaseException as error:  # what a user's file raises at import may be anything
        result = _failure(error)
    Path(asked["answer"]).write_text(json.dumps(result))


def main() -> int:
    absent = Absent()
    absent.install()
    with contextlib.suppress(Exception):  # the copy that needs it says what is wrong
        importlib.import_module("cutlass.cute")
    for line in sys.stdin:
        if (copy := os.fork()) == 0:
            status = 1
            try:
                _answer(json.loads(line), absent)
                status = 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        _, status = os.waitpid(copy, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
