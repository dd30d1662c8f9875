# SPDX-License-Identifier: Apache-2.0
"""The step in which a ring has more stages, for tiled MMAs of a library: types of the library that are made of their
number grow with it. These are pipelines and their states, and layouts whose last extent is the stage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tree_sitter import Node

from porter.lang.cuda import CudaFile, enclosing, find
from porter.lang.text import Span
from porter.model.dynamic_shared import amounts
from porter.model.functions import Function, Style, declared_name
from porter.model.kernels import SHARED
from porter.model.pipeline.read import pipeline_of
from porter.model.program import Program
from porter.model.scopes import resolve
from porter.passes.native import stages
from porter.passes.native.counting import Counting, Literal, Mention, Word, initialized
from porter.passes.native.mainloop import Pipelined, inside
from porter.passes.native.sites import Changes, Left
from porter.passes.native.staged_layouts import StagedLayouts
from porter.passes.native.stages import NAME, RULE, Stages
from porter.passes.native.taking import Taking
from porter.passes.native.tiled_mainloop import TiledPipelined, barriers_of
from porter.passes.tiled.context import TiledContext

MEMBER = "Stages"
"""What classes of pipelines call their number of stages."""
_SUMS = ("binary_expression", "parenthesized_expression", "cast_expression", "argument_list", "call_expression")
"""Around a size that is asked for; a call is a cast."""


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


@dataclass(eq=False)
class TiledStages(Stages):
    """The step for one kernel."""

    kernel: Pipelined
    layouts: StagedLayouts = field(init=False)
    judged_later: list[tuple[Mention, Left]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.layouts = StagedLayouts(self.program, self.counting)

    def _constant(self) -> tuple[str, Literal]:
        return _constant(self.counting, self.program, self.function)

    def _judge(self, mention: Mention) -> None:
        if self._is_of_pipeline(mention) or self.layouts.begins(mention):
            return
        try:
            super()._judge(mention)
        except Left as left:
            # what tensors there are is known once all layouts are
            self.judged_later.append((mention, left))

    def _is_of_pipeline(self, mention: Mention) -> bool:
        """Whether it says how many stages a pipeline of the library has, or one of its states."""
        if mention.word.derived:
            return False
        return any(
            file is mention.file and inside(node, mention.node) and file.text(node) == mention.text(mention.node)
            for kind in ("pipeline_of_threads", "state_of_pipeline")
            for file, node in of_library(self.program, kind)
        )

    def _rings(self) -> None:
        super()._rings()
        self._members()
        for file, node in of_library(self.program, "pipeline_of_threads"):
            if not self.counting.is_one(file.text(node)):
                raise self.counting.left(file, node, f"that `{file.text(node)}` is the number of stages")
        for file, node in of_library(self.program, "state_of_pipeline"):
            text = file.text(node)
            if not self.counting.is_one(text) and text.split("::")[-1].strip() != MEMBER:
                raise self.counting.left(file, node, f"that `{text}` is the number of stages")
        pipelines = any(True for _ in of_library(self.program, "pipeline_of_threads"))
        for operation in self.kernel.walk.operations:
            if barriers_of(operation) and not pipelines:
                site = operation.sites[-1]
                raise Left(site.frame.function, site.frame.function.span(site.node), "the type of this pipeline")
        self.layouts.check()
        for mention, left in self.judged_later:
            if not self._is_index(mention):
                raise left
        self._operands()

    def _operands(self) -> None:
        """That both operands of MMAs are stages of tensors that grow with their number."""
        for operation in self.kernel.multiplies:
            function, node = operation.sites[-1].frame.function, operation.sites[-1].node
            listed = node.child_by_field_name("arguments")
            given = listed.named_children if listed is not None else []
            if sum(self.layouts.holds(function.file, argument) for argument in given) < 2:
                raise Left(function, function.span(node), "that what is multiplied here are stages of tensors")

    def _is_index(self, mention: Mention) -> bool:
        """Whether a turn by the number is the stage of tensors, and of mbarriers."""
        turn = mention.node.parent
        if turn is None or turn.type != "binary_expression" or mention.word.derived:
            return False
        right = turn.child_by_field_name("right")
        if right is None or right.id != mention.node.id or mention.text(turn.children[1]) != "%":
            return False
        above = turn.parent
        while above is not None and above.type == "parenthesized_expression":
            turn, above = above, above.parent
        if self.layouts.is_stage(mention.file, turn):
            return True
        name = declared_name(above) if above is not None and above.type == "init_declarator" else None
        block = enclosing(above, "compound_statement", "for_statement") if above is not None else None
        if name is None or block is None:
            return False
        uses = [n for n in find(block, "identifier") if mention.text(n) == mention.text(name) and n.id != name.id]
        return all(self._is_stage(mention.file, n) for n in uses)

    def _is_stage(self, file: CudaFile, node: Node) -> bool:
        above = node.parent
        return self.layouts.is_stage(file, node) or (above is not None and above.type == "subscript_argument_list")

    def _members(self) -> None:
        """That the number of a pipeline is asked for where it says how many stages there are, and nowhere else."""
        own = self.counting.declared(MEMBER, "declaration", "field_declaration")
        if not self.counting.is_one(MEMBER) and any(True for _ in own):
            raise self._left(f"which `{MEMBER}` of several is meant")
        states = [(id(f), n) for f, n in of_library(self.program, "state_of_pipeline")]
        for file in self.program.sources.files.values():
            for node in find(file.root, "qualified_identifier"):
                above = node.parent
                whole = above is None or above.type != "qualified_identifier"
                if not whole or file.text(node).split("::")[-1].strip() != MEMBER or self.counting.is_one(MEMBER):
                    continue
                if not any(i == id(file) and inside(n, node) for i, n in states):
                    self._judge(Mention(file, node, Word(MEMBER)))

    def _memory(self) -> None:
        """That stages lie in the dynamic shared memory of the kernel, as a part of what is laid over it."""
        for function, node in self.layouts.memory:
            if not self._is_dynamic(function, node, 0):
                raise Left(function, function.span(node), f"stages in dynamic shared memory: {function.text(node)}")

    def _is_dynamic(self, function: Function, node: Node, depth: int) -> bool:
        """Whether an address is made of dynamic shared memory, through variables and parameters."""
        names = [node] if node.type == "identifier" else list(find(node, "identifier"))
        return depth < 8 and any(self._names_dynamic(function, name, depth) for name in names)

    def _names_dynamic(self, function: Function, name: Node, depth: int) -> bool:
        variable = resolve(function, name, function.text(name))
        if variable is None:
            return False
        owner = variable.function
        if variable.declaration is not None and variable.param is None:
            text = owner.text(variable.declaration)
            if SHARED in text:
                return "extern" in text
            value = variable.declarator.child_by_field_name("value") if variable.declarator is not None else None
            return value is not None and self._is_dynamic(owner, value, depth + 1)
        calls = self.program.callers(owner)
        at = next((i for i, p in enumerate(owner.params) if p.name == variable.name), None)
        if at is None or not calls or owner.style is Style.KERNEL:
            return False
        return all(at < len(c.args) and self._is_dynamic(c.caller, c.args[at], depth + 1) for c in calls)

    def _launches(self) -> None:
        """That launches ask for the size of the type that the kernel lays over its shared memory, so that what they
        ask for grows as the stages do."""
        super()._launches()
        laid = {_last(t) for t in self._laid_over()}
        for name in sorted(laid):
            if sum(1 for _ in self._types(name)) > 1:
                raise self._left(f"which `{name}` of several is meant")
        for caller, node in amounts(self.program, self.function):
            file, whole = self._written(caller.file, node, 0)
            sizes = [n for n in (whole, *find(whole, "sizeof_expression")) if n.type == "sizeof_expression"]
            if not any(_last(_operand(file.text(n))) in laid and _is_added(n, whole) for n in sizes):
                text = " ".join(file.text(whole).split())[:60]
                what = f"that `{text}` is the size of what lies in shared memory"
                raise Left(caller, caller.span(node), what)

    def _grows(self, file: CudaFile, node: Node, depth: int) -> bool:
        """As for types of the sources alone; through names of types, and layouts that grow."""
        if super()._grows(file, node, depth):
            return True
        words = {file.text(n) for n in find(node, "identifier", "type_identifier")}
        if words & set(self.layouts.names):
            return True
        for other in self.program.sources.files.values() if depth < 4 else ():
            for alias in find(other.root, "alias_declaration"):
                named, kind = alias.child_by_field_name("name"), alias.child_by_field_name("type")
                mine = named is not None and kind is not None and other.text(named) in words
                if mine and kind is not None and self._grows(other, kind, depth + 1):
                    return True
        return False

    def _written(self, file: CudaFile, node: Node, depth: int) -> tuple[CudaFile, Node]:
        """An expression, or what the variable that it is begins with."""
        found = [v for _, name, v in initialized(file.root) if name == file.text(node)]
        return self._written(file, found[0], depth + 1) if len(found) == 1 and depth < 4 else (file, node)

    def _types(self, name: str) -> Iterator[Node]:
        """Classes of a name that have a body, and other names of types."""
        for file in self.program.sources.files.values():
            for node in find(file.root, "struct_specifier", "class_specifier", "alias_declaration"):
                named = node.child_by_field_name("name")
                is_whole = node.type == "alias_declaration" or node.child_by_field_name("body") is not None
                if named is not None and is_whole and file.text(named) == name:
                    yield node

    def _laid_over(self) -> Iterator[str]:
        """Types that shared memory of the kernel is cast to."""
        for cast in find(self.function.body, "template_function"):
            if self.function.text(cast).startswith("reinterpret_cast<"):
                call = cast.parent
                given = call.child_by_field_name("arguments") if call is not None else None
                if given is not None and self._is_dynamic(self.function, given, 0):
                    text = self.function.text(cast).removeprefix("reinterpret_cast<").removesuffix(">")
                    yield text.rstrip("*& ")


def _operand(text: str) -> str:
    """What a `sizeof` asks for."""
    return text.removeprefix("sizeof").strip().removeprefix("(").removesuffix(")")


def _is_added(node: Node, whole: Node) -> bool:
    """Whether an expression is at least as large as a part of it, with what else is added."""
    while node.id != whole.id:
        above = node.parent
        if above is None or above.type not in _SUMS:
            return False
        if above.type == "binary_expression" and above.children[1].type != "+":
            return False
        node = above
    return True


def _last(name: str) -> str:
    """The last name of a type, without its arguments."""
    plain, depth = "", 0
    for sign in name:
        depth += (sign == "<") - (sign == ">")
        plain += sign if depth == 0 and sign != ">" else ""
    return plain.split("::")[-1].split()[-1] if plain.split("::")[-1].split() else ""


def _write(taking: Taking) -> None:
    taking.made[NAME] = take(taking.context, taking.found, taking.asked[NAME])


STEP = replace(stages.STEP, write=_write, dialect="cute")
