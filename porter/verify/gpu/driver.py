# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver as the GPU process uses it: few calls, every status looked at.

Source: CUDA driver API (cuInit, cuModuleLoadData, cuLaunchKernelEx, cuTensorMapEncodeTiled).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

MINIMUM_DRIVER = 12080
"""cuDriverGetVersion of the first driver that loads modules of CUDA 12.8, which first knows PTX for sm_100a."""

REPORT_BYTES = 4096


class Unavailable(Exception):
    """There is no GPU that can be used; says why."""


class DriverError(Exception):
    """A call failed. `name` is the CUresult; `fatal` says that the context is lost."""

    def __init__(self, call: str, name: str, text: str, fatal: bool) -> None:
        super().__init__(f"{name} ({text})" if text else name)
        self.call, self.name, self.fatal = call, name, fatal


_KEEPS_CONTEXT = {
    "CUDA_ERROR_INVALID_VALUE",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUDA_ERROR_INVALID_IMAGE",
    "CUDA_ERROR_INVALID_PTX",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    "CUDA_ERROR_NO_BINARY_FOR_GPU",
    "CUDA_ERROR_NOT_FOUND",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE",
    "CUDA_ERROR_NOT_SUPPORTED",
}


class Driver:
    """One context on one device."""

    def __init__(self, ordinal: int = 0) -> None:
        try:
            from cuda.bindings import driver  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            raise Unavailable("cuda-bindings is not installed (pip install 'porter-sm100[gpu]')") from None
        self.cuda: Any = driver
        try:
            self._call("cuInit", 0)
        except DriverError as error:
            raise Unavailable(f"the driver does not start: {error}") from None
        except Exception as error:
            # The bindings have exceptions of their own for a library that cannot be loaded.
            raise Unavailable(f"no NVIDIA driver: {type(error).__name__}") from None
        self.version = int(self._call("cuDriverGetVersion"))
        if self.version < MINIMUM_DRIVER:
            raise Unavailable(f"the driver is for CUDA {_dotted(self.version)}; {_dotted(MINIMUM_DRIVER)} is needed")
        if ordinal >= int(self._call("cuDeviceGetCount")):
            raise Unavailable("there is no NVIDIA GPU")
        self.device = self._call("cuDeviceGet", ordinal)
        self.context = self._call("cuDevicePrimaryCtxRetain", self.device)
        self._call("cuCtxSetCurrent", self.context)
        flags = driver.CU_MEMHOSTALLOC_DEVICEMAP
        self.report_host = int(self._call("cuMemHostAlloc", REPORT_BYTES, flags))
        self.report_device = int(self._call("cuMemHostGetDevicePointer", self.report_host, 0))
        self.allocations: list[int] = []

    def _call(self, name: str, *arguments: Any) -> Any:
        status, *values = getattr(self.cuda, name)(*arguments)
        if int(status) != 0:
            _, text = self.cuda.cuGetErrorString(status)
            words = text.decode() if isinstance(text, bytes) else ""
            raise DriverError(name, status.name, words, status.name not in _KEEPS_CONTEXT)
        if not values:
            return None
        return values[0] if len(values) == 1 else tuple(values)

    def _attribute(self, name: str) -> int:
        which = getattr(self.cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._call("cuDeviceGetAttribute", which, self.device))

    def info(self) -> dict[str, Any]:
        name = self._call("cuDeviceGetName", 128, self.device)
        return {
            "name": name.split(b"\0")[0].decode(),
            "capability": [
                self._attribute("COMPUTE_CAPABILITY_MAJOR"),
                self._attribute("COMPUTE_CAPABILITY_MINOR"),
            ],
            "driver": self.version,
            "multiprocessors": self._attribute("MULTIPROCESSOR_COUNT"),
            "memory": int(self._call("cuMemGetInfo")[1]),
            "report": self.report_device,
        }

    def allocate(self, size: int) -> int:
        address = int(self._call("cuMemAlloc", max(size, 1)))
        self.allocations.append(address)
        return address

    def release_all(self) -> None:
        for address in self.allocations:
            self._call("cuMemFree", address)
        self.allocations.clear()

    def write(self, address: int, data: bytes) -> None:
        if data:
            self._call("cuMemcpyHtoD", address, data, len(data))

    def read(self, address: int, size: int) -> bytes:
        data = bytearray(size)
        if size:
            buffer = (ctypes.c_char * size).from_buffer(data)
            self._call("cuMemcpyDtoH", ctypes.addressof(buffer), address, size)
        return bytes(data)

    def fill(self, address: int, value: int, size: int) -> None:
        if size:
            self._call("cuMemsetD8", address, value, size)

    def load(self, image: bytes) -> Any:
        return self._call("cuModuleLoadData", image)

    def unload(self, module: Any) -> None:
        self._call("cuModuleUnload", module)

    def variable(self, module: Any, name: str) -> tuple[int, int]:
        address, size = self._call("cuModuleGetGlobal", module, name.encode())
        return int(address), int(size)

    def tensor_map(self, spec: dict[str, Any]) -> bytes:
        """A map as the hardware reads it; `spec` has the fields of `porter.ptx.tensormap.TensorMap`."""
        cuda = self.cuda

        def wide(values: Sequence[int]) -> list[Any]:
            return [cuda.cuuint64_t(v) for v in values]

        def narrow(values: Sequence[int]) -> list[Any]:
            return [cuda.cuuint32_t(v) for v in values]

        found = self._call(
            "cuTensorMapEncodeTiled",
            cuda.CUtensorMapDataType(spec["dtype"]),
            len(spec["sizes"]),
            spec["address"],
            wide(spec["sizes"]),
            wide(spec["strides"]),
            narrow(spec["box"]),
            narrow(spec["element_strides"]),
            cuda.CUtensorMapInterleave(spec["interleave"]),
            cuda.CUtensorMapSwizzle(spec["swizzle"]),
            cuda.CUtensorMapL2promotion(spec["l2_promotion"]),
            cuda.CUtensorMapFloatOOBfill(int(spec["oob_nan"])),
        )
        return b"".join(int(word).to_bytes(8, "little") for word in found.opaque)

    def clear_report(self) -> None:
        ctypes.memset(self.report_host, 0, REPORT_BYTES)

    def report(self) -> bytes:
        """Host memory that the device writes to; it outlives the context."""
        return ctypes.string_at(self.report_host, REPORT_BYTES)

    def launch(
        self,
        module: Any,
        entry: str,
        grid: Sequence[int],
        block: Sequence[int],
        cluster: Sequence[int],
        shared: int,
        parameters: Sequence[bytes],
    ) -> float:
        """Run a kernel to its end; milliseconds on the device."""
        cuda = self.cuda
        function = self._call("cuModuleGetFunction", module, entry.encode())
        attribute = cuda.CUfunction_attribute
        if shared:
            name = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", function, name, shared)
        config = cuda.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = shared
        config.hStream = cuda.CUstream(0)
        if tuple(cluster) != (1, 1, 1):
            if cluster[0] * cluster[1] * cluster[2] > 8:
                name = attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
                self._call("cuFuncSetAttribute", function, name, 1)
            found = cuda.CUlaunchAttribute()
            found.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dimensions = found.value.clusterDim
            dimensions.x, dimensions.y, dimensions.z = cluster
            config.attrs = [found]
            config.numAttrs = 1
        # cuLaunchKernel copies the arguments, so that these need live no longer than the call.
        buffers = [_aligned(value) for value in parameters]
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*(address for _, address in buffers))
        start, end = self._call("cuEventCreate", 0), self._call("cuEventCreate", 0)
        self._call("cuEventRecord", start, config.hStream)
        self._call("cuLaunchKernelEx", config, function, ctypes.addressof(pointers), 0)
        self._call("cuEventRecord", end, config.hStream)
        self._call("cuCtxSynchronize")
        milliseconds = float(self._call("cuEventElapsedTime", start, end))
        self._call("cuEventDestroy", start)
        self._call("cuEventDestroy", end)
        return milliseconds


def _aligned(value: bytes, alignment: int = 128) -> tuple[Any, int]:
    """A buffer that holds the bytes at an aligned address, and that address."""
    buffer = ctypes.create_string_buffer(len(value) + alignment)
    address = (ctypes.addressof(buffer) + alignment - 1) // alignment * alignment
    ctypes.memmove(address, value, len(value))
    return buffer, address


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
