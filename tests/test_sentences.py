# SPDX-License-Identifier: Apache-2.0
"""Sentences of pages are short enough to be read once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MOST = 40
"""Words of a sentence."""
STILL = {
    "CONTRIBUTING": 1, "benchmarks": 6, "cute_dsl": 8, "diagnostics": 4, "equality": 23, "faq": 1, "full_rate":
    15, "gpu": 5, "grade": 4, "hazards": 8, "idiomatic": 8, "launches": 1, "mutation": 4, "projects": 3,
    "proving": 16, "rules": 10, "rulings": 9, "simulator": 1,
}  # fmt: skip
"""Pages with longer ones, and how many there are at most. A page that is not here has none; no number grows."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_NO_PROSE = re.compile(
    r"\A---\n.*?^---$|^```.*?^```$|^(?: {4}|\t)[^\n]*$|^\|[^\n]*$|^#[^\n]*$", re.MULTILINE | re.DOTALL
)
_BLOCKS = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )")
_ENDS = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`\"*(\[])")


def sentences(page: str) -> Iterator[str]:
    """Those of prose: without code, tables and headings."""
    for block in _BLOCKS.split(_NO_PROSE.sub("\n\n", page)):
        yield from _ENDS.split(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block))


def words(sentence: str) -> int:
    return len(re.findall(r"[\w`]\S*", sentence))


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_no_sentence_is_longer_than_one_reads(path: Path) -> None:
    long = [" ".join(s.split()) for s in sentences(path.read_text("utf-8")) if words(s) > MOST]
    assert len(long) <= STILL.get(path.stem, 0), "\n".join(long)


def test_words_of_prose_are_counted() -> None:
    text = (
        "# Head\n\nOne two three. Four `five six` seven:\n\n- Eight nine\n- Ten\n\n```\nnot this\n```\n| nor | this |\n"
    )
    assert [words(s) for s in sentences(text) if s.strip()] == [3, 4, 2, 1]
