# SPDX-License-Identifier: Apache-2.0
"""What keeps a kernel from being ported whatever its accumulators do: threads that end without passing its end, blocks
that only the preprocessor sees, and the helpers of an earlier port. And what a port costs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from porter.diagnostics import Code, Diagnostic
from porter.lang.cuda import location
from porter.lang.macros import Macros
from porter.lang.text import Span
from porter.model.block_size import is_launched
from porter.model.dynamic_shared import asked_for, is_asked_for
from porter.model.functions import Function, Style
from porter.model.threads import ends_thread, only_ends_thread
from porter.passes.context import PortContext
from porter.passes.helpers import NAMESPACE
from porter.passes.macro_arguments import report_macro_arguments
from porter.passes.mentions import Mentions
from porter.ptx.arch import SHARED_LIMIT
from porter.ptx.swizzle import PERIOD
from porter.ptx.wgmma import M

RULE = "PTR140"
SHARED_BYTES = PERIOD
"""Static shared memory of a port in front of dynamic shared memory, which keeps its alignment."""
_HELPERS = re.compile(rb"^namespace \w*%b\w* \{[^}]*?constexpr uint32_t kRing = " % NAMESPACE.encode(), re.MULTILINE)
_ENDING_CALLS = ("exit", "__nvvm_exit")
"""`cuda::ptx::exit`; that of C takes an argument."""
_WORD = re.compile(rb"[A-Za-z_]\w*")


def report_obstacles(context: PortContext) -> None:
    """Name them, each at its place."""
    _barriers_taken(context)
    _threads_that_exit(context)
    _blocks_of_macros(context)
    _called_in_macros(context)
    report_macro_arguments(context)
    for file in context.program.sources.files.values():
        for match in _HELPERS.finditer(file.source):
            where = location(file, Span(match.start(), match.start() + len(f"namespace {NAMESPACE}")))
            context.diagnostics.append(Diagnostic(Code.HELPERS_THERE, where))


def _barriers_taken(context: PortContext) -> None:
    if context.helpers.first_barrier == 0:
        for kernel in context.kernels:
            function = kernel.function
            at = function.name_span or function.span(function.body)
            context.report(Code.BARRIERS_TAKEN, function, at, kernel=function.name)


def _threads_that_exit(context: PortContext) -> None:
    """`exit` in asm passes by the end of the kernel, where Tensor Memory is freed: in a kernel it becomes a return."""
    program, ported = context.program, {id(k.function) for k in context.kernels}
    ending = {id(f): places for f in program.functions if (places := list(_ends(context, f)))}
    if not ending:
        return
    # a name that is handed on or given another, a constructor and an operator are called where no call is seen
    reaching = program.reaching(f for f in program.functions if id(f) in ending)
    coming = [f for f in program.functions if id(f) in reaching and f.style is not Style.LAMBDA]
    understood = set(map(id, Mentions(program, coming).understood(coming)))
    for function in program.functions:
        callers = program.reaching([function]) if id(function) in ending else set()
        reached = bool(callers & ported) or any(id(f) in callers - understood for f in coming)
        for span, alone in ending.get(id(function), ()):
            if id(function) in ported and alone:
                text = function.file.text(span)
                context.edit(RULE, function, span, "return;" if text.rstrip().endswith(";") else "return")
            elif reached:
                what = "threads that `exit` in asm never come to where Tensor Memory is freed"
                context.report(Code.THREADS_LEAVE, function, span, what=what)


def _ends(context: PortContext, function: Function) -> Iterator[tuple[Span, bool]]:
    """Where a function ends a thread, and whether it does nothing else there."""
    for statement in filter(ends_thread, function.asm):
        yield statement.span, only_ends_thread(statement)
    for call in function.calls:
        if call.name in _ENDING_CALLS and not call.args and not context.program.targets(call):
            yield function.span(call.node), False


def _blocks_of_macros(context: PortContext) -> None:
    """Macros that open or close a block: the tree of the function around them is not what is compiled."""
    macros = Macros.of(m for file in context.program.sources.files.values() for m in file.lexed.macros())
    unbalanced = {name for name in macros.by_name if _opens(macros.text(name))}
    if not unbalanced:
        return
    for function in context.program.functions:
        if context.needs_context(function):
            _report_in(context, function, unbalanced)


def _called_in_macros(context: PortContext) -> None:
    """Macros without asm of their own whose bodies call what is handed its warpgroup or a tile: such calls are not
    read, and would stay as they are."""
    program = context.program
    read = {s.macro.body_span for f in program.functions for s in f.asm if s.macro is not None}
    handed = {f.name: f for f in program.functions if f.name and context.takes_context_param(f)}
    handed |= {p[0].function.name: p[0].function for p in context.accumulators.params.values() if p}
    for file in program.sources.files.values() if handed else ():
        for macro in file.lexed.macros():
            if macro.body_span in read:
                continue
            for match in _WORD.finditer(file.lexed.code, macro.body_span.start, macro.body_span.end):
                name = match.group().decode()
                if name not in handed or name in (macro.params or ()) or not _is_used(context, macro.name):
                    continue
                behind, ahead = file.lexed.code[: match.start()].rstrip()[-2:], file.lexed.code[match.end() :].lstrip()
                is_member = behind.endswith(b".") or behind == b"->"
                if is_member != (handed[name].style is Style.METHOD) or not ahead.startswith((b"(", b"<")):
                    continue
                what = f"`{name}` has to do with MMAs, and macro `{macro.name}` calls it; call it in a function"
                where = location(file, Span(match.start(), match.end()))
                context.diagnostics.append(Diagnostic(Code.MACRO_NOT_FOLLOWED, where, {"what": what}))
                break


def _is_used(context: PortContext, macro: str) -> bool:
    """Whether a macro's name stands anywhere but where it is defined or undefined."""
    word = re.compile(rb"(?<!\w)(?<!define )(?<!undef )" + macro.encode() + rb"(?!\w)")
    return any(word.search(file.lexed.code) for file in context.program.sources.files.values())


