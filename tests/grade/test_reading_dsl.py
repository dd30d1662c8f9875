# SPDX-License-Identifier: Apache-2.0
"""What is read from PTX in forms that CuTe DSL gives it: instruction descriptors of which a flag decides bits, and
loads of the first stages in a loop of their own behind which the first MMAs stand apart."""

from __future__ import annotations

import pytest
from grade.kernels import kernel
from grade.published import ladders

from porter.grade.reading import Launch, Reading, read_shape
from porter.grade.shape import Shape
from porter.ptx.parser import parse_module


def shape_with(roles: str) -> Shape:
    return next(r.shape for ladder in ladders() for r in ladder.rungs if r.shape.roles == roles)


RING = shape_with("specialized")
IDESC = next(line for line in kernel(RING).splitlines() if line.startswith("mov.b32 %r6, "))
WORD = int(IDESC.removesuffix(";").rpartition(" ")[2])
FLAG = "setp.eq.s32 %p40, %r3, 0;\n"


def read(text: str, launch: Launch | None = None) -> Reading:
    module = parse_module(text)
    return read_shape(module, module.entries()[0], launch)


def with_descriptor(*lines: str) -> Reading:
    return read(kernel(RING).replace(IDESC, FLAG + "\n".join(lines)), Launch(row_bytes=128))


MADE = {
    "a choice of majors beside the rest": (f"selp.b32 %r200, {1 << 15}, 0, %p40;", f"or.b32 %r6, %r200, {WORD};"),
    "a choice between two words": (f"selp.b32 %r6, {WORD}, {WORD | 1 << 16}, %p40;",),
    "two choices": (
        f"selp.b32 %r200, {WORD}, {WORD | 1 << 16}, %p40;",
        f"selp.b32 %r201, {1 << 15}, 0, %p40;",
        "or.b32 %r6, %r200, %r201;",
    ),
    "a flag that is shifted": (
        "selp.b32 %r200, 1, 0, %p40;",
        "shl.b32 %r201, %r200, 15;",
        f"or.b32 %r6, %r201, {WORD};",
    ),
    "a number behind a mask": ("and.b32 %r200, %r3, 32768;", f"or.b32 %r6, %r200, {WORD};"),
    "a flag that turns a bit": ("and.b32 %r200, %r3, 3;", f"xor.b32 %r6, %r200, {WORD};"),
    "a copy of a choice": (f"selp.b32 %r200, {WORD}, {WORD | 1 << 13}, %p40;", "mov.b32 %r6, %r200;"),
    "the complement of a complement": (
        f"selp.b32 %r200, {~WORD & 0xFFFFFFFF}, {~(WORD | 1 << 13) & 0xFFFFFFFF}, %p40;",
        "not.b32 %r6, %r200;",
    ),
    "high bits of a number": ("shr.u32 %r200, %r3, 30;", f"or.b32 %r6, %r200, {WORD};"),
    "one of two places": (f"mov.b32 %r6, {WORD};", f"@%p40 mov.b32 %r6, {WORD | 1 << 15};"),
}
UNKNOWN = {
    "N is chosen": (f"selp.b32 %r6, {WORD}, {WORD ^ 1 << 18}, %p40;",),
    "M is chosen": (f"selp.b32 %r6, {WORD}, {WORD ^ 1 << 26}, %p40;",),
    "a number that may reach N": ("and.b32 %r200, %r3, 131072;", f"or.b32 %r6, %r200, {WORD};"),
    "a sum": ("selp.b32 %r200, 1, 0, %p40;", f"add.s32 %r6, %r200, {WORD};"),
    "a shift by a number that nobody knows": ("shl.b32 %r200, 1, %r3;", f"or.b32 %r6, %r200, {WORD};"),
    "turned with itself in a loop": (f"mov.b32 %r6, {WORD};", f"@%p40 xor.b32 %r6, %r6, {1 << 17};"),
}


@pytest.mark.parametrize("form", MADE)
def test_known_bits_say_m_and_n(form: str) -> None:
    found = with_descriptor(*MADE[form]).shape
    assert found is not None
    assert found.mmas == RING.mmas


@pytest.mark.parametrize("form", UNKNOWN)
def test_bits_that_are_not_known_are_not_guessed(form: str) -> None:
    found = with_descriptor(*UNKNOWN[form])
    assert found.shape is None
    assert "those bits of the instruction descriptor are no constants" in found.unknown[-1]


LOADED = shape_with("pipelined")


def loop_of_loads(mmas_apart: bool, in_a_loop: bool) -> Reading:
    """A kernel whose first stages are loaded ahead, in a loop of their own or not, with the first MMAs ahead of the
    loop over K."""
    lines = kernel(LOADED).splitlines()
    first = next(i for i, line in enumerate(lines) if "expect_tx" in line)
    start = lines.index("mov.b32 %r60, 0;")
    loads, head = lines[first:start], ["mov.b32 %r61, 0;", "$L_90:"]
    back = ["add.s32 %r61, %r61, 1;", "setp.lt.s32 %p41, %r61, 2;", "@%p41 bra $L_90;"]
    apart = [line for line in lines if line.startswith(("tcgen05.mma", "tcgen05.commit"))]
    made = [*head, *loads, *back] if in_a_loop else loads
    lines[first:start] = [*made, *(apart if mmas_apart else ())]
    return read("\n".join(lines), Launch(128, LOADED.residency.smem, row_bytes=128))


@pytest.mark.parametrize(
    ("mmas_apart", "in_a_loop", "roles"),
    [(False, False, "pipelined"), (False, True, "pipelined"), (True, True, "pipelined"), (True, False, "serial")],
)
def test_loads_of_first_stages_have_a_loop_of_their_own(mmas_apart: bool, in_a_loop: bool, roles: str) -> None:
    """Without one they may be a copy of the loop's body."""
    found = loop_of_loads(mmas_apart, in_a_loop).shape
    assert found is not None
    assert found.roles == roles
    assert (found.stages == 1) is (roles == "serial")


def written_out(times: int, apart: bool) -> Reading:
    """The ring's kernel with its loop over K written out, each pass on one accumulator or (`apart`) on its own."""
    lines = kernel(RING).splitlines()
    start, end = lines.index("$L_5:") + 1, lines.index("@%p24 bra $L_5;")
    body = lines[start : end - 2]
    turns = [line.replace("[%r15]", f"[%r{16 + i if apart else 15}]") for i in range(times) for line in body]
    lines[start - 1 : end + 1] = turns
    return read("\n".join(lines), Launch(128, RING.residency.smem, row_bytes=128))


def test_a_loop_over_k_that_is_written_out() -> None:
    found, looped = (
        written_out(4, apart=False).shape,
        read(kernel(RING), Launch(128, RING.residency.smem, row_bytes=128)),
    )
    assert found is not None
    assert looped.shape is not None
    assert "a loop over K that is written out 4 times" in found.assumed
    assert (found.mmas, found.stages, found.roles) == (looped.shape.mmas, looped.shape.stages, looped.shape.roles)


@pytest.mark.parametrize(("times", "apart"), [(4, True), (1, False)])
def test_mmas_of_several_sums_or_of_one_pass_are_one_stage(times: int, apart: bool) -> None:
    found = written_out(times, apart).shape
    assert found is not None
    assert "no loop over K was found: what is graded is all MMAs as one stage" in found.assumed
