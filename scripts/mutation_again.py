# SPDX-License-Identifier: Apache-2.0
"""docs/results/mutation: every record whose port is another one today is made again, many kernels at a time.

    python scripts/mutation_again.py --jobs 16 --seconds 570

It goes on where it was stopped: records of today's ports are passed over. Then `python docs/generate.py`. Exit code 1
if records are left, or mutants that neither a run nor reviewed.yaml explains.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from porter.verify.case import Case, cases_of, load_case
from porter.verify.mutation_record import record_path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "results" / "mutation"
STYLES = {
    "compat": FOLDER,
    "full-rate": FOLDER / "full_rate",
    "idiomatic": FOLDER / "idiomatic",
    "native": FOLDER / "native",
}
ASKED = {("native", "gemm_fp8_ue8m0"): ["--block-scale"]}
"""Options of ports with a step that is taken on request."""
SLOWEST_FIRST = ("dsl_", "cute_", "attention", "gemm_")


def kept() -> list[tuple[str, Case]]:
    """Every record that there is, those that take longest first."""
    cases = [load_case(path) for path in cases_of(ROOT / "corpus")]
    found = [(style, case) for style, at in STYLES.items() for case in cases if record_path(at, case).exists()]
    return sorted(found, key=lambda one: [one[1].name.startswith(start) for start in SLOWEST_FIRST], reverse=True)


def again(style: str, case: Case, jobs: int, until: float) -> tuple[bool, str]:
    """Whether the record is of today's port, and what there is to say of it."""
    words = ["mutate", "--trust", "--style", style, *ASKED.get((style, case.name), ()), str(case.path)]
    words += ["--record", str(STYLES[style]), "--jobs", str(jobs)]
    left = until - time.monotonic()
    if left < 1:
        return False, "no time"
    run = subprocess.Popen(
        [sys.executable, "-m", "porter", *words], cwd=ROOT, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, errors = run.communicate(timeout=left)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)  # with the processes that run its mutants
        run.communicate()
        return False, "no time"
    said = [line for line in out.splitlines() if ": unexplained: " in line]
    return run.returncode == 0, "\n".join(said) or errors.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time, of all kernels")
    parser.add_argument("--each", type=int, default=2, help="of these, of one kernel")
    parser.add_argument("--seconds", type=float, default=570)
    parser.add_argument("names", nargs="*", help="of cases; left out: all")
    of = parser.parse_args()
    until = time.monotonic() + of.seconds
    wanted = [(style, case) for style, case in kept() if not of.names or case.name in of.names]
    missing = 0
    with ThreadPoolExecutor(max(1, of.jobs // of.each)) as pool:
        runs = [(style, case, pool.submit(again, style, case, of.each, until)) for style, case in wanted]
        for style, case, run in runs:
            fine, said = run.result()
            missing += not fine
            print(f"{style:9s} {case.name}: {'done' if fine else 'left'}{': ' + said if said else ''}", flush=True)
    print(f"{len(wanted) - missing} of {len(wanted)} records are of today's ports, with every mutant explained")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
