# SPDX-License-Identifier: Apache-2.0
"""Rules on the PTX of asm statements: instructions that become others, and those that stop a port."""

from __future__ import annotations

from pathlib import Path

import pytest

from porter.diagnostics import Code, PorterError
from porter.lang.sources import load_sources
from porter.passes.port import PortOptions, PortResult, port_sources
from porter.rules.load import load_rules

HEAD = "schema: 2\nlibrary: house\nlanguage: ptx\nrules:\n"
RULE = """\
  - id: HOUSE{n}
    title: An instruction
    recognize: '{recognize}'
{more}    safety: review
    reason: The house says so.
    examples: [{{before: "void f() {{}}\\n", after: "void f() {{}}\\n"}}]
"""


def rule(recognize: str, n: int = 1, **keys: str) -> str:
    return RULE.format(n=100 + n, recognize=recognize, more="".join(f"    {k}: {v}\n" for k, v in keys.items()))


def port(tmp_path: Path, asm: str, *rules: str, before: str = "") -> PortResult:
    directory = tmp_path / "rules"
    directory.mkdir()
    (directory / "house.yaml").write_text(HEAD + "".join(rules))
    (tmp_path / "kernel.cu").write_text(before + f"__global__ void k(int x, unsigned y) {{\n  {asm}\n}}\n")
    return port_sources(load_sources(tmp_path / "kernel.cu"), PortOptions(rule_directories=(str(directory),)))


def asm_of(tmp_path: Path, result: PortResult) -> str:
    assert not [d for d in result.diagnostics if d.severity.value == "error"], [d.message for d in result.diagnostics]
    return result.files[str(tmp_path / "kernel.cu")].decode().splitlines()[-2].strip()


WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'
BAR = 'asm volatile("bar.sync %0, 128;" :: "r"(x));'
PREFETCH = 'asm volatile("prefetch.global.L2::evict_last [%0];" :: "l"(p));'
REPLACED = {
    # pattern, text, asm, what becomes of it
    "as it stands": ("griddepcontrol.wait", "membar.gl", WAIT, WAIT.replace("griddepcontrol.wait", "membar.gl")),
    "gone": ("griddepcontrol.wait", "", WAIT, 'asm volatile(";" ::: "memory");'),
    "an operand": (
        "bar.sync $B, 128",
        "barrier.sync $B, 128",
        BAR,
        'asm volatile("barrier.sync %0, 128;" :: "r"(x));',
    ),
    "by number": ("bar.sync", "barrier.sync $op0, $op1", BAR, BAR.replace("bar.sync", "barrier.sync")),
    "operands by their names": (
        "st.shared.u32",
        "st.volatile.shared.u32 $a, $b",
        'asm("st.shared.u32 [%0], %1;" :: "r"(x), "r"(y));',
        'asm("st.volatile.shared.u32 [%0], %1;" :: "r"(x), "r"(y));',
    ),
    "without a list": (
        "prefetch.global.$$$L",
        "prefetch.global.L2 [%0]",
        PREFETCH,
        PREFETCH.replace("::evict_last", ""),
    ),
    "modifiers that stay": (
        "ld.global.$$$MORE $D, $A",
        "ld.volatile.global.u32 $D, $A",
        'asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(y) : "l"(p));',
        'asm("ld.volatile.global.u32 %0, [%1];" : "=r"(y) : "l"(p));',
    ),
    "a part of a modifier": (
        "cp.async.bulk.commit_${WHAT}",
        "cp.async.commit_${WHAT}",
        'asm volatile("cp.async.bulk.commit_group;");',
        'asm volatile("cp.async.commit_group;");',
    ),
    "a modifier": (
        "st.$SPACE.u32 $A, $V",
        "st.volatile.$SPACE.u32 $A, $V",
        'asm("st.shared.u32 [%0], %1;" :: "r"(x), "r"(y));',
        'asm("st.volatile.shared.u32 [%0], %1;" :: "r"(x), "r"(y));',
    ),
    "with a guard": (
        "bar.arrive $$$ALL",
        "barrier.arrive $$$ALL",
        'asm volatile("{.reg .pred p; setp.ne.b32 p, %0, 0; @p bar.arrive 1, 128;}" :: "r"(x));',
        'asm volatile("{.reg .pred p; setp.ne.b32 p, %0, 0; @p barrier.arrive 1, 128;}" :: "r"(x));',
    ),
    "the second of two": (
        "bar.sync 2, 128",
        "barrier.sync 2, 128",
        'asm volatile("bar.sync 1, 128; bar.sync 2, 128;");',
        'asm volatile("bar.sync 1, 128; barrier.sync 2, 128;");',
    ),
    "two alike": (
        "bar.sync 1, 128",
        "barrier.sync 1, 128",
        'asm volatile("bar.sync 1, 128; bar.sync 1, 128;");',
        'asm volatile("barrier.sync 1, 128; barrier.sync 1, 128;");',
    ),
    "in one of several literals": (
        "bar.sync $$$ALL",
        "barrier.sync $$$ALL",
        'asm volatile("{\\n\\t" "bar.sync %0, 128;" "}" :: "r"(x));',
        'asm volatile("{\\n\\t" "barrier.sync %0, 128;" "}" :: "r"(x));',
    ),
    "in a raw string": (
        "griddepcontrol.wait",
        "membar.gl",
        'asm volatile(R"(griddepcontrol.wait;)");',
        'asm volatile(R"(membar.gl;)");',
    ),
}


