# SPDX-License-Identifier: Apache-2.0
"""Where threads access memory: at a multiple of what an access needs, and inside of what there is."""

from __future__ import annotations

from functools import lru_cache

from porter.facts.launched import GLOBAL, LOCAL, PARAMETERS
from porter.facts.machine import Machine
from porter.facts.values import Value, bits

OUT_OF_PLACE = frozenset(("aligned", "outside"))
"""Kinds of problems that are told of here and of the end of shared memory."""


def look_at_place(
    machine: Machine, address: Value, lanes: int, nbytes: int, at: int, multiple: int | None = None
) -> None:
    """Tell of lanes that access `nbytes` at an address that is no multiple of as many, or of what their access asks for
    instead, and of those that access local or global memory beyond its end. An address that is not known is right; the
    end of shared memory is looked at in all accesses to it."""
    if address is None or not machine.is_taken:
        return
    multiple = multiple or nbytes
    wrong = _apart(address, lanes, multiple)
    if wrong is not None:
        opcode = machine.code.code[at].opcode
        machine.problem("aligned", f"{opcode} at {_told(machine, wrong)}, which is no multiple of {multiple}", at)
    places = _places(address, lanes)
    if nbytes and places and max(places) >= GLOBAL:
        _look_at_end(machine, places, nbytes, at)


@lru_cache(maxsize=4096)
def _places(address: Value, lanes: int) -> tuple[int, ...]:
    if isinstance(address, tuple):
        return tuple(place for lane in bits(lanes) if (place := address[lane]) is not None)
    return () if address is None else (address,)


@lru_cache(maxsize=4096)
def _apart(address: Value, lanes: int, multiple: int) -> int | None:
    """The first address that is no multiple."""
    return next((place for place in _places(address, lanes) if place % multiple), None)


def _look_at_end(machine: Machine, places: tuple[int, ...], nbytes: int, at: int) -> None:
    areas = machine.launched.accessible
    low, high = min(places), max(places) + nbytes
    if any(start <= low and high <= end for start, end in areas):
        return
    if not all(any(start <= place and place + nbytes <= end for start, end in areas) for place in places):
        what = "the thread's local memory" if low >= LOCAL else "all allocations"
        machine.problem("outside", f"{machine.code.code[at].opcode}: {nbytes} bytes outside of {what}", at)


def _told(machine: Machine, place: int) -> str:
    if place < GLOBAL:
        return f"{machine.names.place(place)} ({place:#x})"
    space = "global memory" if place < LOCAL else "local memory" if place < PARAMETERS else "parameters"
    return f"an address of {space}"
