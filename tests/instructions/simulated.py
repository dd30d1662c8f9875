# SPDX-License-Identifier: Apache-2.0
"""Which instructions the simulator executes and checking mode follows, asked of the code generator itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from instructions.samples import HEAD, REGISTERS, instructions, opcodes
from porter.ptx.ast import Instruction, Mem
from porter.ptx.forms.grammar import Access
from porter.ptx.inline import parse_template
from porter.ptx.parser import parse_module
from porter.ptx.table import Completion, Decoded, Form, check, decode
from porter.sim.check.run import CheckedWave
from porter.sim.codegen import RUNTIME, Context
from porter.sim.engine import Engine
from porter.sim.executor import Executor
from porter.sim.loader import load_program
from porter.sim.mbarrier import Mbarriers
from porter.sim.memories import INTERNAL_BASE
from porter.sim.memory import GlobalMemory
from porter.sim.observer import Observer, Observers
from porter.sim.operation import Groups
from porter.sim.registers import Registers
from porter.sim.results import Launch, Options
from porter.sim.tensor_memory import TensorMemory

TARGETS = ("sm_90a", "sm_100a")
"""Targets that instructions are tried for, in this order."""
VERSION = (9, 1)
"""The newest PTX that has instructions here."""

_PARAMETER = 64
_CHUNK = 80
_CALL = re.compile(r"\b(\w+)\(")
_PARTS = Engine, Groups, Mbarriers, Registers, TensorMemory
_ORDERS = frozenset(("bar", "barrier", "fence", "membar", "wgmma", "tcgen05"))
_CONTROL = frozenset(("bra", "brx", "call", "ret", "exit", "trap", "brkpt"))


@dataclass(frozen=True)
class Sample:
    """One instruction of a form: its target, why it is not executed (None if it is) and whether checking mode
    sees it."""

    text: str
    target: str
    refused: str | None
    seen: bool


@dataclass(frozen=True)
class Support:
    """What becomes of a form. `samples` are those that have a target; `concerns`: there is something in it for
    checking mode to follow."""

    form: Form
    samples: tuple[Sample, ...]
    concerns: bool

    @property
    def executed(self) -> tuple[Sample, ...]:
        return tuple(s for s in self.samples if s.refused is None)


def parse_sample(text: str) -> Instruction:
    """A sample as an instruction, its registers declared."""
    return parse_template((REGISTERS + text).replace("%", "%%")).instructions()[-1]


def kernel(texts: Sequence[str], target: str) -> str:
    """A module whose kernel `k` holds the instructions, one a line."""
    lines = [HEAD.format(version=".".join(map(str, VERSION)), target=target)]
    lines.append(f".visible .entry k(.param .align 8 .b8 parameter[{_PARAMETER}]) {{")
    lines += [REGISTERS, *texts, "END: ret;", "}"]
    return "\n".join(lines)


class _Marks(Observer):
    """Notes where the code of each instruction begins."""

    def __init__(self) -> None:
        self.marks: list[tuple[Context, int, int]] = []

    def code(self, cg: Context, ins: Decoded) -> None:
        self.marks.append((cg, cg.at, len(cg.lines)))


def reports(function: Any) -> bool:
    """Whether a function of the simulator, or one that it calls, tells an observer what it does, or puts operations
    into a group, which hold their effects."""
    todo, seen = [function], set()
    while todo:
        one = todo.pop()
        code = getattr(one, "__code__", None)
        if code is None or code in seen or not one.__module__.startswith("porter.sim."):
            continue
        seen.add(code)
        if "observer" in code.co_names or one is Groups.commit:
            return True
        todo += [one.__globals__.get(name) for name in code.co_names]
        todo += [getattr(part, name, None) for part in _PARTS for name in code.co_names]
    return False


def _compiled(text: str, marks: Observer | None = None) -> Executor:
    """`marks` observes, and the checker with it; None: nobody."""
    module = parse_module(text)
    program = load_program(module, "k")
    internal = GlobalMemory(INTERNAL_BASE)
    addresses = {
        v.name: internal.alloc(max(v.size, 1), name=v.name)
        for v in program.variables.values()
        if v.space in ("global", "const")
    }
    launch = Launch((1, 1, 1), (128, 1, 1))
    machine = Executor(program, launch, bytes(_PARAMETER), GlobalMemory(), internal, addresses, Options(), range(1), 0)
    if marks is not None:
        machine.observer = Observers([marks, *CheckedWave(machine, "strict").observers])
    for block in program.blocks:
        for converged in (True, False):
            machine.compiler.compile(block.number, converged)
    return machine


def _tried(texts: Sequence[str], target: str) -> Iterator[Sample]:
    """Compile instructions of one kernel in both modes."""
    text = kernel(texts, target)
    first = text.split("\n").index(texts[0]) + 1
    machine = _compiled(text)
    refused: dict[int, str] = {}
    for at, why in machine.compiler.refused.items():
        refused[machine.program.code[at].line - first] = why or "not modelled"
    told = {name for name, function in RUNTIME.items() if reports(function)}
    observer = _Marks()
    code = _compiled(text, observer).program.code
    seen: set[int] = set()
    for i, (cg, at, start) in enumerate(observer.marks):
        last = i + 1 == len(observer.marks) or observer.marks[i + 1][0] is not cg
        lines = cg.lines[start:] if last else cg.lines[start : observer.marks[i + 1][2]]
        if any("M.observer." in line or told.intersection(_CALL.findall(line)) for line in lines):
            seen.add(code[at].line - first)
    for i, one in enumerate(texts):
        yield Sample(one, target, refused.get(i), i in seen)


def _concerns(form: Form, samples: Sequence[Instruction]) -> bool:
    """Whether checking mode has something to follow: memory, completion, or an ordering."""
    if form.completion is not Completion.NONE or form.commits is not Completion.NONE:
        return form.completion is not Completion.UNTRACKED
    if form.awaits is not Completion.NONE or form.name.split(".")[0] in _ORDERS:
        return True
    return any(map(touches_memory, samples))


def touches_memory(ins: Instruction) -> bool:
    """Whether it accesses memory that threads share."""
    if any(p.startswith(("param", "local", "const")) for p in ins.parts):
        return False
    return any(
        operand.kind == "memory" and operand.access is not Access.NAME and isinstance(found, Mem)
        for operand, found in decode(ins).bound
    )


def survey(forms: Sequence[Form]) -> list[Support]:
    """Try samples of every form: one for each choice of its modifiers."""
    parsed: list[list[tuple[str, Instruction, str]]] = []
    queues: dict[str, list[str]] = {target: [] for target in TARGETS}
    for form in forms:
        rows = []
        for opcode in opcodes(form, most=16):
            for text in instructions(form, opcode):
                ins = parse_sample(text)
                target = next((t for t in TARGETS if check(ins, t, VERSION) is None), None)
                if target is not None:
                    rows.append((text, ins, target))
                    queues[target].append(text)
        parsed.append(rows)
    found: dict[str, Sample] = {}
    for target, texts in queues.items():
        unique = list(dict.fromkeys(texts))
        alone = [t for t in unique if t.split(".")[0].split()[0].rstrip(";") in _CONTROL]
        others = [t for t in unique if t not in set(alone)]
        batches = [others[i : i + _CHUNK] for i in range(0, len(others), _CHUNK)] + [[t] for t in alone]
        for batch in batches:
            found.update((sample.text, sample) for sample in _tried(batch, target))
    return [
        Support(form, tuple(found[text] for text, _, _ in rows), _concerns(form, [ins for _, ins, _ in rows]))
        for form, rows in zip(forms, parsed, strict=True)
    ]
