# SPDX-License-Identifier: Apache-2.0
"""Inline assembly in CUDA C++: template, operands and constraints of every statement."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from weakref import WeakKeyDictionary

from tree_sitter import Node

from porter.diagnostics import Location
from porter.lang.cuda import CudaFile, error_nodes, find, find_around, location, parse_tree, span
from porter.lang.lexical import MacroText, without_continuations
from porter.lang.masking import NO_MACROS, mask
from porter.lang.text import Span, as_text
from porter.ptx.ast import Template

_KEYWORD = re.compile(rb"\b(?:asm|__asm__|__asm)\b(?=(?:volatile|__volatile__|goto|inline|\s)*\()")
_PIECE = re.compile(
    rb"//(?:\\\r?\n|[^\n])*|/\*.*?\*/"
    rb'|(?:u8|[uUL])?R"(?P<delimiter>[^\s()\\]{0,16})\((?P<raw>.*?)\)(?P=delimiter)"'
    rb'|(?:u8|[uUL])?"(?P<text>(?:[^"\\]|\\.)*)"'
    rb"|(?P<directive>\#[ \t]*(?:if|ifdef|ifndef|elif|else|endif)\b(?:[^\\\n]|\\\r?\n)*)"
    rb"|(?P<name>\#?\s*[A-Za-z_]\w*)"
    rb"|(?P<other>[^\s\\])",
    re.DOTALL,
)
_READ: WeakKeyDictionary[CudaFile, dict[frozenset[tuple[str, str]], list[AsmStatement]]] = WeakKeyDictionary()
_NODES: WeakKeyDictionary[CudaFile, list[Node]] = WeakKeyDictionary()
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]+|[0-7]{1,3}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|\r?\n|.)", re.DOTALL)
_OPCODE_CONSTANT = re.compile(r"::%(\d+)\b")
_SIMPLE = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}

MacroDefinition = MacroText


@dataclass(frozen=True, eq=False)
class AsmOperand:
    """`[name] "constraint"(expr)`. `expr` is the original text; the node belongs to the statement's tree, and
    its offsets plus `AsmStatement.shift` are file offsets (`expr_span` already is one)."""

    constraint: str
    expr: str
    expr_span: Span
    expr_node: Node | None = field(repr=False)
    name: str | None
    is_output: bool

    @property
    def is_read(self) -> bool:
        return not self.is_output or "+" in self.constraint

    @property
    def is_written(self) -> bool:
        return self.is_output

    @property
    def kind(self) -> str:
        """The constraint letters alone: `f`, `r`, `l`, `h`, `d`, `n`, `q`."""
        return self.constraint.lstrip("=+&%").lstrip("&")


@dataclass(frozen=True, eq=False)
class AsmStatement:
    """One asm statement. `span` includes the semicolon if there is one.

    `template` is concatenated and unescaped; each piece that is a macro and not a literal stands in it as
    `\\x00NAME\\x00` and is listed in `macro_pieces`. `ptx` is None if the template could not be read as PTX;
    then `ptx_error` says why. `macro` is the macro whose body holds the statement.
    """

    path: str
    node: Node = field(repr=False)
    span: Span
    template_span: Span
    template: str
    outputs: tuple[AsmOperand, ...]
    inputs: tuple[AsmOperand, ...]
    clobbers: tuple[str, ...]
    volatile: bool
    where: Location
    macro_pieces: tuple[str, ...] = ()
    ptx: Template | None = field(default=None, repr=False)
    ptx_error: str | None = None
    macro: MacroDefinition | None = field(default=None, repr=False)
    shift: int = 0

    @property
    def operands(self) -> tuple[AsmOperand, ...]:
        return self.outputs + self.inputs

    def operand(self, index: int) -> AsmOperand:
        """What `%index` stands for. Raises IndexError if the statement has fewer operands."""
        operands = self.operands
        if not 0 <= index < len(operands):
            raise IndexError(f"%{index} of an asm statement with {len(operands)} operands")
        return operands[index]

    def with_opcode_constants(self) -> AsmStatement:
        """The statement with its PTX read as it is where `%N` inside an opcode (`cta_group::%2`) is the integer of
        that operand; one that only a compiler knows counts as 1. Itself where that cannot be read either."""

        def constant(match: re.Match[str]) -> str:
            number = int(match[1])
            known = number < len(self.operands) and self.operands[number].expr.strip().isdigit()
            return f"::{self.operands[number].expr.strip() if known else 1}"

        ptx, error = _read_ptx(_OPCODE_CONSTANT.sub(constant, self.template), len(self.operands))
        return self if ptx is None else replace(self, ptx=ptx, ptx_error=error)


def unescape(text: str) -> str:
    """The characters that a C string literal's inside stands for."""

    def one(match: re.Match[str]) -> str:
        body = match.group(1)
        if body[0] in "xuU" and len(body) > 1:
            return chr(int(body[1:], 16) & 0x10FFFF)
        if body[0] in "01234567":
            return chr(int(body, 8))
        if body[-1] == "\n":
            return ""
        return _SIMPLE.get(body, body)

    return _ESCAPE.sub(one, text) if "\\" in text else text


