# SPDX-License-Identifier: Apache-2.0
"""Where the variables of a kernel are in shared and local memory."""

from __future__ import annotations

from porter.ptx import ast
from porter.sim.program import Program


def place_variables(program: Program) -> None:
    """Give shared and local variables their offsets; dynamic shared memory begins behind the static one."""
    used = _named(program)
    shared = 0
    dynamic_align = 16
    for v in program.variables.values():
        if v.space == "shared" and not (v.decl is not None and v.decl.extern):
            # Shared variables of module scope count for a kernel only if it names them.
            if v.name not in used:
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


def _named(program: Program) -> set[str]:
    """All names that instructions use."""
    named: set[str] = set()

    def walk(op: ast.Operand) -> None:
        if isinstance(op, ast.Sym):
            named.add(op.name)
        elif isinstance(op, ast.Mem):
            walk(op.base)
        elif isinstance(op, ast.Vec):
            for i in op.items:
                walk(i)

    for ins in program.code:
        for op in ins.operands:
            walk(op)
    return named
