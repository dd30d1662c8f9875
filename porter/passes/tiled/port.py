# SPDX-License-Identifier: Apache-2.0
"""The passes over kernels with tiled MMAs, in their order."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from porter.diagnostics import Code, Diagnostic, has_errors
from porter.lang.text import Span
from porter.model.program import Program
from porter.model.tiled.accumulators import Tiled
from porter.model.tiled.activity import Activity
from porter.model.tiled.batches import Batches
from porter.model.tiled.flight import Flight
from porter.passes.claimed import unclaimed
from porter.passes.context import PortContext
from porter.passes.emit import joined, parsed
from porter.passes.findings import refused
from porter.passes.header import insert_header
from porter.passes.plan import KernelPlan
from porter.passes.tiled.atoms import rewrite_atoms
from porter.passes.tiled.context import NAMESPACE, TiledContext
from porter.passes.tiled.copies import refuse_copies
from porter.passes.tiled.full_rate import take
from porter.passes.tiled.macro_arguments import refuse_loads_in_arguments
from porter.passes.tiled.moves import insert_loads
from porter.passes.tiled.names import Names
from porter.passes.tiled.plan import kernel_plan
from porter.passes.tiled.pointers import cast_pointers
from porter.passes.tiled.setup import find_kernels, set_up
from porter.passes.tiled.state import hand_on
from porter.passes.tiled.sync import fence_copies, rewrite_synchronization
from porter.passes.tiled.unroll import unroll_loops

HEADER = "cute_sm100.hpp"
CUTE = "CuTe C++"
"""Its library, in rules."""
_PARTS = ("types", "warpgroup", "accumulator", "moves", "mma", "atoms", "cute")
"""What the header is made of, each of what stands in front of it."""


Steps = Callable[[TiledContext], object]
"""Takes steps of the native style, whose edits and helpers the context has then."""


def header_text(
    issuer: int | None = None,
    releases: bool = False,
    pipelines: bool = False,
    mma_warp: int | None = None,
    buffers: int = 1,
    paired: bool = False,
) -> str:
    """The header beside ports, as one file; of MMAs for two warpgroups with the warp that issues them. `releases`: with
    commits that arrive on the kernel's own mbarriers, `pipelines` on those of the library's pipelines. `mma_warp`
    issues the MMAs of all and does nothing else, for `buffers` accumulators that take turns, of both CTAs where these
    are `paired`."""
    (whole,) = parsed(f"//@ section header\n{joined(HEADER, _PARTS)}", HEADER).values()
    given = {
        "joined": issuer is not None,
        "issuer": issuer,
        "releases": releases,
        "pipelines": pipelines,
        "own_warp": mma_warp is not None,
        "mma_warp": mma_warp,
        "buffers": buffers,
        "paired": paired,
        "ctas": 2 if paired else 1,
    }
    return "".join(whole.written(given))


def _namespace_taken(program: Program) -> list[Diagnostic]:
    """Where sources that are no port have a name like the helpers' namespace."""
    if any(Path(include.name).name == HEADER for include in program.sources.includes):
        return []
    word = re.compile(rb"\b%b\b" % NAMESPACE.encode())
    return [
        Diagnostic(Code.NAMESPACE_TAKEN, file.location(Span(*match.span())), {"name": NAMESPACE})
        for file in program.sources.files.values()
        if (match := word.search(file.lexed.plain)) is not None
    ]


def port_tiled(
    port: PortContext, tiled: Tiled, full_rate: bool = False, steps: Steps | None = None
) -> tuple[list[Diagnostic], list[KernelPlan]]:
    """Edit every kernel that multiplies with tiled MMAs; gives what stops it, and a plan of each. `full_rate`: with
    M=128 MMAs where that can be; `steps` are taken on top of that."""
    context = TiledContext(port, tiled, Activity(tiled), Batches(tiled), Flight(tiled))
    program = tiled.program
    context.reached = {id(f) for f in program.functions}
    if not tiled.refusals:
        find_kernels(context)
        names = Names(context)
        refuse_copies(context)
        set_up(context, names)
        rewrite_synchronization(context)
        fence_copies(context)
        rewrite_atoms(context)
        insert_loads(context, names)
        refuse_loads_in_arguments(context)
        cast_pointers(context)
        unroll_loops(context)
        hand_on(context)
    found = [refused(program, r) for r in tiled.refusals] + _namespace_taken(program)
    if not has_errors(found):
        issuer = take(context) if full_rate and not has_errors(port.diagnostics) else None
        if steps is not None and not has_errors(port.diagnostics):
            steps(context)
        given = port.helpers
        own = given.mma_warp if given.own_thread else None
        text = header_text(issuer, given.releases, given.pipelines, own, given.buffers, given.paired)
        insert_header(port, HEADER, unclaimed(port, text, NAMESPACE))
    return found, [kernel_plan(context, k) for k in context.kernels if id(k.function) in context.frames]
