# SPDX-License-Identifier: Apache-2.0
"""The simulated device that a program talks to: its modules, memory and launches.

`SimulatedDevice.answer` takes one request of the stand-in runtime and gives the reply. It refuses what a
GPU would refuse (a launch with more dynamic shared memory than was opted in to, a copy past an allocation's
end) with the same `cudaError_t`. A launch runs to its end in `porter.sim.simulate`; a run that is not *ok*
becomes `cudaErrorLaunchFailure`, which a program cannot clear.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from porter.diagnostics import Code, Diagnostic
from porter.ptx import arch, ast
from porter.ptx.parser import PtxSyntaxError, parse_module
from porter.ptx.tensormap import (
    TensorMap,
    TensorMapInterleave,
    TensorMapL2Promotion,
    TensorMapSwizzle,
    TensorMapType,
)
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate
from porter.verify.program.arena import Arena
from porter.verify.program.fatbin import KIND_PTX, FatbinError, Image, images
from porter.verify.program.protocol import Op, Reader, Status, words

Dim = tuple[int, int, int]

# cudaFuncAttribute (CUDA runtime API, driver_types.h).
_MAX_DYNAMIC_SHARED = 8


@dataclass(frozen=True)
class LaunchRecord:
    """One launch: grid in blocks, block in threads, `dynamic_smem` in bytes, `params` one item each.

    `allocations` are address and size of what was allocated when it began, oldest first. `outcome` is None
    before the run. `repeated` says that the launch was not simulated again, because the one
    before it was the same, ran on the same memory and left it as it was.
    """

    kernel: str
    grid: Dim
    block: Dim
    cluster: Dim
    dynamic_smem: int
    params: tuple[bytes, ...]
    allocations: tuple[tuple[int, int], ...]
    outcome: Outcome | None = None
    printed: str = ""
    repeated: bool = False


LaunchHook = Callable[[Literal["before", "after"], LaunchRecord, GlobalMemory], None]


@dataclass
class _Module:
    images: list[Image]
    parsed: ast.Module | None = None


@dataclass
class _Kernel:
    module: _Module
    name: str
    dynamic_limit: int


@dataclass
class SimulatedDevice:
    """One device with one program on it.

    `target` is the chip, `sm_90a` or `sm_100a` (default: the newest that the program has an image for); of
    the program's PTX images the newest that this chip takes is run. `multiprocessors` is what the device
    reports; persistent kernels size their grid by it.
    """

    arena: Arena
    options: Options
    target: str | None = None
    multiprocessors: int = 8
    on_launch: LaunchHook | None = None
    launches: list[LaunchRecord] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _modules: dict[int, _Module] = field(default_factory=dict)
    _kernels: dict[int, _Kernel] = field(default_factory=dict)
    _symbols: dict[int, str] = field(default_factory=dict)
    _state_after: tuple[LaunchRecord, bytes, bytes] | None = None

    def answer(self, op: Op, request: Reader) -> tuple[Status, bytes]:
        """The reply to one request. Raises ValueError if the request is malformed."""
        return _ANSWERS[op](self, request)

    # --- What the device is

    @property
    def _chip(self) -> str:
        if self.target:
            return self.target
        found = [image.arch for module in self._modules.values() for image in module.images]
        return f"sm_{max((number for number in found if number in arch.LIMITS), default=90)}"

    def _device(self, _: Reader) -> tuple[Status, bytes]:
        sm = arch.target(self._chip).sm
        limits = arch.limits(self._chip)
        return Status.SUCCESS, words(
            sm // 10,
            sm % 10,
            self.multiprocessors,
            32,
            limits.threads_per_block,
            limits.warps_per_sm * 32,
            limits.blocks_per_sm,
            limits.registers_per_sm,
            limits.shared_per_block_default,
            limits.shared_per_block,
            limits.shared_per_sm,
            limits.shared_reserved,
            self.arena.capacity,
            0,
        )

    # --- Modules and functions

    def _register_binary(self, request: Reader) -> tuple[Status, bytes]:
        handle = len(self._modules) + 1
        try:
            found = images(request.rest())
        except FatbinError as error:
            self._refuse(Code.PROGRAM_NO_PTX, kernel="*", reason=str(error))
            found = []
        self._modules[handle] = _Module(found)
        return Status.SUCCESS, words(handle)

    def _register_function(self, request: Reader) -> tuple[Status, bytes]:
        module = self._modules[request.u64()]
        stub = request.u64()
        self._kernels[stub] = _Kernel(module, request.text(), arch.limits("sm_90").shared_per_block_default)
        return Status.SUCCESS, b""

    def _register_variable(self, request: Reader) -> tuple[Status, bytes]:
        request.u64()
        host = request.u64()
        request.u64()
        request.u32()
        self._symbols[host] = request.text()
        return Status.SUCCESS, b""

    def _parsed(self, kernel: _Kernel) -> ast.Function | Status:
        """The kernel's function, its module read on first use; a status if there is none."""
        module = kernel.module
        if module.parsed is None:
            chip = arch.target(self._chip).sm
            fitting = [i for i in module.images if i.kind == KIND_PTX and _runs_on(i.target, chip)]
            if not fitting:
                kinds = {KIND_PTX: "PTX"}
                there = ", ".join(f"{kinds.get(i.kind, 'binary')} for {i.target}" for i in module.images)
                reason = f"sm_{chip} cannot run what there is ({there or 'nothing'})"
                self._refuse(Code.PROGRAM_NO_PTX, kernel=kernel.name, reason=reason)
                return Status.NO_KERNEL_IMAGE
            try:
                module.parsed = parse_module(max(fitting, key=lambda i: i.arch).ptx)
            except FatbinError as error:
                self._refuse(Code.PROGRAM_NO_PTX, kernel=kernel.name, reason=str(error))
                return Status.NO_KERNEL_IMAGE
            except PtxSyntaxError as error:
                self._refuse(Code.PROGRAM_NO_PTX, kernel=kernel.name, reason=f"cannot be read: {error}")
                return Status.INVALID_PTX
        try:
            return module.parsed.function(kernel.name)
        except KeyError:
            return Status.INVALID_DEVICE_FUNCTION

    def _function(self, request: Reader) -> tuple[Status, bytes]:
        kernel = self._kernels.get(request.u64())
        if kernel is None:
            return Status.INVALID_DEVICE_FUNCTION, b""
        function = self._parsed(kernel)
        if isinstance(function, Status):
            return function, b""
        assert kernel.module.parsed is not None
        version = kernel.module.parsed.version
        return Status.SUCCESS, words(
            _static_shared(kernel.module.parsed, function),
            0,
            _threads_allowed(function) or arch.limits(self._chip).threads_per_block,
            version[0] * 10 + version[1],
            arch.target(self._chip).sm,
            kernel.dynamic_limit,
            *(p.size for p in function.params),
        )

    def _set_attribute(self, request: Reader) -> tuple[Status, bytes]:
        kernel = self._kernels.get(request.u64())
        attribute, value = request.u32(), request.u32()
        if kernel is None:
            return Status.INVALID_DEVICE_FUNCTION, b""
        if attribute == _MAX_DYNAMIC_SHARED:
            function = self._parsed(kernel)
            if isinstance(function, Status):
                return function, b""
            assert kernel.module.parsed is not None
            static = _static_shared(kernel.module.parsed, function)
            if value + static > arch.limits(self._chip).shared_per_block:
                return Status.INVALID_VALUE, b""
            kernel.dynamic_limit = value
        return Status.SUCCESS, b""

    # --- Memory

    def _allocate(self, request: Reader) -> tuple[Status, bytes]:
        address = self.arena.allocate(request.u64())
        return (Status.MEMORY_ALLOCATION, words(0)) if address is None else (Status.SUCCESS, words(address))

    def _release(self, request: Reader) -> tuple[Status, bytes]:
        return (Status.SUCCESS if self.arena.release(request.u64()) else Status.INVALID_VALUE), b""

    def _check_range(self, request: Reader) -> tuple[Status, bytes]:
        inside = self.arena.holds(request.u64(), request.u64())
        return (Status.SUCCESS if inside else Status.INVALID_VALUE), b""

    def _memory_info(self, _: Reader) -> tuple[Status, bytes]:
        return Status.SUCCESS, words(self.arena.capacity - self.arena.used, self.arena.capacity)

    def _symbol(self, request: Reader) -> tuple[Status, bytes]:
        name = self._symbols.get(request.u64(), "?")
        self._refuse(Code.PROGRAM_UNANSWERED, function=f"cudaGetSymbolAddress for {name}")
        return Status.INVALID_SYMBOL, b""

    def _tensor_map(self, request: Reader) -> tuple[Status, bytes]:
        dtype, rank, address = request.u32(), request.u32(), request.u64()
        interleave, swizzle, promotion, fill = (request.u32() for _ in range(4))
        try:
            made = TensorMap(
                dtype=TensorMapType(dtype),
                address=address,
                sizes=tuple(request.u64() for _ in range(rank)),
                strides=tuple(request.u64() for _ in range(rank - 1)),
                box=tuple(request.u32() for _ in range(rank)),
                element_strides=tuple(request.u32() for _ in range(rank)),
                swizzle=TensorMapSwizzle(swizzle),
                interleave=TensorMapInterleave(interleave),
                oob_nan=bool(fill),
                l2_promotion=TensorMapL2Promotion(promotion),
            )
            return Status.SUCCESS, made.encode()
        except ValueError:
            return Status.INVALID_VALUE, b""

    # --- Launches

    def _launch(self, request: Reader) -> tuple[Status, bytes]:
        kernel = self._kernels[request.u64()]
        grid, block, cluster, dynamic_smem = request.dim(), request.dim(), request.dim(), request.u32()
        function = self._parsed(kernel)
        if isinstance(function, Status):
            return function, b""
        module = kernel.module.parsed
        assert module is not None
        fixed = _dimensions(function.directives.get("reqnctapercluster"))
        if fixed and cluster not in ((0, 0, 0), fixed):
            return Status.INVALID_CLUSTER_SIZE, b""
        cluster = fixed or (cluster if any(cluster) else (1, 1, 1))
        params = tuple(request.take(p.size) for p in function.params)
        live = tuple((a.address, a.size) for a in self.arena.live.values())
        record = LaunchRecord(kernel.name, grid, block, cluster, dynamic_smem, params, live)
        refused = self._refused(record, function, kernel.dynamic_limit)
        if refused is not None:
            return refused, b""

        record = self._run(record, module, function)
        self.launches.append(record)
        assert record.outcome is not None
        status = Status.SUCCESS if record.outcome.status == "ok" else Status.LAUNCH_FAILURE
        return status, record.printed.encode()

    def _run(self, record: LaunchRecord, module: ast.Module, function: ast.Function) -> LaunchRecord:
        memory = self.arena.memory
        if self.on_launch:
            self.on_launch("before", record, memory)
        before = self._memory_digest()
        if self._state_after == (record, before, before):
            previous = self.launches[-1]
            done = replace(record, outcome=previous.outcome, printed=previous.printed, repeated=True)
        else:
            printed: list[str] = []
            outcome = simulate(
                module,
                function.name,
                Launch(record.grid, record.block, record.cluster, record.dynamic_smem),
                pack_params(function, list(record.params)),
                memory,
                replace(self.options, print=printed.append),
            )
            done = replace(record, outcome=outcome, printed="".join(printed))
            self._state_after = (record, before, self._memory_digest())
        if self.on_launch:
            self.on_launch("after", done, memory)
        return done

    def _refused(self, launch: LaunchRecord, function: ast.Function, dynamic_limit: int) -> Status | None:
        """The error a GPU answers this launch with, or None if it would run."""
        limits = arch.limits(self._chip)
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        if not all(launch.grid) or not 0 < threads <= limits.threads_per_block:
            return Status.INVALID_CONFIGURATION
        allowed = _threads_allowed(function)
        if allowed is not None and threads > allowed:
            return Status.INVALID_VALUE
        if launch.dynamic_smem > dynamic_limit:
            return Status.INVALID_VALUE
        blocks = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
        uneven = any(g % c for g, c in zip(launch.grid, launch.cluster, strict=True))
        if blocks > limits.cluster_max or uneven:
            return Status.INVALID_CLUSTER_SIZE
        return None

    def _memory_digest(self) -> bytes:
        digest = hashlib.blake2b(digest_size=16)
        for allocation in self.arena.live.values():
            digest.update(allocation.address.to_bytes(8, "little"))
            digest.update(self.arena.memory.view(allocation.address, allocation.size))
        return digest.digest()

    # --- What cannot be answered

    def _unanswered(self, request: Reader) -> tuple[Status, bytes]:
        self._refuse(Code.PROGRAM_UNANSWERED, function=request.text())
        return Status.SUCCESS, b""

    def _refuse(self, code: Code, **values: str) -> None:
        diagnostic = Diagnostic(code, values=dict(values))
        if diagnostic not in self.diagnostics:
            self.diagnostics.append(diagnostic)


