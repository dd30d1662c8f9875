# SPDX-License-Identifier: Apache-2.0
"""Which warpgroups run MMAs, and where an accumulator is loaded when batches overlap or lie in branches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kernels import LOOP, STORE, kernel, port_text, ported, refused

from porter.diagnostics import Code

GEMM = "float acc[8] = {0};\n" + LOOP + STORE
FILL = "if (threadIdx.x == 0) out[0] = 0.f;"


def _warpgroups(tmp_path: Path, body: str, bounds: str, before: str = "") -> tuple[int, str]:
    """(first warpgroup, count) as the port writes them."""
    text = ported(tmp_path, kernel(body, bounds=f"__launch_bounds__({bounds})", before=before))
    count = re.search(r"Tmem<[^>]*?, ([^>]*?)> tmem", text)
    first = re.search(r"tmem\.warpgroup\(.*? - (\d+)\)", text)
    assert count is not None
    return int(first[1]) if first else 0, count[1]


UNIFORM = "__device__ int uniform(int x) { return __shfl_sync(0xffffffff, x, 0); }\n"


@pytest.mark.parametrize(
    ("body", "bounds", "expected"),
    [
        (GEMM, "256", (0, "2")),
        (f"int wg = threadIdx.x / 128;\nif (wg == 0) {{ {FILL} }} else {{ {GEMM} }}", "384", (1, "2")),
        (f"int wg = threadIdx.x / 128;\nif (wg == 0) {{ {FILL} return; }}\n{GEMM}", "384", (1, "2")),
        # who comes back from the branch runs the MMAs too
        (f"int wg = threadIdx.x / 128;\nif (wg == 0) {{ {FILL} }}\n{GEMM}", "384", (0, "3")),
        (f"const int tid = threadIdx.x;\nconst int warp = uniform(tid / 32);\n"
         f"if (warp <= 3) {{ {FILL} }}\nif (warp >= 4 && warp <= 11) {{ {GEMM} }}", "512", (1, "2")),
        (f"int warp = threadIdx.x >> 5;\nif (warp == 8) {{ {FILL} }} else {{ {GEMM} }}", "288", (0, "2")),
        (f"bool producer = threadIdx.x / 128 == 2;\nif (!producer) {{ {GEMM} }}", "384", (0, "2")),
        (f"if (threadIdx.x >= 256) {{ {FILL} return; }}\n{GEMM}", "384", (0, "2")),
        (f"if (threadIdx.x < 128) return;\n{GEMM}", "384", (1, "2")),
        (f"while (steps-- > 0) {{ if (threadIdx.x < 128) {{ {FILL} }} else {{ {GEMM} }} }}", "384", (1, "2")),
        # known only at run time, or not warpgroups: everybody gets Tensor Memory
        (f"if (steps == 0) return;\n{GEMM}", "256", (0, "2")),
        # the only one is the first, whichever it is
        (f"if (threadIdx.x / 32 == 0) {{ {FILL} return; }}\n{GEMM}", "256", (0, "1")),
        (f"int wg = threadIdx.x / 128;\nif (wg) {{ {GEMM} }}", "kThreads", (1, "2")),
    ],
)  # fmt: skip
def test_warpgroups_that_run_mmas(tmp_path: Path, body: str, bounds: str, expected: tuple[int, str]) -> None:
    assert _warpgroups(tmp_path, body, bounds, UNIFORM + "constexpr int kThreads = 384;\n") == expected


SHFL = "__device__ int first(int x) { return __shfl_sync(0xffffffff, x, 0); }\n"
GROUP = "__device__ __forceinline__ int my_place() { return first(threadIdx.x / 128); }\n"


@pytest.mark.parametrize(
    ("index", "before", "expected"),
    [
        # the next one's, the previous one's: which warpgroup has which is not known
        ("get_prev_consumer_warp_group_idx()", "", (0, "3")),
        ("prev_warp_group_idx()", "__device__ int prev_warp_group_idx();\n", (0, "3")),
        ("other::canonical_warp_group_idx()", "", (0, "3")),
        ("canonical_warp_group_idx()", "__device__ int canonical_warp_group_idx();\n", (0, "3")),
        ("canonical_warp_group_idx()", "using namespace other;\n", (0, "3")),
        ("state.warp_group_idx()", "struct State { __device__ int warp_group_idx(); };\n__device__ State state;\n",
         (0, "3")),
        ("warp_group_idx_of_tile()", "__device__ int warp_group_idx_of_tile() { return blockIdx.x % 3; }\n", (0, "3")),
        ("threadIdx.x / other::warp_group_stride", "", (0, "3")),
        ("threadIdx.x / other::kGroup", "constexpr int kGroup = 128;\n", (0, "3")),
        ("broadcast_from_next(threadIdx.x / 128)", "", (0, "3")),
        ("uniform_or_last(threadIdx.x / 128)",
         "__device__ int uniform_or_last(int x) { return __shfl_sync(0xffffffff, x, 0) == 1 ? 0 : 2; }\n", (0, "3")),
        ("next_warp_group_idx()", "__device__ int next_warp_group_idx() { return (threadIdx.x / 128 + 1) % 3; }\n",
         (0, "2")),
        # warpgroup 1 leaves, and those that go on do not stand together
        ("prev_warp_group_idx()",
         "__device__ int prev_warp_group_idx() {\n  int own = threadIdx.x / 128;\n  if (own == 0) return 2;\n"
         "  return own - 1;\n}\n", (0, "3")),
        # facts
        ("cutlass::canonical_warp_group_idx()", "", (1, "2")),
        ("canonical_warp_group_idx()", "using namespace cutlass;\n", (1, "2")),
        ("canonical_warp_group_idx()", "using cutlass::canonical_warp_group_idx;\n", (1, "2")),
        ("ct::canonical_warp_group_idx()", "namespace ct = cutlass;\n", (1, "2")),
        ("threadIdx.x / cutlass::NumThreadsPerWarpGroup", "", (1, "2")),
        ("threadIdx.x / own::kGroup", "namespace own { constexpr int kGroup = 128; }\n", (1, "2")),
        ("threadIdx.x / ::kGroup", "constexpr int kGroup = 128;\n", (1, "2")),
        ("threadIdx.x / Sizes::kGroup", "struct Sizes { static constexpr int kGroup = 128; };\n", (1, "2")),
        ("cutlass::canonical_warp_idx_sync() / 4", "", (1, "2")),
        ("cutlass::canonical_warp_idx() / cutlass::NumWarpsPerWarpGroup", "", (1, "2")),
        ("int(threadIdx.x) / (warpSize * 4)", "", (1, "2")),
        ("my_place()", SHFL + GROUP, (1, "2")),
        ("ops::my_place()", SHFL + "namespace ops {\n" + GROUP + "}\n", (1, "2")),
        ("static_cast<int>(first(threadIdx.x >> 7))", SHFL, (1, "2")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("named", [False, True])
def test_an_index_is_what_is_known_and_no_name(
    tmp_path: Path, index: str, before: str, expected: tuple[int, str], named: bool
) -> None:
    """Who leaves where the index is 0; on `named` through a variable."""
    leave = (
        f"int warp_group_idx = {index};\nif (warp_group_idx == 0) return;" if named else f"if ({index} == 0) return;"
    )
    assert _warpgroups(tmp_path, f"{leave}\n{GEMM}", "384", before) == expected


@pytest.mark.parametrize(
    "changed",
    [
        "group = (group + 1) % 3;",
        "group ^= 1;",
        "++group;",
        "int& other = group; other = 2;",
        "int* other = &group; *other = 2;",
        "change(group);",
        "hidden(group);",
        "hidden::change(group);",
        'asm volatile("mov.u32 %0, 2;" : "=r"(group));',
        "auto step = [&] { group = 2; }; step();",
        "MOVE;",
        "ASSIGN(group);",
    ],
)
def test_an_index_that_changes_is_none(tmp_path: Path, changed: str) -> None:
    before = "__device__ void change(int& x) { x = 2; }\n#define MOVE group = 2\n#define ASSIGN(x) x = 2\n"
    body = f"int group = threadIdx.x / 128;\n{changed}\nif (group == 0) return;\n{GEMM}"
    assert _warpgroups(tmp_path, body, "384", before) == (0, "3")


@pytest.mark.parametrize(
    "kept", ["out[0] = group;", "read(group);", "int copy = group;", "out[group] = 1.f;", "float x(group);", ""]
)
def test_an_index_that_is_read_is_one(tmp_path: Path, kept: str) -> None:
    before = "__device__ int read(int x) { return x; }\n"
    body = f"int group = threadIdx.x / 128;\n{kept}\nif (group == 0) return;\n{GEMM}"
    assert _warpgroups(tmp_path, body, "384", before) == (1, "2")


def test_threads_of_a_block_of_two_dimensions_have_no_index_of_their_own(tmp_path: Path) -> None:
    body = f"if (threadIdx.x / 128 == 0 && threadIdx.y < 3) return;\n{GEMM}"
    assert _warpgroups(tmp_path, body, "384") == (0, "3")
    body = f"out[threadIdx.y] = 0.f;\nif (threadIdx.x / 128 == 0) return;\n{GEMM}"
    assert _warpgroups(tmp_path, body, "384") == (0, "3")


def test_an_open_ended_role_counts_from_the_block_size(tmp_path: Path) -> None:
    body = f"int wg = threadIdx.x / 128;\nif (wg == 0) {{ {FILL} return; }}\n{GEMM}"
    text = kernel(body, bounds="__launch_bounds__(kThreads)").replace(
        "__global__", "template <int kThreads>\n__global__"
    )
    assert "(kThreads + 127) / 128 - 1> tmem" in ported(tmp_path, text)


def test_a_block_size_that_a_template_of_the_parameters_gives(tmp_path: Path) -> None:
    config = "template <int M> struct Config { static constexpr int kThreads = 128 * (M / 64 + 1); };\n"
    body = f"int wg = threadIdx.x / 128;\nif (wg == 0) {{ {FILL} return; }}\n{GEMM}"
    text = kernel(body, bounds="__launch_bounds__(Config<M>::kThreads, 1)", before=config)
    text = text.replace("__global__", "template <int M>\n__global__")
    result = port_text(tmp_path, text)
    assert Code.WARPGROUPS_UNKNOWN not in {d.code for d in result.diagnostics}
    assert "Shared<(Config<M>::kThreads + 127) / 128 - 1> tmem_shared" in result.files[result.sources.root].decode()


@pytest.mark.parametrize("registers", [False, True])
def test_an_unknown_block_size_sets_aside_what_tensor_memory_has_room_for(tmp_path: Path, registers: bool) -> None:
    """The message, the plan and the port say the same; columns for operands from registers count too."""
    n = 128 if registers else 256
    text = kernel(f"float acc[{n // 2}] = {{0}};\n" + LOOP + STORE, n=n, bounds="")
    if registers:
        text = text.replace("uint64_t b) {\n    asm", "uint64_t b) {\n    uint32_t x = a;\n    asm")
        text = text.replace(", %64, %65, 1, 1, 1, 0, 0;", ", {%64, %64, %64, %64}, %65, 1, 1, 1, 0;")
        text = text.replace('"l"(a), "l"(b)', '"r"(x), "l"(b)')
    result = port_text(tmp_path, text)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    said = next(d for d in result.diagnostics if d.code is Code.WARPGROUPS_UNKNOWN)
    assert "room for 4 warpgroups" in said.message
    assert "Shared<4> tmem_shared" in result.files[result.sources.root].decode()
    (plan,) = result.plans
    assert plan.warpgroups == "4"
    assert plan.columns == ("192" if registers else "256")


def _overlapped(pending: int) -> str:
    """Scores of one accumulator are read while a batch of the other may still run."""
    return kernel(
        f"""
    float scores[8] = {{0}};
    float acc[8] = {{0}};
    for (int k = 0; k < steps; ++k) {{
        arrive();
        mma(scores, a, b);
        commit();
        mma(acc, a + k, b + k);
        commit();
        wait<{pending}>();
        out[k] = scores[0] + scores[1];
    }}
    wait<0>();
