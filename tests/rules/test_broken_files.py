# SPDX-License-Identifier: Apache-2.0
"""A rule file that is broken in any way is one sentence with the file and line, exit code 2, and never a traceback."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from house import HEAD, MULTIPLY, SYNC

from porter.cli.main import main
from porter.diagnostics import PorterError
from porter.rules.load import load_rules, read_rule_file

REFUSAL = """\
  - id: ACME900
    title: Split accumulators
    recognize: acme::split<$N>($$$ARGS)
    refuse: {what: a split of $N, advice: Leave it.}
    safety: sketch
    reason: Tiles belong to one warpgroup.
    examples: [{before: 'acme::split<2>(c)', diagnostics: [RULE_REFUSED]}]
"""
REPLACEMENT = """\
  - id: ACME910
    title: Name of the chip
    recognize: {regex: '(ACME)_SM90'}
    in: string
    files: ['*.cu']
    when: ported
    replace: '\\1_SM100'
    safety: safe
    reason: The macro has a sister.
    references: [none]
    examples: [{before: x, after: y}]
"""
ASKED = "".join(REPLACEMENT.splitlines(keepends=True)[2:7])
EMITTER = """\
  - id: ACME920
    title: Waits of the house
    on: wait
    via: acme
    emit: 'acme::umma_wait<$pending>($state);'
    needs: [state]
    request: {include: acme/umma.cuh}
    priority: 3
    safety: review
    reason: It counts its batches itself.
    examples: [{before: 'acme::wait<0>()', expect: [x]}]
