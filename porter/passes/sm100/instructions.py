# SPDX-License-Identifier: Apache-2.0
"""Checks of PTX modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from porter.diagnostics import Code, Diagnostic, Location
from porter.passes.sm100.findings import Budget, Load, budget_of_block, load_findings
from porter.passes.sm100.registers import budgets
from porter.passes.targets import absent
from porter.ptx.arch import PORT_TARGETS, SM100A, PortTarget
from porter.ptx.ast import Block, Function, Instruction, Module, Placeholder, Reg, Statement, Sym
from porter.ptx.forms.grammar import OperandForm
from porter.ptx.launch_bounds import threads_at_most
from porter.ptx.parser import parse_module
from porter.ptx.table import UnknownInstruction, check, destinations, nearest, opcode_modifiers, sources
from porter.ptx.tmem_access import TmemAccess

HOPPER = "sm_90a"
SM100 = SM100A.name
_ASSERTION = "__assertfail"
_UNBOUND = 1 << 16
_ENDS = ("bra", "brx", "call", "exit", "ret")
"""Opcodes behind which another basic block, or code that is not followed, may have waited."""


def ptx_findings(path: str, text: str, target: PortTarget = SM100A) -> list[Diagnostic]:
    """Everything that is found in a PTX module.

    Raises:
        PorterError: what `parse_module` raises.
    """
    module = parse_module(text)
    found = list(_target(path, module, target))
    allocated: Location | None = None
    freed = False
    for function in module.functions:
        body = list(flat(function.body or ()))
        instructions = [s for s in body if isinstance(s, Instruction)]
        found += _hopper(path, instructions)
        placed = [(Location(path, i.line), i) for i in instructions]
        found += absent_findings(placed, target)
        found += refused_findings(placed)
        found += _loads(path, function, body)
        found += _unwaited(path, body)
        for instruction in instructions:
            if is_tcgen05(instruction, "alloc"):
                allocated = allocated or Location(path, instruction.line)
            freed = freed or is_tcgen05(instruction, "dealloc")
    if allocated is not None and not freed:
        found.append(Diagnostic(Code.TMEM_KEPT, allocated))
    return found


def flat(body: Sequence[Statement]) -> Iterator[Statement]:
    """Statements in order, those of scopes with them."""
    for statement in body:
        if isinstance(statement, Block):
            yield from flat(statement.body)
        else:
            yield statement


def is_tcgen05(instruction: Instruction, operation: str) -> bool:
    return instruction.parts[:2] == ("tcgen05", operation)


def access_of(instruction: Instruction) -> TmemAccess | None:
    """What a load from Tensor Memory loads; None of anything else."""
    given = opcode_modifiers(instruction.opcode) if is_tcgen05(instruction, "ld") else None
    return TmemAccess.of(given) if given is not None else None


def only_hopper(instruction: Instruction) -> bool:
    """Whether sm_90a has an instruction and sm_100a not."""
    try:
        return check(instruction, SM100) is not None and check(instruction, HOPPER) is None
    except UnknownInstruction:
        return instruction.parts[0] == "wgmma"


def absent_findings(instructions: Iterable[tuple[Location, Instruction]], target: PortTarget) -> Iterator[Diagnostic]:
    """Instructions that sm_100a has and the target has not, each once."""
    if target == SM100A:
        return
    said: set[str] = set()
    for where, instruction in instructions:
        why = absent(instruction, target)
        if why is not None and why not in said:
            said.add(why)
            yield Diagnostic(Code.TARGET_LACKS, where, {"target": target.name, "why": why})


def refused_findings(instructions: Iterable[tuple[Location, Instruction]]) -> Iterator[Diagnostic]:
    """Forms of tcgen05 that sm_100a does not have, each once."""
    said: set[str] = set()
    for where, instruction in instructions:
        if instruction.parts[0] != "tcgen05" or instruction.text in said:
            continue
        try:
            why = check(instruction, SM100, (99, 0))
        except UnknownInstruction:
            why = _other_form(instruction)
        if why is not None:
            said.add(instruction.text)
            yield Diagnostic(Code.SM100_REFUSED, where, {"name": instruction.opcode, "target": SM100, "why": why})


def _other_form(instruction: Instruction) -> str:
    """What there is in place of an instruction that there is not."""
    form = nearest(instruction)
    if form is None:
        return "nothing is called so"
    operands = ", ".join(map(_operand, form.operands))
    written = f"`{form.pattern}{' ' if operands else ''}{operands}`"
    if form.modifiers(instruction.parts) is not None:
        return f"its operands are those of {written}"
    return f"there is {written}"


def _operand(form: OperandForm) -> str:
    written = f"[{form.name}]" if form.kind == "memory" else form.name
    return f"{written}?" if form.optional else written


def _target(path: str, module: Module, target: PortTarget) -> Iterator[Diagnostic]:
    plain = module.target in {f"sm_{t.sm}" for t in PORT_TARGETS}
    other = target != SM100A and module.target in {t.name for t in PORT_TARGETS} - {target.name}
    if (plain or other) and any(
        isinstance(s, Instruction) and s.parts[0] == "tcgen05" for f in module.functions for s in flat(f.body or ())
    ):
        what = f"tcgen05 under `.target {module.target}`"
        yield Diagnostic(Code.PLAIN_TARGET, Location(path), {"what": what, "advice": f"write `.target {target.name}`"})


def _hopper(path: str, instructions: Sequence[Instruction]) -> Iterator[Diagnostic]:
    left = [i for i in instructions if only_hopper(i)]
    if left:
        times = f" ({len(left)} instructions)" if len(left) > 1 else ""
        yield Diagnostic(Code.HOPPER_PTX, Location(path, left[0].line), {"name": left[0].opcode, "times": times})


def _loads(path: str, function: Function, body: Sequence[Statement]) -> Iterator[Diagnostic]:
    has = budgets(body, _at_entry(function))
    by_opcode: dict[str, list[tuple[Instruction, Budget | None]]] = {}
    for at, statement in enumerate(body):
        if isinstance(statement, Instruction) and access_of(statement) is not None:
            by_opcode.setdefault(statement.opcode, []).append((statement, has.get(at)))
    for opcode, same in by_opcode.items():
        first, budget = min(same, key=lambda one: one[1].registers if one[1] is not None else _UNBOUND)
        access = access_of(first)
        assert access is not None
        load = Load(opcode, access.shape, access.count, Location(path, first.line), len(same))
        yield from load_findings(load, budget)
    asserts = [s for s in body if isinstance(s, Instruction) and s.parts[0] == "call" and Sym(_ASSERTION) in s.operands]
    if by_opcode and asserts:
        what = f"{len(asserts)} assertions stand beside {sum(map(len, by_opcode.values()))} loads of Tensor Memory"
        values = {"what": what, "advice": "build with -DNDEBUG"}
        yield Diagnostic(Code.T2R_ASSERTS, Location(path, asserts[0].line), values)


def _at_entry(function: Function) -> Budget | None:
    """What the directives of an entry leave to a thread."""
    stated = function.directives
    if "maxnreg" in stated:
        return Budget(stated["maxnreg"][0], f".maxnreg {stated['maxnreg'][0]}")
    threads = threads_at_most(stated)
    if not threads:
        return None
    return budget_of_block(threads, stated.get("minnctapersm", (1,))[0])


def _unwaited(path: str, body: Sequence[Statement]) -> Iterator[Diagnostic]:
    """Registers of a load that are read in the same basic block without a wait between."""
    open_: dict[Reg | Placeholder, str] = {}
    said: set[str] = set()
    for statement in body:
        if not isinstance(statement, Instruction):
            open_.clear()
            continue
        if statement.parts[:2] == ("tcgen05", "wait::ld") or statement.parts[0] in (
            "bra",
            "ret",
            "call",
            "brx",
            "exit",
        ):
            open_.clear()
            continue
        try:
            read, written = sources(statement), destinations(statement)
        except UnknownInstruction:
            continue
        for register in read:
            opcode = open_.get(register)
            if opcode is not None and opcode not in said:
                said.add(opcode)
                yield Diagnostic(Code.T2R_UNWAITED, Location(path, statement.line), {"name": opcode})
        for register in written:
            open_.pop(register, None)
        if access_of(statement) is not None:
            open_.update(dict.fromkeys(written, statement.opcode))
