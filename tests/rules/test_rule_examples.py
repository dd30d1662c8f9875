# SPDX-License-Identifier: Apache-2.0
"""Every rule's own examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from porter.lang.cuda import find
from porter.lang.sources import load_sources
from porter.model.facts import KINDS, Doubt, Fact
from porter.model.program import build_program
from porter.passes.dsl.port import port_python
from porter.passes.port import port_sources
from porter.rules.load import load_rules
from porter.rules.recognize import vocabulary
from porter.rules.rule import Example, Rule

HOPPER = '__device__ void f() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }\n'
EXAMPLES = [pytest.param(r, e, id=f"{r.id}-{i}") for r in load_rules() for i, e in enumerate(r.examples)]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_example(tmp_path: Path, rule: Rule, example: Example) -> None:
    path = tmp_path / example.file
    path.write_text(example.before)
    if rule.recognizers:
        _check_facts(path, rule, example)
        return
    root = path
    if path.suffix == ".py" and rule.family == "CuTe DSL":
        _check(port_python(path), path, rule, example)
        return
    if path.suffix not in (".cu", ".cuh", ".h", ".hpp", ".cpp"):
        root = tmp_path / "kernel.cu"
        root.write_text(HOPPER)
    _check(port_sources(load_sources(root)), path, rule, example)


def _check_facts(path: Path, rule: Rule, example: Example) -> None:
    """Only what the rule itself recognizes counts."""
    program = build_program(load_sources(path), vocabulary([rule]))
    found = [program.facts.of_call(c) for f in program.functions for c in f.calls]
    names = ("field_expression", "qualified_identifier", "identifier")
    found += [
        program.facts.of_name(f, n)
        for f in program.functions
        for n in find(f.body, *names)
        if n.parent is None or n.parent.type not in ("call_expression", "field_expression", *names)
    ]
    doubts = [f for f in found if isinstance(f, Doubt)]
    facts = [f for f in found if f is not None and not isinstance(f, Doubt)]
    assert bool(doubts) == example.is_near, doubts
    make: Mapping[str, Callable[..., Fact]] = KINDS
    assert facts == [make[kind](**dict(values)) for kind, values in example.facts]


def _check(result: Any, path: Path, rule: Rule, example: Example) -> None:
    written = {**result.files, **result.build_files}.get(str(path), example.before.encode()).decode()
    for code in example.diagnostics:
        assert code in [d.code.id for d in result.diagnostics]
    if example.after is not None:
        assert written == example.after
    for line in example.expect:
        assert line in written
    for line in example.absent:
        assert line not in written
    if not example.diagnostics:
        assert rule.id in [g.rule for g in result.groups]


@pytest.mark.parametrize("rule", load_rules(), ids=lambda r: r.id)
def test_rule_says_what_and_why(rule: Rule) -> None:
    assert rule.reason.endswith(".")
    assert rule.becomes
    if rule.implemented_by:
        assert Path("porter/passes", rule.implemented_by + ".py").is_file()
    if rule.recognizers:
        assert any(e.facts for e in rule.examples)
        assert any(not e.facts for e in rule.examples)
        return
    for example in rule.examples:
        assert example.after is not None or example.expect or example.absent or example.diagnostics
