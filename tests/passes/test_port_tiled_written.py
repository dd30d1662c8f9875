# SPDX-License-Identifier: Apache-2.0
"""Kernels with tiled MMAs as other people write them: what is not understood is refused by name, and what a port writes
around casts, classes and steps of operands is C++."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ported_text import ported, refused

HEAD = """#include <cute/tensor.hpp>
using namespace cute;
using Mma = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
using Tile = Shape<_64, _64>;
"""
OPERANDS = """  Mma mma;
  auto thr = mma.get_slice(threadIdx.x);
  Tensor tA = thr.partition_fragment_A(a);
  Tensor tB = thr.partition_fragment_B(b);
"""
BATCH = """  warpgroup_arrive();
  gemm(mma, tA, tB, ACC);
  warpgroup_commit_batch();
  warpgroup_wait<0>();
"""
ACC = "  Tensor acc = partition_fragment_C(mma, Tile{});\n"
STORE = "  copy(acc, thr.partition_C(out));\n"


def kernel(body: str, before: str = "") -> str:
    head = "template <class A, class B, class C>\n__global__ void __launch_bounds__(128) k(A a, B b, C out, int n)"
    return f"{HEAD}{before}{head} {{\n{OPERANDS}{body}}}\n"


def batch(acc: str = "acc") -> str:
    return BATCH.replace("ACC", acc)


PAIR = ACC + ACC.replace("acc", "other")
REFUSED = {
    "an array of fragments": ("  decltype(partition_fragment_C(mma, Tile{})) accs[2];\n" + batch("accs[n]"),
                              "`accs[n]` is no tensor of registers that a function declares"),
    "a container": ("  cute::array<decltype(partition_fragment_C(mma, Tile{})), 2> accs;\n" + batch("accs[0]"),
                    "`accs[0]` is no tensor of registers that a function declares"),
    "a tuple": ("  auto accs = make_tuple(partition_fragment_C(mma, Tile{}), n);\n" + batch("get<0>(accs)"),
                "`get<0>(accs)` is no tensor of registers that a function declares"),
    "a structured binding": ("  auto [acc, x] = make_tuple(partition_fragment_C(mma, Tile{}), n);\n" + batch() + STORE,
                             "`acc` is one of several that a structured binding declares"),
    "a structured binding by reference": ("  auto both = make_tuple(partition_fragment_C(mma, Tile{}), n);\n"
                                          "  auto& [acc, x] = both;\n" + batch() + STORE,
                                          "`acc` is one of several that a structured binding declares"),
    "a lambda that a library calls": (ACC + "  cute::apply(cute::tie(acc), [&](auto& x) {\n" + batch("x") + "  });\n",
                                      "`x` is handed to a lambda by code that is not followed"),
    "pointers that are swapped": (PAIR + "  auto* now = &acc; auto* next = &other;\n" + batch("*now"),
                                  "`*now` is no tensor of registers that a function declares"),
    "one of two by a condition": (PAIR + "  auto& now = n ? acc : other;\n" + batch("now"),
                                  "`now` refers to something that is no tensor's name"),
    "a type without a value": ("  decltype(partition_fragment_C(mma, Tile{})) acc;\n" + batch() + STORE,
                               "`acc` is declared without a value"),
    "a member": ("  State<Mma> state;\n  state.step(mma, tA, tB);\n", "`acc` is no tensor of registers"),
    "a copy": (ACC + "  auto other = acc;\n" + batch("other"), "`other` is a copy of accumulator `acc`"),
    "five arguments": (ACC + batch().replace("tA, tB, acc", "acc, tA, tB, acc"),
                       "`gemm(mma, acc, tA, tB, acc)` is no form of `cute::gemm` that a rule knows"),
}  # fmt: skip
STATE = """template <class M>
struct State {
  decltype(partition_fragment_C(M{}, Tile{})) acc;
  template <class A, class B>
  __device__ void step(M& m, A const& x, B const& y) {
    warpgroup_arrive();
    gemm(m, x, y, acc);
    warpgroup_commit_batch();
    warpgroup_wait<0>();
  }
};
"""


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(tmp_path: Path, name: str) -> None:
    body, why = REFUSED[name]
    assert why in refused(tmp_path, kernel(body, STATE if name == "a member" else ""))


@pytest.mark.parametrize("one", ["both(_, _, _, n)", "both(_, _, _, _0{})", "both(_, 0, 0, 1)"])
@pytest.mark.parametrize("view", [False, True], ids=["direct", "by a view"])
def test_tiles_of_one_tensor_have_all_its_columns(tmp_path: Path, one: str, view: bool) -> None:
    declared = "make_tensor<float>(append(partition_shape_C(mma, Tile{}), _2{}))"
    used = f"  auto one = {one};\n" + batch("one") if view else batch(one)
    text = ported(tmp_path, kernel(f"  Tensor both = {declared};\n" + used + "  copy(both, out);\n"))
    assert f"porter::columns_of<1, decltype(mma), decltype({declared})>()" in text
    assert f"Tensor both = porter::accumulator(tc, mma, {declared});" in text
    assert "porter::load(both)" in text


BY_MACRO = BATCH.replace("gemm(mma, tA, tB, ACC)", "M")
MACROS = {
    "an MMA": ("gemm(mma, tA, tB, acc);", BY_MACRO.replace("M;", "M"), "gemm"),
    "an MMA's step": ("cute::gemm(mma, tA(_, _, n), tB(_, _, n), acc)", BY_MACRO, "cute::gemm"),
    "an MMA by another macro": ("N(mma)", BY_MACRO, "gemm"),
    "the opening": ("warpgroup_arrive()", batch().replace("warpgroup_arrive()", "M"), "warpgroup_arrive"),
    "the end": ("do { warpgroup_commit_batch(); warpgroup_wait<0>(); } while (0)",
                "  warpgroup_arrive();\n  gemm(mma, tA, tB, acc);\n  M;\n", "warpgroup_commit_batch"),
    "a batch": ("{ warpgroup_arrive(); gemm(mma, tA, tB, acc); warpgroup_commit_batch(); warpgroup_wait<0>(); }",
                "  M\n", "warpgroup_arrive"),
}  # fmt: skip
"""What a macro holds that is not followed, a kernel's body that uses it, and the name that is told."""


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a kernel that is ported"])
@pytest.mark.parametrize("what", MACROS)
def test_macros_that_are_not_followed_are_named(tmp_path: Path, what: str, beside: bool) -> None:
    body, uses, name = MACROS[what]
    macro = f"#define N(x) gemm(x, tA, tB, acc)\n#define M {body}\n"
    text = kernel(ACC + uses + STORE, macro)
    if beside:
        other = kernel(ACC + batch() + STORE).removeprefix(HEAD)
        text += other.replace(" k(", " second(")
    assert re.search(rf"`{name}` may be `cute::\w+` in macro `[MN]`, which is not followed", refused(tmp_path, text))


