# SPDX-License-Identifier: Apache-2.0
"""Calibrations: files with the model's constants for one GPU, fitted to a record of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from porter.diagnostics import Code, Location, PorterError
from porter.diagnostics.reading import read_file
from porter.grade.calibration import Point, mean_error
from porter.grade.fitting import FITTABLE

KEY = "porter-calibration"
VERSION = 1


@dataclass(frozen=True)
class Calibration:
    """`device` says which GPU, with its driver and the record; `constants` are some of `FITTABLE`."""

    device: Mapping[str, str]
    constants: Mapping[str, float]


def text(found: Calibration, points: Sequence[Point]) -> str:
    """The file, with how well the points fit that it comes from."""
    parts = {"fitted": [p for p in points if p.fitted], "held_out": [p for p in points if not p.fitted]}
    errors = {name: round(mean_error(some), 4) for name, some in parts.items() if some}
    body: dict[str, Any] = {KEY: VERSION, "device": dict(found.device), "mean_error": errors,
                            "constants": {n: float(f"{v:.5g}") for n, v in found.constants.items()}}  # fmt: skip
    return yaml.safe_dump(body, sort_keys=False)


def load(path: Path) -> Calibration:
    """A calibration.

    Raises:
        PorterError: FILE_NOT_FOUND; GRADE_CALIBRATION: it is damaged, or none.
    """
    try:
        data = yaml.safe_load(read_file(path).decode("utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError):
        raise _refused(path, "it is no YAML") from None
    if not isinstance(data, dict) or data.get(KEY) != VERSION:
        raise _refused(path, f"it does not begin with `{KEY}: {VERSION}`")
    given = data.get("constants")
    if not isinstance(given, dict) or not given:
        raise _refused(path, "it has no constants")
    for name, value in given.items():
        if name not in FITTABLE:
            raise _refused(path, f"`{name}` is none of {', '.join(FITTABLE)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            raise _refused(path, f"{name} is {value!r}")
    device = data.get("device") or {}
    return Calibration({str(k): str(v) for k, v in device.items()} if isinstance(device, dict) else {}, given)


def _refused(path: Path, problem: str) -> PorterError:
    return PorterError(Code.GRADE_CALIBRATION, Location(str(path)), path=path, problem=problem)
