# SPDX-License-Identifier: Apache-2.0
"""The accumulator in Tensor Memory, and the registers that its sums come to: the tensor of registers keeps the name, so
that what uses it stays; results are partitioned as the copy has them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.facts import Fragment, Zero
from porter.model.functions import declared_name
from porter.model.scopes import resolve
from porter.passes.idiom.atoms import Atom
from porter.passes.idiom.mainloop import Mainloop
from porter.passes.idiom.operands import Operand
from porter.passes.idiom.site import Site
from porter.passes.idiom.text import cpp
from porter.passes.native.sites import Left

RULE = "PTR765"
SLICE_RULE = "PTR762"
_OPERANDS = re.compile(r"(?:partition_(?:fragment_)?|make_fragment_)[ABC]\Z")
_MODE = re.compile(r"(?:\w+::)*(?:size|shape)\s*<\s*\d+\s*>\s*\(")


@dataclass(eq=False)
class Sums:
    """Writes where the accumulator is declared."""

    site: Site
    loop: Mainloop
    atom: Atom
    storage: str
    by_matrix: bool = False
    """Whether results are stored by stmatrix."""
    operand: Operand | None = None
    late: Node | None = None
    """The statement behind which columns are known, where that is not in front of the declaration."""
    moved: list[str] = field(default_factory=list)

    def take(self, declares_phase: bool) -> None:
        """Raises Left."""
        self._check()
        self._slices()
        self._asserted_modes()
        self._partitions()
        self._declaration(declares_phase)
        self._cleared()

    # --- names

    @property
    def _columns_each(self) -> int:
        types = self.site.types
        return types.columns if self.by_rows or types.warpgroups == 1 else types.columns // types.warpgroups

    @property
    def by_rows(self) -> bool:
        types = self.site.types
        return types.warpgroups > 1 and types.rows == 128 * types.warpgroups

    @property
    def by_columns(self) -> bool:
        return self.site.types.warpgroups > 1 and not self.by_rows

    @property
    def _tensor(self) -> str:
        return f"{self.site.tensor}_part" if self.site.types.warpgroups > 1 else self.site.tensor

    @property
    def _slice(self) -> str:
        return self.site.name("cta_mma")

    def _thread(self) -> str:
        return self.site.name("thread_t2r")

    def load(self) -> str:
        site = self.site
        tensor = self._tensor
        if site.asked.buffers > 1 and site.types.warpgroups > 1:
            tensor = self._share("rows" if self.by_rows else "columns")
        accumulators = site.name("accumulators") if site.rotates else ""
        full = site.name("full_accumulator") if site.rotates else ""
        return cpp("load", c=site.c, t2r=site.name("t2r"), thread=self._thread(), tensor=tensor,
                   registers=site.handle.name, whole=site.is_whole, threads=site.multiplying_threads,
                   rotates=site.rotates, pair=site.asked.pair, storage=self.storage,
                   accumulators=accumulators, full=full)  # fmt: skip

    def _share(self, of: str) -> str:
        """The part of the accumulator that a warpgroup has."""
        site = self.site
        return cpp(f"share_of_{of}", c=site.c, tensor=site.tensor, index=site.warpgroup_index,
                   Part=site.name("Part"), part=site.name("part"))  # fmt: skip

    # --- conditions

    def _check(self) -> None:
        site, types = self.site, self.site.types
        where = site.handle.declaration
        if site.warpgroups not in (None, types.warpgroups):
            raise site.left(
                where, f"{types.warpgroups} warpgroups that multiply: branches lead {site.warpgroups} there"
            )
        if types.rows % 128 or types.warpgroups < 1:
            raise site.left(where, f"rows of a tile in MMAs of 128: it has {types.rows}")
        if any(t.columns > 256 or t.columns % 16 for t in site.every):
            raise site.left(where, f"a tile of at most 256 columns, in steps of 16: it has {types.columns}")
        shares = {t.columns % (16 * types.warpgroups) for t in site.every}
        if types.warpgroups > 1 and not self.by_rows and (types.rows != 128 or shares != {0}):
            what = f"{types.rows} rows for {types.warpgroups} warpgroups: 128 for each, or 128 for all"
            raise site.left(where, what)
        if types.warpgroups == 1 and types.rows != 128:
            raise site.left(where, f"128 rows for one warpgroup: it has {types.rows}")
        if types.rows // 128 * types.columns > 512:
            raise site.left(where, f"512 columns of Tensor Memory: {types.rows // 128 * types.columns} are needed")
        lanes = site.program.vocabulary.spellings.matches("asking_for_lane", site.kernel.text(site.kernel.body))
        if lanes:
            raise site.left(where, f"results that do not ask which lane has them: there is `{lanes[0][0]}`")

    # --- edits

    def _slices(self) -> None:
        """A thread's part of the tiled MMA becomes the CTA's."""
        site, kernel = self.site, self.site.kernel
        slices = site.slices
        for node in find(kernel.body, "call_expression"):
            callee = node.child_by_field_name("function")
            arguments = node.child_by_field_name("arguments")
            if callee is None or arguments is None or callee.type != "field_expression" or self._is_rewritten(node):
                continue
            of, named = callee.child_by_field_name("argument"), callee.child_by_field_name("field")
            if of is None or named is None:
                continue
            if kernel.text(of) in set(slices.values()) | {site.mma} and re.match(
                r"get_(thread_)?slice", kernel.text(named)
            ):
                inner = Span(kernel.span(arguments).start + 1, kernel.span(arguments).end - 1)
                site.draft.replace(SLICE_RULE, kernel, inner, f"{site.c}_0{{}}")
            elif kernel.text(of) in slices and not _OPERANDS.match(kernel.text(named)):
                raise site.left(node, f"`{kernel.text(named)}` of a part of the tiled MMA")
        for name in slices:
            for node in find(kernel.body, "identifier"):
                stays = self._is_moved(node) or self._is_partition(node) or self._is_rewritten(node)
                if kernel.text(node) == name and not stays:
                    site.draft.replace(SLICE_RULE, kernel, kernel.span(node), self._slice)

    def _is_rewritten(self, node: Node) -> bool:
        return any(n.start_byte <= node.start_byte < n.end_byte for n in self.site.rewritten)

    def _is_partition(self, node: Node) -> bool:
        """Whether a part of the tiled MMA is what results are partitioned by, and is written anew with that."""
        call = node.parent.parent if node.parent is not None else None
        return call is not None and self._partition(call) is not None and not self._in_accumulator(call)

    def _partition(self, node: Node) -> str | None:
        """What a call partitions as the accumulator is; None if it is none."""
        kernel = self.site.kernel
        callee = node.child_by_field_name("function")
        if node.type != "call_expression" or callee is None or callee.type != "field_expression":
            return None
        of, named = callee.child_by_field_name("argument"), callee.child_by_field_name("field")
        arguments = node.child_by_field_name("arguments")
        if of is None or named is None or arguments is None or kernel.text(named) != self._method(node):
            return None
        return kernel.text(arguments)[1:-1] if kernel.text(of) in self.site.slices else None

    def _method(self, node: Node) -> str:
        """How results are partitioned, and in front of the accumulator A that comes from registers."""
        kernel, above = self.site.kernel, node.parent
        name = declared_name(above) if above is not None and above.type == "init_declarator" else None
        if self.operand is not None and name is not None and kernel.text(name) == self.operand.part:
            return "partition_A"
        return "partition_C"

    def _written(self, tensor: str) -> str:
        site = self.site
        return cpp("part", thread=self._thread(), c=site.c, tensor=tensor, slice=self._slice,
                   whole=site.asked.wide, shared=site.types.warpgroups > 1, Part=site.name("Part"),
                   part=site.name("part"))  # fmt: skip

    def _is_moved(self, node: Node) -> bool:
        return any(s.start_byte <= node.start_byte < s.end_byte for s in self._early())

    def _early(self) -> list[Node]:
        """Declarations of parts of results in front of the accumulator's."""
        site, kernel = self.site, self.site.kernel
        found = []
        for node in find(kernel.body, "call_expression"):
            statement = node.parent.parent if node.parent is not None else None
            if self._partition(node) is None or node.start_byte >= site.handle.declaration.start_byte:
                continue
            if (
                statement is None
                or statement.type != "declaration"
                or statement.parent != site.handle.declaration.parent
            ):
                raise site.left(node, "parts of results that are declared where the accumulator is")
            found.append(statement)
        return found

    def _partitions(self) -> None:
        """Parts of results are those of the copy."""
        site, kernel = self.site, self.site.kernel
        early = self._early()
        for statement in early:
            span, source = kernel.span(statement), kernel.file.source
            end = source.find(b"\n", span.end)
            comment = source[span.end : end].decode()
            start = source.rfind(b"\n", 0, span.start) + 1
            declared = next(find(statement, "init_declarator"))
            value, name = declared.child_by_field_name("value"), declared_name(declared)
            assert value is not None
            assert name is not None
            tensor = self._partition(value)
            if tensor is None or (comment.strip() and not comment.strip().startswith("//")):
                raise site.left(statement, "parts of results each by a declaration")
            kept = self._asked_early(kernel.text(name), statement)
            if kept:
                raise site.left(statement, "parts of results that nothing uses in front of the accumulator")
            head = source[span.start : kernel.span(value).start].decode()
            if self._method(value) == "partition_A" and self.operand is not None:
                self.moved.append(f"{self.operand.loaded(head)}{comment}")
            else:
                self.moved.append(f"{head}{self._written(tensor)};{comment}")
            site.draft.replace(RULE, kernel, Span(start, end + 1), "")
        for node in find(kernel.body, "call_expression"):
            tensor = self._partition(node)
            if tensor is not None and not self._is_moved(node) and not self._in_accumulator(node):
                site.draft.replace(RULE, kernel, kernel.span(node), self._written(tensor))

    @property
    def _has_parts(self) -> bool:
        """Whether results are partitioned in the kernel."""
        return any(
            self._partition(n) is not None and not self._in_accumulator(n)
            for n in find(self.site.kernel.body, "call_expression")
        )

    def _in_accumulator(self, node: Node) -> bool:
        declared = self.site.handle.declaration
        return declared.start_byte <= node.start_byte < declared.end_byte

    def _asked_early(self, name: str, statement: Node) -> bool:
        kernel, declared = self.site.kernel, self.site.handle.declaration
        early = self._early()
        return any(
            kernel.text(n) == name
            and statement.end_byte <= n.start_byte < declared.start_byte
            and not any(e.start_byte <= n.start_byte < e.end_byte for e in early)
            for n in find(kernel.body, "identifier")
        )

    def _asserted_modes(self) -> None:
        """What is held against modes of parts of results, which a copy's parts have others of, is held against those of
        the accumulator, which are the MMA's as they were."""
        site, kernel = self.site, self.site.kernel
        names = {site.handle.name}
        for declarator in find(kernel.body, "init_declarator"):
            value, name = declarator.child_by_field_name("value"), declared_name(declarator)
            if (
                value is not None
                and name is not None
                and self._partition(value)
                and self._method(value) == "partition_C"
            ):
                names.add(kernel.text(name))
        for node in find(kernel.body, "identifier"):
            asked = node.parent.parent if node.parent is not None else None
            if asked is None or kernel.text(node) not in names or not _MODE.match(kernel.text(asked)):
                continue
            statement = asked
            while statement.parent is not None and not statement.type.endswith(("statement", "declaration")):
                statement = statement.parent
            head = kernel.text(statement).partition("(")[0]
            if head.strip() == "static_assert" or site.program.vocabulary.spellings.matches("asserting_macro", head):
                site.draft.replace(RULE, kernel, kernel.span(node), site.tensor)

    def _declaration(self, declares_phase: bool) -> None:
        site, kernel = self.site, self.site.kernel
        declaration, value = site.handle.declaration, site.handle.value
        declarator = site.handle.variable.declarator
        name = declared_name(declarator) if declarator is not None else None
        if value is None or name is None:
            raise site.left(declaration, "the accumulator as what a call gives")
        head = kernel.file.text(Span(kernel.span(declaration).start, kernel.span(name).start))
        if kernel.span(name).end != kernel.span(declarator).start + len(kernel.text(name)):  # type: ignore[arg-type]
            raise site.left(declaration, "the accumulator as a variable of its own")
        site.draft.replace(RULE, kernel, kernel.span(name), site.tensor)
        like = self._like(value)
        lines = (
            [cpp("base", tensor=site.tensor, storage=self.storage, base=site.name("tmem_base"))]
            if not self.late
            else []
        )
        lines += [
            *([self.operand.declared(self.by_rows, self.storage)] if self.operand is not None else []),
            self._copy(),
            *self.moved,
            f"{head}{site.handle.name} = {cpp('registers', c=site.c, type=self._sum(), like=like)};",
        ]  # fmt: skip
        if site.rotates:
            state = cpp("state_of_accumulators", buffers=site.asked.buffers, full=site.name("full_accumulator"))
            lines.append(state)
        elif declares_phase:
            lines.append(cpp("phase", phase=site.name("accumulator_phase")))
        site.draft.behind(RULE, kernel, declaration, "\n".join(lines))
        if self.late is not None:
            text = cpp("base", tensor=site.tensor, storage=self.storage, base=site.name("tmem_base"))
            site.draft.behind(RULE, kernel, self.late, text)

    def _sum(self) -> str:
        """The type of a sum as the kernel names it."""
        text = self.atom.sum
        return text if text == "float" or "_t" in text else cpp("type_of_sums", tensor=self.site.tensor)

    def _copy(self) -> str:
        """The copy from Tensor Memory, of the part that a warpgroup has."""
        site, types = self.site, self.site.types
        how, width = ("16dp256b", 8) if self.by_matrix else ("32dp32b", 1)
        parts = [t.columns // (types.warpgroups if self.by_columns else 1) for t in site.every]
        repeat = next(r // width for r in (64, 32, 16) if not any(n % r for n in parts) and r // width <= 32)
        names, several = site.tile_names, types.warpgroups > 1
        m, n = names or (str(types.rows), str(types.columns))
        return cpp(
            "accumulator",
            c=site.c,
            named=self.by_columns or self._has_parts,
            by_rows=self.by_rows,
            by_columns=self.by_columns,
            part=site.name("part") if several else "",
            Part=site.name("Part") if several else "",
            index=site.warpgroup_index,
            share_of_rows=self._share("rows") if self.by_rows else "",
            share_of_columns=self._share("columns") if self.by_columns else "",
            m=m,
            n=n,
            share=str(self._columns_each) if not names else n if site.asked.wide else f"{n} / {types.warpgroups}",
            tensor=site.tensor,
            tensor_part=self._tensor,
            t2r=site.name("t2r"),
            how=how,
            repeat=repeat,
            suffix="_16b" if types.bytes == 2 else "",
            thread=self._thread(),
        )

    def _like(self, value: Node) -> str:
        """What has the shape of the registers: a part of results that is declared, else one of coordinates."""
        site, kernel = self.site, self.site.kernel
        early = dict[str, str | None]()
        for declarator in (d for s in self._early() for d in find(s, "init_declarator")):
            name, part = declared_name(declarator), declarator.child_by_field_name("value")
            if name is not None and part is not None and self._method(part) == "partition_C":
                early[kernel.text(name)] = self._partition(part)
        for node in find(value, "identifier"):
            tensor = early.get(kernel.text(node))
            if tensor is not None:
                site.draft.replace(RULE, kernel, kernel.span(node), f"{self._slice}.partition_C({tensor})")
        if early:
            return next(iter(early))
        return cpp("identity", thread=self._thread(), c=site.c, tensor=self._tensor)

    def _cleared(self) -> None:
        """Sums that are set to zero: the first MMA does that."""
        site, kernel = self.site, self.site.kernel
        cleared = [n for n in find(kernel.body, "expression_statement") if self._clears(n)]
        behind = [n for n in cleared if n.start_byte > self.loop.last.start_byte and n.parent == self.loop.last.parent]
        if behind:
            raise site.left(behind[0], "sums that are set to zero in front of MMAs alone")
        for node in cleared[:-1]:
            site.draft.remove(RULE, kernel, node)
        for node in cleared[-1:]:
            text = f"{site.mma}.accumulate_ = {site.c}UMMA::ScaleOut::Zero;"
            site.draft.replace(RULE, kernel, kernel.span(node), text)
        changing = self.loop.changing_sums()
        if changing is not None:
            raise Left(kernel, kernel.span(changing), "registers of sums that are used behind MMAs alone")
        for node in find(kernel.body, "identifier"):
            variable = resolve(kernel, node, kernel.text(node))
            early = site.handle.declaration.end_byte <= node.start_byte < self.loop.last.start_byte
            named = variable is not None and variable.key == site.handle.variable.key and early
            if named and not site.tiled.only_asked(kernel, node) and not self._is_like(node):
                raise Left(kernel, kernel.span(node), "registers of sums that are used behind MMAs alone")

    def _is_like(self, node: Node) -> bool:
        """Whether a tensor of other registers is made in the shape of the sums."""
        call = node.parent.parent if node.parent is not None and node.parent.type == "argument_list" else None
        found = self.site.tiled.tensors.call(self.site.kernel, call) if call is not None else None
        return found is not None and isinstance(self.site.program.facts.of_call(found), Fragment)

    def _clears(self, node: Node) -> bool:
        tiled, kernel = self.site.tiled, self.site.kernel
        for inner in find(node, "call_expression"):
            call = tiled.tensors.call(kernel, inner)
            if call is not None and isinstance(self.site.program.facts.of_call(call), Zero) and call.args:
                return tiled.handle_of(kernel, call.args[0]) is self.site.handle
        return False
