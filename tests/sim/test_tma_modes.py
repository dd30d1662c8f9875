# SPDX-License-Identifier: Apache-2.0
"""Tensor copies by pixels (im2col) and by rows (gather4, scatter4), and other bulk copies.

`im2col_words.json` holds the SHA-256 of what an H200 copied for maps made by cuTensorMapEncodeIm2col: of tensors
of 32-bit words i * 2246822519 + 12345, packed densely.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_ptx import download, module_text, run, upload

from porter.diagnostics import Code
from porter.ptx.operand_errors import OperandError, UnsupportedOperandError
from porter.ptx.tensormap import TensorMap, TensorMapSwizzle, TensorMapType, TensorMapWide
from porter.sim import GlobalMemory, Options
from porter.sim.datapath.tma import Mode, as_copied, load_tile, store_tile

RECORDED: list[dict[str, Any]] = json.loads((Path(__file__).parent / "im2col_words.json").read_text("utf-8"))
BASE = 1 << 20


class Tensor:
    """Global memory that holds one array at BASE."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data.view(np.uint8).reshape(-1)

    def view(self, address: int, nbytes: int) -> np.ndarray:
        start = address - BASE
        if start < 0 or start + nbytes > self.data.size:
            raise IndexError(hex(address))
        return self.data[start : start + nbytes]


def dense(sizes: list[int], element_bytes: int) -> tuple[int, ...]:
    strides, step = [], element_bytes
    for size in sizes[:-1]:
        step *= size
        strides.append(step)
    return tuple(strides)


@pytest.mark.parametrize("case", RECORDED, ids=lambda c: c["sha256"][:8])
def test_im2col_as_hardware(case: dict[str, Any]) -> None:
    words = (np.arange(1 << 16, dtype=np.uint64) * 2246822519 + 12345).astype(np.uint32)
    kind = TensorMapType.UINT16 if case["element_bytes"] == 2 else TensorMapType.UINT32
    tensor_map = TensorMap(
        kind, BASE, tuple(case["sizes"]), dense(case["sizes"], case["element_bytes"]), tuple(case["box"]),
        tuple(case["element_strides"]), TensorMapSwizzle(case["swizzle"]),
        lower=tuple(case["lower"]), upper=tuple(case["upper"]),
    )  # fmt: skip
    assert TensorMap.decode(tensor_map.encode()) == tensor_map
    smem = np.zeros(1 << 16, np.uint8)
    nbytes = load_tile(tensor_map, Tensor(words), case["coords"], smem, 0, "im2col", case["offsets"])
    assert nbytes == tensor_map.box_bytes
    assert hashlib.sha256(smem[:nbytes].tobytes()).hexdigest() == case["sha256"]


def test_im2col_store_writes_the_pixels_it_would_load() -> None:
    sizes = (8, 5, 4, 2)
    strides = dense(list(sizes), 4)
    tensor_map = TensorMap(TensorMapType.UINT32, BASE, sizes, strides, (8, 12), lower=(-1, 0), upper=(0, -1))
    data = np.zeros(8 * 5 * 4 * 2, np.uint32)
    smem = np.arange(8 * 12, dtype=np.uint32).view(np.uint8)
    store_tile(tensor_map, Tensor(data), (0, 3, 1, 0), smem, 0, "im2col")
    back = np.zeros_like(smem)
    load_tile(tensor_map, Tensor(data), (0, 3, 1, 0), back, 0, "im2col", (0, 0))
    # Columns from 3 on, then -1 to 4 of the following rows; column -1 is outside.
    columns = [3, 4, -1, 0, 1, 2, 3, 4, -1, 0, 1, 2]
    inside = np.array([x >= 0 for x in columns])
    rows = smem.view(np.uint32).reshape(12, 8)
    np.testing.assert_array_equal(back.view(np.uint32).reshape(12, 8), np.where(inside[:, None], rows, 0))
    assert np.count_nonzero(data) == int(inside.sum()) * 8 - 1  # one of the words is zero


