# SPDX-License-Identifier: Apache-2.0
"""What the passes share: the model, the names they introduced, and the edits they collect."""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.diagnostics import Code, Diagnostic
from porter.lang.cuda import location
from porter.lang.text import Edit, Span, as_bytes
from porter.model.accumulators import Accumulator, AccumulatorMap, AccumulatorParam
from porter.model.batches import Batches
from porter.model.flow import FlowBuilder
from porter.model.functions import Function, Style
from porter.model.homes import without_number
from porter.model.kernels import Kernel
from porter.model.members import MemberField
from porter.model.program import Program, needs_warpgroup
from porter.passes.helpers import NAMESPACE, Helpers, Placement

_AHEAD = re.compile(
    rb"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<directive>#(?:[^\\\n]|\\\r?\n|\\.)*)|(?P<end>\\\r?\n)|(?P<text>[^\s\\/#]+)",
    re.DOTALL,
)
"""What may stand between two statements."""
_PRAGMA_TEXT = re.compile(r"\s*(?:(?:_Pragma|__pragma)\s*\([^()]*(?:\([^()]*\))?[^()]*\)|[A-Z][A-Z0-9_]*)\s*")
_LOOP_PRAGMA = re.compile(rb"#[ \t]*pragma[ \t]+(?:GCC[ \t]+|clang[ \t]+loop[ \t]+)?(?:no)?unroll\b")


@dataclass(eq=False)
class PortContext:
    """One port in the making. Passes read the model, add edits under their own rule ID and request helpers."""

    program: Program
    accumulators: AccumulatorMap
    flow: FlowBuilder
    kernels: list[Kernel]
    batches: Batches
    helpers: Helpers
    names: Names
    placement: Placement
    edits: dict[str, list[Edit]] = field(default_factory=dict)
    added: dict[str, bytes] = field(default_factory=dict)
    claimed: frozenset[str] = frozenset()
    """Names that the sources have for themselves, as `claimed.claimed_by` gives them."""
    diagnostics: list[Diagnostic] = field(default_factory=list)
    member_moves: dict[str, set[str]] = field(default_factory=dict)
    """Moves (`load`, `store`) that a class with a member accumulator needs, by name of the class."""
    includes: dict[str, None] = field(default_factory=dict)
    """Headers that texts of rules need, in order."""
    renamed: list[Function] = field(default_factory=list)
    kept_params: set[int] = field(default_factory=set)
    """ids of the parameters that carry registers and tile side by side: the function uses the registers itself."""
    _once: set[tuple[str, Span]] = field(default_factory=set)
    _context_ids: set[int] | None = None

    def edit(self, rule: str, function: Function, span: Span, text: str) -> None:
        """Replace `span` of the function's file. In a macro body, line ends get their backslash and pragmas are
        operators."""
        if function.style is Style.MACRO:
            text = re.sub(r"#pragma ([^\n]*)", r'_Pragma("\1")', text)
            text = re.sub(r"[ \t]*\n", " \\\n", text)
        text = text.replace("\n", function.file.newline)
        self.edits.setdefault(rule, []).append(Edit(function.file.path, span, as_bytes(text)))

    def edit_once(self, rule: str, function: Function, span: Span, text: str) -> None:
        """Like `edit`, for a place that several definitions share (a declaration they complete)."""
        key = (function.file.path, span)
        if key not in self._once:
            self._once.add(key)
            self.edit(rule, function, span, text)

    def report(self, code: Code, function: Function, span: Span, **values: object) -> None:
        self.diagnostics.append(Diagnostic(code, location(function.file, span), dict(values)))

    def needs_context(self, function: Function) -> bool:
        """Whether a function must see its `Warpgroup`: it commits, waits, or owns an accumulator, itself or
        through a callee."""
        if self._context_ids is None:
            seeds = [s.function for s in self.program.statements if needs_warpgroup(s)]
            seeds += [a.function for a in self.accumulators.accumulators]
            self._context_ids = self.program.reaching(seeds)
        return id(function) in self._context_ids

    def takes_context_param(self, function: Function) -> bool:
        """Whether the function is handed its `Warpgroup`. Kernels declare it; lambdas that capture everything
        by reference inside a function that has one see it."""
        if not self.needs_context(function) or function.style in (Style.KERNEL, Style.HOST):
            return False
        if function.is_object_macro:
            # it has no parameters and means the variable of whoever uses it
            return False
        return not self.sees_context(function)

    def sees_context(self, function: Function) -> bool:
        if function.parent is None or not function.captures_all:
            return False
        return self.needs_context(function.parent) or function.parent.style is Style.KERNEL

    def member_tile(self, member: MemberField, method: Function) -> str:
        """The tile of a member accumulator as a method names it."""
        return member.tile_in(method, self.names.beside)

    def indent(self, function: Function, span: Span) -> str:
        """White space before the line that `span` starts on."""
        source = function.file.source
        start = source.rfind(b"\n", 0, span.start) + 1
        line = source[start : span.start]
        return line[: len(line) - len(line.lstrip())].decode()

    def before(self, function: Function, node: Node) -> Span:
        """Empty span in front of a statement and the pragmas that belong to it, with what stands between them."""
        source = function.file.source
        first = node.start_byte + function.shift
        start = _end_of_previous(function, node)
        at = first
        for match in _AHEAD.finditer(source, start, first):
            if match.lastgroup == "directive":
                if _LOOP_PRAGMA.match(match.group()):
                    # directives stand at the line start, the statement does not
                    at = max(source.rfind(b"\n", 0, match.start()) + 1, start)
                    break
            elif match.lastgroup == "text":
                # a pragma by its operator, or a macro that stands for one
                at = match.start()
                break
        return Span(at, at)

    def statement_before(
        self, function: Function, node: Node, text: str, above_comments: bool = False, behind_labels: bool = False
    ) -> tuple[Span, str]:
        """Span and text that put whole lines in front of a statement, indented like it; `above_comments` also in
        front of the comment lines that lead it, `behind_labels` where jumps to the statement come by."""
        while behind_labels and _labels(node):
            node = node.named_children[-1]
        pad = self.indent(function, function.span(node))
        at = self.before(function, node)
        if above_comments:
            at = self._above_comments(function, node, at)
        lines = text.split("\n")
        if text.startswith("#"):
            # a directive has its line to itself
            start = function.file.source.rfind(b"\n", 0, at.start) + 1
            if not function.file.source[start : at.start].strip():
                at = Span(start, start)
            else:
                lines.insert(0, "")
        if at.start == 0 or function.file.source[at.start - 1 : at.start] == b"\n":
            return at, "".join(f"{pad}{line}\n" if line else "\n" for line in lines)
        rest = "".join(f"\n{pad}{line}" if line else "\n" for line in lines[1:])
        return at, f"{lines[0]}{rest}\n{pad}"

    def _above_comments(self, function: Function, node: Node, at: Span) -> Span:
        source = function.file.source
        while node.prev_named_sibling is not None and node.prev_named_sibling.type in ("comment", "preproc_call"):
            previous = node.prev_named_sibling
            between = source[previous.end_byte + function.shift : node.start_byte + function.shift]
            start = source.rfind(b"\n", 0, previous.start_byte + function.shift) + 1
            own_line = source[start : previous.start_byte + function.shift].strip() == b""
            if between.count(b"\n") > 1 or not own_line:
                break
            node = previous
            at = Span(start, start)
        return at


