# SPDX-License-Identifier: Apache-2.0
"""What asks which chip it runs on or is compiled for, held against the port.

A condition that Hopper meets has to be one that the port's chip meets, once the port's edits are made, and the other
way round. Conditions are evaluated for both chips, in the host's code, in the bodies of macros and in directives; where
they disagree, and where a chip is asked for in a way that is not evaluated, the place is left over.
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from types import MappingProxyType

from tree_sitter import Node

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.cuda import CudaFile, enclosing, find, location, parse_tree, span
from porter.lang.lexical import lexed
from porter.lang.sources import SourceSet
from porter.lang.text import Edit, EditGroup, Safety, Span, apply_groups
from porter.model.spellings import Spellings
from porter.passes.chip_flow import End, Flow, listed_versions
from porter.passes.chip_names import Names, last_word, literal_value
from porter.ptx.arch import AROUND_HOPPER, CHIPS, HOPPER, SM100A, PortTarget
from porter.rules.recognize import spellings
from porter.rules.rule import Compares, Region, Rule

_MOST_UNKNOWN = 8
_DEEPEST = 60

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_CALCULATE: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "<<": lambda a, b: a << min(b, 16), "|": operator.or_,
    "/": lambda a, b: a // b if b else 0, "%": lambda a, b: a % b if b else 0,
}  # fmt: skip
_Number = Callable[[int, int], float]
"""Of a chip, by its number such as 90, and the unit of what is one number."""
_Truth = Callable[[int, Mapping[str, bool]], bool]


@dataclass(frozen=True)
class _Ported:
    """The port's edits of one file: all, the places of those that stay where the original's form does, and the numbers
    that something is compared with, by where they end."""

    edits: Sequence[Edit]
    replaced: Sequence[Span]
    numbers: Mapping[int, int]


@dataclass(frozen=True)
class _Place:
    """Where a chip is asked for. `others`: chips that a condition admits beside the port's; none: it is left over."""

    where: Span
    others: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Checked:
    """The groups without edits of which it is not known that they are right, what is left over, and conditions that
    admit more chips than the port runs on."""

    groups: list[EditGroup]
    left: list[Diagnostic]
    notes: list[Diagnostic] = field(default_factory=list)


def check_chips(
    sources: SourceSet, groups: Sequence[EditGroup], keep: bool, rules: Sequence[Rule], target: PortTarget = SM100A
) -> Checked:
    """The port's groups held against everything in the sources that asks for a chip. `keep`: the original's form stays
    beside the port's."""
    names = Names(sources, spellings(rules), target)
    comparing = {r.id for r in rules if r.compares is Compares.DEVICE}
    in_strings = {r.id for r in rules if r.region is Region.STRING}
    kept: list[EditGroup] = []
    unsure: set[tuple[str, int]] = set()
    for group in groups:
        edits = list(group.edits)
        if group.rule in comparing:
            edits = [e for e in edits if _is_sure(sources.files[e.path], e, names)]
            unsure |= {(e.path, e.span.end) for e in group.edits if e not in edits}
        if edits:
            kept.append(replace(group, edits=tuple(edits)))
    flow = Flow(names.files, names)
    runs = {HOPPER} if keep else set()
    left: dict[tuple[str, int], Diagnostic] = {}
    notes: dict[tuple[str, int], Diagnostic] = {}
    for path, file in sources.files.items():
        mine = [(g.rule, e) for g in kept for e in g.edits if e.path == path]
        ported = _Ported(
            sorted((e for _, e in mine), key=lambda e: e.span),
            [e.span for rule, e in mine if not (keep and rule in in_strings)],
            {e.span.end: int(n[0]) for r, e in mine if r in comparing for n in [_DIGITS.search(e.replacement)] if n},
        )
        for place in _places(file, ported, names, {end for p, end in unsure if p == path}, flow):
            where, others = place.where, place.others - runs
            if not place.others:
                values = {"text": _shown(file.source[where.start : where.end])}
                left.setdefault((path, where.start), Diagnostic(Code.CHIP_CHECK_LEFT, location(file, where), values))
            elif others:
                text = _shown(_edited(file, where, ported.edits))
                notes[path, where.start] = admits_others(location(file, where), text, others, target)
    return Checked(kept, [left[key] for key in sorted(left)], [notes[key] for key in sorted(notes)])


