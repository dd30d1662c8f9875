# SPDX-License-Identifier: Apache-2.0
"""Stands in for Triton's driver in a script's own process: kernels are compiled for the chip that is simulated, and
their launches go to the simulator, as those of a program under the stand-in runtime do (`protocol.py`).

    python -m porter.verify.program.triton_script SCRIPT [ARGUMENT ...]

Tensors lie in host memory: those of a launch are copied to device memory ahead of it, and back behind it. Where PyTorch
is installed its device `cuda` is the host, and nothing is measured: `do_bench` answers with NaN.
Sources: triton/backends/driver.py (DriverBase) and triton/backends/nvidia/driver.{py,c} (how a launch's parameters are
laid out: each descriptor as tensor map, shape, strides; two scratch buffers at the end), Triton 3.4 to 3.9.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import mmap
import os
import runpy
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from porter.ptx.arch import WARP
from porter.ptx.tensormap import TensorMapL2Promotion
from porter.verify.program.fatbin import packed
from porter.verify.program.protocol import MAX_DYNAMIC_SHARED, Op, Status, ask

_FIRST_PARAM = 7
"""Word of the answer to `Op.FUNCTION` from which on parameters' sizes stand."""
_NUMBERS = {
    "i1": "<b", "i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q",
    "u1": "<B", "u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q",
    "fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d",
}  # fmt: skip


class LaunchRefused(RuntimeError):
    """What a GPU would answer a launch with, or a run that found something."""


class Simulator:
    """The script's end of the connection to the simulator, and device memory."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=int(os.environ["PORTER_CUDART_SOCKET"]))
        self._base = int(os.environ["PORTER_CUDART_ARENA"], 0)
        size = int(os.environ["PORTER_CUDART_ARENA_SIZE"], 0)
        self._memory = mmap.mmap(int(os.environ["PORTER_CUDART_MEMORY"]), size)
        self._stubs = 0

    def needs(self, op: Op, body: bytes = b"") -> bytes:
        """Raises LaunchRefused."""
        found = ask(self._socket, op, body)
        if found is None:
            sys.exit("porter: the simulator has gone")
        status, answer = found
        if status is not Status.SUCCESS:
            raise LaunchRefused(f"the simulator answers a request to {op.name.lower()} with {status.name}")
        return answer

    def words(self, op: Op, body: bytes = b"") -> list[int]:
        answer = self.needs(op, body)
        return list(struct.unpack(f"<{len(answer) // 8}Q", answer))

    def load(self, ptx: str, name: str) -> int:
        """A handle of a kernel."""
        self._stubs += 1
        (module,) = self.words(Op.REGISTER_BINARY, packed(ptx))
        self.needs(Op.REGISTER_FUNCTION, struct.pack("<QQ", module, self._stubs) + name.encode())
        return self._stubs

    def allocate(self, data: bytes) -> int:
        (address,) = self.words(Op.ALLOCATE, struct.pack("<Q", max(len(data), 1)))
        at = address - self._base
        self._memory[at : at + len(data)] = data
        return address

    def read(self, address: int, count: int) -> bytes:
        return self._memory[address - self._base : address - self._base + count]

    def release(self, address: int) -> None:
        self.needs(Op.RELEASE, struct.pack("<Q", address))


class Copied:
    """The memory that a launch's arguments lead to, in device memory as long as the launch lasts."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._held: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._scratch: list[int] = []

    def address(self, tensor: Any) -> int:
        """Where a tensor lies on the device. A number is an address already, and None the null pointer."""
        if tensor is None or isinstance(tensor, int):
            return tensor or 0
        pointer = tensor.data_ptr()
        if not pointer:
            return 0
        start, count = _memory_of(tensor, pointer)
        if (start, count) not in self._held:
            data = ctypes.string_at(start, count)
            self._held[start, count] = self._simulator.allocate(data), data
        return self._held[start, count][0] + pointer - start

    def scratch(self, count: int) -> int:
        """Zeros, at an address; the null pointer for none."""
        if count <= 0:
            return 0
        self._scratch.append(self._simulator.allocate(bytes(count)))
        return self._scratch[-1]

    def give_back(self) -> None:
        for (start, count), (address, before) in self._held.items():
            after = self._simulator.read(address, count)
            if after != before:
                ctypes.memmove(start, after, count)
            self._simulator.release(address)
        for address in self._scratch:
            self._simulator.release(address)


def _memory_of(tensor: Any, pointer: int) -> tuple[int, int]:
    """Start and bytes of the memory that a tensor is a part of."""
    if hasattr(tensor, "untyped_storage"):
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    return pointer, tensor.nbytes


