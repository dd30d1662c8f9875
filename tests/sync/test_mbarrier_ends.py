# SPDX-License-Identifier: Apache-2.0
"""mbarriers that are made invalid at the end, bytes that are expected by another thread than the one that arrives, and
which of two findings about one pair of places stays."""

from __future__ import annotations

import pytest
from turning_kernels import flow_of, launched, ring

from porter.sync.checked import Verdict, check
from porter.sync.findings import Findings, Level

INVALID = "".join(f"mbarrier.inval.shared::cta.b64 [{name}+{8 * i}];\n" for name in ("full", "empty") for i in (0, 1))
END = "$OUT:\nret;\n"


def verdict(text: str, turns: int = 5) -> Verdict:
    return check(launched(flow_of(text), turns)).verdict


def invalid(text: str, meet: str) -> str:
    assert text.count(END) == 1
    return text.replace(END, f"$OUT:\n{meet}setp.ne.u32 %p8, %r2, 0;\n@%p8 bra $END;\n{INVALID}$END:\nret;\n")


def test_what_comes_behind_all_uses_is_right() -> None:
    assert verdict(invalid(ring(), "bar.sync 0;\n")) is Verdict.CLEAN


NO_SLOTS = ring(wait_empty="", store="").replace("ld.shared.u32 %r20, [%r17];\n", "")


@pytest.mark.parametrize("text", [ring(wait_empty=""), NO_SLOTS], ids=["slots", "phases alone"])
def test_mistakes_do_not_end_with_their_mbarrier(text: str) -> None:
    assert verdict(text) is Verdict.ERROR
    assert verdict(invalid(text, "bar.sync 0;\n")) is Verdict.ERROR


def test_an_end_ahead_of_uses_is_found() -> None:
    assert verdict(invalid(ring(), "")) is Verdict.ERROR


EXPECTED = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u32 turns)
.reqntid 64
{{
.reg .pred %p<9>;
.reg .b32 %r<9>;
.reg .b64 %d<3>;
.shared .align 16 .b8 slots[64];
.shared .align 8 .b64 full;
mov.u32 %r2, %tid.x;
mov.u64 %d1, 2199023255552;
setp.ne.u32 %p1, %r2, 0;
@%p1 bra $READY;
mbarrier.init.shared::cta.b64 [full], 1;
fence.mbarrier_init.release.cluster;
$READY:
bar.sync 0;
setp.ne.u32 %p3, %r2, 32;
@%p3 bra $ON;
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [full], 64;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [slots], [%d1], 64, [full];
$ON:
{meet}
@%p1 bra $WAIT;
mbarrier.arrive.shared::cta.b64 _, [full];
$WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p4, [full], 0;
@!%p4 bra $WAIT;
ret;
}}
"""


def test_bytes_are_expected_ahead_of_the_arrival() -> None:
    assert verdict(EXPECTED.format(meet="bar.sync 0;")) is Verdict.CLEAN
    found = check(launched(flow_of(EXPECTED.format(meet="")), 1))
    assert "bytes" in {f.kind for f in found.findings}


@pytest.mark.parametrize("levels", [("review", "error"), ("error", "review"), ("strict", "error")])
def test_of_two_findings_the_worse_one_stays(levels: tuple[Level, Level]) -> None:
    findings = Findings()
    for level in levels:
        findings.add("H18", level, 2, first=1, level=level)
    assert [f.level for f in findings.all()] == ["error"]