@pytest.mark.parametrize("swizzle", [TensorMapSwizzle.NONE, TensorMapSwizzle.B128])
def test_four_rows(swizzle: TensorMapSwizzle) -> None:
    """Gathered rows lie as a tile of four rows does; scattering them puts them back."""
    data = np.arange(64 * 20, dtype=np.uint16).reshape(20, 64)
    rows = [7, -1, 19, 3]
    tensor_map = TensorMap(TensorMapType.UINT16, BASE, (64, 20), (128,), (64, 1), swizzle=swizzle)
    smem = np.zeros(1024, np.uint8)
    assert load_tile(tensor_map, Tensor(data), (8, *rows), smem, 0, "rows") == 512
    wanted = np.zeros((4, 64), np.uint16)
    for i, row in enumerate(rows):
        if row >= 0:
            wanted[i, :56] = data[row, 8:]
    for i in range(4):
        for chunk in range(8):
            place = i * 8 + (chunk ^ i if swizzle is TensorMapSwizzle.B128 else chunk)
            found = smem.view(np.uint16)[place * 8 : place * 8 + 8]
            np.testing.assert_array_equal(found, wanted[i, chunk * 8 : chunk * 8 + 8])
    out = np.zeros_like(data)
    store_tile(tensor_map, Tensor(out), (8, *rows), smem, 0, "rows")
    expected = np.zeros_like(data)
    for row in (7, 19, 3):
        expected[row, 8:] = data[row, 8:]
    np.testing.assert_array_equal(out, expected)


def test_modes_and_maps_must_agree() -> None:
    tiled = TensorMap(TensorMapType.UINT16, BASE, (64, 20), (128,), (64, 2))
    smem = np.zeros(1024, np.uint8)
    with pytest.raises(OperandError, match="boxes of one row"):
        load_tile(tiled, Tensor(smem), (0, 1, 2, 3, 4), smem, 0, "rows")
    with pytest.raises(OperandError, match="im2col tensor map"):
        load_tile(tiled, Tensor(smem), (0, 1), smem, 0, "im2col", ())


# im2col::w: PTX ISA 5.5.5. No recorded words: it needs a Blackwell GPU.

CHANNELS, SIZES = 32, (32, 9, 7, 4)


def wide_map(address: int, wide: TensorMapWide = TensorMapWide.W, **fields: Any) -> TensorMap:
    given: dict[str, Any] = {"box": (CHANNELS, 16), "swizzle": TensorMapSwizzle.B64, "lower": (0,), "upper": (0,)}
    return TensorMap(TensorMapType.UINT16, address, SIZES, dense(list(SIZES), 2), wide=wide, **(given | fields))


def pixels(smem: np.ndarray, count: int) -> np.ndarray:
    """[count, CHANNELS] of a tile with a swizzle of 64 bytes."""
    chunks = smem[: count * 64].reshape(count, 4, 16)
    rows = np.arange(count)[:, None]
    return chunks[rows, np.arange(4)[None, :] ^ (rows // 2 % 4)].reshape(count, 64).view(np.uint16)


# The map, coordinates (channel, w, h, n), (wHalo, wOffset), and the pixels (w, n) that are copied; h stays as it is.
WIDE: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, int], list[tuple[int, int]]]] = {
    "a row and those of the next images": (
        {}, (0, 3, 2, 1), (0, 0), [(w, 1) for w in range(3, 9)] + [(w, 2) for w in range(9)] + [(0, 3)],
    ),
    "within a row": ({"box": (CHANNELS, 4)}, (0, 2, 6, 0), (0, 0), [(w, 0) for w in range(2, 6)]),
    "corners beyond the tensor": (
        {"lower": (-1,), "upper": (1,)}, (0, 8, 0, 0), (0, 0),
        [(8, 0), (9, 0)] + [(w, 1) for w in range(-1, 10)] + [(w, 2) for w in range(-1, 2)],
    ),
    "corners within the tensor": (
        {"lower": (1,), "upper": (-2,)}, (0, 5, 1, 0), (0, 0),
        [(5, 0), (6, 0)] + [(w, n) for n in (1, 2) for w in range(1, 7)] + [(1, 3), (2, 3)],
    ),
    "begins left of the corner": ({"box": (CHANNELS, 3)}, (0, -2, 1, 0), (0, 0), [(-2, 0), (-1, 0), (0, 0)]),
    "past the last image": (
        {"box": (CHANNELS, 12)}, (0, 0, 1, 3), (0, 0), [(w, 3) for w in range(9)] + [(w, 4) for w in range(3)],
    ),
    "in steps": (
        {"element_strides": (1, 2, 1, 1), "lower": (-1,)}, (0, -1, 3, 0), (0, 0),
        [(w, n) for n in (0, 1, 2) for w in range(-1, 9, 2)] + [(-1, 3)],
    ),
    # As in example 1 of 5.5.5.4: even and odd columns in two buffers.
    "shifted, in steps": (
        {"element_strides": (1, 2, 1, 1), "lower": (-1,), "box": (CHANNELS, 6)}, (0, -1, 3, 0), (0, 1),
        [(w, 0) for w in range(0, 10, 2)] + [(0, 1)],
    ),
    # As in example 2.
    "shifted, in threes": (
        {"element_strides": (1, 3, 1, 1), "lower": (-1,), "upper": (-1,), "box": (CHANNELS, 4)}, (0, -1, 3, 0), (0, 2),
        [(1, 0), (4, 0), (7, 0), (1, 1)],
    ),
    "with a halo": ({"box": (CHANNELS, 4)}, (0, 2, 3, 0), (2, 0), [(w, 0) for w in range(2, 8)]),
    "with a halo behind the corner": (
        {"box": (CHANNELS, 7), "upper": (-2,)}, (0, 0, 3, 1), (2, 0), [(w, 1) for w in range(9)],
    ),
    "with a halo beyond the tensor": ({"box": (CHANNELS, 4)}, (0, 5, 3, 0), (3, 0), [(w, 0) for w in range(5, 12)]),
    "with a halo in steps": (
        {"element_strides": (1, 2, 1, 1), "lower": (-1,), "box": (CHANNELS, 4)}, (0, -1, 3, 0), (1, 0),
        [(w, 0) for w in range(-1, 9, 2)],
    ),
}  # fmt: skip


