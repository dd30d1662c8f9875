# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from porter.lang.diff import file_diff, unified_diff
from porter.lang.text import Edit, EditGroup, Safety, Span, apply_groups


def git_apply(root: Path, diff: bytes) -> None:
    for options in (["--check"], []):
        done = subprocess.run(
            ["git", "apply", "--whitespace=nowarn", *options, "-"], cwd=root, input=diff, capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode() + diff.decode("latin-1")


def round_trip(
    root: Path, old: dict[str, bytes], new: dict[str, bytes], groups: list[EditGroup] | None = None
) -> bytes:
    subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
    for name, text in old.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text)
    diff = unified_diff(old, new, groups or [])
    git_apply(root, diff)
    for name, text in new.items():
        assert (root / name).read_bytes() == text
    return diff


LINES = b"".join(b"line %d\n" % i for i in range(60))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LINES, LINES.replace(b"line 7\n", b"line seven\n")),
        (LINES, LINES.replace(b"line 7\n", b"").replace(b"line 40\n", b"line 40\nmore\n")),
        (LINES, b"first\n" + LINES + b"last\n"),
        (LINES, LINES[:-1]),
        (LINES[:-1], LINES),
        (LINES[:-1], LINES[:-1].replace(b"line 59", b"line fifty-nine")),
        (b"a\r\nb\r\n", b"a\r\nc\r\n"),
        (b"a\rb\nc\n", b"a\rd\nc\n"),
        (b"caf\xe9\n\xff\n", b"caf\xe9\n\xfe\n"),
        (b"x", b""),
        (b"", b"x\n"),
        (b"same\n" * 30, b"same\n" * 12 + b"new\n" + b"same\n" * 18),
    ],
)
def test_git_applies_the_diff(tmp_path: Path, old: bytes, new: bytes) -> None:
    round_trip(tmp_path, {"k.cu": old}, {"k.cu": new})


def test_random_edits_apply(tmp_path: Path) -> None:
    rng = random.Random(3)
    for number in range(25):
        lines = [b"%d\n" % rng.randrange(6) for _ in range(rng.randrange(1, 60))]
        changed = [line for line in lines if rng.random() > 0.15]
        for _ in range(rng.randrange(1, 6)):
            changed.insert(rng.randrange(len(changed) + 1), b"%d\n" % rng.randrange(9))
        old, new = b"".join(lines), b"".join(changed)
        if rng.random() < 0.3:
            new = new[:-1]
        root = tmp_path / str(number)
        root.mkdir()
        if old != new:
            round_trip(root, {"f": old}, {"f": new})


def test_several_files_new_files_and_odd_names(tmp_path: Path) -> None:
    old = {
        "src/a b.cu": LINES,
        "z.h": b"int z;\n",
        "same.h": b"int s;\n",
        'q"\xe9.h'.encode().decode(): b"1\n",
    }
    new = {
        "src/a b.cu": LINES.replace(b"line 3\n", b"x\n"),
        "z.h": b"int y;\n",
        "same.h": b"int s;\n",
        "new/n.cuh": b"int n;",
        'q"\xe9.h'.encode().decode(): b"2\n",
    }
    diff = round_trip(tmp_path, old, new)
    assert diff.count(b"diff --git") == 4
    assert b"same.h" not in diff
    assert b"new file mode 100644\n--- /dev/null\n" in diff


def test_text_of_a_diff() -> None:
    assert file_diff("d/k.cu", b"a\nb", b"a\nc\n").decode() == (
        "diff --git a/d/k.cu b/d/k.cu\n--- a/d/k.cu\n+++ b/d/k.cu\n@@ -1,2 +1,2 @@\n a\n"
        "-b\n\\ No newline at end of file\n+c\n"
    )
    assert b"@@ -0,0 +1 @@" in file_diff("k", None, b"x\n")
    assert b"@@ -1 +0,0 @@" in file_diff("k", b"x\n", b"")


def test_no_change_is_an_empty_diff() -> None:
    assert unified_diff({"a": b"x\n"}, {"a": b"x\n"}) == b""


def group(rule: str, edits: list[tuple[int, int, bytes]], safety: Safety = Safety.SAFE) -> EditGroup:
    return EditGroup(
        rule,
        f"what {rule} does\nsecond line",
        safety,
        tuple(Edit("k.cu", Span(a, b), t) for a, b, t in edits),
    )


def split_header(line: bytes) -> tuple[str, str]:
    """The line ranges of a hunk, and what stands behind them."""
    ranges, _, labels = line.decode().removeprefix("@@").partition("@@")
    return f"@@{ranges}@@", labels.strip()


def test_hunks_name_their_rules(tmp_path: Path) -> None:
    old = {"k.cu": LINES}
    groups = [
        group("PT2001", [(LINES.index(b"line 5\n"), LINES.index(b"line 5\n") + 6, b"changed")]),
        group("PT2002", [(LINES.index(b"line 50\n"), LINES.index(b"line 50\n"), b"inserted\n")], Safety.REVIEW),
        group(
            "PT2003",
            [
                (LINES.index(b"line 6\n"), LINES.index(b"line 7\n"), b""),
                (LINES.index(b"line 51\n"), LINES.index(b"line 51\n") + 4, b"LINE"),
            ],
        ),
    ]
    new = apply_groups(old, groups)
    diff = round_trip(tmp_path, old, new, groups)
    notes = [line.decode() for line in diff.splitlines() if line.startswith(b"# ")]
    headers, labels = zip(*(split_header(line) for line in diff.splitlines() if line.startswith(b"@@")), strict=True)
    assert labels == ("PT2001 safe, PT2003 safe", "PT2002 review, PT2003 safe")
    assert notes == [
        f"# rule PT2001 safe: what PT2001 does  {headers[0]}",
        f"# rule PT2003 safe: what PT2003 does  {headers[0]}",
        f"# rule PT2002 review: what PT2002 does  {headers[1]}",
        f"# rule PT2003 safe: what PT2003 does  {headers[1]}",
    ]
    # Deterministic.
    assert diff == unified_diff(old, new, groups)


def test_every_changed_line_has_a_rule(tmp_path: Path) -> None:
    rng = random.Random(11)
    source = b"".join(b"%d;\n" % rng.randrange(4) for _ in range(80))
    for trial in range(40):
        cuts = sorted(rng.sample(range(len(source)), 6))
        groups = [
            group(f"PT20{n:02}", [(cuts[2 * n], cuts[2 * n + 1], b"x\ny" if rng.random() < 0.5 else b"")])
            for n in range(3)
        ]
        new = apply_groups({"k.cu": source}, groups)["k.cu"]
        diff = file_diff("k.cu", source, new, groups)
        if new == source:
            continue
        headers = [line for line in diff.splitlines() if line.startswith(b"@@")]
        for header in headers:
            ranges, labels = split_header(header)
            notes = [n.decode() for n in diff.splitlines() if n.startswith(b"# rule") and n.endswith(ranges.encode())]
            assert notes, trial
            assert [" ".join(n.split()[2:4]).rstrip(":") for n in notes] == labels.split(", ")
