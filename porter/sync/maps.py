# SPDX-License-Identifier: Apache-2.0
"""Tensor maps that threads write to global memory: a copy sees what has been written, released, acquired, and not yet
changed again (PTX ISA 9.7.13.4)."""

from __future__ import annotations

from collections import defaultdict

from porter.facts.events import History, MapEvent, MapUse
from porter.sync.findings import Findings, Level
from porter.sync.views import Views

_KIND = "G6"
_ALL = 0
"""The address of a release."""


def look_at_maps(history: History, views: Views, findings: Findings) -> None:
    """Of all changes of a map that are wrong in one way the first one is told."""
    by_place: dict[int, list[MapEvent]] = defaultdict(list)
    for event in history.maps:
        by_place[event.address].append(event)
    releases = by_place.pop(_ALL, [])
    for events in by_place.values():
        writes, acquires = ([e for e in events if e.use is use] for use in (MapUse.WRITE, MapUse.ACQUIRE))
        for use in events:
            if use.use is MapUse.COPY:
                told: set[str] = set()
                for write in writes:
                    _pair(history, write, use, acquires, releases, views, findings, told)


def _pair(
    history: History, write: MapEvent, use: MapEvent, acquires: list[MapEvent], releases: list[MapEvent], views: Views,
    findings: Findings, told: set[str],
) -> None:  # fmt: skip
    level: Level = "error"
    first, second = write, use
    if views.execution[write.event] >> use.event & 1:
        end = None if use.access is None else use.access.end
        if end is not None and views.execution[write.event] >> end & 1:
            return
        first, second, level = use, write, "strict"
        text = "a tensor map is changed, and a copy that uses it may not be over"
    elif not _sees(views, use, write):
        text = "a copy uses a tensor map, and its change is not ordered with it"
    else:
        fenced = [a for a in acquires if _sees(views, a, write) and _sees(views, use, a)]
        if any(_is_released(history, write, r, a, views) for a in fenced for r in releases):
            return
        text = "a copy uses a changed tensor map without fence.proxy.tensormap::generic.acquire of it"
        if fenced:
            text = "a tensor map is changed without fence.proxy.tensormap::generic.release behind that"
            level = "strict"
    if text not in told:
        told.add(text)
        findings.add(_KIND, text, second.at, first=first.at, level=level)


def _sees(views: Views, later: MapEvent, earlier: MapEvent) -> bool:
    return bool(views.memory[later.event] >> earlier.event & 1)


def _is_released(history: History, write: MapEvent, release: MapEvent, acquire: MapEvent, views: Views) -> bool:
    """Whether the warp that has written releases that ahead of an acquire."""
    return (
        history.events[release.event].warp == history.events[write.event].warp
        and _sees(views, release, write)
        and _sees(views, acquire, release)
    )
