# SPDX-License-Identifier: Apache-2.0
"""Results leave by bulk copies: a warp stages the rows that it stores in shared memory, a few columns at a time, and
each row of these leaves by one `cp.async.bulk`. Whatever the kernel's text says of addresses, values and conditions
stays; only the store itself goes to the stage. That nobody sees them earlier or otherwise is for PTX to say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.cuda import above, find
from porter.lang.text import Span
from porter.model.counted import counted, turns_inside
from porter.model.functions import Function, Style
from porter.model.kernels import Kernel, statements_in
from porter.model.pipeline.frames import Frame, first_value
from porter.model.pipeline.operations import Site, operations_of
from porter.model.pipeline.who import Who
from porter.model.scopes import LOOPS, Variable, resolve
from porter.passes.context import PortContext, qualified
from porter.passes.full_rate.renaming import reached
from porter.passes.native.drawn import Drawn
from porter.passes.native.rows import Put, Rows, rows_of
from porter.passes.native.sites import Changes, Left, OfFunction, Place, threads_at
from porter.ptx.arch import WARP, Limits
from porter.steps.step import Step

RULE = "PTR189"
NAME = "bulk-store"
BY_TMA = "stores of threads: results leave by TMA already"
BESIDE = "an epilogue that nothing runs beside: the next tile's MMAs run beside this one"
NO_USE = (BY_TMA, BESIDE)
"""Why kernels have no use for the step."""
_MOST_TURNS = 16
"""Turns of a loop inside of the one over columns."""
_TELLS = re.compile(
    r"\b(?:__threadfence\w*|atomic\w+|cudaTriggerProgrammaticLaunchCompletion|fence\.(?:acq_rel|sc)\.(?:gpu|sys)|"
    r"(?:st|red|atom)\.(?:\w+\.)*(?:release|relaxed|acq_rel|global)|griddepcontrol\.launch\w*|volatile\s+(?:int|unsigned)|"
    r"cp\.async\.bulk\.(?:commit|wait)_group|bulk_group)\b"
)
"""What tells others that results are there, or waits for copies of the kernel's own."""
_DEEPEST = 4


def take(context: PortContext) -> Changes:
    """The edits of the step, for all kernels."""
    changes = Changes(context, RULE)
    for kernel in context.kernels:
        _BulkStore(context, kernel, changes).take()
    context.helpers.row_stores = True
    return changes


@dataclass(frozen=True, eq=False)
class _Loop:
    """`for (int i = first; …; i += step)`. `turns`: how many, None where nobody knows."""

    node: Node
    variable: Variable
    first: int
    step: int
    turns: int | None


@dataclass(frozen=True, eq=False)
class _Store:
    """`left = value;` in the loop over columns, and the loops inside of that one around it."""

    statement: Node
    left: Node
    value: Node
    loops: tuple[_Loop, ...]


