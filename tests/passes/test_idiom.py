# SPDX-License-Identifier: Apache-2.0
"""Kernels with a TiledMMA in SM100's own words, each construct written in several ways; and what is left to the compat
style, with the fact that is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from idiom_kernels import (
    ACCUMULATOR,
    ATOM,
    EMPTY,
    FULL,
    LAUNCH,
    LOOP,
    MMA,
    RESULTS,
    SLICE,
    STEPS,
    STORAGE,
    SYNC,
    TEXT,
    TYPES,
    ZERO,
    changed,
    idiomatic,
    left,
    port,
)

from porter.diagnostics import Code
from porter.lang.sources import load_sources
from porter.passes.idiom.types import answering
from porter.passes.port import PortOptions, port_sources

SIZE, CONFIGURED = "sizeof(Traits<128, 128, 4>::Storage)", "k<128, 128, 4><<<1, 256,"
F16 = "SM100_MMA_F16BF16_SS<Element, Element, float, BM, BN, UMMA::Major::K, UMMA::Major::K>"
SELECTOR = "GMMA::ss_op_selector<Element, Element, float, Shape<_128, Int<BN>, _64>, GMMA::Major::K, GMMA::Major::K>()"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (MMA, f"{F16}{{}}));"),
        (MMA.replace("SS<", "SS <").replace("make_tiled_mma(", "cute::make_tiled_mma( "), f"{F16}{{}}));"),
        (MMA.replace("{}))", "{}, Layout<Shape<Int<BM / 64>, _1, _1>>{}))"), f"{F16}{{}}));"),
        (MMA.replace("SM90_64", "cute::SM90_64"), f"{F16}{{}}));"),
        (MMA.replace("SM90_64", "SM90::GMMA::MMA_64"), f"{F16}{{}}));"),
        (f"    using Op = {ATOM};\n    using Mma = decltype(make_tiled_mma(Op{{}}));\n", f"using Op = {F16};"),
        (
            f"    using Mma = TiledMMA<MMA_Atom<{ATOM}>, Layout<Shape<_2, _1, _1>>>;\n",
            f"using Mma = TiledMMA<MMA_Atom<{F16}>, Layout<Shape<_1, _1, _1>>>;",
        ),
        (MMA.replace(f"{ATOM}{{}}", SELECTOR), f"{F16}{{}}));"),
        (MMA.replace("GMMA::Major::K>", "GMMA::Major::MN>"), "UMMA::Major::K, UMMA::Major::MN>{}));"),
        (
            MMA.replace("K>{}", "K, GMMA::ScaleIn::Neg, GMMA::ScaleIn::One>{}"),
            "K, UMMA::ScaleIn::Neg, UMMA::ScaleIn::One>",
        ),
        (MMA.replace("F32F16F16", "F32BF16BF16"), "SM100_MMA_F16BF16_SS<bfloat16_t, bfloat16_t, float, BM, BN,"),
        (MMA.replace("F32F16F16", "F16F16F16"), "SM100_MMA_F16BF16_SS<Element, Element, Element, BM, BN,"),
    ],
)
def test_atoms(tmp_path: Path, written: str, expected: str) -> None:
    text = idiomatic(tmp_path, changed((MMA, written)))
    assert expected in " ".join(text.split()).replace("( ", "(").replace("< ", "<")
    assert "SM90_64" not in text
    assert "GMMA::Major" not in text.replace("UMMA", "")


def test_atoms_of_other_types(tmp_path: Path) -> None:
    tf32 = MMA.replace("64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>", "64x128x8_F32TF32TF32_SS_TN<>")
    text = idiomatic(tmp_path, changed((MMA, tf32)), (128, 128, 128, 4, 32))
    assert "SM100_MMA_TF32_SS<tfloat32_t, tfloat32_t, float, BM, BN, UMMA::Major::K, UMMA::Major::K>" in text
    fp8 = MMA.replace("64x128x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>", "64x128x32_F32E4M3E5M2_SS_TN<>")
    text = idiomatic(tmp_path, changed((MMA, fp8)), (128, 128, 128, 4, 8))
    assert "SM100_MMA_F8F6F4_SS, float_e4m3_t, float_e5m2_t, float, Int<BM>, Int<BN>," in text


@pytest.mark.parametrize(
    ("written", "missing"),
    [
        (MMA.replace("_SS<", "_RS<"), "A from registers that are like a part of A in memory"),
        (MMA.replace(f"{ATOM}{{}}", "some_atom()"), "an atom of SM90 in"),
        (MMA + "    using Other = SM90_64x64x16_F32F16F16_SS<GMMA::Major::K, GMMA::Major::K>;\n", "stands elsewhere"),
        (MMA.replace("GMMA::Major::K>", "kMajor>"), "majors of operands by their names"),
    ],
)
def test_atoms_that_are_left(tmp_path: Path, written: str, missing: str) -> None:
    assert missing in left(tmp_path, changed((MMA, written)))


@pytest.mark.parametrize(
    ("types", "missing"),
    [
        ((64, 128, 128, 4, 16), "rows of a tile in MMAs of 128"),
        ((192, 128, 128, 4, 16), "rows of a tile in MMAs of 128"),
        ((128, 512, 128, 4, 16), "at most 256 columns"),
        ((128, 120, 128, 4, 16), "in steps of 16"),
        ((256, 128, 128, 4, 16), "128 rows for one warpgroup"),
        ((384, 128, 256, 4, 16), "warpgroups"),
    ],
)
def test_tiles_that_are_left(tmp_path: Path, types: tuple[int, ...], missing: str) -> None:
    assert missing in left(tmp_path, TEXT, types)


LAG = """        warpgroup_commit_batch();
        if (tile > 0) {
            warpgroup_wait<1>();
            pipeline.consumer_release(release);
            ++release;
        }
