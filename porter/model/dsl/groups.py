# SPDX-License-Identifier: Apache-2.0
"""Warpgroup MMAs as groups: from `fence` to `commit_group`, with the registers that each of them reads and writes.

The family is NVIDIA's Hopper FMHA: several tiled MMAs of 64 rows, accumulators that are read and written between
them, operands A from registers, groups in the kernel or in its helper methods. Each group is committed in the block
that its fence stands in.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from porter.lang.cute_dsl import DslFile, Statement, argument, assigned, body_of, called, only, walk
from porter.model.dsl import frame, names
from porter.model.dsl.calls import CallGraph
from porter.model.dsl.scope import Scope, Unrecognized


@dataclass(eq=False)
class HostMma:
    """A call of make_trivial_tiled_mma on the host."""

    call: cst.Call
    variable: str
    from_registers: bool


@dataclass(eq=False)
class Use:
    """One MMA of a group: text of the tiled MMA and the accumulator, the operand A if it comes from registers."""

    mma: str
    accumulator: str
    operand: str | None
    zeroed: bool
    """Whether the first MMA on this accumulator overwrites it."""
    nodes: list[tuple[cst.CSTNode, str]] = field(default_factory=list)
    """Arguments of calls, and what each is: mma, accumulator, operand."""


@dataclass(eq=False)
class Group:
    """`wait` is the statement where the results are first needed; None: right behind the commit."""

    scope: Scope
    fence: Statement
    body: list[Statement]
    commit: Statement
    wait: Statement | None
    uses: list[Use]


@dataclass(eq=False)
class GroupedKernel:
    """A kernel and its helpers. `parameters` are the kernel's names of the tiled MMAs."""

    file: DslFile
    kernel: Scope
    host: Scope
    mmas: list[HostMma]
    parameters: list[str]
    groups: list[Group]
    waits: list[Statement]
    storage: Statement
    storage_name: str
    struct_field: cst.SimpleStatementLine
    block: str
    producer_first: bool
    """Whether warpgroup 0 gives registers away, so that the others multiply."""


def in_groups(file: DslFile) -> bool:
    """Whether a file's MMAs are of this family: several tiled MMAs, or an operand from registers."""
    calls = [c for f in file.functions() for c in Scope(file, f).calls_of(names.TILED_MMA)]
    calls = list(dict.fromkeys(calls))
    return len(file.kernels) == 1 and (len(calls) > 1 or any(_from_registers(file, c) for c in calls))


def _from_registers(file: DslFile, call: cst.Call) -> bool:
    source = argument(call, "a_source", 7)
    return source is not None and file.text(source).endswith("RMEM")


