# SPDX-License-Identifier: Apache-2.0
"""Warps of two joined consumers take each other's parts: what the sources read as the index of a thread becomes that of
the thread whose rows it has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from porter.lang.cuda import CudaFile
from porter.lang.text import Edit, Span
from porter.model.facts import Index
from porter.model.functions import Function, Style
from porter.model.program import Program
from porter.passes.context import PortContext, qualified
from porter.passes.native.sites import Left
from porter.ptx.arch import WARP

_THREAD = re.compile(rb"\bthreadIdx\b(\s*\.\s*x\b)?")
_PHYSICAL = re.compile(r"%(?:tid|warpid|nwarpid)\b")
"""What asm reads of the place of a warp in its CTA (PTX ISA, special registers)."""
_READ = re.compile(rb"\b\w*sreg_(?:tid|n?warpid)\w*")
"""Functions of the compiler and of libraries that read those."""
_OPAQUE = re.compile(r"cooperative_groups(?:/|\.h)|cub/|cuda/(?:pipeline|annotated_ptr|hierarchy|experimental/)")
"""Headers whose functions number threads themselves."""


@dataclass(frozen=True)
class Asked:
    """Where something stands in the text, and the innermost function around it; None in a macro or outside of all."""

    file: CudaFile
    match: re.Match[bytes]
    function: Function | None

    @property
    def span(self) -> Span:
        return Span(*self.match.span())


def reached(program: Program, kernels: Iterable[Function], but: Iterable[Function] = ()) -> set[int]:
    """ids of the functions that kernels may come to, with themselves, and not by way of some."""
    left_out = {id(f) for f in but}
    found: set[int] = set()
    work = list(kernels)
    inside: dict[int, list[Function]] = {}
    for function in program.functions:
        if function.parent is not None:
            inside.setdefault(id(function.parent), []).append(function)
    while work:
        function = work.pop()
        if id(function) in found or id(function) in left_out:
            continue
        found.add(id(function))
        work += inside.get(id(function), ())
        for call in function.calls:
            work += program.targets(call)
    return found


def asking(program: Program, pattern: re.Pattern[bytes]) -> Iterator[Asked]:
    """Every place of the sources that a pattern finds."""
    for path, file in program.sources.files.items():
        own = [f for f in program.functions if f.file.path == path and f.style is not Style.MACRO]
        for match in pattern.finditer(file.lexed.code):
            around = [f for f in own if f.span(f.node).contains(Span(*match.span()))]
            yield Asked(file, match, min(around, key=lambda f: f.node.end_byte - f.node.start_byte, default=None))


def rename(context: PortContext, kernels: Sequence[Function], dropped: Sequence[Edit]) -> tuple[list[Edit], list[Left]]:
    """The edits that rename the threads of `kernels`, but for what is `dropped`; or what keeps them from it."""
    program = context.program
    others = [k for k in program.kernels if not any(k is one for one in kernels)]
    mine, foreign = reached(program, kernels), reached(program, others)
    missing = [*opaque(program, kernels[0], mine)]
    written = [*dropped, *(e for found in context.edits.values() for e in found)]
    missing += _of_libraries(program, mine)
    edits = list[Edit]()
    for place in asking(program, _THREAD):
        owner = place.function
        if owner is not None and id(owner) in foreign and id(owner) not in mine:
            continue
        at = owner or kernels[0]
        shared = others and (owner is None or id(owner) in foreign or id(owner) not in mine)
        over = [
            e for e in written if e.path == place.file.path and e.span != place.span and e.span.overlaps(place.span)
        ]
        if shared:
            what = "`threadIdx` is read where also a kernel comes that stays at M=64"
        elif place.match[1] is None:
            what = "`threadIdx` is used as a whole"
        elif any(b"threadIdx" in e.replacement for e in over):
            what = "`threadIdx.x` stands in what another step of the port writes"
        else:
            if not over:
                edits.append(Edit(place.file.path, place.span, qualified("thread_index()").encode()))
            continue
        missing.append(Left(at, place.span if at.file is place.file else at.span(at.body), what))
    return edits, missing


def _of_libraries(program: Program, mine: set[int]) -> Iterator[Left]:
    """Functions of libraries that tell which warp a thread is in."""
    for function in program.functions:
        for call in function.calls if id(function) in mine else ():
            fact = program.facts.of_call(call)
            if isinstance(fact, Index) and not 0 < fact.modulo <= WARP:
                what = f"`{call.name}` of a library tells which warp a thread is in"
                yield Left(function, call.name_span, what)


def opaque(program: Program, kernel: Function, mine: set[int]) -> Iterator[Left]:
    """What says by itself that it tells a warp its place: rows of A change places then, where that can be. What else
    does, the judge finds."""
    for function in program.functions:
        for statement in function.asm:
            if id(function) in mine and _PHYSICAL.search(statement.template.replace("%%", "%")):
                yield Left(function, statement.span, "asm reads which warp of the CTA a thread is in")
    at = kernel.head
    for file in program.sources.files.values():
        if _READ.search(file.lexed.code):
            yield Left(kernel, at, "a function that reads the registers of a thread is not renamed")
        for name, _, span in file.lexed.includes():
            if _OPAQUE.match(name):
                yield Left(kernel, at if kernel.file is not file else span, f"<{name}> numbers threads itself")
