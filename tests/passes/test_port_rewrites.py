# SPDX-License-Identifier: Apache-2.0
"""What the compat port makes of each idiom, and what it leaves alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernels import GEMM, LOOP, STORE, SYNC, kernel, port_text, ported, wrapper

NOT_HOPPER = [
    pytest.param("int main() { return 0; }\n", id="host program"),
    pytest.param("__global__ void k(float* x) { x[threadIdx.x] = 1.f; }\n", id="plain kernel"),
    pytest.param("// wgmma.mma_async is what this file does not use\n__global__ void k() {}\n", id="comment"),
    pytest.param("/* wgmma.fence */ int x;\n", id="block comment"),
    pytest.param("#if __CUDA_ARCH__ >= 900\n__device__ void f() {}\n#endif\n", id="guard without a kernel"),
    pytest.param("", id="empty file"),
    pytest.param("\r\n\tint x ;\r\n", id="odd white space"),
]


@pytest.mark.parametrize("text", NOT_HOPPER)
def test_noop(tmp_path: Path, text: str) -> None:
    result = port_text(tmp_path, text)
    assert int(result.exit_code) == 0
    assert result.files[result.sources.root] == text.encode()
    assert not result.groups


def test_nothing_selected_changes_nothing(tmp_path: Path) -> None:
    result = port_text(tmp_path, GEMM, select=("none",))
    assert not result.changed
    assert int(result.exit_code) == 0


def test_second_run_is_empty(tmp_path: Path) -> None:
    once = ported(tmp_path, GEMM)
    assert "wgmma." not in re.sub(r"//[^\n]*", "", once)
    again = port_text(tmp_path, once)
    assert not again.groups
    assert again.files[again.sources.root].decode() == once


def test_bytes_outside_the_edits_are_kept(tmp_path: Path) -> None:
    text = GEMM.replace("    float acc", "\t \t/* \xe9t\xe9 */  float   acc")
    result = port_text(tmp_path, text)
    out = result.files[result.sources.root]
    source = text.encode()
    cursor = position = 0
    edits = sorted((e for g in result.groups for e in g.edits), key=lambda e: (e.span.start, e.span.end))
    for edit in edits:
        kept = source[cursor : edit.span.start]
        assert out[position : position + len(kept)] == kept
        position += len(kept) + len(edit.replacement)
        cursor = edit.span.end
    assert out[position:] == source[cursor:]


def test_every_edit_has_a_rule_that_explains_it(tmp_path: Path) -> None:
    for group in port_text(tmp_path, GEMM).groups:
        assert group.title
        assert group.reason
        assert group.rule.startswith("PTR")


def test_crlf_stays_crlf(tmp_path: Path) -> None:
    result = port_text(tmp_path, GEMM.replace("\n", "\r\n"))
    out = result.files[result.sources.root]
    assert out.count(b"\n") == out.count(b"\r\n")
    assert b"tcgen05::load" in out


@pytest.mark.parametrize(
    ("zeroing", "cleared"),
    [
        pytest.param("    float acc[8] = {0};\n", False, id="initializer"),
        pytest.param("    float acc[8] = {};\n", False, id="empty initializer"),
        pytest.param("    float acc[8];\n    memset(acc, 0, sizeof(acc));\n", False, id="memset"),
        pytest.param("    float acc[8];\n    for (int i = 0; i < 8; ++i) acc[i] = 0.f;\n", False, id="loop"),
        pytest.param(
            "    float acc[8];\n#pragma unroll\n    for (int i = 0; i < 8; i++) { acc[i] = 0.0f; }\n",
            False,
            id="pragma",
        ),
        pytest.param("    float acc[8];\n    for (auto& x : acc) x = 0.f;\n", False, id="range loop"),
        pytest.param(
            "    float acc[8];\n    for (int t = 0; t < 2; ++t) {\n    memset(acc, 0, sizeof acc);\n",
            True,
            id="in a loop",
        ),
    ],
)
def test_zeroing_becomes_an_overwrite(tmp_path: Path, zeroing: str, cleared: bool) -> None:
    out = ported(tmp_path, kernel(zeroing + LOOP + STORE + ("    }\n" if cleared else "")))
    assert "= {0}" not in out
    assert "memset" not in out
    assert "0.0f" not in out
    assert ("acc_tmem.clear();" in out) == cleared


@pytest.mark.parametrize(
    "write",
    [
        pytest.param("    for (int i = 0; i < 4; ++i) acc[i] = 0.f;\n", id="partial zeroing"),
        pytest.param("    for (int i = 0; i < 8; ++i) acc[i] = out[i];\n", id="preloaded"),
        pytest.param("    read_tile(acc, out);\n", id="filled by a function"),
    ],
)
def test_written_registers_are_stored_before_the_first_mma(tmp_path: Path, write: str) -> None:
    fill = "\n__device__ void read_tile(float (&d)[8], const float* p) { for (int i = 0; i < 8; ++i) d[i] = p[i]; }\n"
    out = ported(tmp_path, kernel("    float acc[8];\n" + write + LOOP + STORE, before=fill))
    body = out[out.index("__global__") :]
    assert body.index(write.strip()) < body.index("tcgen05::store(acc, acc_tmem);") < body.index("arrive();")


def test_rescaling_between_mmas_goes_there_and_back(tmp_path: Path) -> None:
    rescale = "        for (int i = 0; i < 8; ++i) acc[i] *= 2.f;\n"
    loop = LOOP.replace("        arrive();", rescale + "        arrive();")
    out = ported(tmp_path, kernel("    float acc[8] = {0};\n" + loop + STORE))
    body = out[out.index("__global__") :]
    assert (
        body.index("tcgen05::load(acc, acc_tmem);")
        < body.index("acc[i] *= 2.f")
        < body.index("tcgen05::store(acc, acc_tmem);")
        < body.index("arrive();")
        < body.rindex("tcgen05::load(acc, acc_tmem);")
        < body.index("= acc[i];")
    )


def test_tiles_of_one_array(tmp_path: Path) -> None:
    body = """
    float acc[2][8];
    memset(acc, 0, sizeof(acc));
    for (int k = 0; k < steps; ++k) {
        arrive();
        for (int m = 0; m < 2; ++m) mma(acc[m], a + m * 64, b);
        commit();
        wait<0>();
    }
    for (int m = 0; m < 2; ++m) for (int i = 0; i < 8; ++i) out[i] += acc[m][i];
