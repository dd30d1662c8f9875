# SPDX-License-Identifier: Apache-2.0
"""The step in which a ring has more stages, for tiled MMAs of a library: types of the library that are made of their
number grow with it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from tree_sitter import Node

from porter.lang.cuda import CudaFile, enclosing, find
from porter.lang.text import Span
from porter.model.dynamic_shared import amounts
from porter.model.functions import Function, Style
from porter.model.pipeline.read import pipeline_of
from porter.model.program import Program
from porter.passes.native import stages
from porter.passes.native.counting import Counting, Literal, Mention, Word
from porter.passes.native.sites import Changes, Left
from porter.passes.native.stages import NAME, RULE, Stages
from porter.passes.native.taking import Taking
from porter.passes.native.tiled_mainloop import TiledPipelined
from porter.passes.tiled.context import TiledContext

MEMBER = "Stages"
"""What classes of pipelines call their number of stages."""


def take(context: TiledContext, found: list[TiledPipelined], count: int) -> int:
    """Make the edits of the step, with `count` stages or as many as the text allows of these; gives their number.

    Raises:
        Left: a fact is missing.
    """
    if len(found) != 1:
        at = found[0].kernel.function
        raise Left(at, at.span(at.body), "that the file has one kernel")
    changes = Changes(context.port, RULE)
    made = TiledStages(found[0], changes, count).take()
    changes.make()
    return made


def held(program: Program, kernel: Function) -> int:
    """The stages that a kernel has.

    Raises:
        Left: no one constant says how many.
    """
    return _constant(Counting(program, kernel), program, kernel)[1].value


def _constant(counting: Counting, program: Program, kernel: Function) -> tuple[str, Literal]:
    """The constant that all names of the number lead to."""
    found = [counting.literal(name) for name in _names(program, kernel)]
    nodes = {(id(literal.file), literal.node.id) for _, literal in found}
    if len(nodes) != 1:
        raise Left(kernel, kernel.span(kernel.body), "one number of stages that all mbarriers and pipelines have")
    return found[0]


def _names(program: Program, kernel: Function) -> list[str]:
    """What the number is called, by each ring of mbarriers and each type of a pipeline."""
    facts = pipeline_of(program, kernel)
    if any(r.stages is None or not r.index for r in facts.rings):
        raise Left(kernel, kernel.span(kernel.body), "one number of stages that all mbarriers have")
    names = [r.stages.text.split("::")[-1] for r in facts.rings if r.stages is not None]
    for file, node in of_library(program, "pipeline_of_threads"):
        names.append(file.text(node).split("::")[-1].strip())
    return list(dict.fromkeys(names))


def of_library(program: Program, spelling: str) -> Iterator[tuple[CudaFile, Node]]:
    """The first arguments of types of a library.

    Raises:
        Left: one is not read as a type.
    """
    for file in program.sources.files.values():
        for name in find(file.root, "identifier", "type_identifier"):
            if not program.vocabulary.spellings.are(spelling, file.text(name)):
                continue
            given = name.parent.child_by_field_name("arguments") if name.parent is not None else None
            if given is not None and given.named_children:
                yield file, given.named_children[0]
            elif re.match(rb"\s*<", file.source[name.end_byte : name.end_byte + 8]):
                function = next((f for f in program.functions if f.file is file), program.kernels[0])
                end = file.source.find(b">", name.end_byte) + 1
                text = file.source[name.start_byte : end].decode("utf-8", "replace")
                at = Span(name.start_byte, name.end_byte) if function.file is file else function.span(function.body)
                raise Left(function, at, f"that `{text}` has the number of stages")


class TiledStages(Stages):
    """The step for one kernel."""

    def _constant(self) -> tuple[str, Literal]:
        return _constant(self.counting, self.program, self.function)

    def take(self) -> int:
        count = super().take()
        self._host_types()
        for kind in ("struct_specifier", "class_specifier", "alias_declaration"):
            self._only_one(kind)
        return count

    def _only_one(self, kind: str) -> None:
        """That no two types have one name: what a launch asks for would be the size of either."""
        files = self.program.sources.files.values()
        found = [(f, n) for f in files for n in find(f.root, kind)]
        whole = [(f, n) for f, n in found if kind == "alias_declaration" or n.child_by_field_name("body")]
        names = Counter(f.text(named) for f, n in whole if (named := n.child_by_field_name("name")) is not None)
        asked = {caller.text(n) for caller, _ in amounts(self.program, self.function)
                 for n in find(caller.body, "identifier", "type_identifier")}  # fmt: skip
        for name in sorted(n for n in names.keys() & asked if names[n] > 1):
            raise self._left(f"which `{name}` of several is meant")

    def _host_types(self) -> None:
        """That host code makes nothing of types that are made of the number but shared memory and kernels."""
        words, files = {w.name for w in self.counting.words}, self.program.sources.files.values()
        names = words
        while True:
            found = {
                file.text(named) for file in files for alias in find(file.root, "alias_declaration")
                if (named := alias.child_by_field_name("name")) is not None
                and names & {file.text(n) for n in find(alias, "identifier", "type_identifier")}
            }  # fmt: skip
            if found <= names:
                break
            names = names | found
        for function in (f for f in self.program.functions if f.style is Style.HOST):
            for node in find(function.body, "identifier", "type_identifier"):
                known = enclosing(node, "sizeof_expression", "template_argument_list", "alias_declaration")
                if function.text(node) in names - words and known is None:
                    self._judge(Mention(function.file, node, Word(function.text(node))))


def _write(taking: Taking) -> None:
    taking.made[NAME] = take(taking.context, taking.found, taking.asked[NAME])


STEP = replace(stages.STEP, write=_write, dialect="cute")