def asm_statements(file: CudaFile, macros: Mapping[str, str] | None = None) -> list[AsmStatement]:
    """Every asm statement of the file's own code, in source order.

    Those in `#define` bodies come from `asm_in_macro`. `macros` gives the text of object-like macros that
    other files define (`string_macros`); the file's own are known.
    """
    if b"asm" not in file.source:
        return []
    known = {**(macros or {}), **string_macros(macro_definitions(file))}
    # What a name stands for matters only where a template holds one.
    read = _READ.setdefault(file, {})
    used = frozenset((name, text) for name, text in known.items() if name.encode() in file.source)
    if used not in read:
        read[used] = [_statement(file, node, 0, None, known) for node in _asm_nodes(file)]
    return list(read[used])


def _asm_nodes(file: CudaFile) -> list[Node]:
    if file not in _NODES:
        if file.root.has_error:
            _NODES[file] = outside_directives(file, find(file.root, "gnu_asm_expression"))
        else:
            # without errors each begins with the word
            places = [match.start() for match in re.finditer(rb"asm", file.masked)]
            _NODES[file] = find_around(file.root, "gnu_asm_expression", places)
    return _NODES[file]


def read_as_code(file: CudaFile, nodes: Iterable[Node]) -> list[Node]:
    """Without those in directives: where the grammar does not know a `#define`, it takes the body for code."""
    return outside_directives(file, nodes) if file.root.has_error else list(nodes)


def outside_directives(file: CudaFile, nodes: Iterable[Node]) -> list[Node]:
    """Without those in preprocessor directives."""
    directives = file.lexed.directives
    starts = [d.start for d in directives]

    def inside(at: int) -> bool:
        before = bisect_right(starts, at)
        return before > 0 and at < directives[before - 1].end

    return [n for n in nodes if not inside(n.start_byte)]


def unread_asm(file: CudaFile) -> list[Span]:
    """`asm` keywords in code that ended up in no asm statement: text that must not be skipped in silence."""
    if not _KEYWORD.search(file.source):
        return []
    starts = {n.start_byte for n in _asm_nodes(file)}
    return [Span(m.start(), m.end()) for m in _KEYWORD.finditer(file.lexed.plain) if m.start() not in starts]


def macro_definitions(file: CudaFile) -> list[MacroDefinition]:
    """Every `#define` of the file, in order, whichever `#if` branch it stands in."""
    return list(file.lexed.macros())


def string_macros(macros: list[MacroDefinition]) -> dict[str, str]:
    """Object-like macros whose body is string literals only, with the text they stand for.

    A name with two different definitions is left out: which one holds depends on the `#if` around it.
    """
    bodies: dict[str, set[bytes]] = {}
    for macro in macros:
        if macro.params is None:
            bodies.setdefault(macro.name, set()).add(macro.joined)
    found: dict[str, str] = {}
    # a macro may be put together from others
    unread = {name: stated.copy().pop() for name, stated in bodies.items() if len(stated) == 1}
    while True:
        read = {}
        for name, body in unread.items():
            if b'"' not in body and body.decode("ascii", "replace") not in found:
                continue
            text, pieces, problem = _literal(body, found)
            if not pieces and not problem:
                read[name] = text
        if not read:
            return found
        found.update(read)
        unread = {name: body for name, body in unread.items() if name not in read}


