# SPDX-License-Identifier: Apache-2.0
"""`porter rules`: what there is, its examples, and new rules from calls."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from fakes_cli import porter, porter_json

from porter.rules.load import load_rules, read_rule_file

REPLACEMENT = """\
# Rules of the house.
schema: 2
library: house rules
rules:
  - id: ACME001
    title: Our trace macro
    recognize: {regex: 'TRACE_SM90\\b'}  # the old one
    replace: TRACE_SM100
    safety: safe
    reason: The macro has a sister for Blackwell.
    becomes: TRACE_SM100
    examples:
      - before: "void f() { TRACE_SM90(1); }\\n"   # in a function
        after: "void f() { TRACE_SM100(1); }\\n"   # the same
      - {before: "int TRACE_SM90;\\n", expect: [TRACE_SM100]}
"""
RECOGNIZER = """\
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
      - before: 'acme::wait<0>()'
        facts:
          - wait:  # as wgmma's
              pending: '0'
        # the next
      - {near: 'acme::wait()'}
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    folder = tmp_path / "house"
    folder.mkdir()
    (folder / "a.yaml").write_text(REPLACEMENT)
    (folder / "b.yaml").write_text(RECOGNIZER)
    return folder


# --- list


def test_list_has_every_rule(house: Path) -> None:
    listed = {r["id"]: r for r in porter_json("rules", "list", "--rules", house)["rules"]}
    assert set(listed) == {r.id for r in load_rules()} | {"ACME001", "ACME100"}
    assert listed["ACME100"]["kind"] == "recognizer"
    assert listed["ACME001"]["kind"] == "replacement"
    assert listed["ACME001"]["path"] == str(house / "a.yaml")
    assert {r["kind"] for r in listed.values()} >= {"recognizer", "replacement", "refusal"}
    text = porter("rules", "list", "--rules", house).stdout
    assert "ACME100" in text
    assert "\x1b" not in text
    assert porter("-q", "rules", "list").stdout == ""


# --- explain

RULES = """\
schema: 2
library: acme
rules:
  - {id: ACME100, title: Any sync, recognize: 'acme::sync($X)', as: {fence: {}}, safety: review, reason: So.,
     examples: [{before: 'acme::sync(x)', facts: [{fence: {}}]}, {near: 'acme::sync()'}]}
  - {id: ACME101, title: Sync of 1, recognize: 'acme::sync(1)', as: {commit: {}}, safety: review, reason: So.,
     examples: [{before: 'acme::sync(1)', facts: [{commit: {}}]}, {near: 'acme::sync()'}]}
  - {id: ACME102, title: Wait, recognize: 'acme::wait<$N>()', as: {wait: {pending: $N}}, where: {N: int},
     safety: review, reason: So.,
     examples: [{before: 'acme::wait<0>()', facts: [{wait: {pending: '0'}}]}, {near: 'acme::wait()'}]}
"""
EXPLAINED = """\
namespace own { __device__ void sync(int); }
template <int N> __global__ void k(int x) {
    acme::sync(x);
    acme::sync(1);
    acme::wait<N>(); acme::sync(2);
    own::sync(1);
    sync(1);
    acme::synk(1);
    int y = threadIdx.x;
}
"""


@pytest.fixture
def explained(tmp_path: Path, house: Path) -> Path:
    (house / "b.yaml").write_text(RULES)
    path = tmp_path / "explained.cu"
    path.write_text(EXPLAINED)
    return path


def explain(place: str, rules: Path) -> list[dict]:
    return porter_json("rules", "explain", place, "--rules", rules)["places"]


def outcomes(place: dict) -> dict[str, tuple[str, bool]]:
    return {r["rule"]: (r["outcome"], r["won"]) for r in place["rules"]}


