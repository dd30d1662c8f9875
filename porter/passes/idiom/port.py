# SPDX-License-Identifier: Apache-2.0
"""The port of kernels with a TiledMMA in SM100's own words, or the fact that keeps one from it."""

from __future__ import annotations

from dataclasses import replace

from porter.model.tiled.accumulators import Tiled
from porter.passes.context import PortContext
from porter.passes.idiom.allocation import allocate
from porter.passes.idiom.atoms import rewrite_atoms
from porter.passes.idiom.comments import speaking_of_hopper
from porter.passes.idiom.copies import Copies
from porter.passes.idiom.draft import Draft
from porter.passes.idiom.includes import include
from porter.passes.idiom.issuing import Issuing
from porter.passes.idiom.mainloop import Mainloop
from porter.passes.idiom.operands import find_operand
from porter.passes.idiom.pipelines import rewrite_pipelines
from porter.passes.idiom.site import Site, sites_of
from porter.passes.idiom.storage import find_storage
from porter.passes.idiom.sums import Sums
from porter.passes.idiom.text import cpp
from porter.passes.idiom.threads import rewrite_sizes
from porter.passes.idiom.types import Ask, Question, answered
from porter.passes.native.sites import Left
from porter.passes.plan import KernelPlan


def port_idiomatic(port: PortContext, tiled: Tiled, ask: Ask) -> list[KernelPlan]:
    """Add the edits of all kernels to the port; gives a plan of each.

    Raises:
        Left: a fact is missing, of one of them; nothing is added then.
    """
    program = port.program
    if tiled.refusals:
        first = tiled.refusals[0]
        function = first.function or program.kernels[0]
        raise Left(function, function.head, first.what)
    draft = Draft(port)
    sites = list(sites_of(port, tiled, draft))
    if len(sites) != 1:
        where = program.kernels[0] if program.kernels else tiled.multiplies[0].call.caller
        raise Left(where, where.head, f"one kernel that multiplies: there are {len(sites)}")
    _ask(port, sites, ask)
    plans = [_ported(site) for site in sites]
    draft.make()
    port.diagnostics += [said for site in sites if (said := speaking_of_hopper(site, draft)) is not None]
    return plans


def _ask(port: PortContext, sites: list[Site], ask: Ask) -> None:
    """Raises Left if the compiler does not tell types, or instantiations of one text differ in them."""
    sources = port.program.sources
    questions = []
    for site in sites:
        kernel, operand = site.kernel, find_operand(site)
        last = site.handle.declaration
        if operand is not None and operand.declaration.start_byte > last.start_byte:
            last = operand.declaration
        name = operand.name if operand is not None else ""
        questions.append(Question(kernel.file.path, kernel.span(last).end, site.mma, site.handle.name, name))
    found = answered(questions, sources.root, sources.sources(), sources.include_dirs, ask)
    for site, types in zip(sites, found if not isinstance(found, str) else [frozenset()] * len(sites), strict=True):
        if isinstance(found, str):
            raise site.left(site.handle.declaration, f"what the compiler says of its types: {found}")
        if not types:
            raise site.left(site.handle.declaration, "an instantiation that the compiler makes")
        site.types, site.every = max(types, key=lambda t: t.columns), types
        if len({replace(t, columns=0) for t in types}) > 1 or (len(types) > 1 and site.tile_names is None):
            raise site.left(site.handle.declaration, "instantiations whose tiles differ in columns with a name alone")


def _ported(site: Site) -> KernelPlan:
    loop, atom, storage = Mainloop(site), rewrite_atoms(site), find_storage(site)
    operand = find_operand(site)
    late = allocate(site, storage, operand is not None)
    if operand is not None and (late is not None or loop.is_pure):
        raise site.left(operand.declaration, "A from registers in a loop that loads it, behind where columns are known")
    copies = Copies(site, loop)
    copies.find()
    sums = Sums(site, loop, atom, storage.front, copies.by_matrix, operand, late)
    words = {"warp": site.name("warp"), "tmem": site.name("tmem"), "base": site.name("tmem_base")}
    free = cpp("free", site.unit, first=site.first_warp, storage=storage.front, columns=site.columns_text, **words)
    issuing = Issuing(site, loop, storage.front, sums.load(), free, operand)
    issuing.take()
    sums.take(issuing.declares_phase)
    copies.take(sums.by_rows)
    rewrite_pipelines(site, loop)
    rewrite_sizes(site, atom)
    include(site, any(by for _, _, by in loop.releases()))
    return _plan(site, copies.by_matrix)


def _plan(site: Site, by_matrix: bool) -> KernelPlan:
    kernel = site.kernel
    return KernelPlan(
        kernel=kernel.name,
        path=kernel.file.path,
        line=kernel.file.lines.line_column(kernel.head.start)[0],
        threads=site.threads or "unknown",
        warpgroups=str(site.types.warpgroups),
        first_warpgroup=site.first_warpgroup,
        columns=str(site.columns),
        in_flight=1,
        barrier=0,
        notes=("it is in SM100's own words: one warp issues MMAs of 128 rows, and results are partitioned anew",),
        mma_rows=128,
        mode="W'" if by_matrix else "W",
    )
