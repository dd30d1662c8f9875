# SPDX-License-Identifier: Apache-2.0
"""Kernels to time: that they compute what they should and are read as what they are; constants fitted to a record."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from grade.kernels import kernel, timed_launch
from grade.published import ladders

from porter.build.toolchain import find_toolkit
from porter.cli.main import main
from porter.cli.timing import timing_run, timing_runs
from porter.grade import calibration_file, chips
from porter.grade.calibration import mean_error
from porter.grade.chips import calibrated
from porter.grade.clocks import drain
from porter.grade.fitting import FITTABLE, Measured, fit, points, predicted
from porter.grade.kernels import DEPTH, FITTED, HELD_OUT, Timed
from porter.grade.model import run
from porter.grade.reading import Launch, read_shape
from porter.ptx.parser import parse_module
from porter.report import json as report_json
from porter.verify.backends import SimBackend
from porter.verify.kit.bare import assembled
from porter.verify.settings import SimOptions

ALL = (*FITTED, *HELD_OUT)
CHIP = chips.chips()["B200"]
TRUTH = {
    "load_latency_l2_ns": 400.0, "load_bytes_per_clock_l2": 90.0, "stage_issue": 150.0, "fill_bytes_per_clock": 60.0,
    "launch_clocks": 2500.0, "store_bytes_per_clock_rows": 20.0,
}  # fmt: skip
"""Constants of a GPU that there is not."""


# --- The kernels


@pytest.mark.parametrize(
    "timed",
    [Timed(64, 2, 192), Timed(128, 1, 192, serial=True), Timed(128, 3, 192), Timed(256, 4, 192, pair=True)],
    ids=lambda t: t.name,
)
def test_kernels_compute_products_on_the_simulator(timed: Timed, tmp_path: Path) -> None:
    loaded = timed_launch(timed, tmp_path, 2, "integers")
    done = SimBackend(SimOptions()).run(loaded.kernel, loaded.problem, loaded.launch, loaded.images)
    assert done.status == "ok", done.findings
    a, b = (loaded.problem.tensors[n].dtype.decode(loaded.images[n].elements()) for n in "AB")
    assert np.array_equal(done.after["D"].elements(), a @ b.T)
    stamps = done.after["clocks"].elements()
    assert (np.diff(stamps.astype(np.int64), axis=1)[:, :2] > 0).all()


@pytest.mark.parametrize("timed", ALL, ids=lambda t: t.name)
def test_what_is_read_from_the_text_is_the_shape(timed: Timed) -> None:
    module = parse_module(timed.ptx())
    found = read_shape(module, module.entries()[0], Launch(timed.threads, timed.smem, timed.ctas, row_bytes=128))
    assert found.shape == timed.shape
    assert not found.unknown


def test_fitted_and_held_out_kernels_are_others() -> None:
    assert len({t.name for t in ALL}) == len(ALL)
    assert not set(FITTED) & set(HELD_OUT)


@pytest.mark.slow
def test_ptxas_takes_all_kernels() -> None:
    toolkit = find_toolkit()
    for one in timing_runs():
        assert assembled(one, toolkit).image


def test_an_output_that_is_one_word_has_its_digest() -> None:
    one = timing_run(FITTED[0])
    data = np.full(128 * 64, 8192, np.float32).tobytes()
    assert one.expected() == {"D": hashlib.sha256(data).hexdigest()}


# --- Fitting


def stamps_of(timed: Timed) -> tuple[int, ...]:
    """What a GPU would say if the model with the constants of `TRUTH` were right."""
    with calibrated(TRUTH):
        ready = TRUTH["launch_clocks"]
        multiplied = ready + predicted(timed, CHIP) * timed.k // DEPTH
        return tuple(round(x) for x in (1, 1 + ready, 1 + multiplied, 1 + multiplied + drain(timed.shape)))


def microseconds(timed: Timed) -> float:
    with calibrated(TRUTH):
        return run(timed.shape, CHIP, timed.problem).clocks / CHIP.clock_ghz / 1000


def test_constants_are_found_again() -> None:
    found = [Measured(t, (stamps_of(t),) * 4, microseconds(t)) for t in ALL]
    before = points(found, CHIP)
    constants = fit(found, CHIP)
    assert set(constants) == set(FITTABLE)
    with calibrated(constants):
        after = points(found, CHIP)
    assert mean_error([p for p in after if not p.fitted]) < 0.01 < 0.1 < mean_error([p for p in before if not p.fitted])
    assert constants["launch_clocks"] == pytest.approx(2500, rel=0.01)
    assert constants["fill_bytes_per_clock"] == pytest.approx(60, rel=0.03)


def test_held_out_points_have_no_say() -> None:
    found = [Measured(t, (stamps_of(t),), microseconds(t)) for t in ALL]
    other = [replace(m, stamps=((0, 1, 10**6, 10**7),)) if not m.fitted else m for m in found]
    assert fit(found, CHIP) == fit(other, CHIP)


def test_a_calibration_holds_no_longer_than_its_with() -> None:
    before = dict(chips.values())
    with calibrated(TRUTH):
        assert chips.values()["stage_issue"] == 150
    assert chips.values() == before
    with pytest.raises(KeyError), calibrated({"speed_of_light": 1.0}):
        pass


# --- The command


def record(path: Path, kernels: tuple[Timed, ...] = ALL, capability: str = "10.0", **changed: Any) -> Path:
    text = f"porter-kit-record 1\nkit 12ab\ndevice NVIDIA_B200\ncapability {capability}\ndriver 13000\n"
    for timed in kernels:
        one = timing_run(timed)
        data = struct.pack("<16Q", *changed.get("stamps", stamps_of(timed) * 4)).hex()
        (digest,) = one.expected().values()
        text += f"run {one.label} {changed.get('source', one.source)} {one.inputs}\n"
        text += f"status {changed.get('status', 'ok')}\nout D {changed.get('digest', digest)} whole\n"
        text += f"microseconds 999.5 {microseconds(timed):.3f}\nbytes clocks {data}\n"
    path.write_text(f"{text}sha256 {hashlib.sha256(text.encode()).hexdigest()}\n")
    return path


def porter(*arguments: str | Path, code: int = 0) -> Any:
    result = CliRunner().invoke(main, ["--format", "json", *map(str, arguments)])
    assert result.exit_code == code, result.output
    document = json.loads(result.output)
    if document["kind"] == "grade":
        jsonschema.validate(document, report_json.schema("grade"))
    return document


def test_a_record_becomes_a_calibration_that_grades_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "b200.yaml"
    made = porter("grade", "--calibrate", record(tmp_path / "record.txt"), "-o", out)["calibrated"]
    assert made["device"]["name"] == "NVIDIA B200"
    loops = made["clocks_per_stage"]
    assert sorted({p["fitted"] for p in loops}) == [False, True]
    assert len(loops) == len(ALL)
    assert all(p["predicted"] == pytest.approx(p["measured"], rel=0.02) for p in loops)
    assert any(p["predicted_before"] != pytest.approx(p["measured"], rel=0.1) for p in loops)
    assert not any(p["fitted"] for p in made["percent_of_nominal"])
    shape = next(r.shape for ladder in ladders() for r in ladder.rungs if r.name.startswith("v4"))
    source = tmp_path / "kernel.ptx"
    source.write_text(kernel(shape))
    plain = porter("grade", source)
    used = porter("grade", source, "--calibration", out)
    assert used["calibration"]["name"] == "NVIDIA B200"
    assert plain["calibration"] is None
    rates = [d["kernels"][0]["percent_of_nominal"] for d in (plain, used)]
    assert rates[1] < 0.9 * rates[0]
    (tmp_path / "porter.toml").write_text('calibration = "b200.yaml"\n')
    assert porter("grade", source)["kernels"] == used["kernels"]


def test_fitted_and_held_out_are_shown_apart(tmp_path: Path) -> None:
    path = record(tmp_path / "record.txt")
    shown = CliRunner().invoke(main, ["grade", "--calibrate", str(path), "-o", str(tmp_path / "c.yaml")]).output
    assert f"fitted: {len(FITTED)} points, mean error" in shown
    assert f"held out: {len(HELD_OUT)} points, mean error" in shown


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"kernels": ALL[:2]}, "PT5067"),
        ({"kernels": ()}, "PT5067"),
        ({"capability": "9.0"}, "PT5067"),
        ({"status": "timeout"}, "PT5067"),
        ({"digest": "00"}, "PT5067"),
        ({"stamps": (5,) * 16}, "PT5067"),
        ({"stamps": (0,) * 16}, "PT5067"),
        ({"source": "ab"}, "PT5051"),
    ],
    ids=str,
)
def test_a_record_that_says_nothing_is_refused(changed: dict[str, Any], code: str, tmp_path: Path) -> None:
    out = tmp_path / "out.yaml"
    document = porter("grade", "--calibrate", record(tmp_path / "record.txt", **changed), "-o", out, code=2)
    assert document["diagnostics"][0]["id"] == code
    assert not out.exists()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a clock": lambda data: data.replace(b"microseconds 999.5", b"microseconds 1.5"),
    "an end less": lambda data: data[:-40],
    "another file": lambda data: b"PK\3\4 a zip",
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_record_is_refused(how: str, tmp_path: Path) -> None:
    path = record(tmp_path / "record.txt", FITTED[:1])
    path.write_bytes(DAMAGES[how](path.read_bytes()))
    document = porter("grade", "--calibrate", path, "-o", tmp_path / "out.yaml", code=2)
    assert document["diagnostics"][0]["id"] == "PT5050"


def test_a_kernel_that_failed_is_left_out_and_named(tmp_path: Path) -> None:
    path = record(tmp_path / "record.txt")
    lines = path.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if HELD_OUT[0].name in line)
    lines[at + 1] = "status timeout"
    body = "\n".join(lines[:-1]) + "\n"
    path.write_text(f"{body}sha256 {hashlib.sha256(body.encode()).hexdigest()}\n")
    made = porter("grade", "--calibrate", path, "-o", tmp_path / "c.yaml")["calibrated"]
    assert [(one["verdict"], one["what"]) for one in made["left_out"]] == [("failed", "timeout")]
    assert len(made["clocks_per_stage"]) == len(ALL) - 1


@pytest.mark.parametrize(
    "text",
    ["", "a: b", "porter-calibration: 2\nconstants: {stage_issue: 1}", "porter-calibration: 1", "[1", "\x00",
     "porter-calibration: 1\nconstants: {speed_of_light: 3}", "porter-calibration: 1\nconstants: {stage_issue: fast}",
     "porter-calibration: 1\nconstants: {stage_issue: -1}", "porter-calibration: 1\nconstants: {stage_issue: .nan}"],
)  # fmt: skip
def test_a_file_that_is_no_calibration_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    source = tmp_path / "kernel.ptx"
    source.write_text(".version 8.7\n.target sm_100a\n.address_size 64\n")
    document = porter("grade", source, "--calibration", tmp_path / "c.yaml", code=2)
    assert document["diagnostics"][0]["id"] == "PT5068"


def test_a_calibration_says_nothing_of_other_chips(tmp_path: Path) -> None:
    found = calibration_file.Calibration({"name": "NVIDIA B200"}, TRUTH)
    (tmp_path / "c.yaml").write_text(calibration_file.text(found, []))
    assert calibration_file.load(tmp_path / "c.yaml").constants == TRUTH
    source = tmp_path / "kernel.ptx"
    shape = ladders()[0].rungs[0].shape
    source.write_text(kernel(shape).replace("sm_100a", "sm_90a"))
    plain, used = (porter("grade", source, *more)["kernels"] for more in ((), ("--calibration", tmp_path / "c.yaml")))
    assert plain == used


def test_calibrating_takes_no_kernel(tmp_path: Path) -> None:
    document = porter("grade", "--calibrate", record(tmp_path / "r", FITTED[:1]), tmp_path / "k.cu", code=2)
    assert "--calibrate" in document["diagnostics"][0]["message"]
