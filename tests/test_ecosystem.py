# SPDX-License-Identifier: Apache-2.0
"""The manifest of public sources, its page, and what counts as a compiled port."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from scripts_loaded import script

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def ecosystem() -> ModuleType:
    return script("scripts/ecosystem.py")


def test_the_manifest_names_each_file_once(ecosystem: ModuleType) -> None:
    entries = ecosystem.manifest()
    assert len({ecosystem.name_of(e) for e in entries}) == len(entries) >= 40
    assert len({e["repository"] for e in entries}) >= 8
    for entry in entries:
        assert re.fullmatch(r"[0-9a-f]{64}", entry["sha256"])
        assert re.fullmatch(r"[0-9a-f]{40}|v\d+(?:\.\w+)+", entry["commit"])


def test_the_page_is_made_from_the_results(ecosystem: ModuleType) -> None:
    results = json.loads(ecosystem.RESULTS.read_text("utf-8"))
    entries = ecosystem.manifest()
    assert ecosystem.PAGE.read_text("utf-8") == ecosystem.page(entries, results)
    assert set(results) <= {ecosystem.name_of(e) for e in entries}
    compiled = [r for r in results.values() if r["outcome"] == "compiled"]
    builders = {ecosystem.name_of(e) for e in entries if e["kind"] == "builder"}
    assert len(entries) - len(builders) >= 40
    cute = [results.get(ecosystem.name_of(e), ecosystem.NOT_RUN) for e in entries if e["kind"] == "CuTe"]
    assert len(cute) >= 40
    assert sum(r["outcome"] == "compiled" for r in cute) >= 30
    assert sum(map(ecosystem.is_verified, cute)) >= 12
    assert sum(results[name]["outcome"] == "compiled" for name in builders) >= 12
    assert len(compiled) - 12 >= 30
    assert sum(map(ecosystem.is_verified, results.values())) >= 12
    of_ptx = [r for r in compiled if "program" not in r]
    assert all(r["tcgen05.mma"] and not r["wgmma"] and not r["kernels of Hopper"] for r in of_ptx)
    assert all(r["verified"] == ecosystem.SAME for r in compiled if r not in of_ptx)


@pytest.mark.parametrize(
    ("ptx", "outcome"),
    [
        (".visible .entry k() { tcgen05.mma.cta_group::1.kind::f16 [a], b, c, d, p; }", "compiled"),
        (".visible .entry k() { ret; }", "ported"),
        (".visible .entry k() { tcgen05.mma.cta_group::1.kind::f16 [a]; wgmma.fence.sync.aligned; }", "ported"),
        (".entry k() { tcgen05.mma.x [a]; } .entry _ZN7cutlass26MainloopSm90TmaGmmaE() { trap; }", "ported"),
    ],
)
def test_what_counts_as_compiled(ecosystem: ModuleType, ptx: str, outcome: str) -> None:
    assert ecosystem.judged(ptx)["outcome"] == outcome


@pytest.mark.parametrize(
    ("status", "report", "said"),
    [
        (0, {"rows": [{"between": [{"ok": True}]}]}, "same bits"),
        (0, {"rows": [{"between": []}]}, "exit status 0"),
        (1, {"rows": [{"between": [{"ok": True}], "diagnostics": []}]}, "exit status 1"),
        (
            1,
            {"rows": [{"between": [{"ok": False}], "diagnostics": [{"severity": "error", "message": "2 differ"}]}]},
            "2 differ",
        ),
        (
            3,
            {"diagnostics": [{"severity": "error", "message": "/home/me/k.cu is refused\nat length"}]},
            "k.cu is refused",
        ),
        (137, None, "exit status 137"),
    ],
)
def test_what_counts_as_verified(ecosystem: ModuleType, status: int, report: object, said: str) -> None:
    assert ecosystem._verified(status, "" if report is None else json.dumps(report)) == said


@pytest.mark.parametrize(
    ("before", "said", "after"),
    [
        ("not run", "same bits", "compiled"),
        ("ported", "same bits", "compiled"),
        ("compiled", "same bits", "compiled"),
        ("not run", "2 differ", "not run"),
        ("ported", "exit status 3", "ported"),
        ("refused", "exit status 3", "refused"),
    ],
)
def test_a_program_that_ran_was_compiled(ecosystem: ModuleType, before: str, said: str, after: str) -> None:
    found = ecosystem.verified({"outcome": before}, said)
    assert (found["outcome"], found["verified"]) == (after, said)
    assert ("program" in found) == (before != after)


def test_a_program_is_not_all_of_a_file_that_does_not_compile(ecosystem: ModuleType) -> None:
    found = ecosystem.verified({"outcome": "ported", "compiler": "too much"}, "same bits")
    assert (found["outcome"], found["verified"], ecosystem.is_verified(found)) == ("ported", "same bits", False)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("a.cu(1): error: no such thing\na.cu(2): error: another\n", "no such thing"),
        ("Killed\n", "no message"),
        (
            'h(2): error: static assertion failed with "more columns"\n  instantiation of class "C<kNeeded, kThere> '
            '[with kNeeded=536, kThere=512]" at line 2\n',
            'static assertion failed with "more columns": 536, and there are 512',
        ),
    ],
)
def test_what_the_compiler_says(ecosystem: ModuleType, told: str, message: str) -> None:
    assert ecosystem.compiler_message(told) == message


def test_where_the_original_does_not_compile_the_page_says_so(ecosystem: ModuleType) -> None:
    outcome = {"outcome": "ported", "compiler": "no member", "original": "no function"}
    assert ecosystem._why(outcome) == "nvcc refuses the original, too: no function"


def test_another_version_of_a_file_is_not_run(ecosystem: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a+b").mkdir()
    source = tmp_path / "a+b" / "k.cu"
    entry = {"kind": "builder", "repository": "a/b", "path": "k.cu", "commit": "v1.0", "sha256": "0" * 64}
    assert ecosystem.run_one(entry, tmp_path, [], False)["outcome"] == "absent"
    source.write_text("using Arch = cutlass::arch::Sm90;\n")
    assert ecosystem.run_one(entry, tmp_path, [], False)["outcome"] == "another version"
    entry["sha256"] = hashlib.sha256(source.read_bytes()).hexdigest()
    found = ecosystem.run_one(entry, tmp_path, [], False)
    assert (found["outcome"], found["exit"]) == ("refused", 3)
    assert [cause.split(" ")[1] for cause in found["causes"]] == ["cutlass::arch::Sm90"]


def test_rows_of_comparisons_are_replaced_file_by_file(ecosystem: ModuleType) -> None:
    text = (ecosystem.RESULTS.parent / "equality-ecosystem.txt").read_text("utf-8")
    rows = ecosystem._kept_rows(text)
    assert ecosystem.equality_text(rows) == text
    (key, (line, *_)), *_ = rows.items()
    more = line.replace(" equal ", " differs ", 1)
    rows[key] = [line, more]
    assert ecosystem.equality_text(ecosystem._kept_rows(ecosystem.equality_text(rows))).count("\n" + more) == 1
    assert "1 differs" in ecosystem.equality_text(rows)
