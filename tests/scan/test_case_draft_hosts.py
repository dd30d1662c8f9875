# SPDX-License-Identifier: Apache-2.0
"""Drafts from host code as it is found: tensor maps in memory and in variables of the file, views of matrices, launches
from classes, and what is said to be a guess where something is not understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.scan.draft import statements
from porter.scan.draft.draft import Draft
from porter.scan.draft.new import draft_case

MMA = (
    'asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"'
    ' : "+f"(r[0]), "+f"(r[1]), "+f"(r[2]), "+f"(r[3]) : "l"(0ull), "l"(0ull));'
)
MAP = "const __grid_constant__ CUtensorMap"
KERNEL = f"""
#include <cuda_bf16.h>
typedef __nv_bfloat16 bf16;
template <int BM, int BN>
__global__ void __launch_bounds__(128) gemm(PARAMS) {{ float r[4]; {MMA} BODY }}
"""
BY_VALUE = f"{MAP} ma, {MAP} mb, bf16* C, int M, int N, int K"
WRITES = "C[blockIdx.y * N + threadIdx.x] = r[0];"
ENCODE = """
template <int ROWS, int COLUMNS>
void encode(CUtensorMap* map, bf16* p, {takes}) {{
    uint64_t shape[5] = {{{shape}}}, stride[5] = {{{stride}}};
    uint32_t box[5] = {{COLUMNS, ROWS, 1, 1, 1}}, ones[5] = {{1, 1, 1, 1, 1}};
    CUresult result = cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, {rank}, (void*)p, shape,
        stride{skip}, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    assert(result == CUDA_SUCCESS);
}}
"""
PLAIN = ENCODE.format(
    takes="int rows, int columns", shape="(uint64_t)columns, (uint64_t)rows, 1, 1, 1",
    stride="sizeof(bf16), sizeof(bf16) * columns, 0, 0, 0", skip=" + 1", rank=2,
)  # fmt: skip
TAKES = "void run(int M, int N, int K, bf16* A, bf16* B, bf16* C) { "
GRID = "gemm<128, 64><<<dim3(N / 64, M / 128), 128, 0>>>"
MAPS = "CUtensorMap ma, mb; encode<128, 64>(&ma, A, M, K); encode<64, 64>(&mb, B, N, K); "
BOXES = [[128, 64], [64, 64]]


def drafted(text: str, folder: Path) -> Draft:
    path = folder / "gemm.cu"
    path.write_text(text)
    return draft_case(path)


def kernel(params: str = BY_VALUE, body: str = WRITES) -> str:
    return KERNEL.replace("PARAMS", params).replace("BODY", body)


IN_MEMORY = kernel("const CUtensorMap* ma, const CUtensorMap* mb, bf16* C, int M, int N, int K") + PLAIN
MADE = """
template <int ROWS, int COLUMNS>
CUtensorMap* made(bf16* p, int rows, int columns) {{
    CUtensorMap* device; CUtensorMap host;
    {allocate};
    encode<ROWS, COLUMNS>(&host, p, rows, columns);
    {copy};
    return device;
}}
"""
COPY = "cudaMemcpy(device, &host, sizeof(CUtensorMap), cudaMemcpyHostToDevice)"
KEPT = "if (!map_a) {{ map_a = {0}made<128, 64>(A, M, K); map_b = {0}made<64, 64>(B, N, K); }} "
CALL = GRID + "(map_a, map_b, C, M, N, K); }"
KEPT_MAPS = {
    "in variables of the file": ("CUtensorMap *map_a = 0, *map_b = 0;\n", COPY, KEPT),
    "nullptr": ("CUtensorMap* map_a = nullptr;\nCUtensorMap* map_b = nullptr;\n", COPY, KEPT),
    "static": ("static CUtensorMap *map_a, *map_b;\n", COPY, KEPT),
    "copied on a stream": ("CUtensorMap *map_a = 0, *map_b = 0;\n", COPY.replace("py(", "pyAsync("), KEPT),
    "assigned": ("CUtensorMap *map_a = 0, *map_b = 0;\n", "*device = host", KEPT),
    "of the function": ("", COPY, "auto map_a = made<128, 64>(A, M, K), map_b = made<64, 64>(B, N, K); "),
    "by size": (
        "CUtensorMap *map_a = 0, *map_b = 0; int last = 0;\n", COPY,
        KEPT.replace("!map_a", "last != M").replace("}}", "last = M; }} assert(last == M); "),
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", KEPT_MAPS)
def test_tensor_maps_in_memory(how: str, tmp_path: Path) -> None:
    variables, copy, keep = KEPT_MAPS[how]
    allocate = "cudaMalloc(&device, sizeof(CUtensorMap))"
    draft = drafted(
        IN_MEMORY + MADE.format(allocate=allocate, copy=copy) + variables + TAKES + keep.format("") + CALL, tmp_path
    )
    assert set(draft.guesses) == {"reference"}
    assert draft.fields["params"][:3] == [{"address_of": "ma"}, {"address_of": "mb"}, "C"]
    assert [m["box"] for m in draft.fields["tensor_maps"].values()] == BOXES
    assert draft.fields["reference"] == "A @ B.T"


def test_extents_in_tiles_are_sizes_that_tiles_divide(tmp_path: Path) -> None:
    text = ENCODE.format(
        takes="int tall, int wide", shape="(uint64_t)COLUMNS*wide, (uint64_t)ROWS*tall, 1, 1, 1",
        stride="sizeof(bf16), sizeof(bf16) * COLUMNS*wide, 0, 0, 0", skip=" + 1", rank=2,
    )  # fmt: skip
    maps = "CUtensorMap ma, mb; encode<128, 64>(&ma, A, M / 128, K / 64); encode<64, 64>(&mb, B, N / 64, K / 64); "
    draft = drafted(kernel() + text + TAKES + maps + GRID + "(ma, mb, C, M, N, K); }", tmp_path)
    assert [t["shape"] for t in draft.fields["tensors"].values()] == [["M", "K"], ["N", "K"], ["M", "N"]]
    assert draft.fields["sizes"]["K"] % 64 == 0
    assert draft.fields["multiples"] == {"M": 128, "N": 64}
    assert set(draft.guesses) == {"reference"}


TILED = ENCODE.format(
    takes="int rows, int columns", shape="64, (uint64_t)rows, (uint64_t)columns / 64, 1, 1",
    stride="sizeof(bf16) * columns, 64 * sizeof(bf16), 0, 0, 0", skip="", rank=3,
)  # fmt: skip


def test_columns_of_tiles_are_a_matrix_in_memory(tmp_path: Path) -> None:
    draft = drafted(kernel() + TILED + TAKES + MAPS + GRID + "(ma, mb, C, M, N, K); }", tmp_path)
    assert draft.fields["tensors"]["A"]["shape"] == ["M", "K"]
    assert "strides" not in draft.fields["tensors"]["A"]
    assert draft.fields["tensor_maps"]["ma"]["dims"] == ["K // 64", "M", 64]
    assert draft.fields["tensor_maps"]["ma"]["strides"] == [64, "K", 1]
    assert draft.fields["reference"] == "A @ B.T"


THREE = f"{MAP} mc, {MAP} ma, {MAP} mb, int M, int N, int K"
STORES = {
    "named": ("store_async(&mc, 0, 0);", True),
    "CuTe": ("SM90_TMA_STORE_2D::copy(&mc, smem, 0, 0);", True),
    "template": ("tma_store_2d<64>(smem, &mc, 0, 0);", True),
    "nothing tells": ("through(&mc);", False),
}


@pytest.mark.parametrize("how", STORES)
def test_what_is_stored_through_a_map_is_written(how: str, tmp_path: Path) -> None:
    body, is_told = STORES[how]
    maps = "CUtensorMap mc; encode<128, 64>(&mc, C, M, N); "
    draft = drafted(kernel(THREE, body) + PLAIN + TAKES + MAPS + maps + GRID + "(mc, ma, mb, M, N, K); }", tmp_path)
    roles = {name: t["role"] for name, t in draft.fields["tensors"].items()}
    if is_told:
        assert roles == {"A": "input", "B": "input", "C": "output"}
        assert set(draft.guesses) == {"reference"}
        assert draft.fields["reference"] == "A @ B.T"
    else:
        assert list(roles.values()).count("output") == 1
        assert any("is written" in why for why in draft.guesses.values())


def test_a_result_by_columns_is_a_product_that_is_turned(tmp_path: Path) -> None:
    maps = "CUtensorMap mc; encode<64, 128>(&mc, C, N, M); "
    text = kernel(THREE, "store_async(&mc, 0, 0);") + PLAIN + TAKES + MAPS + maps + GRID + "(mc, ma, mb, M, N, K); }"
    draft = drafted(text, tmp_path)
    assert draft.fields["tensors"]["C"]["shape"] == ["N", "M"]
    assert draft.fields["reference"] == "(A @ B.T).T"


CLASS = """
namespace product {
enum class Order { rows, columns };
template <int BM, int BN, Order ORDER>
struct Product {
    static constexpr int stages = 3;
    struct Shared { bf16 a[stages][BM * 64]; bf16 b[stages][BN * 64]; SPARE };
    static int threads() { return 128; }
    static constexpr size_t bytes() { return sizeof(Shared); }
    static void launch(int M, int N, int K, bf16* A, bf16* B, bf16* C) {
        CUtensorMap ma, mb;
        encode<BM, 64>(&ma, A, M, K);
        encode<BN, 64>(&mb, B, N, K);
        cudaLaunchConfig_t config = {0};
        config.gridDim = dim3(N / BN, M / BM);
        config.blockDim = dim3{threads(), 1, 1};
        config.dynamicSmemBytes = bytes();
        const auto kernel = gemm<Product>;
        cudaLaunchKernelEx(&config, kernel, ma, mb, C, M, N, K);
    }
};
void run(int M, int N, int K, bf16* A, bf16* B, bf16* C) {
    using Wanted = Product<128, 64, Order::rows>;
    Wanted::launch(M, N, K, A, B, C);
}
}
"""


@pytest.mark.parametrize(
    ("spare", "smem"),
    [("", 3 * 192 * 64 * 2), ("float more[8];", 3 * 192 * 64 * 2 + 32), ("union { float c[8]; int d; };", 204800)],
)
def test_launches_from_a_class_template(spare: str, smem: int, tmp_path: Path) -> None:
    """In the class its name has its arguments; what is not known to the byte is given more than enough."""
    own = kernel().replace("template <int BM, int BN>", "namespace product { template <class P>").rstrip() + " }\n"
    text = own + PLAIN + CLASS.replace("SPARE", spare)
    draft = drafted(text, tmp_path)
    assert draft.fields["template"] == ["product::Product<128, 64, product::Order::rows>"]
    assert draft.fields["launch"]["block"] == [128, 1, 1]
    assert draft.fields["launch"]["grid"] == ["N // 64", "M // 128", 1]
    assert draft.fields["launch"]["dynamic_smem"] == smem
    assert set(draft.guesses) == {"reference"}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("sizeof(bf16) * columns, 0", "pitch_of(p), 0", "rows follow each other"),
        ("(uint64_t)columns, (uint64_t)rows", "(uint64_t)columns, tall(p)", "over the whole tensor"),
    ],
)
def test_what_is_not_understood_of_a_map_is_a_guess(old: str, new: str, why: str, tmp_path: Path) -> None:
    assert old in PLAIN
    text = kernel() + PLAIN.replace(old, new) + TAKES + MAPS + GRID + "(ma, mb, C, M, N, K); }"
    draft = drafted(text, tmp_path)
    assert why in draft.guesses["tensor_maps.ma"]
    assert why in draft.text()


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("bf16.bf16", "bf16"), ("f16.f16", "f16"), ("e4m3.e4m3", "f8e4m3"), ("tf32.tf32", "tf32"), ("e4m3.e5m2", None)],
)
def test_operands_of_maps_that_nobody_encodes_are_of_the_mma(kind: str, dtype: str | None, tmp_path: Path) -> None:
    text = kernel(BY_VALUE.replace(" ma", " dA").replace(" mb", " dB")).replace("bf16.bf16 {", kind + " {")
    draft = drafted(text, tmp_path)
    tensors = draft.fields["tensors"]
    assert {"A", "B", "C"} == set(tensors)
    assert {"tensor_maps.dA", "tensor_maps.dB"} <= set(draft.guesses)
    if dtype is None:
        assert draft.guesses["tensors.A"] == "its number format"
    else:
        assert (tensors["A"]["dtype"], tensors["B"]["dtype"]) == (dtype, dtype)


def test_memory_that_the_kernel_has_no_use_for_is_not_written(tmp_path: Path) -> None:
    params = BY_VALUE + ", float* spare"
    text = kernel(params) + PLAIN + TAKES.replace("bf16* C)", "bf16* C, float* spare)") + MAPS
    draft = drafted(text + GRID + "(ma, mb, C, M, N, K, spare); }", tmp_path)
    assert draft.fields["tensors"]["spare"]["role"] == "input"


@pytest.mark.parametrize("launches", [True, False])
def test_code_that_runs_for_long_is_left(launches: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device function with loops in loops, and host code that comes to no end."""
    monkeypatch.setattr(statements, "MOST_STEPS", 500)
    loops = "".join(f"for (int i{n} = 0; i{n} < 60; ++i{n}) " for n in range(5))
    busy = f"__device__ void busy(float* r) {{ {loops} r[0] += 1; }}\n"
    busy += f"void waits(int n) {{ {loops} busy(nullptr); BODY }}\n"
    text = kernel() + PLAIN + busy.replace("BODY", "gemm<128, 64><<<1, 1>>>();" if launches else "")
    draft = drafted(text + TAKES + MAPS + GRID + "(ma, mb, C, M, N, K); }", tmp_path)
    assert set(draft.guesses) == {"reference"}


@pytest.mark.parametrize("how", [MMA, "multiply(r);"])
def test_the_kernel_with_tensor_core_instructions_is_the_one_that_is_drafted(how: str, tmp_path: Path) -> None:
    helper = f"__device__ void multiply(float* r) {{ {MMA} }}\n"
    text = helper + f"__global__ void fill(float* x) {{ x[0] = 1; }}\n__global__ void gemm(float* r) {{ {how} }}\n"
    assert drafted(text, tmp_path).fields["entry"] == "gemm"
