# SPDX-License-Identifier: Apache-2.0
"""Kernels as wholes: threads, warpgroups and their roles, where set-up code can stand, named barriers."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tree_sitter import Node

from porter.model.block_size import threads_of
from porter.model.constants import local_definitions
from porter.model.functions import Function, Style
from porter.model.program import Program, TensorCoreStatement
from porter.model.roles import WarpgroupRoles, warpgroup_roles
from porter.model.scopes import PREPROCESSOR_BLOCKS
from porter.model.thread_values import ThreadValues
from porter.model.threads import Threads
from porter.ptx.arch import WARP, Limits

SHARED = "__shared__"
DYNAMIC_SHARED = re.compile(r"\bextern\s+__shared__[^;]*?(\w+)\s*\[\s*\]")
"""An array that is dynamic shared memory, by its name."""
_NAMED_BARRIER = re.compile(r"\bbar(?:rier)?(?:\.cta)?\.(?:sync|arrive|red)(?:\.\w+)*\s+(%?\w+)")


@dataclass(eq=False)
class Kernel:
    """A `__global__` function that uses the tensor core, directly or through callees."""

    function: Function
    setup_before: Node = field(repr=False)
    """Top-level statement in front of which all threads of the CTA still run together."""
    threads: str | None
    """Text of the block size bound, from `__launch_bounds__` or the launch."""
    roles: WarpgroupRoles
    has_dynamic_shared: bool
    used_barriers: frozenset[int]
    unknown_barriers: bool
    """Whether some named barrier has an id that is not a known constant."""

    function_statements: list[TensorCoreStatement] = field(default_factory=list, repr=False)
    """Tensor-core statements in the kernel's own body."""

    @property
    def constants(self) -> dict[str, tuple[str, int]]:
        """Constants declared in the kernel: name to (text, byte offset)."""
        return local_definitions(self.function)


def kernels_of(program: Program) -> list[Kernel]:
    """The kernels of a program that reach a tensor-core statement."""
    uses = program.uses_tensor_core()
    found = []
    for function in program.kernels:
        if id(function) not in uses:
            continue
        runs_mma = partial(contains_tensor_core, program, function, uses=uses)
        setup = setup_position(program, function, runs_mma)
        if setup is None:
            continue
        threads = threads_of(program, function)
        constants = program.constants_in(function)
        barriers, unknown = named_barriers(program, constants.evaluate(threads) if threads is not None else None)
        found.append(
            Kernel(
                function,
                setup,
                threads,
                warpgroup_roles(
                    program,
                    function,
                    top_level(function),
                    runs_mma,
                    threads,
                    constants,
                ),
                _has_dynamic_shared(program),
                barriers,
                unknown,
                program.steps_in(function),
            )
        )
    return found


def top_level(function: Function) -> list[Node]:
    """Statements of the body outside any block; those between preprocessor conditionals count."""
    return statements_in(function.body)


def statements_in(block: Node) -> list[Node]:
    """The statements of a block, those between preprocessor conditionals among them."""
    found: list[Node] = []
    skipped = {c.id for n in ("condition", "name") for c in block.children_by_field_name(n)}
    for child in block.named_children:
        if child.type in PREPROCESSOR_BLOCKS:
            found += statements_in(child)
        elif child.type != "comment" and child.id not in skipped:
            found.append(child)
    return found


def top_level_above(function: Function, node: Node) -> Node:
    """The top-level statement that contains `node`."""
    while node.parent is not None and node.parent.id != function.body.id:
        if node.parent.type in PREPROCESSOR_BLOCKS and _is_top(function, node.parent):
            break
        node = node.parent
    return node


def _is_top(function: Function, node: Node) -> bool:
    while node.parent is not None and node.type in PREPROCESSOR_BLOCKS:
        if node.parent.id == function.body.id:
            return True
        node = node.parent
    return False


