# SPDX-License-Identifier: Apache-2.0
"""docs/results/proof-mutants.txt: what the proof says of every mutant that `porter mutate` has run.

    python scripts/prove_mutants.py pack FOLDER [NAME ...] [--style full-rate|native]
    python FOLDER/prove_mutants.py run FOLDER [--jobs N] [--porter DIRECTORY] > docs/results/proof-mutants.txt

`pack` compiles the ports that the records of docs/results/mutation are of, and puts their PTX with the launches at
which mutants were refused into FOLDER. `run` needs Python, NumPy and Porter's sources, no compiler, so that it can go
to a machine with many cores.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

RECORDS = Path("docs/results/mutation")
PARTS = 16
"""Tasks that the mutants of one kernel are divided into."""
WORST_LAST = ("clean", "review", "unknown", "strict", "error")

Launches = dict[str, list[tuple[Any, dict[str, bytes], dict[int, bytes], list[tuple[int, int, bytes]]]]]
"""By sizes, empty for those of the record: geometry, parameters, tensor maps, and areas of memory by start and size,
of the clusters looked at."""


class Packed(NamedTuple):
    name: str
    ptx: str
    entry: str
    launches: Launches
    rows: list[dict[str, Any]]


def pack(folder: Path, names: list[str], style: str) -> None:
    from porter.cli.context import styled

    folder.mkdir(parents=True, exist_ok=True)
    records = RECORDS if style == "compat" else RECORDS / style.replace("-", "_")
    for path in sorted(records.glob("*.json")):
        if not names or path.stem in names:
            with styled(style):
                packed = _packed(json.loads(path.read_text("utf-8")), path.stem)
            (folder / f"{path.stem}.pickle").write_bytes(pickle.dumps(tuple(packed)))
    shutil.copy2(__file__, folder)


def _packed(record: dict[str, Any], name: str) -> Packed:
    from porter.cli.context import current
    from porter.cli.making import Ports
    from porter.facts.code import Code
    from porter.facts.flow import Flow
    from porter.verify.builder import ToolkitBuilder
    from porter.verify.case import load_case
    from porter.verify.case_program import Program
    from porter.verify.mutation_record import code_digest
    from porter.verify.proving import clusters_looked_at

    kernel, _, variant = record["case"].partition(":")
    case = load_case(Path("corpus") / kernel / (f"{variant}.case.yaml" if variant else "case.yaml"))
    plan, _ = Ports(current()).of_case(case, None)
    assert plan is not None
    program = Program(case, ToolkitBuilder(), plan)
    launches: Launches = {}
    built, _ = program.at(_sizes(record["sizes"]))
    if code_digest(built.module) != record["code"]:
        raise SystemExit(f"{name}: the record is of another port")
    assert built.function is not None
    for at in dict.fromkeys(["", *map(_refused_at, record["rows"])]):
        kernel_there, problem = program.at(_sizes(at or record["sizes"]))
        if kernel_there.ptx == built.ptx:
            flow = Flow(Code(built.module, built.function))
            launches[at] = [
                (
                    one.geometry,
                    dict(one.parameters),
                    dict(one.maps),
                    [(a.start, a.size, a.contents()) for a in one.areas],
                )
                for one in clusters_looked_at(problem, flow)
            ]
    return Packed(name, built.ptx, built.entry, launches, record["rows"])


def _refused_at(row: dict[str, Any]) -> str:
    """Sizes; empty for those of the record, under whatever schedule."""
    at = str(row.get("at", ""))
    return at if "=" in at else ""


def _sizes(text: str) -> dict[str, int | bool]:
    pairs = [pair.split("=") for pair in text.split(", ") if pair]
    return {name: int(value) if value.lstrip("-").isdigit() else value == "True" for name, value in pairs}


# --- run


class Said(NamedTuple):
    """What is said of a mutant: `refused` by runs, and where these refuse only part of it, `seen` what they say."""

    kernel: str
    mutant: str
    refused: bool
    verdict: str
    kinds: tuple[str, ...]
    seen: str
    unknown: str


def part_of(task: tuple[Path, int]) -> list[Said]:
    from porter.ptx.parser import parse_module
    from porter.verify.mutants import mutants

    path, part = task
    packed = Packed(*pickle.loads(path.read_bytes()))
    module = parse_module(packed.ptx)
    rows = {(row["how"], row["opcode"], row["nth"]): row for row in packed.rows}
    found = []
    for number, mutant in enumerate(mutants(module, packed.entry)):
        row = rows.get((mutant.how, mutant.instruction.opcode, mutant.nth))
        if row is not None and number % PARTS == part and _refused_at(row) in packed.launches:
            found.append(_said(packed, module, mutant, row))
    return found


def _said(packed: Packed, module: Any, mutant: Any, row: dict[str, Any]) -> Said:
    from porter.facts.code import Code
    from porter.facts.flow import Flow
    from porter.facts.launched import Area, Launched
    from porter.sync.checked import check
    from porter.verify.mutants import mutated

    changed = mutated(module, [mutant])
    flow = Flow(Code(changed, changed.function(packed.entry)))
    checked = []
    for geometry, parameters, maps, areas in packed.launches[_refused_at(row)]:
        memory = [Area(start, size, partial(bytes, data)) for start, size, data in areas]
        found = check(Launched(flow, geometry, parameters, maps))
        if found.unknown and memory:
            found = check(Launched(flow, geometry, parameters, maps, memory))
        checked.append(found)
    worst = max(checked, key=lambda one: WORST_LAST.index(one.verdict.value))
    refused = any(row.get(key) for key in ("ended", "errors", "value"))
    seen = "to review" if row.get("reviews") else str(row.get("reason") or "nothing")
    kinds = tuple(sorted({f.kind for f in worst.findings}))
    return Said(packed.name, f"{mutant.name}, number {mutant.nth}", refused, worst.verdict.value, kinds, seen,
                worst.unknown)  # fmt: skip


def run(folder: Path, jobs: int) -> Iterator[str]:
    tasks = [(path, part) for path in sorted(folder.glob("*.pickle")) for part in range(PARTS)]
    with ProcessPoolExecutor(jobs) as pool:
        said = [one for part in pool.map(part_of, tasks) for one in part]
    refused = [one for one in said if one.refused]
    yield f"{len({one.kernel for one in said})} ports, {len(said)} mutants; runs refuse {len(refused)}"
    yield f"of these the proof refuses {_count(refused, 'error', 'strict')}"
    for one in refused:
        if one.verdict in ("clean", "review"):
            yield f"MISSED {one.kernel}: {one.mutant}"
    why = Counter(" ".join(one.unknown.split()[:9]) for one in refused if one.verdict == "unknown")
    yield from (f"  {times:5} not understood: {text}" for text, times in why.most_common())
    others = [one for one in said if not one.refused]
    yield f"runs let pass {len(others)}"
    yield f"of these the proof refuses {_count(others, 'error')}, by the letter alone {_count(others, 'strict')}"
    for verdict in ("error", "strict"):
        beyond = Counter((one.mutant.partition(",")[0], "/".join(one.kinds), one.seen) for one in others
                         if one.verdict == verdict)  # fmt: skip
        yield from (f"  {times:5} {verdict}: {mutant}: {kinds}; of runs: {seen}"
                    for (mutant, kinds, seen), times in beyond.most_common())  # fmt: skip


def _count(said: list[Said], *verdicts: str) -> int:
    return sum(one.verdict in verdicts for one in said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("pack", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--style", choices=("compat", "full-rate", "native"), default="compat")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--porter", type=Path, default=Path())
    args = parser.parse_args()
    sys.path.insert(0, str(args.porter.resolve()))
    if args.command == "pack":
        import click

        with click.Context(click.Command("pack")):
            pack(args.folder, args.names, args.style)
        return
    print("python scripts/prove_mutants.py pack FOLDER; python FOLDER/prove_mutants.py run FOLDER")
    for line in run(args.folder, args.jobs):
        print(line, flush=True)


if __name__ == "__main__":
    main()
