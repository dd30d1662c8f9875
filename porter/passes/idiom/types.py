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
_ANSWER = re.compile(rf"// {_MARK} (\d+) (\d+) (\d+) (\d+) (\d+) (\d+) (\d+)")


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


def answering(*numbers: int) -> Ask:
    """Gives these numbers for the first kernel, in place of a compiler."""
    given = (*numbers, *(16, 0)[len(numbers) - 4 :])
    return lambda *_: [f"// {_MARK} 0 {' '.join(map(str, given))}"]


@dataclass(frozen=True)
class Question:
    """What is asked behind a byte of a file: the tiled MMA and the accumulator, as they are named there."""

    path: str
    at: int
    mma: str
    accumulator: str
    operand: str = ""
    """A, where it is in registers."""


def answered(
    questions: Sequence[Question], root: str, files: Mapping[str, bytes], include_dirs: Sequence[Path], ask: Ask
) -> list[frozenset[Types]] | str:
    """The answers to each question; a text says why there are none."""
    texts = dict(files)
    for index, one in sorted(enumerate(questions), key=lambda q: -q[1].at):
        depth = cpp("depth", mma=one.mma, operand=one.operand) if one.operand else "0"
        text = cpp("question", mark=_MARK, index=index, mma=one.mma, accumulator=one.accumulator, depth=depth)
        texts[one.path] = texts[one.path][: one.at] + as_bytes(f" {text}") + texts[one.path][one.at :]
    found = ask(root, texts, include_dirs)
    if isinstance(found, str):
        return found
    said = [tuple(map(int, m.groups())) for ptx in found for m in _ANSWER.finditer(ptx)]
    return [frozenset(Types(*numbers) for i, *numbers in said if i == index) for index in range(len(questions))]
