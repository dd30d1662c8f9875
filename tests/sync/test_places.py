# SPDX-License-Identifier: Apache-2.0
"""Where accesses lie: at multiples of what they need, and inside of what there is."""

from __future__ import annotations

import pytest
from small_kernels import HEAD, checked, errors, number
from turning_kernels import flow_of

from porter.facts.launched import GLOBAL, Geometry, Launched
from porter.ptx.tensormap import TensorMap, TensorMapType
from porter.sync.checked import Verdict, check

FOUR = "{%r4, %r5, %r6, %r7}"
GIVEN = number("data", GLOBAL, "u64", 8)
POINTER = "ld.param.u64 %d0, [data];\n"
EXPECTED = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64;\n"

# By name what is executed at a place of shared memory, and of how many bytes that has to be a multiple.
IN_SHARED = {
    "ld": ("ld.shared.b32 %r4, [{place}];\n", 4),
    "ld.v2": ("ld.shared.v2.b32 {%r4, %r5}, [{place}];\n", 8),
    "ld.v4": (f"ld.shared.v4.b32 {FOUR}, [{{place}}];\n", 16),
    "st.b16": ("st.shared.b16 [{place}], %h1;\n", 2),
    "st.b64": ("st.shared.b64 [{place}], %d1;\n", 8),
    "st.v4": (f"st.shared.v4.b32 [{{place}}], {FOUR};\n", 16),
    "generic st": ("cvt.u64.u32 %d2, {place};\nst.b32 [%d2], %r4;\n", 4),
    "atom": ("atom.shared.add.u32 %r4, [{place}], 1;\n", 4),
    "red": ("red.shared.add.u64 [{place}], %d1;\n", 8),
    "ldmatrix": (f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {FOUR}, [{{place}}];\n", 16),
    "stmatrix": (f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [{{place}}], {FOUR};\n", 16),
    "cp.async of 4": (f"{POINTER}cp.async.ca.shared::cta.global [{{place}}], [%d0], 4;\ncp.async.wait_all;\n", 4),
    "cp.async of 16": (f"{POINTER}cp.async.cg.shared::cta.global [{{place}}], [%d0], 16;\ncp.async.wait_all;\n", 16),
    "bulk load": (
        f"{POINTER}@%p0 {EXPECTED}@%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes "
        "[{place}], [%d0], 64, [%r1];\n", 16),
    "bulk store": (f"{POINTER}@%p0 cp.async.bulk.global.shared::cta.bulk_group [%d0], [{{place}}], 64;\n", 16),
    "st.bulk": ("@%p0 st.bulk.weak.shared::cta [{place}], 64, 0;\n", 8),
    "mbarrier.init": ("@%p0 mbarrier.init.shared::cta.b64 [{place}], 1;\n", 8),
    "tcgen05.alloc": ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [{place}], 32;\n", 4),
}  # fmt: skip


def kinds(text: str) -> set[str]:
    """Errors of places among those of a kernel, which has others."""
    found = checked(text, parameters=GIVEN)
    assert not found.unknown, found.unknown
    return errors(found) & {"aligned", "outside"}


@pytest.mark.parametrize("name", IN_SHARED)
def test_multiples_in_shared_memory(name: str) -> None:
    text, multiple = IN_SHARED[name]
    place = "add.u32 %r9, %r2, {};\n" + text.replace("{place}", "%r9")
    for offset in (0, multiple, 3 * multiple):
        assert not kinds(place.replace("{}", str(offset)))
    for offset in (multiple // 2, multiple + 1, 5 * multiple - 1):
        assert kinds(place.replace("{}", str(offset))) == {"aligned"}, offset


@pytest.mark.parametrize("name", IN_SHARED)
def test_the_end_of_shared_memory(name: str) -> None:
    """Of which the last variable takes 16 bytes."""
    text, multiple = IN_SHARED[name]
    place = "add.u32 %r9, %r3, {};\n" + text.replace("{place}", "%r9")
    assert kinds(place.replace("{}", "64")) == {"outside"}
    assert kinds(place.replace("{}", str(-(-8192 // multiple) * multiple))) == {"outside"}


def test_the_last_bytes() -> None:
    assert not kinds(f"st.shared.v4.b32 [%r3], {FOUR};\n")
    assert not kinds("@%p0 st.shared.b32 [%r3+12], 1;\n")
    assert kinds("@%p0 st.shared.b32 [%r3+16], 1;\n") == {"outside"}
    lanes = "shl.b32 %r9, %r0, 2;\nadd.u32 %r9, %r9, %r3;\n{}st.shared.b32 [%r9], 1;\n"
    assert kinds(lanes.replace("{}", "")) == {"outside"}
    assert not kinds("setp.lt.u32 %p1, %r0, 4;\n" + lanes.replace("{}", "@%p1 "))


def test_memory_of_the_system() -> None:
    assert kinds("mov.b32 %r9, 64;\n@%p0 st.shared.b32 [%r9], 1;\n") == {"outside"}
    assert not kinds("mov.b32 %r9, 64;\n@%p0 ld.shared.b32 %r4, [%r9];\n")


def test_an_access_that_data_decide() -> None:
    """It may be that it is never executed."""
    text = POINTER + "ld.global.u32 %r5, [%d0];\nsetp.eq.u32 %p2, %r5, 0;\n@%p2 st.shared.b32 [%r3+{}], 1;\n"
    assert not kinds(text.replace("{}", "2"))
    assert not kinds(text.replace("{}", "64"))


def test_dynamic_shared_memory() -> None:
    """It begins where it is declared to, and the launch says where it ends."""
    head = HEAD.replace(".visible .entry", ".extern .shared .align {align} .b8 more[];\n.visible .entry")

    def found(body: str, align: int = 16, nbytes: int = 256) -> set[str]:
        text = head.format(threads=32, functions="", parameters="", align=align)
        flow = flow_of(f"{text}mov.u32 %r4, more;\n{body}ret;\n}}\n")
        return errors(check(Launched(flow, Geometry((32, 1, 1), dynamic_smem=nbytes), {})))

    last = f"@%p0 st.shared.v4.b32 [%r4+240], {FOUR};\n"
    assert not found(last)
    assert found(last, nbytes=252) == {"outside"}
    assert found(f"@%p0 st.shared.v4.b32 [%r4+244], {FOUR};\n") == {"aligned", "outside"}
    # 4096 + 32 + 16 bytes lie in front of it: what takes a bit of its address for clear is wrong
    with_or = "or.b32 %r9, %r4, 16;\n@%p0 st.shared.b32 [%r9+236], 1;\nadd.u32 %r9, %r9, -16;\n"
    with_or += f"@%p0 st.shared.v4.b32 [%r9+{240 - 16}], {FOUR};\n"
    assert not found(with_or, align=1024, nbytes=256)


IN_GLOBAL = {
    "ld": ("ld.global.b32 %r4, [%d0+{}];\n", 4),
    "ld.v4": (f"ld.global.v4.b32 {FOUR}, [%d0+{{}}];\n", 16),
    "ld.nc": (f"ld.global.nc.v4.b32 {FOUR}, [%d0+{{}}];\n", 16),
    "ld.v2.b64": ("ld.global.v2.b64 {%d1, %d2}, [%d0+{}];\n", 16),
    "generic ld": ("ld.b64 %d1, [%d0+{}];\n", 8),
    "st": ("st.global.b16 [%d0+{}], %h1;\n", 2),
    "st.v2": ("st.global.v2.b32 [%d0+{}], {%r4, %r5};\n", 8),
    "atom": ("atom.global.add.u32 %r4, [%d0+{}], 1;\n", 4),
    "red of a vector": ("red.global.v4.f32.add [%d0+{}], {%f0, %f1, %f2, %f3};\n", 16),
    "cp.async": ("cp.async.cg.shared::cta.global [%r2], [%d0+{}], 16;\ncp.async.wait_all;\n", 16),
    "bulk store": ("@%p0 cp.async.bulk.global.shared::cta.bulk_group [%d0+{}], [%r2], 16;\n", 16),
}
SIZE = 256


@pytest.mark.parametrize("name", IN_GLOBAL)
def test_places_in_global_memory(name: str) -> None:
    text, multiple = IN_GLOBAL[name]

    def found(offset: int, known: bool = True) -> set[str]:
        head = HEAD.format(threads=32, functions="", parameters=".param .u64 data")
        flow = flow_of(f"{head}{POINTER}{text.replace('{}', str(offset))}ret;\n}}\n")
        allocated = [(GLOBAL, GLOBAL + SIZE)] if known else []
        launched = Launched(flow, Geometry((32, 1, 1)), {"data": GLOBAL.to_bytes(8, "little")}, allocated=allocated)
        return errors(check(launched)) & {"aligned", "outside"}

    assert not found(0)
    assert not found(SIZE - multiple)
    assert found(multiple // 2) == {"aligned"}
    assert not found(SIZE, known=False)
    beyond = found(SIZE)
    assert beyond == (set() if name == "cp.async" else {"outside"})


def test_bytes_of_a_bulk_copy() -> None:
    text = POINTER + "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r2], {};\n"
    assert not kinds(text.replace("{}", "48"))
    assert kinds(text.replace("{}", "40")) == {"aligned"}


LOCAL = "cvt.u64.u32 %d1, %r0;\nmov.b64 %d2, own;\n"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("st.local.b32 [%d2+28], 1;\n", set()),
        ("st.local.b32 [%d2+32], 1;\n", {"outside"}),
        ("st.local.v2.b32 [%d2+28], {%r4, %r5};\n", {"aligned", "outside"}),
        ("ld.local.b32 %r4, [%d2+-4];\n", set()),
        ("ld.local.b64 %d3, [%d2+4];\n", {"aligned"}),
        ("shl.b64 %d1, %d1, 2;\nadd.u64 %d2, %d2, %d1;\nld.local.b32 %r4, [%d2];\n", {"outside"}),
    ],
)
def test_the_frame_of_local_memory(text: str, wrong: set[str]) -> None:
    """What lies in front of a variable may be another one."""
    frame = ".local .align 8 .b8 first[8];\n.local .align 8 .b8 own[32];\nmov.b64 %d4, first;\n"
    assert kinds(frame + LOCAL + text) == wrong


@pytest.mark.parametrize(("offset", "wrong"), [(0, False), (8, False), (4, True), (7, True)])
def test_parameters(offset: int, wrong: bool) -> None:
    given = {"many": (".param .align 8 .b8 many[16]", bytes(16))}
    text = f"mov.b64 %d1, many;\nadd.u64 %d1, %d1, {offset};\nld.param.u64 %d2, [%d1];\n"
    assert ("aligned" in errors(checked(text, parameters=given))) is wrong
    assert checked("ld.param.u32 %r4, [many+4];\n", parameters=given).verdict is Verdict.CLEAN


MAP = TensorMap(TensorMapType.FLOAT16, GLOBAL, (64, 64), (128,), (32, 8))
LOAD = (
    "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 512;\n@%p0 cp.async.bulk.tensor.2d.shared::cta.global"
    ".tile.mbarrier::complete_tx::bytes [%r2+{}], [%d0, {{%r4, %r4}}], [%r1];\n"
)
STORE = "@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d0, {{%r4, %r4}}], [%r2+{}];\n"


@pytest.mark.parametrize("copy", [LOAD, STORE], ids=["load", "store"])
@pytest.mark.parametrize(
    ("place", "of_map", "wrong"),
    [(0, 0, set()), (128, 64, set()), (64, 0, {"aligned"}), (16, 0, {"aligned"}), (0, 32, {"aligned"}),
     (4096 + 4096, 0, {"outside"})],
)  # fmt: skip
def test_boxes_and_their_maps(copy: str, place: int, of_map: int, wrong: set[str]) -> None:
    text = POINTER + copy.format(place)
    at = GLOBAL + of_map
    found = checked(text, parameters=number("data", at, "u64", 8), maps={at: MAP.encode()})
    assert errors(found) & {"aligned", "outside"} == wrong


@pytest.mark.parametrize(("place", "wrong"), [(0, False), (128, False), (64, True), (8, True)])
def test_maps_that_are_changed(place: int, wrong: bool) -> None:
    text = f"@%p0 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r2+{place}], %d1;\n"
    assert bool(kinds(text)) is wrong


@pytest.mark.parametrize(("place", "wrong"), [(0, False), (16, False), (8, True), (4, True)])
def test_responses(place: int, wrong: bool) -> None:
    text = "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 16;\n@%p0 clusterlaunchcontrol.try_cancel.async"
    text += f".shared::cta.mbarrier::complete_tx::bytes.b128 [%r2+{place}], [%r1];\n"
    assert bool(kinds(text)) is wrong
