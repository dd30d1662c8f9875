# SPDX-License-Identifier: Apache-2.0
"""Tensor Memory is allocated by the warp that issues, where all threads of the CTA meet in front of the MMAs."""

from __future__ import annotations

import re

from tree_sitter import Node

from porter.model.kernels import setup_position, top_level, top_level_above
from porter.passes.idiom.site import Site
from porter.passes.idiom.storage import Storage
from porter.passes.idiom.text import cpp

RULE = "PTR766"
_MEETS = re.compile(r"(?:\w+::)*(?:__syncthreads|cluster_sync)\s*\(\s*\)\s*;")
_ARRIVES = re.compile(r"(?:\w+::)*cluster_arrive(?:_relaxed)?\s*\(\s*\)\s*;")
_WAITS = re.compile(r"(?:\w+::)*cluster_wait\s*\(\s*\)\s*;")


def allocate(site: Site, storage: Storage, stores: bool) -> Node | None:
    """Write the allocation; gives the statement behind which the columns are known, where the accumulator is declared
    in front of it. Where threads store to Tensor Memory (`stores`), that comes behind the allocation by fences."""
    kernel, declared = site.kernel, top_level_above(site.kernel, site.at)
    parting = setup_position(site.program, kernel, lambda node: site.activity.within(kernel, node))
    until = parting.start_byte if parting is not None else declared.start_byte
    taken = storage.declaration.end_byte if storage.declaration is not None else 0
    statements = [n for n in top_level(kernel) if taken <= n.start_byte]
    meeting = next(((a, b, m) for a, b, m in _meetings(site, statements) if b.start_byte < until), None)
    at = (
        meeting[0]
        if meeting is not None
        else parting
        if parting is not None and until < declared.start_byte
        else declared
    )
    site.allocated_at = at.start_byte
    warp = site.warp_at(at.start_byte)
    if warp:
        site.names["warp"] = warp
    met = site.name("registers_stored") if site.groups and not site.meets_whole else ""
    text = cpp("allocation", site.unit, declares=not warp, warp=site.name("warp"), first=site.first_warp, c=site.c,
               tmem=site.name("tmem"), storage=storage.front, full=site.name("accumulator_full"),
               columns=site.allocated_columns, base=site.name("tmem_base"), meets=meeting is None,
               stores=stores, several=site.groups > 1, groups=site.groups, met=met,
               rotates=site.rotates, buffers=site.asked.buffers, issuer=site.issuing_warp,
               threads=_of_both(site) if site.rotates else "", pair=site.asked.pair,
               of_pair=f", {site.cluster}" if site.asked.pair else "",
               cluster=site.cluster or cpp("shape_of_one", c=site.c),
               accumulators=site.name("accumulators") if site.rotates else "",
               Accumulators=site.name("Accumulators") if site.rotates else "")  # fmt: skip
    text = "\n".join(part for part in (storage.struct, storage.lines, text) if part)
    lead = "" if _stands_alone(site, at) else "\n"
    site.draft.before(RULE, kernel, at, lead + text + ("\n" if meeting is None else ""), above_comments=True)
    if meeting is None:
        return None
    first, last, publishes = meeting
    if site.asked.pair and first is last:
        site.draft.replace(RULE, kernel, kernel.span(last), cpp("meeting_of_pair"))
    if not publishes:
        site.draft.behind(RULE, kernel, last, cpp("meeting"))
    if stores:
        site.draft.behind(RULE, kernel, last, cpp("after"))
    return last if last.start_byte > site.at.start_byte else None


def _of_both(site: Site) -> str:
    """Threads that read sums, of all CTAs that multiply together."""
    text = site.multiplying_threads
    return text if not site.asked.pair else f"2 * ({text})" if not text.isdigit() else str(2 * int(text))


def _meetings(site: Site, statements: list[Node]) -> list[tuple[Node, Node, bool]]:
    """Statements at which all threads of a CTA meet, first and last, and whether what they wrote is seen then."""
    found = []
    texts = [site.kernel.text(n) for n in statements]
    for i, text in enumerate(texts):
        if _MEETS.fullmatch(text):
            found.append((statements[i], statements[i], True))
        elif _ARRIVES.fullmatch(text) and i + 1 < len(texts) and _WAITS.fullmatch(texts[i + 1]):
            found.append((statements[i], statements[i + 1], "relaxed" not in text))
    return found


def _stands_alone(site: Site, node: Node) -> bool:
    """Whether a blank line, or a brace, stands in front of a statement."""
    source = site.kernel.file.source
    before = source[: site.kernel.span(node).start].rstrip(b" \t")
    return before.endswith((b"\n\n", b"{\n"))
