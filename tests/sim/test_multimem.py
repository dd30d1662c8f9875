# SPDX-License-Identifier: Apache-2.0
"""multimem.ld_reduce, .st and .red, against NumPy over the places that an address stands for."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest
from core_ptx import module_text, run

from porter.diagnostics import Code
from porter.sim import GlobalMemory, Options, Outcome

BYTES = 32 * 16
DTYPES: dict[str, Any] = {
    "u32": np.uint32, "s32": np.int32, "b32": np.uint32, "u64": np.uint64, "s64": np.int64, "b64": np.uint64,
    "f32": np.float32, "f64": np.float64, "f16x2": np.float16,
}  # fmt: skip
OPS = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
       "xor": np.bitwise_xor}  # fmt: skip
REDUCTIONS = [
    *((op, t, 1) for op in ("min", "max") for t in ("u32", "s32", "u64", "s64")),
    *(("add", t, 1) for t in ("u32", "s32", "u64", "f64")),
    *((op, t, 1) for op in ("and", "or", "xor") for t in ("b32", "b64")),
    *(("add", "f32", count) for count in (1, 2, 4)),
    *((op, "f16x2", count) for op in ("min", "max", "add") for count in (1, 2, 4)),
]
RED = [r for r in REDUCTIONS if r[1] != "f16x2" or r[0] == "add"]


def data(rng: np.random.Generator, t: str) -> np.ndarray:
    dtype = np.dtype(DTYPES[t])
    if dtype.kind == "f":
        return rng.integers(-9, 10, BYTES // dtype.itemsize).astype(dtype)
    return np.frombuffer(rng.bytes(BYTES), dtype)


class Devices:
    """As many places with numbers of their own, their multimem address, and a private input and output."""

    def __init__(self, t: str, places: int) -> None:
        rng = np.random.default_rng(7)
        self.memory = GlobalMemory()
        self.held = [data(rng, t) for _ in range(places)]
        self.places = [self.put(x) for x in self.held]
        self.address = self.memory.multicast(self.places, BYTES)
        self.given = data(rng, t)
        self.input, self.out = self.put(self.given), self.memory.alloc(BYTES, fill=0)

    def put(self, values: np.ndarray) -> int:
        place = self.memory.alloc(BYTES)
        self.memory.write(place, values.view(np.uint8))
        return place

    def run(self, body: str, options: Options | None = None) -> Outcome:
        head = """.reg .b64 %d<9>; .reg .b32 %r<9>; .reg .b64 %l<9>; .reg .pred %p<3>;
ld.param.u64 %d0, [multi]; ld.param.u64 %d1, [in]; ld.param.u64 %d2, [out]; mov.u32 %r0, %tid.x;
"""
        text = module_text(["multi", "in", "out"], head + body, "sm_100a")
        return run(text, [self.address, self.input, self.out], self.memory, options=options)

    def read(self, place: int, t: str) -> np.ndarray:
        return self.memory.read(place, BYTES).view(DTYPES[t])


def written(t: str, count: int) -> tuple[str, str, int]:
    """(registers, vector and type, bytes of a thread)"""
    size = 4 if t.endswith(("32", "x2")) else 8
    names = [f"%{'r' if size == 4 else 'l'}{1 + i}" for i in range(count)]
    registers = names[0] if count == 1 else "{" + ", ".join(names) + "}"
    return registers, (f"v{count}." if count > 1 else "") + t, size * count


def at(base: str, to: str, step: int) -> str:
    return f"mul.wide.u32 %d8, %r0, {step}; add.u64 {to}, {base}, %d8;"


def plain(text: str) -> str:
    """The vector and type of an ordinary access."""
    return text.replace("f16x2", "b32")


@pytest.mark.parametrize("places", [1, 2, 4])
@pytest.mark.parametrize(("op", "t", "count"), REDUCTIONS)
def test_load_and_reduce(op: str, t: str, count: int, places: int) -> None:
    devices = Devices(t, places)
    registers, how, step = written(t, count)
    outcome = devices.run(f"""{at("%d0", "%d3", step)} {at("%d2", "%d4", step)}
