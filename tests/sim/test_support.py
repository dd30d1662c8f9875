# SPDX-License-Identifier: Apache-2.0
"""What the survey of instruction forms says, and that it notices what is taken away."""

from __future__ import annotations

import pytest
from instructions.lowered import Lowering, lowering
from instructions.simulated import Support, survey

from porter.ptx.forms.grammar import expanded, form
from porter.ptx.table import FORMS
from porter.sim.codegen import EMITTERS, RUNTIME


def of(name: str) -> list[Support]:
    return survey([row for row in FORMS if row.name == name])


def test_an_instruction_without_executor_is_not_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(s.executed for s in of("popc"))
    monkeypatch.delitem(EMITTERS, "popc")
    (found,) = of("popc")
    assert found.samples
    assert not found.executed
    assert found.samples[0].refused == "not modelled"


FAMILIES = (
    "cp.async.bulk", "cp.reduce.async.bulk", "multimem.", "griddepcontrol", "wgmma.", "tensormap.",
    "tcgen05.alloc", "tcgen05.cp", "tcgen05.mma", "tcgen05.shift", "tcgen05.st.", "tcgen05.commit",
)  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_every_choice_of_these_families_is_executed_and_followed(family: str) -> None:
    """Modes of tensor copies, multimem addresses, sparsity, scale vectors, .ashift, zero-column masks."""
    rows = [row for row in FORMS if row.pattern.startswith(family)]
    found = survey(rows)
    assert found
    refused = [(s.text, s.refused) for support in found for s in support.samples if s.refused is not None]
    assert not refused
    assert all(support.samples for support in found)
    assert not [s.text for support in found if support.concerns for s in support.samples if not s.seen]


def test_choices_are_told_apart() -> None:
    (row,) = expanded(form("cvt.rs.relu?.satfinite.<dtype:e4m3x4>.f32", "=d:dtype, a:f32*4, rbits:b32", "9.7.9.21",
                           "sm_100a@8.7"))  # fmt: skip
    (found,) = survey([row])
    assert {s.refused for s in found.samples} == {"stochastic rounding to four values"}


def test_what_checking_mode_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    (stores,) = of("st.bulk")
    assert stores.concerns
    assert all(s.seen for s in stores.samples)
    monkeypatch.setitem(RUNTIME, "clear_shared", lambda *args: None)
    (stores,) = of("st.bulk")
    assert not any(s.seen for s in stores.samples)
    assert not any(s.concerns for s in of("prmt.b32"))


def test_lowering() -> None:
    assert lowering("add.f32 %f1, %f2, %f3;", "sm_90a") is Lowering.NATIVE
    assert lowering("add.f32x2 %l1, %l2, %l3;", "sm_100a") is Lowering.EMULATED
    assert lowering("setmaxnreg.dec.sync.aligned.u32 24;", "sm_100a") is Lowering.LEFT_OUT
    assert lowering("st.bulk.shared::cta [%w1], %l2, 0;", "sm_100a") is Lowering.REFUSED
