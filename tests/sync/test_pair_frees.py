# SPDX-License-Identifier: Apache-2.0
"""Columns of a pair of blocks: what one block frees while the other one may use them is to review, whichever is
executed first."""

from __future__ import annotations

import pytest
from test_pairs_and_clusters import HEAD

from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.facts.launched import Geometry, Launched
from porter.facts.machine import Schedule
from porter.ptx.parser import parse_module
from porter.sync.checked import Rulings, check

MEET = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"
KERNEL = f"""tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r2], 32;
{MEET}ld.shared.b32 %r4, [%r2];
setp.eq.u32 %p2, %r3, FREES;
@%p2 bra FREE;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r4], {{%r0}};
tcgen05.wait::st.sync.aligned;
BETWEEN
bra MET;
FREE:
ORDER
tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r4, 32;
MET:
ret;
}}
"""


def kinds(text: str, rulings: Rulings, backward: bool) -> set[tuple[str, str]]:
    module = parse_module(HEAD + text)
    launched = Launched(Flow(Code(module, module.entries()[0])), Geometry((32, 1, 1), (2, 1, 1), (2, 1, 1)), {})
    found = check(launched, Schedule(backward=backward), rulings=rulings)
    return {(f.kind, f.level) for f in found.findings if f.kind in ("H14", "L2")}


@pytest.mark.parametrize("frees", [0, 1])
@pytest.mark.parametrize("backward", [False, True])
def test_whichever_block_is_executed_first(frees: int, backward: bool) -> None:
    text = KERNEL.replace("FREES", str(frees)).replace("BETWEEN\n", "").replace("ORDER\n", "")
    assert kinds(text, "strict", backward) == {("L2", "strict")}
    assert kinds(text, "practice", backward) == {("L2", "review")}


def test_blocks_that_meet_ahead_of_it() -> None:
    fences = ("tcgen05.fence::before_thread_sync;\n" + MEET, MEET + "tcgen05.fence::after_thread_sync;\n")
    text = KERNEL.replace("FREES", "0").replace("BETWEEN\n", fences[0]).replace("ORDER\n", fences[1])
    assert not kinds(text, "strict", False)
