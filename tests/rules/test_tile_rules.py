# SPDX-License-Identifier: Apache-2.0
"""Rules on the registers of an accumulator of a tiled MMA, and on the class of an argument."""

from __future__ import annotations

from pathlib import Path

import pytest
from house import codes

from porter.diagnostics import Code, PorterError
from porter.lang.sources import load_sources
from porter.model.facts import Doubt, Fact, Tile
from porter.model.program import build_program
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.rules.load import load_rules
from porter.rules.recognize import vocabulary

RULES = """\
schema: 2
library: house
scope: [cute]
rules:
  - id: HOUSE200
    title: Fragment of an accumulator
    recognize: ['partition_fragment_C($MMA, $TILE)']
    where: {MMA: {type: 'cute::TiledMMA'}}
    as: {tile: {name: $LHS, mma: $MMA, shape: $TILE}}
    emit: 'house::tile($state, $MMA, $value, $column, "$LHS")'
    request: {include: house/tile.cuh}
    safety: review
    reason: The house has tiles of its own.
    examples:
      - {before: 'cute::TiledMMA<int> m; auto d = cute::partition_fragment_C(m, x)', facts: [{tile: {name: d}}]}
      - {absent: 'partition_fragment_D(m)'}
"""
KERNEL = """\
#include <cute/tensor.hpp>
using namespace cute;
struct Other {};
template <class A, class B> __global__ void __launch_bounds__(128) k(PARAM m, A a, A b, float* o) {
  DECLARED
  warpgroup_arrive();
  gemm(m, a, b, acc);
  warpgroup_commit_batch();
  warpgroup_wait<0>();
  o[0] = acc(0);
}
"""
DECLARED = "Tensor acc = partition_fragment_C(m, shape);"


def port(tmp_path: Path, source: str, rules: str = RULES) -> PortResult:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "house.yaml").write_text(rules)
    (tmp_path / "kernel.cu").write_text(source)
    return port_sources(load_sources(tmp_path / "kernel.cu"), PortOptions(rule_directories=(str(tmp_path / "rules"),)))


def kernel(param: str = "TiledMMA<A>", declared: str = DECLARED) -> str:
    return KERNEL.replace("PARAM", param).replace("DECLARED", declared)


OF_THE_HOUSE = {
    "by value": ("TiledMMA<A>", DECLARED),
    "by reference": ("TiledMMA<A> const&", DECLARED),
    "qualified": ("cute::TiledMMA<A, B>", DECLARED),
    "from the top": ("::cute::TiledMMA<A, B>", DECLARED),
    "called by its full name": ("TiledMMA<A>", DECLARED.replace("partition", "cute::partition")),
    "with auto": ("TiledMMA<A>", "auto acc = partition_fragment_C(m, shape);"),
    "over lines": ("TiledMMA<A>", "Tensor acc = partition_fragment_C(\n      m,  // the MMA\n      shape);"),
}


@pytest.mark.parametrize("name", OF_THE_HOUSE)
def test_the_registers_get_the_text_of_the_rule(tmp_path: Path, name: str) -> None:
    result = port(tmp_path, kernel(*OF_THE_HOUSE[name]))
    assert int(result.exit_code) == 0, [d.message for d in result.diagnostics]
    text = result.files[str(tmp_path / "kernel.cu")].decode()
    assert " acc = house::tile(tc, m, " in text
    assert ', 0, "acc");' in text
    assert '#include "house/tile.cuh"' in text
    assert "porter::accumulator" not in text
    assert {g.safety.value for g in result.groups if g.rule == "HOUSE200"} == {"review"}


OF_PORTER = {
    "another class": ("Other", DECLARED),
    "a parameter of the template": ("B", DECLARED),
    "another library's class": ("house::TiledMMA<A>", DECLARED),
    "a pointer to one": ("TiledMMA<A>*", DECLARED),
}


@pytest.mark.parametrize("name", OF_PORTER)
def test_an_object_that_is_none_of_the_class_is_left_to_other_rules(tmp_path: Path, name: str) -> None:
    result = port(tmp_path, kernel(*OF_PORTER[name]))
    assert "house::tile" not in result.files[str(tmp_path / "kernel.cu")].decode()


