# SPDX-License-Identifier: Apache-2.0
"""Kernels in CuTe C++ of our own, ported without an edit by hand, compiled and run whole: each declares, hands on,
views and reads accumulators in another way, and checks its results itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import port_sources
from porter.sim import Options
from porter.sim.results import Schedule
from porter.verify.program import ProgramOptions, run_program

pytestmark = [pytest.mark.external, pytest.mark.slow]

SOURCE = Path(__file__).parent / "cute_variants.cu"
KERNELS = re.findall(r"^  test\(\"(\w+)\"", SOURCE.read_text("utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def program(built: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The executable of the port."""
    spec = find_spec("cutlass_library")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root, folder = Path(spec.submodule_search_locations[0]) / "source", tmp_path_factory.mktemp("variants")
    result = port_sources(load_sources(SOURCE))
    assert result.exit_code is ExitCode.OK, result.diagnostics
    assert sorted(result.kernels) == sorted(KERNELS)
    for path, text in result.files.items():
        (folder / Path(path).name).write_bytes(text)
    return built(folder / SOURCE.name, "sm_100a", (root / "include", root / "tools/util/include"))


@pytest.mark.parametrize("schedule", ["late", "random", "eager"])
def test_results(schedule: Schedule, program: Path) -> None:
    outcome = run_program(program, [], ProgramOptions(Options(schedule=schedule)))
    assert outcome.status == "ok", [str(f) for r in outcome.launches if r.outcome for f in r.outcome.findings]
    lines = [line for line in outcome.stdout.splitlines() if line.startswith("CHECK")]
    assert lines == [f"CHECK {kernel}: no error bad=0" for kernel in KERNELS]
