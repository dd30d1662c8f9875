# SPDX-License-Identifier: Apache-2.0
"""Kernels whose registers keep Hopper's layout: each warpgroup issues MMAs of 64 rows, and its threads have the rows
and columns of their sums that they had. The tiled MMA of Hopper stays as the name of that layout; one of SM100 beside
it issues. All else that is done with registers stays as it is written."""

from __future__ import annotations

from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.functions import Function
from porter.model.kernels import top_level
from porter.model.scopes import LOOPS, loop_around, resolve
from porter.model.tiled.accumulators import Multiply
from porter.model.tiled.batches import Batches
from porter.model.tiled.flight import Flight
from porter.model.tiled.tensors import initializer
from porter.passes.idiom.allocation import allocate
from porter.passes.idiom.events import Events
from porter.passes.idiom.fragments import Fragments, Mma, Operand, Sum, left_alone, repeated, slice_of
from porter.passes.idiom.issuing import sliced, whole_k
from porter.passes.idiom.residence import Residence
from porter.passes.idiom.site import Site, inside
from porter.passes.idiom.storage import Storage, find_storage
from porter.passes.idiom.text import cpp
from porter.passes.idiom.types import Ask
from porter.passes.tiled.context import TiledContext
from porter.ptx.wgmma import THREADS as WARPGROUP

ATOM_RULE, SLICE_RULE, BATCH_RULE, RULE, FREE_RULE = "PTR760", "PTR762", "PTR764", "PTR779", "PTR766"
_DESCRIBES = ("partition_fragment_A", "partition_fragment_B", "make_fragment_A", "make_fragment_B")
_PARTITIONS = ("partition_A", "partition_B")
_BRANCH_GOES = ("goes", "scale")


