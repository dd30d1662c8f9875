# SPDX-License-Identifier: Apache-2.0
"""Operands and sums in registers take the way through Tensor Memory: they are stored ahead of the MMAs that have them
and loaded behind, in the layout that registers have anyway. All that is computed of them stays.

PTX ISA 9.7.16.8 (tcgen05.ld, tcgen05.st), 9.7.16.12.1 (tcgen05.commit).
"""

from __future__ import annotations

from typing import Any

import libcst as cst
import libcst.matchers as m

from porter.passes.idiom_dsl.facts import agreed
from porter.passes.idiom_dsl.imports import Imports
from porter.passes.idiom_dsl.memory import allocations, member_of
from porter.passes.idiom_dsl.names import KNOWN, OBSERVED
from porter.passes.idiom_dsl.products import Operand, Product, Products, made_of
from porter.passes.idiom_dsl.shapes import operand_of
from porter.passes.idiom_dsl.text import Draft, Left, Text, argument, assigned, deeper, found_in, method, one
from porter.passes.idiom_dsl.waited import Batch, is_use
from porter.passes.idiom_dsl.words import Plain
from porter.ptx.wgmma import THREADS

RULE = "PTR593"
_SHAPES = ("partition_shape_A",)
_ROWS = m.Tuple([m.Element(m.Integer("64")), m.Element()])


def edit(found: Products, draft: Draft, imports: Imports) -> None:
    words = Plain(found.kernel, imports, slice=found.slice, teams=found.teams, several=found.teams > 1)
    words.update(barrier=found.ids[0], ready_id=found.ids[1], readers=THREADS * found.teams, allocator=found.warp)
    words["before"] = f" - {found.warp // 4}" if found.warp else ""
    # what lists have has no value of its own yet
    words.update({name: words[name] for name in ("cute", "tcgen05")})
    writer = _Writer(found, draft, words)
    writer.host()
    writer.storage()
    writer.registers()
    for batch in found.batches:
        writer.batch(batch)
    writer.settle()
    writer.partitions()
    writer.stores()
    writer.end()