def copied_pixels(tensor_map: TensorMap, data: np.ndarray, mode: Mode, coords: Any, info: Any, count: int) -> Any:
    moved = as_copied(tensor_map, mode, coords, info)
    assert TensorMap.decode(tensor_map.encode()) == tensor_map
    smem = np.full(1 << 14, 0xEE, np.uint8)
    assert load_tile(moved, Tensor(data), coords, smem, 0, mode, info) == count * 2 * CHANNELS
    assert (smem[count * 64 :] == 0xEE).all()
    return pixels(smem, count)


def wanted_pixels(data: np.ndarray, h: int, places: list[tuple[int, int]]) -> np.ndarray:
    out = np.zeros((len(places), CHANNELS), np.uint16)
    for i, (w, n) in enumerate(places):
        if 0 <= w < SIZES[1] and n < SIZES[3]:
            out[i] = data.reshape(SIZES[::-1])[n, h, w]
    return out


@pytest.mark.parametrize("name", WIDE)
def test_pixels_along_a_row(name: str) -> None:
    fields, coords, info, places = WIDE[name]
    data = np.arange(np.prod(SIZES), dtype=np.uint16) + 1
    found = copied_pixels(wide_map(BASE, **fields), data, "im2col_w", coords, info, len(places))
    np.testing.assert_array_equal(found, wanted_pixels(data, coords[2], places))


@pytest.mark.parametrize("halo", [0, 2])
def test_four_groups_of_32_pixels(halo: int) -> None:
    """im2col::w::128: a halo follows each group; the next group goes on behind its own last pixel."""
    sizes = (CHANNELS, 200, 2, 1)
    data = np.arange(np.prod(sizes), dtype=np.uint16)
    tensor_map = TensorMap(
        TensorMapType.UINT16, BASE, sizes, dense(list(sizes), 2), (CHANNELS, 7), swizzle=TensorMapSwizzle.B64,
        lower=(0,), upper=(0,), wide=TensorMapWide.W128,
    )  # fmt: skip
    columns = [w for group in range(4) for w in range(5 + 32 * group, 5 + 32 * (group + 1) + halo)]
    found = copied_pixels(tensor_map, data, "im2col_w128", (0, 5, 1, 0), (halo, 0), len(columns))
    np.testing.assert_array_equal(found, data.reshape(sizes[::-1])[0, 1, columns])


@pytest.mark.parametrize(
    ("wide", "info", "error"),
    [
        (TensorMapWide.W, (512, 0), OperandError),
        (TensorMapWide.W128, (32, 0), OperandError),
        (TensorMapWide.W, (0, 32), OperandError),
        # Whether each row that ends within the copy has a halo, no text says.
        (TensorMapWide.W, (1, 0), UnsupportedOperandError),
    ],
)
def test_halos_that_are_refused(wide: TensorMapWide, info: tuple[int, int], error: type[OperandError]) -> None:
    mode: Mode = "im2col_w128" if wide else "im2col_w"
    with pytest.raises(error) as caught:
        as_copied(wide_map(BASE, wide), mode, (0, 3, 0, 0), info)
    assert type(caught.value) is error