"""
    out = ported(tmp_path, kernel(body))
    assert "tcgen05::Accumulator acc_tmem[2];" in out
    assert "mma(acc_tmem[m], a + m * 64, b);" in out
    assert "Tmem<32, 1>" in out


def test_load_stands_behind_the_last_wait(tmp_path: Path) -> None:
    body = """
    float acc[8] = {0};
    for (int k = 0; k < steps; ++k) {
        arrive();
        mma(acc, a, b);
        commit();
        wait<1>();
    }
    if (steps > 0) {
        wait<0>();
        for (int i = 0; i < 8; ++i) out[i] = acc[i];
    }
"""
    out = ported(tmp_path, kernel(body))
    assert out.index("wait<0>(tc);") < out.index("tcgen05::load(acc, acc_tmem);") < out.index("out[i] = acc[i]")
    assert "constexpr uint32_t kRing = 2;" in out


def test_load_in_front_of_divergent_code(tmp_path: Path) -> None:
    body = "    float acc[8] = {0};\n" + LOOP + "    if (threadIdx.x < 7) {\n    " + STORE + "    }\n"
    out = ported(tmp_path, kernel(body))
    assert out.index("tcgen05::load(acc") < out.index("if (threadIdx.x < 7)")


def test_promotion_reads_inside_the_loop(tmp_path: Path) -> None:
    body = """
    float total[8] = {0};
    for (int k = 0; k < steps; ++k) {
        float acc[8] = {0};
        arrive();
        mma(acc, a, b);
        commit();
        wait<0>();
        for (int i = 0; i < 8; ++i) total[i] += acc[i];
    }
    for (int i = 0; i < 8; ++i) out[i] = total[i];
