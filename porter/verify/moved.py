# SPDX-License-Identifier: Apache-2.0
"""Dynamic shared memory at another place: what a kernel leaves must not depend on where it begins beyond what its
declaration says. CUDA aligns it to 16 bytes, or to what `__align__` asks for; in one compilation it lies higher by
what other variables take."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from porter.equal.outcome import Outcome, difference
from porter.facts.flow import Flow
from porter.facts.launched import Launched, Triple
from porter.verify.equality import Equality, Place, UnknownError, left_by_clusters, moved_by

_FIRST = (0, 0, 0)


class Party(NamedTuple):
    """One of two programs, with the launch as the cluster with a first block sees it."""

    program: str
    flow: Flow
    launched_at: Callable[[Triple], Launched]

    def left(self, moved: int) -> Outcome:
        """What the first cluster leaves where dynamic shared memory lies so many bytes higher."""
        return left_by_clusters(
            self.program, self.flow, lambda first: replace(self.launched_at(first), moved=moved), [_FIRST], set()
        )

    def depends(self, moved: int) -> tuple[str, int | None]:
        """What is else then, and the place."""
        try:
            found = difference(self.left(0), self.left(moved))
        except UnknownError as error:
            return error.why, error.at
        if found is None:
            return "", None
        # at another place the same program is the port
        return "it leaves something else", found.original if found.port is None else found.port


def at_any_place(
    equality: Equality, original: Party, port: Party, stays: Collection[int] = (), asked: set[int] | None = None
) -> Equality:
    """What is said of two programs that are equal, unless the port depends on where dynamic shared memory begins and
    its original does not: what an original takes for granted its port may as well. `stays`: how many bytes further on
    it is known not to. `asked`: how many bytes further on originals did at other sizes, who are asked first then."""
    moved = moved_by([party.launched_at(_FIRST) for party in (original, port)])
    if equality.status != "equal" or not moved or moved in stays:
        return equality
    asked = set() if asked is None else asked
    known = original.depends(moved)[0] if moved in asked else None
    if known:
        return equality
    why, at = port.depends(moved)
    if not why:
        return equality
    if known is None and original.depends(moved)[0]:
        asked.add(moved)
        return equality
    why = f"the port takes for granted where shared memory begins: {moved} bytes further on {why}"
    place = Place(port.program, port.flow, at)
    return replace(equality, status="unknown", why=why, at=equality.looked_at[0], places=(place,))
