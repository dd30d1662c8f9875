# SPDX-License-Identifier: Apache-2.0
"""`porter sim --trace --timeline`, on a PTX module."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes_cli import porter, porter_json

PTX = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry twice(.param .u64 out)
{
.reg .b32 %r<4>; .reg .b64 %d<4>;
ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; bar.sync 0; mul.wide.u32 %d1, %r0, 4; add.u64 %d2, %d0, %d1;
st.global.u32 [%d2], %r0; bar.sync 0; ret;
}
"""
RUN = ("--grid", "8", "--block", "64", "--arg", "u32[64]")


@pytest.fixture
def ptx(tmp_path: Path) -> Path:
    path = tmp_path / "twice.ptx"
    path.write_text(PTX)
    return path


def test_trace_is_written_and_what_is_missing_is_said(ptx: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    result = porter("sim", ptx, *RUN, "--trace", out)
    assert f"events in {out}" in result.stderr
    assert "order, not time" in result.stderr
    assert "left out 4 of 8 blocks (twice)" in result.stderr
    assert "events in" not in result.stdout
    names = [e["args"]["name"] for e in json.loads(out.read_text())["traceEvents"] if e["name"] == "process_name"]
    assert [name.partition(",0,0")[0] for name in names] == [f"block {i}" for i in range(4)]


def test_json_says_what_was_traced(ptx: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    document = porter_json("sim", ptx, *RUN, "--trace", out, "--trace-blocks", "0-1,7", "--timeline")
    assert document["trace"]["path"] == str(out)
    assert document["trace"]["left_out"] == "5 of 8 blocks (twice)"
    events = json.loads(out.read_text())["traceEvents"]
    assert document["trace"]["events"] == len(events)
    assert {e["args"]["name"].split(",")[0] for e in events if e["name"] == "process_name"} == {
        "block 0", "block 1", "block 7"}  # fmt: skip
    assert "trace" not in porter_json("sim", ptx, *RUN)


def test_timeline_is_a_result(ptx: Path) -> None:
    plain = porter("sim", ptx, *RUN, "--timeline", "--trace-blocks", "all", env={"NO_COLOR": "1"}).stdout
    assert "block 0,0,0, twice" in plain
    assert "warp 0-1" in plain
    assert "and 4 more blocks" not in plain
    assert "not shown: 4 more blocks" in plain
    assert "\x1b" not in plain
    assert "\x1b" in porter("--color", "always", "sim", ptx, *RUN, "--timeline").stdout


def test_a_limit_and_a_kernel_name(ptx: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    assert "beyond the limit of 3" in porter("sim", ptx, *RUN, "--trace", out, "--trace-limit", "3").stderr
    assert "left out 8 of 8 blocks" in porter("sim", ptx, *RUN, "--trace", out, "--trace-kernel", "other").stderr


@pytest.mark.parametrize("blocks", ["x", "3-1", "", "1,,2", "-1"])
def test_bad_block_lists_are_refused(ptx: Path, blocks: str) -> None:
    assert "--trace-blocks" in porter("sim", ptx, *RUN, "--timeline", "--trace-blocks", blocks, code=2).stderr


def test_a_file_that_cannot_be_written_is_said_before_the_run(ptx: Path, tmp_path: Path) -> None:
    result = porter("sim", ptx, *RUN, "--trace", tmp_path / "absent" / "trace.json", code=2)
    assert "no such directory" in result.stderr
    assert "warp instructions" not in result.stdout
