# SPDX-License-Identifier: Apache-2.0
"""The atom of a tiled MMA: that of SM100 with the same types and majors, for 128 rows and all columns of a tile. Its
threads are no longer laid out: one CTA issues it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from porter.lang.cuda import CudaFile
from porter.lang.text import Span
from porter.model.functions import Function, Style
from porter.model.spellings import Spellings
from porter.passes.idiom.site import Site
from porter.passes.idiom.text import cpp
from porter.passes.native.sites import Left

RULE = "PTR760"
_ARGUMENTS = re.compile(r"\s*<(?P<arguments>[^<>]*)>")
_MADE, _TYPE = "making_tiled_mma", "type_of_tiled_mma"
"""How tiled MMAs are written."""
_NAMED = re.compile(r"(?:typename\s+)?(?:\w+\s*::\s*)*(?P<name>\w+)\s*\{\s*\}")
_HEAD = re.compile(r"\s*\(\s*")
_OBJECT = re.compile(r"\s*\{\s*\}")
_CALL = re.compile(r"\s*\(\s*\)")
_NARROW, _WORD = 8, 32
"""Bits of operands."""


@dataclass(frozen=True)
class Atom:
    """What a port has of atoms: the type of a sum, as the kernel writes it, and names of tiled MMAs and their types."""

    sum: str
    names: frozenset[str]


@dataclass(frozen=True)
class _Place:
    """An atom in a file: types and majors as they are written, in an object or as a type, and the text that the port
    has another one for. `rest` is what lays its threads out."""

    file: CudaFile
    span: Span
    kinds: tuple[str, str, str]
    asked: tuple[str, ...]
    is_object: bool
    in_registers: bool = False


def rewrite_atoms(site: Site) -> Atom:
    """Write every atom that tiled MMAs are made of anew.

    Raises:
        Left: one is none that is known, or there is none.
    """
    names, sums, done = set[str](), set[str](), list[tuple[CudaFile, Span]]()
    spellings = site.program.vocabulary.spellings
    for file in site.program.sources.files.values():
        for how in (_MADE, _TYPE):
            for made in spellings.matches(how, file.lexed.plain_text):
                place, threads = _place(site, file, made, how == _MADE)
                _write(site, place)
                if threads is not None:
                    _forget_threads(site, file, threads, how == _TYPE)
                done += [(place.file, place.span)] + ([(file, threads)] if threads is not None else [])
                names.add(_name(file, made.start()))
                sums.add(place.kinds[2])
    if len(sums) != 1:
        raise Left(site.kernel, site.kernel.head, "tiled MMAs that the sources make, with one type of sums")
    for file in site.program.sources.files.values():
        text = file.lexed.plain_text
        for match in (*spellings.matches("hopper_atom", text), *spellings.matches("hopper_selector", text)):
            if not any(f is file and s.start <= match.start() < s.end for f, s in done):
                raise Left(
                    site.kernel, site.kernel.head, f"an atom in a tiled MMA alone: `{match[0]}` stands elsewhere"
                )
        for match in spellings.matches("scale_of_hopper", text):
            site.draft.replace(RULE, owner_of(site, file), Span(*match.span()), cpp("namespace", c=""))
    return Atom(sums.pop(), frozenset(names - {""}))


def owner_of(site: Site, file: CudaFile) -> Function:
    """A function of a file, by which edits of it are made; where it has types alone, one that stands for the file."""
    found = (f for f in site.program.functions if f.file is file and f.shift == 0)
    return next(found, Function(file, Style.HOST, file.path, None, file.root, file.root))


def _place(site: Site, file: CudaFile, made: re.Match[str], is_object: bool) -> tuple[_Place, Span | None]:
    """The atom of a tiled MMA that is made, and what lays its threads out."""
    text, at = file.lexed.plain_text, made.end()
    head = _HEAD.match(text, at) if is_object else None
    at = head.end() if head is not None else at + len(text[at:]) - len(text[at:].lstrip())
    end = next(_closings(text, at, "()" if is_object else "<>"))
    atom, selector = _begins(site, "hopper_atom", text, at, end), _begins(site, "hopper_selector", text, at, end)
    named = _NAMED.match(text, at, end)
    if atom is not None:
        place = _of_atom(site, file, atom, is_object)
    elif selector is not None:
        place = _of_selector(site, file, selector)
    elif named is not None:
        return _of_alias(site, named["name"]), _threads(text, named.end(), end)
    else:
        raise Left(site.kernel, site.kernel.head, f"an atom of SM90 in `{made[0]}({text[at:end].strip()[:60]})`")
    inner = place.span.end if is_object else end + 1
    outer = end if is_object else next(_closings(text, inner, "<>"))
    return place, _threads(text, inner, outer)


def _begins(site: Site, what: str, text: str, at: int, end: int) -> re.Match[str] | None:
    """What a part of a text begins with."""
    found = (m for m in site.program.vocabulary.spellings.matches(what, text) if m.start() == at and m.end() <= end)
    return next(found, None)


def _threads(text: str, start: int, end: int) -> Span | None:
    return Span(start, end) if text[start:end].strip() else None


def _of_atom(site: Site, file: CudaFile, atom: re.Match[str], is_object: bool) -> _Place:
    text, at, end = file.lexed.plain_text, atom.start(), atom.end()
    arguments = _ARGUMENTS.match(text, end)
    end = arguments.end() if arguments is not None else end
    made = _OBJECT.match(text, end) if is_object else None
    given = [a.strip() for a in (arguments[1] if arguments is not None else "").split(",") if a.strip()]
    a, b = (_element(site, file, at, cpp(f"type_{atom[operand]}")) for operand in "ab")
    total = "float" if atom["d"] == "F32" else _element(site, file, at, cpp(f"type_{atom['d']}"))
    span = Span(at, made.end() if made is not None else end)
    return _Place(file, span, (a, b, total), tuple(given), is_object, atom["from"] == "RS")


def _of_selector(site: Site, file: CudaFile, selector: re.Match[str]) -> _Place:
    """The library chooses the atom by types and the shape of a tile."""
    text = file.lexed.plain_text
    opened = text.find("<", selector.end()) + 1
    closed = next(_closings(text, opened, "<>"))
    call = _CALL.match(text, closed + 1)
    given = _arguments(text[opened:closed])
    if len(given) < 4 or text[selector.end() : opened].strip() != "<":
        raise Left(site.kernel, site.kernel.head, f"types, tile and majors of `{selector[0]}`")
    span = Span(selector.start(), call.end() if call is not None else closed + 1)
    return _Place(file, span, (given[0], given[1], given[2]), tuple(given[4:]), True, selector["from"] == "rs")


def _of_alias(site: Site, name: str) -> _Place:
    """The atom that a type of the sources is another name of."""
    found = []
    for file in site.program.sources.files.values():
        for match in re.finditer(rf"\busing\s+{name}\s*=\s*", file.lexed.plain_text):
            text = file.lexed.plain_text
            atom = _begins(site, "hopper_atom", text, match.end(), len(text))
            place = _of_atom(site, file, atom, False) if atom is not None else None
            if place is not None and text[place.span.end :].lstrip().startswith(";"):
                found.append(place)
    if len(found) != 1:
        raise Left(site.kernel, site.kernel.head, f"the atom that `{name}` is")
    return found[0]


def _forget_threads(site: Site, file: CudaFile, span: Span, is_type: bool) -> None:
    text = f", {site.c}Layout<{site.c}Shape<{site.c}_1, {site.c}_1, {site.c}_1>>" if is_type else ""
    site.draft.replace(RULE, owner_of(site, file), span, text)


def _arguments(text: str) -> list[str]:
    """Arguments of a template, by the commas that stand between them."""
    found, depth = [""], 0
    for mark in text:
        depth += {"<": 1, "(": 1, "{": 1, ">": -1, ")": -1, "}": -1}.get(mark, 0)
        if mark == "," and depth == 0:
            found.append("")
        else:
            found[-1] += mark
    return [" ".join(a.split()) for a in found if a.strip()]


def _closings(text: str, at: int, marks: str = "()") -> Iterator[int]:
    """The offset of what closes a bracket that is open at an offset."""
    depth = 1
    for index in range(at, len(text)):
        depth += {marks[0]: 1, marks[1]: -1}.get(text[index], 0)
        if depth == 0:
            yield index
            return
    yield len(text)


def _name(file: CudaFile, at: int) -> str:
    """The type or the variable that is declared by a tiled MMA that is made at an offset."""
    text = file.lexed.plain_text
    start = max(text.rfind(mark, 0, at) for mark in ";{}") + 1
    match = re.search(r"(\w+)\s*=\s*(?:(?:\w+\s*::\s*)*decltype\s*\(\s*)?(?:\w+\s*::\s*)*\Z", text[start:at])
    return match[1] if match is not None else ""


def _write(site: Site, place: _Place) -> None:
    c, types, file = site.c, site.types, place.file
    shown = _shown(site, file, place.span.start)
    if shown is None and len(site.every) > 1:
        raise Left(site.kernel, site.kernel.head, "instantiations whose tiles differ in columns with a name alone")
    m, n = (shown[0], site.of_mma(shown[1])) if shown is not None else ("128", str(types.columns))
    spellings, umma = site.program.vocabulary.spellings, cpp("namespace", c=c)
    asked = [_in_namespace(spellings, a, umma) for a in place.asked]
    scales = [a for a in asked if "ScaleIn" in a]
    majors = [a for a in asked if "ScaleIn" not in a] or [f"{umma}::Major::K"] * 2
    narrow = types.bits == _NARROW
    if narrow and place.in_registers:
        raise Left(site.kernel, site.kernel.head, "operands of MMAs in shared memory: A is in registers, with 8 bits")
    if (
        len(majors) != 2
        or any(a not in (f"{umma}::Major::K", f"{umma}::Major::MN") for a in majors)
        or (narrow and not all(a.endswith("K") for a in majors))
    ):
        raise Left(site.kernel, site.kernel.head, f"majors of operands by their names: `{', '.join(place.asked)}`")
    ends = [a.rpartition("::")[2].strip() for a in scales] or ["One", "One"]
    if site.asked.pair:
        m = f"2 * {m}" if not m.isdigit() else str(2 * int(m))
    text = cpp(
        "atom",
        of_pair=cpp("pair_of_ctas") if site.asked.pair else "",
        c=c,
        narrow=narrow,
        a=place.kinds[0],
        b=place.kinds[1],
        d=place.kinds[2],
        m=m,
        n=n,
        arguments=", ".join([*majors, *scales]),
        kind="TF32" if types.bits == _WORD else "F16BF16",
        operands="TS" if place.in_registers else "SS",
        scale_a=ends[0],
        scale_b=ends[-1],
        braces="{}" if place.is_object else "",
    )
    owner = owner_of(site, file)
    site.draft.replace(RULE, owner, place.span, _laid_out(site, owner, place.span, text))


def _in_namespace(spellings: Spellings, text: str, namespace: str) -> str:
    """A value of Hopper's namespace as one of another."""
    found = spellings.matches("hopper_namespace", text)
    return namespace + "".join(text[found[0].end() :].split()) if found and not found[0].start() else text


