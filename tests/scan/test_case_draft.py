# SPDX-License-Identifier: Apache-2.0
"""Drafts of cases: what launch code says becomes expressions over its sizes, and what nothing says is a guess."""

from __future__ import annotations

import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from porter.cli.main import main
from porter.diagnostics import Code, ExitCode, PorterError
from porter.scan.draft import dsl
from porter.scan.draft import numbers as nums
from porter.scan.draft.draft import Draft
from porter.scan.draft.new import draft_case, has_main
from porter.verify.case import load_case
from porter.verify.problem import Problem, bind

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
MOST_GUESSES = 3
NOT_UNDERSTOOD = {"gemm_grouped"}
"""Its tensors lie in an array of structures on the host."""
RENAMED = {"heads": "H", "seqlen": "S", "tokens": "T", "hidden": "H", "nq": "N"}
CUDA = [*sorted(p.parent.name for p in CORPUS.glob("gemm_*/case.yaml")), "attention_fwd"]
"""Kernels in CUDA C++ of their own; what `make_tma_copy` of CuTe C++ makes is not followed."""
DSL = sorted(p.parent.name for p in CORPUS.glob("dsl_*/case.yaml"))


def drafted(name: str, folder: Path) -> tuple[Draft, Problem]:
    """The draft of a kernel of the corpus without its case, bound at its own sizes."""
    ending = "py" if name.startswith("dsl_") else "cu"
    shutil.copytree(CORPUS / name, folder / name)
    for case in (folder / name).glob("*.yaml"):
        case.unlink()
    draft = draft_case(folder / name / f"{name}.{ending}", "gemm" if name == "dsl_gemm_plain" else None)
    target = folder / name / "case.yaml"
    target.write_text(draft.text())
    for file, text in draft.files.items():
        (folder / name / file).write_text(text)
    return draft, bind(load_case(target))


@pytest.mark.parametrize("name", [n for n in CUDA if n not in NOT_UNDERSTOOD])
def test_drafts_launch_the_corpus_as_its_cases_do(name: str, tmp_path: Path) -> None:
    draft, problem = drafted(name, tmp_path)
    assert 1 <= len(draft.guesses) <= MOST_GUESSES
    own = load_case(CORPUS / name / "case.yaml")
    sizes = {RENAMED.get(n, n.upper()): v for n, v in problem.sizes.items()}
    assert set(sizes) <= set(own.sizes)
    written = bind(own, sizes)
    # how many blocks a persistent kernel has is up to whoever launches it
    if name not in ("gemm_persistent", "gemm_splitk"):
        assert problem.launch.grid == written.launch.grid
    assert problem.launch.block == written.launch.block
    assert problem.launch.cluster == written.launch.cluster
    assert problem.launch.dynamic_smem == written.launch.dynamic_smem
    assert sorted(map(_of_map, problem.tensor_maps.values())) == sorted(map(_of_map, written.tensor_maps.values()))
    # what scales and rows of a softmax are over stands in the kernel's text alone
    if name not in ("gemm_fp8_scaled", "gemm_fp8_ue8m0", "gemm_softmax"):
        assert sorted(_of_tensor(problem)) == sorted(_of_tensor(written))


def _of_map(bound: Any) -> tuple[Any, ...]:
    m = bound.map
    return m.sizes, m.strides, m.box, m.element_strides, m.swizzle.value, m.l2_promotion.value, m.dtype.value


def _of_tensor(problem: Problem) -> list[tuple[Any, ...]]:
    return [(t.shape, t.strides, t.dtype.name, t.is_input, t.is_output) for t in problem.tensors.values()]


def test_what_is_not_understood_is_said(tmp_path: Path) -> None:
    shutil.copytree(CORPUS / "gemm_grouped", tmp_path / "k")
    draft = draft_case(tmp_path / "k" / "gemm_grouped.cu")
    assert {"launch.grid", "params[0]", "reference"} <= set(draft.guesses)
    assert draft.fields["launch"]["block"] == [160, 1, 1]


