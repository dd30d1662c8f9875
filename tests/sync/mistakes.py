# SPDX-License-Identifier: Apache-2.0
"""Mistakes of synchronization by kind, as edits of PTX."""

from __future__ import annotations

from dataclasses import dataclass

from edits import (
    Edit,
    all_of,
    changed,
    doubled,
    dropped,
    late_again,
    late_drop,
    late_operand,
    late_pass,
    late_shift,
    moved,
    operand,
    passed,
    replaced,
    shifted,
)

WAIT = r"mbarrier\.(?:try|test)_wait"
PARITY = WAIT + r"\.parity"
ARRIVE = r"mbarrier\.arrive\.(?!expect)"
EXPECT = r"mbarrier\.arrive\.expect_tx"
INIT = r"mbarrier\.init"
LOAD = r"cp\.async\.bulk\.tensor[\w.:]*shared::c[\w.:]*\.global"
MULTICAST = r"cp\.async\.bulk\.tensor[\w.:]*multicast::cluster"
COMMIT = r"tcgen05\.commit"
MMA = r"tcgen05\.mma\.cta"
BEFORE, AFTER = r"tcgen05\.fence::before_thread_sync", r"tcgen05\.fence::after_thread_sync"
ALLOC, DEALLOC = r"tcgen05\.alloc", r"tcgen05\.dealloc"
WAIT_LD, PROXY, GROUP = r"tcgen05\.wait::ld", r"fence\.proxy\.async", r"wgmma\.wait_group"
CLUSTER_ARRIVE, CLUSTER_WAIT = r"barrier\.cluster\.arrive", r"barrier\.cluster\.wait"
BAR = r"bar(?:rier)?\.(?:cta\.)?sync"
ONLY_FIRST = changed(MULTICAST, lambda one: one.with_operand(-1, "1"))
TO_A_THIRD = changed(MULTICAST, lambda one: one.with_operand(-1, "7"))
AT_THE_END = all_of(dropped(CLUSTER_ARRIVE, -1), dropped(CLUSTER_WAIT, -1))
FLIPPED = "xor.b32 %planted3, %planted3, 1;"
MORE, FEWER = "add.u32 %planted3, %planted3, 1;", "sub.u32 %planted3, %planted3, 1;"
MORE_BYTES = "add.u32 %planted3, %planted3, 16;"
HALF, TWICE = "shr.u32 %planted3, %planted3, 1;", "shl.b32 %planted3, %planted3, 1;"


@dataclass(frozen=True)
class Plant:
    kind: str
    name: str
    edit: Edit
    late: bool = False
    """Whether it begins at turns 64 to 1,000."""


def _each(kind: str, name: str, *edits: Edit) -> list[Plant]:
    return [Plant(kind, f"{name}, {number}" if len(edits) > 1 else name, e) for number, e in enumerate(edits, 1)]


def _late(kind: str, name: str, edit: Edit) -> Plant:
    return Plant(kind, name, edit, late=True)


