# SPDX-License-Identifier: Apache-2.0
"""The step that issues the first product of a turn ahead: forms of attention that are understood. That ports are
right is shown by the slow tests of `tests/cli/test_cli_native_ahead.py`; what they are wrong for stands in
`shadow_kernels`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import attention_kernels as kernels
import pytest
from _pytest.mark import ParameterSet
from attention_kernels import Pairs
from native_kernels import missing

from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources


def ported(folder: Path, pairs: Pairs = (), full_rate: bool = True, asked: bool = True) -> PortResult:
    for name, text in kernels.sources(pairs).items():
        (folder / name).write_text(text)
    sources = load_sources(folder / "attention_fwd.cu")
    chosen = frozenset({(sources.root, "ahead")} if asked else ())
    return port_sources(sources, PortOptions(full_rate=full_rate, native=("ahead",), chosen=chosen))


def some(names: Iterable[str], *slow: str) -> list[ParameterSet]:
    """Names of forms, of which those that others are much like take their time."""
    assert set(slow) <= set(names)
    return [pytest.param(n, marks=[pytest.mark.slow] if n in slow else []) for n in names]


def text_of(result: PortResult) -> str:
    return next(t.decode() for p, t in result.files.items() if p.endswith(".cu"))


UNDERSTOOD: dict[str, tuple[Pairs, list[str], bool]] = {
    "turns, and a ring that is an object": (
        (),
        ["[&, ring = ring, block = block]() mutable", "ring.next();\n            ++block;", "auto ring_before = ring;"],
        True,
    ),
    "functions of its own, stage and phase": (
        kernels.OWN_HELPERS, ["advance(stage, phase);\n            ++block;", "issue_ahead(stage, phase, 0);"], True,
    ),
    "a function that waits and issues": (
        kernels.WHOLE_HELPERS, ["begin_turn<HeadDim>(tc, scores_tmem, smem, ring, consumer);"], True,
    ),
    "stages by the turn": (
        kernels.MODULO,
        ["issue_ahead = [&](uint32_t block)", "return issue_ahead(block);", "stage_before = stage;"], True,
    ),
    "a loop that counts in its body": (
        kernels.WHILE, ["block += 1;\n            return issue_ahead(ring, block);", "issue_ahead(ring, block);"], True,
    ),
    "a stage that goes on ahead of the results": (
        kernels.EARLY_NEXT, ["mutable __attribute__((always_inline)) {\n            ++block;"], True,
    ),
    "K and V in one ring": (kernels.ONE_RING, ["ring.next();\n            ++block;"], False),
    "one warpgroup": (kernels.ALONE, ["issue_ahead(ring, 0);"], True),
    "what the loop declares beside": (
        (*kernels.TURNS, ("    for (int block = 0; block < blocks; ++block) {\n        float scores",
                          "    for (int block = 0, last = blocks; block < last; ++block) {\n        float scores")),
        ["[&](auto ring, int block, int last)", "issue_ahead(ring, 0, blocks);"], True,
    ),
    "a stage that a macro names": (
        (*kernels.MODULO, ("constexpr int kStages = 2;", "constexpr int kStages = 2;\n#define STAGE (block % kStages)"),
         ("mbarrier_wait(&smem.k_full[stage], phase);", "mbarrier_wait(&smem.k_full[STAGE], phase);")),
        ["mbarrier_wait(&smem.k_full[STAGE], phase);"], True,
    ),
    "one tile after another": (kernels.TILES, ["issue_ahead(ring, 0);"], True),
    "128 keys a turn": (kernels.WIDE, ["umma_ss_m64n128k16(scores_tmem, desc_q, desc_k, k != 0);"], True),
}  # fmt: skip


@pytest.mark.parametrize("name", some(UNDERSTOOD, "functions of its own, stage and phase",
                                      "stages by the turn", "a loop that counts in its body",
                                      "one warpgroup", "128 keys a turn",
                                      "what the loop declares beside", "one tile after another"))  # fmt: skip
def test_a_way_of_writing_is_understood(tmp_path: Path, name: str) -> None:
    pairs, expected, late = UNDERSTOOD[name]
    result = ported(tmp_path, pairs)
    text = text_of(result)
    assert [part for part in expected if part not in text] == []
    assert result.plans[0].native == ("ahead",)
    # the product of K stands once, ahead of the loop
    loop = text.index("float scores[")
    kernel = text.index("tcgen05::Warpgroup tc =")
    calls = ("umma_ss_m64n", "issue_scores<HeadDim>(", "begin_turn<HeadDim>(")
    assert [text.count(c, kernel, loop) for c in calls if c in text[kernel:]] == [1]
    assert not any(c in text[loop:] for c in calls)
    # results are loaded ahead of the next product
    assert text.index("tcgen05::load(scores, scores_tmem);") < text.index("issue_ahead(", loop)
    assert ("if (sums_behind) complete_sums(" in text) is late
    header = next(t.decode() for p, t in result.files.items() if p.endswith("tcgen05.cuh"))
    assert "constexpr uint32_t kRing = 2;" in header


def test_without_the_step_nothing_changes(tmp_path: Path) -> None:
    assert "issue_ahead" not in text_of(ported(tmp_path, asked=False))
    assert "issue_ahead" not in text_of(ported(tmp_path, kernels.ISSUED_AHEAD))


def test_the_last_product_is_waited_for_in_the_next_turn(tmp_path: Path) -> None:
    text = text_of(ported(tmp_path))
    loop = text[text.index("float scores[") :]
    places = [
        "tc.wait(sums_behind ? 1 : 0);", "mbarrier_arrive(&smem.k_empty[ring.stage]);", "tcgen05::load(scores",
        "issue_ahead(ring, block);", "if (sums_behind) complete_sums(ring_before, issued);",
        "tcgen05::load(o, o_tmem);",
        "umma_rs<HeadDim>", "ring_before = ring;", "sums_behind = true;", "ring.next();\n    }",
        "if (sums_behind) complete_sums(ring_before, false);", "tcgen05::load(o, o_tmem);",
    ]  # fmt: skip
    at = 0
    for place in places:
        at = loop.index(place, at)
    assert "mbarrier_arrive(&smem.v_empty" not in loop


V_LOAD = "tma_load_3d(smem.v[ring.stage][s], &map_v, &smem.v_full[ring.stage], s * 64, block * kBlockN, head);\n"
IN_TWO: Pairs = (
    ("#pragma unroll\n        for (int k = 0; k < kBlockN / 16; ++k) {\n            wgmma_rs<HeadDim>(",
     "        for (int k = 0; k < 2; ++k) {\n            wgmma_rs<HeadDim>(\n"
     "                o, p[k], mn_major_desc(smem.v[ring.stage][0] + k * 16 * 64, sizeof(smem.v[0][0])));\n        }\n"
     "        warpgroup_commit();\n        warpgroup_arrive();\n"
     "        for (int k = 2; k < kBlockN / 16; ++k) {\n            wgmma_rs<HeadDim>("),
)  # fmt: skip
AT_ONCE: dict[str, Pairs] = {
    "V is loaded ahead of K": (
        ("mbarrier_wait(&smem.k_empty[ring.stage], ring.phase ^ 1);\n"
         "        mbarrier_expect(&smem.k_full[ring.stage], kBytesKV);\n"
         "        for (int s = 0; s < HeadDim / 64; ++s) {\n"
         "            tma_load_3d(smem.k[ring.stage][s], &map_k, &smem.k_full[ring.stage]",
         "mbarrier_wait(&smem.v_empty[ring.stage], ring.phase ^ 1);\n"
         "        mbarrier_expect(&smem.v_full[ring.stage], kBytesKV);\n"
         "        for (int s = 0; s < HeadDim / 64; ++s) {\n"
         "            tma_load_3d(smem.v[ring.stage][s], &map_v, &smem.v_full[ring.stage]"),
        ("        mbarrier_wait(&smem.v_empty[ring.stage], ring.phase ^ 1);\n"
         "        mbarrier_expect(&smem.v_full[ring.stage], kBytesKV);\n"
         "        for (int s = 0; s < HeadDim / 64; ++s) {\n"
         "            " + V_LOAD + "        }\n        ring.next();",
         "        mbarrier_wait(&smem.k_empty[ring.stage], ring.phase ^ 1);\n"
         "        mbarrier_expect(&smem.k_full[ring.stage], kBytesKV);\n"
         "        for (int s = 0; s < HeadDim / 64; ++s) {\n"
         "            " + V_LOAD.replace(".v", ".k").replace("_v", "_k") + "        }\n        ring.next();"),
    ),
    "who loads waits for both stages first": (
        ("        mbarrier_wait(&smem.v_empty[ring.stage], ring.phase ^ 1);\n", ""),
        ("        mbarrier_wait(&smem.k_empty[ring.stage], ring.phase ^ 1);\n",
         "        mbarrier_wait(&smem.k_empty[ring.stage], ring.phase ^ 1);\n"
         "        mbarrier_wait(&smem.v_empty[ring.stage], ring.phase ^ 1);\n"),
    ),
    "K goes back with V": (
        ("        mbarrier_arrive(&smem.k_empty[ring.stage]);\n", ""),
        ("        mbarrier_arrive(&smem.v_empty[ring.stage]);\n",
         "        mbarrier_arrive(&smem.v_empty[ring.stage]);\n        mbarrier_arrive(&smem.k_empty[ring.stage]);\n"),
    ),
    "V in two batches": IN_TWO,
    "sums are read in their own turn": (
        ("        mbarrier_arrive(&smem.v_empty[ring.stage]);\n",
         "        mbarrier_arrive(&smem.v_empty[ring.stage]);\n        row_sum[0] += 0.f * o[0];\n"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", some(AT_ONCE, "sums are read in their own turn"))
def test_the_last_product_is_waited_for_at_once(tmp_path: Path, name: str) -> None:
    text = text_of(ported(tmp_path, AT_ONCE[name]))
    assert "issue_ahead(ring, block);" in text
    assert "complete_sums" not in text
    assert "mbarrier_arrive(&smem.v_empty[ring.stage]);" in text


def test_a_product_that_is_issued_ahead_already_is_left(tmp_path: Path) -> None:
    result = ported(tmp_path, kernels.ISSUED_AHEAD)
    assert any("in the turn that reads them" in what for what in missing(result)), missing(result)
    assert not result.plans[0].native
