# SPDX-License-Identifier: Apache-2.0
"""More stages: the constant that says how many a ring of operands has gets another value. What is made of it (layouts,
pipelines, their states, the size of shared memory), the compiler makes anew; runs and PTX tell whether all of it is."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from porter.lang.cuda import CudaFile, find
from porter.lang.text import Span
from porter.model.functions import Function
from porter.model.pipeline.read import pipeline_of
from porter.model.program import Program
from porter.passes.idiom.atoms import owner_of
from porter.passes.idiom.site import Site
from porter.passes.native.counting import Counting, Literal
from porter.passes.native.sites import Left

RULE = "PTR784"


def held(program: Program, kernel: Function) -> int:
    """The stages that a kernel has.

    Raises:
        Left: no one constant says how many.
    """
    return _constant(program, kernel).value


def more_stages(site: Site) -> None:
    """Raises Left where no one constant says how many there are."""
    literal = _constant(site.program, site.kernel)
    span = Span(literal.node.start_byte, literal.node.end_byte)
    site.draft.replace(RULE, owner_of(site, literal.file), span, literal.instead(site.asked.stages))


def _constant(program: Program, kernel: Function) -> Literal:
    """The constant that all names of the number lead to."""
    counting = Counting(program, kernel)
    found = [counting.literal(name)[1] for name in _names(program, kernel)]
    if len({(id(literal.file), literal.node.id) for literal in found}) != 1:
        raise Left(kernel, kernel.head, "one number of stages that all mbarriers and pipelines have")
    return found[0]


def _names(program: Program, kernel: Function) -> list[str]:
    """What the number is called, by each ring of mbarriers and each type of a pipeline."""
    facts = pipeline_of(program, kernel)
    if any(r.stages is None or not r.index for r in facts.rings):
        raise Left(kernel, kernel.head, "one number of stages that all mbarriers have")
    names = [r.stages.text.split("::")[-1] for r in facts.rings if r.stages is not None]
    names += [file.text(node).split("::")[-1].strip() for file, node in _of_pipelines(program, kernel)]
    return list(dict.fromkeys(names))


def _of_pipelines(program: Program, kernel: Function) -> Iterator[tuple[CudaFile, Node]]:
    """The first arguments of types of pipelines of the library."""
    for file in program.sources.files.values():
        for name in find(file.root, "identifier", "type_identifier"):
            if not program.vocabulary.spellings.are("pipeline_of_threads", file.text(name)):
                continue
            given = name.parent.child_by_field_name("arguments") if name.parent is not None else None
            if given is not None and given.named_children:
                yield file, given.named_children[0]
            elif re.match(rb"\s*<", file.source[name.end_byte : name.end_byte + 8]):
                raise Left(kernel, kernel.head, f"that `{file.text(name)}` has the number of stages")
