# SPDX-License-Identifier: Apache-2.0
"""Types that a library's builders put together for Hopper, the tags that they are asked for with, and where else those
tags are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

from porter.lang.template_ids import TemplateId, TypeAlias, TypeText
from porter.lang.text import Span
from porter.model.facts import TEMPLATES, TYPES, ArchTag, Builder, Doubt, Extents, Fact, Schedule, TileUse, places
from porter.model.functions import Component, Path
from porter.model.names.outside import Verdict
from porter.model.program import Program
from porter.model.recognition import Bound, Recognizer

Template = Builder | Extents | TileUse

_COMMA = "\x01"
"""Stands for a comma inside of an argument, so that arguments end where the others are."""
_TYPENAME = re.compile(r"typename\s+")
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, eq=False)
class Made:
    """A template of a library with its arguments, as a rule recognizes it. `places` are the spans of the arguments that
    the fact names."""

    text: TypeText
    template: TemplateId
    fact: Template
    rule: str
    places: dict[str, Span]


@dataclass(frozen=True, eq=False)
class Tag:
    """The name of a tag. `span` has its qualifiers."""

    text: TypeText
    span: Span
    fact: Schedule | ArchTag
    rule: str


@dataclass(frozen=True)
class Meaning:
    """What an argument is: one `tag`, in its place; the `aliases` of a name that all stand for tags; or, where neither
    is known, something that depends on more than the text."""

    tags: tuple[Tag, ...] = ()
    aliases: tuple[tuple[TypeText, TypeAlias], ...] = ()

    @property
    def is_open(self) -> bool:
        return not self.tags


@dataclass(eq=False)
class Builders:
    """Everything of builders in one source set."""

    program: Program
    texts: list[TypeText]
    made: list[Made] = field(default_factory=list)
    tile_uses: list[Made] = field(default_factory=list)
    extents: list[Made] = field(default_factory=list)
    tags: list[Tag] = field(default_factory=list)
    unclear: list[tuple[TypeText, Span, str]] = field(default_factory=list)
    """Builders in a form that no rule knows, and why."""

    def uses(self, name: str) -> Iterator[tuple[TypeText, Span]]:
        """Where a name stands, but for the places that declare it."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        for text in self.texts:
            declared = {a.name_span for a in text.aliases}
            for found in word.finditer(text.text):
                span = Span(*found.span())
                if span not in declared and not _is_parameter(text, span):
                    yield text, span

    def aliases(self, name: str) -> list[tuple[TypeText, TypeAlias]]:
        return [(t, a) for t in self.texts for a in t.aliases if a.name == name]

    def is_parameter(self, name: str) -> bool:
        """Whether some template has a parameter of this name."""
        return any(name in t.parameters for t in self.texts)

    def declares(self, name: str) -> bool:
        """Whether the sources declare something of this name."""
        return any(name in t.declared for t in self.texts)

    def of_kind(self, fact: Template) -> list[Made]:
        """Where templates of the kind of a fact are kept."""
        return self.made if isinstance(fact, Builder) else self.extents if isinstance(fact, Extents) else self.tile_uses

    @property
    def namespaces(self) -> frozenset[str]:
        """The outermost namespaces of the libraries whose types are known."""
        asked = [r for w in self.program.vocabulary.words.values() for r in w]
        return frozenset(r.head[0] for r in asked if r.kind in TYPES and len(r.head) > 1)

    def is_library(self, name: str) -> bool:
        """Whether a written name is qualified as one of such a library."""
        return "::" in name and name.removeprefix("::").split("::")[0] in self.namespaces

    def tag_at(self, text: TypeText, span: Span) -> Tag | None:
        return next((t for t in self.tags if t.text is text and t.span == span), None)

    def meaning(self, text: TypeText, span: Span) -> Meaning:
        """What an argument comes to as a tag."""
        span = plain(text, span)
        tag = self.tag_at(text, span)
        if tag is not None:
            return Meaning((tag,))
        known = self.aliases_at(text, span)
        tags = [self.tag_at(t, plain(t, a.value)) for t, a in known]
        found = tuple(t for t in tags if t is not None)
        return Meaning(found, tuple(known)) if found and len(found) == len(tags) else Meaning()

    def aliases_at(self, text: TypeText, span: Span) -> list[tuple[TypeText, TypeAlias]]:
        """All that a name stands for, if it is one that no template has for a parameter; that of its own file, if that
        has some."""
        name = text.of(plain(text, span))
        if not _WORD.fullmatch(name) or self.is_parameter(name):
            return []
        found = self.aliases(name)
        return [(t, a) for t, a in found if t is text] or found

    def arguments(self) -> Iterator[tuple[Made, str, Span]]:
        """The arguments of all builders that facts name."""
        for made in (*self.made, *self.tile_uses):
            for name, span in made.places.items():
                yield made, name, span


def find_builders(program: Program, ported: bool) -> Builders | None:
    """Builders that may be asked for Hopper; None if there are none. Where some are `ported`, tags may be left."""
    words = {w for w, asked in program.vocabulary.words.items() if any(r.kind is Builder for r in asked)}
    if not any(w.encode() in f.source for w in words for f in program.sources.files.values()):
        return None
    found = read_types(program)
    found.made = [m for m in found.made if _may_be_hopper(found, m)]
    return found if found.made or found.unclear or ported else None


def read_types(program: Program) -> Builders:
    """All builders, tags and other templates that rules know."""
    found = Builders(program, [TypeText(f) for f in program.sources.files.values()])
    for text in found.texts:
        found.tags += _tags(program, found, text)
    words = {w for w, asked in program.vocabulary.words.items() if any(r.kind in TEMPLATES for r in asked)}
    for text in found.texts:
        if any(w.encode() in text.file.source for w in words):
            for template in text.template_ids:
                _recognize(program, found, text, template)
    return found


