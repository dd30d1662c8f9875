# SPDX-License-Identifier: Apache-2.0
"""The record of what ptxas makes of attention: how instructions are counted, and that the record is whole."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from scripts_loaded import script as loaded

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return loaded("scripts/sass_attention.py")


def test_the_loop_of_the_softmax_is_counted_without_what_one_warp_issues(script: ModuleType) -> None:
    texts = [
        "S2R R0, SR_TID.X", ".L_x_0:", ".L_x_1:", "FMUL R1, R2, R3", *["MUFU.EX2 R1, R1"] * 8, "@P0 BRA `(.L_x_2)",
        "ELECT P1, URZ, PT", "UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8]", ".L_x_2:", "@P2 BRA `(.L_x_3)",
        *["CS2R R4, SRZ"] * 5, ".L_x_3:", "@P3 BRA `(.L_x_1)", "MUFU.EX2 R1, R1", "@P4 BRA `(.L_x_0)", "EXIT",
    ]  # fmt: skip
    sass = "\n".join(t if t.startswith(".L") else f"        /*{16 * i:04x}*/  {t} ;" for i, t in enumerate(texts))
    loop = script.loop_of(sass)
    assert [row for row, _ in loop][:2] == ["FMUL R1, R2, R3 ", "MUFU.EX2 R1, R1 "]
    assert script.issued(loop) == (19, 12)


def test_the_record_has_every_port_and_says_that_sass_is_more() -> None:
    rows: list[dict[str, Any]] = json.loads((RESULTS / "sass-attention.json").read_text())["rows"]
    assert {(r["style"], r["kernel"]) for r in rows} == {
        (style, f"flash::attention_fwd<{d}, {causal}>")
        for style in ("original", "compat", "full-rate", "native")
        for d in (64, 128)
        for causal in ("false", "true")
    }
    assert all(r["ptx"] < r["sass"] <= r["sass_of_the_loop"] for r in rows)
    # neither side of the table gains by counting PTX more than half as much again as the other
    assert all(1.15 < r["sass"] / r["ptx"] < 1.45 for r in rows)