class _Finder:
    """Recognition of one kernel."""

    kernel_arguments: dict[str, str]
    """The host's text for each parameter of the kernel."""

    def __init__(self, file: DslFile) -> None:
        self.file = file
        self.graph = CallGraph(file, file.kernels[0])
        self.kernel = self.graph.kernel
        self.mmas: dict[str, HostMma] = {}

    def host_mmas(self) -> tuple[Scope, list[HostMma]]:
        file = self.file
        found: list[tuple[Scope, HostMma]] = []
        for function in file.functions():
            scope = Scope(file, function)
            for call in scope.calls_of(names.TILED_MMA):
                if _nearest_function(file, call) is not function:
                    continue
                pair = assigned(scope.statement_of(call))
                if pair is None or pair[1] is not call or not isinstance(pair[0], cst.Name):
                    raise Unrecognized("the tiled MMA is not assigned to a name", call)
                layout, tiler = argument(call, "atom_layout_mnk", 5), argument(call, "tiler_mn", 6)
                if layout is None or tiler is None or len(call.args) < 7:
                    raise Unrecognized("the tiled MMA's tiler and layout of warpgroups are not given", call)
                if self.graph.constant(layout) != "1, 1, 1":
                    raise Unrecognized(
                        f"an accumulator that several warpgroups share, `{file.text(layout)}`; with several tiled "
                        "MMAs or operands from registers each warpgroup has its own",
                        layout,
                    )
                found.append((scope, HostMma(call, pair[0].value, _from_registers(file, call))))
        scopes = {id(s.function) for s, _ in found}
        if len(scopes) != 1:
            raise Unrecognized("tiled MMAs are made in several functions", found[-1][1].call)
        return found[0][0], [m for _, m in found]

    def origin(self, scope: Scope, node: cst.BaseExpression, depth: int = 0) -> set[str]:
        """The host's variables of tiled MMAs that an expression in a function may stand for."""
        if not isinstance(node, cst.Name) or depth > 8:
            return set()
        definition = scope.definition(node.value)
        if definition is not None:
            return self.origin(scope, definition[1], depth + 1)
        found: set[str] = set()
        if scope is self.kernel:
            variable = self.kernel_arguments.get(node.value)
            return {variable} if variable in self.mmas else set()
        for caller, call in self.graph.callers(scope.function):
            value = self.graph.bound(scope.function, call).get(node.value)
            if value is not None:
                found |= self.origin(caller, value, depth + 1)
        return found

    def has_mma(self, node: cst.CSTNode) -> bool:
        return self.graph.reaches(node, (names.GEMM,))

    def synchronizes(self, node: cst.CSTNode) -> bool:
        return self.graph.reaches(node, (names.FENCE, names.COMMIT, names.WAIT))

    def groups(self, scope: Scope) -> list[Group]:
        found = []
        for statement in scope.statements:
            if self._is(statement, names.FENCE):
                found.append(self._group(scope, statement))
        inside = [s for g in found for s in g.body]
        for call in scope.calls():
            target = self.graph.target(call)
            issues = self.file.call_name(call) == names.GEMM or (target is not None and self.has_mma(target.body))
            if not issues or (target is not None and self.synchronizes(target.body)):
                continue
            if not any(self._within(call, s) for s in inside) and (scope is self.kernel or self.synchronizes(
                scope.function.body
            )):  # fmt: skip
                raise Unrecognized("an MMA that stands in no group between `fence` and `commit_group`", call)
        return found

    def _within(self, node: cst.CSTNode, statement: cst.CSTNode) -> bool:
        return self.file.span(statement).contains(self.file.span(node))

    def _is(self, statement: cst.CSTNode, name: str) -> bool:
        call = called(statement)
        return call is not None and self.file.call_name(call) == name

    def _group(self, scope: Scope, fence: Statement) -> Group:
        block = scope.block(fence)
        at = block.index(fence)
        ends = [i for i in range(at + 1, len(block)) if self._is(block[i], names.COMMIT)]
        if not ends:
            raise Unrecognized("no `commit_group` in the block of this `fence`", fence)
        body, commit = block[at + 1 : ends[0]], block[ends[0]]
        for statement in body:
            if self.synchronizes(statement):
                raise Unrecognized("a fence, commit or wait inside a group of MMAs", statement)
        uses: list[Use] = []
        zeroed: dict[str, bool] = {}
        for statement in reversed(block[:at]):
            call = called(statement)
            func = call.func if call is not None else None
            if call is None or self.synchronizes(statement):
                break
            if isinstance(func, cst.Attribute) and func.attr.value == "set" and self.origin(scope, func.value):
                zeroed.setdefault(self.file.text(func.value), self._is_false(scope, statement, call))
        for statement in body:
            self._read(scope, statement, uses, zeroed, body)
        if not uses:
            raise Unrecognized("a group without MMAs", fence)
        accumulators: dict[str, str] = {}
        for use in uses:
            if accumulators.setdefault(use.mma, use.accumulator) != use.accumulator:
                raise Unrecognized(f"two accumulators of `{use.mma}` in one group", fence)
        if len({u.operand for u in uses if u.operand is not None}) > 1:
            raise Unrecognized("two operands from registers in one group", fence)
        wait = None
        for statement in block[ends[0] + 1 :]:
            if self._is(statement, names.WAIT):
                call = called(statement)
                if call is not None and call.args and self.file.text(call.args[0].value) == "0":
                    wait = statement
                break
            if self.synchronizes(statement) or not isinstance(statement, cst.SimpleStatementLine):
                break
            if any(self._mentions(statement, u) for u in uses):
                break
        return Group(scope, fence, body, commit, wait, uses)

    def _mentions(self, statement: cst.CSTNode, use: Use) -> bool:
        bases = {use.accumulator, use.mma}
        return any(isinstance(n, cst.Name) and n.value in bases for n in walk(statement))

    def _read(
        self, scope: Scope, statement: Statement, uses: list[Use], zeroed: dict[str, bool], body: list[Statement]
    ) -> None:
        """One statement of a group; refuses what must not run in one warp alone."""
        call = called(statement)
        if call is not None:
            func = call.func
            if isinstance(func, cst.Attribute) and func.attr.value == "set" and self.origin(scope, func.value):
                zeroed[self.file.text(func.value)] = self._is_false(scope, statement, call)
                return
            if self.file.call_name(call) == names.GEMM:
                self._gemm(scope, call, uses, zeroed)
                return
            target = self.graph.target(call)
            if target is not None and self.has_mma(target.body):
                self._helper(scope, call, target, uses)
                return
        if isinstance(statement, cst.For) and statement.orelse is None:
            for inner in body_of(statement):
                self._read(scope, inner, uses, zeroed, body)
            return
        pair = assigned(statement)
        if pair is not None and isinstance(pair[0], cst.Name) and not any(
            isinstance(n, cst.Call) for n in walk(pair[1])
        ):
            outside = [u for u in scope.uses(pair[0].value) if not any(self._within(u, s) for s in body)]
            if not outside:
                return
        raise Unrecognized("a statement among the MMAs of a group that all threads have to run", statement)

    def _is_false(self, scope: Scope, statement: Statement, call: cst.Call) -> bool:
        """Whether `set(ACCUMULATE, value)` is off for the first MMA behind it."""
        value = argument(call, "value", 1)
        field_ = argument(call, "field", 0)
        if value is None or field_ is None or self.file.qualified(field_) != names.ACCUMULATE:
            raise Unrecognized("a setting of the MMA other than Field.ACCUMULATE", statement)
        text = self.file.text(value)
        if text == "False":
            return True
        loop = next((a for a in scope.ancestors(statement) if isinstance(a, cst.For)), None)
        if loop is None or not isinstance(loop.iter, cst.Call):
            return False
        steps = [a for a in loop.iter.args if a.keyword is None]
        return len(steps) == 1 and text in (f"{self.file.text(loop.target)} != 0", f"{self.file.text(loop.target)} > 0")

    def _gemm(self, scope: Scope, call: cst.Call, uses: list[Use], zeroed: dict[str, bool]) -> None:
        given = [a.value for a in call.args]
        text = [self.file.text(v) for v in given]
        if len(given) != 5 or text[1] != text[4] or not isinstance(given[1], cst.Name):
            raise Unrecognized("cute.gemm whose accumulator is no name, or is not also its result", call)
        self._use(scope, call, given[0], given[1], given[2], uses, zeroed.get(text[0], False)).nodes.append(
            (given[4], "accumulator")
        )

    def _use(
        self,
        scope: Scope,
        call: cst.Call,
        mma: cst.BaseExpression,
        accumulator: cst.BaseExpression,
        operand: cst.BaseExpression,
        uses: list[Use],
        zeroed: bool,
    ) -> Use:
        origins = self.origin(scope, mma)
        if not origins:
            raise Unrecognized(f"the tiled MMA `{self.file.text(mma)}` is not one that the host makes", call)
        kinds = {self.mmas[o].from_registers for o in origins}
        if len(kinds) > 1:
            raise Unrecognized("one call whose operand A comes from registers or from shared memory", call)
        base = operand
        while isinstance(base, cst.Subscript):
            base = base.value
        name = None
        if kinds == {True}:
            if not isinstance(base, cst.Name):
                raise Unrecognized("the operand from registers is no name", operand)
            name = base.value
        wanted = (self.file.text(mma), self.file.text(accumulator), name)
        use = next((u for u in uses if (u.mma, u.accumulator, u.operand) == wanted), None)
        if use is None:
            use = Use(*wanted, zeroed)
            uses.append(use)
        use.nodes += [(mma, "mma"), (accumulator, "accumulator")]
        if name is not None:
            use.nodes.append((base, "operand"))
        return use

    def _helper(self, scope: Scope, call: cst.Call, target: cst.FunctionDef, uses: list[Use]) -> None:
        """A helper that issues MMAs on its parameters, each of them as an argument of its own."""
        inner = Scope(self.file, target)
        bound = self.graph.bound(target, call)
        for statement in inner.statements:
            small = only(statement)
            if isinstance(small, cst.Return) and small.value is not None:
                raise Unrecognized(f"the helper `{target.name.value}` returns a value", call)
        for gemm in inner.calls_of(names.GEMM):
            given = [a.value for a in gemm.args]
            text = [self.file.text(v) for v in given]
            base = given[2] if len(given) == 5 else None
            while isinstance(base, cst.Subscript):
                base = base.value
            given_here = base is not None and all(t in bound for t in (text[0], text[1], self.file.text(base)))
            if base is None or not given_here or text[1] != text[4]:
                raise Unrecognized(f"an MMA of the helper `{target.name.value}` on other than its parameters", gemm)
            accumulator = bound[text[1]]
            if not isinstance(accumulator, cst.Name):
                raise Unrecognized("the accumulator is no name", call)
            zero = self._first_overwrites(inner, gemm, text[0])
            use = self._use(scope, call, bound[text[0]], accumulator, bound[self.file.text(base)], uses, zero)
            use.zeroed = use.zeroed and zero
            use.nodes = list(dict.fromkeys(use.nodes))

    def _first_overwrites(self, scope: Scope, gemm: cst.Call, mma: str) -> bool:
        """Whether the accumulate flag in front of a helper's MMA is off the first time."""
        block = scope.block(scope.statement_of(gemm))
        for statement in reversed(block[: block.index(scope.statement_of(gemm))]):
            call = called(statement)
            if call is not None and self.file.text(call.func) == f"{mma}.set":
                return self._is_false(scope, statement, call)
        return False


