# SPDX-License-Identifier: Apache-2.0
"""Public Hopper sources through Porter: which are ported, which compile for sm_100a, which are refused and why.

The manifest names files (repository, path, commit, SHA-256) and holds none of their text; clones are the user's own,
one directory for each repository, named `owner+name`.

    python scripts/ecosystem.py run --clones ~/src --include ~/cutlass/include --include ~/cutlass/tools/util/include
    python scripts/ecosystem.py page

`run` adds to `docs/results/ecosystem.json`, file by file, `page` writes `docs/ecosystem.md` from it. A port counts as
compiled if nvcc makes PTX of it that has tcgen05.mma, no wgmma, and no kernel around a mainloop of Hopper, which would
be a trap on sm_100a.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from porter.verify.rows import as_rows

ROOT = Path(__file__).resolve().parents[1]
MANIFEST = ROOT / "scripts" / "ecosystem.yaml"
RESULTS = ROOT / "docs" / "results" / "ecosystem.json"
PAGE = ROOT / "docs" / "ecosystem.md"
NVCC = ("nvcc", "-ptx", "-arch=sm_100a", "-std=c++17", "-w", "--expt-relaxed-constexpr")
_ERROR = re.compile(r"^error\[(PT\d+)\]: (.*)$", re.MULTILINE)
_HOPPER_KERNEL = re.compile(r"\.entry\s+\w*MainloopSm90\w*")
_COMPILER = re.compile(r"error: (.*)")

Entry = Mapping[str, Any]
Outcome = dict[str, Any]


def manifest() -> list[Entry]:
    """Entries with `kind`, `repository`, `commit`, `path` and `sha256`; `include` are directories of the repository
    that its compiler looks into, `unit` is a source that includes a header and asks for its templates."""
    read: list[Entry] = yaml.safe_load(MANIFEST.read_text("utf-8"))["files"]
    return read


def name_of(entry: Entry) -> str:
    return f"{entry['repository']}/{entry['path']}"


def run_one(entry: Entry, clones: Path, include: Sequence[str], compiles: bool) -> Outcome:
    """Port one file, and compile the port."""
    clone = clones / entry["repository"].replace("/", "+")
    source = clone / entry["path"]
    if not source.is_file():
        return {"outcome": "absent"}
    if hashlib.sha256(source.read_bytes()).hexdigest() != entry["sha256"]:
        return {"outcome": "another version"}
    own = [str(clone / d) for d in entry.get("include", ())]
    with tempfile.TemporaryDirectory(prefix="porter-ecosystem-") as folder:
        output = Path(folder, "port")
        if "unit" in entry:
            source = Path(folder, "unit.cu")
            source.write_text(entry["unit"])
        command = [sys.executable, "-m", "porter", "port", "--no-compile", "--no-keep-hopper", "--whole", str(source)]
        command += ["-o", str(output), *(f"-I{d}" for d in own)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            causes = Counter(_ERROR.findall(done.stdout + done.stderr))
            return {"outcome": "refused", "exit": done.returncode, "causes": [f"{c}: {w}" for c, w in causes]}
        port = next(output.rglob(source.name))
        if not compiles:
            return {"outcome": "ported"}
        # what was ported comes in front of what it was ported from
        mirrored = [str(p) for d in own for p in output.rglob(Path(d).name) if p.is_dir()]
        return _compile(port, [*mirrored, *own, *include], Path(folder, "port.ptx"))


def _compile(port: Path, include: Sequence[str], output: Path) -> Outcome:
    command = [*NVCC, *(f"-I{d}" for d in include), "-o", str(output), str(port)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        first = _COMPILER.search(done.stdout + done.stderr)
        return {"outcome": "ported", "compiler": first[1][:200] if first else "no message"}
    return judged(output.read_text("utf-8", "replace"))


def judged(ptx: str) -> Outcome:
    """What PTX of a port is worth."""
    counts = {word: len(re.findall(rf"\b{re.escape(word)}\b", ptx)) for word in ("wgmma", "tcgen05.mma")}
    trapped = len(_HOPPER_KERNEL.findall(ptx))
    good = counts["tcgen05.mma"] and not counts["wgmma"] and not trapped
    return {"outcome": "compiled" if good else "ported", **counts, "kernels of Hopper": trapped}


def page(entries: Sequence[Entry], results: Mapping[str, Outcome]) -> str:
    """The table of all files of the manifest."""
    return "\n".join(_lines(entries, results)) + "\n"


def _lines(entries: Sequence[Entry], results: Mapping[str, Outcome]) -> Iterator[str]:
    counted = Counter(results.get(name_of(e), {}).get("outcome", "not run") for e in entries)
    yield "# Public sources"
    yield ""
    yield "Public Hopper sources that were run through Porter as they are, without an edit by hand. Made from"
    yield "`scripts/ecosystem.yaml` and `docs/results/ecosystem.json` by `scripts/ecosystem.py page`. *compiled*:"
    yield "nvcc makes PTX for sm_100a of the port, with tcgen05.mma, without wgmma, and without a kernel of a mainloop"
    yield "of Hopper."
    yield ""
    yield f"{len(entries)} files: " + ", ".join(f"{n} {what}" for what, n in sorted(counted.items())) + "."
    for kind in dict.fromkeys(e["kind"] for e in entries):
        yield ""
        yield f"## {kind}"
        yield ""
        yield "| repository | file | outcome | |"
        yield "|---|---|---|---|"
        for entry in entries:
            if entry["kind"] == kind:
                result = results.get(name_of(entry), {"outcome": "not run"})
                link = f"{entry['repository']} `{entry['commit'][:10]}`"
                yield f"| {link} | `{entry['path']}` | {result['outcome']} | {_why(result)} |"


def _why(result: Outcome) -> str:
    if result["outcome"] == "compiled":
        return f"{result['tcgen05.mma']} `tcgen05.mma`"
    if "compiler" in result:
        return f"nvcc: {_plain(result['compiler'])}"
    causes = list(dict.fromkeys(result.get("causes", ())))
    more = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
    return _plain(causes[0]) + more if causes else ""


def _plain(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= 160 else f"{text[:160]}…"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    what = parser.add_subparsers(dest="what", required=True)
    run = what.add_parser("run")
    run.add_argument("--clones", type=Path, required=True)
    run.add_argument("--include", action="append", default=[])
    run.add_argument("--only", default="", help="files whose name holds this")
    run.add_argument("--no-compile", action="store_true")
    what.add_parser("page")
    options = parser.parse_args()
    results: dict[str, Outcome] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.is_file() else {}
    if options.what == "run":
        for entry in (e for e in manifest() if options.only in name_of(e)):
            outcome = run_one(entry, options.clones, options.include, not options.no_compile)
            print(name_of(entry), outcome["outcome"], flush=True)
            results[name_of(entry)] = outcome
            RESULTS.write_text(as_rows(dict(sorted(results.items()))), "utf-8")
    PAGE.write_text(page(manifest(), results), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
