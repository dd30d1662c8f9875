# SPDX-License-Identifier: Apache-2.0
"""Bulk stores that may read shared memory which other warps have not written yet, as a kernel's PTX says it.

Warps of a warpgroup that come out of a wgmma at one time mask a barrier that is missing between their stores to shared
memory and the thread that issues the copy; those of a port do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from porter.facts.code import Code, is_test
from porter.ptx import ast
from porter.ptx.parser import PtxSyntaxError, parse_module

_MAY = re.compile(r"\bcp\.(?:reduce\.)?async\.bulk\.[\w.:]*bulk_group")
_MEETINGS = ("bar", "barrier")


@dataclass(frozen=True)
class Unready:
    """A bulk store at `loc` that comes behind stores of several warps at `writer` with nothing that they meet at."""

    entry: str
    loc: ast.SourceLoc
    writer: ast.SourceLoc

    @property
    def lines(self) -> tuple[str, int, int]:
        """The kernel's own file, the line of the store there, and that of what writes."""
        store, writer = list(self.loc.outwards())[-1], list(self.writer.outwards())[-1]
        return store.file, store.line, writer.line


@lru_cache(maxsize=16)
def unready(ptx: str) -> tuple[Unready, ...]:
    """Such stores of the kernels of a module that use the tensor core; none of a text that is not PTX."""
    if not _MAY.search(ptx) or "stmatrix" not in ptx:
        return ()
    try:
        module = parse_module(ptx)
    except PtxSyntaxError:
        return ()
    found: list[Unready] = []
    for entry in module.entries():
        code = Code(module, entry)
        if code.multiplies:
            found += _of(code)
    return tuple(found)


def _of(code: Code) -> Iterator[Unready]:
    for at, ins in enumerate(code.code):
        if not _is_store(ins) or ins.loc is None:
            continue
        writer = _writer(code, at)
        if writer is not None and writer.loc is not None:
            yield Unready(code.entry.name, ins.loc, writer.loc)


def _is_store(ins: ast.Instruction) -> bool:
    return ins.parts[0] == "cp" and "bulk_group" in ins.parts


def _writer(code: Code, store: int) -> ast.Instruction | None:
    """A stmatrix that may come ahead of a store with nothing between that warps wait at."""
    todo, seen = list(code.predecessors[store]), {store}
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        ins = code.code[at]
        if ins.parts[0] == "stmatrix":
            return ins
        if not (ins.parts[0] in _MEETINGS or is_test(ins)):
            todo += code.predecessors[at]
    return None
