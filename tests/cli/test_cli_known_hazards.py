# SPDX-License-Identifier: Apache-2.0
"""`porter hazards --baseline`: only what is new is told, whatever lines have moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from porter.cli.main import main
from porter.report.json import schema

HEADER = """.version 8.7
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 dyn[];
.visible .entry {name}(.param .u64 in, .param .u64 out)
{{
.reg .b32 %r<99>; .reg .pred %p<10>;
mov.u32 %r2, dyn; mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32;
@%p1 bra READ;
"""
STORE, LOAD, OTHER = "st.shared.b32 [%r2], %r1;", "ld.shared.b32 %r3, [%r2];", "st.shared.u32 [%r2], %r1;"


def kernel(writes: list[str], reads: list[str], *, blank: int = 0, name: str = "kernel") -> str:
    """Warp 0 executes `writes`, warp 1 `reads`, and nothing orders them. `blank`: lines ahead of both."""
    lines = [*[""] * blank, *writes, "ret;", "READ:", *reads, "ret;", "}", ""]
    return HEADER.format(name=name) + "\n".join(lines)


def hazards(path: Path, text: str, *more: str) -> Result:
    path.write_text(text)
    args = ["hazards", str(path), "--arg", "0", "--arg", "0", "--block", "64", "--smem", "1024", *more]
    return CliRunner().invoke(main, args, catch_exceptions=False)


def told(path: Path, text: str, *more: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(hazards(path, text, "--format", "json", *more).stdout)
    jsonschema.validate(document, schema("hazards"))
    return document


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The document of a kernel with one store that another warp reads."""
    path = tmp_path / "before.json"
    document = told(tmp_path / "kernel.ptx", kernel([STORE], [LOAD]))
    assert document["exit_code"] == 5
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("blank", [0, 1, 40])
def test_what_is_known_is_counted_and_sets_no_exit_code(tmp_path: Path, before: Path, blank: int) -> None:
    result = hazards(tmp_path / "kernel.ptx", kernel([STORE], [LOAD], blank=blank), "--baseline", str(before))
    assert result.exit_code == 0
    assert "1 known before" in result.output
    assert "hazard G1" not in result.output


@pytest.mark.parametrize(
    ("writes", "reads", "name"),
    [
        ([STORE], [LOAD, LOAD], "kernel"),
        ([OTHER], [LOAD], "kernel"),
        ([STORE], [OTHER], "kernel"),
        ([STORE], [LOAD], "other"),
    ],
    ids=["once more", "another access first", "another access second", "another kernel"],
)
def test_what_is_new_is_told(tmp_path: Path, before: Path, writes: list[str], reads: list[str], name: str) -> None:
    result = hazards(tmp_path / "kernel.ptx", kernel(writes, reads, name=name), "--baseline", str(before))
    assert result.exit_code == 5
    assert "hazard G1" in result.output


def test_of_two_alike_the_one_on_the_known_line_is_known(tmp_path: Path, before: Path) -> None:
    text = kernel([STORE], [LOAD, "", "", LOAD])
    document = told(tmp_path / "kernel.ptx", text, "--baseline", str(before))
    (run,) = document["runs"]
    (new,), (known,) = run["hazards"], run["known"]
    assert known["second"]["ptx_line"] + 3 == new["second"]["ptx_line"]


def test_a_document_made_with_one_is_one(tmp_path: Path, before: Path) -> None:
    text = kernel([STORE], [LOAD, LOAD])
    second = tmp_path / "second.json"
    second.write_text(json.dumps(told(tmp_path / "kernel.ptx", text, "--baseline", str(before))))
    assert hazards(tmp_path / "kernel.ptx", text, "--baseline", str(second)).exit_code == 0


def test_what_is_no_such_document_is_refused(tmp_path: Path, before: Path) -> None:
    path = tmp_path / "kernel.ptx"
    text = kernel([STORE], [LOAD])
    other = tmp_path / "other.json"
    other.write_text(CliRunner().invoke(main, ["explain", "--format", "json", "PT0001"]).stdout)
    for wrong in (tmp_path / "missing.json", path, other):
        result = hazards(path, text, "--baseline", str(wrong))
        assert result.exit_code == 2, result.output
    assert "--baseline" in hazards(path, text, "--prove", "--baseline", str(before)).output
