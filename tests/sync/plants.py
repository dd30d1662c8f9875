# SPDX-License-Identifier: Apache-2.0
"""Mistakes by kind, as edits of PTX, and the programs that they are put into."""

from __future__ import annotations

import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from planting import (
    Edit,
    NotThereError,
    Planted,
    Said,
    all_of,
    changed,
    doubled,
    dropped,
    late_again,
    late_drop,
    late_operand,
    late_pass,
    late_shift,
    moved,
    operand,
    passed,
    replaced,
    shifted,
)

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

WAIT = r"mbarrier\.(?:try|test)_wait"
PARITY = WAIT + r"\.parity"
ARRIVE = r"mbarrier\.arrive\.(?!expect)"
EXPECT = r"mbarrier\.arrive\.expect_tx"
INIT = r"mbarrier\.init"
LOAD = r"cp\.async\.bulk\.tensor[\w.:]*shared::c[\w.:]*\.global"
MULTICAST = r"cp\.async\.bulk\.tensor[\w.:]*multicast::cluster"
COMMIT = r"tcgen05\.commit"
MMA = r"tcgen05\.mma\.cta"
BEFORE, AFTER = r"tcgen05\.fence::before_thread_sync", r"tcgen05\.fence::after_thread_sync"
ALLOC, DEALLOC = r"tcgen05\.alloc", r"tcgen05\.dealloc"
WAIT_LD, PROXY, GROUP = r"tcgen05\.wait::ld", r"fence\.proxy\.async", r"wgmma\.wait_group"
CLUSTER_ARRIVE, CLUSTER_WAIT = r"barrier\.cluster\.arrive", r"barrier\.cluster\.wait"
BAR = r"bar(?:rier)?\.(?:cta\.)?sync"
ONLY_FIRST = changed(MULTICAST, lambda one: one.with_operand(-1, "1"))
TO_A_THIRD = changed(MULTICAST, lambda one: one.with_operand(-1, "7"))
AT_THE_END = all_of(dropped(CLUSTER_ARRIVE, -1), dropped(CLUSTER_WAIT, -1))
FLIPPED = "xor.b32 %planted3, %planted3, 1;"
MORE, FEWER = "add.u32 %planted3, %planted3, 1;", "sub.u32 %planted3, %planted3, 1;"
MORE_BYTES = "add.u32 %planted3, %planted3, 16;"
HALF, TWICE = "shr.u32 %planted3, %planted3, 1;", "shl.b32 %planted3, %planted3, 1;"


@dataclass(frozen=True)
class Plant:
    kind: str
    name: str
    edit: Edit
    late: bool = False
    """Whether it begins at turns 64 to 1,000."""


def _each(kind: str, name: str, *edits: Edit) -> list[Plant]:
    return [Plant(kind, f"{name}, {number}" if len(edits) > 1 else name, e) for number, e in enumerate(edits, 1)]


def _late(kind: str, name: str, edit: Edit) -> Plant:
    return Plant(kind, name, edit, late=True)


