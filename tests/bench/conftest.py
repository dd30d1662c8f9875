# SPDX-License-Identifier: Apache-2.0
"""Figures of the simulator's speed beside their targets.

They count when benchmarks alone are run (`make bench`): then a table of them ends the run, and one below its
target fails it. Otherwise the tests only check that what would be measured runs and computes the right thing.
"""

from __future__ import annotations

import pstats
from collections import Counter
from collections.abc import Callable
from cProfile import Profile
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Figure:
    """`measured` and `target` in `unit`; more is better."""

    name: str
    measured: float
    target: float
    unit: str


_FIGURES = pytest.StashKey[list[Figure]]()
_PROFILES = pytest.StashKey[dict[str, Counter[str]]]()
_NAMES = pytest.StashKey[list[str]]()


_FILES = 6
"""Files of a profile that are told, by the time that they take themselves; `~` are built-in functions."""


def _counts(config: pytest.Config) -> bool:
    return bool(config.getoption("benchmark_only", default=False))


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str, float, float, str], None]:
    """Records a figure: `figure(name, measured, target, unit)`."""

    def record(name: str, measured: float, target: float, unit: str) -> None:
        request.config.stash.setdefault(_FIGURES, []).append(Figure(name, measured, target, unit))

    return record


@pytest.fixture
def profiled(request: pytest.FixtureRequest) -> Callable[[str, Profile], None]:
    """Records where the time of a run goes: `profiled(name, profile)`."""

    def record(name: str, profile: Profile) -> None:
        of_file = Counter[str]()
        for (file, _, _), (_, _, own, *_) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
            of_file["/".join(Path(file).parts[-2:])] += own
        request.config.stash.setdefault(_PROFILES, {})[name] = of_file

    return record


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_NAMES] = [item.name for item in session.items if item.get_closest_marker("target")]


def _number(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _rows(figures: list[Figure]) -> list[tuple[str, str, str, str]]:
    return [
        (f.name, f"{_number(f.measured)} {f.unit}", f"{_number(f.target)} {f.unit}",
         "met" if f.measured >= f.target else "MISSED")
        for f in figures
    ]  # fmt: skip


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.stash.get(_FIGURES, [])
    profiles = config.stash.get(_PROFILES, {})
    if not _counts(config) or not (figures or profiles):
        return
    table = [("figure", "measured", "target", ""), *_rows(figures)]
    widths = [max(len(row[i]) for row in table) for i in range(4)]
    terminalreporter.section("targets")
    for row in table:
        terminalreporter.line("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())
    for name, of_file in profiles.items():
        shares = (f"{file} {own / of_file.total():.0%}" for file, own in of_file.most_common(_FILES))
        terminalreporter.line(f"{name}: {', '.join(shares)}")
    absent = len(config.stash.get(_NAMES, [])) - len(figures)
    if absent > 0:
        terminalreporter.line(f"{absent} not measured")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if not _counts(session.config) or exitstatus not in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
        return
    figures = session.config.stash.get(_FIGURES, [])
    missed = any(f.measured < f.target for f in figures)
    if missed or len(figures) < len(session.config.stash.get(_NAMES, [])):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
