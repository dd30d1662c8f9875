# SPDX-License-Identifier: Apache-2.0
"""Requests for CuTe DSL share a process that has it imported, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from porter.build import dsl_server
from porter.diagnostics import Code, PorterError

FAKE = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["environment"].get("DO") == "hang":
        import time
        time.sleep(60)
    if asked["environment"].get("DO") == "die":
        os._exit(7)
    open(asked["answer"], "w").write(json.dumps([os.getpid(), os.getcwd()]))
    open(asked["log"], "w").write("told\\n")
    print(0, flush=True)
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A request whose server is one that answers with what it is."""
    package = tmp_path / "porter" / "build"
    package.mkdir(parents=True)
    for directory in (package, package.parent):
        (directory / "__init__.py").touch()
    (package / "dsl_worker.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(dsl_server, "_idle", {})
    request = tmp_path / "request.json"
    request.write_text("{}")
    return request


def answer(asked: Path, **environment: str) -> tuple[int, Path]:
    result = asked.with_name("result.json")
    run = dsl_server.ask(asked, result, environment)
    assert (run.status, run.stdout) == (0, "told\n")
    process, directory = json.loads(result.read_text())
    return process, Path(directory)


def test_one_process_serves_until_its_environment_is_another(asked: Path) -> None:
    first, directory = answer(asked, CUTE_DSL_ARCH="sm_90a")
    assert answer(asked, CUTE_DSL_ARCH="sm_90a") == (first, directory)
    assert answer(asked, CUTE_DSL_ARCH="sm_90a", UNRELATED="1")[0] == first
    second, _ = answer(asked, CUTE_DSL_ARCH="sm_100a")
    assert second != first
    assert answer(asked, CUTE_DSL_ARCH="sm_90a")[0] == first
    dsl_server._end_all()
    assert not directory.exists()
    for process in (first, second):
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_a_process_that_ended_is_replaced(asked: Path) -> None:
    first, _ = answer(asked)
    run = dsl_server.ask(asked, asked.with_name("none"), {"DO": "die"})
    assert run.status == 7
    assert answer(asked)[0] != first
    dsl_server._end_all()


def test_a_process_that_hangs_is_ended(asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = answer(asked)
    monkeypatch.setattr(dsl_server, "TIMEOUT", 0.2)
    with pytest.raises(PorterError) as caught:
        dsl_server.ask(asked, asked.with_name("none"), {"DO": "hang"})
    assert caught.value.diagnostic.code is Code.COMPILER_TIMEOUT
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_a_copy_of_this_process_starts_its_own(asked: Path) -> None:
    first, _ = answer(asked)
    if (copy := os.fork()) == 0:
        status = 1
        try:
            other, _ = answer(asked)
            dsl_server._end_all()
            status = int(other == first)
        finally:
            os._exit(status)
    assert os.waitpid(copy, 0)[1] == 0
    assert answer(asked)[0] == first
    dsl_server._end_all()


KERNEL = """
import sys
import cutlass.cute as cute
marks = sys.modules.setdefault("marks", [])
marks.append(1)
print("loaded", len(marks), flush=True)
{then}
"""


@pytest.mark.parametrize(("then", "status", "told"), [
    ("raise ValueError('no')", 0, "no"),
    ("import os; os._exit(3)", 3, None),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -11, None),
])  # fmt: skip
def test_what_a_file_does_to_its_interpreter_ends_with_it(
    then: str, status: int, told: str | None, tmp_path: Path
) -> None:
    source = tmp_path / "kernel.py"
    source.write_text(KERNEL.format(then=then))
    request = tmp_path / "request.json"
    body = {"source": str(source), "entry": "run", "search": [], "observe": [], "init": {}, "call": []}
    request.write_text(json.dumps(body))
    for _ in range(2):
        result = tmp_path / "result.json"
        run = dsl_server.ask(request, result, {"CUTE_DSL_ARCH": "sm_90a", "CUTE_DSL_DUMP_DIR": "."})
        assert run.status == status
        assert run.stdout == "loaded 1\n"
        assert not told or json.loads(result.read_text())["error"] == told
