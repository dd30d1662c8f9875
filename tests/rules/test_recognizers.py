# SPDX-License-Identifier: Apache-2.0
"""Rules that say what a library's names are: patterns, a user's own, and broken files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from porter.cli.main import main
from porter.diagnostics import PorterError
from porter.lang.sources import load_sources
from porter.model.facts import Doubt, Wait
from porter.model.program import build_program
from porter.model.recognition import Bound
from porter.rules.load import load_rules, read_rule_file
from porter.rules.pattern import PatternError, compiled
from porter.rules.recognize import Origin, fact_patterns, vocabulary

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "passes"))

from kernels import LOOP, STORE, SYNC, kernel, port_text

GOOD = """\
schema: 2
library: acme
rules:
  - id: ACME100
    title: House wait
    recognize: 'acme::wait<$N>()'
    as: {wait: {pending: $N}}
    where: {N: const}
    safety: review
    reason: The house wait is wgmma.wait_group.
    examples:
      - {before: 'acme::wait<0>()', facts: [{wait: {pending: '0'}}]}
      - {near: 'acme::wait()'}
"""


@pytest.mark.parametrize(
    ("pattern", "rest", "bound"),
    [
        ("a::f()", "()", {}),
        ("a::f()", " ( /* none */ )", {}),
        ("a::f()", "(1)", None),
        ("a::f($X)", "(g(1, 2))", {"X": "g(1, 2)"}),
        ("a::f($X)", "(1, 2)", None),
        ("a::f($X)", "()", None),
        ("a::f($$$X)", "()", {"X": ""}),
        ("a::f($$$X)", "(1, g(2))", {"X": "1, g(2)"}),
        ("a::f($X, $X)", "(p[i], p[ i ])", {"X": "p[i]"}),
        ("a::f($X, $X)", "(p[i], p[j])", None),
        ("a::f<$N>()", "<N < 64 ? N : 64>()", {"N": "N < 64 ? N : 64"}),
        ("a::f<$N>()", "<Tile<64>::n>()", {"N": "Tile<64>::n"}),
        ("a::f<$N>()", "<(1 > 0)>()", {"N": "(1 > 0)"}),
        ("a::f<$N>($X)", "<1>(const_cast<T<A, B>&>(x))", None),
        ("a.x", ".x", {}),
        ("a.x", ".y", None),
        ("a::b", "", {}),
        ("a::b", "::c", None),
    ],
)
def test_pattern(pattern: str, rest: str, bound: dict[str, str] | None) -> None:
    found = next(compiled(pattern).bind(rest), None)
    assert (found if found is None else {name: piece.text for name, piece in found.items()}) == bound


def test_names_of_captures_may_begin_alike() -> None:
    made = fact_patterns(Origin("R1"), ["house::wait<$N, $NAME>()"], {"wait": {"pending": "$N - $NAME"}}, {})
    bound = made[0].bind("<1, LEFT>()", lambda _: None)
    assert isinstance(bound, Bound)
    assert bound.fact == Wait("1 - LEFT")


@pytest.mark.parametrize(
    "text", ["", "$X()", "()", "f(", "f)", "f<1", "f<1>", "f(a; b)", "f() + 1", "f()()", "f($x)", "a.b.c", "f[0]"]
)
def test_a_pattern_that_cannot_match(text: str) -> None:
    with pytest.raises(PatternError):
        compiled(text)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("schema: 2", "schema: 3", 1, "2 was expected"),
        ("library: acme", "library: [", 4, "expected"),
        ("    title: House wait\n", "", 4, "'title' is a required property"),
        ("recognize:", "recognise:", 6, "unknown key `recognise`; did you mean `recognize`?"),
        ("acme::wait<$N>()", "acme::wait<$N>(", 4, "cannot match"),
        ("acme::wait<$N>()", "acme::wait<$N>();", 4, "cannot match"),
        ("acme::wait<$N>()", "$$$X::wait<$N>()", 4, "does not begin with a name"),
        ("'acme::wait<$N>()'", "['acme::wait<$N>()', 'acme::wait()']", 4, "does not capture what"),
        ("{wait: {pending: $N}}", "{wate: {pending: $N}}", 4, "no kind of fact"),
        ("{wait: {pending: $N}}", "{wait: {pending: $M}}", 4, "$M, which no pattern captures"),
        ("{wait: {pending: $N}}", "{wait: {}}", 4, "needs `pending`"),
        ("{wait: {pending: $N}}", "{wait: {pending: $N, depth: 1}}", 4, "has no `depth`"),
        ("{wait: {pending: $N}}", "{wait: {pending: 1}}", 4, "is no int"),
        ("{wait: {pending: $N}}", "{wait: {pending: $N}, fence: {}}", 7, "too many properties"),
        ("where: {N: const}", "where: {M: const}", 4, "$M, which no pattern captures"),
        ("where: {N: const}", "where: {N: big}", 4, "`big` is nothing that $N can be"),
        ("safety: review", "safety: sure", 9, "'sure' is not one of"),
        ("      - {near: 'acme::wait()'}\n", "", 4, "need one with `near` or `absent`"),
        ("{near: 'acme::wait()'}", "{nearly: 'acme::wait()'}", 13, "nearly"),
        ("    examples:\n", "    ? [1]\n    examples:\n", 11, "unhashable"),
    ],
)
def test_a_broken_file_is_one_sentence_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, line: int, words: str
) -> None:
    assert old in GOOD
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "acme.yaml").write_text(GOOD.replace(old, new))
    with pytest.raises(PorterError) as raised:
        read_rule_file(rules / "acme.yaml")
    found = raised.value.diagnostic
    assert found.code.id == "PT6001"
    assert found.where is not None
    assert found.where.line == line, str(found)
    assert words in found.message
    assert "\n" not in found.message
    source = tmp_path / "kernel.cu"
    source.write_text("void f() {}\n")
    with pytest.raises(SystemExit) as left:
        main(["port", str(source), "--rules", str(rules), "-o", str(tmp_path / "out")])
    assert left.value.code == 2
    assert f"acme.yaml:{line}:" in capsys.readouterr().err


def test_a_rule_of_a_user_is_read_beside_porters_own(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "acme.yaml").write_text(GOOD)
    assert "ACME100" in {r.id for r in load_rules((str(rules),))}
    calls = {"arrive();": "cute::warpgroup_arrive();", "commit();": "cute::warpgroup_commit_batch();"}
    text = kernel("    float acc[8] = {0};\n" + LOOP.replace("wait<0>();", "acme::wait<0>();") + STORE)
    text = text.replace(SYNC, "")
    for own, library in calls.items():
        text = text.replace(own, library)
    result = port_text(tmp_path, text, rule_directories=(str(rules),))
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    written = result.files[result.sources.root].decode()
    assert "tc.wait(0);" in written
    assert "acme::wait" not in written
    # without the rule nothing waits for the results
    assert int(port_text(tmp_path, text).exit_code) == 3


HOUSE = """\
schema: 2
library: acme
rules:
"""
ENTRY = """\
  - {id: %s, title: House sync, recognize: '%s', as: %s, safety: review, reason: It is wgmma's.,
     examples: [{before: '%s', expect: [x]}, {absent: 'other::f()'}]}