def _nearest_function(file: DslFile, node: cst.CSTNode) -> cst.CSTNode | None:
    current = file.parent(node)
    while current is not None and not isinstance(current, cst.FunctionDef):
        current = file.parent(current)
    return current


def find_groups(file: DslFile) -> GroupedKernel:
    """The groups of MMAs of a file's kernel and of the helpers that it calls.

    Raises:
        Unrecognized: a part of it has another form.
    """
    finder = _Finder(file)
    host, mmas = finder.host_mmas()
    finder.mmas = {m.variable: m for m in mmas}
    call, block = frame.kernel_call(finder.graph, host)
    bound = finder.graph.bound(finder.kernel.function, call)
    finder.kernel_arguments = {n: file.text(v) for n, v in bound.items()}
    parameters = [n for n, v in finder.kernel_arguments.items() if v in finder.mmas]
    if len(parameters) != len(mmas):
        raise Unrecognized("a tiled MMA that the kernel does not get as an argument", call)
    groups = [g for scope in finder.graph.functions for g in finder.groups(scope)]
    if not groups:
        raise Unrecognized("no group of MMAs between `fence` and `commit_group`", finder.kernel.function)
    storage, name = frame.storage(finder.graph)
    for parameter in parameters:
        for use in finder.kernel.uses(parameter):
            if file.span(use).start < file.span(storage).start:
                raise Unrecognized("the tiled MMA is used before the shared storage is there", use)
    waits = [s for scope in finder.graph.functions for s in scope.statements if finder._is(s, names.WAIT)]
    return GroupedKernel(
        file=file,
        kernel=finder.kernel,
        host=host,
        mmas=mmas,
        parameters=parameters,
        groups=groups,
        waits=waits,
        storage=storage,
        storage_name=name,
        struct_field=frame.struct_field(finder.graph),
        block=block,
        producer_first=frame.producer_first(finder.graph),
    )
