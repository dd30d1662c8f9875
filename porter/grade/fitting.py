# SPDX-License-Identifier: Apache-2.0
"""The model's constants fitted to clocks that somebody's GPU gave, and what it then says of kernels that were not
fitted."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from porter.grade.calibration import Point, mean_error
from porter.grade.chips import Chip, calibrated, values
from porter.grade.clocks import clocks, resident
from porter.grade.kernels import DEPTH, FITTED, STAMPS, Timed
from porter.grade.model import product_clocks, run

_TO_LOOPS = ("load_latency_l2_ns", "load_bytes_per_clock_l2", "stage_issue")
_TO_ALL = ("fill_bytes_per_clock",)
_DIRECT = ("launch_clocks", "store_bytes_per_clock_rows")
FITTABLE = (*_TO_LOOPS, *_TO_ALL, *_DIRECT)
"""Constants that a calibration may change; the others follow from the chip, or from published measurements."""
_LEAST = 3
_ROUNDS = 24
_FIRST_STEP = 1.25
_LAST_STEP = 1.002


@dataclass(frozen=True)
class Measured:
    """A kernel on a GPU: the stamps of its first blocks, each with those of `STAMPS` in clocks, and the shortest of its
    times in microseconds."""

    timed: Timed
    stamps: tuple[tuple[int, ...], ...]
    microseconds: float

    @property
    def fitted(self) -> bool:
        return self.timed in FITTED

    def between(self, first: str, last: str) -> float:
        """Clocks from one stamp to a later one, the median of the blocks."""
        a, b = STAMPS.index(first), STAMPS.index(last)
        return statistics.median(s[b] - s[a] for s in self.stamps)

    @property
    def stage(self) -> float:
        """Clocks of a stage of K, waiting for the first load and the last MMA included."""
        return self.between("ready", "multiplied") / (self.timed.k // DEPTH)


def predicted(timed: Timed, chip: Chip) -> float:
    """What `Measured.stage` should be: of one block on an idle chip, or of one among all."""
    shape = timed.shape
    c = replace(clocks(shape, chip), launch=0.0, drain=0.0)
    if timed.alone:
        c = replace(c, fill=0.0)
    blocks = 1 if timed.alone else resident(shape)
    steps = timed.k // DEPTH
    return product_clocks(shape, c, blocks, steps) / steps


def points(found: Sequence[Measured], chip: Chip) -> list[Point]:
    """Clocks of a stage, predicted beside measured."""
    return [Point("record", m.timed.name, m.stage, predicted(m.timed, chip), m.fitted) for m in found]


def rates(found: Sequence[Measured], chip: Chip) -> list[Point]:
    """% of nominal of the kernels that fill the chip, held out: no constant is fitted to a time."""
    whole = [m for m in found if not m.timed.alone]
    return [Point("record", m.timed.name, _rate(m, chip), 100 * run(m.timed.shape, chip, m.timed.problem).rate)
            for m in whole]  # fmt: skip


def _rate(m: Measured, chip: Chip) -> float:
    p = m.timed.problem
    return 100 * 2e-6 * p.m * p.n * p.k / m.microseconds / chip.nominal_tflops()


def enough(found: Sequence[Measured]) -> bool:
    """Whether there are points of both sorts to fit to."""
    fitted = [m for m in found if m.fitted]
    return sum(m.timed.alone for m in fitted) >= _LEAST and any(not m.timed.alone for m in fitted)


def fit(found: Sequence[Measured], chip: Chip) -> dict[str, float]:
    """Constants that make the fitted points right. Held-out ones have no say. Raises ValueError without enough."""
    if not enough(found):
        raise ValueError("too few kernels to fit to")
    fitted = [m for m in found if m.fitted]
    known = _direct(fitted)
    loops = [m for m in fitted if m.timed.alone]
    known = _descend(known, _TO_LOOPS, lambda: mean_error(points(loops, chip)))
    whole = [m for m in fitted if not m.timed.alone]
    return _descend(known, _TO_ALL, lambda: mean_error(points(whole, chip)))


def _direct(found: Sequence[Measured]) -> dict[str, float]:
    """Constants that a difference of two stamps says."""
    c = values()
    launches = [m.between("start", "ready") for m in found]
    stores = []
    for m in found:
        shape = m.timed.shape
        loads = (shape.tile_n or 0) / (shape.epilogue.load_columns or 1) * c["narrow_load_clocks"]
        nbytes = (shape.tile_m or 0) * (shape.tile_n or 0) * shape.epilogue.element_bytes / shape.cta_group
        if (taken := m.between("multiplied", "stored") - loads) > 0:
            stores.append(nbytes / taken)
    direct = {"launch_clocks": statistics.median(launches)}
    if stores:
        direct["store_bytes_per_clock_rows"] = statistics.median(stores)
    return direct


def _descend(known: Mapping[str, float], names: Sequence[str], error: Callable[[], float]) -> dict[str, float]:
    """One constant after the other up or down, as long as that helps, by ever smaller steps."""
    best = {**known, **{name: values()[name] for name in names}}
    with calibrated(best):
        least = error()
    step = _FIRST_STEP
    for _ in range(_ROUNDS):
        moved = False
        for name in names:
            for factor in (step, 1 / step):
                tried = {**best, name: best[name] * factor}
                with calibrated(tried):
                    found = error()
                if found < least:
                    best, least, moved = tried, found, True
        if not moved:
            step = step**0.5
            if step < _LAST_STEP:
                break
    return best
