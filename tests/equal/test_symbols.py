# SPDX-License-Identifier: Apache-2.0
"""Distances, edges and blocks that are the same for all sizes, and those that are so at the sizes looked at alone."""

from __future__ import annotations

import numpy as np
import pytest
from looping import ADD, LOAD, are_alike_for_all_blocks, kernel
from symbolic import are_equal_at_one_size, are_equal_for_all
from test_all_turns import LATE

from porter.equal import all_turns, forms
from porter.equal.all_turns import NotAllError
from porter.facts.executor import run
from porter.facts.machine import Machine

ROW = "shl.b32 %r6, %r4, 6;\nadd.u32 %r6, %r6, %r0;\n"
COLUMN = "shl.b32 %r7, %r3, 7;\n"
STORE = "mul.wide.u32 %d2, %r8, 4;\nadd.s64 %d3, %d1, %d2;\nst.global.f32 [%d3], %f0;\n"
PLACE = "mad.lo.s32 %r8, %r6, %r2, %r7;\n"
ORIGINAL = ROW + COLUMN + PLACE + STORE
WIDE = "mul.wide.u32 %d4, %r6, %r2;\ncvt.u64.u32 %d5, %r7;\nadd.s64 %d4, %d4, %d5;\nshl.b64 %d4, %d4, 2;\n"
STORE_WIDE = "add.s64 %d3, %d1, %d4;\nst.global.f32 [%d3], %f0;\n"
EIGHT = "add.u32 %r9, %r8, {};\nmul.wide.u32 %d6, %r9, 4;\nadd.s64 %d6, %d1, %d6;\nst.global.f32 [%d6], %f0;\n"
ROWS_BELOW = "add.u32 %r10, %r6, 8;\nmad.lo.s32 %r11, %r10, %r2, %r7;\n"
BELOW = "mul.wide.u32 %d6, %r11, 4;\nadd.s64 %d6, %d1, %d6;\nst.global.f32 [%d6], %f0;\n"
GUARD = "setp.lt.u32 %p1, %r6, %r1;\n"
GUARDED = "mul.wide.u32 %d2, %r8, 4;\nadd.s64 %d3, %d1, %d2;\n@%p1 st.global.f32 [%d3], %f0;\n"
EDGE = "setp.ge.u32 %p2, %r6, %r1;\n@%p2 bra END;\n"
AT_EDGE = "setp.lt.u32 %p3, %r7, %r2;\n@!%p3 bra END;\n" + PLACE + STORE + "END:\n"