def test_a_second_accumulator_has_its_first_column(tmp_path: Path) -> None:
    more = DECLARED + "\n  Tensor two = partition_fragment_C(m, shape);"
    source = kernel(declared=more).replace("gemm(m, a, b, acc);", "gemm(m, a, b, acc);\n  gemm(m, a, b, two);")
    text = port(tmp_path, source.replace("acc(0)", "acc(0) + two(0)")).files[str(tmp_path / "kernel.cu")].decode()
    assert 'house::tile(tc, m, partition_fragment_C(m, shape), 0, "acc")' in text
    assert 'house::tile(tc, m, partition_fragment_C(m, shape), acc_columns, "two")' in text


def fact(tmp_path: Path, source: str) -> Fact | Doubt | None:
    (tmp_path / "house.yaml").write_text(RULES)
    (tmp_path / "kernel.cu").write_text("using namespace cute;\n" + source)
    rules = [r for r in load_rules([str(tmp_path)]) if r.id == "HOUSE200"]
    program = build_program(load_sources(tmp_path / "kernel.cu"), vocabulary(rules))
    found = [program.facts.of_call(c) for f in program.functions for c in f.calls if c.name == "partition_fragment_C"]
    return found[0]


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("auto d = partition_fragment_C(m, s);", "d"),
        ("auto&& d = partition_fragment_C(m, s);", "d"),
        ("Tensor d = partition_fragment_C(m, s);", "d"),
        ("auto x = 1, d = partition_fragment_C(m, s);", "d"),
        ("use(partition_fragment_C(m, s));", None),
        ("partition_fragment_C(m, s);", None),
        ("auto d = use(partition_fragment_C(m, s));", None),
        ("d = partition_fragment_C(m, s);", None),
        ("return partition_fragment_C(m, s);", None),
        ("auto d = partition_fragment_C(m);", None),
        ("auto d = partition_fragment_C(*p, s);", None),
    ],
)
def test_the_variable_that_has_the_registers(tmp_path: Path, body: str, name: str | None) -> None:
    found = fact(tmp_path, f"__device__ void f(TiledMMA<int> m, Other* p, int s) {{ {body} }}\n")
    if name is None:
        assert isinstance(found, Doubt)
    else:
        assert found == Tile(name, "m", "s")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: $LHS, ", "", "a tile needs `name`"),
        ("mma: $MMA", "mma: $M", "names $M"),
        ("$value, $column", "$values", "nothing binds `$values`"),
        ("{type: 'cute::TiledMMA'}", "{type: 1}", "of which class"),
        ("{type: 'cute::TiledMMA'}", "{type: 'a b'}", "of which class"),
        ("tile: {name: $LHS, ", "fragment: {name: $LHS, ", "has no `name`"),
        ("tile: {name: $LHS, mma: $MMA, shape: $TILE}", "zero: {of: $LHS}", "names $LHS"),
    ],
)
def test_a_broken_rule(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in RULES
    (tmp_path / "house.yaml").write_text(RULES.replace(old, new))
    with pytest.raises(PorterError) as caught:
        load_rules([str(tmp_path)])
    assert caught.value.diagnostic.code is Code.RULE_FILE
    assert said in caught.value.diagnostic.message


def test_two_texts_for_the_registers_are_a_conflict(tmp_path: Path) -> None:
    more = """\
  - id: HOUSE201
    title: Texts of the house
    on: tile
    emit: 'house::other($value)'
    safety: review
    reason: It is another.
    examples: [{before: "void f() {}\\n", expect: [f]}]
"""
    own = RULES.replace("    emit: 'house::tile($state, $MMA, $value, $column, \"$LHS\")'\n", "")
    own = own.replace("    request: {include: house/tile.cuh}\n", "")
    result = port(tmp_path, kernel(), own + more + more.replace("HOUSE201", "HOUSE202").replace("other(", "third("))
    assert codes(result) == ["RULE_CONFLICT"]
