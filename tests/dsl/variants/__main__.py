# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.dsl.variants`: the table of what becomes of every variant."""

from __future__ import annotations

import argparse
import fnmatch
import multiprocessing
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from dsl_variant_catalog import VARIANTS
from dsl_variant_run import Outcome, Result, run


def one(name: str) -> Result:
    return run(VARIANTS[name])


def keep(directory: Path, result: Result) -> None:
    """Write original, port and what was found below `directory`."""
    place = directory / result.name
    place.mkdir(parents=True, exist_ok=True)
    for name, text in result.files.items():
        (place / name).write_text(text)
    (place / "outcome.txt").write_text(f"{result.outcome.value}: {result.detail}\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dsl.variants", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="names or axes (fnmatch)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write files of what is not right below DIR")
    parser.add_argument("--keep-all", action="store_true", help="with --keep: of everything")
    parser.add_argument("--quiet", action="store_true", help="only what is not as it should be")
    parser.add_argument("--list", action="store_true", help="only the names")
    options = parser.parse_args()
    names = [
        v.name
        for v in VARIANTS.values()
        if not options.only or any(fnmatch.fnmatch(t, p) for p in options.only for t in (v.name, v.axis))
    ]
    if options.list:
        print(*(f"{VARIANTS[n].axis:12} {n}" for n in names), sep="\n")
        return 0
    counts: Counter[Outcome] = Counter()
    bad = 0
    with multiprocessing.Pool(options.jobs) as pool:
        for result in pool.imap(one, names):
            counts[result.outcome] += 1
            refused = VARIANTS[result.name].refused
            good = result.outcome is (Outcome.REFUSED if refused else Outcome.RIGHT) and refused in result.detail
            bad += not good
            if options.keep and (options.keep_all or not good):
                keep(options.keep, result)
            if not (options.quiet and good):
                print(f"{VARIANTS[result.name].axis:12} {result.name:34} {result.outcome.value:13} {result.why}")
                sys.stdout.flush()
    count = {o: counts[o] for o in Outcome}
    print(
        f"{count[Outcome.RIGHT]} of {sum(counts.values())} port right, {count[Outcome.REFUSED]} refused, "
        f"{count[Outcome.WRONG]} wrong, {count[Outcome.NOT_COMPILING]} not compiling, "
        f"{count[Outcome.INTERNAL]} internal, {count[Outcome.INVALID]} invalid originals"
    )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
