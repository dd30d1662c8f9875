# SPDX-License-Identifier: Apache-2.0
"""A CuTe C++ program on the simulator: its launch runs again without it, also with another build of the kernel."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from porter.build.toolchain import find_toolkit
from porter.cli.main import main
from porter.diagnostics import PorterError
from porter.verify.launch_file import load_launch

pytestmark = [pytest.mark.external, pytest.mark.slow]

SOURCE = Path(__file__).with_name("cute_copy.cu")


def porter(*words: object) -> Any:
    """The JSON document of a command."""
    done = CliRunner().invoke(main, ["--format", "json", *(str(word) for word in words)])
    assert done.stdout, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def headers() -> Path:
    spec = find_spec("cutlass_library")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("nvidia-cutlass is not installed")
    try:
        find_toolkit()
    except PorterError as error:
        pytest.skip(f"no CUDA compiler: {error}")
    return Path(spec.submodule_search_locations[0]) / "source" / "include"


@pytest.fixture(scope="module")
def captured(headers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the only launch."""
    output = tmp_path_factory.mktemp("captured") / "cases"
    found = porter("capture", "--backend", "sim", "-I", headers, "-o", output, "--", SOURCE)
    (case,) = found["cases"]
    assert (case["grid"], case["block"], case["cluster"]) == ([4, 1, 1], [128, 1, 1], [2, 1, 1])
    assert (case["dynamic_smem"], case["tensors"], case["tensor_maps"]) == (8192, 2, 1)
    return Path(case["path"]).parent


def test_the_launch_file_says_all_of_the_launch(captured: Path) -> None:
    fields = yaml.safe_load((captured / "launch.yaml").read_text())
    (parameter,) = fields["params"]
    # A struct: the tensor map lies at its start, the output's address behind what CuTe keeps.
    assert [sorted(inside) for inside in parameter["contains"]] == [["at", "tensor_map"], ["address_of", "at"]]
    found = load_launch(captured / "launch.yaml")
    (bound,) = found.problem.tensor_maps.values()
    assert (bound.map.sizes, bound.map.box) == ((64, 128), (64, 32))
    assert len(parameter["bytes"]) // 2 == found.kernel.function.params[0].size


def test_the_launch_has_the_outputs_and_the_verdict_of_its_program(headers: Path, captured: Path) -> None:
    ran = porter("run", "--launch", captured / "launch.yaml")
    assert (ran["exit_code"], ran["status"], ran["diagnostics"]) == (0, "ok", [])
    (alone,) = porter("hazards", "--launch", captured / "launch.yaml")["runs"]
    (whole,) = porter("hazards", "-I", headers, SOURCE)["runs"]
    assert alone["verdict"] == whole["verdict"] == "clean"
    assert alone["warp_instructions"] == whole["warp_instructions"] == ran["warp_instructions"]


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1, "clean"), pytest.param(2, "error", marks=pytest.mark.slow)], ids=["right", "wrong"]
)
def test_another_build_of_the_kernel_runs_on_the_launch(
    factor: int, verdict: str, captured: Path, tmp_path: Path
) -> None:
    """The kernel has the same name and parameters, and another body, as a port of it has."""
    port = tmp_path / "port.cu"
    port.write_text(f"#define OTHER_FACTOR {factor}\n" + SOURCE.read_text())
    document = porter("verify", "--full", "--case", captured / "case.yaml", "--port", port, SOURCE)
    (row,) = document["rows"]
    assert row["verdict"] == verdict, row
    original, ported = row["runs"]
    assert (original["arch"], ported["arch"]) == ("sm_90a", "sm_100a")
    assert original["warp_instructions"] != ported["warp_instructions"]
