# SPDX-License-Identifier: Apache-2.0
"""`porter check`: exit codes, text and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from porter.cli.main import main
from porter.report.json import schema

HOPPER = '__global__ void k() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }\n'
NARROW = (
    "__global__ void k(unsigned base, unsigned* out) { unsigned v;\n"
    '  asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(v) : "r"(base));\n'
    '  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");\n  out[0] = v; }\n'
)


def porter(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def document(result: Result) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(result.stdout)
    jsonschema.validate(read, schema("check"))
    assert read["exit_code"] == result.exit_code
    return read


def test_hopper_code_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(HOPPER)
    result = porter("check", tmp_path)
    assert result.exit_code == 1
    assert "PT7001" in result.output
    assert "1 file checked: 1 PT7001" in result.output
    (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
    assert porter("check", tmp_path / "k.cu").exit_code == 0


def test_json_has_place_reason_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(NARROW)
    assert porter("check", tmp_path).exit_code == 0
    read = document(porter("--format", "json", "check", "--sm100", tmp_path))
    (finding,) = read["findings"]
    assert finding["id"] == "PT7002"
    location = finding["location"]
    assert (location["path"], location["line"], location["column"]) == (str(tmp_path / "k.cu"), 2, 3)
    assert finding["next_step"]
    assert read["exit_code"] == 1


def test_rules_say_their_reason_with_the_finding(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("FLAGS = -arch=sm_100\n")
    read = document(porter("--format", "json", "check", "--sm100", tmp_path))
    (finding,) = read["findings"]
    assert finding["id"] == "PT7010"
    assert "PTR720" in finding["detail"]
    assert "sm_100a" in finding["message"]


def test_rules_of_ones_own_add_findings(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "schema: 2\nlibrary: house\nrules:\n"
        "  - id: HOUSE100\n    title: The house's narrow load\n    recognize: {regex: '\\bhouse_load1\\b'}\n"
        "    advise: {sign: load, given: {lanes: '32', bits: '32', count: '1'}}\n    safety: sketch\n"
        "    reason: It is x1.\n    examples:\n"
        '      - {before: "void f() { house_load1(); }\\n", diagnostics: [PT7002]}\n'
    )
    (tmp_path / "k.cu").write_text("__device__ void f() { house_load1(); }\n")
    assert porter("check", "--sm100", tmp_path / "k.cu").exit_code == 0
    result = porter("check", "--sm100", "--rules", rules, tmp_path / "k.cu")
    assert result.exit_code == 1
    assert "PT7002" in result.output
    assert porter("rules", "test", rules).exit_code == 0


@pytest.mark.parametrize("options", [(), ("--sm100",)])
def test_what_cannot_be_read(tmp_path: Path, options: tuple[str, ...]) -> None:
    assert porter("check", *options, tmp_path / "nowhere.cu").exit_code == 2
    (tmp_path / "broken.ptx").write_text(".version 9.0\n.target sm_100a\n.entry k( {")
    (tmp_path / "k.cu").write_text("__global__ void k() {}\n")
    result = porter("check", "--sm100", tmp_path)
    assert result.exit_code != 0
    assert porter("check", "--sm100", tmp_path / "broken.ptx").exit_code == result.exit_code


def test_a_header_is_checked_once(tmp_path: Path) -> None:
    (tmp_path / "load.cuh").write_text(NARROW)
    for name in ("a.cu", "b.cu"):
        (tmp_path / name).write_text('#include "load.cuh"\n')
    assert len(document(porter("--format", "json", "check", "--sm100", tmp_path))["findings"]) == 1


def test_checks_of_accesses_are_for_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(HOPPER)
    result = porter("verify", "--tmem-check", tmp_path / "k.cu")
    assert result.exit_code == 2
    assert "--tmem-check" in result.output


def test_a_hook_names_files_that_hold_nothing_for_porter(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text("print(1)\n")
    (tmp_path / "notes.txt").write_text("wgmma\n")
    (tmp_path / "k.cu").write_text(HOPPER)
    names = [tmp_path / n for n in ("tool.py", "notes.txt", "k.cu")]
    assert porter("check", *names).exit_code == 2
    result = porter("check", "--pass-over", *names)
    assert result.exit_code == 1
    assert "1 file checked: 1 PT7001" in result.output
    assert porter("check", "--pass-over", *names[:2]).exit_code == 0
    # what is not there is still said
    assert porter("check", "--pass-over", tmp_path / "no.cu").exit_code == 2
    assert porter("check", "--sm100", "--pass-over", *names[:2]).exit_code == 0
