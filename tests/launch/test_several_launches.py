# SPDX-License-Identifier: Apache-2.0
"""Launch files with several launches: memory carries over, and one may begin before the other has ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner, Result

from porter.cli.main import main
from porter.diagnostics import Code, PorterError
from porter.sim.check.rulings import Ruling
from porter.verify.launch_file import load_launch, load_launches
from porter.verify.launch_order import run_in_order
from porter.verify.settings import SimOptions

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
INDEX = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;"
REGISTERS = ".reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .pred %p1;"
MAKE = f"""
.visible .entry make(.param .u64 a, .param .u32 n) {{
{REGISTERS} {INDEX} ld.param.u64 %rd1, [a]; ld.param.u32 %r2, [n];
TRIGGER
add.u64 %rd1, %rd1, %rd2; add.u32 %r1, %r1, %r2; st.global.u32 [%rd1], %r1;
ret; }}"""
TAKE = f"""
.visible .entry take(.param .u64 a, .param .u64 b) {{
{REGISTERS} {INDEX} ld.param.u64 %rd1, [a]; ld.param.u64 %rd3, [b];
WAIT
add.u64 %rd1, %rd1, %rd2; ld.global.u32 %r2, [%rd1]; LATE
add.u64 %rd3, %rd3, %rd2; st.global.u32 [%rd3], %r2;
ret; }}"""
COUNT = """
.visible .global .align 4 .u32 turns = 5;
.visible .entry count(.param .u64 b) {
.reg .b32 %r<3>; .reg .b64 %rd<3>; .reg .pred %p1;
mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra END;
mov.u64 %rd1, turns; ld.global.u32 %r2, [%rd1]; add.u32 %r2, %r2, 1; st.global.u32 [%rd1], %r2;
ld.param.u64 %rd2, [b]; st.global.u32 [%rd2], %r2;
END: ret; }"""
AT = {"grid": [1], "block": [32]}
WORDS = {"dtype": "u32", "shape": [32], "init": 0}
GIVEN = {
    "make": {"entry": "make", "launch": AT, "params": ["A", 7]},
    "take": {"entry": "take", "launch": AT, "params": ["A", "B"]},
}
TRIGGERS = "griddepcontrol.launch_dependents;"
WAITS = "griddepcontrol.wait;"


def written(
    folder: Path, launches: list[dict[str, Any]], trigger: str = "", wait: str = "", late: str = "", **more: Any
) -> Path:
    text = HEAD + MAKE + TAKE + COUNT
    for word, value in (("TRIGGER", trigger), ("WAIT", wait), ("LATE", late)):
        text = text.replace(word, value)
    (folder / "kernels.ptx").write_text(text)
    path = folder / "launch.yaml"
    fields = {"version": 1, "ptx": "kernels.ptx", "launches": launches, "tensors": {"A": WORDS, "B": WORDS}, **more}
    path.write_text(yaml.safe_dump(fields, sort_keys=False))
    return path


def porter(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def found(path: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    done = porter("--format", "json", "hazards", "--launch", path, *words)
    (run,) = json.loads(done.stdout)["runs"]
    return done.exit_code, run["hazards"]


def test_a_launch_finds_what_the_ones_before_it_left(tmp_path: Path) -> None:
    path = written(tmp_path, [GIVEN["make"], GIVEN["take"]])
    results = run_in_order(load_launches(path), SimOptions())
    assert [r.status for r in results] == ["ok", "ok"]
    assert (results[-1].after["B"].elements() == np.arange(7, 39)).all()


def test_so_does_a_launch_of_the_same_kernel_and_what_it_keeps_in_a_variable(tmp_path: Path) -> None:
    count = {"entry": "count", "launch": AT, "params": ["B"]}
    (tmp_path / "b.bin").write_bytes(np.array([8] + [0] * 31, np.uint32).tobytes())
    path = written(tmp_path, [count, count, count], tensors={"B": {**WORDS, "expected": "b.bin"}})
    done = porter("--format", "json", "run", "--launch", path)
    assert done.exit_code == 0, done.output
    assert [row["kernel"] for row in json.loads(done.stdout)["launches"]] == ["count"] * 3


def test_what_the_last_one_leaves_is_compared(tmp_path: Path) -> None:
    (tmp_path / "b.bin").write_bytes(np.arange(7, 39, dtype=np.uint32).tobytes())
    tensors = {"A": WORDS, "B": {**WORDS, "expected": "b.bin"}}
    assert porter("run", "--launch", written(tmp_path, [GIVEN["make"], GIVEN["take"]], tensors=tensors)).exit_code == 0
    done = porter("run", "--launch", written(tmp_path, [GIVEN["take"], GIVEN["make"]], tensors=tensors))
    assert done.exit_code == 5
    assert Code.LAUNCH_DIFFERS.id in done.output


def test_one_that_begins_early_and_waits_is_clean(tmp_path: Path) -> None:
    path = written(tmp_path, [GIVEN["make"], {**GIVEN["take"], "pdl": True}], TRIGGERS, WAITS)
    assert found(path) == (0, [])


@pytest.mark.parametrize("late", ["", WAITS])
def test_one_that_reads_before_it_has_waited_is_found(tmp_path: Path, late: str) -> None:
    path = written(tmp_path, [GIVEN["make"], {**GIVEN["take"], "pdl": True}], TRIGGERS, late=late)
    code, hazards = found(path)
    assert code == 5
    assert [(h["hazard"], h["kernel"]) for h in hazards] == [("G9", "take")]


def test_without_a_trigger_a_ruling_lets_it_pass(tmp_path: Path) -> None:
    path = written(tmp_path, [GIVEN["make"], {**GIVEN["take"], "pdl": True}])
    code, hazards = found(path)
    assert (code, [h["ruling"] for h in hazards]) == (0, [Ruling.IMPLICIT_TRIGGER.value])
    assert found(path, "--level", "strict")[0] == 5


def test_one_that_does_not_begin_early_needs_no_wait(tmp_path: Path) -> None:
    assert found(written(tmp_path, [GIVEN["make"], GIVEN["take"]], TRIGGERS)) == (0, [])


def test_a_launch_between_hides_nothing(tmp_path: Path) -> None:
    count = {"entry": "count", "launch": AT, "params": ["C"], "pdl": True}
    launches = [GIVEN["make"], count, {**GIVEN["take"], "pdl": True}]
    path = written(tmp_path, launches, TRIGGERS, tensors={"A": WORDS, "B": WORDS, "C": WORDS})
    text = (tmp_path / "kernels.ptx").read_text()
    (tmp_path / "kernels.ptx").write_text(text.replace("mov.u64 %rd1, turns", f"{TRIGGERS} mov.u64 %rd1, turns"))
    assert {h["hazard"] for h in found(path)[1]} == {"G9"}


def test_what_goes_wrong_in_one_ends_all(tmp_path: Path) -> None:
    wrong = {"entry": "take", "launch": {"grid": [1], "block": [128]}, "params": ["A", "B"]}
    results = run_in_order(load_launches(written(tmp_path, [wrong, GIVEN["make"]])), SimOptions())
    assert [r.status for r in results] == ["error"]
    assert porter("run", "--launch", tmp_path / "launch.yaml").exit_code == 5


def test_one_of_them_is_named_where_one_is_meant(tmp_path: Path) -> None:
    path = written(tmp_path, [GIVEN["make"], GIVEN["take"]])
    assert load_launch(path, entry="take").kernel.entry == "take"
    assert porter("hazards", "--prove", "--launch", path, "--kernel", "make").exit_code == 0
    for words in (("mutate",), ("hazards", "--prove")):
        done = porter(*words, "--launch", path)
        assert done.exit_code == 2
        assert "2 launches" in done.output


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "launch beside them": ({"launch": AT}, "launch"),
    "params beside them": ({"params": ["A"]}, "params"),
    "entry beside them": ({"entry": "make"}, "entry"),
    "none": ({"launches": []}, "launches"),
    "no params": ({"launches": [{"entry": "make", "launch": AT}]}, "launches[0]"),
    "the first depends on one": ({"launches": [{**GIVEN["make"], "pdl": True}]}, "launches[0].pdl"),
    "an unknown field": ({"launches": [{**GIVEN["make"], "pld": True}]}, "launches[0].pld"),
    "a grid that is none": ({"launches": [{**GIVEN["make"], "launch": {"grid": ["K"], "block": [32]}}]}, "launch.grid"),
}


@pytest.mark.parametrize("how", BAD)
def test_bad_files_are_refused_with_the_field(tmp_path: Path, how: str) -> None:
    more, field = BAD[how]
    launches = more.get("launches", [GIVEN["make"]])
    path = written(tmp_path, launches, **{k: v for k, v in more.items() if k != "launches"})
    with pytest.raises(PorterError) as caught:
        load_launches(path)
    assert caught.value.diagnostic.code in (Code.CASE_FIELD, Code.CASE_EXPRESSION, Code.CASE_DOES_NOT_FIT)
    assert field in caught.value.diagnostic.message
    assert porter("run", "--launch", path).exit_code == 2


def test_a_fault_of_the_second_launch_is_told_at_its_line(tmp_path: Path) -> None:
    wrong = {**GIVEN["take"], "launch": {"grid": [1], "block": [4096]}}
    path = written(tmp_path, [GIVEN["make"], wrong])
    with pytest.raises(PorterError) as caught:
        load_launches(path)
    where = caught.value.diagnostic.where
    assert where is not None
    line = path.read_text().splitlines()[where.line - 1]
    assert where.line > path.read_text().splitlines().index("- entry: take")
    assert "block" in line or "launch" in line
