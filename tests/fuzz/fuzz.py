# SPDX-License-Identifier: Apache-2.0
"""Broken inputs for every command that reads sources, in-process.

    PYTHONPATH=tests python tests/fuzz/fuzz.py [--inputs N] [--seed N] [--jobs N] [--only N]

An input is a kernel in CUDA C++, CuTe C++ or CuTe DSL, a PTX module, a case, a launch, a file of rules, one that builds
kernels, a review that is gone on with, or a finished port, and it was damaged: tokens left out or repeated, the end cut
off, two files spliced, bytes that are no UTF-8. A command has to end by itself in time, with one of its exit codes,
without an internal error, and to write nothing where it fails. Input N of a seed is the same on every machine: with
`--only N` it runs alone and its files are kept.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from click.testing import CliRunner
from instructions.samples import HEAD, REGISTERS, instructions, opcodes

from porter.cli.main import main as porter
from porter.diagnostics import PorterError
from porter.ptx.table import FORMS
from porter.verify.case import load_case
from porter.verify.inputs import choose, decoded, generate
from porter.verify.oracle import magnitude, reference
from porter.verify.problem import bind

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 10
"""The longest that a command may compute."""
LONGEST = 120
"""Seconds that it may take on a machine that does other work beside it."""
KERNEL = REPOSITORY / "corpus" / "gemm_tma" / "gemm_tma.cu"
"""What lies beside rules, build files and reviews, and what a damaged port is the port of."""
PTX_OF_LAUNCHES = REPOSITORY / "tests" / "launch" / "kernels.ptx"
BUILDS = REPOSITORY / "tests" / "passes" / "build_files.txt"
SHARES = {
    "cuda": 400, "cute": 20, "python": 130, "ptx": 190, "case": 120, "rules": 40, "build": 40, "launch": 40,
    "review": 15, "pair": 5,
}  # fmt: skip
"""Which kinds of inputs there are, and how many of a thousand are of each. A pair is compiled."""
LONGEST_PORTED = 9_000
"""Bytes of the kernels that are ported, so that thousands of inputs take minutes."""

_TOKEN = re.compile(rb"\w+|\s+|[^\w\s]")
_ODD = (
    b"(", b")", b"{", b"}", b"[", b"]", b'"', b"'", b"\\", b"/*", b"*/", b"//", b"#", b"#define X(", b"#if",
    b"#include ", b'#include "' + b"a" * 5000 + b'"', b'asm volatile("', b'R"(', b"<<<", b"template<", b"%98", b"%%",
    b"%", b"@", b"$", b"99999999999999999999999", b"0x", b"1e999", b"-1", b".inf", b".nan", b"&a", b"*a", b"<<: ",
    b"!!python/name:os ", b"(" * 400, b"{" * 400, b"[" * 400, b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xe2\x80\xa8",
    b"\xf0\x9f\x98\x80", b"\r", b"\x0c", b"9**9**9", b"1<<99999", b"return", b"if", b"for(;;)",
    b"wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16",
)  # fmt: skip

PTX = b"""\
.version 8.0
.target sm_90a
.address_size 64
.visible .entry scale(.param .u64 p, .param .u32 n)
{
    .reg .pred %q; .reg .b32 %r<6>; .reg .b64 %d<4>; .reg .f32 %f<3>;
    .shared .align 16 .b8 tile[512];
    ld.param.u64 %d1, [p];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %q, %r2, %r1;
    @%q bra DONE;
    mul.wide.u32 %d2, %r2, 4;
    add.u64 %d3, %d1, %d2;
    ld.global.f32 %f1, [%d3];
    mul.f32 %f2, %f1, 0f40000000;
    mov.u32 %r3, tile;
    mad.lo.u32 %r4, %r2, 4, %r3;
    st.shared.f32 [%r4], %f2;
    bar.sync 0;
    ld.shared.f32 %f1, [%r4];
    st.global.f32 [%d3], %f1;
DONE:
    ret;
}
"""


TARGETS = ("sm_90a", "sm_100a")
SAMPLES = 6
"""Sample instructions of one module."""


def sample_modules() -> list[bytes]:
    """Modules that hold an instruction of each row of the table; addresses are those of memory that is there."""
    texts = [instructions(row, opcodes(row)[0])[-1] for row in FORMS]
    ready = ["ld.param.u64 %l0, [parameter];"]
    ready += [f"mov.b64 %l{i}, %l0; mov.u32 %w{i}, smem;" for i in range(1, 10)]
    modules = []
    for at in range(0, len(texts), SAMPLES):
        lines = [HEAD.format(version="9.0", target=TARGETS[at // SAMPLES % len(TARGETS)])]
        lines += [".visible .entry k(.param .u64 parameter, .param .u32 n) {", REGISTERS, *ready]
        modules.append("\n".join([*lines, *texts[at : at + SAMPLES], "END: ret;", "}"]).encode())
    return modules


@dataclass(frozen=True)
class Input:
    """One damaged file, and the commands that get it: `{}` stands for its path. `answers` is what is typed."""

    name: str
    data: bytes
    commands: tuple[tuple[str, ...], ...]
    answers: str = ""


@dataclass(frozen=True)
class Defect:
    number: int
    command: str
    what: str


class Hang(BaseException):
    """A command took too long. Nothing that it calls may take this for an error of its own."""


LAUNCHES = (
    b"""version: 1
