# SPDX-License-Identifier: Apache-2.0
"""Scale-d of the MMAs of an accumulator: whether each adds to what is there, and where that is said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from tree_sitter import Node

from porter.lang.text import Span
from porter.model.accumulators import Accumulator
from porter.model.counted import counted, turns_inside
from porter.model.functions import Function
from porter.model.pipeline.frames import Frame, Wording
from porter.model.scopes import LOOPS, resolve
from porter.model.tensor_core import MmaStep, without_cast
from porter.passes.context import PortContext
from porter.passes.native.sites import Left, Path, Place, only_from, steps_below

_COUNTS = re.compile(r"\(?\s*(\w+)\s*(?:(?:!=|>)\s*0)?\s*\)?(?:\s*\?\s*(?:1|true)\s*:\s*(?:0|false))?")
_LITERALS = {"0": 0, "false": 0, "1": 1, "true": 1}


class Value(Enum):
    """Whether an MMA adds to the sum that is there."""

    ALWAYS = "always"
    NEVER = "never"
    LATER = "in all turns of an inner loop but its first"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Scale:
    """Scale-d of one MMA. `top` is what stands for it in the accumulator's function; `tile` the subscripts of the tile
    there; `place` the argument that says it, None if it is no argument; `repeats` whether a loop that chooses no tile
    is around the MMA, in the loop that was asked about."""

    top: Node
    tile: tuple[str, ...]
    value: Value
    text: str
    place: Place | None
    repeats: bool


@dataclass(frozen=True)
class Multiply:
    """One MMA of an accumulator, the way to it from the accumulator's function, and its tile's subscripts there."""

    step: MmaStep
    path: Path
    tile: tuple[str, ...]

    @property
    def top(self) -> Node:
        """What stands for it in the accumulator's function."""
        return self.path[0].node


def mmas_of(context: PortContext, accumulator: Accumulator) -> Iterator[Multiply]:
    """The MMAs that its function comes to.

    Raises:
        Left: which tile an MMA is for is not known.
    """
    function = accumulator.function
    for path, statement in steps_below(context.program, function, [function.span(function.body)]):
        for step in (s for s in statement.steps if isinstance(s, MmaStep)):
            tile = _tile(context, accumulator, path, step)
            if tile is not None:
                yield Multiply(step, path, tile)


def scales_of(context: PortContext, mmas: Iterable[Multiply], loop: Node) -> Iterator[Scale]:
    """Scale-d of MMAs in a loop.

    Raises:
        Left: a function that says it is called for others, too.
    """
    wording = Wording(context.program)
    for one in mmas:
        yield _Reader(context, wording, one.path, one.tile, loop).read(_frame(wording, one.path), one.step)


def _tile(context: PortContext, accumulator: Accumulator, path: Path, step: MmaStep) -> tuple[str, ...] | None:
    """The subscripts of the accumulator's tile for an MMA; None for the MMA of another one."""
    function, depth = accumulator.function, accumulator.home.depth
    if len(path) == 1:
        mine = context.accumulators.held_by(resolve(function, step.d.root, step.d.name))
        return step.d.prefix[:depth] if mine is accumulator else None
    call = next(c for c in function.calls if c.node.id == path[0].node.id)
    found = [
        a.registers.prefix[:depth] for a in context.accumulators.arguments_of(call)
        if context.accumulators.held_by(resolve(function, a.registers.root, a.registers.name)) is accumulator
    ]  # fmt: skip
    if len(found) > 1:
        raise path[0].left("one tile of an accumulator for each call")
    return found[0] if found else None


def _frame(wording: Wording, path: Path) -> Frame:
    frame = Frame(path[0].function)
    for here, below in pairwise(path):
        call = next(c for c in here.function.calls if c.node.id == here.node.id)
        frame = wording.enter(frame, call, below.function)
    return frame


@dataclass
class _Reader:
    context: PortContext
    wording: Wording
    path: Path
    tile: tuple[str, ...]
    loop: Node

    def read(self, frame: Frame, step: MmaStep) -> Scale:
        text, place = without_cast(step.scale_d), None
        while True:
            function = frame.function
            value = self._number(frame, text)
            bound = frame.bound.get(text)
            if value is None and bound is not None and frame.outer is not None and not self.wording.changes(
                function, text
            ):  # fmt: skip
                frame = frame.outer
                text, place = without_cast(frame.function.text(bound)), Place(frame.function, bound)
            elif value is None and text in frame.templates:
                text, place = frame.templates[text], None
                value = self._number(Frame(function), text)
                break
            else:
                break
        repeats = any(True for _ in self._others(None))
        found = Value.UNKNOWN
        if value is not None:
            found = Value.ALWAYS if value else Value.NEVER
        elif place is not None and (counts := self._counted(place, text)) is not None:
            found = Value.UNKNOWN if any(True for _ in self._others(counts)) else Value.LATER
        if found is not Value.ALWAYS and (place is None or (value == 0 and text not in _LITERALS)):
            found = Value.UNKNOWN
        if place is not None and found is not Value.ALWAYS:
            self._alone(place)
        return Scale(self.path[0].node, self.tile, found, text, place, repeats)

    def _number(self, frame: Frame, text: str) -> int | None:
        if text in _LITERALS:
            return _LITERALS[text]
        if text in frame.bound or text in frame.templates:
            return None
        return self.context.program.constants_in(frame.function).evaluate(text)

    def _counted(self, place: Place, text: str) -> Node | None:
        """The loop whose first turn alone makes the text zero."""
        match = _COUNTS.fullmatch(text)
        function, above = place.function, place.node.parent
        while match is not None and above is not None and above.id != self.loop.id:
            if self._counts_up(function, above) == match[1]:
                return above
            above = above.parent
        return None

    def _counts_up(self, function: Function, loop: Node) -> str:
        """The variable that a loop counts up from 0; empty where it does not."""
        found = counted(function, loop)
        if found is None or function.text(found.first).rstrip("uU") != "0" or turns_inside(function, loop, found.name):
            return ""
        step = self.context.program.constants_in(function).evaluate(found.step)
        return found.name if step is not None and step > 0 else ""

    def _others(self, counts: Node | None) -> Iterator[Node]:
        """Loops around the MMA, in the one that was asked about, but that which counts and those that choose tiles."""
        for index, place in enumerate(self.path):
            above = place.node.parent
            while above is not None and above.id not in (self.loop.id, place.function.body.id):
                chooses = index == 0 and self._counts_up(place.function, above) in self.tile
                if above.type in LOOPS and not chooses and (counts is None or above.id != counts.id):
                    yield above
                above = above.parent

    def _alone(self, place: Place) -> None:
        """That an argument is for these MMAs alone."""
        top = self.path[0].function
        span = Span(top.span(self.loop).start, top.span(self.loop).end)
        if place.function is not top and not only_from(self.context.program, place.function, top, [span]):
            raise Left(place.function, place.span, f"that `{place.function.name}` is called for these MMAs alone")
