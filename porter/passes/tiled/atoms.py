# SPDX-License-Identifier: Apache-2.0
"""MMAs by their atoms: the arrays that they add to become accumulators, whoever is handed one takes a pointer that
knows where it is, and other uses have the plain registers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.cuda import walk
from porter.lang.text import Span, as_bytes, as_text
from porter.model.empty_calls import is_register_fence_call
from porter.model.functions import Call, Function, Style, declared_name
from porter.model.scopes import resolve
from porter.model.tiled.accumulators import Atom, Handle, Origin
from porter.model.tiled.tensors import subscripted
from porter.passes.partial import guarded
from porter.passes.residency import drop_fence
from porter.passes.tiled.context import Frame, TiledContext, TiledKernel
from porter.passes.tiled.spelling import Unnamed
from porter.passes.tiled.text import cpp

RULE = "PTR671"
TRAITS = ("cute/arch/mma_sm90_gmma_ext.hpp", "cute/atom/mma_traits_sm90_gmma_ext.hpp")
"""What the header reads of atoms that CuTe has in headers of their own."""
_FURTHER = b"mma_sm90_gmma_ext.hpp"
_PARTS = ("subscript_expression", "parenthesized_expression", "binary_expression")
_WORD = re.compile(r"[A-Za-z_]\w*")


def rewrite_atoms(context: TiledContext) -> None:
    """Edit every MMA by its atom, what hands its registers on, and functions of the sources' own that synchronized."""
    for atom in context.tiled.atoms:
        function, handle = atom.call.caller, context.tiled.handle_of(atom.call.caller, atom.d)
        if handle is None:
            context.tiled.refuse(
                function, atom.d, f"`{function.text(atom.d)}` is no array of registers", Code.ACCUMULATOR_DECLARED
            )
            continue
        op = function.file.text(atom.op)
        spelled = f"typename {op}" if "::" in op and _depends(context, function, atom) else op
        callee = atom.call.node.child_by_field_name("function")
        assert callee is not None
        context.port.edit(RULE, function, function.span(callee), cpp("fma", op=spelled))
        context.port.edit(RULE, function, atom.registers, function.text(atom.d))
    for handle in context.tiled.handles.values():
        if handle.array is not None and handle.origin is not Origin.FRAGMENT:
            _retype(context, handle)
    for function in context.tiled.program.functions:
        if id(function) in context.reached and function.style is not Style.MACRO:
            _use_registers(context, function)
    for function in context.tiled.emptied:
        context.port.edits.setdefault(RULE, []).extend(guarded(function))
    sources = context.tiled.program.sources
    if any(_FURTHER in file.source for file in sources.files.values()):
        context.port.includes |= dict.fromkeys(TRAITS)


def _depends(context: TiledContext, function: Function, atom: Atom) -> bool:
    """Whether the class of an atom is a member of something that a template's parameter says."""
    lookup, callee = context.tiled.program.names.lookup, atom.call.node
    first = function.file.text(atom.op).split("::")[0].split("<")[0].strip()
    return first in lookup.template_names(lookup.site(function, callee)) or "<" in function.file.text(atom.op)


def _whole_type(handle: Handle) -> str:
    assert handle.array is not None
    several = ("Accumulator", "Accumulators")[len(handle.array.extents) - 1]
    extents = ", ".join(handle.function.text(e) for e in handle.array.extents)
    values = {"class": several, "element": handle.array.element, "extents": extents, "half": handle.array.half}
    return cpp("array", **values)


def _type(handle: Handle) -> str:
    assert handle.array is not None
    return cpp("registers", element=handle.array.element, half=handle.array.half)


def is_whole(context: TiledContext, handle: Handle) -> bool:
    """Whether a name stands for a whole array: its own, or one that every caller hands to a reference."""
    if handle.origin is Origin.FRAGMENT:
        return True
    function, param = handle.function, handle.variable.param
    if handle.array is None or not handle.array.is_reference or param is None:
        return False
    given = [
        (c.caller, c.args[param.index]) for c in context.tiled.program.callers(function) if param.index < len(c.args)
    ]
    handles = [context.tiled.handle_of(f, n) if n.type == "identifier" else None for f, n in given]
    return bool(handles) and all(h is not None and h is not handle and is_whole(context, h) for h in handles)