class Utils:
    """What Triton asks of a device, and of a kernel as it is loaded."""

    def __init__(self, simulator: Simulator, multiprocessors: int, threads: int, registers: int, shared: int) -> None:
        self._simulator, self._threads = simulator, threads
        self._properties = {
            "max_shared_mem": shared, "max_num_regs": registers, "multiprocessor_count": multiprocessors,
            "warpSize": WARP, "sm_clock_rate": 0, "mem_clock_rate": 0, "mem_bus_width": 0,
        }  # fmt: skip
        self.ptx = ""

    def loading(self, *arguments: Any) -> None:
        """Called ahead of `load_binary`, with the files that a kernel was compiled to by their names."""
        files = next(a for a in arguments if isinstance(a, dict))
        self.ptx = Path(next(path for name, path in files.items() if name.endswith(".ptx"))).read_text("utf-8")

    def load_binary(self, name: str, _binary: bytes, shared: int, _device: int) -> tuple[Any, int, int, int, int]:
        """Module, function, registers, spills, most threads."""
        function = self._simulator.load(self.ptx, name)
        self._simulator.needs(Op.SET_ATTRIBUTE, struct.pack("<QII", function, MAX_DYNAMIC_SHARED, shared))
        return None, function, 0, 0, self._threads

    def unload_module(self, _module: Any) -> None:
        pass

    def set_printf_fifo_size(self, _size: int) -> None:
        pass

    def get_device_properties(self, _device: int = 0) -> dict[str, int]:
        return self._properties


class Driver:
    """In place of triton.backends.nvidia's."""

    def __init__(self, simulator: Simulator) -> None:
        major, minor, multiprocessors, _, threads, _, _, registers, _, shared, *_ = simulator.words(Op.DEVICE)
        self.capability, self.multiprocessors = (major, minor), multiprocessors
        self.utils = Utils(simulator, multiprocessors, threads, registers, shared)
        self.simulator = simulator
        self.is_dry = False

    def launcher_cls(self, source: Any, metadata: Any) -> Launcher:
        return Launcher(self, source, metadata)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, name: str) -> str:
        return str(_nvidia().ty_to_cpp(name))

    def get_current_target(self) -> Any:
        major, minor = self.capability
        target = importlib.import_module("triton.backends.compiler").GPUTarget
        return target("cuda", major * 10 + minor, WARP)

    def get_device_capability(self, _device: Any = None) -> tuple[int, int]:
        return self.capability

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, _device: int) -> None:
        pass

    def get_current_stream(self, _device: Any = None) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        return importlib.import_module("torch").device("cpu")

    def get_device_interface(self) -> Any:
        return importlib.import_module("torch").cuda

    def get_empty_cache_for_benchmark(self) -> Any:
        return None

    def clear_cache(self, _cache: Any) -> None:
        pass

    def assemble_tensormap_to_arg(self, _infos: Any, arguments: Any) -> Any:
        return arguments

    def get_benchmarker(self) -> Callable[..., Any]:
        return self.compiled_only

    def compiled_only(self, call: Callable[[], Any], *_: Any, quantiles: Sequence[float] = (), **__: Any) -> Any:
        """What choosing among configurations measures: here all that compile are equally fast."""
        self.is_dry = True
        try:
            call()
        finally:
            self.is_dry = False
        return [0.0 for _ in quantiles] if quantiles else 0.0


class Launcher:
    """Launches one compiled kernel."""

    def __init__(self, driver: Driver, source: Any, metadata: Any) -> None:
        self._driver, self._metadata = driver, metadata
        self._types = tuple(source.signature.values())
        self._maps = list(getattr(metadata, "tensordesc_meta", None) or ())

    def __call__(
        self, x: int, y: int, z: int, _stream: Any, function: int, packed_metadata: Sequence[int], launched: Any,
        enter: Any, leave: Any, *arguments: Any,
    ) -> None:  # fmt: skip
        if self._driver.is_dry or not x * y * z:
            return
        _called(enter, launched)
        warps, blocks, shared = packed_metadata[:3]
        simulator = self._driver.simulator
        memory = Copied(simulator)
        params = list(self._params(arguments, memory))
        sizes = simulator.words(Op.FUNCTION, struct.pack("<Q", function))[_FIRST_PARAM:]
        for kind in ("global", "profile")[: len(sizes) - len(params)]:
            count = getattr(self._metadata, f"{kind}_scratch_size", 0) or 0
            params.append(struct.pack("<Q", memory.scratch(count * x * y * z * blocks)))
        if [len(p) for p in params] != sizes:
            raise LaunchRefused(f"parameters of {[len(p) for p in params]} bytes, where the kernel has {sizes}")
        dims = (x * blocks, y, z, WARP * warps, 1, 1, *((blocks, 1, 1) if blocks > 1 else (0, 0, 0)))
        cooperative, overlaps = (
            bool(getattr(self._metadata, name, False)) for name in ("launch_cooperative_grid", "launch_pdl")
        )
        body = struct.pack("<Q12I", function, *dims, shared, cooperative, overlaps) + b"".join(params)
        printed = simulator.needs(Op.LAUNCH, body)
        memory.give_back()
        sys.stdout.write(printed.decode("utf-8", "replace"))
        _called(leave, launched)

    def _params(self, arguments: Sequence[Any], memory: Copied) -> Iterator[bytes]:
        maps = iter(self._maps)
        for kind, argument in _flat(self._types, arguments):
            if kind.startswith("tensordesc"):
                yield from self._descriptor(argument, next(maps, None), memory)
            elif kind.startswith("*"):
                yield struct.pack("<Q", memory.address(argument))
            elif kind == "bf16":
                yield struct.pack("<f", argument)[2:]
            else:
                yield struct.pack(_NUMBERS[kind], argument)

    def _descriptor(self, descriptor: Any, meta: Mapping[str, Any] | None, memory: Copied) -> Iterator[bytes]:
        address = memory.address(descriptor.base)
        shape, strides = list(descriptor.shape), list(descriptor.strides)
        is_nan = getattr(descriptor, "padding", "zero") == "nan"
        is_tf32 = bool(getattr(descriptor, "round_f32_to_tf32", False))
        sizes = [struct.pack("<i", n) for n in shape] + [struct.pack("<q", n) for n in strides]
        if meta is None:
            yield struct.pack("<Q", address)
            yield from (struct.pack("<q", n) for n in (*shape, *strides))
            yield from (struct.pack("<b", flag) for flag in (is_nan, is_tf32))
        else:
            yield self._driver.simulator.needs(Op.TENSOR_MAP, _tiled(address, shape, strides, is_nan, is_tf32, meta))
        yield from sizes


