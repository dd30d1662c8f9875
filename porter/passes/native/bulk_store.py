# SPDX-License-Identifier: Apache-2.0
"""Results leave by bulk copies: a warp stages the rows that it stores in shared memory, a few columns at a time, and
each row of these leaves by one `cp.async.bulk`. Whatever the kernel's text says of addresses, values and conditions
stays; only the store itself goes to the stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.affine import Affine, Poly, Scope
from porter.model.dynamic_shared import asked_for
from porter.model.functions import Function, Style
from porter.model.kernels import Kernel, statements_in
from porter.model.pipeline.frames import Frame
from porter.model.pipeline.operations import Site, operations_of
from porter.model.pipeline.who import Who
from porter.model.scopes import LOOPS, Variable, resolve
from porter.model.thread_values import several_dimensions
from porter.model.threads import Threads
from porter.passes.context import PortContext, qualified
from porter.passes.native.rows import Put, Rows, rows_of
from porter.passes.native.sites import Changes, Left, Place, steps_below
from porter.passes.native.storing import Effects
from porter.passes.obstacles import shared_bytes
from porter.ptx.arch import SHARED_LIMIT, WARP, Limits
from porter.steps.step import Step

RULE = "PTR189"
NAME = "bulk-store"
BY_TMA = "stores of threads: results leave by TMA already"
BESIDE = "an epilogue that nothing runs beside: the next tile's MMAs run beside this one"
NO_USE = (BY_TMA, BESIDE)
"""Why kernels have no use for the step."""
MOST_STATIC = 45056
"""Bytes of static shared memory that rows may take; all together it is at most 48 KB."""
_MOST_TURNS = 16
"""Turns of a loop inside of the one over columns."""
_MOST_STORES = 256
_JUMPS = ("return_statement", "break_statement", "continue_statement", "goto_statement")


def take(context: PortContext) -> Changes:
    """The edits of the step, for all kernels.

    Raises:
        Left: a fact is missing.
    """
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

    @property
    def name(self) -> str:
        return f"{self.variable.name}@{self.variable.key[1]}"


@dataclass(frozen=True, eq=False)
class _Store:
    """`left = value;` in the loop over columns, and the loops inside of that one around it."""

    statement: Node
    left: Node
    value: Node
    loops: tuple[_Loop, ...]


@dataclass(eq=False)
class _BulkStore:
    context: PortContext
    kernel: Kernel
    changes: Changes
    _staged: dict[tuple[int, ...], tuple[int, int | None, str]] = field(default_factory=dict)
    """What a warp stages, by what the array is made for: its bytes, how many warps, and that as text."""

    def __post_init__(self) -> None:
        self.function: Function = self.kernel.function
        self.program = self.context.program
        self.effects = Effects(self.program, self.function)
        self.differ = Threads(self.program)
        threads = self.program.constants_in(self.function).evaluate(self.kernel.threads or "")
        self.known = threads
        self.threads = min(threads or Limits.threads_per_block, Limits.threads_per_block) // WARP * WARP

    def _left(self, node: Node, what: str) -> Left:
        return Left(self.function, self.function.span(node), what)

    def take(self) -> None:
        function = self.function
        if several_dimensions(self.program):
            raise self._left(function.body, "blocks of one dimension")
        if self.known is not None and self.known % WARP:
            raise self._left(function.body, "blocks of whole warps")
        for operation in operations_of(self.program, function).operations:
            if operation.kind in ("store", "unread"):
                raise Place(operation.sites[0].frame.function, operation.sites[0].node).left(BY_TMA)
        self.effects.alone()
        nests = self._nests()
        if not nests:
            raise self._left(function.body, "a loop over columns in which threads store the results")
        seen: set[int] = set()
        for loop, stores in nests:
            self._comes_whole(loop.node)
            warps = self._warps(loop.node)
            affine = self._affine(self._runs(loop.node))
            rows = self._rows(affine, loop, stores)
            seen |= self.effects.only_stored(affine, [s.left for s in stores])
            self._write(loop, stores, rows, warps)
        self.effects.nowhere_else(seen)
        self._fits()

    def _fits(self) -> None:
        """That shared memory holds what warps stage beside what launches ask for, as far as these say."""
        function = self.function
        known = sum(nbytes * (count or 0) for nbytes, count, _ in self._staged.values())
        asked = (asked_for(self.program, function) or 0) + shared_bytes(self.context)
        if known > MOST_STATIC or asked + known > SHARED_LIMIT:
            what = f"room for {known} bytes of rows beside {asked} of shared memory"
            raise self._left(function.body, what)
        said = [
            f"{nbytes} bytes for each of {text} warps" for nbytes, count, text in self._staged.values() if count is None
        ]
        said += [f"{known} bytes"] if known else []
        self.context.report(
            Code.NATIVE_STAGED, function, function.name_span or function.span(function.body),
            kernel=function.name, bytes=" and ".join(said),
        )  # fmt: skip

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
        probe = Affine(self.program, WARP, range(WARP))
        return any(
            (v := resolve(self.function, n, self.function.text(n))) is not None and self.effects.is_handed(v, probe)
            for n in find(left, "identifier")
        )

    def _columns(self, node: Node) -> _Loop:
        """The loop whose turns are the columns: the innermost around a store each of whose turns is whole columns.

        Raises:
            Left: there is none; says what the outermost that might be it lacks.
        """
        why = self._left(node, "a loop over columns around this store")
        above = node.parent
        while above is not None and above.id != self.function.body.id:
            if above.type in LOOPS:
                loop = self._loop(above)
                if loop is None:
                    raise self._left(above, "a loop over columns around this store, counted up from a number")
                try:
                    self._rows(self._affine(self._runs(above)), loop, list(self._inside(loop)))
                    self._turns_alike(above)
                except Left as left:
                    why = left
                else:
                    return loop
                if loop.turns is None or loop.turns > _MOST_TURNS:
                    break
            above = above.parent
        raise why

    def _turns_alike(self, loop: Node) -> None:
        condition = loop.child_by_field_name("condition")
        if condition is not None and self.differ.differ(self.function, condition):
            raise self._left(condition, "as many turns of this loop for all threads")

    def _affine(self, threads: frozenset[int]) -> Affine:
        warps = sorted({t // WARP for t in threads})
        return Affine(self.program, self.threads, [w * WARP + i for w in warps for i in range(WARP)])

    def _body(self, loop: Node) -> Node | None:
        body = loop.child_by_field_name("body")
        return body if body is not None and body.type == "compound_statement" else None

    def _loop(self, node: Node) -> _Loop | None:
        begin, condition, update = (node.child_by_field_name(n) for n in ("initializer", "condition", "update"))
        if node.type != "for_statement" or begin is None or condition is None or update is None:
            return None
        declared = [c for c in begin.named_children if c.type == "init_declarator"]
        if begin.type != "declaration" or len(declared) != 1:
            return None
        name = declared[0].child_by_field_name("declarator")
        value = declared[0].child_by_field_name("value")
        if name is None or name.type != "identifier" or value is None:
            return None
        text = self.function.text
        first = self.program.constants_in(self.function).evaluate(text(value))
        step = self._step(update, text(name))
        variable = resolve(self.function, update, text(name))
        if first is None or first < 0 or not step or variable is None or self._turns_inside(node, text(name)):
            return None
        return _Loop(node, variable, first, step, self._count(condition, text(name), first, step))

    def _step(self, update: Node, name: str) -> int:
        """By how much a loop's variable grows; 0 where that is not known."""
        text = "".join(self.function.text(update).split())
        if text in (f"++{name}", f"{name}++"):
            return 1
        by = text.removeprefix(f"{name}+=")
        value = self.program.constants_in(self.function).evaluate(by) if by != text else None
        return value if value is not None and value > 0 else 0

    def _turns_inside(self, loop: Node, name: str) -> bool:
        """Whether the body gives the variable of a loop another value."""
        body = loop.child_by_field_name("body")
        if body is None:
            return True
        return any(
            (target := n.child_by_field_name("left") or n.child_by_field_name("argument")) is not None
            and self.function.text(target) == name
            for n in find(body, "assignment_expression", "update_expression")
        )

    def _count(self, condition: Node, name: str, first: int, step: int) -> int | None:
        left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
        operator = condition.child_by_field_name("operator")
        if left is None or right is None or operator is None or self.function.text(left) != name:
            return None
        end = self.program.constants_in(self.function).evaluate(self.function.text(right))
        sign = self.function.text(operator)
        if end is None or sign not in ("<", "<=", "!="):
            return None
        end += sign == "<="
        return max(0, -(-(end - first) // step))

    def _inside(self, loop: _Loop) -> Iterator[_Store]:
        """The stores in a loop. Nothing else in it does anything but compute.

        Raises:
            Left: something does.
        """
        body = self._body(loop.node)
        if body is None:
            raise self._left(loop.node, "a loop over columns in braces")
        yield from self._in_statements(body, ())

    def _in_statements(self, block: Node, loops: tuple[_Loop, ...]) -> Iterator[_Store]:
        for node in statements_in(block):
            yield from self._in_statement(node, loops)

    def _in_statement(self, node: Node, loops: tuple[_Loop, ...]) -> Iterator[_Store]:
        if node.type == "compound_statement":
            yield from self._in_statements(node, loops)
        elif node.type == "declaration":
            self.effects.declares_values(node)
            self.effects.quiet(node)
        elif node.type == "if_statement":
            condition = node.child_by_field_name("condition")
            if condition is not None:
                self.effects.quiet(condition)
            for name in ("consequence", "alternative"):
                arm = node.child_by_field_name(name)
                inner = arm.named_children if arm is not None and arm.type == "else_clause" else [arm] if arm else []
                for one in inner:
                    yield from self._in_statement(one, loops)
        elif node.type == "for_statement":
            loop, body = self._loop(node), node.child_by_field_name("body")
            if loop is None or body is None or loop.turns is None or loop.turns > _MOST_TURNS:
                raise self._left(node, "how often a loop in the one over columns runs")
            yield from self._in_statement(body, (*loops, loop))
        elif node.type == "expression_statement":
            yield self._store(node, loops)
        elif node.type not in ("comment", "preproc_call", "preproc_def", "preproc_function_def", ";",
                               "static_assert_declaration", "using_declaration", "alias_declaration"):  # fmt: skip
            raise self._left(node, "a loop over columns that does nothing but store")

    def _store(self, node: Node, loops: tuple[_Loop, ...]) -> _Store:
        inner = [c for c in node.named_children if c.type != "comment"]
        if len(inner) != 1 or inner[0].type != "assignment_expression":
            raise self._left(node, "a loop over columns that does nothing but store")
        operator = inner[0].child_by_field_name("operator")
        left, value = inner[0].child_by_field_name("left"), inner[0].child_by_field_name("right")
        if operator is None or self.function.text(operator) != "=" or left is None or value is None:
            raise self._left(node, "results that are stored, not added to what is there")
        if not self._stores(inner[0]):
            raise self._left(node, "a loop over columns that does nothing but store to one output")
        self.effects.quiet(left, stored=True)
        self.effects.quiet(value)
        return _Store(node, left, value, loops)

    # --- Who, and where

    def _runs(self, node: Node) -> frozenset[int]:
        found = Who(self.program, self.threads).runs((Site(Frame(self.function), node),))
        if found.threads is None:
            raise self._left(node, f"which threads `{found.unknown}` lets through")
        return found.threads

    def _warps(self, node: Node) -> range:
        """The warps that come to a loop, whole ones that follow each other."""
        threads = self._runs(node)
        warps = sorted({t // WARP for t in threads})
        if not warps or len(threads) != WARP * len(warps) or warps[-1] - warps[0] + 1 != len(warps):
            raise self._left(node, "that whole warps come to this loop")
        return range(warps[0], warps[-1] + 1)

    def _comes_whole(self, loop: Node) -> None:
        """That all lanes of a warp come to a loop as often. Conditions around it ask for the index of a thread, which
        says that of all lanes (`_warps`), or for what is the same in all threads; what else is around it is around
        MMAs, which whole warpgroups come to."""
        function = self.function
        body = function.span(function.body)
        places = [path[0].node for path, _ in steps_below(self.program, function, [body])]
        node, end = loop, loop.end_byte
        while node.parent is not None and node.parent.id != function.body.id:
            above = node.parent
            shared = any(above.start_byte <= p.start_byte < above.end_byte for p in places)
            if above.type in ("switch_statement", "do_statement", "for_range_loop") and not shared:
                raise self._left(above, "that whole warps come to this loop")
            if above.type in LOOPS and not shared:
                end = above.end_byte
            if above.type in ("lambda_expression", "try_statement"):
                raise self._left(above, "a loop over columns of the kernel itself")
            node = above
        ahead = [p.end_byte for p in places if p.start_byte < loop.start_byte]
        if not ahead:
            raise self._left(loop, "MMAs in the kernel itself, ahead of what it stores")
        last = max(ahead)
        jumps = [*find(function.body, *_JUMPS), *self.differ.leaving(function)]
        for jump in jumps:
            if last <= jump.start_byte < end or jump.type == "goto_statement":
                raise self._left(jump, "that no thread leaves between MMAs and what it stores")

    # --- Rows

    def _rows(self, affine: Affine, loop: _Loop, stores: list[_Store]) -> Rows:
        """What stores of a turn come to.

        Raises:
            Left: they are no rows.
        """
        puts: list[Put] = []
        for index, store in enumerate(stores):
            turns = [range(one.turns or 0) for one in store.loops]
            for turn in product(*turns):
                inner: dict[tuple[int, int, str], Poly] = {
                    one.variable.key: affine.number(one.first + at * one.step)
                    for one, at in zip(store.loops, turn, strict=True)
                }
                inner[loop.variable.key] = affine.turn(loop.name, loop.first, loop.step)
                found = affine.lvalue(Scope(self.function, inner), store.left)
                if found is None or not found.size:
                    raise self._left(store.left, "where this stores, by its row, its column and the warp's lanes")
                values = tuple(one.first + at * one.step for one, at in zip(store.loops, turn, strict=True))
                puts.append(Put(index, values, found))
                if len(puts) > _MOST_STORES:
                    raise self._left(loop.node, f"at most {_MOST_STORES} stores in a turn of this loop")
        rows = rows_of(affine, loop.name, puts)
        if isinstance(rows, str):
            raise self._left(loop.node, rows)
        return rows

    # --- Edits

    def _write(self, loop: _Loop, stores: list[_Store], rows: Rows, warps: range) -> None:
        function, changes = self.function, self.changes
        name = self.context.names.fresh("leaving")
        place, body = Place(function, loop.node), self._body(loop.node)
        assert body is not None
        if loop.node.parent is None or loop.node.parent.type != "compound_statement":
            raise place.left("a loop over columns in a block of its own")
        count = str(len(warps))
        if self.known is None:
            if not self.kernel.threads:
                raise place.left("how many threads a block has")
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
            raise self._left(store.statement, "a store in a form of its own")
        for rule, edits in self.context.edits.items():
            for edit in (e for e in edits if e.path == function.file.path):
                if edit.span.overlaps(Span(left.end, value.start)) and len(edit.span):
                    raise self._left(store.statement, f"a store that {rule} leaves as it is")
        self.changes.replace(function, Span(left.start, left.start), f"{name}.{put}({half}, {column}, ")
        self.changes.replace(function, Span(left.end, value.start), ", ")
        self.changes.replace(function, Span(value.end, value.end), ")")


STEP = Step(
    NAME, RULE, lambda taking: take(taking.context).make(), beside={"double-buffer": BESIDE, "pair": BESIDE},
    follows=("blocks",), cost=True,
)  # fmt: skip
