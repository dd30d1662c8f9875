# SPDX-License-Identifier: Apache-2.0
"""The step in which the tensor core gives stages back, for tiled MMAs of CuTe C++: ways of writing that are understood,
and what is refused with which missing fact. Values and order are shown by the slow tests of
`tests/cute/test_cute_native.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cute_native_kernels import (
    BATCH,
    CUTE,
    IN_FLIGHT,
    OBJECTS,
    OWN,
    PIPELINE,
    STATES,
    left,
    missing,
    ported,
    taken,
    text_of,
)

from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, port_sources
from porter.passes.tiled.port import header_text

STEP = ("release",)
ROOT = Path(__file__).parents[2]
LOOP = """\
template <class M, class A, class B, class C>
__device__ void multiply(M& mma, A const& tA, B const& tB, C& acc, uint64_t* full, uint64_t* empty, int tiles) {
    for (int tile = 0; tile < tiles; ++tile) {
        const int stage = tile % kStages;
        Full::wait(&full[stage], tile / kStages % 2);
        warpgroup_arrive();
        gemm(mma, tA(_, _, _, stage), tB(_, _, _, stage), acc);
        mma.accumulate_ = GMMA::ScaleOut::One;
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        Empty::arrive(&empty[stage]);
    }
}
"""
IN_A_FUNCTION = {
    "HEAD": LOOP, "WAIT": "", "BATCH": "", "DONE": "",
    "AFTER": "multiply(mma, tA, tB, acc, storage.full, storage.empty, tiles);",
}  # fmt: skip
CLASS = "struct Ring { Empty empty[kStages]; __device__ void give_back(int s) { empty[s].arrive(); } };"
LOOP_OF_PIPELINE = """\
template <class P, class M, class A, class B, class C>
__device__ void multiply(M& mma, A const& tA, B const& tB, C& acc, P& pipe, int tiles) {
    cutlass::PipelineState<P::Stages> s;
    for (int tile = 0; tile < tiles; ++tile, ++s) {
        pipe.consumer_wait(s);
        warpgroup_arrive();
        gemm(mma, tA(_, _, _, s.index()), tB(_, _, _, s.index()), acc);
        mma.accumulate_ = GMMA::ScaleOut::One;
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        pipe.consumer_release(s);
    }
}
"""
UNDERSTOOD = {
    "static functions": ({}, "porter::release(acc, &storage.empty[stage]);"),
    "objects": (OBJECTS, "porter::release(acc, &storage.empty[stage]);"),
    "functions of CuTe": (CUTE, "porter::release(acc, storage.empty[stage]);"),
    "helpers of PTX": (OWN, "porter::release(acc, &storage.empty[stage]);"),
    "a pipeline": (PIPELINE, "porter::release(acc, pipeline, read);"),
    "a pipeline with tokens": (
        {**PIPELINE, "WAIT": "auto token = pipeline.consumer_try_wait(read); pipeline.consumer_wait(read, token);",
         "ACQUIRE": "auto token = pipeline.producer_try_acquire(state); pipeline.producer_acquire(state, token);"
                    " uint64_t* full = pipeline.producer_get_barrier(state); ++state;"},
        "porter::release(acc, pipeline, read);",
    ),
    "one thread of a warpgroup": (
        {"RELEASE": "if (threadIdx.x % 128 == 0) Empty::arrive(&storage.empty[stage]);",
         "INIT": "Empty::init(&storage.empty[i], 2);"},
        "porter::release(acc, &storage.empty[stage]);",
    ),
    "one lane of a warp": (
        {"RELEASE": "if (threadIdx.x % 32 == 0) { Empty::arrive(&storage.empty[stage]); }",
         "INIT": "Empty::init(&storage.empty[i], 8);"},
        "porter::release(acc, &storage.empty[stage]);",
    ),
    "a class around the mbarrier": (
        {"HEAD": CLASS, "BARRIERS": "uint64_t full[kStages]; Ring ring;", "INIT": "storage.ring.empty[i].init(256);",
         "ACQUIRE": "storage.ring.empty[stage].wait(tile / kStages % 2 ^ 1);"
                    " Full::arrive_and_expect_tx(&storage.full[stage], 24576);",
         "RELEASE": "storage.ring.give_back(stage);"},
        "porter::release(acc, storage.ring.empty[stage]);",
    ),
    "a function for any mbarrier": (
        {**OBJECTS, "HEAD": "template <class B> __device__ void give(B& bar) { bar.arrive(); }",
         "RELEASE": "give(storage.empty[stage]);"},
        "porter::release(acc, storage.empty[stage]);",
    ),
    "an elected thread": (
        {"LOADS": "cutlass::canonical_warp_idx_sync() == 0 && elect_one_sync()"},
        "porter::release(acc, &storage.empty[stage]);",
    ),
    "an elected thread of an elected warp": (
        {"LOADS": "warp == 0 && leads",
         "BEGIN": "const int warp = cutlass::canonical_warp_idx_sync(); uint32_t leads = cute::elect_one_sync();\n"
                  "    const bool sets_up = warp == 0 && leads; if (sets_up) { for (int i = 0; i < kStages; ++i) {"
                  " Full::init(&storage.full[i], 1); @INIT@ } cutlass::arch::fence_barrier_init(); }"},
        "porter::release(acc, &storage.empty[stage]);",
    ),
    "another name": (
        {"AHEAD": "auto& bars = storage.empty;", "RELEASE": "Empty::arrive(&bars[stage]);"},
        "porter::release(acc, &bars[stage]);",
    ),
    "a function": (IN_A_FUNCTION, "porter::release(acc, &empty[stage]);"),
    "a lambda that a library runs": (
        {"BATCH": "warpgroup_arrive(); for_each(make_int_sequence<4>{}, [&](auto i) {"
                  " gemm(mma, tA(_, _, i, stage), tB(_, _, i, stage), acc); mma.accumulate_ = GMMA::ScaleOut::One; });"
                  " warpgroup_commit_batch();"},
        "porter::release(acc, &storage.empty[stage]);",
    ),
    "a pipeline in a function": (
        {**PIPELINE, "HEAD": LOOP_OF_PIPELINE, "WAIT": "", "BATCH": "", "DONE": "",
         "AFTER": "multiply(mma, tA, tB, acc, pipeline, tiles);"},
        "porter::release(acc, pipe, s);",
    ),
    "two rings": (
        {"BARRIERS": "uint64_t full[kStages], empty[kStages]; struct { uint64_t empty[1]; } other;",
         "ACQUIRE": "if (tile == 0) { Empty::wait(&storage.other.empty[0], 0); }"
                    " Empty::wait(&storage.empty[stage], tile / kStages % 2 ^ 1);",
         "AHEAD": "Empty::arrive(&storage.other.empty[0]);",
         "INIT": "Empty::init(&storage.empty[i], 256); if (i == 0) Empty::init(&storage.other.empty[0], 256);"},
        "if (tc.issues()) {",
    ),
    "fences of registers": (
        {"DONE": "warpgroup_wait<0>(); warpgroup_fence_operand(acc);\n        @RELEASE@"},
        "porter::release(acc, &storage.empty[stage]);",
    ),
    "cleared ahead of the loop": ({"AHEAD": "clear(acc);"}, "porter::release(acc, &storage.empty[stage]);"),
    "one consumer": (
        {"WARPGROUPS": "_1", "THREADS": "256", "INIT": "Empty::init(&storage.empty[i], 128);"},
        "porter::release(acc, &storage.empty[stage]);",
    ),
}  # fmt: skip


@pytest.mark.spread(4)
@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    parts, expected = UNDERSTOOD[name]
    result = ported(tmp_path, STEP, **parts)
    if name == "one consumer":
        assert [m for m in missing(result) if "one warpgroup runs" not in m] == []
        assert result.plans[0].native == STEP
        text = text_of(result)
    else:
        text = taken(result, *STEP)
    assert expected in text
    assert "warpgroup_wait" not in text
    assert text.count("porter::commit(acc);") == text.count("porter::wait<0>(acc);") == 1
    assert text.index("porter::commit(acc);") < text.index("porter::wait<0>(acc);") < text.index("porter::load(acc);")
    body = text[text.index("for (int tile") : text.index("porter::commit(acc);")]
    assert "arrive(&storage.empty" not in body.replace("porter::arrive", "")
    if "CLASS" not in parts:
        assert re.search(r"empty\[i\](?:\.init\(|, )1\)", text)
    else:
        assert "cutlass::PipelineTmaUmmaAsync<kStages, cute::Shape<cute::_1, cute::_1, cute::_1>>" in text
        assert "PipelineTmaAsync" not in text


def test_a_stage_goes_back_ahead_of_the_next_batch(tmp_path: Path) -> None:
    """Where a batch stays in flight, what is given back behind the next one is complete ahead of it."""
    text = taken(ported(tmp_path, STEP, **{**STATES, "DONE": IN_FLIGHT}), *STEP)
    text = " ".join(text.split())
    moved = text.index("if (tile > 0) { porter::release(acc, pipeline, done); ++done; }")
    assert text.index("for (int tile = 0; tile < tiles; ++tile, ++read)") < moved < text.index("consumer_wait(read)")
    assert text.count("porter::release(") == 1


def test_stages_of_two_rings_go_back_together(tmp_path: Path) -> None:
    parts = {
        "BARRIERS": "uint64_t full[kStages], empty[kStages], other[kStages];",
        "INIT": "Empty::init(&storage.empty[i], 256); Empty::init(&storage.other[i], 256);",
        "ACQUIRE": "Empty::wait(&storage.empty[stage], tile / kStages % 2 ^ 1);"
        " Empty::wait(&storage.other[stage], tile / kStages % 2 ^ 1);",
        "DONE": "warpgroup_wait<1>();\n        if (tile > 0) Empty::arrive(&storage.empty[(tile - 1) % kStages]);\n"
        "        if (tile > 0) Empty::arrive(&storage.other[(tile - 1) % kStages]);",
        "AFTER": "warpgroup_wait<0>();",
    }
    text = " ".join(taken(ported(tmp_path, STEP, **parts), *STEP).split())
    back = [text.index(f"porter::release(acc, &storage.{ring}[(tile - 1) % kStages]);") for ring in ("empty", "other")]
    assert text.index("for (int tile = 0; tile < tiles; ++tile) { const") < back[0] < back[1]
    assert back[1] < text.index("Full::wait(&storage.full[stage]")


STAYS = {
    "a condition that is written": "if (last) { warpgroup_wait<1>(); pipeline.consumer_release(done); ++done; }",
    "a wait for all": "if (tile > 0) { warpgroup_wait<0>(); pipeline.consumer_release(done); ++done; }",
    "a way out": "if (n < tile) continue; @LATER@",
    "two batches": "gemm(mma, tA(_, _, 0, stage), tB(_, _, 0, stage), acc); warpgroup_commit_batch(); @LATER@",
    "something else": "if (tile > 0) { warpgroup_wait<1>(); pipeline.consumer_release(done); ++done; out[0] = n; }",
}  # fmt: skip


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", STAYS)
def test_a_stage_goes_back_where_it_did(tmp_path: Path, name: str) -> None:
    batch = BATCH.replace("warpgroup_arrive();", "warpgroup_arrive(); last = tile > 0;")
    ahead = STATES["AHEAD"] + " bool last = false;"
    parts = {**STATES, "LATER": IN_FLIGHT, "DONE": STAYS[name], "BATCH": batch, "AHEAD": ahead}
    text = taken(ported(tmp_path, STEP, **parts), *STEP)
    assert text.index("gemm(mma") < text.index("porter::release(acc, pipeline, done);")


REFUSED = {
    "sums that are read in the loop": ({"RELEASE": "out[0] = acc(0); Empty::arrive(&storage.empty[stage]);"}, "reads"),
    "sums that are scaled in the loop": (
        {"RELEASE": "for (int i = 0; i < size(acc); ++i) acc(i) *= 2; Empty::arrive(&storage.empty[stage]);"}, "reads",
    ),
    "no wait in the loop": ({"DONE": "@RELEASE@", "AFTER": "warpgroup_wait<0>();"}, "a loop that waits"),
    "an mbarrier of another CTA": (
        {"RELEASE": "Empty::arrive(&storage.empty[stage], 1, true);"}, "an mbarrier by which",
    ),
    "copies to several CTAs": (
        {"ACQUIRE": "Empty::wait(&storage.empty[stage], 1); SM90_TMA_LOAD_MULTICAST::copy(&map_a, &storage.full[stage],"
                    " 3, 0, &sA(0, 0, stage), 0, 0);"},
        "`SM90_TMA_LOAD_MULTICAST` copies to several",
    ),
    "consumers that wait for each other": (
        {"RELEASE": "Empty::arrive(&storage.empty[stage]); Empty::wait(&storage.empty[stage], tile / kStages % 2);"},
        "who waits for storage.empty[]",
    ),
    "mbarriers by two ways": (
        {"AHEAD": "Empty::arrive(storage.empty + 1);"}, "who waits for storage.empty + 1",
    ),
    "a thread that nobody knows": ({"LOADS": "out[threadIdx.x] > 0"}, "lets through"),
    "A from registers": (
        {"ATOM": "SM90_64x64x16_F32F16F16_RS"}, "A in shared memory",
    ),
    "a condition that nobody knows": (
        {"RELEASE": "if (__shfl_sync(~0u, tile, threadIdx.x) == 0) Empty::arrive(&storage.empty[stage]);",
         "INIT": "Empty::init(&storage.empty[i], 1);"},
        "lets through",
    ),
    "consumers that multiply for themselves": (
        {"BATCH": BATCH.replace("tB(_, _, i, stage)", "tB(_, _, i, warpgroup - 1)")}, "one MMA for all consumers",
    ),
    "a macro": (
        {"HEAD": "#define GIVE_BACK(s) Empty::arrive(&storage.empty[s])", "RELEASE": "GIVE_BACK(stage);"}, "",
    ),
}  # fmt: skip


@pytest.mark.spread(4)
@pytest.mark.parametrize("name", REFUSED)
def test_a_missing_fact_leaves_the_step_out(tmp_path: Path, name: str) -> None:
    parts, what = REFUSED[name]
    text = left(ported(tmp_path, STEP, **parts), what)
    assert "porter::release" not in text
    assert "PipelineTmaUmmaAsync" not in text


def test_nothing_is_taken_that_is_not_wanted(tmp_path: Path) -> None:
    result = ported(tmp_path, ())
    assert "porter::release" not in text_of(result)
    assert missing(result) == []


def test_headers_without_the_step_have_nothing_of_it() -> None:
    for issuer in (None, 4):
        text = header_text(issuer)
        assert "give_back" not in text
        assert "pipeline" not in text.lower()
        assert "give_back" in header_text(issuer, releases=True)


OF_CORPUS = {
    "cute_attention": "A in shared memory",
    "cute_gemm_multicast": "`SM90_TMA_LOAD_MULTICAST` copies to several",
    "cute_gemm_multistage": "an mbarrier by which stages go back",
    "cute_gemm_f16acc": "an mbarrier by which stages go back",
    "cute_gemm_fp8_scaled": "one MMA for all consumers",
}


@pytest.mark.spread(5)
@pytest.mark.parametrize("name", OF_CORPUS)
def test_kernels_of_the_corpus_say_what_they_lack(name: str) -> None:
    path = ROOT / f"corpus/{name}/{name}.cu"
    result = port_sources(load_sources(path), PortOptions(full_rate=True, native=STEP))
    assert any(OF_CORPUS[name] in m for m in missing(result)), missing(result)
    assert all(p.native == () for p in result.plans)


@pytest.mark.spread(2)
@pytest.mark.parametrize("name", ["cute_gemm_ws", "cute_gemm_stsm"])
def test_kernels_of_the_corpus_have_it(name: str) -> None:
    path = ROOT / f"corpus/{name}/{name}.cu"
    result = port_sources(load_sources(path), PortOptions(full_rate=True, native=STEP))
    assert missing(result) == []
    assert [p.native for p in result.plans] == [STEP]