@pytest.mark.parametrize("mode", ["im2col", "im2col_w128", "tile"])
def test_a_map_is_for_one_mode(mode: Mode) -> None:
    smem = np.zeros(1 << 14, np.uint8)
    with pytest.raises(OperandError, match="im2col tensor map of the same mode"):
        load_tile(wide_map(BASE), Tensor(smem), (0, 0, 0, 0), smem, 0, mode, (0, 0))


HEAD = """
.reg .b64 %d<8>; .reg .b32 %r<12>; .reg .b16 %h<4>; .reg .pred %p<4>;
.shared .align 1024 .b8 tile[1024]; .shared .align 8 .b8 bar[8];
ld.param.u64 %d0, [map]; ld.param.u64 %d1, [out]; mov.u32 %r0, %tid.x; mov.u32 %r1, tile; mov.u32 %r2, bar;
setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared::cta.b64 [%r2], 1;
fence.mbarrier_init.release.cluster; bar.sync 0;
"""
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0; @!%p1 bra W;"


@pytest.mark.parametrize("mode", ["functional", "checking"])
def test_gather_in_a_kernel(mode: Any) -> None:
    data = np.arange(64 * 20, dtype=np.uint16).reshape(20, 64)
    memory = GlobalMemory()
    source = upload(memory, data)
    tensor_map = TensorMap(TensorMapType.UINT16, source, (64, 20), (128,), (64, 1))
    where, out = upload(memory, np.frombuffer(tensor_map.encode(), np.uint8)), memory.alloc(512)
    body = (
        HEAD
        + """
    @!%p0 bra W;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 512; mov.u32 %r3, 0; mov.u32 %r4, 4; mov.u32 %r5, 9;
    mov.u32 %r6, 2; mov.u32 %r7, 11;
    cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes
      [%r1], [%d0, {%r3, %r4, %r5, %r6, %r7}], [%r2];
    """
        + WAIT
        + """
    shl.b32 %r8, %r0, 4; add.u32 %r9, %r1, %r8; ld.shared.b128 %q, [%r9];
    cvt.u64.u32 %d2, %r8; add.u64 %d2, %d2, %d1; st.global.b128 [%d2], %q; ret;
    """
    )
    text = module_text(["map", "out"], ".reg .b128 %q;" + body, "sm_100a")
    outcome = run(text, [where, out], memory, options=Options(mode=mode, level="strict"))
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert not outcome.hazards
    np.testing.assert_array_equal(download(memory, out, 256, np.uint16).reshape(4, 64), data[[4, 9, 2, 11]])


@pytest.mark.parametrize("wait", [True, False])
def test_the_checker_follows_a_gather(wait: bool) -> None:
    data = np.zeros((20, 64), np.uint16)
    memory = GlobalMemory()
    tensor_map = TensorMap(TensorMapType.UINT16, upload(memory, data), (64, 20), (128,), (64, 1))
    where = upload(memory, np.frombuffer(tensor_map.encode(), np.uint8))
    body = (
        HEAD
        + f"""
    @!%p0 bra W;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 512; mov.u32 %r3, 0;
    cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes
      [%r1], [%d0, {{%r3, %r3, %r3, %r3, %r3}}], [%r2];
    {WAIT if wait else "W:"} ld.shared.u32 %r4, [%r1+508]; {"" if wait else WAIT.replace("W", "X")} ret;
    """
    )
    options = Options(mode="checking", level="strict", schedule="late")
    outcome = run(module_text(["map", "out"], body, "sm_100a"), [where, 0], memory, options=options)
    assert bool(outcome.hazards) is not wait


@pytest.mark.parametrize(
    ("halo", "tx", "wait", "found"),
    [
        (0, 256, True, set()),
        (2, 384, True, set()),
        (2, 384, False, {"H17"}),
        # The halo counts: without its bytes the phase is complete before they are there, or never.
        (2, 256, True, None),
    ],
)
def test_the_checker_follows_pixels_along_a_row(halo: int, tx: int, wait: bool, found: set[str] | None) -> None:
    memory = GlobalMemory()
    data = np.arange(np.prod(SIZES), dtype=np.uint16)
    tensor_map = wide_map(upload(memory, data), box=(CHANNELS, 4))
    where = upload(memory, np.frombuffer(tensor_map.encode(), np.uint8))
    body = (
        HEAD
        + f"""
    @!%p0 bra W; mov.u16 %h0, {halo}; mov.u16 %h1, 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], {tx}; mov.u32 %r3, 0; mov.u32 %r5, 2;
    cp.async.bulk.tensor.4d.shared::cta.global.im2col::w.mbarrier::complete_tx::bytes
      [%r1], [%d0, {{%r3, %r5, %r5, %r3}}], [%r2], {{%h0, %h1}};
    {WAIT if wait else "W:"} ld.shared.u32 %r4, [%r1]; {"" if wait else WAIT.replace("W", "X")} ret;
    """
    )
    options = Options(mode="checking", level="strict", schedule="late")
    outcome = run(module_text(["map", "out"], body, "sm_100a"), [where, 0], memory, options=options)
    if found is None:
        assert [f.code for f in outcome.findings] == [Code.SIM_DEADLOCK]
        return
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert {h.kind.id for h in outcome.hazards} == found


