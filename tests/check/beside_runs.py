# SPDX-License-Identifier: Apache-2.0
"""Proofs of what the simulator is run on: the same module, launch, parameters and tensor maps."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

import porter.sim.launch
from porter.facts.code import Code
from porter.facts.flow import Flow
from porter.facts.launched import Geometry, Launched
from porter.ptx import ast
from porter.ptx.tensormap import ENCODED_BYTES, MAGIC
from porter.sim import GlobalMemory, Launch, Options, Outcome
from porter.sync.checked import Checked, check

Told = Callable[[Checked, Outcome, Options], None]
"""Is called with a proof, and the outcome and the options of the run."""


def launched(module: ast.Module, entry: str, launch: Launch, params: bytes, memory: GlobalMemory) -> Launched:
    """What a simulation is given."""
    function = module.function(entry)
    parts: dict[str, bytes] = {}
    maps: dict[int, bytes] = {}
    at = 0
    for param in function.params:
        at += -at % param.align
        data = parts[param.name] = bytes(params[at : at + param.size])
        at += param.size
        if param.size == 8:
            place = int.from_bytes(data, "little")
            with contextlib.suppress(Exception):  # it may point to nothing of this size
                found = bytes(memory.read(place, ENCODED_BYTES))
                maps |= {place: found} if found.startswith(MAGIC) else {}
    geometry = Geometry(launch.block, launch.grid, launch.cluster, launch.dynamic_smem)
    return Launched(Flow(Code(module, function)), geometry, parts, maps)


def both(told: Told) -> Callable[..., Outcome]:
    """What stands for `simulate`: it runs, proves, and tells of both."""
    real = porter.sim.launch.simulate

    def simulate(
        module: ast.Module, entry: str, launch: Launch, params: bytes, memory: GlobalMemory,
        options: Options | None = None, *rest: Any, **more: Any,
    ) -> Outcome:  # fmt: skip
        outcome = real(module, entry, launch, params, memory, options, *rest, **more)
        if options is not None and options.mode == "checking":
            told(check(launched(module, entry, launch, params, memory)), outcome, options)
        return outcome

    return simulate


def put_beside(monkeypatch: pytest.MonkeyPatch, told: Told) -> None:
    """Have all runs of this process told of with their proofs."""
    _put(monkeypatch, both(told))


class _NotRunError(Exception):
    """In place of a run."""


def launched_by(monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> Launched:
    """What a test would simulate first; nothing is."""
    found: list[Launched] = []

    def simulate(module: ast.Module, entry: str, launch: Launch, params: bytes, memory: GlobalMemory, *_: Any) -> None:
        found.append(launched(module, entry, launch, params, memory))
        raise _NotRunError

    with monkeypatch.context() as patched:
        _put(patched, simulate)
        with pytest.raises(_NotRunError):
            run()
    return found[0]


def _put(monkeypatch: pytest.MonkeyPatch, other: Callable[..., Any]) -> None:
    real = porter.sim.launch.simulate
    for module in list(sys.modules.values()):
        if getattr(module, "simulate", None) is real:
            monkeypatch.setattr(module, "simulate", other)