def _retype(context: TiledContext, handle: Handle) -> None:
    """The type of a parameter or of a variable that names registers of an array."""
    function, param, declaration = handle.function, handle.variable.param, handle.variable.declaration
    if param is not None:
        text = f"{_whole_type(handle)}&" if is_whole(context, handle) else _type(handle)
        context.port.edit_once(RULE, function, param.span, f"{text} {handle.name}")
        return
    declarator = handle.variable.declarator
    declared = declared_name(declarator) if declarator is not None else None
    kind = declaration.child_by_field_name("type") if declaration is not None else None
    assert declaration is not None
    assert kind is not None
    assert declared is not None
    if handle.array is not None and handle.array.element == "auto":
        return
    if len(declaration.children_by_field_name("declarator")) != 1:
        context.tiled.refuse(
            function, declaration, f"`{handle.name}` is declared together with others", Code.ACCUMULATOR_DECLARED
        )
        return
    context.port.edit(
        RULE, function, Span(function.span(kind).start, function.span(declared).end), f"auto {handle.name}"
    )


def _use_registers(context: TiledContext, function: Function) -> None:
    """Names of arrays in a function where what stands there takes plain registers."""
    for call in function.calls:
        if len(call.args) == 1 and is_register_fence_call(context.tiled.program, call):
            handle = _base(context, function, call.args[0])
            if handle is not None and handle.array is not None:
                drop_fence(context.port, function, call)
    for name in function.own_nodes("identifier"):
        handle = context.tiled.handle_of(function, name)
        if handle is None or handle.array is None or _is_declared(name):
            continue
        _place(context, function, name, handle)


def _is_declared(name: Node) -> bool:
    parent = name.parent
    while parent is not None and parent.type.endswith("_declarator"):
        if parent.type == "init_declarator":
            return parent.child_by_field_name("declarator") in (name, name.parent) or _holds(parent, name)
        parent = parent.parent
    return parent is not None and parent.type in ("declaration", "parameter_declaration")


def _holds(declarator: Node, name: Node) -> bool:
    declared = declarator.child_by_field_name("declarator")
    return declared is not None and declared.start_byte <= name.start_byte < declared.end_byte


def _base(context: TiledContext, function: Function, node: Node) -> Handle | None:
    while node.named_children and node.type != "identifier":
        node = node.named_children[0]
    return context.tiled.handle_of(function, node) if node.type == "identifier" else None


def _place(context: TiledContext, function: Function, name: Node, handle: Handle) -> None:
    """Edit one name if it has to be that of the registers."""
    tensors = context.tiled.tensors
    node = name
    while (parent := node.parent) is not None:
        above = parent.parent
        if parent.type in _PARTS and tensors.root(function, parent) is not None:
            node = parent
        elif parent.type == "subscript_expression" and parent.child_by_field_name("argument") == node:
            if above is None or above.type != "pointer_expression" or tensors.root(function, above) is None:
                # an element
                return
            node = above
        else:
            break
    if _is_handle(context, function, node):
        _by_distance(context, function, node)
        return
    assert handle.array is not None
    plain = "registers" if is_whole(context, handle) else "data()"
    span = function.span(name)
    context.port.edit(RULE, function, Span(span.end, span.end), f".{plain}")


def _is_handle(context: TiledContext, function: Function, node: Node) -> bool:
    """Whether an expression stands where a pointer that knows Tensor Memory is meant."""
    tiled, parent = context.tiled, node.parent
    if any(a.call.caller is function and _inside(function.span(node), a.registers) for a in tiled.atoms):
        return True
    if parent is not None and parent.type == "init_declarator":
        declared = declared_name(parent)
        key = (function.node.id, parent.start_byte, function.text(declared)) if declared is not None else None
        return key in tiled.tensors.arrays
    if parent is None or parent.type != "argument_list" or parent.parent is None:
        return False
    call = tiled.tensors.call(function, parent.parent)
    if call is None or node not in call.args:
        return False
    if is_register_fence_call(tiled.program, call):
        return True
    index, targets = call.args.index(node), tiled.program.targets(call)
    params = [t.params[index] for t in targets if index < len(t.params)]
    handed = [tiled.handles.get(resolve_param(t, p.name)) for t, p in zip(targets, params, strict=False)]
    return bool(handed) and all(h is not None and h.array is not None for h in handed)


