# SPDX-License-Identifier: Apache-2.0
"""When `porter run` and `porter hazards` start a source's own main()."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

_SPY = """
import subprocess, sys, time
class Spy(subprocess.Popen):
    def __init__(self, command, *rest, **options):
        engine = "porter.passes.port" in sys.modules
        print("starts", command[0], time.process_time(), engine, file=sys.stderr)
        super().__init__(command, *rest, **options)
subprocess.Popen = Spy
from porter.cli.main import main
main(sys.argv[1:])
"""


@dataclass(frozen=True)
class Start:
    """`programs` started in order, the last of them after `seconds` of processor time; `with_engine` if the port
    engine had been imported by then."""

    programs: tuple[str, ...]
    seconds: float
    with_engine: bool


def start(command: str, source: Path, folders: tuple[Path, ...], arguments: tuple[str, ...], modules: Path) -> Start:
    """Processor time, which what else runs on a machine stretches less than wall time. Python keeps compiled modules
    under `modules`, as it does where Porter is installed."""
    words = [command, *(f"-I{folder}" for folder in folders)]
    words += ["--", str(source)] if command == "run" else [str(source), "--"]
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(modules)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command_line = [sys.executable, "-c", _SPY, *words, *arguments]
    done = subprocess.run(command_line, capture_output=True, text=True, check=False, env=environment)
    started = re.findall(r"^starts (\S+) (\S+) (\S+)$", done.stderr, re.MULTILINE)
    assert started, done.stderr
    return Start(tuple(Path(name).name for name, *_ in started), float(started[-1][1]), started[-1][2] == "True")


def hopper_tutorial() -> tuple[tuple[Path, ...], Path]:
    """Include directories and source of a program of NVIDIA's with its own main(), in CuTe C++."""
    spec = find_spec("cutlass_library")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    root = Path(spec.submodule_search_locations[0]) / "source"
    source = root / "examples/cute/tutorial/hopper/wgmma_tma_sm90.cu"
    return (root / "include", root / "tools/util/include"), source
