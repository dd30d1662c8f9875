# SPDX-License-Identifier: Apache-2.0
"""The kept counts of machine instructions say what the pages about them say, and the script reads nvdisasm's text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scripts_loaded import script as loaded

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return loaded("scripts/sass_t2r.py")


SASS = """
	.section	.text.t2r_x1,"ax",@progbits
.text.t2r_x1:
        /*0000*/                   LDC R1, c[0x0][0x37c] ;
        /*0010*/              @!P0 LDTM R20, tmem[UR4] ;
        /*0020*/              @UP1 LEPC R2, `(.L_x_1) ;
.L_x_1:
        /*0030*/                   LDTM.x32 R20, tmem[UR4+0x20] ;
	.section	.text.t2r_x32,"ax",@progbits
        /*0000*/                   CALL.ABS.NOINC R4 ;
"""


def test_opcodes_are_counted_by_function(script: ModuleType) -> None:
    found = script.counts(SASS)
    assert found == {"t2r_x1": {"LDC": 1, "LDTM": 2, "LEPC": 1}, "t2r_x32": {"CALL": 1}}


def test_loads_by_width_and_assertions() -> None:
    """128 x 256 floats of 128 threads are 256 registers each."""
    rows: list[dict[str, Any]] = json.loads((RESULTS / "sass-t2r.json").read_text())["rows"]
    found = {(row["width"], row["asserts"]): row for row in rows}
    assert {key: (row["LDTM"], row["LEPC"]) for key, row in found.items()} == {
        ("x1", True): (256, 256),
        ("x1", False): (256, 0),
        ("x32", True): (8, 8),
        ("x32", False): (8, 0),
    }
    for width in ("x1", "x32"):
        assert found[width, True]["instructions"] > 2 * found[width, False]["instructions"]


def test_tutorials_load_single_columns_and_ports_do_not() -> None:
    rows: list[dict[str, Any]] = json.loads((RESULTS / "sm100-tutorials.json").read_text())["rows"]
    for row in rows:
        widths = {int(re.findall(r"\.x(\d+)", shape)[0]) for shape in row["loads"]}
        if row["program"].startswith("port"):
            assert min(widths) > 1
            assert row["findings"] == []
            assert row["tcgen05.wait::ld"] > 0
        else:
            assert widths == {1}
            assert {"PT7002", "PT7006"} <= set(row["findings"])
            assert row["tcgen05.wait::ld"] == 0


def test_no_difference_to_the_tutorial_is_worse() -> None:
    record = json.loads((RESULTS / "sm100-tutorials.json").read_text())
    assert {one["verdict"] for one in record["differences"]} <= {"as the tutorial", "better", "the user's choice"}
    assert {one["point"] for one in record["differences"] if one["verdict"] == "the user's choice"} == {
        "tile of an MMA",
        "mbarriers, of which each stage has two",
    }
