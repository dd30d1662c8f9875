# SPDX-License-Identifier: Apache-2.0
"""Whether code under `#if` is there for an architecture. What is not known stays unknown."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from porter.diagnostics.python_text import parse_expression
from porter.lang.cuda import CudaFile
from porter.lang.text import Span
from porter.ptx.arch import target

_WORD = re.compile(rb"[ \t]*#[ \t]*(\w+)[ \t]*(.*)", re.DOTALL)
_ARCH = re.compile(r"__CUDA_ARCH(?:_\w+)?__|__CUDA_ARCH_FEAT_\w+")
_DEFINED = re.compile(r"\bdefined\s*(?:\(\s*(\w+)\s*\)|(\w+))")
_NUMBER = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]*\b")
_DEFINITION = re.compile(rb"[ \t]*#[ \t]*(define|undef)[ \t]+(\w+)(\(?)[ \t]*([^\n]*)")
_ANY = "sm_100a"
"""What stands for every architecture where none decides."""
_TARGET_MACROS = frozenset({"__CUDA_ARCH__", "__CUDA_ARCH_SPECIFIC__", "__CUDA_ARCH_FAMILY_SPECIFIC__"})


@dataclass(frozen=True)
class Branch:
    """One branch of a conditional: its code, what has to hold for it, and what must not because it came before.
    `head` is the directive; `alone`: the conditional has no other branch."""

    head: Span
    body: Span
    condition: str
    before: tuple[str, ...]
    alone: bool


Macros = Mapping[str, int | None]
"""Macros that are defined, each with its number; None where it stands for something else."""
_UNDEFINED = False
"""In place of the number of a macro that is not defined any more."""


def given_macros(defines: Sequence[str]) -> Macros:
    """What `-D` says, as `NAME` or `NAME=VALUE`; the last one of a name holds."""
    pairs = (text.partition("=") for text in defines)
    return {name.strip(): _as_number(value) if equal else 1 for name, equal, value in pairs}


def _as_number(text: str) -> int | None:
    found = _NUMBER.fullmatch(text.strip().strip("()"))
    return int(found[1], 0 if found[1][:2].lower() == "0x" else 10) if found is not None else None


class Conditions:
    """All branches of a file. `hopper_macros` are macros of libraries that are set on Hopper alone, `macros` those that
    the compiler's command line defines."""

    def __init__(self, file: CudaFile, hopper_macros: Collection[str], macros: Macros | None = None) -> None:
        self.file, self.hopper_macros = file, frozenset(hopper_macros)
        self.branches = tuple(sorted(_branches(file), key=lambda b: b.head))
        self._starts = [b.head.start for b in self.branches]
        self._places, self._known = [0], [dict(macros or {})]
        self._learn()

    def around(self, at: int) -> list[Branch]:
        """The branches that hold an offset, outermost first."""
        return [b for b in self.branches[: bisect_right(self._starts, at)] if b.body.start <= at < b.body.end]

    def about_arch(self, branch: Branch) -> bool:
        """Whether architectures decide about a branch."""
        text = " ".join((branch.condition, *branch.before))
        return _ARCH.search(text) is not None or bool(self.hopper_macros & set(re.findall(r"\w+", text)))

    def taken(self, branch: Branch, arch: str) -> bool | None:
        """Whether a compilation for an architecture takes a branch; None if that is not known."""
        outcome: bool | None = True
        for text, wanted in (*((b, False) for b in branch.before), (branch.condition, True)):
            value = self._value(text, arch, branch.head.start) if text else True
            holds = None if value is None else bool(value) == wanted
            if holds is False:
                return False
            outcome = None if holds is None else outcome
        return outcome

    def there(self, at: int, arch: str, beside: int | None = None) -> bool | None:
        """Whether the code at an offset is compiled for an architecture, where the one at `beside` is."""
        given = self.around(beside) if beside is not None else []
        values = [self.taken(b, arch) for b in self.around(at) if b not in given]
        return False if False in values else None if None in values else True

    def is_left_out(self, at: int, arch: str) -> bool:
        """Whether macros of the sources, and not those of an architecture, keep the code at an offset from being
        compiled."""
        return any(not self.about_arch(b) and self.taken(b, arch) is False for b in self.around(at))

    def known_at(self, at: int) -> Macros:
        """The macros that are known at an offset. One that the file may define or not is none of them."""
        return self._known[bisect_right(self._places, at) - 1]

    def _learn(self) -> None:
        """What the file defines and undefines, in the order of its text."""
        for span in self.file.lexed.directives:
            match = _DEFINITION.match(self.file.lexed.code, span.start, span.end)
            if match is None:
                continue
            word, name, parameters, text = (part.decode("latin-1") for part in match.groups())
            around = [self._stands(branch, name) for branch in self.around(span.start)]
            if False in around:
                continue
            known = dict(self._known[-1])
            known.pop(name, None)
            if None not in around:
                known[name] = _UNDEFINED if word == "undef" else None if parameters else _as_number(text)
            self._places.append(span.end)
            self._known.append(known)

    def _stands(self, branch: Branch, name: str) -> bool | None:
        """Whether a branch with a definition of a name is taken, whatever the architecture; None if that is not known.
        What keeps a header from being read twice is."""
        if self.about_arch(branch):
            return None
        first = _DEFINITION.match(self.file.lexed.code, self._first_in(branch))
        guards = first is not None and not first[4].strip() and branch.condition == f"!defined({first[2].decode()})"
        return True if guards and branch.alone else self.taken(branch, _ANY)

    def _first_in(self, branch: Branch) -> int:
        """Where the first directive behind the head of a branch begins."""
        starts = (span.start for span in self.file.lexed.directives if span.start >= branch.body.start)
        return next(starts, branch.body.end)

    def _value(self, condition: str, arch: str, at: int) -> int | None:
        text = _NUMBER.sub(r"\1", _DEFINED.sub(r" _defined(\1\2) ", condition))
        text = text.replace("&&", " and ").replace("||", " or ")
        text = re.sub(r"!(?!=)", " not ", re.sub(r"\b0+(?=\d)", "", text))
        evaluation = _Evaluation(arch, self.hopper_macros, self.known_at(at))
        try:
            return evaluation.value(parse_expression(" ".join(text.split())))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