@pytest.mark.parametrize(
    "macro",
    [
        "#define UNUSED warpgroup_arrive(); gemm(mma, tA, tB, acc);\n",
        "#define STEP(m) gemm(m, x, y, z)\n"
        "template <class M, class A, class B, class C>\n__device__ void of_warps(M m, A x, B y, C z) { STEP(m); }\n",
        "#define RUN(...) gemm(__VA_ARGS__)\nvoid gemm(int);\nvoid host() { RUN(3); }\n",
    ],
    ids=["not used", "of single warps", "of host code"],
)
def test_macros_apart_from_warpgroups_are_left(tmp_path: Path, macro: str) -> None:
    assert "porter::arrive(acc, tA)" in ported(tmp_path, kernel(ACC + batch() + STORE, macro))


FUNCTOR = """struct Step {
  template <class M, class A, class B, class C>
  __device__ void operator()(M& m, A const& x, B const& y, C& z) const { LOOP }
};
"""
STEPS = "for (int i = 0; i < 4; ++i) gemm(m, x(_, _, i), y(_, _, i), z);"
OF_A_FUNCTOR = (
    "  warpgroup_arrive();\n  Step{}(mma, tA, tB, acc);\n  warpgroup_commit_batch();\n  warpgroup_wait<0>();\n"
)


