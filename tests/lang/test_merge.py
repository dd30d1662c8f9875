# SPDX-License-Identifier: Apache-2.0
"""Three-way merge by lines, held against git's."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from porter.lang.merge import merge

BASE = b"one\ntwo\nthree\nfour\nfive\n"


@pytest.mark.parametrize(
    ("mine", "theirs", "text"),
    [
        (b"ONE\ntwo\nthree\nfour\nfive\n", b"one\ntwo\nthree\nfour\nFIVE\n", b"ONE\ntwo\nthree\nfour\nFIVE\n"),
        (BASE, b"one\nfive\n", b"one\nfive\n"),
        (b"one\nfive\n", BASE, b"one\nfive\n"),
        (b"one\nX\ntwo\nthree\nfour\nfive\n", b"one\ntwo\nthree\nfive\n", b"one\nX\ntwo\nthree\nfive\n"),
        (b"same\ntwo\nthree\nfour\nfive\n", b"same\ntwo\nthree\nfour\nfive\n", b"same\ntwo\nthree\nfour\nfive\n"),
        (b"one\ntwo\nthree\nfour\nfive", b"ONE\ntwo\nthree\nfour\nfive\n", b"ONE\ntwo\nthree\nfour\nfive"),
        (b"", BASE, b""),
    ],
)
def test_changes_of_both_sides(mine: bytes, theirs: bytes, text: bytes) -> None:
    found = merge(BASE, mine, theirs)
    assert (found.text, found.conflicts) == (text, 0)


def test_a_conflict_is_marked_as_git_does() -> None:
    found = merge(BASE, BASE.replace(b"three", b"mine"), BASE.replace(b"three", b"theirs"))
    assert found.conflicts == 1
    assert found.text == b"one\ntwo\n<<<<<<< yours\nmine\n=======\ntheirs\n>>>>>>> port\nfour\nfive\n"


def test_what_both_begin_or_end_with_is_outside_of_the_markers() -> None:
    found = merge(b"a\nx\nb\n", b"a\nnew\n1\nb\n", b"a\nnew\n2\nb\n")
    assert found.text == b"a\nnew\n<<<<<<< yours\n1\n=======\n2\n>>>>>>> port\nb\n"


def test_nothing_of_either_side_is_lost() -> None:
    """Every line that one side added stands in the result, whatever the texts."""
    rng = random.Random(5)
    for _ in range(300):
        base = [b"%d\n" % rng.randrange(6) for _ in range(rng.randrange(12))]
        sides = []
        for mark in (b"L", b"R"):
            side = list(base)
            for _ in range(rng.randrange(4)):
                side.insert(rng.randrange(len(side) + 1), mark + b"%d\n" % rng.randrange(100))
            sides.append(side)
        found = merge(*(b"".join(lines) for lines in (base, *sides)))
        for side in sides:
            assert {x for x in side if x[:1] in b"LR"} <= set(found.text.splitlines(keepends=True))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
def test_where_git_sees_no_conflict_the_text_is_gits(tmp_path: Path) -> None:
    rng = random.Random(9)
    agreed = 0
    for _ in range(60):
        base = [b"line %d\n" % i for i in range(20)]
        names = []
        for name in ("mine", "base", "theirs"):
            side = list(base)
            for _ in range(rng.randrange(3) if name != "base" else 0):
                at = rng.randrange(len(side))
                side[at : at + rng.randrange(2)] = [b"%s %d\n" % (name.encode(), rng.randrange(99))]
            (tmp_path / name).write_bytes(b"".join(side))
            names.append(str(tmp_path / name))
        done = subprocess.run(["git", "merge-file", "-p", *names], capture_output=True, check=False)
        mine, old, theirs = ((tmp_path / n).read_bytes() for n in ("mine", "base", "theirs"))
        found = merge(old, mine, theirs)
        assert (done.returncode == 0) == (found.conflicts == 0)
        if done.returncode == 0:
            assert found.text == done.stdout
            agreed += 1
    assert agreed > 20
