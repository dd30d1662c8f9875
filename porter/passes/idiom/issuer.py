# SPDX-License-Identifier: Apache-2.0
"""A warp that does nothing else waits for operands and issues MMAs: one of those beside the thread that loads. What
only MMAs ask for moves there; what others ask for, too, stands at both places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.facts import Mbarrier, Pipeline
from porter.model.functions import Call, declared_name
from porter.model.scopes import LOOPS
from porter.passes.idiom.draft import Ported
from porter.passes.idiom.mainloop import Mainloop
from porter.passes.idiom.site import Site, inside
from porter.passes.idiom.text import cpp
from porter.passes.native.texts import indented

RULE = "PTR781"
_ROLE = re.compile(r"[\w:]*\bThreadCategory\s*::\s*(?=\w)")


@dataclass(eq=False)
class Issuer:
    """Where the warp's part stands: in front of `loading`, a statement of the branch of those that load."""

    site: Site
    loop: Mainloop
    storage: str
    branch: Node = field(init=False, repr=False)
    loading: Node = field(init=False, repr=False)

    def __post_init__(self) -> None:
        site = self.site
        if site.first_warpgroup < 1:
            raise site.left(site.handle.declaration, "a warp beside those that multiply")
        self.branch, self.loading = self._place()

    # --- where those that load are

    def _levels(self) -> Iterator[tuple[Node, Node]]:
        """Lists of statements around the multiplying one, from the innermost, each with its element on the way."""
        node: Node | None = self.loop.last
        while node is not None and node.id != self.site.kernel.body.id:
            if node.parent is not None and node.parent.type == "compound_statement":
                yield node.parent, node
            node = node.parent

    def _place(self) -> tuple[Node, Node]:
        for block, on_way in self._levels():
            for statement in block.named_children:
                if statement.type != "if_statement" or statement.start_byte < self.site.allocated_at:
                    continue
                for part in self._parts(statement):
                    if inside(part, on_way) or (not inside(statement, on_way) and not self._leaves(part)):
                        continue
                    loading = next((n for n in part.named_children if self._loads(n)), None)
                    if loading is not None and loading.type == "if_statement":
                        return statement, loading
        raise self.site.left(self.loop.last, "a branch of a thread that loads, and leaves or has MMAs in another one")

    @staticmethod
    def _parts(statement: Node) -> list[Node]:
        parts = [statement.child_by_field_name("consequence"), statement.child_by_field_name("alternative")]
        inner = [n.named_children[-1] if n.type == "else_clause" else n for n in parts if n is not None]
        return [n for n in inner if n.type == "compound_statement"]

    @staticmethod
    def _leaves(part: Node) -> bool:
        last = [n for n in part.named_children if n.type != "comment"][-1:]
        return bool(last) and last[0].type == "return_statement"

    def _loads(self, node: Node) -> bool:
        """Whether a statement of the kernel comes to what expects bytes of a stage."""
        program, kernel = self.site.program, self.site.kernel
        loading = [f for f in program.functions if any(self._expects(c) for c in f.calls)]
        reaching = program.reaching([f for f in loading if f is not kernel])
        for call in kernel.calls:
            comes = self._expects(call) or any(id(f) in reaching for f in program.targets(call))
            if comes and inside(node, call.node):
                return True
        return False

    def _expects(self, call: Call) -> bool:
        fact = self.site.program.facts.of_call(call)
        if isinstance(fact, Mbarrier):
            return fact.op == "expect"
        found = self.loop.operation(call) if not isinstance(fact, Pipeline) else (fact.op, fact.of)
        return found is not None and found[0] == "acquire"

    # --- what moves

    def take(self, first: Node, commit: str) -> None:
        """Move the statements from `first` to the multiplying one."""
        site, kernel = self.site, self.site.kernel
        self._roles()
        source, start = kernel.file.source, kernel.span(self.loading).start
        line = source.rfind(b"\n", 0, start) + 1
        site.draft.move(RULE, kernel, line, lambda ported: self._written(ported, first, commit))

    def _roles(self) -> None:
        """The warp is a consumer of pipelines, whatever the others of its warpgroup are."""
        site, kernel = self.site, self.site.kernel
        for declaration in find(kernel.body, "declaration"):
            kind = declaration.child_by_field_name("type")
            if kind is None or "ipeline" not in kernel.text(kind):
                continue
            for declarator in declaration.children_by_field_name("declarator"):
                value = declarator.child_by_field_name("value")
                given = [n for n in value.named_children if n.type != "comment"] if value is not None else []
                if value is None or value.type not in ("argument_list", "initializer_list") or len(given) < 2:
                    continue
                params, words = kernel.text(given[1]), _ROLE.search(kernel.text(kernel.body))
                site.draft.before(RULE, kernel, declaration, cpp(
                    "role", params=params, issuer=site.issuing_warp,
                    role=words[0] if words is not None else cpp("role_of", params=params)))  # fmt: skip

    def _written(self, ported: Ported, first: Node, commit: str) -> tuple[str, list[Span]]:
        site, kernel = self.site, self.site.kernel
        moved = Span(self._with_comments(first), site.draft.end_of(kernel, self.loop.last))
        pad = site.port.indent(kernel, kernel.span(self.loading))
        lists = list(self._lists(first))
        lines, depth = [f"{pad}if ({self._condition()}) {{"], pad + site.unit
        ends: list[str] = []

        def write(text: str) -> None:
            lines.extend(depth + line for line in text.split("\n"))

        def copy(span: Span) -> None:
            lines.extend(indented(ported(span), site.port.indent(kernel, span), depth))

        for loop, statements in reversed(lists):
            for statement in statements:
                copy(Span(self._start(statement), kernel.span(statement).end))
                if statement.id == site.handle.declaration.id and site.asked.buffers == 1:
                    write(cpp("base", tensor=site.tensor, storage=self.storage, base=site.name("tmem_base")))
            if loop is not None:
                if not ends and site.rotates:
                    write(cpp("next_accumulator", kind=site.name("Accumulators"), next=self._next))
                head = kernel.file.source[kernel.span(loop).start : kernel.span(self._body(loop)).start]
                copy(Span(kernel.span(loop).start, kernel.span(loop).start + len(head.rstrip())))
                lines[-1] += " {"
                ends.append(f"{depth}}}")
                depth += site.unit
        if site.rotates:
            names = {"accumulators": site.name("accumulators"), "next": self._next, "base": site.name("tmem_base")}
            write(cpp("acquire", site.unit, c=site.c, pair=site.asked.pair, tensor=site.tensor, storage=self.storage,
                      columns=site.columns_text, turns=site.asked.buffers > 1, **names))  # fmt: skip
        else:
            write(cpp("after"))
        copy(moved)
        write(commit)
        gone = [self._whole(moved.start, moved.end)]
        kept = [s for _, statements in lists for s in statements if s.type == "declaration"]
        return "\n".join([*lines, *reversed(ends), f"{pad}}}\n"]), gone + self._unused(ported, kept, gone)

    @property
    def _next(self) -> str:
        return self.site.name("next_accumulator")

    def _body(self, loop: Node) -> Node:
        body = loop.child_by_field_name("body")
        if body is None or body.type != "compound_statement":
            raise self.site.left(loop, "loops around MMAs with braces")
        return body

    def _lists(self, first: Node) -> Iterator[tuple[Node | None, list[Node]]]:
        """Of each list of statements around those that move, from the innermost, those that declare or count what these
        name, and the loop of it that they stand in."""
        kernel, names = self.site.kernel, set(self._names(first, self.loop.last))
        levels = list(self._levels())
        loops = [node for _, node in levels[1:] if node.type in LOOPS]
        for loop in loops:
            head = Span(kernel.span(loop).start, kernel.span(self._body(loop)).start)
            names |= {kernel.text(n) for n in find(loop, "identifier") if head.contains(kernel.span(n))}
        for block, on_way in levels:
            if block.start_byte <= self.branch.start_byte and not inside(block, self.branch):
                continue
            end = first.start_byte if block.id == levels[0][0].id else on_way.start_byte
            found = []
            for statement in reversed(block.named_children):
                there = self.branch.start_byte < statement.start_byte < end and not inside(statement, self.branch)
                if there and self._declared(statement) & names:
                    names |= set(self._names(statement, statement))
                    found.append(statement)
            yield on_way if on_way in loops else None, found[::-1]

    def _condition(self) -> str:
        site = self.site
        return cpp("issues", c=site.c, warp=site.name("warp"), issuer=site.issuing_warp, pair=site.asked.pair)

    def _unused(self, ported: Ported, kept: list[Node], gone: list[Span]) -> list[Span]:
        """Declarations that only what moved asked for."""
        kernel, found = self.site.kernel, list[Span]()
        for statement in sorted(kept, key=lambda n: -n.start_byte):
            span = self._whole(self._with_comments(statement), self.site.draft.end_of(kernel, statement))
            # with what stands behind its last byte
            rest = ported(Span(span.end - 1, kernel.span(kernel.body).end), [*gone, *found])
            own = ported(kernel.span(statement))
            declarators = statement.children_by_field_name("declarator")
            names = [ported(kernel.span(n)) for d in declarators if (n := declared_name(d)) is not None]
            if not any(re.search(rf"\b{n}\b", rest) for n in names if re.search(rf"\b{n}\b", own)):
                found.append(span)
        return found

    def _whole(self, start: int, end: int) -> Span:
        """A statement with the line break in front of it."""
        source = self.site.kernel.file.source
        line = source.rfind(b"\n", 0, start)
        return Span(line, end) if not source[line + 1 : start].strip() else Span(start, end)

    def _start(self, statement: Node) -> int:
        """Where a statement begins; the grammar leaves a word out of some."""
        kernel, start = self.site.kernel, self.site.kernel.span(statement).start
        word = re.search(rb"\btypename\s+\Z", kernel.file.source[:start])
        return word.start() if word is not None else start

    def _with_comments(self, statement: Node) -> int:
        """Where a statement begins, with comments that stand on lines of their own right above it."""
        kernel, start = self.site.kernel, self._start(statement)
        above, row = statement.prev_named_sibling, statement.start_point[0]
        while above is not None and above.type == "comment" and above.end_point[0] + 1 == row:
            line = kernel.file.source.rfind(b"\n", 0, kernel.span(above).start) + 1
            if kernel.file.source[line : kernel.span(above).start].strip():
                break
            start, row, above = kernel.span(above).start, above.start_point[0], above.prev_named_sibling
        return start

    def _names(self, first: Node, last: Node) -> Iterator[str]:
        kernel = self.site.kernel
        for node in first.parent.named_children if first.parent is not None else ():
            if first.start_byte <= node.start_byte <= last.start_byte:
                yield from (kernel.text(name) for name in find(node, "identifier", "type_identifier"))

    def _declared(self, statement: Node) -> set[str]:
        """Variables that a statement declares, or gives another value."""
        kernel = self.site.kernel
        if statement.type in ("alias_declaration", "type_definition"):
            named = statement.child_by_field_name("name") or statement.child_by_field_name("declarator")
            return {kernel.text(named)} if named is not None else set()
        if statement.type == "declaration":
            found = (declared_name(d) for d in statement.children_by_field_name("declarator"))
            return {kernel.text(n) for n in found if n is not None}
        written = [n.child_by_field_name("left") for n in find(statement, "assignment_expression")]
        written += [n.child_by_field_name("argument") for n in find(statement, "update_expression")]
        return {kernel.text(n) for n in written if n is not None and n.type == "identifier"}
