# SPDX-License-Identifier: Apache-2.0
"""Kernels with tiled MMAs of a library: what becomes of their accumulators, however they are declared and handed on,
where registers are loaded, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from ported_text import ported, refused

HEAD = """#include <cute/tensor.hpp>
using namespace cute;
using Mma = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
"""
OPERANDS = """  Mma mma;
  auto thr = mma.get_slice(threadIdx.x);
  Tensor tA = thr.partition_fragment_A(a);
  Tensor tB = thr.partition_fragment_B(b);
"""
SECOND = "  Tensor tA2 = thr.partition_fragment_A(b);\n  Tensor acc2 = partition_fragment_C(mma, Shape<_64, _64>{});\n"
MULTIPLY = """template <class M, class A, class B, class C>
__device__ void multiply(M const& m, A const& x, B const& y, C& z) { gemm(m, x, y, z); }
"""
ACC = "  Tensor acc = partition_fragment_C(mma, Shape<_64, _64>{});\n"
BATCH = """  warpgroup_arrive();
  gemm(mma, tA, tB, acc);
  warpgroup_commit_batch();
  warpgroup_wait<0>();
"""
STORE = "  for (int i = 0; i < size(acc); ++i) out[i] = acc(i);\n"


def kernel(body: str, before: str = "", bounds: str = "__launch_bounds__(128)") -> str:
    head = f"template <class A, class B>\n__global__ void {bounds} k(A a, B b, float* out, int n)"
    return f"{HEAD}{before}{head} {{\n{body}}}\n"


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ("gemm(mma, tA2, tB, acc2);", "  porter::arrive(acc, tA), porter::arrive<decltype(tA)>(acc2, tA2);"),
        ("gemm(mma, tA2, tB, acc);", "  porter::arrive(acc, tA), porter::arrive<decltype(tA)>(acc, tA2);"),
        ("gemm(mma, tA, tB, acc2);", "  porter::arrive(acc, tA), porter::arrive(acc2);"),
        (
            "gemm(mma, tA2(_, _, 0), tB, acc2);\n  gemm(mma, tA2(_, _, 1), tB, acc2);",
            "  porter::arrive(acc, tA), porter::arrive<decltype(tA)>(acc2, tA2);",
        ),
        (
            "gemm(mma, tA2(_, 0, 0), tB, acc2);\n  gemm(mma, tA2(_, 0, n), tB, acc2);",
            "  porter::arrive(acc, tA), porter::arrive<decltype(tA)>(acc2, tA2);",
        ),
        (
            "gemm(mma, tA2(_, _, 0), tB, acc2);",
            "  porter::arrive(acc, tA), porter::arrive<decltype(tA)>(acc2, tA2(_, _, 0));",
        ),
        ("[&] { gemm(mma, tA2, tB, acc2); }();", "  porter::arrive(acc, tA), porter::arrive<decltype(tA)>(acc2, tA2);"),
        ("multiply(mma, tA2, tB, acc2);", "  porter::arrive(acc, tA), porter::arrive<decltype(tA)>(acc2, tA2);"),
        ("later();", "  porter::arrive(acc, tA), porter::arrive<decltype(tA)>(acc2, tA2);"),
        (
            "warpgroup_commit_batch();\n  warpgroup_arrive();\n  gemm(mma, tA2, tB, acc2);",
            "  porter::arrive(acc2, tA2);",
        ),
    ],
)
def test_fragments_of_a_batch_have_columns_of_their_own(tmp_path: Path, second: str, expected: str) -> None:
    """Which of them are in registers, only the compiler knows. A function or lambda that multiplies counts where it is
    called."""
    later = "  auto later = [&] { gemm(mma, tA2, tB, acc2); };\n" if "later" in second else ""
    batch = BATCH.replace("acc);\n", f"acc);\n  {second}\n")
    body = OPERANDS + SECOND + ACC + later + batch + STORE + STORE.replace("acc", "acc2")
    assert expected in ported(tmp_path, kernel(body, MULTIPLY))


_COUNT = "porter::operand_columns_of<1, decltype({})>()"


@pytest.mark.parametrize(
    ("batch", "columns"),
    [
        ("gemm(mma, tA, tB, acc);", "tA"),
        ("gemm(mma, tA, tB, acc); gemm(mma, tA2, tB, acc2);", "tA + tA2"),
        ("gemm(mma, tA, tB, acc); gemm(mma, tA, tB, acc2);", "tA"),
        ("gemm(mma, tA, tB, acc); warpgroup_commit_batch(); warpgroup_arrive(); gemm(mma, tA2, tB, acc2);", "tA, tA2"),
        ("multiply(mma, tA, tB, acc); multiply(mma, tA2, tB, acc2);", "tA + tA2"),
        ("multiply(mma, tA, tB, acc); warpgroup_commit_batch(); warpgroup_arrive(); multiply(mma, tA2, tB, acc2);",
         "tA, tA2"),
        ("for (int k = 0; k < 4; ++k) { gemm(mma, tA(_, _, k), tB, acc); gemm(mma, tA2(_, _, k), tB, acc2); }",
         "tA + tA2"),
    ],
)  # fmt: skip
def test_columns_of_fragments_in_registers(tmp_path: Path, batch: str, columns: str) -> None:
    """Those of a batch are counted together, batches share columns."""
    batch = BATCH.replace("gemm(mma, tA, tB, acc);", batch)
    body = OPERANDS + SECOND + ACC + batch + STORE + STORE.replace("acc", "acc2")
    text = ported(tmp_path, kernel(body, MULTIPLY).replace("_SS<", "_RS<"))
    sums = [" + ".join(_COUNT.format(n) for n in part.split(" + ")) for part in columns.split(", ")]
    most = sums[0] if len(sums) == 1 else f"porter::max({', '.join(sums)})"
    assert f"constexpr int operand_columns = {most};" in text


@pytest.mark.parametrize("opened", ["begin();", "[](auto f) { f(); }([] { warpgroup_arrive(); });"])
def test_a_fragment_whose_batch_opens_elsewhere_is_refused(tmp_path: Path, opened: str) -> None:
    body = OPERANDS + ACC + BATCH.replace("warpgroup_arrive();", opened) + STORE
    begin = "template <class T = int>\n__device__ void begin() { warpgroup_arrive(); }\n"
    assert "no batch opens on the way" in refused(tmp_path, kernel(body, begin).replace("_SS<", "_RS<"))


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("Tensor acc = partition_fragment_C(mma, Shape<_64, _64>{});", "partition_fragment_C(mma, Shape<_64, _64>{})"),
        ("auto acc = cute::partition_fragment_C(mma, S{});", "cute::partition_fragment_C(mma, S{})"),
        ("Tensor acc = thr.make_fragment_C(tCgC);", "thr.make_fragment_C(tCgC)"),
        ("auto acc = thr.partition_fragment_C(gC);", "thr.partition_fragment_C(gC)"),
        ("Tensor acc = make_tensor<float>(layout);", "make_tensor<float>(layout)"),
        (
            "auto acc = make_tensor<float>(partition_shape_C(mma, S{}));",
            "make_tensor<float>(partition_shape_C(mma, S{}))",
        ),
        ("Tensor acc = make_fragment_like<float>(other);", "make_fragment_like<float>(other)"),
    ],
)
def test_declarations(tmp_path: Path, declared: str, expected: str) -> None:
    before = "using S = Shape<_64, _64>;\n"
    locals_ = "  auto gC = a.c(); auto tCgC = thr.partition_C(gC); auto layout = b.layout(); auto other = a.d();\n"
    text = ported(tmp_path, kernel(f"{OPERANDS}{locals_}  {declared}\n{BATCH}{STORE}", before))
    assert f"acc = porter::accumulator(tc, mma, {expected});" in text
    assert f"porter::columns_of<1, decltype(mma), decltype({expected})>()" in text


@pytest.mark.parametrize(
    ("body", "where"),
    [
        # one load, out of the loop that only reads
        (f"{ACC}{BATCH}{STORE}", '  porter::load(acc);\n  _Pragma("unroll") for (int i = 0; i < size(acc)'),
        # in front of a branch that single threads may take
        (f"{ACC}{BATCH}  if (threadIdx.x < n) out[0] = acc(0);\n", "  porter::load(acc);\n  if (threadIdx.x < n)"),
        # and of one that they may leave by
        (
            f"{ACC}{BATCH}  if (threadIdx.x > n) return;\n{STORE}",
            "  porter::load(acc);\n  if (threadIdx.x > n) return;",
        ),
        # behind the wait in the loop
        (
            f"{ACC}  for (int t = 0; t < n; ++t) {{\n{BATCH}  out[t] = acc(0);\n  }}\n",
            "porter::wait<0>(acc);\n  porter::load(acc);\n  out[t]",
        ),
        # through a view, a lambda, a reference
        (f"{ACC}{BATCH}  auto v = acc(_, 0, _);\n  out[0] = v(0);\n", "  porter::load(acc);\n  out[0] = v(0);"),
        (
            f"{ACC}{BATCH}  auto get = [&](int i) {{ return acc(i); }};\n  out[0] = get(3);\n",
            "  porter::load(acc);\n  out[0] = get(3);",
        ),
        (f"{ACC}{BATCH}  auto& v = acc;\n  out[0] = v(0);\n", "  porter::load(acc);\n  out[0] = v(0);"),
        # whoever is handed it reads it
        (f"{ACC}{BATCH}  axpby(1, acc, 0, b);\n", "  porter::load(acc);\n  axpby(1, acc, 0, b);"),
    ],
)
def test_where_registers_are_loaded(tmp_path: Path, body: str, where: str) -> None:
    text = ported(tmp_path, kernel(OPERANDS + body))
    assert where in text
    assert text.count("porter::load") == 1


@pytest.mark.parametrize(
    ("declared", "reads"),
    [
        ("  float* p = &acc(0);\n", "  out[0] = p[0];\n"),
        ("  float& first = acc(0);\n", "  out[0] = first;\n"),
        ("  auto view = make_tensor(acc.data(), acc.layout());\n", "  out[0] = view(0);\n"),
        ("  auto grouped = group_modes<0, 2>(acc);\n", "  copy(grouped, b);\n"),
        ("  auto pair = Pair{acc};\n", "  use(pair);\n"),
    ],
)
def test_registers_that_are_reached_through_something_else(tmp_path: Path, declared: str, reads: str) -> None:
    text = ported(tmp_path, kernel(OPERANDS + ACC + declared + BATCH + reads))
    assert f"  porter::load(acc);\n{reads}" in text


def test_a_copy_that_a_lambda_holds_is_made_of_current_registers(tmp_path: Path) -> None:
    body = f"{OPERANDS}{ACC}{BATCH}  auto get = [=](int i) {{ return acc(i); }};\n  out[0] = get(0);\n"
    assert "  porter::load(acc);\n  auto get = [=]" in ported(tmp_path, kernel(body))


REGISTERS = HEAD.replace("_SS", "_RS").replace("<GMMA::Major::K, ", "<GMMA::Major::K, ")


@pytest.mark.parametrize("change", ["tA(0) = 1;", "copy(a, tA);", "convert(tA(_, _, 1));"])
def test_an_operand_in_registers_that_changes_in_a_batch_is_refused(tmp_path: Path, change: str) -> None:
    batch = BATCH.replace("  gemm", f"  {change}\n  gemm")
    text = kernel(OPERANDS + ACC + batch).replace(HEAD, REGISTERS)
    assert "operand `tA` is used between" in refused(tmp_path, text)


@pytest.mark.parametrize(
    "asked",
    [
        "int s = size(acc);",
        "auto s = size<1>(acc);",
        "auto l = acc.layout();",
        "clear(acc);",
        "warpgroup_fence_operand(acc);",
        "for (int i = 0; i < size<1>(acc); ++i) out[i] = 0;",
    ],
)
def test_what_touches_no_register_needs_none(tmp_path: Path, asked: str) -> None:
    assert "porter::load" not in ported(tmp_path, kernel(f"{OPERANDS}{ACC}{BATCH}  {asked}\n"))


CONCRETE = "template <class M> __device__ void f(M& m, F& c) { gemm(m, 0, 0, c); }\n"
WRAPPED = """template <class M, class A, class B, class C>
__device__ void multiply(M& m, A const& a, B const& b, C& c) {
  warpgroup_arrive();
  for (int k = 0; k < size<2>(a); ++k) gemm(m, a(_, _, k), b(_, _, k), c);
  warpgroup_commit_batch();
}
"""


def test_accumulators_are_followed_through_functions(tmp_path: Path) -> None:
    body = f"{OPERANDS}{ACC}  multiply(mma, tA, tB, acc);\n  warpgroup_wait<0>();\n{STORE}"
    text = ported(tmp_path, kernel(body, WRAPPED))
    assert "  porter::arrive(c, a);\n" in text
    assert "  porter::commit(c);\n" in text
    assert "porter::accumulator(tc, mma, partition_fragment_C(mma, Shape<_64, _64>{}));" in text
    assert '  porter::wait<0>(acc);\n  porter::load(acc);\n  _Pragma("unroll") for (int i' in text


def test_two_accumulators_lie_beside_each_other_and_parting_blocks_share(tmp_path: Path) -> None:
    other = ACC.replace("acc", "second")
    text = ported(tmp_path, kernel(f"{OPERANDS}{ACC}{other}{BATCH}{BATCH.replace('acc', 'second')}"))
    assert "partition_fragment_C(mma, Shape<_64, _64>{}), acc_columns);" in text
    assert "porter::Tmem<acc_columns + second_columns, 1, 2>" in text
    blocks = f"  if (n) {{\n{ACC}{BATCH}  }} else {{\n{other}{BATCH.replace('acc', 'second')}  }}\n"
    text = ported(tmp_path, kernel(OPERANDS + blocks))
    assert "porter::Tmem<porter::max(acc_columns, second_columns), 1, 2>" in text


def test_the_warpgroups_that_multiply_have_the_columns(tmp_path: Path) -> None:
    body = f"{OPERANDS}  if (threadIdx.x / 128 == 0) {{\n  out[0] = 1;\n  }} else {{\n{ACC}{BATCH}{STORE}  }}\n"
    text = ported(tmp_path, kernel(body, bounds="__launch_bounds__(384)"))
    assert "porter::Tmem<acc_columns, 2, 2, 1> tmem(tmem_shared);" in text
    assert "auto tc = tmem.warpgroup(threadIdx.x / 128 - 1);" in text
    assert text.index("Tmem<") < text.index("if (threadIdx.x / 128 == 0)")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (kernel(f"{OPERANDS}{ACC}{BATCH}", bounds=""), "how many threads a block of `k` has is not known"),
        (
            kernel(f"{OPERANDS}{ACC}  auto copy_ = acc;\n{BATCH.replace('acc', 'copy_')}"),
            "an accumulator is copied as a whole: `copy_` is a copy",
        ),
        (
            kernel(f"{OPERANDS}{ACC}{BATCH}", CONCRETE)
            .replace("  gemm(mma, tA, tB, acc);", "  f(mma, acc);"),
            "a call around MMAs is not followed: parameter",
        ),
        (
            kernel(f"{OPERANDS}{BATCH.replace('acc', 'a.acc')}"),
            "how an accumulator is declared is not understood: `a.acc`",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, text: str, why: str) -> None:
    assert why in refused(tmp_path, text)


_SHARED = "SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>"
_HIDDEN = "using Other = SM90_64x64x16_F32F16F16_RS<GMMA::Major::K, GMMA::Major::K>;\n"


@pytest.mark.parametrize("before", ["", _HIDDEN])
@pytest.mark.parametrize(
    "made",
    [
        f"auto mma = make_tiled_mma({_SHARED}{{}});",
        f"TiledMMA<MMA_Atom<{_SHARED}>> mma;",
        f"using Atom = {_SHARED};\n  auto mma = make_tiled_mma(Atom{{}});",
        f"using M = decltype(make_tiled_mma({_SHARED}{{}}));\n  M mma;",
        f"auto op = {_SHARED}{{}};\n  auto mma = make_tiled_mma(op);",
        "auto mma = make_tiled_mma(GMMA::ss_op_selector<half_t, half_t, float, Shape<_64, _64, _64>>());",
    ],
)
def test_types_that_say_that_a_is_in_shared_memory(tmp_path: Path, made: str, before: str) -> None:
    text = ported(tmp_path, kernel(f"  {made}\n{OPERANDS.replace('  Mma mma;', '')}{ACC}{BATCH}{STORE}", before))
    assert "operand_columns" not in text
    assert "tc.operand" not in text


@pytest.mark.parametrize(
    ("made", "before"),
    [
        ("auto mma = make();", f"__device__ auto make() {{ return make_tiled_mma({_SHARED}{{}}); }}\n"),
        ("auto mma = make_tiled_mma(ATOM{});", f"#define ATOM {_SHARED}\n"),
        ("typename A::Mma mma;", ""),
        ("typename Traits::Mma mma;", f"struct Traits {{ using Mma = decltype(make_tiled_mma({_SHARED}{{}})); }};\n"),
        (f"auto mma = make_tiled_mma(B{{}}, {_SHARED}{{}});", ""),
    ],
)
def test_types_that_only_the_compiler_follows_have_columns_for_a(tmp_path: Path, made: str, before: str) -> None:
    text = ported(tmp_path, kernel(f"  {made}\n{OPERANDS.replace('  Mma mma;', '')}{ACC}{BATCH}{STORE}", before))
    assert "constexpr int operand_columns = porter::operand_columns_of<1, decltype(" in text
    assert "tc.operand = tc.tmem + " in text


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            f"{OPERANDS}\n#undef W\n#define W 64\n{ACC.replace('_64>{}', 'Int<W>>{}')}{BATCH}{STORE}",
            "becomes another one",
        ),
        (
            f"{OPERANDS}  {{ constexpr int kW = 64;\n{ACC.replace('_64>{}', 'Int<V>>{}')}{BATCH}{STORE}  }}\n",
            "`kW` in macro",
        ),
        (
            f"{OPERANDS}{ACC}{BATCH}  auto f = [&](auto& mma) {{\n{ACC.replace(' acc', ' acc2')}"
            f"{BATCH.replace('acc', 'acc2')}  }};\n  f(mma);\n{STORE}",
            "`mma` is a parameter of `f`",
        ),
    ],
)
def test_columns_are_not_counted_by_a_name_that_means_something_else(tmp_path: Path, body: str, why: str) -> None:
    assert why in refused(tmp_path, kernel(body, before="#define W 32\n#define V kW\n"))
