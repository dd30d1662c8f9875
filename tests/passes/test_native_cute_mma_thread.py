# SPDX-License-Identifier: Apache-2.0
"""The step in which a warp of its own issues MMAs, for tiled MMAs of CuTe C++: ways of writing that are understood, and
what is refused with which missing fact. Values and order are shown by the slow tests of
`tests/cute/test_cute_native_mma_thread.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from cute_native_kernels import (
    IN_FLIGHT,
    OBJECTS,
    OWN,
    STATES,
    missing,
    source,
    text_of,
)

from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.passes.tiled.port import header_text

ROOT = Path(__file__).parents[2]
STEPS = ("release", "mma-thread")
TILES = """\
struct Tiles {
    int next, count;
    __device__ Tiles(int n) : next(blockIdx.x), count(n / 64) {}
    __device__ bool valid() const { return next < count; }
    __device__ void advance() { next += gridDim.x; }
};
"""


def ported(folder: Path, steps: tuple[str, ...] = STEPS, **parts: str) -> PortResult:
    instead = {parts.pop(f"FROM{i}"): parts.pop(f"TO{i}") for i in range(9) if f"FROM{i}" in parts}
    text = source(**parts)
    for before, after in instead.items():
        assert before in text
        text = text.replace(before, after)
    path = folder / "kernel.cu"
    path.write_text(text)
    result = port_sources(load_sources(path), PortOptions(full_rate=True, native=steps))
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    return result


PERSISTENT = {
    **STATES,
    "DONE": IN_FLIGHT,
    "HEAD": TILES,
    "FROM0": "            for (int tile = 0; tile < tiles; ++tile) {\n"
             "                const int stage = tile % kStages;",
    "TO0": "            for (Tiles work(n); work.valid(); work.advance())\n"
           "            for (int tile = 0; tile < tiles; ++tile) {\n                const int stage = state.index();",
    "FROM1": "tile * 64, int(blockIdx.x) * 64",
    "TO1": "tile * 64, work.next * 64",
    "FROM2": "    Tensor gC = local_tile(mC, Shape<_128, _64>{}, make_coord(blockIdx.y, blockIdx.x));\n",
    "TO2": "",
    "FROM3": "    mma.accumulate_ = GMMA::ScaleOut::Zero;\n",
    "TO3": "    for (Tiles work(n); work.valid(); work.advance()) {\n    mma.accumulate_ = GMMA::ScaleOut::Zero;\n",
    "FROM4": "    copy(acc, thr.partition_C(gC));\n",
    "TO4": "    pipeline.consumer_release(done);\n    ++done;\n"
           "    Tensor gC = local_tile(mC, Shape<_128, _64>{}, make_coord(0, work.next));\n"
           "    copy(acc, thr.partition_C(gC));\n    }\n",
    "FROM5": "++tile, ++read) {\n        const int stage = tile % kStages;",
    "TO5": "++tile, ++read) {\n        const int stage = read.index();",
}  # fmt: skip
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
UNDERSTOOD: dict[str, tuple[dict[str, str], list[str]]] = {
    "tiles that follow each other": (PERSISTENT, [
        "if (porter::is_mma_warp()) params.role = decltype(params.role)::Consumer;",
        "if (porter::is_mma_warp()) { porter::Warpgroup tc = tmem.mma_warp();",
        "auto thr = mma.get_slice(0);",
        "for (Tiles work(n); work.valid(); work.advance()) { mma.accumulate_ = GMMA::ScaleOut::Zero;"
        " porter::begin_sums(tc, acc); for (int tile = 0;",
        "tc.end_sums(); porter::release(acc, pipeline, done); ++done; }",
        "porter::take_sums(tc, acc);",
        "copy(acc, thr.partition_C(gC)); tc.return_sums(); }",
    ]),
    "static functions": ({}, [
        "porter::begin_sums(tc, acc); for (int tile = 0; tile < tiles; ++tile) { const int stage = tile % kStages;"
        " Full::wait(&storage.full[stage], tile / kStages % 2);",
        "porter::release(acc, &storage.empty[stage]); } tc.end_sums(); }",
        "porter::take_sums(tc, acc);",
    ]),
    "objects": (OBJECTS, ["storage.full[stage].wait(tile / kStages % 2);", "porter::take_sums(tc, acc);"]),
    "helpers of PTX": (OWN, ["wait(&storage.full[stage], tile / kStages % 2);", "porter::take_sums(tc, acc);"]),
    "a pipeline, one batch in flight": (
        {**STATES, "DONE": IN_FLIGHT},
        ["cutlass::PipelineState<kStages> read, done;", "porter::begin_sums(tc, acc);", "porter::take_sums(tc, acc);"],
    ),
    "a function": (
        {"HEAD": LOOP, "WAIT": "", "BATCH": "", "DONE": "",
         "AFTER": "multiply(mma, tA, tB, acc, storage.full, storage.empty, tiles);"},
        ["porter::begin_sums(tc, acc); multiply(mma, tA, tB, acc, storage.full, storage.empty, tiles);"
         " tc.end_sums();"],
    ),
    "an index by a variable": (
        {"FROM0": "mma.get_slice(threadIdx.x - 128)", "TO0": "mma.get_slice(mine)",
         "AHEAD": "", "FROM1": "    Mma mma;\n", "TO1": "    Mma mma;\n    const int mine = threadIdx.x - 128;\n"},
        ["auto thr = mma.get_slice(0);"],
    ),
    "an elected thread that loads": (
        {"LOADS": "cutlass::canonical_warp_idx_sync() == 0 && elect_one_sync()"}, ["porter::begin_sums(tc, acc);"],
    ),
}  # fmt: skip


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    parts, wanted = UNDERSTOOD[name]
    result = ported(tmp_path, **parts)
    assert missing(result) == []
    assert result.plans[0].native == STEPS
    text = " ".join(text_of(result).split())
    assert [w for w in wanted if w not in text] == [], text
    consumers = text[text.index("return; }") :]
    assert "porter::commit(" not in text
    assert "porter::release(" not in consumers[: consumers.index("porter::load(")]
    assert "consumer_wait" not in consumers


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "one consumer": (
        {"WARPGROUPS": "_1", "THREADS": "256", "INIT": "Empty::init(&storage.empty[i], 128);"},
        "one MMA for two consumer warpgroups",
    ),
    "nobody beside the loads": (
        {"FROM0": "        if (threadIdx.x == 0) {\n            \n",
         "TO0": "        if (threadIdx.x >= 32) Full::wait(&storage.full[0], 0);\n        if (threadIdx.x == 0) {\n"},
        "a warp beside that which loads stages",
    ),
}  # fmt: skip


@pytest.mark.spread(3)
@pytest.mark.parametrize("name", REFUSED)
def test_a_missing_fact_leaves_the_step_out(tmp_path: Path, name: str) -> None:
    parts, what = REFUSED[name]
    result = ported(tmp_path, **parts)
    assert any(what in said for said in missing(result)), missing(result)
    assert "mma-thread" not in result.plans[0].native
    text = text_of(result)
    assert "mma_warp" not in text
    assert "take_sums" not in text


def test_steps_build_on_each_other(tmp_path: Path) -> None:
    result = ported(tmp_path, ("mma-thread", "double-buffer"))
    assert result.plans[0].native == ()
    assert missing(result) == ["commits that give stages back", "a thread of its own that issues the MMAs"]


def test_tiles_that_follow_each_other_take_turns(tmp_path: Path) -> None:
    result = ported(tmp_path, (*STEPS, "double-buffer"), **PERSISTENT)
    assert result.plans[0].native == (*STEPS, "double-buffer")
    header = next(t for p, t in result.files.items() if p.endswith(".hpp")).decode()
    assert "kBuffers = 2;" in header
    assert "kMmaWarp = 1;" in header


def test_one_tile_has_one_accumulator(tmp_path: Path) -> None:
    result = ported(tmp_path, (*STEPS, "double-buffer"))
    assert result.plans[0].native == STEPS
    assert missing(result) == ["a next tile: a block has one"]
    assert "kBuffers = 1;" in next(t for p, t in result.files.items() if p.endswith(".hpp")).decode()


def test_headers_without_the_step_have_nothing_of_it() -> None:
    for text in (header_text(), header_text(4), header_text(4, True, True)):
        assert "sums(" not in text
        assert "kMmaWarp" not in text
    assert "begin_sums(" in header_text(4, True, True, 1)
