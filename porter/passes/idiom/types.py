# SPDX-License-Identifier: Apache-2.0
"""What the C++ compiler says of a kernel's types: the original is compiled with one statement more, which leaves the
answers of each instantiation in its PTX as a comment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from porter.lang.text import as_bytes
from porter.passes.idiom.text import cpp
from porter.ptx.wgmma import THREADS as WARPGROUP

Ask = Callable[[str, Mapping[str, bytes], Sequence[Path]], "list[str] | str"]
"""Gives the PTX that the compiler makes for Hopper of a root with these files, for each way in which it is compiled; or
says why there is none."""
_MARK = "types of MMA"
_ANSWER = re.compile(rf"// {_MARK} (\w+) (\d+)((?: \d+)+)")
_SECTIONS = {12: "question_of_fragment", 5: "question_of_operand", 1: "question_of_number"}
"""Questions of registers in Hopper's layout, by how many numbers answer them."""
Answers = frozenset[tuple[int, ...]]
"""What the compiler says to a question, of each instantiation."""


@dataclass(frozen=True)
class Types:
    """One instantiation of a kernel: rows and columns of the tile of its accumulator, the threads of its tiled MMA,
    bytes of a sum, bits of an element of A, and the tile's elements of k where A is in registers."""

    rows: int
    columns: int
    threads: int
    bytes: int
    bits: int = 16
    depth: int = 0

    @property
    def warpgroups(self) -> int:
        return self.threads // WARPGROUP


def answering(*given: int | tuple[int, ...]) -> Ask:
    """Gives these numbers for the first kernel, in place of a compiler; tuples are the answers to several questions."""
    numbers = tuple(one for one in given if isinstance(one, int))
    of_tile = "question", (*numbers, *(16, 0)[len(numbers) - 4 :])
    several = [(_SECTIONS[len(one)], one) for one in given if isinstance(one, tuple)]
    said = list(enumerate(several or [of_tile]))
    return lambda *_: [f"// {_MARK} {what} {i} {' '.join(map(str, answer))}\n" for i, (what, answer) in said]


@dataclass(frozen=True)
class Question:
    """What is asked behind a byte of a file: a section of `idiom.cuh`, with its values."""

    path: str
    at: int
    section: str
    values: Mapping[str, str]


def answered(
    questions: Sequence[Question], root: str, files: Mapping[str, bytes], include_dirs: Sequence[Path], ask: Ask
) -> list[Answers] | str:
    """The answers to each question; a text says why there are none."""
    texts = dict(files)
    for index, one in sorted(enumerate(questions), key=lambda q: -q[1].at):
        text = cpp(one.section, mark=f"{_MARK} {one.section}", index=index, **one.values)
        texts[one.path] = texts[one.path][: one.at] + as_bytes(f" {text}") + texts[one.path][one.at :]
    found = ask(root, texts, include_dirs)
    if isinstance(found, str):
        return found
    said = [((m[1], int(m[2])), tuple(map(int, m[3].split()))) for ptx in found for m in _ANSWER.finditer(ptx)]
    return [frozenset(n for of, n in said if of == (q.section, i)) for i, q in enumerate(questions)]