def _runs_on(target: str, chip: int) -> bool:
    """Whether a chip takes PTX for `target`: with `a` for that chip alone, with `f` for later ones of its
    family, without a letter for all later ones (PTX ISA 9.0, .target)."""
    suffix = target[-1] if target[-1] in "af" else ""
    number = int(target.removeprefix("sm_").removesuffix(suffix))
    if suffix == "a":
        return number == chip
    return number <= chip and (not suffix or number // 10 == chip // 10)


def _dimensions(directive: tuple[int, ...] | None) -> Dim | None:
    """`.maxntid 128` is (128, 1, 1)."""
    if not directive:
        return None
    x, y, z = (*directive, 1, 1)[:3]
    return x, y, z


def _threads_allowed(function: ast.Function) -> int | None:
    bound = _dimensions(function.directives.get("reqntid")) or _dimensions(function.directives.get("maxntid"))
    return bound[0] * bound[1] * bound[2] if bound else None


def _static_shared(module: ast.Module, function: ast.Function) -> int:
    """Bytes of the shared variables with a size that the kernel, or any function it may call, names."""
    bodies = [function.body, *(f.body for f in module.functions if not f.is_entry)]
    statements = [s for body in bodies for s in _flattened(body or ())]
    declared = [*module.variables, *(s for s in statements if isinstance(s, ast.VarDecl))]
    code = "\n".join(s.text for s in statements if isinstance(s, ast.Instruction))
    total = 0
    for variable in declared:
        if variable.space == "shared" and not variable.extern and variable.name in code:
            total = -(-total // variable.align) * variable.align + variable.size
    return total


def _flattened(body: tuple[ast.Statement, ...]) -> Iterator[ast.Statement]:
    for statement in body:
        if isinstance(statement, ast.Block):
            yield from _flattened(statement.body)
        else:
            yield statement


_ANSWERS: dict[Op, Callable[[SimulatedDevice, Reader], tuple[Status, bytes]]] = {
    Op.DEVICE: SimulatedDevice._device,
    Op.REGISTER_BINARY: SimulatedDevice._register_binary,
    Op.REGISTER_FUNCTION: SimulatedDevice._register_function,
    Op.REGISTER_VARIABLE: SimulatedDevice._register_variable,
    Op.FUNCTION: SimulatedDevice._function,
    Op.SET_ATTRIBUTE: SimulatedDevice._set_attribute,
    Op.ALLOCATE: SimulatedDevice._allocate,
    Op.RELEASE: SimulatedDevice._release,
    Op.CHECK_RANGE: SimulatedDevice._check_range,
    Op.LAUNCH: SimulatedDevice._launch,
    Op.TENSOR_MAP: SimulatedDevice._tensor_map,
    Op.SYMBOL: SimulatedDevice._symbol,
    Op.MEMORY_INFO: SimulatedDevice._memory_info,
    Op.UNANSWERED: SimulatedDevice._unanswered,
}