"""
DECLARED = """\
namespace acme {
__device__ void fence();
__device__ void commit();
template <int N> __device__ void wait();
}
"""


@pytest.mark.parametrize(
    ("declared", "spelled"),
    [
        ("", "acme::"),
        (DECLARED, "acme::"),
        (DECLARED + "using namespace acme;\n", ""),
        (DECLARED + "namespace a = acme;\n", "a::"),
    ],
)  # fmt: skip
def test_a_house_wrapper_whose_asm_is_not_at_hand(tmp_path: Path, declared: str, spelled: str) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    facts = {"fence()": "{fence: {}}", "commit()": "{commit: {}}", "wait<$N>()": "{wait: {pending: $N}}"}
    text = "".join(ENTRY % (f"ACME10{i}", f"acme::{p}", f, p) for i, (p, f) in enumerate(facts.items()))
    (rules / "acme.yaml").write_text(HOUSE + text)
    body = LOOP
    for own, house in {"arrive()": "fence()", "commit()": "commit()", "wait<0>()": "wait<0>()"}.items():
        body = body.replace(own, spelled + house)
    source = kernel("    float acc[8] = {0};\n" + body + STORE).replace(SYNC, declared)
    assert int(port_text(tmp_path, source).exit_code) == 3
    result = port_text(tmp_path, source, rule_directories=(str(rules),))
    assert int(result.exit_code) == 0, [str(d) for d in result.diagnostics]
    written = result.files[result.sources.root].decode()
    order = ["sync_warpgroup();", "mma(acc_tmem", "tc.commit();", "tc.wait(0);", "load(acc"]
    loop = written[written.index("float acc[8]") :]
    assert [loop.index(piece) for piece in order] == sorted(loop.index(piece) for piece in order)


@pytest.mark.parametrize(
    ("pattern", "stated", "call", "said"),
    [
        ("house::wait($$$X, $$$Y)", "{wait: {pending: $X}}", "house::wait(1, 2, 3)", "may be"),
        ("house::wait($$$X, $$$Y)", "{wait: {pending: $Y}}", "house::wait(1, 2, 3)", "may be"),
        ("house::wait($$$X, $N, $$$Y)", "{wait: {pending: $N}}", "house::wait(1, 2, 3, 4)", "may be"),
        ("house::wait($X $Y)", "{wait: {pending: $X}}", "house::wait(1 + 2 + 3)", "may be"),
        ("house::wait($X, $X)", "{wait: {pending: $X}}", "house::wait(1, 2)", "asks for other arguments"),
        ("house::wait<$X>($X)", "{wait: {pending: $X}}", "house::wait<4>(5)", "asks for other arguments"),
        ("house::wait($$$X, $$$X)", "{wait: {pending: $X}}", "house::wait(1, 2)", "asks for other arguments"),
        ("house::wait($$$X, $$$Y)", "{wait: {pending: '0'}}", "house::wait(1, 2, 3)", ""),
        ("house::wait($X, $X)", "{wait: {pending: $X}}", "house::wait(1 + n, 1 + n)", ""),
        ("house::wait($$$X, 3)", "{wait: {pending: $X}}", "house::wait(1, 2, 3)", ""),
        ("house::wait<$X>($$$Y)", "{wait: {pending: $X}}", "house::wait<4>(5, 6)", ""),
        ("house::wait($X, $$$Y)", "{wait: {pending: $X}}", "house::wait(1, 2, 3)", ""),
    ],
)
def test_what_a_capture_is_has_to_be_one_text(tmp_path: Path, pattern: str, stated: str, call: str, said: str) -> None:
    (tmp_path / "house.yaml").write_text(f"""\
schema: 2
library: house
rules:
  - {{id: HOUSE100, title: Wait, recognize: '{pattern}', as: {stated}, safety: review, reason: So.,
     examples: [{{before: 'house::wait(1)', facts: [{{wait: {{pending: '1'}}}}]}}, {{near: 'house::wait()'}}]}}
""")
    (tmp_path / "kernel.cu").write_text(f"__device__ void f(int n) {{ {call}; }}\n")
    rules = [r for r in load_rules([str(tmp_path)]) if r.id == "HOUSE100"]
    program = build_program(load_sources(tmp_path / "kernel.cu"), vocabulary(rules))
    (found,) = [program.facts.of_call(c) for f in program.functions for c in f.calls]
    assert isinstance(found, Doubt) == bool(said)
    assert not isinstance(found, Doubt) or said in found.what
