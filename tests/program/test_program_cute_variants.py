# SPDX-License-Identifier: Apache-2.0
"""Kernels in CuTe C++ of our own, ported without an edit by hand, compiled and run whole: each declares, hands on,
views and reads accumulators in another way, and checks its results itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from kept_sources import kept

from porter.diagnostics import ExitCode
from porter.lang.sources import load_sources
from porter.passes.port import port_sources
from porter.sim import Options
from porter.sim.results import Schedule
from porter.verify.program import ProgramOptions, run_program

pytestmark = [pytest.mark.external, pytest.mark.slow]

SOURCES = [Path(__file__).with_name(name) for name in ("cute_variants.cu", "cute_functions.cu")]


def kernels_of(source: Path) -> list[str]:
    return re.findall(r"^  test\(\"([^\"]+)\"", source.read_text("utf-8"), re.MULTILINE)


@pytest.fixture(scope="module", params=SOURCES, ids=lambda source: source.stem)
def program(request: pytest.FixtureRequest, built: Callable[..., Path]) -> tuple[Path, list[str]]:
    """The executable of the port, and the kernels in it."""
    source: Path = request.param
    kernels = kernels_of(source)
    spec = find_spec("cutlass_library")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(spec.submodule_search_locations[0]) / "source"
    result = port_sources(load_sources(source))
    assert result.exit_code is ExitCode.OK, result.diagnostics
    assert sorted(result.kernels) == sorted(kernels)
    folder = kept({Path(path).name: text for path, text in result.files.items()})
    include = (root / "include", root / "tools/util/include")
    return built(folder / source.name, "sm_100a", include, ("--expt-relaxed-constexpr",)), kernels


@pytest.mark.parametrize("schedule", ["late", "random", "eager"])
def test_results(schedule: Schedule, program: tuple[Path, list[str]]) -> None:
    executable, kernels = program
    outcome = run_program(executable, [], ProgramOptions(Options(schedule=schedule)))
    assert outcome.status == "ok", [str(f) for r in outcome.launches if r.outcome for f in r.outcome.findings]
    lines = [line for line in outcome.stdout.splitlines() if line.startswith("CHECK")]
    assert lines == [f"CHECK {kernel}: no error bad=0" for kernel in kernels]