@pytest.mark.parametrize("name", DSL)
def test_drafts_of_dsl_kernels_hold_together(name: str, tmp_path: Path) -> None:
    draft, problem = drafted(name, tmp_path)
    assert 1 <= len(draft.guesses) <= MOST_GUESSES
    assert problem.outputs
    assert problem.inputs


def test_the_page_says_how_many_guesses_there_are(tmp_path: Path) -> None:
    page = (CORPUS.parent / "docs" / "drafts.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (\d) \|", page, re.MULTILINE))
    assert set(CUDA) - NOT_UNDERSTOOD <= set(rows)
    for name in ("gemm_tma", "gemm_coop", "dsl_gemm"):
        assert len(drafted(name, tmp_path)[0].guesses) == int(rows[name])


# --- Host code

KERNEL = """
template <int BM, int BN>
struct Shared { alignas(1024) half a[2][BM * 64]; half b[2][BN * 64]; unsigned long full[2]; };
__global__ void __launch_bounds__(256)
gemm(const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb, float* C, int N, int K) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3]) : "l"(0ull), "l"(0ull));
}
CUtensorMap encode(const half* p, int rows, int cols, int box_rows) {
    CUtensorMap m;
    cuuint64_t dims[] = {(cuuint64_t)cols, (cuuint64_t)rows}, strides[] = {cols * sizeof(half)};
    cuuint32_t box[] = {64, (cuuint32_t)box_rows}, ones[] = {1, 1};
    cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, (void*)p, dims, strides, box, ones,
                           CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return m;
}
"""
MAPS = "CUtensorMap ma = encode(A, M, K, 128), mb = encode(B, N, K, 64); "
TAKES = "(const half* A, const half* B, float* C, int M, int N, int K) { "
HEAD = "void run" + TAKES
WANTED = {"grid": (4, 2, 1), "block": (256, 1, 1), "cluster": (1, 1, 1), "dynamic_smem": 50176}
LAUNCHES = {
    "triple chevrons": HEAD + MAPS + "gemm<<<dim3(N / 64, M / 128), 256, 50176>>>(ma, mb, C, N, K); }",
    "variables": HEAD + MAPS + "dim3 grid(N / 64, M / 128), block(256); size_t smem = sizeof(Shared<128, 64>);"
    " gemm<<<grid, block, smem>>>(ma, mb, C, N, K); }",
    "assigned members": HEAD + MAPS + "dim3 grid; grid.x = (N + 63) / 64; grid.y = (M + 127) / 128; grid.z = 1;"
    " gemm<<<grid, 256, 50176>>>(ma, mb, C, N, K); }",
    "launch config": HEAD + MAPS + "cudaLaunchConfig_t c = {}; c.gridDim = dim3(N / 64, M / 128); c.blockDim = 256;"
    " c.dynamicSmemBytes = 50176; cudaLaunchKernelEx(&c, gemm, ma, mb, C, N, K); }",
    "designated config": HEAD + MAPS + "cudaLaunchConfig_t c{.gridDim = {unsigned(N / 64), unsigned(M / 128), 1},"
    " .blockDim = {256, 1, 1}, .dynamicSmemBytes = 50176}; cudaLaunchKernelEx(&c, gemm, ma, mb, C, N, K); }",
    "pointers to arguments": HEAD + MAPS + "void* args[] = {&ma, &mb, &C, &N, &K};"
    " cudaLaunchKernel((const void*)gemm, dim3(N / 64, M / 128), dim3(256), args, 50176, 0); }",
    "helper": "int tiles(int n, int tile) { return (n + tile - 1) / tile; }\n" + HEAD + MAPS
    + "gemm<<<dim3(tiles(N, 64), tiles(M, 128)), 256, 50176>>>(ma, mb, C, N, K); }",
    "lambda": HEAD + MAPS + "auto up = [](int n, int t) { return (n + t - 1) / t; };"
    " gemm<<<dim3(up(N, 64), up(M, 128)), 256, 50176>>>(ma, mb, C, N, K); }",
    "template launcher": "template <int BM, int BN> void launch" + TAKES + MAPS
    + "gemm<<<dim3(N / BN, M / BM), 256, sizeof(Shared<BM, BN>)>>>(ma, mb, C, N, K); }\n"
    + HEAD + "launch<128, 64>(A, B, C, M, N, K); }",
    "dispatch": "template <int BN> void launch" + TAKES + MAPS
    + "gemm<<<dim3(N / BN, M / 128), 256, 50176>>>(ma, mb, C, N, K); }\n"
    + HEAD + "switch (K) { case 320: launch<64>(A, B, C, M, N, K); break; default: return; } }",
    "checks": HEAD + "if (K % 64) return; assert(N % 64 == 0 && M % 128 == 0); " + MAPS
    + "if (cudaError_t e = cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, 50176)) return;"
    " gemm<<<dim3(N / 64, M / 128), 256, 50176>>>(ma, mb, C, N, K); }",
    "capability": HEAD + "int dev = 0, major = 0;"
    " cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, dev);"
    " if (major != 9) return; " + MAPS + "gemm<<<dim3(N / 64, M / 128), 256, 50176>>>(ma, mb, C, N, K); }",
    "pointer to kernel": HEAD + MAPS + "auto k = &gemm; k<<<dim3(N / 64, M / 128), 256, 50176>>>(ma, mb, C, N, K); }",
    "struct of arguments": "struct Args { const half* A; const half* B; float* C; int M, N, K; };\n"
    "void run(Args a) { CUtensorMap ma = encode(a.A, a.M, a.K, 128), mb = encode(a.B, a.N, a.K, 64);"
    " gemm<<<dim3(a.N / 64, a.M / 128), 256, 50176>>>(ma, mb, a.C, a.N, a.K); }",
    "torch": "torch::Tensor run(torch::Tensor A, torch::Tensor B) { int M = A.size(0), K = A.size(1), N = B.size(0);"
    " auto out = torch::empty({M, N}, A.options()); CUtensorMap ma = encode(A.data_ptr<half>(), M, K, 128),"
    " mb = encode(B.data_ptr<half>(), N, K, 64);"
    " gemm<<<dim3(N / 64, M / 128), 256, 50176>>>(ma, mb, out.data_ptr<float>(), N, K); return out; }",
}  # fmt: skip


