# SPDX-License-Identifier: Apache-2.0
"""The GPU backends: `gpu` runs a module natively, `hopper` also runs modules for SM100 by lowering them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Literal

import numpy as np

from porter.build.ptxas import assemble
from porter.build.toolchain import Toolkit, find_toolkit
from porter.diagnostics import Code, PorterError
from porter.hopper import Site
from porter.ptx.arch import target
from porter.ptx.tensormap import ENCODED_BYTES
from porter.verify.arguments import MapAddress, MapValue, Pointer
from porter.verify.backends import Backend, RunResult, SimBackend
from porter.verify.builder import BuiltKernel
from porter.verify.gpu.emulation import Emulation, Lowerer, trap_finding
from porter.verify.gpu.process import GpuFailure, GpuInfo, GpuProcess
from porter.verify.images import Image, placed, recorded_again
from porter.verify.outcome import RunFinding
from porter.verify.params import argument_bytes
from porter.verify.problem import LaunchValues, Problem
from porter.verify.settings import GpuOptions, SimOptions

GUARD_BYTES = 4096
"""Around each tensor; a multiple of every alignment that a kernel may ask for."""

Status = Literal["ok", "incomplete", "error"]

_INCONCLUSIVE = {Code.GPU_OUT_OF_MEMORY, Code.GPU_PROCESS_ENDED, Code.GPU_REFUSED}


class GpuBackend:
    """Launches on a real GPU. Outputs are poisoned and tensors lie between guard bytes."""

    guard = GUARD_BYTES
    arithmetic = "exact"

    def __init__(self, toolkit: Toolkit, gpu: GpuProcess, options: GpuOptions, *, emulate: bool) -> None:
        self.name = "hopper" if emulate else "gpu"
        self.toolkit, self.gpu, self.options, self.emulate = toolkit, gpu, options, emulate
        self._lowerer = Lowerer(toolkit)

    def where(self, arch: str) -> str:
        """What runs modules for `arch`, in words: `NVIDIA H200, native` or `NVIDIA H200, emulated (eager)`.

        Raises:
            PorterError: BACKEND_UNAVAILABLE if this GPU cannot run them.
        """
        info = self.gpu.info()
        if self._native(arch, info):
            return f"{info.name}, native"
        return f"{info.name}, emulated ({self.options.mode})"

    def _native(self, arch: str, info: GpuInfo) -> bool:
        wanted = target(arch)
        capability = info.capability[0] * 10 + info.capability[1]
        if wanted.sm == capability:
            return True
        if self.emulate and wanted.sm == 100 and capability == 90:
            return False
        hint = "; --backend hopper emulates it" if wanted.sm == 100 and capability == 90 else ""
        reason = f"{info.name} ({info.arch}) does not run code for {arch}{hint}"
        raise PorterError(Code.BACKEND_UNAVAILABLE, name=self.name, reason=reason)

    def run(
        self, kernel: BuiltKernel, problem: Problem, launch: LaunchValues, images: Mapping[str, Image]
    ) -> RunResult:
        """Raises PorterError: BACKEND_UNAVAILABLE."""
        began = time.perf_counter()
        native = self._native(kernel.arch, self._available())
        where = self.where(kernel.arch)
        sites: tuple[Site, ...] = ()
        try:
            if native and kernel.cubin is not None:
                cubin = kernel.cubin
            elif native:
                cubin = assemble(self.toolkit, kernel.ptx, kernel.arch, name=kernel.entry[:80]).cubin
            else:
                emulated = self._lowerer.emulated(kernel.module, kernel.entry[:80])
                cubin, sites = emulated.cubin, emulated.sites
            result = self._launch(kernel, problem, launch, images, cubin, native)
        except PorterError as error:
            found = RunFinding(error.diagnostic.code, error.diagnostic.message, str(error.diagnostic.where or ""))
            result = RunResult("incomplete", (found,), dict(images))
        except GpuFailure as failure:
            found = trap_finding(failure, sites) or _finding(failure, kernel.entry)
            status: Status = "incomplete" if found.code in _INCONCLUSIVE else "error"
            result = RunResult(status, (found,), dict(images))
        return dataclasses.replace(result, seconds=time.perf_counter() - began, where=where)

    def _available(self) -> GpuInfo:
        try:
            return self.gpu.info()
        except GpuFailure as failure:
            raise PorterError(Code.BACKEND_UNAVAILABLE, name=self.name, reason=str(failure)) from None

    def _launch(
        self,
        kernel: BuiltKernel,
        problem: Problem,
        launch: LaunchValues,
        images: Mapping[str, Image],
        cubin: bytes,
        native: bool,
    ) -> RunResult:
        gpu = self.gpu
        problem = kernel.bound(problem)
        gpu.call("release")
        memory = _Memory(gpu, problem, images)
        before = {name: placed(image, memory.address, memory.by_value) for name, image in images.items()}
        for name, data in before.items():
            gpu.call("write", data.tobytes(), address=memory.starts[name])
        values = argument_bytes(problem, kernel.function, memory.address, memory.by_value)
        module = gpu.call("load", cubin)[0]["module"]
        emulation = None
        if not native:
            ctas = int(np.prod(launch.grid))
            emulation = Emulation(gpu, ctas, self.options)
            emulation.prepare(module)
        head, _ = gpu.call(
            "launch", b"".join(values), self.options.seconds, module=module, entry=kernel.entry,
            grid=launch.grid, block=launch.block, cluster=launch.cluster, shared=launch.dynamic_smem,
            parameters=[len(v) for v in values],
        )  # fmt: skip
        after = {}
        for name, image in images.items():
            _, found = gpu.call("read", address=memory.starts[name], size=image.data.size)
            data = recorded_again(image, before[name], np.frombuffer(found, np.uint8))
            after[name] = Image(image.tensor, image.guard, data)
        findings = tuple(emulation.left_behind(kernel.entry)) if emulation else ()
        return RunResult(
            status="error" if findings else "ok",
            findings=findings,
            after=after,
            stats={"kernel_ms": head["milliseconds"]},
        )


class _Memory:
    """The tensors of a problem on the GPU, at `starts`, and their tensor maps."""

    def __init__(self, gpu: GpuProcess, problem: Problem, images: Mapping[str, Image]) -> None:
        self.gpu, self.problem, self.images = gpu, problem, images
        self.starts = {name: self._allocated(name, image.data.size) for name, image in images.items()}

    def address(self, argument: Pointer | MapAddress) -> int:
        """What a kernel is given: the address in a tensor, or of a tensor map that is written for it."""
        if isinstance(argument, MapAddress):
            at = self._allocated(argument.tensor_map, ENCODED_BYTES)
            self.gpu.call("write", self._map(argument.tensor_map), address=at)
            return at
        return self.starts[argument.tensor] + self.images[argument.tensor].guard + argument.offset

    def by_value(self, argument: MapValue) -> bytes:
        return self._map(argument.tensor_map)

    def _allocated(self, name: str, size: int) -> int:
        return int(self.gpu.call("allocate", size=size, name=name)[0]["address"])

    def _map(self, name: str) -> bytes:
        bound = self.problem.tensor_maps[name]
        base = self.starts[bound.tensor] + self.images[bound.tensor].guard
        map_ = dataclasses.replace(bound.map, address=base + bound.map.address)
        fields = {f.name: getattr(map_, f.name) for f in dataclasses.fields(map_)}
        return self.gpu.call("tensor_map", map=fields)[1]


class AutoBackend:
    """Each module on the GPU if that can run it, else on the simulator, with the hardware's arithmetic."""

    name = "auto"
    guard = GUARD_BYTES
    arithmetic = "exact"

    def __init__(self, gpu: GpuBackend, options: SimOptions) -> None:
        self.gpu = gpu
        self.sim = SimBackend(dataclasses.replace(options, arithmetic="exact"))

    def run(
        self, kernel: BuiltKernel, problem: Problem, launch: LaunchValues, images: Mapping[str, Image]
    ) -> RunResult:
        try:
            self.gpu.where(kernel.arch)
        except PorterError:
            result = self.sim.run(kernel, problem, launch, images)
            return dataclasses.replace(result, where="sim")
        return self.gpu.run(kernel, problem, launch, images)


