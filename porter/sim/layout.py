# SPDX-License-Identifier: Apache-2.0
"""Where the variables of a kernel are in shared and local memory."""

from __future__ import annotations

from porter.ptx import layout
from porter.sim.program import Program, Variable


def place_variables(program: Program) -> None:
    """Give shared and local variables their offsets; dynamic shared memory begins behind the static one."""
    used = layout.named_in(program.code)
    of_module = {v.name for v in program.module.variables}

    def of(space: str) -> list[layout.Variable]:
        return [
            layout.Variable(v.name, v.size, v.align, v.name in of_module, _is_dynamic(v))
            for v in program.variables.values() if v.space == space and (space == "local" or v.name in used)
        ]  # fmt: skip

    shared, local = layout.lay_out(of("shared")), layout.lay_out(of("local"))
    program.shared_size, program.dynamic_offset, program.local_size = shared.size, shared.behind, local.size
    for name, offset in (shared.offsets | local.offsets).items():
        program.variables[name].offset = offset


def _is_dynamic(variable: Variable) -> bool:
    return variable.space == "shared" and variable.decl is not None and variable.decl.extern
