# SPDX-License-Identifier: Apache-2.0
"""One kernel of a PTX module, made ready to execute: its code, registers, variables and blocks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property

from porter.ptx import ast
from porter.ptx.table import Decoded
from porter.ptx.unheeded_waits import Ways

EXIT = 1 << 20
"""The block number that means "this thread has ended"."""


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
    """Instructions `start` to `end` (exclusive). `succ` are block numbers; `label`: it is a target; `live_in` and
    `live_out` have a bit for each of the program's `live_names`."""

    number: int
    start: int
    end: int
    lead: str
    label: bool
    succ: tuple[int, ...] = ()
    live_in: int = 0
    live_out: int = 0


@dataclass(eq=False)
class Program:
    """A kernel ready to execute.

    `widths` maps register names to bits (1 for predicates), `vectors` those of vector registers to their
    elements. `live_names` are the registers that live from a block into another, sorted. `variables` holds
    shared, local, param and module-scope variables under their unique names. `shared_size`, `local_size` are
    bytes; `dynamic_offset` is where dynamic shared memory begins.
    """

    module: ast.Module
    entry: ast.Function
    code: list[Decoded] = field(default_factory=list)
    widths: dict[str, int] = field(default_factory=dict)
    vectors: dict[str, tuple[str, ...]] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    blocks: list[BasicBlock] = field(default_factory=list)
    live_names: tuple[str, ...] = ()
    block_at: dict[int, int] = field(default_factory=dict)
    local_size: int = 0
    shared_size: int = 0
    dynamic_offset: int = 0
    # Jumps into functions that stand once, with the label behind the call, and the jumps back.
    calls: dict[int, str] = field(default_factory=dict)
    backs: set[int] = field(default_factory=set)
    _named: dict[int, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """What `registers` found: every launch asks again."""

    def registers(self, live: int) -> tuple[str, ...]:
        """The registers that a block's `live_in` or `live_out` stands for, sorted."""
        found = self._named.get(live)
        if found is None:
            # Of the thousands of registers of a long program few live at one place.
            bits, at, named = bin(live)[:1:-1], -1, []
            while (at := bits.find("1", at + 1)) >= 0:
                named.append(self.live_names[at])
            found = self._named[live] = tuple(named)
        return found

    @cached_property
    def ways(self) -> Ways:
        """What `porter.ptx.unheeded_waits` asks for."""
        code, last = self.code, {b.end - 1: b for b in self.blocks}
        live = {b.start: set(self.registers(b.live_in)) for b in self.blocks}

        def following(at: int) -> list[int]:
            if at not in last:
                return [at + 1]
            return [len(code) if n == EXIT else self.blocks[n].start for n in last[at].succ]

        return Ways(code, following, lambda at: code[at].uses, lambda at: code[at].writes, live.__getitem__,
                    lambda at, name: name)  # fmt: skip

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
