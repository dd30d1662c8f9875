# SPDX-License-Identifier: Apache-2.0
"""Which rows a warp has of two m64 tiles that one M=128 MMA makes: 32 that follow each other, where it had 16 of each.

Lane L of the M=128 accumulator holds row L, and warp w reaches lanes 32w to 32w + 31. Its part of tile m are rows
32w + 16m and on, which the sources call 64m + 16w: so 16 (m + w) stands in the place of 64m. That is right where what
is done with registers of a tile depends on the tile and the warp by such a sum only. What is not known to be so is
named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import enclosing, find, walk
from porter.lang.text import Edit, as_bytes
from porter.model.functions import Call, Function, Style
from porter.model.kernels import SHARED, Kernel
from porter.model.mentions import Mention
from porter.model.program import Program
from porter.model.scopes import LOOPS, Variable, resolve
from porter.model.thread_values import ThreadValues, Values
from porter.model.threads import Threads, ends_thread
from porter.passes.context import qualified
from porter.passes.full_rate.apart import Turns
from porter.passes.full_rate.joining import Missing, ends_inside, macro_leaves
from porter.passes.full_rate.renaming import opaque_headers, reached
from porter.passes.full_rate.sameness import Sameness
from porter.passes.full_rate.stacking import Stack, TileLoop, tile_loop
from porter.passes.full_rate.turns import barriers
from porter.passes.full_rate.waiting import Waiting
from porter.ptx.arch import WARP
from porter.ptx.wgmma import THREADS as WARPGROUP
from porter.ptx.wgmma import M

_PART = M // (WARPGROUP // WARP)
"""Rows of a tile that a warp has."""
_WRAPPED = ("parenthesized_expression", "condition_clause")
_BRANCHES = ("if_statement", "switch_statement", "conditional_expression", *LOOPS)
_LEAVING = ("return_statement", "break_statement", "continue_statement", "goto_statement")
_NOT_TRACED = "which rows of a tile a warp has is not told by 64 times the tile's index and 16 times the warp's"


@dataclass(eq=False)
class Rows:
    """Asks about what a kernel does with the registers of an accumulator of two tiles."""

    program: Program
    threads: Threads
    kernel: Kernel
    stack: Stack
    terms: list[tuple[Function, Node, str]] = field(default_factory=list)
    """Terms that are 64 times the index of a tile, with its name."""
    interleaved: bool = False
    """Whether tiles of two warpgroups take turns: the second tile of one begins 128 rows behind its first."""
    _loops: list[TileLoop] = field(default_factory=list)
    _checked: set[int] = field(default_factory=set)

    @cached_property
    def _count(self) -> int:
        return self.kernel.roles.value or 1

    @cached_property
    def _values(self) -> ThreadValues:
        return ThreadValues(self.program, (self.kernel.roles.first + self._count) * WARPGROUP)

    @cached_property
    def _sameness(self) -> Sameness:
        return Sameness(self.program, self.threads, self.kernel.roles.first)

    def missing(self, mentions: list[Mention]) -> Iterator[Missing]:
        """The facts that are not known of the rows; `mentions` are all places that name the registers but for MMAs."""
        for mention in mentions:
            loop = self._loop_of(mention)
            if loop is None:
                at = mention.function.span(mention.function.body)
                yield Missing(mention.function, at, f"`{mention.text}` is used otherwise than tile by tile in a loop")
            elif not any(loop.node.id == known.node.id for known in self._loops):
                self._loops.append(loop)
        for loop in self._loops:
            yield from self._in_loop(loop)
            yield from self._around(loop.function, loop.node)
        yield from self._exchanges()

    def edits(self) -> list[Edit]:
        """What stands in the place of the terms."""
        call = qualified("tile_row")
        return [Edit(f.file.path, f.span(n), as_bytes(f"{call}({name})")) for f, n, name in self.terms]

    # --- tile by tile

    def _loop_of(self, mention: Mention) -> TileLoop | None:
        """The loop whose index chooses the tile."""
        function, name = mention.function, mention.text
        node = function.file.root.descendant_for_byte_range(mention.offset, mention.offset + len(name))
        if mention.macro or node is None or function is not self.kernel.function:
            return None
        while node.parent is not None and node.parent.type == "field_expression":
            node = node.parent
        chosen = node.parent
        if chosen is None or chosen.type != "subscript_expression" or enclosing(node, "lambda_expression") is not None:
            return None
        index = _index(function, chosen)
        variable = resolve(function, chosen, index)
        above = variable.declaration.parent if variable is not None and variable.declaration is not None else None
        return tile_loop(self.program, self.stack.accumulator, function, above) if above is not None else None

    def _in_loop(self, loop: TileLoop) -> Iterator[Missing]:
        sums = [s for n in find(loop.body, "identifier") if loop.function.text(n) == loop.name
                and (s := self._sum(loop, n)) is not None]  # fmt: skip
        for term, whole in sums:
            if not self._is_row(loop, term, whole):
                yield self._at(loop.function, whole, _NOT_TRACED)
            else:
                self.terms.append((loop.function, term, loop.name))
        tiles = self.stack.accumulator.home.names
        yield from self._uniform(loop, loop.function, loop.body, [w.id for _, w in sums], set(tiles))
        yield from self._hands_on(loop.function, loop.body)
        yield from Turns(self.program, set(tiles)).missing(loop.function, loop.body, [w.id for _, w in sums])

    def _sum(self, loop: TileLoop, node: Node) -> tuple[Node, Node] | None:
        """The term `m * 64` that an index of a tile stands in, and the sum around that."""
        term = node.parent
        if term is None or term.type != "binary_expression":
            return None
        left, sign, right = term.children[0], loop.function.text(term.children[1]), term.children[2]
        other = right if left.id == node.id else left
        factor = self.program.value(loop.function, loop.function.text(other))
        self.interleaved |= (sign, factor) == ("*", 2 * M)
        if (sign, factor) != ("*", M) and not (sign == "<<" and left.id == node.id and factor == M.bit_length() - 1):
            return None
        whole = term
        while whole.parent is not None:
            above = whole.parent
            added = above.type == "binary_expression" and loop.function.text(above.children[1]) in ("+", "-")
            if added and loop.function.text(above.children[1]) == "-" and above.children[2].id == whole.id:
                break
            if not added and above.type != "parenthesized_expression":
                break
            whole = above
        return term, whole

    def _is_row(self, loop: TileLoop, term: Node, whole: Node) -> bool:
        """Whether the terms of a sum beside one that is the tile's add 16 for each warp, and no other has a part in
        the tile or the warp."""
        total = [0] * self._values.threads
        for part, sign in _terms(loop.function, whole, 1):
            if part.id == term.id:
                if sign < 0:
                    return False
                continue
            values = self._of(loop.function, part)
            if values is None:
                if any(True for _ in self._uniform(loop, loop.function, part, [], set())):
                    return False
                continue
            total = [t + sign * v for t, v in zip(total, values, strict=True)]
        return all(total[t] - total[_first_warp(t)] == _PART * (t // WARP % 4) for t in self._consumers())

    def _of(self, function: Function, node: Node) -> tuple[int, ...] | None:
        """The values of an expression in all threads, None unless they are known in all that run MMAs."""
        values: Values | None = self._values.of(function, node)
        if values is None or any(values[t] is None for t in self._consumers()):
            return None
        return tuple(v if v is not None else 0 for v in values)

    def _consumers(self) -> range:
        return range(self.kernel.roles.first * WARPGROUP, self._values.threads)

    # --- the same in all warps

    def _uniform(
        self, loop: TileLoop | None, function: Function, node: Node, known: list[int], tiles: set[str]
    ) -> Iterator[Missing]:
        """What below a node may be another value in another warp of a warpgroup, or of another tile; not what stands
        in `known` nodes, or names a tile's registers by `tiles`."""
        if node.id in known:
            return
        if node.type.endswith(("expression", "clause")) or node.type == "identifier":
            values = self._of(function, node)
            if values is not None and all(values[t] == values[_first_warp(t)] for t in self._consumers()):
                return
        if loop is not None and node.type == "subscript_expression" and _index(function, node) == loop.name:
            root = next(find(node, "identifier"), None)
            if root is not None and function.text(root) in tiles:
                return
        if node.type == "identifier":
            yield from self._named(loop, function, node)
            return
        if node.type in ("type_identifier", "template_type") and not self._sameness.same(function, node):
            yield self._at(function, node, _NOT_TRACED)
            return
        if node.type == "call_expression":
            yield from self._called(function, node)
        elif node.type == "gnu_asm_expression":
            if any(self.threads.asm_differs(s) for s in function.asm if s.node.id == node.id):
                yield self._at(function, node, _NOT_TRACED)
        elif node.type == "lambda_expression" or self.threads.tells(function, node):
            yield self._at(function, node, _NOT_TRACED)
            return
        for child in node.named_children:
            yield from self._uniform(loop, function, child, known, tiles)

    def _named(self, loop: TileLoop | None, function: Function, node: Node) -> Iterator[Missing]:
        name = function.text(node)
        above = node.parent
        if (
            above is not None
            and above.type in ("field_expression", "qualified_identifier")
            and above.children[0].id != node.id
        ):
            return
        if loop is not None and name == loop.name:
            yield self._at(function, node, f"the tile's index `{name}` is used for something else than its rows")
            return
        if name in self.program.macros.by_name and self.program.value(function, name) is None:
            yield self._at(function, node, f"what the macro `{name}` does is not followed")
            return
        variable = resolve(function, node, name)
        if variable is not None and variable.param is not None and variable.function.style is Style.LAMBDA:
            # what it is handed is looked at where it is called
            return
        if variable is None or variable.param is not None:
            handed = variable is None or (variable.function.style is Style.KERNEL and not _changed(variable))
            if self.threads.tells(function, node) or not (handed or self._sameness.same(function, node)):
                yield self._at(function, node, _NOT_TRACED)
            return
        declaration = variable.declaration
        if (
            loop is not None
            and declaration is not None
            and _inside(declaration, loop.node)
            and function is loop.function
        ):
            return
        same = not _is_lambda(variable) and self._sameness.same(function, node)
        if variable.ambiguous or not (same or self._is_uniform(variable)):
            yield self._at(function, node, _NOT_TRACED)

    def _is_uniform(self, variable: Variable) -> bool:
        """Whether a variable has the same value in all warps, by what it is made from where it is declared."""
        declarator, declaration = variable.declarator, variable.declaration
        if declaration is None or declarator is None:
            return False
        function, value = variable.function, declarator.child_by_field_name("value")
        if SHARED in function.text(declaration):
            return True
        if value is None or declaration.id in self._checked:
            return False
        if value.type == "lambda_expression":
            function = next(f for f in self.program.functions if f.node.id == value.id and f.file is function.file)
            value = function.body
            if any(self._hands_on(function, function.body)):
                return False
        elif _changed(variable) or _is_lambda(variable):
            return False
        self._checked.add(declaration.id)
        found = next(self._uniform(None, function, value, [], set()), None)
        self._checked.discard(declaration.id)
        return found is None

    def _called(self, function: Function, node: Node) -> Iterator[Missing]:
        calls: list[Call] = [c for c in self.program.calls_by_node.get(node.id, ()) if c.caller.file is function.file]
        for call in calls:
            targets = self.program.targets(call)
            # what a lambda does is looked at by its name
            other = any(t.parent is None for t in targets) or not (targets or _is_atomic(call))
            if any(t.style is Style.MACRO for t in targets) or (other and self.threads.call_differs(call)):
                yield self._at(function, node, _NOT_TRACED)
                return
        callee = node.child_by_field_name("function")
        if not calls and callee is not None and function.text(callee) in self.program.macros.by_name:
            yield self._at(function, node, "what a macro does is not followed")

    def _hands_on(self, function: Function, body: Node) -> Iterator[Missing]:
        """What the turn of a loop, or a lambda, keeps beyond its end in variables of a thread's own."""
        tiles = self.stack.accumulator.home.names

        def kept(name: Node) -> bool:
            variable = resolve(function, name, function.text(name))
            inside = variable is not None and variable.declaration is not None and _inside(variable.declaration, body)
            own = variable is not None and (
                variable.declaration is None or SHARED not in function.text(variable.declaration)
            )
            return own and not inside and function.text(name) not in tiles and not _is_param(variable, function, body)

        for node in find(body, "assignment_expression", "update_expression"):
            target = node.child_by_field_name("left") or node.child_by_field_name("argument")
            name = next((n for n in walk(target) if n.type == "identifier"), None) if target is not None else None
            variable = resolve(function, name, function.text(name)) if name is not None else None
            through = (
                variable is not None and target is not None and _leads_on(variable) and target.type != "identifier"
            )
            if name is not None and not through and kept(name):
                yield self._at(function, node, f"a tile hands `{function.text(name)}` on to the next one")
        for node in find(body, "call_expression"):
            arguments = node.child_by_field_name("arguments")
            for argument in arguments.named_children if arguments is not None else ():
                name = next((n for n in walk(argument) if n.type == "identifier"), None)
                variable = resolve(function, name, function.text(name)) if name is not None else None
                through = variable is not None and _leads_on(variable)
                address = argument.type == "pointer_expression" and function.text(argument).startswith("&")
                written = not through if address else self._sameness.written(function, node, argument)
                if name is not None and written and kept(name):
                    yield self._at(function, node, f"a tile hands `{function.text(name)}` on to the next one")
            callee = node.child_by_field_name("function")
            holder = callee.child_by_field_name("argument") if callee is not None else None
            if holder is not None and holder.type == "identifier" and kept(holder):
                yield self._at(function, node, f"a tile hands `{function.text(holder)}` on to the next one")

    # --- around the loops

    def _around(self, function: Function, node: Node) -> Iterator[Missing]:
        """Branches around a loop over tiles, and ways out in front of it, that warps may answer differently."""
        leaving = [
            n
            for n in find(function.body, *_LEAVING)
            if enclosing(n, "lambda_expression") is None
            and not any(
                _inside(n, o.body) and ends_inside(n, o.node if n.type == "continue_statement" else o.body)
                for o in self._loops
            )
        ]
        macros = [n for n in find(function.body, "identifier") if macro_leaves(self.program, function.text(n))]
        for name in macros:
            yield self._at(function, name, "what a macro does is not followed")
        for start in (node, *leaving):
            for condition in self._asked(function, start, node):
                yield self._at(function, condition, "warps may part in front of what they do with the rows")

    def _asked(self, function: Function, node: Node, loop: Node | None) -> Iterator[Node]:
        """Conditions around a place that warps may answer differently; not that of the `loop` itself."""
        inner, current = node, node.parent
        while current is not None and inner.id != function.body.id:
            condition = current.child_by_field_name("condition") if current.type in _BRANCHES else None
            its_own = condition is not None and (
                condition.id == inner.id or (loop is not None and current.id == loop.id)
            )
            if condition is not None and not its_own and any(self._uniform(None, function, condition, [], set())):
                yield condition
            inner, current = current, current.parent

    def _exchanges(self) -> Iterator[Missing]:
        """Where fewer than all warps of a warpgroup wait for each other: their rows are then those of others."""
        mine = reached(self.program, [self.kernel.function])
        yield from opaque_headers(self.program, self.kernel.function)
        for function in self.program.functions:
            if id(function) not in mine:
                continue
            waits = [(function, c.node) for c in function.calls if c.name == "__syncwarp"]
            waits += [(function, s.node) for s in function.asm if "bar.warp" in s.template]
            waits += [(f, n) for f, n, threads, apart in barriers(self.program, self._sameness, function)
                      if threads is None or threads % WARPGROUP or apart]  # fmt: skip
            for statement in function.asm:
                if ends_thread(statement):
                    yield Missing(function, statement.span, "warps may end in front of what they do with the rows")
            for owner, node in waits:
                if self._sameness.comes_to(owner, node):
                    yield self._at(owner, node, "warps wait for less than their warpgroup, and may exchange rows")

        uses = list(Waiting(self.program, self.threads, self._sameness, self.kernel).uses())
        arrived = {u.home: u.own for u in uses if not u.waits}
        for use in uses:
            parts = next(self._asked(*use.place, None), None) is not None
            if use.waits and use.home in arrived and (use.own or arrived[use.home] or parts):
                yield self._at(
                    use.function, use.node, "warps wait for less than their warpgroup, and may exchange rows"
                )

    def _at(self, function: Function, node: Node, what: str) -> Missing:
        return Missing(function, function.span(node), what)


