# SPDX-License-Identifier: Apache-2.0
"""The recording library in a program, on a driver without a GPU: everything up to the driver call."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner

from porter.cli.main import main
from porter.diagnostics import Code, PorterError
from porter.report.json import schema
from porter.verify.capture import library
from porter.verify.capture.events import Captured
from porter.verify.capture.library import build_library, find_cupti
from porter.verify.capture.program import CaptureOptions, capture_program
from porter.verify.case import load_case
from porter.verify.problem import bind


def captured(fakes, folder: Path, **options) -> Captured:
    return capture_program(fakes.command, folder, CaptureOptions(**options), fakes.toolkit)


@pytest.fixture(scope="module")
def cases(fakes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("cases") / "captured"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUPTI_LIBRARY_DIR", str(fakes.libraries))
        done = CliRunner().invoke(main, ["-q", "capture", "-o", str(output), "--", *fakes.command])
    assert done.exit_code == 0, done.output
    return output


@pytest.mark.usefixtures("cupti")
def test_launches_and_the_memory_that_they_reach(fakes, tmp_path: Path) -> None:
    found = captured(fakes, tmp_path)
    assert found.device == {"name": 'fake "GPU"', "capability": [9, 0], "driver": 13000}
    assert found.images == (fakes.ptx.read_bytes(),)
    first, second, third = found.launches
    assert [x.kernel for x in found.launches] == ["scale", "scale", "through_table"]
    assert (first.grid, first.block, first.cluster, first.dynamic_smem) == ((1, 1, 1), (64, 1, 1), (1, 1, 1), 0)
    assert [len(p) for p in first.params] == [8, 8, 4, 4]
    assert [len(p) for p in second.params] == [8, 8, 4, 4]
    assert (third.grid, third.cluster, third.dynamic_smem, third.attributes) == ((2, 1, 1), (2, 1, 1), 128, (4,))
    values = (0.25 * np.arange(48) - 3).astype(np.float32)
    out, given = first.blocks
    assert (out.size, given.size, given.after) == (48 * 4 + 64, 48 * 4, None)
    assert given.before.read_bytes() == values.tobytes()
    assert out.after is not None
    assert out.before.read_bytes() == bytes(out.size)
    assert out.after.read_bytes() == bytes(64) + (3 * values).tobytes()
    assert second.blocks[0].before.read_bytes() == out.after.read_bytes()
    assert sorted(b.size for b in third.blocks) == [24, 192, 4096]


@pytest.mark.usefixtures("cupti")
def test_what_is_left_out_says_why(fakes, tmp_path: Path) -> None:
    found = captured(fakes, tmp_path / "all")
    assert [(r.reason, r.kernel) for r in found.refusals] == [("graph", "scale"), ("failed", "fails")]
    assert "CUresult 701" in found.refusals[1].text
    found = captured(fakes, tmp_path / "one", limit=1)
    assert [x.kernel for x in found.launches] == ["scale"]
    assert ("limit", "through_table") in [(r.reason, r.kernel) for r in found.refusals]
    found = captured(fakes, tmp_path / "table", kernel="^through")
    assert [x.kernel for x in found.launches] == ["through_table"]
    found = captured(fakes, tmp_path / "bytes", kernel="through", max_bytes=4000)
    assert not found.launches
    assert [(r.reason, r.detail) for r in found.refusals] == [("bytes", str(24 + 192 + 4096))]


def test_another_profiler_in_the_way(fakes, cupti, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_CUPTI_BUSY", "1")
    found = captured(fakes, tmp_path)
    assert [(r.reason, r.detail) for r in found.refusals] == [("cupti", "status 39")]


def test_the_cases_hold_on_the_simulator(cases: Path) -> None:
    assert sorted(p.name for p in cases.iterdir()) == ["001_scale", "002_scale", "003_through_table"]
    done = CliRunner().invoke(main, ["--format", "json", "verify", str(cases)])
    document = json.loads(done.stdout)
    assert [row["verdict"] for row in document["rows"]] == ["clean"] * 3
    assert {row["family"] for row in document["rows"]} == {"recorded"}
    assert document["arithmetic"] == "exact"


def test_a_changed_output_is_found(cases: Path, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "case"
    shutil.copytree(cases / "001_scale", folder)
    after = folder / "arg0.after.bin"
    data = bytearray(after.read_bytes())
    data[64] ^= 1
    after.write_bytes(data)
    done = CliRunner().invoke(main, ["verify", str(folder)])
    assert done.exit_code == 5
    assert "PT5020" in done.output
    after.write_bytes((folder / "arg0.before.bin").read_bytes())
    done = CliRunner().invoke(main, ["verify", str(folder)])
    assert "PT5023" in done.output  # An output that was never written would pass.


def test_addresses_in_memory_move_with_their_tensors(cases: Path) -> None:
    problem = bind(load_case(cases / "003_through_table" / "case.yaml"))
    table = problem.tensors["arg0"]
    assert [at for at, _ in table.contains] == [0, 8]
    assert len({what.tensor for _, what in table.contains}) == 2


def test_pointers_into_the_middle(cases: Path) -> None:
    problem = bind(load_case(cases / "001_scale" / "case.yaml"))
    ((at, what),) = problem.arguments[0].contains
    assert (at, what.tensor, what.offset) == (0, "arg0", 64)


@pytest.mark.usefixtures("cupti")
def test_the_command(fakes, tmp_path: Path) -> None:
    command = ["--format", "json", "capture", "-o", str(tmp_path / "out"), "--kernel", "scale", "--", *fakes.command]
    done = CliRunner().invoke(main, command)
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema("capture"))
    assert [c["kernel"] for c in document["cases"]] == ["scale", "scale"]
    assert [d["id"] for d in document["diagnostics"]] == ["PT5064"]
    again = CliRunner().invoke(main, command)
    assert again.exit_code == 2
    assert "PT0" in again.output


@pytest.mark.usefixtures("cupti")
def test_no_launch_that_is_wanted(fakes, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["capture", "-o", str(tmp_path), "--kernel", "gemm", "--", *fakes.command])
    assert done.exit_code == 6
    assert "PT5063" in done.output
    done = CliRunner().invoke(main, ["capture", "--kernel", "(", "--", "x"])
    assert done.exit_code == 2
    done = CliRunner().invoke(main, ["capture", "-o", str(tmp_path), "--", "/no/such/program"])
    assert done.exit_code == 2
    assert "PT0001" in done.output


def test_no_cupti(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library.sys, "path", [str(tmp_path)])
    with pytest.raises(PorterError) as failure:
        find_cupti()
    assert failure.value.diagnostic.code is Code.CAPTURE_NO_CUPTI


@pytest.mark.slow
def test_the_library_is_built_once(fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = build_library(fakes.toolkit, tmp_path)
    monkeypatch.setattr(library.subprocess, "run", lambda *a, **k: pytest.fail("built again"))
    assert build_library(fakes.toolkit, tmp_path) == built


def test_a_compiler_that_fails(fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_FLAGS", ("--no-such-flag",))
    with pytest.raises(PorterError) as failure:
        build_library(fakes.toolkit, tmp_path)
    assert failure.value.diagnostic.code is Code.CAPTURE_NOT_BUILT


@pytest.mark.usefixtures("cupti")
def test_ptx_that_the_program_does_not_carry(fakes, tmp_path: Path) -> None:
    binary = tmp_path / "kernels.cubin"
    names = b"\0.text.scale\0"
    # An ELF head of 64 bytes whose section table, at its end, is empty.
    head = b"\x7fELF" + bytes(36) + (64 + len(names)).to_bytes(8, "little") + bytes(16)
    binary.write_bytes(head + names)
    command = [str(fakes.program), str(binary)]
    output = tmp_path / "binary"
    done = CliRunner().invoke(main, ["capture", "-o", str(output), "--kernel", "scale", "--", *command])
    assert done.exit_code == 0, done.output
    assert (output / "001_scale" / "kernel.cubin").is_file()
    assert "PT5060" in CliRunner().invoke(main, ["verify", str(output)]).output
    with_ptx = ["capture", "-o", str(tmp_path / "ptx"), "--kernel", "scale", "--ptx", str(fakes.ptx), "--", *command]
    done = CliRunner().invoke(main, with_ptx)
    assert done.exit_code == 0, done.output
    assert CliRunner().invoke(main, ["verify", str(tmp_path / "ptx")]).exit_code == 0


def test_hazards_of_a_captured_launch(cases: Path) -> None:
    path = str(cases / "001_scale" / "case.yaml")
    done = CliRunner().invoke(main, ["--format", "json", "hazards", path])
    assert done.exit_code == 0, done.output
    assert [run["program"] for run in json.loads(done.stdout)["runs"]] == ["original"]
    for command in (["mutate", path], ["hazards", "--only", "port", path]):
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 2
        assert "PT5065" in done.output
