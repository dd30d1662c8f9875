# SPDX-License-Identifier: Apache-2.0
"""Which instructions each warp comes to, and how many a pass of a loop takes it: ways of choosing warps in PTX."""

from __future__ import annotations

import pytest

from porter.facts.code import Code
from porter.facts.warps import Warps
from porter.grade.kinds import counted, is_issued
from porter.grade.reading import Launch, read_shape
from porter.grade.shape import Shape
from porter.ptx.idesc import InstructionDescriptor
from porter.ptx.parser import parse_module
from porter.ptx.types import ElementType
from porter.ptx.umma import Kind

HEAD = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry kernel(.param .u32 given)
.reqntid 384
{
.reg .pred %p<16>;
.reg .b32 %r<32>;
.reg .b64 %rd<8>;
.reg .f32 %f<16>;
mov.u32 %r1, %tid.x;
shr.u32 %r2, %r1, 5;
"""


def warps(text: str, block: tuple[int, ...] = (384,), given: int = 7) -> tuple[Warps, Code]:
    module = parse_module(HEAD + text + "ret;\n}\n")
    code = Code(module, module.entries()[0], {"given": given.to_bytes(4, "little")})
    return Warps(code, block), code


def coming(text: str, block: tuple[int, ...] = (384,)) -> tuple[int, ...]:
    """The warps that come to a `nanosleep`."""
    found, code = warps(text, block)
    return found.to(frozenset(at for at, ins in enumerate(code.code) if ins.parts[0] == "nanosleep"))


HERE = "nanosleep.u32 1;\n$OUT:\n"
ALL = tuple(range(12))
CHOSEN = {
    "all": (HERE, ALL),
    "one warp": ("setp.ne.u32 %p1, %r2, 4;\n@%p1 bra $OUT;\n" + HERE, (4,)),
    "a negated guard": ("setp.eq.u32 %p1, %r2, 4;\n@!%p1 bra $OUT;\n" + HERE, (4,)),
    "one thread": ("setp.ne.u32 %p1, %r1, 32;\n@%p1 bra $OUT;\n" + HERE, (1,)),
    "a thread by its lane": ("and.b32 %r3, %r1, 31;\nsetp.ne.u32 %p1, %r3, 0;\n@%p1 bra $OUT;\n" + HERE, ALL),
    "the first warp of each warpgroup": ("and.b32 %r3, %r2, 3;\nsetp.ne.u32 %p1, %r3, 0;\n@%p1 bra $OUT;\n" + HERE,
                                         (0, 4, 8)),
    "a difference that wraps around": ("add.s32 %r3, %r2, -4;\nsetp.gt.u32 %p1, %r3, 7;\n@%p1 bra $OUT;\n" + HERE,
                                       (4, 5, 6, 7, 8, 9, 10, 11)),
    "a signed comparison": ("add.s32 %r3, %r2, -4;\nsetp.ge.s32 %p1, %r3, 0;\n@%p1 bra $OUT;\n" + HERE, (0, 1, 2, 3)),
    "two conditions": ("setp.lt.u32 %p1, %r2, 4;\nsetp.gt.u32 %p2, %r2, 5;\nor.pred %p3, %p1, %p2;\n@%p3 bra $OUT;\n"
                       + HERE, (4, 5)),
    "a register of two values": (
        "mov.u32 %r3, %r2;\nsetp.gt.u32 %p1, %r2, 5;\n@%p1 bra $ON;\nadd.u32 %r3, %r2, 6;\n$ON:\n"
        "setp.ne.u32 %p2, %r3, 7;\n@%p2 bra $OUT;\n" + HERE, (1, 7),
    ),
    "one that is written under a guard": (
        "mov.u32 %r3, %r2;\nsetp.lt.u32 %p1, %r2, 6;\n@%p1 mov.u32 %r3, 9;\nsetp.ne.u32 %p2, %r3, 9;\n@%p2 bra $OUT;\n"
        + HERE, (0, 1, 2, 3, 4, 5, 9),
    ),
    "a selection": ("setp.lt.u32 %p1, %r2, 6;\nselp.b32 %r3, 0, 1, %p1;\nsetp.eq.u32 %p2, %r3, 0;\n@%p2 bra $OUT;\n"
                    + HERE, (6, 7, 8, 9, 10, 11)),
    "a value of the first lane": (
        "shfl.sync.idx.b32 %r3|%p1, %r2, 0, 31, -1;\nsetp.ne.u32 %p2, %r3, 3;\n@%p2 bra $OUT;\n" + HERE, (3,),
    ),
    "a division": ("div.u32 %r3, %r1, 128;\nsetp.ne.u32 %p1, %r3, 2;\n@%p1 bra $OUT;\n" + HERE, (8, 9, 10, 11)),
    "warps that left": ("setp.lt.u32 %p1, %r2, 10;\n@%p1 exit;\n" + HERE, (10, 11)),
    "a parameter": ("ld.param.u32 %r3, [given];\nsetp.ne.u32 %p1, %r2, %r3;\n@%p1 bra $OUT;\n" + HERE, (7,)),
    "what nobody knows": ("ld.global.u32 %r3, [%rd1];\nsetp.ne.u32 %p1, %r2, %r3;\n@%p1 bra $OUT;\n" + HERE, ALL),
    "one that a loop changes": (
        "mov.u32 %r3, 0;\n$L:\nadd.u32 %r3, %r3, 1;\nsetp.lt.u32 %p1, %r3, 5;\n@%p1 bra $L;\n"
        "setp.ne.u32 %p2, %r3, %r2;\n@%p2 bra $OUT;\n" + HERE, ALL,
    ),
    "one that an elected lane chose": (
        "setp.ne.u32 %p1, %r2, 4;\n@%p1 bra $OUT;\nelect.sync %r3|%p2, -1;\n@!%p2 bra $OUT;\n" + HERE, (4,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHOSEN)
def test_the_warps_that_come_to_a_place(name: str) -> None:
    text, expected = CHOSEN[name]
    assert coming(text) == expected


def test_threads_are_numbered_along_the_axes() -> None:
    rank = "mov.u32 %r4, %tid.y;\nmov.u32 %r5, %ntid.x;\nmad.lo.u32 %r6, %r4, %r5, %r1;\nshr.u32 %r2, %r6, 5;\n"
    text = rank + "setp.ne.u32 %p1, %r2, 5;\n@%p1 bra $OUT;\n" + HERE
    assert coming(text, (32, 12, 1)) == (5,)
    assert coming("mov.u32 %r2, %tid.z;\nsetp.ne.u32 %p1, %r2, 1;\n@%p1 bra $OUT;\n" + HERE, (16, 2, 4)) == (1,)


def path(body: str, warp: int = 0) -> list[str]:
    """The opcodes of a pass of the outermost loop."""
    found, code = warps("mov.u32 %r9, 0;\n$TOP:\n" + body + "add.u32 %r9, %r9, 1;\nsetp.lt.u32 %p9, %r9, %r10;\n"
                        "@%p9 bra $TOP;\n")  # fmt: skip
    loop = max(code.loops, key=lambda one: len(one.body))
    return [code.code[at].parts[0] for at in found.path(warp, loop)]


ELSE = ("setp.ne.u32 %p1, %r11, 0;\n@%p1 bra $ELSE;\nex2.approx.f32 %f1, %f1;\nbra $JOIN;\n$ELSE:\n"
        "rcp.approx.f32 %f1, %f1;\nrcp.approx.f32 %f1, %f1;\nrcp.approx.f32 %f1, %f1;\n$JOIN:\n")  # fmt: skip


def test_of_two_branches_the_longer_counts() -> None:
    assert path(ELSE).count("rcp") == 3
    assert "ex2" not in path(ELSE)


def test_a_warp_has_the_branch_that_it_takes() -> None:
    mine = ELSE.replace("%r11, 0", "%r2, 4")
    assert (path(mine, 4).count("ex2"), path(mine, 4).count("rcp")) == (1, 0)
    assert (path(mine, 3).count("ex2"), path(mine, 3).count("rcp")) == (0, 3)


def test_what_holds_in_the_first_pass_alone_does_not_count() -> None:
    first = "setp.ne.u32 %p1, %r8, 0;\n@%p1 bra $ON;\n" + "rcp.approx.f32 %f1, %f1;\n" * 9 + "$ON:\nmov.u32 %r8, 1;\n"
    assert "rcp" not in path(first)
    assert path(first.replace("mov.u32 %r8, 1", "xor.b32 %r8, %r8, %r11")).count("rcp") == 9


INNER = "mov.u32 %r5, 0;\n$IN:\nex2.approx.f32 %f1, %f1;\nadd.u32 %r5, %r5, 1;\n"


def test_loops_inside_count_as_often_as_they_run() -> None:
    assert path(INNER + "setp.lt.s32 %p1, %r5, 6;\n@%p1 bra $IN;\n").count("ex2") == 6
    assert path(INNER + "setp.lt.s32 %p1, %r5, %r11;\n@%p1 bra $IN;\n").count("ex2") == 1


def test_a_loop_of_two_turns_has_a_path() -> None:
    text = "mov.u32 %r5, 0;\n$IN:\nex2.approx.f32 %f1, %f1;\nsetp.eq.u32 %p1, %r5, 0;\nmov.u32 %r5, 1;\n@%p1 bra $IN;\n"
    found, code = warps(text)
    assert [code.code[at].parts[0] for at in found.path(0, code.loops[0])].count("ex2") == 1
    assert found.trips(code.loops[0]) == 2
    assert path(text).count("ex2") == 2


def test_a_loop_that_asks_first_counts_with_its_body() -> None:
    body = ("mov.u32 %r5, 0;\n$IN:\nsetp.ge.s32 %p1, %r5, %r11;\n@%p1 bra $ON;\nex2.approx.f32 %f1, %f1;\n"
            "add.u32 %r5, %r5, 1;\nbra $IN;\n$ON:\n")  # fmt: skip
    assert path(body).count("ex2") == 1


def test_a_way_out_of_the_loop_is_no_pass() -> None:
    leaves = "setp.ne.u32 %p1, %r11, 0;\n@%p1 bra $LEAVE;\nbra $ON;\n$LEAVE:\n" + "rcp.approx.f32 %f1, %f1;\n" * 9
    text = leaves + "ret;\n$ON:\n"
    assert "rcp" not in path(text)


# --- What the reader makes of it

KERNEL = """{role}
mov.u32 %r9, 0;
$TOP:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r12], 0;
setp.ne.u32 %p1, %r2, {issuer};
@%p1 bra $SKIP;
tcgen05.mma.cta_group::1.kind::f16 [%r4], %rd1, %rd2, {idesc}, %p3;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r14];
$SKIP:
$DONE:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r14], 0;
@!%p2 bra $DONE;
{middle}
tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r6}}, [%r4];
ex2.approx.f32 %f1, %f2;
add.u32 %r9, %r9, 1;
setp.lt.u32 %p9, %r9, %r10;
@%p9 bra $TOP;
$OUT:
"""
LOADS = """setp.ge.u32 %p1, %r2, 4;
@%p1 bra $CONSUME;
mov.u32 %r9, 0;
$FILL:
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r12], 4096;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r13], [%rd3, {%r9, %r9}], [%r12];
add.u32 %r9, %r9, 1;
setp.lt.u32 %p9, %r9, %r10;
@%p9 bra $FILL;
bra $OUT;
$CONSUME:
"""
IDESC = InstructionDescriptor(Kind.F16, 128, 64, ElementType.F32, ElementType.BF16, ElementType.BF16).encode()
AGAIN = """setp.ne.u32 %p1, %r2, 4;
@%p1 bra $SKIP2;
tcgen05.mma.cta_group::1.kind::f16 [%r4], [%r5], %rd2, IDESC, %p3;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r14];
$SKIP2:
$DONE2:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r14], 1;
@!%p2 bra $DONE2;
""".replace("IDESC", str(IDESC))  # fmt: skip


def shape(issuer: str, middle: str = AGAIN, launch: Launch | None = None) -> Shape:
    text = HEAD + KERNEL.format(role=LOADS, issuer=issuer, middle=middle, idesc=IDESC) + "ret;\n}\n"
    module = parse_module(text)
    found = read_shape(module, module.entries()[0], launch or Launch(384, 65536)).shape
    assert found is not None
    return found


def test_one_warp_that_issues_for_two_warpgroups_is_one_issuer() -> None:
    found = shape("4")
    assert found.issuers == 1
    assert sum(count for _, count in found.mmas) == 2


def test_a_warp_of_each_warpgroup_that_issues_is_two() -> None:
    text = "4;\nand.b32 %r3, %r2, 3;\nsetp.ne.u32 %p1, %r3, 0"
    found = shape(text, "")
    assert found.issuers == 2


def test_batches_that_are_waited_for_one_after_the_other_are_counted() -> None:
    assert (shape("4").batches, shape("4", "").batches) == (2, 1)


def test_work_is_that_of_the_warps_that_come_to_it() -> None:
    work = shape("4").work
    assert work.mufu == 8 * 32
    # what issues is the business of one of the eight
    one = shape("11").work.instructions
    assert work.instructions == one
    kinds = dict(work.kinds)
    assert kinds["MUFU"] == 8
    assert kinds["Tensor Memory"] == 8
    assert sum(kinds.values()) == work.instructions


NAMES = {
    "mov.b64 %rd1, {%r1, %r2}": False,
    "mov.b64 {%r1, %r2}, %rd1": False,
    "mov.b128 %rq1, {%rd1, %rd2}": False,
    "mov.b32 %r1, {%rs1, %rs2}": True,
    "mov.b64 %rd1, {%rs1, %rs2, %rs3, %rs4}": True,
    "mov.b64 %rd1, %rd2": True,
    "add.s32 %r1, %r2, %r3": True,
}
"""Whether an instruction is more than names of registers: halves of one take instructions."""


@pytest.mark.parametrize("text", NAMES)
def test_a_pair_and_its_registers_are_names_of_the_same(text: str) -> None:
    _, code = warps(text + ";\n")
    assert is_issued(code.code[-2]) is NAMES[text]


def test_names_of_registers_are_no_work() -> None:
    plain, named = (shape("4", middle).work for middle in (AGAIN, AGAIN + "mov.b64 %rd1, {%r1, %r2};\n"))
    assert named == plain
    assert shape("4", AGAIN + "mov.b64 %rd1, %rd2;\n").work.instructions == plain.instructions + 8


def test_threads_of_unknown_axes_all_count() -> None:
    text = HEAD.replace("%tid.x;", "%tid.y;") + KERNEL.format(role=LOADS, issuer="4", middle="", idesc=IDESC)
    module = parse_module(text + "ret;\n}\n")
    entry = module.entries()[0]
    unknown = read_shape(module, entry, Launch(384, 65536)).shape
    known = read_shape(module, entry, Launch(384, 65536, block=(1, 384, 1))).shape
    assert unknown is not None
    assert known is not None
    assert unknown.issuers == 2
    assert (known.issuers, known.work.mufu) == (1, 8 * 32)


def test_kinds_of_instructions() -> None:
    texts = ["tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r6}, [%r4]", "mul.f32 %f1, %f2, %f3", "add.s32 %r1, %r2, %r3",
             "ex2.approx.f32 %f1, %f2", "setp.lt.u32 %p1, %r1, %r2", "and.pred %p1, %p2, %p3",
             "mov.u32 %r1, %r2", "cvt.rn.bf16x2.f32 %r1, %f1, %f2", "bar.sync 1, 256",
             "shfl.sync.bfly.b32 %r3|%p1, %r2, 1, 31, -1"]  # fmt: skip
    _, code = warps(";\n".join(texts) + ";\n")
    assert dict(counted(code.code[2:-1])) == {
        "Tensor Memory": 1, "mul of floats": 1, "integers and addresses": 1, "MUFU": 1, "choices and branches": 2,
        "copies": 1, "conversions": 1, "waiting": 1, "exchange in a warp": 1,
    }  # fmt: skip
