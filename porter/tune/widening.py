# SPDX-License-Identifier: Apache-2.0
"""Whether tiles of a port are twice as wide: where that is faster by the grade, whatever other steps the port then has,
and where its host code follows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from porter.build.port_plan import PortPlan, materialize
from porter.diagnostics import Diagnostic
from porter.grade.changes import Impossible, fitting
from porter.grade.shape import Shape
from porter.lang.sources import load_sources
from porter.passes.native.blocks import NAME as BLOCKS
from porter.passes.native.wide import AS_WIDE, NAME
from porter.passes.ported import Ported, PortedRoot
from porter.passes.widening import why_not
from porter.scan.pipeline import pipelines
from porter.scan.staging import HostLaunch, launch_of
from porter.steps.cute import WIDE_PAIR
from porter.tune.choosing import GAIN, Choice, Chosen, chosen
from porter.tune.searching import Make, Searching, WithoutError, adding, cuda_roots, of_step
from porter.tune.sharing import shared
from porter.tune.staging import major_of, problem_of, rules_of, shape_of, staged
from porter.tune.storing import stored
from porter.verify.expr import FUNCTIONS, ExpressionError, evaluate

NOT_SAID = "what its host code launches it with is not known in numbers"
_SIZES = tuple(8 * k + more for k in (*range(1, 65), *range(80, 161, 16)) for more in (0, 5))
"""Sizes for which grids are compared, whole tiles of any width among them."""


def widened(session: Searching, ported: Ported, make: Make) -> Chosen:
    """A port whose tiles are twice as wide where that is known to be faster."""
    roots = [r for r in cuda_roots(ported) if NAME not in r.native]
    told = {r.path: _why_not(session, ported, r) for r in roots}
    said = [d for d in told.values() if d is not None and d.values["what"] != AS_WIDE]
    return chosen(ported, make, [_Choice(session, ported, r, make=make) for r in roots if told[r.path] is None], said)


def _why_not(session: Searching, ported: Ported, root: PortedRoot) -> Diagnostic | None:
    """What the text of a root lacks, which is cheaper to ask than to port it."""
    sources = load_sources(Path(root.path), root.include_dirs)
    rules = rules_of(session)
    return why_not(sources, rules, lambda path, dirs: pipelines(path, rules, dirs), ported.keeps_hopper)


@dataclass(kw_only=True)
class _Choice(Choice):
    """Whether tiles of one root are to be twice as wide."""

    make: Make

    NAME = NAME

    def choose(self, trial: Ported) -> None:
        if not self.has_step(trial):
            raise self.missing(trial)
        rates, only = [], adding(self.make, chosen=of_step(NAME, [self.root.path]))
        for made, one, how in ((self.ported, self.root, self.make), (trial, self.of(trial), only)):
            try:
                shape = self._with_others(made, one, how)
            except WithoutError as none:
                raise self.without("; ".join(str(d.values["what"]) for d in none.said)) from None
            try:
                fitting(shape)
            except Impossible as error:
                raise self.without(f"room for tiles twice as wide: {error}") from None
            rates.append(self.rate(shape))
        if rates[1] <= rates[0] * (1 + GAIN):
            what = f"a gain at {problem_of(self.session)}: by the grade tiles twice as wide reach {rates[1]:.1%}, "
            raise self.without(f"{what}tiles as they are {rates[0]:.1%}")
        self.chosen = True

    def _with_others(self, ported: Ported, root: PortedRoot, make: Make) -> Shape:
        """What the grade takes of a port with all other steps that are chosen for it."""
        chosen = staged(self.session, ported, make)
        make = adding(make, stages=chosen.counts, without=chosen.without)
        sharing = shared(self.session, chosen.ported, make)
        make = adding(make, chosen=of_step(BLOCKS, sharing.roots))
        ported = stored(self.session, sharing.ported, make).ported
        return shape_of(self.session, ported, next(r for r in ported.roots if r.path == root.path))


def not_followed(session: Searching | None, plan: PortPlan, root: PortedRoot) -> str:
    """What host code of a port with wider tiles does not do: its grid has half the blocks in one dimension, rounded up,
    and the box of one tensor map has twice the rows; of wide pairs another dimension is even, and all boxes stay. Empty
    where it does."""
    original = Path(root.path)
    rules, kernel = rules_of(session), root.kernels[0]
    before = launch_of(original, kernel, rules, root.include_dirs)
    after = launch_of(materialize(plan, original), kernel, rules, root.include_dirs, major_of(session))
    if before is None or after is None or before.grid is None or after.grid is None or root.halved is None:
        return NOT_SAID
    paired = root.pair_axis if WIDE_PAIR in root.native else None
    apart = before.cluster != after.cluster and paired is None
    if len(before.grid) != len(after.grid) or apart or _other(before) != _other(after):
        return "its host code launches it with other arguments, threads or clusters, or makes other tensor maps"
    for dimension, (old, new) in enumerate(zip(before.grid, after.grid, strict=True)):
        for names in _samples(before, after):
            values = [_value(text, names) for text in (old, new)]
            if None in values:
                return NOT_SAID
            blocks = int(values[0] or 0)
            half = -(-blocks // 2)
            wanted = half if dimension == root.halved else 2 * half if dimension == paired else blocks
            if values[1] != wanted:
                return f"its host code launches `{new}` blocks in place of half of `{old}`"
    boxes = [{m.param: m.box for m in launch.maps} for launch in (before, after)]
    changed = [p for p in boxes[0] if boxes[0][p] != boxes[1].get(p)]
    if paired is not None:
        return f"the box of `{changed[0]}` as it was in its host code" if changed else ""
    if len(changed) != 1:
        return "the box of one tensor map that has twice the rows"
    old_box, new_box = boxes[0][changed[0]], boxes[1].get(changed[0], ())
    rows = [(_value(a, {}), _value(b, {})) for a, b in zip(old_box[1:], new_box[1:], strict=False)]
    if old_box[0] != new_box[0] or any(a is None or b != 2 * a for a, b in rows) or len(rows) != 1:
        return f"twice the rows of `{changed[0]}` in its host code"
    return ""


def _other(launch: HostLaunch) -> tuple[object, ...]:
    """What a launch has beside its grid, its clusters, its shared memory and the boxes of its tensor maps."""
    maps = [(m.param, m.base, m.rank, m.dims, m.strides, m.swizzle, m.element) for m in launch.maps]
    return launch.block, launch.sizes, maps


def _samples(*launches: HostLaunch) -> Iterator[Mapping[str, int]]:
    """Values of the sizes that grids are made of."""
    texts = (text for launch in launches for text in launch.grid or ())
    names = sorted({n for text in texts for n in re.findall(r"[A-Za-z_]\w*", text)} - set(FUNCTIONS))
    for size in _SIZES:
        yield dict.fromkeys(names, size)


def _value(text: str, names: Mapping[str, int]) -> int | None:
    try:
        found = evaluate(text, names)
    except ExpressionError:
        return None
    return found if isinstance(found, int) else None
