# SPDX-License-Identifier: Apache-2.0
"""Option values that need reading: lists, sizes, simulator settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

from porter.diagnostics import Code, PorterError
from porter.verify.case import Case
from porter.verify.expr import Number
from porter.verify.problem import LaunchValues
from porter.verify.settings import GpuOptions, Schedule, SimOptions

Level = Literal["strict", "practice"]
"""At which hazards are told (docs/hazards.md)."""

_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(-?[0-9]+(?:\.[0-9]+)?)")


def split_list(values: Sequence[str]) -> list[str]:
    """Items of a repeatable option whose values may be separated by commas."""
    return [item for value in values for item in value.split(",") if item]


def read_sizes(values: Sequence[str], case: Case) -> tuple[Mapping[str, Number], ...]:
    """Problem sizes: `default`, `all`, or `M=128,N=256` (names left out keep their default); repeatable.

    Raises:
        PorterError: BAD_OPTION.
    """
    chosen: list[Mapping[str, Number]] = []
    for value in values or ("default",):
        if value == "default":
            chosen.append(case.sizes)
        elif value == "all":
            chosen += case.all_sizes()
        else:
            chosen.append(_one_size(value))
    return tuple(chosen)


def _one_size(text: str) -> dict[str, Number]:
    sizes: dict[str, Number] = {}
    for item in text.split(","):
        match = _PAIR.fullmatch(item.strip())
        if match is None:
            problem = f"`{item}` is not NAME=NUMBER (nor `default` or `all`)"
            raise PorterError(Code.BAD_OPTION, option="--sizes", problem=problem)
        number = match.group(2)
        sizes[match.group(1)] = float(number) if "." in number else int(number)
    return sizes


def read_gpu_options(mode: str, seconds: float, toolkit: Path | None, tmem_check: bool = False) -> GpuOptions:
    chosen = cast(Literal["eager", "deferred"], mode)
    return GpuOptions(seconds=seconds, mode=chosen, toolkit=toolkit, tmem_check=tmem_check)


def sim_options(
    seed: int, schedule: str, arithmetic: str, budget: int | None, print: Callable[[str], None] | None = None
) -> SimOptions:
    return SimOptions(
        schedule=cast(Schedule, schedule),
        arithmetic=cast(Literal["float64", "exact"], arithmetic),
        seed=seed,
        budget=budget,
        print=print,
    )


def read_launch(grid: str, block: str, cluster: str, smem: int) -> LaunchValues:
    """A launch from `X`, `X,Y` or `X,Y,Z` each.

    Raises:
        PorterError: BAD_OPTION.
    """
    return LaunchValues(_triple("--grid", grid), _triple("--block", block), _triple("--cluster", cluster), smem)


def _triple(option: str, text: str) -> tuple[int, int, int]:
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(p.strip().isdigit() and int(p) > 0 for p in parts):
        raise PorterError(Code.BAD_OPTION, option=option, problem=f"`{text}` is not X, X,Y or X,Y,Z")
    x, y, z = ([int(p) for p in parts] + [1, 1])[:3]
    return x, y, z
