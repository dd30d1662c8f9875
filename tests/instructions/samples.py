# SPDX-License-Identifier: Apache-2.0
"""Instructions made from the rows of the table: one for every choice that a row leaves.

`opcodes` and `instructions` give texts; `REGISTERS` declares what their operands name, `HEAD` the functions
and tables. Modules of them are legal PTX; values and addresses are not set.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from porter.ptx.forms.grammar import Access, OperandForm, Part, present
from porter.ptx.table import FORMAT_BYTES, Form, operand_type, vector_length

_NARROW = ("shared", "shared::cta", "shared::cluster", "local")

HEAD = """.version {version}
.target {target}
.address_size 64
.global .align 8 .b8 table[64];
.const .align 8 .b8 fixed[64];
.func (.param .b32 result) callee(.param .b32 x) {{
  .reg .b32 %w0; ld.param.b32 %w0, [x]; st.param.b32 [result], %w0; ret;
}}
"""
REGISTERS = """.reg .pred %p<9>; .reg .b8 %c<99>; .reg .b16 %h<99>; .reg .b32 %w<1999>; .reg .b64 %l<199>;
.reg .f32 %f<1999>; .reg .f64 %d<199>; .reg .b128 %q<99>;
.shared .align 128 .b8 smem[256]; .local .align 16 .b8 stack[64]; .param .align 8 .b8 argument[64];
.param .b32 word; .param .b32 result;
targets: .branchtargets END;
prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
"""


# Opcodes ----------------------------------------------------------------------------------------------


def _opcode(parts: Sequence[Part], chosen: Sequence[str | None]) -> str:
    return ".".join(text for _, text in zip(parts, chosen, strict=True) if text is not None)


def opcodes(row: Form, most: int = 0) -> list[str]:
    """One legal opcode of the row, and for every choice of every part one that has it.

    `most`: of parts with more choices only the first, the middle and the last.
    """

    def chosen_of(part: Part) -> tuple[str, ...]:
        every = part.choices
        return (every[0], every[len(every) // 2], every[-1]) if most and len(every) > most else every

    choices: list[list[str | None]] = [
        [None, *chosen_of(part)] if part.optional else list(chosen_of(part)) for part in row.parts
    ]

    def first_legal(fixed: dict[int, str | None], base: Sequence[str | None]) -> list[str | None] | None:
        # Near the base first, then everything.
        tries: Iterator[Sequence[str | None]] = itertools.chain(
            [[fixed.get(i, base[i]) for i in range(len(choices))]],
            itertools.product(*([fixed[i]] if i in fixed else c for i, c in enumerate(choices))),
        )
        for chosen in itertools.islice(tries, 20000):
            if row.modifiers(tuple(_opcode(row.parts, chosen).split("."))) is not None:
                return list(chosen)
        return None

    base = first_legal({}, [c[0] for c in choices])
    assert base is not None, row.pattern
    found = [base]
    for i, options in enumerate(choices):
        for option in options:
            if not any(chosen[i] == option for chosen in found):
                chosen = first_legal({i: option}, base)
                assert chosen is not None, (row.pattern, option)
                found.append(chosen)
    return [_opcode(row.parts, chosen) for chosen in found]


# Operands ---------------------------------------------------------------------------------------------


def _register(type_: str, index: int) -> str:
    if type_ == "none":
        return "_"
    if type_ == "pred":
        return f"%p{index}"
    if type_ == "f32":
        return f"%f{index}"
    if type_ == "f64":
        return f"%d{index}"
    return "%" + {1: "c", 2: "h", 4: "w", 8: "l", 16: "q"}[FORMAT_BYTES[type_]] + str(index)


def _address(row: OperandForm, given: dict[str, str], index: int) -> str:
    space = given.get(row.space, row.space)
    if space in ("param", "param::entry", "param::func"):
        return "argument" if row.access is Access.WRITE else "parameter"
    if space == "const":
        return "fixed"
    return f"%w{index}" if space in _NARROW or space == "tmem" else f"%l{index}"


def _operand(row: OperandForm, given: dict[str, str], index: int) -> str:
    if row.kind == "memory":
        inner = "".join(", " + _operand(item, given, 20) for item in row.inner)
        return f"[{_address(row, given, index)}{inner}]"
    if row.kind == "immediate":
        return str(row.values[0] if row.values else 1)
    if row.kind == "label":
        return "targets" if row.name == "targets" else "END"
    type_ = operand_type(row, given)
    length = vector_length(row, given)
    if length:
        text = "{" + ", ".join(_register(type_, index * 10 + i) for i in range(length)) + "}"
    else:
        text = _register(type_, index)
    if row.second is not None:
        text += "|" + _operand(row.second, given, index + 1)
    return text


def instructions(row: Form, opcode: str) -> list[str]:
    """The opcode with operands: all optional ones left out, and all written."""
    given = row.modifiers(tuple(opcode.split(".")))
    assert given is not None
    if row.name == "call":
        return [f"{opcode} (result), callee, (word);", f"{opcode} (result), %l1, (word), prototype;"]
    found = []
    for everything in (False, True):
        words = []
        for index, operand in enumerate(row.operands, start=1):
            if operand.optional and not (present(operand.when, given) if operand.when else everything):
                continue
            shown = operand
            if operand.second is not None and operand.second.optional and not everything:
                shown = OperandForm(**{**operand.__dict__, "second": None})
            words.append(_operand(shown, dict(given), index))
        text = f"{opcode} {', '.join(words)}".strip() + ";"
        if text not in found:
            found.append(text)
    return found
