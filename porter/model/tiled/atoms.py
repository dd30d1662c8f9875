# SPDX-License-Identifier: Apache-2.0
"""MMAs that a kernel issues by their atoms, `Op::fma(a, b, d[0], d[1], …, scale)`: what each multiplies, and the arrays
of registers that they add to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tree_sitter import Node

from porter.diagnostics import Code
from porter.lang.cuda import walk
from porter.lang.text import Span
from porter.model.facts import AtomMma
from porter.model.functions import Call, Function, Style, array_extents
from porter.model.names.paths import path_of
from porter.model.program import PACK, Program
from porter.model.recognition import Answer
from porter.model.registers import register_list
from porter.model.scopes import Variable, resolve
from porter.model.tiled.accumulators import Array, Atom, Handle, Origin, Tiled
from porter.model.tiled.tensors import initializer, subscripted

_SEQUENCE = re.compile(r"(?:index|integer)_sequence\s*<(?:[^<>]*,)?\s*(\w+)\s*\.\.\.\s*>")
_COUNTED = re.compile(r"(?:::)?(?:\w+::)*make_(?:index|integer)_sequence\s*<.*>\s*(?:\{\s*\}|\(\s*\))", re.DOTALL)
_REFERENCE = re.compile(r"\(\s*&\s*\w+\s*\)\s*\[")
_SHARED, _REGISTERS = 2, 5
"""Arguments in front of D's registers: descriptors of A and B, or four registers of A and the descriptor of B."""
_MOST_EXTENTS = 2


def read_atoms(tiled: Tiled, answers: Iterable[tuple[Call, Answer]]) -> None:
    """The MMAs among calls."""
    for call, answer in answers:
        fact = answer.fact
        if not isinstance(fact, AtomMma):
            continue
        sure = _is_named(tiled.program, call, fact)
        if sure is False:
            continue
        atom = _atom(tiled.program, call)
        if not sure and (isinstance(atom, str) or not _mentioned(tiled.program, fact.names)):
            continue
        assert answer.recognizer is not None
        tiled.libraries.add(answer.recognizer.library)
        if isinstance(atom, str):
            tiled.refuse(call.caller, call.node, atom, Code.WGMMA_FORM)
        else:
            tiled.atoms.append(atom)
            tiled.names_of_atoms.add(fact.names)


def find_arrays(tiled: Tiled) -> None:
    """The arrays that atoms add to, and all who are handed them."""
    search = _Search(tiled)
    for atom in tiled.atoms:
        search.add(atom.call.caller, atom.d)
    while search.handed_on():
        pass


def _is_named(program: Program, call: Call, fact: AtomMma) -> bool | None:
    """Whether the class is an atom; None if only the compiler knows."""
    callee, names = call.node.child_by_field_name("function"), program.names
    assert callee is not None
    path = names.unaliased(call.caller, callee, path_of(callee, call.caller.text))
    if path.opaque or len(path.steps) < 2:
        return None
    if re.fullmatch(fact.names, path.steps[-2].name):
        return True
    site, first = names.lookup.site(call.caller, callee), path.steps[0].name
    found = names.lookup.type_or_namespace(site, first)
    known = not path.rooted and (found.classes or found.aliases or first in names.lookup.template_names(site))
    return None if known or first in names.lookup.macros else False


def _mentioned(program: Program, names: str) -> bool:
    pattern = re.compile(rb"\b(?:%s)\b" % names.encode())
    return any(pattern.search(file.lexed.code) for file in program.sources.files.values())


def _atom(program: Program, call: Call) -> Atom | str:
    """What a call multiplies; why that is not understood."""
    callee, function = call.node.child_by_field_name("function"), call.caller
    assert callee is not None
    at = function.span(callee)
    op = Span(at.start, at.start + len((callee.text or b"").rpartition(b"::")[0].rstrip()))
    arguments = list(call.args)
    packs = [i for i, a in enumerate(arguments) if a.type == PACK]
    if packs:
        last = packs[-1]
        d = _expanded(program, function, arguments[last])
        if d is None:
            return "the registers of D are no array from its first register on"
        behind = len(arguments) - last - 1
        shared = _in_front(arguments[:last]) if behind <= 1 else None
        if shared is None:
            return "the operands are not those of an MMA that is ported"
        return Atom(call, op, d, function.span(arguments[last]), not shared)
    written_out = _written_out(program, function, arguments)
    if written_out is not None:
        last, d, shared = written_out
        return Atom(call, op, d, function.span(arguments[last]), not shared)
    for front in (_SHARED, _REGISTERS):
        for behind in (0, 1):
            nodes: list[Node | None] = [*arguments[front : len(arguments) - behind]]
            found = register_list(function, nodes) if len(nodes) > 1 else None
            if found is not None and not found.is_scalars and len(found.inner) == 1 and not found.path:
                d = subscripted(nodes[0])
                registers = Span(function.span(arguments[front]).start, function.span(nodes[-1] or d).end)
                return Atom(call, op, d, registers, front == _REGISTERS)
    return "the registers of D are no array from its first register on"