"""
    out = ported(tmp_path, kernel(body))
    assert out.index("wait<0>(tc)") < out.index("tcgen05::load(acc, acc_tmem);") < out.index("total[i] += acc[i]")
    assert "float total[8] = {0};" in out


def test_commits_without_waits_get_a_guard(tmp_path: Path) -> None:
    body = (
        """
    float acc[8] = {0};
    for (int k = 0; k < steps; ++k) { arrive(); mma(acc, a, b); commit(); }
    wait<0>();
"""
        + STORE
    )
    out = ported(tmp_path, kernel(body))
    assert "constexpr uint32_t kRing = 8;" in out
    assert "wait(kRing - 1);" in out


def test_batches_without_fences_meet_in_the_wait(tmp_path: Path) -> None:
    body = "    float acc[8] = {0};\n    arrive();\n" + LOOP.replace("        arrive();\n", "") + STORE
    out = ported(tmp_path, kernel(body))
    wait = out[out.index("void wait(uint32_t pending)") :]
    assert "sync_warpgroup();" in wait[: wait.index("};")]


def test_early_return_frees_tensor_memory(tmp_path: Path) -> None:
    """The set-up stands in front of the first statement that lets single threads leave."""
    body = "    if (threadIdx.x > 999) return;\n    float acc[8] = {0};\n" + LOOP + STORE
    out = ported(tmp_path, kernel(body))
    assert out.index("tmem(tmem_shared)") < out.index("if (threadIdx.x > 999) return;")


def test_uniform_return_stays_in_front(tmp_path: Path) -> None:
    body = "    if (steps == 0) return;\n    float acc[8] = {0};\n" + LOOP + STORE
    out = ported(tmp_path, kernel(body))
    assert out.index("if (steps == 0) return;") < out.index("tmem(tmem_shared)")


def test_named_barriers_of_the_kernel_are_avoided(tmp_path: Path) -> None:
    body = '    float acc[8] = {0};\n    asm volatile("bar.sync 15, 128;");\n' + LOOP + STORE
    out = ported(tmp_path, kernel(body))
    assert '"r"(14 - threadIdx.x / 128)' in out


def test_producer_warpgroup_has_no_columns(tmp_path: Path) -> None:
    body = (
        "    const int wg = threadIdx.x / 128;\n    if (wg == 0) {\n        out[0] = 1;\n    } else {\n"
        + "    float acc[8] = {0};\n"
        + LOOP
        + STORE
        + "    }\n"
    )
    out = ported(tmp_path, kernel(body, bounds="__launch_bounds__(384)"))
    assert "Tmem<16, 2> tmem(tmem_shared);" in out
    assert "tmem.warpgroup(threadIdx.x / 128 - 1)" in out


def test_template_arguments_reach_the_instruction_descriptor(tmp_path: Path) -> None:
    text = GEMM.replace(wrapper(16), "")
    params = wrapper(16).replace("__device__", "template <int ScaleA, int TransB>\n__device__")
    params = params.replace("1, 1, 1, 0, 0;", "1, %10, 1, 0, %11;").replace(
        '"l"(b)', '"l"(b), "n"(int32_t(ScaleA)), "n"(int32_t(TransB))'
    )
    text = text.replace("__global__", params + "__global__").replace("mma(acc", "mma<-1, 1>(acc")
    out = ported(tmp_path, text)
    assert "ScaleA == -1, false, false, TransB != 0" in out


def test_scale_d_is_handed_through(tmp_path: Path) -> None:
    mma = wrapper(16, tail="p, 1, 1, 0, 0").replace('"wgmma', '"{.reg .pred p; setp.ne.b32 p, %10, 0; wgmma')
    mma = mma.replace('0;\\n"', '0;}\\n"').replace("uint64_t b)", "uint64_t b, int accumulate)")
    mma = mma.replace('"l"(b)', '"l"(b), "r"(accumulate)')
    text = GEMM.replace(wrapper(16), mma).replace("b + k * 2);", "b + k * 2, k != 0);").replace(" = {0}", "")
    out = ported(tmp_path, text)
    assert "tcgen05::mma_f16(d, a, b, idesc, accumulate);" in out
    assert "mma(acc_tmem, a + k * 2, b + k * 2, k != 0);" in out


@pytest.mark.parametrize("n", [8, 24, 96, 128, 192, 200, 256])
def test_any_n(tmp_path: Path, n: int) -> None:
    body = f"    float acc[{n // 2}] = {{0}};\n" + LOOP + f"    for (int i = 0; i < {n // 2}; ++i) out[i] = acc[i];\n"
    out = ported(tmp_path, kernel(body, n=n))
    assert f"kOperandBF16, {n})" in out
    assert f"Tmem<{n}, 1>" in out


@pytest.mark.parametrize(
    ("types", "kind"),
    [("f32.tf32.tf32", "tf32"), ("f32.e4m3.e5m2", "f8f6f4"), ("f32.f16.f16", "f16")],
)
def test_kinds(tmp_path: Path, types: str, kind: str) -> None:
    tail = "1, 1, 1, 0, 0" if kind == "f16" else "1, 1, 1"
    text = GEMM.replace(wrapper(16), wrapper(16, types, tail=tail))
    assert f"tcgen05.mma.cta_group::1.kind::{kind} " in ported(tmp_path, text)


def test_register_fences_go(tmp_path: Path) -> None:
    pin = 'for (int i = 0; i < 8; ++i) asm volatile("" : "+f"(d[i]) :: "memory");'
    fence = f"\n__device__ void pin(float (&d)[8]) {{ {pin} }}\n"
    body = "    float acc[8] = {0};\n" + LOOP.replace("arrive();", "pin(acc);\n        arrive();") + STORE
    out = ported(tmp_path, kernel(body, before=fence))
    assert "pin(acc);" not in out


def test_helper_functions_between_kernel_and_wrapper(tmp_path: Path) -> None:
    middle = """
