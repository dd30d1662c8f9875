# SPDX-License-Identifier: Apache-2.0
"""Calls on the way from a kernel to an instruction, and what expressions down there are in the kernel's own words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tree_sitter import Node

from porter.lang.cuda import find, walk
from porter.model.facts import Address
from porter.model.functions import Call, Function, Style
from porter.model.program import Program
from porter.model.scopes import Variable, resolve

_CAST = re.compile(r"(?:reinterpret|static|const)_cast\s*<[^()]*>\s*\((.*)\)\Z", re.DOTALL)
_C_CAST = re.compile(r"\(\s*(?:const\s+)?[\w:]+(?:\s*const)?\s*\**\s*\)\s*(?=[\w&(*])")
_TO_SHARED = re.compile(r"\bcvta\.to\.shared\b")
_WRITES = ("assignment_expression", "update_expression")
_DEEPEST = 12


@dataclass(eq=False)
class Frame:
    """A function on the way: `outer` is the frame of its caller, `receiver` the object of a method, in the kernel's
    words."""

    function: Function
    outer: Frame | None = None
    call: Call | None = None
    bound: dict[str, Node] = field(default_factory=dict)
    templates: dict[str, str] = field(default_factory=dict)
    receiver: str = ""

    @property
    def depth(self) -> int:
        return 0 if self.outer is None else 1 + self.outer.depth

    @property
    def chain(self) -> Iterator[Frame]:
        """The frame and those around it, the kernel's last."""
        frame: Frame | None = self
        while frame is not None:
            yield frame
            frame = frame.outer


