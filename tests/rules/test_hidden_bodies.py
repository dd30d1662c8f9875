# SPDX-License-Identifier: Apache-2.0
"""A kernel of the corpus whose wgmma only the compiler finds, in a header that is not among the sources: ported by
rules alone, compiled, and compared with its original."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from porter.cli.main import main
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, port_sources

CASE = Path(__file__).resolve().parents[2] / "corpus" / "gemm_tma"
RULES = """\
schema: 2
library: hopper
rules:
  - id: HOP100
    title: Multiply
    recognize: 'hopper::wgmma_m64n64k16($D, $A, $B)'
    as:
      mma:
        {shape: m64n64k16, types: f32.bf16.bf16, d: $D,
         a: 'hopper::k_major_desc_128b($A)', b: 'hopper::k_major_desc_128b($B)'}
    safety: review
    reason: It is one wgmma of two tiles that lie K-major.
    examples: [{before: 'x', facts: []}, {near: 'hopper::wgmma_m64n64k16(d)'}]
  - {id: HOP101, title: Fence, recognize: 'hopper::wgmma_fence()', as: {fence: {}}, safety: review, reason: It fences.,
     examples: [{before: 'hopper::wgmma_fence()', facts: [{fence: {}}]}, {absent: 'other::f()'}]}
  - {id: HOP102, title: Commit, recognize: 'hopper::wgmma_commit()', as: {commit: {}}, safety: review, reason: It does.,
     examples: [{before: 'hopper::wgmma_commit()', facts: [{commit: {}}]}, {absent: 'other::f()'}]}
  - {id: HOP103, title: Wait, recognize: 'hopper::wgmma_wait<$N>()', as: {wait: {pending: $N}}, safety: review,
     reason: It waits., examples: [{before: 'hopper::wgmma_wait<0>()', expect: [x]}, {absent: 'other::f()'}]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The case with its instructions in a header that only the compiler's own search path has."""
    folder = tmp_path / "project"
    shutil.copytree(CASE, folder)
    text = (folder / "hopper_ops.cuh").read_text()
    begin = text.index("__device__ __forceinline__ void wgmma_fence()")
    end = text.index("__device__ __forceinline__ uint64_t k_major_desc_128b")
    multiply = text.index("__device__ __forceinline__ void wgmma_m64n64k16")
    close = text.index("}  // namespace hopper")
    comment = text.rindex("\n\n", 0, end)
    hidden = tmp_path / "hidden" / "house"
    hidden.mkdir(parents=True)
    (hidden / "sync.cuh").write_text("#pragma once\nnamespace hopper {\n" + text[begin:comment] + "\n}\n")
    (hidden / "multiply.cuh").write_text("#pragma once\nnamespace hopper {\n" + text[multiply:close] + "}\n")
    visible = (
        text[:begin] + "}\n#include <house/sync.cuh>\nnamespace hopper {\n" + text[comment:multiply] + text[close:]
    )
    (folder / "hopper_ops.cuh").write_text(visible + "\n#include <house/multiply.cuh>\n")
    monkeypatch.setenv("CPATH", str(tmp_path / "hidden"))
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "hopper.yaml").write_text(RULES)
    return folder


def test_the_port_has_no_instruction_of_the_house_left(project: Path) -> None:
    options = PortOptions(rule_directories=(str(project.parent / "rules"),))
    result = port_sources(load_sources(project / "gemm_tma.cu"), options)
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    text = result.files[result.sources.root].decode()
    for piece in (
        "wgmma_",
        "sync_warpgroup();",
        "tc.commit();",
        "tc.wait(0);",
        "d_tmem[m], hopper::k_major_desc_128b(",
    ):
        assert (piece in text) == (piece != "wgmma_"), text
    assert not port_sources(load_sources(project / "gemm_tma.cu")).changed


@pytest.mark.slow
def test_the_port_compiles_and_computes_what_the_original_does(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = str(project.parent / "rules")
    verify = ["verify", "--full", "--style", "compat", str(project), "--rules", rules, "--sizes", "M=128,N=64,K=128"]
    with pytest.raises(SystemExit) as left:
        main(["--format", "json", *verify])
    said = capsys.readouterr()
    assert left.value.code == 0, said
    rows = json.loads(said.out)["rows"]
    assert {row["sizes"]["M"] for row in rows} == {128}
    assert {row["verdict"] for row in rows} == {"clean"}
    assert {c["mismatches"] for row in rows for c in row["between"]} == {0}