template <int Steps>
__device__ void multiply(float (&d)[8], uint64_t a, uint64_t b) {
    arrive();
    for (int i = 0; i < Steps; ++i) mma(d, a + i, b + i);
    commit();
    wait<0>();
}
"""
    body = "    float acc[8] = {0};\n    for (int k = 0; k < steps; ++k) multiply<4>(acc, a, b);\n" + STORE
    out = ported(tmp_path, kernel(body, before=middle))
    assert "void multiply(tcgen05::Warpgroup& tc, tcgen05::Accumulator& d, uint64_t a, uint64_t b)" in out
    assert "multiply<4>(tc, acc_tmem, a, b);" in out


def test_kernel_inside_a_guard(tmp_path: Path) -> None:
    body = "#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n    float acc[8] = {0};\n" + LOOP + STORE + "#else\n    __trap();\n#endif"
    out = ported(tmp_path, kernel(body))
    assert "#ifdef __CUDA_ARCH_FEAT_SM100_ALL" in out
    assert out.index("SM100_ALL\n") < out.index("tmem(tmem_shared)") < out.index("#else")


def test_header_and_source_are_ported_as_a_set(tmp_path: Path) -> None:
    (tmp_path / "ops.cuh").write_text("#pragma once\n#include <cstdint>\n" + SYNC + wrapper(16))
    text = '#include "ops.cuh"\n' + GEMM.replace(SYNC, "").replace(wrapper(16), "").replace("#include <cstdint>\n", "")
    result = port_text(tmp_path, text)
    assert int(result.exit_code) == 0
    by_name = {Path(p).name: t.decode() for p, t in result.files.items()}
    assert '#include "tcgen05.cuh"\n' in by_name["ops.cuh"]
    assert "#include" not in by_name["kernel.cu"].replace('#include "ops.cuh"', "")
    assert "namespace tcgen05 {" in by_name["tcgen05.cuh"]
    assert "tcgen05::load(acc, acc_tmem);" in by_name["kernel.cu"]


def test_build_files_beside_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("all:\n\tnvcc -arch=sm_90a kernel.cu\n")
    result = port_text(tmp_path, GEMM)
    ported = b"all:\n\tnvcc -gencode=arch=compute_100a,code=sm_100a kernel.cu\n"
    assert result.build_files == {str(tmp_path / "Makefile"): ported}


def test_a_from_registers_goes_through_tensor_memory(tmp_path: Path) -> None:
    mma = wrapper(16, tail="1, 1, 1, 1").replace("uint64_t a,", "uint32_t (&r)[4],")
    mma = mma.replace("%8, %9, 1", "{%8, %9, %10, %11}, %12, 1")
    mma = mma.replace('"l"(a)', '"r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])')
    text = GEMM.replace(wrapper(16), mma).replace("mma(acc, a + k * 2, b", "uint32_t p[4] = {};\n        mma(acc, p, b")
    out = ported(tmp_path, text)
    assert "mma(tcgen05::Warpgroup& tc, tcgen05::Accumulator& d, uint32_t (&r)[4], uint64_t b)" in out
    assert "tcgen05::mma_f16(tc, d, r[0], r[1], r[2], r[3], b, idesc);" in out
    assert "kOperandBF16, 16, false, false, false, true)" in out
    assert "Tmem<16 + tcgen05::kOperands * 8, 1>" in out
    assert "tcgen05.st.sync.aligned.16x128b.x2.b32" in out


def test_f16_accumulators_are_packed(tmp_path: Path) -> None:
    text = GEMM.replace(wrapper(16), wrapper(16, "f16.f16.f16", parameter="uint32_t (&d)[8]"))
    text = text.replace("m64n16", "m64n32").replace('"+f"', '"+r"').replace("float acc[8]", "uint32_t acc[8]")
    out = ported(tmp_path, text)
    assert "tcgen05.ld.sync.aligned.16x128b.x4.pack::16b.b32" in out
    assert "tcgen05::load_f16(acc, acc_tmem);" in out
    assert "Tmem<32, 1>" in out


def test_extent_that_is_deduced_stays_in_the_type(tmp_path: Path) -> None:
    generic = """
