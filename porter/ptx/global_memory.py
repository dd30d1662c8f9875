# SPDX-License-Identifier: Apache-2.0
"""Which instructions touch nothing of global memory, whatever their operands are (PTX ISA 9.0)."""

from __future__ import annotations

_ELSEWHERE = {
    "9.7.9": ("prefetch", "prefetchu", "createpolicy", "mapa", "getctarank", "shfl"),
    "9.7.12": ("exit", "ret"),
    "9.7.13": ("mbarrier", "bar", "barrier", "fence", "membar", "elect", "vote", "match", "redux", "activemask",
               "griddepcontrol"),
    "9.7.14": ("mma", "ldmatrix", "stmatrix", "movmatrix"),
    "9.7.15": ("wgmma",),
    "9.7.16": ("tcgen05",),
    "9.7.19": ("nanosleep", "setmaxnreg"),
}  # fmt: skip
"""Opcodes by the section that says what they do: registers, order, shared memory, Tensor Memory, or hints alone."""
_OPCODES = frozenset(opcode for opcodes in _ELSEWHERE.values() for opcode in opcodes)
_SPACES = ("shared", "local", "param")
"""State spaces beside global memory (PTX ISA 5.1), as opcodes name them."""
_NAMES_TWO = frozenset(("cp", "tensormap"))
"""Opcodes that name the space of one of two places, or of none."""


def leaves_global_alone(parts: tuple[str, ...]) -> bool:
    """Whether an opcode, by its parts, touches nothing of global memory; False where its operands decide."""
    head = parts[0]
    return head in _OPCODES or (head not in _NAMES_TWO and any(part.startswith(_SPACES) for part in parts))
