# SPDX-License-Identifier: Apache-2.0
"""Checks of CUDA C++, with inline PTX or CuTe, for SM100."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from tree_sitter import Node

from porter.diagnostics import Code, Diagnostic
from porter.lang.asm import AsmStatement, MacroDefinition, asm_in_macro, asm_statements, macro_definitions
from porter.lang.cuda import CudaFile, enclosing, find, function_specifiers, location
from porter.lang.text import Span
from porter.passes.sm100.conditions import Branch, Conditions, Macros
from porter.passes.sm100.findings import Budget, Load, budget_of_block, load_findings
from porter.passes.sm100.instructions import (
    HOPPER,
    absent_findings,
    access_of,
    is_tcgen05,
    only_hopper,
    refused_findings,
)
from porter.passes.sm100.issue import issued_by_all
from porter.passes.sm100.registers import asked_of
from porter.passes.sm100.signs import Sign, load_shape, signs_in, stated_findings
from porter.passes.sm100.waits import Own, calls_of, function_at, named, unwaited
from porter.ptx.arch import SM100A, TARGETS, PortTarget
from porter.ptx.ast import Instruction
from porter.rules.match import Match, matches
from porter.rules.rule import Region, Rule

_BOUNDS = re.compile(r"__launch_bounds__\s*\(\s*(\w+)\s*(?:,\s*(\w+)\s*)?[,)]")
_CONSTANT = r"(?:\bconstexpr\s+(?:static\s+)?(?:\w+\s+)+{0}\s*=|#[ \t]*define[ \t]+{0}[ \t])\s*(\d+)\b"
_FIRST_ARGUMENT = re.compile(r"<\s*(\w+)\s*>")
_SAYING = re.compile(rb"^[ \t]*#[ \t]*(?:error|warning|pragma)\b[^\n]*", re.MULTILINE)
"""Directives that are no code."""
_WITHOUT_TCGEN05 = tuple(name for name, t in TARGETS.items() if t.suffix == "a" and t.sm in (90, 120))


@dataclass(frozen=True)
class Mark:
    """Something of one chip alone."""

    name: str
    where: Span


class Checked:
    """One file with what rules and asm statements say of it."""

    def __init__(
        self,
        file: CudaFile,
        rules: Sequence[Rule],
        hopper: Sequence[Rule],
        target: PortTarget = SM100A,
        macros: Macros | None = None,
    ) -> None:
        """`macros`: those that the compiler's command line defines."""
        self.file, self.target, self.macros = file, target, macros or {}
        self.rules = rules
        self.signs = signs_in(rules, lambda rule: matches(rule, file))
        self.hopper_rules = hopper
        self.conditions = Conditions(file, {s.given["name"] for s in self.signs.get("macro", ())}, self.macros)

    def of(self, sign: str) -> list[Sign]:
        return self.signs.get(sign, [])

    def in_macros(self, sign: str) -> list[Sign]:
        """Signs of a kind in what macros stand for."""
        found: list[Sign] = []
        for macro in macro_definitions(self.file):
            found += signs_in(self.rules, partial(_in_macro, self.file, macro)).get(sign, [])
        return found

    @cached_property
    def statements(self) -> list[AsmStatement]:
        if b"asm" not in self.file.source:
            return []
        in_macros = [s for m in macro_definitions(self.file) for s in asm_in_macro(self.file, m)]
        read = (s if s.ptx is not None else s.with_opcode_constants() for s in (*asm_statements(self.file), *in_macros))
        return [s for s in read if s.ptx is not None]

    @cached_property
    def instructions(self) -> list[tuple[AsmStatement, Instruction]]:
        return [(s, i) for s in self.statements if s.ptx is not None for i in s.ptx.instructions()]

    @cached_property
    def hopper(self) -> list[Mark]:
        """What Hopper alone has, by its instructions and by names of libraries."""
        found = [Mark(i.opcode, s.span) for s, i in self.instructions if only_hopper(i)]
        texts = (m for rule in self.hopper_rules for m in matches(rule, self.file))
        return found + [Mark(re.split(r"\s*[(<]", m.text)[0], m.span) for m in texts]

    @cached_property
    def defined(self) -> frozenset[str]:
        """Functions with a body in the file."""
        return frozenset(named(self.file, node)[0] for node in find(self.file.root, "function_definition"))

    @cached_property
    def blackwell(self) -> list[Mark]:
        """What SM100 has and Hopper has not."""
        found = [Mark(s.match.text, s.match.span) for s in (*self.of("blackwell"), *self.of("load"))]
        found += [Mark(i.opcode, s.span) for s, i in self.instructions if i.parts[0] == "tcgen05"]
        return found


