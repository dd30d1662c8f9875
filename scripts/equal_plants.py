# SPDX-License-Identifier: Apache-2.0
"""docs/results/equality-plants.txt: mistakes planted in ports, and whether `porter equal` tells them.

    python scripts/equal_corpus.py --pack FILE [--style STYLE] [NAME ...]
    python scripts/equal_plants.py --packed FILE [--jobs N] [--each N] [--seconds 300] [NAME ...]

`--packed` may be given a folder of such files. Each mistake is an edit of one instruction of the port's PTX
(`plant_kinds.py`) that a run comes to. It is effective where the simulator's run of the case, with inputs of one
family, leaves other bits than the port does, does not end, or has hazards that the port has not: then it must not be
called equal, but where the same bytes are left and all of these hazards are of global memory, which runs alone look
at. That run stands for the ones that `porter equal` makes to show what differs. What begins behind the 64th turn, or
in blocks behind the second one, is run at a size that has them: neither may it be called equal there, nor may what is
said of the first size hold for all of that one. `--seconds`: after these nothing is begun.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from packed import Unpacker, further, options, unpacked
from plant_kinds import KINDS, Kind, NotThereError, chosen, planted

_ALL_SECONDS = 30.0
"""For all sizes of a port with a mistake."""


class Said(NamedTuple):
    """What is said of a port with a mistake. `effect`: how a run shows it; empty if it does not."""

    kernel: str
    kind: str
    line: str
    effect: str
    status: str
    why: str


@dataclass
class Port:
    """A port and its original, as they were packed."""

    case: Any
    plan: Any
    builder: Any

    def __post_init__(self) -> None:
        from porter.verify.budget import Budget
        from porter.verify.case_program import Program
        from porter.verify.equality import Comparison

        self.original, self.port = Program(self.case, self.builder), Program(self.case, self.builder, self.plan)
        self.comparison = Comparison(self.case.name, self.original, self.port, Budget(None))
        self._runs: dict[Any, Any] = {}

    @cached_property
    def small(self) -> Mapping[str, Any]:
        """Sizes at which every pipeline comes round, with as little to do as the case knows."""
        from porter.diagnostics import PorterError

        try:
            self.original.at(self.case.mutate_sizes), self.port.at(self.case.mutate_sizes)
        except PorterError:
            return {}
        return self.case.mutate_sizes  # type: ignore[no-any-return]

    def sizes_for(self, kind: Kind) -> tuple[Mapping[str, Any], str]:
        """Sizes that a kind of mistake needs, and the name of the one that is changed for it.

        Raises:
            NotThereError: no such size is known.
        """
        from porter.diagnostics import PorterError

        if not kind.reach:
            return self.small, ""
        for name, sizes in further(self.port.at({})[1], kind.reach):
            try:
                (_, ours), (_, theirs) = self.original.at(sizes), self.port.at(sizes)
            except PorterError:
                continue
            if kind.reach == "turns" or max(theirs.launch.grid) > 2 <= max(ours.launch.grid):
                return sizes, name
        raise NotThereError(kind.name)

    def run(self, kernel: Any, problem: Any, budget: int | None = None, checking: Any = None) -> Any:
        from porter.verify.backends import SimBackend
        from porter.verify.images import make_image
        from porter.verify.inputs import choose, generate
        from porter.verify.settings import SimOptions

        self.family = choose(None, problem)[0]
        inputs = generate(problem, self.family, 0)
        images = {name: make_image(tensor, inputs.get(name), 0) for name, tensor in problem.tensors.items()}
        options = SimOptions(budget=budget, checking=checking)
        return SimBackend(options).run(kernel, problem, kernel.launch(problem), images)

    def right(self, sizes: Mapping[str, Any], checking: Any = None) -> Any:
        """The run of the port as it is."""
        key = tuple(sorted(sizes.items())), checking
        if key not in self._runs:
            self._runs[key] = self.run(*self.port.at(sizes), checking=checking)
        return self._runs[key]

    def effect(self, kernel: Any, problem: Any, sizes: Mapping[str, Any]) -> str:
        """How a run shows a mistake: `bits`, `end`, `hazard`, or `race` where all of its new hazards are of global
        memory, at whose order the proof does not look (docs/proving.md); empty if it does not, or says too little."""
        from porter.diagnostics import Code

        right = self.right(sizes)
        budget = 4 * right.warp_instructions + 50_000
        result = self.run(kernel, problem, budget)
        if result.status != "ok":
            return "end" if result.status == "error" or result.warp_instructions >= budget else ""
        if any(result.after[t.name].data.tobytes() != right.after[t.name].data.tobytes() for t in problem.outputs):
            return "bits"
        usual, found = (
            Counter(hazard.kind for hazard in of_run.hazards)
            for of_run in (self.right(sizes, "strict"), self.run(kernel, problem, budget, "strict"))
        )
        if not (new := found - usual):
            return ""
        return "race" if all(kind.code is Code.HAZARD_GLOBAL_MEMORY for kind in new) else "hazard"

    def said(self, kernel: Any, sizes: Mapping[str, Any], effect: str) -> tuple[str, str]:
        """What is said of the port with a mistake, at sizes."""
        from porter.verify.shown import Shown

        shown = Shown("nothing") if effect in ("", "hazard", "race") else Shown(effect, self.family.name)  # type: ignore[arg-type]
        self.comparison.show = lambda original, port: shown
        problem = self.port.at(sizes)[1]
        answer = self.comparison.answer(self.original.at(sizes), (kernel, problem))
        if answer.status == "equal" and effect:
            return order(kernel, problem), answer.why
        return answer.status, answer.why

    def is_for_all(self, kernel: Any, right: str, name: str) -> bool:
        """Whether the port with a mistake is called equal at the first size, and so for all of one size."""
        from porter.verify.budget import Budget
        from porter.verify.proved import proofs_of

        builder = _Builder(self.builder, right, kernel)
        found = proofs_of(self.case, self.plan, builder, [{}], _ALL_SECONDS / 3, "both", Budget.of_work(_ALL_SECONDS))
        counts = found.equality.counts if found.equality is not None and found.equality.status == "equal" else ()
        return any(count.name == name and count.is_all for count in counts)


@dataclass
class _Builder:
    """Builds a kernel with a mistake where it is asked for the port."""

    builder: Any
    right: str
    kernel: Any

    def build(self, problem: Any, source: Path, arch: str) -> Any:
        found = self.builder.build(problem, source, arch)
        return replace(self.kernel, recorded=found.recorded) if found.ptx == self.right else found


def order(kernel: Any, problem: Any) -> str:
    """What the proof of synchronization says of a port that leaves the same under one schedule: without it nothing is
    called equal."""
    from porter.facts.code import Code
    from porter.facts.flow import Flow
    from porter.sync.checked import Verdict, check
    from porter.verify.proving import clusters_looked_at

    flow = Flow(Code(kernel.module, kernel.function))
    for launched in clusters_looked_at(problem, flow):
        verdict = check(launched, rulings="strict").verdict
        if verdict not in (Verdict.CLEAN, Verdict.REVIEW):
            return "unknown" if verdict is Verdict.UNKNOWN else "order"
    return "equal"


def of_port(task: tuple[int, str, str, tuple[Any, Any, Any], int, float]) -> tuple[list[Said], int]:
    """What is said of a port's plants, and how many there was no time for."""
    number, name, style, (case, plan, made), each, end = task
    if plan is None:
        return [], 0
    port, found, left = Port(case, plan, Unpacker(made)), list[Said](), 0
    for kind in chosen(number, each):
        if time.time() > end:
            left += 1
            continue
        one = _one(port, f"{name} {style}", kind)
        found += [one] if one is not None else []
    return found, left


