# SPDX-License-Identifier: Apache-2.0
"""A port compared with its original by what the compiler made of both: what each byte of the output is made of.

Where both kernels' synchronization is right, what a kernel leaves does not depend on the schedule (for kernels that
meet at barriers: the confluence theorem of Volta, arXiv 2511.12638), so that one execution of each tells. Sizes,
indices and addresses are numbers, all data are terms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from math import prod
from typing import Literal, NamedTuple

import numpy as np

from porter.diagnostics import PorterError
from porter.equal.forms import LARGEST_SIZE as LARGEST_SIZE
from porter.equal.global_uses import GlobalUses, UnorderedError, require_apart, to_watch
from porter.equal.meaning import Follower
from porter.equal.outcome import Difference, Outcome, WrittenTwice, by_description, difference, of_cluster, together
from porter.equal.touched import PlaceFollower
from porter.equal.words import word
from porter.facts.code import Code
from porter.facts.events import NotUnderstood
from porter.facts.executor import run
from porter.facts.flow import Flow
from porter.facts.launched import GLOBAL, Geometry, Launched, Triple
from porter.facts.machine import Machine, Schedule
from porter.facts.placed import OUT_OF_PLACE
from porter.ptx import ast
from porter.ptx.swizzle import PERIOD
from porter.sync.deadlocks import told
from porter.verify.budget import Budget
from porter.verify.builder import BuiltKernel
from porter.verify.case_program import Program
from porter.verify.expr import Number
from porter.verify.originals import made_of, once
from porter.verify.problem import Problem
from porter.verify.proving import APART, Sizes, launched_case, listed
from porter.verify.shown import Built, Show, shown_by

MOST_CLUSTERS = 16
"""Clusters of a grid that are looked at where others do the same with other indices."""
_TILES = (8, 16, 32, 64, 96, 128, 192, 256, 512)
IN_TURN, LAST_FIRST = Schedule(), Schedule(backward=True)
"""How both are executed, and how else where hazards of the original decide what it leaves."""
_MOST_HANDED = 3
"""Clusters whose work is handed to one by try_cancel."""
_ALL_CLUSTERS = 1024
"""Clusters that are executed where a port shares work out in another way."""


class UnknownError(Exception):
    """Something that keeps two programs from being compared, at an instruction of one of them. `is_wrong`: the program
    itself does what no schedule makes right, if a run shows it."""

    def __init__(self, why: str, program: str, flow: Flow, at: int | None, is_wrong: bool = False) -> None:
        super().__init__(why)
        self.why, self.program, self.flow, self.at, self.is_wrong = why, program, flow, at, is_wrong


class Place(NamedTuple):
    """An instruction of the original or of the port."""

    program: str
    flow: Flow
    at: int | None


Status = Literal["equal", "differs", "unknown"]


@dataclass(frozen=True)
class Answer:
    """What is said at one size; `bytes` that are equal."""

    status: Status
    why: str = ""
    places: tuple[Place, ...] = ()
    bytes: int = 0


@dataclass(frozen=True)
class SizeCompared:
    """Whether what is left is the same for all multiples of `step` of a size, whose turns do the same with a period of
    `period` of these, whatever the sizes `beside` it are. Without a step it is for all up to `largest`, as far as
    `upto` says. `why` that is not known, and where."""

    name: str
    step: int = 0
    period: int = 0
    why: str = ""
    place: Place | None = None
    beside: tuple[str, ...] = ()
    largest: int = 0
    upto: str = ""

    @property
    def is_all(self) -> bool:
        return not self.why

    def takes(self, number: Number, changed: Set[str]) -> bool:
        """Whether this is known of a number, where the sizes `changed` are others than those that were looked at."""
        if not self.is_all or self.upto or not isinstance(number, int):
            return False
        if not self.step:
            return number <= self.largest
        return number % self.step == 0 and changed <= {self.name, *self.beside}


@dataclass(frozen=True)
class Equality:
    """`looked_at`: sizes at which both leave the same, `bytes` of it in all. `why`: what is not understood, or what
    differs first, with the inputs whose run shows it: what no run shows may be the same number made in another way, and
    is not known to differ. `places` are where, `at` are the sizes. Without proved synchronization of both it holds for
    the schedule that was executed. `remedy`: what to do about what is not known, where it is not that of all.
    `as_original`: not known only since the original has hazards, of which the port has the same ones in the same places
    and no other: both leave the same in the schedule that was executed."""

    case: str
    status: Status
    looked_at: tuple[str, ...]
    bytes: int
    seconds: float
    why: str = ""
    at: str = ""
    places: tuple[Place, ...] = ()
    assumed: frozenset[str] = frozenset()
    remedy: str = ""
    as_original: bool = False
    counts: tuple[SizeCompared, ...] = ()
    """Sizes that turns follow, where it was looked at whether all of them are equal."""


@dataclass
class Comparison:
    case: str
    original: Program
    port: Program
    budget: Budget
    show: Show = shown_by
    schedule: Schedule = IN_TURN
    follows: Callable[[Sizes], bool] = lambda sizes: False
    """Whether it is known of some sizes that each block of both programs leaves the same."""
    asks_port: bool = False
    """Whether the port is looked at there as well: elsewhere what holds of blocks of its original holds of its own."""
    _flows: dict[str, Flow] = field(default_factory=dict)
    _assumed: set[str] = field(default_factory=set)
    _answers: dict[str, Answer] = field(default_factory=dict)
    """By sizes what was said."""
    stays: set[int] = field(default_factory=set)
    """By how many bytes further on dynamic shared memory may begin for the port to leave the same in its first block at
    the first sizes, where that was looked at alone."""
    depends: set[int] = field(default_factory=set)
    """By how many bytes further on the original leaves something else at some size."""

    def run(self, chosen: Sequence[Sizes]) -> Equality:
        """Raises PorterError: what binding, porting and compiling raise at the first sizes."""
        began = time.perf_counter()
        looked_at: list[str] = []
        total = 0

        def result(status: Status, why: str = "", at: str = "", places: tuple[Place, ...] = ()) -> Equality:
            return Equality(self.case, status, tuple(looked_at), total, time.perf_counter() - began, why, at, places,
                            frozenset(self._assumed))  # fmt: skip

        for sizes in chosen:
            if looked_at and self.budget.is_spent:
                break
            try:
                original, port = self.original.at(sizes), self.port.at(sizes)
            except PorterError:
                if not looked_at:
                    raise
                # the port does not take these
                continue
            at = listed(original[1].sizes)
            answer = self._answers.get(at) or self._by_places(sizes, original, port) or self.answer(original, port)
            self._answers[at] = answer
            if answer.status != "equal":
                return result(answer.status, answer.why, at, answer.places)
            looked_at.append(at)
            total += answer.bytes
        if not total:
            return result("unknown", "neither writes anything", looked_at[0] if looked_at else "")
        return result("equal")

    def _by_places(self, sizes: Sizes, original: Built, port: Built) -> Answer | None:
        """Where each block leaves the same, it is left to ask whether those of one program meet in some place; what the
        blocks of the original do to each other those of the port do as well. Where both are asked, so is whether what
        one block leaves is made of something that nobody has written."""
        launch, flows = original[1].launch, [self.flow_of(kernel) for kernel, _ in (original, port)]
        if not self.follows(sizes) or any(flow.changes_maps or flow.asks_for_work for flow in flows):
            return None
        named = set[int]().union(*map(_compared_with, flows))
        firsts = _spread(list(_clusters(launch.grid, launch.cluster)), launch.cluster, named)
        with suppress(UnknownError):
            found = self._outcome("original", original, firsts, False, places_alone=True)
            if not self.asks_port or self._is_of_port(found, original, port, firsts):
                return Answer("equal", bytes=len(found.addresses))
        return None

    def _is_of_port(self, found: Outcome, original: Built, port: Built, firsts: Sequence[Triple]) -> bool:
        """Whether the port leaves bytes in the same places, and its first block the same ones. Raises UnknownError."""
        other = self._outcome("port", port, firsts, False, places_alone=True)
        if not np.array_equal(found.addresses, other.addresses):
            return False
        moved = moved_by(
            [launched_case(problem, self.flow_of(kernel), firsts[0]) for kernel, problem in (original, port)]
        )
        ours = self._outcome("original", original, firsts[:1], False, set())
        for place in dict.fromkeys((moved, 0)):
            # of a port that leaves the same elsewhere as the original does here nothing else is to be asked
            if difference(ours, self._outcome("port", port, firsts[:1], False, set(), moved=place)) is None:
                self.stays.add(place)
                return True
        return False

    def answer(self, original: Built, port: Built) -> Answer:
        """What is to be said at one size. What differs is run: what no run shows may be the same number made in another
        way. So is a port that is not understood, which may stop with an error."""
        try:
            found, count = self.at(original, port)
        except UnknownError as error:
            where = Place(error.program, error.flow, error.at)
            if error.program == "original":
                return Answer("unknown", error.why, (where,))
            shown = self.show(original, port)
            if shown.how == "end" or (error.is_wrong and shown.how == "bits"):
                return Answer("differs", f"{error.why}; {shown}", (where,))
            return Answer("unknown", f"{error.why}; {shown}" if error.is_wrong else error.why, (where,))
        if found is None:
            return Answer("equal", bytes=count)
        places = places_of(found, self.flow_of(original[0]), self.flow_of(port[0]))
        shown = self.show(original, port)
        if shown.how not in ("bits", "end"):
            again, count = with_tables(found, count, *self._sides(original, port))
            if again is None:
                return Answer("equal", bytes=count)
        status: Status = "differs" if shown.how in ("bits", "end") else "unknown"
        return Answer(status, f"{_what(original[1], found)}; {shown}", places)

    def at(self, original: Built, port: Built) -> tuple[Difference | None, int]:
        """Where they differ at one size, or how many bytes are the same.

        Raises:
            UnknownError: something is not understood.
        """

        return difference_between(*self._sides(original, port))

    def _sides(self, original: Built, port: Built) -> tuple[Side, Side]:
        def left(firsts: Sequence[Triple], knows_tables: bool) -> Outcome:
            def make() -> tuple[Outcome, set[str]]:
                assumed = set[str]()
                return self._outcome("original", original, firsts, knows_tables, assumed), assumed

            key = "outcome", made_of(original), tuple(firsts), knows_tables, self.schedule.backward
            found, assumed = once(key, make, lambda one: len(one[0].addresses), lambda one: True)
            self._assumed |= assumed
            return found

        launches = original[1].launch, port[1].launch
        return (
            Side(launches[0].grid, launches[0].cluster, self.flow_of(original[0]), left),
            Side(launches[1].grid, launches[1].cluster, self.flow_of(port[0]), partial(self._outcome, "port", port)),
        )

    def _outcome(
        self, program: str, built: Built, firsts: Sequence[Triple], knows_tables: bool,
        assumed: set[str] | None = None, places_alone: bool = False, moved: int = 0,
    ) -> Outcome:  # fmt: skip
        flow = self.flow_of(built[0])

        def launched_at(first: Triple) -> Launched:
            return replace(launched_case(built[1], flow, first), moved=moved)

        assumed = self._assumed if assumed is None else assumed
        return left_by_clusters(program, flow, launched_at, firsts, assumed, self.schedule, knows_tables, places_alone)

    def flow_of(self, kernel: BuiltKernel) -> Flow:
        found = self._flows.get(kernel.ptx)
        if found is None:
            assert kernel.function is not None
            found = self._flows[kernel.ptx] = Flow(Code(kernel.module, kernel.function))
        return found


@dataclass(frozen=True)
class Side:
    """A launch of one of two programs. `left` gives what the clusters with these first blocks leave, and with what the
    variables of the module begin with as numbers, if asked for."""

    grid: Triple
    cluster: Triple
    flow: Flow
    left: Callable[[Sequence[Triple], bool], Outcome]


def with_tables(found: Difference, count: int, original: Side, port: Side) -> tuple[Difference | None, int]:
    """The same again, of two that are not known to differ, where what a table holds has become part of what is computed
    and compared: numbers may be tested and combined in one way or another."""
    if not all(_has_tables(side.flow) for side in (original, port)):
        return found, count
    try:
        return difference_between(original, port, knows_tables=True)
    except UnknownError:
        return found, count


def _has_tables(flow: Flow) -> bool:
    return any(v.initial and v.name in flow.symbols for v in flow.code.module.variables)


def difference_between(original: Side, port: Side, knows_tables: bool = False) -> tuple[Difference | None, int]:
    """Where two launches differ, or how many bytes are the same.

    Raises:
        UnknownError: something is not understood.
    """

    def compared(of_original: Sequence[Triple], of_port: Sequence[Triple]) -> tuple[Difference | None, int]:
        ours = original.left(of_original, knows_tables)
        return difference(ours, port.left(of_port, knows_tables)), len(ours.addresses) + len(ours.reductions)

    all_ours, all_theirs = (list(_clusters(side.grid, side.cluster)) for side in (original, port))
    if (original.grid, original.cluster) == (port.grid, port.cluster):
        firsts = _spread(all_ours, original.cluster, _compared_with(original.flow) | _compared_with(port.flow))
        found, count = compared(firsts, firsts)
        if found is None or len(firsts) == len(all_ours):
            return found, count
    # work may be shared out among blocks in another way
    if max(len(all_ours), len(all_theirs)) > _ALL_CLUSTERS:
        why = f"a grid of another shape with more than {_ALL_CLUSTERS} clusters"
        raise UnknownError(why, "port", port.flow, None)
    return compared(all_ours, all_theirs)


def left_by_clusters(
    program: str, flow: Flow, launched_at: Callable[[Triple], Launched], firsts: Sequence[Triple], assumed: set[str],
    schedule: Schedule = IN_TURN, knows_tables: bool = False, places_alone: bool = False,
) -> Outcome:  # fmt: skip
    """What clusters leave, by their first blocks; what is assumed of it is added. `places_alone`: where, and not what.

    Raises:
        UnknownError: something is not understood.
    """
    geometry = launched_at(firsts[0]).geometry
    if (count := prod(geometry.grid) // prod(geometry.cluster)) > len(firsts):
        assumed.add(f"of {count} clusters those do alike that are not looked at, as {len(firsts)} do")
    clusters = _Clusters(program, flow, launched_at, assumed, count > len(firsts), schedule, knows_tables, places_alone)
    try:
        return clusters.together(firsts)
    except NotUnderstood as error:
        is_wrong = isinstance(error, WrittenTwice | UnorderedError)
        raise UnknownError(str(error), program, flow, error.at, is_wrong) from error


@dataclass
class _Clusters:
    """Clusters of a launch. `some_alone`: not all of them are looked at. `places_alone`: of what they leave only where
    counts, and what is stored again is something else each time."""

    program: str
    flow: Flow
    launched_at: Callable[[Triple], Launched]
    assumed: set[str]
    some_alone: bool
    schedule: Schedule
    knows_tables: bool
    places_alone: bool

    def together(self, firsts: Sequence[Triple]) -> Outcome:
        """Raises NotUnderstood, UnknownError."""
        found = [self._of(self.launched_at(first)) for first in firsts]
        outcomes, uses = [outcome for outcome, _ in found], [use for _, use in found]
        stored = frozenset[int]().union(*(use.pages["store"] for use in uses))
        changed = to_watch(uses, self.launched_at(firsts[0]).allocated, self.some_alone)
        for index, (first, outcome) in enumerate(zip(firsts, outcomes, strict=True)):
            pages = uses[index].pages
            watched = pages["load"] & changed | pages["reduction"] & stored | outcome.twice
            if watched:
                _, uses[index] = self._of(self.launched_at(first), frozenset(watched))
                uses[index].require_order()
        require_apart(uses, [outcome.addresses for outcome in outcomes], self.some_alone)
        if self.flow.asks_for_work:
            self._require_handed(self.launched_at(firsts[0]).geometry)
        return together(outcomes)

    def _require_handed(self, geometry: Geometry) -> None:
        """Raises NotUnderstood: what a cluster leaves that is handed others' work is not what these leave."""
        most = min(_MOST_HANDED, prod(geometry.grid) // prod(geometry.cluster) - 1)
        alone = [self._of(self.launched_at(geometry.first_of(number)))[0] for number in range(most + 1)]
        for count in {1, most} if most else ():
            one = self.launched_at(geometry.first_of(0))
            found, _ = self._of(replace(one, geometry=replace(one.geometry, handed_out=count)))
            wrong = difference(together(alone[: count + 1]), found)
            if wrong is not None:
                at = wrong.original if wrong.port is None else wrong.port
                raise NotUnderstood("what a block leaves that is handed the work of others is not what they leave", at)

    def _of(self, launched: Launched, watched: frozenset[int] = frozenset()) -> tuple[Outcome, GlobalUses]:
        """Small tensors of integers, and tables, are those of the launch only where they decide something."""
        known = [*launched.areas, *launched.tables]
        try:
            return self._executed(replace(launched, areas=launched.tables if self.knows_tables else ()), watched)
        except NotUnderstood:
            if not known:
                raise
        return self._executed(replace(launched, areas=known), watched)

    def _executed(self, launched: Launched, watched: frozenset[int]) -> tuple[Outcome, GlobalUses]:
        machine = Machine(launched, self.schedule)
        # what nobody has written is not the same in both programs
        alone = self.places_alone and not watched
        follower = PlaceFollower(machine) if alone else Follower(machine, undefined=word(f"undefined {self.program}"))
        follower.contents.uses.watched = watched
        history = run(machine)
        if history.blocked:
            machine.follow = None
            first, *_ = told(machine)
            why = f": {first.why}" if first.why else ""
            at = first.by[0].at
            raise UnknownError(f"a deadlock at {first.awaited}{why}", self.program, self.flow, at, is_wrong=True)
        for problem in history.problems:
            if problem.kind in OUT_OF_PLACE:
                raise UnknownError(problem.text, self.program, self.flow, problem.at, is_wrong=True)
        self.assumed.update(history.assumed)
        left = by_description(of_cluster(follower.contents.stored), machine.maps.in_scratch())
        return left, follower.contents.uses


def moved_by(launches: Sequence[Launched]) -> int:
    """Bytes by which dynamic shared memory lies higher where its address has no more zeros than is asked for; none
    where some launch has no such memory."""
    alignments = [launched.dynamic_alignment for launched in launches]
    most = max(alignments)
    return 0 if not all(alignments) else PERIOD - most if most < PERIOD else most


def places_of(found: Difference, original: Flow, port: Flow) -> tuple[Place, ...]:
    """The instructions that leave what differs."""
    both = ("original", original, found.original), ("port", port, found.port)
    return tuple(Place(program, flow, at) for program, flow, at in both if at is not None)


def _clusters(grid: Triple, cluster: Triple) -> Iterator[Triple]:
    """The first block of each cluster of a grid."""
    for z, y, x in product(*(range(0, extent, size) for extent, size in zip(grid[::-1], cluster[::-1], strict=True))):
        yield x, y, z


def _spread(clusters: Sequence[Triple], cluster: Triple, named: Collection[int]) -> list[Triple]:
    """The first and the last ones of many, some in between, and those about which the programs may ask by the index of
    a block or of its tile."""
    count = len(clusters)
    if count <= MOST_CLUSTERS:
        return list(clusters)
    evenly = [clusters[i * (count - 1) // (MOST_CLUSTERS - 1)] for i in range(MOST_CLUSTERS)]
    there, last = set(clusters), clusters[-1]
    near = (number + step for number in sorted(named) for step in (-1, 0, 1))
    indices = dict.fromkeys(i for i in near if i > 0)
    axes = [((i // c * c, 0, 0), (i // c * c, *last[1:])) for i in indices for c in cluster[:1]]
    axes += [((0, i // c * c, 0), (last[0], i // c * c, last[2])) for i in indices for c in cluster[1:2]]
    asked = dict.fromkeys(first for both in axes for first in both if first in there and first not in evenly)
    return [*evenly, *list(asked)[:MOST_CLUSTERS]]


def _compared_with(flow: Flow) -> set[int]:
    """Numbers of the text that something is compared with, and how many tiles of usual sizes come up to these."""
    compares = (ins for ins in flow.code.code if ins.parts[0] == "setp")
    numbers = {int(o.value) for ins in compares for o in ins.operands if isinstance(o, ast.Imm) and not o.is_float}
    return numbers | {number // size for number in numbers for size in _TILES if number % size == 0}


def _what(problem: Problem, found: Difference) -> str:
    """What differs, by the tensor and the element."""
    number, offset = divmod(found.address - GLOBAL, APART)
    names = list(problem.tensors)
    where = f"byte {offset}"
    if 0 <= number < len(names):
        tensor = problem.tensors[names[number]]
        where = f"{names[number]}, element {offset // tensor.dtype.bits.itemsize}"
    return f"{where}: {how(found)}"


def how(found: Difference) -> str:
    """In what way a byte differs."""
    if found.original is None:
        return "written by the port alone"
    return "not written by the port" if found.port is None else "made of something else"
