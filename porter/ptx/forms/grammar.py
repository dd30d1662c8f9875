# SPDX-License-Identifier: Apache-2.0
"""How a row of the instruction table is written, and how an instruction is matched against it.

A row has an opcode pattern and an operand pattern, close to the syntax blocks of the PTX ISA.

Opcode: parts joined by dots. A part is a literal, or `<group>` / `<group:a|b|c>` for one of several; a `?`
behind it makes it optional. `add.<rnd>?.ftz?.f32`. The leading literals are the name; the parts behind it may
come in any order, as ptxas takes them, only types keep theirs (`cvt.f32.f16`).

Operands, separated by commas:

    name:type        read; `=name` written, `+name` read and written
    name:type*count  a vector `{…}`; the count is a number, a group (absent: none) or a function in COUNTS
    =p:pred|=q:pred? a pair, here with an optional second part
    [name@space]     memory read at an address; `[=name…]` written, `[+name…]` both, `[&name…]` only named
    [map@space, c:s32*count]  a tensor map with coordinates
    name:imm(0..7)   a constant; `imm(4|8)` lists values, `imm` allows all; `u32(0|1)` limits constants only
    name:label       a branch target or table; `callee` a function or its address; `list` the `(…)` of a call
    …?               may be absent; `…?group` is there exactly if that modifier is

A type is a PTX type or the group that holds it; `wide(group)` has twice the width, `packed(group)` has halves
in 32-bit registers; `none` takes `_` only. A space is a literal or a group; without one the address is
generic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from porter.ptx.ast import Imm, Mem, Neg, Operand, Pair, Placeholder, Reg, SpecialReg, Sym, Vec
from porter.ptx.requirement import Requirement
from porter.ptx.special import FORMAT_BYTES

Modifiers = Mapping[str, str]
"""Group name (of a literal: itself, `::` as `_`) to the text in the opcode, if it is there."""


# Parts that mean different things by their order: `cvt.f32.f16`.
_ORDERED = frozenset(FORMAT_BYTES) | {
    "pred",
    "e4m3",
    "e5m2",
    "e2m3",
    "e3m2",
    "e2m1",
    "u4",
    "s4",
    "u2",
    "s2",
    "b1",
}


class Access(Enum):
    READ = "read"
    WRITE = "write"
    READ_WRITE = "read and write"
    NAME = "name"
    """The operand only says where: a prefetch, an address conversion."""


class Completion(Enum):
    """How the completion of an asynchronous operation becomes visible."""

    NONE = "synchronous"
    MBARRIER_TX = "complete_tx on an mbarrier"
    MBARRIER_ARRIVE = "an arrival on an mbarrier"
    CP_ASYNC_GROUP = "cp.async group"
    BULK_GROUP = "bulk async-group"
    WGMMA_GROUP = "wgmma-group"
    TCGEN05_COMMIT = "tcgen05.commit"
    TCGEN05_LD = "tcgen05.wait::ld"
    TCGEN05_ST = "tcgen05.wait::st"
    UNTRACKED = "nothing"


@dataclass(frozen=True)
class OperandForm:
    """One operand of a form. `kind` is value, memory, immediate, label, callee or list.

    `count` is 0 for a single register, else the vector length as written in the pattern; `inner` are the
    coordinates inside the brackets of a tensor map; `second` the part behind `|`.
    """

    name: str
    kind: str
    access: Access
    type: str = ""
    count: str = ""
    space: str = ""
    values: tuple[int, ...] | None = None
    optional: bool = False
    when: str = ""
    inner: tuple[OperandForm, ...] = ()
    second: OperandForm | None = None


@dataclass(frozen=True)
class Part:
    """One part of an opcode: its name, what may stand there, may it be absent, is it a group."""

    name: str
    choices: tuple[str, ...]
    optional: bool
    group: bool


@dataclass(frozen=True)
class Form:
    """One row of the table.

    `name` are the leading literals. `completion` says how the effect completes; `commits` and `awaits` what
    the instruction closes or waits for. `issue` is thread, warp, warpgroup or cta: who executes it together.
    `also` are further requirements of modifiers (`present`) or of `@operand`. `section` is of the PTX ISA.
    """

    name: str
    pattern: str
    parts: tuple[Part, ...]
    operands: tuple[OperandForm, ...]
    section: str
    requirement: Requirement
    also: tuple[tuple[str, Requirement], ...] = ()
    completion: Completion = Completion.NONE
    commits: Completion = Completion.NONE
    awaits: Completion = Completion.NONE
    issue: str = "thread"
    rule: Callable[[Modifiers], bool] | None = None

    def modifiers(self, parts: tuple[str, ...]) -> Modifiers | None:
        """The modifiers of an opcode given by its parts, or None if it is not of this form."""
        head = self.name.split(".")
        if list(parts[: len(head)]) != head:
            return None
        rest = list(enumerate(parts[len(head) :]))
        found = {part.name: part.choices[0] for part in self.parts[: len(head)]}
        last_type = -1
        for part in self.parts[len(head) :]:
            place = next((i for i, (_, text) in enumerate(rest) if text in part.choices), None)
            if place is None:
                if not part.optional:
                    return None
                continue
            at, choice = rest.pop(place)
            if choice in _ORDERED:
                if at < last_type:
                    return None
                last_type = at
            found[part.name] = choice
        if rest or (self.rule is not None and not self.rule(found)):
            return None
        return found

    def bind(
        self, operands: tuple[Operand, ...], modifiers: Modifiers
    ) -> tuple[tuple[OperandForm, Operand], ...] | None:
        """Each operand with its description, or None if they do not fit."""
        bound = _bind(self.operands, operands, modifiers)
        return None if bound is None else tuple(bound)


# Reading the patterns ---------------------------------------------------------------------------------

_INT = "u16|u32|u64|s16|s32|s64"
GROUPS: dict[str, str] = {
    "rnd": "rn|rz|rm|rp",
    "int": _INT,
    "bits": "b16|b32|b64",
    "mem_type": f"b8|b16|b32|b64|b128|u8|s8|{_INT}|f32|f64",
    "any_type": f"b16|b32|b64|{_INT}|f32|f64",
    "scope": "cta|cluster|gpu|sys",
    "cta_group": "cta_group::1|cta_group::2",
    "bool": "and|or|xor",
    "dim": "1d|2d|3d|4d|5d",
    "evict1": "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate",
    "evict2": "L2::evict_normal|L2::evict_first|L2::evict_last",
    "prefetch": "L2::64B|L2::128B|L2::256B",
    "vec": "v2|v4|v8",
    "cmp": "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan",
    "smem": "shared|shared::cta",
}
"""Groups that several rows use."""


def group_name(text: str) -> str:
    """A part of an opcode as an identifier."""
    return re.sub(r"\W+", "_", text)


def _parts(pattern: str) -> tuple[Part, ...]:
    found = []
    for item in re.findall(r"<[^>]*>\??|[^.<>]+", pattern):
        optional = item.endswith("?")
        body = item.rstrip("?")
        if body.startswith("<"):
            name, _, choices = body[1:-1].partition(":")
            if choices[:1] == ":" or (not choices and name not in GROUPS):
                raise ValueError(f"group of {pattern!r} is not defined: {name}")
            found.append(Part(name, tuple((choices or GROUPS[name]).split("|")), optional, True))
        else:
            found.append(Part(group_name(body), (body,), optional, False))
    return tuple(found)


_ACCESS = {"=": Access.WRITE, "+": Access.READ_WRITE, "&": Access.NAME}


def _split(pattern: str, separator: str) -> list[str]:
    """Split outside brackets and parentheses."""
    depth, start, found = 0, 0, []
    for i, char in enumerate(pattern):
        depth += (char in "[(") - (char in "])")
        if char == separator and depth == 0:
            found.append(pattern[start:i])
            start = i + 1
    found.append(pattern[start:])
    return [item.strip() for item in found if item.strip()]


def _operand(pattern: str) -> OperandForm:
    body, question, when = pattern.partition("?")
    first, *rest = _split(body, "|")
    if rest:  # of a pair only the second part may be absent
        second = _operand(pattern[pattern.index(rest[0]) :])
        body, question, when = first, "", ""
    else:
        second = None
    optional = bool(question)
    if body.startswith("["):
        address, *inside = _split(body[1:-1], ",")
        access, name = _access(address)
        name, _, space = name.partition("@")
        inner = tuple(map(_operand, inside))
        return OperandForm(name, "memory", access, "", "", space, None, optional, when, inner, second)
    access, text = _access(body)
    name, _, type_ = text.partition(":")
    type_, _, count = type_.partition("*")
    kind, values = "value", None
    if type_.startswith("imm"):
        kind, values, type_ = "immediate", _values(type_[3:]), ""
    elif type_ in ("label", "list", "callee"):
        kind, type_ = type_, ""
    elif type_.endswith(")") and not type_.startswith(("wide(", "packed(")):
        type_, _, listed = type_.partition("(")
        values = _values("(" + listed)
    return OperandForm(name, kind, access, type_, count, "", values, optional, when, (), second)


def _access(text: str) -> tuple[Access, str]:
    return (_ACCESS[text[0]], text[1:]) if text[0] in _ACCESS else (Access.READ, text)


def _values(text: str) -> tuple[int, ...] | None:
    if not text:
        return None
    body = text[1:-1]
    first, dots, last = body.partition("..")
    if dots:
        return tuple(range(int(first), int(last) + 1))
    return tuple(int(word) for word in body.split("|"))


def expanded(row: Form) -> tuple[Form, ...]:
    """A row whose first part is a group, as one row for each of its instructions."""
    first, *rest = row.parts
    if not first.group:
        return (row,)
    found = []
    for choice in first.choices:
        one = Part(first.name, (choice,), False, False)
        pattern = choice + row.pattern[row.pattern.index(">") + 1 :]
        parts = (one, *rest)
        found.append(replace(row, name=_head(parts), pattern=pattern, parts=parts))
    return tuple(found)


def _head(parts: tuple[Part, ...]) -> str:
    fixed = []
    for part in parts:
        if part.optional or part.group or part.choices[0] in ("sync", "aligned"):
            break
        fixed.append(part.choices[0])
    return ".".join(fixed)


def form(
    pattern: str,
    operands: str,
    section: str,
    needs: str = "sm_50",
    *also: str,
    completion: Completion = Completion.NONE,
    commits: Completion = Completion.NONE,
    awaits: Completion = Completion.NONE,
    issue: str = "thread",
    rule: Callable[[Modifiers], bool] | None = None,
) -> Form:
    """A row of the table. Each of `also` is `group: requirement`, `group=value: …` or `@operand: …`."""
    parts = _parts(pattern)
    further = []
    for item in also:
        group, _, text = item.partition(": ")
        further.append((group, Requirement.parse(text)))
    return Form(
        _head(parts),
        pattern,
        parts,
        tuple(map(_operand, _split(operands, ","))),
        section,
        Requirement.parse(needs),
        tuple(further),
        completion,
        commits,
        awaits,
        issue,
        rule,
    )


# Matching ---------------------------------------------------------------------------------------------

COUNTS: dict[str, Callable[[Modifiers], int]] = {}
"""Vector lengths that follow from several modifiers; the families add theirs."""


def vector_length(form_: OperandForm, modifiers: Modifiers) -> int:
    """Elements of the operand's vector, 0 if it is a single value."""
    count = form_.count
    if not count:
        return 0
    if count.isdigit():
        return int(count)
    if count in COUNTS:
        return COUNTS[count](modifiers)
    text = modifiers.get(count, "")
    return int(re.sub(r"\D", "", text)) if text else 0


