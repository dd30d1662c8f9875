# SPDX-License-Identifier: Apache-2.0
"""docs/results/proofs.txt: what `porter hazards --prove` says of each kernel of the corpus, original and port.

    python scripts/prove_corpus.py [--seconds 60] [NAME ...] > docs/results/proofs.txt

Kernels that are not to be compiled on this machine are left out with the reason.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each program")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    names = args.names or sorted(d.name for d in CORPUS.iterdir() if (d / "case.yaml").exists())
    print(f"python scripts/prove_corpus.py --seconds {args.seconds:g} {' '.join(args.names)}".rstrip())
    seen: Counter[str] = Counter()
    for name in names:
        proofs, left = proofs_of(name, args.seconds)
        for proof in proofs:
            said = proof["unknown"] if proof["status"] == "unknown" else all_turns(proof)
            if proof["status"] == "hazard":
                said = ", ".join(sorted({f["id"] for f in proof["findings"] if f["level"] != "review"}))
            reviews = sorted({f["id"] for f in proof["findings"] if f["level"] == "review"})
            said += f" (to review: {', '.join(reviews)})" if reviews and proof["status"] == "proved" else ""
            program, status = proof["program"], proof["status"]
            print(f"{proof['name']:28} {program:9} {status:8} {proof['seconds']:6.1f} s  {said}", flush=True)
            seen[proof["status"]] += 1
        if left:
            print(f"{name:28} {left}", flush=True)
    print(", ".join(f"{count} {status}" for status, count in sorted(seen.items())))


if __name__ == "__main__":
    main()