def test_explain_the_rule_that_wins_and_those_that_lose(explained: Path, house: Path) -> None:
    (place,) = explain(f"{explained}:3", house)
    assert place["text"] == "acme::sync(x)"
    assert place["means"] == "fence"
    assert outcomes(place) == {"ACME100": ("recognized", True), "ACME101": ("near miss", False)}
    assert "other arguments" in next(r["why"] for r in place["rules"] if r["rule"] == "ACME101")
    (place,) = explain(f"{explained}:4", house)
    assert place["means"] == "commit"
    assert outcomes(place) == {"ACME101": ("recognized", True), "ACME100": ("shadowed by another rule", False)}
    assert next(r["by"] for r in place["rules"] if not r["won"]) == "ACME101"


def test_explain_a_near_miss_names_its_condition(explained: Path, house: Path) -> None:
    near, other = explain(f"{explained}:5", house)
    # the library's own wait is called by another name
    assert outcomes(near) == {"ACME102": ("near miss", False), "PTR801": ("another name", False)}
    assert "$N of ACME102 is `N`, and has to be" in near["rules"][0]["why"]
    assert near["means"].startswith("may be a wait")
    assert other["text"] == "acme::sync(2)"
    assert explain(f"{explained}:5:22", house) == [other]


def test_explain_names_that_are_others_or_not_known(explained: Path, house: Path) -> None:
    (own,) = explain(f"{explained}:6", house)
    assert own["means"] == ""
    assert set(outcomes(own).values()) == {("another name", False)}
    (bare,) = explain(f"{explained}:7", house)
    assert set(outcomes(bare).values()) == {("not sure", False)}
    assert "declared nowhere" in bare["means"]
    (unknown,) = explain(f"{explained}:8", house)
    assert unknown["rules"] == []
    assert unknown["note"] == "no rule is for this name one is for `sync`"
    (name,) = explain(f"{explained}:9", house)
    assert (name["text"], name["means"]) == ("threadIdx.x", "index")


def test_explain_texts(tmp_path: Path, house: Path) -> None:
    path = tmp_path / "x.cu"
    atom = "SM90_64x8x16_F16F16F16_SS"
    path.write_text(f"void f() {{ TRACE_SM90(1); }}\n#if __CUDA_ARCH__ == 900\n#endif\nauto m = {atom}{{}};\n")
    (place,) = explain(f"{path}:4", house)
    assert outcomes(place) == {"PTR300": ("refused", False)}
    guard = explain(f"{path}:2", house)
    assert {o for p in guard for o, _ in outcomes(p).values()} == {"not applied"}
    assert "a kernel that is ported" in guard[0]["rules"][0]["why"]
    document = porter_json("rules", "explain", f"{path}:4", "--rules", house)
    assert [d["id"] for d in document["diagnostics"]] == ["PT2003"]
    path.write_text("void f() { TRACE_SM90(1); }\n")
    (place,) = explain(f"{path}:1", house)
    assert outcomes(place) == {"ACME001": ("applied", True)}


def test_explain_what_passes_do() -> None:
    path = Path(__file__).resolve().parents[2] / "corpus" / "gemm_tma" / "gemm_tma.cu"
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "hopper::wgmma_commit()" in text)
    document = porter_json("rules", "explain", f"{path}:{line}")
    assert {"PTR121", "PTR150"} <= {r["rule"] for p in document["places"] for r in p["rules"] if r["won"]}
    text = porter("rules", "explain", f"{path}:{line}").stdout
    assert "PTR121" in text
    assert "\x1b" not in text


def test_explain_python() -> None:
    path = Path(__file__).resolve().parents[2] / "corpus" / "dsl_gemm" / "dsl_gemm.py"
    lines = path.read_text().splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "warpgroup.fence()" in text)
    (place,) = porter_json("rules", "explain", f"{path}:{line}")["places"]
    assert place["text"] == "cutlass.cute.nvgpu.warpgroup.fence"
    assert outcomes(place) == {"PTR510": ("not applied", False), "PTR541": ("recognized", True)}
    line = next(n for n, text in enumerate(lines, 1) if "import cpasync, warpgroup" in text)
    document = porter_json("rules", "explain", f"{path}:{line}")
    assert "PTR501" in {r["rule"] for p in document["places"] for r in p["rules"] if r["won"]}


