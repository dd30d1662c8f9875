# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from fuzz import SHARES, build_seeds, make_input, seeds, try_inputs


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("numbers", [
    pytest.param(range(5, 300, 10), id="a tenth"),
    pytest.param([n for n in range(300) if n % 10 != 5], id="the others", marks=pytest.mark.slow),
])  # fmt: skip
def test_damaged_inputs_end_in_a_message(numbers: Sequence[int]) -> None:
    found = try_inputs(numbers, seed=1, compiles=False)
    assert not found, "\n".join(f"input {d.number}, {d.command}: {d.what[-2000:]}" for d in found)


def test_inputs_are_the_same_again() -> None:
    files = seeds()
    first = [make_input(n, 1, files) for n in range(300)]
    assert first == [make_input(n, 1, files) for n in range(300)]
    kinds = {"k.cu", "k.py", "k.ptx", "case.yaml", "launch.yaml", "r.yaml", "s.json", "port.cu"}
    assert {i.name for i in first} - set(build_seeds()) == kinds
    assert kinds - {"port.cu"} <= {i.name for i in first[5::10]}
    assert sum(SHARES.values()) == 1000
    assert len(build_seeds()) > 20
