# SPDX-License-Identifier: Apache-2.0
"""What happens before what, by searching an explicit graph: slow, and simple enough to be seen to be right.

Random programs for a few warps are made as one interleaving that can happen, in which every phase and flag has
only one outcome, so that what synchronizes with what does not depend on the schedule. Each operation stands on a
PTX line of its own.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

SCOPES = ("cta", "cluster", "gpu")


@dataclass(eq=False)
class Op:
    """`kind`: load, store, bar, arrive, wait, set, spin, fence, and for tcgen05 mma, commit, ld, st, wait_ld, wait_st,
    before, after. `place` is a word, a flag, an mbarrier or an accumulator; `instance` a barrier's or a phase."""

    kind: str
    warp: int
    place: tuple[str, int] = ("", 0)
    instance: int = 0
    relaxed: bool = False
    scope: str = "cta"
    line: int = 0


@dataclass
class Program:
    blocks: int
    warps: int
    cluster: int
    ops: list[Op] = field(default_factory=list)

    def of(self, warp: int) -> list[Op]:
        return [op for op in self.ops if op.warp == warp]

    def needed(self, one: Op, other: Op) -> int:
        """The index of the narrowest scope that takes in the warps of both."""
        a, b = one.warp // self.warps, other.warp // self.warps
        return 0 if a == b else 1 if a // self.cluster == b // self.cluster else 2


class Order:
    """The graph. Every operation has a way in and a way out; synchronization leads through hubs."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.edges: dict[object, set[object]] = defaultdict(set)
        for warp in range(program.blocks * program.warps):
            ops = program.of(warp)
            for op in ops:
                self.edges[op, "in"].add((op, "out"))
            for op, following in pairwise(ops):
                self.edges[op, "out"].add((following, "in"))
            for i, op in enumerate(ops):
                self._synchronize(op, ops[:i], ops[i + 1 :])

    def _synchronize(self, op: Op, before: list[Op], after: list[Op]) -> None:
        hub = op.kind if op.kind == "bar" else "phase", op.place, op.instance
        if op.kind == "bar":
            self.edges[op, "in"].add(hub)
            self.edges[hub].add((op, "out"))
        elif op.kind in ("arrive", "commit"):
            source = _last_fence(before, 0) if op.relaxed else op
            if source is not None:
                self.edges[source, "in"].add(hub)
        elif op.kind == "wait":
            target = _next_fence(after, 0) if op.relaxed else op
            if target is not None:
                self.edges[hub].add((target, "out"))
        elif op.kind == "spin":
            setter = next(o for o in self.program.ops if o.kind == "set" and o.place == op.place)
            needed = self.program.needed(setter, op)
            if needed > min(SCOPES.index(op.scope), SCOPES.index(setter.scope)):
                return
            earlier = self.program.of(setter.warp)
            source = setter
            if setter.relaxed:
                source = _last_fence(earlier[: earlier.index(setter)], needed)
            target = _next_fence(after, needed) if op.relaxed else op
            if source is not None and target is not None:
                self.edges[source, "in"].add((target, "out"))

    def reached(self, start: object) -> set[object]:
        seen, todo = {start}, [start]
        while todo:
            for following in self.edges.get(todo.pop(), ()):
                if following not in seen:
                    seen.add(following)
                    todo.append(following)
        return seen

    @cached_property
    def after(self) -> dict[Op, set[object]]:
        return {op: self.reached((op, "out")) for op in self.program.ops}

    def before(self, one: Op, other: Op) -> bool:
        return (other, "in") in self.after[one]

    # Races over ordinary memory -----------------------------------------------------------------------

    def races(self) -> set[tuple[int, int]]:
        """Unordered pairs of accesses, as PTX lines, smaller first."""
        found = set()
        touching = [op for op in self.program.ops if op.kind in ("load", "store", "set", "spin")]
        for i, one in enumerate(touching):
            for other in touching[i + 1 :]:
                if one.place != other.place or one.warp == other.warp:
                    continue
                if one.kind in ("load", "spin") and other.kind in ("load", "spin"):
                    continue
                strong = one.kind in ("set", "spin") and other.kind in ("set", "spin")
                scope = min(SCOPES.index(one.scope), SCOPES.index(other.scope))
                if strong and self.program.needed(one, other) <= scope:
                    continue
                if not (self.before(one, other) or self.before(other, one)):
                    found.add((min(one.line, other.line), max(one.line, other.line)))
        return found

    # Tensor Memory ------------------------------------------------------------------------------------

    def tensor_races(self) -> set[tuple[int, int]]:
        """Pairs of tcgen05 operations on one accumulator that are not ordered as PTX ISA 9.7.16.6 asks."""
        found = set()
        touching = [op for op in self.program.ops if op.kind in ("mma", "ld", "st")]
        for i, one in enumerate(touching):
            for other in touching[i + 1 :]:
                reads = one.kind == other.kind == "ld"
                if one.place == other.place and not reads and not self._tensor_ordered(one, other):
                    found.add((one.line, other.line))
        return found

    def _tensor_ordered(self, one: Op, other: Op) -> bool:
        """Both MMAs come from one thread, and ld and st reach only their own warp's lanes."""
        if one.kind == other.kind == "mma" or (one.warp != other.warp and "mma" not in (one.kind, other.kind)):
            return True
        mine = self.program.of(one.warp)
        later = mine[mine.index(one) + 1 :]
        if one.kind == "mma":
            # The commit implies the fence, its phase carries completion.
            published = [op for op in later if op.kind == "commit"][:1]
            starts: list[object] = [("phase", op.place, op.instance) for op in published]
        else:
            waits = [op for op in later if op.kind == f"wait_{one.kind}"][:1]
            if one.warp == other.warp:
                return bool(waits) and self.before(waits[0], other)
            done = later[later.index(waits[0]) :] if waits else []
            starts = [(op, "in") for op in done if op.kind == "before"]
        theirs = self.program.of(other.warp)
        fences = [op for op in theirs[: theirs.index(other)] if op.kind == "after"]
        return any((fence, "in") in self.reached(start) for start in starts for fence in fences)


