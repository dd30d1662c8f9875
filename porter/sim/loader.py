# SPDX-License-Identifier: Apache-2.0
"""Loading a kernel of a module: scopes resolved, functions put in place, the code split into blocks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial

from porter.ptx import ast
from porter.ptx.table import Decoded, find, items
from porter.sim.blocks import liveness, split
from porter.sim.call_graph import CallGraph
from porter.sim.layout import place_variables
from porter.sim.program import Program, Variable, type_width
from porter.sim.scopes import Scope

_SHARED_SIZE = 100
"""Called functions of more instructions than this are not copied to every call."""

_MET = ("tcgen05.alloc", "tcgen05.dealloc", "tcgen05.relinquish_alloc_permit", "wgmma", "bar.red", "barrier.red")
"""Warps come to these as a whole, and some stay there: a predicate is a branch around them."""


@dataclass
class _Shared:
    """A function whose body stands once: its label, the register with the number of the call that it returns to,
    the branch table of those, and the variables of its parameters."""

    function: ast.Function
    entry: str
    back: str
    table: str
    formals: dict[str, str]
    calls: list[str] = field(default_factory=list)


class Loader:
    """Flattens a kernel: renames what scopes declare, puts called functions in place."""

    def __init__(self, module: ast.Module, entry: ast.Function) -> None:
        self.program = Program(module, entry)
        self.module = module
        self._serial = 0
        self._inlining: list[str] = []
        self._shared: dict[str, _Shared] = {}
        self._graph = CallGraph(module)

    def load(self) -> Program:
        program = self.program
        root = Scope(None, "")
        for v in self.module.variables:
            unique = v.name
            program.variables[unique] = Variable(v.space, unique, v.size, v.align, 0, v)
            root.names[v.name] = unique
        scope = Scope(root, "")
        offset = 0
        for p in program.entry.params:
            offset = -(-offset // p.align) * p.align
            program.variables[p.name] = Variable("kernelparam", p.name, p.size, p.align, offset)
            scope.names[p.name] = p.name
            offset += p.size
        self._body(program.entry.body or (), scope, None)
        self._place_shared(root)
        place_variables(program)
        split(program)
        liveness(program)
        return program

    # Flattening ---------------------------------------------------------------------------------------

    def _unique(self, name: str) -> str:
        self._serial += 1
        return f"{name}@{self._serial}"

    def _declare(self, body: tuple[ast.Statement, ...], scope: Scope, top: bool) -> None:
        program = self.program
        for s in body:
            if isinstance(s, ast.RegDecl):
                unique = s.name if top else self._unique(s.name)
                vector, _, element_type = s.type.rpartition(".")
                width = type_width(element_type)
                if vector:
                    # A vector register is its elements; each may be named on its own (PTX ISA 5.4.2, 6.4.1).
                    scope.names[s.name] = unique
                    program.vectors[unique] = tuple(f"{unique}.{axis}" for axis in "xyzw"[: int(vector[1])])
                    for axis, element in zip("xyzw", program.vectors[unique], strict=False):
                        program.widths[element] = width
                        scope.names[f"{s.name}.{axis}"] = element
                elif s.count is None:
                    scope.names[s.name] = unique
                    program.widths[unique] = width
                else:
                    family = s.name if top else unique + "#"
                    scope.families[s.name] = (family, width)
                    for i in range(s.count):
                        program.widths[f"{family}{i}"] = width
            elif isinstance(s, ast.VarDecl):
                unique = s.name if top and s.name not in program.variables else self._unique(s.name)
                space = "local" if s.space == "param" else s.space
                program.variables[unique] = Variable(space, unique, s.size, s.align, 0, s)
                scope.names[s.name] = unique
            elif isinstance(s, ast.Label):
                scope.names[s.name] = s.name if top else self._unique(s.name)
            elif isinstance(s, ast.BranchTargets):
                unique = s.name if top else self._unique(s.name)
                scope.names[s.name] = unique

    def _body(self, body: tuple[ast.Statement, ...], scope: Scope, exit_label: str | None) -> None:
        program = self.program
        self._declare(body, scope, top=scope.prefix == "" and scope.parent is not None and scope.parent.parent is None)
        for s in body:
            if isinstance(s, ast.Instruction):
                self._instruction(s, scope, exit_label)
            elif isinstance(s, ast.Label):
                program.labels[scope.names[s.name]] = len(program.code)
            elif isinstance(s, ast.Block):
                self._body(s.body, Scope(scope, scope.prefix + "/"), exit_label)
            elif isinstance(s, ast.BranchTargets):
                items = tuple(scope.find(i) or i for i in s.items)
                program.tables[scope.names[s.name]] = items

    def _instruction(self, ins: ast.Instruction, scope: Scope, exit_label: str | None) -> None:
        guard = ins.guard
        if guard is not None:
            guard = ast.Guard(self._operand(guard.operand, scope), guard.negated)
        if ins.parts[0] == "call":
            self._call(ins, scope, guard)
        elif ins.parts[0] == "ret" and exit_label is not None:
            self._add(ins, "bra", ast.Sym(exit_label), guard=guard)
        else:
            self._place(ins, scope, guard)

    def _place(self, ins: ast.Instruction, scope: Scope, guard: ast.Guard | None) -> None:
        operands = tuple(self._operand(o, scope) for o in ins.operands)
        if guard is None or not ins.opcode.startswith(_MET):
            named = operands == ins.operands and guard == ins.guard
            self._append(ins if named else replace(ins, operands=operands, guard=guard))
            return
        behind = self._unique("behind")
        self._add(ins, "bra", ast.Sym(behind), guard=ast.Guard(guard.operand, not guard.negated))
        self._append(replace(ins, operands=operands, guard=None))
        self.program.labels[behind] = len(self.program.code)

    def _append(self, ins: ast.Instruction) -> None:
        """The instruction as the table reads it, a register of 128 bits as the vector of its halves, lower first."""
        found = find(ins) or find(ins, any_value=True) or Decoded(**vars(ins))
        if any(self._is_wide(o) for o in found.operands):
            bound = tuple((row, self._halved(o)) for row, o in found.bound)
            found = replace(found, operands=tuple(map(self._halved, found.operands)), bound=bound)
        self.program.code.append(found)

    def _is_wide(self, op: ast.Operand) -> bool:
        return isinstance(op, ast.Reg) and self.program.widths.get(op.name) == 128

    def _halved(self, op: ast.Operand) -> ast.Operand:
        if not isinstance(op, ast.Reg) or not self._is_wide(op):
            return op
        halves = (f"{op.name}.lo", f"{op.name}.hi")
        self.program.widths.update(dict.fromkeys(halves, 64))
        return ast.Vec(tuple(ast.Reg(half) for half in halves))

    def _register(self, name: str) -> ast.Operand:
        """A register; a vector register as the vector of its elements."""
        elements = self.program.vectors.get(name)
        return ast.Reg(name) if elements is None else ast.Vec(tuple(ast.Reg(element) for element in elements))

    def _operand(self, op: ast.Operand, scope: Scope) -> ast.Operand:
        if isinstance(op, ast.Reg):
            found = scope.find(op.name)
            if found is None:
                return ast.Reg("?" + op.name)
            return self._register(found)
        if isinstance(op, ast.Sym):
            found = scope.find(op.name)
            if found is None:
                return op
            known = found in self.program.widths or found in self.program.vectors
            return self._register(found) if known else ast.Sym(found, op.offset)
        if isinstance(op, ast.Mem):
            return ast.Mem(self._operand(op.base, scope), op.offset, tuple(self._operand(p, scope) for p in op.parts))
        if isinstance(op, ast.Vec):
            return ast.Vec(tuple(self._operand(i, scope) for i in op.items))
        if isinstance(op, ast.Pair):
            return ast.Pair(self._operand(op.first, scope), self._operand(op.second, scope))
        if isinstance(op, ast.Neg):
            return ast.Neg(op.op, self._operand(op.operand, scope))
        return op

    def _add(self, ins: ast.Instruction, opcode: str, *operands: ast.Operand, guard: ast.Guard | None = None) -> None:
        """One more instruction, in the place of a call."""
        parts = tuple(opcode.split("."))
        self._append(ast.Instruction(opcode, parts, operands, guard, ins.line, ins.loc, ins.text))

    def _call(self, ins: ast.Instruction, scope: Scope, guard: ast.Guard | None) -> None:
        """Put the called function's body here. What cannot be inlined stays as a `call` instruction."""
        code = self.program.code
        found = find(ins)
        target = found["target"] if found is not None else None
        function = self._graph.defined.get(target.name) if isinstance(target, ast.Sym) else None
        if found is None or function is None:
            self._place(ins, scope, guard)
            return
        name = function.name
        if name in self._inlining or len(self._inlining) > 40 or len(code) > 2_000_000:
            self._place(ins, scope, guard)
            return
        returns, arguments = (items(found[list_]) if list_ in found else () for list_ in ("results", "arguments"))
        scalars = all(p.size in (1, 2, 4, 8) for p in (*function.params, *function.returns))
        if scalars and self._graph.size(name) > _SHARED_SIZE and not self._graph.recurses(name):
            self._call_shared(function, ins, scope, arguments, returns, guard)
            return
        self._inlining.append(name)
        root = scope
        while root.parent is not None:
            root = root.parent
        inner = Scope(root, "call/")
        end = self._unique("return")
        if guard is not None:
            self._add(ins, "bra", ast.Sym(end), guard=ast.Guard(guard.operand, not guard.negated))
        for formal, actual in [
            *zip(function.params, arguments, strict=False),
            *zip(function.returns, returns, strict=False),
        ]:
            resolved = self._operand(actual, scope)
            if isinstance(resolved, ast.Sym) and resolved.name in self.program.variables:
                inner.names[formal.name] = resolved.name
            else:
                unique = self._unique(formal.name)
                self.program.variables[unique] = Variable("local", unique, formal.size, formal.align)
                inner.names[formal.name] = unique
                self._add(ins, f"st.param.b{8 * formal.size}", ast.Mem(ast.Sym(unique)), resolved)
        self._body(function.body or (), inner, end)
        self.program.labels[end] = len(code)
        self._inlining.pop()

    # Large functions: one body for all calls ------------------------------------------------------------

    def _call_shared(
        self,
        function: ast.Function,
        ins: ast.Instruction,
        scope: Scope,
        arguments: tuple[ast.Operand, ...],
        returns: tuple[ast.Operand, ...],
        guard: ast.Guard | None,
    ) -> None:
        """A jump to the function's only body, which jumps back by the number of the call.

        As nothing recurses, a thread is in a function once at most, so its registers and variables need no stack.
        """
        shared = self._shared.get(function.name)
        if shared is None:
            back = self._unique("back")
            self.program.widths[back] = 32
            formals = {p.name: self._unique(p.name) for p in (*function.params, *function.returns)}
            for p in (*function.params, *function.returns):
                name = formals[p.name]
                self.program.variables[name] = Variable("local", name, p.size, p.align)
            shared = _Shared(function, self._unique("function"), back, self._unique("table"), formals)
            self._shared[function.name] = shared
        code = self.program.code
        add = partial(self._add, ins)

        def move(to: ast.Operand, origin: ast.Operand, size: int) -> None:
            register = origin
            if not isinstance(origin, (ast.Reg, ast.Imm)):
                name = self._unique("moved")
                self.program.widths[name] = max(8 * size, 16)
                register = ast.Reg(name)
                add(f"ld.param.b{8 * size}", register, ast.Mem(origin))
            if isinstance(to, ast.Reg):
                add(f"mov.b{max(8 * size, 16)}", to, register)
            else:
                add(f"st.param.b{8 * size}", ast.Mem(to), register)

        end = self._unique("return")
        if guard is not None:
            add("bra", ast.Sym(end), guard=ast.Guard(guard.operand, not guard.negated))
        for p, actual in zip(function.params, arguments, strict=False):
            move(ast.Sym(shared.formals[p.name]), self._operand(actual, scope), p.size)
        label = self._unique("after")
        add("mov.u32", ast.Reg(shared.back), ast.Imm(len(shared.calls)))
        self.program.calls[len(code)] = label
        add("bra", ast.Sym(shared.entry))
        shared.calls.append(label)
        self.program.labels[label] = len(code)
        for p, actual in zip(function.returns, returns, strict=False):
            move(self._operand(actual, scope), ast.Sym(shared.formals[p.name]), p.size)
        self.program.labels[end] = len(code)

    def _place_shared(self, root: Scope) -> None:
        """The bodies of shared functions, behind the kernel's own code. They may call further ones."""
        placed: set[str] = set()
        while missing := [s for name, s in self._shared.items() if name not in placed]:
            shared = missing[0]
            placed.add(shared.function.name)
            code = self.program.code
            self._append(ast.Instruction("ret", ("ret",), ()))
            self.program.labels[shared.entry] = len(code)
            inner = Scope(root, "call/")
            inner.names.update(shared.formals)
            end = self._unique("return")
            self._inlining = [shared.function.name]
            self._body(shared.function.body or (), inner, end)
            self._inlining = []
            self.program.labels[end] = len(code)
            self.program.backs.add(len(code))
            self._append(ast.Instruction("brx.idx", ("brx", "idx"), (ast.Reg(shared.back), ast.Sym(shared.table))))
        for shared in self._shared.values():
            self.program.tables[shared.table] = tuple(shared.calls)


_RECENT: deque[Program] = deque(maxlen=8)


def load_program(module: ast.Module, entry: str) -> Program:
    """The kernel `entry` of a module; nobody changes it. Raises KeyError if it has none of that name."""
    for program in _RECENT:
        if program.module is module and program.entry.name == entry:
            return program
    function = module.function(entry)
    program = Loader(module, function).load()
    _RECENT.append(program)
    return program
