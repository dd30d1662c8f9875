# SPDX-License-Identifier: Apache-2.0
"""Functions of the sources that open a batch, multiply what they are handed, and close the batch, and may wait for it.
Their calls are MMAs of who calls them; of the function the MMAs are left, and what says whether they add."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.empty_calls import is_register_fence_call
from porter.model.facts import Fence, Wait
from porter.model.functions import Call, Function, Style, outermost
from porter.model.scopes import resolve
from porter.model.tiled.accumulators import Multiply
from porter.model.tiled.activity import is_constant_branch
from porter.passes.idiom.site import Site, inside
from porter.passes.idiom.text import cpp
from porter.passes.native.sites import Left

RULE = "PTR764"
_COMMENT = re.compile(r"/\*.*?\*/|\s", re.DOTALL)
_ZERO = re.compile(r"::\s*Zero\Z")


@dataclass(eq=False)
class GemmFunction:
    """Parameters that are its tiled MMA, its operands and its sum; the parameter of its template that says whether the
    first step clears, and that which says how many batches stay pending; empty where nothing does."""

    function: Function
    mma: int
    a: int
    b: int
    d: int
    zero: str
    pending: str

    def clears(self, call: Call) -> bool:
        """Whether the first MMA of a call is known to clear."""
        return bool(self.zero) and self._given(call, self.zero) in ("true", "1")

    def waits(self, call: Call) -> bool:
        """Whether a call may wait for MMAs."""
        return bool(self.pending) and not self._given(call, self.pending).startswith("-")

    def _given(self, call: Call, name: str) -> str:
        """What a parameter of the template is in a call."""
        params = self.function.template_params
        if name not in params:
            return name
        index = params.index(name)
        if index < len(call.template_args):
            return _COMMENT.sub("", call.template_args[index])
        return _COMMENT.sub("", _default(self.function, name))


def _default(function: Function, name: str) -> str:
    template = function.node.parent
    for param in find(template, "optional_parameter_declaration") if template is not None else ():
        declared = param.child_by_field_name("declarator")
        value = param.child_by_field_name("default_value")
        if declared is not None and value is not None and function.text(declared) == name:
            return function.text(value)
    return ""


def take_gemm_functions(site: Site) -> dict[int, GemmFunction]:
    """Put calls of such functions in place of their MMAs; gives the function of each, by the id of the call's node."""
    found: dict[int, GemmFunction] = {}
    functions = {id(f): f for m in site.multiplies if (f := outermost(m.call.caller)) is not site.kernel}
    for function in functions.values():
        gemm = _read(site, function)
        if gemm is None:
            continue
        site.multiplies = [m for m in site.multiplies if m.call.caller is not function]
        for call in site.program.callers(function):
            if call.caller is not function:
                found[call.node.id] = gemm
                site.multiplies.append(_multiply(gemm, call))
        _empty(site, function)
    return found


def _multiply(gemm: GemmFunction, call: Call) -> Multiply:
    mma, a, b, d = (call.args[i] for i in (gemm.mma, gemm.a, gemm.b, gemm.d))
    return Multiply(call, mma, a, b, d)


def _read(site: Site, function: Function) -> GemmFunction | None:
    """What a function is handed; None if it does something else with registers, or its MMAs differ in it."""
    own = [m for m in site.multiplies if m.call.caller is function]
    if len(own) != len([m for m in site.multiplies if outermost(m.call.caller) is function]):
        return None
    first = [_handed(site, function, node) for node in (own[0].mma, own[0].a, own[0].b, own[0].d)]
    syncs = [s for s in site.tiled.synchronizations if s.call.caller is function]
    if None in first or function.style not in (Style.DEVICE, Style.METHOD) or not syncs:
        return None
    known = [s.call.node for s in syncs] + [m.call.node for m in own]
    known += [c.node for c in function.calls if is_register_fence_call(site.program, c)]
    known += [c.node for c in function.calls if function in site.program.targets(c)]
    params = {function.params[i].name for i in first if i is not None}
    if any(not _only_describes(site, function, node, known) for name in params for node in function.named(name)):
        return None
    operands = {frozenset(_handed(site, function, n) or -1 for n in (m.a, m.b)) for m in own}
    if len(operands) > 1 or {_handed(site, function, m.d) for m in own} != {first[3]}:
        return None
    pending = next((s.fact.pending for s in syncs if isinstance(s.fact, Wait)), "")
    if not any(isinstance(s.fact, Fence) for s in syncs):
        return None
    mma, a, b, d = (index for index in first if index is not None)
    return GemmFunction(function, mma, a, b, d, _clearing(site, function), pending)


