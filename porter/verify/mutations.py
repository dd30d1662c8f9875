# SPDX-License-Identifier: Apache-2.0
"""What can be done to a synchronizing instruction: leave it out, or weaken it.

`LEVELS` says what a mutation breaks. An *error* takes away an edge that every reading of the PTX ISA asks for;
*strict* one that only its letter does, which code in circulation leaves out (`tcgen05.fence`, and the cluster
scope of arrivals and waits, where CUTLASS writes none); *other* nothing that the kernel's own data depends on,
such as when other blocks on the SM may allocate Tensor Memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from porter.ptx import ast
from porter.ptx.arch import WARP
from porter.ptx.tmem import MIN_ALLOCATION

Level = Literal["error", "strict", "other"]
Statements = tuple[ast.Statement, ...]
Mutation = tuple[str, Level, Statements]

DROP = "drop"
RELAXED = "relaxed"


def mutations(ins: ast.Instruction) -> list[Mutation]:
    """(what is done, its level, what stands in the instruction's place) for each mutation of an instruction."""
    found = _BY_FAMILY.get(ins.parts[0])
    return [] if found is None else found(ins)


def _drop(level: Level = "error") -> Mutation:
    return DROP, level, ()


# Parts of instructions ----------------------------------------------------------------------------------


def _with(ins: ast.Instruction, parts: tuple[str, ...], operands: tuple[ast.Operand, ...] | None = None) -> Statements:
    new = ins.operands if operands is None else operands
    return (replace(ins, opcode=".".join(parts), parts=parts, operands=new, text=""),)


def _operand(ins: ast.Instruction, index: int, value: ast.Operand) -> Statements:
    at = index % len(ins.operands)
    return (replace(ins, operands=(*ins.operands[:at], value, *ins.operands[at + 1 :]), text=""),)


def _computed(ins: ast.Instruction, index: int, op: str, by: int) -> Statements:
    """The instruction with an operand computed first: `index` is the operand's, `by` the other one's value."""
    value = ins.operands[index]
    if isinstance(value, ast.Imm):
        number = int(value.value)
        return _operand(ins, index, ast.Imm(number + by if op == "add" else number >> by))
    kind = (op, "u32")
    new = ast.Reg("mutated_value")
    first = ast.Instruction(".".join(kind), kind, (new, value, ast.Imm(by)), None, ins.line, ins.loc)
    return (ast.Block((ast.RegDecl("b32", new.name), first, *_operand(ins, index, new))),)


def _is_number(ins: ast.Instruction, index: int) -> bool:
    return isinstance(ins.operands[index], ast.Imm | ast.Reg)


def _relaxed(ins: ast.Instruction, after: tuple[str, ...], scope: str) -> tuple[str, ...]:
    """The opcode with `.relaxed` for its semantics. Where it has none, they go behind the part in `after`."""
    p = ins.parts
    for i, part in enumerate(p):
        if part in ("release", "acquire", "acq_rel"):
            return (*p[:i], "relaxed", *p[i + 1 :])
    at = max(i for i, part in enumerate(p) if part in after) + 1
    return (*p[:at], "relaxed", scope, *p[at:])


def _narrower(ins: ast.Instruction) -> list[Mutation]:
    """Cluster scope made block scope."""
    p = ins.parts
    if "cluster" not in p:
        return []
    at = p.index("cluster")
    return [("block scope for", "strict", _with(ins, (*p[:at], "cta", *p[at + 1 :])))]


# Families -----------------------------------------------------------------------------------------------


def _tcgen05(ins: ast.Instruction) -> list[Mutation]:
    what = ins.parts[1]
    if what.startswith("fence::"):
        return [_drop("strict")]
    if what in ("wait::ld", "wait::st"):
        return [_drop()]
    if what == "relinquish_alloc_permit":
        return [_drop("other")]
    if what in ("alloc", "dealloc"):
        columns = ins.operands[1]
        if isinstance(columns, ast.Imm) and int(columns.value) <= MIN_ALLOCATION:
            return [_drop()]
        return [_drop(), ("half the columns for", "error", _computed(ins, 1, "shr", 1))]
    if what == "commit":
        return [_drop(), *_elsewhere(ins, 0), *_alone(ins)]
    return []


def _elsewhere(ins: ast.Instruction, index: int) -> list[Mutation]:
    """Arriving on the mbarrier behind the right one."""
    where = ins.operands[index]
    if not isinstance(where, ast.Mem):
        return []
    return [("next barrier for", "error", _operand(ins, index, replace(where, offset=where.offset + 8)))]


def _alone(ins: ast.Instruction) -> list[Mutation]:
    """A multicast arrival only in the own block."""
    if "multicast::cluster" not in ins.parts:
        return []
    parts = tuple(p for p in ins.parts if p != "multicast::cluster")
    return [("own block only for", "error", _with(ins, parts, ins.operands[:-1]))]


def _wgmma(ins: ast.Instruction) -> list[Mutation]:
    if ins.parts[1] == "wait_group":
        return [_drop(), *_fewer_groups(ins)]
    return [_drop()] if ins.parts[1] in ("commit_group", "fence") else []


def _fewer_groups(ins: ast.Instruction) -> list[Mutation]:
    if not ins.operands or not isinstance(ins.operands[0], ast.Imm):
        return []
    return [("one group more pending for", "error", _computed(ins, 0, "add", 1))]


def _fence(ins: ast.Instruction) -> list[Mutation]:
    p = ins.parts
    found = [_drop()]
    if p[1] == "proxy" and p[2] == "async" and "global" not in p:
        space = ("fence", "proxy", "async", "global")
        found.append(("other memory for", "error", _with(ins, space)))
    # fence.mbarrier_init has no scope but the cluster's.
    return found if p[1] in ("proxy", "mbarrier_init") else [*found, *_narrower(ins)]


def _barrier(ins: ast.Instruction) -> list[Mutation]:
    p, ops = ins.parts, ins.operands
    # A barrier that reduces also gives a value.
    if "red" in p:
        return []
    if "warp" in p:
        return [_drop()]
    if "cluster" in p:
        weaker: list[Mutation] = []
        if "arrive" in p and "relaxed" not in p:
            weaker = [(RELAXED, "error", _with(ins, _relaxed_arrive(p)))]
        return [_drop(), *weaker]
    found = [_drop()]
    if len(ops) == 2 and _is_number(ins, 1):
        if "sync" in p:
            at = p.index("sync")
            found.append(("no waiting at", "error", _with(ins, (*p[:at], "arrive", *p[at + 1 :]))))
        found.append(("one warp more for", "error", _computed(ins, 1, "add", WARP)))
        if not isinstance(ops[1], ast.Imm) or int(ops[1].value) > WARP:
            found.append(("one warp less for", "error", _computed(ins, 1, "add", -WARP)))
    return found


def _relaxed_arrive(p: tuple[str, ...]) -> tuple[str, ...]:
    rest = tuple(part for part in p if part != "release")
    at = rest.index("arrive") + 1
    return (*rest[:at], "relaxed", *rest[at:])


def _copy(ins: ast.Instruction) -> list[Mutation]:
    p = ins.parts
    if "commit_group" in p or "wait_all" in p:
        return [_drop()]
    if "wait_group" in p:
        found = [_drop(), *_fewer_groups(ins)]
        if "bulk" in p and "read" not in p:
            found.append(("reading only for", "error", _with(ins, (*p, "read"))))
        return found
    # cp.async.mbarrier.arrive: an arrival once the thread's copies are there.
    return [_drop()] if "mbarrier" in p and "arrive" in p else []


def _grid(ins: ast.Instruction) -> list[Mutation]:
    return [_drop("other")]


def _registers(ins: ast.Instruction) -> list[Mutation]:
    """Registers that are not given back. Without the other direction the kernel only spills."""
    return [_drop()] if ins.parts[1] == "dec" else []


def _memory(ins: ast.Instruction) -> list[Mutation]:
    """Loads, stores and atomics that synchronize."""
    if not {"release", "acquire", "acq_rel"} & set(ins.parts):
        return []
    return [(RELAXED, "error", _with(ins, _relaxed(ins, (), ""))), *_narrower(ins)]


def _mbarrier(ins: ast.Instruction) -> list[Mutation]:
    what = ins.parts[1]
    if what == "init":
        return _init(ins)
    if what in ("arrive", "arrive_drop"):
        return _arrive(ins)
    if what == "expect_tx":
        return [_drop(), ("half the bytes for", "error", _computed(ins, 1, "shr", 1))]
    return _wait(ins) if what in ("try_wait", "test_wait") else []


def _init(ins: ast.Instruction) -> list[Mutation]:
    found = [_drop()]
    if _is_number(ins, 1):
        found.append(("one arrival more for", "error", _computed(ins, 1, "add", 1)))
        if not isinstance(ins.operands[1], ast.Imm) or int(ins.operands[1].value) > 1:
            found.append(("one arrival less for", "error", _computed(ins, 1, "add", -1)))
    return found


def _arrive(ins: ast.Instruction) -> list[Mutation]:
    found = [_drop(), *_elsewhere(ins, 0 if isinstance(ins.operands[0], ast.Mem) else 1)]
    remote = "shared::cluster" in ins.parts
    # noComplete has no relaxed form.
    if not {"relaxed", "noComplete"} & set(ins.parts):
        parts = _relaxed(ins, ("arrive", "arrive_drop", "expect_tx"), "cluster" if remote else "cta")
        found.append((RELAXED, "error", _with(ins, parts)))
    found += _narrower(ins)
    if "expect_tx" in ins.parts:
        found.append(("no bytes for", "error", _operand(ins, -1, ast.Imm(0))))
        found.append(("half the bytes for", "error", _computed(ins, len(ins.operands) - 1, "shr", 1)))
    else:
        found.append(("twice", "error", (ins, ins)))
    return found


def _wait(ins: ast.Instruction) -> list[Mutation]:
    passed = ("setp", "eq", "u32")
    always = ast.Instruction(".".join(passed), passed, (ins.operands[0], ast.Imm(1), ast.Imm(1)), ins.guard,
                             ins.line, ins.loc)  # fmt: skip
    found: list[Mutation] = [("pass at once", "error", (always,))]
    if "parity" in ins.parts:
        other, kind = ast.Reg("mutated_value"), ("xor", "b32")
        flip = ast.Instruction(".".join(kind), kind, (other, ins.operands[2], ast.Imm(1)), None, ins.line, ins.loc)
        body = (ast.RegDecl("b32", other.name), flip, *_operand(ins, 2, other))
        found.append(("flip parity of", "error", (ast.Block(body),)))
    if "relaxed" not in ins.parts:
        parts = _relaxed(ins, ("try_wait", "test_wait", "parity"), "cta")
        found.append((RELAXED, "error", _with(ins, parts)))
    return [*found, *_narrower(ins)]


_BY_FAMILY: dict[str, Callable[[ast.Instruction], list[Mutation]]] = {
    "tcgen05": _tcgen05,
    "wgmma": _wgmma,
    "fence": _fence,
    "membar": lambda ins: [_drop()],
    "bar": _barrier,
    "barrier": _barrier,
    "cp": _copy,
    "mbarrier": _mbarrier,
    "griddepcontrol": _grid,
    "setmaxnreg": _registers,
    "ld": _memory,
    "st": _memory,
    "atom": _memory,
    "red": _memory,
}
