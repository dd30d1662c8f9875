# SPDX-License-Identifier: Apache-2.0
"""How many threads a block has, read off checks, launch bounds and launches."""

from __future__ import annotations

import pytest
from kernels import GEMM
from modelled import Modelled, program_of

from porter.model.block_size import threads_of

CHECKED = {
    "if (blockDim.x != 384) __trap();": "384",
    "if (blockDim.x != 128) return;": "128",
    "if (blockDim.x != 256) { printf(text); __trap(); }": "256",
    "if (384 != blockDim.x) { return; }": "384",
    "if (blockDim.x != 256 || steps < 0) __trap();": "256",
    "assert(blockDim.x == 128);": "128",
    "assert(steps > 0 && blockDim.x == kThreads);": "kThreads",
    "__builtin_assume(blockDim.x == 2 * kThreads);": "2 * kThreads",
    "if (blockDim.x != T) __trap();": "T",
    "if (blockDim.x != 128) { steps = 0; }": None,
    "if (blockDim.x == 128) __trap();": None,
    "if (blockDim.x != 128 && steps > 0) __trap();": None,
    "if (blockDim.x != steps) __trap();": None,
    "if (blockDim.x != 128) __trap(); steps += threadIdx.y;": None,
}

LAUNCHED = {
    "k<64><<<1, 128>>>(0);": "128",
    "k<64><<<1, dim3(128, 2)>>>(0);": "256",
    "dim3 block(384); k<64><<<1, block>>>(0);": "384",
    "dim3 block = dim3(128, 3); k<64><<<1, block, 0, s>>>(0);": "384",
    "const dim3 block{kThreads}; k<64><<<1, block>>>(0);": "192",
    "int threads = 3 * 128; k<64><<<1, threads>>>(0);": "384",
    "k<64><<<1, 128>>>(0); k<64><<<1, 256>>>(0);": "256",
    "k<128><<<1, 128>>>(0); k<256><<<1, 256>>>(0);": "T",
    "k<128><<<1, 128>>>(0); k<256><<<1, 384>>>(0);": "384",
    "cudaLaunchConfig_t c = {}; c.blockDim = dim3(384); cudaLaunchKernelEx(&c, k<64>, 0);": "384",
    "cudaLaunchConfig_t c{1, 256}; cudaLaunchKernelEx(&c, k<64>, 0);": "256",
    "if (s) { cudaLaunchConfig_t c{1, 128}; cudaLaunchKernelEx(&c, k<64>, 0); } "
    "else { cudaLaunchConfig_t c = {}; c.blockDim = 384; cudaLaunchKernelEx(&c, k<64>, 0); }": "384",
    "cudaLaunchConfig_t c{1, 128}; { cudaLaunchConfig_t c{1, 256}; cudaLaunchKernelEx(&c, k<64>, 0); }": "256",
    "cudaLaunchConfig_t c{.gridDim = 1, .blockDim = 256}; cudaLaunchKernelEx(&c, k<64>, 0);": "256",
    "auto kernel = k<64>; cudaLaunchConfig_t c = {}; c.blockDim = 384; cudaLaunchKernelEx(&c, kernel, 0);": "384",
    "cudaLaunchKernel((void*)k<64>, 1, 384, args, 0, s);": "384",
    "int threads = 128; if (n) threads = 256; k<64><<<1, threads>>>(0);": None,
    "k<64><<<1, n>>>(0);": None,
    "k<64><<<1, 128>>>(0); k<64><<<1, n>>>(0);": None,
    "cudaLaunchConfig_t c{1, 256}; c.blockDim.x = 384; cudaLaunchKernelEx(&c, k<64>, 0);": None,
    "cudaLaunchConfig_t c{1, 256}; tune(&c); cudaLaunchKernelEx(&c, k<64>, 0);": None,
    "cudaLaunchConfig_t c = {}; c.blockDim = 256; c = other; cudaLaunchKernelEx(&c, k<64>, 0);": None,
    "cudaLaunchConfig_t c{1, 256}; auto& d = c; d.blockDim = 384; cudaLaunchKernelEx(&c, k<64>, 0);": None,
    "dim3 block(128); block.y = 3; k<64><<<1, block>>>(0);": None,
    "dim3 block(128); tune(&block); k<64><<<1, block>>>(0);": None,
    "dim3 block(128); enlarge(block); k<64><<<1, block>>>(0);": None,
    "dim3 block(128); auto& b = block; b.y = 3; k<64><<<1, block>>>(0);": None,
    "int threads = 128; printf(text, threads); k<64><<<1, threads>>>(0);": "128",
    "int threads = 128; { int threads = 384; k<64><<<1, threads>>>(0); }": "384",
    "int threads = 128; if (n) { int threads = 384; } k<64><<<1, threads>>>(0);": "128",
    "for (int threads = 128; threads <= 512; threads += 128) k<64><<<1, threads>>>(0);": None,
    "int threads = n > 3 ? 384 : 128; k<64><<<1, threads>>>(0);": None,
    "k<64><<<1, n ? 128 : 384>>>(0);": None,
    "Blocks block(2, 64); k<64><<<1, block>>>(0);": None,
    "Config cfg; k<64><<<1, cfg.threads>>>(0);": None,
    "int kThreads = n; k<64><<<1, kThreads>>>(0);": None,
    "constexpr int kThreads = 256; k<64><<<1, kThreads>>>(0);": "256",
    "using C = Config; k<64><<<1, C::kThreads>>>(0);": "320",
    "using C = lib::Config; k<64><<<1, C::kThreads>>>(0);": None,
    "k<64><<<1, lib::kThreads>>>(0);": None,
    "k<64><<<1, 128>>>(0); auto p = &k<64>; p<<<1, 384>>>(0);": None,
    "k<64><<<1, 128>>>(0); start(k<64>, 384);": None,
    "k<64><<<1, 128>>>(0); lib::launch({1, 384}, (void const*)k<64>);": None,
    "cudaLaunchKernel(reinterpret_cast<const void*>(&k<64>), 1, 384, args, 0, s);": "384",
    "cudaLaunchKernel(reinterpret_cast<const void*>(start(k<64>)), 1, 384, args, 0, s);": None,
    "cudaFuncSetAttribute(k<64>, smem, 100); k<64><<<1, 128>>>(0);": "128",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, k<64>, 128, 0); k<64><<<1, 128>>>(0);": "128",
    "auto kernel = k<64>; cudaFuncSetAttribute(kernel, smem, 100); cudaLaunchKernel(kernel, 1, 128, args);": "128",
    "auto kernel = n ? k<64> : k<128>; cudaLaunchKernel(kernel, 1, 128, args);": "128",
    "cudaLaunchCooperativeKernel((void*)k<64>, dim3(8), dim3(128, 2), args, 0, s);": "256",
}


