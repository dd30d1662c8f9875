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
from porter.model.pipeline.operations import Operation, operations_of
from porter.model.pipeline.rings import split_index
from porter.model.tensor_core import Step
from porter.passes.context import PortContext, qualified
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.members import accessible
from porter.passes.native.sharing import ctas_of, is_ring, once
from porter.passes.native.sites import (
    Changes,
    Left,
    Place,
    frame_in,
    path_of,
    statement_of,
    written,
)
from porter.ptx.arch import WARP
from porter.ptx.ast import Placeholder, Reg
from porter.ptx.table import find as decode
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
NAME = "release"


def take(context: PortContext, found: list[Pipelined]) -> Changes:
    """The edits of the step, for all kernels.

    Raises:
        Left: a fact is missing.
    """
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
        """Make its edits.

        Raises:
            Left: a fact is missing.
        """
        kernel = self.kernel
        roles = kernel.kernel.roles
        if not kernel.context.helpers.joined and not (roles.value == 1 and roles.exact):
            raise kernel.begin.left("one MMA for all consumers: each of them issues its own")
        rings = self._rings()
        if not kernel.waits_in_loop():
            raise kernel.begin.left("a loop that waits for its MMAs, and reads none of their results")
        shared = [n for n in rings if any(o.remote for o in kernel.operations(n, "arrive"))]
        if shared and len(rings) > 1:
            raise kernel.begin.left("one ring of stages: a cluster shares those of several")
        for name in rings:
            self._ring(name, bool(shared))
        for place in self._synchronizing():
            self.changes.drop(Place(place.function, statement_of(place)))
        self._close(bool(shared))

    def _synchronizing(self) -> Iterator[Place]:
        """Commits and waits of the range."""
        yield from (written(path) for path, _ in self.kernel.synchronizing(Step.COMMIT, Step.WAIT))

    def _close(self, shared: bool) -> None:
        close(self.kernel, self.changes, shared)

    def _rings(self) -> list[str]:
        """The mbarriers that consumers give stages back by."""
        kernel = self.kernel
        found = []
        for name in kernel.barriers:
            arrivals = kernel.operations(name, "arrive")
            mine = [o for o in arrivals if kernel.runs(o) & kernel.consumers]
            if not mine or kernel.operations(name, "copy", "arrive_tx", "expect_tx"):
                continue
            waits = kernel.operations(name, "wait")
            if any(kernel.runs(o) & kernel.consumers for o in waits) or not waits:
                raise self._place(mine[0]).left(f"who waits for {name}, and that these do not multiply")
            found.append(name)
        if not found:
            raise kernel.begin.left("an mbarrier by which stages go back to the producer")
        return found

    @staticmethod
    def _place(operation: Operation) -> Place:
        return path_of(operation)[0]

    def _ring(self, name: str, shared: bool) -> None:
        kernel = self.kernel
        operations = kernel.operations(name)
        others, mine = self._arrivals(name, shared)
        if not shared and any(o.multicast for o in kernel.walk.operations if o.kind == "copy"):
            raise kernel.begin.left("that stages are for one CTA: copies go to several")
        ctas = 1
        if shared:
            counts = self._counts(name)
            ctas = ctas_of(kernel, name, mine, counts.pop() if len(counts) == 1 and not others else None)
            kernel.context.helpers.shares = True
            for operation in kernel.operations(name, "wait"):
                self._of_cluster(operation)
        for operation in mine:
            self._arrival(operation, operations, ctas)
        self._count_from(name, ctas + others)

    def _count_from(self, name: str, count: int) -> None:
        """Write how many arrivals a phase of an mbarrier has."""
        kernel = self.kernel
        operations = kernel.operations(name)
        for operation in kernel.operations(name, "init"):
            place = count_of(kernel, operation)
            for other in kernel.walk.operations:
                if other.kind == "init" and other not in operations and count_of(kernel, other).span == place.span:
                    raise place.left("a count that is this mbarrier's alone")
            self.changes.replace(place.function, place.span, str(count))

    def _arrivals(self, name: str, shared: bool) -> tuple[int, list[Operation]]:
        """How many arrivals are those of other threads, and those of consumers."""
        kernel = self.kernel
        others, mine = 0, []
        for operation in kernel.operations(name):
            place = self._place(operation)
            known = shared and operation.kind == "arrive"
            if (operation.remote and not known) or operation.kind in ("unread", "remap"):
                raise place.left(f"that {name} is for one CTA: a cluster shares its stages")
            if operation.kind != "arrive":
                continue
            threads = kernel.runs(operation)
            if threads <= kernel.consumers:
                mine.append(operation)
            elif threads & kernel.consumers:
                raise place.left("that consumers arrive here, or others, and not both")
            else:
                others += len(threads) * self._count(operation)
        return others, mine

    def _count(self, operation: Operation) -> int:
        value = self.kernel.constants.evaluate(operation.count or "1")
        if value is None:
            raise self._place(operation).left(f"what `{operation.count}` comes to")
        return value

    def _counts(self, name: str) -> set[int | None]:
        """The counts that an mbarrier begins with, None for one that is not known."""
        return {self._value(o) for o in self.kernel.operations(name, "init")}

    def _value(self, operation: Operation) -> int | None:
        return self.kernel.constants.evaluate(operation.count)

    def _arrival(self, operation: Operation, ring: list[Operation], ctas: int) -> None:
        kernel = self.kernel
        place = written(path_of(operation))
        for other in kernel.walk.operations:
            same = any(s.node.id == place.node.id and s.frame.function is place.function for s in other.sites)
            if same and other not in ring:
                raise place.left("a statement that only gives stages back")
        statement = statement_of(place)
        if ctas > 1 and kernel.is_ahead(operation):
            self._called_empty(operation, Place(place.function, statement))
            return
        top, when = self._without_choice(operation, place, statement)
        if kernel.is_ahead(operation):
            # it has nothing to commit
            text = self._same_for_all(Place(place.function, statement))
            when = [*when, self._elected(place)]
        elif ctas > 1:
            if place.function is not kernel.function:
                raise place.left("stages of a cluster given back where the MMAs are")
            state, all_of_them = kernel.context.names.warpgroup, (1 << ctas) - 1
            text = f"{state}.{NAME}({address_of(kernel, operation, place)}, {all_of_them:#x});"
        else:
            text = self._released(operation, place)
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
        if statement.function is not kernel.function:
            raise statement.left("stages of a cluster given back where the MMAs are")
        name = split_index(operation.barrier)[0]
        warp = once(kernel, name, operation)
        self._of_cluster(operation)
        helpers = kernel.context.helpers
        helpers.called_empty, helpers.drained = True, f"&{name.replace('[]', '[0]')}, {is_ring(kernel, name)}"
        index = qualified("thread_index()") if helpers.joined else "threadIdx.x"
        at = statement.span.start
        self.changes.replace(statement.function, Span(at, at), f"if ({index} / {WARP} == {warp}) ")

    def _elected(self, place: Place) -> str:
        """What is true in the thread that issues."""
        return qualified("elect_issuer()")

    def _released(self, operation: Operation, place: Place) -> str:
        """The statement that stands for an arrival."""
        return f"{qualified(NAME)}({address_of(self.kernel, operation, place)});"

    def _same_for_all(self, statement: Place) -> str:
        text = statement.function.text(statement.node)
        if "threadIdx" in text:
            raise statement.left("an arrival that is the same for all threads")
        return text

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
                if kernel.context.flow.threads.differ(function, part):
                    raise Left(function, function.span(part), "which threads a condition of an arrival chooses")
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


