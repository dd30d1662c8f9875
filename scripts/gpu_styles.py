# SPDX-License-Identifier: Apache-2.0
"""Ports of one style on a Hopper GPU, lowered, in both modes: every size and input family of every case, the bits of
the originals, which run natively. What is compiled here goes into a file, so that the machine with the GPU needs no
compiler:

    python scripts/gpu_styles.py --style idiomatic --pack ports.pickle cute_gemm_ws dsl_gemm
    python scripts/gpu_styles.py --packed ports.pickle > docs/results/h200-idiomatic.txt
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import porter.verify.gpu.backend
from porter.build.port_plan import PortPlan, materialize
from porter.build.ptxas import assemble
from porter.diagnostics import Code, PorterError
from porter.verify.builder import ORIGINAL_ARCH, PORT_ARCH, BuiltKernel, ToolkitBuilder, parse_ptx
from porter.verify.case import Case, cases_of, load_case
from porter.verify.gpu.backend import GpuBackend
from porter.verify.gpu.emulation import Emulated, Lowerer
from porter.verify.gpu.process import GpuProcess
from porter.verify.problem import Problem, bind
from porter.verify.runner import VerifyOptions, verify
from porter.verify.settings import GpuOptions

CORPUS = Path("corpus")
MODES = ("deferred", "eager")


@dataclass(frozen=True)
class Compiled:
    """A kernel without what cannot be pickled, and what runs it on Hopper: its own cubin, or that of its lowered
    module."""

    kernel: BuiltKernel
    cubin: bytes
    lowered: Emulated | None


Key = tuple[str, str]


def key_of(problem: Problem, arch: str) -> Key:
    return json.dumps(dict(problem.sizes), sort_keys=True, default=str), arch


class Packer(ToolkitBuilder):
    """Builds, and keeps what was built with what runs it."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[Key, Compiled] = {}

    def build(self, problem: Problem, source: Path, arch: str) -> BuiltKernel:
        kernel = super().build(problem, source, arch)
        bare = replace(kernel, module=None, assembled=None, resources=None)
        name = kernel.entry[:80]
        if arch == PORT_ARCH:
            lowered = Lowerer(self.toolkit).emulated(kernel.module, name)
            made = Compiled(bare, b"", lowered)
        else:
            made = Compiled(bare, assemble(self.toolkit, kernel.ptx, kernel.arch, name=name).cubin, None)
        self.made[key_of(problem, arch)] = made
        return kernel


class Unpacker:
    """Builds what a `Packer` has built, and gives a backend what it has assembled, in place of a compiler."""

    def __init__(self, made: dict[Key, Compiled]) -> None:
        self._made = made
        self._built: list[tuple[BuiltKernel, Compiled]] = []

    def build(self, problem: Problem, source: Path, arch: str) -> BuiltKernel:
        found = self._made.get(key_of(problem, arch))
        if found is None:
            raise PorterError(Code.NO_KERNEL, path=source)
        kernel = replace(found.kernel, module=parse_ptx(found.kernel.ptx, source.name))
        self._built.append((kernel, found))
        return kernel

    def assemble(self, toolkit: Any, ptx: str, arch: str, *, name: str) -> Any:
        return SimpleNamespace(cubin=next(found.cubin for kernel, found in self._built if kernel.ptx == ptx))

    def emulated(self, module: Any, name: str) -> Emulated:
        return next(found.lowered for kernel, found in self._built if kernel.module is module and found.lowered)


Packed = tuple[str, Case, PortPlan, dict[Key, Compiled]]


def pack(file: Path, style: str, tiles: str, names: list[str]) -> None:
    import click

    from porter.cli.context import Session, install, styled
    from porter.cli.making import Ports

    packed: list[Packed] = []
    with click.Context(click.Command("pack")):
        session = Session(verbosity=-2, tiles=tiles)
        install(session)
        ports = Ports(replace(session, style=style), asks=True)
        for path in (p for name in names for p in cases_of(CORPUS / name)):
            case, packer = load_case(path), Packer()
            with styled(style):
                plan, said = ports.of_case(case)
            if plan is None or any(d.code in (Code.IDIOM_LEFT, Code.IDIOM_UNPROVED) for d in said):
                print(f"{path.parent.name}: not {style}: {'; '.join(d.message for d in said)}", file=sys.stderr)
                continue
            for sizes in ({}, *case.other_sizes):
                try:
                    problem = bind(case, sizes)
                    packer.build(problem, case.kernel, ORIGINAL_ARCH)
                    packer.build(problem, materialize(plan, case.kernel), PORT_ARCH)
                except PorterError as error:
                    print(f"{path}: {sizes}: {error}", file=sys.stderr)
            packed.append((f"{path.parent.name}/{path.name}", case, plan, packer.made))
            file.write_bytes(pickle.dumps((f"{style}, tiles {tiles}", packed)))


def on_gpu(job: tuple[str, Packed]) -> tuple[str, list[str], bool]:
    """The row of a case in one mode, what is said of rows that are not clean, and whether all are."""
    mode, (name, case, plan, made) = job
    builder = Unpacker(made)
    backend = GpuBackend(None, GpuProcess(), GpuOptions(seconds=60, mode=mode), emulate=True)  # type: ignore[arg-type]
    backend._lowerer = builder  # type: ignore[assignment]
    porter.verify.gpu.backend.assemble = builder.assemble  # type: ignore[assignment]
    try:
        rows = verify(case, plan, builder, backend, VerifyOptions(None, ({}, *case.other_sizes))).rows
    except PorterError as error:
        return f"{mode:9} {name:44} {error}", [], False
    finally:
        backend.gpu.close()
    counts = Counter(row.verdict.value for row in rows)
    bits = sum(bool(row.between) and all(c.ok for c in row.between) for row in rows)
    where = sorted({run.backend for row in rows for run in row.runs})
    bad = [
        f"    {dict(r.sizes)} {r.family}: {'; '.join(map(str, r.diagnostics))}" for r in rows if r.verdict != "clean"
    ]
    said = ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items()))
    return (
        f"{mode:9} {name:44} {said}; the original's bits in {bits} of {len(rows)} ({'; '.join(where)})",
        bad,
        (set(counts) <= {"clean", "review"} and bits == len(rows)),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--style", default="idiomatic")
    parser.add_argument("--tiles", default="taken")
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--packed", type=Path)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.pack:
        pack(options.pack, options.style, options.tiles, options.names)
        return 0
    style, packed = pickle.loads(options.packed.read_bytes())
    print(f"python scripts/gpu_styles.py --packed FILE (ports of the style {style})")
    good = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        jobs = [(mode, one) for one in packed for mode in MODES]
        for row, said, holds in pool.map(on_gpu, jobs):
            print(row, *said, sep="\n", flush=True)
            good += holds
    print(f"{good} of {len(jobs)} hold")
    return 0 if good == len(jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
