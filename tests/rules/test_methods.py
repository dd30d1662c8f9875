# SPDX-License-Identifier: Apache-2.0
"""Patterns of methods: the class of the object decides, as far as declarations tell it."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.diagnostics import PorterError
from porter.lang.sources import load_sources
from porter.model.facts import Commit, Doubt, Fact, Wait
from porter.model.program import build_program
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.rules.load import load_rules
from porter.rules.recognize import vocabulary

RULES = """\
schema: 2
library: house
rules:
  - id: HOUSE200
    title: The house's multiply
    recognize: $TILE.multiply($D, $A, $B)
    where: {TILE: {type: house::Tile}}
    as: {mma: {shape: m64n64k16, types: f32.f16.f16, d: $D, a: $A, b: $B}}
    safety: review
    reason: It is one wgmma.
    examples:
      - before: 'house::Tile t; t.multiply(c, a, b)'
        facts: [{mma: {shape: m64n64k16, types: f32.f16.f16, d: c, a: a, b: b}}]
      - near: 'house::Tile t; t.multiply(c)'
  - id: HOUSE201
    title: The house's commit
    recognize: $TILE.commit()
    where: {TILE: {type: house::Tile}}
    as: {commit: {}}
    safety: review
    reason: It is wgmma.commit_group.
    examples:
      - before: 'house::Tile t; t.commit()'
        facts: [{commit: {}}]
      - absent: 'other::Tile t; t.commit()'
  - id: HOUSE202
    title: The house's wait
    recognize: $TILE.wait<$N>()
    where: {TILE: {type: house::Tile}, N: int}
    as: {wait: {pending: $N}}
    safety: review
    reason: It is wgmma.wait_group.
    examples:
      - before: 'house::Tile t; t.wait<0>()'
        facts: [{wait: {pending: '0'}}]
      - near: 'house::Tile t; t.wait<0>(1)'
  - id: HOUSE203
    title: The house's fence
    recognize: $TILE.arrive()
    where: {TILE: {type: house::Tile}}
    as: {fence: {}}
    safety: review
    reason: It is wgmma.fence.
    examples:
      - before: 'house::Tile t; t.arrive()'
        facts: [{fence: {}}]
      - absent: 'other::Tile t; t.arrive()'
  - id: HOUSE204
    title: Rings hand out slots
    recognize: $RING.slot($I)
    where: {RING: {type: house::Ring}}
    replace: $RING.slots[$I]
    safety: review
    reason: Slots are an array there.
    examples:
      - before: 'house::Ring r; x = r.slot(x + 1)'
        expect: ['x = r.slots[x + 1]']