entry: scale
sizes: {N: 64, F: 3}
constants: {T: N / 2}
launch: {grid: ["ceil_div(N, T)"], block: [T]}
tensors:
  x: {dtype: f32, shape: [N], init: uniform}
  y: {dtype: f32, shape: [8, 8], strides: [8, 1], init: 0}
params: [x, {address_of: y, offset: 0}, {value: 0.5, type: f32}, N]
""",
    b"""version: 1
ptx: kernels.ptx
entry: packed
description: bytes with addresses in them
launch: {grid: [1, 1, 1], block: [64], cluster: [1]}
tensors: {x: {dtype: f32, shape: [66], init: iota}, y: {dtype: f32, shape: [64]}}
params:
  - bytes: "000000000000000002000000000000400000000000000000"
    contains: [{at: 0, address_of: x}, {at: 16, address_of: y}]
""",
    b"""version: 1
entry: gather
launch: {grid: [1], block: [3]}
tensors:
  table:
    dtype: u64
    shape: [3]
    init: 0
    contains: [{at: 0, address_of: x}, {at: 8, address_of: x, byte_offset: 4}]
  x: {dtype: u32, shape: [64], init: iota}
  y: {dtype: u32, shape: [3], init: {file: b.npy}}
params: [table, y]
""",
    b"""version: 1
