# SPDX-License-Identifier: Apache-2.0
"""`porter case new`, where a draft has too many guesses: the launch of the program is the case."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from test_capture_write import KERNEL, PTX, captured

from porter.cli.main import main
from porter.diagnostics import Code
from porter.report.json import schema
from porter.verify.capture import simulated
from porter.verify.capture.program import CaptureOptions
from porter.verify.case import load_case
from porter.verify.program import LaunchRecord
from porter.verify.program.runner import Enough

MMA = 'asm volatile("wgmma.fence.sync.aligned;");'
OBJECTS = """
template <class A, class B, class C, class D>
__global__ void tile(A a, B b, C c, D d, float* out) {{ {} }}
"""
NUMBERS = "__global__ void tile(const float* a, float* out, int n) {{ {} out[0] = a[0]; }}\n"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[CaptureOptions]:
    """The options of programs that were run; each launches one kernel."""
    asked: list[CaptureOptions] = []

    def capture(command: Any, folder: Path, options: CaptureOptions, *given: Any) -> tuple[Any, tuple[()]]:
        asked.append(options)
        return captured(folder, PTX % ("sm_90a", KERNEL)), ()

    monkeypatch.setattr("porter.cli.case.capture_simulated", capture)
    monkeypatch.setattr("porter.cli.case.find_toolkit", lambda given: None)
    monkeypatch.setattr("porter.cli.case.build_runtime", lambda toolkit: None)
    monkeypatch.setattr("porter.cli.case.executable_of", lambda request, toolkit, folder: folder / "program")
    return asked


def new(*words: object) -> dict[str, Any]:
    done = CliRunner().invoke(main, ["--format", "json", "case", "new", *map(str, words)])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema("case-new"))
    return document


@pytest.mark.parametrize("own", [True, False])
def test_what_no_draft_says_is_a_launchs_to_say(own: bool, ran: list[CaptureOptions], tmp_path: Path) -> None:
    kernel, program = tmp_path / "tile.cu", tmp_path / "main.cu"
    kernel.write_text(OBJECTS.format(MMA) + ("int main() {}\n" if own else ""))
    program.write_text("int main() {}\n")
    document = new(kernel, *([] if own else ["--program", program]))
    (written,) = document["written"]
    assert Path(written) == tmp_path / "001_tile" / "case.yaml"
    assert not (tmp_path / "case.yaml").exists()
    assert document["guesses"] == []
    assert [d["id"] for d in document["diagnostics"]] == [Code.DRAFT_RECORDED.id]
    case = load_case(Path(written))
    assert case.entry == KERNEL
    assert case.source is not None
    assert case.source.resolve() == kernel
    assert document["case"]["reference"]["recorded"]["arch"] == "sm_90a"
    (options,) = ran
    assert options.stops
    assert (options.budget < CaptureOptions.budget) is own


def test_a_draft_that_says_enough_stays_one(ran: list[CaptureOptions], tmp_path: Path) -> None:
    kernel = tmp_path / "tile.cu"
    kernel.write_text(
        NUMBERS.format(MMA)
        + "void run(const float* a, float* out, int n) { tile<<<n / 64, 128>>>(a, out, n); }\nint main() {}\n"
    )
    document = new(kernel)
    assert document["written"] == [str(tmp_path / "case.yaml")]
    assert 0 < len(document["guesses"]) <= 3
    assert ran


def test_nothing_is_written_over_an_earlier_launch(ran: list[CaptureOptions], tmp_path: Path) -> None:
    kernel = tmp_path / "tile.cu"
    kernel.write_text(OBJECTS.format(MMA))
    (tmp_path / "001_tile").mkdir()
    words = ["case", "new", str(kernel), "--program", str(kernel)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert Code.WOULD_OVERWRITE.id in done.output
    assert not (tmp_path / "case.yaml").exists()


@pytest.mark.parametrize(("stops", "limit", "launches"), [(True, 1, 1), (True, 2, 2), (False, 1, 5)])
def test_a_program_ends_with_the_last_launch_that_is_wanted(
    stops: bool, limit: int, launches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def run_program(executable: Path, arguments: Any, options: Any) -> Any:
        with suppress(Enough):
            for number in range(5):
                record = LaunchRecord("k", (number + 1, 1, 1), (32, 1, 1), (1, 1, 1), 0, (), (), ptx="")
                options.on_launch("before", record, None)
                made.append(number)
                object.__setattr__(record, "outcome", SimpleNamespace(status="ok"))
                options.on_launch("after", record, None)
            return SimpleNamespace(stdout="", stderr="", exit_status=3, diagnostics=())
        return SimpleNamespace(stdout="", stderr="", exit_status=0, diagnostics=())

    monkeypatch.setattr(simulated, "run_program", run_program)
    found, _ = simulated.capture_simulated(["p"], tmp_path, CaptureOptions(limit=limit, stops=stops))
    assert len(made) == launches
    assert len(found.launches) == limit
    assert found.exit_status == (0 if stops else 3)


@pytest.mark.slow
@pytest.mark.external
def test_objects_of_cute_are_a_launchs_to_say(tmp_path: Path) -> None:
    """NVIDIA's tutorial: its TMA atoms, layouts and MMA are parameters of types without a name."""
    source = Path(pytest.importorskip("cutlass_library").__path__[0]) / "source"
    kernel = tmp_path / "wgmma_tma_sm90.cu"
    kernel.write_text((source / "examples" / "cute" / "tutorial" / "hopper" / kernel.name).read_text())
    document = new(kernel, "-I", source / "include", "-I", source / "tools/util/include", "--", 256, 128, 64, "N", "T")
    assert document["guesses"] == []
    assert [d["id"] for d in document["diagnostics"]] == [Code.DRAFT_RECORDED.id]
    done = CliRunner().invoke(main, ["verify", "--no-hazards", document["written"][0]])
    assert done.exit_code == 0, done.output