class Wording:
    """Asks about one program. `objects`: every variable that keeps its first value stands for that, else only
    references do."""

    def __init__(self, program: Program, objects: bool = False) -> None:
        self.program = program
        self._objects = objects
        self._changed: dict[tuple[int, str], bool] = {}

    @cached_property
    def _of_objects(self) -> Wording:
        return Wording(self.program, objects=True)

    def enter(self, frame: Frame, call: Call, target: Function) -> Frame:
        """The frame of a function that is called."""
        bound = {p.name: a for p, a in zip(target.params, call.args, strict=False) if p.name}
        given = [self._text(frame, text) for text in call.template_args]
        templates = dict(zip(target.template_params, given, strict=False))
        return Frame(target, frame, call, bound, templates, self._receiver(frame, call, target))

    def _receiver(self, frame: Frame, call: Call, target: Function) -> str:
        if target.style is not Style.METHOD:
            return frame.receiver if target.style is Style.LAMBDA else ""
        called = call.node.child_by_field_name("function")
        if called is not None and called.type == "field_expression":
            held = called.child_by_field_name("argument")
            return place_of(self.words(frame, held)) if held is not None else ""
        return frame.receiver

    def _text(self, frame: Frame, text: str) -> str:
        """A template argument with what names of the caller's own template stand for."""
        return re.sub(r"(?<![\w.:])[A-Za-z_]\w*", lambda m: frame.templates.get(m[0], m[0]), text)

    def words(self, frame: Frame, node: Node) -> str:
        """An expression of a function, in the words of the kernel that comes to it."""
        return tidy(self._words(frame, node, 0))

    def handed(self, frame: Frame, node: Node) -> tuple[Frame, Node]:
        """What calls hand for a parameter, where that is written; another expression as it is."""
        while node.type == "identifier" and frame.outer is not None:
            name = frame.function.text(node)
            if name not in frame.bound or self.changes(frame.function, name):
                break
            frame, node = frame.outer, frame.bound[name]
        return frame, node

    def object(self, frame: Frame, node: Node) -> str:
        """The object that an address is of, in the kernel's words but for variables that stand for something else."""
        return place_of(self._of_objects._words(frame, node, 0))

    def _words(self, frame: Frame, node: Node, depth: int) -> str:
        if depth > _DEEPEST:
            return frame.function.text(node)
        if node.type == "call_expression":
            text = self._call(frame, node, depth)
            if text is not None:
                return text
        pieces: list[tuple[int, int, str]] = []
        for part in self._parts(node):
            text = self._named(frame, part, depth) if part.type != "call_expression" else self._call(frame, part, depth)
            if text is not None and part.id != node.id:
                pieces.append((part.start_byte, part.end_byte, text))
            elif text is not None:
                return text
        function, at = frame.function, node.start_byte
        found = ""
        for start, end, text in pieces:
            if start >= at:
                found += _slice(function, at, start) + text
                at = end
        return found + _slice(function, at, node.end_byte)

    def _parts(self, node: Node) -> Iterator[Node]:
        """Names in an expression, and calls that only give an address."""
        for inner in walk(node):
            if inner.type in ("identifier", "this") or (inner.type == "call_expression" and inner.id != node.id):
                yield inner

    def _turns(self, variable: Variable) -> bool:
        """Whether a variable may come to stand for something else; a reference never does."""
        declarator = variable.declarator
        inner = declarator.child_by_field_name("declarator") if declarator is not None else None
        is_reference = inner is not None and inner.type == "reference_declarator"
        return not is_reference and self.changes(variable.function, variable.name)

    def changes(self, function: Function, name: str) -> bool:
        """Whether a function may give one of its variables another value."""
        key = id(function), name
        if key not in self._changed:
            self._changed[key] = any(self._writes(function, name))
        return self._changed[key]

    def _writes(self, function: Function, name: str) -> Iterator[bool]:
        for node in find(function.body, *_WRITES):
            target = node.child_by_field_name("left") or node.child_by_field_name("argument")
            yield target is not None and function.text(target) == name
        yield any(o.is_output and o.expr.strip() == name for s in function.asm for o in s.operands)
        inner = (f for f in self.program.functions if f is function or f.parent is function)
        for call in (c for f in inner for c in f.calls):
            for index, argument in enumerate(call.args):
                text = call.caller.text(argument).replace(" ", "")
                yield text == f"&{name}" or (text == name and self._by_reference(call, index))

    def _by_reference(self, call: Call, index: int) -> bool:
        """Whether a call may write to an argument; of functions that are not at hand only those that rules know do
        not."""
        if call.name.endswith("_cast"):
            return False
        targets = self.program.targets(call)
        if not targets:
            return self.program.facts.of_call(call) is None
        for target in targets:
            if target.style is Style.MACRO or index >= len(target.params):
                return True
            kind = self.program.names.type_of_param(target, target.params[index])
            if kind.reference and not kind.const:
                return True
        return False

    def _call(self, frame: Frame, node: Node, depth: int) -> str | None:
        inner = self.addressed(frame, node)
        if inner is not None:
            return f"({self._words(frame, inner, depth + 1)})"
        return self._own_address(frame, node)

    def _own_address(self, frame: Frame, node: Node) -> str | None:
        """The object whose address one of its methods gives."""
        for call in self.program.calls_by_node.get(node.id, ()):
            targets = self.program.targets(call)
            if len(targets) == 1 and targets[0].style is Style.METHOD and self.gives_address(targets[0], 0):
                receiver = self._receiver(frame, call, targets[0])
                return f"({receiver})" if receiver else None
        return None

    def _named(self, frame: Frame, node: Node, depth: int) -> str | None:
        """What a name stands for in the kernel; None for one that stays."""
        function, name = frame.function, frame.function.text(node)
        if node.type == "this":
            return f"(&{frame.receiver})" if frame.receiver else None
        if node.parent is not None and node.parent.type == "qualified_identifier":
            return None
        if function.style is Style.MACRO:
            return self._given(frame, name, depth) or self._of_macro(frame, node, name, depth)
        variable = resolve(function, node, name)
        if variable is None:
            member = bool(frame.receiver) and _has_member(function, name)
            return f"({frame.receiver}).{name}" if member else frame.templates.get(name)
        owner = next((f for f in frame.chain if f.function is variable.function), None)
        if owner is None:
            return None
        if owner.outer is None:
            held = node.parent is not None and node.parent.type == "field_expression" and not variable.is_reference
            return None if held else self._alias(owner, variable, depth)
        if variable.param is not None:
            return self._given(owner, name, depth)
        value = first_value(variable)
        if value is None or self._turns(variable):
            return None
        return f"({self._words(owner, value, depth + 1)})"

    def _alias(self, kernel: Frame, variable: Variable, depth: int) -> str | None:
        """What a reference or pointer of the kernel itself stands for, another name of something; of an object that is
        asked for (`objects`), every variable that keeps its first value."""
        if variable.param is not None or not (variable.is_reference or self._objects):
            return None
        value = first_value(variable)
        if value is None or self._turns(variable) or b"_cast" in (value.text or b""):
            return None
        return f"({self._words(kernel, value, depth + 1)})"

    def _of_macro(self, frame: Frame, node: Node, name: str, depth: int) -> str | None:
        """What a variable is that a macro's own text declares."""
        for declarator in find(frame.function.body, "init_declarator"):
            declared, value = declarator.child_by_field_name("declarator"), declarator.child_by_field_name("value")
            if declared is None or value is None or frame.function.text(declared).lstrip("*& ") != name:
                continue
            if declarator.end_byte <= node.start_byte and not self.changes(frame.function, name):
                return f"({self._words(frame, value, depth + 1)})"
        return None

    def _given(self, frame: Frame, name: str, depth: int) -> str | None:
        node = frame.bound.get(name)
        if node is None or frame.outer is None:
            return frame.templates.get(name) or self._default(frame, name, depth)
        return f"({self._words(frame.outer, node, depth + 1)})"

    def _default(self, frame: Frame, name: str, depth: int) -> str | None:
        """What a parameter is where the call does not say."""
        param = frame.function.param(name)
        value = param.node.child_by_field_name("default_value") if param is not None and param.node else None
        return None if value is None else f"({self._words(frame, value, depth + 1)})"

    def addressed(self, frame: Frame, node: Node) -> Node | None:
        """The argument of a call that gives its address in shared memory."""
        for call in self.program.calls_by_node.get(node.id, ()):
            fact = self.program.facts.of_call(call)
            if isinstance(fact, Address) and len(call.args) == 1:
                return call.args[0]
            targets = self.program.targets(call)
            if len(targets) == 1 and len(call.args) == 1 and self.gives_address(targets[0]):
                return call.args[0]
        return None

    def gives_address(self, function: Function, params: int = 1) -> bool:
        """Whether a function does nothing but turn its argument, or its object, into an address of shared memory."""
        if len(function.params) != params or any(True for _ in find(function.body, "if_statement", "for_statement")):
            return False
        if function.asm:
            return all(_TO_SHARED.search(s.template) for s in function.asm)
        inner = [c for c in function.calls if not c.name.endswith("_cast")]
        return bool(inner) and all(
            isinstance(self.program.facts.of_call(c), Address)
            or any(t is not function and self.gives_address(t) for t in self.program.targets(c))
            for c in inner
        )


