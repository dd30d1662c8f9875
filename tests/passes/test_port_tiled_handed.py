# SPDX-License-Identifier: Apache-2.0
"""Columns that depend on what is handed in as a template argument, and those of methods that are defined outside of
their class."""

from __future__ import annotations

from pathlib import Path

import pytest
from ported_text import ported, refused

HEAD = """#include <cute/tensor.hpp>
using namespace cute;
using Atom = SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>;
struct Traits {
  using Mma = decltype(make_tiled_mma(Atom{}));
  using Registers = Layout<Shape<Shape<_2, _2, _8>, _1, _1>>;
};
struct Others : Traits {};
"""
MULTIPLY = """{head}
__device__ void multiply(A const& tA, B const& tB, C& acc) {{
  typename T::Mma mma;
  warpgroup_arrive();
  gemm(mma, tA, tB, acc);
  warpgroup_commit_batch();
}}
"""
KERNEL = """template <class T, class A, class B>
__global__ void __launch_bounds__(128) k(A tA, B tB, float* out) {{
  auto acc = make_tensor<float>(typename T::Registers{{}});
  {call}
  warpgroup_wait<0>();
  for (int i = 0; i < size(acc); ++i) out[i] = acc(i);
}}
"""
PLAIN = "template <class T, class A, class B, class C>"
UNTYPED = PLAIN.replace("class T, ", "")


def handed(call: str, head: str = PLAIN, between: str = "", behind: str = "") -> str:
    return HEAD + MULTIPLY.format(head=head) + between + KERNEL.format(call=call) + behind


def through(call: str, head: str = PLAIN) -> str:
    return f"{head}\n__device__ void through(A const& tA, B const& tB, C& acc) {{ {call} }}\n"


SECOND = KERNEL.replace(" k(", " second(").format(call="multiply<T>(tA, tB, acc);")


@pytest.mark.parametrize(
    ("text", "mma"),
    [
        (handed("multiply<T>(tA, tB, acc);"), "typename T::Mma&"),
        (handed("multiply<T, A, B>(tA, tB, acc);"), "typename T::Mma&"),
        (handed("multiply<Traits>(tA, tB, acc);"), "typename Traits::Mma&"),
        (handed("multiply</* traits */ T>(tA, tB, acc);"), "typename T::Mma&"),
        (handed("::multiply<T>(tA, tB, acc);"), "typename T::Mma&"),
        (handed("multiply<64, T>(tA, tB, acc);", "template <int kN, class T, class A, class B, class C>"), "T::Mma&"),
        (handed("multiply<T>(tA, tB, acc); multiply<T>(tB, tA, acc);"), "typename T::Mma&"),
        # through another function, whose parameter has another name
        (
            handed("through<T>(tA, tB, acc);", between=through("multiply<X>(tA, tB, acc);", PLAIN.replace("T", "X"))),
            "typename T::Mma&",
        ),
        (
            handed("through(tA, tB, acc);", between=through("multiply<Traits>(tA, tB, acc);", UNTYPED)),
            "typename Traits::Mma&",
        ),
        # what others hand in who do not come from the kernel
        (handed("multiply<Traits>(tA, tB, acc);", behind=SECOND), "typename Traits::Mma&"),
        (handed("using U = T; multiply<U>(tA, tB, acc);"), "typename T::Mma&"),
    ],
)
def test_what_a_caller_hands_in_stands_for_a_template_parameter(tmp_path: Path, text: str, mma: str) -> None:
    columns = next(li for li in ported(tmp_path, text).splitlines() if "acc_columns =" in li)
    assert mma in columns
    assert "make_tensor<float>(typename T::Registers{})" in columns