def resolve_param(function: Function, name: str) -> tuple[int, int, str]:
    """The key of a parameter."""
    return function.node.id, -1, name


def _by_distance(context: TiledContext, function: Function, node: Node) -> None:
    """`&acc[m][i]` is `acc[m] + (i)`."""
    if node.type != "pointer_expression":
        return
    inner = subscripted(node)
    outer = node.child_by_field_name("argument")
    index = outer.child_by_field_name("indices") if outer is not None else None
    text = function.text(index).strip("[]") if index is not None else ""
    context.port.edit(RULE, function, function.span(node), f"{function.text(inner)} + ({text})")


def _inside(one: Span, other: Span) -> bool:
    return other.start <= one.start and one.end <= other.end


def width(context: TiledContext, frame: Frame, handle: Handle) -> str:
    """Columns of an array's registers, as they are computed in front of the kernel's setup. Raises Unnamed."""
    assert handle.array is not None
    if not isinstance(frame, TiledKernel):
        raise Unnamed(f"array `{handle.name}` is declared in `{frame.function.name}`, which is no kernel")
    counts = [constant(context, handle.function, e, frame.setup) for e in handle.array.extents]
    return " * ".join(
        ["4" if handle.array.half else "2", *(c if _WORD.fullmatch(c) or c.isdigit() else f"({c})" for c in counts)]
    )


def declare_array(context: TiledContext, handle: Handle, column: str) -> None:
    """`Accumulator<T, n> name(tc, column)` for `T name[n]`, alone in its declaration."""
    function, declaration, array = handle.function, handle.variable.declaration, handle.array
    assert declaration is not None
    assert array is not None
    kind = declaration.child_by_field_name("type")
    assert kind is not None
    given = f", {column}" if column else ""
    text = f"{_whole_type(handle)} {handle.name}({context.port.names.warpgroup}{given})"
    declarators = declaration.children_by_field_name("declarator")
    index = next(i for i, d in enumerate(declarators) if d == handle.variable.declarator)
    at = function.span(declarators[index])
    if index == 0:
        start = function.span(kind).start
    else:
        # in place of the comma
        start, text = function.span(declarators[index - 1]).end, f"; {text}"
    end = at.end
    others = [h for h in context.tiled.fragments if h.variable.declaration == declaration and h is not handle]
    if index + 1 < len(declarators):
        follows = declarators[index + 1]
        if not any(h.variable.declarator == follows for h in others):
            indent = context.port.indent(function, function.span(declaration))
            end, text = function.span(follows).start, f"{text};\n{indent}{array.element} "
    context.port.edit(RULE, function, Span(start, end), text)


def constant(context: TiledContext, function: Function, node: Node, at: Node) -> str:
    """A constant expression with names that are declared at a statement of the kernel. Raises Unnamed."""
    lookup = context.tiled.program.names.lookup
    start = function.span(node).start
    raw = function.file.source[start : function.span(node).end]
    pieces: list[bytes] = []
    end = 0
    for name in _names(node):
        text = function.text(name)
        new = text
        # the grammar takes a constant among template arguments for a type
        variable = resolve(function, name, text) if name.type != "namespace_identifier" else None
        if variable is not None and variable.param is None and not _seen(variable.declaration, at):
            value = variable.declarator.child_by_field_name("value") if variable.declarator is not None else None
            words = function.text(variable.declaration).split() if variable.declaration is not None else []
            if value is None or not {"constexpr", "const"} & set(words):
                raise Unnamed(f"`{text}` is declared further down")
            new = f"({constant(context, variable.function, value, at)})"
        elif variable is None and name.type != "identifier":
            for alias in lookup.unqualified(lookup.site(function, name), text).aliases:
                if alias.holder is not None and not _seen(alias.type_node, at):
                    new = constant(context, alias.holder, alias.type_node, at).removeprefix("typename ")
        if new != text:
            offset = function.span(name).start - start
            pieces += [raw[end:offset], as_bytes(new)]
            end = function.span(name).end - start
    return " ".join(as_text(b"".join(pieces) + raw[end:]).split())


