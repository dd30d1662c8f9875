# SPDX-License-Identifier: Apache-2.0
"""What a cluster knows of other clusters, through flags in global memory.

The clocks of a cluster say nothing of other clusters. When a warp acquires what another cluster has released,
its cluster gets a component for that warp's *imports*: the component's value counts them, and whoever knows
the value, by whatever synchronization, knows what was imported up to there.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from porter.sim.check.clocks import CARRIED, GLOBAL, ORDER, Clocks

Array = npt.NDArray[np.int64]
Known = dict[int, Array]
"""Messages by cluster, [views, components]; the numbers of clusters run over the whole grid."""


def join(one: Known, other: Known) -> Known:
    """Both together: `one` itself if the other has no news. Arrays are shared with the arguments where nothing changes
    and never written to."""
    result = one
    for cluster, news in other.items():
        had = one.get(cluster)
        both = news if had is None else _joined(had, news)
        if both is not had:
            if result is one:
                result = dict(one)
            result[cluster] = both
    return result


def _joined(had: Array, news: Array) -> Array:
    if had is news:
        return had
    wide, narrow = (had, news) if had.shape[1] >= news.shape[1] else (news, had)
    if (narrow <= wide[:, : narrow.shape[1]]).all():
        return wide
    merged = wide.copy()
    part = merged[:, : narrow.shape[1]]
    np.maximum(part, narrow, out=part)
    return merged


class Imports:
    """Of one wave. `first_cluster` is the number of its first cluster within the grid. What warps import from their own
    cluster joins the clocks, but for a `kind` of its own, which is kept apart."""

    def __init__(self, clocks: Clocks, first_cluster: int, kind: str = "import") -> None:
        self.clocks = clocks
        self.first = first_cluster
        self.kind = kind
        # By cluster of the wave: what each import component's values stand for, oldest first.
        self.versions: dict[int, dict[int, list[Known]]] = {}
        # By warp: what its last message told of the import components, and what that stands for.
        self._told: dict[int, tuple[list[tuple[int, int, int]], Known]] = {}

    def cluster(self, warp: int) -> int:
        return self.first + warp // self.clocks.per_cluster

    def everything(self, warp: int, message: Array) -> Known:
        """A message of the warp with all that it knows of other clusters."""
        own = self.cluster(warp)
        versions = self.versions.get(own, {})
        values = [(c, int(message[ORDER, c]), int(message[GLOBAL, c])) for c in versions if c < message.shape[1]]
        told = [value for value in values if value[1]]
        if not told:
            return {own: message}
        had = self._told.get(warp)
        if had is None or had[0] != told:
            imported: Known = {}
            for component, value, fenced in told:
                imported = join(imported, self._imported(versions[component], value, fenced))
            had = self._told[warp] = told, imported
        return join({own: message}, had[1])

    @staticmethod
    def _imported(versions: list[Known], value: int, fenced: int) -> Known:
        """What a value of an import component tells. A proxy fence after an import covers it."""
        known = versions[value - 1]
        if not fenced:
            return known
        seen = {}
        for cluster, rows in versions[fenced - 1].items():
            covered = rows.copy()
            np.maximum(covered[GLOBAL], covered[ORDER], out=covered[GLOBAL])
            seen[cluster] = covered
        return join(known, seen)

    def receive(self, warp: int, news: Known) -> None:
        """The warp acquires."""
        own = self.cluster(warp)
        message = news.get(own) if self.kind == "import" else None
        if message is not None:
            self.clocks.receive(warp, message)
        others = {cluster: rows for cluster, rows in news.items() if cluster != own or message is None}
        if not others:
            return
        component = self.clocks.component((self.kind, int(self.clocks.own[warp])))
        versions = self.versions.setdefault(own, {}).setdefault(component, [])
        known = join(versions[-1], others) if versions else others
        if not versions or known is not versions[-1]:
            versions.append(known)
        self.clocks.state[warp, ORDER, component] = len(versions)

    def knows(self, warp: int, view: int, cluster: int, done: Iterable[tuple[int, int]]) -> bool:
        """Whether an event of another cluster is in a warp's past; `view` is ORDER or GLOBAL."""
        found = self.versions.get(self.cluster(warp))
        if not found:
            return False
        message = self.clocks.state[warp, :CARRIED]
        events = list(done)
        for component, versions in found.items():
            value = int(message[ORDER, component])
            if value and holds(versions[value - 1].get(cluster), view, events):
                return True
            fenced = int(message[GLOBAL, component])
            if view == GLOBAL and fenced and holds(versions[fenced - 1].get(cluster), ORDER, events):
                return True
        return False


def holds(rows: Array | None, view: int, events: Iterable[tuple[int, int]]) -> bool:
    """Whether one of the events is in a view of a message."""
    return rows is not None and any(c < rows.shape[1] and rows[view, c] >= v for c, v in events)
