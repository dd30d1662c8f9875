# SPDX-License-Identifier: Apache-2.0
"""Lanes of one warp in global memory: what one stores the others may use only after a synchronization of the warp."""

from __future__ import annotations

import pytest
from check_ptx import check, found

from porter.sim import Outcome
from porter.sim.check.rulings import Ruling

# Each thread has a place of its own at %d3 and that of the lane beside it at %d4.
PLACES = """.reg .b16 h; cvt.u16.u32 h, %r0; mul.wide.u32 %d2, %r0, {size}; add.u64 %d3, %d1, %d2; xor.b32 %r20, %r0, 1;
mul.wide.u32 %d2, %r20, {size}; add.u64 %d4, %d1, %d2; setp.eq.u32 %p3, %r20, 0; mov.u32 %r21, 7; and.b32 %r22, %r0, 31;
"""
STORE, LOAD, OTHER = "st.global.u32 [%d3], %r0;", "ld.global.u32 %r4, [%d4];", "st.global.u32 [%d4], %r0;"
PAIRS = {"RAW": (STORE, LOAD), "WAR": (LOAD, STORE), "WAW": (STORE, OTHER)}


def run(body: str, level: str = "strict", size: int = 4, threads: int = 64) -> Outcome:
    outcome = check(PLACES.format(size=size) + body + " ret;", threads=threads, level=level)
    assert outcome.status == "ok", [str(f) for f in outcome.findings]
    return outcome


@pytest.mark.parametrize("kind", PAIRS)
def test_lanes_need_a_synchronization_of_their_warp(kind: str) -> None:
    first, second = PAIRS[kind]
    (hazard,) = run(first + second).hazards
    assert (hazard.kind.id, hazard.severity, hazard.race, hazard.remedy) == ("G10", "error", kind, "bar.warp.sync")
    assert hazard.first is not None
    assert hazard.first.warp == hazard.second.warp == 0
    assert (hazard.first.lane, hazard.second.lane) == (1, 0)
    assert hazard.first.opcode == first.split()[0]
    (hazard,) = run(first + second, "practice").hazards
    assert (hazard.severity, hazard.ruling) == ("review", Ruling.LOCKSTEP)


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize(
    ("between", "ordered"),
    [
        ("bar.warp.sync 0xffffffff;", True),
        ("bar.sync 0;", True),
        ("membar.gl;", True),
        ("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", True),
        ("shfl.sync.bfly.b32 %r30, %r0, 1, 31, 0xffffffff;", False),
        ("vote.sync.any.pred %p7, %p0, 0xffffffff;", False),
        ("fence.proxy.async;", False),
    ],
)
def test_what_orders_lanes(kind: str, between: str, ordered: bool) -> None:
    first, second = PAIRS[kind]
    assert found(run(first + between + second)) == (set() if ordered else {"G10"})
    # What came before the synchronization is over, what comes behind it is not.
    assert found(run(between + first + second)) == {"G10"}


def of_size(text: str, kind: str, register: str) -> str:
    return text.replace("u32", kind).replace("%r0;", f"{register};").replace("%r4", register)


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize(("size", "type_", "register"), [(1, "u8", "h"), (2, "u16", "h"), (8, "u64", "%d7")])
def test_elements_of_every_size(kind: str, size: int, type_: str, register: str) -> None:
    first, second = (of_size(text, type_, register) for text in PAIRS[kind])
    assert found(run(first + second, size=size)) == {"G10"}
    assert not run(first + first.replace("%d4", "%d3"), size=size).hazards
    assert not run(first + "bar.warp.sync 0xffffffff;" + second, size=size).hazards


RIGHT = {
    "own place again": STORE + STORE + "ld.global.u32 %r4, [%d3];" + STORE,
    "volatile": "st.volatile.global.u32 [%d3], %r0; ld.volatile.global.u32 %r4, [%d4];",
    "relaxed": "st.relaxed.gpu.global.u32 [%d3], %r0; ld.relaxed.gpu.global.u32 %r4, [%d4];",
    "atomics": "red.global.add.u32 [%d3], 1; red.global.add.u32 [%d4], 1; atom.global.add.u32 %r4, [%d1], 1;",
    "only loads": LOAD + "ld.global.u32 %r4, [%d3]; ld.global.u32 %r4, [%d1];",
    "halves of the own word later": STORE + "ld.global.u16 h, [%d3+2]; st.global.u8 [%d3+1], h;",
    "other places": STORE + "ld.global.u32 %r4, [%d4+1024];",
    "other memory": STORE + "sub.u64 %d5, %d4, %d1; add.u64 %d5, %d5, %d0; ld.global.u32 %r4, [%d5];",
    "halves of a word": "mul.wide.u32 %d5, %r0, 2; add.u64 %d5, %d1, %d5; st.global.u16 [%d5], h;"
    "ld.global.u16 h, [%d5];",
}


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_what_does_not_race(body: str) -> None:
    assert not run(body).hazards


