# SPDX-License-Identifier: Apache-2.0
"""Mistakes that begin at some number of turns, by what stands ahead of the loop or behind it, by operands of copies and
by numbers that wrap: no run of few turns shows them."""

from __future__ import annotations

import pytest
from test_turns import is_proved, runs
from turning_kernels import flow_of, launched, ring

from porter.sync.checked import Verdict, check
from porter.sync.repeating import Repeating
from porter.sync.sizes import Sizes
from porter.sync.turns import find_lasso

UNIT = 1 << 14
COUNT = 20
SKIP = "@%p7 bra $GO;\n"
READY = "$READY:\nbar.sync 0;\n"


def ahead(text: str, before_wait: str = SKIP) -> str:
    return ring(before_wait=before_wait).replace(READY, READY + text)


def with_copies(late: str = "", size: str = "16") -> str:
    """Bulk copies in place of stores."""
    copy = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r17], [%d1], {}, [%r14];\n"
    told = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r14], 16;\n"
    text = ring(store=told + late, arrive=copy.format(size), before_release="fence.proxy.async;\n")
    text = text.replace("shl.b32 %r16, %r11, 2", "shl.b32 %r16, %r11, 4")
    return text.replace("bar.sync 0;\n", "fence.proxy.async;\nbar.sync 0;\nmov.u64 %d1, 0x20000000000;\n").replace(
        ".reg .b32 %r<48>;", ".reg .b32 %r<48>;\n.reg .b64 %d<8>;"
    )


