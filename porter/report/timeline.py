# SPDX-License-Identifier: Apache-2.0
"""A recorded run as a picture in the terminal: one line for each warp, engine and barrier of a block, order
from left to right."""

from __future__ import annotations

import textwrap
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.text import Text

from porter.report.trace import AXIS, group_name, sorted_tracks
from porter.sim.trace.recorder import Group, Recorder, Slice, Track

MOST_BLOCKS = 4
_NARROWEST = 20

# Letters of events, the more telling first: a cell shows only one.
_EVENTS = (
    ("M", "mma", ("tcgen05.mma", "wgmma.mma_async", "tcgen05.cp")),
    ("T", "TMA or other asynchronous copy", ("cp.async", "cp.reduce", "st.async", "red.async")),
    ("C", "commit", ("tcgen05.commit", "wgmma.commit_group")),
    ("A", "arrive", ("mbarrier.arrive", "mbarrier.expect_tx", "mbarrier.complete_tx")),
    ("B", "barrier", ("bar.", "barrier.")),
    ("L", "tcgen05.ld", ("tcgen05.ld",)),
    ("S", "tcgen05.st", ("tcgen05.st",)),
    ("P", "wait that found its phase complete", ("mbarrier.try_wait", "mbarrier.test_wait")),
    ("F", "fence", ("fence.", "membar", "tcgen05.fence", "wgmma.fence", "tcgen05.wait")),
    ("+", "other", ("",)),
)
_STYLES = {
    "run": "green", "wait": "red", "event": "bold", "operation": "cyan", "0": "blue", "1": "magenta", "=": "yellow",
}  # fmt: skip


def lines(recorder: Recorder, width: int, ascii_only: bool = False) -> Iterator[Text]:
    """The picture of the launch that most was recorded of, its first blocks, at most `width` columns wide, and
    what its signs mean."""
    sizes = Counter(s.track.group.launch for s in recorder.slices)
    launch = max(sizes, key=lambda number: (sizes[number], -number), default=0)
    groups = [g for g in recorder.groups if g.launch == launch]
    used: dict[str, None] = {}
    running, waiting = ("-", ".") if ascii_only else ("─", "·")
    for group in groups[:MOST_BLOCKS]:
        yield Text(_clipped(group_name(recorder, group), width), style="bold")
        yield from _block(recorder, group, width, running, waiting, used)
    more = [f"{len(groups) - MOST_BLOCKS} more blocks"] if len(groups) > MOST_BLOCKS else []
    more += [f"{len(sizes) - 1} other launches"] if len(sizes) > 1 else []
    if more:
        yield Text(f"recorded, but not shown: {' and '.join(more)}")
    meanings = [f"{running} running", f"{waiting} waiting"]
    meanings += [f"{letter} {what}" for letter, what, _ in _EVENTS if letter in used]
    meanings += ["1 to 9 operations in flight", "0/1 parity of the mbarrier's phase", "= gathering"]
    for part in textwrap.wrap(f"left to right is {AXIS}: {', '.join(meanings)}", max(width, _NARROWEST)):
        yield Text(part, style="dim")


