# SPDX-License-Identifier: Apache-2.0
"""Batches in flight, zeroing, register lists and what one asm statement does, each read off a small kernel."""

from __future__ import annotations

import pytest
from kernels import wrapper
from modelled import Modelled, of_kernel

from porter.model.batches import Batches
from porter.model.tensor_core import MmaStep, Step

ONE = "arrive(); mma(acc, a, b); commit();"
TURNS = "for (int k = 0; k < steps; ++k)"
BATCHES = {
    f"{ONE} wait<0>();": (1, True, True),
    f"{ONE} {ONE} wait<0>();": (2, True, True),
    f"{ONE} wait<1>(); {ONE} wait<0>();": (2, True, True),
    f"{TURNS} {{ {ONE} wait<0>(); }}": (1, True, True),
    f"{TURNS} {{ {ONE} wait<1>(); }} wait<0>();": (2, True, True),
    f"{TURNS} {{ {ONE} wait<3>(); }} wait<0>();": (4, True, True),
    f"{TURNS} {{ {ONE} }} wait<0>();": (8, False, True),
    f"if (steps) {{ {ONE} }} {ONE} wait<0>();": (2, True, True),
    f"{ONE} if (steps) wait<0>(); {ONE} wait<0>();": (2, True, True),
    f"{ONE} if (steps) return; {ONE} wait<0>();": (2, True, True),
    f"{TURNS} {{ {ONE} if (k > 2) break; wait<0>(); }} {ONE} wait<0>();": (2, True, True),
    f"{TURNS} {{ {ONE} if (k > 2) continue; wait<0>(); }}": (8, False, True),
    "mma(acc, a, b); commit(); wait<0>();": (1, True, False),
    f"{ONE} wait<0>(); mma(acc, a, b); commit(); wait<0>();": (1, True, False),
    f"auto turn = [&](int k) {{ {ONE} wait<1>(); }}; turn(0); turn(1); wait<0>();": (2, True, True),
    "arrive(); mma(acc, a, b); mma(acc, a, b); commit(); wait<0>();": (1, True, True),
    f"switch (steps) {{ case 0: {ONE} break; case 1: {ONE} break; }} wait<0>();": (1, True, True),
    f"switch (steps) {{ case 0: {ONE} case 1: {ONE} }} wait<0>();": (2, True, True),
    f"{TURNS} {{ switch (k & 1) {{ case 0: {ONE} break; default: {ONE} }} wait<0>(); }}": (1, True, True),
    f"{TURNS} {{ switch (k & 1) {{ case 0: {ONE} break; default: wait<0>(); }} }}": (8, False, True),
    f"again: {ONE} wait<1>(); if (--steps) goto again; wait<0>();": (2, True, True),
}


@pytest.mark.parametrize("body", BATCHES)
def test_batches_in_flight(body: str) -> None:
    assert of_kernel(f"float acc[8];\n{body}").batches == Batches(*BATCHES[body])


EACH = "for (int i = 0; i < 8; ++i)"
ZEROED = {
    f"{EACH} acc[i] = 0.f;": True,
    f"{EACH} {{ acc[i] = 0; }}": True,
    "for (int i = 0; i != kAll; i++) acc[i] = 0.f;": True,
    "for (float& x : acc) x = 0.f;": True,
    "memset(acc, 0, sizeof(acc));": True,
    "memset(acc, 0, 16);": False,
    "memset(acc, 1, sizeof(acc));": False,
    "for (int i = 0; i < 7; ++i) acc[i] = 0.f;": False,
    "for (int i = 1; i < 8; ++i) acc[i] = 0.f;": False,
    "for (int i = 0; i < 8; i += 2) acc[i] = 0.f;": False,
    f"{EACH} acc[i] = 1.f;": False,
    f"{EACH} acc[i] += 0.f;": False,
    f"{EACH} acc[i ^ 1] = 0.f;": False,
    f"{EACH} if (i) acc[i] = 0.f;": False,
    f"{EACH} {{ acc[i] = 0.f; out[i] = 1.f; }}": False,
    "for (float x : acc) x = 0.f;": False,
    "for (int k = 0; k < steps; ++k) for (int i = 0; i < 8; ++i) acc[i] = 0.f;": False,
    "for (int i = 0; i < 8; ++i) for (int j = 0; j < 8; ++j) acc[i] = 0.f;": False,
}


@pytest.mark.parametrize("statement", ZEROED)
def test_what_zeroes_an_accumulator(statement: str) -> None:
    model = of_kernel(f"constexpr int kAll = 8;\nfloat acc[8];\n{statement}\n{ONE} wait<0>();")
    assert bool(model.builder.zeroing) == ZEROED[statement]


def test_the_diagonal_is_not_the_whole() -> None:
    square = wrapper(16, parameter="float (&d)[8]")
    text = of_kernel("float acc[8][8];\narrive(); mma(acc[1], a, b); commit(); wait<0>();").text
    assert square in text
    for loop, zeroed in (("acc[i][i] = 0.f", False), ("acc[1][i] = 0.f", True)):
        model = Modelled(text.replace("float acc[8][8];", f"float acc[8][8]; {EACH} {loop};"))
        assert bool(model.builder.zeroing) == zeroed


LISTS = {
    "d[{0}]": ("d", (), (8,), ()),
    "d[0][{0}]": ("d", ("0",), (8,), ()),
    "d[{1}][{2}]": ("d", (), (4, 2), ()),
    "d{0}": ("d0", (), (), tuple(f"d{i}" for i in range(8))),
    "c.reg[{0}]": ("c", (), (8,), ()),
    "d[{3}]": None,
    "d[i + {0}]": None,
    "d": None,
}


@pytest.mark.parametrize("form", LISTS)
def test_registers_of_a_statement(form: str) -> None:
    """Which array a list of operands is, or that it is none in order."""
    names = [form.format(i, i // 2, i % 2, i ^ 1) for i in range(8)]
    operands = ", ".join(f'"+f"({n})' for n in names)
    declared = {"d{0}": "float d0, d1, d2, d3, d4, d5, d6, d7;", "c.reg[{0}]": "C c;", "d[{1}][{2}]": "float d[4][2];",
                "d[0][{0}]": "float d[2][8];"}.get(form, "float d[8];")  # fmt: skip
    d = "{%0, %1, %2, %3, %4, %5, %6, %7}"
    asm = (
        f'asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {d}, %8, %9, 1, -1, 1, 0, 1;" '
        f': {operands} : "l"(a), "l"(b));'
    )
    model = of_kernel(f"int i = 0; {declared} arrive();\n{asm}", "struct C { float reg[8]; };\n")
    steps = [s for t in model.program.steps_in(model.function) for s in t.steps if s.kind is Step.MMA]
    wanted = LISTS[form]
    if wanted is None:
        assert not steps
        assert model.program.refusals[0].what == "D registers that are not one array in order"
        return
    step = steps[0]
    assert isinstance(step, MmaStep)
    assert (step.d.name, step.d.prefix, step.d.inner, step.d.scalars) == wanted
    assert (step.op.n, step.a, step.b, step.scale_d) == (16, "a", "b", "1")
    assert (step.negate_a, step.negate_b, step.transpose_a, step.transpose_b) == ("-1", "1", "0", "1")
