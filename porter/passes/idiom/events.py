# SPDX-License-Identifier: Apache-2.0
"""What statements of a function that multiplies do: with MMAs, with stages, with sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.empty_calls import is_register_fence_call
from porter.model.facts import Commit, Doubt, Fence, Layout, Mbarrier, Pipeline, Zero
from porter.model.functions import Call, Function
from porter.model.scopes import resolve
from porter.passes.idiom.site import Site

_HARMLESS = ("computing_function", "computing_method", "calling_function")
_LEAVES = ("return_statement", "goto_statement", "break_statement", "continue_statement")
_FULL = {"fetch", "look", "await"}
_GOES = {"pin", "fence", "commit"}
QUIET = {"step", "write"}
"""What changes nothing but variables of the thread."""
SUMS = {"mma", "scale", "pin", *QUIET}


@dataclass(eq=False)
class Events:
    """Asks about the statements of `function`, which is a kernel or what it calls."""

    site: Site
    function: Function = field(init=False)
    alone: frozenset[int] = frozenset()
    """Calls that are batches of their own, by the ids of their nodes."""

    def __post_init__(self) -> None:
        site = self.site
        self._multiplies = {(id(m.call.caller.file), m.call.node.id): m for m in site.multiplies}
        self._batches = {(id(s.call.caller.file), s.call.node.id): s.fact for s in site.tiled.synchronizations}

    def events(self, node: Node) -> Iterator[str]:
        """What a part of the function does besides computing."""
        for inner in walk(node):
            if inner.type == "call_expression":
                yield from self._call(inner)
            elif inner.type == "assignment_expression":
                yield self._assigned(inner)
            elif inner.type == "update_expression":
                yield "step"
            elif inner.type in _LEAVES:
                yield "leave"
            elif inner.type in ("gnu_asm_expression", "new_expression", "delete_expression"):
                yield "other"

    def _assigned(self, node: Node) -> str:
        left = node.child_by_field_name("left")
        if left is None:
            return "other"
        named = left.child_by_field_name("field") if left.type == "field_expression" else None
        if named is not None and self.site.program.vocabulary.spellings.are("scale_of_d", self.function.text(named)):
            return "scale"
        return (
            "write" if left.type == "identifier" and resolve(self.function, left, self.function.text(left)) else "other"
        )

    def _call(self, node: Node) -> Iterator[str]:
        key = (id(self.function.file), node.id)
        if key in self._multiplies:
            yield "mma"
            return
        if key in self._batches:
            fact = self._batches[key]
            yield (
                "fence"
                if isinstance(fact, Fence)
                else "commit"
                if isinstance(fact, Commit)
                else ("wait" if fact.pending == "0" else "lag")
            )
            return
        call = self.site.tiled.tensors.call(self.function, node)
        if call is None:
            yield from () if self._is_element(node) else ("other",)
            return
        yield from self._known(call)

    def _known(self, call: Call) -> Iterator[str]:
        program = self.site.program
        fact = program.facts.of_call(call)
        if is_register_fence_call(program, call):
            yield "pin"
        elif isinstance(fact, Zero):
            handle = self.site.tiled.handle_of(self.function, call.args[0]) if call.args else None
            yield "zero" if handle is not None else "other"
        elif (operation := self.operation(call)) is not None:
            op = operation[0]
            yield {"wait": "await"}.get(op, op)
        elif isinstance(fact, Layout) or self._is_element(call.node) or self._is_harmless(call):
            return
        else:
            yield "other"

    def operation(self, call: Call) -> tuple[str, str] | None:
        """What a call does with an mbarrier or with the stages of a pipeline, and with which; None if nothing."""
        program = self.site.program
        fact = program.facts.of_call(call)
        if isinstance(fact, Mbarrier):
            return fact.op, fact.bar
        if isinstance(fact, Pipeline):
            return fact.op, fact.of
        if isinstance(fact, Doubt) and fact.kind is Pipeline:
            # the class of a template's parameter
            callee = call.node.child_by_field_name("function")
            held = callee.child_by_field_name("argument") if callee is not None else None
            for caller, node in self.site.tiled.handed_in(call.caller, held) if held is not None else ():
                meant = program.facts.of_object(call, caller, node)
                if held is not None and isinstance(meant, Pipeline):
                    return meant.op, call.caller.text(held)
        return None

    def _is_element(self, node: Node) -> bool:
        """Whether a variable is called: elements or a part of a tensor."""
        callee = node.child_by_field_name("function")
        if callee is not None and callee.type == "template_function":
            # the grammar reads `k < size<2>(x)` as a call
            callee = callee.child_by_field_name("name")
        if callee is None or callee.type != "identifier":
            return callee is not None and callee.type == "primitive_type"
        variable = resolve(self.function, callee, self.function.text(callee))
        value = variable.declarator.child_by_field_name("value") if variable and variable.declarator else None
        return variable is not None and (value is None or value.type != "lambda_expression")

    def _is_harmless(self, call: Call) -> bool:
        spellings = self.site.program.vocabulary.spellings
        return any(spellings.are(kind, call.name) for kind in _HARMLESS)

    def kind(self, node: Node) -> str:
        """What a statement of the list is for."""
        found = set(self.events(node))
        if "mma" in found:
            return "mma" if found <= SUMS else "other"
        if found <= QUIET:
            return "pure"
        waits = found & {"lag", "wait"}
        if node.type == "if_statement" and "lag" in waits and found <= {"lag", "release", "arrive", *QUIET}:
            return "lag"
        for kind, names in (("wait", {"wait"}), ("full", _FULL), ("release", {"release", "arrive"}), ("zero", {"zero"}),
                            ("scale", {"scale"})):  # fmt: skip
            if found <= {*names, *QUIET} or (kind == "full" and found <= names):
                guarded = node.type == "if_statement" and kind == "release"
                return kind if node.type in ("expression_statement", "declaration") or guarded else "other"
        if found <= _GOES and node.type == "expression_statement":
            return "goes"
        return "lag!" if "lag" in found else "other"

    def items(self, block: Node) -> list[tuple[Node, str]]:
        return [(n, self.kind(n)) for n in block.named_children if n.type != "comment"]

    def calls_in(self, node: Node) -> Iterator[Call]:
        for inner in find(node, "call_expression"):
            call = self.site.tiled.tensors.call(self.function, inner)
            if call is not None:
                yield call

    def multiplying(self, node: Node) -> Node:
        """The largest statement around a multiply that does nothing but multiply."""
        if node.id in self.alone and node.parent is not None:
            return node.parent
        best, current = None, node
        while current.parent is not None and current.id != self.function.body.id:
            if not set(self.events(current)) <= SUMS:
                break
            if current.parent.type == "compound_statement" and current.is_named:
                best = current
            current = current.parent
        if best is None:
            raise self.site.left(node, "braces around the statement with MMAs", self.function)
        return best
