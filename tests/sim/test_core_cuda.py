# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled by nvcc, with results computed by NumPy and Python."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from core_ptx import upload

from porter.build.toolchain import find_toolkit
from porter.diagnostics import PorterError
from porter.ptx.ast import Module
from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, pack_params, simulate

Array = npt.NDArray[Any]


@pytest.fixture(scope="module", params=["sm_90a", "sm_100a"])
def module(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Module:
    try:
        toolkit = find_toolkit()
    except PorterError as error:
        pytest.skip(f"no CUDA compiler: {error}")
    out = tmp_path_factory.mktemp("ptx") / "kernels.ptx"
    source = Path(__file__).with_name("core_kernels.cu")
    command = [toolkit.nvcc, f"-arch={request.param}", "-O3", "-ptx", "-I", toolkit.include_dir, "-o", out, source]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    return parse_module(out.read_text())


@pytest.fixture
def run(module: Module) -> Callable[..., GlobalMemory]:
    def launch(memory: GlobalMemory, entry: str, grid: int, block: int, *values: int) -> GlobalMemory:
        params = pack_params(module.function(entry), values)
        outcome = simulate(module, entry, Launch((grid, 1, 1), (block, 1, 1)), params, memory)
        assert outcome.status == "ok", [str(f) for f in outcome.findings]
        return memory

    return launch


def test_softmax(run: Callable[..., GlobalMemory]) -> None:
    memory = GlobalMemory()
    x = np.random.default_rng(0).normal(size=(8, 300)).astype(np.float32)
    a, out = upload(memory, x), memory.alloc(x.nbytes)
    run(memory, "softmax", 8, 128, a, out, 300)
    got = memory.read(out, x.nbytes).view(np.float32).reshape(x.shape)
    e = np.exp(x.astype(float) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(axis=1, keepdims=True), rtol=2e-6)


def wrap(x: int) -> int:
    x &= 0xFFFFFFFF
    return x - (1 << 32) if x >> 31 else x


def test_math_library_and_integers(run: Callable[..., GlobalMemory]) -> None:
    memory = GlobalMemory()
    n = 1000
    rng = np.random.default_rng(1)
    x, d = rng.normal(size=n).astype(np.float32) * 3, rng.normal(size=n) * 2
    a, b = upload(memory, x), upload(memory, d)
    out, double, ints = memory.alloc(n * 32), memory.alloc(n * 32), memory.alloc(n * 4)
    run(memory, "mathk", 8, 128, a, b, out, double, ints, n)

    got = memory.read(out, n * 32).view(np.float32).reshape(n, 8)
    X = x.astype(float)
    roots = [sum(math.sqrt(np.float32(abs(x[k])) + np.float32(j)) for j in range(k % 7)) for k in range(n)]
    primes = np.array([1, 2, 3, 5, 7, 11, 13, 17])[np.arange(n) % 8]
    power = np.abs(X) ** float(np.float32(1.7))
    want = [np.sin((x * np.float32(1000)).astype(float)), np.cos(X), np.log(np.abs(X)), power,
            roots, np.tanh(X), primes * X, [math.erf(v) for v in X]]  # fmt: skip
    np.testing.assert_allclose(got, np.stack(want, axis=1), rtol=3e-6, atol=3e-7)

    got = memory.read(double, n * 32).view(np.float64).reshape(n, 4)
    np.testing.assert_allclose(got, np.stack([np.sin(d), 1 / d, np.sqrt(np.abs(d)), np.exp(d)], axis=1), rtol=1e-15)

    whole = memory.read(ints, n * 4).view(np.int32).tolist()
    for i in range(n):
        k = int(d[i] * 100)
        r = [wrap(k * 3), int(k / 7), int(math.fmod(k, 13)), (k & 0xFFFFFFFF).bit_count(),
             32 - (k & 0xFFFFFFFF).bit_length(), int(math.fmod(k * k, 1000003))][i % 6]  # fmt: skip
        assert whole[i] == wrap(7 * r + sum(((j * k) & 15) * r for j in range(16))), i


def test_halves(run: Callable[..., GlobalMemory]) -> None:
    memory = GlobalMemory()
    rng = np.random.default_rng(2)
    h, b = rng.normal(size=512).astype(np.float16), rng.normal(size=512).astype(ml_dtypes.bfloat16)
    addresses = [upload(memory, h.view(np.uint16)), upload(memory, b.view(np.uint16))]
    out = [memory.alloc(1024), memory.alloc(1024), memory.alloc(512)]
    run(memory, "halves", 2, 128, *addresses, *out, 512)
    exact = h.astype(float)
    half = (exact * 0.5).astype(np.float16)
    want = (exact * exact + half.astype(float)).astype(np.float16)
    np.testing.assert_array_equal(memory.read(out[0], 1024).view(np.float16), want)
    doubled = np.maximum(b.astype(float) * 2, 0)
    np.testing.assert_array_equal(memory.read(out[1], 1024).view(ml_dtypes.bfloat16).astype(float), doubled)
    codes = h.astype(np.float32).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    np.testing.assert_array_equal(memory.read(out[2], 512), codes)


def test_cooperative_groups(run: Callable[..., GlobalMemory]) -> None:
    memory = GlobalMemory()
    out = memory.alloc(4 * 96)
    run(memory, "groups", 1, 96, out)
    want = []
    for t in range(96):
        lane = t % 32
        v = {i: t - lane + i for i in range(32)}
        for o in (4, 2, 1):
            v = {i: v[i] + (v[i + o] if i % 8 + o < 8 else v[i]) for i in range(32)}
        members = [i for i in range(32) if (t - lane + i) % 3 == 0]
        extra = len(members) * 100 + members.index(lane) if t % 3 == 0 else 0
        want.append(v[lane] * 1000 + extra)
    assert memory.read(out, 384).view(np.int32).tolist() == want
