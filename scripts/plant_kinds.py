# SPDX-License-Identifier: Apache-2.0
"""Mistakes in ports by kind, each an edit of one instruction of PTX that a run comes to."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "sync"))

from edits import Found, NotThereError, declared, passed, shifted
from mistakes import AFTER, ALLOC, BEFORE, COMMIT, DEALLOC, EXPECT, INIT, LOAD, MMA, PARITY, PROXY, WAIT, WAIT_LD

Change = Callable[[Found, random.Random], str]
Reach = Literal["", "turns", "blocks"]
TURNS = 64
"""Turns of a loop behind which a late mistake begins."""


class Kind(NamedTuple):
    """`opcode` of the instructions that a mistake is put into; `reach` what it needs more of than a case has."""

    name: str
    opcode: str
    change: Change
    reach: Reach = ""


def planted(text: str, entry: str, kind: Kind, reached: set[int], dice: random.Random) -> tuple[str, str]:
    """The instruction and the text with a mistake in one that a run comes to, by lines.

    Raises:
        NotThereError: there is none.
    """
    places = [one for one in _every(text, kind.opcode) if text.count("\n", 0, one.end) + 1 in reached]
    dice.shuffle(places)
    for one in places:
        try:
            new = kind.change(one, dice)
        except (NotThereError, IndexError):
            continue
        if new != one.text:
            return one.text, declared(f"{text[: one.start]}{new}{text[one.end :]}", entry)
    raise NotThereError(kind.opcode)


def _every(text: str, opcode: str) -> Iterator[Found]:
    for one in re.finditer(rf"(?<![\w.%:])(?:@!?[%\w$]+\s+)?(?:{opcode})[^;]*;", text):
        yield Found(one.start(), one.end(), one[0])


# Changes ----------------------------------------------------------------------------------------------


def _left_out(one: Found, dice: random.Random) -> str:
    return ""


def _doubled(one: Found, dice: random.Random) -> str:
    return f"{one.text}\n{one.text}"


def _by(edit: Callable[[str], Callable[[str], str]], opcode: str) -> Change:
    """An edit of a text that holds no more than the instruction."""
    return lambda one, dice: edit(opcode)(one.text)


def _sub(pattern: str, *new: str) -> Change:
    return lambda one, dice: re.sub(pattern, dice.choice(new), one.text, count=1)


def _through(number: int, *instructions: str, wide: bool = False) -> Change:
    """An operand put through one of some instructions, which find it in a register and leave it there."""
    register, kind = ("%planted_wide", "u64") if wide else ("%planted3", "u32")

    def change(one: Found, dice: random.Random) -> str:
        given = f"mov.{kind} {register}, {one.operands[number]};\n{dice.choice(instructions)}\n"
        return given + one.with_operand(number, register)

    return change


def _number(one: Found, dice: random.Random) -> str:
    found = re.search(r"(-?\d+);\s*$", one.text)
    assert found is not None
    number = int(found[1])
    return f"{one.text[: found.start(1)]}{dice.choice([number + 1, number * 2 + 2, number - 1, number ^ 16])};"


def _next(one: Found, dice: random.Random) -> str:
    found = re.search(r"(\d+);\s*$", one.text)
    assert found is not None
    return f"{one.text[: found.start(1)]}{int(found[1]) + dice.choice((1, -1))};"


def _swapped(one: Found, dice: random.Random) -> str:
    """Two registers of a list change places."""
    found = re.search(r"\{([^}]*)\}", one.text)
    assert found is not None
    names = [name.strip() for name in found[1].split(",")]
    first, second = dice.sample(range(len(names)), 2)
    names[first], names[second] = names[second], names[first]
    return f"{one.text[: found.start(1)]}{', '.join(names)}{one.text[found.end(1) :]}"


def _turned(one: Found, dice: random.Random) -> str:
    """The last two operands that are no predicate change places."""
    operands = one.operands
    first, second = (1, 2) if "selp" in one.text else (-1, -2)
    turned = Found(0, 0, one.with_operand(first, operands[second]))
    return turned.with_operand(second, operands[first])


def _other(one: Found, dice: random.Random) -> str:
    return re.sub(r"setp\.(\w\w)\.", lambda found: f"setp.{_OTHER[found[1]]}.", one.text, count=1)


_OTHER = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq"}
ALWAYS = ""
LATE = f"add.u32 %planted0, %planted0, 1;\nsetp.gt.u32 %plant, %planted0, {TURNS};\n"
BLOCK = "mov.u32 %planted1, %ctaid.{axis};\nsetp.gt.u32 %plant, %planted1, 1;\n"
"""When a mistake is made: %plant says so."""


def _coordinate(which: int, amount: int, when: str = ALWAYS) -> Change:
    """A coordinate of a copy is another one, the innermost one first."""

    def change(one: Found, dice: random.Random) -> str:
        place = re.search(r"\{([^}]*)\}", one.text)
        if place is None or (one.guard and when):
            raise NotThereError(one.text)
        given = [name.strip() for name in place[1].split(",")]
        condition = when.format(axis=dice.choice("xy"))
        guard = "@%plant " if when else ""
        ahead = f"mov.u32 %planted3, {given[which]};\n{condition}{guard}add.u32 %planted3, %planted3, {amount};\n"
        given[which] = "%planted3"
        return f"{ahead}{one.text[: place.start(1)]}{', '.join(given)}{one.text[place.end(1) :]}"

    return change


def _of_operand(*instructions: str) -> Change:
    """The descriptor of A or of B."""
    return lambda one, dice: _through(dice.choice((1, 2)), *instructions, wide=True)(one, dice)


def _half(found: re.Match[str]) -> str:
    return "f16" if found[0] == "bf16" else "bf16"


def _left_out_when(when: str) -> Change:
    def change(one: Found, dice: random.Random) -> str:
        if one.guard:
            raise NotThereError(one.text)
        return f"{when.format(axis=dice.choice('xy'))}@!%plant {one.text}"

    return change


def _further(which: int, *nbytes: int) -> Change:
    return lambda one, dice: shifted(r"[\w.]+", which, dice.choice(nbytes))(one.text)


_WITH_NUMBER = r"(?:add|sub|shl|shr|and|or|mad|mul|mov|bfe|bfi|min|max)\.(?!pred)[\w.:]+\s[^;]*,\s*-?\d+(?=;)"
_SMALL = r"setp\.\w\w\.[usb]\d+\s[^;]*,\s*[2-9](?=;)"
_STORE, _TENSOR_LD = r"st\.(?:global|shared)", r"tcgen05\.ld\."
_OUT = r"st\.global|cp\.[\w.:]*\.global\.shared"
_FENCES = rf"{AFTER}|{BEFORE}|{PROXY}|fence\.mbarrier_init|fence\.acq_rel"
_A_LANE = 1 << 16
"""Of an address of Tensor Memory."""
_WIDER = "add.s64 %planted_wide, %planted_wide"
_SWIZZLE = f"xor.b64 %planted_wide, %planted_wide, {3 << 62};"
_ROWS, _COLUMNS = 0x0C000000, 0x00040000
"""Bits of the instruction descriptor: M from 128 to 64 or back, and 32 more or fewer of N."""
KINDS = (
    Kind("number", _WITH_NUMBER, _number),
    Kind("stage", LOAD, _further(0, 1024, 2048)),
    Kind("ring", _SMALL, _next),
    Kind("parity", PARITY, _through(2, "xor.b32 %planted3, %planted3, 1;")),
    Kind("tile row", LOAD, _coordinate(1, 8)),
    Kind("k step", LOAD, _coordinate(0, 16)),
    Kind("bytes", EXPECT, _through(-1, "shr.u32 %planted3, %planted3, 1;", "add.u32 %planted3, %planted3, 16;")),
    Kind("count", INIT, _through(1, "add.u32 %planted3, %planted3, 1;", "shl.b32 %planted3, %planted3, 1;")),
    Kind("element stored", r"st\.\S*v[24]\S*\s[^;]*\{[^}]*,", _swapped),
    Kind("element loaded", rf"{_TENSOR_LD}\S*\s+\{{[^}}]*,", _swapped),
    Kind("rows loaded", _TENSOR_LD, _further(0, 16 * _A_LANE, 4 * _A_LANE)),
    Kind("rows multiplied", MMA, _through(3, f"xor.b32 %planted3, %planted3, {_ROWS};")),
    Kind("columns multiplied", MMA, _through(3, f"xor.b32 %planted3, %planted3, {_COLUMNS};")),
    Kind("dtype multiplied", MMA, _through(3, *(f"xor.b32 %planted3, %planted3, {bit};" for bit in (128, 1024)))),
    Kind("dtype stored", r"cvt\.rn\.\w*\.?(?:bf16|f16)", lambda one, dice: re.sub("b?f16", _half, one.text, count=1)),
    Kind("descriptor", MMA, _of_operand(f"{_WIDER}, 2;", f"{_WIDER}, {1 << 32};")),
    Kind("swizzle", MMA, _of_operand(_SWIZZLE)),
    Kind("column overlap", rf"{MMA}|{_TENSOR_LD}", _further(0, 8, 32)),
    Kind("allocation", ALLOC, _sub(r"\b(512|256|128|64)(?=;)", "32")),
    Kind("wait", WAIT, _by(passed, WAIT)),
    Kind("wait for what is loaded", WAIT_LD, _left_out),
    Kind("commit left out", COMMIT, _left_out),
    Kind("commit to another", COMMIT, _further(0, 8)),
    Kind("fence", _FENCES, _left_out),
    Kind("dealloc", DEALLOC, _left_out),
    Kind("dealloc twice", DEALLOC, _doubled),
    Kind("arrival", r"mbarrier\.arrive\.(?!expect)", _left_out),
    Kind("barrier", r"bar(?:rier)?\.(?:cta\.)?sync|barrier\.cluster\.wait", _left_out),
    Kind("tensor map", r"tensormap\.replace", _left_out),
    Kind("coordinates", r"cp\.\S*tensor[^;]*\{[^}]*,", _swapped),
    Kind("product left out", MMA, _left_out),
    Kind("store left out", _STORE, _left_out),
    Kind("rounding", r"cvt\.rn\.", _sub(r"\.rn\.", ".rz.")),
    Kind("operands", r"(?:fma\.rn\.f32|sub\.f32|selp\.\w+)\s", _turned),
    Kind("operation", r"mul\.(?:rn\.)?f32\s", _sub(r"mul\.(rn\.)?f32", "add.f32")),
    Kind("comparison", r"setp\.(?:lt|gt|le|ge|eq|ne)\.", _other),
    Kind("address", r"(?:ld|st)\.(?:global|shared)\S*\s[^;]*\[%\w+(?:\+\d+)?\]", _further(0, 16)),
    Kind("late k step", LOAD, _coordinate(0, 16, LATE), "turns"),
    Kind("late tile row", LOAD, _coordinate(1, 8, LATE), "turns"),
    Kind("late product left out", MMA, _left_out_when(LATE), "turns"),
    Kind("block's tile row", LOAD, _coordinate(1, 8, BLOCK), "blocks"),
    Kind("block's store left out", _OUT, _left_out_when(BLOCK), "blocks"),
)  # fmt: skip


def chosen(number: int, each: int) -> Sequence[Kind]:
    """So many of the kinds for a port with a number, so that ports one after another have all."""
    first = number * each
    return [KINDS[(first + index) % len(KINDS)] for index in range(min(each, len(KINDS)))]
