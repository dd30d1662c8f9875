# SPDX-License-Identifier: Apache-2.0
"""Runs of originals, each made once for all ports that are held against it, by what it is made of."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from porter.verify.backends import RunResult, SimBackend
from porter.verify.builder import BuiltKernel
from porter.verify.images import Image
from porter.verify.problem import LaunchValues, Problem

MOST_BYTES = 1 << 28
"""Of tensors that are kept; what was used last stays."""


@dataclass
class Runs:
    """A memory of them, for as long as candidates of one port are judged."""

    _known: OrderedDict[str, RunResult] = field(default_factory=OrderedDict)
    _bytes: int = 0

    def on(self, backend: SimBackend) -> RememberingBackend:
        return RememberingBackend(backend, self)

    def get(self, key: str) -> RunResult | None:
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
        return found

    def put(self, key: str, made: RunResult) -> None:
        self._known[key] = made
        self._bytes += _size(made)
        while self._bytes > MOST_BYTES and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._bytes -= _size(oldest)


class RememberingBackend:
    """A simulator that makes a run once."""

    name = "sim"
    guard = 0

    def __init__(self, inner: SimBackend, runs: Runs) -> None:
        self._inner, self._runs = inner, runs
        self.arithmetic: str = inner.arithmetic

    def run(
        self, kernel: BuiltKernel, problem: Problem, launch: LaunchValues, images: Mapping[str, Image]
    ) -> RunResult:
        key = self._key(kernel, problem, launch, images)
        found = self._runs.get(key)
        if found is None:
            found = self._inner.run(kernel, problem, launch, images)
            self._runs.put(key, found)
        return found

    def _key(self, kernel: BuiltKernel, problem: Problem, launch: LaunchValues, images: Mapping[str, Image]) -> str:
        bound = kernel.bound(problem)
        how = self._inner.options, sorted(self._inner.state.items())
        what = kernel.ptx, kernel.entry, bound.arguments, bound.tensor_maps, launch
        found = hashlib.sha256(repr((how, what)).encode())
        for name, image in images.items():
            found.update(f"{name} {image.tensor} {image.guard} {image.data.size};".encode())
            found.update(image.data.tobytes())
        return found.hexdigest()


def _size(made: RunResult) -> int:
    return sum(image.data.nbytes for image in made.after.values())
