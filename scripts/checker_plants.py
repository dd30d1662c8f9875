# SPDX-License-Identifier: Apache-2.0
"""docs/results/checker-plants.txt: mistakes of synchronization planted in kernels for SM100 that others wrote, and
whether `porter hazards` tells them.

    python scripts/checker_plants.py [--launches DIR] [--each 2] [--jobs 1] [--seconds 3000] [NAME ...]

Kernels are those of `KERNELS`: Triton's, compiled from tests/foreign/triton_script.py, a tutorial of CUTLASS's, and
CuTe DSL kernels of flashinfer-python and quack-kernels; captured on the simulator into the folder `--launches`, where
they stay. Each mistake is an edit of one instruction of the PTX that a run comes to. It is effective if a run without
checks under one of `SCHEDULES` leaves other bytes than the kernel as it is, or does not end as that does. What
`porter hazards --launch` says of it, at practice level and under its usual schedule, is compared with what it says of
the kernel as it is: `clean` stands for nothing new. `--seconds`: after these nothing is begun.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from plant_kinds import KINDS, Found, Kind, NotThereError, planted, shifted

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "tests")]

Schedule = tuple[str, int]
SCHEDULES: tuple[Schedule, ...] = (("late", 0), ("eager", 0), ("random", 1), ("random", 2), ("random", 3))
"""With the seed."""
_OF_ORDER = (
    "stage", "parity", "bytes", "count", "allocation", "wait", "wait for what is loaded", "commit left out",
    "commit to another", "fence", "dealloc", "dealloc twice", "arrival", "barrier", "tensor map",
)  # fmt: skip
"""Those of `plant_kinds.KINDS` that are mistakes of order, completion or lifetime; others only change a value."""
_OPCODES = {kind.name: kind.opcode for kind in KINDS}
ARRIVE, EXPECT, INIT, WAIT = (_OPCODES[name] for name in ("arrival", "bytes", "count", "wait"))
COMMIT, LOAD, MMA = (_OPCODES[name] for name in ("commit left out", "stage", "product left out"))
_BARRIER = r"bar(?:rier)?\.(?:cta\.)?sync"
_GROUP_WAIT, _GROUP = r"cp\.async\.bulk\.wait_group", r"cp\.async\.bulk\.commit_group"


def _left_out(one: Found, dice: random.Random) -> str:
    return ""


def _twice(one: Found, dice: random.Random) -> str:
    return f"{one.text}\n{one.text}"


def _by_all(one: Found, dice: random.Random) -> str:
    if not one.guard:
        raise NotThereError(one.text)
    return one.text.removeprefix(one.guard)


def _next_mbarrier(which: int) -> Callable[[Found, random.Random], str]:
    return lambda one, dice: shifted(r"[\w.]+", which, 8)(one.text)


def _other_number(one: Found, dice: random.Random) -> str:
    return one.with_operand(0, "14" if one.operands[0] != "14" else "13")


def _fewer_threads(one: Found, dice: random.Random) -> str:
    threads = int(one.operands[1])
    if threads < 64:
        raise NotThereError(one.text)
    return one.with_operand(1, str(threads // 2))


def _one_more_group(one: Found, dice: random.Random) -> str:
    return one.with_operand(0, str(int(one.operands[0], 0) + 1))


PLANTED: tuple[Kind, ...] = (
    *(kind for kind in KINDS if kind.name in _OF_ORDER),
    Kind("wait for what is stored", r"tcgen05\.wait::st", _left_out),
    Kind("wait for bulk stores", _GROUP_WAIT, _left_out),
    Kind("wait for fewer bulk stores", _GROUP_WAIT, _one_more_group),
    Kind("group of bulk stores", _GROUP, _left_out),
    Kind("expected bytes left out", EXPECT, _left_out),
    Kind("initialization left out", INIT, _left_out),
    Kind("arrival twice", ARRIVE, _twice),
    Kind("commit twice", COMMIT, _twice),
    Kind("load left out", LOAD, _left_out),
    Kind("load twice", LOAD, _twice),
    Kind("load tells another mbarrier", LOAD, _next_mbarrier(-1)),
    Kind("wait for another mbarrier", WAIT, _next_mbarrier(0)),
    Kind("product of all threads", MMA, _by_all),
    Kind("commit of all threads", COMMIT, _by_all),
    Kind("load of all threads", LOAD, _by_all),
    Kind("arrival of all threads", ARRIVE, _by_all),
    Kind("another barrier", _BARRIER, _other_number),
    Kind("barrier of fewer threads", rf"{_BARRIER}(?:\.\w+)*\s+[^;,]+,\s*\d+(?=;)", _fewer_threads),
    Kind("cluster barrier", r"barrier\.cluster\.arrive", _left_out),
    Kind("barrier of a warp", r"bar\.warp\.sync", _left_out),
    Kind("access of one thread", r"st\.shared", _by_all),
)  # fmt: skip


# Kernels ----------------------------------------------------------------------------------------------


def _triton(kernel: str, folder: Path) -> Path:
    from click.testing import CliRunner

    from porter.cli.main import main as porter

    words = ["capture", "--trust", "--backend", "sim", "-o", str(folder)]
    done = CliRunner().invoke(porter, [*words, str(_ROOT / "tests/foreign/triton_script.py"), kernel])
    if done.exit_code:
        raise RuntimeError(done.output)
    (found,) = folder.rglob("launch.yaml")
    return found


def _cutlass(folder: Path) -> Path:
    from foreign import launches

    return launches.pair(folder, 512, 1024, 320)


def _dsl(name: str, m: int, n: int, k: int, folder: Path) -> Path:
    from foreign import launches

    return launches.dsl_gemm(name, folder, m, n, k, resident=1 if "dynamic" in name else None)


KERNELS: Mapping[str, Callable[[Path], Path]] = {
    "Triton, warp-specialized": partial(_triton, "specialized"),
    "Triton, attention": partial(_triton, "attention"),
    "Triton, two CTAs": partial(_triton, "pair"),
    "CUTLASS, 04_mma_tma_2sm": _cutlass,
    "flashinfer, persistent": partial(_dsl, "blackwell-persistent", 512, 512, 192),
    "quack, dynamic": partial(_dsl, "quack-sm100-dynamic", 256, 384, 192),
}
"""By name what writes a launch file into a folder."""


class Said(NamedTuple):
    """What is said of a kernel with a mistake. `effect`: the schedule and how its run shows it, empty if none does.
    `told`: hazards that the kernel as it is has not; `unruled`: those to review that name no ruling."""

    kernel: str
    kind: str
    opcode: str
    effect: str
    verdict: str
    told: tuple[str, ...]
    unruled: int


@dataclass
class Planted:
    """A launch that mistakes are put into."""

    name: str
    path: Path

    def __post_init__(self) -> None:
        from porter.verify.launch_file import load_launch

        self.launch = load_launch(self.path)
        self.right = cache(self._right)

    def _right(self, schedule: Schedule) -> Any:
        return self._run(self.launch.kernel, schedule, None)

    def _run(self, kernel: Any, schedule: Schedule, budget: int | None) -> Any:
        from porter.verify.backends import SimBackend
        from porter.verify.settings import SimOptions

        options = SimOptions(schedule=schedule[0], seed=schedule[1], budget=budget)  # type: ignore[arg-type]
        return SimBackend(options).run(kernel, self.launch.problem, self.launch.launch, self.launch.images)

    @property
    def reached(self) -> set[int]:
        return set(self.right(SCHEDULES[0]).stats.lines)

    def with_mistake(self, kind: Kind, dice: random.Random) -> tuple[str, Any]:
        """The opcode, and the kernel. Raises NotThereError, and what parsing raises."""
        from porter.verify.builder import parse_ptx

        kernel = self.launch.kernel
        line, text = planted(kernel.ptx, kernel.entry, kind, self.reached, dice)
        opcode = line.removeprefix(Found(0, 0, line).guard).split()[0]
        return opcode.rstrip(";"), replace(kernel, ptx=text, module=parse_ptx(text, self.name))

    def effect(self, kernel: Any) -> str:
        """The first schedule under which a run leaves other bytes (`bits`) or ends in another way (`end`)."""
        for schedule in SCHEDULES:
            right = self.right(schedule)
            result = self._run(kernel, schedule, 4 * right.warp_instructions + 50_000)
            if result.status != "ok":
                return f"{schedule[0]} {schedule[1]}: end"
            if any(result.after[name].data.tobytes() != right.after[name].data.tobytes() for name in right.after):
                return f"{schedule[0]} {schedule[1]}: bits"
        return ""

    def hazards(self, kernel: Any, budget: int | None = None) -> Any:
        """What `porter hazards --launch` finds."""
        from porter.verify.hazards import check_case
        from porter.verify.settings import SimOptions

        at = self.launch
        options = SimOptions(budget=budget)
        return check_case(kernel, at.problem, at.launch, at.images, "kernel", "practice", options, [0])

    def said(self, kind: Kind, opcode: str, kernel: Any, effect: str) -> Said:
        from porter.report.hazards import document
        from porter.verify.known_hazards import without_known

        usual = self._usual()
        found = self.hazards(kernel, 16 * usual.warp_instructions + 200_000)
        (new,) = without_known([found], document([usual]))
        verdict = found.status if found.status != "ok" else "clean"
        if any(hazard.severity == "error" for hazard in new.hazards):
            verdict = "error"
        elif found.status == "ok" and new.hazards:
            verdict = "review"
        told = {f"{h.kind.id} {h.ruling.value if h.ruling else ''}".strip() for h in new.hazards}
        told |= {finding.code.id for finding in found.findings}
        unruled = sum(h.severity == "review" and h.ruling is None for h in new.hazards)
        return Said(self.name, kind.name, opcode, effect, verdict, tuple(sorted(told)), unruled)

    def _usual(self) -> Any:
        if not hasattr(self, "_of_right"):
            self._of_right = self.hazards(self.launch.kernel)
        return self._of_right


def of_kernel(task: tuple[str, Path, int, float]) -> tuple[list[Said], int]:
    """What is said of a kernel's plants, and how many there was no time for."""
    from porter.diagnostics import PorterError

    name, path, each, end = task
    of, found, left = Planted(name, path), list[Said](), 0
    for kind in PLANTED:
        seen: set[str] = set()
        for number in range(each):
            if time.time() > end:
                left += 1
                continue
            try:
                opcode, kernel = of.with_mistake(kind, random.Random(f"{name} {kind.name} {number}"))
            except (NotThereError, PorterError, ValueError):
                break
            if kernel.ptx in seen:
                continue
            seen.add(kernel.ptx)
            found.append(of.said(kind, opcode, kernel, of.effect(kernel)))
    return found, left


