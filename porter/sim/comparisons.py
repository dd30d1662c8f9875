# SPDX-License-Identifier: Apache-2.0
"""How far registers come that a kernel compares with numbers of its text: whether a run went beyond a constant."""

from __future__ import annotations

from typing import Any

import numpy as np

from porter.ptx import ast
from porter.ptx.bits import signed
from porter.ptx.table import Decoded
from porter.sim.codegen import Context
from porter.sim.exec_integer import is_integer
from porter.sim.kinds import WIDTH_OF, kind_of
from porter.sim.machine import Machine
from porter.sim.observer import Observer

_COMPARE = ("setp", "set", "min", "max")
_TAKE = ("and", "shr")


class Comparisons(Observer):
    """`found` has, by PTX line, the constant and the largest value that some thread compared with it, as signed
    numbers. Taking bits of a number compares it with the least that has one of them."""

    def __init__(self, machine: Machine, found: dict[int, tuple[int, int]]) -> None:
        self._code = machine.program.code
        self._found = found
        self._most: dict[int, int] = {}

    def code(self, cg: Context, ins: Decoded) -> None:
        if ins.parts[0] not in (*_COMPARE, *_TAKE) or "a" not in ins or "b" not in ins:
            return
        type_name = ins.type("a")
        constants = [o for o in (ins["a"], ins["b"]) if isinstance(o, ast.Imm)]
        registers = [name for name in "ab" if isinstance(ins[name], ast.Reg)]
        if len(constants) != 1 or len(registers) != 1 or constants[0].is_float or not is_integer(type_name):
            return
        bits = WIDTH_OF[kind_of(type_name)]
        constant = signed(cg.integer(constants[0]), bits)
        if ins.parts[0] in _TAKE:
            # the least value of which something is left
            constant = constant & -constant if ins.parts[0] == "and" else 1 << (constant % bits)
        cg.line(cg.call("M.observer.compares", cg.get(registers[0], f"s{bits}"), str(constant)))

    def compares(self, M: Machine, at: int, idx: Any, n: int, mask: Any, value: Any, constant: int) -> None:
        """Called by generated code."""
        if mask is not None:
            mask, value = np.broadcast_arrays(mask, value)
            value = value[mask]
            if not value.size:
                return
        most = int(value.max())
        if most > self._most.get(at, -1):
            self._most[at] = most
            line = self._code[at].line
            known = self._found.get(line)
            self._found[line] = constant, max(most, known[1]) if known else most
