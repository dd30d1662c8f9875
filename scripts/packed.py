# SPDX-License-Identifier: Apache-2.0
"""Kernels of the corpus as files of results are made of them: what is compiled here goes into a file, from which
another machine, with many cores and without a compiler, takes it. Of kernels of CuTe DSL, which are traced for each
size, those of their cases are packed."""

from __future__ import annotations

import argparse
import gzip
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

CORPUS = Path("corpus")


def options(
    description: str | None, seconds: str, styles: Sequence[str] = (), more: Mapping[str, int] | None = None
) -> argparse.Namespace:
    """Options of a script that goes over the corpus; `names` are those of its kernels. `seconds`: what they are for.
    `styles`: those of ports, of which some may be asked for. `more` numbers, with what they are if nobody says so."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help=seconds)
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--packed", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    if styles:
        parser.add_argument("--style", dest="styles", action="append", choices=styles)
        parser.add_argument("--ports", type=Path)
    for word, number in (more or {}).items():
        parser.add_argument(word, type=int, default=number)
    parser.add_argument("names", nargs="*")
    found = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    chosen = (found.styles or ()) if styles else ()
    words = [*(["--packed FILE"] if found.packed else []), f"--seconds {found.seconds:g}"]
    words += ["--ports FOLDER"] if styles and found.ports else []
    found.words = " ".join([*words, *(f"--style {style}" for style in chosen), *found.names])
    found.styles = chosen or styles
    found.names = found.names or sorted(d.name for d in CORPUS.iterdir() if (d / "case.yaml").exists())
    return found


def asked(name: str, *words: str) -> tuple[dict[str, Any], str]:
    """The document of a command on a kernel, and what kept it from being made."""
    command = [sys.executable, "-m", "porter", *words, "--format", "json", "--trust", str(CORPUS / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {}, (done.stderr or done.stdout).strip().splitlines()[-1][:120]
    return document, "; ".join(d["id"] for d in document["diagnostics"])


Reach = Literal["turns", "blocks"]
REACH: tuple[Reach, ...] = ("turns", "blocks")
_LONG = 9216
"""Bytes of K of more than 64 turns, each of which takes 128."""


def further(problem: Any, reach: Reach) -> Iterator[tuple[str, dict[str, Any]]]:
    """Sizes of a case at which loops make more than 64 turns, or a grid has more than two blocks in a row, where the
    name of a size says so much: that name and all that is changed."""
    of_elements = next(iter(problem.tensors.values())).dtype.bits.itemsize
    for name, number in problem.sizes.items():
        if isinstance(number, int) and (name == "K") is (reach == "turns"):
            changed = _LONG // of_elements if reach == "turns" else 3 * number
            yield name, {**problem.case.mutate_sizes, name: changed}


Compiled = tuple[str, str, str, Any]
"""PTX, entry, chip, and the launch of its own host code if there is one."""


class Packer:
    """Builds, and keeps what was built, by what it was compiled for."""

    def __init__(self, builder: Any) -> None:
        self._builder, self.made = builder, dict[Any, Compiled]()

    def build(self, problem: Any, source: Path, arch: str) -> Any:
        kernel = self._builder.build(problem, source, arch)
        self.made[compiled_for(problem, arch)] = kernel.ptx, kernel.entry, kernel.arch, kernel.recorded
        return kernel


@dataclass
class Unpacker:
    """Builds what a `Packer` has built."""

    made: dict[Any, Compiled]

    def build(self, problem: Any, source: Path, arch: str) -> Any:
        from porter.diagnostics import Code, PorterError
        from porter.verify.builder import BuiltKernel, parse_ptx

        found = self.made.get(compiled_for(problem, arch))
        if found is None:
            raise PorterError(Code.NO_KERNEL, path=source)
        ptx, entry, chip, recorded = found
        return BuiltKernel(chip, entry, parse_ptx(ptx, source.name), ptx, recorded=recorded)


def compiled_for(problem: Any, arch: str) -> Any:
    sizes = () if problem.case.dsl is None else tuple(sorted(problem.sizes.items()))
    return arch, problem.template, tuple(sorted(problem.defines.items())), sizes


def pack(file: Path, names: Sequence[str], styles: Sequence[str] = ("compat",)) -> None:
    """Kernels with their ports: (case, port, what was built) by name, style and case."""
    import click

    from porter.cli.context import Session, install, styled
    from porter.cli.making import Ports
    from porter.diagnostics import PorterError
    from porter.verify.builder import ToolkitBuilder
    from porter.verify.case import load_case
    from porter.verify.case_program import Program

    packed = {}
    with click.Context(click.Command("pack")):
        session = Session(verbosity=-2)
        install(session)
        ports = {style: Ports(replace(session, style=style), asks=True) for style in styles}
        for name, style in product(names, styles):
            of_dsl = (CORPUS / name / f"{name}.py").is_file()
            for path in sorted((CORPUS / name).glob("*case.yaml" if of_dsl else "case.yaml")):
                case = load_case(path)
                try:
                    with styled(style):
                        plan, packer = ports[style].of_case(case)[0], Packer(ToolkitBuilder())
                    programs = Program(case, packer), Program(case, packer, plan)
                    problem, *_ = [program.at({})[1] for program in programs]
                except PorterError as error:
                    print(name, style, error.diagnostic.message, file=sys.stderr)
                    continue
                larger = [sizes for reach in REACH for _, sizes in further(problem, reach)]
                for program, sizes in product(programs, [*case.other_sizes, case.mutate_sizes, *larger]):
                    with suppress(Exception):  # a size that a port does not take
                        program.at(sizes)
                packed[name, style, path.name] = case, plan, packer.made
                file.write_bytes(gzip.compress(pickle.dumps(packed)))


def unpacked(file: Path, names: Sequence[str]) -> list[tuple[str, str, tuple[Any, Any, Any]]]:
    """Name, style, and what was packed of these kernels."""
    packed = pickle.loads(gzip.decompress(file.read_bytes()))
    return [(*key[:2], value) for key, value in packed.items() if key[0] in names]
