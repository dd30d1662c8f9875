# SPDX-License-Identifier: Apache-2.0
"""The chips that ports can be for: those with tcgen05 and Tensor Memory.

Which instructions each has says the instruction table; all hold 227 KB of shared memory a block and 512 columns of
Tensor Memory. They differ in what their names are, and in little else: sm_103a has no kind::i8.

Sources: PTX ISA 9.0 §11.1.2 (targets; sm_101a is sm_110a since that version); CUDA C++ Programming Guide, Compute
Capabilities and Feature-specific macros; names as nvcc 13.0 takes them.
"""

from __future__ import annotations

import re

from porter.ptx.arch import PORT_TARGETS, SM100A, PortTarget
from porter.ptx.ast import Instruction
from porter.ptx.inline import parse_template
from porter.ptx.table import check

_SAMPLE = parse_template("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;").instructions()


_SPELLED = re.compile(r"(?:sm_?|compute_?)?(?:(?P<sm>\d{2,3})|(?P<major>\d{1,2})\.(?P<minor>\d))(?P<suffix>[af]?)")


def port_target(text: str) -> PortTarget:
    """The target that somebody means by `sm_103a`, `SM103a`, `103a`, `compute_103a` or `10.3a`.

    Raises:
        ValueError: a port cannot be for it; the text says why.
    """
    match = _SPELLED.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"`{text}` is no target; there are {_known()}")
    number = int(match["sm"] or match["major"] + match["minor"])
    name = f"sm_{number}{match['suffix']}"
    found = next((t for t in PORT_TARGETS if t.name == name), None)
    if found is not None:
        return found
    if number == 101:
        raise ValueError(f"{name} is sm_110{match['suffix']} since CUDA 13.0")
    if check(_SAMPLE[0], name) is None:
        raise ValueError(f"{name} is a family, and nvcc has no macro of it to guard a port with; there are {_known()}")
    if any(t.sm == number for t in PORT_TARGETS):
        raise ValueError(f"plain {name} has neither tcgen05 nor Tensor Memory: {name}a has")
    raise ValueError(f"{name} has neither tcgen05 nor Tensor Memory; there are {_known()}")


def _known() -> str:
    return ", ".join(t.name for t in PORT_TARGETS)


def lacking(instruction: Instruction, target: PortTarget) -> str | None:
    """Why a target lacks an instruction that sm_100a has; None if it has it, or sm_100a has not.

    Raises:
        UnknownInstruction: no row describes the instruction.
    """
    return check(instruction, target.name) if check(instruction, SM100A.name) is None else None
