# SPDX-License-Identifier: Apache-2.0
"""Mistakes that lowered code stops with: which trap, and at which instruction of the original."""

from __future__ import annotations

import numpy as np
import pytest
from lowered_ptx import Ran, lowered_module, run
from tensor_kernel import COMMIT, COMMIT_PAIR, Tensor, descriptor, inputs, mma

from porter.build.toolchain import find_host_compiler, find_toolkit
from porter.diagnostics import PorterError
from porter.hopper import TRAPS, lower
from porter.ptx.parser import parse_module
from porter.sim import Launch

try:
    find_host_compiler()
    find_toolkit()
except PorterError as error:
    pytest.skip(error.diagnostic.message, allow_module_level=True)

A, B = descriptor(0, 0, 1024, 2), descriptor(16384, 0, 1024, 2)
IDESC = 1 << 4 | 8 >> 3 << 17 | 64 >> 4 << 24
ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32"
DEALLOC = "tcgen05.dealloc.cta_group::1.sync.aligned.b32"
RELINQUISH = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"

HEAD = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
.reg .b32 %r<20>; .reg .b64 %d<9>; .reg .pred %p<9>; .shared .align 4 .b8 slot[4]; .shared .align 8 .b8 bar[8];
mov.u32 %r9, slot; mov.u32 %r8, bar; mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; shl.b32 %r2, %r1, 21;
setp.ne.u32 %p1, %r1, 0; setp.eq.u32 %p0, %r0, 0; mov.u32 %r10, 0;
"""


def kernel(alloc: str, body: str, end: str = f"{DEALLOC} %r6, 64;") -> str:
    """Warp 0 allocates and ends; all four run `body` with Tensor Memory at %r6 and their quarter at %r7."""
    return f"""{HEAD}@%p1 bra READY; {alloc}
