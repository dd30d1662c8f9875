# SPDX-License-Identifier: Apache-2.0
"""Rules of a user's own for Python: names and calls of a house library beside the warpgroup MMAs of CuTe DSL."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from porter.diagnostics import Code, PorterError
from porter.passes.dsl.port import DslPortResult, port_python
from porter.rules.load import load_rules, own_names
from porter.rules.mapping import look_up

HEAD = "schema: 2\nlibrary: house\nlanguage: python\nrules:\n"
RULE = """  - id: HOUSE{n}
    title: A name of the house
    recognize: {recognize}
{more}    safety: review
    reason: The house has a sister of each.
    examples: [{{before: "import house\\n", after: "import house\\n"}}]
"""
KERNEL = "import cutlass\nfrom cutlass.cute.nvgpu import warpgroup\nimport house\nwarpgroup.fence()\n"
PORTED = "import cutlass\nimport porter_dsl as warpgroup\nimport house\nwarpgroup.fence()\n"


def rule(recognize: str, n: int = 1, **keys: str) -> str:
    return RULE.format(n=100 + n, recognize=recognize, more="".join(f"    {k}: {v}\n" for k, v in keys.items()))


def port(tmp_path: Path, source: str, *rules: str) -> DslPortResult:
    directory = tmp_path / "rules"
    directory.mkdir()
    (directory / "house.yaml").write_text(HEAD + "".join(rules))
    (tmp_path / "kernel.py").write_text(source)
    return port_python(tmp_path / "kernel.py", rule_directories=[str(directory)])


def ported(tmp_path: Path, source: str, *rules: str) -> str:
    result = port(tmp_path, source, *rules)
    assert int(result.exit_code) == 0, [str(d.message) for d in result.diagnostics]
    return result.files[str(tmp_path / "kernel.py")].decode()


MULTIPLY = "house.mma($A, $B, out=$D)"
CALLS = {
    # pattern, text: call, what becomes of it
    "in place": (MULTIPLY, "house.umma($A, $B, $D)", "house.mma(a, b, out=d)", "house.umma(a, b, d)"),
    "by position": (MULTIPLY, "house.umma($A, $B, $D)", "house.mma(a, b, d)", "house.umma(a, b, d)"),
    "another order": (MULTIPLY, "house.umma($D, $A, $B)", "house.mma(a, b, d)", "house.umma(d, a, b)"),
    "a comment stays": (
        MULTIPLY,
        "house.umma($A, $B, $D)",
        "house.mma(a[0],  # left\n  b, out=d)",
        "house.umma(a[0], b, d)",
    ),
    "inside one another": (
        "house.f($X)",
        "house.g(1, $X)",
        "house.f(house.f(house.f(x)))",
        "house.g(1, house.g(1, house.g(1, x)))",
    ),
    "beside an MMA": ("house.f($X)", "house.g($X)", "house.f(warpgroup.Field)", "house.g(warpgroup.Field)"),
    "the rest": ("house.f($A, $$$R)", "house.g($A, 2, $$$R)", "house.f(a, b, k=c, **d)", "house.g(a, 2, b, k=c, **d)"),
    "no rest": ("house.f($A, $$$R)", "house.g($A, $$$R)", "house.f(a)", "house.g(a)"),
    "no arguments": ("house.f()", "house.g(0)", "house.f()", "house.g(0)"),
    "a literal": ("house.f(0, $A)", "house.g($A)", "house.f(0, a)", "house.g(a)"),
    "a sum": ("house.f($A)", "$A * 2", "x = house.f(a + b)", "x = (a + b) * 2"),
    "a step of the name": (
        "house.f_$A($B)".replace("f_$A", "$F"),
        "house.sm100.$F($B)",
        "house.f(a)",
        "house.sm100.f(a)",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_replaced(tmp_path: Path, name: str) -> None:
    recognize, text, before, after = CALLS[name]
    where = {"where": "{F: {in: [f]}}"} if "$F" in recognize else {}
    found = ported(tmp_path, KERNEL + before + "\n", rule(recognize, replace=repr(text), **where))
    if ".sm100." in after:
        found = found.replace("import house.sm100 as sm100\n", "").replace("sm100.f", "house.sm100.f")
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(PORTED + after + "\n")), found


NEAR = {
    "fewer": ("house.mma(a)", "asks for other arguments"),
    "more": ("house.mma(a, b, d, 1)", "asks for other arguments"),
    "another keyword": ("house.mma(a, b, into=d)", "asks for other arguments"),
    "a list that is spread": ("house.mma(*a)", "asks for other arguments"),
    "keywords that are spread": ("house.mma(a, b, **d)", "asks for other arguments"),
    "not called": ("f(house.mma)", "is not called here"),
    "partly applied": ("import functools\nfunctools.partial(house.mma, a)", "is not called here"),
}


@pytest.mark.parametrize("name", NEAR)
def test_a_near_miss_stays_and_is_said(tmp_path: Path, name: str) -> None:
    call, why = NEAR[name]
    result = port(tmp_path, KERNEL + call + "\n", rule(MULTIPLY, replace="'house.umma($A, $B, $D)'"))
    assert call in result.files[str(tmp_path / "kernel.py")].decode()
    (said,) = [d for d in result.diagnostics if d.code is Code.RULE_NOT_APPLIED]
    assert why in said.message


@pytest.mark.parametrize(
    "call",
    ["other.mma(a, b, d)", "x.house.mma(a, b, d)", "def f(house): house.mma(a, b, d)", "house.mma2(a, b, d)"],
)
def test_another_name_is_none_of_the_rules(tmp_path: Path, call: str) -> None:
    result = port(tmp_path, KERNEL + call + "\n", rule(MULTIPLY, replace="'house.umma($A, $B, $D)'"))
    assert call in result.files[str(tmp_path / "kernel.py")].decode()
    assert not [d for d in result.diagnostics if d.code is Code.RULE_NOT_APPLIED]


NAMES = {
    "imported as a module": ("import house\nhouse.ops.mma(a)\n", "import house\nimport sister\nsister.umma(a)\n"),
    "imported by name": ("from house.ops import mma\nmma(a)\n", "from sister import umma as mma\nmma(a)\n"),
    "under another name": ("import house as h\nh.ops.mma(a)\n", "import house as h\nimport sister\nsister.umma(a)\n"),
    "with the sister there": (
        "import house, sister as s\nhouse.ops.mma(a)\n",
        "import house, sister as s\ns.umma(a)\n",
    ),
    "where the sister's name is taken": (
        "import house\nsister = 1\nhouse.ops.mma(a)\n",
        "import house\nimport sister as sister2\nsister = 1\nsister2.umma(a)\n",
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_what_a_new_name_is_of_is_imported(tmp_path: Path, name: str) -> None:
    before, after = NAMES[name]
    head = KERNEL.replace("import house\n", "")
    found = ported(tmp_path, head + before, rule("house.ops.mma.$$$BELOW", replace="sister.umma.$$$BELOW"))
    lines = PORTED.replace("import house\n", "").splitlines() + after.splitlines()
    assert sorted(found.splitlines()) == sorted(lines)
    compile(found, "kernel.py", "exec")


REFUSED = {
    "a name": ("house.sparse.$NAME", {}, "house.sparse.mma(a)", "f uses mma"),
    "a call": ("house.split($A, $NAME)", {}, "house.split(a, 2)", "f uses 2"),
    "by keyword": ("house.split($A, parts=$NAME)", {}, "house.split(a, parts=4)", "f uses 4"),
    "under a condition": ("house.split($A, $NAME)", {"where": "{NAME: {not: [1]}}"}, "house.split(a, 2)", "f uses 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_place_is_refused_with_advice(tmp_path: Path, name: str) -> None:
    recognize, more, line, what = REFUSED[name]
    refuse = "{what: f uses $NAME, advice: 'call g, not $NAME'}"
    result = port(tmp_path, KERNEL + line + "\n", rule(recognize, refuse=refuse, **more))
    (said,) = result.diagnostics
    assert said.code is Code.RULE_REFUSED
    assert what in said.message
    assert result.files[str(tmp_path / "kernel.py")].decode() == KERNEL + line + "\n"


@pytest.mark.parametrize("line", ["house.split(a, 1)", "house.split(a)", "house.split", "mine.split(a, 2)"])
def test_what_a_refusal_is_not_for_is_ported(tmp_path: Path, line: str) -> None:
    refuse = "{what: f uses $NAME, advice: call g}"
    ruled = rule("house.split($A, $NAME)", refuse=refuse, where="{NAME: {not: [1]}}")
    assert line in ported(tmp_path, KERNEL + line + "\n", ruled)


def test_of_two_rules_the_closer_one_wins_whatever_their_order(tmp_path: Path) -> None:
    rules = [
        rule("house.ops.$$$NAME", 1, replace="sister.ops.$$$NAME"),
        rule("house.ops.mma", 2, replace="sister.umma"),
    ]
    for i, order in enumerate((rules, rules[::-1])):
        (tmp_path / str(i)).mkdir()
        found = ported(tmp_path / str(i), KERNEL + "house.ops.mma(1)\nhouse.ops.fma(1)\n", *order)
        assert "sister.umma(1)\nsister.ops.fma(1)\n" in found


def test_two_rules_of_which_nothing_says_which_are_a_conflict(tmp_path: Path) -> None:
    rules = [rule("house.$NAME", 1, replace="sister.$NAME"), rule("house.$WHAT", 2, replace="other.$WHAT")]
    result = port(tmp_path, KERNEL + "house.mma(1)\n", *rules)
    assert [d.code for d in result.diagnostics] == [Code.RULE_CONFLICT]
    assert b"house.mma" in result.files[str(tmp_path / "kernel.py")]


def test_a_house_mark_makes_a_kernel(tmp_path: Path) -> None:
    source = KERNEL + "\n\n@house.kernel\ndef k():\n    warpgroup.fence()\n"
    (tmp_path / "kernel.py").write_text(source)
    assert b"porter_dsl.begin()" not in port_python(tmp_path / "kernel.py").files[str(tmp_path / "kernel.py")]
    found = ported(tmp_path, source, rule("house.kernel", **{"as": "{mark: {of: kernel}}"}).replace(
        'examples: [{before: "import house\\n", after: "import house\\n"}]',
        "examples: [{before: house.kernel, facts: [{mark: {of: kernel}}]}, {absent: house.host}]",
    ))  # fmt: skip
    assert "    porter_dsl.begin()\n    warpgroup.fence()\n    porter_dsl.end()\n" in found


BROKEN = {
    "two patterns with other captures": (rule("[house.f($A), house.g($B)]", replace="house.h($A)"), "does not capture"),
    "a name and a call": (rule("[house.f, house.g()]", replace="house.h"), "does not capture"),
    "a capture in front": (rule("$X.f($A)", replace="g($A)"), "does not begin with a name"),
    "no capture of that name": (rule("house.f($A)", replace="house.g($B)"), "names $B"),
    "a condition on nothing": (rule("house.f($A)", where="{B: int}", replace="house.g($A)"), "names $B"),
    "an expression": (rule("house.f + 1", replace="house.g"), "a name or a call of one"),
    "a bracket that nothing closes": (rule("house.f($A", replace="house.g($A)"), "cannot match"),
    "a list in front": (rule("house.f($$$A, $B)", replace="house.g($B)"), "stands behind"),
    "all of a package": (rule("house.$$$ANY", replace="sister.$$$ANY", **{"in": "string"}), "says nothing of names"),
    "a fact that is called": (rule("house.kernel()", **{"as": "{mark: {of: kernel}}"}), "is a name"),
    "no such fact": (rule("house.kernel", **{"as": "{mma: {}}"}), "no kind of fact of Python"),
    "no such word": (rule("house.kernel", **{"as": "{mark: {of: kernels}}"}), "is one of"),
    "a word that lacks": (rule("house.kernel", **{"as": "{mark: {}}"}), "needs `of`"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_one_message(tmp_path: Path, name: str) -> None:
    text, said = BROKEN[name]
    (tmp_path / "house.yaml").write_text(HEAD + text)
    with pytest.raises(PorterError) as caught:
        load_rules([str(tmp_path)])
    assert caught.value.diagnostic.code is Code.RULE_FILE
    assert said in caught.value.diagnostic.message
    assert caught.value.diagnostic.where is not None
    assert caught.value.diagnostic.where.line == 5


def test_every_name_of_hopper_is_one_of_rules() -> None:
    names = own_names()
    assert names.hopper_only("cutlass.cute.nvgpu.warpgroup.mma.Field.ACCUMULATE")
    assert not names.hopper_only("cutlass.cute.nvgpu.warpgroup2.fence")
    assert not names.hopper_only("cutlass.cute.nvgpu.warpgroup.mma.OperandSource")
    assert names.dialect.packages == {"cutlass"}
    assert names.dialect.through == {"_get_dsl"}


def test_the_map_has_a_name_of_a_house(tmp_path: Path) -> None:
    (tmp_path / "house.yaml").write_text(HEAD + rule("house.mma($A, $B)", replace="house.umma($A, $B)"))
    answer = look_up("house.mma", load_rules([str(tmp_path)]))
    assert [e.names for e in answer.entries] == [("house.mma",)]
