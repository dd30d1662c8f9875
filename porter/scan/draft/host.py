# SPDX-License-Identifier: Apache-2.0
"""Host code run with names for its sizes: what it launches, with what, under which conditions.

A condition over sizes whose arm gives up (returns, throws, exits) does not hold where the launch is come to; of arms
that do not, the first one that launches is taken. What is not understood is None and stays so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from tree_sitter import Node

from porter.lang.cuda import find
from porter.model.functions import Function, Style, declared_name
from porter.model.program import Program
from porter.scan.draft import classes as cls
from porter.scan.draft import numbers as nums
from porter.scan.draft import templates
from porter.scan.draft.branches import Branches
from porter.scan.draft.numbers import Num
from porter.scan.draft.objects import INTEGER, bind
from porter.scan.draft.statements import FLOAT, GaveUp, Launched, Left, Return, Statements, TooLong
from porter.scan.draft.types import DEEPEST
from porter.scan.draft.values import (
    ENCODED,
    MADE,
    CallSite,
    KernelName,
    Lambda,
    LaunchFacts,
    MapValue,
    Offset,
    Pointer,
    Record,
    Scope,
    Word,
)

MULTIPROCESSORS = 4
"""What host code is told that the device has: few, so that persistent kernels launch few blocks."""
SMALLEST_SIZE = 5
"""The least constant of `main` that is taken for a size of the problem: below it stand ranks, flags and repetitions."""
_CHECKS = re.compile(r"(?:^|_)(?:assert|ASSERT|CHECK|REQUIRE|EXPECT)(?:$|_)|^assert$")
_MATH: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt, "sqrtf": math.sqrt, "rsqrt": lambda x: 1 / math.sqrt(x), "rsqrtf": lambda x: 1 / math.sqrt(x),
    "log2": math.log2, "log2f": math.log2, "exp2f": lambda x: 2.0**x,
}  # fmt: skip
_ROUNDED_UP = re.compile(r"(?:ceil_?div|cdiv|div_?up|div_?ceil|ceilDiv|DivUp|CEIL_DIV)$", re.IGNORECASE)
_COMPARED = {"==", "!=", "<", ">", "<=", ">="}
_LAUNCHERS = {"cudaLaunchKernel", "cudaLaunchCooperativeKernel"}
_ATTRIBUTES = {"MultiProcessorCount": MULTIPROCESSORS, "ComputeCapabilityMinor": 0}
"""What `cudaDeviceGetAttribute` says of every device."""
_MAJOR = "ComputeCapabilityMajor"
HOPPER = 9
"""What it says of Hopper's."""
_SHIFTS: dict[str, Callable[[int, int], int]] = {
    "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b, "&": lambda a, b: a & b, "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}  # fmt: skip


