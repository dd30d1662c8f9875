# SPDX-License-Identifier: Apache-2.0
"""Runs a program's own main() on the simulator.

The program is an executable whose device code is PTX and whose runtime is a shared library (`porter.build`
makes such executables). It runs as a child process with a stand-in for that library, which asks this process
for everything that a device does.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from porter.diagnostics import Code, Diagnostic, PorterError
from porter.sim import GlobalMemory, Options
from porter.verify.program import protocol
from porter.verify.program.arena import BASE, SPAN, Arena
from porter.verify.program.device import LaunchHook, LaunchRecord, SimulatedDevice
from porter.verify.program.protocol import Op
from porter.verify.program.runtime import build_runtime, preloaded

SCRIPT = ".py"
"""The ending of what is no executable, but a script that launches Triton's kernels."""


class Enough(Exception):
    """Raised by what is called around launches: the program is ended, and what it did until then is its outcome."""


@dataclass(frozen=True)
class ProgramOptions:
    """How to run a program.

    `simulator`: options of each launch. `target`: which of the program's images to run (default: the newest).
    `multiprocessors`: how many the device reports. `memory_bytes`: device memory. `timeout`: seconds that the
    program may compute between two requests. `on_launch`: called before and after each launch. `runtime`: the
    stand-in library (default: `build_runtime`). `attached`: the program has this process's standard streams,
    and the outcome no text. `looks_at`: in which kernels, by mangled names, hazards are looked for.
    """

    simulator: Options = field(default_factory=Options)
    target: str | None = None
    multiprocessors: int = 8
    memory_bytes: int = 8 << 30
    timeout: float = 300.0
    environment: dict[str, str] = field(default_factory=dict)
    directory: Path | None = None
    on_launch: LaunchHook | None = None
    runtime: Path | None = None
    attached: bool = False
    looks_at: Callable[[str], bool] = lambda kernel: True


@dataclass(frozen=True)
class ProgramOutcome:
    """What came of a run. `allocations` are all that were made, `memory` holds those that were not freed."""

    exit_status: int
    stdout: str
    stderr: str
    launches: tuple[LaunchRecord, ...]
    allocations: tuple[tuple[int, int], ...]
    memory: GlobalMemory
    diagnostics: tuple[Diagnostic, ...]

    @property
    def status(self) -> Literal["ok", "incomplete", "error"]:
        """The worst of all launches. A request that was not answered makes it at least *incomplete*."""
        found = {record.outcome.status for record in self.launches if record.outcome}
        if "error" in found:
            return "error"
        return "incomplete" if "incomplete" in found or self.diagnostics else "ok"


def _device(arena: Arena, options: ProgramOptions) -> SimulatedDevice:
    o = options
    return SimulatedDevice(arena, o.simulator, o.target, o.multiprocessors, o.on_launch, o.looks_at)


def _started(path: Path, runtime: Path | None) -> tuple[list[str], dict[str, str]]:
    """The words that start an executable or a script, and what its environment has for the stand-in."""
    if path.suffix == SCRIPT:
        words = [sys.executable, "-m", "porter.verify.program.triton_script", str(path)]
        return words, {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return [str(path)], {"LD_PRELOAD": preloaded(runtime or build_runtime())}


def run_program(executable: Path, args: Sequence[str] = (), options: ProgramOptions | None = None) -> ProgramOutcome:
    """Runs `executable` with `args` to its end, or until there is enough, its launches on the simulator.

    Raises PorterError: PT0001 if there is no such executable, PT5902 if it does not use the runtime,
    PT5905 if it stays silent beyond the time limit.
    """
    options = options or ProgramOptions()
    if not executable.is_file():
        raise PorterError(Code.FILE_NOT_FOUND, path=str(executable))
    command, stand_in = _started(executable.resolve(), options.runtime)
    arena = Arena(GlobalMemory(), options.memory_bytes)
    device = _device(arena, options)
    ours, theirs = socket.socketpair()
    # Files, not pipes: the program must never wait for a reader that is busy simulating.
    with ours, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        environment = {
            **os.environ,
            **options.environment,
            **stand_in,
            "PORTER_CUDART_SOCKET": str(theirs.fileno()),
            "PORTER_CUDART_MEMORY": str(arena.file),
            "PORTER_CUDART_ARENA": hex(BASE),
            "PORTER_CUDART_ARENA_SIZE": hex(SPAN),
        }
        process = subprocess.Popen(
            [*command, *args],
            stdin=None if options.attached else subprocess.DEVNULL,
            stdout=None if options.attached else stdout,
            stderr=None if options.attached else stderr,
            env=environment,
            cwd=options.directory,
            pass_fds=(theirs.fileno(), arena.file),
        )
        theirs.close()
        arena.close_file()
        try:
            ours.settimeout(options.timeout)
            asked = _serve(ours, device)
            exit_status = process.wait(options.timeout)
        except Enough:
            asked, exit_status = True, 0
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise PorterError(Code.PROGRAM_TIMEOUT, program=str(executable), seconds=f"{options.timeout:g}") from error
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        texts = [_text(stream) for stream in (stdout, stderr)]
    if not asked:
        raise PorterError(Code.PROGRAM_NOT_CONNECTED, detail=texts[1], program=str(executable), status=exit_status)
    return ProgramOutcome(
        exit_status,
        texts[0],
        texts[1],
        tuple(device.launches),
        tuple((a.address, a.size) for a in arena.history),
        arena.memory,
        tuple(device.diagnostics),
    )


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode("utf-8", "replace")


def _serve(connection: socket.socket, device: SimulatedDevice) -> bool:
    """Answers until the program ends. Whether it asked for anything at all."""
    asked = False
    while (request := protocol.receive(connection)) is not None:
        asked = True
        op, body = request
        status, answer = device.answer(op, body)
        try:
            protocol.reply(connection, status, answer)
        except BrokenPipeError:
            if op is not Op.UNANSWERED:
                raise
            break
    return asked
