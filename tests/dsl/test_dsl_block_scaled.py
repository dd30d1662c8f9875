# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's block-scaled Blackwell GEMM, where a package that bundles it is installed: compiled, simulated, compared."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from foreign.dsl_cases import BLOCK_SCALED, block_scaled_wrapper
from known_kernels import record

from porter.build.dsl import DslRequest, compile_dsl
from porter.ptx.parser import parse_module
from porter.ptx.tensormap_hw import decode_hardware
from porter.sim import GlobalMemory, Launch, Options, pack_params, simulate

LIBRARY = {
    "Float4E2M1FN": ml_dtypes.float4_e2m1fn,
    "Float8E4M3FN": ml_dtypes.float8_e4m3fn,
    "Float8E5M2": ml_dtypes.float8_e5m2,
    "Float8E8M0FNU": ml_dtypes.float8_e8m0fnu,
}
M, N, K = 256, 256, 256

pytestmark = [pytest.mark.external, pytest.mark.slow]


def operand(rng: np.random.Generator, rows: int, element: str, mn_major: bool) -> tuple[np.ndarray, np.ndarray]:
    """Values and bytes."""
    if element == "Float4E2M1FN":
        codes = rng.integers(0, 16, (rows, K)).astype(np.uint8)
        return codes.view(LIBRARY[element]).astype(float), codes[:, 0::2] | codes[:, 1::2] << 4
    small = rng.integers(-3, 4, (rows, K)).astype(LIBRARY[element])
    return small.astype(float), np.ascontiguousarray(small.T if mn_major else small).view(np.uint8)


def factors(rng: np.random.Generator, rows: int, scale: str, vector: int) -> tuple[np.ndarray, np.ndarray]:
    """Factors of every element, and the bytes: 128 rows by 4 factors make 512, row r at 16 (r % 32) + 4 (r / 32)."""
    low, high = (0x30, 0x40) if scale == "Float8E4M3FN" else (125, 129)
    codes = rng.integers(low, high, (rows, K // vector)).astype(np.uint8)
    blocks = codes.reshape(rows // 128, 4, 32, K // vector // 4, 4).transpose(0, 3, 2, 1, 4)
    return np.repeat(codes.view(LIBRARY[scale]).astype(float), vector, axis=1), np.ascontiguousarray(blocks)


@pytest.fixture
def gemm(tmp_path: Path) -> Path:
    return block_scaled_wrapper(tmp_path)


@pytest.mark.parametrize("variant", BLOCK_SCALED)
def test_products_are_exact(variant: str, gemm: Path) -> None:
    element, scale, vector, tile, cluster, mn_major = BLOCK_SCALED[variant]
    rng = np.random.default_rng(1)
    a, b = (operand(rng, rows, element, mn_major) for rows in (M, N))
    sfa, sfb = (factors(rng, rows, scale, vector) for rows in (M, N))
    result = np.full(4 * M * N, 0xFF, np.uint8)
    memory, call = GlobalMemory(), []
    for i, (dtype, data) in enumerate((*[("Uint8", x[1]) for x in (a, b, sfa, sfb)], ("Float32", result))):
        address = i + 1 << 44
        raw = result if data is result else data.reshape(-1).copy()
        memory.map(address, raw, str(i))
        shape = [raw.size // (4 if dtype == "Float32" else 1)]
        call.append(
            {"kind": "tensor", "dtype": dtype, "shape": shape, "strides": [1], "align": 128, "address": address}
        )
    init = {
        "element": {"cutlass": element}, "scale": {"cutlass": scale}, "vector": vector, "tile": tile,
        "cluster": cluster, "sizes": [M, N, K, 1], "mn_major": mn_major,
    }  # fmt: skip
    compiled = compile_dsl(DslRequest(gemm, "Gemm", "sm_100a", [*call, {"kind": "stream"}], init=init))
    (launch,) = compiled.launches
    params = [decode_hardware(p).encode() if len(p) == 128 else p for p in launch.params]
    module = parse_module(compiled.ptx)
    function = module.function(launch.kernel)
    want = (a[0] * sfa[0]) @ (b[0] * sfb[0]).T
    where = Launch(launch.grid, launch.block, launch.cluster, launch.dynamic_smem)
    for options in (
        Options(schedule="late", seed=1),
        Options(schedule="random", seed=2, arithmetic="exact"),
        Options(schedule="random", seed=3, mode="checking", level="practice"),
    ):
        result[:] = 0xFF
        outcome = simulate(module, launch.kernel, where, pack_params(function, params), memory, options)
        assert outcome.status == "ok", [str(f) for f in outcome.findings]
        assert not [str(h) for h in outcome.hazards if h.severity == "error" or h.ruling is None]
        np.testing.assert_array_equal(result.view(np.float32).reshape(M, N), want)
    instructions = outcome.stats.warp_instructions
    record("NVIDIA, CuTe DSL", f"block-scaled, {variant}", f"{M} x {N} x {K}", instructions, outcome.hazards)