def _report_in(context: PortContext, function: Function, unbalanced: set[str]) -> None:
    start, end = function.body.start_byte + function.shift, function.body.end_byte + function.shift
    for match in _WORD.finditer(function.file.lexed.plain, start, end):
        name = match.group().decode()
        if name in unbalanced:
            what = f"macro `{name}` opens or closes a block, which is not followed"
            context.report(Code.MACRO_NOT_FOLLOWED, function, Span(match.start(), match.end()), what=what)
            return


def _opens(text: str) -> bool:
    code = re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', "", text)
    return any(code.count(a) != code.count(b) for a, b in ("{}", "()", "[]"))


def shared_bytes(context: PortContext) -> int:
    """Static shared memory of a port: more where factors of columns are staged there."""
    return SHARED_BYTES * (2 if context.helpers.column_factors else 1)


def report_shared(context: PortContext, kernel: Function) -> None:
    """Whether the static shared memory of a port fits beside the dynamic one that launches of a kernel ask for."""
    nbytes = shared_bytes(context)
    at, asked = kernel.name_span or kernel.span(kernel.body), asked_for(context.program, kernel) or 0
    if asked + nbytes > SHARED_LIMIT:
        total = asked + nbytes
        context.report(
            Code.SHARED_MEMORY_OVER, kernel, at,
            kernel=kernel.name, asked=asked, bytes=nbytes, total=total, limit=SHARED_LIMIT,
        )  # fmt: skip
    elif not is_launched(context.program, kernel) and not is_asked_for(context.program, kernel):
        left = SHARED_LIMIT - nbytes
        context.report(Code.SHARED_MEMORY_NOT_SEEN, kernel, at, kernel=kernel.name, bytes=nbytes, left=left)
    else:
        context.report(Code.SHARED_MEMORY_GROWS, kernel, at, kernel=kernel.name, bytes=nbytes)


def report_consequences(context: PortContext) -> None:
    """What the port of each kernel costs, and what it takes for granted."""
    for kernel in context.kernels:
        at = kernel.function.name_span or kernel.function.span(kernel.function.body)
        name = kernel.function.name
        if context.helpers.mma_rows == M:
            context.report(Code.HALF_RATE, kernel.function, at, kernel=name)
        context.report(Code.EXTRA_BARRIER, kernel.function, at, kernel=name)
        if context.helpers.padded_shared:
            report_shared(context, kernel.function)
        if kernel.unknown_barriers:
            context.report(Code.BARRIER_IDS, kernel.function, at, kernel=name)
        if not kernel.roles.exact:
            context.report(Code.WARPGROUPS_UNKNOWN, kernel.function, at, kernel=name, count=kernel.roles.count)
