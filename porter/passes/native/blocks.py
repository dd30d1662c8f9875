# SPDX-License-Identifier: Apache-2.0
"""Two blocks share an SM: registers that sums have left for Tensor Memory are room for the other one, whose products
run while threads of the first compute. The launch bounds ask for two blocks, and `setmaxnreg` deals out what one
has."""

from __future__ import annotations

from dataclasses import dataclass

from porter.lang.cuda import walk
from porter.lang.text import Span
from porter.model.kernels import Kernel
from porter.model.pipeline.operations import Operation, operations_of
from porter.model.pipeline.who import Who
from porter.passes import launch_bounds
from porter.passes.context import PortContext
from porter.passes.full_rate.renaming import reached
from porter.passes.moves import Moves
from porter.passes.native import pieces
from porter.passes.native.register_counts import written_count
from porter.passes.native.sites import Changes, Left, OfFunction, path_of
from porter.ptx.arch import Limits
from porter.ptx.register_file import GRANULARITY, MOST, legal_count
from porter.ptx.wgmma import THREADS as WARPGROUP
from porter.steps.step import Step

RULE = "PTR197"
NAME = "blocks"
BLOCKS = 2
SHARED_OUT = f"registers of one block: the step {NAME} shares out those of {BLOCKS}"
"""Why a kernel with this step has none of the step `registers`."""


def take(context: PortContext, moves: Moves) -> Changes:
    """The edits of the step, for all kernels."""
    changes = Changes(context, RULE)
    for kernel in context.kernels:
        _Blocks(context, kernel, changes).take()
    pieces.take(context, moves, changes)
    context.helpers.blocks = BLOCKS
    return changes


@dataclass(eq=False)
class _Blocks(OfFunction):
    context: PortContext
    kernel: Kernel
    changes: Changes

    def __post_init__(self) -> None:
        self.function = self.kernel.function
        self.program = self.context.program

    def take(self) -> None:
        threads = self.program.value(self.function, self.kernel.threads or "")
        if threads is None or threads % WARPGROUP:
            raise self.lacks("how many threads a block has, in whole warpgroups")
        self._bounds()
        each = Limits.registers_per_sm // (BLOCKS * threads) // GRANULARITY * GRANULARITY
        self._moves(threads, each)

    # --- Launch bounds

    def _bounds(self) -> None:
        """Ask for two blocks where one is asked for, or none."""
        function = self.function
        found = [n for n in walk(function.node) if n.type == "launch_bounds" and n.end_byte <= function.body.start_byte]
        parts = found[0].named_children if len(found) == 1 else []
        if not 1 <= len(parts) <= 2:
            raise self.lacks("launch bounds that say how many blocks share an SM")
        if len(parts) == 2:
            if self.program.value(function, function.text(parts[1])) != 1:
                raise Left(function, function.span(parts[1]), "launch bounds that ask for one block on an SM")
            self.changes.replace(function, function.span(parts[1]), str(BLOCKS))
            return
        end = function.span(parts[0]).end
        self.changes.without(launch_bounds.RULE, function, Span(end, end))
        self.changes.replace(function, Span(end, end), f", {BLOCKS}")

    # --- setmaxnreg

    def _moves(self, threads: int, each: int) -> None:
        """Deal out the registers of a block whose threads start with `each`."""
        walked = operations_of(self.program, self.function)
        if walked.too_deep or any(o.kind == "unread" for o in walked.operations):
            raise self.lacks("what is done in all functions that it calls")
        moves = [o for o in walked.operations if o.kind == "registers"]
        if not moves:
            return
        who = Who(self.program, threads)
        taken: dict[int, Operation] = {}
        for operation in moves:
            runs = who.runs(operation.sites).threads
            if runs is None or len(runs) % WARPGROUP:
                raise path_of(operation)[-1].left("which warpgroups come to this setmaxnreg")
            for thread in runs:
                if taken.setdefault(thread, operation) is not operation:
                    raise path_of(operation)[-1].left("one setmaxnreg for each warpgroup")
        rising = {t for t, o in taken.items() if o.phase == "inc"}
        kept = sum(self._least(o, each) if o.phase == "dec" else 0 for o in taken.values())
        kept += each * (threads - len(taken))
        if not rising:
            return
        most = (each * threads - kept) // len(rising) // GRANULARITY * GRANULARITY
        if len({o.count for o in moves if o.phase == "inc"}) > 1:
            raise self.lacks("the same number of registers for all warpgroups that take more")
        for operation in (o for o in moves if o.phase == "inc"):
            number = min(most, MOST, self._number(operation))
            if number < each or not legal_count(number):
                raise path_of(operation)[-1].left(f"registers to take: {BLOCKS} blocks have {each} a thread")
            self._write(operation, number)

    def _least(self, operation: Operation, each: int) -> int:
        number = self._number(operation)
        if number > each:
            raise path_of(operation)[-1].left(f"fewer registers than the {each} that threads of {BLOCKS} blocks have")
        return number

    def _number(self, operation: Operation) -> int:
        return written_count(self.program, operation)[2]

    def _write(self, operation: Operation, number: int) -> None:
        """Another number for a setmaxnreg, where its number is written. Raises Left: that is no place of this kernel's
        alone."""
        place, span, _ = written_count(self.program, operation)
        mine = {id(k.function) for k in self.context.kernels}
        if id(place.function) in reached(self.program, (k for k in self.program.kernels if id(k) not in mine)):
            what = f"that `{place.function.name}` is called by kernels with MMAs alone"
            raise path_of(operation)[-1].left(what)
        self.changes.replace(place.function, span, str(number))


STEP = Step(
    NAME, RULE, lambda taking: take(taking.context, taking.moves).make(), follows=("ahead",), chosen=True, cost=True
)
