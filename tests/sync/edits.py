# SPDX-License-Identifier: Apache-2.0
"""Edits of PTX that put mistakes into it, as text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

Edit = Callable[[str], str]
REGISTERS = ".reg .b32 %planted<4>;\n.reg .pred %plant;\n.reg .b64 %planted_wide;\n"
"""Of a program with a mistake: 0 counts, 3 stands for an operand."""


class NotThereError(Exception):
    """A program has nothing that an edit is about."""


def declared(text: str, entry: str) -> str:
    """With registers for mistakes. What they count begins with the kernel."""
    at = text.index("{", text.index(entry, text.index(".entry"))) + 1
    return f"{text[:at]}\n{REGISTERS}mov.u32 %planted0, 0;\n{text[at:]}"


# Places -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """An instruction in a text, with its guard."""

    start: int
    end: int
    text: str

    @property
    def guard(self) -> str:
        found = re.match(r"@!?[%\w$]+\s+", self.text)
        return found[0] if found is not None else ""

    @property
    def operands(self) -> list[str]:
        """At the commas that stand in no brackets."""
        listed = self.text.removeprefix(self.guard).split(None, 1)[1].rstrip(";")
        return [part.strip() for part in re.split(r",(?![^\[{]*[\]}])", listed)]

    def with_operand(self, number: int, new: str) -> str:
        operands = self.operands
        operands[number] = new
        opcode = self.text.removeprefix(self.guard).split(None, 1)[0]
        return f"{self.guard}{opcode} {', '.join(operands)};"


def found(text: str, opcode: str, nth: int = 1) -> Found:
    """The nth instruction with such an opcode, from the end if nth is below 0."""
    every = list(re.finditer(rf"(?<![\w.%:])(?:@!?[%\w$]+\s+)?(?:{opcode})[^;]*;", text))
    if len(every) < abs(nth):
        raise NotThereError(opcode)
    one = every[nth - 1 if nth > 0 else nth]
    return Found(one.start(), one.end(), one[0])


def changed(opcode: str, change: Callable[[Found], str], nth: int = 1) -> Edit:
    def edit(text: str) -> str:
        one = found(text, opcode, nth)
        new = change(one)
        if new == one.text:
            raise NotThereError(opcode)
        return text[: one.start] + new + text[one.end :]

    return edit


def all_of(*edits: Edit) -> Edit:
    def edit(text: str) -> str:
        for one in edits:
            text = one(text)
        return text

    return edit


def dropped(opcode: str, nth: int = 1) -> Edit:
    return changed(opcode, lambda one: "", nth)


def doubled(opcode: str, nth: int = 1) -> Edit:
    return changed(opcode, lambda one: f"{one.text}\n{one.text}", nth)


def replaced(opcode: str, pattern: str, new: str, nth: int = 1) -> Edit:
    return changed(opcode, lambda one: re.sub(pattern, new, one.text, count=1), nth)


def moved(opcode: str, before: str, nth: int = 1, nth_before: int = 1) -> Edit:
    """Directly ahead of another instruction."""

    def edit(text: str) -> str:
        one = found(text, opcode, nth)
        text = text[: one.start] + text[one.end :]
        other = found(text, before, nth_before)
        return f"{text[: other.start]}{one.text}\n{text[other.start :]}"

    return edit


def operand(opcode: str, number: int, instructions: str, nth: int = 1) -> Edit:
    """An operand put through instructions, which find it in %planted3 and leave it there."""

    def change(one: Found) -> str:
        given = f"mov.u32 %planted3, {one.operands[number]};\n{instructions}\n"
        return given + one.with_operand(number, "%planted3")

    return changed(opcode, change, nth)


def shifted(opcode: str, which: int, nbytes: int, nth: int = 1) -> Edit:
    """One of the addresses of an instruction, a number of bytes further."""

    def change(one: Found) -> str:
        places = list(re.finditer(r"\[([%\w$]+)(\+\d+)?\]", one.text))
        if len(places) < abs(which) + (which >= 0):
            raise NotThereError(opcode)
        at = places[which]
        return f"{one.text[: at.start()]}[{at[1]}+{int(at[2] or 0) + nbytes}]{one.text[at.end() :]}"

    return changed(opcode, change, nth)


def passed(opcode: str, nth: int = 1) -> Edit:
    """A wait that is taken as over."""
    return changed(opcode, lambda one: f"setp.eq.u32 {one.operands[0]}, 0, 0;", nth)


def _late(turns: int) -> str:
    return f"add.u32 %planted0, %planted0, 1;\nsetp.gt.u32 %plant, %planted0, {turns};\n"


def late_operand(turns: int, opcode: str, number: int, instruction: str, nth: int = 1) -> Edit:
    """An operand that is another one once the instruction has been come to so often."""
    return operand(opcode, number, f"{_late(turns)}@%plant {instruction}", nth)


def late_drop(turns: int, opcode: str, nth: int = 1) -> Edit:
    """An instruction that is left out once it has been come to so often."""

    def change(one: Found) -> str:
        if one.guard:
            raise NotThereError(opcode)
        return f"{_late(turns)}@!%plant {one.text}"

    return changed(opcode, change, nth)


def late_pass(turns: int, opcode: str, nth: int = 1) -> Edit:
    """A wait that is taken as over from a turn on."""
    return changed(opcode, lambda one: f"{_late(turns)}{one.text}\n@%plant setp.eq.u32 {one.operands[0]}, 0, 0;", nth)


def late_shift(turns: int, opcode: str, nth: int = 1) -> Edit:
    """An instruction that is about the next mbarrier from a turn on."""

    def change(one: Found) -> str:
        address = next(o for o in one.operands if o.startswith("["))
        register = address.strip("[]")
        if not re.fullmatch(r"[%\w$]+", register):
            raise NotThereError(opcode)
        given = f"mov.u32 %planted3, {register};\n{_late(turns)}@%plant add.u32 %planted3, %planted3, 8;\n"
        return given + one.with_operand(one.operands.index(address), "[%planted3]")

    return changed(opcode, change, nth)


def late_again(turns: int, opcode: str, nth: int = 1) -> Edit:
    """An instruction that is executed twice from a turn on."""

    def change(one: Found) -> str:
        if one.guard:
            raise NotThereError(opcode)
        return f"{_late(turns)}{one.text}\n@%plant {one.text}"

    return changed(opcode, change, nth)
