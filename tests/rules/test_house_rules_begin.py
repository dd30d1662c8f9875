# SPDX-License-Identifier: Apache-2.0
"""Rules of a house: what a key is mistaken for, IDs that are free, facts by what a call is, refusals in the table."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from porter.cli.main import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
REFUSED = """schema: 2
library: acme
scope: [acme]
rules:
  - id: ACME900
    title: Split accumulators
    recognize: 'acme::mma_split<$N, $P>($$$ARGS)'
    refuse:
      what: a multiply that spreads one accumulator over several warpgroups
      advice: Call acme::mma once a warpgroup.
    safety: sketch
    reason: Tiles of Tensor Memory belong to one warpgroup.
    examples:
      - before: 'acme::mma_split<64, 2>(a, b, c)'
        diagnostics: [PT6008]
  - id: ACME901
    title: A rename
    recognize: 'acme::old($X)'
    replace: 'acme::new_one($X)'
    safety: review
    reason: It was renamed.
    examples:
      - before: 'acme::old(3)'
        expect: ['acme::new_one(3)']
"""
SOURCE = """#include <cstdint>
namespace acme {
__device__ void issue(float (&d)[32], uint64_t a, uint64_t b);
__device__ void drain(int n);
__device__ void ready();
__device__ void finish() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
template <int N> __device__ void leave() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N)); }
}
__global__ void k(float* o, uint64_t a, uint64_t b) {
    float d[32] = {};
    acme::begin();
    acme::issue(d, a, b);
    acme::finish();
    acme::drain(0);
    acme::leave<1>();
    acme::ready();
    o[0] = d[0];
}
"""
LINES = {name: n for n, line in enumerate(SOURCE.splitlines(), 1) for name in
         ("begin", "issue", "finish", "drain", "leave", "ready") if f"    acme::{name}" in line}  # fmt: skip


def porter(*words: object, code: int | None = 0) -> Result:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert code is None or done.exit_code == code, done.output
    return done


def house(folder: Path, text: str = REFUSED) -> Path:
    (folder / "rules").mkdir(exist_ok=True)
    (folder / "rules" / "acme.yaml").write_text(text)
    return folder / "rules"


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ("    safety: sketch", "    saftey: sketch", 11),
        ("    refuse:", "    refuze:", 8),
        ("      advice:", "      advise:", 10),
        ("    examples:\n      - before: 'acme::old", "    exampels:\n      - before: 'acme::old", 22),
        ("        expect:", "        expct:", 24),
        ("library:", "libary:", 2),
    ],
)
def test_a_key_that_is_not_known_is_shown_on_its_line(right: str, wrong: str, line: int, tmp_path: Path) -> None:
    folder = house(tmp_path, REFUSED.replace(right, wrong, 1))
    said = porter("rules", "list", "--rules", folder, code=2).output
    key = right.split(":")[0].strip()
    assert f"unknown key `{wrong.split(':')[0].strip()}`; did you mean `{key}`?" in said
    assert f"acme.yaml:{line}:" in said


def test_the_table_tells_a_refusal_from_a_replacement(tmp_path: Path) -> None:
    folder = house(tmp_path)
    refused = porter("map", "acme::mma_split", "--rules", folder).output
    assert "acme: not ported" in refused
    assert "spreads one accumulator" in refused
    assert "Call acme::mma once a warpgroup." in refused
    assert "porter port" not in refused
    replaced = porter("map", "acme::old", "--rules", folder).output
    assert "`porter port` does it" in replaced
    assert "acme::new_one($X)" in replaced


@pytest.mark.parametrize(
    ("name", "fact"),
    [("issue", "{mma:"), ("finish", "{commit:"), ("begin", "{fence:"), ("leave", "{wait:"), ("drain", "{wait:")],
)
def test_the_fact_is_guessed_from_what_the_call_is(name: str, fact: str, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    porter("rules", "new", "acme", "--from", f"{tmp_path / 'k.cu'}:{LINES[name]}", "-o", tmp_path)
    text = (tmp_path / "acme.yaml").read_text()
    assert f"as: {fact}" in text
    assert "from nothing" not in text


def test_a_call_that_says_nothing_is_a_guess_from_nothing(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    porter("rules", "new", "acme", "--from", f"{tmp_path / 'k.cu'}:{LINES['ready']}", "-o", tmp_path)
    assert "from nothing" in (tmp_path / "acme.yaml").read_text()


def test_rules_are_appended_with_ids_that_are_free(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    folder = house(tmp_path, REFUSED.replace("ACME901", "ACME100"))
    for name in ("begin", "finish"):
        porter("rules", "new", "acme", "--from", f"{tmp_path / 'k.cu'}:{LINES[name]}", "-o", folder)
    porter("rules", "new", "acme-two", "--from", f"{tmp_path / 'k.cu'}:{LINES['leave']}", "-o", folder)
    text = (folder / "acme.yaml").read_text()
    assert text.startswith(REFUSED.replace("ACME901", "ACME100").rstrip())
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("  - id:")] == [
        "ACME900", "ACME100", "ACME101", "ACME102"
    ]  # fmt: skip
    listed = porter("rules", "list", "--rules", folder).output
    assert all(id in listed for id in ("ACME101", "ACME102", "ACMETWO100"))


def test_the_rule_of_the_page_is_one(tmp_path: Path) -> None:
    """docs/own_rules.md: what is said of refusals holds."""
    page = (DOCS / "own_rules.md").read_text("utf-8")
    section = page[page.index("## What is refused") : page.index("## Another text for a call")]
    rule = section.split("```yaml\n")[1].split("```")[0]
    folder = house(tmp_path, f"schema: 2\nlibrary: house\nscope: [house]\nrules:\n{rule}")
    porter("rules", "test", folder)
    shutil.rmtree(folder)
