# SPDX-License-Identifier: Apache-2.0
"""Which functions a call may reach. Where that is not certain, every function that it may be is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from tree_sitter import Node

from porter.lang.cuda import CudaFile
from porter.model.constants import Constants
from porter.model.functions import Call, ClassScope, Function, FunctionSymbol, Param, Path, Scope, Style
from porter.model.names.declared import Declared
from porter.model.names.expressions import Expressions
from porter.model.names.index import Index, Indexer
from porter.model.names.lookup import Found, Known, Lookup, Site
from porter.model.names.outside import Outside, Verdict, qualified
from porter.model.names.overloads import PACK, Overloads, has_default
from porter.model.names.paths import is_whole, path_of
from porter.model.names.types import Type
from porter.model.scopes import resolve

CALL_OPERATOR = "operator()"
_MANY = 8
_PARENTHESES = ("parenthesized_expression",)


@dataclass(frozen=True, eq=False)
class Resolution:
    """What a call means. `symbols` may be declarations alone; `targets` are the definitions in the sources.

    `sure` is false where some of them are kept only because the sources do not tell.
    """

    symbols: tuple[FunctionSymbol, ...] = ()
    targets: tuple[Function, ...] = ()
    sure: bool = True


@dataclass(eq=False)
class _Named:
    """Functions that a callee names, before overload resolution."""

    symbols: list[FunctionSymbol]
    sure: bool = True
    direct: tuple[Function, ...] = ()
    """Lambdas and macros, which have no overloads."""
    arguments_decide: bool = False
    """Whether functions of the arguments' namespaces are looked at, too."""
    template_args: tuple[str, ...] | None = None
    apart: bool = False
    """Whether the functions are of scopes of which the call means one."""