template <int N>
__device__ void forward(float (&d)[N], uint64_t a, uint64_t b) { mma(d, a, b); }
"""
    text = GEMM.replace("\n__global__", generic + "\n__global__").replace("mma(acc,", "forward(acc,")
    out = ported(tmp_path, text)
    assert "template <int kRegisters>\nstruct Tile : Accumulator {};" in out
    assert "void forward(tcgen05::Tile<N>& d, uint64_t a, uint64_t b)" in out
    assert "tcgen05::Tile<sizeof(acc) / 4> acc_tmem{{tc.tmem}};" in out


def test_overloads_by_extent_stay_apart(tmp_path: Path) -> None:
    text = GEMM.replace("\n__global__", wrapper(32) + "\n__global__")
    out = ported(tmp_path, text)
    assert "void mma(tcgen05::Tile<8>& d" in out
    assert "void mma(tcgen05::Tile<16>& d" in out


def test_type_parameter_takes_the_tile(tmp_path: Path) -> None:
    generic = "\ntemplate <typename Acc>\n__device__ void forward(Acc& d, uint64_t a, uint64_t b) { mma(d, a, b); }\n"
    text = GEMM.replace("\n__global__", generic + "\n__global__").replace("mma(acc,", "forward(acc,")
    out = ported(tmp_path, text)
    assert "void forward(Acc& d, uint64_t a, uint64_t b) { mma(d, a, b); }" in out
    assert "forward(acc_tmem," in out


def test_a_return_in_a_callee_ends_the_callee_only(tmp_path: Path) -> None:
    body = """
    auto advance = [&](uint64_t d) { return d + 2; };
    float acc[8] = {0};
    for (int k = 0; k < steps; ++k) {
        a = advance(a);
        arrive();
        mma(acc, a, b);
        commit();
        wait<1>();
    }
    wait<0>();
