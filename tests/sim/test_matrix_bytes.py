# SPDX-License-Identifier: Apache-2.0
"""ldmatrix and stmatrix of 8-bit elements and of packed 4- and 6-bit ones.

The references are the tensors of bit positions that CUTLASS gives for these instructions
(include/cute/atom/copy_traits_sm100.hpp), evaluated coordinate by coordinate. Its wrapper of the 16x16 form
exchanges bytes of the two registers afterwards (include/cute/arch/copy_sm100.hpp), which is undone here.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from core_ptx import download, module_text, run, upload

from porter.sim import GlobalMemory

Modes = list[tuple[int, int]]


def positions(modes: Modes) -> list[int]:
    """A layout's values, the first mode fastest."""
    ranges = [range(size) for size, _ in reversed(modes)]
    return [sum(i * s for i, (_, s) in zip(reversed(c), modes, strict=True)) for c in itertools.product(*ranges)]


def moved(source: tuple[Modes, Modes], target: tuple[Modes, Modes]) -> dict[tuple[int, int], tuple[int, int]]:
    """{(target thread, byte): (source thread, byte)} where both hold the same bits."""

    def places(layout: tuple[Modes, Modes]) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for (t, base), (v, offset) in itertools.product(*(enumerate(positions(m)) for m in layout)):
            if v % 8 == 0:
                found.setdefault(base + offset, (t, v // 8))
        return found

    at = places(source)
    return {place: at[bit] for bit, place in places(target).items()}


LOAD_16 = [(2, 128), (2, 1024), (4, 256)]
REGISTERS_16: tuple[Modes, Modes] = ([(4, 256), (8, 8)], [(8, 1), (2, 128), (2, 64), (2, 1024)])
WARP = """
.reg .b64 %d<6>; .reg .b32 %r<12>; .shared .align 16 .b8 tile[512];
ld.param.u64 %d0, [in]; ld.param.u64 %d1, [out]; mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; mov.u32 %r2, tile;
add.u32 %r3, %r2, %r1; cvt.u64.u32 %d2, %r1; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;
mov.u32 %r4, 0; mov.u32 %r5, 0; mov.u32 %r6, 0; mov.u32 %r7, 0;
"""
FILL = ".reg .b128 %q; ld.global.b128 %q, [%d3]; st.shared.b128 [%r3], %q; bar.sync 0;"
DUMP = "st.global.v4.b32 [%d4], {%r4, %r5, %r6, %r7}; ret;"


def load(instruction: str, data: np.ndarray) -> np.ndarray:
    memory = GlobalMemory()
    source, out = upload(memory, data), memory.alloc(512)
    outcome = run(module_text(["in", "out"], WARP + FILL + instruction + DUMP, "sm_100a"), [source, out], memory)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return download(memory, out, 512, np.uint8).reshape(32, 16)


def test_16x16_bytes_transposed() -> None:
    data = np.random.default_rng(0).integers(0, 256, (32, 16)).astype(np.uint8)
    got = load("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r4, %r5}, [%r3];", data)
    # dst0 = {tmp0.x, tmp0.y, tmp1.x, tmp1.y}, dst1 = {tmp0.z, tmp0.w, tmp1.z, tmp1.w}
    wrapped = got[:, [0, 1, 4, 5, 2, 3, 6, 7]]
    places = moved((LOAD_16, [(128, 1)]), REGISTERS_16)
    assert len(places) == 256
    for (thread, byte), (row, column) in places.items():
        assert wrapped[thread, byte] == data[row, column]
    both = load("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {%r4, %r5, %r6, %r7}, [%r3];", data)
    np.testing.assert_array_equal(both[:, :8], got[:, :8])
    second = load("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r4, %r5}, [%r3];", np.roll(data, 16, axis=0))
    np.testing.assert_array_equal(both[:, 8:], second[:, :8])


@pytest.mark.parametrize(("source", "width", "shift"), [("b4x16_p64", 4, 2), ("b6x16_p32", 6, 1)])
def test_packed_elements(source: str, width: int, shift: int) -> None:
    codes = np.random.default_rng(1).integers(0, 1 << width, (32, 16))
    packed = [sum(int(c) << width * i for i, c in enumerate(row)).to_bytes(16, "little") for row in codes]
    data = np.frombuffer(b"".join(packed), np.uint8).reshape(32, 16)
    registers = "{%r4, %r5, %r6, %r7}"
    got = load(f"ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.{source} {registers}, [%r3];", data)
    # Threads in order hold the bytes of the rows in order.
    wanted = (codes << shift).astype(np.uint8)
    for matrix in range(4):
        rows = wanted[8 * matrix : 8 * matrix + 8].reshape(32, 4)
        np.testing.assert_array_equal(got[:, 4 * matrix : 4 * matrix + 4], rows)
    got = load(f"ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8x16.{source} {registers}, [%r3];", data)
    whole = load(f"ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {registers}, [%r3];", wanted)
    np.testing.assert_array_equal(got, whole)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_storing_bytes_transposed(count: int) -> None:
    data = np.random.default_rng(2).integers(0, 256, (32, 16)).astype(np.uint8)
    memory = GlobalMemory()
    source, out = upload(memory, data), memory.alloc(512)
    names = ", ".join(f"%r{4 + i}" for i in range(count))
    body = f"""
    ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%d3]; .reg .b128 %q; mov.b64 %d5, 0; mov.b128 %q, {{%d5, %d5}};
    st.shared.b128 [%r3], %q; bar.sync 0;
    stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [%r3], {{{names}}}; bar.sync 0;
    ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r3]; {DUMP}
    """
    outcome = run(module_text(["in", "out"], WARP + body, "sm_100a"), [source, out], memory)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    got = download(memory, out, 512, np.uint8).reshape(32, 16)
    layout: tuple[Modes, Modes] = ([(4, 256), (8, 8)], [(8, 1), (2, 128), (2, 64), (count, 1024)])
    places = moved(layout, ([(8 * count, 128)], [(128, 1)]))
    assert len(places) == 128 * count
    for (row, column), (thread, byte) in places.items():
        assert got[row, column] == data[thread, byte]
    assert not got[8 * count :].any()