def test_explain_a_line_that_is_not_there(explained: Path) -> None:
    assert "PT6053" in porter("rules", "explain", f"{explained}:99", code=2).stderr
    assert "no rule is tried" in porter("rules", "explain", f"{explained}:10").stdout
    porter("rules", "explain", str(explained), code=2)


# --- test


def test_examples_that_hold(house: Path) -> None:
    assert "4 examples of 2 rules: all hold" in porter("rules", "test", house).stdout
    assert "2 examples of 1 rules" in porter("rules", "test", house / "b.yaml").stdout
    assert "4 examples of 2 rules" in porter("rules", "test", "--rules", house).stdout
    # a directory that the project's configuration names as well is read once
    assert "4 examples of 2 rules" in porter("rules", "test", house, "--rules", house / "a.yaml").stdout


@pytest.mark.slow
def test_porters_own_hold() -> None:
    """Each by itself is one of tests/rules/test_rule_examples.py."""
    assert ": all hold" in porter("rules", "test").stdout


def test_an_example_that_does_not_hold_is_named_with_its_line(house: Path) -> None:
    (house / "a.yaml").write_text(REPLACEMENT.replace("replace: TRACE_SM100", "replace: TRACE_SM101"))
    document = porter_json("rules", "test", house, code=1)
    assert [(e["rule"], e["example"], e["holds"]) for e in document["examples"]] == [
        ("ACME001", 1, False), ("ACME001", 2, False), ("ACME100", 1, True), ("ACME100", 2, True),
    ]  # fmt: skip
    first, second = document["diagnostics"]
    assert first["id"] == second["id"] == "PT6051"
    assert first["location"]["line"] == 13
    assert "+void f() { TRACE_SM101(1); }" in first["detail"]
    assert second["location"]["line"] == 15
    assert "the result has no `TRACE_SM100`" in second["message"]


def test_accept_writes_what_was_found_and_nothing_else(house: Path) -> None:
    (house / "a.yaml").write_text(REPLACEMENT.replace("TRACE_SM100(1); }", "WRONG(1); }"))
    (house / "b.yaml").write_text(RECOGNIZER.replace("pending: '0'", "pending: '7'"))
    porter("rules", "test", house, code=1)
    result = porter("rules", "test", house, "--accept")
    assert "2 written: all hold" in result.stdout
    assert (house / "a.yaml").read_text() == REPLACEMENT
    written = (house / "b.yaml").read_text()
    assert written == RECOGNIZER.replace("\n          - wait:  # as wgmma's\n              pending: '0'",
                                         " [{wait: {pending: '0'}}]")  # fmt: skip
    porter("rules", "test", house)


def test_accept_adds_a_result_where_there_is_none(house: Path) -> None:
    text = REPLACEMENT.replace('        after: "void f() { TRACE_SM100(1); }\\n"   # the same\n', "")
    long = text.replace(
        '"void f() { TRACE_SM90(1); }\\n"   # in a function', "|\n          // here\n\n          TRACE_SM90;"
    )
    long = long.replace("replace: TRACE_SM100", "replace: TRACE_SM101")
    long = long.replace("expect: [TRACE_SM100]", 'after: ""')
    (house / "a.yaml").write_text(long)
    porter("rules", "test", house / "a.yaml", "--accept")
    rule = read_rule_file(house / "a.yaml")[0]
    assert [e.after for e in rule.examples] == ["// here\n\nTRACE_SM101;\n", "int TRACE_SM101;\n"]
    assert "        after: |\n          // here\n\n          TRACE_SM101;\n" in (house / "a.yaml").read_text()
    assert "# Rules of the house." in (house / "a.yaml").read_text()