multimem.ld_reduce.global.{op}.{how} {registers}, [%d3]; st.global.{plain(how)} [%d4], {registers}; ret;""")
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    want = reduce(OPS[op], devices.held)
    used = 32 * step // want.itemsize
    np.testing.assert_array_equal(devices.read(devices.out, t)[:used], want[:used])
    for place, held in zip(devices.places, devices.held, strict=True):
        np.testing.assert_array_equal(devices.read(place, t), held)


@pytest.mark.parametrize(("t", "one"), [("f16x2", np.float16(2048)), ("bf16x2", None)])
def test_sums_in_f32(t: str, one: Any) -> None:
    """2048 + 1 + 1 is 2050 if it is rounded to f16 once, and 2048 after every step; likewise 256 + 1 + 1 of bf16."""
    memory = GlobalMemory()
    codes = [np.float16(x).view(np.uint16) for x in (2048, 1, 1)]
    want = {"": 2048, ".acc::f32": 2050}
    if one is None:
        codes = [np.uint16(np.float32(x).view(np.uint32) >> 16) for x in (256, 1, 1)]
        want = {"": 256, ".acc::f32": 258}
    places = [memory.alloc(64) for _ in codes]
    for place, code in zip(places, codes, strict=True):
        memory.write(place, np.full(32, code, np.uint16).view(np.uint8))
    address, out = memory.multicast(places, 64), memory.alloc(64)
    for how, total in want.items():
        text = module_text(["multi", "out"], f""".reg .b64 %d<3>; .reg .b32 %r<3>;
ld.param.u64 %d0, [multi]; ld.param.u64 %d1, [out];
multimem.ld_reduce.global.add{how}.{t} %r1, [%d0]; st.global.b32 [%d1], %r1; ret;""", "sm_100a")  # fmt: skip
        assert run(text, [address, out], memory).status == "ok"
        got = memory.read(out, 2).view(np.uint16)[0]
        value = got.view(np.float16) if one is not None else (np.uint32(got) << 16).view(np.float32)
        assert float(value) == total


STORES = [("b32", 1), ("b64", 1), ("u32", 1), ("s64", 1), ("f64", 1), ("f32", 1), ("f32", 2), ("f32", 4), ("f16x2", 1),
          ("f16x2", 4)]  # fmt: skip


@pytest.mark.parametrize("order", ["", "weak.", "relaxed.sys.", "release.gpu."])
@pytest.mark.parametrize(("t", "count"), STORES)
def test_store(t: str, count: int, order: str) -> None:
    devices = Devices(t, 3)
    registers, how, step = written(t, count)
    outcome = devices.run(f"""{at("%d1", "%d3", step)} {at("%d0", "%d4", step)}
ld.global.{plain(how)} {registers}, [%d3]; multimem.st.{order}global.{how} [%d4], {registers}; ret;""")
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    used = 32 * step // devices.given.itemsize
    for place, held in zip(devices.places, devices.held, strict=True):
        got = devices.read(place, t)
        np.testing.assert_array_equal(got[:used], devices.given[:used])
        np.testing.assert_array_equal(got[used:], held[used:])


@pytest.mark.parametrize(("op", "t", "count"), RED)
def test_reduce(op: str, t: str, count: int) -> None:
    devices = Devices(t, 2)
    registers, how, step = written(t, count)
    outcome = devices.run(f"""{at("%d1", "%d3", step)} {at("%d0", "%d4", step)}
