# SPDX-License-Identifier: Apache-2.0
"""Registers that a kernel with setmaxnreg starts with: what ptxas answers, and that it answers so today."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.build.cache import Cache
from porter.build.ptxas import assemble
from porter.build.toolchain import find_toolkit
from porter.ptx.arch import limits
from porter.ptx.parser import parse_module
from porter.ptx.register_file import allocated, entry_registers, legal_count

DEC = "setmaxnreg.dec.sync.aligned.u32 40;"
BOTH = "setp.lt.u32 %p1, %r1, 128; @%p1 bra A; setmaxnreg.inc.sync.aligned.u32 {}; bra B; A: {} B:"
ONE = ".minnctapersm 1"

# Directives, code, registers per thread at launch; None: setmaxnreg is ignored.
ANSWERS = [
    ("", DEC, None),
    (".maxntid 384", DEC, None),
    (".reqntid 384", DEC, None),
    (ONE, DEC, None),
    (f".maxntid 384 {ONE}", "", None),
    (f".maxntid 1024 {'.minnctapersm 4'}", DEC, None),
    (f".maxntid 384 {ONE}", DEC, 168),
    (f".reqntid 384 {ONE}", DEC, 168),
    (f".maxntid 128, 3, 1 {ONE}", DEC, 168),
    (f".maxntid 288 {ONE}", DEC, 168),
    (f".maxntid 300 {ONE}", DEC, 168),
    (f".maxntid 416 {ONE}", DEC, 128),
    (f".maxntid 128 {ONE}", DEC, 255),
    (f".maxntid 256 {ONE}", DEC, 255),
    (f".maxntid 512 {ONE}", DEC, 128),
    (f".maxntid 640 {ONE}", DEC, 96),
    (f".maxntid 896 {ONE}", DEC, 72),
    (f".maxntid 1024 {ONE}", DEC, 64),
    (".maxntid 384 .minnctapersm 2", DEC, 80),
    (".maxntid 128 .minnctapersm 3", DEC, 168),
    (".maxnreg 100", DEC, 100),
    (".maxnreg 168", DEC, 168),
    (".maxnreg 128 .maxntid 384", DEC, 128),
    (f".maxnreg 100 .maxntid 384 {ONE}", DEC, 100),
    (f".maxnreg 200 .maxntid 384 {ONE}", DEC, 168),
    (f".maxntid 384 {ONE}", "setmaxnreg.inc.sync.aligned.u32 240;", 168),
    (f".maxntid 384 {ONE}", "setmaxnreg.inc.sync.aligned.u32 160;", 160),
    (f".maxntid 384 {ONE}", BOTH.format(240, DEC), 168),
    (f".maxntid 384 {ONE}", BOTH.format(160, DEC), 160),
    (f".maxntid 384 {ONE}", BOTH.format(160, "setmaxnreg.inc.sync.aligned.u32 240;"), 168),
    (f".maxntid 384 {ONE}", DEC + "bar.sync 0; setmaxnreg.inc.sync.aligned.u32 104;", 104),
    (f".maxntid 256 {ONE}", BOTH.format(240, DEC), 240),
]


def text(directives: str, code: str, target: str) -> str:
    return f""".version 8.8
.target {target}
.address_size 64
.visible .entry k(.param .u64 p) {directives}
{{ .reg .b64 %rd<5>; .reg .b32 %r<9>; .reg .pred %p<4>;
ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; {code} st.global.u32 [%rd1], %r1; ret; }}
"""


@pytest.mark.parametrize(("directives", "code", "registers"), ANSWERS)
def test_registers_at_launch(directives: str, code: str, registers: int | None) -> None:
    entry = parse_module(text(directives, code, "sm_90a")).function("k")
    chip = limits("sm_90a")
    instructions = [s for s in entry.body or () if hasattr(s, "parts")]
    found = entry_registers(entry.directives, instructions, chip.registers_per_sm, chip.registers_per_thread)
    assert found == registers


@pytest.mark.external
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize(("directives", "code", "registers"), ANSWERS)
def test_ptxas_answers_so(directives: str, code: str, registers: int | None, target: str, tmp_path: Path) -> None:
    done = assemble(find_toolkit(), text(directives, code, target), target, cache=Cache(tmp_path))
    ignored = any("setmaxnreg" in warning for warning in done.warnings)
    if registers is None:
        assert ignored or not code
    else:
        assert not ignored
        assert done.resources["k"].registers == registers


def test_counts() -> None:
    assert [n for n in range(300) if legal_count(n)] == list(range(24, 257, 8))
    assert [allocated(n) for n in (24, 100, 168, 255)] == [24, 104, 168, 256]