"""


def test_a_loop_that_multiplies_alone_is_one_branch(tmp_path: Path) -> None:
    text = idiomatic(tmp_path, TEXT)
    assert (
        """    if (warp == 4) {
        mma.accumulate_ = UMMA::ScaleOut::Zero;
        for (int tile = 0; tile < tiles; ++tile) {
            Full::wait(&storage.full[tile % STAGES], tile / STAGES % 2);
            CUTE_UNROLL
            for (int k = 0; k < size<2>(tCrA); ++k) {
                gemm(mma, tCrA(_, _, k, tile % STAGES), tCrB(_, _, k, tile % STAGES), tCtC);
                mma.accumulate_ = UMMA::ScaleOut::One;
            }
            cutlass::arch::umma_arrive(&storage.empty[tile % STAGES]);
        }
        cutlass::arch::umma_arrive(&storage.accumulator_full);
    }
    wait_barrier(storage.accumulator_full, 0);
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    copy(t2r, thread_t2r.partition_S(tCtC), tCrC);
    cutlass::arch::fence_view_async_tmem_load();
"""
        in text
    )
    assert "Empty::init(&storage.empty[0], 1);" in text


COPIES = "        copy(tensors.next(tile), tensors.a());\n"


@pytest.mark.parametrize("head", ["for (int tile = 0; tile < tiles; ++tile)", "while (tile < tiles)"])
def test_the_wait_for_operands_stands_in_the_branch(tmp_path: Path, head: str) -> None:
    """Warps that wait for a phase and do not arrive may miss the next one."""
    loop = LOOP.replace("for (int tile = 0; tile < tiles; ++tile)", head).replace(
        EMPTY, EMPTY + COPIES + "        ++tile;\n"
    )
    text = idiomatic(tmp_path, changed((LOOP, f"    int tile = 0;\n{loop}")))
    branch = text[text.index("        if (warp == 4) {\n") :]
    assert branch.index("Full::wait") < branch.index("        }\n        copy(tensors")
    assert text.count("Full::wait") == 1
    assert "    if (warp == 4) cutlass::arch::umma_arrive(&storage.accumulator_full);\n    wait_barrier(" in text


def test_a_wait_stays_where_no_stage_is_given_back(tmp_path: Path) -> None:
    text = idiomatic(tmp_path, changed((EMPTY, COPIES)))
    assert (
        "            cutlass::arch::umma_arrive(&storage.accumulator_full);\n        }\n        wait_barrier(" in text
    )
    assert "wait_barrier(storage.accumulator_full, accumulator_phase);\n        accumulator_phase ^= 1;\n" in text
    assert text.count("umma_arrive(&storage.accumulator_full)") == 1


@pytest.mark.parametrize(
    "statement",
    [
        "        gemm(mma, tCrA(_, _, _, tile % STAGES), tCrB(_, _, _, tile % STAGES), tCrC);\n",
        "        cute::gemm(mma, tCrA(_,_,_,tile % STAGES), tCrB(_,_,_,tile % STAGES), tCrC);  // all of k\n",
        "        gemm(mma, tCrA, tCrB, tCrC);\n",
    ],
)
@pytest.mark.parametrize("zero", [ZERO, "    clear(tCrC);\n", "    cute::clear(tCrC);\n    clear(tCrC);\n"])
def test_only_the_first_mma_over_all_of_k_clears(tmp_path: Path, statement: str, zero: str) -> None:
    text = idiomatic(tmp_path, changed((ZERO, zero), (STEPS, statement)))
    assert "for (int k_block = 0; k_block < size<2>(tCrA); ++k_block) {" in text
    assert text.index("ScaleOut::Zero;") < text.index("k_block") < text.index("mma.accumulate_ = UMMA::ScaleOut::One;")
    assert "clear(" not in text
    assert text.count("ScaleOut::Zero") == 1


def test_mmas_behind_a_clear_add(tmp_path: Path) -> None:
    steps = STEPS.replace("            mma.accumulate_ = GMMA::ScaleOut::One;\n", "")
    text = idiomatic(tmp_path, changed((ZERO, "    clear(tCrC);\n"), (STEPS, steps)))
    assert "tCtC);\n                mma.accumulate_ = UMMA::ScaleOut::One;\n" in text


HELPER = """template <class Storage, class Mma, class A, class B, class Sums>
CUTE_DEVICE void multiply(Storage& storage, Mma& mma, A const& tCrA, B const& tCrB, Sums& sums, int tiles) {
    using Full = cutlass::arch::ClusterTransactionBarrier;
    using Empty = cutlass::arch::ClusterBarrier;
    constexpr int STAGES = 3;
"""


def helped(body: str) -> str:
    function = f"{HELPER}{body.replace('tCrC', 'sums')}}}\n"
    text = changed((LOOP, "    multiply(storage, mma, tCrA, tCrB, tCrC, tiles);\n"))
    at = text.index("template <int BM, int BN, int STAGES, class Tensors")
    return text[:at] + function + text[at:]


def test_a_function_that_multiplies_is_called_by_one_warp(tmp_path: Path) -> None:
    text = idiomatic(tmp_path, helped(LOOP))
    assert "    if (warp == 4) {\n        multiply(storage, mma, tCrA, tCrB, tCtC, tiles);\n" in text
    assert "Sums& tCtC, int tiles) {" in text
    assert (
        text.index("multiply(storage")
        < text.index("umma_arrive(&storage.accumulator_full)")
        < text.index("wait_barrier")
    )


@pytest.mark.parametrize(
    "changes",
    [
        ((EMPTY, f"        most += tCrC(0);\n{EMPTY}"),),
        ((FULL, f"{ZERO}{FULL}"), (EMPTY, f"        axpby(2.f, tCrC, 0.f, tCrC);\n{EMPTY}")),
    ],
)
def test_sums_are_used_in_the_loop_for_their_values_or_where_the_next_mma_clears(
    tmp_path: Path, changes: tuple[tuple[str, str], ...]
) -> None:
    text = idiomatic(tmp_path, changed(*changes))
    assert text.index("wait_barrier(") < text.index("copy(t2r,") < text.index(changes[-1][1].splitlines()[0].strip())


NAMED = (
    "        const auto step = [&](int k) { gemm(mma, tCrA(_, _, k, 0), tCrB(_, _, k, 0), tCrC); };\n        step(0);\n"
)
STORED = "auto& storage = *reinterpret_cast<typename Traits<BM, BN, STAGES>::Storage*>(memory);"
KIND = "typename Traits<BM, BN, STAGES>::Storage"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (helped(LOOP.replace(EMPTY, EMPTY + "        sums(0) *= 2;\n")), "does nothing but multiply"),
        (helped(LOOP + "    __syncthreads();\n"), "does nothing but multiply"),
        (changed((STEPS, NAMED)), ""),
        (
            changed(
                (ACCUMULATOR, ACCUMULATOR + ACCUMULATOR.replace("tCrC", "other")),
                (STEPS, STEPS + STEPS.replace("tCrC", "other")),
            ),
            "one accumulator",
        ),
        (changed((RESULTS, "    tCrC(0) += __shfl_xor_sync(~0u, tCrC(0), 1);\n" + RESULTS)), "which lane has them"),
        (changed((RESULTS, "    if (threadIdx.x % 4 == 0) tCrC(0) = 0;\n" + RESULTS)), "which lane has them"),
        (changed((ZERO, "    copy(thread_mma.partition_C(gC), tCrC);\n")), "used behind MMAs alone"),
        (changed((FULL, f"{FULL}        tCrC(0) = -tCrC(0);\n")), "used behind MMAs alone"),
        (changed((FULL, f"{FULL}        if (tile > 1) {{ turn(tCrC); }}\n")), "used behind MMAs alone"),
        (
            changed((FULL, f"{FULL}        auto rows = make_tensor(tCrC.data(), tCrC.layout());\n")),
            "used behind MMAs alone",
        ),
        (changed((EMPTY, f"        axpby(2.f, tCrC, 0.f, tCrC);\n{EMPTY}")), "used behind MMAs alone"),
        (changed((EMPTY, f"        ++tCrC(0);\n{EMPTY}")), "used behind MMAs alone"),
        (
            changed((LOOP, f"    for (int chunk = 0; chunk < 2; ++chunk) {{\n{LOOP}    scale(tCrC);\n    }}\n")),
            "used behind MMAs alone",
        ),
        (changed((EMPTY, f"        most = max(most, tCrC(0));\n{EMPTY}")), "used behind MMAs alone"),
        (changed((RESULTS, "    print(mma);\n" + RESULTS)), "what is done with the tiled MMA"),
        (changed((RESULTS, "    copy(tCrC, thread_mma.retile_C(gC));\n")), "`retile_C` of a part of the tiled MMA"),
        (changed(("256) k(", "256) k(int x, ")).replace("threadIdx.x - 128", "threadIdx.y"), "blocks of one dimension"),
    ],
)
def test_kernels_that_are_left(tmp_path: Path, text: str, missing: str) -> None:
    assert missing in left(tmp_path, text)


def answered(tmp_path: Path, text: str, ask: object) -> tuple[str, str]:
    """What is missing, and the port."""
    path = tmp_path / "kernel.cu"
    path.write_text(text)
    result = port_sources(load_sources(path), PortOptions(types=ask))  # type: ignore[arg-type]
    said = [str(d.values["what"]) for d in result.diagnostics if d.code is Code.IDIOM_LEFT]
    return "".join(said), result.files[str(path)].decode()


def test_without_an_instantiation_nothing_is_written(tmp_path: Path) -> None:
    for said, missing in (([""], "an instantiation"), ("no CUDA compiler was found", "no CUDA compiler was found")):
        what, text = answered(tmp_path, TEXT, lambda *_, said=said: said)
        assert missing in what
        assert "SM100_MMA" not in text


@pytest.mark.parametrize(("width", "columns"), [(256, "BN"), (64, "BN"), (96, "128")])
def test_one_text_is_for_instantiations_of_several_widths(tmp_path: Path, width: int, columns: str) -> None:
    def two(*given: object) -> list[str]:
        return [*answering(*TYPES)(*given), *answering(128, width, 128, 4, 16)(*given)]  # type: ignore[arg-type]

    what, text = answered(tmp_path, TEXT, two)
    assert not what
    assert f"tmem.allocate({columns}, " in text
    assert "float, BM, BN, UMMA" in text
    numbers = changed(("Shape<Int<BM>, Int<BN>>", "Shape<_128, _128>"))
    assert "tiles differ" in answered(tmp_path, numbers, two)[0]


def test_instantiations_of_several_heights_are_left(tmp_path: Path) -> None:
    def two(*given: object) -> list[str]:
        return [*answering(*TYPES)(*given), *answering(256, 128, 256, 4, 16)(*given)]  # type: ignore[arg-type]

    assert "tiles differ" in answered(tmp_path, TEXT, two)[0]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (SLICE, "auto cta_mma = mma.get_slice(_0{});"),
        (SLICE.replace("get_slice", "get_thread_slice"), "auto cta_mma = mma.get_thread_slice(_0{});"),
        (SLICE.replace("auto thread_mma", "ThrMMA thread_mma"), "ThrMMA cta_mma = mma.get_slice(_0{});"),
        (SLICE.replace("threadIdx.x - 128", "int(threadIdx.x) % 128"), "auto cta_mma = mma.get_slice(_0{});"),
        (
            SLICE.replace("partition_fragment_A(tensors.a())", "make_fragment_A(thread_mma.partition_A(tensors.a()))"),
            "cta_mma.make_fragment_A(cta_mma.partition_A(tensors.a()))",
        ),
    ],
)
def test_parts_of_the_mma(tmp_path: Path, written: str, expected: str) -> None:
    text = idiomatic(tmp_path, changed((SLICE, written)))
    assert expected in text
    assert "thread_mma" not in text


@pytest.mark.parametrize(
    "results",
    [
        RESULTS,
        "    Tensor tCgC = thread_mma.partition_C(gC);\n    axpby(1.0f, tCrC, 0.0f, tCgC);\n",
        "    for (int i = 0; i < size(tCrC); ++i) thread_mma.partition_C(gC)(i) = tCrC(i);\n",
        "    auto out = make_fragment_like<half_t>(tCrC);\n    copy(out, thread_mma.partition_C(gC));\n",
    ],
)
@pytest.mark.parametrize(
    ("types", "part"),
    [
        (TYPES, "thread_t2r.partition_D(cta_mma.partition_C(gC))"),
        ((128, 128, 256, 4, 16), "thread_t2r.partition_D(local_tile(gC, Part{}, part))"),
        ((256, 128, 256, 4, 16), "thread_t2r.partition_D(local_tile(gC, Part{}, part))"),
    ],
)
def test_results_are_partitioned_as_the_copy_has_them(
    tmp_path: Path, results: str, types: tuple[int, ...], part: str
) -> None:
    bounds = ("__launch_bounds__(256)", f"__launch_bounds__({types[2] + 128})")
    text = idiomatic(tmp_path, changed((RESULTS, results), bounds), types)
    assert part in text
    tensor = "tCtC" if types == TYPES else "tCtC_part"
    assert f"copy(t2r, thread_t2r.partition_S({tensor}), tCrC);" in text


def test_parts_of_results_in_front_of_the_accumulator_move_behind_it(tmp_path: Path) -> None:
    early = "    Tensor tCgC = thread_mma.partition_C(gC);  // (MMA, MMA_M, MMA_N)\n"
    made = "    Tensor tCrC = thread_mma.make_fragment_C(tCgC);\n"
    text = idiomatic(
        tmp_path, changed((SLICE, SLICE + early), (ACCUMULATOR, made), (RESULTS, "    copy(tCrC, tCgC);\n"))
    )
    assert "    Tensor tCtC = cta_mma.make_fragment_C(cta_mma.partition_C(gC));\n" in text
    assert "    Tensor tCgC = thread_t2r.partition_D(cta_mma.partition_C(gC));  // (MMA, MMA_M, MMA_N)\n" in text
    assert "    Tensor tCrC = make_tensor<float>(shape(tCgC));\n" in text
    assert text.index("auto thread_t2r") < text.index("Tensor tCgC") < text.index("Tensor tCrC")


def test_names_in_use_are_not_taken(tmp_path: Path) -> None:
    text = idiomatic(
        tmp_path, changed((SYNC, "    int warp = 1, tmem = 2, t2r = 3, accumulator_full = 4, tCtC = 5;\n" + SYNC))
    )
    for name in ("warp2", "tmem2", "t2r2", "accumulator_full2", "tCtC2"):
        assert name in text


@pytest.mark.parametrize(
    "declared",
    ["const int w = cutlass::canonical_warp_idx_sync();", "int w = cutlass::canonical_warp_idx_sync();"],
)
def test_the_kernels_own_index_of_warps_is_used(tmp_path: Path, declared: str) -> None:
    text = idiomatic(tmp_path, changed((SYNC, f"    {declared}\n{SYNC}")))
    assert text.count("canonical_warp_idx_sync") == 1
    assert "if (w == 4) {" in text
    text = idiomatic(tmp_path, changed((SYNC, f"    {declared.removeprefix('const ')}\n    ++w;\n{SYNC}")))
    assert text.count("canonical_warp_idx_sync") == 2


@pytest.mark.parametrize(
    "meets",
    [
        "    __syncthreads();\n",
        "    cluster_sync();\n",
        "    cute::cluster_sync();\n",
        "    cluster_arrive();\n    cluster_wait();\n",
    ],
)
def test_columns_are_allocated_in_front_of_where_all_meet(tmp_path: Path, meets: str) -> None:
    text = idiomatic(tmp_path, changed((SYNC, meets)))
    assert f"tmem.allocate(BN, &storage.tmem_base);\n    }}\n{meets}" in text


def test_a_relaxed_cluster_barrier_publishes_nothing(tmp_path: Path) -> None:
    meets = "    cluster_arrive_relaxed();\n    cluster_wait();\n"
    assert f"{meets}    __syncthreads();\n" in idiomatic(tmp_path, changed((SYNC, meets)))


def test_the_address_is_read_behind_the_barrier_that_publishes_it(tmp_path: Path) -> None:
    """Also where the accumulator is declared in front of it."""
    meets = "    cluster_arrive_relaxed();\n    cluster_wait();\n"
    mma = "    typename Traits<BM, BN, STAGES>::Mma mma;\n"
    late = changed((mma, ""), (SLICE, ""), (ACCUMULATOR, ""), (SYNC, mma + SLICE + ACCUMULATOR + meets))
    text = idiomatic(tmp_path, late)
    assert f"{meets}    __syncthreads();\n    tCtC.data() = storage.tmem_base;\n" in text
    assert text.count("tCtC.data()") == 1


def test_without_a_meeting_the_port_adds_one(tmp_path: Path) -> None:
    text = idiomatic(tmp_path, changed((SYNC, "")))
    at = text.index("tmem.allocate(")
    assert text.index("__syncthreads();", at) < text.index("if (threadIdx.x < 128) return;")


@pytest.mark.parametrize(
    ("storage", "declared"),
    [
        (STORAGE, STORED),
        (STORAGE, "auto* storage = reinterpret_cast<typename Traits<BM, BN, STAGES>::Storage*>(memory);"),
        (STORAGE, f"{KIND}& storage = *({KIND}*)memory;"),
        (STORAGE, f"using S = {KIND};\n    S& storage = *reinterpret_cast<S*>(memory);"),
        (
            STORAGE.replace("Storage", "Shared"),
            "auto& storage = *reinterpret_cast<typename Traits<BM, BN, STAGES>::Shared*>(memory);",
        ),
    ],
)
def test_members_at_the_end_of_the_storage(tmp_path: Path, storage: str, declared: str) -> None:
    text = changed((STORAGE, storage), (STORED, declared))
    if "Shared" in storage:
        text = text.replace("::Storage)>>>", "::Shared)>>>")
    if "auto* storage" in declared:
        text = text.replace("storage.", "storage->")
    ported = idiomatic(tmp_path, text)
    assert (
        "        uint64_t empty[STAGES];\n        uint64_t accumulator_full;\n        uint32_t tmem_base;\n    };\n"
        in ported
    )
    access = "->" if "auto* storage" in declared else "."
    assert f"tCtC.data() = storage{access}tmem_base;" in ported


@pytest.mark.parametrize(
    "launch",
    [
        "",
        "k<128, 128, 4><<<1, 256, 66 * 1024>>>(tensors, gC, 8);",
        "k<128, 128, 4><<<1, 256, 4 * sizeof(half_t)>>>(tensors, gC, 8);",
        f"{LAUNCH}\n    k<128, 128, 4><<<1, 256, bytes>>>(tensors, gC, 8);",
        "const int bytes = 1024 + sizeof(Storage2);\n    k<128, 128, 4><<<1, 256, bytes>>>(tensors, gC, 8);",
    ],
)
def test_memory_of_its_own_where_launches_may_have_no_room(tmp_path: Path, launch: str) -> None:
    text = idiomatic(tmp_path, changed((LAUNCH, launch)))
    assert "        uint64_t empty[STAGES];\n    };\n" in text
    assert "    struct alignas(1024) AccumulatorStorage {" in text
    assert "tCtC.data() = accumulator_storage.tmem_base;" in text


@pytest.mark.parametrize(
    "launch",
    [
        f"const int bytes = int({SIZE});\n    {CONFIGURED} bytes>>>(tensors, gC, 8);",
        f"using S = Traits<128, 128, 4>::Storage;\n    {CONFIGURED} sizeof(S) + 1024>>>(tensors, gC, 8);",
    ],
)
def test_launches_that_ask_for_the_size_have_room(tmp_path: Path, launch: str) -> None:
    assert "tCtC.data() = storage.tmem_base;" in idiomatic(tmp_path, changed((LAUNCH, launch)))


def test_a_second_port_changes_nothing(tmp_path: Path) -> None:
    once = idiomatic(tmp_path, TEXT)
    result = port(tmp_path, once)
    assert result.files[str(tmp_path / "kernel.cu")].decode() == once
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]


@pytest.mark.parametrize(
    "form", ["size(mma)", "size(Mma{})", "decltype(size(mma))::value", "size(typename Traits<BM, BN, STAGES>::Mma{})"]
)
def test_the_size_of_the_mma_is_no_number_of_threads(tmp_path: Path, form: str) -> None:
    uses = f"    cutlass::arch::NamedBarrier::sync({form} + 128, 3);\n"
    count = ("Empty::init(&storage.empty[0], 128)", f"Empty::init(&storage.empty[0], {form})")
    text = idiomatic(tmp_path, changed((RESULTS, uses + RESULTS), count))
    assert "NamedBarrier::sync(128 + 128, 3);" in text
    assert "Empty::init(&storage.empty[0], 1);" in text, "that of a commit"


def test_types_may_stand_in_a_header_of_their_own(tmp_path: Path) -> None:
    """Of a file that has no functions, too, edits are made."""
    start = TEXT.index("template <int BM, int BN, int STAGES>\nstruct Traits")
    end = TEXT.index("\n};\n", start) + len("\n};\n")
    (tmp_path / "traits.h").write_text("#pragma once\n" + TEXT[start:end])
    result = port(tmp_path, TEXT[:start] + '#include "traits.h"\n' + TEXT[end:])
    header = result.files[str(tmp_path / "traits.h")].decode()
    assert "SM100_MMA_F16BF16_SS" in header
    assert "SM90_64x" not in header
    assert result.plans[0].mode == "W"


@pytest.mark.parametrize(
    ("comment", "is_listed"),
    [
        ("// One wgmma for each k.", True),
        ("/* Each warpgroup has\n   64 rows. */", True),
        ("// The m64 tile", True),
        ("// results", False),
        ("// a word like wgmmas", False),
    ],
)
def test_comments_that_speak_of_hopper_are_listed(tmp_path: Path, comment: str, is_listed: bool) -> None:
    head = "template <int BM, int BN, int STAGES, class"
    text = changed((head, f"{comment}\n{head}"))
    said = [d.values["lines"] for d in port(tmp_path, text).diagnostics if d.code is Code.IDIOM_COMMENTS]
    assert said == ([str(text.split(comment)[0].count("\n") + 1)] if is_listed else [])


def test_comments_of_what_goes_go(tmp_path: Path) -> None:
    wait = "        warpgroup_wait<0>();\n"
    text = idiomatic(tmp_path, changed((wait, f"\n        // wgmma is done\n{wait}\n")))
    assert "wgmma is done" not in text
    assert "\n\n\n" not in text


OTHER = """__global__ void other(uint64_t* empty) { {BODY} }
"""


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ("auto mma = make(); cutlass::arch::NamedBarrier::sync(size(mma), 1);", "in another function"),
        ("Pipeline pipeline(empty);", ""),
        ("cutlass::arch::ClusterBarrier::init(&empty[0], 128);", ""),
    ],
)
def test_what_another_kernel_has_of_the_name_stays(tmp_path: Path, body: str, missing: str) -> None:
    text = TEXT + OTHER.replace("{BODY}", body)
    if missing:
        assert missing in left(tmp_path, text)
    else:
        assert body in idiomatic(tmp_path, text)


RS = ATOM.replace("_SS<", "_RS<")
LOADS = """    auto thread_mma = mma.get_slice(threadIdx.x - 128);
    Tensor tCgA = thread_mma.partition_A(gA);
    Tensor tCrB = thread_mma.partition_fragment_B(tensors.b());
"""
FROM_REGISTERS = (
    (ATOM, RS),
    (SLICE, LOADS),
    (ACCUMULATOR, ACCUMULATOR + "    Tensor tCrA = make_fragment_like<half_t>(tCgA(_, _, _, 0));\n"),
    (STEPS, "        gemm(mma, tCrA, tCrB, tCrC);\n"),
    (FULL, "        copy(tCgA(_, _, _, tile), tCrA);\n"),
)


def test_a_from_registers_goes_to_tensor_memory_in_front_of_the_mmas(tmp_path: Path) -> None:
    text = idiomatic(tmp_path, changed(*FROM_REGISTERS), (*TYPES, 64))
    assert "SM100_MMA_F16BF16_TS<Element, Element, float, BM, BN," in " ".join(text.split())
    assert "tCtA.data() = storage.tmem_base + BN;" in text
    assert "tmem.allocate(256, " in text
    fence = 'asm volatile("tcgen05.fence::{}_thread_sync;" ::: "memory");'
    assert f"    {fence.format('before')}\n{SYNC}    {fence.format('after')}\n" in text
    order = [
        "copy(tCgA(tile), tCrA);",
        "copy(r2t, tCrA,",
        "fence_view_async_tmem_store",
        "NamedBarrier::sync",
        "gemm(mma, tCtA(",
    ]
    places = [text.index(one) for one in order]
    assert places == sorted(places)
    assert text.index("accumulator_phase ^= 1;") > places[-1], "threads wait before they store the next tile"


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ("copy(tCgA(_, _, _, tile), tCrA)", "copy(tCgA(_, _, 0, tile), tCrA)", "a tile of `tCgA` wherever it is used"),
        (
            "make_fragment_like<half_t>(tCgA(_, _, _, 0))",
            "thread_mma.partition_fragment_A(tensors.a())",
            "like a part of A",
        ),
        ("        warpgroup_wait<0>();\n", "", "ahead of what writes A again"),
    ],
)
def test_a_from_registers_that_is_left(tmp_path: Path, old: str, new: str, missing: str) -> None:
    text = changed(*FROM_REGISTERS)
    assert old in text
    assert missing in left(tmp_path, text.replace(old, new), (*TYPES, 64))


def test_words_of_cute_are_qualified_where_the_sources_do_it(tmp_path: Path) -> None:
    text = TEXT.replace("using namespace cute;\n", "")
    for word in (
        "make_tiled_mma",
        "SM90_64",
        "GMMA::",
        "Tensor ",
        "partition_fragment_C(",
        "Shape<",
        "Int<",
        "copy(",
        "half_t ",
    ):
        text = (
            text.replace(f" {word}", f" cute::{word}")
            .replace(f"({word}", f"(cute::{word}")
            .replace(f"<{word}", f"<cute::{word}")
        )
    text = text.replace("        gemm(", "        cute::gemm(").replace(
        "        warpgroup_", "        cute::warpgroup_"
    )
    ported = idiomatic(tmp_path, text.replace("size<2>", "cute::size<2>"))
    for line in (
        "cute::make_tmem_copy(cute::SM100_TMEM_LOAD_32dp32b32x{}, tCtC)",
        "cute::wait_barrier(",
        "cute::elect_one_sync()",
        "mma.get_slice(cute::_0{})",
        "cute::copy(t2r,",
    ):
        assert line in ported


@pytest.mark.parametrize(
    ("asserted", "expected"),
    [
        ("CUTE_STATIC_ASSERT_V((size<1>(tCgC) == size<1>(tCrA)));", "((size<1>(tCtC) == size<1>(tCrA)))"),
        ("CUTE_STATIC_ASSERT_V(Int<1>{} == size<2>(tCgC));", "(Int<1>{} == size<2>(tCtC))"),
        ("static_assert(decltype(size<1>(tCgC))::value == 1);", "(decltype(size<1>(tCtC))::value == 1)"),
        ('static_assert(cute::size< 2 >(tCrC) == 1, "columns");', '(cute::size< 2 >(tCtC) == 1, "columns")'),
        ("const int rows = size<0>(tCgC);", "rows = size<0>(tCgC)"),
    ],
)
def test_modes_that_are_asserted_are_those_of_the_accumulator(tmp_path: Path, asserted: str, expected: str) -> None:
    """A part by a copy has other modes than one by an MMA."""
    part = "    Tensor tCgC = thread_mma.partition_C(gC);\n"
    text = changed((RESULTS, "    copy(tCrC, tCgC);\n"), (ACCUMULATOR, f"{part}{ACCUMULATOR}    {asserted}\n"))
    assert expected in idiomatic(tmp_path, text)
