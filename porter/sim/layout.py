# SPDX-License-Identifier: Apache-2.0
"""Where the variables of a kernel are in shared and local memory."""

from __future__ import annotations

from porter.ptx import layout
from porter.sim.program import Program, Variable


def place_variables(program: Program) -> None:
    """Give shared and local variables their offsets; dynamic shared memory begins behind the static one."""
    used = layout.named_in(program.code)
    shared = layout.lay_out(_sized(v) for v in program.variables.values() if v.space == "shared" and v.name in used)
    local = layout.lay_out(_sized(v) for v in program.variables.values() if v.space == "local")
    program.shared_size, program.dynamic_offset, program.local_size = shared.size, shared.behind, local.size
    for name, offset in (shared.offsets | local.offsets).items():
        program.variables[name].offset = offset


def _sized(variable: Variable) -> layout.Variable:
    is_dynamic = variable.space == "shared" and variable.decl is not None and variable.decl.extern
    return layout.Variable(variable.name, variable.size, variable.align, is_dynamic)
