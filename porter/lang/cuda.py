# SPDX-License-Identifier: Apache-2.0
"""CUDA C++ through tree-sitter-cuda: a tree whose offsets are those of the original file."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from itertools import accumulate

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser, Query, QueryCursor, Tree

from porter.diagnostics import Code, Location, PorterError
from porter.lang.lexical import Lexed, lexed
from porter.lang.masking import NO_MACROS, MacroUses, Masked, mask, specifier_of
from porter.lang.text import LineIndex, Span, as_text, merged

LANGUAGE = Language(tree_sitter_cuda.language())
LITERALS = ("string_content", "raw_string_content", "comment")
_LITERALS = Query(LANGUAGE, " ".join(f"({kind}) @{kind}" for kind in LITERALS))

# A node of one of these types inside an error region was recognized as a whole.
_WHOLE = frozenset(
    {
        "function_definition",
        "template_declaration",
        "namespace_definition",
        "class_specifier",
        "struct_specifier",
        "union_specifier",
        "enum_specifier",
        "declaration",
        "field_declaration",
        "alias_declaration",
        "using_declaration",
        "type_definition",
        "static_assert_declaration",
        "expression_statement",
        "compound_statement",
        "if_statement",
        "for_statement",
        "while_statement",
        "do_statement",
        "switch_statement",
        "return_statement",
        "gnu_asm_expression",
        "comment",
        "preproc_include",
        "preproc_def",
        "preproc_function_def",
        "preproc_call",
        "preproc_if",
        "preproc_ifdef",
    }
)


@dataclass(frozen=True, eq=False)
class CudaFile:
    """One file, parsed when something asks for its tree. `known` is what other files say about macro names."""

    path: str
    source: bytes
    known: MacroUses = field(default=NO_MACROS, repr=False)

    def __getstate__(self) -> dict[str, object]:
        """Trees stay in the process that made them."""
        return {"path": self.path, "source": self.source, "known": self.known}

    @cached_property
    def _parsed(self) -> Masked:
        text = _without_body_pragmas(_without_dead_branches(self.source))
        return mask(text, parse_tree, lambda tree: _cost(tree), self.known)

    @property
    def masked(self) -> bytes:
        """What the tree was made from: as long as `source`, line ends at the same offsets, macros replaced by
        what they stand for."""
        return self._parsed.text

    @property
    def rules(self) -> tuple[str, ...]:
        """The masks that were needed."""
        return self._parsed.rules

    @property
    def macros(self) -> MacroUses:
        """`known`, and what the file itself defines."""
        return self._parsed.uses

    @property
    def tree(self) -> Tree:
        return self._parsed.tree

    @cached_property
    def root(self) -> Node:
        return self.tree.root_node

    @cached_property
    def lines(self) -> LineIndex:
        return LineIndex(self.source)

    @cached_property
    def lexed(self) -> Lexed:
        """Comments, strings, directives and macros of the original text."""
        return lexed(self.source)

    @cached_property
    def newline(self) -> str:
        """The line end that the file uses."""
        return "\r\n" if b"\r\n" in self.source else "\n"

    @cached_property
    def _literals(self) -> dict[str, tuple[Span, ...]]:
        found: dict[str, list[Span]] = {kind: [] for kind in LITERALS}
        for kind, nodes in QueryCursor(_LITERALS).captures(self.root).items():
            found[kind] += (span(n) for n in nodes)
        return {kind: tuple(spans) for kind, spans in found.items()}

    def literals(self, *kinds: str) -> tuple[Span, ...]:
        """Spans of the nodes of some types of `LITERALS`, in source order."""
        return tuple(sorted((s for kind in kinds for s in self._literals[kind]), key=lambda s: s.start))

    @cached_property
    def unparsed(self) -> tuple[Span, ...]:
        """Bytes in error regions that belong to no complete declaration or statement, sorted, disjoint."""
        return tuple(merged(_unparsed(self.tree)))

    @cached_property
    def coverage(self) -> float:
        """Share of the non-blank bytes outside `unparsed`, 0 to 1."""
        total = _solid(self.source)
        if not total:
            return 1.0
        return 1.0 - sum(_solid(self.source[s.start : s.end]) for s in self.unparsed) / total

    def text(self, where: Node | Span) -> str:
        """The original text; bytes that are not UTF-8 become surrogates that encode back to themselves."""
        start, end = (where.start, where.end) if isinstance(where, Span) else (where.start_byte, where.end_byte)
        return as_text(self.source[start:end])

    def location(self, where: Node | Span) -> Location:
        return location(self, where if isinstance(where, Span) else span(where))


def _solid(text: bytes) -> int:
    return len(text) - sum(text.count(blank) for blank in (b" ", b"\n", b"\t", b"\r"))


def parse_tree(text: bytes, edited: Tree | None = None) -> Tree:
    """The plain tree-sitter tree of `text`. `edited` is the tree of a text like it, marked with the edits."""
    parser = Parser(LANGUAGE)
    return parser.parse(text) if edited is None else parser.parse(text, edited)


def error_nodes(tree: Tree) -> list[Node]:
    """ERROR and MISSING nodes, in tree order."""
    found = []
    pending = [tree.root_node]
    while pending:
        node = pending.pop()
        if node.is_error or node.is_missing:
            found.append(node)
        if node.has_error:
            pending += [child for child in reversed(node.children) if child.has_error]
    return found


def _unparsed(tree: Tree) -> Iterator[Span]:
    for node in error_nodes(tree):
        if node.is_missing:
            continue
        cursor = node.start_byte
        for child in node.children:
            if child.type in _WHOLE:
                if child.start_byte > cursor:
                    yield Span(cursor, child.start_byte)
                cursor = max(cursor, child.end_byte)
        if node.end_byte > cursor:
            yield Span(cursor, node.end_byte)


DEEPEST = 1_000
"""Brackets or branches inside of each other. What goes through a tree takes a time that grows with the square of its
depth."""
_MOST = {
    "#define lines": (b"define", rb"^[ \t]*#[ \t]*define\b", 50_000),
    "#if lines": (b"if", rb"^[ \t]*#[ \t]*if", 20_000),
    "asm statements": (b"asm", rb"\b(?:asm|__asm|__asm__)\b(?=[\s\w]*\()", 20_000),
    "semicolons": (b";", rb";", 80_000),
    "bodies behind parentheses": (b"{", rb"\)[ \t\r\n]*\{", 20_000),
}
"""What a file may have: a word of each, what matches one, and how many, which is more than any kernel's library has and
is read in seconds."""
_NESTING = re.compile(rb"\belse\s+if\b|\b(?:if|else|for|while|do)\b|\{|[;}](?P<more>\s*(?=else\b))?")
_NO_BRACKETS = bytes(set(range(256)) - set(b"([{)]}"))
_DEPTHS = bytes.maketrans(b"([{)]}", b"\2\2\2\0\0\0")


def parse_cuda(path: str, source: bytes, macros: MacroUses = NO_MACROS) -> CudaFile:
    """A CUDA C++ file. Parsing never fails: what the grammar does not cover is in `CudaFile.unparsed`.

    `macros` is what the other files of the set say about macro names (`masking.learn_macros`); the file's own
    definitions are learnt here.

    Raises:
        PorterError: TOO_LARGE: brackets or branches nested deeper than `DEEPEST`, or more of something than `_MOST`.
    """
    for what, (word, pattern, most) in _MOST.items():
        if source.count(word) > most and (count := len(re.findall(pattern, source, re.MULTILINE))) > most:
            raise PorterError(Code.TOO_LARGE, Location(path), what=f"{count} {what}; at most {most}")
    depth = max(accumulate(b - 1 for b in source.translate(_DEPTHS, _NO_BRACKETS)), default=0)
    if depth > DEEPEST:
        raise PorterError(Code.TOO_LARGE, Location(path), what=f"brackets nested {depth} deep")
    if _branches(source) > DEEPEST and (depth := _branches(lexed(source).plain)) > DEEPEST:
        raise PorterError(Code.TOO_LARGE, Location(path), what=f"branches nested {depth} deep")
    return CudaFile(path, source, macros)


def _branches(source: bytes) -> int:
    """How deep branches and loops without braces go, one in the other: `else if` in the branch before it."""
    if source.count(b"if") + source.count(b"for") + source.count(b"while") <= DEEPEST:
        return 0
    deepest = 0
    depths = [0]
    for token in _NESTING.finditer(source):
        first = token[0][:1]
        if first == b"{":
            depths.append(0)
        elif first in b";}":
            if first == b"}" and len(depths) > 1:
                depths.pop()
            if token["more"] is None:
                depths[-1] = 0
        else:
            depths[-1] += 1
            deepest = max(deepest, depths[-1])
    return deepest


_PRAGMA = re.compile(rb"#[ \t]*pragma[^\n]*")
_BODY_FOLLOWS = re.compile(rb"(?:\)[ \t]*(?://[^\n]*)?|\b(?:else|do)[ \t]*)\r?\n[ \t]*\Z")


_DIRECTIVE = re.compile(rb"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b([^\n]*)", re.MULTILINE)


def _without_dead_branches(source: bytes) -> bytes:
    """Text between `#if 0` and its `#else` or `#endif` blanked, same length, line ends kept."""
    if not re.search(rb"#[ \t]*if[ \t]+0\b", source):
        return source
    result = bytearray(source)
    depth = 0
    dead: list[tuple[int, int]] = []
    for match in _DIRECTIVE.finditer(source):
        word, rest = match.group(1), match.group(2).split(b"//")[0].split(b"/*")[0].strip()
        if word in (b"if", b"ifdef", b"ifndef"):
            depth += 1
            if word == b"if" and rest == b"0":
                dead.append((depth, match.end()))
            continue
        if dead and dead[-1][0] == depth:
            start = dead.pop()[1]
            for i in range(start, match.start()):
                if result[i] not in b"\r\n":
                    result[i] = 0x20
        if word == b"endif":
            depth -= 1
    return bytes(result)


def _without_body_pragmas(source: bytes) -> bytes:
    """Pragmas between a loop's head and a body without braces blanked, same length: the grammar would take the
    pragma for the body."""
    if b"pragma" not in source:
        return source
    result = bytearray(source)
    for match in _PRAGMA.finditer(source):
        start = match.start()
        line_before = source.rfind(b"\n", 0, max(source.rfind(b"\n", 0, start), 0)) + 1
        if _BODY_FOLLOWS.search(source, line_before, start):
            text = match.group().rstrip(b"\r")
            result[start : start + len(text)] = b" " * len(text)
    return bytes(result)


def _cost(tree: Tree) -> tuple[int, int]:
    """How badly a parse went: error nodes, then bytes in error regions."""
    nodes = error_nodes(tree)
    return len(nodes), sum(n.end_byte - n.start_byte for n in nodes)


def span(node: Node) -> Span:
    return Span(node.start_byte, node.end_byte)


def location(file: CudaFile, where: Span) -> Location:
    return file.lines.location(file.path, where)


def walk(node: Node) -> Iterator[Node]:
    """The node and all nodes below it, parents first, in source order."""
    cursor = node.walk()
    while True:
        current = cursor.node
        assert current is not None
        yield current
        if cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return


_SPECIFIER = re.compile(rb"[A-Za-z_]\w*")


def function_specifiers(file: CudaFile, function: Node) -> frozenset[str]:
    """The words before a function's declarator: `__global__`, `static`, `void`, … with macros that stand for
    a specifier resolved (`MY_KERNEL` gives `__global__` too).

    A masked macro may stand just outside the node, so everything since the previous node counts. Attribute
    arguments and template heads are left out.
    """
    declarator = function.child_by_field_name("declarator")
    end = declarator.start_byte if declarator is not None else function.end_byte
    before = function.prev_sibling
    start = before.end_byte if before is not None else function.start_byte
    if before is None and function.parent is not None:
        start = function.parent.start_byte
    head = file.lexed.plain[start:end]
    words = {m.group().decode() for m in _SPECIFIER.finditer(head)}
    words |= {specifier_of(w, file.macros) for w in words}
    return frozenset(words)


def find(node: Node, *types: str) -> Iterator[Node]:
    """Nodes of the given named types at or below `node`, parents first, in source order."""
    query = _of_types(types).worth(node.descendant_count)
    if query is None:
        wanted = frozenset(types)
        return iter([n for n in walk(node) if n.is_named and n.type in wanted])
    found = QueryCursor(query).captures(node).get("node", [])
    found.sort(key=lambda n: (n.start_byte, -n.end_byte))
    return iter(found)


def find_around(root: Node, kind: str, places: Sequence[int]) -> list[Node]:
    """Nodes of a type, parents first, in source order, that have one of `places` (byte offsets, sorted) in them or
    between them and the node before. Takes a time that grows with what is around the places, not with the tree."""
    found = []
    pending = [root] if places else []
    while pending:
        node = pending.pop()
        if node.type == kind:
            found.append(node)
        near = []
        before = node.start_byte
        at = bisect_left(places, before)
        for child in node.children:
            end = child.end_byte
            while at < len(places) and places[at] < before:
                at += 1
            if at == len(places):
                break
            if places[at] < end:
                near.append(child)
            before = end
        pending += reversed(near)
    return found


_WALKED = 20_000
"""To compile a query takes as long as to walk over some so many nodes."""


class _OfTypes:
    """Nodes of these types: walked to, and by a query once as much was walked over as that would have taken. Names of
    several types, as `expression` is one, no node has for its own."""

    def __init__(self, types: tuple[str, ...]) -> None:
        self.types = types
        own = {kind for kind in types if LANGUAGE.id_for_node_kind(kind, True) is not None} - _supertypes()
        self._left = _WALKED if own == set(types) else 0

    def worth(self, nodes: int) -> Query | None:
        """The query for a tree of `nodes` nodes; None where that is to be walked over.

        Raises:
            tree_sitter.QueryError: there is no such type.
        """
        self._left -= nodes
        return self._query if self._left < 0 else None

    @cached_property
    def _query(self) -> Query:
        return Query(LANGUAGE, f"[{' '.join(f'({kind})' for kind in self.types)}] @node")


@cache
def _supertypes() -> set[str | None]:
    return {LANGUAGE.node_kind_for_id(number) for number in LANGUAGE.supertypes}


@lru_cache(maxsize=256)
def _of_types(types: tuple[str, ...]) -> _OfTypes:
    return _OfTypes(types)


def inside(outer: Node, inner: Node) -> bool:
    """Whether a node is another one, or stands in it."""
    return outer.start_byte <= inner.start_byte and inner.end_byte <= outer.end_byte


def above(node: Node, top: Node) -> Iterator[Node]:
    """What a node stands in, from the inside out, up to `top` and without it."""
    parent = node.parent
    while parent is not None and parent.id != top.id:
        yield parent
        parent = parent.parent


def arguments(call: Node) -> list[Node]:
    """What a call is handed."""
    listed = call.child_by_field_name("arguments")
    return [c for c in listed.named_children if c.type != "comment"] if listed is not None else []


def enclosing(node: Node, *types: str) -> Node | None:
    """The nearest node above `node` of one of `types`, or None."""
    parent = node.parent
    while parent is not None and parent.type not in types:
        parent = parent.parent
    return parent
