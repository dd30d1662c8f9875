# SPDX-License-Identifier: Apache-2.0
"""What a port's proof counts against the port, by what is known of its original."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from turning_kernels import flow_of, ring

from porter.sync.checked import Checked
from porter.sync.findings import Finding
from porter.verify.line_map import LineMap
from porter.verify.proved import compared
from porter.verify.proving import Proof

TOLERATED = Finding("H31", "review", "used ahead of its wait", None)
WRONG = Finding("H1", "error", "not in order", None)


def proof(program: str, checked: Checked) -> Proof:
    return Proof("ring", program, "ring", checked, "", (), (), 0.0, frozenset(), flow_of(ring()))


@pytest.mark.parametrize(
    ("original", "introduced"),
    [
        (Checked(()), (TOLERATED, WRONG)),
        (Checked((), unknown="the instruction brkpt", unknown_at=0), (WRONG,)),
        (Checked((TOLERATED,)), (WRONG,)),
        (Checked((WRONG,)), (TOLERATED,)),
    ],
)
def test_what_the_original_has_or_hides_is_not_counted(original: Checked, introduced: tuple[Finding, ...]) -> None:
    lines = LineMap(Path("k.cu"), Path("port.cu"))
    found = compared(proof("original", original), proof("port", Checked((TOLERATED, WRONG))), lines)
    assert found.introduced == introduced


def test_what_is_not_understood_of_the_port_is_no_mistake() -> None:
    port = proof("port", Checked((TOLERATED,), unknown="the instruction brkpt", unknown_at=0))
    assert compared(proof("original", Checked(())), port, LineMap(Path("k.cu"), Path("port.cu"))).introduced == ()


WAITS = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry ring()
{
.reg .pred %p<2>;
.reg .b32 %r<3>;
.reg .b64 %rd<2>;
.reg .b16 %rs<2>;
"""
REMOTE = "mbarrier.arrive.shared::cluster.b64 _, [%r1], %r2;\n"
LOCAL = "mbarrier.arrive.shared.b64 %rd1, [%r1];\n"
COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r1], %rs1;\n"
OF_BLOCK = "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2;\n"
OF_CLUSTER = "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r1], %r2;\n"


def waiting(program: str, body: str, checked: Checked) -> Proof:
    return replace(proof(program, checked), flow=flow_of(WAITS + body + "ret;\n}\n"))


@pytest.mark.parametrize(
    ("original", "port", "introduced"),
    [
        (REMOTE + OF_BLOCK, COMMIT + OF_BLOCK, 0),
        (LOCAL + OF_BLOCK, COMMIT + OF_BLOCK, 1),
        (REMOTE + OF_CLUSTER, COMMIT + OF_BLOCK, 1),
        (REMOTE + OF_CLUSTER, COMMIT + OF_CLUSTER, 1),
    ],
    ids=["the original's waits are such, too", "nobody else arrives there", "its waits are not", "it is the arrival"],
)
def test_waits_that_leave_other_blocks_out(original: str, port: str, introduced: int) -> None:
    narrow = Finding("M1", "review", "one of them with the scope of a block", 1, first=0)
    lines = LineMap(Path("k.cu"), Path("port.cu"))
    found = compared(waiting("original", original, Checked(())), waiting("port", port, Checked((narrow,))), lines)
    assert len(found.introduced) == introduced
    assert len(found.inherited) == 1 - introduced
