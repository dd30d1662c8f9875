# SPDX-License-Identifier: Apache-2.0
"""Small pieces of PTX as syntax trees: temporaries, calls, and blocks that run under a guard."""

from __future__ import annotations

from collections.abc import Sequence

from porter.ptx.ast import (
    Block,
    Guard,
    Imm,
    Instruction,
    Label,
    Mem,
    Neg,
    Operand,
    Reg,
    RegDecl,
    SpecialReg,
    Statement,
    Sym,
    VarDecl,
    Vec,
)


def instruction(opcode: str, *operands: Operand, guard: Guard | None = None) -> Instruction:
    return Instruction(opcode, tuple(opcode.split(".")), operands, guard)


class Sequel:
    """The statements that take the place of one instruction, in a scope of their own.

    `number` keeps labels apart, which PTX scopes do not.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.body: list[Statement] = []
        self._temporaries = 0
        self._labels = 0

    def add(self, opcode: str, *operands: Operand, guard: Guard | None = None) -> None:
        self.body.append(instruction(opcode, *operands, guard=guard))

    def temporary(self, type_: str) -> Reg:
        """A new register of `b16`, `b32`, `b64` or `pred`."""
        name = f"porter_t{self.number}_{self._temporaries}"
        self._temporaries += 1
        self.body.append(RegDecl(type_, name))
        return Reg(name)

    def label(self) -> str:
        self._labels += 1
        return f"$porter_{self.number}_{self._labels}"

    def place(self, name: str) -> None:
        self.body.append(Label(name))

    def value(self, operand: Operand, type_: str) -> Operand:
        """The operand as something a parameter can be stored from."""
        match operand:
            case Reg() | Imm():
                return operand
            case SpecialReg() | Sym():
                result = self.temporary(type_)
                self.add(f"mov.{type_.replace('b', 'u')}", result, operand)
                return result
        raise ValueError(f"no value: {operand}")

    def predicate(self, operand: Operand) -> Operand:
        """1 or 0 for a predicate, a negated one, or a constant."""
        if isinstance(operand, Imm):
            return Imm(int(bool(operand.value)))
        yes, no = Imm(1), Imm(0)
        if isinstance(operand, Neg):
            yes, no, operand = no, yes, operand.operand
        result = self.temporary("b32")
        self.add("selp.b32", result, yes, no, operand)
        return result

    def address(self, memory: Operand, type_: str) -> Operand:
        """The number inside `[base+offset]`."""
        if not isinstance(memory, Mem):
            return self.value(memory, type_)
        base = self.value(memory.base, type_)
        if not memory.offset:
            return base
        result = self.temporary(type_)
        self.add(f"add.{type_.replace('b', 'u')}", result, base, Imm(memory.offset))
        return result

    def shared_address(self, memory: Operand, is_shared: bool, register_bits: int) -> Operand:
        """A 32-bit address in shared memory, from one, or from a generic address."""
        if is_shared and register_bits == 32:
            return self.address(memory, "b32")
        wide = self.address(memory, "b64")
        if not is_shared:
            converted = self.temporary("b64")
            self.add("cvta.to.shared.u64", converted, wide)
            wide = converted
        narrow = self.temporary("b32")
        self.add("cvt.u32.u64", narrow, wide)
        return narrow

    def call(self, name: str, arguments: Sequence[tuple[str, Operand]], result: str = "") -> Reg | None:
        """Call a function with arguments (type, value); gives the register of its result, if it has one."""
        returned = self.temporary(result) if result else None
        inner: list[Statement] = []
        names: list[Operand] = []
        for i, (type_, value) in enumerate(arguments):
            bits = int(type_[1:])
            inner.append(VarDecl("param", f"porter_p{i}", type_, bits // 8, bits // 8))
            inner.append(instruction(f"st.param.{type_}", Mem(Sym(f"porter_p{i}")), value))
            names.append(Sym(f"porter_p{i}"))
        operands: list[Operand] = [Sym(name), Vec(tuple(names))] if names else [Sym(name)]
        if returned is not None:
            bits = int(result[1:])
            inner.append(VarDecl("param", "porter_r", result, bits // 8, bits // 8))
            operands.insert(0, Vec((Sym("porter_r"),)))
        inner.append(instruction("call", *operands))
        if returned is not None:
            inner.append(instruction(f"ld.param.{result}", returned, Mem(Sym("porter_r"))))
        self.body.append(Block(tuple(inner)))
        return returned

    def block(self, guard: Guard | None) -> Block:
        """The statements; jumped over where the guard does not hold."""
        if guard is None:
            return Block(tuple(self.body))
        over = self.label()
        jump = instruction("bra", Sym(over), guard=Guard(guard.operand, not guard.negated))
        return Block((jump, *self.body, Label(over)))