WRONG = {
    "one lane writes and all read": "@%p0 st.global.u32 [%d1], 7; ld.global.u32 %r4, [%d1];",
    "all read and one writes": "ld.global.u32 %r4, [%d1]; @%p0 st.global.u32 [%d1], 7;",
    "in branches": f"@%p0 bra ONE; ld.global.u32 %r4, [%d1]; bra BOTH; ONE: {STORE} BOTH:",
    "of a vector": "mul.wide.u32 %d2, %r0, 16; add.u64 %d5, %d1, %d2; st.global.v4.u32 [%d5], {%r0, %r0, %r0, %r0};"
    "ld.global.u32 %r4, [%d3];",
    "a vector of words": STORE + "and.b64 %d5, %d3, -16; ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d5];",
    "half of a word later": STORE + "ld.global.u16 h, [%d4+2];",
    "byte of a word later": LOAD + "st.global.u8 [%d3+3], h;",
    "generic addresses": "st.u32 [%d3], %r0; ld.u32 %r4, [%d4];",
    "twice": f"{STORE} bar.sync 0; {STORE} {LOAD}",
    "same value again": "st.global.u32 [%d3], 7; st.global.u32 [%d4], 7;",
}


@pytest.mark.parametrize("body", WRONG.values(), ids=WRONG)
def test_what_races(body: str) -> None:
    assert found(run(body, threads=32)) == {"G10"}
    mild = run(body, "practice", threads=32)
    assert not found(mild)
    assert {h.ruling for h in mild.hazards} == {Ruling.LOCKSTEP}


# Stores of one instruction to one place ------------------------------------------------------------------------------

ONE_PLACE: dict[str, tuple[str, bool]] = {
    "each its own": ("st.global.u32 [%d1], %r0;", True),
    "the same": ("st.global.u32 [%d1], %r21;", False),
    "a constant": ("st.global.u32 [%d1], 7;", False),
    "two of them": ("setp.lt.u32 %p4, %r22, 2; @%p4 st.global.u32 [%d1], %r0;", True),
    "one of them": ("setp.eq.u32 %p4, %r22, 2; @%p4 st.global.u32 [%d1], %r0;", False),
    "in pairs": ("and.b64 %d5, %d3, -8; st.global.u32 [%d5], %r0;", True),
    "in pairs alike": ("and.b64 %d5, %d3, -8; shr.u32 %r23, %r0, 1; st.global.u32 [%d5], %r23;", False),
    "vectors alike": ("st.global.v2.u32 [%d1], {%r21, %r21};", False),
    "bytes": ("st.global.u8 [%d1], h;", True),
    "low bytes alike": ("shl.b16 h, h, 8; st.global.u8 [%d1], h;", False),
    "relaxed": ("st.relaxed.gpu.global.u32 [%d1], %r0;", False),
}


@pytest.mark.parametrize("name", ONE_PLACE)
def test_stores_of_one_instruction_to_one_place(name: str) -> None:
    body, wrong = ONE_PLACE[name]
    outcome = run(body, threads=32)
    assert found(outcome) == ({"G10"} if wrong else set())
    if wrong:
        (hazard,) = outcome.hazards
        assert hazard.remedy == "elect.sync"
        assert hazard.first is not None
        assert hazard.first.lane != hazard.second.lane
    assert not found(run(body, "practice", threads=32))


def test_vectors_that_overlap() -> None:
    """Lane i stores 16 bytes from byte 8 i on."""
    place = "mul.wide.u32 %d5, %r0, 8; and.b64 %d6, %d5, 8; sub.u64 %d5, %d5, %d6; add.u64 %d5, %d5, %d1;"
    assert found(run(place + "st.global.v2.u64 [%d5], {%d5, %d2};", threads=32)) == {"G10"}
    assert not run(place + "st.global.v2.u64 [%d5], {%d5, %d1};", threads=32).hazards


def test_warps_are_not_lanes() -> None:
    """Two warps at one place are a race of warps, whatever their lanes."""
    body = "and.b32 %r23, %r0, 31; mul.wide.u32 %d5, %r23, 4; add.u64 %d5, %d1, %d5; st.global.u32 [%d5], %r0;"
    assert found(run(body)) == {"G2"}


@pytest.mark.parametrize("kept", [1, 1 << 18])
def test_loads_that_are_remembered_for_later(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many loads are kept before their stamps are made."""
    monkeypatch.setattr("porter.sim.check.global_lanes._WAITING", kept)
    loop = "mov.u32 %r6, 0; L: ld.global.u32 %r4, [%d4]; {sync}"
    loop += "add.u32 %r6, %r6, 1; setp.lt.u32 %p4, %r6, 5; @%p4 bra L;"
    assert found(run(loop.format(sync="") + STORE)) == {"G10"}
    assert not run(loop.format(sync="bar.warp.sync 0xffffffff;") + STORE).hazards