def _names(node: Node) -> Iterator[Node]:
    """Names that are looked up where they stand."""
    for name in walk(node):
        parent = name.parent
        behind = (
            parent is not None and parent.type == "qualified_identifier" and parent.child_by_field_name("name") == name
        )
        if name.type in ("identifier", "type_identifier", "namespace_identifier") and not behind:
            yield name


def _seen(declared: Node | None, at: Node) -> bool:
    """Whether something is declared in front of a statement, in a block around it."""
    block = declared.parent if declared is not None else None
    while block is not None and block.type != "compound_statement":
        block = block.parent
    current: Node | None = at
    while current is not None:
        if block is not None and current.id == block.id:
            return declared is not None and declared.start_byte < at.start_byte
        current = current.parent
    return False


def reads_registers(context: TiledContext, kernel: TiledKernel) -> bool:
    """Whether MMAs of a kernel may have A from registers. One that is a method of a class which nothing that the kernel
    names leads to is none of it; the header traps where that is wrong."""
    found = [a for a in context.tiled.atoms if a.a_in_registers]
    program = context.tiled.program
    reaching = [a for a in found if id(kernel.function) in program.reaching([a.call.caller])]
    if not reaching:
        return False
    return any(_may_come_to(context, kernel.function, atom.call.caller) for atom in reaching)


def _may_come_to(context: TiledContext, kernel: Function, method: Function) -> bool:
    """Whether the classes that a kernel calls functions of lead to the class of a method by their names."""
    program, owner = context.tiled.program, method.owner_class
    if owner is None:
        return True
    beyond = program.reaching([method])
    for function in (f for f in program.functions if f is kernel or _is_within(f, kernel)):
        for call in function.calls:
            if any(id(t) in beyond for t in program.targets(call)):
                named = _named(context, function, call)
                if named is None or owner.name in named:
                    return True
    return False


def _is_within(function: Function, kernel: Function) -> bool:
    while function.style is Style.LAMBDA and function.parent is not None:
        function = function.parent
    return function is kernel


def _named(context: TiledContext, kernel: Function, call: Call) -> set[str] | None:
    """Words that the name of what is called leads to, through aliases in the function and classes of the sources; None
    if a template's parameter says what is called."""
    callee = call.node.child_by_field_name("function")
    front = kernel.text(callee).rpartition("::")[0] if callee is not None else ""
    if not front or callee is None or callee.type != "qualified_identifier":
        return None
    classes: dict[str, list[str]] = {}
    for scope in context.tiled.program.names.index.by_node.values():
        if scope.node is not None and scope.file is not None:
            body = scope.file.text(Span(scope.node.start_byte, scope.node.end_byte))
            classes.setdefault(scope.name, []).append(body)
    for alias in context.tiled.program.names.lookup.declared_in(kernel).aliases:
        classes.setdefault(alias[1].name, []).append(kernel.text(alias[1].type_node))
    found, work = set[str](), list(_WORD.findall(front))
    while work:
        word = work.pop()
        if word not in found:
            found.add(word)
            work += [w for body in classes.get(word, ()) for w in _WORD.findall(body)]
    return None if found & set(kernel.template_params) & set(_classes_of(kernel)) else found


def _classes_of(function: Function) -> Iterator[str]:
    """Parameters of a function's template that are types."""
    node = function.node.parent
    while node is not None and node.type == "template_declaration":
        params = node.child_by_field_name("parameters")
        for param in params.named_children if params is not None else ():
            if param.type in ("type_parameter_declaration", "optional_type_parameter_declaration"):
                yield from (function.text(n) for n in param.named_children if n.type == "type_identifier")
        node = node.parent
