# SPDX-License-Identifier: Apache-2.0
"""Explanations of survivors that no run can give: a YAML list that people write.

- mutants: [drop cp.async.bulk.wait_group.read]   # what and to which opcode, or how that begins
  kernels: [dsl_gemm]                             # cases; left out: any
  source: tma_store_wait                          # in one of the source lines; left out: any
  nth: [1, 2]                                     # which of the instructions with the opcode; left out: any
  why: The ring of buffers is not filled a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from porter.diagnostics import Code, PorterError
from porter.verify.mutation_record import Record, Row

FILE = "reviewed.yaml"
_KEYS = {"mutants", "kernels", "source", "nth", "why"}


@dataclass(frozen=True)
class Explanation:
    mutants: tuple[str, ...]
    why: str
    kernels: tuple[str, ...] = ()
    source: str = ""
    nth: tuple[int, ...] = ()

    def fits(self, case: str, row: Row) -> bool:
        name = f"{row.how} {row.opcode}"
        return (
            any(name.startswith(m) for m in self.mutants)
            and (not self.kernels or case in self.kernels)
            and (not self.nth or row.nth in self.nth)
            and (not self.source or any(self.source in text for text in row.source))
        )


def load_explanations(folder: Path) -> tuple[Explanation, ...]:
    """Those of a folder of records; none if it has no file of them.

    Raises:
        PorterError: CASE_FIELD for an entry that is none.
    """
    path = folder / FILE
    if not path.is_file():
        return ()
    try:
        entries = yaml.safe_load(path.read_text("utf-8")) or []
    except yaml.YAMLError as error:
        raise PorterError(Code.CASE_FIELD, field=FILE, problem=str(error).splitlines()[0]) from None
    return tuple(_explanation(entry, number) for number, entry in enumerate(entries))


def _explanation(entry: Any, number: int) -> Explanation:
    good = isinstance(entry, dict) and {"mutants", "why"} <= set(entry) <= _KEYS
    for key, kind in (("mutants", str), ("kernels", str), ("nth", int)):
        found = entry.get(key, []) if good else []
        good = good and isinstance(found, list) and all(isinstance(item, kind) for item in found)
    if not good:
        problem = f"entry {number} needs mutants and why, and may have kernels, source and nth"
        raise PorterError(Code.CASE_FIELD, field=FILE, problem=problem)
    return Explanation(
        tuple(entry["mutants"]),
        " ".join(entry["why"].split()),
        tuple(entry.get("kernels", ())),
        entry.get("source", ""),
        tuple(entry.get("nth", ())),
    )


def open_survivors(records: Sequence[Record]) -> Iterator[tuple[Record, Row]]:
    """Survivors of which no run shows why they are harmless."""
    for record in records:
        for row in record.survivors:
            if row.reason is None:
                yield record, row


def explained(explanations: Sequence[Explanation], record: Record, row: Row) -> Explanation | None:
    """The first explanation that fits."""
    return next((e for e in explanations if e.fits(record.case, row)), None)


def unexplained(records: Sequence[Record], explanations: Sequence[Explanation]) -> list[tuple[Record, Row]]:
    return [(rec, row) for rec, row in open_survivors(records) if explained(explanations, rec, row) is None]
