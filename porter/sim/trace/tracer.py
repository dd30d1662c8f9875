# SPDX-License-Identifier: Apache-2.0
"""Turns what happens in one wave of blocks into slices and flows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from porter.ptx.table import Decoded
from porter.sim.effects import Place
from porter.sim.machine import Machine
from porter.sim.observer import Named, Observer
from porter.sim.operation import Operation
from porter.sim.trace import labels
from porter.sim.trace.recorder import Group, Kind, Recorder, Slice, Track

Array = npt.NDArray[Any]
Lanes = Array | None
_UNSEEN = ("warp",)
"""Parking that is no wait for anything asynchronous: a warp's threads gathering again."""


@dataclass
class _Wait:
    key: Any
    row: int
    slice: Slice | None
    lanes: Array


@dataclass
class _Warp:
    """A warp's rows, what its threads wait for, and the slice of it running."""

    group: Group
    rank: int
    tracks: list[Track] = field(default_factory=list)
    waits: list[_Wait] = field(default_factory=list)
    run: Slice | None = None
    running_row: int = -1
    events: dict[tuple[int, int], Slice | None] = field(default_factory=dict)
    released: set[Any] = field(default_factory=set)


class Tracer(Observer):
    """Watches the traced blocks of one machine."""

    def __init__(self, machine: Machine, recorder: Recorder) -> None:
        self.machine = machine
        self.recorder = recorder
        self.groups: dict[int, Group] = {}
        self.warps: dict[int, _Warp] = {}
        for cta, number in enumerate(machine.ctas):
            if not recorder.wants(number, machine.cluster_size):
                continue
            group = self.groups[cta] = recorder.add_group(machine.block_position(cta))
            for rank in range(machine.warps_per_cta):
                self.warps[cta * machine.warps_per_cta + rank] = _Warp(group, rank)
        self._landing: Operation | None = None
        self._operations: dict[Operation, tuple[Slice | None, Track]] = {}
        # Rows of an engine: the tick from which each is free.
        self._rows: dict[tuple[int, Kind], list[tuple[Track, int]]] = {}
        self._barriers: dict[Any, Track] = {}
        self._phases: dict[Any, Slice | None] = {}
        self._completed: dict[tuple[int, int], Slice | None] = {}
        self._waiters: dict[int, Slice | None] = {}
        self._event = (-1, -1)
        self._event_tick = 0

    # Warps --------------------------------------------------------------------------------------------

    def code(self, cg: Any, ins: Decoded) -> None:
        if labels.is_event(ins):
            cg.line(cg.call("M.observer.event"))

    def event(self, M: Machine, at: int, idx: Any, n: int, mask: Any) -> None:
        """Called by generated code: an instruction that no other method is told of."""
        self._events(at, self._active(idx, n, mask))

    def _active(self, idx: Any, n: int, mask: Any) -> list[tuple[int, Lanes]]:
        """(warp, active lanes) of traced warps; None for all lanes."""
        warps = self.machine.warps(idx).tolist()
        if mask is None:
            return [(w, None) for w in warps if w in self.warps]
        lanes = np.broadcast_to(mask, (n, 32))
        return [(w, lanes[row]) for row, w in enumerate(warps) if w in self.warps and lanes[row].any()]

    def step(self, warps: Array, at: int, count: int) -> None:
        tick = self.recorder.advance()
        for w in warps.tolist():
            warp = self.warps.get(w)
            if warp is None:
                continue
            row = self._free_row(warp)
            if row != warp.running_row:
                self._stop_running(warp, tick)
                place = labels.place(self.machine.program.code[at])
                warp.run = self.recorder.open(
                    self._row(warp, row), "run", "running", tick, args={"instructions": 0, **place}
                )
                warp.running_row = row
            if warp.run is not None:
                warp.run.args["instructions"] += count

    def _free_row(self, warp: _Warp) -> int:
        taken = {wait.row for wait in warp.waits}
        return next(i for i in range(len(taken) + 1) if i not in taken)

    def _row(self, warp: _Warp, row: int) -> Track:
        while len(warp.tracks) <= row:
            more = len(warp.tracks)
            name = f"warp {warp.rank}" + (" (other threads)" if more else "")
            warp.tracks.append(self.recorder.add_track(warp.group, "warp", name, warp.rank, more))
        return warp.tracks[row]

    def _stop_running(self, warp: _Warp, tick: int) -> None:
        if warp.run is not None:
            warp.run.end = tick
        warp.run, warp.running_row = None, -1

    def _events(self, at: int, active: Sequence[tuple[int, Lanes]]) -> dict[int, Slice | None]:
        """Warps execute an instruction worth a slice each; by warp."""
        tick = self._tick_of(at)
        found: dict[int, Slice | None] = {}
        for w, lanes in active:
            warp = self.warps[w]
            if (at, tick) not in warp.events:
                ins = self.machine.program.code[at]
                track = self._row(warp, max(warp.running_row, 0))
                warp.events = {
                    (at, tick): self.recorder.open(
                        track,
                        "event",
                        labels.label(ins),
                        tick,
                        tick + 1,
                        {"threads": _threads(lanes), **labels.place(ins)},
                    )
                }
            found[w] = warp.events[at, tick]
        return found

    def _tick_of(self, at: int) -> int:
        """One tick for all warps that execute an instruction together."""
        now = at, self.machine.steps
        if now != self._event or self.recorder.tick != self._event_tick:
            self._event = now
            self._event_tick = self.recorder.advance()
        return self._event_tick

    # Waits --------------------------------------------------------------------------------------------

    def parked(self, warps: Array, lanes: Array, keys: Any) -> None:
        tick = self.recorder.advance()
        for row, w in enumerate(warps.tolist()):
            warp = self.warps.get(w)
            key = keys[row] if isinstance(keys, list) else keys
            if warp is None or key[0] in _UNSEEN or not lanes[row].any():
                continue
            place = self._free_row(warp) if warp.running_row < 0 else warp.running_row
            self._stop_running(warp, tick)
            name = f"wait: {self._name(key)}"
            args = {"threads": _threads(lanes[row])}
            if key[0] == "mbar":
                phase = int(self.machine.mbar.phase[key[1], key[2]])
                args["phase"] = f"{phase} (parity {phase & 1})"
            opened = self.recorder.open(self._row(warp, place), "wait", name, tick, args=args)
            warp.waits.append(_Wait(key, place, opened, lanes[row].copy()))
            if key[0] in ("bar", "cluster") and key not in self._phases:
                self._phases[key] = self._open_barrier(key, tick)

    def woken(self, keys: Sequence[Any]) -> None:
        M = self.machine
        tick = self.recorder.tick
        for key in keys:
            # A time limit that expires wakes threads too, and releases nothing.
            expired = key[0] == "mbar" and M.mbar.phase[key[1], key[2]] == self._phase_number(key)
            source = None if expired else self._phases.get(key[1:] if key[0] == "mbar" else key)
            for w in {w for w, _ in M.parked.get(key, ())}:
                warp = self.warps.get(w)
                if warp is None:
                    continue
                for wait in [wait for wait in warp.waits if wait.key == key]:
                    warp.waits.remove(wait)
                    if wait.slice is not None:
                        wait.slice.end = max(tick, wait.slice.start) + 1
                        self.recorder.connect("released", source, tick, wait.slice, wait.slice.end - 1)
                    if not expired:
                        warp.released.add(key)
            if key[0] in ("bar", "cluster"):
                done = self._phases.pop(key, None)
                if done is not None:
                    done.end = tick + 1
        self.recorder.advance()

    def _phase_number(self, key: Any) -> int:
        current = self._phases.get(key[1:])
        return -1 if current is None else int(current.args["number"])

    def waiting(self, at: int, idx: Any, n: int, mask: Any) -> None:
        start = self.recorder.advance()
        ins = self.machine.program.code[at]
        for w, lanes in self._active(idx, n, mask):
            track = self._row(self.warps[w], max(self.warps[w].running_row, 0))
            self._waiters[w] = self.recorder.open(
                track,
                "wait",
                f"wait: {labels.label(ins)}",
                start,
                args={"threads": _threads(lanes), **labels.place(ins)},
            )

    def waited(self, at: int, due: Iterable[tuple[int, Sequence[Operation]]] = (), read: bool = False) -> None:
        end = self.recorder.advance()
        for opened in self._waiters.values():
            if opened is not None:
                opened.end = end
        self._waiters = {}

    def exited(self, warps: Array) -> None:
        tick = self.recorder.advance()
        for w in warps.tolist():
            warp = self.warps.get(w)
            if warp is not None and (self.machine.lane_state[w] == 2).all():
                self._stop_running(warp, tick)

    # Operations ---------------------------------------------------------------------------------------

    def issued(self, op: Operation) -> None:
        warp = self.warps.get(op.warp)
        if warp is None:
            return
        ins = self.machine.program.code[op.at]
        members = self._issuers(op)
        issuing = self._events(op.at, [(w, None) for w in members])[op.warp]
        if issuing is not None and len(members) == 1:
            issuing.args["operations"] = issuing.args.get("operations", 0) + 1
            issuing.args.pop("threads", None)
        tick = self._event_tick
        track = self._engine_row(warp.group, labels.engine(ins), tick)
        opened = self.recorder.open(
            track, "operation", labels.label(ins), tick, args={"warp": warp.rank, **labels.place(ins)}
        )
        self.recorder.connect("issue", issuing, tick, opened, tick)
        self._operations[op] = opened, track

    def _issuers(self, op: Operation) -> Sequence[int]:
        """The warps that issue an operation: of a wgmma the whole warpgroup, whose first one the engine knows."""
        if self.machine.program.code[op.at].parts[0] == "wgmma":
            return range(op.warp, op.warp + 4)
        return (op.warp,)

    def _engine_row(self, group: Group, kind: Kind, tick: int) -> Track:
        rows = self._rows.setdefault((group.number, kind), [])
        for i, (track, free) in enumerate(rows):
            if free <= tick:
                rows[i] = track, 1 << 62
                return track
        name = labels.ENGINES[kind] + (f" ({len(rows) + 1})" if rows else "")
        track = self.recorder.add_track(group, kind, name, 0, len(rows))
        rows.append((track, 1 << 62))
        return track

    def sources_read(self, op: Operation) -> None:
        opened, track = self._operations.get(op, (None, None))
        if track is not None and self._landing is not op:
            tick = self.recorder.advance()
            self.recorder.open(track, "mark", "sources read", tick, tick)
            self.recorder.connect("sources read", opened, tick, self._waiters.get(op.warp), tick)

    def landing(self, op: Operation) -> None:
        self._landing = op
        self.recorder.advance()

    def landed(self, op: Operation) -> None:
        self._landing = None
        opened, track = self._operations.pop(op, (None, None))
        if track is None:
            return
        tick = self.recorder.tick
        if opened is not None:
            opened.end = tick + 1
        for w in self._issuers(op):
            self.recorder.connect("complete", opened, tick, self._waiters.get(w), tick)
        rows = self._rows[track.group.number, track.kind]
        rows[track.row] = track, tick + 1
        self.recorder.advance()

    # mbarriers ----------------------------------------------------------------------------------------

    def initialized(self, at: int, named: Named, valid: set[Place]) -> None:
        for slot, cta in named.by_place():
            self._begin_phase(slot, cta)

    def _begin_phase(self, slot: int, cta: int) -> None:
        group = self.groups.get(cta)
        if group is None:
            return
        tick = self.recorder.tick
        self._end_phase(slot, cta, tick)
        if ("mbar", slot, cta) not in self._barriers:
            offset = self.machine.mbar.offsets[slot]
            name = self.machine.mbar.name(slot)
            self._barriers["mbar", slot, cta] = self.recorder.add_track(group, "mbarrier", name, offset)
        self._open_phase(slot, cta, tick)

    def _open_phase(self, slot: int, cta: int, tick: int) -> None:
        B = self.machine.mbar
        number = int(B.phase[slot, cta])
        self._phases[slot, cta] = self.recorder.open(
            self._barriers["mbar", slot, cta], "phase", f"phase {number} (parity {number & 1})", tick,
            args={"number": number, "parity": number & 1, "arrivals": int(B.count[slot, cta]), "completed": False},
        )  # fmt: skip

    def _end_phase(self, slot: int, cta: int, tick: int) -> Slice | None:
        ended = self._phases.pop((slot, cta), None)
        if ended is not None:
            ended.end = max(tick, ended.start + 1)
        return ended

    def arrives(self, at: int, named: Named, counts: Array) -> None:
        for (slot, cta), warps in named.by_place().items():
            self._signalled(slot, cta, "arrive", [(w, lanes) for w, lanes in warps if w in self.warps])

    def signals(self, slot: int, cta: int, arrivals: int, nbytes: int) -> None:
        if arrivals:
            self._signalled(slot, cta, "arrive" if arrivals == 1 else f"{arrivals} arrivals")
        else:
            self._signalled(slot, cta, f"{nbytes} bytes arrive")

    def _signalled(self, slot: int, cta: int, what: str, warps: Sequence[tuple[int, Array]] = ()) -> None:
        """An operation that lands, or the threads of `warps`, arrive on an mbarrier."""
        track = self._barriers.get(("mbar", slot, cta))
        phase = self._phases.get((slot, cta))
        if track is None:
            return
        tick = self.recorder.advance()
        args: dict[str, Any] = {}
        if self._landing is not None:
            opened, _ = self._operations.get(self._landing, (None, None))
            args["by"] = labels.label(self.machine.program.code[self._landing.at])
            self.recorder.connect("complete", opened, tick, phase, tick)
        for w, lanes in warps:
            # The slice of the arriving instruction, which was recorded just before.
            arriving = next(iter(self.warps[w].events.values()), None)
            args["by"] = f"warp {self.warps[w].rank}, {_threads(lanes)}"
            left = tick if arriving is None else arriving.start
            self.recorder.connect("arrive", arriving, left, phase, tick)
        self.recorder.open(track, "mark", what, tick, tick, args)

    def phase_done(self, slot: int, cta: int) -> None:
        if ("mbar", slot, cta) not in self._barriers:
            return
        tick = self.recorder.tick
        ended = self._end_phase(slot, cta, tick + 1)
        if ended is not None:
            ended.args["completed"] = True
        self._completed[slot, cta] = ended
        self._open_phase(slot, cta, tick + 1 if ended is None else ended.end)

    def passed(self, at: int, named: Named) -> None:
        for (slot, cta), warps in named.by_place().items():
            self._passed(at, slot, cta, [(w, lanes) for w, lanes in warps if w in self.warps])

    def _passed(self, at: int, slot: int, cta: int, warps: Sequence[tuple[int, Array]]) -> None:
        key = "mbar", slot, cta
        fresh = [(w, lanes) for w, lanes in warps if key not in self.warps[w].released]
        for w, _ in warps:
            self.warps[w].released.discard(key)
        if not fresh:
            return
        name = f"wait: {self._name(key)}"
        for opened in self._events(at, fresh).values():
            if opened is not None:
                opened.name, opened.args["waited"] = name, False
                done = self._completed.get((slot, cta))
                left = 0 if done is None else done.end - 1
                self.recorder.connect("released", done, left, opened, opened.start)

    # Other barriers -----------------------------------------------------------------------------------

    def _open_barrier(self, key: Any, tick: int) -> Slice | None:
        cta = key[1] if key[0] == "bar" else key[1] * self.machine.cluster_size
        group = self.groups.get(cta)
        if group is None:
            return None
        if key not in self._barriers:
            index = key[2] if key[0] == "bar" else 16
            self._barriers[key] = self.recorder.add_track(group, "barrier", self._name(key), index)
        return self.recorder.open(self._barriers[key], "phase", "gathering", tick, args={"completed": False})

    def _name(self, key: Any) -> str:
        if key[0] == "mbar":
            return self.machine.mbar.name(key[1])
        if key[0] == "bar":
            return f"barrier {key[2]}"
        return {"cluster": "cluster barrier", "group": "warpgroup", "tmem": "Tensor Memory columns"}.get(key[0], key[0])

    # The end ------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """What is still open will never come to an end."""
        if self._waiters:
            self.waited(-1)
        tick = self.recorder.advance()
        for warp in self.warps.values():
            self._stop_running(warp, tick)
            for wait in warp.waits:
                if wait.slice is not None:
                    wait.slice.end = tick
                    wait.slice.name += " (never released)"
        for opened, _ in self._operations.values():
            if opened is not None:
                opened.end = tick
                opened.name += " (never landed)"
        for phase in self._phases.values():
            if phase is not None:
                phase.end = max(tick, phase.start + 1)


def _threads(lanes: Lanes) -> str:
    if lanes is None or np.all(lanes):
        return "all"
    found = np.flatnonzero(lanes).tolist()
    return f"lane {found[0]}" if len(found) == 1 else f"{len(found)} lanes from {found[0]}"
