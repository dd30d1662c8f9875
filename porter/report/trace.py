# SPDX-License-Identifier: Apache-2.0
"""A recorded run as a file for Perfetto (ui.perfetto.dev) and chrome://tracing.

The format is Chrome's trace event format: each thread block is a process, each warp, engine and barrier a
thread in it. Slices are `X` events, arrivals `i`, arrows pairs of `s` and `f` with one id. Ticks stand as
microseconds, because the format knows no other axis; everything that has a name says that they are none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from porter.build.entry import kernel_name
from porter.diagnostics import Code, PorterError
from porter.sim.trace.recorder import Group, Kind, Recorder, Track

AXIS = "order, not time"
_ORDER: dict[Kind, int] = {
    "warp": 0, "TMA": 1, "copy": 2, "tensor core": 3, "commit": 4, "store": 5, "mbarrier": 6, "barrier": 7,
}  # fmt: skip


def sorted_tracks(recorder: Recorder) -> list[Track]:
    """By block; then warps, engines, barriers, each in their order."""
    return sorted(recorder.tracks, key=lambda t: (t.group.number, _ORDER[t.kind], t.index, t.row))


def group_name(recorder: Recorder, group: Group) -> str:
    launch = f" of launch {group.launch}" if len(recorder.launches) > 1 else ""
    return f"{group.name}{launch}, {kernel_name(group.kernel)}"


def events(recorder: Recorder, axis: str = AXIS) -> Iterator[dict[str, Any]]:
    """All events: names first, then each track's in order."""
    tracks = sorted_tracks(recorder)
    place = {track: (track.group.number + 1, i + 1) for i, track in enumerate(tracks)}
    for group in recorder.groups:
        pid = group.number + 1
        yield _meta("process_name", pid, 0, name=f"{group_name(recorder, group)} ({axis})")
        yield _meta("process_labels", pid, 0, labels=axis)
        yield _meta("process_sort_index", pid, 0, sort_index=pid)
    for track, (pid, tid) in place.items():
        yield _meta("thread_name", pid, tid, name=track.name)
        yield _meta("thread_sort_index", pid, tid, sort_index=tid)
    timed: list[tuple[int, float, float, dict[str, Any]]] = []
    for s in recorder.slices:
        pid, tid = place[s.track]
        event: dict[str, Any] = {"name": s.name, "cat": s.category, "ph": "X", "ts": s.start, "pid": pid, "tid": tid}
        if s.category == "mark":
            event |= {"ph": "i", "s": "t"}
        else:
            event["dur"] = s.end - s.start
        timed.append((tid, s.start, -event.get("dur", 0), event | {"args": s.args}))
    for number, flow in enumerate(recorder.flows, 1):
        for ph, end, tick in (("s", flow.source, flow.left), ("f", flow.target, flow.reached)):
            pid, tid = place[end.track]
            event = {"name": flow.name, "cat": "flow", "ph": ph, "id": number, "ts": tick + 0.5, "pid": pid, "tid": tid}
            timed.append((tid, tick + 0.5, 0, event | ({"bp": "e"} if ph == "f" else {})))
    timed.sort(key=lambda item: item[:3])
    for *_, event in timed:
        yield event


def _meta(name: str, pid: int, tid: int, /, **args: Any) -> dict[str, Any]:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": args}


def left_out(recorder: Recorder) -> str:
    """What the trace does not hold, in words; empty if it holds all."""
    parts = []
    for number, launch in enumerate(recorder.launches):
        if launch.traced < launch.blocks:
            which = f" of launch {number}" if len(recorder.launches) > 1 else ""
            missing = launch.blocks - launch.traced
            parts.append(f"{missing} of {launch.blocks} blocks{which} ({kernel_name(launch.kernel)})")
    if len(parts) > 3:
        missing = sum(x.blocks - x.traced for x in recorder.launches)
        parts = [f"{missing} blocks of {len(parts)} launches"]
    if recorder.left_out:
        parts.append(f"{recorder.left_out} events beyond the limit of {recorder.limit}")
    return ", ".join(parts)


def write(
    recorder: Recorder,
    path: Path,
    axis: str = AXIS,
    producer: str = "porter sim",
    unit: str = "1 us is one step or event of the simulator, whatever it costs on a GPU",
) -> int:
    """Write the file; returns the number of events. `axis` and `unit` say what its microseconds stand for.

    Raises:
        PorterError: WRITE_FAILED.
    """
    head = {
        "displayTimeUnit": "ns",
        "otherData": {
            "producer": producer,
            "axis": f"{axis}: {unit}",
            "left out": left_out(recorder) or "nothing",
        },
    }
    count = 0
    try:
        with path.open("w", encoding="utf-8") as out:
            out.write(json.dumps(head)[:-1] + ', "traceEvents": [')
            for event in events(recorder, axis):
                out.write((",\n" if count else "\n") + json.dumps(event))
                count += 1
            out.write("\n]}\n")
    except OSError as error:
        raise PorterError(Code.WRITE_FAILED, path=path, reason=error.strerror or str(error)) from None
    return count
