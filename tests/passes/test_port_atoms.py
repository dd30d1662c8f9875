# SPDX-License-Identifier: Apache-2.0
"""Kernels that issue MMAs by their atoms, `Op::fma(a, b, d[0], d[1], …)`: how atoms are named, how registers are
declared and handed on, how batches are synchronized, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from ported_text import port, ported, refused

HEAD = """#include <cute/tensor.hpp>
using namespace cute;
using Op = SM90_64x16x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>;
"""
FOUR = ", ".join(f"acc[{i}]" for i in range(8))
ACC = "  float acc[8] = {0};\n"
ARRIVE = "  warpgroup_arrive();\n"
WAIT = "  warpgroup_commit_batch();\n  warpgroup_wait<0>();\n"
FMA = f"  Op::fma(a, b, {FOUR});\n"
STORE = "  for (int i = 0; i < 8; ++i) out[i] = acc[i];\n"


def kernel(body: str, before: str = "", bounds: str = "__launch_bounds__(128)") -> str:
    return f"{HEAD}{before}__global__ void {bounds} k(uint64_t a, uint64_t b, float* out, int n) {{\n{body}}}\n"


@pytest.mark.parametrize(
    ("before", "op"),
    [
        ("", "Op"),
        ("", "SM90_64x16x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>"),
        ("", "cute::SM90_64x16x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>"),
        ("", "SM90::GMMA::MMA_64x16x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>"),
        ("typedef Op Other;\n", "Other"),
        ("template <int N> struct Select { using type = Op; };\nusing Chosen = typename Select<16>::type;\n", "Chosen"),
        ("using Chosen = decltype(Op{});\n", "Chosen"),
        ("struct Traits { using Mma = Op; };\n", "Traits::Mma"),
    ],
)
def test_names_of_atoms(tmp_path: Path, before: str, op: str) -> None:
    text = ported(tmp_path, kernel(f"{ACC}{ARRIVE}{FMA.replace('Op::', op + '::')}{WAIT}{STORE}", before))
    assert f"  porter::fma<{op}>(a, b, acc);\n" in text or f"  porter::fma<typename {op}>(a, b, acc);\n" in text
    assert "  porter::Accumulator<float, 8> acc(tc);\n" in text
    assert "  constexpr int acc_columns = 2 * 8;\n" in text
    assert "  porter::arrive(acc);\n" in text
    assert "  porter::wait<0>(acc);\n  porter::load(acc);\n  for (int i" in text


LISTED = ", ".join(f"x[{i}]" for i in range(8))
EIGHT = f"#define EIGHT(x) {LISTED}\n"
FOUR_OF_A = "#define A4(x) x[0], x[1], x[2], x[3]\n"


@pytest.mark.parametrize(
    ("before", "operands", "expected"),
    [
        (EIGHT, "a, b, EIGHT(acc)", "a, b, acc"),
        (EIGHT, "a, b, EIGHT(acc), GMMA::ScaleOut::Zero", "a, b, acc, GMMA::ScaleOut::Zero"),
        (EIGHT.replace("x[", "(x)["), "a, b, EIGHT(acc)", "a, b, acc"),
        (EIGHT.replace(", x[4]", ", \\\n    x[4]"), "a, b, EIGHT(acc)", "a, b, acc"),
        (EIGHT.replace("EIGHT(x)", "EIGHT(x, y)"), "a, b, EIGHT(acc, 0)", "a, b, acc"),
        (f"#define TWO(x, i) x[i], x[i + 1]\n{EIGHT}", "a, b, EIGHT( acc )", "a, b, acc"),
        (FOUR_OF_A + EIGHT, "A4(x), b, EIGHT(acc)", "A4(x), b, acc"),
        (FOUR_OF_A + EIGHT, "x[0], x[1], x[2], x[3], b, EIGHT(acc)", "x[0], x[1], x[2], x[3], b, acc"),
        (FOUR_OF_A + EIGHT, "A4(x), b, EIGHT(acc), GMMA::ScaleOut::One", "A4(x), b, acc, GMMA::ScaleOut::One"),
        (f"{EIGHT}#define ALL(x) EIGHT(x)\n", "a, b, ALL(acc)", "a, b, acc"),
    ],
)
def test_registers_that_a_macro_lists(tmp_path: Path, before: str, operands: str, expected: str) -> None:
    a = "  uint32_t x[4] = {0};\n" if "x[3]" in operands or "A4" in operands else ""
    text = ported(tmp_path, kernel(f"{a}{ACC}{ARRIVE}  Op::fma({operands});\n{WAIT}{STORE}", before))
    assert f"  porter::fma<Op>({expected});\n" in text


@pytest.mark.parametrize(
    ("before", "operands"),
    [
        (EIGHT.replace("x[7]", "x[6]"), "a, b, EIGHT(acc)"),
        (EIGHT.replace("x[0]", "x[8]"), "a, b, EIGHT(acc)"),
        (EIGHT.replace("x[3]", "y[3]"), "a, b, EIGHT(acc)"),
        (EIGHT.replace("x[3]", "x[n]"), "a, b, EIGHT(acc)"),
        (f"#ifdef SWAPPED\n{EIGHT.replace('x[0], x[1]', 'x[1], x[0]')}#else\n{EIGHT}#endif\n", "a, b, EIGHT(acc)"),
        (EIGHT, "a, EIGHT(acc)"),
        (EIGHT, "a, b, n, EIGHT(acc)"),
    ],
)
def test_a_macro_that_does_not_list_all_registers_in_order_is_refused(
    tmp_path: Path, before: str, operands: str
) -> None:
    body = f"{ACC}{ARRIVE}  Op::fma({operands});\n{WAIT}{STORE}"
    assert "wgmma is not ported here" in refused(tmp_path, kernel(body, before))


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        (f"a, b, {FOUR}", "a, b, acc"),
        (f"a, b, {FOUR}, GMMA::ScaleOut::Zero", "a, b, acc, GMMA::ScaleOut::Zero"),
        (
            f"a, b, {FOUR}, n ? GMMA::ScaleOut::One : GMMA::ScaleOut::Zero",
            "a, b, acc, n ? GMMA::ScaleOut::One : GMMA::ScaleOut::Zero",
        ),
        (f"a + 2, b | 4, {FOUR}", "a + 2, b | 4, acc"),
        (f"x[0], x[1], x[2], x[3], b, {FOUR}", "x[0], x[1], x[2], x[3], b, acc"),
        (f"p, q, r, s, b, {FOUR}, GMMA::ScaleOut::One", "p, q, r, s, b, acc, GMMA::ScaleOut::One"),
    ],
)
def test_operands(tmp_path: Path, operands: str, expected: str) -> None:
    body = f"  uint32_t x[4], p, q, r, s;\n{ACC}{ARRIVE}  Op::fma({operands});\n{WAIT}{STORE}"
    text = ported(tmp_path, kernel(body))
    assert f"  porter::fma<Op>({expected});\n" in text
    has_columns = operands.startswith(("x", "p"))
    assert ("  constexpr int operand_columns = 8 * porter::Operand::kSteps;\n" in text) is has_columns
    assert ("  tc.operand = tc.tmem + acc_columns;\n" in text) is has_columns


ISSUE = "template <class A, size_t... I>\n__device__ void issue(uint64_t a, uint64_t b, float* d, "
WRAPPER = """template <class Atom>
struct Mma {
  template <size_t... I>
  __device__ static void call(uint64_t a, uint64_t b, float* d, bool s, std::index_sequence<I...>) {
    Atom::fma(a, b, d[I]..., s ? GMMA::ScaleOut::One : GMMA::ScaleOut::Zero);
  }
  __device__ static void wgmma(uint64_t a, uint64_t b, float* d, bool s) {
    call(a, b, d, s, std::make_index_sequence<8>{});
  }
};
"""


@pytest.mark.parametrize(
    ("before", "call", "expected"),
    [
        (
            WRAPPER,
            "Mma<Op>::wgmma(a, b, acc, 1);",
            ["porter::Registers<float> d, bool s) {", "porter::fma<Atom>(a, b, d, s ?"],
        ),
        (
            WRAPPER.replace("float* d", "float (&d)[8]"),
            "Mma<Op>::wgmma(a, b, acc, 1);",
            ["porter::Accumulator<float, 8>& d, bool s"],
        ),
        (
            WRAPPER.replace("float* d", "float d[8]"),
            "Mma<Op>::wgmma(a, b, acc, 1);",
            ["porter::Registers<float> d, bool s"],
        ),
        (
            WRAPPER
            + "template <int N> struct Select { static constexpr auto make() { if constexpr (N == 16) return Op(); }\n"
            "  using type = Mma<decltype(make())>; };\n",
            "Select<16>::type::wgmma(a, b, acc, 1);",
            ["porter::Registers<float> d"],
        ),
        (WRAPPER, "using M = Mma<Op>; M::wgmma(a, b, acc + 0, 1);", ["M::wgmma(a, b, acc + 0, 1);"]),
        (WRAPPER, "auto p = acc + 0; Mma<Op>::wgmma(a, b, p, 1);", ["auto p = acc + 0;"]),
        (WRAPPER, "float* p = acc; Mma<Op>::wgmma(a, b, p, 1);", ["auto p = acc;"]),
        (WRAPPER, "float* p = &acc[0]; Mma<Op>::wgmma(a, b, p, 1);", ["auto p = acc + (0);"]),
        (WRAPPER, "Mma<Op>::wgmma(a, b, &acc[0], 1);", ["wgmma(a, b, acc + (0), 1);"]),
        (
            "",
            "[&]<size_t... I>(std::index_sequence<I...>) { Op::fma(a, b, acc[I]...); }(std::make_index_sequence<8>{});",
            ["porter::fma<Op>(a, b, acc);"],
        ),
        (
            f"{ISSUE}cute::index_sequence<I...>) {{ A::fma(a, b, d[I]...); }}\n",
            "issue<Op>(a, b, acc, cute::make_index_sequence<8>());",
            ["porter::fma<A>(a, b, d);"],
        ),
    ],
)
def test_wrappers(tmp_path: Path, before: str, call: str, expected: list[str]) -> None:
    text = ported(tmp_path, kernel(f"{ACC}{ARRIVE}  {call}\n{WAIT}{STORE}", before))
    assert not [e for e in expected if e not in text], text
    assert "porter::load(acc);\n  for (int i" in text
    assert "float acc[8]" not in text


TWO = "  float acc[2][8];\n"
ROWS = ", ".join(f"acc[1][{i}]" for i in range(8))


@pytest.mark.parametrize(
    ("declared", "call", "expected"),
    [
        (
            TWO,
            f"Op::fma(a, b, {ROWS});",
            ["porter::Accumulators<float, 2, 8> acc(tc);", "porter::fma<Op>(a, b, acc[1]);"],
        ),
        (TWO, "for (int m = 0; m < 2; ++m) Mma<Op>::wgmma(a, b, acc[m], 1);", ["wgmma(a, b, acc[m], 1)"]),
        (TWO, "for (int m = 0; m < 2; ++m) Mma<Op>::wgmma(a, b, &acc[m][0], 1);", ["wgmma(a, b, acc[m] + (0), 1)"]),
        (
            "  float x[3], acc[8];\n",
            "Mma<Op>::wgmma(a, b, acc, 1);",
            ["float x[3]; porter::Accumulator<float, 8> acc(tc);"],
        ),
        (
            "  float acc[8], x[3];\n",
            "Mma<Op>::wgmma(a, b, acc, 1);",
            ["porter::Accumulator<float, 8> acc(tc);\n  float x[3];"],
        ),
        (
            "  float acc[8] = {0.f}, y, x[3] = {1};\n",
            "Mma<Op>::wgmma(a, b, acc, 1);",
            ["acc(tc);\n  float y, x[3] = {1};"],
        ),
        ("  float acc[8] = {};\n", "Mma<Op>::wgmma(a, b, acc, 1);", ["porter::Accumulator<float, 8> acc(tc);"]),
        ("  constexpr int N = 8;\n  float acc[N];\n", "Mma<Op>::wgmma(a, b, acc, 1);", ["acc_columns = 2 * N;"]),
    ],
)
def test_declarations(tmp_path: Path, declared: str, call: str, expected: list[str]) -> None:
    text = ported(tmp_path, kernel(f"{declared}{ARRIVE}  {call}\n{WAIT}  out[0] = acc[0][0];\n", WRAPPER))
    assert not [e for e in expected if e not in text], text


OWN = """__device__ void open_batch() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void close_batch() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ void wait_for() { static_assert(N < 8, "");
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
template <int M>
__device__ void outer_wait() { wait_for<M>(); }
__device__ void pin(float& r) { asm volatile("" : "+f"(r)::"memory"); }
"""
ASM = 'asm volatile("wgmma.{}.sync.aligned;" ::: "memory");\n  '


@pytest.mark.parametrize(
    ("opened", "closed", "waited"),
    [
        ("open_batch();", "close_batch();", "wait_for<0>();"),
        ("open_batch();", "close_batch();", "outer_wait<0>();"),
        (ASM.format("fence"), ASM.format("commit_group"), ASM.format("wait_group").replace("aligned", "aligned 0")),
        ("cute::warpgroup_arrive();", "close_batch();", "wait_for<0>();"),
        (
            "for (int i = 0; i < 8; ++i) pin(acc[i]);\n  open_batch();",
            "close_batch();\n  pin(acc[0]);",
            "wait_for<0>();",
        ),
    ],
)
def test_own_functions_and_asm_that_synchronize(tmp_path: Path, opened: str, closed: str, waited: str) -> None:
    text = ported(tmp_path, kernel(f"{ACC}  {opened}\n{FMA}  {closed}\n  {waited}\n{STORE}", OWN))
    body = text[text.index("__global__") :]
    assert body.count("porter::arrive(acc);") == body.count("porter::commit(acc);") == 1
    assert "porter::wait<0>(acc);" in body
    assert "porter::load(acc);\n  for (int i" in body
    assert body.count("porter::load") == 1
    assert "pin(" not in body
    assert text.count("#if defined(__CUDA_ARCH_FEAT_SM90_ALL)") == text[: text.index("__global__")].count("__trap();")


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("float4 v = *reinterpret_cast<float4*>(acc);", "*reinterpret_cast<float4*>(acc.registers);"),
        ("auto w = reinterpret_cast<uint32_t*>(acc + 4);", "reinterpret_cast<uint32_t*>(acc.registers + 4);"),
        ("finish(acc, out);", "finish(acc.registers, out);"),
        ("finish(acc + 4, out);", "finish(acc.registers + 4, out);"),
        ("float x = acc[3] * 2;", "float x = acc[3] * 2;"),
        ("finish(&acc[2], out);", "finish(&acc.registers[2], out);"),
        ("auto get = [&](int i) { return acc[i]; }; out[0] = get(1);", "auto get = [&](int i) { return acc[i]; };"),
        ("float* p = acc + 4; out[0] = p[1];", "float* p = acc.registers + 4; "),
        ("for (float& r : acc) r *= 2;", "for (float& r : acc.registers) r *= 2;"),
    ],
)
def test_other_uses_have_the_plain_registers(tmp_path: Path, use: str, expected: str) -> None:
    before = "template <class T> __device__ void finish(T* r, float* out) { out[0] = r[0]; }\n"
    text = ported(tmp_path, kernel(f"{ACC}{ARRIVE}{FMA}{WAIT}  {use}\n", before))
    assert expected in text
    assert text.count("porter::load(acc);") == 1


SPARSE = "SM90::GMMA::SPARSE::GMMA_64x16x32_F32F16F16_SS<A, B>"
SCALARS = "  float d0, d1, d2, d3, d4, d5, d6, d7;\n"


@pytest.mark.parametrize(
    ("body", "before", "why"),
    [
        (
            f"{SCALARS}{ARRIVE}  Op::fma(a, b, d0, d1, d2, d3, d4, d5, d6, d7);\n{WAIT}",
            "",
            "no array from its first register on",
        ),
        (
            f"{ACC}{ARRIVE}  Op::fma(a, b, acc[1], acc[0], acc[3], acc[2]);\n{WAIT}",
            "",
            "no array from its first register on",
        ),
        (
            f"{ACC}{ARRIVE}  Op::fma(a, b, acc[4], acc[5], acc[6], acc[7]);\n{WAIT}",
            "",
            "no array from its first register on",
        ),
        (f"  float acc[8] = {{1, 2}};\n{ARRIVE}{FMA}{WAIT}", "", "begin with values other than zero"),
        (
            f"  float acc[2][2][8];\n{ARRIVE}  Op::fma(a, b, {ROWS.replace('acc[1]', 'acc[1][1]')});\n{WAIT}",
            "",
            "has more than 2 extents",
        ),
        (f"  static float acc[8];\n{ARRIVE}{FMA}{WAIT}", "", "is no array of registers"),
        (
            f"{ACC}{ARRIVE}  issue(a, b, acc);\n{WAIT}",
            f"__device__ void issue(uint64_t a, uint64_t b, float* acc) {{ Op::fma(a, b, {FOUR}); acc[0] += 1; }}\n",
            "is handed a pointer to them",
        ),
        (
            f"{ACC}{ARRIVE}  issue<Op>(a, b, acc, std::index_sequence<0, 2, 1, 3>{{}});\n{WAIT}",
            f"{ISSUE}std::index_sequence<I...>) {{ A::fma(a, b, d[I]...); }}\n",
            "CuTe C++",
        ),
        (
            f"{ACC}{ARRIVE}{FMA}  warpgroup_commit_batch();\n  drain();\n",
            OWN.replace("<int N>", "<int N = 0>").replace("wait_for<M>", "drain<M>").replace("wait_for()", "drain()"),
            "how many batches a wait leaves pending",
        ),
        (
            "",
            f"__device__ float f(uint64_t a, uint64_t b) {{\n{ACC}{ARRIVE}{FMA}{WAIT}  return acc[0];\n}}\n",
            "is no kernel",
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, body: str, before: str, why: str) -> None:
    assert why in refused(tmp_path, kernel(body, before))


@pytest.mark.parametrize(
    "call",
    [
        "out[0] = fma(x, y, z);",
        "out[0] = std::fma(x, y, z);",
        "out[0] = Math::fma(x, y, z);",
        "SM80_16x8x16_F32F16F16F32_TN::fma(d[0], d[1], d[2], d[3], p, q, r, s, t, u, d[0], d[1], d[2], d[3]);",
        "SM100_MMA_F16BF16_SS<T, T, float, 128, 64, A, B>::fma(p, q, r, s, t);",
    ],
)
def test_what_is_no_atom_of_hopper_stays(tmp_path: Path, call: str) -> None:
    math = "struct Math { __device__ static float fma(float x, float y, float z) { return x * y + z; } };\n"
    text = f"#include <cute/tensor.hpp>\n{math}__global__ void k(float* out) {{ {call} }}\n"
    result = port(tmp_path, text)
    assert not result.changed
    assert "porter::" not in "".join(d.message for d in result.diagnostics)


@pytest.mark.parametrize(
    ("head", "call"),
    [
        ("__device__ void finish(float (&d)[8], float* out)", "finish(acc, out);"),
        ("template <int N>\n__device__ void finish(float (&d)[N], float* out)", "finish(acc, out);"),
        ("template <int N>\n__device__ void finish(float (&d)[N], float* out)", "finish<8>(acc, out);"),
    ],
)
def test_functions_that_read_a_whole_array_are_handed_the_accumulator(tmp_path: Path, head: str, call: str) -> None:
    before = f"{head} {{\n  warpgroup_wait<0>();\n  out[0] = d[0];\n}}\n"
    text = ported(tmp_path, kernel(f"{ACC}{ARRIVE}{FMA}  warpgroup_commit_batch();\n  {call}\n", before))
    extent = "N" if "template" in head else "8"
    assert f"finish(porter::Accumulator<float, {extent}>& d, float* out)" in text
    assert "  porter::wait<0>(d);\n  porter::load(d);\n  out[0] = d[0];\n" in text
    assert f"  {call}\n" in text


def test_a_function_that_synchronizes_under_a_condition_keeps_it(tmp_path: Path) -> None:
    before = """__device__ void close_if(bool last) {
  if (last) asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
"""
    body = f"{ACC}{ARRIVE}{FMA}  close_if(n);\n  warpgroup_wait<0>();\n{STORE}"
    text = ported(tmp_path, kernel(body, before))
    assert "  if (last) tc.commit();" in text
    assert "  close_if(tc, n);\n" in text