@dataclass(eq=False)
class _BulkStore(OfFunction):
    context: PortContext
    kernel: Kernel
    changes: Changes
    _staged: dict[tuple[int, ...], tuple[int, int | None, str]] = field(default_factory=dict)
    """What a warp stages, by what the array is made for: its bytes, how many warps, and that as text."""

    def __post_init__(self) -> None:
        self.function: Function = self.kernel.function
        self.program = self.context.program
        self.known = self.program.value(self.function, self.kernel.threads or "")
        self.threads = min(self.known or Limits.threads_per_block, Limits.threads_per_block) // WARP * WARP

    def take(self) -> None:
        function = self.function
        for operation in operations_of(self.program, function).operations:
            if operation.kind in ("store", "unread"):
                raise Place(operation.sites[0].frame.function, operation.sites[0].node).left(BY_TMA)
        self._untold()
        nests = self._nests()
        if not nests:
            raise self.left(function.body, "a loop over columns in which threads store the results")
        for loop, stores in nests:
            warps = self._warps(loop.node)
            self._write(loop, stores, self._rows(loop, stores), warps)
        self._say()

    def _untold(self) -> None:
        """That no other kernel or block is told of results, which bulk copies bring later: who reads them while this
        kernel runs is nobody that is compared."""
        mine = reached(self.program, [self.function])
        for function in (f for f in self.program.functions if id(f) in mine):
            body = function.span(function.body)
            text = function.file.lexed.code[body.start : body.end].decode("utf-8", "replace")
            for match in filter(None, map(_TELLS.search, [text, *(s.template for s in function.asm)])):
                raise Left(function, body, f"that nobody waits for results in this kernel: `{match[0]}`")

    def _say(self) -> None:
        """Say what warps stage; whether shared memory holds that, compiler and launches tell."""
        function = self.function
        known = sum(nbytes * (count or 0) for nbytes, count, _ in self._staged.values())
        said = [f"{nbytes} bytes for each of {text} warps" for nbytes, n, text in self._staged.values() if n is None]
        said += [f"{known} bytes"] if known else []
        self.context.report(Code.NATIVE_STAGED, function, function.head, kernel=function.name, bytes=" and ".join(said))

    # --- The loops

    def _nests(self) -> list[tuple[_Loop, list[_Store]]]:
        """Loops over columns, each with the stores in it: the innermost ones whose turn is whole columns of rows."""
        found: dict[int, tuple[_Loop, list[_Store]]] = {}
        for assignment in find(self.function.body, "assignment_expression"):
            if not self._stores(assignment):
                continue
            loop = self._columns(assignment)
            if loop.node.id not in found:
                found[loop.node.id] = loop, list(self._inside(loop))
        return list(found.values())

    def _stores(self, assignment: Node) -> bool:
        """Whether an assignment writes through a pointer that the kernel is handed."""
        left = assignment.child_by_field_name("left")
        if left is None or left.type not in ("subscript_expression", "pointer_expression", "call_expression"):
            return False
        names = (resolve(self.function, n, self.function.text(n)) for n in find(left, "identifier"))
        return any(v is not None and self._is_handed(v, 0) for v in names)

    def _is_handed(self, variable: Variable, depth: int) -> bool:
        """Whether a variable is a pointer that the kernel is handed, or is made of one."""
        if variable.function is not self.function or not self.program.names.expressions.variable(variable).is_pointer:
            return False
        if variable.param is not None:
            # who waits for volatile stores is no thread of the kernel
            return "volatile" not in self.function.text(variable.param.node or self.function.body)
        value = first_value(variable)
        if value is None or depth > _DEEPEST:
            return False
        names = (resolve(self.function, n, self.function.text(n)) for n in find(value, "identifier"))
        return any(v is not None and v.key != variable.key and self._is_handed(v, depth + 1) for v in names)

    def _columns(self, node: Node) -> _Loop:
        """The loop whose turns are the columns: the innermost around a store each of whose turns is whole columns.
        Raises Left: there is none; says what the outermost that might be it lacks."""
        why = self.left(node, "a loop over columns around this store")
        for outer in (n for n in above(node, self.function.body) if n.type in LOOPS):
            loop = self._loop(outer)
            if loop is None:
                raise self.left(outer, "a loop over columns around this store, counted up from a number")
            self._runs(outer)
            try:
                self._rows(loop, list(self._inside(loop)))
                return loop
            except Left as left:
                why = left
            if loop.turns is None or loop.turns > _MOST_TURNS:
                break
        raise why

    def _body(self, loop: Node) -> Node | None:
        body = loop.child_by_field_name("body")
        return body if body is not None and body.type == "compound_statement" else None

    def _loop(self, node: Node) -> _Loop | None:
        found, evaluate = counted(self.function, node), self.program.constants_in(self.function).evaluate
        if found is None:
            return None
        first, end = (evaluate(self.function.text(n)) for n in (found.first, found.end))
        step = evaluate(found.step)
        variable = resolve(self.function, found.end, found.name)
        if variable is None or turns_inside(self.function, node, found.name):
            return None
        if first is None or first < 0 or step is None or step <= 0:
            return None
        turns = None if end is None else len(range(first, end + (found.sign == "<="), step))
        return _Loop(node, variable, first, step, turns)

    def _inside(self, loop: _Loop) -> Iterator[_Store]:
        """The stores in a loop. Raises Left: how often an inner loop runs is not known."""
        body = self._body(loop.node)
        if body is None:
            raise self.left(loop.node, "a loop over columns in braces")
        yield from self._below(body, ())

    def _below(self, node: Node, loops: tuple[_Loop, ...]) -> Iterator[_Store]:
        if node.type == "for_statement":
            loop = self._loop(node)
            if loop is None or loop.turns is None or loop.turns > _MOST_TURNS:
                raise self.left(node, "how often a loop in the one over columns runs")
            loops = (*loops, loop)
        for inner in node.named_children:
            if inner.type == "assignment_expression" and self._stores(inner):
                yield self._store(node, inner, loops)
            else:
                yield from self._below(inner, loops)

    def _store(self, statement: Node, assignment: Node, loops: tuple[_Loop, ...]) -> _Store:
        operator = assignment.child_by_field_name("operator")
        left, value = assignment.child_by_field_name("left"), assignment.child_by_field_name("right")
        if operator is None or self.function.text(operator) != "=" or left is None or value is None:
            raise self.left(statement, "results that are stored, not added to what is there")
        if statement.type != "expression_statement":
            raise self.left(statement, "a store in a form of its own")
        return _Store(statement, left, value, loops)

    # --- Who, and where

    def _runs(self, node: Node) -> frozenset[int]:
        return threads_at(Who(self.program, self.threads), (Site(Frame(self.function), node),))

    def _warps(self, node: Node) -> range:
        """The warps that come to a loop, whole ones that follow each other."""
        threads = self._runs(node)
        warps = sorted({t // WARP for t in threads})
        if not warps or len(threads) != WARP * len(warps) or warps[-1] - warps[0] + 1 != len(warps):
            raise self.left(node, "that whole warps come to this loop")
        return range(warps[0], warps[-1] + 1)

    # --- Rows

    def _rows(self, loop: _Loop, stores: list[_Store]) -> Rows:
        """What stores of a turn come to. Raises Left: they are no rows."""
        puts: list[Put] = []
        for index, store in enumerate(stores):
            for turn in product(*(range(one.turns or 0) for one in store.loops)):
                values = tuple(one.first + at * one.step for one, at in zip(store.loops, turn, strict=True))
                inner = {one.variable.key: value for one, value in zip(store.loops, values, strict=True)}
                turns = [{**inner, loop.variable.key: at} for at in (loop.first, loop.first + loop.step)]
                at, after = (Drawn(self.program, one).place(self.function, store.left) for one in turns)
                if at is None or after is None:
                    raise self.left(store.left, "where this stores, by its row, its column and the warp's lanes")
                puts.append(Put(index, values, *at, after[0] - at[0]))
        rows = rows_of(puts)
        if isinstance(rows, str):
            raise self.left(loop.node, rows)
        return rows

    # --- Edits

    def _write(self, loop: _Loop, stores: list[_Store], rows: Rows, warps: range) -> None:
        function, changes = self.function, self.changes
        name = self.context.names.fresh("leaving")
        place, body = Place(function, loop.node), self._body(loop.node)
        assert body is not None
        count = str(len(warps))
        if self.known is None:
            count = f"({self.kernel.threads}) / {WARP} - {warps[0]}"
        known = len(warps) if self.known is not None else None
        self._staged[rows.nbytes, rows.step, rows.halves, warps[0], len(warps)] = rows.warp_bytes, known, count
        args = f"{rows.nbytes}, {rows.step}, {rows.halves}, {warps[0]}, {count}"
        changes.before(place, f"{qualified('Rows')}<{args}> {name};")
        for index, store in enumerate(stores):
            self._store_to(name, store, *rows.texts(index, [one.variable.name for one in store.loops]), rows, index)
        end = function.span(body).end - 1
        inner = [c for c in statements_in(body) if not c.type.startswith("preproc")]
        pad = self.context.indent(function, function.span(inner[-1]))
        outer = self.context.indent(function, function.span(loop.node))
        alone = function.file.source[:end].rstrip(b" \t").endswith(b"\n")
        at = len(function.file.source[:end].rstrip(b" \t")) if alone else end
        text = f"{pad}{name}.next();\n" if alone else f" {name}.next(); "
        changes.replace(function, Span(at, at), text)
        stop = function.span(loop.node).end
        changes.replace(function, Span(stop, stop), f"\n{outer}{name}.end();")

    def _store_to(self, name: str, store: _Store, half: str, column: str, rows: Rows, index: int) -> None:
        function = self.function
        left, value, whole = (function.span(n) for n in (store.left, store.value, store.statement))
        put = "put_pair" if rows.pairs[index] else "put"
        between = function.text(store.statement)[left.end - whole.start : value.start - whole.start]
        if between.strip() != "=" or function.style is Style.MACRO:
            raise self.left(store.statement, "a store in a form of its own")
        for rule, edits in self.context.edits.items():
            for edit in (e for e in edits if e.path == function.file.path):
                if edit.span.overlaps(Span(left.end, value.start)) and len(edit.span):
                    raise self.left(store.statement, f"a store that {rule} leaves as it is")
        self.changes.replace(function, Span(left.start, left.start), f"{name}.{put}({half}, {column}, ")
        self.changes.replace(function, Span(left.end, value.start), ", ")
        self.changes.replace(function, Span(value.end, value.end), ")")


STEP = Step(
    NAME, RULE, lambda taking: take(taking.context).make(), beside={"double-buffer": BESIDE, "pair": BESIDE},
    follows=("blocks",), chosen=True, cost=True,
)  # fmt: skip
