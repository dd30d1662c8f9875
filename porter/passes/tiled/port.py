# SPDX-License-Identifier: Apache-2.0
"""The passes over kernels with tiled MMAs, in their order."""

from __future__ import annotations

import re
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
from porter.passes.emit import joined
from porter.passes.findings import refused
from porter.passes.header import insert_header
from porter.passes.plan import KernelPlan
from porter.passes.tiled.atoms import rewrite_atoms
from porter.passes.tiled.context import NAMESPACE, TiledContext
from porter.passes.tiled.copies import refuse_copies
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


def header_text() -> str:
    """The header beside ports, as one file."""
    return joined(HEADER, _PARTS)


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


def port_tiled(port: PortContext, tiled: Tiled) -> tuple[list[Diagnostic], list[KernelPlan]]:
    """Edit every kernel that multiplies with tiled MMAs; gives what stops it, and a plan of each."""
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
        insert_header(port, HEADER, unclaimed(port, header_text(), NAMESPACE))
    return found, [kernel_plan(context, k) for k in context.kernels if id(k.function) in context.frames]
