# SPDX-License-Identifier: Apache-2.0
"""Every rule's own examples, and that an example which does not hold is told."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from porter.cli.porting import boxes_of, launches_of
from porter.passes.rule_examples import differences, run_example
from porter.rules.load import load_rules
from porter.rules.rule import Example, Rule

EXAMPLES = [pytest.param(r, e, id=f"{r.id}-{i}") for r in load_rules() for i, e in enumerate(r.examples)]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_example(tmp_path: Path, rule: Rule, example: Example) -> None:
    host = (partial(launches_of, ()), partial(boxes_of, ()))
    assert not list(differences(rule, example, run_example(rule, example, tmp_path, (), *host)))


@pytest.mark.parametrize("rule", load_rules(), ids=lambda r: r.id)
def test_rule_says_what_and_why(rule: Rule) -> None:
    assert rule.reason.endswith(".")
    assert rule.becomes
    if rule.implemented_by:
        assert Path("porter/passes", rule.implemented_by + ".py").is_file()
    if rule.kind == "recognizer":
        assert any(e.facts for e in rule.examples)
        assert any(not e.facts for e in rule.examples)
        return
    for example in rule.examples:
        assert example.after is not None or example.expect or example.absent or example.diagnostics


BY_ID = {rule.id: rule for rule in load_rules()}
RECOGNIZER = next(r for r in BY_ID.values() if r.recognizers and r.examples[0].facts)


@pytest.mark.parametrize(
    ("rule", "change", "said"),
    [
        ("PTR200", {"after": "int x;\n"}, "the result is another"),
        ("PTR200", {"expect": ("nowhere",)}, "the result has no `nowhere`"),
        ("PTR200", {"absent": ("100",)}, "the result has `100`"),
        ("PTR200", {"diagnostics": ("PT2003",)}, "PT2003 is not said"),
        ("PTR200", {"before": "void f() {}\n"}, "the rule makes no edit"),
        ("PTR300", {"diagnostics": ("PT2003", "PT2003")}, "PT2003 is not said as often"),
        ("PTR300", {"diagnostics": ("PT2003", "PT2001")}, "PT2001 is not said"),
        (RECOGNIZER.id, {"facts": ()}, "the facts are"),
        (RECOGNIZER.id, {"is_near": True}, "it is no near miss"),
    ],
)
def test_an_example_that_does_not_hold(tmp_path: Path, rule: str, change: dict[str, object], said: str) -> None:
    example = replace(BY_ID[rule].examples[0], **change)
    assert said in "\n".join(differences(BY_ID[rule], example, run_example(BY_ID[rule], example, tmp_path)))


def test_of_a_fact_only_what_is_stated_counts(tmp_path: Path) -> None:
    rule = next(r for r in BY_ID.values() if r.examples[0].facts and r.examples[0].facts[0][1])
    found = run_example(rule, rule.examples[0], tmp_path)
    ((kind, values), *rest) = rule.examples[0].facts
    fewer = replace(rule.examples[0], facts=((kind, values[1:]), *rest))
    assert not list(differences(rule, fewer, found))
    other = replace(rule.examples[0], facts=((kind, ((values[0][0], "other"), *values[1:])), *rest))
    assert "the facts are" in "\n".join(differences(rule, other, found))
