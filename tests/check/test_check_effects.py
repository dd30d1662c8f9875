# SPDX-License-Identifier: Apache-2.0
"""What instructions do is reported once, by the functions that do it, and only to those who look."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from check_ptx import BULK, HEADER, TENSOR, WGMMA, check
from instructions.simulated import reports

import porter.sim
from porter.ptx.parser import parse_module
from porter.sim import GlobalMemory, Launch, Options, pack_params, simulate, tensor_mma
from porter.sim.codegen import RUNTIME
from porter.sim.effects import Effect, Outside, Shared, Tensor
from porter.sim.executor import Executor
from porter.sim.observer import Named, Observers

# Functions with an address among their parameters or operands that touch nothing another thread could see.
PRIVATE = {"generic_shared", "isspace", "kept_nan", "ld_local", "st_local", "local_index", "shared_index"}
_ADDRESSES = {"operands", "addr", "address", "dst", "src", "mbar", "desc", "b_desc", "a_desc"}


def test_every_function_that_takes_an_address_reports() -> None:
    takes = {
        name
        for name, function in RUNTIME.items()
        if inspect.isfunction(function) and _ADDRESSES.intersection(inspect.signature(function).parameters)
    }
    assert {name for name in takes if not reports(RUNTIME[name])} == PRIVATE & takes
    assert {"ld_global", "st_shared", "tensor_load", "tmem_commit", "mbar_arrive"} <= takes


def test_the_simulator_knows_no_observer() -> None:
    """Those that start one, and the types of what is asked for and answered, are all that names checker or tracer."""
    root = Path(porter.sim.__file__).parent
    naming = {p.stem for p in root.glob("*.py") if re.search(r"porter\.sim\.(check|trace)\b", p.read_text("utf-8"))}
    assert naming == {"launch", "results"}


def test_a_checked_run_calls_the_functions_of_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[Any] = []

    def run(M: Executor) -> None:
        inner(M)
        called.append({name: M.compiler.namespace[name] for name in RUNTIME})

    inner = Executor.run
    monkeypatch.setattr(Executor, "run", run)
    assert check(TENSOR).status == "ok"
    assert called == [RUNTIME]


def test_a_run_that_nobody_watches_makes_nothing_to_look_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **more: Any) -> Any:
        raise AssertionError("made for no observer")

    for kind in (Effect, Named, Observers):
        monkeypatch.setattr(kind, "__init__", refuse)
    for kind in (Shared, Tensor, Outside):
        monkeypatch.setattr(kind, "__new__", refuse)
    for body, target in ((TENSOR, "sm_100a"), (BULK, "sm_90a"), (WGMMA, "sm_90a")):
        memory = GlobalMemory()
        places = [memory.alloc(4096, fill=0), memory.alloc(65536, fill=0)]
        module = parse_module(HEADER.format(target=target) + body + "\n}\n")
        params = pack_params(module.function("kernel"), places)
        launch = Launch((1, 1, 1), (128, 1, 1), dynamic_smem=8192)
        assert simulate(module, "kernel", launch, params, memory, Options()).status == "ok"
        with pytest.raises(AssertionError, match="no observer"):
            check(body, target)


def test_an_mma_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For its execution and for the checker alike."""
    decoded: list[Any] = []
    footprint = tensor_mma.mma_footprint
    monkeypatch.setattr(tensor_mma, "mma_footprint", lambda *args: decoded.append(args) or footprint(*args))
    assert check(TENSOR).status == "ok"
    assert len(decoded) == len({str(args[:2]) + str(args[2].d_addr) for args in decoded}) > 0