def launched(source: str, folder: Path) -> Problem:
    path = folder / "gemm.cu"
    path.write_text(source)
    target = folder / "case.yaml"
    draft = draft_case(path)
    assert set(draft.guesses) <= {"reference"}
    target.write_text(draft.text())
    case = load_case(target)
    m, n, k = (next(s for s in case.sizes if s in names) for names in (("M", "A_0"), ("N", "B_0"), ("K", "A_1")))
    return bind(case, {m: 256, n: 256, k: 320})


@pytest.mark.parametrize("how", LAUNCHES)
def test_launches_in_many_spellings(how: str, tmp_path: Path) -> None:
    problem = launched(KERNEL + LAUNCHES[how], tmp_path)
    assert {name: getattr(problem.launch, name) for name in WANTED} == WANTED
    assert [t.shape for t in problem.tensors.values()] == [(256, 320), (256, 320), (256, 256)]
    assert [tuple(reversed(m.map.box)) for m in problem.tensor_maps.values()] == [(128, 64), (64, 64)]
    assert problem.case.reference in ("A @ B.T",)


def test_a_cluster_of_an_attribute_or_of_the_launch(tmp_path: Path) -> None:
    config = (
        "cudaLaunchAttribute at[1]; at[0].id = cudaLaunchAttributeClusterDimension; at[0].val.clusterDim.x = 2;"
        " at[0].val.clusterDim.y = 1; at[0].val.clusterDim.z = 1; c.attrs = at; c.numAttrs = 1;"
    )
    plain = LAUNCHES["launch config"]
    by_launch = plain.replace("cudaLaunchKernelEx", config + " cudaLaunchKernelEx")
    assert launched(KERNEL + by_launch, tmp_path).launch.cluster == (2, 1, 1)
    by_kernel = KERNEL.replace("__launch_bounds__(256)", "__cluster_dims__(2, 1, 1) __launch_bounds__(256)") + plain
    assert launched(by_kernel, tmp_path).launch.cluster == (2, 1, 1)