def _in_macro(file: CudaFile, macro: MacroDefinition, rule: Rule) -> Iterator[Match]:
    if rule.region is not Region.CODE or rule.pattern is None:
        return
    for found in rule.pattern.finditer(macro.body.decode("latin-1")):
        where = Span(macro.body_span.start + found.start(), macro.body_span.start + found.end())
        yield Match(rule, file.path, where, found[0], None)


def learn_tcgen05(checked: Checked, own: Own) -> None:
    """Functions that are made of tcgen05, unless a condition on architectures is around that."""
    for mark in checked.blackwell:
        name, _ = named(checked.file, function_at(checked.file, mark.where))
        around = checked.conditions.around(mark.where.start)
        if name and not any(map(checked.conditions.about_arch, around)):
            own.of_tcgen05.add(name)


def learn_callers(files: Sequence[Checked], own: Own) -> None:
    """Functions that call such functions, likewise."""
    while True:
        known = set(own.of_tcgen05)
        for checked in files:
            for where, _ in calls_of(checked.file, known):
                name, _ = named(checked.file, function_at(checked.file, where))
                if name and not any(map(checked.conditions.about_arch, checked.conditions.around(where.start))):
                    own.of_tcgen05.add(name)
        if own.of_tcgen05 == known:
            return


def cuda_findings(checked: Checked, own: Own, asserts: bool | None) -> list[Diagnostic]:
    """Everything that is found in one file. `own`: what functions of the sources do. `asserts`: whether the build keeps
    assertions, None if nothing says so."""
    file = checked.file
    found = list(
        stated_findings(checked.of("finding"), file.lexed.source_text, lambda match: location(file, match.span))
    )
    found += _under_conditions(checked, own)
    found += _hopper_left(checked, own)
    placed = [(s.where, i) for s, i in checked.instructions]
    found += absent_findings(placed, checked.target)
    found += refused_findings(placed)
    found += _loads(checked, own)
    found += unwaited(checked.file, checked.statements, checked.of("copy"), checked.of("use"), own)
    found += issued_by_all(file, checked.statements, own)
    found += _kept(checked)
    found += _asserts(checked, asserts)
    return [one for one in found if not _is_left_out(checked, one)]


def _is_left_out(checked: Checked, found: Diagnostic) -> bool:
    """Whether macros of the sources keep the place of a finding from being compiled."""
    where = found.where
    return where is not None and checked.conditions.is_left_out(where.start, checked.target.name)


# Conditions -------------------------------------------------------------------------------------------


def _under_conditions(checked: Checked, own: Own) -> Iterator[Diagnostic]:
    conditions, file = checked.conditions, checked.file
    called = [Mark(name, where) for where, name in calls_of(file, own.of_tcgen05)]
    for branch in conditions.branches:
        if not branch.condition or not conditions.about_arch(branch):
            continue
        inside = [m for m in (*checked.blackwell, *called) if _innermost(conditions, m, branch)]
        hopper = any(_innermost(conditions, m, branch) for m in checked.hopper)
        on_hopper, on_sm100 = conditions.taken(branch, HOPPER), conditions.taken(branch, checked.target.name)
        values = {"condition": branch.condition, "target": checked.target.name}
        empty = not _SAYING.sub(b"", file.lexed.uncommented[branch.body.start : branch.body.end]).strip()
        if on_sm100 is False and (inside or (on_hopper and branch.alone and not hopper and not empty)):
            yield Diagnostic(Code.SM100_LEFT_OUT, location(file, branch.head), values)
        elif inside and not hopper:
            wide = [t for t in _WITHOUT_TCGEN05 if conditions.there(inside[0].where.start, t)]
            if wide:
                values |= {"targets": " and ".join(wide), "have": "has" if len(wide) == 1 else "have"}
                yield Diagnostic(Code.SM100_ADMITS_HOPPER, location(file, branch.head), values)


def _innermost(conditions: Conditions, mark: Mark, branch: Branch) -> bool:
    """Whether no other condition on architectures stands between a branch and what is in it."""
    around = [b for b in conditions.around(mark.where.start) if conditions.about_arch(b)]
    return bool(around) and around[-1] == branch


def _hopper_left(checked: Checked, own: Own) -> Iterator[Diagnostic]:
    """Once for each name, where it is compiled for the chip; what the sources define under such a name is theirs."""
    first: dict[str, Mark] = {}
    times: dict[str, int] = {}
    for mark in checked.hopper:
        if (
            mark.name not in own.defined
            and checked.conditions.there(mark.where.start, checked.target.name) is not False
        ):
            first.setdefault(mark.name, mark)
            times[mark.name] = times.get(mark.name, 0) + 1
    for name, mark in first.items():
        counted = f" ({times[name]} times)" if times[name] > 1 else ""
        yield Diagnostic(Code.HOPPER_LEFT, location(checked.file, mark.where), {"name": name, "times": counted})


