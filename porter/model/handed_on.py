# SPDX-License-Identifier: Apache-2.0
"""What functions do with registers that are handed to them: read or change them, or keep their address."""

from __future__ import annotations

import re
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import walk
from porter.model.casts import Casts
from porter.model.functions import Call, Function, Param, Style
from porter.model.program import PACK, Program
from porter.model.pure import is_pure, is_toolkit
from porter.model.uses import Reading, Use, joined, uses_in

VECTORS = frozenset(
    f"{kind}{width}"
    for kind in ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "longlong", "float", "double")
    for width in (1, 2, 3, 4)
)
"""CUDA's vector types (CUDA C++ Programming Guide, "Built-in Vector Types")."""

NARROW_FLOATS = frozenset(
    ("half", "__half", "half2", "__half2", "nv_bfloat16", "__nv_bfloat16", "nv_bfloat162", "__nv_bfloat162")
)
_COPIES = {"memcpy": (Use.UPDATE, Use.READ), "memmove": (Use.UPDATE, Use.READ), "memset": (Use.UPDATE,)}
"""What the C library's functions do with their pointer arguments."""


class HandedOn:
    """Asks about one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.casts = Casts(program)
        self._known: dict[tuple[int, int, bool], Use] = {}
        self._calls: dict[int, dict[int, Call]] = {}

    @cached_property
    def values(self) -> frozenset[str]:
        """Names of number and vector types, aliases in the sources included."""
        known = set(VECTORS | NARROW_FLOATS)
        alias = re.compile(rb"\busing\s+(\w+)\s*=\s*([\w:]+)\s*;|\btypedef\s+([\w:]+)\s+(\w+)\s*;")
        pairs = [
            ((m.group(1) or m.group(4)).decode(), (m.group(2) or m.group(3)).decode())
            for file in self.program.sources.files.values()
            for m in alias.finditer(file.lexed.code)
        ]
        plain = {"float", "int", "unsigned", "double", "bool", "uint32_t", "int32_t", "uint16_t", "uint64_t"}
        for _ in range(3):
            known |= {name for name, target in pairs if target.removeprefix("::") in known | plain}
        return frozenset(known)

    @cached_property
    def _operators(self) -> frozenset[str]:
        """Signs of the overloaded operators that may keep a reference to a number that is their operand."""
        functions = (*self.program.functions, *self.program.forward)
        named = [f for f in functions if f.name.startswith("operator")]
        return frozenset(
            f.name.removeprefix("operator").strip()
            for f in named
            if not all(self.casts.copies_number(f, p) for p in f.params)
        )

    def reading(self, function: Function) -> Reading:
        """How expressions of a function are read."""
        return Reading(
            function.text,
            lambda call, index, full: self.of_argument(function, call, index, full),
            lambda node, is_type: self._converted(function, node, is_type),
            self.values,
            self._operators,
        )

    def _converted(self, function: Function, node: Node, is_type: bool) -> Use | None:
        ahead = function.file.source[: node.start_byte + function.shift].rstrip()
        return self.casts.of(function, node, function.text(node), is_type or ahead.endswith(b"typename"))

    def of_argument(self, caller: Function, node: Node, index: int, full: bool) -> Use:
        """What the callees of a call do with an argument; `full` if it is one register."""
        calls = self._calls.get(id(caller))
        if calls is None:
            calls = self._calls[id(caller)] = {c.node.id: c for c in reversed(caller.calls)}
        call = calls.get(node.id)
        if call is None or any(a.type == PACK for a in call.args):
            return Use.UNKNOWN
        targets = self.program.targets(call)
        if not targets:
            return self.of_library(call.name, index, full) if is_toolkit(self.program, call) else Use.UNKNOWN
        found = Use.NOTHING
        for target in targets:
            found = joined(found, self.of_param(target, index, full))
        return found

    def of_library(self, name: str, index: int, full: bool) -> Use:
        """What a function of the toolkit does with an argument."""
        if name in self._macro_names:
            return Use.UNKNOWN
        if full:
            return Use.READ if is_pure(name) else Use.UNKNOWN
        known = _COPIES.get(name, ())
        return known[index] if index < len(known) else Use.UNKNOWN

    @cached_property
    def _macro_names(self) -> frozenset[str]:
        return frozenset(m.name for file in self.program.sources.files.values() for m in file.lexed.macros())

    def of_param(self, function: Function, index: int, full: bool) -> Use:
        """What a function does with what is handed to a parameter."""
        key = (id(function), index, full)
        known = self._known.get(key)
        if known is None:
            # a recursive call is not followed
            self._known[key] = Use.UNKNOWN
            known = self._known[key] = self._of_param(function, index, full)
        return known

    def _of_param(self, function: Function, index: int, full: bool) -> Use:
        if index >= len(function.params) or (function.owner and function.name == function.owner):
            # a constructor may bind members in its head
            return Use.UNKNOWN
        param = function.params[index]
        if function.style is Style.MACRO:
            return _in_asm(function, param, full)
        declarator = param.node.child_by_field_name("declarator") if param.node is not None else None
        if param.node is None or declarator is None:
            return Use.UNKNOWN
        kind = param.node.child_by_field_name("type")
        reading = self.reading(function)
        if declarator.type == "identifier":
            template = kind is not None and function.text(kind) in (*function.template_params, "auto")
            return Use.READ if full and (reading.is_value(kind) or template) else Use.UNKNOWN
        if any(n.type in ("pointer_declarator", "abstract_pointer_declarator") for n in walk(declarator)) and full:
            return Use.UNKNOWN
        rank = param.rank or (0 if full else -1)
        return uses_in(function.body, param.name, rank, "", reading)


def _in_asm(macro: Function, param: Param, full: bool) -> Use:
    """What a macro does with a parameter that is only an operand of its asm statements."""
    operands = [o for s in macro.asm for o in s.operands if o.expr.strip().strip("()") == param.name]
    body = macro.asm[0].macro.joined.decode("utf-8", "replace") if macro.asm and macro.asm[0].macro else ""
    if not full or not operands or len(re.findall(rf"\b{re.escape(param.name)}\b", body)) != len(operands):
        return Use.UNKNOWN
    return Use.UPDATE if any(o.is_written for o in operands) else Use.READ
