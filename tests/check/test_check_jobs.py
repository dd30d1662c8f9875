# SPDX-License-Identifier: Apache-2.0
"""`porter hazards --jobs`: the runs of a check in several processes find what one process finds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_ptx import HEADER
from click.testing import CliRunner, Result
from test_check_verify import SOMETIMES

from porter.cli.main import main
from porter.diagnostics import Code, PorterError
from porter.diagnostics.spread import spread
from porter.verify import hazard_cases, hazards
from porter.verify.backends import RunResult

CORPUS = Path(__file__).parents[2] / "corpus"
SHAPE = ["--arg", "f16[2048]=ones", "--arg", "u8[65536]", "--block", "64", "--smem", "8192"]
FOR_LONG = "L: add.u32 %r60, %r60, 1; setp.ne.u32 %p7, %r60, 0; @%p7 bra L; ret;"


def kernel(folder: Path, body: str) -> str:
    path = folder / "kernel.ptx"
    path.write_text(HEADER.format(target="sm_90a") + body + "\n}\n")
    return str(path)


def untimed(text: str) -> Any:
    document = json.loads(text)
    for run in document["runs"]:
        assert run.pop("seconds") > 0
    return document


def invoke(*args: str) -> Result:
    result = CliRunner().invoke(main, list(args))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def same(*args: str) -> Any:
    """The document of `porter hazards`, which is that of two processes too."""
    one, two = (invoke("--format", "json", "hazards", *args, "--jobs", jobs) for jobs in ("1", "2"))
    assert one.exit_code == two.exit_code
    assert untimed(one.stdout) == untimed(two.stdout)
    return untimed(one.stdout)


@pytest.mark.slow
@pytest.mark.external
def test_original_and_port_in_two_processes(tmp_path: Path) -> None:
    source = str(CORPUS / "gemm_coop/gemm_coop.cu")
    document = same(source, "--sizes", "M=64,N=128,K=128")
    assert [(r["program"], r["verdict"]) for r in document["runs"]] == [("original", "clean"), ("port", "clean")]

    assert invoke("port", source, "-o", str(tmp_path)).exit_code == 0
    port = tmp_path / "gemm_coop.cu"
    text = port.read_text()
    port.write_text("\n".join(line for line in text.splitlines() if "fence.proxy.async" not in line))
    document = same(source, "--port", str(port), "--only", "port", "--sizes", "M=64,N=128,K=128", "--seeds", "2")
    (run,) = document["runs"]
    assert (run["program"], run["verdict"]) == ("port", "error")
    assert {h["hazard"] for h in run["hazards"]} == {"H16"}


@pytest.mark.slow
@pytest.mark.external
def test_all_sizes_in_two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = yaml.safe_load((CORPUS / "gemm_coop/case.yaml").read_text())
    case["sizes"] = {"M": 64, "N": 128, "K": 128}
    case["other_sizes"] = [{"M": 64, "N": 128, "K": 64}]
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(case, sort_keys=False))
    (tmp_path / "gemm_coop.cu").write_bytes((CORPUS / "gemm_coop/gemm_coop.cu").read_bytes())
    processes = tmp_path / "processes"
    real = hazard_cases.run_case

    def noted(*args: Any) -> hazards.OneRun:
        with processes.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return real(*args)

    monkeypatch.setattr(hazard_cases, "run_case", noted)
    document = same(str(tmp_path / "gemm_coop.cu"), "--sizes", "all")
    alone, spread_out = processes.read_text().split()[:4], processes.read_text().split()[4:]
    assert set(alone) == {str(os.getpid())}
    assert len(spread_out) == 4
    assert str(os.getpid()) not in spread_out
    assert [r["program"] for r in document["runs"]] == ["original", "port"] * 2
    short, long = (document["runs"][i]["warp_instructions"] for i in (2, 0))
    assert short < long


def test_seeds_in_two_processes(tmp_path: Path) -> None:
    document = same(kernel(tmp_path, SOMETIMES), *SHAPE, "--seeds", "8")
    (run,) = document["runs"]
    assert run["verdict"] == "error"
    assert {h["hazard"] for h in run["hazards"]} == {"H17"}


def test_a_launch_file_in_two_processes(tmp_path: Path) -> None:
    kernel(tmp_path, "st.shared.u32 [%r2], %r0; ret;")
    fields = {
        "version": 1,
        "ptx": "kernel.ptx",
        "entry": "kernel",
        "launch": {"grid": [2], "block": [64], "dynamic_smem": 8192},
        "tensors": {"x": {"dtype": "f32", "shape": [64]}},
        "params": ["x", "x"],
    }
    launch = tmp_path / "launch.yaml"
    launch.write_text(yaml.safe_dump(fields))
    document = same("--launch", str(launch), "--seeds", "3")
    assert [h["hazard"] for h in document["runs"][0]["hazards"]]


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuses() -> None:
    raise PorterError(Code.CAPTURE_NO_PTX, kernel="k")


def too_large() -> None:
    raise MemoryError("of no use")


@pytest.mark.parametrize(
    ("fails", "code"), [(refuses, Code.CAPTURE_NO_PTX), (too_large, Code.TOO_LARGE), (killed, Code.TOO_LARGE)]
)
def test_an_error_in_one_process(
    fails: Callable[[], None], code: Code, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = [kernel(tmp_path, "ret;"), *SHAPE, "--seeds", "4"]
    monkeypatch.setattr("porter.verify.hazards.run_bare", failing_bare(fails))
    said = {}
    for jobs in ("1", "2") if fails is not killed else ("2",):
        result = invoke("--format", "json", "hazards", *fields, "--jobs", jobs)
        assert result.exit_code == code.value.exit_code
        said[jobs] = json.loads(result.stdout)["diagnostics"]
        assert [d["id"] for d in said[jobs]] == [code.id]
        assert "Traceback" not in result.output
    assert len({json.dumps(d) for d in said.values()}) == 1


def failing_bare(fails: Callable[[], None]) -> Callable[..., RunResult]:
    real = hazards.run_bare

    def run(*args: Any) -> RunResult:
        if args[-1].seed == 2:
            fails()
        return real(*args)

    return run


def children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.spread(2)
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="children are found in /proc")
@pytest.mark.parametrize("whole_group", [True, False])
def test_an_interrupt_leaves_no_process(whole_group: bool, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "porter", "hazards", kernel(tmp_path, FOR_LONG), *SHAPE, "--seeds", "4"]
    process = subprocess.Popen(
        [*command, "--jobs", "2", "--budget", "1000000000"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Tests in the background of a shell have it ignored, and what they start would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        until = time.monotonic() + 60
        while len(children(process.pid)) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        workers = children(process.pid)
        assert len(workers) == 2
        time.sleep(0.5)
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 128 + signal.SIGINT
        assert said == "interrupted\n"
        assert not any(map(running, workers))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def test_functions_and_items_need_not_be_pickled() -> None:
    add = 2
    numbers = [lambda i=i: i for i in range(5)]
    told: list[tuple[int, int]] = []
    found = spread(lambda n: n() + add, numbers, 2, lambda done, total: told.append((done, total)))
    assert found == [2, 3, 4, 5, 6]
    assert told == [(i, 5) for i in range(1, 6)]
