# SPDX-License-Identifier: Apache-2.0
"""docs/results/equality.txt: what `porter equal` says of each kernel of the corpus, by the style of its port.

    python scripts/equal_corpus.py [--seconds 60] [--style STYLE] [NAME ...] > docs/results/equality.txt
    python scripts/equal_corpus.py --pack FILE [--style STYLE] [NAME ...]
    python scripts/equal_corpus.py --ports FOLDER [--seconds 60]
    python scripts/equal_corpus.py --packed FILE [--seconds 60] [--jobs N] [NAME ...]

With `--pack` what is compiled of raw CUDA and CuTe C++ goes into a file; with `--packed` it comes from there, and is
compared by so many processes; the time is processor time then. With `--ports` the ports are those of a folder, which
begin with the name of their kernel; one may lack what some of its cases call.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from packed import CORPUS, Unpacker, asked, options, pack, unpacked

STYLES = ("compat", "full-rate", "idiomatic", "native")
Row = tuple[str, str, list[dict[str, Any]], str]
"""Name, style, comparisons, and what kept others from being made."""


def compared(names: list[str], styles: Sequence[str], seconds: float) -> Iterator[Row]:
    for name in names:
        for style in styles:
            document, left = asked(name, "equal", "--style", style, "--seconds", str(seconds))
            yield name, style, document.get("cases", []), left


def by_hand(folder: Path, names: list[str], seconds: float) -> Iterator[Row]:
    for port in sorted(folder.iterdir()):
        name = max((n for n in names if port.name.startswith(n)), key=len, default="")
        is_kernels = (CORPUS / name / f"{name}{port.suffix}").is_file()
        for case in sorted((CORPUS / name).glob("*case.yaml")) if is_kernels else ():
            words = ("equal", "--port", str(port), "--seconds", str(seconds))
            document, left = asked(str(case.relative_to(CORPUS)), *words)
            yield port.stem, "by hand", document.get("cases", []), left


def packed_comparison(task: tuple[str, str, tuple[Any, Any, Any], float]) -> Row:
    from porter.diagnostics import PorterError
    from porter.report.equality import body_of
    from porter.verify.budget import Budget
    from porter.verify.proved import proofs_of

    name, style, (case, plan, made), seconds = task
    if plan is None:
        return name, style, [], "no port"
    gc.set_threshold(100_000, 20, 20)  # as the command line has it
    began = time.process_time()
    try:
        chosen = [{}, *case.other_sizes]
        found = proofs_of(case, plan, Unpacker(made), chosen, seconds / 3, "both", Budget.of_work(seconds)).equality
    except PorterError as error:
        return name, style, [], error.diagnostic.code.id
    return name, style, [body_of(found) | {"seconds": time.process_time() - began}] if found is not None else [], ""


def said_of(one: dict[str, Any]) -> str:
    if one["status"] == "equal":
        counts = (f"{c['name']} all" if c["all"] else f"{c['name']}: {c['why']}" for c in one["counts"])
        return f"{'; '.join(one['sizes'])} ({', '.join(counts) or 'no turns'})"
    places = ", ".join(f"{p['program']} {p['place'].split(' at ')[0]}" for p in one["places"])
    return f"{one['why']} ({one['at']}{': ' if places else ''}{places})"


def main() -> None:
    args = options(__doc__, "for each kernel and style", STYLES)
    if args.pack is not None:
        pack(args.pack, args.names, args.styles)
        return
    print(f"python scripts/equal_corpus.py {args.words}")
    seen: Counter[tuple[str, str]] = Counter()
    took: list[float] = []
    with ProcessPoolExecutor(args.jobs) as pool:
        tasks = [(*one, args.seconds) for one in unpacked(args.packed, args.names)] if args.packed else []
        rows = pool.map(packed_comparison, tasks) if tasks else \
            by_hand(args.ports, args.names, args.seconds) if args.ports else \
            compared(args.names, args.styles, args.seconds)  # fmt: skip
        for name, style, cases, left in rows:
            for one in cases:
                print(f"{name:28} {style:9} {one['status']:8} {one['seconds']:6.1f} s  {said_of(one)}", flush=True)
                seen[style, one["status"]] += 1
                if any(count["all"] for count in one["counts"]):
                    seen[style, "for all of a size"] += 1
                took.append(one["seconds"])
            if left:
                print(f"{name:28} {style:9} {left}", flush=True)
    for style in dict.fromkeys(style for style, _ in seen):
        of_style = ((status, count) for (s, status), count in sorted(seen.items()) if s == style)
        print(f"{style}: {', '.join(f'{count} {status}' for status, count in of_style)}")
    if took:
        print(f"{sorted(took)[len(took) // 2]:.1f} s in the median, {max(took):.1f} s at most")


if __name__ == "__main__":
    main()
