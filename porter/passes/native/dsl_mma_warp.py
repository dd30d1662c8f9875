# SPDX-License-Identifier: Apache-2.0
"""A warp of the loading warpgroup that has nothing to do issues the MMAs of a persistent kernel, in a loop over tiles
of its own, into one of two accumulators; the other threads store what is in the other one meanwhile.

CUTLASS: python/CuTeDSL/cutlass/pipeline/sm100.py, PipelineUmmaAsync. PTX ISA 9.7.16.12.1 (tcgen05.commit).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.kernel import Kernel
from porter.passes.idiom_dsl.mainloop import bounds
from porter.passes.idiom_dsl.memory import first_warp
from porter.passes.idiom_dsl.names import KNOWN, OBSERVED
from porter.passes.idiom_dsl.shapes import binds, whole_call
from porter.passes.idiom_dsl.site import Site
from porter.passes.idiom_dsl.text import Draft, Left, Statement, assigned, deeper, found_in, method
from porter.passes.idiom_dsl.words import Words
from porter.ptx.tmem import COLUMNS
from porter.steps.step import Declared, Ring, Step

RULE = "PTR589"
_STAGES = 2
_LOOPS: tuple[type[cst.CSTNode], ...] = (cst.For, cst.While)


@dataclass(frozen=True)
class _Loop:
    """The loop over tiles in the consumers' branch of a kernel. `before`, `first`, `last`: statements ahead of it, and
    in it ahead of and behind the main loop, that say which tiles there are; those that are `gone` consumers do not
    need."""

    branch: cst.If
    loop: cst.For | cst.While
    before: Sequence[Statement]
    first: Sequence[Statement]
    last: Sequence[Statement]
    gone: Sequence[Statement]


def _write(site: Site) -> None:
    kernel, words = site.kernel, site.words
    if not site.by_tiles or kernel.region.turns:
        raise Left("sums that leave tile by tile of the epilogue, and are not read between MMAs")
    if kernel.loader:
        raise Left("loads by a warp that does not multiply", kernel.region.first)
    if any(_STAGES * columns > COLUMNS for _, columns in kernel.tiles.values()):
        raise Left(f"columns for {_STAGES} accumulators")
    if kernel.text.block(kernel.accumulator.statement) is not kernel.function.body:
        raise Left("an accumulator that all threads of a block know", kernel.accumulator.statement)
    _require_its_name_alone(kernel)
    found, warps = _loop_over_tiles(kernel), idle_warps(kernel, site.slice)
    if not warps:
        raise Left("a warp ahead of those that multiply which has nothing to do", kernel.region.first)
    words.with_stages(_STAGES, kernel.fresh("acc_stages"))
    warp = _warp_index(kernel) or "{0}.make_warp_uniform({0}.warp_idx())".format(f"{words['cute']}.arch")

    def placed(draft: Draft, words: Words) -> None:
        _place(kernel, found, f"{warp} == {warps[-1]}{words['leads']}", draft, words)

    words["warp"] = warp
    site.placed = placed


def _require_its_name_alone(kernel: Kernel) -> None:
    """Raises Left: more than MMAs and the epilogue name the accumulator, which are two."""
    if len(kernel.accumulator.names) > 1:
        raise Left("one accumulator")
    text, name = kernel.text, kernel.accumulator.name
    own = [text.span(c) for c in kernel.gemms] + [text.span(kernel.accumulator.statement)]
    for node in found_in(kernel.function, cst.Name):
        if node.value != name or any(span.contains(text.span(node)) for span in own):
            continue
        above = text.parent(node)
        if isinstance(above, cst.Attribute) and (above.attr is node or above.attr.value not in ("iterator", "fill")):
            raise Left(f"an accumulator that nothing asks for more than its sums, as `{text.code(above)}` does", node)


def _loop_over_tiles(kernel: Kernel) -> _Loop:
    """Raises Left: the main loop does not stand right in a loop over tiles of a branch of its own."""
    branch, text, region = kernel.branch, kernel.text, kernel.region
    loop = next((n for n in text.above(region.block) if isinstance(n, _LOOPS)), None)
    if not isinstance(branch, cst.If) or branch.orelse is not None or not isinstance(loop, (cst.For, cst.While)):
        raise Left("a loop over tiles in a branch of the kernel", region.first)
    if loop.body is not region.block or loop.orelse is not None or loop not in branch.body.body:
        raise Left("a main loop that stands right in the loop over tiles", region.first)
    outer = [s for s in branch.body.body if isinstance(s, cst.BaseStatement)]
    inner = [s for s in region.block.body if isinstance(s, cst.BaseStatement)]
    own = [s for s in (*outer, *inner) if s is not loop and s not in region.statements]
    header = loop.test if isinstance(loop, cst.While) else loop.iter
    counts = _counts(kernel)
    needed = _needed(own, [*region.statements, header])
    for statement in needed:
        _require_plain(kernel, statement)
    at, start = outer.index(loop), inner.index(region.first)
    return _Loop(
        branch, loop,
        [s for s in outer[:at] if s in needed],
        [s for s in inner[:start] if s in needed],
        [s for s in inner[start:] if s in needed],
        list(_unshared(kernel, own, needed, header, counts)),
    )  # fmt: skip


def _counts(kernel: Kernel) -> set[str]:
    """Names in what says whether a tile has MMAs, where sums are cleared. Raises Left: the main loop itself says it."""
    if not any(method(c, "fill") in kernel.accumulator.names for c in found_in(kernel.function, cst.Call)):
        return set()
    names = {n for end in bounds(kernel) for n in _reads(cst.parse_expression(end))}
    for statement in kernel.region.statements:
        if names & set(binds(statement)):
            raise Left("a number of k tiles that is known ahead of the main loop", statement)
    return names


def _needed(own: Sequence[Statement], used: Sequence[cst.CSTNode]) -> list[Statement]:
    """Those of the statements `own` that name, or change, what `used` read."""
    read = {n for node in used for n in _reads(node)}
    found: list[Statement] = []
    while more := [s for s in own if s not in found and (read & set(binds(s)) or _changes(s) in read)]:
        found += more
        read |= {n for s in more for n in _reads(s)}
    return [s for s in own if s in found]


def _reads(node: cst.CSTNode) -> Iterator[str]:
    """Names in a node that are neither attributes nor keywords."""
    skipped = {id(a.attr) for a in found_in(node, cst.Attribute)}
    skipped |= {id(a.keyword) for a in found_in(node, cst.Arg) if a.keyword is not None}
    return (n.value for n in found_in(node, cst.Name) if id(n) not in skipped)


def _changes(statement: Statement) -> str:
    """The name of what a statement does nothing but call a method of."""
    call = whole_call(statement)
    owner = call.func.value if call is not None and isinstance(call.func, cst.Attribute) else None
    return owner.value if isinstance(owner, cst.Name) and owner.value != "self" else ""


def _require_plain(kernel: Kernel, statement: Statement) -> None:
    """Raises Left: what says which tiles there are does more than that."""
    text = kernel.text
    if not isinstance(statement, cst.SimpleStatementLine):
        raise Left("a choice of tiles that is made in single statements", statement)
    for call in found_in(statement, cst.Call):
        if text.is_a(call.func, *OBSERVED["meets"], *OBSERVED["barrier"], *OBSERVED["multiply"], *KNOWN["copies"]):
            raise Left("a choice of tiles that neither waits nor copies", call)
        if kernel.of_pipeline(call, "consumer_wait", "consumer_release", "producer_acquire", "producer_commit"):
            raise Left("a choice of tiles that asks for no loads", call)


def _unshared(
    kernel: Kernel, own: Sequence[Statement], needed: Sequence[Statement], header: cst.CSTNode, counts: set[str]
) -> Iterator[Statement]:
    """Statements that are needed for MMAs alone; who stores asks for `counts`, too."""
    gone = list(needed)
    while True:
        left = [header, *(s for s in own if s not in gone), *kernel.region.beside]
        read = {n for node in left for n in _reads(node)} | counts
        kept = [s for s in gone if read & set(binds(s)) or _changes(s) in read]
        if not kept:
            return iter(gone)
        gone = [s for s in gone if s not in kept]


def idle_warps(kernel: Kernel, slice_: str) -> list[int]:
    """The warps ahead of those that multiply that no condition names."""
    first, named = first_warp(kernel, slice_), set[int | None]()
    for node in found_in(kernel.function, cst.Comparison):
        for value in (node.left, *(c.comparator for c in node.comparisons)):
            named.add(kernel.number(value))
    return [n for n in range(first) if n not in named]


def _warp_index(kernel: Kernel) -> str:
    """What the kernel calls the index of a warp in its block; empty if it has no name for it."""
    text = kernel.text
    for statement in kernel.function.body.body:
        bound = assigned(statement)
        if bound is None or not isinstance(bound[1], cst.Call):
            continue
        call = bound[1]
        if text.is_a(call.func, KNOWN["warp_uniform"]) and isinstance(call.args[0].value, cst.Call):
            call = call.args[0].value
        if text.is_a(call.func, KNOWN["warp_index"]) and m.matches(call, m.Call(args=[])):
            return bound[0]
    return ""


def _place(kernel: Kernel, found: _Loop, condition: str, draft: Draft, words: Words) -> None:
    """The main loop in a branch of its own, ahead of that of the consumers, who wait for what it commits."""
    text, region = kernel.text, kernel.region
    start, body = text.span(found.loop).start, text.span(found.loop.body.body[0])
    header = text.source[start : text.line_start(body.start)].decode().split("\n")[0]
    beside = list(map(text.dedented, region.beside))
    for statement in region.beside:
        draft.remove(RULE, statement)
    known = [f"{words['any']} = {words['known']}"] if words["known"] else []
    stage = f"{kernel.accumulator.name} = {words['acc']}[(None, None, None, {words['fills']}.index)]"
    instead: dict[int, str] = words.get("instead", {})
    before, first, last = (
        [instead.get(id(s)) or text.dedented(s) for s in these if not draft.is_gone(text.span(s))]
        for these in (found.before, found.first, found.last)
    )
    outer = [*before, words.text("fills"), header]
    inner = [*first, *known, words.text_if_any("acquire"), stage]
    for statement in found.gone:
        draft.remove(RULE, statement)
    behind = [words.text_if_any("commit", state=words["fills"]), *last]
    ahead = "\n".join([f"if {condition}:", *map(deeper, outer), *(deeper(deeper(s)) for s in inner)])
    after = "\n".join(deeper(deeper(s)) for s in behind)
    draft.move(RULE, (region.first, region.last), found.branch, 2, ahead, f"{after}\n\n")
    draft.below(RULE, region.last, "\n".join([*known, *beside, words.text_if_any("wait")]))


STEP = Step(
    "mma-warp", RULE, _write, "dsl",
    changes=Declared(roles=True, rings=(Ring("accumulator stages", "tiles"),), barriers=True),
)  # fmt: skip