class _Evaluation:
    """A condition as Python reads it; None is what is not known."""

    def __init__(self, arch: str, hopper_macros: Collection[str], known: Macros) -> None:
        self.known = known
        found = target(arch)
        self.macros, self.hopper = found.macros, found.sm == target("sm_90a").sm
        self.hopper_macros = hopper_macros

    def value(self, node: cst.BaseExpression) -> int | None:
        match node:
            case cst.Integer():
                return node.evaluated_value
            case cst.Name(value=name):
                return self._macro(name)
            case cst.Call(func=cst.Name(value="_defined"), args=[cst.Arg(value=cst.Name(value=name))]):
                if name in self.known:
                    return int(self.known[name] is not _UNDEFINED)
                found = self._macro(name)
                return None if found is None else int(self._is_defined(name))
            case cst.UnaryOperation(operator=cst.Not(), expression=operand):
                found = self.value(operand)
                return None if found is None else int(not found)
            case cst.BooleanOperation(left=left, operator=operator, right=right):
                return _joined([self.value(left), self.value(right)], decisive=isinstance(operator, cst.Or))
            case cst.Comparison(left=left, comparisons=[cst.ComparisonTarget(operator=operator, comparator=right)]):
                return _compared(self.value(left), operator, self.value(right))
        return None

    def _is_defined(self, name: str) -> bool:
        return name in self.macros or (name in self.hopper_macros and self.hopper)

    def _macro(self, name: str) -> int | None:
        if name in self.known:
            return self.known[name]
        if name in self.hopper_macros:
            return int(self.hopper)
        if name in _TARGET_MACROS or name.startswith("__CUDA_ARCH_FEAT_"):
            return self.macros.get(name, 0)
        return {"true": 1, "false": 0}.get(name)


def _joined(values: list[int | None], decisive: bool) -> int | None:
    """`||` or `&&`: one value that decides is enough."""
    if any(v is not None and bool(v) == decisive for v in values):
        return int(decisive)
    return None if None in values else int(not decisive)


_COMPARISONS = {
    cst.Equal: lambda a, b: a == b,
    cst.NotEqual: lambda a, b: a != b,
    cst.LessThan: lambda a, b: a < b,
    cst.LessThanEqual: lambda a, b: a <= b,
    cst.GreaterThan: lambda a, b: a > b,
    cst.GreaterThanEqual: lambda a, b: a >= b,
}


def _compared(left: int | None, op: cst.BaseCompOp, right: int | None) -> int | None:
    compare = _COMPARISONS.get(type(op))
    return None if left is None or right is None or compare is None else int(compare(left, right))


def _branches(file: CudaFile) -> list[Branch]:
    found: list[Branch] = []
    open_: list[list[tuple[Span, str]]] = []
    for span in file.lexed.directives:
        match = _WORD.match(file.lexed.code, span.start, span.end)
        word = match[1] if match else b""
        text = " ".join(match[2].replace(b"\\", b" ").decode("latin-1").split()) if match else ""
        if word in (b"if", b"ifdef", b"ifndef"):
            open_.append([(span, _stated(word.removeprefix(b"if"), text))])
        elif word in (b"elif", b"elifdef", b"elifndef") and open_:
            open_[-1].append((span, _stated(word.removeprefix(b"elif"), text)))
        elif word == b"else" and open_:
            open_[-1].append((span, ""))
        elif word == b"endif" and open_:
            heads = open_.pop()
            ends = [*(head for head, _ in heads[1:]), span]
            for i, ((head, condition), end) in enumerate(zip(heads, ends, strict=True)):
                before = tuple(c for _, c in heads[:i])
                found.append(Branch(head, Span(head.end, end.start), condition, before, len(heads) == 1))
    return found


def _stated(form: bytes, text: str) -> str:
    """The condition of `#if`, `#ifdef` and `#ifndef` in the form of the first."""
    return {b"def": f"defined({text})", b"ndef": f"!defined({text})"}.get(form, text)