READY: bar.sync 0; ld.shared.u32 %r6, [%r9]; add.u32 %r7, %r6, %r2;
{body}
bar.sync 0; @%p1 bra END; {end}
END: ret;
}}"""


LD = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r11, %r12},"
TAKE = f"{ALLOC} [%r9], 64;"

PLANTED = {
    "no allocation": (kernel("st.shared.u32 [%r9], 0;", f"{LD} [%r7];", ""), 6, "tcgen05.ld"),
    "past the allocation": (kernel(TAKE, f"{LD} [%r7+63];"), 6, "tcgen05.ld"),
    "store past the allocation": (
        kernel(TAKE, "tcgen05.st.sync.aligned.16x256b.x2.b32 [%r7+56], {%r1, %r1, %r1, %r1, %r1, %r1, %r1, %r1};"),
        6, "tcgen05.st",
    ),
    "another warp's quarter": (kernel(TAKE, f"xor.b32 %r7, %r7, {1 << 21}; {LD} [%r7];"), 7, "tcgen05.ld"),
    "an odd lane": (kernel(TAKE, f"add.u32 %r7, %r7, {4 << 16}; {LD} [%r7];"), 7, "tcgen05.ld"),
    "two addresses": (kernel(TAKE, f"and.b32 %r3, %r0, 16; add.u32 %r7, %r7, %r3; {LD} [%r7];"), 8, "tcgen05.ld"),
    "48 columns": (kernel(f"{ALLOC} [%r9], 48;", ""), 1, "tcgen05.alloc"),
    "too many columns": (kernel(f"{ALLOC} [%r9], 512; {TAKE}", ""), 2, "tcgen05.alloc"),
    "alloc after relinquish": (kernel(f"{TAKE} {RELINQUISH} {TAKE}", ""), 3, "tcgen05.alloc"),
    "freed twice": (kernel(TAKE, "", f"{DEALLOC} %r6, 64; {DEALLOC} %r6, 64;"), 4, "tcgen05.dealloc"),
    "another size freed": (kernel(TAKE, "", f"{DEALLOC} %r6, 32;"), 4, "tcgen05.dealloc"),
    "two groups": (
        kernel(TAKE, "", "tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r6, 64;"), 18, "tcgen05.dealloc",
    ),
    "a pair of one": (
        kernel("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r9], 64;", ""), 14, "tcgen05.alloc",
    ),
    "nothing arrives": (
        kernel(TAKE, "@%p0 mbarrier.init.shared.b64 [%r8], 1; bar.sync 0; W: "
               "mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0; @!%p2 bra W;"), 12, "mbarrier.try_wait",
    ),
}  # fmt: skip


STUCK = 12
"""The trap of the watchdog, which has to come before the simulator sees by itself that nothing goes on."""


def ran(text: str, number: int = 0, ctas: int = 1) -> Ran:
    launch = Launch((ctas, 1, 1), (128, 1, 1), (ctas, 1, 1))
    patience = 1 if number == STUCK else 100_000
    return run(lowered_module(text), launch, [np.zeros(4, np.uint32)], 16, mode="deferred", patience=patience)


@pytest.mark.spread(2)
@pytest.mark.parametrize("name", PLANTED)
def test_a_mistake_traps_where_it_was_made(name: str) -> None:
    text, number, opcode = PLANTED[name]
    found = ran(text, number)
    assert found.report is not None, found.why
    assert found.report.code == number, found.why
    site = lower(parse_module(text)).sites[found.report.site]
    assert site.opcode.startswith(opcode)
    assert site.opcode in text.splitlines()[site.line - 1]
    assert "{" not in TRAPS[number].text.format(*found.report.values)


def test_without_the_mistake_nothing_traps() -> None:
    found = ran(kernel(TAKE, f"{LD} [%r7+62];"))
    assert found.ok, found.why
    assert found.allocated == [0]


def test_columns_left_behind_are_seen() -> None:
    found = ran(kernel(TAKE, "", ""))
    assert found.ok, found.why
    assert found.allocated == [0b11]


ALLOC_2 = "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r9],"


@pytest.mark.parametrize(("alloc", "number"), [
    (f"mov.u32 %r5, %cluster_ctarank; mov.u32 %r3, 64; shl.b32 %r5, %r3, %r5; {ALLOC_2} %r5;", 15),
    (f"mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p3, %r5, 0; @%p3 bra READY; {ALLOC_2} 64;", 16),
])  # fmt: skip
def test_a_pair_allocates_together(alloc: str, number: int) -> None:
    found = ran(kernel(alloc, "", ""), number, 2)
    assert found.report is not None, found.why
    assert found.report.code == number


ONE = "cta_group::1.kind::f16"
PRODUCTS = {
    "columns of D": (mma(ONE, A, B, IDESC, 1, d=28), 6),
    "columns of D in the other CTA": (
        mma("cta_group::2.kind::f16", A, B, 1 << 4 | 16 >> 3 << 17 | 256 >> 4 << 24, 1, d=28), 6,
    ),
    "no version in a descriptor": (mma(ONE, A & ~(1 << 46), B, IDESC, 1), 9),
    "a Hopper descriptor's base offset": (mma(ONE, A | 1 << 49, B, IDESC, 1), 9),
    "wrong types in idesc": (mma(ONE, A, B, IDESC | 2 << 7, 1), 10),
    "wrong N in idesc": (mma(ONE, A, B, IDESC & ~(63 << 17), 1), 10),
    "M=256 by one CTA": (mma(ONE, A, B, 1 << 4 | 8 >> 3 << 17 | 256 >> 4 << 24, 1), 10),
    "lane of D": (mma(ONE, A, B, IDESC, 1, d=8 << 16), 11),
    "lane of A": (mma(ONE, str(16 << 16), B, IDESC, 1), 11),
    "no commit": (mma(ONE, A, B, IDESC, 1), 12),
}  # fmt: skip


@pytest.mark.spread(6)
@pytest.mark.parametrize("name", PRODUCTS)
def test_wrong_products_trap(name: str) -> None:
    body, number = PRODUCTS[name]
    group = 2 if "cta_group::2" in body else 1
    commit = "" if number == STUCK else COMMIT if group == 1 else COMMIT_PAIR
    tensor = Tensor(body + commit, group, 32)
    patience = 1 if number == STUCK else 200_000
    module, given = lowered_module(tensor.text), inputs(tensor, 1)
    found = run(module, tensor.launch, given, tensor.out_bytes, mode="deferred", patience=patience)
    assert found.report is not None, found.why
    assert found.report.code == number, found.why
    site = lower(parse_module(tensor.text)).sites[found.report.site]
    assert site.opcode.startswith("mbarrier.try_wait" if number == STUCK else "tcgen05.mma")


def test_free_before_the_products_are_done() -> None:
    tensor = Tensor(mma(ONE, A, B, IDESC, 1) + COMMIT, columns=32)
    early = f"setp.lt.u32 %p8, %r0, 32; @!%p8 bra WAIT; {DEALLOC} %r6, 32; WAIT:"
    text = tensor.text.replace("WAIT:", "bra AFTER; AFTER: bar.sync 0; " + early, 1)
    text = text.replace("@!%p3 bra WAIT;", "@!%p3 bra AFTER;")
    found = run(lowered_module(text), tensor.launch, inputs(tensor, 1), tensor.out_bytes, mode="deferred")
    assert found.report is not None, found.why
    assert found.report.code == 5, found.why