def admits_others(where: Location, text: str, others: Collection[int], target: PortTarget) -> Diagnostic:
    """A condition as the port has it admits chips that have no image."""
    newer = [PortTarget(chip).version for chip in sorted(others) if chip >= HOPPER]
    values = {"text": text, "others": ", ".join(newer), "target": target.name, "more": ""}
    return Diagnostic(Code.CHIP_CHECK_ADMITS, where, values)


def said_once(diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The same with one note for all conditions that admit other chips."""
    notes = [d for d in diagnostics if d.code is Code.CHIP_CHECK_ADMITS]
    if len(notes) < 2:
        return list(diagnostics)
    places = [f"{d.where.path}:{d.where.line}" for d in notes[1:] if d.where is not None]
    one = replace(notes[0], values={**notes[0].values, "more": f"; so do {', '.join(dict.fromkeys(places))}"})
    return [one if d is notes[0] else d for d in diagnostics if d is notes[0] or d not in notes]


def _shown(source: bytes) -> str:
    return " ".join(source.decode("utf-8", "replace").split())[:100]


def _is_sure(file: CudaFile, edit: Edit, names: Names) -> bool:
    """Whether what an edit compares is read from the device."""
    node = file.root.descendant_for_byte_range(edit.span.start, max(edit.span.start, edit.span.end - 1))
    while node is not None and node.type != "binary_expression":
        node = node.parent
    right = node.child_by_field_name("right") if node is not None else None
    if node is None or right is None or right.end_byte != edit.span.end:
        return False
    left = node.child_by_field_name("left")
    return left is not None and not any(names.is_constant(file, n) or names.is_given(file, n) for n in _leaves(left))


def _leaves(node: Node) -> Iterator[Node]:
    yield from find(node, "identifier", "field_identifier")


def _places(file: CudaFile, ported: _Ported, names: Names, unsure: set[int], flow: Flow) -> Iterator[_Place]:
    reader = _Reader(file.source, names, lambda node: names.is_constant(file, node), ported.numbers)
    found = list(reader.places(file.root, unsure))
    yield from (p for p in found if not names.spellings.stand_in("capability_in_hundreds", _text_of(file, p.where)))
    ends = [where for end in flow.ends if end.file is file for where in _decided(end, flow, reader)]
    yield from (_Place(w) for w in ends if not any(p.where.contains(w) for p in found))
    yield from _of_macros(file, names)
    yield from map(_Place, _told(file, ported, names))


def _of_macros(file: CudaFile, names: Names) -> Iterator[_Place]:
    """Macros that ask, each as the first of its conditions that disagrees, or as one that admits other chips."""
    macros = list(file.lexed.macros())
    # asked at once first: there may be thousands
    for macro in macros if names.mentions(b"\n".join(m.body for m in macros)) else ():
        text = b"void f() {" + macro.body.replace(b"\\\n", b" \n").replace(b"\\\r\n", b" \r\n") + b";}"
        if names.mentions(text):
            inner = _Reader(text, names, lambda node: False, {})
            found = list(inner.places(parse_tree(text).root_node, set()))
            if found:
                yield _Place(macro.span, min((p.others for p in found), key=len))


def _text_of(file: CudaFile, where: Span) -> str:
    return file.source[where.start : where.end].decode("utf-8", "replace")


def _decided(end: End, flow: Flow, reader: _Reader) -> Iterator[Span]:
    """What a capability decides at the end of its way, where it is not known that both chips come to the same."""
    node, target = end.node, flow.names.target
    sides = [n for n in (node.child_by_field_name("left"), node.child_by_field_name("right")) if n is not None]
    compares = node.type == "binary_expression" and _operator(node) in _COMPARE and len(sides) == 2
    asked = compares and all(flow.is_asked(end.file, side) for side in sides)
    # a member of a structure of the program's own may hold what is required
    required = asked and any(flow.names.is_given(end.file, leaf) for side in sides for leaf in _leaves(side))
    if compares and not required and (asked or reader.is_judged(node)):
        return
    if node.type == "switch_statement" and reader.is_switch(node):
        return
    tables = list(listed_versions(end.file, node)) if not compares or _operator(node) in ("==", "!=") else []
    for listed, numbers in tables:
        if _for_hopper_alone(numbers, target):
            yield span(listed)
    if not tables:
        condition = node.child_by_field_name("condition") if node.type == "switch_statement" else None
        yield span(condition or node)


def _for_hopper_alone(numbers: Collection[float], target: PortTarget, own: float | None = None) -> bool:
    """Whether versions that are listed have Hopper's, or the one that is `own`, and not the port's."""
    found = [u for u in _UNITS if _in_unit(HOPPER, u) in ((own,) if own is not None else numbers)]
    return any(_in_unit(target.sm, unit) not in numbers for unit in found)


def _told(file: CudaFile, ported: _Ported, names: Names) -> Iterator[Span]:
    """Places outside of what the grammar reads as conditions."""
    for whole in map(span, _taken_for_templates(file, names)):
        if _differ(file.source[whole.start : whole.end], _edited(file, whole, ported.edits), names):
            yield whole
    judged: dict[tuple[bytes, bytes], bool] = {}
    for found in file.lexed.directives:
        if _CONDITION.match(file.source, found.start, found.end) is None:
            continue
        texts = file.source[found.start : found.end], _edited(file, found, ported.edits)
        if texts not in judged:
            before, after = (m["text"] for t in texts if (m := _CONDITION.match(t)) is not None)
            judged[texts] = _differ(before, after, names)
        if judged[texts]:
            yield found
    yield from (w for w in _told_by_text(file, names) if not any(w.overlaps(e) for e in ported.replaced))


def _taken_for_templates(file: CudaFile, names: Names) -> Iterator[Node]:
    """Conditions that the grammar takes for an assignment to a template (`a < 1 || b >= 2`)."""
    for node in find(file.root, "assignment_expression"):
        left = node.child_by_field_name("left")
        if left is None or left.type != "template_function":
            continue
        while (outer := node.parent) is not None and outer.type in _EXPRESSIONS:
            node = outer
        if names.mentions(file.source[node.start_byte : node.end_byte]):
            yield node


_EXPRESSIONS = ("assignment_expression", "binary_expression", "unary_expression", "parenthesized_expression")
_DIGITS = re.compile(rb"\d+$")
_CONDITION = re.compile(rb"[ \t]*#[ \t]*(?:if|elif)\b(?P<text>[^\n]*(?:\\\r?\n[^\n]*)*)")


def _edited(file: CudaFile, where: Span, edits: Sequence[Edit]) -> bytes:
    """A place with those of the edits, in order, that are in it."""
    first = bisect_left(edits, where.start, key=lambda e: e.span.start)
    near = edits[first : bisect_left(edits, where.end, first, key=lambda e: e.span.start)]
    inside = [Edit("", Span(e.span.start - where.start, e.span.end - where.start), e.replacement)
              for e in near if where.contains(e.span) and len(e.span)]  # fmt: skip
    group = EditGroup("", "", Safety.REVIEW, tuple(inside))
    return apply_groups({"": file.source[where.start : where.end]}, [group])[""]


_SIGN = re.compile(rb"(?<![<>])(?:<=|>=|==|!=|<|>)(?![<>])")
_IGNORED = re.compile(rb"//.*|/\*.*?\*/|\\\r?\n", re.DOTALL)


def _differ(before: bytes, after: bytes, names: Names) -> bool:
    """Whether a condition is one thing for Hopper and its port another one for the port's chip."""
    made = []
    for text in (before, after):
        inside = re.sub(rb"\bdefined\s+(\w+)", rb"defined(\1)", _IGNORED.sub(b" ", text))
        for word, token in _TOKENS.items():
            inside = re.sub(rb"\b" + word + rb"\b", token, inside)
        code, signs, at = bytearray(b"int x = ("), {}, 0
        for match in _SIGN.finditer(inside):
            # with this sign nothing is taken for a template
            code += inside[at : match.start()]
            signs[len(code)] = match[0].decode()
            code += b"=="
            at = match.end()
        code += inside[at:] + b");"
        reader = _Reader(bytes(code), names, lambda node: False, {}, signs)
        value = next(find(parse_tree(bytes(code)).root_node, "parenthesized_expression"), None)
        if value is None or value.has_error:
            return names.mentions(before) and _VERSION.search(before) is not None
        made.append((reader, reader.truth(value)))
    (first, old), (second, new) = made
    return first.uses and _disagree(old, new, first.unknown | second.unknown, names.target.sm)


_TOKENS = {b"and": b"&&", b"or": b"||", b"not": b"!"}
"""Other spellings of operators."""
_VERSION = re.compile(rb"(?<![\w.])(?:9|90|900|10|100|1000)(?![\w.])")


def _disagree(old: _Truth, new: _Truth, unknown: set[str], port: int) -> bool:
    """Whether the first for Hopper is something else than the second for the port, whatever else holds."""
    if len(unknown) > _MOST_UNKNOWN:
        return True
    ordered = sorted(unknown)
    given = (dict(zip(ordered, values, strict=True)) for values in product((False, True), repeat=len(ordered)))
    return any(old(HOPPER, known) != new(port, known) for known in given)


def _admitted(old: _Truth, new: _Truth, unknown: set[str], port: int) -> frozenset[int]:
    """The chips for which a condition of the port holds as for the port's own, though the original's tells Hopper from
    what is older or newer; none where it tells no chips apart there."""
    if len(unknown) > _MOST_UNKNOWN:
        return frozenset()
    ordered, found = sorted(unknown), set(CHIPS) - {port}
    tells = False
    for values in product((False, True), repeat=len(ordered)):
        known = dict(zip(ordered, values, strict=True))
        tells = tells or len({old(chip, known) for chip in AROUND_HOPPER}) > 1
        found = {chip for chip in found if new(chip, known) == new(port, known)}
    return frozenset(found) if tells else frozenset()


def _in_unit(chip: int, unit: int) -> int:
    """A chip's version in what it is written in: the first number, tens, hundreds, nibbles."""
    major, minor = divmod(chip, 10)
    return {1: major, 10: chip, 100: 10 * chip, 16: 16 * major + minor}[unit]


_UNITS = (1, 10, 100, 16)


class _Reader:
    """Conditions of one text as functions of the chip and of what is not known. `edits`: numbers that the port has in
    place of others, by where those end."""

    def __init__(
        self,
        source: bytes,
        names: Names,
        constant: Callable[[Node], bool],
        edits: Mapping[int, int],
        signs: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self.source = source
        self.names = names
        self.unknown: set[str] = set()
        self.uses = False
        self._constant = constant
        self._edits = edits
        self._signs = signs
        self._ported = self._minor = False

    def places(self, root: Node, unsure: set[int]) -> Iterator[_Place]:
        """Conditions that disagree, switches over a capability, and conditions that admit other chips too."""
        seen: set[int] = set()
        plain = lexed(self.source).plain
        for node in find(root, "binary_expression"):
            if plain[node.start_byte : node.end_byte].isspace():
                # of a directive
                continue
            if self._sign(node) not in _COMPARE or not self.names.mentions(
                self.source[node.start_byte : node.end_byte]
            ):
                continue
            whole = _whole_condition(node)
            if whole.id in seen:
                continue
            seen.add(whole.id)
            self.unknown, self.uses = set(), False
            old = self.truth(whole)
            self._ported = True
            new = self.truth(whole)
            self._ported = False
            right = node.child_by_field_name("right")
            given = right is not None and right.end_byte in unsure and not self._constant_in(node)
            port = self.names.target.sm
            if given or (self.uses and _disagree(old, new, self.unknown, port)):
                yield _Place(span(whole))
            elif self.uses and (others := _admitted(old, new, self.unknown, port)):
                yield _Place(span(whole), others)
        for node in find(root, "switch_statement"):
            yield from map(_Place, self._switch(node))

    def _sign(self, node: Node) -> str:
        sign = node.child_by_field_name("operator")
        return self._signs.get(sign.start_byte if sign is not None else -1) or _operator(node, self.source)

    def _constant_in(self, node: Node) -> bool:
        return any(self._constant(n) for n in _leaves(node))

    def _switch(self, node: Node) -> Iterator[Span]:
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        inner = next(iter(condition.named_children), None) if condition is not None else None
        if inner is None or body is None or self._number(inner) is None or not self.uses:
            self.uses = False
            return
        self.uses = False
        cases = [c for c in body.named_children if c.type == "case_statement"]
        shared: list[tuple[Node, float]] = []
        for case in cases:
            label = case.child_by_field_name("value")
            value = self._constant_value(label) if label is not None else None
            if label is not None and value is not None:
                shared.append((label, value))
            if len(case.named_children) > 1 or label is None:
                yield from self._hopper_alone(shared)
                shared = []

    def is_judged(self, node: Node) -> bool:
        """Whether a comparison is of a capability with a number that is known."""
        left, right, sign = node.child_by_field_name("left"), node.child_by_field_name("right"), self._sign(node)
        return left is not None and right is not None and self._compared(left, sign, right) is not None

    def is_switch(self, node: Node) -> bool:
        """Whether a switch is over a capability, with labels that are known."""
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        inner = next(iter(condition.named_children), None) if condition is not None else None
        labels = [c.child_by_field_name("value") for c in (body.named_children if body is not None else ())
                  if c.type == "case_statement"]  # fmt: skip
        known = all(n is None or self._constant_value(n) is not None for n in labels)
        return known and inner is not None and self._number(inner) is not None

    def _hopper_alone(self, labels: Sequence[tuple[Node, float]]) -> Iterator[Span]:
        values = {value for _, value in labels}
        for label, value in labels:
            if value in values and _for_hopper_alone(values, self.names.target, value):
                yield Span(label.start_byte, label.end_byte)

    # conditions

    def truth(self, node: Node, depth: int = 0) -> _Truth:
        """A condition; what is not about the chip is unknown, and the same for both."""
        if depth < _DEEPEST:
            if node.type in ("parenthesized_expression", "condition_clause") and len(node.named_children) == 1:
                return self.truth(node.named_children[0], depth + 1)
            sides = node.child_by_field_name("left"), node.child_by_field_name("right")
            sign = self._sign(node)
            if node.type == "unary_expression" and sign == "!":
                inner = self.truth(node.named_children[0], depth + 1)
                return lambda chip, known: not inner(chip, known)
            if sides[0] is not None and sides[1] is not None and sign in ("&&", "||"):
                one, two = (self.truth(side, depth + 1) for side in sides if side is not None)
                if sign == "&&":
                    return lambda chip, known: one(chip, known) and two(chip, known)
                return lambda chip, known: one(chip, known) or two(chip, known)
            if node.type == "number_literal" and self._text(node).isdigit():
                value = int(self._text(node)) != 0
                return lambda chip, known: value
            if sides[0] is not None and sides[1] is not None and sign in _COMPARE:
                found = self._compared(sides[0], sign, sides[1])
                if found is not None:
                    return found
        text = " ".join(self._text(node).split())
        if (chips := self.names.defined(text)) is not None:
            self.uses = True
            return lambda chip, known: chips[chip != HOPPER]
        self.unknown.add(text)
        return lambda chip, known: known[text]

    def _compared(self, left: Node, sign: str, right: Node) -> _Truth | None:
        used, self.uses, self._minor = self.uses, False, False
        one, two = self._number(left), self._number(right)
        about, self.uses = self.uses, used
        if one is None or two is None or not (about or self._minor):
            return None
        unit = self._unit(left, right)
        if unit is None:
            return None
        self.uses |= about
        compare, first, second = _COMPARE[sign], one, two
        return lambda chip, known: compare(first(chip, unit), second(chip, unit))

    def _unit(self, left: Node, right: Node) -> int | None:
        """What the number stands in that a capability is written as: tens of the version where nothing tells."""
        text = f"{self._text(left)} {self._text(right)}"
        if self.names.spellings.stand_in("capability_in_hundreds", text):
            return 100
        values = [(n, v) for n in (left, right) for v in [self._constant_value(n)] if v is not None]
        if not values:
            return 10
        node, value = values[0]
        if self._text(node).lower().startswith("0x"):
            return 16
        if divided := re.search(r"[/%]\s*(100?)\b", text):
            return 100 if divided[1] == "100" else 10
        return 1 if value < 20 else 10 if 20 <= value < 140 else 100 if 300 <= value < 1400 else None

    def _number(self, node: Node, depth: int = 0) -> _Number | None:
        if depth > _DEEPEST:
            return None
        value = self._constant_value(node)
        if value is not None:
            number = self._edits.get(node.end_byte, value) if self._ported else value
            return lambda chip, unit: number
        if node.type == "parenthesized_expression" and len(node.named_children) == 1:
            return self._number(node.named_children[0], depth + 1)
        if node.type == "cast_expression" and (inner := node.child_by_field_name("value")) is not None:
            return self._number(inner, depth + 1)
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        sign = self._sign(node)
        if left is not None and right is not None and sign in _CALCULATE:
            one, two = self._number(left, depth + 1), self._number(right, depth + 1)
            if one is None or two is None:
                return None
            first, second, calculate = one, two, _CALCULATE[sign]
            return lambda chip, unit: calculate(int(first(chip, unit)), int(second(chip, unit)))
        kind = None if self._constant(node) else self.names.kind(node, self._text)
        if kind is None:
            return None
        if kind == "minor":
            # Hopper's is 0; where the port's is too, this tells no chips apart
            self.uses |= self.names.target.capability[1] != 0
            self._minor = True
            return lambda chip, unit: chip % 10
        self.uses = True
        if kind == "major":
            return lambda chip, unit: chip // 10
        return _in_unit

    def _constant_value(self, node: Node) -> float | None:
        if node.type == "number_literal":
            return literal_value(self._text(node))
        pair = _PAIR.fullmatch(self._text(node)) if node.type in _MAKING else None
        if pair is not None and (pair["made"] is None or self.names.spellings.are("pairing", last_word(pair["made"]))):
            return 10 * int(pair["major"]) + int(pair["minor"])
        return self.names.constant(node, self._text)

    def _text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")


_MAKING = ("call_expression", "initializer_list", "compound_literal_expression")
_PAIR = re.compile(r"(?P<made>[\w:]+(?:\s*<[^<>]*>)?)?\s*[({]\s*(?P<major>\d{1,2})\s*,\s*(?P<minor>\d)\s*[)}]")


def _operator(node: Node, source: bytes | None = None) -> str:
    """The operator of an expression, as it stands in the source if that is given: masks may write another one."""
    sign = node.child_by_field_name("operator")
    if sign is None:
        return ""
    text = (sign.text or b"") if source is None else source[sign.start_byte : sign.end_byte]
    return _SPELLED.get(text, text).decode("utf-8", "replace")


_SPELLED = {b"and": b"&&", b"or": b"||", b"not": b"!"}


def _whole_condition(node: Node) -> Node:
    """The condition that a comparison is a part of."""
    while (outer := node.parent) is not None:
        joins = outer.type == "binary_expression" and _operator(outer) in ("&&", "||")
        negates = outer.type == "unary_expression" and _operator(outer) == "!"
        if not (joins or negates or outer.type == "parenthesized_expression"):
            break
        node = outer
    return node


# What is told by its text -------------------------------------------------------------------------------

_QUOTED = re.compile(r'"([^"\n]*)"')
_LIST = re.compile(r"\{\s*(\d+(?:\s*,\s*\d+)*)\s*,?\s*\}")


def _told_by_text(file: CudaFile, names: Names) -> Iterator[Span]:
    """Hopper's names in strings that something is compared with, pairs of version numbers, functions that tell the
    chip, lists of architectures."""
    spellings = names.spellings
    if any(spellings.are("chip_text", quoted) for quoted in _QUOTED.findall(file.lexed.source_text)):
        for node in find(file.root, "string_literal"):
            if spellings.are("chip_text", file.text(node).strip('"')) and _is_compared(file, node, spellings):
                yield span(node)
    text = file.lexed.plain_text
    for start, end in spellings.places("capability_pair", text):
        if not re.search(r"[({{]\s*{}\s*,\s*{}\s*[)}}]".format(*names.target.capability), _line(text, start)):
            yield Span(start, end)
    yield from late_architectures(text, spellings)
    for match in _LIST.finditer(text):
        versions = {int(n) for n in match[1].split(",") if len(n.strip()) < 5}
        if len(versions) > 1 and versions <= CHIPS and 90 in versions and names.target.sm not in versions:
            yield Span(match.start(), match.end())


def late_architectures(text: str, spellings: Spellings) -> Iterator[Span]:
    """Statements that call what tells the chip behind the preprocessor."""
    for start, end in spellings.places("late_architecture", text):
        before = re.search(r"(\w+)[\s*&]*\Z", text[:start])
        if text[end:].lstrip().startswith("(") and (before is None or before[1] in ("return", "else", "do")):
            yield _statement(text, start)


def _statement(text: str, at: int) -> Span:
    """What stands around a place of one line, up to the next brace or semicolon."""
    start = max(text.rfind(mark, 0, at) for mark in "\n;{}") + 1
    end = min((e for mark in "\n;{" if (e := text.find(mark, at)) >= 0), default=len(text))
    return Span(start + len(text[start:at]) - len(text[start:at].lstrip()), end)


def _line(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 : text.find("\n", at) if "\n" in text[at:] else len(text)]


def _is_compared(file: CudaFile, node: Node, spellings: Spellings) -> bool:
    holder = node.parent
    if holder is not None and holder.type == "binary_expression":
        return _operator(holder) in ("==", "!=")
    if holder is None or holder.type != "argument_list":
        return False
    call = enclosing(node, "call_expression")
    function = call.child_by_field_name("function") if call is not None else None
    return function is not None and spellings.are("comparison", file.text(function))