@pytest.mark.parametrize("loop", ["gemm(m, x, y, z);", STEPS], ids=["whole", "by steps"])
@pytest.mark.parametrize(
    "body",
    [
        ACC + OF_A_FUNCTOR + STORE,
        ACC + "  Step step;\n" + OF_A_FUNCTOR.replace("Step{}", "step") + STORE,
        ACC + OF_A_FUNCTOR + "  for (int i = 0; i < 4; ++i) out[i] = acc(i, 0, 0, n);\n",
        "  auto acc = partition_fragment_C(mma, Tile{});\n" + OF_A_FUNCTOR + "  copy(acc(_, 0, _), out(n, _, 0));\n",
        ACC + "  auto one = [&](auto& c, int i) { gemm(mma, tA(_, _, i), tB(_, _, i), c); };\n"
        + OF_A_FUNCTOR.replace("Step{}(mma, tA, tB, acc)", "one(acc, n)") + OF_A_FUNCTOR + STORE,
    ],
    ids=["a temporary", "an object", "elements", "slices", "a lambda's steps"],
)  # fmt: skip
def test_coordinates_of_tensors_are_no_arguments_of_call_operators(tmp_path: Path, body: str, loop: str) -> None:
    text = ported(tmp_path, kernel(body, FUNCTOR.replace("LOOP", loop)))
    assert text.count("porter::accumulator(") == 1
    assert "porter::load(acc)" in text


IN_FLIGHT = """  warpgroup_arrive();
  gemm(mma, tA, tB, acc);
  warpgroup_commit_batch();
  out(n) = saved(n);
  warpgroup_wait<0>();
"""


@pytest.mark.parametrize(
    ("before", "copy"),
    [
        ("", "auto saved = acc;"),
        ("", "Tensor saved = acc;"),
        ("", "auto const saved = (acc);"),
        ("", "auto saved{acc};"),
        ("auto& r = acc;", "auto saved = r;"),
        ("auto& r = acc; auto const& q = r;", "auto saved = q;"),
    ],
)
def test_a_copy_is_made_of_registers_that_are_loaded(tmp_path: Path, before: str, copy: str) -> None:
    text = ported(tmp_path, kernel(ACC + batch() + f"  {before}\n  {copy}\n" + IN_FLIGHT + STORE))
    assert f"  porter::load(acc);\n  {copy}\n" in text
    # the copy has registers of its own: nothing is loaded while MMAs write the accumulator
    assert "  porter::commit(acc);\n  out(n) = saved(n);\n  porter::wait<0>(acc);\n  porter::load(acc);\n" in text


@pytest.mark.parametrize("view", ["auto& saved = acc;", "auto saved = acc(_, 0, _);", "auto&& saved = acc(_, _, 0);"])
def test_a_view_is_loaded_where_it_is_used(tmp_path: Path, view: str) -> None:
    text = ported(tmp_path, kernel(ACC + f"  {view}\n" + batch() + "  out(n) = saved(n);\n"))
    assert "  porter::wait<0>(acc);\n  porter::load(acc);\n  out(n) = saved(n);\n" in text


@pytest.mark.parametrize("called", ["acc", "acc(_, _, 0)"])
def test_a_copy_of_what_callers_hand_in_is_refused(tmp_path: Path, called: str) -> None:
    multiply = batch("c").replace("mma", "m").replace("tA, tB", "x, y")
    step = f"  {multiply}  auto saved = c;\n{multiply}  out(0) = saved(0);\n"
    head = "template <class M, class A, class B, class C, class D>\n__device__ void step(M m, A x, B y, C&& c, D out)"
    before = f"{head} {{\n{step}}}\n"
    why = refused(tmp_path, kernel(ACC + f"  step(mma, tA, tB, {called}, out);\n", before))
    assert "`saved` is a copy of accumulator `c` or a view, as callers hand it in" in why


