# SPDX-License-Identifier: Apache-2.0
"""Which functions of a module call which, and how long they are."""

from __future__ import annotations

from collections.abc import Iterator

from porter.ptx import ast


class CallGraph:
    def __init__(self, module: ast.Module) -> None:
        self.defined = {f.name: f for f in reversed(module.functions) if f.body is not None}
        self._sizes: dict[str, int] = {}
        self._called: dict[str, frozenset[str]] = {}

    def size(self, name: str) -> int:
        """Instructions of a function."""
        if name not in self._sizes:
            self._sizes[name] = _instructions(self.defined[name].body or ())
        return self._sizes[name]

    def recurses(self, name: str) -> bool:
        """Whether a function comes back to itself."""
        seen: set[str] = set()
        work = [name]
        while work:
            for callee in self._callees(work.pop()):
                if callee == name:
                    return True
                if callee not in seen:
                    seen.add(callee)
                    work.append(callee)
        return False

    def _callees(self, name: str) -> frozenset[str]:
        if name not in self._called:
            self._called[name] = frozenset(_called(self.defined[name].body or ()) if name in self.defined else ())
        return self._called[name]


def _instructions(body: tuple[ast.Statement, ...]) -> int:
    return sum(_instructions(s.body) if isinstance(s, ast.Block) else isinstance(s, ast.Instruction) for s in body)


def _called(body: tuple[ast.Statement, ...]) -> Iterator[str]:
    for s in body:
        if isinstance(s, ast.Block):
            yield from _called(s.body)
        elif isinstance(s, ast.Instruction) and s.parts[0] == "call":
            yield from (o.name for o in s.operands if isinstance(o, ast.Sym))
