# SPDX-License-Identifier: Apache-2.0
"""The ring has more stages: the constant that their number comes from is another one, and all that is made of it grows
with it. Device code is judged on PTX; what host code makes of the number is asked here, as nobody runs it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import CudaFile, enclosing, find
from porter.lang.text import Span
from porter.model.block_size import LAUNCHERS
from porter.model.dynamic_shared import ATTRIBUTES, amounts
from porter.model.pipeline.read import pipeline_of
from porter.passes.native.counting import Counting, Literal, Mention, Word, initialized
from porter.passes.native.host_places import HostPlaces
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import Changes, Left, OfFunction
from porter.passes.native.taking import Taking
from porter.steps.step import Declared, Ring, Step

RULE = "PTR191"
NAME = "stages"
_NAMING = ("template_function", "qualified_identifier", "pointer_expression", "cast_expression",
           "parenthesized_expression")  # fmt: skip
_DECLARING = ("function_declarator", "init_declarator", "template_instantiation")


@dataclass(eq=False)
class Stages(OfFunction):
    """The step for one kernel."""

    kernel: Pipelined
    changes: Changes
    count: int

    def __post_init__(self) -> None:
        self.function = self.kernel.kernel.function
        self.program = self.kernel.program
        self.facts = pipeline_of(self.program, self.function)
        self.counting = Counting(self.program, self.function)
        self.host = HostPlaces(self.program, self.function, self.counting)

    def take(self) -> int:
        """With so many stages, or as many of these as the text allows: how many."""
        constant, literal = self._constant()
        self.counting.require_own(constant, literal)
        self.mentions = list(self.counting.mentions(constant))
        for mention in self.mentions:
            if not self.counting.is_of_device(mention) and not self.host.is_amount(mention.file, mention.node):
                raise self.counting.unknown(mention, NAME)
        self._launches()
        self._sizes()
        return self._edit(literal)

    def _constant(self) -> tuple[str, Literal]:
        """The constant that says how many stages there are."""
        names = {r.stages.text.split("::")[-1] for r in self.facts.rings if r.stages is not None}
        if len(names) != 1 or any(r.stages is None or not r.index for r in self.facts.rings):
            raise self.lacks("one number of stages that all mbarriers have")
        return self.counting.literal(next(iter(names)))

    def _edit(self, literal: Literal) -> int:
        count = self.count
        masked = any(map(self._is_mask, self.mentions))
        if masked:
            count = 1 << (count.bit_length() - 1)
        if count <= literal.value:
            more = " by a power of two" if masked else ""
            raise self.lacks(f"room for more than {literal.value} stages{more}")
        own = next(f for f in self.program.functions if f.file is literal.file)
        at = Span(literal.node.start_byte, literal.node.end_byte)
        self.changes.replace(own, at, literal.instead(count))
        return count

    # --- What host code makes of it, which no PTX tells

    @staticmethod
    def _is_mask(mention: Mention) -> bool:
        """Whether an index turns by it that takes powers of two alone."""
        less = mention.node.parent
        whole = less.parent if less is not None else None
        while whole is not None and whole.type == "parenthesized_expression":
            whole = whole.parent
        if less is None or whole is None or whole.type != "binary_expression":
            return False
        return mention.text(less).endswith("1") and less.children[1].type == "-" and whole.children[1].type == "&"

    def _launches(self) -> None:
        """That launches ask for as much memory as their attribute allows, each by the constant."""
        found = list(amounts(self.program, self.function))
        if not found:
            raise self.lacks("who launches it, and with how much shared memory")
        for file in self.program.sources.files.values():
            for node in find(file.root, "identifier"):
                if file.text(node) == self.function.name and not _is_launch(file, node):
                    raise self.counting.left(file, node, "what is launched here, and with how much shared memory")
        texts = {_plain(_uncast(caller.text(node))) for caller, node in found}
        if len(texts) != 1:
            raise self.lacks("that the attribute of the kernel and its launch ask for the same shared memory")
        for caller, node in found:
            if not self._grows(caller.file, node, 0):
                raise Left(caller, caller.span(node), "shared memory of the launch that grows with the stages")

    def _sizes(self) -> None:
        """That host code asks how large something is that grows for shared memory of launches alone."""
        for file in self.counting.files:
            for node in find(file.root, "sizeof_expression"):
                size = Mention(file, node, Word(""))
                judged = self.host.is_amount(file, node) or self.counting.is_of_device(size)
                if judged or enclosing(node, "static_assert_declaration") is not None:
                    continue
                if self._grows(file, node, 0):
                    raise self.counting.unknown(size, NAME)

    def _grows(self, file: CudaFile, node: Node, depth: int) -> bool:
        """Whether an expression is made of the constant, or of the size of a type that is."""
        words = {file.text(n) for n in find(node, "identifier", "type_identifier", "namespace_identifier")}
        if any(w.name in words for w in self.counting.words):
            return True
        for other in self.program.sources.files.values():
            for kind in find(other.root, "struct_specifier", "class_specifier"):
                named = kind.child_by_field_name("name")
                if named is not None and other.text(named) in words and self._mentions(other, kind):
                    return True
            made = [(name, value) for _, name, value in initialized(other.root)]
            for alias in find(other.root, "alias_declaration"):
                name_of, made_of = alias.child_by_field_name("name"), alias.child_by_field_name("type")
                made += [(other.text(name_of), made_of)] if name_of is not None and made_of is not None else []
            if depth < 4 and any(name in words and self._grows(other, value, depth + 1) for name, value in made):
                return True
        return False

    def _mentions(self, file: CudaFile, node: Node) -> bool:
        whole = Span(node.start_byte, node.end_byte)
        return any(m.file is file and whole.contains(m.span) for m in self.mentions)


def _is_launch(file: CudaFile, node: Node) -> bool:
    """Whether the name of a kernel is declared, launched or configured where it stands."""
    above = node.parent
    while above is not None and above.type in _NAMING:
        node, above = above, above.parent
    if above is None:
        return False
    if above.type == "argument_list" and above.parent is not None:
        called = above.parent.child_by_field_name("function")
        name = file.text(called) if called is not None else ""
        return name in LAUNCHERS or name in ATTRIBUTES
    sizes = next((c.named_children for c in above.named_children if c.type == "kernel_call_syntax"), [])
    return above.type in _DECLARING or len(sizes) > 2


def _plain(text: str) -> str:
    return "".join(text.split())


def _uncast(text: str) -> str:
    match = re.fullmatch(r"\s*(?:static_cast<[\w: ]+>|int|size_t|unsigned)\s*\((.*)\)\s*", text, re.DOTALL)
    return match[1] if match is not None else text


def _write(taking: Taking) -> None:
    found, changes = taking.found, Changes(taking.context, RULE)
    if len(found) != 1:
        at = found[0].kernel.function
        raise Left(at, at.span(at.body), "that the file has one kernel")
    taking.made[NAME] = Stages(found[0], changes, taking.asked[NAME]).take()
    changes.make()


STEP = Step(
    NAME, RULE, _write, changes=Declared(constants=True, launch=("shared memory",), rings=(Ring("stages", "k"),)),
    follows=("pair",), asked=True, cost=True,
)  # fmt: skip