def test_a_copy_that_reads_as_a_function_is_refused(tmp_path: Path) -> None:
    why = refused(tmp_path, kernel(ACC + batch() + "  auto saved(acc);\n" + IN_FLIGHT + STORE))
    assert "`saved(acc)` copies accumulator `acc`: write it with `=`" in why


CONVERT = """template <class To, class Engine, class Layout>
__device__ auto convert(Tensor<Engine, Layout> const& tensor) {
  return converted<To>(*reinterpret_cast<cutlass::Array<float, 32> const*>(tensor.data()));
}
"""


@pytest.mark.parametrize(
    ("body", "before", "expected"),
    [
        ("  use(convert<half_t>(acc));\n", CONVERT, "const*>(porter::raw_pointer_cast(tensor.data())));"),
        ("  use(*reinterpret_cast<X*>(acc.data()));\n", "", "<X*>(porter::raw_pointer_cast(acc.data()))"),
        ("  use((X*)acc.data());\n", "", "(X*)porter::raw_pointer_cast(acc.data())"),
        ("  use(reinterpret_cast<X*>(&acc(0)));\n", "", "reinterpret_cast<X*>(&acc(0))"),
        ("  use(reinterpret_cast<X*>(out.data()));\n", "", "reinterpret_cast<X*>(out.data())"),
        ("  use(convert<half_t>(out));\n", CONVERT, "const*>(tensor.data()));"),
    ],
)  # fmt: skip
def test_casts_of_an_iterator(tmp_path: Path, body: str, before: str, expected: str) -> None:
    assert expected in ported(tmp_path, kernel(ACC + batch() + body + STORE, before))


CALLED = """struct Gemm {
  template <class A, class B, class C>
  __device__ void operator()(A a, B b, C out, int n) {
OPERANDS  }
};
template <class K, class A, class B, class C>
__global__ void __launch_bounds__(128) launch(A a, B b, C out, int n) {
  K kernel;
  CALL
}
"""


@pytest.mark.parametrize(
    ("call", "said"),
    [("kernel(a, b, out, n);", True), ("kernel.operator()(a, b, out, n);", True), ("K{}(a, b, out, n);", False)],
)
def test_an_object_that_a_kernel_calls_says_its_columns_by_its_class(tmp_path: Path, call: str, said: bool) -> None:
    text = HEAD + CALLED.replace("OPERANDS", OPERANDS + ACC + batch() + STORE).replace("CALL", call)
    if said:
        assert "::template call_columns<" in ported(tmp_path, text).split("__global__")[1]
    else:
        assert "calls something that has no name" in refused(tmp_path, text)


BROKEN = {
    "a statement that breaks off in front": ("__device__ void first(float* p) {\n  p->", ""),
    "a namespace inside a function": ("__device__ void first(float* p) {\nnamespace inner {\n", "}\n}\n"),
}
HEADS = "#ifdef A\n__device__ void first(int p) {\n#else\n__device__ void first(float p) {\n#endif\n}\n"


@pytest.mark.parametrize("name", BROKEN)
def test_a_kernel_that_is_read_as_a_part_of_another_function_is_refused(tmp_path: Path, name: str) -> None:
    before, behind = BROKEN[name]
    text = HEAD + before + kernel(ACC + batch() + STORE).removeprefix(HEAD) + behind
    assert "`k` stands inside another function: a brace is missing, or one is too many" in refused(tmp_path, text)


def test_two_heads_of_a_function_in_front_of_a_kernel(tmp_path: Path) -> None:
    assert "porter::" in ported(tmp_path, kernel(ACC + batch() + STORE, HEADS))


def test_methods_of_a_class_in_a_function_stand_in_no_other_function(tmp_path: Path) -> None:
    local = "  struct Local { __device__ int twice(int x) { return 2 * x; } };\n"
    assert "porter::" in ported(tmp_path, kernel(local + ACC + batch() + STORE))
