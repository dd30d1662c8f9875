# SPDX-License-Identifier: Apache-2.0
"""Bodies of callees in a flow: each is walked once for what it is called with, recursion ends, and what repeats
itself is kept short. Nothing is dropped: where the order of events is not followed, every order is allowed."""

from __future__ import annotations

from collections.abc import Callable

from porter.model.constants import Constants
from porter.model.events import Branch, Event, Exit, Inlined, Item, Jumping, Kind, Loop, Switch, events_of
from porter.model.frames import Frame
from porter.model.functions import Call, Function, Style
from porter.model.program import Program

MOST_DEPTH = 40
"""Calls inside of calls that are followed."""
_MOST_INSTANCES = 16
"""Instances of a template that call each other before their arguments are left open."""
_MOST_EVENTS = 256
"""Events of a callee's body that are kept in order."""


class Inliner:
    """Bodies for one flow builder."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.too_deep: list[Call] = []
        """Calls that were not followed."""
        self._bodies: dict[tuple[object, ...], list[Item]] = {}
        self._active: dict[tuple[object, ...], int] = {}
        self._recursive: set[tuple[object, ...]] = set()

    def is_too_deep(self, frame: Frame, call: Call) -> bool:
        """Whether a call is not followed; it is noted then."""
        if frame.depth < MOST_DEPTH:
            return False
        if call not in self.too_deep:
            self.too_deep.append(call)
        return True

    def template_values(self, call: Call, target: Function, known: Constants) -> dict[str, str]:
        """What the names of a callee's template, or a macro's parameters, stand for; empty texts where that is not
        known. `known` is what the caller's constants mean."""
        if target.style is Style.MACRO:
            given = {p.name: call.caller.text(a) for p, a in zip(target.params, call.args, strict=False)}
            return {n: _value(known, t, t) for n, t in given.items()}
        values = dict.fromkeys(target.template_params, "")
        symbol = self.program.names.index.symbols.get(id(target))
        for param in symbol.params if symbol is not None and not symbol.special else ():
            if param.default is not None and param.name and param.kind == "value":
                values[param.name] = _value(self.program.constants_around(target), param.default, "")
        values.update(
            (n, _value(known, t, "")) for n, t in zip(target.template_params, call.template_args, strict=False)
        )
        active = sum(1 for key in self._active if key[0] == id(target))
        return dict.fromkeys(values, "") if active >= _MOST_INSTANCES else values

    def body(self, inner: Frame, walk: Callable[[], list[Item]]) -> list[Item]:
        """The items of a callee's body in a frame; `walk` makes them."""
        if inner.at is None:
            # its own statements are places of the function that is walked
            return walk()
        call = inner.call.node.id if inner.call is not None and inner.function.style is Style.MACRO else 0
        key = (
            id(inner.function),
            inner.at.id,
            call,
            tuple(sorted((n, id(a)) for n, a in inner.bound.items())),
            tuple(sorted(inner.values.items())),
            tuple(sorted((k, id(a)) for k, a in inner.outer.items())),
        )
        if key in self._bodies:
            return self._bodies[key]
        if key in self._active:
            self._recursive.add(key)
            return []
        self._active[key] = len(self._active)
        refused = len(self.too_deep)
        try:
            items = compacted(walk())
        finally:
            own = self._active.pop(key)
        if key in self._recursive:
            self._recursive.discard(key)
            items = in_any_order(items)
        # within a recursion that is still open the body lacks what the outer one adds
        if len(self.too_deep) == refused and not any(self._active.get(k, own) < own for k in self._recursive):
            self._bodies[key] = items
        return items


def _value(known: Constants, text: str, otherwise: str) -> str:
    value = known.evaluate(text)
    return str(value) if value is not None else otherwise


def compacted(items: list[Item]) -> list[Item]:
    """The same paths in fewer items; all events of `items` stand at one place. A body with too many events is one
    in any order."""
    short = _merged(items)
    return in_any_order(short) if _count(short, _MOST_EVENTS) > _MOST_EVENTS else short


def _merged(items: list[Item]) -> list[Item]:
    merged: list[Item] = []
    for item in items:
        for part in item.body if isinstance(item, Inlined) and not _leaves(item.body) else [item]:
            if not (merged and _repeats(merged[-1], part)):
                merged.append(part)
    return merged


def _leaves(items: list[Item]) -> bool:
    """Whether a body may end early by a `return`."""
    for item in items:
        if isinstance(item, Exit) and item.kind == "return":
            return True
        if isinstance(item, Loop | Jumping) and _leaves(item.body):
            return True
        if isinstance(item, Branch | Switch) and any(_leaves(a) for a in item.arms):
            return True
    return False


def _repeats(one: Item, other: Item) -> bool:
    """Whether the second of two items in a row changes nothing: all but commits, which are counted."""
    if not isinstance(one, Event) or not isinstance(other, Event) or one.kind is Kind.COMMIT:
        return False
    return _signature(one) == _signature(other)


def _signature(event: Event) -> tuple[object, ...]:
    changes = (event.pending, event.overwrites, event.changes)
    return (event.kind, event.node.id, id(event.accumulator), *changes)


def _count(items: list[Item], most: int) -> int:
    """How many events items have; no more than just above `most` are counted."""
    found = 0
    for item in items:
        if found > most:
            break
        if isinstance(item, Event):
            found += 1
        elif isinstance(item, Loop | Jumping | Inlined):
            found += _count(item.body, most - found)
        elif isinstance(item, Branch | Switch):
            for arm in item.arms:
                found += _count(arm, most - found)
    return found


def in_any_order(items: list[Item]) -> list[Item]:
    """Every sequence of the events of `items`, themselves among them."""
    unique = {_signature(e): e for e in events_of(items)}
    arms: list[list[Item]] = [[]]
    arms += [[e] for e in unique.values()]
    return [Loop([Branch(arms)])] if unique else []
