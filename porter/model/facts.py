# SPDX-License-Identifier: Apache-2.0
"""What calls and names of libraries are: facts, as rules recognize them. The model knows no library's names.

A new spelling of a fact is a rule; a new kind is a class here, and someone who reads it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tree_sitter import Node

from porter.lang.text import Span
from porter.model.functions import Call, Component, Function, Path
from porter.model.names.outside import Verdict, qualified
from porter.model.names.resolver import Names


@dataclass(frozen=True)
class Fence:
    """Orders registers and shared memory before the MMAs that follow, as `wgmma.fence` does."""


@dataclass(frozen=True)
class Commit:
    """Closes a batch of MMAs."""


@dataclass(frozen=True)
class Wait:
    """Waits until at most `pending` batches run; the text of a constant expression."""

    pending: str


@dataclass(frozen=True)
class RegisterFence:
    """Keeps the compiler from moving registers, and does nothing to them."""


@dataclass(frozen=True)
class Index:
    """A thread's index, or what it comes to: (threadIdx.x / step) % modulo + offset."""

    step: int = 1
    modulo: int = 0
    """0: no remainder is taken."""
    offset: int = 0
    uniform: bool = False
    """Whether the value of the first lane is handed to the whole warp."""


@dataclass(frozen=True)
class Broadcast:
    """All lanes of a warp get one value: that which the text `of` has in `lane`, or one that no text says."""

    of: str = ""
    lane: str = ""


@dataclass(frozen=True)
class Constant:
    """A constant whose definition is not at hand."""

    value: int


@dataclass(frozen=True)
class Abort:
    """No thread goes on behind it, or none gets there."""


Fact = Fence | Commit | Wait | RegisterFence | Index | Broadcast | Constant | Abort

KINDS: Mapping[str, type[Fact]] = {
    "fence": Fence,
    "commit": Commit,
    "wait": Wait,
    "register_fence": RegisterFence,
    "index": Index,
    "broadcast": Broadcast,
    "constant": Constant,
    "abort": Abort,
}
"""By the name that rules have for them."""

TENSOR_CORE = (Fence, Commit, Wait)
"""Facts whose place must not be missed: an MMA's operands and results hang on them."""


@dataclass(frozen=True)
class Doubt:
    """A place that may be one that a rule is for, and is not taken for it."""

    kind: type[Fact]
    what: str


class Recognizer(Protocol):
    """One pattern of a rule. `head` is the qualified name that it begins with."""

    @property
    def head(self) -> tuple[str, ...]: ...

    @property
    def kind(self) -> type[Fact]: ...

    @property
    def shown(self) -> str: ...

    @property
    def is_call(self) -> bool: ...

    def bind(self, rest: str, evaluate: Callable[[str], int | None]) -> Fact | None:
        """The fact at a name that `rest` follows, None if that is not what the pattern asks for."""
        ...


_CALL = re.compile(r"\s*((?:::)?\s*[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)*)\s*((?:<[^()]*>\s*)?\(.*\))\s*", re.DOTALL)

Vocabulary = Mapping[str, Sequence[Recognizer]]
"""Recognizers by the last name of their heads."""


