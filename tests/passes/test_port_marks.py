# SPDX-License-Identifier: Apache-2.0
"""Messages as comments in a port: the code stays the same, and without them the text is what it was."""

from __future__ import annotations

import pytest

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.text import Edit, EditGroup, Safety, Span
from porter.passes.marks import marked, unmarked

OLD = b"int a;\nwgmma();\nint b;\n"


def said(line: int, path: str = "k.cu", rule: str = "PTR1") -> Diagnostic:
    return Diagnostic(Code.RULE_IGNORED, Location(path, line), {"rule": rule})


def mark(old: bytes, new: bytes, *lines: int, path: str = "k.cu") -> bytes:
    return marked({path: old}, {path: new}, [said(line, path) for line in lines], [])[path]


@pytest.mark.parametrize(
    ("old", "new", "line", "above"),
    [
        (OLD, OLD.replace(b"wgmma", b"umma"), 2, b"umma();"),
        (OLD, OLD.replace(b"wgmma();", b"umma();\ncommit();"), 3, b"int b;"),
        (OLD, OLD.replace(b"wgmma();\n", b""), 2, b"int b;"),
        (OLD, b"#include <x>\n" + OLD, 1, b"int a;"),
        (b"\twgmma();\r\nint b;\r\n", b"\tumma();\r\nint b;\r\n", 1, b"\tumma();"),
        (b"wgmma();", b"umma();", 1, b"umma();"),
    ],
)
def test_a_mark_stands_above_its_place(old: bytes, new: bytes, line: int, above: bytes) -> None:
    made = mark(old, new, line)
    lines = made.splitlines()
    at = next(i for i, text in enumerate(lines) if b"porter[PT2010]" in text)
    assert lines[at].lstrip().startswith(b"// porter[PT2010]: rule PTR1 is switched off")
    assert lines[at + 1] == above
    assert made.count(b"\r\n") == (made.count(b"\n") if b"\r" in old else 0)
    assert unmarked(made) == new


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"#define M(x) \\\n  wgmma(x)\n", 2),  # the second line of a macro
        (b'const char* s = R"(\nwgmma();\n)"; // x\n', 2),  # in a raw string
        (b"/* here\nwgmma();\n*/ int a;\n", 9),  # behind the end
        (b'auto s = "a\\\nb";\n', 2),  # a string over two lines
    ],
)
def test_where_a_comment_would_be_text_there_is_none(text: bytes, line: int) -> None:
    assert mark(text, text + b"int more;\n", line) == text + b"int more;\n"


def test_python_keeps_its_meaning() -> None:
    old = b'def f():\n    """\n    wgmma\n    """\n    return wgmma()\n'
    new = old.replace(b"wgmma()", b"umma()")
    assert mark(old, new, 3, path="k.py") == new
    made = mark(old, new, 5, path="k.py")
    assert b"    # porter[PT2010]: " in made
    assert unmarked(made) == new


def test_edits_to_review_are_marked_and_safe_ones_are_not() -> None:
    def group(rule: str, safety: Safety) -> EditGroup:
        return EditGroup(rule, "a title", safety, (Edit("k.cu", Span(7, 12), b"umma"),))

    groups = [group("PTR900", Safety.REVIEW), group("PTR901", Safety.SAFE)]
    made = marked({"k.cu": OLD}, {"k.cu": OLD.replace(b"wgmma", b"umma")}, [], groups)["k.cu"]
    assert b"// porter[PTR900]: review: a title\numma();" in made
    assert b"PTR901" not in made


def test_files_that_stay_get_no_marks() -> None:
    assert marked({"k.cu": OLD}, {"k.cu": OLD}, [said(1)], []) == {}


def test_the_same_message_twice_is_one_mark() -> None:
    made = marked({"k.cu": OLD}, {"k.cu": OLD + b"\n"}, [said(1), said(1), said(1, rule="PTR2")], [])["k.cu"]
    assert made.count(b"porter[") == 2


@pytest.mark.parametrize(
    "text",
    [b"// porter[PT1]\n", b"a(); // porter[PT1]: x\n", b"// porter [PT1]: x\n", b"# porter[pt1]: x\n", b"", b"x",
     b"// porter: keep PT7001\n"],
)  # fmt: skip
def test_what_is_no_mark_stays(text: bytes) -> None:
    assert unmarked(text) == text
