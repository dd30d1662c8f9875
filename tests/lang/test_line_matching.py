# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
import time

import pytest

from porter.lang import matching
from porter.lang.matching import LineMatcher


@pytest.mark.parametrize("most", [5_000_000, -1])
def test_what_is_equal_is_and_the_rest_makes_the_other_text(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_MOST_PAIRS", most)
    choice = random.Random(most)
    for _ in range(500):
        a, b = ([choice.choice("abc") for _ in range(choice.randrange(14))] for _ in range(2))
        made: list[str] = []
        at_a = 0
        for tag, a0, a1, b0, b1 in LineMatcher(a, b).get_opcodes():
            assert (a0, b0) == (at_a, len(made))
            assert (tag == "equal") == (a[a0:a1] == b[b0:b1])
            at_a = a1
            made += b[b0:b1]
        assert (at_a, made) == (len(a), b)


def test_the_fewest_lines_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_MOST_PAIRS", -1)
    blocks = LineMatcher("abcabba", "cbabac").get_matching_blocks()
    assert sum(m.size for m in blocks) == 4


@pytest.mark.parametrize("runs", [[b"\\\n"], [b"\n"], [b"a\n", b"b\n"], [b"a\n", b"b\n", b"a\n", b"c\n"]])
def test_texts_of_few_different_lines_take_no_time(runs: list[bytes]) -> None:
    between = runs * (40_000 // len(runs))
    old = [b"first\n", *between, b"kernel\n", *between, b"last\n"]
    new = [b"FIRST\n", *between, b"port\n", *between, b"LAST\n"]
    start = time.process_time()
    changed = [codes[1:3] for codes in LineMatcher(old, new).get_opcodes() if codes[0] != "equal"]
    assert time.process_time() - start < 5
    assert changed == [(0, 1), (40_001, 40_002), (80_002, 80_003)]


def test_where_everything_changed_takes_no_time() -> None:
    old, new = [b"a\n", b"b\n"] * 20_000, [b"b\n", b"b\n", b"a\n", b"c\n"] * 10_000
    start = time.process_time()
    codes = LineMatcher(old, new).get_opcodes()
    assert time.process_time() - start < 10
    assert codes[0][0] != "equal"
