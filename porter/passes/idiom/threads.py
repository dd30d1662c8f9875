# SPDX-License-Identifier: Apache-2.0
"""The size of a tiled MMA is no number of threads any more: where it was one, that number stands."""

from __future__ import annotations

import re

from porter.lang.cuda import CudaFile, find
from porter.lang.text import Span
from porter.model.functions import Function, declared_name
from porter.passes.idiom.atoms import Atom, owner_of
from porter.passes.idiom.site import Site
from porter.passes.native.sites import Left

RULE = "PTR767"


def rewrite_sizes(site: Site, atom: Atom) -> None:
    """Write the count of threads wherever the size of a tiled MMA stands."""
    names = "|".join(map(re.escape, sorted(_names(site, atom), key=len, reverse=True)))
    scope = r"(?:\w+(?:\s*<[^<>;()]*>)?\s*::\s*)*"
    size = rf"(?:\w+::)*\bsize\s*\(\s*(?:typename\s+)?{scope}(?:{names})\s*(?:\{{\s*\}}|\(\s*\))?\s*\)"
    pattern = re.compile(rf"\bdecltype\s*\(\s*{size}\s*\)\s*(?:::\s*value\b|(?P<object>\{{\s*\}}))|{size}")
    count, spellings = str(site.types.threads), site.program.vocabulary.spellings
    for file in site.program.sources.files.values():
        text = file.lexed.plain_text
        for match in pattern.finditer(text):
            if site.draft.is_written(file.path, Span(match.start(), match.end())):
                # as a count of arrivals, which is one of a commit
                continue
            start = max(text.rfind(mark, 0, match.start()) for mark in ";{}")
            asserts = spellings.stand_in("asserting_macro", text[start : match.start()])
            _require_own(site, atom, file, match)
            value = f"{site.c}Int<{count}>{{}}" if match["object"] or asserts else count
            site.draft.replace(RULE, owner_of(site, file), Span(match.start(), match.end()), value)


def _require_own(site: Site, atom: Atom, file: CudaFile, size: re.Match[str]) -> None:
    """Raises Left if a name may be something else than a tiled MMA of the port where its size is asked for."""
    functions = [f for f in site.program.functions if f.file is file and f.shift == 0 and _holds(f, size.start())]
    if any(f is site.kernel or site.comes_to(f) for f in functions):
        return
    named = max(re.findall(r"\w+", size[0].replace("value", "")), key=lambda w: (w in atom.names, size[0].rfind(w)))
    texts = [f.lexed.plain_text for f in site.program.sources.files.values()]
    aliases = sum(len(re.findall(rf"\busing\s+{named}\s*=", text)) for text in texts)
    declared = rf"\b{named}\s*=\s*(?:\w+\s*::\s*)*make_tiled_mma\b"
    if (aliases == 1 and named in atom.names) or any(re.search(declared, f.text(f.body)) for f in functions):
        return
    raise Left(site.kernel, site.kernel.head, f"whose size `{' '.join(size[0].split())}` is, in another function")


def _holds(function: Function, at: int) -> bool:
    """Whether an offset is in a function, its template's parameters and its attributes among it."""
    node = function.node
    if node.parent is not None and node.parent.type == "template_declaration":
        node = node.parent
    return node.start_byte <= at < node.end_byte


def _names(site: Site, atom: Atom) -> set[str]:
    """Variables and types that are tiled MMAs."""
    found = set(atom.names) | {site.mma}
    for multiply in site.multiplies:
        for function, node in [
            (multiply.call.caller, multiply.mma),
            *site.tiled.handed_in(multiply.call.caller, multiply.mma),
        ]:
            found.add(function.text(node))
            param = function.param(function.text(node))
            if param is not None and param.node is not None:
                kinds = [function.text(n) for n in find(param.node, "type_identifier")]
                found |= set(kinds) & set(function.template_params)
    for declaration in find(site.kernel.body, "declaration"):
        kind = declaration.child_by_field_name("type")
        for declarator in declaration.children_by_field_name("declarator"):
            name = declared_name(declarator)
            if kind is not None and name is not None and site.kernel.text(name) == site.mma:
                found |= {re.sub(r"<.*", "", site.kernel.text(kind)).rpartition("::")[2].strip()}
    return {n for n in found if re.fullmatch(r"\w+", n) and n not in ("auto", "TiledMMA", "Tensor")}
