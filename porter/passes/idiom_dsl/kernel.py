# SPDX-License-Identifier: Apache-2.0
"""A kernel with MMAs as its text and its traces have it, and its main loop."""

from __future__ import annotations

from functools import cached_property

import libcst as cst

from porter.passes.idiom_dsl.batches import batches_of
from porter.passes.idiom_dsl.facts import Facts
from porter.passes.idiom_dsl.names import KNOWN, OBSERVED
from porter.passes.idiom_dsl.parts import Parts
from porter.passes.idiom_dsl.regions import Region, region_of
from porter.passes.idiom_dsl.shapes import first_of
from porter.passes.idiom_dsl.text import Left, Statement, Text


class Kernel(Parts):
    """One function with MMAs."""

    @cached_property
    def region(self) -> Region:
        """The main loop."""
        return batches_of(self) if self.is_by_hand else region_of(self)

    @cached_property
    def loader(self) -> str:
        """The condition under which the warp that multiplies loads, too; empty where others load."""
        conditions = set()
        for statement in self.region.statements:
            for call in self.of_pipeline(statement, "producer_acquire"):
                inside = self.text.span(statement)
                tests = [n.test for n in self.text.above(call) if isinstance(n, cst.If)]
                tests = [test for test in tests if inside.contains(self.text.span(test))]
                if not tests:
                    raise Left("loads that all warps issue", call)
                conditions.add(self.text.code(first_of(tests[-1])))
        if len(conditions) > 1:
            raise Left("loads under several conditions: " + ", ".join(sorted(conditions)))
        return next(iter(conditions), "")

    @property
    def repeats(self) -> bool:
        """Whether the region may be executed several times."""
        for node in self.text.above(self.region.first):
            if node is self.function:
                return False
            if isinstance(node, (cst.For, cst.While)):
                return True
        return False

    @cached_property
    def branch(self) -> Statement | None:
        """The branch of the kernel that the main loop stands in; None where all threads come to it."""
        body = self.function.body
        found = self.text.in_block(self.region.first, body)
        return None if found is None or found is self.region.first or isinstance(found, (cst.For, cst.While)) else found


def kernels(text: Text, facts: Facts) -> list[Kernel]:
    """The kernels with MMAs.

    Raises:
        Left: an MMA was not traced, or stands in a function that is no kernel.
    """
    found: dict[cst.FunctionDef, list[cst.Call]] = {}
    for call in text.calls(text.module, *OBSERVED["multiply"]):
        if not facts.at(call):
            raise Left("no case comes to this MMA", call)
        function = text.function(call)
        if not any(text.is_a(_decorator(d), KNOWN["kernel"]) for d in function.decorators):
            raise Left("MMAs that a function of the kernel issues", call)
        found.setdefault(function, []).append(call)
    if not found:
        raise Left("its MMAs stand in other files")
    return [Kernel(text, facts, function, calls) for function, calls in found.items()]


def _decorator(node: cst.Decorator) -> cst.BaseExpression:
    return node.decorator.func if isinstance(node.decorator, cst.Call) else node.decorator
