# SPDX-License-Identifier: Apache-2.0
"""The step in which blocks go on with tiles of blocks that have not begun: ways of writing that are understood, what is
refused with which missing fact, and mistakes that are planted in ports, which the gate finds."""

from __future__ import annotations

import re
from pathlib import Path

import persistent_kernels
import pytest
from native_kernels import missing, text_of
from persistent_kernels import options
from tile_kernels import LINEAR, LOADS, STAGED, STORE, TOKENS, TURNING, ported, write

from porter.cli.building import make_builder
from porter.cli.porting import look
from porter.passes.native.double_buffer import NAME as DOUBLE_BUFFER
from porter.passes.native.tiles import NAME
from porter.passes.ported import Ported, port_paths
from porter.tune import verifying
from porter.verify.builder import PORT_ARCH

STEPS = ("release", "mma-thread", NAME, DOUBLE_BUFFER)
LOOP = "tcgen05::Tiles tiles = tmem.tiles(); while (tiles.next()) {"
PLACE = "const int row = tiles.index.y, column = tiles.index.x;"
ADVANCE = "__device__ void advance(int& stage, int& phase) { if (++stage == kStages) { stage = 0; phase ^= 1; } }"

UNDERSTOOD: dict[str, tuple[dict[str, str], list[str]]] = {
    "as it is": ({}, [
        f"int passed = 0; {LOOP} {PLACE} tiles.ask(); for (int k = 0; k < K / 64; ++k) {{",
        "wait(&ring.empty[passed % kStages], passed / kStages % 2 ^ 1);",
        "load(ring.a[passed % kStages], &map_a, &ring.full[passed % kStages], k * 64, row * 128);",
        "++passed; } } }",
        f"int passed = 0; {LOOP} tcgen05::Accumulator acc_tmem{{tc.tmem}}; tc.begin(acc_tmem);",
        "wait(&ring.full[passed % kStages], passed / kStages % 2);",
        "tcgen05::release(&ring.empty[passed % kStages]); ++passed; } tc.end(acc_tmem); }",
        f"{LOOP} {PLACE} tc.take(acc_tmem);",
        "tc.give_back(); } } }",
    ]),
    "a stage and a phase": (TURNING, [
        f"int stage = 0, phase = 0; {LOOP} {PLACE} tiles.ask();",
        f"int stage = 0, phase = 0; {LOOP} tcgen05::Accumulator",
    ]),
    "a stage and a phase of the kernel": ({**TURNING, "STATE": "", "COMMON": "int stage = 0, phase = 0;"}, [
        f"if (tcgen05::thread_index() == 0) {{ {LOOP} {PLACE} tiles.ask();",
    ]),
    "a function that goes on": ({**TURNING, "HEAD": ADVANCE, "ADVANCE": "advance(stage, phase);"}, [
        f"int stage = 0, phase = 0; {LOOP} {PLACE} tiles.ask();",
    ]),
    "variables for stage and phase": (
        {"STAGE": "const int s = k % kStages, turn = (k / kStages) & 1;", "AT": "s", "PHASE": "turn"},
        ["const int s = passed % kStages, turn = (passed / kStages) & 1; wait(&ring.empty[s], turn ^ 1);"],
    ),
    "a count that goes on": (
        {"STATE": "int n = 0;", "NEXT": "++k, ++n", "AT": "n % kStages", "PHASE": "n / kStages % 2"},
        [f"int n = 0; {LOOP} {PLACE} tiles.ask();", f"int n = 0; {LOOP} tcgen05::Accumulator"],
    ),
    "waits in a loop of the kernel": (
        {**TURNING, "HEAD": """\
__device__ bool complete(uint64_t* bar, int parity) {
    uint32_t found;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(found) : "r"(at(bar)), "r"(parity) : "memory");
    return found;
}
""",
         "WAIT": "while (!complete(&ring.full[stage], phase)) {}"},
        ["while (!complete(&ring.full[stage], phase)) {} for (int i = 0; i < 4; ++i) {"],
    ),
    "waits by token": (TOKENS, ["init(&ring.full[i], 2);", "until(&ring.full[passed % kStages], "]),
    "the index of the block itself": (
        {"PLACE": "", "LOADS": LOADS.replace("row", "blockIdx.y").replace("column", "blockIdx.x"),
         "STORE": STORE.replace("row", "blockIdx.y").replace("column", "blockIdx.x")},
        ["k * 64, tiles.index.y * 128);", "out + (tiles.index.y * 128 + "],
    ),
    "a grid of one dimension": (LINEAR, [
        f"{LOOP} const int tile = tiles.index.x; const int row = tile / (N / 16), column = tile % (N / 16); "
        "tiles.ask();",
    ]),
    "a place that the size of the grid is in": (
        {"PLACE": "const unsigned tile = blockIdx.y * gridDim.x + blockIdx.x;\n"
                  "const int row = tile / (N / 16), column = tile % (N / 16);"},
        ["const unsigned tile = tiles.index.y * gridDim.x + tiles.index.x;"],
    ),
    "what follows from the place, for consumers": (
        {"AHEAD": "const int first = row * 128 + consumer * 64;",
         "STORE": STORE.replace("row * 128 + consumer * 64", "first")},
        [f"{LOOP} {PLACE} const int first = row * 128 + consumer * 64; tc.take(acc_tmem);"],
    ),
    "a warp that loads": (
        {"PRODUCER": "if (threadIdx.x / 32 == 0)", "LOADS": f"if (threadIdx.x == 0) {{ {LOADS} }}"},
        [f"if (tcgen05::thread_index() / 32 == 0) {{ int passed = 0; {LOOP} {PLACE} tiles.ask();"],
    ),
    "sums that leave by shared memory": (STAGED, ["tc.give_back(); tcgen05::end_tile(); } } }"]),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    parts, wanted = UNDERSTOOD[name]
    result = ported(tmp_path, STEPS, **parts)
    assert missing(result) == []
    assert result.plans[0].native == STEPS
    text = text_of(result)
    assert [w for w in wanted if w not in text] == [], text
    assert text.count(LOOP) == 3
    assert ("end_tile" in text) is (name == "sums that leave by shared memory")
    kernel = text[text.index("__global__") : text.index("void encode")]
    assert "blockIdx" not in kernel


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "clusters": (
        {"HEAD": "#define CLUSTERED __cluster_dims__(2, 1, 1)", "LAUNCH": "/* */"},
        "blocks that are launched one by one: `__cluster_dims__`",
    ),
    "a cooperative launch": (
        {"LAUNCH": "void* all[] = {&map_a, &map_b, &out, &M, &N, &K};\n"
                   "cudaLaunchCooperativeKernel((void*)kernel, dim3(N / 16, M / 128), dim3(384), all, sizeof(Ring));"},
        "blocks that are launched one by one: `cudaLaunchCooperativeKernel`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_missing_fact_leaves_the_step_out(tmp_path: Path, name: str) -> None:
    parts, what = REFUSED[name]
    result = ported(tmp_path, STEPS[:3], **parts)
    assert NAME not in result.plans[0].native
    assert any(what in said for said in missing(result)), missing(result)
    assert "mma-thread" in result.plans[0].native or not what, missing(result)
    assert "tiles.next()" not in text_of(result)


def test_blocks_with_a_loop_over_tiles_keep_it(tmp_path: Path) -> None:
    result = persistent_kernels.ported(tmp_path, STEPS)
    assert result.plans[0].native == ("release", "mma-thread", DOUBLE_BUFFER)
    assert missing(result) == ["that a block has one tile: it takes several in a loop"]


def test_the_step_needs_a_thread_of_its_own(tmp_path: Path) -> None:
    result = ported(tmp_path, ("release", NAME, DOUBLE_BUFFER))
    assert result.plans[0].native == ("release",)
    assert missing(result)[0] == "a thread of its own that issues the MMAs"


def test_pairs_want_tiles_that_they_can_count(tmp_path: Path) -> None:
    result = ported(tmp_path, (*STEPS, "pair"))
    assert result.plans[0].native == STEPS
    assert missing(result) == ["tiles that are a number of CTAs apart: these are handed out one by one"]


# --- What runs show


def made(folder: Path, steps: tuple[str, ...] = STEPS, **parts: str) -> Ported:
    linear = parts.get("LAUNCH") == LINEAR["LAUNCH"]
    return port_paths([write(folder, linear, **parts)], options(steps), (), look)


def failure(found: Ported) -> str:
    """What the runs of a port say against it."""
    (root,) = found.roots
    return verifying.Proofs(make_builder(None, PORT_ARCH)).of(found, root).missing


def planted(found: Ported, pattern: str, instead: str, times: int = 1) -> Ported:
    """With another text in some places of the port."""
    hits = [(p, *re.subn(pattern, instead, t.decode(), flags=re.DOTALL)) for p, t in found.new.items()]
    ((path, text, count),) = [hit for hit in hits if hit[2]]
    assert count == times
    found.new[path] = text.encode()
    return found


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", UNDERSTOOD)
def test_the_gate_takes_a_way_of_writing(tmp_path: Path, name: str) -> None:
    found = made(tmp_path, **UNDERSTOOD[name][0])
    assert found.roots[0].native == STEPS
    assert failure(found) == ""


@pytest.mark.slow
@pytest.mark.external
def test_the_gate_takes_one_accumulator(tmp_path: Path) -> None:
    found = made(tmp_path, STEPS[:3])
    assert found.roots[0].native == STEPS[:3]
    assert failure(found) == ""


COUNTED: dict[str, str] = {}
PLANTED: dict[str, tuple[dict[str, str], str, str, int]] = {
    "an answer that is not waited for": (
        COUNTED, r"wait_phase\(answered \+ slot \* 8, turn / kAnswers % 2\);", "", 1,
    ),
    "an answer that not all have read": (
        COUNTED, r"wait_phase\(barrier \+ kAnswers \* 8, turn / kAnswers % 2 \^ 1\);", "", 1,
    ),
    "consumers that are not waited for": (COUNTED, r"1 \+ kWarpgroups \* 128;", "1;", 1),
    "no proxy fence behind a read": (
        COUNTED,
        r'asm volatile\("fence.proxy.async.shared::cta;" ::: "memory"\);\s*arrive\(answered', "arrive(answered", 1,
    ),
    "bytes that nobody expects": (
        COUNTED,
        r"mbarrier.arrive.expect_tx.shared::cta.b64 _, \[%0\], 16;", "mbarrier.arrive.shared::cta.b64 _, [%0];", 1,
    ),
    "a phase that does not turn with the answers": (
        COUNTED, r"wait_phase\(answered \+ slot \* 8, turn / kAnswers % 2\);", "wait_phase(answered + slot * 8, 0);", 1,
    ),
    "tiles where there are none": (COUNTED, r"return found != 0;", "return begun < 9;", 1),
    "stages of loads that begin anew": (
        TURNING,
        r"int stage = 0, phase = 0;(\s*)(tcgen05::Tiles tiles = tmem.tiles\(\);\s*while \(tiles.next\(\)\) \{)",
        r"\2\1int stage = 0, phase = 0;", 3,
    ),
    "stages that one of both counts anew": (
        COUNTED, r"(tiles.ask\(\);)", r"\1 passed = 0;", 1,
    ),
    "the place of the first tile": (COUNTED, r"const int row = tiles.index.y", "const int row = blockIdx.y", 2),
    "shared memory that is written too early": (STAGED, r"tcgen05::end_tile\(\);", "", 1),
    "sums that are not given back": (COUNTED, r"tc.give_back\(\);", "", 1),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_fails_the_gate(tmp_path: Path, name: str) -> None:
    parts, *mistake = PLANTED[name]
    what = failure(planted(made(tmp_path, **parts), *mistake))
    assert what
    assert "nvcc" not in what
