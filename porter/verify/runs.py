# SPDX-License-Identifier: Apache-2.0
"""Runs, each made once for all ports of one original that are judged, by what it is made of."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from porter.verify.backends import RunResult, SimBackend
from porter.verify.builder import BuiltKernel
from porter.verify.images import Image
from porter.verify.problem import LaunchValues, Problem
from porter.verify.trial import Trial

MOST_BYTES = 1 << 28
"""Of tensors that are kept; what was used last stays."""
_MOST_TRIALS = 64


@dataclass
class Runs:
    """A memory of them, and of what they are compared with, for as long as candidates of one port are judged."""

    _known: OrderedDict[str, RunResult] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _trials: OrderedDict[str, Trial] = field(default_factory=OrderedDict)

    def on(self, backend: SimBackend, is_judged: bool = True) -> RememberingBackend:
        """`is_judged`: what is asked for is what the program does under this schedule."""
        return RememberingBackend(backend, self, is_judged)

    def trial(self, key: str, make: Callable[[], Trial]) -> Trial:
        found = self._trials.get(key) or make()
        self._trials[key] = found
        self._trials.move_to_end(key)
        if len(self._trials) > _MOST_TRIALS:
            self._trials.popitem(last=False)
        return found

    def get(self, key: str) -> RunResult | None:
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def put(self, key: str, made: RunResult) -> None:
        self._bytes += _size(made) - (_size(self._known[key]) if key in self._known else 0)
        self._known[key] = made
        while self._bytes > MOST_BYTES and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._bytes -= _size(oldest)


class RememberingBackend:
    """A simulator that makes a run once. Of a program that is not judged itself, but gives what others are held
    against, one that came to its end stands for all schedules: a port is refused for hazards that this one lacks."""

    name = "sim"
    guard = 0

    def __init__(self, inner: SimBackend, runs: Runs, is_judged: bool = True) -> None:
        self._inner, self._runs, self._is_judged = inner, runs, is_judged
        self.arithmetic: str = inner.arithmetic

    def run(
        self, kernel: BuiltKernel, problem: Problem, launch: LaunchValues, images: Mapping[str, Image]
    ) -> RunResult:
        options, what = self._inner.options, self._digest(kernel, problem, launch, images)
        key, settled = f"{what} {options.schedule} {options.seed} {options.checking}", f"{what} settled "
        found = self._runs.get(key) or (None if self._is_judged else self._runs.get(f"{settled}{options.checking}"))
        if found is None:
            found = self._inner.run(kernel, problem, launch, images)
            self._runs.put(key, found)
            if not self._is_judged and found.status == "ok":
                # who does not look for hazards can do with one that did
                for level in {options.checking, None}:
                    self._runs.put(f"{settled}{level}", found)
        return found

    def _digest(self, kernel: BuiltKernel, problem: Problem, launch: LaunchValues, images: Mapping[str, Image]) -> str:
        """Of all that a run depends on but the schedule and what is looked for."""
        bound = kernel.bound(problem)
        options = replace(self._inner.options, schedule="late", seed=0, checking=None)
        what = options, sorted(self._inner.state.items()), kernel.ptx, kernel.entry
        found = hashlib.sha256(repr((*what, bound.arguments, bound.tensor_maps, launch)).encode())
        for name, image in images.items():
            found.update(f"{name} {image.tensor} {image.guard} {image.data.size};".encode())
            found.update(image.data.tobytes())
        return found.hexdigest()


def _size(made: RunResult) -> int:
    return sum(image.data.nbytes for image in made.after.values())
