# SPDX-License-Identifier: Apache-2.0
"""`porter stats`, `porter port --mark` and `porter clean`."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from fakes_cli import fake_port_sources, porter, porter_json, project

from porter.lang.text import Safety

FENCE = '__global__ void k() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }\n'


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("porter.passes.embedded.port_sources", fake_port_sources)
    monkeypatch.setattr("porter.cli.port.compile_ports", lambda *args: [])
    monkeypatch.chdir(tmp_path)


def test_counts_by_construct_rule_safety_and_file(tmp_path: Path) -> None:
    project(tmp_path / "src")
    (tmp_path / "src" / "k.cu").write_text(FENCE * 2)
    document = porter_json("stats", "src")
    counts = {(c["by"], c["name"]): (c["count"], c["files"]) for c in document["counts"]}
    assert counts["construct", "wgmma.fence"] == (2, 1)
    # HOPPER in the kernel and in its header
    assert counts["rule", "PTR900"] == counts["safety", "safe"] == (2, 2)
    assert counts["file", "src/gemm.cu"] == (1, 1)
    text = porter("stats", "src").output
    assert "wgmma.fence" in text
    assert "PTR900" in text


def test_counts_as_csv(tmp_path: Path) -> None:
    project(tmp_path / "src")
    rows = list(csv.DictReader(io.StringIO(porter("stats", "src", "--csv").output)))
    assert {"by": "rule", "name": "PTR900", "count": "2", "files": "2"} in rows
    porter("stats", "src", "--csv", "--format", "json", code=2)


def test_what_cannot_be_ported_is_counted_as_a_problem(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("// UNPORTABLE\n" + FENCE)
    document = porter_json("stats", "k.cu")
    assert [d["id"] for d in document["diagnostics"]] == ["PT2001"]
    assert "1 file, 1 problem (" in porter("stats", "k.cu").output


def test_marks_are_written_on_request_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = project(tmp_path / "src")

    def to_review(sources, options):
        made = fake_port_sources(sources, options)
        made.groups = [type(g)(g.rule, g.title, Safety.REVIEW, g.edits, g.reason) for g in made.groups]
        return made

    monkeypatch.setattr("porter.passes.embedded.port_sources", to_review)
    porter("port", kernel, "-o", "plain")
    porter("port", kernel, "-o", "out", "--mark")
    made = (tmp_path / "out" / "gemm.cu").read_bytes()
    assert b"// porter[PTR900]: review: rename\n" in made
    assert b"porter[" not in (tmp_path / "plain" / "gemm.cu").read_bytes()
    assert porter_json("clean", "out", "--check", code=1)["files"] == ["out/gemm.cu"]
    assert (tmp_path / "out" / "gemm.cu").read_bytes() == made
    assert porter_json("clean", "out")["written"] == ["out/gemm.cu"]
    for name in ("gemm.cu", "mma.cuh"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert porter_json("clean", "out", "--check")["files"] == []


def test_clean_of_what_is_not_there(tmp_path: Path) -> None:
    porter("clean", tmp_path / "no", code=2)
    (tmp_path / "x.bin").write_bytes(b"\0porter[PT1]: x\n")
    porter("clean", tmp_path)
    porter("clean", tmp_path / "x.bin", code=2)
