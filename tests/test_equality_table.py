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