entry: box
launch: {grid: [1], block: [64], dynamic_smem: 4 * 64}
tensors: {x: {dtype: u32, shape: [8, 16], init: iota}, y: {dtype: u32, shape: [64], init: [1, 2, 3]}}
tensor_maps: {map: {tensor: x, box: [4, 16], dims: [6, 16], strides: [16, 1], offset: 32, swizzle: 64B}}
params: [map, y, 256, {struct: [{value: 2, type: u32}]}]
""",
)


@cache
def build_seeds() -> dict[str, list[bytes]]:
    """Build files of the corpus and of the tests of ports, by name."""
    found: dict[str, list[bytes]] = {}
    for path in sorted(REPOSITORY.glob("corpus/*/*")):
        if path.name in ("CMakeLists.txt", "setup.py", "Makefile"):
            found.setdefault(path.name, []).append(path.read_bytes())
    for block in re.split(rb"^### ", BUILDS.read_bytes(), flags=re.MULTILINE)[1:]:
        name, text = block.split(b"\n--- ", 1)[0].split(b"\n", 1)
        found.setdefault(name.decode().strip(), []).append(text + b"\n")
    return found


@cache
def seeds() -> dict[str, list[bytes]]:
    """The files that are damaged, by kind; those of `port_seeds` are made when they are asked for."""
    corpus = REPOSITORY / "corpus"
    sources = [p for e in ("cu", "cuh") for p in sorted(corpus.glob(f"*/*.{e}"))]
    return {
        "cuda": [p.read_bytes() for p in sources],
        "cute": [p.read_bytes() for p in sources if p.name.startswith("cute_")],
        "python": [p.read_bytes() for p in sorted(corpus.glob("dsl_*/dsl_*.py"))],
        "ptx": [PTX, (REPOSITORY / "tests" / "capture" / "kernels.ptx").read_bytes(), *sample_modules()],
        "case": [p.read_bytes() for p in sorted(corpus.glob("gemm_*/*case.yaml"))],
        "rules": [p.read_bytes() for p in sorted((REPOSITORY / "mappings").glob("*.yaml"))],
        "launch": list(LAUNCHES),
    }


@cache
def port_seeds(kind: str) -> list[bytes]:
    """What Porter itself makes of the kernel: `review` sessions of which some groups are decided, and a port in one
    file, for a `pair`."""
    made = []
    with tempfile.TemporaryDirectory(prefix="porter-fuzz-") as name, chdir(name):
        copy_kernel(Path(name))
        if kind == "pair":
            CliRunner().invoke(porter, ["port", KERNEL.name, "--no-helper", "--no-compile", "-o", "out"])
            return [Path("out", KERNEL.name).read_bytes()]
        for answers in ("n\ny\nq", "n\na"):
            words = ["review", KERNEL.name, "-o", "out", "--session", "s.json", "--no-compile"]
            CliRunner().invoke(porter, words, input=answers + "\n")
            made.append(json.dumps(json.loads(Path("s.json").read_bytes()), indent=1).encode())
            shutil.rmtree("out", ignore_errors=True)
            Path("s.json").unlink()
    return made


def copy_kernel(folder: Path) -> None:
    for header in REPOSITORY.glob("corpus/*/*.cuh"):
        shutil.copy(header, folder)
    shutil.copy(KERNEL, folder)


def damaged(files: Sequence[bytes], chosen: random.Random) -> bytes:
    """One of the files with one to four things wrong with it."""
    data = chosen.choice(files)
    for _ in range(chosen.choice((1, 1, 1, 2, 4))):
        parts = _TOKEN.findall(data) or [b" "]
        at = chosen.randrange(len(parts))
        end = min(len(parts), at + chosen.choice((1, 1, 2, 8, 60)))
        match chosen.randrange(7):
            case 0:
                del parts[at:end]
            case 1:
                parts[at:at] = parts[at:end] * chosen.choice((1, 1, 3))
            case 2:
                del parts[at:]
            case 3:
                other = _TOKEN.findall(chosen.choice(files)) or [b" "]
                parts[at:] = other[chosen.randrange(len(other)) :]
            case 4:
                parts.insert(at, chosen.choice(_ODD))
            case 5:
                parts[at] = chosen.choice(_ODD)
            case _:
                to = chosen.randrange(len(parts))
                parts[at], parts[to] = parts[to], parts[at]
        data = b"".join(parts)
    if chosen.random() < 0.05:
        data = data.decode("utf-8", "replace").encode(chosen.choice(("utf-16", "utf-8-sig", "utf-32")))
    return data


def make_input(number: int, seed: int, files: dict[str, list[bytes]]) -> Input:
    chosen = random.Random(f"{seed} {number}")
    kind = chosen.choices(list(SHARES), list(SHARES.values()))[0]
    limits = ("--budget", "2000")
    if kind == "ptx":
        data = damaged(files[kind], chosen)
        launch = ("--grid", "1", "--block", "32", *limits, "--arg", "f32[32]", "--arg", "32")
        return Input("k.ptx", data, ((chosen.choice(("sim", "sim", "hazards")), "{}", *launch),))
    if kind == "launch":
        data = damaged(files[kind], chosen)
        command = (chosen.choice(("hazards", "hazards", "run")), "--ptx", "kernels.ptx", "--launch", "{}", *limits)
        return Input("launch.yaml", data, (command,))
    if kind == "case":
        return Input("case.yaml", damaged(files[kind], chosen), ())
    if kind == "rules":
        command = chosen.choice((("rules", "list", "--rules", "{}"), ("scan", "BESIDE", "--rules", "{}")))
        return Input("r.yaml", damaged(files[kind], chosen), (command,))
    if kind == "build":
        builds = build_seeds()
        name = chosen.choice(sorted(builds))
        port = ("port", "FOLDER", "--no-compile")
        command = chosen.choice((("scan", "FOLDER"), port, (*port, "--keep-hopper")))
        return Input(name, damaged(builds[name], chosen), (command,))
    if kind == "review":
        command = ("review", KERNEL.name, "-o", "out", "--session", "s.json", "--no-compile")
        return Input("s.json", damaged(port_seeds(kind), chosen), (command,), "y\nn\ns\n?\na\n")
    if kind == "pair":
        command = ("build", "BESIDE", "--port", "{}")
        return Input("port.cu", damaged(port_seeds(kind), chosen), (command,))
    ports = chosen.random() < (0.3 if kind == "cuda" else 0.5)
    pool = [f for f in files[kind] if len(f) < LONGEST_PORTED] if ports else files[kind]
    port = (
        ("plan", "{}"), ("port", "{}", "--no-compile"), ("port", "{}", "--no-compile", "-o", "OUT"),
        ("port", "{}", "--no-compile", "--keep-hopper", "-o", "OUT"),
    )  # fmt: skip
    commands = (chosen.choice(port),) if ports else (("scan", "{}"),)
    return Input("k.py" if kind == "python" else "k.cu", damaged(pool, chosen), commands)


@contextmanager
def in_time() -> Iterator[None]:
    def late(*_: object) -> None:
        raise Hang

    before = {kind: signal.signal(kind, late) for kind in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for kind, handler in before.items():
            signal.signal(kind, handler)


def run_command(command: Sequence[str], path: Path, folder: Path, answers: str = "") -> str | None:
    """What is wrong with how a command takes a file."""
    out = folder / "out"
    places = {"{}": path, "OUT": out, "FOLDER": folder, "BESIDE": folder / KERNEL.name}
    words = [str(places.get(w, w)) for w in command]
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    with chdir(folder):
        result = CliRunner().invoke(porter, ["-v", *words], input=answers)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return "".join(traceback.format_exception(result.exception))
    if "PT0099" in result.output:
        return result.output
    if not 0 <= result.exit_code <= 6:
        return f"exit code {result.exit_code}"
    if result.exit_code == 2 and out.exists():
        return "wrote something and left with code 2"
    after = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.is_relative_to(out)}
    if command[0] == "review" and result.exit_code != 2:
        after[path] = before[path]
    if after != before:
        return f"changed its input, or left {sorted(p.name for p in after.keys() - before.keys())} beside it"
    return None


def run_case(path: Path) -> str | None:
    """The same for a case, as far as nothing is compiled."""
    try:
        with np.errstate(all="ignore"):
            problem = bind(load_case(path))
            for family in choose(None, problem)[:1]:
                inputs = decoded(problem, generate(problem, family, 0))
                reference(problem, inputs)
                magnitude(problem, inputs)
    except PorterError:
        return None
    except Exception:
        return traceback.format_exc()
    return None


def try_input(made: Input, number: int, folder: Path) -> list[Defect]:
    """Run one input in an empty folder."""
    path = folder / made.name
    path.parent.mkdir(parents=True, exist_ok=True)
    if made.name == "case.yaml":
        for kernel in (*REPOSITORY.glob("corpus/gemm_*/*.cu"), *REPOSITORY.glob("corpus/gemm_*/reference.py")):
            (folder / kernel.name).touch()
    elif made.name == "launch.yaml":
        shutil.copy(PTX_OF_LAUNCHES, folder)
    elif made.name not in ("k.ptx", "k.py"):
        copy_kernel(folder)
    path.write_bytes(made.data)
    tries: list[tuple[str, Callable[[], str | None]]] = [
        (" ".join(c), lambda c=c: run_command(c, path, folder, made.answers))
        for c in made.commands  # type: ignore[misc]
    ] or [("verify", lambda: run_case(path))]
    found = []
    for name, call in tries:
        began = time.monotonic()
        what: str | None
        try:
            with in_time():
                what = call()
        except Hang:
            what = f"not done after {time.monotonic() - began:.0f} s\n{traceback.format_exc(limit=-6)}"
        if what is not None:
            found.append(Defect(number, name, what))
    return found


def try_inputs(numbers: Sequence[int], seed: int, compiles: bool = True) -> list[Defect]:
    """Run inputs, those that are compiled only with `compiles`."""
    files = seeds()
    found: list[Defect] = []
    for number in numbers:
        made = make_input(number, seed, files)
        if compiles or made.name != "port.cu":
            with tempfile.TemporaryDirectory(prefix="porter-fuzz-") as name:
                found += try_input(made, number, Path(name))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int)
    asked = parser.parse_args()
    began = time.monotonic()
    if asked.only is not None:
        folder = Path(tempfile.mkdtemp(prefix="porter-fuzz-"))
        print(f"in {folder}")
        found = try_input(make_input(asked.only, asked.seed, seeds()), asked.only, folder)
    else:
        batches = [range(start, min(start + 50, asked.inputs)) for start in range(0, asked.inputs, 50)]
        found = []
        with ProcessPoolExecutor(asked.jobs) as pool:
            for defects in pool.map(try_inputs, batches, [asked.seed] * len(batches)):
                found += defects
                for defect in defects:
                    print(f"--- input {defect.number}: {defect.command}\n{defect.what[-3000:]}", flush=True)
    with suppress(BrokenPipeError):
        if asked.only is not None:
            print("\n".join(d.what for d in found))
        print(f"{asked.inputs if asked.only is None else 1} inputs of seed {asked.seed}, {len(found)} defects, "
              f"{time.monotonic() - began:.0f} s")  # fmt: skip
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
