# SPDX-License-Identifier: Apache-2.0
"""Ports for other chips than sm_100a: the names and numbers of the chip in what a port writes.

Rules and passes write of sm_100a. What they write is turned into the names and numbers of the chip that is asked for;
text that was there before stays. Conditions are held against that chip afterwards (`check_chips`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from porter.diagnostics import Code, Diagnostic, Location
from porter.lang.asm import asm_in_macro, asm_statements, macro_definitions, string_macros
from porter.lang.cuda import location, parse_cuda
from porter.lang.sources import SourceSet
from porter.lang.text import Edit, EditGroup, Span
from porter.ptx.arch import PORT_TARGETS, SM100A, PortTarget
from porter.ptx.ast import Instruction
from porter.ptx.inline import parse_template
from porter.ptx.table import UnknownInstruction, check
from porter.rules.rule import Rule

_NAMED = re.compile(
    rb"(?P<sm>(?<![\w.])(?:sm_|compute_)?100(?=a\b))|(?P<version>(?<![\w.])10\.0(?=a\b))"
    rb"|(?P<dsl>(?<![\w.])sm_100\b(?!a))|(?P<macro>(?<=_SM)100(?=_ALL\b|A?_(?:ENABLED|SUPPORTED)\b))"
)
_VERSION = re.compile(rb"(?<![\w.])(?:10\s*,\s*0|10|11|100|110|1000|1100)(?![\w.])")
_FOR_SM100 = re.compile(r"(?<![\w.])(?:(?:sm_|compute_)?100[af]|10\.0[af])\b")
"""What asks a compiler for code for sm_100a."""
_SPELLED = re.compile(r"(?:sm_?|compute_?)?(?:(?P<sm>\d{2,3})|(?P<major>\d{1,2})\.(?P<minor>\d))(?P<suffix>[af]?)")
_SAMPLE = parse_template("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;").instructions()
"""An instruction that all chips of a port have."""


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


def retargeted(
    groups: Sequence[EditGroup], old: Mapping[str, bytes], target: PortTarget, rules: Sequence[Rule]
) -> list[EditGroup]:
    """The groups with the names and numbers of another chip; `old` are the files that they edit."""
    if target == SM100A:
        return list(groups)
    comparing = {r.id for r in rules if r.compares is not None}
    return [
        replace(
            g,
            edits=tuple(_edit(e, g.rule in comparing, old, target) for e in g.edits),
            reason=said_of(g.reason, target),
        )
        for g in groups
    ]


def _edit(edit: Edit, compares: bool, old: Mapping[str, bytes], target: PortTarget) -> Edit:
    before = old.get(edit.path, b"")[edit.span.start : edit.span.end]
    text = edit.replacement if _NAMED.search(before) else named(edit.replacement, target)
    if compares:
        # the last one: in front of it stands what is compared
        numbers = list(_VERSION.finditer(text))
        if numbers:
            last = numbers[-1]
            text = text[: last.start()] + _number(last[0], target) + text[last.end() :]
    return replace(edit, replacement=text)


def named(text: bytes, target: PortTarget) -> bytes:
    """A text of the port with another chip's names."""

    def one(match: re.Match[bytes]) -> bytes:
        if match["version"]:
            return target.version.encode()
        return match[0].replace(b"100", str(target.sm).encode())

    return text if target == SM100A else _NAMED.sub(one, text)


def said_of(text: str, target: PortTarget) -> str:
    """What is said of sm_100a, of another chip."""
    if target == SM100A:
        return text
    text = re.sub(r"\b10\.0\b", target.version, named(text.encode(), target).decode())
    return re.sub(r"(?<=add )100\b", str(target.sm), text)


def _number(text: bytes, target: PortTarget) -> bytes:
    """A version of sm_100a, or the first one behind its family, as the target's."""
    if b"," in text:
        return b"%d%s%d" % (target.capability[0], text[2:-1], target.capability[1])
    major = target.capability[0]
    numbers = {10: major, 100: target.sm, 1000: 10 * target.sm}
    bounds = {11: target.following, 110: 10 * target.following, 1100: 100 * target.following}
    return str({**numbers, **bounds}[int(text)]).encode()


_INTEGERS = re.compile(rb"\b\w*64x\d+x\d+_S32[SU]8\w*")
_INTEGER_MMA = "tcgen05.mma.cta_group::1.kind::i8 [%r1], %rd1, %rd2, %r2, %p1;"


def lacks(files: Mapping[str, bytes], sources: SourceSet, target: PortTarget) -> list[Diagnostic]:
    """Instructions in the `files` of a port that sm_100a has and the target has not, and CuTe's MMAs that become
    such."""
    if target == SM100A:
        return []
    found: list[Diagnostic] = []
    for path, text in files.items():
        file = sources.files.get(path)
        if file is not None and file.source == text:
            continue
        ported = parse_cuda(path, text)
        macros = macro_definitions(ported)
        known = string_macros(macros)
        statements = [*asm_statements(ported, known), *(s for m in macros for s in asm_in_macro(ported, m, known))]
        ptx = [(s, i) for s in statements if s.ptx is not None for i in s.ptx.instructions()]
        places = {why: location(ported, s.span) for s, i in reversed(ptx) if (why := absent(i, target)) is not None}
        named_at = next(_INTEGERS.finditer(file.lexed.code), None) if file is not None else None
        if file is not None and named_at is not None and (why := absent(_integer_mma(), target)) is not None:
            places[why] = location(file, Span(*named_at.span()))
        for why, where in places.items():
            # a header that the port adds is nowhere yet
            at = where if file is not None else Location(sources.root)
            found.append(Diagnostic(Code.TARGET_LACKS, at, {"target": target.name, "why": why}))
    return found


def _integer_mma() -> Instruction:
    return parse_template(_INTEGER_MMA).instructions()[0]


def absent(instruction: Instruction, target: PortTarget) -> str | None:
    """What is said of an instruction that sm_100a has and the target has not; None of any other."""
    try:
        why = check(instruction, target.name) if check(instruction, SM100A.name) is None else None
    except UnknownInstruction:
        return None
    return f"{instruction.opcode} {why[why.index('needs') :]}" if why is not None else None


def lines_for_sm100(text: str, target: PortTarget) -> Iterator[int]:
    """Lines of a build file that ask for sm_100a by themselves, where the port is for another chip."""
    if target != SM100A:
        yield from (n for n, line in enumerate(text.splitlines(), 1) if _FOR_SM100.search(line))