def operand_type(form_: OperandForm, modifiers: Modifiers) -> str:
    """The PTX type of the operand's elements, `b32` and the like."""
    text = form_.type
    if text[-1:] != ")":
        return modifiers.get(text, text)
    if text.startswith("wide("):
        narrow = modifiers[text[5:-1]]
        return narrow[0] + str(2 * int(narrow[1:]))
    if text.startswith("packed("):
        element = modifiers[text[7:-1]]
        return "b32" if element in ("f16", "bf16") else element
    return modifiers.get(text, text)


def present(when: str, modifiers: Modifiers) -> bool:
    """Whether modifiers are there: `group`, `group=a|b`, absent ones `!group`, several joined by `&`."""
    for condition in when.split("&"):
        group, equals, values = condition.partition("=")
        if group[0] == "!":
            if group[1:] in modifiers:
                return False
            continue
        if not (modifiers.get(group) in values.split("|") if equals else group in modifiers):
            return False
    return True


def ordered_in_scope(modifiers: Modifiers) -> bool:
    """A memory order needs a scope, and a scope an order."""
    return ("sem" in modifiers) == ("scope" in modifiers)


def _fits(form_: OperandForm, operand: Operand, modifiers: Modifiers) -> bool:
    if isinstance(operand, Pair):
        return form_.second is not None and _fits(form_.second, operand.second, modifiers)
    if form_.second is not None and not form_.second.optional:
        return False
    match form_.kind:
        case "memory":
            if not isinstance(operand, Mem):
                return False
            inner = [*operand.parts]
            if len(inner) != len(form_.inner):
                return False
            return all(_fits(f, o, modifiers) for f, o in zip(form_.inner, inner, strict=True))
        case "list":
            return isinstance(operand, Vec)
        case "label":
            return isinstance(operand, Sym)
        case "callee":
            return isinstance(operand, Sym | Reg | Placeholder)
        case "immediate":
            if isinstance(operand, Imm):
                return form_.values is None or operand.value in form_.values
            return isinstance(operand, Placeholder)
    if isinstance(operand, Mem):
        return False
    length = vector_length(form_, modifiers)
    if isinstance(operand, Vec):
        # A scalar of type b64 or b128 may be written as a vector only where `mov` packs and unpacks.
        return length == len(operand.items)
    if length:
        return False
    if isinstance(operand, Imm) and form_.values is not None and operand.value not in form_.values:
        return False
    if form_.access is not Access.READ:
        return operand == Sym("_") or (isinstance(operand, Reg | Placeholder) and form_.type != "none")
    return isinstance(operand, Reg | SpecialReg | Imm | Sym | Placeholder | Neg)


def _bind(
    forms: tuple[OperandForm, ...], operands: tuple[Operand, ...], modifiers: Modifiers
) -> list[tuple[OperandForm, Operand]] | None:
    if not forms:
        return [] if not operands else None
    first, rest = forms[0], forms[1:]
    wanted = not first.optional or (bool(first.when) and present(first.when, modifiers))
    if operands and (wanted or not first.when) and _fits(first, operands[0], modifiers):
        tail = _bind(rest, operands[1:], modifiers)
        if tail is not None:
            return [(first, operands[0]), *tail]
    return None if wanted else _bind(rest, operands, modifiers)
