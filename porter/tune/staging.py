# SPDX-License-Identifier: Apache-2.0
"""How many stages the rings of a port have: as many as the grade finds best, where the host code follows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from porter.build.port_plan import PortPlan, Relaunch, materialize
from porter.diagnostics import Code, Diagnostic, Location, PorterError
from porter.grade.changes import fullest
from porter.grade.model import STANDARD
from porter.grade.raster import missing as no_order
from porter.grade.shape import Problem, Shape
from porter.grade.stages import best_count
from porter.grade.whatif import read_problem
from porter.passes.native.pair import NAME as PAIR
from porter.passes.native.raster import GROUP
from porter.passes.native.raster import NAME as RASTER
from porter.passes.native.stages import NAME
from porter.passes.native.step import declared
from porter.passes.native.tiles import NAME as TILES
from porter.passes.native.wide import NAME as WIDE
from porter.passes.port import PortOptions
from porter.passes.ported import Ported, PortedRoot
from porter.passes.targets import port_target
from porter.rules.load import load_rules
from porter.rules.rule import Rule
from porter.scan.boxes import boxes_of
from porter.scan.library_ring import held_stages, most_stages
from porter.scan.pipeline import pipelines
from porter.scan.staging import Asked, asked_of, most_stages_of
from porter.steps.cute import WIDE_PAIR
from porter.tune.candidates import calibration_of, candidate, cases_of, grade_with, port_of
from porter.tune.layouts import layout_of
from porter.tune.searching import (
    Counts,
    Make,
    OfRoot,
    Pairs,
    Searching,
    WithoutError,
    adding,
    builder_of,
    cuda_roots,
    lacking,
)  # fmt: skip
from porter.verify.prepare import prepare


def major_of(session: Searching | None) -> int:
    """The first number of the compute capability that ports are for."""
    return port_target(session.target).capability[0] if session is not None else PortOptions().target.capability[0]


def rules_of(session: Searching | None) -> list[Rule]:
    """The rules of a session."""
    return load_rules(tuple(map(str, session.rules)) if session is not None else ())


@dataclass(frozen=True)
class Staged:
    """The port with the stages that are chosen, and these; `without`: steps that are no gain; `said`: why."""

    ported: Ported
    counts: Counts
    said: tuple[Diagnostic, ...] = ()
    without: Pairs = frozenset()


def port_plan(session: Searching | None, ported: Ported, root: PortedRoot | None = None) -> PortPlan:
    """A port, or what one root of it is compiled with, for a builder."""
    files = ported.elsewhere() if root is None else ported.of_root(root)
    roots = [root] if root is not None else ported.roots
    reorders = any(changes.numerics for r in roots for changes in declared(r.native))
    plan = PortPlan(files=files, keeps_hopper=ported.keeps_hopper, reorders=reorders, layout=layout_of(ported),
                    at_practice=any(r.absent for r in roots))  # fmt: skip
    staged = [r for r in roots if not r.dsl and (r.stages or PAIR in r.native or r.permuted or r.halved is not None)]
    return replace(plan, relaunch=_relaunch(session, plan, staged[0])) if len(staged) == 1 else plan


def stages_said(session: Searching, ported: Ported, root: PortedRoot) -> list[Diagnostic]:
    """What cases say that run the port of a root as a file of its own."""
    relaunch = port_plan(session, ported, root).relaunch
    if relaunch is None:
        return []
    cases = cases_of(root)
    given = (cases[0].template, cases[0].launch.grid, cases[0].map_params) if cases else ((), (), ())
    section = json.dumps(relaunch.section(*given)).replace('"', "")
    values: dict[str, object] = {"path": root.path, "stages": root.stages, "section": section}
    code = Code.NATIVE_STAGES if root.stages else Code.PERMUTED_MAPS
    if relaunch.halved is not None or relaunch.pairs:
        code = Code.NATIVE_PAIRS if relaunch.halved is None else Code.NATIVE_WIDE
    return [Diagnostic(code, Location(root.path), values)]


def _relaunch(session: Searching | None, plan: PortPlan, root: PortedRoot) -> Relaunch | None:
    """What the host code of a port launches its kernel with; None where it does not say so in numbers."""
    pairs = PAIR in root.native
    halves_boxes = pairs and root.idiomatic and WIDE_PAIR not in root.native
    other_boxes = root.permuted or WIDE in root.native or halves_boxes
    rows = _rows(session, plan, root) if other_boxes else ()
    if rows is None:
        return None
    original, rules = Path(root.path), rules_of(session)
    if not root.stages and root.halved is None and not (pairs and root.idiomatic):
        return Relaunch(None, pairs=pairs, rows=rows)
    before = asked_of(original, root.kernels[0], rules, root.include_dirs)
    after = asked_of(materialize(plan, original), root.kernels[0], rules, root.include_dirs, major_of(session))
    if before is None or after is None or after.dynamic_smem is None:
        return None
    smem = after.dynamic_smem if after.dynamic_smem != before.dynamic_smem else None
    both = zip(before.template, after.template, strict=False)
    template = tuple((i, new) for i, (old, new) in enumerate(both) if old != new)
    return Relaunch(smem, template, pairs, rows, root.halved, root.pair_axis)


def _rows(session: Searching | None, plan: PortPlan, root: PortedRoot) -> tuple[tuple[int, int], ...] | None:
    """By the index of the parameter, the rows of those boxes that tensor maps of a port's host code have and those of
    the original do not have; None where it does not say so of each kernel, and alike."""
    original, rules = Path(root.path), rules_of(session)
    before = {k.kernel: k for k in boxes_of(original, rules, root.include_dirs)}
    port = materialize(plan, original)
    after = {k.kernel: k for k in boxes_of(port, rules, root.include_dirs, major_of(session))}
    found = set()
    for kernel in root.permuted or root.kernels:
        both = [known[kernel].sizes if kernel in known else () for known in (before, after)]
        old, new = ({index: size for index, *size in sizes} for sizes in both)
        if not old or set(old) != set(new) or any(old[i][1] != new[i][1] for i in old):
            return None
        found.add(tuple((i, new[i][0]) for i in sorted(old) if old[i][0] != new[i][0]))
    return found.pop() if len(found) == 1 and () not in found else None


def staged(session: Searching, ported: Ported, make: Make) -> Staged:
    """A port with as many stages in each ring as the grade finds best. A root whose text, host code or case does not
    allow more has as many as it had, and what is said says why."""
    said: list[Diagnostic] = []
    choices: list[_Choice] = []
    without: Pairs = frozenset()
    for name in (*_BESIDE, RASTER):
        asked = [r for r in ported.roots if name in r.native]
        others = cache(partial(make, without=without | {(r.path, name) for r in asked}))
        why_not = partial(_slower, name, others) if name in _BESIDE else _in_l2
        what = {r.path: why_not(session, ported, r) for r in asked}
        said += [lacking(r, name, what[r.path]) for r in asked if what[r.path]]
        without |= {(path, name) for path, why in what.items() if why}
        ported = make(without=without) if any(what.values()) else ported
    if without:
        make = adding(make, without=without)
    for root in cuda_roots(ported):
        choice = _Choice(session, ported, root, make)
        said += choice.try_to(choice.look)
        choices += [choice] if choice.most else []
    if choices:
        most = make(stages=frozenset((c.root.path, c.most) for c in choices))
        for choice in choices:
            said += choice.try_to(partial(choice.choose, most))
    counts = frozenset((c.root.path, c.best) for c in choices if c.best)
    found = make(stages=counts) if counts else ported
    return Staged(found, counts, tuple(said), without)


def problem_of(session: Searching) -> Problem:
    """The size of the product that steps are chosen for."""
    return read_problem(session.problem) if session.problem else STANDARD


_BESIDE = {
    PAIR: ("pairs reach", "single CTAs"),
    WIDE_PAIR: ("pairs with two tiles beside each other reach", "pairs with one"),
    TILES: ("blocks that take tiles over reach", "blocks of one tile"),
}
"""Steps that a port has but where the grade finds it as fast without, and what kernels are with and without them."""


def _slower(
    name: str, others: Callable[[], Ported], session: Searching, ported: Ported, root: PortedRoot
) -> str:  # fmt: skip
    """What the grade says of a step by which a root is no faster than it is without, as `others` have it: of a product
    of few tiles some SMs have nothing to do, whatever the others do. Where there is no grade it stays."""
    (with_it, without_it), problem, using = _BESIDE[name], problem_of(session), calibration_of(session, None)
    bare = others()
    other = next(r for r in bare.roots if r.path == root.path)
    try:
        shapes = [shape_of(session, made, one) for made, one in ((ported, root), (bare, other))]
        if name == WIDE_PAIR:
            # operands of a stage are more: both have as many of these as fit
            shapes = [fullest(shape) for shape in shapes]
        rates = [grade_with(shape, problem, using, lifts=False).rate for shape in shapes]
    except (WithoutError, PorterError, ValueError):
        return ""
    reached = f"by the grade {with_it} {rates[0]:.1%}, {without_it} {rates[1]:.1%}"
    return f"a gain at {problem}: {reached}" if rates[0] <= rates[1] else ""


def _in_l2(session: Searching, ported: Ported, root: PortedRoot) -> str:
    """What keeps another order of tiles from asking less of memory: L2 holds what those that run at a time load, or
    nobody knows what that is."""
    problem = problem_of(session)
    try:
        what = no_order(shape_of(session, ported, root), problem, GROUP)
    except WithoutError as none:
        return "; ".join(str(d.values["what"]) for d in none.said)
    except (PorterError, ValueError) as error:
        return f"what is loaded: {error.diagnostic.message if isinstance(error, PorterError) else error}"
    return f"a gain at {problem}: {what}" if what else ""


@dataclass
class _Choice(OfRoot):
    """How many stages one root is to have: it has `held` of `nbytes`, there is room for `most`; `best` is 0 for those
    that it has."""

    make: Make
    held: int = 0
    nbytes: int = 0
    most: int = 0
    best: int = 0

    NAME = NAME

    def look(self) -> None:
        """How many stages there are, and how many shared memory holds.

        Raises:
            WithoutError: no more than there are; PorterError: what reading raises.
        """
        if self.ported.keeps_hopper:
            raise self.without("one launch for one chip: the original's form stands beside the port's")
        path, rules = Path(self.root.path), rules_of(self.session)
        of_library = held_stages(path, self.root.kernels[0], rules, self.root.include_dirs)
        if isinstance(of_library, str):
            raise self.without(of_library)
        if of_library is not None:
            self._look_at_sizes(of_library)
            return
        found = [p for p in pipelines(path, rules, self.root.include_dirs) if p.pipeline.kernel in self.root.kernels]
        if not found:
            raise self.without("a ring of mbarriers")
        if len(found) != 1:
            raise self.without("that the file has one kernel with a ring")
        most = most_stages_of(found[0])
        if isinstance(most, str):
            raise self.without(most)
        held = [r.stages.value for r in found[0].pipeline.rings if r.stages is not None and r.stages.value]
        filled = [copied or expected or 0 for expected, copied in found[0].filled.values()]
        self.held, self.nbytes, self.most = held[0], max(filled), most

    def _look_at_sizes(self, held: int) -> None:
        """The same where types of a library are made of the number: a stage takes what the launch asks for more with
        one more. Raises WithoutError: the step refuses it, or host code does not say in numbers what it asks for."""

        def asks(count: int) -> int:
            """What a launch asks for with so many stages."""
            made = self.ported
            if count > held:
                made = self.make(stages=frozenset({(self.root.path, count)}))
                if not self.of(made).stages:
                    raise self.missing(made)
            found = self._asked(made)
            if found is None or found.dynamic_smem is None:
                raise self.without("the dynamic shared memory of the launch, as a number")
            return found.dynamic_smem

        most = most_stages(held, asks)
        if most <= held:
            raise self.without(f"room: {held} stages fill shared memory")
        # that more stages take more of what is asked for, the step has seen by the types
        self.held, self.nbytes, self.most = held, 0, most

    def _asked(self, made: Ported) -> Asked | None:
        """What launches of a port ask for, as its host code says."""
        root, rules = self.of(made), rules_of(self.session)
        port = materialize(PortPlan(files=made.of_root(root), layout=layout_of(made)), Path(root.path))
        return asked_of(port, root.kernels[0], rules, root.include_dirs, major_of(self.session))

    def choose(self, most: Ported) -> None:
        """The number that the grade finds best, of those up to what the port `most` has.

        Raises:
            WithoutError: that is the one that there is; PorterError, ValueError: what compiling and grading raise.
        """
        root = self.of(most)
        if not root.stages:
            raise self.missing(most)
        before = asked_of(Path(root.path), root.kernels[0], rules_of(self.session), root.include_dirs)
        if not _grows(before, self._asked(most), (root.stages - self.held) * self.nbytes):
            raise self.without("shared memory of the launch that grows with the stages")
        # the text may allow powers of two alone
        any_number = root.stages == self.most
        counts = [n for n in range(self.held + 1, root.stages + 1) if any_number or n & (n - 1) == 0]
        using = calibration_of(self.session, None)
        problem = problem_of(self.session)
        shape = shape_of(self.session, self.ported, self.root)
        best = best_count(shape, counts, lambda s: grade_with(s, problem, using, lifts=False).rate)
        if best <= self.held:
            raise self.without(f"a gain: by the grade {self.held} stages are as fast as {root.stages}")
        self.best = best


def shape_of(session: Searching, ported: Ported, root: PortedRoot) -> Shape:
    """A port as the grade reads it, at the default size of its first case.

    Raises:
        WithoutError: it does not; PorterError: what compiling raises.
    """
    plan = replace(port_plan(session, ported, root), section=None)
    cases = [c for c in cases_of(root) if c.dsl is None]
    if not cases:
        raise WithoutError(lacking(root, NAME, "a case beside it, whose launch is graded"))
    found, _ = prepare(cases[0], ["port"], builder_of(session), cases[0].sizes, 0, port_of(plan))
    read = [candidate(p.program, p.kernel, p.problem, p.launch) for p in found if p.kernel.function is not None]
    if not read or read[0].reading.shape is None or read[0].gaps:
        gaps = "; ".join(read[0].gaps) if read else "nothing was compiled"
        raise WithoutError(lacking(root, NAME, f"what is graded: {gaps}"))
    return read[0].reading.shape


def _grows(before: Asked | None, after: Asked | None, least: int) -> bool:
    """Whether a launch asks for at least so many bytes more than before."""
    asked = [found.dynamic_smem if found is not None else None for found in (before, after)]
    return asked[0] is not None and asked[1] is not None and asked[1] - asked[0] >= least
