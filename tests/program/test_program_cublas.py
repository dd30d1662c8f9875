# SPDX-License-Identifier: Apache-2.0
"""cuBLAS and cuBLASLt as a reference of programs: the stand-in's products against exact sums of NumPy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner

from porter.build import cublas
from porter.build.program import build_program
from porter.build.toolchain import Toolkit
from porter.cli.main import main
from porter.diagnostics import Code
from porter.verify.dtypes import DTYPES, DType
from porter.verify.program import ProgramOptions, ProgramOutcome, run_program

HERE = Path(__file__).parent
SOURCE = HERE / "cublas_calls.cu"
NAMES = {"e4m3": "f8e4m3", "e5m2": "f8e5m2", "i8": "s8", "i32": "s32"}
Floats = npt.NDArray[np.float64]


@pytest.fixture(scope="session")
def program(built: Callable[..., Path]) -> Path:
    return built(SOURCE, "sm_100a")


def dtype(name: str) -> DType:
    return DTYPES[NAMES.get(name, name)]


def run(program: Path, target: str | None = None, **options: Any) -> ProgramOutcome:
    return run_program(program, [f"{k}={v}" for k, v in options.items()], ProgramOptions(target=target))


def filled(name: str, count: int, step: int, unit: float = 1.0) -> Floats:
    """As `filled` of the program."""
    kind = dtype(name)
    return kind.decode(kind.encode((np.arange(count) * step % 13 - 6) * unit))


class Reference:
    """What the program computes with the same options."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        m, n, k = (options.get(name, value) for name, value in (("m", 5), ("n", 7), ("k", 9)))
        self.count, self.rows = options.get("count", 1), bool(options.get("rows"))
        pad = options.get("pad", 3)
        a = self._operand("a", options["a"], m, k, bool(options.get("ta")), pad, 5, options.get("unit_a", 1.0))
        b_type = options.get("b", options["a"])
        b = self._operand("b", b_type, k, n, bool(options.get("tb")), pad, 7, options.get("unit_b", 1.0))
        self.d_type = options["d"]
        self.place, self.size = self._places(m, n, False, pad)
        c = filled(options.get("c", self.d_type), self.size * self.count, 11)
        self.c = np.stack([c[self.place + i * self.size] for i in range(self.count)])
        products = np.einsum("imk,ikn->imnk", a, b)
        self.sums = np.zeros((self.count, m, n))
        for at in np.ndindex(self.sums.shape):
            self.sums[at] = math.fsum(products[at])

    def _places(self, rows: int, cols: int, transposed: bool, pad: int) -> tuple[npt.NDArray[np.int64], int]:
        """Where the elements of op(X) stand in memory, and how many elements X has."""
        i, j = np.arange(rows)[:, None], np.arange(cols)[None, :]
        along_rows = transposed != self.rows
        ld = (cols if along_rows else rows) + pad
        return (i * ld + j, ld * rows) if along_rows else (i + j * ld, ld * cols)

    def _operand(
        self, which: str, name: str, rows: int, cols: int, transposed: bool, pad: int, step: int, unit: float
    ) -> Floats:
        place, size = self._places(rows, cols, transposed, pad)
        memory = filled(name, size * self.count, step, unit)
        if which == "a" and self.options.get("after_kernel"):
            memory = -memory
        return np.stack([memory[place + i * size] for i in range(self.count)])

    def result(self, factor: Floats | float = 1.0, then: Callable[[Floats], Floats] = lambda x: x) -> Floats:
        """The elements of D. `factor` multiplies alpha, `then` is the epilogue."""
        compute = dtype({"tf32": "f32"}.get(self.options["compute"], self.options["compute"]))
        single = DTYPES["f32"] if compute.name in ("f16", "f32") else compute
        alpha, beta = (single.round(np.float64(self.options.get(n, v))) for n, v in (("alpha", 1.0), ("beta", 0.0)))
        scaled = single.round(np.asarray(alpha * factor)) * compute.round(self.sums)
        added = single.round(beta * self.c) if beta else 0.0
        kind = dtype(self.d_type)
        return kind.round(then(single.round(scaled + added)))

    def memory(self, elements: Floats) -> Floats:
        """D's memory with its padding, which stays as it was."""
        all_of_it = filled(self.d_type, self.size * self.count, 11)
        for i in range(self.count):
            all_of_it[self.place + i * self.size] = elements[i]
        return all_of_it


