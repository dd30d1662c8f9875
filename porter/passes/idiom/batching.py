# SPDX-License-Identifier: Apache-2.0
"""Batches of MMAs of one function or lambda whose registers keep Hopper's layout: all threads of a warpgroup meet where
one is opened, one warp issues its MMAs, and sums come to registers where it is waited for."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.functions import Function
from porter.model.tiled.accumulators import Multiply
from porter.passes.idiom.events import Events
from porter.passes.idiom.fragments import Fragments, Mma, Operand, Sum
from porter.passes.idiom.issuing import sliced, whole_k
from porter.passes.idiom.residence import Residence
from porter.passes.idiom.site import inside
from porter.passes.idiom.text import cpp

BATCH_RULE, RULE = "PTR764", "PTR779"
_BRANCH_GOES = ("goes", "scale")


@dataclass(eq=False)
class Batching:
    """Writes the batches of a scope."""

    fragments: Fragments
    residence: Residence
    events: Events
    _commits: dict[int, int] = field(default_factory=dict)
    _waited: list[tuple[Node, str]] = field(default_factory=list)
    """Calls that multiply and wait, with what stands behind their MMAs."""

    def __post_init__(self) -> None:
        self.place, self.site = self.fragments.place, self.fragments.site
        self.scope: Function = self.residence.scope
        self.multiplies = [m for m in self.place.multiplies if m.call.caller is self.scope]

    def take(self) -> None:
        """Raises Left."""
        self._batches()
        self._branches()
        for statement, lines in self._waited:
            self.site.draft.behind(BATCH_RULE, self.scope, statement, lines)

    # --- batches

    def _batches(self) -> None:
        """Where batches are opened all threads of a warpgroup meet, where they are waited for sums come."""
        site, scope = self.site, self.scope
        stores: dict[int, list[str]] = {}
        places: dict[int, Node] = {}
        for move in self.residence.stores:
            text = cpp("store_registers", c=site.c, registers=move.sum.handle.name, **move.sum.names)
            stores.setdefault(move.at.id, []).append(text)
            places[move.at.id] = move.at
        for multiply in self.multiplies:
            operand = self.fragments.operand(multiply)
            at = self.residence.opening(self.events.multiplying(multiply.call.node))
            if operand is not None:
                text = cpp("store_registers", c=site.c, registers=operand.name, **operand.names)
                if text not in stores.setdefault(at.id, []):
                    stores[at.id].append(text)
        for node in self.residence.opens:
            statement = node.parent
            assert statement is not None
            own = stores.pop(statement.id, [])
            lines = "\n".join([*own, *([cpp("stored")] if own else []), self._meet()])
            if node in self.residence.called:
                site.draft.before(BATCH_RULE, scope, statement, lines)
            else:
                self._instead(BATCH_RULE, statement, lines)
        for key, texts in stores.items():
            site.draft.before(RULE, scope, places[key], "\n".join([*texts, cpp("stored")]))
        loads: dict[int, list[Sum]] = {}
        for move in self.residence.loads:
            loads.setdefault(move.at.id, []).append(move.sum)
            places[move.at.id] = move.at
        self._commits = self._committed()
        for node in self.residence.idle:
            assert node.parent is not None
            site.draft.remove(BATCH_RULE, scope, node.parent)
        for node in self.residence.waits:
            statement = node.parent
            assert statement is not None
            met = [self._meet()] if node in self.residence.unsure and statement.id not in self._commits.values() else []
            lines = "\n".join([*met, self._complete(statement), *self._loaded(loads.pop(statement.id, []))])
            if node in self.residence.called:
                self._waited.append((statement, lines))
            else:
                self._instead(BATCH_RULE, statement, lines)
        for key, sums in loads.items():
            site.draft.behind(RULE, scope, places[key], "\n".join(self._loaded(sums)))
        for call in (c for c in site.tiled.copy_waits if c.caller is scope):
            statement = call.node.parent
            around = statement.parent if statement is not None and statement.type == "expression_statement" else None
            if around is None or around.type != "compound_statement":
                raise self.place.left(call.node, "a wait for copies as a statement in braces", scope)
            assert statement is not None
            site.draft.behind(BATCH_RULE, scope, statement, cpp("fence_copies", meets=False))

    def _instead(self, rule: str, statement: Node, text: str) -> None:
        scope = self.scope
        pad = self.site.port.indent(scope, scope.span(statement))
        self.site.draft.replace(rule, scope, scope.span(statement), text.replace("\n", f"\n{pad}"))

    def _meet(self) -> str:
        site = self.site
        met = "" if self.site.meets_whole else self.place.member("registers_stored")
        phase = "" if self.site.meets_whole else site.name("registers_phase")
        return cpp("meet", c=site.c, whole=self.site.meets_whole, storage=self.place.front, met=met, phase=phase)

    def _complete(self, statement: Node) -> str:
        return cpp(
            "complete",
            c=self.site.c,
            commits=statement.id not in self._commits.values(),
            issues=self.place.issues,
            storage=self.place.front,
            full=self.place.member("accumulator_full"),
            phase=self.site.name("accumulator_phase"),
        )

    def _loaded(self, sums: list[Sum]) -> list[str]:
        c = self.site.c
        copies = [cpp("load_registers", c=c, registers=s.handle.name, **s.names) for s in sums]
        return [*copies, cpp("loaded")] if copies else []

    # --- branches of the issuing warp

    def _runs(self) -> list[list[Node]]:
        """Statements that only multiply, those together that follow each other in a batch."""
        tops = {t.id: t for t in (self.events.multiplying(m.call.node) for m in self.multiplies)}
        runs, opened = list[list[Node]](), {o.parent.id for o in self.residence.opens if o.parent is not None}
        alone = {c.parent.id for c in self.residence.called if c.parent is not None}
        for top in sorted(tops.values(), key=lambda n: n.start_byte):
            apart = not runs or top.id in alone or runs[-1][-1].id in alone
            current = None if apart else runs[-1][-1].next_named_sibling
            while current is not None and current.id != top.id:
                if current.type != "comment" and (
                    current.id in opened or self.events.kind(current) not in _BRANCH_GOES
                ):
                    current = None
                    break
                current = current.next_named_sibling
            if current is not None:
                runs[-1].append(top)
            else:
                runs.append([top])
        return runs

    def _committed(self) -> dict[int, int]:
        """Runs, by their last statement, behind which nothing stands but a wait for them, and that wait."""
        waits = {w.parent.id for w in self.residence.waits if w.parent is not None}
        found = {}
        for run in self._runs():
            if run[-1].id in waits:
                found[run[-1].id] = run[-1].id
                continue
            current = run[-1].next_named_sibling
            while current is not None and (current.type == "comment" or self.events.kind(current) == "goes"):
                current = current.next_named_sibling
            if current is not None and current.id in waits:
                found[run[-1].id] = current.id
        return found

    def _branches(self) -> None:
        site, scope, draft = self.site, self.scope, self.site.draft
        for run in self._runs():
            start, last = site.port.before(scope, run[0]).start, run[-1]
            pad = site.port.indent(scope, scope.span(run[0]))
            inner = f"\n{pad}{site.unit}"
            draft.insert(BATCH_RULE, scope, start, f"if ({self.place.issues}) {{{inner}")
            for top in run:
                self._multiplies(top)
            draft.shift(BATCH_RULE, scope, Span(start + 1, scope.span(last).end), site.unit)
            full = self.place.member("accumulator_full")
            commit = cpp("commit", storage=self.place.front, full=full, pair=False)
            commit = f"{inner}{commit}" if last.id in self._commits else ""
            draft.insert(BATCH_RULE, scope, draft.end_of(scope, last), f"{commit}\n{pad}}}")
        for statement in scope.own_nodes("expression_statement"):
            in_list = statement.parent is not None and statement.parent.type == "compound_statement"
            in_list &= self.residence.arms.is_live(scope, statement)
            if in_list and self.events.kind(statement) == "goes" and not self._is_opening(statement):
                draft.remove(BATCH_RULE, scope, statement)

    def _is_opening(self, statement: Node) -> bool:
        return any(o.parent is not None and o.parent.id == statement.id for o in self.residence.opens)

    def _multiplies(self, top: Node) -> None:
        scope = self.scope
        for multiply in self.multiplies:
            if not inside(top, multiply.call.node):
                continue
            one = next(s for s in self.fragments.sums if multiply in s.multiplies)
            self._rename(multiply.mma, one.mma.name, one.mma.umma)
            self._rename(multiply.d, one.handle.name, one.names["tensor"])
            operand = self.fragments.operand(multiply)
            cleared = self.residence.cleared.get(top.id)
            k = whole_k(scope, multiply.a) if cleared is not None else None
            if operand is not None and k is None:
                self._rename(multiply.a, operand.name, operand.names["tensor"])
            if cleared is not None:
                self._clears_first(multiply, one.mma, top, cleared, operand, k)

    def _rename(self, node: Node, old: str, new: str) -> None:
        scope = self.scope
        for name in find(node, "identifier"):
            if scope.text(name) == old:
                self.site.draft.replace(BATCH_RULE, scope, scope.span(name), new)

    def _clears_first(
        self, multiply: Multiply, mma: Mma, top: Node, cleared: Node, operand: Operand | None, k: str | None
    ) -> None:
        """The first step of an MMA clears what the scope cleared in registers."""
        site, scope, draft, c = self.site, self.scope, self.site.draft, self.site.c
        draft.remove(RULE, scope, cleared)
        pad = site.port.indent(scope, scope.span(top)) + site.unit
        told = f"{mma.umma}.accumulate_ = {c}UMMA::ScaleOut::"
        start, end = scope.span(top).start, draft.end_of(scope, top)
        draft.insert(BATCH_RULE, scope, start, f"{told}Zero;\n{pad}")
        if k is None:
            draft.insert(BATCH_RULE, scope, end, f"\n{pad}{told}One;")
            return
        index = site.name("k_block")
        tensor = operand.names["tensor"] if operand is not None else k
        head = cpp("over_k", c=c, index=index, operand=tensor).replace("\n", f"\n{pad}")
        draft.insert(BATCH_RULE, scope, start, f"{head}\n{pad}{site.unit}")
        for node in (multiply.a, multiply.b):
            span, text = sliced(scope, node, index, c)
            if node is multiply.a and operand is not None:
                span, text = scope.span(node), f"{tensor}({c}_, {c}_, {index})"
            draft.replace(BATCH_RULE, scope, span, text)
        draft.insert(BATCH_RULE, scope, end, f"\n{pad}{site.unit}{told}One;\n{pad}}}")