def _written_out(program: Program, function: Function, arguments: list[Node]) -> tuple[int, Node, bool] | None:
    """A macro of the sources that lists the registers of D: which argument it is, the array it is handed, and whether A
    is in shared memory. A's registers may be such a list, too."""
    lists = {i: found for i, a in enumerate(arguments) if (found := _listed(program, function, a)) is not None}
    last = max(lists, default=0)
    if last not in lists or len(arguments) - last > 2:
        return None
    front = sum(lists[i][1] if i in lists else 1 for i in range(last))
    return (last, lists[last][0], front == _SHARED) if front in (_SHARED, _REGISTERS) else None


def _listed(program: Program, function: Function, node: Node) -> tuple[Node, int] | None:
    """The array whose elements from the first on a macro's use stands for, and how many they are."""
    callee, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if callee is None or given is None or function.text(callee) not in program.macros.by_name:
        return None
    texts = program.macros.expand(function.text(node))
    elements = [e.strip() for e in texts[0].split(",")] if len(texts) == 1 else []
    for array in given.named_children:
        pattern = re.escape(function.text(array)).replace(r"\ ", r"\s*")
        indices = [re.fullmatch(rf"\(?\s*{pattern}\s*\)?\s*\[\s*(\d+)\s*\]", e) for e in elements]
        if len(elements) > 1 and all(m is not None and int(m[1]) == i for i, m in enumerate(indices)):
            return array, len(elements)
    return None


def _in_front(arguments: list[Node]) -> bool | None:
    """Whether A, whose operands are the first of those in front of D, is in shared memory; None if they are others."""
    if len(arguments) == _SHARED and arguments[0].type == PACK:
        return False
    return {_SHARED: True, _REGISTERS: False}.get(len(arguments))


def _expanded(program: Program, function: Function, pack: Node) -> Node | None:
    """The array in `d[I]...`, where I is 0, 1, 2, … by the type of a parameter."""
    inner = pack.named_children[0] if pack.named_children else None
    if inner is None or inner.type != "subscript_expression":
        return None
    index, array = function.text(inner.named_children[-1]).strip("[] "), inner.child_by_field_name("argument")
    for param in function.params:
        found = _SEQUENCE.search(function.file.text(param.span))
        if found is not None and found[1] == index:
            given = list(_given(program, function, param.index))
            return array if given and all(_COUNTED.fullmatch(text) for text in given) else None
    return None


def _given(program: Program, function: Function, index: int) -> Iterator[str]:
    """What a parameter is handed by the callers of a function, or where a lambda is written."""
    for call in program.callers(function):
        yield call.caller.text(call.args[index]) if index < len(call.args) else ""
    above = function.node.parent
    arguments = above.child_by_field_name("arguments") if above is not None and function.style is Style.LAMBDA else None
    if arguments is not None and function.parent is not None and index < len(arguments.named_children):
        yield function.parent.text(arguments.named_children[index])


