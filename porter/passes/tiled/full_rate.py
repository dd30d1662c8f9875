# SPDX-License-Identifier: Apache-2.0
"""The step from M=64 to M=128 for kernels whose MMAs a library issues: two warpgroups of one tiled MMA, below each
other in M, become one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from porter.diagnostics import Code
from porter.lang.text import Edit
from porter.model.facts import Index
from porter.model.functions import Function
from porter.model.kernels import Kernel
from porter.passes.full_rate.missing import Missing
from porter.passes.full_rate.renaming import Renamed, places, rename
from porter.passes.full_rate.step import RULE, dropped_turns, of_consumers, title
from porter.passes.needs import NOTHING
from porter.passes.tiled.context import TiledContext
from porter.passes.tiled.text import cpp
from porter.ptx.arch import WARP
from porter.ptx.wgmma import THREADS as WARPGROUP


def take(context: TiledContext) -> int | None:
    """The warp that issues the M=128 MMAs of two warpgroups; None where a fact is missing, which is then named."""
    port = context.port
    kernels = [as_kernel(context, k.function) for k in context.kernels if k.roles is not None]
    if not kernels or len(kernels) != len(context.kernels):
        return None
    edits, found = _joined(context, kernels)
    called = ", ".join(k.function.name for k in kernels)
    for one in {(m.function.file.path, m.span, m.what): m for m in found}.values():
        port.report(Code.FULL_RATE_LEFT, one.function, one.span, kernel=called, what=one.what)
    if found:
        return None
    port.edits.setdefault(RULE, []).extend(edits)
    port.helpers.joined, port.helpers.issuer = True, kernels[0].roles.first * (WARPGROUP // WARP)
    return port.helpers.issuer


def as_kernel(context: TiledContext, function: Function) -> Kernel:
    """A kernel as the proofs for inline PTX have it."""
    kernel = next(k for k in context.kernels if k.function is function)
    assert kernel.roles is not None
    return Kernel(function, kernel.setup, kernel.threads, kernel.roles, False, frozenset(), False)


def _joined(context: TiledContext, kernels: Sequence[Kernel]) -> tuple[list[Edit], list[Missing]]:
    """The edits with which one MMA makes the tiles of two warpgroups, and what is not known for it."""
    found = [m for k in kernels for m in _missing(context, kernels[0].roles.first, k)]
    if found:
        return [], found
    taken, found = dropped_turns(context.port, kernels)
    renamed = Renamed(cpp("thread_index"), _of_library)
    edits, unknown = rename(context.port, [k.function for k in kernels], taken, renamed)
    found += [*unknown, *_elsewhere(context, kernels[0].function)]
    if not edits:
        found.append(Missing(kernels[0].function, title(kernels[0].function), "nothing in it reads a thread's index"))
    return [*taken, *edits], found


def _of_library(fact: Index) -> str:
    terms = [(" / ", fact.step, 1), (" % ", fact.modulo, 0), (" + ", fact.offset, 0)]
    return cpp(
        "index_of_library",
        thread="first_thread_index()" if fact.uniform else "thread_index()",
        terms="".join(f"{sign}{number}" for sign, number, without in terms if number != without),
    )


def _elsewhere(context: TiledContext, kernel: Function) -> Iterator[Missing]:
    """Text of the port in headers: files that stay at M=64 may share it."""
    root = context.tiled.program.sources.root
    paths = {e.path for edits in context.port.edits.values() for e in edits}
    paths |= {p.file.path for p in places(context.tiled.program)}
    if paths - {root}:
        yield Missing(kernel, title(kernel), "a part of it stands in a header, which other files may share")


def _missing(context: TiledContext, first: int, kernel: Kernel) -> Iterator[Missing]:
    """What keeps consumers from one MMA whose rows lie below each other. That they have the same B, and that N is a
    multiple of 16, the port asserts at compile time."""
    yield from (found := [*of_consumers(context.port, NOTHING, first, kernel)])
    if not found and context.tiled.atoms:
        what = "it issues MMAs by their atoms, which say nothing about the rows of another warpgroup"
        yield Missing(kernel.function, title(kernel.function), what)
