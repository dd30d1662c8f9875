# SPDX-License-Identifier: Apache-2.0
"""The step in which the tensor core gives stages back, for tiled MMAs of a library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from porter.model.pipeline.operations import Operation
from porter.passes.native import release
from porter.passes.native.earlier import Move, earlier, make
from porter.passes.native.release import RULE, Release, address_of
from porter.passes.native.sites import Changes, Place, path_of
from porter.passes.native.tiled_mainloop import TiledPipelined, barriers_of
from porter.passes.native.tiled_pipeline import change_class
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.sight import in_sight
from porter.passes.tiled.state import warpgroup_at
from porter.passes.tiled.text import cpp


def take(context: TiledContext, found: list[TiledPipelined]) -> None:
    """Make the edits of the step, for all kernels.

    Raises:
        Left: a fact is missing.
    """
    changes = Changes(context.port, RULE)
    steps = [TiledRelease(kernel, changes) for kernel in found]
    for step in steps:
        step.take()
    pipelines = [p for step in steps for p in step.pipelines]
    if pipelines:
        for kernel in found:
            for operation in kernel.walk.operations:
                name = barriers_of(operation)
                if name and (kernel, name) not in pipelines:
                    raise path_of(operation)[0].left(f"that the stages of `{name}` go back as those of the others do")
        change_class(context.tiled.program, changes, found[0].kernel.function)
        context.port.helpers.pipelines = True
    context.port.helpers.releases = True
    changes.make()
    moved = Changes(context.port, RULE)
    make(context.port, moved, [move for step in steps for move in step.moves])
    moved.make()


@dataclass(eq=False)
class TiledRelease(Release):
    """The step for one kernel."""

    kernel: TiledPipelined
    pipelines: list[tuple[TiledPipelined, str]] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)

    def take(self) -> None:
        kernel = self.kernel
        for word in kernel.program.identifiers():
            if kernel.program.vocabulary.spellings.are("to_several_ctas", word):
                raise kernel.begin.left(f"that stages are for one CTA: `{word}` copies to several")
        super().take()

    def _count_from(self, name: str, count: int) -> None:
        pipeline = barriers_of(self.kernel.operations(name)[0])
        if not pipeline:
            super()._count_from(name, count)
        elif count != 1:
            raise self.kernel.begin.left(f"that nobody but consumers gives stages of `{pipeline}` back")
        else:
            self.pipelines.append((self.kernel, pipeline))

    def _arrival(self, operation: Operation, ring: list[Operation], ctas: int) -> None:
        super()._arrival(operation, ring, ctas)
        move = earlier(self.kernel, operation, path_of(operation)[-1])
        self.moves += [move] if move is not None else []

    def _elected(self, place: Place) -> str:
        return cpp("issues", warpgroup=self._state(place))

    def _released(self, operation: Operation, place: Place) -> str:
        name = in_sight(self.kernel.tiled, place.function, place.node)
        warpgroup = "" if name else self._state(place)
        if barriers_of(operation):
            call = self._pipeline_call(place)
            return cpp("release_stage", name=name, warpgroup=warpgroup, pipeline=call[0], state=call[1])
        return cpp("release", name=name, warpgroup=warpgroup, barrier=self._address(operation, place))

    def _state(self, place: Place) -> str:
        """The state of the warpgroup at a place that nothing has to be handed to for it."""
        context, function, node = self.kernel.tiled, place.function, place.node
        if not in_sight(context, function, node) and not context.sees_warpgroup(function, node):
            raise place.left("an accumulator in sight of where stages are given back")
        return warpgroup_at(context, function, node)

    def _pipeline_call(self, place: Place) -> tuple[str, str]:
        """The pipeline and the state that a call gives back, as it names them."""
        function, node = place.function, place.node
        for call in self.kernel.program.calls_by_node.get(node.id, ()):
            callee = node.child_by_field_name("function")
            held = callee.child_by_field_name("argument") if callee is not None else None
            if call.caller.file is function.file and held is not None and len(call.args) == 1:
                return function.text(held), function.text(call.args[0])
        raise place.left("the stage that is given back, as the state of its pipeline alone")

    def _address(self, operation: Operation, place: Place) -> str:
        """The address of an mbarrier that is given back, as the function names it."""
        function, node = place.function, place.node
        for call in self.kernel.program.calls_by_node.get(node.id, ()):
            if call.caller.file is not function.file or self.kernel.program.targets(call):
                continue
            callee = node.child_by_field_name("function")
            held = callee.child_by_field_name("argument") if callee is not None else None
            if held is not None and callee is not None and callee.type == "field_expression":
                return f"&{function.text(held)}"
            if len(call.args) == 1:
                return function.text(call.args[0])
        return address_of(self.kernel, operation, place)

    def _synchronizing(self) -> Iterator[Place]:
        yield from self.kernel.closing()

    def _close(self, shared: bool) -> None:
        name = self.kernel.handle.name
        lines = [cpp("commit", name=name, warpgroup="") + ";", cpp("wait", name=name, warpgroup="", pending="0") + ";"]
        self.changes.behind(self.kernel.end, lines)


STEP = replace(release.STEP, write=lambda taking: take(taking.context, taking.found), dialect="cute")