@pytest.mark.parametrize("check", CHECKED)
def test_checks(check: str) -> None:
    text = f"constexpr int kThreads = 192;\ntemplate <int T> __global__ void k(int steps) {{ {check} }}"
    program = program_of(text)
    assert threads_of(program, program.kernels[0]) == CHECKED[check]


@pytest.mark.parametrize("launch", LAUNCHED)
def test_launches(launch: str) -> None:
    head = (
        "constexpr int kThreads = 192;\nstruct Config { static constexpr int kThreads = 320; int threads = 384; };\n"
        "template <int T> __global__ void k(int steps) {}\nvoid enlarge(dim3& block) { block.y = 2; }\n"
    )
    program = program_of(head + f"void run(int n, cudaStream_t s) {{ {launch} }}")
    assert threads_of(program, program.kernels[0]) == LAUNCHED[launch]


def test_launches_of_another_kernel_of_the_name() -> None:
    text = """
    namespace a { __global__ void k() {} void run() { k<<<1, 128>>>(); } }
    namespace b { __global__ void k() {} void run() { k<<<1, 384>>>(); } }
    """
    program = program_of(text)
    assert [threads_of(program, k) for k in program.kernels] == ["128", "384"]


TEXTS = {
    "#define RUN k<<<1, 256>>>()\n": "256",
    "#define RUN k<<<1, kThreads>>>()\n": "192",
    "#define RUN k<<<1, kThreads>>>()\nvoid other(int kThreads) { RUN; }": None,
    "#define RUN k<<<1, block>>>()\nvoid one() { dim3 block(128, 2); RUN; }": "256",
    "#define RUN k<<<1, block>>>()\nvoid two() { dim3 block(128); }\nvoid one() { dim3 block(384); RUN; }": None,
    "#define RUN(k) k<<<1, block>>>()\nvoid two() { dim3 block(128); }\nvoid one() { dim3 block(384); RUN(k); }": None,
    "#define RUN k<<<1, block>>>()\nvoid one() { dim3 block(128); block.y = 3; RUN; }": None,
}


@pytest.mark.parametrize("text", TEXTS)
def test_launches_in_macros(text: str) -> None:
    program = program_of("constexpr int kThreads = 192;\n__global__ void k() {}\n" + text)
    assert threads_of(program, program.kernels[0]) == TEXTS[text]


def test_template_of_the_launcher() -> None:
    text = "template <int M, int T> __global__ void k() {}\ntemplate <int N> void run() { k<3, N><<<1, N>>>(); }"
    program = program_of(text)
    assert threads_of(program, program.kernels[0]) == "T"


BOUNDS = {
    "__launch_bounds__(128)": (1, "1"),
    "__launch_bounds__(kM == 64 ? 256 : 384, 1)": (2, "2"),
    "__launch_bounds__(kM != 64 ? 256 : 384, 1)": (3, "3"),
    "__launch_bounds__(max(128, 2 * kM), 1)": (1, "1"),
    "__launch_bounds__(128 * ceil_div(kM * 3, 64))": (3, "3"),
    "__launch_bounds__(T)": (2, "2"),
    "__launch_bounds__(T + 128)": (3, "3"),
    "__launch_bounds__(U == 64 ? 256 : 384, 1)": (None, "(U == 64 ? 256 : 384) / 128"),
    "__launch_bounds__(U)": (None, "U / 128"),
    "__launch_bounds__(U * 128)": (None, "(U * 128) / 128"),
}


@pytest.mark.parametrize("bounds", BOUNDS)
def test_warpgroups(bounds: str) -> None:
    """A static_assert holds T to 256; U is open."""
    text = GEMM.replace("__global__ void __launch_bounds__(128)", f"template <int T, int U> __global__ void {bounds}")
    text = text.replace("float acc[8] = {0};", 'static_assert(T == 256, ""); float acc[8] = {0};')
    constants = "constexpr int kM = 64;\nconstexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }\n"
    roles = Modelled(constants + text).kernel.roles
    assert (roles.value, roles.count) == BOUNDS[bounds]
    assert roles.exact