def type_facts(program: Program) -> list[Fact | Doubt]:
    """What is said of types in the sources, and of those whose form no rule knows."""
    found = read_types(program)
    stated = [m.fact for m in (*found.made, *found.extents, *found.tile_uses)]
    return [*stated, *(t.fact for t in found.tags), *(Doubt(Builder, why) for _, _, why in found.unclear)]


def plain(text: TypeText, span: Span) -> Span:
    """An argument without `typename` in front."""
    before = _TYPENAME.match(text.text, span.start, span.end)
    return Span(before.end(), span.end) if before is not None else span


def _is_parameter(text: TypeText, span: Span) -> bool:
    """Whether a name is that of a template parameter where it is declared."""
    return re.search(r"\b(?:class|typename)\s+\Z", text.text[max(0, span.start - 40) : span.start]) is not None and (
        re.match(r"\s*[,>=]", text.text[span.end : span.end + 40]) is not None
    )


def _may_be_hopper(builders: Builders, made: Made) -> bool:
    """Whether the tag of a builder's architecture is Hopper's, or something that may be it."""
    assert isinstance(made.fact, Builder)
    span = plain(made.text, made.places["arch"])
    if not builders.meaning(made.text, span).is_open:
        return True
    name = made.text.of(span)
    if name.startswith("porter::") or builders.is_library(name):
        return False
    if builders.is_parameter(name.split("::")[0]):
        # whoever names the tag is read with the template, or is ported with it
        return bool(builders.tags)
    known = builders.aliases_at(made.text, span)
    # what is in sight is no tag of Hopper unless something in it is one, or it depends on more
    return not known or any(
        not builders.is_library(text.of(alias.value))
        or any(t.text is text and alias.value.contains(t.span) for t in builders.tags)
        for text, alias in known
    )


def _tags(program: Program, builders: Builders, text: TypeText) -> Iterator[Tag]:
    known = {w: [r for r in asked if r.kind in (Schedule, ArchTag)] for w, asked in program.vocabulary.words.items()}
    words = [w for w, asked in known.items() if asked and w.encode() in text.file.source]
    if not words:
        return
    for name, span in text.names(re.compile(rf"\b(?:{'|'.join(words)})\b(?!\s*(?:::|<))")):
        for recognizer in known[name.rsplit("::", 1)[-1]]:
            if _means(program, builders, name, recognizer):
                bound = recognizer.bind("", lambda _: None)
                if isinstance(bound, Bound) and isinstance(bound.fact, (Schedule, ArchTag)):
                    yield Tag(text, span, bound.fact, recognizer.rule)
                    break


def _means(program: Program, builders: Builders, name: str, recognizer: Recognizer) -> bool:
    """Whether a written name is a library's: by its qualifiers, or by what namespaces are brought in."""
    steps, head = [s for s in name.split("::") if s], recognizer.head
    front = head[:-1][-(len(steps) - 1) :] if len(steps) > 1 else ()
    if len(steps) > 1 and tuple(steps[:-1]) == front:
        return True
    if len(steps) == 1 and builders.declares(name):
        return False
    path = Path(tuple(Component(s) for s in steps), name.startswith("::"))
    verdict = program.names.outside_path(path, head)
    if verdict is Verdict.MAYBE and len(steps) == 1 and recognizer.kind is not ArchTag:
        # the namespace around the place may be the library's
        return True
    return verdict is Verdict.YES


def _recognize(program: Program, builders: Builders, text: TypeText, template: TemplateId) -> None:
    asked = [r for r in program.vocabulary.of(template.last) if r.kind in TEMPLATES]
    asked = [r for r in asked if _means(program, builders, template.name, r)]
    if not asked:
        return
    pieces = [" " + text.of(a).replace(",", _COMMA) for a in template.args]
    starts = [1 + sum(len(p) + 1 for p in pieces[:i]) for i in range(len(pieces))]
    rest = f"<{','.join(pieces)}>"
    why = ""
    for recognizer in asked:
        bound = recognizer.bind(rest, lambda _: None)
        if isinstance(bound, str):
            why = bound
            continue
        found = {}
        for name in (f for f in _fields(bound.fact) if recognizer.place_of(f)):
            at = bound.captures[recognizer.place_of(name)].start
            found[name] = template.args[max(i for i, s in enumerate(starts) if s <= at)]
        made = Made(text, template, _said(bound.fact, text, found), recognizer.rule, found)
        builders.of_kind(made.fact).append(made)
        return
    if any(r.kind is Builder for r in asked) and not _is_declaration(text, template):
        builders.unclear.append((text, template.span, why))


def _said(fact: Fact, text: TypeText, found: dict[str, Span]) -> Template:
    """The fact with its arguments as they are written."""
    given = {name: text.of(span) for name, span in found.items()}
    if isinstance(fact, Builder):
        return Builder(part=fact.part, asked=fact.asked, **given)
    return Extents(**given) if isinstance(fact, Extents) else TileUse(**given)


def _fields(fact: Fact) -> Sequence[str]:
    return [f.name for f in fields(fact) if f.name in places(type(fact))]


def _is_declaration(text: TypeText, template: TemplateId) -> bool:
    """Whether a builder is specialized there and not used."""
    return (
        re.search(r"\b(?:struct|class)\s+\Z", text.text[max(0, template.span.start - 40) : template.span.start])
        is not None
    )
