# SPDX-License-Identifier: Apache-2.0
"""Which fact a place in the sources is, which rule says so, and why the others do not.

Rules are asked where the name of a call or value, as C++ resolves it, is the one that their pattern begins with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Protocol

from tree_sitter import Node

from porter.diagnostics import Location
from porter.lang.cuda import walk
from porter.lang.text import Span, as_bytes
from porter.model.facts import TENSOR_CORE, TYPES, Doubt, Fact, Problem, Refused, Replaced
from porter.model.functions import Call, Component, Function, Path
from porter.model.names.outside import Verdict, qualified
from porter.model.names.paths import path_of
from porter.model.names.resolver import Names
from porter.model.spellings import Spellings


@dataclass(frozen=True)
class Piece:
    """What a capture is bound to: a text, and where it begins and ends in the text that was matched."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Bound:
    """A pattern that matched: the fact, and what its captures are."""

    fact: Fact
    captures: Mapping[str, Piece]


class Recognizer(Protocol):
    """One pattern of a rule. `head` is the qualified name that it begins with; `rank` what decides between rules that
    match at one place, the greater one wins; `inner_args` how many of the names in front of the last have template
    arguments in the pattern."""

    @property
    def rule(self) -> str: ...

    @property
    def library(self) -> str: ...

    @property
    def where(self) -> Location: ...

    @property
    def head(self) -> tuple[str, ...]: ...

    @property
    def kind(self) -> type[Fact]: ...

    @property
    def shown(self) -> str: ...

    @property
    def is_call(self) -> bool: ...

    @property
    def rank(self) -> tuple[int, ...]: ...

    @property
    def definition(self) -> str: ...

    @property
    def of_class(self) -> bool:
        """Whether its head is known to be a member of a class template."""
        ...

    @property
    def is_user(self) -> bool:
        """Whether it is a user's own, and not one of Porter's."""
        ...

    @property
    def receiver(self) -> tuple[str, ...]:
        """The class of the object whose method it calls; empty if it calls none."""
        ...

    @property
    def is_static(self) -> bool:
        """Whether it calls a function of whatever class is named in front of it."""
        ...

    @property
    def of_types(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Captures that have to be objects of a class, with the class."""
        ...

    def bind(
        self, rest: str, evaluate: Callable[[str], int | None], receiver: Piece | None = None, declared: str = ""
    ) -> Bound | str:
        """What a match with the text behind the name is; why there is none if there is none. `declared` is the name of
        the variable whose value the call is."""
        ...

    @property
    def replacement(self) -> str:
        """The text that stands in its place, with captures; empty if none does."""
        ...

    def place_of(self, name: str) -> str:
        """The capture that a field of the fact is."""
        ...


class Outcome(Enum):
    """How a rule fares at a place."""

    RECOGNIZED = "recognized"
    SHADOWED = "shadowed by another rule"
    TIED = "tied with another rule"
    NEAR = "near miss"
    UNSURE = "not sure"
    OTHER = "another name"


@dataclass(frozen=True)
class Attempt:
    """One rule that was tried at a place. `why` is a sentence; `by` the ID of the rule that won or ties."""

    recognizer: Recognizer
    outcome: Outcome
    why: str = ""
    by: str = ""


@dataclass(frozen=True)
class Answer:
    """What a place is. `fact` is None if no rule is for it, a Doubt if one may be; `captures` are those of the rule
    that won, with their spans in the file (None where the text stands elsewhere, as behind a macro or an alias)."""

    fact: Fact | Doubt | None = None
    recognizer: Recognizer | None = None
    captures: Mapping[str, tuple[str, Span | None]] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()


NOTHING = Answer()
_IN_NAMESPACE = 2
"""Steps of the name of a function of a library; one with more is a member of a class."""

_CALL = re.compile(r"\s*((?:::)?\s*[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)*)\s*((?:<[^()]*>\s*)?\(.*\))\s*", re.DOTALL)


@dataclass(frozen=True)
class Emitter:
    """The text for one kind of fact. It is for facts of the library `via`, or of all; one that `is_own` to a recognizer
    for what that recognizes. `asks` has what the instruction has to be, `needs` bindings without which there is no
    text, `include` is a header that it needs."""

    rule: str
    where: Location
    on: type[Fact]
    text: str
    via: str = ""
    asks: tuple[tuple[str, tuple[str, ...]], ...] = ()
    needs: tuple[str, ...] = ()
    include: str = ""
    priority: int = 0
    is_user: bool = False
    is_own: bool = False

    @property
    def rank(self) -> tuple[int, ...]:
        """The greater one writes."""
        return (self.is_own, bool(self.via), self.priority, self.is_user, len(self.asks))


class Vocabulary:
    """What rules say: recognizers by the last name of their heads, emitters, and what words are."""

    def __init__(
        self,
        words: Mapping[str, Sequence[Recognizer]],
        emitters: Sequence[Emitter] = (),
        spellings: Spellings | None = None,
    ) -> None:
        self.words = words
        self.emitters = emitters
        self.spellings = spellings or Spellings()

    def __contains__(self, name: str) -> bool:
        return name in self.words

    def of(self, name: str) -> Sequence[Recognizer]:
        return self.words.get(name, ())

    def naming(self, kinds: tuple[type[Fact], ...]) -> set[str]:
        """Words that a call of one of these kinds may have for a name."""
        return {word for word, asked in self.words.items() if any(r.kind in kinds for r in asked)}


class Facts:
    """Asks about one program."""

    def __init__(self, names: Names, vocabulary: Vocabulary, evaluate: Callable[[Function, str], int | None]) -> None:
        self.names = names
        self.vocabulary = vocabulary
        self._evaluate = evaluate
        self._known: dict[tuple[int, int], Answer] = {}

    def of_call(self, call: Call) -> Fact | Doubt | None:
        """What a call is; a doubt if it may be a fact and is not understood."""
        return self.answer(call).fact

    def answer(self, call: Call) -> Answer:
        """What a call is, and every rule that was tried on it."""
        key = (id(call.caller), call.node.id)
        if key not in self._known:
            self._known[key] = self._of_call(call)
        return self._known[key]

    def of_name(self, function: Function, node: Node) -> Fact | Doubt | None:
        """What a name, or a member of one, is where it is not called."""
        return self.answer_name(function, node).fact

    def answer_name(self, function: Function, node: Node) -> Answer:
        """The same with every rule that was tried."""
        key = (id(function), node.id)
        if key not in self._known:
            head = node.child_by_field_name("argument") if node.type == "field_expression" else node
            paths, asked = self._asked(function, head, False) if head is not None else ([], [])
            found = self._judged(function, node, head, paths, asked) if head is not None and asked else NOTHING
            self._known[key] = found
        return self._known[key]

    def of_member(self, name: str, rest: str) -> Fact | None:
        """What a method of an object is whose class is known to be one of a library; `rest` is the text behind its
        name."""
        for recognizer in self.vocabulary.of(name):
            if recognizer.is_call and len(recognizer.head) > _IN_NAMESPACE:
                bound = recognizer.bind(rest, lambda _: None)
                if isinstance(bound, Bound):
                    return bound.fact
        return None

    def of_text(self, name: str, kinds: tuple[type[Fact], ...]) -> str:
        """Why a qualified name in text that is not parsed may be a library's, as if it stood outside of all functions;
        empty if it is not."""
        steps = [s for s in name.split("::") if s]
        path = Path(tuple(Component(s) for s in steps), name.startswith("::"))
        for recognizer in self.vocabulary.of(steps[-1]):
            if recognizer.receiver:
                if recognizer.kind in kinds:
                    return f"`{name}` may be a method of `{'::'.join(recognizer.receiver)}`"
                continue
            if recognizer.kind in kinds and self.names.outside_path(path, recognizer.head) is not Verdict.NO:
                return f"`{name}` may be `{'::'.join(recognizer.head)}`"
        return ""

    def in_text(self, text: str, at: tuple[Function, Node] | None = None) -> Fact | None:
        """What a call in text that is not parsed is, as if it stood at a place of a function, or outside of all; None
        if that is not sure."""
        match = _CALL.fullmatch(text)
        if match is None:
            return None
        rooted, steps = match[1].startswith("::"), [s.strip() for s in match[1].split("::") if s.strip()]
        path = Path(tuple(Component(s) for s in steps), rooted)
        for recognizer in self.vocabulary.of(steps[-1]):
            if (
                recognizer.is_call
                and not recognizer.receiver
                and self.names.outside_path(path, recognizer.head, at) is Verdict.YES
            ):
                bound = recognizer.bind(match[2], lambda _: None)
                if isinstance(bound, Bound):
                    return bound.fact
        return None

    def _of_call(self, call: Call) -> Answer:
        callee = call.node.child_by_field_name("function") if call.node.type == "call_expression" else None
        if callee is not None and callee.type == "field_expression":
            return self._of_method(call, callee)
        if callee is None or callee.type in ("call_expression", "lambda_expression"):
            return NOTHING
        static = self._of_static(call, callee)
        if static is not None:
            return static
        paths, asked = self._asked(call.caller, callee, True)
        if not asked:
            return NOTHING
        meant = self.names.resolve(call)
        declared = {(*qualified(s.scope), call.name) for s in meant.symbols}
        if not declared and not meant.targets:
            candidates = self.names.candidates(call)
            heads = {(*qualified(s.scope), call.name) for s in candidates}
            near = [r for r in asked if r.head in heads and _is_leaf(r)]
            if near:
                what = f"`{call.caller.text(call.node)}` does not fit the declaration of `{'::'.join(near[0].head)}`"
                return _doubtful(Doubt(_gravest(near), what, Problem.NEAR, near[0].rule), near)
            unfit = bool(candidates) and meant.sure
            return self._judged(call.caller, call.node, callee, paths, asked, unfit)
        of_rule = [r for r in asked if r.head in declared and (not meant.targets or _is_leaf(r))]
        if of_rule and meant.sure and len(declared) == 1:
            # the function is what a rule says of it, whatever stands in it
            return self._bound(call.caller, call.node, callee, paths, of_rule)
        found = self._judged(call.caller, call.node, callee, paths, asked)
        if meant.sure and not of_rule and (found.fact is None or isinstance(found.fact, Doubt)):
            others = tuple(Attempt(r, Outcome.OTHER, "the sources define the function") for r in asked)
            return Answer(attempts=others)
        what = f"`{call.caller.text(callee)}` may be a function of the sources or a library's"
        return _doubtful(Doubt(_gravest(asked), what, rule=asked[0].rule), asked)

    def _of_static(self, call: Call, callee: Node) -> Answer | None:
        """What the call of a function of a class that the sources do not define is, whatever the class; None if no rule
        asks for it. The reader of the fact knows which classes it is for."""
        asked = [r for r in self.vocabulary.of(call.name) if r.is_static]
        name = callee.text or b""
        front = name.rpartition(b"::")[0] if callee.type == "qualified_identifier" else b""
        if not asked or not front or self.names.resolve(call).targets:
            return None
        at = call.caller.span(callee).start
        of = Span(at, at + len(front.rstrip()))
        last = Path((Component(call.name),))
        found = self._bound(call.caller, call.node, callee, [last], asked, (call.caller.file.text(of), of))
        return found if not isinstance(found.fact, Doubt) else None

    def _of_method(self, call: Call, callee: Node) -> Answer:
        """What the call of a method is, by the class of its object."""
        field, of = callee.child_by_field_name("field"), callee.child_by_field_name("argument")
        asked = [r for r in self.vocabulary.of(call.name) if r.receiver]
        if field is None or of is None or not asked:
            return NOTHING
        verdicts = {r.receiver: self.names.is_object(call.caller, callee, r.receiver) for r in asked}
        others = tuple(
            Attempt(r, Outcome.OTHER, f"the object is no `{'::'.join(r.receiver)}`")
            for r in asked
            if verdicts[r.receiver] is Verdict.NO
        )
        meant = [r for r in asked if verdicts[r.receiver] is Verdict.YES]
        if self.names.resolve(call).targets:
            meant = [r for r in meant if _is_leaf(r)]
        unsure = [r for r in asked if verdicts[r.receiver] is Verdict.MAYBE]
        if meant:
            span, text = call.caller.span(of), call.caller.text(of)
            found = self._bound(call.caller, call.node, field, [path_of(field, call.caller.text)], meant, (text, span))
            return replace(found, attempts=(*found.attempts, *others))
        if not unsure:
            return Answer(attempts=others)
        what = f"the class of `{call.caller.text(of)}` is not known, and may be `{'::'.join(unsure[0].receiver)}`"
        doubtful = _doubtful(Doubt(_gravest(unsure), what, rule=unsure[0].rule), unsure)
        return replace(doubtful, attempts=(*doubtful.attempts, *others))

    def of_object(self, call: Call, function: Function, object_of: Node) -> Fact | Doubt | None:
        """What the call of a method is whose object is one that another function hands over, as an expression of that;
        a doubt if its class is not known there either."""
        callee = call.node.child_by_field_name("function")
        field = callee.child_by_field_name("field") if callee is not None else None
        of = callee.child_by_field_name("argument") if callee is not None else None
        asked = [r for r in self.vocabulary.of(call.name) if r.receiver]
        if field is None or of is None:
            return None
        verdicts = {r.receiver: self.names.is_of_class(function, object_of, r.receiver) for r in asked}
        meant = [r for r in asked if verdicts[r.receiver] is Verdict.YES]
        if meant:
            given = (call.caller.text(of), call.caller.span(of))
            return self._bound(call.caller, call.node, field, [path_of(field, call.caller.text)], meant, given).fact
        unsure = [r for r in asked if verdicts[r.receiver] is Verdict.MAYBE]
        what = f"the class of `{function.text(object_of)}` is not known"
        return Doubt(_gravest(unsure), what, rule=unsure[0].rule) if unsure else None

    def _asked(self, function: Function, head: Node, is_call: bool) -> tuple[list[Path], list[Recognizer]]:
        """A name as the sources write it, macros expanded, and the recognizers for its last part."""
        paths = [p for p in self.names.written(function, head) if p.steps]
        last = {p.steps[-1].name for p in paths}
        asked = [r for name in sorted(last) for r in self.vocabulary.of(name) if r.is_call is is_call]
        # names of types are found in text, where they stand outside of functions too
        return paths, [r for r in asked if not r.receiver and not r.is_static and r.kind not in TYPES]

    def _judged(
        self,
        function: Function,
        node: Node,
        head: Node,
        paths: list[Path],
        asked: list[Recognizer],
        unfit: bool = False,
    ) -> Answer:
        """What a name is that the sources do not declare, or only for other arguments; or a value that a rule
        replaces."""
        verdicts = {r.head: self._verdict(function, head, r, unfit) for r in asked}
        if any(self.names.is_dependent(function, head, p) for p in paths):
            # the class that the template is for may be the rule's
            verdicts |= {r.head: Verdict.MAYBE for r in asked if r.of_class}
        others = tuple(
            Attempt(r, Outcome.OTHER, f"the name is not `{'::'.join(r.head)}`")
            for r in asked
            if verdicts[r.head] is Verdict.NO
        )
        meant = [r for r in asked if verdicts[r.head] is Verdict.YES]
        if meant:
            found = self._bound(function, node, head, paths, meant)
            return replace(found, attempts=(*found.attempts, *others))
        unsure = [r for r in asked if verdicts[r.head] is Verdict.MAYBE]
        if not unsure:
            return Answer(attempts=others)
        what = _unknown("::".join(s.name for s in paths[0].steps), unsure[0].head)
        doubtful = _doubtful(Doubt(_gravest(unsure), what, rule=unsure[0].rule), unsure)
        return replace(doubtful, attempts=(*doubtful.attempts, *others))

    def _verdict(self, function: Function, head: Node, recognizer: Recognizer, unfit: bool) -> Verdict:
        if recognizer.kind is Replaced and not recognizer.is_call:
            return self.names.anywhere(function, head, recognizer.head)
        return self.names.outside(function, head, recognizer.head, unfit)

    def _bound(
        self,
        function: Function,
        node: Node,
        head: Node,
        paths: list[Path],
        meant: list[Recognizer],
        receiver: tuple[str, Span] | None = None,
    ) -> Answer:
        """The fact of the rule that ranks highest among those whose pattern the text is. `receiver`: the object whose
        method is called, and its place."""
        at = _name_end(head) + function.shift
        rest = function.file.text(Span(at, node.end_byte + function.shift))
        args = paths[0].steps[-1].args
        front = _inner_args(self.names.unaliased(function, head, paths[0]))
        if args and "<" not in rest.split("(", 1)[0]:
            front += f"<{', '.join(args)}>"
        of = Piece(receiver[0], 0, 0) if receiver is not None else None

        def place(piece: Piece) -> Span | None:
            return _span(at, rest, piece.start - len(front), piece.end - len(front))

        tried: list[tuple[Recognizer, Bound | str]] = []
        for recognizer in meant:
            found = recognizer.bind(front + rest, partial(self._evaluate, function), of, _declared(function, node))
            if isinstance(found, Bound) and recognizer.of_types:
                spans = {name: place(piece) for name, piece in found.captures.items()}
                found = self._other_class(function, node, recognizer, spans) or found
            tried.append((recognizer, found))
        matched = [(r, b) for r, b in tried if isinstance(b, Bound)]
        near = tuple(Attempt(r, Outcome.NEAR, b) for r, b in tried if isinstance(b, str))
        if not matched:
            name, first = "::".join(meant[0].head), near[0]
            what = f"`{function.text(node)}` is no form of `{name}` that a rule knows: {first.why}"
            return Answer(Doubt(_gravest(meant), what, Problem.NEAR, meant[0].rule), attempts=near)
        matched.sort(key=lambda m: (m[0].rank, m[0].rule), reverse=True)
        winner, bound = matched[0]
        rivals = [r for r, b in matched[1:] if r.rank == winner.rank and b.fact != bound.fact]
        if rivals:
            tied = tuple(Attempt(r, Outcome.TIED, by=o.rule) for r, o in ((winner, rivals[0]), (rivals[0], winner)))
            what = f"{winner.rule} ({winner.where}) and {rivals[0].rule} ({rivals[0].where}) are both for it"
            return Answer(Doubt(_gravest([winner, *rivals]), what, Problem.TIED, winner.rule), attempts=(*tied, *near))
        captures = {
            name: receiver if receiver is not None and p is of else (p.text, place(p))
            for name, p in bound.captures.items()
        }
        shadowed = tuple(Attempt(r, Outcome.SHADOWED, by=winner.rule) for r, _ in matched[1:] if r.rule != winner.rule)
        return Answer(bound.fact, winner, captures, (Attempt(winner, Outcome.RECOGNIZED), *shadowed, *near))

    def _other_class(
        self, function: Function, node: Node, recognizer: Recognizer, spans: Mapping[str, Span | None]
    ) -> str:
        """Why a capture is no object of the class that it has to be; empty if all are."""
        for name, target in recognizer.of_types:
            found = next((n for n in walk(node) if function.span(n) == spans[name]), None)
            verdict = self.names.is_of_class(function, found, target) if found is not None else Verdict.MAYBE
            if verdict is not Verdict.YES:
                of = function.text(found) if found is not None else f"${name}"
                how = "is not known to be" if verdict is Verdict.MAYBE else "is no object of"
                return f"`{of}` {how} `{'::'.join(target)}`"
        return ""


def _declared(function: Function, node: Node) -> str:
    """The variable whose value an expression is; empty if it is none's."""
    above = node.parent
    if above is None or above.type != "init_declarator" or above.child_by_field_name("value") != node:
        return ""
    name = above.child_by_field_name("declarator")
    while name is not None and name.type != "identifier":
        name = name.child_by_field_name("declarator") or (name.named_children[0] if name.named_children else None)
    return function.text(name) if name is not None else ""


def _gravest(recognizers: Sequence[Recognizer]) -> type[Fact]:
    """Of the kinds that a place may be, the one that must be missed least."""
    kinds = [r.kind for r in recognizers]
    return next((k for k in (*TENSOR_CORE, Refused) if k in kinds), kinds[0])


def _is_leaf(recognizer: Recognizer) -> bool:
    """Whether what the rule says stands for the body of the function, where that is at hand."""
    return recognizer.definition != "read" and recognizer.kind in (*TENSOR_CORE, Refused, Replaced)


def _doubtful(doubt: Doubt, asked: Sequence[Recognizer]) -> Answer:
    outcome = Outcome.NEAR if doubt.problem is Problem.NEAR else Outcome.UNSURE
    return Answer(doubt, attempts=tuple(Attempt(r, outcome, doubt.what) for r in asked))


def _inner_args(path: Path) -> str:
    """The template arguments of the names in front of the last, as patterns have them in front of the rest."""
    return "".join(f"<{', '.join(s.args)}>::" for s in path.steps[:-1] if s.args is not None)


def _span(at: int, rest: str, start: int, end: int) -> Span | None:
    """Where a part of the text behind a name stands in the file."""
    if start < 0:
        return None
    first = at + len(as_bytes(rest[:start]))
    return Span(first, first + len(as_bytes(rest[start:end])))


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