def _first_warp(thread: int) -> int:
    """The same lane in the first warp of a thread's warpgroup."""
    return thread // WARPGROUP * WARPGROUP + thread % WARP


def _inside(node: Node, outer: Node) -> bool:
    return outer.start_byte <= node.start_byte and node.end_byte <= outer.end_byte


def _index(function: Function, node: Node) -> str:
    """What stands between the brackets of a subscript."""
    listed = node.child_by_field_name("indices") or node.child_by_field_name("index")
    return function.text(listed).strip("[] ") if listed is not None else ""


def _terms(function: Function, node: Node, sign: int) -> Iterator[tuple[Node, int]]:
    """The terms of a sum, each with its sign."""
    if node.type in _WRAPPED and len(node.named_children) == 1:
        yield from _terms(function, node.named_children[0], sign)
    elif node.type == "binary_expression" and function.text(node.children[1]) in ("+", "-"):
        minus = function.text(node.children[1]) == "-"
        yield from _terms(function, node.children[0], sign)
        yield from _terms(function, node.children[2], -sign if minus else sign)
    else:
        yield node, sign


def _root(function: Function, change: Node) -> str:
    """The name at the beginning of what is changed."""
    target = change.child_by_field_name("left") or change.child_by_field_name("argument")
    name = next((n for n in walk(target) if n.type == "identifier"), None) if target is not None else None
    return function.text(name) if name is not None else ""


