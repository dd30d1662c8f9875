# SPDX-License-Identifier: Apache-2.0
"""The instructions of a kernel in a row, the loops they stand in, and registers whose values its text says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from porter.ptx import ast
from porter.ptx.bits import type_bytes

_PASSES = (("st", "param"), ("ld", "param"))
_ENDS = ("ret", "exit", "trap")
_MMA = (("wgmma", "mma_async"), ("tcgen05", "mma"))
_DEEPEST = 8
"""Calls in calls that are followed, and steps from one register's value to another's."""


@dataclass(frozen=True, eq=False)
class Loop:
    """`body` holds the indices of its instructions, in their order."""

    head: int
    body: tuple[int, ...]

    @cached_property
    def members(self) -> frozenset[int]:
        return frozenset(self.body)


@dataclass
class _Scope:
    """Names of a `{ }` block, with those around it."""

    outer: _Scope | None
    registers: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    vectors: dict[str, tuple[ast.Reg, ...]] = field(default_factory=dict)
    """The elements of vector registers."""
    passed: dict[str, str] = field(default_factory=dict)
    """Parameters of calls by the names that a function and its callers have for them."""
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Labels of the tables that brx.idx names."""
    end: str = ""
    """The label behind the call of the function that this is the body of."""

    def parameter(self, operand: ast.Operand) -> str | None:
        """The parameter of a call that an operand lies in."""
        base = operand.base if isinstance(operand, ast.Mem) else operand
        scope: _Scope | None = self
        while scope is not None and isinstance(base, ast.Sym):
            if base.name in scope.passed:
                return scope.passed[base.name]
            scope = scope.outer
        return None

    def returns_to(self) -> str:
        scope: _Scope | None = self
        while scope is not None and not scope.end:
            scope = scope.outer
        return scope.end if scope is not None else ""

    def register(self, name: str) -> str:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.registers:
                return scope.registers[name]
            scope = scope.outer
        return name

    def label(self, name: str) -> str:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.outer
        return name

    def table(self, operand: ast.Operand) -> tuple[str, ...]:
        scope: _Scope | None = self
        while scope is not None and isinstance(operand, ast.Sym):
            if operand.name in scope.tables:
                return scope.tables[operand.name]
            scope = scope.outer
        return ()

    def spread(self, ins: ast.Instruction) -> ast.Instruction:
        """An instruction with vector registers as the vectors of their elements (PTX ISA 6.4.1)."""
        scope, vectors = self, dict[str, tuple[ast.Reg, ...]]()
        while True:
            vectors = scope.vectors | vectors
            if scope.outer is None:
                break
            scope = scope.outer
        if not vectors:
            return ins
        operands = tuple(
            ast.Vec(vectors[o.name]) if isinstance(o, ast.Reg) and o.name in vectors else o for o in ins.operands
        )
        return replace(ins, operands=operands)


def _names(declared: ast.RegDecl) -> list[str]:
    if declared.count is None:
        return [declared.name]
    return [f"{declared.name}{number}" for number in range(declared.count)]


def _elements(declared: ast.RegDecl) -> list[str]:
    """Names of the elements of a vector register."""
    vector, dot, _ = declared.type.partition(".")
    return [f"{declared.name}.{axis}" for axis in "xyzw"[: int(vector[1])]] if dot and vector[0] == "v" else []


