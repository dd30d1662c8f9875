# SPDX-License-Identifier: Apache-2.0
"""A cluster barrier that every thread of a ported kernel comes to last, on whichever way it leaves.

An object's destructor holds it: the object stands in front of Tensor Memory, where all threads of a block still run
together, and outlives it. Threads that have ended do not count at a cluster barrier, and without `.aligned` lanes of a
warp may come to it one by one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from porter.diagnostics import Code
from porter.lang.cuda import CudaFile, find
from porter.lang.text import Edit, EditGroup, Safety, Span, as_bytes
from porter.model.program import Program
from porter.passes import emit
from porter.passes.tiled.setup import SETUP_RULE
from porter.passes.tmem_lifetime import RULE

ID = Code.BLOCK_ENDS_EARLY.id
_REASON = (
    "The original arrives on mbarriers of other blocks of its cluster, or accesses their shared memory, and nothing "
    "keeps these blocks from having ended by then."
)
SETUPS = (RULE, SETUP_RULE)
"""Rules that set up Tensor Memory."""
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
        setups = [e for rule in SETUPS for e in edits.get(rule, ()) if e.path == kernel.file.path]
        found += _in(kernel.span(kernel.body), setups, kernel.file.source, words)
    return [_group(found)] if found else []


def cluster_end(file: CudaFile, kernel: str, setups: Sequence[Edit]) -> EditGroup | None:
    """The same for the kernel of a file with this name, which `setups` are edits of; None if it is not there."""
    for function in find(file.root, "function_definition"):
        head, body = function.child_by_field_name("declarator"), function.child_by_field_name("body")
        if head is None or body is None or not re.match(rb"(?:\w+::)*" + kernel.encode() + rb"\b", head.text or b""):
            continue
        words = {w.decode("utf-8", "replace") for w in re.findall(rb"\w+", file.source)}
        if found := _in(Span(body.start_byte, body.end_byte), setups, file.source, words):
            return _group(found)
    return None


def _in(body: Span, setups: Sequence[Edit], source: bytes, words: set[str]) -> list[Edit]:
    """The addition to a kernel in front of the first of the edits that are in its body, if there is one."""
    inside = [e for e in setups if body.contains(e.span)]
    return [_addition(source, min(inside, key=lambda e: e.span.start), words)] if inside else []


def _group(edits: Sequence[Edit]) -> EditGroup:
    title = "The blocks of a cluster end together"
    return EditGroup(ID, title, Safety.REVIEW, tuple(edits), _REASON, ("PTX ISA 9.7.13.3",))


def is_mend(group: EditGroup) -> bool:
    """Whether a group is what an original lacks as well as its port: it has the ID of a hazard, and no rule."""
    return group.rule.startswith("PT4")


def _addition(source: bytes, setup: Edit, words: set[str]) -> Edit:
    """The object, in front of what sets up Tensor Memory: in its lines, with their indentation."""
    at = setup.span.start
    start = source.rfind(b"\n", 0, at) + 1
    line = source[start:at] or setup.replacement
    # in the body of a macro lines go on
    end = next(e for e in (b" \\\r\n", b" \\\n", b"\r\n", b"\n") if e in setup.replacement or e == b"\n")
    pad = line[: len(line) - len(line.lstrip(b" \t"))]
    names = {key: _fresh(name, words) for key, name in (("type", _TYPE), ("name", _NAME))}
    text = (end + pad).join(as_bytes(emit.lines("cluster_end", **names)).split(b"\n"))
    return Edit(setup.path, Span(at, at), text + end + pad if start < at else pad + text + end)


def _fresh(wanted: str, words: set[str]) -> str:
    name, suffix = wanted, 1
    while name in words:
        suffix += 1
        name = f"{wanted}{suffix}"
    return name
