# SPDX-License-Identifier: Apache-2.0
"""The atom of a tiled MMA: that of SM100 with the same types and majors, for all rows of 128 and all columns of a tile.
Its threads are no longer laid out: one CTA issues it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from porter.lang.cuda import CudaFile
from porter.lang.text import Span, as_text
from porter.model.functions import Function
from porter.passes.idiom.site import Site
from porter.passes.idiom.text import cpp
from porter.passes.native.sites import Left

RULE = "PTR760"
_MADE = re.compile(rb"\bmake_tiled_mma\s*\(\s*")
_ATOM = re.compile(
    r"(?:\w+::)*SM90_64x(?P<n>\d+)x\d+_(?P<d>F32|F16)(?P<a>F16|BF16|TF32|E4M3|E5M2)(?P<b>F16|BF16|TF32|E4M3|E5M2)_(?P<from>SS|RS)"
    r"(?P<tn>_TN)?\s*(?:<(?P<arguments>[^<>]*)>)?\s*\{\s*\}"
)
_TYPES = {"F16": "half_t", "BF16": "bfloat16_t", "TF32": "tfloat32_t", "E4M3": "float_e4m3_t", "E5M2": "float_e5m2_t"}
_SCALE = re.compile(r"GMMA::ScaleOut\b")


@dataclass(frozen=True)
class Atom:
    """What a port has of an atom: the type of a sum, as the kernel writes it, and names of tiled MMAs and their types."""

    sum: str
    names: frozenset[str]


def rewrite_atoms(site: Site) -> Atom:
    """Write every atom that tiled MMAs are made of anew.

    Raises:
        Left: one is none that is known, or there is none.
    """
    names, sums = set[str](), set[str]()
    for file in site.program.sources.files.values():
        for made in _MADE.finditer(file.lexed.plain):
            end = _closing(file, made.end())
            inner = as_text(file.source[made.end() : end])
            atom = _ATOM.match(inner)
            if atom is None:
                raise Left(site.kernel, site.kernel.head, f"an atom of SM90 in `make_tiled_mma({inner.strip()[:60]})`")
            if atom["from"] == "RS":
                raise Left(site.kernel, site.kernel.head, "operands of MMAs in shared memory: A is in registers")
            _written(site, file, Span(made.end(), end), atom)
            names.add(_name(file, made.start()))
            sums.add("float" if atom["d"] == "F32" else f"{site.c}half_t")
    if len(sums) != 1:
        raise Left(site.kernel, site.kernel.head, "tiled MMAs that the sources make, with one type of sums")
    for file in site.program.sources.files.values():
        for match in _SCALE.finditer(file.lexed.plain_text):
            site.draft.replace(RULE, owner_of(site, file), Span(match.start(), match.start() + 4), "UMMA")
    return Atom(sums.pop(), frozenset(names - {""}))


def owner_of(site: Site, file: CudaFile) -> Function:
    """A function of a file, by which edits of it are made."""
    found = [f for f in site.program.functions if f.file is file and f.shift == 0]
    if not found:
        raise Left(site.kernel, site.kernel.head, f"a function in {file.path}, whose types change")
    return found[0]


def _closing(file: CudaFile, at: int) -> int:
    """The offset of the parenthesis that closes what is open at an offset."""
    depth, text = 1, file.lexed.plain
    while at < len(text):
        depth += {40: 1, 41: -1}.get(text[at], 0)
        if depth == 0:
            return at
        at += 1
    return at


def _name(file: CudaFile, at: int) -> str:
    """The type or the variable that is declared by a tiled MMA that is made at an offset."""
    start = max(file.lexed.plain.rfind(mark, 0, at) for mark in (b";", b"{", b"}")) + 1
    head = as_text(file.lexed.plain[start:at])
    match = re.search(r"(\w+)\s*=\s*(?:decltype\s*\(\s*)?(?:\w+::)*\s*\Z", head)
    return match[1] if match is not None else ""


def _written(site: Site, file: CudaFile, span: Span, atom: re.Match[str]) -> None:
    c, types = site.c, site.types
    shown = _shown(site, file, span.start)
    m, n = shown or ("128", str(types.columns))
    kinds = {operand: _element(site, file, span.start, _TYPES[atom[operand]]) for operand in "ab"}
    given = [a.strip() for a in (atom["arguments"] or "").split(",") if a.strip()]
    narrow = atom["a"] in ("E4M3", "E5M2")
    scales = [a for a in given if "ScaleIn" in a]
    majors = [a for a in given if "ScaleIn" not in a] or ["GMMA::Major::K"] * 2
    if any(not re.match(r"(?:\w+::)*GMMA::(?:Major|ScaleIn)::\w+\Z", a) for a in given):
        raise Left(site.kernel, site.kernel.head, f"majors of operands as names: `{', '.join(given)}`")
    asked = [re.sub(r"(?:\w+::)*GMMA::", f"{c}UMMA::", a) for a in (*majors, *scales)]
    ends = [a.rpartition("::")[2] for a in scales] or ["One", "One"]
    text = cpp("atom", c=c, narrow=narrow, a=kinds["a"], b=kinds["b"], m=m, n=n, arguments=", ".join(asked),
               d="float" if atom["d"] == "F32" else _element(site, file, span.start, "half_t"),
               kind="TF32" if atom["a"] == "TF32" else "F16BF16", scale_a=ends[0], scale_b=ends[-1])  # fmt: skip
    owner = owner_of(site, file)
    site.draft.replace(RULE, owner, span, _laid_out(site, owner, span, text))


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
    head = [m for m in re.finditer(r"\btemplate\s*<([^<>]*)>\s*struct\s+(\w+)\s*\{", text[:at])]
    if not head:
        return False
    params = [p.split("=")[0].split()[-1] for p in head[-1][1].split(",") if p.strip()]
    used = rf"\b{head[-1][2]}\s*<\s*" + r"\s*,\s*".join(map(re.escape, params)) + r"\s*>"
    return name in params and re.search(used, site.kernel.text(site.kernel.body)) is not None


def _element(site: Site, file: CudaFile, at: int, kind: str) -> str:
    """A name for the type of an operand that is declared around an offset, else the library's."""
    text = file.lexed.plain_text[:at]
    for found in re.finditer(rf"\busing\s+(\w+)\s*=\s*(?:::)?(?:cutlass|cute)::{kind}\s*;", text):
        if _is_open(text[found.end() :]):
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
