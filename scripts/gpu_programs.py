# SPDX-License-Identifier: Apache-2.0
"""Public Hopper programs, ported whole and run on a Hopper GPU, in both modes, with their own checks.

    python scripts/gpu_programs.py build FAST_CU SIMPLEGEMM FOLDER
    python FOLDER/gpu_programs.py run FOLDER --output docs/results/h200-programs.txt

`build` needs checkouts of github.com/pranjalssh/fast.cu and github.com/bertmaher/simplegemm, and no GPU: it ports
copies of them, has their own Makefiles build the ports with `porter nvcc`, and puts the executables and this script
into FOLDER. `run` needs Python, a driver, and libcublas.so, against which the programs check themselves. Executables
are made of the ports as they are, and of ports whose main() was changed after porting: `-checks` runs the kernels that
KERNELS names, once each, and does not repeat them for a time; simplegemm's main() calls one of its three kernels, and
there is one program for each.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

MODES = ("deferred", "eager")
EACH = 300
"""Seconds that one run of a program may take."""
FAST_KERNELS = tuple(range(2, 13))
"""Kernels of fast.cu that use the tensor core of Hopper."""

Edits = tuple[tuple[str, str], ...]
CHECKS: Edits = (
    (r"int repeat_times = 8;", "int repeat_times = 0;"),
    (
        r"(?m)^ *for \(int kernel_num : \{[0-9, ]+\}\) \{",
        "  std::vector<int> chosen;\n  for (char *at = getenv(\"KERNELS\"); at && *at; at += *at == ',')"
        " chosen.push_back(strtol(at, &at, 10));\n  for (int kernel_num : chosen) {",
    ),
)
"""What makes of fast.cu's main() one that runs the kernels that KERNELS names, once each."""


def other_gemm(source: str, function: str) -> Edits:
    """What makes simplegemm's main() call another of its kernels."""
    return ((r'#include "pingpong\.cu"', f'#include "{source}"'), (r"\brun_pingpong\(", f"{function}("))


class Program(NamedTuple):
    """An executable: the target of a Makefile, the file with its main(), and what is changed of that in the port."""

    name: str
    project: int
    target: str
    made: str
    main: str
    edits: Edits = ()


PROGRAMS = (
    Program("fast.cu", 0, "matmul", "out/matmul", "matmul.cu"),
    Program("fast.cu-checks", 0, "matmul", "out/matmul", "matmul.cu", CHECKS),
    Program("simplegemm-pingpong", 1, "gemm", "gemm", "main.cu"),
    Program("simplegemm-gemm", 1, "gemm", "gemm", "main.cu", other_gemm("gemm.cu", "run_gemm")),
    Program("simplegemm-stmatrix", 1, "gemm", "gemm", "main.cu", other_gemm("stmatrix.cu", "run_stmatrix_gemm")),
)


def edited(text: str, edits: Edits) -> str:
    """Raises ValueError where there is nothing to change."""
    for pattern, replacement in edits:
        text, count = re.subn(pattern, replacement.replace("\\", r"\\"), text)
        if not count:
            raise ValueError(f"nothing like {pattern}")
    return text


# --- build


def build(checkouts: Sequence[Path], folder: Path, jobs: int, only: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    log = [f"$ python scripts/gpu_programs.py build {shlex.join(map(str, checkouts))} {folder}"]
    with tempfile.TemporaryDirectory(prefix="porter-programs-") as name:
        work = Path(name)
        compiler = _compiler(work / "compiler")
        ports = []
        for checkout in checkouts:
            copy, port = work / "originals" / checkout.name, work / "ports" / checkout.name
            shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns(".git", "images"))
            log += _said(["porter", "port", ".", "--whole", "-o", f"../../ports/{port.name}"], copy, r"wrote |error")
            ports.append(port)

        def one(program: Program) -> list[str]:
            place = work / "programs" / program.name
            shutil.copytree(ports[program.project], place)
            main = place / program.main
            main.write_text(edited(main.read_text(), program.edits))
            said = [f"== {program.name}", *_said(["make", program.target], place, r"error|lowered", compiler)]
            shutil.copy2(place / program.made, folder / program.name)
            return said

        wanted = [program for program in PROGRAMS if not only or program.name in only]
        with ThreadPoolExecutor(jobs) as pool:
            log += [line for said in pool.map(one, wanted) for line in said]
    shutil.copy2(__file__, folder)
    (folder / "build.txt").write_text("\n".join(log) + "\n")
    print("\n".join(log))