"""
GOOD = HEAD + MULTIPLY + SYNC + REFUSAL + REPLACEMENT + EMITTER


def _broken(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, words: str, line: int) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    if content is None:
        (rules / "acme.yaml").mkdir()
    else:
        (rules / "acme.yaml").write_bytes(content)
    source = tmp_path / "kernel.cu"
    source.write_text("void f() {}\n")
    with pytest.raises(SystemExit) as left:
        main(["port", str(source), "--rules", str(rules), "-o", str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert left.value.code == 2, said
    assert "Traceback" not in said
    first = said.splitlines()[0]
    assert words in first, said
    assert f"acme.yaml:{line}:" in said if line else "acme.yaml" in said, said


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"# nothing\n", "the file is empty"),
        (b"\x00\x01\x02\xff", "can't decode"),
        (b"\x00\x01", "not allowed"),
        (b"\xff\xfe", "can't decode"),
        (None, "directory"),
        (b"[]\n", "is not of type 'object'"),
        (b"a\n", "is not of type 'object'"),
        (b"1\n", "is not of type 'object'"),
        (b"schema: 2\n", "required property"),
        (b"schema: 2\nlibrary: x\nrules: []\n", "non-empty"),
        (b"schema: 2\nlibrary: x\nrules: {}\n", "is not of type 'array'"),
        (b"family: x\nrules: []\n", "family"),
        (b"schema: 2\nlibrary: x\nrules: [\n", "node content"),
        (b"schema: 2\n\tlibrary: x\n", "found a tab character"),
        (b"? [1]\n: 2\n", "unhashable"),
        (b"schema: 2\nlibrary: &a x\nrules: *b\n", "undefined alias"),
        (b"schema: 2\nlibrary: !!python/object:os.system x\nrules: []\n", "could not determine a constructor"),
        (b"schema: 2\nlibrary: 2020-13-45\nrules: []\n", "month must be"),
        (b"schema: 2\n---\nlibrary: x\n", "another document"),
        (b"schema: 2\nlibrary: x\nrules: &a [*a]\n", "an alias stands for what it is a part of"),
        (b"[" * 3000, ""),
    ],
)  # fmt: skip
def test_a_file_that_is_no_rule_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, words: str
) -> None:
    _broken(tmp_path, capsys, content, words, 0)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("rules:\n", "rules:\n  - 1\n", 5, "is not of type 'object'"),
        ("library: acme", "library: acme\nlibary: x", 3, "libary"),
        ("scope: [acme]", "scope: acme", 3, "is not of type 'array'"),
        ("scope: [acme]", "scope: ['ac me']", 3, "does not match"),
        ("scope: [acme]", "language: cobol", 3, "is not one of"),
        ("recognize: 'acme::mma<$N>($D, $A, $B)'", "recognize: 'acme::mma<$N>($D, $A, $B'", 5, "cannot match"),
        ("recognize: 'acme::mma<$N>($D, $A, $B)'", "recognize: 'acme::mma<$N($D, $A, $B)'", 5, "nothing closes"),
        ("recognize: 'acme::mma<$N>($D, $A, $B)'", "recognize: '$X($D)'", 5, "does not begin with a name"),
        ("recognize: 'acme::mma<$N>($D, $A, $B)'", "recognize: []", 7, "recognize: []"),
        ("recognize: 'acme::mma<$N>($D, $A, $B)'", "recognize: 'acme::mma<$n>($D, $A, $B)'", 5, "names no capture"),
        ("recognize: 'acme::mma<$N>($D, $A, $B)'", "recognize: ['a::f<$N>($D)', 'a::g()']", 5, "does not capture"),
        ("recognize: 'acme::mma<$N>($D, $A, $B)'", "recognize: {regex: 'mma'}", 5, "a regex recognizes no fact"),
        ("    where: {N: const, D: name}", "    language: python\n    where: {N: const}", 5, "a name or a call of one"),
        ("    where: {N: const, D: name}", "    language: make\n    where: {N: const}", 5, "is a regex"),
        ("d: $D,", "", 5, "needs `d`"),
        ("d: $D,", "d: $X,", 5, "which no pattern captures"),
        ("d: $D,", "d: '$D[0]',", 5, "is one capture"),
        ("d: $D,", "d: acc,", 5, "is one capture"),
        ("d: $D,", "d: $D, e: $A,", 5, "has no `e`"),
        ("as: {mma:", "as: {mma: {}, fence:", 9, "too many properties"),
        ("as: {mma:", "as: {multiply:", 5, "no kind of fact"),
        ("shape: 'm64n${N}k16', types: f32.f16.f16", "shape: m64n60k16, types: f32.f16.f16", 5, "n60k16 is not"),
        ("shape: 'm64n${N}k16', types: f32.f16.f16", "shape: m64n64k16, types: f32.f16", 5, "three types"),
        ("where: {N: const, D: name}", "where: {N: const, D: thing}", 5, "nothing that $D can be"),
        ("where: {N: const, D: name}", "where: {N: {about: 3}}", 5, "takes one of"),
        ("where: {N: const, D: name}", "where: {N: {in: 3}}", 5, "takes a list"),
        ("where: {N: const, D: name}", "where: {N: {in: []}}", 5, "nothing in its list"),
        ("where: {N: const, D: name}", "where: {N: {regex: '('}}", 5, "regex of $N is broken"),
        ("where: {N: const, D: name}", "where: {N: {multiple_of: 0}}", 5, "above 0"),
        ("where: {N: const, D: name}", "where: {N: {multiple_of: x}}", 5, "above 0"),
        ("where: {N: const, D: name}", "map: {X: {a: b}}", 5, "which no pattern captures"),
        ("where: {N: const, D: name}", "definition: burn", 8, "is not one of"),
        ("where: {N: const, D: name}", "needs: [tile]", 5, "needs"),
        ("where: {N: const, D: name}", "on: mma", 5, "says nothing beside"),
        ("where: {N: const, D: name}", "emit: 'f($tail);'", 5, "nothing binds `$tail`"),
        ("where: {N: const, D: name}", "files: ['*.cu']", 5, "are for a regex"),
        ("where: {N: const, D: name}", "replace: x", 5, "a rule has"),
        ("where: {N: const, D: name}", "priority: high", 8, "is not of type 'integer'"),
        ("ACME101", "ACME100", 0, "defined twice"),
        ("ACME101", "PTR110", 0, "defined twice"),
        ("on: wait", "on: weight", 0, "no text is written for `weight`"),
        ("on: wait", "on: index", 0, "no text is written for `index`"),
        ("needs: [state]", "needs: [tile]", 0, "nothing binds `$tile` at a wait"),
        ("needs: [state]", "where: {kind: f16}", 0, "cannot ask for `kind`"),
        ("request: {include: acme/umma.cuh}", "request: {include: [1]}", 0, "is not of type 'string'"),
        ("request: {include: acme/umma.cuh}", "request: {header: x}", 0, "header"),
        ("a split of $N", "a split of $M", 0, "which no pattern captures"),
        ("{what: a split of $N, advice: Leave it.}", "{what: a split}", 0, "advice"),
        ("'(ACME)_SM90'", "'(ACME_SM90'", 0, "missing )"),
        ("'(ACME)_SM90'", "'x*'", 0, "matches nothing at all"),
        ("'\\1_SM100'", "'\\3_SM100'", 0, "group reference"),
        ("{before: x, after: y}", "{after: y}", 0, "an example has `before`"),
        ("{before: x, after: y}", "{before: x, near: y}", 0, "an example has `before`"),
        ("when: ported\n", "when: ported\n    when: always\n", 0, "the key `when` stands twice"),
        ("library: acme\n", "library: acme\nlibrary: house\n", 3, "the key `library` stands twice"),
        ("expect: [x]", "facts: [{weight: {}}]", 5, "`weight` is no kind of fact"),
        ("expect: [x]", "facts: [{wait: {depth: 0}}]", 5, "a wait has no `depth`"),
        ("{before: x, after: y}", "{before: x, diagnostics: [PT9999]}", 0, "there is no `PT9999`"),
        (REPLACEMENT, REPLACEMENT.replace(ASKED, "    pass: residency\n"), 0, "`pass` is for Porter's own rules"),
        (ASKED, "    recognize: ['f($X, 1)', 'f($X, 2)']\n    replace: 'g($X)'\n", 0, "capture the difference"),
        ("'acme::mma<$N>($D, $A, $B)'\n", "['a<$N>($D, $A, $B)', 'a<$N>($D, $A, $B, 0)']\n    emit: f();\n", 5,
         "capture the difference"),
    ],
)  # fmt: skip
def test_a_file_with_one_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, line: int, words: str
) -> None:
    assert old in GOOD
    _broken(tmp_path, capsys, GOOD.replace(old, new, 1).encode(), words, line)


def test_the_file_without_a_mistake_is_read(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text(GOOD)
    assert {"ACME100", "ACME900", "ACME910", "ACME920"} <= {r.id for r in load_rules((str(tmp_path),))}


def _places(data: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    if isinstance(data, dict | list):
        for key in data if isinstance(data, dict) else range(len(data)):
            yield from _places(data[key], (*at, key))


def _with(data: Any, at: tuple[Any, ...], value: object) -> Any:
    if not at:
        return value
    changed = copy.deepcopy(data)
    inner = changed
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return changed


WRONG = [None, True, 0, 1.5, "", "$X", "(", [], ["x"], {}, {"x": 1}, {1: 2}]


def _told(path: Path) -> PorterError | None:
    try:
        read_rule_file(path)
    except PorterError as error:
        return error
    return None


@pytest.mark.parametrize("rule", [MULTIPLY, REFUSAL, REPLACEMENT, EMITTER])
def test_a_value_of_another_type_is_read_or_told_wherever_it_stands(tmp_path: Path, rule: str) -> None:
    data = {**yaml.load(HEAD + rule, yaml.BaseLoader), "schema": 2}  # `on` is no truth value
    path = tmp_path / "acme.yaml"
    told = []
    for at in list(_places(data)):
        for value in WRONG:
            path.write_text(yaml.safe_dump(_with(data, at, value)))
            told += [error.diagnostic for error in [_told(path)] if error is not None]
    assert len(told) > 100
    assert {d.code.id for d in told} == {"PT6001"}
    assert not any("\n" in d.message or d.where is None for d in told)


ADVICE = """\
  - id: ACME930
    title: Slow loads
    recognize: {regex: 'ACME_LOAD'}
    advise: {code: T2R_ASSERTS, what: a slow load, advice: Use another.}
    safety: review
    reason: It is slow.
    examples: [{before: x, diagnostics: [T2R_ASSERTS]}]
"""
WORDS = ("recognize", "as", "replace", "refuse", "advise", "on", "emit", "where", "map", "definition", "in", "files")


@pytest.mark.parametrize("language", ["cuda", "ptx", "python", "text"])
@pytest.mark.parametrize("rule", [MULTIPLY, REFUSAL, REPLACEMENT, EMITTER, ADVICE])
def test_a_rule_with_words_of_another_is_read_or_told(tmp_path: Path, rule: str, language: str) -> None:
    entries = {text: yaml.load(text, yaml.BaseLoader)[0] for text in (MULTIPLY, REFUSAL, REPLACEMENT, EMITTER, ADVICE)}
    path, told = tmp_path / "acme.yaml", []
    own = entries.pop(rule)
    for other in entries.values():
        for word in (w for w in WORDS if w in other):
            for gone in ("", *(w for w in WORDS if w in own and w != word)):
                mixed = {k: v for k, v in {**own, word: other[word]}.items() if k != gone}
                text = {"schema": 2, "library": "acme", "language": language, "rules": [mixed]}
                path.write_text(yaml.safe_dump(text))
                told += [error.diagnostic for error in [_told(path)] if error is not None]
    assert len(told) > 20
    assert {d.code.id for d in told} == {"PT6001"}
