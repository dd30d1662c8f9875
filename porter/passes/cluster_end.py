# SPDX-License-Identifier: Apache-2.0
"""A cluster barrier that every thread of a ported kernel comes to last, on whichever way it leaves.

An object's destructor holds it: the object stands in front of Tensor Memory, where all threads of a block still run
together, and outlives it. Threads that have ended do not count at a cluster barrier, and without `.aligned` lanes of a
warp may come to it one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from porter.diagnostics import Code
from porter.lang.text import Edit, EditGroup, Safety, Span, as_bytes
from porter.model.functions import Function
from porter.model.program import Program
from porter.passes import emit
from porter.passes.tiled.setup import SETUP_RULE
from porter.passes.tmem_lifetime import RULE

ID = Code.BLOCK_ENDS_EARLY.id
_REASON = (
    "The original arrives on mbarriers of other blocks of its cluster, or accesses their shared memory, and nothing "
    "keeps these blocks from having ended by then."
)
_TYPE, _NAME = "ClusterEnd", "cluster_end"


def cluster_ends(
    program: Program, edits: Mapping[str, Sequence[Edit]], ending: frozenset[tuple[str, str]]
) -> list[EditGroup]:
    """The group for the kernels that are among `ending`, by their file, links followed, and their name, if there are
    any: `edits` set up Tensor Memory in them."""
    words = set(program.identifiers()) if ending else set()
    found = []
    for kernel in program.kernels if ending else ():
        if (str(Path(kernel.file.path).resolve()), kernel.name) not in ending:
            continue
        body = kernel.span(kernel.body)
        inside = [
            e for rule in (RULE, SETUP_RULE) for e in edits.get(rule, ())
            if e.path == kernel.file.path and body.contains(e.span)
        ]  # fmt: skip
        if inside:
            found.append(_addition(kernel, min(inside, key=lambda e: e.span.start), words))
    if not found:
        return []
    title = "The blocks of a cluster end together"
    return [EditGroup(ID, title, Safety.REVIEW, tuple(found), _REASON, ("PTX ISA 9.7.13.4",))]


def is_mend(group: EditGroup) -> bool:
    """Whether a group is what an original lacks as well as its port: it has the ID of a hazard, and no rule."""
    return group.rule.startswith("PT4")


def _addition(kernel: Function, setup: Edit, words: set[str]) -> Edit:
    """The object, in front of what sets up Tensor Memory: in its lines, with their indentation."""
    source, at = kernel.file.source, setup.span.start
    start = source.rfind(b"\n", 0, at) + 1
    line = source[start:at] or setup.replacement
    end = as_bytes(kernel.file.newline)
    # in the body of a macro lines go on
    end = b" \\" + end if b"\\" + end in setup.replacement else end
    pad = line[: len(line) - len(line.lstrip(b" \t"))]
    names = {key: _fresh(name, words) for key, name in (("type", _TYPE), ("name", _NAME))}
    text = (end + pad).join(as_bytes(emit.lines("cluster_end", **names)).split(b"\n"))
    return Edit(setup.path, Span(at, at), text + end + pad if start < at else pad + text + end)


def _fresh(wanted: str, words: set[str]) -> str:
    name, suffix = wanted, 1
    while name in words:
        suffix += 1
        name = f"{wanted}{suffix}"
    words.add(name)
    return name
