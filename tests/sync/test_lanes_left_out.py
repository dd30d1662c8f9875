# SPDX-License-Identifier: Apache-2.0
"""Products that leave lanes of Tensor Memory as they are (disable-output-lane)."""

from __future__ import annotations

import pytest
from small_kernels import checked, errors, wait

from porter.sync.checked import Verdict

VERSION = 1 << 46
A = 1024 >> 4 << 16 | 128 >> 4 << 32 | VERSION
B = 128 >> 4 << 16 | 128 >> 4 << 32 | VERSION
IDESC = 1 << 4 | 8 >> 3 << 17 | 128 >> 4 << 24
SETUP = f"""mov.b32 %r20, 0;
FILL:
shl.b32 %r21, %r20, 4;
mad.lo.u32 %r22, %r0, 128, %r21;
add.u32 %r22, %r22, %r2;
st.shared.v4.b32 [%r22], {{%r0, %r0, %r0, %r0}};
add.u32 %r20, %r20, 1;
setp.lt.u32 %p1, %r20, 8;
@%p1 bra FILL;
fence.proxy.async.shared::cta;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r3], 32;
bar.sync 0;
ld.shared.b32 %r4, [%r3];
cvt.u64.u32 %d0, %r2;
shr.u64 %d0, %d0, 4;
add.u64 %d1, %d0, {A};
add.u64 %d2, %d0, {B};
mov.b32 %r5, {IDESC};
mov.b32 %r9, -1;
"""
MMA = "@%p0 tcgen05.mma.cta_group::1.kind::f16 [%r4], %d1, %d2, %r5, {{%r10, %r11, %r12, %r13}}, {enable};\n"
COMMIT = "@%p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1];\n"
LOADED = (
    "tcgen05.ld.sync.aligned.32x32b.x8.b32 {%r24, %r25, %r26, %r27, %r28, %r29, %r30, %r31}, [%r4];\n"
    "tcgen05.wait::ld.sync.aligned;\n"
)


def masks(*words: int) -> str:
    return "".join(f"mov.b32 %r{10 + i}, {word};\n" for i, word in enumerate(words))


def kinds(*steps: str) -> tuple[set[str], str]:
    found = checked("".join(steps))
    return {f.kind for f in found.findings if f.kind in ("U2", "H1", "H7")}, found.unknown


NEITHER, FIRST, OTHERS, ALL = (0, 0, 0, 0), (-1, 0, 0, 0), (0, -1, -1, -1), (-1, -1, -1, -1)
OVER = COMMIT + wait("%r1", "0", "W") + "tcgen05.fence::after_thread_sync;\n"


@pytest.mark.parametrize(
    ("first", "second", "unwritten"),
    [(NEITHER, ALL, False), (OTHERS, ALL, False), (FIRST, ALL, True), (FIRST, OTHERS, False), (ALL, ALL, True)],
)
def test_what_is_read_was_written(first: tuple[int, ...], second: tuple[int, ...], unwritten: bool) -> None:
    """Lanes 0 to 31 are read behind two products."""
    one = masks(*first) + MMA.format(enable="%p7")
    other = masks(*second) + MMA.format(enable="%p7")
    found, unknown = kinds(SETUP, "setp.ne.u32 %p7, %r0, %r0;\n", one, other, OVER, LOADED)
    assert not unknown
    assert ("U2" in found) is unwritten


@pytest.mark.parametrize(("first", "unwritten"), [(NEITHER, False), (FIRST, True)])
def test_what_is_added_to_was_written(first: tuple[int, ...], unwritten: bool) -> None:
    one = masks(*first) + MMA.format(enable="%p7")
    other = masks(*NEITHER) + MMA.format(enable="%p0")
    found, unknown = kinds(SETUP, "setp.ne.u32 %p7, %r0, %r0;\n", one, other, OVER, LOADED)
    assert not unknown
    assert ("U2" in found) is unwritten


@pytest.mark.parametrize("word", ["1", "%r24"])
def test_masks_that_are_not_followed(word: str) -> None:
    """One lane of 16 that stand together, and data."""
    text = masks(0, 0, 0, 0).replace("mov.b32 %r10, 0;", f"ld.global.b32 %r24, [%d0];\nmov.b32 %r10, {word};")
    found = checked(SETUP + "setp.ne.u32 %p7, %r0, %r0;\n" + text + MMA.format(enable="%p7"))
    assert found.verdict is Verdict.UNKNOWN
    assert "lanes" in found.unknown
    assert not errors(found)
