# SPDX-License-Identifier: Apache-2.0
"""PTX for `sm_100a` to PTX for `sm_90a`: tcgen05 instructions become calls of the emulation library.

Sources: PTX ISA 9.0 §9.7.16 through `porter.ptx`; what `ptxas -arch=sm_90a` refuses of a module for SM100 is
what the instruction table says Hopper lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from porter.diagnostics import Code, Location, PorterError
from porter.hopper import others, pairs, tensor_memory
from porter.hopper.emit import Sequel, instruction
from porter.ptx.ast import (
    Block,
    Function,
    Guard,
    Imm,
    Instruction,
    Label,
    Module,
    Reg,
    RegDecl,
    SourceLoc,
    Statement,
    Sym,
    Vec,
)
from porter.ptx.printer import to_text
from porter.ptx.table import UnknownInstruction, check

TARGET = "sm_90a"
VERSION = (9, 0)
"""PTX version of the library that is pasted into the module."""


class CannotLower(PorterError):
    """An instruction that Hopper does not have and that is not emulated."""

    def __init__(self, found: Instruction, kernel: str, reason: str) -> None:
        where = Location(found.loc.file, found.loc.line, found.loc.column) if found.loc else None
        super().__init__(
            Code.CANNOT_EMULATE, where, opcode=found.opcode, reason=reason,
            detail=f"in {kernel}, PTX line {found.line}",
        )  # fmt: skip


@dataclass(frozen=True)
class Site:
    """One lowered instruction; traps name it by its number."""

    number: int
    kernel: str
    opcode: str
    line: int
    loc: SourceLoc | None = None


@dataclass(frozen=True)
class Lowered:
    """A module for `sm_90a`, without the library it calls, and the places it calls it from.

    `removed` counts instructions that were left out because they have no effect here, by opcode.
    """

    module: Module
    sites: tuple[Site, ...]
    removed: dict[str, int] = field(default_factory=dict)

    @property
    def ptx(self) -> str:
        return to_text(self.module)


class Registers:
    """The types of the registers in scope."""

    def __init__(self) -> None:
        self._scopes: list[dict[str, str]] = [{}]

    def enter(self, body: Iterable[Statement]) -> None:
        names = {s.name: s.type for s in body if isinstance(s, RegDecl)}
        self._scopes.append(names)

    def leave(self) -> None:
        self._scopes.pop()

    def bits(self, register: Reg) -> int:
        """Width of a register; 32 if nothing declares it."""
        name = register.name
        for scope in reversed(self._scopes):
            found = scope.get(name) or scope.get(name.rstrip("0123456789"))
            if found is not None:
                digits = found.rpartition(".")[2].lstrip("bsuf")
                return int(digits) if digits.isdigit() else 32
        return 32


def lower(module: Module, first_site: int = 0) -> Lowered:
    """The module rewritten for Hopper. Functions that use nothing new stay as they are; sites are numbered from
    `first_site` on.

    Raises:
        CannotLower: names the first instruction that Hopper lacks and that is not emulated.
    """
    state = _Lowering(first_site, pairs.is_used(module))
    functions = tuple(state.function(f) for f in module.functions)
    found = Module(
        version=max(module.version, VERSION),
        target=TARGET,
        address_size=module.address_size,
        variables=module.variables,
        functions=functions,
        files=module.files,
    )
    return Lowered(found, tuple(state.sites), state.removed)


class _Lowering:
    def __init__(self, first_site: int, pair: bool) -> None:
        self.first_site = first_site
        self.setting = tensor_memory.Setting(lambda register: self.registers.bits(register), pair)
        self.sites: list[Site] = []
        self.removed: dict[str, int] = {}
        self.registers = Registers()
        self.kernel = ""
        self.sequels = 0

    def function(self, function: Function) -> Function:
        if function.body is None:
            return function
        self.kernel = function.name
        body = tuple(self.body(function.body))
        if function.is_entry and self.setting.pair:
            body = pairs.begin(body, self.sequel())
        return replace(function, body=body)

    def body(self, body: tuple[Statement, ...]) -> Iterator[Statement]:
        self.registers.enter(body)
        for statement in body:
            if isinstance(statement, Block):
                yield Block(tuple(self.body(statement.body)))
            elif isinstance(statement, Instruction):
                yield from self.instruction(statement)
            else:
                yield statement
        self.registers.leave()

    def instruction(self, found: Instruction) -> Iterable[Statement]:
        family = found.parts[0]
        if family == "tcgen05":
            return self.tcgen05(found)
        if family == "setmaxnreg":
            # Calls need their registers, and ptxas ignores the instruction in their presence (C7504).
            return self.remove(found)
        if found.parts[:2] in (("mbarrier", "try_wait"), ("mbarrier", "test_wait")):
            return self.wait(found)
        if family == "cp" and "cta_group::1" in found.parts:
            return [_without(found, "cta_group::1")]
        if family == "cp" and "cta_group::2" in found.parts:
            return self.pair_copy(found)
        if found.parts[-1] == "f32x2" and family in ("add", "sub", "mul", "fma"):
            return self.packed(found)
        emulate = self.other(found)
        if emulate is not None:
            sequel = self.sequel()
            emulate(found, sequel)
            return [sequel.block(found.guard)]
        self.check(found)
        return [found]

    @staticmethod
    def other(found: Instruction) -> Callable[[Instruction, Sequel], None] | None:
        """What replaces an instruction outside tcgen05 that Hopper lacks."""
        if others.is_wide_access(found):
            return others.wide_access
        if others.is_of_three(found):
            return others.of_three
        if found.parts[0] == "redux" and found.parts[-1] == "f32":
            return others.redux
        return others.cancel if found.parts[0] == "clusterlaunchcontrol" else None

    def check(self, found: Instruction) -> None:
        try:
            missing = check(found, TARGET)
        except UnknownInstruction:
            # ptxas is the judge of what the table does not know.
            return
        if missing is not None:
            raise CannotLower(found, self.kernel, missing)

    def remove(self, found: Instruction) -> list[Statement]:
        self.removed[found.opcode] = self.removed.get(found.opcode, 0) + 1
        return []

    def sequel(self) -> Sequel:
        self.sequels += 1
        return Sequel(self.sequels)

    def site(self, found: Instruction) -> Imm:
        number = self.first_site + len(self.sites)
        self.sites.append(Site(number, self.kernel, found.opcode, found.line, found.loc))
        return Imm(number)

    # Tensor Memory and the tensor core -----------------------------------------------------------------

    def tcgen05(self, found: Instruction) -> Iterable[Statement]:
        if found.parts[1].startswith("fence::") or found.parts[1] == "wait::ld":
            return self.remove(found)
        sequel = self.sequel()
        site = self.site(found)
        try:
            tensor_memory.lower(found, sequel, site, self.setting)
        except (tensor_memory.NotEmulated, UnknownInstruction, ValueError) as problem:
            raise CannotLower(found, self.kernel, str(problem)) from None
        return [sequel.block(found.guard)]

    # Other instructions --------------------------------------------------------------------------------

    def wait(self, found: Instruction) -> Iterable[Statement]:
        """A poll that never suspends; a thread that has to wait does the tensor core's work meanwhile."""
        sequel = self.sequel()
        opcode = ".".join(found.parts).replace("try_wait", "test_wait")
        operands = found.operands[:3]  # A time hint is for suspended threads.
        sequel.add(opcode, *operands)
        done = operands[0]
        over = sequel.label()
        assert isinstance(done, Reg)
        sequel.body.append(instruction("bra", Sym(over), guard=Guard(done)))
        sequel.call("porter_pair_poll" if self.setting.pair else "porter_poll", [("b32", self.site(found))])
        sequel.body.append(Label(over))
        return [sequel.block(found.guard)]

    def pair_copy(self, found: Instruction) -> Iterable[Statement]:
        sequel = self.sequel()
        try:
            pairs.copy(found, sequel, self.site(found))
        except tensor_memory.NotEmulated as problem:
            raise CannotLower(found, self.kernel, str(problem)) from None
        return [sequel.block(found.guard)]

    def packed(self, found: Instruction) -> Iterable[Statement]:
        """Arithmetic on two floats in a 64-bit register, half by half."""
        sequel = self.sequel()
        halves: list[tuple[Reg, Reg]] = []
        for operand in found.operands[1:]:
            low, high = sequel.temporary("b32"), sequel.temporary("b32")
            sequel.add("mov.b64", Vec((low, high)), operand)
            halves.append((low, high))
        results = (sequel.temporary("f32"), sequel.temporary("f32"))
        opcode = ".".join((*found.parts[:-1], "f32"))
        for side, result in enumerate(results):
            sources = []
            for pair in halves:
                value = sequel.temporary("f32")
                sequel.add("mov.b32", value, pair[side])
                sources.append(value)
            sequel.add(opcode, result, *sources)
        sequel.add("mov.b64", found.operands[0], Vec(results))
        return [sequel.block(found.guard)]


def _without(found: Instruction, part: str) -> Instruction:
    parts = tuple(p for p in found.parts if p != part)
    return replace(found, opcode=".".join(parts), parts=parts)