@pytest.mark.parametrize("name", REPLACED)
def test_an_instruction_becomes_another(tmp_path: Path, name: str) -> None:
    recognize, text, before, after = REPLACED[name]
    result = port(tmp_path, before, rule(recognize, replace=repr(text)))
    assert asm_of(tmp_path, result) == after


OTHERS = {
    "other modifiers": ("bar.sync $A, $B", 'asm volatile("barrier.sync 1, 128;");'),
    "more operands": ("bar.sync $A", BAR),
    "another operand": ("bar.sync $B, 64", BAR),
    "the beginning of a mnemonic": ("bar.sync.aligned $B, 128", BAR),
    "in a comment": ("bar.sync $B, 128", '// asm volatile("bar.sync 1, 128;");'),
    "in another string": ("bar.sync $B, 128", 'const char* s = "bar.sync 1, 128;";'),
    "twice the same": ("bar.sync $B, $B", BAR),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_instruction_stays(tmp_path: Path, name: str) -> None:
    recognize, asm = OTHERS[name]
    result = port(tmp_path, asm, rule(recognize, replace="membar.gl"))
    assert result.files[str(tmp_path / "kernel.cu")].decode().splitlines()[-2].strip() == asm


@pytest.mark.parametrize(
    ("asm", "before"),
    [
        ('asm volatile("bar." "sync 1, 128;");', ""),
        ('asm volatile(SYNC ::: "memory");', '#define SYNC "bar.sync 1, 128;"\n'),
        ('asm volatile("bar.sync 1,\\t128;");', ""),
    ],
)
def test_one_in_several_pieces_stays_and_is_said(tmp_path: Path, asm: str, before: str) -> None:
    result = port(tmp_path, asm, rule("bar.sync $A, $B", replace="barrier.sync $A, $B"), before=before)
    assert Code.RULE_NOT_APPLIED in [d.code for d in result.diagnostics]
    assert asm in result.files[str(tmp_path / "kernel.cu")].decode()


@pytest.mark.parametrize(
    ("where", "asm", "is_one"),
    [
        ("{N: {in: [64, 128]}}", BAR, True),
        ("{N: {in: [64]}}", BAR, False),
        ("{N: int}", BAR, True),
        ("{N: int}", BAR.replace("128", "%1").replace('"r"(x)', '"r"(x), "n"(64 * 2)'), True),
        ("{N: {equals: 128}}", BAR.replace("128", "%1").replace('"r"(x)', '"r"(x), "n"(64 * 2)'), True),
        ("{N: int}", BAR.replace("128", "%1").replace('"r"(x)', '"r"(x), "r"(y)'), False),
        ("{N: {multiple_of: 48}}", BAR, False),
    ],
)
def test_what_an_operand_has_to_be(tmp_path: Path, where: str, asm: str, is_one: bool) -> None:
    result = port(tmp_path, asm, rule("bar.sync $B, $N", replace="barrier.sync $B, $N", where=where))
    assert ("barrier" in asm_of(tmp_path, result)) == is_one


@pytest.mark.parametrize(
    ("recognize", "refuse", "asm", "said"),
    [
        (
            "griddepcontrol.$WHAT",
            "{what: a grid that $WHAT, advice: launch it alone}",
            WAIT,
            "a grid that wait: launch",
        ),
        ("bar.sync $B, $N", "{what: barrier $B of $N, advice: use 0}", BAR, "barrier %0 of 128: use 0"),
        ("bar.sync", "{what: barrier $op0, advice: use 0}", BAR, "barrier %0"),
    ],
)
def test_an_instruction_stops_the_port(tmp_path: Path, recognize: str, refuse: str, asm: str, said: str) -> None:
    fence = 'asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); ' + asm
    result = port(tmp_path, fence, rule(recognize, refuse=refuse))
    assert [d.code for d in result.diagnostics if d.severity.value == "error"] == [Code.RULE_REFUSED]
    assert said in result.diagnostics[-1].message or any(said in d.message for d in result.diagnostics)
    assert not result.groups


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wgmma.fence.sync.aligned", "sm_90a"),
        ("bar.sinc $op0, $op1", "no instruction"),
        ("bar.sync $op7", "no such operand"),
        ("bar.sync $where", "no such operand"),
    ],
)
def test_a_text_that_is_none_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    result = port(tmp_path, BAR, rule("bar.sync", replace=text))
    assert [d.code for d in result.diagnostics] == [Code.RULE_BINDING]
    assert not result.groups


