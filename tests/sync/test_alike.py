# SPDX-License-Identifier: Apache-2.0
"""Launches for which an entry does the same, so that one execution stands for all of them."""

from __future__ import annotations

import numpy as np
import pytest
from small_kernels import HEAD
from turning_kernels import flow_of

from porter.facts.launched import GLOBAL, Geometry, Launched
from porter.facts.machine import Machine
from porter.facts.tensor_maps import box_of
from porter.ptx.tensormap import TensorMap, TensorMapType
from porter.sync.alike import has_boxes, what_decides

GIVEN = """ld.param.u32 %r4, [M];
mov.u32 %r5, %ctaid.x;
ld.param.u64 %d0, [out];
"""
NOTHING = {
    "an address": "mul.wide.u32 %d1, %r4, 4;\nadd.u64 %d0, %d0, %d1;\nst.global.u32 [%d0], %r0;\n",
    "what is stored": "st.global.u32 [%d0], %r4;\n",
    "an address by the block": "mad.lo.u32 %r6, %r5, %r4, %r0;\nmul.wide.u32 %d1, %r6, 4;\nadd.u64 %d0, %d0, %d1;\n"
    "st.global.u32 [%d0], %r0;\n",
    "data in shared memory": "ld.global.u32 %r6, [%d0];\nadd.u32 %r6, %r6, %r0;\nst.shared.u32 [%r2], %r0;\n",
    "nothing that is used": "add.u32 %r6, %r4, %r5;\n",
}
SOMETHING = {
    "a guard": "setp.gt.u32 %p1, %r4, 3;\n@%p1 st.shared.u32 [%r2], %r0;\n",
    "a branch": "setp.gt.u32 %p1, %r5, 3;\n@%p1 bra $END;\nbar.sync 0;\n$END:\n",
    "the guard of a store": "setp.gt.u32 %p1, %r4, 3;\n@%p1 st.global.u32 [%d0], %r0;\n",
    "an address in shared memory": "shl.b32 %r6, %r4, 2;\nadd.u32 %r6, %r6, %r2;\nst.shared.u32 [%r6], %r0;\n",
    "a number in shared memory": "st.shared.u32 [%r2], %r4;\n",
    "a count": "@%p0 mbarrier.init.shared::cta.b64 [%r1+8], %r4;\n",
    "bytes": "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], %r4;\n",
    "a barrier": "bar.sync %r5;\n",
}
NOT_KNOWN = {
    "an address of any memory": "st.u32 [%d0], %r0;\n",
    "a branch by what is loaded": "ld.global.u32 %r6, [%d0];\nsetp.gt.u32 %p1, %r6, 3;\n@%p1 bar.sync 0;\n",
    "a copy from an address": "cp.async.ca.shared.global [%r2], [%d0], 4;\ncp.async.wait_all;\n",
    "a bulk copy": "@%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%d0], 16, [%r1];\n",
}


def machine(body: str, size: int, block: int) -> Machine:
    head = HEAD.format(threads=32, functions="", parameters=".param .u32 M, .param .u64 out")
    geometry = Geometry((32, 1, 1), (size, 1, 1), first=(block, 0, 0))
    values = {"M": np.uint32(size).tobytes(), "out": np.uint64(GLOBAL).tobytes()}
    return Machine(Launched(flow_of(f"{head}{GIVEN}{body}ret;\n}}\n"), geometry, values))


@pytest.mark.parametrize("name", [*NOTHING, *SOMETHING, *NOT_KNOWN])
def test_what_a_size_decides(name: str) -> None:
    body = (NOTHING | SOMETHING | NOT_KNOWN)[name]
    one, other = (what_decides(machine(body, size, size - 1)) for size in (8, 16))
    assert (one is None) is (name in NOT_KNOWN)
    assert (one == other) is (name not in SOMETHING)


def test_what_is_copied_is_of_one_size() -> None:
    def of_map(rows: int, box: int) -> bytes:
        return TensorMap(TensorMapType.FLOAT16, GLOBAL, (64, rows), (128,), (32, box)).encode()

    copied = {(GLOBAL, "tile"): box_of(of_map(256, 64), "tile")}
    for rows, box, is_same in ((256, 64, True), (512, 64, True), (256, 32, False)):
        launched = machine(NOTHING["what is stored"], 8, 0).launched
        launched.maps = {GLOBAL: of_map(rows, box)}
        assert has_boxes(Machine(launched), copied) is is_same
    assert not has_boxes(machine(NOTHING["what is stored"], 8, 0), copied)