class Facts:
    """Asks about one program."""

    def __init__(self, names: Names, vocabulary: Vocabulary, evaluate: Callable[[Function, str], int | None]) -> None:
        self.names = names
        self.vocabulary = vocabulary
        self._evaluate = evaluate
        self._known: dict[tuple[int, int], Fact | Doubt | None] = {}

    def of_call(self, call: Call) -> Fact | Doubt | None:
        """What a call is; a doubt if it may be a fact and is not understood."""
        key = (id(call.caller), call.node.id)
        if key not in self._known:
            self._known[key] = self._of_call(call)
        return self._known[key]

    def of_name(self, function: Function, node: Node) -> Fact | Doubt | None:
        """What a name, or a member of one, is where it is not called."""
        key = (id(function), node.id)
        if key not in self._known:
            head = node.child_by_field_name("argument") if node.type == "field_expression" else node
            paths, asked = self._asked(function, head, False) if head is not None else ([], [])
            self._known[key] = self._judged(function, node, head, paths, asked) if head is not None else None
        return self._known[key]

    def of_text(self, name: str, kinds: tuple[type[Fact], ...]) -> str:
        """Why a qualified name in text that is not parsed may be a library's, as if it stood outside of all functions;
        empty if it is not."""
        steps = [s for s in name.split("::") if s]
        path = Path(tuple(Component(s) for s in steps), name.startswith("::"))
        for recognizer in self.vocabulary.get(steps[-1], ()):
            if recognizer.kind in kinds and self.names.outside_path(path, recognizer.head) is not Verdict.NO:
                return f"`{name}` may be `{'::'.join(recognizer.head)}`"
        return ""

    def in_text(self, text: str) -> Fact | None:
        """What a call in a macro's text is, as if it stood outside of all functions; None if that is not sure."""
        match = _CALL.fullmatch(text)
        if match is None:
            return None
        rooted, steps = match[1].startswith("::"), [s.strip() for s in match[1].split("::") if s.strip()]
        path = Path(tuple(Component(s) for s in steps), rooted)
        for recognizer in self.vocabulary.get(steps[-1], ()):
            if recognizer.is_call and self.names.outside_path(path, recognizer.head) is Verdict.YES:
                fact = recognizer.bind(match[2], lambda _: None)
                if fact is not None:
                    return fact
        return None

    def _of_call(self, call: Call) -> Fact | Doubt | None:
        callee = call.node.child_by_field_name("function") if call.node.type == "call_expression" else None
        if callee is None or callee.type in ("field_expression", "call_expression", "lambda_expression"):
            return None
        paths, asked = self._asked(call.caller, callee, True)
        if not asked:
            return None
        meant = self.names.resolve(call)
        declared = {(*qualified(s.scope), call.name) for s in meant.symbols}
        if not declared and not meant.targets:
            return self._judged(call.caller, call.node, callee, paths, asked)
        of_rule = [r for r in asked if r.head in declared] if not meant.targets else []
        if of_rule and meant.sure and len(declared) == 1:
            # a function without a body at hand is what a rule says of it
            return self._bound(call.caller, call.node, callee, paths, of_rule)
        found = self._judged(call.caller, call.node, callee, paths, asked)
        if meant.sure and not of_rule and (found is None or isinstance(found, Doubt)):
            return None
        return Doubt(asked[0].kind, f"`{call.caller.text(callee)}` may be a function of the sources or a library's")

    def _asked(self, function: Function, head: Node, is_call: bool) -> tuple[list[Path], list[Recognizer]]:
        """A name as the sources write it, macros expanded, and the recognizers for its last part."""
        paths = [p for p in self.names.written(function, head) if p.steps]
        last = {p.steps[-1].name for p in paths}
        return paths, [r for name in sorted(last) for r in self.vocabulary.get(name, ()) if r.is_call is is_call]

    def _judged(
        self, function: Function, node: Node, head: Node, paths: list[Path], asked: list[Recognizer]
    ) -> Fact | Doubt | None:
        """What a name is that the sources do not declare."""
        verdicts = {r.head: self.names.outside(function, head, r.head) for r in asked}
        meant = [r for r in asked if verdicts[r.head] is Verdict.YES]
        if meant:
            return self._bound(function, node, head, paths, meant)
        unsure = next((r for r in asked if verdicts[r.head] is Verdict.MAYBE), None)
        if unsure is None:
            return None
        return Doubt(unsure.kind, _unknown("::".join(s.name for s in paths[0].steps), unsure.head))

    def _bound(
        self, function: Function, node: Node, head: Node, paths: list[Path], meant: list[Recognizer]
    ) -> Fact | Doubt:
        """The fact of the first recognizer whose pattern the text is."""
        rest = function.file.text(Span(_name_end(head) + function.shift, node.end_byte + function.shift))
        args = paths[0].steps[-1].args
        if args and "<" not in rest.split("(", 1)[0]:
            rest = f"<{', '.join(args)}>{rest}"
        for recognizer in meant:
            fact = recognizer.bind(rest, lambda text: self._evaluate(function, text))
            if fact is not None:
                return fact
        name = "::".join(meant[0].head)
        return Doubt(meant[0].kind, f"`{function.text(node)}` is no form of `{name}` that a rule knows")


def _unknown(written: str, head: tuple[str, ...]) -> str:
    return (
        f"`{written}` is declared nowhere in the sources and may be `{'::'.join(head)}` or another function; give its "
        "header with -I, or name the namespace"
    )


def _name_end(head: Node) -> int:
    """Where the last plain name of a head ends: its template arguments follow."""
    while True:
        inner = head.child_by_field_name("name")
        if inner is None and head.type == "dependent_name" and head.named_children:
            inner = head.named_children[-1]
        if inner is None:
            return head.end_byte
        head = inner
