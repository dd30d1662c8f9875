# SPDX-License-Identifier: Apache-2.0
"""Public Hopper sources through Porter: which are ported, which compile for sm_100a, which are refused and why.

The manifest names files (repository, path, commit, SHA-256) and holds none of their text; clones are the user's own,
one directory for each repository, named `owner+name`.

    python scripts/ecosystem.py run --clones ~/src --include ~/cutlass/include --include ~/cutlass/tools/util/include
    python scripts/ecosystem.py page

    python scripts/ecosystem.py verify --clones ~/src --include ~/cutlass/include --include ~/cutlass/tools/util/include

    python scripts/ecosystem.py equal --clones ~/src --include ... --into docs/results/equality-ecosystem.txt

`run` and `verify` add to `docs/results/ecosystem.json`, file by file, `page` writes `docs/ecosystem.md` from it. A port
counts as compiled if nvcc makes PTX of it that has tcgen05.mma, no wgmma, and no kernel around a mainloop of Hopper,
which would be a trap on sm_100a. It counts as verified if original and port, built as whole programs and run in the
simulator, leave the same bits in memory after each launch.
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

from porter.build.tree import own_first
from porter.verify.rows import as_rows

ROOT = Path(__file__).resolve().parents[1]
MANIFEST = ROOT / "scripts" / "ecosystem.yaml"
RESULTS = ROOT / "docs" / "results" / "ecosystem.json"
PAGE = ROOT / "docs" / "ecosystem.md"
PROGRAMS = (ROOT / "scripts" / "ecosystem_programs", ROOT / "tests" / "program")
"""Where headers of `unit` and `program` are."""
NVCC = ("nvcc", "-ptx", "-w")
FLAGS = ("--expt-relaxed-constexpr", "-DNDEBUG")
STANDARD = "-std=c++17"
_ERROR = re.compile(r"^error\[(PT\d+)\]: (.*)$", re.MULTILINE)
_HOPPER_KERNEL = re.compile(r"\.entry\s+\w*MainloopSm90\w*")
_COMPILER = re.compile(r"error: (.*)")
_NUMBERS = re.compile(r"\[with kNeeded=(\d+), kThere=(\d+)\]")
_FOLDERS = re.compile(r"/(?:[\w.+-]+/)+")

Entry = Mapping[str, Any]
Outcome = dict[str, Any]
NOT_RUN: Outcome = {"outcome": "not run"}
SAME = "same bits"
STYLES = ("compat", "full-rate")
AS_ORIGINAL = "as the original"
"""Equal in the schedule that was executed; the original has hazards, and the port of these and no other."""
STATUS = ("equal", AS_ORIGINAL, "unknown", "differs")
_NAME, _HEAD, _STATUS = 60, 71, 86
"""Where the name, the style and the status of a row end."""


def manifest() -> list[Entry]:
    """Entries with `kind`, `repository`, `commit`, `path` and `sha256`; `include` are directories of the repository
    that its compiler looks into, `flags` the compiler's options, `unit` is a source that includes the file and asks for
    its templates or calls them, `program` another one that runs the kernel, `options` those of `porter port`. With
    `program` or `arguments` the entry can be verified."""
    read: list[Entry] = yaml.safe_load(MANIFEST.read_text("utf-8"))["files"]
    return read


def name_of(entry: Entry) -> str:
    return f"{entry['repository']}/{entry['path']}"


def run_one(entry: Entry, clones: Path, include: Sequence[str], compiles: bool) -> Outcome:
    """Port one file, and compile the port."""
    unlike = _unlike(entry, clones)
    if unlike:
        return unlike
    own = _own(entry, clones)
    with tempfile.TemporaryDirectory(prefix="porter-ecosystem-") as folder:
        source = _source(entry, entry.get("unit", ""), clones, Path(folder))
        port, refused = _port(entry, source, Path(folder, "port"), own)
        if port is None:
            return refused
        if not compiles:
            return {"outcome": "ported"}
        # what was ported comes in front of what it was ported from
        first = map(str, own_first(source, port, [Path(d) for d in own]))
        outcome = _compile(port, "sm_100a", _flags(entry), [*first, *include], Path(folder, "port.ptx"))
        if "compiler" in outcome:
            original = _compile(source, "sm_90a", _flags(entry), [*own, *include], Path(folder, "original.ptx"))
            outcome |= {"original": original["compiler"]} if "compiler" in original else {}
        return outcome


def _port(
    entry: Entry, source: Path, output: Path, own: Sequence[str], style: str = "compat"
) -> tuple[Path | None, Outcome]:
    """The port of a source, or why there is none."""
    command = [
        sys.executable,
        "-m",
        "porter",
        "port",
        "--style",
        style,
        "--no-compile",
        "--no-keep-hopper",
        "--whole",
        str(source),
    ]
    command += ["-o", str(output), *(f"-I{d}" for d in own), *entry.get("options", ())]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        causes = Counter(_ERROR.findall(done.stdout + done.stderr))
        return None, {"outcome": "refused", "exit": done.returncode, "causes": [f"{c}: {w}" for c, w in causes]}
    return next(output.rglob(source.name)), {}


def _unlike(entry: Entry, clones: Path) -> Outcome:
    """Why a clone's file cannot be run; empty if it can."""
    source = clones / entry["repository"].replace("/", "+") / entry["path"]
    if not source.is_file():
        return {"outcome": "absent"}
    same = hashlib.sha256(source.read_bytes()).hexdigest() == entry["sha256"]
    return {} if same else {"outcome": "another version"}


