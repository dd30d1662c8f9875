# SPDX-License-Identifier: Apache-2.0
"""Words that nothing but their spelling tells of: rules with a regex say what they are, a user's as Porter's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.diagnostics import Code, PorterError
from porter.lang.sources import load_sources
from porter.model.spellings import MEANINGS
from porter.passes.build_files import port_build_files
from porter.passes.port import PortOptions, port_sources
from porter.rules.engine import Selection
from porter.rules.load import load_rules, own_spellings

FENCE = '__global__ void k() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }\n'
RULE = """\
schema: 2
library: house
rules:
  - id: HOUSE100
    title: A word of the house
    recognize: {regex: '%s'}
    as: {spelling: {of: %s}}
    safety: review
    reason: The house writes it so.
    examples: [{before: '%s', facts: [{spelling: {of: %s}}]}, {absent: other}]
"""
WORDS = {
    # meaning, word, code that is left over once the rule says what the word is
    "a macro of Hopper": ("hopper_macro", "HOUSE_HAS_WGMMA", "#if defined(HOUSE_HAS_WGMMA)\nint x;\n#endif\n"),
    "a macro of Blackwell": ("blackwell_macro", "HOUSE_UMMA", "#if !defined(HOUSE_UMMA)\nint x;\n#endif\n"),
    "a number": ("capability", "generation", "bool f(int generation) { return generation <= 90; }\n"),
    "a first number": ("capability_major", "gen", "bool f(P p) { return 9 == p.gen; }\n"),
    "a query": ("query_of_major", "HOUSE_GEN", "bool f() { int v; ask(HOUSE_GEN, &v); return v > 8 && v < 10; }\n"),
    "a name of the chip": ("chip_text", "grace", 'bool f(const char* s) { return strcmp(s, "grace") == 0; }\n'),
    "a comparison": ("comparison", "same", 'bool f(const char* s) { return same(s, "Hopper"); }\n'),
    "a pair": ("capability_pair", "Gen{9, 0}", "auto g = Gen{9, 0};\n"),
}


def left(tmp_path: Path, code: str, *rules: str) -> list[Code]:
    (tmp_path / "k.cu").write_text(FENCE + code)
    result = port_sources(load_sources(tmp_path / "k.cu"), PortOptions(rule_directories=rules))
    assert result.changed
    return [d.code for d in result.left_over]


@pytest.mark.parametrize("name", WORDS)
def test_a_word_of_the_user(tmp_path: Path, name: str) -> None:
    of, word, code = WORDS[name]
    (tmp_path / "house.yaml").write_text(RULE % (word.replace("{", r"\{"), of, word, of))
    asked = RULE % ("gen|generation|HOUSE_GEN", "capability_asked", "gen", "capability_asked")
    (tmp_path / "asked.yaml").write_text(asked.replace("HOUSE100", "HOUSE101"))
    assert left(tmp_path, code) == []
    assert left(tmp_path, code, str(tmp_path)) == [Code.CHIP_CHECK_LEFT]


LISTS = {
    # meaning, word, a line for Hopper, and for both chips
    "a list": ("architecture_list", "HOUSE_TARGETS", "set(HOUSE_TARGETS 90a)\n", "set(HOUSE_TARGETS 90a 100a)\n"),
    "an argument": ("architecture_argument", r"house_build\(", 'house_build("9.0a")\n', 'house_build("9.0a;10.0a")\n'),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_architectures_by_a_name_of_the_user(tmp_path: Path, name: str) -> None:
    of, word, before, after = LISTS[name]
    (tmp_path / "house.yaml").write_text(RULE % (word, of, word.replace("\\", ""), of))
    for directories, text in (((), before), ((str(tmp_path),), after)):
        found = port_build_files({"CMakeLists.txt": before.encode()}, load_rules(directories), Selection(), True)
        assert {**{"CMakeLists.txt": before.encode()}, **found.files}["CMakeLists.txt"].decode() == text


@pytest.mark.parametrize("meaning", MEANINGS)
def test_porter_has_a_word_for_every_meaning(meaning: str) -> None:
    words = [e.before for r in load_rules() if r.spelling and r.spelling.of == meaning for e in r.examples if e.facts]
    assert words
    assert all(own_spellings().are(meaning, w) for w in words)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("of: hopper_macro", "of: hoper_macro", "is nothing that a word is"),
        ("of: hopper_macro", "is: hopper_macro", "has no `is`"),
        ("{of: hopper_macro}", "{}", "needs `of`"),
        ("    safety", "    in: directive\n    safety", "`in` says nothing of a spelling"),
        ("    safety", "    where: {X: int}\n    safety", "`where` is for captures"),
        ("'WORD'", "'WORD('", "missing )"),
        ("'WORD'", "'W*'", "matches nothing at all"),
        ("{regex: 'WORD'}", "WORD", "a spelling is a regex"),
    ],
)
def test_a_broken_rule_is_one_message(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = RULE % ("WORD", "hopper_macro", "WORD", "hopper_macro")
    assert old in text
    (tmp_path / "house.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(PorterError) as caught:
        load_rules([str(tmp_path)])
    assert caught.value.diagnostic.code is Code.RULE_FILE
    assert said in caught.value.diagnostic.message
