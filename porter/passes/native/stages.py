# SPDX-License-Identifier: Apache-2.0
"""The ring has more stages: the constant that their number comes from is another one, and all that is made of it grows
with it. A place that is made of it and is not one of a ring refuses the step, and so does a ring that is not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import CudaFile, enclosing, find
from porter.lang.text import Span
from porter.model.block_size import LAUNCHERS
from porter.model.dynamic_shared import ATTRIBUTES, amounts
from porter.model.functions import declared_name
from porter.model.kernels import SHARED
from porter.model.pipeline.read import pipeline_of
from porter.model.pipeline.rings import split_index
from porter.passes.context import PortContext
from porter.passes.native.counting import Counting, Literal, Mention, initialized
from porter.passes.native.mainloop import Pipelined
from porter.passes.native.sites import Changes, Left
from porter.passes.native.taking import Taking
from porter.steps.step import Declared, Ring, Step

RULE = "PTR191"
NAME = "stages"
_ROUNDS = ("%", "/")
_COMPARES = ("==", "!=", "<", "<=", ">", ">=")
_MAKES_EMPTY = ("init", "arrive", "remap")
_NAMING = ("template_function", "qualified_identifier", "pointer_expression", "cast_expression",
           "parenthesized_expression")  # fmt: skip
_DECLARING = ("function_declarator", "init_declarator", "template_instantiation")
_LISTED = ("type_descriptor", "template_argument_list")
_AROUND = ("binary_expression", "parenthesized_expression", "cast_expression")


def take(context: PortContext, found: list[Pipelined], count: int) -> tuple[Changes, int]:
    """The edits of the step, for all kernels, with `count` stages or as many as the text allows of these; and their
    number.

    Raises:
        Left: a fact is missing.
    """
    if len(found) != 1:
        at = found[0].kernel.function
        raise Left(at, at.span(at.body), "that the file has one kernel")
    changes = Changes(context, RULE)
    return changes, Stages(found[0], changes, count).take()


@dataclass(eq=False)
class Stages:
    """The step for one kernel."""

    kernel: Pipelined
    changes: Changes
    count: int

    def __post_init__(self) -> None:
        self.function = self.kernel.kernel.function
        self.program = self.kernel.program
        self.facts = pipeline_of(self.program, self.function)
        self.counting = Counting(self.program, self.function)
        self.masked = False
        self.texts = [_plain(t) for t in self._texts()]

    def take(self) -> int:
        constant, literal = self._constant()
        if literal.file.path != self.program.sources.root:
            raise self._left(f"`{constant}` in the file itself: others may include the header that it stands in")
        if enclosing(literal.node, "preproc_if", "preproc_ifdef", "preproc_elif", "preproc_else") is not None:
            raise self.counting.left(
                literal.file, literal.node, f"`{constant}` outside of `#if`: a build may choose it"
            )
        self.mentions = list(self.counting.mentions(constant))
        for mention in self.mentions:
            self._judge(mention)
        self._rings()
        self._memory()
        self._launches()
        return self._edit(literal)

    def _constant(self) -> tuple[str, Literal]:
        """The constant that says how many stages there are."""
        names = {r.stages.text.split("::")[-1] for r in self.facts.rings if r.stages is not None}
        if len(names) != 1 or any(r.stages is None or not r.index for r in self.facts.rings):
            raise self._left("one number of stages that all mbarriers have")
        return self.counting.literal(next(iter(names)))

    def _left(self, what: str) -> Left:
        return Left(self.function, self.function.span(self.function.body), what)

    def _edit(self, literal: Literal) -> int:
        count = self.count
        if self.masked:
            count = 1 << (count.bit_length() - 1)
        if count <= literal.value:
            more = " by a power of two" if self.masked else ""
            raise self._left(f"room for more than {literal.value} stages{more}")
        own = next(f for f in self.program.functions if f.file is literal.file)
        at = Span(literal.node.start_byte, literal.node.end_byte)
        self.changes.replace(own, at, literal.instead(count))
        return count

    # --- What the rings are

    def _texts(self) -> Iterator[str]:
        """Texts in which a ring's index or phase is made, or goes on."""
        found: list[str] = []
        for operation in self.kernel.walk.operations:
            found += [split_index(operation.barrier)[1], operation.phase]
        for ring in self.facts.rings:
            found += [ring.index, ring.advance, ring.phase]
        yield from found
        named = {w for text in found for w in re.findall(r"[A-Za-z_]\w*", text)}
        for file in self.program.sources.files.values():
            for _, name, value in initialized(file.root):
                if name in named:
                    yield file.text(value)

    def _rings(self) -> None:
        """That mbarriers, phases and parameters are those of the constant."""
        for ring in self.facts.rings:
            assert ring.stages is not None
            if not self.counting.is_one(ring.stages.text):
                raise self._left(f"that {ring.barrier} has as many stages as the constant says")
            for divisor in re.findall(r"/\s*([\w:]+)", ring.phase):
                if not self.counting.is_one(divisor):
                    raise self._left(f"that the phase of {ring.barrier} turns after all stages: `{ring.phase}`")
            if ">>" in ring.phase:
                raise self._left(f"that the phase of {ring.barrier} turns after all stages: `{ring.phase}`")
        for barrier in self.facts.barriers:
            words = re.findall(r"[\w:]+", barrier.extent.text) if barrier.extent is not None else []
            if not any(self.counting.is_one(w) for w in words):
                raise self._left(f"that there are as many mbarriers {barrier.name} as stages")
        templates = [t for t in _templates(self.function.node) if self.function.template_params]
        for name in self.function.template_params:
            used = any(r.stages is not None and r.stages.text == name for r in self.facts.rings)
            if used and not any(self.counting.binds(t, name) for t in templates):
                raise self._left(f"what its template's `{name}` is in each launch")

    def _memory(self) -> None:
        """That stages lie in dynamic shared memory, whose size a launch says."""
        dynamic = self._shared("extern")
        for copy in self.facts.copies:
            word = re.search(r"[A-Za-z_]\w*", copy.to)
            if word is None or word[0] not in dynamic:
                raise self._left(f"stages in dynamic shared memory: where `{copy.to}` is")

    def _shared(self, among: str) -> set[str]:
        """Variables that are shared memory, pointers and references to it among them."""
        found: set[str] = set()
        for node in find(self.function.body, "declaration"):
            text = self.function.text(node)
            if SHARED in text and among in text:
                named = [declared_name(d) for d in node.children_by_field_name("declarator")]
                found |= {self.function.text(n) for n in named if n is not None}
        before = -1
        while before < len(found):
            before = len(found)
            for declarator, name, value in initialized(self.function.body):
                words = set(re.findall(r"[A-Za-z_]\w*", self.function.text(value)))
                if words & found and self._is_address(declarator, value):
                    found.add(name)
        return found

    def _is_address(self, declarator: Node, value: Node) -> bool:
        inner = declarator.child_by_field_name("declarator")
        if inner is not None and inner.type in ("pointer_declarator", "reference_declarator"):
            return True
        above = declarator.parent
        kind = above.child_by_field_name("type") if above is not None else None
        text = self.function.text(value)
        return (kind is not None and self.function.text(kind) == "auto") or "shared" in text

    def _launches(self) -> None:
        """That launches ask for as much memory as their attribute allows, each by the constant."""
        found = list(amounts(self.program, self.function))
        if not found:
            raise self._left("who launches it, and with how much shared memory")
        for file in self.program.sources.files.values():
            for node in find(file.root, "identifier"):
                if file.text(node) == self.function.name and not _is_launch(file, node):
                    raise self.counting.left(file, node, "what is launched here, and with how much shared memory")
        texts = {_plain(_uncast(caller.text(node))) for caller, node in found}
        if len(texts) != 1:
            raise self._left("that the attribute of the kernel and its launch ask for the same shared memory")
        for caller, node in found:
            if not self._grows(caller.file, node, 0):
                raise Left(caller, caller.span(node), "shared memory of the launch that grows with the stages")

    def _grows(self, file: CudaFile, node: Node, depth: int) -> bool:
        """Whether an expression is made of the constant, or of the size of a type that is."""
        words = {file.text(n) for n in find(node, "identifier", "type_identifier")}
        if any(w.name in words for w in self.counting.words):
            return True
        for other in self.program.sources.files.values():
            for kind in find(other.root, "struct_specifier", "class_specifier"):
                named = kind.child_by_field_name("name")
                if named is not None and other.text(named) in words and self._mentions(other, kind):
                    return True
            for _, name, value in initialized(other.root) if depth < 4 else ():
                if name in words and self._grows(other, value, depth + 1):
                    return True
        return False

    def _mentions(self, file: CudaFile, node: Node) -> bool:
        whole = Span(node.start_byte, node.end_byte)
        return any(m.file is file and whole.contains(m.span) for m in self.mentions)

    # --- What the constant is used for

    def _judge(self, mention: Mention) -> None:
        """
        Raises:
            Left: a place that is not about stages.
        """
        ok = self._is_extent(mention) or self._is_amount(mention)
        if not ok and not mention.word.derived:
            ok = self._turns(mention) or self._is_loop(mention)
        if not (ok or self._is_offset(mention)):
            node = mention.node.parent or mention.node
            while node.type in _LISTED and node.parent is not None:
                node = node.parent
            text = " ".join(mention.text(node).split())[:60]
            raise self.counting.left(mention.file, mention.node, f"what `{text}` has to do with stages")

    @staticmethod
    def _is_extent(mention: Mention) -> bool:
        """Whether it says how long an array in shared memory is."""
        node, above = _climb(mention.node)
        if above is None or above.type != "array_declarator":
            return False
        size = above.child_by_field_name("size")
        while above is not None and above.type.endswith("declarator"):
            above = above.parent
        if above is None or size is None or size.id != node.id:
            return False
        return above.type == "field_declaration" or (above.type == "declaration" and SHARED in mention.text(above))

    def _is_amount(self, mention: Mention) -> bool:
        """Whether it says how much shared memory a launch asks for."""
        return any(
            caller.file is mention.file and caller.span(node).contains(mention.span)
            for caller, node in amounts(self.program, self.function)
        )

    def _turns(self, mention: Mention) -> bool:
        """Whether an index, or a phase, turns by it."""
        above = mention.node.parent
        if above is None or above.type != "binary_expression":
            return False
        sign = mention.text(above.children[1])
        right = above.child_by_field_name("right")
        if sign == "-" and mention.text(right or above) == "1":
            mask = above.parent
            while mask is not None and mask.type == "parenthesized_expression":
                mask = mask.parent
            if mask is None or mask.type != "binary_expression":
                return False
            above, sign = mask, mention.text(mask.children[1])
            if sign == "&":
                self.masked = True
        elif right is None or right.id != mention.node.id:
            return False
        if sign not in (*_ROUNDS, "&", *_COMPARES):
            return False
        text = _plain(mention.text(above))
        if sign in _COMPARES:
            return any(text in _plain(r.advance) for r in self.facts.rings if not r.advance.startswith("for"))
        return any(text in t for t in self.texts)

    def _is_loop(self, mention: Mention) -> bool:
        """Whether it is the end of a loop that makes mbarriers, or calls stages empty, one after the other."""
        above = mention.node.parent
        loop = above.parent if above is not None else None
        if above is None or loop is None or loop.type != "for_statement" or above.type != "binary_expression":
            return False
        body, condition = loop.child_by_field_name("body"), loop.child_by_field_name("condition")
        if body is None or condition is None or condition.id != above.id:
            return False
        if mention.text(above.children[1]) not in ("<", "!="):
            return False
        statements = body.named_children if body.type == "compound_statement" else [body]
        whole = Span(body.start_byte, body.end_byte)
        there = []
        for operation in self.kernel.walk.operations:
            for site in operation.sites:
                span = site.frame.function.span(site.node)
                if site.frame.function.file is mention.file and whole.contains(span):
                    there.append((operation, span))
        if any(o.kind not in _MAKES_EMPTY for o, _ in there):
            return False
        return all(
            any(Span(s.start_byte, s.end_byte).contains(span) for _, span in there)
            for s in statements if s.type != "comment"
        )  # fmt: skip

    def _is_offset(self, mention: Mention) -> bool:
        """Whether it is a part of the address of something that lies behind the stages."""
        node, above = _climb(mention.node)
        while above is not None and above.type in ("argument_list", "call_expression"):
            node, above = _climb(above)
        if above is None or above.type != "init_declarator" or mention.file is not self.function.file:
            return False
        if not self.function.span(self.function.body).contains(Span(node.start_byte, node.end_byte)):
            return False
        inner, value = above.child_by_field_name("declarator"), above.child_by_field_name("value")
        pointer = inner is not None and inner.type == "pointer_declarator"
        if value is None or not (pointer or "reinterpret_cast" in mention.text(value)):
            return False
        return bool(set(re.findall(r"[A-Za-z_]\w*", mention.text(value))) & self._shared(SHARED))


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


def _climb(node: Node) -> tuple[Node, Node | None]:
    """The largest sum or product that a node is a part of, and what that is in."""
    above = node.parent
    while above is not None and above.type in _AROUND:
        if above.type == "binary_expression" and above.children[1].type not in ("+", "*"):
            break
        node, above = above, above.parent
    return node, above


def _templates(node: Node) -> list[Node]:
    above = enclosing(node, "template_declaration")
    return [above] if above is not None else []


def _plain(text: str) -> str:
    return "".join(text.split())


def _uncast(text: str) -> str:
    match = re.fullmatch(r"\s*(?:static_cast<[\w: ]+>|int|size_t|unsigned)\s*\((.*)\)\s*", text, re.DOTALL)
    return match[1] if match is not None else text


def _write(taking: Taking) -> None:
    changes, taking.made[NAME] = take(taking.context, taking.found, taking.asked[NAME])
    changes.make()


STEP = Step(
    NAME, RULE, _write, changes=Declared(constants=True, launch=("shared memory",), rings=(Ring("stages", "k"),)),
    follows=("pair",), asked=True, cost=True,
)  # fmt: skip