def test_a_kernel_alone_is_drafted_with_guesses(tmp_path: Path) -> None:
    path = tmp_path / "gemm.cu"
    path.write_text(KERNEL)
    draft = draft_case(path)
    assert draft.fields["launch"]["block"] == [256, 1, 1]
    assert {"launch.grid", "tensor_maps.ma", "tensor_maps.mb"} <= set(draft.guesses)
    assert draft.text().count("# guess:") == len(draft.guesses)


def test_sizes_satisfy_what_host_code_asks(tmp_path: Path) -> None:
    check = "if (M % 384 != 0 || K < 512 || N > 100) return;"
    path = tmp_path / "gemm.cu"
    path.write_text(KERNEL + LAUNCHES["triple chevrons"].replace(HEAD, HEAD + check))
    sizes = draft_case(path).fields["sizes"]
    assert sizes["M"] % 384 == 0
    assert sizes["K"] >= 512
    assert sizes["N"] <= 100


def test_sizes_that_nothing_satisfies_are_a_guess(tmp_path: Path) -> None:
    path = tmp_path / "gemm.cu"
    path.write_text(KERNEL + LAUNCHES["triple chevrons"].replace(HEAD, HEAD + "if (M != N + 1) return;"))
    assert "sizes" in draft_case(path).guesses


def test_which_kernel_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "two.cu"
    path.write_text("__global__ void one(float* x) {}\n__global__ void two(float* x) {}\n")
    with pytest.raises(PorterError) as several:
        draft_case(path)
    assert several.value.diagnostic.code is Code.ENTRY_AMBIGUOUS
    assert "--entry" in several.value.diagnostic.code.value.next_step
    assert draft_case(path, "two").fields["entry"] == "two"
    with pytest.raises(PorterError) as none:
        draft_case(path, "three")
    assert none.value.diagnostic.code is Code.ENTRY_NOT_FOUND


@pytest.mark.parametrize(
    ("text", "defines", "wanted"),
    [
        ("int main() {}", (), True),
        ("int main(int argc, char** argv) {}", (), True),
        ("#ifdef MAIN\nint main() {}\n#endif", (), False),
        ("#ifdef MAIN\nint main() {}\n#endif", ("MAIN=1",), True),
        ("#ifdef X\n#endif\nint main() {}", (), True),
        ("// int main() {}\nvoid domain() {}", (), False),
    ],
)
def test_which_sources_are_programs(text: str, defines: tuple[str, ...], wanted: bool, tmp_path: Path) -> None:
    path = tmp_path / "p.cu"
    path.write_text(text)
    assert has_main(path, defines) is wanted


# --- Expressions


A, B = nums.name("a"), nums.name("b")
EXPRESSIONS = [
    (
        nums.apply("//", nums.apply("-", nums.apply("+", A, nums.const(4)), nums.const(1)), nums.const(4)),
        "ceil_div(a, 4)",
    ),
    (nums.apply("*", nums.apply("+", A, nums.const(2)), nums.const(3)), "(a + 2) * 3"),
    (nums.apply("-", A, nums.apply("-", B, nums.name("c"))), "a - (b - c)"),
    (nums.apply("//", nums.apply("*", A, nums.const(8)), nums.const(8)), "a"),
    (nums.apply("if", nums.apply("<", A, B), A, B), "min(a, b)"),
    (nums.apply("if", nums.apply("<", A, B), B, A), "max(b, a)"),
]


@pytest.mark.parametrize(("built", "written"), EXPRESSIONS)
def test_expressions_as_case_files_have_them(built: nums.Num, written: str) -> None:
    assert str(built) == written


