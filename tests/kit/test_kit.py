# SPDX-License-Identifier: Apache-2.0
"""Kits and their records: what a launcher is told, what comes back, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from porter.build.toolchain import find_toolkit
from porter.cli.main import main
from porter.cli.timing import timing_run
from porter.diagnostics import Code, PorterError
from porter.grade.kernels import FITTED
from porter.ptx import ast
from porter.ptx.tensormap import ENCODED_BYTES
from porter.verify.backends import SimBackend
from porter.verify.builder import BuiltKernel, ToolkitBuilder
from porter.verify.case import load_case
from porter.verify.images import make_image
from porter.verify.kit.archive import build_launcher, write_kit
from porter.verify.kit.bare import assembled
from porter.verify.kit.plan import KitRun, map_words, parameter_words, probe_runs
from porter.verify.kit.record import HEAD, hold, is_kit_record, load_kit_record
from porter.verify.problem import bind
from porter.verify.settings import SimOptions

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "corpus"


@pytest.fixture
def run() -> KitRun:
    """The original of a corpus kernel as if it had been compiled."""
    case = load_case(CORPUS / "gemm_ws" / "case.yaml")
    problem = bind(case, {"M": 128, "N": 128, "K": 64})
    sizes = [4, 4, 4, 8, ENCODED_BYTES, ENCODED_BYTES]
    params = tuple(ast.Param(f"p{i}", f"b{min(s, 8) * 8}", s, min(s, 64)) for i, s in enumerate(sizes))
    function = ast.Function("gemm", True, params, (), ())
    kernel = BuiltKernel("sm_90a", "gemm", ast.Module((9, 0), "sm_90a", 64, (), (function,)), "")
    images = {
        name: make_image(t, np.ones(t.shape, t.dtype.container) if t.is_input else None, 0)
        for name, t in problem.tensors.items()
    }
    return KitRun("gemm_ws", problem.sizes, "integers", 0, "original", "9.0", "s0", "i0", problem, kernel,
                  problem.launch, images, b"cubin")  # fmt: skip


def test_parameters_are_bytes_and_what_goes_where(run: KitRun) -> None:
    words = list(parameter_words(run))
    assert words[:3] == [("80000000",), ("80000000",), ("40000000",)]
    assert words[3][1:] == ("0:tensor:C:0",)
    assert [w[1:] for w in words[4:]] == [("0:map:map_a",), ("0:map:map_b",)]
    assert all(len(str(w[0])) == 2 * ENCODED_BYTES for w in words[4:])


def test_tensor_maps_are_what_the_driver_takes(run: KitRun) -> None:
    first = next(map_words(run))
    assert first[:5] == ("map_a", "A", 0, int(run.problem.tensor_maps["map_a"].map.dtype), 2)
    assert first[5:7] == (64, 128)
    assert first[7] == 128
    assert first[8:10] == (64, 128)


def test_an_archive_names_and_checks_every_file(run: KitRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KitRun, "expected", lambda self: {"C": "00"})
    packed = write_kit([run, replace(run, family="normal")], b"launcher", tmp_path / "kit.tar")
    with tarfile.open(tmp_path / "kit.tar") as archive:
        files = {m.name: archive.extractfile(m).read() for m in archive.getmembers()}
        modes = {m.name: m.mode for m in archive.getmembers()}
    manifest = files.pop("kit/manifest").decode().splitlines()
    named = {line.split()[2]: line.split()[1] for line in manifest if line.startswith("file ")}
    assert {f"kit/{name}" for name in named} == set(files)
    assert all(hashlib.sha256(files[f"kit/{n}"]).hexdigest() == checksum for n, checksum in named.items())
    assert sum(line.startswith("run ") for line in manifest) == 2
    assert modes["kit/run.sh"] == modes["kit/launcher"] == 0o755
    assert packed.runs == {"9.0": 2}
    again = write_kit([run, replace(run, family="normal")], b"launcher", tmp_path / "again.tar")
    assert again.id == packed.id
    assert (tmp_path / "again.tar").read_bytes() == (tmp_path / "kit.tar").read_bytes()


# --- Records

LABEL = "gemm_ws M=128,N=128,K=64 integers 0 original"


def record(path: Path, body: str = "", capability: str = "9.0", source: str = "s0", inputs: str = "i0") -> Path:
    text = (
        f"porter-kit-record 1\nkit 12ab\ndevice NVIDIA_H200\ncapability {capability}\ndriver 13000\n"
        f"run {LABEL} {source} {inputs}\n{body or 'status ok' + chr(10) + 'out C 00 whole' + chr(10)}"
    )
    path.write_text(f"{text}sha256 {hashlib.sha256(text.encode()).hexdigest()}\n")
    return path


def test_a_record_is_read(tmp_path: Path) -> None:
    body = "status ok\nout C 00 whole\nmicroseconds 3.5 3.25\n"
    found = load_kit_record(record(tmp_path / "r", body))
    assert is_kit_record(found.path)
    assert (found.kit, found.name, found.device["driver"]) == ("12ab", "NVIDIA H200", "13000")
    (done,) = found.runs
    assert (done.label, done.source, done.inputs, done.status) == (LABEL, "s0", "i0", "ok")
    assert done.outputs == {"C": ("00", "whole")}
    assert done.microseconds == (3.5, 3.25)


def test_a_probe_shows_what_it_gave(tmp_path: Path) -> None:
    body = "status ok\nout C 00 whole\nbytes C 0000803f00008041\n"
    (done,) = load_kit_record(record(tmp_path / "r", body)).runs
    assert done.shown == {"C": bytes.fromhex("0000803f00008041")}


@pytest.mark.slow
def test_probes_run_on_the_simulator() -> None:
    runs = {run.case.split(":")[1]: run for run in probe_runs(ToolkitBuilder())}
    assert set(runs) == {"columns", "upper_half", "tf32", "fp8_width", "f16_width"}
    for run in runs.values():
        assert len(run.expected()["out"]) == 64
        assert run.question.startswith("Q")
    after = SimBackend(SimOptions(arithmetic="exact")).run(
        runs["columns"].kernel, runs["columns"].problem, runs["columns"].launch, runs["columns"].images
    )
    words = after.after["out"].elements().view(np.uint32)
    assert set(words[:, :24].reshape(-1).tolist()) == {0x41800000}
    assert set(words[:, 24:].reshape(-1).tolist()) == {0x7FC0ABCD}


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a digest": lambda data: data.replace(b"out C 00", b"out C 01"),
    "the device": lambda data: data.replace(b"H200", b"B200"),
    "a line less": lambda data: data.replace(b"driver 13000\n", b""),
    "an end less": lambda data: data[:-40],
    "no checksum": lambda data: data[: data.index(b"sha256")],
    "another checksum": lambda data: data[:-3] + b"00\n",
    "more behind it": lambda data: data + b"out C 01 whole\n",
    "nothing": lambda data: b"",
    "only a head": lambda data: HEAD,
    "another file": lambda data: b"PK\3\4 a zip",
    "no text": lambda data: b"\xff" * 100,
    "another version": lambda data: data.replace(b"record 1", b"record 2"),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_record_is_refused(how: str, tmp_path: Path) -> None:
    path = record(tmp_path / "r")
    path.write_bytes(DAMAGES[how](path.read_bytes()))
    with pytest.raises(PorterError) as refused:
        load_kit_record(path)
    assert refused.value.diagnostic.code is Code.RECORD_UNREADABLE


@pytest.mark.parametrize("body", ["status ok\nout C\n", "nonsense 1\n", "status ok\nmicroseconds x\n"])
def test_lines_that_no_launcher_writes_are_refused(body: str, tmp_path: Path) -> None:
    with pytest.raises(PorterError):
        load_kit_record(record(tmp_path / "r", body))


@pytest.mark.parametrize(
    ("body", "verdict", "what"),
    [
        ("status ok\nout C 00 whole\n", "same", ""),
        ("status ok\nout C 01 whole\n", "different", "C: other bits than on the simulator"),
        ("status ok\nout C 00 stray\n", "different", "C: memory around it was written"),
        ("status ok\n", "different", "C: no digest"),
        ("status timeout\n", "failed", "timeout"),
        ("status cuCtxSynchronize:CUDA_ERROR_TRAP\n", "failed", "cuCtxSynchronize:CUDA_ERROR_TRAP"),
    ],
)  # fmt: skip
def test_what_a_device_did_is_held_against_the_simulator(
    body: str, verdict: str, what: str, run: KitRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KitRun, "expected", lambda self: {"C": "00"})
    (held,) = hold(load_kit_record(record(tmp_path / "r", body)), [run])
    assert (held.verdict, held.what) == (verdict, what)


def test_runs_for_other_gpus_are_passed_over_and_absent_ones_missing(run: KitRun, tmp_path: Path) -> None:
    found = load_kit_record(record(tmp_path / "r", capability="10.0"))
    assert hold(found, [run]) == []
    found = load_kit_record(record(tmp_path / "r"))
    assert [h.verdict for h in hold(found, [replace(run, family="normal")])] == ["missing"]


@pytest.mark.parametrize("foreign", [{"source": "other"}, {"inputs": "other"}])
def test_a_foreign_record_is_refused(foreign: dict[str, str], run: KitRun, tmp_path: Path) -> None:
    with pytest.raises(PorterError) as refused:
        hold(load_kit_record(record(tmp_path / "r", **foreign)), [run])
    assert refused.value.diagnostic.code is Code.RECORD_MISMATCH


# --- The whole way


def porter(*args: object) -> Any:
    return CliRunner().invoke(main, [str(a) for a in args])


@pytest.mark.slow
def test_a_kit_runs_without_porter_and_its_record_is_read_here(tmp_path: Path) -> None:
    """Against a driver that copies what a test prepared."""
    shutil.copytree(CORPUS / "gemm_tma", tmp_path / "k")
    kernel = tmp_path / "k" / "gemm_tma.cu"
    words = ["--style", "compat", "--families", "integers", "--no-timing", "--no-probes"]
    made = porter("kit", *words, kernel, "-o", tmp_path / "kit.tar")
    assert "1 for compute capability 10.0" in made.output
    assert made.exit_code == 0, made.output
    with tarfile.open(tmp_path / "kit.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    (outputs / "2.bin").write_bytes(right_output(kernel))
    done = launched(tmp_path, outputs)
    assert done.returncode == 0, done.stderr
    assert "as expected  gemm_tma M=256,N=128,K=320 integers 0 original" in done.stdout
    assert "2 are for other GPUs" in done.stdout
    assert (outputs / "launches").read_text().splitlines()[0] == "2 2 1 128 0 0 07"
    answer = porter("verify", "--style", "compat", kernel, "--against", tmp_path / "record.txt")
    assert answer.exit_code == 0, answer.output
    assert "1 same" in answer.output
    for name, wanted in (
        ("STUB_STRAYS", "stray"),
        ("STUB_CRASHES", "status ended"),
        ("STUB_FAILS", "cuCtxSynchronize"),
    ):
        launched(tmp_path, outputs, **{name: "cuCtxSynchronize"})
        assert wanted in (tmp_path / "record.txt").read_text()
        assert porter("verify", "--style", "compat", kernel, "--against", tmp_path / "record.txt").exit_code == 5
    assert launched(tmp_path, outputs, STUB_MAJOR="8").returncode == 6
    launched(tmp_path, outputs)
    kernel.write_text(kernel.read_text() + "\n// changed\n")
    assert porter("verify", "--style", "compat", kernel, "--against", tmp_path / "record.txt").exit_code == 2
    image = next((tmp_path / "kit" / "images").iterdir())
    image.write_bytes(image.read_bytes()[:-1])
    damaged = launched(tmp_path, outputs)
    assert damaged.returncode == 2
    assert "the kit is damaged" in damaged.stderr


@pytest.mark.slow
def test_a_kernel_to_time_needs_no_case(tmp_path: Path) -> None:
    """Its inputs are made there, and the record has its clocks as they are after the last launch."""
    timed = FITTED[0]
    one = assembled(timing_run(timed), find_toolkit())
    packed = write_kit([], build_launcher(find_toolkit()).read_bytes(), tmp_path / "kit.tar", bare=[one])
    assert packed.runs == {"10.0": 1}
    assert packed.nbytes < 2**20
    with tarfile.open(tmp_path / "kit.tar") as archive:
        archive.extractall(tmp_path, filter="data")
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    (outputs / "2.bin").write_bytes(np.full(128 * timed.n, timed.k, np.float32).tobytes())
    (outputs / "3.bin").write_bytes(np.arange(16, dtype=np.uint64).tobytes())
    done = launched(tmp_path, outputs, STUB_MAJOR="10")
    assert f"as expected  {one.label}" in done.stdout, done.stderr
    (held,) = hold(load_kit_record(tmp_path / "record.txt"), [one])
    assert held.verdict == "same"
    assert held.done is not None
    assert held.done.shown["clocks"] == np.arange(16, dtype=np.uint64).tobytes()
    assert len(held.done.microseconds) == 5
    (outputs / "2.bin").write_bytes(np.full(128 * timed.n, 7, np.float32).tobytes())
    launched(tmp_path, outputs, STUB_MAJOR="10")
    (held,) = hold(load_kit_record(tmp_path / "record.txt"), [one])
    assert held.verdict == "different"


def right_output(kernel: Path) -> bytes:
    """What the kernel writes, as a record of the simulator has it."""
    record_path = kernel.parent / "runs.porter"
    made = porter("record", kernel, "-o", record_path, "--backend", "sim", "--families", "integers")
    assert made.exit_code == 0, made.output
    from porter.verify.record import load

    (entry,) = load(record_path).entries
    return entry.outputs["C"]


def launched(folder: Path, outputs: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The kit's script with a driver that a test wrote, and nothing of Python's or Porter's."""
    library = folder / "libcuda.so.1"
    if not library.exists():
        include = "/usr/local/cuda/include"
        from porter.build.toolchain import find_toolkit

        include = str(find_toolkit().include_dir)
        source = Path(__file__).parent / "stub_driver.cpp"
        command = ["g++", "-shared", "-fPIC", "-std=c++17", f"-I{include}", str(source), "-o", str(library)]
        subprocess.run(command, check=True)
    clean = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(folder), "STUB_OUTPUTS": str(outputs), **environment}
    script = [str(folder / "kit" / "run.sh"), str(folder / "record.txt")]
    return subprocess.run(script, env=clean, capture_output=True, text=True, check=False)


@pytest.mark.external
@pytest.mark.parametrize(("words", "exit_code"), [((), 0), (("--to", "sm_103a"), 3)])
def test_a_chip_that_lacks_what_a_kernel_needs_is_passed_over(
    words: tuple[str, ...], exit_code: int, tmp_path: Path
) -> None:
    """MMAs of 8-bit integers are none of sm_103a's (PTX ISA 9.7.16): a note, but where that chip is asked for."""
    path = tmp_path / "kit.tar"
    bare = ("--no-probes", "--no-timing", "--families", "integers")
    done = CliRunner().invoke(
        main, ["--format", "json", "kit", str(CORPUS / "gemm_int8"), *bare, *words, "-o", str(path)]
    )
    assert done.exit_code == exit_code, done.output
    body = json.loads(done.stdout)
    assert {run["label"].rpartition(" ")[2] for run in body["runs"]} >= {"original"}
    assert [d["id"] for d in body["diagnostics"] if d["severity"] != "note"] == (["PT5028", "PT2061"] if words else [])
    assert ("PT5073" in {d["id"] for d in body["diagnostics"]}) is not bool(words)
