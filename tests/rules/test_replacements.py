# SPDX-License-Identifier: Apache-2.0
"""Replacements by patterns: what stands in place of calls and names that C++ resolves to what a rule names."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.diagnostics import PorterError
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.passes.rule_examples import try_examples
from porter.rules.explain import sites_at
from porter.rules.load import load_rules

RULES = """\
schema: 2
library: house
scope: [house]
rules:
  - id: HOUSE100
    title: Loads with a hint
    recognize: house::load($P, $HINT)
    replace: house::load_hinted<$HINT>($P)
    safety: review
    reason: The hint is a template argument there.
    examples: [{before: 'float* p; house::load(p, 3)', expect: ['house::load_hinted<3>(p)']}]
  - id: HOUSE101
    title: Scale ahead of the value
    recognize: house::scaled($SCALE, $X)
    where: {SCALE: expression}
    replace: house::times($X, $SCALE)
    safety: review
    reason: The order is another.
    examples: [{before: 'house::scaled(2.f, r)', expect: ['house::times(r, 2.f)']}]
  - id: HOUSE102
    title: Depth of a ring
    recognize: house::kDepth
    replace: house::sm100::kDepth
    safety: safe
    reason: There is more shared memory for it.
    examples: [{before: 'x = house::kDepth', expect: ['x = house::sm100::kDepth']}]
  - id: HOUSE103
    title: Tags
    recognize: house::tag<$T>()
    map: {T: {Sm90: 'house::Sm100', Ws: 'house::WsSm100'}}
    replace: house::tag<$T>()
    safety: review
    reason: Tags have names of their own.
    examples: [{before: 'struct Sm90; house::tag<Sm90>()', expect: ['house::tag<house::Sm100>()']}]
  - id: HOUSE104
    title: Any number of arguments
    recognize: house::log($$$ARGS)
    replace: house::trace(1, $$$ARGS)
    safety: safe
    reason: A channel comes first.
    examples: [{before: 'house::log(x, r)', expect: ['house::trace(1, x, r)']}]