def test_written_expressions_come_to_what_they_were_built_of() -> None:
    values = {"a": 7, "b": 5, "c": 3}
    a, b, c = map(nums.name, values)
    space = {**values, "ceil_div": lambda x, y: -(-x // y)}
    for one in ("+", "-", "*", "//", "%"):
        for two in ("+", "-", "*", "//", "%"):
            for tree in (nums.apply(two, nums.apply(one, a, b), c), nums.apply(two, a, nums.apply(one, b, c))):
                try:
                    wanted = tree.run(values)
                except ZeroDivisionError:
                    continue
                assert eval(str(tree), {}, space) == wanted
    assert (
        math.lcm(1, nums.divisors([nums.apply("//", a, nums.const(6)), nums.apply("%", a, nums.const(4))], "a")) == 12
    )


# --- CuTe DSL

PLAIN = """
import cutlass
import cutlass.cute as cute

@cute.jit
def matmul(mA: cute.Tensor, mB: cute.Tensor, mC: cute.Tensor, alpha: cutlass.Float32, stream):
    kernel(mA, mB, mC).launch(grid=[1, 1, 1], block=[128, 1, 1], stream=stream)
"""


def test_a_jit_function_is_an_entry() -> None:
    draft = dsl.draft(PLAIN, "matmul.py", None)
    assert draft is not None
    assert draft.fields["dsl"] == {"call": ["mA", "mB", "mC", {"runtime": "alpha", "type": "f32"}, "stream"]}
    assert draft.fields["tensors"]["mB"]["shape"] == ["N", "K"]
    assert draft.fields["reference"] == "alpha * (mA @ mB.T)"


def test_shapes_of_a_docstring_win() -> None:
    doc = "mC = alpha mA. mA is (M, K), mB is (K, N), and mC (M, N)."
    source = PLAIN.replace("stream):\n", f'stream):\n    """{doc}"""\n')
    draft = dsl.draft(source, "matmul.py", None)
    assert draft is not None
    assert draft.fields["tensors"]["mB"]["shape"] == ["K", "N"]
    assert "kn->mn" in draft.fields["reference"]


TORCH_KERNEL = """
#include <cuda_bf16.h>
__global__ void __launch_bounds__(128)
gemm(const __nv_bfloat16* __restrict__ a, const __nv_bfloat16* __restrict__ b, const float* bias, float* c,
     int n, int k) {
  c[int64_t(blockIdx.y) * n + threadIdx.x] = float(a[int64_t(blockIdx.y) * k]) * float(b[int64_t(threadIdx.x) * k])
      + bias[blockIdx.x * 64 + threadIdx.x];
}
"""
PASSED = (
    "gemm<<<dim3(n / 64, m / 64), 128>>>({0}, {1}, bias.data_ptr<float>(), out.data_ptr<float>(), n, k); return out; }"
)
SIZES = "const int m = x.size(0), n = w.size(0), k = x.size(1); "
EMPTY = "auto out = torch::empty({m, n}, x.options().dtype(torch::kFloat32)); "
CALLS = {
    "typed": ("x.data_ptr<at::BFloat16>()", "w.data_ptr<at::BFloat16>()"),
    "cast": ("reinterpret_cast<const __nv_bfloat16*>(x.data_ptr<at::BFloat16>())",
             "reinterpret_cast<const __nv_bfloat16*>(w.data_ptr<at::BFloat16>())"),
    "untyped": ("reinterpret_cast<__nv_bfloat16*>(x.data_ptr())", "static_cast<__nv_bfloat16*>(w.data_ptr())"),
    "C cast": ("(const __nv_bfloat16*)x.data_ptr()", "(const __nv_bfloat16*)w.data_ptr()"),
    "mutable": ("(__nv_bfloat16*)x.mutable_data_ptr()", "(__nv_bfloat16*)w.const_data_ptr()"),
}  # fmt: skip
HEADS = {
    "references": "torch::Tensor run(const torch::Tensor& x, const torch::Tensor& w, const torch::Tensor& bias) { ",
    "values": "at::Tensor run(at::Tensor x, at::Tensor w, at::Tensor bias) { ",
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("head", HEADS)
def test_tensors_of_pytorch_are_what_the_kernel_takes_them_for(head: str, call: str, tmp_path: Path) -> None:
    path = tmp_path / "gemm.cu"
    path.write_text(
        TORCH_KERNEL
        + HEADS[head]
        + SIZES
        + EMPTY
        + PASSED.replace("{0}", CALLS[call][0]).replace("{1}", CALLS[call][1])
    )
    draft = draft_case(path)
    assert set(draft.guesses) == {"reference"}
    made = draft.fields["tensors"]
    assert {name: (t["dtype"], t["shape"], t["role"]) for name, t in made.items()} == {
        "x": ("bf16", ["m", "k"], "input"), "w": ("bf16", ["n", "k"], "input"), "bias": ("f32", ["n"], "input"),
        "out": ("f32", ["m", "n"], "output"),
    }  # fmt: skip


def drafted_by_command(text: str, folder: Path) -> Result:
    (folder / "gemm.cu").write_text(text)
    return CliRunner().invoke(main, ["case", "new", str(folder / "gemm.cu"), "-o", str(folder / "case.yaml")])


def test_a_program_that_does_not_run_keeps_its_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> None:
        raise PorterError(Code.NVCC_ERROR, path="gemm.cu", arch="sm_90a", text="common.h: No such file or directory")

    monkeypatch.setattr("porter.cli.case._held_against", fails)
    done = drafted_by_command(
        KERNEL + LAUNCHES["variables"] + "\nint main() { run(0, 0, 0, 256, 256, 320); }\n", tmp_path
    )
    assert done.exit_code == 0, done.output
    assert Code.DRAFT_NOT_RUN.id in done.output
    assert "common.h" in done.output
    assert load_case(tmp_path / "case.yaml").entry == "gemm"
    asked = ["case", "new", str(tmp_path / "gemm.cu"), "-o", str(tmp_path / "again.yaml"), "--program"]
    assert CliRunner().invoke(main, [*asked, str(tmp_path / "gemm.cu")]).exit_code == int(ExitCode.BUILD_FAILED)
    assert not (tmp_path / "again.yaml").exists()


@pytest.mark.parametrize(("count", "is_said"), [(2, False), (3, False), (4, True), (6, True)])
def test_objects_of_a_library_are_a_launchs_to_say(count: int, is_said: bool, tmp_path: Path) -> None:
    classes = ", ".join(f"class T{i}" for i in range(count))
    params = ", ".join(f"T{i} t{i}" for i in range(count))
    body = 'asm volatile("wgmma.fence.sync.aligned;"); c[0] = 0;'
    done = drafted_by_command(
        f"template <{classes}>\n__global__ void gemm({params}, float* c) {{ {body} }}\n", tmp_path
    )
    assert done.exit_code == 0, done.output
    assert (Code.DRAFT_OBJECTS.id in done.output) == is_said
    assert ("porter capture" in done.output) == is_said


def test_tensor_maps_in_a_struct_have_names(tmp_path: Path) -> None:
    source = KERNEL.replace(
        "gemm(const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb, float* C,",
        "gemm(const __grid_constant__ Maps maps, float* C,",
    )
    launch = "Maps maps; maps.ma = encode(A, M, K, 128); maps.mb = encode(B, N, K, 64); "
    call = "gemm<<<dim3(N / 64, M / 128), 256, 50176>>>(maps, C, N, K); }"
    path = tmp_path / "gemm.cu"
    path.write_text(f"struct Maps {{ CUtensorMap ma, mb; }};\n{source}{HEAD}{launch}{call}")
    made = draft_case(path).fields
    assert [m["box"] for m in made["tensor_maps"].values()] == [[128, 64], [64, 64]]
    assert made["params"][0] == {"struct": list(made["tensor_maps"])}