SAME = {
    "a shift and a product": (ORIGINAL, "mul.lo.u32 %r6, %r4, 64;\nadd.u32 %r6, %r0, %r6;\n" + COLUMN + PLACE + STORE),
    "bits and a sum": (ORIGINAL, "shl.b32 %r6, %r4, 6;\nor.b32 %r6, %r6, %r0;\n" + COLUMN + PLACE + STORE),
    "64 bits in place of 32": (ORIGINAL, ROW + COLUMN + WIDE + STORE_WIDE),
    "rows below": (
        ORIGINAL + ROWS_BELOW + BELOW, ORIGINAL + "shl.b32 %r11, %r2, 3;\nadd.u32 %r11, %r11, %r8;\n" + BELOW
    ),
    "a comparison turned round": (
        ROW + COLUMN + PLACE + GUARD + GUARDED, ROW + COLUMN + PLACE + "setp.gt.u32 %p1, %r1, %r6;\n" + GUARDED
    ),
    "a branch and a guard": (
        ROW + COLUMN + PLACE + EDGE + STORE + "END:\n", ROW + COLUMN + PLACE + GUARD + GUARDED
    ),
    "edges in one another": (ROW + COLUMN + EDGE + AT_EDGE, ROW + COLUMN + EDGE + AT_EDGE.replace("shl", "mul.lo")),
    "a distance of the grid": (
        ORIGINAL + EIGHT.format("%r5"), "mov.u32 %r20, %r5;\n" + ORIGINAL + EIGHT.format("%r20")
    ),
    "low bits of a row": (
        ORIGINAL,
        ROW + "and.b32 %r12, %r6, 63;\nsub.u32 %r6, %r6, %r0;\nadd.u32 %r6, %r6, %r12;\n" + COLUMN + PLACE + STORE,
    ),
    "a product that is taken apart": (
        ORIGINAL, ROW + COLUMN + "shr.u32 %r13, %r7, 3;\nshl.b32 %r7, %r13, 3;\n" + PLACE + STORE
    ),
}  # fmt: skip
OTHER = {
    "a distance of the grid": (ORIGINAL + EIGHT.format(1), ORIGINAL + EIGHT.format("%r5")),
    "a distance by the size": (
        ORIGINAL + EIGHT.format(0),
        ORIGINAL + "setp.gt.u32 %p1, %r1, 300;\nselp.b32 %r14, 8, 0, %p1;\n" + EIGHT.format("%r14"),
    ),
    "rows in place of columns": (ORIGINAL, ROW + COLUMN + PLACE.replace("%r2", "%r1") + STORE),
    "a block above the first": (ORIGINAL, ROW + "and.b32 %r7, %r3, 1;\nshl.b32 %r7, %r7, 7;\n" + PLACE + STORE),
    "blocks the other way": (ORIGINAL, ORIGINAL.replace("%r6, %r4", "%r6, %r3").replace("%r7, %r3", "%r7, %r4")),
    "a product that wraps": (
        ROW + COLUMN + WIDE + STORE_WIDE,
        ROW + COLUMN + PLACE + "shl.b32 %r8, %r8, 2;\ncvt.u64.u32 %d4, %r8;\n" + STORE_WIDE,
    ),
    "a row too many": (
        ROW + COLUMN + PLACE + GUARD + GUARDED, ROW + COLUMN + PLACE + "setp.le.u32 %p1, %r6, %r1;\n" + GUARDED
    ),
    "rows up to a number": (
        ROW + COLUMN + PLACE + GUARD + GUARDED, "min.u32 %r1, %r1, 300;\n" + ROW + COLUMN + PLACE + GUARD + GUARDED
    ),
    "a store of large sizes": (
        ORIGINAL, ORIGINAL + "setp.gt.u32 %p1, %r2, 1000;\n@%p1 st.global.f32 [%d3+4], %f0;\n"
    ),
    "sixteen rows at a time": (
        ROW + COLUMN + PLACE + GUARD + GUARDED, "and.b32 %r1, %r1, -16;\n" + ROW + COLUMN + PLACE + GUARD + GUARDED
    ),
    "an edge that is left out": (ROW + COLUMN + EDGE + AT_EDGE, ROW + COLUMN + AT_EDGE),
    "a sign": (
        "shl.b32 %r8, %r3, 20;\nmul.wide.u32 %d2, %r8, 4;\n" + STORE[STORE.index("add") :],
        "shl.b32 %r8, %r3, 20;\nmul.wide.s32 %d2, %r8, 4;\n" + STORE[STORE.index("add") :],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_sums_of_symbols_that_are_the_same(name: str) -> None:
    assert are_equal_for_all(*SAME[name])


@pytest.mark.parametrize("name", OTHER)
def test_what_is_the_same_at_one_size_alone(name: str) -> None:
    assert are_equal_at_one_size(*OTHER[name])
    assert not are_equal_for_all(*OTHER[name])


PRODUCT = "mul.lo.u32 %r8, %r3, %r2;\nshl.b32 %r8, %r8, 7;\n"
WIDE_SUM = PRODUCT + "cvt.u64.u32 %d4, %r8;\nadd.s64 %d4, %d4, {};\n" + STORE_WIDE
NARROW_SUM = PRODUCT + "add.u32 %r8, %r8, {};\ncvt.u64.u32 %d4, %r8;\n" + STORE_WIDE


@pytest.mark.parametrize(("added", "is_same"), [(4, True), (64, True), (127, True), (128, False), (256, False)])
def test_what_is_added_below_a_product_does_not_wrap_before_it(added: int, is_same: bool) -> None:
    """A product of 128 that does not wrap leaves room for less than 128."""
    assert are_equal_for_all(WIDE_SUM.format(added), NARROW_SUM.format(added)) is is_same


@pytest.mark.parametrize(
    ("limit", "terms", "follows"),
    [
        (1024, {(): 127, (1,): 128}, True),
        (1023, {(): 126, (1,): 128}, True),
        (1023, {(): 127, (1,): 128}, False),
        (1023, {(): 128, (1,): 128}, False),
        (1024, {(): 1, (1,): 64}, True),
        (1024, {(): 127, (1,): 256}, False),
        (1024, {(): 1, (1,): 128, (2,): 1}, False),
    ],
)
def test_bounds_that_follow(limit: int, terms: dict[tuple[int, ...], int], follows: bool) -> None:
    """From 128 x < 1000, by which x is 7 at the most, and which no number shows to be more."""
    known = forms.Bound((((1,), 128),), 1000)
    assert forms.implied(forms.Bound(tuple(sorted(terms.items())), limit), [known]) is follows
    most = 7 * terms[1,] + terms[()] + (10**6 if (2,) in terms else 0)
    assert (most < limit) is follows


HALVES = "ld.global.u16 %r20, [%d0];\nld.global.u16 %r21, [%d0+2];\n"
PACKED = ROW + COLUMN + PLACE + HALVES + "{}" + STORE.replace("f32 [%d3], %f0", "u32 [%d3], %r22")
WIDE_HALVES = "cvt.u64.u32 %d8, %r21;\nshl.b64 %d8, %d8, 16;\ncvt.u64.u32 %d9, %r20;\n"
HALF_ABOVE = "prmt.b32 %r22, %r20, %r21, 21520;\n"
ABOVE = "shl.b32 %r22, %r21, {};\n{}.b32 %r22, %r22, %r20;\n"


@pytest.mark.parametrize(
    ("packed", "is_same"),
    [
        (ABOVE.format(16, "or"), True),
        (ABOVE.format(16, "xor"), True),
        (ABOVE.format(16, "add").replace("add.b32", "add.u32"), True),
        ("mad.lo.u32 %r22, %r21, 65536, %r20;\n", True),
        (WIDE_HALVES + "or.b64 %d8, %d8, %d9;\ncvt.u32.u64 %r22, %d8;\n", True),
        (WIDE_HALVES + "add.u64 %d8, %d8, %d9;\ncvt.u32.u64 %r22, %d8;\n", True),
        (ABOVE.format(15, "or"), False),
        (ABOVE.format(8, "add").replace("add.b32", "add.u32"), False),
        (ABOVE.format(16, "or").replace("%r21, 16", "%r20, 16").replace("%r22, %r20", "%r22, %r21"), False),
        (ABOVE.format(16, "and"), False),
        ("mad.lo.u32 %r22, %r21, 65537, %r20;\n", False),
        ("sub.u32 %r22, %r20, %r21;\n", False),
    ],
)
def test_data_that_is_packed_beside_symbols(packed: str, is_same: bool) -> None:
    assert are_equal_for_all(PACKED.format(HALF_ABOVE), PACKED.format(packed)) is is_same


def test_sums_of_bytes_that_overlap_are_no_bytes_side_by_side() -> None:
    pair = [PACKED.format(ABOVE.format(8, head).replace("add.b32", "add.u32")) for head in ("or", "add")]
    assert not are_equal_for_all(*pair)


BLOCK = "mov.u32 %r9, %ctaid.x;\nmul.wide.u32 %d4, %r9, 8192;\nadd.s64 %d0, %d0, %d4;\n"
FIELD = "mul.lo.u32 %r3, %r9, 128;\nadd.u32 %r3, %r3, %r2;\n{}mul.wide.u32 %d4, %r3, 512;\nadd.s64 %d4, %d0, %d4;\n"
BITS = FIELD + "ld.global.f32 %f0, [%d4];\n" + ADD


def test_turns_with_symbols() -> None:
    assert are_alike_for_all_blocks(kernel(LOAD + ADD, BLOCK), kernel("mov.u32 %r3, %r2;\n" + LOAD + ADD, BLOCK))


@pytest.mark.parametrize("name", ["a high bit of an index", "a shift of 32 bits", "a number as data"])
def test_mistakes_of_later_turns_in_all_blocks(name: str) -> None:
    with pytest.raises(NotAllError):
        are_alike_for_all_blocks(kernel(LOAD + ADD, BLOCK), kernel(LATE[name], BLOCK))


def test_bits_of_a_sum_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turns that are executed leave the bit as it is."""
    pair = kernel(BITS.format(""), BLOCK), kernel(BITS.format("and.b32 %r3, %r3, -65;\n"), BLOCK)
    with pytest.raises(NotAllError):
        are_alike_for_all_blocks(*pair)
    monkeypatch.setattr(forms.Noted, "take", lambda *key: None)
    assert are_alike_for_all_blocks(*pair)


def test_a_sum_that_follows_the_size_ends_the_first_execution_that_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text, steps = kernel(LOAD + ADD, BLOCK + "mul.lo.u32 %r6, %r9, %r10;\nshr.u32 %r6, %r6, 4;\n"), list[int]()

    def counted(machine: Machine) -> object:
        try:
            return run(machine)
        finally:
            steps.append(machine.steps)

    monkeypatch.setattr(all_turns, "run", counted)
    with pytest.raises(NotAllError, match="more than added to"):
        are_alike_for_all_blocks(text, text)
    whole, _, begun = steps
    assert begun < whole / 2


def test_what_sums_are_made_of_is_taken_from_an_earlier_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not what tells addresses apart, of which there are so many for each."""
    first = forms.Forms()
    given = [np.broadcast_to(first.symbol(name), (32, 4)) for name in ("M", "N")]
    found = first.computed(("mul", "lo", "u32"), given, 4, 0xFFFFFFFF, forms.Noted())
    first.coded(np.zeros(1, np.int64), "a sum")
    monkeypatch.setattr(forms.Forms, "_result", lambda *of: None)
    again = forms.Forms(first)
    assert np.array_equal(again.computed(("mul", "lo", "u32"), given, 4, 0xFFFFFFFF, forms.Noted()).data, found.data)
    assert again.shown(again.of(found.data[0]).terms) == "M * N"
    assert again.coded(np.zeros(1, np.int64), "another") == first.coded(np.zeros(1, np.int64), "a sum")


def test_sums_with_other_numbers_have_other_words() -> None:
    known = forms.Forms()
    sums = [forms.Form(width, (((), number), ((1,), 4))) for width in (32, 64) for number in range(1, 2000)]
    rows = [known.row(one).tobytes() for one in sums]
    assert len({*rows}) == len(rows)
    assert [known.of(np.frombuffer(row, np.uint64)) for row in rows] == sums
