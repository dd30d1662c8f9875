# SPDX-License-Identifier: Apache-2.0
"""A thread executes a collective instruction only with a mask that it is in (PTX ISA 9.7.9.6, 9.7.13)."""

from __future__ import annotations

import pytest

from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, simulate

KERNEL = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k() {{
.reg .b32 %r<9>; .reg .pred %p<9>; mov.u32 %r0, %tid.x; setp.lt.u32 %p0, %r0, 16; {body} ret; }}
"""
COLLECTIVES = {
    "elect": "elect.sync _|%p3, {};",
    "shfl": "shfl.sync.idx.b32 %r5, %r0, 0, 31, {};",
    "vote": "vote.sync.ballot.b32 %r5, %p0, {};",
    "bar": "bar.warp.sync {};",
    "match": "match.any.sync.b32 %r5, %r0, {};",
    "redux": "redux.sync.add.s32 %r5, %r0, {};",
}
# What stands before the instruction, its mask, what stands behind; right or wrong.
USES = {
    "all": ("", "0xffffffff", "", True),
    "all, signed": ("", "-1", "", True),
    "half by half": ("@!%p0 bra X;", "0xffff", "X:", True),
    "half by a guard": ("@%p0", "0xffff", "", True),
    "who is there": ("activemask.b32 %r1;", "%r1", "", True),
    "half by all": ("", "0xffff", "", False),
    "a register's by all": ("mov.u32 %r1, 0xff;", "%r1", "", False),
    "the other half": ("@!%p0 bra X;", "0xffff0000", "X:", False),
    "a mask of each half": ("selp.b32 %r1, 0xffff, 0xffff0000, %p0;", "%r1", "", True),
    "the other half's mask": ("selp.b32 %r1, 0xffff0000, 0xffff, %p0;", "%r1", "", False),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_thread_is_in_its_mask(name: str, use: str) -> None:
    before, mask, behind, right = USES[use]
    module = parse_module(KERNEL.format(body=f"{before} {COLLECTIVES[name].format(mask)} {behind}"))
    outcome = simulate(module, "k", Launch((1, 1, 1), (32, 1, 1)), b"", GlobalMemory(), Options())
    assert outcome.status == ("ok" if right else "error"), outcome.findings
    if not right:
        assert "PT4014" in str(outcome.findings[0])
        assert "not in its member mask" in str(outcome.findings[0])
