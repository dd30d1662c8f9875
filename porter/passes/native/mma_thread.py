# SPDX-License-Identifier: Apache-2.0
"""A thread of its own waits for stages and issues the MMAs of all consumers. It stands in a warp that has nothing else
to do, with a copy of what leads the consumers to their MMAs; they wait for the sums alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import above, inside
from porter.lang.text import Span
from porter.model.accumulators import Accumulator
from porter.model.pipeline.operations import Operation
from porter.model.pipeline.rings import split_index
from porter.model.scopes import LOOPS, names_declared
from porter.model.tensor_core import Step
from porter.passes import emit
from porter.passes.context import PortContext, qualified
from porter.passes.native import release
from porter.passes.native.mainloop import Pipelined, in_loop
from porter.passes.native.sites import Changes, Place, is_in, own_lines, prefix, statement_of, written
from porter.passes.native.slicing import BLOCKS, Level, Slice
from porter.passes.native.taking import Taking
from porter.passes.native.texts import indented, lines_at, ported_text, tile_lines
from porter.passes.residency import RULE_ZERO
from porter.ptx.arch import WARP
from porter.ptx.wgmma import THREADS as WARPGROUP
from porter.steps import step as steps

RULE = "PTR192"
NAME = "mma-thread"
OWN_THREAD = "a thread of its own that issues the MMAs"
_CHOICES = (*LOOPS, "if_statement", "conditional_expression", "switch_statement")
WORK = ("copy", "arrive", "arrive_tx", "expect_tx", "wait", "mma", "store")


@dataclass(frozen=True)
class Tiles:
    """What stands around the thread's part of a tile, where its CTA goes on with tiles of others: lines in front of the
    loop over these, those that it begins with, and statements that stand in neither. `said` is a line of the part as
    it stands there."""

    ahead: Sequence[str]
    head: Sequence[str]
    carried: frozenset[int]
    said: Callable[[str], str]


def take(context: PortContext, found: list[Pipelined], tiles: Sequence[Tiles] = ()) -> Changes:
    """The edits of the step, for all kernels; `tiles`: of each the loop over tiles that stands around it then."""
    changes = Changes(context, RULE)
    loops: Sequence[Tiles | None] = tiles or [None] * len(found)
    moves = [Move(kernel, changes, loop) for kernel, loop in zip(found, loops, strict=True)]
    for move in moves:
        move.take()
    if len({move.warp for move in moves}) != 1:
        raise found[-1].begin.left("the same warp with nothing to do in all kernels of the file")
    context.helpers.own_thread = True
    context.helpers.mma_warp = moves[0].warp
    context.helpers.may_be_empty = any(m.may_be_empty() for m in moves)
    return changes


def moved(kernel: Pipelined) -> Move:
    """What the thread of its own takes over, with nothing changed."""
    move = Move(kernel, Changes(kernel.context, RULE))
    move.find()
    return move


@dataclass(eq=False)
class Move:
    """What leaves the consumers of a kernel, `range`, and what else its thread needs, `slice`."""

    kernel: Pipelined
    changes: Changes
    tiles: Tiles | None = None
    warp: int = -1
    range: list[Node] = field(default_factory=list)
    slice: Slice = field(init=False)

    def __post_init__(self) -> None:
        self.function = self.kernel.function
        self.context = self.kernel.context
        self.names = self.context.names

    def find(self) -> Node:
        """Gives the place of the thread's part."""
        kernel = self.kernel
        if self.function is not kernel.kernel.function:
            raise kernel.begin.left("MMAs in the kernel itself, or in functions that get its accumulators")
        at, self.warp = self._place()
        self.range = self._with_waits()
        self.slice = Slice(kernel, self.range, at, kernel.kernel.roles.first * WARPGROUP)
        return at

    def take(self) -> None:
        at = self.find()
        self._without_fences()
        self._write(at)
        self._consumers()
        self._counts()

    def _with_waits(self) -> list[Node]:
        """The statements that leave the consumers: the range, and in front of it waits for what it reads."""
        kernel = self.kernel
        block = kernel.first.parent
        assert block is not None
        ahead = [n for n in block.named_children if n.start_byte < kernel.first.start_byte]
        filled = {o.barrier.split("[")[0] for o in kernel.walk.operations if o.kind == "copy"}
        waits = [o for o in kernel.walk.operations if o.kind == "wait" and o.barrier.split("[")[0] in filled]
        waiting = (i for i, node in enumerate(ahead) if any(is_in(o, self.function, [node]) for o in waits))
        first = next(waiting, len(ahead))
        found = [*ahead[first:], *kernel.range]
        while found[0].prev_named_sibling is not None and found[0].prev_named_sibling.type == "comment":
            comment = found[0].prev_named_sibling
            if comment.end_point[0] + 1 != found[0].start_point[0] or not self._own_line(comment):
                break
            found.insert(0, comment)
        return found

    def _own_line(self, node: Node) -> bool:
        span, source = self.function.span(node), self.function.file.source
        return not source[source.rfind(b"\n", 0, span.start) + 1 : span.start].strip()

    @property
    def span(self) -> Span:
        return Span(self.function.span(self.range[0]).start, self.function.span(self.range[-1]).end)

    # --- Where it goes

    def _is_work(self, operation: Operation) -> bool:
        """Whether a warp with an operation has something to do."""
        return operation.kind in WORK and (operation.kind == "copy" or not self.kernel.is_ahead(operation))

    def _place(self) -> tuple[Node, int]:
        """The statement in front of which the thread's part goes, and its warp: a warp that comes to where stages are
        loaded and does nothing there, as in the rest of the kernel."""
        kernel = self.kernel
        copies = [o for o in kernel.walk.operations if o.kind == "copy"]
        if not copies:
            raise kernel.begin.left("a warp that loads stages by TMA")
        busy = set(kernel.consumers)
        for operation in filter(self._is_work, kernel.walk.operations):
            busy |= kernel.runs(operation)
        busy_warps = {t // WARP for t in busy}
        site = next((s for s in copies[0].sites if s.frame.function is self.function), None)
        if site is None:
            raise kernel.begin.left("loads of stages in the kernel itself")
        for node in above(site.node, self.function.body):
            if node.parent is None or node.parent.type != "compound_statement" or in_loop(node, self.function):
                continue
            there = kernel.who.runs(prefix(copies[0], self.function, node)).threads
            if there is None:
                break
            for warp in sorted({t // WARP for t in there} - busy_warps):
                if set(range(warp * WARP, (warp + 1) * WARP)) <= there:
                    return node, warp
        raise Place(self.function, site.node).left("a warp beside that which loads stages, with nothing to do")

    # --- What becomes of the consumers

    def _without_fences(self) -> None:
        """Nothing is to be ordered in front of MMAs but what the thread waits for itself, and what consumers did around
        their batches is not done any more."""
        kernel = self.kernel
        drop = Changes(self.context, RULE)
        for path, _ in kernel.synchronizing(Step.FENCE):
            place = written(path)
            drop.drop(Place(place.function, statement_of(place)))
        for place in self.slice.meetings():
            drop.drop(place)
        unused = [p.function for path, _ in kernel.synchronizing(Step.FENCE, Step.COMMIT, Step.WAIT)
                  for p in path[path.index(written(path)) + 1 :]]  # fmt: skip
        for function in {id(f): f for f in unused}.values():
            drop.undefine(function)
        drop.make()
        closing = Changes(self.context, release.RULE)
        release.close(kernel, closing, self.context.helpers.shares)
        closing.unmake()

    def _consumers(self) -> None:
        """They take the sums where they multiplied."""
        tiles = ", ".join(self.names.tile(a) for a in self.kernel.accumulators)
        lines = own_lines(self.function, self.span, comment=False)
        self.changes.instead(self.function, lines, f"{self.names.warpgroup}.take({tiles});")
        if self.slice.loops or self.tiles is not None:
            block = self.range[0].parent
            assert block is not None
            end = self.function.span(block).end - 1
            pad = self.context.indent(self.function, self.function.span(self.range[0]))
            outer = self.context.indent(self.function, Span(end, end))
            source = self.function.file.source
            start = source.rfind(b"\n", 0, end) + 1
            alone = not source[start:end].strip()
            text = f"{pad}{self.names.warpgroup}.give_back();\n"
            at = start if alone else end
            self.changes.replace(self.function, Span(at, at), text if alone else f"\n{text}{outer}")
        for level in self.slice.levels[1:]:
            for statement in level.statements:
                self._gone(level, statement)

    def _gone(self, level: Level, statement: Node) -> None:
        """A declaration that only the thread needs goes with it."""
        if statement.type != "declaration" or level.node.type != "compound_statement":
            return
        function, span = self.function, self.function.span(statement)
        uses = (n for name in names_declared(function, statement) for n in function.named(name))
        edits = (e for edits in self.context.edits.values() for e in edits if e.path == function.file.path)
        is_used = any(not span.contains(function.span(n)) and not self.span.contains(function.span(n)) for n in uses)
        if not is_used and not any(e.span == Span(span.end, span.end) for e in edits):
            self.changes.drop(Place(function, statement))

    # --- The thread's part

    def _write(self, at: Node) -> None:
        lines = []
        pad = "    "
        if self.tiles is not None:
            lines += [*(pad + line for line in self.tiles.ahead), *(pad + line for line in self.tiles.head)]
            pad += "    "
        for accumulator in self.kernel.accumulators:
            if not any(self._declares(level, accumulator) for level in self.slice.levels):
                lines += [pad + line for line in self._tile(accumulator)]
        body = list(self._body(0, pad))
        lines += body if self.tiles is None else [*map(self.tiles.said, body), "    }"]
        words = set(re.findall(r"\w+", "\n".join(lines)))
        constants = [f"    {line}" for name, line in self.slice.constants.items() if name in words]
        # other CTAs' commits arrive here for as long as they share stages
        helpers = self.context.helpers
        drained = [f"    {self.names.warpgroup}.drain({helpers.drained});"] if helpers.shares else []
        opening = emit.lines(
            "mma_thread", elect=qualified("elect_mma_thread"), state_type=qualified("Warpgroup"),
            state=self.names.warpgroup, tmem=self.names.tmem,
        )  # fmt: skip
        lines = [*opening.splitlines(), *constants, *lines, *drained, "}"]
        span, whole = self.context.statement_before(self.function, at, "\n".join(lines), above_comments=True)
        self.changes.replace(self.function, span, whole)

    def _body(self, index: int, pad: str) -> Iterator[str]:
        """The lines of a level and those in it."""
        levels = self.slice.levels
        level = levels[index]
        if level.node.type not in BLOCKS:
            yield from self._construct(level, index, pad)
            return
        carried = self.tiles.carried if self.tiles is not None else frozenset()
        shown = [n for n in self.slice.shows(level) if n.id not in carried]
        shown = sorted([*shown, *self._clears(level), *self._declaring(level)], key=lambda n: n.start_byte)
        last = index == len(levels) - 1
        middle = self.range[0] if last else level.inner
        for node in (n for n in shown if n.start_byte < middle.start_byte):
            yield from self._statement(node, pad)
        if last:
            yield from self._range(pad)
        else:
            yield from self._body(index + 1, pad)
        for node in (n for n in shown if n.start_byte > middle.start_byte):
            yield from self._statement(node, pad)

    def _construct(self, level: Level, index: int, pad: str) -> Iterator[str]:
        """A loop or condition around the levels in it; what always holds is not said."""
        node, inner = level.node, level.inner
        is_loop = node.type in LOOPS
        if not is_loop and (node.type != "if_statement" or level.taken):
            yield from self._body(index + 1, pad)
            return
        function = self.function
        if node.type == "do_statement":
            head, tail = "do", " " + self._ported(Span(function.span(inner).end, function.span(node).end)).strip()
        else:
            head, tail = self._ported(Span(function.span(node).start, function.span(inner).start)).strip(), ""
        before = self.context.indent(function, function.span(node))
        yield from self._pragma(node, pad)
        lines = indented(head, before, pad)
        yield from (*lines[:-1], f"{lines[-1]} {{")
        yield from self._body(index + 1, pad + "    ")
        yield f"{pad}}}{tail}"

    def _pragma(self, node: Node, pad: str) -> Iterator[str]:
        start, end = self.context.before(self.function, node).start, self.function.span(node).start
        text = self.function.file.source[start:end].decode("utf-8", "replace").strip()
        if text:
            yield text if text.startswith("#") else pad + text

    def _range(self, pad: str) -> Iterator[str]:
        tiles = ", ".join(self.names.tile(a) for a in self.kernel.accumulators)
        state = self.names.warpgroup
        yield f"{pad}{state}.begin({tiles});"
        for node in self.range:
            yield from self._pragma(node, pad)
            yield from self._lines(node, pad)
        yield f"{pad}{state}.end({tiles});"

    def _lines(self, node: Node, pad: str) -> Iterator[str]:
        if self._ported(self.function.span(node)).strip() not in ("", ";"):
            yield from lines_at(self.context, self.function, node, pad)

    def _statement(self, node: Node, pad: str) -> Iterator[str]:
        for accumulator in self.kernel.accumulators:
            declaration, zeroed = accumulator.variable.declaration, self.context.flow.zeroing_of(accumulator)
            if declaration is not None and declaration.id == node.id:
                yield from (pad + line for line in self._tile(accumulator))
                return
            if any(zeroing.node.id == node.id for zeroing in zeroed):
                yield from (pad + line for line in self._cleared(node))
                return
        yield from self._lines(node, pad)

    def _ported(self, span: Span) -> str:
        return ported_text(self.context, self.function, span)

    # --- Accumulators there

    def _tile(self, accumulator: Accumulator) -> list[str]:
        """The lines that declare an accumulator in Tensor Memory."""
        lines = tile_lines(self.context, accumulator)
        if not lines:
            raise self.kernel.begin.left(f"where `{accumulator.name}` lies in Tensor Memory")
        return [*self._registers(accumulator, lines), *lines]

    def _registers(self, accumulator: Accumulator, lines: list[str]) -> list[str]:
        """The declaration of the registers, where that of their tiles asks for their size."""
        declaration = accumulator.variable.declaration
        if declaration is None or not any(re.search(rf"\b{re.escape(accumulator.name)}\b", line) for line in lines):
            return []
        text = self._ported(self.function.span(declaration)).strip()
        if len(declaration.children_by_field_name("declarator")) != 1 or "=" in text:
            raise Place(self.function, declaration).left(f"the size of `{accumulator.name}`, where nobody has it")
        return [" ".join(text.split())]

    def _counts(self) -> None:
        """Where consumers arrive on what they wait for, to have its token, one thread does so instead."""
        kernel = self.kernel
        full = {o.barrier.split("[")[0]: split_index(o.barrier)[0] for o in kernel.walk.operations if o.kind == "copy"}
        for name in full.values():
            kinds = ("arrive", "arrive_tx")
            mine = [o for o in kernel.operations(name, *kinds) if kernel.runs(o) & kernel.consumers]
            if mine:
                own = max(release.arrivals_of(kernel, o) for o in mine)
                release.recount(kernel, self.changes, name, own, *kinds)

    def _declares(self, level: Level, accumulator: Accumulator) -> bool:
        declaration = accumulator.variable.declaration
        if declaration is None or declaration.parent is None:
            return False
        return level.node.id == declaration.parent.id and declaration.start_byte > self.slice.at.start_byte

    def _declaring(self, level: Level) -> list[Node]:
        found = [a.variable.declaration for a in self.kernel.accumulators if self._declares(level, a)]
        return list({n.id: n for n in found if n is not None}.values())

    def _clears(self, level: Level) -> list[Node]:
        """Statements of a level that set accumulators to zero."""
        kernel = self.kernel
        found: dict[int, Node] = {}
        for accumulator in kernel.accumulators:
            for zeroing in self.context.flow.zeroing_of(accumulator):
                node = zeroing.node
                if zeroing.is_declaration or self.span.contains(self.function.span(node)):
                    continue
                if zeroing.function is self.function and node.parent is not None and node.parent.id == level.node.id:
                    found[node.id] = node
        return list(found.values())

    def _cleared(self, node: Node) -> list[str]:
        span = self.function.span(node)
        for edit in self.context.edits.get(RULE_ZERO, ()):
            if edit.path == self.function.file.path and edit.span.contains(span):
                return [line.strip() for line in edit.replacement.decode().strip().splitlines()]
        return []

    def may_be_empty(self) -> bool:
        """Whether the range may end without an MMA: each stands in a loop or behind a condition."""
        block = self.range[0].parent
        assert block is not None
        for operation in self.kernel.multiplies:
            chain = [n for s in operation.sites for n in above(s.node, s.frame.function.body)]
            if not any(n.type in _CHOICES for n in chain if not inside(n, block)):
                return False
        return True


def _write(taking: Taking) -> None:
    if not taking.alone:
        what = "helpers of its own: they stand in a header that kernels of other files share"
        raise taking.found[0].begin.left(what)
    take(taking.context, taking.found).make()


STEP = steps.Step(
    NAME, RULE, _write, changes=steps.Declared(roles=True, barriers=True),
    after={release.NAME: "commits that give stages back"},
    beside={"scales": "MMAs that consumers issue: these hand the tensor core the scales of their rows"},
    follows=("raster",),
)  # fmt: skip