def _laid_out(site: Site, owner: Function, span: Span, text: str) -> str:
    """The text, on a line of its own where it is long."""
    start = owner.file.source.rfind(b"\n", 0, span.start) + 1
    pad = site.port.indent(owner, span) + site.unit
    if span.start - start + len(text) > 110 or "\n" in text:
        return f"\n{pad}" + text.replace("\n", f"\n{pad}")
    return text


def _shown(site: Site, file: CudaFile, at: int) -> tuple[str, str] | None:
    """The kernel's names for 128 rows and all columns, where they mean the same at an offset."""
    names = site.tile_names
    if names is None or not all(_means_same(site, file, at, name) for name in names):
        return None
    return (names[0] if site.types.rows == 128 else "128"), names[1]


def _means_same(site: Site, file: CudaFile, at: int, name: str) -> bool:
    text = file.lexed.plain_text
    if name not in site.kernel.template_params:
        declared = re.search(
            rf"\bconstexpr\s+(?:static\s+)?(?:int|auto|unsigned|size_t)\b[^;()]*\b{name}\s*=", text[:at]
        )
        return declared is not None
    head = list(re.finditer(r"\btemplate\s*<([^<>]*)>\s*struct\s+(\w+)\s*\{", text[:at]))
    if not head:
        return False
    params = [p.split("=")[0].split()[-1] for p in head[-1][1].split(",") if p.strip()]
    used = rf"\b{head[-1][2]}\s*<\s*" + r"\s*,\s*".join(map(re.escape, params)) + r"\s*>"
    return name in params and re.search(used, site.kernel.text(site.kernel.body)) is not None


def _element(site: Site, file: CudaFile, at: int, kind: str) -> str:
    """A name for the type of an operand that is declared around an offset, else the library's."""
    text = file.lexed.plain_text[:at]
    spellings = site.program.vocabulary.spellings
    for found in re.finditer(rf"\busing\s+(\w+)\s*=\s*(?:::)?(\w+)::{kind}\s*;", text):
        if _is_open(text[found.end() :]) and spellings.are("namespace_of_types", found[2]):
            return found[1]
    return f"{site.c}{kind}"


def _is_open(text: str) -> bool:
    """Whether what was declared in front of a text is still declared behind it."""
    depth = 0
    for mark in re.findall(r"[{}]", text):
        depth += 1 if mark == "{" else -1
        if depth < 0:
            return False
    return True
