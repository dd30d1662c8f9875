# SPDX-License-Identifier: Apache-2.0
"""Accumulators that device functions, methods and their lambdas declare; kernels that are call operators of classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from ported_text import port, ported, refused

from porter.passes.helpers import Placement
from porter.passes.port import PortOptions

HEAD = """#include <cute/tensor.hpp>
using namespace cute;
using Mma = decltype(make_tiled_mma(SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>{}));
"""
REGISTERS = HEAD.replace("_SS", "_RS")
BOTH = REGISTERS + HEAD.splitlines()[2].replace("Mma =", "Other =") + "\n"
TILE = "Shape<_64, _64>{}"
ACC = f"  Tensor acc = partition_fragment_C(mma, {TILE});\n"
BATCH = """  warpgroup_arrive();
  gemm(mma, tA, tB, acc);
  warpgroup_commit_batch();
  warpgroup_wait<0>();
"""
STORE = "  for (int i = 0; i < size(acc); ++i) out[i] = acc(i);\n"
MULTIPLY = (
    "template <class M, class A, class B>\n__device__ void multiply(M mma, A const& tA, B const& tB, float* out) {\n"
)
KERNEL = """template <class A, class B>
__global__ void __launch_bounds__(128) k(A tA, B tB, float* out, int n) {
  Mma mma;
"""


def function(body: str, call: str = "multiply(mma, tA, tB, out);", before: str = "", head: str = HEAD) -> str:
    return f"{head}{before}{MULTIPLY}{body}}}\n{KERNEL}  {call}\n}}\n"


def test_a_function_says_what_it_takes_and_is_handed_the_warpgroup(tmp_path: Path) -> None:
    text = ported(tmp_path, function(ACC + BATCH + STORE))
    assert "template <int kWarpgroups, class mma_type>\n__device__ auto multiply_columns() {" in text
    assert "decltype(porter::declval<mma_type&>()), decltype(partition_fragment_C(porter::declval<mma_type&>()" in text
    assert "void multiply(porter::Warpgroup& tc, M mma, A const& tA" in text
    assert f"Tensor acc = porter::accumulator(tc, mma, partition_fragment_C(mma, {TILE}));" in text
    columns = "decltype(multiply_columns<1, porter::remove_cvref_t<decltype(mma)>>())::value"
    assert f"const porter::Tmem<{columns}, 1, 2> tmem(tmem_shared);" in text
    assert "  multiply(tc, mma, tA, tB, out);" in text
    assert '  porter::load(acc);\n  _Pragma("unroll") for (int i' in text


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # a constant of the function stands in the tile
        (
            f"  constexpr int kN = 64;\n{ACC.replace(TILE, 'Shape<_64, Int<kN>>{}')}{BATCH}",
            "Shape<_64, Int<static_cast<int>(64)>>{}",
        ),
        ("  auto tile = Shape<_64, _64>{};\n" + ACC.replace(TILE, "tile") + BATCH, "(Shape<_64, _64>{})"),
        ("  using Tile = Shape<_64, _64>;\n" + ACC.replace(TILE, "Tile{}") + BATCH, f"_type&>(), {TILE})"),
        # an MMA of its own asks for nothing
        ("  Mma own;\n" + (ACC + BATCH).replace("(mma", "(own"), "template <int kWarpgroups>\n__device__ auto"),
        # types of the template
        (ACC.replace(TILE, "typename A::Tile{}") + BATCH, "template <int kWarpgroups, class mma_type, class A>"),
        (
            "  auto thr = mma.get_slice(threadIdx.x);\n"
            + ACC.replace(f"partition_fragment_C(mma, {TILE})", "thr.partition_fragment_C(tB)")
            + BATCH,
            "template <int kWarpgroups, class mma_type, class tB_type>",
        ),
    ],
)
def test_what_columns_depend_on(tmp_path: Path, body: str, expected: str) -> None:
    assert expected in ported(tmp_path, function(body))


@pytest.mark.parametrize(
    ("declared", "call", "expected"),
    [
        ("template <class M, class A, class B, int kN>", "multiply<Mma, A, B, 32>(mma, tA, tB, out);", "<1, 32>"),
        ("template <int kN, class M, class A, class B>", "multiply<96>(mma, tA, tB, out);", "<1, 96>"),
        ("template <int kN, class M, class A, class B>", "multiply<2 * 32>(mma, tA, tB, out);", "<1, 2 * 32>"),
        ("template <class Int_, class M, class A, class B>", "multiply<typename A::N>(mma, tA, tB, out);", None),
    ],
)
def test_template_arguments_are_handed_on(tmp_path: Path, declared: str, call: str, expected: str | None) -> None:
    width = "Int<kN>" if expected else "Int_"
    body = ("  Mma own;\n" + ACC + BATCH).replace("(mma", "(own").replace(TILE, f"Shape<_64, {width}>{{}}")
    text = function(body, call).replace("template <class M, class A, class B>\n__device__", f"{declared}\n__device__")
    found = ported(tmp_path, text)
    assert f"decltype(multiply_columns{expected or '<1, typename A::N>'}())::value" in found
    assert "multiply" + call[8:].replace("(mma", "(tc, mma") in found


def test_callers_lie_behind_what_they_call(tmp_path: Path) -> None:
    outer = f"""template <class M, class A, class B>
__device__ void outer(M mma, A const& tA, B const& tB, float* out) {{
  Tensor sum = partition_fragment_C(mma, {TILE});
{BATCH.replace("acc", "sum")}  multiply(mma, tA, tB, out);
  out[0] = sum(0);
}}
"""
    source = f"{HEAD}{MULTIPLY}{ACC}{BATCH}{STORE}}}\n{outer}{KERNEL}  outer(mma, tA, tB, out);\n}}\n"
    text = ported(tmp_path, source)
    assert "constexpr int called_columns = decltype(multiply_columns<kWarpgroups," in text
    assert "return porter::Int<called_columns + sum_columns>{};" in text
    first = [f"decltype(outer_sum_column<{w}, porter::remove_cvref_t<decltype(mma)>>())::value" for w in "12"]
    assert f"partition_fragment_C(mma, {TILE}), tc.column({first[0]}, {first[1]}));" in text
    assert "multiply(tc, mma, tA, tB, out);" in text
    assert "outer(tc, mma, tA, tB, out);" in text


def test_an_accumulator_in_sight_leads_to_the_warpgroup(tmp_path: Path) -> None:
    inner = f"""template <class M, class A, class B, class C>
__device__ void inner(M mma, A const& tA, B const& tB, C& sum) {{
  Tensor part = partition_fragment_C(mma, {TILE});
{BATCH.replace("acc", "part")}  for (int i = 0; i < size(part); ++i) sum(i) += part(i);
{BATCH.replace("acc", "sum")}}}
"""
    source = f"{HEAD}{inner}{KERNEL}{ACC}  inner(mma, tA, tB, acc);\n{STORE}}}\n"
    text = ported(tmp_path, source)
    assert f"Tensor part = porter::accumulator(porter::warpgroup(sum), mma, partition_fragment_C(mma, {TILE}));" in text
    assert "  inner(mma, tA, tB, acc);" in text
    assert "constexpr int called_columns = decltype(inner_columns<1," in text
    assert "partition_fragment_C(mma, Shape<_64, _64>{}), called_columns);" in text
    assert '  porter::load(sum);\n  porter::load(part);\n  _Pragma("unroll") for (int i' in text


METHOD = f"""template <class Mma_, class Tile_>
struct Mainloop {{
  using TiledMma = Mma_;
  using Tile = Tile_;
  static constexpr int kStages = 2;
  template <class A, class B>
  __device__ void run(A const& tA, B const& tB, float* out) {{
    TiledMma mma;
    Tensor acc = partition_fragment_C(mma, Tile{{}});
{BATCH}{STORE}  }}
}};
"""


@pytest.mark.parametrize(("terms", "is_ported"), [(1, True), (40, True), (150, True), (180, False), (400, False)])
def test_how_long_a_type_may_be(tmp_path: Path, terms: int, is_ported: bool) -> None:
    """What is written there once more has an end, far behind what kernels have."""
    tile = f"Shape<_64, Int<{' + '.join(['kSixteen'] * terms)}>>{{}}"
    assert (len(f"partition_fragment_C(mma, {tile})") <= 2000) == is_ported
    loop = METHOD.replace("Tile{}", tile)
    text = f"{HEAD}using T = {TILE[:-2]};\nconstexpr int kSixteen = 16;\n{loop}{KERNEL}"
    text += "  Mainloop<Mma, T> loop; loop.run(tA, tB, out);\n}\n"
    if is_ported:
        assert f"decltype(partition_fragment_C(porter::declval<TiledMma&>(), {tile}))" in ported(tmp_path, text)
    else:
        assert "is too long to be written there" in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("call", "columns"),
    [
        ("Mainloop<Mma, T> loop; loop.run(tA, tB, out);", "Mainloop<Mma, T>"),
        ("using L = Mainloop<Mma, T>; L loop; loop.run(tA, tB, out);", "Mainloop<Mma, T>"),
        (
            "auto loop = Mainloop<Mma, T>{}; loop.run(tA, tB, out);",
            "porter::remove_cvref_t<decltype((Mainloop<Mma, T>{}))>",
        ),
    ],
)
def test_methods_say_it_among_the_members_of_their_class(tmp_path: Path, call: str, columns: str) -> None:
    body = f"  using T = {TILE[:-2]};\n  if (n > 0) {{ {call} }}\n".replace("using T", "using T")
    text = ported(tmp_path, f"{HEAD}using T = {TILE[:-2]};\n{METHOD}{KERNEL}{body.splitlines()[1]}\n}}\n")
    assert "  template <int kWarpgroups>\n  __device__ static auto run_columns() {" in text
    assert (
        "decltype(porter::declval<TiledMma&>()), decltype(partition_fragment_C(porter::declval<TiledMma&>(), Tile{}))"
        in text
    )
    assert f"decltype({columns}::template run_columns<1>())::value" in text
    assert "loop.run(tc, tA, tB, out);" in text


def test_methods_are_called_by_their_own_class(tmp_path: Path) -> None:
    method = METHOD.replace(
        "  template <class A, class B>\n  __device__ void run",
        "  template <class A, class B>\n  __device__ void both(A const& tA, B const& tB, float* out) {\n"
        "    run(tA, tB, out);\n    this->run(tA, tB, out);\n  }\n  template <class A, class B>\n  __device__ void run",
    )
    text = ported(
        tmp_path, f"{HEAD}{method}{KERNEL}  Mainloop<Mma, {TILE[:-2]}> loop;\n  loop.both(tA, tB, out);\n}}\n"
    )
    assert "return porter::Int<decltype(run_columns<kWarpgroups>())::value>{};" in text
    assert "    run(tc, tA, tB, out);\n    this->run(tc, tA, tB, out);" in text
    assert "__device__ void both(porter::Warpgroup& tc, A const& tA" in text
    assert "loop.both(tc, tA, tB, out);" in text


@pytest.mark.parametrize(
    ("body", "apart"),
    [
        # done with the first in front of the second
        ("  out[0] = one(0);\n  Tensor two = make();\nTWO  out[1] = two(0);\n", True),
        (
            "  out[0] = one(0);\n  auto step = [&] {\n  Tensor two = make();\nTWO  out[1] = two(0);\n  };\n  step();\n",
            True,
        ),
        ("  auto view = one(_, 0, _);\n  out[0] = view(0);\n  Tensor two = make();\nTWO", True),
        # what is asked for its layout, cleared or pinned is not alive for that
        ("  out[0] = one(0);\n  Tensor two = make();\nTWO  auto l = one.layout();\n", True),
        (
            "  out[0] = one(0);\n  Tensor two = make();\nTWO  for (int i = 0; i < size(one); ++i) out[i] = two(i);\n",
            True,
        ),
        ("  out[0] = one(0);\n  Tensor two = make();\n  warpgroup_fence_operand(one);\nTWO  clear(one);\n", True),
        # a lambda that is called where it stands
        ("  float t = [&] { return one(0); }();\n  Tensor two = make();\nTWO", True),
        ("  float t = ([&](int i) { return one(i); })(n);\n  Tensor two = make();\nTWO", True),
        ("  auto view = one(_, 0, _);\n  float t = [&] { return view(0); }();\n  Tensor two = make();\nTWO", True),
        ("  float t = [&] { return [&] { return one(0); }(); }();\n  Tensor two = make();\nTWO", True),
        ("  Tensor two = make();\nTWO  float t = [&] { return one(0); }();\n", False),
        ("  auto view = [&] { return one(_, 0, _); }();\n  Tensor two = make();\nTWO  out[0] = view(0);\n", False),
        (
            "  auto get = [&] { return [&] { return one(0); }; }();\n  Tensor two = make();\nTWO  out[0] = get();\n",
            False,
        ),
        (
            "  for (int i = 0; i < n; ++i) {\n  out[i] = [&] { return one(0); }();\n  Tensor two = make();\nTWO  }\n",
            False,
        ),
        # used behind it, itself or through something else
        ("  Tensor two = make();\nTWO  out[0] = one(0);\n", False),
        ("  auto view = one(_, 0, _);\n  Tensor two = make();\nTWO  out[0] = view(0);\n", False),
        ("  float* p = &one(0);\n  Tensor two = make();\nTWO  out[0] = p[0];\n", False),
        ("  auto get = [&] { return one(0); };\n  Tensor two = make();\nTWO  out[0] = get();\n", False),
        ("  auto step = [&] {\n  Tensor two = make();\nTWO  one(0) += two(0);\n  };\n  step();\n", False),
        # a lambda's parameter of the same name is another
        ("  auto set = [](auto& one) { one(0) = 1; };\n  Tensor two = make();\nTWO  set(two);\n", True),
        # the loop comes back to the first
        ("  for (int i = 0; i < n; ++i) {\n  out[i] = one(0);\n  Tensor two = make();\nTWO  }\n", False),
        # blocks that part
        (
            "  if (n) {\n  Tensor three = make();\nTHREE  } else {\n  Tensor two = make();\nTWO  }\n"
            "  out[0] = one(0);\n",
            False,
        ),
    ],
)
def test_columns_of_what_is_not_alive_together_are_the_same(tmp_path: Path, body: str, apart: bool) -> None:
    make = f"partition_fragment_C(mma, {TILE})"
    body = f"  Tensor one = {make};\nONE{body}".replace("make()", make)
    for name in ("one", "two", "three"):
        body = body.replace(name.upper(), BATCH.replace("acc", name))
    text = ported(tmp_path, f"{HEAD}{KERNEL}{body}}}\n")
    assert f"Tensor two = porter::accumulator(tc, mma, {make}{'' if apart else ', one_columns'});" in text
    total = "porter::max(one_columns, two_columns)" if apart else "one_columns + two_columns"
    assert total in text or not apart


OPERATOR = """template <class Loop_>
struct Kernel {
  using Loop = Loop_;
  static constexpr int MaxThreadsPerBlock = size(typename Loop::TiledMma{}) + 128;
  struct Params { float* out; };
  __device__ void operator()(Params const& params, char* smem) {
    int const warp_group_idx = cutlass::canonical_warp_group_idx();
    auto tA = make_a(smem);
    auto tB = make_b(smem);
    if (warp_group_idx == 0) {
      load(smem);
    } else {
      Loop loop;
      loop.run(tA, tB, params.out);
    }
  }
};
template <class T>
struct Sum {
  __device__ T operator()(T const& a, T const& b) { return a + b; }
};
"""
LAUNCH = (
    "void launch(float* out) { auto kernel = cutlass::device_kernel<Kernel<Mainloop<Mma, T>>>; run(kernel, out); }\n"
)


@pytest.mark.parametrize("pointer", ["char* smem", "char *smem", "unsigned char* smem", "uint8_t* smem"])
def test_whether_the_shared_memory_of_a_call_operator_fits_is_asked(tmp_path: Path, pointer: str) -> None:
    operator = OPERATOR.replace("char* smem", pointer).replace(
        "    auto tA", "    auto& storage = *reinterpret_cast<SharedStorage*>(smem);\n    auto tA"
    )
    operator = operator.replace("  struct Params", "  struct SharedStorage { char bytes[64]; };\n  struct Params")
    text = ported(tmp_path, f"{HEAD}using T = {TILE[:-2]};\n{METHOD}{operator}{LAUNCH}")
    assert "static_assert(porter::SharedBytes<sizeof(SharedStorage) + sizeof(tmem_shared), 232448>::kFit);" in text


def test_the_struct_of_a_call_operators_own_class_takes_mbarriers_for_as_many_warpgroups_as_there_may_be(
    tmp_path: Path,
) -> None:
    """Its size is known where the class is instantiated."""
    operator = OPERATOR.replace("    auto tA", "    auto& s = *reinterpret_cast<SharedStorage*>(smem);\n    auto tA")
    operator = operator.replace("  struct Params", "  struct SharedStorage { char bytes[64]; };\n  struct Params")
    other = "struct Scheduler {\n  struct SharedStorage {\n    int tile;\n  };\n};\n"
    source = f"{HEAD}using T = {TILE[:-2]};\n{other}{METHOD}{operator}{LAUNCH}"
    text = ported(tmp_path, source, PortOptions(placement=Placement(storage="SharedStorage")))
    assert "struct SharedStorage { char bytes[64]; porter::Slots<4, 2> tmem_shared; };" in text
    lines = [
        "auto& tmem_shared = "
        "reinterpret_cast<porter::Slots<warpgroups, 2>&>(reinterpret_cast<SharedStorage*>(smem)->tmem_shared);",
        "static_assert(warpgroups <= 4, ",
        "static_assert(porter::SharedBytes<sizeof(SharedStorage), 232448>::kFit);",
    ]
    places = [text.index(line) for line in lines]
    assert places == sorted(places)
    assert "__shared__ porter" not in text


def test_a_call_operator_is_a_kernel_where_an_entry_runs_it(tmp_path: Path) -> None:
    text = ported(tmp_path, f"{HEAD}using T = {TILE[:-2]};\n{METHOD}{OPERATOR}{LAUNCH}")
    lines = [
        "constexpr int warpgroups = (MaxThreadsPerBlock + 127) / 128 - 1;",
        "constexpr int accumulator_columns = decltype(Loop::template run_columns<warpgroups>())::value;",
        "const porter::Tmem<accumulator_columns + operand_columns, warpgroups, 2, 1> tmem(tmem_shared);",
        "auto tc = tmem.warpgroup(threadIdx.x / 128 - 1);",
        "if (warp_group_idx == 0) {",
    ]
    places = [text.index(line) for line in lines]
    assert places == sorted(places)
    assert "loop.run(tc, tA, tB, params.out);" in text


@pytest.mark.parametrize(
    ("changed", "to"),
    [
        # nobody runs it; it is somebody else's entry; its class has no block size
        (LAUNCH, ""),
        ("cutlass::device_kernel", "house::device_kernel"),
        ("static constexpr int MaxThreadsPerBlock", "static constexpr int Threads"),
    ],
)
def test_other_call_operators_are_no_kernels(tmp_path: Path, changed: str, to: str) -> None:
    text = f"{HEAD}using T = {TILE[:-2]};\n{METHOD}{OPERATOR}{LAUNCH}".replace(changed, to)
    assert "Tmem" not in port(tmp_path, text).files[str(tmp_path / "kernel.cu")].decode()


def test_what_calls_some_call_operator_is_not_taken_for_a_launch(tmp_path: Path) -> None:
    reduce = "template <class Op>\n__device__ float reduce(float a, Op& op) { return op(a, a); }\n"
    method = METHOD.replace("  for (int i", "    Sum<float> sum;\n    out[1] = reduce(acc(0), sum);\n  for (int i")
    text = ported(tmp_path, f"{HEAD}using T = {TILE[:-2]};\n{reduce}{OPERATOR}{method}{LAUNCH}")
    assert "float reduce(float a, Op& op)" in text
    assert "out[1] = reduce(acc(0), sum);" in text


@pytest.mark.parametrize(
    ("returned", "loaded"),
    [
        # registers of its own, a number
        ("decltype(make_tensor<float>(Shape<_2>{}))", False),
        ("float", False),
        # may name those of the accumulator
        ("auto", True),
        ("Pointer", True),
    ],
)
def test_what_a_function_returns_by_value_is_no_view(tmp_path: Path, returned: str, loaded: bool) -> None:
    row = f"""struct Pointer {{ float* p; }};
struct Softmax {{
  using Row = {returned};
  template <class C> __device__ Row get(C& acc) {{ return make(acc); }}
}};
"""
    body = f"{ACC}{BATCH}  Softmax softmax;\n  auto row = softmax.get(acc);\n{BATCH}  use(row, out);\n"
    text = ported(tmp_path, f"{HEAD}{row}{KERNEL}{body}}}\n")
    assert ("  porter::load(acc);\n  use(row, out);" in text) is loaded


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        # the choice of a constant: what is in registers is counted where it is taken
        (
            "conditional_return<kFlag>(tP, tS)",
            "if constexpr (kFlag) return porter::Int<porter::operand_columns_of<decltype(count)::value, decltype(",
        ),
        (
            "conditional_return<kFlag>(tP, tS)",
            "if constexpr (!kFlag) return porter::Int<porter::operand_columns_of<decltype(count)::value, decltype(tS)>",
        ),
        ("tP", "constexpr int operand_columns = porter::operand_columns_of<1, decltype("),
        # a view of it
        ("tP(_, _, 0)", "constexpr int operand_columns = porter::operand_columns_of<1, decltype("),
        # B of another MMA is a tensor of descriptors
        ("tB2", None),
    ],
)
def test_operands_from_registers_are_counted(tmp_path: Path, a: str, expected: str | None) -> None:
    body = f"""  auto thr = mma.get_slice(threadIdx.x);
  Tensor tP = make_tensor_like<half_t>(partition_fragment_C(mma, {TILE}));
  Tensor tS = thr.partition_fragment_A([&] {{ return tB; }}());
  Tensor tB2 = thr.partition_fragment_B([&] {{ return tB; }}());
{ACC}  multiply_all(mma, {a}, tB2, acc);
{STORE}"""
    callee = f"""template <class M, class A, class B, class C>
__device__ void multiply_all(M& mma, A const& tA, B const& tB, C& acc) {{
{BATCH}}}
"""
    text = ported(tmp_path, f"{REGISTERS}constexpr bool kFlag = true;\n{callee}{KERNEL}{body}}}\n")
    if expected is None:
        assert "operand_columns" not in text
    else:
        assert expected in text
        assert "tc.operand = tc.tmem + acc_columns;" in text


def test_conditions_around_a_call_are_kept(tmp_path: Path) -> None:
    body = f"""{ACC}  if constexpr (kFlag) {{
{BATCH}  }} else {{
  Tensor tS = mma.get_slice(threadIdx.x).partition_fragment_A([&] {{ return tA; }}());
{BATCH.replace("tA", "tS")}  }}
{STORE}"""
    text = ported(tmp_path, f"{BOTH}constexpr bool kFlag = true;\n{KERNEL}{body}}}\n")
    counted = "return porter::Int<porter::{}<decltype(count)::value, decltype({})>()>{{}};"
    assert f"if constexpr (kFlag) {counted.format('operand_columns_of', 'tA')}" in text
    assert f"if constexpr (!kFlag) {counted.format('no_operand_columns', 'mma')}" in text


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("  if constexpr (kFlag) { use(acc); }\n", "  if constexpr (kFlag) { porter::load(acc); use(acc); }\n"),
        (
            "  if constexpr (kFlag) {\n    use(acc);\n  }\n",
            "  if constexpr (kFlag) {\n    porter::load(acc);\n    use(acc);\n  }\n",
        ),
        # one that single threads may take is another matter
        ("  if (n) { use(acc); }\n", "  porter::load(acc);\n  if (n) { use(acc); }\n"),
        # registers are current where they were just used
        (
            "  use(acc);\n  if constexpr (kFlag) { use(acc); }\n",
            "  porter::load(acc);\n  use(acc);\n  if constexpr (kFlag) { use(acc); }\n",
        ),
    ],
)
def test_loads_stand_inside_of_constant_branches(tmp_path: Path, body: str, expected: str) -> None:
    text = ported(tmp_path, f"{HEAD}constexpr bool kFlag = true;\n{KERNEL}{ACC}{BATCH}{body}}}\n")
    assert expected in text
    assert text.count("porter::load") == 1


def test_a_load_does_not_count_for_a_lambda_that_is_run_later(tmp_path: Path) -> None:
    body = f"""{ACC}{BATCH}  use(acc);
  auto step = [&] {{
    use(acc);
{BATCH}  }};
  step();
  step();
"""
    text = ported(tmp_path, f"{HEAD}{KERNEL}{body}}}\n")
    assert "auto step = [&] {\n    porter::load(acc);\n    use(acc);" in text


def test_template_parameters_are_no_compute_capabilities(tmp_path: Path) -> None:
    host = """template <int Arch>
void run(int arch) {
  static constexpr bool kCluster = Arch == 90;
  if (arch == 90) launch<kCluster>();
}
"""
    text = ported(tmp_path, f"{HEAD}{KERNEL}{ACC}{BATCH}{STORE}}}\n{host}")
    assert "kCluster = Arch == 90;" in text
    assert "if (arch == 100)" in text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (function(ACC + BATCH + "  multiply(mma, tA, tB, out);\n"), "declares accumulators and calls itself"),
        (
            function(ACC.replace(TILE, "N{}") + BATCH, "multiply<T>(mma, tA, tB, out);").replace(
                "<class M, class A, class B>\n__device__", "<class... N, class M, class A, class B>\n__device__"
            ),
            "is a pack",
        ),
        (
            f"{HEAD}template <class T> struct S {{ __device__ void run(T* out); }};\n"
            "template <class U> __device__ void S<U>::run(U* out) {\n  Mma mma;\n"
            f"{ACC}{BATCH}}}\n{KERNEL}  S<float> s;\n  s.run(out);\n}}\n",
            "outside of its class",
        ),
        (
            f"{HEAD}#define RUN(m, a, b) multiply(m, a, b, out)\n{MULTIPLY}{ACC}{BATCH}}}\n"
            f"{KERNEL}  auto f = [=] {{ multiply(mma, tA, tB, out); }};\n  f();\n}}\n",
            "cannot hand on",
        ),
        (
            function(ACC.replace(TILE, "tile()") + BATCH, before="", head=HEAD).replace(
                "float* out) {\n", "float* out) {\n  auto tile = [&] { return out; };\n", 1
            ),
            "are not known",
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, why: str) -> None:
    assert why in refused(tmp_path, text)


def test_a_constant_of_the_template_is_handed_on_for_conditions(tmp_path: Path) -> None:
    body = """  Tensor tP = make_tensor_like<half_t>(partition_fragment_C(mma, Shape<_64, _64>{}));
  auto hidden = [&] { return tB; };
  Tensor tS = mma.get_slice(threadIdx.x).partition_fragment_A(hidden());
"""
    callee = f"""template <class M, class A, class B, class C>
__device__ void multiply_all(M& mma, A const& tA, B const& tB, C& acc) {{
{BATCH}}}
"""
    text = function(
        body + ACC + "  multiply_all(mma, conditional_return<kFlag>(tP, tS), tB, acc);\n",
        "multiply<true>(mma, tA, tB, out);",
        callee,
        BOTH,
    )
    text = text.replace(
        "<class M, class A, class B>\n__device__ void multiply(",
        "<bool kFlag, class M, class A, class B>\n__device__ void multiply(",
    )
    found = ported(tmp_path, text)
    assert "bool kFlag" in found.split("__device__ auto multiply_operand_columns()")[0].rsplit("template <", 1)[1]
    assert (
        "if constexpr (kFlag) return porter::Int<porter::operand_columns_of<decltype(count)::value, decltype(" in found
    )
    assert (
        "if constexpr (!kFlag) return porter::Int<porter::no_operand_columns<decltype(count)::value, decltype(" in found
    )


def test_what_a_macro_declares_has_no_name_beside_the_function(tmp_path: Path) -> None:
    macro = "#define OPERANDS Tensor tS = mma.get_slice(threadIdx.x).partition_fragment_A(tA);\n"
    body = "  OPERANDS;\n" + ACC + BATCH.replace("tA", "tS")
    text = ported(tmp_path, function(body, before=macro, head=BOTH))
    assert (
        "return porter::Int<porter::no_operand_columns<kWarpgroups, decltype(porter::declval<mma_type&>())>()>{};"
        in text
    )


@pytest.mark.parametrize("feature", ["TMA", "STSM", "CLUSTER"])
def test_guards_of_what_both_chips_have_stay(tmp_path: Path, feature: str) -> None:
    guarded = f"#if defined(CUTE_ARCH_{feature}_SM90_ENABLED)\n__device__ void copy_out();\n#endif\n"
    assert guarded in ported(tmp_path, f"{HEAD}{guarded}{KERNEL}{ACC}{BATCH}{STORE}}}\n")