def _leads_on(variable: Variable) -> bool:
    """Whether a variable leads to something else: a pointer, or a reference."""
    node = variable.param.node if variable.param is not None else variable.declarator
    return node is not None and any(n.type.endswith(("pointer_declarator", "reference_declarator")) for n in walk(node))


def _is_lambda(variable: Variable) -> bool:
    value = variable.declarator.child_by_field_name("value") if variable.declarator is not None else None
    return value is not None and next(find(value, "lambda_expression"), None) is not None


def _is_param(variable: Variable | None, function: Function, body: Node) -> bool:
    """Whether a variable is what a lambda, whose body it is, is handed by value."""
    own = variable is not None and variable.param is not None and variable.function is function
    return own and body.id == function.body.id and variable is not None and not _leads_on(variable)


def _is_atomic(call: Call) -> bool:
    """Whether a call adds to what threads share, and its result is not asked for."""
    above = call.node.parent
    return call.name.startswith("atomic") and above is not None and above.type == "expression_statement"


def _changed(variable: Variable) -> bool:
    """Whether a variable may get another value than its first one."""
    function = variable.function
    for node in find(function.body, "assignment_expression", "update_expression"):
        target = node.child_by_field_name("left") or node.child_by_field_name("argument")
        through = target is not None and target.type in ("subscript_expression", "pointer_expression")
        if _root(function, node) == variable.name and not (through and _leads_on(variable)):
            return True
    taken = rf"&\s*{re.escape(variable.name)}\b.*"
    return any(re.fullmatch(taken, function.text(n), re.DOTALL) for n in find(function.body, "pointer_expression"))
