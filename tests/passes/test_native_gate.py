# SPDX-License-Identifier: Apache-2.0
"""The gate of `--style native` for threads of their own, accumulators in turns and pairs of CTAs: kernels in several
ways of writing pass it, and mistakes that are planted in their ports fail it, most of which keep the bits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from persistent_kernels import LOADS, SCHEDULE, STORE, options, write

from porter.build import trust
from porter.cli.building import make_builder
from porter.cli.porting import look
from porter.passes.ported import Ported, port_paths
from porter.tune import verifying
from porter.verify.builder import PORT_ARCH

STEPS = ("release", "mma-thread", "double-buffer", "pair")


def made(folder: Path, steps: tuple[str, ...] = STEPS, params: str = "M, N, K", **parts: str) -> Ported:
    return port_paths([write(folder, params, **parts)], options(steps), (), look)


def failure(found: Ported) -> str:
    """What the runs of a port say against it."""
    (root,) = found.roots
    return verifying.Proofs(make_builder(None, PORT_ARCH)).of(found, root).missing


def planted(found: Ported, pattern: str, instead: str) -> Ported:
    """With another text in one place of the port."""
    hits = [(p, *re.subn(pattern, instead, t.decode(), flags=re.DOTALL)) for p, t in found.new.items()]
    ((path, text, count),) = [hit for hit in hits if hit[2]]
    assert count == 1
    found.new[path] = text.encode()
    return found


WRITTEN: dict[str, dict[str, str]] = {
    "as it is": {},
    "a schedule of its own": {
        "HEAD": SCHEDULE, "COUNT": "Tiles schedule(M, N);\nint row, column;",
        "LOOP": "while (schedule.pop(row, column))", "TILE": "",
    },
    "rows and columns, not tiles": {
        "TILE": "const int row0 = tile / (N / 16) * 128, column0 = tile % (N / 16) * 16;",
        "LOADS": LOADS.replace("row * 128", "row0").replace("column * 16", "column0"),
        "STORE": STORE.replace("row * 128", "row0").replace("column * 16", "column0"),
    },
    "tiles that follow each other in rows": {
        "TILE": "const int row = tile % (M / 128), column = tile / (M / 128);",
        "EARLY": "const int first = row * 128 + consumer * 64;",
        "STORE": STORE.replace("row * 128 + consumer * 64", "first"),
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", WRITTEN)
def test_the_gate_takes_a_way_of_writing(tmp_path: Path, name: str) -> None:
    found = made(tmp_path, **WRITTEN[name])
    assert found.roots[0].native == STEPS
    assert failure(found) == ""


PLANTED: dict[str, tuple[str, str]] = {
    "no wait until sums are read": (
        r"wait_phase\(full \+ \(kBuffers \+ turn % kBuffers\) \* 8, turn / kBuffers % 2 \^ 1\);", "",
    ),
    "no wait until sums are complete": (r"wait_phase\(full \+ turn % kBuffers \* 8, turn / kBuffers % 2\);", ""),
    "no fence in front of the arrival": (r"give_back\(\) \{\s*fence_before_sync\(\);", "give_back() {"),
    "no fence behind the wait": (
        r"(turn / kBuffers % 2\);\s*__syncwarp\(\);[^\n]*)\s*fence_after_sync\(\);", r"\1",
    ),
    "the commit of a tile as a plain arrive": (
        r'tcgen05.commit[^;]*;" ::"r"\(barrier\), "h"\(kBothOfPair\)',
        'mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(of_first(barrier)), "h"(kBothOfPair)',
    ),
    "stages that only one CTA gets back": (r'"r"\(mbarrier\), "h"\(kBothOfPair\)', '"r"(mbarrier), "h"((uint16_t)1)'),
    "bytes of one CTA": (r"init\(&ring.full\[i\], 2\)", "init(&ring.full[i], 1)"),
    "the same rows in both CTAs": (r"row \* 128 \+ tcgen05::pair_rank\(\) \* half_m", "row * 128"),
    "the same columns in both CTAs": (r"column \* 16 \+ tcgen05::pair_rank\(\) \* half_n", "column * 16"),
    "half of the columns": (r"part < 2", "part < 1"),
    "tiles outside of the product": (r"if \(row \* 128 >= M \|\| column \* 16 >= N\) continue;", ""),
    "ends without the other CTA's commits": (r"loads.drain\(\);", ""),
    "no meeting before the end": (
        r"~Tmem\(\) \{\s*fence_before_sync\(\);\s*sync_pair\(\);", "~Tmem() { fence_before_sync();",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_fails_the_gate(tmp_path: Path, name: str) -> None:
    what = failure(planted(made(tmp_path), *PLANTED[name]))
    assert what
    assert "nvcc" not in what


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("steps", [STEPS[:2], STEPS[:3]])
def test_a_mistake_of_the_thread_alone_fails_the_gate(tmp_path: Path, steps: tuple[str, ...]) -> None:
    for name in ("no wait until sums are read", "no fence in front of the arrival"):
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        assert failure(planted(made(folder, steps), *PLANTED[name])), name


@pytest.mark.slow
@pytest.mark.external
def test_the_gate_takes_the_corpus_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "_said", True)
    kernel = Path(__file__).parents[2] / "corpus/gemm_persistent/gemm_persistent.cu"
    found = port_paths([kernel], options(STEPS), (), look)
    assert found.roots[0].native == STEPS
    assert failure(found) == ""
