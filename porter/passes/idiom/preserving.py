# SPDX-License-Identifier: Apache-2.0
"""Functions whose registers keep Hopper's layout: each warpgroup issues MMAs of 64 rows, and its threads have the rows
and columns of their sums that they had. The tiled MMA of Hopper stays as the name of that layout; one of SM100 beside
it issues. All else that is done with registers stays as it is written."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.functions import Function
from porter.model.kernels import top_level
from porter.model.scopes import LOOPS, resolve
from porter.model.tiled.tensors import initializer
from porter.passes.idiom.arms import Arms
from porter.passes.idiom.batching import Batching
from porter.passes.idiom.events import Events
from porter.passes.idiom.fragments import Fragments, Operand, Sum, left_alone, repeated, slice_of
from porter.passes.idiom.places import Place
from porter.passes.idiom.residence import Residence
from porter.passes.idiom.site import Site, inside
from porter.passes.idiom.text import cpp
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.names import Names

ATOM_RULE, SLICE_RULE, BATCH_RULE, RULE = "PTR760", "PTR762", "PTR764", "PTR779"
_DESCRIBES = ("partition_fragment_A", "partition_fragment_B", "make_fragment_A", "make_fragment_B")
_PARTITIONS = ("partition_A", "partition_B")


@dataclass(eq=False)
class Preserving:
    """Writes the port of a function that multiplies, the kernel or one that it calls. `columns` are those that two
    warpgroups share, `late` is the statement of the kernel behind which they are known where that is not in front of
    all MMAs."""

    fragments: Fragments
    context: TiledContext
    names: Names
    columns: int
    late: Node | None
    arms: Arms
    _done: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.place: Place = self.fragments.place
        self.site: Site = self.fragments.site
        self.function: Function = self.place.function

    def take(self) -> None:
        """Raises Left."""
        scopes = []
        for function in self.place.scopes:
            events = Events(self.site, alone=frozenset(self.place.gemms))
            events.function = function
            residence = Residence(self.fragments, function, events, self.context, self.names, self.arms)
            if function is not self.site.kernel:
                self._require_end(function, residence)
            scopes.append(Batching(self.fragments, residence, events))
        self._mmas()
        self._reside([scope.residence for scope in scopes])
        self._operands()
        for scope in scopes:
            scope.take()
        self._told()

    def _require_end(self, scope: Function, residence: Residence) -> None:
        """Raises Left if a scope may be left between its MMAs and where their sums come to registers."""
        own = [m.call.node for m in self.place.multiplies if m.call.caller is scope]
        active = [*own, *residence.active]
        first, last = min(n.start_byte for n in active), max(n.end_byte for n in active)
        for node in scope.own_nodes("return_statement", "goto_statement"):
            if first < node.start_byte < last:
                raise self.place.left(node, f"one end of `{scope.name}` behind its MMAs", scope)

    # --- what is declared

    def _mmas(self) -> None:
        site, function = self.site, self.function
        for mma in self.fragments.mmas.values():
            text = self.fragments.beside(mma, site.first_warpgroup)
            if mma.declaration is None:
                site.draft.before(ATOM_RULE, function, top_level(function)[0], text)
            else:
                site.draft.behind(ATOM_RULE, function, mma.declaration, text)

    def _reside(self, residences: list[Residence]) -> None:
        """Tensors in Tensor Memory and copies, in front of the first statement that does anything with them."""
        site, function, fragments = self.site, self.function, self.fragments
        active = [m.call.node for m in self.place.multiplies]
        active += [n for r in residences for n in r.active]
        block = block_around(function, active)
        first = next(n for n in block.named_children if any(inside(n, a) for a in active))
        for mma in fragments.mmas.values():
            declared = mma.declaration
            if declared is not None and declared.start_byte >= first.start_byte:
                raise self.place.left(declared, "tiled MMAs that are declared in front of the first one that is used")
        if self.late is not None and self.place.is_kernel and self.late.start_byte >= first.start_byte:
            raise site.left(self.late, "MMAs behind where all threads meet")
        several, group = site.groups > 1, site.name("warpgroup") if site.groups > 1 else ""
        lines = [
            cpp(
                "residence",
                several=several,
                group=group,
                first=f" - {site.first_warpgroup}" if site.first_warpgroup else "",
                base=self.place.base,
                storage=self.place.front,
                published=site.name("tmem_base"),
                own=self._address(group),
                declares_warp=not self.place.is_kernel,
                declares_issues=several,
                declares_phases=not self.place.has_phases,
                issues=self.place.issues,
                warp=self.place.warp,
                met=not site.meets_whole,
                met_phase="" if site.meets_whole else site.name("registers_phase"),
                phase=site.name("accumulator_phase"),
            )
        ]
        for one in (s for s in fragments.sums if s.like is not None):
            assert one.like is not None
            one.like.is_stored |= one.is_stored
        lines += [self._of_sum(s) for s in fragments.sums if s.like is None]
        lines += [self._of_operand(o, first) for o in fragments.operands.values()]
        site.draft.before(RULE, function, first, "\n".join(lines) + "\n", above_comments=True)

    def _address(self, group: str) -> str:
        """A warpgroup's columns and lanes, behind the first column."""
        if self.site.columns_apart:
            return cpp("columns_apart", group=group, columns=self.columns)
        pairs = cpp("columns_of_pairs", group=group, columns=self.columns) if self.site.groups > 2 else ""
        return cpp("halves_of_lanes", group=group, pairs=pairs)

    def _of_sum(self, one: Sum) -> str:
        width = min(repeated(t.own, 8, 8) for t in one.every)
        return cpp(
            "tensor_of_sums",
            c=self.site.c,
            umma=one.mma.umma,
            shape=self.fragments.shape(one),
            base=self.place.base,
            column=f" + {one.column}" if one.column else "",
            repeat=width,
            stored=one.is_stored,
            **one.names,
        )

    def _of_operand(self, one: Operand, first: Node) -> str:
        width = min(repeated(one.depth(a) * one.bits // 32, 4, 16) for a in one.every)
        return cpp(
            "tensor_of_operand",
            c=self.site.c,
            cta=one.mma.cta,
            umma=one.mma.umma,
            shape=self.fragments.shape_of_operand(one, first),
            base=self.place.base,
            column=one.column,
            repeat=width,
            **one.names,
        )

    # --- operands

    def _operands(self) -> None:
        for multiply in self.place.multiplies:
            if self.fragments.operand(multiply) is None:
                self._describes(multiply.call.caller, multiply.a)
            self._describes(multiply.call.caller, multiply.b)

    def _describes(self, caller: Function, node: Node) -> None:
        """What describes shared memory for an MMA does it for that of SM100."""
        first = next(find(node, "identifier"), None)
        variable = resolve(caller, first, caller.text(first)) if first is not None else None
        value = initializer(variable) if variable is not None else None
        if value is None or variable is None or variable.function is not self.function:
            raise left_alone(self.fragments, node)
        if value.id not in self._done:
            self._done.add(value.id)
            self._made(value, _DESCRIBES)

    def _made(self, value: Node, methods: tuple[str, ...]) -> None:
        function, draft = self.function, self.site.draft
        callee, arguments = value.child_by_field_name("function"), value.child_by_field_name("arguments")
        if callee is None or callee.type != "field_expression" or arguments is None:
            if methods is _DESCRIBES and self.site.tiled.tensors.root(function, value) is not None:
                return self._describes(function, value)
            raise left_alone(self.fragments, value)
        of, method = callee.child_by_field_name("argument"), callee.child_by_field_name("field")
        mma = slice_of(self.fragments, of) if of is not None else None
        name = function.text(method) if method is not None else ""
        if mma is None or of is None or name not in methods or len(arguments.named_children) != 1:
            raise left_alone(self.fragments, value)
        draft.replace(SLICE_RULE, function, function.span(of), mma.cta)
        if not name.startswith("make_"):
            return None
        inner = arguments.named_children[0]
        if inner.type == "call_expression":
            callee = inner.child_by_field_name("function")
            if callee is not None and callee.type == "field_expression":
                return self._made(inner, _PARTITIONS)
        first = next(find(inner, "identifier"), None)
        variable = resolve(function, first, function.text(first)) if first is not None else None
        part = initializer(variable) if variable is not None else None
        if variable is None or part is None or not self._describes_alone(variable.name):
            raise left_alone(self.fragments, inner)
        if part.id not in self._done:
            self._done.add(part.id)
            self._made(part, _PARTITIONS)
        return None

    def _describes_alone(self, name: str) -> bool:
        """Whether a thread's part of an operand is used for nothing but to describe it."""
        function = self.function
        for node in find(function.body, "identifier"):
            above = node.parent
            if function.text(node) != name or above is None or above.type == "init_declarator":
                continue
            call = above.parent if above.type == "argument_list" else None
            callee = call.child_by_field_name("function") if call is not None else None
            method = callee.child_by_field_name("field") if callee is not None else None
            if (method is None or function.text(method) not in _DESCRIBES) and not self.site.tiled.only_asked(
                function, node
            ):
                return False
        return True

    def _told(self) -> None:
        """Whether MMAs add is said of those of SM100."""
        site, function = self.site, self.function
        are = site.program.vocabulary.spellings.are
        for node in find(function.body, "assignment_expression"):
            left = node.child_by_field_name("left")
            of = left.child_by_field_name("argument") if left is not None else None
            named = left.child_by_field_name("field") if left is not None else None
            mma = self.fragments.mmas.get(function.text(of)) if of is not None else None
            is_told = named is not None and are("scale_of_d", function.text(named))
            if mma is not None and of is not None and is_told:
                site.draft.replace(BATCH_RULE, function, function.span(of), mma.umma)
        text, start = function.text(function.body), function.span(function.body).start
        for match in site.program.vocabulary.spellings.matches("scale_of_hopper", text):
            span = Span(start + match.start(), start + match.end())
            site.draft.replace(BATCH_RULE, function, span, cpp("namespace", c=""))


def block_around(function: Function, nodes: list[Node]) -> Node:
    """The innermost list of statements of a function, in no loop and no lambda, that all nodes stand in."""
    current = nodes[0].parent
    while current is not None and current.id != function.body.id:
        if current.type == "compound_statement" and all(inside(current, n) for n in nodes):
            around, loops = current.parent, False
            while around is not None and around.id != function.body.id:
                loops |= around.type in LOOPS or around.type == "lambda_expression"
                around = around.parent
            if not loops:
                return current
        current = current.parent
    return function.body
