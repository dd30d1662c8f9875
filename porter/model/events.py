# SPDX-License-Identifier: Apache-2.0
"""What a function does to its accumulators: a tree of events, loops and branches."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from tree_sitter import Node

from porter.model.accumulators import Accumulator


class Kind(Enum):
    ZERO = "zero"
    MMA = "mma"
    FENCE = "fence"
    COMMIT = "commit"
    WAIT = "wait"
    READ = "read"
    WRITE = "write"
    LOAD = "load"
    STORE = "store"
    ALIAS = "alias"
    DECLARE = "declare"


@dataclass(frozen=True, eq=False)
class Event:
    """`node` is where it happens in the function the flow was built for (the call, for inlined events)."""

    kind: Kind
    node: Node = field(repr=False)
    accumulator: Accumulator | None = None
    pending: int | None = None
    """Of a wait: the count, None if it is not a known number."""
    overwrites: bool = False
    """Of an MMA: scale-d is a constant 0."""
    registers: int = 0
    """Of an MMA: how many registers a thread has for its D."""
    changes: bool = False
    """Of an alias: the accumulator can be changed through it."""


@dataclass(frozen=True, eq=False)
class Loop:
    body: list[Item]
    at_least_once: bool = False


@dataclass(frozen=True, eq=False)
class Branch:
    arms: list[list[Item]]


@dataclass(frozen=True, eq=False)
class Switch:
    """Each arm may be jumped to, and runs on into the next one; a `break` ends it. `complete`: some arm is always."""

    arms: list[list[Item]]
    complete: bool


@dataclass(frozen=True, eq=False)
class Exit:
    kind: str
    """`return`, `break`, `continue`, `goto` or `abort`."""
    label: int = 0
    """Of a `goto`: the id of the statement that it goes on at."""


@dataclass(frozen=True, eq=False)
class Label:
    """Where a `goto` goes on."""

    id: int


@dataclass(frozen=True, eq=False)
class Jumping:
    """A body in which some `goto` leads back."""

    body: list[Item]


@dataclass(frozen=True, eq=False)
class Inlined:
    """The body of a callee: a `return` in it ends the body, not the caller."""

    body: list[Item]


Item: TypeAlias = "Event | Loop | Branch | Switch | Exit | Label | Jumping | Inlined"


def events_of(items: list[Item]) -> list[Event]:
    """All events of a flow, in source order."""
    found: list[Event] = []
    for item in items:
        if isinstance(item, Event):
            found.append(item)
        elif isinstance(item, Loop | Jumping | Inlined):
            found += events_of(item.body)
        elif isinstance(item, Branch | Switch):
            for arm in item.arms:
                found += events_of(arm)
    return found
