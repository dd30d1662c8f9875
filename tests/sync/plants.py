# SPDX-License-Identifier: Apache-2.0
"""Programs that mistakes of synchronization are put into, and what a proof says of them."""

from __future__ import annotations

import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress

from edits import NotThereError
from mistakes import PLANTS, Plant
from planting import Planted, Said

PROGRAMS = {
    ("gemm_ws", "original"): 64,
    ("gemm_ws", "port"): 64,
    ("gemm_tma", "port"): 64,
    ("gemm_cluster", "original"): 64,
    ("gemm_tf32", "original"): 32,
    ("cute_gemm_ws", "port"): 64,
    ("dsl_gemm_plain", "port"): 64,
}
"""With K of one turn."""

SECONDS = 3.0
"""For the proof of one program."""
LATE = (("gemm_ws", "original"), ("gemm_ws", "port"), ("gemm_tma", "port"))
"""Programs that are proved for all numbers of turns, so that a mistake which begins late could be called right."""
SECONDS_LATE = 45.0
AGAIN = "what comes behind it does the same"
OWN = "each thread has waited for it itself"
NUMBER = "all threads take the other number"
UNUSED = "no tcgen05 operation of another thread is to be ordered there but those that another fence orders"
REVIEWED = "to review, not wrong: the use of all registers waits, by the ruling load-dependence"
HARMLESS: dict[tuple[str, str, str], str] = {
    ("gemm_ws", "original", "nothing given"): "without .minnctapersm ptxas leaves setmaxnreg out (C7508)",
    ("gemm_ws", "original", "more taken"): "without .minnctapersm ptxas leaves setmaxnreg out (C7508)",
    ("gemm_ws", "original", "another number"): NUMBER,
    ("gemm_ws", "port", "no fence after, 1"): UNUSED,
    ("gemm_ws", "port", "no fence after, 2"): UNUSED,
    ("gemm_ws", "port", "no fence before, 1"): "an allocation is published without",
    ("gemm_ws", "port", "no wait for what is loaded, 1"): REVIEWED,
    ("gemm_ws", "port", "no wait for what is loaded, 2"): REVIEWED,
    ("gemm_ws", "port", "no fence for the asynchronous proxy, 1"): AGAIN,
    ("gemm_ws", "port", "no fence for the asynchronous proxy, 2"): AGAIN,
    ("gemm_ws", "port", "left out, 1"): AGAIN,
    ("gemm_ws", "port", "left out, 3"): OWN,
    ("gemm_tma", "port", "no fence after, 1"): UNUSED,
    ("gemm_tma", "port", "no fence after, 2"): UNUSED,
    ("gemm_tma", "port", "no fence before, 1"): "an allocation is published without",
    ("gemm_tma", "port", "no wait for what is loaded, 1"): AGAIN,
    ("gemm_tma", "port", "no wait for what is loaded, 2"): REVIEWED,
    ("gemm_tma", "port", "no fence behind initializations"): AGAIN,
    ("gemm_tma", "port", "left out, 1"): AGAIN,
    ("gemm_tma", "port", "left out, 3"): OWN,
    ("gemm_tma", "port", "another number"): NUMBER,
    ("gemm_tf32", "original", "no arrival, 2"): "the stages of the last turns are not filled again",
    ("gemm_tf32", "original", "a wait for the next mbarrier, 1"): "the next stage is given back behind this one",
    ("gemm_tf32", "original", "another number"): NUMBER,
    ("cute_gemm_ws", "port", "parity 0 always, 3"): "it is 0 there",
    ("cute_gemm_ws", "port", "no fence after, 1"): UNUSED,
    ("cute_gemm_ws", "port", "no fence before, 1"): "an allocation is published without",
    ("cute_gemm_ws", "port", "no wait for what is loaded, 1"): REVIEWED,
    ("cute_gemm_ws", "port", "no fence behind initializations"): AGAIN,
    ("cute_gemm_ws", "port", "left out, 1"): AGAIN,
    ("cute_gemm_ws", "port", "another number"): NUMBER,
    ("dsl_gemm_plain", "port", "a wait taken as over, 2"): OWN,
    ("dsl_gemm_plain", "port", "no fence after, 1"): UNUSED,
    ("dsl_gemm_plain", "port", "no fence after, 2"): UNUSED,
    ("dsl_gemm_plain", "port", "no fence before, 1"): UNUSED,
    ("dsl_gemm_plain", "port", "no wait for what is loaded, 1"): AGAIN,
    ("dsl_gemm_plain", "port", "no fence behind initializations"): AGAIN,
    ("dsl_gemm_plain", "port", "left out, 2"): AGAIN,
    ("dsl_gemm_plain", "port", "another number"): NUMBER,
}
"""Edits that do nothing wrong, with the reason; besides those that stand where no thread comes."""


Task = tuple[str, str, Plant]


def tasks(late: bool, names: set[str]) -> Iterator[Task]:
    """Kernel, program, plant: one for each PTX that comes of it."""
    for kernel, program in LATE if late else PROGRAMS:
        if names and kernel not in names:
            continue
        seen: set[str] = set()
        for plant in (p for p in PLANTS if p.late is late):
            with suppress(NotThereError):
                text = Planted(kernel, program, plant.edit).at({})[0].ptx
                if text not in seen:
                    seen.add(text)
                    yield kernel, program, plant


def looked_at(number: int) -> tuple[str, Counter[str]]:
    """The row of a task, and what it counts for."""
    kernel, program, plant = TASKS[number]
    unit = PROGRAMS[kernel, program]
    planted = Planted(kernel, program, plant.edit)
    said = planted.said(SECONDS_LATE if plant.late else SECONDS, unit)
    reason = HARMLESS.get((kernel, program, plant.name), "")
    if not (reason or said.is_refused or said.elsewhere or plant.late or planted.is_come_to(unit)):
        reason = "no thread comes to it"
    counts = Counter(
        {
            "do nothing wrong": bool(reason),
            "effective": not reason,
            "effective ones refused": not reason and said.is_refused,
            "effective ones proved": not reason and said.verdict == "proved",
        }
    )
    return _row(f"{kernel} {program}", plant, said, reason), counts


TASKS: list[Task] = []
"""Edits are functions that cannot be sent to another process: it is forked with them."""


def main() -> None:
    """PYTHONPATH=.:tests:tests/sync PORTER_TRUST=1 python tests/sync/plants.py [late] [--jobs=N] [KERNEL ...]"""
    words = set(sys.argv[1:])
    jobs = next((word for word in words if word.startswith("--jobs=")), "--jobs=1")
    print(f"$ python tests/sync/plants.py {' '.join(word for word in sys.argv[1:] if word != jobs)}".rstrip())
    TASKS.extend(tasks("late" in words, words - {"late", jobs}))
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(int(jobs.partition("=")[2]), multiprocessing.get_context("fork")) as pool:
        for row, counted in pool.map(looked_at, range(len(TASKS))):
            print(row, flush=True)
            counts.update(counted)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))


def _row(where: str, plant: Plant, said: Said, reason: str) -> str:
    told = ", ".join(said.kinds) if said.is_refused else f"{said.at} {', '.join(said.kinds)}".strip()
    more = f"; wrong further on: {', '.join(said.elsewhere)}" if said.elsewhere else ""
    row = f"{where:22} {plant.kind:15} {plant.name:46} {said.verdict:8} {told[:70]}{more}"
    return f"{row} (does nothing wrong: {reason})" if reason else row.rstrip()


if __name__ == "__main__":
    main()
