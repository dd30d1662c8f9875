# SPDX-License-Identifier: Apache-2.0
"""The product that ends a turn is waited for where its sums are next needed, in the turn behind: there its operands are
given back as well. So threads compute beside it, too."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import above, inside
from porter.model.events import Kind
from porter.model.pipeline.operations import Operation
from porter.model.pipeline.rings import split_index
from porter.model.scopes import LOOPS, Variable
from porter.passes.native.product import Product
from porter.passes.native.sites import Changes, Left, OfFunction, Place, is_in
from porter.passes.native.texts import lines_at


def second_of(product: Product) -> Second | None:
    """That of a loop, or None where it has to be waited for in its own turn."""
    try:
        return Second(product)
    except Left:
        return None


@dataclass(eq=False)
class Second(OfFunction):
    """The last product of a turn. `wait` is the statement that waits for it, `given` those behind that give operands
    back, `needed` the statement in front of which its sums are needed in the next turn."""

    product: Product
    given: list[Node] = field(default_factory=list)
    saved: list[tuple[Variable, str]] = field(default_factory=list)
    """Variables that these read, each with the name of what it was in the turn before."""

    def __post_init__(self) -> None:
        product = self.product
        self.function, self.context = product.function, product.context
        self._find()
        self._sums()
        self._order()
        names = self.context.names
        self.behind, self.issued = names.fresh("sums_behind"), names.fresh("issued")
        self.complete = names.fresh("complete_sums")
        self._save()

    # --- Facts

    def _find(self) -> None:
        product = self.product
        rest = [n for n in product.rest if n.type not in ("comment", "preproc_call")]
        commits, waits = product.events_in(rest, Kind.COMMIT), product.events_in(rest, Kind.WAIT)
        if len(commits) != 1 or len(waits) != 1 or waits[0].node.start_byte < commits[0].node.start_byte:
            raise self.left(product.load, "one batch and one wait behind the first product")
        self.wait = next(n for n in rest if inside(n, waits[0].node))
        at = next(i for i, n in enumerate(rest) if n.id == self.wait.id)
        for node in (product.wait, self.wait):
            inner = product.events_in([node], *Kind)
            if node.type != "expression_statement" or len(inner) != 1:
                raise self.left(node, "a statement that does nothing but wait")
        updates = {n.id for n in product.next.updates}
        for node in rest[at + 1 :]:
            done = [o for o in product.walk if is_in(o, self.function, [node])]
            if node.id in updates or not (done or product.events_in([node], *Kind)):
                continue
            if not done or any(o.kind != "arrive" for o in done):
                raise self.left(node, "that nothing but arrivals stands behind the wait for the last product")
            self.given.append(node)
        self.rest = rest[:at]

    def _sums(self) -> None:
        """Where sums of MMAs behind the first product are touched: ahead of these, or behind the loop."""
        product = self.product
        mmas = product.events_in(self.rest, Kind.MMA)
        accumulators = {id(e.accumulator): e.accumulator for e in mmas if e.accumulator is not None}
        if not accumulators or any(e.accumulator is None for e in mmas):
            raise self.left(self.wait, "whose MMAs are the last product")
        first = min(e.node.start_byte for e in mmas)
        touched = []
        for accumulator in accumulators.values():
            for node in (*product.moves.loads[accumulator], *product.moves.stores[accumulator]):
                if inside(product.body, node):
                    if node.end_byte > first:
                        raise self.left(node, "that sums are touched ahead of the MMAs that add to them")
                    touched.append(node)
        # where threads leave sums to the MMAs, these are what needs the last ones, and the operands that they read
        touched += [e.node for e in product.events_in(self.rest, Kind.FENCE, Kind.MMA)]
        earliest = min(touched, key=lambda n: n.start_byte)
        self.needed = next(n for n in self.rest if inside(n, earliest))

    def _order(self) -> None:
        """That who loads waits for what is given back here behind its loads for the first product, in each turn: the
        next turn's threads wait for these before they give it back."""
        product = self.product
        names = {split_index(o.barrier)[0] for o in product.walk if is_in(o, self.function, self.given)}
        waits = [o for o in product.walk if o.kind == "wait" and split_index(o.barrier)[0] in names]
        loads = [o for o in product.walk if o.kind == "copy" and split_index(o.barrier)[0] in product.filled]
        if not loads or not all(_precedes(load, wait) for load in loads for wait in waits):
            raise self.left(self.wait, "that the first product's operands are loaded first in each turn")

    def _save(self) -> None:
        """Values that giving operands back takes from its own turn."""
        product, seen = self.product, set()
        for node in self.given:
            for name, variable in product.next.reads(node):
                if variable.key in seen or not product.next.varies(variable):
                    continue
                seen.add(variable.key)
                declared = variable.declaration
                if declared is not None and inside(product.loop, declared):
                    kind = declared.child_by_field_name("type")
                    if kind is None or kind.type not in ("primitive_type", "type_identifier", "sized_type_specifier"):
                        raise self.left(name, f"the type of `{variable.name}`")
                self.saved.append((variable, self.context.names.fresh(f"{variable.name}_before")))

    # --- Texts

    def ahead(self) -> list[str]:
        """Lines in front of the loop."""
        state = self.context.names.warpgroup
        params = ", ".join([*(f"auto {v.name}" for v, _ in self.saved), f"bool {self.issued}"])
        lines = [
            "// The last product of a turn is waited for where its sums are next needed.",
            f"const auto {self.complete} = [&]({params}) __attribute__((always_inline)) {{",
            f"    {state}.wait({self.issued} ? 1 : 0);",
            *([f"    {state}.operands = 0;"] if self.context.helpers.register_kinds else []),
            *(f"    {line}" for node in self.given for line in lines_at(self.context, self.function, node)),
            "};",
            f"bool {self.behind} = false;",
        ]
        for variable, name in self.saved:
            declared = variable.declaration
            if declared is not None and inside(self.product.loop, declared):
                begins = next((v for _, n, v in self.product.next.firsts() if n == variable.name), None)
                kind = declared.child_by_field_name("type")
                assert kind is not None
                text = self.function.text(kind)
                lines.append(f"{text} {name} = {begins};" if begins is not None else f"{text} {name}{{}};")
            else:
                lines.append(f"auto {name} = {variable.name};")
        return lines

    def _completed(self, issued: str) -> str:
        values = ", ".join([*(name for _, name in self.saved), issued])
        return f"if ({self.behind}) {self.complete}({values});"

    def at_once(self) -> list[str]:
        """Lines behind the next turn's first product, where sums are needed at once."""
        return [self._completed(self.issued)] if self.needed.id == self.product.load.id else []

    def write(self, changes: Changes) -> None:
        function, product = self.function, self.product
        state = self.context.names.warpgroup
        changes.statement(Place(function, product.wait), f"{state}.wait({self.behind} ? 1 : 0);")
        if self.needed.id != product.load.id:
            at = next(i for i, n in enumerate(self.rest) if n.id == self.needed.id)
            changes.behind(Place(function, self.rest[at - 1]), [self._completed(self.issued)])
        kept = [f"{name} = {variable.name};" for variable, name in self.saved]
        pad = "\n" + self.context.indent(function, function.span(self.wait))
        changes.statement(Place(function, self.wait), pad.join([*kept, f"{self.behind} = true;"]))
        for node in self.given:
            changes.drop(Place(function, node))
        changes.behind(Place(function, product.loop), [self._completed("false")])


def _precedes(one: Operation, other: Operation) -> bool:
    """Whether an operation comes ahead of another one in each turn of a loop around both."""
    for mine, its in zip(one.sites, other.sites, strict=False):
        if mine.node.id == its.node.id:
            continue
        if mine.frame.function is not its.frame.function or mine.node.end_byte > its.node.start_byte:
            return False
        body = mine.frame.function.body
        around = [n for n in above(mine.node, body) if n.type in LOOPS]
        return any(inside(loop, its.node) for loop in around)
    return False
