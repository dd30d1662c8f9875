# SPDX-License-Identifier: Apache-2.0
"""Which public functions of the DSL a kernel calls while it is traced: where, with what, and what comes back.

Runs in the process of `porter.build.dsl_worker`, before the user's file is imported.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_FIELDS = ("shape", "stride", "element_type", "memspace", "op", "shape_mnk", "a_src", "a_dtype", "b_dtype", "acc_dtype",
           "size")  # fmt: skip
"""What is told of objects that have it."""
_LONG = 80


class Observer:
    """Replaces functions and methods by ones that note their calls. Of a call: `name`, `file` and `place` (first line
    and column, last line and the column behind; columns in bytes), `values` by argument (position or keyword),
    `result`."""

    def __init__(self, package: Path) -> None:
        self._skipped = (f"{package}{os.sep}", str(Path(__file__).parent))
        self._numbers: dict[int, int] = {}
        self._kept: list[object] = []
        self.calls: list[dict[str, Any]] = []
        self.absent: list[str] = []
        """Names that this version of the DSL does not have."""

    def observe(self, names: Sequence[str]) -> None:
        for name in names:
            owner, last = _owner(name)
            inner = inspect.getattr_static(owner, last, None)
            if inner is None:
                self.absent.append(name)
                continue
            plain = inner.__func__ if isinstance(inner, staticmethod) else inner
            noting = self._noting(name, plain)
            setattr(owner, last, staticmethod(noting) if isinstance(inner, staticmethod) else noting)
            if isinstance(owner, types.ModuleType):
                _replace(inner, noting, name.partition(".")[0])

    def _noting(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def noting(*given: Any, **named: Any) -> Any:
            place = self._place()
            result = inner(*given, **named)
            if place is not None:
                values = {
                    str(k): self._told(v) for k, v in [*enumerate(given), *named.items()] if k not in ("loc", "ip")
                }
                self.calls.append({"name": name, **place, "values": values, "result": self._told(result)})
            return result

        return noting

    def _place(self) -> dict[str, Any] | None:
        """Of the call in the user's file that is under way; None where the DSL calls its own functions."""
        frame = sys._getframe(2)
        if frame.f_code.co_filename.startswith(self._skipped):
            return None
        line, last, column, end = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        return {"file": frame.f_code.co_filename, "place": [line, column, last, end]}

    def _told(self, value: Any, depth: int = 4) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (tuple, list)):
            return [self._told(v, depth - 1) for v in value] if depth else None
        if isinstance(value, type):
            return {"type": value.__name__}
        told: dict[str, Any] = {"kind": type(value).__name__, "number": self._number(value)}
        for field in _FIELDS:
            try:
                found = getattr(value, field)
            except Exception:  # a property of the DSL may raise anything
                continue
            told[field] = self._told(found, depth - 1) if depth else None
        return told if len(told) > 2 else {**told, "text": str(value)[:_LONG]}

    def _number(self, value: object) -> int:
        """One for each object, which is kept: a new one must not get the place of one that is gone."""
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._numbers)
            self._kept.append(value)
        return self._numbers[id(value)]


def _owner(name: str) -> tuple[Any, str]:
    """The module or class that has a name, and its last part."""
    parts = name.split(".")
    for i in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:i]))
        except ImportError:
            continue
        for part in parts[i:-1]:
            owner = getattr(owner, part, None)
        return owner, parts[-1]
    return None, parts[-1]


def _replace(old: object, new: object, package: str) -> None:
    """Let all modules of a package that have a function by name have another one."""
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            for key, value in list(vars(module).items()):
                if value is old:
                    setattr(module, key, new)
