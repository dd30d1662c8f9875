# SPDX-License-Identifier: Apache-2.0
"""What two kernels leave at one launch of each: one execution of each tells.

Where both kernels' synchronization is right, what a kernel leaves does not depend on the schedule (for kernels that
meet at barriers: the confluence theorem of Volta, arXiv 2511.12638). Sizes, indices and addresses are numbers, all data
are terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple

from porter.equal.meaning import Follower
from porter.equal.outcome import Difference, Outcome, difference, of_cluster, together
from porter.facts.events import NotUnderstood
from porter.facts.executor import run
from porter.facts.flow import Flow
from porter.facts.launched import Launched, Triple
from porter.facts.machine import Machine

MOST_CLUSTERS = 16
"""Clusters of a grid that are looked at where others do the same with other indices."""
_ALL_CLUSTERS = 256
"""Clusters that are executed where a port shares work out in another way."""


class UnknownError(Exception):
    """Something that keeps two programs from being compared, at an instruction of one of them."""

    def __init__(self, why: str, program: str, flow: Flow, at: int | None) -> None:
        super().__init__(why)
        self.why, self.program, self.flow, self.at = why, program, flow, at


class Subject(NamedTuple):
    """A kernel with a launch: `launched` is that as the cluster with some block sees it."""

    program: str
    flow: Flow
    grid: Triple
    cluster: Triple
    launched: Callable[[Triple], Launched]


@dataclass
class Outcomes:
    """Compares; `assumed` grows with what is taken for granted."""

    assumed: set[str] = field(default_factory=set)
    _known: dict[object, Outcome] = field(default_factory=dict)
    """Those of originals."""

    def compared(self, original: Subject, port: Subject, key: object) -> tuple[Difference | None, int]:
        """Where they differ, or how many bytes are the same. `key`: the original with its launch.

        Raises:
            UnknownError: something is not understood.
        """
        all_ours, all_theirs = (list(_clusters(one.grid, one.cluster)) for one in (original, port))
        if (original.grid, original.cluster) == (port.grid, port.cluster):
            firsts = _spread(all_ours)
            found, count = self._of_clusters(original, firsts, port, firsts, key)
            if found is None or len(firsts) == len(all_ours):
                return found, count
        # work may be shared out among blocks in another way
        if max(len(all_ours), len(all_theirs)) > _ALL_CLUSTERS:
            raise UnknownError(
                f"a grid of another shape with more than {_ALL_CLUSTERS} clusters", port.program, port.flow, None
            )
        return self._of_clusters(original, all_ours, port, all_theirs, key)

    def _of_clusters(
        self, original: Subject, of_original: Sequence[Triple], port: Subject, of_port: Sequence[Triple], key: object
    ) -> tuple[Difference | None, int]:
        known = key, tuple(of_original)
        if known not in self._known:
            self._known[known] = self._outcome(original, of_original)
        ours, theirs = self._known[known], self._outcome(port, of_port)
        return difference(ours, theirs), len(ours.addresses) + len(ours.reductions)

    def _outcome(self, subject: Subject, firsts: Sequence[Triple]) -> Outcome:
        try:
            return together([self._of(subject, subject.launched(first)) for first in firsts])
        except NotUnderstood as error:
            raise UnknownError(str(error), subject.program, subject.flow, error.at) from error

    def _of(self, subject: Subject, launched: Launched) -> Outcome:
        """What a cluster leaves; small tensors of integers are those of the case only where they decide something."""
        try:
            return self._executed(subject, replace(launched, areas=()))
        except NotUnderstood:
            if not launched.areas:
                raise
        return self._executed(subject, launched)

    def _executed(self, subject: Subject, launched: Launched) -> Outcome:
        machine = Machine(launched)
        follower = Follower(machine)
        history = run(machine)
        if history.blocked:
            raise UnknownError("a deadlock", subject.program, subject.flow, history.blocked[0].at)
        self.assumed |= history.assumed
        return of_cluster(follower.contents.stored)


def _clusters(grid: Triple, cluster: Triple) -> Iterator[Triple]:
    """The first block of each cluster of a grid."""
    for z, y, x in product(*(range(0, extent, size) for extent, size in zip(grid[::-1], cluster[::-1], strict=True))):
        yield x, y, z


def _spread(clusters: Sequence[Triple]) -> list[Triple]:
    """The first and the last ones of many, and some in between."""
    count = len(clusters)
    if count <= MOST_CLUSTERS:
        return list(clusters)
    return [clusters[i * (count - 1) // (MOST_CLUSTERS - 1)] for i in range(MOST_CLUSTERS)]
