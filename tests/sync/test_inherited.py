# SPDX-License-Identifier: Apache-2.0
"""What a port's proof counts against the port, by what is known of its original."""

from __future__ import annotations

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