@pytest.mark.parametrize(
    "text",
    [
        # not all of them the same
        handed("multiply<T>(tA, tB, acc); multiply<Traits>(tB, tA, acc);"),
        handed("multiply<Traits>(tA, tB, acc); multiply<Others>(tB, tA, acc);"),
        # not said where it is called
        handed("multiply(tA, tB, acc);", "template <class A, class B, class C, class T = Traits>"),
        handed("multiply<A>(tA, tB, acc);", "template <class A, class B, class C, class T = Traits>"),
        handed("through<T>(tA, tB, acc);", between=through("multiply(T{}, tA, tB, acc);")).replace(
            "void multiply(A", "void multiply(T, A"
        ),
    ],
)
def test_what_is_not_handed_in_as_one_type_is_refused(tmp_path: Path, text: str) -> None:
    assert "type `T` is one of `multiply` alone" in refused(tmp_path, text)


METHOD = """template <class A, class B>
__device__ void {owner}run(A const& tA, B const& tB, float* out) {{
  {mma} mma;
  auto acc = partition_fragment_C(mma, Shape<_64, _64>{{}});
  warpgroup_arrive();
  gemm(mma, tA, tB, acc);
  warpgroup_commit_batch();
  warpgroup_wait<0>();
  for (int i = 0; i < size(acc); ++i) out[i] = acc(i);
}}
"""
DECLARED = "template <class A, class B> static __device__ void run(A const& tA, B const& tB, float* out);"
CALL = """template <class T, class A, class B>
__global__ void __launch_bounds__(128) k(A tA, B tB, float* out) {{ {call}(tA, tB, out); }}
"""


def method(
    params: str, named: str, call: str, declared: str = DECLARED, mma: str = "Mma", owner: str = "Kernel"
) -> str:
    head = f"template <{params}>\n" if params else ""
    own = f"{head}struct Kernel {{\n  using Mma = Traits::Mma;\n  {declared}\n}};\n"
    outside = f"template <{named}>\n" if named else ""
    return HEAD + own + outside + METHOD.format(owner=f"{owner}::", mma=mma) + CALL.format(call=call)


@pytest.mark.parametrize(
    "text",
    [
        method("", "", "Kernel::run"),
        method("", "", "Kernel{}.run"),
        method("", "", "Kernel::run", mma="Traits::Mma"),
        method("", "", "Kernel{}.run", DECLARED.replace("static ", "")),
        method("class T", "class T", "Kernel<T>::run", mma="typename T::Mma", owner="Kernel<T>"),
        method("class T", "class T", "Kernel<Traits>::run", mma="typename T::Mma", owner="Kernel<T>"),
        method("int kN, class T", "int kN, class T", "Kernel<1, T>::run", mma="typename T::Mma", owner="Kernel<kN, T>"),
        method("class T, int kN = 2", "class T, int kN", "Kernel<T>::run", mma="T::Mma", owner="Kernel<T, kN>"),
        method("", "", "Kernel::run", f"// multiplies\n  {DECLARED}"),
        method("", "", "Kernel::run", DECLARED.replace("> static", ">\n  static")),
    ],
)
def test_columns_of_a_method_stand_beside_its_declaration(tmp_path: Path, text: str) -> None:
    made = ported(tmp_path, text)
    own = made[made.index("struct Kernel") : made.index("\n};\n", made.index("struct Kernel"))]
    assert "__device__ static auto run_columns() {" in own
    assert own.index("run_columns") < own.index("void run(porter::Warpgroup& tc, A const& tA")
    assert "template <int kWarpgroups>\n" in own
    assert made.count("auto run_columns()") == 1
    assert "run_columns<1>()" in made[made.index("void __launch_bounds__(128) k(") :]


@pytest.mark.parametrize(
    "text",
    [
        method("class T", "class U", "Kernel<T>::run", mma="typename U::Mma", owner="Kernel<U>"),
        method("int kM, int kN", "int kN, int kM", "Kernel<1, 2>::run", owner="Kernel<kN, kM>"),
    ],
)
def test_a_class_that_has_other_names_outside_is_refused(tmp_path: Path, text: str) -> None:
    assert "`run` is defined outside of its class" in refused(tmp_path, text)
