# SPDX-License-Identifier: Apache-2.0
"""Kernels as the main() of their file launches them, and that of its port: both run on the simulator, with arguments of
several sizes where they take some."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from porter.build.port_plan import PortPlan, materialize
from porter.build.toolchain import find_toolkit
from porter.build.tree import own_first
from porter.cli.context import Session
from porter.cli.launched import LONGEST_RUN
from porter.cli.programs import program_request
from porter.lang.lexical import lexed
from porter.lang.sources import read_source
from porter.scan.draft.new import has_main
from porter.verify.gate import GateOptions
from porter.verify.program.compare import Few, FirstLaunches
from porter.verify.proved import CaseProofs
from porter.verify.proved_program import what_is_launched
from porter.verify.settings import SimOptions

Arguments = tuple[str, ...]

_LAUNCHES = 16
_INSTRUCTIONS = 250_000
"""Warp instructions that the simulator executes in a second, about."""
_SMALL = 2_000_000
"""Warp instructions of a launch of small sizes: a program that needs more does not take them."""
_PROCESSORS = 4
"""Persistent kernels have a small grid."""
_SIZES = (("512", "256", "448"), ("256", "512", "64"))
"""M, N and K: rows and columns of several tiles, a ring that comes round, and a loop of one step."""
_MAJORS = (("T", "N"), ("N", "T"), ("N", "N"), ("T", "T"))
"""Of A and B, as BLAS names them."""


@dataclass
class _Trying:
    """Arguments that a main() may take in place of its own sizes, small ones first, and none at all. Whether it takes
    them, its launches tell. `wanted`: kernels that were not launched yet."""

    path: Path
    wanted: set[str]
    has_sizes: bool = False
    """Whether sizes were taken."""

    def each(self) -> Iterator[Arguments]:
        if lexed(read_source(self.path)).code.count(b"argv") > 1:
            yield from _SIZES
            if not self.has_sizes:
                yield from (tuple(f"--{n}={value}" for n, value in zip("mnk", sizes, strict=True)) for sizes in _SIZES)
            for majors, sizes in product(_MAJORS, _SIZES if self.has_sizes else ()):
                if self.wanted:
                    yield sizes + majors
        if self.wanted:
            yield ()


def programs_of(
    session: Session, path: Path, plan: PortPlan, options: GateOptions, seconds: float
) -> FirstLaunches | None:
    """A file and its port, whose kernels are looked at for `seconds` each; None if it is no program."""
    if not has_main(path, options.defines):
        return None
    port = materialize(plan, path)
    own = (*own_first(path, port, options.include_dirs), path.parent)
    original, other = (
        replace(program_request(p, (), None, dirs, options.defines, options.flags, ()), multiprocessors=_PROCESSORS)
        for p, dirs in ((path, options.include_dirs), (port, own))
    )
    simulated = SimOptions(budget=min(LONGEST_RUN, int(seconds * _INSTRUCTIONS)))
    few = Few(_LAUNCHES, seconds)
    return FirstLaunches(original, other, find_toolkit(session.toolkit), simulated, few, options.target, seconds)


def compared_by_main(programs: FirstLaunches, left: Collection[str]) -> Iterator[CaseProofs]:
    """What is known of the original's kernels with these mangled names. Sizes at which the original itself stops with
    an error are none of its own. Of a launch that takes too long what it left is not compared.

    Raises:
        PorterError: what compiling and running raise.
    """
    seen, trying = set[object](), _Trying(programs.original.path, set(left))
    small = replace(programs, options=replace(programs.options, budget=_SMALL))
    for arguments in trying.each():
        one = small if arguments else programs
        ours = one.of_original(arguments)
        made = {what_is_launched(r) for r in ours.outcome.launches}
        kernels = {r.kernel for r in ours.outcome.launches}
        ends = ours.outcome.status == "ok" or (ours.outcome.status == "incomplete" and not arguments)
        if not ends or made <= seen or not kernels & set(left):
            continue
        seen |= made
        trying.has_sizes = True
        for found in one.compared(arguments, ours):
            if found.original is None or found.original.entry in left:
                trying.wanted -= {found.original.entry} if found.original is not None else set()
                yield found