@dataclass(frozen=True)
class _Wrapper:
    before: bytes
    after: bytes


_WRAPPERS = (
    _Wrapper(b"void macro_() {\n", b"\n;}\n"),
    _Wrapper(b"", b"\n"),
    _Wrapper(b"struct macro_ {\n", b"\n};\n"),
    _Wrapper(b"void macro_() { do {\n", b"\n;} while (0);}\n"),
)


def asm_in_macro(file: CudaFile, macro: MacroDefinition, macros: Mapping[str, str] | None = None) -> list[AsmStatement]:
    """The asm statements in a macro's body, with spans in the file.

    The body is parsed as statements, declarations or members, whichever fits best. Pieces that are macro
    parameters (`"m64n" #N "k16"`) are in `macro_pieces`, `#N` under the name `#N`.
    """
    if not re.search(rb"\basm\b|\b__asm", macro.body):
        return []
    body = without_continuations(macro.body)
    # `##` pastes tokens: underscores keep the length and give one identifier.
    body = re.sub(rb"[ \t]*##[ \t]*", lambda m: b"_" * len(m.group()), body)
    best: tuple[int, int, _Wrapper, Node] | None = None
    for rank, wrapper in enumerate(_WRAPPERS):
        text = wrapper.before + body + wrapper.after
        masked = mask(text, parse_tree, lambda tree: (len(error_nodes(tree)), 0), NO_MACROS)
        errors = len(error_nodes(masked.tree))
        if best is None or errors < best[0]:
            best = (errors, rank, wrapper, masked.tree.root_node)
        if errors == 0:
            break
    assert best is not None
    _, _, wrapper, root = best
    shift = macro.body_span.start - len(wrapper.before)
    known = {**(macros or {}), **string_macros(macro_definitions(file))}
    for param in macro.params or ():
        known.pop(param, None)
    return [_statement(file, node, shift, macro, known) for node in find(root, "gnu_asm_expression")]


def _shifted(where: Span, shift: int) -> Span:
    return Span(where.start + shift, where.end + shift)


def _statement(
    file: CudaFile, node: Node, shift: int, macro: MacroDefinition | None, known: Mapping[str, str]
) -> AsmStatement:
    end = node.end_byte + shift
    semicolon = re.compile(rb"(?:\s|\\\r?\n)*;").match(file.source, end)
    if semicolon is not None and (macro is None or semicolon.end() <= macro.body_span.end):
        end = semicolon.end()
    whole = Span(node.start_byte + shift, end)
    code = node.child_by_field_name("assembly_code")
    template_span = _template_span(node, code, shift)
    body = file.source[template_span.start : template_span.end]
    text, pieces, problem = _literal(body if macro is None else without_continuations(body), known)
    outputs, inputs, clobbers = [], [], []
    for child in node.children:
        if child.type == "gnu_asm_output_operand_list":
            outputs += [_operand(file, n, shift, True) for n in child.named_children if _is_operand(n)]
        elif child.type == "gnu_asm_input_operand_list":
            inputs += [_operand(file, n, shift, False) for n in child.named_children if _is_operand(n)]
        elif child.type == "gnu_asm_clobber_list":
            clobbers += [
                _plain_literal(file.source[n.start_byte + shift : n.end_byte + shift])
                for n in child.named_children
                if n.type.endswith(("string_literal", "concatenated_string"))
            ]
    operands = outputs + inputs
    text = _number_names(text, [o.name for o in operands])
    ptx, error = (None, problem) if problem else _read_ptx(text, len(operands))
    if node.has_error and error is None and _broken(node, code):
        ptx, error = None, "the statement was not parsed whole"
    return AsmStatement(
        path=file.path,
        node=node,
        span=whole,
        template_span=template_span,
        template=text,
        outputs=tuple(outputs),
        inputs=tuple(inputs),
        clobbers=tuple(clobbers),
        volatile=any(c.type == "gnu_asm_qualifier" and b"volatile" in (c.text or b"") for c in node.children),
        where=location(file, whole),
        macro_pieces=tuple(pieces),
        ptx=ptx,
        ptx_error=error,
        macro=macro,
        shift=shift,
    )


