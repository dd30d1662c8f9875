# SPDX-License-Identifier: Apache-2.0
"""Code that is handed to a macro as an argument, where the macro's body repeats it or makes it conditional: the tree of
the function has it once and in line, which is not what is compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator

from porter.diagnostics import Code
from porter.lang.lexical import MacroText, closing
from porter.lang.macros import Macros
from porter.lang.text import Span
from porter.model.functions import Function
from porter.model.program import Program
from porter.passes.context import PortContext

WHAT = "macro `{name}` repeats its argument or makes it conditional; write the statement out"
_USE = re.compile(rb"([A-Za-z_]\w*)\s*\(")
_CONDITION = re.compile(rb"\b(?:if|switch)\s*(?:constexpr\s*)?\(")
_ONCE = re.compile(rb"\bdo\s*\{(.*)\}\s*while\s*\(\s*(?:0|false)\s*\)\s*;?\s*$")
_CONTROL = re.compile(rb"\b(?:for|while|do|if|switch|goto)\b|\?|&&|\|\||\[[&=]?\]")
_CHANGE = rb"\b%s\b(?:\s*(?:\[[^\]]*\]|\.\s*\w+))*\s*(?:[-+*/|&^]|<<|>>)?=(?!=)"


def report_macro_arguments(context: PortContext) -> None:
    """Refuse what has to do with MMAs, or changes an accumulator, in such an argument."""
    program = context.program
    turning = turning_macros(program)
    if not turning:
        return
    reaching = program.reaching([s.function for s in program.statements])
    names = {f.name for f in program.functions if f.name and id(f) in reaching}
    for function in program.functions:
        if context.needs_context(function):
            effects = _effects(context, function, names)
            for name, span in handed_to(function, turning):
                if effects.search(function.file.lexed.plain, span.start, span.end):
                    context.report(Code.MACRO_NOT_FOLLOWED, function, span, what=WHAT.format(name=name))
                    break


def turning_macros(program: Program) -> set[str]:
    """The macros that may run an argument not at all or more than once."""
    macros = Macros.of(m for file in program.sources.files.values() for m in file.lexed.macros())
    return {name for name, bodies in macros.by_name.items() if any(_turns(body, macros) for body in bodies)}


def _effects(context: PortContext, function: Function, names: set[str]) -> re.Pattern[bytes]:
    """What an argument must not hold: asm, the names of functions with MMAs, changes of accumulators, uses
    of them behind another statement."""
    parts = [rb"\b(?:asm|__asm__|__asm)\b"]
    parts += [rb"\b%s\s*[(<]" % re.escape(name.encode()) for name in sorted(names)]
    homes = {word for a in context.accumulators.accumulators if a.function is function for word in a.home.names}
    for word in sorted(homes):
        # A load in front of the second of several statements would be the macro's to repeat, too.
        parts += [_CHANGE % re.escape(word.encode()), rb";[^;]*\b%s\b" % re.escape(word.encode())]
    return re.compile(b"|".join(parts))


def handed_to(function: Function, turning: set[str]) -> Iterator[tuple[str, Span]]:
    """(macro, what stands between its parentheses) for each of its uses in a function."""
    code = function.file.lexed.plain
    start, end = function.body.start_byte + function.shift, function.body.end_byte + function.shift
    for match in _USE.finditer(code, start, end):
        name = match.group(1).decode()
        if name in turning and (past := closing(code, match.end() - 1)) > 0:
            yield name, Span(match.end(), past - 1)


def _turns(macro: MacroText, macros: Macros) -> bool:
    """Whether an argument may be run not at all or more than once."""
    if macro.params is None:
        return False
    body = _ONCE.sub(rb"\1", macro.joined)
    used = {w.decode() for w in re.findall(rb"[A-Za-z_]\w*", body)} & macros.by_name.keys() - {macro.name}
    control = _CONTROL.search(body) or any(_CONTROL.search(macros.text(name).encode()) for name in used)
    for word in {"__VA_ARGS__" if p.endswith("...") else p for p in macro.params}:
        name = re.compile(rb"(?<!#)(?<!# )\b%s\b" % re.escape(word.encode()))
        if len(name.findall(body)) > 1 or (control and name.search(_without_conditions(body))):
            return True
    return False


def _without_conditions(body: bytes) -> bytes:
    """A body without the conditions of its `if` and `switch`, which are evaluated once."""
    for match in reversed(list(_CONDITION.finditer(body))):
        past = closing(body, match.end() - 1)
        body = body[: match.start()] + (body[past:] if past > 0 else b"")
    return body