"""


def _rules(tmp_path: Path, text: str = RULES) -> str:
    (tmp_path / "rules").mkdir(exist_ok=True)
    (tmp_path / "rules/house.yaml").write_text(text)
    return str(tmp_path / "rules")


def _facts(tmp_path: Path, source: str) -> list[Fact | Doubt | None]:
    (tmp_path / "k.cu").write_text(source)
    rules = load_rules((_rules(tmp_path),))
    program = build_program(load_sources(tmp_path / "k.cu"), vocabulary(rules))
    return [program.facts.of_call(c) for f in program.functions for c in f.calls if c.name in ("commit", "wait")]


@pytest.mark.parametrize(
    "body",
    [
        "house::Tile t; t.commit();",
        "::house::Tile t{}; t.commit();",
        "house::Tile ts[2]; ts[1].commit();",
        "house::Tile* t = p; t->commit();",
        "house::Tile& t = *p; t.commit();",
        "const house::Tile t(0); t.commit();",
        "using namespace house; Tile t; t.commit();",
        "using T = house::Tile; T t; t.commit();",
        "using house::Tile; Tile t; t.commit();",
        "auto t = house::Tile{}; t.commit();",
        "house::Tile{}.commit();",
        "struct Holder { house::Tile t; }; Holder h; h.t.commit();",
        "(*p).commit();",
    ],
)
def test_the_object_is_of_the_class(tmp_path: Path, body: str) -> None:
    assert _facts(tmp_path, f"__device__ void f(house::Tile* p) {{ {body} }}\n") == [Commit()]


@pytest.mark.parametrize(
    "body",
    [
        "other::Tile t; t.commit();",
        "house::Tiles t; t.commit();",
        "struct Tile { void commit(); }; Tile t; t.commit();",
        "own::Tile t; t.commit();",
        "using T = own::Tile; T t; t.commit();",
        "house::Tile t; commit();",
        "dim3 t; t.commit();",
    ],
)
def test_the_object_is_of_another_class(tmp_path: Path, body: str) -> None:
    head = "namespace own { struct Tile { __device__ void commit(); }; }\n__device__ void commit();\n"
    assert _facts(tmp_path, f"{head}__device__ void f() {{ {body} }}\n") == [None]


@pytest.mark.parametrize(
    "body",
    [
        "auto t = make(); t.commit();",
        "t.commit();",
        "struct Derived : house::Tile {}; Derived d; d.commit();",
        "typename T::Tile d; d.commit();",
        "Tile d; d.commit();",
    ],
)
def test_where_declarations_do_not_tell_the_class_it_is_in_doubt(tmp_path: Path, body: str) -> None:
    (found,) = _facts(tmp_path, f"template <class T> __device__ void f(T t) {{ {body} }}\n")
    assert isinstance(found, Doubt)
    assert found.kind is Commit


def test_template_arguments_of_a_method(tmp_path: Path) -> None:
    source = "__device__ void f() { constexpr int kLeft = 2; house::Tile t; t.wait<kLeft>(); t.template wait<1>(); }\n"
    assert _facts(tmp_path, source) == [Wait("kLeft"), Wait("1")]


KERNEL = """\
#include <cstdint>
#include "house.cuh"
__global__ void __launch_bounds__(128) k(float* out, uint64_t a, uint64_t b, int steps) {{
    float acc[32] = {{}};
    {declared}
    for (int i = 0; i < steps; ++i) {{
        tile.arrive();
        tile.multiply(acc, a, b);
        tile.commit();
        tile.wait<0>();
    }}
    for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = acc[i];
}}
"""


def _port(tmp_path: Path, text: str) -> PortResult:
    (tmp_path / "house.cuh").write_text("#pragma once\n")
    (tmp_path / "k.cu").write_text(text)
    return port_sources(load_sources(tmp_path / "k.cu"), PortOptions(rule_directories=(_rules(tmp_path),)))


def test_a_kernel_whose_multiplies_are_methods_is_ported(tmp_path: Path) -> None:
    result = _port(tmp_path, KERNEL.format(declared="house::Tile tile;"))
    assert [d.code.id for d in result.diagnostics if d.severity.value == "error"] == []
    text = result.files[str(tmp_path / "k.cu")].decode()
    for written in ("acc_tmem, a, b", "        tc.commit();", "tcgen05::load(acc, acc_tmem);"):
        assert written in text
    for gone in ("tile.multiply", "tile.commit", "tile.wait", "tile.arrive"):
        assert gone not in text


@pytest.mark.parametrize(
    ("declared", "code"),
    [("auto tile = house::make_tile();", "PT2001"), ("house::Tile tile; tile.multiply(acc);", "PT6004")],
)
def test_what_is_in_doubt_is_refused(tmp_path: Path, declared: str, code: str) -> None:
    result = _port(tmp_path, KERNEL.format(declared=declared))
    assert code in {d.code.id for d in result.diagnostics}
    assert result.groups == []


def test_methods_are_replaced(tmp_path: Path) -> None:
    text = (
        "__global__ void k(house::Ring ring, int* out, other::Ring o) { *out = ring.slot(ring.slot(2)) + o.slot(3); }\n"
    )
    result = _port(tmp_path, text)
    ported = result.files[str(tmp_path / "k.cu")].decode()
    assert "*out = ring.slots[ring.slots[2]] + o.slot(3);" in ported


@pytest.mark.parametrize(
    ("pattern", "where", "said"),
    [
        ("$TILE.commit()", "", "`where` has to say of which class $TILE is"),
        ("$TILE.commit()", "where: {TILE: name}", "`where` has to say of which class $TILE is"),
        ("$TILE.commit()", "where: {TILE: {type: 'house Tile'}}", "`where` has to say of which class $TILE is"),
        ("$TILE.commit", "where: {TILE: {type: house::Tile}}", "a method of $TILE is called"),
        ("$TILE.commit($TILE)", "where: {TILE: {type: house::Tile}}", "among the arguments"),
        ("$TILE.a.commit()", "where: {TILE: {type: house::Tile}}", "cannot match"),
    ],
)
def test_broken_patterns_of_methods(tmp_path: Path, pattern: str, where: str, said: str) -> None:
    text = f"""\
schema: 2
library: house
rules:
  - id: HOUSE201
    title: The house's commit
    recognize: {pattern}
    {where}
    as: {{commit: {{}}}}
    safety: review
    reason: It is.
    examples: [{{before: 'x'}}, {{absent: 'y'}}]
"""
    with pytest.raises(PorterError) as error:
        load_rules((_rules(tmp_path, text),))
    assert said in error.value.diagnostic.message