def _own(entry: Entry, clones: Path) -> list[str]:
    clone = clones / entry["repository"].replace("/", "+")
    own = [str(clone / d) for d in entry.get("include", ())]
    return [*own, *map(str, PROGRAMS)] if "unit" in entry or "program" in entry else own


def _source(entry: Entry, text: str, clones: Path, folder: Path) -> Path:
    """The file itself, or a text in place of it."""
    if not text:
        found: Path = clones / entry["repository"].replace("/", "+") / entry["path"]
        return found
    unit = folder / "unit.cu"
    unit.write_text(text)
    return unit


def _flags(entry: Entry) -> list[str]:
    flags = [*FLAGS, *entry.get("flags", ())]
    return flags if any(f.startswith("-std=") for f in flags) else [*flags, STANDARD]


def _compile(source: Path, arch: str, flags: Sequence[str], include: Sequence[str], output: Path) -> Outcome:
    command = [*NVCC, f"-arch={arch}", *flags, *(f"-I{d}" for d in include), "-o", str(output), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
        return {"outcome": "ported", "compiler": compiler_message(done.stdout + done.stderr)}
    return judged(output.read_text("utf-8", "replace"))


def compiler_message(told: str) -> str:
    """The first error that nvcc tells, with the numbers of what does not fit."""
    first, numbers = _COMPILER.search(told), _NUMBERS.search(told)
    message = first[1][:200] if first else "no message"
    return f"{message}: {numbers[1]}, and there are {numbers[2]}" if numbers and "static" in message else message


def can_be_verified(entry: Entry) -> bool:
    return "program" in entry or "arguments" in entry


def verify_one(entry: Entry, clones: Path, include: Sequence[str]) -> str:
    """Run original and port as whole programs: "same bits", or what is said of them."""
    unlike = _unlike(entry, clones)
    if unlike:
        return str(unlike["outcome"])
    done = _of_program(entry, clones, include, "compat", "verify", "--full", "--no-hazards")
    return _verified(done.returncode, done.stdout)


def _of_program(
    entry: Entry, clones: Path, include: Sequence[str], style: str, *command: str
) -> subprocess.CompletedProcess[str]:
    """What a command of Porter says of a whole program and its port."""
    with tempfile.TemporaryDirectory(prefix="porter-ecosystem-") as folder:
        source = _source(entry, entry.get("program", entry.get("unit", "")), clones, Path(folder))
        words = [sys.executable, "-m", "porter", "--format", "json", *command, "--no-keep-hopper", "--style", style]
        words.append(str(source))
        if "options" in entry:
            port, _ = _port(entry, source, Path(folder, "port"), _own(entry, clones), style)
            words += ["--port", str(port)] if port is not None else []
        words += [*(f"-I{d}" for d in (*_own(entry, clones), *include)), "--nvcc-flag=-w"]
        words += [*(f"--nvcc-flag={f}" for f in _flags(entry)), "-l", "cuda"]
        return subprocess.run([*words, "--", *entry.get("arguments", ())], capture_output=True, text=True, cwd=folder)


def _verified(status: int, report: str) -> str:
    try:
        found = json.loads(report)
    except ValueError:
        return f"exit status {status}"
    compared = [c for row in found.get("rows", ()) for c in row["between"]]
    if status == 0 and compared and all(c["ok"] for c in compared):
        return SAME
    said = found.get("diagnostics", ()) or [d for row in found.get("rows", ()) for d in row.get("diagnostics", ())]
    first = next((str(d["message"]) for d in said if d.get("severity") == "error"), f"exit status {status}")
    return _FOLDERS.sub("", first.split("\n", 1)[0])


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
    yield "# Public sources"
    yield ""
    yield "Public Hopper sources that were run through Porter as they are, without an edit by hand. Made from"
    yield "`scripts/ecosystem.yaml` and `docs/results/ecosystem.json` by `scripts/ecosystem.py page`. *compiled*:"
    yield "nvcc makes PTX for sm_100a of the port, with tcgen05.mma, without wgmma, and without a kernel of a"
    yield "mainloop of Hopper; *ported* is a port of which it does not. *verified*: original and port ran whole in"
    yield "the simulator, and after each launch they hold the same bits in memory. Where a source is no program,"
    yield "one of Porter's own calls it. The port is compiled for sm_100a as that program. FlashInfer's prefill"
    yield "takes CCCL's headers from a package that is newer than CUDA 13.0's, `nvidia-cuda-cccl`. INC stands for"
    yield "`--include CUTLASS/include --include CUTLASS/tools/util/include`:"
    yield ""
    yield "    python scripts/ecosystem.py run --clones CLONES INC"
    yield "    python scripts/ecosystem.py verify --clones CLONES INC"
    yield ""
    yield "| kind | files | repositories | compiled | of these verified | ported | refused |"
    yield "|---|---|---|---|---|---|---|"
    kinds = list(dict.fromkeys(e["kind"] for e in entries))
    for kind in kinds:
        yield _counted(kind, [e for e in entries if e["kind"] == kind], results)
    for kind in kinds:
        yield ""
        yield f"## {kind}"
        yield ""
        yield "| repository | file | outcome | verified | |"
        yield "|---|---|---|---|---|"
        for entry in entries:
            if entry["kind"] == kind:
                result = results.get(name_of(entry), NOT_RUN)
                link = f"{entry['repository']} `{entry['commit'][:10]}`"
                verified = _plain(result.get("verified", ""))
                yield f"| {link} | `{entry['path']}` | {result['outcome']} | {verified} | {_why(result)} |"


def _counted(kind: str, entries: Sequence[Entry], results: Mapping[str, Outcome]) -> str:
    found = [results.get(name_of(e), NOT_RUN) for e in entries]
    outcomes = Counter(r["outcome"] for r in found)
    same = sum(is_verified(r) for r in found)
    repositories = len({e["repository"] for e in entries})
    figures = [len(entries), repositories, outcomes["compiled"], same, outcomes["ported"], outcomes["refused"]]
    return f"| {kind} | " + " | ".join(map(str, figures)) + " |"


def is_verified(result: Outcome) -> bool:
    return result["outcome"] == "compiled" and result.get("verified") == SAME


def _why(result: Outcome) -> str:
    if result["outcome"] == "compiled" and "program" in result:
        return "as a program"
    if result["outcome"] == "compiled":
        return f"{result['tcgen05.mma']} `tcgen05.mma`"
    if "original" in result:
        return f"nvcc refuses the original, too: {_plain(result['original'])}"
    if "compiler" in result:
        return f"nvcc: {_plain(result['compiler'])}"
    causes = list(dict.fromkeys(result.get("causes", ())))
    more = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
    return _plain(causes[0]) + more if causes else ""


def _plain(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= 160 else f"{text[:160]}…"


def verified(outcome: Outcome, said: str) -> Outcome:
    """An outcome with what is said of the whole program. Where that ran, the port was compiled for sm_100a, unless
    others of the file's kernels are known not to compile."""
    if said == SAME and outcome["outcome"] in ("not run", "ported") and "compiler" not in outcome:
        outcome = {"outcome": "compiled", "program": True}
    return outcome | {"verified": said}


def _short(entry: Entry) -> str:
    return f"{entry['repository']} {Path(entry['path']).name}"


def equal_rows(entry: Entry, clones: Path, include: Sequence[str], style: str) -> Iterator[str]:
    """What `porter equal` says of each kernel that a program launches."""
    from equal_corpus import said_of

    head = f"{_short(entry):{_NAME}} {style:{_HEAD - _NAME - 2}} "
    done = _of_program(entry, clones, include, style, "equal")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        yield f"{head}exit status {done.returncode}"
        return
    for one in found.get("cases", ()):
        kernel = one["name"].partition(", ")[2].partition("<")[0]
        status = AS_ORIGINAL if one["as_original"] else one["status"]
        yield f"{head}{status:{_STATUS - _HEAD}} {one['seconds']:6.1f} s  {kernel}: {said_of(one)}"
    if not found.get("cases"):
        said = next((d["message"] for d in found["diagnostics"] if d["severity"] == "error"), "nothing was launched")
        yield f"{head}{_plain(said)}"


def _compare(options: argparse.Namespace) -> None:
    """docs/results/equality-ecosystem.txt, of which rows of other files and styles stay."""
    rows = _kept_rows(options.into.read_text("utf-8")) if options.into is not None else {}
    for entry in (e for e in manifest() if options.only in name_of(e)):
        if not can_be_verified(entry) or _unlike(entry, options.clones):
            continue
        for style in options.styles or STYLES:
            lines = list(equal_rows(entry, options.clones, options.include, style))
            rows[_short(entry), style] = lines
            print(*lines, sep="\n", flush=True)
            if options.into is not None:
                options.into.write_text(equality_text(rows), "utf-8")


_COMPARED = (
    "python scripts/ecosystem.py equal --clones CLONES INC --into FILE "
    "(file by file, with --only and --style; times of comparisons under load)"
)
Rows = dict[tuple[str, str], list[str]]
"""Lines by the name of the file and the style."""


def _kept_rows(text: str) -> Rows:
    rows: Rows = {}
    for line in text.splitlines():
        name, style = line[:_NAME].rstrip(), line[_NAME:_HEAD].strip()
        if style in STYLES:
            rows.setdefault((name, style), []).append(line)
    return rows


def equality_text(rows: Rows) -> str:
    """The rows in the order of the manifest, and how many there are of each status."""
    lines = [_COMPARED]
    names = list(dict.fromkeys(map(_short, manifest())))
    lines += [line for name in names for style in STYLES for line in rows.get((name, style), ())]
    for style in STYLES:
        of_style = (line[_HEAD:_STATUS].strip() for key, some in rows.items() if key[1] == style for line in some)
        counted = Counter(status if status in STATUS else "none" for status in of_style)
        lines.append(f"{style}: {', '.join(f'{count} {status}' for status, count in sorted(counted.items()))}")
    return "\n".join(lines) + "\n"


def _run(options: argparse.Namespace) -> None:
    results: dict[str, Outcome] = json.loads(options.results.read_text("utf-8")) if options.results.is_file() else {}
    for entry in (e for e in manifest() if options.only in name_of(e)):
        name = name_of(entry)
        if options.what == "verify":
            if not can_be_verified(entry):
                continue
            outcome = verified(results.get(name, NOT_RUN), verify_one(entry, options.clones, options.include))
        else:
            kept = {k: v for k, v in results.get(name, {}).items() if k == "verified"}
            outcome = run_one(entry, options.clones, options.include, not options.no_compile) | kept
        print(name, outcome["outcome"], outcome.get("verified", ""), flush=True)
        results[name] = outcome
        options.results.write_text(as_rows(dict(sorted(results.items()))), "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    what = parser.add_subparsers(dest="what", required=True)
    for name in ("run", "verify", "equal"):
        command = what.add_parser(name)
        command.add_argument("--clones", type=Path, required=True)
        command.add_argument("--include", action="append", default=[])
        command.add_argument("--only", default="", help="files whose name holds this")
        command.add_argument("--results", type=Path, default=RESULTS)
        command.add_argument("--style", dest="styles", action="append", choices=STYLES)
        if name == "run":
            command.add_argument("--no-compile", action="store_true")
        if name == "equal":
            command.add_argument("--into", type=Path, help="a file whose rows of these files are replaced")
    what.add_parser("page")
    options = parser.parse_args()
    if options.what == "equal":
        _compare(options)
        return 0
    if options.what != "page":
        _run(options)
    PAGE.write_text(page(manifest(), json.loads(RESULTS.read_text("utf-8"))), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
