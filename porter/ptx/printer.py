# SPDX-License-Identifier: Apache-2.0
"""PTX text of a syntax tree. Parsing the text again gives the tree back, apart from lines and positions."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable

from porter.ptx.ast import (
    Block,
    BranchTargets,
    Function,
    Guard,
    Imm,
    Instruction,
    Label,
    Mem,
    Module,
    Neg,
    Operand,
    Pair,
    Param,
    Placeholder,
    Reg,
    RegDecl,
    SpecialReg,
    Statement,
    Sym,
    Template,
    VarDecl,
    Vec,
)
from porter.ptx.special import TYPE_BYTES


def to_text(tree: Module | Template) -> str:
    """The PTX of a module, or of a template (with `%0` operands and `%%` registers)."""
    if isinstance(tree, Template):
        return "\n".join(_Printer(template=True).body(tree.body, 0)) + "\n"
    printer = _Printer(template=False)
    lines = [
        f".version {tree.version[0]}.{tree.version[1]}",
        f".target {tree.target}",
        f".address_size {tree.address_size}",
    ]
    lines += [f'.file {index} "{name}"' for index, name in tree.files.items()]
    # Initial values may name functions, so the declarations that head a module stay ahead of its variables.
    declared = 0
    while declared < len(tree.functions) and tree.functions[declared].body is None:
        declared += 1
    for function in tree.functions[:declared]:
        lines += printer.function(function)
    lines += [printer.variable(variable) for variable in tree.variables]
    for function in tree.functions[declared:]:
        lines += printer.function(function)
    return "\n".join(lines) + "\n"


class _Printer:
    def __init__(self, template: bool) -> None:
        self.percent = "%%" if template else "%"

    # Operands -----------------------------------------------------------------------------------------

    def operand(self, operand: Operand) -> str:
        match operand:
            case Reg(name):
                return self.percent + name[1:] if name[0] == "%" else name
            case SpecialReg(name):
                return self.percent + name
            case Sym(name, offset):
                return f"{name}{offset:+d}" if offset else name
            case Placeholder(index):
                return f"%{index}"
            case Imm():
                return _immediate(operand)
            case Vec(items):
                return "{" + ", ".join(map(self.operand, items)) + "}"
            case Pair(first, second):
                return f"{self.operand(first)}|{self.operand(second)}"
            case Neg(op, inner):
                return op + self.operand(inner)
            case Mem():
                return self._memory(operand)

    def _memory(self, memory: Mem) -> str:
        text = self.operand(memory.base)
        if memory.displacement is not None:
            text += f"+{self.operand(memory.displacement)}"
        if memory.offset:
            text += f"+{memory.offset}"
        return "[" + ", ".join((text, *map(self.operand, memory.parts))) + "]"

    # Statements ---------------------------------------------------------------------------------------

    def instruction(self, instruction: Instruction) -> str:
        words = [self._guard(instruction.guard)] if instruction.guard else []
        words.append(instruction.opcode)
        if instruction.operands:
            call = instruction.parts[0] == "call"
            words.append(", ".join(self._argument(o, call) for o in instruction.operands))
        return " ".join(words) + ";"

    def _argument(self, operand: Operand, call: bool) -> str:
        if call and isinstance(operand, Vec):
            return "(" + ", ".join(map(self.operand, operand.items)) + ")"
        return self.operand(operand)

    def _guard(self, guard: Guard) -> str:
        return f"@{'!' if guard.negated else ''}{self.operand(guard.operand)}"

    def body(self, body: Iterable[Statement], depth: int) -> list[str]:
        indent = "  " * depth
        lines: list[str] = []
        for statement in body:
            match statement:
                case Instruction():
                    lines.append(indent + self.instruction(statement))
                case Label(name):
                    lines.append(f"{name}:")
                case RegDecl():
                    lines.append(indent + self._register(statement))
                case VarDecl():
                    lines.append(indent + self.variable(statement))
                case BranchTargets(kind, name, items):
                    lines.append(f"{name}: .{kind} {(', ' if kind != 'callprototype' else ' ').join(items)};")
                case Block(inner):
                    lines += [indent + "{", *self.body(inner, depth + 1), indent + "}"]
        return lines

    def _register(self, decl: RegDecl) -> str:
        count = "" if decl.count is None else f"<{decl.count}>"
        name = self.percent + decl.name[1:] if decl.name[0] == "%" else decl.name
        type_ = decl.type.replace(".", " .")
        return f".reg .{type_} {name}{count};"

    def variable(self, decl: VarDecl) -> str:
        linkage = "extern" if decl.extern else decl.linkage
        words = [f".{linkage}"] if linkage else []
        words += [f".{decl.space}", f".align {decl.align}"]
        if decl.vector > 1:
            words.append(f".v{decl.vector}")
        words += [f".{decl.type}", decl.name + _extent(decl.size, decl.type, decl.vector)]
        if decl.initial:
            values = ", ".join(_initial(value, decl.type) for value in decl.initial)
            element = TYPE_BYTES[decl.type] * decl.vector
            nested = decl.vector > 1 or decl.size != element
            if decl.vector > 1 and decl.size != element:
                rows = [
                    ", ".join(_initial(v, decl.type) for v in decl.initial[i : i + decl.vector])
                    for i in range(0, len(decl.initial), decl.vector)
                ]
                values = ", ".join("{" + row + "}" for row in rows)
            words.append("= {" + values + "}" if nested else "= " + values)
        return " ".join(words) + ";"

    # Functions ----------------------------------------------------------------------------------------

    def function(self, function: Function) -> list[str]:
        words = [f".{function.linkage}"] if function.linkage else []
        words.append(".entry" if function.is_entry else ".func")
        if function.returns:
            words.append(f"({_params(function.returns)})")
        words.append(f"{function.name}({_params(function.params)})")
        lines = [" ".join(words)]
        for name, numbers in function.directives.items():
            lines.append(f".{name} {', '.join(map(str, numbers))}".rstrip())
        if function.body is None:
            return [*lines[:-1], lines[-1] + ";"]
        return [*lines, "{", *self.body(function.body, 1), "}"]


def _params(params: Iterable[Param]) -> str:
    return ", ".join(map(_param, params))


def _param(param: Param) -> str:
    words = [f".{param.space}"]
    if param.type == "pred":
        return f".{param.space} .pred {param.name}"
    element = TYPE_BYTES[param.type]
    # `.align` belongs to arrays; on a scalar it would be refused beside `.ptr`.
    if param.align != element and param.space == "param":
        words.append(f".align {param.align}")
    words.append(f".{param.type}")
    if param.is_pointer:
        words.append(".ptr")
        if param.pointer_space:
            words.append(f".{param.pointer_space}")
        if param.pointer_align:
            words.append(f".align {param.pointer_align}")
    words.append(param.name + _extent(param.size, param.type, 1))
    return " ".join(words)


def _extent(size: int, type_: str, vector: int) -> str:
    element = TYPE_BYTES[type_] * vector
    if size == element:
        return ""
    return f"[{size // element}]" if size else "[]"


def _initial(value: int | float | str, type_: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return _float(value, type_)
    if type_ in ("f32", "f64"):
        return f"0f{value:08X}" if type_ == "f32" else f"0d{value:016X}"
    return str(value)


def _float(value: float, type_: str) -> str:
    if type_ == "f64":
        return f"0d{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    return f"0f{struct.unpack('<I', struct.pack('<f', value))[0]:08X}"


def _immediate(imm: Imm) -> str:
    if not imm.is_float:
        return str(imm.value)
    value = float(imm.value)
    if imm.bits is None:
        if math.isinf(value) or math.isnan(value):
            return _float(value, "f64")
        text = repr(value)
        return text if "." in text or "e" in text else text + ".0"
    # Which of the two literals it was, the value tells: an `0f` literal is exact in 32 bits.
    single = struct.pack("<I", imm.bits) if imm.bits < 1 << 32 else b""
    if single and _same(struct.unpack("<f", single)[0], value):
        return f"0f{imm.bits:08X}"
    return f"0d{imm.bits:016X}"


def _same(a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b and math.copysign(1, a) == math.copysign(1, b)
