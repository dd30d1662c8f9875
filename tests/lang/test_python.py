# SPDX-License-Identifier: Apache-2.0
"""Python as libcst reads it: every node has its bytes, expressions are written and evaluated as CPython does it."""

from __future__ import annotations

import ast
import pickle
import random

import libcst as cst
import pytest

from porter.diagnostics import Code, PorterError
from porter.diagnostics.python_text import parse_expression
from porter.lang.python import PythonFile, spelled, value_of, walk

TEXTS = [
    "a = 1\nb = a\n",
    "\x0ca = b\n",
    "# c\n\x0ca = b\nif a:\n\x0c\tb\n\tc  # d\n \x0c\n\td\n\x0celse:\n  e\n",
    "\\\na = b\n\n\\\n\nc\n",
    "def f(a, b=c, *d, e: g = 'ä') -> h:\n\treturn a if b else (c)\n",
    "x = f'ä{a!r:>{b}}' '''\x0c\n''' + c\n",
    "match a:\n  case [b, *c] | {'d': e, **g} if h: i\n  case _: j\n",
    "with (a as b, c): (d := e)\nasync def f():\n  await g\n",
    "x = [a for b in c if d for e in g]; del (h), i[0]\n",
    "@a.b  # c\n\n@d(e)\nclass F(G, metaclass=h): i: j = k; l\n",
    "try: a\nexcept* B as c: d\nfinally: e\n",
    "a",
    "",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_every_name_stands_where_the_file_has_it(text: str, newline: str, mark: str) -> None:
    file = PythonFile("a.py", (mark + text).replace("\n", newline).encode())
    names = file.nodes(cst.Name)
    assert [file.text(n) for n in names] == [n.value for n in names]
    for statement in (n for n in walk(file.module) if isinstance(n, (cst.Assign, cst.Expr, cst.Del))):
        whole = cst.Module([]).code_for_node(statement).rstrip("; \t")
        assert file.text(statement) == whole.removesuffix("\n")


EXPRESSIONS = [
    "a==9 and (b or  'x')", 'f(a,b = "c")', "x[1:2,3]", "(1,2)", "(a,)", "{'a':1,**b}", "lambda x,y=1:x+y", "not a",
    "-1", "0x10", "[i for i in x if i]", "f(x for x in y)", "(a+b)*c", "'a' \"b\"", "a if b else c", "x[::2]", "a<b<=c",
    "a is not b", "b'x'", "c.d( )[0]>=9", "(a)", "f((a))", "1.50", "{1,2}", "await x", "a not in b", "f(a,)",
    "a.  b . c", "lambda *a,b,**c: 0", "1 if(a)else 2", "a@b", "()", "...", "1j", "x[a,]", "(a)(b)", "a\\\n+b",
    "(a # c\n+b)",
]  # fmt: skip


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_expressions_are_written_as_the_language_writes_them(text: str) -> None:
    assert spelled(parse_expression(text)) == ast.unparse(ast.parse(text, mode="eval"))


def literal(rng: random.Random, depth: int) -> str:
    plain = ["7", "-3", "0x1f", "1_0", "2.5", "'a'", '"b" r"\\c"', "b'd'", "True", "None"]
    if not depth:
        return rng.choice(plain)
    inner = [literal(rng, depth - 1) for _ in range(rng.randrange(4))]
    of_pairs = "{" + ", ".join(f"{i}: {v}" for i, v in enumerate(inner)) + "}"
    return rng.choice([f"({', '.join([*inner, ''])})" if inner else "()", f"[{', '.join(inner)}]", of_pairs])


def test_literals_come_to_what_the_language_says() -> None:
    rng = random.Random(1)
    for text in {literal(rng, rng.randrange(4)) for _ in range(300)}:
        assert value_of(parse_expression(text), "no literal") == ast.literal_eval(text), text
    for text in ("a", "f()", "f'{a}'", "[*a]", "{**a}", "-a", "[a, 1]"):
        assert value_of(parse_expression(text), "no literal") == "no literal", text


UNREADABLE = {
    "Python 2": ("x = 1\nprint 'x'\n", 2),
    "tabs and spaces": ("if x:\n\ta\n        b\n", 3),
    "a bracket without an end": ("x = (\n", 1),
    "what libcst takes and Python does not": ("x = 1  # \x00\n", 1),
    "deeper than Python goes": ("\nx = " + "(" * 5000 + ")" * 5000, 2),
    "what Python takes and libcst does not": ("\n(x): int = 1\n", 2),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_text_that_is_not_read_is_named_once(name: str) -> None:
    text, line = UNREADABLE[name]
    with pytest.raises(PorterError) as caught:
        assert PythonFile("a.py", text.encode()).module
    assert caught.value.diagnostic.code is Code.DSL_UNREADABLE
    assert caught.value.diagnostic.where is not None
    assert caught.value.diagnostic.where.line == line


@pytest.mark.parametrize(
    "text",
    ["x = " + "+".join(["y"] * 500), "x = (" + " ".join(["'a'"] * 500) + ")", "if y: pass\n" + "elif y: pass\n" * 300,
     "x = y" + ".z" * 500],
)  # fmt: skip
def test_deep_trees_are_walked(text: str) -> None:
    file = PythonFile("a.py", f"{text}\n".encode())
    name = next(n for n in file.nodes(cst.Name) if n.value in "xy")
    assert file.text(name) == name.value
    assert file.scope_of(name) is file.scope_of(file.module)
    assert len(pickle.dumps(file)) < len(text) + 1000
    assert pickle.loads(pickle.dumps(file)).module is file.module