PLANTS: tuple[Plant, ...] = (
    *_each("arrivals", "no arrival", dropped(ARRIVE, 1), dropped(ARRIVE, -1)),
    *_each("arrivals", "an arrival twice", doubled(ARRIVE, 1), doubled(ARRIVE, -1)),
    *_each("arrivals", "count one more", operand(INIT, 1, MORE, 1), operand(INIT, 1, MORE, -1)),
    *_each("arrivals", "count one fewer", operand(INIT, 1, FEWER, 1), operand(INIT, 1, FEWER, -1)),
    *_each("bytes", "half of the bytes", operand(EXPECT, -1, HALF)),
    *_each("bytes", "twice the bytes", operand(EXPECT, -1, TWICE)),
    *_each("bytes", "16 bytes more", operand(EXPECT, -1, MORE_BYTES)),
    *_each("bytes", "a load left out", dropped(LOAD, 1), dropped(LOAD, -1)),
    *_each("bytes", "a load twice", doubled(LOAD, -1)),
    *_each("bytes", "a load that tells the next mbarrier", shifted(LOAD, -1, 8)),
    *_each("waits", "a wait taken as over", passed(WAIT, 1), passed(WAIT, 2), passed(WAIT, -1)),
    *_each("waits", "parity 0 always", *(changed(PARITY, lambda one: one.with_operand(2, "0"), n) for n in (1, 2, -1))),
    *_each("waits", "parity of the other phase", *(operand(PARITY, 2, FLIPPED, n) for n in (1, 2, -1))),
    *_each("waits", "a wait for the next mbarrier", shifted(WAIT, 0, 8), shifted(WAIT, 0, 8, -1)),
    *_each("shared memory", "a load lands 1,024 bytes further", shifted(LOAD, 0, 1024), shifted(LOAD, 0, 1024, -1)),
    *_each("shared memory", "a stage given back ahead of the last product", moved(ARRIVE, GROUP, -1, -1)),
    *_each("shared memory", "one group of products left open", replaced(GROUP, r"\b0;", "1;")),
    *_each("Tensor Memory", "no fence after", dropped(AFTER, 1), dropped(AFTER, 2), dropped(AFTER, -1)),
    *_each("Tensor Memory", "no fence before", dropped(BEFORE, 1), dropped(BEFORE, -1)),
    *_each("Tensor Memory", "no commit", dropped(COMMIT, 1), dropped(COMMIT, -1)),
    *_each("Tensor Memory", "a commit ahead of the last product", moved(COMMIT, MMA, -1, -1)),
    *_each("Tensor Memory", "a commit twice", doubled(COMMIT, -1)),
    *_each("Tensor Memory", "an arrival in place of a commit", changed(
        COMMIT, lambda one: f"{one.guard}mbarrier.arrive.shared::cta.b64 _, {one.operands[0]};")),
    *_each("unwritten", "products begin with what is there", replaced(MMA, r",\s*[%\w$]+;", ", %plant;")),
    *_each("registers", "no wait for what is loaded", dropped(WAIT_LD, 1), dropped(WAIT_LD, -1)),
    *_each("registers", "no wait for what is stored", dropped(r"tcgen05\.wait::st")),
    *_each("registers", "no wait for products", dropped(GROUP)),
    *_each("registers", "no fence ahead of products", dropped(r"wgmma\.fence")),
    *_each("proxy", "no fence for the asynchronous proxy", dropped(PROXY), dropped(PROXY, -1)),
    *_each("proxy", "no fence behind initializations", dropped(r"fence\.mbarrier_init")),
    *_each("columns", "half of the columns", replaced(ALLOC, r"\b(512|256|128|64)\b", "32")),
    *_each("columns", "never freed", dropped(DEALLOC)),
    *_each("columns", "freed twice", doubled(DEALLOC)),
    *_each("columns", "32 freed", replaced(DEALLOC, r"\b(512|256|128|64)\b", "32")),
    *_each("columns", "freed at once", moved(DEALLOC, MMA)),
    *_each("setmaxnreg", "nothing given", dropped(r"setmaxnreg\.dec")),
    *_each("setmaxnreg", "more taken", replaced(r"setmaxnreg\.inc", r"\b\d{2,3};", "256;")),
    *_each("named barrier", "left out", dropped(BAR, 1), dropped(BAR, 2), dropped(BAR, -1)),
    *_each("named barrier", "of more threads", replaced(BAR, r"\b128;", "256;"), replaced(BAR, r"\b0;", "0, 1024;")),
    *_each("named barrier", "another number", replaced(BAR, r"(sync\s+)[%\w]+", r"\g<1>7", -1)),
    *_each("cluster barrier", "none at the start", all_of(dropped(CLUSTER_ARRIVE), dropped(CLUSTER_WAIT))),
    *_each("cluster barrier", "no wait", dropped(CLUSTER_WAIT, 1), dropped(CLUSTER_WAIT, -1)),
    *_each("ended block", "no cluster barrier at the end", AT_THE_END),
    *_each("ended block", "a multicast to no more than the first block", ONLY_FIRST),
    *_each("ended block", "a multicast to a third block", TO_A_THIRD),
    *_each("deadlock", "arrivals at the next mbarrier", shifted(ARRIVE, 0, 8, -1), shifted(EXPECT, 0, 8)),
    *_each("deadlock", "commits at the next mbarrier", shifted(COMMIT, 0, 8)),
    _late("waits", "parity of the other phase from turn 70 on", late_operand(70, PARITY, 2, FLIPPED)),
    _late("waits", "parity of the other phase from turn 300 on", late_operand(300, PARITY, 2, FLIPPED, -1)),
    _late("waits", "a wait taken as over from turn 1,000 on", late_pass(1000, WAIT, -1)),
    _late("arrivals", "no arrival from turn 65 on", late_drop(65, ARRIVE, -1)),
    _late("bytes", "16 bytes more from turn 129 on", late_operand(129, EXPECT, -1, MORE_BYTES)),
    _late("bytes", "no load from turn 513 on", late_drop(513, LOAD, -1)),
    _late("waits", "a wait for the next mbarrier from turn 200 on", late_shift(200, PARITY)),
    _late("arrivals", "another arrival from turn 90 on", late_again(90, ARRIVE, -1)),
    _late("Tensor Memory", "no commit from turn 100 on", late_drop(100, COMMIT)),
)  # fmt: skip

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