def _clipped(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def _block(
    recorder: Recorder, group: Group, width: int, running: str, waiting: str, used: dict[str, None]
) -> Iterator[Text]:
    tracks = [t for t in sorted_tracks(recorder) if t.group is group]
    slices: dict[Track, list[Slice]] = {t: [] for t in tracks}
    for s in recorder.slices:
        if s.track.group is group:
            slices[s.track].append(s)
    # Overlapping slices of one thing stand on several tracks, and on one line here.
    rows = [(list(same), kind) for (kind, _), same in groupby(tracks, key=lambda t: (t.kind, t.index))]
    widest = max((len(_label(same[0])) for same, _ in rows), default=0) + len("-00")
    margin = min(widest, max(width // 3, 10)) + 1
    # Only ticks at which something of this block changes take up room.
    ticks = sorted({t for mine in slices.values() for s in mine for t in (s.start, s.end)})
    scale = _Scale(ticks, max(width - margin, _NARROWEST))
    drawn: list[tuple[str, list[tuple[str, str]]]] = []
    for same, kind in rows:
        mine = [s for t in same for s in slices[t]]
        if kind == "warp":
            cells = _warp(mine, scale, running, waiting, used)
        elif kind == "mbarrier":
            cells = _phases(mine, scale)
        elif kind == "barrier":
            cells = _spans(mine, scale, "=")
        else:
            cells = _in_flight(mine, scale)
        drawn.append((_label(same[0]), cells))
    for cells, alike in groupby(drawn, key=lambda item: item[1]):
        names = [label for label, _ in alike]
        line = Text(_clipped(_joined(names), margin - 1).ljust(margin))
        for style, part in groupby(cells, key=lambda cell: cell[1]):
            line.append("".join(sign for sign, _ in part), style=style)
        yield line


def _label(track: Track) -> str:
    """An mbarrier goes by its variable, if it has one."""
    _, bracket, variable = track.name.partition("(")
    return f"mbar {variable.rstrip(')')}" if track.kind == "mbarrier" and bracket else track.name


def _joined(names: Sequence[str]) -> str:
    """`warp 4-7` for neighbours with the same line."""
    if len(names) == 1:
        return names[0]
    return f"{names[0]}-{names[-1].rpartition(' ')[2]}"


class _Scale:
    """Ticks to columns."""

    def __init__(self, ticks: Sequence[int], columns: int) -> None:
        self.ticks = ticks
        self.columns = min(columns, max(len(ticks), 1))

    def place(self, tick: int) -> int:
        return max(bisect_right(self.ticks, tick) - 1, 0)

    def column(self, tick: int) -> int:
        return self.place(tick) * self.columns // max(len(self.ticks), 1)

    def span(self, s: Slice) -> range:
        first = self.column(s.start)
        return range(first, max(self.column(s.end), first + 1))


def _blank(scale: _Scale) -> list[tuple[str, str]]:
    return [(" ", "")] * scale.columns


def _warp(
    slices: Sequence[Slice], scale: _Scale, running: str, waiting: str, used: dict[str, None]
) -> list[tuple[str, str]]:
    cells = _blank(scale)
    rank = [len(_EVENTS)] * scale.columns
    for category, sign in (("wait", waiting), ("run", running)):
        for s in slices:
            if s.category == category:
                for c in scale.span(s):
                    cells[c] = sign, _STYLES[category]
    for s in slices:
        if s.category != "event":
            continue
        c = scale.column(s.start)
        opcode = s.args["instruction"]
        found = next(i for i, (_, _, heads) in enumerate(_EVENTS) if opcode.startswith(heads))
        if found < rank[c]:
            rank[c] = found
            cells[c] = _EVENTS[found][0], _STYLES["event"]
    for sign, _ in cells:
        used.setdefault(sign)
    return cells


def _in_flight(slices: Sequence[Slice], scale: _Scale) -> list[tuple[str, str]]:
    changes = [0] * (len(scale.ticks) + 1)
    for s in slices:
        if s.category == "operation":
            changes[scale.place(s.start)] += 1
            changes[scale.place(s.end)] -= 1
    most = [0] * scale.columns
    flying = 0
    for tick, change in zip(scale.ticks, changes, strict=False):
        flying += change
        c = scale.column(tick)
        most[c] = max(most[c], flying)
    return [(" ", "") if not n else (str(n) if n < 10 else "+", _STYLES["operation"]) for n in most]


def _phases(slices: Sequence[Slice], scale: _Scale) -> list[tuple[str, str]]:
    cells = _blank(scale)
    for s in slices:
        if s.category == "phase":
            parity = str(s.args["parity"])
            for c in scale.span(s):
                cells[c] = parity, _STYLES[parity]
    return cells


def _spans(slices: Sequence[Slice], scale: _Scale, sign: str) -> list[tuple[str, str]]:
    cells = _blank(scale)
    for s in slices:
        if s.category == "phase":
            for c in scale.span(s):
                cells[c] = sign, _STYLES[sign]
    return cells
