# SPDX-License-Identifier: Apache-2.0
"""`porter hazards --prove`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from corpus_kernels import CORPUS

from porter.cli.main import main
from porter.report.json import schema

RING = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry mailbox(.param .u32 turns)
.reqntid 64
{
.reg .pred %p<8>;
.reg .b32 %r<16>;
.shared .align 4 .b8 word[4];
.shared .align 8 .b64 ready;
ld.param.u32 %r1, [turns];
mov.u32 %r2, %tid.x;
mov.u32 %r4, word;
mov.u32 %r5, ready;
setp.ne.u32 %p1, %r2, 0;
@%p1 bra $READY;
mbarrier.init.shared::cta.b64 [%r5], 1;
$READY:
bar.sync 0;
mov.u32 %r6, 0;
and.b32 %r3, %r2, 31;
setp.ne.u32 %p2, %r3, 0;
@%p2 bra $OUT;
setp.ne.u32 %p3, %r2, 0;
@%p3 bra $READ;
$WRITE:
st.shared.u32 [%r4], %r6;
mbarrier.arrive.shared::cta.b64 _, [%r5];
add.u32 %r6, %r6, 1;
setp.lt.u32 %p4, %r6, %r1;
@%p4 bra $WRITE;
bra $OUT;
$READ:
and.b32 %r7, %r6, 1;
$AGAIN:
mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r5], %r7;
@!%p5 bra $AGAIN;
ld.shared.u32 %r8, [%r4];
add.u32 %r6, %r6, 1;
setp.lt.u32 %p4, %r6, %r1;
@%p4 bra $READ;
$OUT:
ret;
}
"""
LAUNCH = """version: 1
entry: mailbox
launch: {grid: [1, 1, 1], block: [64, 1, 1]}
params: [{value: TURNS, type: u32}]
"""


@pytest.fixture
def launch(tmp_path: Path) -> list[str]:
    (tmp_path / "k.ptx").write_text(RING)
    (tmp_path / "launch.yaml").write_text(LAUNCH)
    return ["--ptx", str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "launch.yaml")]


def test_a_port_is_proved_for_all_multiples() -> None:
    words = ["hazards", "--prove", "--only", "port", "--style", "compat"]
    result = CliRunner().invoke(main, [*words, str(CORPUS / "gemm_tma")])
    assert result.exit_code == 0, result.output
    assert "proved" in result.output
    assert "K: all multiples of 64" in result.output
    assert "M: has no part in it" in result.output


def test_who_waits_for_ever_is_said_with_what_it_waits_for(launch: list[str], tmp_path: Path) -> None:
    (tmp_path / "launch.yaml").write_text(LAUNCH.replace("{value: TURNS, type: u32}", "6"))
    result = CliRunner().invoke(main, ["--format", "json", "hazards", "--prove", *launch])
    assert result.exit_code == 5, result.output
    document = json.loads(result.stdout)
    jsonschema.validate(document, schema("prove"))
    (proof,) = document["proofs"]
    assert proof["status"] == "hazard"
    assert {f["id"] for f in proof["findings"]} == {"deadlock"}
    (waiting,) = proof["waiting"]
    assert (waiting["barrier"], waiting["cause"]) == ("mbarrier ready", "parity")
    assert "phase 6 (parity 0): 0 of 1 arrivals" in waiting["state"]
    assert [by["warp"] for by in waiting["by"]] == ["block 0 warp 1"]
    result = CliRunner().invoke(main, ["hazards", "--prove", *launch])
    assert "likely cause, parity: block 0 warp 1 has not waited for phase 5, which is over" in result.output
    assert "waited for at PTX line 36 by block 0 warp 1 lane 0" in result.output


def test_one_turn_has_no_hazard(launch: list[str], tmp_path: Path) -> None:
    (tmp_path / "launch.yaml").write_text(LAUNCH.replace("{value: TURNS, type: u32}", "1"))
    result = CliRunner().invoke(main, ["hazards", "--prove", *launch])
    assert result.exit_code == 0, result.output


def test_what_is_not_understood_is_no_proof(launch: list[str], tmp_path: Path) -> None:
    text = RING.replace("bar.sync 0;\n", "bar.sync 0;\ncall.uni elsewhere;\n")
    (tmp_path / "k.ptx").write_text(text)
    (tmp_path / "launch.yaml").write_text(LAUNCH.replace("{value: TURNS, type: u32}", "1"))
    result = CliRunner().invoke(main, ["hazards", "--prove", *launch])
    assert result.exit_code == 6, result.output
    assert "unknown: the function of call.uni" in result.output


def test_it_is_for_cases_and_launches(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(RING)
    result = CliRunner().invoke(main, ["hazards", "--prove", str(tmp_path / "k.ptx")])
    assert result.exit_code == 2
    assert "--prove" in result.output


def test_a_step_that_the_sizes_do_not_show_is_found() -> None:
    """All multiples of 288 are multiples of 32, which are the turns of the loop."""
    words = [
        "hazards",
        "--prove",
        "--only",
        "original",
        "--seconds",
        "1",
        "--sizes",
        "K=288",
        str(CORPUS / "gemm_tf32"),
    ]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert re.search("K: (all )?multiples of 32", result.output), result.output


@pytest.mark.parametrize(("decides", "assumed"), [(False, False), (True, True)])
def test_data_are_taken_for_numbers_only_where_they_decide(tmp_path: Path, decides: bool, assumed: bool) -> None:
    text = RING.replace("mailbox(.param .u32 turns)", "mailbox(.param .u32 turns, .param .u64 table)")
    use = "setp.ne.u32 %p7, %r9, 0;\n@%p7 bra $OUT;\n" if decides else ""
    load = f".reg .b64 %rd<2>;\nld.param.u64 %rd1, [table];\nld.global.u32 %r9, [%rd1];\n{use}mov.u32 %r6, 0;\n"
    (tmp_path / "k.ptx").write_text(text.replace("mov.u32 %r6, 0;\n", load, 1))
    given = "tensors: {table: {dtype: s32, shape: [2], init: 0}}\nparams: [1, table]"
    launch = LAUNCH.replace("params: [{value: TURNS, type: u32}]", given)
    (tmp_path / "launch.yaml").write_text(launch)
    words = ["hazards", "--prove", "--ptx", str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "launch.yaml")]
    result = CliRunner().invoke(main, ["--format", "json", *words])
    assert result.exit_code == 0, result.output
    (proof,) = json.loads(result.stdout)["proofs"]
    assert any(text.startswith("up to these data") for text in proof["assumed"]) == assumed


def test_turns_beyond_what_can_be_looked_at_leave_the_others_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("porter.facts.executor.MOST_EVENTS", 400)
    words = ["hazards", "--prove", "--only", "original", "--sizes", "M=128,N=128,K=128", str(CORPUS / "gemm_tma")]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, result.output
    assert re.search("K: multiples of 64 up to [0-9]+, not all: more than 400 events", result.output), result.output