def contains_tensor_core(program: Program, function: Function, node: Node, uses: set[int]) -> bool:
    """Whether a statement issues, commits or waits for MMAs, itself or through a callee."""
    spans = program.statement_spans(function.file)
    at = bisect_left(spans, (node.start_byte, 0))
    while at < len(spans) and spans[at][0] <= node.end_byte:
        if spans[at][1] <= node.end_byte:
            return True
        at += 1
    calls = _calls_that_use(program, function, uses)
    at = bisect_left(calls, (node.start_byte, 0))
    while at < len(calls) and calls[at][0] <= node.end_byte:
        if calls[at][1] <= node.end_byte:
            return True
        at += 1
    return False


def _calls_that_use(program: Program, function: Function, uses: set[int]) -> list[tuple[int, int]]:
    """Bytes of the nodes of the calls that a function and the lambdas of its file make of functions in `uses`,
    sorted."""
    known = program.calls_that_use.get(id(function))
    if known is None or known[0] is not uses:
        lambdas = (f for f in program.functions if f.file is function.file and f.parent is not None)
        callers = {id(f): f for f in (function, *lambdas) if f.shift == function.shift}
        nodes = [
            c.node
            for f in callers.values()
            for c in f.calls
            if c.node.type == "call_expression" and any(id(t) in uses for t in program.targets(c))
        ]
        known = program.calls_that_use[id(function)] = uses, sorted((n.start_byte, n.end_byte) for n in nodes)
    return known[1]


def setup_position(program: Program, function: Function, runs_mma: Callable[[Node], bool]) -> Node | None:
    """The first top-level statement that uses the tensor core, as `runs_mma` says, or that lets some threads of a CTA
    leave or go their own way for good before it."""
    threads = Threads(program)
    leaving = [n.start_byte for n in threads.leaving(function) if threads.may_part(function, n, function.body)]
    leaving += [n.start_byte for n in function.own_nodes("goto_statement")]
    previous_pragma: Node | None = None
    for node in top_level(function):
        if node.type == "preproc_call":
            previous_pragma = previous_pragma or node
            continue
        if runs_mma(node):
            return previous_pragma or node
        if any(node.start_byte <= at < node.end_byte for at in leaving):
            return previous_pragma or node
        previous_pragma = None
    return None


def _has_dynamic_shared(program: Program) -> bool:
    # the lexer has blanked comments and strings, at the places that they have in the text
    return any(
        file.lexed.plain[match.start()] == file.masked[match.start()]
        for file in program.sources.files.values()
        for match in re.finditer(rb"\bextern\s+__shared__\b", file.masked)
    )


def named_barriers(program: Program, threads: int | None) -> tuple[frozenset[int], bool]:
    """Named barrier ids that the sources use, and whether others with unknown ids may be in use. `threads`: of a block,
    if that is known.

    An id that is an asm operand is followed to the arguments of the wrapper's callers.
    """
    used: set[int | None] = {0}
    most = Limits.threads_per_block
    values = ThreadValues(program, threads if threads and threads % WARP == 0 and threads < most else most)
    for function in program.functions:
        for statement in function.asm:
            for match in _NAMED_BARRIER.finditer(statement.template):
                text = match.group(1)
                if not text.startswith("%"):
                    used.add(program.value(function, text))
                elif text[1:].isdigit() and int(text[1:]) < len(statement.operands):
                    operand = statement.operand(int(text[1:]))
                    used |= _ids(program, values, function, operand.expr, operand.expr_node)
                else:
                    used.add(None)
    return frozenset(v for v in used if v is not None), None in used


def _ids(program: Program, values: ThreadValues, function: Function, text: str, node: Node | None) -> set[int | None]:
    """The ids that an operand of an asm statement may be, None among them for one that is not known."""
    name = text.strip()
    if name in function.template_params:
        index = function.template_params.index(name)
        calls = [c for c in program.callers(function) if index < len(c.template_args)]
        return {program.value(c.caller, c.template_args[index]) for c in calls}
    places: list[tuple[Function, Node | None, str]] = [(function, node, text)]
    param = function.param(name)
    if param is not None and function.style is not Style.KERNEL:
        calls = [c for c in program.callers(function) if param.index < len(c.args)]
        places = [(c.caller, c.args[param.index], c.caller.text(c.args[param.index])) for c in calls]
    found: set[int | None] = set()
    for place, written, expression in places:
        value = program.value(place, expression)
        known = values.of(place, written) if value is None and written is not None else None
        found.update({value} if known is None else known)
    return found