def counted(said: list[Said], left: int, each: int) -> Iterator[str]:
    """The lines of the record."""
    effective = [one for one in said if one.effect]
    yield f"python scripts/checker_plants.py --each {each}"
    yield f"{len({one.kernel for one in said})} kernels, {len(said)} plants, {len(effective)} of them effective" + (
        f"; no time for {left}" if left else "")  # fmt: skip
    of_verdicts = Counter(one.verdict for one in effective)
    yield "effective: " + ", ".join(f"{count} {verdict}" for verdict, count in of_verdicts.most_common())
    yield f"to review without a ruling: {sum(one.unruled for one in said)}"
    idle = Counter(one.verdict for one in said if not one.effect)
    yield "without effect in these runs: " + ", ".join(f"{count} {verdict}" for verdict, count in idle.most_common())
    for one in said:
        shown = one.effect or "-"
        told = ", ".join(one.told) or "-"
        yield f"{one.kernel:26} {one.kind:28} {shown:14} {one.verdict:10} {told}: {one.opcode}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=Path, default=Path("build/checker-plants"))
    parser.add_argument("--each", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3000.0)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    end = time.time() + args.seconds
    tasks = []
    for name, write in KERNELS.items():
        if args.names and name not in args.names:
            continue
        folder = args.launches / "".join(c if c.isalnum() else "-" for c in name)
        kept = list(folder.rglob("launch.yaml"))
        if not kept:
            folder.mkdir(parents=True, exist_ok=True)
            kept = [write(folder)]
        tasks.append((name, kept[0], args.each, end))
    with ProcessPoolExecutor(args.jobs) as pool:
        parts = list(pool.map(of_kernel, tasks))
    print("\n".join(counted([one for part, _ in parts for one in part], sum(n for _, n in parts), args.each)))


if __name__ == "__main__":
    main()