def _tiled(
    address: int, shape: Sequence[int], strides: Sequence[int], is_nan: bool, is_tf32: bool, meta: Mapping[str, Any]
) -> bytes:
    """A request for a tensor map, as Triton's `fill_tma_descriptor_tiled` makes it."""
    if meta.get("is_im2col"):
        raise LaunchRefused("a tensor descriptor of im2col form, which is not simulated")
    nvidia, element = _nvidia(), int(meta["elem_size"])
    kind = nvidia.TMA_TF32 if is_tf32 else nvidia.TMA_DTYPE_DEVICE_TO_HOST[meta["elem_type"]]
    sizes = [*shape[:-1], shape[-1] * (2 if meta["fp4_padded"] else 1)]
    rank, box = len(sizes), list(meta["block_size"])
    head = struct.pack("<IIIQIIII", 0, kind, rank, address, 0, meta["swizzle"], TensorMapL2Promotion.B128, is_nan)
    body = struct.pack(f"<{rank}Q", *reversed(sizes))
    body += struct.pack(f"<{rank - 1}Q", *(n * element for n in reversed(strides[:-1])))
    return head + body + struct.pack(f"<{rank}I", *reversed(box)) + struct.pack(f"<{rank}I", *([1] * rank))


def _flat(types: Sequence[Any], arguments: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Types and arguments without constants, tuples taken apart."""
    for kind, argument in zip(types, arguments, strict=True):
        if isinstance(kind, tuple):
            yield from _flat(kind, tuple(argument))
        elif kind != "constexpr":
            yield kind, argument


def _called(hook: Any, launched: Any) -> None:
    if hook is not None:
        hook(launched)


def _nvidia() -> Any:
    return importlib.import_module("triton.backends.nvidia.driver")


def _on_host(torch: Any, driver: Driver) -> Any:
    """A mode of PyTorch in which the device `cuda` is the host; what is asked about it is answered."""
    cuda = torch.cuda
    properties = SimpleNamespace(
        name="porter", major=driver.capability[0], minor=driver.capability[1],
        multi_processor_count=driver.multiprocessors, warp_size=WARP,
    )  # fmt: skip
    answers: dict[str, Any] = {
        "is_available": True, "device_count": 1, "current_device": 0, "synchronize": None, "get_device_name": "porter",
        "get_device_capability": driver.capability, "get_device_properties": properties, "manual_seed": None,
        "set_device": None, "empty_cache": None,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(cuda, name, lambda *_, _answer=answer, **__: _answer)

    def host(value: Any) -> Any:
        is_device = isinstance(value, torch.device) and value.type == "cuda"
        is_name = isinstance(value, str) and value.partition(":")[0] == "cuda"
        return "cpu" if is_device or is_name else value

    class OnHost(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.Tensor.cuda:
                return args[0]
            if function is torch.Tensor.is_cuda.__get__:
                return True
            return function(*map(host, args), **{k: host(v) for k, v in (kwargs or {}).items()})

    return OnHost()


def main(script: str, arguments: Sequence[str]) -> None:
    triton, runtime = importlib.import_module("triton"), importlib.import_module("triton.runtime")
    importlib.import_module("triton.testing")
    driver = Driver(Simulator())
    runtime.driver.set_active(driver)
    triton.knobs.runtime.kernel_load_start_hook.add(driver.utils.loading)
    for name in ("do_bench", "do_bench_cudagraph"):
        setattr(triton.testing, name, lambda *_, quantiles=(), **__: [float("nan")] * len(quantiles) or float("nan"))
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    if importlib.util.find_spec("torch") is not None:
        with _on_host(importlib.import_module("torch"), driver):
            runpy.run_path(script, run_name="__main__")
    else:
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
