# SPDX-License-Identifier: Apache-2.0
"""Where a compute capability goes that Python asks for: through names, attributes, parameters and results, to what is
decided by it. As `porter.passes.chip_flow` for C++."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import libcst as cst

from porter.lang.python import PythonFile, called, pieces, value_of, walk
from porter.model.spellings import Spellings

Form = tuple[int, int] | int | str
"""What a capability is written as, told by Hopper's: (9, 0), 9, 90, 900, "9.0", "90"."""
_ROUNDS = 6
Given = Mapping[str, Form | None]
"""Functions of other modules that give a capability, with what they give if that is known."""
NOTHING: Given = MappingProxyType({})
_FUNCTIONS = (cst.FunctionDef, cst.Lambda)
_COMPREHENSIONS = (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)
_HANDS_ON = (
    cst.Attribute, cst.BinaryOperation, cst.Tuple, cst.List, cst.Set, cst.Dict, cst.Await, *_COMPREHENSIONS,
    cst.FormattedString, cst.ConcatenatedString, cst.Slice, cst.Lambda,
)  # fmt: skip
_DROPS = (
    cst.Expr, cst.Raise, cst.Del, cst.If, cst.While, cst.Assert, cst.BooleanOperation, cst.WithItem, cst.ExceptHandler,
    cst.ExceptStarHandler, cst.FunctionDef, cst.ClassDef, cst.Module, cst.MatchCase,
)  # fmt: skip
_WRAPS = (
    cst.Arg, cst.BaseElement, cst.BaseDictElement, cst.SubscriptElement, cst.Index, cst.ComparisonTarget, cst.CompIf,
    cst.AssignTarget, cst.FormattedStringExpression, cst.Decorator, cst.Annotation,
)  # fmt: skip
"""Nodes that only say how another one is a part of what is around."""
_Key = tuple[cst.CSTNode | None, str]


def literal(node: cst.CSTNode) -> Form:
    """A pair, number or text that is written down; the empty text for everything else."""
    value = value_of(node, "")
    try:
        hash(value)
    except TypeError:
        return ""
    return value if isinstance(value, (tuple, int, str)) else ""


def given_by_place(call: cst.Call) -> list[cst.BaseExpression]:
    """Arguments without keywords."""
    return [a.value for a in call.args if a.keyword is None and a.star != "**"]


