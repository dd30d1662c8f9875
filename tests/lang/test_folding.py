# SPDX-License-Identifier: Apache-2.0
"""Stretches of generated Python of which no tree is made: what is asked of a file is the same with them and without."""

from __future__ import annotations

import pytest

from porter.diagnostics import PorterError
from porter.lang import folding
from porter.lang.cute_dsl import DslFile
from porter.rules.load import own_names

HEAD = "import cutlass\nimport cutlass.cute as cute\n"
LINES = "".join(f"    x{i} = cutlass.Int32({i}) * 2 + y[{i}]\n" for i in range(12))
FUNCTION = HEAD + "def f(y):\n" + LINES


@pytest.fixture(autouse=True)
def _short_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "_LEAST", 6)
    monkeypatch.setattr(folding, "_STRETCH", 4)


def both(text: str) -> tuple[DslFile, DslFile]:
    files = [DslFile("a.py", text.encode(), "", own_names().dialect, excerpt) for excerpt in (True, False)]
    assert all(f.module is not None for f in files)
    return files[0], files[1]


def found(file: DslFile) -> object:
    words = {w for function in file.functions() for w in file.words_in(function)}
    return file.named_places(), words, [file.line(f) for f in file.functions()], sorted(file.imported())


FOLDED = {
    "in a function": FUNCTION,
    "behind other lines": FUNCTION.replace("    x0", "    cute.size(y)\n    x0") + "    return cute.size(x1)\n",
    "of other names": FUNCTION.replace("cutlass.Int32", "abs"),
    "where a parameter has the name": FUNCTION.replace("f(y)", "f(y, cutlass)"),
    "twice": FUNCTION + "    g()\n" + LINES,
    "in a block": FUNCTION.replace("def f(y):\n", "def f(y):\n  if y:\n"),
    "with a mark": "\ufeff" + FUNCTION,
}


@pytest.mark.parametrize("name", FOLDED)
def test_stretches_are_left_out(name: str) -> None:
    excerpt, whole = both(FOLDED[name])
    assert excerpt.stretches
    assert len(excerpt.nodes(object)) < len(whole.nodes(object))
    assert found(excerpt) == found(whole)


WHOLE = {
    "a short text": HEAD + "def f(y):\n" + "".join(LINES.splitlines(True)[:5]),
    "in a string": HEAD + "x = '''\n" + LINES + "'''\n",
    "in brackets": HEAD + "def f(y):\n  g(\n" + LINES.replace("]\n", "],\n") + "  )\n",
    "of the module": HEAD + "if y:\n" + LINES,
    "of a class": HEAD + "class A:\n" + LINES,
    "with a name of a rule": FUNCTION.replace("cutlass.Int32", "cute.gemm"),
    "with an import of such a name": "from cutlass.cute import gemm as cutlass\ndef f(y):\n" + LINES,
    "with another package": "import house as cutlass\ndef f(y):\n" + LINES,
    "with an alias": HEAD.replace("cute\n", "cute\nc = cute.nvgpu\n", 1)
    + "def f(y):\n"
    + LINES.replace("cutlass", "c"),
    "of a dotted import": "import cutlass.cute\n" + FUNCTION,
    "of what a star may bring": "from cutlass.cute import *\n" + FUNCTION,
    "that set what is imported": FUNCTION.replace("x5 =", "cute ="),
    "with a loop": FUNCTION.replace("y[", "g([z for z in y if z + ").replace("]\n", "])\n"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_may_matter_stays_in_the_tree(name: str) -> None:
    excerpt, whole = both(WHOLE[name])
    assert not excerpt.stretches
    assert found(excerpt) == found(whole)


def test_a_stretch_that_is_no_python_is_named() -> None:
    text = FUNCTION.replace("x5 = cutlass", "x5 = 5 cutlass")
    with pytest.raises(PorterError) as caught:
        both(text)
    assert caught.value.diagnostic.where is not None
    assert caught.value.diagnostic.where.line == 9
