# SPDX-License-Identifier: Apache-2.0
"""Accumulators that are data members of a class: the field, and the objects that hold one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tree_sitter import Node

from porter.lang.cuda import find
from porter.lang.text import Span
from porter.model.functions import ClassScope, Function, Style, array_extents, declared_name
from porter.model.objects import object_root
from porter.model.program import Program
from porter.model.scopes import Variable, resolve


@dataclass(frozen=True, eq=False)
class MemberField:
    """An array member `name` of class `owner`, declared at `declaration` in the file of `method`."""

    owner: str
    name: str
    method: Function = field(repr=False)
    """Some method of the class, in the file of the class: stands for its file."""
    declaration: Node = field(repr=False)
    class_node: Node = field(repr=False)
    family: frozenset[int] = field(default=frozenset(), repr=False)
    """ids of the classes whose objects hold the member: its own, and those derived from it."""

    @property
    def stem(self) -> str:
        """The name without the underscore that marks it private."""
        return self.name.strip("_")

    @property
    def extents(self) -> list[str]:
        return [self.method.text(n) for n in array_extents(self.declaration)]

    @property
    def key(self) -> tuple[str, str]:
        """Equal for the same member."""
        return self.owner, self.name

    def is_in_class_of(self, method: Function) -> bool:
        """Whether a function is a method of an object that holds the member."""
        return method.owner_class is not None and id(method.owner_class) in self.family

    def tile_in(self, method: Function, beside: Callable[[str], str]) -> str:
        """The tile as a method names it; one of a base class by `this`, which also finds it where the base depends on a
        template's arguments. `beside` gives the name of the tile beside registers of a name."""
        own = method.owner_class.node if method.owner_class is not None else None
        inherited = own is not None and own.id != self.class_node.id
        return f"this->{beside(self.stem)}" if inherited else beside(self.stem)


def find_field(program: Program, method: Function, name: str) -> MemberField | None:
    """The array member that `name` means in a method, be it a base's; None if there is none."""
    if method.style is not Style.METHOD or method.owner_class is None:
        return None
    return _field_of(program, method, method.owner_class, name, set())


def _field_of(program: Program, method: Function, scope: ClassScope, name: str, seen: set[int]) -> MemberField | None:
    body = scope.node.child_by_field_name("body") if scope.node is not None else None
    if scope.file is None or scope.node is None or body is None or id(scope) in seen:
        return None
    seen.add(id(scope))
    for declaration in body.named_children:
        if declaration.type != "field_declaration":
            continue
        declarators = declaration.children_by_field_name("declarator")
        if len(declarators) != 1 or declarators[0].type != "array_declarator":
            continue
        declared = declared_name(declarators[0])
        if declared is not None and scope.file.text(declared) == name:
            holder = method if method.file is scope.file and not method.shift else _stand_in(program, scope)
            if holder is None:
                return None
            return MemberField(scope.qualified, name, holder, declaration, scope.node, _family(program, scope))
    for base, _ in program.names.lookup.bases(scope):
        found = _field_of(program, method, base, name, seen)
        if found is not None:
            return found
    return None


def _stand_in(program: Program, scope: ClassScope) -> Function | None:
    """Some function in the file of a class."""
    return next((f for f in [*program.functions, *program.forward] if f.file is scope.file and not f.shift), None)


def _family(program: Program, scope: ClassScope) -> frozenset[int]:
    derives = program.names.lookup.derives
    # the port names the member where the object is declared
    return frozenset(id(c) for c in program.names.index.classes if c is scope or derives(c, scope, openly=True))


def objects_of(program: Program, member: MemberField) -> Iterator[Variable]:
    """Local variables that hold the member, one for each declarator."""
    for function in program.functions:
        if function.style is Style.MACRO:
            continue
        for declaration in function.own_nodes("declaration"):
            for declarator in declaration.children_by_field_name("declarator"):
                name = declared_name(declarator)
                if name is None:
                    continue
                variable = Variable(function, function.text(name), declaration=declaration, declarator=declarator)
                if any(id(c) in member.family for c in _classes_of(program, variable)):
                    yield variable


def unseen_objects(program: Program, member: MemberField) -> Iterator[tuple[Function, Node]]:
    """Calls of methods that use the member on what is not known to be an object of the class."""
    uses = program.uses_tensor_core()
    known = {v.key for v in objects_of(program, member)}
    for method in program.functions:
        if not member.is_in_class_of(method) or id(method) not in uses or method.name == method.class_name:
            continue
        for call in program.callers(method):
            callee = call.node.child_by_field_name("function")
            if callee is None or callee.type == "qualified_identifier" or _is_within(member, call.caller):
                # a static function has no object
                continue
            if call.caller.style is Style.METHOD and any(n.type == "this" for n in find(callee, "this")):
                # a base that calls what is derived from it
                continue
            root = object_root(callee)
            found = resolve(call.caller, callee, call.caller.text(root)) if root is not None else None
            if found is None or not (found.param is not None or found.is_reference or found.key in known):
                yield call.caller, call.node


