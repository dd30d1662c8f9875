# SPDX-License-Identifier: Apache-2.0
"""Patterns for PTX in asm statements: the mnemonic of one instruction, and its operands where a pattern names them.

`$X` stands for one modifier or operand, `${X}` also for a part of a modifier (`m64n${N}k16`), `$$$X` for any list of
them. Without operands in the pattern any will do. What the instruction is otherwise is said by the instruction table:
its operands are `$op0`, `$op1` … in the text that a rule writes, and have their names of the table too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from porter.ptx.ast import Instruction
from porter.ptx.inline import PtxSyntaxError, parse_template
from porter.ptx.table import FORMS, find
from porter.rules.conditions import Condition, Evaluate, Stated, condition
from porter.rules.pattern import PatternError, captures_in
from porter.rules.recognize import Origin, check_captures, check_literals

_MNEMONIC = re.compile(r"(?:[a-z]\w*)(?:\.(?:[\w:]|\$(?:\$\$)?\w+|\$\{\w+\})+)*")
_CAPTURE = re.compile(r"\$(?:\$\$)?(?:[A-Z]\w*|\{[A-Z]\w*\})")
_TEXT = re.compile(r"\$\{?([A-Za-z]\w*)\}?")
_OPENING = dict(zip("([{", ")]}", strict=True))


@dataclass(frozen=True, eq=False)
class PtxPattern:
    """One pattern of a rule: `mnemonic` matches opcodes, `operands` are those that it names, None if it names none."""

    origin: Origin
    text: str
    mnemonic: re.Pattern[str]
    operands: tuple[str, ...] | None
    where: tuple[tuple[str, Condition], ...] = ()

    @property
    def captures(self) -> frozenset[str]:
        return frozenset(captures_in(self.text))

    @property
    def word(self) -> str:
        """How every instruction that matches begins."""
        return self.text.split(".")[0].split()[0]

    def may_be_in(self, template: str) -> bool:
        return re.search(rf"(?<![\w.]){self.word}\b", template) is not None

    @property
    def rank(self) -> tuple[int, ...]:
        literals = len(re.sub(r"\$+\{?\w+\}?", "", self.text))
        return self.origin.priority, self.origin.is_user, self.operands is not None, literals

    def bind(self, instruction: Instruction, evaluate: Evaluate) -> Mapping[str, str] | None:
        """What captures and operands are, if the instruction is a match."""
        found = self.mnemonic.fullmatch(instruction.opcode)
        if found is None:
            return None
        given, parts = operand_texts(instruction), found.groupdict()
        for bound in (parts,) if self.operands is None else _operands(self.operands, given, parts):
            if all(asked.holds(bound[name], evaluate) for name, asked in self.where):
                return {**_named(instruction, given), **bound}
        return None


def operand_texts(instruction: Instruction) -> tuple[str, ...]:
    """The operands of an instruction as they are written."""
    if not instruction.operands:
        return ()
    return tuple(_split(instruction.text.split(None, 1 + (instruction.guard is not None))[-1]))


def _split(text: str) -> Iterator[str]:
    closing: list[str] = []
    start = 0
    for i, letter in enumerate(text):
        if letter in _OPENING:
            closing.append(_OPENING[letter])
        elif closing and letter == closing[-1]:
            closing.pop()
        elif letter == "," and not closing:
            yield text[start:i].strip()
            start = i + 1
    if text[start:].strip():
        yield text[start:].strip()


def _named(instruction: Instruction, given: tuple[str, ...]) -> dict[str, str]:
    found = find(instruction)
    names = [form.name for form, _ in found.bound] if found is not None else []
    numbered = {f"op{i}": text for i, text in enumerate(given)}
    return {**numbered, **dict(zip(names, given, strict=False))}


def _operands(wanted: tuple[str, ...], given: tuple[str, ...], bound: Mapping[str, str]) -> Iterator[dict[str, str]]:
    if not wanted:
        if not given:
            yield dict(bound)
        return
    first, name = wanted[0], wanted[0].lstrip("$").strip("{}")
    if not first.startswith("$"):
        if given and "".join(given[0].split()) == "".join(first.split()):
            yield from _operands(wanted[1:], given[1:], bound)
        return
    for n in range(len(given) + 1) if first.startswith("$$$") else (1,):
        taken = ", ".join(given[:n])
        if n <= len(given) and bound.get(name, taken) == taken:
            yield from _operands(wanted[1:], given[n:], {**bound, name: taken})


def filled(text: str, bound: Mapping[str, str]) -> str:
    """A text with its captures and operands. Raises KeyError for one that there is none of."""

    def a_list(found: re.Match[str]) -> str:
        value = bound[found[1]]
        return found[0].replace(f"$$${found[1]}", value) if value and not value.startswith(".") else value

    text = re.sub(r"(?:[.,]\s*)?\$\$\$([A-Z]\w*)", a_list, text)
    return _TEXT.sub(lambda m: bound[m[1]], text)


def ptx_patterns(
    origin: Origin, texts: Iterable[str], written: Mapping[str, str], where: Mapping[str, Stated]
) -> tuple[PtxPattern, ...]:
    """The patterns of a rule; `written` are the texts that it has for a match.

    Raises:
        PatternError: one cannot match, or what they say does not fit together.
    """
    asked = tuple(sorted((n, condition(n, c)) for n, c in where.items()))
    patterns = tuple(_compiled(origin, text, asked) for text in texts)
    for pattern in patterns:
        if pattern.captures != patterns[0].captures:
            raise PatternError(f"`{pattern.text}` does not capture what `{patterns[0].text}` does")
    check_literals((p.text, p.operands or ()) for p in patterns)
    for name in where:
        if name not in patterns[0].captures:
            raise PatternError(f"`where` names ${name}, which no pattern captures")
    for name, value in written.items():
        check_captures(name, value, patterns[0].captures)
    return patterns


def _compiled(origin: Origin, text: str, where: tuple[tuple[str, Condition], ...]) -> PtxPattern:
    text = text.strip().rstrip(";")
    found = _MNEMONIC.match(text)
    if found is None or (text[found.end() :] and not text[found.end()].isspace()):
        raise PatternError(f"`{text}` does not begin with a mnemonic of PTX")
    mnemonic, rest = found.group(), text[found.end() :].strip()
    first = mnemonic.partition(".")[0]
    if not any(form.name.partition(".")[0] == first for form in FORMS):
        raise PatternError(f"`{text}` cannot match: there is no instruction `{first}`")
    if any("$" in o and not _CAPTURE.fullmatch(o) for o in _split(rest)):
        raise PatternError(f"`{text}` cannot match: an operand is a capture or written as it stands")
    return PtxPattern(origin, text, _opcode(mnemonic), tuple(_split(rest)) if rest else None, where)


def _opcode(mnemonic: str) -> re.Pattern[str]:
    seen: set[str] = set()

    def group(name: str, pattern: str) -> str:
        if name in seen:
            return f"(?P={name})"
        seen.add(name)
        return f"(?P<{name}>{pattern})"

    pieces, at = [], 0
    for found in re.finditer(r"\.\$\$\$([A-Z]\w*)|\$\{([A-Z]\w*)\}|\$([A-Z]\w*)", mnemonic):
        pieces.append(re.escape(mnemonic[at : found.start()]))
        at = found.end()
        kinds = (r"(?:\.[\w:]+)*", r"\w+?", r"[\w:]+")
        pieces += [group(name, kind) for name, kind in zip(found.groups(), kinds, strict=True) if name]
    return re.compile("".join([*pieces, re.escape(mnemonic[at:])]))


def unknown(text: str) -> str:
    """Why a text is no list of instructions; empty if it is one."""
    try:
        instructions = parse_template(text).instructions()
    except PtxSyntaxError as error:
        return str(error)
    wrong = next((i for i in instructions if find(i) is None), None)
    return f"`{wrong.text}` is no instruction of the PTX ISA" if wrong is not None else ""
