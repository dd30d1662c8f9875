# SPDX-License-Identifier: Apache-2.0
"""How many ports are equal to their originals on PTX, and which mistakes in ports are not called equal: the rows of
results/equality*.txt, counted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

_RESULTS = Path(__file__).resolve().parent / "results"
_MANIFEST = Path(__file__).resolve().parent.parent / "scripts" / "ecosystem.yaml"
_STATUS = ("equal", "as the original", "unknown", "differs")
_STYLES = ("compat", "full-rate", "idiomatic", "native", "by hand")
_WITHOUT_STEPS = ("compat", "full-rate", "idiomatic")
"""Styles whose ports are compared kernel by kernel: an idiomatic port is the full rate of its kernel."""
_ROW = re.compile(
    rf"^(?P<name>\S.*?) +(?P<style>{'|'.join(_STYLES)}) +"
    rf"(?:(?P<status>{'|'.join(_STATUS)}) +[\d.]+ s )? *(?P<said>.*)$"
)
_EVERY = re.compile(r"[(,] ?\w+ all[,)]")
_LANGUAGES = {"wgmma": "raw CUDA", "CuTe": "CuTe C++"}


class Compared(NamedTuple):
    """A row of the results. `status` is empty where nothing was compared, and `said` tells why."""

    programs: str
    name: str
    style: str
    status: str
    said: str


def rows_of(text: str, programs: dict[str, str], otherwise: str) -> list[Compared]:
    """Those of a file. `programs`: what they are counted with, by name or by what a name begins with."""
    found = []
    for line in text.splitlines():
        match = _ROW.match(line)
        if match is None or line.startswith("python "):
            continue
        kind = next((k for begins, k in programs.items() if match["name"].startswith(begins)), otherwise)
        found.append(Compared(kind, match["name"], match["style"], match["status"] or "", match["said"]))
    return found


def equality_table() -> str:
    files = yaml.safe_load(_MANIFEST.read_text("utf-8"))["files"]
    public = {f"{f['repository']} {Path(f['path']).name}": f"public, {_LANGUAGES[f['kind']]}" for f in files
              if f["kind"] in _LANGUAGES}  # fmt: skip
    corpus = {"cute_": "corpus, CuTe C++", "dsl_": "corpus, CuTe DSL"}
    rows = rows_of((_RESULTS / "equality.txt").read_text("utf-8"), corpus, "corpus, raw CUDA")
    rows += rows_of((_RESULTS / "equality-ecosystem.txt").read_text("utf-8"), public, "public")
    return "\n".join(counted(rows))


def counted(rows: Sequence[Compared]) -> Iterator[str]:
    """Lines of Markdown: how many are equal, by programs and style, and each one that is not, with its reason."""
    yield "| ports | style | compared | equal | for all of a size | as the original | not known | differ |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    compared = [row for row in rows if row.status]
    keys = sorted({(row.programs, row.style) for row in compared}, key=lambda k: (k[0], _STYLES.index(k[1])))
    for key in keys:
        yield f"| {' | '.join(key)} | {_figures([row for row in compared if (row.programs, row.style) == key])} |"
    plain = [row for row in compared if row.style in _WITHOUT_STEPS]
    for style in _WITHOUT_STEPS:
        yield f"| all | {style} | {_figures([row for row in plain if row.style == style])} |"
    yield f"| all | these three | {_figures(plain)} |"
    yield ""
    equal = sum(row.status == "equal" for row in plain)
    own = [row for row in plain if row.status != "as the original"]
    yield f"{_share(equal, len(plain))} are equal; without those that are as the original, {_share(equal, len(own))}."
    rest = [row for row in rows if row.status != "equal"]
    if rest:
        yield ""
        yield "| not equal | style | | |"
        yield "|---|---|---|---|"
        for row in rest:
            said = row.said.replace("|", "\\|")
            yield f"| {row.name} | {row.style} | {row.status or 'not compared'} | {said} |"


_PLANTS = re.compile(r"^(\d+) ports, (\d+) plants, (\d+) of them effective", re.MULTILINE)
_KIND = re.compile(r"^  (?P<kind>\S.*?) +(?P<total>\d+) effective: (?P<said>.*)$", re.MULTILINE)
_SAID = {
    "differs": "differ", "order": "refused by synchronization", "run": "refused by runs alone", "unknown": "not known",
    "equal": "equal",
}  # fmt: skip


def plants_table() -> str:
    return "\n".join(plants_counted((_RESULTS / "equality-plants.txt").read_text("utf-8")))


def plants_counted(text: str) -> Iterator[str]:
    """Lines of Markdown: what is said of mistakes that are effective, by kind."""
    found = _PLANTS.search(text)
    assert found is not None
    rows = {one["kind"]: Counter({s: int(n) for n, s in (part.split() for part in one["said"].split(", "))})
            for one in _KIND.finditer(text)}  # fmt: skip
    total = sum(rows.values(), Counter())
    yield f"{found[2]} mistakes in {found[1]} ports, of which {found[3]} are effective:"
    yield ""
    yield f"| mistake | effective | {' | '.join(_SAID.values())} |"
    yield f"|---|--:|{'--:|' * len(_SAID)}"
    for kind, said in [*rows.items(), ("all", total)]:
        yield f"| {kind} | {said.total()} | {' | '.join(str(said[status]) for status in _SAID)} |"


def _share(count: int, of: int) -> str:
    return f"{count} of {of} ({100 * count / max(of, 1):.1f} %)"


def _figures(rows: Sequence[Compared]) -> str:
    of_status = Counter(row.status for row in rows)
    every = sum(bool(_EVERY.search(row.said)) for row in rows if row.status == "equal")
    figures = [len(rows), of_status["equal"], every, *(of_status[status] for status in _STATUS[1:])]
    return " | ".join(map(str, figures))