def make_gpu_backend(name: str, options: SimOptions) -> Backend:
    """The backend of this name; `auto` is the simulator where there is no GPU.

    Raises:
        PorterError: BACKEND_UNAVAILABLE, NO_TOOLKIT, BAD_TOOLKIT.
    """
    process = GpuProcess()
    toolkit = dataclasses.replace(find_toolkit(options.gpu.toolkit), tmem_check=options.gpu.tmem_check)
    backend = GpuBackend(toolkit, process, options.gpu, emulate=name != "gpu")
    try:
        info = process.info()
    except (PorterError, GpuFailure) as failure:
        process.close()
        if name == "auto":
            return SimBackend(options)
        reason = failure.diagnostic.values["reason"] if isinstance(failure, PorterError) else str(failure)
        raise PorterError(Code.BACKEND_UNAVAILABLE, name=name, reason=reason) from None
    if name == "auto":
        return AutoBackend(backend, options)
    if name == "hopper" and info.capability[0] != 9:
        raise PorterError(Code.BACKEND_UNAVAILABLE, name=name, reason=f"{info.name} ({info.arch}) is no Hopper GPU")
    return backend


def _finding(failure: GpuFailure, kernel: str) -> RunFinding:
    message = str(failure)
    if failure.detail:
        message += "\n" + failure.detail
    return RunFinding(failure.code, message, kernel=kernel)