def test_a_halo_that_is_not_known_gives_no_verdict() -> None:
    memory = GlobalMemory()
    where = upload(
        memory, np.frombuffer(wide_map(upload(memory, np.zeros(np.prod(SIZES), np.uint16))).encode(), np.uint8)
    )
    body = (
        HEAD
        + """
    mov.u16 %h0, 1; mov.u16 %h1, 0; mov.u32 %r3, 0;
    @%p0 cp.async.bulk.tensor.4d.shared::cta.global.im2col::w.mbarrier::complete_tx::bytes
      [%r1], [%d0, {%r3, %r3, %r3, %r3}], [%r2], {%h0, %h1}; ret;
    """
    )
    outcome = run(module_text(["map", "out"], body, "sm_100a"), [where, 0], memory)
    assert outcome.status == "incomplete"
    assert "go on in another row" in str(outcome.findings[0])


def test_bytes_chosen_by_a_mask() -> None:
    memory = GlobalMemory()
    out = memory.alloc(64, fill=0xEE)
    body = (
        HEAD
        + """
    st.shared.u8 [%r1], 0; shl.b32 %r3, %r0, 1; add.u32 %r3, %r3, %r1; cvt.u16.u32 %h0, %r0; st.shared.u16 [%r3], %h0;
    fence.proxy.async.shared::cta; bar.sync 0; mov.u16 %h1, 0x8421;
    @%p0 cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d1], [%r1], 64, %h1;
    @%p0 cp.async.bulk.commit_group; @%p0 cp.async.bulk.wait_group 0; ret;
    """
    )
    outcome = run(module_text(["map", "out"], body, "sm_100a"), [0, out], memory)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    full = np.arange(32, dtype=np.uint16).view(np.uint8)
    chosen = np.array([0x8421 >> (i % 16) & 1 for i in range(64)], bool)
    np.testing.assert_array_equal(download(memory, out, 64, np.uint8), np.where(chosen, full, 0xEE))


@pytest.mark.parametrize(
    ("op", "kind"), [("add", "u32"), ("min", "s32"), ("xor", "b32"), ("inc", "u32"), ("add", "u64")]
)
def test_reduction_into_shared_memory(op: str, kind: str) -> None:
    rng = np.random.default_rng(2)
    dtype = np.dtype({"u32": "u4", "b32": "u4", "s32": "i4", "u64": "u8"}[kind])
    count = 64 // dtype.itemsize
    old, new = (rng.integers(0, 50, count).astype(dtype) for _ in range(2))
    memory = GlobalMemory()
    both = upload(memory, np.concatenate([old, new]))
    out = memory.alloc(64)
    body = (
        HEAD
        + f"""
    shl.b32 %r3, %r0, 2; cvt.u64.u32 %d2, %r3; add.u64 %d3, %d0, %d2; ld.global.u32 %r4, [%d3];
    add.u32 %r5, %r1, %r3; st.shared.u32 [%r5], %r4; fence.proxy.async.shared::cta; bar.sync 0; add.u32 %r6, %r1, 64;
    @!%p0 bra W; mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 64;
    cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{op}.{kind} [%r1], [%r6], 64, [%r2];
    {WAIT} setp.lt.u32 %p2, %r0, 16; add.u64 %d4, %d1, %d2; ld.shared.u32 %r7, [%r5]; @%p2 st.global.u32 [%d4], %r7;
    ret;
    """
    )
    outcome = run(module_text(["map", "out"], body), [both, out], memory)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    want = {"add": old + new, "min": np.minimum(old, new), "xor": old ^ new if dtype.kind == "u" else old,
            "inc": np.where(old >= new, 0, old + 1)}[op]  # fmt: skip
    np.testing.assert_array_equal(download(memory, out, count, dtype), want)
