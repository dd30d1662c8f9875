# SPDX-License-Identifier: Apache-2.0
"""Tables on narrow terminals: nothing is left out, and no word is broken that has room."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from porter.report.tables import bare_table, plain_table

WIDTHS = (40, 60, 80, 100, 120, 150)


def drawn(table: Table, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(table)
    return out.getvalue()


def verdicts() -> Table:
    table = plain_table("inputs", "original / reference", "port / reference", "port / original", "hazards", "verdict",
                        overflow="fold", beside=("verdict",))  # fmt: skip
    within = "within bound (5.3e-08)"
    table.add_row("integers, random schedule", "equal", "equal", "same bits", "port: H14, H16", "error")
    table.add_row("normal", f"c: {within}\nd: {within}", within, "12 of 4096 differ, up to 2 ulp", "", "clean")
    return table


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_left_out(width: int) -> None:
    said = " ".join(drawn(verdicts(), width).split())
    for word in ("verdict", "error", "clean", "H14, H16", "random", "2 ulp", "original / reference"):
        assert word in said
    assert all(len(line) <= width for line in drawn(verdicts(), width).splitlines())


def test_what_a_row_comes_to_stands_in_its_first_line() -> None:
    lines = drawn(verdicts(), 80).splitlines()
    assert lines[0] == "integers, random schedule, verdict error"
    assert lines[1].startswith("  original / reference equal, port / reference equal")


def test_columns_stay_columns_where_they_have_room() -> None:
    wide = drawn(verdicts(), 150)
    assert wide.splitlines()[0].split() == [
        "inputs",
        "original",
        "/",
        "reference",
        "port",
        "/",
        "reference",
        "port",
        "/",
        "original",
        "hazards",
        "verdict",
    ]


def test_the_last_column_of_words_may_have_several_lines() -> None:
    table = plain_table("part", "", "needed for", overflow="fold")
    table.add_row("CUDA compiler", "yes", "builds of originals and ports, and each comparison of the two on PTX")
    lines = drawn(table, 60).splitlines()
    assert lines[0].split() == ["part", "needed", "for"]
    assert len(lines) > 3


def test_names_of_kernels_are_not_broken_where_a_line_holds_them() -> None:
    table = plain_table("kernel", "on", "% of nominal", "clocks a tile", "blocks an SM", "limited by",
                        overflow="fold", beside=("on", "% of nominal", "limited by"))  # fmt: skip
    name = "port: gemm_ws_kernel<128, 128, 64, 384, 3>"
    table.add_row(name, "B200", "43.3", "37442", "1", "barrier latency")
    assert drawn(table, 100).splitlines()[0] == f"{name}, on B200, % of nominal 43.3, limited by barrier latency"


def test_a_row_that_goes_on_with_the_one_above_has_no_name_of_its_own() -> None:
    table = plain_table("kernel", "", "baseline", "port", "delta")
    table.add_row("a_kernel_with_a_long_name<128, 64>", "registers", "90", "78", "-12")
    table.add_row("", "shared memory", "16384", "16400", "+16")
    lines = drawn(table, 50).splitlines()
    assert "  shared memory, baseline 16384, port 16400," in lines[-2]


def test_tables_without_a_line_have_the_same_forms() -> None:
    table = bare_table("accumulator", "in", "because")
    table.add_row("acc", "a_function_with_a_name_of_many_words", "f32, stays in Tensor Memory")
    assert "acc" in drawn(table, 30)
    assert "because f32" in drawn(table, 30).replace("\n", " ")