"""
    out = ported(tmp_path, kernel(body + STORE))
    assert "constexpr uint32_t kRing = 2;" in out
    assert "tcgen05::load(acc, acc_tmem);" in out


def test_accumulator_that_is_a_member(tmp_path: Path) -> None:
    methods = wrapper(16).replace("(float (&d)[8], ", "(").replace("d[", "sum_[")
    owner = f"""
class Multiplier {{
  public:
    __device__ void clear() {{ for (int i = 0; i < 8; ++i) sum_[i] = 0.f; }}
    __device__ float at(int i) const {{ return sum_[i]; }}
{methods}
  private:
    float sum_[8];
}};
"""
    body = (
        "    Multiplier m;\n    m.clear();\n" + LOOP.replace("mma(acc, ", "m.mma(") + STORE.replace("acc[i]", "m.at(i)")
    )
    out = ported(tmp_path, kernel(body, before=owner))
    assert "void load_sum() { tcgen05::load(sum_, sum_tmem); }" in out
    assert "tcgen05::mma_f16(sum_tmem, a, b, idesc);" in out
    assert "clear() { sum_tmem.clear(); }" in out
    assert out.index("Multiplier m;") < out.index("m.sum_tmem.address = tc.tmem;")
    assert out.index("m.load_sum();") < out.index("= m.at(i);")


def test_object_with_an_accumulator_that_is_copied(tmp_path: Path) -> None:
    methods = wrapper(16).replace("(float (&d)[8], ", "(").replace("d[", "sum[")
    owner = f"struct Multiplier {{\n    float sum[8];\n{methods}\n}};\n"
    helper = "__device__ void epilogue(Multiplier m, float* out) { out[threadIdx.x] = m.sum[0]; }\n"
    body = "    Multiplier mma;\n" + LOOP.replace("mma(acc, ", "mma.mma(") + "    epilogue(mma, out);\n"
    result = port_text(tmp_path, kernel(body, before=owner + helper))
    assert int(result.exit_code) == 3
    assert any("is copied or kept" in str(d) for d in result.diagnostics)


def test_forward_declarations_follow(tmp_path: Path) -> None:
    declared = "\n__device__ __forceinline__ void mma(float (&d)[8], uint64_t a, uint64_t b);\n"
    text = GEMM.replace("#include <cstdint>\n", "#include <cstdint>\n" + declared)
    text = text.replace("__device__ void commit()", "__device__ void commit();\n__device__ void commit()")
    out = ported(tmp_path, text)
    assert "void mma(tcgen05::Accumulator& d, uint64_t a, uint64_t b);" in out
    assert "void commit(tcgen05::Warpgroup& tc);" in out


def test_primary_template_follows_its_specializations(tmp_path: Path) -> None:
    primary = "\ntemplate <int N> __device__ void mma(float (&d)[N / 2], uint64_t a, uint64_t b);\n"
    special = wrapper(16).replace("__device__", "template <> __device__").replace("void mma(", "void mma<16>(")
    text = GEMM.replace(wrapper(16), primary + special).replace("mma(acc,", "mma<16>(acc,")
    out = ported(tmp_path, text)
    assert "template <int N> __device__ void mma(tcgen05::Accumulator& d, uint64_t a, uint64_t b);" in out
    assert "void mma<16>(tcgen05::Accumulator& d, uint64_t a, uint64_t b)" in out
    assert "mma<16>(acc_tmem," in out


IDS = {
    'bar.sync 15, 128;"': "14",
    'barrier.sync 14, 128;"': "13",
    'barrier.sync 2, 128;"': "15",
    'barrier.cta.arrive 15, 128;"': "14",
    'bar.sync %0, 128;" :: "r"(kBar)': "12",
    'bar.sync %0, 128;" :: "n"(kBar + 2)': "14",
    'bar.sync %0, 128;" :: "r"(kBar + int(threadIdx.x) / 128)': "12",
    'bar.sync %0, 128;" :: "r"(15 - threadIdx.x / 128)': "12",
    'bar.sync %0, 128;" :: "r"(threadIdx.x / 128 + 1)': "15",
}
TRIPLE = "__launch_bounds__(384)"


@pytest.mark.parametrize("text", IDS)
def test_ids_that_are_constants_or_follow_from_the_thread(text: str, tmp_path: Path) -> None:
    body = f'    float acc[8] = {{0}};\n    constexpr int kBar = 13;\n    asm volatile("{text});\n' + LOOP + STORE
    result = port_text(tmp_path, "constexpr int kBar = 1;\n" + kernel(body, bounds=TRIPLE))
    assert "PT2008" not in {d.code.id for d in result.diagnostics}
    out = b"".join(result.files.values()).decode()
    assert f'"r"({IDS[text]} - threadIdx.x / 128)' in out


@pytest.mark.parametrize("id", ["steps", "steps + 1", "kMissing", "1 + (steps & 3)"])
def test_ids_that_are_not_known_are_said(id: str, tmp_path: Path) -> None:
    body = f'    float acc[8] = {{0}};\n    asm volatile("bar.sync %0, 128;" :: "r"({id}));\n' + LOOP + STORE
    assert "PT2008" in {d.code.id for d in port_text(tmp_path, kernel(body)).diagnostics}


def test_no_ids_are_left(tmp_path: Path) -> None:
    taken = "".join(f'    asm volatile("bar.sync {i}, 128;");\n' for i in (2, 5, 8, 11, 14))
    body = "    float acc[8] = {0};\n" + taken + LOOP + STORE
    result = port_text(tmp_path, kernel(body, bounds=TRIPLE))
    assert "PT2016" in {d.code.id for d in result.diagnostics}
    assert b"tcgen05" not in b"".join(result.files.values())
    assert "PT2016" not in {d.code.id for d in port_text(tmp_path, kernel(body)).diagnostics}


CLASSES = "struct Inner { float r[8]; };\nstruct Outer { Inner t; };\n"
FORWARDERS = {
    "Inner": "__device__ void mma(Inner& i, uint64_t a, uint64_t b) { mma(i.r, a, b); }\n",
    "Outer": "__device__ void mma(Outer& o, uint64_t a, uint64_t b) { mma(o.t, a, b); }\n",
}


@pytest.mark.parametrize("owner", ["", "Ops"])
@pytest.mark.parametrize(("held", "registers"), [("Inner", "acc.r"), ("Outer", "acc.t.r")])
def test_overloads_for_classes_of_the_same_registers_do_not_call_themselves(
    tmp_path: Path, held: str, registers: str, owner: str
) -> None:
    overloads = CLASSES + wrapper(16) + "".join(list(FORWARDERS.values())[: 1 + (held == "Outer")])
    if owner:
        overloads = f"struct {owner} {{\n{overloads.replace('__device__', 'static __device__')}}};\n"
    loop = LOOP.replace("mma(", f"{owner}::mma(" if owner else "mma(")
    body = f"    {owner + '::' if owner else ''}{held} acc = {{}};\n{loop}{STORE.replace('acc', registers)}"
    out = ported(tmp_path, kernel(body).replace(wrapper(16), overloads))
    names = re.findall(
        r"void (\w+)\(tcgen05::\w+(?:<\w+>)?& \w+, uint64_t a, uint64_t b\) \{\s+(?:constexpr|(\w+)\()", out
    )
    assert len({name for name, _ in names}) == len(names) == 2 + (held == "Outer"), out
    assert {called for _, called in names if called} < {name for name, _ in names}
    assert all(name != called for name, called in names)
