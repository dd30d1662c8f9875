# SPDX-License-Identifier: Apache-2.0
"""How many CTAs share an SM, original and port, and to which kernels it matters that the port's are fewer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from porter.build.ptxas import Resources
from porter.build.table import ResourceRow, Room
from porter.cli.gate import host_hint
from porter.ptx.occupancy import Resident
from porter.ptx.parser import parse_module
from porter.sim.block_needs import columns_held
from porter.sim.loader import load_program
from porter.verify.problem import LaunchValues
from porter.verify.room import Side, crowded, with_rooms

KERNEL = """.version 8.7
.target {target}
.address_size 64
{ahead}
.visible .entry k(.param .u64 out) {bounds}
{{
.reg .b32 %r<30>; .reg .b64 %d<10>; .reg .pred %p<10>; .reg .f32 %f<9>; .shared .align 4 .b8 slot[8];
ld.param.u64 %d0, [out]; mov.u32 %r1, slot; mov.u32 %r0, %tid.x; mov.u32 %r3, %nctaid.x;
{body}
ret;
}}
"""
ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], {};"
FREE = "ld.shared.u32 %r2, [%r1]; tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, {};"
SPIN = "W: ld.volatile.global.u32 %r5, [%d0]; setp.lt.u32 %p1, %r5, %r3; @%p1 bra W;"


def side(
    target: str, body: str, registers: int, *, bounds: str = ".maxntid 128", ahead: str = "", barriers: int = 1,
    launch: LaunchValues | None = None,
) -> Side:  # fmt: skip
    ptx = KERNEL.format(target=target, body=body, bounds=bounds, ahead=ahead)
    used = Resources(registers, static_smem=1024, barriers=barriers)
    return Side(ptx, target, {"k": used}, {} if launch is None else {"k": launch})


def row(before: Side, after: Side, hint: str = "") -> ResourceRow:
    (found,) = with_rooms([ResourceRow("k", before.arch, after.arch, (), entries=("k", "k"))], before, after, hint)
    return found


def port(columns: int = 256, body: str = "", **more: Any) -> Side:
    return side("sm_100a", ALLOC.format(columns) + body + FREE.format(columns), 142, **more)


# What the original does, and whether its CTAs wait for each other.
WAITS = {
    "a spin on a volatile load": (SPIN, True),
    "an acquire": (SPIN.replace("volatile", "acquire.gpu"), True),
    "a relaxed load": (SPIN.replace("volatile", "relaxed.sys"), True),
    "a generic address": (SPIN.replace("volatile.global", "volatile"), True),
    "past the cache": (SPIN.replace("volatile.global", "global.cg"), True),
    "an atomic that adds 0": ("W: atom.global.add.u32 %r5, [%d0], 0; setp.lt.u32 %p1, %r5, %r3; @%p1 bra W;", True),
    "a lock": ("W: atom.global.cas.b32 %r5, [%d0], 0, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra W;", True),
    "a pause": (SPIN.replace("W: ", "W: nanosleep.u32 32; "), True),
    "a fence in the loop": (SPIN.replace("setp", "fence.acq_rel.gpu; setp"), True),
    "two blocks of code": (
        "W: ld.volatile.global.u32 %r5, [%d0]; setp.eq.u32 %p1, %r5, 7; @%p1 bra OUT; nanosleep.u32 8; bra W; OUT:",
        True,
    ),
    "in an outer loop": (f"mov.u32 %r6, 0; O: {SPIN} add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 4; @%p2 bra O;", True),
    "the grid barrier of cooperative groups": ("mov.u32 %r7, %envreg2; mov.u32 %r8, %envreg1;", True),
    "a sum over an array": (
        "mov.u32 %r6, 0; W: ld.global.u32 %r5, [%d0]; add.u64 %d0, %d0, 4; add.u32 %r6, %r6, %r5;\n"
        "setp.lt.u32 %p1, %r5, %r3; @%p1 bra W;", False,
    ),
    "a counter of tiles": (
        "W: atom.global.add.u32 %r5, [%d0], 1; st.global.u32 [%d0+64], %r5; setp.lt.u32 %p1, %r5, %r3; @%p1 bra W;",
        False,
    ),
    "one thread looks for its block": (
        "W: @%p0 ld.volatile.global.u32 %r5, [%d0]; @%p0 st.shared.u32 [slot], %r5; bar.sync 0;\n"
        "ld.shared.u32 %r6, [slot]; bar.sync 0; setp.lt.u32 %p1, %r6, %r3; @%p1 bra W;",
        True,
    ),
    "a store to global memory in the loop": (SPIN.replace("setp", "st.global.u32 [%d0+4], %r0; setp"), False),
    "shared memory": (SPIN.replace("global", "shared").replace("%d0", "%r1"), False),
    "one look": ("ld.volatile.global.u32 %r5, [%d0];", False),
    "an atomic": ("atom.global.add.u32 %r5, [%d0], 1;", False),
}  # fmt: skip


@pytest.mark.parametrize("name", WAITS)
def test_whose_blocks_wait_for_each_other(name: str) -> None:
    body, waits = WAITS[name]
    found = row(side("sm_90a", body, 168), port())
    assert found.room is not None
    assert replace(found.room, why="") == Room(Resident(3, "registers"), Resident(2, "Tensor Memory"))
    assert bool(found.room.why) == waits
    assert not waits or found.room.why.startswith(("they meet at a barrier of the grid", "they wait for each other"))
    assert [d.code.id for d in crowded([found], "k.cu")] == (["PT3055"] if waits else [])


def test_it_matters_only_if_they_are_fewer() -> None:
    for before, after, fewer in (
        (side("sm_90a", SPIN, 168), port(128), False),
        (side("sm_90a", SPIN, 255), port(256), False),
        (side("sm_90a", SPIN, 168), port(512), True),
        (side("sm_90a", SPIN, 64), port(64, barriers=16), True),
    ):
        found = row(before, after)
        assert found.room is not None
        assert (found.room.after.blocks < found.room.before.blocks) == fewer == bool(crowded([found], "k.cu"))


def test_why() -> None:
    plain = side("sm_90a", "", 168)
    room = Room(Resident(3, "registers"), Resident(2, "Tensor Memory"))
    assert row(plain, port()).room == room
    called = row(plain, port(), "cudaLaunchCooperativeKernel").room
    assert called == replace(room, why="the program calls cudaLaunchCooperativeKernel")
    launch = LaunchValues((9, 1, 1), (128, 1, 1), cooperative=True)
    both = side("sm_90a", "", 168, launch=launch), port(launch=launch)
    assert row(*both).room == replace(room, why="their launch is cooperative")
    (said,) = crowded([row(side("sm_90a", SPIN, 168), port())], Path("nowhere.cu"))
    assert said.message == (
        "k: by its Tensor Memory 2 of the port's CTAs share an SM, 3 of the original's, and they wait for each other"
    )


def test_the_launch_says_threads_and_shared_memory() -> None:
    launch = LaunchValues((9, 1, 1), (256, 1, 1), dynamic_smem=100_000)
    both = side("sm_90a", SPIN, 64, launch=launch), port(128, launch=launch)
    assert row(*both).room == Room(
        Resident(2, "shared memory"), Resident(1, "registers"), False, "they wait for each other"
    )


def test_columns_that_are_not_known_may_allow_fewer() -> None:
    unknown = side("sm_100a", "mov.u32 %r9, %nctaid.x;" + ALLOC.format("%r9"), 142)
    found = row(side("sm_90a", SPIN, 168), unknown)
    assert found.room is not None
    assert found.room.at_most


def test_what_is_not_known() -> None:
    assert row(side("sm_90a", SPIN, 168, bounds=""), port()).room is None
    dynamic = ".extern .shared .align 16 .b8 dyn[];"
    before = side("sm_90a", "mov.u32 %r9, dyn; ld.shared.u32 %r9, [%r9];" + SPIN, 168, ahead=dynamic)
    (said,) = crowded([found := row(before, port())], "k.cu")
    assert found.room is not None
    assert found.room.at_most
    assert "at most 2 of the port's CTAs share an SM, at most 3 of the original's" in said.message
    unread = replace(before, ptx="no PTX")
    assert row(unread, port()).room is None
    other = ResourceRow("k", "sm_90a", "sm_100a", (), entries=("k", None))
    assert with_rooms([other], before, port()) == [other]


@pytest.mark.parametrize(
    ("body", "columns"),
    [
        (ALLOC.format(256), 256),
        (ALLOC.format(256) + FREE.format(256) + ALLOC.format(128) + FREE.format(128), 256),
        (ALLOC.format(256) + ALLOC.format(128), 384),
        ("mov.u32 %r4, 64; " + ALLOC.format("%r4"), 64),
        ("mov.u32 %r5, 128; mov.b32 %r4, %r5; " + ALLOC.format("%r4"), 128),
        ("mov.u32 %r4, 64; @%p0 mov.u32 %r4, 128; " + ALLOC.format("%r4"), None),
        ("add.u32 %r4, %r0, 32; " + ALLOC.format("%r4"), None),
        ("@%p0 bra B; " + ALLOC.format(256) + "bra C; B: " + ALLOC.format(512) + "C:", 512),
        (ALLOC.format(256) + "@%p0 bra C; " + FREE.format(256) + "ret; C: " + FREE.format(256), 256),
        ("", 0),
    ],
)
def test_columns_that_a_block_holds(body: str, columns: int | None) -> None:
    module = parse_module(KERNEL.format(target="sm_100a", body=body, bounds="", ahead=""))
    assert columns_held(load_program(module, "k")) == columns


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("cudaLaunchCooperativeKernel((void*)k, g, b, a, 0, s);", "cudaLaunchCooperativeKernel"),
        ("attr[0].id = cudaLaunchAttributeCooperative;", "cudaLaunchAttributeCooperative"),
        ("x.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;", "CU_LAUNCH_ATTRIBUTE_COOPERATIVE"),
        ("cuLaunchCooperativeKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, p);", "cuLaunchCooperativeKernel"),
        ("cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, k, 9, 0);",
         "cudaOccupancyMaxActiveBlocksPerMultiprocessor"),
        ("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&n, k, 128, 0, f);",
         "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags"),
        ("cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, k, 128, 0);", "cuOccupancyMaxActiveBlocksPerMultiprocessor"),
        ("cudaOccupancyMaxActiveClusters(&n, k, &config);", "cudaOccupancyMaxActiveClusters"),
        ("// cudaLaunchCooperativeKernel\nk<<<1, 128>>>();", ""),
        ("/* cudaLaunchAttributeCooperative */ k<<<1, 128>>>();", ""),
        ("my_cudaLaunchCooperativeKernel2(); cudaLaunchKernel(k, 1, 1, 0, 0, 0);", ""),
    ],
)  # fmt: skip
def test_what_host_code_says(text: str, hint: str) -> None:
    assert host_hint([b"int main() {", text.encode()]) == hint
