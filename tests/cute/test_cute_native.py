# SPDX-License-Identifier: Apache-2.0
"""Native steps of CuTe C++ kernels, compiled and run: ports are verified as `porter port` does it, and mistakes that
are planted in them are found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cute_native_kernels import CUTE, IN_FLIGHT, OBJECTS, OWN, STATES, source

from porter.cli.building import make_builder
from porter.cli.full_rate import Proofs
from porter.cli.porting import look
from porter.diagnostics import Severity
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, port_paths
from porter.verify import proof
from porter.verify.builder import PORT_ARCH
from porter.verify.results import VerifyResult

pytestmark = [pytest.mark.external, pytest.mark.slow]

CASE = """\
version: 1
description: CuTe C++, a producer warp and consumer warpgroups
kernel: kernel.cu
entry: kernel
include_dirs: ["package:cutlass_library/source/include"]
sizes: {{N: 64, K: 448}}
other_sizes:
  - {{N: 128, K: 64}}
tensors:
  A: {{dtype: f16, shape: [128, K], role: input}}
  B: {{dtype: f16, shape: [N, K], role: input}}
  C: {{dtype: f32, shape: [128, N], role: output}}
tensor_maps:
  map_a: {{tensor: A, box: [128, 64], swizzle: 128B}}
  map_b: {{tensor: B, box: [64, 64], swizzle: 128B}}
launch: {{grid: ["N / 64", 1, 1], block: [{threads}, 1, 1], dynamic_smem: 3 * 24576 + 1024}}
params: [map_a, map_b, C, N, K]
reduction: K
reference: "A @ B.T"
accumulate: f32
"""
WRITINGS = {
    "static functions": {},
    "objects": OBJECTS,
    "functions of CuTe": CUTE,
    "helpers of PTX": OWN,
    "a pipeline, one batch in flight": {**STATES, "DONE": IN_FLIGHT},
    "one consumer": {"WARPGROUPS": "_1", "THREADS": "256", "INIT": "Empty::init(&storage.empty[i], 128);"},
}


def made(folder: Path, **parts: str) -> Ported:
    (folder / "kernel.cu").write_text(source(**parts))
    (folder / "case.yaml").write_text(CASE.format(threads=parts.get("THREADS", "384")))
    found = port_paths([folder / "kernel.cu"], PortOptions(full_rate=True, native=("release",)), (), look)
    assert [r.native for r in found.roots] == [("release",)]
    return found


def failure(found: Ported) -> str:
    """What is wrong with a port, as its gate says; empty if nothing is."""
    return Proofs(make_builder(None, PORT_ARCH)).of(found, found.roots[0]).missing


def errors(found: Ported, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str]]:
    """What is wrong with a port, as its gate says, which names the first error; and all errors of that run."""
    said: list[str] = []
    judged = proof._wrong

    def noting(result: VerifyResult) -> str:
        said.extend(d.message for row in result.rows for d in row.diagnostics if d.severity is Severity.ERROR)
        return judged(result)

    monkeypatch.setattr(proof, "_wrong", noting)
    return failure(found), said


def planted(found: Ported, ending: str, pattern: str, instead: str) -> Ported:
    path = next(p for p in found.new if p.endswith(ending))
    text, count = re.subn(pattern, instead, found.new[path].decode(), flags=re.DOTALL)
    assert count == 1
    found.new[path] = text.encode()
    return found


@pytest.mark.parametrize("name", WRITINGS)
def test_stages_that_commits_give_back_are_verified(tmp_path: Path, name: str) -> None:
    assert failure(made(tmp_path, **WRITINGS[name])) == ""


PLANTED = {
    "the count as it was": (".cu", r"&storage\.empty\[i\], 1\)", "&storage.empty[i], 256)", ""),
    "a plain arrival": (
        ".hpp", r'tcgen05\.commit[^;]*;(?=[^;]*"r"\(address\))', "mbarrier.arrive.shared::cta.b64 _, [%0];", "H18",
    ),
    "no wait for the sums": (".cu", r"porter::wait<0>\(acc\);", "", ""),
    "a stage that is given back ahead of its MMAs": (
        ".cu", r"(porter::arrive\(acc.*?)(porter::release\(acc, &storage\.empty\[stage\]\);)", r"\2 \1", "H18",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Values differ, and the checker says why: a copy comes into an operand that MMAs still read."""
    ending, pattern, instead, hazard = PLANTED[name]
    what, said = errors(planted(made(tmp_path), ending, pattern, instead), monkeypatch)
    assert what
    assert "nvcc" not in what
    assert not hazard or any(f"hazard {hazard}" in one for one in said), said
