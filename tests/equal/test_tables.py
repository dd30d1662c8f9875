# SPDX-License-Identifier: Apache-2.0
"""Tables of the module that are tested and combined in one way or another, as what they begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.facts.launched import GLOBAL
from porter.facts.machine import TABLES
from porter.verify.equality import Equality
from porter.verify.program.device import LaunchRecord
from porter.verify.proved_program import Launches, prove_programs

TABLE = ".global .align 4 .u32 table[4] = {5, 12, 3};"
ENTRY = """.visible .entry k(.param .u64 input, .param .u64 output)
{
.reg .pred %p<9>;
.reg .b32 %r<20>;
.reg .f32 %f<9>;
.reg .b64 %d<9>;
mov.u32 %r0, %tid.x;
ld.param.u64 %d0, [input];
ld.param.u64 %d1, [output];
mul.wide.u32 %d2, %r0, 4;
add.s64 %d0, %d0, %d2;
add.s64 %d1, %d1, %d2;
ld.global.f32 %f0, [%d0];
and.b32 %r1, %r0, 3;
mul.wide.u32 %d3, %r1, 4;
mov.u64 %d4, table;
add.s64 %d4, %d4, %d3;
ld.global.u32 %r2, [%d4];
"""
BEHIND = "@%p1 add.f32 %f0, %f0, %f0;\nst.global.f32 [%d1], %f0;\n"
MASKED = "and.b32 %r3, %r2, 4;\nsetp.ne.u32 %p1, %r3, 0;\n" + BEHIND
SHIFTED = "shr.u32 %r3, %r2, {};\nand.b32 %r3, %r3, 1;\nsetp.eq.u32 %p1, %r3, 1;\n" + BEHIND


def said(original: str, port: str, as_begun: frozenset[str] = frozenset(("table",)), table: str = TABLE) -> Equality:
    """What is said of two kernels whose run shows nothing, where variables hold what they begin with."""

    def launches(body: str) -> Launches:
        ptx = f".version 9.0\n.target sm_100a\n.address_size 64\n{table}\n{ENTRY}{body}ret;\n}}\n"
        params = tuple(address.to_bytes(8, "little") for address in (GLOBAL, GLOBAL + (1 << 34)))
        room = ((GLOBAL, 4096), (GLOBAL + (1 << 34), 4096))
        record = LaunchRecord("k", (1, 1, 1), (32, 1, 1), (1, 1, 1), 0, params, room, ptx=ptx, as_begun=as_begun)
        return Launches(Path("k.cu"), [record])

    (found,) = prove_programs(launches(original), launches(port), (), 5)
    assert found.equality is not None
    return found.equality


@pytest.mark.parametrize("space", ["global", "const"])
def test_a_bit_of_a_table_is_tested_in_another_way(space: str) -> None:
    pair = (text.replace("ld.global.u32", f"ld.{space}.u32") for text in (MASKED, SHIFTED.format(2)))
    found = said(*pair, table=TABLE.replace("global", space))
    assert (found.status, TABLES in found.assumed) == ("equal", True)


@pytest.mark.parametrize("bit", [0, 1, 3, 4])
def test_another_bit_of_a_table(bit: int) -> None:
    assert said(MASKED, SHIFTED.format(bit)).status == "unknown"


@pytest.mark.parametrize(
    ("as_begun", "table"),
    [
        (frozenset(), TABLE),
        (frozenset(("table",)), TABLE.replace(" = {5, 12, 3}", "")),
        (frozenset(("table",)), TABLE.replace("table", "other", 1) + TABLE.replace(" = {5, 12, 3}", "")),
    ],
    ids=["the host has written to it", "it begins with nothing", "another table begins with something"],
)
def test_a_table_of_which_nobody_knows_what_it_holds(as_begun: frozenset[str], table: str) -> None:
    assert said(MASKED, SHIFTED.format(2), as_begun, table).status == "unknown"


@pytest.mark.parametrize("before", [True, False])
def test_a_table_that_the_kernel_writes(before: bool) -> None:
    store = "setp.eq.u32 %p2, %r0, 0;\n@%p2 st.global.u32 [%d4], 9;\n"
    pair = [store + text if before else text + store for text in (MASKED, SHIFTED.format(2))]
    assert said(*pair).status == "unknown"


def test_what_is_the_same_for_all_tables_assumes_nothing_of_them() -> None:
    found = said(MASKED, MASKED.replace("and.b32 %r3, %r2, 4", "mov.u32 %r4, 4;\nand.b32 %r3, %r4, %r2"))
    assert (found.status, TABLES in found.assumed) == ("equal", False)