"""
        + STORE
    )


def test_an_older_batch_is_over_when_newer_ones_may_run(tmp_path: Path) -> None:
    text = ported(tmp_path, _overlapped(1))
    assert text.index("wait<1>(", text.index("__global__")) < text.index("load(scores")


def test_a_wait_that_leaves_the_batch_pending_is_no_wait(tmp_path: Path) -> None:
    assert any("no wait covers" in d for d in refused(tmp_path, _overlapped(2)))


def test_a_read_in_a_branch_finds_the_mma_of_the_branch_before(tmp_path: Path) -> None:
    body = f"""
    float acc[8] = {{0}};
    if (steps > 0) {{ arrive(); mma(acc, a, b); commit(); wait<0>(); }}
    if (steps > 1) {{
        for (int i = 0; i < 8; ++i) acc[i] *= 2.f;
        arrive(); mma(acc, a, b); commit(); wait<0>();
    }}
{STORE}"""
    text = ported(tmp_path, kernel(body))
    main = text[text.index("__global__") :]
    assert main.index("steps > 0") < main.index("load(acc") < main.index("*= 2.f") < main.index("store(acc")


def test_a_lambda_that_sees_everything_is_part_of_its_kernel(tmp_path: Path) -> None:
    """Promotion of partial sums in a lambda that is handed to a helper which calls it for each K block."""
    before = "template <typename F> __device__ void each(int n, const F& f) { for (int i = 0; i < n; ++i) f(i); }\n"
    body = f"""
    float acc[8], total[8] = {{0}};
    each(steps, [&](int k) {{
        arrive();
        mma(acc, a + k, b + k);
        commit();
        wait<0>();
        for (int i = 0; i < 8; ++i) total[i] += acc[i];
    }});
{STORE.replace("acc[i]", "total[i]")}"""
    text = ported(tmp_path, kernel(body, before=before))
    inner = text[text.index("[&](int k)") :]
    assert inner.index("wait<0>") < inner.index("load(acc") < inner.index("total[i] +=") < inner.index("});")


def test_a_lambda_that_sees_a_part_is_not(tmp_path: Path) -> None:
    body = """
    float acc[8];
    auto promote = [&acc, a, b, out](int k) {
        arrive();
        mma(acc, a + k, b + k);
        commit();
        wait<0>();
        out[k] += acc[0];
    };
    promote(0);
"""
    assert any("no single load" in d for d in refused(tmp_path, kernel(body)))
