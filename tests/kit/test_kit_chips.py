# SPDX-License-Identifier: Apache-2.0
"""Chips that a kit is for without being asked: what they lack keeps no run of others away."""

from __future__ import annotations

from pathlib import Path

import pytest
from click import Command, Context

from porter.build.toolchain import find_toolkit
from porter.cli import kit
from porter.cli.context import Session, install
from porter.diagnostics import Code, ExitCode, exit_code_of
from porter.verify.case import load_case

CORPUS = Path(__file__).resolve().parents[2] / "corpus"


@pytest.mark.parametrize(
    ("name", "target", "said", "programs"),
    [
        ("gemm_int8", "sm_100a", Code.KIT_WITHOUT_CHIP, ["original", "port"]),
        ("gemm_int8", "sm_110a", Code.KIT_WITHOUT_CHIP, ["original", "port", "port-sm_110a"]),
        ("gemm_int8", "sm_103a", Code.TARGET_LACKS, ["original", "port"]),
        ("gemm_tma", "sm_100a", None, ["original", "port", "port-sm_103a"]),
    ],
)
def test_chips_that_lack_instructions(name: str, target: str, said: Code | None, programs: list[str]) -> None:
    """Matter where they are asked for."""
    session = Session(style="compat", target=target)
    with Context(Command("kit")):
        install(session)
        cases = [load_case(CORPUS / name / "case.yaml")]
        runs, notes = kit._runs(session, cases, None, [], ["integers"], 0, find_toolkit(), None, None)
    assert [run.program for run in runs] == programs
    codes = {d.code for d in notes}
    assert codes >= ({said} if said else set())
    lacking = said is Code.TARGET_LACKS
    assert exit_code_of(notes) is (ExitCode.UNPORTED if lacking else ExitCode.OK)
    if not lacking and said:
        (note,) = notes
        assert "kind::i8" in note.message
        assert "sm_103a" in note.message