def _labels(node: Node) -> bool:
    """Whether the last child of a statement is what its labels stand in front of."""
    inner = node.named_children[-1] if node.named_children else None
    if node.type == "attributed_statement":
        return inner is not None and inner.type == "labeled_statement"
    return node.type == "labeled_statement" and inner is not None and inner.type.endswith(("statement", "loop"))


def _end_of_previous(function: Function, node: Node) -> int:
    """Offset behind the token or statement in front of a statement; comments, pragmas and what the parser did not
    take for code are none."""
    previous = node.prev_sibling
    while previous is not None:
        if previous.type in ("ERROR", "expression_statement"):
            # the pragma operator takes no semicolon
            if not _PRAGMA_TEXT.fullmatch(re.sub(r"//[^\n]*|/\*.*?\*/", "", function.text(previous), flags=re.DOTALL)):
                break
        elif previous.type not in ("comment", "preproc_call"):
            break
        previous = previous.prev_sibling
    end = previous.end_byte if previous is not None else node.parent.start_byte if node.parent is not None else 0
    return max(end + function.shift, 0)


@dataclass
class Names:
    """Names that the port introduces, none of which the sources use."""

    taken: set[str]
    warpgroup: str = ""
    tmem: str = ""
    shared: str = ""
    _tiles: dict[str, str] = field(default_factory=dict)
    _own: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.warpgroup = self.fresh("tc")
        self.tmem = self.fresh("tmem")
        self.shared = self.fresh("tmem_shared")

    def fresh(self, wanted: str) -> str:
        name, suffix = wanted, 1
        while name in self.taken:
            suffix += 1
            name = f"{wanted}{suffix}"
        self.taken.add(name)
        return name

    def own(self, wanted: str) -> str:
        """A name of the port's own, the same for all who want it."""
        if wanted not in self._own:
            self._own[wanted] = self.fresh(wanted)
        return self._own[wanted]

    def tile(self, accumulator: Accumulator) -> str:
        """Name of the tile, or array of tiles, of an accumulator in the function that declares the registers."""
        return accumulator.home.tile(self.beside)

    def member(self, member: MemberField) -> str:
        """Name of the tile in the class that holds the registers."""
        return self.beside(member.stem)

    def beside(self, stem: str) -> str:
        """Name of the tile beside registers whose name begins with `stem`."""
        if stem not in self._tiles:
            self._tiles[stem] = self.fresh(f"{stem}_tmem")
        return self._tiles[stem]

    def kept_tile(self, param: AccumulatorParam) -> str:
        """Name of the tile's parameter beside one that keeps its registers."""
        return self.beside(self.scalar_param(param.name) if param.is_scalars else param.name)

    def scalar_param(self, name: str) -> str:
        return without_number(name)


_namespace: ContextVar[str] = ContextVar("namespace", default=NAMESPACE)


def in_namespace(name: str) -> None:
    """Call the helpers' namespace so in the port that begins."""
    _namespace.set(name)


def namespace() -> str:
    """What the port in the making calls the helpers' namespace."""
    return _namespace.get()


def qualified(name: str) -> str:
    """A helper as the lines of kernels name it."""
    return f"{namespace()}::{name}"
