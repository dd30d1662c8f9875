# SPDX-License-Identifier: Apache-2.0
"""docs/results/proofs.txt: what `porter hazards --prove` says of each kernel of the corpus, original and port.

    python scripts/prove_corpus.py [--seconds 60] [NAME ...] > docs/results/proofs.txt
    python scripts/prove_corpus.py --pack FILE [NAME ...]
    python scripts/prove_corpus.py --packed FILE [--seconds 60] [--jobs N] [NAME ...]

Kernels that are not to be compiled on this machine are left out with the reason. With `--pack` what is compiled of raw
CUDA and CuTe C++ goes into a file; with `--packed` it comes from there, so that a machine with many cores, without a
compiler, makes the proofs, each on one core, and gives processor time. Kernels of CuTe DSL are traced for each size,
and cannot be packed.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORPUS = Path("corpus")


def proofs_of(name: str, seconds: float) -> tuple[list[dict[str, Any]], str]:
    """The proofs of a kernel, and what kept the rest from being made."""
    command = [
        sys.executable,
        "-m",
        "porter",
        "hazards",
        "--format",
        "json",
        "--prove",
        "--trust",
        "--seconds",
        str(seconds),
    ]
    done = subprocess.run([*command, str(CORPUS / name)], capture_output=True, text=True, check=False)
    try:
        document = json.loads(done.stdout)
    except json.JSONDecodeError:
        return [], (done.stderr or done.stdout).strip().splitlines()[-1][:120]
    return document["proofs"], "; ".join(d["id"] for d in document["diagnostics"])


def all_turns(proof: dict[str, Any]) -> str:
    """For which numbers of turns a proof holds: by size that has a part in them."""
    found = []
    for count in proof["counts"]:
        if not count["step"]:
            continue
        found.append(f"{count['name']} all" if count["all"] else f"{count['name']} to {count['upto']}: {count['why']}")
    return "; ".join(found) or "its sizes"


# --- without a compiler


class Packer:
    """Builds, and keeps what was built. `made`: PTX, entry and chip by what they were compiled for."""

    def __init__(self, builder: Any) -> None:
        self._builder, self.made = builder, dict[Any, tuple[str, str, str]]()

    def build(self, problem: Any, source: Path, arch: str) -> Any:
        kernel = self._builder.build(problem, source, arch)
        self.made[_compiled_for(problem, arch)] = kernel.ptx, kernel.entry, kernel.arch
        return kernel


@dataclass
class Unpacker:
    """Builds what a `Packer` has built."""

    made: dict[Any, tuple[str, str, str]]

    def build(self, problem: Any, source: Path, arch: str) -> Any:
        from porter.diagnostics import Code, PorterError
        from porter.verify.builder import BuiltKernel, parse_ptx

        found = self.made.get(_compiled_for(problem, arch))
        if found is None:
            raise PorterError(Code.NO_KERNEL, path=source)
        ptx, entry, chip = found
        return BuiltKernel(chip, entry, parse_ptx(ptx, source.name), ptx)


def _compiled_for(problem: Any, arch: str) -> Any:
    return arch, problem.template, tuple(sorted(problem.defines.items()))


def pack(file: Path, names: list[str]) -> None:
    from porter.cli.porting import plan_of_case
    from porter.verify.builder import ToolkitBuilder
    from porter.verify.case import load_case
    from porter.verify.case_program import Program

    packed = {}
    for name in names:
        case = load_case(CORPUS / name / "case.yaml")
        if case.dsl is None:
            plan, packer = plan_of_case(case, None)[0], Packer(ToolkitBuilder())
            for program in (Program(case, packer), Program(case, packer, plan)):
                for sizes in ({}, *case.other_sizes):
                    with suppress(Exception):  # a size that a port does not take
                        program.at(sizes)
            packed[name] = case, plan, packer.made
    file.write_bytes(pickle.dumps(packed))


def packed_proof(task: tuple[Any, Any, Any, float]) -> dict[str, Any]:
    from porter.report.proofs import proof_body
    from porter.verify.case_program import Program

    case, plan, made, seconds = task
    began = time.process_time()
    proof = Program(case, Unpacker(made), plan).prove([{}, *case.other_sizes], seconds)
    return proof_body(proof) | {"seconds": time.process_time() - began}


def prove_packed(file: Path, names: list[str], seconds: float, jobs: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    packed = pickle.loads(file.read_bytes())
    chosen = [name for name in packed if name in names]
    tasks = [(case, plan, made, seconds) for case, port, made in map(packed.get, chosen) for plan in (None, port)]
    with ProcessPoolExecutor(jobs) as pool:
        proofs = pool.map(packed_proof, tasks)
        for name in chosen:
            yield name, [next(proofs), next(proofs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each program")
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--packed", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    names = args.names or sorted(d.name for d in CORPUS.iterdir() if (d / "case.yaml").exists())
    if args.pack is not None:
        pack(args.pack, names)
        return
    source = "--packed FILE " if args.packed is not None else ""
    print(f"python scripts/prove_corpus.py {source}--seconds {args.seconds:g} {' '.join(args.names)}".rstrip())
    seen: Counter[str] = Counter()
    here = ((name, *proofs_of(name, args.seconds)) for name in names)
    there = (
        ((name, proofs, "") for name, proofs in prove_packed(args.packed, names, args.seconds, args.jobs))
        if args.packed is not None
        else ()
    )
    for name, proofs, left in there or here:
        for proof in proofs:
            said = proof["unknown"] if proof["status"] == "unknown" else all_turns(proof)
            if proof["status"] == "hazard":
                wrong = [f for f in proof["findings"] if f["level"] != "review"]
                said = ", ".join(sorted({f["id"] for f in wrong}))
                said += "" if any(f["level"] == "error" for f in wrong) else " by the letter alone (docs/rulings.md)"
            reviews = sorted({f["id"] for f in proof["findings"] if f["level"] == "review"})
            said += f" (to review: {', '.join(reviews)})" if reviews and proof["status"] == "proved" else ""
            program, status = proof["program"], proof["status"]
            print(f"{proof['name']:28} {program:9} {status:8} {proof['seconds']:6.1f} s  {said}", flush=True)
            seen[proof["status"]] += 1
            of_turns = [count for count in proof["counts"] if count["step"]]
            seen["for all numbers of turns"] += (
                status == "proved" and bool(of_turns) and all(c["all"] for c in of_turns)
            )
        if left:
            print(f"{name:28} {left}", flush=True)
    print(", ".join(f"{count} {status}" for status, count in sorted(seen.items())))


if __name__ == "__main__":
    main()
