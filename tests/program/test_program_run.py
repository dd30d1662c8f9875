# SPDX-License-Identifier: Apache-2.0
"""`porter run` as a shell sees it: streams, exit status, hazards, traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from porter.cli.main import main
from porter.report.json import schema

HERE = Path(__file__).parent
Done = subprocess.CompletedProcess[str]
Porter = Callable[..., Done]


@pytest.fixture
def porter(capfd: pytest.CaptureFixture[str]) -> Porter:
    """The command in this process; what it and the programs write is caught at the file descriptors."""

    def start(*words: object) -> Done:
        with pytest.raises(SystemExit) as left:
            main([str(word) for word in words])
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess([], left.value.code or 0, out, err)  # type: ignore[arg-type]

    return start


@pytest.fixture(scope="session")
def program(built: Callable[..., Path]) -> Path:
    return built(HERE / "host_calls.cu", "sm_90a")


def test_the_program_has_the_output_and_porter_the_errors(porter: Porter, program: Path) -> None:
    done = porter("run", "--", program, "accumulate")
    assert done.stdout == "sync cudaSuccess\nsum 2998000.0 last 5995.0\n"
    assert "exit status 0, 3 launches" in done.stderr
    assert done.returncode == 0
    quiet = porter("-q", "run", program, "accumulate")
    assert (quiet.stdout, quiet.stderr) == (done.stdout, "")


def test_the_programs_input_is_ours(program: Path) -> None:
    command = [sys.executable, "-c", "from porter.cli.main import main; main()", "run", program, "echo"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, input="four words of input\n")
    assert done.stdout == "read four\n"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [([], 3), (["accumulate"], 0), (["fault"], 5), (["graph"], 6), (["abort"], 128 + 6), (["status", "77"], 77)],
)
def test_exit_status(porter: Porter, program: Path, arguments: list[str], code: int) -> None:
    done = porter("run", program, *arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_options_behind_the_program_are_its_own(porter: Porter, program: Path) -> None:
    assert porter("run", program, "arguments", "--trace", "-I", "--", "x").stdout == "--trace -I -- x\n"
    assert porter("run", "--", program, "arguments", "--help").stdout == "--help\n"


def test_a_program_is_found_on_the_path(porter: Porter, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    assert porter("run", program.name, "status", "9").returncode == 9


def test_source_is_compiled(porter: Porter, toolkit: object, tmp_path: Path) -> None:
    source = tmp_path / "own.cu"
    source.write_text(
        "#include <cstdio>\n#include VALUES\n__global__ void k(int *p) { *p = VALUE; }\n"
        "int main() { int *p, v; cudaMalloc(&p, 4); k<<<1, 1>>>(p);\n"
        'cudaMemcpy(&v, p, 4, cudaMemcpyDeviceToHost); std::printf("%d\\n", v); return v; }\n'
    )
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "values.h").write_text("#define VALUE (ONE + FLAG)\n")
    done = porter("run", "-I", tmp_path / "include", "-D", 'VALUES="values.h"', "-D", "ONE=1", "--nvcc-flag",
                  "-DFLAG=41", "--arch", "sm_100a", "--", source)  # fmt: skip
    assert (done.stdout, done.returncode) == ("42\n", 42), done.stderr


@pytest.mark.parametrize("given", ["absent", "folder", "text"])
def test_what_cannot_be_run_is_refused(porter: Porter, tmp_path: Path, given: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("not a program")
    done = porter("run", tmp_path / given)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "[PT" in done.stderr


def test_hazards_of_all_launches(porter: Porter, program: Path) -> None:
    clean = porter("run", "--hazards", program, "accumulate")
    assert clean.returncode == 0
    assert "clean, 0 errors" in clean.stderr
    racy = porter("run", "--hazards", program, "race")
    assert racy.returncode == 5
    assert "G1" in racy.stderr
    assert racy.stdout.startswith("raced")


def test_trace_and_timeline(porter: Porter, program: Path, tmp_path: Path) -> None:
    out = tmp_path / "trace.json"
    done = porter("run", "--trace", out, "--timeline", "--", program, "accumulate")
    assert "warp 0-7" in done.stderr
    assert done.stdout.startswith("sync")
    names = {e["args"]["name"] for e in json.loads(out.read_text())["traceEvents"] if e["name"] == "process_name"}
    assert len(names) == 12
    assert {"launch 0", "launch 1", "launch 2"} <= {part for n in names for part in n.replace(" of ", ",").split(",")}


def test_json(porter: Porter, program: Path) -> None:
    done = porter("--format", "json", "run", "--hazards", program, "accumulate")
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema("run"))
    assert done.stderr == ""
    assert document["stdout"].startswith("sync cudaSuccess")
    assert [launch["grid"] for launch in document["launches"]] == [[4, 1, 1]] * 3
    assert document["hazards"]["verdict"] == "clean"
    failed = json.loads(porter("--format", "json", "run", program).stdout)
    assert (failed["exit_code"], failed["exit_status"], failed["hazards"]) == (3, 3, None)
