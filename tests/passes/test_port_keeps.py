# SPDX-License-Identifier: Apache-2.0
"""`// porter: keep PTR...`: an edit that stands alone is not made there; a kernel's port is whole or is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from kernels import GEMM
from ported_text import port

from porter.diagnostics import Code, ExitCode

HOST = "bool fits(P p) {{ return p.major == 9;{} }}\n"


def codes(tmp_path: Path, text: str) -> tuple[str, list[Code]]:
    result = port(tmp_path, text)
    return result.files[str(tmp_path / "kernel.cu")].decode(), [d.code for d in result.diagnostics]


def test_an_edit_that_stands_alone_is_left_out_and_named(tmp_path: Path) -> None:
    made, said = codes(tmp_path, f"{GEMM}\n{HOST.format('')}")
    assert "p.major == 10" in made
    assert Code.PLACE_KEPT not in said
    made, said = codes(tmp_path, f"{GEMM}\n{HOST.format(' // porter: keep PTR210')}")
    assert "p.major == 9" in made
    assert "tcgen05" in made
    assert said.count(Code.PLACE_KEPT) == 1


def test_other_places_of_the_rule_are_ported(tmp_path: Path) -> None:
    text = f"{GEMM}\n{HOST.format('')}// porter: keep PTR210\n{HOST.format('').replace('fits', 'kept')}"
    made, _ = codes(tmp_path, text)
    assert made.count("p.major == 10") == made.count("p.major == 9") == 1


@pytest.mark.parametrize("rule", ["PTR110", "PTR120"])
def test_an_edit_that_the_port_needs_stops_it(tmp_path: Path, rule: str) -> None:
    lines = GEMM.split("\n")
    word = {"PTR110": "wgmma.mma_async", "PTR120": "wgmma.fence"}[rule]
    at = next(i for i, line in enumerate(lines) if word in line)
    while "asm" not in lines[at]:
        at -= 1
    lines.insert(at, f"// porter: keep {rule}")
    result = port(tmp_path, "\n".join(lines))
    assert result.exit_code is ExitCode.UNPORTED
    assert not result.changed
    (said,) = [d for d in result.diagnostics if d.code is Code.RULE_IGNORED]
    assert said.where is not None
    assert said.where.line == at + 1


def test_a_comment_that_keeps_no_edit_is_named(tmp_path: Path) -> None:
    _, said = codes(tmp_path, f"{GEMM}\nint a; // porter: keep PTR210\n")
    assert said.count(Code.KEEP_UNUSED) == 1
    # findings of `porter check` are none of the port's
    _, said = codes(tmp_path, f"{GEMM}\nint a; // porter: keep PT7001\n")
    assert Code.KEEP_UNUSED not in said


def test_sources_without_comments_are_ported_as_ever(tmp_path: Path) -> None:
    assert codes(tmp_path, GEMM)[0] == codes(tmp_path, GEMM + "// porter: is a tool\n")[0].removesuffix(
        "// porter: is a tool\n"
    )
