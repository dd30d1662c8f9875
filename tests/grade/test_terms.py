# SPDX-License-Identifier: Apache-2.0
"""Every part that can limit a kernel, each with a kernel that it limits; and one without it that is faster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from grade.kernels import kernel
from grade.published import attention, ladders

from porter.facts.code import Code
from porter.facts.warps import Warps
from porter.grade.chips import chips, read
from porter.grade.model import grade, run
from porter.grade.reading import Launch, read_shape
from porter.grade.shape import Epilogue, Mma, Problem, Residency, Shape, Work
from porter.ptx.parser import parse_module
from porter.ptx.shared_access import rounds as rounds_of
from porter.ptx.umma import Kind

CHIP = chips()["B200"]
WIDE = Shape("sm_100a", ((Mma(128, 256), 4),), 128, 256, 49152, 4, "specialized", 128, persistent=True,
             epilogue=Epilogue(2, "tma", 4, True), residency=Residency(196608, 512, 256))  # fmt: skip
"""Nothing is wrong with it but what a test changes."""
LARGE = Problem(256 * 148, 256 * 32, 4096)
SHORT = Problem(128 * 148, 256 * 8, 256)
PLAIN = replace(WIDE, persistent=False, epilogue=Epilogue(2, "tma", 4))
ALONE = replace(WIDE, roles="serial", stages=1, waits_each=True, persistent=False, epilogue=Epilogue(2, "tma", 4),
                residency=Residency(49152, 512, 128))  # fmt: skip

LIMITS: dict[str, tuple[Shape, Problem | None]] = {
    "tensor core": (replace(WIDE, mmas=((Mma(64, 256), 8),)), LARGE),
    "TMA fill": (replace(WIDE, row_bytes=16), LARGE),
    "barrier latency": (ALONE, LARGE),
    "epilogue": (replace(PLAIN, epilogue=Epilogue(4, "threads")), SHORT),
    "uncoalesced access": (replace(PLAIN, epilogue=Epilogue(4, "rows")), SHORT),
    "bank conflicts": (replace(PLAIN, epilogue=Epilogue(4, "tma", 4, ways=32)), SHORT),
    "launch": (replace(PLAIN, epilogue=Epilogue(2, "tma", 4)), Problem(128 * 148, 256, 64)),
    "waves": (replace(WIDE), Problem(128 * 149, 256, 16384)),
    "MUFU": (replace(WIDE, tile_m=None, tile_n=None, work=Work(100, 128 * 512)), None),
    "instruction issue": (replace(WIDE, tile_m=None, tile_n=None, work=Work(8192, 16)), None),
    "HBM": (WIDE, Problem(128 * 148, 16384, 128)),
    "occupancy": (replace(PLAIN, mmas=((Mma(128, 256, Kind.F8F6F4), 4),), multicast=True), LARGE),
    "power": (replace(WIDE, mmas=((Mma(256, 256, Kind.F16, 2), 4),), tile_m=256, load_bytes=32768, stages=6), LARGE),
}


@pytest.mark.parametrize("term", LIMITS)
def test_what_limits_is_found(term: str) -> None:
    shape, problem = LIMITS[term]
    found = grade(shape, problem, lifts=False)
    assert found.limit == term, found.terms


WITHOUT: dict[str, Shape] = {
    "tensor core": replace(WIDE, mmas=((Mma(128, 256), 4),)),
    "TMA fill": WIDE,
    "barrier latency": replace(ALONE, roles="specialized", stages=4, waits_each=False),
    "epilogue": PLAIN,
    "uncoalesced access": PLAIN,
    "bank conflicts": replace(PLAIN, epilogue=Epilogue(4, "tma", 4)),
    "MUFU": replace(WIDE, tile_m=None, tile_n=None),
    "instruction issue": replace(WIDE, tile_m=None, tile_n=None),
}


@pytest.mark.parametrize("term", WITHOUT)
def test_a_kernel_without_what_limits_is_faster(term: str) -> None:
    shape, problem = LIMITS[term]
    slow, fast = (run(s, CHIP, problem).rate for s in (shape, WITHOUT[term]))
    assert fast > 1.1 * slow


def test_every_limit_that_the_page_explains_has_a_kernel() -> None:
    assert set(LIMITS) >= {"tensor core", "TMA fill", "HBM", "bank conflicts", "uncoalesced access", "epilogue", "MUFU",
                           "barrier latency", "occupancy", "waves", "launch", "power", "instruction issue"}  # fmt: skip


# --- Banks


@pytest.mark.parametrize(
    ("step", "nbytes", "rounds"),
    [(4, 4, 1), (8, 4, 2), (64, 4, 16), (128, 4, 32), (132, 4, 1), (16, 16, 1), (512, 16, 8), (528, 16, 1),
     (256, 8, 16), (2, 2, 1), (128, 2, 32), (0, 4, 1)],
)  # fmt: skip
def test_rounds_of_an_access(step: int, nbytes: int, rounds: int) -> None:
    """Lanes that share a word need no round of their own; 8 lanes with 16 bytes each fill the 32 banks."""
    assert rounds_of([lane * step for lane in range(32)], nbytes) == rounds


ADDRESSES = {
    "mad.lo.s32 %r70, %r1, 512, %r4;": 8,
    "mul.lo.s32 %r71, %r1, 528;\nadd.s32 %r70, %r4, %r71;": 1,
    "shl.b32 %r71, %r1, 4;\nadd.s32 %r70, %r71, %r4;": 1,
    "and.b32 %r72, %r1, 31;\nmad.lo.s32 %r70, %r72, 128, %r4;": 8,
    "shr.u32 %r72, %r1, 5;\nmad.lo.s32 %r70, %r72, 4096, %r4;": 1,
    "mul.wide.u32 %rd30, %r1, 256;\ncvt.u32.u64 %r71, %rd30;\nadd.s32 %r70, %r4, %r71;": 8,
    "xor.b32 %r71, %r1, %r2;\nmad.lo.s32 %r70, %r71, 512, %r4;": 8,
    "and.b32 %r72, %r1, 7;\nshl.b32 %r73, %r72, 4;\nmad.lo.s32 %r70, %r1, 128, %r73;": 1,
    "shl.b32 %r72, %r1, 7;\nshr.u32 %r73, %r72, 3;\nand.b32 %r74, %r73, 112;\nxor.b32 %r70, %r72, %r74;": 1,
    "ld.shared.b32 %r71, [%r4];\nmad.lo.s32 %r70, %r1, 512, %r71;": 1,
}


@pytest.mark.parametrize("address", ADDRESSES)
def test_rounds_are_read_from_addresses(address: str) -> None:
    """Of 16 bytes a thread, with a swizzle or without; what the text does not say, such as what is loaded, costs
    nothing."""
    shape = next(r.shape for ladder in ladders() for r in ladder.rungs if r.name.startswith("v4"))
    text = kernel(shape)
    stored = "{%r140, %r140, %r140, %r140}"
    assert "st.global.v4.b32 [%rd4]" in text
    text = text.replace(
        "st.global.v4.b32 [%rd4]", f"{address}\nst.shared.v4.b32 [%r70+64], {stored};\nst.global.v4.b32 [%rd4]"
    )
    module = parse_module(text)
    found = read_shape(module, module.entries()[0], Launch(row_bytes=128)).shape
    assert found is not None
    assert found.epilogue.ways == ADDRESSES[address]


def test_a_register_with_two_values_has_no_step() -> None:
    text = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k()
{
.reg .b32 %r<9>;
mov.u32 %r1, %tid.x;
mov.u32 %r2, 5;
mov.u32 %r2, %tid.x;
add.u32 %r3, %r1, %r2;
st.shared.b32 [%r3], %r1;
ret;
}
"""
    module = parse_module(text)
    code = Code(module, module.entries()[0])
    (store,) = (at for at, ins in enumerate(code.code) if ins.parts[0] == "st")
    assert Warps(code, None).address(store, code.code[store].operands[0]) is None


# --- Attention


def test_attention_that_was_published_is_held_out() -> None:
    """All of it is put above what was measured: the model has no power over time and no dependences in a softmax."""
    for one in read("ladders")["attention"]:
        chip = next(c for c in chips().values() if c.arch == one["arch"])
        for given in one["rungs"]:
            rate = 100 * run(attention(given, one["arch"]), chip, None).rate
            assert 1 < rate / given["rate"] < 1.75, given["name"]


def test_attention_is_limited_by_its_softmax() -> None:
    given = read("ladders")["attention"][1]["rungs"][0]
    found = grade(attention({**given, "per_element": 16}, "sm_100a"), None, lifts=False)
    assert found.limit == "instruction issue"
    assert found.rate < 0.7 * grade(attention(given, "sm_100a"), None, lifts=False).rate