ld.global.{plain(how)} {registers}, [%d3]; multimem.red.relaxed.sys.global.{op}.{how} [%d4], {registers}; ret;""")
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    used = 32 * step // devices.given.itemsize
    for place, held in zip(devices.places, devices.held, strict=True):
        want = np.r_[OPS[op](held, devices.given)[:used], held[used:]]
        np.testing.assert_array_equal(devices.read(place, t), want)


@pytest.mark.parametrize("body", [
    "multimem.ld_reduce.global.add.u32 %r1, [%d1]; ret;",
    "multimem.st.global.u32 [%d1], %r0; ret;",
    "multimem.red.global.add.u32 [%d1], %r0; ret;",
    "add.u64 %d3, %d0, 512; multimem.st.global.u32 [%d3], %r0; ret;",
    "ld.global.u32 %r1, [%d0]; ret;",
    "st.global.u32 [%d0], %r0; ret;",
    "red.global.add.u32 [%d0], %r0; ret;",
])  # fmt: skip
def test_an_address_is_for_multimem_or_for_others(body: str) -> None:
    outcome = Devices("u32", 2).run(body)
    assert outcome.status == "error"
    assert outcome.findings[0].code is Code.SIM_OUT_OF_BOUNDS
    assert "multimem address" in outcome.findings[0].message


BLOCK = "mov.u32 %r5, %ctaid.x; setp.ne.u32 %p1, %r5, 0; setp.ne.u32 %p2, %r0, 0; @%p2 ret; @%p1 bra READ;"
RACES = {
    "stores_and_a_load_of_one_place": (
        f"{BLOCK} multimem.st.global.u32 [%d0], %r0; ret; READ: ld.global.u32 %r1, [%d3]; ret;", {"G2"},
    ),
    "reductions_do_not_race": ("multimem.red.global.add.u32 [%d0], %r0; ret;", set()),
    "weak_loads_race_with_reductions": (
        f"{BLOCK} multimem.red.global.add.u32 [%d0], %r0; ret;"
        " READ: multimem.ld_reduce.global.add.u32 %r1, [%d0]; ret;",
        {"G2"},
    ),
    "relaxed_loads_do_not": (
        f"{BLOCK} multimem.red.global.add.u32 [%d0], %r0; ret;"
        " READ: multimem.ld_reduce.relaxed.sys.global.add.u32 %r1, [%d0]; ret;",
        set(),
    ),
    "too_narrow": (
        f"{BLOCK} multimem.red.relaxed.cta.global.add.u32 [%d0], %r0; ret;"
        " READ: multimem.ld_reduce.relaxed.sys.global.add.u32 %r1, [%d0]; ret;",
        {"G3"},
    ),
    "a_flag": (
        f"{BLOCK} st.global.u32 [%d2], %r0; mov.u32 %r1, 1; multimem.red.release.sys.global.max.u32 [%d0+4], %r1; ret;"
        " READ: ld.acquire.sys.global.u32 %r1, [%d3+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra READ;"
        " ld.global.u32 %r2, [%d2]; ret;", set(),
    ),
    "a_flag_that_is_not_released": (
        f"{BLOCK} st.global.u32 [%d2], %r0; mov.u32 %r1, 1; multimem.red.relaxed.sys.global.max.u32 [%d0+4], %r1; ret;"
        " READ: ld.acquire.sys.global.u32 %r1, [%d3+4]; setp.eq.u32 %p1, %r1, 0; @%p1 bra READ;"
        " ld.global.u32 %r2, [%d2]; ret;", {"G2"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
def test_the_checker_sees_every_place(name: str) -> None:
    body, kinds = RACES[name]
    devices = Devices("u32", 2)
    devices.memory.write(devices.places[1], np.zeros(BYTES, np.uint8))
    head = """.reg .b64 %d<9>; .reg .b32 %r<9>; .reg .pred %p<3>; ld.param.u64 %d0, [multi]; ld.param.u64 %d3, [second];
