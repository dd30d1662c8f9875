# SPDX-License-Identifier: Apache-2.0
"""Small Hopper kernels for the tests of the port, put together from parts."""

from __future__ import annotations

from pathlib import Path

from porter.build.nvcc import CompileRequest, compile_ptx
from porter.lang.sources import load_sources
from porter.passes.helpers import Placement
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.verify.builder import PORT_ARCH

SYNC = """
__device__ void arrive() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ void wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
"""


def wrapper(
    n: int, types: str = "f32.bf16.bf16", parameter: str = "", name: str = "mma", tail: str = "1, 1, 1, 0, 0"
) -> str:
    """A device function around one wgmma with N/2 accumulator registers."""
    registers = n // 2
    k = {"f16": 16, "bf16": 16, "tf32": 8}.get(types.rsplit(".", 1)[-1], 32)
    names = ", ".join(f"%{i}" for i in range(registers))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(registers))
    parameter = parameter or f"float (&d)[{registers}]"
    return f"""
__device__ __forceinline__ void {name}({parameter}, uint64_t a, uint64_t b) {{
    asm volatile("wgmma.mma_async.sync.aligned.m64n{n}k{k}.{types} "
                 "{{{names}}}, %{registers}, %{registers + 1}, {tail};\\n"
                 : {outputs} : "l"(a), "l"(b));
}}
"""


def kernel(body: str, *, n: int = 16, before: str = "", bounds: str = "__launch_bounds__(128)", head: str = "") -> str:
    """A file with wrappers for m64nNk16 bf16 and a kernel with this body."""
    signature = f"__global__ void {bounds} kernel(float* out, uint64_t a, uint64_t b, int steps)"
    return f"#include <cstdint>\n{head}{SYNC}{wrapper(n)}{before}\n{signature} {{\n{body}\n}}\n"


LOOP = """
    for (int k = 0; k < steps; ++k) {
        arrive();
        mma(acc, a + k * 2, b + k * 2);
        commit();
        wait<0>();
    }
"""
STORE = "    for (int i = 0; i < 8; ++i) out[threadIdx.x * 8 + i] = acc[i];\n"
GEMM = kernel("    float acc[8] = {0};\n" + LOOP + STORE)


def port_text(tmp_path: Path, text: str, name: str = "kernel.cu", **options: object) -> PortResult:
    """Port one file with this text."""
    path = tmp_path / name
    path.write_bytes(text.encode())
    return port_sources(load_sources(path), PortOptions(**options))  # type: ignore[arg-type]


def ported(tmp_path: Path, text: str) -> str:
    """The port's text with its helpers; fails if anything was refused."""
    result = port_text(tmp_path, text, placement=Placement(inline=True))
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    return result.files[result.sources.root].decode()


def refused(tmp_path: Path, text: str) -> list[str]:
    """The diagnostics of a port that must be refused whole."""
    result = port_text(tmp_path, text)
    assert int(result.exit_code) == 3
    assert not result.changed
    assert not result.groups
    return [str(d) for d in result.diagnostics]


def port_files(directory: Path, files: dict[str, str], root: str = "kernel.cu", **options: object) -> PortResult:
    """Port a set of files with these texts, written below `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_bytes(text.encode())
    return port_sources(load_sources(directory / root), PortOptions(**options))


def compiles(result: PortResult, directory: Path, out: Path, arch: str = PORT_ARCH) -> str:
    """The PTX that nvcc makes of a port, its files written to `out` as they stood in `directory`."""
    for path, data in result.files.items():
        target = out / Path(path).relative_to(directory)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    request = CompileRequest(out / Path(result.sources.root).relative_to(directory), arch, lineinfo=False)
    return compile_ptx(request).ptx
