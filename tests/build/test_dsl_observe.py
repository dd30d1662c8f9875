# SPDX-License-Identifier: Apache-2.0
"""Calls of a package's functions are told with their places, wherever a module has them from; its own calls are not."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from porter.build.dsl_observe import Observer

HOUSE = {
    "__init__.py": "from shack.shapes import Ring, make\n",
    "shapes.py": """class Tile:
    def __init__(self, shape):
        self.shape = shape


def make(rows, columns=8):
    return Tile((rows, columns))


class Base:
    def wait(self, state):
        return make(1)


class Ring(Base):
    @staticmethod
    def create(*, stages):
        return Ring()
""",
}
KERNEL = """import shack
from shack import make


def run():
    tile = shack.make(
        4, columns=make(2).shape[0])
    shack.Ring.create(stages=3).wait(tile)
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    (tmp_path / "shack").mkdir()
    for name, text in HOUSE.items():
        (tmp_path / "shack" / name).write_text(text)
    (tmp_path / "kernel.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("shack")
    observer = Observer(tmp_path / "shack")
    observer.observe(["shack.shapes.make", "shack.Ring.create", "shack.Ring.wait", "shack.nothing", "nowhere.make"])
    importlib.import_module("kernel").run()
    for name in [n for n in sys.modules if n.split(".")[0] in ("shack", "kernel")]:
        del sys.modules[name]
    return observer.calls


def test_calls_are_told_with_places_and_values(calls: list[dict[str, object]]) -> None:
    assert [(c["name"], c["place"]) for c in calls] == [
        ("shack.shapes.make", [7, 19, 7, 26]),
        ("shack.shapes.make", [6, 11, 7, 36]),
        ("shack.Ring.create", [8, 4, 8, 31]),
        ("shack.Ring.wait", [8, 4, 8, 42]),
    ]
    assert calls[0]["values"] == {"0": 2}
    assert calls[1]["values"] == {"0": 4, "columns": 2}
    assert calls[1]["result"]["shape"] == [4, 2]  # type: ignore[index]


def test_an_object_has_one_number(calls: list[dict[str, object]]) -> None:
    made, waited = calls[1]["result"], calls[3]["values"]
    assert made["number"] == waited["1"]["number"]  # type: ignore[index]
    assert made["number"] != calls[0]["result"]["number"]  # type: ignore[index]
