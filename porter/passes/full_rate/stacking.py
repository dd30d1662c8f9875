# SPDX-License-Identifier: Apache-2.0
"""What the two m64 tiles of one warpgroup have to have in common so that one M=128 MMA does the work of both.

A loop over the tiles does nothing but multiply: the MMAs of its turns differ in A and in the accumulator, and nothing
happens in between. What is not known to be so is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.asm import AsmStatement
from porter.lang.cuda import find, walk
from porter.model.accumulators import Accumulator
from porter.model.functions import Call, Function, Style, declared_name
from porter.model.program import Program
from porter.model.pure import is_pure
from porter.model.registers import CASTS
from porter.model.scopes import resolve
from porter.model.tensor_core import MmaStep
from porter.passes.full_rate.joining import Missing
from porter.passes.full_rate.tile_strides import TileStrides

TILES = 2
_WITHOUT_EFFECT = ("comment", "static_assert_declaration", "using_declaration", "alias_declaration")
_CHANGES = ("assignment_expression", "update_expression", "lambda_expression", "new_expression", "delete_expression")
_SYNCHRONIZES = re.compile(r"__(?:sync|shfl|nanosleep|threadfence|match|ballot|any|all|reduce|trap|brkpt)")


@dataclass(frozen=True, eq=False)
class TileLoop:
    """A loop that runs over both tiles: `name` is the tile's index."""

    function: Function
    node: Node
    name: str

    @property
    def body(self) -> Node:
        body = self.node.child_by_field_name("body")
        assert body is not None
        return body


def tile_loop(program: Program, accumulator: Accumulator, function: Function, loop: Node) -> TileLoop | None:
    """A `for` from 0 to the number of the tiles, in steps of one, as such."""
    parts = [loop.child_by_field_name(n) for n in ("initializer", "condition", "update", "body")]
    if loop.type != "for_statement" or any(p is None for p in parts):
        return None
    initial, condition, update, body = (p for p in parts if p is not None)
    declarator = initial.child_by_field_name("declarator") if initial.type == "declaration" else None
    named = declared_name(declarator) if declarator is not None else None
    value = declarator.child_by_field_name("value") if declarator is not None else None
    if named is None or value is None or program.value(function, function.text(value)) != 0:
        return None
    name, written = function.text(named), "".join(function.text(update).split())
    left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
    if condition.type != "binary_expression" or left is None or right is None or function.text(left) != name:
        return None
    extent, same = accumulator.home.tile_extents[0], "".join(function.text(right).split())
    counted = program.value(function, function.text(right)) == TILES or (
        function is accumulator.function and same == "".join(extent.split())
    )
    sign = function.text(condition)[: right.start_byte - condition.start_byte].replace(name, "", 1).strip()
    changed = any(name in _words(function.text(n)) for n in find(body, "assignment_expression", "update_expression")
                  if _target(function, n) == name)  # fmt: skip
    taken = any(function.text(n).lstrip("& ") == name for n in find(body, "pointer_expression"))
    if not counted or sign != "<" or written not in (f"++{name}", f"{name}++", f"{name}+=1") or changed or taken:
        return None
    return TileLoop(function, loop, name)


def _target(function: Function, node: Node) -> str:
    target = node.child_by_field_name("left") or node.child_by_field_name("argument")
    return function.text(target) if target is not None else ""


def _words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


