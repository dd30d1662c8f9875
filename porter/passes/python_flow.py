# SPDX-License-Identifier: Apache-2.0
"""Where a compute capability goes that Python asks for: through names, attributes, parameters and results, to what is
decided by it. As `porter.passes.chip_flow` for C++."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from porter.model.spellings import Spellings

Form = tuple[int, int] | int | str
"""What a capability is written as, told by Hopper's: (9, 0), 9, 90, 900, "9.0", "90"."""
_ROUNDS = 6
Given = Mapping[str, Form | None]
"""Functions of other modules that give a capability, with what they give if that is known."""
NOTHING: Given = MappingProxyType({})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_HANDS_ON = (
    ast.Attribute, ast.BinOp, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred, ast.Await, ast.ListComp, ast.SetComp,
    ast.GeneratorExp, ast.DictComp, ast.JoinedStr, ast.FormattedValue, ast.Slice, ast.Lambda,
)  # fmt: skip
_DROPS = (
    ast.Expr, ast.Raise, ast.Delete, ast.If, ast.While, ast.Assert, ast.BoolOp, ast.withitem, ast.excepthandler,
    ast.arg, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module, ast.match_case,
)  # fmt: skip
_Key = tuple[int, str]


def literal(node: ast.expr) -> Form:
    """A pair, number or text that is written down; the empty text for everything else."""
    try:
        value = ast.literal_eval(node)
        hash(value)
    except (ValueError, TypeError, RecursionError):
        return ""
    return value if isinstance(value, (tuple, int, str)) else ""


