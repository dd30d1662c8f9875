# SPDX-License-Identifier: Apache-2.0
"""tcgen05.ld.red: its reduction is a result like the others, to be read after tcgen05.wait::ld (PTX ISA 9.7.16.8.3)."""

from __future__ import annotations

import pytest
from check_ptx import check, found

from porter.sim import Outcome

KERNEL = """tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r9], 64; ld.shared.u32 %r10, [%r9];
mov.b32 %r40, 0; tcgen05.st.sync.aligned.32x32b.x4.b32 [%r10], {{%r40, %r40, %r0, %r40}}; tcgen05.wait::st.sync.aligned;
{load} {between} {use} {end} tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 64; ret;
"""
WAIT = "tcgen05.wait::ld.sync.aligned;"
LOADS = [
    "32x32b.x2.min.u32 {%r42, %r43}, %r46, [%r10];",
    "32x32b.x2.max.s32 {%r42, %r43}, %r46, [%r10];",
    "32x32b.x4.min.f32 {%r42, %r43, %r44, %r45}, %r46, [%r10];",
    "32x32b.x4.max.abs.f32 {%r42, %r43, %r44, %r45}, %r46, [%r10];",
    "32x32b.x4.max.abs.NaN.f32 {%r42, %r43, %r44, %r45}, %r46, [%r10];",
    "16x32bx2.x2.min.s32 {%r42, %r43}, %r46, [%r10], 2;",
]
USES = {
    "stored": "mul.wide.u32 %d2, %r0, 4; add.u64 %d3, %d1, %d2; st.global.u32 [%d3], %r46;",
    "added": "add.u32 %r50, %r46, 1;",
    "compared": "setp.eq.u32 %p5, %r46, 0;",
    "copied_then_used": "mov.b32 %r50, %r46; add.u32 %r51, %r50, 1;",
    "packed_then_used": "mov.b64 %d5, {%r46, %r40}; add.u64 %d6, %d5, 1;",
    "address": "cvt.u64.u32 %d5, %r46;",
    "shuffled": "shfl.sync.bfly.b32 %r50, %r46, 1, 31, 0xffffffff;",
    "stored_to_tensor_memory": "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r10+32], {%r46};"
                               "tcgen05.wait::st.sync.aligned;",
}  # fmt: skip


def run(load: str, use: str, wait: bool, level: str = "strict") -> Outcome:
    opcode, operands = load.split(" ", 1)
    written = KERNEL.format(
        load=f"tcgen05.ld.red.sync.aligned.{opcode} {operands}", between=WAIT if wait else "", use=use,
        end="" if wait else WAIT,
    )  # fmt: skip
    outcome = check(written, target="sm_103a", threads=32, level=level)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return outcome


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("use", USES)
def test_the_reduction_is_there_after_the_wait(load: str, use: str) -> None:
    assert not run(load, USES[use], wait=True).hazards
    assert found(run(load, USES[use], wait=False)) == {"H31"}
    assert found(run(load, USES[use], wait=False, level="practice"), "review") == {"H31"}


def test_the_use_of_the_reduction_alone_does_not_stand_for_the_wait() -> None:
    """In practice a load whose registers have all been used is over; here two of three have not been."""
    load = f"tcgen05.ld.red.sync.aligned.{LOADS[0]}"
    used = {"reduction": "%r46", "all": "%r46, %r42, %r43"}
    for what, names in used.items():
        use = "".join(f"add.u32 %r50, {name}, 1; " for name in names.split(", "))
        store = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r10], {%r40}; tcgen05.wait::st.sync.aligned;"
        body = KERNEL.format(load=load, between=use, use=store, end="")
        outcome = check(body, target="sm_103a", threads=32, level="practice")
        severity = "review" if what == "all" else "error"
        assert "H6" in found(outcome, severity)
