# SPDX-License-Identifier: Apache-2.0
"""How rows of comparisons are counted for docs/equality.md."""

from __future__ import annotations

from scripts_loaded import script

TEXT = """python scripts/equal_corpus.py --style compat a
a                            compat    equal       1.0 s  M=1 (M all, K: no time for all turns up to 3)
cute_a                       idiomatic unknown     2.0 s  a reason (M=1: original bra)
owner/name b.cu              full-rate as the original    2.0 s  k: the original's own hazards: H26
c                            native    no port
compat: 1 equal, 1 for all of a size
1.5 s in the median, 2.0 s at most
"""


def test_each_row_counts_once_and_what_is_not_equal_is_listed() -> None:
    table = script("docs/equality_table.py")
    rows = table.rows_of(TEXT, {"cute_": "CuTe"}, "raw")
    assert [(row.programs, row.name, row.style, row.status) for row in rows] == [
        ("raw", "a", "compat", "equal"),
        ("CuTe", "cute_a", "idiomatic", "unknown"),
        ("raw", "owner/name b.cu", "full-rate", "as the original"),
        ("raw", "c", "native", ""),
    ]
    lines = list(table.counted(rows))
    assert "| raw | compat | 1 | 1 | 1 | 0 | 0 | 0 |" in lines
    assert "| CuTe | idiomatic | 1 | 0 | 0 | 0 | 1 | 0 |" in lines
    assert "| all | these three | 3 | 1 | 1 | 1 | 1 | 0 |" in lines
    assert "1 of 3 (33.3 %) are equal; without those that are as the original, 1 of 2 (50.0 %)." in lines
    assert [line for line in lines if line.startswith("| c |")] == ["| c | native | not compared | no port |"]


PLANTS = """python scripts/equal_plants.py --packed FILE
2 ports, 9 plants, 7 of them effective; no time for 3
  compat: 7 effective
  wait for what is loaded      3 effective: 1 differs, 2 order
  late k step                  4 effective: 3 differs, 1 unknown
      1 unknown: a reason
without effect in these runs: 2 equal
"""


def test_what_is_said_of_mistakes_is_counted_by_kind() -> None:
    assert list(script("docs/equality_table.py").plants_counted(PLANTS))[-3:] == [
        "| wait for what is loaded | 3 | 1 | 2 | 0 | 0 | 0 |",
        "| late k step | 4 | 3 | 0 | 0 | 1 | 0 |",
        "| all | 7 | 4 | 2 | 0 | 1 | 0 |",
    ]