def test_accept_of_what_a_port_makes_of_a_fact(house: Path) -> None:
    text = RECOGNIZER.replace("        # the next\n", "      - {before: 'acme::wait<0>()', after: 'x'}\n")
    (house / "b.yaml").write_text(text)
    porter("rules", "test", house / "b.yaml", code=1)
    porter("rules", "test", house / "b.yaml", "--accept")
    (rule,) = read_rule_file(house / "b.yaml")
    assert "acme::wait<0>();" in str(rule.examples[1].after)
    porter("rules", "test", house / "b.yaml")


def test_what_accept_cannot_write_is_left_to_the_author(house: Path) -> None:
    (house / "a.yaml").write_text(REPLACEMENT.replace("expect: [TRACE_SM100]", "expect: [TRACE_SM200]"))
    before = (house / "a.yaml").read_text()
    assert "PT6052" in porter("rules", "test", house, "--accept", code=3).stderr
    assert (house / "a.yaml").read_text() == before
    (house / "a.yaml").write_text(REPLACEMENT)
    (house / "b.yaml").write_text(RECOGNIZER.replace("{near: 'acme::wait()'}", "{near: 'acme::wait<1>()'}"))
    assert "it is no near miss" in porter("rules", "test", house, "--accept", code=3).stderr


def test_a_directory_without_rules(tmp_path: Path) -> None:
    porter("rules", "test", tmp_path, code=2)
    porter("rules", "test", tmp_path / "none", code=2)


# --- new