HALVES = "shr.u32 %r41, %r1, 1;\nshl.b32 %r41, %r41, 1;\nsub.u32 %r42, %r1, %r41;\n"
LAST = "add.u32 %r43, %r10, 2;\nadd.u32 %r43, %r43, %r42;\nsetp.gt.u32 %p8, %r43, %r1;\n@%p8 mov.u32 %r44, 1;\n"
RIGHT = {
    "all": ring(),
    "copies": with_copies(),
    "a half that is compared": ahead(HALVES, LAST),
    "the greater of the size and of less": ahead(
        "sub.s32 %r40, %r1, 8;\nmax.s32 %r41, %r40, %r1;\n", "setp.gt.s32 %p7, %r10, %r41;\n" + SKIP
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_follows_the_size_evenly_is_right_for_all(name: str) -> None:
    found, verdicts = runs(RIGHT[name], COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert is_proved(find_lasso(found, UNIT), COUNT)


BIT = "shr.u32 %r40, %r1, 6;\nand.b32 %r40, %r40, 1;\n"
BY_SIZE = {
    "a bit of the size": ahead(BIT + "setp.ne.u32 %p7, %r40, 0;\n"),
    "a parity": ahead(BIT, "xor.b32 %r19, %r19, %r40;\n"),
    "a count": ring().replace("[empty+0], 1;", "[empty+0], %r40;").replace(
        "@%p1 bra $READY;\n", "@%p1 bra $READY;\nshr.u32 %r40, %r1, 6;\nadd.u32 %r40, %r40, 1;\n"
    ),
    "the smaller of size and number": ahead("min.u32 %r40, %r1, 64;\n", "setp.ge.u32 %p7, %r10, %r40;\n" + SKIP),
}  # fmt: skip
BY_COMPARISON = {
    "the size": ahead("setp.gt.u32 %p7, %r1, 100;\n"),
    "what the size lacks": ahead(
        "sub.s32 %r31, %r1, 100;\n", "and.b32 %r30, %r10, 1;\nsetp.lt.s32 %p7, %r30, %r31;\n" + SKIP
    ),
    "what the counter comes to": ring().replace(
        "$OUT:\n",
        "setp.gt.u32 %p7, %r10, 64;\n@!%p7 bra $OUT;\n"
        "$AGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 %p4, [full], 1;\n@!%p4 bra $AGAIN;\n$OUT:\n",
    ),
}


@pytest.mark.parametrize("name", BY_SIZE)
def test_what_follows_the_size_otherwise_is_stopped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, verdicts = runs(BY_SIZE[name], COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found, UNIT), COUNT)
    assert check(launched(flow_of(BY_SIZE[name]), 110)).verdict is Verdict.ERROR
    # the only condition that stops it
    monkeypatch.setattr(Sizes, "uneven", lambda sizes: iter(()))
    assert is_proved(find_lasso(found, UNIT), COUNT)


@pytest.mark.parametrize("name", BY_COMPARISON)
def test_so_is_a_comparison_that_changes_its_result(name: str) -> None:
    found, verdicts = runs(BY_COMPARISON[name], COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found, UNIT), COUNT)
    assert check(launched(flow_of(BY_COMPARISON[name]), 110)).verdict is Verdict.ERROR


def test_what_a_loop_leaves_in_its_counter_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the loop the reader waits for a phase that is over, until its counter comes to 64."""
    late = "shr.u32 %r30, %r10, 6;\nand.b32 %r30, %r30, 1;\nxor.b32 %r30, %r30, 1;\n"
    text = (
        ring()
        .replace("$OUT:\n", late + "mbarrier.try_wait.parity.shared::cta.b64 %p4, [extra], %r30;\n$OUT:\n")
        .replace(".shared .align 8 .b64 full[4];", ".shared .align 8 .b64 full[4];\n.shared .align 8 .b64 extra[1];")
    )
    text = text.replace("@%p1 bra $READY;\n", "@%p1 bra $READY;\nmbarrier.init.shared::cta.b64 [extra], 1;\n")
    found, _ = runs(text, COUNT)
    assert not is_proved(find_lasso(found, UNIT), COUNT)
    monkeypatch.setattr(Sizes, "behind", lambda sizes, *given: iter(()))
    assert is_proved(find_lasso(found, UNIT), COUNT)


EXTRA = ".shared .align 8 .b64 full[4];\n.shared .align 8 .b64 extra[1];"
BY_ONE = "shr.u32 %r30, %r10, 6;\nmin.u32 %r30, %r30, 1;\n"
BEHIND = {
    "a bit": BY_ONE + "sub.u32 %r40, 1, %r30;\n",
    "a sum": BY_ONE + "sub.u32 %r40, %r40, %r30;\nmax.s32 %r40, %r40, 0;\n",
    "by two registers": BY_ONE + "xor.b32 %r40, %r41, 1;\nmov.u32 %r41, %r30;\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BEHIND)
def test_what_followed_the_counter_of_a_loop_is_stopped_behind_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the loop the reader waits for a phase that is over, and from 65 turns on for one that never is."""
    again = "$AGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 %p4, [extra], %r40;\n@!%p4 bra $AGAIN;\n$OUT:\n"
    text = ahead("mov.u32 %r40, 1;\nmov.u32 %r41, 0;\n", "").replace("$OUT:\n", again)
    text = text.replace(".shared .align 8 .b64 full[4];", EXTRA)
    text = text.replace("@%p1 bra $READY;\n", "@%p1 bra $READY;\nmbarrier.init.shared::cta.b64 [extra], 1;\n")
    reader, turn = text.index("$READ:\n"), "add.u32 %r11, %r11, 1;\n"
    text = text[:reader] + text[reader:].replace(turn, BEHIND[name] + turn)
    found, verdicts = runs(text, COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found, UNIT), COUNT)
    assert check(launched(flow_of(text), 110)).verdict is Verdict.ERROR
    looks_behind = Sizes.behind
    monkeypatch.setattr(Sizes, "behind", lambda *given: looks_behind(*given[:-1], ()))
    assert is_proved(find_lasso(found, UNIT), COUNT)


AT_HEAD = {
    "a sum": BY_ONE + "add.u32 %r40, %r40, %r30;\nand.b32 %r40, %r40, 1;\n",
    "a bit": BY_ONE + "mov.u32 %r40, %r30;\n",
    "by two registers": BY_ONE + "mov.u32 %r40, %r41;\nmov.u32 %r41, %r30;\n",
}


@pytest.mark.parametrize("name", AT_HEAD)
def test_what_begins_to_move_at_the_head_of_a_loop_is_stopped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = ahead("mov.u32 %r40, 0;\nmov.u32 %r41, 0;\n", "xor.b32 %r19, %r19, %r40;\n")
    text = text.replace("add.u32 %r11, %r11, 1;\n", AT_HEAD[name] + "add.u32 %r11, %r11, 1;\n", 1)
    found, verdicts = runs(text, COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found, UNIT), COUNT)
    assert check(launched(flow_of(text), 110)).verdict is Verdict.ERROR
    monkeypatch.setattr(Repeating, "as_said", lambda one: one)
    assert is_proved(find_lasso(found, UNIT), COUNT)


