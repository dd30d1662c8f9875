# SPDX-License-Identifier: Apache-2.0
"""A warp of its own waits for stages and issues the MMAs of all consumers, for tiled MMAs of a library. It is one of
those beside the thread that loads; one lane of it issues, and calls of the library that a whole warp makes stay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from porter.lang.cuda import inside
from porter.lang.text import Span
from porter.model.accumulators import Accumulator
from porter.model.facts import Wait
from porter.model.pipeline.operations import Operation
from porter.model.pipeline.rings import split_index
from porter.model.tiled.accumulators import Handle
from porter.passes.native import double_buffer, mma_thread, release
from porter.passes.native.double_buffer import BUFFERS
from porter.passes.native.mainloop import in_loop
from porter.passes.native.mma_thread import RULE, WORK, Move
from porter.passes.native.sites import Changes, Place, path_of
from porter.passes.native.slicing import Level
from porter.passes.native.texts import indented
from porter.passes.native.tiled_mainloop import TiledPipelined, barriers_of
from porter.passes.native.tiled_pipeline import PipelineObject
from porter.passes.native.tiled_slicing import TiledSlice
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.text import cpp
from porter.ptx.wgmma import THREADS as WARPGROUP


def take(context: TiledContext, found: list[TiledPipelined]) -> None:
    """Make the edits of the step, for all kernels.

    Raises:
        Left: a fact is missing.
    """
    helpers = context.port.helpers
    if not helpers.releases:
        raise found[0].begin.left("commits that give stages back")
    if not helpers.joined:
        raise found[0].begin.left("one MMA for two consumer warpgroups")
    changes = Changes(context.port, RULE)
    moves = [TiledMove(kernel, changes) for kernel in found]
    for move in moves:
        move.take()
    if len({move.warp for move in moves}) != 1:
        raise found[-1].begin.left("the same warp with nothing to do in all kernels of the file")
    changes.make()
    helpers.own_thread, helpers.mma_warp = True, moves[0].warp


def double(context: TiledContext, found: list[TiledPipelined]) -> None:
    """Two accumulators take turns: the header alone is another one.

    Raises:
        Left: a fact is missing.
    """
    for kernel in found:
        if not context.port.helpers.own_thread:
            raise kernel.begin.left("a thread of its own that issues the MMAs")
        if not in_loop(kernel.first, kernel.function):
            raise kernel.begin.left("a next tile: a block has one")
    context.port.helpers.buffers = BUFFERS


@dataclass(eq=False)
class TiledMove(Move):
    """What leaves the consumers of one kernel."""

    kernel: TiledPipelined
    moved: list[Node] = field(default_factory=list)

    @property
    def handles(self) -> list[Handle]:
        return self.kernel.handles

    def take(self) -> None:
        super().take()
        self._roles()

    def find(self) -> Node:
        kernel = self.kernel
        if self.function is not kernel.kernel.function:
            raise kernel.begin.left("MMAs in the kernel itself, or in functions that get its accumulators")
        at, self.warp = self._place()
        self.range = self._with_waits()
        self.moved = self._given_back()
        issuer = kernel.kernel.roles.first * WARPGROUP
        # whoever slices asks for accumulators as variables
        kernel.variables()
        self.slice = TiledSlice(kernel, self.range, at, issuer, moved=self.moved)
        return at

    def _pipelines(self) -> frozenset[str]:
        return frozenset(n for o in self.kernel.walk.operations if (n := barriers_of(o)))

    def _roles(self) -> None:
        """The warp is a consumer of pipelines, whatever the others of its warpgroup are."""
        kernel = self.kernel
        for name in sorted(self._pipelines()):
            found = PipelineObject(kernel.program, kernel.kernel.function, name)
            params = self.function.text(found.arguments[1]) if len(found.arguments) > 1 else ""
            statement = found.declaration
            while statement.type != "declaration" and statement.parent is not None:
                statement = statement.parent
            if not re.fullmatch(r"\w+", params):
                raise Place(self.function, statement).left(f"the parameters of `{name}` as a variable")
            self.changes.before(Place(self.function, statement), cpp("consumer_role", params=params))

    def _loads(self) -> list[Operation]:
        """Where bytes of a stage are expected, by whoever loads it."""
        expected = [o for o in self.kernel.walk.operations if o.kind in ("arrive_tx", "expect_tx")]
        return [o for o in expected if not self.kernel.runs(o) & self.kernel.consumers]

    def _is_work(self, operation: Operation) -> bool:
        return operation.kind in (*WORK, "ask")

    def _given_back(self) -> list[Node]:
        """Statements behind the range that do nothing but give stages back, and count on."""
        kernel = self.kernel
        block = kernel.first.parent
        assert block is not None
        found: dict[int, Node] = {}
        for operation in kernel.walk.operations:
            if operation.kind != "arrive" or not kernel.runs(operation) <= kernel.consumers:
                continue
            site = next((s for s in operation.sites if s.frame.function is self.function), None)
            if site is None:
                raise path_of(operation)[0].left("where consumers give stages back")
            if self.span.contains(self.function.span(site.node)):
                continue
            statement = next((n for n in block.named_children if inside(n, site.node)), None)
            if statement is None or statement.start_byte < self.range[-1].end_byte:
                raise Place(self.function, site.node).left("stages that are given back where the MMAs stand")
            found[statement.id] = statement
        return sorted(found.values(), key=lambda n: n.start_byte)

    def _fills(self, barrier: str) -> bool:
        name = split_index(barrier)[0]
        return any(split_index(o.barrier)[0] == name for o in self._loads())

    # --- What becomes of the consumers

    def _without_fences(self) -> None:
        kernel, name = self.kernel, self.kernel.handle.name
        closing = Changes(self.context, release.RULE)
        commit, wait = cpp("commit", name=name, warpgroup=""), cpp("wait", name=name, warpgroup="", pending="0")
        closing.behind(kernel.end, [commit + ";", wait + ";"])
        closing.unmake()
        block = kernel.first.parent
        waits = Changes(self.context, RULE)
        for one in kernel.tiled.tiled.synchronizations:
            statement = one.call.node.parent
            if not isinstance(one.fact, Wait) or one.call.caller is not self.function or statement is None:
                continue
            of_block = block is not None and statement.parent is not None and statement.parent.id == block.id
            if of_block and statement.start_byte > self.range[-1].start_byte and statement.type.endswith("statement"):
                waits.drop(Place(self.function, statement))
        waits.make()

    def _consumers(self) -> None:
        names = ", ".join(h.name for h in self.handles)
        state = self.names.warpgroup
        self.changes.instead(self.function, self._whole(), cpp("take_sums", state=state, names=names))
        for statement in self.moved:
            self.changes.drop(Place(self.function, statement))
        if self.slice.loops:
            block = self.range[0].parent
            assert block is not None
            end = self.function.span(block).end - 1
            source = self.function.file.source
            start = source.rfind(b"\n", 0, end) + 1
            if source[start:end].strip():
                raise self.kernel.begin.left("statements on lines of their own")
            pad = self.context.indent(self.function, self.function.span(self.range[0]))
            text = f"{pad}{cpp('return_sums', state=state)}\n"
            self.changes.replace(self.function, Span(start, start), text)

    # --- The warp's part

    def _opening(self) -> str:
        return cpp("mma_warp", tmem=self.names.tmem, state=self.names.warpgroup)

    def _range(self, pad: str) -> Iterator[str]:
        names, state = ", ".join(h.name for h in self.handles), self.names.warpgroup
        yield pad + cpp("begin_sums", state=state, names=names)
        for node in self.range:
            yield from self._pragma(node, pad)
            yield from self._lines(node, pad)
        yield pad + cpp("end_sums", state=state)

    def _lines(self, node: Node, pad: str) -> Iterator[str]:
        span = self.function.span(node)
        text = self._ported(span)
        # the grammar leaves the word out of some declarations
        typename = re.search(rb"\btypename\s+\Z", self.function.file.source[: span.start])
        text = "typename " + text if typename is not None else text
        for argument, value in self.slice.numbers(node).items() if isinstance(self.slice, TiledSlice) else ():
            text = text.replace(f"({self._ported(self.function.span(argument))})", f"({value})")
        if text.strip() not in ("", ";"):
            yield from indented(text, self.context.indent(self.function, span), pad)

    def _statement(self, node: Node, pad: str) -> Iterator[str]:
        yield from self._lines(node, pad)

    def _tile(self, accumulator: Accumulator) -> list[str]:
        declaration = accumulator.variable.declaration
        if declaration is None:
            raise self.kernel.begin.left(f"where `{accumulator.name}` is declared")
        return list(self._lines(declaration, ""))

    def _clears(self, level: Level) -> list[Node]:
        return []


STEPS = (
    replace(
        mma_thread.STEP, write=lambda taking: take(taking.context, taking.found), dialect="cute", beside={}, after={},
        follows=("release",),
    ),
    replace(double_buffer.STEP, write=lambda taking: double(taking.context, taking.found), dialect="cute", after={}),
)  # fmt: skip