def _compiler(folder: Path) -> Path:
    """A directory with an `nvcc` that is `porter nvcc`, which finds what stands in for cuBLAS and the driver."""
    from porter.build.cublas import HEADER, cublas_stubs
    from porter.build.driver import driver_stub
    from porter.build.toolchain import find_host_compiler, find_toolkit

    folder.mkdir(parents=True)
    toolkit, host = find_toolkit(), find_host_compiler()
    shutil.copy(HEADER, folder / "cublas_v2.h")
    libraries = {cublas_stubs(toolkit, host, folder, ()), driver_stub(toolkit, host, folder)}
    options = shlex.join(["-I", str(folder), *(word for place in libraries for word in ("-L", str(place)))])
    # who runs `porter nvcc` looks for nvcc, too
    own = f"PATH={shlex.quote(os.environ['PATH'])} exec {shlex.quote(sys.executable)} -m porter"
    command = folder / "nvcc"
    command.write_text(f'#!/bin/sh\n{own} --toolkit {shlex.quote(str(toolkit.root))} nvcc {options} "$@"\n')
    command.chmod(0o755)
    return folder


def _said(command: Sequence[str], place: Path, wanted: str, compiler: Path | None = None) -> list[str]:
    """A command and those of its lines that are `wanted`. Ends the script where it fails."""
    path = f"{compiler}:{os.environ['PATH']}" if compiler is not None else os.environ["PATH"]
    done = subprocess.run(
        command,
        cwd=place,
        env={**os.environ, "PATH": path},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        sys.exit(f"{shlex.join(command)}: exit {done.returncode}\n{done.stdout}")
    return [f"$ {shlex.join(command)}", *(line for line in done.stdout.splitlines() if re.search(wanted, line))]


# --- run


def run(folder: Path, output: Path | None, seconds: int, only: Sequence[str], kernels: Sequence[int]) -> int:
    """All programs in both modes; 0 if every check was made and passed."""
    record = _Record(output)
    record.say(f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC")
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    if shutil.which(query[0]):
        record.say(subprocess.run(query, capture_output=True, text=True).stdout.strip())
    record.say((folder / "build.txt").read_text().rstrip())
    record.say(f"$ {shlex.join(['gpu_programs.py', *sys.argv[1:]])}")
    end = time.monotonic() + seconds
    settings = {**os.environ, "LD_LIBRARY_PATH": ":".join(_cublas())}
    good = True
    for program, mode in planned(only):
        record.say(f"== {program.name} {mode}")
        here = {**settings, "PORTER_MODE": mode, "PORTER_TIMES": "1"}
        good &= _one(program, folder, here, record, end, list(kernels))
    record.say("all checks passed" if good else "some checks failed or were not made")
    return not good


def planned(only: Sequence[str]) -> list[tuple[Program, str]]:
    """Which programs run in which modes: those that are asked for, else each kernel in both. fast.cu's main() launches
    each kernel nine times, which takes long in eager mode."""
    if only:
        asked = [(p, mode) for p in PROGRAMS for mode in MODES if {p.name, f"{p.name}:{mode}"} & set(only)]
    else:
        left = {"fast.cu": "eager", "fast.cu-checks": "deferred"}
        asked = [(p, mode) for p in reversed(PROGRAMS) for mode in MODES if left.get(p.name) != mode]
    return sorted(asked, key=lambda one: one[0].name == "fast.cu-checks")


def _one(
    program: Program, folder: Path, settings: dict[str, str], record: _Record, end: float, kernels: list[int]
) -> bool:
    if not program.name.startswith("fast.cu"):
        status, _ = _lines(folder / program.name, settings, record, end)
        record.say(f"exit status {status}")
        return status == 0
    if not program.edits:
        status, lines = _lines(folder / program.name, settings, record, end)
        checked, wrong = checks(lines)
        record.say(f"exit status {status}; passed: {_listed(checked - wrong)}; failed: {_listed(wrong)}")
        return status == 0 and set(FAST_KERNELS) <= checked - wrong
    passed: set[int] = set()
    failed: set[int] = set()
    while kernels and time.monotonic() < end:
        status, lines = _lines(folder / program.name, {**settings, "KERNELS": _listed(kernels)}, record, end)
        checked, wrong = checks(lines)
        passed |= checked - wrong
        failed |= wrong
        if status == 0:
            break
        # what ends a program ends the kernel that was running, and the others get another process
        done = checked | wrong
        running = next((k for k in kernels if k not in done), None)
        record.say(f"exit status {status} in kernel {running}")
        failed |= {running} if running is not None else set()
        kernels = [k for k in kernels if k not in done and k != running]
    record.say(f"passed: {_listed(passed)}; failed: {_listed(failed)}")
    return set(FAST_KERNELS) <= passed


def checks(lines: Sequence[str]) -> tuple[set[int], set[int]]:
    """Of what fast.cu printed: the kernels whose check was made, and those that did not pass it. The line with a
    kernel's time comes behind its check."""
    checked: set[int] = set()
    wrong: set[int] = set()
    kernel = 0
    for line in lines:
        if match := re.match(r"KERNEL (\d+)", line):
            kernel = int(match[1])
        elif "Divergence" in line or "Failed" in line:
            wrong.add(kernel)
        elif line.startswith("Average elapsed time"):
            checked.add(kernel)
    return checked, wrong


def _listed(kernels: Sequence[int] | set[int]) -> str:
    return ",".join(map(str, sorted(kernels))) or "none"


_SLAB = re.compile(r"\s*(-?\d+\.\d+|nan|-?inf)(\s|$)|\.\.\.|[ABC](ref)?:")
"""Lines of the matrices that simplegemm prints."""


def _lines(program: Path, settings: dict[str, str], record: _Record, end: float) -> tuple[int | str, list[str]]:
    """A program's exit status, or why it has none, and what it printed but for slabs of matrices."""
    left = max(min(end - time.monotonic(), EACH), 1)
    command = ["timeout", f"{left:.0f}", "stdbuf", "-oL", str(program)]
    lines: list[str] = []
    times: list[float] = []
    started = time.monotonic()
    with subprocess.Popen(
        command, env=settings, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        for line in _of(process):
            if took := re.match(r"porter: kernel time ([\d.]+) ms", line):
                times.append(float(took[1]))
            elif line.strip() and not _SLAB.match(line):
                lines.append(line)
                record.say(line)
    record.say(f"{len(times)} launches, the longest {max(times, default=0):.0f} ms; {time.monotonic() - started:.0f} s")
    return ("none: it took too long" if process.returncode == 124 else process.returncode), lines


def _of(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line.rstrip("\n")


class _Record:
    """Lines for the terminal and a file, which holds them whenever the script may end."""

    def __init__(self, path: Path | None) -> None:
        self._file = path.open("w") if path is not None else None

    def say(self, line: str) -> None:
        print(line, flush=True)
        if self._file is not None:
            print(line, file=self._file, flush=True)


def _cublas() -> list[str]:
    """Directories where libcublas.so may be that the loader does not know: those of CUDA and of Python's packages."""
    places = [Path(place) for place in sys.path if place.endswith("site-packages")]
    ask = "import sys; print('\\n'.join(p for p in sys.path if p.endswith('site-packages')))"
    asked = subprocess.run(["python3", "-c", ask], capture_output=True, text=True).stdout.split()
    found = [d for place in [*places, *map(Path, asked)] for d in sorted(place.glob("nvidia/*/lib"))]
    found += sorted(Path("/usr/local").glob("cuda*/lib64")) + sorted(Path("/usr/local").glob("cuda*/targets/*/lib"))
    return list(dict.fromkeys(str(d) for d in found if any(d.glob("libcublas.so*"))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    builds = commands.add_parser("build")
    builds.add_argument("fast_cu", type=Path)
    builds.add_argument("simplegemm", type=Path)
    builds.add_argument("folder", type=Path)
    builds.add_argument("--jobs", type=int, default=1)
    builds.add_argument("--only", action="append", default=[], metavar="PROGRAM")
    runs = commands.add_parser("run")
    runs.add_argument("folder", type=Path)
    runs.add_argument("--output", type=Path)
    runs.add_argument("--seconds", type=int, default=570, help="for all programs together")
    runs.add_argument("--only", action="append", default=[], metavar="PROGRAM[:MODE]")
    runs.add_argument("--kernels", type=lambda text: [int(k) for k in text.split(",")], default=list(FAST_KERNELS))
    options = parser.parse_args()
    if options.command == "build":
        build([options.fast_cu.resolve(), options.simplegemm.resolve()], options.folder, options.jobs, options.only)
        return 0
    return run(options.folder.resolve(), options.output, options.seconds, options.only, options.kernels)


if __name__ == "__main__":
    sys.exit(main())
