# SPDX-License-Identifier: Apache-2.0
"""The simulated device that a program talks to: its modules, memory and launches.

`SimulatedDevice.answer` takes one request of the stand-in runtime and gives the reply. It refuses what a
GPU would refuse (a launch with more dynamic shared memory than was opted in to, a copy past an allocation's
end) with the same `cudaError_t`. A launch runs to its end in `porter.sim.simulate`; a run that is not *ok*
becomes `cudaErrorLaunchFailure`, which a program cannot clear.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from porter.build.entry import kernel_name
from porter.build.ptxas import assemble
from porter.build.toolchain import find_toolkit
from porter.diagnostics import Code, Diagnostic, PorterError
from porter.ptx import arch, ast
from porter.ptx.initial import initial_bytes
from porter.ptx.occupancy import Taken, resident
from porter.ptx.parser import PtxSyntaxError, parse_module
from porter.ptx.tensormap import (
    TensorMap,
    TensorMapInterleave,
    TensorMapL2Promotion,
    TensorMapSwizzle,
    TensorMapType,
    TensorMapWide,
    maps_in,
)
from porter.sim import GlobalMemory, Launch, Options, Outcome, Stats, pack_params, simulate
from porter.verify.program.arena import Arena
from porter.verify.program.fatbin import KIND_PTX, FatbinError, Image, images
from porter.verify.program.kernel_facts import Dim, KernelFacts, kernel_facts, runs_on
from porter.verify.program.protocol import MAX_DYNAMIC_SHARED, Op, Reader, Status, words

# cudaFuncAttribute (CUDA runtime API, driver_types.h).
_NON_PORTABLE_CLUSTER = 14
# CUDA C++ Programming Guide, thread block clusters: what every chip with clusters takes.
_PORTABLE_CLUSTER = 8


@dataclass(frozen=True)
class LaunchRecord:
    """One launch: grid in blocks, block in threads, `dynamic_smem` in bytes, `params` one item each.

    `allocations` are address and size of what was allocated when it began, oldest first, `maps` the tensor maps in
    device memory then, by address, `as_begun` the variables of its module that held what they begin with. `overlaps`:
    it may begin before the launch ahead of it ends (programmatic stream serialization). `ptx` is the kernel's module.
    `outcome` is None before the run. `repeated` says that the launch was not simulated again, because the one before it
    was the same, ran on the same memory and left it as it was; its statistics are empty.
    """

    kernel: str
    grid: Dim
    block: Dim
    cluster: Dim
    dynamic_smem: int
    params: tuple[bytes, ...]
    allocations: tuple[tuple[int, int], ...]
    cooperative: bool = False
    overlaps: bool = False
    outcome: Outcome | None = None
    printed: str = ""
    repeated: bool = False
    ptx: str = field(default="", repr=False, compare=False)
    maps: Mapping[int, bytes] = field(default_factory=dict, repr=False, compare=False)
    as_begun: frozenset[str] = field(default=frozenset(), repr=False, compare=False)


LaunchHook = Callable[[Literal["before", "after"], LaunchRecord, GlobalMemory], None]


@dataclass
class _Module:
    images: list[Image]
    parsed: ast.Module | None = None
    variables: dict[str, int] | None = None
    begun: dict[str, bytes] = field(default_factory=dict)
    """What variables begin with."""
    text: str = ""


@dataclass
class _Kernel:
    module: _Module
    name: str
    dynamic_limit: int
    any_cluster: bool = False
    loaded: _Loaded | None = None
    taken: Taken | None = None


@dataclass(frozen=True)
class _Loaded:
    """A kernel that is known to be there: its parsed module, its function, and what that says of launches."""

    module: ast.Module
    function: ast.Function
    facts: KernelFacts


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
    looks_at: Callable[[str], bool] = lambda kernel: True
    """Kernels in which hazards are looked for, by their mangled names; others only run."""
    launches: list[LaunchRecord] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    _modules: dict[int, _Module] = field(default_factory=dict)
    _kernels: dict[int, _Kernel] = field(default_factory=dict)
    _symbols: dict[int, tuple[_Module, str, int]] = field(default_factory=dict)
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
            arch.WARP,
            limits.threads_per_block,
            limits.warps_per_sm * arch.WARP,
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
        module = self._modules[request.u64()]
        host, size = request.u64(), request.u64()
        request.u32()
        self._symbols[host] = module, request.text(), size
        return Status.SUCCESS, b""

    def _load(self, kernel: _Kernel) -> _Loaded | Status:
        """The kernel, its module read on first use; the error that a GPU answers with if it cannot be had."""
        if kernel.loaded is None:
            module = self._parse(kernel.module, kernel.name)
            if isinstance(module, Status):
                return module
            try:
                function = module.function(kernel.name)
            except KeyError:
                return Status.INVALID_DEVICE_FUNCTION
            kernel.loaded = _Loaded(module, function, kernel_facts(module, function))
        return kernel.loaded

    def _parse(self, module: _Module, wanted: str) -> ast.Module | Status:
        if module.parsed is None:
            chip = arch.target(self._chip).sm
            fitting = [i for i in module.images if i.kind == KIND_PTX and runs_on(i.target, chip)]
            try:
                if not fitting:
                    kinds = {KIND_PTX: "PTX"}
                    there = ", ".join(f"{kinds.get(i.kind, 'binary')} for {i.target}" for i in module.images)
                    raise FatbinError(f"sm_{chip} cannot run what there is ({there or 'nothing'})")
                module.text = max(fitting, key=lambda i: i.arch).ptx
                module.parsed = parse_module(module.text)
            except FatbinError as error:
                self._refuse(Code.PROGRAM_NO_PTX, kernel=wanted, reason=str(error))
                return Status.NO_KERNEL_IMAGE
            except PtxSyntaxError as error:
                self._refuse(Code.PROGRAM_NO_PTX, kernel=wanted, reason=f"cannot be read: {error}")
                return Status.INVALID_PTX
        return module.parsed

    def _function(self, request: Reader) -> tuple[Status, bytes]:
        kernel = self._kernels.get(request.u64())
        if kernel is None:
            return Status.INVALID_DEVICE_FUNCTION, b""
        loaded = self._load(kernel)
        if isinstance(loaded, Status):
            return loaded, b""
        version = loaded.module.version
        return Status.SUCCESS, words(
            loaded.facts.static_shared,
            0,
            loaded.facts.max_threads or arch.limits(self._chip).threads_per_block,
            version[0] * 10 + version[1],
            arch.target(self._chip).sm,
            kernel.dynamic_limit,
            self._cluster_limit(kernel),
            *(p.size for p in loaded.function.params),
        )

    def _occupancy(self, request: Reader) -> tuple[Status, bytes]:
        """How many blocks share a multiprocessor, as CUDA counts them: without their columns of Tensor Memory."""
        kernel = self._kernels.get(request.u64())
        threads, dynamic = request.u32(), request.u64()
        if kernel is None:
            return Status.INVALID_DEVICE_FUNCTION, b""
        loaded = self._load(kernel)
        if isinstance(loaded, Status):
            return loaded, b""
        taken = replace(self._taken(kernel, loaded), threads=threads, shared=loaded.facts.static_shared + dynamic)
        return Status.SUCCESS, words(resident(taken, arch.limits(self._chip)).blocks)

    def _taken(self, kernel: _Kernel, loaded: _Loaded) -> Taken:
        """What ptxas gives a block of a kernel; nothing where there is none to ask, or no answer."""
        if kernel.taken is None:
            kernel.taken = Taken()
            with suppress(PorterError):
                done = assemble(find_toolkit(), kernel.module.text, loaded.module.target, name=kernel.name[:80])
                if (used := done.resources.get(kernel.name)) is not None:
                    kernel.taken = used.taken
        return kernel.taken

    def _set_attribute(self, request: Reader) -> tuple[Status, bytes]:
        kernel = self._kernels.get(request.u64())
        attribute, value = request.u32(), request.u32()
        if kernel is None:
            return Status.INVALID_DEVICE_FUNCTION, b""
        if attribute == MAX_DYNAMIC_SHARED:
            loaded = self._load(kernel)
            if isinstance(loaded, Status):
                return loaded, b""
            if value + loaded.facts.static_shared > arch.limits(self._chip).shared_per_block:
                return Status.INVALID_VALUE, b""
            kernel.dynamic_limit = value
        elif attribute == _NON_PORTABLE_CLUSTER:
            kernel.any_cluster = bool(value)
        return Status.SUCCESS, b""

    def _function_name(self, request: Reader) -> tuple[Status, bytes]:
        kernel = self._kernels.get(request.u64())
        return (Status.INVALID_DEVICE_FUNCTION, b"") if kernel is None else (Status.SUCCESS, kernel.name.encode())

    def _cluster_limit(self, kernel: _Kernel) -> int:
        most = arch.limits(self._chip).cluster_max
        return most if kernel.any_cluster else min(most, _PORTABLE_CLUSTER)

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
        """Address and size of the `__device__`, `__constant__` or `__managed__` variable that the host knows by
        this address."""
        found = self._symbols.get(request.u64())
        if found is None:
            return Status.INVALID_SYMBOL, b""
        module, name, size = found
        parsed = self._parse(module, name)
        if isinstance(parsed, Status):
            return parsed, b""
        address = self._variables(module, parsed).get(name)
        return (Status.INVALID_SYMBOL, b"") if address is None else (Status.SUCCESS, words(address, size))

    def _variables(self, module: _Module, parsed: ast.Module) -> dict[str, int]:
        """Addresses of a module's variables, which keep what launches and copies leave in them."""
        if module.variables is None:
            addresses: dict[str, int] = {}
            placed = [v for v in parsed.variables if v.space in ("global", "const") and not v.extern]
            for v in placed:
                address = self.arena.allocate(max(v.size, 1), fill=0, hidden=True)
                if address is not None:
                    addresses[v.name] = address
            for v in placed:
                if v.initial and v.name in addresses:
                    module.begun[v.name] = initial_bytes(v, addresses)[: v.size].ljust(v.size, b"\0")
                    self.arena.memory.write(addresses[v.name], module.begun[v.name])
            module.variables = addresses
        return module.variables

    def _as_begun(self, module: _Module, parsed: ast.Module) -> frozenset[str]:
        """The variables of a module that nobody has written to."""
        addresses = self._variables(module, parsed)
        return frozenset(
            name
            for name, data in module.begun.items()
            if self.arena.memory.read(addresses[name], len(data)).tobytes() == data
        )

    def _alias(self, request: Reader) -> tuple[Status, bytes]:
        self.arena.alias(request.u64(), request.u64(), request.u64())
        return Status.SUCCESS, b""

    def _tensor_map(self, request: Reader) -> tuple[Status, bytes]:
        form, dtype, rank, address = request.u32(), request.u32(), request.u32(), request.u64()
        corners = (0, rank - 2, 1, 1)[form]
        interleave, swizzle, promotion, fill = (request.u32() for _ in range(4))
        try:
            made = TensorMap(
                dtype=TensorMapType(dtype),
                address=address,
                sizes=tuple(request.u64() for _ in range(rank)),
                strides=tuple(request.u64() for _ in range(rank - 1)),
                box=tuple(request.u32() for _ in range(2 if form else rank)),
                element_strides=tuple(request.u32() for _ in range(rank)),
                lower=tuple(request.i32() for _ in range(corners)),
                upper=tuple(request.i32() for _ in range(corners)),
                wide=TensorMapWide(form - 2) if form > 1 else None,
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
        cooperative, overlaps = bool(request.u32()), bool(request.u32())
        loaded = self._load(kernel)
        if isinstance(loaded, Status):
            return loaded, b""
        fixed = loaded.facts.cluster
        if fixed and cluster not in ((0, 0, 0), fixed):
            return Status.INVALID_CLUSTER_SIZE, b""
        cluster = fixed or (cluster if any(cluster) else (1, 1, 1))
        params = tuple(request.take(p.size) for p in loaded.function.params)
        live = tuple((a.address, a.size) for a in self.arena.live.values())
        text = kernel.module.text
        record = LaunchRecord(
            kernel.name, grid, block, cluster, dynamic_smem, params, live, cooperative, overlaps, ptx=text,
            maps=self._maps(), as_begun=self._as_begun(kernel.module, loaded.module),
        )  # fmt: skip
        refused = self._refused(record, loaded.facts, kernel)
        if refused is not None:
            return refused, b""
        record = self._run(record, kernel, loaded)
        self.launches.append(record)
        assert record.outcome is not None
        status = Status.SUCCESS if record.outcome.status == "ok" else Status.LAUNCH_FAILURE
        return status, record.printed.encode()

    def _maps(self) -> dict[int, bytes]:
        held = (*self.arena.live.values(), *self.arena.hidden.values())
        return {
            a.address + at: found
            for a in held
            for at, found in maps_in(self.arena.memory.read(a.address, a.size).tobytes()).items()
        }

    def _run(self, record: LaunchRecord, kernel: _Kernel, loaded: _Loaded) -> LaunchRecord:
        memory, variables = self.arena.memory, self._variables(kernel.module, loaded.module)
        if self.on_launch:
            self.on_launch("before", record, memory)
        before = self._memory_digest()
        if self._state_after == (record, before, before):
            previous = self.launches[-1]
            assert previous.outcome is not None
            outcome = replace(previous.outcome, stats=Stats())
            done = replace(record, outcome=outcome, printed=previous.printed, repeated=True)
        else:
            printed: list[str] = []
            looked_at = self.looks_at(record.kernel)
            earlier = self.launches[-1] if record.overlaps and self.launches else None
            if looked_at and earlier is not None and not self.looks_at(earlier.kernel):
                names = {"kernel": kernel_name(record.kernel), "earlier": kernel_name(earlier.kernel)}
                self._refuse(Code.KERNEL_NOT_LOOKED_AT, **names)
                earlier = None
            on_device = replace(
                self.options,
                mode=self.options.mode if looked_at else "functional",
                print=printed.append,
                multiprocessors=self.multiprocessors,
                taken=partial(self._taken, kernel, loaded),
            )
            outcome = simulate(
                loaded.module,
                loaded.function.name,
                Launch(record.grid, record.block, record.cluster, record.dynamic_smem, record.cooperative),
                pack_params(loaded.function, list(record.params)),
                memory,
                on_device,
                variables,
                earlier.outcome if earlier is not None else None,
            )
            done = replace(record, outcome=outcome, printed="".join(printed))
            self._state_after = (record, before, self._memory_digest())
        if self.on_launch:
            self.on_launch("after", done, memory)
        return done

    def _refused(self, launch: LaunchRecord, facts: KernelFacts, kernel: _Kernel) -> Status | None:
        """The error a GPU answers this launch with, or None if it would run."""
        limits = arch.limits(self._chip)
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        if not all(launch.grid) or not 0 < threads <= limits.threads_per_block:
            return Status.INVALID_CONFIGURATION
        if threads > (facts.max_threads or limits.threads_per_block) or launch.dynamic_smem > kernel.dynamic_limit:
            return Status.INVALID_VALUE
        blocks = launch.cluster[0] * launch.cluster[1] * launch.cluster[2]
        uneven = any(g % c for g, c in zip(launch.grid, launch.cluster, strict=True))
        if blocks > (limits.cluster_max if facts.cluster else self._cluster_limit(kernel)) or uneven:
            return Status.INVALID_CLUSTER_SIZE
        return None

    def _memory_digest(self) -> bytes:
        digest = hashlib.blake2b(digest_size=16)
        for allocation in (*self.arena.live.values(), *self.arena.hidden.values()):
            digest.update(allocation.address.to_bytes(8, "little"))
            digest.update(self.arena.memory.view(allocation.address, allocation.size).data)
        return digest.digest()

    # --- What cannot be answered

    def _unanswered(self, request: Reader) -> tuple[Status, bytes]:
        self._refuse(Code.PROGRAM_UNANSWERED, function=request.text())
        return Status.SUCCESS, b""

    def _refuse(self, code: Code, **values: str) -> None:
        diagnostic = Diagnostic(code, values=dict(values))
        if diagnostic not in self.diagnostics:
            self.diagnostics.append(diagnostic)


_ANSWERS: dict[Op, Callable[[SimulatedDevice, Reader], tuple[Status, bytes]]] = {
    Op.DEVICE: SimulatedDevice._device,
    Op.REGISTER_BINARY: SimulatedDevice._register_binary,
    Op.REGISTER_FUNCTION: SimulatedDevice._register_function,
    Op.REGISTER_VARIABLE: SimulatedDevice._register_variable,
    Op.FUNCTION: SimulatedDevice._function,
    Op.OCCUPANCY: SimulatedDevice._occupancy,
    Op.SET_ATTRIBUTE: SimulatedDevice._set_attribute,
    Op.ALLOCATE: SimulatedDevice._allocate,
    Op.RELEASE: SimulatedDevice._release,
    Op.CHECK_RANGE: SimulatedDevice._check_range,
    Op.LAUNCH: SimulatedDevice._launch,
    Op.TENSOR_MAP: SimulatedDevice._tensor_map,
    Op.SYMBOL: SimulatedDevice._symbol,
    Op.MEMORY_INFO: SimulatedDevice._memory_info,
    Op.UNANSWERED: SimulatedDevice._unanswered,
    Op.FUNCTION_NAME: SimulatedDevice._function_name,
    Op.ALIAS: SimulatedDevice._alias,
}
