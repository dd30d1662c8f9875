# SPDX-License-Identifier: Apache-2.0
"""Builders of a library are asked for sm_100a: the tag of the architecture, the schedule, the tile."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from porter.diagnostics import Code, Diagnostic
from porter.lang.cuda import location
from porter.lang.template_ids import TypeAlias, TypeText
from porter.lang.text import Edit, Span
from porter.model.builders import Builders, Made, Meaning, Tag, plain
from porter.model.facts import ArchTag, Builder, Schedule
from porter.model.recognition import Bound, Vocabulary
from porter.passes.emit import lines
from porter.ptx.tmem import LANES
from porter.ptx.umma import N_STEPS, Kind, legal_m
from porter.rules.load import mappings_directory

RULE = "PTR650"
CHOICE_RULE = "PTR651"
HEADER = "cutlass_sm100.hpp"
_TAGS = "//@ tags\n"

_EXTENT = re.compile(r"(?:::)?(?:\w+::)*(?:_(\d+)|(?:Int|C)<(\d+)>)")
_TRAITS = re.compile(
    r"(?:conditional|enable_if|is_same|is_base_of|is_any_of|disjunction|conjunction|type_identity)(?:_t|_v)?"
)
"""Templates of the standard library, and of CuTe after it, that choose between types."""


Becomes = Callable[[Schedule | ArchTag], str]
"""What a tag becomes; empty if the compiler has to tell."""


_DEEPEST = 8
"""Aliases that lead to each other."""
_TYPE_NAME = re.compile(r"((?:::)?(?:\w+::)*\w+)(?:<.*>)?")
_LAST_NAME = re.compile(r"([A-Za-z_]\w*)\s*\Z")
_PASSED = re.compile(r"(?:typename\s+)?(?:::)?(?:\w+(?:<.*>)?\s*::\s*)*\w+")
"""A name, of a member of other types or not."""


@dataclass(frozen=True)
class _Extents:
    """Rows and columns of a tile or cluster, and where the rows stand; 0: not known."""

    rows: int = 0
    columns: int = 0
    places: tuple[tuple[TypeText, Span], ...] = ()
    alias: str = ""


@dataclass(eq=False)
class BuilderPort:
    """Edits by rule, what stops the port, and places of tags that stay. `needs_header`: whether the edits use it."""

    edits: dict[str, list[Edit]] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    known: set[tuple[str, int]] = field(default_factory=set)
    needs_header: bool = False


def port_builders(builders: Builders) -> BuilderPort:
    """Ask every builder for sm_100a, or say what stops it."""
    return _Port(builders).run()


def header_text(vocabulary: Vocabulary) -> str:
    """The header that maps what templates choose, with the tags that rules know."""
    text = (mappings_directory() / "emit" / HEADER).read_text("utf-8")
    found = []
    for recognizer in sorted((r for w in vocabulary.words.values() for r in w), key=lambda r: (r.rule, r.head)):
        bound = recognizer.bind("", lambda _: None) if recognizer.kind in (Schedule, ArchTag) else None
        if not isinstance(bound, Bound):
            continue
        name, fact = "::".join(recognizer.head), bound.fact
        if isinstance(fact, ArchTag):
            found.append(_cpp("arch_tag", name=name, becomes=fact.becomes))
        elif isinstance(fact, Schedule):
            found.append(_cpp("schedule_tag", name=name, one=fact.one, two=fact.two))
    return text.replace(_TAGS, "\n\n".join(found) + "\n")


def _cpp(section: str, **values: object) -> str:
    """A section of the C++ of this pass."""
    return lines(section, "cutlass_lines.hpp", **values)


class _Port:
    def __init__(self, builders: Builders) -> None:
        self.builders = builders
        self.out = BuilderPort()
        self.pairs: dict[int, bool | None] = {}
        """Whether a builder's MMAs are those of a CTA pair, by id; None if the compiler has to tell."""
        self.tiles: dict[int, _Extents] = {}
        self.edited: set[tuple[str, Span]] = set()

    def run(self) -> BuilderPort:
        for text, span, why in self.builders.unclear:
            self._refuse(text, span, f"its arguments are in a form that is not known ({why})")
        for made in self.builders.made:
            self._measure(made)
        self._agree()
        for made in self.builders.made:
            if not self.out.diagnostics:
                self._port(made)
        for use in self.builders.tile_uses:
            if not self.out.diagnostics:
                self._node(use)
        if not self.out.diagnostics:
            self._account()
        for tag in self.builders.tags:
            # each is taken away, mapped, or refused with what it is an argument of
            self.out.known.update((tag.text.file.path, at) for at in range(tag.span.start, tag.span.end))
        return self.out

    # --- what is known

    def _measure(self, made: Made) -> None:
        self._check_types(made)
        tile, cluster = (self._extents(made.text, made.places[name]) for name in ("tile", "cluster"))
        self.tiles[id(made)] = tile
        if not tile.rows:
            self.pairs[id(made)] = None
            return
        shown = (
            f"its tile has {tile.rows} rows and {tile.columns} columns; on sm_100a it has 64 or 128 rows a CTA or 256 "
            "a CTA pair, and a multiple of 16 columns (of 8 with 64 rows) up to 256"
        )
        step = N_STEPS.get(min(tile.rows, LANES), 0)
        if tile.rows not in (*legal_m(Kind.F16, 1), *legal_m(Kind.F16, 2)) or tile.columns % step or tile.columns > 256:
            self._refuse(made.text, made.places["tile"], shown)
        if self._arch(made):
            self.pairs[id(made)] = None
        elif tile.rows < 256:
            self.pairs[id(made)] = False
        elif not cluster.rows:
            self.pairs[id(made)] = None
        else:
            # each CTA of a pair has half of the columns
            even = cluster.rows % 2 == 0 and tile.columns % (2 * N_STEPS[LANES]) == 0
            self.pairs[id(made)] = even and not self._counted_elsewhere(made)

    def _agree(self) -> None:
        """Builders of one tile are all those of a CTA pair, or none is."""
        large = [m for m in self.builders.made if self.pairs.get(id(m)) is not None and self.tiles[id(m)].rows == 256]
        alone = {m.text.of(m.places["tile"]) for m in large if not self.pairs[id(m)]}
        for made in large:
            if made.text.of(made.places["tile"]) in alone:
                self.pairs[id(made)] = False

    def _check_types(self, made: Made) -> None:
        """Other operators, and operands of two widths, are other builders of Blackwell, with layouts of their own; a
        schedule that no rule knows has none there."""
        assert isinstance(made.fact, Builder)
        operators = self._known(made.text, made.places["operators"])
        if operators and operators != made.fact.asked.rsplit("::", 1)[-1]:
            self._refuse(made.text, made.places["operators"], f"its operators are {operators}")
        schedule = self._known(made.text, made.places["schedule"])
        if schedule and self.builders.meaning(made.text, made.places["schedule"]).is_open:
            self._refuse(made.text, made.places["schedule"], f"`{schedule}` has no counterpart on sm_100a")
        if "a" not in made.places:
            return
        a, b = (self._known(made.text, made.places[name]) for name in "ab")
        if a and b and a != b and not (a.startswith("float_e") and b.startswith("float_e")):
            what = f"its operands are of the types {a} and {b}, which is another builder of arch::Sm100"
            self._refuse(made.text, made.places["a"], what)

    def _known(self, text: TypeText, span: Span) -> str:
        """The last name of a library's type; empty if it is none, or depends on more than aliases."""
        for _ in range(_DEEPEST):
            known = self.builders.aliases_at(text, span)
            if len(known) != 1:
                break
            text, span = known[0][0], known[0][1].value
        name = _TYPE_NAME.fullmatch(text.of(plain(text, span)))
        if name is None or not self.builders.is_library(name[1]):
            return ""
        last = name[1].rsplit("::", 1)[-1]
        return "" if _TRAITS.fullmatch(last) else last

    def _extents(self, text: TypeText, span: Span) -> _Extents:
        span = plain(text, span)
        known = self.builders.aliases_at(text, span)
        if not known:
            return self._shape(text, span)
        found = [self._shape(t, plain(t, a.value)) for t, a in known]
        if len({(f.rows, f.columns) for f in found}) != 1:
            return _Extents()
        places = tuple(p for f in found for p in f.places)
        return _Extents(found[0].rows, found[0].columns, places, text.of(span))

    def _shape(self, text: TypeText, span: Span) -> _Extents:
        """The extents of a type with numbers in it."""
        for made in self.builders.extents:
            if made.text is text and made.template.span == span:
                found = [_EXTENT.fullmatch(text.of(made.places[name]).replace(" ", "")) for name in ("rows", "columns")]
                if all(found):
                    rows, columns = (int(m[1] or m[2]) for m in found if m is not None)
                    return _Extents(rows, columns, ((text, made.places["rows"]),))
        return _Extents()

    def _counted_elsewhere(self, made: Made) -> bool:
        """Whether other code than builders and nodes of visitor trees uses a tile, by its name or one that stands for
        it."""
        own = {(m.text.file.path, plain(m.text, s).end) for m, role, s in self.builders.arguments() if role == "tile"}
        given = made.text.of(plain(made.text, made.places["tile"]))
        if self._shape(made.text, plain(made.text, made.places["tile"])).rows:
            return False
        name = _LAST_NAME.search(given)
        if name is None:
            return True
        seen, work = set[str](), [name[1]]
        while work:
            current = work.pop()
            seen.add(current)
            for text, span in self.builders.uses(current):
                if (text.file.path, span.end) in own:
                    continue
                alias = _alias_around(text, span)
                if alias is None or _PASSED.fullmatch(text.of(alias.value)) is None:
                    return True
                work += [alias.name] if alias.name not in seen else []
        return False

    # --- edits

    def _port(self, made: Made) -> None:
        assert isinstance(made.fact, Builder)
        self._tile(made)
        self._tag(made, "arch", lambda tag: tag.becomes if isinstance(tag, ArchTag) else "", partial(_cpp, "arch"))
        pair = self.pairs[id(made)]
        tile, cluster = (made.text.of(made.places[name]) for name in ("tile", "cluster"))
        part = made.fact.part
        wrapped = partial(_cpp, "schedule", part=part, tile=tile, cluster=cluster, arch=self._arch(made))

        def becomes(tag: Schedule | ArchTag) -> str:
            if not isinstance(tag, Schedule) or pair is None:
                return ""
            if tag.part != part:
                what = f"the schedule of its {part} is one of the {tag.part}"
                self._refuse(made.text, made.places["schedule"], what)
            return tag.two if pair else tag.one

        self._tag(made, "schedule", becomes, wrapped)

    def _arch(self, made: Made) -> str:
        """The last argument of what maps a choice, where the compiler has to tell the architecture."""
        span = made.places["arch"]
        return made.text.of(span) if self.builders.meaning(made.text, span).is_open else ""

    def _tile(self, made: Made) -> None:
        pair, tile, span = self.pairs[id(made)], self.tiles[id(made)], made.places["tile"]
        if pair or 0 < tile.rows < 256:
            return
        if tile.rows and pair is False:
            for text, place in tile.places:
                self._edit(RULE, text, place, text.of(place).replace("256", "128"))
            return
        given = made.text.of(span)
        if self._counted_elsewhere(made):
            self._edit(CHOICE_RULE, made.text, span, _cpp("same_tile", tile=given, arch=self._arch(made)))
        else:
            cluster = made.text.of(made.places["cluster"])
            new = _cpp("mma_tile", tile=given, cluster=cluster, arch=self._arch(made))
            self._edit(CHOICE_RULE, made.text, span, new)

    def _node(self, use: Made) -> None:
        span = use.places["tile"]
        tile = self._extents(use.text, span)
        changed = any((t.file.path, s) in self.edited for t, s in tile.places)
        if not changed and not (tile.rows and tile.rows < 256):
            self._edit(CHOICE_RULE, use.text, span, _cpp("cta_tile", tile=use.text.of(span)))

    def _tag(self, made: Made, role: str, becomes: Becomes, wrapped: Callable[..., str]) -> None:
        """Another tag in the place of one; where an alias stands for it and for nothing else, there."""
        span = plain(made.text, made.places[role])
        meaning = self.builders.meaning(made.text, span)
        texts = {becomes(t.fact) for t in meaning.tags}
        new = texts.pop() if len(texts) == 1 else ""
        if not new:
            whole = made.places[role]
            self._edit(CHOICE_RULE, made.text, whole, wrapped(tag=made.text.of(whole)))
        elif not meaning.aliases:
            self._edit(RULE, made.text, span, new)
        elif self._only_for(meaning, role, new):
            for tag in meaning.tags:
                self._edit(RULE, tag.text, tag.span, new)
        else:
            self._edit(RULE, made.text, made.places[role], new)

    def _only_for(self, meaning: Meaning, role: str, new: str) -> bool:
        """Whether nothing but builders, which all ask for the same, uses the names of a tag."""
        names = {a.name for _, a in meaning.aliases}
        own = {
            (m.text.file.path, plain(m.text, span)): m
            for m, its, span in self.builders.arguments()
            if its == role and isinstance(m.fact, Builder)
        }
        for name in names:
            for text, span in self.builders.uses(name):
                made = own.get((text.file.path, span))
                if made is None or set(self.builders.meaning(text, span).tags) != set(meaning.tags):
                    return False
                if role == "schedule" and self._asked(made, meaning.tags[0]) != new:
                    return False
        return True

    def _asked(self, made: Made, tag: Tag) -> str:
        pair = self.pairs[id(made)]
        if pair is None or not isinstance(tag.fact, Schedule):
            return ""
        return tag.fact.two if pair else tag.fact.one

    def _edit(self, rule: str, text: TypeText, span: Span, new: str) -> None:
        key = (text.file.path, span)
        if key in self.edited:
            return
        self.edited.add(key)
        self.out.edits.setdefault(rule, []).append(Edit(text.file.path, span, new.encode("latin-1")))
        self.out.needs_header |= rule == CHOICE_RULE

    def _refuse(self, text: TypeText, span: Span, what: str) -> None:
        self.out.diagnostics.append(Diagnostic(Code.BUILDER_FORM, location(text.file, span), {"what": what}))

    # --- tags that stay

    def _account(self) -> None:
        """Every tag of Hopper is one that an edit takes away, or the name of a choice that builders map."""
        inside = [(m.text, m.template.span) for m in self.builders.made]
        left = [
            t
            for t in self.builders.tags
            if not any(t.text.file.path == p and s.overlaps(t.span) for p, s in self.edited)
        ]
        for tag in left:
            within = any(t is tag.text and s.contains(tag.span) for t, s in inside)
            stopped = None if within else self._foreign(tag.text, tag.span)
            if stopped is not None:
                shown = tag.text.of(tag.span)
                what = f"`{shown}` is an argument of `{stopped}`"
                self._refuse(tag.text, tag.span, what)
        for text, span in self._names_of(left):
            if any(t is text and s.contains(span) for t, s in inside):
                continue
            stopped = self._foreign(text, span)
            if stopped is not None:
                what = f"`{text.of(span)}` stands for a tag of Hopper and is an argument of `{stopped}`"
                self._refuse(text, span, what)

    def _names_of(self, left: list[Tag]) -> Iterator[tuple[TypeText, Span]]:
        """Uses of the aliases that tags are in, and of those that such aliases are in."""
        work = [(t.text, t.span) for t in left if not any(m.template.span.contains(t.span) for m in self.builders.made
                                                         if m.text is t.text)]  # fmt: skip
        seen: set[str] = set()
        while work:
            text, span = work.pop()
            alias = _alias_around(text, span)
            if alias is None or alias.name in seen or not self._chooses(text, span):
                continue
            seen.add(alias.name)
            for use in self.builders.uses(alias.name):
                yield use
                if not any(m.text is use[0] and m.template.span.contains(use[1]) for m in self.builders.made):
                    work.append(use)

    def _chooses(self, text: TypeText, span: Span) -> bool:
        """Whether nothing but choices between types is around a tag: what it is an argument of is another type."""
        return all(_TRAITS.fullmatch(t.last) for t in text.around(span))

    def _foreign(self, text: TypeText, span: Span) -> str | None:
        """The template that something is an argument of, if it is neither one of the sources nor one that chooses."""
        for template in text.around(span):
            if not template.name:
                # the head of a template: the tag is what its parameter is by default
                return None
            if _TRAITS.fullmatch(template.last):
                continue
            if self.builders.declares(template.last) and not self.builders.is_library(template.name):
                return None
            return template.name
        return None


def _alias_around(text: TypeText, span: Span) -> TypeAlias | None:
    return next((a for a in text.aliases if a.value.contains(span)), None)
