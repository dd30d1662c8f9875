# SPDX-License-Identifier: Apache-2.0
"""The port of a CuTe DSL file in Blackwell's own words, or why it cannot be: all kernels of the file, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from porter.lang.text import Edit
from porter.passes.idiom_dsl import epilogue, mainloop, memory, mma, promoted, registers
from porter.passes.idiom_dsl.epilogue import ByTiles
from porter.passes.idiom_dsl.facts import Facts, Trace
from porter.passes.idiom_dsl.imports import Imports
from porter.passes.idiom_dsl.kernel import Kernel, kernels
from porter.passes.idiom_dsl.names import OPTIONAL
from porter.passes.idiom_dsl.promoted import Promoted
from porter.passes.idiom_dsl.registers import InRegisters
from porter.passes.idiom_dsl.text import Draft, Left, Text, read
from porter.passes.idiom_dsl.unused import remove_unused
from porter.passes.idiom_dsl.words import Words


@dataclass(frozen=True)
class Idiomatic:
    """Edits with the rules that they are of, and the kernels; or `what` keeps the file from them, at a `line`.
    `absent`: names that the installed DSL lacks for it."""

    edits: Sequence[tuple[str, Edit]] = ()
    kernels: Sequence[str] = ()
    what: str = ""
    line: int = 0
    absent: Sequence[str] = ()


def idiomatic(path: str, source: bytes, traces: Sequence[Trace]) -> Idiomatic:
    text: Text | None = None
    try:
        text = read(path, source)
        facts, draft = Facts(text, traces), Draft(text)
        facts.require_here("multiply", "make_mma", "load_pipeline", "epilogue_tile")
        imports, found = Imports(text, draft), kernels(text, facts)
        for kernel in found:
            _edit(kernel, draft, imports)
        imports.rename()
        remove_unused(text, draft)
        imports.finish()
        absent = sorted(facts.absent & set(OPTIONAL.values()))
        return Idiomatic(draft.finished(), [k.function.name.value for k in found], absent=absent)
    except cst.ParserSyntaxError as error:
        return Idiomatic(what=str(error.message), line=error.raw_line)
    except Left as left:
        return Idiomatic(what=left.what, line=text.line(left.node) if text is not None and left.node is not None else 0)


def _edit(kernel: Kernel, draft: Draft, imports: Imports) -> None:
    """All rules, for one kernel."""
    mma.require(kernel)
    words, how = Words(kernel, imports), _epilogue(kernel)
    words["load_whole"] = not isinstance(how, ByTiles)
    mma.edit(kernel, draft, imports, how.tile, not isinstance(how, ByTiles))
    memory.storage(kernel, draft, words)
    memory.pipelines(kernel, draft, words, how.slice, how.warpgroups, how.number)
    memory.accumulator(kernel, draft, words)
    mainloop.edit(kernel, draft, words, how.slice)
    if isinstance(how, InRegisters):
        registers.edit(kernel, how, draft, words)
    elif isinstance(how, Promoted):
        promoted.edit(kernel, how, draft, words)
    else:
        epilogue.edit(kernel, how, draft, words)
    memory.end(kernel, draft, words)


def _epilogue(kernel: Kernel) -> ByTiles | Promoted | InRegisters:
    """Raises Left: what keeps the accumulator's registers from being copied tile by tile, and from being a whole."""
    left: list[Left] = []
    for known in (epilogue.by_tiles, promoted.promoted, registers.in_registers):
        try:
            return known(kernel)
        except Left as found:
            left.append(found)
    raise Left("; ".join(f.what for f in left), next((f.node for f in left if f.node is not None), None))