def _only_describes(site: Site, function: Function, name: Node, known: list[Node]) -> bool:
    """Whether a name of a tensor is that of MMAs, or asks for its layout; or makes a view of it for the function."""
    if any(inside(node, name) for node in known) or site.tiled.only_asked(function, name):
        return True
    current = name.parent
    while current is not None and current.id != function.body.id:
        if current.type in ("decltype", "static_assert_declaration", "field_expression"):
            return current.type != "field_expression" or current.child_by_field_name("argument") == name
        if current.type == "init_declarator":
            value = current.child_by_field_name("value")
            return value is not None and site.tiled.tensors.root(function, value) is not None
        current = current.parent
    return False


def _handed(site: Site, function: Function, node: Node) -> int | None:
    """The parameter that an expression is, or is a part of."""
    variable = site.tiled.viewed(function, node)
    if variable is None and node.type == "identifier":
        variable = resolve(function, node, function.text(node))
    return variable.param.index if variable is not None and variable.param is not None else None


def _clearing(site: Site, function: Function) -> str:
    """The parameter of a template under which the first MMA clears; `true` where it always does."""
    are = site.program.vocabulary.spellings.are
    for node in find(function.body, "assignment_expression"):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        named = left.child_by_field_name("field") if left is not None else None
        if named is None or right is None or not are("scale_of_d", function.text(named)):
            continue
        if not _ZERO.search(function.text(right)):
            return ""
        around = node.parent
        while around is not None and around.type != "if_statement" and around.id != function.body.id:
            around = around.parent
        if around is None or around.id == function.body.id:
            return "true"
        condition = around.child_by_field_name("condition")
        text = function.text(condition).strip("() ") if condition is not None else ""
        return text if text in function.template_params and is_constant_branch(around) else ""
    return ""


def _empty(site: Site, function: Function) -> None:
    """Take away what opens, closes and waits for the batch, and what pins registers.

    Raises:
        Left: that is no statement of its own.
    """
    gone = [s.call for s in site.tiled.synchronizations if s.call.caller is function]
    gone += [c for c in function.calls if is_register_fence_call(site.program, c)]
    statements = set[int]()
    nodes = []
    for call in gone:
        statement = call.node.parent
        around = statement.parent if statement is not None else None
        is_own = around is not None and around.type == "compound_statement"
        if statement is None or statement.type != "expression_statement" or not is_own:
            raise Left(function, function.span(call.node), "what opens, closes or waits for a batch as a statement")
        statements.add(statement.id)
        nodes.append(statement)
    for node in {n.id: n for n in (_whole(n, statements) for n in nodes)}.values():
        site.draft.remove(RULE, function, node)
    text, start = function.text(function.body), function.span(function.body).start
    for match in site.program.vocabulary.spellings.matches("scale_of_hopper", text):
        span = replace(function.span(function.body), start=start + match.start(), end=start + match.end())
        site.draft.replace(RULE, function, span, cpp("namespace", c=site.c))


def _whole(node: Node, gone: set[int]) -> Node:
    """A statement that goes, or the condition around it, known to the compiler, of which nothing would be left."""
    while (block := node.parent) is not None and block.type == "compound_statement":
        branch = block.parent
        branch = branch.parent if branch is not None and branch.type == "else_clause" else branch
        if branch is None or not is_constant_branch(branch) or not _is_empty(branch, gone):
            break
        gone.add(branch.id)
        node = branch
    return node


def _is_empty(branch: Node, gone: set[int]) -> bool:
    """Whether nothing is left of both arms of a condition."""
    arms = [branch.child_by_field_name("consequence"), branch.child_by_field_name("alternative")]
    for arm in arms:
        if arm is None:
            continue
        block = arm if arm.type != "else_clause" else next((c for c in arm.named_children if c.type != "comment"), arm)
        inner = [n for n in block.named_children if n.type != "comment"]
        if block.type != "compound_statement" or not all(n.id in gone for n in inner):
            return False
    return True
