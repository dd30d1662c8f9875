# SPDX-License-Identifier: Apache-2.0
"""Abstract interpretation of a flow: sets of states through loops, branches, inlined calls and exits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Generic, TypeVar

from porter.model.events import Branch, Event, Exit, Inlined, Item, Jumping, Label, Loop, Switch

State = TypeVar("State", bound=Hashable)


class Interpreter(ABC, Generic[State]):
    """Runs all paths of a flow at once; subclasses say what an event does to a state."""

    def __init__(self) -> None:
        self._exits: dict[str, list[set[State]]] = {"break": [], "continue": [], "return": [], "abort": []}
        self._jumps: dict[int, set[State]] = {}

    @abstractmethod
    def event(self, event: Event, state: State) -> State:
        """The state after an event."""

    def run(self, items: list[Item], states: set[State]) -> set[State]:
        """The states in which `items` can end when they begin in one of `states`."""
        for item in items:
            if isinstance(item, Event):
                states = {self.event(item, s) for s in states}
            elif isinstance(item, Branch):
                states = set().union(*(self.run(arm, set(states)) for arm in item.arms))
            elif isinstance(item, Inlined):
                self._exits["return"].append(set())
                states = self.run(item.body, states)
                states |= self._exits["return"].pop()
            elif isinstance(item, Loop):
                states = self._loop(item, states)
            elif isinstance(item, Switch):
                states = self._switch(item, states)
            elif isinstance(item, Label):
                states = states | self._jumps.get(item.id, set())
            elif isinstance(item, Jumping):
                states = self._jumping(item, states)
            elif item.kind == "goto":
                self._jumps.setdefault(item.label, set()).update(states)
                states = set()
            else:
                self._leave(item, states)
                states = set()
        return states

    def _loop(self, loop: Loop, states: set[State]) -> set[State]:
        entry = set(states)
        out: set[State] = set() if loop.at_least_once else set(states)
        self._exits["break"].append(set())
        while True:
            self._exits["continue"].append(set())
            end = self.run(loop.body, set(entry)) | self._exits["continue"].pop()
            out |= end
            if end <= entry:
                return out | self._exits["break"].pop()
            entry |= end

    def _switch(self, switch: Switch, states: set[State]) -> set[State]:
        self._exits["break"].append(set())
        falls: set[State] = set()
        for arm in switch.arms:
            # the preprocessor may leave an arm out
            falls |= self.run(arm, states | falls)
        return falls | self._exits["break"].pop() | (set() if switch.complete else states)

    def _jumping(self, item: Jumping, states: set[State]) -> set[State]:
        while True:
            before = sum(map(len, self._jumps.values()))
            out = self.run(item.body, set(states))
            if sum(map(len, self._jumps.values())) == before:
                return out

    def _leave(self, item: Exit, states: set[State]) -> None:
        targets = self._exits[item.kind]
        if targets:
            targets[-1] |= states
