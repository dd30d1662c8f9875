# SPDX-License-Identifier: Apache-2.0
"""How fast sources are read and ported (docs/benchmarks.md says how each is measured)."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Record = Callable[[str, float, float, str], None]

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
_ENDINGS = ("*.cu", "*.cuh", "*.h", "*.hpp", "*.inl")

pytestmark = pytest.mark.target


@dataclass(frozen=True)
class Spent:
    """What a finished child process used: processor time in seconds, memory at its most in bytes."""

    seconds: float
    memory: int
    output: str


def _spent(command: list[str], output: Path) -> Spent:
    with output.open("wb") as file:
        child = subprocess.Popen(command, stdout=file, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode in (0, 1), command
    return Spent(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, output.read_text())


@pytest.fixture(scope="module")
def trees(request: pytest.FixtureRequest) -> list[Path]:
    """CUTLASS's headers and examples; a small part of them if nothing is measured."""
    found = importlib.util.find_spec("cutlass_library")
    source = Path(str(found.origin)).parent / "source" if found is not None and found.origin else None
    if source is None or not source.is_dir():
        pytest.skip("nvidia-cutlass is not installed")
    if request.config.getoption("benchmark_only", default=False):
        return [source / "include", source / "examples"]
    return [source / "examples" / "cute", source / "include" / "cute" / "arch" / "copy_sm90.hpp"]


def _porter(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "porter", "-q", *map(str, arguments)]


@pytest.mark.external
def test_scan(trees: list[Path], benchmark: Any, figure: Record, tmp_path: Path) -> None:
    """`porter scan`, effort included, in one process."""
    runs: list[Spent] = []

    def run() -> None:
        runs.append(_spent(_porter("--format", "json", "scan", "--jobs", "1", *trees), tmp_path / "scan.json"))

    benchmark.pedantic(run, rounds=2)
    lines = sum(file["lines"] for file in json.loads(runs[-1].output)["files"])
    assert lines > 1000
    if benchmark.stats is not None:
        figure("porter scan", lines / min(r.seconds for r in runs), 20_000, "lines/s")
        figure("porter scan, memory", 2**30 / max(r.memory for r in runs), 1, "of it fit in 1 GiB")


@pytest.mark.external
@pytest.mark.parametrize(
    ("package", "parts", "target"),
    [("flashinfer", ("data/include", "data/csrc"), 20_000), ("quack", (".",), 5_000)],
)
def test_scan_package(
    package: str, parts: tuple[str, ...], target: int, benchmark: Any, figure: Record, tmp_path: Path
) -> None:
    """`porter scan` of a package with kernels, effort included, in one process: CUDA of flashinfer, Python of quack."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"{package} is not installed")
    trees = [Path(found.origin).parent / part for part in parts]
    runs: list[Spent] = []

    def run() -> None:
        runs.append(_spent(_porter("--format", "json", "scan", "--jobs", "1", *trees), tmp_path / "scan.json"))

    benchmark.pedantic(run, rounds=1)
    assert json.loads(runs[-1].output)["hopper_only"] > 0
    files = [p for t in trees for e in (*_ENDINGS, "*.py") for p in t.rglob(e)]
    lines = sum(p.read_bytes().count(b"\n") for p in files)
    if benchmark.stats is not None:
        figure(f"porter scan of {package}", lines / min(r.seconds for r in runs), target, "lines/s")


@pytest.mark.external
def test_ast_grep(trees: list[Path], benchmark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ast-grep on the same files, in one thread, finding asm statements: what reading alone costs."""
    program = shutil.which("ast-grep", path=str(Path(sys.executable).parent)) or shutil.which("ast-grep")
    if program is None:
        pytest.skip("ast-grep is not installed")
    endings = ", ".join(f'"{e}"' for e in _ENDINGS)
    config = tmp_path / "sgconfig.yml"
    config.write_text(f"ruleDirs: []\nlanguageGlobs:\n  cpp: [{endings}]\n")
    rule = "{id: asm, language: cpp, rule: {kind: gnu_asm_expression}}"
    search = ["scan", "--config", str(config), "--inline-rules", rule, "--json=stream", "--threads", "1"]
    runs: list[Spent] = []

    def run() -> None:
        runs.append(_spent([program, *search, *map(str, trees)], tmp_path / "found.jsonl"))

    benchmark.pedantic(run, rounds=2)
    assert "asm" in runs[-1].output
    if benchmark.stats is not None:
        lines = sum(p.read_bytes().count(b"\n") for t in trees for e in _ENDINGS for p in t.rglob(e))
        with capsys.disabled():
            print(f"\nast-grep: {lines / min(r.seconds for r in runs):,.0f} lines/s on the same files")