@dataclass(eq=False)
class Preserving:
    """Writes the port of one kernel."""

    site: Site
    fragments: Fragments = field(init=False)
    events: Events = field(init=False)
    residence: Residence = field(init=False)
    storage: Storage = field(init=False)
    _done: set[int] = field(default_factory=set)

    def take(self, ask: Ask) -> None:
        """Raises Left."""
        site = self.site
        self.events = Events(site)
        self.events.function = site.kernel
        self.fragments = Fragments(site)
        self.fragments.ask(ask)
        tiled = site.tiled
        context = TiledContext(site.port, tiled, site.activity, Batches(tiled), Flight(tiled))
        context.reached = {id(f) for f in tiled.program.functions}
        self.residence = Residence(self.fragments, self.events, context)
        groups = self.fragments.groups
        site.allocated, site.groups, site.meets_whole = str(self.fragments.allocated), groups, self._whole
        self.storage = find_storage(site)
        late = allocate(site, self.storage, True)
        self._mmas()
        self._reside(late)
        self._operands()
        self._batches()
        self._branches()
        self._free()

    # --- names

    @property
    def _whole(self) -> bool:
        """Whether the threads of a block are one warpgroup, which multiplies."""
        value = self.site.program.constants_in(self.site.kernel).evaluate(self.site.threads or "")
        return self.fragments.groups == 1 and self.site.first_warpgroup == 0 and value == WARPGROUP

    @property
    def _all(self) -> bool:
        """Whether all threads of a block are known to multiply."""
        value = self.site.program.constants_in(self.site.kernel).evaluate(self.site.threads or "")
        return self.site.first_warpgroup == 0 and {value} == self._counts

    @property
    def _counts(self) -> set[int | None]:
        """How many threads multiply, in each instantiation."""
        return {t.threads for m in self.fragments.mmas.values() for t in m.every}

    @property
    def _threads(self) -> str:
        mma = next(iter(self.fragments.mmas.values()))
        one = next(iter(self._counts))
        return str(one) if len(self._counts) == 1 else cpp("size_of_mma", c=self.site.c, mma=mma.name)

    def _member(self, name: str) -> str:
        """A warpgroup's mbarrier."""
        own = f"[{self.site.name('warpgroup')}]" if self.fragments.groups > 1 else ""
        return f"{self.site.name(name)}{own}"

    @property
    def _issues(self) -> str:
        if self.fragments.groups == 1:
            return f"{self.site.name('warp')} == {self.site.first_warp}"
        return self.site.name("issues")

    @property
    def _base(self) -> str:
        if self.fragments.groups == 1:
            return f"{self.storage.front}{self.site.name('tmem_base')}"
        return self.site.name("tmem_own")

    # --- what is declared

    def _mmas(self) -> None:
        site, kernel = self.site, self.site.kernel
        for mma in self.fragments.mmas.values():
            text = self.fragments.beside(mma, site.first_warpgroup)
            if mma.declaration is None:
                site.draft.before(ATOM_RULE, kernel, top_level(kernel)[0], text)
            else:
                site.draft.behind(ATOM_RULE, kernel, mma.declaration, text)

    @property
    def _block(self) -> Node:
        """The innermost list of statements, in no loop, that all MMAs stand in."""
        nodes = [m.call.node for m in self.site.multiplies]
        best, current = self.site.kernel.body, nodes[0].parent
        while current is not None and current.id != self.site.kernel.body.id:
            if current.type == "compound_statement" and all(inside(current, n) for n in nodes):
                around, loops = current.parent, False
                while around is not None and around.id != self.site.kernel.body.id:
                    loops |= around.type in LOOPS
                    around = around.parent
                if not loops:
                    best = current
                    break
            current = current.parent
        return best

    def _reside(self, late: Node | None) -> None:
        """Tensors in Tensor Memory and copies, in front of the first statement that does anything with them."""
        site, kernel, fragments = self.site, self.site.kernel, self.fragments
        moves = [m.at for m in (*self.residence.loads, *self.residence.stores)]
        active = [m.call.node for m in site.multiplies] + moves + self.residence.waits + self.residence.opens
        first = next(n for n in self._block.named_children if any(inside(n, a) for a in active))
        for mma in fragments.mmas.values():
            declared = mma.declaration
            if declared is not None and declared.start_byte >= first.start_byte:
                raise site.left(declared, "tiled MMAs that are declared in front of the first one that is used")
        if late is not None and late.start_byte >= first.start_byte:
            raise site.left(late, "MMAs behind where all threads meet")
        several = fragments.groups > 1
        pairs = fragments.groups > 2
        group = site.name("warpgroup") if several else ""
        lines = [
            cpp(
                "residence",
                several=several,
                group=group,
                first=f" - {site.first_warpgroup}" if site.first_warpgroup else "",
                base=self._base,
                storage=self.storage.front,
                published=site.name("tmem_base"),
                pairs=cpp("address_in_pairs", group=group, columns=fragments.columns) if pairs else "",
                declares_issues=several,
                issues=self._issues,
                warp=site.name("warp"),
                met=not self._whole,
                met_phase="" if self._whole else site.name("registers_phase"),
                phase=site.name("accumulator_phase"),
            )
        ]
        lines += [self._of_sum(s) for s in fragments.sums]
        lines += [self._of_operand(o) for o in fragments.operands.values()]
        site.draft.before(RULE, kernel, first, "\n".join(lines) + "\n", above_comments=True)

    def _of_sum(self, one: Sum) -> str:
        width = min(repeated(t.own, 8, 8) for t in one.every)
        return cpp(
            "tensor_of_sums",
            c=self.site.c,
            umma=one.mma.umma,
            shape=self.fragments.shape(one),
            base=self._base,
            column=f" + {one.column}" if one.column else "",
            repeat=width,
            stored=one.is_stored,
            **one.names,
        )

    def _of_operand(self, one: Operand) -> str:
        width = min(repeated(one.depth(a) * one.bits // 32, 4, 16) for a in one.every)
        return cpp(
            "tensor_of_operand",
            c=self.site.c,
            cta=one.mma.cta,
            umma=one.mma.umma,
            shape=self.fragments.shape_of_operand(one),
            base=self._base,
            column=one.column,
            repeat=width,
            **one.names,
        )

    # --- operands

    def _operands(self) -> None:
        for multiply in self.site.multiplies:
            if self._operand(multiply) is None:
                self._describes(multiply.a)
            self._describes(multiply.b)

    def _operand(self, multiply: Multiply) -> Operand | None:
        first = next(find(multiply.a, "identifier"), None)
        return self.fragments.operands.get(self.site.kernel.text(first)) if first is not None else None

    def _describes(self, node: Node) -> None:
        """What describes shared memory for an MMA does it for that of SM100."""
        kernel = self.site.kernel
        first = next(find(node, "identifier"), None)
        variable = resolve(kernel, first, kernel.text(first)) if first is not None else None
        value = initializer(variable) if variable is not None else None
        if value is None or variable is None or variable.function is not kernel:
            raise left_alone(self.fragments, node)
        if value.id not in self._done:
            self._done.add(value.id)
            self._made(value, _DESCRIBES)

    def _made(self, value: Node, methods: tuple[str, ...]) -> None:
        kernel, draft = self.site.kernel, self.site.draft
        callee, arguments = value.child_by_field_name("function"), value.child_by_field_name("arguments")
        if callee is None or callee.type != "field_expression" or arguments is None:
            if methods is _DESCRIBES and self.site.tiled.tensors.root(kernel, value) is not None:
                return self._describes(value)
            raise left_alone(self.fragments, value)
        of, method = callee.child_by_field_name("argument"), callee.child_by_field_name("field")
        mma = slice_of(self.fragments, of) if of is not None else None
        name = kernel.text(method) if method is not None else ""
        if mma is None or of is None or name not in methods or len(arguments.named_children) != 1:
            raise left_alone(self.fragments, value)
        draft.replace(SLICE_RULE, kernel, kernel.span(of), mma.cta)
        if not name.startswith("make_"):
            return None
        inner = arguments.named_children[0]
        if inner.type == "call_expression":
            callee = inner.child_by_field_name("function")
            if callee is not None and callee.type == "field_expression":
                return self._made(inner, _PARTITIONS)
        first = next(find(inner, "identifier"), None)
        variable = resolve(kernel, first, kernel.text(first)) if first is not None else None
        part = initializer(variable) if variable is not None else None
        if variable is None or part is None or not self._describes_alone(variable.name):
            raise left_alone(self.fragments, inner)
        if part.id not in self._done:
            self._done.add(part.id)
            self._made(part, _PARTITIONS)
        return None

    def _describes_alone(self, name: str) -> bool:
        """Whether a thread's part of an operand is used for nothing but to describe it."""
        kernel = self.site.kernel
        for node in find(kernel.body, "identifier"):
            above = node.parent
            if kernel.text(node) != name or above is None or above.type == "init_declarator":
                continue
            call = above.parent if above.type == "argument_list" else None
            callee = call.child_by_field_name("function") if call is not None else None
            method = callee.child_by_field_name("field") if callee is not None else None
            if (method is None or kernel.text(method) not in _DESCRIBES) and not self.site.tiled.only_asked(
                kernel, node
            ):
                return False
        return True

    # --- batches

    def _batches(self) -> None:
        """Where batches are opened all threads of a warpgroup meet, where they are waited for sums come."""
        site, kernel = self.site, self.site.kernel
        stores: dict[int, list[str]] = {}
        places: dict[int, Node] = {}
        for move in self.residence.stores:
            text = cpp("store_registers", c=site.c, registers=move.sum.handle.name, **move.sum.names)
            stores.setdefault(move.at.id, []).append(text)
            places[move.at.id] = move.at
        for multiply in site.multiplies:
            operand = self._operand(multiply)
            at = self.residence.opening(self.events.multiplying(multiply.call.node))
            if operand is not None:
                text = cpp("store_registers", c=site.c, registers=operand.name, **operand.names)
                if text not in stores.setdefault(at.id, []):
                    stores[at.id].append(text)
        for node in self.residence.opens:
            statement = node.parent
            assert statement is not None
            own = stores.pop(statement.id, [])
            lines = [*own, *([cpp("stored")] if own else []), self._meet()]
            self._instead(BATCH_RULE, statement, "\n".join(lines))
        for key, texts in stores.items():
            site.draft.before(RULE, kernel, places[key], "\n".join([*texts, cpp("stored")]))
        loads: dict[int, list[Sum]] = {}
        for move in self.residence.loads:
            loads.setdefault(move.at.id, []).append(move.sum)
            places[move.at.id] = move.at
        self._commits = self._committed()
        for node in self.residence.waits:
            statement = node.parent
            assert statement is not None
            own = self._loaded(loads.pop(statement.id, []))
            self._instead(BATCH_RULE, statement, "\n".join([self._complete(statement), *own]))
        for key, sums in loads.items():
            site.draft.behind(RULE, kernel, places[key], "\n".join(self._loaded(sums)))
        for call in site.tiled.copy_waits:
            statement = call.node.parent
            around = statement.parent if statement is not None and statement.type == "expression_statement" else None
            if call.caller is not kernel or around is None or around.type != "compound_statement":
                raise site.left(call.node, "a wait for copies as a statement in braces of the kernel", call.caller)
            assert statement is not None
            site.draft.behind(BATCH_RULE, kernel, statement, cpp("fence_copies", meets=False))

    def _instead(self, rule: str, statement: Node, text: str) -> None:
        kernel = self.site.kernel
        pad = self.site.port.indent(kernel, kernel.span(statement))
        self.site.draft.replace(rule, kernel, kernel.span(statement), text.replace("\n", f"\n{pad}"))

    def _meet(self) -> str:
        site = self.site
        met = "" if self._whole else self._member("registers_stored")
        phase = "" if self._whole else site.name("registers_phase")
        return cpp("meet", c=site.c, whole=self._whole, storage=self.storage.front, met=met, phase=phase)

    def _complete(self, statement: Node) -> str:
        return cpp(
            "complete",
            c=self.site.c,
            commits=statement.id not in self._commits.values(),
            issues=self._issues,
            storage=self.storage.front,
            full=self._member("accumulator_full"),
            phase=self.site.name("accumulator_phase"),
        )

    def _loaded(self, sums: list[Sum]) -> list[str]:
        c = self.site.c
        copies = [cpp("load_registers", c=c, registers=s.handle.name, **s.names) for s in sums]
        return [*copies, cpp("loaded")] if copies else []

    # --- branches of the issuing warp

    def _runs(self) -> list[list[Node]]:
        """Statements that only multiply, those together that follow each other in a batch."""
        tops = {t.id: t for t in (self.events.multiplying(m.call.node) for m in self.site.multiplies)}
        runs, opened = list[list[Node]](), {o.parent.id for o in self.residence.opens if o.parent is not None}
        for top in sorted(tops.values(), key=lambda n: n.start_byte):
            current = runs[-1][-1].next_named_sibling if runs else None
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
            current = run[-1].next_named_sibling
            while current is not None and (current.type == "comment" or self.events.kind(current) == "goes"):
                current = current.next_named_sibling
            if current is not None and current.id in waits:
                found[run[-1].id] = current.id
        return found

    def _branches(self) -> None:
        site, kernel, draft = self.site, self.site.kernel, self.site.draft
        for run in self._runs():
            start, last = site.port.before(kernel, run[0]).start, run[-1]
            pad = site.port.indent(kernel, kernel.span(run[0]))
            inner = f"\n{pad}{site.unit}"
            draft.insert(BATCH_RULE, kernel, start, f"if ({self._issues}) {{{inner}")
            for top in run:
                self._multiplies(top)
            draft.shift(BATCH_RULE, kernel, Span(start + 1, kernel.span(last).end), site.unit)
            full = self._member("accumulator_full")
            commit = cpp("commit", storage=self.storage.front, full=full, pair=False)
            commit = f"{inner}{commit}" if last.id in self._commits else ""
            draft.insert(BATCH_RULE, kernel, draft.end_of(kernel, last), f"{commit}\n{pad}}}")
        for statement in find(kernel.body, "expression_statement"):
            in_list = statement.parent is not None and statement.parent.type == "compound_statement"
            if in_list and self.events.kind(statement) == "goes" and not self._is_opening(statement):
                draft.remove(BATCH_RULE, kernel, statement)
        self._told()

    def _is_opening(self, statement: Node) -> bool:
        return any(o.parent is not None and o.parent.id == statement.id for o in self.residence.opens)

    def _told(self) -> None:
        """Whether MMAs add is said of those of SM100."""
        site, kernel = self.site, self.site.kernel
        for node in find(kernel.body, "assignment_expression"):
            left = node.child_by_field_name("left")
            of = left.child_by_field_name("argument") if left is not None else None
            mma = self.fragments.mmas.get(kernel.text(of)) if of is not None else None
            if mma is not None and of is not None and "scale" in set(self.events.events(node)):
                site.draft.replace(BATCH_RULE, kernel, kernel.span(of), mma.umma)
        text, start = kernel.text(kernel.body), kernel.span(kernel.body).start
        for match in site.program.vocabulary.spellings.matches("scale_of_hopper", text):
            span = Span(start + match.start(), start + match.end())
            site.draft.replace(BATCH_RULE, kernel, span, cpp("namespace", c=""))

    def _multiplies(self, top: Node) -> None:
        site, kernel = self.site, self.site.kernel
        for multiply in site.multiplies:
            if not inside(top, multiply.call.node):
                continue
            one = next(s for s in self.fragments.sums if multiply in s.multiplies)
            self._rename(multiply.mma, one.mma.name, one.mma.umma)
            self._rename(multiply.d, one.handle.name, one.names["tensor"])
            operand = self._operand(multiply)
            cleared = self.residence.cleared.get(top.id)
            k = whole_k(kernel, multiply.a) if cleared is not None else None
            if operand is not None and k is None:
                self._rename(multiply.a, operand.name, operand.names["tensor"])
            if cleared is not None:
                self._clears_first(multiply, one.mma, top, cleared, operand, k)

    def _rename(self, node: Node, old: str, new: str) -> None:
        kernel = self.site.kernel
        for name in find(node, "identifier"):
            if kernel.text(name) == old:
                self.site.draft.replace(BATCH_RULE, kernel, kernel.span(name), new)

    def _clears_first(
        self, multiply: Multiply, mma: Mma, top: Node, cleared: Node, operand: Operand | None, k: str | None
    ) -> None:
        """The first step of an MMA clears what the kernel cleared in registers."""
        site, kernel, draft, c = self.site, self.site.kernel, self.site.draft, self.site.c
        draft.remove(RULE, kernel, cleared)
        pad = site.port.indent(kernel, kernel.span(top)) + site.unit
        told = f"{mma.umma}.accumulate_ = {c}UMMA::ScaleOut::"
        start, end = kernel.span(top).start, draft.end_of(kernel, top)
        draft.insert(BATCH_RULE, kernel, start, f"{told}Zero;\n{pad}")
        if k is None:
            draft.insert(BATCH_RULE, kernel, end, f"\n{pad}{told}One;")
            return
        index = site.name("k_block")
        tensor = operand.names["tensor"] if operand is not None else k
        head = cpp("over_k", c=c, index=index, operand=tensor).replace("\n", f"\n{pad}")
        draft.insert(BATCH_RULE, kernel, start, f"{head}\n{pad}{site.unit}")
        for node in (multiply.a, multiply.b):
            span, text = sliced(kernel, node, index, c)
            if node is multiply.a and operand is not None:
                span, text = kernel.span(node), f"{tensor}({c}_, {c}_, {index})"
            draft.replace(BATCH_RULE, kernel, span, text)
        draft.insert(BATCH_RULE, kernel, end, f"\n{pad}{site.unit}{told}One;\n{pad}}}")

    # --- the end

    def _free(self) -> None:
        site, kernel, block = self.site, self.site.kernel, self._block
        at = [m.at for m in self.residence.loads] + self.residence.waits + [m.call.node for m in site.multiplies]
        last = max((n for n in block.named_children if any(inside(n, a) for a in at)), key=lambda n: n.start_byte)
        ends = [n for n in find(kernel.body, "return_statement") if _is_of(kernel, n)]
        ends = [n for n in ends if site.allocated_at <= n.start_byte < last.end_byte]
        if len(ends) > (site.first_warpgroup > 0) or any(inside(block, n) and loop_around(n, block) for n in ends):
            # one is that of the warpgroups in front, which do not multiply
            raise site.left(ends[-1], "one end of the part of the kernel that multiplies")
        text = cpp("leave", whole=self._all, threads=self._threads)
        names = {"warp": site.name("warp"), "tmem": site.name("tmem"), "base": site.name("tmem_base")}
        free = cpp("free", site.unit, first=site.first_warp, storage=self.storage.front, columns=site.columns_text,
                   rotates=False, **names)  # fmt: skip
        site.draft.behind(FREE_RULE, kernel, last, f"{text}\n{free}")


def _is_of(kernel: Function, node: Node) -> bool:
    """Whether a statement leaves the kernel, and no lambda in it."""
    current = node.parent
    while current is not None and current.id != kernel.body.id:
        if current.type == "lambda_expression":
            return False
        current = current.parent
    return True


def port_preserving(site: Site, ask: Ask) -> int:
    """Write the port of a kernel; gives the columns of Tensor Memory that it has.

    Raises:
        Left: a fact is missing.
    """
    port = Preserving(site)
    port.take(ask)
    return port.fragments.allocated