class _Search:
    """Follows arrays from MMAs to their declarations, and from there to all who are handed them."""

    def __init__(self, tiled: Tiled) -> None:
        self.tiled = tiled
        self.program = tiled.program

    def add(self, function: Function, node: Node) -> None:
        variable = self._variable(function, node)
        if variable is None or variable.ambiguous:
            what = f"`{function.text(node)}` is no array of registers that a function declares"
            self.tiled.refuse(function, node, what, Code.ACCUMULATOR_DECLARED)
        elif variable.key not in self.tiled.handles:
            if variable.param is not None:
                self._parameter(variable)
            else:
                self._local(variable, node)

    def _variable(self, function: Function, node: Node) -> Variable | None:
        """The variable that an expression names a part of."""
        while node.type != "identifier":
            if node.type in ("parenthesized_expression", "subscript_expression", "pointer_expression"):
                inner = node.child_by_field_name("argument") or node.named_children[0]
            elif node.type == "binary_expression" and (left := node.child_by_field_name("left")) is not None:
                inner = left
            else:
                return None
            node = inner
        return resolve(function, node, function.text(node))

    def _parameter(self, variable: Variable) -> None:
        function, param = variable.function, variable.param
        assert param is not None
        node = param.node or function.body
        if function.style is Style.KERNEL:
            self.tiled.refuse(function, node, f"`{param.name}` is a kernel's parameter", Code.ACCUMULATOR_DECLARED)
            return
        kind = node.child_by_field_name("type")
        declarator = node.child_by_field_name("declarator")
        extents = array_extents(node)
        pointers = [n for n in walk(node) if n.type in ("pointer_declarator", "array_declarator")]
        if kind is None or declarator is None or not pointers or function.style is Style.MACRO:
            what = f"parameter `{param.name}` of `{function.name}` is no pointer to registers, nor an array of them"
            self.tiled.refuse(function, node, what, Code.ACCUMULATOR_DECLARED)
            return
        if self.program.declarations(function):
            what = f"`{function.name}` is declared apart from its body, and is handed accumulator `{param.name}`"
            self.tiled.refuse(function, node, what, Code.CALL_NOT_FOLLOWED)
            return
        if not self._keep(Handle(variable, Origin.PARAM), function, kind, extents or [kind], node):
            return
        for call in self.program.callers(function):
            if param.index < len(call.args):
                self.add(call.caller, call.args[param.index])

    def _local(self, variable: Variable, node: Node) -> None:
        function, value, declaration = variable.function, initializer(variable), variable.declaration
        assert declaration is not None
        kind, extents = declaration.child_by_field_name("type"), array_extents(variable.declarator or declaration)
        if not extents and value is not None:
            # a pointer into another array
            if kind is not None and self._keep(Handle(variable, Origin.VIEW), function, kind, [kind], node):
                self.add(function, value)
            return
        plain = all(c.type not in ("storage_class_specifier", "type_qualifier") for c in declaration.children)
        if kind is None or not extents or not plain:
            what = f"`{variable.name}` is no array of registers that a function declares"
            self.tiled.refuse(function, node, what, Code.ACCUMULATOR_DECLARED)
            return
        if value is not None and function.text(value).strip("{} ") not in ("", "0", "0.f", "0.0f", "0.", "0.0"):
            what = f"registers of `{variable.name}` begin with values other than zero"
            self.tiled.refuse(function, value, what, Code.ACCUMULATOR_DECLARED)
            return
        self._keep(Handle(variable, Origin.FRAGMENT), function, kind, extents, node)

    def _keep(self, handle: Handle, function: Function, kind: Node, extents: list[Node], node: Node) -> bool:
        """Take a variable for one that names registers, if it is understood what those are."""
        if len(extents) > _MOST_EXTENTS:
            what = f"`{handle.name}` has more than {_MOST_EXTENTS} extents"
            self.tiled.refuse(function, node, what, Code.ACCUMULATOR_SHAPE)
            return False
        element = function.text(kind)
        half = False if element in ("float", "auto") else self._is_half()
        if half is None:
            what = f"whether a register of `{handle.name}` holds one element or two is not clear"
            self.tiled.refuse(function, node, what, Code.ACCUMULATOR_SHAPE)
            return False
        declarator = (
            function.text(handle.variable.param.node) if handle.variable.param and handle.variable.param.node else ""
        )
        handle.array = Array(element, tuple(extents), half, bool(_REFERENCE.search(declarator)))
        self.tiled.handles[handle.variable.key] = handle
        self.tiled.tensors.arrays[handle.variable.key] = len(extents)
        return True

    def _is_half(self) -> bool | None:
        """Whether two elements of D share a register, as the atoms of the sources say; None if they do not agree."""
        said = {
            found["d"].decode() == "F16"
            for names in self.tiled.names_of_atoms
            for file in self.program.sources.files.values()
            for found in re.finditer(names.encode(), file.lexed.code)
            if found["d"] != b"F32"
        }
        return said.pop() if len(said) == 1 else None

    def handed_on(self) -> bool:
        """Parameters of functions that issue or wait for MMAs and are handed an array."""
        found = False
        for function in self.program.functions:
            for call in function.calls:
                for index, argument in enumerate(call.args):
                    handle = self.tiled.handle_of(function, argument)
                    if handle is None or handle.array is None:
                        continue
                    for target in self.program.targets(call):
                        if id(target) in self.tiled.active and index < len(target.params):
                            variable = Variable(target, target.params[index].name, param=target.params[index])
                            if variable.key not in self.tiled.handles:
                                self._parameter(variable)
                                found = variable.key in self.tiled.handles or found
        return found
