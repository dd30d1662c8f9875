# SPDX-License-Identifier: Apache-2.0
"""docs/results/proofs.txt: what `porter hazards --prove` says of each kernel of the corpus, original and port.

    python scripts/prove_corpus.py [--seconds 60] [NAME ...] > docs/results/proofs.txt
    python scripts/prove_corpus.py --pack FILE [NAME ...]
    python scripts/prove_corpus.py --packed FILE [--seconds 60] [--jobs N] [NAME ...]

Kernels that are not to be compiled on this machine are left out with the reason. With `--pack` what is compiled of raw
CUDA and CuTe C++ goes into a file; with `--packed` it comes from there, so that a machine with many cores, without a
compiler, makes the proofs, each on one core, and gives processor time. Of CuTe DSL, which is traced for each size,
the sizes of the case are looked at there and no others.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from packed import CORPUS, Unpacker, asked, options, pack, unpacked


def proofs_of(name: str, seconds: float) -> tuple[list[dict[str, Any]], str]:
    """The proofs of a kernel, and what kept the rest from being made. What is compiled for its sizes has a case with
    sizes that are known at run time only, which is for proofs alone."""
    proofs, left = [], []
    for case in (name, *(f"{name}/{p.name}" for p in CORPUS.glob(f"{name}/dynamic.yaml"))):
        document, why = asked(case, "hazards", "--prove", "--style", "compat", "--seconds", str(seconds))
        proofs += document.get("proofs", [])
        left += [why] if why else []
    return proofs, "; ".join(left)


def all_turns(proof: dict[str, Any]) -> str:
    """For which numbers of turns a proof holds: by size that has a part in them."""
    found = []
    for count in proof["counts"]:
        if not count["step"]:
            continue
        at = f" at {count['at']}" if count["at"] else ""
        upto = "all" if count["all"] else f"to {count['upto']}"
        found.append(f"{count['name']} {upto}{at}" + ("" if count["all"] else f": {count['why']}"))
    for pair in proof["together"]:
        upto = "" if pair["all"] else f" to {pair['upto']}"
        found.append(f"{' and '.join(pair['names'])} together{upto}")
    return "; ".join(found) or f"its sizes{': ' if (numbers := compiled_in(proof)) else ''}{numbers}"


def compiled_in(proof: dict[str, Any]) -> str:
    """The sizes that are numbers of the compiled program, if there are some."""
    from porter.verify.proving import OF_PROGRAM

    names = [count["name"] for count in proof["counts"] if count["why"] == OF_PROGRAM]
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} compiled in" if names else ""


def holds_for(proof: dict[str, Any]) -> str:
    """What a proof holds for, in a word: all turns; what the program can be launched with at all, as its sizes are
    compiled in; sizes up to some; those of the case."""
    turns = [count for count in proof["counts"] if count["step"]]
    if proof["status"] != "proved":
        return ""
    if not turns:
        return "compiled in" if compiled_in(proof) else "its sizes"
    return "all" if all(count["all"] for count in turns) else "up to"


def packed_proof(task: tuple[Any, Any, Any, float]) -> dict[str, Any]:
    from porter.report.proofs import proof_body
    from porter.verify.case_program import Program

    case, plan, made, seconds = task
    began = time.process_time()
    proof = Program(case, Unpacker(made), plan).prove([{}, *case.other_sizes], seconds)
    return proof_body(proof) | {"seconds": time.process_time() - began}


def prove_packed(file: Path, names: list[str], seconds: float, jobs: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    chosen = unpacked(file, names)
    tasks = [(case, plan, made, seconds) for *_, (case, port, made) in chosen for plan in (None, port)]
    with ProcessPoolExecutor(jobs) as pool:
        proofs = pool.map(packed_proof, tasks)
        for name, *_ in chosen:
            yield name, [next(proofs), next(proofs)]


def main() -> None:
    args = options(__doc__, "for each program")
    names = args.names
    if args.pack is not None:
        pack(args.pack, names)
        return
    print(f"python scripts/prove_corpus.py {args.words}")
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
            program, status, holds = proof["program"], proof["status"], holds_for(proof)
            row = f"{proof['name']:28} {program:9} {status:8} {holds:12} {proof['seconds']:6.1f} s  {said}"
            print(row, flush=True)
            seen[holds or status] += 1
        if left:
            print(f"{name:28} {left}", flush=True)
    print(", ".join(f"{count} {holds}" for holds, count in sorted(seen.items())))


if __name__ == "__main__":
    main()
