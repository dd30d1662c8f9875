# SPDX-License-Identifier: Apache-2.0
"""Which hazards of a port its original has too.

A port inherits a hazard if the original has one of the same kind, in the same direction, between accesses of the same
sort at the same statements of the user's code, and if every edge that the port's accesses lack is one that the
original's lack as well. A statement is the same on a line that the port left alone, and on one that it changed if the
instruction is the one that stood there: a copy that is one block deeper, or names its atom anew, is the same copy. What
touches Tensor Memory has no counterpart in an original and is never inherited, nor is what stands on a line that the
port added.

One pair of accesses changes its lines in every port: `wgmma` reading shared memory becomes `tcgen05.mma` reading it.
Such a reading is inherited where the `tcgen05.mma` stands on the line of that `wgmma` or in its place, and what lacks
is the user's to give: the proxy fence after the threads' own stores, or the wait for the copy that brings the operand.
All else about it is for the port to keep: four warps that meet at a `wgmma` order each other's stores, one thread that
issues a `tcgen05.mma` does not; and a `wgmma.wait_group` that is missing before a buffer is used again cannot be told
from a commit or a wait that the port lost (docs/hazards.md).

A buffer that is used again by threads that are not synchronized with those who waited for its MMAs is inherited where
all of the port's warpgroup have waited for them, at the statement at which the original's did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from porter.sim.check.hazard import Edge, Hazard, Level, Site
from porter.sim.check.judge import AFTER_COMMIT, AFTER_WAIT_GROUP
from porter.verify.line_map import LineMap

_READS = "tcgen05.mma reading shared memory", "wgmma reading shared memory"
_USERS_EDGES = (
    "fence.proxy.async between the threads' accesses and the synchronization",
    "a wait on the mbarrier that the copy completes on",
)


@dataclass(frozen=True)
class Inherited:
    """A hazard of the port, and that of the original with which it is compared."""

    hazard: Hazard
    original: Hazard

    @property
    def more(self) -> str:
        """What the port's accesses lack beyond what the original's do; empty where only the port wrote the place."""
        return "; ".join(sorted({e.missing for e in self.hazard.edges} - {e.missing for e in self.original.edges}))


@dataclass(frozen=True)
class Split:
    """The hazards of a port: `introduced` by it, and `inherited`. `similar` are introduced ones where the original
    has a hazard of the kind in the same place, which lacks something else."""

    introduced: tuple[Hazard, ...]
    inherited: tuple[Inherited, ...]
    similar: tuple[Inherited, ...]


def split(port: Sequence[Hazard], original: Sequence[Hazard], lines: LineMap) -> Split:
    """Tell what a port introduces from what its original has too."""
    introduced: list[Hazard] = []
    inherited: list[Inherited] = []
    similar: list[Inherited] = []
    left = [h for h in original if not _placed(h)]
    for hazard in port:
        like = _merged([o for o in original if _there(hazard, o, lines)])
        same = like if like is not None and _inherits(hazard, like, lines) else None
        if not _placed(hazard):
            same = next((o for o in left if _same_by_letter(hazard, o, lines)), None)
            if same is not None:
                left.remove(same)
        if same is not None:
            inherited.append(Inherited(hazard, same))
            continue
        introduced.append(hazard)
        if like is not None:
            similar.append(Inherited(hazard, like))
    return Split(tuple(introduced), tuple(inherited), tuple(similar))


def as_introduced(hazard: Hazard, level: Level) -> Hazard:
    """What a port brings in is an error at every level: what code in circulation does is no excuse for it. What the ISA
    leaves open, which only the strict level reports, stays to review."""
    return hazard if level == "strict" or hazard.severity == "error" else replace(hazard, severity="error")


def _placed(hazard: Hazard) -> bool:
    """Whether the source lines of its accesses are known."""
    return all(site.loc is not None for site in _sites(hazard))


def _sites(hazard: Hazard) -> list[Site]:
    return [site for site in (hazard.first, hazard.second) if site is not None]


def _alike(port: Hazard, original: Hazard) -> bool:
    """The same kind of hazard between as many accesses in the same direction."""
    same = port.kind.id == original.kind.id and port.race == original.race
    return same and (port.first is None) == (original.first is None)


def _merged(there: Sequence[Hazard]) -> Hazard | None:
    """Hazards in one place as one that lacks what any of them does: a level that tells errors from what is to review
    has them apart, the strict one together."""
    if not there:
        return None
    lead = next((o for o in there if o.severity == "error"), there[0])
    return replace(lead, edges=set().union(*(o.edges for o in there)))


def _inherits(port: Hazard, original: Hazard, lines: LineMap) -> bool:
    """Whether a hazard of the port is one that the original has in the same place."""
    if not all(_lacked(e, original, lines) for e in port.edges):
        return False
    # which of the two sites may be of the tensor core: the one that reads an operand
    mine = port.second if all(map(_users, port.edges)) else None
    if all(e.missing == AFTER_COMMIT for e in port.edges):
        mine = port.first
    return all(not _tensor(site) or (site is mine and site.what == _READS[0]) for site in _sites(port))


def _lacked(edge: Edge, original: Hazard, lines: LineMap) -> bool:
    """Whether the original lacks an edge. Where nothing orders its two accesses, whether there is a fence beside what
    would order them cannot be seen; a fence that is the user's to give is taken to be missing there, too. What lacks
    behind a wait for MMAs has to lack behind the wait that this one stands for."""
    if edge.missing == AFTER_COMMIT:
        waits = [e.waited for e in original.edges if e.missing == AFTER_WAIT_GROUP]
        return any(lines.stands_for(edge.waited, waited) for waited in waits)
    unordered = any(e.missing.startswith("synchronization") for e in original.edges)
    return edge in original.edges or (unordered and _users(edge))


def _users(edge: Edge) -> bool:
    return edge.missing in _USERS_EDGES and not edge.relied


def _tensor(site: Site) -> bool:
    return site.opcode.startswith("tcgen05")


def _there(port: Hazard, original: Hazard, lines: LineMap) -> bool:
    """A hazard of the same kind in the same place, whatever it lacks."""
    return _alike(port, original) and all(
        (mine.what == theirs.what and _same_access(mine, theirs, lines))
        or ((mine.what, theirs.what) == _READS and lines.stands_for(mine.loc, theirs.loc))
        for mine, theirs in zip(_sites(port), _sites(original), strict=True)
    )


def _same_access(port: Site, original: Site, lines: LineMap) -> bool:
    if lines.same(port.loc, original.loc):
        return True
    return port.opcode == original.opcode and lines.replaced(port.loc, original.loc)


def _same_by_letter(port: Hazard, original: Hazard, lines: LineMap) -> bool:
    """Where a line is not known, one place cannot be told from another: only what the letter of the ISA alone forbids
    passes."""
    letter = port.strict and original.strict
    if not letter or not _alike(port, original) or not port.edges <= original.edges:
        return False
    for mine, theirs in zip(_sites(port), _sites(original), strict=True):
        if mine.what != theirs.what or _tensor(mine):
            return False
        if not (mine.loc is None and theirs.loc is None) and not lines.same(mine.loc, theirs.loc):
            return False
    return True
