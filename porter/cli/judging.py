# SPDX-License-Identifier: Apache-2.0
"""What PTX says of a port that a step proposes: whether it leaves what its original leaves, with proved synchronization
of both, at several sizes of each launch that is known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from porter.build.entry import function_name
from porter.build.port_plan import PortPlan
from porter.cli.comparing import THERE, Comparing, Subject, Told, instantiations
from porter.cli.context import Session
from porter.cli.porting import plan_on
from porter.diagnostics import PorterError
from porter.lang.sources import load_sources
from porter.verify.case import Case
from porter.verify.further import further_sizes
from porter.verify.gate import GateOptions
from porter.verify.proof import Judge, Judgement
from porter.verify.proving import Sizes
from porter.verify.refusals import launchable, printed

SIZES = 3
"""Times as long as a comparison beside other checks has, as sizes are more."""
PARTS = 3
"""Both proofs of synchronization and the comparison have as much time each; what they leave is for all sizes."""


def judge(session: Session, options: GateOptions, seconds: float) -> Judge | None:
    """What judges ports; nothing where no time is given."""
    return partial(judged, session, options=options, seconds=seconds) if seconds else None


def judged(
    session: Session, path: Path, plan: PortPlan, kernels: Sequence[str], left: float | None, options: GateOptions,
    seconds: float, for_all: bool = False, alike: Sequence[str] = (), as_original: bool = False,
) -> Judgement:  # fmt: skip
    """The judgement on kernels of these names, or on all, that the compiler makes of a file, each looked at for some
    times the `seconds` of a comparison beside other checks, and in the time that is `left` for all: at sizes of the
    case, in loops of one step and of few, in one in which rings come round, and behind those at which either program
    does something else. `for_all`: with more blocks and turns, and all of those that turns follow, as well. Of kernels
    that are `alike` for all their types an instantiation stands for those that no launch is known of. `as_original`: a
    port whose original has hazards of its own, and which has no others, has to be equal in one schedule."""
    try:
        texts = [file.source for file in load_sources(path, options.include_dirs).files.values()]
        entries = [e for e in launchable(path, options, texts) if not kernels or function_name(e) in kernels]
    except PorterError as error:
        return Judgement("unknown", f"the original does not compile here: {error.diagnostic.message}")
    if not entries:
        return Judgement("unknown", "no kernel is instantiated")
    if what := printed(path, options):
        return Judgement("unknown", what)
    subject = Subject(path, lambda case: plan_on(case, plan), entries)
    most = SIZES * seconds if left is None else min(SIZES * seconds, left / (PARTS + for_all))
    sizes_of = judged_sizes if for_all else instantiations
    found = Comparing(session, most, options, THERE, sizes_of, for_all, beyond=True).compare([subject])
    found, stood_for = _without_launch(path, found, entries, alike)
    judgement = judgement_of(found, each_size=True, as_original=as_original)
    if judgement.status == "equal" and stood_for:
        also = (
            f"{judgement.what}; no launch is known of {stood_for} more of its instantiations, which have the same types"
        )
        return Judgement("equal", also)
    return judgement


def _without_launch(
    path: Path, found: Sequence[Told], entries: Sequence[str], alike: Sequence[str]
) -> tuple[list[Told], int]:
    """What is known, without that nobody launches some instantiations of kernels, where others stand for them; and how
    many these are."""
    looked_at = {e for one in found for e in one.entries}
    left = [e for e in entries if e not in looked_at]
    names = {function_name(e) for e in looked_at}
    if not left or not all(function_name(e) in alike and function_name(e) in names for e in left):
        return list(found), 0
    return [one for one in found if one.entries or one.case != path.name], len(left)


def judgement_of(found: Sequence[Told], each_size: bool, as_original: bool = False) -> Judgement:
    """One kernel that is wrong refuses all, and one that is not known leaves all unknown. `each_size`: so does a size
    for which there was no time, as no run is made of it. `as_original`: one whose original has hazards of its own, and
    its port no others, has to be equal in one schedule."""
    for one in found:
        if one.wrong:
            return Judgement("refused", one.wrong[0].message)
    for one in found:
        if one.equality != "equal" and not (as_original and one.as_original):
            return Judgement("unknown", one.lines[-1])
        if one.left_out and each_size:
            what = f"{one.kernel} is equal {one.extent}, and there was no time for {one.left_out} (`--prove-seconds`)"
            return Judgement("unknown", what)
    told = (f"{t.kernel} {t.extent}" + (f", {t.as_original}" if t.as_original else "") for t in found)
    return Judgement("equal", "; ".join(dict.fromkeys(told)))


def judged_sizes(case: Case) -> list[list[Sizes]]:
    """For each kernel that the sizes of a case compile, those that it lists, and those that a verification adds: as
    launches with one block each way, or few turns, do not tell indices and stages apart."""
    (default, *listed), *others = instantiations(case)
    *longer, wide = [further.sizes for further in further_sizes(case).sizes] or [default]
    every = [wide, default, *listed, *longer]
    return [[s for i, s in enumerate(every) if s not in every[:i]], *others]