def test_the_closest_rule_wins_whatever_the_order(tmp_path: Path) -> None:
    rules = [rule("bar.sync", 1, replace="membar.gl"), rule("bar.sync $B, 128", 2, replace="membar.cta")]
    for i, order in enumerate((rules, rules[::-1])):
        (tmp_path / str(i)).mkdir()
        assert "membar.cta" in asm_of(tmp_path / str(i), port(tmp_path / str(i), BAR, *order))


BROKEN = {
    "no mnemonic": (rule("$X", replace="membar.gl"), "does not begin with a mnemonic"),
    "no such instruction": (rule("barr.sync", replace="membar.gl"), "no instruction `barr`"),
    "no such capture": (rule("bar.sync $A", replace="bar.sync $B"), "names $B"),
    "a condition on nothing": (rule("bar.sync $A", replace="bar.sync 1", where="{B: int}"), "names $B"),
    "an operand around a capture": (rule("ld.global.u32 $D, [$A]", replace="membar.gl"), "an operand is a capture"),
    "no PTX": (rule("bar.sync $A", replace="membar.all"), "is no PTX"),
    "a fact": (rule("wgmma.fence.sync.aligned", **{"as": "{fence: {}}"}), "needs no `as`"),
    "operands that the text has not": (
        rule("bar.sync 1, $A").replace(
            "'bar.sync 1, $A'", "['bar.sync 1, $A', 'bar.sync 2, $A']\n    replace: membar.gl"
        ),
        "capture the difference",
    ),
    "a region": (rule("bar.sync", replace="membar.gl", **{"in": "string"}), "says nothing of an instruction"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_one_message(tmp_path: Path, name: str) -> None:
    text, said = BROKEN[name]
    text = (
        text.replace('after: "void f() {}\\n"}]', 'after: "void f() {}\\n"}, {absent: "x"}]')
        if name == "a fact"
        else text
    )
    (tmp_path / "house.yaml").write_text(HEAD + text)
    with pytest.raises(PorterError) as caught:
        load_rules([str(tmp_path)])
    assert caught.value.diagnostic.code is Code.RULE_FILE
    assert said in caught.value.diagnostic.message