def _long_kernel(target: int) -> str:
    """A kernel of at least `target` lines: an attention kernel's source with its epilogue written out by hand."""
    lines = (CORPUS / "attention_fwd" / "attention_fwd.cu").read_text().splitlines()
    at = max(i for i, line in enumerate(lines) if "__global__" in line)
    body = next(i for i in range(at, len(lines)) if lines[i].rstrip().endswith("{"))
    filler = [f"    if (clock64() == {i}) __nanosleep({i % 7});" for i in range(target)]
    return "\n".join([*lines[: body + 1], *filler[: max(0, target - len(lines))], *lines[body + 1 :]]) + "\n"


@pytest.mark.slow
def test_port(benchmark: Any, figure: Record, tmp_path: Path) -> None:
    """`porter port` of a kernel of 1,000 lines, the start of the process included."""
    source = tmp_path / "long.cu"
    source.write_text(_long_kernel(1000))
    shutil.copy(CORPUS / "attention_fwd" / "wgmma.cuh", tmp_path)
    runs: list[Spent] = []

    def run() -> None:
        runs.append(_spent(_porter("port", "--no-compile", source), tmp_path / "port.diff"))

    benchmark.pedantic(run, rounds=3)
    assert "tcgen05" in runs[-1].output
    if benchmark.stats is not None:
        lines = source.read_text().count("\n")
        figure("porter port, kernel of 1,000 lines", lines / min(r.seconds for r in runs), 500, "lines/s")


def _long_dsl_kernel(target: int) -> str:
    """A CuTe DSL file of at least `target` lines: a persistent GEMM with arithmetic written out in its kernel."""
    lines = (CORPUS / "dsl_gemm_persistent" / "dsl_gemm_persistent.py").read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.strip() == "@cute.kernel")
    body = next(i for i in range(at, len(lines)) if lines[i].endswith(":") and lines[i].lstrip().startswith(")"))
    filler = [f"        extra_{i} = cutlass.Int32({i}) * {i % 7} + {i % 11}" for i in range(target - len(lines))]
    return "\n".join([*lines[: body + 1], *filler, *lines[body + 1 :]]) + "\n"


@pytest.mark.slow
def test_port_dsl(benchmark: Any, figure: Record, tmp_path: Path) -> None:
    """`porter port` of a CuTe DSL file of 1,500 lines, the start of the process included."""
    source = tmp_path / "long.py"
    source.write_text(_long_dsl_kernel(1500))
    runs: list[Spent] = []

    def run() -> None:
        runs.append(_spent(_porter("port", "--no-compile", source), tmp_path / "port.diff"))

    benchmark.pedantic(run, rounds=3)
    assert "porter_dsl.begin()" in runs[-1].output
    if benchmark.stats is not None:
        lines = source.read_text().count("\n")
        figure("porter port, CuTe DSL file of 1,500 lines", lines / min(r.seconds for r in runs), 300, "lines/s")


@pytest.mark.slow
def test_scan_dsl(benchmark: Any, figure: Record, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """`porter scan` of a generated CuTe DSL file, effort and the start of the process included."""
    count = 20_000 if request.config.getoption("benchmark_only", default=False) else 2_000
    source = tmp_path / "long.py"
    source.write_text(_long_dsl_kernel(count))
    runs: list[Spent] = []

    def run() -> None:
        runs.append(_spent(_porter("--format", "json", "scan", source), tmp_path / "scan.json"))

    benchmark.pedantic(run, rounds=2)
    (file,) = json.loads(runs[-1].output)["files"]
    assert file["effort"]["level"] == "medium"
    if benchmark.stats is not None:
        figure("porter scan of generated CuTe DSL", file["lines"] / min(r.seconds for r in runs), 5_000, "lines/s")