PLANTS: tuple[Plant, ...] = (
    *_each("arrivals", "no arrival", dropped(ARRIVE, 1), dropped(ARRIVE, -1)),
    *_each("arrivals", "an arrival twice", doubled(ARRIVE, 1), doubled(ARRIVE, -1)),
    *_each("arrivals", "count one more", operand(INIT, 1, MORE, 1), operand(INIT, 1, MORE, -1)),
    *_each("arrivals", "count one fewer", operand(INIT, 1, FEWER, 1), operand(INIT, 1, FEWER, -1)),
    *_each("bytes", "half of the bytes", operand(EXPECT, -1, HALF)),
    *_each("bytes", "twice the bytes", operand(EXPECT, -1, TWICE)),
    *_each("bytes", "16 bytes more", operand(EXPECT, -1, MORE_BYTES)),
    *_each("bytes", "a load left out", dropped(LOAD, 1), dropped(LOAD, -1)),
    *_each("bytes", "a load twice", doubled(LOAD, -1)),
    *_each("bytes", "a load that tells the next mbarrier", shifted(LOAD, -1, 8)),
    *_each("waits", "a wait taken as over", passed(WAIT, 1), passed(WAIT, 2), passed(WAIT, -1)),
    *_each("waits", "parity 0 always", *(changed(PARITY, lambda one: one.with_operand(2, "0"), n) for n in (1, 2, -1))),
    *_each("waits", "parity of the other phase", *(operand(PARITY, 2, FLIPPED, n) for n in (1, 2, -1))),
    *_each("waits", "a wait for the next mbarrier", shifted(WAIT, 0, 8), shifted(WAIT, 0, 8, -1)),
    *_each("shared memory", "a load lands 1,024 bytes further", shifted(LOAD, 0, 1024), shifted(LOAD, 0, 1024, -1)),
    *_each("shared memory", "a stage given back ahead of the last product", moved(ARRIVE, GROUP, -1, -1)),
    *_each("shared memory", "one group of products left open", replaced(GROUP, r"\b0;", "1;")),
    *_each("Tensor Memory", "no fence after", dropped(AFTER, 1), dropped(AFTER, 2), dropped(AFTER, -1)),
    *_each("Tensor Memory", "no fence before", dropped(BEFORE, 1), dropped(BEFORE, -1)),
    *_each("Tensor Memory", "no commit", dropped(COMMIT, 1), dropped(COMMIT, -1)),
    *_each("Tensor Memory", "a commit ahead of the last product", moved(COMMIT, MMA, -1, -1)),
    *_each("Tensor Memory", "a commit twice", doubled(COMMIT, -1)),
    *_each("Tensor Memory", "an arrival in place of a commit", changed(
        COMMIT, lambda one: f"{one.guard}mbarrier.arrive.shared::cta.b64 _, {one.operands[0]};")),
    *_each("unwritten", "products begin with what is there", replaced(MMA, r",\s*[%\w$]+;", ", %plant;")),
    *_each("registers", "no wait for what is loaded", dropped(WAIT_LD, 1), dropped(WAIT_LD, -1)),
    *_each("registers", "no wait for what is stored", dropped(r"tcgen05\.wait::st")),
    *_each("registers", "no wait for products", dropped(GROUP)),
    *_each("registers", "no fence ahead of products", dropped(r"wgmma\.fence")),
    *_each("proxy", "no fence for the asynchronous proxy", dropped(PROXY), dropped(PROXY, -1)),
    *_each("proxy", "no fence behind initializations", dropped(r"fence\.mbarrier_init")),
    *_each("columns", "half of the columns", replaced(ALLOC, r"\b(512|256|128|64)\b", "32")),
    *_each("columns", "never freed", dropped(DEALLOC)),
    *_each("columns", "freed twice", doubled(DEALLOC)),
    *_each("columns", "32 freed", replaced(DEALLOC, r"\b(512|256|128|64)\b", "32")),
    *_each("columns", "freed at once", moved(DEALLOC, MMA)),
    *_each("setmaxnreg", "nothing given", dropped(r"setmaxnreg\.dec")),
    *_each("setmaxnreg", "more taken", replaced(r"setmaxnreg\.inc", r"\b\d{2,3};", "256;")),
    *_each("named barrier", "left out", dropped(BAR, 1), dropped(BAR, 2), dropped(BAR, -1)),
    *_each("named barrier", "of more threads", replaced(BAR, r"\b128;", "256;"), replaced(BAR, r"\b0;", "0, 1024;")),
    *_each("named barrier", "another number", replaced(BAR, r"(sync\s+)[%\w]+", r"\g<1>7", -1)),
    *_each("cluster barrier", "none at the start", all_of(dropped(CLUSTER_ARRIVE), dropped(CLUSTER_WAIT))),
    *_each("cluster barrier", "no wait", dropped(CLUSTER_WAIT, 1), dropped(CLUSTER_WAIT, -1)),
    *_each("ended block", "no cluster barrier at the end", AT_THE_END),
    *_each("ended block", "a multicast to no more than the first block", ONLY_FIRST),
    *_each("ended block", "a multicast to a third block", TO_A_THIRD),
    *_each("deadlock", "arrivals at the next mbarrier", shifted(ARRIVE, 0, 8, -1), shifted(EXPECT, 0, 8)),
    *_each("deadlock", "commits at the next mbarrier", shifted(COMMIT, 0, 8)),
    _late("waits", "parity of the other phase from turn 70 on", late_operand(70, PARITY, 2, FLIPPED)),
    _late("waits", "parity of the other phase from turn 300 on", late_operand(300, PARITY, 2, FLIPPED, -1)),
    _late("waits", "a wait taken as over from turn 1,000 on", late_pass(1000, WAIT, -1)),
    _late("arrivals", "no arrival from turn 65 on", late_drop(65, ARRIVE, -1)),
    _late("bytes", "16 bytes more from turn 129 on", late_operand(129, EXPECT, -1, MORE_BYTES)),
    _late("bytes", "no load from turn 513 on", late_drop(513, LOAD, -1)),
    _late("waits", "a wait for the next mbarrier from turn 200 on", late_shift(200, PARITY)),
    _late("arrivals", "another arrival from turn 90 on", late_again(90, ARRIVE, -1)),
    _late("Tensor Memory", "no commit from turn 100 on", late_drop(100, COMMIT)),
)  # fmt: skip