class Host(Statements):
    """Runs functions of one program, on a device of compute capability `major`, until they launch `kernel`."""

    def __init__(self, program: Program, kernel: Function, major: int = HOPPER) -> None:
        files = program.sources.files.values()
        super().__init__(cls.Classes(files), Branches(files))
        self.program, self.kernel = program, kernel
        self._attributes = {**_ATTRIBUTES, _MAJOR: major}
        self.kernels = {f.name for f in program.kernels}
        self.passed_over: set[tuple[str, ...]] = set()
        """Template arguments with which launches are none that a function comes to."""
        self.given: dict[str, str] = {}
        """Arguments of a function's own template, where no text of the sources has them."""
        self.globals = Scope()
        self._calls: list[CallSite] = []
        self._by_name: dict[str, list[Function]] = {}
        for function in program.functions:
            if function.style in (Style.HOST, Style.DEVICE, Style.METHOD):
                self._by_name.setdefault(function.name, []).append(function)

    # --- Functions

    def launch_of(self, root: Function) -> LaunchFacts | None:
        """The first launch of the kernel that a function comes to, with names for what it is handed."""
        self.conditions, self.parameters, self.depth, self.steps = [], [], 0, 0
        self.globals, self._calls = Scope(), []
        scope = Scope(self.globals, function=root)
        given = templates.instantiated(self.program, root) | self.given
        scope.types |= {n: self.argument(t, self.globals) for n, t in given.items() if n in root.template_params}
        for param in root.params:
            value = self.parameter(param.node, param.name, scope, root.name == "main")
            scope.names[param.name] = value
            self.parameters.append((param.name, value))
        try:
            self._body(root.body, scope)
        except Launched as found:
            return found.facts
        except (Return, GaveUp, Left, TooLong, RecursionError):
            pass
        return None

    def parameter(self, node: Node | None, name: str, scope: Scope, is_main: bool = False) -> Any:
        """What stands for a parameter."""
        kind = node.child_by_field_name("type") if node is not None else None
        if node is None or kind is None or is_main:
            return None
        whole = cls.text_of(node)
        pointer = any(True for _ in find(node, "pointer_declarator"))
        text = self.resolve(cls.text_of(kind), scope)
        if pointer and text == "CUtensorMap":
            return MapValue(name)
        if pointer:
            return Pointer(name, text, bool(re.search(r"\bconst\b", whole.split("*")[0])))
        if re.search(r"\b(?:torch|at)\s*::\s*Tensor\b|\bTensor\b", whole):
            return Pointer(name, "", False)
        if text == "CUtensorMap":
            return MapValue(name)
        if INTEGER.match(text) or text in FLOAT:
            return nums.name(name)
        return self._object(text, scope, lambda field: nums.name(field))

    def _object(self, kind: str, scope: Scope, number: Callable[[str], Num]) -> Record | None:
        """An object of a class of the sources, with a name for each of its numbers and memory for each pointer."""
        template = self.classes.find(cls.template_id(kind)[0])
        if template is None or self.depth > DEEPEST:
            return None
        found = Record(kind)
        for name, text, extents, pointer, whole in cls.fields(template):
            inner = self.resolve(text, scope)
            if extents:
                found.items[name] = None
            elif pointer:
                found.items[name] = Pointer(name, inner, bool(re.search(r"\bconst\b", whole.split("*")[0])))
            elif inner == "CUtensorMap":
                found.items[name] = MapValue(name)
            elif INTEGER.match(inner) or inner in FLOAT:
                found.items[name] = number(name)
            else:
                found.items[name] = None
        return found

    def call(
        self, function: Function, arguments: list[Any], template: tuple[str, ...], within: Scope | None = None
    ) -> Any:
        """`within`: the class whose static method it is, with its template arguments."""
        if self.depth > DEEPEST:
            return None
        scope = Scope(within or self.globals, function=function)
        for name, text in zip(function.template_params, template, strict=False):
            scope.types[name] = text
        head = function.node.parent
        defaults = dict(cls.template_params(head)) if head is not None and head.type == "template_declaration" else {}
        for name in function.template_params[len(template) :]:
            if (default := defaults.get(name)) is not None:
                scope.types[name] = self.argument(default, scope)
        bind(function.node, arguments, scope, self.value)
        return self._enter(function.body, scope)

    def _enter(self, body: Node, scope: Scope) -> Any:
        self.depth += 1
        try:
            self._body(body, scope)
        except Return as result:
            return result.value
        finally:
            self.depth -= 1
        return None

    # --- Expressions

    def value(self, node: Node, scope: Scope) -> Any:
        handler = getattr(self, f"_value_{node.type}", None)
        return handler(node, scope) if handler is not None else None

    def _value_parenthesized_expression(self, node: Node, scope: Scope) -> Any:
        inner = [c for c in node.named_children if c.type != "comment"]
        return self.value(inner[-1], scope) if inner else None

    _value_condition_clause = _value_parenthesized_expression

    def _value_number_literal(self, node: Node, scope: Scope) -> Any:
        text = cls.text_of(node).replace("'", "")
        if re.fullmatch(r"(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)[uUlLzZ]*", text):
            digits = text.rstrip("uUlLzZ")
            return nums.const(int(digits, 8) if re.fullmatch(r"0[0-7]+", digits) else int(digits, 0))
        try:
            return nums.const(float(text.rstrip("fFlL")))
        except ValueError:
            return None

    def _value_true(self, node: Node, scope: Scope) -> Any:
        return nums.const(node.type == "true")

    _value_false = _value_true

    def _value_initializer_list(self, node: Node, scope: Scope) -> Any:
        items = [c for c in node.named_children if c.type != "comment"]
        if any(i.type == "initializer_pair" for i in items):
            return self._constructed("", node, scope)
        return [self.value(i, scope) for i in items]

    def _value_compound_literal_expression(self, node: Node, scope: Scope) -> Any:
        kind, value = node.child_by_field_name("type"), node.child_by_field_name("value")
        if kind is None or value is None:
            return None
        text = self.resolve(cls.text_of(kind), scope)
        return self._triple(value, scope) if text.endswith("dim3") else self._constructed(text, value, scope)

    def _value_comma_expression(self, node: Node, scope: Scope) -> Any:
        found = None
        for child in node.named_children:
            found = self.value(child, scope)
        return found

    def _value_identifier(self, node: Node, scope: Scope) -> Any:
        return self.named(cls.text_of(node), scope)

    _value_qualified_identifier = _value_identifier
    _value_this = _value_identifier
    _value_template_function = _value_identifier
    _value_type_identifier = _value_identifier

    def named(self, text: str, scope: Scope) -> Any:
        """What a name stands for."""
        holder = scope.holder(text)
        if holder is not None:
            return holder.names[text]
        given = scope.type_of(text)
        if given is not None:
            if re.fullmatch(r"-?\d+", given):
                return nums.const(int(given))
            return nums.const(given == "true") if given in ("true", "false") else Word(given)
        for level in scope.levels():
            own = level.names.get("class")
            if own is not None and (node := cls.constant_of(own, text)) is not None:
                return self.value(node, level)
        name, arguments = cls.template_id(text)
        if name.split("::")[-1].strip() in self.kernels:
            return KernelName(name, tuple(templates.filled(self.argument(a, scope), scope) for a in arguments))
        found = self._constant(text, scope)
        if scope.owner is not None and scope.owner.name == "main" and self._is_size_of_main(text, found):
            found = self.globals.names[text] = self.sized(text, found.known)
        return found

    def _is_size_of_main(self, name: str, value: Any) -> bool:
        """Whether a constant of the file is nothing but a number that `main` hands to the kernel: no code of the GPU
        and no template knows it."""
        if not isinstance(value, Num) or not isinstance(value.known, int) or value.known < SMALLEST_SIZE:
            return False
        if [n.type for n in self.branches.constants(name)] != ["number_literal"]:
            return False
        word = rf"\b{re.escape(name)}\b"
        hidden = {id(f) for f in self.program.functions if name in (*f.template_params, *(p.name for p in f.params))}
        others = (f for f in self.program.functions if f.name != "main" and id(f) not in hidden)
        lists = (t for f in self._by_name.get("main", ()) for t in find(f.body, "template_argument_list"))
        texts = [*(f.text(f.node) for f in others), *map(cls.text_of, lists)]
        return not any(re.search(word, text) for text in texts)

    def _constant(self, text: str, scope: Scope) -> Any:
        owner = scope.owner
        known = self.program.constants if owner is None else self.program.constants_in(owner)
        found = known.evaluate(text)
        places = [""] if owner is not None else []
        places += [f"{s.names['class'].namespace}::" for s in scope.levels() if "class" in s.names]
        for place in places:
            found = self.program.constants.evaluate(place + text) if found is None else found
        if found is not None:
            return nums.const(found)
        head, last = cls.split_scope(text)
        if head:
            template, inner = self._class(head, scope)
            node = cls.constant_of(template, last.strip()) if template is not None else None
            if node is not None:
                return self.value(node, inner)
        meant = known.meant(text)
        node = cls.expression(meant.text) if meant is not None and meant.text and meant.text != text else None
        if meant is None or not meant.text:
            begins = self.branches.constants(text)
            node = begins[0] if len(begins) == 1 else None
        return self._deeper(node, scope) if node is not None and self.depth < DEEPEST else Word(text)

    def _deeper(self, node: Node, scope: Scope) -> Any:
        """What another text comes to that a name stands for."""
        if self.depth >= DEEPEST:
            return None
        self.depth += 1
        try:
            return self.value(node, scope)
        finally:
            self.depth -= 1

    def _value_cast_expression(self, node: Node, scope: Scope) -> Any:
        value, kind = node.child_by_field_name("value"), node.child_by_field_name("type")
        return self._cast(self.value(value, scope), cls.text_of(kind) if kind is not None else "") if value else None

    def _cast(self, value: Any, kind: str) -> Any:
        if isinstance(value, Num) and value.known is not None:
            if cls.plain_type(kind) in FLOAT:
                return nums.const(float(value.known))
            if isinstance(value.known, float) and INTEGER.match(cls.plain_type(kind)):
                return nums.const(int(value.known))
        return value

    def _value_pointer_expression(self, node: Node, scope: Scope) -> Any:
        inner = node.child_by_field_name("argument")
        return self.value(inner, scope) if inner is not None else None

    def _value_unary_expression(self, node: Node, scope: Scope) -> Any:
        inner, sign = node.child_by_field_name("argument"), node.child_by_field_name("operator")
        value = self.value(inner, scope) if inner is not None else None
        if not isinstance(value, Num) or sign is None:
            return None
        if cls.text_of(sign) == "!":
            return nums.const(not value.known) if value.known is not None else nums.negated(value)
        return nums.apply("-", nums.const(0), value) if cls.text_of(sign) == "-" else value

    def _value_conditional_expression(self, node: Node, scope: Scope) -> Any:
        parts = [node.child_by_field_name(n) for n in ("condition", "consequence", "alternative")]
        if any(p is None for p in parts):
            return None
        condition, first, second = (p for p in parts if p is not None)
        found = self.value(condition, scope)
        if isinstance(found, Num) and found.known is not None:
            return self.value(first if found.known else second, scope)
        if isinstance(found, Num):
            self.conditions.append(found)
        a = self.value(first, scope)
        if isinstance(found, Num):
            self.conditions.pop()
        b = self.value(second, scope)
        if isinstance(found, Num) and isinstance(a, Num) and isinstance(b, Num):
            return nums.apply("if", found, a, b)
        return a if b is None else None if isinstance(a, Num) else a

    def _value_binary_expression(self, node: Node, scope: Scope) -> Any:
        sign = node.child_by_field_name("operator")
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if sign is None or left is None or right is None:
            return None
        op = {"&&": "and", "||": "or"}.get(cls.text_of(sign), cls.text_of(sign))
        a, b = self.value(left, scope), self.value(right, scope)
        if op in ("and", "or"):
            return self._both(op, a, b)
        if isinstance(a, Pointer) and isinstance(b, Num) and op == "+":
            return Offset(a, b)
        if isinstance(a, Offset) and isinstance(b, Num) and op == "+":
            return Offset(a.base, nums.apply("+", a.elements, b))
        if isinstance(a, list) and isinstance(b, Num) and isinstance(b.known, int) and op == "+":
            return a[max(b.known, 0) :]
        if not isinstance(a, Num) or not isinstance(b, Num):
            return None
        if op in _SHIFTS:
            x, y = a.known, b.known
            return nums.const(_SHIFTS[op](x, y)) if isinstance(x, int) and isinstance(y, int) else None
        if op == "/":
            op = "/" if isinstance(a.known, float) or isinstance(b.known, float) else "//"
        return nums.apply(op, a, b) if op in ("+", "-", "*", "/", "//", "%", *_COMPARED) else None

    @staticmethod
    def _both(op: str, a: Any, b: Any) -> Num | None:
        """What is not understood says nothing of the sizes; the rest is kept."""
        known = [x for x in (a, b) if isinstance(x, Num)]
        for x in known:
            if x.known is not None and bool(x.known) == (op == "or"):
                return x
        known = [x for x in known if x.known is None]
        return nums.apply(op, *known) if len(known) == 2 else known[0] if known else None

    def _value_assignment_expression(self, node: Node, scope: Scope) -> Any:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        sign = node.child_by_field_name("operator")
        if left is None or right is None or sign is None:
            return None
        value, op = self.value(right, scope), cls.text_of(sign)
        if op != "=":
            old, by = self.value(left, scope), {"/=": "//", "+=": "+", "-=": "-", "*=": "*"}.get(op)
            both = isinstance(old, Num) and isinstance(value, Num)
            value = nums.apply(by, old, value) if by and both else None
        self._assign(left, value, scope)
        return value

    def _value_update_expression(self, node: Node, scope: Scope) -> Any:
        inner = node.child_by_field_name("argument")
        value = self.value(inner, scope) if inner is not None else None
        if inner is not None and isinstance(value, Num):
            self._assign(inner, nums.apply("+" if "++" in cls.text_of(node) else "-", value, nums.const(1)), scope)
        return value

    def _assign(self, target: Node, value: Any, scope: Scope) -> None:
        if target.type == "identifier":
            name = cls.text_of(target)
            holder = scope.holder(name) or self.globals
            old = holder.names.get(name)
            if isinstance(old, MapValue) and isinstance(value, MapValue):
                value.name = name
            holder.names[name] = value
        elif target.type in ("field_expression", "subscript_expression"):
            holder_node = target.child_by_field_name("argument")
            key = self._key(target, scope)
            holder_value = self._made(holder_node, scope) if holder_node is not None else None
            if isinstance(holder_value, tuple) and key in ("x", "y", "z") and holder_node is not None:
                at = "xyz".index(str(key))
                self._assign(holder_node, (*holder_value[:at], value, *holder_value[at + 1 :]), scope)
            elif isinstance(holder_value, Record):
                holder_value.items[str(key)] = value
            elif isinstance(holder_value, list) and isinstance(key, int) and key < 64:
                holder_value += [None] * (key + 1 - len(holder_value))
                holder_value[key] = value
        elif target.type in ("pointer_expression", "parenthesized_expression"):
            inner = target.child_by_field_name("argument") or target.named_child(0)
            held = self.value(inner, scope) if inner is not None else None
            if isinstance(held, MapValue) and isinstance(value, MapValue):
                held.fields = value.fields

    def _key(self, node: Node, scope: Scope) -> str | int | None:
        field = node.child_by_field_name("field")
        if field is not None:
            return cls.text_of(field)
        indices = node.child_by_field_name("indices") or node.child_by_field_name("index")
        inner = indices.named_children if indices is not None and indices.type.endswith("list") else [indices]
        value = self.value(inner[0], scope) if inner and inner[0] is not None else None
        return value.known if isinstance(value, Num) and isinstance(value.known, int) else None

    def _made(self, node: Node, scope: Scope) -> Any:
        """What holds a member that is assigned to, made where nothing is there yet."""
        found = self.value(node, scope)
        if found is None or isinstance(found, Word):
            found = Record("")
            self._assign(node, found, scope)
        return found

    def _value_field_expression(self, node: Node, scope: Scope) -> Any:
        holder = node.child_by_field_name("argument")
        key = self._key(node, scope)
        value = self.value(holder, scope) if holder is not None else None
        if key == "multiProcessorCount":
            return nums.const(MULTIPROCESSORS)
        if isinstance(value, Record):
            return value.items.get(str(key))
        if isinstance(value, tuple) and key in ("x", "y", "z"):
            return value["xyz".index(str(key))]
        return None

    def _value_subscript_expression(self, node: Node, scope: Scope) -> Any:
        holder = node.child_by_field_name("argument")
        key, value = self._key(node, scope), self.value(holder, scope) if holder is not None else None
        return value[key] if isinstance(value, list) and isinstance(key, int) and 0 <= key < len(value) else None

    def _value_lambda_expression(self, node: Node, scope: Scope) -> Any:
        return Lambda(node, scope)

    def _value_sizeof_expression(self, node: Node, scope: Scope) -> Any:
        kind, value = node.child_by_field_name("type"), node.child_by_field_name("value")
        text = cls.text_of(kind) if kind is not None else None
        if value is not None:
            inner = cls.text_of(value).strip("() ")
            pointed = self.named(inner.lstrip("*& "), scope) if re.fullmatch(r"[*\s]*\w+", inner) else None
            if isinstance(pointed, Pointer):
                text = pointed.element if "*" in inner else "void*"
            elif not isinstance(pointed, Num):
                text = inner
        size = self.bytes_of(text, scope) if text is not None else None
        return nums.const(size[0]) if size is not None else None

    # --- Calls

    def _value_call_expression(self, node: Node, scope: Scope) -> Any:
        callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        if callee is None:
            return None
        given = [c for c in arguments.named_children if c.type != "comment"] if arguments is not None else []
        syntax = next((c for c in node.named_children if c.type == "kernel_call_syntax"), None)
        if syntax is not None:
            return self._launched(callee, syntax, given, scope)
        text = cls.text_of(callee)
        name, template = cls.template_id(text)
        last = re.split(r"::|\.|->", name)[-1].strip()
        if last in ("exit", "abort", "_Exit", "terminate", "__builtin_trap"):
            raise GaveUp
        if last == "dim3":
            return self._triple(arguments, scope)
        if callee.type in ("identifier", "qualified_identifier", "template_function") and self._makes(text, scope):
            return self._constructed(self.resolve(text, scope), arguments, scope)
        if callee.type == "field_expression":
            found = self._of_tensor(callee, last, given, scope)
            if found is not None:
                return found
        values = [self.value(c, scope) for c in given]
        self._calls.append(CallSite(scope.owner, node))
        try:
            found = self._called(given, text, last, template, values, scope)
        finally:
            self._calls.pop()
        if self._function(last, len(values)) is None:
            self._written_through(given, scope)
        return found

    def _makes(self, text: str, scope: Scope) -> bool:
        """Whether a call by this name makes an object of a class."""
        name = cls.template_id(text)[0].split("::")[-1].strip()
        others = (f for f in self._by_name.get(name, ()) if f.owner.split("::")[-1] != name)
        return not any(others) and self._class(text, scope)[0] is not None

    def _class_of_call(self, text: str, function: Function, scope: Scope) -> Scope | None:
        """The class that a call names, or that it stands in itself."""
        head, _ = cls.split_scope(text)
        if head:
            owner, inner = self._class(head, scope)
            return inner if owner is not None else None
        own = function.owner.split("::")[-1]
        return next((s for s in scope.levels() if "class" in s.names and s.names["class"].name == own), None)

    def _written_through(self, given: list[Node], scope: Scope) -> None:
        """Numbers whose addresses an unknown function takes are what it makes of them."""
        whole = " ".join(map(cls.text_of, given))
        for node in given:
            inner = node.child_by_field_name("argument") if node.type == "pointer_expression" else None
            if inner is not None and inner.type == "identifier" and isinstance(self.value(inner, scope), Num):
                known = next((v for word, v in self._attributes.items() if word in whole), None)
                self._assign(inner, nums.const(known) if known is not None else None, scope)

    def _called(
        self, nodes: list[Node], text: str, last: str, template: list[str], values: list[Any], scope: Scope
    ) -> Any:
        if last.endswith("_cast") or last in ("move", "forward", "remove_const"):
            return self._cast(values[0], template[0] if template else "") if values else None
        if len(values) >= 11 and isinstance(values[1], Word) and "TENSOR_MAP_DATA_TYPE" in values[1].text:
            return self._encoded(values)
        if last in _LAUNCHERS or last.startswith("cudaLaunchKernelEx"):
            return self._launched_by_call(last, values)
        if last.startswith(("cudaMalloc", "cudaMem")):
            return _of_memory(last, values)
        if last in ("empty", "zeros", "empty_like") and values and isinstance(values[0], list):
            return Pointer("out", "", extents=tuple(v for v in values[0] if isinstance(v, Num)))
        held = scope.holder(text)
        if held is not None and isinstance(held.names[text], Lambda):
            return self._call_lambda(held.names[text], values)
        function = self._function(last, len(values))
        if function is not None:
            given = tuple(self.argument(t, scope) for t in template)
            return self.call(function, values, given, self._class_of_call(text, function, scope))
        expanded = self.branches.macro(last, [cls.text_of(a) for a in nodes])
        if expanded is not None and (node := cls.expression(expanded)) is not None:
            return self._deeper(node, scope)
        if _CHECKS.search(last) and values and isinstance(values[0], Num) and values[0].known is None:
            self.conditions.append(values[0])
            return None
        return self._computed(last, text, values, scope)

    def _computed(self, last: str, text: str, values: list[Any], scope: Scope) -> Any:
        numbers = [v for v in values if isinstance(v, Num)]
        if last in ("min", "max") and len(numbers) == len(values) == 2:
            return nums.apply(last, *numbers)
        if _ROUNDED_UP.search(last) and len(numbers) == len(values) == 2:
            return nums.apply("ceil_div", *numbers)
        if last in _MATH and numbers and numbers[0].known is not None:
            return nums.const(_MATH[last](float(numbers[0].known)))
        if len(values) == 1:
            kind = self.resolve(text, scope)
            if INTEGER.match(kind) or kind in FLOAT or kind.endswith("Fn"):
                return self._cast(values[0], kind)
        return None

    def _function(self, name: str, arguments: int) -> Function | None:
        return next((f for f in self._by_name.get(name, ()) if len(f.params) >= arguments), None)

    def _call_lambda(self, value: Lambda, arguments: list[Any]) -> Any:
        scope = Scope(value.scope)
        body = value.node.child_by_field_name("body")
        declarator = value.node.child_by_field_name("declarator")
        names = [
            declared_name(p) for p in (find(declarator, "parameter_declaration") if declarator is not None else ())
        ]
        for name, argument in zip(names, arguments, strict=False):
            if name is not None:
                scope.names[cls.text_of(name)] = argument
        return self._enter(body, scope) if body is not None else None

    def _value_primitive_type(self, node: Node, scope: Scope) -> Any:
        return Word(cls.text_of(node))

    def _of_tensor(self, callee: Node, method: str, given: list[Node], scope: Scope) -> Any:
        """What PyTorch says of a tensor."""
        holder = callee.child_by_field_name("argument")
        value = self.value(holder, scope) if holder is not None else None
        if not isinstance(value, Pointer):
            return None
        if method == "size" and len(given) == 1:
            at = self.value(given[0], scope)
            if isinstance(at, Num) and isinstance(at.known, int):
                if at.known < len(value.extents):
                    return value.extents[at.known]
                return value.asked.setdefault(at.known, nums.name(f"{value.name}_{at.known}"))
        if method.startswith(("data_ptr", "const_data_ptr", "mutable_data_ptr")):
            element = re.search(r"<\s*([\w:]+)\s*>", cls.text_of(callee))
            value.element = element.group(1) if element is not None else value.element
        return value

    def _encoded(self, values: list[Any]) -> Any:
        target = values[0]
        if isinstance(target, MapValue):
            target.fields = {**dict(zip(ENCODED, values[1:], strict=False)), MADE: tuple(self._calls)}
        return None

    def _triple(self, node: Node | None, scope: Scope) -> tuple[Num, ...] | None:
        """Three extents of what a `dim3` is made of."""
        if node is None:
            return None
        if node.type in ("argument_list", "initializer_list"):
            found = [self.value(c, scope) for c in node.named_children if c.type != "comment"]
        else:
            found = [self.value(node, scope)]
        return _three(found[0] if len(found) == 1 else found)

    def _launched(self, callee: Node, syntax: Node, given: list[Node], scope: Scope) -> None:
        kernel = self.value(callee, scope)
        parts = [self.value(c, scope) for c in syntax.named_children if c.type != "comment"]
        parts += [None] * (4 - len(parts))
        smem = parts[2] if len(syntax.named_children) > 2 else nums.const(0)
        self._arrive(kernel, parts[0], parts[1], smem, [self.value(c, scope) for c in given], None, False)

    def _launched_by_call(self, last: str, values: list[Any]) -> None:
        if last in _LAUNCHERS and len(values) >= 5:
            given = values[3] if isinstance(values[3], list) else []
            self._arrive(values[0], values[1], values[2], values[4], given, None, "Cooperative" in last)
        elif len(values) >= 2 and isinstance(values[0], Record):
            config = values[0].items
            given = values[2:]
            if last.endswith("C") and given and isinstance(given[0], list):
                given = given[0]
            smem = config.get("dynamicSmemBytes", nums.const(0))
            self._arrive(values[1], config.get("gridDim"), config.get("blockDim"), smem, given,
                         _cluster_of(config.get("attrs")), _is_cooperative(config.get("attrs")))  # fmt: skip

    def _arrive(
        self, kernel: Any, grid: Any, block: Any, smem: Any, given: list[Any], cluster: Any, cooperative: bool
    ) -> None:
        if not isinstance(kernel, KernelName) or kernel.name.split("::")[-1].strip() != self.kernel.name:
            return
        if kernel.template in self.passed_over:
            return
        raise Launched(
            LaunchFacts(
                kernel, _three(grid), _three(block), _three(cluster) if cluster is not None else None,
                smem if isinstance(smem, Num) else None, given, cooperative, list(self.conditions), self.parameters,
            )
        )  # fmt: skip