class Capabilities:
    """What expressions of a module hold of a capability, and the `ends` where something is decided by one: comparisons,
    subjects of `match`, subscripts and calls. `given`: functions of other modules that give one, with what they give if
    that is known."""

    def __init__(self, tree: ast.Module, spellings: Spellings, given: Given = NOTHING) -> None:
        self.tree = tree
        self._spellings = spellings
        self._parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._nodes = list(ast.walk(tree))
        self._forms: dict[_Key, Form] = {}
        self._mixed: set[_Key] = set()
        self._asked: set[_Key] = set()
        self._texts: set[_Key] = set()
        self._local: set[_Key] = set()
        self._set: dict[_Key, list[ast.expr]] = defaultdict(list)
        self._functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = defaultdict(list)
        self.ends: list[ast.AST] = []
        for node in self._nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._functions[node.name].append(node)
            elif isinstance(node, ast.ClassDef):
                self._functions[node.name] += [
                    f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"
                ]
            elif isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)):
                self._local.add((self._scope(node), node.arg if isinstance(node, ast.arg) else node.id))
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self._set[self._scope(node), node.targets[0].id].append(node.value)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    if alias.name in given:
                        self._give((0, alias.asname or alias.name), given[alias.name])
        for name, form in given.items():
            if name not in self._functions:
                self._give((0, f".{name}"), form)
        for _ in range(_ROUNDS):
            before = self._known
            self.ends = []
            for node in self._nodes:
                if self._begins(node):
                    self._follow(node)
            if before == self._known:
                break

    @property
    def _known(self) -> tuple[int, ...]:
        return len(self._forms), len(self._mixed), len(self._asked)

    @property
    def handed_out(self) -> dict[str, Form | None]:
        """The functions of the module that give a capability, with what they give if that is known."""
        return {
            name: self._forms.get((0, name))
            for name, defined in self._functions.items()
            if (0, name) in self._asked and any(isinstance(self._parents.get(id(f)), ast.Module) for f in defined)
        }

    # names

    def _scope(self, node: ast.AST) -> int:
        """The function that a node is in; 0 outside of any."""
        above = self._parents.get(id(node))
        while above is not None and not isinstance(above, _FUNCTIONS):
            above = self._parents.get(id(above))
        return id(above) if above is not None else 0

    def _key(self, node: ast.AST, name: str) -> _Key:
        """The variable that a name is: of the nearest function that sets it, or of the module."""
        at: ast.AST | None = node
        while at is not None:
            scope = self._scope(at)
            if (scope, name) in self._local:
                return scope, name
            at = self._parents.get(id(at))
            while at is not None and not isinstance(at, _FUNCTIONS):
                at = self._parents.get(id(at))
        return 0, name

    @staticmethod
    def _member(node: ast.AST) -> str | None:
        """The key of an attribute, or of an element that is named by a text."""
        if isinstance(node, ast.Attribute):
            return f".{node.attr}"
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Constant)
            and isinstance(node.slice.value, str)
        ):
            return f"[{node.slice.value}]"
        return None

    def constant(self, node: ast.expr) -> ast.expr:
        """What a name is set to once, or the expression itself."""
        if isinstance(node, ast.Name):
            values = self._set.get(self._key(node, node.id), [])
            return values[0] if len(values) == 1 else node
        return node

    def looped(self, node: ast.expr) -> ast.expr | None:
        """What a name of a loop takes its values from."""
        at = self._parents.get(id(node)) if isinstance(node, ast.Name) else None
        while at is not None:
            loops = [at] if isinstance(at, (ast.For, ast.AsyncFor)) else getattr(at, "generators", [])
            for loop in loops:
                if isinstance(loop.target, ast.Name) and loop.target.id == getattr(node, "id", ""):
                    return self.constant(loop.iter)
            at = self._parents.get(id(at))
        return None

    # where values begin

    def _begins(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            return self._spellings.are("python_capability", _called(node))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            return self._key(node, node.id) in self._asked
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Load):
            member = self._member(node)
            if isinstance(node, ast.Attribute) and self._spellings.are("python_member", node.attr):
                return not _is_of_software(node)
            return member is not None and (0, member) in self._asked
        return False

    def is_asked(self, node: ast.AST) -> bool:
        return any(self._begins(n) for n in ast.walk(node))

    # where they go

    def _follow(self, node: ast.AST) -> None:
        text = isinstance(node, ast.Name) and self._key(node, node.id) in self._texts
        child, above = node, self._parents.get(id(node))
        while above is not None:
            text = text or isinstance(above, ast.JoinedStr) or _makes_text(above)
            step = self._step(child, above, text)
            if step is None:
                return
            child, above = step, self._parents.get(id(step))

    def _step(self, child: ast.AST, node: ast.AST, text: bool) -> ast.AST | None:
        if isinstance(child, ast.BinOp) and not text and _tests(node, child):
            return self._end(child, False)
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets if child not in targets else ():
                self._set_to(target, child, text)
            return node if isinstance(node, ast.NamedExpr) else None
        if isinstance(node, (ast.Return, ast.Yield)):
            self._returned(child, node)
            return None
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            if child is node.iter:
                self._set_to(node.target, child, text)
            return None
        if isinstance(node, ast.arguments):
            self._default(child, node)
            return None
        if isinstance(node, (ast.Call, ast.keyword)):
            return self._passed(child, node, text)
        if isinstance(node, ast.Subscript):
            return node if child is node.value else self._end(node, text)
        if isinstance(node, ast.Compare):
            identity = all(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops)
            return self._end(node, False) if not identity else None
        if isinstance(node, ast.Match):
            return self._end(node, False)
        if isinstance(node, ast.IfExp):
            return node if child is not node.test else None
        if isinstance(node, ast.UnaryOp):
            return None if isinstance(node.op, ast.Not) else node
        if isinstance(node, ast.Dict) and self._of_dict(child, node):
            return None
        if isinstance(node, _HANDS_ON):
            return node
        return None if isinstance(node, _DROPS) else self._end(node, text)

    def _end(self, node: ast.AST, text: bool) -> ast.AST | None:
        if not (text and isinstance(node, ast.Call)) and node not in self.ends:
            self.ends.append(node)
        return None

    def _give(self, key: _Key, form: Form | None, text: bool = False) -> None:
        self._asked.add(key)
        if text:
            self._texts.add(key)
        if form is not None and self._forms.setdefault(key, form) != form:
            self._mixed.add(key)

    def _set_to(self, target: ast.AST, value: ast.AST, text: bool) -> None:
        form = self.of(value) if isinstance(value, ast.expr) else None
        if isinstance(target, ast.Name):
            self._give(self._key(target, target.id), form, text)
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts: list[Form | None] = [9, None] if form == (9, 0) else [None, None]
            for part, one in zip(target.elts, [*parts, *[None] * len(target.elts)], strict=False):
                inner = part.value if isinstance(part, ast.Starred) else part
                if isinstance(inner, ast.Name):
                    self._give(self._key(inner, inner.id), one)
        elif (member := self._member(target)) is not None and not text:
            self._give((0, member), form)

    def _of_dict(self, child: ast.AST, node: ast.Dict) -> bool:
        """Whether a value of a dictionary is known by a text."""
        for key, value in zip(node.keys, node.values, strict=True):
            if value is child and isinstance(key, ast.Constant) and isinstance(key.value, str):
                self._give((0, f"[{key.value}]"), self.of(value))
                return True
        return False

    def _returned(self, child: ast.AST, node: ast.AST) -> None:
        function = self._parents.get(id(node))
        while function is not None and not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            function = self._parents.get(id(function))
        if function is not None:
            form = self.of(child) if isinstance(child, ast.expr) else None
            self._give((0, function.name), form)
            self._give((0, f".{function.name}"), form)

    def _default(self, child: ast.AST, node: ast.arguments) -> None:
        named = [*node.posonlyargs, *node.args]
        pairs = [*zip(named[len(named) - len(node.defaults) :], node.defaults, strict=True),
                 *zip(node.kwonlyargs, node.kw_defaults, strict=True)]  # fmt: skip
        for name, value in pairs:
            if value is child and isinstance(value, ast.expr):
                self._give((self._scope(name), name.arg), self.of(value))

    def _passed(self, child: ast.AST, node: ast.Call | ast.keyword, text: bool) -> ast.AST | None:
        call = self._parents.get(id(node)) if isinstance(node, ast.keyword) else node
        if not isinstance(call, ast.Call):
            return None
        if child is call.func:
            method = isinstance(child, ast.Attribute) and self._spellings.are("lookup", child.attr)
            return call if not (method and call.args) else self._end(call, False)
        name = _called(call)
        if isinstance(call.func, ast.Attribute) and name in ("append", "add", "extend"):
            self._set_to(call.func.value, child, text)
            return None
        if self._spellings.are("python_shown", name):
            return None
        if self._spellings.are("python_keeps", name):
            return call
        defined = self._functions.get(name, [])
        for function in defined:
            for param, value in _bound(call, function):
                if value is child or (isinstance(node, ast.keyword) and value is node.value):
                    self._give((id(function), param), self.of(value))
        return None if defined else self._end(call, text)

    # what expressions hold

    def of(self, node: ast.AST) -> Form | None:
        """What an expression holds, or None."""
        if isinstance(node, ast.Call):
            return self._of_call(node)
        if isinstance(node, ast.Name):
            key = self._key(node, node.id)
            return self._forms.get(key) if key not in self._mixed else None
        if isinstance(node, ast.Subscript):
            held = self.of(node.value)
            first = isinstance(node.slice, ast.Constant) and node.slice.value == 0
            if held == (9, 0):
                return 9 if first else None
            member = self._member(node)
            return self._forms.get((0, member)) if member is not None else None
        if isinstance(node, ast.Attribute):
            if self._spellings.are("python_major", node.attr):
                return 9 if not _is_of_software(node) else None
            return self._forms.get((0, f".{node.attr}"))
        if isinstance(node, ast.NamedExpr):
            return self.of(node.value)
        if isinstance(node, ast.Tuple) and len(node.elts) == 2:
            return (9, 0) if self.of(node.elts[0]) == 9 and self.is_asked(node.elts[1]) else None
        if isinstance(node, ast.JoinedStr):
            return self._joined([v.value for v in node.values if isinstance(v, ast.FormattedValue)], node)
        return self._calculated(node) if isinstance(node, ast.BinOp) else None

    def _calculated(self, node: ast.BinOp) -> Form | None:
        if isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant) and self.of(node.right) == (9, 0):
            return {"%d.%d": "9.0", "%d%d": "90", "%s.%s": "9.0", "%s%s": "90"}.get(str(node.left.value))
        if isinstance(node.op, ast.Add):
            scale = self._scale(node.left) or self._scale(node.right)
            return {10: 90, 100: 900}.get(scale or 0)
        return None

    def _scale(self, node: ast.expr) -> int | None:
        """What the first number is multiplied with."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                if self.of(one) == 9 and isinstance(other, ast.Constant) and isinstance(other.value, int):
                    return other.value
        return None

    def _of_call(self, node: ast.Call) -> Form | None:
        name = _called(node)
        if self._spellings.are("python_capability", name) and name not in self._functions:
            return (9, 0)
        one = node.args[0] if len(node.args) == 1 else None
        if name in ("int", "tuple", "list") and one is not None:
            held = self.of(one)
            return 90 if held == "90" else held if not isinstance(held, str) else None
        if name == "join" and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant):
            mapped = isinstance(one, ast.Call) and getattr(one.func, "id", "") == "map" and len(one.args) == 2
            if mapped and isinstance(one, ast.Call) and self.of(one.args[1]) == (9, 0):
                return {"": "90", ".": "9.0"}.get(str(node.func.value.value))
        return self._forms.get((0, name)) or self._forms.get((0, f".{name}"))

    def _joined(self, values: list[ast.expr], node: ast.JoinedStr) -> Form | None:
        """f"{major}.{minor}" and f"{major}{minor}"."""
        if len(values) != 2 or self.of(values[0]) != 9:
            return None
        between = "".join(str(v.value) for v in node.values if isinstance(v, ast.Constant))
        return {"": "90", ".": "9.0"}.get(between)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_of_software(node: ast.Attribute) -> bool:
    """Whether a number is one of a program's version."""
    named = [n.attr if isinstance(n, ast.Attribute) else n.id for n in ast.walk(node.value)
             if isinstance(n, (ast.Attribute, ast.Name))]  # fmt: skip
    return any("version" in name.lower() for name in named)


def _tests(node: ast.AST, child: ast.AST) -> bool:
    """Whether a value is taken as a truth: as such a capability is one for every chip, and a difference may not be."""
    if isinstance(node, ast.IfExp):
        return child is node.test
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    return isinstance(node, (ast.If, ast.While, ast.Assert, ast.BoolOp))


def _makes_text(node: ast.AST) -> bool:
    """Whether a text is made: by an operator that has one on its other side, or by a function."""
    if isinstance(node, ast.Call):
        return _called(node) in ("str", "repr", "join", "format")
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else ()
    return any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides
    )


def _bound(call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """The parameters of a function with what a call gives them."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    yield from zip(names, call.args, strict=False)
    yield from ((k.arg, k.value) for k in call.keywords if k.arg is not None)
