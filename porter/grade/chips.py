# SPDX-License-Identifier: Apache-2.0
"""Chips and the model's constants, from the files in `data`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).resolve().parent / "data"


def read(name: str) -> Any:
    """A file of `data`, by its name without the ending."""
    return yaml.safe_load((DATA / f"{name}.yaml").read_text("utf-8"))


@dataclass(frozen=True)
class Chip:
    """What `data/chips.yaml` says of one; units as in its field names."""

    name: str
    arch: str
    sms: int
    clock_ghz: float
    mma_clocks: int
    mufu_per_clock: int
    issue_per_clock: int
    hbm_tb_per_s: float
    power_cap: dict[str, float]
    sources: tuple[str, ...]

    def nominal_tflops(self, speed: float = 1) -> float:
        """The dense rate; `speed` is that of the operands relative to 16-bit ones."""
        return self.sms * self.mma_clocks * self.clock_ghz * speed / 1000


@cache
def chips() -> dict[str, Chip]:
    """All chips by name."""
    return {c["name"]: Chip(**{**c, "sources": tuple(c["sources"])}) for c in read("chips")["chips"]}


def chip_of(arch: str) -> Chip | None:
    """The chip that runs code for an architecture such as `sm_100a`, or None."""
    family = arch.rstrip("af")
    return next((c for c in chips().values() if c.arch.rstrip("af") == family), None)


@dataclass(frozen=True)
class Constant:
    """`fitted` names the measurements that it was fitted to; empty if it was not."""

    name: str
    value: float
    source: str
    fitted: str = ""


@cache
def constants() -> dict[str, Constant]:
    """The model's constants by name."""
    given = read("model")["constants"]
    return {n: Constant(n, float(c["value"]), c["from"], c.get("fitted", "")) for n, c in given.items()}


@cache
def _recorded() -> dict[str, float]:
    return {name: c.value for name, c in constants().items()}


_calibrated: ContextVar[Mapping[str, float]] = ContextVar("calibrated")


def values() -> Mapping[str, float]:
    """The constants' values by name: those of the file, or of a calibration."""
    return _calibrated.get(_recorded())


@contextmanager
def calibrated(given: Mapping[str, float]) -> Iterator[None]:
    """Constants that a calibration found, for the time of a `with`. Raises KeyError for one that there is not."""
    if unknown := set(given) - set(_recorded()):
        raise KeyError(", ".join(sorted(unknown)))
    token = _calibrated.set({**values(), **given})
    try:
        yield
    finally:
        _calibrated.reset(token)