SHORT = "cvt.u16.u32 %h1, %r10;\n"
PARTS = {
    "the lowest byte": "cvt.u32.u8 %r30, %r10;\n",
    "with its sign": "cvt.s32.s8 %r30, %r10;\n",
    "16 bits": SHORT + "cvt.u32.u16 %r30, %h1;\n",
    "a product of 16 bits": SHORT + "mul.wide.u16 %r30, %h1, 1;\n",
    "taken apart": "mov.b32 {%h1, %h2}, %r10;\ncvt.u32.u16 %r30, %h1;\n",
    "put together": SHORT + "mov.b32 %r30, {%h1, 0};\n",
    "shifted to and fro": "shl.b32 %r31, %r10, 24;\nshr.u32 %r30, %r31, 24;\n",
}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_a_counter_begins_again(name: str) -> None:
    """The first two stages are not waited for: they are empty. So are later ones, where it begins again."""
    text = ring(before_wait=PARTS[name] + "setp.lt.u32 %p7, %r30, 2;\n" + SKIP)
    text = text.replace(".reg .b32 %r<48>;", ".reg .b32 %r<48>;\n.reg .b16 %h<4>;")
    found, verdicts = runs(text, COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found, UNIT), COUNT)


ONE_LATER = "shr.u32 %r30, %r10, 6;\nmin.u32 %r30, %r30, 1;\n"
COPIES = {
    "to another stage": with_copies(ONE_LATER + "shl.b32 %r30, %r30, 4;\nxor.b32 %r17, %r17, %r30;\n"),
    "of more bytes": with_copies(ONE_LATER + "shl.b32 %r30, %r30, 4;\nadd.u32 %r31, %r30, 16;\n", "%r31"),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_that_becomes_another_is_stopped(name: str) -> None:
    found, verdicts = runs(COPIES[name], COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found, UNIT), COUNT)
    assert check(launched(flow_of(COPIES[name]), 80)).verdict in (Verdict.ERROR, Verdict.STRICT)


def test_a_number_that_wraps_is_stopped() -> None:
    """From turn 32,768 on it is less than nothing."""
    wraps = "mul.lo.u32 %r30, %r10, 65536;\nsetp.lt.s32 %p7, %r30, 0;\n" + SKIP
    found, _ = runs(ring(before_wait=wraps), COUNT)
    assert not is_proved(find_lasso(found, UNIT), COUNT)


PARITY = "and.b32 %r40, %r40, 1;\nst.shared.u32 [slots+128], %r40;\n"
LOADED = "ld.shared.u32 %r41, [slots+128];\nxor.b32 %r19, %r19, %r41;\n"
STORED = {
    "the size": ring(before_wait=LOADED).replace(
        "@%p1 bra $READY;\n", "@%p1 bra $READY;\nshr.u32 %r40, %r1, 6;\n" + PARITY
    ),
    "the counter": ring(before_wait="shr.u32 %r40, %r10, 6;\n" + PARITY + LOADED),
    "what is counted": ring(
        before_wait="atom.shared.add.u32 %r40, [slots+128], 1;\nshr.u32 %r41, %r40, 6;\nand.b32 %r41, %r41, 1;\n"
        "xor.b32 %r19, %r19, %r41;\n"
    ).replace("@%p1 bra $READY;\n", "@%p1 bra $READY;\nst.shared.u32 [slots+128], 0;\n"),
}


@pytest.mark.parametrize("name", STORED)
def test_what_comes_by_way_of_shared_memory_is_stopped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, verdicts = runs(STORED[name], COUNT)
    assert set(verdicts) == {Verdict.CLEAN}
    assert not is_proved(find_lasso(found, UNIT), COUNT)
    assert check(launched(flow_of(STORED[name]), 110)).verdict is Verdict.ERROR
    monkeypatch.setattr(Sizes, "loaded", lambda sizes: iter(()))
    assert is_proved(find_lasso(found, UNIT), COUNT)
