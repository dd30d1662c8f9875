# SPDX-License-Identifier: Apache-2.0
"""Python text as libcst's tree.

libcst takes some text that is no Python, and has no bound on its depth, so CPython's parser reads a text first.
"""

from __future__ import annotations

import gc
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import libcst as cst

_SYNTAX_ALONE = 0x400
"""What `compile` is told to stop behind the parser (PyCF_ONLY_AST of CPython)."""
_DEPTH = 200_000
"""Frames that a visit of a tree may take that CPython's own parser takes."""
_FEED = re.compile(r"(?:\A|(?<=[\r\n]))[ \t\f]*\f")
"""What an indentation does not begin with for Python; libcst repeats it on the lines behind."""


@contextmanager
def at_work() -> Iterator[None]:
    """Deep trees are visited, and what is made stays: looking for garbage among it takes as long again."""
    limit, collected = sys.getrecursionlimit(), gc.isenabled()
    sys.setrecursionlimit(max(limit, _DEPTH))
    gc.disable()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
        if collected:
            gc.enable()


def check_python(text: str, mode: str = "exec") -> None:
    """Raises SyntaxError, ValueError, RecursionError, MemoryError for what this Python does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(text, "<text>", mode, _SYNTAX_ALONE, dont_inherit=True)


def parse_python(text: str) -> cst.Module:
    """The tree of a module, without form feeds in front of statements.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is none.
    """
    with at_work(), _as_syntax_error():
        check_python(text)
        return cst.parse_module(_FEED.sub("", text))


def parse_expression(text: str) -> cst.BaseExpression:
    """The tree of one expression; raises what `parse_python` does."""
    check_python(text, "eval")
    with at_work(), _as_syntax_error():
        return cst.parse_expression(text)


@contextmanager
def _as_syntax_error() -> Iterator[None]:
    try:
        yield
    except cst.ParserSyntaxError as error:
        problem = f"libcst does not read it: {error.message.splitlines()[-1]}"
        raise SyntaxError(problem, ("<text>", error.raw_line, error.raw_column + 1, None)) from None
