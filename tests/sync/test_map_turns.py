# SPDX-License-Identifier: Apache-2.0
"""A tensor map that each turn of a loop changes: its box has to be the same for all numbers of turns."""

from __future__ import annotations

import pytest
from turning_kernels import flow_of, wait

from porter.facts.launched import GLOBAL, Geometry, Launched
from porter.facts.machine import Machine
from porter.ptx.tensormap import TensorMap, TensorMapType
from porter.sync.checked import Verdict, check
from porter.sync.turns import Recorder, find_lasso

MAP = TensorMap(TensorMapType.FLOAT16, GLOBAL, (64, 1 << 20), (128,), (32, 8)).encode()
KERNEL = (
    """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u32 turns, .param .u64 map)
.reqntid 32
{
.reg .pred %p<9>;
.reg .b32 %r<32>;
.reg .b64 %d<9>;
.shared .align 1024 .b8 room[1024];
.shared .align 8 .b64 bar;
ld.param.u32 %r1, [turns];
ld.param.u64 %d1, [map];
mov.u32 %r2, %tid.x;
setp.ne.u32 %p1, %r2, 0;
@%p1 bra $OUT;
mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
mov.u32 %r3, bar;
mov.u32 %r4, room;
mov.u32 %r10, 0;
mov.u32 %r12, 0;
mov.u32 %r13, 0;
$TURN:
CHANGE
fence.proxy.tensormap::generic.release.gpu;
fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512;
cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r4], [%d1, {%r13, %r10}], [%r3];
"""
    + wait("$W", "%r3", "%r12")
    + """xor.b32 %r12, %r12, 1;
add.u32 %r10, %r10, 1;
setp.lt.u32 %p6, %r10, %r1;
@%p6 bra $TURN;
$OUT:
ret;
}
"""
)
REPLACE = "tensormap.replace.tile.{field}.global.b1024.b32 [%d1], 1, {value};\n"
# 0, and 1 from the 65th turn on.
LATE = "shr.u32 %r20, %r10, 6;\nmin.u32 %r20, %r20, 1;\nadd.u32 %r21, %r20, 8;\n"
CASES = {
    "the same box": (REPLACE.format(field="box_dim", value=8), True),
    "another box from the 65th turn on": (LATE + REPLACE.format(field="box_dim", value="%r21"), False),
    "another size from the 65th turn on": (LATE + REPLACE.format(field="global_dim", value="%r21"), True),
    "other bytes from the 65th turn on": (LATE + "shl.b32 %r21, %r20, 24;\nst.global.b32 [%d1+124], %r21;\n", False),
}  # fmt: skip
TURNS = 20


@pytest.mark.parametrize("name", CASES)
def test_what_follows_a_counter(name: str) -> None:
    change, is_proved = CASES[name]
    flow = flow_of(KERNEL.replace("CHANGE\n", change))

    def launched(turns: int) -> Launched:
        parameters = {"turns": turns.to_bytes(4, "little"), "map": GLOBAL.to_bytes(8, "little")}
        return Launched(flow, Geometry((32, 1, 1)), parameters, {GLOBAL: MAP})

    runs = []
    for turns in range(1, TURNS + 1):
        machine = Machine(launched(turns))
        runs.append(Recorder(machine))
        assert check(machine.launched, machine=machine).verdict is Verdict.CLEAN
    lasso = find_lasso(runs)
    assert lasso is not None
    assert (not lasso.why_not and lasso.needed <= TURNS) is is_proved, lasso
    late = check(launched(70)).verdict
    assert (late is Verdict.CLEAN) is (is_proved or "bytes" in name)
