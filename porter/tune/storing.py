# SPDX-License-Identifier: Apache-2.0
"""Whether results of a port leave by bulk copies: where that is faster by the grade."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Protocol

from porter.grade.changes import Impossible, fitting
from porter.grade.shape import Shape
from porter.lang.sources import is_python
from porter.passes.native.bulk_store import NAME, NO_USE
from porter.passes.ported import Ported
from porter.tune.choosing import GAIN, Choice, Chosen, WithoutError
from porter.tune.searching import Searching

AS_FAST = "a gain: by the grade results leave as fast without"


class Make(Protocol):
    """The same port, with results that leave by bulk copies in these roots."""

    def __call__(self, *, bulk_stores: frozenset[str]) -> Ported: ...


def stored(session: Searching, ported: Ported, make: Make) -> Chosen:
    """A port whose results leave by bulk copies where that is known to be faster."""
    roots = [r for r in ported.roots if not r.dsl and not is_python(Path(r.path)) and r.kernels]
    wanted = frozenset(r.path for r in roots)
    if not wanted:
        return Chosen(ported)
    trial = make(bulk_stores=wanted)
    choices = [_Choice(session, ported, root) for root in roots]
    said = [d for choice in choices for d in choice.try_to(partial(choice.choose, trial))]
    found = frozenset(c.root.path for c in choices if c.chosen)
    if found == wanted:
        return Chosen(trial, found, tuple(said))
    return Chosen(make(bulk_stores=found) if found else ported, found, tuple(said))


class _Choice(Choice):
    """Whether results of one root are to leave by bulk copies."""

    NAME = NAME

    def choose(self, trial: Ported) -> None:
        """
        Raises:
            WithoutError: a fact is missing in the text, or it is no faster; PorterError: what compiling raises.
        """
        if not self.has_step(trial):
            raise WithoutError(*(d for d in self.missing(trial) if d.values["what"] not in NO_USE))
        best = 0.0
        before, after = self._shapes(self.ported), self._shapes(trial)
        for name in before:
            try:
                fitting(after[name])
            except Impossible as error:
                raise self.without(f"room for what warps stage of {name}: {error}") from None
            gain = self.gain(before[name], after[name])
            if gain < -GAIN:
                raise self.without(f"a gain: by the grade {name} is slower with copies")
            best = max(best, gain)
        if best <= GAIN:
            raise self.without(AS_FAST)
        self.chosen = True

    def _shapes(self, ported: Ported) -> dict[str, Shape]:
        """What the grade takes of each instantiation, by what the compiler calls it."""
        return {one.kernel.entry: self.read(one)[1] for one in self.built(ported)}