def _one(port: Port, name: str, kind: Kind) -> Said | None:
    """A plant of a kind; None if the port has no place for it."""
    from porter.diagnostics import PorterError
    from porter.verify.builder import parse_ptx

    try:
        sizes, changed = port.sizes_for(kind)
        right, problem = port.port.at(sizes)
        reached = set(port.right(sizes).stats.lines)
        line, text = planted(right.ptx, right.entry, kind, reached, random.Random(f"{name} {kind.name}"))
        kernel = replace(right, ptx=text, module=parse_ptx(text, name))
        effect = port.effect(kernel, problem, sizes)
    except (NotThereError, PorterError, ValueError):
        return None
    if effect and changed and port.is_for_all(kernel, right.ptx, changed):
        status, why = "equal", f"for all of {changed}"
    else:
        status, why = port.said(kernel, sizes, effect)
        if status == "equal" and effect == "race":
            status = "run"
    return Said(name, kind.name, " ".join(line.split()), effect, status, why)


def packs(path: Path, names: list[str]) -> Iterator[tuple[str, str, tuple[Any, Any, Any]]]:
    for file in sorted(path.glob("*.pack")) if path.is_dir() else [path]:
        yield from unpacked(file, names)


def main() -> None:
    args = options(__doc__, "after which nothing is begun", more={"--each": 12})
    end = time.time() + args.seconds
    ports = list(packs(args.packed, args.names))
    tasks = [(number, *port, args.each, end) for number, port in enumerate(ports)]
    random.Random(0).shuffle(tasks)
    with ProcessPoolExecutor(args.jobs) as pool:
        parts = list(pool.map(of_port, tasks))
    said, left = [one for part, _ in parts for one in part], sum(left for _, left in parts)
    print("\n".join(counted(said, left)))


def counted(said: list[Said], left: int) -> Iterator[str]:
    effective = [one for one in said if one.effect]
    yield "python scripts/equal_plants.py --packed FILE"
    yield f"{len({one.kernel for one in said})} ports, {len(said)} plants, {len(effective)} of them effective" + (
        f"; no time for {left}" if left else "")  # fmt: skip
    for style, total in Counter(one.kernel.split()[-1] for one in effective).most_common():
        yield f"  {style}: {total} effective"
    for one in effective:
        if one.status == "equal":
            yield f"MISSED {one.kernel}: {one.kind}: {one.line} ({one.effect}; {one.why})"
    of_kinds = Counter(one.kind for one in effective)
    for kind in (kind.name for kind in KINDS if kind.name in of_kinds):
        counts = Counter(one.status for one in effective if one.kind == kind)
        told = ", ".join(f"{n} {status}" for status, n in counts.most_common())
        yield f"  {kind:24} {of_kinds[kind]:5} effective: {told}"
    why = Counter(" ".join(one.why.split()[:8]) for one in effective if one.status == "unknown")
    for text, times in why.most_common():
        yield f"  {times:5} unknown: {text}"
    idle = Counter(one.status for one in said if not one.effect)
    yield f"without effect in these runs: {', '.join(f'{n} {status}' for status, n in idle.most_common())}"


if __name__ == "__main__":
    main()