def _of_memory(function: str, values: list[Any]) -> None:
    """What the CUDA runtime does with memory."""
    if len(values) < 2:
        return
    target, given = values[0], values[1]
    if isinstance(target, MapValue) and isinstance(given, MapValue):
        target.fields = given.fields
    elif isinstance(target, Pointer) and isinstance(given, Num) and function.startswith("cudaMalloc"):
        target.nbytes = given
    elif isinstance(target, Pointer) and function.startswith("cudaMemset"):
        target.zeroed = isinstance(given, Num) and given.known == 0


def _three(value: Any) -> tuple[Num, ...] | None:
    if isinstance(value, Num):
        return (value, nums.const(1), nums.const(1))
    if isinstance(value, Record):
        value = [value.items.get(k) for k in "xyz" if value.items.get(k) is not None]
    if isinstance(value, list | tuple) and value and all(isinstance(v, Num) for v in value):
        return (*value, *(nums.const(1),) * (3 - len(value)))[:3]
    return None


def _attributes(value: Any) -> list[Record]:
    items = value if isinstance(value, list) else list(value.items.values()) if isinstance(value, Record) else []
    return [i for i in items if isinstance(i, Record)] or ([value] if isinstance(value, Record) else [])


def _cluster_of(value: Any) -> Any:
    for attribute in _attributes(value):
        inner = attribute.items.get("val")
        found = inner.items.get("clusterDim") if isinstance(inner, Record) else None
        if found is not None:
            return found
    return None


def _is_cooperative(value: Any) -> bool:
    return any(isinstance(i := a.items.get("id"), Word) and i.text.endswith("Cooperative") for a in _attributes(value))