"""
HEADER = """\
#pragma once
struct Sm90 {};
struct Other {};
namespace house {
__device__ float load(const float* p, int hint);
template <int H> __device__ float load_hinted(const float* p);
__device__ float scaled(float s, float x);
__device__ float times(float x, float s);
template <class T> __device__ int tag();
template <class... T> __device__ void log(T...);
constexpr int kDepth = 4;
}
namespace other { __device__ float load(const float* p, int hint); }
"""


def _port(tmp_path: Path, body: str, rules: str = RULES, *, head: str = "", ignore: tuple[str, ...] = ()) -> PortResult:
    (tmp_path / "rules").mkdir(exist_ok=True)
    (tmp_path / "rules/house.yaml").write_text(rules)
    (tmp_path / "house.cuh").write_text(HEADER)
    text = f'#include "house.cuh"\n{head}__global__ void k(float* out, const float* p, int n) {{\n{body}\n}}\n'
    (tmp_path / "k.cu").write_text(text)
    options = PortOptions(rule_directories=(str(tmp_path / "rules"),), ignore=ignore)
    return port_sources(load_sources(tmp_path / "k.cu"), options)


def _body(result: PortResult) -> str:
    text = next(t for p, t in result.files.items() if p.endswith("k.cu")).decode()
    return text[text.index("{\n", text.index("__global__")) + 2 : text.rindex("\n}")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("out[0] = house::load(p, 3);", "out[0] = house::load_hinted<3>(p);"),
        ("out[0] = ::house::load(p + n, 3);", "out[0] = house::load_hinted<3>(p + n);"),
        ("out[0] = house::load( p /* row */, 3 );", "out[0] = house::load_hinted<3>(p);"),
        ("using house::load; out[0] = load(p, 3);", "using house::load; out[0] = house::load_hinted<3>(p);"),
        ("namespace h = house; out[0] = h::load(p, 3);", "namespace h = house; out[0] = house::load_hinted<3>(p);"),
        ("out[0] = other::load(p, 3);", "out[0] = other::load(p, 3);"),
        ("// house::load(p, 3)\nconst char* s = \"house::load(p, 3)\";", None),
        ("out[0] = house::scaled(2.f, house::scaled(3.f, *p));", "out[0] = house::times(house::times(*p, 3.f), 2.f);"),
        (
            "out[0] = house::scaled(house::load(p, 1), house::load(p, 2));",
            "out[0] = house::times(house::load_hinted<2>(p), house::load_hinted<1>(p));",
        ),
        ("out[0] = house::kDepth + n;", "out[0] = house::sm100::kDepth + n;"),
        ("const int kDepth = 2; out[0] = kDepth;", "const int kDepth = 2; out[0] = kDepth;"),
        ("out[0] = house::tag<Sm90>();", "out[0] = house::tag<house::Sm100>();"),
        ("house::log(n, *p);", "house::trace(1, n, *p);"),
        ("auto f = [&](int i) { return house::load(p + i, 0); }; out[0] = f(n);",
         "auto f = [&](int i) { return house::load_hinted<0>(p + i); }; out[0] = f(n);"),
        ("house::log(house::kDepth,\n           house::load(p, 7));",
         "house::trace(1, house::sm100::kDepth,\n           house::load_hinted<7>(p));"),
    ],
)  # fmt: skip
def test_what_stands_in_the_place_of_a_call(tmp_path: Path, before: str, after: str | None) -> None:
    result = _port(tmp_path, before)
    assert [d.code.id for d in result.diagnostics if d.code.id.startswith("PT6")] == []
    assert _body(result) == (before if after is None else after)


def test_a_call_in_a_macro_is_replaced_where_it_is_written(tmp_path: Path) -> None:
    head = "#define READ(q) \\\n    house::scaled(2.f, \\\n        house::load(q, 3))\n"
    result = _port(tmp_path, "out[0] = READ(p);", head=head)
    text = next(t for p, t in result.files.items() if p.endswith("k.cu")).decode()
    assert "READ(p)" in text
    left = text.split("#define READ(q)")[1].split("__global__")[0]
    # what no function of the program holds stays whole, or is changed whole
    assert ("house::times(" in left) == ("house::load_hinted<3>(q)" in left)


def test_what_a_form_is_not_for_stays_and_is_said(tmp_path: Path) -> None:
    result = _port(tmp_path, "out[0] = house::tag<Other>(); out[1] = house::load(p, 1);")
    assert _body(result) == "out[0] = house::tag<Other>(); out[1] = house::load_hinted<1>(p);"
    (said,) = [d for d in result.diagnostics if d.code.id == "PT6009"]
    assert "HOUSE103" in said.message
    assert "`Other`" in said.message


def test_a_body_at_hand_is_no_reason_to_keep_the_call(tmp_path: Path) -> None:
    head = "namespace house { __device__ float load(const float* p, int hint) { return p[hint]; } }\n"
    assert "house::load_hinted<1>(p)" in _body(_port(tmp_path, "out[0] = house::load(p, 1);", head=head))


def test_a_rule_that_is_ignored_replaces_nothing(tmp_path: Path) -> None:
    body = "house::log(house::kDepth);"
    assert _body(_port(tmp_path, body, ignore=("HOUSE104",))) == "house::log(house::sm100::kDepth);"


def test_two_rules_for_one_place_are_an_error(tmp_path: Path) -> None:
    again = RULES[RULES.index("  - id: HOUSE104") :].replace("HOUSE104", "HOUSE105").replace("trace(1", "trace(2")
    again = again.replace("trace(1, x", "trace(2, x")
    result = _port(tmp_path, "house::log(n);", RULES + again)
    assert [d.code.id for d in result.diagnostics] == ["PT6005"]
    assert _body(result) == "house::log(n);"
    above = again.replace("    title:", "    priority: 1\n    title:")
    assert _body(_port(tmp_path, "house::log(n);", RULES + above)) == "house::trace(2, n);"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (("load_hinted<$HINT>($P)", "load_hinted<$HINT>($Q)"), "`replace` names $Q, which no pattern captures"),
        (("recognize: house::kDepth", "recognize: house::kDepth +"), "cannot match"),
        (("where: {SCALE: expression}", "where: {S: expression}"), "`where` names $S"),
        (("map: {T:", "map: {U:"), "`map` names $U"),
        (("replace: house::sm100::kDepth", "replace: house::sm100::kDepth\n    emit: x"), "says nothing beside"),
        (("replace: house::sm100::kDepth", "replace: house::sm100::kDepth\n    compares: sm"), "compares"),
        (("replace: house::sm100::kDepth", "replace: house::sm100::kDepth\n    chips: [sm_100a]"), "says nothing"),
    ],
)
def test_broken_rules(tmp_path: Path, broken: tuple[str, str], said: str) -> None:
    with pytest.raises(PorterError) as error:
        _port(tmp_path, "house::log(n);", RULES.replace(*broken))
    assert said in error.value.diagnostic.message
    assert error.value.diagnostic.where is not None
    assert error.value.diagnostic.where.line


def test_their_own_examples_hold(tmp_path: Path) -> None:
    (tmp_path / "house.yaml").write_text(RULES)
    rules = [r for r in load_rules((str(tmp_path),)) if r.library == "house"]
    assert {r.kind for r in rules} == {"replacement"}
    tried = list(try_examples(rules, (str(tmp_path),)))
    assert [(t.rule.id, t.problems) for t in tried] == [(r.id, ()) for r in rules]


def test_which_rule_writes_is_explained(tmp_path: Path) -> None:
    result = _port(tmp_path, "out[0] = house::scaled(2.f, *p); out[1] = house::tag<Other>();")
    sites = sites_at(tmp_path / "k.cu", 3, load_rules((str(tmp_path / "rules"),)), result.groups)
    by_text = {s.text: s for s in sites}
    scaled = by_text["house::scaled(2.f, *p)"]
    assert [(t.rule, t.outcome) for t in scaled.trials] == [("HOUSE101", "recognized")]
    assert scaled.means == "replacement text=house::times(*p, 2.f)"
    (tag,) = by_text["house::tag<Other>()"].trials
    assert (tag.rule, tag.outcome) == ("HOUSE103", "near miss")
