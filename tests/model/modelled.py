# SPDX-License-Identifier: Apache-2.0
"""The kernel model of a text, and its decisions written back into the text."""

from __future__ import annotations

import re

from kernels import kernel, wrapper

from porter.lang.cuda import parse_cuda
from porter.lang.sources import SourceSet
from porter.model.accumulators import AccumulatorMap, find_accumulators
from porter.model.batches import Batches, count_batches
from porter.model.coherence import Problem, check, place_loads, place_stores
from porter.model.flow import FlowBuilder
from porter.model.functions import Function
from porter.model.kernels import Kernel, kernels_of
from porter.model.program import Program, build_program
from porter.rules.load import load_rules
from porter.rules.recognize import vocabulary

LOAD, STORE = "LOAD ", " STORE"
MMA = "arrive(); mma({0}, a, b); commit(); wait<0>();"
"""A batch of one MMA that adds to an accumulator, over when the text goes on."""
NEW = "arrive(); fresh({0}, a, b); commit(); wait<0>();"
"""The same with scale-d 0."""
WRAPPERS = wrapper(16, name="fresh", tail="0, 1, 1, 0, 0")


def program_of(text: str) -> Program:
    file = parse_cuda("kernel.cu", text.encode())
    return build_program(SourceSet("kernel.cu", {"kernel.cu": file}), vocabulary(load_rules()))


def expanded(body: str) -> str:
    """`MMA(acc);` and `NEW(acc);` stand for whole batches."""
    body = re.sub(r"\bMMA\((\w+)\);", lambda m: MMA.format(m[1]), body)
    return re.sub(r"\bNEW\((\w+)\);", lambda m: NEW.format(m[1]), body)


def unmarked(body: str) -> str:
    return body.replace(LOAD, "").replace(STORE, "")


class Modelled:
    """What the model says about the kernel of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.program: Program = program_of(text)
        self.accumulators: AccumulatorMap = find_accumulators(self.program)
        self.builder = FlowBuilder(self.program, self.accumulators)
        self.loads: list[tuple[int, str]] = []
        """(byte offset, accumulator) that is loaded in front of there."""
        self.stores: list[tuple[int, str]] = []
        """(byte offset, accumulator) that is stored behind there."""
        self.problems: list[Problem] = []

    @property
    def refusals(self) -> list[str]:
        return [r.what for r in [*self.program.refusals, *self.accumulators.refusals]]

    @property
    def function(self) -> Function:
        return self.program.kernels[0]

    @property
    def kernel(self) -> Kernel:
        return kernels_of(self.program)[0]

    @property
    def batches(self) -> Batches:
        return count_batches(self.builder.flow(self.function))

    def place(self) -> Modelled:
        """Decide where accumulators move, as a port does."""
        for accumulator in self.accumulators.accumulators:
            nodes = place_loads(self.builder, accumulator)
            self.loads += [(accumulator.function.span(n).start, accumulator.name) for n in nodes]
        for accumulator in self.accumulators.accumulators:
            nodes = place_stores(self.builder, accumulator)
            self.stores += [(accumulator.function.span(n).end, accumulator.name) for n in nodes]
        for accumulator in self.accumulators.accumulators:
            self.problems += check(self.builder, accumulator)
        return self

    @property
    def marked(self) -> str:
        """The text with the decisions in it."""
        marks = [(at, LOAD) for at, _ in self.loads] + [(at, STORE) for at, _ in self.stores]
        text = self.text.encode()
        for at, mark in sorted(marks, reverse=True):
            text = text[:at] + mark.encode() + text[at:]
        return text.decode()


def of_kernel(body: str, before: str = "", **options: str) -> Modelled:
    """The model of a kernel with this body; marks in it are taken out first."""
    return Modelled(kernel(unmarked(expanded(body)), before=WRAPPERS + before, **options))  # type: ignore[arg-type]


def placed(body: str, before: str = "") -> str:
    """The body with the model's moves marked in it. Fails if the model refuses the kernel."""
    model = of_kernel(body, before).place()
    assert not model.refusals
    assert not model.problems, [p.what for p in model.problems]
    return model.marked