class Capabilities:
    """What expressions of a module hold of a capability, and the `ends` where something is decided by one: comparisons,
    subjects of `match`, subscripts and calls. `given`: functions of other modules that give one, with what they give if
    that is known."""

    def __init__(self, file: PythonFile, spellings: Spellings, given: Given = NOTHING) -> None:
        self.file = file
        self._spellings = spellings
        self.nodes = list(walk(file.module))
        self._forms: dict[_Key, Form] = {}
        self._mixed: set[_Key] = set()
        self._asked: set[_Key] = set()
        self._texts: set[_Key] = set()
        self._local: set[_Key] = set()
        self._set: dict[_Key, list[cst.BaseExpression]] = defaultdict(list)
        self._functions: dict[str, list[cst.FunctionDef]] = defaultdict(list)
        self.ends: list[cst.CSTNode] = []
        for node in self.nodes:
            self._note(node, given)
        for name, form in given.items():
            if name not in self._functions:
                self._give((None, f".{name}"), form)
        for _ in range(_ROUNDS):
            before = self._known
            self.ends = []
            for node in self.nodes:
                if self._begins(node):
                    self._follow(node)
            if before == self._known:
                break

    def _note(self, node: cst.CSTNode, given: Given) -> None:
        """Functions and variables that a node makes."""
        match node:
            case cst.FunctionDef(name=cst.Name(value=name)):
                self._functions[name].append(node)
            case cst.ClassDef(name=cst.Name(value=name), body=cst.IndentedBlock(body=body)):
                found = (f for f in body if isinstance(f, cst.FunctionDef))
                self._functions[name] += [f for f in found if f.name.value == "__init__"]
            case cst.Param(name=cst.Name(value=name)):
                self._local.add((self._scope(node), name))
            case cst.Name(value=name) if self.file.is_set(node):
                self._local.add((self._scope(node), name))
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value):
                self._set[self._scope(node), name].append(value)
            case cst.ImportFrom(names=[*aliases]):
                for alias in aliases:
                    if alias.evaluated_name in given:
                        local = alias.evaluated_alias or alias.evaluated_name
                        self._give((None, local), given[alias.evaluated_name])

    @property
    def _known(self) -> tuple[int, ...]:
        return len(self._forms), len(self._mixed), len(self._asked)

    @property
    def handed_out(self) -> dict[str, Form | None]:
        """The functions of the module that give a capability, with what they give if that is known."""
        return {
            name: self._forms.get((None, name))
            for name, defined in self._functions.items()
            if (None, name) in self._asked and any(isinstance(self.file.parents[f], cst.Module) for f in defined)
        }

    # names

    def _scope(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The function that a node is in; None outside of any."""
        return next((n for n in self.file.above(node) if isinstance(n, _FUNCTIONS)), None)

    def _key(self, node: cst.CSTNode, name: str) -> _Key:
        """The variable that a name is: of the nearest function that sets it, or of the module."""
        scope = self._scope(node)
        while scope is not None and (scope, name) not in self._local:
            scope = self._scope(scope)
        return scope, name

    @staticmethod
    def _member(node: cst.CSTNode) -> str | None:
        """The key of an attribute, or of an element that is named by a text."""
        if isinstance(node, cst.Attribute):
            return f".{node.attr.value}"
        text = _index(node)
        return f"[{text}]" if isinstance(text, str) else None

    def constant(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """What a name is set to once, or the expression itself."""
        if isinstance(node, cst.Name):
            values = self._set.get(self._key(node, node.value), [])
            return values[0] if len(values) == 1 else node
        return node

    def looped(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """What a name of a loop takes its values from."""
        for at in self.file.above(node) if isinstance(node, cst.Name) else ():
            loop = at.for_in if isinstance(at, _COMPREHENSIONS) else at if isinstance(at, cst.For) else None
            while loop is not None:
                if isinstance(loop.target, cst.Name) and loop.target.value == getattr(node, "value", ""):
                    return self.constant(loop.iter)
                loop = loop.inner_for_in if isinstance(loop, cst.CompFor) else None
        return None

    # where values begin

    def _begins(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Call):
            return self._spellings.are("python_capability", called(node))
        if isinstance(node, cst.Name):
            return self._key(node, node.value) in self._asked and not self.file.is_set(node)
        if isinstance(node, (cst.Attribute, cst.Subscript)) and not self.file.is_set(node):
            member = self._member(node)
            if isinstance(node, cst.Attribute) and self._spellings.are("python_member", node.attr.value):
                return not _is_of_software(node)
            return member is not None and (None, member) in self._asked
        return False

    def is_asked(self, node: cst.CSTNode) -> bool:
        return any(self._begins(n) for n in walk(node))

    # where they go

    def _around(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return next((n for n in self.file.above(node) if not isinstance(n, _WRAPS)), None)

    def _follow(self, node: cst.CSTNode) -> None:
        text = isinstance(node, cst.Name) and self._key(node, node.value) in self._texts
        child, above = node, self._around(node)
        while above is not None:
            text = text or isinstance(above, cst.FormattedString) or _makes_text(above)
            step = self._step(child, above, text)
            if step is None:
                return
            child, above = step, self._around(step)

    def _step(self, child: cst.CSTNode, node: cst.CSTNode, text: bool) -> cst.CSTNode | None:
        if isinstance(child, cst.BinaryOperation) and not text and _tests(node, child):
            return self._end(child, False)
        if isinstance(node, (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.NamedExpr)):
            targets = [t.target for t in node.targets] if isinstance(node, cst.Assign) else [node.target]
            for target in targets if child not in targets else ():
                self._set_to(target, child, text)
            return node if isinstance(node, cst.NamedExpr) else None
        if isinstance(node, (cst.Return, cst.Yield)):
            self._returned(child, node)
            return None
        if isinstance(node, (cst.For, cst.CompFor)):
            if child is node.iter:
                self._set_to(node.target, child, text)
            return None
        if isinstance(node, cst.Param):
            if child is node.default:
                self._give((self._scope(node), node.name.value), self.of(child))
            return None
        if isinstance(node, cst.Call):
            return self._passed(child, node, text)
        if isinstance(node, cst.Subscript):
            return node if child is node.value else self._end(node, text)
        if isinstance(node, cst.Comparison):
            identity = all(isinstance(c.operator, (cst.Is, cst.IsNot)) for c in node.comparisons)
            return self._end(node, False) if not identity else None
        if isinstance(node, cst.Match):
            return self._end(node, False)
        if isinstance(node, cst.IfExp):
            return node if child is not node.test else None
        if isinstance(node, cst.UnaryOperation):
            return None if isinstance(node.operator, cst.Not) else node
        if isinstance(node, cst.Dict) and self._of_dict(child, node):
            return None
        if isinstance(node, _HANDS_ON):
            return node
        return None if isinstance(node, _DROPS) else self._end(node, text)

    def _end(self, node: cst.CSTNode, text: bool) -> cst.CSTNode | None:
        if not (text and isinstance(node, cst.Call)) and node not in self.ends:
            self.ends.append(node)
        return None

    def _give(self, key: _Key, form: Form | None, text: bool = False) -> None:
        self._asked.add(key)
        if text:
            self._texts.add(key)
        if form is not None and self._forms.setdefault(key, form) != form:
            self._mixed.add(key)

    def _set_to(self, target: cst.CSTNode, value: cst.CSTNode, text: bool) -> None:
        form = self.of(value)
        if isinstance(target, cst.Name):
            self._give(self._key(target, target.value), form, text)
        elif isinstance(target, (cst.Tuple, cst.List)):
            parts: list[Form | None] = [9, None] if form == (9, 0) else [None, None]
            for part, one in zip(target.elements, [*parts, *[None] * len(target.elements)], strict=False):
                if isinstance(part.value, cst.Name):
                    self._give(self._key(part.value, part.value.value), one)
        elif (member := self._member(target)) is not None and not text:
            self._give((None, member), form)

    def _of_dict(self, child: cst.CSTNode, node: cst.Dict) -> bool:
        """Whether a value of a dictionary is known by a text."""
        for element in node.elements:
            if element.value is child and isinstance(element, cst.DictElement):
                key = value_of(element.key)
                if isinstance(key, str):
                    self._give((None, f"[{key}]"), self.of(child))
                    return True
        return False

    def _returned(self, child: cst.CSTNode, node: cst.CSTNode) -> None:
        function = next((n for n in self.file.above(node) if isinstance(n, cst.FunctionDef)), None)
        if function is not None:
            form = self.of(child)
            self._give((None, function.name.value), form)
            self._give((None, f".{function.name.value}"), form)

    def _passed(self, child: cst.CSTNode, call: cst.Call, text: bool) -> cst.CSTNode | None:
        func = call.func
        if child is func:
            method = isinstance(func, cst.Attribute) and self._spellings.are("lookup", func.attr.value)
            return call if not (method and given_by_place(call)) else self._end(call, False)
        name = called(call)
        if isinstance(func, cst.Attribute) and name in ("append", "add", "extend"):
            self._set_to(func.value, child, text)
            return None
        if self._spellings.are("python_shown", name):
            return None
        if self._spellings.are("python_keeps", name):
            return call
        defined = self._functions.get(name, [])
        for function in defined:
            for param, value in _bound(call, function):
                if value.value is child:
                    self._give((function, param), self.of(child) if not value.star else None)
        return None if defined else self._end(call, text)

    # what expressions hold

    def of(self, node: cst.CSTNode) -> Form | None:
        """What an expression holds, or None."""
        match node:
            case cst.Call():
                return self._of_call(node)
            case cst.Name(value=name):
                key = self._key(node, name)
                return self._forms.get(key) if key not in self._mixed else None
            case cst.Subscript():
                if self.of(node.value) == (9, 0):
                    return 9 if _index(node) == 0 else None
                member = self._member(node)
                return self._forms.get((None, member)) if member is not None else None
            case cst.Attribute(attr=cst.Name(value=name)):
                if self._spellings.are("python_major", name):
                    return 9 if not _is_of_software(node) else None
                return self._forms.get((None, f".{name}"))
            case cst.NamedExpr(value=value):
                return self.of(value)
            case cst.Tuple(elements=[cst.Element(value=first), cst.Element(value=second)]):
                return (9, 0) if self.of(first) == 9 and self.is_asked(second) else None
            case cst.FormattedString() | cst.ConcatenatedString():
                return self._joined(node)
            case cst.BinaryOperation():
                return self._calculated(node)
        return None

    def _calculated(self, node: cst.BinaryOperation) -> Form | None:
        if isinstance(node.operator, cst.Modulo) and self.of(node.right) == (9, 0):
            return {"%d.%d": "9.0", "%d%d": "90", "%s.%s": "9.0", "%s%s": "90"}.get(str(literal(node.left)))
        if isinstance(node.operator, cst.Add):
            scale = self._scale(node.left) or self._scale(node.right)
            return {10: 90, 100: 900}.get(scale or 0)
        return None

    def _scale(self, node: cst.BaseExpression) -> int | None:
        """What the first number is multiplied with."""
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                if self.of(one) == 9 and isinstance(other, cst.Integer):
                    return other.evaluated_value
        return None

    def _of_call(self, node: cst.Call) -> Form | None:
        name, args = called(node), given_by_place(node)
        if self._spellings.are("python_capability", name) and name not in self._functions:
            return (9, 0)
        one = args[0] if len(args) == 1 else None
        if name in ("int", "tuple", "list") and one is not None:
            held = self.of(one)
            return 90 if held == "90" else held if not isinstance(held, str) else None
        if name == "join" and isinstance(node.func, cst.Attribute):
            match one:
                case cst.Call(func=cst.Name(value="map"), args=[_, cst.Arg(value=mapped)]) if self.of(mapped) == (9, 0):
                    between = value_of(node.func.value)
                    if isinstance(between, str):
                        return {"": "90", ".": "9.0"}.get(between)
        return self._forms.get((None, name)) or self._forms.get((None, f".{name}"))

    def _joined(self, node: cst.BaseString) -> Form | None:
        """f"{major}.{minor}" and f"{major}{minor}"."""
        found = list(pieces(node))
        values = [p.expression for p in found if isinstance(p, cst.FormattedStringExpression)]
        if len(values) != 2 or self.of(values[0]) != 9:
            return None
        return {"": "90", ".": "9.0"}.get("".join(p for p in found if isinstance(p, str)))


def _index(node: cst.CSTNode) -> object:
    """The literal that a subscript is, if it is one."""
    match node:
        case cst.Subscript(slice=[cst.SubscriptElement(slice=cst.Index(value=value))]):
            return value_of(value)
    return None


def _is_of_software(node: cst.Attribute) -> bool:
    """Whether a number is one of a program's version."""
    named = [n.attr.value if isinstance(n, cst.Attribute) else n.value for n in walk(node.value)
             if isinstance(n, (cst.Attribute, cst.Name))]  # fmt: skip
    return any("version" in name.lower() for name in named)


def _tests(node: cst.CSTNode, child: cst.CSTNode) -> bool:
    """Whether a value is taken as a truth: as such a capability is one for every chip, and a difference may not be."""
    if isinstance(node, cst.IfExp):
        return child is node.test
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.operator, cst.Not)
    return isinstance(node, (cst.If, cst.While, cst.Assert, cst.BooleanOperation))


def _makes_text(node: cst.CSTNode) -> bool:
    """Whether a text is made: by an operator that has one on its other side, or by a function."""
    if isinstance(node, cst.Call):
        return called(node) in ("str", "repr", "join", "format")
    sides = (node.left, node.right) if isinstance(node, cst.BinaryOperation) else ()
    return any(isinstance(s, cst.BaseString) and not isinstance(value_of(s), bytes) for s in sides)


def _bound(call: cst.Call, function: cst.FunctionDef) -> Iterator[tuple[str, cst.Arg]]:
    """The parameters of a function with what a call gives them."""
    names = [p.name.value for p in (*function.params.posonly_params, *function.params.params)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    yield from zip(names, (a for a in call.args if a.keyword is None and a.star != "**"), strict=False)
    yield from ((a.keyword.value, a) for a in call.args if a.keyword is not None)
