# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from porter.lang.lexical import Lexed, closing, padded


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (b"a // x\nb", b"a     \nb"),
        (b"a /* x\ny */ b", b"a     \n     b"),
        (b'f("a // b")', b'f("      ")'),
        (b"c = '\"'; d", b"c = ' '; d"),
        (b"n = 1'000'000; \"x\"", b"n = 1'000'000; \" \""),
        (b'R"(a " b)" c', b'"        " c'),
        (b'R"xy(a )" b)xy" c', b'"             " c'),
        (b'u8R"(a " b)" c', b'"          " c'),
        (b'LR"(a)" uR"x(b)" )x" Name_R"(\\" )"', b'"     " "          " Name_R"     "'),
        (b"L'\"' u8'\"' x'\"' \"", b"'  ' '   ' x'\"  \""),
        (b"// a \\\n b\nc", b"      \n  \nc"),
        (b"'\\n' '\\x41' x", b"'  ' '    ' x"),
    ],
)
def test_code_blanks_comments_and_strings(source: bytes, code: bytes) -> None:
    assert Lexed(source).code == code


def test_directives_with_continuations_are_blanked_from_plain() -> None:
    source = b"int a;\n  #define X(y) \\\r\n  y + 1\r\nint b;\n#if A and \\\nB\nint c;\n"
    lexed = Lexed(source)
    assert [source[s.start : s.end] for s in lexed.directives] == [
        b"  #define X(y) \\\r\n  y + 1\r",
        b"#if A and \\\nB",
    ]
    assert lexed.plain.split() == [b"int", b"a;", b"int", b"b;", b"int", b"c;"]
    assert len(lexed.plain) == len(source)


def test_macro_parameters_and_body_spans() -> None:
    source = b'#define A\n#define B "x" // note\n# define C(a, \\\n  b) \\\n  do { f(a); \\\n  } while (b)\nint x;\n'
    macros = {m.name: m for m in Lexed(source).macros()}
    assert macros["A"].params is None
    assert macros["A"].body == b""
    assert macros["B"].joined == b'"x"'
    assert macros["C"].params == ("a", "b")
    assert macros["C"].body == b"do { f(a); \\\n  } while (b)"
    assert macros["C"].joined == b"do { f(a); } while (b)"
    for macro in macros.values():
        assert source[macro.body_span.start : macro.body_span.end] == macro.body


def test_macro_body_has_no_outer_blanks() -> None:
    source = b"#define A  x + \\\r\n  1 \\\r\n\r\n#define B \\\n y\t\r\n#define C z"
    assert [m.body for m in Lexed(source).macros()] == [b"x + \\\r\n  1", b"y", b"z"]


def test_includes() -> None:
    source = b'#include "a/b.cuh" // c\n // #include "no.h"\n#include <d.h>\n'
    assert [(n, q) for n, q, _ in Lexed(source).includes()] == [("a/b.cuh", True), ("d.h", False)]


def test_closing_bracket() -> None:
    assert closing(b"f(a(b), [c]) d", 1) == 12
    assert closing(b"f(a", 1) == -1


def test_padded_never_moves_a_line_end() -> None:
    assert padded(b"ABCDEF", b"xy") == b"xy    "
    assert padded(b"AB", b"xyz") == b"  "
    assert padded(b"AB\nCDEF", b"xyz") == b"  \n    "