KERNEL = """\
#include <cstdint>
namespace acme {
template <int Depth> __device__ void wait(float* d);
template <int Depth> __device__ void wait(float* d, int group);
__device__ void sync();
}
using namespace acme;
struct Ring { __device__ void turn(); };
__global__ void k(float* out, Ring ring) {
    wait<2>(out + 1);
    sync(); acme::wait<3>(out, 7);
    ring.turn();
    int x = 1;
}
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.cu"
    path.write_text(KERNEL)
    return path


def test_new_rule_from_a_call(tmp_path: Path, kernel: Path) -> None:
    out = tmp_path / "rules"
    document = porter_json("rules", "new", "acme", "--from", f"{kernel}:10", "-o", out)
    assert document["pattern"] == "acme::wait<$DEPTH>($D)"
    assert document["fact"] == "wait"
    assert document["guessed"]
    assert document["recognized"]
    text = (out / "acme.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=porter-rules.schema.json\n")
    assert 'as: {wait: {pending: "$DEPTH"}}  # guess' in text
    (rule,) = read_rule_file(out / "acme.yaml")
    assert rule.id == "ACME100"
    assert rule.examples[0].before.count("acme::wait<2>(out + 1)") == 1
    assert rule.examples[0].facts == (("wait", (("pending", "2"),)),)
    near = [e for e in rule.examples if e.is_near]
    assert ["acme::wait<2>(d, group)" in e.before for e in near] == [True]
    porter("rules", "test", out)
    jsonschema.validate(yaml.safe_load(text), json.loads((out / "porter-rules.schema.json").read_text()))
    # the rule is what makes the call known
    kinds = {r["id"] for r in porter_json("rules", "list", "--rules", out)["rules"]}
    assert "ACME100" in kinds


def test_new_rule_whose_name_says_nothing(tmp_path: Path, kernel: Path) -> None:
    document = porter_json("rules", "new", "acme", "--from", f"{kernel}:11:5", "-o", tmp_path)
    assert document["pattern"] == "acme::sync()"
    assert not document["guessed"]
    assert "# guess, from nothing" in (tmp_path / "acme.yaml").read_text()
    porter("rules", "test", tmp_path / "acme.yaml")


@pytest.mark.parametrize(
    ("declared", "call", "pattern", "fact"),
    [
        (
            "template <int N> __device__ void mma(float (&d)[N / 2], uint64_t a, uint64_t b);",
            "acme::mma<64>(acc, a, b)",
            "acme::mma<$N>($D, $A, $B)",
            {"shape": "m64n64k16", "types": "f32.f16.f16", "d": "acc", "a": "a", "b": "b"},
        ),
        (
            "__device__ void wgmma_m64n32k16(float (&d)[16], uint64_t, uint64_t);",
            "acme::wgmma_m64n32k16(acc, a, b)",
            "acme::wgmma_m64n32k16($D, $ARG2, $ARG3)",
            {"shape": "m64n32k16", "types": "f32.f16.f16", "d": "acc", "a": "a", "b": "b"},
        ),
    ],
)
def test_new_rule_for_a_multiply(tmp_path: Path, declared: str, call: str, pattern: str, fact: dict[str, str]) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text(
        f"#include <cstdint>\nnamespace acme {{ {declared} }}\n"
        f"__global__ void k(uint64_t a, uint64_t b) {{ float acc[32] = {{}}; {call}; }}\n"
    )
    document = porter_json("rules", "new", "acme", "--from", f"{path}:3", "-o", tmp_path)
    assert (document["pattern"], document["fact"]) == (pattern, "mma")
    assert document["recognized"]
    (rule,) = read_rule_file(tmp_path / "acme.yaml")
    assert rule.examples[0].facts == (("mma", tuple(fact.items())),)
    porter("rules", "test", tmp_path / "acme.yaml")


def test_a_column_tells_calls_of_one_line_apart(tmp_path: Path, kernel: Path) -> None:
    document = porter_json("rules", "new", "acme", "--from", f"{kernel}:11:20", "-o", tmp_path)
    assert document["pattern"] == "acme::wait<$DEPTH>($D, $GROUP)"


@pytest.mark.parametrize(
    ("place", "said"),
    [("12", "PT6053"), ("13", "PT6053"), ("99", "PT6053"), ("0", "is not FILE:LINE"), ("x", "is not FILE:LINE")],
)
def test_nothing_to_make_a_rule_of(tmp_path: Path, kernel: Path, place: str, said: str) -> None:
    assert said in porter("rules", "new", "acme", "--from", f"{kernel}:{place}", "-o", tmp_path, code=2).stderr
    assert not (tmp_path / "acme.yaml").exists()


def test_new_never_writes_over_a_file(tmp_path: Path, kernel: Path) -> None:
    (tmp_path / "acme.yaml").write_text("mine")
    assert "PT0004" in porter("rules", "new", "acme", "--from", f"{kernel}:10", "-o", tmp_path, code=2).stderr
    assert (tmp_path / "acme.yaml").read_text() == "mine"
    porter("rules", "new", "../acme", "--from", f"{kernel}:10", "-o", tmp_path, code=2)
    porter("rules", "new", "other", "--from", f"{tmp_path}/none.cu:10", "-o", tmp_path, code=2)


# --- schema


def test_schema_is_what_files_are_held_to(house: Path) -> None:
    schema = json.loads(porter("rules", "schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(RECOGNIZER), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(RECOGNIZER.replace("recognize:", "recognise:")), schema)


def test_explain_an_instruction(tmp_path: Path, house: Path) -> None:
    (house / "b.yaml").write_text("""\
schema: 2
library: acme
language: ptx
rules:
  - {id: ACME200, title: Barrier, recognize: 'bar.sync $B, $N', replace: 'barrier.sync $B, $N', safety: review,
     reason: So., examples: [{before: "void f() {}\\n", after: "void f() {}\\n"}]}
""")
    path = tmp_path / "barrier.cu"
    path.write_text('__global__ void k() {\n    asm volatile("bar.sync 1, 128;");\n}\n')
    places = [p for p in explain(f"{path}:2", house) if p["rules"]]
    assert [(p["text"], outcomes(p)) for p in places] == [("bar.sync 1, 128", {"ACME200": ("applied", True)})]
