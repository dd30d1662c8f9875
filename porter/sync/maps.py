# SPDX-License-Identifier: Apache-2.0
"""Tensor maps that threads write to global memory: a copy sees what has been written, released, acquired, and not yet
changed again (PTX ISA 9.7.13.4)."""

from __future__ import annotations

from collections import defaultdict

from porter.facts.code import Code
from porter.facts.events import History, MapEvent, MapUse
from porter.ptx.ast import Imm
from porter.sync.findings import Findings, Level
from porter.sync.views import Views

_KIND = "G6"
_ALL = 0
"""The address of a release."""


def look_at_maps(history: History, views: Views, findings: Findings, code: Code) -> None:
    """Of all changes of a map that are wrong in one way the first one is told."""
    groups = _Groups(history, views, code)
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
                    _pair(history, write, use, acquires, releases, views, findings, told, groups)


class _Groups:
    """Where threads make bulk groups, and where they wait for all of them."""

    def __init__(self, history: History, views: Views, code: Code) -> None:
        self._history, self._execution = history, views.execution
        self._commits = [
            e.index for e in history.events if e.what == "commit_group" and "bulk" in code.code[e.at].parts
        ]
        self._waits = [e.index for e in history.events if e.what == "wait_group" and _is_for_all(code, e.at)]

    def were_waited_for(self, first: int, second: int) -> bool:
        """Whether, between two events, the warp of the first one makes a bulk group and waits for all that it has."""
        warp = self._history.events[first].warp
        return any(
            self._is_between(first, commit, wait) and self._is_between(commit, wait, second)
            for commit in self._commits
            for wait in self._waits
            if self._history.events[commit].warp == warp == self._history.events[wait].warp
        )

    def _is_between(self, first: int, middle: int, last: int) -> bool:
        return bool(self._execution[middle] >> first & 1 and self._execution[last] >> middle & 1)


def _is_for_all(code: Code, at: int) -> bool:
    ins = code.code[at]
    counts = [o.value for o in ins.operands if isinstance(o, Imm)]
    return "bulk" in ins.parts and counts == [0]


def _pair(
    history: History, write: MapEvent, use: MapEvent, acquires: list[MapEvent], releases: list[MapEvent], views: Views,
    findings: Findings, told: set[str], groups: _Groups,
) -> None:  # fmt: skip
    level: Level = "error"
    first, second = write, use
    if views.execution[write.event] >> use.event & 1:
        end = None if use.access is None else use.access.end
        if end is not None and views.execution[write.event] >> end & 1:
            return
        first, second, level = use, write, "strict" if groups.were_waited_for(use.event, write.event) else "error"
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
