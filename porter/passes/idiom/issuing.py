# SPDX-License-Identifier: Apache-2.0
"""The edits of the multiplying loop: a branch of the issuing warp, commits, and where all wait for sums."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.functions import Function
from porter.model.tiled.accumulators import Multiply
from porter.passes.idiom.issuer import Issuer
from porter.passes.idiom.mainloop import RULE, Mainloop, names_after
from porter.passes.idiom.operands import RULE as OPERAND_RULE
from porter.passes.idiom.operands import Operand
from porter.passes.idiom.site import Site, inside
from porter.passes.idiom.text import cpp

_MEETS = re.compile(r"\b(?:__syncthreads|NamedBarrier\s*::\s*sync|cluster_sync)\b")
_TAIL = ("wait", "goes", "release", "zero")


@dataclass(eq=False)
class Issuing:
    """Writes the branch. `load` are the lines that bring sums into registers, `free` those that free columns."""

    site: Site
    loop: Mainloop
    storage: str
    """What fields of the kernel's storage have in front of them."""
    load: str
    free: str
    operand: Operand | None = None
    issuer: Issuer | None = None
    guard: str = ""
    """What leaves behind where sums are in registers."""
    keeps_wait: bool = False
    gone_states: set[str] = field(default_factory=set)

    def take(self) -> None:
        """Raises Left."""
        loop = self.loop
        self._multiplies()
        if loop.call is not None:
            self._function()
        elif loop.is_pure:
            self._whole()
        elif self.issuer is not None:
            raise self.site.left(loop.mma, "a loop that does nothing but multiply", loop.function)
        else:
            self._part()
        self._freed()

    # --- pieces

    @property
    def _full(self) -> str:
        return self.site.name("accumulator_full")

    @property
    def _phase(self) -> str:
        turning = self.loop.turns or self.keeps_wait
        return self.site.name("accumulator_phase") if turning else "0"

    @property
    def declares_phase(self) -> bool:
        return self._phase != "0"

    def _commit(self) -> str:
        if self.site.rotates:
            return cpp(
                "hand_over", accumulators=self.site.name("accumulators"), next=self.site.name("next_accumulator")
            )
        return cpp("commit", storage=self.storage, full=self._full, pair=self.site.asked.pair)

    @property
    def _loaded(self) -> str:
        loaded = self.load if self._frees_later else f"{self.load}\n{self.free}"
        return f"{loaded}\n{self.guard}" if self.guard else loaded

    @property
    def _frees_later(self) -> bool:
        """Whether sums come to registers more than once, so that columns are freed behind the loop around that."""
        return self.loop.turns or (self.loop.uses_sums and self.keeps_wait)

    def _wait(self) -> str:
        if self.site.rotates:
            site = self.site
            return cpp("take", accumulators=site.name("accumulators"), full=site.name("full_accumulator"),
                       turns=site.asked.buffers > 1, tensor=site.tensor, storage=self.storage,
                       base=site.name("tmem_base"), columns=site.columns_text)  # fmt: skip
        turns = self.declares_phase
        return cpp("wait", c=self.site.c, storage=self.storage, full=self._full, phase=self._phase, turns=turns)

    @property
    def _deeper(self) -> str:
        """By how much more what multiplies is indented where it stands."""
        return "" if self.loop.call is not None or self.issuer is not None else self.site.unit

    def _condition(self) -> str:
        return f"{self.site.name('warp')} == {self.site.first_warp}"

    def _multiplies(self) -> None:
        """MMAs add to Tensor Memory."""
        site, function = self.site, self.loop.function
        for multiply in site.multiplies:
            holder = multiply.call.caller
            site.draft.replace(RULE, holder, holder.span(multiply.d), self._named(function, multiply.d))

    def _loops(self) -> None:
        """An MMA over all of k becomes a loop, whose first step clears."""
        for multiply in self.site.multiplies:
            k = whole_k(multiply.call.caller, multiply.a)
            if k is not None:
                self._over_k(multiply, k if self.operand is None else self.operand.in_memory)
            elif "scale" not in self.loop.events(self.loop.mma):
                self._adds(multiply)

    def _adds(self, multiply: Multiply) -> None:
        """All MMAs but the first add, also where registers that were set to zero said so."""
        site, function, statement = self.site, multiply.call.caller, multiply.call.node.parent
        if statement is None or statement.parent is None or statement.parent.type != "compound_statement":
            raise site.left(multiply.call.node, "braces around the statement with MMAs", function)
        pad = site.port.indent(function, function.span(statement)) + self._deeper
        text = f"\n{pad}{function.text(multiply.mma)}.accumulate_ = {site.c}UMMA::ScaleOut::One;"
        site.draft.insert(RULE, function, site.draft.end_of(function, statement), text)

    def _named(self, function: Function, node: Node) -> str:
        if node.type != "identifier":
            raise self.site.left(node, "sums by the name of their tensor", function)
        return self.site.tensor

    def _over_k(self, multiply: Multiply, k: str) -> None:
        site, function = self.site, multiply.call.caller
        statement = multiply.call.node.parent
        if statement is None or statement.type != "expression_statement" or statement != self.loop.mma:
            raise site.left(multiply.call.node, "MMAs over all of k as a statement of their own", function)
        c, unit = site.c, site.unit
        index, operand = site.name("k_block"), k
        pad = site.port.indent(function, function.span(statement)) + self._deeper
        inner = pad + unit
        at = function.span(statement).start
        head = cpp("over_k", c=c, index=index, operand=operand).replace("\n", f"\n{pad}")
        site.draft.insert(RULE, function, at, f"{head}\n{inner}")
        for node in (multiply.a, multiply.b):
            span, text = sliced(function, node, index, c)
            if node is multiply.a and self.operand is not None:
                span, text = function.span(node), f"{k}({c}_, {c}_, {index})"
            site.draft.replace(RULE, function, span, text)
        mma = function.text(multiply.mma)
        end = site.draft.end_of(function, statement)
        site.draft.insert(RULE, function, end, f"\n{inner}{mma}.accumulate_ = {c}UMMA::ScaleOut::One;\n{pad}}}")

    def _drop(self, node: Node, function: Function | None = None) -> None:
        self.site.draft.remove(RULE, function or self.loop.function, node)

    def _open(self, node: Node) -> int:
        """Begin the branch in front of a statement; gives where its lines begin."""
        function = self.loop.function
        at = self.site.port.before(function, node).start
        pad = self.site.port.indent(function, function.span(node))
        inner = f"\n{pad}{self.site.unit}"
        after = cpp("after") + inner if self.operand is not None else ""
        self.site.draft.insert(RULE, function, at, f"if ({self._condition()}) {{{inner}{after}")
        return at

    def _close(self, start: int, node: Node, lines: list[str]) -> None:
        """End the branch behind a statement, with more lines in it."""
        function, unit = self.loop.function, self.site.unit
        span = function.span(node)
        pad = self.site.port.indent(function, span)
        self.site.draft.shift(RULE, function, Span(start + 1, span.end), unit)
        body = "".join(f"\n{pad}{unit}{line}" for line in lines)
        self.site.draft.insert(RULE, function, self.site.draft.end_of(function, node), f"{body}\n{pad}}}")

    def _behind(self, node: Node, lines: str, function: Function | None = None) -> None:
        self.site.draft.behind(RULE, function or self.loop.function, node, lines)

    # --- the forms

    def _inner(self) -> None:
        """The list of the loop, all of which the issuing warp runs."""
        self._loops()
        loop, releases = self.loop, self.loop.releases()
        self._released(releases)
        for node, kind in loop.items(loop.block):
            if kind in ("goes", "wait", "zero"):
                self._drop(node)

    def _released(self, releases: list[tuple[Node, str, bool]]) -> None:
        loop = self.loop
        for node, _, _ in releases:
            self._drop(node)
        text = "\n".join(dict.fromkeys(text for _, text, _ in releases))
        if text:
            span = loop.function.span(loop.mma)
            pad = self.site.port.indent(loop.function, span) + self._deeper
            lines = "".join(f"\n{pad}{line}" for line in text.split("\n"))
            self.site.draft.insert(RULE, loop.function, self.site.draft.end_of(loop.function, loop.mma), lines)
        self._states({t for n, t, _ in releases for t in self._lagging(n)})

    def _lagging(self, node: Node) -> list[str]:
        function = self.loop.function
        if node.type != "if_statement":
            return []
        return [function.text(n) for u in find(node, "update_expression") for n in find(u, "identifier")]

    def _states(self, names: set[str]) -> None:
        """Take away the states that only counted stages which go back late."""
        function = self.loop.function
        for declaration in find(function.body, "declaration") if names else ():
            declarators = declaration.children_by_field_name("declarator")
            gone = [d for d in declarators if function.text(d) in names]
            if gone and len(gone) < len(declarators):
                first = declarators[0]
                kept = ", ".join(function.text(d) for d in declarators if d not in gone)
                span = Span(function.span(first).start, function.span(declarators[-1]).end)
                self.site.draft.replace(RULE, function, span, kept)
            elif gone:
                self._drop(declaration)
        self.gone_states = names

    def _tail(self, node: Node, extra: tuple[str, ...] = ()) -> None:
        """Statements behind the loop that only waited, or gave back what is given back in it."""
        function, names = self.loop.function, self.gone_states
        current = node.next_named_sibling
        while current is not None:
            kind = self.loop.kind(current) if current.type != "comment" else "comment"
            steps = [function.text(n) for u in find(current, "update_expression") for n in find(u, "identifier")]
            if (kind == "pure" and steps and set(steps) <= names) or kind in _TAIL:
                self._drop(current)
            elif kind != "comment":
                break
            current = current.next_named_sibling

    def _ahead(self, node: Node) -> Node:
        """The first statement of those in front of one that only say that the first MMA clears."""
        first, current = node, node.prev_named_sibling
        while current is not None and self.loop.kind(current) in ("scale", "goes") and current.type != "comment":
            if self.loop.kind(current) == "goes":
                self._drop(current)
            else:
                first = current
            current = current.prev_named_sibling
        return first

    def _whole(self) -> None:
        loop = self.loop
        assert loop.loop is not None
        self._inner()
        first = self._ahead(loop.loop)
        if self.issuer is not None:
            self.issuer.take(first, self._commit())
        else:
            self._close(self._open(first), loop.loop, [self._commit()])
        self._tail(loop.loop)
        self._behind(loop.loop, f"{self._wait()}\n{self._loaded}")

    def _function(self) -> None:
        """MMAs in a function that does nothing else."""
        site, loop = self.site, self.loop
        assert loop.call is not None
        if not loop.is_pure or loop.loop is None:
            raise site.left(loop.function.body, f"`{loop.function.name}` does nothing but multiply", loop.function)
        for node, kind in loop.items(loop.function.body):
            if kind in ("other", "lag!") and node != loop.loop:
                raise site.left(node, f"`{loop.function.name}` does nothing but multiply", loop.function)
        self._inner()
        self._ahead(loop.loop)
        self._tail(loop.loop)
        self._rename_parameter()
        kernel = site.kernel
        span, pad = kernel.span(loop.call), site.port.indent(kernel, kernel.span(loop.call))
        for node in find(loop.call, "identifier"):
            if site.tiled.handle_of(kernel, node) is site.handle:
                site.draft.replace(RULE, kernel, kernel.span(node), site.tensor)
        inner = pad + site.unit
        if self.issuer is not None:
            self.issuer.take(loop.call, self._commit())
            self._behind(loop.call, "\n".join([self._wait(), self._loaded]), kernel)
            return
        site.draft.insert(RULE, kernel, span.start, f"if ({self._condition()}) {{\n{inner}")
        site.draft.shift(RULE, kernel, Span(span.start + 1, span.end), site.unit)
        behind = "\n".join([self._wait(), self._loaded])
        lines = "".join(f"\n{pad}{line}" if line else "\n" for line in behind.split("\n"))
        site.draft.insert(RULE, kernel, span.end, f"\n{inner}{self._commit()}\n{pad}}}{lines}")

    def _rename_parameter(self) -> None:
        site, function = self.site, self.loop.function
        for handle in site.tiled.handles.values():
            if handle.function is function and handle.variable.param is not None:
                for node in find(function.node, "identifier"):
                    if function.text(node) == handle.name:
                        site.draft.replace(RULE, function, function.span(node), site.tensor)

    def _part(self) -> None:
        """MMAs among other statements of a loop, or in none."""
        site, loop = self.site, self.loop
        items = loop.items(loop.block)
        top = next(i for i, (n, _) in enumerate(items) if n == loop.mma)
        first = self._first(items, top)
        releases = loop.releases()
        waits = [n for n, k in items[top + 1 :] if k == "wait"]
        if any(k == "lag!" for _, k in items):
            raise site.left(loop.mma, "waits for all MMAs of a batch")
        kept = not releases or loop.uses_sums or self.operand is not None
        self.keeps_wait = bool(waits) and kept and loop.loop is not None
        inside = [text for _, text, _ in releases]
        complete = self.keeps_wait or loop.loop is None
        self._copied(items, first)
        self._stored(items[first][0])
        start = self._open(items[first][0])
        self._loops()
        self._close(start, loop.mma, [*dict.fromkeys(inside), *([self._commit()] if complete else [])])
        for node, _, _ in releases:
            self._drop(node)
        self._states({t for n, _, _ in releases for t in self._lagging(n)})
        for node, kind in (*items[first:top], *items[top + 1 :]):
            if kind == "goes" or (kind == "wait" and (node not in waits[:1] or not complete)):
                self._drop(node)
        self._waited(waits, complete)

    def _stored(self, node: Node) -> None:
        """A from registers is in Tensor Memory when MMAs are issued."""
        operand, site, function = self.operand, self.site, self.loop.function
        if operand is None:
            return
        if self.loop.loop is not None and not self.keeps_wait:
            raise site.left(node, "a wait for MMAs ahead of what writes A again", function)
        pad = site.port.indent(function, function.span(node))
        at = site.port.before(function, node).start
        self.site.draft.insert(
            OPERAND_RULE, function, at, "".join(f"{line}\n{pad}" for line in operand.stored().split("\n"))
        )
        for name in find(self.loop.mma, "identifier"):
            around = [m.a for m in site.multiplies if inside(m.a, name)]
            if function.text(name) == operand.name and not (around and whole_k(function, around[0]) is not None):
                site.draft.replace(OPERAND_RULE, function, function.span(name), operand.in_memory)

    def _copied(self, items: list[tuple[Node, str]], first: int) -> None:
        """What threads copied to shared memory is there for the MMAs of another thread: behind a fence of each and a
        barrier of all."""
        site, function = self.site, self.loop.function
        waits = [c.node for c in site.tiled.copy_waits if c.caller is function]
        found = [i for i, (n, _) in enumerate(items[:first]) if any(inside(n, w) for w in waits)]
        if not found:
            if any(inside(self.loop.loop or self.loop.mma, w) for w in waits):
                raise site.left(waits[0], "a wait for copies in front of the MMAs that read them", function)
            return
        meets = any(_MEETS.search(function.text(n)) for n, _ in items[found[-1] + 1 : first])
        if not meets and not site.is_whole:
            raise site.left(items[found[-1]][0], "a barrier of the threads that copy, in front of MMAs", function)
        self._behind(items[found[-1]][0], cpp("fence_copies", meets=not meets))

    def _waited(self, waits: list[Node], complete: bool) -> None:
        loop, function = self.loop, self.loop.function
        if complete:
            lines = self._wait() + (f"\n{self._loaded}" if loop.uses_sums or loop.loop is None else "")
            if not waits:
                raise self.site.left(loop.mma, "a wait for all MMAs behind them", function)
            pad = self.site.port.indent(function, function.span(waits[0]))
            self.site.draft.replace(RULE, function, function.span(waits[0]), lines.replace("\n", f"\n{pad}"))
        if loop.loop is None:
            return
        self._tail(loop.loop)
        if not complete:
            one = cpp("commit_of_warp", warp=self.site.name("warp"), first=self.site.first_warp,
                      storage=self.storage, full=self._full)  # fmt: skip
            self._behind(loop.loop, "\n".join([one, self._wait(), self._loaded]))
        elif not loop.uses_sums:
            self._behind(loop.loop, self._loaded)

    def _first(self, items: list[tuple[Node, str]], top: int) -> int:
        """The first statement of the branch: the wait for operands, or what opens the batch."""
        function, first, at = self.loop.function, top, top
        while at > 0 and items[at - 1][1] in ("full", "goes", "scale", "pure"):
            at -= 1
            if items[at][1] in ("full", "scale"):
                first = at
        for node, kind in items[first:top]:
            if kind == "pure" and node.type == "declaration" and names_after(function, node, self.loop.mma.end_byte):
                raise self.site.left(node, "what is declared between operands and MMAs is used there alone", function)
        for node, kind in items[at:first]:
            if kind == "goes":
                self._drop(node)
        return first

    def _freed(self) -> None:
        outer = self.loop.outermost_loop()
        if self._frees_later and outer is not None:
            self.site.draft.behind(RULE, self.site.kernel, outer, self.free)


def whole_k(function: Function, node: Node) -> str | None:
    """The operand of which MMAs take all steps of k; None if they take one."""
    if node.type == "identifier":
        return function.text(node)
    arguments, callee = node.child_by_field_name("arguments"), node.child_by_field_name("function")
    if arguments is None or callee is None or callee.type != "identifier":
        return None
    modes = [function.text(n) for n in arguments.named_children]
    return function.text(callee) if len(modes) >= 3 and modes[2] == "_" else None


def sliced(function: Function, node: Node, index: str, c: str) -> tuple[Span, str]:
    """Where an operand has all steps of k, with one in its place."""
    arguments = node.child_by_field_name("arguments")
    if arguments is None:
        span = function.span(node)
        return Span(span.end, span.end), f"({c}_, {c}_, {index})"
    return function.span(arguments.named_children[2]), index
