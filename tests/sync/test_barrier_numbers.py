# SPDX-License-Identifier: Apache-2.0
"""Barriers that a block does not have, waits for tcgen05.ld that are missing, and code that ends without `ret`."""

from __future__ import annotations

import pytest
from small_kernels import checked, errors

from porter.sync.checked import Verdict

RIGHT = ["bar.sync 15;", "bar.sync 3, 64;", "barrier.sync.aligned 1, 32;", "mov.b32 %r9, 64;\nbar.sync 2, %r9;"]
NO_PTX = [
    "bar.sync 16;",
    "barrier.cta.sync.aligned 128, 64;",
    "bar.arrive 20, 64;",
    "bar.sync 1, 33;",
    "bar.sync 1, 0;",
]
WRONG = [
    "mov.b32 %r9, 17;\nbar.sync %r9, 64;",
    "mov.b32 %r9, 16;\nbarrier.sync.aligned %r9;",
    "mov.b32 %r9, -1;\nbar.sync %r9;",
    "shr.u32 %r9, %r0, 5;\nxor.b32 %r9, %r9, 31;\nbar.sync %r9, 32;",
    "mov.b32 %r9, 48;\nbar.sync 1, %r9;",
    "mov.b32 %r9, 0;\nbar.arrive 1, %r9;",
    "mov.b32 %r9, 20;\nbar.red.popc.u32 %r8, %r9, 64, %p0;",
]


@pytest.mark.parametrize("body", RIGHT)
def test_barriers_of_a_block(body: str) -> None:
    assert checked(body + "\n", threads=64).verdict is Verdict.CLEAN


@pytest.mark.parametrize("body", NO_PTX)
def test_numbers_in_the_text_that_no_barrier_has(body: str) -> None:
    assert checked(body + "\n", threads=64).unknown.startswith("the instruction bar")


@pytest.mark.parametrize("body", WRONG)
def test_barriers_that_no_block_has(body: str) -> None:
    assert errors(checked(body + "\n", threads=64)) == {"B2"}


LOAD = """tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r3], 32;
bar.sync 0;
ld.shared.b32 %r4, [%r3];
mov.b32 %r5, 0;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r4], {%r5};
tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r6}, [%r4];
"""
USE = """add.u32 %r7, %r6, 1;
bar.sync 0;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, 32;
"""
WAITS = {
    "a wait": ("tcgen05.wait::ld.sync.aligned;\n", Verdict.CLEAN),
    "none": ("", Verdict.STRICT),
    "one that is not executed": ("setp.gt.u32 %p1, %r0, 99;\n@%p1 tcgen05.wait::ld.sync.aligned;\n", Verdict.STRICT),
    "the other one": ("tcgen05.wait::st.sync.aligned;\n", Verdict.STRICT),
}


@pytest.mark.parametrize("name", WAITS)
def test_loads_of_tensor_memory_are_waited_for(name: str) -> None:
    """By the letter; the use of all registers stands in for it in practice (docs/rulings.md, load-dependence)."""
    wait, wanted = WAITS[name]
    found = checked(LOAD + wait + USE)
    assert found.verdict is wanted, found
    tolerated = checked(LOAD + wait + USE, rulings="practice").verdict
    assert tolerated is (Verdict.REVIEW if wanted is Verdict.STRICT else wanted)


@pytest.mark.parametrize("body", ["bra END;\nEND:\n", "@%p0 bra END;\nbar.warp.sync -1;\nEND:\n"])
def test_code_that_ends_at_a_label(body: str) -> None:
    assert checked(f"{body}//", threads=32).verdict is Verdict.CLEAN
