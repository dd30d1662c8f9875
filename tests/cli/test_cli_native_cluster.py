# SPDX-License-Identifier: Apache-2.0
"""Stages that CTAs of a cluster fill for each other, in a persistent kernel: the steps of the native style pass their
gate, and mistakes that are planted in them do not."""

from __future__ import annotations

import re
from pathlib import Path

import cluster_gemm
import pytest

from porter.cli.building import make_builder
from porter.cli.porting import look
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.tune import verifying
from porter.verify.builder import PORT_ARCH

STEPS = ("release", "mma-thread", "double-buffer")


def made(folder: Path, steps: tuple[str, ...]) -> Ported:
    return port_paths([cluster_gemm.write(folder)], PortOptions(full_rate=True, native=steps), (), look)


def failure(found: Ported) -> str:
    (root,) = found.roots
    return verifying.Proofs(make_builder(None, PORT_ARCH)).of(found, root).missing


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("steps", [STEPS[:1], STEPS], ids=["release", "all"])
def test_the_steps_pass_their_gate(tmp_path: Path, steps: tuple[str, ...]) -> None:
    found = made(tmp_path, steps)
    assert found.roots[0].native == steps
    assert failure(found) == ""


PLANTED = {
    "a stage given back to one CTA": (r"0x3\);(\s*)\+\+stage", r"0x1);\1++stage"),
    "not waited for what other CTAs do": (r"tc.drain\(&empty\[0\], STAGES\);", ""),
    "one stage not waited for": (r"drain\(&empty\[0\], STAGES\)", "drain(&empty[0], STAGES - 1)"),
    "another phase waited for": (r"\? turns >> bit & 1 :", "? (turns >> bit & 1) ^ 1 :"),
    "called empty by both consumers": (r"if \(tcgen05::thread_index\(\) / 32 == 4\) ", ""),
    "called empty by none": (r"thread_index\(\) / 32 == 4\)", "thread_index() / 32 == 12)"),
    "a count of both consumers": (r"begin\(&empty\[i\], 2, 0\)", "begin(&empty[i], 4, 0)"),
    "a wait without the others' scope": (
        r"try_wait.parity.acquire.cluster.shared::cta.b64 complete", "try_wait.parity.shared::cta.b64 complete",
    ),
    "sums overwritten before they are read": (r"wait_phase\(full \+ \(kBuffers \+ [^;]*;", ""),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.external
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_fails_the_gate(tmp_path: Path, name: str) -> None:
    found = made(tmp_path, STEPS)
    pattern, instead = PLANTED[name]
    hits = [(p, *re.subn(pattern, instead, t.decode())) for p, t in found.new.items()]
    ((path, text, count),) = [hit for hit in hits if hit[2]]
    assert count == 1
    found.new[path] = text.encode()
    what = failure(found)
    assert what
    assert "nvcc" not in what
