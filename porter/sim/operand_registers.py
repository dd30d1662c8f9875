# SPDX-License-Identifier: Apache-2.0
"""Which registers an instruction reads and writes."""

from __future__ import annotations

from porter.ptx import ast


def registers(op: ast.Operand) -> list[str]:
    """Names of all registers in an operand."""
    if isinstance(op, ast.Reg):
        return [op.name]
    if isinstance(op, ast.Mem):
        return registers(op.base) + [r for p in op.parts for r in registers(p)]
    if isinstance(op, ast.Vec):
        return [r for i in op.items for r in registers(i)]
    if isinstance(op, ast.Pair):
        return registers(op.first) + registers(op.second)
    if isinstance(op, ast.Neg):
        return registers(op.operand)
    return []


_NO_RESULT = frozenset(
    ("st", "call", "red", "bra", "brx", "ret", "exit", "trap", "membar", "fence", "bar", "barrier",
     "prefetch", "prefetchu", "discard", "applypriority", "nanosleep", "stmatrix", "setmaxnreg",
     "griddepcontrol", "tensormap", "brkpt", "pmevent", "cp", "stackrestore")
)  # fmt: skip


def uses_and_defs(ins: ast.Instruction) -> tuple[list[str], list[str]]:
    """Registers an instruction reads and registers it writes. A guarded or partial write also reads."""
    p = ins.parts
    head = p[0]
    ops = ins.operands
    uses: list[str] = []
    defs: list[str] = []
    first_is_result = head not in _NO_RESULT
    if head in ("bar", "barrier") and "red" in p:
        first_is_result = True
    if head == "mbarrier":
        first_is_result = bool(ops) and not isinstance(ops[0], ast.Mem)
    elif head == "tcgen05":
        first_is_result = p[1] == "ld"
    elif head == "wgmma":
        first_is_result = p[1] == "mma_async"
        if first_is_result:
            uses.extend(registers(ops[0]))
    elif head == "clusterlaunchcontrol":
        first_is_result = p[1] == "query_cancel"
    elif head == "multimem":
        first_is_result = p[1] == "ld_reduce"
    if ins.guard is not None:
        uses.extend(registers(ins.guard.operand))
    for i, op in enumerate(ops):
        if i == 0 and first_is_result and not isinstance(op, ast.Mem):
            defs.extend(registers(op))
        else:
            uses.extend(registers(op))
    if ins.guard is not None:
        uses.extend(defs)
    return uses, defs


def matrix_registers(ins: ast.Instruction) -> set[str]:
    """The accumulators of a wgmma and, if A is in registers, those of A."""
    vectors = [o for o in ins.operands[:2] if isinstance(o, ast.Vec)]
    return {i.name for o in vectors for i in o.items if isinstance(i, ast.Reg)}