class _Writer:
    def __init__(self, found: Products, draft: Draft, words: Plain) -> None:
        self.found, self.draft, self.words = found, draft, words
        self.kernel, self.text = found.kernel, found.kernel.text
        self.sums = {p.accumulator.name: self._sum(p) for p in found.products}
        self.blocks = {o.mma: self._block(o) for o in found.operands}
        self.operands = {o.name: {**self._operand(o), **self.blocks[o.mma]} for o in found.operands}
        both = [*(s["sum_tmem"] for s in self.sums.values()), *(o["a_tmem"] for o in self.operands.values())]
        words["listed"] = ", ".join(both)
        for i, values in enumerate([*self.sums.values(), *self.operands.values()]):
            values["offset"] = f" + sum({words['team_columns']}[:{i}])" if i > 1 else ""
            values["offset"] = f" + {words['team_columns']}[0]" if i == 1 else values["offset"]
        words["mine_at"] = words["team_pointer"] if found.teams > 1 else words["pointer"]
        if found.teams == 1:
            words["mine"] = words["commit"]

    def _sum(self, product: Product) -> dict[str, Any]:
        name, fresh = product.accumulator.name, self.kernel.fresh
        return {"sum": name, "sum_tmem": fresh(f"{name}_tmem"), "load": fresh(f"load_{name}"),
                "thread": fresh(f"thr_load_{name}"), "held": fresh(f"{name}_held"), "from_tmem": fresh(f"{name}_from"),
                "store": fresh(f"store_{name}"), "to_tmem": fresh(f"{name}_to"), "mma": product.parts.mma,
                "stored": product.is_stored}  # fmt: skip

    def _block(self, one: Operand) -> dict[str, Any]:
        fresh = self.kernel.fresh
        return {"mma": one.mma, "block_a": fresh("a_block"), "store_a": fresh("store_a"),
                "thread_a": fresh("thr_store_a")}  # fmt: skip

    def _operand(self, one: Operand) -> dict[str, Any]:
        name, fresh = one.name, self.kernel.fresh
        count = f"{self.words['cute']}.size({name}, mode=[2])" if one.is_ahead else str(max(one.blocks))
        return {"a": name, "a_tmem": fresh(f"{name}_tmem"), "a_to": fresh(f"{name}_to"),
                "a_held": fresh(f"{name}_held"), "blocks": count, "ahead": one.is_ahead}  # fmt: skip

    def host(self) -> None:
        """The tiled MMAs have the same tile, in one atom of one CTA."""
        for call in dict.fromkeys(s.call for p in self.found.products for s in made_of(p.parts)):
            layout, tiler = argument(call, 5, "atom_layout_mnk"), argument(call, 6, "tiler_mn")
            if layout is None or tiler is None:
                raise Left("a tiled MMA whose arguments are not named one by one", call)
            group = f"{self.words['tcgen05']}.CtaGroup.ONE"
            self.draft.replace(RULE, layout, group if layout.keyword is None else f"cta_group={group}")
            if not m.matches(tiler.value, _ROWS):
                raise Left("a tiled MMA whose rows are not written down", call)
            if tiler.keyword is not None:
                self.draft.replace(RULE, tiler.keyword, "mma_tiler_mn")

    def storage(self) -> None:
        """One mbarrier for each warpgroup, and the address of the columns."""
        created = self.text.calls(self.kernel.function, *OBSERVED["load_pipeline"])
        if not created:
            self.words["smem"], last = allocations(self.kernel, self.found.products[0].accumulator.statement)
            self.draft.below(RULE, last, self.words.text("team_arrays"))
            self.draft.below(RULE, last, self.words.text("team_barriers", meets=True))
            return
        first, last_one = created[0], created[-1]
        place = self.text.in_block(first, self.kernel.function.body)
        if place is None or self.text.statement(first) is not place:
            raise Left("pipelines of loads that are made in a branch", first)
        owner, field = member_of(self.kernel, last_one)
        self.draft.below(RULE, field, self.words.text("team_storage"))
        self.words["commits"] = f"{owner}.{self.words['commits']}.data_ptr()"
        self.words["address"] = f"{owner}.{self.words['address']}.ptr"
        self.draft.above(RULE, place, self.words.text("team_barriers", meets=False))

    def registers(self) -> None:
        """What lies in registers is made, with its place in Tensor Memory."""
        found, text = self.found, self.text
        first = min((p.accumulator.statement for p in found.products), key=lambda s: text.span(s).start)
        places = [first, *self._uses_of_operands()]
        inside = [text.in_block(s, found.block) for s in places]
        if None in inside:
            raise Left("A from registers that is read away from where its registers are made", places[-1])
        places = [s for s in inside if s is not None]
        place = min(places, key=lambda s: text.span(s).start)
        blocks = [self.words.text("team_operand", **b) for b in self.blocks.values()]
        self.draft.above(RULE, place, "\n".join([self.words.text("team"), *blocks]))
        for product in found.products:
            call = product.accumulator.call
            if product.accumulator.seen[0].name.endswith("make_fragment_C"):
                fragment = text.code(call)
            else:
                shape = argument(call, 0, "shape_or_layout")
                if shape is None:
                    raise Left("an accumulator without a shape", call)
                fragment = f"{product.parts.mma}.make_fragment_C({text.code(shape.value)})"
            values = self.sums[product.accumulator.name]
            new = self.words.text("team_sums", fragment=fragment, **values)
            self.draft.instead(RULE, product.accumulator.statement, new)
        made = [p.accumulator.statement for p in found.products]
        made += [o.statement for o in found.operands if o.is_ahead]
        last = max(made, key=lambda s: text.span(s).start)
        memory = self.words.text("team_memory", operands=list(self.operands.values()), sums=list(self.sums.values()))
        self.draft.below(RULE, last, memory)
        for one_ in found.operands:
            if not one_.is_ahead:
                self.draft.below(RULE, one_.statement, self.words.text("team_held", **self.operands[one_.name]))

    def batch(self, batch: Batch) -> None:
        kernel, text, draft, words = self.kernel, self.text, self.draft, self.words
        gemms = [g for s in batch.statements for g in kernel.gemms_in(s)]
        names = dict.fromkeys(o.name for g in gemms for o in self.found.operands if g in o.gemms)
        stored = [p for p in self.found.products for s in p.settled if s.stored and s.first is batch.first]
        sums = [self.sums[p.accumulator.name] for p in stored]
        ahead = [words.text("team_store", operands=[self.operands[n] for n in names], sums=sums)]
        ahead = ahead if names or sums else []
        draft.above(RULE, batch.first, "\n".join([*ahead, words.text("team_hand_over")]))
        for gemm in gemms:
            self._gemm(gemm)
        for statement in batch.statements:
            for call in kernel.warpgroup_calls(statement):
                whole = m.matches(text.statement(call), m.SimpleStatementLine([m.Expr(m.Call())]))
                if not whole:
                    raise Left("a call among others in one statement", call)
                if text.statement(call) is not batch.last:
                    draft.remove(RULE, text.statement(call))
        if kernel.gemms_in(batch.last):
            draft.below(RULE, batch.last, deeper(words.text("team_commit")))
        else:
            draft.instead(RULE, batch.last, words.text("team_commit"), 1)
        draft.indent(RULE, batch.first, batch.last)
        loaded = [p for p in self.found.products for s in p.settled if s.last is batch.wait]
        loads = [words.text("team_load", **self.sums[p.accumulator.name]) for p in loaded]
        draft.instead(RULE, batch.wait, "\n".join([words.text("team_wait"), *loads]))

    def _gemm(self, gemm: cst.Call) -> None:
        """What it adds to, and its operand, lie in Tensor Memory."""
        text = self.text
        d, a, b = operand_of(gemm, 1, "d"), operand_of(gemm, 2, "a"), operand_of(gemm, 3, "b")
        sums, atom = self.sums[text.code(d)]["sum_tmem"], text.code(operand_of(gemm, 0, "atom"))
        operand = next((o for o in self.found.operands if gemm in o.gemms), None)
        name = a.value if isinstance(a, cst.Subscript) else a
        tmem = self.operands[operand.name]["a_tmem"] if operand is not None else text.code(name)
        deep = {len(s.value(2, "a")["shape"]) > 2 and s.value(2, "a")["shape"][2] != 1 for s in self.kernel.seen(gemm)}
        if agreed(deep, "the blocks of K of an MMA"):
            statement = text.statement(gemm)
            if not m.matches(statement, m.SimpleStatementLine([m.Expr(m.Call())])):
                raise Left("a call among others in one statement", gemm)
            new = tmem + text.code(a)[len(text.code(name)) :]
            values = {"gemm": text.code(gemm.func), "field": f"{self.words['tcgen05']}.Field", "mma": atom, "acc": sums,
                      "a": " ".join(new.split()), "b": " ".join(text.code(b).split())}  # fmt: skip
            self.draft.instead(RULE, statement, Plain.text(self.words, "multiply", **values), 1)
            return
        self.draft.replace(RULE, d, sums)
        self.draft.replace(RULE, operand_of(gemm, 4, "c"), sums)
        if operand is not None:
            self.draft.replace(RULE, name, tmem)

    def settle(self) -> None:
        """Registers that a loop does not use are stored ahead of it, and loaded behind."""
        waits = {b.wait for b in self.found.batches}
        for product in self.found.products:
            values = self.sums[product.accumulator.name]
            for settled in product.settled:
                if settled.last in waits:
                    continue
                if settled.stored:
                    self.draft.above(RULE, settled.first, self.words.text("team_store", operands=[], sums=[values]))
                self.draft.below(RULE, settled.last, self.words.text("team_load", **values))

    def _uses_of_operands(self) -> list[cst.BaseStatement]:
        """Statements that say which element of A is in which register, by tiled MMAs that have it there."""
        text, kernel = self.text, self.kernel
        of = set(self.blocks)
        slices = {n for n, mma in _slices(text, kernel.function, set(of)).items() if mma in of}
        calls = [c for c in found_in(kernel.function, cst.Call) if method(c, "partition_A") in slices]
        calls += [c for c in found_in(kernel.function, cst.Call) if method(c, "make_fragment_A", *_SHAPES) in of]
        calls += text.calls(kernel.function, KNOWN["tiled_a"])
        return [text.statement(c) for c in calls if not self._makes_sums(c)]

    def _makes_sums(self, node: cst.CSTNode) -> bool:
        made = [self.text.span(p.accumulator.call) for p in self.found.products]
        return any(s.contains(self.text.span(node)) for s in made)

    def partitions(self) -> None:
        """Uses of tiled MMAs and of their slices: which element of C is in which register is said by the load."""
        kernel, text = self.kernel, self.text
        mmas = {p.parts.mma: p for p in self.found.products}
        slices = _slices(text, kernel.function, set(mmas))
        for node in found_in(kernel.function, cst.Name):
            of = slices.get(node.value, node.value)
            if of not in mmas or not is_use(text, node) or self._makes_sums(node):
                continue
            if self.draft.is_gone(text.span(node)):
                continue
            self._use(node, of, node.value in slices)
        for call in found_in(kernel.function, cst.Call):
            if method(call, "get_slice") in mmas:
                self.draft.replace(RULE, call.args[0].value, "0")

    def _use(self, node: cst.Name, mma: str, is_slice: bool) -> None:
        text = self.text
        parent = text.parent(node)
        call = text.parent(parent)
        if isinstance(parent, cst.Attribute) and parent.value is node and isinstance(call, cst.Call):
            what = parent.attr.value
            if what == "partition_C" and is_slice and len(call.args) == 1:
                values = self._of(mma, call)
                new = f"{values['thread']}.partition_D({text.code(call.args[0].value)})[((None, 0), None, None)]"
                self.draft.replace(RULE, call, new, [call.args[0]])
                return
            if what in ("set", "get_slice") and not is_slice:
                return
            if what in ("make_fragment_C", "partition_shape_C"):
                self._alike(call, what, mma)
                return
            if what.endswith("_A") and mma in self.blocks:
                self._of_operand(call, what, self.blocks[mma])
                return
            if what in ("make_fragment_B", "make_fragment_A"):
                return
            if what in ("partition_B", "partition_A") and _is_for_fragments(text, call):
                return
        elif isinstance(parent, cst.Arg) and isinstance(call, cst.Call):
            if call in self.kernel.gemms or self._is_copy(call):
                return
            if text.is_a(call.func, KNOWN["tiled_a"]) and len(call.args) == 2 and mma in self.blocks:
                atom, store = text.code(call.args[0].value), self.blocks[mma]["store_a"]
                new = f"{self.words['cute']}.make_tiled_copy_S({atom}, {store})"
                self.draft.replace(RULE, call, new, [call.args[0]])
                return
        raise Left(f"a use of `{node.value}` that is not followed", node)

    def _alike(self, call: cst.Call, what: str, mma: str) -> None:
        """Other registers of the accumulator's shape are made like it."""
        text, cute = self.text, self.words["cute"]
        name = self._of(mma, call)["sum"]
        shape = next(p.accumulator for p in self.found.products if p.accumulator.name == name).shape
        around = text.parent(text.parent(call))
        made = call if what == "make_fragment_C" else around
        seen = self.kernel.seen(made) if isinstance(made, cst.Call) else []
        if not seen or any((s.result or {}).get("shape") != shape for s in seen):
            raise Left("registers that are made for another shape than the accumulator's", call)
        new = f"{name}.shape" if made is not call else f"{cute}.make_rmem_tensor({name}.shape, {name}.element_type)"
        self.draft.replace(RULE, call, new)

    def _of_operand(self, call: cst.Call, what: str, block: dict[str, Any]) -> None:
        """Which element of A is in which register is said by the store."""
        draft, cute = self.draft, self.words["cute"]
        if len(call.args) != 1 or call.args[0].keyword is not None:
            raise Left("a partition of A in another way", call)
        given = call.args[0].value
        if what == "partition_A":
            modes = agreed([len(s.result["shape"]) for s in self.kernel.seen(call)], "modes of a partition of A")
            draft.replace(RULE, call.func, f"{block['thread_a']}.partition_S")
            draft.around(RULE, call, "", f"[((None, 0), {', '.join(['None'] * (modes - 1))})]")
        elif what == "partition_shape_A":
            draft.replace(RULE, call.func, f"{block['thread_a']}.partition_S")
            draft.around(RULE, given, f"{cute}.make_identity_tensor(", ")")
            draft.around(RULE, call, "", "[((None, 0), None, None)].shape")
        elif what == "make_fragment_A" and m.matches(given, m.Name() | m.Subscript() | m.Call()):
            draft.replace(RULE, call.func, f"{cute}.make_rmem_tensor")
            draft.around(RULE, given, "", f".shape, {block['block_a']}.element_type")
        else:
            raise Left("a partition of A in another way", call)

    def _is_copy(self, call: cst.Call) -> bool:
        """Whether a call makes a copy that is laid out as the MMA; `stores` edits these."""
        return self.text.is_a(call.func, KNOWN["tiled_atom"], KNOWN["tiled_c"])

    def _of(self, mma: str, node: cst.CSTNode) -> dict[str, Any]:
        own = [p for p in self.found.products if p.parts.mma == mma]
        if len(own) != 1:
            raise Left("a layout of one of several accumulators", node)
        values = self.sums[own[0].accumulator.name]
        if self.text.span(node).start < self.text.span(own[0].accumulator.statement).start:
            raise Left("a layout of an accumulator that is made ahead of it", node)
        return values

    def stores(self) -> None:
        """Copies of sums are laid out as the load."""
        kernel, text = self.kernel, self.text
        loads = list[str]()
        for call in text.calls(kernel.function, KNOWN["tiled_atom"], KNOWN["tiled_c"]):
            if len(call.args) != 2:
                raise Left("a copy that is laid out as the MMA, in another way", call)
            values = self._of(text.code(call.args[1].value), call)
            of, atom = self._outer(call), call.args[0]
            if of is not None:
                atom = of.args[0]
            elif text.is_a(call.func, KNOWN["tiled_atom"]):
                raise Left("a copy that is laid out as the MMA, in another way", call)
            new = f"{self.words['cute']}.make_tiled_copy_D({text.code(atom.value)}, {values['load']})"
            self.draft.replace(RULE, of or call, new, [atom])
            loads.append(values["load"])
        atoms = [r for name in OBSERVED["store_atom"] for r in self._named(name)]
        for name in atoms:
            asked = text.parent(name)
            mine = isinstance(asked, cst.Call) and asked.func is name and text.function(asked) is kernel.function
            if not mine or len(set(loads)) != 1:
                raise Left("an atom of the store to shared memory that is made away from the copy", name)
            made = cst.ensure_type(asked, cst.Call)
            if any(a.star for a in made.args) or text.span(made).start < self._made_at(loads[0]):
                raise Left("an atom of the store to shared memory that is made ahead of the sums", made)
            last = made.args[-1]
            self.draft.replace(RULE, last, f"{text.code(last).rstrip(', ')}, tiled_tmem_load={loads[0]}", [last])

    def _made_at(self, load: str) -> int:
        name = next(n for n, values in self.sums.items() if values["load"] == load)
        made = next(p.accumulator.statement for p in self.found.products if p.accumulator.name == name)
        return self.text.span(made).start

    def _named(self, name: str) -> list[cst.BaseExpression]:
        nodes = [*found_in(self.text.module, cst.Attribute), *found_in(self.text.module, cst.Name)]
        inside = [n for n in nodes if name in self.text.names(n)]
        imports = (cst.Import, cst.ImportFrom)
        return [n for n in inside if not any(isinstance(a, imports) for a in self.text.above(n))]

    def _outer(self, call: cst.Call) -> cst.Call | None:
        """`make_tiled_copy_S(atom, call)`, of the call or of its name."""
        text, found = self.text, list[cst.Call]()
        bound = assigned(text.statement(call))
        for outer in text.calls(self.kernel.function, KNOWN["tiled_store"]):
            if len(outer.args) == 2:
                value = outer.args[1].value
                named = bound is not None and bound[1] is call and text.code(value) == bound[0]
                found += [outer] if value is call or named else []
        if bound is not None and bound[1] is call and found:
            uses = [n for n in found_in(self.kernel.function, cst.Name) if n.value == bound[0] and is_use(text, n)]
            if len(uses) != len(found):
                raise Left("a copy that is laid out as the MMA, in another way", call)
        return one(found, "copies that are made of the layout of an MMA") if found else None

    def end(self) -> None:
        """Columns are given back when all who multiply have read them."""
        text, kernel, block = self.text, self.kernel, self.found.block
        returns = [r for r in found_in(kernel.function, cst.Return) if text.function(r) is kernel.function]
        last = list(block.body)[-1]
        if m.matches(last, m.SimpleStatementLine([m.Return(None)])) and len(returns) == 1:
            last = list(block.body)[-2]
        elif returns:
            raise Left("a kernel that ends at several places", returns[0])
        self.draft.below(RULE, last, self.words.text("team_end"))


def _slices(text: Text, function: cst.FunctionDef, mmas: set[str]) -> dict[str, str]:
    """Names of slices, and what they are of."""
    found = dict[str, str]()
    for call in found_in(function, cst.Call):
        if (of := method(call, "get_slice")) in mmas:
            bound = assigned(text.statement(call))
            if bound is None or bound[1] is not call or bound[0] in found:
                raise Left("a slice of a tiled MMA without a name of its own", call)
            found[bound[0]] = of
    return found


def _is_for_fragments(text: Text, call: cst.Call) -> bool:
    """Whether a partition is what a fragment is made of, and nothing else."""
    parent = text.parent(call)
    if isinstance(parent, cst.Arg):
        return _makes_fragment(text.parent(parent))
    bound = assigned(text.statement(call))
    if bound is None or bound[1] is not call:
        return False
    uses = [n for n in found_in(text.function(call), cst.Name) if n.value == bound[0] and is_use(text, n)]
    parents = [text.parent(n) for n in uses]
    return all(isinstance(p, cst.Arg) and _makes_fragment(text.parent(p)) for p in parents)


def _makes_fragment(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.Call) and bool(method(node, "make_fragment_A", "make_fragment_B"))
