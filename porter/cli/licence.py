# SPDX-License-Identifier: Apache-2.0
"""The licence of M=128 MMAs without a run: a port that is equal to its original on PTX, with proved synchronization of
both, at several sizes of each launch that is known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from porter.build.nvcc import compile_ptx
from porter.build.toolchain import find_toolkit
from porter.cli.comparing import Comparing, Subject, Told, instantiations
from porter.cli.context import Session
from porter.cli.full_rate import Compares, unsaid
from porter.cli.porting import plan_on
from porter.cli.staging import port_plan
from porter.diagnostics import Diagnostic, PorterError
from porter.passes.full_rate.given import equal
from porter.passes.ported import Ported, PortedRoot
from porter.verify.case import Case
from porter.verify.further import further_sizes
from porter.verify.gate import GateOptions, requests
from porter.verify.proving import Sizes

SIZES = 3
"""Times as long as a comparison beside other checks has, as sizes are more."""
PARTS = 3
"""Both proofs of synchronization and the comparison have as much time each; what they leave is for all sizes."""


def licence(session: Session, options: GateOptions, seconds: float) -> Compares | None:
    """What says that ports may have M=128 MMAs where no run can; nothing where no time is given."""
    return partial(licensed, session, options=options, seconds=seconds) if seconds else None


def licensed(
    session: Session, ported: Ported, root: PortedRoot, left: float | None, options: GateOptions, seconds: float
) -> Diagnostic | str:
    """What says that the port of a root may have M=128 MMAs, or why nothing does. All kernels that the compiler makes
    of the file are looked at, for some times the `seconds` of a comparison beside other checks, and in the time that is
    `left` for all."""
    plan = port_plan(session, ported, root)
    if what := unsaid(session, plan, root):
        return what
    path = Path(root.path)
    try:
        entries = _entries(path, options)
    except PorterError as error:
        return f"the original does not compile here: {error.diagnostic.message}"
    if not entries:
        return "no kernel is instantiated"
    subject = Subject(path, lambda case: plan_on(case, plan), entries)
    most = SIZES * seconds if left is None else min(SIZES * seconds, left / (PARTS + 1))
    found = Comparing(session, most, options, sizes_of=_sizes, for_all=True).compare([subject])
    return _missing(found) or equal(root.path, "; ".join(dict.fromkeys(f"{t.kernel} {t.extent}" for t in found)))


def _entries(path: Path, options: GateOptions) -> list[str]:
    toolkit = find_toolkit(options.toolkit)
    return list(dict.fromkeys(e for r in requests(path, options) for e in compile_ptx(r, toolkit).entries))


def _missing(found: Sequence[Told]) -> str:
    """The first kernel that is not known to be equal at all its sizes."""
    for one in found:
        if one.equality != "equal":
            return one.lines[-1]
        if one.left_out:
            return f"{one.kernel} is equal {one.extent}, and there was no time for {one.left_out} (`--prove-seconds`)"
    return ""


def _sizes(case: Case) -> list[list[Sizes]]:
    """For each kernel that the sizes of a case compile, those that it lists, and those that a verification adds: as
    launches with one block each way, or few turns, do not tell indices and stages apart."""
    (default, *listed), *others = instantiations(case)
    *longer, wide = [further.sizes for further in further_sizes(case).sizes] or [default]
    every = [wide, default, *listed, *longer]
    return [[s for i, s in enumerate(every) if s not in every[:i]], *others]
