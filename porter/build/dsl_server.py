# SPDX-License-Identifier: Apache-2.0
"""Processes that have CuTe DSL imported and give each request a copy of themselves.

Importing the DSL takes as long as most compilations. A copy (`fork`) of a process that did nothing but import it
is as good as a fresh process: what a user's file does to its interpreter ends with it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from porter.build.run import TIMEOUT, Run
from porter.diagnostics import Code, PorterError

_READ_AT_START = ("PYTHON", "CUTE_DSL_", "CUDA_", "LD_", "OPENBLAS_", "OMP_", "HOME")
"""How names of variables begin that the interpreter, the DSL or its libraries read when they are loaded."""

_lock = threading.Lock()
_idle: dict[tuple[str, ...], list[_Server]] = {}


class _Server:
    """One such process. `start` holds what it was started with: another environment needs another one."""

    def __init__(self, start: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self.start = start
        self.directory = tempfile.mkdtemp(prefix="porter-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "porter.build.dsl_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self.directory,
            env=dict(environment),
            start_new_session=True,
        )

    def ask(self, request: Mapping[str, object], timeout: float) -> int:
        """The exit status of the copy that took the request; that of the server if it ended instead.

        Raises:
            TimeoutError: no answer after `timeout` seconds.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        if not select.select([process.stdout], [], [], timeout)[0]:
            raise TimeoutError
        line = process.stdout.readline()
        return int(line) if line.strip() else process.wait()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def ask(request: Path, answer: Path, environment: Mapping[str, str]) -> Run:
    """Have a request's file answered by `porter.build.dsl_worker`, in the directory of the file and with
    `environment` over this process's own; what it prints is the run's `stdout`.

    Raises:
        PorterError: COMPILER_TIMEOUT.
    """
    whole = {**os.environ, "LC_ALL": "C", **environment}
    read = {name: value for name, value in whole.items() if name.startswith(_READ_AT_START)}
    start = (sys.executable, *sys.path, *(f"{name}={value}" for name, value in sorted(read.items())))
    server = _taken(start, whole)
    log = request.parent / "log"
    asked = {"request": str(request), "answer": str(answer), "log": str(log), "environment": whole}
    try:
        status = server.ask(asked, TIMEOUT)
    except TimeoutError:
        server.end()
        raise PorterError(Code.COMPILER_TIMEOUT, tool="CuTe DSL", seconds=TIMEOUT) from None
    except BaseException:
        server.end()
        raise
    if server.alive:
        with _lock:
            _idle.setdefault(start, []).append(server)
    else:
        server.end()
    return Run(status, log.read_text(errors="replace") if log.is_file() else "", "")


def _taken(start: tuple[str, ...], environment: Mapping[str, str]) -> _Server:
    with _lock:
        if ready := _idle.get(start):
            return ready.pop()
    return _Server(start, environment)


def _end_all() -> None:
    with _lock:
        servers = [server for ready in _idle.values() for server in ready]
        _idle.clear()
    for server in servers:
        server.end()


def _forget() -> None:
    """A copy of this process has no part in the pipes of its servers."""
    global _idle, _lock
    _others.append(_idle)
    _idle, _lock = {}, threading.Lock()


_others: list[dict[tuple[str, ...], list[_Server]]] = []
"""Kept, so that a copy does not wait for processes that are not its own."""

atexit.register(_end_all)
os.register_at_fork(after_in_child=_forget)
