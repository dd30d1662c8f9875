# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.variants`: the table of what becomes of every variant."""

from __future__ import annotations

import argparse
import fnmatch
import multiprocessing
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from variant_catalog import VARIANTS
from variant_run import Outcome, Result, run
from variant_types import Variant


def one(request: tuple[str, bool]) -> Result:
    name, checking = request
    return run(VARIANTS[name], checking=checking)


def keep(directory: Path, variant: Variant, result: Result) -> None:
    """Write original, port and what was found below `directory`."""
    place = directory / variant.name
    for below, files in (("", variant.files), ("port", result.ported)):
        for name, text in files.items():
            path = place / below / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (place / "outcome.txt").write_text(f"{result.outcome.value}: {result.why}\n{result.detail}\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.variants", description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="names or axes (fnmatch)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write sources of what is not right below DIR")
    parser.add_argument("--keep-all", action="store_true", help="with --keep: of everything")
    parser.add_argument("--no-checking", action="store_true", help="do not look for hazards")
    parser.add_argument("--quiet", action="store_true", help="only what is not right")
    parser.add_argument("--times", action="store_true", help="show the seconds of each stage")
    parser.add_argument("--ported", type=Path, metavar="FILE", help="write the names of those that port right")
    parser.add_argument("--warnings", action="store_true", help="show what ptxas says of the originals")
    parser.add_argument("--list", action="store_true", help="only the names")
    options = parser.parse_args()
    names = [
        v.name
        for v in VARIANTS.values()
        if not options.only or any(fnmatch.fnmatch(t, p) for p in options.only for t in (v.name, v.axis))
    ]
    if options.list:
        print(*(f"{VARIANTS[n].axis:16} {n}" for n in names), sep="\n")
        return 0
    counts: Counter[Outcome] = Counter()
    right = []
    with multiprocessing.Pool(options.jobs) as pool:
        for result in pool.imap(one, [(n, not options.no_checking) for n in names]):
            counts[result.outcome] += 1
            if result.outcome is Outcome.RIGHT:
                right.append(result.name)
            if options.keep and (options.keep_all or result.outcome not in (Outcome.RIGHT, Outcome.REFUSED)):
                keep(options.keep, VARIANTS[result.name], result)
            if options.quiet and result.outcome is Outcome.RIGHT:
                continue
            times = " ".join(f"{k} {v:.1f}" for k, v in result.times.items()) if options.times else ""
            print(f"{VARIANTS[result.name].axis:12} {result.name:36} {result.outcome.value:13} {result.why} {times}")
            for warning in result.warnings if options.warnings else ():
                print(f"{'':12} original: {warning}")
            sys.stdout.flush()
    print("; ".join(f"{outcome.value} {counts[outcome]}" for outcome in Outcome if counts[outcome]))
    judged = sum(counts.values()) - counts[Outcome.INVALID]
    print(f"{counts[Outcome.RIGHT]} of {judged} port right ({counts[Outcome.RIGHT] / max(judged, 1):.1%})")
    if options.ported:
        options.ported.write_text("".join(f"{n}\n" for n in right))
    return int(any(counts[o] for o in Outcome if o not in (Outcome.RIGHT, Outcome.REFUSED)))


if __name__ == "__main__":
    sys.exit(main())
