# SPDX-License-Identifier: Apache-2.0
"""The part of a kernel that multiplies without reading what it multiplied, and what is done in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import above, find, inside
from porter.lang.text import Span
from porter.model.accumulators import Accumulator
from porter.model.constants import Constants, visible
from porter.model.functions import Function
from porter.model.instantiations import only_instantiation
from porter.model.kernels import Kernel
from porter.model.pipeline.operations import Operation, Walk, operations_of
from porter.model.pipeline.rings import split_index
from porter.model.pipeline.who import Who
from porter.model.program import Program, TensorCoreStatement
from porter.model.scopes import LOOPS
from porter.model.tensor_core import Step
from porter.passes.context import PortContext
from porter.passes.moves import Moves
from porter.passes.native.sites import Left, Path, Place, path_of, prefix, steps_below, threads_at
from porter.ptx.arch import Limits


@dataclass(eq=False)
class Pipelined:
    """A kernel whose MMAs are fed by mbarriers. `first` to `last` are the statements of `function`, all of one block,
    that its MMAs stand in; between them no thread reads an accumulator.

    Raises:
        Left: where that is not known of a kernel.
    """

    context: PortContext
    kernel: Kernel
    moves: Moves

    def __post_init__(self) -> None:
        self.program: Program = self.context.program
        self.walk: Walk = operations_of(self.program, self.kernel.function)
        self.template = only_instantiation(self.program, self.kernel.function)
        self.threads = self.constants.evaluate(self.kernel.threads or "")
        most = Limits.threads_per_block
        self.who = Who(self.program, min(self.threads or most, most), self.template)
        self._read()
        self.function = self._function()
        self.first, self.last = self._range()

    # --- What is done

    def _read(self) -> None:
        kernel = self.kernel.function
        if self.walk.too_deep:
            call = self.walk.too_deep[0]
            raise Left(call.caller, call.name_span, f"what `{call.name}` does, calls nest too deep")
        for operation in self.walk.operations:
            if operation.kind == "unread" or "?" in operation.barrier:
                raise path_of(operation)[-1].left("what is done with mbarriers or copies here")
        if not self.multiplies:
            raise Left(kernel, kernel.span(kernel.body), "which statements multiply")
        if any(o.a_registers for o in self.multiplies) or self.context.helpers.register_kinds:
            raise Left(kernel, kernel.span(kernel.body), "a schedule for operands from registers, which threads make")

    @cached_property
    def constants(self) -> Constants:
        """What names mean in the kernel, as it is instantiated."""
        kernel = self.kernel.function
        given = {name: str(number) for name, number in self.template.items()}
        return visible(self.program.constants_around(kernel), kernel, given)

    @property
    def multiplies(self) -> list[Operation]:
        return [o for o in self.walk.operations if o.kind == "mma"]

    def operations(self, name: str, *kinds: str) -> list[Operation]:
        """What is done with the mbarriers of a name."""
        return [
            o for o in self.walk.operations
            if o.barrier and split_index(o.barrier)[0] == name and (not kinds or o.kind in kinds)
        ]  # fmt: skip

    @property
    def barriers(self) -> list[str]:
        return list(dict.fromkeys(split_index(o.barrier)[0] for o in self.walk.operations if o.barrier))

    def runs(self, operation: Operation) -> frozenset[int]:
        """The threads that come to an operation."""
        return threads_at(self.who, operation.sites)

    @cached_property
    def consumers(self) -> frozenset[int]:
        """The threads that come to the MMAs."""
        return frozenset[int]().union(*map(self.runs, self.multiplies))

    # --- Where

    def _function(self) -> Function:
        kernel = self.kernel.function
        reached = {id(s.frame.function) for o in self.multiplies for s in o.sites}
        found = [a for a in self.context.accumulators.accumulators if id(a.function) in reached]
        functions = {id(a.function): a.function for a in found}
        if len(functions) != 1:
            raise Left(kernel, kernel.span(kernel.body), "that all accumulators are variables of one function")
        function = next(iter(functions.values()))
        for accumulator in found:
            if accumulator.home.field_name or any(t.holder.accumulator is accumulator for t in self.moves.tracked):
                raise Left(function, function.span(function.body), f"where `{accumulator.name}` is read and written")
        self.accumulators: list[Accumulator] = found
        """Those that its MMAs add to, all of `function`."""
        return function

    @property
    def reads(self) -> list[Node]:
        """Statements of the function in front of which an accumulator is loaded."""
        return [n for a in self.accumulators for n in self.moves.loads[a]]

    @property
    def writes(self) -> list[Node]:
        """Those in front of which one is stored."""
        return [n for a in self.accumulators for n in self.moves.stores[a]]

    def _range(self) -> tuple[Node, Node]:
        function = self.function
        nodes = []
        for operation in self.multiplies:
            site = next((s for s in operation.sites if s.frame.function is function), None)
            if site is None:
                raise Left(function, function.span(function.body), "that all MMAs are for the same accumulators")
            nodes.append(site.node)
        first, last = min(nodes, key=lambda n: n.start_byte), max(nodes, key=lambda n: n.end_byte)
        block = first
        while True:
            block = _block_around(function, block, last)
            there = [n for n in block.named_children if n.end_byte > first.start_byte and n.start_byte < last.end_byte]
            first, last = there[0], there[-1]
            if block.id == function.body.id or any(inside(block, n) for n in self.reads):
                break
        for node in (*self.reads, *self.writes):
            if first.start_byte <= node.start_byte < last.end_byte:
                raise Left(function, function.span(node), "that no thread reads or writes an accumulator between MMAs")
        return first, self._with_last_stages(first, last)

    def _with_last_stages(self, first: Node, last: Node) -> Node:
        """The last of the statements behind the MMAs that wait for these and give back the stages that are left."""
        found, given_back = last, self._arrivals_in(Span(first.start_byte, last.end_byte))
        touched = [*self.reads, *self.writes]
        node = last.next_named_sibling
        while node is not None and not any(inside(node, n) for n in touched):
            span = self.function.span(node)
            mine = self._arrivals_in(Span(node.start_byte, node.end_byte))
            if mine and mine <= given_back and node.type in ("expression_statement", "if_statement", "declaration"):
                found = node
            elif node.type != "comment":
                below = list(steps_below(self.program, self.function, [span]))
                if node.type != "expression_statement" or not below or any(
                    step.kind is not Step.WAIT for _, statement in below for step in statement.steps
                ):  # fmt: skip
                    break
            node = node.next_named_sibling
        return found

    def _arrivals_in(self, where: Span) -> set[str]:
        """Mbarriers that are arrived at between two offsets of the function."""
        return {
            split_index(o.barrier)[0] for o in self.walk.operations if o.kind == "arrive"
            for s in o.sites
            if s.frame.function is self.function and where.start <= s.node.start_byte and s.node.end_byte <= where.end
        }  # fmt: skip

    @property
    def spans(self) -> list[Span]:
        """The range, as one span."""
        return [Span(self.function.span(self.first).start, self.function.span(self.last).end)]

    @property
    def end(self) -> Place:
        return Place(self.function, self.last)

    @property
    def begin(self) -> Place:
        return Place(self.function, self.first)

    @property
    def range(self) -> list[Node]:
        """The statements from the first to the last."""
        block = self.first.parent
        assert block is not None
        return [n for n in block.named_children if self.first.start_byte <= n.start_byte <= self.last.start_byte]

    @cached_property
    def statements(self) -> list[tuple[Path, TensorCoreStatement]]:
        """The tensor-core statements of the range."""
        return list(steps_below(self.program, self.function, self.spans))

    def synchronizing(self, *kinds: Step) -> Iterator[tuple[Path, TensorCoreStatement]]:
        """The statements of the range that do what is of these kinds."""
        yield from (found for found in self.statements if any(s.kind in kinds for s in found[1].steps))

    def waits_in_loop(self) -> bool:
        """Whether MMAs are waited for in a loop of the range."""
        waits = [path[0] for path, found in self.statements if any(s.kind is Step.WAIT for s in found.steps)]
        loops = [n for top in self.range for n in find(top, *LOOPS)]
        return any(inside(loop, w.node) for w in waits if w.function is self.function for loop in loops)

    def is_ahead(self, operation: Operation) -> bool:
        """Whether an operation comes before all MMAs, and never behind one."""
        return all(_comes_before(operation, o) for o in self.multiplies)

    def all_come_to(self, operation: Operation, place: Place) -> bool:
        """Whether exactly the threads that come to the MMAs come to a place on the way to an operation."""
        sites = prefix(operation, place.function, place.node)
        return self.who.runs(sites).threads == self.consumers


def _comes_before(one: Operation, other: Operation) -> bool:
    for mine, its in zip(one.sites, other.sites, strict=False):
        if mine.node.id == its.node.id:
            continue
        if mine.node.end_byte > its.node.start_byte:
            return False
        if any(n.type in LOOPS and inside(n, its.node) for n in above(mine.node, mine.frame.function.body)):
            return False
        # in a helper that is called in a loop, what is ahead in one pass is behind in the next
        return not any(in_loop(s.node, s.frame.function) for s in one.sites[: one.sites.index(mine)])
    return False


def in_loop(node: Node, function: Function) -> bool:
    """Whether a node of a function stands in a loop of it."""
    return any(n.type in LOOPS for n in above(node, function.body))


def _block_around(function: Function, node: Node, last: Node) -> Node:
    """The innermost block around two nodes that is more than a child of itself."""
    block = node.parent
    while block is not None and not (
        block.type == "compound_statement" and block.end_byte >= last.end_byte and block.id != node.id
    ):
        if block.id == function.body.id:
            break
        block = block.parent
    if block is None or block.type != "compound_statement":
        raise Left(function, function.span(node), "the block of statements that MMAs stand in")
    return block
