# SPDX-License-Identifier: Apache-2.0
"""How warps of a port share their registers out: anew where ptxas says that the port spills."""

from __future__ import annotations

from porter.diagnostics import Code, Diagnostic, PorterError
from porter.passes.native.blocks import NAME as BLOCKS
from porter.passes.native.blocks import SHARED_OUT
from porter.passes.native.registers import NAME, counts
from porter.passes.ported import Ported, PortedRoot
from porter.tune.candidates import cases_of, port_of
from porter.tune.searching import Counts, Make, Searching, builder_of, cuda_roots, lacking
from porter.tune.staging import port_plan
from porter.verify.prepare import prepare

_LEAST = 24
"""The fewest registers that setmaxnreg leaves a warp."""
_TRIES = 8
"""Numbers that are tried, from the fewest on."""


def tuned(session: Searching, ported: Ported, make: Make) -> tuple[Ported, Counts, list[Diagnostic]]:
    """A port whose kernels spill as little as other numbers of setmaxnreg allow, these numbers, and for each root that
    spills all the same why."""
    said: list[Diagnostic] = []
    chosen: set[tuple[str, int]] = set()
    for root in cuda_roots(ported):
        if b"setmaxnreg" not in b"".join(ported.of_root(root).values()):
            continue
        found, what = _chosen(session, ported, root, make)
        if found:
            chosen.add((root.path, found))
        elif what:
            said.append(lacking(root, NAME, what))
    counts = frozenset(chosen)
    return (make(registers=counts) if counts else ported), counts, said


def _chosen(session: Searching, ported: Ported, root: PortedRoot, make: Make) -> tuple[int, str]:
    """The fewest registers of warps that give some back with which a root spills nothing; 0 where none are better, and
    why, if it spills."""
    try:
        before = _spilled(session, ported, root)
    except PorterError:
        # whatever it is, the run that verifies the port says it
        return 0, ""
    if not before:
        return 0, ""
    if BLOCKS in root.native:
        return 0, f"{SHARED_OUT}, where ptxas spills {before} bytes"
    tries = 0
    for least in counts(_LEAST):
        other = make(registers=frozenset({(root.path, least)}))
        mine = next((r for r in other.roots if r.path == root.path), None)
        if mine is None or not mine.registers:
            said = [d for d in other.diagnostics if d.code is Code.NATIVE_LEFT and d.values.get("step") == NAME]
            if said and "room for" not in str(said[0].values["what"]):
                return 0, f"{said[0].values['what']}, where ptxas spills {before} bytes"
            continue
        tries += 1
        if tries > _TRIES:
            break
        if not _spilled(session, other, mine):
            return least, ""
    return 0, f"numbers of setmaxnreg with which ptxas does not spill {before} bytes"


def _spilled(session: Searching, ported: Ported, root: PortedRoot) -> int:
    """Bytes that the kernels of a root, compiled as the cases beside it ask for, spill in all. Raises PorterError: what
    compiling raises."""
    made_of, builder = port_of(port_plan(session, ported, root)), builder_of(session)
    nbytes = 0
    for case in cases_of(root):
        for one in prepare(case, ["port"], builder, case.sizes, 0, made_of)[0]:
            # the file may hold other instantiations than that of the case's size
            used = one.kernel.assembled().resources.values() if one.kernel.assembled is not None else ()
            nbytes = max(nbytes, sum(r.spill_stores + r.spill_loads for r in used))
    return nbytes
