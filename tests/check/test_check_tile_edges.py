# SPDX-License-Identifier: Apache-2.0
"""Tensor stores whose box goes beyond the tensor read only the elements inside (ruling `box-beyond`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from check_ptx import HEADER, found

from porter.ptx.parser import parse_module
from porter.ptx.tensormap import TensorMap, TensorMapSwizzle, TensorMapType
from porter.sim import GlobalMemory, Launch, Options, Outcome, pack_params, simulate
from porter.sim.check.rulings import Ruling
from porter.sim.datapath.tma import store_tile, stored_bytes

BASE = 1 << 20


class Tensor:
    """Global memory that holds one array at BASE."""

    def __init__(self, nbytes: int) -> None:
        self.data = np.zeros(nbytes, np.uint8)

    def view(self, address: int, nbytes: int) -> np.ndarray:
        return self.data[address - BASE : address - BASE + nbytes]


SWIZZLES = [TensorMapSwizzle.NONE, TensorMapSwizzle.B32, TensorMapSwizzle.B64, TensorMapSwizzle.B128]


@pytest.mark.parametrize("swizzle", SWIZZLES, ids=lambda s: s.name)
@pytest.mark.parametrize("coords", [(0, 0), (0, 3), (8, 0), (8, 6), (-8, -2), (24, 0), (40, 0), (0, 0, 1), (8, 4, 2)])
def test_what_a_store_reads(coords: tuple[int, ...], swizzle: TensorMapSwizzle) -> None:
    """Other bytes do not matter, and there are as many as the store writes."""
    sizes, strides, box = (30, 9, 3)[: len(coords)], (64, 640)[: len(coords) - 1], (16, 8, 2)[: len(coords)]
    tensor_map = TensorMap(TensorMapType.UINT16, BASE, sizes, strides, box, swizzle=swizzle)
    assert not tensor_map.problems()
    smem = np.random.default_rng(1).integers(1, 255, 4096).astype(np.uint8)
    one, other = Tensor(4096), Tensor(4096)
    store_tile(tensor_map, one, coords, smem, 1024)
    inside = stored_bytes(tensor_map, coords, 1024)
    if inside is None:
        inside = 1024 + np.arange(tensor_map.shared_bytes)
        assert np.count_nonzero(one.data) == tensor_map.box_bytes
    else:
        assert len(set(inside.tolist())) == inside.size == np.count_nonzero(one.data)
    changed = smem ^ 0xFF
    changed[inside] = smem[inside]
    store_tile(tensor_map, other, coords, changed, 1024)
    np.testing.assert_array_equal(one.data, other.data)


def test_an_illegal_store_reads_nobody_knows_what() -> None:
    tensor_map = TensorMap(TensorMapType.UINT16, BASE, (32, 9), (64,), (16, 8))
    assert stored_bytes(tensor_map, (0, 0), 8) is None
    assert stored_bytes(tensor_map, (0, 0, 0), 0) is None


# Warps fill the rows of a tile of 16 rows of 32 bytes that are named in `filled`, and one thread stores it.
KERNEL = """mad.lo.u32 %r3, %r0, 32, %r2; mov.u32 %r4, 0;
setp.lt.u32 %p4, %r0, {filled}; @%p4 st.shared.v4.u32 [%r3], {{%r4, %r4, %r4, %r4}};
@%p4 st.shared.v4.u32 [%r3+16], {{%r4, %r4, %r4, %r4}};
fence.proxy.async.shared::cta; bar.sync 0;
@%p0 {store}.2d.global.shared::cta{add}.tile.bulk_group [%d0, {{%r5, %r6}}], [%r2];
@%p0 cp.async.bulk.commit_group; {wait}
bar.sync 0;
setp.ge.u32 %p5, %r0, {again}; setp.lt.and.u32 %p5, %r0, 16, %p5; @%p5 st.shared.u32 [%r3], %r4;
@%p0 cp.async.bulk.wait_group 0;
ret;
"""
WAIT = "@%p0 cp.async.bulk.wait_group.read 0;"
STORE, REDUCE = "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor"


def launch(rows: int, filled: int, y: int = 0, again: int = 16, wait: str = WAIT, op: str = STORE,
           level: Any = "strict") -> Outcome:  # fmt: skip
    memory = GlobalMemory()
    out = memory.alloc(4096, fill=0)
    tensor_map = TensorMap(TensorMapType.UINT32, out, (8, rows), (32,), (8, 16))
    where = memory.alloc(128)
    memory.write(where, np.frombuffer(tensor_map.encode(), np.uint8))
    body = KERNEL.format(store=op, add=".add" if op == REDUCE else "", filled=filled, again=again, wait=wait)
    body = f"mov.u32 %r5, 0; mov.s32 %r6, {y};\n" + body
    module = parse_module(HEADER.format(target="sm_90a") + body + "\n}\n")
    params = pack_params(module.function("kernel"), [where, out])
    options = Options(mode="checking", level=level)
    outcome = simulate(module, "kernel", Launch((1, 1, 1), (64, 1, 1), (1, 1, 1), 8192), params, memory, options)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return outcome


@pytest.mark.parametrize("op", [STORE, REDUCE])
@pytest.mark.parametrize(
    ("rows", "filled", "y", "wanted"),
    [
        (16, 16, 0, set()),
        (16, 15, 0, {"U1"}),
        (5, 5, 0, set()),
        (5, 4, 0, {"U1"}),
        (1, 1, 0, set()),
        (20, 4, 16, set()),
        (20, 3, 16, {"U1"}),
        (20, 0, 20, set()),
        (20, 0, 16, {"U1"}),
    ],
)
def test_rows_outside_need_not_be_written(rows: int, filled: int, y: int, wanted: set[str], op: str) -> None:
    assert found(launch(rows, filled, y, op=op)) == wanted
    mild = launch(rows, filled, y, op=op, level="practice")
    assert {(h.kind.id, h.severity, h.ruling) for h in mild.hazards} == {
        (kind, "review", Ruling.NEVER_WRITTEN) for kind in wanted
    }


@pytest.mark.parametrize(("again", "wait", "wanted"), [(5, "", set()), (4, "", {"H27"}), (4, WAIT, set())])
def test_rows_outside_may_be_written_at_once(again: int, wait: str, wanted: set[str]) -> None:
    for level in ("strict", "practice"):
        assert found(launch(5, 16, again=again, wait=wait, level=level)) == wanted
