# SPDX-License-Identifier: Apache-2.0
"""How many guesses a draft of a case has on public kernels that nobody wrote for it.

The files are those of `scripts/ecosystem.yaml` that have kernels, as clones have them. Nothing is compiled or run: the
draft is of the file alone, and what the launch of a program would tell is not known.

    python scripts/drafts.py run --clones ~/src
    python scripts/drafts.py page

`run` writes `docs/results/drafts.json`, `page` the table of `docs/drafts.md`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ecosystem import ROOT, can_be_verified, manifest, name_of

from porter.diagnostics import PorterError
from porter.lang.sources import load_sources
from porter.model.program import build_program
from porter.rules.load import load_rules
from porter.rules.recognize import vocabulary
from porter.scan.draft.cuda import CudaDraft
from porter.scan.draft.draft import UNKNOWN
from porter.verify.rows import as_rows

RESULTS = ROOT / "docs" / "results" / "drafts.json"
PAGE = ROOT / "docs" / "drafts.md"
MOST_GUESSES = 3
KINDS = ("wgmma", "CuTe")
_TABLE = re.compile(r"(<!-- drafts -->\n).*?(<!-- end -->\n)", re.DOTALL)


def drafts(source: Path) -> Iterator[dict[str, Any]]:
    """For each kernel with tensor core instructions its guesses, and how many of them are objects handed to it."""
    program = build_program(load_sources(source, ()), vocabulary(load_rules(())))
    ids = program.reaching(s.function for s in program.statements)
    kernels = {k.name: k for k in reversed(program.kernels) if id(k) in ids}
    for name, kernel in sorted(kernels.items()):
        guesses = CudaDraft(program, kernel).make().guesses
        yield {"kernel": name, "guesses": len(guesses), "objects": sum(UNKNOWN in why for why in guesses.values())}


def run(clones: Path) -> None:
    rows = []
    for entry in manifest():
        source = clones / entry["repository"].replace("/", "+") / entry["path"]
        if entry["kind"] not in KINDS or not source.is_file() or not re.search(rb"__global__", source.read_bytes()):
            continue
        if hashlib.sha256(source.read_bytes()).hexdigest() != entry["sha256"]:
            print(f"another version: {source}")
            continue
        head = {"file": name_of(entry), "kind": entry["kind"], "program": can_be_verified(entry)}
        print(source, flush=True)
        try:
            rows += [{**head, **found} for found in drafts(source)]
        except PorterError as error:
            print(f"{source}: {error.diagnostic.message}")
        RESULTS.write_text(as_rows({"version": 1, "rows": rows}), "utf-8")


def page() -> None:
    rows = json.loads(RESULTS.read_text("utf-8"))["rows"]
    head = "| file | kernel | guesses | of them objects |\n|---|---|--:|--:|\n"
    lines = [f"| {r['file']} | `{r['kernel']}` | {r['guesses']} | {r['objects'] or ''} |\n" for r in rows]
    few = Counter((r["kind"], r["guesses"] <= MOST_GUESSES) for r in rows)
    totals = [f"{few[kind, True]} of {few[kind, True] + few[kind, False]} kernels ({kind})" for kind in KINDS]
    told = f"At most {MOST_GUESSES} guesses: {', '.join(totals)}.\n\n"
    text = PAGE.read_text("utf-8")
    PAGE.write_text(_TABLE.sub(lambda m: m[1] + told + head + "".join(lines) + m[2], text), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("--clones", type=Path, help="A directory with a clone of each repository, named owner+name.")
    given = parser.parse_args()
    if given.what == "run":
        if given.clones is None:
            parser.error("run needs --clones")
        run(given.clones)
    page()


if __name__ == "__main__":
    main()
