# SPDX-License-Identifier: Apache-2.0
"""The port of a CuTe DSL file in Blackwell's own words, or why it cannot be: all kernels of the file, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from porter.lang.text import Edit, EditConflict, EditGroup, Safety, apply_groups
from porter.passes.idiom_dsl import epilogue, mainloop, memory, mma, promoted, registers, through_tmem
from porter.passes.idiom_dsl.epilogue import ByTiles
from porter.passes.idiom_dsl.facts import Facts, Trace
from porter.passes.idiom_dsl.imports import RULE as NAMES
from porter.passes.idiom_dsl.imports import Imports
from porter.passes.idiom_dsl.kernel import Kernel, kernels
from porter.passes.idiom_dsl.names import OPTIONAL
from porter.passes.idiom_dsl.products import has_operands_in_registers, products_of
from porter.passes.idiom_dsl.promoted import Promoted
from porter.passes.idiom_dsl.registers import InRegisters
from porter.passes.idiom_dsl.site import Site
from porter.passes.idiom_dsl.text import Draft, Left, of_rule, read
from porter.passes.idiom_dsl.unused import remove_unused
from porter.passes.idiom_dsl.words import Words
from porter.steps.step import Step


@dataclass(frozen=True)
class Idiomatic:
    """Edits with the rules that they are of, and the kernels; or `what` keeps the file from them, at a `line`, and for
    which `rule` that is missing. `absent`: names that the installed DSL lacks for it."""

    edits: Sequence[tuple[str, Edit]] = ()
    kernels: Sequence[str] = ()
    what: str = ""
    line: int = 0
    rule: str = ""
    absent: Sequence[str] = ()
    steps: Sequence[str] = ()
    """Those that its kernels have; `without` others, and what is missing for each, as (kernel, step, what, line)."""
    without: Sequence[tuple[str, str, str, int]] = ()


def idiomatic(path: str, source: bytes, traces: Sequence[Trace], steps: Sequence[Step] = ()) -> Idiomatic:
    """`steps` are taken in all kernels in which they can be."""
    text, left = None, list[tuple[str, str, str, int]]()
    try:
        text = read(path, source)
        facts, draft = Facts(text, traces), Draft(text)
        with of_rule(NAMES):
            facts.require_here("multiply", "make_mma", "load_pipeline", "epilogue_tile")
        with of_rule(mainloop.RULE):
            found = kernels(text, facts)
        imports = Imports(text, draft)
        for kernel in found:
            _edit(kernel, draft, imports, steps, left)
        imports.rename([k.function for k in found if has_operands_in_registers(k)])
        remove_unused(text, draft)
        imports.finish()
        absent = sorted(facts.absent & set(OPTIONAL.values()))
        names = [k.function.name.value for k in found]
        edits = draft.finished()
        _require_one_text(path, source, edits)
        return Idiomatic(edits, names, absent=absent, steps=_taken(steps, names, left), without=left)
    except cst.ParserSyntaxError as error:
        return Idiomatic(what=str(error.message), line=error.raw_line)
    except Left as why:
        line = text.line(why.node) if text is not None and why.node is not None else 0
        return Idiomatic(what=why.what, line=line, rule=why.rule)


def _require_one_text(path: str, source: bytes, edits: Sequence[tuple[str, Edit]]) -> None:
    """Raises Left: edits are about the same text."""
    try:
        apply_groups({path: source}, [EditGroup(rule, "", Safety.REVIEW, (edit,)) for rule, edit in edits])
    except EditConflict as clash:
        left = Left(f"a text that {clash.first.rule} and {clash.second.rule} both change")
        left.rule = clash.second.rule
        raise left from None


def _taken(steps: Sequence[Step], kernels: Sequence[str], left: Sequence[tuple[str, str, str, int]]) -> list[str]:
    """Steps that a kernel has."""
    return [s.name for s in steps if sum(name == s.name for _, name, _, _ in left) < len(kernels)]


def _edit(
    kernel: Kernel, draft: Draft, imports: Imports, steps: Sequence[Step], left: list[tuple[str, str, str, int]]
) -> None:
    """All rules, for one kernel. `left` gets the steps that it is without."""
    if has_operands_in_registers(kernel):
        name, line = kernel.function.name.value, kernel.text.line(kernel.function)
        left += ((name, step.name, "A from registers", line) for step in steps)
        with of_rule(through_tmem.RULE):
            through_tmem.edit(products_of(kernel), draft, imports)
        return
    with of_rule(mma.RULE):
        mma.require(kernel)
    with of_rule(mainloop.RULE):
        words = Words(kernel, imports)
    with of_rule(epilogue.RULE):
        how = _epilogue(kernel)
    words["load_whole"] = not isinstance(how, ByTiles)
    site = Site(kernel, words, how.slice, isinstance(how, ByTiles))
    taken: list[str] = []
    for step in steps:
        try:
            assert step.write is not None
            missing = [what for name, what in step.after.items() if name not in taken]
            if missing := [*missing, *(what for name, what in step.beside.items() if name in taken)]:
                raise Left(missing[0])
            step.write(site)
            taken.append(step.name)
        except Left as why:
            line = kernel.text.line(why.node or kernel.function)
            left.append((kernel.function.name.value, step.name, why.what, line))
    with of_rule(mma.RULE):
        mma.edit(kernel, draft, words, how.tile, not isinstance(how, ByTiles))
    with of_rule(memory.STORAGE):
        memory.storage(kernel, draft, words)
    with of_rule(memory.PIPELINE):
        memory.pipelines(kernel, draft, words, how.slice, how.warpgroups, how.number)
    with of_rule(memory.ACCUMULATOR):
        memory.accumulator(kernel, draft, words)
    with of_rule(mainloop.RULE):
        mainloop.edit(kernel, draft, words, how.slice, site.placed)
    with of_rule(epilogue.RULE):
        _edit_epilogue(kernel, how, draft, words)
    with of_rule(memory.END):
        memory.end(kernel, draft, words)
    if site.also is not None:
        site.also(draft, words)


def _edit_epilogue(kernel: Kernel, how: ByTiles | Promoted | InRegisters, draft: Draft, words: Words) -> None:
    if isinstance(how, InRegisters):
        registers.edit(kernel, how, draft, words)
    elif isinstance(how, Promoted):
        promoted.edit(kernel, how, draft, words)
    else:
        epilogue.edit(kernel, how, draft, words)


def _epilogue(kernel: Kernel) -> ByTiles | Promoted | InRegisters:
    """Raises Left: what keeps the accumulator's registers from being copied tile by tile, and from being a whole."""
    left: list[Left] = []
    for known in (epilogue.by_tiles, promoted.promoted, registers.in_registers):
        try:
            return known(kernel)
        except Left as found:
            left.append(found)
    raise Left("; ".join(f.what for f in left), next((f.node for f in left if f.node is not None), None))
