# SPDX-License-Identifier: Apache-2.0
"""The step in which the tensor core gives stages back, for tiled MMAs of a library."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Function, Style, declared_name
from porter.model.pipeline.operations import Operation
from porter.model.pipeline.rings import split_index
from porter.passes.native import release
from porter.passes.native.earlier import Move, earlier, make
from porter.passes.native.mainloop import inside
from porter.passes.native.release import RULE, Release, address_of
from porter.passes.native.sites import Changes, Place, path_of
from porter.passes.native.tiled_mainloop import TiledPipelined, barriers_of
from porter.passes.native.tiled_pipeline import PipelineObject, change_class
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.sight import in_sight
from porter.passes.tiled.state import warpgroup_at
from porter.passes.tiled.text import cpp

_PLAIN = re.compile(r"\w+(?:\.\w+)*(?:\[\])?")
"""An object, or an array of them, by a name of its own."""
_PARTS = ("field_expression", "pointer_expression", "subscript_expression", "parenthesized_expression",
          "subscript_argument_list", "cast_expression")  # fmt: skip


def take(context: TiledContext, found: list[TiledPipelined]) -> None:
    """Make the edits of the step, for all kernels.

    Raises:
        Left: a fact is missing.
    """
    changes = Changes(context.port, RULE)
    known = [(s.frame.function, s.node) for k in found for o in k.walk.operations for s in o.sites
             if s.node.type != "lambda_expression"]  # fmt: skip
    steps = [TiledRelease(kernel, changes, known=known) for kernel in found]
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
    known: Sequence[tuple[Function, Node]] = ()
    """Places of operations with mbarriers, in all kernels."""

    def take(self) -> None:
        kernel = self.kernel
        program, spellings = kernel.program, kernel.program.vocabulary.spellings
        for word in program.identifiers():
            if spellings.are("to_several_ctas", word):
                raise kernel.begin.left(f"that stages are for one CTA: `{word}` copies to several")
        super().take()
        kernel.check_meetings()

    def _rings(self) -> list[str]:
        names = super()._rings()
        for name in names:
            self._is_closed(name)
        return names

    def _is_closed(self, name: str) -> None:
        """That the mbarriers are named nowhere but where it is known what is done with them."""
        kernel = self.kernel
        pipeline = barriers_of(kernel.operations(name)[0])
        if pipeline:
            PipelineObject(kernel.program, kernel.kernel.function, pipeline).check_uses()
            return
        check_mentions(kernel, name, self.known)

    def _counts(self, name: str) -> set[int | None]:
        kernel = self.kernel
        pipeline = barriers_of(kernel.operations(name)[0])
        if not pipeline:
            return super()._counts(name)
        return {PipelineObject(kernel.program, kernel.kernel.function, pipeline).count()}

    def _count_from(self, name: str, count: int) -> None:
        pipeline = barriers_of(self.kernel.operations(name)[0])
        if not pipeline:
            super()._count_from(name, count)
        elif count != 1:
            raise self.kernel.begin.left(f"that nobody but consumers gives stages of `{pipeline}` back")
        else:
            self.pipelines.append((self.kernel, pipeline))

    def _arrival(self, operation: Operation, ring: list[Operation], ctas: int) -> None:
        self._is_behind_mmas_alone(operation)
        super()._arrival(operation, ring, ctas)
        move = earlier(self.kernel, operation, path_of(operation)[-1])
        self.moves += [move] if move is not None else []

    def _is_behind_mmas_alone(self, operation: Operation) -> None:
        """That threads say by an arrival that MMAs are complete, and not that they themselves are done."""
        kernel = self.kernel
        here = next((s for s in operation.sites if s.frame.function is kernel.function), None)
        if here is None or kernel.is_ahead(operation):
            return
        for read in kernel.reads:
            if kernel.last.end_byte <= read.start_byte < here.node.start_byte:
                raise Place(kernel.function, here.node).left("stages that go back ahead of what reads the sums")

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


def check_mentions(kernel: TiledPipelined, name: str, known: Sequence[tuple[Function, Node]]) -> None:
    """That mbarriers of a name are named nowhere but in `known` places, whose meaning is read.

    Raises:
        Left: they are.
    """
    words = [name.removesuffix("[]").rpartition(".")[2]]
    for operation in kernel.walk.operations:
        other = split_index(operation.barrier)[0]
        if other != name and words[0] in re.findall(r"\w+", other) and not _PLAIN.fullmatch(other):
            raise path_of(operation)[0].left(f"what is done with {name} here")
    for word in words:
        for function in (f for f in kernel.program.functions if f.style is not Style.HOST):
            for node in find(function.body, "identifier", "field_identifier"):
                if function.text(node) != word or _is_declared(node):
                    continue
                if any(f is function and inside(n, node) for f, n in known):
                    continue
                other = _other_name(function, node)
                if not other:
                    raise Place(function, node).left(f"what is done with {name} here")
                words += [other] if other not in words else []


def _other_name(function: Function, node: Node) -> str:
    """The variable that a name of mbarriers is all of the value of."""
    above = node.parent
    while above is not None and above.type in _PARTS:
        above = above.parent
    if above is None or above.type != "init_declarator":
        return ""
    named = declared_name(above)
    return function.text(named) if named is not None else ""


def _is_declared(node: Node) -> bool:
    """Whether a name is declared where it stands, or its type is asked for."""
    above = node.parent
    while above is not None and above.type not in ("compound_statement", "argument_list", "expression_statement"):
        if above.type in ("sizeof_expression", "decltype"):
            return True
        if above.type in ("field_declaration", "declaration"):
            values = [v for d in above.children_by_field_name("declarator")
                      if (v := d.child_by_field_name("value")) is not None]  # fmt: skip
            return not any(inside(v, node) for v in values)
        above = above.parent
    return False


STEP = replace(release.STEP, write=lambda taking: take(taking.context, taking.found), dialect="cute")
