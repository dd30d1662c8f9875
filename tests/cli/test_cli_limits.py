# SPDX-License-Identifier: Apache-2.0
"""What is no file, or too much, is one message."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from fakes_cli import porter

PTX = """\
.version 8.0
.target sm_90a
.address_size 64
%s
.visible .entry k(.param .u64 p) { ret; }
"""
LAUNCH = ("--block", "32", "--arg", "f32[32]")


@pytest.mark.parametrize("name", ["k.cu", "k.py"])
@pytest.mark.parametrize("command", ["scan", "plan", "port"])
def test_a_pipe_is_not_waited_for(command: str, name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    began = time.monotonic()
    assert "PT0099" not in porter(command, tmp_path / name, code=2).output
    assert time.monotonic() - began < 10


def test_a_file_of_fifty_megabytes(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_bytes(b"int x;\n" * 7_500_000)
    assert "PT1001" in porter("port", tmp_path / "k.cu", code=2).output


def test_an_include_of_five_thousand_characters(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(f'#include "{"a" * 5000}"\n__global__ void k() {{}}\n')
    assert "PT0099" not in porter("scan", tmp_path / "k.cu", code=None).output


def test_two_billion_blocks(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(PTX % "")
    assert "PT4002" in porter("sim", tmp_path / "k.ptx", "--grid", "2000000000", *LAUNCH, code=6).output


def test_a_variable_of_a_terabyte(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(PTX % ".global .align 16 .b8 huge[1099511627776];")
    assert "PT0099" not in porter("sim", tmp_path / "k.ptx", "--grid", "1", *LAUNCH, code=2).output