def read(outcome: ProgramOutcome, name: str, line: int = -1) -> Floats:
    kind = dtype(name)
    return kind.decode(np.frombuffer(bytes.fromhex(outcome.stdout.splitlines()[line]), kind.container))


HALVES = {"compute": "f32", "unit_a": 0.25, "unit_b": 0.125}
VARIANTS: dict[str, dict[str, Any]] = {
    "sgemm": {"api": "sgemm", "a": "f32", "d": "f32", "compute": "f32", "unit_a": 0.1, "unit_b": 0.3},
    "sgemm of 64-bit sizes": {"api": "sgemm64", "a": "f32", "d": "f32", "compute": "f32", "ta": 1},
    "sgemm TN": {"api": "sgemm", "a": "f32", "d": "f32", "compute": "f32", "ta": 1, "unit_a": 0.1},
    "sgemm NT": {"api": "sgemm", "a": "f32", "d": "f32", "compute": "f32", "tb": 1, "unit_a": 0.7},
    "sgemm TT, alpha and beta": {
        "api": "sgemm", "a": "f32", "d": "f32", "compute": "f32", "ta": 1, "tb": 1, "alpha": 0.3, "beta": -1.7,
    },
    "sgemm of many tiles": {"api": "sgemm", "a": "f32", "d": "f32", "compute": "f32", "m": 70, "n": 37, "k": 130},
    "sgemm without K": {"api": "sgemm", "a": "f32", "d": "f32", "compute": "f32", "k": 0, "beta": 2},
    "dgemm": {"api": "dgemm", "a": "f64", "d": "f64", "compute": "f64", "alpha": 0.5, "beta": 2},
    "hgemm": {"api": "hgemm", "a": "f16", "d": "f16", "compute": "f16", "unit_a": 0.1, "unit_b": 0.3, "k": 40},
    "hgemm, alpha and beta": {"api": "hgemm", "a": "f16", "d": "f16", "compute": "f16", "alpha": 0.5, "beta": 0.25},
    "SgemmEx": {"api": "sgemmex", "a": "bf16", "d": "f32", **HALVES},
    "GemmEx f16 to f16": {"api": "ex", "a": "f16", "d": "f16", **HALVES, "unit_a": 0.1, "k": 60},
    "GemmEx f16 to f32": {"api": "ex", "a": "f16", "d": "f32", **HALVES, "ta": 1},
    "GemmEx bf16 to bf16": {"api": "ex", "a": "bf16", "d": "bf16", **HALVES, "unit_a": 0.1, "beta": 1},
    "GemmEx bf16 to f32": {"api": "ex", "a": "bf16", "d": "f32", **HALVES, "tb": 1, "alpha": 0.1},
    "GemmEx tf32 allowed": {"api": "ex", "a": "f32", "d": "f32", "compute": "tf32", "unit_a": 0.1},
    "GemmEx i8 to i32": {"api": "ex", "a": "i8", "d": "i32", "compute": "i32", "ta": 1, "alpha": 3, "beta": -2},
    "GemmEx i8 to f32": {"api": "ex", "a": "i8", "d": "f32", "compute": "f32", "alpha": 0.5},
    "GemmEx with a data type to compute in": {"api": "ex_by_type", "a": "f16", "d": "f32", **HALVES},
    "scalars on the device": {
        "api": "ex", "a": "f16", "d": "f32", **HALVES, "device_scalars": 1, "alpha": 3, "beta": 0.5,
    },
    "C of NaN without beta": {"api": "sgemm", "a": "f32", "d": "f32", "compute": "f32", "nan_c": 1, "pad": 0},
    "behind a kernel": {"api": "sgemm", "a": "f32", "d": "f32", "compute": "f32", "after_kernel": 1},
    "SgemmStridedBatched": {"api": "sstrided", "a": "f32", "d": "f32", "compute": "f32", "count": 3, "beta": 1},
    "HgemmStridedBatched": {"api": "hstrided", "a": "f16", "d": "f16", "compute": "f16", "count": 2, "ta": 1},
    "GemmStridedBatchedEx": {"api": "strided", "a": "bf16", "d": "f32", **HALVES, "count": 3, "tb": 1},
    "GemmBatchedEx": {"api": "batched", "a": "f16", "d": "f32", **HALVES, "count": 3, "alpha": 2},
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_a_product_of_cublas(program: Path, name: str) -> None:
    options = VARIANTS[name]
    outcome = run(program, **options)
    assert outcome.stdout.splitlines()[:2] == ["CUBLAS_STATUS_SUCCESS", "cudaSuccess"], outcome.stderr
    assert outcome.status == "ok"
    reference = Reference(**options)
    wanted = reference.memory(reference.result())
    found = read(outcome, options["d"])
    assert np.abs(wanted).max() > 1
    if options["compute"] == "f64":
        np.testing.assert_allclose(found, wanted, rtol=1e-14)
    else:
        np.testing.assert_array_equal(found, wanted)


FP8 = {"api": "lt", "a": "e4m3", "compute": "f32", "ta": 1, "m": 32, "n": 24, "k": 48, "pad": 16}
LT_VARIANTS: dict[str, dict[str, Any]] = {
    "f32": {"api": "lt", "a": "f32", "d": "f32", "compute": "f32", "alpha": 0.3, "beta": 2},
    "f16": {"api": "lt", "a": "f16", "d": "f16", **HALVES, "ta": 1, "unit_a": 0.1},
    "f16 in f16": {"api": "lt", "a": "f16", "d": "f16", "compute": "f16", "tb": 1},
    "bf16 to f32": {"api": "lt", "a": "bf16", "d": "f32", **HALVES, "ta": 1, "tb": 1},
    "bf16 by rows": {"api": "lt", "a": "bf16", "d": "bf16", **HALVES, "rows": 1, "tb": 1, "beta": 1},
    "f16 by rows, transposed": {"api": "lt", "a": "f16", "d": "f32", **HALVES, "rows": 1, "ta": 1},
    "batches": {"api": "lt", "a": "bf16", "d": "f32", **HALVES, "count": 3},
    "batches by rows": {"api": "lt", "a": "f16", "d": "f32", **HALVES, "count": 2, "rows": 1},
    "i8 to i32": {"api": "lt", "a": "i8", "d": "i32", "compute": "i32", "ta": 1},
    "i8 to i8": {"api": "lt", "a": "i8", "d": "i8", "compute": "i32", "scale": "f32", "ta": 1, "alpha": 0.3},
    "f64": {"api": "lt", "a": "f64", "d": "f64", "compute": "f64"},
    "e4m3 to bf16": {**FP8, "d": "bf16"},
    "e4m3 by e5m2 to f16": {**FP8, "b": "e5m2", "d": "f16", "alpha": 0.25},
    "e4m3 to f32": {**FP8, "d": "f32", "unit_a": 0.3},
    "e4m3 to e4m3": {**FP8, "c": "bf16", "d": "e4m3", "unit_a": 0.125, "unit_b": 0.25},
    "scalars on the device": {"api": "lt", "a": "f32", "d": "f32", "compute": "f32", "alpha": 2},
}  # fmt: skip


@pytest.mark.parametrize("name", LT_VARIANTS)
def test_a_product_of_cublaslt(program: Path, name: str) -> None:
    options = LT_VARIANTS[name]
    outcome = run(program, **options)
    assert outcome.stdout.splitlines()[:2] == ["CUBLAS_STATUS_SUCCESS", "cudaSuccess"], outcome.stdout
    reference = Reference(**options)
    if options.get("scale") == "f32":
        scaled = DTYPES["f32"].round(np.float64(np.float32(options["alpha"])) * reference.sums)
        wanted = reference.memory(DTYPES["s8"].round(scaled))
    else:
        wanted = reference.memory(reference.result())
    np.testing.assert_array_equal(read(outcome, options["d"]), wanted)


def gelu(x: Floats) -> Floats:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


EPILOGUES: dict[int, Callable[[Floats, Floats], Floats]] = {
    2: lambda x, _: np.maximum(x, 0),
    4: lambda x, bias: x + bias,
    6: lambda x, bias: np.maximum(x + bias, 0),
    32: lambda x, _: gelu(x),
    36: lambda x, bias: gelu(x + bias),
}


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_an_epilogue(program: Path, epilogue: int, kind: str) -> None:
    options = {"api": "lt", "a": "bf16", "d": kind, **HALVES, "epilogue": epilogue}
    if epilogue & 4:
        options["bias"] = kind
    reference = Reference(**options)
    bias = filled(kind, 5, 3, 0.5)[:, None]
    wanted = reference.result(then=lambda x: EPILOGUES[epilogue](x, bias))
    found = read(run(program, **options), kind)
    np.testing.assert_allclose(found, reference.memory(wanted), rtol=1e-6 if kind == "f32" else 2**-8, atol=1e-6)


@pytest.mark.parametrize("kind", ["bf16", "f32"])
def test_scales_of_fp8(program: Path, kind: str) -> None:
    options = {**FP8, "d": kind, "unit_a": 0.3}
    reference = Reference(**options)
    found = read(run(program, **options, scales=1), kind)
    np.testing.assert_array_equal(found, reference.memory(reference.result(2.0)))
    rows, cols = filled("f32", 32, 3, 0.5)[:, None], filled("f32", 24, 5, 0.25)[None, :]
    found = read(run(program, **options, vectors=1), kind)
    np.testing.assert_array_equal(found, reference.memory(reference.result(rows * cols)))


def test_the_largest_value_is_taken_before_the_scale_of_d(program: Path) -> None:
    options = {**FP8, "c": "bf16", "d": "e4m3", "unit_a": 0.125, "unit_b": 0.25}
    reference = Reference(**options)
    outcome = run(program, **options, amax=1, scale_d=0.5)
    assert read(outcome, "f32", 0)[0] == np.abs(reference.sums).max()
    wanted = reference.memory(reference.result(then=lambda x: 0.5 * x))
    np.testing.assert_array_equal(read(outcome, "e4m3"), wanted)


def by_blocks(m: int, n: int, k: int, blocks: int) -> Floats:
    """Exact sums of what the program multiplies with `api=blocks`."""

    def codes(count: int, step: int, low: int, limit: int) -> npt.NDArray[np.uint8]:
        return (low + np.arange(count) * step % limit).astype(np.uint8)

    def operand(rows: int, step: int, factor_step: int) -> Floats:
        if blocks == 16:
            data = codes(rows * k // 2, step, 0, 256)
            values = np.stack([data & 15, data >> 4], -1).reshape(rows, k).view(ml_dtypes.float4_e2m1fn).astype(float)
        else:
            values = codes(rows * k, step, 0, 0x60).view(ml_dtypes.float8_e4m3fn).reshape(rows, k).astype(float)
        tiles = -(-rows // 128), -(-k // blocks // 4)
        raw = codes(tiles[0] * tiles[1] * 512, factor_step, 0x28 if blocks == 16 else 120, 13)
        kind = ml_dtypes.float8_e4m3fn if blocks == 16 else ml_dtypes.float8_e8m0fnu
        factors = raw.view(kind).astype(float).reshape(*tiles, 32, 4, 4).transpose(0, 3, 2, 1, 4)
        return values * np.repeat(factors.reshape(tiles[0] * 128, -1)[:rows, : k // blocks], blocks, axis=1)

    return operand(m, 37, 5) @ operand(n, 41, 7).T


@pytest.mark.parametrize("kind", ["bf16", pytest.param("f32", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("m", "n", "k"), [(5, 7, 64), (130, 40, 96), (64, 200, 352)])
@pytest.mark.parametrize("blocks", [16, 32])
def test_scales_by_blocks(program: Path, blocks: int, m: int, n: int, k: int, kind: str) -> None:
    """NVFP4 and MXFP8."""
    options = {"api": "blocks", "blocks": blocks, "m": m, "n": n, "k": k, "a": "e4m3", "d": kind, "compute": "f32"}
    found = read(run(program, **options, pad=0), kind).reshape(n, m).T
    wanted = DTYPES["f32"].round(by_blocks(m, n, k, blocks))
    assert np.unique(wanted).size > 10
    np.testing.assert_array_equal(found, dtype(kind).round(wanted))
    found = read(run(program, **options, pad=0, epilogue=2), kind).reshape(n, m).T
    np.testing.assert_array_equal(found, dtype(kind).round(np.maximum(wanted, 0)))


@pytest.mark.parametrize(
    ("blocks", "more", "target", "status"),
    [
        (16, {}, "sm_90a", "NOT_SUPPORTED"),
        (32, {}, "sm_90a", "NOT_SUPPORTED"),
        (16, {"ta": 0, "m": 64}, None, "NOT_SUPPORTED"),
        (32, {"no_factors": 1}, None, "INVALID_VALUE"),
        (16, {"short_factors": 1}, None, "EXECUTION_FAILED"),
        (16, {"d": "e4m3"}, None, "NOT_SUPPORTED"),
    ],
)
def test_scales_by_blocks_that_are_refused(
    program: Path, blocks: int, more: dict[str, Any], target: str | None, status: str
) -> None:
    options = {"api": "blocks", "blocks": blocks, "k": 64, "a": "e4m3", "d": "bf16", "compute": "f32", "pad": 0, **more}
    assert run(program, target, **options).stdout.splitlines()[0] == f"CUBLAS_STATUS_{status}"


REFUSED = {
    "i8 to f16": ({"api": "ex", "a": "i8", "d": "f16", "compute": "f32"}, None),
    "FP8 in cublasGemmEx": ({"api": "ex", "a": "e4m3", "d": "f16", "compute": "f32"}, None),
    "f32 to f16": ({"api": "ex", "a": "f32", "d": "f16", "compute": "f32"}, None),
    "two E5M2": ({**FP8, "a": "e5m2", "d": "bf16"}, None),
    "FP8 that is not K-major on Hopper": ({**FP8, "d": "bf16", "ta": 0}, "sm_90a"),
    "scales of f16 beside sums of f32": (
        {"api": "lt", "a": "f16", "d": "f16", "compute": "f32", "scale": "f16"}, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_types_that_the_library_refuses(program: Path, name: str) -> None:
    """With its own status, so that the program goes its own way."""
    options, target = REFUSED[name]
    outcome = run(program, target, **options)
    assert (outcome.stdout.splitlines()[0], outcome.exit_status) == ("CUBLAS_STATUS_NOT_SUPPORTED", 1)


def test_fp8_of_any_major_on_blackwell(program: Path) -> None:
    options = {**FP8, "d": "bf16", "ta": 0, "tb": 1, "n": 32}
    reference = Reference(**options)
    found = read(run(program, "sm_100a", **options), "bf16")
    np.testing.assert_array_equal(found, reference.memory(reference.result()))


@pytest.mark.parametrize(
    ("options", "called"),
    [
        ({"api": "gemv", "a": "f32", "d": "f32", "compute": "f32"}, "cublasSgemv"),
        ({"api": "lt", "a": "f16", "d": "f16", **HALVES, "epilogue": 192}, "cublasLtMatmul with epilogue 192"),
    ],
)
def test_what_is_not_covered_says_its_name(program: Path, options: dict[str, Any], called: str) -> None:
    outcome = run(program, **options)
    assert (outcome.exit_status, outcome.status, outcome.stdout) == (126, "incomplete", "")
    assert [(d.code, d.values) for d in outcome.diagnostics] == [(Code.PROGRAM_UNANSWERED, {"function": called})]
    assert f"calls {called}," in outcome.stderr


@pytest.mark.parametrize("mistake", ["host_a", "short_b"])
@pytest.mark.parametrize("api", ["sgemm", "lt"])
def test_a_matrix_that_is_not_in_device_memory(program: Path, mistake: str, api: str) -> None:
    """On a GPU the library's kernel faults: every later call fails."""
    outcome = run(program, api=api, a="f32", d="f32", compute="f32", **{mistake: 1})
    assert outcome.stdout.splitlines()[:2] == ["CUBLAS_STATUS_EXECUTION_FAILED", "cudaErrorIllegalAddress"]
    assert f"matrix {'A' if mistake == 'host_a' else 'B'}" in outcome.stderr


def test_copies_of_matrices_and_vectors(program: Path) -> None:
    outcome = run(program, api="copies", a="f32", d="f32", compute="f32")
    assert outcome.stdout.splitlines()[0].split() == [*"012456024", *3 * ["-1"]]


CHECKED = """
#include <cstdio>
#include <cublas_v2.h>
#include <vector>
__global__ void product(const float* a, const float* b, float* c, int n) {
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += a[threadIdx.x * n + k] * b[k * n + blockIdx.x];
    c[threadIdx.x * n + blockIdx.x] = sum;
}
int main() {
    const int n = 32;
    std::vector<float> a(n * n), b(n * n), c(n * n), d(n * n);
    for (int i = 0; i < n * n; ++i) { a[i] = i % 7 - 3; b[i] = i % 5 - 2; }
    float *p, *q, *r, *s;
    for (float** x : {&p, &q, &r, &s}) cudaMalloc(x, n * n * sizeof(float));
    cudaMemcpy(p, a.data(), n * n * 4, cudaMemcpyHostToDevice);
    cudaMemcpy(q, b.data(), n * n * 4, cudaMemcpyHostToDevice);
    product<<<n, n>>>(p, q, r, n);
    cublasHandle_t handle;
    cublasCreate(&handle);
    const float one = 1, zero = 0;
    // Row-major C = A B is column-major C^T = B^T A^T.
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, q, n, p, n, &zero, s, n);
    cudaMemcpy(c.data(), r, n * n * 4, cudaMemcpyDeviceToHost);
    cudaMemcpy(d.data(), s, n * n * 4, cudaMemcpyDeviceToHost);
    std::puts(c == d ? "same" : "different");
    return c != d;
}
"""


@pytest.mark.spread(2)
@pytest.mark.parametrize("command", ["run", "hazards"])
@pytest.mark.parametrize("named", [(), ("-l", "cublas")])
def test_a_program_that_checks_itself(
    command: str, named: tuple[str, ...], tmp_path: Path, toolkit: Toolkit, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "checked.cu"
    path.write_text(CHECKED)
    done = CliRunner().invoke(main, [command, str(path), "--arch", "sm_90a", *named])
    assert done.exit_code == 0, done.output
    assert ("clean" if command == "hazards" else "same") in done.output + capfd.readouterr().out


def test_programs_of_the_librarys_own_headers_link(tmp_path: Path, toolkit: Toolkit) -> None:
    """Functions that only those declare can be linked with too; headers that are there are not stood in for."""
    (tmp_path / "cublas_api.h").write_text('extern "C" int cublasElsewhere(int);\n')
    (tmp_path / "cublas_v2.h").write_text('#include "cublas_api.h"\n')
    source = tmp_path / "own.cu"
    source.write_text("#include <cublas_v2.h>\nint main() { return cudaFree(nullptr) ? cublasElsewhere(1) : 0; }\n")
    built = build_program(source, "sm_90a", tmp_path / "own", [tmp_path], libraries=("cublas",), toolkit=toolkit)
    assert not built.stood_in
    assert run_program(built.executable).exit_status == 0


def test_every_function_that_is_declared_is_answered(toolkit: Toolkit) -> None:
    text = cublas.HEADER.read_text("utf-8")
    folder = HERE.parents[1] / "porter" / "verify" / "program"
    sources = "".join((folder / name).read_text("utf-8") for name in ("cublas.cpp", "cublas_lt.cpp"))
    names = set(re.findall(r"^(?:cublasStatus_t|const char \*|size_t) ?(cublas\w+)\(", text, re.MULTILINE))
    assert len(names) > 35
    assert not {n for n in names if not re.search(rf"^\S.*\b{n}(?:##suffix)?\(", sources, re.MULTILINE)}
