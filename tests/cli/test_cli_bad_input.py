# SPDX-License-Identifier: Apache-2.0
"""What users get wrong: each mistake has its own diagnostic and exit code, and never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fakes_cli import CASE, FakeBackend, FakeBuilder, fake_port_sources, porter, porter_json, project, zero

from porter.build.toolchain import search_toolkits

WGMMA_SPARSE = (
    "__global__ void k() {\n"
    '  asm volatile("wgmma.mma_async.sp.sync.aligned.m64n64k32.f32.f16.f16 {%0}, %1, %2;" '
    ': "+f"(d) : "l"(a), "l"(b));\n}\n'
)
PLAIN = "__global__ void k(float *p) { p[threadIdx.x] = 0; }\n"
WGMMA = Path(__file__).parents[2] / "corpus/gemm_tma/hopper_ops.cuh"
MAIN = "from porter.cli.main import main; main()"
needs_nvcc = pytest.mark.skipif(next(iter(search_toolkits(None)), None) is None, reason="no CUDA compiler")


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("PORTER_CACHE", str(tmp_path / "cache"))


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


# --- the list that every command answers for


def test_a_kernel_with_nothing_to_port_is_exit_code_0(tmp_path):
    result = porter("port", write(tmp_path / "k.cu", PLAIN), code=0)
    assert "PT0007" in result.stderr
    assert result.stdout_bytes == b""


def test_an_unsupported_construct_is_named_and_nothing_is_written(tmp_path):
    path = write(tmp_path / "k.cu", WGMMA_SPARSE)
    result = porter("port", path, "-o", tmp_path / "out", code=3)
    assert "PT2011" in result.stderr
    assert "sparse" in result.stderr
    assert not (tmp_path / "out").exists()
    assert path.read_text() == WGMMA_SPARSE


def test_no_compiler(tmp_path, monkeypatch):
    kernel = project(tmp_path / "kernel")
    monkeypatch.setattr("porter.build.toolchain.search_toolkits", lambda explicit=None: iter(()))
    for command in ("verify", "build"):
        assert "PT3001" in porter(command, kernel, code=2).stderr


@needs_nvcc
def test_an_error_of_the_compiler_in_the_original(tmp_path):
    kernel = project(tmp_path / "kernel")
    kernel.write_text(kernel.read_text().replace("HOPPER_MMA();", "this is no C++"))
    result = porter("verify", kernel, "--original-only", "--families", "integers", code=4)
    assert "PT3004" in result.stderr
    assert f"{kernel}:2" in result.stderr


def test_a_case_whose_shapes_do_not_fit(tmp_path):
    kernel = project(tmp_path / "kernel", CASE.replace("M: 64, N: 128", "M: 65, N: 128"))
    result = porter("verify", kernel, "--original-only", code=2)
    assert "PT5004" in result.stderr
    assert "does not come out even" in result.stderr


def test_a_case_that_divides_by_zero(tmp_path):
    kernel = project(tmp_path / "kernel", CASE.replace("BM: 64,", "BM: 0,"))
    result = porter("verify", kernel, "--original-only", code=2)
    assert "PT5004" in result.stderr
    assert "divides by zero" in result.stderr
    assert "Fraction" not in result.stderr


# --- the wrong kind of path


@pytest.mark.parametrize("command", ["build", "sim"])
def test_a_directory_where_a_file_is_needed(command, tmp_path):
    assert "PT0012" in porter(command, tmp_path, code=2).stderr


@pytest.mark.parametrize("command", ["build", "sim", "verify", "hazards", "run"])
@pytest.mark.parametrize(
    ("name", "content", "id"),
    [
        ("x.txt", "text", "PT0003"),
        ("x.bin", b"\0\1", "PT0003"),
        ("x.cu", b"\x7fELF\0\0", "PT0002"),
        ("x.py", "print('no kernel')\n", "PT0010"),
    ],
)
def test_files_that_are_no_kernels(command, name, content, id, tmp_path):
    assert id in porter(command, write(tmp_path / name, content), code=2).stderr


def test_a_case_beside_the_kernel_that_names_another(tmp_path):
    kernel = project(tmp_path / "kernel", CASE.replace("kernel: gemm.cu", "kernel: gem.cu"))
    assert "case.yaml beside it has kernel: gem.cu" in porter("verify", kernel, code=2).stderr


def test_a_kernel_that_has_no_case(tmp_path):
    assert "PT5001" in porter("verify", write(tmp_path / "k.cu", PLAIN), code=2).stderr


def test_sim_of_source_without_main_or_case(tmp_path):
    result = porter("sim", write(tmp_path / "k.cu", "// main() is elsewhere\n" + PLAIN), code=2)
    assert "PT0013" in result.stderr


@needs_nvcc
def test_build_of_source_without_kernels(tmp_path):
    assert "PT0014" in porter("build", write(tmp_path / "k.cu", "int x;\n"), code=2).stderr


def test_build_of_what_cannot_be_ported(tmp_path):
    result = porter("build", write(tmp_path / "k.cu", WGMMA_SPARSE), code=3)
    assert "PT5028" in result.stderr
    assert "not run" not in result.stderr


# --- options


@pytest.mark.parametrize("command", ["port", "sim"])
def test_an_include_directory_that_is_not_there(command, tmp_path):
    path = write(tmp_path / "k.cu", PLAIN)
    result = porter(command, "-I", tmp_path / "nowhere", path, code=2)
    assert "PT0005" in result.stderr
    assert "nowhere" in result.stderr


def test_no_family_named(tmp_path):
    for value in ("", ","):
        assert "PT0005" in porter("verify", project(tmp_path / "k"), "--families", value, code=2).stderr


def test_scan_csv_and_json_exclude_each_other(tmp_path):
    porter("--format", "json", "scan", "--csv", write(tmp_path / "k.cu", PLAIN), code=2)


# --- output that cannot be written


@pytest.mark.spread(2)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("arguments", [["scan"], ["--format", "json", "scan"]])
def test_standard_output_that_is_full(arguments, tmp_path):
    path = write(tmp_path / "k.cu", PLAIN)
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", MAIN, *arguments, str(path)],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    if "json" not in arguments:
        assert "PT0008" in done.stderr


@pytest.mark.spread(3)
@pytest.mark.parametrize("arguments", [["scan"], ["port"], ["--format", "json", "scan"]])
def test_a_reader_that_went_away(arguments, tmp_path):
    """The status says so; it is neither success nor findings."""
    path = write(tmp_path / "k.cu", WGMMA.read_text())
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments, str(path)], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert done.returncode == 128 + signal.SIGPIPE
    assert "Error" not in done.stderr


def test_an_interrupt_is_neither_findings_nor_a_traceback(tmp_path):
    path = write(tmp_path / "k.cu", PLAIN)
    code = (
        "import porter.cli.scan as s, os, signal\n"
        # What runs in the background begins with interrupts ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "s.take_inventory = lambda *a, **k: os.kill(os.getpid(), signal.SIGINT)\n" + MAIN
    )
    done = subprocess.run([sys.executable, "-c", code, "scan", str(path)], capture_output=True, text=True)
    assert done.returncode == 128 + signal.SIGINT
    assert done.stdout == ""
    assert done.stderr == "interrupted\n"


# --- the second schedule of verify


def test_an_error_that_only_the_random_schedule_shows(tmp_path, monkeypatch):
    def backend(name, options):
        return FakeBackend(port=zero if options.schedule == "random" else FakeBackend().kernels["sm_100a"])

    monkeypatch.setattr("porter.passes.embedded.port_sources", fake_port_sources)
    monkeypatch.setattr("porter.verify.sweep.make_backend", backend)
    monkeypatch.setattr("porter.cli.verify.make_builder", FakeBuilder)
    kernel = project(tmp_path / "kernel")
    document = porter_json("verify", kernel, code=5)
    wrong = [(r["family"], r["schedule"]) for r in document["rows"] if r["verdict"] == "error"]
    assert wrong == [("integers", "random")]
    shown = porter("verify", kernel, "--sizes", "default", code=5)
    assert "integers, random schedule" in shown.stdout
    assert "PT5021" in shown.stderr
    clean = porter_json("verify", kernel, "--families", "normal", "--sizes", "default")
    assert [r["schedule"] for r in clean["rows"]] == [None], "a run without the family has no second pass"


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&- <&-"])
def test_streams_that_are_closed(closed: str, tmp_path: Path) -> None:
    """Nobody reads what is written there; the exit code is the result, and files are not written into instead."""
    command = f"{sys.executable} -m porter explain exit-codes {closed}; echo $? >{tmp_path}/code"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert (tmp_path / "code").read_text() == "0\n"
    assert done.stderr == ""


def test_a_plan_of_nothing_says_so(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(PLAIN)
    assert "PT0007" in porter("plan", tmp_path / "k.cu").output


@pytest.mark.parametrize("command", ["hazards", "sim", "run", "grade"])
def test_what_has_no_case_is_offered_a_draft(command: str, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(PLAIN)
    assert "porter case new KERNEL" in porter(command, tmp_path / "k.cu", code=2).output


@pytest.mark.parametrize(("name", "told"), [("k.cu", "no kernel at all"), ("k.py", "no kernel that is a jit function")])
def test_a_draft_of_a_file_without_kernels(name: str, told: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    assert told in porter("case", "new", tmp_path / name, code=2).output
