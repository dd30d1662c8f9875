# SPDX-License-Identifier: Apache-2.0
"""Calls of libraries that stand for an instruction, beside wgmma of the source's own. The headers that hold the asm
statements are not among the sources."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from porter.lang.asm import AsmStatement
from porter.lang.macros import Macros
from porter.lang.sources import SourceSet
from porter.lang.text import Span
from porter.model.facts import TENSOR_CORE, Fact, Fence, Mma, Wait
from porter.model.functions import Call, Function, array_extents
from porter.model.recognition import Answer, Facts
from porter.model.registers import RegisterList, take_apart
from porter.model.scopes import Variable, resolve
from porter.model.tensor_core import MmaStep, Step, SyncStep, Unsupported
from porter.ptx.types import ElementType

_QUALIFIED = r"(?:(?:::\s*)?\b[A-Za-z_]\w*\s*::\s*)*(?:::\s*)?\b(?:%s)\b"


_VALUES = (
    "argument_list",
    "assignment_expression",
    "binary_expression",
    "condition_clause",
    "field_expression",
    "init_declarator",
    "initializer_list",
    "subscript_argument_list",
    "unary_expression",
)
"""Around an expression whose value is used."""
Value = Callable[[Function, str], int | None]
"""What a constant expression in a function comes to."""


class UnreadMacro(NamedTuple):
    """A macro whose text holds what may be a call of a library: its name, where the text is, and why."""

    name: str
    path: str
    at: Span
    what: str


def unread_macros(
    sources: SourceSet, facts: Facts, read: set[str], kinds: tuple[type[Fact], ...] = TENSOR_CORE
) -> Iterator[UnreadMacro]:
    """Macros in use whose text holds what may be a call of a library. `read` are those whose calls are read like a
    function's; one that only stands for a name is expanded where it is used."""
    words = sorted(facts.vocabulary.naming(kinds))
    if not words:
        return
    pattern = re.compile(_QUALIFIED % "|".join(map(re.escape, words)))
    definitions = [(path, m) for path, file in sources.files.items() for m in file.lexed.macros()]
    all_macros = Macros.of(m for _, m in definitions)
    used: set[str] | None = None
    for path, macro in definitions:
        text = macro.joined.decode("utf-8", "replace")
        names = ["".join(found.split()) for found in pattern.findall(text)]
        if macro.name in read or not names or (macro.params is None and "(" not in text and len(names) == 1):
            continue
        if used is None:
            written = {w for file in sources.files.values() for w in re.findall(r"[A-Za-z_]\w*", file.lexed.plain_text)}
            used = written.union(*(all_macros.words(w) for w in written & set(all_macros.by_name)))
        why = next((w for name in names if (w := facts.of_text(name, kinds))), "")
        if macro.name in used and why:
            what = f"{why} in macro `{macro.name}`, which is not followed"
            yield UnreadMacro(macro.name, path, macro.body_span, what)


def called_steps(call: Call, answer: Answer, value: Value) -> tuple[AsmStatement, list[MmaStep | SyncStep]]:
    """The asm statement that a call stands for, without a text and with a span that has no semicolon, and what it does.

    Raises:
        Unsupported: the registers of an MMA are not understood, or the value of the call is used.
    """
    function, fact = call.caller, answer.fact
    parent = call.node.parent
    if answer.recognizer is not None and answer.recognizer.is_user and parent is not None and parent.type in _VALUES:
        raise Unsupported(f"the value of `{function.text(call.node)}` is used, and the instruction has none")
    at = function.span(call.node)
    statement = AsmStatement(
        path=function.file.path,
        node=call.node,
        span=at,
        template_span=at,
        template="",
        outputs=(),
        inputs=(),
        clobbers=("memory",),
        volatile=True,
        where=function.file.location(at),
        shift=function.shift,
    )
    if isinstance(fact, Mma):
        return statement, [_multiply(call, answer, fact, value)]
    if isinstance(fact, Wait):
        return statement, [SyncStep(Step.WAIT, fact.pending)]
    return statement, [SyncStep(Step.FENCE if isinstance(fact, Fence) else Step.COMMIT)]


def _multiply(call: Call, answer: Answer, fact: Mma, value: Value) -> MmaStep:
    op = fact.op
    if op is None:
        raise Unsupported(f"{fact.shape} is not a shape of wgmma.mma_async with three types {fact.types}")
    registers = _registers(call, answer, op.d_registers, value)
    numbers = {"negate_a": fact.negate_a, "negate_b": fact.negate_b}
    numbers |= {"transpose_a": fact.transpose_a, "transpose_b": fact.transpose_b}
    stated = {name: value for name, value in numbers.items() if value not in ("", "1" if name[0] == "n" else "0")}
    wrong = next((n for n in stated if not (op.has_scale if n[0] == "n" else op.has_transpose)), None)
    if wrong is not None:
        raise Unsupported(f"operands of type {op.a_type.value} have no `{wrong}`")
    return MmaStep(
        op,
        registers,
        fact.a,
        fact.b,
        fact.scale_d,
        fact.negate_a,
        fact.negate_b,
        fact.transpose_a,
        fact.transpose_b,
        "f" if op.d_type is ElementType.F32 else "r",
    )


def _registers(call: Call, answer: Answer, count: int, value: Value) -> RegisterList:
    """The array that a call is handed for D. It has to be one tile: what is behind it would be taken for a part."""
    assert answer.recognizer is not None
    text, span = answer.captures[answer.recognizer.place_of("d")]
    function = call.caller
    node = next((a for a in call.args if span is not None and function.span(a) == span), None)
    element = take_apart(function, node) if node is not None else None
    if element is None or (node is not None and "&" in function.text(node)):
        raise Unsupported(f"accumulator `{text}` is not the name of an array of registers")
    variable = resolve(function, element.root, element.name)
    if variable is not None and not element.path:
        _check_size(variable, element.subscripts, count, text, value)
    return RegisterList(element.name, element.root, element.subscripts, (count,), path=element.path)


def _check_size(variable: Variable, subscripts: tuple[str, ...], count: int, text: str, value: Value) -> None:
    if variable.param is not None:
        extents = [variable.function.text(e) if e is not None else "" for e in variable.param.extents]
    else:
        extents = [variable.function.text(e) for e in array_extents(variable.declarator)] if variable.declarator else []
    if not extents and variable.param is None:
        # a class, or a pointer, which nothing says the length of
        raise Unsupported(f"accumulator `{text}` is not an array of registers")
    left = extents[len(subscripts) :]
    if extents and not left:
        raise Unsupported(f"accumulator `{text}` is one register")
    known = [value(variable.function, e) for e in left]
    if known and None not in known and math.prod(k for k in known if k is not None) != count:
        size = math.prod(k for k in known if k is not None)
        raise Unsupported(f"accumulator `{text}` has {size} registers, and the MMA {count}")