class Code:
    """A kernel with the functions that it calls in the places of their calls, whose parameters are registers.
    `parameters`: the bytes of those that a launch gives it, by name."""

    def __init__(self, module: ast.Module, entry: ast.Function, parameters: Mapping[str, bytes] | None = None) -> None:
        self.module = module
        self.entry = entry
        self.parameters = parameters or {}
        self.code: list[ast.Instruction] = []
        self._labels: dict[str, int] = {}
        self._jumps: dict[int, str] = {}
        self._scopes: list[_Scope] = []
        self._names = 0
        self._held: set[str] = set()
        """Registers that stand for parameters of calls and that something is written to."""
        self._functions = {f.name: f for f in module.functions if f.body is not None and not f.is_entry}
        self._walk(entry.body or (), None, 0)
        self._definitions: dict[str, list[int]] = defaultdict(list)
        for at, ins in enumerate(self.code):
            if ins.operands and ins.parts[0] not in ("st", "bra", "red", "call", "tcgen05", "wgmma"):
                for name in _written(ins.operands[0]):
                    self._definitions[self._scopes[at].register(name)].append(at)

    def _walk(
        self, body: tuple[ast.Statement, ...], outer: _Scope | None, depth: int,
        passed: Mapping[str, str] | None = None, end: str = "",
    ) -> None:  # fmt: skip
        scope = _Scope(outer, passed=dict(passed or {}), end=end)
        for s in body:
            if isinstance(s, ast.Label):
                self._names += 1
                scope.labels[s.name] = f"{s.name}#{self._names}"
            elif isinstance(s, ast.RegDecl):
                elements = _elements(s)
                if elements:
                    scope.vectors[s.name] = tuple(ast.Reg(e) for e in elements)
                if outer is not None:
                    self._names += 1
                    scope.registers.update((name, f"{name}#{self._names}") for name in (*_names(s), *elements))
            elif isinstance(s, ast.VarDecl) and s.space == "param":
                self._names += 1
                scope.passed[s.name] = f"{s.name}#{self._names}"
            elif isinstance(s, ast.BranchTargets):
                scope.tables[s.name] = s.items
        for s in body:
            if isinstance(s, ast.Block):
                self._walk(s.body, scope, depth)
            elif isinstance(s, ast.Label):
                self._labels[scope.label(s.name)] = len(self.code)
            elif isinstance(s, ast.Instruction):
                for one in self._compared(s, scope):
                    self._add(one, scope, depth)

    def _compared(self, ins: ast.Instruction, scope: _Scope) -> Iterator[ast.Instruction]:
        """An instruction; ahead of a brx.idx comparisons of its index, with a branch to each place of its table."""
        labels = scope.table(ins.operands[-1]) if ins.parts[0] == "brx" and ins.guard is None else ()
        for number, label in enumerate(labels):
            self._names += 1
            chosen = ast.Reg(f"%brx#{self._names}")
            compared = (chosen, ins.operands[0], ast.Imm(number))
            yield replace(ins, opcode="setp.eq.u32", parts=("setp", "eq", "u32"), operands=compared)
            yield replace(ins, opcode="bra", parts=("bra",), operands=(ast.Sym(label),), guard=ast.Guard(chosen))
        yield ins

    def _add(self, ins: ast.Instruction, scope: _Scope, depth: int) -> None:
        if ins.parts[0] == "call" and depth < _DEEPEST:
            called = next((o.name for o in ins.operands if isinstance(o, ast.Sym) and o.name in self._functions), None)
            if called is not None and ins.guard is None:
                self._call(self._functions[called], ins, scope, depth)
                return
        if ins.parts[0] == "bra":
            target = next((o.name for o in ins.operands if isinstance(o, ast.Sym)), None)
            if target is not None:
                self._jumps[len(self.code)] = scope.label(target)
        if depth and ins.parts[0] == "ret":
            # it goes on behind the call
            self._jumps[len(self.code)] = scope.returns_to()
            ins = replace(ins, opcode="bra", parts=("bra",), operands=(ast.Sym(scope.returns_to()),))
        for one in self._moved(scope.spread(ins), scope):
            self.code.append(one)
            self._scopes.append(scope)

    def _call(self, function: ast.Function, ins: ast.Instruction, scope: _Scope, depth: int) -> None:
        lists = [[scope.parameter(o) for o in v.items] for v in ins.operands if isinstance(v, ast.Vec)]
        formal = [f.name for f in (*function.returns, *function.params)]
        given = [name for names in lists for name in names]
        passed = {name: one for name, one in zip(formal, given, strict=False) if one is not None}
        self._names += 1
        end = f"end of {function.name}#{self._names}"
        self._walk(function.body or (), scope, depth + 1, passed, end)
        self._labels[end] = len(self.code)

    def _moved(self, ins: ast.Instruction, scope: _Scope) -> Iterator[ast.Instruction]:
        """An instruction; what stores or loads parameters of a call as copies of the registers that stand for them."""
        memory = next((o for o in ins.operands if isinstance(o, ast.Mem)), None)
        name = scope.parameter(memory) if memory is not None and ins.parts[:2] in _PASSES else None
        if memory is None or name is None or not isinstance(memory.base, ast.Sym):
            yield ins
            return
        store = ins.parts[0] == "st"
        value = ins.operands[store]
        items = value.items if isinstance(value, ast.Vec) else (value,)
        size, start = type_bytes(ins.parts[-1]), memory.base.offset + memory.offset
        registers = [ast.Reg(f"{name}+{start + size * index}:{size}") for index in range(len(items))]
        if store:
            self._held.update(r.name for r in registers)
        elif any(r.name not in self._held for r in registers):
            # written in other pieces than it is read
            yield ins
            return
        kind = f"b{max(8 * size, 16)}"
        for register, item in zip(registers, items, strict=True):
            operands = (register, item) if store else (item, register)
            yield replace(ins, opcode=f"mov.{kind}", parts=("mov", kind), operands=operands)

    # Registers ----------------------------------------------------------------------------------------

    def renamed(self, at: int, name: str) -> str:
        """The name, one of its own in the whole kernel, of a register as the instruction at `at` names it."""
        return self._scopes[at].register(name)

    def register(self, at: int, operand: ast.Operand) -> str | None:
        """The same of the register that an operand is; None for other operands."""
        return self.renamed(at, operand.name) if isinstance(operand, ast.Reg) else None

    def writes(self, at: int) -> Iterator[str]:
        """Names of the registers that an instruction writes."""
        ins = self.code[at]
        if ins.operands and ins.parts[0] not in ("st", "bra", "red"):
            yield from (self._scopes[at].register(name) for name in _written(ins.operands[0]))

    def definitions(self, at: int, operand: ast.Operand) -> list[int]:
        """Where the register that an operand of the instruction at `at` names is written."""
        if not isinstance(operand, ast.Reg):
            return []
        return self._definitions.get(self._scopes[at].register(operand.name), [])

    # Loops --------------------------------------------------------------------------------------------

    def ends(self, at: int) -> bool:
        """Whether threads that execute an instruction end with it."""
        return self.code[at].parts[0] in _ENDS

    @cached_property
    def successors(self) -> list[tuple[int, ...]]:
        """The instructions that may follow each; of a branch under a predicate its target stands first."""
        found: list[tuple[int, ...]] = []
        for at, ins in enumerate(self.code):
            following = (at + 1,) if at + 1 < len(self.code) else ()
            head = ins.parts[0]
            if head == "bra" and at in self._jumps:
                target = (self._labels.get(self._jumps[at], at + 1),)
                found.append(target if ins.guard is None else (*target, *following))
            elif head in (*_ENDS, "brx") and ins.guard is None:
                found.append(())
            else:
                found.append(following)
        return found

    @cached_property
    def predecessors(self) -> Mapping[int, Sequence[int]]:
        """The instructions that each may follow; those that lead to the end stand last."""
        found: dict[int, list[int]] = {at: [] for at in range(len(self.code) + 1)}
        for at, after in enumerate(self.successors):
            for target in after:
                found[target].append(at)
        return found

    @cached_property
    def multiplies(self) -> bool:
        """Whether it uses the tensor core as Hopper or Blackwell do."""
        return any(is_mma(ins) for ins in self.code)

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """All loops, inner ones first."""
        before = self.predecessors
        bodies: dict[int, set[int]] = {}
        for source, head in _back_edges(self.successors):
            body = bodies.setdefault(head, {head})
            todo = [source]
            while todo:
                at = todo.pop()
                if at not in body:
                    body.add(at)
                    todo += before[at]
        found = [Loop(head, tuple(sorted(body))) for head, body in bodies.items() if 0 not in body or head == 0]
        return tuple(sorted(found, key=lambda loop: len(loop.body)))

    def around(self, at: int) -> list[Loop]:
        """The loops that an instruction stands in, the innermost first; those that only wait for an mbarrier are
        none."""
        return [loop for loop in self._working if at in loop.members]

    @cached_property
    def _working(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if not self.is_wait(loop))

    @cached_property
    def waits(self) -> dict[int, int]:
        """The mbarrier waits: the place of each loop's first test, by the places of all its tests."""
        found: dict[int, int] = {}
        for loop in self.loops:
            if self.is_wait(loop):
                tests = [at for at in loop.body if is_test(self.code[at])]
                found |= dict.fromkeys(tests, tests[0])
        for at, ins in enumerate(self.code):
            if is_test(ins):
                found.setdefault(at, at)
        return found

    @cached_property
    def waited(self) -> dict[int, int]:
        """Those of `waits` that go on until the phase is over. A test that no loop repeats looks ahead: what waits for
        the phase comes later, and is a loop of its own; where there is none, the test has to be it."""
        looped = {at for loop in self.loops if self.is_wait(loop) for at in loop.body}
        # one that a loop begins with is repeated by it, and what is around it begins there as well
        looped |= {loop.head for loop in self.loops}
        found = {at: place for at, place in self.waits.items() if at in looped}
        return found or self.waits

    def is_wait(self, loop: Loop) -> bool:
        """Whether a loop does nothing but test an mbarrier."""
        tests = sum(is_test(self.code[at]) for at in loop.body)
        return tests > 0 and all(_is_idle(self.code[at]) for at in loop.body)