def count_of(kernel: Pipelined, operation: Operation) -> Place:
    """Where the count of an mbarrier's init is written; of a sum the part that is not 0.

    Raises:
        Left: it is no argument, or one of a template.
    """
    site = operation.sites[-1]
    left = path_of(operation)[0].left("where the count of the mbarrier is written")
    node = _count_node(kernel, site.frame, site.node)
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
    while node.type == "identifier" and frame.outer is not None:
        name = frame.function.text(node)
        if name not in frame.bound or Wording(kernel.program).changes(frame.function, name):
            break
        frame, node = frame.outer, frame.bound[name]
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    inner = [c for c in node.named_children if c.type != "comment"]
    if node.type == "parenthesized_expression" and len(inner) == 1:
        yield from _addends(kernel, frame, inner[0])
    elif node.type == "binary_expression" and frame.outer is not None and left is not None and right is not None:
        if frame.function.text(node.children[1]) == "+":
            yield from _addends(kernel, frame, left)
            yield from _addends(kernel, frame, right)
        else:
            yield frame, node
    else:
        yield frame, node


def _count_node(kernel: Pipelined, frame: Frame, node: Node) -> Node | None:
    for statement in frame.function.asm:
        if statement.node.id != node.id or statement.ptx is None:
            continue
        inits = [i for i in statement.ptx.instructions() if i.parts[:2] == ("mbarrier", "init")]
        found = decode(inits[0]) if len(inits) == 1 else None
        count = found.get("count") if found is not None else None
        return statement.operand(count.index).expr_node if isinstance(count, Placeholder) else None
    call = _call_at(frame, node)
    if call is None or not call.args:
        return None
    # the object of a method is no argument
    of_object = (call.node.child_by_field_name("function") or call.node).type == "field_expression"
    return call.args[-1] if of_object or len(call.args) > 1 else None


def _call_at(frame: Frame, node: Node) -> Call | None:
    return next((c for c in frame.function.calls if c.node.id == node.id), None)


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
    frame = site.frame
    if _call_at(frame, site.node) is not None:
        return operation.barrier
    for statement in frame.function.asm:
        if statement.node.id != site.node.id or statement.ptx is None:
            continue
        arrivals = [i for i in statement.ptx.instructions() if i.parts[:2] == ("mbarrier", "arrive")]
        found = decode(arrivals[0]) if len(arrivals) == 1 else None
        operand = found.get("mbar") if found is not None else None
        base = getattr(operand, "base", None)
        if isinstance(base, Reg):
            # the same place in another CTA
            mapped = [decode(i) for i in statement.ptx.instructions() if i.parts[0] == "mapa"]
            base = mapped[0].get("a") if len(mapped) == 1 and mapped[0] is not None else None
        if isinstance(base, Placeholder) and not getattr(operand, "offset", 0):
            node = statement.operand(base.index).expr_node
            if node is not None:
                return accessible(frame, _uncast(Wording(kernel.program).words(frame, node)))
    raise place.left("the address of the mbarrier, as an operand")


def _uncast(text: str) -> str:
    """Without the cast of a pointer to the integer that an instruction takes."""
    text = tidy(text)
    for cast in ("static_cast<uint32_t>(", "static_cast<unsigned>(", "static_cast<unsigned int>(", "(uint32_t)",
                 "(unsigned)", "(unsigned int)"):  # fmt: skip
        if text.startswith(cast):
            return _uncast(text[len(cast) : -1] if cast.endswith("(") else text[len(cast) :])
    return text


STEP = steps.Step(
    NAME, RULE, lambda taking: take(taking.context, taking.found).make(), changes=steps.Declared(barriers=True),
    follows=("wide",),
)  # fmt: skip
