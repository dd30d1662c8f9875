# SPDX-License-Identifier: Apache-2.0
"""CTAs of one SM share its 512 columns of Tensor Memory: `alloc` waits until the others leave enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from lowered_ptx import Ran, parsed_library, run

from porter.build.toolchain import find_host_compiler, find_toolkit
from porter.diagnostics import PorterError
from porter.hopper import lower
from porter.ptx.parser import parse_module
from porter.sim import Launch

try:
    find_host_compiler()
    find_toolkit()
except PorterError as error:
    pytest.skip(error.diagnostic.message, allow_module_level=True)

TEXT = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 counts, .param .u64 out)
{{
.reg .b32 %r<20>; .reg .b64 %d<9>; .reg .pred %p<9>; .shared .align 4 .b8 slot[4];
mov.u32 %r9, slot; mov.u32 %r0, %tid.x; setp.ne.u32 %p0, %r0, 0; ld.param.u64 %d0, [counts];
ld.param.u64 %d1, [out]; mov.u32 %r1, %ctaid.x; mul.wide.u32 %d2, %r1, 8; add.u64 %d1, %d1, %d2;
tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [%r9], {columns};
ld.shared.u32 %r6, [%r9];
@%p0 bra HELD;
atom.global.add.u32 %r2, [%d0], 1; st.global.v2.u32 [%d1], {{%r2, %r6}};
mov.u32 %r4, 0;
HOLD: nanosleep.u32 1000; add.u32 %r4, %r4, 1; setp.lt.u32 %p1, %r4, 50; @%p1 bra HOLD;
atom.global.add.u32 %r3, [%d0], -1;
HELD: bar.warp.sync -1;
{end}
ret;
}}
"""
DEALLOC = "tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 %r6, {columns};"


def hold(
    columns: int, ctas: int, group: int = 1, *, one_sm: bool = True, end: str = DEALLOC, patience: int = 2_000_000
) -> Ran:
    """CTAs that count themselves while they hold columns: for each the count it found and its first column."""
    end = end.format(group=group, columns=columns)
    own = lower(parse_module(TEXT.format(columns=columns, group=group, end=end))).module
    # The simulator runs each CTA on an SM of its own.
    shared = parsed_library("%smid", "0") if one_sm else parsed_library()
    module = replace(own, variables=(*shared.variables, *own.variables), functions=(*shared.functions, *own.functions))
    launch = Launch((ctas, 1, 1), (32, 1, 1), (group, 1, 1))
    return run(module, launch, [np.zeros(4, np.uint32)], 8 * ctas, mode="deferred", patience=patience)


def found(ran: Ran) -> list[tuple[int, int]]:
    """(others that held columns, first column) of each CTA."""
    assert ran.ok, ran.why
    assert not any(ran.allocated)
    return [(int(a), int(b)) for a, b in ran.output.view(np.uint32).reshape(-1, 2)]


def test_all_columns_are_held_by_one_cta_after_the_other() -> None:
    assert found(hold(512, 2)) == [(0, 0), (0, 0)]


def test_half_of_the_columns_by_two_at_a_time() -> None:
    seen = found(hold(256, 2))
    assert sorted(seen) == [(0, 0), (1, 256)]


def test_other_sms_have_columns_of_their_own() -> None:
    seen = found(hold(512, 2, one_sm=False))
    assert sorted(seen) == [(0, 0), (1, 0)]


def test_pairs_wait_for_pairs() -> None:
    assert max(count for count, _ in found(hold(512, 4, 2))) == 1


def test_columns_that_no_cta_gives_back_stop_the_next_one() -> None:
    ran = hold(512, 2, end="", patience=20_000)
    assert ran.report is not None, ran.why
    assert ran.report.code == 2
    assert ran.report.values[0] == 512