ld.param.u64 %d2, [out]; mov.u32 %r0, %tid.x;
"""
    text = module_text(["multi", "second", "out"], head + body, "sm_100a")
    options = Options(mode="checking", level="strict")
    outcome = run(text, [devices.address, devices.places[1], devices.out], devices.memory, 2, 32, options=options)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert {h.kind.id for h in outcome.hazards} == kinds


# Bulk copies ----------------------------------------------------------------------------------------------------

STAGE = """.shared .align 16 .b8 tile[512];
mul.wide.u32 %d8, %r0, 16; add.u64 %d3, %d1, %d8; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 16, %r1;
ld.global.v4.b32 {%r3, %r4, %r5, %r6}, [%d3]; st.shared.v4.b32 [%r2], {%r3, %r4, %r5, %r6};
{fence} bar.sync 0; setp.eq.u32 %p1, %r0, 0; @!%p1 bra END;
{copy} cp.async.bulk.commit_group; {wait} END: ret;"""
FENCE, WAIT = "fence.proxy.async.shared::cta;", "cp.async.bulk.wait_group 0;"
COPY = "multimem.cp.async.bulk.global.shared::cta.bulk_group{mask} [%d0], [%r1], {size}{chosen};"


def staged(copy: str, fence: str = FENCE, wait: str = WAIT) -> str:
    return STAGE.replace("{fence}", fence).replace("{copy}", copy).replace("{wait}", wait)


@pytest.mark.parametrize("places", [1, 2, 3])
@pytest.mark.parametrize(("size", "mask"), [(512, None), (256, None), (16, None), (512, 0x00FF), (512, 0x5555)])
def test_bulk_copy(size: int, mask: int | None, places: int) -> None:
    devices = Devices("u32", places)
    chosen = ("", "") if mask is None else (".cp_mask", f", {mask}")
    outcome = devices.run(staged(COPY.format(mask=chosen[0], size=size, chosen=chosen[1])))
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    for place, held in zip(devices.places, devices.held, strict=True):
        want = held.view(np.uint8).copy()
        bits = 0xFFFF if mask is None else mask
        taken = (np.arange(BYTES) < size) & (bits >> (np.arange(BYTES) % 16) & 1).astype(bool)
        want[taken] = devices.given.view(np.uint8)[taken]
        np.testing.assert_array_equal(devices.read(place, "u32").view(np.uint8), want)


BULK_RED = [
    *((op, t) for op in ("min", "max") for t in ("u32", "s32", "u64", "s64")),
    *(("add", t) for t in ("u32", "s32", "u64", "f32", "f64")),
    *((op, t) for op in ("and", "or", "xor") for t in ("b32", "b64")),
    ("add.noftz", "f16x2"), ("min", "f16x2"), ("max", "f16x2"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "t"), BULK_RED)
def test_bulk_reduction(op: str, t: str) -> None:
    devices = Devices(t, 3)
    name = "f16" if t == "f16x2" else t
    copy = f"multimem.cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{name} [%d0], [%r1], 512;"
    outcome = devices.run(staged(copy))
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    for place, held in zip(devices.places, devices.held, strict=True):
        np.testing.assert_array_equal(devices.read(place, t), OPS[op.partition(".")[0]](held, devices.given))


def test_sums_of_f32_flush_subnormals() -> None:
    """Unlike those of cp.reduce.async.bulk (PTX ISA 9.7.9.27)."""
    devices = Devices("f32", 1)
    small = np.full(BYTES // 4, 1e-40, np.float32)
    devices.memory.write(devices.places[0], small.view(np.uint8))
    devices.memory.write(devices.input, small.view(np.uint8))
    copy = "multimem.cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d0], [%r1], 512;"
    assert devices.run(staged(copy)).status == "ok"
    assert not devices.read(devices.places[0], "f32").any()


@pytest.mark.parametrize(
    ("size", "code"), [(528, Code.SIM_OUT_OF_BOUNDS), (24, Code.SIM_MISALIGNED)], ids=["beyond", "no_multiple"]
)
def test_a_bulk_copy_that_does_not_fit(size: int, code: Code) -> None:
    copy = COPY.format(mask="", size=size, chosen="")
    outcome = Devices("u32", 2).run(staged(copy))
    assert [f.code for f in outcome.findings] == [code]


CHECKING = Options(mode="checking", level="strict")
REDUCE = "multimem.cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0], [%r1], 512;"
AGAIN = f"{WAIT} st.shared.u32 [%r1], %r0;"
WRONG_BULK = {
    "no_proxy_fence": (staged(COPY.format(mask="", size=512, chosen=""), fence=""), {"H27"}),
    "shared_memory_again_before_the_wait": (
        staged(COPY.format(mask="", size=512, chosen=""), wait="st.shared.u32 [%r1], %r0; " + WAIT), {"H27"},
    ),
    "places_again_before_the_wait": (
        staged(COPY.format(mask="", size=512, chosen=""), wait="multimem.st.global.b32 [%d0], %r0; " + WAIT), {"G5"},
    ),
    "a_reduction_without_the_fence": (
        staged(REDUCE, fence=""), {"H27"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_BULK)
def test_hazards_of_bulk_copies(name: str) -> None:
    body, wanted = WRONG_BULK[name]
    outcome = Devices("u32", 2).run(body, CHECKING)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert {h.kind.id for h in outcome.hazards} == wanted


@pytest.mark.parametrize("copy", [COPY.format(mask="", size=512, chosen=""), REDUCE])
def test_right_bulk_copies_are_clean(copy: str) -> None:
    outcome = Devices("u32", 2).run(staged(copy, wait=AGAIN), CHECKING)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    assert not outcome.hazards, [h.message for h in outcome.hazards]