def _back_edges(after: list[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    """Edges to an instruction that a depth-first walk has entered and not left."""
    after = [*after, ()]
    state = [1, *(0 for _ in after[1:])]
    stack = [(0, 0)]
    while stack:
        at, which = stack.pop()
        if which >= len(after[at]):
            state[at] = 2
            continue
        stack.append((at, which + 1))
        target = after[at][which]
        if state[target] == 1:
            yield at, target
        elif state[target] == 0:
            state[target] = 1
            stack.append((target, 0))


def is_mma(ins: ast.Instruction) -> bool:
    """wgmma.mma_async or tcgen05.mma."""
    return ins.parts[:2] in _MMA


def is_test(ins: ast.Instruction) -> bool:
    """mbarrier.try_wait or test_wait."""
    return ins.parts[0] == "mbarrier" and ins.parts[1] in ("try_wait", "test_wait")


_IDLE = frozenset(
    ("setp", "selp", "mov", "add", "sub", "bra", "and", "or", "not", "nanosleep", "cvt", "cvta", "shl", "shr", "xor")
)


def _is_idle(ins: ast.Instruction) -> bool:
    return is_test(ins) or ins.parts[0] in _IDLE


def _written(operand: ast.Operand) -> Iterator[str]:
    if isinstance(operand, ast.Reg):
        yield operand.name
    elif isinstance(operand, ast.Vec):
        for item in operand.items:
            yield from _written(item)
    elif isinstance(operand, ast.Pair):
        yield from _written(operand.first)
        yield from _written(operand.second)
