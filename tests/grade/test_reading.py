# SPDX-License-Identifier: Apache-2.0
"""Shapes that are read from PTX: kernels made for each rung of the published ladders, and variations of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from grade.kernels import kernel
from grade.published import BIG_STEP, Ladder, Rung, ladders, pairs

from porter.grade.calibration import Point
from porter.grade.chips import chips
from porter.grade.model import missing, run
from porter.grade.reading import Launch, Reading, read_shape
from porter.grade.shape import Mma, Shape
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.parser import parse_module
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind

RUNGS = [(ladder, rung) for ladder in ladders() for rung in ladder.rungs]


def read(text: str, launch: Launch | None = None) -> Reading:
    module = parse_module(text)
    return read_shape(module, module.entries()[0], launch)


def launch_of(shape: Shape) -> Launch:
    return Launch(shape.residency.threads, (shape.residency.smem or 0) + 1024, row_bytes=shape.row_bytes)


def shape_of(shape: Shape) -> Shape:
    found = read(kernel(shape), launch_of(shape)).shape
    assert found is not None
    return found


@pytest.mark.parametrize(("ladder", "rung"), RUNGS, ids=lambda x: f"{x.name}")
def test_the_shape_of_a_rung_is_read(ladder: Ladder, rung: Rung) -> None:
    found, given = shape_of(rung.shape), rung.shape
    assert found.mmas == given.mmas
    assert (found.tile_m, found.tile_n, found.tile_k) == (given.tile_m, given.tile_n, given.tile_k)
    assert (found.load_bytes, found.stages, found.roles) == (given.load_bytes, given.stages, given.roles)
    assert (found.waits_each, found.persistent, found.row_bytes) == (
        given.waits_each,
        given.persistent,
        given.row_bytes,
    )
    assert found.epilogue == replace(given.epilogue, load_columns=found.epilogue.load_columns)
    assert found.residency.tmem_columns == given.residency.tmem_columns


def test_kernels_of_the_ladders_are_in_their_order() -> None:
    """What is read from PTX is graded: 64 of the 67 pairs, and all big steps."""
    found = []
    for ladder in ladders():
        points = [
            Point(ladder.name, r.name, r.measured, run(shape_of(r.shape), chips()["B200"], ladder.problem).rate)
            for r in ladder.rungs
        ]
        found += pairs(ladder, points)
    assert len(found) == 67
    assert sum(p.right for p in found) >= 64
    assert not [p for p in found if p.factor >= BIG_STEP and not p.right]


# --- Variations

SERIAL = next(r.shape for _, r in RUNGS if r.shape.roles == "serial")
RING = next(r.shape for _, r in RUNGS if r.shape.roles == "specialized" and r.shape.stages == 7)


@pytest.mark.parametrize("stages", range(2, 9))
def test_the_number_of_stages_is_read(stages: int) -> None:
    given = replace(RING, stages=stages, residency=replace(RING.residency, smem=stages * (RING.load_bytes or 0)))
    assert shape_of(given).stages == stages


def test_stages_are_unknown_where_no_text_says_them() -> None:
    lines = [line for line in kernel(RING).splitlines() if not line.startswith("selp")]
    found = read("\n".join(lines), Launch(row_bytes=128))
    assert found.shape is not None
    assert missing(found.shape) == ("the number of stages",)
    assert "the number of stages" in found.unknown


def test_shared_memory_that_a_launch_fills_says_the_stages() -> None:
    lines = [line for line in kernel(RING).splitlines() if not line.startswith("selp")]
    found = read("\n".join(lines), launch_of(RING)).shape
    assert found is not None
    assert found.stages == 7


@pytest.mark.parametrize(("barriers", "stages"), [(6, 3), (8, 3), (12, None), (2, None)])
def test_barriers_for_as_many_stages_as_there_is_room_for(barriers: int, stages: int | None) -> None:
    """Beside three stages lies what an epilogue stores; two mbarriers a stage, and up to three others."""
    lines = [line for line in kernel(RING).splitlines() if not line.startswith("selp")]
    at = next(i for i, line in enumerate(lines) if line.startswith("tcgen05.alloc"))
    lines[at:at] = [f"mbarrier.init.shared::cta.b64 [%r4+{8 * i}], 1;" for i in range(barriers)]
    smem = 3 * (RING.load_bytes or 0) + 20000
    found = read("\n".join(lines), Launch(RING.residency.threads, smem, row_bytes=128)).shape
    assert found is not None
    assert found.stages == stages


OVERLAPPED = next(r.shape for _, r in RUNGS if r.shape.epilogue.overlapped and r.shape.cta_group == 2)


def test_what_epilogues_load_is_no_stage() -> None:
    """A warp that loads for each tile what is added to its results, in more parts than a stage has."""
    text = kernel(OVERLAPPED)
    lines = text.splitlines()
    load = next(line for line in lines if line.startswith("cp.async.bulk.tensor") and "complete_tx" in line)
    part = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4+40], 8192;\n" + f"{load}\n" * 4
    first = next(i for i, line in enumerate(lines) if line.startswith("tcgen05.ld")) - 9
    at = lines.index("LAB_WAIT:", first - 12) - 2
    lines[at:at] = (part * 8).splitlines()
    changed = "\n".join(lines)
    found, before = read(changed, launch_of(OVERLAPPED)), read(text, launch_of(OVERLAPPED))
    assert found.shape is not None
    assert not found.unknown
    assert found.shape == before.shape


def test_a_test_of_the_next_stage_is_no_wait() -> None:
    """Whether the next stage is full already is asked behind the MMAs, as in CUTLASS; the wait is that of its loop."""
    text = kernel(RING)
    commit = next(line for line in text.splitlines() if line.startswith("tcgen05.commit"))
    ahead = "mbarrier.try_wait.parity.shared::cta.b64 %p9, [%r4+8], %r9;\nselp.b32 %r98, 1, 0, %p9;"
    found = read(text.replace(commit, f"{commit}\n{ahead}"), launch_of(RING)).shape
    assert found is not None
    assert found == shape_of(RING)
    assert not found.waits_each
    waits = "{\n.reg .pred P1;\nLAB_WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%r4+16], %r9;\n"
    waits += "@P1 bra.uni DONE;\nbra.uni LAB_WAIT;\nDONE:\n}"
    held = read(text.replace(commit, f"{commit}\n{waits}"), launch_of(RING)).shape
    assert held is not None
    assert held.waits_each


def test_warps_that_meet_do_not_wait_for_mmas() -> None:
    """An mbarrier at which warps arrive themselves, and wait, ahead of each stage's MMAs. That of a ring of stages is
    another one in each pass, and so is no meeting."""
    text = kernel(RING)
    commit = next(line for line in text.splitlines() if line.startswith("tcgen05.commit"))

    def with_meeting(arrive: str, wait: str, ahead: str = "") -> Shape:
        lines = f"{ahead}mbarrier.arrive.shared::cta.b64 _, {arrive};\n{{\n.reg .pred P1;\nLAB_WAIT:\n"
        lines += f"mbarrier.try_wait.parity.shared::cta.b64 P1, {wait}, %r9;\n"
        lines += "@P1 bra.uni DONE;\nbra.uni LAB_WAIT;\nDONE:\n}\n"
        found = read(text.replace(commit, f"{commit}\n{lines}"), launch_of(RING)).shape
        assert found is not None
        return found

    made = "mov.u32 %r70, barriers;\nadd.s32 %r71, %r70, 64;\nmov.u32 %r72, barriers;\nadd.s32 %r73, %r72, 64;\n"
    assert with_meeting("[%r4+48]", "[%r4+48]") == shape_of(RING)
    assert with_meeting("[%r71]", "[%r73]", made) == shape_of(RING)
    assert with_meeting("[%r4+48]", "[%r4+56]").waits_each
    ring = "shl.b32 %r70, %r22, 3;\nadd.s32 %r71, %r4, %r70;\n"
    assert with_meeting("[%r71]", "[%r71]", ring).waits_each


def test_waiting_for_copies_of_scales_is_no_wait_for_their_mmas() -> None:
    """A commit behind a copy to Tensor Memory, ahead of the MMAs that read it, is complete when MMAs of the stage
    before may still run. One behind these MMAs is not."""
    text = kernel(RING)
    mma = next(line for line in text.splitlines() if "tcgen05.mma" in line)
    wait = "{\n.reg .pred P1;\nLAB_COPIED:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%r4+48], %r9;\n"
    wait += "@P1 bra.uni COPIED;\nbra.uni LAB_COPIED;\nCOPIED:\n}\n"
    copy = "tcgen05.cp.cta_group::1.32x128b.warpx4 [%r3], %rd1;\n"
    commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r4+48];\n"
    ahead = read(text.replace(mma, f"{wait}{copy}{commit}{mma}", 1), launch_of(RING)).shape
    assert ahead is not None
    assert not ahead.waits_each
    behind = read(text.replace(mma, f"{wait}{copy}{mma}\n{commit}", 1), launch_of(RING)).shape
    assert behind is not None
    assert behind.waits_each


@pytest.mark.parametrize(
    ("change", "name"),
    [
        pytest.param(
            ("mov.b32 %r6, ", "ld.param.u32 %r6, [kernel_param_2]; // "), "M and N", id="idesc of a parameter"
        ),
        pytest.param(("mov.b32 %r5, ", "ld.param.u32 %r5, [kernel_param_2]; // "), "bytes of a stage", id="bytes"),
        pytest.param(("tcgen05.mma.", "// "), "tensor-core", id="no MMA"),
        pytest.param(("cp.async.bulk.tensor.2d.shared", "// "), "loads", id="no loads"),
    ],
)
def test_what_is_not_known_is_said(change: tuple[str, str], name: str) -> None:
    found = read(kernel(RING).replace(*change), launch_of(RING))
    assert any(name in text for text in found.unknown)
    assert found.shape is None or missing(found.shape)


def test_a_parameter_of_the_launch_says_the_shape() -> None:
    text = kernel(RING)
    word = int(text.split("mov.b32 %r6, ")[1].split(";")[0])
    text = text.replace("mov.b32 %r6, ", "ld.param.u32 %r6, [kernel_param_2]; // ")
    given = replace(launch_of(RING), parameters={"kernel_param_2": word.to_bytes(4, "little")})
    found = read(text, given).shape
    assert found is not None
    assert found.mmas == RING.mmas


def test_a_loop_that_was_unrolled_has_the_same_stage() -> None:
    """Two stages a pass, as ptxas and nvcc like to have them."""
    text = kernel(SERIAL)
    start, end = text.index("$L_1:\n") + len("$L_1:\n"), text.index("add.s32 %r60")
    body = text[start:end]
    found = read(text[:start] + body + text[start:], launch_of(SERIAL)).shape
    assert found is not None
    assert (found.mmas, found.tile_m, found.tile_n, found.load_bytes) == (
        SERIAL.mmas, SERIAL.tile_m, SERIAL.tile_n, SERIAL.load_bytes
    )  # fmt: skip


def variants() -> Iterator[tuple[str, Shape]]:
    mma = Mma(64, 128, Kind.F16)
    base = replace(RING, mmas=((mma, 8),), tile_m=128, tile_n=128)
    yield "two tiles of 64 rows", base
    yield "fp8", replace(RING, mmas=((Mma(128, 128, Kind.F8F6F4), 4),))
    yield "N = 64", replace(RING, mmas=((Mma(128, 64, Kind.F16), 4),), tile_n=64, load_bytes=24576)
    yield "N = 192", replace(RING, mmas=((Mma(128, 192, Kind.F16), 4),), tile_n=192, load_bytes=40960, stages=4)
    yield "two tiles of 128 rows", replace(RING, mmas=((Mma(128, 128, Kind.F16), 8),), tile_m=256, load_bytes=49152,
                                           stages=4)  # fmt: skip


@pytest.mark.parametrize(("name", "given"), list(variants()), ids=lambda x: x if isinstance(x, str) else "")
def test_other_tiles_are_read(name: str, given: Shape) -> None:
    given = replace(given, residency=replace(given.residency, smem=(given.stages or 0) * (given.load_bytes or 0)))
    found = shape_of(given)
    assert found.mmas == given.mmas
    assert (found.tile_m, found.tile_n, found.load_bytes) == (given.tile_m, given.tile_n, given.load_bytes)


@pytest.mark.parametrize(("threads", "issuers"), [(384, 2), (288, 2), (160, 1), (256, 1), (416, 3)])
def test_warps_that_load_are_a_warpgroup_or_left_over(threads: int, issuers: int) -> None:
    """Tiles of 64 rows, one for each warpgroup that issues MMAs."""
    rows = 64 * issuers
    given = replace(RING, mmas=((Mma(64, 128, Kind.F16), 4),), tile_m=rows, load_bytes=(rows + 128) * 128, stages=4)
    text = kernel(replace(given, residency=replace(given.residency, threads=threads)))
    found = read(text, Launch(threads, 4 * (given.load_bytes or 0), row_bytes=128)).shape
    assert found is not None
    assert (found.issuers, found.tile_m, found.tile_n) == (issuers, rows, 128)


def test_columns_that_mmas_of_different_n_share() -> None:
    """128 x 192 as 128 and 64 columns: the words of two instruction descriptors."""
    given = replace(RING, mmas=((Mma(128, 128, Kind.F16), 4),), tile_n=192, load_bytes=(128 + 192) * 128, stages=4)
    text = kernel(given)
    other = InstructionDescriptor(Kind.F16, 128, 64, ElementType.F32, ElementType.BF16, ElementType.BF16).encode()
    one = "tcgen05.mma.cta_group::1.kind::f16 [%r15], %rd2, %rd3, %r6, %p1;\n"
    assert text.count(one) == 4
    text = text.replace(one, one + one.replace("%r6", "%r7"))
    text = text.replace("mov.b32 %r6,", f"mov.b32 %r7, {other};\nmov.b32 %r6,")
    found = read(text, Launch(given.residency.threads, 4 * (given.load_bytes or 0), row_bytes=128)).shape
    assert found is not None
    assert {mma.n: count for mma, count in found.mmas} == {128: 4, 64: 4}
    assert (found.tile_m, found.tile_n, found.tile_k, found.issuers) == (128, 192, 64, 1)


def by_threads(bytes_of_one: int) -> str:
    """The serial rung with loads through registers: 128 threads load a stage in pieces."""
    text = kernel(SERIAL)
    start, end = text.index("mbarrier.arrive.expect_tx"), text.index("{\n.reg .pred P1")
    pieces = (SERIAL.load_bytes or 0) // 128 // bytes_of_one
    vector = {16: "v4.b32 {%r70, %r71, %r72, %r73}", 2: "u16 %rs1"}[bytes_of_one]
    kind, register = vector.split(" ", 1)
    return text[:start] + f"ld.global.{kind} {register}, [%rd5];\nst.{kind} [%rd6], {register};\n" * pieces + text[end:]


@pytest.mark.parametrize("width", [2, 16])
def test_loads_through_registers_are_read_and_are_slower(width: int) -> None:
    found = read(by_threads(width), launch_of(SERIAL)).shape
    assert found is not None
    assert found.by_threads
    assert (found.tile_m, found.tile_n, found.load_bytes) == (SERIAL.tile_m, SERIAL.tile_n, SERIAL.load_bytes)
    chip, problem = chips()["B200"], ladders()[0].problem
    assert run(found, chip, problem).rate < 0.8 * run(SERIAL, chip, problem).rate


def test_loads_that_blocks_share_are_read_and_are_faster() -> None:
    text = kernel(RING).replace("complete_tx::bytes [", "complete_tx::bytes.multicast::cluster [")
    text = text.replace("[%r4+8];\ncp", "[%r4+8], %rs1;\ncp").replace("%r14}], [%r4+8];", "%r14}], [%r4+8], %rs1;")
    found = read(text, launch_of(RING)).shape
    assert found is not None
    assert found.multicast
    chip, problem = chips()["B200"], ladders()[0].problem
    assert run(found, chip, problem).rate > 1.1 * run(RING, chip, problem).rate


def test_the_order_of_a_tutorial_whose_steps_each_add_one_thing() -> None:
    """NVIDIA's SM100 tutorials: loads by threads, TMA, multicast, pairs; then results by TMA."""
    tile = replace(SERIAL, mmas=((Mma(128, 256, Kind.F16), 4),), tile_n=256, load_bytes=49152, roles="serial",
                   epilogue=replace(SERIAL.epilogue, store="threads", pieces=1, element_bytes=4),
                   residency=replace(SERIAL.residency, smem=49280, tmem_columns=512))  # fmt: skip
    shared = replace(tile, multicast=True, cluster=16)
    pair = replace(shared, mmas=((Mma(256, 256, Kind.F16, 2), 4),), tile_m=256, load_bytes=32768)
    last = replace(pair, epilogue=replace(pair.epilogue, store="tma", pieces=4))
    chip, problem = chips()["B200"], ladders()[0].problem
    steps = [run(s, chip, problem).rate for s in (replace(tile, by_threads=True), tile, shared, pair, last)]
    assert steps == sorted(set(steps))


def test_shared_memory_of_a_kernel_is_part_of_what_it_takes() -> None:
    """nvcc declares in a kernel what no other one uses; a ring lies in what the launch gives."""
    plain = kernel(RING)
    own = plain.replace(".reg .pred", ".shared .align 16 .b8 staged[4096];\n.reg .pred", 1)
    found, before = (read(text, launch_of(RING)).shape for text in (own, plain))
    assert found is not None
    assert before is not None
    assert found.stages == before.stages
    assert (found.residency.smem or 0) - (before.residency.smem or 0) == 4096