@dataclass(eq=False)
class Stack:
    """The MMAs onto one accumulator of two tiles."""

    program: Program
    accumulator: Accumulator
    _seen: set[tuple[int, frozenset[str]]] = field(default_factory=set)
    multiplied: list[TileLoop] = field(default_factory=list)
    """The loops whose turns one MMA does together."""
    same_a: bool = False
    """Whether the tiles have the same rows, other columns, say."""

    @cached_property
    def _uses(self) -> set[int]:
        return self.program.uses_tensor_core()

    @cached_property
    def _mmas(self) -> dict[int, tuple[AsmStatement, list[MmaStep]]]:
        """By id of the node, asm that is nothing but MMAs."""
        return {
            s.statement.node.id: (s.statement, steps)
            for s in self.program.statements
            if s.answer is None and len(steps := [t for t in s.steps if isinstance(t, MmaStep)]) == len(s.steps)
        }

    def missing(self) -> Iterator[Missing]:
        """The facts that are not known of the MMAs."""
        for function, node, prefix in self._selections():
            if len(prefix) != 1:
                yield self._at(function, node, "a tile of the accumulator is not chosen by one index")
                continue
            yield from self._chosen(function, node, prefix[0], 0)
        for loop in self.multiplied:
            yield from self._statements(loop.function, loop.body, {loop.name})

    def _selections(self) -> Iterator[tuple[Function, Node, tuple[str, ...]]]:
        """Where a tile is chosen: an MMA, or a call that is handed one."""
        own = {id(t): s for s in self.program.statements for t in s.steps}
        for function, step in self.accumulator.steps:
            if step.d.prefix:
                yield function, own[id(step)].statement.node, step.d.prefix
        for argument in self.accumulator.arguments:
            if argument.registers.prefix or argument.param.depth == 0:
                yield argument.call.caller, argument.call.node, argument.registers.prefix

    def _chosen(self, function: Function, node: Node, index: str, depth: int) -> Iterator[Missing]:
        """Follow the index of a tile to the loop that counts it."""
        variable = resolve(function, node, index) if re.fullmatch(r"[A-Za-z_]\w*", index) else None
        what = f"which tile `{index}` means is not known"
        if variable is None or depth > 8:
            yield self._at(function, node, what)
        elif variable.param is not None and function.style is not Style.KERNEL and variable.function is function:
            at = variable.param.index
            calls = self.program.callers(function)
            if not calls or any(at >= len(c.args) or c.args[at].type != "identifier" for c in calls):
                yield self._at(function, node, what)
            else:
                for call in calls:
                    yield from self._chosen(call.caller, call.node, call.caller.text(call.args[at]), depth + 1)
        else:
            above = variable.declaration.parent if variable.declaration is not None else None
            found = tile_loop(self.program, self.accumulator, function, above) if above is not None else None
            if found is None or variable.function is not function:
                yield self._at(function, node, what)
            elif not any(o.node.id == found.node.id for o in self.multiplied):
                self.multiplied.append(found)

    # --- nothing but MMAs in a turn

    def _statements(self, function: Function, block: Node, own: set[str]) -> Iterator[Missing]:
        """What statements do beside MMAs; `own`: names of what differs between the tiles."""
        nodes = block.named_children if block.type == "compound_statement" else [block]
        for node in nodes:
            if node.type in _WITHOUT_EFFECT or (node.type == "preproc_call" and "pragma" in function.text(node)):
                continue
            if node.type == "compound_statement":
                yield from self._statements(function, node, own)
            elif node.type == "declaration":
                yield from self._declared(function, node, own)
            elif node.type == "for_statement" and self._same_loop(function, node, own):
                body = node.child_by_field_name("body")
                if body is not None:
                    yield from self._statements(function, body, own)
            elif node.type == "expression_statement" and len(node.named_children) == 1:
                yield from self._multiplies(function, node.named_children[0], own)
            else:
                yield self._at(function, node, _BETWEEN)

    def _declared(self, function: Function, node: Node, own: set[str]) -> Iterator[Missing]:
        words = {function.text(c) for c in node.children}
        for declarator in node.children_by_field_name("declarator"):
            named, value = declarator.child_by_field_name("declarator"), declarator.child_by_field_name("value")
            plain = named is not None and named.type == "identifier" and value is not None
            if not plain or words & {"static", "volatile"} or not self._computes(function, value):
                yield self._at(function, node, _BETWEEN)
            elif named is not None and value is not None and self._differs(function, value, own):
                yield from self._apart(function, value, own)
                own.add(function.text(named))

    def _same_loop(self, function: Function, node: Node, own: set[str]) -> bool:
        """Whether a loop has the same turns for both tiles."""
        initial, *rest = [node.child_by_field_name(n) for n in ("initializer", "condition", "update")]
        if initial is None or initial.type != "declaration" or any(p is None for p in rest):
            return False
        name = next((declared_name(d) for d in initial.children_by_field_name("declarator")), None)
        calls = any(p is not None and next(find(p, "call_expression"), None) is not None for p in (initial, *rest))
        changed = [_target(function, n) for p in rest if p is not None for n in find(p, *_CHANGES[:2])]
        alone = name is not None and set(changed) <= {function.text(name)}
        return alone and not calls and not any(self._differs(function, p, own) for p in (initial, *rest))

    def _multiplies(self, function: Function, node: Node, own: set[str]) -> Iterator[Missing]:
        """A statement that is an MMA, or a call that comes to MMAs and does nothing else."""
        if node.id in self._mmas:
            yield from self._operands(function, *self._mmas[node.id], own)
            return
        calls = [c for c in self.program.calls_by_node.get(node.id, ()) if c.caller.file is function.file]
        targets = [(c, t) for c in calls for t in self.program.targets(c)]
        if not targets or any(id(t) not in self._uses or t.style is Style.MACRO for _, t in targets):
            yield self._at(function, node, _BETWEEN)
            return
        for call, target in targets:
            if not all(self._computes(function, a) for a in call.args) or len(call.args) > len(target.params):
                yield self._at(function, node, _BETWEEN)
                continue
            for argument in call.args:
                yield from self._apart(function, argument, own)
            handed = {p.name for p, a in zip(target.params, call.args, strict=False) if self._differs(function, a, own)}
            if target.parent is not None:
                # what a lambda sees of the function around it
                handed |= own - {p.name for p in target.params}
            key = (id(target), frozenset(handed))
            if key not in self._seen:
                self._seen.add(key)
                yield from self._statements(target, target.body, handed)

    def _operands(
        self, function: Function, statement: AsmStatement, steps: Iterable[MmaStep], own: set[str]
    ) -> Iterator[Missing]:
        nodes = {" ".join(o.expr.split()): o.expr_node for o in statement.operands}
        for node in nodes.values():
            if node is not None and not self._computes(function, node):
                yield Missing(function, statement.span, _BETWEEN)
        for step in steps:
            if step.op.n % 16:
                yield Missing(function, statement.span, f"N is {step.op.n}, and an M=128 MMA takes multiples of 16")
            if step.a_registers:
                yield Missing(function, statement.span, "A comes from registers, for each tile of a warpgroup")
            elif not _words(step.a) & own:
                self.same_a = True
                yield Missing(function, statement.span, f"A `{step.a}` is the same for both tiles")
            else:
                a = nodes.get(" ".join(step.a.split()))
                yield from self._apart(function, a, own) if a is not None else ()
            for name, text in (("the B descriptor", step.b), ("scale-d", step.scale_d)):
                if _words(text) & own:
                    yield Missing(function, statement.span, f"{name} `{text}` may be another one for the other tile")

    def _apart(self, function: Function, node: Node, own: set[str]) -> Iterator[Missing]:
        for owner, part in self._strides.unsure(function, node, own):
            text = " ".join(owner.text(part).split())
            yield Missing(owner, owner.span(part), f"how far apart the A tiles are, `{text}`, only a launch tells")

    @cached_property
    def _strides(self) -> TileStrides:
        return TileStrides(self.program)

    def _differs(self, function: Function, node: Node | None, own: set[str]) -> bool:
        return node is not None and bool(_words(function.text(node)) & own)

    def _computes(self, function: Function, node: Node | None) -> bool:
        """Whether an expression gives a value and does nothing else."""
        if node is None or any(n.type in _CHANGES or n.type == "gnu_asm_expression" for n in walk(node)):
            return False
        for inner in find(node, "call_expression"):
            calls = [c for c in self.program.calls_by_node.get(inner.id, ()) if c.caller.file is function.file]
            targets = [t for c in calls for t in self.program.targets(c)]
            if targets and not all(self._is_value(t, 0) for t in targets):
                return False
            if not targets and not _known(function, inner, calls):
                return False
        macros = self.program.macros.by_name
        return not any(
            function.text(n) in macros and self.program.value(function, function.text(n)) is None
            for n in find(node, "identifier")
        )

    def _is_value(self, function: Function, depth: int) -> bool:
        """Whether a function computes from what it is handed, and changes variables of its own only."""
        if depth > 8 or function.style in (Style.MACRO, Style.METHOD) or id(function) in self._uses:
            return False
        if any(s.volatile or "memory" in s.clobbers for s in function.asm) or "static " in function.text(function.body):
            return False
        for node in find(function.body, *_CHANGES):
            name = _target(function, node)
            variable = resolve(function, node, name) if re.fullmatch(r"[A-Za-z_]\w*", name) else None
            if variable is None or variable.is_reference or variable.function is not function:
                return False
            if variable.param is not None and "&" in function.text(variable.param.node or function.body):
                return False
        for call in function.calls:
            targets = self.program.targets(call)
            if not (
                all(self._is_value(t, depth + 1) for t in targets) if targets else _known(function, call.node, [call])
            ):
                return False
        return True

    def _at(self, function: Function, node: Node, what: str) -> Missing:
        return Missing(function, function.span(node), what)


_BETWEEN = "something else than an MMA stands between those of two tiles"


def _known(function: Function, node: Node, calls: Iterable[Call]) -> bool:
    """Whether a function that the sources do not have gives a value and does nothing else."""
    callee = node.child_by_field_name("function")
    name = function.text(callee) if callee is not None else ""
    if name.split("<")[0].strip() in CASTS or (callee is not None and callee.type == "primitive_type"):
        return True
    last = name.rsplit("::", 1)[-1]
    return re.fullmatch(r"u?int\d+_t|size_t", last) is not None or (
        bool(list(calls)) and is_pure(last) and _SYNCHRONIZES.match(last) is None
    )
