# SPDX-License-Identifier: Apache-2.0
"""What calls mean: ten and more variants of each construct, and whether clang says the same."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from modelled import program_of

from porter.model.functions import Function
from porter.model.program import Program

HEAD = "#define D __device__\n"
_NUMBER = re.compile(r"/\*(\d+)\*/")
_EXPECTED = re.compile(r"\s*/\*\?([\d,]*)\*/")


def _cases() -> list[object]:
    """The cases of name_cases.txt, in groups."""
    found: list[object] = []
    kind, count = "", 0
    for line in Path(__file__).with_name("name_cases.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            continue
        if line.startswith("["):
            kind, count = line.strip("[]"), 0
            continue
        found.append(pytest.param(line.replace("\\n", "\n"), id=f"{kind}-{count}"))
        count += 1
    return found


PARAMETERS = _cases()
ERRORS = "//errors"
"""Marks a case with names that nothing declares."""


def number(function: Function) -> int:
    """The number in a function's body."""
    found = _NUMBER.search(function.text(function.body))
    assert found is not None, function.name
    return int(found[1])


def marked(program: Program) -> dict[int, tuple[str, set[int], set[int]]]:
    """By offset of the name in a marked call: its text, the expected numbers, and those of its targets."""
    found = {}
    for function in program.functions:
        for call in function.calls:
            end = function.span(call.node).end
            mark = _EXPECTED.match(function.file.source[end:].decode())
            if mark is not None:
                wanted = {int(n) for n in mark[1].split(",") if n}
                ours = {number(t) for t in program.targets(call)}
                found[call.name_span.start] = (function.text(call.node), wanted, ours)
    return found


@pytest.mark.parametrize("text", PARAMETERS)
def test_calls_reach(text: str) -> None:
    found = marked(program_of(HEAD + text))
    assert len(found) == text.count("/*?")
    for call, wanted, ours in found.values():
        assert ours == wanted, call


@pytest.mark.parametrize("text", PARAMETERS)
def test_callers_are_the_other_way_round(text: str) -> None:
    program = program_of(HEAD + text)
    for function in program.functions:
        for call in function.calls:
            for target in program.targets(call):
                assert any(c is call for c in program.callers(target))
        assert all(function in program.targets(c) for c in program.callers(function))


@pytest.mark.parametrize("text", PARAMETERS)
@pytest.mark.skipif(importlib.util.find_spec("clang") is None, reason="libclang is not installed (the extra `dev`)")
def test_clang_says_the_same(text: str, tmp_path: Path) -> None:
    from clang_names import ask_clang

    path = tmp_path / "case.cu"
    path.write_text(HEAD + text, encoding="utf-8")
    program = program_of(path.read_text())
    seen = ask_clang(path, tmp_path / "stubs")
    assert bool(seen.errors) == (ERRORS in text), seen.errors
    numbers = {}
    for function in program.functions:
        if function.name_span is not None and (place := (str(path), function.name_span.start)) in seen.functions:
            numbers[seen.functions[place]] = _NUMBER.search(function.text(function.body))
    checked = 0
    for offset, (call, wanted, _) in marked(program).items():
        exact = seen.called.get((str(path), offset))
        if exact is not None and numbers.get(exact) is not None:
            checked += 1
            if len(wanted) == 1:
                assert wanted == {int(numbers[exact][1])}, call
            else:
                assert int(numbers[exact][1]) in wanted, call
    assert checked or ERRORS in text or any(p in text for p in ("#", "template", "[]", "[&]"))