def _last_fence(ops: list[Op], scope: int) -> Op | None:
    return next((o for o in reversed(ops) if o.kind == "fence" and SCOPES.index(o.scope) >= scope), None)


def _next_fence(ops: list[Op], scope: int) -> Op | None:
    return next((o for o in ops if o.kind == "fence" and SCOPES.index(o.scope) >= scope), None)


# Random programs ----------------------------------------------------------------------------------------


class Phases:
    """One mbarrier: `expected` arrivals a phase, taken in turn; the whole of its state."""

    def __init__(self, expected: int) -> None:
        self.expected, self.arrived, self.phase = expected, 0, 0

    def arrive(self) -> int:
        """Returns the phase that the arrival belongs to."""
        current = self.phase
        self.arrived += 1
        if self.arrived == self.expected:
            self.arrived, self.phase = 0, current + 1
        return current


def random_program(rng: random.Random, length: int) -> Program:
    """Loads and stores of words, barriers, mbarriers, flags with semantics and scopes, fences."""
    cluster = rng.choice((1, 2))
    program = Program(rng.choice((1, 2)) * cluster, 2, cluster)
    everyone = range(program.blocks * program.warps)
    phases = [Phases(program.warps) for _ in range(program.blocks)]
    arrived: dict[int, int] = {}
    flags: list[tuple[str, int]] = []
    barriers = 0
    ops = program.ops
    careful = rng.random() < 0.5
    while len(ops) < length:
        warp = rng.choice(everyone)
        block = warp // program.warps
        if careful and ops and ops[-1].kind in ("load", "store") and rng.random() < 0.97:
            flags.append(("flag", len(flags)))
            _tell_everyone(rng, program, ops[-1], flags[-1])
        kind = rng.choices(("load", "store", "bar", "mbarrier", "set", "spin", "fence"), (6, 4, 1, 4, 2, 4, 2))[0]
        relaxed, scope = rng.random() < 0.3, rng.choice(SCOPES)
        if kind in ("load", "store"):
            word = rng.randrange(2)
            ops.append(Op(kind, warp, rng.choice(((f"shared{block}", word), ("global", word)))))
        elif kind == "bar":
            barriers += 1
            ops += [Op("bar", block * program.warps + w, instance=barriers) for w in range(program.warps)]
        elif kind == "mbarrier" and warp not in arrived:
            phase = phases[block].arrive()
            arrived[warp] = phase
            ops.append(Op("arrive", warp, ("mbarrier", block), phase, relaxed))
        elif kind == "mbarrier" and phases[block].phase > arrived[warp]:
            ops.append(Op("wait", warp, ("mbarrier", block), arrived.pop(warp), relaxed))
        elif kind == "set":
            flags.append(("flag", len(flags)))
            ops.append(Op("set", warp, flags[-1], 0, relaxed, scope))
        elif kind == "spin" and flags:
            ops.append(Op("spin", warp, rng.choice(flags), 0, relaxed, scope))
        elif kind == "fence":
            ops.append(Op("fence", warp, scope=scope))
    return program


