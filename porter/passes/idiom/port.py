# SPDX-License-Identifier: Apache-2.0
"""The port of kernels with a TiledMMA in SM100's own words, or the fact that keeps one from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from porter.model.tiled.accumulators import Tiled
from porter.passes.context import PortContext
from porter.passes.full_rate.proposing import Boxes
from porter.passes.idiom.allocation import allocate
from porter.passes.idiom.asked import Asked
from porter.passes.idiom.atoms import rewrite_atoms
from porter.passes.idiom.comments import speaking_of_hopper
from porter.passes.idiom.copies import Copies
from porter.passes.idiom.draft import Draft
from porter.passes.idiom.includes import include
from porter.passes.idiom.issuer import Issuer
from porter.passes.idiom.issuing import Issuing
from porter.passes.idiom.mainloop import Mainloop
from porter.passes.idiom.operands import find_operand
from porter.passes.idiom.pairing import Pairing
from porter.passes.idiom.pipelines import rewrite_pipelines
from porter.passes.idiom.rows_kept import RowsKept
from porter.passes.idiom.site import Site, sites_of
from porter.passes.idiom.stages import more_stages
from porter.passes.idiom.storage import find_storage
from porter.passes.idiom.sums import Sums
from porter.passes.idiom.text import cpp
from porter.passes.idiom.threads import rewrite_sizes
from porter.passes.idiom.types import Ask, Question, Types, answered
from porter.passes.idiom.wide_pair import WidePairing
from porter.passes.native.sites import Left
from porter.passes.plan import KernelPlan

_PLAIN = Asked()
OWN_WARP = "a warp of its own that issues MMAs"


def port_idiomatic(
    port: PortContext, tiled: Tiled, ask: Ask, asked: Asked = _PLAIN, boxes: Boxes | None = None
) -> list[KernelPlan]:
    """Add the edits of all kernels to the port, with what steps ask of it; gives a plan of each. `boxes`: the tensor
    maps that host code makes.

    Raises:
        Left: a fact is missing, of one of them; nothing is added then.
    """
    program = port.program
    if tiled.refusals:
        first = tiled.refusals[0]
        function = first.function or program.kernels[0]
        raise Left(function, function.head, first.what)
    try:
        return _ported_by(port, tiled, ask, _with_rows_anew, asked, boxes)
    except Left as left:
        if asked != _PLAIN:
            raise
        try:
            return _ported_by(port, tiled, ask, _with_rows_kept, asked, boxes)
        except Left as other:
            what = left.what if left.what == other.what else f"{left.what}; and {other.what}"
            raise Left(left.function, left.span, what) from None


def _ported_by(
    port: PortContext, tiled: Tiled, ask: Ask, mode: Callable[[Site, Ask], KernelPlan], asked: Asked,
    boxes: Boxes | None,
) -> list[KernelPlan]:  # fmt: skip
    """Add the edits that a mode writes for the only kernel that multiplies."""
    program, draft, refusals = port.program, Draft(port), list(tiled.refusals)
    try:
        sites = list(sites_of(port, tiled, draft))
        if len(sites) != 1:
            where = program.kernels[0] if program.kernels else tiled.multiplies[0].call.caller
            raise Left(where, where.head, f"one kernel that multiplies: there are {len(sites)}")
        sites[0].asked, sites[0].boxes = asked, boxes
        plan = mode(sites[0], ask)
        if len(tiled.refusals) > len(refusals):
            refusal = tiled.refusals[-1]
            function = refusal.function or sites[0].kernel
            raise Left(function, function.head, refusal.what)
        draft.make()
    finally:
        tiled.refusals[:] = refusals
    said = speaking_of_hopper(sites[0], draft)
    port.diagnostics += [said] if said is not None else []
    return [plan]


def _with_rows_anew(site: Site, ask: Ask) -> KernelPlan:
    """MMAs of 128 rows, and results that are partitioned anew."""
    for handle in site.tiled.fragments:
        if handle.function is not site.kernel:
            span = handle.function.span(handle.declaration)
            raise Left(handle.function, span, f"accumulator `{handle.name}` as a variable of its kernel")
    if site.accumulators != 1:
        raise Left(
            site.kernel, site.kernel.head, f"one accumulator, declared in the kernel: there are {site.accumulators}"
        )
    _ask(site, ask)
    return _ported(site)


def _with_rows_kept(site: Site, ask: Ask) -> KernelPlan:
    """MMAs of 64 rows, whose registers keep their layout."""
    columns = RowsKept(site).take(ask)
    include(site, False)
    return _plan(
        site, "P", columns, 64, False, "the tiled MMAs of Hopper name the layout of registers, those of SM100 multiply"
    )


def _ask(site: Site, ask: Ask) -> None:
    """Raises Left if the compiler does not tell types, or instantiations of one text differ in them."""
    kernel, operand, sources = site.kernel, find_operand(site), site.program.sources
    last = site.handle.declaration
    if operand is not None and operand.declaration.start_byte > last.start_byte:
        last = operand.declaration
    depth = cpp("depth", mma=site.mma, operand=operand.name) if operand is not None else "0"
    values = {"mma": site.mma, "accumulator": site.handle.name, "depth": depth}
    question = Question(kernel.file.path, kernel.span(last).end, "question", values)
    found = answered([question], sources.root, sources.sources(), sources.include_dirs, ask)
    if isinstance(found, str):
        raise site.left(site.handle.declaration, f"what the compiler says of its types: {found}")
    if not found[0]:
        raise site.left(site.handle.declaration, "an instantiation that the compiler makes")
    types = frozenset(Types(*numbers) for numbers in found[0])
    site.types, site.every = max(types, key=lambda t: t.columns), types
    if len({replace(t, columns=0) for t in types}) > 1 or (len(types) > 1 and site.tile_names is None):
        raise site.left(site.handle.declaration, "instantiations whose tiles differ in columns with a name alone")
    if site.asked.wide:
        site.types, *others = (replace(t, columns=2 * t.columns) for t in (site.types, *types))
        site.every = frozenset(others)


def _ported(site: Site) -> KernelPlan:
    loop = Mainloop(site)
    site.rotates = site.asked.issuer and loop.turns
    if site.asked.buffers > 1 and not site.rotates:
        raise site.left(site.handle.declaration, "a next tile: a block has one")
    if site.asked.pair and not site.asked.issuer:
        raise site.left(site.handle.declaration, OWN_WARP)
    kind = WidePairing if site.asked.wide else Pairing
    pairing = kind(site, loop, site.boxes) if site.asked.pair else None
    if pairing is not None:
        pairing.operands()
        pairing.take()
    if site.asked.stages:
        more_stages(site)
    atom, storage = rewrite_atoms(site), find_storage(site)
    operand = find_operand(site)
    late = allocate(site, storage, operand is not None)
    if operand is not None and (late is not None or loop.is_pure):
        raise site.left(operand.declaration, "A from registers in a loop that loads it, behind where columns are known")
    copies = Copies(site, loop)
    copies.find()
    if site.asked.wide and copies.by_matrix:
        raise site.left(site.handle.declaration, "results that leave without a tile of theirs in shared memory")
    sums = Sums(site, loop, atom, storage.front, copies.by_matrix, operand, late)
    words = {"warp": site.name("warp"), "tmem": site.name("tmem"), "base": site.name("tmem_base")}
    free = cpp("free", site.unit, first=site.first_warp, storage=storage.front, columns=site.allocated_columns,
               rotates=site.rotates, pair=site.asked.pair, threads=site.multiplying_threads, **words)  # fmt: skip
    if site.asked.issuer and (late is not None or operand is not None):
        raise site.left(site.handle.declaration, "sums that are declared behind the barrier of all, and A in memory")
    issuer = Issuer(site, loop, storage.front) if site.asked.issuer else None
    issuing = Issuing(site, loop, storage.front, sums.load(), free, operand, issuer,
                      pairing.guard if pairing is not None else "")  # fmt: skip
    issuing.take()
    sums.take(issuing.declares_phase)
    copies.take(sums.by_rows)
    rewrite_pipelines(site, loop)
    rewrite_sizes(site, atom)
    include(site, site.rotates or any(by for _, _, by in loop.releases()))
    what = "it is in SM100's own words: one warp issues MMAs of 128 rows, and results are partitioned anew"
    mode = "W'" if copies.by_matrix else "W"
    plan = _plan(site, mode, site.columns, 128, len(site.every) == 1, what)
    return replace(plan, pair_axis=pairing.axis, halved=pairing.columns_axis) if pairing is not None else plan


def _plan(site: Site, mode: str, columns: int, rows: int, alike: bool, what: str) -> KernelPlan:
    kernel = site.kernel
    return KernelPlan(
        kernel=kernel.name,
        path=kernel.file.path,
        line=kernel.file.lines.line_column(kernel.head.start)[0],
        threads=site.threads or "unknown",
        warpgroups=str(site.groups or site.types.warpgroups),
        first_warpgroup=site.first_warpgroup,
        columns=str(columns),
        in_flight=1,
        barrier=0,
        notes=(what,),
        mma_rows=rows,
        mode=mode,
        alike=alike,
    )
