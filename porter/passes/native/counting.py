# SPDX-License-Identifier: Apache-2.0
"""The constant that a number of the sources comes from, and each place where it, or what is made of it, is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from porter.lang.cuda import CudaFile, above, enclosing, find
from porter.lang.text import Span
from porter.model.constants import default_of
from porter.model.functions import Function, Style, declared_name
from porter.model.program import Program
from porter.passes.full_rate.renaming import reached
from porter.passes.native.sites import Left

_NAMES = ("identifier", "type_identifier", "field_identifier")
_SUMS = ("binary_expression", "parenthesized_expression", "cast_expression", "sizeof_expression")
_LITERAL = re.compile(r"(0[xX][0-9a-fA-F]+|[1-9]\d*)([uUlL]*)")
_CONSTANT = {"const", "constexpr"}
_TYPES = ("array_declarator", "template_argument_list", "decltype", "alias_declaration")
_LISTED = ("call_expression", "argument_list", "template_argument_list", "type_descriptor", "initializer_list")
_TEMPLATES = ("template_type", "template_function", "template_method")


@dataclass(frozen=True)
class Word:
    """A name of the number itself, or of what is made of it (`derived`). `template` is the declaration whose parameter
    it is; without one it is meant wherever no template has a parameter of that name."""

    name: str
    template: Node | None = None
    derived: bool = False


@dataclass(frozen=True)
class Mention:
    """One place where a word stands: `node` is its whole name, with what qualifies it."""

    file: CudaFile
    node: Node
    word: Word

    @property
    def span(self) -> Span:
        return Span(self.node.start_byte, self.node.end_byte)

    def text(self, node: Node) -> str:
        return self.file.text(node)


@dataclass(frozen=True)
class Literal:
    """The number that a constant begins with, and where it is written."""

    file: CudaFile
    node: Node
    value: int
    suffix: str

    def instead(self, value: int) -> str:
        return f"{value}{self.suffix}"


class Counting:
    """Follows one number through the sources of a program, from a name that a kernel calls it by."""

    def __init__(self, program: Program, kernel: Function) -> None:
        self.program, self.kernel = program, kernel
        self.files = tuple(program.sources.files.values())
        self.words: list[Word] = []
        self._device: set[int] | None = None

    def left(self, file: CudaFile, node: Node, what: str) -> Left:
        """The step is left out for what stands in a node of a file."""
        inside = [f for f in self.program.functions if f.file is file] or [self.kernel]
        if inside[0].file is not file:
            return Left(self.kernel, self.kernel.span(self.kernel.body), what)
        return Left(inside[0], Span(node.start_byte, node.end_byte), what)

    def is_of_device(self, mention: Mention) -> bool:
        """Whether a mention stands where the kernel comes and host code does not, or makes a type: PTX judges it."""
        if self._device is None:
            mine = reached(self.program, [self.kernel])
            hosts = [f for f in self.program.functions if f.style is Style.HOST]
            theirs = reached(self.program, hosts, but=self.program.kernels)
            both = {id(f) for f in self.program.functions if "__host__" in f.text(f.node).partition("{")[0]}
            self._device = mine - theirs - both
        around = [f for f in self.program.functions if f.file is mention.file and f.span(f.node).contains(mention.span)]
        if not around:
            return enclosing(mention.node, *_TYPES) is not None
        return any(id(f) in self._device for f in around)

    # --- Where it comes from

    def literal(self, name: str, depth: int = 0) -> tuple[str, Literal]:
        """The constant that a name leads to, and the number that it begins with.

        Raises:
            Left: there are several, or none that is a number.
        """
        body = self.kernel.body
        found = list(self._constants(name))
        if depth > 8 or len(found) > 1 or (found and any(True for _ in self._others(name))):
            raise self.left(self.kernel.file, body, f"which `{name}` of several is meant")
        if found:
            file, value = found[0]
            if number := _LITERAL.fullmatch(file.text(value)):
                return name, Literal(file, value, int(number[1], 0), number[2])
            if value.type in ("identifier", "qualified_identifier"):
                return self.literal(_last(file.text(value)), depth + 1)
            raise self.left(file, value, f"that `{name}` is a number in the text")
        given = {
            _last(file.text(arguments[index]))
            for template, index in self._parameters(name)
            for file, arguments in self._uses(template)
            if index < len(arguments)
        } - {name}
        if len(given) != 1 or not re.fullmatch(r"[A-Za-z_]\w*", next(iter(given))):
            raise self.left(self.kernel.file, body, f"the constant that `{name}` stands for")
        return self.literal(next(iter(given)), depth + 1)

    def require_own(self, constant: str, literal: Literal) -> None:
        """That a number may become another one. Raises Left: others share it, or a build chooses it."""
        if literal.file.path != self.program.sources.root:
            what = f"`{constant}` in the file itself: others may include the header that it stands in"
            raise Left(self.kernel, self.kernel.span(self.kernel.body), what)
        if enclosing(literal.node, "preproc_if", "preproc_ifdef", "preproc_elif", "preproc_else") is not None:
            raise self.left(literal.file, literal.node, f"`{constant}` outside of `#if`: a build may choose it")

    def unknown(self, mention: Mention, use: str) -> Left:
        """What is made of a mention has some use that nobody knows."""
        node = mention.node.parent or mention.node
        while node.type in _LISTED and node.parent is not None:
            node = node.parent
        text = " ".join(mention.text(node).split())[:60]
        return self.left(mention.file, mention.node, f"what `{text}` has to do with {use}")

    def _constants(self, name: str) -> Iterator[tuple[CudaFile, Node]]:
        """Where a constant of a name gets its value."""
        for file, node, declarator in self.declared(name, "declaration", "field_declaration"):
            value = declarator.child_by_field_name("value") or default_of(node, declarator)
            if value is not None and _qualifiers(file, node) & _CONSTANT:
                yield file, value
        for file in self.files:
            for node in find(file.root, "enumerator", "preproc_def"):
                named, value = node.child_by_field_name("name"), node.child_by_field_name("value")
                if named is not None and value is not None and file.text(named) == name:
                    yield file, value

    def _others(self, name: str) -> Iterator[Node]:
        """Variables and parameters of functions that have the name of a constant."""
        for file, node, _ in self.declared(name, "declaration", "parameter_declaration", "field_declaration"):
            of_template = node.parent is not None and node.parent.type == "template_parameter_list"
            if not of_template and not _qualifiers(file, node) & _CONSTANT:
                yield node

    def declared(self, name: str, *types: str) -> Iterator[tuple[CudaFile, Node, Node]]:
        """Declarations of these types that declare a name: file, declaration, declarator."""
        for file in self.files:
            for node in find(file.root, *types):
                for declarator in node.children_by_field_name("declarator"):
                    named = declared_name(declarator)
                    if named is not None and file.text(named) == name:
                        yield file, node, declarator

    def _parameters(self, name: str) -> Iterator[tuple[Node, int]]:
        """Templates that have a parameter of a name, and which one it is."""
        for file in self.files:
            for node in find(file.root, "template_declaration"):
                names = _parameter_names(file, node)
                if name in names:
                    yield node, names.index(name)

    def _uses(self, template: Node) -> Iterator[tuple[CudaFile, list[Node]]]:
        """The arguments with which a template is named."""
        name = template_name(template)
        for file in self.files:
            for node in find(file.root, *_TEMPLATES):
                named, arguments = node.child_by_field_name("name"), node.child_by_field_name("arguments")
                if named is not None and arguments is not None and named.text == name:
                    yield file, arguments.named_children

    # --- Where it goes

    def mentions(self, name: str) -> Iterator[Mention]:
        """Every place that stands for the number of a constant or for what is made of it, but those that only hand it
        on under another name: of a template that is handed other numbers, too, those of all of them.

        Raises:
            Left: it is handed to what is not followed.
        """
        self.words = [Word(name)]
        done = 0
        while done < len(self.words):
            for mention in self._of(self.words[done]):
                if not self._hands_on(mention):
                    yield mention
            done += 1

    def _of(self, word: Word) -> Iterator[Mention]:
        for file in self.files:
            for macro in find(file.root, "preproc_arg"):
                above = macro.parent
                value = above is not None and above.type == "preproc_def"
                if re.search(rf"\b{word.name}\b", file.text(macro)) and not value:
                    raise self.left(file, macro, f"what a macro or a pragma makes of `{word.name}`")
                if value and above is not None and re.search(rf"\b{word.name}\b", file.text(macro)):
                    self._derive(file, above)
            for node in find(file.root, *_NAMES):
                if file.text(node) == word.name and self._is_meant(file, node, word):
                    yield Mention(file, _whole(node), word)

    def _is_meant(self, file: CudaFile, node: Node, word: Word) -> bool:
        for template in (n for n in above(node, file.root) if n.type == "template_declaration"):
            if word.name in _parameter_names(file, template):
                return word.template is not None and template.id == word.template.id
        return word.template is None

    def _hands_on(self, mention: Mention) -> bool:
        """Whether a mention is a declaration, or gives another word of the number."""
        file, node = mention.file, mention.node
        outer = node.parent
        if outer is None or enclosing(node, "static_assert_declaration", "using_declaration") is not None:
            return True
        if outer.type == "parameter_declaration" and outer.parent is not None:
            return outer.parent.type == "template_parameter_list"
        named = [outer.child_by_field_name("name")] if outer.type in ("enumerator", "preproc_def") else []
        if any(_is(d, node) for d in (*named, *outer.children_by_field_name("declarator"))):
            return True
        if self._is_argument(mention):
            return True
        while outer is not None and outer.type in _SUMS:
            node, outer = outer, outer.parent
        if outer is None:
            return False
        declared = outer.parent if outer.type == "init_declarator" else outer
        if outer.type in ("init_declarator", "field_declaration") and declared is not None:
            exact = _is(node, mention.node) and not mention.word.derived
            return self._constant(file, declared, node) and self._derive(file, outer, exact)
        return outer.type == "enumerator" and self._derive(file, outer)

    def _constant(self, file: CudaFile, node: Node, value: Node) -> bool:
        """Whether a declaration is one of a number that the compiler knows."""
        words = _qualifiers(file, node)
        if any(n.type == "pointer_declarator" for c in node.named_children for n in (c, *c.named_children)):
            return False
        names = [_last(file.text(n)) for n in find(value, "identifier")]
        known = all(any(True for _ in self._constants(n)) or self._is_word(n) for n in names)
        return "constexpr" in words or ("const" in words and known)

    def _is_word(self, name: str) -> bool:
        return any(w.name == name for w in self.words)

    def _derive(self, file: CudaFile, node: Node, exact: bool = False) -> bool:
        declarator = node.child_by_field_name("declarator") or node.child_by_field_name("name")
        named = (declared_name(declarator) or declarator) if declarator is not None else None
        if named is None:
            return False
        name = file.text(named)
        template = enclosing(node, "template_declaration")
        of_template = template is not None and name in _parameter_names(file, template)
        if of_template or len(list(self._constants(name))) != 1 or any(True for _ in self._others(name)):
            raise self.left(file, named, f"which `{name}` of several is meant")
        self._add(Word(name, None, not exact))
        return True

    def _is_argument(self, mention: Mention) -> bool:
        """Whether a mention is an argument of a template of the sources, whose parameter then is a word, too."""
        found = False
        for file, template, index in self.handed_to(mention):
            names = _parameter_names(file, template)
            if index < len(names):
                self._add(Word(names[index], template, mention.word.derived))
                found = True
        return found

    def handed_to(self, mention: Mention) -> Iterator[tuple[CudaFile, Node, int]]:
        """Templates of the sources that a mention is an argument of, and which."""
        node, listed = mention.node, mention.node.parent
        if listed is not None and listed.type == "type_descriptor":
            node, listed = listed, listed.parent
        if listed is None or listed.type != "template_argument_list" or listed.parent is None:
            return
        named = listed.parent.child_by_field_name("name")
        index = next(i for i, c in enumerate(listed.named_children) if c.id == node.id)
        for file in self.files:
            for template in find(file.root, "template_declaration"):
                if named is not None and template_name(template) == named.text:
                    yield file, template, index

    def _add(self, word: Word) -> None:
        if not any(_same(word, w) for w in self.words):
            self.words.append(word)


def initialized(node: Node) -> Iterator[tuple[Node, str, Node]]:
    """Variables below a node that get a value where they are declared: declarator, name, value."""
    for declarator in find(node, "init_declarator"):
        name, value = declared_name(declarator), declarator.child_by_field_name("value")
        if name is not None and value is not None:
            yield declarator, (name.text or b"").decode("utf-8", "replace"), value


def _qualifiers(file: CudaFile, node: Node) -> set[str]:
    return {file.text(c) for c in node.children if c.type in ("type_qualifier", "constexpr")}


def _same(one: Word, other: Word) -> bool:
    ids = [w.template.id if w.template is not None else None for w in (one, other)]
    return one.name == other.name and ids[0] == ids[1] and one.derived == other.derived


def _is(one: Node | None, other: Node) -> bool:
    return one is not None and one.id == other.id


def _whole(node: Node) -> Node:
    """A name with what qualifies it."""
    while node.parent is not None and node.parent.type == "qualified_identifier":
        node = node.parent
    return node


def _last(name: str) -> str:
    return name.split("::")[-1].strip()


def _parameter_names(file: CudaFile, template: Node) -> list[str]:
    """The names of a template's parameters, empty for those without one."""
    listed = template.child_by_field_name("parameters")
    names = []
    for parameter in listed.named_children if listed is not None else ():
        if parameter.type == "comment":
            continue
        declarator = parameter.child_by_field_name("declarator")
        named = declared_name(declarator) if declarator is not None else None
        names.append(file.text(named or declarator) if declarator is not None else "")
    return names


def template_name(template: Node) -> bytes | None:
    """The name of the class or function that a template declares."""
    for child in template.named_children:
        if child.type in ("struct_specifier", "class_specifier", "alias_declaration"):
            named = child.child_by_field_name("name")
            return named.text if named is not None else None
        if child.type in ("function_definition", "declaration"):
            declarator = child.child_by_field_name("declarator")
            while declarator is not None and (inner := declarator.child_by_field_name("declarator")) is not None:
                declarator = inner
            first = next(find(declarator or child, "identifier", "field_identifier"), None)
            return first.text if first is not None else None
    return None
