# SPDX-License-Identifier: Apache-2.0
"""One kernel of a PTX module, made ready to execute: scopes resolved, functions inlined, split into blocks.

A block is a straight line of instructions. It ends where control may leave it, and it begins anew before an
instruction that the threads of a warp execute together or that may have to wait: such an instruction *leads*
its block, so that its threads can stay there until it may go on.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from porter.ptx import ast
from porter.sim.operand_registers import uses_and_defs

EXIT = 1 << 20
"""The block number that means "this thread has ended"."""

_NUMBERED = re.compile(r"^(.*?)(\d+)$")

# The leading instructions. "warp": executed by all the warp's threads (or its member mask) together.
# "wait": may have to wait. "group": executed by the four warps of a warpgroup together.
_WARP_HEADS = frozenset(
    ("shfl", "vote", "match", "redux", "elect", "ldmatrix", "stmatrix", "movmatrix", "mma", "setmaxnreg")
)
_ENDS = frozenset(("bra", "brx", "ret", "exit", "trap", "brkpt"))


def leading(ins: ast.Instruction) -> str:
    """ "" (ordinary), "warp", "wait" or "group": how an instruction leads its block."""
    p = ins.parts
    head = p[0]
    if head in _WARP_HEADS:
        return "warp"
    if head == "bar" or head == "barrier":
        if p[1] == "warp":
            return "warp"
        return "wait" if p[1] == "red" or (head == "barrier" and p[1] == "cta" and p[2] == "red") else ""
    if head == "mbarrier" and p[1] in ("try_wait", "test_wait"):
        return "wait"
    if head == "wgmma":
        return "group" if p[1] == "mma_async" else "warp"
    if head == "tcgen05":
        if p[1] == "alloc":
            return "wait"
        if p[1] in ("ld", "st", "dealloc", "relinquish_alloc_permit", "wait::ld", "wait::st"):
            return "warp"
    return ""


def _ends_block(ins: ast.Instruction) -> bool:
    p = ins.parts
    if p[0] in _ENDS:
        return True
    if p[0] in ("bar", "barrier"):
        return p[1] != "warp" and "arrive" not in p and "red" not in p
    return False


@dataclass
class Variable:
    """A named piece of memory of a kernel: `offset` within its state space."""

    space: str
    name: str
    size: int
    align: int
    offset: int = 0
    decl: ast.VarDecl | None = None


@dataclass
class BasicBlock:
    """Instructions `start` to `end` (exclusive). `succ` are block numbers; `label`: it is a target."""

    number: int
    start: int
    end: int
    lead: str
    label: bool
    succ: tuple[int, ...] = ()
    live_in: frozenset[str] = frozenset()
    live_out: frozenset[str] = frozenset()


@dataclass
class Program:
    """A kernel ready to execute.

    `widths` maps register names to bits (1 for predicates), `vectors` those of vector registers to their
    elements. `variables` holds shared, local, param and
    module-scope variables under their unique names. `shared_size`, `local_size` are bytes; `dynamic_offset`
    is where dynamic shared memory begins.
    """

    module: ast.Module
    entry: ast.Function
    code: list[ast.Instruction] = field(default_factory=list)
    widths: dict[str, int] = field(default_factory=dict)
    vectors: dict[str, tuple[str, ...]] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    blocks: list[BasicBlock] = field(default_factory=list)
    block_at: dict[int, int] = field(default_factory=dict)
    local_size: int = 0
    shared_size: int = 0
    dynamic_offset: int = 0
    notes: dict[int, str] = field(default_factory=dict)
    # Jumps into functions that stand once, with the label behind the call, and the jumps back.
    calls: dict[int, str] = field(default_factory=dict)
    backs: set[int] = field(default_factory=set)

    def block_of_label(self, name: str) -> int:
        at = self.labels[name]
        return EXIT if at >= len(self.code) else self.block_at[at]


def type_width(type_name: str) -> int:
    """Bits of a register type such as `b32`, `f16x2`, `pred`."""
    if type_name == "pred":
        return 1
    if type_name in ("f16x2", "bf16x2"):
        return 32
    digits = re.search(r"(\d+)(x\d+)?$", type_name)
    if digits is None:
        raise ValueError(type_name)
    width = int(digits.group(1)) * int((digits.group(2) or "x1")[1:])
    return max(width, 16)


class _Scope:
    def __init__(self, parent: _Scope | None, prefix: str) -> None:
        self.parent = parent
        self.prefix = prefix
        self.names: dict[str, str] = {}
        self.families: dict[str, tuple[str, int]] = {}

    def find(self, name: str) -> str | None:
        scope: _Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            if scope.families:
                m = _NUMBERED.match(name)
                # `%r<12>` declares %r0 to %r11; the stem may itself end in a digit (`%f1<4>`).
                stem = m.group(1) if m else name
                rest = name[len(stem) :]
                while rest:
                    family = scope.families.get(stem)
                    if family is not None:
                        return family[0] + rest
                    stem, rest = stem + rest[0], rest[1:]
            scope = scope.parent
        return None


_SHARED_SIZE = 100
"""Called functions of more instructions than this are not copied to every call."""


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


def _instructions(body: tuple[ast.Statement, ...]) -> int:
    return sum(_instructions(s.body) if isinstance(s, ast.Block) else isinstance(s, ast.Instruction) for s in body)


def _called(body: tuple[ast.Statement, ...]) -> Iterator[str]:
    for s in body:
        if isinstance(s, ast.Block):
            yield from _called(s.body)
        elif isinstance(s, ast.Instruction) and s.parts[0] == "call":
            yield from (o.name for o in s.operands if isinstance(o, ast.Sym))


class Loader:
    """Flattens a kernel: renames what scopes declare, puts called functions in place."""

    def __init__(self, module: ast.Module, entry: ast.Function) -> None:
        self.program = Program(module, entry)
        self.module = module
        self._serial = 0
        self._inlining: list[str] = []
        self._shared: dict[str, _Shared] = {}
        self._sizes: dict[str, int] = {}
        self._calls: dict[str, frozenset[str]] = {}

    def load(self) -> Program:
        program = self.program
        root = _Scope(None, "")
        for v in self.module.variables:
            unique = v.name
            program.variables[unique] = Variable(v.space, unique, v.size, v.align, 0, v)
            root.names[v.name] = unique
        scope = _Scope(root, "")
        offset = 0
        for p in program.entry.params:
            offset = -(-offset // p.align) * p.align
            program.variables[p.name] = Variable("kernelparam", p.name, p.size, p.align, offset)
            scope.names[p.name] = p.name
            offset += p.size
        self._body(program.entry.body or (), scope, None)
        self._place_shared(root)
        self._place()
        split(program)
        liveness(program)
        return program

    # Flattening ---------------------------------------------------------------------------------------

    def _unique(self, name: str) -> str:
        self._serial += 1
        return f"{name}@{self._serial}"

    def _declare(self, body: tuple[ast.Statement, ...], scope: _Scope, top: bool) -> None:
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

    def _body(self, body: tuple[ast.Statement, ...], scope: _Scope, exit_label: str | None) -> None:
        program = self.program
        self._declare(body, scope, top=scope.prefix == "" and scope.parent is not None and scope.parent.parent is None)
        for s in body:
            if isinstance(s, ast.Instruction):
                self._instruction(s, scope, exit_label)
            elif isinstance(s, ast.Label):
                program.labels[scope.names[s.name]] = len(program.code)
            elif isinstance(s, ast.Block):
                self._body(s.body, _Scope(scope, scope.prefix + "/"), exit_label)
            elif isinstance(s, ast.BranchTargets):
                items = tuple(scope.find(i) or i for i in s.items)
                program.tables[scope.names[s.name]] = items

    def _instruction(self, ins: ast.Instruction, scope: _Scope, exit_label: str | None) -> None:
        code = self.program.code
        if ins.parts[0] == "call":
            self._call(ins, scope)
            return
        guard = ins.guard
        if guard is not None:
            guard = ast.Guard(self._operand(guard.operand, scope), guard.negated)
        if ins.parts[0] == "ret" and exit_label is not None:
            code.append(replace(ins, opcode="bra", parts=("bra",), operands=(ast.Sym(exit_label),), guard=guard))
            return
        operands = tuple(self._operand(o, scope) for o in ins.operands)
        code.append(replace(ins, operands=operands, guard=guard))

    def _register(self, name: str) -> ast.Operand:
        """A register; a vector register as the vector of its elements, one of 128 bits as that of its two
        halves, lower first."""
        widths = self.program.widths
        elements = self.program.vectors.get(name)
        if elements is not None:
            return ast.Vec(tuple(ast.Reg(element) for element in elements))
        if widths.get(name) != 128:
            return ast.Reg(name)
        halves = (f"{name}.lo", f"{name}.hi")
        widths.update(dict.fromkeys(halves, 64))
        return ast.Vec(tuple(ast.Reg(half) for half in halves))

    def _operand(self, op: ast.Operand, scope: _Scope) -> ast.Operand:
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
            return self._register(found) if known else ast.Sym(found)
        if isinstance(op, ast.Mem):
            return ast.Mem(self._operand(op.base, scope), op.offset, tuple(self._operand(p, scope) for p in op.parts))
        if isinstance(op, ast.Vec):
            return ast.Vec(tuple(self._operand(i, scope) for i in op.items))
        if isinstance(op, ast.Pair):
            return ast.Pair(self._operand(op.first, scope), self._operand(op.second, scope))
        if isinstance(op, ast.Neg):
            return ast.Neg(op.op, self._operand(op.operand, scope))
        return op

    def _call(self, ins: ast.Instruction, scope: _Scope) -> None:
        """Put the called function's body here. What cannot be inlined stays as a `call` instruction."""
        code = self.program.code
        vecs = [o for o in ins.operands if isinstance(o, ast.Vec)]
        names = [o for o in ins.operands if not isinstance(o, ast.Vec)]
        target = names[0].name if names and isinstance(names[0], ast.Sym) else ""
        first_is_vec = bool(ins.operands) and isinstance(ins.operands[0], ast.Vec)
        returns = vecs[0].items if first_is_vec else ()
        arguments = vecs[1 if first_is_vec else 0].items if len(vecs) > (1 if first_is_vec else 0) else ()
        guard = ins.guard
        if guard is not None:
            guard = ast.Guard(self._operand(guard.operand, scope), guard.negated)
        try:
            function = self.module.function(target)
        except KeyError:
            operands = (
                ast.Sym(target),
                self._operand(ast.Vec(returns), scope),
                self._operand(ast.Vec(arguments), scope),
            )
            code.append(replace(ins, opcode="call", parts=("call",), operands=operands, guard=guard))
            return
        if target in self._inlining or len(self._inlining) > 40 or len(code) > 2_000_000:
            code.append(
                replace(
                    ins,
                    opcode="call.recursive",
                    parts=("call", "recursive"),
                    operands=(ast.Sym(target),),
                    guard=guard,
                )
            )
            return
        scalars = all(p.size in (1, 2, 4, 8) for p in (*function.params, *function.returns))
        if scalars and self._size(target, function) > _SHARED_SIZE and not self._recurses(target):
            self._call_shared(function, ins, scope, arguments, returns, guard)
            return
        self._inlining.append(target)
        root = scope
        while root.parent is not None:
            root = root.parent
        inner = _Scope(root, "call/")
        end = self._unique("return")
        if guard is not None:
            code.append(
                ast.Instruction(
                    "bra",
                    ("bra",),
                    (ast.Sym(end),),
                    ast.Guard(guard.operand, not guard.negated),
                    ins.line,
                    ins.loc,
                    ins.text,
                )
            )
        for formal, actual in [
            *zip(function.params, arguments, strict=False),
            *zip(function.returns, returns, strict=False),
        ]:
            resolved = self._operand(actual, scope)
            formal_type = f"b{8 * formal.size}"
            if isinstance(resolved, ast.Sym) and resolved.name in self.program.variables:
                inner.names[formal.name] = resolved.name
            else:
                unique = self._unique(formal.name)
                self.program.variables[unique] = Variable("local", unique, formal.size, formal.align)
                inner.names[formal.name] = unique
                code.append(
                    ast.Instruction(
                        f"st.param.{formal_type}",
                        ("st", "param", formal_type),
                        (ast.Mem(ast.Sym(unique)), resolved),
                        None,
                        ins.line,
                        ins.loc,
                        ins.text,
                    )
                )
        self._body(function.body or (), inner, end)
        self.program.labels[end] = len(code)
        self._inlining.pop()

    # Large functions: one body for all calls ------------------------------------------------------------

    def _size(self, name: str, function: ast.Function) -> int:
        if name not in self._sizes:
            self._sizes[name] = _instructions(function.body or ())
        return self._sizes[name]

    def _recurses(self, name: str) -> bool:
        """Whether a function comes back to itself."""
        seen: set[str] = set()
        work = [name]
        while work:
            for callee in self._callees(work.pop()):
                if callee == name:
                    return True
                if callee not in seen:
                    seen.add(callee)
                    work.append(callee)
        return False

    def _callees(self, name: str) -> frozenset[str]:
        if name not in self._calls:
            try:
                body = self.module.function(name).body
            except KeyError:
                body = None
            self._calls[name] = frozenset(_called(body or ()))
        return self._calls[name]

    def _call_shared(
        self,
        function: ast.Function,
        ins: ast.Instruction,
        scope: _Scope,
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

        def add(opcode: str, *operands: ast.Operand, guard: ast.Guard | None = None) -> None:
            code.append(ast.Instruction(opcode, tuple(opcode.split(".")), operands, guard, ins.line, ins.loc, ins.text))

        def move(to: ast.Operand, origin: ast.Operand, size: int) -> None:
            register = origin
            if not isinstance(origin, (ast.Reg, ast.Imm)):
                name = self._unique("moved")
                self.program.widths[name] = max(8 * size, 16)
                register = ast.Reg(name)
                add(f"ld.param.b{8 * size}", register, ast.Mem(origin))
            if isinstance(to, ast.Reg):
                add(f"mov.b{8 * size}", to, register)
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

    def _place_shared(self, root: _Scope) -> None:
        """The bodies of shared functions, behind the kernel's own code. They may call further ones."""
        placed: set[str] = set()
        while missing := [s for name, s in self._shared.items() if name not in placed]:
            shared = missing[0]
            placed.add(shared.function.name)
            code = self.program.code
            code.append(ast.Instruction("ret", ("ret",), ()))
            self.program.labels[shared.entry] = len(code)
            inner = _Scope(root, "call/")
            inner.names.update(shared.formals)
            end = self._unique("return")
            self._inlining = [shared.function.name]
            self._body(shared.function.body or (), inner, end)
            self._inlining = []
            self.program.labels[end] = len(code)
            operands = (ast.Reg(shared.back), ast.Sym(shared.table))
            self.program.backs.add(len(code))
            code.append(ast.Instruction("brx.idx", ("brx", "idx"), operands))
        for shared in self._shared.values():
            self.program.tables[shared.table] = tuple(shared.calls)

    # Memory layout ------------------------------------------------------------------------------------

    def _place(self) -> None:
        program = self.program
        shared = 0
        dynamic_align = 16
        for v in program.variables.values():
            if v.space == "shared" and not (v.decl is not None and v.decl.extern):
                if not self._is_used(v):
                    continue
                shared = -(-shared // v.align) * v.align
                v.offset = shared
                shared += v.size
            elif v.space == "shared":
                dynamic_align = max(dynamic_align, v.align)
            elif v.space == "local":
                program.local_size = -(-program.local_size // max(v.align, 1)) * max(v.align, 1)
                v.offset = program.local_size
                program.local_size += v.size
        program.shared_size = shared
        program.dynamic_offset = -(-shared // dynamic_align) * dynamic_align
        for v in program.variables.values():
            if v.space == "shared" and v.decl is not None and v.decl.extern:
                v.offset = program.dynamic_offset

    def _is_used(self, v: Variable) -> bool:
        """Shared variables of module scope count for a kernel only if it names them."""
        if not hasattr(self, "_named"):
            named: set[str] = set()

            def walk(op: ast.Operand) -> None:
                if isinstance(op, ast.Sym):
                    named.add(op.name)
                elif isinstance(op, ast.Mem):
                    walk(op.base)
                elif isinstance(op, ast.Vec):
                    for i in op.items:
                        walk(i)

            for ins in self.program.code:
                for op in ins.operands:
                    walk(op)
            self._named = named
        return v.name in self._named


def split(program: Program) -> None:
    """Divide the code into blocks and link them."""
    code = program.code
    targets = {at for at in program.labels.values() if at < len(code)}
    starts = {0, *targets}
    for i, ins in enumerate(code):
        if leading(ins):
            starts.add(i)
        if _ends_block(ins):
            starts.add(i + 1)
    order = sorted(s for s in starts if s < len(code))
    for number, start in enumerate(order):
        end = order[number + 1] if number + 1 < len(order) else len(code)
        program.blocks.append(BasicBlock(number, start, end, leading(code[start]), start in targets))
        program.block_at[start] = number
    for b in program.blocks:
        last = code[b.end - 1]
        following = b.number + 1 if b.number + 1 < len(program.blocks) else EXIT
        head = last.parts[0]
        if head == "bra":
            name = last.operands[0]
            assert isinstance(name, ast.Sym)
            if name.name not in program.labels:
                raise ValueError(f"branch to unknown label {name.name} (PTX line {last.line})")
            target = program.block_of_label(name.name)
            b.succ = (target,) if last.guard is None else (target, following)
        elif head == "brx":
            table = last.operands[1]
            assert isinstance(table, ast.Sym)
            b.succ = tuple(program.block_of_label(t) for t in program.tables.get(table.name, ()))
            if last.guard is not None:
                b.succ += (following,)
        elif head in ("ret", "exit", "trap"):
            b.succ = (EXIT,) if last.guard is None else (EXIT, following)
        else:
            b.succ = (following,)


def liveness(program: Program) -> None:
    """Registers live into and out of each block."""
    gen: list[set[str]] = []
    kill: list[set[str]] = []
    for b in program.blocks:
        g: set[str] = set()
        k: set[str] = set()
        for ins in program.code[b.start : b.end]:
            uses, defs = uses_and_defs(ins)
            g.update(u for u in uses if u not in k)
            k.update(defs)
        gen.append(g)
        kill.append(k)
    # A function has registers of its own: those of a caller live past the call, not through the function.
    following: list[tuple[int, ...]] = []
    preds: list[list[int]] = [[] for _ in program.blocks]
    for b in program.blocks:
        after = program.calls.get(b.end - 1)
        succ = b.succ if after is None else (*b.succ, program.block_of_label(after))
        following.append(() if b.end - 1 in program.backs else tuple(s for s in succ if s != EXIT))
        for s in following[-1]:
            preds[s].append(b.number)
    live_in: list[set[str]] = [set(g) for g in gen]
    live_out: list[set[str]] = [set() for _ in gen]
    work = list(range(len(gen)))
    queued = [True] * len(gen)
    while work:
        n = work.pop()
        queued[n] = False
        out: set[str] = set()
        for s in following[n]:
            out |= live_in[s]
        live_out[n] = out
        new = gen[n] | (out - kill[n])
        if len(new) != len(live_in[n]):
            live_in[n] = new
            for q in preds[n]:
                if not queued[q]:
                    queued[q] = True
                    work.append(q)
    for b in program.blocks:
        b.live_in = frozenset(live_in[b.number])
        b.live_out = frozenset(live_out[b.number])


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
