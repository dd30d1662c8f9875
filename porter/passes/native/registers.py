# SPDX-License-Identifier: Apache-2.0
"""Registers move between warps in other numbers: sums are in Tensor Memory, so the warps that multiply need fewer, and
those that load have enough for what the port adds to them. As many as before are there for all together."""

from __future__ import annotations

from dataclasses import dataclass

from porter.lang.text import Span
from porter.model.functions import Function
from porter.model.kernels import Kernel
from porter.model.pipeline.operations import Operation, operations_of
from porter.model.pipeline.who import Who
from porter.model.program import Program
from porter.passes.native.blocks import SHARED_OUT
from porter.passes.native.register_counts import written_count
from porter.passes.native.sites import Changes, Left, Place, path_of
from porter.passes.native.taking import Taking
from porter.ptx.arch import SM100A, Limits, limits
from porter.ptx.register_file import GRANULARITY, MOST
from porter.ptx.wgmma import THREADS as WARPGROUP
from porter.steps.step import Step

RULE = "PTR196"
NAME = "registers"


@dataclass(frozen=True)
class Share:
    """One setmaxnreg: where its count is written, what it is, and the warpgroups that come to it."""

    place: Place
    span: Span
    count: int
    groups: frozenset[int]

    @property
    def all(self) -> int:
        return self.count * len(self.groups)


@dataclass(frozen=True)
class Shares:
    """Those of a kernel: warps that give registers back, and those that take them. `launch` is the most that a thread
    can have from the launch."""

    decreases: Share
    increases: Share
    launch: int

    def others(self, least: int) -> int:
        """What is left for those that take, if the others keep `least`."""
        left = self.decreases.all + self.increases.all - least * len(self.decreases.groups)
        return min(left // len(self.increases.groups) // GRANULARITY * GRANULARITY, MOST)

    def allows(self, least: int) -> bool:
        """Whether nobody has to give back what it has not, or to take less than it has."""
        return least % GRANULARITY == 0 and self.decreases.count < least <= self.launch <= self.others(least)

    def give(self, changes: Changes, least: int) -> None:
        if not self.allows(least):
            raise self.decreases.place.left(f"room for {least} registers of these warps beside those of the others")
        for share, count in ((self.decreases, least), (self.increases, self.others(least))):
            changes.replace(share.place.function, share.span, str(count))


def counts(least: int) -> range:
    """The counts a setmaxnreg may name, from `least` (a multiple of their step) on, in registers a thread."""
    return range(least, MOST, GRANULARITY)


def shares_of(program: Program, kernel: Kernel) -> Shares:
    """How a kernel shares its registers out.

    Raises:
        Left: it does so otherwise than by one setmaxnreg of each kind, or not in numbers of its text.
    """
    function = kernel.function
    whole = function.span(function.body)
    walk = operations_of(program, function)
    threads = program.constants_in(function).evaluate(kernel.threads or "")
    if walk.too_deep or threads is None or threads % WARPGROUP or threads > Limits.threads_per_block:
        raise Left(function, whole, "how many warpgroups a block has, and what each does")
    by_kind = {
        kind: [o for o in walk.operations if o.kind == "registers" and o.phase == kind] for kind in ("dec", "inc")
    }
    if any(len(found) != 1 for found in by_kind.values()):
        raise Left(function, whole, "one setmaxnreg that gives back and one that takes")
    who = Who(program, threads)
    (give,), (take_,) = by_kind["dec"], by_kind["inc"]
    shares = [_share(program, who, function, o) for o in (give, take_)]
    groups = [share.groups for share in shares]
    if groups[0] & groups[1] or len(groups[0] | groups[1]) * WARPGROUP != threads:
        raise path_of(give)[0].left("that each warpgroup comes to one setmaxnreg")
    launch = min(limits(SM100A.name).registers_per_sm // threads, MOST - 1) // GRANULARITY * GRANULARITY
    return Shares(shares[0], shares[1], launch)


def _share(program: Program, who: Who, kernel: Function, operation: Operation) -> Share:
    threads = who.runs(operation.sites).threads
    groups = frozenset(t // WARPGROUP for t in threads or ())
    if threads is None or len(threads) != len(groups) * WARPGROUP:
        raise path_of(operation)[0].left("whole warpgroups at a setmaxnreg")
    place, span, count = written_count(program, operation)
    if place.function is not kernel or kernel.file.path != program.sources.root:
        raise place.left("a count of setmaxnreg that the kernel itself says, in the file that is ported")
    return Share(place, span, count, groups)


def _write(taking: Taking) -> None:
    """Warps that give registers back keep as many as are asked for."""
    taking.made[NAME] = taking.asked[NAME]
    changes = Changes(taking.context, RULE)
    for kernel in taking.context.kernels:
        shares_of(taking.context.program, kernel).give(changes, taking.made[NAME])
    changes.make()


STEP = Step(NAME, RULE, _write, beside={"blocks": SHARED_OUT}, follows=("bulk-store",), asked=True)