def _tell_everyone(rng: random.Random, program: Program, access: Op, flag: tuple[str, int]) -> None:
    """A flag that tells all warps of an access, by semantics or by fences; seldom with too narrow a scope."""
    fenced = rng.random() < 0.5

    def scope() -> str:
        return "gpu" if rng.random() < 0.97 else "cta"

    steps = [Op("set", access.warp, flag, 0, fenced, scope())]
    steps[:0] = [Op("fence", access.warp, scope=scope())] if fenced else []
    for warp in range(program.blocks * program.warps):
        if warp != access.warp:
            steps.append(Op("spin", warp, flag, 0, fenced, scope()))
            steps += [Op("fence", warp, scope=scope())] if fenced else []
    program.ops += steps


def random_tensor_program(rng: random.Random, length: int) -> Program:
    """tcgen05 operations on two accumulators by four warps, of which the first one issues the MMAs. Each commit has
    an mbarrier of its own."""
    program = Program(1, 4, 1)
    commits = 0
    ops = program.ops
    kinds = ("mma", "commit", "wait", "ld", "st", "wait_ld", "wait_st", "before", "after", "bar")
    # Most of the programs synchronize after every access, and may forget one step of it once.
    careful, forgets = rng.random() < 0.7, rng.random() < 0.9
    while len(ops) < length:
        warp = rng.randrange(4)
        kind = rng.choices(kinds, (3, 3, 5, 3, 2, 3, 2, 3, 4, 2))[0]
        steps = [kind]
        if careful:
            kind = rng.choice(("mma", "ld", "st"))
            steps = {"mma": ["mma", "commit", "waits", "afters"]}.get(
                kind, [kind, f"wait_{kind}", "befores", "bar", "afters"]
            )
            if forgets and rng.random() < 0.25:
                steps.remove(rng.choice(steps[1:]))
                forgets = False
        for step in steps:
            if step in ("mma", "ld", "st"):
                ops.append(Op(step, 0 if step == "mma" else warp, ("tile", rng.randrange(2))))
            elif step == "commit":
                ops.append(Op("commit", 0, ("mbarrier", commits)))
                commits += 1
            elif step == "wait":
                recent = range(max(commits - 3, 0), commits)
                ops += [Op("wait", warp, ("mbarrier", rng.choice(recent)))] if commits else []
            elif step == "waits":
                ops += [Op("wait", w, ("mbarrier", commits - 1)) for w in range(4) if commits]
            elif step == "bar":
                ops += [Op("bar", w, instance=len(ops)) for w in range(4)]
            elif step in ("befores", "afters"):
                ops += [Op(step[:-1], w) for w in range(4)]
            else:
                ops.append(Op(step, warp))
    # In the end everything completes, so that the memory can be given back.
    ops.append(Op("commit", 0, ("mbarrier", commits)))
    ops += [Op("wait", w, ("mbarrier", commits)) for w in range(4)]
    for kind in ("wait_ld", "wait_st", "before"):
        ops += [Op(kind, w) for w in range(4)]
    ops += [Op("bar", w, instance=len(ops)) for w in range(4)]
    ops += [Op("after", w) for w in range(4)]
    return program
