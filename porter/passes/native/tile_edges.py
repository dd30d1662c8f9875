# SPDX-License-Identifier: Apache-2.0
"""How a kernel counts the tiles of a product whose size is no multiple of a tile: one that is not whole is one of
them, or is none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from porter.model.functions import Function, Style
from porter.model.program import Program

_ROUNDED_UP = r"(?:ceil\w*|cdiv|div_?up|DivUp|round_?up|RoundUp|CEIL_DIV)"


def counts_parts(program: Program, kernel: Function, reached: list[Function], size: str) -> bool | None:
    """Whether tiles that are not whole are counted, of rows or columns whose number is the kernel's parameter `size`;
    None where it is not known, or both."""
    found = {answer for function, name in _named(program, kernel, reached, size) for answer in _answers(function, name)}
    return found.pop() if len(found) == 1 else None


def _named(program: Program, kernel: Function, reached: list[Function], size: str) -> Iterator[tuple[Function, str]]:
    """Functions of the kernel, with what they call the size."""
    todo, seen = [(kernel, size)], set()
    makers = [f for f in program.functions if f.style is Style.METHOD and f.name and f.name == f.class_name]
    while todo:
        function, name = todo.pop()
        if (id(function), name) in seen:
            continue
        seen.add((id(function), name))
        yield function, name
        for call in function.calls:
            for target in program.targets(call):
                todo += [(target, p.name) for p, a in zip(target.params, call.args, strict=False)
                         if function.text(a) == name and any(target is r for r in reached)]  # fmt: skip
        text = function.text(function.body)
        for maker in makers:
            for given in re.findall(rf"\b{re.escape(maker.name)}\s+\w+\s*[({{]([^(){{}};]*)[)}}]", text):
                words = [w.strip() for w in given.split(",")]
                todo += [(maker, p.name) for p, w in zip(maker.params, words, strict=False) if w == name]


def _answers(function: Function, name: str) -> Iterator[bool]:
    text, word = function.text(function.node), rf"(?<![\w.])\b{re.escape(name)}\b"
    up = [rf"{_ROUNDED_UP}\s*(?:<[^<>]*>)?\s*\(\s*{word}", rf"\(\s*{word}\s*[+-][^;]*?\)\s*/", rf"<\s*{word}\s*;",
          rf"\+\s*{word}(?:\s*-\s*1)?\s*\)\s*/"]  # fmt: skip
    if any(re.search(pattern, text) for pattern in up):
        yield True
    if re.search(rf"(?<![+*-])(?<![+*-]\s){word}\s*(?:/(?![/*])|>>)", text):
        yield False


__all__ = ["counts_parts"]
