# SPDX-License-Identifier: Apache-2.0
"""Stages are given back by the tensor core: what consumers told the producer after waiting for their MMAs, the commit
of these MMAs tells it. Nobody waits in the loop then, and the tensor core has the next stage's MMAs in time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.text import Span
from porter.model.functions import Call, Function, Style
from porter.model.pipeline.frames import Frame, Wording, tidy
from porter.model.pipeline.operations import Operation, Site, operations_of
from porter.model.pipeline.rings import split_index
from porter.model.tensor_core import Step
from porter.passes.context import PortContext, qualified
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.members import accessible
from porter.passes.native.sharing import ctas_of, is_ring
from porter.passes.native.sites import Changes, Place, frame_in, path_of, statement_of, written
from porter.ptx.arch import WARP
from porter.ptx.ast import Reg
from porter.ptx.wgmma import THREADS as WARPGROUP
from porter.steps import step as steps

RULE = "PTR190"
_NARROW = {
    "wait": (
        re.compile(r"(mbarrier\.(?:try|test)_wait(?:\.parity)?)(?:\.acquire\.cta|(?!\.parity|\.acquire|\.relaxed))\b"),
        ".acquire.cluster",
    ),
    "arrive": (
        re.compile(r"(mbarrier\.arrive)(?:\.release\.cta|(?!\.release|\.relaxed|\.expect_tx))\b"),
        ".release.cluster",
    ),
}
"""Instructions whose scope is that of their own CTA."""
_CAST = re.compile(r"static_cast<(?:uint32_t|unsigned(?: int)?)>\((.*).|\((?:uint32_t|unsigned(?: int)?)\)(.*)")
NAME = "release"


def take(context: PortContext, found: list[Pipelined]) -> Changes:
    """The edits of the step, for all kernels."""
    changes = Changes(context, RULE)
    for kernel in found:
        Release(kernel, changes).take()
    context.helpers.releases = True
    return changes


def close(kernel: Pipelined, changes: Changes, shared: bool = False) -> None:
    """What stands around the range: threads meet in front of it, and wait for the sums behind it."""
    state = kernel.context.names.warpgroup
    last = ("commit()", "wait(0)", *([f"drain({kernel.context.helpers.drained})"] if shared else []))
    changes.behind(kernel.end, [f"{state}.{call};" for call in last])
    if kernel.context.helpers.sync_in_wait:
        changes.before(kernel.begin, f"{qualified('sync_warpgroup')}();")


@dataclass(eq=False)
class Release:
    """The step for one kernel."""

    kernel: Pipelined
    changes: Changes

    def take(self) -> None:
        """Make its edits."""
        kernel = self.kernel
        roles = kernel.kernel.roles
        if not kernel.context.helpers.joined and not (roles.value == 1 and roles.exact):
            raise kernel.begin.left("one MMA for all consumers: each of them issues its own")
        rings = self._rings()
        if not kernel.waits_in_loop():
            raise kernel.begin.left("a loop that waits for its MMAs, and reads none of their results")
        for name in rings:
            self._ring(name)
        for path, _ in kernel.synchronizing(Step.COMMIT, Step.WAIT):
            place = written(path)
            self.changes.drop(Place(place.function, statement_of(place)))
        close(kernel, self.changes, kernel.context.helpers.shares)

    def _rings(self) -> list[str]:
        """The mbarriers by which consumers give stages back: others wait for them."""
        kernel = self.kernel
        found = []
        for name in kernel.barriers:
            mine = [o for o in kernel.operations(name, "arrive") if kernel.runs(o) & kernel.consumers]
            others = [o for o in kernel.operations(name, "wait") if not kernel.runs(o) & kernel.consumers]
            if mine and others and not kernel.operations(name, "copy", "arrive_tx", "expect_tx"):
                found.append(name)
        if not found:
            raise kernel.begin.left("an mbarrier by which stages go back to the producer")
        return found

    def _ring(self, name: str) -> None:
        kernel = self.kernel
        mine = [o for o in kernel.operations(name, "arrive") if kernel.runs(o) & kernel.consumers]
        ctas = 1
        if any(o.remote for o in mine):
            ctas = ctas_of(kernel, mine[0])
            is_ring(kernel, name)
            kernel.context.helpers.shares = True
            for operation in kernel.operations(name, "wait"):
                self._of_cluster(operation)
        for operation in mine:
            self._arrival(operation, ctas)
        recount(kernel, self.changes, name, ctas, "arrive")

    def _arrival(self, operation: Operation, ctas: int) -> None:
        kernel = self.kernel
        place = written(path_of(operation))
        statement = statement_of(place)
        if ctas > 1 and kernel.is_ahead(operation):
            self._called_empty(operation, Place(place.function, statement))
            return
        top, when = self._without_choice(operation, place, statement)
        if kernel.is_ahead(operation):
            # it has nothing to commit
            text, when = place.function.text(statement), [*when, qualified("elect_issuer()")]
        elif ctas > 1:
            state, all_of_them = kernel.context.names.warpgroup, (1 << ctas) - 1
            text = f"{state}.{NAME}({address_of(kernel, operation, place)}, {all_of_them:#x});"
        else:
            text = f"{qualified(NAME)}({address_of(kernel, operation, place)});"
        if when:
            pad = kernel.context.indent(top.function, top.span)
            text = f"if ({' && '.join(when)}) {{\n{pad}    {text}\n{pad}}}"
        self.changes.statement(top, text)

    def _of_cluster(self, operation: Operation) -> None:
        """A wait meets arrivals of other CTAs where both have the scope of the cluster (PTX ISA 9.7.13.15.13, 8.5)."""
        site = operation.sites[-1]
        function = site.frame.function
        if function.style is Style.MACRO or all(s.node.id != site.node.id for s in function.asm):
            return
        span, text = function.span(site.node), function.text(site.node)
        narrow, wide = _NARROW[operation.kind]
        for found in narrow.finditer(text):
            start = span.start + len(text[: found.end(1)].encode())
            end = span.start + len(text[: found.end()].encode())
            self.changes.replace(function, Span(start, end), wide)

    def _called_empty(self, operation: Operation, statement: Place) -> None:
        """Stages that consumers call empty, in all CTAs, before they have multiplied: one warp of them does."""
        kernel = self.kernel
        name = split_index(operation.barrier)[0]
        warp = kernel.kernel.roles.first * WARPGROUP // WARP
        self._of_cluster(operation)
        helpers = kernel.context.helpers
        helpers.called_empty, helpers.drained = True, f"&{name.replace('[]', '[0]')}, {is_ring(kernel, name)}"
        index = qualified("thread_index()") if helpers.joined else "threadIdx.x"
        at = statement.span.start
        self.changes.replace(statement.function, Span(at, at), f"if ({index} / {WARP} == {warp}) ")

    def _without_choice(self, operation: Operation, place: Place, node: Node) -> tuple[Place, list[str]]:
        """The statement with the conditions around it that choose one of the consumers' threads, and what else these
        ask for: all threads come to the release, which chooses the one that issued."""
        kernel, function = self.kernel, place.function
        when: list[str] = []
        while not kernel.all_come_to(operation, Place(function, node)):
            above = node.parent
            if above is not None and above.type == "compound_statement" and len(above.named_children) == 1:
                above = above.parent
            if above is None or above.type != "if_statement" or above.child_by_field_name("alternative") is not None:
                raise place.left("that all consumers come to where stages are given back")
            condition = above.child_by_field_name("condition")
            for part in _conjuncts(function, condition) if condition is not None else ():
                answers = kernel.who.truth(frame_in(operation, function), part)
                if answers is not None and all(answers[t] is not None for t in kernel.consumers):
                    continue
                when.append(function.text(part))
            node = above
        return Place(function, node), when


def _conjuncts(function: Function, node: Node) -> Iterator[Node]:
    """The conditions that all have to hold."""
    while node.type in ("parenthesized_expression", "condition_clause") and len(node.named_children) == 1:
        node = node.named_children[0]
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    both = node.type == "binary_expression" and function.text(node.children[1]) in ("&&", "and")
    if both and left is not None and right is not None:
        yield from _conjuncts(function, left)
        yield from _conjuncts(function, right)
    else:
        yield node


def recount(kernel: Pipelined, changes: Changes, name: str, own: int, *arrivals: str) -> None:
    """Count `own` arrivals for those of consumers on the mbarriers of a name, beside those of others. `arrivals`: kinds
    of operations.

    Raises:
        Left: what others count, or where the count is written, is not known.
    """
    theirs = (o for o in kernel.operations(name, *arrivals) if not kernel.runs(o) & kernel.consumers)
    others = sum(len(kernel.runs(o)) * arrivals_of(kernel, o) for o in theirs)
    for operation in kernel.operations(name, "init"):
        place = count_of(kernel, operation)
        changes.replace(place.function, place.span, str(own + others))


def arrivals_of(kernel: Pipelined, operation: Operation) -> int:
    """How many arrivals a thread's arrival is.

    Raises:
        Left: that is no number.
    """
    value = kernel.constants.evaluate(operation.count or "1")
    if value is None:
        raise path_of(operation)[0].left(f"what `{operation.count}` comes to")
    return value


def count_of(kernel: Pipelined, operation: Operation) -> Place:
    """Where the count of an mbarrier's init is written; of a sum the part that is not 0.

    Raises:
        Left: it is no argument, or one of a template.
    """
    site = operation.sites[-1]
    left = path_of(operation)[0].left("where the count of the mbarrier is written")
    node = _count_node(site)
    parts = list(_addends(kernel, site.frame, node)) if node is not None else []
    if len(parts) > 1:
        known = [(f, n, kernel.program.constants_in(f.function).evaluate(f.function.text(n))) for f, n in parts]
        parts = [(f, n) for f, n, value in known if value != 0]
    if len(parts) != 1:
        raise left
    ((frame, node),) = parts
    if (frame.outer is not None and node.type == "identifier") or frame.function.style is Style.MACRO:
        raise left
    return Place(frame.function, node)


def _addends(kernel: Pipelined, frame: Frame, node: Node) -> Iterator[tuple[Frame, Node]]:
    """What a sum adds, each where it is written: parameters are what calls hand for them."""
    frame, node = Wording(kernel.program).handed(frame, node)
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    inner = [c for c in node.named_children if c.type != "comment"]
    if node.type == "parenthesized_expression" and len(inner) == 1:
        yield from _addends(kernel, frame, inner[0])
    elif frame.outer is not None and left is not None and right is not None and _sign(frame, node) == "+":
        yield from _addends(kernel, frame, left)
        yield from _addends(kernel, frame, right)
    else:
        yield frame, node


def _sign(frame: Frame, node: Node) -> str:
    return frame.function.text(node.children[1]) if node.type == "binary_expression" else ""


def _count_node(site: Site) -> Node | None:
    if site.asm is not None:
        found = site.only("mbarrier", "init")
        return site.expression(found.get("count")) if found is not None else None
    call = _call_at(site)
    if call is None or not call.args:
        return None
    # the object of a method is no argument
    of_object = (call.node.child_by_field_name("function") or call.node).type == "field_expression"
    return call.args[-1] if of_object or len(call.args) > 1 else None


def _call_at(site: Site) -> Call | None:
    return next((c for c in site.frame.function.calls if c.node.id == site.node.id), None)


def address_of(kernel: Pipelined, operation: Operation, place: Place) -> str:
    """An operation's mbarrier, in the words of the function that `place` is in: its address, or an object of a
    library that the operation is a call for."""
    if place.function is not kernel.kernel.function:
        inner = operations_of(kernel.program, place.function).operations
        there = [o for o in inner if o.kind == operation.kind and o.sites[0].node.id == place.node.id]
        if not there:
            raise place.left("the address of the mbarrier, as its function names it")
        operation = there[0]
    site = operation.sites[-1]
    if _call_at(site) is not None:
        return operation.barrier
    found = site.only("mbarrier", "arrive")
    operand = found.get("mbar") if found is not None else None
    base = getattr(operand, "base", None)
    if isinstance(base, Reg):
        # the same place in another CTA
        mapped = site.only("mapa")
        base = mapped.get("a") if mapped is not None else None
    node = site.expression(base)
    if node is not None and not getattr(operand, "offset", 0):
        return accessible(site.frame, _uncast(Wording(kernel.program).words(site.frame, node)))
    raise place.left("the address of the mbarrier, as an operand")


def _uncast(text: str) -> str:
    """Without the cast of a pointer to the integer that an instruction takes."""
    text = tidy(text)
    cast = _CAST.fullmatch(text)
    return _uncast(cast[1] or cast[2]) if cast is not None else text


STEP = steps.Step(
    NAME, RULE, lambda taking: take(taking.context, taking.found).make(), changes=steps.Declared(barriers=True),
    follows=("wide",),
)  # fmt: skip