def _is_operand(node: Node) -> bool:
    return node.type in ("gnu_asm_output_operand", "gnu_asm_input_operand")


def _broken(node: Node, code: Node | None) -> bool:
    """True if an error lies outside the template string, whose text is read from the source anyway."""

    def bad(part: Node) -> bool:
        if code is not None and part.id == code.id:
            return False
        return part.is_error or part.is_missing or any(bad(c) for c in part.children)

    return bad(node)


def _template_span(node: Node, code: Node | None, shift: int) -> Span:
    if code is None:
        return _shifted(span(node), shift)
    # Up to the colon or parenthesis that follows: error nodes may stand between the literals.
    end = code.end_byte
    for child in node.children:
        if child.start_byte >= end and (child.type.startswith("gnu_asm_") or child.type == ")"):
            break
        if child.start_byte >= end:
            end = child.end_byte
    return Span(code.start_byte + shift, end + shift)


def _literal(source: bytes, known: Mapping[str, str]) -> tuple[str, list[str], str | None]:
    """Concatenated text of adjacent literals, the macro pieces left in it, and what could not be read."""
    parts: list[str] = []
    pieces: list[str] = []
    for match in _PIECE.finditer(source):
        if match.group("raw") is not None:
            parts.append(as_text(match.group("raw")))
        elif match.group("text") is not None:
            parts.append(unescape(as_text(match.group("text"))))
        elif match.group("name") is not None:
            name = "".join(match.group("name").decode("ascii", "replace").split())
            if name in known:
                parts.append(known[name])
            else:
                pieces.append(name)
                parts.append(f"\x00{name}\x00")
        elif match.group("directive") is not None:
            return "".join(parts), pieces, "the template depends on #if"
        elif match.group("other") is not None:
            return "".join(parts), pieces, "the template is not a string literal"
    if pieces:
        return "".join(parts), pieces, f"the template holds the macro {', '.join(dict.fromkeys(pieces))}"
    return "".join(parts), pieces, None


@lru_cache(maxsize=1024)
def _plain_literal(source: bytes) -> str:
    return _literal(source, {})[0]


def _operand(file: CudaFile, node: Node, shift: int, is_output: bool) -> AsmOperand:
    constraint = node.child_by_field_name("constraint")
    symbol = node.child_by_field_name("symbol")
    value = node.child_by_field_name("value")
    where = _shifted(span(value) if value is not None else Span(node.end_byte, node.end_byte), shift)
    return AsmOperand(
        constraint=_plain_literal(file.source[constraint.start_byte + shift : constraint.end_byte + shift])
        if constraint is not None
        else "",
        expr=file.text(where),
        expr_span=where,
        expr_node=value,
        name=file.text(_shifted(span(symbol), shift)) if symbol is not None else None,
        is_output=is_output,
    )


def _number_names(template: str, names: list[str | None]) -> str:
    """`%[x]` as the `%k` that it stands for; unknown names stay."""

    def number(match: re.Match[str]) -> str:
        return f"%{names.index(match.group(1))}" if match.group(1) in names else match.group()

    return re.sub(r"%\[(\w+)\]", number, template)


@lru_cache(maxsize=8192)
def _read_ptx(text: str, operands: int) -> tuple[Template | None, str | None]:
    from porter.ptx.inline import parse_template
    from porter.ptx.parser import PtxSyntaxError

    if "\x00" in text:
        return None, "the template holds a macro"
    missing = [n for n in re.findall(r"(?<!%)(?:%%)*%(\d+)", text) if int(n[:9]) >= operands]
    if missing:
        return None, f"%{missing[0][:9]} of an asm statement with {operands} operands"
    try:
        return parse_template(text), None
    except PtxSyntaxError as error:
        return None, str(error)
