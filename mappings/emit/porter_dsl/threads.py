# SPDX-License-Identifier: Apache-2.0
"""Which warpgroups multiply."""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Callable
from typing import Any

from cutlass._mlir import ir

from .program import _blocks
from .values import _operands, _owner

# --- which warpgroups multiply

_UNIFORM = "cute_nvgpu.arch.make_warp_uniform"


class _Threads:
    """Values that follow from a thread's number alone, for warpgroups of a block."""

    def __init__(self, function: ir.Operation) -> None:
        known = [n for n in ("nvvm.reqntid", "nvvm.maxntid") if n in function.attributes]
        text = str(function.attributes[known[0]]) if known else ""
        self.block = [int(n) for n in re.findall(r"\d+", text.partition(":")[2])][:3]
        self.count = (math.prod(self.block) + 127) // 128 if self.block else 8
        self.block += [1] * (3 - len(self.block)) if self.block else []
        self._memo: dict[tuple[ir.Value, int], int | None] = {}
        self._assumed: dict[Any, int] = {}
        self._reached: dict[ir.Block, frozenset] = {}

    def reach(self, op: ir.Operation, stop: ir.Operation) -> frozenset:
        """The warpgroups that the conditions around a place let in, as far as those follow from a thread's number."""
        conditions, block = [], op.block
        while op != stop:
            parent = op.block.owner.operation
            if parent.name == "scf.if":
                conditions.append((_operands(parent)[0], int(parent.regions[0].blocks[0] == op.block)))
            op = parent
        if block not in self._reached:
            self._reached[block] = frozenset(w for w in range(self.count) if self._enters(conditions, w))
        return self._reached[block]

    def _enters(self, conditions: list[tuple[ir.Value, int]], warpgroup: int) -> bool:
        threads = [warpgroup * 128 + t for w in range(4) for t in (32 * w, 32 * w + 31)]
        for i, (condition, wanted) in enumerate(conditions):
            # Inside, all other conditions are known too.
            self._assumed = {self._key(c): n for j, (c, n) in enumerate(conditions) if j != i}
            self._memo.clear()
            threads = [t for t in threads if self.value(condition, t) in (None, wanted)]
        return bool(threads)

    def _key(self, value: ir.Value) -> Any:
        """The same for values that are computed alike."""
        op = _owner(value)
        if op is None or not op.name.startswith(("arith.", "nvvm.read.ptx.sreg", _UNIFORM)):
            return value
        attributes = tuple(str(op.attributes[i]) for i in range(len(op.attributes)))
        return (op.name, attributes, *(self._key(v) for v in _operands(op)))

    def value(self, value: ir.Value, thread: int) -> int | None:
        if (value, thread) not in self._memo:
            assumed = self._assumed.get(self._key(value)) if self._assumed else None
            self._memo[value, thread] = self._value(value, thread) if assumed is None else assumed
        return self._memo[value, thread]

    def _value(self, value: ir.Value, thread: int) -> int | None:
        op = _owner(value)
        if op is None:
            return None
        name, operands = op.name, _operands(op)
        special = re.match(r"nvvm\.read\.ptx\.sreg\.(n?tid)\.([xyz])$", name)
        if special is not None:
            i = "xyz".index(special[2])
            if special[1] == "ntid":
                return self.block[i] if self.block else None
            x, y = self.block[:2] if self.block else (sys.maxsize, 1)
            return (thread % x, thread // x % y, thread // (x * y))[i]
        if name == "arith.constant":
            return _constant(op)
        if name == "scf.if":
            taken = self.value(operands[0], thread)
            handed = [] if taken is None else _operands(list(_blocks(op)[1 - taken].operations)[-1].operation)
            return self.value(handed[ir.OpResult(value).result_number], thread) if handed else None
        if name in ("arith.extsi", "arith.extui", "arith.index_cast", "arith.trunci", _UNIFORM):
            return self.value(operands[0], thread - thread % 32 if name == _UNIFORM else thread)
        if name == "nvvm.shfl.sync" and len(operands) >= 4:
            lane = self.value(operands[2], thread)
            return None if lane is None else self.value(operands[1], thread - thread % 32 + lane % 32)
        if not name.startswith("arith."):
            return None
        parts = [self.value(v, thread) for v in operands]
        if name == "arith.andi" and 0 in parts:
            return 0
        if name == "arith.ori" and 1 in parts and str(value.type) == "i1":
            return 1
        if name == "arith.select":
            return None if parts[0] is None else parts[2 - parts[0]]
        known = [n for n in parts if n is not None]
        return _arithmetic(op, *known) if len(parts) == len(known) == 2 else None


def _constant(op: ir.Operation) -> int | None:
    """The value of an arith.constant that is an integer."""
    found = re.match(r"(-?\d+|true|false)\b(?!\.)", str(op.attributes["value"]))
    return None if found is None else {"true": 1, "false": 0}.get(found[1]) if found[1].isalpha() else int(found[1])


_ORDER = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "max": max, "min": min, "div": operator.floordiv, "floordiv": operator.floordiv,
    "rem": operator.mod, "shl": operator.lshift, "shr": operator.rshift,
}  # fmt: skip


def _arithmetic(op: ir.Operation, a: int, b: int) -> int | None:
    """Two operands that are small, not negative in what is unsigned."""
    name = re.sub("[su]?i$", "", op.name.removeprefix("arith."))
    if name == "cmp":
        number = int(str(op.attributes["predicate"]).split()[0])
        unsigned = number >= len(_ORDER)
        return None if unsigned and min(a, b) < 0 else int(_ORDER[number - 4 * unsigned](a, b))
    natural = op.name.endswith("ui") or name in ("div", "floordiv", "rem", "shl", "shr")
    if name not in _ARITHMETIC or (natural and (a < 0 or not (0 <= b < 32 if name.startswith("sh") else b > 0))):
        return None
    return _ARITHMETIC[name](a, b)