class Names:
    """Names of one source set, resolved as C++ does.

    `constants_in` says what constants mean inside a function, and at file scope for None; `complete` whether every
    header of the project is among the files.
    """

    def __init__(
        self,
        files: Mapping[str, CudaFile],
        functions: list[Function],
        forward: list[Function],
        constants_in: Callable[[Function | None], Constants],
        complete: bool = True,
    ) -> None:
        self.index: Index = Indexer(files.values(), functions, forward).index
        bodies: dict[str, list[str]] = {}
        called = set()
        for file in files.values():
            for macro in file.lexed.macros():
                if macro.params is None:
                    bodies.setdefault(macro.name, []).append(macro.joined.decode("utf-8", "replace"))
                else:
                    called.add(macro.name)
        self.lookup = Lookup(self.index, constants_in, {name: texts[-1] for name, texts in bodies.items()})
        self._outside = Outside(self.lookup, bodies, frozenset(called), complete)
        self._anywhere = Outside(self.lookup, bodies, frozenset(called), complete, declared=True)
        self.declared = Declared(self.lookup)
        self.expressions = Expressions(self.lookup, self.declared, self._called_at)
        self.overloads = Overloads(self.lookup, self.declared)
        self._macros: dict[str, list[Function]] = {}
        self._lambdas: dict[int, Function] = {}
        self._calls: dict[int, Call] = {}
        for function in functions:
            if function.style is Style.MACRO:
                self._macros.setdefault(function.name, []).append(function)
            elif function.style is Style.LAMBDA:
                self._lambdas[function.node.id] = function
            for call in function.calls:
                self._calls.setdefault(call.node.id, call)
        self._resolved: dict[int, Resolution] = {}
        self._busy: set[int] = set()
        self._definitions: dict[int, list[Function]] = {}
        self._own_class: dict[int, bool] = {}

    # --- questions

    def resolve(self, call: Call) -> Resolution:
        """What a call reaches. Constant time for a call that was asked for before."""
        known = self._resolved.get(id(call))
        if known is None:
            if id(call) in self._busy:
                # an argument's type depends on the call itself
                return Resolution(sure=False)
            self._busy.add(id(call))
            try:
                known = self._resolve(call)
            finally:
                self._busy.discard(id(call))
            self._resolved[id(call)] = known
        return known

    def lambda_at(self, function: Function, node: Node) -> Function | None:
        """The lambda that an expression of a function is: written there, or what a local variable is made of."""
        while node.type in _PARENTHESES and node.named_children:
            node = node.named_children[0]
        if node.type == "lambda_expression":
            return self._lambdas.get(node.id)
        variable = resolve(function, node, function.text(node)) if node.type == "identifier" else None
        return self._of_variable(variable.declarator, function, node) if variable is not None else None

    def _of_variable(self, declarator: Node | None, function: Function, node: Node) -> Function | None:
        """The lambda that a variable is, a copy of or a reference to; `node` names the variable in `function`."""
        value = declarator.child_by_field_name("value") if declarator is not None else None
        if declarator is None or value is None or value.end_byte > node.start_byte:
            return None
        if value.type == "identifier":
            inner = declarator.child_by_field_name("declarator")
            kind = declarator.parent.child_by_field_name("type") if declarator.parent is not None else None
            if inner is None or inner.type not in ("identifier", "reference_declarator") or kind is None:
                return None
            return self.lambda_at(function, value) if kind.type == "placeholder_type_specifier" else None
        return self._lambdas.get(value.id)

    def candidates(self, call: Call) -> list[FunctionSymbol]:
        """The functions of a call's name, whether they take its arguments or not."""
        named = self._named(call)
        return list(named.symbols) if named is not None else []

    def type_of(self, function: Function, node: Node) -> Type:
        """The type of an expression in a function."""
        return self.expressions.type_of(function, node)

    def type_of_param(self, function: Function, param: Param) -> Type:
        """The declared type of a parameter."""
        return self.overloads.wanted(function, param)

    def class_of(self, function: Function, declaration: Node, declarator: Node | None) -> tuple[ClassScope, ...]:
        """The classes that a declared variable or parameter may be an object of; none if it is of no class that the
        sources define. Arrays, references and pointers count as what they are of."""
        site = self.lookup.site(function, declaration)
        return self.declared.declaration(declaration, declarator, site, function.text).classes

    def declared_in(self, scope: ClassScope, declaration: Node) -> tuple[ClassScope, ...]:
        """The classes that a data member of a class may be an object of."""
        if scope.file is None:
            return ()
        return self.declared.declaration(declaration, None, Site(scope), scope.file.text).classes

    def classes_named(self, function: Function, node: Node, written: str) -> tuple[ClassScope, ...]:
        """The classes that a type's text means at a place in a function."""
        return self.declared.from_text(written, self.lookup.site(function, node)).classes

    def functions_named(self, function: Function, node: Node) -> list[Function]:
        """The definitions that a name means at a place without a call, as in `&f<64>`: all overloads."""
        path = self.lookup.expanded(path_of(node, function.text))
        if path.opaque or not path.steps:
            return []
        site = self.lookup.site(function, node)
        if len(path.steps) == 1 and not path.rooted:
            return self._defined(self.lookup.unqualified(site, path.steps[0].name).functions)
        found: list[Function] = []
        for scope in self.lookup.scopes(Path(path.steps[:-1], path.rooted or len(path.steps) == 1), site)[0]:
            found += self._defined(self.lookup.own(scope, path.steps[-1].name).functions)
        return found

    def declarations(self, function: Function) -> list[Function]:
        """Declarations without a body of the function that this is the definition, or a specialization, of."""
        symbol = self.index.symbols.get(id(function))
        if symbol is None or not symbol.defined:
            return []
        others = symbol.scope.functions.get(function.name, ())
        return [o.function for o in others if not o.defined and self._may_be(o, symbol)]

    def outside(self, function: Function, node: Node, target: tuple[str, ...], unfit: bool = False) -> Verdict:
        """Whether a name, of a callee or of a value, is that of `target`, which the sources do not declare. `unfit`:
        they have functions of the name that do not take the arguments."""
        return self._outside.means(function, node, target, unfit)

    def anywhere(self, function: Function, node: Node, target: tuple[str, ...]) -> Verdict:
        """Whether a name of a value is that of `target` in a namespace, whether the sources declare it or not."""
        return self._anywhere.means(function, node, target)

    def outside_path(self, path: Path, target: tuple[str, ...], at: tuple[Function, Node] | None = None) -> Verdict:
        """The same of a name that is not parsed: one that stands at a place of a function, or outside of all."""
        if at is None:
            return self._outside.at_top(path, target)
        return self._outside.of_path(path, target, self.lookup.site(*at))

    def is_object(self, function: Function, callee: Node, target: tuple[str, ...]) -> Verdict:
        """Whether the object of a member expression is of the class `target`, whether the sources define it or not. A
        class that is derived from it may be."""
        kind, of = self._object_of(function, callee), callee.child_by_field_name("argument")
        return self._is_of(function, callee, of, kind, target) if kind is not None else Verdict.NO

    def is_of_class(self, function: Function, node: Node, target: tuple[str, ...]) -> Verdict:
        """The same of an expression."""
        kind = self.type_of(function, node)
        if kind.pointers or kind.extents:
            return Verdict.NO
        return self._is_of(function, node, node, kind, target)

    def _is_of(self, function: Function, at: Node, of: Node | None, kind: Type, target: tuple[str, ...]) -> Verdict:
        if kind.kind in ("arithmetic", "toolkit", "void", "enum", "null"):
            return Verdict.NO
        if kind.kind == "class":
            if all((*qualified(c.parent), c.name) == target for c in kind.classes if c.parent is not None):
                return Verdict.YES
            sure = all(c.node is not None and self.lookup.bases_known(c) for c in kind.classes)
            return Verdict.NO if sure and not any(self.lookup.bases(c) for c in kind.classes) else Verdict.MAYBE
        if kind.kind != "name":
            return Verdict.MAYBE
        path = self.declared.path_from_text(kind.name)
        here = of is not None and of.type == "identifier" and resolve(function, of, function.text(of)) is not None
        if path is None or (len(path.steps) == 1 and not path.rooted and not here):
            # a name without a namespace means what it means where the object is declared
            return Verdict.MAYBE if path is None or path.steps[-1].name == target[-1] else Verdict.NO
        return self._outside.of_path(path, target, self.lookup.site(function, at))

    def written(self, function: Function, node: Node) -> list[Path]:
        """A name with the macro that it begins with expanded, in each way that the sources have."""
        return self._outside.paths(function, node)

    def unaliased(self, function: Function, node: Node, path: Path) -> Path:
        """A name that begins with another name of a class as the one that it stands for."""
        return self._outside.unaliased(function, node, path)

    def is_dependent(self, function: Function, node: Node, path: Path) -> bool:
        """Whether a name begins with a parameter of a template around it."""
        return self._outside.is_dependent(function, node, path)

    # --- a call

    def _called_at(self, function: Function, node: Node) -> list[FunctionSymbol]:
        call = self._calls.get(node.id)
        return list(self.resolve(call).symbols) if call is not None and call.caller is function else []

    def _resolve(self, call: Call) -> Resolution:
        named = self._named(call)
        if named is None:
            return Resolution()
        if named.direct:
            fitting = tuple(f for f in named.direct if _takes(f, call))
            return Resolution((), fitting, named.sure)
        site = self.lookup.site(call.caller, call.node)
        types = [self.type_of(call.caller, a) for a in call.args]
        symbols = list(named.symbols)
        if named.arguments_decide:
            symbols += [s for s in self._by_arguments(call.name, types, bool(symbols)) if s not in symbols]
        if not symbols:
            return Resolution(sure=named.sure)
        chosen = self.overloads.select(symbols, types, call.args, named.template_args, site, named.apart)
        targets = self._defined(chosen)
        sure = named.sure and len({(id(s.scope), self.overloads.signature(s)) for s in chosen[:_MANY]}) <= 1
        return Resolution(tuple(chosen), tuple(targets), sure)

    def _named(self, call: Call) -> _Named | None:
        caller, callee = call.caller, _callee(call)
        if callee is None:
            return _Named([], direct=tuple(self._macros.get(call.name, ())))
        bare = callee.type not in _PARENTHESES
        while callee.type in _PARENTHESES and callee.named_children:
            callee = callee.named_children[0]
        if callee.type == "identifier" and call.name in self._macros:
            return _Named([], direct=tuple(self._macros[call.name]))
        if callee.type == "lambda_expression":
            found = self._lambdas.get(callee.id)
            return _Named([], direct=(found,)) if found is not None else None
        if callee.type in ("call_expression", "compound_literal_expression", "subscript_expression"):
            return self._object(call, self.type_of(caller, callee))
        if callee.type == "field_expression":
            return self._member(call, callee)
        path = path_of(callee, caller.text)
        template_args = path.steps[-1].args if path.steps else None
        if caller.style is Style.MACRO:
            # the place of a macro's text is that of its uses
            everything = self._everything(call.name)
            return _Named(everything, len(everything) < 2, template_args=template_args, apart=True)
        path = self.lookup.expanded(path)
        if path.opaque and not path.steps:
            return _Named(self._everything(call.name), False, template_args=template_args, apart=True)
        template_args = path.steps[-1].args
        if len(path.steps) == 1 and not path.rooted:
            named = self._unqualified(call, callee, path.steps[0].name, bare)
        else:
            named = self._qualified(call, callee, path)
        if named is not None and named.template_args is None:
            named.template_args = template_args
        return named

    def _everything(self, name: str) -> list[FunctionSymbol]:
        return [*self.index.free.get(name, ()), *self.index.methods.get(name, ())]

    def _unqualified(self, call: Call, callee: Node, name: str, bare: bool) -> _Named | None:
        caller = call.caller
        variable = resolve(caller, callee, name)
        if variable is not None:
            declarator = variable.declarator
            if declarator is None or declarator.type != "function_declarator":
                return self._variable_called(call, declarator, callee)
        site = self.lookup.site(caller, callee)
        found = self.lookup.unqualified(site, name)
        unplaced = [s for s in self.index.unplaced.get(name, ()) if s not in found.functions]
        if found.functions:
            member = any(s.scope.is_class for s in found.functions)
            return _Named([*found.functions, *unplaced], not unplaced, arguments_decide=bare and not member)
        if found.classes or found.aliases:
            return self._constructed(found, site, call)
        if found.value:
            return self._value_called(call, callee, name)
        symbols, sure = list(unplaced), not unplaced
        if isinstance(site.scope, ClassScope) and not self.lookup.bases_known(site.scope):
            symbols += self.index.methods.get(name, ())
            sure = False
        return _Named(symbols, sure, arguments_decide=bare)

    def _variable_called(self, call: Call, declarator: Node | None, callee: Node) -> _Named | None:
        """A call of a local variable or parameter: a lambda, an object of class type, or something unknown."""
        found = self._of_variable(declarator, call.caller, callee)
        if found is not None:
            return _Named([], direct=(found,))
        return self._object(call, self.type_of(call.caller, callee))

    def _value_called(self, call: Call, callee: Node, name: str) -> _Named | None:
        """A call of a variable outside of functions, or of a data member."""
        lambdas = tuple(f for f in self._lambdas.values() if f.name == name and f.parent is None)
        if lambdas:
            return _Named([], direct=lambdas)
        return self._object(call, self.type_of(call.caller, callee))

    def _object(self, call: Call, kind: Type) -> _Named | None:
        """The call operator of an object: of any class if the object's is not known. What is asked for all of a mode
        is a tensor. A class that the sources do not define has no call operator in them, but for a template that may
        hold an object of one that they do."""
        if kind.kind == "class" and kind.is_plain:
            symbols: list[FunctionSymbol] = []
            for scope in kind.classes:
                symbols += [f for f in self.lookup.own(scope, CALL_OPERATOR).functions if f not in symbols]
            return _Named(symbols, apart=len(kind.classes) > 1)
        if kind.kind in ("arithmetic", "toolkit", "void"):
            return _Named([])
        if kind.kind == "name" and "<" not in kind.name:
            return _Named(list(self.index.unplaced.get(CALL_OPERATOR, ())), False, apart=True)
        if any(is_whole(call.caller.text(a)) for a in call.args):
            return _Named([])
        return _Named(list(self.index.methods.get(CALL_OPERATOR, ())), False, apart=True)

    def _constructed(self, found: Found, site: Site, call: Call) -> _Named:
        """`Tile<64>(x)` makes an object."""
        args = call.template_args or None
        scopes: list[Scope] = list(self.lookup.chosen(found.classes, args, site))
        sure = len(scopes) < 2
        for alias in found.aliases:
            inner, known = self.lookup.alias_scopes(alias, args, 0)
            scopes += inner
            sure = sure and known is not Known.DEPENDENT
        symbols = [f for s in scopes for f in s.functions.get(s.name, ())]
        return _Named(symbols, sure, template_args=None, apart=True)

    def _member(self, call: Call, callee: Node) -> _Named | None:
        """`x.f(…)`, `p->f(…)`, `x.Base::f(…)`."""
        argument, field = callee.child_by_field_name("argument"), callee.child_by_field_name("field")
        if argument is None or field is None:
            return None
        path = path_of(field, call.caller.text)
        if not path.steps:
            return None
        name, template_args = path.steps[-1].name, path.steps[-1].args
        called = self.lambda_at(call.caller, argument) if name == CALL_OPERATOR else None
        if called is not None:
            return _Named([], direct=(called,))
        everywhere = _Named(list(self.index.methods.get(name, ())), False, template_args=template_args, apart=True)
        kind = self._object_of(call.caller, callee)
        if kind is None or kind.kind in ("arithmetic", "toolkit", "void"):
            return None
        if kind.kind != "class" or not kind.is_plain:
            return everywhere
        found, complete = Found(), True
        for scope in kind.classes:
            starts: list[Scope] = [scope]
            if len(path.steps) > 1:
                starts = self.lookup.scopes(Path(path.steps[:-1], path.rooted), Site(scope))[0]
                complete = complete and bool(starts)
            for start in starts:
                found.add(self.lookup.own(start, name))
            complete = complete and scope.node is not None and self.lookup.bases_known(scope)
        if found.functions:
            return _Named(found.functions, template_args=template_args, apart=len(kind.classes) > 1)
        if found.value:
            return self._object(call, self.type_of(call.caller, callee))
        return _Named([], template_args=template_args) if complete else everywhere

    def _object_of(self, function: Function, callee: Node) -> Type | None:
        """The type of what stands in front of the `.` or `->` of a member expression."""
        argument = callee.child_by_field_name("argument")
        if argument is None:
            return None
        kind = self.type_of(function, argument)
        if any(c.type == "->" for c in callee.children):
            return kind.pointed() if kind.is_pointer or kind.is_array else replace(kind, kind="unknown")
        return kind

    def _qualified(self, call: Call, callee: Node, path: Path) -> _Named | None:
        site = self.lookup.site(call.caller, callee)
        name = path.steps[-1].name
        unplaced = list(self.index.unplaced.get(name, ()))
        prefix = Path(path.steps[:-1], path.rooted or len(path.steps) == 1, path.opaque)
        scopes, known = self.lookup.scopes(prefix, site)
        if known is Known.DEPENDENT:
            methods = self.index.methods.get(name, ())
            return _Named([*methods, *(s for s in unplaced if s not in methods)], False, apart=True)
        if known is Known.OUTSIDE:
            # a scope whose declaration was not understood may be meant
            last = prefix.steps[-1].name if prefix.steps else ""
            return _Named(unplaced if last not in self.index.scope_names or unplaced else [], not unplaced)
        found, complete = Found(), True
        for scope in scopes:
            own = self.lookup.own(scope, name)
            if not own and not scope.is_class:
                own = self.lookup.member_of_namespace(scope, name)
            found.add(own)
            if isinstance(scope, ClassScope):
                complete = complete and scope.node is not None and self.lookup.bases_known(scope)
        if found.functions:
            sure = not unplaced or all(s in found.functions for s in unplaced)
            more = [s for s in unplaced if s not in found.functions]
            return _Named(found.functions + more, sure, apart=len(scopes) > 1)
        if found.classes or found.aliases:
            return self._constructed(found, site, call)
        if found.value:
            return self._value_called(call, callee, name)
        if not complete:
            return _Named([*self.index.methods.get(name, ())], False, apart=True)
        return _Named(unplaced, not unplaced)

    # --- arguments' namespaces

    def _by_arguments(self, name: str, types: Iterable[Type], found: bool) -> list[FunctionSymbol]:
        """Functions of the namespaces of the arguments' classes, friends of the classes among them.

        An argument whose type is not known may be of any class: then functions count that name one of their own
        namespace's as a parameter, and every function if lookup found none.
        """
        symbols: list[FunctionSymbol] = []
        candidates = self.index.free.get(name, ())
        unknown = False
        for kind in types:
            unknown = unknown or kind.kind in ("unknown", "param")
            for scope in kind.classes:
                spaces = {id(s) for s in self._associated(scope, set())}
                symbols += [s for s in candidates if id(s.scope) in spaces and s not in symbols]
        if unknown:
            for symbol in candidates:
                if symbol not in symbols and (not found or self._takes_own_class(symbol)):
                    symbols.append(symbol)
        return symbols

    def _associated(self, scope: ClassScope, seen: set[int]) -> list[Scope]:
        if id(scope) in seen:
            return []
        seen.add(id(scope))
        space = next(s for s in scope.above() if not s.is_class)
        spaces = [space, *space.transparent]
        while space.parent is not None and space in space.parent.transparent:
            space = space.parent
            spaces.append(space)
        for base, _ in self.lookup.bases(scope):
            spaces += self._associated(base, seen)
        return spaces

    def _takes_own_class(self, symbol: FunctionSymbol) -> bool:
        """Whether a parameter is of a class of the function's own namespace."""
        known = self._own_class.get(id(symbol))
        if known is None:
            known = self._own_class[id(symbol)] = self._names_own_class(symbol)
        return known

    def _names_own_class(self, symbol: FunctionSymbol) -> bool:
        if symbol.scope.parent is None:
            return False
        wanted = [self.overloads.wanted(symbol.function, p) for p in symbol.function.params]
        return any(symbol.scope in self._associated(c, set()) for w in wanted for c in w.classes)

    # --- definitions

    def _defined(self, symbols: Iterable[FunctionSymbol]) -> list[Function]:
        """The definitions of functions, each once."""
        found: list[Function] = []
        for symbol in symbols:
            if symbol.defined:
                known = [symbol.function]
            else:
                key = id(symbol)
                if key not in self._definitions:
                    others = symbol.scope.functions.get(symbol.function.name, ())
                    self._definitions[key] = [o.function for o in others if o.defined and self._may_be(symbol, o)]
                known = self._definitions[key]
            found += [f for f in known if f not in found]
        return found

    def _may_be(self, declared: FunctionSymbol, defined: FunctionSymbol) -> bool:
        """Whether a declaration and a definition of one scope are of one function."""
        if declared.special is not None and defined.special is None:
            return False
        one, other = declared.function, defined.function
        if len(one.params) != len(other.params):
            return False
        if defined.special is not None and declared.special is None:
            return declared.is_template
        if declared.special != defined.special or declared.is_template != defined.is_template:
            return False
        if len(declared.params) != len(defined.params):
            return False
        first, second = self.overloads.signature(declared), self.overloads.signature(defined)
        return first == second or not any(_differ(a, b) for a, b in zip(first, second, strict=True))


def _differ(one: object, other: object) -> bool:
    """Whether two parameters of a signature are surely of different types."""
    if not isinstance(one, Type) or not isinstance(other, Type):
        return False
    if "name" in (one.kind, other.kind) or "param" in (one.kind, other.kind):
        return (one.reference, one.pointers, one.extents) != (other.reference, other.pointers, other.extents) and (
            one.kind == other.kind
        )
    numbers = zip(one.extents, other.extents, strict=False)
    if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in numbers):
        return True
    return (one.kind, one.name, one.pointers, one.reference, len(one.extents)) != (
        other.kind,
        other.name,
        other.pointers,
        other.reference,
        len(other.extents),
    )


def _callee(call: Call) -> Node | None:
    """The callee of a call; None for the bare name of a macro."""
    return call.node.child_by_field_name("function") if call.node.type == "call_expression" else None


def _takes(function: Function, call: Call) -> bool:
    """Whether a lambda or macro takes as many arguments as a call has."""
    required = sum(1 for p in function.params if not has_default(p))
    if len(call.args) > len(function.params) and not function.variadic:
        last = function.params[-1].node if function.params else None
        if last is None or not last.type.startswith("variadic"):
            return False
    return len(call.args) >= required or any(a.type == PACK for a in call.args)