def first_value(variable: Variable) -> Node | None:
    """What a local variable is declared with."""
    declarator = variable.declarator
    value = declarator.child_by_field_name("value") if declarator is not None else None
    if value is not None and value.type in ("initializer_list", "argument_list"):
        return value.named_children[0] if len(value.named_children) == 1 else None
    return value


def _has_member(function: Function, name: str) -> bool:
    owner = function.owner_class
    if owner is None or owner.node is None or owner.file is None:
        return False
    for declaration in find(owner.node, "field_declaration"):
        for child in declaration.children_by_field_name("declarator"):
            if any(owner.file.text(n) == name for n in walk(child) if n.type == "field_identifier"):
                return True
    return False


def _slice(function: Function, start: int, end: int) -> str:
    return function.file.source[start + function.shift : end + function.shift].decode("utf-8", "replace")


def tidy(text: str) -> str:
    """Without parentheses and pairs of & and * that say nothing."""
    text = " ".join(text.split())
    for _ in range(_DEEPEST):
        before = text
        text = re.sub(r"(?<![\w>\])])\(((?:[\w.:]|\[[^\[\]()]*\]|->)+)\)(?!\s*[\w(&])", r"\1", text)
        text = re.sub(r"\(&\s*((?:[\w.]|\[[^\[\]()]*\])+)\)\s*->", r"\1.", text)
        text = re.sub(r"\*\s*\(\s*&\s*((?:[\w.]|\[[^\[\]()]*\])+)\)", r"\1", text)
        text = re.sub(r"(?<![\w>\])])\(&\s*((?:[\w.:]|\[[^\[\]()]*\]|->)+)\)", r"&\1", text)
        text = re.sub(r"\*\s*&\s*(?=\w)|&\s*\*\s*(?=\w)", "", text)
        text = _unwrapped(text)
        if text == before:
            return text
    return text


def _unwrapped(text: str) -> str:
    """Without parentheses around the whole."""
    while text.startswith("(") and text.endswith(")") and _closes(text) == len(text) - 1:
        text = text[1:-1].strip()
    return text


def _closes(text: str) -> int:
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return index
    return -1


def place_of(text: str) -> str:
    """The object that an address is of: without casts and &."""
    text = tidy(text)
    for _ in range(_DEEPEST):
        before = text
        cast = _CAST.fullmatch(text)
        if cast is not None and _closes("(" + cast[1] + ")") == len(cast[1]) + 1:
            text = cast[1]
        match = _C_CAST.match(text)
        text = tidy(text[match.end() :] if match is not None else text)
        if text.startswith("&"):
            text = tidy(text[1:])
        if text == before:
            return text
    return text