def _is_within(member: MemberField, function: Function | None) -> bool:
    """Whether a function is a method that has the member, or a lambda in one."""
    while function is not None:
        if member.is_in_class_of(function):
            return True
        function = function.parent
    return False


def _classes_of(program: Program, variable: Variable) -> tuple[ClassScope, ...]:
    declaration = variable.declaration
    kind = declaration.child_by_field_name("type") if declaration is not None else None
    if declaration is None or kind is None or kind.type in ("primitive_type", "sized_type_specifier"):
        return ()
    if kind.type in ("placeholder_type_specifier", "auto"):
        return program.names.expressions.variable(variable).classes
    return program.names.class_of(variable.function, declaration, None)


def passed_on(program: Program, member: MemberField) -> Iterator[tuple[Function, Node]]:
    """Members, pointers and copies of the class type: objects that are neither local variables nor references to
    them."""
    for function in program.functions:
        for param in function.params:
            if param.node is None or member.is_in_class_of(function):
                continue
            if any(id(c) in member.family for c in program.names.class_of(function, param.node, None)):
                declarator = param.node.child_by_field_name("declarator")
                if declarator is None or "reference_declarator" not in declarator.type:
                    yield function, param.node
    for scope in program.names.index.classes:
        holder = None
        for declaration in _own_fields(scope):
            found = program.names.declared_in(scope, declaration)
            if any(id(c) in member.family for c in found):
                holder = holder or _stand_in(program, scope)
                if holder is not None:
                    yield holder, declaration


def measured(program: Program, member: MemberField) -> Iterator[tuple[str, Node]]:
    """Where the size of an object that holds the member is asked for, with the file: of the class by its name, of an
    object by its own, or of `*this`."""
    names = {c.name for c in program.names.index.classes if id(c) in member.family}
    asked = re.compile(rf"\*\s*this|.*\b(?:{'|'.join(map(re.escape, sorted(names)))})\b(?!\s*::).*", re.DOTALL)
    objects = {v.name for v in objects_of(program, member)}
    for path, file in program.sources.files.items():
        for node in find(file.root, "sizeof_expression"):
            operand = re.sub(r"\s+", " ", file.text(node)).removeprefix("sizeof").strip()
            operand = re.sub(r"^decltype\s*", "", operand.strip("() ")).strip("() ")
            if asked.fullmatch(operand) or operand in objects:
                yield path, node


def _own_fields(scope: ClassScope) -> Iterator[Node]:
    body = scope.node.child_by_field_name("body") if scope.node is not None else None
    for node in body.named_children if body is not None else ():
        if node.type == "field_declaration" and node.children_by_field_name("declarator"):
            yield node
        elif node.type.startswith("preproc"):
            yield from find(node, "field_declaration")


def field_extents(program: Program, classes: tuple[ClassScope, ...], path: str) -> list[str]:
    """Extents of the array member `path` (`.d`) of a class that the sources define; empty if they do not, or if the
    class may be one of several that declare it differently."""
    found = {tuple(_extents_in(program, c, path.removeprefix("."), set()) or ()) for c in classes}
    found.discard(())
    return list(found.pop()) if len(found) == 1 else []


def _extents_in(program: Program, scope: ClassScope, name: str, seen: set[int]) -> list[str] | None:
    if scope.file is None or id(scope) in seen:
        return None
    seen.add(id(scope))
    for declaration in _own_fields(scope):
        for declarator in declaration.children_by_field_name("declarator"):
            declared = declared_name(declarator)
            if declared is not None and scope.file.text(declared) == name:
                return [scope.file.text(n) for n in array_extents(declarator)]
    for base, _ in program.names.lookup.bases(scope):
        inner = _extents_in(program, base, name, seen)
        if inner is not None:
            return inner
    return None


def names_in_class(classes: tuple[ClassScope, ...], text: str) -> bool:
    """Whether an expression in a class uses names that mean nothing outside: template parameters, static members."""
    words = "|".join(re.findall(r"[A-Za-z_]\w*", text))
    for scope in classes if words else ():
        node = scope.node
        if scope.file is None or node is None:
            continue
        template = node.parent if node.parent is not None and node.parent.type == "template_declaration" else node
        head = scope.file.text(Span(template.start_byte, node.start_byte))
        body = scope.file.text(node)
        if re.search(rf"\b(?:{words})\b", head) or re.search(rf"\b(?:{words})\s*=[^=]", body):
            return True
    return False
