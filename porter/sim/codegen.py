# SPDX-License-Identifier: Apache-2.0
"""Turns the blocks of a program into Python functions over many warps at once.

A generated function takes the machine `M`, the register arrays `R`, the selected warps `idx` (a slice or an
index array), their number `n` and the active lanes `mask`. Inside, every PTX register is a NumPy array that
broadcasts to [n, 32] (a scalar or [n, 1] when the value is known to be uniform); registers that live beyond
the block are gathered from `R` when first read and scattered to it at the end.

There are two versions of each block: *converged* (`mask` is None: all 32 lanes of all selected warps are
there; it runs on through following blocks that only gather a warp's threads) and *general*.

Functions return `(idx, mask, next)`, or None if every selected thread stays at this block. `next` is a block
number, `(predicate, if_true, if_false)`, an array of block numbers, or None if the machine was already told.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from porter.ptx import ast
from porter.ptx.table import Decoded, items
from porter.sim.kinds import DTYPES, WIDTH_OF, WIDTHS, Unsupported, kind_of, plain
from porter.sim.machine import Machine
from porter.sim.program import Program
from porter.sim.rounding import float_bits

F = TypeVar("F", bound=Callable[..., Any])
Emitter = Callable[["Context", Decoded], None]
EMITTERS: dict[str, Emitter] = {}
RUNTIME: dict[str, Any] = {"np": np, "where": np.where, **{f"t_{k}": t for k, t in DTYPES.items()}}


def emits(*names: str) -> Callable[[Emitter], Emitter]:
    """Registers the code generator for instructions whose first opcode part (or first two) is a name."""

    def register(fn: Emitter) -> Emitter:
        for name in names:
            EMITTERS[name] = fn
        return fn

    return register


def runtime(fn: F) -> F:
    """Makes a function callable, by its name, from generated code."""
    RUNTIME[fn.__name__] = fn
    return fn


class Value:
    """What a register holds at a point of a block: names of local variables, one per kind it was needed in.

    `origin` is the register whose storage the arrays may alias. `computed` says that the first form is a
    floating-point result, whose NaN is to be made canonical when its bits are taken.
    """

    __slots__ = ("computed", "forms", "origin", "width")

    def __init__(self, width: int, forms: dict[str, str], origin: str | None = None, computed: bool = False) -> None:
        self.width = width
        self.forms = forms
        self.origin = origin
        self.computed = computed


class Unit:
    """What the functions of one program share. Addresses and parameters are constants of the code."""

    def __init__(self, program: Program, machine: Machine) -> None:
        self.program = program
        self.machine = machine
        self.namespace: dict[str, Any] = dict(RUNTIME)
        self.slots: dict[str, int] = {}
        self.slot_widths: list[int] = []
        # Registers that wgmma writes some time after it was issued, and copies of them.
        self.fragments: frozenset[str] = frozenset()


class Context:
    """Code generation for one function: a chain of blocks in one of the two versions."""

    def __init__(self, unit: Unit, converged: bool) -> None:
        self.unit = unit
        self.machine = unit.machine
        self.program = unit.program
        self.converged = converged
        self.lines: list[str] = []
        self.env: dict[str, Value] = {}
        self.dirty: set[str] = set()
        self.ins = self.program.code[0]
        self.guard: str | None = None
        self.leads = False
        self.at = 0
        self._names = 0
        self._shared_base: str | None = None
        self._settled = False

    # Text ---------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, expr: str) -> str:
        """A fresh local variable for an expression."""
        self._names += 1
        name = f"v{self._names}"
        self.lines.append(f"  {name} = {expr}")
        return name

    def const(self, kind: str, value: int | float) -> str:
        """The name of a NumPy scalar."""
        if kind == "p":
            return "t_p(1)" if value else "t_p(0)"
        if kind[0] == "f":
            bits = int(np.array(value, DTYPES[kind]).view(f"u{WIDTH_OF[kind] // 8}"))
        else:
            bits = int(value) & ((1 << WIDTH_OF[kind]) - 1)
        return self.const_bits(kind, bits)

    def const_bits(self, kind: str, bits: int) -> str:
        name = f"c_{kind}_{bits:x}"
        ns = self.unit.namespace
        if name not in ns:
            unsigned = np.array(bits, f"u{WIDTH_OF[kind] // 8}")
            ns[name] = unsigned.view(DTYPES[kind])[()]
        return name

    def constant(self, prefix: str, value: Any) -> str:
        """The name of something that the current instruction says once for all threads."""
        name = f"{prefix}_{self.at}"
        self.unit.namespace[name] = value
        return name

    def integer(self, op: ast.Operand) -> int:
        """The value of an operand that has to be an immediate."""
        if not isinstance(op, ast.Imm):
            raise Unsupported("an immediate is needed")
        return int(op.value)

    # Registers ----------------------------------------------------------------------------------------

    def width(self, register: str) -> int:
        width = self.program.widths.get(register)
        if width is None or width not in WIDTHS:
            raise Unsupported(f"register {register}" + (f" of {width} bits" if width else " is not declared"))
        return width

    def value(self, register: str) -> Value:
        found = self.env.get(register)
        if found is None:
            width = self.width(register)
            kind = "p" if width == 1 else f"u{width}"
            slot = self.unit.slots.get(register)
            if slot is None:
                found = Value(width, {kind: self.const(kind, 0)})
            else:
                self.settle(register)
                found = Value(width, {kind: self.let(f"R[{slot}][idx]")}, register)
            self.env[register] = found
        return found

    def form(self, value: Value, kind: str) -> str:
        """The value in a kind: same bits, or zero-/sign-extended or truncated if widths differ."""
        found = value.forms.get(kind)
        if found is not None:
            return found
        width = WIDTH_OF[kind]
        if kind == "p" or value.width == 1:
            raise Unsupported("a predicate where a number belongs, or the reverse")
        base = value.forms.get(f"u{value.width}")
        if base is None:
            first = next(iter(value.forms.values()))
            base = self.let(f"float_bits({first})" if value.computed else f"{first}.view(t_u{value.width})")
            value.forms[f"u{value.width}"] = base
            if kind == f"u{value.width}":
                return base
        if width == value.width:
            name = self.let(f"{base}.view(t_{kind})")
        elif width < value.width:
            name = self.let(f"{base}.astype(t_u{width})")
            if kind[0] != "u":
                name = self.let(f"{name}.view(t_{kind})")
        elif kind[0] == "f":
            raise Unsupported("a float operand in a narrower register")
        elif kind[0] == "s":
            name = self.let(f"{base}.view(t_s{value.width}).astype(t_{kind})")
        else:
            name = self.let(f"{base}.astype(t_{kind})")
        value.forms[kind] = name
        return name

    def src(self, op: ast.Operand, kind: str) -> str:
        """An expression for a source operand in a kind."""
        if isinstance(op, ast.Reg):
            if op.name.startswith("?"):
                raise Unsupported(f"register {op.name[1:]} is not declared")
            m = op.name
            return self.form(self.value(m), kind)
        if isinstance(op, ast.Imm):
            return self.immediate(op, kind)
        if isinstance(op, ast.SpecialReg):
            return self.special(op.name, kind)
        if isinstance(op, ast.Neg):
            inner = self.src(op.operand, kind)
            return f"(~{inner})" if op.op == "!" and kind == "p" else f"(-{inner})"
        if isinstance(op, ast.Sym):
            return self.symbol(op.name, op.offset, kind)
        if isinstance(op, ast.Mem) and not op.parts:
            return self.addr(op, kind)
        raise Unsupported(f"operand {op}")

    def bits(self, op: ast.Operand, kind: str) -> str:
        """A source operand to copy; a float immediate takes the format of the kind."""
        if isinstance(op, ast.Imm) and kind[0] == "f":
            return self.let(f"{self.src(op, kind)}.view(t_{plain(kind)})")
        return self.src(op, plain(kind))

    def immediate(self, op: ast.Imm, kind: str) -> str:
        if op.bits is not None and kind != "p":
            bits = op.bits
            literal = 64 if op.bits >> 32 or (isinstance(op.value, float) and _is_double(op)) else 32
            if kind == "f64" and literal == 32:
                return self.const("f64", struct.unpack("<f", struct.pack("<I", bits))[0])
            if kind == "f32" and literal == 64:
                return self.const("f32", op.value)
            return self.const_bits(kind, bits & ((1 << WIDTH_OF[kind]) - 1))
        if op.is_float and kind[0] != "f":
            if kind == "u32":
                return self.const_bits(kind, int(np.float32(op.value).view(np.uint32)))
            if kind == "u64":
                return self.const_bits(kind, int(np.float64(op.value).view(np.uint64)))
        return self.const(kind, op.value)

    def special(self, name: str, kind: str) -> str:
        if kind == "p":
            return self.let(f"M.special({name!r}, idx) != 0")
        value = self.let(f"M.special({name!r}, idx)")
        native = "u64" if name in _LONG_SPECIALS else "u32"
        return self.form(Value(WIDTH_OF[native], {native: value}), kind)

    def symbol(self, name: str, offset: int, kind: str) -> str:
        """The address of a variable in its own state space (an absolute address for global and const)."""
        variable = self.program.variables.get(name)
        if variable is None:
            address = self.machine.function_address(name)
            if address is None:
                raise Unsupported(f"symbol {name}")
            return self.const(kind, address + offset)
        if variable.space == "shared":
            if self._shared_base is None:
                self._shared_base = self.let("M.shared_base(idx)")
            value = self.let(f"{self._shared_base} + {self.const('u32', variable.offset + offset)}")
            return self.form(Value(32, {"u32": value}), kind)
        return self.const(kind, self.machine.address_of(variable) + offset)

    def addr(self, op: ast.Operand, kind: str) -> str:
        """The address of a memory operand."""
        if not isinstance(op, ast.Mem):
            return self.src(op, kind)
        if isinstance(op.base, ast.Sym):
            return self.symbol(op.base.name, op.offset, kind)
        base = self.src(op.base, kind)
        if op.offset == 0:
            return base
        return self.let(f"{base} + {self.const(kind, op.offset)}")

    def get(self, name: str, kind: str = "") -> str:
        """An expression of the current instruction's operand of that name: in a kind, or in its type's. Of memory
        it is the address, of 32 bits in shared and Tensor Memory."""
        row, op = self.ins.rows[name]
        if row.kind == "memory":
            narrow = self.ins.space(name).startswith(("shared", "tmem"))
            return self.addr(op, kind or ("u32" if narrow else "u64"))
        return self.src(op, kind or kind_of(self.ins.type(name)))

    def copied(self, name: str) -> str:
        """The operand of that name to copy, its bits as they are."""
        return self.bits(self.ins[name], kind_of(self.ins.type(name)))

    def put(self, name: str, expr: str, kind: str = "") -> None:
        """Write the operand of that name, in its type's kind or another."""
        self.set(self.ins[name], kind or kind_of(self.ins.type(name)), expr)

    def tuple_of(self, op: ast.Operand, kind: str) -> str:
        """A tuple of the elements of a vector, of one if it is none."""
        return f"({', '.join(self.src(i, kind) for i in items(op))},)"

    def set(self, op: ast.Operand, kind: str, expr: str, computed: bool = False) -> None:
        """Write a register: `expr` is an array of the given kind. Honours the instruction's guard.

        `computed`: a floating-point result, not a copy of bits.
        """
        if isinstance(op, ast.Sym) and op.name == "_":
            self.let(expr)
            return
        if not isinstance(op, ast.Reg) or op.name.startswith("?"):
            raise Unsupported(f"result {op}")
        name = op.name
        width = self.width(name)
        value = Value(WIDTH_OF[kind], {kind: self.let(expr)}, None, computed)
        canonical = "p" if width == 1 else f"u{width}"
        if value.width != width:
            wide = f"s{width}" if kind[0] == "s" else canonical
            value = Value(width, {wide: self.form(value, wide)})
        if self.guard is not None:
            old = self.form(self.value(name), canonical)
            new = self.form(value, canonical)
            value = Value(width, {canonical: self.let(f"where({self.guard}, {new}, {old})")})
        self.env[name] = value
        self.dirty.add(name)

    def move(self, to: ast.Operand, source: ast.Operand) -> bool:
        """A register copy without any code; False if it needs some."""
        if self.guard is not None or not isinstance(to, ast.Reg) or not isinstance(source, ast.Reg):
            return False
        if to.name.startswith("?") or source.name.startswith("?"):
            return False
        if self.width(to.name) != self.width(source.name):
            return False
        value = self.value(source.name)
        fragments = self.unit.fragments
        if source.name in fragments and to.name in fragments and self.machine.late:
            rows = self.machine_row(to.name), self.machine_row(source.name)
            self.line(f"if M.engine.pending: copy_fragment(M, idx, n, {self.mask()}, {rows[0]}, {rows[1]})")
        self.env[to.name] = Value(value.width, dict(value.forms), value.origin, value.computed)
        self.dirty.add(to.name)
        return True

    # Masks --------------------------------------------------------------------------------------------

    def mask(self) -> str:
        """The active lanes of the current instruction: an expression, "None" if all are."""
        if self.converged:
            return self.guard or "None"
        return f"(mask & {self.guard})" if self.guard else "mask"

    def call(self, function: str, *args: str) -> str:
        """An expression calling a runtime function with position, selection and mask first."""
        return f"{function}(M, {self.at}, idx, n, {self.mask()}{''.join(', ' + a for a in args)})"

    # Storage ------------------------------------------------------------------------------------------

    def write_back(self, names: Sequence[str]) -> None:
        """Scatter registers to their storage."""
        written = {name for name in names if name in self.dirty and name in self.unit.slots}
        if not written:
            return
        for name, value in self.env.items():
            if value.origin in written and (value.origin != name or name in self.dirty):
                canonical = "p" if value.width == 1 else f"u{value.width}"
                value.forms = {canonical: self.let(f"{self.form(value, canonical)}.copy()")}
                value.origin = None
        for name in sorted(written, key=self.unit.slots.__getitem__):
            value = self.env[name]
            canonical = "p" if value.width == 1 else f"u{value.width}"
            slot = self.unit.slots[name]
            self.settle(name)
            form = self.form(value, canonical)
            if self.converged:
                self.line(f"R[{slot}][idx] = {form}")
            else:
                self.line(f"R[{slot}][idx] = where(mask, {form}, R[{slot}][idx])")
            self.dirty.discard(name)

    def forget(self, names: list[str]) -> None:
        """The machine has changed the storage of these registers, or will have when it is next settled."""
        self._settled = False
        for name, value in self.env.items():
            if value.origin in names and name not in names:
                canonical = "p" if value.width == 1 else f"u{value.width}"
                value.forms = {canonical: self.let(f"{self.form(value, canonical)}.copy()")}
                value.origin = None
        for name in names:
            self.env.pop(name, None)
            self.dirty.discard(name)

    def settle(self, register: str) -> None:
        """Before the first access to storage that accumulators of wgmma may be out of (`Accumulators`)."""
        if register in self.unit.fragments and not self._settled:
            self.line("if M.accumulators.held: M.accumulators.settle(idx)")
            self._settled = True

    def machine_row(self, name: str) -> int:
        """Row of a register in the machine's bank of its width."""
        if name not in self.unit.slots:
            raise Unsupported(f"register {name.removeprefix('?')} is not declared")
        return self.machine.bank_index[self.unit.slots[name]]

    def narrow(self, call: str, extra: str = "") -> None:
        """Let a leading instruction choose which of the selected threads go on. Only at the block's start."""
        self.line(f"sel = {call}")
        self.line("if sel is None: return None")
        self.line(f"idx, n, mask{extra} = sel")
        self.env.clear()
        self._shared_base = None
        self._settled = False


_LONG_SPECIALS = frozenset(("clock64", "globaltimer", "gridid", "current_graph_exec"))


def _is_double(op: ast.Imm) -> bool:
    """A `0d` literal, told from `0f` by its value: both keep their bits."""
    assert op.bits is not None
    if op.bits >> 32:
        return True
    single = struct.unpack("<f", struct.pack("<I", op.bits))[0]
    return not (single == op.value or (single != single and op.value != op.value))


runtime(float_bits)