# Loads ------------------------------------------------------------------------------------------------


def _loads(checked: Checked, own: Own) -> Iterator[Diagnostic]:
    file = checked.file
    for sign in (*checked.of("load"), *checked.in_macros("load")):
        shape = load_shape(sign)
        if shape is not None:
            load = Load(sign.match.text, shape, int(sign.given["count"]), location(file, sign.match.span))
            yield from load_findings(load, _budget(checked, own, sign.match.span))
    times = Counter((statement.where, i.opcode) for statement, i in checked.instructions)
    for statement, instruction in checked.instructions:
        access, number = access_of(instruction), times.pop((statement.where, instruction.opcode), 0)
        if access is not None and number:
            load = Load(instruction.opcode, access.shape, access.count, statement.where, number)
            yield from load_findings(load, _budget(checked, own, statement.span))


def _budget(checked: Checked, own: Own, where: Span) -> Budget | None:
    """What a thread has at a place: what the block of statements around it, or one around that, has asked for ahead of
    it, else what the launch bounds of the kernel leave, as far as these are numbers, constants of the file or macros of
    the command line. None if it asks in code that may be compiled or not."""
    file = checked.file
    node: Node | None = file.root.descendant_for_byte_range(where.start, where.start + 1)
    function = enclosing(node, "function_definition") if node is not None else None
    if node is None or function is None:
        return None
    asked = dict(_asked(checked, own))
    came_from = node
    while node is not None and node.id != function.id:
        # Another branch of the conditional is not ahead of this one.
        if _is_block(node) and came_from.type not in _OTHER_BRANCHES:
            for start in reversed(list(_statements(node, where.start))):
                there = start in asked and checked.conditions.there(start, checked.target.name, where.start)
                if there is not False:
                    return asked[start] if there else None
        came_from, node = node, node.parent
    return _of_launch(checked, function)


_OTHER_BRANCHES = ("preproc_else", "preproc_elif", "preproc_elifdef")


def _is_block(node: Node) -> bool:
    return node.type == "compound_statement" or node.type.startswith("preproc_")


def _statements(block: Node, until: int) -> Iterator[int]:
    """Where the statements of a block begin that end before an offset, those under its conditions too."""
    for child in block.children:
        if child.end_byte <= until:
            if child.type.startswith("preproc_"):
                yield from _statements(child, until)
            yield child.start_byte


def _asked(checked: Checked, own: Own) -> Iterator[tuple[int, Budget]]:
    """Where statements ask for registers, by numbers or by constants."""
    file = checked.file
    for statement, instruction in checked.instructions:
        if (budget := asked_of(instruction)) is not None:
            yield statement.span.start, budget
    for where, name in calls_of(file, own.registers):
        given = _FIRST_ARGUMENT.search(file.lexed.plain_text, where.start, where.end)
        number = _number(checked, given[1]) if given is not None else None
        if number is not None:
            yield where.start, Budget(number, f"{own.registers[name]} {number}")


def _of_launch(checked: Checked, function: Node) -> Budget | None:
    file = checked.file
    if "__global__" not in function_specifiers(file, function):
        return None
    body = function.child_by_field_name("body")
    head = file.lexed.plain_text[function.start_byte : body.start_byte if body is not None else function.end_byte]
    match = _BOUNDS.search(head)
    if match is None:
        return None
    threads, blocks = (_number(checked, text) if text else 1 for text in match.groups())
    return budget_of_block(threads, blocks) if threads and blocks else None


def _number(checked: Checked, text: str) -> int | None:
    if text.isdigit():
        return int(text)
    if text in checked.macros:
        return checked.macros[text]
    found = set(re.findall(_CONSTANT.format(re.escape(text)), checked.file.lexed.code.decode("latin-1")))
    return int(found.pop()) if len(found) == 1 else None


def _kept(checked: Checked) -> Iterator[Diagnostic]:
    """An allocation, and no release in any form in the file."""
    if checked.of("release") or any(is_tcgen05(i, "dealloc") for _, i in checked.instructions):
        return
    for sign in checked.of("allocate")[:1]:
        yield Diagnostic(Code.TMEM_KEPT, location(checked.file, sign.match.span))
    for statement, instruction in checked.instructions:
        if is_tcgen05(instruction, "alloc"):
            yield Diagnostic(Code.TMEM_KEPT, statement.where)
            return


def _asserts(checked: Checked, asserts: bool | None) -> Iterator[Diagnostic]:
    copies = checked.of("copy")
    if asserts and copies:
        what = "nothing in the build defines NDEBUG, and loads from Tensor Memory are CuTe copies"
        values = {"what": what, "advice": "add -DNDEBUG to the options of nvcc"}
        yield Diagnostic(Code.T2R_ASSERTS, location(checked.file, copies[0].match.span), values)
