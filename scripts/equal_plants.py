# SPDX-License-Identifier: Apache-2.0
"""docs/results/equality-plants.txt: mistakes planted in ports, and whether `porter equal` tells them.

    python scripts/equal_corpus.py --pack FILE
    python scripts/equal_plants.py --packed FILE [--jobs N] [NAME ...] > docs/results/equality-plants.txt

Each is an edit of one line of the port's PTX: a number, two registers that change places, a product that is left out,
another comparison, another rounding. It is effective where the simulator's run of the case, with inputs of one family,
leaves other bits than the port does, or does not end: then it must not be called equal.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

from packed import Unpacker, options, unpacked

EACH = 24
"""Plants in each port."""


class Kind(NamedTuple):
    name: str
    line: str
    edit: Callable[[str, random.Random], str]


def _swapped(line: str, dice: random.Random) -> str:
    """Two registers of a list change places."""
    found = re.search(r"\{([^}]*)\}", line)
    assert found is not None
    names = [n.strip() for n in found.group(1).split(",")]
    one, other = dice.sample(range(len(names)), 2)
    names[one], names[other] = names[other], names[one]
    return f"{line[: found.start(1)]}{', '.join(names)}{line[found.end(1) :]}"


def _number(line: str, dice: random.Random) -> str:
    found = re.search(r"(-?\d+);\s*$", line)
    assert found is not None
    number = int(found.group(1))
    changed = dice.choice([number + 1, number * 2 + 2, number - 1, number ^ 16])
    return f"{line[: found.start(1)]}{changed};"


def _sub(pattern: str, by: str) -> Callable[[str, random.Random], str]:
    return lambda line, dice: re.sub(pattern, by, line, count=1)


def _turned(line: str, dice: random.Random) -> str:
    """The last two operands that are no predicate."""
    head, rest = line.strip().rstrip(";").split(None, 1)
    names = [n.strip() for n in rest.split(",")]
    one, other = (1, 2) if head.startswith("selp") else (-1, -2)
    names[one], names[other] = names[other], names[one]
    return f"{head} {', '.join(names)};"


KINDS = (
    Kind("number", r"\b(add|sub|shl|shr|and|or|mad|mul|mov|bfe|bfi|min|max)\.(?!pred)\S+\s.*, -?\d+;", _number),
    Kind("elements stored", r"\bst\.\S*v[24]\S*\s.*\{[^}]*,", _swapped),
    Kind("elements loaded", r"\btcgen05\.ld\S*\s+\{[^}]*,", _swapped),
    Kind("coordinates", r"\bcp\.\S*tensor.*\{[^}]*,", _swapped),
    Kind("product left out", r"\btcgen05\.mma\.", _sub(r"^.*$", "")),
    Kind("store left out", r"\bst\.(global|shared)", _sub(r"^.*$", "")),
    Kind("rounding", r"\bcvt\.rn\.", _sub(r"\.rn\.", ".rz.")),
    Kind("operands", r"\b(fma\.rn\.f32|sub\.f32|selp\.\w+)\s", _turned),
    Kind("operation", r"\bmul\.(rn\.)?f32\s", _sub(r"mul\.(rn\.)?f32", "add.f32")),
    Kind("comparison", r"\bsetp\.(lt|gt|le|ge|eq|ne)\.", lambda line, dice: re.sub(
        r"setp\.(lt|gt|le|ge|eq|ne)\.", lambda m: f"setp.{_OTHER[m.group(1)]}.", line, count=1)),
    Kind("address", r"\b(ld|st)\.(global|shared)\S*\s.*\[%\w+(\+\d+)?\]", lambda line, dice: re.sub(
        r"\[(%\w+)(\+(\d+))?\]", lambda m: f"[{m.group(1)}+{int(m.group(3) or 0) + 16}]", line, count=1)),
)  # fmt: skip
_OTHER = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq"}


class Said(NamedTuple):
    kernel: str
    kind: str
    line: str
    effective: bool
    status: str
    why: str


def plants(ptx: str, reached: set[int], dice: random.Random) -> Iterator[tuple[str, str, str]]:
    """Kind, the line, and the PTX with a mistake in it, of lines that a run comes to."""
    lines = ptx.split("\n")
    places = {
        kind.name: [n for n in range(len(lines)) if n + 1 in reached and re.search(kind.line, lines[n])]
        for kind in KINDS
    }
    for number in range(EACH):
        kind = KINDS[number % len(KINDS)]
        if not places[kind.name]:
            kind = KINDS[0]
        at = dice.choice(places[kind.name])
        changed = kind.edit(lines[at], dice)
        if changed != lines[at]:
            yield kind.name, lines[at].strip(), "\n".join([*lines[:at], changed, *lines[at + 1 :]])


def of_port(task: tuple[str, str, tuple[Any, Any, Any]]) -> list[Said]:
    from porter.diagnostics import PorterError
    from porter.verify.backends import SimBackend
    from porter.verify.builder import parse_ptx
    from porter.verify.case_program import Program
    from porter.verify.equality import Comparison
    from porter.verify.images import make_image
    from porter.verify.inputs import choose, generate
    from porter.verify.outcomes import Outcomes, UnknownError
    from porter.verify.settings import SimOptions

    name, style, (case, plan, made) = task
    builder = Unpacker(made)
    original, port = Program(case, builder), Program(case, builder, plan)
    comparison, outcomes = Comparison(original, port), Outcomes()
    ours, theirs = original.at({}), port.at({})
    problem = theirs[1]
    inputs = generate(ours[1], choose(None, ours[1])[0], 0)

    def run(kernel: Any, budget: int | None = None) -> Any:
        images = {n: make_image(t, inputs.get(n), 0) for n, t in problem.tensors.items()}
        return SimBackend(SimOptions(budget=budget)).run(kernel, problem, kernel.launch(problem), images)

    right = run(theirs[0])
    outputs = [t.name for t in problem.outputs]
    found = []
    for kind, line, text in plants(theirs[0].ptx, set(right.stats.lines), random.Random(f"{name} {style}")):
        try:
            kernel = replace(theirs[0], ptx=text, module=parse_ptx(text, name))
            result = run(kernel, 4 * right.warp_instructions + 50_000)
            left = {n: result.after[n].data.tobytes() for n in outputs} if result.status == "ok" else None
            effective = left != {n: right.after[n].data.tobytes() for n in outputs}
        except (PorterError, ValueError):
            continue
        try:
            pair = comparison.at(ours, (kernel, problem))
            apart, _ = outcomes.compared(pair.original, pair.port, pair.at)
            status = "differs" if apart is not None else _order(kernel, problem) if effective else "equal"
            found.append(Said(f"{name} {style}", kind, line, effective, status, ""))
        except (UnknownError, ValueError) as error:
            found.append(Said(f"{name} {style}", kind, line, effective, "unknown", str(error)))
    return found


def _order(kernel: Any, problem: Any) -> str:
    """What the proof of synchronization says of a port that leaves the same under one schedule: without it nothing is
    called equal."""
    from porter.facts.code import Code
    from porter.facts.flow import Flow
    from porter.sync.checked import Verdict, check
    from porter.verify.proving import clusters_looked_at

    flow = Flow(Code(kernel.module, kernel.function))
    for launched in clusters_looked_at(problem, flow):
        verdict = check(replace(launched, areas=()), rulings="strict").verdict
        if verdict not in (Verdict.CLEAN, Verdict.REVIEW):
            return "unknown" if verdict is Verdict.UNKNOWN else "order"
    return "equal"


def main() -> None:
    args = options(__doc__, "unused")
    tasks = unpacked(args.packed, args.names)
    with ProcessPoolExecutor(args.jobs) as pool:
        said = [one for part in pool.map(of_port, tasks) for one in part]
    effective = [one for one in said if one.effective]
    print("python scripts/equal_plants.py --packed FILE")
    print(f"{len({one.kernel for one in said})} ports, {len(said)} plants, {len(effective)} of them effective")
    for one in effective:
        if one.status == "equal":
            print(f"MISSED {one.kernel}: {one.kind}: {one.line}")
    for kind, total in Counter(one.kind for one in effective).most_common():
        counts = Counter(one.status for one in effective if one.kind == kind)
        print(f"  {kind:18} {total:5} effective: {', '.join(f'{n} {status}' for status, n in counts.most_common())}")
    why = Counter(" ".join(one.why.split()[:8]) for one in effective if one.status == "unknown")
    for text, times in why.most_common():
        print(f"  {times:5} unknown: {text}")
    idle = Counter(one.status for one in said if not one.effective)
    print(f"without effect on these inputs: {', '.join(f'{n} {status}' for status, n in idle.most_common())}")


if __name__ == "__main__":
    main()
